//! `mmq forward`, by its real binary, against a real server.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use mmq::{CopiedId, Inspector, Queue};

use super::KEY;
use super::ends::silent;
use super::server::{Entry, Server, check};

fn command(words: &[&str]) -> Command {
    let mut command = crate::support::built(env!("CARGO_BIN_EXE_mmq"));
    command.args(words);
    command
}

fn forward(dir: &Path, url: &str, words: &[&str]) -> Command {
    let mut command = command(&["forward", dir.to_str().unwrap(), url, "--key", KEY]);
    command.args(words);
    command
}

/// What it said on standard error, having ended with that status.
fn ends(mut command: Command, status: i32) -> String {
    let Output { status: ended, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(ended.code(), Some(status), "{said}");
    said
}

fn put(dir: &Path, lines: &str) {
    let mut putting = command(&["put", dir.to_str().unwrap()]);
    let mut putting = putting.stdin(Stdio::piped()).spawn().unwrap();
    putting.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(putting.wait().unwrap().success());
}

#[test]
fn what_is_there_goes_on_once() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = dir.path().join("q");
    let metrics = dir.path().join("mmq.prom");
    let to_file = ["--once", "--metrics", metrics.to_str().unwrap()];
    put(&queue, "message 0\nmessage 1\n");
    let said = ends(forward(&queue, &server.url(), &to_file), 0);
    assert!(said.contains("2 sent, 2 acknowledged, 0 to go"), "{said}");
    put(&queue, "message 2\n");
    ends(forward(&queue, &server.url(), &to_file), 0);
    check(&server.entries(KEY), 3);
    let figures = std::fs::read_to_string(&metrics).unwrap();
    let path = queue.display();
    let url = server.url();
    let labels = format!("{{queue=\"{path}\",consumer=\"forward\",destination=\"{url}\"}}");
    for sample in ["acknowledged_total", "acknowledged_bytes_total", "lost_there_total", "up"] {
        assert!(figures.contains(&format!("mmq_forward_{sample}{labels} ")), "{figures}");
    }
    let bytes = format!("mmq_forward_acknowledged_bytes_total{labels} 9\n");
    assert!(figures.contains(&bytes), "{figures}");
    assert!(figures.contains("mmq_forward_last_acknowledgement_timestamp_seconds{"), "{figures}");
    assert!(figures.contains("reason=\"ended: the far side has all messages\""), "{figures}");
    let listed = command(&["consumers", queue.to_str().unwrap()]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("a forwarder: moved "), "{listed}");
    assert!(listed.contains("ago, keeps 3 messages"), "{listed}");
    let labelled = [&to_file[..], &["--label", "jobs"]].concat();
    ends(forward(&queue, &server.url(), &labelled), 0);
    let figures = std::fs::read_to_string(&metrics).unwrap();
    assert!(figures.contains("mmq_forward_lag_messages{queue=\"jobs\",consumer="), "{figures}");
    let output = forward(&queue, &server.url(), &["--once", "--json"]).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.starts_with(r#"{"state":"ended","sent":0,"#), "{line}");
}

#[test]
fn the_directory_that_one_stands_in_has_its_own_name() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = dir.path().join("work");
    put(&queue, "message 0\n");
    let mut forward = command(&["forward", ".", &server.url(), "--key", "of:{dir}", "--once"]);
    forward.current_dir(&queue);
    ends(forward, 0);
    check(&server.entries("of:work"), 1);
}

#[test]
fn several_messages_go_in_one_entry() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    put(dir.path(), "message 0\nmessage 1\nmessage 2\nmessage 3\nmessage 4\n");
    let said = ends(forward(dir.path(), &server.url(), &["--once", "--pack", "3"]), 0);
    assert!(said.contains("5 sent, 5 acknowledged, 0 to go"), "{said}");
    let entries = server.entries(KEY);
    assert_eq!(entries.iter().map(|it| &*it.id).collect::<Vec<_>>(), ["3-0", "5-0"]);
    check(&entries.into_iter().flat_map(Entry::unpacked).collect::<Vec<_>>(), 5);
}

