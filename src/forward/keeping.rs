//! Limits the acknowledged messages that the queue keeps in case the far side forgets them.

use crate::error::Result;
use crate::forward::local::Local;

/// How much the queue keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Keeping {
    /// Moves the kept place forward until the queue keeps no more acknowledged messages (those
    /// below `acknowledged`) than the limit.
    pub(super) fn trim(self, local: &mut dyn Local, acknowledged: u64) -> Result<()> {
        let place = local.place().min(acknowledged);
        let lowest = place.saturating_sub(self.messages);
        if local.kept() < lowest {
            local.move_kept(lowest)?;
        }
        // The kept place may skip a gap, so read it each time.
        while local.kept() < place && local.kept_bytes() > self.bytes {
            let kept = local.kept();
            local.move_kept(kept + ((place - kept) / 16).max(1))?;
        }
        Ok(())
    }
}
