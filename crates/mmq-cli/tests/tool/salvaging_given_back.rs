//! `salvage` of a queue whose messages are given back: before, or meanwhile.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use mmq::{OnFull, Options, Salvage, Salvaged};
use serde_json::Value;

use crate::run::{ends, said};
use crate::salvaging::{lines, report, salvage};
use crate::support::{copy_directory, sample};

/// The owner removed a segment that was read, and not yet the one before it, as the order of the
/// slots has it.
#[test]
fn what_was_given_back_is_not_lost_with_its_segment() {
    let dir = crate::support::tempdir().unwrap();
    let [q, copy] = ["q", "copy"].map(|name| dir.path().join(name));
    let options = Options::new().arena_size(16 << 10).max_bytes(1 << 20);
    let queue = options.open(&q).unwrap();
    for number in 0..400u64 {
        queue.enqueue(vec![b'x'; 2000 + number as usize]).unwrap();
    }
    queue.flush().unwrap();
    copy_directory(&q, &copy);
    for _ in 0..350 {
        queue.dequeue().unwrap().unwrap();
    }
    queue.close().unwrap();
    let old = copy.join("segment-00000000");
    fs::copy(old, q.join("segment-00000000.old")).unwrap();
    let shown = ends(salvage(&[&q], &["--json", "--framing", "length"]), 0);
    let (files, end) = report(&shown);
    assert_eq!(end["lost"], 0);
    assert!(files.iter().any(|file| file["given_back"].as_u64() > Some(5)), "{files:?}");
}

/// The owner used the segment in which a message goes on again, before its turn came.
#[test]
fn a_message_whose_rest_was_given_back_meanwhile_is_not_damaged() {
    let dir = crate::support::tempdir().unwrap();
    let q = dir.path().join("q");
    let queue = Options::new().arena_size(64 << 10).max_bytes(1 << 20).open(&q).unwrap();
    for number in 0..20 {
        queue.enqueue(vec![b'a' + number; if number == 5 { 700_000 } else { 100 }]).unwrap();
    }
    queue.close().unwrap();
    let mut messages = Salvage::of([&q]).messages().unwrap();
    assert!(matches!(messages.next(), Some(Salvaged::Message { .. })));
    let other = fs::read(q.join("segment-00000000")).unwrap();
    fs::write(q.join("segment-00000002"), other).unwrap();
    let (mut came, mut overtaken) = (Vec::new(), Vec::new());
    for salvaged in messages.by_ref() {
        match salvaged {
            Salvaged::Message { message, .. } => came.push(message.seq()),
            Salvaged::Overtaken { first, last } => overtaken.push((first, last)),
            other => panic!("{other:?}"),
        }
    }
    let report = messages.into_report();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((came.len(), overtaken), (18, vec![(5, 5)]), "{report:?}");
}

/// What is given back meanwhile is not there; nothing else is missing, and nothing is false.
#[test]
fn a_queue_at_full_speed_is_salvaged_without_false_damage() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(64 << 10).max_bytes(2 << 20);
    let queue = options.on_full(OnFull::DropOldest).open(dir.path()).unwrap();
    let text = |number: u64| format!("message {number} {}", "x".repeat(number as usize % 200));
    let (stop, mut wrong) = (AtomicBool::new(false), None);
    queue.enqueue(text(0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                queue.enqueue(text(number)).unwrap();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..sample(24).min(20) {
            let output = salvage(&[dir.path()], &["--json"]).output().unwrap();
            let said_lines = lines(&output).into_iter();
            let shown: Vec<Value> =
                said_lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
            let numbers: Vec<u64> = shown.iter().filter_map(|line| line["seq"].as_u64()).collect();
            let is_right = |line: &Value| match line["seq"].as_u64() {
                Some(seq) => line["text"] == text(seq),
                None => line["gap"]["cause"] == "dropped",
            };
            if !output.status.success()
                || !numbers.is_sorted_by(|one, next| one < next)
                || !shown.iter().all(is_right)
            {
                wrong = Some(said(&output));
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, None);
}
