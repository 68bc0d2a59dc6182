//! What no consumer has claimed is given up only when the operator says so.

use std::path::Path;

use mmq::Queue;

use crate::looking::{number, stat, text};
use crate::run::{check, ends, given, on, said};

/// A queue that nobody has read.
fn unread(dir: &Path) {
    check(given(on("put", dir, &[]), b"a\nb\nc\n"), 0);
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
    assert!(refused.contains("say --yes"), "{refused}");
    assert!(add(&["--at", "+2"], 2).contains("gives up 2 messages"));
    assert!(add(&["--at", "2", "--json"], 2).contains("gives up 2 messages"));
    assert_eq!(Queue::open(dir).unwrap().stats().consumers, 0, "none was made");
    assert_eq!(text("cat", dir, &[]), "a\nb\nc\n");

    let said = add(&["--at", "2", "--yes"], 0);
    assert!(said.contains("2 messages given up that no consumer had claimed"), "{said}");
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

#[test]
fn what_was_given_up_unclaimed_is_in_the_figures() {
    let dir = crate::support::tempdir().unwrap();
    unread(dir.path());
    ends(on("consumers", dir.path(), &["add", "late", "--at", "last", "--yes"]), 0);
    assert_eq!(number(&stat(dir.path())["counted"]["unclaimed"]), 3);
    let metrics = text("stat", dir.path(), &["--prometheus", "--label", "q"]);
    let line = "mmq_given_up_messages_total{queue=\"q\",cause=\"unclaimed\"} 3\n";
    assert!(metrics.contains(line), "{metrics}");
}
