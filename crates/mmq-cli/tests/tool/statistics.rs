//! `stat`: figures, limits, `--watch`, and the text of Prometheus.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use mmq::{Options, Queue, Redelivery};
use serde_json::{Value, json};

use crate::looking::{number, stat, stop, text};
use crate::run::{Running, check, ends, given, mmq, on, said};
use crate::support::within;

#[test]
fn the_figures_are_those_of_the_queue() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(64 << 10).open(dir.path()).unwrap();
    queue.enqueue_batch((0..1000).map(|number| format!("{number:0>300}"))).unwrap();
    let audit = queue.consumer("audit").unwrap();
    let deliveries: Vec<_> = (0..3).map(|_| audit.receive().unwrap().unwrap()).collect();
    let mut deliveries = deliveries.into_iter();
    let first = deliveries.next();
    deliveries.for_each(|delivery| delivery.ack().unwrap());
    for _ in 0..500 {
        queue.dequeue().unwrap().unwrap();
    }
    queue.flush().unwrap();
    let (figures, stats) = (stat(dir.path()), queue.stats());
    for (name, value) in [
        ("next_seq", stats.next_seq),
        ("oldest_seq", stats.oldest_seq),
        ("durable_seq", stats.durable_seq),
        ("messages", stats.messages),
        ("bytes", stats.bytes),
        ("segments", stats.segments),
        ("spare_segments", stats.spare_segments),
        ("format", 3),
    ] {
        assert_eq!(number(&figures[name]), value, "{name}");
    }
    let id: String = queue.id().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(figures["queue_id"], id);
    let mut known = queue.consumer_stats();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    let mut shown = figures["consumers"].as_array().unwrap().clone();
    shown.sort_by_key(|one| one["name"].as_str().unwrap().to_owned());
    assert_eq!(shown.len(), known.len());
    for (shown, known) in shown.iter().zip(&known) {
        assert_eq!(shown["name"], known.name);
        assert_eq!(number(&shown["seq"]), known.next_seq, "{shown}");
        assert_eq!(number(&shown["messages"]), known.messages, "{shown}");
        assert_eq!(number(&shown["bytes"]), known.bytes, "{shown}");
        assert!(shown["oldest_age_seconds"].as_f64().is_some());
        assert!(shown["oldest_time"].as_str().unwrap().starts_with("20"));
    }
    let audit = shown.iter().find(|one| one["name"] == "audit").unwrap();
    assert_eq!(audit["acknowledged_ahead"], 2);
    // What is acknowledged ahead does not wait.
    let seen = text("cat", dir.path(), &["--consumer", "audit", "-n", "2"]);
    assert_eq!(seen, format!("{:0>300}\n{:0>300}\n", 0, 3));
    assert!(text("stat", dir.path(), &["--exact"]).contains(&format!("{} B", stats.bytes)));
    drop(first);
}

#[test]
fn limits_make_the_status_1_and_are_named() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    queue.consumer("slow").unwrap();
    queue.consumer("fast").unwrap().seek(3).unwrap();
    let stat = |words: &[&str], status| said(&ends(on("stat", dir.path(), words), status));
    assert_eq!(stat(&["--max-lag", "3", "--max-age", "1d", "--max-bytes", "1MiB"], 0), "");
    let passed = stat(&["--max-lag", "2"], 1);
    assert!(passed.contains("3 messages wait for consumer \"slow\", more than 2"), "{passed}");
    assert!(stat(&["--max-bytes", "1"], 1).contains("(--max-bytes)"));
    assert!(stat(&["--max-age", "0"], 1).contains("(--max-age)"));
    assert_eq!(stat(&["--max-lag", "0", "--max-age", "0", "--consumer", "fast"], 0), "");
    stat(&["--consumer", "none", "--max-lag", "1"], 5);
    assert!(stat(&["--max-lag", "2", "--json"], 1).starts_with("{\"error\":{\"code\":\"limit\","));
    // Before anybody has read, everything waits.
    let other = dir.path().join("other");
    check(given(on("put", &other, &[]), b"x\ny\n"), 0);
    let passed = ends(on("stat", &other, &["--max-lag", "1", "--max-age", "0"]), 1);
    assert_eq!(said(&passed).lines().count(), 2, "{}", said(&passed));
}

