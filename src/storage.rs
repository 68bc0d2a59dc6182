//! The place the queue's files live in: one directory, reached only through its descriptor.
//!
//! Everything the queue asks of the disk goes through [`Storage`] and [`StorageFile`], so that tests can put a simulated
//! disk in its place. Names are single path components; nothing here follows a symbolic link below the directory.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
#[cfg(target_os = "linux")]
use std::io::IoSlice;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::arena::Lease;
use crate::error::SyncFailed;

/// A name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_file: bool,
}

/// For how long cached bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Life {
    /// Boot, device and inode of the directory, as a number that no other boot or directory has.
    pub(crate) place: [u8; 16],
    /// Through which mount it is seen: a number never given twice in a boot. Zero when that cannot be known.
    pub(crate) mount: u64,
}

impl Life {
    /// What the files show is everything that was ever stored while the other life was.
    pub(crate) fn is(&self, other: &Life) -> bool {
        self.place == other.place && self.mount == other.mount && self.mount != 0
    }

    pub(crate) fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.place);
        bytes[16..].copy_from_slice(&self.mount.to_le_bytes());
        bytes
    }
}

/// What the queue asks of the place its files live in. The real one is `FileStorage`; tests use `SimStorage`,
/// which keeps what is durable apart from what is only cached and can fail any call.
pub(crate) trait Storage: std::fmt::Debug + Send + Sync + Sized + 'static {
    type File: StorageFile;
    /// Names in the directory, with whether each is a regular file. (Names that are not UTF-8 are foreign, and shown as what cannot be opened.)
    fn list(&self) -> io::Result<Vec<Listed>>;
    /// Creates a new file for reading and writing; fails when the name exists. Sets NOCOW while it is empty where the filesystem knows it.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens an existing regular file (never follows a symbolic link; anything but a regular file is ErrorKind::InvalidData).
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
    fn life(&self) -> Life;
    fn free_bytes(&self) -> io::Result<u64>;
    fn random(&self) -> [u8; 16];
    /// Milliseconds since 1970.
    fn now(&self) -> u64;
    fn path(&self) -> &Path;
}
pub(crate) trait StorageFile: std::fmt::Debug + Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;
    /// Really allocates [offset, offset+len) and extends the file over it; on failure the file has its old size again.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// May reach beyond the end of the file; bytes there must not be touched until they are allocated.
    fn map(&self, offset: u64, len: usize) -> io::Result<Lease>;
    /// Reads as much as there is (short at the end of the file).
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of it; after a failure any part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes zeros, in as few calls as the system allows: the kernel then keeps them in pieces as long as the call.
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
    /// Finds out anew how bytes from `offset` on are to be changed: a copy of the file may share its extents by now.
    fn find_stores(&self, offset: u64) -> Stores;
    /// Gives the file extents of its own where it shares them. Best effort: it takes space.
    fn unshare(&self, len: u64);
}

/// How bytes of a file are changed where space is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through a mapping: a store needs no more space.
    ByMap,
    /// By calls, which can fail. A store may need space: the filesystem copies what is overwritten, or another file shares it. On
    /// a full disk the kernel answers such a store with SIGBUS, or (btrfs) repeats the page fault for ever.
    ByCall,
}

/// Zeros that are written over and over stay in the processor's first-level cache.
const ZEROS_LEN: usize = 16 << 10;

/// Whether a store into an allocated place of a file may need new space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "filesystems are told apart on Linux alone"))]
enum Overwrites {
    /// The filesystem writes to where the bytes lie.
    InPlace,
    /// In place, where no other file shares the extent (xfs; an overlay, which hides what lies below it). Asked of each file.
    InPlaceUnlessShared,
    /// Copies on write, or is not known not to. On btrfs a file with NOCOW is overwritten in place, but not even there without
    /// asking for new space first: what a full disk refuses to a call it makes a mapped store wait for without end.
    MayCopy,
}

/// The files of a queue in a real directory.
#[derive(Debug)]
pub(crate) struct FileStorage {
    path: PathBuf,
    /// Also carries the lock: closing it gives the lock back.
    directory: OwnedFd,
    overwrites: Overwrites,
    /// Directories that hold the names of the queue's directory and of those made above it, until they were synced.
    unsynced_parents: Mutex<Vec<OwnedFd>>,
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    overwrites: Overwrites,
    /// As last found.
    by_map: AtomicBool,
}

