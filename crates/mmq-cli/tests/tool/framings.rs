//! `put | take` in each framing.

use mmq::Queue;

use crate::run::{check, ends, given, on, said};
use crate::support::{Random, seed};

/// Messages without these bytes.
fn messages(random: &mut Random, without: &[u8]) -> Vec<Vec<u8>> {
    let mut one = |number: u64| {
        let longest = if number.is_multiple_of(50) { 300_000 } else { 200 };
        let mut bytes = vec![0; random.size(0..=longest)];
        for byte in &mut bytes {
            *byte = random.next() as u8;
        }
        bytes.retain(|byte| !without.contains(byte));
        bytes
    };
    (0..500).map(&mut one).collect()
}

fn held(dir: &std::path::Path) -> Vec<Vec<u8>> {
    let queue = Queue::open(dir).unwrap();
    queue.iter().map(|message| message.unwrap().to_vec()).collect()
}

#[test]
fn put_and_take_are_inverse_in_each_framing() {
    let mut random = Random::new(seed("framings"));
    let cases: [(&str, &[u8]); 5] =
        [("line", b"\n\r"), ("null", b"\0"), ("length", b""), ("varint", b""), ("json", b"")];
    for (framing, without) in cases {
        let dir = crate::support::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let messages = messages(&mut random, without);
        let queue = Queue::open(&from).unwrap();
        queue.enqueue_batch(&messages).unwrap();
        queue.close().unwrap();
        let words = ["--framing", framing];
        let out = ends(on("take", &from, &words), 0).stdout;
        check(given(on("put", &to, &words), &out), 0);
        assert!(held(&to) == messages, "{framing}");
        assert!(held(&from).is_empty(), "{framing}");
        // Once more, with other batches.
        let again = ends(on("take", &to, &words), 0).stdout;
        let framed = |out: &[u8]| String::from_utf8_lossy(&untimed(out)).replace("\"seq\":", "");
        assert!(framed(&again) == framed(&out), "{framing}");
    }
}

#[test]
fn each_framing_is_what_its_name_says() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    for (framing, wanted) in [
        ("line", &b"ab\n\nc\n"[..]),
        ("null", b"ab\0\0c\0"),
        ("length", b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c"),
        ("varint", b"\x02ab\0\x01c"),
        ("raw", b"abc"),
    ] {
        check(given(on("put", &queue, &[]), b"ab\r\n\nc"), 0);
        let output = ends(on("take", &queue, &["--framing", framing]), 0);
        assert_eq!(output.stdout, wanted, "{framing}");
    }
    check(given(on("put", &queue, &["--keep-cr"]), b"ab\r\n"), 0);
    assert_eq!(ends(on("take", &queue, &["-0"]), 0).stdout, b"ab\r\0");
    check(given(on("put", &queue, &["--framing", "raw"]), b"a\nb\n"), 0);
    let output = ends(on("take", &queue, &["--json"]), 0);
    assert_eq!(untimed(&output.stdout), b"{\"seq\":16,\"len\":4,\"text\":\"a\\nb\\n\"}\n");
}

#[test]
fn a_message_with_the_delimiter_is_counted_or_refused() {
    let dir = crate::support::tempdir().unwrap();
    let input = b"\x01a\x03b\nc\x01d\x02\n\n";
    let varint = ["--framing", "varint"];
    check(given(on("put", dir.path(), &varint), input), 0);
    let output = ends(on("take", dir.path(), &["--strict"]), 6);
    assert_eq!(output.stdout, b"a\n");
    assert!(said(&output).contains("message 1 contains the delimiter; use --framing length"));
    let output = ends(on("take", dir.path(), &[]), 0);
    assert_eq!(output.stdout, b"b\nc\nd\n\n\n\n");
    let wanted = "2 messages contained the delimiter (the first is 1); use --framing length";
    assert!(said(&output).contains(wanted), "{}", said(&output));
}

