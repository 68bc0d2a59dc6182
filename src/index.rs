//! The index file: a hint that makes opening quick, and where consumers' places are kept.
//!
//! It is mapped as a whole. Everything in it is either checksummed, written to two slots in turn, or believed only while
//! the storage says that cached bytes cannot have been lost (the live part). Lost or damaged, it is made anew from the
//! segments; what is still valid in the old one (places above all) is carried over.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::arena::Lease;
use crate::error::{Error, Result};
use crate::given_up::GivenUp;
use crate::image::{IndexImage, Live, first_extents, u32_at, u64_at};
use crate::layout::{
    self, ACKS_ROW_LEN, ACKS_ROWS, ACKS_SLOT_LEN, Acks, CHECKPOINT_LEN, CONSUMER_ROW_LEN, CONSUMER_ROWS, Checkpoint,
    EXTENT_ROW_LEN, EXTENT_ROWS, Extent, ExtentKind, FLAG_CHANGING, FLAG_POISONED, INDEX_NAME, Invalid, Place,
    SEGMENT_ROW_LEN, SEGMENT_ROWS, SegmentHeader, consumer_at, index_at, live_at,
};
use crate::storage::{Storage, StorageFile};

/// An index file longer than this is not ours: rows for 512 TiB of 4 MiB segments.
const MAX_INDEX_LEN: u64 = 16 << 30;

/// Where one consumer's place is stored. Owned by that consumer, under its lock.
#[derive(Debug)]
pub(crate) struct PlaceSlot {
    lease: Lease,
    offset: usize,
    seed: u32,
    number: u64,
}

impl PlaceSlot {
    /// Stores a new place beside the one before, which stays whole until this one is: a kill between two stores, or a
    /// torn page, leaves one of the two.
    #[inline]
    pub(crate) fn store(&mut self, position: u64, seq: u64) {
        self.number += 1;
        let place = Place { number: self.number, position, seq };
        let slot = self.offset + consumer_at::PLACE_A + (self.number & 1) as usize * 64;
        self.lease.store_row(slot, place.words(), place.crc(self.seed));
    }
}

/// Where one consumer's acknowledged ranges are stored. Owned by that consumer, under its lock.
#[derive(Debug)]
pub(crate) struct AcksSlot {
    lease: Lease,
    offset: usize,
    seed: u32,
    owner: u32,
    number: u64,
}

impl AcksSlot {
    /// Stores the ranges beside those before, which stay whole until these are.
    pub(crate) fn store(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        self.number = self.number.wrapping_add(1);
        let mut bytes = [0; ACKS_SLOT_LEN];
        let len = Acks::encode(self.number, self.owner, ranges, self.seed, &mut bytes);
        let slot = self.offset + (self.number & 1) as usize * ACKS_SLOT_LEN;
        self.lease.copy_in(slot, &bytes[..len]);
    }
}

#[derive(Debug)]
struct Checkpoints {
    newest: Checkpoint,
    newest_is_b: bool,
    number: u64,
    /// The newest slot is on disk, so the other one may be overwritten (rule R1).
    newest_is_durable: bool,
}

#[derive(Debug)]
struct Extents {
    leases: Vec<(Extent, Lease)>,
    file_len: u64,
    /// By row of acknowledgements: the consumer row it belongs to and the number of its newest slot.
    acks_rows: Vec<Option<(u32, u64)>>,
}

#[derive(Debug)]
pub(crate) struct Index<S: Storage> {
    file: S::File,
    pub(crate) queue_id: [u8; 16],
    nonce: u64,
    /// The first three pages, and the two extents behind them.
    lease: Lease,
    checkpoints: Mutex<Checkpoints>,
    /// Base of the next segment and the numbers missing before it, as last said: that segment may be lost again.
    last_next: Mutex<(u64, u64)>,
    extents: Mutex<Extents>,
    /// File length in bytes, for the accounts.
    len: AtomicU64,
}

impl<S: Storage> std::fmt::Debug for IndexFile<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexFile").finish_non_exhaustive()
    }
}

/// An index file as found: its bytes, and what its header says.
pub(crate) struct IndexFile<S: Storage> {
    pub(crate) file: S::File,
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: Result<[u8; 16], Invalid>,
}

