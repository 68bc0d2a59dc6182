//! Standard output, through one buffer.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::signals::{PIECE, Signals};

const CAPACITY: usize = 64 << 10;
const STANDARD: &str = "standard output";

/// So long a reader that reads on gets the rest after a signal, so that no message is cut off.
const PATIENCE: Duration = Duration::from_millis(100);

/// What has to have happened to bytes before they count as out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    /// The write call that carried them has returned.
    Written,
    /// They were synced as well.
    Synced,
}

/// Standard output, or a file. It counts its bytes, so that a message is acknowledged when its last
/// byte is out.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    name: String,
    file: File,
    /// The most bytes of one call.
    piece: usize,
    signals: &'a Signals,
    buffer: Vec<u8>,
    when: Out,
    written: u64,
    synced: u64,
}

impl<'a> Output<'a> {
    pub(crate) fn new(signals: &'a Signals, when: Out) -> Tried<Output<'a>> {
        let file = io::stdout().as_fd().try_clone_to_owned();
        let file = file.map_err(|error| Failure::io(STANDARD, &error))?;
        Ok(Output::into_file(STANDARD.to_owned(), file.into(), signals, when))
    }

    /// The same, into another file.
    pub(crate) fn into_file(
        name: String,
        file: File,
        signals: &'a Signals,
        when: Out,
    ) -> Output<'a> {
        let buffer = Vec::with_capacity(CAPACITY);
        let is_regular = file.metadata().is_ok_and(|found| found.is_file());
        let piece = if is_regular { usize::MAX } else { PIECE };
        Output { name, file, piece, signals, buffer, when, written: 0, synced: 0 }
    }

    /// Prints a text that is complete.
    pub(crate) fn print(signals: &'a Signals, text: &[u8]) -> Tried<()> {
        let mut output = Output::new(signals, Out::Written)?;
        output.push(text)?;
        output.flush()
    }

    /// Where the next byte goes, counted from the beginning of this run.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// How many bytes are out.
    pub(crate) fn out(&self) -> u64 {
        match self.when {
            Out::Written => self.written,
            Out::Synced => self.synced,
        }
    }

    /// Puts these bytes behind all others. What is in the buffer is written when it is full.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Tried<()> {
        if self.buffer.len() + bytes.len() > CAPACITY {
            self.drain()?;
        }
        if bytes.len() > CAPACITY {
            return self.write(bytes).map_err(|error| self.failed(error));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what is in the buffer, and syncs where that was asked for.
    pub(crate) fn flush(&mut self) -> Tried<()> {
        self.drain()?;
        if self.when == Out::Synced && self.synced != self.written {
            self.file.sync_data().map_err(|error| match error.kind() {
                ErrorKind::InvalidInput => Failure::usage("--sync: standard output is not a file"),
                _ => Failure::io(&self.name, &error),
            })?;
            self.synced = self.written;
        }
        Ok(())
    }

    fn drain(&mut self) -> Tried<()> {
        let bytes = std::mem::take(&mut self.buffer);
        let result = self.write(&bytes);
        self.buffer = bytes;
        self.buffer.clear();
        result.map_err(|error| self.failed(error))
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = bytes.get(..self.piece).unwrap_or(bytes);
            match self.signals.write(self.file.as_fd(), piece, PATIENCE)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => {
                    self.written += count as u64;
                    bytes = bytes.get(count..).unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Failure {
        match error.kind() {
            ErrorKind::BrokenPipe => Failure::closed_output(),
            ErrorKind::Interrupted => {
                // The rest is not wanted any more.
                let ending = self.signals.stop().unwrap_or(ExitStatus::Failed);
                Failure::new(ending, "stopped", "")
            }
            _ => Failure::io(&self.name, &error),
        }
    }
}

impl AsFd for Output<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
