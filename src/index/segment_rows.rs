//! Writes the rows of segments, and adds extents to the file.

use std::io;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::format::{
    EXTENT_ROWS, Extent, ExtentKind, INDEX_NAME, SEGMENT_ROW_LEN, SEGMENT_ROWS, SegmentHeader,
};
use crate::index::Index;
use crate::index::image::{extent_row, first_extents};
use crate::index::index_extents::{Extents, row_of, rows_of};
use crate::storage::{Storage, StorageFile};

impl<S: Storage> Index<S> {
    /// Writes the row of the segment in `slot`; `None` clears it. The file may grow by `room`
    /// bytes. Returns false when the slot has no row and none can be added: no opening may believe
    /// the rows then.
    pub(crate) fn write_segment_row(
        &self,
        slot: u32,
        header: Option<&SegmentHeader>,
        room: u64,
    ) -> bool {
        let mut extents = self.extents.lock();
        if row_of(&extents.sheets, ExtentKind::Segments, slot).is_none() {
            if header.is_none() {
                return true;
            }
            // Somebody may have given a file a high slot number: the index must not grow that far
            // for it.
            if slot > 4 * rows_of(&extents.sheets, ExtentKind::Segments) {
                return false;
            }
            let rows =
                (slot + 1).next_multiple_of(SEGMENT_ROWS as u32).max(2 * SEGMENT_ROWS as u32);
            if self.add_extent(&mut extents, ExtentKind::Segments, rows, room).is_err() {
                return false;
            }
        }
        let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Segments, slot) else {
            return false;
        };
        holds!(
            header.is_none_or(|header| header.allocated <= header.length),
            "the row of segment {slot} promises no more bytes than there are: {header:?}"
        );
        let bytes = header.map_or([0; SEGMENT_ROW_LEN], SegmentHeader::encode);
        sheet.copy_in(offset, &bytes);
        true
    }

    /// Adds an extent with rows of `kind` at the end of the file, which grows by at most `room`
    /// bytes. The space of the rows is allocated before the extent table names them.
    pub(super) fn add_extent(
        &self,
        extents: &mut Extents<S::File>,
        kind: ExtentKind,
        rows: u32,
        room: u64,
    ) -> Result<()> {
        let failed = |error| Error::io("grow", self.directory.join(INDEX_NAME), error);
        let full = |what: &str| failed(io::Error::new(io::ErrorKind::QuotaExceeded, what));
        let added = extents.sheets.len() - first_extents().len();
        if added >= EXTENT_ROWS {
            return Err(full("the index file has no row for another extent"));
        }
        let have = rows_of(&extents.sheets, kind);
        let page = crate::memory::page_size();
        let rows = rows.saturating_sub(have).max(have);
        let extent = Extent::behind(kind, extents.file_len, rows, page);
        let extent = extent.ok_or_else(|| full("the index file would be longer than 4 GiB"))?;
        let offset = u64::from(extent.offset);
        let len = (extent.end() - offset).next_multiple_of(page);
        if offset + len - extents.file_len > room {
            return Err(full("max_bytes or min_free_bytes leaves no room for a longer index file"));
        }
        let row = extent.encode(&self.queue_id);
        if planted!(ExtentBeforeItsRows) {
            extent_row(added).into_iter().for_each(|at| self.sheet.copy_in(at, &row));
        }
        self.sheets.file().allocate(offset, len).map_err(failed)?;
        let sheet = self.sheets.sheet(offset, len as usize).map_err(failed)?;
        sheet.zero(0, len as usize);
        if kind == ExtentKind::Consumers && !planted!(ConsumersNamedUnsynced) {
            // An opening takes missing rows of consumers for damage, not for a power cut.
            self.sync()?;
        }
        extent_row(added).into_iter().for_each(|at| self.sheet.copy_in(at, &row));
        extents.sheets.push((extent, sheet));
        extents.file_len = offset + len;
        self.len.store(extents.file_len, Ordering::Relaxed);
        check!(extents.check());
        Ok(())
    }
}
