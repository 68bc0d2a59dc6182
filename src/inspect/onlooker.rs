//! Reads messages one after the other, and reports them as a consumer's reads would.
//!
//! This repeats the reader's work (`read/search.rs`) with calls only, for files that another
//! process may be changing. A test compares both: for any crash image an onlooker reports what a
//! consumer's reads report after the next opening.

use std::io;
use std::time::Duration;

use super::batch::BatchRead;
use super::picture::{Picture, Users};
use crate::error::{Error, Gap, GapCause, Result};
use crate::format::{
    ALIGN, FRAGMENT_HEADER_LEN, Kind, Origin, SEGMENT_HEADER_LEN, SegmentHeader, Spot,
    segment_name, segment_slot,
};
use crate::segment::lies::Lies;
use crate::segment::scan::{Intact, ReadAhead, Scan};
use crate::segment::{Lost, Opened, Row, open_life, present};
use crate::state::Gaps;
use crate::storage::{Storage, StorageFile};
use crate::threads::park_timeout;

/// How often an invalid header is read again: its holder may be writing it.
pub(super) const MOST_TORN_HEADERS: usize = 20;
pub(super) const TORN_HEADER_PAUSE: Duration = Duration::from_micros(50);

/// What an onlooker reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reported {
    Message {
        seq: u64,
        payload: Vec<u8>,
        /// The origin, if the message is a dead letter.
        origin: Option<Origin>,
        /// When its segment was begun, in milliseconds since 1970.
        created: u64,
    },
    Gap(Gap),
    /// The holder reclaimed these messages during the reading: another segment uses their file, or
    /// the file is gone.
    Overtaken {
        first: u64,
        last: u64,
    },
}

/// Reads the messages of a [`Picture`], one after the other.
#[derive(Debug)]
pub(crate) struct Onlooker<F> {
    live: Vec<Row>,
    gaps: Gaps,
    end: Spot,
    at: Spot,
    open: Option<AtHand<F>>,
    users: Users,
    /// Every consumer has passed the numbers below this one.
    passed: u64,
    batch: BatchRead,
}

/// The open segment.
#[derive(Debug)]
struct AtHand<F> {
    row: Row,
    file: F,
    /// The position where the file ends.
    end: u64,
    ahead: ReadAhead,
}

impl<F> AtHand<F> {
    fn new(row: Row, opened: Opened<F>) -> AtHand<F> {
        let bytes = opened.allocated.saturating_sub(SEGMENT_HEADER_LEN) / ALIGN * ALIGN;
        let end = row.header.base + bytes;
        AtHand { row, file: opened.file, end, ahead: ReadAhead::default() }
    }
}

/// The result of a step. `None`: the step moved the position and reports nothing.
type Stepped = Result<Option<Reported>>;

impl<F: StorageFile> Onlooker<F> {
    /// An onlooker from `at` to the tail of the picture.
    pub(crate) fn new(picture: Picture, at: Spot) -> Onlooker<F> {
        let places = picture.consumers.iter().map(|consumer| consumer.place.seq);
        let passed = places.min().unwrap_or(0);
        let Picture { live, gaps, tail: end, users, .. } = picture;
        Onlooker { live, gaps, end, at, open: None, users, passed, batch: BatchRead::default() }
    }

    /// An onlooker that begins at the message `seq`: it passes the messages before it in its
    /// segment.
    pub(crate) fn from_number<S: Storage<File = F>>(
        storage: &S,
        picture: Picture,
        seq: u64,
    ) -> Result<Onlooker<F>> {
        let rows = &picture.live;
        // A segment whose first number is `seq` may begin with the message's end.
        let at = rows.partition_point(|row| row.header.first_seq < seq).saturating_sub(1);
        let from = match rows.get(at) {
            Some(row) if row.header.first_seq <= seq => {
                Spot { position: row.header.base, seq: row.header.first_seq }
            }
            _ => picture.oldest(),
        };
        let mut reading = Onlooker::new(picture, from);
        while reading.at.seq < seq && reading.next(storage)?.is_some() {}
        Ok(reading)
    }

