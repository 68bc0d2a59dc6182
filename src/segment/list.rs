//! The list of a queue's segments, live, drained and spare, under one lock.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::context::{Context, Plan, RECLAIMED_TOGETHER, SPARES_BUSY, spares_wanted};
use super::files::{Segment, overhead, taken};
use super::geometry::Geometry;
use super::names::Names;
use super::recycling::{Drained, Recycling};
use super::row::Row;
use super::undated::Undated;
#[cfg(test)]
use crate::format;
use crate::format::SEGMENT_HEADER_LEN;
use crate::index::RowsAre;
use crate::storage::{Storage, StorageFile};

/// With more open segments than this, consumers are asked to release theirs.
const MANY_OPEN: usize = 32;

#[derive(Debug)]
pub(crate) struct List<F> {
    pub(crate) live: VecDeque<Row>,
    /// Segments that a reader, the writer or the list has open, by life.
    pub(super) open: Vec<(u64, Weak<Segment<F>>)>,
    /// Live segments that a writer stored to since their last sync: the list keeps them open, and
    /// the flush syncs each through this descriptor. The kernel reports a failed write-back once to
    /// each open descriptor; a descriptor opened later may never learn of it.
    pub(super) kept_open: Vec<Arc<Segment<F>>>,
    /// Live segments that recovery opened. The list keeps them open until they are drained: the
    /// oldest for its first reader, the last for the first writer.
    pub(super) handed_on: Vec<Arc<Segment<F>>>,
    /// The number of the last store: each time a writer begins to store to a segment, it gets the
    /// next.
    pub(super) last_store: u64,
    pub(super) recycling: Recycling<F>,
    pub(super) names: Names,
    /// While no segment is live: no sequence number below this is in the queue. Set when the only
    /// segment is drained, or by recovery to the number behind all segments that it found.
    pub(super) drained_up_to: u64,
    /// While there is no consumer, the first number that none has read or was told of: a segment
    /// begins with it. Checkpoints keep it as their first retained number.
    pub(crate) unclaimed_from: Option<u64>,
    /// The age of the messages in the tail's segment, when its header does not date them.
    pub(super) undated_tail: Option<Undated>,
    /// For how many segments a queue that drops its oldest messages keeps space free.
    pub(crate) headroom: u64,
    /// Whether the storage worker will soon look for drained segments without a request.
    pub(crate) is_watched: bool,
}

