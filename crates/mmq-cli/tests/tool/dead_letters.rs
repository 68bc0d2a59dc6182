//! Dead letters: what the tool shows of their origins, and where it keeps them. The queue is
//! `tests/fixtures/letters`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::looking::{json, number, stat, text};
use crate::run::{check, ends, given, on};
use crate::support::copy_directory;

fn queue(home: &Path) -> PathBuf {
    let dir = home.join("letters");
    copy_directory(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/letters"),
        &dir,
    );
    dir
}

/// The origins in these lines, by the numbers of the messages.
fn origins(lines: &[Value]) -> Vec<(u64, Value)> {
    let with = lines.iter().filter(|line| line.get("origin").is_some());
    with.map(|line| (number(&line["seq"]), line["origin"].clone())).collect()
}

fn wanted() -> Vec<(u64, Value)> {
    let origin = |seq: u64, attempts: u32| json!({"queue_id": "746865206f746865722071756575652e", "seq": seq, "attempts": attempts});
    let most = u32::MAX;
    vec![(1, origin(1_000_000_007, 5)), (4, origin(0, 1)), (5, origin(most.into(), most))]
}

fn lens(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| number(&line["len"])).collect()
}

#[test]
fn origins_are_shown_with_json_and_are_no_part_of_a_message() {
    let home = crate::support::tempdir().unwrap();
    let dir = queue(home.path());
    let texts = text("cat", &dir, &[]);
    assert!(texts.starts_with("before the first letter\na dead letter\none of two\n"));
    for command in ["cat", "tail", "salvage", "take"] {
        let lines = json(command, &dir, &[]);
        assert_eq!(origins(&lines), wanted(), "{command}");
        assert_eq!(lens(&lines), [23, 13, 10, 10, 0, 9000, 4], "{command}");
    }
}

#[test]
fn stat_says_the_format_and_verify_knows_it() {
    let home = crate::support::tempdir().unwrap();
    let dir = queue(home.path());
    assert_eq!(stat(&dir)["format"], 4);
    ends(on("verify", &dir, &[]), 0);
    let plain = home.path().join("plain");
    check(given(on("put", &plain, &[]), b"a message\n"), 0);
    assert_eq!(stat(&plain)["format"], 3);
}

#[test]
fn a_copy_keeps_origins_and_a_load_does_not() {
    let home = crate::support::tempdir().unwrap();
    let dir = queue(home.path());
    let (copy, loaded) = (home.path().join("copy"), home.path().join("loaded"));
    ends(on("copy", &dir, &[copy.to_str().unwrap()]), 0);
    assert_eq!(origins(&json("cat", &copy, &[])), wanted());
    assert_eq!(stat(&copy)["format"], 4);
    let dump = ends(on("dump", &dir, &[]), 0).stdout;
    let lines = String::from_utf8(dump.clone()).unwrap();
    let lines: Vec<Value> =
        lines.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(origins(&lines), wanted());
    check(given(on("load", &loaded, &[]), &dump), 0);
    let lines = json("cat", &loaded, &[]);
    assert_eq!((origins(&lines), lens(&lines)), (Vec::new(), vec![23, 13, 10, 10, 0, 9000, 4]));
    assert_eq!(stat(&loaded)["format"], 3);
}
