//! Fresh messages first, and the backlog beside them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::Lane;
use crate::consume::two_lanes::{LaneRules, Within};
use crate::delivery::Delivery;
use crate::engine::Engine;
use crate::engine::reading::AsMessage;
use crate::error::{Error, Result};
use crate::storage::{FileStorage, Storage};

/// How long a message is fresh. One that is not any more is left behind, for the backlog.
///
/// ```
/// use mmq::{Fresh, LaneOptions};
/// use std::time::Duration;
///
/// let by_age = LaneOptions::new().fresh_within(Fresh::Age(Duration::from_secs(30)));
/// let by_count = LaneOptions::new().fresh_within(Fresh::Messages(1_000));
/// # _ = (by_age, by_count);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// So long after it was put in, and at most an eighth longer. From the opening of the lanes on
    /// the queue remembers, in memory and to an eighth of this time, when messages were put in.
    /// Those of this opening that were there before may count as younger than they are; those of an
    /// earlier opening are the backlog's. At least a millisecond.
    Age(Duration),
    /// As long as it is among the last so many numbers. At least 1.
    Messages(u64),
    /// Until [`Lanes::jump`].
    Manual,
}

/// In which order what was left behind is read.
///
/// ```
/// let options = mmq::LaneOptions::new().order(mmq::Backlog::NewestStretchFirst);
/// # _ = options;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backlog {
    /// As it was put in.
    OldestFirst,
    /// The stretch that was left behind last, then the one before it. Within a stretch messages
    /// come as they were put in.
    NewestStretchFirst,
}

/// How [`Lanes`] are read.
///
/// ```
/// use mmq::{Backlog, Fresh, LaneOptions};
/// use std::time::Duration;
/// let options = LaneOptions::new()
///     .fresh_within(Fresh::Age(Duration::from_secs(30)))
///     .share(2, 1)
///     .backlog_rate(10_000)
///     .order(Backlog::NewestStretchFirst);
/// assert_eq!(options.share, (2, 1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct LaneOptions {
    /// How long a message is fresh. By default until [`Lanes::jump`].
    pub fresh_within: Fresh,
    /// While both lanes have messages: so many of the fresh one, then so many of the backlog. By
    /// default `(4, 1)`. While one lane has none, the other gets all. With `(1, 0)` the backlog
    /// gets what the fresh lane leaves.
    pub share: (u32, u32),
    /// The most messages of the backlog in a second. By default `None`: no limit. A message that is
    /// held back waits all the same: the consumer's [descriptor](crate::Consumer::ready_fd) is
    /// readable.
    pub backlog_rate: Option<u64>,
    /// By default [`Backlog::OldestFirst`].
    pub order: Backlog,
}

impl Default for LaneOptions {
    fn default() -> LaneOptions {
        LaneOptions {
            fresh_within: Fresh::Manual,
            share: (4, 1),
            backlog_rate: None,
            order: Backlog::OldestFirst,
        }
    }
}

impl LaneOptions {
    /// Returns the defaults, as each field says.
    pub fn new() -> LaneOptions {
        LaneOptions::default()
    }

    /// Sets [how long a message is fresh](Self::fresh_within).
    pub fn fresh_within(mut self, fresh: Fresh) -> LaneOptions {
        self.fresh_within = fresh;
        self
    }

    /// Sets [how the lanes share](Self::share).
    pub fn share(mut self, fresh: u32, backlog: u32) -> LaneOptions {
        self.share = (fresh, backlog);
        self
    }

    /// Sets [the most messages of the backlog in a second](Self::backlog_rate).
    pub fn backlog_rate(mut self, messages: impl Into<Option<u64>>) -> LaneOptions {
        self.backlog_rate = messages.into();
        self
    }

    /// Sets [in which order the backlog is read](Self::order).
    pub fn order(mut self, order: Backlog) -> LaneOptions {
        self.order = order;
        self
    }

