//! Lengths of segments and windows, and how many windows may be mapped.
//!
//! `List::next_len` chooses the length of the next segment from three lengths: the *backlog* (bytes
//! before the tail that some consumer has still to read, `State::backlog`), what its first record
//! needs, and the tail's segment. It is the shortest of 2 MiB, 4 MiB and so on, up to the arena
//! size, that is more than half the backlog and in which the record lies in one piece. If the
//! tail's segment is longer than that, the next one is one step longer while the backlog is at
//! least half of that. So the number of files grows with the logarithm of the backlog, and then by
//! one for each arena. While the backlog stays about the same, all segments have one length and are
//! reused as spares, the last used first: its memory is warm. The storage worker removes spares of
//! another length. With `max_bytes` the longest segment is a quarter of what the index leaves, and
//! the shortest a quarter of that, in whole pages and at least two. A queue that drops its oldest
//! messages ahead of need uses a sixteenth, except for a longer record.

use super::files::overhead;
use crate::format::{SEGMENT_HEADER_LEN, SHARED_SEGMENT_LEN, index_at};
use crate::options::OnFull;

/// Segment length of a nearly empty queue, if arenas are not shorter.
const LEAST_LEN: u64 = 2 << 20;

/// Queues that drop their oldest messages do so ahead of need from this `max_bytes` on. (Less in
/// tests, whose disks are small.)
const DROPS_AHEAD_FROM: u64 = if cfg!(test) { 128 << 10 } else { 16 << 20 };
/// Such a queue has at least this many segments, so that the space it keeps free is a small part.
const SHARES: u64 = 16;

#[cfg(test)]
thread_local! {
    /// The length of every segment of a queue that this thread opens.
    pub(crate) static LENGTH_HERE: std::cell::Cell<Option<u64>> =
        const { std::cell::Cell::new(None) };
}

/// The longest window that the writer maps where an arena is shorter.
const WRITER_LEN: u64 = 64 << 10;

/// Lengths and numbers that follow from the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Length of the shortest new segment file in bytes, header included.
    pub(crate) least_len: u64,
    /// Length of the longest new segment file for records that it has room for in one piece.
    pub(crate) usual_len: u64,
    /// Length of the longest new segment file.
    pub(crate) most_len: u64,
    /// Whether the queue drops its oldest messages before it needs their space.
    pub(crate) drops_ahead: bool,
    /// Length of a mapped window in bytes: a whole segment, or an arena when the cap is tight.
    pub(crate) window_len: u64,
    /// How many bytes may be mapped at a time.
    pub(crate) max_mapped: u64,
}

impl Geometry {
    /// Derives the lengths from the options. Small arenas share a segment. A queue with `max_bytes`
    /// has at least four segments, or as many as its bytes allow, so that evicting one is a small
    /// step.
    pub(crate) fn new(
        arena_size: u64,
        max_mapped_arenas: Option<u32>,
        max_bytes: Option<u64>,
        on_full: OnFull,
        page: u64,
    ) -> Geometry {
        let mut most_len = arena_size.max(SHARED_SEGMENT_LEN / arena_size * arena_size);
        let mut least_len = LEAST_LEN.min(most_len);
        let (mut usual_len, mut drops_ahead) = (most_len, false);
        if let Some(max_bytes) = max_bytes {
            let room = max_bytes.saturating_sub(index_at::END as u64);
            let most = (room / 4).max(2 * page);
            let cut = |length: u64, most: u64| {
                let unit = if arena_size <= most { arena_size } else { page };
                if length > most { most / unit * unit } else { length }
            };
            most_len = cut(most_len, most);
            least_len = least_len.min((most_len / 4 / page * page).max(2 * page));
            usual_len = most_len;
            drops_ahead = on_full == OnFull::DropOldest && max_bytes >= DROPS_AHEAD_FROM;
            if drops_ahead {
                let share = room / SHARES;
                usual_len = cut(most_len, (share - overhead(share)).max(2 * page));
                least_len = least_len.min(usual_len);
            }
        }
        #[cfg(test)]
        if let Some(length) = LENGTH_HERE.get() {
            (least_len, usual_len, most_len) = (length, length, length);
        }
        let cap = max_mapped_arenas.map(|arenas| u64::from(arenas).saturating_mul(arena_size));
        let max_mapped = cap.unwrap_or(u64::MAX);
        let window_len = if max_mapped / most_len < 3 { arena_size } else { most_len };
        holds!(
            least_len <= usual_len && usual_len <= most_len,
            "segments have lengths from {least_len} by {usual_len} to {most_len}"
        );
        holds!(
            window_len <= most_len.max(arena_size) && window_len.is_multiple_of(page),
            "a window of {window_len} bytes is a whole segment of {most_len} or an arena"
        );
        Geometry { least_len, usual_len, most_len, drops_ahead, window_len, max_mapped }
    }

