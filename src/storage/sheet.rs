//! Stores to the index file: through a mapping, or in memory and then by write calls.
//!
//! Where a store through a mapping may need space ([`Stores::ByCall`]), a [`Sheet`] is private
//! memory, and a write call follows every store to it. When that call fails on a full disk, the
//! bytes stay *late*, in memory, and are written before any bytes stored after them. For a moment
//! after a failure only a flush tries again: a full btrfs takes milliseconds to fail, and each
//! message taken stores a position. If a range is stored to again while it is late, it is written
//! once, at its first turn, with its newest bytes. No code may rely on another order of late bytes.
//! A late position only makes the consumer receive messages again after a kill.
//!
//! Bytes on which acknowledged messages depend must not be late. The `try_` functions store these,
//! and change nothing when they fail.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Unwritten;
use crate::events;
use crate::memory::Window;
use crate::storage::{StorageFile, Stores};
use crate::threads::{Mutex, now};

/// The index file, and how the queue stores to its sheets.
#[derive(Debug)]
pub(crate) struct Sheets<F> {
    file: Arc<F>,
    calls: Option<Arc<Calls<F>>>,
}

/// Consecutive bytes of the file.
#[derive(Debug)]
pub(crate) struct Sheet<F> {
    window: Window,
    /// Offset of the sheet in the file.
    at: u64,
    calls: Option<Arc<Calls<F>>>,
}

/// Writes bytes where stores go by calls.
#[derive(Debug)]
struct Calls<F> {
    path: PathBuf,
    file: Arc<F>,
    /// Every store takes this lock.
    late: Mutex<LateBytes>,
}

/// Bytes that were stored in memory but not yet written, the oldest first.
#[derive(Debug, Default)]
struct LateBytes {
    list: Vec<Late>,
    /// When a write of them failed last.
    refused: Option<Instant>,
}

/// How long a store waits before it tries the disk again. (Zero in all tests but one.)
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 100 });
#[cfg(test)]
thread_local! {
    pub(crate) static PAUSE_HERE: std::cell::Cell<Duration> = const { std::cell::Cell::new(PAUSE) };
}

impl LateBytes {
    /// Returns whether a write failed less than the pause ago.
    fn are_to_wait(&self) -> bool {
        #[cfg(not(test))]
        let pause = PAUSE;
        #[cfg(test)]
        let pause = PAUSE_HERE.get();
        !self.list.is_empty()
            && !pause.is_zero()
            && self.refused.is_some_and(|refused| now().duration_since(refused) < pause)
    }

    /// Adds late bytes. A range that is already late keeps its turn.
    fn add<F>(&mut self, sheet: &Sheet<F>, offset: usize, len: usize) {
        let at = sheet.at + offset as u64;
        if !self.list.iter().any(|other| other.at == at && other.len == len) {
            holds!(
                offset + len <= sheet.window.len(),
                "late bytes, {offset} and {len} more, lie in their sheet"
            );
            self.list.push(Late { window: sheet.window.clone_shared(), offset, len, at });
        }
    }
}

/// Bytes of a sheet that are stored in memory but not yet written.
#[derive(Debug)]
struct Late {
    window: Window,
    offset: usize,
    len: usize,
    /// Their offset in the file.
    at: u64,
}

impl<F: StorageFile> Sheets<F> {
    /// Wraps the index `file` of the queue in the directory `path`. The file's first `len` bytes
    /// exist.
    pub(crate) fn new(path: &Path, file: F, len: u64) -> Sheets<F> {
        if file.find_stores(0) == Stores::ByCall {
            file.unshare(len);
        }
        let by_call = file.find_stores(0) == Stores::ByCall;
        let file = Arc::new(file);
        let calls = by_call.then(|| {
            Arc::new(Calls {
                path: path.to_owned(),
                file: Arc::clone(&file),
                late: Mutex::default(),
            })
        });
        Sheets { file, calls }
    }

    pub(crate) fn file(&self) -> &F {
        &self.file
    }

    pub(crate) fn sheet(&self, at: u64, len: usize) -> io::Result<Sheet<F>> {
        let window = match &self.calls {
            None => self.file.map(at, len)?,
            Some(_) => {
                let mut bytes = vec![0; len];
                super::read_full(&*self.file, &mut bytes, at)?;
                let window = Window::private(len)?;
                window.copy_in(0, &bytes);
                window
            }
        };
        Ok(Sheet { window, at, calls: self.calls.clone() })
    }

    /// Returns whether any bytes are late.
    pub(crate) fn are_late(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| !calls.late.lock().list.is_empty())
    }

    /// Writes the late bytes.
    pub(crate) fn write_late(&self) -> io::Result<()> {
        match &self.calls {
            None => Ok(()),
            Some(calls) => calls.write_late(&mut calls.late.lock()),
        }
    }
}

impl<F: StorageFile> Sheet<F> {
    pub(crate) fn share(&self) -> Sheet<F> {
        Sheet { window: self.window.clone_shared(), at: self.at, calls: self.calls.clone() }
    }

    #[inline(always)]
    fn store(&self, offset: usize, len: usize, store: impl FnOnce(&Window)) {
        match &self.calls {
            None => store(&self.window),
            Some(calls) => calls.store(self, offset, len, store),
        }
    }

    #[inline(always)]
    fn try_store(
        &self,
        offset: usize,
        len: usize,
        store: impl FnOnce(&Window),
        undo: impl FnOnce(&Window),
    ) -> io::Result<()> {
        match &self.calls {
            None => {
                store(&self.window);
                Ok(())
            }
            Some(calls) => calls.try_store(self, offset, len, store, undo),
        }
    }

