//! [`Queue`]: opens, writes, flushes and closes a queue.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | opens a queue with its options |
//! | `daily` | enqueues, dequeues, makes consumers, flushes, closes |
//! | `default_reads` | more reads through the default consumer, waits, interrupts |
//! | `in_tasks` | futures and streams |
//! | `named_consumers` | makes, lists, moves and removes consumers |
//! | `about` | returns the durable mark, figures, the id, the directory, times |
//! | `copy_to` | copies a queue to another directory |

// In this order rustdoc shows their methods on the page of `Queue`: first what most programs call.
mod daily;

mod default_reads;

#[cfg(feature = "async")]
mod in_tasks;

mod named_consumers;

mod about;

mod copy_to;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::MAX_MESSAGE_LEN;
use crate::options::Options;
use crate::share::server::Server;
use crate::share::socket;
use crate::storage::FileStorage;

/// An embedded, durable first-in first-out queue in a directory.
///
/// Any number of threads may call any method at the same time. See the [crate's front page](crate)
/// for what survives what.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Queue::open(dir.path().join("jobs"))?;
/// queue.enqueue("first")?;
/// queue.enqueue(b"second")?;
/// assert_eq!(queue.dequeue()?.unwrap().as_str(), Ok("first"));
/// assert_eq!(queue.len(), 1);
/// queue.close()
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    engine: Arc<Engine<FileStorage>>,
    /// Serves other processes, if the queue is shared.
    server: Option<Server>,
}

impl Options {
    /// Opens the queue in the directory `dir`, and creates a missing one unless
    /// [`create(false)`](Options::create) is set.
    ///
    /// Opening takes milliseconds whatever the backlog. What a crash leaves is in the [front page's
    /// table](crate). Opening quarantines damaged and foreign files that have the name of a queue's
    /// file as `*.damaged`, and leaves other files unchanged. It rejects a directory that holds
    /// files, but none of a queue, and leaves it unchanged. (A queue's file has a name of mmq's,
    /// and either a content or a length of mmq's. Hidden files and `lost+found` do not count.)
    ///
    /// Making a new queue syncs nothing. The sync of its first message or consumer, or a
    /// [`flush`](Queue::flush), makes the directory and the index durable with it; until then a
    /// power cut may leave no directory, or one that opens as a new queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = mmq::Options::new().create(false);
    /// match options.open(dir.path().join("spool")) {
    ///     Ok(queue) => println!("{} messages wait", queue.len()),
    ///     Err(mmq::Error::NotFound { .. }) => println!("there is no queue yet"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::NotFound`] with `create(false)`, [`Error::NotAQueue`],
    /// [`Error::Locked`] when the queue is open already, here or elsewhere,
    /// [`Error::UnsupportedFormat`] for files of a later version, which stay unchanged, and
    /// [`Error::Io`].
    #[doc(alias = "NewMmapQueue")]
    #[doc(alias = "NewQueue")]
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<Queue> {
        self.open_path(dir.as_ref())
    }

    /// Not generic: else each crate that opens a queue would compile the engine once more.
    fn open_path(&self, dir: &Path) -> Result<Queue> {
        if dir.as_os_str().is_empty() {
            return Err(Error::InvalidArgument {
                path: None,
                what: "dir",
                reason: "the path is empty".into(),
            });
        }
        self.validate(dir)?;
        let opened = match self.create {
            true => FileStorage::create(dir, self.mode),
            false => FileStorage::open(dir),
        };
        let storage = opened.map_err(|error| {
            let missing =
                || matches!(dir.metadata(), Err(error) if error.kind() == ErrorKind::NotFound);
            match self.create {
                false if error.kind() == ErrorKind::NotFound => Error::no_queue(dir),
                true if missing() => Error::io("create", dir, error),
                _ => Error::io("open", dir, error),
            }
        })?;
        let engine = Engine::open(storage.with_mode(self.mode), self)?;
        if self.mode.is_some() {
            let changed = engine.core.storage.change_modes();
            changed.map_err(|error| Error::io("set the mode of", dir, error))?;
        }
        let engine = Arc::new(engine);
        let mode = self.shared_mode;
        let server = if self.shared {
            Some(Server::start(&engine, mode)?)
        } else {
            // A socket that a crash left would promise somebody who listens.
            let _ = socket::remove(engine.core.storage.directory());
            None
        };
        Ok(Queue { engine, server })
    }
}

impl Queue {
    /// Returns an error for a message that is too long for any queue.
    #[inline]
    pub(crate) fn check_len(&self, len: u64) -> Result<()> {
        if len > MAX_MESSAGE_LEN { Err(self.too_large(len)) } else { Ok(()) }
    }

    #[cold]
    fn too_large(&self, len: u64) -> Error {
        Error::MessageTooLarge {
            path: self.path().to_owned(),
            len,
            max: MAX_MESSAGE_LEN,
            max_bytes: None,
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<FileStorage>> {
        &self.engine
    }
}

impl Queue {
    /// Ends serving others, and closes the queue. Threads may be within calls of it, which end now.
    pub(crate) fn end(&self) -> Result<()> {
        match &self.server {
            Some(server) => server.end(|| self.engine.close()),
            None => self.engine.close(),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Handles of consumers may outlive the queue; they must not keep its files locked.
        let _ = self.end();
    }
}
