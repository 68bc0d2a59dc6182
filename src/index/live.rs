//! The live part: the tail, the durable marks, and the run record. It is stored without a sync; an
//! opening believes it if only the process died.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::format::{
    self, Checkpoint, FIGURES_LEN, FLAG_BEGUN, FLAG_CHANGING, Figures, INDEX_NAME, Spot, index_at,
    live_at,
};
use crate::index::Index;
use crate::index::image::{Live, u32_at, u64_at};
use crate::index::losses::Evicted;
use crate::index::run::{Next, Run};
use crate::storage::{FileStat, Storage};
use crate::threads::fence;

/// Whether an opening may believe the index's rows of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowsAre {
    Right,
    /// The holder is changing segments: no opening may believe the rows.
    Changing,
}

/// The live part that a new run overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredOver {
    /// One that the opening has believed, under this token or another one.
    Believed,
    /// Any other: no opening may believe it again.
    Doubted,
}

impl<S: Storage> Index<S> {
    /// Stores the tail for the opening after this process dies. The number is stored first;
    /// `recovery` explains the state after a kill between the stores.
    #[inline]
    pub(crate) fn set_tail(&self, tail: Spot) {
        self.sheet.store_words(index_at::LIVE + live_at::TAIL_SEQ, tail_words(self.key, tail));
    }

    /// Stores the tail, or fails and leaves it at `before`.
    #[inline(always)]
    pub(crate) fn move_tail(&self, tail: Spot, before: impl FnOnce() -> Spot) -> io::Result<()> {
        let words = tail_words(self.key, tail);
        self.sheet.try_store_words(index_at::LIVE + live_at::TAIL_SEQ, words, || {
            tail_words(self.key, before())
        })
    }

    /// The published tail. `None` while another thread is publishing it.
    pub(crate) fn tail(&self) -> Option<Spot> {
        // An acquire load: it makes the words visible that were stored before the check word.
        let check = self.sheet.load_u64(index_at::LIVE + live_at::TAIL_CHECK);
        let position = self.sheet.load_u64_relaxed(index_at::LIVE + live_at::TAIL_POSITION);
        let seq = self.sheet.load_u64_relaxed(index_at::LIVE + live_at::TAIL_SEQ);
        (check == format::tail_check(self.key, position, seq)).then_some(Spot { position, seq })
    }

    /// Notes that every record before this spot is on the disk. Without it the next opening could
    /// discard records that a flush has confirmed. Writes the older of two slots, so one of them is
    /// whole at any time. Returns the offset of the other slot in the live part.
    pub(crate) fn set_synced(&self, spot: Spot) -> usize {
        let Spot { position, seq } = spot;
        // A slot whose stores a kill interrupted has nothing to lose.
        let age = |at| self.mark(at).map_or(0, |spot| spot.position + 1);
        let (older, other) = if age(live_at::SYNCED_A) <= age(live_at::SYNCED_B) {
            (live_at::SYNCED_A, live_at::SYNCED_B)
        } else {
            (live_at::SYNCED_B, live_at::SYNCED_A)
        };
        let at = index_at::LIVE + older;
        self.sheet.store_u64(at + 16, 0);
        self.sheet.store_u64(at + 8, seq);
        self.sheet.store_u64(at, position);
        self.sheet.store_u64(at + 16, format::tail_check(self.key, position, seq));
        holds!(self.mark(older) == Some(spot), "the durable mark that is stored is {spot:?}");
        holds!(older != other, "the newer of the two marks stays while {spot:?} is stored");
        other
    }

    /// The durable mark in the slot at this offset of the live part, if it is whole.
    fn mark(&self, at: usize) -> Option<Spot> {
        let word = |at| self.sheet.load_u64_relaxed(index_at::LIVE + at);
        let (position, seq, check) = (word(at), word(at + 8), word(at + 16));
        (check == format::tail_check(self.key, position, seq)).then_some(Spot { position, seq })
    }

    /// Clears the token, so that no opening believes the live part of this boot again. An opening
    /// that found bytes lost calls it: its repairs would hide the loss from the next opening if it
    /// died.
    pub(crate) fn forget_token(&self) {
        self.sheet.copy_in(index_at::LIVE + live_at::BOOT_TOKEN, &[0; 24]);
    }

