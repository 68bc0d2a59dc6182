//! Walks over the records, from the best known spot to the end of the valid ones.

use std::io;

use crate::events;
use crate::format::{self, Kind, SEGMENT_HEADER_LEN, Spot};
use crate::index::image::IndexImage;
use crate::index::run::{Next, Run};
use crate::recovery::belief::Belief;
use crate::recovery::rows::{Rows, all_before_was_given_back};
use crate::recovery::unit::Unit;
use crate::recovery::walked::Walked;
use crate::segment::scan::Scan;
use crate::segment::{Lost, Opened, Row, open_life};
use crate::storage::{Storage, StorageFile};

/// Parameters of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalkRules {
    /// Whether the walk searches for more records after invalid bytes.
    pub(super) search: bool,
    /// All units before the start were whole. A segment that begins at the start may begin in the
    /// middle of a unit, and that unit counts.
    pub(super) whole_before: bool,
    /// The published tail's position; `u64::MAX` when it is not known.
    pub(super) published: u64,
}

impl WalkRules {
    pub(super) fn with(belief: Belief, image: &IndexImage, rows: &Rows) -> WalkRules {
        // The kill interrupted the store of the tail, so every record that a producer pushed is
        // whole. Invalid bytes are damage, and more records may follow them.
        let committing = belief == Belief::Cache && image.live.tail.is_none();
        // Reclaimed messages had been committed. With a checkpoint on the disk this does not
        // matter: the walk begins at a unit, or the bytes before the start are lost. But somebody
        // may have restored an older copy of the index: the headers then have a higher
        // `retained_from`. With only another mount, a run may have reclaimed segments beyond the
        // checkpoint.
        let first = rows.live.first().map_or(u64::MAX, |row| row.header.first_seq);
        let is_older = image.checkpoint.is_none_or(|checkpoint| {
            checkpoint.retained_from.max(checkpoint.dropped_seq).max(checkpoint.expired_seq)
                < rows.retained_from
        });
        let by_headers = is_older && first <= rows.retained_from;
        let by_index = belief == Belief::Mount && all_before_was_given_back(image, belief, rows);
        WalkRules {
            search: belief.searches() || committing,
            whole_before: committing || by_headers || by_index,
            published: image.live.tail.map_or(u64::MAX, |tail| tail.position),
        }
    }
}

/// Bytes that the walk passes between two `recovering` events.
const PROGRESS: u64 = 64 << 20;

/// Where the walk begins: the best spot that is known to lie at or before the tail.
pub(super) fn start_of_walk(image: &IndexImage, live: &[Row], belief: Belief) -> Spot {
    let base_of = |row: &Row| Spot { position: row.header.base, seq: row.header.first_seq };
    let known = match (belief == Belief::Cache, image.checkpoint) {
        (true, _) => {
            let next = image.live.run.and_then(|run| next_of_run(&run, live));
            let next = next.map(|next| next.spot());
            match image.live.tail {
                // An opening stores both again, the tail last: until then the next segment's
                // beginning may be the better one.
                Some(tail) => next.filter(|next| next.seq > tail.seq).or(Some(tail)),
                // (Not the last segment's beginning: the run before may have begun it for a record
                // that it never completed.)
                None => next
                    .or(image.live.synced)
                    .or(image.checkpoint.map(|checkpoint| checkpoint.spot())),
            }
        }
        (false, Some(checkpoint)) => Some(checkpoint.spot()),
        (false, None) => None,
    };
    match (known, live.first()) {
        // The segment of the known spot is gone: all retained messages lie after it.
        (Some(known), Some(first)) if known.position < first.header.base => base_of(first),
        (Some(known), _) => known,
        (None, Some(first)) => base_of(first),
        (None, None) => Spot::default(),
    }
}

/// How the next segment begins, if it does not exist yet.
fn next_of_run(run: &Run, live: &[Row]) -> Option<Next> {
    run.next.filter(|next| live.last().is_none_or(|row| row.header.base < next.base))
}

/// Walks over whole units from `start` on, through `opened` files or files that it opens. Stops at
/// the first invalid bytes, unless `rules` tell it to search. An error comes with the name of the
/// file that cannot be read.
pub(super) fn walk<S: Storage>(
    storage: &S,
    rows: &[Row],
    opened: &[Opened<S::File>],
    start: Spot,
    rules: WalkRules,
) -> Result<Walked, (String, io::Error)> {
    let mut walk = Walk::new(start, rules);
    let first = rows.partition_point(|row| row.header.end() <= start.position);
    for row in &rows[first..] {
        let fail = |error| (format::segment_name(row.slot), error);
        let own;
        let known = opened.iter().find(|opened| opened.life == row.header.life);
        let Opened { file, allocated, .. } = match known {
            Some(known) => known,
            None => match open_life(storage, row.slot, &row.header) {
                Ok(opened) => {
                    own = opened;
                    &own
                }
                Err(Lost::Gone) if rules.search => {
                    walk.unit.broken();
                    continue;
                }
                Err(Lost::Gone) => break,
                Err(Lost::Io(error)) => return Err(fail(error)),
            },
        };
        if !walk.enter(row) {
            break;
        }
        let limit = row.header.base + allocated.saturating_sub(SEGMENT_HEADER_LEN);
        let mut scan = Scan::new(file, &row.header, limit);
        walk.go_through(row, &mut scan, |bytes| events::recovering(storage.path(), bytes))
            .map_err(fail)?;
    }
    check!(walk.walked.check(start));
    Ok(walk.walked)
}

