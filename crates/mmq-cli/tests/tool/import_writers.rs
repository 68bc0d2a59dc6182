//! Writers of the other queues' directories, from the description of their files alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::Random;

/// A place of bigqueue: arena, offset.
pub(crate) type Place = (u64, u64);

/// The release whose files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    One,
    Two,
    Four,
    Five,
}

pub(crate) const RELEASES: [Release; 4] =
    [Release::One, Release::Two, Release::Four, Release::Five];

impl Release {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Release::One => "bigqueue-0.1",
            Release::Two => "bigqueue-0.2",
            Release::Four => "bigqueue-0.4",
            Release::Five => "bigqueue-0.5",
        }
    }

    pub(crate) fn arena(self, id: u64) -> String {
        match self {
            Release::One => format!("data_{id}.dat"),
            Release::Two | Release::Four => format!("arena_{id}.dat"),
            Release::Five => format!("{id}_arena.dat"),
        }
    }
}

/// A bigqueue in memory.
#[derive(Debug, Clone)]
pub(crate) struct Big {
    pub(crate) size: u64,
    pub(crate) arenas: BTreeMap<u64, Vec<u8>>,
    pub(crate) tail: Place,
    /// Each message, and the place that the tail had before it.
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) places: Vec<Place>,
    pub(crate) heads: Vec<(Vec<u8>, Place)>,
}

impl Big {
    pub(crate) fn new(size: u64) -> Big {
        Big {
            size,
            arenas: BTreeMap::new(),
            tail: (0, 0),
            messages: Vec::new(),
            places: Vec::new(),
            heads: Vec::new(),
        }
    }

    fn arena(&mut self, id: u64) -> &mut Vec<u8> {
        let size = self.size as usize;
        self.arenas.entry(id).or_insert_with(|| vec![0; size])
    }

    fn write(&mut self, mut at: Place, mut bytes: &[u8]) -> Place {
        while !bytes.is_empty() {
            let room = (self.size - at.1).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(room as usize);
            let offset = at.1 as usize;
            self.arena(at.0)[offset..offset + now.len()].copy_from_slice(now);
            at.1 += room;
            bytes = later;
            if at.1 == self.size {
                at = (at.0 + 1, 0);
            }
        }
        at
    }

    pub(crate) fn enqueue(&mut self, message: &[u8]) {
        let mut at = self.tail;
        self.places.push(at);
        if at.1 + 8 > self.size {
            at = (at.0 + 1, 0);
        }
        at = self.write(at, &(message.len() as u64).to_le_bytes());
        self.tail = self.write(at, message);
        self.messages.push(message.to_vec());
    }

    /// The place of that message; the tail behind the last one.
    pub(crate) fn place(&self, number: usize) -> Place {
        self.places.get(number).copied().unwrap_or(self.tail)
    }

    pub(crate) fn head(&mut self, name: &[u8], number: usize) {
        self.heads.push((name.to_vec(), self.place(number)));
    }

    pub(crate) fn metadata(&self, release: Release) -> Vec<u8> {
        let head = self.heads[0].1;
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        match release {
            Release::One => words(&[head.0, head.1, self.tail.0, self.tail.1]),
            Release::Two => words(&[head.0, head.1, self.tail.0, self.tail.1, self.size]),
            Release::Four | Release::Five => {
                let count = self.heads.len() as u64;
                let mut bytes = words(&[1, 0, 0, self.tail.0, self.tail.1, self.size, count]);
                for (name, place) in &self.heads {
                    bytes.extend(words(&[name.len() as u64, place.0, place.1]));
                    bytes.extend(name);
                }
                bytes
            }
        }
    }

    pub(crate) fn write_to(&self, dir: &Path, release: Release) {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir).unwrap();
        let early = matches!(release, Release::One | Release::Two);
        let name = if early { "index.dat" } else { "metadata.dat" };
        fs::write(dir.join(name), self.metadata(release)).unwrap();
        for (id, bytes) in &self.arenas {
            // 0.2 deletes what lies before the head.
            if release == Release::Two && *id + 1 < self.heads[0].1.0.min(self.tail.0) {
                continue;
            }
            let path = dir.join(release.arena(*id));
            // Sparse: an arena of 0.1 has 128 MiB.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            fs::write(&path, &bytes[..used]).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(self.size).unwrap();
        }
        // The arena of the tail is made with the tail.
        let last = dir.join(release.arena(self.tail.0));
        if !last.exists() {
            fs::File::create(last).unwrap().set_len(self.size).unwrap();
        }
    }
}

/// CRC-32 bit by bit, as its definition says.
fn crc32(bytes: &[u8]) -> u32 {
    let mut value = u32::MAX;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
        }
    }
    !value
}

fn be32(value: u32) -> Vec<u8> {
    (0..4).rev().map(|byte| (value >> (8 * byte)) as u8).collect()
}

pub(crate) fn be64(value: u64) -> Vec<u8> {
    (0..8).rev().map(|byte| (value >> (8 * byte)) as u8).collect()
}

/// A segment of pqueue, and the boundaries of its entries.
pub(crate) fn segment(messages: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut places) = (vec![0; 8], vec![8]);
    for message in messages {
        bytes.extend(be32(message.len() as u32));
        bytes.extend(be32(crc32(message)));
        bytes.extend(message);
        places.push(bytes.len());
    }
    (bytes, places)
}

/// Random messages; now and then a long one, and a row of empty ones.
pub(crate) fn messages(random: &mut Random, count: usize, longest: usize) -> Vec<Vec<u8>> {
    let one = |_| {
        let len = match random.below(20) {
            0 => random.size(0..=longest),
            1 => 0,
            _ => random.size(1..=longest.min(700)),
        };
        (0..len).map(|_| random.next() as u8).collect()
    };
    (0..count).map(one).collect()
}

/// All files of a directory with their bytes, and their times of the last change.
pub(crate) fn picture(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>, std::time::SystemTime)> {
    let listed = fs::read_dir(dir).unwrap().map(|listed| listed.unwrap());
    let mut files: Vec<_> = listed
        .map(|listed| {
            let data = listed.metadata().unwrap();
            let whole = data.len() < 1 << 24;
            let bytes = if whole { fs::read(listed.path()).unwrap() } else { Vec::new() };
            (listed.file_name(), bytes, data.modified().unwrap())
        })
        .collect();
    files.sort();
    files
}
