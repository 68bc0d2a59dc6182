//! Handing over a record's payload as a copy: from the view, or from the scratch.

use super::{Cursor, Record};
use crate::storage::StorageFile;

/// What the reader does with a record after its payload was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It stays at the record, which may be read again.
    Stays,
    /// It steps over the record.
    StepsOver,
}

impl<F: StorageFile> Cursor<F> {
    /// Replaces the bytes of `out` by the payload of the record. False when the payload is not
    /// what was written: then `out` is empty, and the record is to be looked for again, checked.
    #[inline(always)]
    pub(crate) fn copy_to(&mut self, record: &Record, then: Then, out: &mut Vec<u8>) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, self.view.window()) else {
            return self.copy_gathered(record, then, out);
        };
        out.clear();
        let len = record.len as usize;
        if self.verified {
            window.append_to(offset, len, out);
        } else if window.append_checked(offset, len, record.begins, out) == record.ends {
            self.verified = true;
        } else {
            out.clear();
            return false;
        }
        true
    }

    #[cold]
    fn copy_gathered(&mut self, record: &Record, then: Then, out: &mut Vec<u8>) -> bool {
        match then {
            Then::Stays => self.scratch.copy_to(record.seq, out),
            Then::StepsOver => self.scratch.exchange(record.seq, out),
        }
    }

    /// Copies the record's payload into `out`, which is as long as it. False as for
    /// [`copy_to`](Self::copy_to).
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) fn copy_into(&mut self, record: &Record, out: &mut [u8]) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, self.view.window()) else {
            return self.copy_gathered_into(record, out);
        };
        if self.verified {
            window.copy_out(offset, out);
        } else {
            self.verified = window.copy_out_checked(offset, out, record.begins) == record.ends;
        }
        self.verified
    }

    #[cfg(feature = "capi")]
    #[cold]
    fn copy_gathered_into(&mut self, record: &Record, out: &mut [u8]) -> bool {
        self.scratch.copy_into(record.seq, out)
    }

    /// The payload of a record in several pieces, on its own; `None` when it was given away before.
    pub(crate) fn take_gathered(&mut self, record: &Record) -> Option<Vec<u8>> {
        self.scratch.take(record.seq)
    }
}
