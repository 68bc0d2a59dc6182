//! A link of the test's own before the server: as slow as it says, or silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Ends with the process: its threads wait for connections.
pub(super) struct Proxy {
    pub(super) port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    up: AtomicU64,
    ended: AtomicU64,
}

impl Proxy {
    /// Passes on what comes for `port`, at so many bytes a second to the server. `None`: it takes
    /// connections, and nothing else.
    pub(super) fn start(port: u16, rate: Option<u64>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), counts: Arc::default() };
        let counts = Arc::clone(&proxy.counts);
        thread::spawn(move || {
            let mut silent = Vec::new();
            for client in listener.incoming() {
                let client = client.unwrap();
                counts.connections.fetch_add(1, Ordering::Relaxed);
                let Some(rate) = rate else {
                    silent.push(client);
                    continue;
                };
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || pass(from, to, u64::MAX, &AtomicU64::new(0)));
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    pass(client, server, rate, &counts.up);
                    counts.ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        proxy
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// How many of them have ended.
    pub(super) fn ended(&self) -> u64 {
        self.counts.ended.load(Ordering::Relaxed)
    }

    /// Bytes that went to the server.
    pub(super) fn up(&self) -> u64 {
        self.counts.up.load(Ordering::Relaxed)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, rate: u64, count: &AtomicU64) {
    let (began, mut passed) = (Instant::now(), 0);
    let mut buffer = [0; 2048];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        passed += len as u64;
        let due = Duration::from_secs_f64(passed as f64 / rate as f64);
        thread::sleep(due.saturating_sub(began.elapsed()));
        count.fetch_add(len as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
