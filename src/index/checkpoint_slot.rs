//! The two slots of the checkpoint, which are written in turn.

use crate::format::index_at;

/// One of the two slots of the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CheckpointSlot {
    #[default]
    A,
    B,
}

impl CheckpointSlot {
    pub(super) fn other(self) -> CheckpointSlot {
        if planted!(NewestSlotOverwritten) {
            return self;
        }
        if self == CheckpointSlot::A { CheckpointSlot::B } else { CheckpointSlot::A }
    }

    pub(super) fn offset(self) -> usize {
        if self == CheckpointSlot::A { index_at::CHECKPOINT_A } else { index_at::CHECKPOINT_B }
    }
}