/// The last pack has random bytes, which zstd makes no shorter.
#[cfg(feature = "zstd")]
#[test]
fn packs_are_compressed_where_that_makes_them_shorter() {
    use mmq::forward::{decompress, unpack};
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let lines: Vec<_> = (0..200).map(|number| format!("the same line, but for {number}")).collect();
    put(dir.path(), &format!("{}\nx\ny\n", lines.join("\n")));
    ends(forward(dir.path(), &server.url(), &["--once", "--pack", "200", "--zstd", "3"]), 0);
    let entries = server.entries(KEY);
    let packs: Vec<_> = entries.iter().map(|entry| &entry.fields["pack"]).collect();
    assert_eq!((packs.len(), packs[0][0], packs[1][0]), (2, 2, 1));
    let longest = lines.iter().map(String::len).sum::<usize>();
    assert!(packs[0].len() < longest / 5, "{} bytes of {longest}", packs[0].len());
    let whole = decompress(packs[0]).unwrap();
    let there = unpack(&whole).unwrap().map(|(seq, line)| (seq, String::from_utf8_lossy(line)));
    let there_too = lines.iter().map(|line| line.into());
    assert_eq!(there.collect::<Vec<_>>(), (0..).zip(there_too).collect::<Vec<_>>());
    let whole = decompress(packs[1]).unwrap();
    let there: Vec<_> = unpack(&whole).unwrap().collect();
    assert_eq!(there, [(200, &b"x"[..]), (201, b"y")]);
    let said = unpack(packs[0]).unwrap_err().to_string();
    assert!(said.contains("it is compressed: `decompress` it first"), "{said}");
    for len in 1..packs[0].len() {
        decompress(&packs[0][..len]).unwrap_err();
    }
    for bit in 8..packs[0].len() * 8 {
        let mut damaged = packs[0].clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        decompress(&damaged).unwrap_err();
    }
}

/// Whatever a writer gives the right checksum, a reader gets an error, and no gigabytes.
#[cfg(feature = "zstd")]
#[test]
fn a_faulty_writers_compressed_pack_is_an_error() {
    use mmq::forward::decompress;
    let sealed = |body: &[u8]| {
        let sum = xxhash_rust::xxh3::xxh3_64(body) as u32;
        [&[2][..], &sum.to_le_bytes(), body].concat()
    };
    let frame = |len: u64| {
        // The magic number, a length of eight bytes and one segment, then the last block, empty.
        [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &len.to_le_bytes(), &[1, 0, 0]].concat()
    };
    assert_eq!(decompress(&sealed(&frame(0))).unwrap()[0], 1);
    let reasons = [
        (frame(u64::MAX >> 8), "longer than 64 MiB"),
        (frame((64 << 20) + 1), "longer than 64 MiB"),
        (frame(64 << 20), "cannot decompress"),
        (b"no frame".to_vec(), "no frame of zstd"),
        (vec![], "no frame of zstd"),
    ];
    for (body, reason) in reasons {
        let said = decompress(&sealed(&body)).unwrap_err().to_string();
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_signal_ends_it_in_order() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    put(dir.path(), "message 0\n");
    for (signal, status) in [("TERM", 143), ("INT", 130)] {
        let mut running = forward(dir.path(), &server.url(), &["--quiet"]).spawn().unwrap();
        let has_the_queue = || {
            let looked = Inspector::open(dir.path()).and_then(|queue| queue.snapshot());
            looked.is_ok_and(|snapshot| snapshot.owner_pid == Some(running.id()))
        };
        while !has_the_queue() || server.entries(KEY).is_empty() {
            std::thread::yield_now();
        }
        let pid = running.id().to_string();
        // Another one would forward through this one, which reads as the consumer already.
        let said = ends(forward(dir.path(), &server.url(), &["--once"]), 2);
        assert!(said.contains("belongs to another forwarder"), "{said}");
        assert!(
            crate::support::command("kill").args(["-s", signal, &pid]).status().unwrap().success()
        );
        assert_eq!(running.wait().unwrap().code(), Some(status));
    }
    check(&server.entries(KEY), 1);
}

#[test]
fn an_older_copy_is_refused() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let (queue, copy) = (dir.path().join("q"), dir.path().join("copy"));
    put(&queue, "message 0\n");
    Queue::open(&queue)
        .unwrap()
        .copy_to(&copy, CopiedId::Same, |_, _| ControlFlow::Continue(()))
        .unwrap();
    put(&queue, "message 1\n");
    ends(forward(&queue, &server.url(), &["--once", "--name", "q"]), 0);
    let said = ends(forward(&copy, &server.url(), &["--once", "--name", "q"]), 6);
    assert!(said.contains("older copy") && said.contains("mmq copy"), "{said}");
    check(&server.entries(KEY), 2);
}

