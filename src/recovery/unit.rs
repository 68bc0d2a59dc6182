//! A unit: a single record with all its fragments, or a batch with all its records.

use std::io;

use crate::format::{Fragment, Kind, Seal, Spot};
use crate::recovery::walked::Walked;
use crate::segment::scan::{Intact, Scan};
use crate::storage::StorageFile;

/// The unit whose fragments the walk is collecting.
#[derive(Debug)]
pub(super) struct Unit {
    start: Spot,
    /// The walk is within a record, before its last fragment.
    pub(super) in_record: bool,
    /// The walk is within a batch, before its last record.
    pub(super) in_batch: bool,
    /// Bytes between the last whole unit and `start` did not validate.
    pub(super) hole: bool,
    /// The batch's seal so far; `None` when the walk has not seen the batch's beginning.
    seal: Option<Seal>,
}

impl Unit {
    pub(super) fn new(start: Spot) -> Unit {
        Unit { start, in_record: false, in_batch: false, hole: false, seal: None }
    }

    /// Whether the unit is unfinished.
    pub(super) fn inside(&self) -> bool {
        self.in_record || self.in_batch
    }

    /// Drops the unfinished unit: the next one begins at the spot `at`.
    pub(super) fn begin(&mut self, at: Spot) {
        self.start = at;
        self.in_record = false;
        self.in_batch = false;
        self.seal = None;
    }

    /// Discards the unfinished unit: a hole begins after the last whole one.
    pub(super) fn broken(&mut self) {
        self.begin(self.start);
        self.hole = true;
    }

    /// Whether this fragment may come next, where the number `seq` is expected.
    pub(super) fn accepts(&self, fragment: &Fragment, seq: u64) -> bool {
        match fragment.kind {
            Kind::Padding => fragment.is_numbered(seq),
            Kind::Gap => !self.inside(),
            Kind::Whole | Kind::First => {
                let fits =
                    fragment.continues == self.in_batch || self.hole || planted!(TornBatchAccepted);
                fragment.is_numbered(seq) && !self.in_record && fits
            }
            Kind::Middle | Kind::Last => fragment.is_numbered(seq) && self.in_record,
        }
    }

    /// Whether the batch that ends with this fragment has the records with which it was written.
    /// True for any other fragment. True also when the walk has not seen the batch's beginning:
    /// such a batch belongs to the hole before it, or is known to be whole.
    pub(super) fn seal_holds<F: StorageFile>(
        &self,
        seen: &Intact,
        scan: &mut Scan<'_, F>,
    ) -> io::Result<bool> {
        if planted!(SealNotChecked, TornBatchAccepted) {
            return Ok(true);
        }
        let fragment = &seen.fragment;
        if !matches!(fragment.kind, Kind::Whole | Kind::Last)
            || !fragment.continues
            || fragment.more
        {
            return Ok(true);
        }
        match self.seal {
            Some(mut seal) if self.in_batch => {
                seal.add(seen.checksum());
                Ok(scan.seal(seen)? == Some(seal.word()))
            }
            _ => Ok(true),
        }
    }

    pub(super) fn add_to_seal(&mut self, seen: &Intact) {
        if matches!(seen.fragment.kind, Kind::Whole | Kind::First)
            && seen.fragment.more
            && !seen.fragment.continues
        {
            self.seal = Some(Seal::NEW);
        }
        if !seen.fragment.kind.is_empty()
            && let Some(seal) = &mut self.seal
        {
            seal.add(seen.checksum());
        }
    }

    /// Adds a fragment and returns where the next one is expected.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment,
        at: Spot,
        end: Spot,
        walked: &mut Walked,
    ) -> Spot {
        let mut next = end;
        match fragment.kind {
            Kind::Padding => {
                walked.empty.push(at..next);
                if !self.inside() && !self.hole {
                    // No record and no hole lies between, so the tail may move past the padding.
                    walked.tail = next;
                    self.start = next;
                }
                return next;
            }
            Kind::Gap => {
                next.seq = fragment.seq_from(at.seq);
                walked.empty.push(at..next);
                self.finish(at, next, walked);
                return next;
            }
            Kind::First => {
                self.open(at, fragment);
                self.in_record = true;
                return next;
            }
            Kind::Middle => return next,
            Kind::Whole => self.open(at, fragment),
            Kind::Last => self.in_record = false,
        }
        next.seq = at.seq + 1;
        if fragment.continues && self.hole && !self.in_batch {
            // Its batch began in the hole, so this record belongs to the hole.
            self.start = next;
            return next;
        }
        if fragment.more && !planted!(TornBatchAccepted) {
            self.in_batch = true;
        } else {
            self.finish(self.start, next, walked);
        }
        next
    }

    fn open(&mut self, at: Spot, fragment: &Fragment) {
        if !self.in_batch && !fragment.continues {
            self.start = at;
        }
    }

    /// Ends the unit from `start` to `end` as whole: the tail moves to `end`.
    fn finish(&mut self, start: Spot, end: Spot, walked: &mut Walked) {
        if self.hole {
            walked.holes.push(walked.tail..start);
            self.hole = false;
        }
        self.begin(end);
        walked.tail = end;
        walked.units_behind += u64::from(end.position > walked.published);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_belongs_to_a_unit_as_it_says_itself() {
        let record = |kind, seq, continues, more| Fragment {
            kind,
            more,
            continues,
            sealed: false,
            has_origin: false,
            len: 8,
            seq,
        };
        let (holes, empty) = (Vec::new(), Vec::new());
        let mut walked =
            Walked { tail: Spot::default(), holes, empty, published: u64::MAX, units_behind: 0 };
        let mut unit = Unit::new(Spot::default());
        let alone = record(Kind::Whole, 0, false, false);
        assert!(unit.accepts(&alone, 0) && !unit.accepts(&alone, 1), "numbers follow each other");
        assert!(
            !unit.accepts(&record(Kind::Whole, 0, true, false), 0),
            "there is no batch that it continues"
        );
        assert!(
            !unit.accepts(&record(Kind::Last, 0, false, false), 0),
            "there is no record that it ends"
        );
        let at = Spot::default();
        unit.add(
            &record(Kind::Whole, 0, false, true),
            at,
            Spot { position: 24, seq: 0 },
            &mut walked,
        );
        assert!(unit.inside() && walked.tail == at, "more of the batch is to come");
        assert!(
            !unit.accepts(&record(Kind::Whole, 1, false, false), 1),
            "of another try at the batch"
        );
        assert!(unit.accepts(&record(Kind::Whole, 1, true, false), 1));
        unit.broken();
        assert!(
            unit.accepts(&record(Kind::Whole, 1, true, false), 1),
            "its batch began in the hole"
        );
    }
}
