//! The ways to a server, what the user may ask of it, and servers that must not write.

use std::process::{Child, Stdio};
use std::time::Duration;

use mmq::Queue;
use mmq::forward::Forwarder;
use mmq_redis::RedisStream;

use super::server::{Server, check};
use super::{KEY, forwarder, halted, put, waits_for};

fn to(queue: &Queue, far: RedisStream) -> Forwarder<RedisStream> {
    Forwarder::new(queue, "forward", far).unwrap()
}

#[test]
fn a_key_has_the_names_of_queue_and_machine() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let far = RedisStream::new(&server.url(), "a:{dir}:{consumer}:{host}:z").unwrap();
    to(&queue, far).name("with {host}").once().unwrap();
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    check(&server.entries(&format!("a:with {{host}}:forward:{host}:z")), 5);
    for key in ["{hots}", "a{", "a}", "{", "{}", "{dir"] {
        let why = RedisStream::new(&server.url(), key).unwrap_err().to_string();
        assert!(why.contains("braces without a name"), "{key}: {why}");
    }
}

#[test]
fn a_stream_is_trimmed_to_what_was_asked_for() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    for round in 1..=2 {
        put(&queue, 3_000);
        let far = RedisStream::new(&server.url(), KEY).unwrap().max_len(500);
        to(&queue, far).once().unwrap();
        let there: Vec<_> = server.entries(KEY).iter().map(|entry| entry.seq()).collect();
        let first = round * 3_000 - there.len() as u64;
        assert!((500..1_000).contains(&there.len()), "{} entries", there.len());
        assert_eq!(there, (first..round * 3_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_socket_in_the_file_system_is_a_way() {
    let dir = crate::support::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let server = Server::start(&["--unixsocket", socket.to_str().unwrap()]);
    let queue = Queue::open(dir.path().join("queue")).unwrap();
    for scheme in ["unix", "redis+unix"] {
        put(&queue, 5);
        let url = format!("{scheme}://{}", socket.display());
        to(&queue, RedisStream::new(&url, KEY).unwrap()).once().unwrap();
    }
    check(&server.entries(KEY), 10);
    assert!(RedisStream::new("unix://relative/path", KEY).is_err());
}

#[test]
fn user_and_password_stand_outside_the_url_and_in_no_sentence() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let server = Server::start(&["--user", "agent", "on", ">secret", "~*", "+@all"]);
    let far = || RedisStream::new(&server.url(), KEY).unwrap();
    let silent = |why: String| {
        assert!(!why.contains("secret"), "{why}");
        why
    };
    let why = silent(halted(to(&queue, far().credentials("agent", "secret-wrong"))));
    assert!(why.contains("WRONGPASS") && why.contains("look at user and password"), "{why}");
    let why = silent(halted(to(&queue, far().credentials("", "secret"))));
    assert!(why.contains("this server has none"), "{why}");
    to(&queue, far().credentials("agent", "secret")).once().unwrap();
    check(&server.entries(KEY), 5);

    // A server that does not know the word answers with the words behind it.
    let server = Server::start(&["--rename-command", "AUTH", "HIDDEN"]);
    let url = server.url().replace("//", "//agent:secret@");
    let why = silent(halted(to(&queue, RedisStream::new(&url, KEY).unwrap())));
    assert!(why.contains("unknown command"), "{why}");
    for url in ["http://a:secret@host", "redis://a:secret@host:port", "redis://a:secret@host/db"] {
        silent(RedisStream::new(url, KEY).unwrap_err().to_string());
    }
    let far = RedisStream::new(&url, KEY).unwrap().credentials("agent", "secret");
    silent(format!("{far:?}"));
}

/// The documents name what a user needs, and a user that lacks something is told.
#[test]
fn the_rights_that_are_named_are_enough() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let all = ["EVAL", "EVALSHA", "SCRIPT", "XINFO", "XREVRANGE", "XADD"];
    // With all of them, then without each one, then with all.
    for left_out in [all.len(), 0, 1, 2, 3, 4, 5, all.len()] {
        let rights: Vec<_> = all.iter().filter(|it| Some(*it) != all.get(left_out)).collect();
        let rights: Vec<_> = rights.iter().map(|it| format!("+{it}")).collect();
        let mut words = vec!["ACL", "SETUSER", "few", "reset", "on", ">secret", "~mmq:*"];
        words.extend(rights.iter().map(String::as_str));
        let _: String = server.call(&words);
        let far = RedisStream::new(&server.url(), KEY).unwrap().credentials("few", "secret");
        match all.get(left_out) {
            Some(word) => {
                let why = halted(to(&queue, far));
                assert!(why.contains("the user needs EVAL, EVALSHA, SCRIPT"), "{word}: {why}");
                assert!(!why.contains("@user_script"), "{why}");
            }
            None => {
                to(&queue, far).once().unwrap();
                put(&queue, 5);
            }
        }
    }
    check(&server.entries(KEY), 10);
}

#[test]
fn what_has_no_replica_is_not_acknowledged() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    let far = || RedisStream::new(&server.url(), KEY).unwrap().replicas(1);
    let replica = server.replica(&[]);
    put(&queue, 5);
    to(&queue, far()).once().unwrap();
    check(&replica.entries(KEY), 5);
    // The server has the next ones, by another forwarder that does not wait, and no replica has.
    replica.pause();
    put(&queue, 5);
    forwarder(&queue, &server).once().unwrap();
    put(&queue, 5);
    waits_for(to(&queue, far()), "0 replicas have the last messages", || {
        assert_eq!(server.entries(KEY).len(), 10, "no session has begun");
        replica.go_on();
    });
    check(&replica.entries(KEY), 15);
}