    /// Loads with acquire ordering: this thread then sees all stores before the store of the value.
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        self.window.load_u64(offset)
    }

    pub(crate) fn load_u64_relaxed(&self, offset: usize) -> u64 {
        self.window.load_u64_relaxed(offset)
    }

    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.window.copy_out(offset, into);
    }

    /// Makes every page dirty again with its present bytes. No other thread stores meanwhile.
    pub(crate) fn store_again(&self) {
        let len = self.window.len();
        self.store(0, len, |window| {
            (0..len).step_by(4096).for_each(|at| window.store_u64(at, window.load_u64(at)));
        });
    }

    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        self.store(offset, 8, |window| window.store_u64(offset, value));
    }

    pub(crate) fn store_u32(&self, offset: usize, value: u32) {
        self.store(offset, 4, |window| window.store_u32(offset, value));
    }

    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.store(offset, bytes.len(), |window| window.copy_in(offset, bytes));
    }

    /// Stores `bytes` and writes them at once. On an error the old bytes `before` stay.
    pub(crate) fn try_copy_in(&self, offset: usize, bytes: &[u8], before: &[u8]) -> io::Result<()> {
        self.try_store(
            offset,
            bytes.len(),
            |window| window.copy_in(offset, bytes),
            |window| window.copy_in(offset, before),
        )
    }

    /// Stores bytes that may be skipped: writes them at once or not at all, never late, and waits
    /// for no other bytes. Returns false when it skipped them.
    pub(crate) fn offer(&self, offset: usize, bytes: &[u8]) -> bool {
        match &self.calls {
            Some(calls) => calls.offer(self, offset, bytes),
            _ => {
                self.copy_in(offset, bytes);
                true
            }
        }
    }

    pub(crate) fn zero(&self, offset: usize, len: usize) {
        self.store(offset, len, |window| window.zero(offset, len));
    }

    /// Stores words in order and writes them at once. On an error the words `before` stay (see
    /// [`Window::store_words`]).
    #[inline(always)]
    pub(crate) fn try_store_words<const N: usize>(
        &self,
        offset: usize,
        words: [u64; N],
        before: impl FnOnce() -> [u64; N],
    ) -> io::Result<()> {
        // A closure for the call is made where there is one: what it captures goes to memory.
        if self.calls.is_none() {
            self.window.store_words(offset, words);
            return Ok(());
        }
        self.try_store(
            offset,
            8 * N,
            move |window| window.store_words(offset, words),
            move |window| window.store_words(offset, before()),
        )
    }

    /// Stores words in order (see [`Window::store_words`]).
    pub(crate) fn store_words<const N: usize>(&self, offset: usize, words: [u64; N]) {
        self.store(offset, 8 * N, move |window| window.store_words(offset, words));
    }

    /// Stores words, and then `last` (see [`Window::store_row`]).
    #[inline(always)]
    pub(crate) fn store_row<const N: usize>(&self, offset: usize, words: [u64; N], last: u32) {
        // As in `try_store_words`.
        if self.calls.is_none() {
            return self.window.store_row(offset, words, last);
        }
        self.store(offset, 8 * N + 4, move |window| window.store_row(offset, words, last));
    }
}

impl<F: StorageFile> Calls<F> {
    #[cold]
    #[inline(never)]
    fn store(&self, sheet: &Sheet<F>, offset: usize, len: usize, store: impl FnOnce(&Window)) {
        let mut late = self.late.lock();
        store(&sheet.window);
        if late.are_to_wait() {
            return late.add(sheet, offset, len);
        }
        let was_late = !late.list.is_empty();
        let written = self.write_late(&mut late).and_then(|()| self.write(sheet, offset, len));
        if let Err(error) = written {
            late.add(sheet, offset, len);
            late.refused = Some(now());
            drop(late);
            if !was_late {
                events::index_late(&self.path, &error);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn try_store(
        &self,
        sheet: &Sheet<F>,
        offset: usize,
        len: usize,
        store: impl FnOnce(&Window),
        undo: impl FnOnce(&Window),
    ) -> io::Result<()> {
        let mut late = self.late.lock();
        self.write_late(&mut late)?;
        store(&sheet.window);
        self.write(sheet, offset, len).inspect_err(|_| {
            // Part of the bytes may have been written.
            undo(&sheet.window);
            late.add(sheet, offset, len);
            late.refused = Some(now());
        })
    }

    #[cold]
    #[inline(never)]
    fn offer(&self, sheet: &Sheet<F>, offset: usize, bytes: &[u8]) -> bool {
        let late = self.late.lock();
        // While bytes are late, the disk is full.
        let written =
            late.list.is_empty() && self.file.write_at(bytes, sheet.at + offset as u64).is_ok();
        if written {
            sheet.window.copy_in(offset, bytes);
        }
        written
    }

    /// Writes part of a sheet. The caller holds the lock of `late`, so no other thread stores
    /// meanwhile.
    fn write(&self, sheet: &Sheet<F>, offset: usize, len: usize) -> io::Result<()> {
        self.file.write_at(sheet.window.bytes(offset, len), sheet.at + offset as u64)
    }

    fn write_late(&self, late: &mut LateBytes) -> io::Result<()> {
        let list = &mut late.list;
        if list.is_empty() {
            return Ok(());
        }
        let write =
            |late: &Late| self.file.write_at(late.window.bytes(late.offset, late.len), late.at);
        let refused = list.iter().enumerate().find_map(|(at, late)| Some((at, write(late).err()?)));
        let (written, error) = refused.map_or((list.len(), None), |(at, error)| (at, Some(error)));
        list.drain(..written);
        holds!(
            error.is_some() || list.is_empty(),
            "what is late stays only when a call was refused: {} pieces",
            list.len()
        );
        match error {
            None => Ok(()),
            Some(error) => Err(io::Error::new(error.kind(), Unwritten(error))),
        }
    }
}
