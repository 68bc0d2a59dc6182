//! Lengths of segments and windows, and how many windows may be mapped.

use crate::format::{SHARED_SEGMENT_LEN, index_at};

/// Lengths and numbers that follow from the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Length of a new segment file in bytes, header included.
    pub(crate) segment_len: u64,
    /// Length of a mapped window in bytes: a whole segment, or an arena when the cap is tight.
    pub(crate) window_len: u64,
    /// How many windows may be mapped at a time.
    pub(crate) max_windows: usize,
}

impl Geometry {
    /// Small arenas share a segment. A queue with `max_bytes` has at least eight segments, or as
    /// many as its bytes allow, so that giving one back is a small step.
    pub(crate) fn new(
        arena_size: u64,
        max_mapped_arenas: Option<u32>,
        max_bytes: Option<u64>,
        page: u64,
    ) -> Geometry {
        let mut segment_len = arena_size.max(SHARED_SEGMENT_LEN / arena_size * arena_size);
        if let Some(max_bytes) = max_bytes {
            let room = max_bytes.saturating_sub(index_at::END as u64);
            let most = (max_bytes / 8).min(room / 3).max(2 * page);
            if segment_len > most {
                let unit = if arena_size <= most { arena_size } else { page };
                segment_len = most / unit * unit;
            }
        }
        let cap = max_mapped_arenas.map(|arenas| u64::from(arenas).saturating_mul(arena_size));
        match cap {
            Some(cap) if cap / segment_len < 3 => Geometry {
                segment_len,
                window_len: arena_size,
                max_windows: max_mapped_arenas.unwrap_or(3) as usize,
            },
            Some(cap) => Geometry {
                segment_len,
                window_len: segment_len,
                max_windows: usize::try_from(cap / segment_len).unwrap_or(usize::MAX),
            },
            None => Geometry { segment_len, window_len: segment_len, max_windows: usize::MAX },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_follows_arena_cap_and_limit() {
        let geometry = |arena, cap, max| Geometry::new(arena, cap, max, 4096);
        assert_eq!(
            geometry(4096, Some(3), None),
            Geometry { segment_len: 4 << 20, window_len: 4096, max_windows: 3 }
        );
        assert_eq!(
            geometry(4 << 20, Some(3), None),
            Geometry { segment_len: 4 << 20, window_len: 4 << 20, max_windows: 3 }
        );
        assert_eq!(geometry(128 << 20, Some(10), None).max_windows, 10);
        assert_eq!(
            geometry(4096, None, None),
            Geometry { segment_len: 4 << 20, window_len: 4 << 20, max_windows: usize::MAX }
        );
        let small = geometry(4096, Some(3), Some(65536));
        assert_eq!(small.segment_len, 8192);
        for max in [65536, 100_000, 1 << 20, 64 << 20, 1 << 30] {
            for arena in [4096, 12288, 65536, 4 << 20, 128 << 20] {
                let geometry = geometry(arena, Some(3), Some(max));
                assert!(
                    geometry.segment_len <= max / 4 && geometry.segment_len.is_multiple_of(4096),
                    "{arena} {max}"
                );
                assert!(
                    geometry.window_len * geometry.max_windows as u64 <= 3 * arena,
                    "{arena} {max}"
                );
            }
        }
    }
}
