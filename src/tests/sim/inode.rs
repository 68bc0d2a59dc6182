//! A file of the simulated disk: its pages in memory and on the disk, and what a power cut leaves
//! of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Rng;
use crate::memory::HeapMemory;

pub(super) const PAGE: usize = 4096;
/// What a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;
/// How many versions of a page are kept that may have reached the disk early. Older ones are
/// forgotten.
const MAX_EARLY: usize = 8;

pub(super) type Image = Arc<[u8; PAGE]>;

#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) durable: Image,
    /// Versions that the disk may hold instead, the oldest first. While the page is dirty, the last
    /// one is the page as it was last seen.
    pub(super) early: Vec<Image>,
    pub(super) dirty: bool,
    pub(super) allocated: bool,
    pub(super) durable_allocated: bool,
    /// It reads as zeros after a power cut, until it is written past the page cache.
    pub(super) unwritten: bool,
}

/// Chances, in percent, that bytes which were not synced are on the disk anyway. Often 0 or 100.
pub(super) struct Mood {
    pub(super) names: u64,
    pub(super) sizes: u64,
    pub(super) pages: u64,
}

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) id: u64,
    /// When it changed last (ctime).
    pub(super) changed: AtomicU64,
    /// How often the kernel failed to write pages of it by itself.
    pub(super) failures: AtomicU64,
    pub(super) memory: Arc<HeapMemory>,
    /// Each open descriptor has this file, too.
    pub(super) open: Arc<()>,
    pub(super) body: Mutex<Body>,
}

#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) len: usize,
    pub(super) durable_len: usize,
    /// The most that `len` ever was: no page behind it was ever touched.
    pub(super) longest: usize,
    pub(super) pages: Vec<Page>,
    /// Fresh space whose first write-back failed stays unwritten, as on ext4.
    pub(super) keeps_unwritten: bool,
}

impl Inode {
    pub(super) fn new(id: u64, capacity: usize) -> Inode {
        let durable: Image = Arc::new([0; PAGE]);
        let page = Page {
            durable,
            early: Vec::new(),
            dirty: false,
            allocated: false,
            durable_allocated: false,
            unwritten: false,
        };
        let pages = vec![page; capacity.div_ceil(PAGE)];
        let memory = HeapMemory::new(pages.len() * PAGE);
        let body = Body { len: 0, durable_len: 0, longest: 0, pages, keeps_unwritten: false };
        let body = Mutex::new(body);
        Inode {
            id,
            changed: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            memory,
            open: Arc::default(),
            body,
        }
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        let mut body = self.body.lock();
        let pages = body.reached().iter().filter(|page| page.allocated).count();
        (pages * PAGE) as u64
    }

    /// As a killed process leaves it: cached and durable bytes as they are.
    pub(super) fn copy(&self) -> Inode {
        let body = self.body.lock().clone();
        let memory = HeapMemory::new(body.pages.len() * PAGE);
        memory.write(0, &self.bytes(0, body.len));
        Inode {
            id: self.id,
            changed: AtomicU64::new(self.changed.load(Ordering::Relaxed)),
            failures: AtomicU64::new(0),
            memory,
            open: Arc::default(),
            body: Mutex::new(body),
        }
    }

