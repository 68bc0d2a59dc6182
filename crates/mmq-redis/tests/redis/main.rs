//! Forwarding to a real Redis server: `cargo test -p mmq-redis`.

mod entries;
mod kills;
mod lanes;
mod links;
mod packs;
mod proxy;
mod reach;
mod server;
mod succeed;
#[path = "../../../../tests/support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;

use std::ops::ControlFlow;
use std::time::Duration;

use mmq::forward::{
    ForwardEnd, ForwardOptions, ForwardProgress, ForwardState, Forwarder, Halt, IfForgotten,
    OnRefused, TellGaps,
};
use mmq::{CopiedId, OnFull, Options, Queue};
use mmq_redis::RedisStream;
use server::{Entry, Server, check};

const KEY: &str = "mmq:test";

fn forwarder(queue: &Queue, server: &Server) -> Forwarder<RedisStream> {
    let far = RedisStream::new(&server.url(), KEY).unwrap();
    Forwarder::new(queue, "forward", far).unwrap()
}

fn put(queue: &Queue, count: u64) {
    for _ in 0..count {
        let number = queue.stats().next_seq;
        queue.enqueue(format!("message {number}")).unwrap();
    }
}

/// Why the forwarder stopped.
fn halted(mut forwarder: Forwarder<RedisStream>) -> String {
    forwarder.once().expect_err("it is to stop").to_string()
}

/// Runs the forwarder until `is_so` of its last trouble, and `then`; it is to drain after that.
fn waits_for(mut forwarder: Forwarder<RedisStream>, trouble: &str, then: impl FnOnce()) {
    let watch = forwarder.watch();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| forwarder.once());
        loop {
            let progress = watch.progress();
            assert_ne!(progress.state, ForwardState::Ended, "without {trouble:?}");
            if progress.trouble.is_some_and(|reported| reported.contains(trouble)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        then();
        assert_eq!(running.join().unwrap().unwrap(), ForwardEnd::Drained);
    });
}

#[test]
fn each_message_is_there_once_whatever_was_trimmed() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    for round in 1..=3 {
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 2_000);
        assert_eq!(forwarder(&queue, &server).once().unwrap(), ForwardEnd::Drained);
        check(&server.entries(KEY), round * 2_000);
    }
    let queue = Queue::open(dir.path()).unwrap();
    let _: u64 = server.call(&["XTRIM", KEY, "MAXLEN", "0"]);
    put(&queue, 10);
    forwarder(&queue, &server).once().unwrap();
    let entries = server.entries(KEY);
    assert_eq!(
        entries.iter().map(Entry::seq).collect::<Vec<_>>(),
        (6_000..6_010).collect::<Vec<_>>()
    );
    // The last entry of each send says whose it is.
    assert_eq!(entries[9].text("queue").len(), 32);
    assert_eq!(entries[9].text("sum").len(), 8);
}

#[test]
fn a_message_of_any_bytes_and_of_none_arrives() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    let messages = [vec![], vec![0u8, 255, 13, 10], vec![7; 3 << 20], b"$5\r\nhello\r\n".to_vec()];
    for message in &messages {
        queue.enqueue(message).unwrap();
    }
    forwarder(&queue, &server).once().unwrap();
    let entries = server.entries(KEY);
    assert!(entries.iter().map(|it| &it.fields["data"]).eq(&messages));
}

#[test]
fn missing_numbers_are_reported_in_the_way_that_was_asked_for() {
    for how in [TellGaps::Header, TellGaps::Message, TellGaps::None] {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
        let options = Options::new().arena_size(65_536).max_bytes(4 * 65_536);
        let queue = options.on_full(OnFull::DropOldest).open(dir.path()).unwrap();
        put(&queue, 10);
        forwarder(&queue, &server).gaps(how).once().unwrap();
        for _ in 0..100 {
            queue.enqueue([7; 10_000]).unwrap();
        }
        forwarder(&queue, &server).gaps(how).keep(0, 0).once().unwrap();
        let entries = server.entries(KEY);
        let behind = entries.iter().find(|it| it.seq() > 9).unwrap();
        let reported = match how {
            TellGaps::None => String::new(),
            _ => format!("10-{} dropped", behind.seq() - 1),
        };
        assert_eq!(behind.text("missing"), reported);
        let word: Vec<_> = entries.iter().filter(|it| !it.fields.contains_key("data")).collect();
        assert_eq!(word.len(), usize::from(how == TellGaps::Message));
        assert!(word.iter().all(|it| it.id == "10-1" && it.text("missing") == reported));
        // What only reports a gap may be the last entry, and is asked for again.
        forwarder(&queue, &server).gaps(how).once().unwrap();
        assert_eq!(server.entries(KEY).len(), entries.len());
    }
}

