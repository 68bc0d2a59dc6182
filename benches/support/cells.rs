//! The table of the matrix: arena size, message size, cap, and their names in bigqueue's tables.

use super::human;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub arena: u64,
    pub message: u64,
    /// Arenas that may be mapped.
    pub cap: Option<u32>,
    /// The cap's name in bigqueue's tables. (At 128 MB arenas `MaxMem-256MB` means three arenas:
    /// 384 MB.)
    pub max_mem: &'static str,
}

impl Cell {
    /// `ArenaSize-4KB/MessageSize-128B/MaxMem-12KB`
    pub fn id(&self) -> String {
        format!(
            "ArenaSize-{}/MessageSize-{}/MaxMem-{}",
            human(self.arena),
            human(self.message),
            self.max_mem
        )
    }

    pub fn options(&self) -> mmq::Options {
        mmq::Queue::options().arena_size(self.arena).max_mapped_arenas(self.cap)
    }

    /// The most messages in the queue at a time: 128 MiB of them, or three arenas if that is more.
    pub fn backlog(&self) -> u64 {
        (128 * MB).max(3 * self.arena) / (self.message + 16)
    }
}

const fn caps(arena: u64) -> [(&'static str, Option<u32>); 4] {
    let names = match arena {
        0x1000 => ["12KB", "40KB", "1GB"],
        0x2_0000 => ["384KB", "1.25MB", "1GB"],
        0x40_0000 => ["12MB", "40MB", "1GB"],
        _ => ["256MB", "1.25GB", "1GB"],
    };
    [
        (names[0], Some(3)),
        (names[1], Some(10)),
        (names[2], Some(((1 << 30) / arena) as u32)),
        ("NoLimit", None),
    ]
}

const THREE: usize = 0;
const TEN: usize = 1;
const GB: usize = 2;
const NONE: usize = 3;

/// The rows of bigqueue's tables (arenas of 4 KB with messages of 128 B, 128 KB with 4 KB, 4 MB
/// with 128 KB, 128 MB with 4 MB, under every cap). The rows between them vary the arena or the
/// message alone.
const ROWS: &[(u64, u64, &[usize])] = &[
    (4 * KB, 128, &[THREE, TEN, GB, NONE]),
    (4 * KB, 16 * KB, &[TEN, NONE]),
    (4 * KB, MB, &[NONE]),
    (128 * KB, 128, &[THREE, NONE]),
    (128 * KB, 4 * KB, &[THREE, TEN, GB, NONE]),
    (128 * KB, 16 * KB, &[THREE, NONE]),
    (128 * KB, MB, &[THREE, NONE]),
    (4 * MB, 128, &[THREE, NONE]),
    (4 * MB, 16 * KB, &[THREE, NONE]),
    (4 * MB, 128 * KB, &[THREE, TEN, GB, NONE]),
    (4 * MB, MB, &[THREE, NONE]),
    (128 * MB, 128, &[THREE, NONE]),
    (128 * MB, 16 * KB, &[NONE]),
    (128 * MB, MB, &[NONE]),
    (128 * MB, 4 * MB, &[THREE, TEN, GB, NONE]),
];

pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for &(arena, message, which) in ROWS {
        for &at in which {
            let (max_mem, cap) = caps(arena)[at];
            cells.push(Cell { arena, message, cap, max_mem });
        }
    }
    cells
}

/// The arenas, each with the cap of three.
pub fn arenas() -> Vec<Cell> {
    let rows = [(4 * KB, 128), (128 * KB, 4 * KB), (4 * MB, 128 * KB), (128 * MB, 4 * MB)];
    rows.map(|(arena, message)| Cell {
        arena,
        message,
        cap: Some(3),
        max_mem: caps(arena)[THREE].0,
    })
    .to_vec()
}
