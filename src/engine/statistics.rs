//! The figures of [`Engine::stats`] and of each consumer, read one by one while other threads work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use crate::commit::Core;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::consumer_state::Stand;
use crate::engine::Engine;
use crate::error::GapCause;
use crate::format::{Spot, done_by_all};
use crate::segment::list::List;
use crate::state::PlaceCounts;
use crate::stats::{ConsumerStats, Stats};
use crate::storage::Storage;
use crate::threads::{AtomicU64, MutexGuard};

/// The values that all figures of one reading share. While it lives, it locks the list of segments.
struct Reading<'a, S: Storage> {
    core: &'a Core<S>,
    list: MutexGuard<'a, List<S::File>>,
    /// The end of the visible messages.
    end: Spot,
    next_seq: u64,
    oldest_seq: u64,
    /// Where the first segment begins.
    oldest: u64,
}

impl<'a, S: Storage> Reading<'a, S> {
    /// Begins a reading. The caller has read the consumers' positions before, so none lies behind
    /// its end.
    fn begin(core: &'a Core<S>) -> Reading<'a, S> {
        let list = core.segments.list();
        let end = core.visible.spot();
        let next_seq = core.committed().spot().seq;
        // An evicting thread first removes a segment from the list, and only then moves
        // `oldest_seq`. The bytes are counted by the list, so the oldest number must match the
        // list.
        let listed = list.live.front().map_or(0, |row| row.header.first_seq.min(end.seq));
        let oldest_seq = core.oldest_seq.load(Ordering::Acquire).max(listed).min(next_seq);
        let oldest = list.live.front().map_or(end.position, |row| row.header.base);
        Reading { core, list, end, next_seq, oldest_seq, oldest }
    }

    /// Returns where a consumer at that position reads next: the queue keeps no byte before it for
    /// this consumer.
    fn begins(&self, place: u64) -> u64 {
        place.max(self.oldest)
    }

    /// Returns where the segment begins that has the number `seq`.
    fn begin_of(&self, seq: u64) -> Option<u64> {
        let behind = self.list.live.partition_point(|row| row.header.first_seq <= seq);
        Some(self.list.live.get(behind.checked_sub(1)?)?.header.base)
    }

    /// Returns the figures of a consumer at `stand`. `lowest` is the lowest position of all
    /// consumers.
    fn of(&self, name: &str, stand: &Stand, lowest: u64) -> ConsumerStats {
        let Stand { place, waits_from, forwarded_at, ref done, in_flight } = *stand;
        let kept_from = self.begins(place.position);
        // A forwarder keeps messages behind those that wait.
        let from = match self.begin_of(waits_from) {
            Some(begins) if waits_from > place.seq => kept_from.max(begins),
            _ => kept_from,
        };
        let messages = self.core.count_waiting(
            waits_from.max(self.oldest_seq),
            self.end.seq,
            done.iter().copied(),
        );
        let mut stats = ConsumerStats {
            name: name.to_owned(),
            next_seq: waits_from,
            messages,
            in_flight,
            kept: waits_from - place.seq.min(waits_from),
            acknowledged_at: forwarded_at,
            holds_oldest: kept_from < self.end.position && kept_from <= self.begins(lowest),
            ..ConsumerStats::default()
        };
        if messages > 0 {
            stats.bytes = self.end.position.saturating_sub(from);
            let made = self.list.at(from).map_or(0, |row| row.header.created);
            // After the clock was set back the age is 0, not an overflow.
            let age = self.core.storage.now().saturating_sub(made);
            stats.oldest_age = Some(Duration::from_millis(age));
        }
        stats
    }
}

impl<S: Storage> Engine<S> {
    /// Returns when the segment was begun in which the message begins; `None` when no segment has
    /// the message.
    pub(crate) fn segment_time(&self, seq: u64) -> Option<SystemTime> {
        let core = &*self.core;
        if core.forked() || seq >= core.visible.spot().seq {
            return None;
        }
        let list = core.segments.list();
        let behind = list.live.partition_point(|row| row.header.first_seq <= seq);
        let begun = list.live.get(behind.checked_sub(1)?)?.header.created;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(begun))
    }

