//! What no consumer has claimed is given up only when the operator says so.

use std::path::Path;

use mmq::Queue;

use crate::looking::{stat, text};
use crate::run::{check, ends, given, on, said};

/// A queue that a program made, and nobody has read.
fn unread(dir: &Path) {
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    queue.close().unwrap();
}

/// Lines that take more than one segment, put in from a shell.
fn put_many(dir: &Path) -> u64 {
    let lines: String = (0..20_000).map(|number| format!("{number:0>300}\n")).collect();
    check(given(on("put", dir, &[]), lines.as_bytes()), 0);
    20_000
}

#[test]
fn what_was_put_in_from_a_shell_stays_for_take_whoever_else_comes_and_drains() {
    let dir = crate::support::tempdir().unwrap();
    let late = dir.path().join("late");
    let all = put_many(&late);
    assert_eq!(said(&ends(on("consumers", &late, &["add", "late", "--at", "last"]), 0)), "");
    assert_eq!(text("take", &late, &[]).lines().count() as u64, all);
    let drained = dir.path().join("drained");
    put_many(&drained);
    ends(on("consumers", &drained, &["add", "audit"]), 0);
    assert_eq!(text("take", &drained, &["--consumer", "audit"]).lines().count() as u64, all);
    assert_eq!(text("take", &drained, &[]).lines().count() as u64, all);
}

#[test]
fn the_own_consumer_is_there_from_the_first_put_until_it_is_removed() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    check(given(on("put", dir, &[]), b"a\n"), 0);
    assert!(text("consumers", dir, &[]).starts_with("(the queue's own)    at 0: 1 message"));
    assert_eq!(stat(dir)["consumers"][0]["name"], "");
    ends(on("consumers", dir, &["add", "audit"]), 0);
    ends(on("consumers", dir, &["rm", ""]), 2);
    ends(on("consumers", dir, &["rm", "", "--yes"]), 0);
    // A queue that is read by names alone stays one.
    check(given(on("put", dir, &[]), b"b\n"), 0);
    let listed = text("consumers", dir, &[]);
    assert!(listed.starts_with("audit ") && listed.lines().count() == 1, "{listed}");
}

#[test]
fn the_first_consumer_gives_up_what_is_before_it_only_with_yes() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    unread(dir);
    let add = |words: &[&str], status| {
        said(&ends(on("consumers", dir, &[&["add", "late"], words].concat()), status))
    };
    let refused = add(&["--at", "last"], 2);
    let why = "gives up 3 messages of queue";
    assert!(refused.contains(why) && refused.contains("no consumer has claimed"), "{refused}");
    assert!(refused.contains("repeat the command with --yes"), "{refused}");
    assert!(add(&["--at", "+2"], 2).contains("gives up 2 messages"));
    assert!(add(&["--at", "2", "--json"], 2).contains("gives up 2 messages"));
    assert_eq!(Queue::open(dir).unwrap().stats().consumers, 0, "none was made");
    assert_eq!(text("cat", dir, &[]), "a\nb\nc\n");

    let said = add(&["--at", "2", "--yes"], 0);
    assert!(said.contains("2 messages given up, which no consumer had claimed"), "{said}");
    assert_eq!(text("take", dir, &["--consumer", "late"]), "c\n");
}

#[test]
fn who_gives_up_nothing_is_not_asked() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path();
    unread(dir);
    let add = |words: &[&str]| said(&ends(on("consumers", dir, words), 0));
    assert_eq!(add(&["add", "first", "--at", "first"]), "");
    assert_eq!(add(&["add", "late", "--at", "last"]), "", "the first one has claimed all");
    assert_eq!(text("take", dir, &["--consumer", "first"]), "a\nb\nc\n");
}
