//! `salvage`: messages out of segment files, whatever became of the queue around them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mmq::{Options, Queue};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::looking::files;
use crate::run::{ends, mmq, on, said};
use crate::support::{Random, copy_directory, seed, segments};

pub(crate) const HEADER: usize = 128;

pub(crate) fn salvage(paths: &[&Path], words: &[&str]) -> Command {
    let mut command = mmq(["salvage"]);
    command.args(paths).args(words);
    command
}

/// The messages in `length` framing, one after the other.
pub(crate) fn framed(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<4>() {
        let len = head.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        all.push(behind[..len].to_vec());
        rest = &behind[len..];
    }
    assert!(rest.is_empty());
    all
}

pub(crate) fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

/// What a run with `--json` says of each file and at the end.
pub(crate) fn report(output: &Output) -> (Vec<Value>, Value) {
    let text = said(output);
    // Gaps are reported as text where the messages are.
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let (mut files, mut end) = (Vec::new(), Value::Null);
    for mut line in all {
        if line.get("file").is_some() {
            files.push(line["file"].take());
        } else if line.get("salvaged").is_some() {
            end = line["salvaged"].take();
        }
    }
    (files, end)
}

pub(crate) fn zero_headers(dir: &Path) {
    for path in segments(dir) {
        change(&path, |bytes| bytes[..HEADER].fill(0));
    }
}

