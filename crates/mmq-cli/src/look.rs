//! Looking at a queue from outside: no lock is taken, and nothing is written.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;

use mmq::{
    AsOpened, ConsumerSnapshot, Error, Gap, InspectedMessages, Inspector, Seen, Snapshot, Start,
    Verified, VerifyStep,
};

use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::place::Bounds;

/// How often a queue is looked at again that is being changed too quickly to be read.
const ATTEMPTS: usize = 5;

/// How much of a queue is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    /// The index and the headers of segments.
    Headers,
    /// Every message as well.
    Messages,
}

/// A queue that is looked at.
#[derive(Debug)]
pub(crate) struct Looked {
    inspector: Inspector,
}

impl Looked {
    pub(crate) fn open(dir: &Path) -> Tried<Looked> {
        Ok(Looked { inspector: Inspector::open(dir).map_err(failed)? })
    }

    pub(crate) fn snapshot(&self) -> Tried<Snapshot> {
        patiently(|| self.inspector.snapshot()).map_err(failed)
    }

    /// What an opening would make of it.
    pub(crate) fn as_opened(&self) -> Tried<AsOpened> {
        patiently(|| self.inspector.as_opened()).map_err(|error| match error {
            Error::Locked { .. } => {
                let advice = "--as-opened needs a queue that no process has; `mmq verify` without it checks the queue as it is now";
                let message = format!("{error}; {advice}");
                Failure::from(error).saying(message)
            }
            error => failed(error),
        })
    }

    /// Checks the files, until `each` ends it.
    pub(crate) fn verify(
        &self,
        depth: Checks,
        mut each: impl FnMut(VerifyStep) -> ControlFlow<()>,
    ) -> Tried<Verified> {
        // When it is being changed too quickly, nothing was handed out yet.
        let verified = patiently(|| match depth {
            Checks::Headers => self.inspector.verify_headers(|finding| {
                let _ = each(VerifyStep::Finding(finding));
            }),
            Checks::Messages => self.inspector.verify_while(&mut each),
        });
        verified.map_err(failed)
    }

    /// All that a reader meets from there on.
    pub(crate) fn from(&self, start: Start) -> Met<'_> {
        let inner = self.inspector.messages(start);
        Met { looked: self, inner, start, failures: 0, until: u64::MAX, held: None }
    }

    /// All that waits for the consumer, and what was given up before it could read it.
    pub(crate) fn waiting_for(&self, outlook: &Outlook<'_>) -> Met<'_> {
        let met = self.from(outlook.start);
        match outlook.consumer {
            Some(consumer) => Met { inner: self.inspector.messages_for(consumer), ..met },
            None => met,
        }
    }
}

impl Looked {
    /// What was given up and is yet to be reported to consumers, and what else is known to be
    /// missing.
    pub(crate) fn gaps(&self, snapshot: &Snapshot) -> Tried<Vec<Gap>> {
        let last = snapshot.readers().iter().min_by_key(|consumer| consumer.next_seq);
        let mut gaps = Vec::new();
        if let Some(last) = last.filter(|last| last.next_seq < snapshot.oldest_seq) {
            for seen in self.waiting_for(&Outlook::of(snapshot, Some(&last.name))?) {
                match seen? {
                    Seen::Gap(gap) if gap.first < snapshot.oldest_seq => gaps.push(gap),
                    _ => break,
                }
            }
        }
        let reported = gaps.last().map_or(0, |gap| gap.last + 1);
        gaps.extend(snapshot.gaps.iter().filter(|gap| gap.first >= reported));
        Ok(gaps)
    }
}

fn patiently<T>(mut call: impl FnMut() -> mmq::Result<T>) -> mmq::Result<T> {
    let mut result = call();
    for _ in 1..ATTEMPTS {
        if !result.as_ref().is_err_and(is_too_quick) {
            break;
        }
        result = call();
    }
    result
}

fn is_too_quick(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::WouldBlock)
}

fn failed(error: Error) -> Failure {
    if is_too_quick(&error) {
        return Failure::new(ExitStatus::Failed, "too_quick", error.to_string());
    }
    Failure::from(error)
}

/// What a reader meets, one after the other. `None` is the end for now: asked again it goes on.
#[derive(Debug)]
pub(crate) struct Met<'a> {
    looked: &'a Looked,
    inner: InspectedMessages<'a>,
    /// Behind what was met.
    start: Start,
    failures: usize,
    /// What lies at this number or behind it does not come now.
    until: u64,
    /// It was met already.
    held: Option<Seen>,
}

impl Met<'_> {
    /// The end is at this number from now on.
    pub(crate) fn end_at(&mut self, until: u64) {
        self.until = until;
    }

    fn meet(&mut self) -> Option<Tried<Seen>> {
        loop {
            match self.inner.next()? {
                Ok(seen) => {
                    self.failures = 0;
                    let Some((_, last)) = numbers(&seen) else { continue };
                    self.start = Start::Seq(last + 1);
                    return Some(Ok(seen));
                }
                Err(error) if is_too_quick(&error) && self.failures < ATTEMPTS => {
                    self.failures += 1;
                    self.inner = self.looked.inspector.messages(self.start);
                }
                Err(error) => return Some(Err(failed(error))),
            }
        }
    }
}

impl Iterator for Met<'_> {
    type Item = Tried<Seen>;

    fn next(&mut self) -> Option<Tried<Seen>> {
        let seen = match self.held.take() {
            Some(seen) => seen,
            None => match self.meet()? {
                Ok(seen) => seen,
                failed => return Some(failed),
            },
        };
        if numbers(&seen).is_some_and(|(first, _)| first >= self.until) {
            self.held = Some(seen);
            return None;
        }
        Some(Ok(seen))
    }
}

/// The first and the last number. `None` for what this version does not know.
fn numbers(seen: &Seen) -> Option<(u64, u64)> {
    match seen {
        Seen::Message { message, .. } => Some((message.seq(), message.seq())),
        Seen::Gap(gap) => Some((gap.first, gap.last)),
        Seen::Overtaken { first, last } => Some((*first, *last)),
        _ => None,
    }
}

/// What a consumer has before it.
#[derive(Debug)]
pub(crate) struct Outlook<'a> {
    /// `None`: the queue's own, which has not read yet.
    consumer: Option<&'a ConsumerSnapshot>,
    place: u64,
    /// Where it reads on.
    start: Start,
    /// Numbers beyond its place that it is done with, from the first to the last.
    pub(crate) done: Vec<(u64, u64)>,
}

impl<'a> Outlook<'a> {
    /// That of the consumer of this name. The queue's own has everything before it until it reads
    /// for the first time.
    pub(crate) fn of(snapshot: &'a Snapshot, name: Option<&str>) -> Tried<Outlook<'a>> {
        let name = name.unwrap_or_default();
        match snapshot.readers().iter().find(|reader| reader.name == name) {
            None if name.is_empty() => {
                let place = snapshot.oldest_seq;
                Ok(Outlook { consumer: None, place, start: Start::Oldest, done: Vec::new() })
            }
            None => Err(Failure::no_consumer(&snapshot.path, name)),
            Some(found) => {
                let (place, done) = (found.next_seq, found.done_ahead.clone());
                Ok(Outlook { consumer: Some(found), place, start: Start::Seq(place), done })
            }
        }
    }

    pub(crate) fn bounds<'s>(&self, snapshot: &'s Snapshot) -> Bounds<'s> {
        let Snapshot { path, oldest_seq: oldest, next_seq: next, .. } = snapshot;
        Bounds { dir: path, oldest: *oldest, next: *next, place: self.place }
    }
}
