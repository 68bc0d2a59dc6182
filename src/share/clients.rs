//! The clients of an owner: who is connected, and who may be.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::fields::{put_u32, put_u64};
use crate::engine::Engine;
use crate::storage::FileStorage;
use crate::threads::{Condvar, Mutex};

/// Who is connected.
#[derive(Debug)]
pub(super) struct Connected {
    /// A number that is never used again.
    pub(super) id: u64,
    pub(super) stream: Arc<UnixStream>,
    pub(super) pid: u64,
    pub(super) uid: u64,
    pub(super) since: SystemTime,
}

/// What the listening thread and those of the clients share.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) engine: Arc<Engine<FileStorage>>,
    pub(super) connected: Mutex<Vec<Connected>>,
    pub(super) has_gone: Condvar,
    /// Whether every user may connect whom the socket's bits let in.
    is_for_others: bool,
    /// The user whose directory it is.
    directorys: u32,
}

impl Clients {
    pub(super) fn new(engine: &Arc<Engine<FileStorage>>, mode: u32) -> Clients {
        Clients {
            engine: Arc::clone(engine),
            connected: Mutex::default(),
            has_gone: Condvar::new(),
            is_for_others: mode & 0o077 != 0,
            directorys: rustix::fs::fstat(engine.core.storage.directory())
                .map_or_else(|_| rustix::process::geteuid().as_raw(), |of| of.st_uid),
        }
    }

    /// Writes who is connected: process, user and milliseconds since 1970 of each.
    pub(super) fn put_connected(&self, body: &mut Vec<u8>) {
        let connected = self.connected.lock();
        put_u32(body, connected.len() as u32);
        for client in connected.iter() {
            let since = client.since.duration_since(UNIX_EPOCH).unwrap_or_default();
            let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            [client.pid, client.uid, since].into_iter().for_each(|count| put_u64(body, count));
        }
    }

    /// Whether this process may use the queue, and if not, why.
    pub(super) fn check(&self, stream: &UnixStream) -> io::Result<(u64, u64, Option<String>)> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let (pid, uid) = {
            let peer = rustix::net::sockopt::socket_peercred(stream)?;
            (peer.pid.as_raw_nonzero().get() as u64, peer.uid.as_raw())
        };
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let (pid, uid, _) = (0, rustix::process::geteuid().as_raw(), stream);
        let own = rustix::process::geteuid().as_raw();
        let is_allowed = self.is_for_others || [own, self.directorys, 0].contains(&uid);
        let reason = (!is_allowed).then(|| {
            format!("its owner is user {own} and serves no user {uid}: see Options::shared_mode")
        });
        Ok((pid, uid.into(), reason))
    }
}
