//! An undamaged queue to be copied and damaged, and what each damage of it may cost.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mmq::Options;
use tempfile::TempDir;

use crate::support::{KIB, MIB, Messages, copy_directory, segments};

/// As docs/format.md has them: these tests read the files without the library's own code.
const SEGMENT_HEADER: u64 = 128;
const FRAGMENT_HEADER: u64 = 16;

/// One fragment of a message in a segment file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    /// Offset of its header in the file, and of the byte behind its payload.
    pub(crate) at: u64,
    pub(crate) end: u64,
    pub(crate) seq: u64,
}

pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) len: u64,
    position: u64,
    /// In order. Those of messages that every consumer has passed are left out.
    pub(crate) fragments: Vec<Fragment>,
}

/// A consumer of the base, and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    /// `None` is the default consumer.
    pub(crate) name: Option<&'static str>,
    pub(crate) place: u64,
    /// Acknowledged already, beyond the place.
    pub(crate) done: Vec<u64>,
}

/// Stands at the oldest message and never reads, so that nothing is given back while the others do.
pub(crate) const WITNESS: &str = "witness";

/// An undamaged queue, closed cleanly, to be copied for each case.
pub(crate) struct Base {
    pub(crate) dir: TempDir,
    pub(crate) options: Options,
    pub(crate) messages: Messages,
    /// The oldest message that is held, and the next number.
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) readers: Vec<Reader>,
    /// In the order of their messages.
    pub(crate) live: Vec<Segment>,
    /// Files that hold no message that is still to come.
    pub(crate) spare: Vec<Segment>,
    /// All held messages one behind the other, and where each begins.
    contents: Vec<u8>,
    starts: Vec<usize>,
}

impl Base {
    /// Some messages go through first, so that segments are recycled and hold stale records.
    fn new(options: Options, messages: Messages, passed: u64, total: u64) -> Base {
        let dir = crate::support::tempdir().unwrap();
        let files = dir.path().join("queue");
        let queue = options.clone().open(&files).unwrap();
        for seq in 0..passed {
            queue.enqueue(messages.bytes(seq)).unwrap();
            if seq % 16 == 15 {
                assert_eq!(queue.dequeue_batch(16).unwrap().len(), 16);
            }
        }
        copy_directory(&files, &dir.path().join("before recycling"));
        assert!(queue.is_empty(), "all that passed is taken out");
        let (first, next) = (passed, passed + total);
        let (mut contents, mut starts) = (Vec::new(), vec![0]);
        for seq in first..next {
            let bytes = messages.bytes(seq);
            assert_eq!(queue.enqueue(&bytes).unwrap(), seq);
            contents.extend_from_slice(&bytes);
            starts.push(contents.len());
            if seq == passed + total / 2 {
                copy_directory(&files, &dir.path().join("half way"));
            }
        }
        let reader = |name, place| Reader { name, place, done: Vec::new() };
        let mut readers = vec![
            reader(Some("behind"), first),
            reader(Some("ahead"), first + total * 3 / 4),
            reader(Some("worker"), first + total * 2 / 3),
            // Last: the others keep what it passes.
            reader(None, first + total / 50),
        ];
        queue.consumer(WITNESS).unwrap().seek(first).unwrap();
        for reader in &mut readers {
            let Some(name) = reader.name else {
                (first..reader.place).for_each(|seq| assert_eq!(queue.skip().unwrap(), Some(seq)));
                continue;
            };
            let consumer = queue.consumer(name).unwrap();
            // All but the default one begin with the oldest message held, which may lie before
            // `first`.
            consumer.seek(reader.place).unwrap();
            if name == "worker" {
                consumer.set_max_in_flight(None).unwrap();
                let deliveries: Vec<_> =
                    (0..8).map(|_| consumer.receive().unwrap().unwrap()).collect();
                for delivery in deliveries.into_iter().skip(1).step_by(2) {
                    reader.done.push(delivery.seq());
                    delivery.ack().unwrap();
                }
            }
        }
        queue.close().unwrap();
        readers.rotate_right(1);
        let (live, spare) = (Vec::new(), Vec::new());
        let mut base =
            Base { dir, options, messages, first, next, readers, live, spare, contents, starts };
        for path in segments(&files) {
            let segment = base.look_into(&path);
            let list = if segment.fragments.is_empty() { &mut base.spare } else { &mut base.live };
            list.push(segment);
        }
        base.live.sort_by_key(|segment| segment.position);
        let found: Vec<u64> =
            base.live.iter().flat_map(|segment| &segment.fragments).map(|f| f.seq).collect();
        assert!(found.is_sorted(), "the segments' messages do not follow each other");
        assert!(
            (first..next).eq(found.chunk_by(|a, b| a == b).map(|chunk| chunk[0])),
            "messages are missing"
        );
        base
    }

