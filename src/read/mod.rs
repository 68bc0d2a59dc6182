//! The way out: find the next record, verify it, hand it on, step over it.
//!
//! A [`Cursor`] is a place in the queue with what is at hand there: the open segment, the mapped window, the record that
//! was found last. A consumer owns one under its lock; an iterator owns one that moves ahead of its consumer's.
//!
//! What a cursor meets at its place is one of: the end of what is visible; the end of a segment; an intact record; padding;
//! a recorded gap; or something that is none of these. Then the bytes are damaged, and the cursor searches forward for
//! the next intact record, reports the numbers between as a gap, and goes on: damage costs what it touched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::commit::Core;
use crate::error::{Error, Gap, GapCause, Result};
use crate::format::Spot;
use crate::format::{
    self, FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, SEGMENT_HEADER_LEN, SegmentHeader, segment_name,
};
use crate::memory::Window;
use crate::memory::checksum::crc32c;
use crate::segment::scan::Scan;
use crate::segment::{Lost, Row, Segment};
use crate::storage::{Storage, StorageFile};

/// Bytes that are read ahead at a time.
const READ_AHEAD: usize = 64 << 10;

/// Where nothing has come yet, one more look is taken after so many pauses of the processor. A reader that polls would take
/// the line with the tail away from the producer for each message, and both would wait for it most of the time.
///
/// The more came during the last pause the longer the next one is, so that a stream of messages is read in long runs, and a
/// message that comes alone is read at once: [`SHORTEST_PAUSE`] is about a tenth of a microsecond, [`LONGEST_PAUSE`] several
/// microseconds. Two threads, 128 bytes, medians: without a pause 91 ns a message. Where a line takes 0.55 us to another processor and back:
/// 82 ns with 32 pauses, 57 with 96, 51 with 256, 49 with 768; where it takes 0.13 us: 21 ns with any of them.
const SHORTEST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 512;
/// A message in so many pauses is a stream, and the next pause is longer ...
const STREAM: u64 = 16;
/// ... and fewer than one in so many make it shorter.
const TRICKLE: u64 = 64;

/// Room for the pieces of a record that a cursor keeps for the next such record: a few of the lengths that are common.
const SCRATCH_KEPT: usize = 2 << 20;

/// A record that was found at a cursor's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) seq: u64,
    /// Payload bytes, all fragments together.
    pub(crate) len: u64,
    /// Offset of the payload in the cursor's window, when it lies there in one piece.
    pub(crate) in_window: Option<usize>,
    /// The position behind the record.
    end: u64,
    /// For the payload of one that lies in the window: the state its checksum continues from, and the one it has to end in.
    begins: u32,
    ends: u32,
}

/// When the payload of a record is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// When it is found.
    Now,
    /// By the copy that delivers it, unless it had to be read to be found.
    Later,
    /// Nobody reads it.
    Never,
}

/// A place in the queue, and what is at hand there.
#[derive(Debug)]
pub(crate) struct Cursor<F> {
    position: u64,
    seq: u64,
    /// Positions below it are known to be visible.
    limit: u64,
    /// For the next time that nothing has come yet.
    pause: u32,
    segment: Option<Arc<Segment<F>>>,
    window: Option<Window>,
    window_base: u64,
    /// A record that ends at or below lies in the window.
    window_end: u64,
    lending: bool,
    /// The window's place for which others were asked to let go of theirs.
    asked_at: u64,
    found: Option<Record>,
    /// The payload of what was found was checked. (Not a part of the record, whose fields all are words: copying bytes that
    /// were just stored as others waits for the store.)
    verified: bool,
    /// A segment was left behind since it was last asked.
    crossed: bool,
    /// Where a backlog is read ahead to when only short windows may be mapped.
    ahead: Option<Window>,
    /// `window` is that.
    is_ahead: bool,
    /// Bytes of a record that does not lie in one window.
    scratch: Vec<u8>,
    /// What `scratch` holds.
    scratch_seq: Option<u64>,
}