    /// Returns the queue's figures, each right at its own moment. Reads the count of taken messages
    /// first and of enqueued ones last: so a message counted as taken is also counted as enqueued,
    /// and not as waiting.
    pub(crate) fn stats(&self) -> Stats {
        let core = &*self.core;
        if core.forked() {
            return Stats::default();
        }
        let PlaceCounts { consumers, taken } = core.places.count();
        let stand = match self.existing_default() {
            Some(consumer) => consumer.stand(core),
            None => self.stand_of_all(),
        };
        let durable_seq = core.durable_seq();
        let reading = Reading::begin(core);
        let default = reading.of("", &stand, 0);
        let Reading { list, next_seq, oldest_seq, .. } = reading;
        let time = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        let mut stats = Stats {
            messages: default.messages,
            bytes: default.bytes,
            oldest_age: default.oldest_age,
            next_seq,
            oldest_seq,
            durable_seq,
            enqueued: next_seq.saturating_sub(core.found_tail.seq),
            dequeued: taken,
            consumers,
            gaps: core.gaps.reported.load(Ordering::Acquire),
            segments: list.live.len() as u64,
            spare_segments: list.spares() as u64,
            disk_bytes: list.disk_bytes() + core.index.len(),
            flushes: core.flush_totals.count.load(Ordering::Relaxed),
            flush_time: time(&core.flush_totals.nanos),
            longest_flush: time(&core.flush_totals.longest),
            refused: core.full_totals.refused.load(Ordering::Relaxed),
            wait_time: time(&core.full_totals.waited_nanos),
            dropped: core.gaps.dropped.load(Ordering::Relaxed),
            expired: core.gaps.expired.load(Ordering::Relaxed),
            rejected: core.gaps.rejected.load(Ordering::Relaxed),
            unclaimed: core.gaps.unclaimed.load(Ordering::Relaxed),
            last_flush_error: core.index.poison.reason(),
            ..Stats::default()
        };
        for (index, cause) in GapCause::ALL.into_iter().enumerate() {
            stats.set_lost(cause, core.gaps.lost[index].load(Ordering::Acquire));
        }
        stats.mapped_bytes = core.pool.mapped_bytes();
        stats.mapped_arenas = stats.mapped_bytes.div_ceil(self.options.arena_size);
        stats
    }

    /// Returns the lowest position of all consumers (zero without any), and what all of them are
    /// done with.
    pub(super) fn stand_of_all(&self) -> Stand {
        let stands = self.stands();
        let place = stands.iter().map(|(_, stand)| stand.place).min().unwrap_or_default();
        let waits_from = stands.iter().map(|(_, stand)| stand.waits_from).min().unwrap_or_default();
        let done = stands.iter().map(|(_, it)| (it.waits_from, it.done.iter().copied()));
        Stand { place, waits_from, done: done_by_all(done), ..Stand::default() }
    }

    fn stands(&self) -> Vec<(Arc<ConsumerState<S>>, Stand)> {
        // A consumer's own lock is taken without that of the table.
        let consumers: Vec<_> = self.consumers.by_name.lock().values().map(Arc::clone).collect();
        let stand = |consumer: Arc<ConsumerState<S>>| {
            let stand = consumer.stand(&self.core);
            (consumer, stand)
        };
        consumers.into_iter().map(stand).collect()
    }

    /// Returns the figures of one consumer.
    pub(crate) fn stats_of(&self, consumer: &ConsumerState<S>) -> ConsumerStats {
        let core = &*self.core;
        if core.forked() {
            return ConsumerStats { name: consumer.name().to_owned(), ..ConsumerStats::default() };
        }
        let stand = consumer.stand(core);
        let lowest = core.places.lowest().unwrap_or(0);
        Reading::begin(core).of(consumer.name(), &stand, lowest)
    }

    /// Returns the figures of all consumers, in the order of their names, up to the same end.
    pub(crate) fn consumer_stats(&self) -> Vec<ConsumerStats> {
        let core = &*self.core;
        if core.forked() {
            return Vec::new();
        }
        let stands = self.stands();
        let lowest = stands.iter().map(|(_, stand)| stand.place.position).min().unwrap_or(0);
        let reading = Reading::begin(core);
        let figures = |(consumer, stand): &(Arc<ConsumerState<S>>, Stand)| {
            reading.of(consumer.name(), stand, lowest)
        };
        stands.iter().map(figures).collect()
    }
}
