//! What the figures in the index say of a run from its beginning on.

use crate::format::{Figures, padded};
use crate::options::{OnFull, Options};
use crate::state::nanos;

/// What the figures in the index say as long as the run lasts.
pub(super) fn figures_of_run(options: &Options, opened_at: u64) -> Figures {
    let (on_full, full_wait) = match options.on_full {
        OnFull::Reject => (1, 0),
        OnFull::Wait(limit) => (2, limit.map_or(u64::MAX, nanos)),
        OnFull::DropOldest => (3, 0),
    };
    Figures {
        opened_at,
        arena_size: options.arena_size,
        max_bytes: options.max_bytes.unwrap_or(0),
        min_free_bytes: options.min_free_bytes,
        max_mapped_arenas: options.max_mapped_arenas.unwrap_or(0).into(),
        flush_every_ops: options.flush_every_ops.unwrap_or(0),
        flush_every: options.flush_every.map_or(0, nanos),
        max_age: options.max_age.map_or(0, nanos),
        on_full,
        full_wait,
        library: padded(env!("CARGO_PKG_VERSION")),
        ..Figures::default()
    }
}
