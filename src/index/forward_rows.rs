//! The rows of forwarders: how far the far side of each has acknowledged.

#[cfg(feature = "forward")]
use crate::error::{Error, Result};
#[cfg(feature = "forward")]
use crate::format::FORWARD_ROWS;
use crate::format::{ExtentKind, FORWARD_ROW_LEN, FORWARD_SLOT_LEN, ForwardSlot, Place};
use crate::index::Index;
use crate::index::image::IndexImage;
use crate::index::index_extents::{Extents, row_of, rows_of};
use crate::storage::sheet::Sheet;
use crate::storage::{Storage, StorageFile};

/// One forwarder's row. The forwarder owns it.
#[cfg(feature = "forward")]
#[derive(Debug)]
pub(crate) struct ForwardRow<F> {
    sheet: Sheet<F>,
    offset: usize,
    seed: u32,
    stored: ForwardSlot,
}

#[cfg(feature = "forward")]
impl<F: StorageFile> ForwardRow<F> {
    /// What was stored last.
    pub(crate) fn stored(&self) -> &ForwardSlot {
        &self.stored
    }

    /// Stores `slot`, except its number and owner, in the older slot: the newer one stays whole
    /// until this one is.
    pub(crate) fn store(&mut self, slot: ForwardSlot) {
        let (number, owner) = (self.stored.number + 1, self.stored.owner);
        self.stored = ForwardSlot { number, owner, ..slot };
        let at = self.offset + (number & 1) as usize * FORWARD_SLOT_LEN;
        self.sheet.copy_in(at, &self.stored.encode(self.seed));
    }
}

impl<F> Extents<F> {
    /// The number of the row that belongs to the forwarder of the consumer in `row`.
    fn forward_row_of(&self, row: u32) -> Option<usize> {
        self.forward_rows.iter().position(|owner| *owner == Some(row))
    }
}

impl<S: Storage> Index<S> {
    /// Returns the row of the forwarder of the consumer `name` in `row`: its own, or a free one in
    /// which it begins at `began`. The file may grow by `room` bytes.
    #[cfg(feature = "forward")]
    pub(crate) fn forward_row(
        &self,
        row: u32,
        name: &str,
        began: u64,
        room: u64,
    ) -> Result<ForwardRow<S::File>> {
        let mut extents = self.extents.lock();
        let rows = rows_of(&extents.sheets, ExtentKind::Forwards) as usize;
        extents.forward_rows.resize(rows, None);
        let own = extents.forward_row_of(row);
        let free = || extents.forward_rows.iter().position(Option::is_none);
        let at = own.or_else(free).unwrap_or(rows);
        if at == rows {
            self.add_extent(&mut extents, ExtentKind::Forwards, FORWARD_ROWS as u32, room)?;
            let rows = rows_of(&extents.sheets, ExtentKind::Forwards) as usize;
            extents.forward_rows.resize(rows, None);
        }
        let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Forwards, at as u32) else {
            return Err(Error::internal(
                &self.directory,
                "the index grew by forwarders' rows, and has no row for one",
            ));
        };
        let begins = ForwardSlot {
            owner: row,
            until: began,
            there: began,
            began,
            handed: began,
            ..ForwardSlot::default()
        };
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        let stored = newest_in(sheet, offset, row, seed).filter(|_| own.is_some());
        let stored = stored.unwrap_or(begins);
        let mut forward_row = ForwardRow { sheet: sheet.share(), offset, seed, stored };
        if own.is_none() {
            sheet.zero(offset, FORWARD_ROW_LEN);
            forward_row.store(stored);
        }
        if let Some(owner) = extents.forward_rows.get_mut(at) {
            *owner = Some(row);
        }
        check!(extents.check());
        Ok(forward_row)
    }

    /// Notes that the forwarder of the consumer `name` in `row` may have handed over every message
    /// below `next`: a power cut took its row back, and no position tells how far.
    #[cfg(feature = "forward")]
    pub(crate) fn hand_all(&self, row: u32, name: &str, next: u64) -> Result<()> {
        let mut forward_row = self.forward_row(row, name, 0, 0)?;
        let stored = forward_row.stored;
        forward_row.store(ForwardSlot { handed: stored.handed.max(next), ..stored });
        Ok(())
    }

    /// Clears the row of the removed forwarder of the consumer in `row`. Returns whether there was
    /// one. The caller syncs the index.
    pub(super) fn clear_forward(&self, extents: &mut Extents<S::File>, row: u32) -> bool {
        let Some(at) = extents.forward_row_of(row) else {
            return false;
        };
        if let Some(owner) = extents.forward_rows.get_mut(at) {
            *owner = None;
        }
        if let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Forwards, at as u32) {
            sheet.zero(offset, FORWARD_ROW_LEN);
        }
        true
    }

    /// Clears the row of an earlier forwarder that had this consumer's row and `seed`. Returns
    /// whether there was one.
    pub(super) fn clear_former_forward(
        &self,
        extents: &Extents<S::File>,
        row: u32,
        seed: u32,
    ) -> bool {
        let mut has_cleared = false;
        for at in 0..rows_of(&extents.sheets, ExtentKind::Forwards) {
            let is_owned = extents.forward_rows.get(at as usize).is_some_and(Option::is_some);
            let found = row_of(&extents.sheets, ExtentKind::Forwards, at).filter(|_| !is_owned);
            let Some((sheet, offset)) = found else {
                continue;
            };
            if newest_in(sheet, offset, row, seed).is_some() {
                sheet.zero(offset, FORWARD_ROW_LEN);
                has_cleared = true;
            }
        }
        has_cleared
    }
}

