//! The index file: a hint that makes opening quick, and where consumers' places are kept.
//!
//! It is mapped as a whole, or else kept in memory and written by calls (`sheet`). Everything in it is either checksummed, written to two slots in turn, or believed only while
//! the storage says that cached bytes cannot have been lost (the live part). Lost or damaged, it is made anew from the
//! segments; what is still valid in the old one (places above all) is carried over.

pub(crate) mod image;
pub(crate) mod losses;
pub(crate) mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::error::{Error, Result, SyncFailed};
use crate::events;
use crate::format::{
    self, ACKS_ROW_LEN, ACKS_ROWS, ACKS_SLOT_LEN, Acks, CHECKPOINT_LEN, CONSUMER_ROWS, Checkpoint, ConsumerAt,
    EXTENT_ROW_LEN, EXTENT_ROWS, Extent, ExtentKind, FLAG_CHANGING, FLAG_POISONED, INDEX_NAME, Invalid, NAME_ROW_LEN,
    PLACE_HALF_LEN, PLACE_SLOT_LEN, Place, SEGMENT_ROW_LEN, SEGMENT_ROWS, SegmentHeader, index_at, live_at, place_at,
};
use crate::index::image::{AcksOwner, IndexImage, Live, first_extents, u32_at, u64_at};
use crate::index::losses::GivenUp;
use crate::index::run::{Next, Run};
use crate::storage::poison::Poison;
use crate::storage::sheet::{Sheet, Sheets};
use crate::storage::{Storage, StorageFile, Stores, read_full, store_again};

/// An index file longer than this is not ours: rows for 512 TiB of 4 MiB segments.
const MAX_INDEX_LEN: u64 = 16 << 30;

/// Where one consumer's place is stored. Owned by that consumer, under its lock.
#[derive(Debug)]
pub(crate) struct PlaceSlot<F> {
    sheet: Sheet<F>,
    at: ConsumerAt,
    seed: u32,
    number: u64,
}

/// Of so many places one goes to the copy as well.
const COPIED_EVERY: u64 = 64;

impl<F: StorageFile> PlaceSlot<F> {
    /// Stores a new place beside the one before, which stays whole until this one is: a kill between two stores, or a
    /// torn page, leaves one of the two.
    #[inline]
    pub(crate) fn store(&mut self, position: u64, seq: u64) {
        self.number += 1;
        let place = Place { number: self.number, position, seq };
        let half = self.at.pair + (self.number & 1) as usize * PLACE_HALF_LEN;
        self.sheet.store_row(half, place.words(), place.crc(self.seed));
        if self.number.is_multiple_of(COPIED_EVERY) {
            self.store_copy(&place);
        }
    }

    #[cold]
    #[inline(never)]
    fn store_copy(&self, place: &Place) {
        self.sheet.store_row(self.at.copy, place.words(), place.crc(self.seed));
    }
}

/// Counts the syncs of the index, so that whoever stored something in it can tell whether that is on the disk.
#[derive(Debug, Default)]
struct Syncs {
    begun: AtomicU64,
    /// Number of the latest one that succeeded. (After one that failed there is none.)
    done: AtomicU64,
}

impl Syncs {
    /// What this thread has stored is on the disk once a sync of a higher number is done.
    fn mark(&self) -> u64 {
        // The stores are not left behind by the load.
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst)
    }

    fn is_past(&self, mark: u64) -> bool {
        self.done.load(Ordering::Acquire) > mark
    }
}

/// Where one consumer's acknowledged ranges are stored. Owned by that consumer, under its lock.
///
/// The place lies in another sector, and a power cut may leave one that is older than the ranges, back to the one of the last
/// sync. So the slot states everything that is done from that one on: what a flush made durable is never left out of it.
#[derive(Debug)]
pub(crate) struct AcksSlot<F> {
    sheet: Sheet<F>,
    offset: usize,
    seed: u32,
    owner: u32,
    number: u64,
    syncs: Arc<Syncs>,
    /// From that number on everything done is stated; the place on the disk is not before it. `None` when nothing is stated.
    from: Option<u64>,
    /// A later place, and the [mark](Syncs::mark) behind which it is on the disk.
    next_from: Option<(u64, u64)>,
}

