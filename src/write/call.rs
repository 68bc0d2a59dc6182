//! A fragment at the tail, stored by write calls.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{FRAGMENT_HEADER_LEN, Fragment, FragmentWords, fragment_len};
use crate::segment::Segment;
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

/// How many bytes are filled with zeros at a time where every record is synced.
const SYNCED_FILL: u64 = 256 << 10;

/// A fragment to store: its header, and the space allocated for it.
#[derive(Debug)]
pub(crate) struct Piece<F> {
    pub(super) segment: Arc<Segment<F>>,
    pub(super) position: u64,
    pub(super) header: Fragment,
}

/// Why a fragment is stored by write calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Calls are [cheaper](prefers_call), and probably for the next fragment too.
    Preferred,
    /// There is no window for it. The next fragment may get one.
    NoWindow,
}

/// The parts of a fragment besides its payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    pub(super) header: FragmentWords,
    /// The seal of the batch, and its offset from the fragment's beginning.
    pub(super) seal: Option<(u64, u64)>,
}

impl<F: StorageFile> Piece<F> {
    pub(super) fn offset(&self) -> u64 {
        self.segment.offset(self.position)
    }

    /// The checksum of the header, without the payload.
    pub(super) fn seeded(&self) -> u32 {
        self.header.header_sum(self.segment.seed, self.position - self.segment.header.base)
    }

    /// [`Why::Preferred`] if a write call is cheaper than a store into a window. `whole` is the
    /// payload length of its record, all fragments together.
    pub(super) fn prefers_call<S: Storage<File = F>>(
        &self,
        state: &State<S>,
        whole: u64,
    ) -> Option<Why> {
        let preferred =
            prefers_call(state, &self.segment, self.offset(), u64::from(self.header.len), whole);
        preferred.then_some(Why::Preferred)
    }

    /// Stores the fragment by write calls, the header last.
    pub(super) fn store_by_call<S: Storage<File = F>>(
        &self,
        state: &State<S>,
        marks: Marks,
        payload: &[u8],
        why: Why,
    ) -> Result<()> {
        let Piece { segment, header, .. } = self;
        let io = |error| Error::io("write", state.storage.path().join(segment.name()), error);
        let (offset, total) = (self.offset(), header.total_len());
        match state.context().fill_step() {
            // The next fragments are written by calls, too, and need no pages in memory.
            Some(_) if segment.file.stores() == Stores::ByCall => segment.claim(offset + total),
            // The fragment lies across the end of a window. The next ones are stored through a
            // window again.
            Some(step) if why == Why::NoWindow => {
                segment.fill((offset + total).next_multiple_of(step).min(segment.allocated()));
            }
            // Each record is synced, and a sync of space that was never written changes the file's
            // metadata too (16 KiB: 54 us; 37 us where zeros were written before). So space is
            // filled for records up to 64 KiB. For longer ones too many bytes would be written
            // twice.
            None if state.durable_only && total <= SYNCED_FILL / 4 => {
                segment
                    .fill((offset + total).next_multiple_of(SYNCED_FILL).min(segment.allocated()));
            }
            _ => segment.claim(offset + total),
        }
        let mut bytes = [0; 4096];
        let head = FRAGMENT_HEADER_LEN as usize;
        bytes[..head].copy_from_slice(&marks.header.bytes());
        if let Some((at, word)) = marks.seal {
            segment.file.write_at(&word.to_le_bytes(), offset + at).map_err(io)?;
        }
        if payload.len() <= bytes.len() - head {
            bytes[head..head + payload.len()].copy_from_slice(payload);
            segment.file.write_at(&bytes[..head + payload.len()], offset).map_err(io)?;
        } else {
            if planted!(HeaderBeforePayload) {
                segment.file.write_at(&bytes[..head], offset).map_err(io)?;
            }
            // The payload first: a valid header proves that the whole payload was stored.
            segment.file.write_at(payload, offset + FRAGMENT_HEADER_LEN).map_err(io)?;
            segment.file.write_at(&bytes[..head], offset).map_err(io)?;
        }
        Ok(())
    }
}

/// Returns whether to store a fragment with a payload of `len` bytes by a write call even where
/// there is a window. The payload length `whole` of its record decides, not `len`: otherwise the
/// short rest of a long record would fill space with zeros that the next long record overwrites by
/// a call. For the same reason the rest goes by a call where it fits the header's page, the only
/// one of the segment in memory.
pub(super) fn prefers_call<S: Storage>(
    state: &State<S>,
    segment: &Segment<S::File>,
    offset: u64,
    len: u64,
    whole: u64,
) -> bool {
    let context = state.context();
    let fresh = match context.fill_step() {
        Some(_) => {
            let filled = segment.filled();
            offset + fragment_len(len) > filled || filled <= crate::memory::page_size()
        }
        None => segment.is_fresh(offset),
    };
    fresh && context.prefers_call(whole)
}
