//! Copies a record's payload to the caller, from the view or from the scratch.

use super::{Check, Cursor, Record};
use crate::commit::Core;
use crate::format::{Origin, Spot};
use crate::message_batch::MessageBatch;
use crate::storage::{Storage, StorageFile};

/// What a read does after it has copied a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Stays at the record, which may be read again.
    Stays,
    /// Steps over the record.
    StepsOver,
}

impl<F: StorageFile> Cursor<F> {
    /// Replaces the content of `out` by the record's payload. Returns false when the payload is
    /// damaged: `out` is empty then, and the caller finds the record again and verifies it.
    #[inline(always)]
    pub(crate) fn copy_to(&mut self, record: Record, then: Then, out: &mut Vec<u8>) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, self.view.window()) else {
            return self.copy_gathered(record.seq, then, out);
        };
        let (len, is_verified) = (record.len as usize, self.verified);
        out.clear();
        if is_verified {
            window.append_to(offset, len, out);
        } else if record.has(window.append_summed(offset, len, out)) {
            // No later read needs to know it of a record that is stepped over.
            if then == Then::Stays {
                self.verified = true;
            }
        } else {
            out.clear();
            return false;
        }
        true
    }

    /// Appends the record's payload to `out`. Returns false, and leaves `out` as it was, when the
    /// payload is damaged: the caller finds the record again and verifies it.
    #[inline(always)]
    pub(crate) fn append_to(&mut self, record: Record, out: &mut Vec<u8>) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, self.view.window()) else {
            return self.append_gathered(record.seq, out);
        };
        let (before, len) = (out.len(), record.len as usize);
        let is_intact = record.has(window.append_summed(offset, len, out));
        if !is_intact {
            out.truncate(before);
        }
        is_intact
    }

    /// Appends up to `most` records to `batch`, as long as they lie in the view one behind the
    /// other and are intact, and steps over them. Returns how many. (Not inline: by itself its loop
    /// keeps more in registers, 16 instructions less for each message.)
    #[inline(never)]
    pub(crate) fn append_run<S: Storage<File = F>>(
        &mut self,
        core: &Core<S>,
        most: usize,
        batch: &mut MessageBatch,
    ) -> usize {
        self.look_for_more(core);
        let (None, Some(segment), Some(window)) = (self.found, &self.segment, self.view.window())
        else {
            return 0;
        };
        let (mut spot, limit) = (self.spot, self.limit);
        let mut count = 0;
        while count < most
            && let Some(record) = self.view.whole_record(segment, spot, limit, Check::Later)
            && let Some(offset) = record.in_window
        {
            let (out, len) = (batch.bytes_mut(), record.len as usize);
            let before = out.len();
            if !record.has(window.append_summed(offset, len, out)) {
                out.truncate(before);
                break;
            }
            batch.note(spot.seq);
            spot = Spot { position: record.end, seq: spot.seq + 1 };
            count += 1;
        }
        self.spot = spot;
        count
    }

    #[cold]
    fn copy_gathered(&mut self, seq: u64, then: Then, out: &mut Vec<u8>) -> bool {
        if then == Then::StepsOver {
            return self.scratch.exchange(seq, out);
        }
        out.clear();
        self.scratch.append_to(seq, out)
    }

    #[cold]
    fn append_gathered(&mut self, seq: u64, out: &mut Vec<u8>) -> bool {
        self.scratch.append_to(seq, out)
    }

    /// Copies the record's payload into `out`, which has its length. Returns false when the payload
    /// is damaged: the caller finds the record again and verifies it.
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) fn copy_into(&mut self, record: Record, out: &mut [u8]) -> bool {
        let (Some(offset), Some(window)) = (record.in_window, self.view.window()) else {
            return self.copy_gathered_into(record.seq, out);
        };
        if self.verified {
            window.copy_out(offset, out);
        } else {
            self.verified = record.has(window.copy_out_summed(offset, out));
        }
        self.verified
    }

    #[cfg(feature = "capi")]
    #[cold]
    fn copy_gathered_into(&mut self, seq: u64, out: &mut [u8]) -> bool {
        self.scratch.copy_into(seq, out)
    }

    /// Takes the payload that was gathered for the record, without a copy, and its origin. `None`
    /// when a read has taken it before.
    pub(crate) fn take_gathered(&mut self, seq: u64) -> Option<(Vec<u8>, Option<Origin>)> {
        self.scratch.take(seq)
    }
}
