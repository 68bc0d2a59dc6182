//! What must hold at the end of a history.

use super::near::{Near, POISON};
use super::stored::Stored;
use super::{Far, History};
use crate::forward::destination::{MissingCause, MissingNumbers, OutgoingKind};
use crate::forward::halt::Halt;
use crate::forward::rules::TellGaps;

impl History {
    /// Somebody else writes to the far side, and removes that again, while nothing of the queue is
    /// under way, nor lost there: neither could be told from it.
    pub(super) fn let_others_write(&mut self, few: u64) {
        let known = self.near.borrow().acknowledged;
        let is_idle = known.handed <= self.near.borrow().place();
        if is_idle && self.far.lock().has_all_below(known.position) {
            self.report(format!("others write {few}"));
            self.driver = None;
            self.near.borrow_mut().flush_all();
            self.far.lock().let_others_write(few);
            self.counts_may_differ = true;
        }
    }

    /// Notes that what the far side had from this number on may be there twice, if its positions do
    /// not count messages.
    pub(super) fn doubt(&mut self, from: u64) {
        let last = self.far.lock().all().iter().map(|stored| stored.seq).max();
        if let Some(last) = last.filter(|_| self.near.borrow().acknowledged.counts_differ) {
            self.doubtful.push(from..=last);
        }
    }

    /// Checks that no message is put aside twice, until they `may_be_again`: the row was taken
    /// back, or messages are sent again that the far side has lost.
    pub(super) fn check_put_aside(&self, may_be_again: bool) {
        let mut dead_letters = self.dead_letters.lock();
        if may_be_again {
            dead_letters.values_mut().for_each(|times| *times = 0);
        }
        assert!(dead_letters.values().all(|times| *times < 2), "put aside: {dead_letters:?}");
    }

    pub(super) fn check(&self) {
        let near = self.near.borrow();
        let far = self.far.lock();
        let counts = !near.acknowledged.counts_differ || self.counts_may_differ;
        assert!(counts, "nothing made the positions count no messages");
        match &self.halt {
            Some(Halt::OlderCopy { .. }) => {
                // (It may have the same messages as the far side, and know of another chain.)
                let found = !self.formers.is_empty();
                assert!(found, "it is no older copy");
                return;
            }
            Some(Halt::Forgotten { place }) => {
                // (A late write may have arrived after the answer.)
                let is_other = self.excused > 0 || far.store > 0;
                assert!(is_other && *place > near.began, "nothing is forgotten");
            }
            Some(Halt::Refused { seq, .. }) => {
                assert_eq!(self.plan.when_refused, 0, "it was to go on");
                assert!(is_refused(&near, *seq), "message {seq} is not refused for good");
            }
            Some(halt) => panic!("{halt}"),
            None => self.check_complete(&near, &far),
        }
        // (A chain cannot be followed over a message that is missing, nor from a copy that was made
        // before the first session, nor to a far side that has lost messages.)
        let is_whole = (0..near.next()).all(|seq| !near.may_be_missing(seq));
        let is_found = !self.is_older_copy(&near, &far) || self.halt.is_some();
        assert!(
            is_found || !is_whole || !self.copy_knew || !far.lost.is_empty(),
            "an older copy goes on"
        );
        self.check_log(&near, &far);
    }

    /// Returns whether the far side holds a message that this queue never sent.
    fn is_older_copy(&self, near: &Near, far: &Far) -> bool {
        !self.formers.is_empty()
            && far.log.iter().flat_map(Stored::unpacked).any(|stored| {
                let here = near.numbers.get(stored.seq as usize);
                stored.kind == OutgoingKind::Message
                    && here.is_none_or(|here| here.bytes != stored.bytes)
            })
    }

    /// Checks that the far side has every message of the queue, except those missing at the end.
    fn check_complete(&self, near: &Near, far: &Far) {
        let until = far.all().last().map_or(0, |it| it.seq + 1).max(self.excused.min(near.place()));
        for seq in until..near.next() {
            let fine = is_refused(near, seq) || self.may_be_lost_there(near, far, seq);
            assert!(fine, "message {seq} is not there");
        }
        let place = near.place();
        assert_eq!(place, near.next(), "the place does not pass what is left out at the end");
        let is_there = |seq: &u64| !near.may_be_missing(*seq);
        let held: Vec<u64> = (near.kept..near.acknowledged.there).filter(is_there).collect();
        assert!(held.len() as u64 <= self.plan.keep, "{held:?} are kept");
        let bytes: usize = held.iter().map(|seq| near.numbers[*seq as usize].bytes.len()).sum();
        assert!(bytes as u64 <= self.plan.keep_bytes, "{bytes} bytes are kept");
        assert_eq!(near.durable, (near.acknowledged, near.kept), "the places are not flushed");
    }

