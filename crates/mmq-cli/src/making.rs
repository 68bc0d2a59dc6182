//! Making a whole queue under a name beside it, which becomes the queue when it is complete.
//!
//! Nothing stands under the queue's own name before all of it is durable: what a killed command
//! leaves has another name, which the same command clears away the next time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mmq::{Error, Options, Queue};

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::opening;

/// Bytes of the longest name of a file.
const LONGEST_NAME: usize = 255;

/// Refuses, with that code, what cannot become a new queue's directory: before anything is done for
/// it. The queue has the `suffix` behind its name until it is complete; without one it is made in
/// its place.
pub(crate) fn check_new(new: &Path, suffix: &str, code: &'static str) -> Tried<()> {
    let refused = |why: &str| {
        Err(Failure::new(ExitStatus::Refused, code, format!("{} {why}", new.display())))
    };
    let there = fs::canonicalize(new).unwrap_or(new.to_owned());
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    let is_mounted = || there.parent().is_some_and(|parent| device(parent) != device(&there));
    let name = there.file_name().map_or(0, OsStr::len);
    if name <= LONGEST_NAME && name + suffix.len() > LONGEST_NAME {
        let most = LONGEST_NAME - suffix.len();
        return refused(&format!(
            "has a name of {name} bytes; name it with at most {most}: {suffix} is behind it until the queue is complete"
        ));
    }
    match fs::read_dir(new).map(|mut listed| listed.next()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && new.is_symlink() => {
            refused("is a link to nothing; name a directory")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => refused("is not a directory"),
        Err(error) => Err(Failure::io(new.display(), &error)),
        Ok(Some(first)) => {
            let first = first.map(|first| first.file_name()).unwrap_or_default();
            refused(&format!("is not empty: it holds {}; name a new directory", first.display()))
        }
        Ok(None) if !suffix.is_empty() && is_mounted() => {
            refused("is a mount point; name a directory in it")
        }
        Ok(None) => Ok(()),
    }
}

/// The new queue, and the directory that becomes it when it is complete.
#[derive(Debug)]
pub(crate) struct Making {
    path: PathBuf,
    making: PathBuf,
}

impl Making {
    /// The queue `new`, which must be missing, or an empty directory, and is made with the suffix
    /// behind its name.
    pub(crate) fn of(new: &Path, suffix: &str, code: &'static str) -> Tried<Making> {
        check_new(new, suffix, code)?;
        let name = new
            .file_name()
            .ok_or_else(|| Failure::usage("NEW must end with the name of a directory"))?;
        let parent = match new.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent =
            fs::canonicalize(parent).map_err(|error| Failure::io(new.display(), &error))?;
        let path = parent.join(name);
        let path = fs::canonicalize(&path).unwrap_or(path);
        let mut making = path.file_name().unwrap_or(OsStr::new("")).to_owned();
        making.push(suffix);
        Ok(Making { making: path.with_file_name(making), path })
    }

    /// Where the queue will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it would be made within `dir`.
    pub(crate) fn is_within(&self, dir: &Path) -> bool {
        fs::canonicalize(dir).is_ok_and(|dir| self.making.starts_with(dir))
    }

    /// Removes what a command that was killed has left. Nothing but a queue is removed.
    fn clear(&self) -> Tried<()> {
        let failed = |error: io::Error| Failure::io(self.making.display(), &error);
        let names = match fs::read_dir(&self.making) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed.map_err(failed)?.map(|listed| Ok(listed?.path())),
        };
        let paths = names.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "index" || name.starts_with("index.") || name.starts_with("segment-")
        };
        if !paths.iter().all(is_ours) {
            let path = self.making.display();
            let message = format!(
                "{path} is in the way: move it, because it holds files that are not a queue's"
            );
            return Err(Failure::new(ExitStatus::Refused, "exists", message));
        }
        // Another command may be at it. (The opening may remove or rename what is half made.)
        if let Err(error @ Error::Locked { .. }) = Options::new().create(false).open(&self.making) {
            return Err(error.into());
        }
        fs::remove_dir_all(&self.making).map_err(failed)
    }

    /// Makes the queue, with what `fill` puts in and answers. When that fails nothing is left.
    pub(crate) fn make<T>(
        &self,
        options: &Options,
        fill: impl FnOnce(&Queue) -> Tried<T>,
    ) -> Tried<T> {
        self.clear()?;
        let made = opening::open(&self.making, options).and_then(|queue| {
            let filled = fill(&queue);
            let closed = queue.close();
            let filled = filled?;
            closed?;
            self.put_in_place()?;
            Ok(filled)
        });
        if made.is_err() {
            let _ = self.clear();
        }
        made
    }

    fn put_in_place(&self) -> Tried<()> {
        let renamed = fs::rename(&self.making, &self.path);
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let synced = renamed.and_then(|()| File::open(parent)?.sync_all());
        synced.map_err(|error| Failure::io(self.path.display(), &error))
    }
}
