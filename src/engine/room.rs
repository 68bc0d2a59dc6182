//! Frees space: of messages that all consumers have read, that are too old, or that are dropped for
//! new ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::consumer_table::Consumers;
use crate::commit::Core;
use crate::commit::storage_worker::Release;
use crate::consume::consumer_state::ConsumerState;
use crate::error::{Error, GapCause, Result};
use crate::options::OnFull;
use crate::segment::Reclaims;
use crate::storage::Storage;
use crate::write::Writer;

/// What a write without room has tried since it last found room.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Whether a thread still had removed segments open before the write asked the disk for space:
    /// their space was not free yet.
    were_open: bool,
    /// Whether the write has already waited for the threads that had removed segments open.
    has_waited: bool,
}

/// The result of a search for room for a refused write.
#[derive(Debug)]
pub(super) enum SearchOutcome {
    /// There may be room: the write should try again.
    Room,
    /// Other threads have removed segments open: there may be room after
    /// [`wait_for_dropped`](Engine::wait_for_dropped), called with no lock held.
    Held,
    Nothing,
}

/// Whether removing every file would make too little room: another program takes the space that
/// `min_free_bytes` keeps free.
fn is_in_vain(refused: &Error) -> bool {
    let Error::Full { used, limit, needed, free: Some(free), .. } = refused else {
        return false;
    };
    free.saturating_add(*used) < limit.saturating_add(*needed)
}

impl<S: Storage> Engine<S> {
    /// Prepares to write a record after the last one was refused: frees space that no consumer
    /// needs. The caller holds the producers' lock.
    #[cold]
    pub(super) fn begin_search(
        &self,
        writer: &mut Writer<S::File>,
        search: &mut Search,
    ) -> Result<()> {
        // Drain segments that all consumers have read first. Otherwise a record that just fits
        // behind them would keep their space from the next one.
        self.find_room(writer)?;
        // Check this before asking the disk: a reader may close a segment between a refusal and
        // this check, and then there is room.
        search.were_open = self.core.segments.has_removed_open();
        Ok(())
    }

    /// Looks for room after a record was refused with `error`: reclaims segments that no consumer
    /// needs, and with [`OnFull::DropOldest`] the oldest one. `passed` is the value of
    /// `Segments::passed` before the attempt. The caller holds the producers' lock.
    #[cold]
    pub(super) fn look_for_room(
        &self,
        writer: &mut Writer<S::File>,
        search: &mut Search,
        error: &Error,
        passed: u64,
    ) -> Result<SearchOutcome> {
        let core = &*self.core;
        if planted!(DeliveriesByProducers) {
            self.consumers.look_at_deliveries(core);
        }
        if self.find_room(writer)? || core.regain(passed)? || core.pool.unmap_unwanted() {
            search.has_waited = false;
            return Ok(SearchOutcome::Room);
        }
        let are_open = || search.were_open || core.segments.has_removed_open();
        if !search.has_waited && !error.is_of_max_bytes() && are_open() {
            search.has_waited = true;
            return Ok(SearchOutcome::Held);
        }
        // `drop_oldest` finds nothing when consumers have meanwhile drained the segments that it
        // would drop: then `regain` finds room.
        let drops = matches!(self.options.on_full, OnFull::DropOldest)
            && (!is_in_vain(error) || core.segments.list().is_oldest_enough_for(writer.need));
        if drops && (self.drop_oldest(writer)? || core.regain(passed)?) {
            search.has_waited = false;
            return Ok(SearchOutcome::Room);
        }
        Ok(SearchOutcome::Nothing)
    }

    /// Drops the messages of the oldest segment, or all messages when there is only one segment.
    /// Returns false when the queue has no message. The caller holds the producers' lock.
    #[cold]
    fn drop_oldest(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        let unread = self.core.unread();
        match self.core.segments.drop_oldest(&self.core.context()) {
            Some(first_held) => self.gave_up(first_held, unread).map(|()| true),
            None => {
                let end = writer.messages_end(&self.core);
                if !self.core.drain_tail(writer, GapCause::Dropped, end) {
                    return Ok(false);
                }
                self.gave_up(end, unread).map(|()| true)
            }
        }
    }