impl<S: Storage> IndexFile<S> {
    /// Reads the whole index file; `None` when there is none.
    pub(crate) fn read(storage: &S) -> io::Result<Option<IndexFile<S>>> {
        let file = match storage.open(INDEX_NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.len()?.min(MAX_INDEX_LEN);
        let mut bytes = vec![0; index_at::END];
        let read = read_full(&file, &mut bytes, 0)?;
        bytes.truncate(read);
        let header = layout::decode_index_header(&bytes);
        if let Ok(queue_id) = header
            && len > index_at::END as u64
        {
            // How far the extents reach.
            let mut end = index_at::END as u64;
            for row in 0..EXTENT_ROWS {
                let offset = index_at::EXTENTS + row * EXTENT_ROW_LEN;
                let Some(extent) = bytes.get(offset..).and_then(|row| Extent::decode(row, &queue_id)) else {
                    break;
                };
                end = end.max(u64::from(extent.offset) + u64::from(extent.rows) * extent.row_len() as u64);
            }
            let end = end.min(len) as usize;
            bytes.resize(end.max(index_at::END), 0);
            let from = read.min(index_at::END);
            read_full(&file, &mut bytes[from..], from as u64)?;
        }
        Ok(Some(IndexFile { file, bytes, header }))
    }
}

/// An index longer by more than this, and than twice what is used of it, was not left so by a queue.
const LARGEST_REST: u64 = 16 << 20;

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full<F: StorageFile>(file: &F, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let read = file.read_at(&mut buf[done..], offset + done as u64)?;
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

impl<S: Storage> Index<S> {
    /// Makes a new index file for the queue `queue_id`; there must be none of that name.
    pub(crate) fn create(storage: &S, queue_id: [u8; 16], nonce: u64) -> io::Result<Index<S>> {
        let file = storage.create(INDEX_NAME)?;
        let made = file.allocate(0, index_at::END as u64).and_then(|()| {
            let mut bytes = vec![0; index_at::END];
            let header = layout::encode_index_header(&queue_id, storage.now());
            bytes[index_at::INDEX_HEADER..][..header.len()].copy_from_slice(&header);
            // Written as a whole: a file in one piece takes no block of its own for saying where its pieces are.
            file.write_at(&bytes, 0)
        });
        if let Err(error) = made {
            // An index that could not be written must not lie in the way of the next try.
            let _ = storage.remove(INDEX_NAME);
            return Err(error);
        }
        let image = IndexImage { extents: first_extents().to_vec(), ..IndexImage::default() };
        Index::adopt(file, queue_id, nonce, &image)
    }

    /// Goes on with an index file whose header is valid.
    pub(crate) fn adopt(file: S::File, queue_id: [u8; 16], nonce: u64, image: &IndexImage) -> io::Result<Index<S>> {
        let mut len = file.len()?;
        if len < index_at::END as u64 {
            file.allocate(0, index_at::END as u64)?;
        }
        let ends = image
            .extents
            .iter()
            .map(|extent| u64::from(extent.offset) + u64::from(extent.rows) * extent.row_len() as u64);
        let used = ends.max().unwrap_or(0).max(index_at::END as u64);
        if len > 2 * used + LARGEST_REST && file.set_len(used).is_ok() {
            // Somebody made it longer: it would count against the limit of disk for ever.
            len = used;
        }
        let lease = file.map(0, index_at::END)?;
        let mut leases = Vec::with_capacity(image.extents.len());
        for extent in &image.extents {
            if (extent.offset as usize) < index_at::END {
                leases.push((*extent, lease.clone_shared()));
            } else {
                let len = extent.rows as usize * extent.row_len();
                leases.push((*extent, file.map(u64::from(extent.offset), len)?));
            }
        }
        let file_len = len.max(index_at::END as u64);
        Ok(Index {
            file,
            queue_id,
            nonce,
            lease,
            checkpoints: Mutex::new(Checkpoints {
                newest: image.checkpoint.unwrap_or_default(),
                newest_is_b: image.newest_is_b,
                number: image.slot_number,
                newest_is_durable: false,
            }),
            last_next: Mutex::default(),
            extents: Mutex::new(Extents { leases, file_len, acks_rows: image.acks_rows.clone() }),
            len: AtomicU64::new(file_len),
        })
    }

    /// Length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Makes every page dirty again with what it shows.
    pub(crate) fn store_again(&self) -> io::Result<()> {
        store_again(&self.file, 0, self.len())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Publishes the tail for whoever opens the queue after this process died. The number goes first: see
    /// `recovery` for what a kill between the stores leaves.
    #[inline]
    pub(crate) fn set_tail(&self, position: u64, seq: u64) {
        const { assert!(live_at::TAIL_POSITION == live_at::TAIL_SEQ + 8) };
        const { assert!(live_at::TAIL_CHECK == live_at::TAIL_SEQ + 16) };
        let check = layout::tail_check(position, seq);
        self.lease.store_words(index_at::LIVE + live_at::TAIL_SEQ, [seq, position, check]);
    }

    /// Notes that everything before is on disk: the next opening must not know less, or it gives back what a flush has
    /// promised. One of the two slots is whole at any time.
    pub(crate) fn set_synced(&self, position: u64, seq: u64) {
        let word = |at| self.lease.load_u64_relaxed(index_at::LIVE + at);
        let older =
            if word(live_at::SYNCED_A) <= word(live_at::SYNCED_B) { live_at::SYNCED_A } else { live_at::SYNCED_B };
        let at = index_at::LIVE + older;
        self.lease.store_u64(at + 16, 0);
        self.lease.store_u64(at + 8, seq);
        self.lease.store_u64(at, position);
        self.lease.store_u64(at + 16, layout::tail_check(position, seq));
    }

    /// Declares the live part true for this run of the process.
    pub(crate) fn begin_life(&self, live: &Live) {
        let at = index_at::LIVE;
        let lease = &self.lease;
        // Never believed while it is half written: the token goes last. Where the old part was believed, what is stored
        // over it says the same, or what became true since, field by field: it stays believed, or a kill in this opening
        // would count as a power cut.
        let mut token = [0; 16];
        lease.copy_out(at + live_at::LIFE_TOKEN, &mut token);
        if token != live.token {
            lease.copy_in(at + live_at::LIFE_TOKEN, &[0; 16]);
        }
        lease.store_u64(at + live_at::LIVE_NONCE, self.nonce);
        lease.store_u32(at + live_at::LIVE_PID, live.pid);
        lease.store_u32(at + live_at::LIVE_FLAGS, live.flags);
        lease.store_u64(at + live_at::LIVE_NEXT_LIFE, live.next_life);
        lease.store_u64(at + live_at::LIVE_LEASE, live.lease);
        self.set_given_up(&live.given_up.unwrap_or_default());
        self.set_latest(live.latest);
        self.set_next_base(live.next_base, live.next_gap);
        let (position, seq) = live.tail.unwrap_or_default();
        self.set_tail(position, seq);
        if token != live.token {
            lease.zero(at + live_at::SYNCED_A, 48);
        }
        if let Some((position, seq)) = live.synced {
            self.set_synced(position, seq);
        }
        lease.copy_in(at + live_at::LIFE_TOKEN, &live.token);
    }

    /// When the holder opened the queue.
    pub(crate) fn set_since(&self, milliseconds: u64) {
        self.lease.store_u64(index_at::LIVE + live_at::LIVE_SINCE, milliseconds);
    }

    /// The holder's process id, in case somebody else asks for the queue; 0 when it is let go.
    pub(crate) fn set_pid(&self, pid: u32) {
        self.lease.store_u32(index_at::LIVE + live_at::LIVE_PID, pid);
    }

    pub(crate) fn set_next_base(&self, base: u64, gap: u64) {
        if base != 0 {
            *self.last_next.lock() = (base, gap);
        }
        self.lease.store_u64(index_at::LIVE + live_at::LIVE_GAP, gap);
        self.lease.store_u64(index_at::LIVE + live_at::LIVE_BASE, base);
    }

    pub(crate) fn set_next_life(&self, life: u64) {
        self.lease.store_u64(index_at::LIVE + live_at::LIVE_NEXT_LIFE, life);
    }

    pub(crate) fn set_lease(&self, seq: u64) {
        self.lease.store_u64(index_at::LIVE + live_at::LIVE_LEASE, seq);
    }

    /// What is written from now on says that time, or an earlier one.
    pub(crate) fn set_latest(&self, time: u64) {
        self.lease.store_u64(index_at::LIVE + live_at::LIVE_LATEST, time);
    }

    /// Until the checksum is stored, last, the newest checkpoint is believed instead.
    pub(crate) fn set_given_up(&self, given_up: &GivenUp) {
        let at = index_at::LIVE;
        for (mark, value) in given_up.older.iter().enumerate() {
            self.lease.store_u64(at + live_at::LIVE_OLDER + 8 * mark, *value);
        }
        self.lease.store_u64(at + live_at::LIVE_DROPPED_SEQ, given_up.dropped);
        self.lease.store_u64(at + live_at::LIVE_EXPIRED_SEQ, given_up.expired);
        self.lease.store_u32(at + live_at::GIVEN_UP_CRC, given_up.crc());
    }

    /// Segments are about to be changed: until it is taken back, the segment rows are not to be believed.
    pub(crate) fn set_changing(&self, changing: bool) {
        self.set_flag(FLAG_CHANGING, changing);
    }

    /// A flush failed: what is in the page cache may never reach the disk.
    pub(crate) fn set_poisoned(&self, poisoned: bool) {
        self.set_flag(FLAG_POISONED, poisoned);
    }

    fn set_flag(&self, flag: u32, on: bool) {
        let at = index_at::LIVE + live_at::LIVE_FLAGS;
        let flags = self.lease.load_u32(at);
        self.lease.store_u32(at, if on { flags | flag } else { flags & !flag });
    }

    /// The newest checkpoint written or found.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoints.lock().newest
    }

    /// As [`checkpoint`](Self::checkpoint), and whether it is known to be on disk.
    pub(crate) fn durable_checkpoint(&self) -> (Checkpoint, bool) {
        let slots = self.checkpoints.lock();
        (slots.newest, slots.newest_is_durable)
    }

    /// Writes a checkpoint and makes it, and every place stored before, durable. What it names durable must be so.
    pub(crate) fn write_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) -> io::Result<()> {
        let mut slots = self.checkpoints.lock();
        #[cfg(test)]
        if crate::sim::Mutant::SlotOverwrittenWithoutR1.is_planted() {
            slots.newest_is_durable = true;
        }
        if !slots.newest_is_durable {
            // R1: the slot recovery chose may exist in the page cache alone. It is stored again (a page whose writing
            // failed once counts as clean) and made durable before the other one is touched.
            let bytes = slots.newest.encode(&self.queue_id);
            if slots.newest.number > 0 {
                self.lease.copy_in(slot_offset(slots.newest_is_b), &bytes);
            }
            self.file.sync()?;
            slots.newest_is_durable = true;
        }
        let mut next = slots.newest;
        change(&mut next);
        let (next_base, next_gap) = *self.last_next.lock();
        if (next.position, next.seq) != (slots.newest.position, slots.newest.seq) {
            next.gap = if next_base != 0 && next_base == next.position { next_gap } else { 0 };
        }
        next.latest = next.latest.max(self.lease.load_u64_relaxed(index_at::LIVE + live_at::LIVE_LATEST));
        slots.number += 1;
        next.number = slots.number;
        next.nonce = self.nonce;
        let bytes: [u8; CHECKPOINT_LEN] = next.encode(&self.queue_id);
        self.lease.copy_in(slot_offset(!slots.newest_is_b), &bytes);
        slots.newest_is_b = !slots.newest_is_b;
        slots.newest = next;
        slots.newest_is_durable = false;
        self.file.sync()?;
        slots.newest_is_durable = true;
        Ok(())
    }

    /// Makes every place stored before durable, and that the last opening's end is no longer the end: what is done to the
    /// segments now must not be missed by an opening that believes in a clean end.
    ///
    /// And where the durable part of the queue ends, `(position, seq)`, when that is news: what is held may begin in the middle
    /// of a batch afterwards, whose rest counts because it is durable, and for no other reason. And what was given up.
    pub(crate) fn sync_for_change(&self, durable: (u64, u64), given_up: &Mutex<GivenUp>) -> io::Result<()> {
        #[cfg(test)]
        if crate::sim::Mutant::RecycledBeforePlacesAreSynced.is_planted() {
            return Ok(());
        }
        let newest = self.checkpoint();
        let known = GivenUp::of(&newest) == *given_up.lock();
        if !newest.clean && durable.0 <= newest.position && known {
            return self.sync();
        }
        self.write_checkpoint(|checkpoint| {
            checkpoint.clean = false;
            given_up.lock().state_in(checkpoint);
            if durable.0 > checkpoint.position {
                (checkpoint.position, checkpoint.seq) = durable;
            }
        })
    }

    /// Notes the segment in `slot`; `None` clears the row. The file may grow by `room` bytes. False when there is no row for it and none could be made:
    /// then the rows must not be believed.
    pub(crate) fn write_segment_row(&self, slot: u32, header: Option<&SegmentHeader>, room: u64) -> bool {
        let mut extents = self.extents.lock();
        if row_of(&extents.leases, ExtentKind::Segments, slot).is_none() {
            if header.is_none() {
                return true;
            }
            // A file that somebody gave a far number is no reason for a table that long.
            if slot > 4 * rows_of(&extents.leases, ExtentKind::Segments) {
                return false;
            }
            let rows = (slot + 1).next_multiple_of(SEGMENT_ROWS as u32).max(2 * SEGMENT_ROWS as u32);
            if self.add_extent(&mut extents, ExtentKind::Segments, rows, room).is_err() {
                return false;
            }
        }
        let Some((lease, offset)) = row_of(&extents.leases, ExtentKind::Segments, slot) else {
            return false;
        };
        let bytes = header.map_or([0; SEGMENT_ROW_LEN], SegmentHeader::encode);
        lease.copy_in(offset, &bytes);
        true
    }

    /// Gives the consumer a row, with the place it begins at; or takes up the row it has.
    pub(crate) fn add_consumer(
        &self,
        storage: &S,
        known: Option<u32>,
        name: &str,
        place: Place,
        room: u64,
    ) -> Result<(u32, PlaceSlot)> {
        let mut extents = self.extents.lock();
        let row = match known {
            Some(row) => row,
            None if name.is_empty() => 0,
            None => match self.free_consumer_row(&extents) {
                Some(row) => row,
                None => {
                    let row = rows_of(&extents.leases, ExtentKind::Consumers);
                    self.add_extent(&mut extents, ExtentKind::Consumers, CONSUMER_ROWS as u32, room)
                        .map_err(|error| Error::io("grow", storage.path().join(INDEX_NAME), error))?;
                    row
                }
            },
        };
        let Some((lease, offset)) = row_of(&extents.leases, ExtentKind::Consumers, row) else {
            return Err(Error::NotFound { what: "consumer", name: name.to_owned() });
        };
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        let mut slot = PlaceSlot { lease: lease.clone_shared(), offset, seed, number: place.number };
        if known.is_none() {
            let mut bytes = [0; CONSUMER_ROW_LEN];
            bytes[consumer_at::NAME..consumer_at::NAME + name.len()].copy_from_slice(name.as_bytes());
            lease.copy_in(offset, &bytes);
            slot.store(place.position, place.seq);
            lease.copy_in(offset + consumer_at::NAME_LEN, &[name.len() as u8]);
        }
        Ok((row, slot))
    }

    pub(crate) fn remove_consumer(&self, row: u32) {
        let extents = self.extents.lock();
        if let Some((lease, offset)) = row_of(&extents.leases, ExtentKind::Consumers, row) {
            lease.copy_in(offset, &[0; CONSUMER_ROW_LEN]);
        }
    }

    /// The row in which the consumer's acknowledgements are remembered: its own, or a free one. `None` when there is no
    /// room for one.
    pub(crate) fn acks_slot(&self, row: u32, name: &str, room: u64) -> Option<AcksSlot> {
        let mut extents = self.extents.lock();
        let rows = rows_of(&extents.leases, ExtentKind::Acks) as usize;
        extents.acks_rows.resize(rows, None);
        let own = extents.acks_rows.iter().position(|owner| owner.is_some_and(|(owner, _)| owner == row));
        let at = match own.or_else(|| extents.acks_rows.iter().position(Option::is_none)) {
            Some(at) => at,
            None => {
                self.add_extent(&mut extents, ExtentKind::Acks, ACKS_ROWS as u32, room).ok()?;
                rows
            }
        };
        let rows = rows_of(&extents.leases, ExtentKind::Acks) as usize;
        extents.acks_rows.resize(rows, None);
        let number = extents.acks_rows[at].map_or(0, |(_, number)| number);
        let (lease, offset) = row_of(&extents.leases, ExtentKind::Acks, at as u32)?;
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        if own.is_none() {
            lease.zero(offset, ACKS_ROW_LEN);
        }
        let slot = AcksSlot { lease: lease.clone_shared(), offset, seed, owner: row, number };
        extents.acks_rows[at] = Some((row, number));
        Some(slot)
    }

    /// Makes it durable that nothing is remembered for the consumer: what it is told from now on must not be taken for
    /// what was acknowledged before.
    pub(crate) fn clear_acks(&self, row: u32, free: bool) -> io::Result<()> {
        {
            let mut extents = self.extents.lock();
            let own = extents.acks_rows.iter().position(|owner| owner.is_some_and(|(owner, _)| owner == row));
            let Some(at) = own else {
                return Ok(());
            };
            if let Some((lease, offset)) = row_of(&extents.leases, ExtentKind::Acks, at as u32) {
                lease.zero(offset, ACKS_ROW_LEN);
            }
            if free {
                extents.acks_rows[at] = None;
            }
        }
        self.sync()
    }

    fn free_consumer_row(&self, extents: &Extents) -> Option<u32> {
        let rows = rows_of(&extents.leases, ExtentKind::Consumers);
        (1..rows).find(|row| {
            let mut name_len = [0];
            row_of(&extents.leases, ExtentKind::Consumers, *row).is_some_and(|(lease, offset)| {
                lease.copy_out(offset + consumer_at::NAME_LEN, &mut name_len);
                name_len[0] == 0
            })
        })
    }

    /// Rows of `kind` are added behind the end of the file, in space that is allocated before it is noted.
    /// At most `room` bytes may be added.
    fn add_extent(&self, extents: &mut Extents, kind: ExtentKind, rows: u32, room: u64) -> io::Result<()> {
        let added = extents.leases.len() - first_extents().len();
        if added >= EXTENT_ROWS {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the index file has no row for another extent"));
        }
        let have = rows_of(&extents.leases, kind);
        let page = crate::options::page_size();
        let offset = extents.file_len.next_multiple_of(page);
        let mut extent = Extent {
            kind,
            offset: u32::try_from(offset).map_err(|_| io::ErrorKind::QuotaExceeded)?,
            rows: rows.saturating_sub(have).max(have),
        };
        let len = (u64::from(extent.rows) * extent.row_len() as u64).next_multiple_of(page);
        extent.rows = (len / extent.row_len() as u64) as u32;
        if offset + len - extents.file_len > room {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "max_bytes leaves no room for a longer index file",
            ));
        }
        self.file.allocate(offset, len)?;
        let lease = self.file.map(offset, len as usize)?;
        lease.zero(0, len as usize);
        let row = index_at::EXTENTS + added * EXTENT_ROW_LEN;
        self.lease.copy_in(row, &extent.encode(&self.queue_id));
        extents.leases.push((extent, lease));
        extents.file_len = offset + len;
        self.len.store(extents.file_len, Ordering::Relaxed);
        Ok(())
    }
}

