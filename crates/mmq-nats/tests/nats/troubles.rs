//! Each trouble gets a sentence, and loses nothing.

use std::time::{Duration, Instant};

use mmq::Queue;
use mmq::forward::{
    Destination, ForwardEnd, ForwardOptions, ForwardState, Forwarder, Held, OnRefused, Trouble,
};
use mmq_nats::{NatsMode, NatsStream};
use serde_json::json;

use super::late::{WAIT, source};
use super::proxy::Proxy;
use super::server::{Server, Wire};
use super::{
    MODES, STREAM, SUBJECT, check, far, far_of, forwarder, halted, put, reports, resume, server_for,
};

/// Runs the forwarder until `is_so` of its last trouble, and `then`; it is to drain after that.
fn waits_for(mut forwarder: Forwarder<NatsStream>, trouble: &str, then: impl FnOnce()) {
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
fn what_is_no_url_stream_or_subject_is_said_at_once() {
    let reported = |url: &str, stream: &str| NatsStream::new(url, stream).unwrap_err().to_string();
    assert!(reported("http://here", STREAM).contains("it looks like nats://host"));
    assert!(reported("nats://a b", STREAM).contains("it looks like nats://host"));
    for stream in ["", "a.b", "a*", "a b", "a\r\nb"] {
        assert!(reported("nats://here", stream).contains("not a name of a stream"));
    }
    for subject in ["", "a..b", "a.*", ">", "a b", "a\r\nPUB x 0", "a.{dri}"] {
        let far = NatsStream::new("nats://here", STREAM).unwrap();
        assert!(far.subject(subject).unwrap_err().to_string().contains("not a subject"));
    }
    let far = NatsStream::new("nats://here,tls://there:4223", STREAM).unwrap();
    assert!(far.domain("a.b").unwrap_err().to_string().contains("not a name of a domain"));
}

#[test]
fn a_missing_stream_is_reported_with_the_command_that_makes_it() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let reported = halted(Forwarder::new(&queue, "forward", far(&server)).unwrap());
    let command = "`nats stream add EVENTS --subjects 'mmq.test' --storage file --discard new \
                   --allow-batch --defaults`";
    assert!(reported.contains(command), "{reported}");
    // Without a subject it is the directory's name.
    let far = NatsStream::new(&server.url(), STREAM).unwrap();
    let forwarder = Forwarder::new(&queue, "forward", far).unwrap().name("edge 1.a");
    let reported = halted(forwarder);
    assert!(reported.contains("--subjects 'mmq.edge_1_a'"), "{reported}");
    let far =
        NatsStream::new(&server.url(), STREAM).unwrap().subject("{dir}.{consumer}.{host}").unwrap();
    let reported = halted(Forwarder::new(&queue, "to.the hub", far).unwrap().name("edge 1.a"));
    let host = rustix::system::uname().nodename().to_str().unwrap().replace('.', "_");
    let subject = format!("--subjects 'edge_1_a.to_the_hub.{host}'");
    assert!(reported.contains(&subject), "{reported}");
    assert_eq!(queue.consumer("forward").unwrap().len(), 5);
}

#[test]
fn a_stream_that_cannot_take_the_messages_is_reported_with_the_remedy() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let with = |config: serde_json::Value, mode: Option<NatsMode>| {
        let server = Server::start("");
        server.make_stream(config);
        let far = mode.map_or_else(|| far(&server), |mode| far(&server).mode(mode));
        halted(Forwarder::new(&queue, "forward", far).unwrap())
    };
    let shared = json!({ "name": STREAM, "subjects": [SUBJECT, "other"] });
    let reported = with(shared.clone(), None);
    assert!(reported.contains("`nats stream edit EVENTS --allow-batch`"), "{reported}");
    assert!(reported.contains("a stream whose only subject is mmq.test"), "{reported}");
    let reported = with(json!({ "name": STREAM, "subjects": ["mmq.*"] }), None);
    assert!(reported.contains("others may write to it (mmq.*)"), "{reported}");
    let reported = with(shared, Some(NatsMode::Batch));
    assert!(reported.contains("it allows no batches"), "{reported}");
    let reported = with(json!({ "name": STREAM, "subjects": ["mmq.other"] }), None);
    assert!(
        reported.contains("it does not take the subject mmq.test, but mmq.other"),
        "{reported}"
    );
    for retention in ["workqueue", "interest"] {
        let config = json!({ "name": STREAM, "subjects": [SUBJECT], "retention": retention });
        assert!(with(config, None).contains(&format!("its retention is {retention}")));
    }
    let config = json!({ "name": STREAM, "subjects": [SUBJECT], "no_ack": true });
    assert!(with(config, None).contains("it acknowledges nothing"));
    let rewritten = json!({ "src": SUBJECT, "dest": "else.test" });
    let config = json!({ "name": STREAM, "subjects": [SUBJECT], "subject_transform": rewritten });
    assert!(with(config, None).contains("forward to a stream without subject_transform"));
    assert_eq!(queue.consumer("forward").unwrap().len(), 5);
}

