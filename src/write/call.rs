//! Room for a fragment, and fragments stored by write calls.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{FRAGMENT_HEADER_LEN, Fragment, FragmentWords, fragment_len};
use crate::segment::Segment;
use crate::state::State;
use crate::storage::{Storage, StorageFile, Stores};

/// Bytes filled with zeros at a time where every record is synced.
const SYNCED_FILL: u64 = 256 << 10;

/// Room for a fragment, in allocated space.
#[derive(Debug)]
pub(crate) struct Piece<F> {
    pub(super) segment: Arc<Segment<F>>,
    pub(super) position: u64,
    pub(super) header: Fragment,
}

/// Why a fragment goes by calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It [prefers](prefers_call) them, and so will what follows.
    Preferred,
    /// There is no window for it. What follows may have one.
    NoWindow,
}

/// What is stored besides the payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    pub(super) header: FragmentWords,
    /// How far behind the fragment's beginning the seal of the batch lies, and the seal.
    pub(super) seal: Option<(u64, u64)>,
}

impl<F: StorageFile> Piece<F> {
    pub(super) fn offset(&self) -> u64 {
        self.segment.offset(self.position)
    }

    /// The checksum state that the payload's continues from.
    pub(super) fn seeded(&self) -> u32 {
        self.header.crc_state(self.segment.seed, self.position - self.segment.header.base)
    }

    /// Why it is to go by calls although there may be a window: `None` when it need not. `whole` is
    /// the payload of its record, all fragments together.
    pub(super) fn prefers_call<S: Storage<File = F>>(
        &self,
        state: &State<S>,
        whole: u64,
    ) -> Option<Why> {
        let preferred =
            prefers_call(state, &self.segment, self.offset(), u64::from(self.header.len), whole);
        preferred.then_some(Why::Preferred)
    }

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
            // What follows goes by calls too, and needs no pages.
            Some(_) if segment.file.stores() == Stores::ByCall => segment.claim(offset + total),
            // The end of a window falls into it, not the beginning of large ones: what follows goes
            // on in a window.
            Some(step) if why == Why::NoWindow => {
                segment.fill((offset + total).next_multiple_of(step).min(segment.allocated()));
            }
            // A sync of space that was never written changes the file's metadata too, and takes
            // twice as long (16 KiB: 54 us, 37 with zeros there before): records up to 64 KiB find
            // theirs written. Longer ones would write too much twice.
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
            // The payload first: a header that validates means that all of it was stored.
            segment.file.write_at(payload, offset + FRAGMENT_HEADER_LEN).map_err(io)?;
            segment.file.write_at(&bytes[..head], offset).map_err(io)?;
        }
        Ok(())
    }
}

/// Whether a fragment of `len` bytes goes by a write call even where there is a window. What is
/// left of a long record, whose payload is `whole`, goes as the record does: space is not filled
/// for a few bytes of it which the next long one writes by a call again.
pub(super) fn prefers_call<S: Storage>(
    state: &State<S>,
    segment: &Segment<S::File>,
    offset: u64,
    len: u64,
    whole: u64,
) -> bool {
    let context = state.context();
    let fresh = match context.fill_step() {
        Some(_) => offset + fragment_len(len) > segment.filled(),
        None => segment.is_fresh(offset),
    };
    fresh && context.prefers_call(whole)
}
