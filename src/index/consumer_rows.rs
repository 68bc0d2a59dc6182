//! The rows of consumers: names and places.

use crate::error::{Error, Result};
use crate::format::{
    self, ACKS_ROW_LEN, ACKS_SLOT_LEN, Acks, CONSUMER_ROWS, ConsumerAt, ExtentKind,
    MAX_SHORT_NAME_LEN, NAME_ROW_LEN, PLACE_PAIR_LEN, PLACE_SLOT_LEN, Place, Spot, place_at,
};
use crate::index::Index;
use crate::index::index_extents::{Extents, consumer_of, row_of, rows_of};
use crate::storage::sheet::Sheet;
use crate::storage::{Storage, StorageFile};

/// The row of one consumer's place. The consumer owns it, under its lock.
#[derive(Debug)]
pub(crate) struct PlaceRow<F> {
    sheet: Sheet<F>,
    at: ConsumerAt,
    seed: u32,
    number: u64,
}

/// The default consumer's row.
pub(crate) const DEFAULT_ROW: u32 = 0;

/// Every place whose number is a multiple of this goes to the copy as well.
const COPIED_EVERY: u64 = 64;

impl<F: StorageFile> PlaceRow<F> {
    /// Stores a new place in the older slot. The other slot stays whole until this one is, so after
    /// a kill between two stores, or a torn page, one of them is valid.
    #[inline(always)]
    pub(crate) fn store(&mut self, spot: Spot) {
        self.number += 1;
        let place = Place { number: self.number, position: spot.position, seq: spot.seq };
        let slot = self.number & 1;
        let slot = self.at.pair + slot as usize * PLACE_SLOT_LEN;
        self.sheet.store_row(slot, place.words(), place.sum(self.seed));
        holds!(
            newest_place(&self.sheet, self.at, self.seed) == Some(place),
            "the place that was stored last counts: {place:?}"
        );
        if self.number.is_multiple_of(COPIED_EVERY) {
            self.store_copy(spot);
        }
    }

    /// Stores the copy of the last place.
    #[cold]
    #[inline(never)]
    fn store_copy(&self, spot: Spot) {
        let place = Place { number: self.number, position: spot.position, seq: spot.seq };
        self.sheet.store_row(self.at.copy, place.words(), place.sum(self.seed));
    }
}

impl<S: Storage> Index<S> {
    /// Returns the row of a new consumer. The file may grow by `room` bytes for it.
    fn take_row(&self, name: &str, room: u64) -> Result<u32> {
        if name.is_empty() {
            return Ok(DEFAULT_ROW);
        }
        let mut extents = self.extents.lock();
        // The first row is the default consumer's.
        let free = |row: &u32| !extents.consumers.contains(row);
        // The removal of a consumer from the row is not on the disk yet: after a power cut the row
        // could hold parts of both consumers.
        let unknown = |row: &u32| {
            extents.removed.get(row).is_some_and(|ticket| !self.syncs.is_past(*ticket))
                && !planted!(RemovedRowUsedAtOnce)
        };
        let rows = rows_of(&extents.sheets, ExtentKind::Consumers);
        let known = (1..rows).find(|row| free(row) && !unknown(row));
        let row = known.or_else(|| (1..).find(free)).unwrap_or(u32::MAX);
        if row >= rows {
            self.add_extent(&mut extents, ExtentKind::Consumers, CONSUMER_ROWS as u32, room)?;
        }
        Ok(row)
    }

    /// Gives a new consumer a row, with the `place` where it begins; or opens the row `known` of an
    /// existing one. `with_room` calls its argument with the bytes by which the file may grow, and
    /// holds the list's lock meanwhile.
    ///
    /// Producers and readers need that lock and those of the extents, so only a growing file syncs
    /// under them, each time the number of rows doubles. The caller holds the registry's lock:
    /// nobody else takes a row until this one is in use.
    pub(crate) fn add_consumer(
        &self,
        known: Option<u32>,
        name: &str,
        place: Place,
        with_room: impl FnOnce(&dyn Fn(u64) -> Result<u32>) -> Result<u32>,
    ) -> Result<(u32, PlaceRow<S::File>)> {
        let row = match known {
            Some(row) => row,
            None => with_room(&|room| self.take_row(name, room))?,
        };
        let extents = self.extents.lock();
        let Some((sheet, at)) = consumer_of(&extents.sheets, row) else {
            return Err(Error::internal(
                &self.directory,
                "the index grew by consumers' rows, and has no row for one",
            ));
        };
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        let mut place_row = PlaceRow { sheet: sheet.share(), at, seed, number: place.number };
        let sheet = sheet.share();
        let mut has_cleared = false;
        if known.is_none() {
            // The row may have had a consumer of the same name, and part of its removal may not be
            // on the disk.
            place_row.number = newest_place(&sheet, at, seed).map_or(0, |place| place.number);
            has_cleared = self.clear_former(&extents, row, seed, &mut place_row);
        }
        drop(extents);
        if has_cleared {
            self.sync()?;
        }
        let (mut said, wanted) = ([0; NAME_ROW_LEN], format::encode_name(name));
        sheet.copy_out(at.name, &mut said);
        if said != wanted {
            sheet.copy_in(at.name, &wanted);
        }
        if known.is_none() {
            if name.len() > MAX_SHORT_NAME_LEN && !planted!(LongNameNotSynced) {
                // An opening takes a place without a name for damage, not for a power cut.
                self.sync()?;
            }
            place_row.store(place.spot());
            place_row.store(place.spot());
        }
        // Damage may have taken a known consumer's name or copy.
        let (mut copied, wanted) = ([0; PLACE_PAIR_LEN], Place::empty_copy(name));
        sheet.copy_out(at.copy, &mut copied);
        if known.is_none()
            || copied[place_at::PLACE_NAME..] != wanted[place_at::PLACE_NAME..]
            || Place::decode(&copied, seed).is_none()
        {
            sheet.copy_in(at.copy, &wanted);
            place_row.store_copy(place.spot());
        }
        let mut extents = self.extents.lock();
        holds!(
            known.is_some() || !extents.consumers.contains(&row) || name.is_empty(),
            "the row {row}, which {name:?} gets, was free"
        );
        holds!(
            newest_place(&sheet, at, seed).is_some_and(|stored| stored.spot() == place.spot()),
            "the place of {name:?} is stored in row {row}, at {:?}",
            place.spot()
        );
        extents.consumers.insert(row);
        check!(extents.check());
        Ok((row, place_row))
    }

