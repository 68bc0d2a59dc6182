//! The simulated disk: the names of its files, its space, and what a power cut leaves of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use super::faults::{Call, Fault, Gate};
use super::inode::{Inode, Mood};
use super::{Rng, SimStorage};
use crate::format::RENEWED_NAME;
use crate::memory::HeapMemory;
use crate::storage::{CacheToken, Stores};

pub(super) type Names = BTreeMap<String, Arc<Inode>>;

/// A file without a name: its space is taken while it is open or mapped.
#[derive(Debug)]
pub(super) struct Nameless {
    pub(super) inode: Weak<Inode>,
    pub(super) open: Weak<()>,
    pub(super) memory: Weak<HeapMemory>,
    pub(super) bytes: u64,
}

impl Nameless {
    pub(super) fn new(inode: &Arc<Inode>) -> Nameless {
        Nameless {
            open: Arc::downgrade(&inode.open),
            memory: Arc::downgrade(&inode.memory),
            bytes: inode.allocated_bytes(),
            inode: Arc::downgrade(inode),
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        let own = usize::from(self.inode.strong_count() > 0);
        self.open.strong_count() > own || self.memory.strong_count() > own
    }
}

/// A change of names that is not yet durable: a creation without `from`, a removal without `to`.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) inode: Arc<Inode>,
}