    fn rules(&self, engine: &Engine<FileStorage>) -> Result<LaneRules> {
        let refuse =
            |what, reason| Err(Error::invalid_argument(engine.core.storage.path(), what, reason));
        let within = match self.fresh_within {
            Fresh::Age(age) if age < Duration::from_millis(1) => {
                return refuse(
                    "fresh_within",
                    "shorter than a millisecond: nothing would be fresh",
                );
            }
            Fresh::Age(age) => Within::Millis(age.as_millis().try_into().unwrap_or(u64::MAX)),
            Fresh::Messages(0) => {
                return refuse("fresh_within", "0 messages: nothing would be fresh");
            }
            Fresh::Messages(messages) => Within::Last(messages),
            Fresh::Manual => Within::Manual,
        };
        if self.share == (0, 0) {
            return refuse("share", "0 to 0: at least one lane must have a share");
        }
        if self.backlog_rate == Some(0) {
            return refuse(
                "backlog_rate",
                "0 would hand out no backlog: at least 1, or None for no limit",
            );
        }
        Ok(LaneRules {
            within,
            share: self.share,
            rate: self.backlog_rate,
            youngest_first: self.order == Backlog::NewestStretchFirst,
        })
    }
}

/// Two lanes over one consumer: fresh messages in order, as they come, and beside them the backlog,
/// in order too. [`Consumer::lanes`](crate::Consumer::lanes) opens them.
///
/// A program that sends messages over a link that may be down reads them so: after an outage the
/// newest messages go first, and what waited goes beside them, from the oldest on. Nothing is sent
/// twice, and nothing is forgotten, over any number of outages and restarts.
///
/// When the next message of the fresh lane is [not fresh any more](Fresh), the lane *jumps* to the
/// end of the queue. What waited becomes a *stretch* of the backlog. A message that was handed out
/// before the jump and comes again is the backlog's too. Each lane is in order: numbers rise, but
/// for messages that come again, and where the backlog goes over to another stretch.
///
/// Clones, in any number of threads, read the same lanes. `receive` of the consumer itself, and its
/// other reads, take the oldest message of both. A [seek](crate::Consumer::seek) leaves nothing
/// behind.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use mmq::{Fresh, LaneOptions, Queue};
/// let queue = Queue::open(dir.path())?;
/// let link = queue.consumer("link")?;
/// let lanes = link.lanes(LaneOptions::new().fresh_within(Fresh::Messages(2)).share(1, 1))?;
/// for reading in 0..10 {
///     queue.enqueue(format!("{reading}"))?; // the link is down
/// }
/// let mut sent = Vec::new();
/// while let Some(reading) = lanes.receive()? {
///     let late = if reading.is_backlog() { "late " } else { "" };
///     sent.push(format!("{late}{}", reading.as_str().unwrap()));
///     reading.ack()?;
///     if sent.len() == 2 {
///         queue.enqueue_batch(["10", "11"])?;
///     }
/// }
/// assert_eq!(sent[..5], ["late 0", "late 1", "10", "late 2", "11"]);
/// # Ok(())
/// # }
/// ```
///
/// # Durability
///
/// Nothing is stored but what an [acknowledgement](Delivery::ack) stores: the place of the consumer
/// stays before the oldest message that is not acknowledged, and what is acknowledged beyond it is
/// kept as ranges. After an opening, lanes begin with what lies between those as the backlog. So
/// each stretch that is not finished costs a range, of which a consumer has 22 at least (114 where
/// they lie close together): with more outages than that to catch up with, what was acknowledged
/// between the oldest of them comes again after an opening, as the backlog's. How lanes are read is
/// not stored.
///
/// # Space
///
/// The queue holds all messages from the oldest one of the backlog on, those that are acknowledged
/// too, as far as [`max_bytes`](crate::Options::max_bytes) and
/// [`max_age`](crate::Options::max_age) let it. When it drops messages, the oldest stretch loses
/// them, and the backlog reports the gap.
#[derive(Debug, Clone)]
pub struct Lanes {
    engine: Arc<Engine<FileStorage>>,
    consumer: Arc<ConsumerState<FileStorage>>,
}

impl Lanes {
    pub(crate) fn open(
        engine: &Arc<Engine<FileStorage>>,
        consumer: &Arc<ConsumerState<FileStorage>>,
        options: &LaneOptions,
    ) -> Result<Lanes> {
        engine.set_lanes(consumer, options.rules(engine)?)?;
        Ok(Lanes { engine: Arc::clone(engine), consumer: Arc::clone(consumer) })
    }

