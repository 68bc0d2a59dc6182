//! The directory with the queue's files, reached only through its descriptor.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `mod` | the traits `Storage` and `StorageFile` | reads files around damage, stores bytes again |
//! | `directory`, `file` | a real directory, a real file | |
//! | `linux`, `other` | | system calls for Linux and for other systems |
//! | `overlay` | changes kept in memory | shows what an opening would do, without writing |
//! | `permissions` | | gives files and directories their permission bits |
//! | `poison` | closed, poisoned, ended | remembers the first failed sync |
//! | `sheet` | the bytes of the index file | stores them through a mapping or by write calls |
//!
//! The queue uses the disk only through [`Storage`] and [`StorageFile`], so that tests can use a
//! simulated disk instead. Names are single path components; only a salvage follows a symbolic link
//! below the directory.

mod directory;
mod file;
pub(crate) mod overlay;
mod permissions;
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

use std::io::{self, ErrorKind};
use std::path::Path;

#[cfg(test)]
pub(crate) use directory::CLOCK;
pub(crate) use directory::FileStorage;

use byteorder::{ByteOrder, LittleEndian};

use crate::error::SyncFailed;
use crate::format::{MAX_SEGMENT_LEN, RENEWED_NAME, SECTOR};
use crate::memory::Window;

/// A name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_file: bool,
}

/// Identifies the index file, and how long the system keeps cached bytes of it: while the storage
/// returns the same token, no cached byte can have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CacheToken {
    /// A hash of the boot and the file system. Zero when the boot cannot be identified.
    pub(crate) boot: u64,
    /// A hash of the directory and the index's [identity](FileStat::identity): a copy has another
    /// one.
    pub(crate) file: u64,
    /// The mount through which the process sees the directory: a number that the kernel never
    /// reuses in a boot. Zero when it is unknown.
    pub(crate) mount: u64,
}

impl CacheToken {
    pub(crate) fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.boot, self.file, self.mount];
        LittleEndian::write_u64_into(&words, &mut bytes);
        bytes
    }
}

/// What a file system says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileStat {
    /// Identifies the file among all that its file system ever has: a copy has another one.
    pub(crate) identity: u32,
    /// When the file or anything about it was changed last, in nanoseconds since 1970 (ctime). No
    /// program can set it.
    pub(crate) changed: u64,
}

