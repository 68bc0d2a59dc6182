//! The floors: the price of the same bytes without a queue.
//!
//! [`Ring`] is a plain memcpy with the crate's own checksum, into a mapped, resident file that is
//! written again and again. [`Fresh`] has the cheapest ways to put bytes into space that was just
//! allocated.

#![expect(unsafe_code, reason = "memmap2 maps files only so")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Advice, MmapMut, MmapOptions};

/// The queue's own checksum, which is private in the crate and so compiled here again.
#[path = "../../src/memory/checksum.rs"]
#[allow(dead_code, unused_imports, reason = "a part is enough")]
mod checksum;

const HEADER: usize = 16;

/// The checksum of a record.
#[inline]
fn record_sum(seq: u64, payload: &[u8]) -> u32 {
    checksum::checksum_words(0, [seq]) ^ checksum::sum(0, payload) as u32
}

fn map(file: &File, offset: u64, len: usize) -> MmapMut {
    // SAFETY: a new file in a directory of the benchmark's own: nobody else knows of it.
    unsafe { MmapOptions::new().offset(offset).len(len).map_mut(file) }.expect("a mapping")
}

fn new_file(dir: &Path, name: &str, len: u64) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.join(name))
        .expect("a new file");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len)
        .expect("room on the disk");
    file
}

/// One mapped, resident arena that is used again and again, by one thread: without lock, atomics
/// and places.
#[derive(Debug)]
pub struct Ring {
    map: MmapMut,
    head: usize,
    tail: usize,
    seq: u64,
}

impl Ring {
    /// A ring with room for at least `len` bytes.
    pub fn new(dir: &Path, len: usize) -> Ring {
        let len = len.max(4 << 20);
        let mut map = map(&new_file(dir, "ring", len as u64), 0, len);
        let _ = map.advise(Advice::HugePage);
        map.fill(1);
        Ring { map, head: 0, tail: 0, seq: 0 }
    }

    /// Has long records begin on a cache line: memcpy falls to a twentieth where source and target
    /// lie a few bytes apart modulo the page, and the floor is to be the good case.
    #[inline]
    fn start(at: usize, len: usize) -> usize {
        if len > 2048 { (at + HEADER).next_multiple_of(64) - HEADER } else { at }
    }

    #[inline]
    pub fn enqueue(&mut self, payload: &[u8]) {
        let len = payload.len();
        let mut at = Ring::start(self.tail, len);
        if at + HEADER + len > self.map.len() {
            at = Ring::start(0, len);
        }
        let end = at + HEADER + len;
        let sum = record_sum(self.seq, payload);
        let record = &mut self.map[at..end];
        record[HEADER..].copy_from_slice(payload);
        record[..8].copy_from_slice(&(u64::from(sum) << 32 | len as u64).to_le_bytes());
        record[8..16].copy_from_slice(&self.seq.to_le_bytes());
        self.tail = end.next_multiple_of(8);
        self.seq += 1;
    }

    #[inline]
    fn find(&mut self, len: usize) -> (usize, u64, u64) {
        let mut at = Ring::start(self.head, len);
        if at + HEADER + len > self.map.len() {
            at = Ring::start(0, len);
        }
        let word = |at: usize| {
            self.map[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        (at, word(at), word(at + 8))
    }

    /// Checks the next message, of `len` bytes, copies it out and steps over it.
    #[inline]
    pub fn dequeue_into(&mut self, len: usize, out: &mut Vec<u8>) -> bool {
        let (at, word, seq) = self.find(len);
        let payload = &self.map[at + HEADER..at + HEADER + len];
        if word != u64::from(record_sum(seq, payload)) << 32 | len as u64 {
            return false;
        }
        out.clear();
        out.extend_from_slice(payload);
        self.head = (at + HEADER + len).next_multiple_of(8);
        true
    }

    /// Copies out the message at the head.
    #[inline]
    pub fn peek_into(&mut self, len: usize, out: &mut Vec<u8>) -> bool {
        let (at, word, _) = self.find(len);
        out.clear();
        out.extend_from_slice(&self.map[at + HEADER..at + HEADER + len]);
        word != 0
    }
}

/// Space that was just allocated and is written once.
#[derive(Debug)]
pub struct Fresh {
    file: File,
    len: u64,
}

impl Fresh {
    pub fn new(dir: &Path, len: u64) -> Fresh {
        let len = len.next_multiple_of(2 << 20);
        Fresh { file: new_file(dir, "fresh", len), len }
    }

    /// Stores `payload` `count` times through a mapping, in huge pages that are faulted in ahead.
    pub fn fill_mapped(&self, payload: &[u8], count: u64) {
        let mut map = map(&self.file, 0, self.len as usize);
        let _ = map.advise(Advice::HugePage);
        let (mut at, mut ready) = (0, 0);
        for _ in 0..count {
            while ready < at + payload.len() {
                let step = (4 << 20).min(map.len() - ready);
                let _ = map.advise_range(Advice::PopulateWrite, ready, step);
                ready += step;
            }
            map[at..at + payload.len()].copy_from_slice(payload);
            at += payload.len();
        }
    }

    /// Writes `payload` `count` times by write calls: one call each where it is long, else from a
    /// buffer of 1 MiB.
    pub fn fill_written(&self, payload: &[u8], count: u64) {
        let mut at = 0;
        let mut write = |bytes: &[u8]| {
            self.file.write_all_at(bytes, at).expect("allocated space takes a write");
            at += bytes.len() as u64;
        };
        if payload.len() >= 64 << 10 {
            (0..count).for_each(|_| write(payload));
            return;
        }
        let mut gathered = Vec::with_capacity(1 << 20);
        for _ in 0..count {
            if gathered.len() + payload.len() > gathered.capacity() {
                write(&gathered);
                gathered.clear();
            }
            gathered.extend_from_slice(payload);
        }
        write(&gathered);
    }
}

/// The least file work of a new queue: a directory, one file with allocated space, a mapping of it.
pub fn bare_open(path: &Path) {
    use std::os::fd::AsFd;
    std::fs::create_dir(path).expect("a new directory");
    let directory = File::open(path).expect("the directory");
    rustix::fs::flock(directory.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("unlocked");
    let file = new_file(path, "index", 40 << 10);
    file.write_all_at(&[1; 64], 0).expect("allocated space takes a write");
    let mut map = map(&file, 0, 40 << 10);
    map[64..128].fill(1);
}
