//! A real directory.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::file::{DiskFile, Overwrites};
use super::permissions::{
    DIRECTORY_BITS, FILE_BITS, OWNERS, change_mode, of_directory, permissions,
};
use super::{CacheToken, FileStat, Listed, Storage, system};
use crate::error::SyncFailed;
use crate::format::{INDEX_NAME, SEGMENT_PREFIX, segment_slot};
use crate::threads::above_standard;

/// The files of a queue in a real directory.
#[derive(Debug)]
pub(crate) struct FileStorage {
    path: PathBuf,
    /// Also holds the lock: closing the descriptor releases it.
    pub(super) directory: OwnedFd,
    overwrites: Overwrites,
    /// Whether to open files only for reading.
    looks_only: bool,
    /// Whether to read segment files at the other end of symbolic links, too.
    follows_links: bool,
    /// The permission bits of new files, once known (see [`mode`](Self::mode)).
    mode: OnceLock<Mode>,
    /// The part of the [`CacheToken`] that no change of a file changes, once known.
    token: OnceLock<CacheToken>,
    /// The parents of the queue's directory and of the directories created above it, until a sync
    /// has made their names durable.
    unsynced_parents: Mutex<Vec<OwnedFd>>,
    /// Whether a directory above the queue's own was missing, and this opening created it.
    made_parents: bool,
}

impl FileStorage {
    /// Opens the directory, which exists.
    pub(crate) fn open(path: &Path) -> io::Result<FileStorage> {
        let directory = open_directory(CWD, path, OFlags::empty())?;
        let overwrites = system::overwrites(&directory)?;
        Ok(FileStorage {
            path: path.to_owned(),
            directory,
            overwrites,
            looks_only: false,
            follows_links: false,
            mode: OnceLock::new(),
            token: OnceLock::new(),
            unsynced_parents: Mutex::default(),
            made_parents: false,
        })
    }

    /// Opens the existing directory only to read its files.
    pub(crate) fn open_to_look(path: &Path) -> io::Result<FileStorage> {
        let storage = FileStorage::open(path)?;
        Ok(FileStorage { looks_only: true, ..storage })
    }

    /// Opens the existing directory only to read its files, also at the other end of links.
    pub(crate) fn open_to_salvage(path: &Path) -> io::Result<FileStorage> {
        let storage = FileStorage::open_to_look(path)?;
        Ok(FileStorage { follows_links: true, ..storage })
    }

    /// Opens the directory, and creates it with every missing parent when it does not exist. The
    /// names become durable with the first sync of the directory; so does the name of an existing
    /// directory, since its creator may have been killed before syncing it.
    ///
    /// With a [`mode`](Self::with_mode) a new directory gets the matching permission bits, and
    /// otherwise those that the umask leaves.
    pub(crate) fn create(path: &Path, mode: Option<u32>) -> io::Result<FileStorage> {
        FileStorage::create_as(path, mode.map(permissions))
    }

    /// Creates or opens another directory with the same permission bits (see
    /// [`create`](Self::create)).
    pub(crate) fn create_like(&self, path: &Path) -> io::Result<FileStorage> {
        FileStorage::create_as(path, self.mode())
    }

