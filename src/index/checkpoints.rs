//! Checkpoints state what is on the disk, in two slots that are written in turn.

use crate::error::Result;
use crate::format::{CHECKPOINT_LEN, Checkpoint, Spot};
use crate::index::Index;
use crate::index::losses::Evicted;
use crate::index::run::Next;
use crate::storage::Storage;
use crate::threads::Mutex;

impl<S: Storage> Index<S> {
    /// The newest checkpoint, whether this run wrote it or the opening read it.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoints.lock().newest
    }

    /// The newest checkpoint, and whether it is known to be on the disk.
    pub(crate) fn durable_checkpoint(&self) -> (Checkpoint, bool) {
        let checkpoints = self.checkpoints.lock();
        (checkpoints.newest, checkpoints.newest_is_durable)
    }

    /// Applies `change` to the newest checkpoint, writes the result, and makes it and every place
    /// stored before durable. The caller has synced all that the checkpoint declares durable.
    pub(crate) fn write_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        if !checkpoints.newest_is_durable && !planted!(SlotOverwrittenWithoutR1) {
            // R1: the slot that the opening read may be in the page cache only. It is synced before
            // the other slot is overwritten.
            self.sync()?;
            checkpoints.newest_is_durable = true;
        }
        let mut next = checkpoints.newest;
        change(&mut next);
        holds!(
            checkpoints.newest_is_durable,
            "the newest checkpoint is on the disk before the other slot is written (R1)"
        );
        check!(next.check_behind(&checkpoints.newest));
        self.say_begun(&next);
        let run = *self.run.lock();
        if (next.position, next.seq) != (checkpoints.newest.position, checkpoints.newest.seq) {
            // The spot may lie within the numbers that the next segment is to state: an opening
            // found fewer records than an earlier run had made durable, and none after them. That
            // segment may get lost while later ones survive: then only the checkpoint states them.
            let stated = run.next.and_then(|stated| stated.cut_at(next.spot()));
            let at_its_base = |stated: &Next| {
                !planted!(StatedAtTheBaseAlone)
                    || run.next.is_some_and(|next| next.base == stated.base)
            };
            let stated = stated.filter(at_its_base).unwrap_or_default();
            next.missing = stated.missing;
        }
        checkpoints.number += 1;
        next.number = checkpoints.number;
        next.nonce = self.nonce;
        let bytes: [u8; CHECKPOINT_LEN] = next.encode(&self.queue_id);
        holds!(
            checkpoints.number > checkpoints.newest.number,
            "a checkpoint is numbered above the newest, {}, as {}",
            checkpoints.newest.number,
            checkpoints.number
        );
        holds!(
            checkpoints.newest_in.other().offset() != checkpoints.newest_in.offset(),
            "the slot of the newest checkpoint is not overwritten: {:?}",
            checkpoints.newest_in
        );
        self.sheet.copy_in(checkpoints.newest_in.other().offset(), &bytes);
        checkpoints.newest_in = checkpoints.newest_in.other();
        checkpoints.newest = next;
        checkpoints.newest_is_durable = false;
        self.sync()?;
        checkpoints.newest_is_durable = true;
        Ok(())
    }

    /// Makes durable what must be so before segments are recycled or removed: every earlier place;
    /// the removal of the mark of a clean end, or an opening would believe rows that no longer
    /// hold; the evicted ranges; and the first number that is retained afterwards. Numbers missing
    /// from there on were lost.
    ///
    /// Also makes the `durable` spot durable, if it is beyond the checkpoint's: the first retained
    /// message may then lie in the middle of a batch, and the rest of that batch counts only
    /// because it is known to be durable.
    pub(crate) fn sync_for_change(
        &self,
        durable: Spot,
        evicted: &Mutex<Evicted>,
        retained_from: u64,
    ) -> Result<()> {
        if planted!(RecycledBeforePlacesAreSynced) {
            return Ok(());
        }
        let newest = self.checkpoint();
        let is_known = Evicted::of(&newest) == *evicted.lock() || planted!(CauseNotDurable);
        let may_stay = is_known && (!newest.clean || planted!(CleanMarkKept));
        if may_stay && durable.position <= newest.position && retained_from <= newest.retained_from
        {
            return self.sync();
        }
        self.write_checkpoint(|checkpoint| {
            checkpoint.clean &= planted!(CleanMarkKept);
            checkpoint.retained_from = checkpoint.retained_from.max(retained_from);
            if !planted!(CauseNotDurable) {
                evicted.lock().write_to(checkpoint);
            }
            if durable.position > checkpoint.position {
                (checkpoint.position, checkpoint.seq) = (durable.position, durable.seq);
            }
        })
    }
}
