//! bigqueue, all its formats: where its queue begins and ends, and its messages.

use std::path::PathBuf;

use mmq::MAX_MESSAGE_LEN;

use super::arenas::{Arenas, Fault, RowPlace};
use super::detect::{Listing, SourceKind};
use super::metadata::{HeadRow, Metadata};
use super::walk::{HeadSeen, Mark, WalkEnd, WalkResult, Walker};
use super::{Each, Heed, Manner, Notice, Placed, Reach, Survey, Weight};
use crate::ending::Ending;
use crate::failure::{Failure, Tried};
use crate::units::count;

/// The messages of a bigqueue that was checked.
#[derive(Debug)]
pub(crate) struct BigqueueMessages {
    dir: PathBuf,
    /// `None`: no arena was ever made.
    arenas: Option<Arenas>,
    from: Mark,
    to: Mark,
}

/// Checks every record of the walk, and finds each head in it.
pub(crate) fn survey(
    listing: &Listing,
    kind: SourceKind,
    manner: Manner,
    heed: &mut Heed<'_>,
) -> Tried<(Survey, BigqueueMessages)> {
    let mut findings = Vec::new();
    let metadata = Metadata::read(listing, kind, &mut findings)?;
    let dir = listing.dir.clone();
    if metadata.size == 0 {
        let zero = Mark { place: 0, number: 0, bytes: 0 };
        let consumers = metadata.heads.into_iter().map(|head| Placed { name: head.name, seq: 0 });
        let consumers = consumers.collect();
        let survey = Survey { arena_size: None, messages: 0, bytes: 0, consumers, findings };
        return Ok((survey, BigqueueMessages { dir, arenas: None, from: zero, to: zero }));
    }
    let arenas = Arenas::new(listing.arenas(kind), metadata.size);
    let mut heads = metadata.heads;
    heads.sort_by_key(|head| arenas.place(head.stored.id, head.stored.offset));
    let places: Vec<_> =
        heads.iter().map(|head| arenas.place(head.stored.id, head.stored.offset)).collect();
    let lowest = places.first().copied().unwrap_or_default();
    let walker = Walker {
        arenas,
        tail: metadata.tail,
        heads: places,
        matters_from: if manner.extent == Reach::All { 0 } else { lowest },
        empty_run: manner.empty_run,
    };
    let mut search = BigqueueCheck { walker, heads, findings, lowest, extent: manner.extent };
    let walked = search.walk(kind, heed)?;
    search.report_end(&walked);
    let marks = search.places(&walked);
    let BigqueueCheck { walker, heads, findings, .. } = search;
    too_large(&walker, &walked)?;
    let to = walked.tally.now;
    let first = marks.iter().min_by_key(|mark| mark.number).copied();
    let from = match first {
        Some(first) if manner.extent == Reach::Waiting => first,
        _ => Mark { place: walked.start, number: 0, bytes: 0 },
    };
    let placed =
        |(head, mark): (HeadRow, &Mark)| Placed { name: head.name, seq: mark.number - from.number };
    let survey = Survey {
        arena_size: Some(metadata.size),
        messages: to.number - from.number,
        bytes: to.bytes - from.bytes,
        consumers: heads.into_iter().zip(&marks).map(placed).collect(),
        findings,
    };
    Ok((survey, BigqueueMessages { dir, arenas: Some(walker.arenas), from, to }))
}

/// A message that no queue of mmq can take ends the import before it begins.
fn too_large(walker: &Walker, walked: &WalkResult) -> Tried<()> {
    let (len, at) = walked.tally.largest;
    if len <= MAX_MESSAGE_LEN {
        return Ok(());
    }
    let message = format!(
        "the message at {} has {len} bytes, and a queue takes no more than {MAX_MESSAGE_LEN}",
        walker.arenas.text(at)
    );
    Err(Failure::new(Ending::Refused, "too_large", message))
}

/// Looks for a boundary to walk from, and decides what is torn.
struct BigqueueCheck {
    walker: Walker,
    /// Sorted by place, as the walker's.
    heads: Vec<HeadRow>,
    findings: Vec<Notice>,
    lowest: RowPlace,
    extent: Reach,
}