    /// Hands out the next message of both lanes, as they [share](LaneOptions::share); `None` when
    /// neither has one that may be handed out now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// queue.enqueue("reading 17")?;
    /// if let Some(reading) = lanes.receive()? {
    ///     println!("{:?}, late: {}", reading.as_str(), reading.is_backlog());
    ///     reading.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Consumer::receive`](crate::Consumer::receive).
    pub fn receive(&self) -> Result<Option<Delivery>> {
        self.receive_of(None)
    }

    /// Hands out the next fresh message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// queue.enqueue("old")?;
    /// lanes.jump()?;
    /// queue.enqueue("new")?;
    /// assert_eq!(lanes.receive_fresh()?.unwrap().as_str(), Ok("new"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_fresh(&self) -> Result<Option<Delivery>> {
        self.receive_of(Some(Lane::Fresh))
    }

    /// Hands out the next message of the backlog, if its [rate](LaneOptions::backlog_rate) allows
    /// one now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// queue.enqueue("old")?;
    /// lanes.jump()?;
    /// queue.enqueue("new")?;
    /// assert_eq!(lanes.receive_backlog()?.unwrap().as_str(), Ok("old"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_backlog(&self) -> Result<Option<Delivery>> {
        self.receive_of(Some(Lane::Backlog))
    }

    /// Hands out the next message of both lanes (see [`receive`](Self::receive)), and waits up to
    /// `timeout`. Does not poll.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// use std::time::Duration;
    ///
    /// if let Some(reading) = lanes.receive_timeout(Duration::from_millis(10))? {
    ///     reading.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Consumer::receive_timeout`](crate::Consumer::receive_timeout).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        self.wait_for(None, timeout)
    }

    /// Hands out the next fresh message, and waits up to `timeout`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// use std::time::Duration;
    ///
    /// // One thread sends what is new, another one what is late.
    /// if let Some(reading) = lanes.receive_fresh_timeout(Duration::from_millis(10))? {
    ///     reading.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`receive_timeout`](Self::receive_timeout).
    pub fn receive_fresh_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        self.wait_for(Some(Lane::Fresh), timeout)
    }

    /// Hands out the next message of the backlog, and waits up to `timeout` for one that its
    /// [rate](LaneOptions::backlog_rate) allows.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// use std::time::Duration;
    ///
    /// if let Some(late) = lanes.receive_backlog_timeout(Duration::from_millis(10))? {
    ///     late.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`receive_timeout`](Self::receive_timeout).
    pub fn receive_backlog_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        self.wait_for(Some(Lane::Backlog), timeout)
    }

    /// Leaves what waits in the fresh lane behind, for the backlog: the lane goes on with the next
    /// message that is put in. Returns the numbers that were left; none when nothing waited.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// queue.enqueue_batch(["a", "b"])?; // the link is down
    /// assert_eq!(lanes.jump()?, 0..2);
    /// queue.enqueue("c")?;
    /// assert_eq!(lanes.receive_fresh()?.unwrap().as_str(), Ok("c"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] once the consumer was removed, [`Error::Closed`].
    pub fn jump(&self) -> Result<Range<u64>> {
        self.engine.jump(&self.consumer)
    }

    /// Returns the stretches of the backlog that have yet to be handed out, the oldest first.
    /// Messages in flight are in none. Empty once the queue is closed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// lanes.jump()?;
    /// assert_eq!(lanes.backlog(), [0..2]);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn backlog(&self) -> Vec<Range<u64>> {
        self.consumer.backlog(&self.engine.core)
    }

    /// As [`backlog`](Self::backlog), but reports that the queue is closed.
    #[cfg(feature = "capi")]
    pub(crate) fn stretches(&self) -> Result<Vec<Range<u64>>> {
        self.engine.core.check_readable()?;
        Ok(self.backlog())
    }

    fn receive_of(&self, only: Option<Lane>) -> Result<Option<Delivery>> {
        self.try_of(only, &mut None)
    }

    fn try_of(&self, only: Option<Lane>, again: &mut Option<Instant>) -> Result<Option<Delivery>> {
        let received = self.engine.receive_in_lanes(&self.consumer, AsMessage, only, again)?;
        Ok(received
            .map(|(message, handed)| Delivery::new(message, handed, &self.engine, &self.consumer)))
    }

    fn wait_for(&self, only: Option<Lane>, timeout: Duration) -> Result<Option<Delivery>> {
        self.engine.wait_in_lanes(&self.consumer, timeout, |again| self.try_of(only, again))
    }
}
