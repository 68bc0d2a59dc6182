//! A simulated disk: keeps what is durable apart from what is only cached, and can fail any call.
//!
//! Files live in heap memory, so stores through a mapping go through the same code as ever, and unseen by this module.
//! What of them may reach the disk early is therefore recorded at moments: at every storage call but the reading ones,
//! whenever a test calls [`SimStorage::snapshot`], and between two stores where it asked for that (`moments`). For the same reason a store that leaves the same bytes does not
//! make a page dirty; only `write_at` does that always.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::error::SyncFailed;
use crate::memory::{HeapMemory, Window};
use crate::storage::{Life, Listed, Storage, StorageFile, Stores};

mod moments;

pub(crate) use moments::{Mutant, before_store, meanwhile, reached};

const PAGE: usize = 4096;
/// What a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Versions of a page that may have reached the disk early; the oldest are forgotten.
const MAX_EARLY: usize = 8;

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

/// The kinds of calls that are counted and can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Open,
    Rename,
    Remove,
    SyncDirectory,
    SyncFile,
    Allocate,
    SetLen,
    Map,
    Read,
    Write,
    List,
}

#[derive(Debug)]
struct Fault {
    call: Call,
    /// Calls until it strikes, that one included.
    left: u64,
    errno: i32,
    sticky: bool,
}

type Image = Arc<[u8; PAGE]>;

#[derive(Debug, Clone)]
struct Page {
    durable: Image,
    /// What the disk may hold instead, oldest first; while the page is dirty the last one is what was last seen of it.
    early: Vec<Image>,
    dirty: bool,
    allocated: bool,
    durable_allocated: bool,
}

type Names = BTreeMap<String, Arc<Inode>>;

#[derive(Debug)]
struct Inode {
    id: u64,
    /// How often the kernel failed to write pages of it by itself.
    failures: AtomicU64,
    memory: Arc<HeapMemory>,
    /// Who has it open has this too.
    open: Arc<()>,
    body: Mutex<Body>,
}

/// A file without a name: its space is taken while it is open or mapped.
#[derive(Debug)]
struct Nameless {
    inode: Weak<Inode>,
    open: Weak<()>,
    memory: Weak<HeapMemory>,
    bytes: u64,
}

impl Nameless {
    fn new(inode: &Arc<Inode>) -> Nameless {
        Nameless {
            open: Arc::downgrade(&inode.open),
            memory: Arc::downgrade(&inode.memory),
            bytes: inode.allocated_bytes(),
            inode: Arc::downgrade(inode),
        }
    }

    fn is_in_use(&self) -> bool {
        let own = usize::from(self.inode.strong_count() > 0);
        self.open.strong_count() > own || self.memory.strong_count() > own
    }
}

#[derive(Debug, Clone)]
struct Body {
    len: usize,
    durable_len: usize,
    pages: Vec<Page>,
}

impl Inode {
    fn new(id: u64, capacity: usize) -> Inode {
        let durable: Image = Arc::new([0; PAGE]);
        let page = Page { durable, early: Vec::new(), dirty: false, allocated: false, durable_allocated: false };
        let pages = vec![page; capacity.div_ceil(PAGE)];
        let memory = HeapMemory::new(pages.len() * PAGE);
        let body = Mutex::new(Body { len: 0, durable_len: 0, pages });
        Inode { id, failures: AtomicU64::new(0), memory, open: Arc::default(), body }
    }

    fn allocated_bytes(&self) -> u64 {
        let pages = self.body.lock().pages.iter().filter(|page| page.allocated).count();
        (pages * PAGE) as u64
    }

    /// As a killed process leaves it: cached and durable bytes as they are.
    fn copy(&self) -> Inode {
        let body = self.body.lock().clone();
        let memory = HeapMemory::new(body.pages.len() * PAGE);
        memory.write(0, &self.bytes(0, body.len));
        Inode { id: self.id, failures: AtomicU64::new(0), memory, open: Arc::default(), body: Mutex::new(body) }
    }