impl<F: StorageFile> AcksSlot<F> {
    /// Stores the ranges, all of them behind the `place` that is stored, beside those before, which stay whole until these
    /// are.
    pub(crate) fn store(&mut self, place: u64, ranges: impl Iterator<Item = (u64, u64)>) {
        let mut from = self.from.map_or(place, |from| from.min(place));
        match self.next_from {
            Some((next, mark)) if self.syncs.is_past(mark) => {
                from = next;
                self.next_from = None;
            }
            _ => {}
        }
        self.from = Some(from);
        if self.next_from.is_none() {
            self.next_from = Some((place, self.syncs.mark()));
        }
        // No longer than a range can be told.
        let passed = (from < place).then(|| (from.max(place.saturating_sub(u64::from(u32::MAX))), place - 1));
        self.number = self.number.wrapping_add(1);
        let mut bytes = [0; ACKS_SLOT_LEN];
        let ranges = passed.into_iter().chain(ranges);
        let len = Acks::encode(self.number, self.owner, ranges, self.seed, &mut bytes);
        let slot = self.offset + (self.number & 1) as usize * ACKS_SLOT_LEN;
        self.sheet.copy_in(slot, &bytes[..len]);
    }

    /// Both slots were cleared, durably.
    pub(crate) fn cleared(&mut self) {
        (self.from, self.next_from) = (None, None);
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
struct Extents<F> {
    sheets: Vec<(Extent, Sheet<F>)>,
    file_len: u64,
    /// Rows of consumers that exist.
    consumers: BTreeSet<u32>,
    /// Rows that consumers were removed from, and the [mark](Syncs::mark) behind which the disk knows.
    removed: BTreeMap<u32, u64>,
    /// By row of acknowledgements: whose it is.
    acks_rows: Vec<Option<AcksOwner>>,
}

#[derive(Debug)]
pub(crate) struct Index<S: Storage> {
    sheets: Sheets<S::File>,
    pub(crate) queue_id: [u8; 16],
    nonce: u64,
    /// The first three pages, and the two extents behind them.
    sheet: Sheet<S::File>,
    checkpoints: Mutex<Checkpoints>,
    run: Mutex<Run>,
    /// The queue's key for the checks of the tail.
    key: u64,
    extents: Mutex<Extents<S::File>>,
    syncs: Arc<Syncs>,
    /// File length in bytes, for the accounts.
    len: AtomicU64,
    /// The queue's directory, for the texts of errors.
    directory: PathBuf,
    pub(crate) poison: Poison,
    /// The index is synced by one thread at a time: a failure is heeded before the next one can succeed.
    syncing: Mutex<()>,
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
    /// Some of it the disk does not give: read as zeros, and not to be mapped.
    pub(crate) unreadable: bool,
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
        let mut unreadable = false;
        let read = read_around(&file, &mut bytes, 0, &mut unreadable);
        bytes.truncate(read);
        let header = format::decode_index_header(&bytes);
        if len > index_at::END as u64 {
            let end = match header {
                // How far the extents reach.
                Ok(queue_id) => (0..EXTENT_ROWS)
                    .map_while(|row| Extent::decode(bytes.get(index_at::EXTENTS + row * EXTENT_ROW_LEN..)?, &queue_id))
                    .map(|extent| u64::from(extent.offset) + u64::from(extent.rows) * extent.row_len() as u64)
                    .max()
                    .unwrap_or(0),
                // Whose they are is not known yet.
                Err(_) => LARGEST_REST,
            };
            bytes.resize((end.min(len) as usize).max(index_at::END), 0);
            let from = read.min(index_at::END);
            read_around(&file, &mut bytes[from..], from as u64, &mut unreadable);
        }
        if unreadable {
            events::unreadable(storage.path(), INDEX_NAME);
        }
        Ok(Some(IndexFile { file, bytes, header, unreadable }))
    }

    /// The queue whose index it is. Where the header is damaged the id in it counts all the same when anything that is seeded with
    /// it validates.
    pub(crate) fn queue_id(&self) -> Option<[u8; 16]> {
        self.header.ok().or_else(|| {
            let id = format::index_id(&self.bytes)?;
            let image = IndexImage::read(&self.bytes, &id);
            (image.checkpoint.is_some() || image.live.run.is_some()).then_some(id)
        })
    }

    /// The header was never written, or never reached the disk: it does with the first sync of the file, so nothing in it was ever
    /// synced.
    pub(crate) fn was_being_made(&self) -> bool {
        self.bytes.iter().take(format::INDEX_HEADER_LEN).all(|byte| *byte == 0)
    }

    /// The file, with its header written again if that is damaged. Best effort: the next opening knows it as well.
    pub(crate) fn repaired(self, queue_id: &[u8; 16], now: u64) -> S::File {
        if self.header.is_err() {
            let _ = self.file.write_at(&format::encode_index_header(queue_id, now), index_at::INDEX_HEADER as u64);
        }
        self.file
    }
}

/// As [`read_full`], around what cannot be read: that is left as it is, and said.
fn read_around<F: StorageFile>(file: &F, buf: &mut [u8], offset: u64, unreadable: &mut bool) -> usize {
    match read_full(file, buf, offset) {
        Ok(read) => read,
        Err(_) if buf.len() <= SECTOR => {
            *unreadable = true;
            buf.len()
        }
        Err(_) => {
            // The half that ends at a sector's end.
            let half = (buf.len() / 2).next_multiple_of(SECTOR);
            let (first, second) = buf.split_at_mut(half);
            let read = read_around(file, first, offset, unreadable);
            if read < half {
                return read;
            }
            half + read_around(file, second, offset + half as u64, unreadable)
        }
    }
}

/// What a disk cannot read is a multiple of so many bytes.
const SECTOR: usize = 512;

/// An index longer by more than this, and than twice what is used of it, was not left so by a queue.
const LARGEST_REST: u64 = 16 << 20;

impl<S: Storage> Index<S> {
    /// Makes a new index file for the queue `queue_id`; there must be none of that name.
    pub(crate) fn create(storage: &S, queue_id: [u8; 16], nonce: u64) -> io::Result<Index<S>> {
        let file = storage.create(INDEX_NAME)?;
        let made = file.allocate(0, index_at::END as u64).and_then(|()| {
            let mut bytes = vec![0; index_at::END];
            let header = format::encode_index_header(&queue_id, storage.now());
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
        Index::adopt(storage.path(), file, queue_id, nonce, &image)
    }

    /// Goes on with an index file whose header is valid.
    pub(crate) fn adopt(
        directory: &Path,
        file: S::File,
        queue_id: [u8; 16],
        nonce: u64,
        image: &IndexImage,
    ) -> io::Result<Index<S>> {
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
        let whole = Sheets::new(directory, file, len.max(index_at::END as u64));
        let sheet = whole.sheet(0, index_at::END)?;
        let mut sheets = Vec::with_capacity(image.extents.len());
        for extent in &image.extents {
            if (extent.offset as usize) < index_at::END {
                sheets.push((*extent, sheet.share()));
            } else {
                let len = extent.rows as usize * extent.row_len();
                sheets.push((*extent, whole.sheet(u64::from(extent.offset), len)?));
            }
        }
        for row in &image.double_rows {
            clear_consumer(&sheets, *row);
        }
        let consumers = image.consumers.iter().map(|consumer| consumer.row).collect();
        let file_len = len.max(index_at::END as u64);
        Ok(Index {
            sheets: whole,
            queue_id,
            nonce,
            sheet,
            checkpoints: Mutex::new(Checkpoints {
                newest: image.checkpoint.unwrap_or_default(),
                newest_is_b: image.newest_is_b,
                number: image.slot_number,
                newest_is_durable: false,
            }),
            run: Mutex::default(),
            key: format::tail_key(&queue_id),
            extents: Mutex::new(Extents {
                sheets,
                file_len,
                consumers,
                removed: BTreeMap::new(),
                acks_rows: image.acks_rows.clone(),
            }),
            syncs: Arc::default(),
            len: AtomicU64::new(file_len),
            directory: directory.to_owned(),
            poison: Poison::default(),
            syncing: Mutex::default(),
        })
    }

    /// Length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Makes every page dirty again with what it shows.
    pub(crate) fn store_again(&self) -> io::Result<()> {
        store_again(self.sheets.file(), 0, self.len())
    }

    /// The one place where the answer of a sync is looked at while the queue is open: the first that fails poisons the
    /// queue, and none is made after it. The caller is the only one to sync the file `name`, or the directory when there is
    /// no name, until this returns.
    pub(crate) fn heed(&self, name: &str, sync: impl FnOnce() -> Result<(), SyncFailed>) -> Result<()> {
        self.poison.check()?;
        sync().map_err(|failed| {
            let error = failed.heeded(if name.is_empty() { self.directory.clone() } else { self.directory.join(name) });
            self.set_poisoned(&error);
            error
        })
    }

    /// Refuses all writing from now on: what the page cache shows may never reach the disk.
    #[cold]
    pub(crate) fn set_poisoned(&self, error: &Error) {
        self.set_flag(FLAG_POISONED, true);
        if self.poison.set(error) {
            events::flush_failed(&self.directory, error);
        }
    }

    /// Says for the next opening that the page cache may show what the disk does not hold, as a run before this one said.
    pub(crate) fn stay_suspect(&self) {
        self.set_flag(FLAG_POISONED, true);
    }

    /// Makes durable what was stored before. Where part of it cannot be written now nothing is lost, and nothing is synced.
    pub(crate) fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let number = self.syncs.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let path = || self.directory.join(INDEX_NAME);
        self.sheets.write_late().map_err(|error| Error::io("write", path(), error))?;
        self.heed(INDEX_NAME, || self.sheets.file().sync())?;
        self.syncs.done.store(number, Ordering::Release);
        Ok(())
    }

    /// Publishes the tail for whoever opens the queue after this process died. The number goes first: see
    /// `recovery` for what a kill between the stores leaves.
    #[inline]
    pub(crate) fn set_tail(&self, position: u64, seq: u64) {
        self.sheet.store_words(index_at::LIVE + live_at::TAIL_SEQ, tail_words(self.key, position, seq));
    }

    /// How its words are stored.
    pub(crate) fn stores(&self) -> Stores {
        self.sheets.file().stores()
    }

    /// As [`set_tail`](Self::set_tail); an error leaves the tail as it was, which is `before`: a position and a number.
    #[inline]
    pub(crate) fn move_tail(&self, position: u64, seq: u64, before: (u64, u64)) -> io::Result<()> {
        let words = tail_words(self.key, position, seq);
        self.sheet
            .try_store_words(index_at::LIVE + live_at::TAIL_SEQ, words, || tail_words(self.key, before.0, before.1))
    }

    /// The tail as it was last published: `(position, seq)`; `None` when it is being published just now.
    pub(crate) fn tail(&self) -> Option<(u64, u64)> {
        // What was stored before the check word is seen with it.
        let check = self.sheet.load_u64(index_at::LIVE + live_at::TAIL_CHECK);
        let position = self.sheet.load_u64_relaxed(index_at::LIVE + live_at::TAIL_POSITION);
        let seq = self.sheet.load_u64_relaxed(index_at::LIVE + live_at::TAIL_SEQ);
        (check == format::tail_check(self.key, position, seq)).then_some((position, seq))
    }

    /// Notes that everything before is on disk: the next opening must not know less, or it gives back what a flush has
    /// promised. One of the two slots is whole at any time.
    pub(crate) fn set_synced(&self, position: u64, seq: u64) {
        let word = |at| self.sheet.load_u64_relaxed(index_at::LIVE + at);
        let older =
            if word(live_at::SYNCED_A) <= word(live_at::SYNCED_B) { live_at::SYNCED_A } else { live_at::SYNCED_B };
        let at = index_at::LIVE + older;
        self.sheet.store_u64(at + 16, 0);
        self.sheet.store_u64(at + 8, seq);
        self.sheet.store_u64(at, position);
        self.sheet.store_u64(at + 16, format::tail_check(self.key, position, seq));
    }

    /// Declares the live part true for this run of the process.
    pub(crate) fn begin_life(&self, live: &Live) {
        let at = index_at::LIVE;
        let sheet = &self.sheet;
        // Never believed while it is half written: the token goes last. Where the old part was believed, what is stored
        // over it says the same, or what became true since, part by part: it stays believed, or a kill in this opening
        // would count as a power cut.
        let mut token = [0; 24];
        sheet.copy_out(at + live_at::LIFE_TOKEN, &mut token);
        let is_new = token != live.life.encode();
        if is_new {
            sheet.copy_in(at + live_at::LIFE_TOKEN, &[0; 24]);
        }
        sheet.store_u64(at + live_at::LIVE_NONCE, self.nonce);
        sheet.store_u32(at + live_at::LIVE_PID, live.pid);
        {
            let mut run = self.run.lock();
            *run = live.run.unwrap_or_default();
            self.store_run(&run);
        }
        let (position, seq) = live.tail.unwrap_or_default();
        self.set_tail(position, seq);
        if is_new {
            sheet.zero(at + live_at::SYNCED_A, 48);
        }
        if let Some((position, seq)) = live.synced {
            self.set_synced(position, seq);
        }
        sheet.copy_in(at + live_at::LIFE_TOKEN, &live.life.encode());
    }

    /// When the holder opened the queue.
    pub(crate) fn set_since(&self, milliseconds: u64) {
        self.sheet.store_u64(index_at::LIVE + live_at::LIVE_SINCE, milliseconds);
    }

    /// The holder's process id, in case somebody else asks for the queue; 0 when it is let go.
    pub(crate) fn set_pid(&self, pid: u32) {
        self.sheet.store_u32(index_at::LIVE + live_at::LIVE_PID, pid);
    }

    /// One after the other: a kill within one leaves the other, and so does a damaged byte.
    fn store_run(&self, run: &Run) {
        let bytes = run.encode(&self.queue_id);
        self.sheet.copy_in(index_at::LIVE + live_at::RUN_A, &bytes);
        // The second copy is not touched before the first one is whole.
        fence(Ordering::SeqCst);
        self.sheet.copy_in(index_at::LIVE + live_at::RUN_B, &bytes);
    }

    /// Changes what the next opening is told of this run, if cached bytes are kept until then. Stored on return.
    fn change_run(&self, change: impl FnOnce(&mut Run)) {
        let mut run = self.run.lock();
        let before = *run;
        change(&mut run);
        if *run != before {
            self.store_run(&run);
        }
    }

    /// How the next segment begins, now that the last one takes no more records. Said until another one is to begin otherwise: until
    /// it is durable, the segment that states it may be lost again.
    pub(crate) fn set_next(&self, next: Option<Next>) {
        self.change_run(|run| run.next = next);
    }

    pub(crate) fn set_next_life(&self, life: u64) {
        self.change_run(|run| run.next_life = life);
    }

    pub(crate) fn set_lease(&self, seq: u64) {
        self.change_run(|run| run.lease = seq);
    }

    /// What is written from now on says that time, or an earlier one.
    pub(crate) fn set_latest(&self, time: u64) {
        self.change_run(|run| run.latest = time);
    }

    pub(crate) fn set_given_up(&self, given_up: &GivenUp) {
        self.change_run(|run| run.given_up = *given_up);
    }

    /// Segments are about to be changed: until [`set_changing`](Self::set_changing) takes it back, the segment rows are not to be
    /// believed. Where this cannot be written nothing may be changed.
    pub(crate) fn begin_changing(&self) -> io::Result<()> {
        #[cfg(test)]
        if crate::tests::sim::Mutant::ChangingNotSaid.is_planted() {
            return Ok(());
        }
        let mut run = self.run.lock();
        let changing = Run { flags: run.flags | FLAG_CHANGING, ..*run };
        if changing != *run {
            let (bytes, before) = (changing.encode(&self.queue_id), run.encode(&self.queue_id));
            self.sheet.try_copy_in(index_at::LIVE + live_at::RUN_A, &bytes, &before)?;
            *run = changing;
            self.sheet.copy_in(index_at::LIVE + live_at::RUN_B, &bytes);
        }
        Ok(())
    }

    pub(crate) fn set_changing(&self, changing: bool) {
        #[cfg(test)]
        let changing = changing && !crate::tests::sim::Mutant::ChangingNotSaid.is_planted();
        self.set_flag(FLAG_CHANGING, changing);
    }

    fn set_flag(&self, flag: u32, on: bool) {
        self.change_run(|run| run.flags = if on { run.flags | flag } else { run.flags & !flag });
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
    pub(crate) fn write_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) -> Result<()> {
        let mut slots = self.checkpoints.lock();
        #[cfg(test)]
        if crate::tests::sim::Mutant::SlotOverwrittenWithoutR1.is_planted() {
            slots.newest_is_durable = true;
        }
        if !slots.newest_is_durable {
            // R1: the slot recovery chose may exist in the page cache alone. It is stored again (a page whose writing
            // failed once counts as clean) and made durable before the other one is touched.
            let bytes = slots.newest.encode(&self.queue_id);
            if slots.newest.number > 0 {
                self.sheet.copy_in(slot_offset(slots.newest_is_b), &bytes);
            }
            self.sync()?;
            slots.newest_is_durable = true;
        }
        let mut next = slots.newest;
        change(&mut next);
        let run = *self.run.lock();
        if (next.position, next.seq) != (slots.newest.position, slots.newest.seq) {
            let stated = run.next.filter(|stated| stated.base == next.position).unwrap_or_default();
            (next.gap, next.reserved, next.cause) = (stated.gap, stated.reserved, stated.cause);
        }
        next.latest = next.latest.max(run.latest);
        slots.number += 1;
        next.number = slots.number;
        next.nonce = self.nonce;
        let bytes: [u8; CHECKPOINT_LEN] = next.encode(&self.queue_id);
        self.sheet.copy_in(slot_offset(!slots.newest_is_b), &bytes);
        slots.newest_is_b = !slots.newest_is_b;
        slots.newest = next;
        slots.newest_is_durable = false;
        self.sync()?;
        slots.newest_is_durable = true;
        Ok(())
    }

    /// Makes every place stored before durable, and that the last opening's end is no longer the end: what is done to the
    /// segments now must not be missed by an opening that believes in a clean end.
    ///
    /// And where the durable part of the queue ends, `(position, seq)`, when that is news: what is held may begin in the middle
    /// of a batch afterwards, whose rest counts because it is durable, and for no other reason. And what was given up, and the
    /// first number that is `held` afterwards: what is missing from there on was lost.
    pub(crate) fn sync_for_change(&self, durable: (u64, u64), given_up: &Mutex<GivenUp>, held: u64) -> Result<()> {
        #[cfg(test)]
        if crate::tests::sim::Mutant::RecycledBeforePlacesAreSynced.is_planted() {
            return Ok(());
        }
        let newest = self.checkpoint();
        let known = GivenUp::of(&newest) == *given_up.lock();
        #[cfg(test)]
        let known = known || crate::tests::sim::Mutant::CauseNotDurable.is_planted();
        #[cfg(test)]
        let newest =
            Checkpoint { clean: newest.clean && !crate::tests::sim::Mutant::CleanMarkKept.is_planted(), ..newest };
        if !newest.clean && durable.0 <= newest.position && known && held <= newest.held {
            return self.sync();
        }
        self.write_checkpoint(|checkpoint| {
            #[cfg(test)]
            let kept = checkpoint.clean && crate::tests::sim::Mutant::CleanMarkKept.is_planted();
            #[cfg(not(test))]
            let kept = false;
            checkpoint.clean = kept;
            checkpoint.held = checkpoint.held.max(held);
            #[cfg(test)]
            if crate::tests::sim::Mutant::CauseNotDurable.is_planted() {
                return;
            }
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
        if row_of(&extents.sheets, ExtentKind::Segments, slot).is_none() {
            if header.is_none() {
                return true;
            }
            // A file that somebody gave a far number is no reason for a table that long.
            if slot > 4 * rows_of(&extents.sheets, ExtentKind::Segments) {
                return false;
            }
            let rows = (slot + 1).next_multiple_of(SEGMENT_ROWS as u32).max(2 * SEGMENT_ROWS as u32);
            if self.add_extent(&mut extents, ExtentKind::Segments, rows, room).is_err() {
                return false;
            }
        }
        let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Segments, slot) else {
            return false;
        };
        let bytes = header.map_or([0; SEGMENT_ROW_LEN], SegmentHeader::encode);
        sheet.copy_in(offset, &bytes);
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
    ) -> Result<(u32, PlaceSlot<S::File>)> {
        let mut extents = self.extents.lock();
        let row = match known {
            Some(row) => row,
            None if name.is_empty() => 0,
            None => {
                // The first row is the default consumer's.
                let free = |row: &u32| !extents.consumers.contains(row);
                // One was removed from it, and the disk does not know yet: what is left there may be half of either.
                let unknown = |row: &u32| extents.removed.get(row).is_some_and(|mark| !self.syncs.is_past(*mark));
                let rows = rows_of(&extents.sheets, ExtentKind::Consumers);
                let known = (1..rows).find(|row| free(row) && !unknown(row));
                let row = known.or_else(|| (1..).find(free)).unwrap_or(u32::MAX);
                if row >= rows_of(&extents.sheets, ExtentKind::Consumers) {
                    self.add_extent(&mut extents, ExtentKind::Consumers, CONSUMER_ROWS as u32, room)
                        .map_err(|error| Error::io("grow", storage.path().join(INDEX_NAME), error))?;
                }
                row
            }
        };
        let Some((sheet, at)) = consumer_of(&extents.sheets, row) else {
            return Err(Error::internal(&self.directory, "the index grew by consumers' rows, and has no row for one"));
        };
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        let mut slot = PlaceSlot { sheet: sheet.share(), at, seed, number: place.number };
        if known.is_none() {
            // One of that name may have been removed from the row, and not all of that be on the disk.
            slot.number = newest_place(sheet, at, seed).map_or(0, |place| place.number);
            self.forget_before(&extents, row, seed, &mut slot)?;
            slot.store(place.position, place.seq);
            slot.store(place.position, place.seq);
        }
        // What is known may have lost its name, or its copy.
        let (mut copied, wanted) = ([0; PLACE_SLOT_LEN], Place::empty_copy(name));
        sheet.copy_out(at.copy, &mut copied);
        if known.is_none()
            || copied[place_at::PLACE_NAME..] != wanted[place_at::PLACE_NAME..]
            || Place::decode(&copied, seed).is_none()
        {
            sheet.copy_in(at.copy, &wanted);
            slot.store_copy(&Place { number: slot.number, ..place });
        }
        let (mut said, wanted) = ([0; NAME_ROW_LEN], format::encode_name(name));
        sheet.copy_out(at.name, &mut said);
        if said != wanted {
            sheet.copy_in(at.name, &wanted);
        }
        extents.consumers.insert(row);
        Ok((row, slot))
    }

    /// One of that name may have been in the row whose place or acknowledgements reached the disk before a power cut, and whose name
    /// or place did not: the new one has acknowledged nothing, and did not stand there. Durable before there is a name or a place
    /// for it.
    fn forget_before(
        &self,
        extents: &Extents<S::File>,
        row: u32,
        seed: u32,
        slot: &mut PlaceSlot<S::File>,
    ) -> Result<()> {
        let mut forgotten = newest_place(&slot.sheet, slot.at, seed).is_some_and(|place| !place.is_removed());
        if forgotten {
            let removed = Place::removed(0);
            slot.store(removed.position, removed.seq);
        }
        for at in 0..rows_of(&extents.sheets, ExtentKind::Acks) {
            let is_owned = extents.acks_rows.get(at as usize).is_some_and(Option::is_some);
            let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Acks, at).filter(|_| !is_owned) else {
                continue;
            };
            let mut bytes = [0; ACKS_ROW_LEN];
            sheet.copy_out(offset, &mut bytes);
            if bytes.chunks(ACKS_SLOT_LEN).any(|slot| Acks::decode(slot, row, seed).is_some()) {
                sheet.zero(offset, ACKS_ROW_LEN);
                forgotten = true;
            }
        }
        if forgotten { self.sync() } else { Ok(()) }
    }

    /// The consumer is gone. Its place says so, beside the one before: a power cut that undoes a part of this leaves it where
    /// it was, or gone, and never where it was earlier.
    pub(crate) fn remove_consumer(&self, row: u32, name: &str) {
        let mut extents = self.extents.lock();
        if let Some((sheet, at)) = consumer_of(&extents.sheets, row) {
            let seed = Place::seed(&self.queue_id, name.as_bytes());
            let place = Place::removed(newest_place(sheet, at, seed).map_or(0, |place| place.number) + 1);
            let half = at.pair + (place.number & 1) as usize * PLACE_HALF_LEN;
            sheet.store_row(half, place.words(), place.crc(seed));
            sheet.copy_in(at.name, &[0; NAME_ROW_LEN]);
            sheet.copy_in(at.copy, &[0; PLACE_SLOT_LEN]);
        }
        extents.consumers.remove(&row);
        extents.removed.insert(row, self.syncs.mark());
    }

    /// The row in which the consumer's acknowledgements are remembered: its own, or a free one. `None` when there is no
    /// room for one.
    pub(crate) fn acks_slot(&self, row: u32, name: &str, room: u64) -> Option<AcksSlot<S::File>> {
        let mut extents = self.extents.lock();
        let rows = rows_of(&extents.sheets, ExtentKind::Acks) as usize;
        extents.acks_rows.resize(rows, None);
        let own = extents.acks_rows.iter().position(|owner| owner.is_some_and(|owner| owner.consumer == row));
        let at = match own.or_else(|| extents.acks_rows.iter().position(Option::is_none)) {
            Some(at) => at,
            None => {
                self.add_extent(&mut extents, ExtentKind::Acks, ACKS_ROWS as u32, room).ok()?;
                rows
            }
        };
        let rows = rows_of(&extents.sheets, ExtentKind::Acks) as usize;
        extents.acks_rows.resize(rows, None);
        let owner = extents.acks_rows[at].unwrap_or(AcksOwner { consumer: row, number: 0, from: None });
        let (sheet, offset) = row_of(&extents.sheets, ExtentKind::Acks, at as u32)?;
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        if own.is_none() {
            sheet.zero(offset, ACKS_ROW_LEN);
        }
        let slot = AcksSlot {
            sheet: sheet.share(),
            offset,
            seed,
            owner: row,
            number: owner.number,
            syncs: Arc::clone(&self.syncs),
            from: owner.from,
            next_from: None,
        };
        extents.acks_rows[at] = Some(owner);
        Some(slot)
    }

    /// Makes it durable that nothing is remembered for the consumer: what it is told from now on must not be taken for
    /// what was acknowledged before.
    pub(crate) fn clear_acks(&self, row: u32, free: bool) -> Result<()> {
        {
            let mut extents = self.extents.lock();
            let own = extents.acks_rows.iter().position(|owner| owner.is_some_and(|owner| owner.consumer == row));
            let Some(at) = own else {
                return Ok(());
            };
            if !free {
                // What cannot be made durable is not begun.
                self.poison.check()?;
            }
            if let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Acks, at as u32) {
                sheet.zero(offset, ACKS_ROW_LEN);
            }
            match &mut extents.acks_rows[at] {
                Some(owner) if !free => owner.from = None,
                owner => *owner = None,
            }
        }
        #[cfg(test)]
        if crate::tests::sim::Mutant::SeekNotSynced.is_planted() {
            return Ok(());
        }
        self.sync()
    }

