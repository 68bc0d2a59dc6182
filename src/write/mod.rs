//! The way in: reserve, copy fragments, commit.
//!
//! One [`Writer`] per queue, under the producers' lock. A record is written behind the committed tail, where nobody looks,
//! and becomes visible by one release store of the tail. So a record is either committed whole or was never there:
//! whatever fails on the way leaves the tail where it was.
//!
//! The quick path (`Writer::store_quickly`) is a copy and a checksum into a window that is mapped and allocated. All
//! else is in cold functions below: opening the tail's segment, allocating ahead, sealing a segment, splitting a record.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::Spot;
use crate::format::{
    self, Batch, FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, SEAL_LEN, SEGMENT_HEADER_LEN, Seal, SegmentHeader,
    filler_words, fragment_len,
};
use crate::index::run::Next;
use crate::memory::Window;
use crate::memory::checksum::crc32c;
use crate::segment::ages::Ages;
use crate::segment::{CALL_FROM, Lost, Plan, Segment};
use crate::state::{AHEAD, MOST_BEHIND, State};
use crate::storage::{Storage, StorageFile, Stores};

/// At the latest after so many bytes the slow path runs and looks after what must be kept ahead (space, the lease).
const STRIDE: u64 = 8 << 20;
/// Bytes filled with zeros at a time where every record is synced.
const SYNCED_FILL: u64 = 256 << 10;
/// Sequence numbers reserved on disk ahead of their use, so that none is used twice after a power cut.
pub(crate) const LEASE: u64 = 1 << 20;
/// Bytes behind the tail that are faulted in at a time when a segment is new and is not filled ahead. One call does in
/// bulk what each page would do by a fault of its own.
const POPULATE: u64 = 256 << 10;
/// A window shorter than this is faulted in by being used.
const POPULATE_FROM: u64 = 64 << 10;

/// The producers' state.
#[derive(Debug)]
pub(crate) struct Writer<F> {
    /// Where the next record begins, and its number.
    position: u64,
    seq: u64,
    /// What was last committed: where a failed record goes back to.
    committed: Spot,
    segment: Option<Arc<Segment<F>>>,
    window: Option<Window>,
    /// Position of the window's first byte (wrapping: the segment's header lies before its base).
    window_base: u64,
    seed: u32,
    base: u64,
    /// A record that ends at or below goes the quick way ...
    quick_end: u64,
    /// ... when its payload is at most so long.
    quick_len: u64,
    /// Where the next segment must begin, the numbers missing before it and their cause, when the last one takes no more.
    next: Option<Next>,
    /// What `next` was when it was last followed.
    followed: Option<Next>,
    /// No number at or above it may be given out yet; `u64::MAX` when numbers need no lease.
    lease: u64,
    /// The checkpoint on disk says that this run has begun.
    begun: bool,
    ages: Option<Ages>,
    /// With ages: when the record is written, ...
    now: u64,
    /// ... and between which times the tail's segment takes it.
    created: u64,
    until: u64,
    /// For the last record there was no room. Nothing goes the quick way then.
    refused: bool,
    /// Of the batch that is being pushed.
    seal: Seal,
    /// What was rolled back may still begin at the tail: it could not be cleared.
    uncleared: bool,
    /// Payload bytes of the record that is being written, all fragments together.
    whole: u64,
    /// The keeper was asked for the segment behind the one that is being filled by calls.
    asked: bool,
    /// Up to that position it was seen to that few bytes are held that are not durable.
    bounded: u64,
    /// While it is there fragments are given room and noted here, and nothing of them is stored.
    pieces: Option<Vec<Piece<F>>>,
}

/// Where a message will lie that is still to be written.
#[derive(Debug)]
pub(crate) enum Room<F> {
    /// At the tail, in the window.
    Here,
    /// In these pieces, behind which the tail stands; it is written to a buffer first.
    Apart { pieces: Vec<Piece<F>>, bytes: Vec<u8> },
}

/// Room for a fragment.
#[derive(Debug)]
pub(crate) struct Piece<F> {
    segment: Arc<Segment<F>>,
    position: u64,
    header: Fragment,
}

