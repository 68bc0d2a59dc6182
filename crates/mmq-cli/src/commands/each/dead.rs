//! The queue for messages whose command has failed too often.

use std::fmt;
use std::path::Path;

use mmq::Error;
use rustix::fs::{Access, access};

use crate::dead_letter::FailedMessage;
use crate::failure::{Failure, Tried};
use crate::opening::{self, Opener};

/// The queue. It is open while a dead letter goes there, so that others can look after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dead<'a> {
    dir: &'a Path,
    /// The queue that the messages come from.
    from: &'a Path,
    opener: Opener<'a>,
}

impl<'a> Dead<'a> {
    /// A place that cannot be is an error before anything is done. The queue is made for the first
    /// dead letter.
    pub(super) fn new(dir: &'a Path, from: &'a Path, opener: Opener<'a>) -> Tried<Dead<'a>> {
        let is_new =
            !dir.exists() || dir.read_dir().is_ok_and(|mut listed| listed.next().is_none());
        if is_new {
            let there = dir.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
            // The dot: it is a directory.
            access(there.join("."), Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
                let advice = "name a directory for --dead that you may write to";
                Failure::io(format!("{}: {advice}", there.display()), &error.into())
            })?;
        } else {
            opener.open_existing(dir)?.close()?;
        }
        Ok(Dead { dir, from, opener })
    }

    /// Puts a message in, as a dead letter. It is durable when this returns.
    pub(super) fn bury(self, dead_letter: &FailedMessage<'_>) -> Tried<()> {
        let options = opening::as_open_as(&[self.from], self.dir);
        let queue = self.opener.open(self.dir, &options)?;
        opening::keep_for_own(&queue)?;
        match queue.enqueue(dead_letter.text()) {
            // What is said of it must not keep it from being there.
            Err(Error::MessageTooLarge { .. }) => queue.enqueue(dead_letter.message)?,
            put => put?,
        };
        if !queue.is_owner() {
            queue.flush()?;
        }
        Ok(queue.close()?)
    }
}

impl fmt::Display for Dead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dir.display())
    }
}
