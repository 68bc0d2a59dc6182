//! [`Queue::copy_to`], and the directory in which it makes a copy.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Queue;
use crate::engine::copy_queue::{CopiedId, Watched};
use crate::engine::locked;
use crate::error::{Error, Result};
use crate::events;
use crate::storage::{FileStorage, Storage};

/// The suffix of a copy's name until the copy is complete.
const UNFINISHED: &str = ".copying";

/// # Copying
impl Queue {
    /// Closes the queue, and copies it to the directory `to`: the same messages, sequence numbers
    /// and gaps, and the consumers with their positions and with the messages that they have
    /// acknowledged ahead. Damaged messages stay damaged; the copy has no spare segments and no
    /// quarantined files. The queue stays locked until the copy is done.
    ///
    /// `to` is missing or an empty directory. The call makes the copy beside it, in a directory
    /// with `.copying` behind its name, and renames this at the end. So `to` is the whole copy or
    /// none, whatever happens meanwhile; after a death of the process, remove the other directory.
    ///
    /// The copy's files and directory have the [permission bits](crate::Options::mode) of the
    /// queue's.
    ///
    /// Calls `progress` with the number of bytes copied so far, and of all bytes to copy. When it
    /// breaks, the copying ends with an error.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use std::ops::ControlFlow;
    ///
    /// let queue = mmq::Queue::open(dir.path().join("jobs"))?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// queue.dequeue()?;
    /// let (id, copy) = (queue.id(), dir.path().join("copy"));
    /// queue.copy_to(&copy, mmq::CopiedId::New, |_, _| ControlFlow::Continue(()))?;
    ///
    /// let copy = mmq::Queue::open(&copy)?;
    /// assert_ne!(copy.id(), id);
    /// assert_eq!(copy.dequeue()?.unwrap().seq(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Durability
    ///
    /// Once the call has returned, the whole copy survives a power cut.
    ///
    /// # Errors
    ///
    /// In each case the queue is closed and unchanged, and nothing of the copy is left.
    /// [`Error::InvalidArgument`] with `what` `"copy"` when `to` cannot be a new queue's directory.
    /// [`Error::Locked`] while another process makes a copy there. [`Error::Io`] with `op` `"copy"`
    /// when `progress` broke; [`is_full`](Error::is_full) when there is no room for the copy. As
    /// [`close`](Self::close).
    pub fn copy_to(
        self,
        to: impl AsRef<Path>,
        id: CopiedId,
        mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        self.copy_to_path(to.as_ref(), id, &mut progress)
    }

    fn copy_to_path(&self, to: &Path, id: CopiedId, progress: Watched<'_>) -> Result<()> {
        let _events = events::at_end();
        let unfinished = Unfinished::begin(&self.engine.core.storage, to)?;
        self.engine.copy_to(&unfinished.storage, id, progress)?;
        unfinished.finish()
    }
}

/// The directory of a copy in progress. Dropping it unfinished removes the directory and all its
/// files.
struct Unfinished {
    /// Holds its lock, so that no other process takes it for the rest of an abandoned copy.
    storage: FileStorage,
    /// The copy's own name.
    to: PathBuf,
    is_finished: bool,
}

impl Unfinished {
    /// Begins a copy of the queue in `from` that will be the directory `to`.
    fn begin(from: &FileStorage, to: &Path) -> Result<Unfinished> {
        let refused = |reason: String| Error::invalid_argument(from.path(), "copy", reason);
        let to = match to.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => to.to_owned(),
            existing => existing.map_err(|error| Error::io("open", to, error))?,
        };
        let shown = to.display();
        let Some(name) = to.file_name() else {
            return Err(refused(format!("{shown} is not a name for a new directory")));
        };
        match fs::read_dir(&to).map(|mut inside| inside.next()) {
            Err(error) if error.kind() == ErrorKind::NotFound && to.is_symlink() => {
                return Err(refused(format!("{shown} is a link to nothing: name a directory")));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(refused(format!("{shown} is not a directory")));
            }
            Err(error) => return Err(Error::io("open", &*to, error)),
            Ok(None) if is_mounted(&to) => {
                return Err(refused(format!("{shown} is a mount point: name a directory in it")));
            }
            Ok(None) => {}
            Ok(Some(first)) => {
                let first = first.map(|first| first.file_name()).unwrap_or_default();
                let reason = format!("{shown} is not empty: it holds {}", first.display());
                return Err(refused(reason));
            }
        }
        let mut name: OsString = name.to_owned();
        name.push(UNFINISHED);
        let path = to.with_file_name(name);
        let failed = |op| {
            let path = &path;
            move |error| Error::io(op, path, error)
        };
        let storage = from.create_like(&path).map_err(failed("create"))?;
        if !storage.try_lock().map_err(failed("lock"))? {
            return Err(locked(&storage));
        }
        if !storage.list().map_err(failed("list"))?.is_empty() {
            let shown = path.display();
            let reason = format!("{shown} is left from a copy that did not finish: remove it");
            return Err(refused(reason));
        }
        Ok(Unfinished { storage, to, is_finished: false })
    }

    /// Renames the directory to the copy's own name, durably.
    fn finish(mut self) -> Result<()> {
        match self.storage.rename_to(&self.to) {
            Ok(()) => {}
            // The parent could not be synced: the copy is whole, and its name may be lost.
            Err(error) if !self.storage.path().exists() => {
                self.is_finished = true;
                return Err(Error::io("flush", &*self.to, error));
            }
            Err(error) => return Err(Error::io("rename", self.storage.path(), error)),
        }
        self.is_finished = true;
        Ok(())
    }
}

/// Returns whether another file system is mounted at the directory: then no directory beside it can
/// be renamed to it.
fn is_mounted(directory: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    directory.parent().is_some_and(|parent| device(parent) != device(directory))
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // The directory was empty when it was locked, so all files in it belong to this copy.
        for listed in self.storage.list().unwrap_or_default() {
            let _ = self.storage.remove(&listed.name);
        }
        let _ = fs::remove_dir(self.storage.path());
    }
}
