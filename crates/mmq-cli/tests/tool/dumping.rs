//! `dump` and `load`.

use std::fs;

use mmq::{Options, Queue};
use serde_json::Value;

use crate::run::{check, ends, given, on, said};
use crate::support::{Random, seed, segments};

#[test]
fn what_was_dumped_is_loaded_as_it_was() {
    let dir = crate::support::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let mut random = Random::new(seed("dump"));
    let queue = Options::new().arena_size(64 << 10).open(&old).unwrap();
    for _ in 0..500 {
        let len = random.size(0..=2000);
        let message: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        queue.enqueue(message).unwrap();
    }
    queue.enqueue("text").unwrap();
    // From here on the numbers of old and new differ.
    queue.seek(100).unwrap();
    queue.consumer("slow").unwrap().seek(90).unwrap();
    queue.consumer("done").unwrap().seek(501).unwrap();
    let ahead = queue.consumer("slow").unwrap();
    let first = ahead.receive().unwrap().unwrap();
    ahead.receive().unwrap().unwrap().ack().unwrap();
    let third = ahead.receive().unwrap().unwrap();
    for _ in 0..200 {
        ahead.receive().unwrap().unwrap().ack().unwrap();
    }
    queue.flush().unwrap();
    // Somebody has it meanwhile.
    let dumped = ends(on("dump", &old, &[]), 0).stdout;
    let head: Value =
        serde_json::from_slice(dumped.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let id: String = queue.id().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&head["mmq"], &head["next_seq"]), (&1.into(), &501.into()));
    assert_eq!((&head["queue_id"], head["consumers"].as_array().unwrap().len()), (&id.into(), 3));
    drop((first, third));
    let loaded = check(given(on("load", &new, &[]), &dumped), 0);
    assert!(said(&loaded).ends_with("3 consumers; 0 gaps left out\n"), "{}", said(&loaded));
    // What was acknowledged ahead does not come again; the numbers are the same here.
    let head = |dir| {
        let dumped = ends(on("dump", dir, &[]), 0).stdout;
        let head = dumped.split(|byte| *byte == b'\n').next().unwrap();
        let head: Value = serde_json::from_slice(head).unwrap();
        head["consumers"].clone()
    };
    assert_eq!(head(&new), head(&old));
    let slow = head(&new).as_array().unwrap().iter().position(|place| place["name"] == "slow");
    assert_eq!(head(&new)[slow.unwrap()]["acknowledged"], serde_json::json!([[91, 91], [93, 292]]));
    let cat = |dir, words: &[&str]| ends(on("cat", dir, words), 0).stdout;
    for words in [&["--framing", "length"][..], &["--framing", "length", "--consumer", "done"]] {
        assert!(cat(&old, words) == cat(&new, words), "{words:?}");
    }
    let from = ["--framing", "length", "--consumer", "slow", "--from", "+0"];
    assert_eq!(cat(&new, &from), {
        let all = Queue::open(&new).unwrap();
        let slow = all.consumer("slow").unwrap();
        assert_eq!((all.len(), slow.len(), all.consumer("done").unwrap().len()), (401, 210, 0));
        all.close().unwrap();
        cat(&old, &from)
    });
    // A queue that is not empty stays as it is, and so does a file.
    let refused = check(given(on("load", &new, &["--json"]), &dumped), 6);
    assert!(said(&refused).contains("\"code\":\"not_empty\""), "{}", said(&refused));
    let file = dir.path().join("dump.json");
    fs::write(&file, &dumped).unwrap();
    let third = dir.path().join("third");
    ends(on("load", &third, &[file.to_str().unwrap(), "--quiet"]), 0);
    assert!(cat(&third, &["--framing", "length"]) == cat(&new, &["--framing", "length"]));
}

#[test]
fn gaps_are_left_out_and_what_is_no_dump_is_refused() {
    let dir = crate::support::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let lines: String = (0..20).map(|number| format!("{number:0>100}\n")).collect();
    check(given(on("put", &old, &[]), lines.as_bytes()), 0);
    let path = segments(&old).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let wanted = format!("{:0>100}", 7);
    let at = bytes.windows(100).position(|part| part == wanted.as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let dumped = ends(on("dump", &old, &[]), 1).stdout;
    let loaded = said(&check(given(on("load", &new, &[]), &dumped), 1));
    assert!(loaded.contains("loaded 19 messages, 1 consumer; 1 gap left out"), "{loaded}");
    assert!(loaded.ends_with("the dump tells of 1 gap: its queue had lost messages\n"), "{loaded}");
    let again = dir.path().join("again");
    let loaded = said(&check(given(on("load", &again, &["--json"]), &dumped), 1));
    assert!(loaded.lines().last().unwrap().contains("\"code\":\"gap\""), "{loaded}");
    assert_eq!(
        ends(on("cat", &new, &[]), 0).stdout,
        lines.replace(&(wanted + "\n"), "").as_bytes()
    );
    for input in [
        "",
        "x\n",
        "{\"seq\":0,\"text\":\"a\"}\n",
        "{\"mmq\":2}\n",
        "{\"mmq\":1,\"consumers\":[{}]}\n",
    ] {
        let none = dir.path().join("none");
        check(given(on("load", &none, &[]), input.as_bytes()), 6);
        assert!(!none.exists(), "{input}");
    }
    ends(on("dump", &dir.path().join("none"), &[]), 5);
}
