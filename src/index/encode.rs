//! Encodes the content of one index into the bytes of a new one.

use crate::format::{
    self, ACKS_ROW_LEN, ACKS_SLOT_LEN, Acks, ConsumerAt, Extent, ExtentKind, Place,
    SEGMENT_ROW_LEN, index_at,
};
use crate::index::image::{ConsumerRow, IndexImage, extent_row, first_extents};
use crate::index::index_extents::find_row;

impl IndexImage {
    /// The bytes of an index file of the queue `queue_id`, created at the time `created`
    /// (milliseconds since 1970), with all of this image except its holder's token: so no opening
    /// takes the file for the state of the page cache. All checksums are computed anew, so the
    /// image may be another queue's.
    pub(crate) fn encode(&self, queue_id: &[u8; 16], created: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.used() as usize];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let header = format::encode_index_header(queue_id, created, self.version);
        put(index_at::INDEX_HEADER, &header);
        if let Some(checkpoint) = &self.checkpoint {
            // A later checkpoint goes to the second slot.
            put(index_at::CHECKPOINT_A, &checkpoint.encode(queue_id));
            put(index_at::CHECKPOINT_B, &checkpoint.encode(queue_id));
        }
        self.live.encode(queue_id, &mut put);
        for (row, extent) in self.extents.iter().skip(first_extents().len()).enumerate() {
            for at in extent_row(row) {
                put(at, &extent.encode(queue_id));
            }
        }
        for (slot, header) in &self.segments {
            if let Some((extent, row)) = self.row_of(ExtentKind::Segments, *slot) {
                put(extent.offset as usize + row as usize * SEGMENT_ROW_LEN, &header.encode());
            }
        }
        for consumer in &self.consumers {
            let Some((extent, row)) = self.row_of(ExtentKind::Consumers, consumer.row) else {
                continue;
            };
            let (at, offset) = (ConsumerAt::new(row, extent.rows), extent.offset as usize);
            let seed = Place::seed(queue_id, consumer.name.as_bytes());
            put(offset + at.name, &format::encode_name(&consumer.name));
            put(offset + at.copy, &Place::empty_copy(&consumer.name));
            for place in at.places() {
                put(offset + place, &consumer.place.encode(seed));
            }
        }
        for (row, owner) in (0..).zip(&self.acks_rows) {
            let consumer = owner.and_then(|owner| {
                Some((owner, self.owner(owner.consumer)?, self.row_of(ExtentKind::Acks, row)?))
            });
            let Some((owner, consumer, (extent, row))) = consumer else {
                continue;
            };
            let seed = Place::seed(queue_id, consumer.name.as_bytes());
            let ranges = consumer.acks.iter().copied();
            let mut slot = [0; ACKS_SLOT_LEN];
            Acks::encode(owner.number, consumer.row, ranges, seed, &mut slot);
            // A later store goes to the other slot.
            let at = row as usize * ACKS_ROW_LEN + (owner.number & 1) as usize * ACKS_SLOT_LEN;
            put(extent.offset as usize + at, &slot);
        }
        self.encode_attempts(queue_id, &mut put);
        self.encode_forwards(queue_id, put);
        bytes
    }

    /// Length in bytes of the part of the file that the extents use.
    pub(super) fn used(&self) -> u64 {
        self.extents.iter().map(Extent::end).max().unwrap_or(0).max(index_at::END as u64)
    }

    /// The consumer in `row`.
    pub(super) fn owner(&self, row: u32) -> Option<&ConsumerRow> {
        self.consumers.iter().find(|consumer| consumer.row == row)
    }

    pub(super) fn row_of(&self, kind: ExtentKind, row: u32) -> Option<(&Extent, u32)> {
        let (at, row) = find_row(self.extents.iter(), kind, row)?;
        Some((self.extents.get(at)?, row))
    }
}