impl<F: StorageFile> Writer<F> {
    pub(crate) fn new(tail: Spot, next: Option<Next>, lease: Option<u64>, ages: Option<Ages>) -> Writer<F> {
        Writer {
            position: tail.position,
            seq: tail.seq,
            committed: tail,
            segment: None,
            window: None,
            window_base: 0,
            seed: 0,
            base: 0,
            quick_end: 0,
            quick_len: 0,
            next,
            followed: None,
            lease: lease.unwrap_or(u64::MAX),
            begun: false,
            ages,
            now: 0,
            created: 0,
            until: 0,
            refused: false,
            seal: Seal::NEW,
            uncleared: false,
            whole: 0,
            asked: false,
            bounded: tail.position,
            pieces: None,
        }
    }

    pub(crate) fn committed(&self) -> Spot {
        self.committed
    }

    /// The number behind the last one that the tail's segment holds. Behind it numbers may be missing that the next segment states.
    pub(crate) fn held_end(&self) -> u64 {
        self.next.map_or(self.committed.seq, |next| next.seq - next.gap)
    }

    /// Whether this run has stored anything that the next opening must know of.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Writes a record behind the tail; nobody sees it before [`commit`](Self::commit).
    #[inline]
    pub(crate) fn push<S: Storage<File = F>>(&mut self, state: &State<S>, payload: &[u8], batch: Batch) -> Result<()> {
        if self.ages.is_some() {
            self.look_at_clock(state);
        }
        if !batch.continues && batch.more {
            self.seal = Seal::NEW;
        }
        if self.store_quickly(payload, batch) {
            return Ok(());
        }
        self.push_slow(state, payload, batch)
    }

    /// [`push`](Self::push) of a message on its own, where no more is to be done than to store it; false, and nothing done, where
    /// there is more to it.
    #[inline(always)]
    pub(crate) fn push_quickly(&mut self, payload: &[u8]) -> bool {
        self.ages.is_none() && self.store_quickly(payload, Batch::default())
    }

    #[inline(always)]
    fn store_quickly(&mut self, payload: &[u8], batch: Batch) -> bool {
        let len = payload.len() as u64;
        let total = batch.record_len(len);
        if self.position + total > self.quick_end || len > self.quick_len {
            return false;
        }
        let Some(window) = &self.window else {
            return false;
        };
        let header = Fragment::whole(self.seq, payload.len() as u32, batch);
        let seeded = header.state(self.seed, self.position - self.base);
        let offset = self.position.wrapping_sub(self.window_base) as usize;
        window.put_fragment(offset, payload, seeded, |payload_state| {
            let words = header.encode(seeded, payload_state);
            if !batch.is_single() {
                self.seal.add(words.crc());
                if batch.is_sealed() {
                    window.store_u64(offset + fragment_len(len) as usize, self.seal.word());
                }
            }
            words.both()
        });
        self.position += total;
        self.seq += 1;
        true
    }

    /// Makes room for all of a message of `len` bytes that is still to be written.
    pub(crate) fn reserve<S: Storage<File = F>>(&mut self, state: &State<S>, len: usize) -> Result<Room<F>> {
        let total = fragment_len(len as u64);
        if self.ages.is_some() {
            self.look_at_clock(state);
        }
        if self.position + total > self.quick_end {
            check_fits(state, len as u64)?;
            self.whole = len as u64;
            self.prepare(state, total, true)?;
        }
        // Where the commit is a call that can fail, what was written must outlive that.
        if self.window.is_some() && self.position + total <= self.quick_end && state.index.stores() == Stores::ByMap {
            return Ok(Room::Here);
        }
        self.pieces = Some(Vec::new());
        // Of the payload, which is not there yet, the length alone is looked at.
        let bytes = vec![0; len];
        let placed = self.place(state, &bytes, Batch::default());
        let pieces = self.pieces.take().unwrap_or_default();
        placed?;
        self.seq += 1;
        Ok(Room::Apart { pieces, bytes })
    }

