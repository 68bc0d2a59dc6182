//! Decodes the bytes of an index file, whatever they are.
//!
//! Each part is decoded by itself, and left out if it does not validate. The caller decides what to
//! believe: the live part, for example, is true only while the storage reports the same token.

use std::ops::Range;

use crate::format::{
    self, ACKS_ROW_LEN, ACKS_ROWS, ACKS_SLOT_LEN, Acks, Attempts, CONSUMER_ROWS, Checkpoint,
    ConsumerAt, EXTENT_ROW_LEN, EXTENT_ROWS, Extent, ExtentKind, ForwardSlot, LIVE_LEN,
    NAME_ROW_LEN, NumberRange, PLACE_PAIR_LEN, Place, SEGMENT_ROW_LEN, SEGMENT_ROWS, SegmentHeader,
    Spot, Version, index_at, live_at, place_at,
};
use crate::index::checkpoint_slot::CheckpointSlot;
use crate::index::run::Run;
use crate::storage::CacheToken;

/// The decoded live part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) token: CacheToken,
    pub(crate) pid: u32,
    /// The latest change of a segment's file by the queue.
    pub(crate) changed: u64,
    /// `None` when neither copy of the run record is valid.
    pub(crate) run: Option<Run>,
    /// Position and sequence number of the tail. `None` when a kill came between their stores or
    /// when they are damaged.
    pub(crate) tail: Option<Spot>,
    /// Position and sequence number before which everything is on the disk, by the latest flush.
    pub(crate) synced: Option<Spot>,
}

impl Live {
    /// Encodes these parts for an index of the queue `queue_id`, except the token and the process
    /// id.
    pub(super) fn encode(&self, queue_id: &[u8; 16], mut put: impl FnMut(usize, &[u8])) {
        let mut put = |at: usize, part: &[u8]| put(index_at::LIVE + at, part);
        for at in [live_at::RUN_A, live_at::RUN_B] {
            self.run.iter().for_each(|run| put(at, &run.encode(queue_id)));
        }
        let key = format::tail_key(queue_id);
        for (spot, [position, seq, check]) in [
            (self.tail, [live_at::TAIL_POSITION, live_at::TAIL_SEQ, live_at::TAIL_CHECK]),
            (self.synced, [live_at::SYNCED_A, live_at::SYNCED_A + 8, live_at::SYNCED_A + 16]),
        ] {
            if let Some(spot) = spot {
                put(position, &spot.position.to_le_bytes());
                put(seq, &spot.seq.to_le_bytes());
                put(check, &format::tail_check(key, spot.position, spot.seq).to_le_bytes());
            }
        }
    }
}

/// A consumer as the index names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerRow {
    /// Row number over all extents.
    pub(crate) row: u32,
    /// Empty: the default consumer.
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Done ranges, first to last number. Some may lie before the place.
    pub(crate) acks: Vec<NumberRange>,
    /// What a forwarder that reads as this consumer knows.
    pub(crate) forward: Option<ForwardSlot>,
}

/// Name of a consumer whose own name cannot be read.
pub(crate) const UNREADABLE: &str = "unreadable-consumer";
/// The row of a consumer that has none yet.
pub(crate) const NO_ROW: u32 = u32::MAX;

impl ConsumerRow {
    /// A consumer whose row is unreadable.
    fn unreadable(row: u32) -> ConsumerRow {
        let (name, place) = (UNREADABLE.to_owned(), Place::default());
        ConsumerRow { row, name, place, acks: Vec::new(), forward: None }
    }

    /// The first number that waits: a forwarder keeps messages behind its place that the far side
    /// has acknowledged.
    pub(crate) fn waits_from(&self) -> u64 {
        self.forward.map_or(0, |forward| forward.until).max(self.place.seq)
    }

    /// The numbers from the place on that are not done, without an end.
    pub(crate) fn not_done(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut next = self.place.seq;
        let done = self.acks.iter().map(|acks| (acks.first, acks.last + 1));
        done.chain([(u64::MAX, u64::MAX)]).map(move |(first, end)| {
            let open = next..first;
            next = next.max(end);
            open
        })
    }
}