/// The newest slot of the row at `offset` that belongs to this owner.
fn newest_in<F: StorageFile>(
    sheet: &Sheet<F>,
    offset: usize,
    owner: u32,
    seed: u32,
) -> Option<ForwardSlot> {
    let mut bytes = [0; FORWARD_ROW_LEN];
    sheet.copy_out(offset, &mut bytes);
    let slots = bytes.chunks(FORWARD_SLOT_LEN);
    let slots = slots.filter_map(|slot| ForwardSlot::decode(slot, owner, seed));
    slots.max_by_key(|slot| slot.number)
}

impl IndexImage {
    /// Reads the rows of forwarders; needs the consumers.
    pub(super) fn read_forwards(&mut self, bytes: &[u8], queue_id: &[u8; 16]) {
        let extents = self.extents.iter().filter(|extent| extent.kind == ExtentKind::Forwards);
        let slots = extents.flat_map(|extent| {
            let rows = extent.rows as usize;
            (0..rows).map(|row| extent.offset as usize + row * FORWARD_ROW_LEN)
        });
        for offset in slots {
            let mut newest: Option<ForwardSlot> = None;
            for consumer in &self.consumers {
                let seed = Place::seed(queue_id, consumer.name.as_bytes());
                for slot in [offset, offset + FORWARD_SLOT_LEN] {
                    let part = bytes.get(slot..).unwrap_or_default();
                    let slot = ForwardSlot::decode(part, consumer.row, seed);
                    if slot.map(|slot| slot.number) > newest.map(|slot| slot.number) {
                        newest = slot;
                    }
                }
            }
            let is_owner = |row: u32| newest.is_some_and(|slot| slot.owner == row);
            if let Some(owner) = self.consumers.iter_mut().find(|it| is_owner(it.row)) {
                owner.forward = newest;
            }
            self.forward_rows.push(newest);
        }
    }

    /// Encodes the rows of forwarders into an index file.
    pub(super) fn encode_forwards(&self, queue_id: &[u8; 16], mut put: impl FnMut(usize, &[u8])) {
        for (row, stored) in (0..).zip(&self.forward_rows) {
            let consumer = stored.as_ref().and_then(|stored| self.owner(stored.owner));
            if let (Some(stored), Some(consumer), Some((extent, row))) =
                (stored, consumer, self.row_of(ExtentKind::Forwards, row))
            {
                let seed = Place::seed(queue_id, consumer.name.as_bytes());
                let slot = (stored.number & 1) as usize * FORWARD_SLOT_LEN;
                let at = extent.offset as usize + row as usize * FORWARD_ROW_LEN + slot;
                put(at, &stored.encode(seed));
            }
        }
    }
}
