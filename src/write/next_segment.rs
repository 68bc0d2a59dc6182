//! Opens the tail's segment, or begins the next one.

use std::sync::Arc;

use rustix::io::Errno;

use super::Writer;
use super::clock::Span;
use super::need::{Need, Part};
use crate::error::{Error, Result};
use crate::format::{self, FRAGMENT_HEADER_LEN, Kind, SegmentHeader, filler_words};
use crate::index::run::Next;
use crate::segment::{Lost, Plan, Reclaims, Segment};
use crate::state::State;
use crate::storage::{Storage, StorageFile};

/// The errors of a process, and of a system, that has no descriptor left.
const NO_DESCRIPTOR: [i32; 2] = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];

impl<F: StorageFile> Writer<F> {
    /// Prepares for a record: makes sure that the run has a reservation, that the tail is in an
    /// open segment where the record should begin, and that space is allocated there.
    #[cold]
    pub(super) fn prepare<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        need: Need,
    ) -> Result<Arc<Segment<F>>> {
        self.need = need.total;
        self.numbers.begin_run(state, self.tail.at.seq)?;
        self.numbers.renew_reservation(state, self.tail.at.seq)?;
        self.requests.bound_behind(state, self.tail.at.position, state.committed().spot())?;
        if !self.tail.is_open() {
            self.open_tail(state, need)?;
        }
        if self.clock.is_over() {
            self.follow_tail(state, need)?;
        }
        let segment = self.tail.opened(state)?;
        let room = segment.header.end() - self.tail.at.position;
        let capacity = segment.header.capacity();
        let fits_a_longer_one =
            need.total > capacity && segment.header.length < state.pool.geometry().most_len;
        let has_space = self.tail.at.position + need.total <= segment.allocated_end();
        if room < need.total && (room <= capacity / 8 || fits_a_longer_one)
            || !has_space && state.takes_spare(need.total)
        {
            // Padding wastes little here, or less than the record's own length, and the record
            // stays in one piece. Where it would waste more, the record is cut, if there is space.
            self.next_segment(state, need)?;
        }
        let segment = self.tail.opened(state)?;
        let room = segment.header.end() - self.tail.at.position;
        state.extend(&segment, segment.offset(self.tail.at.position) + need.total.min(room))?;
        Ok(segment)
    }

    /// Opens the tail's segment, or begins the queue's first or next one.
    fn open_tail<S: Storage<File = F>>(&mut self, state: &State<S>, need: Need) -> Result<()> {
        if let Some(next) = self.pending_segment.next() {
            // After an opening this segment may still exist although it was about to be evicted,
            // with bytes of rejected records behind its last message.
            let left = Self::segment_at(state, self.tail.at.position);
            if let Some(left) = left {
                self.close(state, &left)?;
            }
            return self.begin_segment(state, next, need);
        }
        let position = self.tail.at.position;
        let row = state.segments.list().live.back().copied();
        let Some(row) =
            row.filter(|row| row.header.base <= position && position <= row.header.end())
        else {
            return self.begin_segment(state, self.follow(None), need);
        };
        let opened = state.segments.list().open(&state.storage, &row);
        match opened {
            Ok(segment) => {
                segment.file.find_stores(segment.offset(position));
                state.segments.list().note_store(&segment);
                let SegmentHeader { created, until, .. } = row.header;
                if !self.clock.has_ages() && until != 0 {
                    state.segments.date_tail(&state.context(), &segment, created, 0)?;
                }
                self.enter(segment, Span { created, until });
                check!(self.tail.check(state.committed().spot()));
                Ok(())
            }
            Err(Lost::Io(error)) => Err(Error::io(
                "open",
                state.storage.path().join(format::segment_name(row.slot)),
                error,
            )),
            Err(Lost::Gone) => {
                let found =
                    state.segments.list().look_for(&state.storage, &state.index, row.header.life);
                if found {
                    self.open_tail(state, need)
                } else {
                    self.begin_segment(state, self.follow(Some(row.header.end())), need)
                }
            }
        }
    }

    /// Returns a next segment that begins at `end`, but not before the tail.
    pub(super) fn follow(&self, end: Option<u64>) -> Next {
        let base = end.unwrap_or(0).max(format::align_up(self.tail.at.position));
        Next { base, seq: self.tail.at.seq, ..Next::default() }
    }

    /// Begins the next segment because the [time span](super::clock::Clock::is_over) of the tail's
    /// is over. Without room for another one, the record goes to this one, and the messages in it
    /// live longer.
    fn follow_tail<S: Storage<File = F>>(&mut self, state: &State<S>, need: Need) -> Result<()> {
        let segment = self.tail.opened(state)?;
        let has_records = self.tail.at.position > segment.header.base;
        if has_records {
            let padded = segment.offset(self.tail.at.position) + FRAGMENT_HEADER_LEN;
            match self.next_segment(state, need) {
                // If all its messages are too old, the caller evicts the segment and tries again.
                Err(error) if error.is_full() && !self.is_past(state) => {
                    reached!("no room behind the tail's segment");
                }
                Ok(()) => {
                    state.segments.list().note_early_end(&segment, padded);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let span = if has_records { self.clock.later_span() } else { self.clock.new_span() };
        state.segments.date_tail(&state.context(), &segment, span.created, span.until)?;
        self.clock.go_on(span);
        Ok(())
    }

    /// Returns whether the tail's segment is the only one, and all its messages are too old.
    fn is_past<S: Storage<File = F>>(&self, state: &State<S>) -> bool {
        let tail = state.committed().spot().position;
        state.ages.is_some_and(|ages| state.segments.is_tail_too_old(&state.context(), ages, tail))
    }

    /// Closes the tail's segment with padding and begins the next one.
    pub(super) fn next_segment<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        need: Need,
    ) -> Result<()> {
        let segment = self.tail.opened(state)?;
        self.close(state, &segment)?;
        let end = segment.header.end();
        let next = Next { base: end, seq: self.tail.at.seq, ..Next::default() };
        self.begin_segment(state, next, need)
    }

    /// Fills the segment with padding, from the tail to the segment's end.
    fn close<S: Storage<File = F>>(&self, state: &State<S>, segment: &Segment<F>) -> Result<()> {
        let (from, end) = (self.tail.at.position, segment.header.end());
        holds!(
            segment.header.base <= from && from <= end,
            "the segment that is closed has the tail, {from}, and ends at {end}"
        );
        // Where no space is allocated for the padding's header, the file ends there, which means
        // the same to readers.
        if end - from >= FRAGMENT_HEADER_LEN
            && from + FRAGMENT_HEADER_LEN <= segment.allocated_end()
        {
            let words = filler_words(&segment.header, Kind::Padding, from, end, self.tail.at.seq);
            if let Some((window, offset)) = self.tail.window_at(from, FRAGMENT_HEADER_LEN) {
                window.put_fragment::<[u8]>(offset, &[], |_| words.both());
            } else {
                let offset = segment.offset(from);
                segment.claim(offset + FRAGMENT_HEADER_LEN);
                segment.file.write_at(&words.bytes(), offset).map_err(|error| {
                    Error::io("write", state.storage.path().join(segment.name()), error)
                })?;
            }
        }
        Ok(())
    }

    /// Begins the segment `next`, and enters it.
    fn begin_segment<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        next: Next,
        need: Need,
    ) -> Result<()> {
        if state.expire() {
            state.have_reclaimed()?;
        }
        state.bound_unsynced(state.committed().spot(), usize::MAX)?;
        // The rest of a record belongs to a message that began before, so the first message that
        // begins in this segment is the next one.
        let first_seq = self.tail.at.seq + u64::from(need.part == Part::Rest);
        self.clock.look(&state.storage);
        let span = self.clock.new_span();
        let plan = Plan {
            base: next.base,
            first_seq,
            missing: next.missing,
            need: need.total,
            backlog: state.backlog(self.tail.at.position),
            whole: need.whole,
            created: span.created,
            until: span.until,
        };
        let segment = match state.append(plan) {
            // No descriptor is left. Segments that wait for a sync, or are drained, have some.
            Err(error) if NO_DESCRIPTOR.contains(&error.system_number()) => {
                state.bound_unsynced(state.committed().spot(), 2)?;
                state.have_reclaimed()?;
                state.append(plan)?
            }
            made => made?,
        };
        holds!(
            self.tail.at.position <= next.base,
            "a segment begins at {} behind the tail, {:?}",
            next.base,
            self.tail.at
        );
        self.pending_segment.follow();
        self.tail.at.position = next.base;
        self.enter(segment, span);
        check!(self.tail.check(state.committed().spot()));
        Ok(())
    }

    fn enter(&mut self, segment: Arc<Segment<F>>, span: Span) {
        self.tail.enter(segment);
        self.clock.enter(span);
    }
}
