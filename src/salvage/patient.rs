//! A file on a failing disk: unreadable sectors become zeros, and are counted.

use std::cell::Cell;
use std::io;

use crate::storage::{FileStorage, Readable, Storage, StorageFile, read_around};

type File = <FileStorage as Storage>::File;

/// A file whose reads do not fail.
#[derive(Debug)]
pub(super) struct Patient {
    pub(super) file: File,
    /// Failed reads of a sector.
    unreadable: Cell<u64>,
}

impl Patient {
    pub(super) fn new(file: File) -> Patient {
        Patient { file, unreadable: Cell::new(0) }
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.file.len().unwrap_or(0)
    }

    /// Returns the count of unreadable sectors since the last call.
    pub(super) fn take_unreadable(&self) -> u64 {
        self.unreadable.take()
    }
}

impl Readable for Patient {
    fn read_bytes(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset).or_else(|_| {
            buf.fill(0);
            let mut failed = Vec::new();
            let read = read_around(&self.file, buf, offset, &mut failed);
            self.unreadable.set(self.unreadable.get() + failed.len() as u64);
            Ok(read)
        })
    }
}