/// The operations that the queue needs on its directory. The real one is `FileStorage`; tests use
/// `SimStorage`, which keeps durable bytes apart from cached ones and can fail any call.
pub(crate) trait Storage: std::fmt::Debug + Send + Sync + Sized + 'static {
    type File: StorageFile;
    /// Returns the names in the directory, and whether each is a regular file. A name that is not
    /// UTF-8 is foreign, and is returned in a form that cannot be opened.
    fn list(&self) -> io::Result<Vec<Listed>>;
    /// Creates a new file for reading and writing; fails when the name exists. Sets NOCOW while the
    /// file is empty, where the filesystem knows it.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing regular file (a symbolic link is ErrorKind::Unsupported, anything else but
    /// a regular file ErrorKind::InvalidData).
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Reads as [`read_full`] does, without changes that this storage keeps in memory.
    fn read_stored(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_full(&self.open(name)?, buf, offset)
    }
    /// Allocates space for the holes of an open file, if this storage may write. A sparse copy has
    /// holes, and on a full disk a mapped store into one, or on tmpfs a load, would kill the
    /// process.
    fn fill_holes(&self, _file: &Self::File) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Gives the name to a new file with the same bytes, which are on the disk; the name is not
    /// durable yet. Without room for a new file, or where bytes cannot be read now, stores what can
    /// be read again in the old one. (A longer file is none of a queue's.)
    fn renew(&self, name: &str) -> io::Result<()> {
        let old = self.open(name)?;
        let len = old.len()?;
        if len > MAX_SEGMENT_LEN {
            return Ok(());
        }
        let sync = |file: &Self::File| file.sync().map_err(|SyncFailed(error)| error);
        let _ = self.remove(RENEWED_NAME);
        let copied = self.create(RENEWED_NAME).and_then(|new| {
            new.belong_as(&old)?;
            new.allocate(0, len)?;
            if store_again(&old, &new, 0, len)? { sync(&new) } else { Err(ErrorKind::Other.into()) }
        });
        if copied.and_then(|()| self.rename(RENEWED_NAME, name)).is_ok() {
            return Ok(());
        }
        let _ = self.remove(RENEWED_NAME);
        store_again(&old, &old, 0, len)?;
        sync(&old)
    }
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> Result<(), SyncFailed>;
    /// Returns whether this opening created directories above the queue's own that no sync has made
    /// durable. (A later opening makes only the name of the queue's own directory durable.)
    fn has_made_parents(&self) -> bool {
        false
    }
    /// Returns whether the directory was removed, so that it can never contain a name again.
    fn is_removed(&self) -> bool;
    /// Takes the queue's lock; returns `Ok(false)` when another opener holds it. The lock dies with
    /// the process.
    fn try_lock(&self) -> io::Result<bool>;
    /// Releases the lock before the storage itself is dropped.
    fn unlock(&self);
    /// Returns the process that holds the lock, without taking it; `None` when no process does; 0
    /// for a process that has no id here.
    fn holder(&self) -> Option<u32>;
    /// Returns a token that changes whenever unsynced cached bytes may have been lost, or `index`
    /// is another file.
    fn cache_token(&self, index: FileStat) -> CacheToken;
    fn stat(&self, name: &str) -> io::Result<FileStat>;
    fn free_bytes(&self) -> io::Result<u64>;
    fn random(&self) -> [u8; 16];
    /// Returns the time of day in milliseconds since 1970.
    fn now(&self) -> u64;
    fn path(&self) -> &Path;
}
/// An open file of a [`Storage`].
pub(crate) trait StorageFile: std::fmt::Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;
    fn stat(&self) -> io::Result<FileStat>;
    /// Returns the length that the file had when it was opened. The caller knows that nobody has
    /// changed it since: then this saves a call.
    fn found_len(&self) -> io::Result<u64> {
        self.len()
    }
    /// Allocates disk space for `offset .. offset + len` and extends the file over it. On failure
    /// the file has its old length again.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Maps `len` bytes. They may reach beyond the end of the file; the caller must not touch bytes
    /// there until they are allocated.
    fn map(&self, offset: u64, len: usize) -> io::Result<Window>;
    /// Reads up to `buf.len()` bytes and returns how many: none at the end of the file alone.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads the first `len` bytes, fewer if the file is shorter.
    fn read_first(&self, len: usize) -> io::Result<Vec<u8>>
    where
        Self: Sized,
    {
        let mut bytes = vec![0; len];
        let read = read_full(self, &mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }
    /// Writes all of `buf`. After a failure any part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Gives the file the owner and the permission bits of another one.
    fn belong_as(&self, _other: &Self) -> io::Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
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
    /// Returns how the queue must change bytes of the file, by the last
    /// [`find_stores`](Self::find_stores).
    fn stores(&self) -> Stores;
    /// Asks the file system again how the queue must change bytes from `offset` on: a copy of the
    /// file may share its extents by now.
    fn find_stores(&self, offset: u64) -> Stores;
    /// Gives the file its own extents where it shares them. May fail silently, since it needs
    /// space.
    fn unshare(&self, len: u64);
}

/// How the queue changes bytes of a file in allocated space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through a mapping: no store needs more space.
    ByMap,
    /// By calls, which can fail. A store may need space, because the file system copies overwritten
    /// blocks or another file shares the extent. On a full disk such a store through a mapping
    /// raises SIGBUS, or (btrfs) repeats the page fault forever.
    ByCall,
}

/// Length of the buffer of zeros that is written repeatedly: it fits the processor's first-level
/// cache.
const ZEROS_LEN: usize = 16 << 10;

/// Bytes that code reads by calls: a file of a [`Storage`], or another source.
pub(crate) trait Readable {
    /// Reads up to `buf.len()` bytes, fewer at the end, and returns how many (see
    /// [`StorageFile::read_at`]).
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

/// Reads until the buffer is full or the file ends, but skips unreadable sectors: it leaves their
/// bytes in `buf` unchanged, and adds an error for each to `unreadable`.
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

/// How many bytes one read and one write of [`store_again`] take: a call for each page takes four
/// times as long.
const STORED_AT_ONCE: u64 = 256 << 10;
/// The smallest page there is.
const PAGE: u64 = 4096;

/// Stores the bytes of `start .. end` again, which makes their pages dirty. No other thread changes
/// them meanwhile. Skips a page that it cannot read, and then returns false: that page is not in
/// the page cache, so readers see only what the disk has.
pub(crate) fn store_again<F: StorageFile>(
    from: &F,
    into: &F,
    start: u64,
    end: u64,
) -> io::Result<bool> {
    let mut is_all = true;
    let mut bytes = vec![0; end.saturating_sub(start).min(STORED_AT_ONCE) as usize];
    let (mut at, mut at_once) = (start, STORED_AT_ONCE);
    while at < end {
        let piece = (at_once - at % at_once).min(end - at);
        let bytes = &mut bytes[..piece as usize];
        match read_full(from, bytes, at) {
            Ok(read) => {
                reached!("between bytes and their store");
                into.write_at(&bytes[..read], at)?;
            }
            Err(_) if piece > PAGE => {
                at_once = PAGE;
                continue;
            }
            _ => is_all = false,
        }
        at += piece;
    }
    Ok(is_all)
}
