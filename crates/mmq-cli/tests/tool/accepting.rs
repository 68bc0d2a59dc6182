//! `forward` to `accept`: two queues, no server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use mmq::{LaneOptions, OnFull, Options, Queue};
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Running, check, ends, given, mmq, on, said};
use crate::support::{Random, eventually, sample, seed};

fn exec(far: &Path) -> String {
    format!("exec:'{}' accept '{}'", env!("CARGO_BIN_EXE_mmq"), far.display())
}

fn fill(dir: &Path, numbers: std::ops::Range<u64>) {
    let queue = Queue::open(dir).unwrap();
    queue.enqueue_batch(numbers.map(|number| format!("{number:0>500}"))).unwrap();
    queue.close().unwrap();
}

fn once(dir: &Path, url: &str) -> Command {
    on("forward", dir, &[url, "--once"])
}

/// The far queue's own consumer gets each number once and in order, with its origin.
fn takes(far: &Path, id: [u8; 16], numbers: std::ops::Range<u64>) {
    let queue = Queue::open(far).unwrap();
    for number in numbers {
        let message = queue.dequeue().unwrap().expect("a message");
        assert_eq!(message.as_str().unwrap(), format!("{number:0>500}"));
        let origin = message.origin().expect("an origin");
        assert_eq!((origin.queue_id, origin.seq), (id, number));
    }
    assert!(queue.dequeue().unwrap().is_none());
    queue.close().unwrap();
}

fn id(dir: &Path) -> [u8; 16] {
    Queue::open(dir).unwrap().id()
}

#[test]
fn numbers_arrive_once_after_readers_have_taken_all() {
    let dir = crate::support::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("it's far"));
    let url = format!("exec:{} accept \"{}\"", env!("CARGO_BIN_EXE_mmq"), far.display());
    for round in 0..3 {
        fill(&near, round * 1000..(round + 1) * 1000);
        ends(once(&near, &url), 0);
        ends(once(&near, &url), 0);
        takes(&far, id(&near), round * 1000..(round + 1) * 1000);
    }
}

/// The message that says where the next session goes on waits for nobody.
#[test]
fn what_a_bookmark_keeps_is_not_counted() {
    let dir = crate::support::tempdir().unwrap();
    let [near, far] = ["near", "far"].map(|name| dir.path().join(name));
    for round in 0..2 {
        fill(&near, round * 10..(round + 1) * 10);
        ends(once(&near, &exec(&far)), 0);
        ends(on("stat", &far, &["--max-lag", "0", "--consumer", ""]), 1);
        takes(&far, id(&near), round * 10..(round + 1) * 10);
        ends(on("stat", &far, &["--max-lag", "0", "--max-age", "0", "--max-bytes", "0"]), 0);
        let listed = ends(on("consumers", &far, &[]), 0);
        let listed = String::from_utf8(listed.stdout).unwrap();
        // (A line is folded where it is long.)
        let listed = listed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(listed.contains("keeps 1 message"), "{listed}");
        assert!(listed.contains("; where `mmq accept` goes on with what queue "), "{listed}");
        assert!(!listed.contains("a forwarder"), "{listed}");
    }
    // It counts what nobody has told it of.
    let queue = Queue::open(&far).unwrap();
    queue.enqueue("of another source").unwrap();
    queue.close().unwrap();
    let name: String = id(&near).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("accept-{name}");
    ends(on("stat", &far, &["--max-lag", "0", "--consumer", &name]), 1);
}

#[test]
fn two_sources_go_to_one_queue() {
    let dir = crate::support::tempdir().unwrap();
    let [a, b, far] = ["a", "b", "far"].map(|name| dir.path().join(name));
    for round in 0..3 {
        fill(&a, round * 10..(round + 1) * 10);
        fill(&b, round * 10..(round + 1) * 10);
        ends(once(&a, &exec(&far)), 0);
        ends(once(&b, &exec(&far)), 0);
    }
    let queue = Queue::open(&far).unwrap();
    let origins: Vec<_> = std::iter::from_fn(|| queue.dequeue().unwrap())
        .map(|message| message.origin().unwrap())
        .collect();
    for id in [id(&a), id(&b)] {
        let numbers = origins.iter().filter(|it| it.queue_id == id).map(|it| it.seq);
        assert!(numbers.eq(0..30));
    }
}

