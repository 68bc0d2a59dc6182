//! What is promised to one consumer after a life, held against what an opening shows to it.

use std::collections::BTreeMap;

use super::heard::Heard;
use super::known::Sent;
use super::reported::{Check, ensure};
use super::script::Script;
use super::shown::Next;
use crate::error::{Gap, GapCause};
use crate::options::{OnFull, Options};
use crate::tests::sim::Call;

pub(super) struct Promised<'a> {
    pub(super) sent: &'a Sent,
    /// What came next for it when the life before had ended.
    pub(super) upcoming: &'a [Next],
    pub(super) heard: &'a Heard,
    /// Power was cut.
    pub(super) is_cut: bool,
    /// The opened queue knows that every number below was evicted.
    pub(super) evicted: u64,
    /// Its first segment begins with this number.
    pub(super) retained_from: u64,
    /// Everything below is on disk.
    pub(super) durable: u64,
    /// Everything below was found on the disk behind a power cut.
    pub(super) on_disk: u64,
    /// By identity, of all lives before.
    pub(super) batches: &'a BTreeMap<u64, Vec<u64>>,
    /// No call reported a number at or above it: after a power cut such a one may never have
    /// been, also if a copy that was opened reported that its message had expired.
    pub(super) next: u64,
    pub(super) script: &'a Script,
    /// Who has that number, of all that were ever seen.
    pub(super) ids: &'a BTreeMap<u64, u64>,
    pub(super) losses: Losses,
    /// It was removed in this life, and perhaps made again at the oldest message held.
    pub(super) is_removed: bool,
    /// It was removed in this life or before: it may begin before what came next for it.
    pub(super) is_anew: bool,
}

/// What the options of any life so far allow to be evicted.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Losses {
    drops: bool,
    expires: bool,
}

impl Losses {
    pub(super) fn allow(&mut self, options: &Options) {
        self.drops |= options.on_full == OnFull::DropOldest;
        self.expires |= options.max_age.is_some();
    }
}