    /// Has `fill` write a message of `len` bytes for which there is room [here](Room::Here). A panic in it leaves everything
    /// as it was.
    pub(crate) fn fill_here(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let Some(window) = &self.window else {
            return;
        };
        let offset = self.position.wrapping_sub(self.window_base) as usize + FRAGMENT_HEADER_LEN as usize;
        window.with_mut(offset, len, |bytes| {
            bytes.fill(0);
            fill(bytes);
        });
        let header = Fragment { len: len as u32, ..Fragment::whole(self.seq, 0, Batch::default()) };
        let seeded = header.state(self.seed, self.position - self.base);
        let words = header.encode(seeded, window.crc32c(seeded, offset, len));
        window.put_fragment(offset - FRAGMENT_HEADER_LEN as usize, &[], 0, |_| words.both());
        self.position += header.total_len();
        self.seq += 1;
    }

    /// Has `fill` write a message into `bytes`, and stores those in the [pieces](Room::Apart) that there is room for. A panic
    /// in it gives the room back.
    #[cold]
    pub(crate) fn fill_apart<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        pieces: &[Piece<F>],
        bytes: &mut [u8],
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| fill(bytes))) {
            self.roll_back(state);
            resume_unwind(panic);
        }
        let (mut rest, mut chain) = (&*bytes, 0);
        for Piece { segment, position, header } in pieces {
            let (payload, later) = rest.split_at(header.len as usize);
            let seeded = header.state(segment.seed, position - segment.header.base);
            let words = header.encode(seeded, crc32c(seeded ^ chain, payload));
            let by_call = by_call(state, segment, segment.offset(*position), payload.len() as u64, self.whole);
            store_by_call(state, segment, segment.offset(*position), words, None, payload, by_call)?;
            // A flush that came since there was room may have synced the segment, which is full but for this piece. Said behind the
            // store: one that comes between the two would take it back.
            state.segments.list().hold(segment);
            (rest, chain) = (later, words.crc());
        }
        Ok(())
    }

    /// With ages: the quick way is closed when the tail's segment has taken messages for long enough.
    #[inline(never)]
    fn look_at_clock<S: Storage<File = F>>(&mut self, state: &State<S>) {
        self.now = state.storage.now();
        if self.is_over() {
            self.quick_end = 0;
        }
    }

    /// The tail's segment takes no more messages: it has for as long as one may, or the clock was set back.
    fn is_over(&self) -> bool {
        self.ages.is_some_and(|ages| !ages.tells(self.created, self.until, self.now) || self.now >= self.until)
    }

    /// Makes everything pushed visible, at once. Returns the tail; or, where the index is written by calls, the error of one: then
    /// nothing has changed, and what was pushed is to be rolled back.
    #[inline(always)]
    pub(crate) fn commit<S: Storage<File = F>>(&mut self, state: &State<S>) -> Result<Spot> {
        let tail = Spot { position: self.position, seq: self.seq };
        let before = (self.committed.position, self.committed.seq);
        // Before anybody takes from it: what a kill leaves must not say less than what was taken.
        if let Err(error) = state.index.move_tail(tail.position, tail.seq, before) {
            return Err(Error::io("write", state.storage.path().join(format::INDEX_NAME), error));
        }
        self.committed = tail;
        state.committed.publish(tail);
        if !state.durable_only {
            state.visible.publish(tail);
        }
        Ok(tail)
    }

    /// Forgets everything pushed since the last commit.
    #[cold]
    pub(crate) fn roll_back<S: Storage<File = F>>(&mut self, state: &State<S>) {
        if self.position == self.committed.position {
            return;
        }
        self.position = self.committed.position;
        self.seq = self.committed.seq;
        self.release();
        if let Some(next) = self.followed.take_if(|next| next.base > self.committed.position) {
            // The segment that was begun there goes; the next one begins there all the same: what lies before was given up.
            state.index.set_next(Some(next));
            self.next = Some(next);
        }
        if state.segments.cut(self.position) {
            // Best effort: an unsettled segment is settled when the next one is wanted.
            let _ = state.settle();
        }
        // What was begun there has no end and would be cut off by any recovery; clear its beginning all the same.
        self.uncleared = !self.clear_tail(state);
    }

    /// Whether nothing lies at the tail that a reader could take for a record, should it not be overwritten.
    pub(crate) fn is_cleared<S: Storage<File = F>>(&mut self, state: &State<S>) -> bool {
        self.uncleared = self.uncleared && !self.clear_tail(state);
        !self.uncleared
    }

    fn clear_tail<S: Storage<File = F>>(&self, state: &State<S>) -> bool {
        let opened = {
            let mut list = state.segments.list();
            let row = list.at(self.position).filter(|row| row.header.base <= self.position);
            let opened = row.and_then(|row| list.open(&state.storage, &row).ok());
            opened.inspect(|segment| list.hold(segment))
        };
        if let Some(segment) = opened
            && self.position + FRAGMENT_HEADER_LEN <= segment.allocated_end()
        {
            let (offset, header) = (segment.offset(self.position), [0; FRAGMENT_HEADER_LEN as usize]);
            // The write that failed may have stored the whole record all the same, and this one may fail like it.
            if segment.file.write_at(&header, offset).is_err() {
                let window = segment.file.map(offset, header.len()).ok();
                let Some(window) = window.filter(|_| segment.file.stores() == Stores::ByMap) else {
                    return false;
                };
                window.copy_in(0, &header);
            }
        }
        true
    }

    /// The next record begins a new segment, at that position: the segment the tail stood in is given up.
    pub(crate) fn begin_anew<S: Storage<File = F>>(&mut self, state: &State<S>, base: u64) {
        self.release();
        if self.next.is_none() {
            self.next = Some(Next { base, seq: self.committed.seq, ..Next::default() });
            state.index.set_next(self.next);
        }
    }

    /// There was no room for what was rolled back.
    pub(crate) fn note_refused(&mut self) {
        self.release();
        self.refused = true;
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused
    }

    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Nothing more is written the quick way: whoever comes asks first whether the queue is open.
    pub(crate) fn stop(&mut self) {
        self.quick_end = 0;
    }

    /// Lets go of the tail's segment and window.
    pub(crate) fn release(&mut self) {
        self.segment = None;
        self.window = None;
        self.quick_end = 0;
    }

    #[cold]
    #[inline(never)]
    fn push_slow<S: Storage<File = F>>(&mut self, state: &State<S>, payload: &[u8], batch: Batch) -> Result<()> {
        let len = payload.len() as u64;
        check_fits(state, len)?;
        self.whole = len;
        let total = batch.record_len(len);
        self.prepare(state, total, false)?;
        self.place(state, payload, batch)?;
        self.seq += 1;
        Ok(())
    }

    /// Puts a record at the tail, which stands in an open segment: in one piece where it fits.
    fn place<S: Storage<File = F>>(&mut self, state: &State<S>, payload: &[u8], batch: Batch) -> Result<()> {
        if self.position + batch.record_len(payload.len() as u64) <= self.opened(state)?.header.end() {
            let header = Fragment::whole(self.seq, payload.len() as u32, batch);
            return self.write(state, header, payload, 0).map(drop);
        }
        self.split(state, payload, batch)
    }

    /// Cuts a record into fragments at segment ends.
    fn split<S: Storage<File = F>>(&mut self, state: &State<S>, payload: &[u8], batch: Batch) -> Result<()> {
        let mut rest = payload;
        let (mut first, mut chain) = (true, 0);
        while !rest.is_empty() {
            let room = self.opened(state)?.header.end() - self.position;
            if room <= FRAGMENT_HEADER_LEN {
                self.next_segment(state, batch.record_len(rest.len() as u64), !first)?;
                continue;
            }
            let mut piece = rest.len().min((room - FRAGMENT_HEADER_LEN) as usize);
            if piece == rest.len() && batch.record_len(rest.len() as u64) > room {
                // The seal would not fit behind it: it goes with the last byte.
                piece -= 1;
            }
            let (now, later) = rest.split_at(piece);
            let whole = Fragment::whole(self.seq, now.len() as u32, batch);
            let header = Fragment {
                kind: match (first, later.is_empty()) {
                    (true, true) => Kind::Whole,
                    (true, false) => Kind::First,
                    (false, false) => Kind::Middle,
                    (false, true) => Kind::Last,
                },
                sealed: whole.sealed && later.is_empty(),
                ..whole
            };
            chain = self.write(state, header, now, chain)?;
            rest = later;
            first = false;
        }
        Ok(())
    }

    /// Sees to it that the tail stands in an open segment where a record of `total` bytes should begin, and that a
    /// mapped, allocated window lies there when one can be had.
    #[cold]
    fn prepare<S: Storage<File = F>>(&mut self, state: &State<S>, total: u64, in_place: bool) -> Result<()> {
        self.begin_run(state)?;
        self.renew_lease(state)?;
        if self.position.saturating_sub(self.bounded) >= MOST_BEHIND / 16 {
            self.bounded = self.position;
            state.bound_behind(self.committed)?;
        }
        if self.segment.is_none() {
            self.open_tail(state, total)?;
        }
        if self.is_over() {
            self.follow_tail(state, total)?;
        }
        let segment = self.opened(state)?;
        let room = segment.header.end() - self.position;
        if room < total && room <= segment.header.capacity() / 8 {
            // Little is wasted: the record stays in one piece. Where much would be, it is split.
            self.next_segment(state, total, false)?;
        }
        let segment = self.opened(state)?;
        let wanted = segment.offset(self.position) + total.min(segment.header.end() - self.position);
        state.extend(&segment, wanted)?;
        let offset = segment.offset(self.position);
        if !in_place && by_call(state, &segment, offset, total - FRAGMENT_HEADER_LEN, self.whole) {
            // It passes by the window.
            let end = segment.header.end();
            if !self.asked && self.position + total + AHEAD >= end && (segment.header.base != 0 || offset > AHEAD / 2) {
                self.asked = true;
                state.bell.ring(|wishes| wishes.ahead = true);
            }
            return Ok(());
        }
        self.take_window(state, &segment, total)
    }

    /// The window the tail stands in, ready for a fragment of `total` bytes. Without one, records go by write calls.
    fn take_window<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        segment: &Arc<Segment<F>>,
        total: u64,
    ) -> Result<()> {
        self.window = None;
        self.quick_end = 0;
        // Where every record is synced, a write call beats a store: the sync writes what the call touched, and not the whole
        // of each large folio a store made dirty; nor is there a fault in every page that the last sync has cleaned.
        if state.durable_only || segment.file.stores() == Stores::ByCall {
            return Ok(());
        }
        let window_len = state.pool.geometry().window_len;
        let offset = segment.offset(self.position);
        let number = offset / window_len;
        let granted = state
            .pool
            .get(&segment.file, segment.header.life, number, segment.header.length, || segment.allocated(), false)
            .map_err(|error| Error::io("map", state.storage.path().join(segment.name()), error))?;
        let Some(granted) = granted else {
            return Ok(());
        };
        let window = granted.window;
        let start = number * window_len;
        let end = (start + window.len() as u64).min(segment.allocated());
        let mut usable = end.min(offset + STRIDE);
        self.quick_len = u64::MAX;
        match state.context().fill_step() {
            Some(step) if usable > segment.filled() => {
                // To the next multiple of the step, and beyond it when little is left before.
                let wanted = (offset + total.max(step / 4)).next_multiple_of(step);
                segment.fill(wanted.min(end));
                usable = usable.min(segment.filled());
                // The next segment may be ready by then. (A queue of a few messages needs no thread for that. The record that
                // does not fit the first step any more begins before its end.)
                if offset + total > step || segment.header.base != 0 {
                    state.bell.ring(|wishes| wishes.ahead = true);
                }
            }
            None if segment.is_fresh(offset) => {
                self.quick_len = CALL_FROM - 1;
                if window.len() as u64 >= POPULATE_FROM {
                    usable = end.min((offset + total.max(POPULATE / 4)).next_multiple_of(POPULATE));
                    let _ = window.populate_write((offset - start) as usize, (usable - offset) as usize);
                }
            }
            _ => {}
        }
        self.window_base = segment.header.base.wrapping_sub(SEGMENT_HEADER_LEN).wrapping_add(start);
        self.quick_end = self.window_base.wrapping_add(usable - start).min(segment.header.end());
        self.window = Some(window);
        Ok(())
    }

    /// Puts a fragment that fits the segment at the tail.
    ///
    /// `chain` is the checksum of the fragment before it in the same record, else zero; its own is returned.
    fn write<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        header: Fragment,
        payload: &[u8],
        chain: u32,
    ) -> Result<u32> {
        let segment = self.opened(state)?;
        let total = header.total_len();
        let offset = segment.offset(self.position);
        state.extend(&segment, offset + total)?;
        if let Some(pieces) = &mut self.pieces {
            pieces.push(Piece { segment, position: self.position, header });
            self.position += total;
            return Ok(0);
        }
        let len = payload.len() as u64;
        let by_call = by_call(state, &segment, offset, len, self.whole);
        if !by_call && (self.window.is_none() || self.position + total > self.quick_end) {
            self.take_window(state, &segment, total)?;
        }
        let position = self.position;
        let seeded = header.state(self.seed, position - self.base);
        let sum = &mut self.seal;
        let mut finish = |payload_state| {
            let words = header.encode(seeded, payload_state);
            if header.more || header.continues {
                sum.add(words.crc());
            }
            // To be stored before the header: one that validates means that all of it was stored.
            (words, header.seal_at().map(|at| (at, sum.word())))
        };
        let mut crc = 0;
        // Before anything is stored: a call that fails may have stored all of it, which is to be rolled back.
        self.position += total;
        match &self.window {
            Some(window) if !by_call && self.position <= self.quick_end => {
                let offset = position.wrapping_sub(self.window_base) as usize;
                window.put_fragment(offset, payload, seeded ^ chain, |payload_state| {
                    let (words, seal) = finish(payload_state);
                    if let Some((at, word)) = seal {
                        window.store_u64(offset + at as usize, word);
                    }
                    crc = words.crc();
                    words.both()
                });
            }
            _ => {
                let (words, seal) = finish(crc32c(seeded ^ chain, payload));
                crc = words.crc();
                store_by_call(state, &segment, offset, words, seal, payload, by_call)?;
            }
        }
        Ok(crc)
    }

    fn opened<S: Storage<File = F>>(&self, state: &State<S>) -> Result<Arc<Segment<F>>> {
        // `prepare` opened it; without it there is nothing sound to write to.
        let missing = || Error::internal(state.storage.path(), "a record is written, and no segment is open for it");
        self.segment.clone().ok_or_else(missing)
    }

    /// Opens the segment the tail stands in, or begins the queue's first or next one.
    fn open_tail<S: Storage<File = F>>(&mut self, state: &State<S>, total: u64) -> Result<()> {
        if let Some(next) = self.next {
            return self.begin_segment(state, next, total, false);
        }
        let row = state.segments.list().live.back().copied();
        let Some(row) = row.filter(|row| row.header.base <= self.position && self.position <= row.header.end()) else {
            return self.begin_segment(state, self.follow(None), total, false);
        };
        let opened = state.segments.list().open(&state.storage, &row);
        match opened {
            Ok(segment) => {
                segment.file.find_stores(segment.offset(self.position));
                state.segments.list().hold(&segment);
                let SegmentHeader { created, until, .. } = row.header;
                if self.ages.is_none() && until != 0 {
                    state.segments.date_tail(&state.context(), &segment, created, 0)?;
                }
                self.adopt(segment, created, until);
                Ok(())
            }
            Err(Lost::Io(error)) => {
                Err(Error::io("open", state.storage.path().join(format::segment_name(row.slot)), error))
            }
            Err(Lost::Gone) => {
                let found = state.segments.list().look_for(&state.storage, &state.index, row.header.life);
                if found {
                    self.open_tail(state, total)
                } else {
                    self.begin_segment(state, self.follow(Some(row.header.end())), total, false)
                }
            }
        }
    }

    /// The next segment right behind this position, and behind every live one.
    fn follow(&self, end: Option<u64>) -> Next {
        Next { base: end.unwrap_or(0).max(format::align_up(self.position)), seq: self.seq, ..Next::default() }
    }

    /// The tail's segment [takes no more](Self::is_over): what comes begins another one. Where there is no room for that it goes
    /// to this one all the same, and what is in it lives longer for it.
    fn follow_tail<S: Storage<File = F>>(&mut self, state: &State<S>, total: u64) -> Result<()> {
        let Some(ages) = self.ages else {
            return Ok(());
        };
        let segment = self.opened(state)?;
        let holds = self.position > segment.header.base;
        let told = ages.tells(self.created, self.until, self.now);
        if holds {
            match self.next_segment(state, total, false) {
                // Unless all of it may be given up.
                Err(error) if error.is_full() && !(told && ages.are_past(self.until, self.now)) => {}
                done => return done,
            }
        }
        let until = ages.until(self.now);
        // By a clock that was set back what is there would be made older, should the clock be wrong.
        if !holds || self.now >= self.created {
            state.segments.date_tail(&state.context(), &segment, self.now, until)?;
        }
        (self.created, self.until) = (self.now, until);
        Ok(())
    }

    /// Fills what is left of the segment with padding and goes on in the next one, perhaps with the record that was begun.
    fn next_segment<S: Storage<File = F>>(&mut self, state: &State<S>, total: u64, within: bool) -> Result<()> {
        let segment = self.opened(state)?;
        let room = segment.header.end() - self.position;
        let next = Next { base: segment.header.end(), seq: self.seq, ..Next::default() };
        // Without room on the disk for the padding's header the file simply ends there, which says the same.
        if room >= FRAGMENT_HEADER_LEN && self.position + FRAGMENT_HEADER_LEN <= segment.allocated_end() {
            let words = filler_words(&segment.header, Kind::Padding, self.position, segment.header.end(), self.seq);
            match &self.window {
                Some(window) if self.position + FRAGMENT_HEADER_LEN <= self.quick_end => {
                    let offset = self.position.wrapping_sub(self.window_base) as usize;
                    window.put_fragment(offset, &[], 0, |_| words.both());
                }
                _ => {
                    let offset = segment.offset(self.position);
                    segment.claim(offset + FRAGMENT_HEADER_LEN);
                    segment
                        .file
                        .write_at(&words.bytes(), offset)
                        .map_err(|error| Error::io("write", state.storage.path().join(segment.name()), error))?;
                }
            }
        }
        self.begin_segment(state, next, total, within)
    }

    fn begin_segment<S: Storage<File = F>>(
        &mut self,
        state: &State<S>,
        next: Next,
        total: u64,
        within: bool,
    ) -> Result<()> {
        if state.expire() {
            state.settle()?;
        }
        state.bound_unsynced(self.committed)?;
        // What goes on here began before: the first message that begins here is the one after it.
        let first_seq = self.seq + u64::from(within);
        self.now = state.storage.now();
        let until = self.ages.map_or(0, |ages| ages.until(self.now));
        let plan = Plan {
            base: next.base,
            first_seq,
            gap_before: next.gap,
            reserved: next.reserved,
            cause: next.cause,
            need: total,
            whole: self.whole,
            created: self.now,
            until,
        };
        let segment = state.segments.append(&state.context(), plan)?;
        if let Some(next) = self.next.take() {
            // The index goes on saying so: the segment may be lost again.
            self.followed = Some(next);
        }
        self.position = next.base;
        self.adopt(segment, self.now, until);
        Ok(())
    }

    fn adopt(&mut self, segment: Arc<Segment<F>>, created: u64, until: u64) {
        self.window = None;
        self.quick_end = 0;
        self.asked = false;
        self.seed = segment.seed;
        self.base = segment.header.base;
        (self.created, self.until) = (created, until);
        self.segment = Some(segment);
    }

    /// Before the first change of a run: the checkpoint on disk must not say that nothing has happened since.
    fn begin_run<S: Storage<File = F>>(&mut self, state: &State<S>) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        let lease = if self.lease == u64::MAX { 0 } else { self.lease.max(self.seq + LEASE) };
        let (checkpoint, durable) = state.index.durable_checkpoint();
        // One that an opening before this one had stored, and was killed before it was synced, says nothing.
        if !durable || checkpoint.clean || checkpoint.number == 0 || lease > checkpoint.lease {
            self.write_lease(state, lease)?;
        }
        self.begun = true;
        Ok(())
    }

    fn renew_lease<S: Storage<File = F>>(&mut self, state: &State<S>) -> Result<()> {
        // A stride holds at most so many records; the lease must outlast the next one.
        if self.lease != u64::MAX && self.lease < self.seq + STRIDE / FRAGMENT_HEADER_LEN + 1 {
            self.write_lease(state, self.seq + LEASE)?;
        }
        Ok(())
    }

    fn write_lease<S: Storage<File = F>>(&mut self, state: &State<S>, lease: u64) -> Result<()> {
        state.sync_directory()?;
        // Never lower: the numbers below were given out, or told to be missing.
        let lease = lease.max(state.index.checkpoint().lease);
        let next_life = state.segments.next_life();
        state.index.write_checkpoint(|checkpoint| {
            checkpoint.clean = false;
            checkpoint.lease = lease;
            checkpoint.next_life = checkpoint.next_life.max(next_life);
        })?;
        state.index.set_lease(lease);
        if self.lease != u64::MAX {
            self.lease = lease;
        }
        Ok(())
    }
}

