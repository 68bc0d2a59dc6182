//! bigqueue, all its formats: where its queue begins and ends, and its messages.

use std::path::PathBuf;

use mmq::MAX_MESSAGE_LEN;

use crate::arenas::{Arenas, Fault, RowPlace};
use crate::count;
use crate::detect::{Listing, SourceKind};
use crate::error::{ImportError, ImportErrorKind, Result};
use crate::metadata::{HeadRow, Metadata};
use crate::walk::{HeadSeen, Mark, WalkEnd, WalkResult, Walker};
use crate::{
    Finding, ImportOptions, ImportRange, Progress, Receive, Severity, SourceConsumer, Survey,
};

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
pub(crate) fn survey<E: From<ImportError>>(
    listing: &Listing,
    kind: SourceKind,
    options: ImportOptions,
    progress: &mut Progress<'_, E>,
) -> Result<(Survey, BigqueueMessages), E> {
    let mut findings = Vec::new();
    let metadata = Metadata::read(listing, kind, &mut findings)?;
    let dir = listing.dir.clone();
    if metadata.size == 0 {
        let zero = Mark { place: 0, number: 0, bytes: 0 };
        let consumers =
            metadata.heads.into_iter().map(|head| SourceConsumer { name: head.name, seq: 0 });
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
        matters_from: if options.extent == ImportRange::All { 0 } else { lowest },
        empty_run: options.empty_run,
    };
    let mut search = BigqueueCheck { walker, heads, findings, lowest, extent: options.extent };
    let walked = search.walk(kind, progress)?;
    search.report_end(&walked);
    let marks = search.places(&walked);
    let BigqueueCheck { walker, heads, findings, .. } = search;
    too_large(&walker, &walked)?;
    let to = walked.tally.now;
    let first = marks.iter().min_by_key(|mark| mark.number).copied();
    let from = match first {
        Some(first) if options.extent == ImportRange::Waiting => first,
        _ => Mark { place: walked.start, number: 0, bytes: 0 },
    };
    let placed = |(head, mark): (HeadRow, &Mark)| SourceConsumer {
        name: head.name,
        seq: mark.number - from.number,
    };
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
fn too_large(walker: &Walker, walked: &WalkResult) -> Result<()> {
    let (len, at) = walked.tally.largest;
    if len <= MAX_MESSAGE_LEN {
        return Ok(());
    }
    let message = format!(
        "the message at {} has {len} bytes, and a queue takes no more than {MAX_MESSAGE_LEN}",
        walker.arenas.text(at)
    );
    Err(ImportError::new(ImportErrorKind::TooLarge, message))
}

/// Looks for a boundary to walk from, and decides what is torn.
struct BigqueueCheck {
    walker: Walker,
    /// Sorted by place, as the walker's.
    heads: Vec<HeadRow>,
    findings: Vec<Finding>,
    lowest: RowPlace,
    extent: ImportRange,
}

impl BigqueueCheck {
    /// 0.4 and later keep all arenas, so that the first record is where it always was. Before, the
    /// head is the boundary that is known.
    fn walk<E: From<ImportError>>(
        &mut self,
        kind: SourceKind,
        progress: &mut Progress<'_, E>,
    ) -> Result<WalkResult, E> {
        let keeps_all = matches!(kind, SourceKind::Bigqueue4 | SourceKind::Bigqueue5);
        let from_first = self.extent == ImportRange::All && self.walker.arenas.exists(0);
        let start = if keeps_all || from_first { 0 } else { self.lowest };
        let mut walked = self.walker.walk(start, progress)?;
        if let WalkEnd::Stopped(fault) = walked.end
            && walked.tally.now.place < self.lowest
        {
            let weight =
                if self.extent == ImportRange::All { Severity::Lost } else { Severity::Warning };
            let at = self.walker.arenas.text(walked.tally.now.place);
            let text = format!(
                "messages that every consumer has taken cannot be read from {at} on: {}; reading continues at the first head",
                why(fault)
            );
            self.findings.push(Finding::new(weight, "record", text).at(at));
            walked = self.walker.walk(self.lowest, progress)?;
        }
        if matches!(walked.end, WalkEnd::Stopped(_)) && walked.start == self.lowest {
            return self.mend_first_head(walked, progress);
        }
        Ok(walked)
    }

    /// The head that the walk begins at may be torn itself. Then it was in an earlier arena, at
    /// this offset; and its record ends in this arena; and from there a walk leads to the tail.
    fn mend_first_head<E: From<ImportError>>(
        &mut self,
        walked: WalkResult,
        progress: &mut Progress<'_, E>,
    ) -> Result<WalkResult, E> {
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
            let again = self.walker.walk(before, progress)?;
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
                return self.walker.walk(before, progress);
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
                self.findings.push(Finding::new(Severity::Torn, "tail", text).at(at));
            }
            WalkEnd::Stopped(fault) => {
                let text = format!(
                    "the queue ends at {at}, and not at {stored}: {}; {} up to there cannot be told apart from messages",
                    why(fault),
                    count(lost, "byte")
                );
                self.findings.push(Finding::new(Severity::Lost, "record", text).at(at).of(lost));
            }
            WalkEnd::EmptyRun => {
                let text = format!(
                    "a run of messages of no bytes begins at {at}: the queue ends there, as asked for, and not at {stored}"
                );
                self.findings.push(Finding::new(Severity::Lost, "empty_run", text).at(at).of(lost));
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
            self.findings.push(Finding::new(Severity::Warning, "empty_run", text).at(at));
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

fn torn_head(head: &HeadRow, to: &str) -> Finding {
    let text = format!(
        "{} is torn: it says arena {} offset {}, a new arena with an old offset; it is put at {to}, so that one message comes again",
        head.text(),
        head.stored.id,
        head.stored.offset
    );
    Finding::new(Severity::Torn, "head", text).at(to)
}

fn no_boundary(head: &HeadRow, to: &str) -> Finding {
    let text = format!(
        "{} says arena {} offset {}, where no record begins; it is put at the one before, {to}",
        head.text(),
        head.stored.id,
        head.stored.offset
    );
    Finding::new(Severity::Torn, "head", text).at(to)
}

/// A head that the walk did not come to.
fn behind(head: &HeadRow, end: WalkEnd) -> Option<Finding> {
    let (weight, reason) = match end {
        WalkEnd::Tail | WalkEnd::Torn => (Severity::Torn, "behind the tail"),
        WalkEnd::Stopped(_) | WalkEnd::EmptyRun => (Severity::Warning, "behind what could be read"),
    };
    let text = format!(
        "{} says arena {} offset {}, {reason}; nothing waits for it",
        head.text(),
        head.stored.id,
        head.stored.offset
    );
    Some(Finding::new(weight, "head", text))
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
    pub(crate) fn read<E: From<ImportError>>(
        &mut self,
        each: &mut Receive<'_, E>,
    ) -> Result<(), E> {
        let Some(arenas) = &mut self.arenas else { return Ok(()) };
        let (mut at, mut message) = (self.from, Vec::new());
        while at.place < self.to.place {
            let Ok(record) = arenas.record(at.place, self.to.place)? else {
                return Err(crate::changed(&self.dir).into());
            };
            if record.len > self.to.bytes - at.bytes {
                return Err(crate::changed(&self.dir).into());
            }
            crate::room(&mut message, record.len)?;
            arenas.read(record.payload, &mut message)?;
            each(&message)?;
            at = Mark { place: record.next, number: at.number + 1, bytes: at.bytes + record.len };
        }
        if at == self.to { Ok(()) } else { Err(crate::changed(&self.dir).into()) }
    }
}
