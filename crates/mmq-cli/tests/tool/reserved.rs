//! Numbers that were only reserved are no messages, and none is missing where they lie.

use std::fs;
use std::path::Path;

use crate::each::each;
use crate::run::{check, ends, given, on, said};

/// A queue of two messages whose owner has died. The copy of its directory does not show whether
/// the power was cut as well.
fn copied(dir: &Path, name: &str) -> std::path::PathBuf {
    let (old, new) = (dir.join("old"), dir.join(name));
    if !old.exists() {
        check(given(on("put", &old, &["--no-flush"]), b"a\nb\n"), 0);
    }
    fs::create_dir(&new).unwrap();
    for file in fs::read_dir(old).unwrap().map(|file| file.unwrap().path()) {
        if file.is_file() {
            fs::copy(&file, new.join(file.file_name().unwrap())).unwrap();
        }
    }
    new
}

#[test]
fn reserved_numbers_are_told_and_not_counted_as_missing() {
    let dir = crate::support::tempdir().unwrap();
    let told = "numbers 2 to 2097151 will never come: only reserved";
    let taken = ends(on("take", &copied(dir.path(), "take"), &[]), 0);
    assert_eq!(taken.stdout, b"a\nb\n");
    assert!(said(&taken).contains(told), "{}", said(&taken));
    let queue = copied(dir.path(), "each");
    assert!(said(&ends(each(&queue, &[], "true"), 0)).contains(told));
    let (dead, back) = (copied(dir.path(), "dead"), copied(dir.path(), "back"));
    assert!(said(&ends(on("redrive", &dead, &[back.to_str().unwrap()]), 0)).contains(told));
    // The look at it knows them once an owner has found them.
    let queue = copied(dir.path(), "dump");
    ends(on("consumers", &queue, &["add", "other"]), 0);
    assert!(said(&ends(on("cat", &queue, &[]), 0)).contains(told));
    let dump = ends(on("dump", &queue, &[]), 0);
    assert!(String::from_utf8_lossy(&dump.stdout).contains("\"cause\":\"reserved\""));
    check(given(on("load", &dir.path().join("loaded"), &[]), &dump.stdout), 0);
}
