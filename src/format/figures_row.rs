//! The holder's counters, as the index stores them for processes that inspect the queue. No
//! decision of an opening depends on them.

use byteorder::{ByteOrder, LittleEndian};

use super::{index_at, live_at};
use crate::memory::checksum::checksum;

/// Offsets in a copy of the figures, in bytes.
pub(crate) mod figures_at {
    pub(crate) const FIGURES_NONCE: usize = 0;
    pub(crate) const FIGURES_NUMBER: usize = 8;
    pub(crate) const STORED_AT: usize = 16;
    pub(crate) const OPENED_AT: usize = 24;
    pub(crate) const ENQUEUED: usize = 104;
    pub(crate) const TAKEN: usize = 112;
    pub(crate) const FLUSHES: usize = 128;
    pub(crate) const LONGEST_FLUSH: usize = 144;
    pub(crate) const LOST: usize = 160;
    pub(crate) const REFUSED: usize = 200;
    pub(crate) const ERROR_AT: usize = 224;
    pub(crate) const ERROR_NUMBER: usize = 232;
    pub(crate) const LIBRARY: usize = 240;
    pub(crate) const ERROR_TEXT: usize = 256;
    pub(crate) const DROPPED: usize = 320;
    pub(crate) const FIGURES_SUM: usize = 508;
}
/// Length of one of the two copies in bytes: a sector.
pub(crate) const FIGURES_LEN: usize = 512;

/// Defines [`Figures`] from its eight-byte words and their offsets.
macro_rules! figures {
    ($($(#[$doc:meta])* $field:ident: $at:ident,)+) => {
        /// What the holder counts since it opened the queue, as of the last time that it stored
        /// it. Times of day are milliseconds since 1970, durations nanoseconds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct Figures {
            $($(#[$doc])* pub(crate) $field: u64,)+
            /// The version of the library, padded with zeros.
            pub(crate) library: [u8; 16],
            /// The beginning of the last failed flush's error, padded with zeros.
            pub(crate) error_text: [u8; 64],
        }

        impl Default for Figures {
            fn default() -> Figures {
                Figures { $($field: 0,)+ library: [0; 16], error_text: [0; 64] }
            }
        }

        impl Figures {
            pub(crate) fn encode(&self, queue_id: &[u8; 16]) -> [u8; FIGURES_LEN] {
                let mut bytes = [0; FIGURES_LEN];
                $(LittleEndian::write_u64(&mut bytes[figures_at::$at..], self.$field);)+
                bytes[figures_at::LIBRARY..][..16].copy_from_slice(&self.library);
                bytes[figures_at::ERROR_TEXT..][..64].copy_from_slice(&self.error_text);
                let sum = sum(&bytes, queue_id);
                LittleEndian::write_u32(&mut bytes[figures_at::FIGURES_SUM..], sum);
                bytes
            }

            pub(crate) fn decode_copy(bytes: &[u8], queue_id: &[u8; 16]) -> Option<Figures> {
                let bytes = bytes.get(..FIGURES_LEN)?;
                let holds = LittleEndian::read_u32(&bytes[figures_at::FIGURES_SUM..]);
                if holds != sum(bytes, queue_id) {
                    return None;
                }
                let mut figures = Figures::default();
                $(figures.$field = LittleEndian::read_u64(&bytes[figures_at::$at..]);)+
                figures.library.copy_from_slice(&bytes[figures_at::LIBRARY..][..16]);
                figures.error_text.copy_from_slice(&bytes[figures_at::ERROR_TEXT..][..64]);
                Some(figures)
            }
        }
    };
}

figures! {
    /// The random number of the opening that wrote this copy.
    nonce: FIGURES_NONCE,
    /// The number of the store: of two valid copies of one opening the higher one counts.
    number: FIGURES_NUMBER,
    stored_at: STORED_AT,
    opened_at: OPENED_AT,
    enqueued: ENQUEUED,
    /// Taken or skipped by all consumers.
    taken: TAKEN,
    flushes: FLUSHES,
    longest_flush: LONGEST_FLUSH,
    /// Messages in the gaps reported that were damaged, or that a power cut took.
    lost: LOST,
    /// Calls that were refused because the queue or the disk was full.
    refused: REFUSED,
    /// When the last failed flush failed; 0: none has.
    error_at: ERROR_AT,
    /// The system's number of that error; 0: the error has no number.
    error_number: ERROR_NUMBER,
    /// Messages dropped to make room or because they were too old, counted when it happened.
    dropped: DROPPED,
}

impl Figures {
    /// The figures that the queue's holder, or its last one, stored: the newer valid copy in the
    /// bytes of the `index` file. `None` when neither belongs to the opening that the live part
    /// names: the counts of an earlier opening are outdated.
    pub(crate) fn decode(index: &[u8], queue_id: &[u8; 16]) -> Option<Figures> {
        let nonce = index.get(index_at::LIVE + live_at::LIVE_NONCE..)?.get(..8)?;
        let nonce = LittleEndian::read_u64(nonce);
        let copies = [0, 1].into_iter().filter_map(|copy| {
            let bytes = index.get(index_at::FIGURES + copy * FIGURES_LEN..)?;
            Figures::decode_copy(bytes, queue_id)
        });
        let is_own = |copy: &Figures| copy.nonce == nonce;
        copies.filter(is_own).max_by_key(|copy| copy.number)
    }

    /// Notes a flush that failed at the time `at`.
    pub(crate) fn set_error(&mut self, at: u64, number: i32, text: &str) {
        (self.error_at, self.error_number) = (at, u64::from(number.unsigned_abs()));
        self.error_text = padded(text);
    }
}

/// The beginning of `text` that fits, in whole characters, padded with zeros.
pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = ends.take_while(|end| *end <= N).last().unwrap_or(0);
    let mut bytes = [0; N];
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

fn sum(bytes: &[u8], queue_id: &[u8; 16]) -> u32 {
    checksum(checksum(0, queue_id), &bytes[..figures_at::FIGURES_SUM])
}
