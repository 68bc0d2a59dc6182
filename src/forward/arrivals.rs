//! The receiving half: a queue that is the far side of another queue's forwarder.

use crate::consumer::Consumer;
use crate::error::{Error, Result};
use crate::format::Origin;
use crate::queue::Queue;

/// Stores the messages of another queue's forwarder, each with its [`Origin`]: the other queue's
/// id, the number there and the [sum](super::Outgoing::sum). So the last message of a source says
/// how far the source has come, and no crash can part the two. A consumer of its own, `accept-` and
/// the other queue's id, stands at the last flushed message, so that readers do not remove it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Queue::open(dir.path())?;
/// let mut arrivals = mmq::forward::Arrivals::new(&queue, [7; 16])?;
/// assert_eq!(arrivals.last(), None);
/// arrivals.store(40, 0x1234, b"the other queue's message 40")?;
/// arrivals.flush()?;
/// assert_eq!(mmq::forward::Arrivals::new(&queue, [7; 16])?.last(), Some((40, 0x1234)));
/// assert_eq!(queue.dequeue()?.unwrap().origin().unwrap().seq, 40);
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct Arrivals<'a> {
    queue: &'a Queue,
    bookmark: Consumer,
    source: [u8; 16],
    last: Option<(u64, u32)>,
    /// The number that the last message has in this queue.
    stored_as: Option<u64>,
}

impl<'a> Arrivals<'a> {
    /// Finds the last message of the queue with the id `source`. Only one at a time may store
    /// messages of that source.
    ///
    /// # Errors
    ///
    /// As [`Queue::consumer`] and [`Queue::flush`], and errors of reading. A gap is none: the
    /// source sends lost messages at the end again.
    pub fn new(queue: &'a Queue, source: [u8; 16]) -> Result<Arrivals<'a>> {
        let id: String = source.iter().map(|byte| format!("{byte:02x}")).collect();
        let bookmark = queue.consumer(&format!("accept-{id}"))?;
        // Before the first message: a bookmark that a power cut removes would begin behind it.
        queue.flush()?;
        let mut arrivals = Arrivals { queue, bookmark, source, last: None, stored_as: None };
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
        let origin = Origin { queue_id: self.source, seq, attempts: 0, sum };
        self.stored_as = Some(self.queue.engine().enqueue_dead_letter(message, &origin)?);
        self.last = Some((seq, sum));
        Ok(())
    }

    /// Makes the stored messages durable, and lets readers remove all of them but the last.
    ///
    /// # Errors
    ///
    /// As [`Queue::flush`] and [`Consumer::seek`].
    pub fn flush(&mut self) -> Result<()> {
        self.queue.flush()?;
        match self.stored_as {
            Some(seq) if seq > self.bookmark.stats().next_seq => self.bookmark.seek(seq),
            _ => Ok(()),
        }
    }
}
