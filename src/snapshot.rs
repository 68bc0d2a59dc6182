//! Figures of one moment, taken while everybody goes on.
//!
//! What producers and consumers change is read twice: when both readings are the same, and nobody was in the middle of a
//! change, everything held at one moment between them. They change it all the time on a busy queue, so after some tries
//! their locks are taken, all of them, for the few words that are read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::GapCause;
use crate::shared::{PlaceCell, Shared, Spot};
use crate::stats::Stats;
use crate::storage::Storage;

/// Readings before the locks are taken.
const TRIES: usize = 32;

/// What changes without the list of segments or the flush lock being held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Reading {
    visible: Spot,
    committed: Spot,
    oldest_seq: u64,
    /// The default consumer's place.
    place: Option<Spot>,
    /// Of all consumers: the places moved so often, so many messages were taken.
    moves: u64,
    taken: u64,
    gaps: u64,
    lost: [u64; GapCause::ALL.len()],
    /// Somebody is in the middle of a change.
    changing: bool,
}

impl Reading {
    fn take<S: Storage>(shared: &Shared<S>, places: &[impl AsRef<PlaceCell>], default: Option<&PlaceCell>) -> Reading {
        let mut reading = Reading::default();
        for cell in places {
            let cell = cell.as_ref();
            let moves = cell.moves.load(Ordering::Acquire);
            reading.taken += cell.taken.load(Ordering::Acquire);
            reading.moves = reading.moves.wrapping_add(moves);
            reading.changing |= cell.begun.load(Ordering::Acquire) > moves;
        }
        let spot = |position: &std::sync::atomic::AtomicU64, seq: &std::sync::atomic::AtomicU64| Spot {
            position: position.load(Ordering::Acquire),
            seq: seq.load(Ordering::Acquire),
        };
        reading.place = default.map(|cell| spot(&cell.position, &cell.seq));
        reading.taken += shared.retired_taken.load(Ordering::Acquire);
        reading.gaps = shared.totals.gaps.load(Ordering::Acquire);
        reading.lost = std::array::from_fn(|cause| shared.totals.lost[cause].load(Ordering::Acquire));
        reading.oldest_seq = shared.oldest_seq.load(Ordering::Acquire);
        reading.visible = spot(&shared.visible.0.position, &shared.visible.0.seq);
        reading.committed = spot(&shared.committed.0.position, &shared.committed.0.seq);
        // A producer publishes the one after the other, each number before its position.
        reading.changing |= !shared.durable_only && reading.visible != reading.committed;
        reading
    }
}

impl<S: Storage> Engine<S> {
    /// Figures of this moment.
    pub(crate) fn stats(&self) -> Stats {
        if self.shared.forked() {
            return Stats::default();
        }
        self.stats_at_ease().unwrap_or_else(|| self.stats_under_locks())
    }

    /// Without a lock of a producer or a consumer; `None` when they did not keep still.
    fn stats_at_ease(&self) -> Option<Stats> {
        let shared = &*self.shared;
        // In the middle of filling a message in place the thread may not wait for others, who may wait for it: it makes do with
        // figures that need not belong together.
        let is_filling = shared.is_filling();
        let default = self.existing_default();
        // With a ledger the count of messages does not follow from the place alone.
        let state = match default {
            Some(standing) if standing.has_ledger.load(Ordering::Acquire) => {
                let state = standing.state.0.try_lock();
                if state.is_none() && !is_filling {
                    return None;
                }
                state
            }
            _ => None,
        };
        let places = shared.places.read();
        let durable = shared.durable.0.lock();
        let list = shared.segments.list();
        let cell = default.map(|standing| &*standing.cell);
        let mut reading = Reading::take(shared, &places, cell);
        for attempt in 0.. {
            let again = Reading::take(shared, &places, cell);
            let still = !again.changing && again == reading;
            reading = again;
            if still || (is_filling && attempt > TRIES) {
                break;
            }
            if attempt > TRIES {
                return None;
            }
            std::hint::spin_loop();
        }
        let done = state.as_ref().map_or(0, |state| state.done_beyond(shared));
        let consumers = places.len() as u64;
        Some(self.figures(&reading, consumers, done, durable.spot.seq, &list))
    }

    #[cold]
    fn stats_under_locks(&self) -> Stats {
        let shared = &*self.shared;
        // Whoever takes the locks of several consumers, or a place and a consumer's lock, holds this one.
        let _registry = self.registry.lock();
        let standings: Vec<_> = self.consumers.lock().values().cloned().collect();
        let states: Vec<_> = standings.iter().map(|standing| (&**standing, standing.state.0.lock())).collect();
        let _writer = shared.writer.0.lock();
        let places = shared.places.read();
        let durable = shared.durable.0.lock();
        let list = shared.segments.list();
        let default = self.existing_default();
        let reading = Reading::take(shared, &places, default.map(|standing| &*standing.cell));
        let own =
            states.iter().find(|(standing, _)| default.is_some_and(|default| std::ptr::eq(&**default, *standing)));
        let done = own.map_or(0, |(_, state)| state.done_beyond(shared));
        self.figures(&reading, places.len() as u64, done, durable.spot.seq, &list)
    }

    fn figures(
        &self,
        reading: &Reading,
        consumers: u64,
        done: u64,
        durable_seq: u64,
        list: &crate::segment::List<S::File>,
    ) -> Stats {
        let shared = &*self.shared;
        let totals = &shared.totals;
        let end = reading.visible;
        // Who drops a segment takes it off the list first: the list, whose lock is held, is what the bytes are counted by.
        let listed = list.live.front().map_or(0, |row| row.header.first_seq.min(end.seq));
        let oldest_seq = reading.oldest_seq.max(listed);
        let from = reading.place.map_or(0, |place| place.seq).max(oldest_seq);
        let held = end.seq.saturating_sub(from);
        let held = if held == 0 { 0 } else { held.saturating_sub(shared.known_missing(from, end.seq)) };
        let mut stats = Stats {
            messages: held.saturating_sub(done),
            next_seq: reading.committed.seq,
            oldest_seq,
            durable_seq,
            enqueued: reading.committed.seq - shared.first_seq_of_run,
            dequeued: reading.taken,
            consumers,
            gaps: reading.gaps,
            segments: list.live.len() as u64,
            spare_segments: list.spares() as u64,
            disk_bytes: list.disk_bytes() + shared.index.len(),
            flushes: totals.flushes.load(Ordering::Relaxed),
            flush_time: Duration::from_nanos(totals.flush_nanos.load(Ordering::Relaxed)),
            last_flush_error: shared.index.poison.reason(),
            ..Stats::default()
        };
        for (index, cause) in GapCause::ALL.into_iter().enumerate() {
            stats.set_lost(cause, reading.lost[index]);
        }
        (stats.mapped_arenas, stats.mapped_bytes) = shared.pool.usage();
        if stats.messages > 0 {
            let oldest = list.live.front().map_or(end.position, |row| row.header.base);
            let from = reading.place.map_or(oldest, |place| place.position.max(oldest));
            stats.bytes = end.position.saturating_sub(from);
            let made = list.at(from).map_or(0, |row| row.header.created);
            // A clock that was set back makes nothing older than it is.
            stats.oldest_age = Some(Duration::from_millis(shared.storage.now().saturating_sub(made)));
        }
        stats
    }
}
