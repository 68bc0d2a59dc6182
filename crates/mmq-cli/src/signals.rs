//! SIGINT and SIGTERM. The first asks the command to end in order; the second ends it at once.
//! Nothing depends on an orderly end: SIGKILL loses nothing acknowledged either.

use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};

/// A pipe that is ready takes at least so many bytes, so that the call does not wait.
pub(crate) const PIECE: usize = 4096;

/// The signals that this process catches.
static CAUGHT: OnceLock<Signals> = OnceLock::new();

/// What a wait waits for besides signals.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For {
    Reading,
    Writing,
    /// The other end of a pipe to be closed.
    Closing,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Ready,
    TimedOut,
    Stopped,
}

/// The two signals, since [`Signals::catch`].
#[derive(Debug)]
pub(crate) struct Signals {
    /// The number of the latest one; 0: none.
    caught: Arc<AtomicUsize>,
    /// Readable once there was one.
    pipe: PipeReader,
}

impl Signals {
    pub(crate) fn catch() -> Tried<&'static Signals> {
        let signals = Self::register();
        let signals = signals.map_err(|error| Failure::io("cannot catch signals", &error))?;
        Ok(CAUGHT.get_or_init(|| signals))
    }

    fn register() -> io::Result<Signals> {
        let (pipe, writer) = io::pipe()?;
        let (caught, second) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order: it ends the process only when an earlier signal has set the flag.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&second))?;
            flag::register(signal, Arc::clone(&second))?;
            flag::register_usize(signal, Arc::clone(&caught), signal as usize)?;
            low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Signals { caught, pipe })
    }

    /// The exit status, once the command is to end.
    pub(crate) fn stop(&self) -> Option<ExitStatus> {
        match self.caught.load(Relaxed) {
            0 => None,
            caught if caught == SIGTERM as usize => Some(ExitStatus::Terminated),
            _ => Some(ExitStatus::Interrupted),
        }
    }

    /// Waits until one of the descriptors is ready, a signal has come, or the time is over.
    pub(crate) fn wait(
        &self,
        descriptors: &[BorrowedFd<'_>],
        what: For,
        until: Option<Instant>,
    ) -> Tried<Woken> {
        let flags = match what {
            For::Reading => PollFlags::IN,
            For::Writing => PollFlags::OUT,
            // An error is reported whatever was asked for.
            For::Closing => PollFlags::empty(),
        };
        loop {
            if self.stop().is_some() {
                return Ok(Woken::Stopped);
            }
            let mut polled = vec![PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
            let wanted = descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, flags));
            polled.extend(wanted);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut polled, left.as_ref()) {
                Ok(0) => return Ok(Woken::TimedOut),
                Ok(_) if polled.iter().skip(1).any(|fd| !fd.revents().is_empty()) => {
                    return Ok(Woken::Ready);
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Failure::io("cannot wait", &error.into())),
            }
        }
    }

    /// Writes the first of the bytes, which are [`PIECE`] at most unless the file is a regular one.
    /// Once a signal has come it waits for a reader no longer than `patience`, and then fails as
    /// interrupted.
    pub(crate) fn write(
        &self,
        file: BorrowedFd<'_>,
        bytes: &[u8],
        patience: Duration,
    ) -> io::Result<usize> {
        loop {
            if self.wait(&[file], For::Writing, None).is_ok_and(|woken| woken == Woken::Stopped) {
                let patience = Timespec::try_from(patience).ok();
                let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
                if poll(&mut polled, patience.as_ref()) == Ok(0) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
            match rustix::io::write(file, bytes) {
                // Somebody else may have made it non-blocking.
                Err(Errno::AGAIN | Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }
}

/// Writes to standard error, whose reader is not waited for once a signal has come. Its own errors
/// do not count: nobody reads it then.
pub(crate) fn say(text: &[u8]) {
    let Some(signals) = CAUGHT.get() else {
        let _ = io::stderr().write_all(text);
        return;
    };
    for mut piece in text.chunks(PIECE) {
        while let Ok(count @ 1..) = signals.write(io::stderr().as_fd(), piece, Duration::ZERO) {
            piece = piece.get(count..).unwrap_or_default();
        }
    }
}
