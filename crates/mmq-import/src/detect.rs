//! Which queue a directory is of, by the names in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{ImportError, ImportErrorKind, Result};

/// A format. Releases of the same format have one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// bigqueue 0.1.
    Bigqueue1,
    /// bigqueue 0.2 and 0.3.
    Bigqueue2,
    /// bigqueue 0.4.
    Bigqueue4,
    /// bigqueue 0.5, 0.6 and later.
    Bigqueue5,
    /// pqueue, any version.
    Pqueue,
}

/// What `--as` takes, first the name in a report.
const NAMES: [(&str, SourceKind); 7] = [
    ("bigqueue-0.1", SourceKind::Bigqueue1),
    ("bigqueue-0.2", SourceKind::Bigqueue2),
    ("bigqueue-0.4", SourceKind::Bigqueue4),
    ("bigqueue-0.5", SourceKind::Bigqueue5),
    ("pqueue", SourceKind::Pqueue),
    ("bigqueue-0.3", SourceKind::Bigqueue2),
    ("bigqueue-0.6", SourceKind::Bigqueue5),
];

impl SourceKind {
    /// The names of all formats, each once or twice.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// The format of that name.
    pub fn named(text: &str) -> Option<SourceKind> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// A regular file of a directory.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    pub(crate) modified: Option<SystemTime>,
}

/// Numbered files of one kind.
pub(crate) type Numbered = BTreeMap<u64, SourceFile>;

/// The regular files of a directory.
#[derive(Debug)]
pub struct Listing {
    pub(crate) dir: PathBuf,
    files: BTreeMap<String, SourceFile>,
}

impl Listing {
    /// Lists the directory.
    ///
    /// # Errors
    ///
    /// The directory is missing, or cannot be listed.
    pub fn of(dir: &Path) -> Result<Listing> {
        let missing = |error: &std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                let message = format!("{} is not the directory of a queue: {error}", dir.display());
                ImportError::new(ImportErrorKind::NoDirectory, message)
            }
            _ => ImportError::io(dir.display(), error),
        };
        let mut files = BTreeMap::new();
        for listed in fs::read_dir(dir).map_err(|error| missing(&error))? {
            let listed = listed.map_err(|error| ImportError::io(dir.display(), &error))?;
            let Ok(name) = listed.file_name().into_string() else { continue };
            let path = listed.path();
            let data = fs::symlink_metadata(&path);
            let data = data.map_err(|error| ImportError::io(path.display(), &error))?;
            if data.is_file() {
                let (len, modified) = (data.len(), data.modified().ok());
                files.insert(name, SourceFile { path, len, modified });
            }
        }
        Ok(Listing { dir: dir.to_owned(), files })
    }

    pub(crate) fn file(&self, name: &str) -> Option<&SourceFile> {
        self.files.get(name)
    }

    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.values().map(|found| found.path.as_path())
    }

    /// The lengths of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|found| found.len).fold(0, u64::saturating_add)
    }

    /// The files called so, with a number in decimal in the middle.
    pub(crate) fn numbered(&self, before: &str, behind: &str) -> Numbered {
        let number = |name: &str| {
            let digits = name.strip_prefix(before)?.strip_suffix(behind)?;
            let number = digits.parse::<u64>().ok()?;
            // No leading zeros, no sign: each number has one name.
            (number.to_string() == digits).then_some(number)
        };
        let numbered = self
            .files
            .iter()
            .filter_map(|(name, found)| number(name).map(|number| (number, found.clone())));
        numbered.collect()
    }

    /// The arenas of that format of bigqueue.
    pub(crate) fn arenas(&self, kind: SourceKind) -> Numbered {
        match kind {
            SourceKind::Bigqueue1 => self.numbered("data_", ".dat"),
            SourceKind::Bigqueue2 | SourceKind::Bigqueue4 => self.numbered("arena_", ".dat"),
            SourceKind::Bigqueue5 => self.numbered("", "_arena.dat"),
            SourceKind::Pqueue => Numbered::new(),
        }
    }

    /// pqueue's segments.
    pub(crate) fn segments(&self) -> Numbered {
        self.numbered("seg_", "")
    }

    /// Which queue it is.
    ///
    /// # Errors
    ///
    /// It is none that can be imported, or it may be two.
    pub fn detect(&self) -> Result<SourceKind> {
        let has = |kind| !self.arenas(kind).is_empty();
        let index = self.file("index.dat").map(|found| found.len);
        if self.file("metadata.dat").is_some() {
            return match (has(SourceKind::Bigqueue5), has(SourceKind::Bigqueue4)) {
                (true, true) => Err(self.both()),
                (false, true) => Ok(SourceKind::Bigqueue4),
                _ => Ok(SourceKind::Bigqueue5),
            };
        }
        if index == Some(40) && has(SourceKind::Bigqueue2) {
            return Ok(SourceKind::Bigqueue2);
        }
        if index == Some(32) && has(SourceKind::Bigqueue1) {
            return Ok(SourceKind::Bigqueue1);
        }
        if !self.segments().is_empty() {
            return Ok(SourceKind::Pqueue);
        }
        Err(self.unknown())
    }

    /// Checks that the directory is of that format, as far as names say.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn check(&self, kind: SourceKind) -> Result<()> {
        let wanted = match kind {
            SourceKind::Bigqueue1 | SourceKind::Bigqueue2 => "index.dat",
            SourceKind::Bigqueue4 | SourceKind::Bigqueue5 => "metadata.dat",
            SourceKind::Pqueue => "seg_N",
        };
        let is_there = match kind {
            SourceKind::Pqueue => !self.segments().is_empty(),
            _ => self.file(wanted).is_some(),
        };
        if is_there {
            return Ok(());
        }
        let (dir, name) = (self.dir.display(), kind.name());
        let message = format!("{dir} is not a queue of {name}: it has no file {wanted}");
        Err(ImportError::new(ImportErrorKind::NotAQueue, message))
    }

    fn both(&self) -> ImportError {
        let message = format!(
            "{} has the arenas of bigqueue 0.4 and of 0.5: a later bigqueue was opened where 0.4 had its queue, and made a new queue there; choose with --as bigqueue-0.4 or --as bigqueue-0.5",
            self.dir.display()
        );
        ImportError::new(ImportErrorKind::Ambiguous, message)
    }

    fn unknown(&self) -> ImportError {
        let dir = self.dir.display();
        let any = |what: fn(&str) -> bool| self.files.keys().any(|name| what(name));
        let other = if any(|name| name.ends_with(".dque")) {
            Some("dque (*.dque)")
        } else if any(|name| name.ends_with(".diskqueue.meta.dat")) {
            Some("go-diskqueue (*.diskqueue.meta.dat)")
        } else if any(|name| name == "metainfo.json") {
            Some("VictoriaMetrics (metainfo.json)")
        } else {
            None
        };
        let message = match other {
            Some(other) => format!(
                "{dir} is a queue of {other}, which mmq cannot import; let its own program read it and give the messages to `mmq put`"
            ),
            None if any(|name| name == "index") && any(|name| name.starts_with("segment-")) => {
                format!("{dir} is a queue of mmq already; `mmq copy` makes a second one")
            }
            None => format!(
                "{dir} holds no queue that mmq can import: those of bigqueue (metadata.dat or index.dat, and arenas) and pqueue (seg_N); if it is one all the same, name its kind with --as"
            ),
        };
        ImportError::new(ImportErrorKind::NotAQueue, message)
    }
}
