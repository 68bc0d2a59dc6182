//! Reads one segment file, record by record.

use super::find_files::{SalvageSet, SegmentRemains};
use super::findings::SalvagedFile;
use super::missing::{Missing, MissingFor};
use super::patient::Patient;
use crate::error::GapCause;
use crate::format::{ALIGN, FRAGMENT_HEADER_LEN, Fragment, Kind, Seal, Spot};
use crate::segment::lies::Lies;
use crate::segment::scan::{Intact, ReadAhead, Scan};

/// A file during a salvage, at a record.
#[derive(Debug)]
pub(super) struct FileReading {
    /// The segment's index in the `SalvageSet`.
    pub(super) at: usize,
    file: Patient,
    ahead: ReadAhead,
    /// Where the record begins, and its number.
    pub(super) spot: Spot,
    /// The header of the record's first piece.
    pub(super) record: Option<Intact>,
}

impl FileReading {
    pub(super) fn new(at: usize, file: Patient, remains: &SegmentRemains) -> FileReading {
        let spot = remains.first;
        FileReading { at, file, ahead: ReadAhead::default(), spot, record: None }
    }

    /// Runs `work` with a scan of the file, and keeps the bytes that the scan read ahead.
    fn scanning<T>(
        &mut self,
        remains: &SegmentRemains,
        work: impl FnOnce(&mut Scan<'_, Patient>) -> T,
    ) -> T {
        work(&mut remains.scan(&self.file).reading_on(&mut self.ahead))
    }

    /// What lies at the spot. What cannot be read is nothing.
    fn meet(&mut self, remains: &SegmentRemains) -> Lies {
        let spot = self.spot;
        self.scanning(remains, |scan| scan.lies_at(spot)).unwrap_or(Lies::Nothing)
    }

    /// Moves to the next record, and returns its number; `None` at the end of the segment.
    pub(super) fn advance(
        &mut self,
        wreck: &mut SalvageSet,
        stated: &mut Vec<Missing>,
    ) -> Option<u64> {
        loop {
            let remains = &wreck.segments[self.at];
            if self.spot.position + FRAGMENT_HEADER_LEN > remains.end() {
                return self.end(wreck);
            }
            let seq = self.spot.seq;
            match self.meet(remains) {
                Lies::Record(seen) => {
                    self.record = Some(seen);
                    return Some(seq);
                }
                Lies::Rest(seen) => {
                    let seq = if seen.fragment.is_numbered(seq) { seq + 1 } else { seq };
                    self.spot = Spot { position: seen.end(), seq };
                }
                Lies::Padding(seen) => self.spot.position = seen.end(),
                Lies::Gap(seen, number) => {
                    let why = MissingFor::Stated(GapCause::Unflushed);
                    stated.push(Missing { first: seq, end: number, why });
                    self.spot = Spot { position: seen.end(), seq: number };
                }
                // A refused batch leaves pieces after the tail.
                Lies::Nothing
                    if wreck.is_behind_the_tail(self.at, self.spot)
                        && self.has_pieces_alone(&wreck.segments[self.at], self.spot) =>
                {
                    return self.end(wreck);
                }
                Lies::Nothing => {
                    let found = self.search(wreck);
                    // The queue's owner may have written this record meanwhile, and then the one
                    // that the search found.
                    self.ahead = ReadAhead::default();
                    reached!("between a search in a file and another look");
                    let lies = self.meet(&wreck.segments[self.at]);
                    if found.is_some() && !matches!(lies, Lies::Nothing) {
                        continue;
                    }
                    if !self.pass_over_damage(found, wreck, stated) {
                        return self.end(wreck);
                    }
                }
            }
        }
    }

    /// Steps over the record.
    pub(super) fn step_over(&mut self) {
        if let Some(seen) = self.record.take() {
            self.spot = Spot { position: seen.end(), seq: self.spot.seq + 1 };
        }
    }

    /// Appends the first piece of the record to `out`. Returns false if it is damaged.
    pub(super) fn copy(&mut self, remains: &SegmentRemains, out: &mut Vec<u8>) -> bool {
        let Some(seen) = self.record else { return false };
        self.scanning(remains, |scan| scan.copy(&seen, 0, out)).unwrap_or(false)
    }

    /// Whether the first piece of the record is intact.
    pub(super) fn has_whole_piece(&mut self, remains: &SegmentRemains) -> bool {
        let Some(seen) = self.record else { return false };
        self.scanning(remains, |scan| scan.payload_holds(&seen)).unwrap_or(false)
    }

    /// Leaves the damaged record. Moves to the next valid one, and returns its number.
    pub(super) fn leave_damaged(
        &mut self,
        wreck: &mut SalvageSet,
        stated: &mut Vec<Missing>,
    ) -> Option<u64> {
        self.record = None;
        let found = self.search(wreck);
        if self.pass_over_damage(found, wreck, stated) {
            self.advance(wreck, stated)
        } else {
            self.end(wreck)
        }
    }

    /// Moves to `found`, the next valid fragment after the damage. Returns false if there is none,
    /// or if the queue's owner has reused the segment, so that no record of its former life
    /// validates.
    fn pass_over_damage(
        &mut self,
        found: Option<Spot>,
        wreck: &mut SalvageSet,
        stated: &mut Vec<Missing>,
    ) -> bool {
        if wreck.is_used_again(self.at, &self.file) {
            let (first, end) = (self.spot.seq, wreck.segments[self.at].below);
            stated.push(Missing { first, end, why: MissingFor::Overtaken });
            self.spot.seq = end;
            return false;
        }
        let Some(found) = found else { return false };
        wreck.files[self.at].lost += found.seq - self.spot.seq;
        self.spot = found;
        true
    }

    /// Searches for the next valid fragment.
    fn search(&mut self, wreck: &SalvageSet) -> Option<Spot> {
        let spot = self.spot;
        let remains = &wreck.segments[self.at];
        let below = remains.below;
        self.scanning(remains, |scan| scan.next_intact(spot, below, || below)).ok().flatten()
    }

    /// Ends the segment, and counts numbers up to the next segment's as lost: they belong to this
    /// segment, or to reclaimed ones between the two.
    pub(super) fn end(&mut self, wreck: &mut SalvageSet) -> Option<u64> {
        let next = wreck.segments[self.at].next_from.filter(|_| wreck.is_settled);
        let file: &mut SalvagedFile = &mut wreck.files[self.at];
        let from = self.spot.seq.max(wreck.retained_from);
        file.lost += next.map_or(0, |next| next.saturating_sub(from));
        file.note_unreadable(&self.file);
        None
    }

    /// Whether the batch that begins with the record has no seal in this segment, and no later
    /// fragment shows that it once had one.
    pub(super) fn is_unfinished(&mut self, remains: &SegmentRemains) -> bool {
        let (mut spot, mut seal) = (self.spot, Seal::NEW);
        // Up to here the loop could follow the batch.
        let mut from = Spot { position: spot.position + ALIGN, ..spot };
        let is_whole = self.scanning(remains, |scan| {
            while let Ok(Lies::Record(seen)) = scan.lies_at(spot)
                && seen.fragment.kind == Kind::Whole
            {
                seal.add(seen.checksum());
                spot = Spot { position: seen.end(), seq: spot.seq + 1 };
                from = spot;
                if !seen.fragment.more {
                    return scan.seal(&seen).ok().flatten() == Some(seal.word());
                }
            }
            false
        });
        !is_whole && self.has_pieces_alone(remains, from)
    }

    /// Whether only pieces from within a batch validate from there on: neither the end of a batch
    /// nor the beginning of a later record.
    fn has_pieces_alone(&mut self, remains: &SegmentRemains, from: Spot) -> bool {
        let Spot { position: mut from, mut seq } = from;
        self.scanning(remains, |scan| {
            while let Ok(Some((seen, number))) = scan.search(from, seq, remains.below) {
                let Fragment { kind, more, continues, .. } = seen.fragment;
                let is_piece = continues && (more || kind == Kind::First);
                if kind != Kind::Padding && !is_piece {
                    return false;
                }
                (from, seq) = (seen.end(), number);
            }
            true
        })
    }
}
