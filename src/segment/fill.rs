//! Chooses how a record reaches fresh space: by stores into pages filled with zeros before, or by
//! write calls.

use super::context::Context;
use crate::storage::{Storage, StorageFile, Stores};

/// Fresh space is filled in pieces of at most this length: half a huge page.
const FILL_MOST: u64 = 1 << 20;
/// Fresh space is filled in pieces at least this long, also where windows are shorter.
const FILL_LEAST: u64 = 64 << 10;
/// Where fresh space is not filled, a payload at least this long goes there by a write call.
pub(crate) const CALL_FROM: u64 = 64 << 10;
/// Payload length from which a write call is used where fresh space is filled in shorter pieces
/// than [`FILL_MOST`].
const CALL_FROM_FILLED: u64 = 96 << 10;
/// Payload length from which a write call is used where fresh space is filled in pieces of
/// [`FILL_MOST`].
const CALL_FROM_FILLED_MOST: u64 = 256 << 10;

impl<S: Storage> Context<'_, S> {
    /// Returns the length of the pieces in which the writer fills fresh space with zeros before it
    /// stores records there. `None` where it does not fill: with frequent small flushes, each sync
    /// would write the zeros too.
    ///
    /// A write call of that length makes the kernel allocate one folio for it; the first store into
    /// a window that is at least as long maps the whole folio. Measured on ext4 (Linux 6.18), for
    /// each 4 KiB: stores into fresh space 4.1 us, `MADV_POPULATE_WRITE` 4.0 us, with huge pages
    /// 0.73 us; zeros first 0.57 us (pieces of 2 MiB) to 0.95 us (of 128 KiB). Pieces of 1 MiB are
    /// stored to and read as fast as those of 2 MiB. A virtual machine may report its free huge
    /// pages to the host (`page_reporting`), which then has to find memory for each piece of 2 MiB
    /// anew: 4 to 8 us, where pieces of 1 MiB take 0.65. A folio longer than the window is mapped
    /// page by page, at 3 to 13 us: so a piece is not longer than a window, except that under
    /// windows of a page or two pieces of 64 KiB cost less than any other (with the mapping: 2.5 us
    /// for each 4 KiB, fresh space 4.2 us, pieces of 256 KiB 4.2 us).
    pub(crate) fn fill_step(&self) -> Option<u64> {
        let window = self.pool.geometry().window_len;
        self.fills.then(|| window.clamp(FILL_LEAST, FILL_MOST))
    }

    /// Returns whether the writer puts a payload of `len` bytes into fresh space by a write call.
    /// The kernel then clears no page that the call overwrites whole; and filling would take as
    /// many calls.
    pub(crate) fn prefers_call(&self, len: u64) -> bool {
        let least = match self.fill_step() {
            Some(FILL_MOST) => CALL_FROM_FILLED_MOST,
            Some(_) => CALL_FROM_FILLED,
            None => CALL_FROM,
        };
        len >= least
    }

    /// Fills the beginning of a new file, whose first record has a payload of `whole` bytes.
    /// Returns the offset up to which it is filled. Skips the header's page: the header is written
    /// anew in every life, and a write call into a long folio looks at all of it (100 us).
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