    /// The present position.
    pub(crate) fn at(&self) -> Spot {
        self.at
    }

    /// Takes the position where a batch with a wrong seal ended, if not reported yet.
    pub(crate) fn take_broken_seal(&mut self) -> Option<u64> {
        self.batch.broken.take()
    }

    /// Returns the next message or gap; `None` at the end.
    pub(crate) fn next<S: Storage<File = F>>(&mut self, storage: &S) -> Result<Option<Reported>> {
        while self.at.seq < self.end.seq || self.at.position < self.end.position {
            if let Some(reported) = self.step(storage)? {
                return Ok(Some(reported));
            }
        }
        Ok(None)
    }

    fn step<S: Storage<File = F>>(&mut self, storage: &S) -> Stepped {
        if self.at.position >= self.end.position {
            return Ok(self.pass_to_end());
        }
        let Some(row) = self.segment_at(self.at.position) else {
            return Ok(self.pass_to_end());
        };
        if self.open.as_ref().is_none_or(|open| open.row.header.life != row.header.life) {
            return self.enter(storage, row);
        }
        if self.at.position + FRAGMENT_HEADER_LEN > row.header.end() {
            self.cross(&row);
            return Ok(None);
        }
        self.meet_fragment(storage, &row)
    }

    /// The segment that contains `position`, or else the next one.
    pub(crate) fn segment_at(&self, position: u64) -> Option<Row> {
        let at = self.live.partition_point(|row| row.header.end() <= position);
        self.live.get(at).copied()
    }

    fn cross(&mut self, row: &Row) {
        self.at.position = self.at.position.max(row.header.end());
        self.open = None;
    }

    /// Opens the segment. Reports the missing numbers before it.
    fn enter<S: Storage<File = F>>(&mut self, storage: &S, row: Row) -> Stepped {
        let opened = open_life(storage, row.slot, &row.header);
        let Some(opened) = present(storage, row.slot, opened)? else {
            let is_elsewhere = self.finds_elsewhere(storage, &row);
            return Ok(if is_elsewhere { None } else { self.leave_lost(storage, &row) });
        };
        let (before, base) = (self.at, row.header.base);
        self.at.position = before.position.max(base);
        if self.at.position == base && self.at.seq < row.header.first_seq {
            let reported = self.pass_to_first(&row);
            if self.at.seq < row.header.first_seq {
                self.at.position = before.position;
                return Ok(reported);
            }
            self.open = Some(AtHand::new(row, opened));
            return Ok(reported);
        }
        self.open = Some(AtHand::new(row, opened));
        Ok(None)
    }

    /// Looks for the segment under another name, and notes that name. In a queue in use no process
    /// renames files.
    fn finds_elsewhere<S: Storage<File = F>>(&mut self, storage: &S, row: &Row) -> bool {
        if self.users.came(storage) {
            return false;
        }
        let listed = storage.list().unwrap_or_default();
        let mut slots = listed.iter().filter_map(|listed| segment_slot(&listed.name));
        let found =
            slots.find(|slot| *slot != row.slot && open_life(storage, *slot, &row.header).is_ok());
        let at = self.live.partition_point(|other| other.header.base < row.header.base);
        match (found, self.live.get_mut(at)) {
            (Some(slot), Some(row)) => row.slot = slot,
            _ => return false,
        }
        true
    }