impl<F: StorageFile> Cursor<F> {
    pub(crate) fn new(spot: Spot) -> Cursor<F> {
        Cursor {
            position: spot.position,
            seq: spot.seq,
            limit: 0,
            pause: SHORTEST_PAUSE,
            segment: None,
            window: None,
            window_base: 0,
            window_end: 0,
            lending: false,
            asked_at: u64::MAX,
            found: None,
            verified: false,
            crossed: false,
            ahead: None,
            is_ahead: false,
            scratch: Vec::new(),
            scratch_seq: None,
        }
    }

    pub(crate) fn spot(&self) -> Spot {
        Spot { position: self.position, seq: self.seq }
    }

    /// End of the segment the place lies in.
    pub(crate) fn segment_end(&self) -> u64 {
        self.segment.as_ref().map_or(self.position, |segment| segment.header.end())
    }

    pub(crate) fn may_lend(&self) -> bool {
        self.lending
    }

    /// The record at the place, checked; `None` when there is none yet.
    pub(crate) fn find<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<Option<Record>> {
        self.meet_and_keep(core, Check::Now)
    }

    /// The record at the place by its header alone.
    pub(crate) fn find_header<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<Option<Record>> {
        self.meet_and_keep(core, Check::Never)
    }

    fn meet_and_keep<S: Storage<File = F>>(&mut self, core: &Core<S>, check: Check) -> Result<Option<Record>> {
        let met = self.meet(core, check).map_err(|error| *error)?;
        self.found = met;
        Ok(met)
    }

    /// The record at the place, its payload checked as `check` says. To be stepped over or kept.
    ///
    /// The error is boxed: a result that fits registers spares the quick way a detour through memory.
    #[inline(always)]
    pub(crate) fn meet<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Result<Option<Record>, Box<Error>> {
        if let Some(record) = self.found
            && self.is_at_hand(&record, check)
        {
            return Ok(Some(record));
        }
        if let Some(record) = self.find_quickly(core, check == Check::Now) {
            return Ok(Some(record));
        }
        let found = self.find_slowly(core, check != Check::Never)?;
        Ok(if found { self.found } else { None })
    }

    /// Whether the record that was found can be delivered without being looked for again. The pieces of one that does not lie in
    /// the window are at hand until they are given away; they may be gone from the queue since.
    #[inline(always)]
    fn is_at_hand(&self, record: &Record, check: Check) -> bool {
        match check {
            Check::Never => true,
            _ if record.in_window.is_none() => self.scratch_seq == Some(record.seq),
            Check::Later => true,
            Check::Now => self.verified,
        }
    }

    /// A whole record that lies in the window. Anything else is left to [`find_slowly`](Self::find_slowly).
    #[inline(always)]
    fn find_quickly<S: Storage<File = F>>(&mut self, core: &Core<S>, verify: bool) -> Option<Record> {
        if self.position >= self.limit {
            self.limit = core.visible.position.load(Ordering::Acquire);
            if self.position >= self.limit {
                return None;
            }
        }
        if self.position + FRAGMENT_HEADER_LEN > self.window_end {
            return None;
        }
        let (window, segment) = (self.window.as_ref()?, self.segment.as_ref()?);
        let offset = self.position.wrapping_sub(self.window_base) as usize;
        let [first, second] = window.load_pair(offset);
        let words = FragmentWords(first, second);
        let (fragment, state) = Fragment::decode(words, segment.seed, self.position - segment.header.base)?;
        let end = self.position + fragment.total_len();
        if fragment.kind != Kind::Whole || end > self.window_end || end > self.limit || !fragment.is_numbered(self.seq)
        {
            return None;
        }
        let payload = offset + FRAGMENT_HEADER_LEN as usize;
        let ends = words.payload_state();
        if verify && window.crc32c(state, payload, fragment.len as usize) != ends {
            return None;
        }
        let len = u64::from(fragment.len);
        self.verified = verify;
        Some(Record { seq: self.seq, len, in_window: Some(payload), end, begins: state, ends })
    }

    /// Steps over the record that was found.
    pub(crate) fn advance(&mut self) {
        if let Some(record) = self.found {
            self.step_over(&record);
        }
    }

    /// Steps over the record at the place.
    #[inline(always)]
    pub(crate) fn step_over(&mut self, record: &Record) {
        self.found = None;
        self.position = record.end;
        self.seq = record.seq + 1;
        if record.in_window.is_none() && self.segment.as_ref().is_some_and(|s| s.header.end() <= record.end) {
            // A record in several pieces: the segments of the first ones are behind.
            self.leave(record.end);
        }
    }