    /// Stores the live part of this run, under the storage's cache token.
    pub(crate) fn begin_run(&self, live: &Live, over: StoredOver) {
        let at = index_at::LIVE;
        let sheet = &self.sheet;
        // The token is stored last, so no opening believes a half-written live part. A live part
        // that the opening believed stays believed: each part that overwrites it says the same, or
        // what became true since. Otherwise a kill in this opening would count as a power cut.
        let is_new = over == StoredOver::Doubted;
        if is_new && planted!(MarkBehindTheToken) {
            self.forget_token();
        }
        // An opening after a power cut has made the records that it found durable. If it dies, the
        // next one sees only a cleared token, not the power cut, and so relies on the mark.
        let old_mark = live.synced.map(|spot| self.set_synced(spot));
        if is_new {
            let now = if planted!(TokenFirst) { live.token.encode() } else { [0; 24] };
            sheet.copy_in(at + live_at::BOOT_TOKEN, &now);
        }
        sheet.store_u64(at + live_at::LIVE_NONCE, self.nonce);
        sheet.store_u32(at + live_at::LIVE_PID, live.pid);
        {
            let mut run = self.run.lock();
            *run = live.run.unwrap_or_default();
            // A power cut or a kill may have left the second copy torn or older. It becomes whole
            // before the first one, which counts then, is overwritten.
            let bytes = run.encode(&self.queue_id);
            self.sheet.copy_in(index_at::LIVE + live_at::RUN_B, &bytes);
            fence(Ordering::SeqCst);
            self.store_run(&run);
        }
        let tail = live.tail.unwrap_or_default();
        // A kill between the stores of its words leaves no valid tail.
        if self.tail() != Some(tail) {
            self.set_tail(tail);
        }
        if is_new {
            match old_mark {
                Some(old) => sheet.zero(at + old, 24),
                None => sheet.zero(at + live_at::SYNCED_A, 48),
            }
        }
        // Late bytes are written with their latest content, each range in the order of its first
        // store: the token, which was cleared first, would come before the parts that it vouches
        // for. Without the token the next opening takes the end of this run for a power cut.
        if is_new && self.sheets.are_late() {
            return;
        }
        sheet.copy_in(at + live_at::BOOT_TOKEN, &live.token.encode());
    }

    /// Stores the holder's figures over the older of the two copies. Returns false if they could
    /// not be written.
    pub(crate) fn offer_figures(&self, figures: &Figures) -> bool {
        let at = index_at::FIGURES + (figures.number % 2) as usize * FIGURES_LEN;
        self.sheet.offer(at, &Figures { nonce: self.nonce, ..*figures }.encode(&self.queue_id))
    }

    /// Stores the time when the holder opened the queue, in milliseconds since 1970.
    pub(crate) fn set_since(&self, milliseconds: u64) {
        self.sheet.store_u64(index_at::LIVE + live_at::LIVE_SINCE, milliseconds);
    }

    /// Stores the holder's process id, which a second opener reports. 0: the holder closed the
    /// queue.
    pub(crate) fn set_pid(&self, pid: u32) {
        self.sheet.store_u32(index_at::LIVE + live_at::LIVE_PID, pid);
    }

    /// Stores both copies, one after the other: a kill or a damaged byte in one leaves the other.
    fn store_run(&self, run: &Run) {
        let bytes = run.encode(&self.queue_id);
        if planted!(RunInOneCopy) {
            return self.sheet.copy_in(index_at::LIVE + live_at::RUN_A, &bytes);
        }
        self.sheet.copy_in(index_at::LIVE + live_at::RUN_A, &bytes);
        // The first copy is whole before the second one is overwritten.
        fence(Ordering::SeqCst);
        self.sheet.copy_in(index_at::LIVE + live_at::RUN_B, &bytes);
        holds!(
            run.next.is_none_or(|next| next.missing.is_sound(next.seq)),
            "the run record names numbers that are missing: {run:?}"
        );
    }

    /// Changes the run record and stores it.
    fn change_run(&self, change: impl FnOnce(&mut Run)) {
        let mut run = self.run.lock();
        let before = *run;
        change(&mut run);
        if planted!(RunChangedUnlocked) {
            let changed = *run;
            drop(run);
            reached!("with the run record unlocked");
            self.store_run(&changed);
            return *self.run.lock() = changed;
        }
        if *run != before {
            self.store_run(&run);
        }
    }

    /// Stores how the next segment begins, after the last one was closed. This stays until the next
    /// call: the segment that states it may be lost until it is durable.
    pub(crate) fn set_next(&self, next: Option<Next>) {
        holds!(
            next.is_none_or(|next| next.missing.is_sound(next.seq)),
            "the numbers missing before the next segment are numbers: {next:?}"
        );
        self.change_run(|run| run.next = next);
    }

    /// Stores the reservation: no number at or above `seq` is given out. Returns the previous one.
    pub(crate) fn begin_reservation(&self, seq: u64) -> u64 {
        let mut before = 0;
        self.change_run(|run| {
            before = run.reservation;
            run.reservation = run.reservation.max(seq);
            holds!(before <= run.reservation, "a reservation to {before} is not cut to {seq}");
        });
        before
    }

    /// Restores the reservation `before`, after the checkpoint could not be written.
    pub(crate) fn take_reservation_back(&self, before: u64) {
        self.change_run(|run| run.reservation = before);
    }

