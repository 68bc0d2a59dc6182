//! `salvage` of batches that are damaged, refused, or never were whole.

use std::fs;

use mmq::{Options, Queue};
use serde_json::Value;

use crate::run::{ends, on, said};
use crate::salvaging::{lines, report, salvage};

#[test]
fn a_batch_that_was_never_finished_is_left_out_where_the_index_shows_it() {
    let dir = crate::support::tempdir().unwrap();
    let [q, copy] = ["q", "copy"].map(|name| dir.path().join(name));
    let queue = Queue::open(&q).unwrap();
    for number in 0..10 {
        queue.enqueue(format!("single {number}")).unwrap();
    }
    let index = fs::read(q.join("index")).unwrap();
    queue.enqueue_batch((0..5).map(|number| format!("batch {number}"))).unwrap();
    let whole = fs::read(q.join("segment-00000000")).unwrap();
    queue.close().unwrap();
    let end = whole.windows(7).position(|found| found == b"batch 4").unwrap();
    // What a death within the batch leaves, and a batch of two tries.
    let (mut cut, mut mixed) = (whole.clone(), whole.clone());
    cut[end - 16..].fill(0);
    mixed[end + 8] ^= 1;
    fs::create_dir(&copy).unwrap();
    let salvaged = |segment: &[u8], index: Option<&[u8]>, status: i32| {
        fs::write(copy.join("segment-00000000"), segment).unwrap();
        let _ = fs::remove_file(copy.join("index"));
        index.map_or(Ok(()), |index| fs::write(copy.join("index"), index)).unwrap();
        let shown = ends(salvage(&[&copy], &["--json", "--framing", "line"]), status);
        let (_, end) = report(&shown);
        (lines(&shown).len(), end["unfinished_from"].as_u64(), end["unfinished_left_out"] == true)
    };
    for unfinished in [&cut, &mixed] {
        assert_eq!(salvaged(unfinished, Some(&index), 0), (10, Some(10), true));
        // As an opening does.
        let opened = on("cat", &copy, &["--all"]).output().unwrap();
        assert_eq!(lines(&opened).len(), 10);
    }
    assert_eq!(salvaged(&cut, None, 1), (14, Some(10), false));
    assert_eq!(salvaged(&mixed, None, 0), (15, None, false));
    assert_eq!(salvaged(&whole, Some(&index), 0), (15, None, false));
    // An index that knows of the batch: its end is damaged.
    let index = fs::read(q.join("index")).unwrap();
    assert_eq!(salvaged(&cut, Some(&index), 1), (14, None, false));
}

/// What a batch leaves behind the tail that there was no room for.
#[test]
fn no_piece_of_a_batch_that_was_refused_comes() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Options::new().max_bytes(1 << 20).open(&q).unwrap();
    queue.enqueue("before").unwrap();
    assert!(queue.enqueue_batch(vec![vec![b'x'; 1000]; 3000]).unwrap_err().is_full());
    for all in [vec!["before"], vec!["before", "after"]] {
        let shown = ends(salvage(&[&q], &[]), 0);
        assert_eq!(lines(&shown), all, "{}", said(&shown));
        queue.enqueue("after").unwrap();
    }
}

/// An index that is older than the files, and a damaged batch behind the tail that it names: what
/// lies behind it shows that it was put in.
#[test]
fn behind_a_damaged_batch_everything_comes_also_where_an_old_index_does_not_know_of_it() {
    let dir = crate::support::tempdir().unwrap();
    let [q, copy] = ["q", "copy"].map(|name| dir.path().join(name));
    let queue = Queue::open(&q).unwrap();
    queue.enqueue("before").unwrap();
    let index = fs::read(q.join("index")).unwrap();
    for batch in ["one", "two"] {
        queue.enqueue_batch((0..4).map(|number| format!("{batch} {number}"))).unwrap();
    }
    let batches = fs::read(q.join("segment-00000000")).unwrap();
    for number in 0..100 {
        queue.enqueue(format!("after {number}")).unwrap();
    }
    let all = fs::read(q.join("segment-00000000")).unwrap();
    queue.close().unwrap();
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("index"), &index).unwrap();
    // What lies behind it: single messages; a batch; the end of a batch whose beginning is damaged.
    for (whole, end, damaged) in [
        (&all, 109, vec!["one 1"]),
        (&all, 109, vec!["one 0", "one 3", "two 1"]),
        (&batches, 9, vec!["one 3"]),
        (&batches, 9, vec!["one 3", "two 0"]),
    ] {
        let mut bytes = whole.clone();
        for text in &damaged {
            let at = bytes.windows(5).position(|found| found == text.as_bytes()).unwrap();
            bytes[at - 12] ^= 1;
        }
        fs::write(copy.join("segment-00000000"), bytes).unwrap();
        let shown = ends(salvage(&[&copy], &["--json", "--framing", "line"]), 1);
        let (_, reported) = report(&shown);
        assert_eq!(lines(&shown).len(), end - damaged.len(), "{damaged:?}: {}", said(&shown));
        assert_eq!(reported["lost"], damaged.len(), "{damaged:?}");
        assert_eq!(reported["unfinished_from"], Value::Null, "{damaged:?}");
    }
    // Another file has the whole of a batch that ends too soon here.
    let at = batches.windows(5).position(|found| found == b"one 3").unwrap();
    let mut cut = batches.clone();
    cut[at - 16..].fill(0);
    let other = dir.path().join("segment-00000000");
    fs::write(copy.join("segment-00000000"), cut).unwrap();
    fs::write(&other, &all).unwrap();
    for paths in [[&*copy, &*other], [&*other, &*copy]] {
        let shown = ends(salvage(&paths, &["--json", "--framing", "line"]), 0);
        assert_eq!((lines(&shown).len(), report(&shown).1["lost"].as_u64()), (109, Some(0)));
        assert_eq!(report(&shown).1["unfinished_from"], Value::Null);
    }
}