    /// Checks that the log is in order and without duplicates, and that each missing number is
    /// reported and was lost.
    fn check_log(&self, near: &Near, far: &Far) {
        let (mut expected, mut last) = (near.began, None);
        for stored in far.all().into_iter().flat_map(Stored::unpacked) {
            let seq = stored.seq;
            if stored.kind == OutgoingKind::Gap {
                let known = last == Some((seq, stored.sum));
                // The far side may have purged the message before it.
                assert!(known || last.is_none(), "a gap that stands for message {seq}");
                for missing in &stored.missing {
                    assert!(missing.first > seq, "{missing} is reported behind message {seq}");
                    self.check_cause(near, far, *missing);
                }
                continue;
            }
            let may_be = far.misnamed.contains(&seq)
                || self.doubtful.iter().any(|twice| twice.contains(&seq));
            let is_again = seq < expected && may_be;
            assert!(is_again || seq >= expected, "message {seq} is there twice, or out of order");
            if !is_again {
                self.check_missing(near, far, expected..seq, &stored.missing);
            }
            if let Some(number) = near.numbers.get(seq as usize)
                && !self.is_older_copy(near, far)
            {
                assert_eq!(number.bytes, stored.bytes, "message {seq}");
            }
            (expected, last) = (expected.max(seq + 1), Some((seq, stored.sum)));
        }
    }

    /// Checks that these missing numbers are reported with the message behind them.
    fn check_missing(
        &self,
        near: &Near,
        far: &Far,
        range: std::ops::Range<u64>,
        reported: &[MissingNumbers],
    ) {
        for missing in reported {
            assert!(range.contains(&missing.first), "{missing} is told, {range:?} is missing");
            assert!(range.contains(&missing.last), "{missing} is told, {range:?} is missing");
            self.check_cause(near, far, *missing);
        }
        for seq in range.filter(|seq| *seq >= self.excused) {
            let count = reported.iter().filter(|it| (it.first..=it.last).contains(&seq)).count();
            if self.plan.gaps == TellGaps::None {
                assert_eq!(count, 0, "nothing was to be reported");
                let fine = self.may_be_missing(near, seq)
                    || self.may_be_refused(near, seq)
                    || self.may_be_lost_there(near, far, seq);
                assert!(fine, "message {seq} is missing");
            } else {
                assert_eq!(count, 1, "message {seq} is missing; reported: {reported:?}");
            }
        }
    }

    fn check_cause(&self, near: &Near, far: &Far, missing: MissingNumbers) {
        for seq in missing.first..=missing.last {
            let fine = match missing.cause {
                MissingCause::Gap(_) => self.may_be_missing(near, seq),
                MissingCause::Refused => {
                    let away =
                        self.plan.when_refused != 2 || self.dead_letters.lock().contains_key(&seq);
                    away && self.may_be_refused(near, seq)
                }
                MissingCause::LostThere => {
                    seq < self.excused || self.may_be_lost_there(near, far, seq)
                }
            };
            assert!(fine, "{seq} is reported missing: {missing}");
        }
    }

    fn may_be_missing(&self, near: &Near, seq: u64) -> bool {
        self.formers.iter().any(|former| former.may_be_missing(seq)) || near.may_be_missing(seq)
    }

    fn may_be_refused(&self, near: &Near, seq: u64) -> bool {
        self.formers.iter().any(|former| is_refused(former, seq)) || is_refused(near, seq)
    }

    /// Returns whether the far side acknowledged it and lost more than the queue keeps; or the
    /// queue itself has lost it meanwhile, so the order of the two losses does not matter.
    fn may_be_lost_there(&self, near: &Near, far: &Far, seq: u64) -> bool {
        let lost = far.lost.iter().any(|lost| lost.contains(&seq));
        !self.plan.loses_little && lost || self.may_be_missing(near, seq)
    }
}

/// Returns whether the far side never accepts the message.
fn is_refused(near: &Near, seq: u64) -> bool {
    near.numbers.get(seq as usize).is_some_and(|number| {
        number.bytes.first() == Some(&POISON) || number.bytes.len() > near.lengths.2
    })
}