/// The forwarder is killed 10 times, and `accept` every other time; with all effort 40 times.
#[test]
fn sigkill_of_either_side_doubles_and_loses_nothing() {
    let mut random = Random::new(seed("accept_killed"));
    let dir = crate::support::tempdir().unwrap();
    let [near, far, pid] = ["near", "far", "pid"].map(|name| dir.path().join(name));
    let (each, rounds) = (500, sample(40));
    fill(&near, 0..0);
    let id = id(&near);
    // The shell becomes `mmq accept`, so this is its number.
    let url =
        exec(&far).replacen("exec:", &format!("exec:echo $$ > '{}'; exec ", pid.display()), 1);
    for round in 0..rounds {
        fill(&near, round * each..(round + 1) * each);
        let _ = fs::remove_file(&pid);
        let mut forward = on("forward", &near, &[&url, "--wait-lock"]);
        let forward = forward.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut forward = Running(forward);
        let accept = || fs::read_to_string(&pid).unwrap_or_default().trim().to_owned();
        eventually("a session begins", || !accept().is_empty());
        std::thread::sleep(Duration::from_millis(random.below(150)));
        if round % 2 == 0 {
            // It may be the next one already: the forwarder ends sessions, too.
            Command::new("kill").args(["-9", &accept()]).status().unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        forward.0.kill().unwrap();
        forward.0.wait().unwrap();
    }
    // An `accept` whose forwarder was killed still stores what it has got.
    let url = exec(&far).replacen(" accept ", " accept --wait-lock=60s ", 1);
    ends(once(&near, &url), 0);
    takes(&far, id, 0..rounds * each);
}

/// The text of a forwarder that ended without a session.
fn fails(near: &Path, url: &str, status: i32) -> String {
    said(&ends(once(near, url), status))
}

/// Two of these calls wait ten seconds for an acknowledgement, so all run at once.
#[test]
fn what_is_wrong_at_the_other_side_is_told_in_its_words() {
    let dir = crate::support::tempdir().unwrap();
    let queue = |name: &str| {
        let near = dir.path().join(name);
        fill(&near, 0..10);
        near
    };
    // Nothing was lost by a call that failed.
    let is_whole = |near: &Path| {
        let far = near.with_extension("far");
        ends(once(near, &exec(&far)), 0);
        takes(&far, id(near), 0..10);
    };
    std::thread::scope(|scope| {
        // A far side that begins each session and acknowledges nothing.
        scope.spawn(|| {
            let near = queue("silent");
            let url =
                r"exec:printf '\014\000\000\000\002mmqaccpt\001\000\000\000'; cat > /dev/null";
            let said = said(&ends(on("forward", &near, &[url, "--once", "--patience", "1s"]), 7));
            assert!(said.contains("it has acknowledged nothing in them: no answer for"), "{said}");
            assert_eq!(Queue::open(&near).unwrap().consumer("forward").unwrap().len(), 10);
            is_whole(&near);
        });
        scope.spawn(|| {
            let near = queue("denied");
            let text = fails(&near, "exec:echo Permission denied, publickey >&2; exit 255", 7);
            assert!(text.contains("Permission denied, publickey"), "{text}");
            is_whole(&near);
        });
        let near = queue("near");
        let text = fails(&near, "exec:no-such-command accept q", 7);
        assert!(text.contains("not found"), "{text}");
        let text = fails(&near, "exec:echo Welcome to this host; cat > /dev/null", 7);
        assert!(text.contains("no frame") && text.contains("Welc"), "{text}");
        // The frame of a later release.
        let later = r"exec:printf '\014\000\000\000\002mmqaccpt\011\000\000\000'; cat > /dev/null";
        let text = fails(&near, later, 7);
        assert!(text.contains("version 9"), "{text}");
        fails(&near, "exec:", 2);
        fails(&near, "ssh://host", 2);
        is_whole(&near);
    });
}

/// What `docs/forward.md` says of lanes: a forwarder has a consumer of its own, which has none.
#[test]
fn a_queue_that_is_read_in_lanes_goes_on_whole_and_in_order() {
    let dir = crate::support::tempdir().unwrap();
    let [near, far] = ["near", "far"].map(|name| dir.path().join(name));
    fill(&near, 0..20);
    let queue = Queue::open(&near).unwrap();
    let lanes = queue.consumer("link").unwrap().lanes(LaneOptions::new()).unwrap();
    lanes.jump().unwrap();
    queue.enqueue(format!("{:0>500}", 20)).unwrap();
    lanes.receive_fresh().unwrap().expect("what is fresh").ack().unwrap();
    let waits = queue.consumer("link").unwrap().len();
    queue.close().unwrap();
    ends(once(&near, &exec(&far)), 0);
    takes(&far, id(&near), 0..21);
    let queue = Queue::open(&near).unwrap();
    assert_eq!(queue.consumer("link").unwrap().len(), waits);
    assert_eq!(queue.consumer("forward").unwrap().len(), 0);
}

#[test]
fn an_address_of_ssh_runs_ssh() {
    let dir = crate::support::tempdir().unwrap();
    let [near, far, ssh] = ["near", "far", "ssh"].map(|name| dir.path().join(name));
    let tool = Path::new(env!("CARGO_BIN_EXE_mmq")).parent().unwrap().display().to_string();
    let script = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nexec sh -c \"$3\"\n";
    fs::write(&ssh, script).unwrap();
    Command::new("chmod").arg("755").arg(&ssh).status().unwrap();
    fill(&near, 0..10);
    let mut forward = once(&near, &format!("ssh://edge@host:22{}", far.display()));
    let path = std::env::var("PATH").unwrap();
    forward.env("PATH", format!("{}:{tool}:{path}", dir.path().display()));
    ends(forward, 0);
    takes(&far, id(&near), 0..10);
}

#[test]
fn garbage_on_standard_input_makes_no_queue() {
    let dir = crate::support::tempdir().unwrap();
    let far = dir.path().join("far");
    let accept =
        |input: &[u8]| -> Output { given(mmq(["accept".as_ref(), far.as_os_str()]), input) };
    for input in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 100]] {
        let output = check(accept(input), 2);
        assert!(said(&output).contains("standard input"), "{}", said(&output));
        assert!(!far.exists());
    }
}

