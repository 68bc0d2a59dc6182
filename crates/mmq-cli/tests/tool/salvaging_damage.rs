//! `salvage` against a model: what random damage costs; and what nobody can know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mmq::Options;
use serde_json::Value;

use crate::run::{ends, said};
use crate::salvaging::{HEADER, change, framed, lines, report, salvage, small, zero_headers};
use crate::support::{Messages, Random, copy_directory, effort, seed, segments};

/// A fragment that holds a message in one piece: its message, and where it lies.
#[derive(Debug, Clone, Copy)]
struct Lies {
    seq: u64,
    from: usize,
    to: usize,
}

/// Where the messages lie that are in one piece, for each file.
fn layout(dir: &Path, messages: &Messages, end: u64) -> BTreeMap<PathBuf, Vec<Lies>> {
    let mut layout: BTreeMap<PathBuf, Vec<Lies>> = BTreeMap::new();
    for path in segments(dir) {
        let bytes = fs::read(&path).unwrap();
        for seq in 0..end {
            let payload = messages.bytes(seq);
            if let Some(at) = bytes.windows(payload.len()).position(|found| found == payload) {
                let to = (at + payload.len()).next_multiple_of(8);
                layout.entry(path.clone()).or_default().push(Lies { seq, from: at - 16, to });
            }
        }
    }
    layout
}

/// Whatever is overwritten: a message whose bytes are untouched comes, and nothing false does. (Of
/// a segment whose header is lost, one message or two neighbours have to be left.)
#[test]
fn random_damage_costs_what_it_touches() {
    const END: u64 = 60;
    let seed = seed("salvage damage");
    let (dir, messages) = (crate::support::tempdir().unwrap(), Messages::new(seed, &[24..=900]));
    let [q, copy] = ["q", "copy"].map(|name| dir.path().join(name));
    let queue = Options::new().arena_size(8 << 10).max_bytes(160 << 10).open(&q).unwrap();
    for seq in 0..END {
        queue.enqueue(messages.bytes(seq)).unwrap();
    }
    queue.close().unwrap();
    let layout = layout(&q, &messages, END);
    assert!(layout.len() > 2 && layout.values().map(Vec::len).sum::<usize>() > 40);
    let mut random = Random::new(seed);
    for case in 0..50 * effort() {
        copy_directory(&q, &copy);
        let has_index = random.chance(2);
        if !has_index {
            fs::remove_file(copy.join("index")).unwrap();
        }
        let mut wanted = Vec::new();
        for (path, lies) in &layout {
            let path = copy.join(path.file_name().unwrap());
            let mut bytes = fs::read(&path).unwrap();
            let whole = bytes.clone();
            for _ in 0..random.below(4) {
                let bound = if random.chance(3) { 200 } else { bytes.len() as u64 };
                let from = random.below(bound);
                let to = (from as usize + random.size(1..=1500)).min(bytes.len());
                bytes[from as usize..to].iter_mut().for_each(|byte| *byte = random.next() as u8);
            }
            fs::write(&path, &bytes).unwrap();
            let is_whole = |lies: &&Lies| bytes[lies.from..lies.to] == whole[lies.from..lies.to];
            let left: Vec<Lies> = lies.iter().filter(is_whole).copied().collect();
            let has_header = bytes[..HEADER] == whole[..HEADER];
            let neighbours = left.windows(2).any(|two| two[0].to == two[1].from);
            if has_header || has_index || neighbours {
                wanted.extend(left.iter().map(|lies| lies.seq));
            }
        }
        let shown = salvage(&[&copy], &["--json"]).output().unwrap();
        let status = shown.status.code().unwrap();
        assert!([0, 1].contains(&status), "{}", said(&shown));
        let mut came = Vec::new();
        for line in lines(&shown) {
            let line: Value = serde_json::from_str(&line).unwrap();
            came.extend(line["seq"].as_u64());
        }
        assert!(came.is_sorted() && came.iter().all(|seq| *seq < END), "{came:?}");
        let missing: Vec<u64> = wanted.into_iter().filter(|seq| !came.contains(seq)).collect();
        assert!(missing.is_empty(), "seed {seed}, case {case}: {missing:?}: {}", said(&shown));
        let shown = salvage(&[&copy], &["--framing", "length"]).output().unwrap();
        for (seq, payload) in came.iter().zip(framed(&shown.stdout)) {
            messages.check(*seq, &payload);
        }
    }
}

#[test]
fn what_a_lost_header_leaves_unknown_is_said_to_be_unknown() {
    let dir = crate::support::tempdir().unwrap();
    let [q, copy] = ["q", "copy"].map(|name| dir.path().join(name));
    let all = small(&q);
    copy_directory(&q, &copy);
    fs::remove_file(q.join("index")).unwrap();
    zero_headers(&q);
    let counts = |paths: &[&Path], status| {
        let shown = ends(salvage(paths, &["--json", "--framing", "line"]), status);
        let (files, end) = report(&shown);
        let damages: Vec<usize> =
            files.iter().map(|file| file["damage"].as_array().unwrap().len()).collect();
        (lines(&shown).len(), end["lost"].as_u64(), end["uncounted"].as_bool(), damages)
    };
    // Its first message lies where the first one has to.
    assert_eq!(counts(&[&q], 1), (all.len(), Some(0), Some(false), vec![1]));
    change(&q.join("segment-00000000"), |bytes| bytes[..HEADER + 100].fill(0));
    let (left, lost, uncounted, damages) = counts(&[&q], 1);
    assert!((40..48).contains(&left), "{left}");
    assert_eq!((lost, uncounted, damages), (Some(0), Some(true), vec![2]));
    let reported = said(&ends(salvage(&[&q], &[]), 1));
    assert!(
        reported.contains("it is not known whether messages are missing; 1 file damaged"),
        "{reported}"
    );
    // Another copy has the header: what this one lacks is known.
    assert_eq!(counts(&[&q, &copy], 1), (all.len(), Some(0), Some(false), vec![2, 0]));
    // Nothing is left of it.
    change(&q.join("segment-00000000"), |bytes| bytes.fill(0));
    assert_eq!(counts(&[&q], 1), (0, Some(0), Some(true), vec![1]));
    // An index says that nothing is missing: it was being made.
    fs::write(copy.join("segment-00000001"), [0; 4096]).unwrap();
    assert_eq!(counts(&[&copy], 0), (all.len(), Some(0), Some(false), vec![0, 0]));
}
