//! The user's options for forwarding.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::message::Message;
use crate::queue::Queue;

/// What the forwarder does with a message that the far side rejects for good.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// use mmq::forward::OnRefused;
/// use std::sync::Arc;
///
/// let refused = Arc::new(queue); // another queue than the one that is forwarded
/// let on_refused = OnRefused::DeadLetters(Arc::clone(&refused));
/// # drop(on_refused);
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum OnRefused {
    /// The forwarder stops with [`Halt::Refused`](super::Halt::Refused).
    #[default]
    Stop,
    /// It skips the message, and reports it to the far side as missing.
    Skip,
    /// It enqueues the message in this queue, flushes that, and then skips it. It may be in
    /// this queue twice: after a death of the process or a power cut, or if the far side loses
    /// messages and gets them again.
    DeadLetters(Arc<Queue>),
}

/// What the forwarder does when the far side holds no message of the queue, although it had
/// acknowledged some.
///
/// ```
/// use mmq::forward::{Destination, Forwarder, IfForgotten};
///
/// fn that_fills_a_purged_stream<D: Destination>(forwarder: Forwarder<D>) -> Forwarder<D> {
///     forwarder.keep(100_000, 1 << 30).if_forgotten(IfForgotten::Resend)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfForgotten {
    /// Send the kept messages again, and report the others as missing.
    Resend,
    /// Continue with the first unacknowledged message.
    Continue,
    /// Stop with [`Halt::Forgotten`](super::Halt::Forgotten).
    Stop,
}

/// How missing numbers are reported to the far side.
///
/// ```
/// use mmq::forward::{Destination, Forwarder, TellGaps};
///
/// fn that_tells_at_once<D: Destination>(forwarder: Forwarder<D>) -> Forwarder<D> {
///     forwarder.gaps(TellGaps::Message)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TellGaps {
    /// With the message behind them.
    #[default]
    Header,
    /// By a separate message without content, and again with the message behind them. Before the
    /// very first message, only with that message.
    Message,
    /// Not at all.
    None,
}

/// The options of a forwarder. The [`Forwarder`](super::Forwarder) has a method for most.
///
/// ```
/// use mmq::forward::ForwardOptions;
/// use std::time::Duration;
///
/// let mut options = ForwardOptions::default();
/// options.patience = Duration::from_secs(5);
/// assert_eq!(options.keep_messages, 10_000);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ForwardOptions {
    /// How many acknowledged messages the queue keeps in case the far side forgets them.
    pub keep_messages: u64,
    /// How many bytes of them; at most a quarter of [`max_bytes`](crate::Options::max_bytes).
    pub keep_bytes: u64,
    /// What to do with a message that the far side rejects.
    pub on_refused: OnRefused,
    /// What to do when the far side has forgotten the queue. `None`: continue if the far side
    /// removes consumed messages ([`Held::Removed`](super::Held::Removed)), else stop.
    pub if_forgotten: Option<IfForgotten>,
    /// How missing numbers are reported to the far side.
    pub gaps: TellGaps,
    /// Whether each message carries [its segment's time](super::Outgoing::segment_time).
    pub times: bool,
    /// The level of zstd that compresses [packs](super::OutgoingKind::Pack), 1 to 22; `None`, as
    /// by default: not at all. Readers [`decompress`](super::decompress) them.
    #[cfg(feature = "zstd")]
    pub zstd: Option<i32>,
    /// The pause after the first trouble. It doubles with each further one, up to
    /// [`longest_pause`](Self::longest_pause); the first acknowledgement ends that.
    pub first_pause: Duration,
    /// The longest pause between two sessions, unless the far side asks for a longer one.
    pub longest_pause: Duration,
    /// A session ends when messages are in flight and the far side acknowledges none for this long.
    pub patience: Duration,
}

impl Default for ForwardOptions {
    fn default() -> ForwardOptions {
        ForwardOptions {
            keep_messages: 10_000,
            keep_bytes: 64 << 20,
            on_refused: OnRefused::Stop,
            if_forgotten: None,
            gaps: TellGaps::Header,
            times: false,
            #[cfg(feature = "zstd")]
            zstd: None,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(30),
            patience: Duration::from_secs(30),
        }
    }
}

impl ForwardOptions {
    /// Returns the level of zstd for packs.
    pub(super) fn zstd_level(&self) -> Option<i32> {
        #[cfg(feature = "zstd")]
        return self.zstd;
        #[cfg(not(feature = "zstd"))]
        None
    }
}

/// Stores a rejected message durably elsewhere, before the driver skips it.
pub(super) type PutAway<'a> = Box<dyn FnMut(&Message, &str) -> Result<(), Error> + Send + 'a>;

/// What the driver does with a message that is rejected for good.
pub(super) enum WhenRefused<'a> {
    Stop,
    Skip,
    PutAway(PutAway<'a>),
}