impl FileStorage {
    /// Opens the directory; with `create` makes it first, and every missing parent, durable each before the next.
    pub(crate) fn open(path: &Path, create: bool) -> io::Result<FileStorage> {
        let parents = if create { create_directory(path)? } else { Vec::new() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        let overwrites = system::overwrites(&directory)?;
        Ok(FileStorage { path: path.to_owned(), directory, overwrites, unsynced_parents: Mutex::new(parents) })
    }

    fn open_file(&self, name: &str, extra: OFlags) -> rustix::io::Result<File> {
        // NONBLOCK: a FIFO put in a file's place must not hang the opener.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | extra;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, mode))?.into())
    }

    fn disk_file(&self, file: File, is_new: bool) -> DiskFile {
        let disk_file = DiskFile {
            file,
            overwrites: self.overwrites,
            by_map: AtomicBool::new(self.overwrites == Overwrites::InPlace),
        };
        if is_new {
            if self.overwrites == Overwrites::MayCopy {
                // A call that overwrites then needs no space for data, where this is known.
                system::set_nocow(&disk_file.file);
            }
            disk_file.find_stores(0);
        }
        disk_file
    }
}

#[cfg(test)]
thread_local! {
    /// By how many milliseconds the clock of this thread is wrong.
    pub(crate) static CLOCK: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

impl Storage for FileStorage {
    type File = DiskFile;

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for found in Dir::read_from(&self.directory)? {
            let found = found?;
            // One that is not UTF-8 is foreign, whatever it is shown as.
            let name = found.file_name().to_string_lossy();
            if name == "." || name == ".." {
                continue;
            }
            let kind = match found.file_type() {
                FileType::Unknown => {
                    match rustix::fs::statat(&self.directory, found.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                known => known,
            };
            listed.push(Listed { name: name.into_owned(), is_file: kind == FileType::RegularFile });
        }
        Ok(listed)
    }

    fn create(&self, name: &str) -> io::Result<DiskFile> {
        let file = self.open_file(name, OFlags::CREATE | OFlags::EXCL)?;
        Ok(self.disk_file(file, true))
    }

    fn open(&self, name: &str) -> io::Result<DiskFile> {
        let file = match self.open_file(name, OFlags::empty()) {
            Ok(file) => file,
            // The answers to a symbolic link (MLINK on FreeBSD), a directory, a socket and a device without a driver.
            Err(Errno::LOOP | Errno::MLINK | Errno::ISDIR | Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP) => {
                return Err(not_ours("not a regular file"));
            }
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_ours("not a regular file"));
        }
        if stat.st_nlink != 1 {
            // A hard link is no damage (a backup may have made it), and a store would reach the other name too.
            let why = "has more than one name (hard links): remove the others, or put a copy in its place";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        Ok(self.disk_file(file, false))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::renameat(&self.directory, from, &self.directory, to))?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()))?)
    }

    fn sync_directory(&self) -> Result<(), SyncFailed> {
        let failed = |error: Errno| SyncFailed(error.into());
        let mut parents = self.unsynced_parents.lock();
        for parent in &*parents {
            match sync_names(parent) {
                // A read-only parent has nothing to write.
                Ok(()) | Err(Errno::ROFS) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        parents.clear();
        drop(parents);
        sync_names(&self.directory).map_err(failed)
    }

    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn try_lock(&self) -> io::Result<bool> {
        // Held by the open file description: a second descriptor is refused even in this process.
        match retry_on_intr(|| rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn unlock(&self) {
        // Unlocking what is open cannot fail; if it did, the lock would go with the descriptor.
        let _ = retry_on_intr(|| rustix::fs::flock(&self.directory, FlockOperation::NonBlockingUnlock));
    }

    fn life(&self) -> Life {
        system::life(&self.directory).unwrap_or_else(|| Life { place: self.random(), mount: 0 })
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = retry_on_intr(|| rustix::fs::fstatvfs(&self.directory))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        if system::fill_random(&mut bytes).is_err() {
            // The standard library keys its hash maps from the system's randomness, and never twice alike.
            let state = RandomState::new();
            bytes[..8].copy_from_slice(&state.hash_one((self.now(), 0)).to_le_bytes());
            bytes[8..].copy_from_slice(&state.hash_one((self.now(), 1)).to_le_bytes());
        }
        bytes
    }

    fn now(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        #[cfg(test)]
        let now = now.saturating_add_signed(CLOCK.with(std::cell::Cell::get));
        now
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl StorageFile for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_size).unwrap_or(0))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
        let old_len = self.len()?;
        within_file_limit(old_len, end)?;
        if len == 0 {
            return Ok(());
        }
        system::allocate(&self.file, offset, len, old_len).inspect_err(|_| {
            // ext4 leaves the file extended over what it could get. Cutting it is what gives that space back; should
            // even this fail, the error already says that nothing can be relied on behind the old length.
            let _ = self.file.set_len(old_len);
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        within_file_limit(self.len()?, len)?;
        self.file.set_len(len)
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Lease> {
        Lease::map_file(&self.file, offset, len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    #[cfg(target_os = "linux")]
    fn write_zeros_at(&self, offset: u64, len: u64) -> io::Result<()> {
        const MOST: u64 = 128;
        let zeros = [0; ZEROS_LEN];
        let mut pieces = [IoSlice::new(&zeros); MOST as usize + 1];
        let mut done = 0;
        while done < len {
            let now = (len - done).min(MOST * ZEROS_LEN as u64) as usize;
            pieces[now / ZEROS_LEN] = IoSlice::new(&zeros[..now % ZEROS_LEN]);
            match retry_on_intr(|| rustix::io::pwritev(&self.file, &pieces[..=now / ZEROS_LEN], offset + done))? {
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

fn not_ours(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Makes the directory and what is missing above it. A queue whose directory's own name a power cut undoes is lost
/// whatever was flushed, so with the first sync of the directory the names of all of them are made durable, the first one
/// found included: its maker may have been killed before. Returns the directories that hold those names.
fn create_directory(path: &Path) -> io::Result<Vec<OwnedFd>> {
    let mut existing = path;
    let mut missing = Vec::new();
    while matches!(existing.metadata(), Err(error) if error.kind() == ErrorKind::NotFound) {
        missing.push(existing);
        match existing.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => existing = parent,
            _ => break,
        }
    }
    let mut parents = Vec::new();
    parents.extend(parent_of(existing)?);
    for directory in missing.into_iter().rev() {
        match std::fs::DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => parents.extend(parent_of(directory)?),
        }
    }
    Ok(parents)
}

fn parent_of(directory: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::open(directory.join(".."), flags, Mode::empty())) {
        Ok(parent) => Ok(Some(parent)),
        // Whoever may not read the parent cannot sync it; NOENT and NOTDIR are told better by what comes next.
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// INVAL: the filesystem knows no sync of directories, and what it does is all there is.
fn sync_names(directory: &OwnedFd) -> rustix::io::Result<()> {
    match retry_on_intr(|| system::full_sync(directory)) {
        Err(Errno::INVAL) => Ok(()),
        answer => answer,
    }
}

/// Growing a file beyond RLIMIT_FSIZE would kill the process with SIGXFSZ instead of failing.
fn within_file_limit(old_len: u64, end: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if end > limit && end > old_len => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// The caller starts at or behind the end of the file: zeros over existing bytes would destroy messages.
fn write_zeros(file: &File, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; 16 << 10];
    while from < to {
        let len = (to - from).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], from)?;
        from += len;
    }
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use super::*;
    use rustix::fs::{FallocateFlags, StatxFlags, ioctl_setflags, statx};
    pub(super) use rustix::fs::{IFlags, ioctl_getflags};
    pub(super) use rustix::fs::{fdatasync as sync_data, fsync as full_sync};
    use rustix::rand::{GetRandomFlags, getrandom};

    pub(super) fn allocate(file: &File, offset: u64, len: u64, old_len: u64) -> io::Result<()> {
        match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, offset.max(old_len), offset + len),
            answer => Ok(answer?),
        }
    }

    /// Only what is known to write in place counts as that; a wrong guess is a SIGBUS on a full disk, while the way
    /// around the mapping is merely slower.
    pub(super) fn overwrites(directory: &OwnedFd) -> io::Result<Overwrites> {
        Ok(match retry_on_intr(|| rustix::fs::fstatfs(directory))?.f_type as u32 {
            // ext2/3/4, tmpfs, jfs, and f2fs, which keeps space aside for every block it has given out.
            0xEF53 | 0x0102_1994 | 0x3153_464A | 0xF2F5_2010 => Overwrites::InPlace,
            0x5846_5342 => Overwrites::InPlaceUnlessShared,
            // An overlay gives the numbers of its upper layer: btrfs counts no inodes.
            0x794C_7630 if retry_on_intr(|| rustix::fs::fstatvfs(directory))?.f_files > 0 => {
                Overwrites::InPlaceUnlessShared
            }
            // btrfs (0x9123683E), zfs (0x2FC12FC1), bcachefs (0xCA451A4E), fuse (0x65735546), nfs (0x6969), nilfs2, 9p, smb, ...
            _ => Overwrites::MayCopy,
        })
    }

    /// Works on empty files only.
    pub(super) fn set_nocow(file: &File) {
        if let Ok(flags) = ioctl_getflags(file) {
            let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
        }
    }

    /// What does not tell has none.
    pub(super) fn has_own_extents(file: &File, offset: u64) -> bool {
        crate::arena::shares_extents(file, offset).is_ok_and(|shared| !shared)
    }

    pub(super) fn unshare(file: &File, len: u64) {
        let _ = retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::UNSHARE_RANGE, 0, len));
    }

    /// `None` where it cannot be known that the machine is still in the same boot; then nothing cached is trusted.
    pub(super) fn life(directory: &OwnedFd) -> Option<Life> {
        // STATX_MNT_ID_UNIQUE (Linux 6.8) is never given twice in a boot. The plain number is: umount and mount give the same
        // again, so it proves nothing.
        const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok().filter(|boot| boot.len() >= 32)?;
        let stat = retry_on_intr(|| statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | UNIQUE)).ok()?;
        let is_unique = StatxFlags::from_bits_retain(stat.stx_mask).contains(UNIQUE);
        let numbers = [u64::from(stat.stx_dev_major), u64::from(stat.stx_dev_minor), stat.stx_ino];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(boot);
        // FNV-1a with 128 bits.
        let hash = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        Some(Life { place: hash.to_le_bytes(), mount: if is_unique { stat.stx_mnt_id } else { 0 } })
    }

    pub(super) fn fill_random(bytes: &mut [u8; 16]) -> io::Result<()> {
        match retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()))? {
            16 => Ok(()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use super::*;
    pub(super) use full_sync as sync_data;
    use std::io::Read;

    /// On Darwin fsync reaches the drive but not its medium; F_FULLFSYNC is refused by some network filesystems.
    pub(super) fn full_sync<D: std::os::fd::AsFd>(file: D) -> rustix::io::Result<()> {
        #[cfg(target_vendor = "apple")]
        match rustix::fs::fcntl_fullfsync(&file) {
            Err(Errno::NOTSUP | Errno::NOTTY | Errno::INVAL) => {}
            answer => return answer,
        }
        rustix::fs::fsync(&file)
    }

    /// Darwin's F_PREALLOCATE, as rustix offers it, counts from the end of the file and cuts what lies behind;
    /// posix_fallocate elsewhere is missing, or refused by ZFS. Zeros are right everywhere.
    pub(super) fn allocate(file: &File, offset: u64, len: u64, old_len: u64) -> io::Result<()> {
        write_zeros(file, offset.max(old_len), offset + len)
    }

    /// Darwin does not ask the filesystem when a mapped page is first stored to: a store never fails, a sync may.
    /// Elsewhere ZFS is common.
    pub(super) fn overwrites(_directory: &OwnedFd) -> io::Result<Overwrites> {
        Ok(if cfg!(target_vendor = "apple") { Overwrites::InPlace } else { Overwrites::MayCopy })
    }

    pub(super) fn set_nocow(_file: &File) {}

    pub(super) fn has_own_extents(_file: &File, _offset: u64) -> bool {
        false
    }

    pub(super) fn unshare(_file: &File, _len: u64) {}

    pub(super) fn life(_directory: &OwnedFd) -> Option<Life> {
        None
    }

    pub(super) fn fill_random(bytes: &mut [u8; 16]) -> io::Result<()> {
        File::open("/dev/urandom")?.read_exact(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn storage() -> (tempfile::TempDir, FileStorage) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let storage = FileStorage::open(&directory.path().join("deep/queue"), true).expect("creates missing parents");
        (directory, storage)
    }

    /// A small filesystem of its own, or `None` with the reason printed. `image` mebibytes: made with mkfs and mounted
    /// through a loop device; otherwise `options` say all.
    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn new(kind: &str, options: &str, image: Option<u64>) -> Option<Mounted> {
            let run = |program: &str, arguments: &[&str]| match Command::new(program).args(arguments).output() {
                Ok(output) if output.status.success() => Some(()),
                other => {
                    println!("skipped: {program} {arguments:?}: {other:?}");
                    None
                }
            };
            let directory = tempfile::tempdir().expect("a temporary directory");
            std::fs::create_dir(directory.path().join("mounted")).expect("a mount point");
            let source = directory.path().join("image");
            if let Some(image) = image {
                File::create(&source).and_then(|file| file.set_len(image << 20)).expect("an image");
                run(&format!("mkfs.{kind}"), &["-q", source.to_str()?])?;
            }
            let target = directory.path().join("mounted");
            run("mount", &["-t", kind, "-o", options, source.to_str()?, target.to_str()?])?;
            Some(Mounted(directory))
        }

        fn open(&self) -> FileStorage {
            FileStorage::open(&self.0.path().join("mounted/queue"), true).expect("a queue's directory")
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0.path().join("mounted")).status();
        }
    }

    #[test]
    fn a_second_descriptor_is_locked_out_until_the_first_is_closed() {
        let (root, first) = storage();
        let link = root.path().join("link");
        symlink(first.path(), &link).unwrap();
        assert!(first.try_lock().unwrap());
        assert!(first.try_lock().unwrap(), "the holder asks again");
        let second = FileStorage::open(&link, false).unwrap();
        assert!(!second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
    }

    #[test]
    fn only_regular_files_with_one_name_are_opened() {
        let (root, storage) = storage();
        let path = |name: &str| storage.path().join(name);
        std::fs::write(root.path().join("outside"), "x").unwrap();
        symlink(root.path().join("outside"), path("symlink")).unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        rustix::fs::mknodat(&storage.directory, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::write(path("first"), "x").unwrap();
        std::fs::hard_link(path("first"), path("second")).unwrap();
        for name in ["symlink", "directory", "fifo", "socket"] {
            assert_eq!(storage.open(name).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        }
        for name in ["first", "second"] {
            assert_eq!(storage.open(name).unwrap_err().kind(), ErrorKind::Unsupported, "{name}");
        }
        assert_eq!(storage.open("missing").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(storage.create("symlink").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(FileStorage::open(&path("first"), false).unwrap_err().kind(), ErrorKind::NotADirectory);
        let mut listed = storage.list().unwrap();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        let listed: Vec<_> = listed.iter().map(|listed| (listed.name.as_str(), listed.is_file)).collect();
        let expected = [("directory", false), ("fifo", false), ("first", true), ("second", true), ("socket", false)];
        assert_eq!(listed, [&expected[..], &[("symlink", false)]].concat());
    }

    #[test]
    fn files_are_made_renamed_and_removed_and_are_private() {
        let (_root, storage) = storage();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        storage.create("a").unwrap().write_at(b"bytes", 3).unwrap();
        assert_eq!((mode(storage.path()), mode(&storage.path().join("a"))), (0o700, 0o600));
        storage.rename("a", "b").unwrap();
        storage.sync_directory().unwrap();
        let mut buf = [1; 9];
        assert_eq!(storage.open("b").unwrap().read_at(&mut buf, 0).unwrap(), 8);
        assert_eq!(&buf, b"\0\0\0bytes\x01");
        storage.remove("b").unwrap();
        assert!(storage.list().unwrap().is_empty());
        assert!(FileStorage::open(&storage.path().join("missing"), false).is_err());
    }

    #[test]
    fn allocating_extends_and_never_shortens_and_what_was_mapped_before_can_be_stored_to() {
        let (_root, storage) = storage();
        let file = storage.create("a").unwrap();
        let lease = file.map(0, 1 << 20).unwrap();
        file.allocate(0, 64 << 10).unwrap();
        assert_eq!((file.len().unwrap(), file.disk_bytes().unwrap() >= 64 << 10), (64 << 10, true));
        lease.copy_in((64 << 10) - 5, b"store");
        file.allocate(0, 4096).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 64 << 10);
        let mut buf = [0; 5];
        assert_eq!(file.read_at(&mut buf, (64 << 10) - 5).unwrap(), 5);
        assert_eq!(&buf, b"store");
        write_zeros(&file.file, file.len().unwrap(), 100_000).unwrap();
        assert_eq!((file.len().unwrap(), file.read_at(&mut buf, (64 << 10) - 5).unwrap()), (100_000, 5));
        assert_eq!(&buf, b"store");
        assert_eq!(file.allocate(u64::MAX, 2).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_refused_allocation_leaves_the_old_length_and_its_space() {
        for (kind, options, image) in [("tmpfs", "size=4M", None), ("ext4", "loop", Some(32))] {
            let Some(mounted) = Mounted::new(kind, options, image) else {
                continue;
            };
            let storage = mounted.open();
            let file = storage.create("a").unwrap();
            file.allocate(0, 1 << 20).unwrap();
            let free = storage.free_bytes().unwrap();
            for _ in 0..3 {
                assert_eq!(file.allocate(1 << 20, 1 << 30).unwrap_err().kind(), ErrorKind::StorageFull, "{kind}");
                assert_eq!(file.len().unwrap(), 1 << 20, "{kind}");
                // ext4 may keep a block of its extent tree.
                assert!(file.disk_bytes().unwrap() <= (1 << 20) + 4096, "{kind}");
            }
            assert!(storage.free_bytes().unwrap() + (64 << 10) >= free, "{kind}");
            assert_eq!(file.stores(), Stores::ByMap, "{kind}");
            file.allocate(1 << 20, 1 << 20).unwrap();
        }
    }

    #[test]
    fn on_btrfs_bytes_are_changed_by_calls_and_where_they_lie() {
        let Some(mounted) = Mounted::new("btrfs", "loop", Some(128)) else {
            return;
        };
        let storage = mounted.open();
        let file = storage.create("a").unwrap();
        assert!(system::ioctl_getflags(&file.file).unwrap().contains(system::IFlags::NOCOW));
        assert_eq!((file.stores(), storage.open("a").unwrap().find_stores(0)), (Stores::ByCall, Stores::ByCall));
    }

    #[test]
    fn on_xfs_a_file_that_shares_its_extents_is_changed_by_calls_until_it_has_its_own() {
        let Some(mounted) = Mounted::new("xfs", "loop", Some(320)) else {
            return;
        };
        let storage = mounted.open();
        let file = storage.create("a").unwrap();
        assert_eq!(file.stores(), Stores::ByMap);
        file.allocate(0, 1 << 20).unwrap();
        for at in 0..128 {
            // In more pieces than are told of at a time.
            file.write_at(&[1; 4096], at * 8192).unwrap();
        }
        file.sync().unwrap();
        assert_eq!(file.find_stores(0), Stores::ByMap);
        let path = |name: &str| storage.path().join(name);
        assert!(Command::new("cp").arg("--reflink=always").args([path("a"), path("b")]).status().unwrap().success());
        let opened = storage.open("a").unwrap();
        assert_eq!((opened.stores(), opened.find_stores(0)), (Stores::ByCall, Stores::ByCall));
        opened.unshare(1 << 19);
        assert_eq!((opened.find_stores(0), opened.find_stores(1 << 19)), (Stores::ByCall, Stores::ByCall));
        opened.unshare(1 << 20);
        assert_eq!((opened.find_stores(0), file.find_stores(0)), (Stores::ByMap, Stores::ByMap));
    }

    #[test]
    fn an_overlay_is_judged_by_what_lies_below_it() {
        for (kind, image, stores) in [("ext4", 32, Stores::ByMap), ("btrfs", 128, Stores::ByCall)] {
            let Some(below) = Mounted::new(kind, "loop", Some(image)) else {
                continue;
            };
            let path = |name: &str| below.0.path().join("mounted").join(name).display().to_string();
            for name in ["lower", "upper", "work"] {
                std::fs::create_dir(path(name)).unwrap();
            }
            std::fs::write(path("lower/old"), "x").unwrap();
            let options = format!("lowerdir={},upperdir={},workdir={}", path("lower"), path("upper"), path("work"));
            let Some(mounted) = Mounted::new("overlay", &options, None) else {
                continue;
            };
            let storage = FileStorage::open(&mounted.0.path().join("mounted"), false).unwrap();
            assert_eq!(storage.create("new").unwrap().stores(), stores, "{kind}");
            assert_eq!(storage.open("old").unwrap().find_stores(0), stores, "{kind}");
        }
    }

    #[test]
    fn life_is_the_same_for_the_same_directory_and_mount() {
        let (root, storage) = storage();
        let again = FileStorage::open(storage.path(), true).unwrap();
        let other = FileStorage::open(root.path(), false).unwrap();
        assert_eq!(storage.life() == again.life(), system::life(&storage.directory).is_some());
        assert_ne!(storage.life().place, other.life().place);
        assert_ne!(storage.random(), storage.random());
        assert!(storage.now() > 1_700_000_000_000 && storage.free_bytes().unwrap() > 0);
    }
}
