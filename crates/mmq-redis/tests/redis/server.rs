//! A Redis server of the test's own, on a port and in a directory of its own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mmq_redis::redis::{self, Connection, RedisResult, Value};

pub(super) struct Server {
    dir: tempfile::TempDir,
    port: u16,
    more: Vec<String>,
    child: Child,
}

/// One entry of a stream.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) fields: BTreeMap<String, Vec<u8>>,
}

impl Entry {
    pub(super) fn seq(&self) -> u64 {
        self.id.split_once('-').unwrap().0.parse::<u64>().unwrap() - 1
    }

    pub(super) fn text(&self, field: &str) -> String {
        String::from_utf8(self.fields.get(field).cloned().unwrap_or_default()).unwrap()
    }

    /// The messages of the queue in it, as a reader finds them.
    pub(super) fn unpacked(self) -> Vec<Entry> {
        let Some(pack) = self.fields.get("pack") else { return vec![self] };
        let of = |(seq, data): (u64, &[u8])| Entry {
            id: format!("{}-0", seq + 1),
            fields: [("data".to_owned(), data.to_vec())].into(),
        };
        let all: Vec<_> = mmq::forward::unpack(pack).unwrap().map(of).collect();
        assert!(all.len() > 1 && !self.fields.contains_key("data"));
        assert_eq!(all.last().unwrap().id, self.id);
        all
    }
}

impl Server {
    /// Starts one with an append-only file, and these settings.
    pub(super) fn start(more: &[&str]) -> Server {
        let port = free_port();
        let dir = crate::support::tempdir().unwrap();
        let more: Vec<_> = more.iter().map(ToString::to_string).collect();
        let child = run(dir.path(), port, &more);
        Server { dir, port, more, child }
    }

    /// Another one that has what this one has, before anything else happens.
    pub(super) fn replica(&self, more: &[&str]) -> Server {
        let of = self.port.to_string();
        let replica = Server::start(&[&["--replicaof", "127.0.0.1", &of], more].concat());
        let is_up = |info: String| info.contains("master_link_status:up");
        while !is_up(replica.call(&["INFO", "replication"])) {
            std::thread::sleep(Duration::from_millis(10));
        }
        replica
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// From now on it takes connections, and answers nothing.
    pub(super) fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// It answers again.
    pub(super) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    pub(super) fn client(&self) -> Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    pub(super) fn call<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut self.client()).unwrap()
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn restart(&mut self) {
        self.child = run(self.dir.path(), self.port, &self.more);
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        // (The connection that asks is ended too, behind its answer.)
        let _: RedisResult<Value> =
            redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query(&mut self.client());
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("appendonlydir")
    }

    /// A copy of what is stored, of a server that does not run.
    pub(super) fn copy_to(&self, copy: &Path) {
        let _ = std::fs::remove_dir_all(copy);
        copy_files(&self.store(), copy);
    }

    /// Sets a server that does not run back to a copy.
    pub(super) fn set_back_to(&self, copy: &Path) {
        std::fs::remove_dir_all(self.store()).unwrap();
        copy_files(copy, &self.store());
    }

    /// All entries, in order.
    pub(super) fn entries(&self, key: &str) -> Vec<Entry> {
        let (mut client, mut entries) = (self.client(), Vec::new());
        let mut from = "-".to_owned();
        loop {
            let page: Vec<(String, Vec<Vec<u8>>)> = redis::cmd("XRANGE")
                .arg(&[key, &from, "+", "COUNT", "10000"])
                .query(&mut client)
                .unwrap();
            let Some((last, _)) = page.last() else { return entries };
            from = format!("({last}");
            entries.extend(page.into_iter().map(|(id, words)| {
                let pairs = words.chunks_exact(2);
                let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
                Entry { id, fields: pairs.map(|it| (name(&it[0]), it[1].clone())).collect() }
            }));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(super) fn program() -> String {
    std::env::var("MMQ_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Starts the program, and waits until it answers.
fn run(dir: &Path, port: u16, more: &[String]) -> Child {
    let program = program();
    let mut command = crate::support::command(&program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
    command.args(["--repl-diskless-sync-delay", "0"]);
    command.args(["--appendfsync", "everysec", "--port", &port.to_string(), "--dir"]);
    command.arg(dir).args(more).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!("{program}: {error}. Install it (Debian: redis-server), or set MMQ_REDIS_SERVER.")
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_ready =
        lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept"));
    assert!(is_ready, "{program} ended at once");
    // It would stop at a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "{program} takes no connection");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Each number once, in order, each with its own bytes.
pub(super) fn check(entries: &[Entry], count: u64) {
    let numbers: Vec<_> = entries.iter().map(Entry::seq).collect();
    let wrong = numbers.iter().zip(0..).find(|(there, number)| **there != *number);
    assert_eq!(wrong, None, "of {} entries", numbers.len());
    assert_eq!(numbers.len() as u64, count);
    for entry in entries {
        assert_eq!(entry.text("data"), format!("message {}", entry.seq()));
        assert_eq!(entry.text("missing"), "", "of {}", entry.id);
    }
}
