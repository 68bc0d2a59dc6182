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

/// Each arena of bigqueue's tables, and the message that its later tables have with it.
const PAIRS: [(u64, u64); 4] =
    [(4 * KB, 128), (128 * KB, 4 * KB), (4 * MB, 128 * KB), (128 * MB, 4 * MB)];

/// One arena and one message under every cap. Arenas of 4 KB do not have the caps that are smaller
/// than the message.
fn under_caps(arena: u64, message: u64) -> Vec<Cell> {
    let caps = match arena {
        0x1000 => [("12KB", 3), ("40KB", 10), ("1GB", 1 << 18)].to_vec(),
        0x2_0000 => [("384KB", 3), ("1.25MB", 10), ("1GB", 1 << 13)].to_vec(),
        0x40_0000 => [("12MB", 3), ("40MB", 10), ("1GB", 1 << 8)].to_vec(),
        _ => [("256MB", 3), ("1.25GB", 10)].to_vec(),
    };
    let least = if arena == 4 * KB { message } else { 0 };
    let large = caps.into_iter().filter(|&(_, arenas)| u64::from(arenas) * arena >= least);
    let caps = large.map(|(name, arenas)| (name, Some(arenas))).chain([("NoLimit", None)]);
    caps.map(|(max_mem, cap)| Cell { arena, message, cap, max_mem }).collect()
}

/// The whole product: bigqueue's first table has each arena with messages of 128 B, 16 KB and 1 MB
/// (42 cells), its later ones each arena with one message.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (arena, message) in PAIRS {
        let mut messages = vec![message, 128, 16 * KB, MB];
        messages.sort_unstable();
        messages.dedup();
        cells.extend(messages.into_iter().flat_map(|message| under_caps(arena, message)));
    }
    cells
}

/// The 12 cells of bigqueue's later tables, among them those of strings and of threads.
pub fn pairs() -> Vec<Cell> {
    let pairs = PAIRS.into_iter().flat_map(|(arena, message)| under_caps(arena, message));
    pairs.filter(|cell| cell.max_mem != "1GB").collect()
}
