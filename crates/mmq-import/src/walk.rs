//! From one record of a bigqueue to the next, up to its tail.
//!
//! A place is stored as two words, the arena first. A process that was killed between the two
//! leaves the new arena with the old offset: such a place is *torn*.

use crate::Progress;
use crate::arenas::{ArenaRecord, Arenas, Fault, RowPlace};
use crate::error::{ImportError, Result};

/// A place as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) id: u64,
    pub(crate) offset: u64,
}

/// How far a walk is, counted from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) place: RowPlace,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// Where a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    /// At the tail.
    Tail,
    /// The tail is torn: at the place that it was to be.
    Torn,
    /// Before the tail, for this reason.
    Stopped(Fault),
    /// Before that many messages of no bytes.
    EmptyRun,
}

/// What a walk found of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadSeen {
    /// The walk ended before it.
    Not,
    /// A boundary.
    Boundary(Mark),
    /// No boundary; this is the last one before it.
    Within(Mark),
}

/// Messages of no bytes one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EmptyStretch {
    pub(crate) from: RowPlace,
    pub(crate) count: u64,
}

/// The walk reports a longer run of messages of no bytes.
const LONG_RUN: u64 = 64;

/// What a walk has found so far.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) now: Mark,
    /// Of each head, in the order of their places.
    pub(crate) seen: Vec<HeadSeen>,
    /// Of each head: where it was before a kill in the middle of a step to its arena.
    pub(crate) before: Vec<Option<Mark>>,
    /// Heads that the walk has passed or reached.
    passed: usize,
    run: Option<(Mark, u64)>,
    /// The first long run, and how many there are.
    pub(crate) long: Option<EmptyStretch>,
    pub(crate) long_runs: u64,
    /// The longest message, and where it is.
    pub(crate) largest: (u64, RowPlace),
}

/// A walk that has ended.
#[derive(Debug)]
pub(crate) struct WalkResult {
    pub(crate) start: RowPlace,
    pub(crate) tally: Tally,
    pub(crate) end: WalkEnd,
}

/// What walks have in common.
#[derive(Debug)]
pub(crate) struct Walker {
    pub(crate) arenas: Arenas,
    pub(crate) tail: Stored,
    /// Sorted by place.
    pub(crate) heads: Vec<RowPlace>,
    /// Messages before it are counted, and not looked at.
    pub(crate) matters_from: RowPlace,
    pub(crate) empty_run: Option<u64>,
}

impl Tally {
    fn new(start: RowPlace, heads: &[RowPlace]) -> Tally {
        let now = Mark { place: start, number: 0, bytes: 0 };
        let mut tally = Tally {
            now,
            seen: vec![HeadSeen::Not; heads.len()],
            before: vec![None; heads.len()],
            passed: 0,
            run: None,
            long: None,
            long_runs: 0,
            largest: (0, start),
        };
        tally.pass(now, heads);
        tally
    }

    /// Heads up to where the walk is now; `last` is the boundary before.
    fn pass(&mut self, last: Mark, heads: &[RowPlace]) {
        let now = self.now;
        while let Some(head) = heads.get(self.passed).filter(|head| **head <= now.place) {
            let seen =
                if *head == now.place { HeadSeen::Boundary(now) } else { HeadSeen::Within(last) };
            if let Some(slot) = self.seen.get_mut(self.passed) {
                *slot = seen;
            }
            self.passed += 1;
        }
    }
}

impl Walker {
    pub(crate) fn tail(&self) -> RowPlace {
        self.arenas.place(self.tail.id, self.tail.offset)
    }

    /// Walks from a boundary to the tail.
    pub(crate) fn walk<E: From<ImportError>>(
        &mut self,
        start: RowPlace,
        progress: &mut Progress<'_, E>,
    ) -> Result<WalkResult, E> {
        let tail = self.tail();
        let last_of_arena = match self.tail.id.checked_add(1) {
            Some(next) => (self.arenas.place(next, 0) - 1).max(tail),
            None => tail,
        };
        let mut tally = Tally::new(start, &self.heads);
        // As it was at the first boundary in the tail's arena, when the tail may be torn.
        let mut suspect: Option<Tally> = None;
        loop {
            let at = tally.now.place;
            progress(u64::try_from(at.saturating_sub(start)).unwrap_or(u64::MAX))?;
            if at == tail {
                return Ok(self.decide(start, tally, WalkEnd::Tail, suspect)?);
            }
            let is_before = self.arenas.id(at) < self.tail.id;
            let limit = if is_before { last_of_arena } else { tail };
            let record = match self.arenas.record(at, limit)? {
                Ok(record) => record,
                Err(fault) => {
                    return Ok(self.decide(start, tally, WalkEnd::Stopped(fault), suspect)?);
                }
            };
            let enters = is_before && self.arenas.id(record.next) == self.tail.id;
            let is_like = enters && self.arenas.offset(at) == self.tail.offset;
            if record.next > tail && !is_like {
                let fault = Fault::Beyond(Some(record.len));
                return Ok(self.decide(start, tally, WalkEnd::Stopped(fault), suspect)?);
            }
            self.step(&mut tally, record);
            if is_like && record.next > tail {
                return Ok(WalkResult { start, tally, end: WalkEnd::Torn });
            }
            if is_like && record.next != tail {
                suspect = Some(tally.clone());
            }
            if let Some((from, count)) = tally.run
                && self.empty_run.is_some_and(|most| count >= most)
            {
                tally.now = from;
                return Ok(self.decide(start, tally, WalkEnd::EmptyRun, suspect)?);
            }
        }
    }

    /// The tail is torn when the walk from the first boundary of its arena does not lead to it, or
    /// leads to it over bytes that were never written.
    fn decide(
        &mut self,
        start: RowPlace,
        tally: Tally,
        end: WalkEnd,
        suspect: Option<Tally>,
    ) -> Result<WalkResult> {
        let Some(suspect) = suspect else { return Ok(WalkResult { start, tally, end }) };
        let is_torn = matches!(end, WalkEnd::Stopped(_))
            || self.arenas.are_zero(suspect.now.place, self.tail())?;
        let torn = WalkResult { start, tally: suspect, end: WalkEnd::Torn };
        Ok(if is_torn { torn } else { WalkResult { start, tally, end } })
    }

    fn step(&self, tally: &mut Tally, record: ArenaRecord) {
        let last = tally.now;
        tally.now = Mark {
            place: record.next,
            number: last.number + 1,
            bytes: last.bytes.saturating_add(record.len),
        };
        tally.pass(last, &self.heads);
        let (from, to) = (self.arenas.id(last.place), self.arenas.id(record.next));
        if from < to {
            let torn = self.arenas.place(to, self.arenas.offset(last.place));
            let first = self.heads.partition_point(|head| *head < torn);
            let like = self.heads.iter().zip(&mut tally.before).skip(first);
            for (_, before) in like.take_while(|(head, _)| **head == torn) {
                *before = Some(last);
            }
        }
        if last.place < self.matters_from {
            return;
        }
        if record.len > tally.largest.0 {
            tally.largest = (record.len, last.place);
        }
        if record.len > 0 {
            tally.run = None;
            return;
        }
        let (start, count) = tally.run.map_or((last, 1), |(start, count)| (start, count + 1));
        tally.run = Some((start, count));
        if count > LONG_RUN {
            tally.long_runs += u64::from(count == LONG_RUN + 1);
            let long = tally.long.get_or_insert(EmptyStretch { from: start.place, count });
            if long.from == start.place {
                long.count = count;
            }
        }
    }
}