    /// Stores whether the run withdraws the mark of a clean end, as the checkpoint does that is
    /// about to be written. The sync of that checkpoint makes this durable, too: if its slot is
    /// damaged, the other one still has the mark of a clean end, and this shows that a run
    /// continued.
    pub(super) fn say_begun(&self, checkpoint: &Checkpoint) {
        self.change_run(|run| match checkpoint.clean {
            true => run.flags &= !FLAG_BEGUN,
            false if !planted!(BegunNotSaid) => run.flags |= FLAG_BEGUN,
            _ => {}
        });
    }

    /// Notes when the queue changed the file of a segment last.
    pub(crate) fn note_changed(&self, stat: io::Result<FileStat>) {
        let Ok(stat) = stat else { return };
        let _one_at_a_time = self.run.lock();
        let at = index_at::LIVE + live_at::CHANGED;
        self.sheet.store_u64(at, stat.changed.max(self.sheet.load_u64_relaxed(at)));
    }

    /// Sets a flag of the run record.
    pub(super) fn set_flag(&self, flag: u32) {
        self.change_run(|run| run.flags |= flag);
    }

    /// Clears a flag of the run record.
    pub(crate) fn clear_flag(&self, flag: u32) {
        self.change_run(|run| run.flags &= !flag);
    }

    /// Stores up to which numbers messages were evicted, and why.
    pub(crate) fn set_evicted(&self, evicted: &Evicted) {
        self.change_run(|run| {
            holds!(
                run.evicted.dropped <= evicted.dropped && run.evicted.expired <= evicted.expired,
                "what was evicted stays evicted: {:?} is followed by {evicted:?}",
                run.evicted
            );
            run.evicted = *evicted;
        });
    }

    /// Declares the rows of segments invalid until [`set_rows_are`](Self::set_rows_are). The caller
    /// is about to change segments, and must not when this fails.
    pub(crate) fn begin_changing(&self) -> io::Result<()> {
        self.try_change_run(|run| run.flags |= FLAG_CHANGING)
    }

    /// Declares the rows of segments invalid, and stores that no life at or above `next_life` was
    /// ever used. The caller must not write the header of a new life when this fails: an opening
    /// that finds a life unknown to the index takes the index for an older copy.
    pub(crate) fn begin_life(&self, next_life: u64) -> io::Result<()> {
        if planted!(NextLifeLate) {
            self.begin_changing()?;
            self.change_run(|run| run.next_life = next_life);
            return Ok(());
        }
        self.try_change_run(|run| {
            holds!(
                run.next_life <= next_life,
                "the next life does not fall, from {} to {next_life}",
                run.next_life
            );
            run.next_life = next_life;
            run.flags |= FLAG_CHANGING;
        })
    }

    /// Changes and stores the run record, or fails and leaves it unchanged.
    fn try_change_run(&self, change: impl FnOnce(&mut Run)) -> io::Result<()> {
        let mut run = self.run.lock();
        let mut changed = *run;
        change(&mut changed);
        if planted!(ChangingNotSaid) {
            changed.flags = run.flags;
        }
        if changed != *run {
            let (bytes, before) = (changed.encode(&self.queue_id), run.encode(&self.queue_id));
            self.sheet.try_copy_in(index_at::LIVE + live_at::RUN_A, &bytes, &before)?;
            *run = changed;
            self.sheet.copy_in(index_at::LIVE + live_at::RUN_B, &bytes);
        }
        Ok(())
    }

    /// Stores whether an opening may believe the rows of segments.
    pub(crate) fn set_rows_are(&self, rows: RowsAre) {
        if rows == RowsAre::Changing && !planted!(ChangingNotSaid) {
            self.set_flag(FLAG_CHANGING);
        } else {
            self.clear_flag(FLAG_CHANGING);
        }
    }
}

/// The holder's process id and the time when it opened the queue, by the index; 0 and `None` when
/// the index does not have them.
pub(crate) fn holder<S: Storage>(storage: &S) -> (u32, Option<SystemTime>) {
    let mut live = [0; format::LIVE_LEN];
    let read = storage.read_stored(INDEX_NAME, &mut live, index_at::LIVE as u64);
    if !matches!(read, Ok(format::LIVE_LEN)) {
        return (0, None);
    }
    let since = Duration::from_millis(u64_at(&live, live_at::LIVE_SINCE));
    let since = UNIX_EPOCH.checked_add(since).filter(|since| *since > UNIX_EPOCH);
    (u32_at(&live, live_at::LIVE_PID), since)
}

#[inline]
fn tail_words(key: u64, tail: Spot) -> [u64; 3] {
    let Spot { position, seq } = tail;
    const { assert!(live_at::TAIL_POSITION == live_at::TAIL_SEQ + 8) };
    const { assert!(live_at::TAIL_CHECK == live_at::TAIL_SEQ + 16) };
    [seq, position, format::tail_check(key, position, seq)]
}
