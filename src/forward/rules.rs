//! What a user chooses about forwarding.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::Queue;

/// What becomes of a message that the far side refuses for good.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum OnRefused {
    /// The forwarder stops with [`Halt::Refused`](super::Halt::Refused).
    #[default]
    Stop,
    /// It is left out, and reported to the far side as missing.
    Skip,
    /// It goes to this queue, which is flushed, and is then left out. After a death of the process
    /// it may be there twice.
    DeadLetters(Arc<Queue>),
}

/// What to do when the far side holds nothing of the queue, though it had acknowledged messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfForgotten {
    /// Send again what is kept, and report the rest as missing.
    Resend,
    /// Go on with the first message that was not acknowledged.
    Continue,
    /// Stop with [`Halt::Forgotten`](super::Halt::Forgotten).
    Stop,
}

/// How missing numbers are reported to the far side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TellGaps {
    /// With the message behind them.
    #[default]
    Header,
    /// By a message of its own, which says nothing else; the message behind them says it, too. In
    /// front of the first message of all, by that message alone.
    Message,
    /// Not at all.
    None,
}

/// How a forwarder works: the [`Forwarder`](super::Forwarder) has a method for each.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ForwardOptions {
    /// How many acknowledged messages are kept for a far side that forgets.
    pub keep_messages: u64,
    /// How many bytes of them; at most a quarter of [`max_bytes`](crate::Options::max_bytes).
    pub keep_bytes: u64,
    /// What becomes of a message that the far side refuses.
    pub on_refused: OnRefused,
    /// What to do when the far side has forgotten the queue. `None`: go on where the far side gives
    /// up what is consumed ([`Held::Forgotten`](super::Held::Forgotten)), else stop.
    pub if_forgotten: Option<IfForgotten>,
    /// How missing numbers are reported to the far side.
    pub gaps: TellGaps,
    /// The pause after the first trouble. It doubles with each further one, up to
    /// [`longest_pause`](Self::longest_pause); the first acknowledgement ends that.
    pub first_pause: Duration,
    /// The longest pause between two sessions, unless the far side asks for a longer one.
    pub longest_pause: Duration,
    /// A session in which messages are in flight, and none is acknowledged for so long, is over.
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
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(30),
            patience: Duration::from_secs(30),
        }
    }
}