    fn create_as(path: &Path, mode: Option<Mode>) -> io::Result<FileStorage> {
        let (mut storage, parents) = match FileStorage::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (parents, made_parents) = create_directory(path, mode)?;
                reached!("a directory is made");
                // Another user may have put a link in its place, which a slash would follow.
                let made = path.components().as_path();
                let directory = open_directory(CWD, made, OFlags::NOFOLLOW)?;
                let storage = FileStorage { made_parents, directory, ..FileStorage::open(path)? };
                if let Some(mode) = mode {
                    change_mode(&storage.directory, of_directory(mode), DIRECTORY_BITS)?;
                }
                (storage, parents)
            }
            opened => {
                let storage = opened?;
                let parent = open_parent(&storage.directory, Path::new(".."))?;
                (storage, parent.into_iter().collect())
            }
        };
        *storage.unsynced_parents.get_mut() = parents;
        Ok(storage.with_bits(mode))
    }

    /// Renames the directory to a free name, or that of an empty directory. A power cut leaves one
    /// of the two names, and once this has returned the new one.
    pub(crate) fn rename_to(&self, path: &Path) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::rename(&self.path, path))?;
        match open_parent(&self.directory, Path::new(".."))? {
            Some(parent) => Ok(sync_names(&parent)?),
            None => Ok(()),
        }
    }

    /// Returns the descriptor of the directory.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Makes new files get these permission bits, whatever the umask is.
    pub(crate) fn with_mode(self, mode: Option<u32>) -> FileStorage {
        self.with_bits(mode.map(permissions))
    }

    fn with_bits(self, mode: Option<Mode>) -> FileStorage {
        FileStorage { mode: mode.map_or_else(OnceLock::new, OnceLock::from), ..self }
    }

    /// Returns the permission bits of new files: the requested ones, or else those of the index or
    /// of any segment. `None` without files: then the umask determines them.
    fn mode(&self) -> Option<Mode> {
        if let Some(mode) = self.mode.get() {
            return Some(*mode);
        }
        let found = self.found_mode(INDEX_NAME).or_else(|| {
            let listed = self.list().unwrap_or_default();
            let mut segments = listed.iter().filter(|listed| segment_slot(&listed.name).is_some());
            segments.find_map(|segment| self.found_mode(&segment.name))
        });
        found.map(|found| *self.mode.get_or_init(|| found))
    }

    fn found_mode(&self, name: &str) -> Option<Mode> {
        let stat = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then(|| Mode::from_raw_mode(stat.st_mode) & FILE_BITS | OWNERS)
    }

    /// Gives the queue's existing files the permission bits of new ones, and the directory the
    /// matching ones, unless another user owns it.
    pub(crate) fn change_modes(&self) -> io::Result<()> {
        let Some(mode) = self.mode() else {
            return Ok(());
        };
        let is_ours = |name: &str| name == INDEX_NAME || segment_slot(name).is_some();
        for listed in self.list()?.iter().filter(|it| it.is_file && is_ours(&it.name)) {
            match self.open(&listed.name) {
                Ok(file) => change_mode(&file.file, mode, FILE_BITS)?,
                // The file was removed meanwhile, or has another name: it may be another queue's.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {}
                Err(error) => return Err(error),
            }
        }
        match change_mode(&self.directory, of_directory(mode), DIRECTORY_BITS) {
            Err(Errno::PERM) => Ok(()),
            changed => Ok(changed?),
        }
    }

    fn open_file(&self, name: &str, extra: OFlags) -> rustix::io::Result<File> {
        // NONBLOCK: a FIFO put in a file's place must not hang the opener. NO_ACCESS_TIME: the
        // first read after a change would otherwise store a time that nobody needs.
        let access = if self.looks_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags =
            access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | extra;
        let mode = self.mode.get().copied().unwrap_or(FILE_BITS);
        let open = |flags| retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, mode));
        // Of a link that leads nowhere the second call tells.
        if self.follows_links
            && let Ok(file) = open(flags - OFlags::NOFOLLOW)
        {
            return Ok(file.into());
        }
        // A file that it refuses would be left behind where it makes one: some file systems give it
        // to another owner.
        if self.looks_only || extra.contains(OFlags::CREATE) {
            return Ok(open(flags)?.into());
        }
        match open(flags | system::NO_ACCESS_TIME) {
            // Only the owner of the file may ask for it.
            Err(Errno::PERM) => Ok(open(flags)?.into()),
            opened => Ok(opened?.into()),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Milliseconds by which this thread's clock is ahead.
    pub(crate) static CLOCK: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

impl Storage for FileStorage {
    type File = DiskFile;

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for found in Dir::new(open_directory(&self.directory, Path::new("."), OFlags::empty())?)? {
            let found = found?;
            // A name that is not UTF-8 is foreign, whatever it becomes here.
            let name = found.file_name().to_string_lossy();
            if name == "." || name == ".." {
                continue;
            }
            let kind = match found.file_type() {
                FileType::Unknown => {
                    match rustix::fs::statat(
                        &self.directory,
                        found.file_name(),
                        AtFlags::SYMLINK_NOFOLLOW,
                    ) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                known => known,
            };
            let is_followed = self.follows_links && name.starts_with(SEGMENT_PREFIX);
            let is_file =
                kind == FileType::RegularFile || (is_followed && kind == FileType::Symlink);
            listed.push(Listed { name: name.into_owned(), is_file });
        }
        Ok(listed)
    }

    fn create(&self, name: &str) -> io::Result<DiskFile> {
        let mode = self.mode();
        let file = self.open_file(name, OFlags::CREATE | OFlags::EXCL)?;
        let made = above_standard(file.into()).and_then(|file| {
            mode.map_or(Ok(()), |mode| change_mode(&file, mode, FILE_BITS))?;
            Ok(DiskFile::created(file.into(), self.overwrites))
        });
        made.map_err(|error| {
            // The name must be free for the next try.
            let _ = self.remove(name);
            error.into()
        })
    }

    fn open(&self, name: &str) -> io::Result<DiskFile> {
        let file = match self.open_file(name, OFlags::empty()) {
            Ok(file) => file,
            // The errors for a directory, a socket and a device without a driver.
            Err(Errno::ISDIR | Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP) => {
                return Err(not_ours("not a regular file"));
            }
            // (MLINK on FreeBSD.) A link is not damage: the bytes may be whole at its other end.
            Err(Errno::LOOP | Errno::MLINK) => {
                let why = "is a symbolic link: put the file itself in its place";
                return Err(io::Error::new(ErrorKind::Unsupported, why));
            }
            Err(error) => return Err(error.into()),
        };
        let file = File::from(above_standard(file.into())?);
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_ours("not a regular file"));
        }
        if stat.st_nlink != 1 && !self.looks_only {
            // A hard link is not damage (a backup may have made it), but a store would change the
            // other file, too.
            let why = "has more than one name (hard links): remove the others, or put a copy in its place";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        Ok(DiskFile::opened(file, self.overwrites).with_stat(&stat))
    }

    fn fill_holes(&self, file: &DiskFile) -> io::Result<()> {
        if self.looks_only { Ok(()) } else { file.fill_holes() }
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

    fn has_made_parents(&self) -> bool {
        self.made_parents && !self.unsynced_parents.lock().is_empty()
    }

    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn try_lock(&self) -> io::Result<bool> {
        // The open file description holds the lock, so a second descriptor cannot take it even in
        // this process.
        let lock = FlockOperation::NonBlockingLockExclusive;
        match retry_on_intr(|| rustix::fs::flock(&self.directory, lock)) {
            Ok(()) => {
                system::mark(self.directory());
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn unlock(&self) {
        system::unmark(self.directory());
        // Unlocking an open descriptor cannot fail. If it did, closing the descriptor would release
        // the lock.
        let _ =
            retry_on_intr(|| rustix::fs::flock(&self.directory, FlockOperation::NonBlockingUnlock));
    }

    fn holder(&self) -> Option<u32> {
        system::holder(&self.directory)
    }

    fn cache_token(&self, index: FileStat) -> CacheToken {
        let token = self.token.get_or_init(|| system::cache_token(&self.directory));
        CacheToken { file: token.file ^ u64::from(index.identity), ..*token }
    }

    fn stat(&self, name: &str) -> io::Result<FileStat> {
        system::stat(&self.directory, name)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = retry_on_intr(|| rustix::fs::fstatvfs(&self.directory))?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        if system::fill_random(&mut bytes).is_err() {
            // In a sandbox. The standard library's hash maps may panic there: mmq has none.
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            bytes = (since.as_nanos() ^ u128::from(std::process::id()) << 64).to_le_bytes();
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

fn not_ours(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn open_directory(at: impl AsFd, path: &Path, extra: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
    above_standard(retry_on_intr(|| rustix::fs::openat(&at, path, flags, Mode::empty()))?)
}

/// Creates the directory and the missing ones above it. Returns their parents, for the first sync,
/// and whether any above it was missing. `mode` is that of the files in it. If a power cut removed
/// the name of the queue's directory, the queue would be lost whatever was flushed. The first sync
/// also covers the name of the first existing directory: its creator may have been killed before
/// syncing it.
fn create_directory(path: &Path, mode: Option<Mode>) -> io::Result<(Vec<OwnedFd>, bool)> {
    let mut existing = path;
    let mut missing = Vec::new();
    while matches!(existing.metadata(), Err(error) if error.kind() == ErrorKind::NotFound) {
        missing.push(existing);
        match existing.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => existing = parent,
            _ => break,
        }
    }
    let made_parents = missing.len() > 1;
    let mut parents = Vec::new();
    parents.extend(open_parent(CWD, &existing.join(".."))?);
    for directory in missing.into_iter().rev() {
        let own = mode.filter(|_| directory == path).map_or(DIRECTORY_BITS, of_directory);
        match rustix::fs::mkdir(directory, own) {
            Err(error) if error != Errno::EXIST => return Err(error.into()),
            _ => parents.extend(open_parent(CWD, &directory.join(".."))?),
        }
    }
    Ok((parents, made_parents))
}

/// Opens the directory above another one, to sync a name in it.
fn open_parent(at: impl AsFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    match open_directory(at, path, OFlags::empty()) {
        Ok(parent) => Ok(Some(parent)),
        // A parent that this process may not read cannot be synced. For NOENT and NOTDIR the next
        // call gives a better error.
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Syncs the names in a directory. INVAL means that the file system cannot sync directories, so
/// nothing more can be done.
fn sync_names(directory: &OwnedFd) -> rustix::io::Result<()> {
    match retry_on_intr(|| system::full_sync(directory)) {
        Err(Errno::INVAL) => Ok(()),
        answer => answer,
    }
}
