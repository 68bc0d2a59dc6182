//! Finds the existing segments: by the rows of the index, or by the headers of all segment files.

use std::collections::BTreeMap;
use std::io;

use crate::error::{Error, Result};
use crate::format::{
    self, FLAG_CHANGING, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState, Version,
};
use crate::index::image::IndexImage;
use crate::recovery::belief::{Belief, SinceRun, first_retained};
use crate::recovery::headers::{Headers, is_blank, put_header_back, state_in_files};
use crate::segment::{Opened, Row, open_and_compare, quarantine, read_header};
use crate::storage::{Storage, StorageFile};

/// The segments, and how the opening found them.
#[derive(Debug)]
pub(super) struct Gathered<F> {
    pub(super) rows: Rows,
    /// The rows of the index list them; if false, the headers of the files do.
    pub(super) from_index: bool,
    /// Live segments that the check of the rows opened.
    pub(super) opened: Vec<Opened<F>>,
}

/// Takes the segments from the rows of the index if those are believed and agree with the files;
/// else from the headers of all segment files.
pub(super) fn load_rows<S: Storage>(
    storage: &S,
    image: &IndexImage,
    known_id: Option<[u8; 16]>,
    since: SinceRun,
    belief: Belief,
) -> Result<Gathered<S::File>> {
    // The rows of a copy name the files that were copied.
    let may_believe = !image.segments.is_empty()
        && since != SinceRun::Copied
        && belief.is_trusted()
        && belief.of_cache(image).is_none_or(|run| run.flags & FLAG_CHANGING == 0)
        && !image.segments_damaged
        && rows_are_complete(image, belief);
    let ends = may_believe.then(|| open_ends(storage, &image.segments)).flatten();
    let mut rows = Rows::default();
    if let Some(opened) = ends.filter(|_| rows_match_files(storage, &image.segments)) {
        image.segments.iter().for_each(|(slot, header)| rows.add(*slot, *header));
        // A kill may have come between a growth of the last file and the update of its row.
        let last = rows.live.iter_mut().max_by_key(|row| row.header.base);
        if let Some(last) = last {
            let is_last = |opened: &&Opened<_>| opened.life == last.header.life;
            if let Some(opened) = opened.iter().find(is_last) {
                note_taken(last, opened.file.disk_bytes());
            }
        }
        return Ok(Gathered { rows, from_index: true, opened });
    }
    let durable = image.checkpoint.map_or(u64::MAX, |checkpoint| checkpoint.position);
    rows.gather(storage, known_id, &image.segments, durable)?;
    // A row has the sizes of its file as of the last growth.
    rows.measure(storage);
    Ok(Gathered { rows, from_index: false, opened: Vec::new() })
}

/// The segments of the queue.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) live: Vec<Row>,
    pub(super) spares: Vec<Row>,
    /// Segments that are live by their headers, and that the opening will discard.
    pub(super) stale: Vec<Row>,
    pub(super) foreign_slots: Vec<u32>,
    pub(super) queue_id: Option<[u8; 16]>,
    pub(super) highest_life: Option<u64>,
    /// The highest `retained_from` of all headers: every message below this number was reclaimed.
    pub(super) retained_from: u64,
    /// The highest version of all headers.
    pub(super) version: Version,
}