impl BigqueueCheck {
    /// 0.4 and later keep all arenas, so that the first record is where it always was. Before, the
    /// head is the boundary that is known.
    fn walk(&mut self, kind: SourceKind, heed: &mut Heed<'_>) -> Tried<WalkResult> {
        let keeps_all = matches!(kind, SourceKind::Bigqueue4 | SourceKind::Bigqueue5);
        let from_first = self.extent == Reach::All && self.walker.arenas.exists(0);
        let start = if keeps_all || from_first { 0 } else { self.lowest };
        let mut walked = self.walker.walk(start, heed)?;
        if let WalkEnd::Stopped(fault) = walked.end
            && walked.tally.now.place < self.lowest
        {
            let weight = if self.extent == Reach::All { Weight::Lost } else { Weight::Warning };
            let at = self.walker.arenas.text(walked.tally.now.place);
            let text = format!(
                "what every consumer has taken ends at {at}: {}; the walk goes on at the first head",
                why(fault)
            );
            self.findings.push(Notice::new(weight, "record", text).at(at));
            walked = self.walker.walk(self.lowest, heed)?;
        }
        if matches!(walked.end, WalkEnd::Stopped(_)) && walked.start == self.lowest {
            return self.mend_first_head(walked, heed);
        }
        Ok(walked)
    }

    /// The head that the walk begins at may be torn itself. Then it was in an earlier arena, at
    /// this offset; and its record ends in this arena; and from there a walk leads to the tail.
    fn mend_first_head(&mut self, walked: WalkResult, heed: &mut Heed<'_>) -> Tried<WalkResult> {
        let torn = self.lowest;
        let (id, offset) = (self.walker.arenas.id(torn), self.walker.arenas.offset(torn));
        let mut earlier = id;
        while earlier > 0 && self.walker.arenas.exists(earlier - 1) {
            earlier -= 1;
            let before = self.walker.arenas.place(earlier, offset);
            let end = self.walker.arenas.place(id, self.walker.arenas.size() - 1);
            let record = self.walker.arenas.record(before, end)?;
            if !record.is_ok_and(|record| self.walker.arenas.id(record.next) == id) {
                continue;
            }
            let again = self.walker.walk(before, heed)?;
            if again.end == WalkEnd::Tail {
                for (head, place) in self.heads.iter().zip(&mut self.walker.heads) {
                    if *place == torn {
                        *place = before;
                        let to = self.walker.arenas.text(before);
                        self.findings.push(torn_head(head, &to));
                    }
                }
                self.lowest = before;
                self.walker.matters_from = self.walker.matters_from.min(before);
                return self.walker.walk(before, heed);
            }
        }
        Ok(walked)
    }

    /// Reports where the queue ends, when that is not where it says.
    fn report_end(&mut self, walked: &WalkResult) {
        let (arenas, end) = (&self.walker.arenas, walked.tally.now.place);
        let (at, tail) = (arenas.text(end), self.walker.tail());
        let lost = u64::try_from(tail.saturating_sub(end)).unwrap_or(u64::MAX);
        let stored = self.walker.tail;
        let stored = format!("arena {} offset {}", stored.id, stored.offset);
        match walked.end {
            WalkEnd::Tail => {}
            WalkEnd::Torn => {
                let text = format!(
                    "the tail is torn: it says {stored}, a new arena with an old offset; the last record was complete, and the queue ends at {at}"
                );
                self.findings.push(Notice::new(Weight::Torn, "tail", text).at(at));
            }
            WalkEnd::Stopped(fault) => {
                let text = format!(
                    "the queue ends at {at}, and not at {stored}: {}; {} up to there cannot be told apart from messages",
                    why(fault),
                    count(lost, "byte")
                );
                self.findings.push(Notice::new(Weight::Lost, "record", text).at(at).of(lost));
            }
            WalkEnd::EmptyRun => {
                let text = format!(
                    "a run of messages of no bytes begins at {at}: the queue ends there, as asked for, and not at {stored}"
                );
                self.findings.push(Notice::new(Weight::Lost, "empty_run", text).at(at).of(lost));
            }
        }
        if let Some(run) = walked.tally.long.filter(|_| walked.end != WalkEnd::EmptyRun) {
            let at = arenas.text(run.from);
            let text = format!(
                "{} of no bytes begin at {at}, and there {} of more than 64: space that was never written reads so; --stop-at-empty-run 64 ends the queue before the first",
                count(run.count, "message"),
                if walked.tally.long_runs == 1 {
                    "is one run".to_owned()
                } else {
                    format!("are {}", count(walked.tally.long_runs, "run"))
                }
            );
            self.findings.push(Notice::new(Weight::Warning, "empty_run", text).at(at));
        }
    }

