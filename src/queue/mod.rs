//! The door: [`Queue`].

mod reading;

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::consumer::{Consumer, check_name};
#[cfg(doc)]
use crate::delivery::Delivery;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::events;
use crate::format::MAX_MESSAGE_LEN;
use crate::options::Options;
use crate::stats::Stats;
use crate::storage::{FileStorage, Storage};

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
}

impl Options {
    /// Opens the queue in the directory `dir`, creating what is missing unless
    /// [`create(false)`](Options::create) was said.
    ///
    /// It takes milliseconds whatever the backlog. After a crash the queue is as it was: see the
    /// front page's table. Damaged and foreign files of the queue's own names are set aside as
    /// `*.damaged`; other files are left alone. A directory that holds files and nothing of a
    /// queue's is refused and left as it is. (Of a queue's are files of the names that mmq gives,
    /// with something in them or a length that mmq gives them. Hidden files and `lost+found` do not
    /// count.)
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::NotFound`] with `create(false)`, [`Error::NotAQueue`],
    /// [`Error::Locked`] when the queue is open already, here or elsewhere,
    /// [`Error::UnsupportedFormat`] for files of a later version, which are not touched, and
    /// [`Error::Io`].
    #[doc(alias = "NewMmapQueue")]
    #[doc(alias = "NewQueue")]
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<Queue> {
        let dir = dir.as_ref();
        if dir.as_os_str().is_empty() {
            return Err(Error::InvalidArgument {
                path: None,
                what: "dir",
                reason: "the path is empty".into(),
            });
        }
        self.validate(dir)?;
        let opened = if self.create { FileStorage::create(dir) } else { FileStorage::open(dir) };
        let storage = opened.map_err(|error| {
            let missing =
                || matches!(dir.metadata(), Err(error) if error.kind() == ErrorKind::NotFound);
            match self.create {
                false if error.kind() == ErrorKind::NotFound => Error::no_queue(dir),
                true if missing() => Error::io("create", dir, error),
                _ => Error::io("open", dir, error),
            }
        })?;
        Ok(Queue { engine: Arc::new(Engine::open(storage, self)?) })
    }
}

impl Queue {
    /// Opens the queue in `dir` with the default [`Options`], creating it when there is none.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Queue> {
        Options::new().open(dir)
    }

    /// The default options, to be changed and opened.
    pub const fn options() -> Options {
        Options::new()
    }

    /// Puts a message (bytes or text) at the tail and returns its sequence number.
    ///
    /// # Durability
    ///
    /// When it returns, the message survives the death of the process at any instruction. It
    /// survives a power cut once [flushed](Self::flush); with
    /// [`flush_every_ops(1)`](Options::flush_every_ops) when it returns.
    ///
    /// # Errors
    ///
    /// [`Error::MessageTooLarge`], [`Error::Full`] or [`Error::Io`] when there is no room (nothing
    /// was changed), [`Error::Poisoned`] after a failed flush. When a flush fails that this call
    /// has to do (see [`flush_every_ops`](Options::flush_every_ops)), its error comes although the
    /// message is in the queue, stays there and survives the process: to put it in again would make
    /// two of it. It is an [`Error::Io`] with `op` `"flush"`, and no [`is_full`](Error::is_full)
    /// refusal; mostly the queue is poisoned then.
    #[inline]
    #[doc(alias = "EnqueueString")]
    pub fn enqueue(&self, message: impl AsRef<[u8]>) -> Result<u64> {
        let message = message.as_ref();
        self.check_len(message.len() as u64)?;
        self.engine.enqueue(message)
    }

    /// Puts all messages at the tail, or none, and returns their sequence numbers.
    ///
    /// # Durability
    ///
    /// All or none also after a crash, of the process or the machine.
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue): none of the messages is in the queue then, or, after a flush
    /// that failed, all are.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// assert_eq!(queue.enqueue_batch(["a", "b", "c"])?, 0..3);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "EnqueueBatch")]
    pub fn enqueue_batch<M: AsRef<[u8]>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Range<u64>> {
        // The caller's iterator runs before any lock is taken.
        let messages: Vec<M> = messages.into_iter().collect();
        // And so does its `as_ref`, once: one that panics, enqueues, or answers otherwise the next
        // time finds no lock held.
        let messages: Vec<&[u8]> = messages.iter().map(AsRef::as_ref).collect();
        for message in &messages {
            self.check_len(message.len() as u64)?;
        }
        self.engine.enqueue_batch(&messages)
    }

    /// Puts a message of `len` bytes at the tail, which `fill` writes: in place, or into a buffer
    /// where it cannot lie in one piece. The bytes are zero before. A panic in `fill` leaves no
    /// trace in the queue.
    ///
    /// Other producers wait while `fill` runs, and readers may have to. So from within it every
    /// call on this queue is refused with [`Error::InvalidArgument`], be it made through the queue,
    /// a consumer, a delivery, an iterator or a future. Calls on other queues are not. What has no
    /// error to return waits for nobody:
    ///
    /// - [`len`](Self::len), [`is_empty`](Self::is_empty), [`stats`](Self::stats),
    ///   [`durable_seq`](Self::durable_seq), [`in_flight`](Self::in_flight) and
    ///   [`consumers`](Self::consumers) answer. While another thread is busy with that consumer,
    ///   `len` and `stats` count what was acknowledged out of order as if it still waited, and the
    ///   figures of `stats` may be of moments shortly after each other.
    /// - A [`Delivery`] that is dropped is given back right after `fill`.
    ///
    /// # Durability
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue). When there is no room for all of the message, `fill` is not
    /// called. Once it was called there is room: then the call fails only when the disk refuses to
    /// take the bytes into space that it has given before, or when a flush fails.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_with(4, |bytes| bytes.copy_from_slice(&7u32.to_le_bytes()))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<u64> {
        self.check_len(len as u64)?;
        self.engine.enqueue_with(len, fill)
    }

    /// The consumer called `name` (1 to 255 bytes), which has its own place in the queue. It comes
    /// into being when first asked for, at the oldest message still held, and is remembered by
    /// name.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a bad name, [`Error::Io`] when there is no room for another
    /// consumer.
    #[doc(alias = "NewConsumer")]
    pub fn consumer(&self, name: &str) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let standing = self.engine.consumer(name)?;
        Ok(Consumer::new(Arc::clone(&self.engine), standing))
    }

    /// The names of all consumers that exist, in order. The queue's own (default) consumer has
    /// none.
    #[must_use]
    pub fn consumers(&self) -> Vec<String> {
        self.engine.consumer_names()
    }

    /// Forgets the consumer called `name`: nothing is kept for it any more. Its handles answer
    /// [`Error::NotFound`].
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is none of that name. [`Error::Io`] when what it had
    /// acknowledged could not be made forgotten on the disk: it is gone all the same, and the queue
    /// is as after a failed [`flush`](Self::flush).
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        check_name(self.path(), name)?;
        self.engine.remove_consumer(name)
    }

    /// Messages that wait for the queue's own (default) consumer; before it first reads, all that
    /// are held.
    ///
    /// It follows from sequence numbers, so it is right at once after a reopening, and after the
    /// death of a process at any instruction: so many come. Only what nobody has met yet is
    /// counted: messages whose bytes are damaged, and those a power cut took from the middle of a
    /// segment. Then so many come at most, and it is right again from the moment the gap is told.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.engine.len()
    }

    /// Whether no message waits for the queue's own (default) consumer.
    #[must_use]
    #[doc(alias = "IsEmpty")]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes everything durable that was enqueued and taken before the call.
    ///
    /// # Durability
    ///
    /// When it returns, that survives a power cut. Enqueues go on meanwhile; threads that flush at
    /// the same time share one sync. Every file is synced through a descriptor that has been open
    /// since this run first stored to it, so that the failure of a write which the system did by
    /// itself in between is told. Of what a killed process before this run had stored, the system
    /// may have forgotten such a failure before this opening: there is no way to learn of it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with `op` `"flush"` when the system could not, or when the directory was
    /// removed: then nothing more can be promised for this opening and all writing answers
    /// [`Error::Poisoned`] until the queue is opened again. What was enqueued stays in the queue,
    /// is read, and is there for the next opening as long as the machine runs. [`Error::Io`] with
    /// another `op` when a file could not be opened or written just now: the next flush tries
    /// again.
    pub fn flush(&self) -> Result<()> {
        let _told = events::at_end();
        self.engine.core.flush()
    }

    /// The first sequence number not yet known to be durable.
    #[must_use]
    pub fn durable_seq(&self) -> u64 {
        if self.engine.core.forked() {
            return 0;
        }
        self.engine.core.durable.lock().spot.seq
    }

    /// Returns once the message `seq` is durable, flushing when it is not. Threads that wait at the
    /// same time share one sync.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush); [`Error::NotFound`] for a number that was never given out.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        let core = &*self.engine.core;
        let _told = events::at_end();
        core.check_may_wait()?;
        if self.durable_seq() > seq {
            return Ok(());
        }
        core.check_writable()?;
        let tail = core.committed_spot();
        if seq >= tail.seq {
            let oldest = core.oldest(tail).seq;
            return Err(Error::no_message(core.storage.path(), seq, oldest..tail.seq));
        }
        core.flush_to(tail)
    }

    /// Figures, read one by one while others go on.
    ///
    /// It costs producers and consumers nothing but a wait for a few words to be read. With
    /// messages [in flight](Consumer::receive) they are counted: they wait until they are
    /// acknowledged.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The queue's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.engine.core.storage.path()
    }

    /// Makes everything durable and lets go of the files. [`Consumer`]s' handles answer
    /// [`Error::Closed`] from now on; messages that are held stay readable.
    ///
    /// It wakes whoever waits without borrowing the queue: threads within
    /// [`Consumer::dequeue_timeout`] or [`Consumer::receive_timeout`], and futures and streams of
    /// the queue and of its consumers. They end with [`Error::Closed`]; descriptors become
    /// readable. A thread within one of the queue's own calls borrows the queue, so that this
    /// cannot be called before it is back: a thread that is to be stopped waits by a consumer's
    /// handle, or with a timeout that is not long.
    ///
    /// It takes the queue out of its owner's hands. Out of an [`Arc`](std::sync::Arc) it comes by
    /// [`Arc::into_inner`](std::sync::Arc::into_inner); or let the last owner drop it. Dropping the
    /// queue does the same as this, with its errors lost.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). The files are let go of whatever it returns.
    #[doc(alias = "Close")]
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }

    /// Refuses what no queue takes.
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

    #[cfg(feature = "capi")]
    pub(crate) fn engine(&self) -> &Arc<Engine<FileStorage>> {
        &self.engine
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Consumers' handles may outlive the queue; its files must not stay locked for them.
        let _ = self.engine.close();
    }
}
