//! Why a forwarder stops for good.

use crate::error::Error;
use crate::forward::destination::FarError;

/// Why a forwarder stops, and somebody has to look. Nothing is lost: what the far side has not
/// acknowledged waits in the queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    /// The directory is an older copy of the queue that was forwarded before: a backup that was
    /// restored, a machine that was rolled back. To go on would make two messages of one number,
    /// and the far side would take new messages for old ones.
    #[error(
        "the queue is an older copy of the one that was forwarded: the far side holds message {seq}{}; give the copy an id of its own to forward it as another queue",
        Unlike(*.next)
    )]
    OlderCopy {
        /// The last number that the far side holds.
        seq: u64,
        /// The next number of this queue, when it is not above `seq`. `None`: this queue holds
        /// another message of that number.
        next: Option<u64>,
    },
    /// The far side holds nothing of the queue, though it had acknowledged messages: the stream was
    /// made anew or purged. [`IfForgotten`](super::IfForgotten) says whether to go on.
    #[error(
        "the far side holds nothing of the queue, though it acknowledged the messages below {place}: it was purged or made anew; say whether to resend what is kept or to continue"
    )]
    Forgotten {
        /// The first number that is not acknowledged.
        place: u64,
    },
    /// The far side refuses the message for good: [`OnRefused::Stop`](super::OnRefused).
    #[error("the far side refuses message {seq}: {why}")]
    Refused {
        /// The message's number. It waits in the queue.
        seq: u64,
        /// What the far side says.
        why: String,
    },
    /// Nothing at the far side will get better by itself.
    #[error("the far side cannot take messages: {0}")]
    Lost(FarError),
    /// The queue itself failed.
    #[error(transparent)]
    Queue(#[from] Error),
}

/// How the far side's last message is unlike this queue.
struct Unlike(Option<u64>);

impl std::fmt::Display for Unlike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(next) => write!(f, ", and the next message here would be {next}"),
            None => f.write_str(", and this queue holds another one of that number"),
        }
    }
}
