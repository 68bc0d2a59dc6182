//! How bytes get into fresh space: by stores into pages that were filled with zeros before, or by
//! write calls.

use super::Context;
use crate::storage::{Storage, StorageFile, Stores};

/// What one huge page covers where there are any, and the longest folio.
const HUGE_PAGE: u64 = 2 << 20;
/// Windows shorter than that are faulted in by being used.
const FILL_FROM: u64 = 64 << 10;
/// A payload at least that long goes into fresh space by a call: where nothing is filled, ...
pub(crate) const CALL_FROM: u64 = 64 << 10;
/// ... where it would be filled in short pieces, ...
const CALL_FROM_FILLED: u64 = 96 << 10;
/// ... and in long ones.
const CALL_FROM_HUGE: u64 = 256 << 10;
impl<S: Storage> Context<'_, S> {
    /// Fresh space is filled with zeros in pieces of so many bytes before records are stored in it;
    /// `None` when it is not: where a few bytes are flushed often, a sync would write the zeros
    /// too.
    ///
    /// A write call of that length has the kernel allocate one folio for it, and the first store
    /// into a window at least as long maps the whole folio. Measured on ext4 (Linux 6.18), for each
    /// 4 KiB: stores into fresh space 4.1 us, `MADV_POPULATE_WRITE` 4.0, with huge pages 0.73;
    /// zeros first 0.57 (pieces of 2 MiB) to 0.95 (of 128 KiB). A folio longer than the window is
    /// mapped page by page, at 3 to 13 us: so a piece is no longer than a window.
    pub(crate) fn fill_step(&self) -> Option<u64> {
        let window = self.pool.geometry().window_len;
        (self.fills && window >= FILL_FROM).then(|| window.min(HUGE_PAGE))
    }

    /// Whether a payload of `len` bytes goes into fresh space by a write call: the kernel then
    /// clears nothing that is overwritten whole, and is called no more often than for each piece.
    pub(crate) fn prefers_call(&self, len: u64) -> bool {
        let least = match self.fill_step() {
            Some(HUGE_PAGE) => CALL_FROM_HUGE,
            Some(_) => CALL_FROM_FILLED,
            None => CALL_FROM,
        };
        len >= least
    }

    /// Fills the beginning of a new file. Returns up to where. The page of the header is left out:
    /// a write call into a long folio looks at all of it (100 us), and the header is written anew
    /// in every life.
    pub(super) fn begin_filled(&self, file: &S::File, allocated: u64, whole: u64) -> u64 {
        let Some(step) = self.fill_step() else {
            return 0;
        };
        let (page, end) = (crate::memory::page_size(), step.min(allocated));
        if self.prefers_call(whole)
            || file.stores() == Stores::ByCall
            || end <= page
            || file.write_zeros_at(page, end - page).is_err()
        {
            return 0;
        }
        end
    }
}
