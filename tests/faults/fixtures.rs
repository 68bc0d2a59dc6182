//! Queues as files that are checked in: `tests/fixtures/NAME/`, with its contents in `NAME.txt`. A
//! copy of each is opened and must hold exactly these. The bytes are read by the tables of
//! docs/format.md, without the code that wrote them.
//!
//! `MMQ_BLESS=1 cargo test --test faults fixtures` makes the directories anew, never the texts.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::support::{copy_directory, names, segments};
use mmq::{Error, Message, Options, Queue};

type Make = fn(&Path);

/// Every fixture, and the function that makes it in a directory that does not exist yet.
const STATES: [(&str, Make); 5] = [
    ("closed", closed),
    ("worked", worked),
    ("killed", killed),
    ("damaged", damaged),
    ("index_lost", index_lost),
];

/// The fixture with dead letters. No public call puts one in, so a test in the library makes it:
/// `MMQ_BLESS=1 cargo test --lib dead_letters::the_fixture` (`src/tests/dead_letters/mod.rs`).
const DEAD_LETTERS: &str = "letters";

/// The shortest segments there are: two pages.
fn options() -> Options {
    Options::new().arena_size(4096).max_bytes(64 << 10)
}

/// A text that is recognised wherever it is cut.
fn long(name: &str, len: usize) -> String {
    let mut text: String = (0..len).map(|n| format!("{name} {n}, ")).collect();
    text.truncate(len);
    text
}

/// Created, closed, and never used.
fn closed(dir: &Path) {
    options().open(dir).unwrap().close().unwrap();
}

/// Messages in one piece, a batch, a message over two segments. The default consumer has taken two;
/// `worker` has acknowledged one out of order. Closed.
fn worked(dir: &Path) {
    let queue = options().open(dir).unwrap();
    let worker = queue.consumer("worker").unwrap();
    for text in ["first", "second", "third"] {
        queue.enqueue(text).unwrap();
    }
    queue.enqueue_batch(["one of three", "", "three of three"]).unwrap();
    queue.enqueue(long("over two segments", 9000)).unwrap();
    queue.enqueue("last").unwrap();
    queue.dequeue().unwrap();
    queue.dequeue().unwrap();
    let handed = [worker.receive().unwrap().unwrap(), worker.receive().unwrap().unwrap()];
    let [first, second] = handed;
    second.ack().unwrap();
    drop(first);
    queue.close().unwrap();
}

/// The files of a process that died with the queue open. Half of the messages were flushed.
fn killed(dir: &Path) {
    let home = crate::support::tempdir().unwrap();
    let queue = options().open(home.path()).unwrap();
    queue.enqueue("flushed").unwrap();
    queue.enqueue("taken, and flushed").unwrap();
    queue.dequeue().unwrap();
    queue.flush().unwrap();
    queue.dequeue().unwrap();
    queue.enqueue("not flushed").unwrap();
    queue.enqueue_batch(["nor this", "nor that"]).unwrap();
    copy_directory(home.path(), dir);
}

/// Closed; then a byte of one message was changed, and the last segment removed.
fn damaged(dir: &Path) {
    let queue = options().open(dir).unwrap();
    let _ = queue.peek().unwrap();
    for number in 0..10 {
        queue.enqueue(long(&format!("message {number}"), 1500)).unwrap();
    }
    queue.close().unwrap();
    let files = segments(dir);
    let mut bytes = fs::read(&files[0]).unwrap();
    let at = bytes.windows(12).position(|bytes| bytes == b"message 2 7,").unwrap();
    bytes[at] ^= 1;
    fs::write(&files[0], bytes).unwrap();
    fs::remove_file(files.last().unwrap()).unwrap();
}

/// As `worked`, but the index is gone.
fn index_lost(dir: &Path) {
    worked(dir);
    fs::remove_file(dir.join("index")).unwrap();
}

/// The directory of the fixtures. With `MMQ_BLESS` they are made anew once.
fn fixtures() -> PathBuf {
    static MADE: Once = Once::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    MADE.call_once(|| {
        for (state, make) in STATES.iter().filter(|_| std::env::var_os("MMQ_BLESS").is_some()) {
            let _ = fs::remove_dir_all(fixtures.join(state));
            make(&fixtures.join(state));
        }
    });
    fixtures
}

