//! `verify`, and what the owner of a queue counts.

use std::fs;

use mmq::{Options, Queue};
use serde_json::Value;

use crate::looking::{files, json, number, stat, text};
use crate::run::{ends, on};

#[test]
fn verify_names_what_is_damaged_and_what_it_costs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let queue = Queue::open(dir).unwrap();
    let messages: Vec<_> = (0..50).map(|number| format!("message {number:03}")).collect();
    queue.enqueue_batch(&messages).unwrap();
    let sound = text("verify", dir, &[]);
    assert!(sound.contains("50 messages"), "{sound}");
    queue.close().unwrap();
    let before = files(dir);
    let summary = json("verify", dir, &["--quick"]).remove(0);
    assert_eq!((number(&summary["findings"]), number(&summary["messages"])), (0, 0));
    assert!(files(dir) == before, "a look changed a file");

    let segment = dir.join("segment-00000000");
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(11).position(|found| found == b"message 017").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let ended = ends(on("verify", dir, &["--json"]), 1);
    let lines: Vec<Value> = String::from_utf8(ended.stdout).unwrap().lines().map(parsed).collect();
    let [finding, summary] = &lines[..] else { panic!("{lines:?}") };
    let finding = &finding["finding"];
    assert_eq!(finding["file"], "segment-00000000");
    assert_eq!(number(&finding["offset"]), at as u64 - 16);
    assert_eq!((number(&finding["lost"]["first"]), number(&finding["lost"]["count"])), (17, 1));
    assert_eq!((number(&summary["messages"]), number(&summary["lost"])), (49, 1));
    let error: Value = parsed(String::from_utf8(ended.stderr).unwrap().lines().last().unwrap());
    assert_eq!(error["error"]["code"], "damaged");
    // A reader is told the same.
    let told = ends(on("take", dir, &["--json"]), 1);
    let told = String::from_utf8(told.stdout).unwrap();
    let gap = told.lines().map(parsed).find(|line| line.get("gap").is_some()).unwrap();
    assert_eq!(gap["gap"], finding["lost"]);
    ends(on("verify", &dir.join("nowhere"), &[]), 5);
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn what_the_owner_counts_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Options::new().max_bytes(128 << 10).open(dir.path()).unwrap();
    let message = vec![b'x'; 4000];
    while queue.enqueue(&message).is_ok() {}
    queue.flush().unwrap();
    let (stats, seen) = (queue.stats(), stat(dir.path()));
    let counted = &seen["counted"];
    assert_eq!(number(&counted["max_bytes"]), 128 << 10);
    assert_eq!(number(&counted["refused"]), stats.refused);
    assert_eq!(number(&counted["flushes"]), stats.flushes);
    assert_eq!(number(&counted["enqueued"]), stats.enqueued);
    assert_eq!(counted["last_flush_error"], Value::Null);
    let metrics = text("stat", dir.path(), &["--prometheus", "--label", "q"]);
    for line in [
        "mmq_max_disk_bytes{queue=\"q\"} 131072\n",
        "mmq_refused_total{queue=\"q\",reason=\"full\"} 1\n",
        "mmq_lost_messages_total{queue=\"q\",cause=\"damaged\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let human = text("stat", dir.path(), &[]);
    assert!(human.contains("refused    1 call"), "{human}");
}
