//! What the bytes of an index file say, whatever they are.
//!
//! Each part is read for itself: what does not validate is left out, and nothing is believed here that the caller has to decide
//! about (the live part above all, which is true only while the storage says so).

use crate::given_up::GivenUp;
use crate::layout::{
    self, ACKS_ROW_LEN, ACKS_ROWS, ACKS_SLOT_LEN, Acks, CONSUMER_ROW_LEN, CONSUMER_ROWS, Checkpoint, EXTENT_ROW_LEN,
    EXTENT_ROWS, Extent, ExtentKind, LIVE_LEN, Place, SEGMENT_ROW_LEN, SEGMENT_ROWS, SegmentHeader, consumer_at,
    index_at, live_at, place_at,
};

/// What the live part says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) token: [u8; 16],
    pub(crate) pid: u32,
    pub(crate) flags: u32,
    pub(crate) next_life: u64,
    pub(crate) lease: u64,
    /// `None` when a kill came between its stores.
    pub(crate) given_up: Option<GivenUp>,
    /// No segment and no record says a later time.
    pub(crate) latest: u64,
    /// Position and sequence number of the tail; `None` when a kill came between their stores.
    pub(crate) tail: Option<(u64, u64)>,
    /// Where the next segment begins when the last one takes no more records, and the numbers missing before it.
    pub(crate) next_base: u64,
    pub(crate) next_gap: u64,
    /// Position and sequence number before which everything is on disk, as far as a flush has said.
    pub(crate) synced: Option<(u64, u64)>,
}

/// A consumer as the index names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerRow {
    /// Row number over all extents.
    pub(crate) row: u32,
    /// Empty: the default consumer.
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Ranges beyond the place that are done.
    pub(crate) acks: Vec<(u64, u64)>,
}

/// All that can be read from the bytes of an index file, whatever they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexImage {
    /// The newest valid checkpoint.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Neither slot holds anything above this number, valid or not.
    pub(crate) slot_number: u64,
    pub(crate) newest_is_b: bool,
    pub(crate) live: Live,
    pub(crate) consumers: Vec<ConsumerRow>,
    /// Slot and header of every segment that is noted, spares included.
    pub(crate) segments: Vec<(u32, SegmentHeader)>,
    /// A row notes something that is not valid.
    pub(crate) segments_damaged: bool,
    pub(crate) extents: Vec<Extent>,
    /// By row of acknowledgements: the consumer row it belongs to and the number of its newest slot.
    pub(crate) acks_rows: Vec<Option<(u32, u64)>>,
}

impl IndexImage {
    /// Reads what is valid for the queue `queue_id` and leaves out the rest. Never fails, never allocates more than the
    /// bytes there are.
    pub(crate) fn read(bytes: &[u8], queue_id: &[u8; 16]) -> IndexImage {
        let mut image = IndexImage::default();
        let a = bytes.get(index_at::CHECKPOINT_A..).and_then(|slot| Checkpoint::decode(slot, queue_id));
        let b = bytes.get(index_at::CHECKPOINT_B..).and_then(|slot| Checkpoint::decode(slot, queue_id));
        image.newest_is_b = b.map(|slot| slot.number) > a.map(|slot| slot.number);
        image.checkpoint = if image.newest_is_b { b } else { a };
        for offset in [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B] {
            // A torn slot's number may be anything: one absurdly high would end the numbering, so it is not followed.
            let number = u64_at(bytes, offset);
            if number < 1 << 62 {
                image.slot_number = image.slot_number.max(number);
            }
        }
        image.live = read_live(bytes);
        image.extents = read_extents(bytes, queue_id);
        let mut consumer_row = 0;
        let mut slot = 0;
        for extent in &image.extents {
            for row in 0..extent.rows {
                let offset = extent.offset as usize + row as usize * extent.row_len();
                match extent.kind {
                    ExtentKind::Consumers => {
                        image.consumers.extend(read_consumer(bytes, offset, consumer_row, queue_id));
                        consumer_row += 1;
                    }
                    ExtentKind::Segments => {
                        let row = bytes.get(offset..offset + SEGMENT_ROW_LEN).unwrap_or(&[]);
                        let header = row
                            .try_into()
                            .ok()
                            .and_then(|row| SegmentHeader::decode(row).ok())
                            .filter(|header| header.queue_id == *queue_id);
                        match header {
                            Some(header) => image.segments.push((slot, header)),
                            None => image.segments_damaged |= row.iter().any(|byte| *byte != 0),
                        }
                        slot += 1;
                    }
                    // Read when all consumers are known.
                    ExtentKind::Acks => {}
                }
            }
        }
        image.read_acks(bytes, queue_id);
        image
    }

