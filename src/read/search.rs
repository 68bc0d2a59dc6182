//! The slow path to the next record: past ends of segments, padding, recorded gaps and damage.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::gather::gather;
use super::pass_gaps::{pass_to, pass_to_end};
use super::view::failed;
use super::{Check, Cursor, Record};
use crate::commit::Core;
use crate::error::{Error, GapCause, Result};
use crate::format::{FRAGMENT_HEADER_LEN, Spot};
use crate::segment::lies::Lies;
use crate::segment::scan::Scan;
use crate::segment::{Row, Segment};
use crate::storage::{Storage, StorageFile};

impl<F: StorageFile> Cursor<F> {
    /// Finds the record at the spot, and remembers it. Returns false when there is none. Verifies
    /// the payload at once, unless `check` is [`Check::Never`].
    #[cold]
    #[inline(never)]
    pub(super) fn find_slowly<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Result<bool, Box<Error>> {
        let check = if check == Check::Never { Check::Never } else { Check::Now };
        self.found = None;
        let searched = self.search(core, check);
        check!(self.check(core));
        self.found = searched?;
        check!(self.check(core));
        Ok(self.found.is_some())
    }

    /// Returns the record at the spot, after passing everything before it.
    fn search<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        check: Check,
    ) -> Result<Option<Record>> {
        while self.see_more(core)? {
            let Some(segment) = self.enter_segment(core)? else {
                self.pass_missing_segments(core)?;
                continue;
            };
            let end = segment.header.end();
            if self.spot.position + FRAGMENT_HEADER_LEN > end {
                self.cross(end);
                continue;
            }
            self.look(core, &segment)?;
            if let Some(record) = self.find_quickly(core, check) {
                return Ok(Some(record));
            }
            if let Some(record) = self.meet_fragment(core, &segment, check)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Whether any bytes at the spot are visible. Reads the visible end, and once more after a
    /// pause.
    fn see_more<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<bool> {
        self.limit = core.visible.position.load(Ordering::Acquire);
        if self.spot.position < self.limit {
            return Ok(true);
        }
        self.pause.spin();
        self.limit = core.visible.position.load(Ordering::Acquire);
        let came = core.visible.seq.load(Ordering::Relaxed).saturating_sub(self.spot.seq);
        self.pause.adapt(came);
        if self.spot.position < self.limit {
            return Ok(true);
        }
        if came == 0 {
            return Ok(false);
        }
        // The number is ahead of the position: a producer is publishing (it stores the number
        // first), or numbers are missing right before the end.
        let end = core.visible_end();
        if self.spot.position >= end.position {
            pass_to_end(&mut self.spot, &core.gaps, end)?;
            return Ok(false);
        }
        self.limit = end.position;
        Ok(true)
    }

    /// Called when no segment contains the spot. Enters a segment that the writer has begun
    /// meanwhile; without one all messages before the visible end are gone, and the cursor passes
    /// them.
    fn pass_missing_segments<S: Storage<File = F>>(&mut self, core: &Core<S>) -> Result<()> {
        reached!("where no segment is");
        let end = core.visible_end();
        self.limit = end.position;
        if self.enter_segment(core)?.is_some() {
            return Ok(());
        }
        pass_to_end(&mut self.spot, &core.gaps, end)
    }

    /// Returns the record that begins at the spot; `None` when other bytes are there, which the
    /// cursor steps over.
    fn meet_fragment<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        segment: &Arc<Segment<F>>,
        check: Check,
    ) -> Result<Option<Record>> {
        let io = |error| failed("read", core, segment, error);
        let limit = self.limit.min(segment.allocated_end());
        let mut scan = Scan::new(&segment.file, &segment.header, limit);
        match scan.lies_at(self.spot).map_err(io)? {
            Lies::Padding(seen) => self.spot.position = seen.end(),
            // An earlier read took that record, or reported it as a gap.
            Lies::Rest(seen) if seen.fragment.is_numbered(self.spot.seq.wrapping_sub(1)) => {
                self.spot.position = seen.end();
            }
            Lies::Gap(seen, number) => {
                self.spot.position = seen.end();
                pass_to(&mut self.spot, &core.gaps, number, Some(GapCause::Unflushed))?;
            }
            Lies::Record(_) => {
                drop(scan);
                let (first, scratch) = (Arc::clone(segment), &mut self.scratch);
                let record = gather(core, first, self.spot, self.limit, check, scratch)?;
                if record.is_some() {
                    self.verified = check == Check::Now;
                    return Ok(record);
                }
                self.resynchronise(core, segment)?;
            }
            _ => self.resynchronise(core, segment)?,
        }
        Ok(None)
    }

    /// Called where the bytes at the spot are damaged: moves to the segment's next intact record,
    /// or past the segment.
    #[cold]
    fn resynchronise<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        segment: &Segment<F>,
    ) -> Result<()> {
        let below = core.visible.seq.load(Ordering::Acquire);
        let limit = self.limit.min(segment.allocated_end());
        let mut scan = Scan::new(&segment.file, &segment.header, limit);
        let found = scan
            .next_intact(self.spot, below, || {
                let next = core.segments.list().at(segment.header.end());
                next.map_or(u64::MAX, |row| row.header.first_seq)
            })
            .map_err(|error| Error::io("read", core.storage.path(), error))?;
        if let Some(found) = found {
            self.spot.position = found.position;
            return pass_to(&mut self.spot, &core.gaps, found.seq, None);
        }
        if segment.header.end() <= self.limit {
            self.cross(segment.header.end());
            return Ok(());
        }
        reached!("behind a search that found nothing");
        let tail = core.visible_end();
        if tail.position > self.limit {
            // A producer published messages after the search got its limit: `search` continues, up
            // to the new end.
            return Ok(());
        }
        // The damage reaches to the tail.
        pass_to_end(&mut self.spot, &core.gaps, tail)
    }

    /// Returns where the message `seq` begins, or `end`, which was the visible end a moment ago.
    /// The caller prevents that segments are reclaimed.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when the queue does not retain the message.
    pub(crate) fn spot_of<S: Storage<File = F>>(
        core: &Core<S>,
        seq: u64,
        end: Spot,
    ) -> Result<Spot> {
        let oldest = core.oldest(end);
        let not_found = || Error::no_message(core.storage.path(), seq, oldest.seq..end.seq);
        match seq.cmp(&end.seq) {
            // Since the caller read `end`, messages may have been added and dropped.
            std::cmp::Ordering::Equal => Ok(Spot::max(end, oldest)),
            // A message whose first pieces are gone is not retained.
            std::cmp::Ordering::Less if seq >= oldest.seq => {
                let rows: Vec<_> = core.segments.list().live.iter().copied().collect();
                Cursor::seek(core, &rows, seq)?.ok_or_else(not_found)
            }
            _ => Err(not_found()),
        }
    }

    /// The beginning of the segment in which the message `seq` begins; the first segment's if none
    /// does.
    pub(crate) fn segment_of(rows: &[Row], seq: u64) -> Option<Spot> {
        // `<`, not `<=`: a segment whose first number is `seq` may begin with the message's end,
        // and then the message begins in the segment before.
        let at = rows.partition_point(|row| row.header.first_seq < seq);
        let row = at.checked_sub(1).map_or_else(|| rows.first(), |at| rows.get(at))?;
        Some(Spot { position: row.header.base, seq: row.header.first_seq })
    }

    /// Returns the spot of the message `seq`, or of the next one if that is missing. Walks over the
    /// headers from the beginning of its segment.
    pub(crate) fn seek<S: Storage<File = F>>(
        core: &Core<S>,
        rows: &[Row],
        seq: u64,
    ) -> Result<Option<Spot>> {
        let Some(begin) = Self::segment_of(rows, seq).filter(|begin| begin.seq <= seq) else {
            return Ok(None);
        };
        let mut cursor: Cursor<F> = Cursor::new(begin);
        while cursor.spot.seq < seq {
            match cursor.find_header(core) {
                Ok(Some(_)) => cursor.advance(),
                // `seq` lies in a gap that reaches to the tail.
                Ok(None) => break,
                Err(Error::Gap(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(cursor.spot))
    }
}
