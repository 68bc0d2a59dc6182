//! Creates segments and grows their files.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Coming;
use super::context::{Context, Plan};
use super::files::{Segment, disk_bytes, overhead};
use super::list::List;
use super::row::Row;
use crate::error::{Error, Result};
use crate::events::{self, SegmentFile};
use crate::format::{self, SEGMENT_HEADER_LEN, SegmentHeader, SegmentState};
use crate::storage::{Storage, StorageFile};
use crate::threads::AtomicU64;

/// Bytes that a new segment file gets at first.
const FIRST_STEP: u64 = 256 << 10;
/// The most bytes by which a segment file grows at a time.
pub(super) const LARGEST_STEP: u64 = 8 << 20;

impl<F: StorageFile> List<F> {
    /// Creates a segment file with space for `need` bytes behind the header. `whole` is the payload
    /// length of its first record.
    pub(super) fn create<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        header: SegmentHeader,
        need: u64,
        whole: u64,
    ) -> Result<Arc<Segment<F>>> {
        let (slot, file) = loop {
            let free = self.names.slots.lowest_free();
            let name = format::segment_name(free);
            self.names.slots.insert(free);
            match context.storage.create(&name) {
                Ok(file) => break (free, file),
                // The file there is not ours: it keeps its name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    self.names.slots.remove(&free);
                    return Err(Error::io("create", context.storage.path().join(name), error));
                }
            }
        };
        let name = format::segment_name(slot);
        let page = crate::memory::page_size();
        let exact = (SEGMENT_HEADER_LEN + need).next_multiple_of(page).min(header.length);
        // The queue's first segment may stay its only one, so it gets little space. After a segment
        // that filled up, the next one probably will, too.
        let first_step = context.fill_step().unwrap_or(0).max(FIRST_STEP);
        let was_filled =
            self.live.back().is_some_and(|row| row.header.allocated == row.header.length);
        let step = if was_filled { LARGEST_STEP } else { first_step };
        let generous = self.within_limit(context, header.length, 0, exact.max(step)).max(exact);
        let mut made = self.allocate(context, &file, &name, header.length, 0..generous);
        while matches!(&made, Err(error) if error.is_full()) {
            made = self.allocate(context, &file, &name, header.length, 0..exact);
            if matches!(&made, Err(error) if error.is_full()) && !self.discard_spare(context) {
                break;
            }
        }
        let made = made.and_then(|allocated| {
            let filled = context.begin_filled(&file, allocated, whole);
            file.write_at(&header.encode(), 0)
                .map_err(|error| Error::io("write", context.storage.path().join(&name), error))?;
            Ok((allocated, filled))
        });
        match made {
            Ok((allocated, filled)) => {
                self.names.directory_changes += 1;
                Ok(Arc::new(Segment {
                    slot,
                    seed: header.seed(),
                    header: SegmentHeader {
                        file: file.stat().unwrap_or_default().identity,
                        ..header
                    },
                    file,
                    allocated: AtomicU64::new(allocated),
                    fresh_from: SEGMENT_HEADER_LEN,
                    filled: AtomicU64::new(filled.max(page)),
                }))
            }
            Err(error) => {
                // The empty file must not take space on a full disk.
                if context.storage.remove(&name).is_ok() {
                    self.names.slots.remove(&slot);
                } else {
                    // The next opening removes it. Until then it counts like a quarantined file.
                    let _ = file.set_len(0);
                    self.names.other_bytes += file.disk_bytes().unwrap_or(header.length);
                }
                Err(error)
            }
        }
    }

    /// Makes the next segment of the queue from a spare, or else from a new file.
    pub(super) fn append<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        plan: Plan,
    ) -> Result<Arc<Segment<F>>> {
        let mut header = self.begin_life(context, SegmentState::Live, plan)?;
        header.length = self.spare_in_need(context, plan.need).unwrap_or(header.length);
        let made = match self.take_spare(context, &header) {
            Some(made) => Ok(made),
            None => self.create(context, header, plan.need, plan.whole).map(|segment| {
                let disk = disk_bytes(&segment.file, 0, segment.allocated());
                (segment, disk)
            }),
        };
        if let Ok((segment, disk)) = &made {
            let is_new = segment.is_fresh(SEGMENT_HEADER_LEN);
            let file = if is_new { SegmentFile::New } else { SegmentFile::Spare };
            events::segment_begun(context.storage.path(), segment.slot, header.first_seq, file);
            let mut row = Row::new(segment.slot, segment.header);
            row.header.disk = *disk;
            row.header.allocated = segment.allocated();
            self.live.push_back(row);
            self.open.retain(|(_, open)| open.strong_count() > 0);
            self.open.push((row.header.life, Arc::downgrade(segment)));
            self.note_store(segment);
            self.write_row(context, &row);
        }
        check!(self.check());
        context.index.set_rows_are(self.rows_are());
        made.map(|(segment, _)| segment)
    }

    /// Returns the header of a new life. From here until the segment's row is written, the index
    /// marks its rows as possibly wrong.
    pub(super) fn begin_life<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        state: SegmentState,
        plan: Plan,
    ) -> Result<SegmentHeader> {
        let life = self.names.next_life;
        context.begin_life(life + 1)?;
        self.names.next_life += 1;
        check!(let mut rows = self.live.iter().chain(self.recycling.rows()));
        holds!(rows.all(|row| row.header.life < life), "the life {life} was never used");
        Ok(SegmentHeader {
            version: context.index.version(),
            state,
            queue_id: context.index.queue_id,
            life,
            base: plan.base,
            first_seq: plan.first_seq,
            missing: plan.missing,
            retained_from: self.recycling.retained_from,
            created: plan.created,
            until: plan.until,
            length: self.next_len(context.pool.geometry(), &plan),
            allocated: 0,
            disk: 0,
            file: 0,
            salt: self.names.salts.draw(context.storage),
        })
    }

    /// Writes the segment's row to the index, if the index has room. (Only a segment's first row
    /// may find no room.)
    pub(super) fn write_row<S: Storage<File = F>>(&mut self, context: &Context<'_, S>, row: &Row) {
        let room = self.index_room(context);
        self.names.rows_complete &=
            context.index.write_segment_row(row.slot, Some(&row.header), room);
    }

    /// Allocates the file's missing space up to offset `end`, and some beyond it while there is
    /// room. Only when no drained segment will free space does it allocate nothing beyond, and
    /// remove spares.
    pub(super) fn extend<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        segment: &Segment<F>,
        end: u64,
        coming: Coming,
    ) -> Result<()> {
        let (have, length) = (segment.allocated(), segment.header.length);
        let exact = end.next_multiple_of(crate::memory::page_size()).min(length);
        let generous = exact.max((4 * have).clamp(FIRST_STEP, have + LARGEST_STEP));
        let generous = self.within_limit(context, length, have, generous).max(exact);
        let full = |got: &Result<u64>| matches!(got, Err(error) if error.is_full());
        let mut got =
            self.allocate(context, &segment.file, &segment.name(), length, have..generous);
        if full(&got) && coming == Coming::Nothing {
            context.begin_changing()?;
            while full(&got) {
                got = self.allocate(context, &segment.file, &segment.name(), length, have..exact);
                if full(&got) && !self.discard_spare(context) {
                    break;
                }
            }
            context.index.set_rows_are(self.rows_are());
        }
        let allocated = got?;
        segment.allocated.store(allocated, Ordering::Release);
        context.pool.grown(segment.header.life, allocated);
        if let Some(row) =
            self.live.iter_mut().rev().find(|row| row.header.life == segment.header.life)
        {
            row.header.allocated = allocated;
            row.header.disk = disk_bytes(&segment.file, row.header.disk, allocated);
            let row = *row;
            self.write_row(context, &row);
        }
        check!(self.check());
        Ok(())
    }

    /// Returns up to where a segment may be allocated that has space up to `have` and wants it up
    /// to `end`: less than `end` if `max_bytes` leaves less. So it grows in large steps near the
    /// limit, too.
    fn within_limit<S: Storage<File = F>>(
        &self,
        context: &Context<'_, S>,
        length: u64,
        have: u64,
        end: u64,
    ) -> u64 {
        let end = end.min(length);
        let Some(limit) = context.limits.max_bytes else {
            return end;
        };
        let first = if have == 0 { overhead(length) } else { 0 };
        let left = limit.saturating_sub(self.limited_bytes() + context.index.len() + first);
        let page = crate::memory::page_size();
        let within = end.min(have + left / page * page);
        holds!(
            within <= have || self.limited_bytes() + context.index.len() + within - have <= limit,
            "a file that grows from {have} to {within} stays within {limit}"
        );
        within
    }

    /// Allocates the range of a segment file of that length, if the limits allow it. Returns the
    /// range's end.
    pub(super) fn allocate<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        file: &F,
        name: &str,
        length: u64,
        range: Range<u64>,
    ) -> Result<u64> {
        let Range { start: have, end } = range;
        // The list does not count a file that is being made.
        let first = if have == 0 { overhead(length) } else { 0 };
        let needed = end - have + first;
        let index = context.index.len();
        let used = self.limited_bytes() + index;
        // A queue that drops its oldest messages ahead of need begins a segment only when all of it
        // has room: behind a segment that the limit cuts short, spares would have no room.
        let geometry = context.pool.geometry();
        let whole = geometry.drops_ahead && length <= geometry.usual_len && !self.live.is_empty();
        let asked = if have == 0 && whole { length + first } else { needed };
        if let Some(limit) = context.limits.max_bytes
            && used + asked > limit
        {
            return Err(context.full(used, limit, asked));
        }
        let path = || context.storage.path().join(name);
        if context.limits.min_free_bytes > 0 {
            let free = context
                .storage
                .free_bytes()
                .map_err(|error| Error::io("measure", path(), error))?;
            if free < context.limits.min_free_bytes.saturating_add(needed) {
                let limit = context.limits.min_free_bytes;
                let path = context.storage.path().to_owned();
                return Err(Error::Full {
                    path,
                    option: "min_free_bytes",
                    used,
                    limit,
                    needed,
                    free: Some(free),
                    held_by: None,
                });
            }
        }
        let before = disk_bytes(file, 0, have);
        file.allocate(have, end - have).map_err(|error| Error::io("allocate", path(), error))?;
        if let Some(limit) = context.limits.max_bytes {
            // The file system may have taken more blocks for the file's extents.
            let needed = disk_bytes(file, 0, end).saturating_sub(before).max(needed);
            if used + needed > limit {
                file.set_len(have).map_err(|error| Error::io("truncate", path(), error))?;
                return Err(context.full(used, limit, needed));
            }
        }
        Ok(end)
    }
}