impl Rows {
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.spares.is_empty()
    }

    /// Moves the live segments that fail `is_of_use` to the stale ones.
    pub(super) fn retain_live(&mut self, is_of_use: impl Fn(&Row) -> bool) {
        self.stale.extend(self.live.extract_if(.., |row| !is_of_use(row)));
    }

    /// Asks the file system for each segment's disk usage.
    fn measure<S: Storage>(&mut self, storage: &S) {
        self.live.iter_mut().chain(&mut self.spares).for_each(|row| measure(storage, row));
    }

    /// Adds the segment in `slot`.
    pub(super) fn add(&mut self, slot: u32, header: SegmentHeader) {
        self.highest_life = self.highest_life.max(Some(header.life));
        self.retained_from = self.retained_from.max(header.retained_from);
        self.version = self.version.max(header.version);
        let row = Row::new(slot, header);
        match header.state {
            SegmentState::Live => self.live.push(row),
            SegmentState::Spare => self.spares.push(row),
        }
    }

    /// Reads the header of every segment file, and quarantines files that are another queue's or no
    /// segment. The queue is the one that the index names if any segment agrees, else the one that
    /// most segments name. If an index with segments meets one segment of another queue, neither
    /// wins: the opening fails and changes nothing. No record from the position `durable` on is
    /// known to be on the disk.
    pub(super) fn gather<S: Storage>(
        &mut self,
        storage: &S,
        known_id: Option<[u8; 16]>,
        noted: &[(u32, SegmentHeader)],
        durable: u64,
    ) -> Result<()> {
        let Headers { whole, mut damaged, stated_by_rows } = Headers::read(storage, noted)?;
        let mut votes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
        for (_, header) in &whole {
            *votes.entry(header.queue_id).or_default() += 1;
        }
        self.queue_id = match known_id {
            Some(id) if votes.contains_key(&id) || votes.is_empty() => Some(id),
            Some(_) if !noted.is_empty() && votes.values().all(|votes| *votes == 1) => {
                return Err(of_two_queues(storage, &whole));
            }
            _ => votes.iter().max_by_key(|(_, votes)| **votes).map(|(id, _)| *id),
        };
        if self.queue_id == known_id {
            state_in_files(storage, &stated_by_rows)?;
        }
        for (slot, header) in whole {
            if Some(header.queue_id) == self.queue_id {
                self.add(slot, header);
            } else {
                damaged.push((slot, 0));
            }
        }
        for (slot, len) in damaged {
            let known = noted.iter().find(|(other, header)| {
                *other == slot && header.state == SegmentState::Live && len > SEGMENT_HEADER_LEN
            });
            match known {
                Some((_, header))
                    if known_id == self.queue_id
                        && put_header_back(storage, slot, header, len)? =>
                {
                    let mut header = *header;
                    header.allocated = len.min(header.length);
                    self.add(slot, header);
                }
                // A blank file is removed unless it lies before the checkpoint, which proves that
                // it held messages.
                known
                    if (known.is_none_or(|(_, header)| header.base >= durable))
                        && is_blank(storage, slot, len)
                        && storage.remove(&format::segment_name(slot)).is_ok() => {}
                _ => {
                    let _ = quarantine(storage, &format::segment_name(slot));
                    self.foreign_slots.push(slot);
                }
            }
        }
        Ok(())
    }

    /// Sorts the live segments by position.
    pub(super) fn sort(&mut self) {
        self.live.sort_unstable_by_key(|row| (row.header.base, row.header.life, row.slot));
    }

    /// Moves segments to the stale ones if a segment of a later life contradicts them. Lives and
    /// positions grow together: a segment that overlaps one of a later life, or lies after it, was
    /// discarded before that one was made, and its removal did not reach the disk (R9).
    pub(super) fn drop_outlived(&mut self) {
        self.sort();
        if planted!(OutlivedKept) {
            return;
        }
        let mut kept: Vec<Row> = Vec::with_capacity(self.live.len());
        for row in self.live.drain(..) {
            while let Some(last) = kept.last()
                && row.header.outlives(&last.header)
            {
                self.stale.extend(kept.pop());
            }
            if kept.last().is_some_and(|last| last.header.life > row.header.life) {
                self.stale.push(row);
            } else {
                kept.push(row);
            }
        }
        self.live = kept;
        holds!(
            self.live.windows(2).all(|rows| rows[0].header.life < rows[1].header.life),
            "lives grow with positions: {:?}",
            self.live
        );
        holds!(
            self.live.windows(2).all(|rows| rows[0].header.end() <= rows[1].header.base),
            "live segments do not overlap: {:?}",
            self.live
        );
    }
}

/// Whether every message before the first segment was reclaimed.
pub(super) fn all_before_was_given_back(image: &IndexImage, belief: Belief, rows: &Rows) -> bool {
    let first = rows.live.first().map_or(0, |row| row.header.missing_from());
    first <= first_retained(image, belief, rows.retained_from)
}

/// Whether a segment file has a life that the index does not know of. If so, somebody restored an
/// older copy of the index, and nothing in it is exact. The test is exact because the writer stores
/// `next_life` before any header has the life before it, and withdraws the mark of a clean end
/// before it begins a segment. (It may make a spare while that mark is valid.)
pub(super) fn is_outdated(image: &IndexImage, belief: Belief, rows: &Rows) -> bool {
    let made_since =
        |rows: &[Row], next_life: u64| rows.iter().any(|row| row.header.life >= next_life);
    match belief {
        Belief::Cache | Belief::Mount => image.live.run.is_some_and(|run| {
            made_since(&rows.live, run.next_life) || made_since(&rows.spares, run.next_life)
        }),
        Belief::CleanEnd => {
            image.checkpoint.is_some_and(|checkpoint| made_since(&rows.live, checkpoint.next_life))
        }
        Belief::Disk => false,
    }
}

/// The error for an index of one queue beside segments of other queues.
fn of_two_queues<S: Storage>(storage: &S, others: &[(u32, SegmentHeader)]) -> Error {
    let name = others.first().map_or_else(String::new, |(slot, _)| format::segment_name(*slot));
    let why = "the index beside it is another queue's: one of the two files was put there by \
        mistake, and nothing was changed; put the right one in its place, or move the other away";
    let source = io::Error::new(io::ErrorKind::InvalidData, why);
    Error::io("open", storage.path().join(name), source)
}