/// Everything valid in the bytes of an index file.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexImage {
    /// The version in the header, if that is valid.
    pub(crate) version: Version,
    /// The newest valid checkpoint.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// The highest number in either slot of the checkpoint, valid or not (R9).
    pub(crate) highest_number: u64,
    pub(crate) newest_in: CheckpointSlot,
    pub(crate) live: Live,
    pub(crate) consumers: Vec<ConsumerRow>,
    /// Consumers that existed and whose place is unreadable. The queue must keep the messages
    /// before the others' places for them: see [`restore_lost`](IndexImage::restore_lost).
    pub(crate) lost: Vec<ConsumerRow>,
    /// Rows of consumers that also have another row, which counts: an opening clears these.
    pub(crate) double_rows: Vec<u32>,
    /// Slot and header of every segment that has a row, spares included.
    pub(crate) segments: Vec<(u32, SegmentHeader)>,
    /// A row of a segment is neither zero nor valid.
    pub(crate) segments_damaged: bool,
    pub(crate) extents: Vec<Extent>,
    /// The owner of each row of acknowledgements.
    pub(crate) acks_rows: Vec<Option<AcksOwner>>,
    /// The content of each row of attempts, if it belongs to an existing consumer.
    pub(crate) attempts_rows: Vec<Option<Attempts>>,
    /// The content of each row of a forwarder, if its consumer exists.
    pub(crate) forward_rows: Vec<Option<ForwardSlot>>,
}

/// The owner of a row of acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcksOwner {
    /// The consumer's row.
    pub(crate) consumer: u32,
    /// The number of the newest slot.
    pub(crate) number: u64,
    /// The newest slot states every number that is done from this one on. `None` when the slot
    /// states no number.
    pub(crate) from: Option<u64>,
}

impl IndexImage {
    /// Decodes all that is valid for the queue `queue_id` and leaves out the rest. Never fails, and
    /// allocates at most in proportion to the bytes.
    pub(crate) fn read(bytes: &[u8], queue_id: &[u8; 16]) -> IndexImage {
        let version = format::index_version(bytes, queue_id);
        let mut image = IndexImage { version, ..IndexImage::default() };
        let a =
            bytes.get(index_at::CHECKPOINT_A..).and_then(|slot| Checkpoint::decode(slot, queue_id));
        let b =
            bytes.get(index_at::CHECKPOINT_B..).and_then(|slot| Checkpoint::decode(slot, queue_id));
        (image.newest_in, image.checkpoint) =
            if b.map(|slot| slot.number) > a.map(|slot| slot.number) {
                (CheckpointSlot::B, b)
            } else {
                (CheckpointSlot::A, a)
            };
        for offset in [index_at::CHECKPOINT_A, index_at::CHECKPOINT_B] {
            // The number of a torn slot may be anything. An absurdly high one would exhaust the
            // numbers, so it does not count.
            let number = u64_at(bytes, offset);
            if number < format::LIMIT && !planted!(TornSlotNotCounted) {
                image.highest_number = image.highest_number.max(number);
            }
        }
        if planted!(TornSlotNotCounted) {
            image.highest_number = image.checkpoint.map_or(0, |checkpoint| checkpoint.number);
        }
        image.live = read_live(bytes, queue_id);
        let is_cut;
        (image.extents, is_cut) = read_extents(bytes, queue_id);
        let mut consumer_row = 0;
        let mut slot = 0;
        for extent in &image.extents {
            for row in 0..extent.rows {
                let offset = extent.offset as usize + row as usize * extent.row_len();
                match extent.kind {
                    ExtentKind::Consumers => {
                        let extent_bytes = bytes.get(extent.offset as usize..).unwrap_or(&[]);
                        let at = ConsumerAt::new(row, extent.rows);
                        if is_free(extent_bytes, at) {
                            consumer_row += 1;
                            continue;
                        }
                        match read_consumer(extent_bytes, at, consumer_row, queue_id) {
                            Some(consumer) => image.consumers.push(consumer),
                            None => image.lost.extend(find_lost(extent_bytes, at, consumer_row)),
                        }
                        consumer_row += 1;
                    }
                    ExtentKind::Segments => {
                        let row = bytes.get(offset..offset + SEGMENT_ROW_LEN).unwrap_or(&[]);
                        let header = row
                            .try_into()
                            .ok()
                            .filter(|_| !is_blank(row))
                            .and_then(|row| SegmentHeader::decode(row).ok())
                            .filter(|header| header.queue_id == *queue_id);
                        match header {
                            Some(header) => image.segments.push((slot, header)),
                            None => image.segments_damaged |= !is_blank(row),
                        }
                        slot += 1;
                    }
                    // Read below, once all consumers are known.
                    ExtentKind::Acks | ExtentKind::Forwards | ExtentKind::Later(_) => {}
                }
            }
        }
        if is_cut {
            image.lost.push(ConsumerRow::unreadable(NO_ROW));
        }
        if image.checkpoint.is_none() && image.live.run.is_none() && image.consumers.is_empty() {
            // The index is another queue's, or its creation was interrupted before the first sync.
            image.lost.clear();
        }
        image.leave_out_doubles();
        image.read_acks(bytes, queue_id);
        image.read_attempts(bytes, queue_id);
        image.read_forwards(bytes, queue_id);
        image
    }