pub(crate) fn change(path: &Path, how: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(path).unwrap();
    how(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn flip(dir: &Path, text: &str) {
    for path in segments(dir) {
        let bytes = fs::read(&path).unwrap();
        let found = bytes.windows(text.len()).position(|found| found == text.as_bytes());
        if let Some(at) = found {
            return change(&path, |bytes| bytes[at] ^= 1);
        }
    }
    panic!("{text} is not there");
}

/// A closed queue of `0` to `49`, with the text of each.
pub(crate) fn small(dir: &Path) -> Vec<String> {
    let all: Vec<String> = (0..50).map(|number| format!("message {number:03}")).collect();
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch(&all[..20]).unwrap();
    for message in &all[20..] {
        queue.enqueue(message).unwrap();
    }
    queue.dequeue().unwrap().unwrap();
    queue.close().unwrap();
    all
}

#[test]
fn a_whole_queue_comes_as_cat_shows_it_with_and_without_index_and_headers() {
    let dir = crate::support::tempdir().unwrap();
    let (q, copy) = (dir.path().join("q"), dir.path().join("copy"));
    let mut random = Random::new(seed("salvage"));
    let queue = Options::new().arena_size(16 << 10).max_bytes(64 << 20).open(&q).unwrap();
    for number in 0..400u64 {
        // Some are longer than a segment, which is a quarter of the limit at most.
        let len = if number % 50 == 7 { 100_000 } else { random.size(0..=3000) };
        let message: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        queue.enqueue(message).unwrap();
    }
    let batch: Vec<Vec<u8>> = (0..20).map(|len| vec![b'b'; len * 400]).collect();
    queue.enqueue_batch(&batch).unwrap();
    let words = ["--framing", "length"];
    let wanted = ends(on("cat", &q, &["--all", "--framing", "length"]), 0).stdout;
    assert!(segments(&q).len() > 1);
    // While somebody has it.
    assert!(ends(salvage(&[&q], &words), 0).stdout == wanted, "owned");
    queue.close().unwrap();
    let before = files(&q);
    assert!(ends(salvage(&[&q], &words), 0).stdout == wanted, "closed");
    assert!(files(&q) == before, "a file was changed");
    let shown = ends(salvage(&[&q], &["--json"]), 0);
    assert_eq!(shown.stdout, ends(on("cat", &q, &["--all", "--json"]), 0).stdout);

    copy_directory(&q, &copy);
    fs::remove_file(copy.join("index")).unwrap();
    assert!(ends(salvage(&[&copy], &words), 0).stdout == wanted, "without index");
    zero_headers(&copy);
    let lost = ends(salvage(&[&copy], &words), 1);
    assert!(lost.stdout == wanted, "without index and headers: {}", said(&lost));
    assert!(said(&lost).contains("its header is lost"), "{}", said(&lost));
    let all: Vec<PathBuf> = segments(&copy);
    let all: Vec<&Path> = all.iter().rev().map(PathBuf::as_path).collect();
    assert!(ends(salvage(&all, &words), 1).stdout == wanted, "file by file");
    // The index has copies of the headers, and knows whose they are.
    fs::copy(q.join("index"), copy.join("index")).unwrap();
    let reported = ends(salvage(&[&copy], &["--framing", "length", "--json"]), 1);
    assert!(reported.stdout == wanted, "without headers");
    let (files, end) = report(&reported);
    assert!(files.iter().all(|file| file["damage"][0].as_str().unwrap().contains("index")));
    assert_eq!(end["queue_id"].as_str().unwrap().len(), 32);
}

#[test]
fn a_message_over_many_segments_is_put_together_without_their_headers() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Options::new().arena_size(64 << 10).max_bytes(1 << 20).open(&q).unwrap();
    let mut random = Random::new(seed("salvage long"));
    let mut all: Vec<Vec<u8>> = (0..8).map(|number| vec![b'a' + number; 100]).collect();
    // A segment is a quarter of the limit at most: some hold nothing but the middle of this one.
    all[5] = (0..700_000).map(|_| random.next() as u8).collect();
    for message in &all {
        queue.enqueue(message).unwrap();
    }
    queue.close().unwrap();
    fs::remove_file(q.join("index")).unwrap();
    let shown = |status| framed(&ends(salvage(&[&q], &["--framing", "length"]), status).stdout);
    assert!(segments(&q).len() >= 4 && shown(0) == all);
    zero_headers(&q);
    assert!(shown(1) == all);
    let middle = &all[5][350_000..350_008];
    for path in segments(&q) {
        let bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(8).position(|found| found == middle) {
            change(&path, |bytes| bytes[at] ^= 1);
        }
    }
    let rest = [&all[..5], &all[6..]].concat();
    assert!(shown(1) == rest);
}

#[test]
fn damage_costs_its_message_and_is_reported() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let all = small(&q);
    change(&q.join("segment-00000000"), |bytes| bytes[40] ^= 4);
    let shown = ends(salvage(&[&q], &[]), 1);
    assert_eq!(lines(&shown), all, "{}", said(&shown));
    fs::remove_file(q.join("index")).unwrap();
    for text in ["message 000", "message 017", "message 018", "message 033"] {
        flip(&q, text);
    }
    let shown = ends(salvage(&[&q], &["--json"]), 1);
    let seqs: Vec<u64> = lines(&shown)
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64())
        .collect();
    let lost = [0, 17, 18, 33];
    assert_eq!(seqs, (0..50).filter(|seq| !lost.contains(seq)).collect::<Vec<_>>());
    let gap = "{\"gap\":{\"first\":17,\"last\":18,\"count\":2,\"cause\":\"damaged\"}}";
    assert!(lines(&shown).iter().any(|line| line == gap));
    let (files, end) = report(&shown);
    // Without its header nobody knows that a message was before the first one.
    assert_eq!((&files[0]["messages"], &files[0]["lost"]), (&46.into(), &3.into()));
    assert_eq!((&end["messages"], &end["lost"]), (&46.into(), &3.into()));
    assert_eq!((&files[0]["uncounted"], &end["uncounted"]), (&true.into(), &true.into()));
    let damage: Vec<&str> =
        files[0]["damage"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(damage[0].starts_with("its header is lost"), "{damage:?}");
    assert_eq!(damage[1..], ["it is not known what was in it before message 1"]);
    let error = said(&shown);
    let last = error.lines().last().unwrap();
    assert!(last.contains("\"code\":\"damaged\""), "{error}");
    assert!(last.contains("at least 3 messages missing, and perhaps more"), "{error}");
}

