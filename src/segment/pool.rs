//! The arena pool: the bounded set of mapped windows.
//!
//! A window is a whole segment, or one arena of it when the cap is tight
//! ([`Geometry::window_len`]). The pool owns one reference to every window; the writer, each reader
//! and each lent message own more. Invariants:
//!
//! - at most [`Geometry::max_windows`] windows are mapped;
//! - a window that somebody else refers to is never unmapped;
//! - at most `max_windows - 2` windows are open to lending at a time, so that the tail and one head
//!   always find room: messages held for long can make reading copy, never fail.
//!
//! When no window can be had the caller uses plain reads and writes on the file instead, which the
//! kernel keeps coherent with every mapping.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::memory::{self, Window};
use crate::segment::geometry::Geometry;
use crate::storage::StorageFile;

/// Who asks for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Writer,
    Reader,
}

#[derive(Debug)]
struct Mapped {
    window: Window,
    /// Bytes of the file that are allocated: nobody reads behind them.
    allocated: u64,
    /// When it was last asked for, by the pool's own count.
    used: u64,
    /// A reader was told that it may lend messages from it.
    lending: bool,
    /// Its segment is no longer part of the queue.
    unwanted: bool,
}

impl Mapped {
    /// Somebody besides the pool refers to it.
    fn in_use(&self) -> bool {
        self.window.references() != self.window.weight()
    }
}

#[derive(Debug, Default)]
struct Windows {
    mapped: HashMap<(u64, u64), Mapped>,
    clock: u64,
}

#[derive(Debug)]
pub(crate) struct Pool {
    geometry: Geometry,
    windows: Mutex<Windows>,
}

/// A window handed out.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) window: Window,
    /// Messages may be lent from it.
    pub(crate) lending: bool,
}

impl Pool {
    pub(crate) fn new(geometry: Geometry) -> Pool {
        Pool { geometry, windows: Mutex::new(Windows::default()) }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The window `number` of the segment `life`, mapping it when there is room for it; `None` when
    /// there is not. `file_len` is the segment's full length, `allocated` what exists of it, asked
    /// under the pool's lock: what it does not know of yet, [`grown`](Self::grown) is still to
    /// tell. To a reader it says whether messages may be lent from it.
    pub(crate) fn get<F: StorageFile>(
        &self,
        file: &F,
        life: u64,
        number: u64,
        file_len: u64,
        allocated: impl Fn() -> u64,
        user: User,
    ) -> std::io::Result<Option<Granted>> {
        let mut windows = self.windows.lock();
        let windows = &mut *windows;
        windows.clock += 1;
        let key = (life, number);
        if !windows.mapped.contains_key(&key) {
            if windows.mapped.len() >= self.geometry.max_windows && !windows.evict() {
                return Ok(None);
            }
            let start = number * self.geometry.window_len;
            let len = self.geometry.window_len.min(file_len - start);
            let window = file.map(start, len as usize)?;
            windows.mapped.insert(
                key,
                Mapped { window, allocated: 0, used: 0, lending: false, unwanted: false },
            );
        }
        let may_lend = user == User::Reader
            && memory::CAN_DETACH
            && windows.may_lend(&key, self.geometry.max_windows);
        let clock = windows.clock;
        let Some(mapped) = windows.mapped.get_mut(&key) else {
            return Ok(None);
        };
        mapped.used = clock;
        mapped.allocated = mapped.allocated.max(allocated());
        if may_lend {
            mapped.lending = true;
        }
        Ok(Some(Granted { window: mapped.window.clone_shared(), lending: may_lend }))
    }

    /// The segment's file was allocated up to there: what is stored behind its old end from now on
    /// may be lent.
    pub(crate) fn grown(&self, life: u64, allocated: u64) {
        for (_, mapped) in self.windows.lock().mapped.iter_mut().filter(|(key, _)| key.0 == life) {
            mapped.allocated = mapped.allocated.max(allocated);
        }
    }

    /// Nobody but the pool refers to a window of the segment.
    pub(crate) fn is_idle(&self, life: u64) -> bool {
        let windows = self.windows.lock();
        windows.mapped.iter().all(|(key, mapped)| key.0 != life || !mapped.in_use())
    }

    /// The segment goes on under another life with its windows, which nobody else may refer to.
    pub(crate) fn renew(&self, old_life: u64, new_life: u64) {
        let mut windows = self.windows.lock();
        let numbers: Vec<u64> =
            windows.mapped.keys().filter(|key| key.0 == old_life).map(|key| key.1).collect();
        for number in numbers {
            if let Some(mut mapped) = windows.mapped.remove(&(old_life, number)) {
                (mapped.lending, mapped.unwanted) = (false, false);
                windows.mapped.insert((new_life, number), mapped);
            }
        }
    }

    /// Unmaps the segment's windows. One that is still referred to stays, and counts, until its
    /// last reference is gone and the room is wanted: in memory, or [on the
    /// disk](Self::unmap_unwanted).
    pub(crate) fn unmap_segment(&self, life: u64) {
        for (_, mapped) in self.windows.lock().mapped.iter_mut().filter(|(key, _)| key.0 == life) {
            mapped.unwanted = true;
        }
        self.unmap_unwanted();
    }

    /// Unmaps the windows of removed segments that nobody refers to any more: the disk has their
    /// space back no sooner. True when there were some.
    pub(crate) fn unmap_unwanted(&self) -> bool {
        let mut windows = self.windows.lock();
        let before = windows.mapped.len();
        windows.mapped.retain(|_, mapped| !mapped.unwanted || mapped.in_use());
        windows.mapped.len() < before
    }

    /// Windows and bytes mapped now.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let windows = self.windows.lock();
        let bytes = windows.mapped.values().map(|mapped| mapped.window.len() as u64).sum();
        (windows.mapped.len() as u64, bytes)
    }

    /// Unmaps everything. What somebody still refers to becomes a private copy at the same address,
    /// so that the files may change, go, or be opened by somebody else.
    pub(crate) fn detach(&self) {
        for (key, mapped) in self.windows.lock().mapped.drain() {
            if mapped.in_use() {
                let valid = mapped.allocated.saturating_sub(key.1 * self.geometry.window_len);
                mapped.window.detach(valid.min(mapped.window.len() as u64) as usize);
            }
        }
    }
}

impl Windows {
    /// Unmaps the window that was not used for the longest time; false when all are in use.
    fn evict(&mut self) -> bool {
        let idle = self.mapped.iter().filter(|(_, mapped)| !mapped.in_use());
        let Some(key) = idle.min_by_key(|(_, mapped)| mapped.used).map(|(key, _)| *key) else {
            return false;
        };
        self.mapped.remove(&key);
        true
    }

    fn may_lend(&self, key: &(u64, u64), max_windows: usize) -> bool {
        let others = self
            .mapped
            .iter()
            .filter(|(other, mapped)| *other != key && mapped.lending && mapped.in_use())
            .count();
        others < max_windows.saturating_sub(2)
    }
}
