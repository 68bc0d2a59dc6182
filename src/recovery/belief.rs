//! What of the index is believed, and what it says where it is believed.

use crate::format::Spot;
use crate::index::image::IndexImage;
use crate::index::losses::GivenUp;
use crate::index::run::Run;
use crate::recovery::rows::Rows;
use crate::recovery::tail::Stated;
use crate::recovery::walk::Walked;
use crate::segment::Row;
use crate::storage::CacheToken;

/// What of the index is believed, beyond what a power cut leaves true of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belief {
    /// No cached byte can have been lost: the live part is exact.
    Cache,
    /// The queue was closed in order and nothing was done to it since.
    CleanEnd,
    /// The boot and the directory are the same, the mount is another one or not known. In a
    /// container or another mount namespace no byte was lost; if the file system failed and was
    /// mounted anew, any that was not synced.
    Mount,
    /// What is on the disk.
    Disk,
}

impl Belief {
    /// What the index deserves, by what it says of itself and by what the storage says of this boot
    /// and mount.
    pub(super) fn in_index(image: &IndexImage, token: &CacheToken) -> Belief {
        let is_same_place = image.live.run.is_some() && image.live.token.place == token.place;
        match image.checkpoint {
            _ if is_same_place && image.live.token.is(token) => Belief::Cache,
            Some(checkpoint) if checkpoint.clean => Belief::CleanEnd,
            _ if is_same_place => Belief::Mount,
            _ => Belief::Disk,
        }
    }

    /// The walk looks for more behind what does not validate.
    pub(super) fn searches(self) -> bool {
        matches!(self, Belief::Mount | Belief::Disk)
    }

    /// No power was cut, as far as anything shows: appends go on where the last one ended.
    pub(super) fn is_trusted(self) -> bool {
        self != Belief::Disk
    }

    /// What the live part says of the run, where it is believed.
    pub(super) fn of_cache(self, image: &IndexImage) -> Option<Run> {
        image.live.run.filter(|_| matches!(self, Belief::Cache | Belief::Mount))
    }

    /// A file bears a life that the index does not know of: an older copy of the index was put
    /// back, and nothing of it is exact. The next life is stored before a header bears the one
    /// before it, and the mark of a clean end is taken back before a segment is begun (a spare may
    /// be made without that).
    pub(super) fn is_outdated(self, image: &IndexImage, rows: &Rows) -> bool {
        let made_since =
            |rows: &[Row], next_life: u64| rows.iter().any(|row| row.header.life >= next_life);
        match self {
            Belief::Cache | Belief::Mount => image.live.run.is_some_and(|run| {
                made_since(&rows.live, run.next_life) || made_since(&rows.spares, run.next_life)
            }),
            Belief::CleanEnd => image
                .checkpoint
                .is_some_and(|checkpoint| made_since(&rows.live, checkpoint.next_life)),
            Belief::Disk => false,
        }
    }

    /// Whether what the walk found is what the index says is there. With another mount also whether
    /// nothing shows that bytes were lost with the one before: a kill leaves no hole, and at most
    /// one unit behind the tail that was published.
    pub(super) fn is_met(
        self,
        image: &IndexImage,
        walked: &Walked,
        reached: Spot,
        stated: &Stated,
    ) -> bool {
        let all_there = reached.seq >= stated.seq && reached.position >= stated.position;
        match self {
            Belief::Disk => true,
            Belief::Cache | Belief::CleanEnd => all_there,
            Belief::Mount => {
                all_there
                    && image.live.tail.is_some()
                    && walked.holes.is_empty()
                    && walked.units_behind <= 1
            }
        }
    }
}

/// What was given up: the live part says it before the checkpoint does.
pub(super) fn given_up(image: &IndexImage, belief: Belief) -> GivenUp {
    let noted = image.checkpoint.as_ref().map(GivenUp::of).unwrap_or_default();
    let live = belief.of_cache(image).map(|run| run.given_up);
    live.filter(|live| live.end() >= noted.end()).unwrap_or(noted)
}

/// From that number on messages are held: those before were given up, or passed by every consumer.
/// Of consumers that were removed the checkpoint says how far they came; where the index was lost
/// since, the segments do, which is `held`.
pub(super) fn held_from(image: &IndexImage, belief: Belief, held: u64) -> u64 {
    let lowest = image.consumers.iter().map(|consumer| consumer.place.seq).min();
    let passed = lowest
        .unwrap_or_else(|| image.checkpoint.map_or(0, |checkpoint| checkpoint.held).max(held));
    given_up(image, belief).end().max(passed)
}
