//! Files and standard input, read until a signal comes.

use std::fs::File;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::signals::{For, Signals, Woken};

/// An open file, or standard input. A read ends with an error once a signal has come; it says so
/// by [`Signals::stop`].
#[derive(Debug)]
pub(crate) struct Input<'a> {
    pub(crate) name: String,
    file: File,
    signals: &'a Signals,
    /// Bytes that were read.
    pub(crate) read: u64,
}

impl<'a> Input<'a> {
    /// Opens that file; `-` is standard input.
    pub(crate) fn open(path: &Path, signals: &'a Signals) -> Tried<Input<'a>> {
        let (name, file) = if path == Path::new("-") {
            let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
            ("standard input".to_owned(), file)
        } else {
            (path.display().to_string(), File::open(path))
        };
        let file = file.map_err(|error| Failure::io(&name, &error))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(Failure::new(ExitStatus::Failed, "io", format!("{name}: is a directory")));
        }
        Ok(Input { name, file, signals, read: 0 })
    }

    /// How many bytes the file has. `None` for a stream, and for files in /proc, which say that
    /// they are empty.
    pub(crate) fn size(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok()?;
        (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
    }

    /// Whether that file is this one.
    pub(crate) fn is(&self, other: &Path) -> bool {
        let identity = |metadata: io::Result<Metadata>| {
            metadata.ok().filter(Metadata::is_file).map(|file| (file.dev(), file.ino()))
        };
        let other = identity(other.metadata());
        other.is_some() && other == identity(self.file.metadata())
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let woken = self.signals.wait(&[self.file.as_fd()], For::Reading, None);
            if woken.is_ok_and(|woken| woken == Woken::Stopped) {
                return Err(io::Error::other("stopped by a signal"));
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    self.read += count as u64;
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
