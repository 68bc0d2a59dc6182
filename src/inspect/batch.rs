//! Checks the seal of each batch while its records are read one after the other.

use std::io;

use crate::format::{Kind, Seal};
use crate::segment::scan::{Intact, Scan};
use crate::storage::StorageFile;

/// The batch being read.
#[derive(Debug, Default)]
pub(super) struct BatchRead {
    /// Its seal so far; `None` when the reading began within the batch.
    pub(super) seal: Option<Seal>,
    /// Where a batch with a wrong seal ended.
    pub(super) broken: Option<u64>,
}

impl BatchRead {
    /// Adds a fragment of a record.
    pub(super) fn add<F: StorageFile>(
        &mut self,
        seen: &Intact,
        scan: &mut Scan<'_, F>,
    ) -> io::Result<()> {
        let fragment = &seen.fragment;
        if matches!(fragment.kind, Kind::Whole | Kind::First) && !fragment.continues {
            self.seal = fragment.more.then_some(Seal::NEW);
        }
        if let Some(seal) = &mut self.seal {
            seal.add(seen.checksum());
            let word = seal.word();
            if matches!(fragment.kind, Kind::Whole | Kind::Last) && !fragment.more {
                self.seal = None;
                if scan.seal(seen)? != Some(word) {
                    self.broken = Some(seen.position);
                }
            }
        }
        Ok(())
    }
}
