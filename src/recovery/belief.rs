//! Decides how far an opening believes the index, and reads what depends on that.

use std::io::ErrorKind;

use crate::format::{self, Checkpoint, FLAG_BEGUN, SegmentState, Spot};
use crate::index::image::{IndexImage, Live};
use crate::index::losses::Evicted;
use crate::index::run::Run;
use crate::storage::{CacheToken, Storage};

/// How the run before ended, as far as the files show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The queue was closed.
    InOrder,
    /// Its process died. No byte was lost.
    Killed,
    /// Power may have been cut, or the index was lost.
    Cut,
    /// Its process died or power was cut: the system does not tell which boot this is.
    Unknown,
}

impl Ended {
    /// Whether what was in flight counts a failed attempt. Where nothing tells a death from a power
    /// cut it does: otherwise a message that kills its process would come again for ever.
    pub(crate) fn counts_attempts(self) -> bool {
        matches!(self, Ended::Killed | Ended::Unknown)
    }
}

/// What may have become of the files since the last run stored its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SinceRun {
    /// They are the files that the run stored, in the same boot and mount.
    Kept,
    /// They are those files, in the same boot; the mount is another one or not known.
    Mounted,
    /// They are those files, in another boot. Every byte of them came from the disk.
    Rebooted,
    /// They are those files. Nothing shows whether the boot is another one.
    Unknown,
    /// A file is another one: the queue was copied, or a file was put back from a copy. The disk
    /// may lack every byte of it, and it may be older than the rest.
    Copied,
}

impl SinceRun {
    /// Also whether somebody wrote to a file since the queue synced it. (The queue itself may have,
    /// and died before it noted that.)
    pub(super) fn of<S: Storage>(
        storage: &S,
        image: &IndexImage,
        token: &CacheToken,
    ) -> (SinceRun, bool) {
        let Live { token: stored, pid, synced, changed, run, .. } = &image.live;
        // After a close everything is synced.
        let synced_to = synced.filter(|_| *pid != 0).map_or(u64::MAX, |spot| spot.position);
        let (mut is_other, mut is_written_over) = (stored.file != token.file, false);
        for (slot, row) in &image.segments {
            match storage.stat(&format::segment_name(*slot)) {
                Ok(stat) => {
                    is_other |= stat.identity != row.file;
                    let is_synced = row.state == SegmentState::Live && row.end() <= synced_to;
                    is_written_over |= is_synced && stat.changed > *changed;
                }
                // The opening looks for missing files by itself.
                Err(error) => is_other |= error.kind() != ErrorKind::NotFound,
            }
        }
        let since = match stored.boot == token.boot {
            _ if is_other || run.is_none() => SinceRun::Copied,
            _ if token.boot == 0 || stored.boot == 0 => SinceRun::Unknown,
            true if stored.mount == token.mount && token.mount != 0 => SinceRun::Kept,
            true => SinceRun::Mounted,
            false => SinceRun::Rebooted,
        };
        (since, is_written_over)
    }

    /// Whether the files may show bytes of the last run that the disk does not have.
    fn is_same_boot(self) -> bool {
        matches!(self, SinceRun::Kept | SinceRun::Mounted)
    }
}

/// What an opening believes of the index beyond the parts that survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belief {
    /// No cached byte can have been lost: the live part is exact.
    Cache,
    /// The queue was closed in order, and no run changed it since.
    CleanEnd,
    /// Boot and files are the same, the mount is another one or not known. In a container or
    /// another mount namespace no byte was lost. If the file system failed and was mounted again,
    /// every byte that was not synced may be lost.
    Mount,
    /// Power may have been cut: the opening believes only what was on the disk.
    Disk,
}

impl Belief {
    /// How far the index may be believed, by its own marks and by what became of the files.
    pub(super) fn in_index(image: &IndexImage, since: SinceRun) -> Belief {
        // A run that began after a clean end may evict messages before it withdraws the mark.
        let gave_up_since = |checkpoint: &Checkpoint| {
            let evicted = image.live.run.map(|run| run.evicted.end());
            since.is_same_boot() && evicted.is_some_and(|end| end > Evicted::of(checkpoint).end())
        };
        match clean_end(image) {
            _ if since == SinceRun::Kept => Belief::Cache,
            Some(end) if !gave_up_since(&end) => Belief::CleanEnd,
            _ if since == SinceRun::Mounted => Belief::Mount,
            _ => Belief::Disk,
        }
    }

