//! A real file.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::io::IoSlice;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, retry_on_intr};

use super::{FileStat, StorageFile, Stores, system};
use crate::error::SyncFailed;
use crate::memory::{Window, file_limit};

/// Whether a store into allocated space of a file may need new space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overwrites {
    /// No: the filesystem writes to where the bytes lie.
    InPlace,
    /// Only where another file shares the extent (xfs; an overlay, which hides the file system
    /// below). The queue asks for each file.
    InPlaceUnlessShared,
    /// Assume yes: the file system copies on write, or is unknown. On btrfs a file with NOCOW is
    /// overwritten in place, but even then the kernel asks for new space first: on a full disk it
    /// fails a call and makes a mapped store wait forever.
    MayCopy,
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    pub(super) file: File,
    overwrites: Overwrites,
    /// The length when it was opened.
    found_len: Option<u64>,
    /// Whether the queue changes bytes through a mapping, by the last `find_stores`.
    by_map: AtomicBool,
}

impl DiskFile {
    pub(super) fn opened(file: File, overwrites: Overwrites) -> DiskFile {
        let by_map = AtomicBool::new(overwrites == Overwrites::InPlace);
        DiskFile { file, overwrites, found_len: None, by_map }
    }

    /// Takes over the file's length from the system.
    pub(super) fn with_stat(self, stat: &rustix::fs::Stat) -> DiskFile {
        DiskFile { found_len: u64::try_from(stat.st_size).ok(), ..self }
    }

    /// Wraps a file that was just created.
    pub(super) fn created(file: File, overwrites: Overwrites) -> DiskFile {
        let created = DiskFile::opened(file, overwrites);
        if overwrites == Overwrites::MayCopy {
            // Where the filesystem knows NOCOW, a call that overwrites then needs no space for
            // data.
            system::set_nocow(&created.file);
        }
        created.find_stores(0);
        created
    }

    /// Allocates space for the holes of a sparse file. Not where the file system may copy: there
    /// the queue changes bytes by calls. Asks for the extents: the disk bytes of a file include
    /// the tree of its extents, so they may hide a hole.
    pub(super) fn fill_holes(&self) -> io::Result<()> {
        if self.overwrites == Overwrites::MayCopy {
            return Ok(());
        }
        let found = self.found_len()?;
        let by_extents = system::has_holes(&self.file, found);
        if !by_extents.or_else(|_| self.disk_bytes().map(|disk| disk < found))? {
            return Ok(());
        }
        let len = self.len()?;
        system::allocate(&self.file, 0, len, len).map_err(|error| {
            let why = format!("it has holes (a sparse copy), and gets no space for them: {error}");
            io::Error::new(error.kind(), why)
        })
    }
}

impl StorageFile for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_size).unwrap_or(0))
    }

    fn stat(&self) -> io::Result<FileStat> {
        system::stat(&self.file, "")
    }

    fn found_len(&self) -> io::Result<u64> {
        self.found_len.map_or_else(|| self.len(), Ok)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
        let old_len = self.len()?;
        if end > old_len {
            within_file_limit(end)?;
        }
        if len == 0 {
            return Ok(());
        }
        system::allocate(&self.file, offset, len, old_len).inspect_err(|_| {
            // ext4 leaves the file extended over the space it could get; truncating the file frees
            // that space. Even if this fails, the caller's error says not to rely on anything
            // behind the old length.
            let _ = self.file.set_len(old_len);
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.len()? {
            within_file_limit(len)?;
        }
        self.file.set_len(len)
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Window> {
        Window::map_file(&self.file, offset, len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pread(&self.file, &mut *buf, offset))?)
    }

    fn read_first(&self, len: usize) -> io::Result<Vec<u8>> {
        // Into memory that nobody has filled with zeros before.
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let offset = bytes.len() as u64;
            let into = || rustix::io::pread(&self.file, spare_capacity(&mut bytes), offset);
            if retry_on_intr(into)? == 0 {
                break;
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        within_file_limit(offset + buf.len() as u64)?;
        self.file.write_all_at(buf, offset)
    }

    fn belong_as(&self, other: &DiskFile) -> io::Result<()> {
        let wanted = other.file.metadata()?;
        // Only root may give a file away.
        let _ = fchown(&self.file, Some(wanted.uid()), Some(wanted.gid()));
        self.file.set_permissions(wanted.permissions())
    }

    #[cfg(target_os = "linux")]
    fn write_zeros_at(&self, offset: u64, len: u64) -> io::Result<()> {
        use super::ZEROS_LEN;
        const MOST: u64 = 128;
        within_file_limit(offset + len)?;
        let zeros = [0; ZEROS_LEN];
        let mut pieces = [IoSlice::new(&zeros); MOST as usize + 1];
        let mut done = 0;
        while done < len {
            let now = (len - done).min(MOST * ZEROS_LEN as u64) as usize;
            pieces[now / ZEROS_LEN] = IoSlice::new(&zeros[..now % ZEROS_LEN]);
            match retry_on_intr(|| {
                rustix::io::pwritev(&self.file, &pieces[..=now / ZEROS_LEN], offset + done)
            })? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => done += written as u64,
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), SyncFailed> {
        retry_on_intr(|| system::sync_data(&self.file)).map_err(|error| SyncFailed(error.into()))
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_blocks).unwrap_or(0) * 512)
    }

    fn stores(&self) -> Stores {
        if self.by_map.load(Ordering::Relaxed) { Stores::ByMap } else { Stores::ByCall }
    }

    fn find_stores(&self, offset: u64) -> Stores {
        if self.overwrites == Overwrites::InPlaceUnlessShared {
            self.by_map.store(system::has_own_extents(&self.file, offset), Ordering::Relaxed);
        }
        self.stores()
    }

    fn unshare(&self, len: u64) {
        if self.overwrites == Overwrites::InPlaceUnlessShared {
            system::unshare(&self.file, len);
        }
    }
}

/// Writing at or behind RLIMIT_FSIZE, also within a file, or growing a file beyond it would kill
/// the process with SIGXFSZ instead of failing. Asks each time, because the program may change the
/// limit at any time. (No store through a mapping raises the signal.)
fn within_file_limit(end: u64) -> io::Result<()> {
    match file_limit() {
        Some(limit) if end > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// Writes zeros. The caller starts at or behind the end of the file: zeros over existing bytes
/// would destroy messages.
pub(super) fn write_zeros(file: &File, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; 16 << 10];
    while from < to {
        let len = (to - from).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], from)?;
        from += len;
    }
    Ok(())
}
