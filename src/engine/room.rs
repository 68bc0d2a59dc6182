//! Gives space back: of messages that all consumers have read, that are too old, or that are
//! dropped for new ones.

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

/// What a write without room has tried since it last found some.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Before the disk was asked, a thread still had removed segments open: the disk has no space
    /// back from those.
    were_open: bool,
    /// The threads that had some open were waited for.
    has_waited: bool,
}

/// What a search for room has found for a write that was refused.
#[derive(Debug)]
pub(super) enum SearchOutcome {
    /// There may be room: the write tries again.
    Room,
    /// Other threads have removed segments open: there may be room after
    /// [`wait_for_dropped`](Engine::wait_for_dropped), called with no lock held.
    Held,
    Nothing,
}

impl<S: Storage> Engine<S> {
    /// Called before a record is tried, when the last one was refused. The caller holds the
    /// producers' lock.
    #[cold]
    pub(super) fn begin_search(
        &self,
        writer: &mut Writer<S::File>,
        search: &mut Search,
    ) -> Result<()> {
        // Segments that all consumers have read go first. Else a record that just fits behind them
        // would keep their space from the next one.
        self.find_room(writer)?;
        // Asked before the disk is: a segment may be closed between the refusal and this question,
        // and then there is room.
        search.were_open = self.core.segments.has_removed_open();
        Ok(())
    }

    /// Called after a record was refused with `error`: gives back segments that no consumer needs,
    /// and with [`OnFull::DropOldest`] the oldest one. `passed` is `Segments::passed` of before the
    /// try. The caller holds the producers' lock.
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
        // `drop_oldest` finds nothing when the consumers have meanwhile drained what it would drop:
        // then there is room.
        let drops = matches!(self.options.on_full, OnFull::DropOldest);
        if drops && (self.drop_oldest(writer)? || core.regain(passed)?) {
            search.has_waited = false;
            return Ok(SearchOutcome::Room);
        }
        Ok(SearchOutcome::Nothing)
    }

    /// Drops the messages of the oldest segment, or all when there is only one. False when no
    /// message is held. The caller holds the producers' lock.
    #[cold]
    fn drop_oldest(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        let unread = self.core.unread();
        match self.core.segments.drop_oldest(&self.core.context()) {
            Some(first_held) => self.gave_up(first_held, unread).map(|()| true),
            None => {
                let end = writer.retained_end();
                if !self.core.drain_tail(writer, GapCause::Dropped, end) {
                    return Ok(false);
                }
                self.gave_up(end, unread).map(|()| true)
            }
        }
    }

    /// The messages before `first_held` are gone, of which those before `unread` had been read:
    /// closes and reclaims their segments.
    fn gave_up(&self, first_held: u64, unread: u64) -> Result<()> {
        self.core.oldest_seq.fetch_max(first_held, Ordering::AcqRel);
        self.core.note_evicted(unread);
        self.consumers.release_if_drained(&self.core);
        self.core.have_reclaimed()
    }

    /// Drops messages that are too old. Waits for no consumer: a busy one is asked again later.
    pub(crate) fn expire(&self) {
        self.core.expire_old(&|core| self.consumers.release_if_drained(core));
    }

    /// As [`release_if_drained`](Consumers::release_if_drained), but waits for consumers that are
    /// reading and for a flush under way: these have removed segments open. The caller holds no
    /// lock.
    #[cold]
    pub(super) fn wait_for_dropped(&self) {
        let consumers: Vec<_> = self.consumers.by_name.lock().values().cloned().collect();
        for consumer in consumers {
            consumer.wait_and_release_if_drained(&self.core);
        }
        self.core.wait_for_leader();
        self.core.pool.unmap_unwanted();
    }

    /// Gives back at once what is too old, or what all consumers have read; true when there was
    /// something. The caller holds the producers' lock.
    ///
    /// Elsewhere the tail's segment stays even when all of it is read, unless it is long and the
    /// queue is idle. Here, where there is no other room, it is drained too: it is used again from
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

    /// Called after `consumer` left a segment behind, wanted a window or a descriptor, or met
    /// dead letters: gives segments back, has other consumers release theirs, and wakes the
    /// workers.
    #[cold]
    pub(super) fn crossed(&self, consumer: &ConsumerState<S>) {
        self.give_space_back();
        self.arm(consumer);
        if self.core.window_wanted.swap(false, Ordering::Relaxed) {
            // Under a tight cap, the window of an idle consumer must not make the others copy.
            for other in self.consumers.by_name.lock().values() {
                if !std::ptr::eq(&**other, consumer) {
                    other.release_if_idle();
                }
            }
            consumer.reconsider_window();
        }
        if self.core.many_open.swap(false, Ordering::Relaxed) {
            // Descriptors stay few, even with every consumer in a segment of its own.
            for other in self.consumers.by_name.lock().values() {
                if !std::ptr::eq(&**other, consumer) {
                    other.release();
                }
            }
        }
    }

    /// Drains the segments that all consumers have passed, and has the storage worker reclaim them.
    #[cold]
    pub(crate) fn give_space_back(&self) {
        if self.core.drain_passed() {
            self.reclaim_soon();
        }
    }

    /// Has the storage worker reclaim drained segments; without one, reclaims them here.
    pub(crate) fn reclaim_soon(&self) {
        if !self.core.storage_worker.request(|wanted| wanted.reclaim = true) {
            // A failed sync poisons the queue: the next call that writes returns the error.
            let _ = self.core.reclaim_and_wake();
        }
    }
}

impl<S: Storage> Consumers<S> {
    /// How the storage worker has them release their segments.
    pub(crate) fn release(self: &Arc<Self>) -> Release<S> {
        let consumers = Arc::clone(self);
        Arc::new(move |core| consumers.release_if_drained(core))
    }

    /// Has consumers that are not busy release segments that are no longer part of the queue.
    fn release_if_drained(&self, core: &Core<S>) {
        for consumer in self.by_name.lock().values() {
            consumer.release_if_drained(core);
        }
    }
}
