//! The place the queue's files live in: one directory, reached only through its descriptor.
//!
//! Everything the queue asks of the disk goes through [`Storage`] and [`StorageFile`], so that
//! tests can put a simulated disk in its place. Names are single path components; nothing here
//! follows a symbolic link below the directory.

mod directory;
mod file;
pub(crate) mod poison;
pub(crate) mod sheet;
#[cfg(any(target_os = "linux", target_os = "android"))]
#[path = "linux.rs"]
mod system;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "other.rs"]
mod system;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

#[cfg(test)]
pub(crate) use directory::CLOCK;
pub(crate) use directory::FileStorage;

use crate::error::SyncFailed;
use crate::memory::Window;

/// A name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_file: bool,
}

/// For how long cached bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CacheToken {
    /// Boot, device and inode of the directory, as a number that no other boot or directory has.
    pub(crate) place: [u8; 16],
    /// Through which mount it is seen: a number never given twice in a boot. Zero when that cannot
    /// be known.
    pub(crate) mount: u64,
}

impl CacheToken {
    /// What the files show is everything that was ever stored while the other life was.
    pub(crate) fn is(&self, other: &CacheToken) -> bool {
        self.place == other.place && self.mount == other.mount && self.mount != 0
    }

    pub(crate) fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.place);
        bytes[16..].copy_from_slice(&self.mount.to_le_bytes());
        bytes
    }
}

/// What the queue asks of the place its files live in. The real one is `FileStorage`; tests use
/// `SimStorage`, which keeps what is durable apart from what is only cached and can fail any call.
pub(crate) trait Storage: std::fmt::Debug + Send + Sync + Sized + 'static {
    type File: StorageFile;
    /// Names in the directory, with whether each is a regular file. (Names that are not UTF-8 are
    /// foreign, and shown as what cannot be opened.)
    fn list(&self) -> io::Result<Vec<Listed>>;
    /// Creates a new file for reading and writing; fails when the name exists. Sets NOCOW while it
    /// is empty where the filesystem knows it.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing regular file (never follows a symbolic link; anything but a regular file
    /// is ErrorKind::InvalidData).
    fn open(&self, name: &str) -> io::Result<Self::File>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> Result<(), SyncFailed>;
    /// The directory was removed: no name in it is there any more, nor will one be.
    fn is_removed(&self) -> bool;
    /// Takes the one-owner lock; Ok(false) when somebody else holds it. Dies with the process.
    fn try_lock(&self) -> io::Result<bool>;
    /// Lets go of the lock before the storage itself is dropped.
    fn unlock(&self);
    /// What changes whenever cached but unsynced bytes may have been lost.
    fn cache_token(&self) -> CacheToken;
    fn free_bytes(&self) -> io::Result<u64>;
    fn random(&self) -> [u8; 16];
    /// Milliseconds since 1970.
    fn now(&self) -> u64;
    fn path(&self) -> &Path;
}
pub(crate) trait StorageFile: std::fmt::Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;
    /// Really allocates [offset, offset+len) and extends the file over it; on failure the file has
    /// its old size again.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// May reach beyond the end of the file; bytes there must not be touched until they are
    /// allocated.
    fn map(&self, offset: u64, len: usize) -> io::Result<Window>;
    /// Reads as much as there is (short at the end of the file).
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of it; after a failure any part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes zeros, in as few calls as the system allows: the kernel then keeps them in pieces as
    /// long as the call.
    fn write_zeros_at(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = [0; ZEROS_LEN];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(ZEROS_LEN as u64);
            self.write_at(&zeros[..piece as usize], offset + done)?;
            done += piece;
        }
        Ok(())
    }
    /// fdatasync (F_FULLFSYNC on macOS).
    fn sync(&self) -> Result<(), SyncFailed>;
    /// st_blocks * 512
    fn disk_bytes(&self) -> io::Result<u64>;
    /// How bytes of the file are to be changed, as last found: by calls until it was asked for.
    fn stores(&self) -> Stores;
    /// Finds out anew how bytes from `offset` on are to be changed: a copy of the file may share
    /// its extents by now.
    fn find_stores(&self, offset: u64) -> Stores;
    /// Gives the file extents of its own where it shares them. Best effort: it takes space.
    fn unshare(&self, len: u64);
}

/// How bytes of a file are changed where space is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through a mapping: a store needs no more space.
    ByMap,
    /// By calls, which can fail. A store may need space: the filesystem copies what is overwritten,
    /// or another file shares it. On a full disk the kernel answers such a store with SIGBUS, or
    /// (btrfs) repeats the page fault for ever.
    ByCall,
}

/// Zeros that are written over and over stay in the processor's first-level cache.
const ZEROS_LEN: usize = 16 << 10;

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full<F: StorageFile>(
    file: &F,
    buf: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let read = file.read_at(&mut buf[done..], offset + done as u64)?;
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

/// Makes every page of `start .. end` dirty again with what it shows.
pub(crate) fn store_again<F: StorageFile>(file: &F, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let mut byte = [0];
        if file.read_at(&mut byte, at)? == 1 {
            file.write_at(&byte, at)?;
        }
        at = (at / 4096 + 1) * 4096;
    }
    Ok(())
}