impl Promised<'_> {
    pub(super) fn check(&self, shown: &[Next]) -> Check {
        let mut expected = self.sent.acknowledged.clone();
        expected.extend(self.upcoming.iter().filter_map(Next::message));
        let came: BTreeMap<u64, u64> = shown.iter().filter_map(Next::message).collect();
        let gaps: Vec<Gap> = shown.iter().filter_map(Next::gap).collect();
        self.check_messages(&came, &expected)?;
        self.check_batches(&came)?;
        self.check_losses(&gaps, &expected)?;
        self.check_reported(&gaps, &came)?;
        self.check_missing(&gaps, &came, &expected)
    }

    /// What comes was put in, under that number, and was not dealt with before.
    fn check_messages(&self, came: &BTreeMap<u64, u64>, expected: &BTreeMap<u64, u64>) -> Check {
        for (seq, id) in came {
            // A power cut takes places back.
            let goes_back = self.is_cut || self.is_anew;
            let known = expected.get(seq).or(if goes_back { self.ids.get(seq) } else { None });
            ensure!(
                known.is_none_or(|known| known == id),
                "{seq} is {known:x?} and comes as {id:x}"
            );
            ensure!(!self.sent.refused.contains(id), "{id:x} was refused and comes as {seq}");
            ensure!(
                known.is_some() || self.sent.open.contains(id),
                "{id:x} comes as {seq}, and nobody put it in"
            );
            if !self.is_cut && !self.script.may_be_late() && !self.is_removed {
                ensure!(!self.heard.taken.contains_key(seq), "{seq} comes again");
            }
            ensure!(
                !self.heard.durable.contains(seq),
                "{seq} comes again, and was dealt with before a flush"
            );
        }
        Ok(())
    }

    /// Only a power cut loses what was acknowledged, and only what was not durable.
    fn check_losses(&self, gaps: &[Gap], expected: &BTreeMap<u64, u64>) -> Check {
        for gap in gaps {
            check_cause(gap, self.script, self.losses)?;
            if !matches!(gap.cause, GapCause::Unflushed | GapCause::Reserved) {
                continue;
            }
            let acknowledged = expected.range(gap.first..=gap.last).map(|(seq, _)| *seq);
            for seq in acknowledged {
                ensure!(
                    self.is_cut && !self.must_stay(seq),
                    "{seq} was acknowledged and is in {gap:?}"
                );
            }
            if !self.is_cut && !self.is_anew {
                let is_old = |seq| {
                    let mut gaps = self.upcoming.iter().filter_map(Next::gap);
                    gaps.any(|other| holds(&other, seq))
                };
                ensure!(
                    gap.last - gap.first > 100_000 || (gap.first..=gap.last).all(is_old),
                    "{gap:?} after a kill"
                );
            }
        }
        Ok(())
    }

    /// A power cut does not take that message: a flush has confirmed it, or a cut has left it
    /// already. (The rest of a batch whose beginning has gone needs the flush.)
    fn must_stay(&self, seq: u64) -> bool {
        let id = self.ids.get(&seq);
        let batch = id.and_then(|id| Some((id, self.batches.get(id)?)));
        let nth = batch.and_then(|(id, batch)| batch.iter().position(|other| other == id));
        let is_rest =
            nth.is_some_and(|nth| seq - (nth as u64) < self.evicted.max(self.retained_from));
        seq < self.durable || seq < self.on_disk && !is_rest
    }

    /// A gap that was to be reported is reported.
    fn check_reported(&self, gaps: &[Gap], came: &BTreeMap<u64, u64>) -> Check {
        for gap in self.upcoming.iter().filter_map(Next::gap) {
            let is_reported = |seq: u64| {
                // A power cut takes back that it was evicted.
                self.is_cut && (came.contains_key(&seq) || seq >= self.next)
                    || gaps.iter().chain(&self.heard.gaps).any(|reported| holds(reported, seq))
            };
            ensure!(
                is_reported(gap.first) && is_reported(gap.last)
                    || self.heard.unended > 0
                    || self.is_removed,
                "{gap:?} was to be reported and is not"
            );
        }
        Ok(())
    }

    /// What was acknowledged comes, unless it was dealt with, or is reported as evicted.
    fn check_missing(
        &self,
        gaps: &[Gap],
        came: &BTreeMap<u64, u64>,
        expected: &BTreeMap<u64, u64>,
    ) -> Check {
        let heard = self.heard;
        let is_evicted = |seq: u64| {
            gaps.iter().any(|gap| {
                holds(gap, seq) && matches!(gap.cause, GapCause::Dropped | GapCause::Expired)
            })
        };
        let is_reported = |seq: u64| heard.gaps.iter().any(|gap| holds(gap, seq));
        let is_missing = |seq: &u64| {
            !came.contains_key(seq)
                && !heard.taken.contains_key(seq)
                && !heard.answered.contains(seq)
                && !is_evicted(*seq)
                && !is_reported(*seq)
                && (!self.is_cut || self.must_stay(*seq))
        };
        // Acts that had not ended may have taken some: the first ones. (A power cut brings back
        // what others had dealt with before.)
        let is_back = |seq: &u64| {
            self.is_cut && (heard.taken.contains_key(seq) || heard.answered.contains(seq))
        };
        let first = came.keys().copied().find(|seq| !is_back(seq)).unwrap_or(u64::MAX);
        let options = &self.script.options;
        let drops = options.on_full == OnFull::DropOldest || options.max_age.is_some();
        // A message that is in flight comes again, and others behind it may be taken.
        let may_be_out_of_order = !heard.open.is_empty() || heard.receiving > 0;
        // One that had not ended, a look too, may have got the gap of evicted ones. (A power
        // cut may take back that the queue knows it. A kill may come when the consumer has passed
        // the first ones, and the index does not yet say why.)
        let may_be_reported = |seq: u64| {
            let is_known = self.is_cut || seq < self.evicted || seq < first;
            drops && heard.unended > 0 && is_known
        };
        let is_begun_anew = self.is_removed || self.is_cut && self.is_anew;
        let is_before = |seq: u64| is_begun_anew && seq < first;
        let missing = expected
            .keys()
            .filter(|seq| is_missing(seq) && !may_be_reported(**seq) && !is_before(**seq));
        for (nth, seq) in missing.enumerate() {
            ensure!(
                (*seq < first || may_be_out_of_order) && nth < heard.pending,
                "{seq} ({:x?}) was acknowledged and is gone; {} acts had not ended",
                expected.get(seq),
                heard.pending
            );
        }
        Ok(())
    }

    /// Of each batch that comes now all is there, but for what was dealt with.
    fn check_batches(&self, came: &BTreeMap<u64, u64>) -> Check {
        let ids: BTreeMap<u64, u64> = came.iter().map(|(seq, id)| (*id, *seq)).collect();
        for (id, seq) in &ids {
            let Some(batch) = self.sent.batches.get(id) else { continue };
            let nth = batch.iter().position(|other| other == id).unwrap_or(0) as u64;
            for (other, id) in (seq - nth..).zip(batch) {
                let is_dealt_with = other < *came.keys().next().unwrap_or(&0)
                    || self.heard.taken.contains_key(&other);
                ensure!(
                    self.heard.pending > 0
                        || ids.get(id) == Some(&other)
                        || is_dealt_with
                        || self.heard.answered.contains(&other),
                    "of a batch {seq} comes and {other} does not"
                );
            }
        }
        Ok(())
    }
}

pub(super) fn holds(gap: &Gap, seq: u64) -> bool {
    (gap.first..=gap.last).contains(&seq)
}

/// Damage is reported only where reads were made to fail, and what is evicted only where some
/// life, this one or another, was to give it up.
pub(super) fn check_cause(gap: &Gap, script: &Script, losses: Losses) -> Check {
    let may = match gap.cause {
        GapCause::Dropped => losses.drops,
        GapCause::Expired => losses.expires,
        GapCause::Unflushed | GapCause::Reserved => true,
        _ => script.faults.iter().any(|(call, ..)| *call == Call::Read),
    };
    ensure!(may, "{gap:?}");
    Ok(())
}