    /// Leaves a segment whose file is gone, or used by another segment.
    fn leave_lost<S: Storage>(&mut self, storage: &S, row: &Row) -> Option<Reported> {
        self.open = None;
        self.batch.seal = None;
        let behind = self.live.partition_point(|other| other.header.base <= row.header.base);
        let next = self.live.get(behind).map(|next| (next.header.base, next.header.missing_from()));
        self.live.retain(|other| other.header.life != row.header.life);
        if !self.users.came(storage) {
            return None;
        }
        let (base, seq) = next.unwrap_or((self.end.position, self.end.seq));
        self.at.position = self.at.position.max(base.min(self.end.position));
        (self.at.seq < seq).then(|| {
            let first = std::mem::replace(&mut self.at.seq, seq);
            Reported::Overtaken { first, last: seq - 1 }
        })
    }

    /// Moves to the number `seq` and reports the numbers between as a gap. Without another known
    /// cause, numbers that every consumer has passed count as taken (`Overtaken`), unlike in
    /// `read::pass_gaps::pass_to`.
    fn pass_to(&mut self, seq: u64, stated: Option<GapCause>) -> Option<Reported> {
        if seq <= self.at.seq {
            return None;
        }
        let known = || self.gaps.cause_of(self.at.seq);
        let (cause, below) = stated.map_or_else(known, |cause| (cause, u64::MAX));
        let is_taken = stated.is_none() && cause == GapCause::Damaged && self.open.is_none();
        if is_taken && self.at.seq < self.passed {
            let next = seq.min(below).min(self.passed);
            let first = std::mem::replace(&mut self.at.seq, next);
            return Some(Reported::Overtaken { first, last: next - 1 });
        }
        let next = seq.min(below);
        let first = std::mem::replace(&mut self.at.seq, next);
        Some(Reported::Gap(Gap { first, last: next - 1, cause }))
    }

    fn pass_to_first(&mut self, row: &Row) -> Option<Reported> {
        let header = &row.header;
        let (end, cause) = header.missing.next_end(header.first_seq, self.at.seq);
        self.pass_to(end, cause)
    }

    fn pass_to_end(&mut self) -> Option<Reported> {
        let reported = self.pass_to(self.end.seq, None);
        if self.at.seq >= self.end.seq {
            self.at.position = self.at.position.max(self.end.position);
        }
        reported
    }

    fn meet_fragment<S: Storage<File = F>>(&mut self, storage: &S, row: &Row) -> Stepped {
        let Some(AtHand { file, end, ahead, .. }) = &mut self.open else {
            return Ok(None);
        };
        let io = |error| failed(storage, row, error);
        let limit = self.end.position.min(*end);
        let mut scan = Scan::new(&*file, &row.header, limit).reading_on(ahead);
        let seq = self.at.seq;
        match scan.lies_at(self.at).map_err(io)? {
            Lies::Padding(seen) => {
                self.at.position = seen.end();
                Ok(None)
            }
            Lies::Rest(seen) if seen.fragment.is_numbered(seq.wrapping_sub(1)) => {
                self.at.position = seen.end();
                Ok(None)
            }
            Lies::Gap(seen, number) => {
                self.at.position = seen.end();
                Ok(self.pass_to(number, Some(GapCause::Unflushed)))
            }
            Lies::Record(seen) => {
                let gathered = self.gather(storage, row, seen)?;
                match gathered {
                    Some((mut payload, end)) => {
                        let has_origin = seen.fragment.has_origin;
                        let origin = has_origin.then(|| Origin::take_off(&mut payload)).flatten();
                        self.at = Spot { position: end, seq: seq + 1 };
                        if end >= row.header.end() {
                            self.open = None;
                        }
                        let created = row.header.created;
                        Ok(Some(Reported::Message { seq, payload, origin, created }))
                    }
                    None => self.resynchronise(storage, row),
                }
            }
            _ => self.resynchronise(storage, row),
        }
    }

