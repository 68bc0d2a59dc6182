//! The pool: the bounded set of mapped windows.
//!
//! A window is a whole segment, or one arena of it when the cap is tight
//! ([`Geometry::window_len`]); the writer's may be several arenas ([`Geometry::writer_len`]). The
//! pool has one reference to every window; the writer, each reader and each lent message add
//! theirs. Invariants:
//!
//! - At most [`Geometry::max_mapped`] bytes are mapped.
//! - The pool never unmaps a window that another holder refers to.
//! - Windows from which messages may be lent leave room for two more of ordinary length, so that
//!   the tail and one reader always find room. If a user keeps lent messages for long, readers copy
//!   instead, but never fail.
//!
//! A caller that gets no window uses read and write calls instead, which the kernel keeps coherent
//! with every mapping.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::memory::{self, Window};
use crate::segment::geometry::Geometry;
use crate::storage::StorageFile;
use crate::threads::Mutex;
use crate::threads::ranks::{Rank, ranked};

/// So many bytes are mapped anew at a time: a reader that comes in between faults.
const MAPPED_AT_ONCE: usize = 1 << 20;

/// The caller that requests a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Writer,
    Reader,
    /// Copies out of the window and releases it.
    Copier,
}

/// The segment's life, the number in it of the window's first arena, and the window's length.
type Key = (u64, u64, u64);

#[derive(Debug)]
struct Mapped {
    window: Window,
    /// Allocated bytes of the file: no reader reads behind them.
    allocated: u64,
    /// The value of [`Windows::clock`] at its last request.
    last_used: u64,
    /// Whether `get` allowed a reader to lend messages from it.
    lending: bool,
    /// Whether its segment's file was removed.
    is_unwanted: bool,
}

impl Mapped {
    fn new(window: Window) -> Mapped {
        Mapped { window, allocated: 0, last_used: 0, lending: false, is_unwanted: false }
    }

    /// Returns whether anything besides the pool refers to it.
    fn is_in_use(&self) -> bool {
        self.window.references() != self.window.weight()
    }
}

#[derive(Debug, Default)]
struct Windows {
    mapped: BTreeMap<Key, Mapped>,
    /// The number of window requests so far.
    clock: u64,
}

#[derive(Debug)]
pub(crate) struct Pool {
    geometry: Geometry,
    windows: Mutex<Windows>,
}

/// A window that the pool returns to a caller.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) window: Window,
    /// The offset in the segment's file where it begins.
    pub(crate) start: u64,
    /// Whether messages may be lent from it.
    pub(crate) lending: bool,
}

