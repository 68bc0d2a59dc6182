//! Who waits for a queue that another process has, so that its owner can release it between two
//! pieces of work.
//!
//! A waiter holds a shared lock of the queue's index, which nothing else locks so. The lock goes
//! with its process, nothing is written, and who has the queue looks only where it may release it.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// How long the owner leaves the queue to those who wait, each of which tries several times in it.
/// One that was stopped does not try at all.
const TURN: Duration = Duration::from_millis(200);

const INDEX: &str = "index";

/// Says that this process waits for the queue, until it is dropped.
#[derive(Debug)]
pub(crate) struct Sign {
    _index: File,
}

impl Sign {
    /// `None` where it cannot be said: nobody releases the queue then, and that is all. The index
    /// may be made anew, so a waiter says it again each time that it has tried.
    pub(crate) fn show(dir: &Path) -> Option<Sign> {
        let index = index(dir)?;
        flock(&index, FlockOperation::NonBlockingLockShared).ok()?;
        Some(Sign { _index: index })
    }
}

/// Whether a process waits for the queue.
pub(crate) fn somebody_waits(dir: &Path) -> bool {
    let Some(index) = index(dir) else { return false };
    match flock(&index, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // Closing the file would not do while a command is begun, which has it for a moment.
            let _ = flock(&index, FlockOperation::Unlock);
            false
        }
        Err(error) => error == Errno::WOULDBLOCK,
    }
}

fn index(dir: &Path) -> Option<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).ok()?;
    File::options().read(true).custom_flags(flags).open(dir.join(INDEX)).ok()
}

/// What every opening changes, and every message that is put in.
pub(crate) fn mark(dir: &Path) -> Option<Vec<u8>> {
    fs::read(dir.join(INDEX)).ok()
}

/// The time in which a queue is left to those who wait for it.
#[derive(Debug)]
pub(crate) struct WaitersTurn<'a> {
    dir: &'a Path,
    before: Option<Vec<u8>>,
    until: Instant,
    is_over: bool,
}

impl<'a> WaitersTurn<'a> {
    /// Begins when the queue was closed.
    pub(crate) fn begin(dir: &'a Path) -> WaitersTurn<'a> {
        WaitersTurn { dir, before: mark(dir), until: Instant::now() + TURN, is_over: false }
    }

    /// Whether one of them has had the queue, or has it, or none of them takes it.
    pub(crate) fn is_over(&mut self) -> bool {
        self.is_over = self.is_over
            || Instant::now() >= self.until
            || !somebody_waits(self.dir)
            || mark(self.dir) != self.before;
        self.is_over
    }
}