impl Pending {
    /// Whatever else was kept or lost, a file never shows under two names.
    pub(super) fn apply(&self, names: &mut Names) {
        match (&self.from, &self.to) {
            (_, Some(to)) => {
                names.retain(|_, inode| inode.id != self.inode.id);
                names.insert(to.clone(), self.inode.clone());
            }
            (Some(from), None)
                if names.get(from).is_some_and(|inode| inode.id == self.inode.id) =>
            {
                names.remove(from);
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) names: Names,
    pub(super) durable_names: Names,
    pub(super) pending: Vec<Pending>,
    pub(super) faults: Vec<Fault>,
    pub(super) gate: Option<(Call, Arc<Gate>)>,
    /// By inode.
    pub(super) unreadable: Vec<(u64, Range<usize>)>,
    pub(super) counts: [u64; Call::Measure as usize + 1],
    /// How many calls failed as they were told to.
    pub(super) failed: [u64; Call::Measure as usize + 1],
    /// A digest of all calls, in their order.
    pub(super) calls: u64,
    pub(super) freeze: Option<u64>,
    pub(super) frozen: Option<SimStorage>,
    /// What each call from some moment on found.
    pub(super) each_frozen: Option<Vec<SimStorage>>,
    pub(super) capacity: Option<u64>,
    /// Bytes that the files in the directory may take.
    pub(super) most: Option<u64>,
    pub(super) most_taken: u64,
    pub(super) file_capacity: usize,
    pub(super) stores: Stores,
    pub(super) rng: Rng,
    pub(super) life: CacheToken,
    pub(super) keeps_unwritten: bool,
    /// How many changes of files there were: the clock of their times.
    pub(super) changes: u64,
    pub(super) seed: u64,
    /// How often the disk was copied.
    pub(super) copies: u64,
    pub(super) now: u64,
    pub(super) next_inode: u64,
    pub(super) nameless: Vec<Nameless>,
    pub(super) holder: Option<u64>,
}

impl State {
    pub(super) fn used(&self) -> u64 {
        let named = self.named_bytes();
        let nameless = self.nameless.iter().filter(|nameless| nameless.is_in_use());
        named + nameless.map(|nameless| nameless.bytes).sum::<u64>()
    }

    pub(super) fn named_bytes(&self) -> u64 {
        // What is renewed is there twice for a moment.
        let names = self.names.iter().filter(|(name, _)| *name != RENEWED_NAME);
        names.map(|(_, inode)| inode.allocated_bytes()).sum()
    }

    pub(super) fn note_call(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.calls, what).hash(&mut hasher);
        self.calls = hasher.finish();
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity.unwrap_or(1 << 40).saturating_sub(self.used())
    }

    /// The file changes now.
    pub(super) fn note_change(&mut self, inode: &Inode) {
        self.changes += 1;
        inode.changed.store(self.changes, Ordering::Relaxed);
    }

    pub(super) fn find(&self, name: &str) -> io::Result<Arc<Inode>> {
        Ok(self.names.get(name).cloned().ok_or(Errno::NOENT)?)
    }

    pub(super) fn change(&mut self, from: Option<&str>, to: Option<&str>, inode: Arc<Inode>) {
        let change = Pending { from: from.map(str::to_owned), to: to.map(str::to_owned), inode };
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    pub(super) fn new_inode(&mut self, capacity: usize) -> Arc<Inode> {
        self.next_inode += 1;
        let inode = Inode::new(self.next_inode, capacity);
        inode.body.lock().keeps_unwritten = self.keeps_unwritten;
        Arc::new(inode)
    }

    /// Takes a name away as if it had never been, whatever is pending.
    pub(super) fn forget(&mut self, name: &str) {
        if let Some(inode) = self.names.remove(name) {
            self.pending.retain(|change| change.inode.id != inode.id);
            self.durable_names.retain(|_, durable| durable.id != inode.id);
        }
        self.durable_names.remove(name);
    }

    /// The same disk holding copies of its files, with nobody there.
    pub(super) fn with(
        &self,
        names: [&Names; 2],
        pending: &[Pending],
        copy: impl FnMut(&Inode) -> Inode,
    ) -> State {
        let mut copy = copy;
        let copies: BTreeMap<_, _> =
            inodes(names, pending).map(|inode| (inode.id, inode)).collect();
        let copies: BTreeMap<_, _> =
            copies.into_iter().map(|(id, inode)| (id, Arc::new(copy(&inode)))).collect();
        let copied = |names: &Names| {
            names.iter().map(|(name, inode)| (name.clone(), copies[&inode.id].clone())).collect()
        };
        let copied_change = |change: &Pending| Pending {
            inode: copies[&change.inode.id].clone(),
            ..change.clone()
        };
        State {
            names: copied(names[0]),
            durable_names: copied(names[1]),
            pending: pending.iter().map(copied_change).collect(),
            faults: Vec::new(),
            gate: None,
            unreadable: self.unreadable.clone(),
            counts: Default::default(),
            failed: Default::default(),
            calls: 0,
            freeze: None,
            frozen: None,
            each_frozen: None,
            most: None,
            most_taken: 0,
            rng: self.rng.clone(),
            nameless: Vec::new(),
            holder: None,
            ..*self
        }
    }

    pub(super) fn killed(&self) -> SimStorage {
        self.snapshot();
        SimStorage::over(self.with([&self.names, &self.durable_names], &self.pending, Inode::copy))
    }

    pub(super) fn cut(&self, seed: u64, mood: Option<Mood>) -> SimStorage {
        self.snapshot();
        let mut rng = Rng(self.rng.0 ^ Rng(seed).next());
        let mut chance = || [0, 50, 50, 100][rng.below(4) as usize];
        let mood =
            mood.unwrap_or_else(|| Mood { names: chance(), sizes: chance(), pages: chance() });
        let mut names = self.durable_names.clone();
        for change in self.pending.iter().filter(|_| rng.percent(mood.names)) {
            change.apply(&mut names);
        }
        let mut state = self.with([&names, &names], &[], |inode| inode.cut(&mut rng, &mood));
        state.life =
            CacheToken { boot: u128::from_le_bytes(rng.bytes()) as u64, file: 0, mount: 1 };
        state.rng = rng;
        SimStorage::over(state)
    }

    pub(super) fn snapshot(&self) {
        self.names.values().for_each(|inode| inode.snapshot());
        // Most names are those on the disk.
        let is_named = |(name, inode): &(&String, &Arc<Inode>)| {
            self.names.get(*name).is_some_and(|named| Arc::ptr_eq(named, inode))
        };
        let others = self.durable_names.iter().filter(|named| !is_named(named));
        others.for_each(|(_, inode)| inode.snapshot());
        self.pending.iter().for_each(|change| change.inode.snapshot());
    }
}

/// Every file that is, or that a power cut may bring back; some more than once.
pub(super) fn inodes<'a>(
    names: [&'a Names; 2],
    pending: &'a [Pending],
) -> impl Iterator<Item = Arc<Inode>> + 'a {
    let named = names.into_iter().flat_map(|names| names.values());
    named.chain(pending.iter().map(|change| &change.inode)).cloned()
}