impl Pool {
    pub(crate) fn new(geometry: Geometry) -> Pool {
        Pool { geometry, windows: ranked(Rank::Pool, Windows::default()) }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns a window of the segment `life` that covers `offset`, and maps one if needed; `None`
    /// when the cap leaves no room or the system does not map it (a file system without shared
    /// mappings, no memory, too many mappings). `file_len` is the segment's full length.
    /// `allocated` returns how many bytes of the file are allocated; `get` calls it under the
    /// pool's lock, so a growth that it misses arrives by [`grown`](Self::grown) afterwards. Also
    /// returns whether a reader may lend messages from the window.
    pub(crate) fn get<F: StorageFile>(
        &self,
        file: &F,
        life: u64,
        offset: u64,
        file_len: u64,
        allocated: impl Fn() -> u64,
        user: User,
    ) -> Option<Granted> {
        let mut windows = self.windows.lock();
        let windows = &mut *windows;
        windows.clock += 1;
        let unit = self.geometry.window_len;
        let key = match windows.having(life, offset, unit, user) {
            Some(key) => key,
            None => {
                let (start, len) = windows.make_room(&self.geometry, offset, file_len, user)?;
                let window = file.map(start, len as usize).ok()?;
                let key = (life, start / unit, len);
                windows.mapped.insert(key, Mapped::new(window));
                key
            }
        };
        let may_lend =
            user == User::Reader && memory::CAN_DETACH && windows.may_lend(&key, &self.geometry);
        let clock = windows.clock;
        let mapped = windows.mapped.get_mut(&key)?;
        mapped.last_used = clock;
        mapped.allocated = mapped.allocated.max(allocated());
        if may_lend {
            mapped.lending = true;
        }
        let window = mapped.window.clone_shared();
        holds!(
            (key.1 * unit..key.1 * unit + key.2).contains(&offset),
            "the window {key:?} has the offset {offset}, in units of {unit}"
        );
        holds!(
            mapped.allocated <= file_len,
            "of a file of {file_len} bytes {} are allocated",
            mapped.allocated
        );
        check!(windows.check(&self.geometry));
        Some(Granted { window, start: key.1 * unit, lending: may_lend })
    }

    /// Notes that the segment's file is now allocated up to `allocated`. Called before the writer
    /// stores behind the old end: from then on readers may lend messages there.
    pub(crate) fn grown(&self, life: u64, allocated: u64) {
        for (_, mapped) in self.windows.lock().mapped.iter_mut().filter(|(key, _)| key.0 == life) {
            mapped.allocated = mapped.allocated.max(allocated);
        }
    }

    /// Notes that the segment's file is about to end at `allocated`, behind which no reader looks
    /// any more. Unmaps its windows, except those still in use for lent messages, which end before.
    pub(crate) fn cut(&self, life: u64, allocated: u64) {
        let mut windows = self.windows.lock();
        windows.mapped.retain(|key, mapped| key.0 != life || mapped.is_in_use());
        for (_, mapped) in windows.mapped.iter_mut().filter(|(key, _)| key.0 == life) {
            mapped.allocated = mapped.allocated.min(allocated);
        }
        check!(windows.check(&self.geometry));
    }

    /// Maps the pages of the segment's file between two offsets anew, for reading. The caller has
    /// the segment open, so that its windows are not used for another life meanwhile.
    pub(super) fn map_clean(&self, life: u64, range: Range<u64>) {
        let mut behind = (life, 0, 0);
        // One window at a time and without the pool's lock: the calls may wait for the disk.
        while let Some((key, window)) = self.next_window(behind, range.end) {
            let start = key.1 * self.geometry.window_len;
            let (from, to) = (range.start.max(start), range.end.min(start + key.2));
            for from in (from..to).step_by(MAPPED_AT_ONCE) {
                let to = to.min(from + MAPPED_AT_ONCE as u64);
                window.map_clean((from - start) as usize, (to - from) as usize);
            }
            behind = key;
        }
        // The segment may have been removed meanwhile.
        self.unmap_unwanted();
    }

    /// Returns the first window of the same segment behind the key that begins before `end`.
    fn next_window(&self, behind: Key, end: u64) -> Option<(Key, Window)> {
        let windows = self.windows.lock();
        let mut next = windows.mapped.range((Bound::Excluded(behind), Bound::Unbounded));
        let (key, mapped) = next.next()?;
        let is_next = key.0 == behind.0 && key.1 * self.geometry.window_len < end;
        is_next.then(|| (*key, mapped.window.clone_shared()))
    }

    /// Returns whether only the pool refers to the segment's windows.
    pub(crate) fn is_idle(&self, life: u64) -> bool {
        let windows = self.windows.lock();
        windows.mapped.iter().all(|(key, mapped)| key.0 != life || !mapped.is_in_use())
    }

    /// Keeps the windows of a segment that begins a new life. Nothing else may refer to them.
    pub(crate) fn renew(&self, old_life: u64, new_life: u64) {
        let mut windows = self.windows.lock();
        let keys: Vec<Key> =
            windows.mapped.keys().filter(|key| key.0 == old_life).copied().collect();
        for key in keys {
            if let Some(mut mapped) = windows.mapped.remove(&key) {
                (mapped.lending, mapped.is_unwanted) = (false, false);
                holds!(
                    !mapped.is_in_use(),
                    "nobody refers to the window {key:?} of a segment that is used again"
                );
                windows.mapped.insert((new_life, key.1, key.2), mapped);
            }
        }
        check!(windows.check(&self.geometry));
    }

    /// Unmaps the segment's windows. A window still in use stays mapped, and counts. Once the last
    /// reference is gone, the pool unmaps it when it needs room for another window, or when the
    /// queue needs its [disk space](Self::unmap_unwanted).
    pub(crate) fn unmap_segment(&self, life: u64) {
        for (_, mapped) in self.windows.lock().mapped.iter_mut().filter(|(key, _)| key.0 == life) {
            mapped.is_unwanted = true;
        }
        self.unmap_unwanted();
    }

    /// Unmaps the windows of removed segments that are no longer in use: only then does the file
    /// system free a removed file's space. Returns whether it unmapped any.
    pub(crate) fn unmap_unwanted(&self) -> bool {
        let mut windows = self.windows.lock();
        let before = windows.mapped.len();
        windows.mapped.retain(|_, mapped| !mapped.is_unwanted || mapped.is_in_use());
        windows.mapped.len() < before
    }

    /// Returns how many bytes are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.windows.lock().mapped_bytes()
    }