    /// As a power cut leaves it.
    pub(super) fn cut(&self, rng: &mut Rng, mood: &Mood) -> Inode {
        let body = self.body.lock();
        let new_size = rng.percent(mood.sizes);
        let len = if new_size { body.len } else { body.durable_len };
        let cut = Inode::new(self.id, body.pages.len() * PAGE);
        cut.changed.store(self.changed.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut left = cut.body.lock();
        (left.len, left.durable_len, left.longest) = (len, len, len);
        let pages = body.pages[..len.div_ceil(PAGE)].iter().zip(&mut left.pages);
        for (number, (page, left)) in pages.enumerate() {
            let mut image = page.after_power_cut(rng, mood.pages);
            let used = PAGE.min(len - number * PAGE);
            if used < PAGE {
                Arc::make_mut(&mut image)[used..].fill(0);
            }
            let allocated = if new_size { page.allocated } else { page.durable_allocated };
            left.put(&cut.memory, number, image, allocated);
        }
        drop(left);
        cut
    }

    /// All of it.
    pub(super) fn content(&self) -> Vec<u8> {
        let len = self.body.lock().len;
        self.bytes(0, len)
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    pub(super) fn image(&self, page: usize) -> Image {
        let mut image = [0; PAGE];
        self.memory.read(page * PAGE, &mut image);
        Arc::new(image)
    }

    /// Records what is in memory as something that may have reached the disk.
    pub(super) fn snapshot(&self) {
        let mut body = self.body.lock();
        let used = body.len.div_ceil(PAGE);
        for (number, page) in body.pages[..used].iter_mut().enumerate() {
            let is_touched = self.memory.take_touched(number);
            // Neither a store through a window nor a write by a call has been here.
            if !is_touched && !page.dirty {
                continue;
            }
            let mut live = [0; PAGE];
            self.memory.read(number * PAGE, &mut live);
            // A store that leaves the same bytes has the page written again, too.
            page.dirty |= is_touched && !page.early.is_empty();
            if live != **page.early.last().unwrap_or(&page.durable) {
                assert!(
                    page.allocated,
                    "mmq stored into a hole of a file (page {number}): SIGBUS on a full disk"
                );
                if page.early.len() >= MAX_EARLY {
                    page.early.remove(0);
                }
                page.early.push(Arc::new(live));
                page.dirty = true;
            }
        }
    }

    /// Linux marks pages clean whether or not they could be written; refused bytes stay in the page
    /// cache alone.
    pub(super) fn sync(&self, works: bool) {
        self.snapshot();
        let mut body = self.body.lock();
        let keeps_unwritten = body.keeps_unwritten;
        for (number, page) in body.reached().iter_mut().enumerate() {
            page.unwritten |= keeps_unwritten && !works && page.dirty && !page.durable_allocated;
            if works && !page.unwritten && std::mem::take(&mut page.dirty) {
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
    pub(super) fn after_power_cut(&self, rng: &mut Rng, mood: u64) -> Image {
        let versions = self.early.len() as u64 + 1;
        let version = |number: u64| {
            number.checked_sub(1).map_or(&self.durable, |number| &self.early[number as usize])
        };
        if versions == 1 || mood == 0 {
            return self.durable.clone();
        }
        if mood == 100 {
            return version(versions - 1).clone();
        }
        let (old, new) = (rng.below(versions), rng.below(versions));
        let mut image = version(old.min(new)).clone();
        let torn = rng.percent(50);
        for sector in (0..PAGE).step_by(SECTOR) {
            if !torn || rng.percent(50) {
                Arc::make_mut(&mut image)[sector..][..SECTOR]
                    .copy_from_slice(&version(old.max(new))[sector..][..SECTOR]);
            }
        }
        image
    }

    /// Makes the image the whole of the page, durably.
    fn put(&mut self, memory: &HeapMemory, number: usize, image: Image, allocated: bool) {
        self.allocated = allocated;
        if *image != [0; PAGE] {
            memory.write(number * PAGE, &*image);
            self.durable = image;
            self.allocated = true;
        }
        self.durable_allocated = self.allocated;
    }
}

impl Body {
    /// The pages that the file has, or once had.
    fn reached(&mut self) -> &mut [Page] {
        &mut self.pages[..self.longest.div_ceil(PAGE)]
    }

    /// Makes `content` the whole of the file, durably.
    pub(super) fn put(
        &mut self,
        memory: &HeapMemory,
        content: &[u8],
        allocated: impl Fn(usize) -> bool,
    ) {
        (self.len, self.durable_len) = (content.len(), content.len());
        self.longest = content.len();
        for (number, (page, bytes)) in self.pages.iter_mut().zip(content.chunks(PAGE)).enumerate() {
            let mut image = [0; PAGE];
            image[..bytes.len()].copy_from_slice(bytes);
            page.put(memory, number, Arc::new(image), allocated(number));
        }
    }

    pub(super) fn check_capacity(&self, end: usize) {
        assert!(
            end <= self.pages.len() * PAGE,
            "larger than the simulated file's capacity: use with_file_capacity"
        );
    }

    pub(super) fn grow(&mut self, inode: &Inode, end: usize) {
        self.check_capacity(end);
        if end > self.len {
            let fresh = inode.bytes(self.len, end - self.len);
            assert!(
                fresh.chunks(PAGE).all(|fresh| *fresh == [0; PAGE][..fresh.len()]),
                "mmq stored behind the end of a file: SIGBUS"
            );
            self.len = end;
            self.longest = self.longest.max(end);
        }
    }
}
