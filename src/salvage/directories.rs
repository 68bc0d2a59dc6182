//! The directories of a salvage, and the content of their indexes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::missing::Missing;
use crate::error::{Error, Result};
use crate::format::{
    self, FORMAT_VERSION, INDEX_NAME, Invalid, SEGMENT_MAGIC, SEGMENT_PREFIX, SegmentHeader, Spot,
};
use crate::index::IndexFile;
use crate::index::image::IndexImage;
use crate::index::losses::Evicted;
use crate::storage::{FileStorage, Storage, read_full};

/// A directory whose files a salvage reads.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) storage: FileStorage,
    /// The content of its index, if it has one.
    index: Option<IndexImage>,
    /// The tail in the index when the salvage first read it.
    tail: Option<Spot>,
    queue_id: Option<[u8; 16]>,
    /// The caller gave the whole directory: the index's statements about other files count, too.
    is_whole: bool,
    /// Names of files that the caller gave by their own paths.
    given: Vec<String>,
}

/// The indexes' statements about messages, whether their files exist or not.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    /// The tail, and the first number that some consumer has not read yet.
    pub(super) tail: Option<Spot>,
    pub(super) from: Option<u64>,
    /// Every message below this number was reclaimed.
    pub(super) retained_from: u64,
    pub(super) evicted: Evicted,
    /// Numbers stated as missing before a segment that does not exist yet, or was just created.
    pub(super) stated: Vec<Missing>,
}

/// Adds the directory at `path`, or that of the file at `path`.
pub(super) fn add(directories: &mut Vec<Directory>, path: &Path) -> Result<()> {
    let io = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound {
            path: path.to_owned(),
            what: "path",
            name: path.display().to_string(),
            held: None,
        },
        _ => Error::io("open", path, error),
    };
    let found = path.canonicalize().map_err(io)?;
    let is_directory = found.is_dir();
    let (dir, name) = if is_directory {
        (found.as_path(), None)
    } else {
        (found.parent().unwrap_or(&found), found.file_name().and_then(OsStr::to_str))
    };
    if !is_directory && name.is_none() {
        let why = "the name of a file must be UTF-8: rename the file, or give its directory";
        return Err(Error::invalid_argument(path, "path", why));
    }
    // Reports name files as the caller gave them, unless that was a symbolic link.
    let shown = match (is_directory, path.parent()) {
        (true, _) => path,
        (false, Some(parent)) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let shown = if shown.canonicalize().is_ok_and(|shown| shown == dir) { shown } else { dir };
    let known = directories.iter().position(|known: &Directory| {
        known.storage.path().canonicalize().is_ok_and(|known| known == dir)
    });
    let at = match known {
        Some(at) => at,
        None => {
            directories.push(Directory::open(shown, path)?);
            directories.len() - 1
        }
    };
    let directory = &mut directories[at];
    directory.is_whole |= is_directory;
    directory.given.extend(name.map(str::to_owned));
    Ok(())
}

impl Directory {
    fn open(dir: &Path, path: &Path) -> Result<Directory> {
        let storage =
            FileStorage::open_to_salvage(dir).map_err(|error| Error::io("open", path, error))?;
        let file = IndexFile::read(&storage).ok().flatten();
        if let Some(IndexFile { header: Err(Invalid::Version(found)), .. }) = file {
            return Err(later(dir.join(INDEX_NAME), found));
        }
        let queue_id = file.as_ref().and_then(IndexFile::queue_id);
        let index = file.zip(queue_id).map(|(file, id)| IndexImage::read(&file.bytes, &id));
        let tail = index.as_ref().and_then(|index| index.live.tail);
        Ok(Directory { storage, index, tail, queue_id, is_whole: false, given: Vec::new() })
    }

    pub(super) fn has_index(&self) -> bool {
        self.index.is_some()
    }

    /// Whether a process uses the queue.
    pub(super) fn is_owned(&self) -> bool {
        self.storage.holder().is_some()
    }

    /// Reads the index again, after the headers: it then states what was reclaimed before they were
    /// read. `tail` keeps its first value.
    pub(super) fn read_again(&mut self) {
        let file = IndexFile::read(&self.storage).ok().flatten();
        if let Some((file, id)) = file.zip(self.queue_id) {
            self.index = Some(IndexImage::read(&file.bytes, &id));
        }
    }

    /// The names of its files to read.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let mut names = self.given.clone();
        if self.is_whole {
            let listed = self.storage.list();
            let listed = listed.map_err(|error| Error::io("list", self.storage.path(), error))?;
            let files = listed.into_iter().filter(|listed| listed.is_file);
            names.extend(files.map(|listed| listed.name).filter(|name| self.is_segment(name)));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Whether a file of the directory is a segment's, by its name or its first bytes.
    fn is_segment(&self, name: &str) -> bool {
        if name.starts_with(SEGMENT_PREFIX) {
            return true;
        }
        let mut magic = [0; 8];
        let file = self.storage.open(name).ok().filter(|_| name != INDEX_NAME);
        file.is_some_and(|file| read_full(&file, &mut magic, 0).is_ok())
            && u64::from_le_bytes(magic) == SEGMENT_MAGIC
    }

    /// The headers of segments in its index, first that of the slot `name`.
    pub(super) fn rows(&self, name: &str) -> Vec<SegmentHeader> {
        let rows = self.index.iter().flat_map(|index| &index.segments);
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(slot, _)| !name.starts_with(&format::segment_name(*slot)));
        rows.into_iter().map(|(_, header)| *header).collect()
    }
}

pub(super) fn later(path: PathBuf, found: u32) -> Error {
    Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION }
}

/// Combines the statements of the indexes of this queue.
pub(super) fn owed(directories: &[Directory], queue_id: Option<[u8; 16]>) -> Expected {
    let mut owed = Expected::default();
    let whole = directories.iter().filter(|directory| directory.is_whole);
    for directory in whole.filter(|directory| {
        directory.queue_id.is_some() && (queue_id.is_none() || directory.queue_id == queue_id)
    }) {
        let Some(index) = &directory.index else { continue };
        // A consumer whose place is unreadable may have read none of the retained messages.
        let known = index.consumers.iter().filter(|_| index.lost.is_empty());
        let places = known.map(|consumer| consumer.place.seq);
        let mut evicted = Evicted::default();
        if let Some(checkpoint) = &index.checkpoint {
            owed.retained_from = owed.retained_from.max(checkpoint.retained_from);
            evicted = Evicted::of(checkpoint);
            owed.stated.extend(Missing::before(checkpoint.missing, checkpoint.seq));
        }
        if let Some(run) = index.live.run {
            evicted =
                [evicted, run.evicted].into_iter().max_by_key(Evicted::end).unwrap_or(evicted);
            if let Some(next) = run.next {
                owed.stated.extend(Missing::before(next.missing, next.seq));
            }
        }
        owed.evicted = if evicted.end() > owed.evicted.end() { evicted } else { owed.evicted };
        let from = places.min().unwrap_or(owed.retained_from);
        owed.from = Some(owed.from.map_or(from, |known| known.min(from)));
        owed.tail = owed.tail.max(directory.tail);
    }
    owed
}
