//! What the fuzz targets run: `fuzz/` drives these bodies by coverage,
//! `tests/faults/fuzz_corpus.rs` over a corpus.
//!
//! Whatever the bytes are: the queue opens or says why not, nothing panics or hangs, no false
//! message comes, every number between two delivered ones is reported, and new messages go in and
//! come out.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use mmq::{Error, Options, Queue};

/// In memory where that is possible: a fuzzer makes thousands of queues a second.
fn scratch() -> tempfile::TempDir {
    crate::guard::tempdir_in_memory().expect("a scratch directory")
}

fn options() -> Options {
    Options::new().arena_size(4096).max_mapped_arenas(3).max_bytes(256 << 10)
}

const MESSAGES: u64 = 300;
const TAKEN: u64 = 60;

fn content(seq: u64) -> Vec<u8> {
    let len = match seq % 7 {
        0 => 0,
        6 => seq as usize * 31 % 9000,
        _ => seq as usize * 13 % 300,
    };
    (0..len as u64).map(|at| (seq.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8).collect()
}

/// The files of a small queue with drained, recycled and split segments, and two consumers.
fn base() -> &'static Vec<(String, Vec<u8>)> {
    static BASE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    BASE.get_or_init(|| {
        let dir = scratch();
        let queue = options().open(dir.path()).expect("the base queue");
        queue.consumer("other").expect("a consumer");
        let mut seq = 0;
        while seq < MESSAGES {
            if queue.enqueue(content(seq)).is_ok() {
                seq += 1;
            } else {
                break;
            }
            if seq % 5 == 0 && seq / 5 < TAKEN {
                queue.dequeue().expect("a message").expect("one is there");
                queue.consumer("other").expect("a consumer").skip().expect("a message");
            }
        }
        queue.close().expect("closing");
        let names = fs::read_dir(dir.path())
            .expect("the files")
            .map(|file| file.expect("a file").file_name());
        let mut files: Vec<_> = names
            .map(|name| {
                let bytes = fs::read(dir.path().join(&name)).expect("a file");
                (name.into_string().expect("a name"), bytes)
            })
            .collect();
        files.sort();
        files
    })
}

/// Applies edits `[file][offset: 3 bytes][length][bytes ..]` to those files; a file number of 255
/// truncates.
fn edited(data: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let mut files = base().clone();
    let editable: Vec<usize> = (0..files.len()).filter(|at| wanted(&files[*at].0)).collect();
    let mut rest = data;
    while let [file, a, b, c, len, tail @ ..] = rest {
        let (_, bytes) = &mut files[editable[*file as usize % editable.len()]];
        let offset = u32::from_le_bytes([*a, *b, *c, 0]) as usize % bytes.len().max(1);
        if *file == 255 {
            bytes.truncate(offset);
        }
        let count = usize::from(*len).min(tail.len());
        for (at, byte) in tail[..count].iter().enumerate() {
            if let Some(place) = bytes.get_mut(offset + at) {
                *place ^= *byte;
            }
        }
        rest = &tail[count..];
    }
    files
}

/// Where the index says for which directory its live part is true.
const TOKEN: std::ops::Range<usize> = 8192..8216;

/// The token of an index in its own directory, and of the base's.
fn token(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("index")).expect("the index")[TOKEN].to_vec()
}

/// Opens what was made of the base queue, and drains it to the end: in a copy, whose cache token
/// says so, and as if it were in the original directory, where the live part is believed.
fn judge(files: &[(String, Vec<u8>)]) {
    judge_in(&scratch(), files);
    let dir = scratch();
    put(dir.path(), base());
    let copied = token(dir.path());
    options().open(dir.path()).and_then(Queue::close).expect("the base queue opens");
    let change: Vec<u8> =
        token(dir.path()).iter().zip(copied).map(|(here, there)| here ^ there).collect();
    let mut files = files.to_vec();
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name == "index") {
        let token = bytes.iter_mut().skip(TOKEN.start).take(TOKEN.len());
        token.zip(&change).for_each(|(byte, change)| *byte ^= change);
    }
    for file in fs::read_dir(dir.path()).expect("the files") {
        fs::remove_file(file.expect("a file").path()).expect("removing");
    }
    judge_in(&dir, &files);
}

fn put(dir: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("a file");
    }
}

fn judge_in(dir: &tempfile::TempDir, files: &[(String, Vec<u8>)]) {
    put(dir.path(), files);
    let queue = match options().open(dir.path()) {
        Ok(queue) => queue,
        // The one thing that is refused: files that say they are of a later version.
        Err(Error::UnsupportedFormat { .. }) => return,
        Err(error) => panic!("a damaged queue opens: {error}"),
    };
    let mut expected = None;
    queue.consumer("other").expect("a consumer");
    // An index may bring consumers of other names: each is drained, or the queue would stay full.
    let named =
        queue.consumers().into_iter().map(|name| queue.consumer(&name).expect("a consumer"));
    let named: Vec<_> = named.collect();
    for consumer in [None].into_iter().chain(named.into_iter().map(Some)) {
        expected = None;
        let mut reads = 0;
        loop {
            reads += 1;
            assert!(reads < 10_000, "an endless run of messages or gaps");
            let read = match &consumer {
                None => queue.dequeue(),
                Some(consumer) => consumer.dequeue(),
            };
            match read {
                Ok(Some(message)) => {
                    let seq = message.seq();
                    assert!(seq < MESSAGES, "message {seq} was never enqueued");
                    assert!(*message == content(seq)[..], "message {seq} is not what was enqueued");
                    assert!(
                        expected.is_none_or(|expected| expected == seq),
                        "{expected:?} came as {seq}"
                    );
                    expected = Some(seq + 1);
                }
                Ok(None) => break,
                Err(Error::Gap(gap)) => {
                    assert!(
                        expected.is_none_or(|expected| expected == gap.first),
                        "{expected:?} reported as {gap}"
                    );
                    expected = Some(gap.last + 1);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    let _ = expected;
    let seq = queue.enqueue("after").expect("a new message goes in");
    loop {
        match queue.dequeue() {
            Ok(Some(message)) => {
                assert_eq!((message.seq(), &message[..]), (seq, &b"after"[..]));
                break;
            }
            Ok(None) => panic!("the new message does not come out"),
            Err(Error::Gap(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    queue.close().expect("closing");
}

/// Edits the segment files.
pub(crate) fn segment_bytes(data: &[u8]) {
    judge(&edited(data, |name| name != "index"));
}

/// Edits the index file; or replaces it, when the first byte is even.
pub(crate) fn index_bytes(data: &[u8]) {
    match data {
        [first, rest @ ..] if first % 2 == 1 => judge(&edited(rest, |name| name == "index")),
        [_, rest @ ..] => {
            let mut files = base().clone();
            for (name, bytes) in &mut files {
                if name == "index" {
                    *bytes = rest.to_vec();
                }
            }
            judge(&files);
        }
        [] => {}
    }
}