#[test]
fn input_that_is_cut_off_or_wrong_is_refused_and_what_came_before_stays() {
    for (framing, input, said_is) in [
        ("length", &b"\0\0\0\x01a\0\0\0\x02b"[..], "message 2 is cut off"),
        ("length", b"\0\0\0\x01a\0\0", "message 2 is cut off"),
        ("varint", b"\x01a\x80", "message 2 is cut off"),
        ("varint", b"\x01a\xff\xff\xff\xff\x7f", "message 2 is longer than 67108864 bytes"),
        ("varint", b"\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "has an invalid length"),
        ("json", b"{\"text\":\"a\"}\n\nnot json\n", "line 3 is not a JSON object"),
    ] {
        let dir = crate::support::tempdir().unwrap();
        let output = check(given(on("put", dir.path(), &["--framing", framing]), input), 6);
        assert!(said(&output).contains(said_is), "{}", said(&output));
        assert_eq!(held(dir.path()), [b"a"], "{framing}");
        let batch = ["--batch", "--json", "--framing", framing];
        let output = check(given(on("put", dir.path(), &batch), input), 6);
        let code = if said_is.ends_with("bytes") { "too_large" } else { "framing" };
        let wanted = format!("{{\"error\":{{\"code\":\"{code}\",\"message\":");
        assert!(said(&output).starts_with(&wanted), "{}", said(&output));
        assert_eq!(held(dir.path()), [b"a"], "{framing}: all or nothing");
    }
}

/// Without a bound the memory of a put would be as long as what comes without a newline.
#[test]
fn a_message_that_is_longer_than_was_allowed_is_refused_with_its_line() {
    let long = "x".repeat(9000);
    let json = format!("{{\"text\":\"{long}\"}}");
    for (framing, first, second) in [
        ("line", "a\n", &*long),
        ("null", "a\0", &*long),
        ("json", "{\"text\":\"a\"}\n", &json),
        ("raw", "", &*long),
        ("length", "\0\0\0\x01a\0\0\x01\0", &*long),
        ("varint", "\x01a\x7f", &*long),
    ] {
        let dir = crate::support::tempdir().unwrap();
        let words = ["--max-message", "100", "--framing", framing];
        let output =
            check(given(on("put", dir.path(), &words), (first.to_owned() + second).as_bytes()), 6);
        let number = if framing == "raw" { 1 } else { 2 };
        let what = if framing == "json" { "line" } else { "message" };
        let wanted =
            format!("{what} {number} is longer than 100 bytes; --max-message allows up to");
        assert!(said(&output).contains(&wanted), "{framing}: {}", said(&output));
        assert_eq!(Queue::open(dir.path()).unwrap().len(), number - 1, "{framing}");
    }
    // A bound of 100 bytes allows the line of a message that long, however it is written.
    let dir = crate::support::tempdir().unwrap();
    let line = format!("{{\"text\":\"{}\"}}\n", "\\u0001".repeat(100));
    let json = ["--max-message", "100", "--framing", "json"];
    check(given(on("put", dir.path(), &json), line.as_bytes()), 0);
    let mut dump = ends(on("dump", dir.path(), &[]), 0).stdout;
    dump.extend(line.replace('1', &"1".repeat(100)).bytes());
    let load = on("load", &dir.path().join("new"), &["--max-message", "100"]);
    let output = check(given(load, &dump), 6);
    assert!(said(&output).contains("line 3 is longer than 100 bytes"), "{}", said(&output));
}

#[test]
fn another_program_may_decode_the_messages() {
    let dir = crate::support::tempdir().unwrap();
    let long = "x".repeat(1 << 20);
    let input = format!("abc\n\n{long}\n");
    check(given(on("put", dir.path(), &[]), input.as_bytes()), 0);
    // It answers one message, and what it did not answer stays.
    let output = ends(on("take", dir.path(), &["--decode", "head -c 7"]), 7);
    assert_eq!(output.stdout, b"abc\n");
    let ended =
        "--decode head -c 7: the command ended (exit status: 0) before it answered a message";
    assert!(said(&output).contains(ended), "{}", said(&output));
    for (command, ended) in [
        ("false", "--decode false: the command ended (exit status: 1)"),
        ("exit 3", "--decode exit 3: the command ended (exit status: 3)"),
        ("kill -KILL $$", "--decode kill -KILL $$: the command ended (signal: 9 (SIGKILL))"),
        ("no-such-program", "--decode no-such-program: the command ended (exit status: 127)"),
    ] {
        for shows in ["cat", "take"] {
            let output = ends(on(shows, dir.path(), &["--decode", command]), 7);
            assert_eq!(output.stdout, b"", "{command}");
            assert!(said(&output).contains(ended), "{command}: {}", said(&output));
        }
    }
    let output = ends(on("take", dir.path(), &["--decode", "cat", "--framing", "null"]), 0);
    assert!(output.stdout == format!("\0{long}\0").into_bytes());
    check(given(on("put", dir.path(), &[]), b"abc"), 0);
    // A signal from a terminal ends it, too.
    let mut child = on("take", dir.path(), &["--decode", "kill -INT $PPID; kill -INT $$"]);
    let output = child.output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let shift = "head -c 7 | tr a-z A-Z";
    assert_eq!(ends(on("take", dir.path(), &["--decode", shift]), 0).stdout, b"ABC\n");
}

/// JSON lines without the times of segments.
fn untimed(lines: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(lines);
    let mut parts = text.split(",\"segment_time\":\"");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest += part.split_once('"').expect("the end of a time").1;
    }
    rest.into_bytes()
}
