//! A look ahead over messages, which stay in the queue.

use crate::engine::ahead::Ahead;
use crate::error::{Error, Gap, Result, past_gaps};
use crate::message::Message;
use crate::storage::FileStorage;

/// Looks ahead over messages without consuming them: [`Queue::iter`](crate::Queue::iter),
/// [`Consumer::iter`](crate::Consumer::iter).
///
/// It returns `None` at the end of the queue, and goes on when asked again after new messages came.
/// Gaps come as errors between the messages; [`past_gaps`](Self::past_gaps) takes them out. After
/// any other error the iterator has ended for good.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue_batch(["a", "b"])?;
/// let mut ahead = queue.iter();
/// assert_eq!(ahead.next().unwrap()?.as_str(), Ok("a"));
/// assert_eq!(ahead.next().unwrap()?.as_str(), Ok("b"));
/// assert_eq!((ahead.next().is_none(), queue.len()), (true, 2));
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct Iter {
    ahead: Result<Ahead<FileStorage>, Option<Error>>,
}

impl Iter {
    pub(crate) fn new(ahead: Result<Ahead<FileStorage>>) -> Iter {
        Iter { ahead: ahead.map_err(Some) }
    }

    /// Returns the messages without the gaps: each gap goes to `on_gap` in its place.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("a message")?;
    /// for message in queue.iter().past_gaps(|gap| eprintln!("{gap}")) {
    ///     println!("{:?}", message?.as_str());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn past_gaps(
        mut self,
        mut on_gap: impl FnMut(Gap),
    ) -> impl Iterator<Item = Result<Message>> {
        std::iter::from_fn(move || past_gaps(|| self.next().transpose(), &mut on_gap).transpose())
    }
}

impl Iterator for Iter {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.ahead {
            Ok(ahead) => ahead.next(),
            Err(error) => error.take().map(Err),
        }
    }
}