    /// Keeps one row for each name. A consumer that was removed and created again in another row
    /// has two after a power cut. The row with the lower place counts, so no message is lost.
    fn leave_out_doubles(&mut self) {
        let key = |row: &ConsumerRow| (row.place.position, row.row);
        self.consumers.sort_unstable_by(|a, b| (&a.name, key(a)).cmp(&(&b.name, key(b))));
        let doubles = &mut self.double_rows;
        self.consumers.dedup_by(|later, first| {
            let is_double = later.name == first.name;
            doubles.extend(is_double.then_some(later.row));
            is_double
        });
        self.consumers.sort_unstable_by_key(|consumer| consumer.row);
    }

    /// Adds the lost consumers again, with this place. Where the name of a row or the row itself is
    /// lost, too, one consumer named [`UNREADABLE`] stands for all such rows.
    pub(crate) fn restore_lost(&mut self, place: Spot) {
        for mut lost in std::mem::take(&mut self.lost) {
            if self.consumers.iter().any(|known| known.name == lost.name) {
                // No place validates under the lost name: damage may have changed it to another
                // consumer's.
                UNREADABLE.clone_into(&mut lost.name);
            }
            let row = if lost.row == NO_ROW { self.free_row() } else { Some(lost.row) };
            let place = Place { number: 1, position: place.position, seq: place.seq };
            self.consumers.extend(row.map(|row| ConsumerRow { row, place, ..lost }));
        }
        self.leave_out_doubles();
    }

    /// A row that no consumer has, in a new extent if all are taken. `None` when the file would be
    /// too long.
    fn free_row(&mut self) -> Option<u32> {
        let is_free = |row: &u32| self.consumers.iter().all(|consumer| consumer.row != *row);
        // The first row is the default consumer's.
        let row = (1..NO_ROW).find(is_free)?;
        let of_consumers = self.extents.iter().filter(|one| one.kind == ExtentKind::Consumers);
        if row >= of_consumers.map(|extent| extent.rows).sum() {
            let page = crate::memory::page_size();
            let rows = CONSUMER_ROWS as u32;
            self.extents.push(Extent::behind(ExtentKind::Consumers, self.used(), rows, page)?);
        }
        Some(row)
    }