/// Sentinels that know one primary, in a directory of their own.
struct Sentinel {
    _dir: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Sentinel {
    fn start(server: &Server) -> Sentinel {
        let dir = crate::support::tempdir().unwrap();
        let port = super::server::free_port();
        let of = server.port();
        let lines = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor here 127.0.0.1 {of} 1\n\
             sentinel down-after-milliseconds here 500\nsentinel failover-timeout here 5000\n"
        );
        let file = dir.path().join("sentinel.conf");
        std::fs::write(&file, lines).unwrap();
        let mut command = crate::support::command(super::server::program());
        command.arg(&file).arg("--sentinel").stdout(Stdio::null());
        let child = command.spawn().unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Sentinel { _dir: dir, port, child }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sentinels_say_where_the_primary_is_now() {
    let (dir, mut server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let replica = server.replica(&[]);
    let sentinel = Sentinel::start(&server);
    let queue = Queue::open(dir.path()).unwrap();
    let urls = ["redis://127.0.0.1:1", &format!("redis://127.0.0.1:{}", sentinel.port)];
    let far = |name: &str| RedisStream::sentinel(&urls, name, KEY).unwrap().replicas(0);
    put(&queue, 100);
    to(&queue, far("here")).once().unwrap();
    check(&server.entries(KEY), 100);
    while replica.entries(KEY).len() < 100 {
        std::thread::sleep(Duration::from_millis(10));
    }
    // (The sentinel asks its primary for replicas every ten seconds.)
    let asked = |words: &[&str]| {
        let mut client = mmq_redis::redis::Client::open(urls[1]).unwrap().get_connection().unwrap();
        let mut command = mmq_redis::redis::cmd("SENTINEL");
        command.arg(words).query::<mmq_redis::redis::Value>(&mut client).unwrap()
    };
    while matches!(asked(&["REPLICAS", "here"]), mmq_redis::redis::Value::Array(it) if it.is_empty())
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    server.kill();
    put(&queue, 100);
    to(&queue, far("here")).once().unwrap();
    check(&replica.entries(KEY), 200);
    assert!(RedisStream::sentinel(&[], "here", KEY).is_err());
    let alone = RedisStream::sentinel(&urls[1..], "elsewhere", KEY).unwrap();
    let why = halted(to(&queue, alone));
    assert!(why.contains("none knows where the primary elsewhere is"), "{why}");
}

#[test]
fn a_cluster_is_refused_with_advice() {
    let (dir, server) =
        (crate::support::tempdir().unwrap(), Server::start(&["--cluster-enabled", "yes"]));
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 5);
    let why = halted(forwarder(&queue, &server));
    assert!(why.contains("this is a cluster"), "{why}");
    assert!(why.contains("name a server by itself, or one with sentinels"), "{why}");
}

#[test]
#[cfg(not(feature = "tls"))]
fn tls_is_named_where_it_was_left_out() {
    let why = RedisStream::new("rediss://host", KEY).unwrap_err().to_string();
    assert!(why.contains("was built without TLS"), "{why}");
}

/// Whatever a later minute mends is waited out.
#[test]
fn a_server_that_must_not_write_now_is_waited_for() {
    let (dir, server) = (crate::support::tempdir().unwrap(), Server::start(&[]));
    let queue = Queue::open(dir.path()).unwrap();
    let mut primary = Server::start(&[]);
    let port = primary.port().to_string();
    put(&queue, 5);
    let _: String = server.call(&["REPLICAOF", "127.0.0.1", &port]);
    waits_for(forwarder(&queue, &server), "name the primary, or the sentinels", || {
        let _: String = server.call(&["REPLICAOF", "NO", "ONE"]);
    });
    put(&queue, 5);
    let _: String = server.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    waits_for(forwarder(&queue, &server), "fewer replicas than its min-replicas", || {
        let _: String = server.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    });
    put(&queue, 5);
    primary.kill();
    let _: String = server.call(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    let _: String = server.call(&["REPLICAOF", "127.0.0.1", &port]);
    waits_for(forwarder(&queue, &server), "a replica that has lost its primary", || {
        let _: String = server.call(&["REPLICAOF", "NO", "ONE"]);
    });
    check(&server.entries(KEY), 15);
}