/// Stores a fragment, whose space is allocated, by write calls. `by_call`: it would go so even where there is a window.
fn store_by_call<S: Storage>(
    state: &State<S>,
    segment: &Segment<S::File>,
    offset: u64,
    words: FragmentWords,
    seal: Option<(u64, u64)>,
    payload: &[u8],
    by_call: bool,
) -> Result<()> {
    let io = |error| Error::io("write", state.storage.path().join(segment.name()), error);
    let total = fragment_len(payload.len() as u64) + if seal.is_some() { SEAL_LEN } else { 0 };
    match state.context().fill_step() {
        // What follows goes by calls too, and needs no pages.
        Some(_) if segment.file.stores() == Stores::ByCall => segment.claim(offset + total),
        // The end of a window falls into it, not the beginning of large ones: what follows goes on in a window.
        Some(step) if !by_call => segment.fill((offset + total).next_multiple_of(step).min(segment.allocated())),
        // A sync of space that was never written changes the file's metadata too, and takes twice as long (16 KiB: 54 us,
        // 37 with zeros there before): records up to 64 KiB find theirs written. Longer ones would write too much twice.
        None if state.durable_only && total <= SYNCED_FILL / 4 => {
            segment.fill((offset + total).next_multiple_of(SYNCED_FILL).min(segment.allocated()));
        }
        _ => segment.claim(offset + total),
    }
    let mut bytes = [0; 4096];
    let head = FRAGMENT_HEADER_LEN as usize;
    bytes[..head].copy_from_slice(&words.bytes());
    if let Some((at, word)) = seal {
        segment.file.write_at(&word.to_le_bytes(), offset + at).map_err(io)?;
    }
    if payload.len() <= bytes.len() - head {
        bytes[head..head + payload.len()].copy_from_slice(payload);
        segment.file.write_at(&bytes[..head + payload.len()], offset).map_err(io)?;
    } else {
        // The payload first: a header that validates means that all of it was stored.
        segment.file.write_at(payload, offset + FRAGMENT_HEADER_LEN).map_err(io)?;
        segment.file.write_at(&bytes[..head], offset).map_err(io)?;
    }
    Ok(())
}

/// Refuses at once what could never fit.
fn check_fits<S: Storage>(state: &State<S>, len: u64) -> Result<()> {
    let max = state.max_message();
    if len <= max {
        return Ok(());
    }
    let max_bytes = state.limits.max_bytes.filter(|_| max < format::MAX_MESSAGE_LEN);
    Err(Error::MessageTooLarge { path: state.storage.path().to_owned(), len, max, max_bytes })
}

/// Whether a fragment of `len` bytes goes by a write call even where there is a window. What is left of a long record goes as the
/// record does: space is not filled for a few bytes of it which the next long one writes by a call again.
fn by_call<S: Storage>(state: &State<S>, segment: &Segment<S::File>, offset: u64, len: u64, whole: u64) -> bool {
    let context = state.context();
    let fresh = match context.fill_step() {
        Some(_) => offset + fragment_len(len) > segment.filled(),
        None => segment.is_fresh(offset),
    };
    fresh && context.prefers_call(whole)
}