    fn read_acks(&mut self, bytes: &[u8], queue_id: &[u8; 16]) {
        for extent in self.extents.iter().filter(|extent| extent.kind == ExtentKind::Acks) {
            for row in 0..extent.rows {
                let offset = extent.offset as usize + row as usize * ACKS_ROW_LEN;
                let owner = u32_at(bytes, offset + format::acks_at::ACKS_OWNER);
                let other = u32_at(bytes, offset + ACKS_SLOT_LEN + format::acks_at::ACKS_OWNER);
                let found = self
                    .consumers
                    .iter_mut()
                    .filter(|consumer| [owner, other].contains(&consumer.row));
                let found = found.filter_map(|consumer| {
                    let seed = Place::seed(queue_id, consumer.name.as_bytes());
                    let slots = [offset, offset + ACKS_SLOT_LEN].into_iter();
                    let slots = slots
                        .filter_map(|slot| Acks::decode(bytes.get(slot..)?, consumer.row, seed));
                    Some((slots.max_by_key(|slot| slot.number)?, consumer))
                });
                let newest = found.max_by_key(|(slot, _)| slot.number);
                self.acks_rows.push(newest.map(|(slot, consumer)| {
                    consumer.acks = slot.ranges;
                    let from = consumer.acks.first().map(|acks| acks.first);
                    AcksOwner { consumer: slot.owner, number: slot.number, from }
                }));
            }
        }
    }
}

/// Whether all of these bytes are zero. (Without a branch: most rows of an index are free.)
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..offset + 8)
        .map_or(0, <byteorder::LittleEndian as byteorder::ByteOrder>::read_u64)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..offset + 4)
        .map_or(0, <byteorder::LittleEndian as byteorder::ByteOrder>::read_u32)
}

fn read_live(bytes: &[u8], queue_id: &[u8; 16]) -> Live {
    let Some(bytes) = bytes.get(index_at::LIVE..index_at::LIVE + LIVE_LEN) else {
        return Live::default();
    };
    let key = format::tail_key(queue_id);
    let spot = |position: usize, seq: usize, check: usize| {
        let (position, seq) = (u64_at(bytes, position), u64_at(bytes, seq));
        let whole = u64_at(bytes, check) == format::tail_check(key, position, seq);
        (whole && format::is_position(position) && seq < format::LIMIT)
            .then_some(Spot { position, seq })
    };
    Live {
        token: CacheToken {
            boot: u64_at(bytes, live_at::BOOT_TOKEN),
            file: u64_at(bytes, live_at::FILE_TOKEN),
            mount: u64_at(bytes, live_at::MOUNT_TOKEN),
        },
        pid: u32_at(bytes, live_at::LIVE_PID),
        changed: u64_at(bytes, live_at::CHANGED),
        run: [live_at::RUN_A, live_at::RUN_B]
            .into_iter()
            .find_map(|at| Run::decode(&bytes[at..], queue_id)),
        tail: spot(live_at::TAIL_POSITION, live_at::TAIL_SEQ, live_at::TAIL_CHECK),
        synced: [live_at::SYNCED_A, live_at::SYNCED_B]
            .into_iter()
            .filter_map(|at| spot(at, at + 8, at + 16))
            .max(),
    }
}

/// The offsets of an added extent's row and of its copy.
pub(crate) fn extent_row(added: usize) -> [usize; 2] {
    [index_at::EXTENTS, index_at::EXTENTS_AGAIN].map(|table| table + added * EXTENT_ROW_LEN)
}

/// Returns the extents that every index begins with, then the added ones up to the first that does
/// not validate, lies beyond the bytes, or does not lie after those before. Also returns whether
/// rows of consumers lie after that one, or were cut off: each extent with consumers is durable
/// before the table names it.
fn read_extents(bytes: &[u8], queue_id: &[u8; 16]) -> (Vec<Extent>, bool) {
    let row = |at: usize| Extent::decode(bytes.get(at..)?, queue_id);
    let named = (0..EXTENT_ROWS).map(|added| extent_row(added).into_iter().find_map(row));
    let mut named: Vec<_> = named.collect();
    let mut end = index_at::END as u64;
    let mut is_next = |extent: &Extent| {
        let begins_behind = u64::from(extent.offset) >= end;
        end = extent.end();
        begins_behind && end <= bytes.len() as u64
    };
    let there = named.iter().take_while(|named| named.as_ref().is_some_and(&mut is_next)).count();
    let beyond = named.split_off(there);
    let is_cut = bytes.len() < index_at::END
        || beyond.iter().flatten().any(|extent| extent.kind == ExtentKind::Consumers);
    let extents = first_extents().into_iter().chain(named.into_iter().flatten());
    (extents.collect(), is_cut)
}