    /// As a power cut leaves it.
    fn cut(&self, rng: &mut Rng, mood: &Mood) -> Inode {
        let body = self.body.lock();
        let new_size = rng.percent(mood.sizes);
        let len = if new_size { body.len } else { body.durable_len };
        let cut = Inode::new(self.id, body.pages.len() * PAGE);
        let mut content = Vec::with_capacity(len.next_multiple_of(PAGE));
        for page in &body.pages[..len.div_ceil(PAGE)] {
            content.extend_from_slice(&page.after_power_cut(rng, mood.pages));
        }
        content.truncate(len);
        let allocated = |page: &Page| {
            if new_size { page.allocated } else { page.durable_allocated }
        };
        cut.body.lock().put(&cut.memory, &content, |number| allocated(&body.pages[number]));
        cut
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    fn image(&self, page: usize) -> Image {
        let mut image = [0; PAGE];
        self.memory.read(page * PAGE, &mut image);
        Arc::new(image)
    }

    /// Records what is in memory as something that may have reached the disk.
    fn snapshot(&self) {
        let mut body = self.body.lock();
        let used = body.len.div_ceil(PAGE);
        for (number, page) in body.pages[..used].iter_mut().enumerate() {
            let mut live = [0; PAGE];
            self.memory.read(number * PAGE, &mut live);
            if live != **page.early.last().unwrap_or(&page.durable) {
                assert!(page.allocated, "mmq stored into a hole of a file (page {number}): SIGBUS on a full disk");
                if page.early.len() >= MAX_EARLY {
                    page.early.remove(0);
                }
                page.early.push(Arc::new(live));
                page.dirty = true;
            }
        }
    }

    /// Linux marks pages clean whether or not they could be written; what was refused stays in the cache alone.
    fn sync(&self, works: bool) {
        self.snapshot();
        let mut body = self.body.lock();
        for (number, page) in body.pages.iter_mut().enumerate() {
            if works && std::mem::take(&mut page.dirty) {
                page.durable = page.early.pop().unwrap_or_else(|| self.image(number));
                page.early.clear();
            }
            page.dirty = false;
            if works {
                page.durable_allocated = page.allocated;
            }
        }
        if works {
            body.durable_len = body.len;
        }
    }
}

impl Page {
    fn after_power_cut(&self, rng: &mut Rng, mood: u64) -> [u8; PAGE] {
        let versions = self.early.len() as u64 + 1;
        let version = |number: u64| number.checked_sub(1).map_or(&self.durable, |number| &self.early[number as usize]);
        if versions == 1 || mood == 0 {
            return *self.durable;
        }
        if mood == 100 {
            return **version(versions - 1);
        }
        let (old, new) = (rng.below(versions), rng.below(versions));
        let mut image = **version(old.min(new));
        let torn = rng.percent(50);
        for sector in (0..PAGE).step_by(SECTOR) {
            if !torn || rng.percent(50) {
                image[sector..][..SECTOR].copy_from_slice(&version(old.max(new))[sector..][..SECTOR]);
            }
        }
        image
    }
}

impl Body {
    /// Makes `content` the whole of the file, durably.
    fn put(&mut self, memory: &HeapMemory, content: &[u8], allocated: impl Fn(usize) -> bool) {
        (self.len, self.durable_len) = (content.len(), content.len());
        memory.write(0, content);
        for (number, (page, bytes)) in self.pages.iter_mut().zip(content.chunks(PAGE)).enumerate() {
            let mut image = [0; PAGE];
            image[..bytes.len()].copy_from_slice(bytes);
            page.allocated = allocated(number) || image != [0; PAGE];
            if image != [0; PAGE] {
                page.durable = Arc::new(image);
            }
            page.durable_allocated = page.allocated;
        }
    }

    fn check_capacity(&self, end: usize) {
        assert!(end <= self.pages.len() * PAGE, "larger than the simulated file's capacity: use with_file_capacity");
    }

