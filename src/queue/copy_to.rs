//! [`Queue::copy_to`], and the directory that a copy is made in.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Queue;
use crate::engine::copy_queue::CopiedId;
use crate::error::{Error, Result};
use crate::events;
use crate::storage::{FileStorage, Storage};

/// The ending of the name that a copy has until it is complete.
const UNFINISHED: &str = ".copying";

impl Queue {
    /// Closes the queue, and makes a second one in the directory `to`: with the same messages,
    /// numbers and gaps, and with the consumers where they stand, also with what they have
    /// acknowledged ahead. Damaged messages stay as damaged as they are; spare segments and files
    /// set aside are left out. The queue stays locked until the copy is done.
    ///
    /// `to` is missing or an empty directory. The copy is made beside it, in a directory with
    /// `.copying` behind its name, which is renamed at the end. So `to` is the whole copy or none,
    /// whatever happens meanwhile; a death of the process leaves the other directory, to be
    /// removed.
    ///
    /// The copy's files and directory have the [permission bits](crate::Options::mode) of the
    /// queue's.
    ///
    /// `progress` is called with how many bytes are copied, and how many will be. When it breaks,
    /// the copying ends with an error.
    ///
    /// # Durability
    ///
    /// Once the call has returned, a power cut takes nothing of the copy.
    ///
    /// # Errors
    ///
    /// The queue is closed, holds what it held, and nothing of the copy is left, in each case.
    /// [`Error::InvalidArgument`] with `what` `"copy"` when `to` cannot be a new queue's directory.
    /// [`Error::Locked`] while somebody makes another copy there. [`Error::Io`] with `op` `"copy"`
    /// when `progress` broke; [`is_full`](Error::is_full) when there is no room for the copy. As
    /// [`close`](Self::close).
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
    pub fn copy_to(
        self,
        to: impl AsRef<Path>,
        id: CopiedId,
        mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let _events = events::at_end();
        let unfinished = Unfinished::begin(&self.engine.core.storage, to.as_ref())?;
        self.engine.copy_to(&unfinished.storage, id, &mut progress)?;
        unfinished.finish()
    }
}

/// The directory that a copy is made in. Unless it is finished, it is removed with all that is in
/// it.
struct Unfinished {
    /// Its lock is held, so that nobody takes it for the rest of a copy that was broken off.
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
            return Err(refused(format!("{shown} is no name for a new directory")));
        };
        match fs::read_dir(&to).map(|mut inside| inside.next()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(refused(format!("{shown} is no directory")));
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
            let pid = storage.holder().unwrap_or(0);
            let here = pid == std::process::id();
            return Err(Error::Locked { path, pid, here, since: None });
        }
        if !storage.list().map_err(failed("list"))?.is_empty() {
            let shown = path.display();
            let reason = format!("{shown} is left of a copy that was broken off: remove it");
            return Err(refused(reason));
        }
        Ok(Unfinished { storage, to, is_finished: false })
    }

    /// Gives the directory the copy's own name, durably.
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

/// Whether another file system begins at the directory: then none beside it can be renamed to it.
fn is_mounted(directory: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    directory.parent().is_some_and(|parent| device(parent) != device(directory))
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // The directory was empty when it was locked, so all that is in it is of this copy.
        for listed in self.storage.list().unwrap_or_default() {
            let _ = self.storage.remove(&listed.name);
        }
        let _ = fs::remove_dir(self.storage.path());
    }
}
