//! The segment allocator alone, on a simulated disk: the list, the pool, reclaiming, growing.

mod grow;
mod list;
mod lost;
mod pool;
mod recycle;

use std::sync::Arc;

use super::geometry::Geometry;
use super::*;
use crate::error::Error;
use crate::format::{self, Place, SegmentHeader, Spot};
use crate::index::Index;
use crate::index::losses::Evicted;

use crate::segment::pool::Pool;
use crate::storage::Stores;
use crate::tests::sim::SimStorage;
use crate::threads::Mutex;

const ID: [u8; 16] = *b"0123456789abcdef";
const LEN: u64 = 64 << 10;
/// How many messages the plan gives each segment.
const HELD: u64 = 10;

/// An allocator and what it needs of a queue. No message is ever written.
struct Bench {
    storage: SimStorage,
    index: Index<SimStorage>,
    pool: Pool,
    limits: DiskLimits,
    evicted: Mutex<Evicted>,
    segments: Segments<SimStorage>,
}

impl Reclaims for Bench {
    fn have_reclaimed(&self) -> Result<()> {
        if self.segments.list().has_drained() { self.reclaim() } else { Ok(()) }
    }
}

impl Bench {
    fn new(max_bytes: Option<u64>) -> Bench {
        Bench::over(SimStorage::new(3), max_bytes)
    }

    fn over(storage: SimStorage, max_bytes: Option<u64>) -> Bench {
        storage.set_stores(Stores::ByMap);
        let index = Index::create(&storage, ID, 7).unwrap();
        let found = Found { rows_complete: true, next_life: 1, ..Found::default() };
        Bench {
            index,
            pool: Pool::new(Geometry {
                least_len: LEN,
                usual_len: LEN,
                most_len: LEN,
                drops_ahead: false,
                window_len: LEN,
                max_mapped: 3 * LEN,
            }),
            limits: DiskLimits { max_bytes, min_free_bytes: 0 },
            evicted: Mutex::default(),
            segments: Segments::new(found, Vec::new()),
            storage,
        }
    }

    fn context(&self) -> Context<'_, SimStorage> {
        Context {
            storage: &self.storage,
            index: &self.index,
            pool: &self.pool,
            limits: self.limits,
            durable: Spot::default(),
            evicted: &self.evicted,
            fills: false,
            reclaims: self,
        }
    }

    /// Appends the next segment, with space for `need` bytes.
    fn append(&self, need: u64) -> Result<Arc<Segment<<SimStorage as Storage>::File>>> {
        let last = self.segments.list().live.back().map(|row| row.header);
        let (base, first_seq) = last.map_or((0, 0), |last| (last.end(), last.first_seq + HELD));
        self.segments.append(&self.context(), Plan { base, first_seq, need, ..Plan::default() })
    }

    /// Makes `count` segments, which no reader has open.
    fn append_all(&self, count: usize) {
        (0..count).for_each(|_| drop(self.append(1).unwrap()));
        self.synced();
    }

    /// Acts like a flush: keeps no segment open except the tail's.
    fn synced(&self) {
        let mut list = self.segments.list();
        let mut from = 0;
        while let Some(unsynced) = list.next_unsynced(&self.storage, from, u64::MAX) {
            from = unsynced.row.header.base + 1;
            if unsynced.is_full {
                list.note_synced(&unsynced.row);
            }
        }
    }

    /// Drains the first `count` segments, as if every consumer had passed them.
    fn pass(&self, count: usize) {
        let end = self.segments.list().live[count - 1].header.end();
        assert!(self.segments.drain(end));
    }

    fn reclaim(&self) -> Result<()> {
        self.segments.reclaim(&self.context())
    }

    /// Returns how many segments are live, drained and spare.
    fn counts(&self) -> [usize; 3] {
        let list = self.segments.list();
        assert_eq!(list.check_accounts(&self.storage.file_names()), Ok(()));
        [list.live.len(), list.recycling.drained.len(), list.recycling.spares.len()]
    }

    /// Returns the header in each segment file.
    fn headers(&self) -> Vec<SegmentHeader> {
        headers(&self.storage)
    }
}

fn headers(storage: &SimStorage) -> Vec<SegmentHeader> {
    let names = storage.file_names();
    let slots = names.iter().filter_map(|name| format::segment_slot(name));
    slots.map(|slot| files::read_header(storage, slot).unwrap()).collect()
}

/// Adds a consumer whose position is `base`.
fn stand(bench: &Bench, base: u64) {
    let place = Place { number: 0, position: base, seq: base / 8 };
    bench.index.add_consumer(None, "", place, |take| take(0)).unwrap();
}
