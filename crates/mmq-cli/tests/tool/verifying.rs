//! `verify`, and what the owner of a queue counts.

use std::fs;
use std::path::Path;

use mmq::{Options, Queue};
use serde_json::Value;

use crate::looking::{files, json, kinds, number, stat, text};
use crate::run::{ends, on, said};
use crate::support::{copy_directory, names, segments};

#[test]
fn verify_names_what_is_damaged_and_what_it_costs() {
    let dir = crate::support::tempdir().unwrap();
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
    let quick = text("verify", dir, &["--quick"]);
    assert_eq!(quick, "intact: 1 segment header; the messages were not read (--quick)\n");
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
    // Reads report the same.
    let reported = ends(on("take", dir, &["--json"]), 1);
    let reported = String::from_utf8(reported.stdout).unwrap();
    let gap = reported.lines().map(parsed).find(|line| line.get("gap").is_some()).unwrap();
    assert_eq!(gap["gap"], finding["lost"]);
    ends(on("verify", &dir.join("nowhere"), &[]), 5);
}

#[test]
fn verify_does_not_count_what_no_header_tells() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    let queue = Options::new().arena_size(64 << 10).open(dir).unwrap();
    queue.enqueue_batch((0..5000).map(|number| format!("{number:0>1000}"))).unwrap();
    queue.close().unwrap();
    fs::remove_file(dir.join("index")).unwrap();
    let segment = &segments(dir)[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes[..128].fill(0);
    fs::write(segment, bytes).unwrap();
    let said = said(&ends(on("verify", dir, &[]), 1));
    let advice = format!("`mmq salvage {}` tells how many", dir.display());
    assert!(said.contains(&advice) && !said.contains("lost with it"), "{said}");
    let ended = ends(on("verify", dir, &["--json"]), 1);
    let summary = String::from_utf8(ended.stdout).unwrap().lines().map(parsed).next_back().unwrap();
    assert_eq!((&summary["uncounted"], number(&summary["lost"])), (&true.into(), 0));
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn what_the_owner_counts_is_shown() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().max_bytes(128 << 10).open(dir.path()).unwrap();
    let message = vec![b'x'; 4000];
    while queue.enqueue(&message).is_ok() {}
    queue.dequeue().unwrap().unwrap();
    queue.flush().unwrap();
    let (stats, seen) = (queue.stats(), stat(dir.path()));
    let counted = &seen["counted"];
    assert_eq!(number(&counted["refused"]), stats.refused);
    assert_eq!(number(&counted["flushes"]), stats.flushes);
    assert_eq!(number(&counted["enqueued"]), stats.enqueued);
    assert_eq!([&counted["lost"], &counted["dropped"]].map(number), [0, 0]);
    assert_eq!(counted["last_flush_error"], Value::Null);
    let metrics = text("stat", dir.path(), &["--prometheus", "--label", "q"]);
    for line in [
        "mmq_disk_free_bytes{queue=\"q\"} ",
        "mmq_refused_total{queue=\"q\"} 1\n",
        "mmq_taken_total{queue=\"q\"} 1\n",
        "mmq_lost_messages_total{queue=\"q\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let human = text("stat", dir.path(), &[]);
    assert!(human.contains("refused    1 call"), "{human}");
    assert!(!human.contains("  lost ") && !human.contains("  dropped "), "{human}");
    queue.close().unwrap();
    let options = Options::new().max_bytes(128 << 10).on_full(mmq::OnFull::DropOldest);
    let queue = options.open(dir.path()).unwrap();
    for _ in 0..100 {
        queue.enqueue(&message).unwrap();
    }
    queue.flush().unwrap();
    let human = text("stat", dir.path(), &[]);
    let dropped = format!("dropped    {} messages, unread, ", queue.stats().dropped);
    assert!(human.contains(&dropped), "{human}");
}

/// What `verify --as-opened` says, which changes nothing.
fn as_opened(dir: &Path) -> Value {
    let before = files(dir);
    let output = on("verify", dir, &["--as-opened", "--json"]).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(&output));
    assert!(files(dir) == before, "a look changed a file");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(parsed);
    let opened = lines.next().unwrap()["as_opened"].take();
    assert!(lines.next_back().unwrap()["findings"].is_u64(), "{text}");
    opened
}