    /// Notes that the messages before `first_held` are evicted, of which every consumer had read
    /// those before `unread`. Makes consumers close their segments, and reclaims these.
    fn gave_up(&self, first_held: u64, unread: u64) -> Result<()> {
        self.core.oldest_seq.fetch_max(first_held, Ordering::AcqRel);
        self.core.note_evicted(unread);
        self.consumers.release_if_drained(&self.core);
        self.core.have_reclaimed()
    }

    /// Evicts messages that are too old. Waits for no consumer: a busy one closes its segment at a
    /// later call.
    pub(crate) fn expire(&self) {
        self.core.expire_old(&|core| self.consumers.release_if_drained(core));
    }

    /// Makes all consumers close drained segments, and waits for consumers that are reading and for
    /// a current flush, since these have removed segments open. The caller holds no lock.
    #[cold]
    pub(super) fn wait_for_dropped(&self) {
        for consumer in self.consumers.all() {
            consumer.wait_and_release_if_drained(&self.core);
        }
        self.core.wait_for_leader();
        self.core.pool.unmap_unwanted();
    }

    /// Drains and reclaims segments that are too old, or that all consumers have read. Returns
    /// whether there were any. The caller holds the producers' lock.
    ///
    /// Elsewhere the tail's segment stays even when all of it is read, unless it is long and the
    /// queue is idle. Here, without other room, this drains it too: the queue then reuses it from
    /// its beginning, or makes room for shorter ones.
    #[cold]
    fn find_room(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        let core = &*self.core;
        if core.expire_for(writer) {
            self.consumers.release_if_drained(core);
            core.have_reclaimed()?;
            return Ok(true);
        }
        if !core.drain_read(writer) {
            return Ok(false);
        }
        self.gave_up(0, 0).map(|()| true)
    }

    /// Called after `consumer` passed the end of a segment, lacked a window or a descriptor, or met
    /// dead letters: drains segments, makes other consumers release theirs, and wakes the workers.
    #[cold]
    pub(super) fn crossed(&self, consumer: &ConsumerState<S>) {
        self.give_space_back();
        self.arm(consumer);
        let each_other = |act: fn(&ConsumerState<S>)| {
            let consumers = self.consumers.by_name.lock();
            let others = consumers.values().filter(|other| !std::ptr::eq(&***other, consumer));
            others.for_each(|other| act(other));
        };
        if self.core.window_wanted.swap(false, Ordering::Relaxed) {
            // Under a tight cap, an idle consumer's window must not force the others to copy.
            each_other(ConsumerState::release_if_idle);
            consumer.reconsider_window();
        }
        if self.core.many_open.swap(false, Ordering::Relaxed) {
            // This keeps descriptors few, even with every consumer in another segment.
            each_other(ConsumerState::release);
        }
    }

    /// Drains the segments that all consumers have passed, and asks the storage worker to reclaim
    /// them, if it is time.
    #[cold]
    pub(crate) fn give_space_back(&self) {
        let core = &*self.core;
        if core.drain_passed() && core.segments.is_reclaim_due(&core.context()) {
            self.reclaim_soon();
        }
    }

    /// Asks the storage worker to reclaim drained segments; without a storage worker, reclaims them
    /// in this thread.
    pub(crate) fn reclaim_soon(&self) {
        if !self.core.storage_worker.request(|wanted| wanted.reclaim = true) {
            // A failed sync poisons the queue: the next call that writes returns the error.
            let _ = self.core.reclaim_and_wake();
        }
    }
}

impl<S: Storage> Consumers<S> {
    /// Returns the function by which the storage worker makes consumers release their segments.
    pub(crate) fn release(self: &Arc<Self>) -> Release<S> {
        let consumers = Arc::clone(self);
        Arc::new(move |core| consumers.release_if_drained(core))
    }

    /// Makes consumers that are not busy release drained segments.
    fn release_if_drained(&self, core: &Core<S>) {
        for consumer in self.by_name.lock().values() {
            consumer.release_if_drained(core);
        }
    }
}