    /// Keeps the record at the place for the next time.
    #[inline(always)]
    pub(crate) fn keep(&mut self, record: &Record) {
        if self.found.is_none() {
            self.found = Some(*record);
        }
    }

    /// The window the record lies in.
    pub(crate) fn window(&mut self) -> Option<&mut Window> {
        self.window.as_mut()
    }

    /// Puts the payload of the record in place of what `out` holds; one that is taken may leave by exchange of buffers. False
    /// when it does not hold what was written: then `out` is empty, and it is to be looked for again, checked.
    #[inline(always)]
    pub(crate) fn copy_to(&mut self, record: &Record, taken: bool, out: &mut Vec<u8>) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, &self.window) else {
            return self.copy_gathered(record, taken, out);
        };
        out.clear();
        let len = record.len as usize;
        if self.verified {
            window.append_to(offset, len, out);
        } else if window.append_checked(offset, len, record.begins, out) == record.ends {
            self.verified = true;
        } else {
            out.clear();
            return false;
        }
        true
    }

    #[cold]
    fn copy_gathered(&mut self, record: &Record, taken: bool, out: &mut Vec<u8>) -> bool {
        if self.scratch_seq != Some(record.seq) {
            out.clear();
            return false;
        }
        if taken {
            // Spares the copy.
            std::mem::swap(&mut self.scratch, out);
            self.scratch_seq = None;
        } else {
            out.clear();
            out.extend_from_slice(&self.scratch);
        }
        self.trim_scratch();
        true
    }

    /// Copies the record's payload into `out`, which is as long as it. False as for [`copy_to`](Self::copy_to).
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) fn copy_into(&mut self, record: &Record, out: &mut [u8]) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, &self.window) else {
            return self.copy_gathered_into(record, out);
        };
        if self.verified {
            window.copy_out(offset, out);
        } else {
            self.verified = window.copy_out_checked(offset, out, record.begins) == record.ends;
        }
        self.verified
    }

    /// The payload of the record that was found was checked.
    #[cfg(feature = "capi")]
    #[inline]
    pub(crate) fn is_verified(&self) -> bool {
        self.verified
    }

    #[cfg(feature = "capi")]
    #[cold]
    fn copy_gathered_into(&mut self, record: &Record, out: &mut [u8]) -> bool {
        if self.scratch_seq != Some(record.seq) {
            return false;
        }
        out.copy_from_slice(&self.scratch);
        self.trim_scratch();
        true
    }

    /// The payload of a record in several pieces, on its own; `None` when it was given away before.
    pub(crate) fn take_gathered(&mut self, record: &Record) -> Option<Vec<u8>> {
        (self.scratch_seq.take() == Some(record.seq)).then(|| std::mem::take(&mut self.scratch))
    }

    /// A long message must not leave its length behind in memory for ever.
    fn trim_scratch(&mut self) {
        if self.scratch.capacity() > SCRATCH_KEPT {
            self.scratch = Vec::new();
            self.scratch_seq = None;
        }
    }

    #[cold]
    #[inline(never)]
    fn find_slowly<S: Storage<File = F>>(&mut self, core: &Core<S>, verify: bool) -> Result<bool, Box<Error>> {
        Ok(self.search(core, verify)?.is_some())
    }

    /// Whatever lies at the place; a record is left in `found`.
    fn search<S: Storage<File = F>>(&mut self, core: &Core<S>, verify: bool) -> Result<Option<Record>> {
        self.found = None;
        loop {
            self.limit = core.visible.position.load(Ordering::Acquire);
            if self.position >= self.limit {
                (0..self.pause).for_each(|_| std::hint::spin_loop());
                self.limit = core.visible.position.load(Ordering::Acquire);
                let came = core.visible.seq.load(Ordering::Relaxed).saturating_sub(self.seq);
                let pauses = u64::from(self.pause);
                if came.saturating_mul(STREAM) >= pauses {
                    self.pause = (2 * self.pause).min(LONGEST_PAUSE);
                } else if came.saturating_mul(TRICKLE) < pauses {
                    self.pause = (self.pause / 2).max(SHORTEST_PAUSE);
                }
                if self.position >= self.limit {
                    if came == 0 {
                        return Ok(None);
                    }
                    // A producer publishes the number first; or else numbers are missing right before the end.
                    let end = core.visible_end();
                    if self.position >= end.position {
                        self.go_to(core, end)?;
                        return Ok(None);
                    }
                    self.limit = end.position;
                }
            }
            if !self.enter_segment(core)? {
                // Nothing holds the place: all before the end of what is visible is gone, unless a segment came meanwhile.
                let end = core.visible_end();
                self.limit = end.position;
                if self.enter_segment(core)? {
                    continue;
                }
                self.go_to(core, end)?;
                continue;
            }
            let Some(segment) = self.segment.clone() else {
                continue;
            };
            let end = segment.header.end().min(self.limit);
            if self.position + FRAGMENT_HEADER_LEN > segment.header.end() {
                self.leave(segment.header.end());
                continue;
            }
            self.take_window(core, &segment)?;
            if let Some(record) = self.find_quickly(core, verify) {
                self.found = Some(record);
                return Ok(Some(record));
            }
            let mut scan = Scan::new(&segment.file, &segment.header, end.min(segment.allocated_end()));
            let io = |error| Error::io("read", core.storage.path().join(segment.name()), error);
            let seen = scan.header_at(self.position).map_err(io)?;
            let Some(seen) = seen else {
                self.resynchronise(core, &mut scan, end)?;
                continue;
            };
            let number = seen.fragment.seq_from(self.seq);
            match seen.fragment.kind {
                Kind::Padding if scan.payload_holds(&seen).map_err(io)? && number == self.seq => {
                    self.position = seen.end();
                }
                Kind::Middle | Kind::Last
                    if self.position == segment.header.base && seen.fragment.is_numbered(self.seq.wrapping_sub(1)) =>
                {
                    // The rest of a record that was taken, or told to be missing, with what came before.
                    self.position = seen.end();
                }
                Kind::Gap if scan.payload_holds(&seen).map_err(io)? => {
                    self.position = seen.end();
                    self.step_to(core, number, Some(GapCause::Unflushed))?;
                }
                Kind::Whole | Kind::First if seen.fragment.is_numbered(self.seq) => {
                    drop(scan);
                    match self.assemble(core, verify)? {
                        Some(record) => {
                            self.found = Some(record);
                            self.verified = verify;
                            return Ok(Some(record));
                        }
                        None => {
                            let mut scan = Scan::new(&segment.file, &segment.header, end.min(segment.allocated_end()));
                            self.resynchronise(core, &mut scan, end)?;
                        }
                    }
                }
                _ => self.resynchronise(core, &mut scan, end)?,
            }
        }
    }

    /// Opens the segment that holds the place, or the next one behind it; false when there is none. Tells of numbers
    /// missing before it.
    fn enter_segment<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<bool> {
        loop {
            if let Some(segment) = &self.segment {
                let end = segment.header.end();
                if self.position < end {
                    return Ok(true);
                }
                self.leave(end);
            }
            let mut list = core.segments.list();
            // Of one that begins behind what is visible nothing need be committed: it may go again, and another begin there.
            let Some(row) = list.at(self.position).filter(|row| row.header.base < self.limit) else {
                return Ok(false);
            };
            let opened = list.open(&core.storage, &row);
            match opened {
                Ok(segment) => {
                    if list.has_many_open() {
                        // Consumers that stand in other segments let go of theirs: the engine sees to it.
                        core.many_open.store(true, Ordering::Relaxed);
                        self.crossed = true;
                    }
                    // What was given up may end in the first segment there is: told as one gap.
                    let whole = (self.position < row.header.base && row.header.gap_before == 0)
                        .then(|| list.first_whole(&core.storage))
                        .flatten()
                        .filter(|(position, _)| (row.header.base + 1..row.header.end()).contains(position));
                    drop(list);
                    let before = self.position;
                    self.segment = Some(segment);
                    self.position = self.position.max(row.header.base);
                    if let Some((position, seq)) = whole
                        && self.seq < seq
                        && core.gaps.cause_of(self.seq).1 == seq
                    {
                        self.position = position;
                        self.step_to(core, seq, None)?;
                    }
                    if self.position == row.header.base && self.seq < row.header.first_seq {
                        let told = self.step_before(core, &row.header);
                        if self.seq < row.header.first_seq {
                            // The rest is missing for another cause. The place stays before it: after a power cut some of it may
                            // be there again.
                            self.release();
                            self.position = before;
                        }
                        return told.map(|()| true);
                    }
                    return Ok(true);
                }
                Err(Lost::Io(error)) => {
                    let path = core.storage.path().join(segment_name(row.slot));
                    return Err(Error::io("open", path, error));
                }
                Err(Lost::Gone) => {
                    list.look_for(&core.storage, &core.index, row.header.life);
                }
            }
        }
    }

    /// The numbers before a segment's first one: lost with what was before them, and those the segment itself says were
    /// never to come.
    fn step_before<S: Storage<File = F>>(&mut self, core: &Core<S>, header: &SegmentHeader) -> Result<()> {
        let stated_from = header.first_seq - header.gap_before;
        if self.seq < stated_from {
            // The next read meets the rest, still before the segment.
            return self.step_to(core, stated_from, None);
        }
        let reserved_from = header.first_seq - header.reserved;
        if self.seq < reserved_from {
            return self.step_to(core, reserved_from, Some(GapCause::from_number(header.cause)));
        }
        self.step_to(core, header.first_seq, Some(GapCause::Reserved))
    }

    /// Goes to the end of what is visible: nothing is left between. Where numbers are missing for more than one cause the place stays
    /// before it until all are told.
    fn go_to<S: Storage<File = F>>(&mut self, core: &Core<S>, end: Spot) -> Result<()> {
        let told = self.step_to(core, end.seq, None);
        if self.seq >= end.seq {
            self.position = self.position.max(end.position);
        }
        told
    }

    /// Moves to the number `seq`, telling of those passed over. Numbers whose cause nobody stored are dropped or expired
    /// when they lie below those marks, else damaged; where the cause changes, the rest is told by the next read.
    fn step_to<S: Storage<File = F>>(&mut self, core: &Core<S>, seq: u64, cause: Option<GapCause>) -> Result<()> {
        if seq <= self.seq {
            return Ok(());
        }
        let (cause, below) = cause.map_or_else(|| core.gaps.cause_of(self.seq), |cause| (cause, u64::MAX));
        let next = seq.min(below);
        let gap = Gap { first: self.seq, last: next - 1, cause };
        self.seq = next;
        Err(Error::Gap(gap))
    }

    /// What lies at the place is damaged: goes to the next intact record of the segment, or behind the segment.
    #[cold]
    fn resynchronise<S: Storage<File = F>>(&mut self, core: &Core<S>, scan: &mut Scan<'_, F>, end: u64) -> Result<()> {
        let segment_end = self.segment.as_ref().map_or(end, |segment| segment.header.end());
        let below = core.visible.seq.load(Ordering::Acquire);
        let from = self.position + format::ALIGN;
        let found = scan
            .search(from, self.seq, below)
            .map_err(|error| Error::io("read", core.storage.path().to_path_buf(), error))?;
        match found {
            Some((seen, number)) => {
                self.position = seen.position;
                self.step_to(core, number, None)
            }
            None if segment_end <= self.limit => {
                self.leave(segment_end);
                Ok(())
            }
            None => {
                #[cfg(test)]
                crate::tests::sim::reached("behind a search that found nothing");
                let tail = core.visible_end();
                if tail.position > self.limit {
                    // Messages came since the search was given its limit: they are intact, and it is made again.
                    return Ok(());
                }
                // The damage reaches to the tail.
                self.go_to(core, tail)
            }
        }
    }

    /// The record at the place, read without a window: it lies in several pieces, or where no window can be had. With
    /// `verify` its payload is gathered in `scratch`. `None` when it is damaged.
    fn assemble<S: Storage<File = F>>(&mut self, core: &Core<S>, verify: bool) -> Result<Option<Record>> {
        let mut position = self.position;
        let mut len = 0;
        let (mut first, mut chain) = (true, 0);
        let Some(mut segment) = self.segment.clone() else {
            return Ok(None);
        };
        // What the buffer held is overwritten, not cleared first.
        let mut filled = 0;
        self.scratch_seq = None;
        loop {
            let limit = self.limit.min(segment.header.end()).min(segment.allocated_end());
            let io = |error| Error::io("read", core.storage.path().join(segment.name()), error);
            if position + FRAGMENT_HEADER_LEN > limit {
                return Ok(None);
            }
            let offset = segment.offset(position);
            let mut head = [0; FRAGMENT_HEADER_LEN as usize];
            crate::storage::read_full(&segment.file, &mut head, offset).map_err(io)?;
            let decoded = crate::segment::scan::words(&head)
                .and_then(|words| Some((words, Fragment::decode(words, segment.seed, offset - SEGMENT_HEADER_LEN)?)));
            let Some((words, (fragment, state))) = decoded else {
                return Ok(None);
            };
            let fits = position + fragment.total_len() <= limit;
            let expected = if first {
                matches!(fragment.kind, Kind::Whole | Kind::First)
            } else {
                matches!(fragment.kind, Kind::Middle | Kind::Last)
            };
            if !fits || !expected || !fragment.is_numbered(self.seq) {
                return Ok(None);
            }
            if verify {
                let end = filled + fragment.len as usize;
                // Bounded by the bytes the file really has.
                if self.scratch.len() < end {
                    self.scratch.resize(end, 0);
                }
                let piece = &mut self.scratch[filled..end];
                filled = end;
                let read = crate::storage::read_full(&segment.file, piece, offset + FRAGMENT_HEADER_LEN).map_err(io)?;
                if read < piece.len() || !Fragment::holds(words, crc32c(state ^ chain, piece)) {
                    return Ok(None);
                }
            }
            chain = words.crc();
            len += u64::from(fragment.len);
            position += fragment.total_len();
            if matches!(fragment.kind, Kind::Whole | Kind::Last) {
                break;
            }
            first = false;
            let mut list = core.segments.list();
            let Some(row) = list.at(position.max(segment.header.end())) else {
                return Ok(None);
            };
            if row.header.base != segment.header.end() {
                // The segment between is lost, and with it a piece of the record.
                return Ok(None);
            }
            position = row.header.base;
            segment = match list.open_anywhere(&core.storage, &core.index, &row) {
                Ok(segment) => segment,
                Err(Lost::Gone) => return Ok(None),
                Err(Lost::Io(error)) => {
                    return Err(Error::io("open", core.storage.path().join(segment_name(row.slot)), error));
                }
            };
        }
        if verify {
            self.scratch.truncate(filled);
            self.scratch_seq = Some(self.seq);
        }
        Ok(Some(Record { seq: self.seq, len, in_window: None, end: position, begins: 0, ends: 0 }))
    }

    /// Goes on behind the segment.
    fn leave(&mut self, end: u64) {
        self.position = self.position.max(end);
        self.crossed = true;
        self.release();
    }

    /// Whether a segment was left behind since the last call.
    #[inline]
    pub(crate) fn take_crossed(&mut self) -> bool {
        std::mem::take(&mut self.crossed)
    }

    /// The life of the segment that is held open.
    pub(crate) fn holds(&self) -> Option<u64> {
        self.segment.as_ref().map(|segment| segment.header.life)
    }

    /// Lets go of a window that messages cannot be lent from: the next read asks for a better one.
    pub(crate) fn reconsider_window(&mut self) {
        if !self.lending && !self.is_ahead {
            self.window = None;
            self.window_end = 0;
            self.found = None;
        }
    }

    /// Lets go of the segment and the window; the place stays.
    pub(crate) fn release(&mut self) {
        self.keep_ahead();
        self.segment = None;
        self.window = None;
        self.window_end = 0;
        self.lending = false;
        self.found = None;
    }

    /// Goes to another place.
    pub(crate) fn move_to(&mut self, spot: Spot) {
        self.release();
        self.position = spot.position;
        self.seq = spot.seq;
        self.limit = 0;
        self.scratch_seq = None;
    }

    /// The window the place lies in. Without one, records are read by read calls.
    fn take_window<S: Storage<File = F>>(&mut self, core: &Core<S>, segment: &Arc<Segment<F>>) -> Result<()> {
        let geometry = core.pool.geometry();
        if geometry.window_len < geometry.segment_len && self.limit - self.position >= geometry.window_len {
            return self.read_ahead(core, segment);
        }
        self.keep_ahead();
        let offset = segment.offset(self.position);
        let window_len = core.pool.geometry().window_len;
        let number = offset / window_len;
        let start = number * window_len;
        let base = segment.header.base.wrapping_sub(SEGMENT_HEADER_LEN).wrapping_add(start);
        let valid_end =
            |len: u64| base.wrapping_add((start + len).min(segment.allocated()) - start).min(segment.header.end());
        if let Some(window) = &self.window
            && self.window_base == base
        {
            // The same window: only more of it may be allocated by now.
            self.window_end = valid_end(window.len() as u64);
            return Ok(());
        }
        self.window = None;
        self.window_end = 0;
        self.lending = false;
        if start >= segment.allocated() {
            return Ok(());
        }
        let granted = core
            .pool
            .get(&segment.file, segment.header.life, number, segment.header.length, || segment.allocated(), true)
            .map_err(|error| Error::io("map", core.storage.path().join(segment.name()), error))?;
        if !granted.as_ref().is_some_and(|granted| granted.lending) && self.asked_at != base {
            // Consumers that only stand there may have what is wanted here: the engine sees to it.
            self.asked_at = base;
            core.window_wanted.store(true, Ordering::Relaxed);
            self.crossed = true;
        }
        if let Some(granted) = granted {
            self.window_base = base;
            self.window_end = valid_end(granted.window.len() as u64);
            self.lending = granted.lending;
            self.window = Some(granted.window);
        }
        Ok(())
    }

    /// Reads what comes next, committed all, into a window of the cursor's own: mapping and unmapping a short window at a time
    /// costs ten times as much.
    fn read_ahead<S: Storage<File = F>>(&mut self, core: &Core<S>, segment: &Arc<Segment<F>>) -> Result<()> {
        self.keep_ahead();
        self.window = None;
        self.window_end = 0;
        self.lending = false;
        let end = segment.header.end().min(self.limit).min(segment.allocated_end());
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => Window::private(READ_AHEAD).map_err(|error| Error::io("map", core.storage.path(), error))?,
        };
        let len = end.saturating_sub(self.position).min(ahead.len() as u64) as usize;
        let offset = segment.offset(self.position);
        let read = ahead
            .with_mut(0, len, |bytes| crate::storage::read_full(&segment.file, bytes, offset))
            .map_err(|error| Error::io("read", core.storage.path().join(segment.name()), error))?;
        self.window_base = self.position;
        self.window_end = self.position + read as u64;
        self.window = Some(ahead);
        self.is_ahead = true;
        Ok(())
    }

    /// Keeps the window of the cursor's own for the next time.
    fn keep_ahead(&mut self) {
        if std::mem::take(&mut self.is_ahead) {
            self.ahead = self.window.take();
            self.window_end = 0;
        }
    }

    /// The place of the message `seq`, if it is still held: from the beginning of its segment over the headers.
    pub(crate) fn seek<S: Storage<File = F>>(core: &Core<S>, rows: &[Row], seq: u64) -> Result<Option<Spot>> {
        // A segment whose first number it is may begin with the end of it: the message itself begins before.
        let at = rows.partition_point(|row| row.header.first_seq < seq);
        let row = at.checked_sub(1).map_or_else(|| rows.first(), |at| rows.get(at));
        let Some(row) = row.filter(|row| row.header.first_seq <= seq) else {
            return Ok(None);
        };
        let mut cursor: Cursor<F> = Cursor::new(Spot { position: row.header.base, seq: row.header.first_seq });
        loop {
            if cursor.seq >= seq {
                return Ok(Some(cursor.spot()));
            }
            match cursor.find_header(core) {
                Ok(Some(_)) => cursor.advance(),
                // It lies in a gap that reaches to the tail.
                Ok(None) => return Ok(Some(cursor.spot())),
                Err(Error::Gap(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
