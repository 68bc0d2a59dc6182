//! The owner's side: a thread that listens, and one for each client.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::net::Shutdown;

use super::clients::{Clients, Connected};
use super::output::Output;
use super::serving::Serving;
use super::socket;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::storage::{FileStorage, Storage};
use crate::threads::{JoinHandle, Mutex, now, park_timeout, spawn};

/// How many clients an owner serves at a time.
const MOST_CLIENTS: usize = 64;
/// How long the close of a queue waits until the clients have their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the listening thread waits after a failed accept: without descriptors the next one
/// would fail as well.
const PAUSE: Duration = Duration::from_millis(50);

/// Listens for clients of a queue and serves them.
#[derive(Debug)]
pub(crate) struct Server {
    listener: Arc<UnixListener>,
    clients: Arc<Clients>,
    /// Until the end has begun.
    accepts: Mutex<Option<JoinHandle>>,
}

impl Server {
    /// Begins to listen in the queue's directory, with a socket of these permission bits.
    pub(crate) fn start(engine: &Arc<Engine<FileStorage>>, mode: u32) -> Result<Server> {
        let storage = &engine.core.storage;
        let failed = |error| Error::io("share", storage.path(), error);
        let listener = socket::listen(storage.directory(), storage.path(), mode);
        let listener = Arc::new(listener.map_err(failed)?);
        let clients = Arc::new(Clients::new(engine, mode));
        let (listens, serves) = (Arc::clone(&listener), Arc::clone(&clients));
        let accepts = spawn("mmq-share", move || accept(&listens, &serves)).map_err(failed)?;
        Ok(Server { listener, clients, accepts: Mutex::new(Some(accepts)) })
    }

    /// Ends listening, calls `close`, which ends all waits, and then ends the clients' threads.
    pub(crate) fn end(&self, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let engine = &self.clients.engine;
        if engine.core.forked() {
            // The parent process listens, and its threads serve.
            return close();
        }
        let Some(accepts) = self.accepts.lock().take() else {
            // Another call has done all this, or does it.
            return close();
        };
        // While the lock is held: the next owner's socket has the same name.
        let _ = socket::remove(engine.core.storage.directory());
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        accepts.join();
        let closed = close();
        let mut connected = self.clients.connected.lock();
        for client in connected.values() {
            let _ = client.stream.shutdown(std::net::Shutdown::Read);
        }
        let deadline = now() + LAST_ANSWERS;
        while !connected.is_empty() && now() < deadline {
            self.clients.has_gone.wait_until(&mut connected, deadline);
        }
        for client in connected.values() {
            let _ = client.stream.shutdown(std::net::Shutdown::Both);
        }
        while !connected.is_empty() {
            self.clients.has_gone.wait(&mut connected);
        }
        closed
    }
}

/// Accepts clients until the listener is shut down.
fn accept(listener: &UnixListener, clients: &Arc<Clients>) {
    let mut next = 0;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                next += 1;
                // An error means that the client has gone already.
                let _ = begin(clients, next, stream);
            }
            // The listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(_) => park_timeout(PAUSE),
        }
    }
}

/// Begins to serve a client, or tells it why not.
fn begin(clients: &Arc<Clients>, id: u64, stream: UnixStream) -> io::Result<()> {
    let (pid, uid, mut refused) = clients.check(&stream)?;
    let stream = Arc::new(stream);
    let mut connected = clients.connected.lock();
    if connected.len() >= MOST_CLIENTS {
        refused = refused.or_else(|| {
            Some(format!("it serves {MOST_CLIENTS} clients already, which is the most"))
        });
    }
    if let Some(reason) = refused {
        drop(connected);
        let path = clients.engine.core.storage.path().to_owned();
        stream.set_write_timeout(Some(PAUSE))?;
        let mut output = Output::new(&stream);
        output.error(1, &Error::NotShared { path, reason });
        return output.send();
    }
    let since = SystemTime::now();
    connected.insert(id, Connected { stream: Arc::clone(&stream), pid, uid, since });
    drop(connected);
    let leaving = Departure { clients: Arc::clone(clients), id };
    let serve = move || {
        // An error means that the client has gone, or does not read its answers.
        let _ = Serving::new(&leaving.clients, &stream).run();
        let _ = stream.shutdown(std::net::Shutdown::Both);
    };
    spawn("mmq-client", serve).map(drop)
}

/// Takes a client off the list, also after a panic, or when it got no thread.
struct Departure {
    clients: Arc<Clients>,
    id: u64,
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.clients.connected.lock().remove(&self.id);
        self.clients.has_gone.notify_all();
    }
}
