//! A NATS server of the test's own, on a port and in a directory of its own; and the little of its
//! protocol that a test needs, so that the stream is not read back by the client that wrote it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(super) struct Server {
    dir: tempfile::TempDir,
    port: u16,
    child: Child,
}

/// One message of a stream.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) headers: BTreeMap<String, String>,
    /// How many bytes the headers take.
    pub(super) head: usize,
    pub(super) data: Vec<u8>,
    /// Its number in the stream.
    pub(super) at: u64,
}

impl Entry {
    pub(super) fn seq(&self) -> u64 {
        self.headers["Mmq"].split(' ').next().unwrap().parse().unwrap()
    }

    pub(super) fn text(&self, header: &str) -> &str {
        self.headers.get(header).map_or("", String::as_str)
    }

    /// The messages of the queue in it, as a reader finds them.
    pub(super) fn unpacked(self) -> Vec<Entry> {
        let Ok(messages) = self.text("Mmq-Pack").parse::<usize>() else { return vec![self] };
        let of = |(seq, data): (u64, &[u8])| Entry {
            headers: [("Mmq".to_owned(), seq.to_string())].into(),
            head: 0,
            data: data.to_vec(),
            at: self.at,
        };
        let mut all: Vec<_> = mmq::forward::unpack(&self.data).unwrap().map(of).collect();
        assert_eq!((all.len(), all[messages - 1].seq()), (messages, self.seq()));
        let missing = self.text("Mmq-Missing").to_owned();
        all[0].headers.insert("Mmq-Missing".to_owned(), missing);
        all
    }
}

impl Server {
    /// Starts one with these lines in its configuration.
    pub(super) fn start(more: &str) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = crate::support::tempdir().unwrap();
        let host = if more.contains("host:") { "" } else { "host: 127.0.0.1" };
        let jetstream = if more.contains("jetstream:") { "" } else { "jetstream: enabled" };
        let store = dir.path().join("store");
        let text = format!("{host}\n{jetstream}\nstore_dir: {store:?}\n{more}\n");
        std::fs::write(dir.path().join("server.conf"), text).unwrap();
        let child = run(dir.path(), port);
        Server { dir, port, child }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn restart(&mut self) {
        self.child = run(self.dir.path(), self.port);
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

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
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

    pub(super) fn wire(&self) -> Wire {
        Wire::new(self.port, json!({}))
    }

    /// A question to JetStream; an error is one.
    pub(super) fn api(&self, what: &str, request: Value) -> Value {
        let answer = self.wire().request(&format!("$JS.API.{what}"), &request.to_string());
        assert!(answer["error"].is_null(), "{what}: {answer}");
        answer
    }

    /// The same of a server that may be away: `None` for an error, and without an answer in time.
    pub(super) fn asked(&self, what: &str, request: &Value) -> Option<Value> {
        let mut wire = Wire::open(self.port, json!({}), SHORT).ok()?;
        let answer = wire.asked(&format!("$JS.API.{what}"), &request.to_string()).ok()?;
        answer["error"].is_null().then_some(answer)
    }

    pub(super) fn make_stream(&self, config: Value) {
        self.api(&format!("STREAM.CREATE.{}", config["name"].as_str().unwrap()), config);
    }

    /// All messages of a subject, in order.
    pub(super) fn entries(&self, stream: &str, subject: &str) -> Vec<Entry> {
        self.wire().entries(stream, subject).unwrap()
    }

    /// The same of a server of a cluster: an error where an answer or a message does not come in
    /// time, for a cluster without a leader gives no answer.
    pub(super) fn entries_in_time(&self, stream: &str, subject: &str) -> io::Result<Vec<Entry>> {
        Wire::open(self.port, json!({}), SHORT)?.entries(stream, subject)
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
        let there = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy_files(&file.path(), &there);
        } else {
            std::fs::copy(file.path(), there).unwrap();
        }
    }
}

pub(super) fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("MMQ_NATS_SERVER") {
        return program.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.push(Path::new(&home).join("go/bin"));
    let programs = folders.iter().map(|folder| folder.join("nats-server"));
    programs.into_iter().find(|it| it.is_file()).unwrap_or_else(|| "nats-server".into())
}

/// Starts the program, and waits until it answers.
fn run(dir: &Path, port: u16) -> Child {
    let program = program();
    let mut command = crate::support::command(&program);
    command.args(["-p", &port.to_string(), "-c"]);
    command.arg(dir.join("server.conf")).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| {
        panic!(
            "{}: {error}. Install it (go install github.com/nats-io/nats-server/v2@v2.15.2), or set \
             MMQ_NATS_SERVER.",
            program.display()
        )
    });
    let mut reported = Vec::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
        reported.push(line);
        reported.last().unwrap().contains("Server is ready")
    });
    assert!(is_ready, "{} ended at once: {reported:#?}", program.display());
    // It would stop at a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "{program:?} takes no connection");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// The longest wait for an answer that may never come.
