//! Enqueues one message, in one piece or in several, or a batch.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::room::{Search, SearchOutcome};
use super::waited_for::may_wait;
use super::{Engine, unboxed};
use crate::commit::Core;
use crate::error::{Error, HeldBy, Result};
use crate::events;
use crate::format::{Batch, ORIGIN_LEN, Origin, Spot};
use crate::memory::Payload;
use crate::options::OnFull;
use crate::storage::Storage;
use crate::threads::{MutexGuard, current, now, park_timeout};
use crate::write::{Writer, check_fits};

/// How long a dead letter waits for the producers' lock; after that it is tried again later.
const DEAD_LETTER_WAITS: Duration = Duration::from_millis(100);

/// How long a write for another process waits for room before it asks whether to go on.
const AWHILE: Duration = Duration::from_millis(250);

/// What a write may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// Locks, and room.
    Room,
    /// Locks, and a while for room ([`AWHILE`]).
    Awhile,
    /// Locks, but not for room.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures do not wait"))]
    Locks,
    /// The producers' lock, for a moment only: its holder may do a long write, and the caller still
    /// has to end leases of other consumers.
    Moment,
}

/// What puts messages in, under the producers' lock. Not generic: each kind of write would have the
/// code of [`Engine::write_and_commit`], 5 KB, for itself.
type Push<'a, S> = &'a mut dyn FnMut(&mut Writer<<S as Storage>::File>, &Core<S>) -> Result<()>;

/// Returns whether the write gave up because another thread held the producers' lock for too long.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
}

