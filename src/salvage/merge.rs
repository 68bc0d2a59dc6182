//! Merges all files in the order of the numbers.
//!
//! Numbers rise within a file, so the merge compares only the next record of each file. It opens a
//! file when its first number is the lowest, and closes it at its end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::file_reading::FileReading;
use super::find_files::{SalvageSet, Unopened};
use super::findings::{SalvageReport, Salvaged, WhichSegments};
use super::missing::{Missing, MissingFor};
use crate::error::{Gap, GapCause};
use crate::format::{Kind, Origin};
use crate::memory::checksum;
use crate::message::Message;
use crate::segment::scan::Intact;

/// A file, and the number of its next record.
#[derive(Debug)]
struct Turn {
    seq: u64,
    /// A file may begin at a higher number than its header states: files to be opened come first.
    is_open: bool,
    /// Of two records with one number that of the later life counts (R9); within one life, that of
    /// the first file.
    life: Reverse<u64>,
    file: SalvageFile,
}

#[derive(Debug)]
enum SalvageFile {
    Unopened(usize),
    Open(Box<FileReading>),
}

impl Turn {
    fn key(&self) -> (u64, bool, Reverse<u64>, usize) {
        let at = match &self.file {
            SalvageFile::Unopened(at) => *at,
            SalvageFile::Open(reading) => reading.at,
        };
        (self.seq, self.is_open, self.life, at)
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Turn) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Turn {}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Turn) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Turn) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Length and checksum of a payload, to compare two messages.
fn sum(payload: &[u8]) -> (usize, u64) {
    (payload.len(), checksum::sum(0, payload))
}

/// The merged messages of all files.
#[derive(Debug)]
pub(super) struct Merge {
    wreck: SalvageSet,
    turns: BinaryHeap<Reverse<Turn>>,
    /// For each record in several pieces, the segments that begin within it.
    rests: BTreeMap<u64, Vec<usize>>,
    /// Segments with an unknown seed, which begin within some record.
    unseeded: Vec<usize>,
    /// The merge has returned or reported every number below this one.
    next: u64,
    /// The length and the checksum of the message with the number before `next`.
    before: (usize, u64),
    /// Missing numbers below this one are not reported.
    report_from: Option<u64>,
    /// Messages below this number were reclaimed, and are left out.
    given_back: u64,
    stated: Vec<Missing>,
    ready: VecDeque<Salvaged>,
    /// The first number of the batch that the merge is returning.
    batch_from: Option<u64>,
    report: SalvageReport,
}

impl Merge {
    pub(super) fn new(wreck: SalvageSet, which: WhichSegments) -> Merge {
        let (segments, retained_from) = (&wreck.segments, wreck.retained_from);
        let (mut turns, mut unseeded) = (BinaryHeap::new(), Vec::new());
        let mut rests: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut report_from = wreck.owed.from;
        for (at, remains) in segments.iter().enumerate() {
            if remains.is_spare() && which == WhichSegments::Live {
                continue;
            }
            if remains.seed.is_none() {
                unseeded.push(at);
                continue;
            }
            if let Some(seq) = remains.rest {
                rests.entry(seq).or_default().push(at);
            }
            let (seq, life) = (remains.first.seq, Reverse(remains.life()));
            let begins = remains.header.map_or(seq, |header| header.beginning().seq);
            if !remains.is_spare() {
                report_from = Some(report_from.map_or(begins, |from| from.min(begins)));
            }
            let file = SalvageFile::Unopened(at);
            turns.push(Reverse(Turn { seq, is_open: false, life, file }));
        }
        // Numbers that a file may lack after the first number of all are reported as a gap.
        let is_uncounted = |at: usize| {
            wreck.files[at].uncounted
                && segments.get(at).is_none_or(|remains| Some(remains.first.seq) <= report_from)
        };
        let uncounted = (0..wreck.files.len()).any(is_uncounted);
        let report =
            SalvageReport { queue_id: wreck.queue_id, uncounted, ..SalvageReport::default() };
        Merge {
            turns,
            rests,
            unseeded,
            next: 0,
            before: (0, 0),
            report_from: report_from.map(|from| from.max(retained_from)),
            given_back: if which == WhichSegments::Live { retained_from } else { 0 },
            stated: wreck.owed.stated.clone(),
            ready: VecDeque::new(),
            batch_from: None,
            report: SalvageReport { files: wreck.files.clone(), ..report },
            wreck,
        }
    }

    pub(super) fn into_report(self) -> SalvageReport {
        SalvageReport { files: self.wreck.files, ..self.report }
    }