pub(crate) fn first_extents() -> [Extent; 3] {
    [
        Extent { kind: ExtentKind::Acks, offset: index_at::ACKS as u32, rows: ACKS_ROWS as u32 },
        Extent {
            kind: ExtentKind::Consumers,
            offset: index_at::CONSUMERS as u32,
            rows: CONSUMER_ROWS as u32,
        },
        Extent {
            kind: ExtentKind::Segments,
            offset: index_at::SEGMENTS as u32,
            rows: SEGMENT_ROWS as u32,
        },
    ]
}

/// Whether no consumer ever stored a place in the row whose parts lie `at` these offsets of its
/// extent.
fn is_free(extent: &[u8], at: ConsumerAt) -> bool {
    let part = |at: usize| extent.get(at..at + PLACE_PAIR_LEN).unwrap_or(&[]);
    is_blank(part(at.pair)) && is_blank(part(at.copy))
}

/// Reads the consumer whose parts lie `at` these offsets of its extent. Its name is the one under
/// which one of its places validates. The copy has a short name, too, in case the sector of the
/// name is lost.
fn read_consumer(
    extent: &[u8],
    at: ConsumerAt,
    row: u32,
    queue_id: &[u8; 16],
) -> Option<ConsumerRow> {
    let said = extent.get(at.name..at.name + NAME_ROW_LEN).and_then(format::decode_name);
    let copy = extent.get(at.copy..at.copy + PLACE_PAIR_LEN);
    let again = copy.and_then(|copy| format::decode_name(&copy[place_at::PLACE_NAME..]));
    let names = [said, again].map(|name| name.filter(|name| !name.is_empty()));
    let names = if row == 0 { [Some(""), None] } else { names };
    names.into_iter().flatten().find_map(|name| {
        let seed = Place::seed(queue_id, name.as_bytes());
        let places =
            at.places().into_iter().filter_map(|place| Place::decode(extent.get(place..)?, seed));
        let place = places.max_by_key(|place| place.number).filter(|place| !place.is_removed())?;
        let name = name.to_owned();
        Some(ConsumerRow { row, name, place, acks: Vec::new(), forward: None })
    })
}

/// Reads a row in which [`read_consumer`] finds no consumer: returns the consumer if there was one,
/// with its name if the row has that twice. No kill or power cut leaves such a row. A new
/// consumer's copy gets its place last, followed by the check; and a long name is durable before. A
/// removal is stored in the pair, which stays, and clears the copy.
fn find_lost(extent: &[u8], at: ConsumerAt, row: u32) -> Option<ConsumerRow> {
    let part = |at: usize, len: usize| extent.get(at..at + len).unwrap_or(&[]);
    let is_blank = |at: usize, len: usize| is_blank(part(at, len));
    let says_removed = |slot: usize| {
        u64_at(extent, slot + place_at::PLACE_POSITION) == u64::MAX
            && u64_at(extent, slot + place_at::PLACE_SEQ) == 0
    };
    if is_blank(at.copy + place_at::PLACE_SUM, 4) || is_blank(at.pair, PLACE_PAIR_LEN) {
        return None;
    }
    let copied_name = at.copy + place_at::PLACE_NAME;
    let has_name = row == 0 || !is_blank(at.name, NAME_ROW_LEN) || !is_blank(copied_name, 1);
    if !has_name || at.places().into_iter().any(says_removed) {
        return None;
    }
    // No place shows that the name is right, so only its copy does. (A long name has none.)
    let name = |at, len| format::decode_name(part(at, len)).filter(|name| !name.is_empty());
    let again = name(copied_name, PLACE_PAIR_LEN - place_at::PLACE_NAME);
    let said = name(at.name, NAME_ROW_LEN).filter(|said| again == Some(said));
    let said = if row == 0 { Some("") } else { said };
    let name = said.unwrap_or(UNREADABLE).to_owned();
    Some(ConsumerRow { name, ..ConsumerRow::unreadable(row) })
}