#[test]
fn a_server_without_jetstream_is_reported() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start("jetstream: disabled"));
    let queue = Queue::open(dir.path()).unwrap();
    let reported = halted(Forwarder::new(&queue, "forward", far(&server)).unwrap());
    assert!(reported.contains("the server has no JetStream: start it with `-js`"), "{reported}");
}

#[test]
fn a_subject_of_another_queue_is_reported() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 5);
        forwarder(&queue, &server, mode).once().unwrap();
        let other_dir = crate::support::tempdir().unwrap();
        let other = Queue::open(other_dir.path()).unwrap();
        put(&other, 7);
        let reported = halted(forwarder(&other, &server, mode));
        assert!(reported.contains("holds the messages of queue"), "{reported}");
        check(&server.entries(STREAM, SUBJECT), 5);
        assert_eq!(other.consumer("forward").unwrap().len(), 7);
    }
}

#[test]
fn a_server_that_is_away_is_waited_for() {
    let (dir, mut server) = (crate::support::tempdir().unwrap(), server_for(NatsMode::Batch));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 100);
    let away = forwarder(&queue, &server, NatsMode::Batch);
    server.kill();
    let restarted = std::sync::Mutex::new(&mut server);
    waits_for(away, "Connection refused", || restarted.lock().unwrap().restart());
    check(&server.entries(STREAM, SUBJECT), 100);
}

/// One of several servers is enough.
#[test]
fn the_server_that_answers_is_taken() {
    let (dir, server) = (crate::support::tempdir().unwrap(), server_for(NatsMode::Chain));
    let queue = Queue::open(dir.path()).unwrap();
    for round in 1..=4 {
        put(&queue, 100);
        let urls = format!("nats://127.0.0.1:1, {}", server.url());
        let far = NatsStream::new(&urls, STREAM).unwrap().subject(SUBJECT).unwrap();
        Forwarder::new(&queue, "forward", far).unwrap().once().unwrap();
        check(&server.entries(STREAM, SUBJECT), round * 100);
    }
}

/// A server that takes the connection and says nothing keeps nobody waiting; what it answers later
/// is heard.
#[test]
fn a_silent_server_is_left_alone_until_it_answers() {
    let server = server_for(NatsMode::Batch);
    let proxy = Proxy::start_held(server.port());
    let mut far = NatsStream::new(&proxy.url(), STREAM).unwrap().subject(SUBJECT).unwrap();
    for _ in 0..3 {
        let trouble = far.resume(&source(), None).unwrap_err();
        let Trouble::Again(why, _) = trouble else { panic!("{trouble:?}") };
        assert!(why.to_string().contains("has not answered yet"), "{why}");
    }
    proxy.let_all_pass();
    assert_eq!(resume(&mut far, &source(), None), Held::Nothing);
    assert_eq!(proxy.connections(), 1, "the session that was begun first");
}