/// Makes every page of `start .. end` dirty again with what it shows.
pub(crate) fn store_again<F: StorageFile>(file: &F, start: u64, end: u64) -> std::io::Result<()> {
    let mut at = start;
    while at < end {
        let mut byte = [0];
        if file.read_at(&mut byte, at)? == 1 {
            file.write_at(&byte, at)?;
        }
        at = (at / 4096 + 1) * 4096;
    }
    Ok(())
}

/// The process id of whoever holds the queue, and since when, as far as its index tells; 0 and `None` when it does not.
pub(crate) fn holder<S: Storage>(storage: &S) -> (u32, Option<SystemTime>) {
    let mut live = [0; layout::LIVE_LEN];
    let read = storage.open(INDEX_NAME).and_then(|file| read_full(&file, &mut live, index_at::LIVE as u64));
    if !matches!(read, Ok(layout::LIVE_LEN)) {
        return (0, None);
    }
    let since = Duration::from_millis(u64_at(&live, live_at::LIVE_SINCE));
    let since = UNIX_EPOCH.checked_add(since).filter(|since| *since > UNIX_EPOCH);
    (u32_at(&live, live_at::LIVE_PID), since)
}

fn slot_offset(is_b: bool) -> usize {
    if is_b { index_at::CHECKPOINT_B } else { index_at::CHECKPOINT_A }
}

fn rows_of(leases: &[(Extent, Lease)], kind: ExtentKind) -> u32 {
    leases.iter().filter(|(extent, _)| extent.kind == kind).map(|(extent, _)| extent.rows).sum()
}

/// The mapping that holds row `row` of `kind`, and the row's offset in it.
fn row_of(leases: &[(Extent, Lease)], kind: ExtentKind, mut row: u32) -> Option<(&Lease, usize)> {
    for (extent, lease) in leases {
        if extent.kind != kind {
            continue;
        }
        if row < extent.rows {
            let in_file = extent.offset as usize + row as usize * extent.row_len();
            // The first extents lie in the mapping of the file's beginning, each other one has its own.
            let mapped_from = if (extent.offset as usize) < index_at::END { 0 } else { extent.offset as usize };
            return Some((lease, in_file - mapped_from));
        }
        row -= extent.rows;
    }
    None
}