/// Holds what was said beside what an opening then makes of the queue.
fn holds(dir: &Path, said: &Value) {
    let before = names(dir);
    let queue = Options::new().create(false).open(dir).unwrap();
    let stats = queue.stats();
    for (name, found) in [
        ("next_seq", stats.next_seq),
        ("oldest_seq", stats.oldest_seq),
        ("messages", stats.messages),
        ("segments", stats.segments),
    ] {
        assert_eq!(number(&said[name]), found, "{name}: {said}");
    }
    let mut consumers = queue.consumers();
    consumers.sort();
    let reported =
        said["consumers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    let mut reported: Vec<&str> = reported.filter(|name| !name.is_empty()).collect();
    reported.sort_unstable();
    assert_eq!(reported, consumers);
    let after = names(dir);
    let list = |name: &str| said[name].as_array().unwrap().clone();
    for renamed in list("would_set_aside") {
        let [file, becomes] = ["file", "becomes"].map(|name| renamed[name].as_str().unwrap());
        assert!(before.iter().any(|name| name == file), "{file} {before:?}");
        assert!(after.iter().any(|name| name == becomes), "{becomes} {after:?}");
    }
    let quarantined =
        |names: &[String]| names.iter().filter(|name| name.ends_with(".damaged")).count();
    assert_eq!(
        quarantined(&after) - quarantined(&before),
        list("would_set_aside").len(),
        "{said} {after:?}"
    );
    for created in list("would_create") {
        assert!(after.iter().any(|name| name == created.as_str().unwrap()), "{said} {after:?}");
    }
    for removed in list("would_remove") {
        assert!(after.iter().all(|name| name != removed.as_str().unwrap()), "{said} {after:?}");
    }
    let mut gaps = Vec::new();
    let first = queue.consumer("witness").unwrap();
    while mmq::past_gaps(|| first.dequeue(), |gap| gaps.push(gap)).unwrap().is_some() {}
    for stated in list("gaps") {
        let (from, to) = (number(&stated["first"]), number(&stated["last"]));
        let reported = gaps.iter().any(|gap| gap.first <= from && to <= gap.last);
        assert!(reported || to < stats.oldest_seq, "{stated} {gaps:?}");
    }
}

#[test]
fn what_an_opening_would_make_of_a_queue_is_what_it_makes() {
    let dir = crate::support::tempdir().unwrap();
    let (held, kinds) = kinds(dir.path());
    let refused = ends(on("verify", &kinds[0].1, &["--as-opened"]), 4);
    let pid = std::process::id();
    assert!(said(&refused).contains(&format!("in process {pid}")), "{}", said(&refused));
    assert!(said(&refused).contains("needs a queue that no process has"), "{}", said(&refused));
    let refused = ends(on("verify", &kinds[0].1, &["--as-opened", "--json"]), 4);
    let error = parsed(&said(&refused));
    assert_eq!((&error["error"]["code"], &error["error"]["pid"]), (&"locked".into(), &pid.into()));
    drop(held);
    for (state, dir) in &kinds[1..] {
        let opened = as_opened(dir);
        assert_eq!(opened["state"], *state);
        holds(dir, &opened);
    }

    let (base, case) = (dir.path().join("base"), dir.path().join("case"));
    let queue = Options::new().arena_size(64 << 10).open(&base).unwrap();
    queue.enqueue_batch((0..5000).map(|number| format!("{number:0>1000}"))).unwrap();
    queue.consumer("audit").unwrap().seek(5).unwrap();
    queue.close().unwrap();
    type Harm = fn(&Path);
    let harms: [(&str, usize, Harm); 6] = [
        ("nothing", 0, |_| {}),
        ("the index is lost", 0, |dir| fs::remove_file(dir.join("index")).unwrap()),
        ("the index is damaged", 1, |dir| fs::write(dir.join("index"), [7; 40_000]).unwrap()),
        ("the index is a directory", 1, |dir| {
            fs::remove_file(dir.join("index")).unwrap();
            fs::create_dir(dir.join("index")).unwrap();
        }),
        ("a segment is lost", 0, |dir| fs::remove_file(&segments(dir)[1]).unwrap()),
        ("index and a header are lost", 1, |dir| {
            fs::remove_file(dir.join("index")).unwrap();
            let segment = &segments(dir)[1];
            let mut bytes = fs::read(segment).unwrap();
            bytes[..128].fill(9);
            fs::write(segment, bytes).unwrap();
        }),
    ];
    for (what, quarantined, harm) in harms {
        copy_directory(&base, &case);
        harm(&case);
        let opened = as_opened(&case);
        let reported = opened["would_set_aside"].as_array().unwrap().len();
        assert!(reported >= quarantined, "{what}: {opened}");
        let human = on("verify", &case, &["--as-opened"]).output().unwrap().stdout;
        let human = String::from_utf8(human).unwrap();
        assert!(human.starts_with("The next opening will find:\n"), "{human}");
        assert_eq!(human.matches("  sets aside ").count(), reported, "{human}");
        holds(&case, &opened);
    }
}