    /// The true place of each head.
    fn places(&mut self, walked: &WalkResult) -> Vec<Mark> {
        let end = walked.tally.now;
        let mut marks = Vec::new();
        for (row, head) in self.heads.iter().enumerate() {
            let seen = walked.tally.seen.get(row).copied().unwrap_or(HeadSeen::Not);
            let before = walked.tally.before.get(row).copied().flatten();
            let before = before.filter(|mark| mark.number <= end.number);
            let arenas = &self.walker.arenas;
            let (mark, finding) = match (seen, before) {
                (HeadSeen::Boundary(mark), _) if mark.number <= end.number => (mark, None),
                (_, Some(mark)) => (mark, Some(torn_head(head, &arenas.text(mark.place)))),
                (HeadSeen::Within(mark), _) if mark.number < end.number => {
                    (mark, Some(no_boundary(head, &arenas.text(mark.place))))
                }
                _ => (end, behind(head, walked.end)),
            };
            marks.push(mark);
            self.findings.extend(finding);
        }
        marks
    }
}

fn torn_head(head: &HeadRow, to: &str) -> Notice {
    let text = format!(
        "{} is torn: it says arena {} offset {}, a new arena with an old offset; it is put at {to}, so that one message comes again",
        head.text(),
        head.stored.id,
        head.stored.offset
    );
    Notice::new(Weight::Torn, "head", text).at(to)
}

fn no_boundary(head: &HeadRow, to: &str) -> Notice {
    let text = format!(
        "{} says arena {} offset {}, where no record begins; it is put at the one before, {to}",
        head.text(),
        head.stored.id,
        head.stored.offset
    );
    Notice::new(Weight::Torn, "head", text).at(to)
}

/// A head that the walk did not come to.
fn behind(head: &HeadRow, end: WalkEnd) -> Option<Notice> {
    let (weight, reason) = match end {
        WalkEnd::Tail | WalkEnd::Torn => (Weight::Torn, "behind the tail"),
        WalkEnd::Stopped(_) | WalkEnd::EmptyRun => (Weight::Warning, "behind what could be read"),
    };
    let text = format!(
        "{} says arena {} offset {}, {reason}; nothing waits for it",
        head.text(),
        head.stored.id,
        head.stored.offset
    );
    Some(Notice::new(weight, "head", text))
}

fn why(fault: Fault) -> String {
    match fault {
        Fault::Beyond(None) => "a record would begin behind the tail".to_owned(),
        Fault::Beyond(Some(len)) => {
            format!("a record says that it has {len} bytes, which lead behind the tail")
        }
        Fault::Missing(id) => format!("arena {id} is missing"),
        Fault::Short(id) => format!("arena {id} is shorter than an arena"),
    }
}

impl BigqueueMessages {
    pub(crate) fn read(&mut self, each: &mut Each<'_>) -> Tried<()> {
        let Some(arenas) = &mut self.arenas else { return Ok(()) };
        let (mut at, mut message) = (self.from, Vec::new());
        while at.place < self.to.place {
            let Ok(record) = arenas.record(at.place, self.to.place)? else {
                return Err(super::changed(&self.dir));
            };
            if record.len > self.to.bytes - at.bytes {
                return Err(super::changed(&self.dir));
            }
            super::room(&mut message, record.len)?;
            arenas.read(record.payload, &mut message)?;
            each(&message)?;
            at = Mark { place: record.next, number: at.number + 1, bytes: at.bytes + record.len };
        }
        if at == self.to { Ok(()) } else { Err(super::changed(&self.dir)) }
    }
}
