//! Space is given back: what everybody has read, what is too old, and what is dropped for new
//! messages.

use std::sync::atomic::Ordering;

use super::Engine;
use super::consumers::Consumers;
use crate::commit::Core;
use crate::consume::standing::Standing;
use crate::error::{Error, GapCause, Result};
use crate::options::OnFull;
use crate::storage::Storage;
use crate::write::Writer;

/// What a write that finds no room has tried since there last was some.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Somebody had removed segments open before the disk was asked: it had no space back from
    /// those.
    were_open: bool,
    /// Whoever had some open was waited for.
    has_waited: bool,
}

/// What there is for a write that was refused.
#[derive(Debug)]
pub(super) enum Found {
    /// There may be room now.
    Room,
    /// There may be when others have let go of what is removed, which is
    /// [waited for](Engine::wait_for_dropped) with no lock held.
    Held,
    Nothing,
}

impl<S: Storage> Engine<S> {
    /// Before a record is tried when the last one was refused. The producers' lock is held.
    #[cold]
    pub(super) fn begin_search(
        &self,
        writer: &mut Writer<S::File>,
        search: &mut Search,
    ) -> Result<()> {
        // What would still fit behind all that was read would keep the space of that from what
        // comes next.
        self.find_room(writer)?;
        // Asked before the disk is: what has no room now may have it as soon as it was refused.
        search.were_open = self.core.segments.has_removed_open();
        Ok(())
    }

    /// After a record was refused with `error`, which was tried when segments had been let go of
    /// `passed` times: gives back what nobody needs, and with [`OnFull::DropOldest`] the oldest.
    /// The producers' lock is held.
    #[cold]
    pub(super) fn look_for_room(
        &self,
        writer: &mut Writer<S::File>,
        search: &mut Search,
        error: &Error,
        passed: u64,
    ) -> Result<Found> {
        let core = &*self.core;
        if self.find_room(writer)? || core.regain(passed)? || core.pool.unmap_unwanted() {
            search.has_waited = false;
            return Ok(Found::Room);
        }
        let are_open = || search.were_open || core.segments.has_removed_open();
        if !search.has_waited && !error.is_of_max_bytes() && are_open() {
            search.has_waited = true;
            return Ok(Found::Held);
        }
        // The consumers may have drained what was to be dropped since there was no room: then there
        // is some.
        let drops = matches!(self.options.on_full, OnFull::DropOldest);
        if drops && (self.drop_oldest(writer)? || core.regain(passed)?) {
            search.has_waited = false;
            return Ok(Found::Room);
        }
        Ok(Found::Nothing)
    }

    /// Gives up the oldest segment, or the only one with all that it holds; false when nothing is
    /// held. The producers' lock is held.
    #[cold]
    fn drop_oldest(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        match self.core.segments.drop_oldest(&self.core.context()) {
            Some(first_held) => self.gave_up(first_held).map(|()| true),
            None => {
                let end = writer.held_end();
                if !self.core.drain_tail(writer, GapCause::Dropped, end) {
                    return Ok(false);
                }
                self.gave_up(end).map(|()| true)
            }
        }
    }

    /// What lies before that number is held no longer: its space goes to whoever needs it.
    fn gave_up(&self, first_held: u64) -> Result<()> {
        self.core.oldest_seq.fetch_max(first_held, Ordering::AcqRel);
        self.core.note_given_up();
        self.consumers.let_go_if_drained(&self.core);
        self.core.settle()
    }

    /// Gives up what is too old, as far as nobody has to be waited for.
    pub(crate) fn expire(&self) {
        self.consumers.expire(&self.core);
    }

    /// As [`let_go_if_drained`](Consumers::let_go_if_drained), and waits for those that are within
    /// a read, and for a flush that is under way: they have segments open that are removed. No lock
    /// is held.
    #[cold]
    pub(super) fn wait_for_dropped(&self) {
        let standings: Vec<_> = self.consumers.by_name.lock().values().cloned().collect();
        for standing in standings {
            standing.wait_and_let_go_if_drained(&self.core);
        }
        self.core.wait_for_leader();
        self.core.pool.unmap_unwanted();
    }

    /// Gives back at once what is too old, or what everybody has read; true when there was
    /// something. The producers' lock is held.
    ///
    /// The only segment stays as the tail although everybody has read it: where there is no other
    /// room it is given back too, to be used again from its beginning, or for shorter ones.
    #[cold]
    fn find_room(&self, writer: &mut Writer<S::File>) -> Result<bool> {
        let core = &*self.core;
        if core.expire_for(writer) {
            self.consumers.let_go_if_drained(core);
            core.settle()?;
            return Ok(true);
        }
        // Never waits for it: a seek holds it and wants the producers' lock.
        let Some(giving_back) = core.places.giving_back.try_read() else {
            return Ok(false);
        };
        let Some(lowest) = core.places.lowest() else {
            return Ok(false);
        };
        let drained = core.segments.drain(lowest);
        let is_read = lowest >= writer.committed().position;
        let drained_tail = is_read && core.drain_tail(writer, GapCause::Dropped, 0);
        drop(giving_back);
        if !drained && !drained_tail {
            return Ok(false);
        }
        core.note_oldest();
        self.gave_up(if drained_tail { writer.committed().seq } else { 0 }).map(|()| true)
    }

    /// What follows when a consumer has left a segment behind, or had to do without a window.
    #[cold]
    pub(super) fn crossed(&self, standing: &Standing<S>) {
        self.give_space_back();
        if self.core.window_wanted.swap(false, Ordering::Relaxed) {
            // Under a tight cap, one that only stands there must not make the others copy.
            for other in self.consumers.by_name.lock().values() {
                if !std::ptr::eq(&**other, standing) {
                    other.let_go_if_idle();
                }
            }
            standing.reconsider_window();
        }
        if self.core.many_open.swap(false, Ordering::Relaxed) {
            // Descriptors stay few, however many consumers stand in segments of their own.
            for other in self.consumers.by_name.lock().values() {
                if !std::ptr::eq(&**other, standing) {
                    other.let_go();
                }
            }
        }
    }

    /// Hands segments that everybody has passed to the keeper.
    #[cold]
    pub(crate) fn give_space_back(&self) {
        if self.core.reclaim() {
            self.settle_soon();
        }
    }

    pub(crate) fn settle_soon(&self) {
        if !self.core.bell.ring(|wishes| wishes.settle = true) {
            // No thread: here and now. A failed sync poisons the queue: the next call that writes
            // is told.
            let _ = self.core.settle();
            self.core.wake_writers();
        }
    }
}

impl<S: Storage> Consumers<S> {
    /// Consumers that stand in segments which are no longer part of the queue let go of them.
    fn let_go_if_drained(&self, core: &Core<S>) {
        for standing in self.by_name.lock().values() {
            standing.let_go_if_drained(core);
        }
    }

    /// As [`Engine::expire`]. Who was busy the last time, and stands in what was given up then, is
    /// asked once more.
    pub(super) fn expire(&self, core: &Core<S>) {
        if core.ages.is_some() && (core.expire() || core.segments.has_removed_open()) {
            self.let_go_if_drained(core);
            // A failed sync poisons the queue: the next call that writes is told.
            let _ = core.settle();
            core.wake_writers();
        }
    }
}
