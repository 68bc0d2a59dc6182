//! Between client and server: cuts sessions, and lets what was on its way arrive late.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

pub(super) struct Proxy {
    port: u16,
    open: Arc<Mutex<Vec<Connection>>>,
    /// What clients write waits from the beginning.
    begins_held: Arc<AtomicBool>,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    gate: Arc<Gate>,
}

/// Whether what the client writes goes further.
#[derive(Default)]
struct Gate {
    is_held: AtomicBool,
    /// How many messages go further all the same.
    passes: AtomicU64,
}

impl Gate {
    /// Waits until this goes further.
    fn pass(&self) {
        while self.is_held.load(Ordering::SeqCst) {
            let passes = self.passes.load(Ordering::SeqCst);
            if passes > 0 {
                self.passes.store(passes - 1, Ordering::SeqCst);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Proxy {
    pub(super) fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = Arc::new(Mutex::new(Vec::new()));
        let connections = open.clone();
        let begins_held = Arc::new(AtomicBool::new(false));
        let is_held = begins_held.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // (The server may be away: the client finds its connection closed.)
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let connection = join(client.unwrap(), server, is_held.load(Ordering::SeqCst));
                connections.lock().unwrap().push(connection);
            }
        });
        Proxy { port, open, begins_held }
    }

    /// A server that takes connections and hears nothing until all may pass.
    pub(super) fn start_held(to: u16) -> Proxy {
        let proxy = Proxy::start(to);
        proxy.begins_held.store(true, Ordering::SeqCst);
        proxy
    }

    /// How many connections there were.
    pub(super) fn connections(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn each_gate(&self, what: impl Fn(&Gate)) {
        self.open.lock().unwrap().iter().for_each(|connection| what(&connection.gate));
    }

    /// What the clients write from now on waits.
    pub(super) fn hold(&self) {
        self.each_gate(|gate| gate.is_held.store(true, Ordering::SeqCst));
    }

    /// The next message that waits goes further.
    pub(super) fn let_one_pass(&self) {
        self.each_gate(|gate| {
            gate.passes.fetch_add(1, Ordering::SeqCst);
        });
    }

    pub(super) fn let_all_pass(&self) {
        self.begins_held.store(false, Ordering::SeqCst);
        self.each_gate(|gate| gate.is_held.store(false, Ordering::SeqCst));
    }

    /// Ends all connections. With a delay, what the client wrote last arrives that much later.
    pub(super) fn cut(&self, late: Duration) {
        let connections = std::mem::take(&mut *self.open.lock().unwrap());
        for connection in &connections {
            connection.gate.is_held.store(!late.is_zero(), Ordering::SeqCst);
        }
        if !late.is_zero() {
            // What is held grows meanwhile.
            std::thread::sleep(Duration::from_millis(20));
        }
        for Connection { client, server, gate } in connections {
            let _ = client.shutdown(Shutdown::Both);
            if late.is_zero() {
                let _ = server.shutdown(Shutdown::Both);
            } else {
                std::thread::spawn(move || {
                    std::thread::sleep(late);
                    gate.is_held.store(false, Ordering::SeqCst);
                });
            }
        }
    }
}

fn join(client: TcpStream, server: TcpStream, is_held: bool) -> Connection {
    let gate = Arc::new(Gate { is_held: is_held.into(), ..Gate::default() });
    let (chunks, written) = mpsc::channel::<Vec<u8>>();
    let (mut from, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut chunk = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let _ = chunks.send(chunk[..length].to_vec());
        }
    });
    let (mut to, held) = (server.try_clone().unwrap(), gate.clone());
    std::thread::spawn(move || {
        for chunk in written {
            if messages(&chunk).iter().any(|message| {
                held.pass();
                to.write_all(message).is_err()
            }) {
                break;
            }
        }
        // The server is given the time to read it.
        std::thread::sleep(Duration::from_millis(100));
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (back, client.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut chunk = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            if to.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    Connection { client, server, gate }
}

/// The chunk, divided before each message with headers.
fn messages(chunk: &[u8]) -> Vec<&[u8]> {
    let begins = |at: &usize| chunk[*at..].starts_with(b"HPUB ");
    let mut cuts: Vec<_> = (1..chunk.len()).filter(begins).collect();
    cuts.insert(0, 0);
    cuts.push(chunk.len());
    cuts.windows(2).map(|cut| &chunk[cut[0]..cut[1]]).collect()
}