    /// Unmaps every window. A window still in use becomes a private copy at the same address, so
    /// that from now on another process may open, change or remove the files. One that cannot
    /// become that keeps `lock`.
    pub(crate) fn detach(&self, lock: &Arc<dyn Send + Sync>) {
        for (key, mapped) in std::mem::take(&mut self.windows.lock().mapped) {
            if mapped.is_in_use() {
                let valid = mapped.allocated.saturating_sub(key.1 * self.geometry.window_len);
                mapped.window.detach(valid.min(mapped.window.len() as u64) as usize, lock);
            }
        }
    }
}

impl Windows {
    /// What is mapped stays within the cap, and each window is what its key says.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check(&self, geometry: &Geometry) {
        let (bytes, most) = (self.mapped_bytes(), geometry.max_mapped);
        holds!(bytes <= most, "{bytes} bytes are mapped, and {most} may be");
        for ((life, arena, len), mapped) in &self.mapped {
            let (mapped_len, used) = (mapped.window.len() as u64, mapped.last_used);
            holds!(mapped_len == *len, "the window of life {life} at {arena} has {len} bytes");
            holds!(used <= self.clock, "a window was used at {used}, and not after {}", self.clock);
            let (all, own) = (mapped.window.references(), mapped.window.weight());
            holds!(own <= all, "of {all} references to a window the pool has {own}");
            holds!(own > 0, "the pool has a reference to the window of life {life} at {arena}");
            holds!(
                !mapped.lending || memory::CAN_DETACH,
                "messages are lent from the window of life {life} where it can be detached"
            );
        }
    }

    fn mapped_bytes(&self) -> u64 {
        self.mapped.values().map(|mapped| mapped.window.len() as u64).sum()
    }

    /// Returns the mapped window of the segment `life` that covers `offset`: for the writer the
    /// longest, for others the shortest.
    fn having(&self, life: u64, offset: u64, unit: u64, user: User) -> Option<Key> {
        let before = self.mapped.range((life, 0, 0)..=(life, offset / unit, u64::MAX));
        let having = before.map(|(key, _)| *key).filter(|key| offset - key.1 * unit < key.2);
        match user {
            User::Writer => having.max_by_key(|key| key.2),
            User::Reader | User::Copier => having.min_by_key(|key| key.2),
        }
    }

    /// Unmaps windows until there is room for one that covers `offset`. Returns its offset and
    /// length. Where a long one finds no room, the writer gets one of an arena.
    fn make_room(
        &mut self,
        geometry: &Geometry,
        offset: u64,
        file_len: u64,
        user: User,
    ) -> Option<(u64, u64)> {
        let shortest = geometry.window_len;
        let mut wanted = if user == User::Writer { geometry.writer_len() } else { shortest };
        loop {
            let start = offset / wanted * wanted;
            let len = wanted.min(file_len - start);
            holds!(
                start <= offset && offset < start + len && start + len <= file_len,
                "the window at {start}, of {len} bytes, has {offset} and lies in {file_len}"
            );
            if self.mapped_bytes().saturating_add(len) <= geometry.max_mapped {
                return Some((start, len));
            }
            if !self.evict() {
                if wanted == shortest {
                    return None;
                }
                wanted = shortest;
            }
        }
    }

    /// Unmaps the least recently used idle window. Returns false when all are in use.
    fn evict(&mut self) -> bool {
        let idle = self.mapped.iter();
        let idle = idle.filter(|(_, mapped)| !mapped.is_in_use() || planted!(EvictedInUse));
        let Some(key) = idle.min_by_key(|(_, mapped)| mapped.last_used).map(|(key, _)| *key) else {
            return false;
        };
        holds!(
            self.mapped.get(&key).is_some_and(|mapped| !mapped.is_in_use()),
            "nobody refers to the window {key:?}, which is unmapped"
        );
        self.mapped.remove(&key);
        true
    }

    /// Returns whether readers may lend from the window `key`, in addition to those already lent.
    fn may_lend(&self, key: &Key, geometry: &Geometry) -> bool {
        let is_lent = |mapped: &Mapped| mapped.lending && mapped.is_in_use();
        let lent = self.mapped.iter().filter(|(other, mapped)| *other == key || is_lent(mapped));
        let bytes: u64 = lent.map(|(_, mapped)| mapped.window.len() as u64).sum();
        bytes.saturating_add(2 * geometry.window_len) <= geometry.max_mapped
    }
}