    fn grow(&mut self, inode: &Inode, end: usize) {
        self.check_capacity(end);
        if end > self.len {
            let fresh = inode.bytes(self.len, end - self.len);
            assert!(fresh.iter().all(|byte| *byte == 0), "mmq stored behind the end of a file: SIGBUS");
            self.len = end;
        }
    }
}

/// Chances in percent that what was not synced is on the disk anyway. Often the extremes: all of it, none of it.
struct Mood {
    names: u64,
    sizes: u64,
    pages: u64,
}

/// A change of names that is not yet durable: `from` nothing is a creation, `to` nothing a removal.
#[derive(Debug, Clone)]
struct Pending {
    from: Option<String>,
    to: Option<String>,
    inode: Arc<Inode>,
}

impl Pending {
    /// Whatever else was kept or lost, a file never shows under two names.
    fn apply(&self, names: &mut Names) {
        match (&self.from, &self.to) {
            (_, Some(to)) => {
                names.retain(|_, inode| inode.id != self.inode.id);
                names.insert(to.clone(), self.inode.clone());
            }
            (Some(from), None) if names.get(from).is_some_and(|inode| inode.id == self.inode.id) => {
                names.remove(from);
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
struct State {
    names: Names,
    durable_names: Names,
    pending: Vec<Pending>,
    faults: Vec<Fault>,
    gate: Option<(Call, Arc<Gate>)>,
    /// By inode.
    unreadable: Vec<(u64, Range<usize>)>,
    counts: [u64; Call::List as usize + 1],
    /// How many of them failed as they were told to.
    failed: [u64; Call::List as usize + 1],
    /// A digest of all calls, in their order.
    calls: u64,
    freeze: Option<u64>,
    frozen: Option<SimStorage>,
    capacity: Option<u64>,
    file_capacity: usize,
    stores: Stores,
    rng: Rng,
    life: Life,
    now: u64,
    next_inode: u64,
    nameless: Vec<Nameless>,
    holder: Option<u64>,
}

impl State {
    fn used(&self) -> u64 {
        let named: u64 = self.names.values().map(|inode| inode.allocated_bytes()).sum();
        let nameless = self.nameless.iter().filter(|nameless| nameless.is_in_use());
        named + nameless.map(|nameless| nameless.bytes).sum::<u64>()
    }

    fn note_call(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.calls, what).hash(&mut hasher);
        self.calls = hasher.finish();
    }

    fn free(&self) -> u64 {
        self.capacity.unwrap_or(1 << 40).saturating_sub(self.used())
    }

    fn find(&self, name: &str) -> io::Result<Arc<Inode>> {
        Ok(self.names.get(name).cloned().ok_or(Errno::NOENT)?)
    }

    fn change(&mut self, from: Option<&str>, to: Option<&str>, inode: Arc<Inode>) {
        let change = Pending { from: from.map(str::to_owned), to: to.map(str::to_owned), inode };
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    fn new_inode(&mut self, capacity: usize) -> Arc<Inode> {
        self.next_inode += 1;
        Arc::new(Inode::new(self.next_inode, capacity))
    }

    /// Takes a name away as if it had never been, whatever is pending.
    fn forget(&mut self, name: &str) {
        if let Some(inode) = self.names.remove(name) {
            self.pending.retain(|change| change.inode.id != inode.id);
            self.durable_names.retain(|_, durable| durable.id != inode.id);
        }
        self.durable_names.remove(name);
    }

    /// The same disk holding copies of its files, with nobody there.
    fn with(&self, names: [&Names; 2], pending: &[Pending], copy: impl FnMut(&Inode) -> Inode) -> State {
        let mut copy = copy;
        let copies: BTreeMap<_, _> = inodes(names, pending).map(|inode| (inode.id, inode)).collect();
        let copies: BTreeMap<_, _> = copies.into_iter().map(|(id, inode)| (id, Arc::new(copy(&inode)))).collect();
        let copied =
            |names: &Names| names.iter().map(|(name, inode)| (name.clone(), copies[&inode.id].clone())).collect();
        let copied_change = |change: &Pending| Pending { inode: copies[&change.inode.id].clone(), ..change.clone() };
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
            rng: self.rng.clone(),
            nameless: Vec::new(),
            holder: None,
            ..*self
        }
    }

    fn killed(&self) -> SimStorage {
        self.snapshot();
        SimStorage::over(self.with([&self.names, &self.durable_names], &self.pending, Inode::copy))
    }

    fn cut(&self, seed: u64, mood: Option<Mood>) -> SimStorage {
        self.snapshot();
        let mut rng = Rng(self.rng.0 ^ Rng(seed).next());
        let mut chance = || [0, 50, 50, 100][rng.below(4) as usize];
        let mood = mood.unwrap_or_else(|| Mood { names: chance(), sizes: chance(), pages: chance() });
        let mut names = self.durable_names.clone();
        for change in self.pending.iter().filter(|_| rng.percent(mood.names)) {
            change.apply(&mut names);
        }
        let mut state = self.with([&names, &names], &[], |inode| inode.cut(&mut rng, &mood));
        state.life = Life { place: rng.bytes(), mount: 1 };
        state.rng = rng;
        SimStorage::over(state)
    }

    fn snapshot(&self) {
        for inode in inodes([&self.names, &self.durable_names], &self.pending) {
            inode.snapshot();
        }
    }
}

/// Every file that is, or that a power cut may bring back; some more than once.
fn inodes<'a>(names: [&'a Names; 2], pending: &'a [Pending]) -> impl Iterator<Item = Arc<Inode>> + 'a {
    let named = names.into_iter().flat_map(|names| names.values());
    named.chain(pending.iter().map(|change| &change.inode)).cloned()
}

/// A handle on a simulated directory. Each clone is a descriptor of its own: the lock belongs to the one that took it.
#[derive(Debug)]
pub(crate) struct SimStorage {
    disk: Arc<Mutex<State>>,
    id: u64,
}

#[derive(Debug)]
pub(crate) struct SimFile {
    disk: Arc<Mutex<State>>,
    inode: Arc<Inode>,
    _open: Arc<()>,
    /// Of the failures to write pages so many were told, or were forgotten before it was opened.
    told: AtomicU64,
    stores: Stores,
}

thread_local! {
    /// Syncs of files that this thread made.
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

/// A place where one call stops until it is let through.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Somebody stands there; it is open.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until a call has come to it.
    pub(crate) fn wait_for_visitor(&self) {
        let mut state = self.state.lock();
        while !state.0 {
            self.changed.wait(&mut state);
        }
    }

    /// Whether a call has come to it.
    pub(crate) fn is_visited(&self) -> bool {
        self.state.lock().0
    }

    pub(crate) fn open(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            self.changed.wait(&mut state);
        }
    }
}

/// Counts the call, and says whether it is to fail.
fn enter(disk: &Mutex<State>, call: Call) -> (MutexGuard<'_, State>, io::Result<()>) {
    let gate = disk.lock().gate.take_if(|(gated, _)| *gated == call);
    if let Some((_, gate)) = gate {
        gate.pass();
    }
    let mut state = disk.lock();
    state.counts[call as usize] += 1;
    state.note_call(call as usize);
    if !matches!(call, Call::Open | Call::Map | Call::Read | Call::List) {
        state.snapshot();
    }
    state.freeze = match state.freeze {
        Some(1) => {
            state.frozen = Some(state.killed());
            None
        }
        left => left.map(|left| left - 1),
    };
    let mut answer = Ok(());
    state.faults.retain_mut(|fault| {
        if fault.call != call || answer.is_err() {
            return true;
        }
        fault.left = fault.left.saturating_sub(1);
        if fault.left == 0 {
            answer = Err(io::Error::from_raw_os_error(fault.errno));
        }
        fault.left > 0 || fault.sticky
    });
    state.failed[call as usize] += u64::from(answer.is_err());
    (state, answer)
}

fn enter_or_fail(disk: &Mutex<State>, call: Call) -> io::Result<MutexGuard<'_, State>> {
    let (state, answer) = enter(disk, call);
    answer.map(|()| state)
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
            capacity: None,
            file_capacity: 256 << 10,
            life: Life { place: rng.bytes(), mount: 1 },
            stores: Stores::ByMap,
            rng,
            now: 1_700_000_000_000,
            next_inode: 0,
            nameless: Vec::new(),
            holder: None,
        })
    }

    fn over(state: State) -> SimStorage {
        SimStorage { disk: Arc::new(Mutex::new(state)), id: HANDLES.fetch_add(1, Ordering::Relaxed) }
    }

    /// How long files made from now on can become (256 KiB if nothing is said). Crash images cost time in proportion.
    pub(crate) fn with_file_capacity(self, bytes: usize) -> SimStorage {
        self.disk.lock().file_capacity = bytes;
        self
    }

    /// How large the disk is; what would not fit is refused with ENOSPC.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.disk.lock().capacity = bytes;
    }

    /// What files opened from now on say of themselves.
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

    /// What a power cut leaves: all that was synced, and of the rest what `seed` says. This storage is not changed.
    pub(crate) fn power_cut(&self, seed: u64) -> SimStorage {
        self.disk.lock().cut(seed, None)
    }

    /// What is left when nothing reached the disk but what was synced.
    pub(crate) fn power_cut_losing_all(&self) -> SimStorage {
        self.disk.lock().cut(0, Some(Mood { names: 0, sizes: 0, pages: 0 }))
    }

    /// What the death of the process leaves: everything, but still only cached where it was, and no lock.
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
        killed.disk.lock().life.place[0] ^= 1;
        killed
    }

    /// As a power cut, but the file system alone failed and was mounted again in the same boot.
    pub(crate) fn mounted_again(&self, seed: u64) -> SimStorage {
        let before = self.disk.lock().life;
        let cut = self.power_cut(seed);
        cut.disk.lock().life = Life { mount: before.mount + 1, ..before };
        cut
    }

    /// No byte of that range of the file can be read any more.
    pub(crate) fn make_unreadable(&self, name: &str, range: Range<usize>) {
        let mut state = self.disk.lock();
        let id = state.names[name].id;
        state.unreadable.push((id, range));
    }

    /// Takes a `process_kill` right before the `nth` call from now (the next is the first), for [`SimStorage::frozen`].
    pub(crate) fn freeze_at(&self, nth: u64) {
        self.disk.lock().freeze = Some(nth);
    }

    pub(crate) fn frozen(&self) -> Option<SimStorage> {
        self.disk.lock().frozen.take()
    }

    /// Makes the `nth` call of a kind from now on fail (the next is the first), and with `sticky` all after it.
    pub(crate) fn fail_after(&self, call: Call, nth: u64, errno: Errno, sticky: bool) {
        self.disk.lock().faults.push(Fault { call, left: nth, errno: errno.raw_os_error(), sticky });
    }

    /// The next call of that kind stops before it is made, until the gate is opened.
    pub(crate) fn stop_next(&self, call: Call) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        self.disk.lock().gate = Some((call, Arc::clone(&gate)));
        gate
    }

    /// The kernel writes the pages of a file by itself, and the disk refuses: those are clean from now on, and not durable. Each
    /// descriptor that is open is told by its next sync; one that is opened later is not, as when the kernel has let go of the
    /// file in between.
    pub(crate) fn fail_write_back(&self, name: &str) {
        let inode = self.disk.lock().names[name].clone();
        inode.sync(false);
        inode.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn clear_faults(&self) {
        self.disk.lock().faults.clear();
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

    // What follows acts on what is cached and what is durable alike, and is neither counted nor made to fail.

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

impl Storage for SimStorage {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<Listed>> {
        let state = enter_or_fail(&self.disk, Call::List)?;
        Ok(state.names.keys().map(|name| Listed { name: name.clone(), is_file: true }).collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = enter_or_fail(&self.disk, Call::Create)?;
        if state.names.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        state.note_call(name);
        let capacity = state.file_capacity;
        let inode = state.new_inode(capacity);
        state.change(None, Some(name), inode.clone());
        Ok(self.file(inode, &state))
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let mut state = enter_or_fail(&self.disk, Call::Open)?;
        state.note_call(name);
        Ok(self.file(state.find(name)?, &state))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = enter_or_fail(&self.disk, Call::Rename)?;
        state.note_call((from, to));
        let inode = state.find(from)?;
        state.change(Some(from), Some(to), inode);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = enter_or_fail(&self.disk, Call::Remove)?;
        state.note_call(name);
        let inode = state.find(name)?;
        state.nameless.retain(Nameless::is_in_use);
        state.nameless.push(Nameless::new(&inode));
        state.change(Some(name), None, inode);
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), SyncFailed> {
        let mut state = enter_or_fail(&self.disk, Call::SyncDirectory).map_err(SyncFailed)?;
        if Mutant::DirectoryNotSynced.is_planted() {
            return Ok(());
        }
        state.durable_names = state.names.clone();
        state.pending.clear();
        Ok(())
    }

    fn is_removed(&self) -> bool {
        false
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(*self.disk.lock().holder.get_or_insert(self.id) == self.id)
    }

    fn unlock(&self) {
        let mut disk = self.disk.lock();
        if disk.holder == Some(self.id) {
            disk.holder = None;
        }
    }

    fn life(&self) -> Life {
        self.disk.lock().life
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.lock().free())
    }

    fn random(&self) -> [u8; 16] {
        self.disk.lock().rng.bytes()
    }

    fn now(&self) -> u64 {
        self.disk.lock().now
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }
}

impl SimStorage {
    fn file(&self, inode: Arc<Inode>, state: &State) -> SimFile {
        let told = AtomicU64::new(inode.failures.load(Ordering::Relaxed));
        SimFile { disk: self.disk.clone(), _open: Arc::clone(&inode.open), inode, told, stores: state.stores }
    }
}

impl SimFile {
    /// Gives space to the pages of a range and extends the file over it, or changes nothing.
    fn extend(&self, state: &State, range: Range<usize>) -> io::Result<()> {
        let free = state.free();
        let mut body = self.inode.body.lock();
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let wanted = body.pages[pages.clone()].iter().filter(|page| !page.allocated).count();
        if (wanted * PAGE) as u64 > free {
            return Err(Errno::NOSPC.into());
        }
        body.pages[pages].iter_mut().for_each(|page| page.allocated = true);
        body.grow(&self.inode, range.end);
        Ok(())
    }
}

impl StorageFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.body.lock().len as u64)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let state = enter_or_fail(&self.disk, Call::Allocate)?;
        let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
        self.inode.body.lock().check_capacity(end as usize);
        self.extend(&state, offset as usize..end as usize)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _state = enter_or_fail(&self.disk, Call::SetLen)?;
        let mut body = self.inode.body.lock();
        let (len, old_len) = (len as usize, body.len);
        if len >= old_len {
            body.grow(&self.inode, len);
            return Ok(());
        }
        self.inode.memory.write(len, &vec![0; old_len - len]);
        body.len = len;
        for number in len / PAGE..old_len.div_ceil(PAGE) {
            let page = &mut body.pages[number];
            page.early.push(self.inode.image(number));
            page.dirty = true;
            page.allocated &= number * PAGE < len;
        }
        Ok(())
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Window> {
        let _state = enter_or_fail(&self.disk, Call::Map)?;
        self.inode.body.lock().check_capacity(offset as usize + len);
        let window = Window::heap(&self.inode.memory, offset as usize, len);
        Ok(if self.stores == Stores::ByMap { window } else { window.forbid_stores() })
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = enter_or_fail(&self.disk, Call::Read)?;
        let end = offset as usize + buf.len();
        let touched = |range: &Range<usize>| range.start < end && (offset as usize) < range.end;
        if state.unreadable.iter().any(|(id, range)| *id == self.inode.id && touched(range)) {
            return Err(Errno::IO.into());
        }
        let left = (self.inode.body.lock().len as u64).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if len > 0 {
            self.inode.memory.read(offset as usize, &mut buf[..len]);
        }
        Ok(len)
    }

    /// A refused write has written its first half where the file had that place already.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, mut answer) = enter(&self.disk, Call::Write);
        state.note_call((self.inode.id, offset, buf.len()));
        let mut range = offset as usize..offset as usize + buf.len();
        self.inode.body.lock().check_capacity(range.end);
        if answer.is_ok() {
            answer = self.extend(&state, range.clone());
        }
        let mut body = self.inode.body.lock();
        if answer.is_err() {
            range.end = (range.start + buf.len() / 2).min(body.len).max(range.start);
            let first_hole = |page: &usize| !body.pages[*page].allocated;
            if let Some(hole) = (range.start / PAGE..range.end.div_ceil(PAGE)).find(first_hole) {
                range.end = (hole * PAGE).max(range.start);
            }
        }
        self.inode.memory.write(range.start, &buf[..range.len()]);
        for page in &mut body.pages[range.start / PAGE..range.end.div_ceil(PAGE)] {
            page.dirty = true;
        }
        answer
    }

    fn sync(&self) -> Result<(), SyncFailed> {
        SYNCS.set(SYNCS.get() + 1);
        let (mut state, answer) = enter(&self.disk, Call::SyncFile);
        state.note_call(self.inode.id);
        self.inode.sync(answer.is_ok());
        let failures = self.inode.failures.load(Ordering::Relaxed);
        if self.told.swap(failures, Ordering::Relaxed) < failures {
            return Err(SyncFailed(Errno::IO.into()));
        }
        answer.map_err(SyncFailed)
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok((self.inode.body.lock().pages.iter().filter(|page| page.allocated).count() * PAGE) as u64)
    }

    fn stores(&self) -> Stores {
        self.stores
    }

    fn find_stores(&self, _offset: u64) -> Stores {
        self.stores
    }

    fn unshare(&self, _len: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::AssertUnwindSafe;

    /// A file `a` of two pages, durable with its name and full of ones; then stored full of twos through a mapping.
    fn dirty() -> (SimStorage, SimFile, Window) {
        let storage = SimStorage::new(7);
        let file = storage.create("a").unwrap();
        let window = file.map(0, 4 * PAGE).unwrap();
        file.allocate(0, 2 * PAGE as u64).unwrap();
        window.copy_in(0, &[1; 2 * PAGE]);
        file.sync().unwrap();
        storage.sync_directory().unwrap();
        window.copy_in(0, &[2; 2 * PAGE]);
        (storage, file, window)
    }

    fn cuts(storage: &SimStorage) -> impl Iterator<Item = SimStorage> {
        (0..200).map(|seed| storage.power_cut(seed))
    }

    #[test]
    fn unsynced_pages_may_be_lost_kept_or_torn_at_512_and_synced_ones_never() {
        let (storage, file, window) = dirty();
        let (mut lost, mut kept, mut torn, mut middle) = (0, 0, 0, 0);
        storage.snapshot();
        window.copy_in(PAGE, &[3; PAGE]);
        for (seed, cut) in cuts(&storage).enumerate() {
            let content = cut.read_file("a");
            assert_eq!(content, storage.power_cut(seed as u64).read_file("a"), "the same seed, the same disk");
            assert!(content.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            assert!(!content[..PAGE].contains(&3) && !content.contains(&0));
            lost += u32::from(content == [1; 2 * PAGE]);
            kept += u32::from(content == storage.read_file("a"));
            torn += u32::from(content[..PAGE].contains(&1) && content[..PAGE].contains(&2));
            middle += u32::from(content[PAGE..] == [2; PAGE]);
            assert_ne!(cut.life(), storage.life());
        }
        assert!(lost > 20 && kept > 20 && torn > 20 && middle > 5, "{lost} {kept} {torn} {middle}");
        file.sync().unwrap();
        assert!(cuts(&storage).all(|cut| cut.read_file("a") == storage.read_file("a")));
    }

    #[test]
    fn a_kill_keeps_everything_and_a_power_cut_after_it_still_loses() {
        let (storage, _file, _window) = dirty();
        storage.create("b").unwrap();
        assert!(storage.try_lock().unwrap() && !storage.clone().try_lock().unwrap());
        let killed = storage.process_kill();
        assert!(killed.try_lock().unwrap());
        assert_eq!((killed.life(), killed.file_names()), (storage.life(), storage.file_names()));
        assert_eq!(killed.read_file("a"), [2; 2 * PAGE]);
        assert!(cuts(&killed).any(|cut| cut.read_file("a") == [1; 2 * PAGE]));
        assert!(cuts(&killed).any(|cut| cut.file_names() == ["a"]));
        killed.open("a").unwrap().sync().unwrap();
        assert!(cuts(&killed).all(|cut| cut.read_file("a") == [2; 2 * PAGE]));
        assert!(cuts(&storage).any(|cut| cut.read_file("a") == [1; 2 * PAGE]), "the killed one is another world");
        let second = storage.clone();
        drop(storage);
        assert!(second.try_lock().unwrap());
    }

    #[test]
    fn unsynced_creations_renames_and_removals_are_lost_in_any_combination() {
        let storage = SimStorage::new(1);
        for name in ["a", "b", "c"] {
            storage.write_file(name, name.as_bytes());
        }
        storage.create("d").unwrap();
        storage.rename("a", "b").unwrap();
        storage.remove("c").unwrap();
        let contents = |storage: &SimStorage| {
            storage.file_names().iter().map(|name| (name.clone(), storage.read_file(name))).collect::<Vec<_>>()
        };
        let mut seen: Vec<_> = cuts(&storage).map(|cut| contents(&cut)).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 8);
        assert!(seen.iter().all(|files| files.iter().any(|(name, bytes)| name == "b" && !bytes.is_empty())));
        assert!(seen.iter().all(|files| files.iter().any(|(_, bytes)| bytes == b"a")));
        storage.sync_directory().unwrap();
        assert!(cuts(&storage).all(|cut| contents(&cut) == contents(&storage)));
    }

    #[test]
    fn a_failed_sync_marks_pages_clean_that_are_not_durable_until_they_are_written_again() {
        let (storage, file, _window) = dirty();
        storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
        assert_eq!(file.sync().unwrap_err().0.raw_os_error(), Some(Errno::IO.raw_os_error()));
        file.sync().unwrap();
        assert_eq!(storage.read_file("a"), [2; 2 * PAGE]);
        assert!(cuts(&storage).any(|cut| cut.read_file("a") == [1; 2 * PAGE]));
        file.write_at(&[2; 2 * PAGE], 0).unwrap();
        file.sync().unwrap();
        assert!(cuts(&storage).all(|cut| cut.read_file("a") == [2; 2 * PAGE]));
    }

    #[test]
    fn sizes_are_old_or_new_and_cut_bytes_do_not_come_back() {
        let (storage, file, window) = dirty();
        file.set_len(100).unwrap();
        let lens = |len| cuts(&storage).filter(|cut| cut.read_file("a").len() == len).count();
        assert!(lens(100) > 20 && lens(2 * PAGE) > 20 && lens(100) + lens(2 * PAGE) == 200);
        file.sync().unwrap();
        file.allocate(0, 3 * PAGE as u64).unwrap();
        assert!(cuts(&storage).all(|cut| cut.read_file("a")[100..].iter().all(|byte| *byte == 0)));
        window.copy_in(3 * PAGE, b"too early");
        let stored = std::panic::catch_unwind(AssertUnwindSafe(|| file.allocate(0, 4 * PAGE as u64)));
        assert!(stored.is_err(), "a store behind the end is caught");
    }

    #[test]
    fn calls_fail_as_told_and_a_full_disk_is_full() {
        let (storage, file, lease) = dirty();
        storage.fail_after(Call::Create, 2, Errno::NOSPC, true);
        storage.fail_after(Call::Write, 1, Errno::IO, false);
        storage.create("b").unwrap();
        for _ in 0..2 {
            assert_eq!(storage.create("c").unwrap_err().kind(), ErrorKind::StorageFull);
        }
        storage.clear_faults();
        storage.set_capacity(Some(3 * PAGE as u64));
        assert_eq!((storage.free_bytes().unwrap(), storage.call_count(Call::Create)), (PAGE as u64, 4));
        assert_eq!(file.allocate(0, 4 * PAGE as u64).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.len().unwrap(), 2 * PAGE as u64);
        file.allocate(0, 3 * PAGE as u64).unwrap();
        assert_eq!(storage.open("b").unwrap().write_at(b"x", 0).unwrap_err().kind(), ErrorKind::StorageFull);
        storage.remove("a").unwrap();
        drop(file);
        assert_eq!(storage.free_bytes().unwrap(), 0, "it is mapped");
        drop(lease);
        storage.open("b").unwrap().write_at(b"x", 0).unwrap();
    }

    #[test]
    fn a_frozen_moment_is_before_the_call_and_damage_is_everywhere() {
        let (storage, file, _window) = dirty();
        storage.freeze_at(2);
        storage.rename("a", "b").unwrap();
        assert!(storage.frozen().is_none());
        storage.sync_directory().unwrap();
        let frozen = storage.frozen().unwrap();
        assert!(cuts(&frozen).any(|cut| cut.file_names() == ["a"]));
        storage.corrupt("b", PAGE - 1, &[9; 2]);
        assert!(cuts(&storage).all(|cut| cut.read_file("b")[PAGE - 1..=PAGE] == [9; 2]));
        let mut buf = [0; 8];
        assert_eq!(file.read_at(&mut buf, 2 * PAGE as u64 - 3).unwrap(), 3);
        storage.remove_file("b");
        assert!(cuts(&storage).all(|cut| cut.file_names().is_empty()));
    }
}
