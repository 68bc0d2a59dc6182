//! What the queue knows of its directory: file names in use, the next unused life, changes not yet
//! synced, bytes of other files.

use super::files::Salts;

/// The set of slots whose file names are in use.
#[derive(Debug, Default)]
pub(super) struct Slots(pub(super) Vec<bool>);

impl Slots {
    pub(super) fn insert(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot >= self.0.len() {
            self.0.resize(slot + 1, false);
        }
        self.0[slot] = true;
        holds!(self.lowest_free() as usize != slot, "slot {slot}, which is taken, is not free");
    }

    pub(super) fn remove(&mut self, slot: &u32) {
        if let Some(taken) = self.0.get_mut(*slot as usize) {
            *taken = false;
        }
    }

    pub(super) fn lowest_free(&self) -> u32 {
        self.0.iter().position(|taken| !taken).unwrap_or(self.0.len()) as u32
    }
}

impl FromIterator<u32> for Slots {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> Self {
        let mut set = Slots::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

#[derive(Debug)]
pub(crate) struct Names {
    /// Slots whose file names are in use.
    pub(super) slots: Slots,
    pub(super) next_life: u64,
    pub(super) salts: Salts,
    /// Bytes of disk that files other than segments and the index take.
    pub(super) other_bytes: u64,
    /// How many files this run created or renamed in the directory. Nothing rests on the removal of
    /// one: what is left of it lies before what the index retains.
    pub(super) directory_changes: u64,
    /// Whether every segment has its row in the index.
    pub(super) rows_complete: bool,
    /// A file was looked for under other names: two rows may have one.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) are_doubtful: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_given_and_one_that_is_free_again_before_higher_ones() {
        let mut slots: Slots = [0, 1, 3].into_iter().collect();
        assert_eq!(slots.lowest_free(), 2);
        slots.insert(2);
        assert_eq!(slots.lowest_free(), 4);
        slots.remove(&1);
        slots.remove(&9);
        assert_eq!(slots.lowest_free(), 1);
    }
}