/// Nobody sends or waits when the connection breaks.
#[test]
fn an_idle_session_hears_that_its_server_has_died() {
    for mode in MODES {
        let mut server = server_for(mode);
        let mut far = far_of(&server, mode);
        assert_eq!(resume(&mut far, &source(), None), Held::Nothing);
        assert_eq!(far.acknowledged(Duration::ZERO).unwrap(), 0);
        server.kill();
        let began = Instant::now();
        while far.acknowledged(Duration::ZERO).is_ok() {
            assert!(began.elapsed() < WAIT * 4, "nobody said that the server is away");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_stream_that_is_full_is_waited_for() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        let mut config = json!({
            "name": STREAM, "subjects": [SUBJECT], "discard": "new", "max_msgs": 150,
            "allow_atomic": mode == NatsMode::Batch,
        });
        server.make_stream(config.clone());
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 400);
        waits_for(forwarder(&queue, &server, mode), "purge it, or raise its limits", || {
            config["max_msgs"] = json!(-1);
            server.api(&format!("STREAM.UPDATE.{STREAM}"), config);
        });
        check(&server.entries(STREAM, SUBJECT), 400);
    }
}

/// What a stream takes in a message counts with the headers that the message has.
#[test]
fn a_message_fits_if_it_fits_with_its_own_headers() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(""));
        server.make_stream(json!({
            "name": STREAM, "subjects": [SUBJECT], "max_msg_size": 1_000,
            "allow_atomic": mode == NatsMode::Batch,
        }));
        let queue = Queue::open(dir.path()).unwrap();
        let mut bytes = vec![1];
        bytes.extend(780..920);
        for length in &bytes {
            queue.enqueue(vec![7; *length]).unwrap();
        }
        let forwarder = forwarder(&queue, &server, mode).on_refused(OnRefused::Skip);
        let mut options = ForwardOptions::default();
        options.on_refused = OnRefused::Skip;
        options.first_pause = Duration::from_millis(1);
        options.longest_pause = Duration::from_millis(1);
        forwarder.options(options).once().unwrap();
        let entries = server.entries(STREAM, SUBJECT);
        let longest = entries.iter().map(|it| it.data.len() + it.head).max().unwrap();
        assert!((995..=1_000).contains(&longest), "{mode:?}: {longest}");
        // Nothing is left out that is shorter than the shortest headers allow.
        let there: Vec<_> = entries.iter().map(|it| it.data.len()).collect();
        let least = bytes.iter().filter(|it| !there.contains(it)).min().unwrap();
        assert!(*least > 800, "{mode:?}: {least}");
    }
}

/// The server takes smaller batches than we send.
#[test]
fn batches_that_are_too_large_become_smaller() {
    let limits = "jetstream: { limits: { batch: { max_msgs: 300 } } }";
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(limits));
    server.make_stream(json!({ "name": STREAM, "subjects": [SUBJECT], "allow_atomic": true }));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 3_000);
    forwarder(&queue, &server, NatsMode::Batch).once().unwrap();
    check(&server.entries(STREAM, SUBJECT), 3_000);
}

/// Another client that writes to the subject is found out before anything is stored behind it.
#[test]
fn another_writer_of_the_subject_ends_it() {
    for mode in MODES {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        put(&queue, 5);
        let found = "ends in message 6, which no queue wrote";
        let running = forwarder(&queue, &server, mode);
        let watch = running.watch();
        std::thread::scope(|scope| {
            scope.spawn(|| reports(running, found));
            while watch.progress().acknowledged < 5 {
                std::thread::sleep(Duration::from_millis(5));
            }
            Wire::new(server.port(), json!({})).request(SUBJECT, "not of the queue");
            put(&queue, 5);
        });
        let reported = halted(forwarder(&queue, &server, mode));
        assert!(reported.contains(found), "{reported}");
        let info = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}));
        assert_eq!(info["state"]["messages"], 6);
        assert_eq!(queue.consumer("forward").unwrap().len(), 5);
    }
}

/// Another writer of the stream, with subjects of its own, is no trouble.
#[test]
fn other_subjects_of_the_stream_are_free() {
    for mode in [NatsMode::Batch, NatsMode::Window] {
        let (dir, server) = (crate::support::tempdir().unwrap(), server_for(mode));
        let queue = Queue::open(dir.path()).unwrap();
        let mut wire = Wire::new(server.port(), json!({}));
        for round in 1..=5 {
            assert!(wire.request("other.a", "not of the queue")["seq"].is_u64());
            put(&queue, 100);
            Forwarder::new(&queue, "forward", far_of(&server, mode)).unwrap().once().unwrap();
            check(&server.entries(STREAM, SUBJECT), round * 100);
        }
    }
}
