//! The live part: the words of the tail and of flushes, and the record of the run. Stored without a
//! sync, believed after a mere process death.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::format::{self, FLAG_CHANGING, INDEX_NAME, index_at, live_at};
use crate::index::Index;
use crate::index::image::{Live, u32_at, u64_at};
use crate::index::losses::GivenUp;
use crate::index::run::{Next, Run};
use crate::storage::{Storage, StorageFile, Stores, read_full};

impl<S: Storage> Index<S> {
    /// Publishes the tail for whoever opens the queue after this process died. The number goes
    /// first: see `recovery` for what a kill between the stores leaves.
    #[inline]
    pub(crate) fn set_tail(&self, position: u64, seq: u64) {
        self.sheet
            .store_words(index_at::LIVE + live_at::TAIL_SEQ, tail_words(self.key, position, seq));
    }

    /// How its words are stored.
    pub(crate) fn stores(&self) -> Stores {
        self.sheets.file().stores()
    }

    /// As [`set_tail`](Self::set_tail); an error leaves the tail as it was, which is `before`: a
    /// position and a number.
    #[inline]
    pub(crate) fn move_tail(&self, position: u64, seq: u64, before: (u64, u64)) -> io::Result<()> {
        let words = tail_words(self.key, position, seq);
        self.sheet.try_store_words(index_at::LIVE + live_at::TAIL_SEQ, words, || {
            tail_words(self.key, before.0, before.1)
        })
    }

    /// The tail as it was last published: `(position, seq)`; `None` when it is being published just
    /// now.
    pub(crate) fn tail(&self) -> Option<(u64, u64)> {
        // What was stored before the check word is seen with it.
        let check = self.sheet.load_u64(index_at::LIVE + live_at::TAIL_CHECK);
        let position = self.sheet.load_u64_relaxed(index_at::LIVE + live_at::TAIL_POSITION);
        let seq = self.sheet.load_u64_relaxed(index_at::LIVE + live_at::TAIL_SEQ);
        (check == format::tail_check(self.key, position, seq)).then_some((position, seq))
    }

    /// Notes that everything before is on disk: the next opening must not know less, or it gives
    /// back what a flush has promised. One of the two slots is whole at any time.
    pub(crate) fn set_synced(&self, position: u64, seq: u64) {
        let word = |at| self.sheet.load_u64_relaxed(index_at::LIVE + at);
        let older = if word(live_at::SYNCED_A) <= word(live_at::SYNCED_B) {
            live_at::SYNCED_A
        } else {
            live_at::SYNCED_B
        };
        let at = index_at::LIVE + older;
        self.sheet.store_u64(at + 16, 0);
        self.sheet.store_u64(at + 8, seq);
        self.sheet.store_u64(at, position);
        self.sheet.store_u64(at + 16, format::tail_check(self.key, position, seq));
    }

    /// Declares the live part true for this run of the process.
    pub(crate) fn begin_run(&self, live: &Live) {
        let at = index_at::LIVE;
        let sheet = &self.sheet;
        // Never believed while it is half written: the token goes last. Where the old part was
        // believed, what is stored over it says the same, or what became true since, part by part:
        // it stays believed, or a kill in this opening would count as a power cut.
        let mut token = [0; 24];
        sheet.copy_out(at + live_at::CACHE_TOKEN, &mut token);
        let is_new = token != live.token.encode();
        if is_new {
            sheet.copy_in(at + live_at::CACHE_TOKEN, &[0; 24]);
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
        sheet.copy_in(at + live_at::CACHE_TOKEN, &live.token.encode());
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

    /// Changes what the next opening is told of this run, if cached bytes are kept until then.
    /// Stored on return.
    fn change_run(&self, change: impl FnOnce(&mut Run)) {
        let mut run = self.run.lock();
        let before = *run;
        change(&mut run);
        if *run != before {
            self.store_run(&run);
        }
    }

    /// How the next segment begins, now that the last one takes no more records. Said until another
    /// one is to begin otherwise: until it is durable, the segment that states it may be lost
    /// again.
    pub(crate) fn set_next(&self, next: Option<Next>) {
        self.change_run(|run| run.next = next);
    }

    pub(crate) fn set_next_life(&self, life: u64) {
        self.change_run(|run| run.next_life = life);
    }

    pub(crate) fn set_lease(&self, seq: u64) {
        self.change_run(|run| run.lease = seq);
    }

    pub(crate) fn set_given_up(&self, given_up: &GivenUp) {
        self.change_run(|run| run.given_up = *given_up);
    }

    /// Segments are about to be changed: until [`set_changing`](Self::set_changing) takes it back,
    /// the segment rows are not to be believed. Where this cannot be written nothing may be
    /// changed.
    pub(crate) fn begin_changing(&self) -> io::Result<()> {
        if planted!(ChangingNotSaid) {
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
        self.set_flag(FLAG_CHANGING, changing && !planted!(ChangingNotSaid));
    }

    pub(super) fn set_flag(&self, flag: u32, on: bool) {
        self.change_run(|run| run.flags = if on { run.flags | flag } else { run.flags & !flag });
    }
}

/// The process id of whoever holds the queue, and since when, as far as its index tells; 0 and
/// `None` when it does not.
pub(crate) fn holder<S: Storage>(storage: &S) -> (u32, Option<SystemTime>) {
    let mut live = [0; format::LIVE_LEN];
    let read = storage
        .open(INDEX_NAME)
        .and_then(|file| read_full(&file, &mut live, index_at::LIVE as u64));
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
