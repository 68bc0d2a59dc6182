//! `spool`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::flipped;
use crate::run::{check, ends, given, mmq, said};
use crate::support;

#[test]
fn spool_sends_a_file_through_and_says_so_in_one_line() {
    let text = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let output = ends(mmq(["spool", concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")]), 0);
    assert!(output.stdout == text);
    let line = said(&output);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.ends_with("everything came out, byte for byte and in order\n"), "{line}");
    let inside = line.split("reopened with ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(inside.parse::<u64>().unwrap() > 0, "{line}");
    let output = check(given(mmq(["spool", "-", "--json"]), b"a\n\0\xff"), 0);
    assert_eq!(output.stdout, b"a\n\0\xff");
    assert!(said(&output).contains("\"complete\":true"), "{}", said(&output));
    // A line that is longer than a message may be comes in pieces.
    let output = check(given(mmq(["spool", "-", "--max-message", "2", "--json"]), b"12345\n"), 0);
    assert_eq!(output.stdout, b"12345\n");
    assert!(said(&output).contains("\"messages\":3"), "{}", said(&output));
    // Nothing of it stays in the temporary directory.
    let dir = crate::support::tempdir().unwrap();
    let mut spool = mmq(["spool", "-"]);
    spool.env("TMPDIR", dir.path());
    check(given(spool, &text), 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn spool_reports_what_was_lost_gives_all_else_and_fails() {
    let dir = crate::support::tempdir().unwrap();
    let (kept, output) = (dir.path().join("kept"), dir.path().join("output"));
    let line = |number: u64| format!("line {number} of what is sent\n").into_bytes();
    let lines = |numbers: std::ops::Range<u64>| numbers.map(line).collect::<Vec<_>>().concat();
    let spool = |dir| {
        let mut spool = mmq(["spool", "-"]);
        spool.arg(dir).arg("--output").arg(&output).stdin(Stdio::piped()).stderr(Stdio::piped());
        spool
    };

    // So few lines stay in the queue until the input has ended.
    let mut program = spool(&kept).spawn().unwrap();
    program.stdin.as_mut().unwrap().write_all(&lines(0..10)).unwrap();
    let segment = kept.join("segment-00000000");
    let place_of = |number| {
        let (bytes, line) = (fs::read(&segment).unwrap_or_default(), line(number));
        bytes.windows(line.len()).position(|window| *window == line)
    };
    support::eventually("the lines are in the queue", || place_of(9).is_some());
    let file = fs::File::options().write(true).open(&segment).unwrap();
    file.write_all_at(b"L", place_of(3).unwrap() as u64).unwrap();
    let ended = check(program.wait_with_output().unwrap(), 1);
    let words = said(&ended);
    assert_eq!(words.matches("mmq: message 3 will never come: damaged\n").count(), 1, "{words}");
    assert!(words.contains("NOT everything came out as it went in (9 messages, "), "{words}");
    assert!(words.contains(" bytes came out, 1 are missing, 0 are left)"), "{words}");
    assert_eq!(fs::read(&output).unwrap(), [lines(0..3), lines(4..10)].concat());

    // What an earlier run has left there is nobody's to take.
    let left = dir.path().join("left");
    flipped::make(&left, |number| number.to_string().into());
    let refused = check(spool(&left).output().unwrap(), 6);
    let wanted = "holds 4000 messages of an earlier run: name another directory";
    assert!(said(&refused).contains(wanted), "{}", said(&refused));
    assert_eq!(mmq::Queue::open(&left).unwrap().len(), flipped::MESSAGES);
}