/// A walk in progress.
struct Walk {
    rules: WalkRules,
    /// The next fragment may lie in the middle of a unit whose beginning the walk has not seen.
    begins_inside: bool,
    start: Spot,
    /// Where the next fragment is expected.
    at: Spot,
    /// The end of the last segment that the walk entered.
    end: u64,
    unit: Unit,
    /// The checksum of the fragment before; the next fragment of the same record includes it.
    chain: u32,
    /// The position up to which progress was reported.
    reported: u64,
    walked: Walked,
}

impl Walk {
    fn new(start: Spot, rules: WalkRules) -> Walk {
        Walk {
            rules,
            begins_inside: rules.whole_before,
            start,
            at: start,
            end: start.position,
            unit: Unit::new(start),
            chain: 0,
            reported: start.position,
            walked: Walked {
                tail: start,
                holes: Vec::new(),
                empty: Vec::new(),
                published: rules.published,
                units_behind: 0,
            },
        }
    }

    /// Enters the next segment. Returns false when the walk ends in front of it.
    fn enter(&mut self, row: &Row) -> bool {
        let header = &row.header;
        if self.unit.inside() && self.end != header.base {
            // A segment is missing, and a piece of the unit with it.
            self.unit.broken();
        }
        self.end = header.end();
        self.at.position = self.at.position.max(header.base);
        if self.at.position != header.base || self.at.seq == header.first_seq {
            return true;
        }
        let continues = self.unit.in_record && header.first_seq == self.at.seq + 1;
        if !self.rules.search && header.missing_from() != self.at.seq && !continues {
            return false;
        }
        // Numbers are missing before the segment, stated or not: the walk continues with the
        // segment's own first number, unless a gap fragment reached beyond it.
        if !continues && header.first_seq > self.at.seq {
            if self.unit.inside() || self.at.seq < header.missing_from() {
                self.unit.broken();
            }
            self.at.seq = header.first_seq;
            self.unit.begin(self.at);
            if !self.unit.hole {
                // The header states what is missing: the tail may move to the segment's beginning.
                self.walked.tail = self.at;
            }
        }
        true
    }

    /// Walks over the fragments of one segment.
    fn go_through<F: StorageFile>(
        &mut self,
        row: &Row,
        scan: &mut Scan<'_, F>,
        report: impl Fn(u64),
    ) -> io::Result<()> {
        // The rest of a segment may be too short for a fragment.
        while self.at.position + format::FRAGMENT_HEADER_LEN <= row.header.end() {
            if self.begins_inside && self.begin_inside(scan)? {
                continue;
            }
            if self.at.position - self.reported >= PROGRESS {
                self.reported = self.at.position;
                report(self.reported - self.start.position);
            }
            match scan.fragment_at(self.at.position, self.chain)? {
                Some(seen)
                    if self.unit.accepts(&seen.fragment, self.at.seq)
                        && self.unit.seal_holds(&seen, scan)? =>
                {
                    let end = Spot { position: seen.end(), seq: self.at.seq };
                    holds!(
                        self.at.position < end.position,
                        "a walk at {:?} goes on behind the fragment there, to {end:?}",
                        self.at
                    );
                    self.unit.add_to_seal(&seen);
                    self.at = self.unit.add(&seen.fragment, self.at, end, &mut self.walked);
                    self.chain = seen.checksum();
                }
                _ if !self.rules.search => break,
                // A segment whose file ends where it was closed has no padding. The numbers of the
                // next segment and the batch's seal show whether anything is missing.
                _ if scan.ends_before(self.at.position) && !self.unit.in_record => {
                    break;
                }
                _ => {
                    self.unit.broken();
                    let Some(found) = scan.next_intact(self.at, u64::MAX >> 2, || u64::MAX)? else {
                        break;
                    };
                    self.at = found;
                    self.chain = 0;
                    self.unit.begin(self.at);
                }
            }
        }
        Ok(())
    }

    /// For a walk that may begin within a unit: steps over a fragment that continues a record, and
    /// returns whether there was one.
    fn begin_inside<F: StorageFile>(&mut self, scan: &mut Scan<'_, F>) -> io::Result<bool> {
        let Some(seen) = scan
            .header_at(self.at.position)?
            .filter(|_| self.at.position == self.walked.tail.position)
        else {
            self.begins_inside = false;
            return Ok(false);
        };
        self.begins_inside = seen.fragment.kind == Kind::Middle;
        let is_rest = matches!(seen.fragment.kind, Kind::Middle | Kind::Last);
        if is_rest {
            // The walk continues after the fragment, within the same batch or in front of a new
            // unit.
            self.at.position = seen.end();
            self.unit.in_batch = seen.fragment.more;
            self.walked.tail = self.at;
        } else {
            self.unit.in_batch = seen.fragment.continues;
        }
        Ok(is_rest)
    }
}
