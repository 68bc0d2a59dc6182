//! The figures of [`Engine::stats`], read one by one while other threads go on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::GapCause;
use crate::stats::Stats;
use crate::storage::Storage;

impl<S: Storage> Engine<S> {
    /// Each figure is right at a moment of its own. `dequeued` is read before `enqueued`: a message
    /// counted as taken is counted as enqueued too.
    pub(crate) fn stats(&self) -> Stats {
        let core = &*self.core;
        if core.forked() {
            return Stats::default();
        }
        let default = self.existing_default();
        // With a ledger, the number of messages does not follow from the place alone.
        let progress = default
            .filter(|standing| standing.has_ledger.load(Ordering::Acquire))
            .and_then(|standing| {
                // A thread that fills a message in place must not wait for a reader: the reader may
                // wait for it.
                if core.is_filling() {
                    standing.progress.try_lock()
                } else {
                    Some(standing.progress.lock())
                }
            });
        let done = progress.as_ref().map_or(0, |progress| progress.done_beyond(core));
        let (consumers, dequeued) = core.places.count();
        let place = default.map(|standing| standing.cell.spot());
        let durable_seq = core.durable.lock().spot.seq;
        let list = core.segments.list();
        let end = core.visible.spot();
        let next_seq = core.committed.spot().seq;
        // A segment that is dropped leaves the list first, and only then is `oldest_seq` moved. The
        // bytes are counted by the list, whose lock is held here: so is the oldest number.
        let listed = list.live.front().map_or(0, |row| row.header.first_seq.min(end.seq));
        let oldest_seq = core.oldest_seq.load(Ordering::Acquire).max(listed).min(next_seq);
        let from = place.map_or(0, |place| place.seq).max(oldest_seq);
        let held = end.seq.saturating_sub(from);
        let held =
            if held == 0 { 0 } else { held.saturating_sub(core.gaps.known_missing(from, end.seq)) };
        let mut stats = Stats {
            messages: held.saturating_sub(done),
            next_seq,
            oldest_seq,
            durable_seq,
            enqueued: next_seq.saturating_sub(core.found_tail.seq),
            dequeued,
            consumers,
            gaps: core.gaps.told.load(Ordering::Acquire),
            segments: list.live.len() as u64,
            spare_segments: list.spares() as u64,
            disk_bytes: list.disk_bytes() + core.index.len(),
            flushes: core.flush_totals.count.load(Ordering::Relaxed),
            flush_time: Duration::from_nanos(core.flush_totals.nanos.load(Ordering::Relaxed)),
            last_flush_error: core.index.poison.reason(),
            ..Stats::default()
        };
        for (index, cause) in GapCause::ALL.into_iter().enumerate() {
            stats.set_lost(cause, core.gaps.lost[index].load(Ordering::Acquire));
        }
        stats.mapped_bytes = core.pool.mapped_bytes();
        stats.mapped_arenas = stats.mapped_bytes.div_ceil(self.options.arena_size);
        if stats.messages > 0 {
            let oldest = list.live.front().map_or(end.position, |row| row.header.base);
            let from = place.map_or(oldest, |place| place.position.max(oldest));
            stats.bytes = end.position.saturating_sub(from);
            let made = list.at(from).map_or(0, |row| row.header.created);
            // After the clock was set back the age is 0, not an overflow.
            stats.oldest_age = Some(Duration::from_millis(core.storage.now().saturating_sub(made)));
        }
        stats
    }
}