impl<S: Storage> Engine<S> {
    /// Takes the producers' lock. Fails when the queue was closed while this thread waited.
    #[inline(always)]
    fn writer(&self) -> Result<MutexGuard<'_, Writer<S::File>>> {
        self.core.check_not_forked()?;
        #[cfg(test)]
        self.came.fetch_add(1, Ordering::SeqCst);
        let writer = self.core.writer.lock();
        if planted!(WriterAfterClose) {
            return Ok(writer);
        }
        self.core.check_still_writable()?;
        Ok(writer)
    }

    /// Takes the producers' lock, but waits at most [`DEAD_LETTER_WAITS`]; then fails with an error
    /// that [is busy](is_busy).
    fn writer_in_a_moment(&self) -> Result<MutexGuard<'_, Writer<S::File>>> {
        self.core.check_not_forked()?;
        let (began, mut has_parked) = (now(), false);
        let mut writer = self.core.writer.try_lock();
        while writer.is_none() && now().saturating_duration_since(began) < DEAD_LETTER_WAITS {
            park_timeout(Duration::from_millis(1));
            has_parked = true;
            writer = self.core.writer.try_lock();
        }
        if has_parked {
            // An unpark that ended a pause here may have been meant for the caller's own wait.
            current().unpark();
        }
        self.core.check_still_writable()?;
        let busy = || io::ErrorKind::WouldBlock.into();
        writer.ok_or_else(|| Error::io("lock for writing", self.core.storage.path(), busy()))
    }

    /// Releases the producers' lock. Then returns how many readers wait, for the order that
    /// [`count_waiter`](Self::count_waiter) needs.
    #[inline(always)]
    fn unlock(&self, writer: MutexGuard<'_, Writer<S::File>>) -> usize {
        drop(writer);
        self.core.message_waiters.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn enqueue(&self, payload: &[u8]) -> Result<u64> {
        self.enqueue_payload(payload).map_err(unboxed)
    }

    /// Enqueues one message that lies in several pieces. Off the fast path it first joins them in a
    /// buffer.
    pub(crate) fn enqueue_parts(&self, parts: &[IoSlice<'_>]) -> Result<u64> {
        self.enqueue_payload(parts).map_err(unboxed)
    }

    /// Enqueues one message. The error is boxed, so that the result stays in registers.
    #[inline(never)]
    fn enqueue_payload<P: Payload + ?Sized>(&self, payload: &P) -> Result<u64, Box<Error>> {
        let _events = events::at_end();
        let core = &*self.core;
        let mut writer = self.writer()?;
        if writer.push_quickly(payload) {
            let spot = match writer.commit(core) {
                Ok(spot) => spot,
                Err(error) => return Ok(self.take_back(writer, error, payload)?),
            };
            let waiters = self.unlock(writer);
            if waiters != 0 || self.options.flush_every_ops.is_some() {
                self.written(spot, 1, waiters)?;
            }
            return Ok(spot.seq - 1);
        }
        if let Some(bytes) = payload.whole() {
            return Ok(self.enqueue_slowly(writer, bytes)?);
        }
        // Release the lock first, so that no producer waits for this copy.
        drop(writer);
        Ok(self.enqueue(&payload.joined())?)
    }

    /// Takes back a message whose commit failed with `error`, and tries again if the queue was
    /// full.
    #[cold]
    #[inline(never)]
    fn take_back<P: Payload + ?Sized>(
        &self,
        mut writer: MutexGuard<'_, Writer<S::File>>,
        error: Error,
        payload: &P,
    ) -> Result<u64> {
        writer.roll_back(&self.core);
        drop(writer);
        match payload.whole() {
            Some(bytes) => self.enqueue_again(error, bytes),
            None => self.enqueue_again(error, &payload.joined()),
        }
    }

    #[inline(never)]
    fn enqueue_slowly(
        &self,
        mut writer: MutexGuard<'_, Writer<S::File>>,
        payload: &[u8],
    ) -> Result<u64> {
        if writer.was_refused() {
            drop(writer);
            return self.enqueue_looking(payload);
        }
        let seq = self.core.committed().spot().seq;
        let pushed = writer.push(&self.core, payload, Batch::default());
        let end = match pushed.and_then(|()| writer.commit(&self.core)) {
            Ok(spot) => spot,
            Err(error) => {
                writer.roll_back(&self.core);
                drop(writer);
                return self.enqueue_again(error, payload);
            }
        };
        let waiters = self.unlock(writer);
        if waiters != 0 || self.options.flush_every_ops.is_some() {
            self.written(end, 1, waiters)?;
        }
        Ok(seq)
    }

    /// Retries an enqueue that failed with `error` and was rolled back, if the queue was full.
    #[cold]
    fn enqueue_again(&self, error: Error, payload: &[u8]) -> Result<u64> {
        if !error.is_full() {
            return Err(error.of_refusal());
        }
        self.enqueue_looking(payload)
    }

    /// Enqueues a message that found no room, after looking for some.
    #[cold]
    fn enqueue_looking(&self, payload: &[u8]) -> Result<u64> {
        let push = &mut |writer: &mut Writer<S::File>, core: &Core<S>| {
            writer.push(core, payload, Batch::default())
        };
        Ok(self.write(1, push)?.start)
    }

    /// Calls `push` to write `count` messages under the producers' lock, and commits them. When
    /// there is no room, looks for some, and then follows `on_full`. Returns the messages' sequence
    /// numbers.
    pub(crate) fn write(&self, count: u64, push: Push<'_, S>) -> Result<Range<u64>> {
        let _events = events::at_end();
        let committed = self.write_and_commit(WaitsFor::Room, push);
        let (first, end, waiters) = committed.map_err(|error| self.refused(error))?;
        self.written(end, count, waiters)?;
        Ok(first..end.seq)
    }

    /// As [`write`](Self::write), for a caller that may go away meanwhile: while it waits for room
    /// it asks from time to time, and gives up when the caller is no longer there.
    pub(crate) fn write_while(
        &self,
        is_there: impl Fn() -> bool,
        count: u64,
        push: Push<'_, S>,
    ) -> Result<Range<u64>> {
        let _events = events::at_end();
        let began = now();
        let (first, end, waiters) = loop {
            let error = match self.write_and_commit(WaitsFor::Awhile, push) {
                Err(error) if error.is_full() => error,
                written => break written.map_err(|error| self.refused(error))?,
            };
            let OnFull::Wait(limit) = self.options.on_full else {
                return Err(self.refused(error));
            };
            let waited = now().saturating_duration_since(began);
            if limit.is_some_and(|limit| waited >= limit) || !is_there() {
                return Err(self.refused(error));
            }
        };
        self.written(end, count, waiters)?;
        Ok(first..end.seq)
    }

    /// As [`enqueue`](Self::enqueue), for a caller that [may go away](Self::write_while).
    pub(crate) fn enqueue_while(&self, is_there: impl Fn() -> bool, payload: &[u8]) -> Result<u64> {
        if !matches!(self.options.on_full, OnFull::Wait(_)) {
            return self.enqueue(payload);
        }
        // A batch of one is stored as a single message is.
        Ok(self.enqueue_batch_while(is_there, &[payload])?.start)
    }

    /// As [`enqueue_batch`](Self::enqueue_batch), for a caller that [may go
    /// away](Self::write_while).
    pub(crate) fn enqueue_batch_while<M: AsRef<[u8]>>(
        &self,
        is_there: impl Fn() -> bool,
        messages: &[M],
    ) -> Result<Range<u64>> {
        let count = messages.len() as u64;
        self.write_while(is_there, count, &mut |writer, core| writer.push_batch(core, messages))
    }

    /// Enqueues a message without waiting for room. Returns its sequence number, and if a flush is
    /// due, how many operations that flush [covers](Self::note_flushed). The caller passes its
    /// final error to [`refused`](Self::refused).
    #[cfg(any(test, feature = "async"))]
    pub(crate) fn offer(&self, payload: &[u8]) -> Result<(u64, Option<u64>)> {
        let _events = events::at_end();
        let push = &mut |writer: &mut Writer<S::File>, core: &Core<S>| {
            writer.push(core, payload, Batch::default())
        };
        let (seq, _, waiters) = self.write_and_commit(WaitsFor::Locks, push)?;
        self.core.wake_owed();
        if waiters != 0 && !self.core.durable_only {
            self.core.wake_readers(1);
        }
        let due = match self.options.flush_every_ops {
            Some(1) => Some(0),
            Some(every) => self.operations.count(every, 1),
            None => None,
        };
        Ok((seq, due))
    }

    /// Notes that the flush that was due is done, and covers that many operations.
    #[cfg(any(test, feature = "async"))]
    pub(crate) fn note_flushed(&self, covered: u64) {
        self.operations.note_flushed(covered);
    }

    /// Enqueues a dead letter from `origin`, in another queue. The caller flushes after it. Never
    /// waits for room, whatever `on_full` says, and not long for a lock. The first dead letter of a
    /// run syncs the index, under the producers' lock.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::MessageTooLarge`] also for a message that the queue would take
    /// without an origin; [`Error::Io`] while another thread does a long write; the errors of any
    /// write.
    pub(crate) fn enqueue_dead_letter(&self, payload: &[u8], origin: &Origin) -> Result<u64> {
        let _events = events::at_end();
        let (core, len) = (&*self.core, payload.len() as u64);
        core.check_writable()?;
        check_fits(core, len, ORIGIN_LEN as u64)?;
        let bytes = origin.before(payload);
        let push = &mut |writer: &mut Writer<S::File>, core: &Core<S>| {
            writer.push_dead_letter(core, &bytes)
        };
        let committed = self.write_and_commit(WaitsFor::Moment, push);
        let (seq, _, waiters) = committed.map_err(|error| self.refused(error))?;
        // Do not wake here: a waker may close the queue from which dead letters are being carried.
        if waiters != 0
            && !core.durable_only
            && !core.delivery_worker.request(|wanted| wanted.wake_readers = true)
        {
            core.wake_readers(1);
        }
        Ok(seq)
    }

    /// Returns the final error of a rejected call. If the queue was full, counts it, and names the
    /// consumer that keeps the oldest segment.
    #[cold]
    pub(crate) fn refused(&self, mut error: Error) -> Error {
        if error.is_full() {
            self.core.count_refused();
        }
        if let Error::Full { held_by, .. } = &mut error {
            let end = self.core.visible.spot();
            let consumers = self.consumers.by_name.lock();
            let places = consumers.values().map(|consumer| (consumer.cell.spot(), consumer.name()));
            let lowest = places.min().filter(|(place, _)| place.position < end.position);
            *held_by = lowest.map(|(place, name)| Box::new(HeldBy::new(name, place.seq)));
        }
        error.of_refusal()
    }

    /// Calls `push` under the producers' lock and commits, but neither wakes readers nor flushes
    /// (see [`write`](Self::write)). Returns the first sequence number, the end, and how many
    /// readers wait.
    fn write_and_commit(
        &self,
        waits_for: WaitsFor,
        push: Push<'_, S>,
    ) -> Result<(u64, Spot, usize)> {
        let core = &*self.core;
        let (mut deadline, mut search) = (None, Search::default());
        let call_began = core.began();
        loop {
            let mut writer = match waits_for {
                WaitsFor::Moment => self.writer_in_a_moment()?,
                WaitsFor::Room | WaitsFor::Awhile | WaitsFor::Locks => self.writer()?,
            };
            if writer.take_refused() {
                self.begin_search(&mut writer, &mut search)?;
            }
            let seen = *core.space.gate.lock();
            let passed = core.segments.passed();
            let first = core.committed().spot().seq;
            let pushed = push(&mut writer, core).and_then(|()| writer.commit(core));
            let Err(error) = pushed else {
                if planted!(InterruptedThoughDone) {
                    core.check_uninterrupted(call_began)?;
                }
                let end = core.committed().spot();
                return Ok((first, end, self.unlock(writer)));
            };
            writer.roll_back(core);
            if !error.is_full() {
                return Err(error);
            }
            writer.note_refused();
            events::full(core.storage.path(), &error);
            match self.look_for_room(&mut writer, &mut search, &error, passed)? {
                SearchOutcome::Room => {}
                SearchOutcome::Held if waits_for != WaitsFor::Moment => {
                    drop(writer);
                    self.wait_for_dropped();
                }
                SearchOutcome::Held | SearchOutcome::Nothing => {
                    let OnFull::Wait(limit) = self.options.on_full else {
                        return Err(error);
                    };
                    let limit = match waits_for {
                        // Else leases, and wakers that make room, would wait for a waker's room.
                        WaitsFor::Room if may_wait() => limit,
                        WaitsFor::Awhile => Some(limit.unwrap_or(AWHILE).min(AWHILE)),
                        _ => return Err(error),
                    };
                    drop(writer);
                    events::report();
                    let until = *deadline
                        .get_or_insert_with(|| limit.and_then(|limit| now().checked_add(limit)));
                    let began = now();
                    let may_try = core.wait_for_space(seen, until, call_began);
                    core.count_waited(now().saturating_duration_since(began));
                    if !may_try? {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Enqueues all messages, or none.
    pub(crate) fn enqueue_batch<M: AsRef<[u8]>>(&self, messages: &[M]) -> Result<Range<u64>> {
        self.write(messages.len() as u64, &mut |writer, core| writer.push_batch(core, messages))
    }

    /// Wakes readers for `count` messages committed up to `end`, and flushes if due.
    #[cold]
    fn written(&self, end: Spot, count: u64, waiters: usize) -> Result<()> {
        if waiters != 0 && !self.core.durable_only {
            self.core.wake_readers(count);
        }
        let flushed = match self.options.flush_every_ops {
            Some(1) => self.core.flush_to(end).and_then(|()| self.core.checkpoint_if_due()),
            Some(every) => self.count(every, count),
            None => Ok(()),
        };
        self.core.wake_owed();
        flushed.map_err(|error| error.of_flush(self.core.storage.path()))
    }

    /// Counts `count` operations. Flushes when `every` or more are unflushed.
    #[cold]
    pub(super) fn count(&self, every: u64, count: u64) -> Result<()> {
        let Some(covered) = self.operations.count(every, count) else {
            return Ok(());
        };
        self.core.flush()?;
        self.operations.note_flushed(covered);
        Ok(())
    }
}