    /// Rows of `kind` are added behind the end of the file, in space that is allocated before it is noted.
    /// At most `room` bytes may be added.
    fn add_extent(&self, extents: &mut Extents<S::File>, kind: ExtentKind, rows: u32, room: u64) -> io::Result<()> {
        let added = extents.sheets.len() - first_extents().len();
        if added >= EXTENT_ROWS {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the index file has no row for another extent"));
        }
        let have = rows_of(&extents.sheets, kind);
        let page = crate::memory::page_size();
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
                "max_bytes or min_free_bytes leaves no room for a longer index file",
            ));
        }
        self.sheets.file().allocate(offset, len)?;
        let sheet = self.sheets.sheet(offset, len as usize)?;
        sheet.zero(0, len as usize);
        let row = index_at::EXTENTS + added * EXTENT_ROW_LEN;
        self.sheet.copy_in(row, &extent.encode(&self.queue_id));
        extents.sheets.push((extent, sheet));
        extents.file_len = offset + len;
        self.len.store(extents.file_len, Ordering::Relaxed);
        Ok(())
    }
}

/// The process id of whoever holds the queue, and since when, as far as its index tells; 0 and `None` when it does not.
pub(crate) fn holder<S: Storage>(storage: &S) -> (u32, Option<SystemTime>) {
    let mut live = [0; format::LIVE_LEN];
    let read = storage.open(INDEX_NAME).and_then(|file| read_full(&file, &mut live, index_at::LIVE as u64));
    if !matches!(read, Ok(format::LIVE_LEN)) {
        return (0, None);
    }
    let since = Duration::from_millis(u64_at(&live, live_at::LIVE_SINCE));
    let since = UNIX_EPOCH.checked_add(since).filter(|since| *since > UNIX_EPOCH);
    (u32_at(&live, live_at::LIVE_PID), since)
}