    /// Returns the length of the writer's windows: several arenas where these are very short, up to
    /// two thirds of the cap. Each window costs two calls and a fault, whatever its length.
    /// (Enqueue of 128 bytes, arenas of 4 KiB: 300 ns; with a window of two of three arenas 180,
    /// with six of ten 125. With three, a message that comes alone is copied: it is shorter than a
    /// window.)
    pub(crate) fn writer_len(&self) -> u64 {
        let most = (self.max_mapped / 3 * 2).min(WRITER_LEN);
        (most / self.window_len * self.window_len).max(self.window_len)
    }

    /// Returns the length of the segment behind one of the length `present`, when consumers have
    /// `backlog` bytes still to read and its first record takes `need`. Lengths double as the
    /// backlog grows: a long backlog has few files, and a nearly empty queue reuses warm memory.
    /// While the backlog stays about the same, so does the length, and segments are reused.
    pub(crate) fn next_len(&self, present: u64, backlog: u64, need: u64) -> u64 {
        let whole = SEGMENT_HEADER_LEN + need;
        let most = if whole > self.usual_len { self.most_len } else { self.usual_len };
        let is_short = |length| 2 * length <= backlog || length < whole;
        let mut length = self.least_len;
        while length < most && is_short(length) {
            length *= 2;
        }
        if present > length && backlog >= length {
            length *= 2;
        }
        let length = length.min(most);
        holds!(
            self.least_len <= length && length <= self.most_len,
            "a segment of {length} bytes has a length between {} and {}",
            self.least_len,
            self.most_len
        );
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_drops_ahead_has_sixteen_segments_but_for_long_records() {
        let dropping = |arena, max| Geometry::new(arena, None, Some(max), OnFull::DropOldest, 4096);
        for max in [DROPS_AHEAD_FROM, 1 << 20, 16 << 20, 64 << 20, 1 << 30] {
            let room = max - index_at::END as u64;
            for arena in [4096, 65536, 4 << 20, 128 << 20] {
                let geometry = dropping(arena, max);
                let Geometry { least_len, usual_len, most_len, .. } = geometry;
                assert!(geometry.drops_ahead);
                assert_eq!(most_len, self::geometry(arena, None, Some(max)).most_len);
                assert!(least_len <= usual_len && usual_len <= most_len, "{arena} {max}");
                assert!(16 * (usual_len + overhead(usual_len)) <= room.max(16 * 8192));
                assert_eq!(geometry.next_len(usual_len, max, usual_len / 2), usual_len);
                assert_eq!(geometry.next_len(usual_len, 0, most_len - 128), most_len);
            }
        }
        assert!(!dropping(4096, DROPS_AHEAD_FROM - 1).drops_ahead);
    }

    fn geometry(arena: u64, cap: Option<u32>, max: Option<u64>) -> Geometry {
        Geometry::new(arena, cap, max, OnFull::Reject, 4096)
    }

    #[test]
    fn geometry_follows_arena_cap_and_limit() {
        let lens = |geometry: Geometry| (geometry.least_len, geometry.most_len);
        let windows = |geometry: Geometry| (geometry.window_len, geometry.max_mapped);
        assert_eq!(lens(geometry(4096, Some(3), None)), (2 << 20, 4 << 20));
        assert_eq!(windows(geometry(4096, Some(3), None)), (4096, 3 * 4096));
        assert_eq!(windows(geometry(4 << 20, Some(3), None)), (4 << 20, 12 << 20));
        assert_eq!(lens(geometry(128 << 20, Some(10), None)), (2 << 20, 128 << 20));
        assert_eq!(windows(geometry(128 << 20, Some(10), None)), (128 << 20, 1280 << 20));
        assert_eq!(windows(geometry(4096, None, None)), (4 << 20, u64::MAX));
        assert_eq!(lens(geometry(4096, Some(3), Some(65536))), (8192, 8192));
        for max in [65536, 100_000, 1 << 20, 64 << 20, 1 << 30] {
            for arena in [4096, 12288, 65536, 4 << 20, 128 << 20] {
                let geometry = geometry(arena, Some(3), Some(max));
                let (least, most) = lens(geometry);
                assert!(8192 <= least && least <= most && most <= max / 4, "{arena} {max}");
                assert!(least.is_multiple_of(4096) && most.is_multiple_of(4096), "{arena} {max}");
                assert_eq!(geometry.max_mapped, 3 * arena, "{arena} {max}");
                assert!(3 * geometry.window_len <= 3 * arena, "{arena} {max}");
            }
        }
    }

    #[test]
    fn the_writer_maps_several_very_short_arenas_at_once() {
        let lens = [(4096, 3, 8192), (4096, 10, 24576), (4096, 100, 65536), (12288, 3, 24576)];
        for (arena, cap, len) in lens {
            assert_eq!(geometry(arena, Some(cap), None).writer_len(), len, "{cap} of {arena}");
        }
        for (arena, cap) in [(64 << 10, 3), (128 << 10, 10), (4 << 20, 3)] {
            let geometry = geometry(arena, Some(cap), None);
            assert_eq!(geometry.writer_len(), geometry.window_len, "{cap} of {arena}");
        }
        let uncapped = geometry(4096, None, None);
        assert_eq!(uncapped.writer_len(), uncapped.window_len);
    }

    #[test]
    fn segments_are_short_while_little_is_to_be_read_and_double_with_the_backlog() {
        const MIB: u64 = 1 << 20;
        let geometry = geometry(128 * MIB, None, None);
        assert_eq!(geometry.next_len(2 * MIB, 0, 100), 2 * MIB);
        assert_eq!(geometry.next_len(2 * MIB, 4 * MIB - 1, 100), 2 * MIB);
        assert_eq!(geometry.next_len(2 * MIB, 4 * MIB, 100), 4 * MIB);
        assert_eq!(geometry.next_len(2 * MIB, 0, 2 * MIB), 4 * MIB, "the record is in one piece");
        assert_eq!(geometry.next_len(2 * MIB, 0, 1000 * MIB), 128 * MIB);
        assert_eq!(geometry.next_len(128 * MIB, 0, 100), 2 * MIB);
        let (mut backlog, mut present, mut files) = (0, 0, 0);
        while backlog < 1024 * MIB {
            present = geometry.next_len(present, backlog, 100);
            (backlog, files) = (backlog + present, files + 1);
        }
        assert!(files <= 16, "{files} files for {backlog} bytes");
    }

    #[test]
    fn a_backlog_that_goes_up_and_down_by_a_third_has_segments_of_one_length() {
        let geometry = geometry(100 << 20, None, None);
        for backlog in [2 << 20, 3 << 20, 4 << 20, 5 << 20, 60 << 20, 100 << 20, 1 << 30] {
            let more = geometry.next_len(0, backlog * 4 / 3, 100);
            let settled = geometry.next_len(more, backlog, 100);
            assert_eq!(geometry.next_len(settled, backlog * 4 / 3, 100), settled, "{backlog}");
            assert_eq!(geometry.next_len(settled, backlog, 100), settled, "{backlog}");
        }
    }
}
