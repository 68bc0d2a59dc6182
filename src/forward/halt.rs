//! Why a forwarder stops for good.

use std::time::Duration;

use crate::error::Error;
use crate::forward::destination::{FarError, Trouble};

/// Why a forwarder stops and a person must intervene. No message is lost: those that the far side
/// has not acknowledged wait in the queue.
///
/// ```
/// use mmq::forward::{Destination, Forwarder, Halt};
///
/// fn run<D: Destination>(mut forwarder: Forwarder<D>) {
///     match forwarder.run() {
///         Ok(_) => {}
///         Err(Halt::OlderCopy { seq, .. }) => eprintln!("a restored backup? {seq} is there already"),
///         Err(halt) => eprintln!("{halt}"),
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    /// The directory is an older copy of the queue that was forwarded before: a backup that was
    /// restored, a machine that was rolled back. If it continued, two messages would have one
    /// number, and the far side would take new messages for old ones.
    #[error(
        "the queue is an older copy of the one that was forwarded: the far side holds message {seq}{}; to forward it as another queue, give it an id of its own (`mmq copy DIR NEW --new-id`), and another place there or `--succeed` with its present id",
        Unlike(*.next)
    )]
    OlderCopy {
        /// The last number that the far side holds.
        seq: u64,
        /// The next number of this queue, when it is not above `seq`. `None`: this queue has
        /// another message with that number.
        next: Option<u64>,
    },
    /// The far side holds nothing of the queue, though it had acknowledged messages: the stream was
    /// recreated or purged, or the queue has another name there.
    /// [`IfForgotten`](super::IfForgotten) chooses whether to continue.
    #[error(
        "the far side holds nothing of the queue, though it acknowledged the messages below {place}: somebody purged or recreated it, or the queue has another name, subject or key there than before; choose whether to resend the kept messages or to continue"
    )]
    Forgotten {
        /// The first unacknowledged sequence number.
        place: u64,
    },
    /// The far side rejects the message for good: [`OnRefused::Stop`](super::OnRefused).
    #[error("the far side refuses message {seq}: {why}")]
    Refused {
        /// The message's number. It waits in the queue.
        seq: u64,
        /// The far side's reason.
        why: String,
    },
    /// A trouble of the far side that no retry can cure.
    #[error("the far side cannot take messages: {0}")]
    Lost(FarError),
    /// The queue itself failed.
    #[error(transparent)]
    Queue(#[from] Error),
}

/// How the far side's last message differs from this queue.
struct Unlike(Option<u64>);

impl std::fmt::Display for Unlike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(next) => write!(f, ", and the next message here would be {next}"),
            None => f.write_str(", and this queue has another message with that number"),
        }
    }
}

/// The reason why a session ends.
#[derive(Debug)]
pub(super) enum Over {
    Trouble(Trouble),
    Halt(Halt),
}

impl From<Trouble> for Over {
    fn from(trouble: Trouble) -> Over {
        Over::Trouble(trouble)
    }
}

impl From<Error> for Over {
    fn from(error: Error) -> Over {
        Over::Halt(Halt::Queue(error))
    }
}

/// Returns a trouble that ends the session, and after which the driver asks again.
pub(super) fn again(why: impl Into<FarError>) -> Over {
    Over::Trouble(Trouble::Again(why.into(), Duration::ZERO))
}