#[test]
fn what_is_wrong_is_said() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    let nobody = "redis://127.0.0.1:1";
    let said = ends(forward(&queue, nobody, &["--once"]), 5);
    assert!(said.contains("does not exist"), "{said}");
    put(&queue, "message 0\n");
    let metrics = dir.path().join("mmq.prom");
    let words = ["--once", "--metrics", metrics.to_str().unwrap()];
    let said = ends(forward(&queue, nobody, &words), 7);
    assert!(said.contains("did not take all messages"), "{said}");
    let figures = std::fs::read_to_string(metrics).unwrap();
    let trouble = figures.lines().find(|line| line.starts_with("mmq_forward_trouble_info{"));
    assert!(trouble.is_some_and(|line| line.contains("refused") && line.ends_with(" 1")));
    assert!(figures.contains("destination=\"redis://127.0.0.1:1\"} 0"), "{figures}");
    ends(forward(&queue, "kafka://host", &[]), 2);
    ends(forward(&queue, nobody, &["--stream", "S"]), 2);
    ends(forward(&queue, nobody, &["--on-refused", "dead"]), 2);
    // A file that cannot be written is found before the far side is used.
    let (missing, (url, connections)) = (dir.path().join("missing/mmq.prom"), silent());
    let said = ends(forward(&queue, &url, &["--metrics", missing.to_str().unwrap()]), 2);
    assert!(said.contains("missing/mmq.prom"), "{said}");
    assert!(connections.try_recv().is_err(), "nobody has connected");
    ends(command(&["forward", queue.to_str().unwrap(), nobody]), 2);
    assert_eq!(Queue::open(&queue).unwrap().consumer("forward").unwrap().len(), 1);
}

#[test]
fn forwarding_goes_on_when_its_figures_cannot_be_written() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let (queue, figures) = (dir.path().join("q"), dir.path().join("figures"));
    std::fs::create_dir(&figures).unwrap();
    put(&queue, "message 0\n");
    let file = figures.join("mmq.prom");
    let words = ["--metrics", file.to_str().unwrap()];
    let mut running = forward(&queue, &server.url(), &words);
    let running = running.stderr(Stdio::piped()).spawn().unwrap();
    crate::support::eventually("it forwards", || file.exists() && server.entries(KEY).len() == 1);
    // One look later it has said so, and another one later it has written them again.
    std::fs::remove_dir_all(&figures).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    put(&queue, "message 1\n");
    crate::support::eventually("it goes on", || server.entries(KEY).len() == 2);
    std::fs::create_dir(&figures).unwrap();
    crate::support::eventually("it writes them again", || file.exists());
    let pid = running.id().to_string();
    assert!(crate::support::command("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(143), "{said}");
    assert_eq!(said.matches("--metrics: ").count(), 1, "{said}");
}

#[test]
fn a_signal_ends_it_although_the_server_says_nothing() {
    let dir = crate::support::tempdir().unwrap();
    put(dir.path(), "message 0\n");
    let (url, connections) = silent();
    let running = forward(dir.path(), &url, &[]).stderr(Stdio::piped()).spawn().unwrap();
    let _asked = connections.recv().unwrap();
    let pid = running.id().to_string();
    assert!(crate::support::command("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    // (It promises one second. Redis is waited for ten.)
    let ended = crate::support::within(Duration::from_secs(5), || {
        running.wait_with_output().unwrap().status.code()
    });
    assert_eq!(ended, Some(143));
    let server = Server::start(&[]);
    ends(forward(dir.path(), &server.url(), &["--once"]), 0);
    check(&server.entries(KEY), 1);
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let dir = crate::support::tempdir().unwrap();
    let (queue, file) = (dir.path().join("q"), dir.path().join("password"));
    let server = Server::start(&[]);
    let _: () = server.call(&["ACL", "SETUSER", "edge", "on", "~*", "+@all", ">s @/:%"]);
    let _: () = server.call(&["ACL", "SETUSER", "default", "off"]);
    let url = server.url().replace("//", "//edge@");
    put(&queue, "message 0\n");
    let said = ends(forward(&queue, &url, &["--once"]), 7);
    assert!(said.contains("look at user and password"), "{said}");
    std::fs::write(&file, "s @/:%\n").unwrap();
    let metrics = dir.path().join("mmq.prom");
    let words = ["--once", "--password-file", file.to_str().unwrap(), "--metrics"];
    ends(forward(&queue, &url, &[&words[..], &[metrics.to_str().unwrap()]].concat()), 0);
    let figures = std::fs::read_to_string(metrics).unwrap();
    assert!(figures.contains(&format!("destination=\"{url}\"")), "{figures}");
    put(&queue, "message 1\n");
    let mut from_environment = forward(&queue, &url, &["--once"]);
    from_environment.env("MMQ_FORWARD_PASSWORD", "s @/:%");
    ends(from_environment, 0);
}