    fn read_acks(&mut self, bytes: &[u8], queue_id: &[u8; 16]) {
        for extent in self.extents.iter().filter(|extent| extent.kind == ExtentKind::Acks) {
            for row in 0..extent.rows {
                let offset = extent.offset as usize + row as usize * ACKS_ROW_LEN;
                let owner = u32_at(bytes, offset + layout::acks_at::ACKS_OWNER);
                let other = u32_at(bytes, offset + ACKS_SLOT_LEN + layout::acks_at::ACKS_OWNER);
                let found = self.consumers.iter_mut().filter(|consumer| [owner, other].contains(&consumer.row));
                let found = found.filter_map(|consumer| {
                    let seed = Place::seed(queue_id, consumer.name.as_bytes());
                    let slots = [offset, offset + ACKS_SLOT_LEN].into_iter();
                    let slots = slots.filter_map(|slot| Acks::decode(bytes.get(slot..)?, consumer.row, seed));
                    Some((slots.max_by_key(|slot| slot.number)?, consumer))
                });
                let newest = found.max_by_key(|(slot, _)| slot.number);
                self.acks_rows.push(newest.map(|(slot, consumer)| {
                    let place = consumer.place.seq;
                    consumer.acks = slot.ranges;
                    consumer.acks.retain(|(_, last)| *last >= place);
                    (slot.owner, slot.number)
                }));
            }
        }
    }
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).map_or(0, <byteorder::LittleEndian as byteorder::ByteOrder>::read_u64)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).map_or(0, <byteorder::LittleEndian as byteorder::ByteOrder>::read_u32)
}

fn read_live(bytes: &[u8]) -> Live {
    let Some(bytes) = bytes.get(index_at::LIVE..index_at::LIVE + LIVE_LEN) else {
        return Live::default();
    };
    let mut token = [0; 16];
    token.copy_from_slice(&bytes[live_at::LIFE_TOKEN..live_at::LIFE_TOKEN + 16]);
    let position = u64_at(bytes, live_at::TAIL_POSITION);
    let seq = u64_at(bytes, live_at::TAIL_SEQ);
    let whole = u64_at(bytes, live_at::TAIL_CHECK) == layout::tail_check(position, seq);
    Live {
        token,
        pid: u32_at(bytes, live_at::LIVE_PID),
        flags: u32_at(bytes, live_at::LIVE_FLAGS),
        next_life: u64_at(bytes, live_at::LIVE_NEXT_LIFE),
        lease: u64_at(bytes, live_at::LIVE_LEASE),
        given_up: Some(GivenUp {
            dropped: u64_at(bytes, live_at::LIVE_DROPPED_SEQ),
            expired: u64_at(bytes, live_at::LIVE_EXPIRED_SEQ),
            older: std::array::from_fn(|mark| u64_at(bytes, live_at::LIVE_OLDER + 8 * mark)),
        })
        .filter(|given_up| u32_at(bytes, live_at::GIVEN_UP_CRC) == given_up.crc()),
        latest: u64_at(bytes, live_at::LIVE_LATEST),
        tail: whole.then_some((position, seq)),
        next_base: u64_at(bytes, live_at::LIVE_BASE),
        next_gap: u64_at(bytes, live_at::LIVE_GAP),
        synced: [live_at::SYNCED_A, live_at::SYNCED_B]
            .into_iter()
            .filter_map(|at| {
                let (position, seq) = (u64_at(bytes, at), u64_at(bytes, at + 8));
                (u64_at(bytes, at + 16) == layout::tail_check(position, seq)).then_some((position, seq))
            })
            .max(),
    }
}

/// The extents every index begins with, then those that were added while they lie within the file.
fn read_extents(bytes: &[u8], queue_id: &[u8; 16]) -> Vec<Extent> {
    let mut extents = first_extents().to_vec();
    for row in 0..EXTENT_ROWS {
        let offset = index_at::EXTENTS + row * EXTENT_ROW_LEN;
        let Some(extent) = bytes.get(offset..).and_then(|row| Extent::decode(row, queue_id)) else {
            break;
        };
        let end = u64::from(extent.offset) + u64::from(extent.rows) * extent.row_len() as u64;
        if (extent.offset as usize) < index_at::END || end > bytes.len() as u64 {
            break;
        }
        extents.push(extent);
    }
    extents
}

pub(crate) fn first_extents() -> [Extent; 4] {
    [
        Extent { kind: ExtentKind::Acks, offset: index_at::ACKS as u32, rows: ACKS_ROWS as u32 },
        Extent { kind: ExtentKind::Acks, offset: index_at::MORE_ACKS as u32, rows: ACKS_ROWS as u32 },
        Extent { kind: ExtentKind::Consumers, offset: index_at::CONSUMERS as u32, rows: CONSUMER_ROWS as u32 },
        Extent { kind: ExtentKind::Segments, offset: index_at::SEGMENTS as u32, rows: SEGMENT_ROWS as u32 },
    ]
}

fn read_consumer(bytes: &[u8], offset: usize, row: u32, queue_id: &[u8; 16]) -> Option<ConsumerRow> {
    let bytes = bytes.get(offset..offset + CONSUMER_ROW_LEN)?;
    let len = usize::from(bytes[consumer_at::NAME_LEN]);
    if (len == 0) != (row == 0) {
        return None;
    }
    let name = std::str::from_utf8(&bytes[consumer_at::NAME..consumer_at::NAME + len]).ok()?;
    let seed = Place::seed(queue_id, name.as_bytes());
    let place = [consumer_at::PLACE_A, consumer_at::PLACE_B]
        .into_iter()
        .filter_map(|slot| {
            let place = Place {
                number: u64_at(bytes, slot + place_at::PLACE_NUMBER),
                position: u64_at(bytes, slot + place_at::PLACE_POSITION),
                seq: u64_at(bytes, slot + place_at::PLACE_SEQ),
            };
            (u32_at(bytes, slot + place_at::PLACE_CRC) == place.crc(seed)).then_some(place)
        })
        .max_by_key(|place| place.number)?;
    Some(ConsumerRow { row, name: name.to_owned(), place, acks: Vec::new() })
}
