//! The newest checkpoint of a run.

use crate::format::Checkpoint;
use crate::index::checkpoint_slot::CheckpointSlot;
use crate::index::image::IndexImage;

/// The newest checkpoint, and its slot.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pub(super) newest: Checkpoint,
    pub(super) newest_in: CheckpointSlot,
    /// The highest number in either slot.
    pub(super) number: u64,
    /// The newest slot is on the disk, so the writer may overwrite the other slot (rule R1).
    pub(super) newest_is_durable: bool,
}

impl Checkpoints {
    pub(super) fn of(image: &IndexImage) -> Checkpoints {
        Checkpoints {
            newest: image.checkpoint.unwrap_or_default(),
            newest_in: image.newest_in,
            number: image.highest_number,
            newest_is_durable: false,
        }
    }
}