const SHORT: Duration = Duration::from_millis(500);
/// Only ends a hang.
const LONG: Duration = Duration::from_secs(120);

/// One connection.
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
    /// Where answers go: nobody else's box.
    inbox: String,
    /// What came of a stream before the answer that says how much it is.
    early: VecDeque<Came>,
}

/// A message as it came.
struct Came {
    /// Else it is one of a stream's.
    is_answer: bool,
    headers: String,
    data: Vec<u8>,
    /// Where an acknowledgement would go: `$JS.ACK.STREAM.CONSUMER.1.NUMBER.1.TIME.PENDING`.
    reply: String,
}

impl Wire {
    pub(super) fn new(port: u16, access: Value) -> Wire {
        Wire::open(port, access, LONG).unwrap()
    }

    /// With a longest wait for each answer.
    fn open(port: u16, access: Value, wait: Duration) -> io::Result<Wire> {
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port))?);
        stream.get_ref().set_read_timeout(Some(wait))?;
        let inbox = format!("in.box{}", stream.get_ref().local_addr()?.port());
        let mut wire = Wire { stream, inbox, early: VecDeque::new() };
        let mut hello = json!({ "verbose": false, "headers": true, "no_responders": true });
        for (key, value) in access.as_object().unwrap() {
            hello[key] = value.clone();
        }
        wire.line()?;
        let hello = format!("CONNECT {hello}\r\nSUB {} 1\r\n", wire.inbox);
        wire.say(hello.as_bytes())?;
        Ok(wire)
    }

    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::Error::other("the server has closed the connection")),
            _ => Ok(line),
        }
    }

    fn next(&mut self) -> io::Result<Came> {
        loop {
            let line = self.line()?;
            let words: Vec<_> = line.split_whitespace().collect();
            let number = |at: usize| words[words.len() - at].parse::<usize>().unwrap();
            let (before, all) = match words[0] {
                "MSG" => (0, number(1)),
                "HMSG" => (number(2), number(1)),
                "PING" => {
                    self.say(b"PONG\r\n")?;
                    continue;
                }
                "INFO" | "PONG" | "+OK" => continue,
                _ => return Err(io::Error::other(format!("the server said {line}"))),
            };
            let mut headers = vec![0; before];
            let mut data = vec![0; all - before + 2];
            self.stream.read_exact(&mut headers)?;
            self.stream.read_exact(&mut data)?;
            data.truncate(all - before);
            let is_answer = words[2] == "1";
            let (headers, reply) = (String::from_utf8(headers).unwrap(), words[3].to_owned());
            return Ok(Came { is_answer, headers, data, reply });
        }
    }

    pub(super) fn request(&mut self, subject: &str, request: &str) -> Value {
        self.asked(subject, request).unwrap_or_else(|error| panic!("{subject}: {error}"))
    }

    fn asked(&mut self, subject: &str, request: &str) -> io::Result<Value> {
        let (inbox, length) = (&self.inbox, request.len());
        let line = format!("PUB {subject} {inbox} {length}\r\n{request}\r\n");
        self.say(line.as_bytes())?;
        let mut came = self.next()?;
        while !came.is_answer {
            self.early.push_back(came);
            came = self.next()?;
        }
        serde_json::from_slice(&came.data).map_err(|_| io::Error::other(came.headers))
    }

    fn entries(&mut self, stream: &str, subject: &str) -> io::Result<Vec<Entry>> {
        let there = format!("{}.stream", self.inbox);
        let config = json!({
            "deliver_subject": there, "deliver_policy": "all", "ack_policy": "none",
            "replay_policy": "instant", "filter_subject": subject,
        });
        let request = json!({ "stream_name": stream, "config": config }).to_string();
        let answer = self.asked(&format!("$JS.API.CONSUMER.CREATE.{stream}"), &request)?;
        let none = || io::Error::other(answer.to_string());
        let count = answer["num_pending"].as_u64().ok_or_else(none)?;
        // Behind the answer: a message that came before it would be taken for it.
        self.say(format!("SUB {there} 2\r\n").as_bytes())?;
        let entry = |came: Came| {
            let lines = came.headers.lines().filter_map(|line| line.split_once(':'));
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.trim().to_owned());
            let at = came.reply.split('.').nth(5).unwrap().parse().unwrap();
            let (headers, head) = (lines.map(owned).collect(), came.headers.len());
            Entry { headers, head, data: came.data, at }
        };
        let mut came = || self.early.pop_front().map_or_else(|| self.next(), Ok);
        (0..count).map(|_| came().map(entry)).collect()
    }
}