    pub(super) fn next(&mut self) -> Option<Salvaged> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let Some(Reverse(turn)) = self.turns.pop() else {
                return self.end();
            };
            match turn.file {
                SalvageFile::Unopened(at) => self.open(at),
                SalvageFile::Open(reading) => self.take(reading, turn.seq),
            }
        }
    }

    /// Reports the last missing numbers, up to the tail in the index.
    fn end(&mut self) -> Option<Salvaged> {
        let tail = self.wreck.owed.tail.map_or(0, |tail| tail.seq);
        if let Some(from) = self.batch_from.take().filter(|from| tail <= *from) {
            self.report.unfinished_from = Some(from);
        }
        self.report_missing(tail);
        self.next = self.next.max(tail);
        self.ready.pop_front()
    }

    fn open(&mut self, at: usize) {
        let remains = &self.wreck.segments[at];
        match self.wreck.open(at) {
            Ok(file) => {
                if let Some(header) = remains.header {
                    self.stated.extend(Missing::before(header.missing, header.first_seq));
                }
                let reading = FileReading::new(at, file, remains);
                self.go_on(Box::new(reading), FileReading::advance);
            }
            Err(Unopened::Used) => {
                let (first, end) = (remains.first.seq, remains.below);
                self.stated.push(Missing { first, end, why: MissingFor::Overtaken });
            }
            Err(Unopened::Refused(error)) => {
                self.wreck.files[at].damage.push(format!("cannot be opened: {error}"));
            }
        }
    }

    /// Moves a file to its next record, and puts it back into the queue.
    fn go_on(
        &mut self,
        mut reading: Box<FileReading>,
        how: fn(&mut FileReading, &mut SalvageSet, &mut Vec<Missing>) -> Option<u64>,
    ) {
        if let Some(seq) = how(&mut reading, &mut self.wreck, &mut self.stated) {
            let life = Reverse(self.wreck.segments[reading.at].life());
            let file = SalvageFile::Open(reading);
            self.turns.push(Reverse(Turn { seq, is_open: true, life, file }));
        }
    }

    /// Returns the record with this number, or leaves it out.
    fn take(&mut self, mut reading: Box<FileReading>, seq: u64) {
        if seq < self.next || seq < self.given_back {
            if seq < self.next {
                if !reading.has_whole_piece(&self.wreck.segments[reading.at]) {
                    return self.go_on(reading, FileReading::leave_damaged);
                }
                // This number is the last that the merge returned, so `before` is its message.
                let found = self.gather(&mut reading, seq).map(|payload| sum(&payload));
                self.note_again(reading.at, seq, found);
            } else {
                self.wreck.files[reading.at].given_back += 1;
            }
            reading.step_over();
            return self.go_on(reading, FileReading::advance);
        }
        let begins =
            reading.record.is_some_and(|seen| seen.fragment.more && !seen.fragment.continues);
        if begins
            && self.wreck.is_behind_the_tail(reading.at, reading.spot)
            && reading.is_unfinished(&self.wreck.segments[reading.at])
        {
            (self.report.unfinished_from, self.report.unfinished_left_out) = (Some(seq), true);
            // Other files may have the whole batch.
            reading.end(&mut self.wreck);
            return;
        }
        let Some(mut payload) = self.gather(&mut reading, seq) else {
            if self.stated.last().is_some_and(|last| *last == Missing::overtaken(seq)) {
                reading.step_over();
                return self.go_on(reading, FileReading::advance);
            }
            return self.go_on(reading, FileReading::leave_damaged);
        };
        self.before = sum(&payload);
        let has_origin = reading.record.is_some_and(|seen| seen.fragment.has_origin);
        let origin = has_origin.then(|| Origin::take_off(&mut payload)).flatten();
        if self.report.unfinished_from.is_some_and(|from| seq >= from) {
            (self.report.unfinished_from, self.report.unfinished_left_out) = (None, false);
        }
        self.note_batch(&reading, seq);
        self.report_missing(seq);
        self.next = seq + 1;
        self.report.messages += 1;
        self.report.bytes += payload.len() as u64;
        self.wreck.files[reading.at].messages += 1;
        let header = self.wreck.segments[reading.at].header;
        let created = header.map(|header| Duration::from_millis(header.created));
        let segment_time: Option<SystemTime> =
            created.and_then(|since| UNIX_EPOCH.checked_add(since));
        let message = Message::owned(seq, payload).with_origin(origin);
        self.ready.push_back(Salvaged::Message { message, segment_time });
        reading.step_over();
        self.go_on(reading, FileReading::advance);
    }

    /// Notes a record in the file at `at` whose number another file had. `None`: only its first
    /// piece is intact.
    fn note_again(&mut self, at: usize, seq: u64, found: Option<(usize, u64)>) {
        let file = &mut self.wreck.files[at];
        if found.is_none_or(|found| found == self.before) {
            file.duplicates += 1;
            return;
        }
        match file.differing.last_mut().filter(|row| *row.end() + 1 == seq) {
            Some(row) => *row = *row.start()..=seq,
            None => file.differing.push(seq..=seq),
        }
        // A drained segment may have a refused message, whose number was given again.
        self.report.differing += u64::from(!self.wreck.segments[at].is_spare());
    }

    fn note_batch(&mut self, reading: &FileReading, seq: u64) {
        let Some(fragment) = reading.record.map(|seen| seen.fragment) else { return };
        self.batch_from = match self.batch_from {
            _ if !fragment.more => None,
            Some(from) if fragment.continues => Some(from),
            _ => Some(seq),
        };
    }

    /// Returns the payload of the record; `None` when a piece of it is damaged or missing.
    fn gather(&mut self, reading: &mut FileReading, seq: u64) -> Option<Vec<u8>> {
        let mut payload = Vec::new();
        if !reading.copy(&self.wreck.segments[reading.at], &mut payload) {
            return None;
        }
        let (mut last, mut at) = (reading.record?, reading.at);
        while matches!(last.fragment.kind, Kind::First | Kind::Middle) {
            (last, at) = self.next_piece(seq, at, last.checksum(), &mut payload)?;
        }
        Some(payload)
    }

    /// Appends the piece of the record `seq` that follows the one with the checksum `chain` in the
    /// segment `at`. Returns the piece with its own segment.
    fn next_piece(
        &mut self,
        seq: u64,
        at: usize,
        chain: u32,
        payload: &mut Vec<u8>,
    ) -> Option<(Intact, usize)> {
        let segments = &self.wreck.segments;
        let end = segments[at].end();
        let mut likely = self.rests.get(&seq).cloned().unwrap_or_default();
        likely.sort_by_key(|next| segments[*next].base() != end);
        for &next in &likely {
            let Ok(file) = self.wreck.open(next) else { continue };
            let mut scan = segments[next].scan(&file);
            if let Ok(Some(seen)) = scan.header_at(segments[next].base())
                && scan.copy(&seen, chain, payload).unwrap_or(false)
            {
                return Some((seen, next));
            }
        }
        for index in 0..self.unseeded.len() {
            let next = self.unseeded[index];
            let Ok(file) = self.wreck.open(next) else { continue };
            let mut scan = segments[next].scan(&file);
            if let Ok(Some(seed)) = scan.find_seed_of_rest(seq, chain)
                && let Ok(Some(seen)) = scan.header_at(segments[next].base())
                && scan.copy(&seen, chain, payload).unwrap_or(false)
            {
                self.unseeded.swap_remove(index);
                self.wreck.segments[next].seed = Some(seed);
                return Some((seen, next));
            }
        }
        let is_used = |next: &usize| matches!(self.wreck.open(*next), Err(Unopened::Used));
        if likely.iter().any(is_used) {
            self.stated.push(Missing::overtaken(seq));
        }
        None
    }

    /// Reports the missing numbers before this one.
    fn report_missing(&mut self, seq: u64) {
        let mut first = self.next.max(self.report_from.unwrap_or(seq));
        while first < seq {
            let holds = |stated: &&Missing| (stated.first..stated.end).contains(&first);
            let later = self.stated.iter().map(|stated| stated.first).filter(|from| *from > first);
            let unstated = || (later.min().unwrap_or(seq), None);
            let evicted = self.wreck.owed.evicted.cause_of(first);
            let evicted = evicted.map(|(cause, end)| (end, Some(MissingFor::Stated(cause))));
            let stated =
                self.stated.iter().find(holds).map(|stated| (stated.end, Some(stated.why)));
            let (end, why) = stated.or(evicted).unwrap_or_else(unstated);
            let why = why.or((!self.wreck.is_settled).then_some(MissingFor::Overtaken));
            let last = end.min(seq) - 1;
            let count = last - first + 1;
            let cause = match why {
                Some(MissingFor::Overtaken) => {
                    self.report.overtaken += count;
                    self.ready.push_back(Salvaged::Overtaken { first, last });
                    first = last + 1;
                    continue;
                }
                Some(MissingFor::Stated(cause)) => cause,
                None => GapCause::Damaged,
            };
            match cause {
                GapCause::Damaged | GapCause::Unflushed => self.report.lost += count,
                _ => self.report.given_up += count,
            }
            self.ready.push_back(Salvaged::Gap(Gap { first, last, cause }));
            first = last + 1;
        }
        self.stated.retain(|stated| stated.end > seq);
    }
}