/// Asks the file system which file the segment is, and how many bytes of disk it takes.
fn measure<S: Storage>(storage: &S, row: &mut Row) {
    let file = storage.open(&format::segment_name(row.slot));
    row.header.file = file.as_ref().map_or(0, |file| file.stat().unwrap_or_default().identity);
    note_taken(row, file.and_then(|file| file.disk_bytes()));
}

/// Notes how many bytes of disk the segment takes; if the file system does not report it, the most
/// that the segment can take.
fn note_taken(row: &mut Row, taken: io::Result<u64>) {
    let unknown = row.header.length;
    let taken = taken.unwrap_or(unknown);
    row.header.disk = taken.max(row.header.allocated);
}

/// Whether no row is missing: the live segments follow each other without a break and reach from
/// the lowest place to the tail. Where numbers are missing, the next segment begins one word
/// further, so that a reader at the end of the one before has bytes to pass and reports the gap.
/// After a larger step this returns false and the opening reads the headers: slower, never wrong.
pub(super) fn rows_are_complete(image: &IndexImage, belief: Belief) -> bool {
    let live = image
        .segments
        .iter()
        .map(|(_, header)| header)
        .filter(|header| header.state == SegmentState::Live);
    let mut live: Vec<&SegmentHeader> = live.collect();
    live.sort_unstable_by_key(|header| header.base);
    let (Some(first), Some(last)) = (live.first(), live.last()) else {
        return false;
    };
    let retained_from =
        image.segments.iter().map(|(_, header)| header.retained_from).max().unwrap_or(0);
    let tail = match (belief.of_cache(image).is_some(), image.live.tail, image.checkpoint) {
        (true, Some(tail), _) => tail.position,
        // A kill interrupted the store of the live tail: the walk begins at the base of the last
        // segment, whichever that is.
        (true, None, _) => last.end(),
        (false, _, checkpoint) => checkpoint.map_or(0, |checkpoint| checkpoint.position),
    };
    follow_each_other(live.iter().copied())
        && (first.missing_from() <= first_retained(image, belief, retained_from))
        && (last.base..=last.end() + format::ALIGN).contains(&tail)
}

/// Whether no segment is missing between these, which are sorted by position.
pub(super) fn follow_each_other<'a>(live: impl Iterator<Item = &'a SegmentHeader>) -> bool {
    let mut end = None;
    live.into_iter().all(|header| {
        let before = end.replace(header.end());
        before.is_none_or(|end| (end..=end + format::ALIGN).contains(&header.base))
    })
}

/// Opens the first and the last live segment, if they are the files that the index names. `None`
/// for an index of another queue or an outdated one, and for a damaged header, which the opening
/// then writes again from its row.
fn open_ends<S: Storage>(
    storage: &S,
    segments: &[(u32, SegmentHeader)],
) -> Option<Vec<Opened<S::File>>> {
    if planted!(EndsNotLookedAt) {
        return Some(Vec::new());
    }
    let live = || segments.iter().filter(|(_, header)| header.state == SegmentState::Live);
    let first = live().min_by_key(|(_, header)| header.base);
    let last = live().max_by_key(|(_, header)| header.base);
    let ends = [first, last.filter(|last| Some(*last) != first)].into_iter().flatten();
    let opened = ends.map(|(slot, header)| {
        let (opened, begins_so) = open_and_compare(storage, *slot, header).ok()?;
        (begins_so && opened.allocated >= header.allocated).then_some(opened)
    });
    opened.collect()
}

/// Whether each segment file has a row and each spare is what its row says. Two cases break this.
/// After a clean end the queue was opened again and power was cut: a segment made in between left
/// its file without its row, or its row without its file. Or somebody restored an older copy of the
/// index: a segment made since has no row, or took a spare's file. This does not look for missing
/// live segments; the reader that comes to one notices.
fn rows_match_files<S: Storage>(storage: &S, segments: &[(u32, SegmentHeader)]) -> bool {
    let listed = storage.list().unwrap_or_default();
    if listed.iter().any(|listed| listed.name == format::INDEX_NEW_NAME) {
        // The opening then reads all files, and removes the leftover new index.
        return false;
    }
    let mut files = listed.iter().filter_map(|listed| format::segment_slot(&listed.name));
    let has_row = |slot: u32| segments.binary_search_by_key(&slot, |(slot, _)| *slot).is_ok();
    let mut spares = segments.iter().filter(|(_, header)| header.state == SegmentState::Spare);
    let is_it = |slot: u32, noted: &SegmentHeader| {
        let found = read_header(storage, slot);
        found.is_ok_and(|found| found.life == noted.life && found.queue_id == noted.queue_id)
    };
    files.all(has_row) && spares.all(|(slot, header)| is_it(*slot, header))
}