#[test]
fn each_bad_input_gets_a_sentence_and_loses_nothing() {
    let (dir, server) =
        (crate::support::tempdir().unwrap(), Server::start(&["--requirepass", "open"]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    assert!(RedisStream::new("http://here", KEY).unwrap_err().to_string().contains("redis://host"));
    assert!(RedisStream::new(&server.url(), "").unwrap_err().to_string().contains("empty"));
    assert!(halted(forwarder(&queue, &server)).contains("look at user and password"));
    let with = |password: &str| {
        let url = server.url().replace("//", &format!("//:{password}@"));
        let far = RedisStream::new(&url, KEY).unwrap();
        Forwarder::new(&queue, "forward", far).unwrap()
    };
    assert!(halted(with("wrong")).contains("look at user and password"));
    with("open").once().unwrap();

    let server = Server::start(&[]);
    let _: String = server.call(&["SET", KEY, "text"]);
    let reported = halted(forwarder(&queue, &server));
    assert!(reported.contains("the key holds something else: name another one"), "{reported}");
    let _: u64 = server.call(&["DEL", KEY]);
    let _: String = server.call(&["XADD", KEY, "5-5", "field", "value"]);
    let reported = halted(forwarder(&queue, &server));
    assert!(reported.contains("ends in 5-5, which no queue wrote"), "{reported}");
    let _: u64 = server.call(&["DEL", KEY]);

    let reported = halted(forwarder(&queue, &server));
    assert!(reported.contains("somebody purged or recreated it"), "{reported}");
    forwarder(&queue, &server).if_forgotten(IfForgotten::Resend).once().unwrap();
    check(&server.entries(KEY), 5);

    let other_dir = crate::support::tempdir().unwrap();
    let other = Queue::open(other_dir.path()).unwrap();
    put(&other, 7);
    let reported = halted(forwarder(&other, &server));
    assert!(reported.contains("holds the messages of queue"), "{reported}");
    check(&server.entries(KEY), 5);
    assert_eq!(other.consumer("forward").unwrap().len(), 7);
}

#[test]
fn an_older_copy_of_the_directory_stops() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let copy = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    queue
        .copy_to(copy.path().join("older"), CopiedId::Same, |_, _| ControlFlow::Continue(()))
        .unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    forwarder(&queue, &server).once().unwrap();
    let older = Queue::open(copy.path().join("older")).unwrap();
    put(&older, 1);
    let halt = forwarder(&older, &server).once().unwrap_err();
    assert!(matches!(halt, Halt::OlderCopy { seq: 9, next: Some(6) }), "{halt}");
    check(&server.entries(KEY), 10);
}

#[test]
fn a_server_that_is_away_full_or_read_by_others_is_waited_for() {
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 100);
    server.kill();
    let restarted = std::sync::Mutex::new(&mut server);
    let url_of = RedisStream::new(&restarted.lock().unwrap().url(), KEY).unwrap();
    let mut away = Forwarder::new(&queue, "forward", url_of).unwrap();
    let watch = away.watch();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| away.once());
        while watch.progress().trouble.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        restarted.lock().unwrap().restart();
        running.join().unwrap().unwrap();
    });
    check(&server.entries(KEY), 100);

    let _: String = server.call(&["CONFIG", "SET", "maxmemory", "1"]);
    put(&queue, 100);
    waits_for(forwarder(&queue, &server), "trim the stream or raise it", || {
        let _: String = server.call(&["CONFIG", "SET", "maxmemory", "0"]);
    });
    check(&server.entries(KEY), 200);
}

/// Another client that adds to the stream is found out before anything is stored behind it. A
/// forwarder that has worked names it, and waits until somebody has put it right.
#[test]
fn another_writer_is_named_and_waited_for() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let mut forwarder = forwarder(&queue, &server);
    let (stop, watch) = (forwarder.stop(), forwarder.watch());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| forwarder.run());
        let until = |is_so: &dyn Fn(ForwardProgress) -> bool| {
            while !is_so(watch.progress()) {
                assert_ne!(watch.progress().state, ForwardState::Ended);
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until(&|progress| progress.acknowledged == 5);
        let _: String = server.call(&["XADD", KEY, "8-0", "field", "value"]);
        put(&queue, 5);
        let named = "ends in 8-0, which no queue wrote";
        until(&|progress| progress.trouble.is_some_and(|trouble| trouble.contains(named)));
        assert_eq!(server.entries(KEY).len(), 6);
        let _: u64 = server.call(&["XDEL", KEY, "8-0"]);
        let named = "message 7, and this queue has sent it none from 5 on";
        until(&|progress| progress.trouble.is_some_and(|trouble| trouble.contains(named)));
        assert_eq!(server.entries(KEY).len(), 5);
        let _: String = server.call(&["XSETID", KEY, "5-0"]);
        until(&|progress| progress.acknowledged == 10);
        stop.stop();
        running.join().unwrap().unwrap();
    });
    check(&server.entries(KEY), 10);
}

/// A server that takes no message of this length, and one that has lost a command.
#[test]
fn a_limit_of_the_server_and_a_missing_command_are_said() {
    let dir = crate::support::tempdir().unwrap();
    let (server, queue) =
        (Server::start(&["--proto-max-bulk-len", "1mb"]), Queue::open(dir.path()).unwrap());
    put(&queue, 5);
    queue.enqueue(vec![7; 3 << 20]).unwrap();
    put(&queue, 5);
    let mut options = ForwardOptions::default();
    options.first_pause = Duration::from_millis(1);
    let skips = || forwarder(&queue, &server).options(options.clone());
    let reported = halted(skips());
    assert!(reported.contains("message 5: it is longer than the server's proto"), "{reported}");
    skips().on_refused(OnRefused::Skip).once().unwrap();
    let entries = server.entries(KEY);
    let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]);
    assert_eq!(entries[5].text("missing"), "5-5 refused");

    let server = Server::start(&["--rename-command", "XREVRANGE", "none"]);
    let _: String = server.call(&["XADD", KEY, "1-0", "field", "value"]);
    let reported = halted(forwarder(&queue, &server));
    assert!(reported.contains("somebody took the command away"), "{reported}");
}