#[test]
fn copies_with_other_damage_are_put_together() {
    let dir = crate::support::tempdir().unwrap();
    let (q, copy) = (dir.path().join("q"), dir.path().join("copy"));
    let all = small(&q);
    copy_directory(&q, &copy);
    flip(&q, "message 010");
    flip(&copy, "message 040");
    fs::rename(q.join("segment-00000000"), q.join("segment-00000000.damaged")).unwrap();
    for paths in [[&*q, &*copy], [&*copy, &*q]] {
        let shown = ends(salvage(&paths, &["--json", "--framing", "line"]), 1);
        assert_eq!(lines(&shown), all);
        let (files, end) = report(&shown);
        assert_eq!((&end["messages"], &end["lost"]), (&50.into(), &0.into()));
        assert!(files.iter().all(|file| file["lost"] == 1), "{files:?}");
    }
    // One file by two names is one file.
    let shown = ends(salvage(&[&copy, &copy.join("segment-00000000")], &["--json"]), 1);
    assert_eq!(report(&shown).0.len(), 1);
    // Nothing of a copy that is whole is left out.
    copy_directory(&copy, &q);
    flip(&q, "message 041");
    assert_eq!(lines(&ends(salvage(&[&q], &[]), 1)).len(), 48);
}

/// A queue and its copy were both used. Of two messages with one number that of the first comes,
/// and the other one is reported.
#[test]
fn copies_that_went_on_apart_are_not_taken_for_one() {
    let dir = crate::support::tempdir().unwrap();
    let [q, copy] = ["q", "copy"].map(|name| dir.path().join(name));
    small(&q);
    copy_directory(&q, &copy);
    let put = |dir: &Path, texts: [&str; 6]| {
        let queue = Queue::open(dir).unwrap();
        let last = texts.map(|text| queue.enqueue(text.repeat(100)).unwrap())[5];
        queue.close().unwrap();
        last
    };
    assert_eq!(put(&q, ["a", "b", "c", "d", "e", "f"]), 55);
    // The same message at another place is the same.
    put(&copy, ["a", "yy", "Y", "d", "E", "f"]);
    for (paths, came) in [([&*q, &*copy], "abcdef"), ([&*copy, &*q], "ayYdEf")] {
        let shown = ends(salvage(&paths, &["--json", "--framing", "line"]), 1);
        let dead_letters: String = lines(&shown)[50..].iter().map(|line| &line[..1]).collect();
        assert_eq!(dead_letters, came);
        let (files, end) = report(&shown);
        assert_eq!((&end["messages"], &end["lost"]), (&56.into(), &0.into()));
        assert_eq!(end["differing"], 3);
        let later = files.iter().find(|file| file["messages"] == 0).unwrap();
        assert_eq!(later["duplicates"], 53);
        assert_eq!(
            later["differing"].to_string(),
            "[{\"first\":51,\"last\":52},{\"first\":54,\"last\":54}]"
        );
        assert!(later["path"].as_str().unwrap().starts_with(paths[1].to_str().unwrap()));
        let reported = said(&ends(salvage(&paths, &[]), 1));
        assert!(
            reported.contains("messages 51 to 52 differ from those of another file"),
            "{reported}"
        );
        assert!(reported.contains("message 54 differs from that of another file"), "{reported}");
        assert!(
            reported.contains("3 messages left out because another one has the same number"),
            "{reported}"
        );
    }
}

#[test]
fn what_was_salvaged_becomes_a_queue() {
    let dir = crate::support::tempdir().unwrap();
    let [q, new, other] = ["q", "new", "other"].map(|name| dir.path().join(name));
    let all = small(&q);
    fs::remove_file(q.join("index")).unwrap();
    let before = files(&q);
    let to = ["--to", new.to_str().unwrap()];
    let done = ends(salvage(&[&q], &to), 0);
    assert!(done.stdout.is_empty() && said(&done).contains("50 messages"), "{}", said(&done));
    assert_eq!(lines(&ends(on("take", &new, &[]), 0)), all);
    let refused = ends(salvage(&[&q], &[&to[..], &["--json"]].concat()), 6);
    assert!(said(&refused).contains("\"code\":\"not_empty\""), "{}", said(&refused));
    ends(salvage(&[&q], &["--to", q.to_str().unwrap()]), 2);
    assert!(files(&q) == before, "the source was changed");
    ends(salvage(&[&q], &["--to", other.to_str().unwrap(), "--null"]), 2);

    small(&other);
    let refused = ends(salvage(&[&q, &other], &[]), 6);
    let ids = [&q, &other].map(|dir| fs::read(dir.join("segment-00000000")).unwrap());
    for id in ids {
        let id: String = id[16..32].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(said(&refused).contains(&id), "{}", said(&refused));
    }
    fs::create_dir(dir.path().join("empty")).unwrap();
    for nothing in ["empty", "nowhere", "new/index"] {
        let missing = ends(salvage(&[&dir.path().join(nothing)], &[]), 5);
        assert!(missing.stdout.is_empty() && said(&missing).lines().count() == 1);
    }
}