#[inline]
fn tail_words(key: u64, position: u64, seq: u64) -> [u64; 3] {
    const { assert!(live_at::TAIL_POSITION == live_at::TAIL_SEQ + 8) };
    const { assert!(live_at::TAIL_CHECK == live_at::TAIL_SEQ + 16) };
    [seq, position, format::tail_check(key, position, seq)]
}

fn slot_offset(is_b: bool) -> usize {
    if is_b { index_at::CHECKPOINT_B } else { index_at::CHECKPOINT_A }
}

fn rows_of<F>(sheets: &[(Extent, Sheet<F>)], kind: ExtentKind) -> u32 {
    sheets.iter().filter(|(extent, _)| extent.kind == kind).map(|(extent, _)| extent.rows).sum()
}

/// The sheet that holds row `row` of `kind`, the row's extent, the extent's offset in the sheet, and the row's number in
/// the extent.
fn extent_of<F>(
    sheets: &[(Extent, Sheet<F>)],
    kind: ExtentKind,
    mut row: u32,
) -> Option<(&Sheet<F>, &Extent, usize, u32)> {
    for (extent, sheet) in sheets {
        if extent.kind != kind {
            continue;
        }
        if row < extent.rows {
            // The first extents lie in the sheet of the file's beginning, each other one has its own.
            let offset = extent.offset as usize;
            return Some((sheet, extent, if offset < index_at::END { offset } else { 0 }, row));
        }
        row -= extent.rows;
    }
    None
}

