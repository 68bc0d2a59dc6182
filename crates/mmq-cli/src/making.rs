//! Making a whole queue beside its name, which it gets when it is complete.
//!
//! Nothing stands under the queue's own name before all of it is durable: what a killed command
//! leaves lies beside it, and the same command clears it away the next time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mmq::{Options, Queue};

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::opening;

/// The name of the queue until it is complete, in a place that only one command uses at a time.
const UNFINISHED: &str = ".mmq-unfinished";

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
    suffix: &'static str,
    code: &'static str,
    /// The directory beside it, whose lock a command has while it makes the queue in there.
    place: PathBuf,
}

impl Making {
    /// The queue `new`, which must be missing, or an empty directory, and is made within a
    /// directory with the suffix behind its name.
    pub(crate) fn of(new: &Path, suffix: &'static str, code: &'static str) -> Tried<Making> {
        check_new(new, suffix, code)?;
        let from_here = Path::new(".").join(new);
        let (Some(name), Some(parent)) = (from_here.file_name(), from_here.parent()) else {
            return Err(Failure::usage("NEW must end with the name of a directory"));
        };
        let parent =
            fs::canonicalize(parent).map_err(|error| Failure::io(new.display(), &error))?;
        let path = parent.join(name);
        let path = fs::canonicalize(&path).unwrap_or(path);
        let mut place = path.file_name().unwrap_or(OsStr::new("")).to_owned();
        place.push(suffix);
        Ok(Making { place: path.with_file_name(place), path, suffix, code })
    }

    /// Where the queue will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it would be made within `dir`.
    pub(crate) fn is_within(&self, dir: &Path) -> bool {
        fs::canonicalize(dir).is_ok_and(|dir| self.place.starts_with(dir))
    }

    /// Makes the place, and takes its lock until the file is closed.
    fn hold(&self) -> Tried<File> {
        let held = fs::create_dir_all(&self.place).and_then(|()| {
            let held = File::open(&self.place)?;
            held.try_lock()?;
            // Whoever had the lock before has removed the place that it locked.
            let is_there = fs::metadata(&self.place)?.ino() == held.metadata()?.ino();
            is_there.then_some(held).ok_or(io::ErrorKind::WouldBlock.into())
        });
        held.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::NotFound => {
                let message = format!("another command makes {}", self.path.display());
                Failure::new(ExitStatus::Locked, "locked", message)
            }
            _ => Failure::io(self.place.display(), &error),
        })
    }

    /// Makes the queue, with what `fill` puts in and answers. When that fails nothing is left.
    pub(crate) fn make<T>(
        &self,
        options: &Options,
        fill: impl FnOnce(&Queue) -> Tried<T>,
    ) -> Tried<T> {
        let _held = self.hold()?;
        let unfinished = self.place.join(UNFINISHED);
        if let Err(error) = fs::remove_dir_all(&unfinished)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(Failure::io(unfinished.display(), &error));
        }
        // Another command may have made it since the first check.
        let checked = check_new(&self.path, self.suffix, self.code);
        let made = checked.and_then(|()| opening::open(&unfinished, options)).and_then(|queue| {
            let filled = fill(&queue);
            let closed = queue.close();
            let filled = filled?;
            closed?;
            self.put_in_place(&unfinished)?;
            Ok(filled)
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
            let _ = fs::remove_dir(&self.place);
        }
        made
    }

    fn put_in_place(&self, unfinished: &Path) -> Tried<()> {
        let renamed = fs::rename(unfinished, &self.path);
        let _ = fs::remove_dir(&self.place);
        let synced = renamed.and_then(|()| File::open(self.path.with_file_name("."))?.sync_all());
        synced.map_err(|error| Failure::io(self.path.display(), &error))
    }
}
