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
use crate::engine::waited_for::may_wait;
use crate::error::{Error, Result};
use crate::storage::{FileStorage, Storage};
use crate::threads::worker::count_as_worker;
use crate::threads::{
    Condvar, JoinHandle, Mutex, OwnMutex, above_standard, now, park_timeout, spawn,
};

/// How many clients an owner serves at a time.
const MOST_CLIENTS: usize = 64;
/// How long the close of a queue waits until the clients have their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the listening thread waits after a failed accept: without descriptors the next one
/// would fail as well.
const PAUSE: Duration = Duration::from_millis(50);
/// How often it tries to make the socket on a full disk.
const FULL: Duration = Duration::from_millis(500);

/// Listens for clients of a queue and serves them.
#[derive(Debug)]
pub(crate) struct Server {
    listening: Arc<Listening>,
    /// Until the end has begun.
    accepts: OwnMutex<Option<JoinHandle>>,
}

/// What the listening thread has of the server.
#[derive(Debug)]
struct Listening {
    clients: Arc<Clients>,
    /// The permission bits of the socket.
    mode: u32,
    socket: Mutex<ServerSocket>,
    has_ended: Condvar,
}

#[derive(Debug, Default)]
struct ServerSocket {
    /// `None` as long as a full disk has no room for the socket's name.
    listener: Option<Arc<UnixListener>>,
    has_ended: bool,
}

impl Server {
    /// Begins to listen in the queue's directory, with a socket of these permission bits. On a full
    /// disk it begins when there is room for the socket's name: the queue is of use before.
    pub(crate) fn start(engine: &Arc<Engine<FileStorage>>, mode: u32) -> Result<Server> {
        let failed = |error| Error::io("share", engine.core.storage.path(), error);
        let listening = Arc::new(Listening {
            clients: Arc::new(Clients::new(engine, mode)),
            mode,
            socket: Mutex::default(),
            has_ended: Condvar::new(),
        });
        match listening.listen(&mut listening.socket.lock()).map_err(failed) {
            Err(error) if !error.is_full() => return Err(error),
            _ => {}
        }
        let accepts = Arc::clone(&listening);
        let accepts = spawn("mmq-share", move || accepts.run()).map_err(failed)?;
        Ok(Server { listening, accepts: OwnMutex::new(Some(accepts)) })
    }

    /// Ends listening, calls `close`, which ends all waits, and then ends the clients' threads. On
    /// a thread for which others may wait it does not wait for their last answers and their end.
    pub(crate) fn end(&self, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let clients = &self.listening.clients;
        let accepts = self.accepts.lock().ok().and_then(|mut accepts| accepts.take());
        let Some(accepts) = accepts else {
            // Another call has done all this, or does it; or in a forked child the parent listens,
            // and its threads serve.
            return close();
        };
        self.listening.end();
        accepts.join();
        let closed = close();
        let mut connected = clients.connected.lock();
        for client in connected.iter() {
            let _ = client.stream.shutdown(std::net::Shutdown::Read);
        }
        if !may_wait() {
            // The close may be the work of a waker on one of the clients' threads.
            return closed;
        }
        let deadline = now() + LAST_ANSWERS;
        while !connected.is_empty() && now() < deadline {
            clients.has_gone.wait_until(&mut connected, deadline);
        }
        for client in connected.iter() {
            let _ = client.stream.shutdown(std::net::Shutdown::Both);
        }
        while !connected.is_empty() {
            clients.has_gone.wait(&mut connected);
        }
        closed
    }
}

impl Listening {
    fn listen(&self, socket: &mut ServerSocket) -> io::Result<Arc<UnixListener>> {
        let storage = &self.clients.engine.core.storage;
        let listener = socket::listen(storage.directory(), storage.path(), self.mode)?;
        Ok(Arc::clone(socket.listener.insert(Arc::new(listener))))
    }

    /// Accepts clients until the end.
    fn run(&self) {
        let mut next = 0;
        while let Some(listener) = self.listener() {
            match listener.accept() {
                Ok((stream, _)) => {
                    next += 1;
                    // An error means that the client has gone already, or no descriptor is left.
                    let _ = begin(&self.clients, next, stream);
                }
                // The listener was shut down.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(_) => park_timeout(PAUSE),
            }
        }
    }

    /// Returns the listener, as soon as there is room for one; `None` at the end.
    fn listener(&self) -> Option<Arc<UnixListener>> {
        let mut socket = self.socket.lock();
        while !socket.has_ended {
            let listener = socket.listener.clone();
            if let Some(listener) = listener.or_else(|| self.listen(&mut socket).ok()) {
                return Some(listener);
            }
            self.has_ended.wait_until(&mut socket, now() + FULL);
        }
        None
    }

    /// Removes the socket, while the queue is locked: the next owner's has the same name.
    fn end(&self) {
        let mut socket = self.socket.lock();
        socket.has_ended = true;
        if let Some(listener) = socket.listener.take() {
            let _ = socket::remove(self.clients.engine.core.storage.directory());
            let _ = rustix::net::shutdown(&*listener, Shutdown::Both);
        }
        drop(socket);
        self.has_ended.notify_all();
    }
}

/// Begins to serve a client, or tells it why not.
fn begin(clients: &Arc<Clients>, id: u64, stream: UnixStream) -> io::Result<()> {
    let (pid, uid, mut refused) = clients.check(&stream)?;
    let stream = Arc::new(UnixStream::from(above_standard(stream.into())?));
    let mut connected = clients.connected.lock();
    if connected.len() >= MOST_CLIENTS {
        let most = || format!("it serves {MOST_CLIENTS} clients already, which is the most");
        refused.get_or_insert_with(most);
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
    connected.push(Connected { id, stream: Arc::clone(&stream), pid, uid, since });
    drop(connected);
    let leaving = Departure { clients: Arc::clone(clients), id };
    let serve = move || {
        // It calls wakers and subscribers: no close that they make may wait for this thread.
        count_as_worker(Arc::default());
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
        self.clients.connected.lock().retain(|client| client.id != self.id);
        self.clients.has_gone.notify_all();
    }
}