#[test]
fn missing_numbers_are_told_on_standard_error() {
    let dir = crate::support::tempdir().unwrap();
    let far = dir.path().join("far");
    let frame = |kind: u8, body: &[u8]| {
        [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &[kind], body].concat()
    };
    let message = [&10_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), b"ten"].concat();
    let hello = [&b"mmqaccpt\x01\0\0\0"[..], &[7; 16]].concat();
    let input = [frame(1, &hello), frame(3, b"7-9 damaged"), frame(4, &message), frame(5, b"")];
    let output = check(given(mmq(["accept".as_ref(), far.as_os_str()]), &input.concat()), 0);
    assert!(said(&output).contains("missing: 7-9 damaged"), "{}", said(&output));
    assert!(said(&output).contains("accepted 1 message, told of 1 gap"), "{}", said(&output));
    assert!(output.stdout.ends_with(&frame(6, &11_u64.to_le_bytes())));
    // The same message again: refused, and not stored twice.
    given(mmq(["accept".as_ref(), far.as_os_str()]), &input.concat());
    let queue = Queue::open(&far).unwrap();
    assert_eq!(queue.len(), 1);
    // Why the ones before it are missing.
    assert_eq!(queue.dequeue().unwrap().unwrap().origin().unwrap().attempts, 1);
}

#[test]
fn missing_numbers_are_told_by_the_forwarder_and_stored() {
    let dir = crate::support::tempdir().unwrap();
    let [near, far] = ["near", "far"].map(|name| dir.path().join(name));
    let options = Options::new().arena_size(65_536).max_bytes(4 * 65_536);
    let queue = options.on_full(OnFull::DropOldest).open(&near).unwrap();
    queue.consumer("forward").unwrap();
    for _ in 0..100 {
        queue.enqueue([7; 10_000]).unwrap();
    }
    let oldest = queue.stats().oldest_seq;
    assert!(oldest > 0);
    queue.close().unwrap();
    let said = said(&ends(once(&near, &exec(&far)), 0));
    assert!(said.contains(&format!("messages are missing: 0-{} dropped", oldest - 1)), "{said}");
    let queue = Queue::open(&far).unwrap();
    let origin = || queue.dequeue().unwrap().unwrap().origin().unwrap();
    assert_eq!((origin().attempts, origin().attempts), (3, 0));
}