#[test]
fn watching_ends_by_a_signal() {
    let dir = crate::support::tempdir().unwrap();
    check(given(on("put", dir.path(), &[]), b"x\n"), 0);
    let mut watch = on("stat", dir.path(), &["--watch", "0.01", "--json"]);
    let mut child = Running(watch.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    for line in lines.take(3) {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(line["state"], "closed");
    }
    // Its reader has gone.
    let status = within(std::time::Duration::from_secs(60), move || child.0.wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let mut watch = on("stat", dir.path(), &["--watch", "3600"]);
    let mut child = Running(watch.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    stop(&child.0);
    let status = within(std::time::Duration::from_secs(60), move || child.0.wait().unwrap());
    assert_eq!(status.code(), Some(130));
    ends(on("stat", dir.path(), &["--watch", "0"]), 2);
}

#[test]
fn what_workers_of_a_consumer_have_is_shown_where_attempts_are_stored() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("q");
    let queue = Queue::open(&path).unwrap();
    queue.enqueue_batch((0..10).map(|number| number.to_string())).unwrap();
    let (workers, other) = (queue.consumer("workers").unwrap(), queue.consumer("other").unwrap());
    workers.set_redelivery(Redelivery::new()).unwrap();
    let _unknown = other.receive().unwrap().unwrap();
    let handed_out = |name: &str| {
        let figures = stat(&path);
        let all = figures["consumers"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["handed_out"].clone()
    };
    assert_eq!(handed_out("workers"), Value::Null);
    workers.receive().unwrap().unwrap().nack();
    workers.receive().unwrap().unwrap().nack();
    let mut held: Vec<_> = (0..4).map(|_| workers.receive().unwrap().unwrap()).collect();
    let shows = |messages: u64, first: u64, in_vain: u64| json!({"messages": messages, "first_seq": first, "first_in_vain": in_vain});
    assert_eq!(handed_out("workers"), shows(4, 0, 2));
    assert_eq!(handed_out("other"), Value::Null);
    let said = "; 4 handed out, from 0 on, which came back 2 times\n";
    assert!(text("stat", &path, &[]).contains(said));
    assert!(text("consumers", &path, &[]).contains(said));
    held.remove(2).ack().unwrap();
    held.remove(0).ack().unwrap();
    assert_eq!(handed_out("workers"), shows(2, 1, 0));
    let metrics = text("stat", &path, &["--prometheus", "--label", "q"]);
    let line = "mmq_consumer_handed_out{queue=\"q\",consumer=\"workers\"} 2\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("handed_out{queue=\"q\",consumer=\"other\"}"), "{metrics}");
    held.into_iter().for_each(|delivery| delivery.ack().unwrap());
    assert_eq!(handed_out("workers"), Value::Null);
    let held = workers.receive().unwrap().unwrap();
    assert_eq!(handed_out("workers"), shows(1, 4, 0));
    queue.close().unwrap();
    assert_eq!(handed_out("workers"), Value::Null, "nobody has it");
    drop(held);
}

#[test]
fn watching_into_a_file_shows_blocks_for_people() {
    let dir = crate::support::tempdir().unwrap();
    check(given(on("put", dir.path(), &[]), b"x\n"), 0);
    let mut watch = on("stat", dir.path(), &["--watch", "0.01"]);
    let mut child = Running(watch.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let path = dir.path().to_str().unwrap();
    let mut lines = lines.map(Result::unwrap);
    for _ in 0..3 {
        let time = lines.next().unwrap();
        assert!(crate::times::parse(&time).is_some(), "{time}");
        assert_eq!(lines.next().unwrap(), format!("{path}: closed"));
        let rest: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        assert!(rest.iter().all(|line| line.starts_with("  ")), "{rest:?}");
    }
}

/// So many looks at a queue show what they are to show.
const MANY: usize = 1000;

#[test]
fn watching_shows_how_quickly_messages_come_and_go() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    queue.enqueue_batch((0..10).map(|number| number.to_string())).unwrap();
    queue.consumer("slow").unwrap();
    queue.dequeue().unwrap().unwrap();
    let watched = |words: &[&str]| {
        let mut watch = on("stat", dir.path(), &[&["--watch", "0.01"], words].concat());
        let mut child = Running(watch.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        (child, lines.map(Result::unwrap))
    };
    let (_child, mut lines) = watched(&["--json"]);
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap();
    assert!(next().get("put_per_second").is_none(), "there was no look before");
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    queue.dequeue().unwrap().unwrap();
    let mut looks = std::iter::repeat_with(next).take(MANY);
    let moved = looks.find(|line| line["put_per_second"] != 0.0).expect("some were put in");
    let of = |name: &str| {
        let all = moved["consumers"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["taken_per_second"].as_f64().unwrap()
    };
    let put = moved["put_per_second"].as_f64().unwrap();
    assert!(put > 0.0 && of("slow") == 0.0, "{moved}");
    let (_child, lines) = watched(&[]);
    let mut lines = lines.take(MANY);
    assert!(lines.any(|line| line.ends_with("; 0.0 put in a second")));
    assert!(lines.any(|line| line.contains("slow: ") && line.ends_with("; 0.0 taken a second")));
}

/// A line of the text format, version 0.0.4: a comment, or a sample with its labels.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name: String =
        line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    assert!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()), "{line}");
    let mut rest = line[name.len()..].strip_prefix('{').expect("labels").chars();
    let mut labels = BTreeMap::new();
    loop {
        let label: String = rest.by_ref().take_while(|c| *c != '=').collect();
        assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
        assert_eq!(rest.next(), Some('"'), "{line}");
        let mut value = String::new();
        loop {
            match rest.next().expect("the value ends") {
                '"' => break,
                '\\' => value.push(match rest.next() {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    other => panic!("{other:?} in {line}"),
                }),
                c => value.push(c),
            }
        }
        assert_eq!(labels.insert(label, value), None, "{line}");
        match rest.next() {
            Some(',') => {}
            Some('}') => break,
            other => panic!("{other:?} in {line}"),
        }
    }
    let value = rest.as_str().strip_prefix(' ').expect("a blank").parse().expect("a number");
    (name, labels, value)
}

/// Another user may have put a link there, where that user may write to the directory.
#[test]
fn a_link_beside_the_output_is_not_followed() {
    let dir = crate::support::tempdir().unwrap();
    Queue::open(dir.path().join("q")).unwrap().close().unwrap();
    fs::write(dir.path().join("kept"), "as it was").unwrap();
    let program = mmq([""; 0]).get_program().to_owned();
    let line = "ln -s kept out.tmp.$$; exec \"$0\" stat --prometheus --output out q";
    let mut command = Command::new("sh");
    command.args(["-c", line]).arg(program).current_dir(dir.path());
    ends(command, 0);
    assert_eq!(fs::read_to_string(dir.path().join("kept")).unwrap(), "as it was");
    assert!(dir.path().join("out").symlink_metadata().unwrap().is_file());
}

#[test]
fn prometheus_text_holds_to_its_grammar() {
    let dir = crate::support::tempdir().unwrap();
    let odd = dir.path().join("a \"b\" \\ \n c");
    let queue = Queue::open(&odd).unwrap();
    queue.enqueue_batch(["a", "b"]).unwrap();
    queue.dequeue().unwrap().unwrap();
    let missing = dir.path().join("missing");
    let file = dir.path().join("mmq.prom");
    let mut command = mmq(["stat", "--prometheus", "--output"]);
    ends(std::mem::replace(command.arg(&file).args([&odd, &missing]), mmq([""; 0])), 5);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "nothing is left beside the file");
    let written = fs::read_to_string(&file).unwrap();
    let printed = mmq(["stat", "--prometheus"]).args([&odd, &missing]).output().unwrap();
    assert_eq!(printed.status.code(), Some(5));
    let shape = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
    assert_eq!(shape(&written), shape(&String::from_utf8(printed.stdout).unwrap()));

    let (mut kinds, mut samples) = (BTreeMap::new(), Vec::new());
    let (mut current, mut helped) = (String::new(), Vec::new());
    for line in written.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty() && !text.contains('\\'));
            assert!(!helped.contains(&name), "{name} comes once");
            helped.push(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind) && helped.last() == Some(&name));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(kinds.insert(name, kind).is_none());
            current = name.to_owned();
        } else {
            let sample = sample(line);
            assert_eq!(sample.0, current, "the samples of a family are together");
            samples.push(sample);
        }
    }
    assert!(written.ends_with('\n'));
    let value = |name: &str, dir: &Path| {
        let queue = dir.to_str().unwrap();
        let found: Vec<_> =
            samples.iter().filter(|one| one.0 == name && one.1["queue"] == queue).collect();
        assert!(found.len() < 2, "{name}");
        found.first().map(|one| one.2)
    };
    assert_eq!((value("mmq_up", &odd), value("mmq_up", &missing)), (Some(1.0), Some(0.0)));
    assert_eq!(value("mmq_owned", &odd), Some(1.0));
    assert_eq!(value("mmq_messages", &odd), Some(1.0));
    assert_eq!(value("mmq_enqueued_total", &odd), Some(2.0));
    assert_eq!(value("mmq_consumer_messages", &odd), Some(1.0));
    assert!(value("mmq_consumer_oldest_timestamp_seconds", &odd).unwrap() > 1.7e9);
    assert_eq!(value("mmq_messages", &missing), None);
    queue.dequeue().unwrap().unwrap();
    let text = text("stat", &odd, &["--prometheus", "--label", "jobs"]);
    assert!(text.contains("mmq_messages{queue=\"jobs\"} 0\n"), "{text}");
    assert!(!text.contains("oldest_timestamp_seconds{"), "nothing waits");
    ends(on("stat", &odd, &["--prometheus", "--label", "a", "--label", "b"]), 2);
    ends(on("stat", &odd, &["--output", "x"]), 2);
}

#[test]
fn two_queues_never_have_one_label() {
    let dir = crate::support::tempdir().unwrap();
    check(given(on("put", dir.path(), &[]), b"x\n"), 0);
    let twice = dir.path().to_str().unwrap();
    let reported = ends(on("stat", dir.path(), &[twice, "--prometheus"]), 2);
    assert!(said(&reported).contains("--label"), "{}", said(&reported));
    ends(on("stat", dir.path(), &[twice, "--prometheus", "--label", "a", "--label", "a"]), 2);
    ends(on("stat", dir.path(), &[twice, "--prometheus", "--label", "a", "--label", "b"]), 0);
    ends(on("stat", dir.path(), &[twice]), 0);
}