impl<F: StorageFile> List<F> {
    /// The live segments are in order, and each segment is in one place. Where files were found
    /// under other names, or are lost, their names are not looked at.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self) {
        self.check_live();
        self.check_open();
        let rows = || self.live.iter().chain(self.recycling.rows());
        let next_life = self.names.next_life;
        for Row { slot, header, .. } in rows() {
            let (life, allocated, length) = (header.life, header.allocated, header.length);
            holds!(life < next_life, "segment {slot} has the life {life}, below {next_life}");
            holds!(allocated <= length, "segment {slot} has {allocated} bytes of {length}");
            let is_named = self.names.slots.0.get(*slot as usize).is_some_and(|taken| *taken);
            holds!(is_named || self.names.are_doubtful, "the name of segment {slot} is taken");
        }
        let mut lives: Vec<u64> = rows().map(|row| row.header.life).collect();
        lives.sort_unstable();
        holds!(lives.is_sorted_by(|a, b| a < b), "each segment is listed once: {lives:?}");
        let mut slots: Vec<u32> = rows().map(|row| row.slot).collect();
        slots.sort_unstable();
        let apart = slots.is_sorted_by(|a, b| a < b);
        holds!(apart || self.names.are_doubtful, "each name has one segment: {slots:?}");
        self.recycling.check();
        let headroom = self.headroom;
        holds!(headroom > 0, "there is headroom, of {headroom} segments");
    }

    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check_live(&self) {
        for (row, next) in self.live.iter().zip(self.live.iter().skip(1)) {
            let (row, next) = (&row.header, &next.header);
            let (end, base) = (row.end(), next.base);
            holds!(end <= base, "a live segment ends at {end}, where the next is to begin: {base}");
            let (life, later) = (row.life, next.life);
            holds!(life < later, "the live segment behind that of life {life} is later: {later}");
            let (first, seq) = (row.first_seq, next.first_seq);
            holds!(first <= seq, "numbers do not fall, from {first} to {seq}");
        }
        for row in &self.live {
            let (life, early) = (row.header.life, row.early_end);
            holds!(
                early.is_none_or(|early| early.life < life),
                "the segment that ends before that of life {life} is an older one: {early:?}"
            );
            let header = &row.header;
            holds!(
                header.missing.is_sound(header.first_seq),
                "the numbers missing before {header:?} are numbers, the reserved among them"
            );
        }
    }

    /// What the list keeps open is live, and is not synced or was handed on.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check_open(&self) {
        let row = |life: u64| self.live.iter().find(|row| row.header.life == life);
        for life in self.kept_open.iter().map(|open| open.header.life) {
            let row = row(life);
            holds!(
                row.is_some_and(|row| row.unsynced_store != 0),
                "the segment of life {life} is kept open until it is synced: {row:?}"
            );
        }
        for life in self.handed_on.iter().map(|open| open.header.life) {
            holds!(row(life).is_some(), "the segment of life {life}, which stays open, is live");
        }
        let mut lives: Vec<u64> = self.kept_open.iter().map(|open| open.header.life).collect();
        lives.sort_unstable();
        holds!(lives.is_sorted_by(|a, b| a < b), "a segment is kept open once: {lives:?}");
        let mut open: Vec<u64> = self.open.iter().map(|(life, _)| *life).collect();
        open.sort_unstable();
        open.dedup();
        let many = (open.len(), self.open.len());
        holds!(many.1 <= 2 * many.0 + 64, "what is closed is forgotten: {many:?} are open");
    }

    /// Returns the first sequence number that may still be in the queue.
    pub(crate) fn retained_from(&self) -> u64 {
        self.live.front().map_or(self.drained_up_to, |row| row.header.first_seq)
    }

    /// Returns all disk bytes except the index's: [`limited_bytes`](Self::limited_bytes) and the
    /// bytes of removed files that readers still have open.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let removed = self
            .recycling
            .removed
            .iter()
            .filter(|(open, _)| open.strong_count() > 0)
            .map(|(_, bytes)| *bytes);
        self.limited_bytes() + removed.sum::<u64>()
    }

    /// Returns the disk bytes of the directory's files, except the index: `max_bytes` limits these.
    /// Removed files that a reader has open do not count: a reader that pauses within a segment
    /// must not make the queue evict more than that segment.
    pub(crate) fn limited_bytes(&self) -> u64 {
        self.live.iter().chain(self.recycling.rows()).map(taken).sum::<u64>()
            + self.names.other_bytes
    }

    /// Returns whether there are segments whose space may soon be free.
    pub(crate) fn has_drained(&self) -> bool {
        !self.recycling.drained.is_empty() || !self.recycling.in_transit.is_empty()
    }

    /// Returns whether the drained segments are to be reclaimed now. That takes a sync, after which
    /// every thread faults in the index's pages again. So a busy queue waits for several segments,
    /// as long as it has a spare. (With a sync for each segment, batches of 128 bytes took 1.2
    /// times as long.)
    pub(super) fn is_reclaim_due<S: Storage<File = F>>(&self, context: &Context<'_, S>) -> bool {
        let length = self.tail_len(context.pool.geometry());
        let drained = &self.recycling.drained;
        !self.is_watched
            || spares_wanted(length, context.limits.pace()) < SPARES_BUSY
            || self.spares_of(length) == 0
            || drained.len() >= RECLAIMED_TOGETHER
            // What is no spare for the tail's segment need not wait.
            || drained.iter().any(|drained| drained.row.header.length != length)
    }

    /// Returns how often space was given back so far, if there are drained segments. Otherwise the
    /// storage worker looks for them no more without a request.
    pub(crate) fn are_drained(&mut self) -> Option<u64> {
        self.is_watched &= !self.recycling.drained.is_empty();
        self.is_watched.then_some(self.recycling.given_back)
    }

    /// Notes that the storage worker will soon look for drained segments without a request, if
    /// space was given back since [`are_drained`](Self::are_drained) returned `seen`. Returns
    /// whether it will.
    pub(crate) fn watch_if_given_back(&mut self, seen: u64) -> bool {
        self.is_watched = self.recycling.given_back != seen;
        self.is_watched
    }

    /// Returns the lives of the drained segments that a writer stored to since their last sync.
    pub(crate) fn drained_unsynced(&self) -> Vec<u64> {
        let drained = self.recycling.drained.iter().map(|drained| &drained.row);
        drained.filter(|row| row.unsynced_store != 0).map(|row| row.header.life).collect()
    }

    /// Notes that no flush need sync the index for these drained segments again.
    pub(crate) fn note_needless(&mut self, lives: &[u64]) {
        for Drained { row } in &mut self.recycling.drained {
            if lives.contains(&row.header.life) {
                row.unsynced_store = 0;
            }
        }
    }

    /// Returns whether the next opening may trust the index's segment rows.
    pub(super) fn rows_are(&self) -> RowsAre {
        if self.names.rows_complete && self.recycling.in_transit.is_empty() {
            RowsAre::Right
        } else {
            RowsAre::Changing
        }
    }

    /// Returns by how many bytes the index file may grow: what `min_free_bytes` and `max_bytes`
    /// leave beside three segments.
    pub(crate) fn index_room<S: Storage<File = F>>(&self, context: &Context<'_, S>) -> u64 {
        let free = match context.limits.min_free_bytes {
            0 => u64::MAX,
            // If the storage cannot tell the free space, the index may not grow.
            least => context.storage.free_bytes().unwrap_or(0).saturating_sub(least),
        };
        let Some(limit) = context.limits.max_bytes else {
            return free;
        };
        let index = context.index.len();
        let length = context.pool.geometry().most_len;
        let least = 3 * (length + overhead(length)) + self.names.other_bytes;
        limit.saturating_sub(index + self.limited_bytes().max(least)).min(free)
    }

    /// Returns whether more than [`MANY_OPEN`] segments are open.
    pub(crate) fn has_many_open(&self) -> bool {
        self.open.len() > MANY_OPEN
            && self.open.iter().filter(|(_, open)| open.strong_count() > 0).count() > MANY_OPEN
    }

    /// Returns the length of the tail's segment. The next one has the same while the backlog stays
    /// about the same.
    pub(super) fn tail_len(&self, geometry: &Geometry) -> u64 {
        self.live.back().map_or(geometry.least_len, |row| row.header.length)
    }

    /// Returns whether the tail's segment is longer than that of a nearly empty queue.
    pub(crate) fn has_long_tail(&self, geometry: &Geometry) -> bool {
        self.tail_len(geometry) > geometry.least_len
    }

    /// Returns the length of the next segment.
    pub(super) fn next_len(&self, geometry: &Geometry, plan: &Plan) -> u64 {
        geometry.next_len(self.tail_len(geometry), plan.backlog, plan.need)
    }

    pub(crate) fn spares(&self) -> usize {
        self.recycling.spares.len()
    }

    /// Returns how many spares of that length there are.
    pub(crate) fn spares_of(&self, length: u64) -> usize {
        self.recycling.spares.iter().filter(|spare| spare.row.header.length == length).count()
    }

    /// Returns the length of a spare that takes `need` bytes, if only a spare does: while another
    /// program takes the space that is to stay free.
    pub(crate) fn spare_in_need<S: Storage<File = F>>(
        &self,
        context: &Context<'_, S>,
        need: u64,
    ) -> Option<u64> {
        let mut headers = self.recycling.spares.iter().rev().map(|spare| &spare.row.header);
        let spare = headers.find(|header| SEGMENT_HEADER_LEN + need <= header.allocated);
        spare.filter(|_| context.lacks_free()).map(|header| header.length)
    }

    /// Returns whether the oldest segment has space for `need` bytes when it is used again.
    pub(crate) fn is_oldest_enough_for(&self, need: u64) -> bool {
        let oldest = self.live.front().map_or(0, |row| row.header.allocated);
        SEGMENT_HEADER_LEN + need <= oldest
    }

    /// Returns how many spares of that length the queue keeps while it is busy.
    pub(super) fn spares_wanted<S: Storage>(&self, context: &Context<'_, S>, length: u64) -> usize {
        spares_wanted(length, context.limits.pace()).max(self.headroom as usize)
    }

    /// Checks that each segment file in the directory is counted once, and that each slot taken has
    /// a file.
    #[cfg(test)]
    pub(crate) fn check_accounts(&self, names: &[String]) -> Result<(), String> {
        let kept = self.live.iter().chain(self.recycling.rows());
        let mut counted: Vec<u32> = kept.map(|row| row.slot).collect();
        counted.sort_unstable();
        let mut there: Vec<u32> =
            names.iter().filter_map(|name| format::segment_slot(name)).collect();
        there.sort_unstable();
        if counted != there {
            return Err(format!("counted are the segments {counted:?}, and there are {there:?}"));
        }
        let taken =
            (0..self.names.slots.0.len() as u32).filter(|slot| self.names.slots.0[*slot as usize]);
        // A quarantined file keeps its slot: a power cut may bring its name back.
        let mut leaked = taken.filter(|slot| {
            !names.iter().any(|name| name.starts_with(&format::segment_name(*slot)))
        });
        match leaked.next() {
            Some(leaked) => {
                Err(format!("the name of segment {leaked} is taken, and it is not there"))
            }
            None => Ok(()),
        }
    }

    /// Returns whether the segment of this life holds messages that a consumer may still need.
    pub(crate) fn is_live(&self, life: u64) -> bool {
        self.live.iter().any(|row| row.header.life == life)
    }

    /// Returns the live segment that holds `position`, or the first one behind it.
    pub(crate) fn at(&self, position: u64) -> Option<Row> {
        let index = self.live.partition_point(|row| row.header.end() <= position);
        self.live.get(index).copied()
    }
}
