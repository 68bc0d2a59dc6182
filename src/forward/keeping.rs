//! The acknowledged messages that are held back for a far side that forgets.

use crate::error::Result;
use crate::forward::local::Local;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Keeping {
    /// Moves the kept place forward until no more is kept than may be, of what the far side has
    /// acknowledged: everything below `acknowledged`. (The place may be higher: behind a gap.)
    pub(super) fn trim(self, local: &mut impl Local, acknowledged: u64) -> Result<()> {
        let place = local.place().min(acknowledged);
        let lowest = place.saturating_sub(self.messages);
        if local.kept() < lowest {
            local.move_kept(lowest)?;
        }
        // The kept place may move on past a gap: it is asked for each time.
        while local.kept() < place && local.kept_bytes() > self.bytes {
            let kept = local.kept();
            local.move_kept(kept + ((place - kept) / 16).max(1))?;
        }
        Ok(())
    }
}