    /// The default consumer's row, whether it exists or not.
    pub(crate) fn default_row(&self) -> Result<PlaceRow<S::File>> {
        let extents = self.extents.lock();
        let Some((sheet, at)) = consumer_of(&extents.sheets, DEFAULT_ROW) else {
            return Err(Error::internal(&self.directory, "the index has no consumers' rows"));
        };
        let seed = Place::seed(&self.queue_id, b"");
        Ok(PlaceRow { sheet: sheet.share(), at, seed, number: 0 })
    }

    /// Clears the remains of an earlier consumer in the row, before the new one gets a name or a
    /// place there. Returns whether there were any; then the caller syncs the index before it goes
    /// on.
    ///
    /// A power cut may have undone part of the removal. A consumer of the same name may have left
    /// its place or acknowledgements, and the new one has acknowledged nothing. Any other consumer
    /// may have left its name: it would reappear at its last place once the place that marks its
    /// removal is overwritten.
    fn clear_former(
        &self,
        extents: &Extents<S::File>,
        row: u32,
        seed: u32,
        place_row: &mut PlaceRow<S::File>,
    ) -> bool {
        let mut was_used = newest_place(&place_row.sheet, place_row.at, seed)
            .is_some_and(|place| !place.is_removed());
        if was_used {
            let removed = Place::removed(0);
            place_row.store(removed.spot());
        }
        let (sheet, at) = (&place_row.sheet, place_row.at);
        for (offset, len) in [(at.name, NAME_ROW_LEN), (at.copy, PLACE_PAIR_LEN)] {
            let mut bytes = [0; NAME_ROW_LEN];
            sheet.copy_out(offset, &mut bytes[..len]);
            if bytes.iter().any(|byte| *byte != 0) {
                sheet.zero(offset, len);
                was_used = true;
            }
        }
        for at in 0..rows_of(&extents.sheets, ExtentKind::Acks) {
            let is_owned = extents.acks_rows.get(at as usize).is_some_and(Option::is_some);
            let Some((sheet, offset)) =
                row_of(&extents.sheets, ExtentKind::Acks, at).filter(|_| !is_owned)
            else {
                continue;
            };
            let mut bytes = [0; ACKS_ROW_LEN];
            sheet.copy_out(offset, &mut bytes);
            if bytes.chunks(ACKS_SLOT_LEN).any(|slot| Acks::decode(slot, row, seed).is_some()) {
                sheet.zero(offset, ACKS_ROW_LEN);
                was_used = true;
            }
        }
        was_used |= self.clear_former_attempts(&extents.attempts_rows, row, seed);
        was_used | self.clear_former_forward(extents, row, seed)
    }

    /// Removes the consumer by storing a place that marks the removal in the older slot. A power
    /// cut that undoes part of this leaves the consumer at its last place or removed, never at an
    /// earlier place. A long name stays until the row is used again: with its place and without the
    /// name the row would look damaged.
    pub(crate) fn remove_consumer(&self, row: u32, name: &str) {
        let mut extents = self.extents.lock();
        if let Some((sheet, at)) = consumer_of(&extents.sheets, row) {
            let seed = Place::seed(&self.queue_id, name.as_bytes());
            let place =
                Place::removed(newest_place(sheet, at, seed).map_or(0, |place| place.number) + 1);
            let slot = at.pair + (place.number & 1) as usize * PLACE_SLOT_LEN;
            sheet.store_row(slot, place.words(), place.sum(seed));
            if name.len() <= MAX_SHORT_NAME_LEN {
                sheet.copy_in(at.name, &[0; NAME_ROW_LEN]);
            }
            sheet.copy_in(at.copy, &[0; PLACE_PAIR_LEN]);
        }
        holds!(extents.consumers.contains(&row), "the consumer {name:?}, in row {row}, was there");
        extents.consumers.remove(&row);
        extents.removed.insert(row, self.syncs.ticket());
    }
}

/// The newest of a consumer's places, which may be the mark of its removal.
fn newest_place<F: StorageFile>(sheet: &Sheet<F>, at: ConsumerAt, seed: u32) -> Option<Place> {
    let places = at.places().into_iter().filter_map(|place| {
        let mut bytes = [0; place_at::PLACE_NAME];
        sheet.copy_out(place, &mut bytes);
        Place::decode(&bytes, seed)
    });
    places.max_by_key(|place| place.number)
}
