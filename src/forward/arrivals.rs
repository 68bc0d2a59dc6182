//! The receiving half: a queue that is the far side of another queue's forwarder.

use crate::consumer::Consumer;
use crate::error::{Error, Result};
use crate::format::Origin;
use crate::forward::local::{Acknowledged, Local};
use crate::forward::over_queue::QueueLocal;
use crate::queue::Queue;

/// Stores the messages of another queue's forwarder, each with its [`Origin`]: the other queue's
/// id, the number there and the [sum](super::Outgoing::sum). So the last message of a source says
/// how far the source has come, and no crash can part the two. A consumer of its own, `accept-` and
/// the other queue's id, stands at the last flushed message, so that readers do not remove it. As
/// with a forwarder's kept messages, its figures count only what comes after that.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Queue::open(dir.path())?;
/// let mut arrivals = mmq::forward::Arrivals::new(&queue, [7; 16])?;
/// assert_eq!(arrivals.last(), None);
/// arrivals.store(40, 0x1234, b"the other queue's message 40")?;
/// arrivals.flush()?;
/// drop(arrivals);
/// assert_eq!(mmq::forward::Arrivals::new(&queue, [7; 16])?.last(), Some((40, 0x1234)));
/// assert_eq!(queue.dequeue()?.unwrap().origin().unwrap().seq, 40);
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct Arrivals<'a> {
    queue: &'a Queue,
    bookmark: Consumer,
    /// The row that says behind which message the bookmark counts.
    row: QueueLocal,
    source: [u8; 16],
    last: Option<(u64, u32)>,
    /// The number that the last message has in this queue.
    stored_as: Option<u64>,
    /// Why numbers before the next message are missing.
    why_missing: u32,
}

impl<'a> Arrivals<'a> {
    /// Finds the last message of the queue with the id `source`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] while another one of this process stores messages of that source.
    /// As [`Queue::consumer`] and [`Queue::flush`], and errors of reading. A gap is none: the
    /// source sends lost messages at the end again.
    pub fn new(queue: &'a Queue, source: [u8; 16]) -> Result<Arrivals<'a>> {
        let id: String = source.iter().map(|byte| format!("{byte:02x}")).collect();
        let bookmark = queue.consumer(&format!("accept-{id}"))?;
        // Before the first message: a bookmark that a power cut removes would begin behind it.
        queue.flush()?;
        let (engine, consumer) = bookmark.parts();
        let row = QueueLocal::new(engine, consumer)?;
        let (last, stored_as, why_missing) = (None, None, 0);
        let mut arrivals = Arrivals { queue, bookmark, row, source, last, stored_as, why_missing };
        for message in arrivals.bookmark.iter() {
            match message {
                Ok(message) => {
                    let origin = message.origin().filter(|origin| origin.queue_id == source);
                    if let Some(Origin { seq, sum, .. }) = origin {
                        (arrivals.last, arrivals.stored_as) =
                            (Some((seq, sum)), Some(message.seq()));
                    }
                }
                Err(Error::Gap(_)) => {}
                Err(error) => return Err(error),
            }
        }
        arrivals.keep_last()?;
        Ok(arrivals)
    }

    /// Returns the source's number and sum of its last message here; `None` when none is here.
    #[must_use]
    pub fn last(&self) -> Option<(u64, u32)> {
        self.last
    }

    /// Stores the source's message `seq`, whose sum is `sum`. It is durable after
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// [`Error::Full`], whatever the queue does when it is full; [`Error::MessageTooLarge`];
    /// [`Error::InvalidArgument`] for a number that is not above the last one: it is here already;
    /// the errors of any write.
    pub fn store(&mut self, seq: u64, sum: u32, message: &[u8]) -> Result<()> {
        if self.last.is_some_and(|(last, _)| seq <= last) {
            let reason = format!("{seq}: the queue has that message already");
            return Err(Error::invalid_argument(self.queue.path(), "number of a source", reason));
        }
        let origin = Origin { queue_id: self.source, seq, attempts: self.why_missing, sum };
        self.stored_as = Some(self.queue.engine().enqueue_dead_letter(message, &origin)?);
        (self.last, self.why_missing) = (Some((seq, sum)), 0);
        Ok(())
    }

    /// Notes why numbers of the source before the next message are missing: a number that the
    /// message's [`Origin::attempts`] has then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let mut arrivals = mmq::forward::Arrivals::new(&queue, [7; 16])?;
    /// arrivals.note_missing(3);
    /// arrivals.store(40, 0x1234, b"the numbers before it were dropped")?;
    /// assert_eq!(queue.peek()?.unwrap().origin().unwrap().attempts, 3);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn note_missing(&mut self, why: u32) {
        self.why_missing = why;
    }

    /// Makes the stored messages durable, and lets readers remove all of them but the last.
    ///
    /// # Errors
    ///
    /// As [`Queue::flush`] and [`Consumer::seek`].
    pub fn flush(&mut self) -> Result<()> {
        self.queue.flush()?;
        self.keep_last()
    }

    /// Moves the bookmark to the last message, which is durable, and counts from behind it.
    fn keep_last(&mut self) -> Result<()> {
        let Some(seq) = self.stored_as else { return Ok(()) };
        if seq > self.row.kept() {
            self.bookmark.seek(seq)?;
        }
        if seq >= self.row.place() {
            let until = seq + 1;
            self.row.set_acknowledged(Acknowledged::until(until))?;
        }
        Ok(())
    }
}