    /// Returns the payload of the record that begins with `first` in `row`, and the position after
    /// it. `None` when the record is damaged.
    fn gather<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        row: &Row,
        first: Intact,
    ) -> Result<Option<(Vec<u8>, u64)>> {
        let mut payload = Vec::new();
        let Some(AtHand { file, end, ahead, .. }) = &mut self.open else {
            return Ok(None);
        };
        let limit = self.end.position.min(*end);
        let mut scan = Scan::new(&*file, &row.header, limit).reading_on(ahead);
        let io = |error| failed(storage, row, error);
        if !scan.copy(&first, 0, &mut payload).map_err(io)? {
            return Ok(None);
        }
        self.batch.add(&first, &mut scan).map_err(io)?;
        let (mut last, mut row) = (first, *row);
        while matches!(last.fragment.kind, Kind::First | Kind::Middle) {
            let end = row.header.end();
            let Some(next) = self.segment_at(end).filter(|next| next.header.base == end) else {
                return Ok(None);
            };
            let open = match open_life(storage, next.slot, &next.header) {
                Ok(opened) => AtHand::new(next, opened),
                Err(Lost::Gone) if self.finds_elsewhere(storage, &next) => continue,
                Err(Lost::Gone) => return Ok(None),
                Err(Lost::Io(error)) => return Err(failed(storage, &next, error)),
            };
            let io = |error| failed(storage, &next, error);
            let mut scan = Scan::new(&open.file, &next.header, self.end.position.min(open.end));
            let Some(seen) = scan.header_at(end).map_err(io)? else {
                return Ok(None);
            };
            let continues = matches!(seen.fragment.kind, Kind::Middle | Kind::Last)
                && seen.fragment.is_numbered(self.at.seq);
            if !continues || !scan.copy(&seen, last.checksum(), &mut payload).map_err(io)? {
                return Ok(None);
            }
            self.batch.add(&seen, &mut scan).map_err(io)?;
            (last, row) = (seen, next);
        }
        Ok(Some((payload, last.end())))
    }

    /// Whether the holder reclaimed the segment: its file is gone, or used by another segment. The
    /// holder may be writing a header that does not validate.
    fn is_given_back<S: Storage<File = F>>(&self, storage: &S, row: &Row) -> bool {
        let SegmentHeader { life, queue_id, .. } = row.header;
        let mut header = [0; SEGMENT_HEADER_LEN as usize];
        for _ in 0..MOST_TORN_HEADERS {
            if !self.users.came(storage) {
                return false;
            }
            match storage.read_stored(&segment_name(row.slot), &mut header, 0) {
                Err(error) => return error.kind() == io::ErrorKind::NotFound,
                Ok(_) => match SegmentHeader::decode(&header) {
                    Ok(now) => return (now.life, now.queue_id) != (life, queue_id),
                    Err(_) => park_timeout(TORN_HEADER_PAUSE),
                },
            }
        }
        false
    }

    /// Called where the bytes do not validate for this segment: moves to its next intact record, or
    /// past the segment.
    fn resynchronise<S: Storage<File = F>>(&mut self, storage: &S, row: &Row) -> Stepped {
        // A record of the segment's next life does not validate either.
        if self.is_given_back(storage, row) {
            return Ok(self.leave_lost(storage, row));
        }
        self.batch.seal = None;
        let Some(open) = &self.open else {
            return Ok(None);
        };
        let next = self.segment_at(row.header.end());
        let end = next.map_or(u64::MAX, |next| next.header.first_seq);
        let found = Scan::new(&open.file, &row.header, self.end.position.min(open.end))
            .next_intact(self.at, self.end.seq, || end)
            .map_err(|error| failed(storage, row, error))?;
        // The holder may have reclaimed the segment during the search.
        if self.is_given_back(storage, row) {
            return Ok(self.leave_lost(storage, row));
        }
        if let Some(found) = found {
            self.at.position = found.position;
            return Ok(self.pass_to(found.seq, None));
        }
        if row.header.end() <= self.end.position {
            self.cross(row);
            return Ok(None);
        }
        Ok(self.pass_to_end())
    }
}

fn failed<S: Storage>(storage: &S, row: &Row, error: io::Error) -> Error {
    Error::io("read", storage.path().join(segment_name(row.slot)), error)
}