/// The last figures stay, and say that nobody forwards any more, and why.
#[test]
fn the_figures_of_a_forwarder_that_has_ended_say_so() {
    let dir = crate::support::tempdir().unwrap();
    let [near, far, metrics] = ["near", "far", "metrics"].map(|name| dir.path().join(name));
    let ends_with = |why: &str| {
        let figures = fs::read_to_string(&metrics).unwrap();
        let line = |name: &str| figures.lines().find(|line| line.starts_with(name));
        assert!(line("mmq_forward_up{").is_some_and(|line| line.ends_with(" 0")), "{figures}");
        let said = line("mmq_forward_trouble_info{").is_some_and(|line| line.contains(why));
        assert!(said, "{why}: {figures}");
        assert!(!figures.contains("s3cret"), "{figures}");
    };
    let file = metrics.to_str().unwrap();
    fill(&near, 0..5);
    let url = exec(&far).replacen("exec:", "exec:TOKEN=s3cret ", 1);
    ends(on("forward", &near, &[&url, "--once", "--metrics", file]), 0);
    ends_with("the far side has all messages");
    fs::remove_dir_all(&far).unwrap();
    ends(on("forward", &near, &[&url, "--once", "--metrics", file]), 7);
    ends_with("the far side holds nothing of the queue");
    let go_on = [&*url, "--if-forgotten", "continue", "--metrics", file];
    let mut forward = Running(on("forward", &near, &go_on).stderr(Stdio::null()).spawn().unwrap());
    let is_up = || {
        fs::read_to_string(&metrics).is_ok_and(|it| {
            it.contains("destination=\"exec:...\"} 1\n# HELP mmq_forward_sent_total")
        })
    };
    eventually("a session", is_up);
    kill_process(Pid::from_child(&forward.0), Signal::TERM).unwrap();
    assert_eq!(forward.0.wait().unwrap().code(), Some(143));
    ends_with("ended by a signal");
}

#[test]
fn a_slow_pipe_passes_everything() {
    let dir = crate::support::tempdir().unwrap();
    let [near, far] = ["near", "far"].map(|name| dir.path().join(name));
    fill(&near, 0..300);
    let slow = "i=0; while [ $i -lt 100 ]; do dd bs=1000 count=1 2>/dev/null; sleep 0.01; i=$((i+1)); done; cat";
    ends(once(&near, &format!("exec:({slow}) | {}", &exec(&far)[5..])), 0);
    takes(&far, id(&near), 0..300);
}

/// The command never answers: the figures say meanwhile what waits, and a signal ends all of it.
#[test]
fn a_signal_ends_a_command_that_has_not_answered_and_what_it_has_started() {
    let dir = crate::support::tempdir().unwrap();
    let [near, pids, metrics] = ["near", "pids", "metrics"].map(|name| dir.path().join(name));
    fill(&near, 0..50);
    let url = format!("exec:sleep 1000 & echo $$ $! > '{}'; wait", pids.display());
    let mut forward = on("forward", &near, &[&url, "--metrics", metrics.to_str().unwrap()]);
    let mut forward = Running(forward.stderr(Stdio::null()).spawn().unwrap());
    let lines = |file| fs::read_to_string(file).unwrap_or_default();
    eventually("the figures say what waits", || {
        let is_lag = |line: &str| line.starts_with("mmq_forward_lag_messages{");
        lines(&metrics).lines().any(|line| is_lag(line) && line.ends_with(" 50"))
    });
    eventually("the command has started another one", || lines(&pids).ends_with('\n'));
    let pids = lines(&pids);
    assert_eq!(pids.split_whitespace().count(), 2, "{pids}");
    kill_process(Pid::from_child(&forward.0), Signal::TERM).unwrap();
    assert_eq!(forward.0.wait().unwrap().code(), Some(143));
    for pid in pids.split_whitespace() {
        // (Whoever has inherited it may let it lie.)
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        eventually("it has ended", || state().is_empty() || state().contains(") Z "));
    }
}

/// The program in `docs/engines.md`, to a server that refuses one message.
#[test]
fn the_manuals_engine_posts_each_message() {
    let dir = crate::support::tempdir().unwrap();
    let [near, state, engine] = ["near", "state", "engine.py"].map(|name| dir.path().join(name));
    let page = include_str!("../../../../docs/engines.md");
    let program = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    fs::write(&engine, program).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let (tell, posted) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut body) = (String::new(), vec![0; 500]);
            while !head.ends_with("\r\n\r\n") {
                stream.read_line(&mut head).unwrap();
            }
            stream.read_exact(&mut body).unwrap();
            let key = head.lines().find_map(|line| line.strip_prefix("Idempotency-Key: "));
            let number = key.unwrap().rsplit('-').next().unwrap().parse::<u64>().unwrap();
            assert_eq!(body, format!("{number:0>500}").as_bytes());
            let status = if number == 7 { "422 No" } else { "200 Fine" };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            let _ = tell.send(number);
        }
    });
    let command = format!("exec:python3 '{}' {url} '{}'", engine.display(), state.display());
    for first in [0, 5] {
        fill(&near, first..first + 5);
        ends(on("forward", &near, &[&command, "--once", "--on-refused", "skip"]), 0);
    }
    // (What was not acknowledged before the refusal came again, under the same key.)
    let mut posted: Vec<_> = posted.try_iter().collect();
    assert_eq!(posted.iter().filter(|number| **number == 7).count(), 5);
    posted.sort_unstable();
    posted.dedup();
    assert!(posted.into_iter().eq(0..10));
}
