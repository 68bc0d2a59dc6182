//! What most programs call, first on the page of [`Queue`]; and more ways to put messages in.

use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::consume::step::Read;
use crate::consumer::Consumer;
use crate::engine::consumer_life::check_name;
use crate::engine::reading;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::events;
use crate::message::Message;
use crate::options::Options;
use crate::queue::Queue;

impl Queue {
    /// Opens the queue in `dir` with the default [`Options`], creating it when there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let queue = mmq::Queue::open(dir.join("spool"))?; // makes the directory, too
    /// assert!(queue.is_empty());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Queue> {
        Options::new().open(dir)
    }

    /// Appends a message (bytes or text) to the queue and returns its sequence number.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// match queue.enqueue("reading 17") {
    ///     Ok(seq) => println!("{seq} is in the queue"),
    ///     Err(error) if error.is_full() => eprintln!("try again later: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
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
        self.engine.enqueue(message.as_ref())
    }

    /// Takes the next message; `None` when there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("a message")?;
    /// let message = queue.dequeue()?.expect("there is one");
    /// assert_eq!((message.seq(), message.as_str()), (0, Ok("a message")));
    /// assert!(queue.dequeue()?.is_none()); // empty is no error
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Durability
    ///
    /// After the death of the process no read returns the message again. After a power cut, reads
    /// may return messages again that were taken since the last flush.
    ///
    /// # Errors
    ///
    /// [`Error::Gap`], once, when messages are missing here: the next call continues behind them. A
    /// loop that ends with `?` at a gap leaves the rest unread: see
    /// [`past_gaps`](crate::past_gaps). [`Error::Io`].
    #[inline]
    #[doc(alias = "DequeueString")]
    pub fn dequeue(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, self.engine.default_consumer_state(), Read::Take)
    }

    /// Returns the next message, which stays in the queue; `None` when there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("a message")?;
    /// assert_eq!(queue.peek()?.unwrap().as_str(), Ok("a message"));
    /// assert_eq!(queue.len(), 1); // it is still there
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Gap`], once, when messages are missing here: the next call continues behind them.
    /// [`Error::Io`].
    #[inline]
    #[doc(alias = "PeekString")]
    pub fn peek(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, self.engine.default_consumer_state(), Read::Look)
    }

    /// Returns the consumer called `name` (1 to 255 bytes), which has its own position in the
    /// queue. The first call with a name creates the consumer, at the oldest message in the queue,
    /// and stores its name and position.
    ///
    /// While a queue has no consumer, it keeps all messages. From the first consumer on, it keeps
    /// only what its consumers have not passed: so open all consumers before the first one reads.
    /// (The default consumer, which the queue's first read creates, is one of them.)
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let (mail, audit) = (queue.consumer("mail")?, queue.consumer("audit")?);
    /// queue.enqueue("order 17")?;
    /// assert_eq!(mail.dequeue()?.unwrap().as_str(), Ok("order 17"));
    /// assert_eq!(audit.dequeue()?.unwrap().as_str(), Ok("order 17")); // each sees every message
    /// # Ok::<(), mmq::Error>(())
    /// ```
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

    /// Makes everything durable that was enqueued, taken or acknowledged before the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let seq = queue.enqueue("order 17")?; // survives the death of the process
    /// queue.flush()?; // survives a power cut
    /// assert!(queue.durable_seq() > seq);
    /// # Ok::<(), mmq::Error>(())
    /// ```
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

    /// Makes everything durable and closes the files. Handles of [`Consumer`]s return
    /// [`Error::Closed`] from now on; messages that the program has stay readable.
    ///
    /// Deliveries that the program has can no longer be acknowledged:
    /// [`ack`](crate::Delivery::ack) returns [`Error::Closed`], and their messages come again after
    /// the next opening, although the work was done. So first let the workers end their work and
    /// acknowledge it, then close (the [guide](crate::guide#with-tokio) has such a program).
    ///
    /// The call waits for the disk, and so does dropping the queue. In an asynchronous program, do
    /// either in a thread that may block (`spawn_blocking` of tokio).
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
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::sync::Arc;
    ///
    /// let queue = Arc::new(queue);
    /// let producer = Arc::clone(&queue);
    /// std::thread::spawn(move || producer.enqueue("a message")).join().unwrap()?;
    /// Arc::into_inner(queue).expect("no other thread has it any more").close()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). The files are closed whatever it returns.
    #[doc(alias = "Close")]
    pub fn close(self) -> Result<()> {
        self.end()
    }
}

/// # More ways to open, and to put messages in
impl Queue {
    /// Returns the default options: change them, then [open](Options::open) the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let queue = mmq::Queue::options().max_bytes(64 << 20).open(dir.path())?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub const fn options() -> Options {
        Options::new()
    }

    /// Appends all messages to the queue, or none, and returns their sequence numbers.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// assert_eq!(queue.enqueue_batch(["a", "b", "c"])?, 0..3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Durability
    ///
    /// All or none also after a process crash or a power cut.
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue): none of the messages is in the queue, or, after a failed
    /// flush, all are.
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
    ///
    /// # Durability
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue); [`Error::MessageTooLarge`] also when the parts are too long
    /// together.
    pub fn enqueue_parts(&self, parts: &[IoSlice<'_>]) -> Result<u64> {
        let len = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        self.check_len(len)?;
        self.engine.enqueue_parts(parts)
    }
}