/// All that a queue reports, in the words of the texts.
fn reported(queue: &Queue, dir: &Path) -> String {
    let mut reported = format!("{} messages\n", queue.len());
    let mut consumers = queue.consumers();
    consumers.sort();
    for name in std::iter::once(String::new()).chain(consumers) {
        let named = (!name.is_empty()).then(|| queue.consumer(&name).unwrap());
        let _ = writeln!(reported, "{}", if name.is_empty() { "default consumer" } else { &name });
        loop {
            match named.as_ref().map_or_else(|| queue.dequeue(), |consumer| consumer.dequeue()) {
                Ok(None) => break,
                Ok(Some(message)) if message.len() > 40 => {
                    let sum = xxhash_rust::xxh3::xxh3_64(&message);
                    let (seq, len, from) = (message.seq(), message.len(), from(&message));
                    let _ = writeln!(reported, "  {seq}: {len} bytes, XXH3 {sum:016x}{from}");
                }
                Ok(Some(message)) => {
                    let text = message.as_str().unwrap();
                    let _ = writeln!(reported, "  {}: {text:?}{}", message.seq(), from(&message));
                }
                Err(Error::Gap(gap)) => {
                    _ = writeln!(reported, "  {} to {}: gap, {:?}", gap.first, gap.last, gap.cause);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    let _ = writeln!(reported, "next number {}", queue.enqueue("next").unwrap());
    for name in names(dir).into_iter().filter(|name| name.ends_with(".damaged")) {
        let _ = writeln!(reported, "set aside {name}");
    }
    reported
}

/// The origin of a dead letter.
fn from(message: &Message) -> String {
    message.origin().map_or_else(String::new, |origin| {
        let id = String::from_utf8_lossy(&origin.queue_id).into_owned();
        format!(", from {id:?}, {}, after {}", origin.seq, origin.attempts)
    })
}

#[test]
fn what_was_written_is_read() {
    let mut others = String::new();
    for state in STATES.iter().map(|(state, _)| *state).chain([DEAD_LETTERS]) {
        let kept = fixtures().join(state);
        let text = fs::read_to_string(fixtures().join(format!("{state}.txt"))).unwrap_or_default();
        // The text before the first empty line is for people.
        let (_, holds) = text.split_once("\n\n").unwrap_or_default();
        let home = crate::support::tempdir().unwrap();
        let dir = home.path().join("queue");
        copy_directory(&kept, &dir);
        let queue = options().create(false).open(&dir).unwrap();
        let reported = reported(&queue, &dir);
        if reported != holds {
            let _ = writeln!(others, "{state} holds\n{reported}and not\n{holds}");
        }
        queue.close().unwrap();
        // And everything was reported once.
        let queue = options().create(false).open(&dir).unwrap();
        let rest = std::iter::from_fn(|| queue.dequeue().unwrap()).map(|message| message.to_vec());
        assert_eq!(rest.collect::<Vec<_>>(), [b"next"], "{state}, opened again");
    }
    assert!(others.is_empty(), "{others}");
}

/// Files of version 1 with its first checksums: they are older, not damaged.
#[test]
fn an_older_format_is_refused_and_not_touched() {
    for without in [None, Some("index")] {
        let home = crate::support::tempdir().unwrap();
        let dir = home.path().join("queue");
        copy_directory(&fixtures().join("older"), &dir);
        without.map_or(Ok(()), |name| fs::remove_file(dir.join(name))).unwrap();
        let before = names(&dir);
        let refused = Queue::open(&dir).unwrap_err();
        assert!(matches!(refused, Error::UnsupportedFormat { found: 1, .. }), "{refused}");
        assert!(refused.to_string().contains("format version 1 is not supported"), "{refused}");
        assert!(matches!(
            mmq::Inspector::open(&dir).and_then(|inspector| inspector.snapshot()),
            Err(Error::UnsupportedFormat { found: 1, .. })
        ));
        assert_eq!(names(&dir), before);
    }
}

/// The checksum of a table, or of a payload of at most 4 KiB: no code of the library's.
fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    assert!(bytes.len() <= 4096);
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed.into()) as u32
}

/// The checksum of words.
fn of_words<const N: usize>(seed: u32, words: [u64; N]) -> u32 {
    let mut state = u128::from(seed);
    for word in words {
        let product = (state ^ 0xbe4b_a423_396c_feb8) * u128::from(word ^ 0x1cad_21f7_2c81_017c);
        state = (product ^ product >> 64) & u128::from(u64::MAX);
    }
    state as u32
}

/// A part of a file, read by the names of docs/format.md.
struct Part<'a> {
    bytes: &'a [u8],
    /// The heading of its table.
    heading: &'static str,
}

impl<'a> Part<'a> {
    fn of(file: &'a [u8], at: usize, heading: &'static str) -> Part<'a> {
        Part { bytes: &file[at..], heading }
    }

    fn field(&self, name: &str) -> &'a [u8] {
        let (at, len) = row(self.heading, name);
        &self.bytes[at..at + len]
    }

    fn number(&self, name: &str) -> u64 {
        self.field(name).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The field of that name is the checksum of all bytes before it, seeded with those.
    #[track_caller]
    fn check(&self, name: &str, seed: &[u8]) {
        let (at, _) = row(self.heading, name);
        let seed = if seed.is_empty() { 0 } else { checksum(0, seed) };
        let sum = checksum(seed, &self.bytes[..at]);
        assert_eq!(self.number(name), u64::from(sum), "{name}");
    }
}