/// The sheet that holds row `row` of `kind`, and the row's offset in it.
fn row_of<F>(sheets: &[(Extent, Sheet<F>)], kind: ExtentKind, row: u32) -> Option<(&Sheet<F>, usize)> {
    let (sheet, extent, offset, row) = extent_of(sheets, kind, row)?;
    Some((sheet, offset + row as usize * extent.row_len()))
}

/// The sheet that holds a consumer's row, and where its parts lie in it.
fn consumer_of<F>(sheets: &[(Extent, Sheet<F>)], row: u32) -> Option<(&Sheet<F>, ConsumerAt)> {
    let (sheet, extent, offset, row) = extent_of(sheets, ExtentKind::Consumers, row)?;
    let at = ConsumerAt::new(row, extent.rows);
    Some((sheet, ConsumerAt { name: offset + at.name, pair: offset + at.pair, copy: offset + at.copy }))
}

/// The newest of a consumer's places, which may say that it was removed.
fn newest_place<F: StorageFile>(sheet: &Sheet<F>, at: ConsumerAt, seed: u32) -> Option<Place> {
    let places = at.places().into_iter().filter_map(|place| {
        let mut bytes = [0; place_at::PLACE_NAME];
        sheet.copy_out(place, &mut bytes);
        Place::decode(&bytes, seed)
    });
    places.max_by_key(|place| place.number)
}

fn clear_consumer<F: StorageFile>(sheets: &[(Extent, Sheet<F>)], row: u32) {
    if let Some((sheet, at)) = consumer_of(sheets, row) {
        sheet.copy_in(at.name, &[0; NAME_ROW_LEN]);
        for slot in [at.pair, at.copy] {
            sheet.copy_in(slot, &[0; PLACE_SLOT_LEN]);
        }
    }
}
