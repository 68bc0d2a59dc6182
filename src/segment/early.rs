//! Shortens the files of segments that the writer closed early because their time span was over.
//!
//! A cut changes no byte of a record, nor the padding behind the last one, which says where the
//! segment ends. So a crash before or after it leaves the same messages, and a power cut may leave
//! either length. The index's row gets the shorter length before the file is cut: a row never
//! promises bytes that the file does not have. The row gets the smaller disk usage last, after a
//! sync of the file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Segments;
use super::context::Context;
use super::files::{Segment, disk_bytes};
use super::list::List;
use super::row::{EarlyEnd, Row};
use crate::storage::{Storage, StorageFile};

impl<F: StorageFile> List<F> {
    /// Notes that the time span of `segment` is over and the last live segment replaced it:
    /// `segment` has no records behind `offset`. A rollback of the last segment also drops this
    /// note.
    pub(crate) fn note_early_end(&mut self, segment: &Segment<F>, offset: u64) {
        let follows = self.live.back_mut().filter(|row| row.header.life != segment.header.life);
        if let Some(row) = follows {
            row.early_end = Some(EarlyEnd { life: segment.header.life, offset });
        }
    }

    /// Cuts the segment before the one at `at`. It counts with its old size until the next flush
    /// has synced it: before that a power cut may restore the longer file.
    fn cut_before<S: Storage<File = F>>(&mut self, context: &Context<'_, S>, at: usize) {
        let Some(EarlyEnd { life, offset }) = self.live[at].early_end else {
            return;
        };
        let before = at.checked_sub(1).map(|before| self.live[before]);
        let Some(mut row) = before.filter(|row| row.header.life == life) else {
            self.live[at].early_end = None;
            return;
        };
        let cut = offset.next_multiple_of(crate::memory::page_size());
        let Ok(segment) = self.open(context.storage, &row) else {
            return;
        };
        // A reader that has the segment open may read behind the cut. No reader opens it meanwhile,
        // since opening takes the list's lock.
        let by_list = self.kept_open.iter().chain(&self.handed_on);
        let known = 1 + by_list.filter(|open| open.header.life == life).count();
        if Arc::strong_count(&segment) > known && !planted!(CutUnderReaders) {
            return;
        }
        self.live[at].early_end = None;
        if cut >= segment.allocated() {
            return;
        }
        segment.allocated.store(cut, Ordering::Release);
        context.pool.cut(life, cut);
        (row.header.allocated, row.is_cut) = (cut, true);
        self.write_row(context, &row);
        reached!("between a row that is shorter and its file");
        // On failure the file keeps its length and counts with it.
        let _ = segment.file.set_len(cut);
        context.index.note_changed(segment.file.stat());
        if planted!(CutCountsAtOnce) {
            row.header.disk = disk_bytes(&segment.file, 0, cut);
            self.write_row(context, &row);
        }
        holds!(
            (segment.header.base..=segment.header.end()).contains(&segment.allocated_end()),
            "a segment that is cut at {cut} ends in itself: {:?}",
            segment.header
        );
        self.live[at - 1] = row;
        self.note_store(&segment);
    }

    /// Notes that the segment was synced. If it was cut before, a power cut cannot restore the
    /// longer file, so from now on it counts with its real size.
    pub(crate) fn note_cut<S: Storage<File = F>>(
        &mut self,
        context: &Context<'_, S>,
        segment: &Segment<F>,
    ) {
        let was_cut = |row: &&mut Row| {
            row.header.life == segment.header.life && row.is_cut && row.unsynced_store == 0
        };
        if let Some(row) = self.live.iter_mut().find(was_cut) {
            row.is_cut = false;
            row.header.disk = disk_bytes(&segment.file, row.header.disk, row.header.allocated);
            let row = *row;
            self.write_row(context, &row);
        }
        check!(self.check());
    }
}

impl<S: Storage> Segments<S> {
    /// Cuts the files of segments that were closed early, except those that a reader has open.
    pub(crate) fn cut_early_ends(&self, context: &Context<'_, S>) {
        let reclaiming = self.reclaiming.lock();
        if *reclaiming {
            return;
        }
        let mut list = self.list();
        for at in 0..list.live.len() {
            list.cut_before(context, at);
        }
    }
}
