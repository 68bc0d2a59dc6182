//! A message as a reader gets it.

use std::fmt;
use std::ops::Deref;
use std::str::Utf8Error;

use crate::format::Origin;
use crate::memory::Window;

/// A message that was taken or looked at.
///
/// The queue lends the bytes in place where they lie in one piece in mapped memory that may be
/// kept, and copies them otherwise; the two look alike. A lent message pins its arena, never a
/// lock: any call may be made while messages are held, and they outlive the queue. (If the system
/// has no memory for their own copy, the closed queue stays locked until they are dropped.) They do
/// not outlive a `fork`: a child may drop a message, and must not read it. A queue with a memory
/// cap lends from `cap - 2` arenas at most and copies from then on, so holding messages for long
/// costs copies, not memory.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue("hello")?;
/// let message = queue.dequeue()?.expect("there is one");
/// assert_eq!(&message[..], b"hello");
/// assert_eq!(message.as_str(), Ok("hello"));
/// assert_eq!(message.seq(), 0);
/// # Ok(())
/// # }
/// ```
pub struct Message {
    seq: u64,
    body: Body,
}

enum Body {
    Lent { window: Window, offset: usize, len: usize },
    Owned(Vec<u8>, Option<Box<Origin>>),
}

impl Message {
    #[inline]
    pub(crate) fn lent(seq: u64, window: Window, offset: usize, len: usize) -> Message {
        Message { seq, body: Body::Lent { window, offset, len } }
    }

    #[inline]
    pub(crate) fn owned(seq: u64, bytes: Vec<u8>) -> Message {
        Message { seq, body: Body::Owned(bytes, None) }
    }

    /// The same, as a dead letter from there. (A dead letter is never lent.)
    pub(crate) fn with_origin(mut self, from: Option<Origin>) -> Message {
        if let Body::Owned(_, origin) = &mut self.body {
            *origin = from.map(Box::new);
        }
        self
    }

    /// Returns the sequence number that [`enqueue`](crate::Queue::enqueue) returned: the message's
    /// identity, never used again in this queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let seq = queue.enqueue("hello")?;
    /// assert_eq!(queue.dequeue()?.unwrap().seq(), seq);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns where the message comes from, if it is a dead letter: one that another queue put in
    /// here because it was handed out too often there. The message's bytes are what was put in
    /// there.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dead_letters = mmq::Queue::open(dir.path())?;
    /// while let Some(letter) = dead_letters.dequeue()? {
    ///     if let Some(origin) = letter.origin() {
    ///         println!("message {} failed {} times", origin.seq, origin.attempts);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        match &self.body {
            Body::Lent { .. } => None,
            Body::Owned(_, origin) => origin.as_deref().copied(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.body, Body::Lent { .. })
    }

    /// Returns the bytes on their own; copies them when they were lent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("hello")?;
    /// # let message = queue.dequeue()?.unwrap();
    /// let bytes: Vec<u8> = message.into_vec(); // refers to nothing in the queue any more
    /// assert_eq!(bytes, b"hello");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.body {
            Body::Lent { .. } => self.to_vec(),
            Body::Owned(bytes, _) => bytes,
        }
    }

    /// Returns the bytes as text.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("hello")?;
    /// # let message = queue.dequeue()?.unwrap();
    /// match message.as_str() {
    ///     Ok(text) => println!("{text}"),
    ///     Err(_) => println!("{} bytes", message.len()),
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When they are not UTF-8.
    #[doc(alias = "DequeueString")]
    #[doc(alias = "PeekString")]
    pub fn as_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(self)
    }
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.body {
            Body::Lent { window, offset, len } => window.bytes(*offset, *len),
            Body::Owned(bytes, _) => bytes,
        }
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Shows the number and the length, never the bytes: they may be secret or long.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("seq", &self.seq).field("len", &self.len()).finish()
    }
}
