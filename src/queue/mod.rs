//! [`Queue`]: opens, writes, flushes and closes a queue.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | opens and closes a queue, enqueues, makes consumers, flushes |
//! | `default_reads` | reads through the default consumer, waits, futures, interrupts |
//! | `about` | returns figures, the id, the directory, times |
//! | `copy_to` | copies a queue to another directory |

mod about;
mod copy_to;
mod default_reads;

use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::consumer::{Consumer, check_name};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::events;
use crate::format::MAX_MESSAGE_LEN;
use crate::options::{Options, Start};
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
    /// Opens the queue in the directory `dir`, and creates a missing one unless
    /// [`create(false)`](Options::create) is set.
    ///
    /// Opening takes milliseconds whatever the backlog. What a crash leaves is in the [front page's
    /// table](crate). Opening quarantines damaged and foreign files that have the name of a queue's
    /// file as `*.damaged`, and leaves other files unchanged. It rejects a directory that holds
    /// files, but none of a queue, and leaves it unchanged. (A queue's file has a name of mmq's,
    /// and either a content or a length of mmq's. Hidden files and `lost+found` do not count.)
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
        let dir = dir.as_ref();
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
        Ok(Queue { engine: Arc::new(engine) })
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

    /// The default options: change them, then [open](Options::open) the queue.
    pub const fn options() -> Options {
        Options::new()
    }

    /// Appends a message (bytes or text) to the queue and returns its sequence number.
    ///
    /// # Durability
    ///
    /// Once the call has returned, the message survives the death of the process at any
    /// instruction. It survives a power cut once it is [flushed](Self::flush): with
    /// [`flush_every_ops(1)`](Options::flush_every_ops) that is when the call returns.
    ///
    /// # Errors
    ///
    /// [`Error::MessageTooLarge`]. [`Error::Full`] or [`Error::Io`] when there is no room; nothing
    /// was changed. [`Error::Poisoned`] after a failed flush.
    ///
    /// An [`Error::Io`] with `op` `"flush"` comes from a flush that this call had to do (see
    /// [`flush_every_ops`](Options::flush_every_ops)). The message is in the queue then, stays
    /// there and survives the process: to enqueue it again would make two of it. Such an error is
    /// never [`is_full`](Error::is_full), and the queue is usually poisoned. With any other error,
    /// [`Error::Poisoned`] and an [`Error::Io`] with `op` `"sync"` among them, it is not in the
    /// queue.
    #[inline]
    #[doc(alias = "EnqueueString")]
    pub fn enqueue(&self, message: impl AsRef<[u8]>) -> Result<u64> {
        let message = message.as_ref();
        self.check_len(message.len() as u64)?;
        self.engine.enqueue(message)
    }

    /// Appends all messages to the queue, or none, and returns their sequence numbers.
    ///
    /// # Durability
    ///
    /// All or none also after a process crash or a power cut.
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue): none of the messages is in the queue, or, after a failed
    /// flush, all are.
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
        // Run the caller's iterator before taking any lock.
        let messages: Vec<M> = messages.into_iter().collect();
        // Also call `as_ref` here, once for each message: it may panic, enqueue, or return
        // something else the next time.
        let messages: Vec<&[u8]> = messages.iter().map(AsRef::as_ref).collect();
        for message in &messages {
            self.check_len(message.len() as u64)?;
        }
        self.engine.enqueue_batch(&messages)
    }

    /// Appends one message whose bytes lie in several buffers, in their order: a header and a body,
    /// say. Usually copies them once, into the queue. Joins them in a buffer first when it must
    /// allocate space or begin a segment, or when the message is long enough for a write call.
    ///
    /// # Durability
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue); [`Error::MessageTooLarge`] also when the parts are too long
    /// together.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::io::IoSlice;
    /// let body = b"a body";
    /// let header = (body.len() as u32).to_le_bytes();
    /// queue.enqueue_parts(&[IoSlice::new(&header), IoSlice::new(body)])?;
    /// assert_eq!(&queue.dequeue()?.unwrap()[..], b"\x06\0\0\0a body");
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_parts(&self, parts: &[IoSlice<'_>]) -> Result<u64> {
        let len = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        self.check_len(len)?;
        self.engine.enqueue_parts(parts)
    }

    /// Returns the consumer called `name` (1 to 255 bytes), which has its own position in the
    /// queue. The first call with a name creates the consumer, at the oldest message in the queue,
    /// and stores its name and position.
    ///
    /// While a queue has no consumer, it keeps all messages. From the first consumer on, it keeps
    /// only what its consumers have not passed: so open all consumers before the first one reads.
    /// (The default consumer, which the queue's first read creates, is one of them.)
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a bad name, [`Error::Io`] when there is no room for another
    /// consumer.
    #[doc(alias = "NewConsumer")]
    pub fn consumer(&self, name: &str) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let consumer = self.engine.consumer(name)?;
        Ok(Consumer::new(Arc::clone(&self.engine), consumer))
    }

    /// Returns the names of all consumers, in order. The queue's own (default) consumer has no
    /// name.
    #[must_use]
    pub fn consumers(&self) -> Vec<String> {
        self.engine.consumer_names()
    }

    /// Returns the consumer called `name` (see [`consumer`](Self::consumer)), and creates a missing
    /// one at `start`, in one step: it neither misses nor reads twice a message enqueued meanwhile.
    /// An existing consumer keeps its position.
    ///
    /// While a queue has no consumer, it keeps all messages: open all consumers before the first
    /// one reads. If the first consumer starts behind the oldest message, the queue discards the
    /// messages before it; [`Stats::unclaimed`](crate::Stats::unclaimed) counts them.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("old news")?;
    /// let reader = queue.consumer_at("reader", mmq::Start::End)?;
    /// queue.enqueue("news")?;
    /// assert_eq!(reader.dequeue()?.unwrap().as_str(), Ok("news"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`consumer`](Self::consumer); [`Error::NotFound`] for a number that no message has got
    /// yet: then it creates no consumer.
    pub fn consumer_at(&self, name: &str, start: Start) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let consumer = self.engine.consumer_at(name, start)?;
        Ok(Consumer::new(Arc::clone(&self.engine), consumer))
    }

    /// Removes the consumer called `name`: the queue no longer keeps messages for it. Calls through
    /// its handles return [`Error::NotFound`] from now on.
    ///
    /// The empty name removes the queue's own (default) consumer. Calls that wait in it return
    /// [`Error::NotFound`]; the next reading call creates it again, at the oldest message in the
    /// queue.
    ///
    /// # Durability
    ///
    /// The removal survives the death of the process, and a power cut once a flush has covered the
    /// call. Until then a power cut may bring the consumer back, at its old position. Before the
    /// call returns, it erases the consumer's acknowledgements and attempts on the disk, with one
    /// sync of the index.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when no consumer has that name. [`Error::Io`] when it could not erase
    /// the acknowledgements on the disk: the consumer is removed all the same, and the queue is as
    /// after a failed [`flush`](Self::flush).
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        if !name.is_empty() {
            check_name(self.path(), name)?;
        }
        self.engine.remove_consumer(name)
    }

    /// Returns how many messages wait for the queue's own (default) consumer. Without a default
    /// consumer: how many some consumer has not finished. Without any consumer: how many are in the
    /// queue.
    ///
    /// The figure follows from sequence numbers, so it is exact at once after a reopening, also
    /// after the death of the process at any instruction. It includes missing messages that no read
    /// has met yet: damaged ones, and those that a power cut destroyed in the middle of a segment.
    /// Then reads return fewer messages, and the figure is exact again once a read has reported the
    /// gap.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.engine.len()
    }

    /// Returns whether no message waits for the queue's own (default) consumer.
    #[must_use]
    #[doc(alias = "IsEmpty")]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes everything durable that was enqueued, taken or acknowledged before the call.
    ///
    /// # Durability
    ///
    /// Once the call has returned, it survives a power cut. Other threads may enqueue meanwhile;
    /// threads that flush at the same time share one sync.
    ///
    /// The kernel may write pages by itself before the flush, and fail. The flush reports such a
    /// failure, because it syncs each file through a descriptor that has been open since this run
    /// first stored to the file. For pages that an earlier, killed process stored, the kernel may
    /// have forgotten such a failure before this opening: no program can find out about it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with `op` `"flush"` when a sync failed, or when the directory was removed. The
    /// queue could no longer promise that later writes last, so all writes return
    /// [`Error::Poisoned`] until it is opened again. Enqueued messages stay in the queue and
    /// readable, also after the next opening, as long as the machine runs.
    ///
    /// [`Error::Io`] with another `op` when a file could not be opened or written just now: the
    /// next flush tries again.
    pub fn flush(&self) -> Result<()> {
        let _events = events::at_end();
        self.engine.core.flush()
    }

    /// Returns the first sequence number not yet known to be durable.
    #[must_use]
    pub fn durable_seq(&self) -> u64 {
        if self.engine.core.forked() {
            return 0;
        }
        self.engine.core.durable.lock().spot.seq
    }

    /// Makes sure that the message `seq` is durable: flushes if it is not yet. Threads that wait at
    /// the same time share one sync.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush); [`Error::NotFound`] for a number that no message has got yet;
    /// [`Error::Interrupted`] by [`interrupt`](Self::interrupt), while it waited for another
    /// thread's sync.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        let core = &*self.engine.core;
        let began = core.began();
        let _events = events::at_end();
        core.check_not_forked()?;
        if self.durable_seq() > seq && !core.has_unsynced_files() {
            return Ok(());
        }
        core.check_writable()?;
        let tail = core.committed_spot();
        if seq >= tail.seq {
            let oldest = core.oldest(tail).seq;
            return Err(Error::no_message(core.storage.path(), seq, oldest..tail.seq));
        }
        core.flush_or_wait(tail, Some(began))
    }

    /// Makes everything durable and closes the files. Handles of [`Consumer`]s return
    /// [`Error::Closed`] from now on; messages that the program has stay readable.
    ///
    /// Closing wakes all waits that do not borrow the queue: threads within
    /// [`Consumer::dequeue_timeout`] or [`Consumer::receive_timeout`], and the futures and streams
    /// of the queue and its consumers. They end with [`Error::Closed`], and descriptors become
    /// readable. A thread within one of the queue's own calls borrows the queue, so `close` cannot
    /// be called before that call returns: a thread that must be stoppable should wait through a
    /// consumer's handle, or with a short timeout.
    ///
    /// Before it closes, the queue moves rejected messages to their dead-letter queue. It starts no
    /// more moves after five seconds.
    ///
    /// `close` takes the queue by value. [`Arc::into_inner`](std::sync::Arc::into_inner) takes it
    /// out of an [`Arc`]; or let the last owner drop it. Dropping the queue does
    /// the same as `close`, but its errors are lost.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). The files are closed whatever it returns.
    #[doc(alias = "Close")]
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }

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

impl Drop for Queue {
    fn drop(&mut self) {
        // Handles of consumers may outlive the queue; they must not keep its files locked.
        let _ = self.engine.close();
    }
}
