//! A simulated disk: keeps what is durable apart from what is only cached, and can fail any call.
//!
//! Files live in heap memory. Stores through a mapping run the product's own code, and this module
//! does not see their bytes. So it records at certain moments what may have reached the disk early:
//! at every storage call that is not a read, when a test calls [`SimStorage::snapshot`], and
//! between two stores if a test asked for that (`moments`). Which pages were stored to the memory
//! notes by itself (`HeapMemory::take_touched`): a store makes a page dirty whatever bytes it
//! leaves.

mod disk;
mod faults;
mod inode;
mod moments;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::storage::{CacheToken, Stores};

pub(crate) use crate::tests::mutants::Mutant;
use disk::{Names, State};
use faults::Fault;
pub(crate) use faults::{Call, Gate};
use inode::{Inode, Mood, PAGE};
pub(crate) use moments::{before_store, forget_meanwhile, meanwhile, reached};
pub(crate) use storage::{BESIDE, SimFile};

/// Randomness that is the same for the same seed (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_le_bytes()
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// A handle on a simulated directory. Each clone is a descriptor of its own: the lock belongs to
/// the one that took it.
#[derive(Debug)]
pub(crate) struct SimStorage {
    disk: Arc<Mutex<State>>,
    id: u64,
}

thread_local! {
    /// Syncs of files and of the directory that this thread made.
    pub(crate) static SYNCS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

static HANDLES: AtomicU64 = AtomicU64::new(0);

impl Clone for SimStorage {
    fn clone(&self) -> SimStorage {
        SimStorage { disk: self.disk.clone(), id: HANDLES.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for SimStorage {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.holder == Some(self.id) {
            state.holder = None;
        }
    }
}

impl SimStorage {
    pub(crate) fn new(seed: u64) -> SimStorage {
        let mut rng = Rng(seed);
        SimStorage::over(State {
            names: Names::new(),
            durable_names: Names::new(),
            pending: Vec::new(),
            faults: Vec::new(),
            gate: None,
            unreadable: Vec::new(),
            counts: Default::default(),
            failed: Default::default(),
            calls: 0,
            freeze: None,
            frozen: None,
            each_frozen: None,
            capacity: None,
            most: None,
            most_taken: 0,
            file_capacity: 256 << 10,
            life: CacheToken { boot: u128::from_le_bytes(rng.bytes()) as u64, file: 0, mount: 1 },
            keeps_unwritten: false,
            changes: 0,
            seed,
            copies: 0,
            stores: Stores::ByMap,
            rng,
            now: 1_700_000_000_000,
            next_inode: 0,
            nameless: Vec::new(),
            holder: None,
        })
    }

    fn over(state: State) -> SimStorage {
        SimStorage {
            disk: Arc::new(Mutex::new(state)),
            id: HANDLES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Sets how long files created from now on can become (at first 256 KiB). The time for a crash
    /// image grows with it.
    pub(crate) fn with_file_capacity(self, bytes: usize) -> SimStorage {
        self.disk.lock().file_capacity = bytes;
        self
    }

    /// Sets the size of the disk. What does not fit is refused with ENOSPC.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.disk.lock().capacity = bytes;
    }

    /// Sets how many bytes the files in the directory may take. A call that makes it more panics.
    pub(crate) fn set_most(&self, bytes: Option<u64>) {
        let mut disk = self.disk.lock();
        disk.most = bytes;
        disk.most_taken = disk.most_taken.max(disk.named_bytes());
    }

    /// The most bytes that the files in the directory took since a limit was set.
    pub(crate) fn most_taken(&self) -> u64 {
        self.disk.lock().most_taken
    }

    /// How many descriptors of files are open.
    pub(crate) fn open_files(&self) -> usize {
        let disk = self.disk.lock();
        let named = disk::inodes([&disk.names, &disk.durable_names], &disk.pending);
        let named: BTreeMap<u64, usize> =
            named.map(|inode| (inode.id, Arc::strong_count(&inode.open) - 1)).collect();
        let nameless = disk.nameless.iter().filter(|nameless| nameless.is_in_use());
        named.values().sum::<usize>() + nameless.count()
    }

    /// What the files hold, by name.
    pub(crate) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let disk = self.disk.lock();
        disk.names.iter().map(|(name, inode)| (name.clone(), inode.content())).collect()
    }

    /// Bytes that are taken.
    pub(crate) fn used(&self) -> u64 {
        self.disk.lock().used()
    }

    /// The bytes of the files in the directory.
    pub(crate) fn named_bytes(&self) -> u64 {
        self.disk.lock().named_bytes()
    }

    /// Sets how the bytes of files opened from now on are to be changed.
    pub(crate) fn set_stores(&self, stores: Stores) {
        self.disk.lock().stores = stores;
    }

    pub(crate) fn advance_clock(&self, milliseconds: u64) {
        self.disk.lock().now += milliseconds;
    }

    /// As if somebody had set it.
    pub(crate) fn set_back_clock(&self, milliseconds: u64) {
        let mut disk = self.disk.lock();
        disk.now = disk.now.saturating_sub(milliseconds);
    }

    /// Records what may have reached the disk early.
    pub(crate) fn snapshot(&self) {
        self.disk.lock().snapshot();
    }

    /// What a power cut leaves: everything that was synced, and of the rest what `seed` chooses.
    /// This storage does not change.
    pub(crate) fn power_cut(&self, seed: u64) -> SimStorage {
        self.disk.lock().cut(seed, None)
    }

    /// What a power cut leaves when only synced bytes reached the disk.
    pub(crate) fn power_cut_losing_all(&self) -> SimStorage {
        self.disk.lock().cut(0, Some(Mood { names: 0, sizes: 0, pages: 0 }))
    }

    /// What the death of the process leaves: every byte, but those that were only cached still only
    /// are; and no lock.
    pub(crate) fn process_kill(&self) -> SimStorage {
        self.disk.lock().killed()
    }

    /// As [`process_kill`](Self::process_kill), seen from another mount namespace.
    pub(crate) fn seen_elsewhere(&self) -> SimStorage {
        let killed = self.process_kill();
        killed.disk.lock().life.mount += 1;
        killed
    }

    /// As [`process_kill`](Self::process_kill), in another directory.
    pub(crate) fn copied(&self) -> SimStorage {
        let killed = self.process_kill();
        killed.disk.lock().copies += 1;
        killed
    }

    /// A file system that leaves fresh space unwritten whose first write-back failed, as ext4.
    pub(crate) fn with_unwritten_kept(self) -> SimStorage {
        self.disk.lock().keeps_unwritten = true;
        self
    }

    /// Where the system does not say which boot this is.
    pub(crate) fn without_boot(self) -> SimStorage {
        self.disk.lock().life.boot = 0;
        self
    }

    /// As a power cut, but the file system alone failed and was mounted again in the same boot.
    pub(crate) fn mounted_again(&self, seed: u64) -> SimStorage {
        let before = self.disk.lock().life;
        let cut = self.power_cut(seed);
        cut.disk.lock().life = CacheToken { mount: before.mount + 1, ..before };
        cut
    }

    /// Whether the disk holds that page of the file as the page cache does. (Only then the cache
    /// may have released it.)
    pub(crate) fn is_on_disk(&self, name: &str, page: usize) -> bool {
        let inode = self.disk.lock().names[name].clone();
        inode.body.lock().pages[page].durable == inode.image(page)
    }

    /// Makes every read of this range of the file fail.
    pub(crate) fn make_unreadable(&self, name: &str, range: Range<usize>) {
        let mut state = self.disk.lock();
        let id = state.names[name].id;
        state.unreadable.push((id, range));
    }

    /// Takes a `process_kill` right before the `nth` call from now (the next is the first), for
    /// [`SimStorage::frozen`].
    pub(crate) fn freeze_at(&self, nth: u64) {
        self.disk.lock().freeze = Some(nth);
    }

    pub(crate) fn frozen(&self) -> Option<SimStorage> {
        self.disk.lock().frozen.take()
    }

    /// Takes a `process_kill` right before each call that `work` makes.
    pub(crate) fn freeze_at_each(&self, work: impl FnOnce()) -> Vec<SimStorage> {
        self.disk.lock().each_frozen = Some(Vec::new());
        work();
        self.disk.lock().each_frozen.take().unwrap_or_default()
    }

    /// Makes the `nth` call of a kind from now on fail (the next is the first), and with `sticky`
    /// all after it.
    pub(crate) fn fail_after(&self, call: Call, nth: u64, errno: Errno, sticky: bool) {
        self.disk.lock().faults.push(Fault {
            call,
            left: nth,
            errno: errno.raw_os_error(),
            sticky,
        });
    }

    /// The next call of this kind stops until the gate is opened, and is made then.
    pub(crate) fn stop_next(&self, call: Call) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        self.disk.lock().gate = Some((call, Arc::clone(&gate)));
        gate
    }

    /// As if the kernel wrote the dirty pages of a file by itself, and the disk refused: the pages
    /// are clean from now on, and not durable. The next sync through each open descriptor fails. A
    /// descriptor that is opened later learns nothing, as when the kernel forgot the file in
    /// between.
    pub(crate) fn fail_write_back(&self, name: &str) {
        let inode = self.disk.lock().names[name].clone();
        inode.sync(false);
        inode.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn clear_faults(&self) {
        let mut state = self.disk.lock();
        state.faults.clear();
        state.unreadable.clear();
    }

    pub(crate) fn call_count(&self, call: Call) -> u64 {
        self.disk.lock().counts[call as usize]
    }

    /// How many calls of the kind failed as they were told to.
    pub(crate) fn failed(&self, call: Call) -> u64 {
        self.disk.lock().failed[call as usize]
    }

    /// A digest of all calls so far, in their order, with the names and where was written.
    pub(crate) fn calls(&self) -> u64 {
        self.disk.lock().calls
    }

    // What follows acts on what is cached and what is durable alike, and is neither counted nor
    // made to fail.

    pub(crate) fn file_names(&self) -> Vec<String> {
        self.disk.lock().names.keys().cloned().collect()
    }

    pub(crate) fn read_file(&self, name: &str) -> Vec<u8> {
        let inode = self.disk.lock().names[name].clone();
        let len = inode.body.lock().len;
        inode.bytes(0, len)
    }

    /// Puts a new file in the place of what there was.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) {
        let mut state = self.disk.lock();
        let capacity = state.file_capacity.max(bytes.len());
        let inode = state.new_inode(capacity);
        inode.body.lock().put(&inode.memory, bytes, |_| true);
        state.forget(name);
        state.names.insert(name.to_owned(), inode.clone());
        state.durable_names.insert(name.to_owned(), inode);
    }

    pub(crate) fn remove_file(&self, name: &str) {
        self.disk.lock().forget(name);
    }

    /// Overwrites bytes wherever the disk or the cache holds a version of them.
    pub(crate) fn corrupt(&self, name: &str, offset: usize, bytes: &[u8]) {
        let inode = self.disk.lock().names[name].clone();
        let mut body = inode.body.lock();
        assert!(offset + bytes.len() <= body.len, "behind the end of {name}");
        inode.memory.write(offset, bytes);
        for (place, byte) in (offset..).zip(bytes) {
            let page = &mut body.pages[place / PAGE];
            for image in page.early.iter_mut().chain([&mut page.durable]) {
                Arc::make_mut(image)[place % PAGE] = *byte;
            }
        }
    }
}

impl SimStorage {
    fn file(&self, inode: Arc<Inode>, state: &State) -> SimFile {
        let reported = AtomicU64::new(inode.failures.load(Ordering::Relaxed));
        SimFile {
            disk: self.disk.clone(),
            _open: Arc::clone(&inode.open),
            inode,
            reported,
            stores: state.stores,
        }
    }
}
