//! The queue for messages whose command has failed too often.

use std::fmt;
use std::path::Path;

use mmq::{Error, Options, Queue};

use crate::failure::{Failure, Tried};
use crate::letter::FailedMessage;
use crate::opening::{self, Opener};

/// The queue, open while there is work, so that others can look after it meanwhile.
#[derive(Debug)]
pub(super) struct Dead<'a> {
    dir: &'a Path,
    opener: Opener<'a>,
    open: Option<Queue>,
}

impl<'a> Dead<'a> {
    pub(super) fn new(dir: &'a Path, opener: Opener<'a>) -> Dead<'a> {
        Dead { dir, opener, open: None }
    }

    pub(super) fn queue(&mut self) -> Tried<&Queue> {
        let queue = match self.open.take() {
            Some(queue) => queue,
            None => {
                let queue = self.opener.open(self.dir, &Options::new())?;
                opening::keep_for_own(&queue)?;
                queue
            }
        };
        Ok(self.open.insert(queue))
    }

    /// Puts a message in, as a letter. It is durable when this returns.
    pub(super) fn bury(&mut self, letter: &FailedMessage<'_>) -> Tried<()> {
        let queue = self.queue()?;
        match queue.enqueue(letter.text()) {
            // What is said of it must not keep it from being there.
            Err(Error::MessageTooLarge { .. }) => queue.enqueue(letter.message)?,
            put => put?,
        };
        Ok(queue.flush()?)
    }

    pub(super) fn close(&mut self) -> Tried<()> {
        self.open.take().map_or(Ok(()), |queue| queue.close().map_err(Failure::from))
    }
}

impl fmt::Display for Dead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dir.display())
    }
}