    /// How the run before ended. After a clean end another run may have begun and not changed the
    /// queue: it only delivered messages. That run has died if its process id is still there with
    /// the same boot and files, seen from this mount or another one: in a container a job may end
    /// every run so.
    pub(super) fn ended(self, image: &IndexImage, since: SinceRun) -> Ended {
        let has_holder = image.live.run.is_some() && image.live.pid != 0;
        match self {
            Belief::Disk | Belief::CleanEnd if has_holder && since == SinceRun::Unknown => {
                Ended::Unknown
            }
            Belief::Disk => Ended::Cut,
            Belief::CleanEnd if has_holder && since.is_same_boot() => Ended::Killed,
            Belief::CleanEnd => Ended::InOrder,
            _ if has_holder => Ended::Killed,
            _ => Ended::InOrder,
        }
    }

    /// Whether the walk searches for more records after invalid bytes.
    pub(super) fn searches(self) -> bool {
        matches!(self, Belief::Mount | Belief::Disk)
    }

    /// Whether no sign shows a power cut: the records that the walk found are all there were.
    pub(super) fn is_trusted(self) -> bool {
        self != Belief::Disk
    }

    /// The clean end, if the index is believed and no run continued after it.
    pub(super) fn clean_end(self, image: &IndexImage) -> Option<Checkpoint> {
        clean_end(image).filter(|_| self.is_trusted())
    }

    /// Whether appends continue at the spot that the walk found. With another mount the last
    /// messages may be lost together with the index bytes that stated them, without a sign. Numbers
    /// then continue at the end of the reservation, after a gap: those between may have been given
    /// out.
    pub(super) fn goes_on_at(self, image: &IndexImage, found: Spot) -> bool {
        let is_sure = self != Belief::Mount || planted!(NumbersOfAnotherMount);
        self.is_trusted() && (is_sure || reservation(image, self) <= found.seq)
    }

    /// The run record of the live part, if it is believed.
    pub(super) fn of_cache(self, image: &IndexImage) -> Option<Run> {
        image.live.run.filter(|_| matches!(self, Belief::Cache | Belief::Mount))
    }
}

/// The evicted messages. The live part has them before the checkpoint does.
pub(super) fn evicted(image: &IndexImage, belief: Belief) -> Evicted {
    let noted = image.checkpoint.as_ref().map(Evicted::of).unwrap_or_default();
    let live = belief.of_cache(image).map(|run| run.evicted);
    let live = live.filter(|_| !planted!(LossesOfTheRunForgotten));
    live.filter(|live| live.end() >= noted.end()).unwrap_or(noted)
}

/// The first retained number: every message before it was evicted, or passed by every consumer.
/// When all consumers were removed, the checkpoint says how far they came. When the index was lost
/// since, the headers of the segments say it: `by_headers`.
pub(super) fn first_retained(image: &IndexImage, belief: Belief, by_headers: u64) -> u64 {
    let lowest = image.consumers.iter().map(|consumer| consumer.place.seq).min();
    let passed = lowest.unwrap_or_else(|| {
        image.checkpoint.map_or(0, |checkpoint| checkpoint.retained_from).max(by_headers)
    });
    evicted(image, belief).end().max(passed)
}

/// The first number that no consumer has read or was told of, when there is no consumer. Evictions
/// without one move the headers alone: a number of theirs that was not evicted stems from before
/// the index was lost.
pub(super) fn unclaimed_from(image: &IndexImage, belief: Belief, by_headers: u64) -> u64 {
    let noted = image.checkpoint.map_or(0, |checkpoint| checkpoint.retained_from);
    if by_headers > evicted(image, belief).end() { noted.max(by_headers) } else { noted }
}

/// The end of the reservation: no number at or above it was given out.
pub(super) fn reservation(image: &IndexImage, belief: Belief) -> u64 {
    // The run's reservation is an upper bound even when the rest of the run record is not believed.
    // A run that was closed in order returned its reservation.
    let is_believed = belief != Belief::CleanEnd;
    let run = image.live.run.filter(|_| is_believed).unwrap_or_default();
    run.reservation.max(image.checkpoint.map_or(0, |checkpoint| checkpoint.reservation))
}

/// The clean end that the checkpoint marks, if no run continued after it. Before a run reserves a
/// number or moves the tail it clears the mark in one slot of the checkpoint, and says so in the
/// run record, by one sync. When that slot is damaged, the other one still has the mark.
pub(super) fn clean_end(image: &IndexImage) -> Option<Checkpoint> {
    let end = image.checkpoint.filter(|checkpoint| checkpoint.clean)?;
    let live = &image.live;
    let is_behind = |spot: Option<Spot>| spot.is_some_and(|spot| spot.position > end.position);
    let went_on = live.run.is_some_and(|run| run.flags & FLAG_BEGUN != 0)
        || is_behind(live.tail)
        || is_behind(live.synced);
    (!went_on).then_some(end)
}