/// Offset and length of a field, as the table below that heading has it.
#[track_caller]
fn row(heading: &str, name: &str) -> (usize, usize) {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/format.md")).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let mut rows = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let is_named = |cell: &str| cell.split('`').nth(1) == Some(name) || cell.starts_with(name);
    let cells = rows.find(|cells| is_named(cells[3])).expect(name);
    (cells[1].parse().unwrap(), cells[2].parse().unwrap())
}

#[test]
fn the_bytes_lie_where_the_page_says() {
    let dir = fixtures().join("worked");
    let index = fs::read(dir.join("index")).unwrap();
    let header = Part::of(&index, row("Index file `index`", "INDEX_HEADER").0, "Index header");
    assert_eq!(
        (header.field("INDEX_MAGIC"), header.number("VERSION")),
        (b"mmqindex".as_slice(), 3)
    );
    header.check("INDEX_SUM", &[]);
    let id = header.field("QUEUE_ID");
    // The newer checkpoint is the one of the end.
    let slot = |name| Part::of(&index, row("Index file `index`", name).0, "Checkpoint");
    let slots = [slot("CHECKPOINT_A"), slot("CHECKPOINT_B")];
    let newest = slots.iter().max_by_key(|slot| slot.number("CHECKPOINT_NUMBER")).unwrap();
    newest.check("CHECKPOINT_SUM", id);
    assert_eq!((newest.number("CLEAN"), newest.number("DURABLE_SEQ")), (1, 8));
    let live = Part::of(&index, row("Index file `index`", "LIVE").0, "Live part");
    let [tail, seq] = ["TAIL_POSITION", "TAIL_SEQ"].map(|name| live.number(name));
    assert_eq!((tail, seq), (newest.number("DURABLE_POSITION"), 8));
    for run in ["RUN_A", "RUN_B"] {
        Part::of(live.bytes, row("Live part", run).0, "Live part").check("RUN_SUM", id);
    }
    for reserved in ["UNREPORTED", "ATTEMPTS"] {
        let (at, len) = row("Index file `index`", reserved);
        assert!(index[at..at + len].iter().all(|byte| *byte == 0), "{reserved}");
    }
    look_at_segments(&dir, &index, id, tail);
}

/// Segments: their headers, one behind the other.
fn look_at_segments(dir: &Path, index: &[u8], id: &[u8], tail: u64) {
    let files = segments(dir);
    let files: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    let mut bases = Vec::new();
    for file in &files {
        let segment = Part::of(file, 0, "Segment file `segment-NNNNNNNN`");
        assert_eq!(
            (segment.field("SEGMENT_MAGIC"), segment.number("VERSION")),
            (b"mmqsegmt".as_slice(), 3)
        );
        assert_eq!((segment.field("QUEUE_ID"), segment.number("STATE")), (id, 1));
        segment.check("HEADER_SUM", &[]);
        bases.push((segment.number("BASE"), segment.number("LENGTH")));
    }
    assert_eq!(bases.len(), 2, "a message lies in two segments");
    assert_eq!(bases[1].0, bases[0].0 + bases[0].1 - 128, "positions go on");
    assert!((bases[1].0..bases[1].0 + bases[1].1 - 128).contains(&tail));
    // The records, with their kinds and checksums.
    let mut seen = Vec::new();
    for file in &files {
        let segment = Part::of(file, 0, "Segment file `segment-NNNNNNNN`");
        let base = segment.number("BASE");
        let life = [segment.number("LIFE"), segment.number("BASE")];
        let seed = of_words(checksum(0, id), life) ^ segment.number("SALT") as u32;
        let mut at = 128;
        while at + 16 <= file.len() && base + (at as u64 - 128) < tail {
            let fragment = Part::of(file, at, "Fragment");
            let (len, kind) =
                (fragment.number("FRAGMENT_LEN") as usize, fragment.number("FRAGMENT_KIND"));
            let words = [
                (at as u64 - 128) << 32 | len as u64,
                fragment.number("FRAGMENT_SEQ") | kind << 40,
            ];
            let header = of_words(0, words) ^ seed;
            let check = u64::from((header ^ header >> 16) as u16);
            assert_eq!(fragment.number("FRAGMENT_CHECK"), check);
            if kind & 7 == 1 {
                let payload = checksum(0, &file[at + 16..at + 16 + len]);
                assert_eq!(fragment.number("FRAGMENT_SUM"), u64::from(header ^ payload));
            }
            seen.push((fragment.number("FRAGMENT_SEQ"), kind, len));
            at += 16 + len.next_multiple_of(8) + if kind & 8 == 0 { 0 } else { 8 };
        }
    }
    let [more, continues, seal] = [16, 32, 8];
    let [first, last] = [seen[6], seen[7]];
    assert_eq!((first.0, first.1, last.0, last.1, first.2 + last.2), (6, 2, 6, 4, 9000));
    seen.drain(6..8);
    let whole = [
        (0, 1, 5),
        (1, 1, 6),
        (2, 1, 5),
        (3, 1 | more, 12),
        (4, 1 | more | continues, 0),
        (5, 1 | continues | seal, 14),
        (7, 1, 4),
    ];
    assert_eq!(seen, whole);
    // The place of the consumer in the second row.
    let (consumers, _) = row("Index file `index`", "first extent of consumers");
    let name = Part::of(index, consumers + 256, "Name of a consumer");
    assert_eq!((name.number("NAME_LEN"), &name.field("NAME")[..6]), (6, b"worker".as_slice()));
}

