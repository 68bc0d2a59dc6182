//! The place the queue's files live in: one directory, reached only through its descriptor.
//!
//! Everything the queue asks of the disk goes through [`Storage`] and [`StorageFile`], so that
//! tests can put a simulated disk in its place. Names are single path components; nothing here
//! follows a symbolic link below the directory.

mod directory;
mod file;
pub(crate) mod overlay;
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
use crate::format::SECTOR;
use crate::memory::Window;

/// A name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_file: bool,
}

/// Says for how long cached bytes are kept: while the storage answers with the same token, none can
/// have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CacheToken {
    /// A hash of boot, device and inode of the directory: no other boot or directory has it.
    pub(crate) place: [u8; 16],
    /// The mount through which the directory is seen: a number that is never given twice in a boot.
    /// Zero when it cannot be known.
    pub(crate) mount: u64,
}

impl CacheToken {
    /// Whether the files still show every byte that was stored under the `other` token.
    pub(crate) fn is(&self, other: &CacheToken) -> bool {
        let is_mount = self.mount == other.mount && self.mount != 0;
        self.place == other.place && is_mount
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
    /// The names in the directory, and whether each is a regular file. A name that is not UTF-8 is
    /// foreign, and comes in a form that cannot be opened.
    fn list(&self) -> io::Result<Vec<Listed>>;
    /// Creates a new file for reading and writing; fails when the name exists. Sets NOCOW while the
    /// file is empty, where the filesystem knows it.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing regular file (never follows a symbolic link; anything but a regular file
    /// is ErrorKind::InvalidData).
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Gives space to the holes of an open file, if this storage may write. A copy that leaves out
    /// zeros has holes, and on a full disk a mapped store into one, or on tmpfs a load, would end
    /// the process.
    fn fill_holes(&self, _file: &Self::File) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> Result<(), SyncFailed>;
    /// Whether the directory was removed: it has no names any more, and never will.
    fn is_removed(&self) -> bool;
    /// Takes the queue's lock; `Ok(false)` when somebody else holds it. The lock dies with the
    /// process.
    fn try_lock(&self) -> io::Result<bool>;
    /// Releases the lock before the storage itself is dropped.
    fn unlock(&self);
    /// The process that holds the lock, looked up without taking it; `None` when nobody does. 0: a
    /// process that cannot be named here.
    fn holder(&self) -> Option<u32>;
    /// A token that changes whenever cached bytes that were not synced may have been lost.
    fn cache_token(&self) -> CacheToken;
    fn free_bytes(&self) -> io::Result<u64>;
    fn random(&self) -> [u8; 16];
    /// Milliseconds since 1970.
    fn now(&self) -> u64;
    fn path(&self) -> &Path;
}
/// An open file of a [`Storage`].
pub(crate) trait StorageFile: std::fmt::Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;
    /// Allocates disk space for `offset .. offset + len` and extends the file over it. On failure
    /// the file has its old length again.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Maps `len` bytes. They may reach beyond the end of the file; the caller must not touch bytes
    /// there until they are allocated.
    fn map(&self, offset: u64, len: usize) -> io::Result<Window>;
    /// Reads up to `buf.len()` bytes, fewer at the end of the file, and returns how many.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf`. After a failure any part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes zeros, in as few calls as the system allows: the page cache holds each call's bytes
    /// in one long piece.
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
    /// How bytes of the file are to be changed, as [`find_stores`](Self::find_stores) found it
    /// last.
    fn stores(&self) -> Stores;
    /// Asks the filesystem anew how bytes from `offset` on are to be changed: a copy of the file
    /// may share its extents by now.
    fn find_stores(&self, offset: u64) -> Stores;
    /// Gives the file extents of its own where it shares them. It may fail silently: it takes
    /// space.
    fn unshare(&self, len: u64);
}

/// How bytes of a file are changed where space is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through a mapping: no store needs more space.
    ByMap,
    /// By calls, which can fail. A store may need space, because the filesystem copies what is
    /// overwritten or another file shares the extent. On a full disk the kernel answers such a
    /// store through a mapping with SIGBUS, or (btrfs) repeats the page fault for ever.
    ByCall,
}

/// Length of the zeros that are written over and over: they fit the processor's first-level cache.
const ZEROS_LEN: usize = 16 << 10;

/// Bytes that are read by calls: a file of a [`Storage`], or one that is read in another manner.
pub(crate) trait Readable {
    /// As [`StorageFile::read_at`].
    fn read_bytes(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl<F: StorageFile> Readable for F {
    #[inline]
    fn read_bytes(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset)
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full<F: Readable>(file: &F, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let read = file.read_bytes(&mut buf[done..], offset + done as u64)?;
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

/// As [`read_full`], but steps over sectors that cannot be read: their bytes stay as they are in
/// `buf`, and `unreadable` has an error for each.
pub(crate) fn read_around<F: StorageFile>(
    file: &F,
    buf: &mut [u8],
    offset: u64,
    unreadable: &mut Vec<io::Error>,
) -> usize {
    match read_full(file, buf, offset) {
        Ok(read) => read,
        Err(error) if buf.len() <= SECTOR => {
            unreadable.push(error);
            buf.len()
        }
        Err(_) => {
            // Divided at the end of a sector.
            let half = (buf.len() / 2).next_multiple_of(SECTOR);
            let (first, second) = buf.split_at_mut(half);
            let read = read_around(file, first, offset, unreadable);
            if read < half {
                return read;
            }
            half + read_around(file, second, offset + half as u64, unreadable)
        }
    }
}

/// Bytes that [`store_again`] reads and writes at once: a call for each page takes four times as
/// long.
const STORED_AT_ONCE: u64 = 256 << 10;
/// The smallest page there is.
const PAGE: u64 = 4096;

/// Stores the bytes of `start .. end` again, which makes their pages dirty. Nobody else changes
/// them meanwhile. A page that cannot be read is left alone: it is not in the page cache, so the
/// page cache shows nothing of it that the disk does not hold.
pub(crate) fn store_again<F: StorageFile>(file: &F, start: u64, end: u64) -> io::Result<()> {
    let mut bytes = vec![0; end.saturating_sub(start).min(STORED_AT_ONCE) as usize];
    let (mut at, mut at_once) = (start, STORED_AT_ONCE);
    while at < end {
        let piece = (at_once - at % at_once).min(end - at);
        let bytes = &mut bytes[..piece as usize];
        match read_full(file, bytes, at) {
            Ok(read) => {
                reached!("between bytes and their store");
                file.write_at(&bytes[..read], at)?;
            }
            Err(_) if piece > PAGE => {
                at_once = PAGE;
                continue;
            }
            _ => {}
        }
        at += piece;
    }
    Ok(())
}