    /// What the file holds, fragment by fragment.
    fn look_into(&self, path: &Path) -> Segment {
        const PADDING: u8 = 5;
        const GAP: u8 = 6;
        let bytes = fs::read(path).unwrap();
        let word =
            |at: u64| u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap());
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut segment =
            Segment { name, len: bytes.len() as u64, position: word(40), fragments: Vec::new() };
        let is_live = bytes[12] == 1;
        let (mut at, mut before) = (SEGMENT_HEADER, word(48).saturating_sub(1));
        while is_live && at + FRAGMENT_HEADER <= segment.len {
            let end = at + FRAGMENT_HEADER + (word(at) >> 32);
            let seq = word(at + 8) & 0xff_ffff_ffff;
            let kind = bytes[at as usize + 13] & 15;
            // Behind the tail lies what an earlier use of the file has left: lower numbers, or
            // nothing.
            let follows = seq == before || seq == before + 1;
            if kind == 0
                || kind == PADDING
                || kind == GAP
                || !follows
                || seq >= self.next
                || end > segment.len
            {
                break;
            }
            if seq >= self.first {
                segment.fragments.push(Fragment { at, end, seq });
            }
            before = seq;
            at = end.next_multiple_of(8);
        }
        segment
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.dir.path().join("queue")
    }

    #[track_caller]
    pub(crate) fn check(&self, seq: u64, bytes: &[u8]) {
        assert!(seq < self.next, "message {seq} was never enqueued");
        if seq < self.first {
            // Passed, and held together with the first that is not: a reader whose place is lost
            // begins there.
            return self.messages.check(seq, bytes);
        }
        let at = (seq - self.first) as usize;
        assert!(
            bytes == &self.contents[self.starts[at]..self.starts[at + 1]],
            "message {seq} is not what was enqueued"
        );
    }

    /// Segment and fragment of each piece of the messages that lie in more than one.
    pub(crate) fn split(&self) -> Vec<(&Segment, Fragment)> {
        let of = |segment| move |fragment: &Fragment| (segment, *fragment);
        let all: Vec<_> = self
            .live
            .iter()
            .flat_map(|segment| segment.fragments.iter().map(of(segment)))
            .collect();
        all.chunk_by(|a, b| a.1.seq == b.1.seq)
            .filter(|pieces| pieces.len() > 1)
            .flatten()
            .copied()
            .collect()
    }

    /// The messages that damage of the bytes `from..to` of a segment may cost: those touched, and
    /// one at each side.
    pub(crate) fn cost(&self, segment: usize, from: u64, to: u64) -> RangeInclusive<u64> {
        let fragments = &self.live[segment].fragments;
        let before =
            fragments.iter().rfind(|fragment| fragment.end <= from).map(|fragment| fragment.seq);
        let after =
            fragments.iter().find(|fragment| fragment.at >= to).map(|fragment| fragment.seq);
        let mut touched =
            fragments.iter().filter(|fragment| fragment.at < to && fragment.end > from);
        let lower = match touched.next() {
            Some(fragment) => fragment.seq.saturating_sub(1),
            None => before.unwrap_or_else(|| fragments[0].seq.saturating_sub(1)),
        };
        let upper = match fragments.iter().rfind(|fragment| fragment.at < to && fragment.end > from)
        {
            Some(fragment) => fragment.seq + 1,
            None => after.unwrap_or_else(|| fragments[fragments.len() - 1].seq + 1),
        };
        lower..=upper
    }

    pub(crate) fn whole(&self, segment: usize) -> RangeInclusive<u64> {
        self.cost(segment, 0, u64::MAX)
    }
}

/// What may be lost, and whether the index was spared (or else places and the next number may not
/// be known exactly).
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) lost: RangeInclusive<u64>,
    pub(crate) index_spared: bool,
}

#[expect(clippy::reversed_empty_ranges, reason = "nothing may be lost")]
pub(crate) const NOTHING: RangeInclusive<u64> = 1..=0;

pub(crate) fn damaged_segment(lost: RangeInclusive<u64>) -> Verdict {
    Verdict { lost, index_spared: true }
}

pub(crate) fn damaged_index() -> Verdict {
    Verdict { lost: NOTHING, index_spared: false }
}

/// Mostly short messages, some of a few pages, and very few that do not fit the rest of a segment.
fn mixed() -> Vec<RangeInclusive<usize>> {
    let mut sizes = Vec::new();
    for last in [24..=2000, 300..=4000].into_iter().cycle().take(240) {
        sizes.extend([0..=40, 0..=40, 0..=40]);
        sizes.extend([24..=300, 24..=300, 24..=300, 24..=300, 24..=300]);
        sizes.push(last);
    }
    sizes.push(150 * KIB..=400 * KIB);
    sizes
}

/// The three queues: mixed sizes in small and in large arenas, and messages larger than arenas and
/// segments. They are made once for all tests that run at the same time, and removed with the last
/// of them: what a `static` itself owned would stay on the disk for ever.
pub(crate) fn bases() -> [Arc<Base>; 3] {
    static BASES: Mutex<[Weak<Base>; 3]> = Mutex::new([Weak::new(), Weak::new(), Weak::new()]);
    let mut kept = BASES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut base = |number: usize, make: &dyn Fn() -> Base| {
        kept[number].upgrade().unwrap_or_else(|| {
            let made = Arc::new(make());
            kept[number] = Arc::downgrade(&made);
            made
        })
    };
    let arenas = |size: usize| Options::new().arena_size(size as u64).max_mapped_arenas(3);
    [
        // A limit of disk makes the segments shorter than 4 MiB, so that there are more of them.
        base(0, &|| {
            let small = arenas(16 * KIB).max_bytes(8 << 20);
            let mut made = (6..50).map(|seed| {
                Base::new(small.clone(), Messages::new(seed, &mixed()), 16_000, 10_000)
            });
            made.find(|base| !base.split().is_empty()).expect("a message in two segments")
        }),
        base(1, &|| Base::new(arenas(4 * MIB), Messages::new(2, &mixed()), 16_000, 10_000)),
        base(2, &|| {
            let sizes = [0..=100, 24..=9000, 100 * KIB..=MIB, 4 * MIB..=5 * MIB];
            Base::new(arenas(64 * KIB), Messages::new(3, &sizes), 32, 24)
        }),
    ]
}