/// Dead letters: the version of index and segments, and the origins before the messages.
#[test]
fn origins_lie_where_the_page_says() {
    const SEGMENT: &str = "Segment file `segment-NNNNNNNN`";
    let dir = fixtures().join(DEAD_LETTERS);
    let index = fs::read(dir.join("index")).unwrap();
    let header = Part::of(&index, 0, "Index header");
    assert_eq!(header.number("VERSION"), 4);
    header.check("INDEX_SUM", &[]);
    let live = Part::of(&index, row("Index file `index`", "LIVE").0, "Live part");
    let tail = live.number("TAIL_POSITION");
    let mut files: Vec<_> = segments(&dir).iter().map(|path| fs::read(path).unwrap()).collect();
    files.sort_by_key(|file| Part::of(file, 0, SEGMENT).number("BASE"));
    let (mut versions, mut seen) = (Vec::new(), Vec::new());
    for file in &files {
        let segment = Part::of(file, 0, SEGMENT);
        segment.check("HEADER_SUM", &[]);
        versions.push(segment.number("VERSION"));
        let mut at = 128;
        while at + 16 <= file.len() && segment.number("BASE") + (at as u64 - 128) < tail {
            let fragment = Part::of(file, at, "Fragment");
            let (len, kind) =
                (fragment.number("FRAGMENT_LEN") as usize, fragment.number("FRAGMENT_KIND"));
            if kind & 64 != 0 {
                let origin = Part::of(file, at + 16, "Origin");
                assert_eq!(origin.field("ORIGIN_ID"), b"the other queue.");
                let [from, attempts] =
                    ["ORIGIN_SEQ", "ORIGIN_ATTEMPTS"].map(|name| origin.number(name));
                let text = String::from_utf8_lossy(&file[at + 48..at + 16 + len.min(45)]);
                let number = fragment.number("FRAGMENT_SEQ");
                seen.push((number, kind & 7, from, attempts, text.into_owned()));
            }
            at += 16 + len.next_multiple_of(8) + if kind & 8 == 0 { 0 } else { 8 };
        }
    }
    // The first dead letter began a segment of its own.
    assert_eq!(versions, [3, 4, 4]);
    let most = u64::from(u32::MAX);
    let wanted = [
        (1, 1, 1_000_000_007, 5, "a dead letter"),
        (4, 1, 0, 1, ""),
        (5, 2, most, most, "over two segm"),
    ];
    assert_eq!(seen, wanted.map(|(a, b, c, d, text)| (a, b, c, d, text.to_owned())));
}

#[test]
fn a_later_version_is_refused_and_no_byte_is_changed() {
    for (file, heading, name) in [
        ("index", "Index header", "INDEX_SUM"),
        ("segment-00000000", "Segment file `segment-NNNNNNNN`", "HEADER_SUM"),
    ] {
        let home = crate::support::tempdir().unwrap();
        let dir = home.path().join("queue");
        copy_directory(&fixtures().join("worked"), &dir);
        let mut bytes = fs::read(dir.join(file)).unwrap();
        let (at, len) = row(heading, "VERSION");
        bytes[at..at + len].copy_from_slice(&5u32.to_le_bytes());
        let (at, len) = row(heading, name);
        let sum = checksum(0, &bytes[..at]);
        bytes[at..at + len].copy_from_slice(&sum.to_le_bytes());
        fs::write(dir.join(file), bytes).unwrap();
        let all = |dir: &Path| {
            names(dir).into_iter().map(|name| fs::read(dir.join(name)).unwrap()).collect::<Vec<_>>()
        };
        let before = all(&dir);
        match options().open(&dir) {
            Err(Error::UnsupportedFormat { path, found: 5, supported: 4 }) => {
                assert_eq!(path, dir.join(file))
            }
            other => panic!("{file}: {other:?}"),
        }
        assert!(all(&dir) == before, "{file}: bytes were changed");
    }
}
