//! The two halves that checkpoints are written to in turn.

use crate::format::index_at;

/// One of the two halves that checkpoints are written to in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Half {
    #[default]
    A,
    B,
}

impl Half {
    pub(super) fn other(self) -> Half {
        if planted!(NewestHalfOverwritten) {
            return self;
        }
        if self == Half::A { Half::B } else { Half::A }
    }

    pub(super) fn offset(self) -> usize {
        if self == Half::A { index_at::CHECKPOINT_A } else { index_at::CHECKPOINT_B }
    }
}