#[test]
fn a_later_format_is_refused() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    small(&q);
    change(&q.join("segment-00000000"), |bytes| {
        bytes[8] = mmq::FORMAT_VERSION as u8 + 1;
        let sum = crate::owning::checksum(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..HEADER].copy_from_slice(&sum.to_le_bytes());
    });
    let refused = ends(salvage(&[&q], &["--json"]), 6);
    assert!(said(&refused).contains("\"code\":\"later_format\""), "{}", said(&refused));
}

#[test]
fn what_was_taken_comes_back_from_drained_segments() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Queue::open(&q).unwrap();
    let text = |number: u64| format!("{number:05} {}", "x".repeat(9990));
    // The queue uses its segments again and again.
    for number in 0..900u64 {
        queue.enqueue(text(number)).unwrap();
        if number >= 40 {
            queue.dequeue().unwrap().unwrap();
        }
    }
    queue.close().unwrap();
    let live = lines(&ends(on("cat", &q, &["--all"]), 0));
    let plain = ends(salvage(&[&q], &[]), 0);
    assert_eq!(lines(&plain), live);
    assert!(said(&plain).contains("drained segment with the numbers from"), "{}", said(&plain));
    let more = ends(salvage(&[&q], &["--spares"]), 0);
    let more = lines(&more);
    assert!(more.len() > live.len() && more.ends_with(&live), "{} {}", more.len(), live.len());
    for (line, next) in more.iter().zip(&more[1..]) {
        let number: u64 = line[..5].parse().unwrap();
        assert!(*line == text(number) && line < next);
    }
    // Without the index, and the headers too: the spares cannot be told from the others.
    fs::remove_file(q.join("index")).unwrap();
    assert_eq!(lines(&ends(salvage(&[&q], &[]), 0)), live);
    zero_headers(&q);
    assert_eq!(lines(&ends(salvage(&[&q], &[]), 1)), more);
}

#[test]
fn a_reader_that_closes_the_pipe_ends_it_quietly() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Queue::open(&q).unwrap();
    queue.enqueue_batch(vec![vec![b'x'; 10_000]; 100]).unwrap();
    queue.close().unwrap();
    let mut command = salvage(&[&q], &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), said(&ended)), (Some(0), String::new()));
}

#[test]
fn a_signal_ends_it_in_order() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Queue::open(&q).unwrap();
    queue.enqueue_batch(vec![vec![b'x'; 10_000]; 100]).unwrap();
    queue.close().unwrap();
    let mut child = salvage(&[&q], &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 1000]).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    output.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn one_message_shows_the_seed_and_so_does_one_behind_the_end_of_another() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Queue::open(&q).unwrap();
    queue.enqueue("the only one").unwrap();
    queue.close().unwrap();
    fs::remove_file(q.join("index")).unwrap();
    zero_headers(&q);
    let shown = ends(salvage(&[&q], &[]), 1);
    assert_eq!(lines(&shown), ["the only one"]);
    assert!(said(&shown).contains("only one message shows"), "{}", said(&shown));
    flip(&q, "the only one");
    let nothing = ends(salvage(&[&q], &[]), 1);
    assert!(nothing.stdout.is_empty(), "{}", said(&nothing));
    assert!(said(&nothing).contains("no message in it can be checked"), "{}", said(&nothing));
    fs::write(q.join("segment-00000000"), [0; 4096]).unwrap();
    let nothing = ends(salvage(&[&q], &[]), 1);
    assert!(said(&nothing).contains("it is all zeros"), "{}", said(&nothing));
}
