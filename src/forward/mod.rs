//! Sends messages on to another engine, in order, each exactly once, over any outage.
//!
//! A [`Forwarder`] reads a queue through a consumer of its own and sends the messages to a
//! [`Destination`]: one engine's way to store them. The sequence number identifies the message
//! there. The forwarder asks the far side for the last number that it holds, compares, and
//! continues behind it; each send is conditional on the one before. Any trouble ends the session,
//! and the next one begins with the question again.
//!
//! The forwarder acknowledges here the messages that the far side acknowledged, and the queue frees
//! their space, except for the [last ones](Forwarder::keep): the forwarder sends these again if the
//! far side loses them.
//!
//! # What it promises
//!
//! As long as the far side loses no more than the forwarder keeps here: the far side has stored
//! every message once, in order, and a report of each missing number, with the cause. This holds
//! whatever dies in between, and however often: this process, the far side, both, or the power of
//! either. The far side may remove what it has stored (by age, by limits, by a purge): with each
//! acknowledgement the forwarder stores the far side's [`Position`], and later counts from there.
//! Where that cannot be counted, it sends messages again rather than to lose them: when a message
//! that was in flight is missing here by now, when the far side counts no positions, or when it was
//! sent [packs](OutgoingKind::Pack), each of which has one position.
//!
//! The forwarder detects an older copy of the directory ([`Halt::OlderCopy`]) when the far side
//! holds numbers that this queue never assigned, or when its messages since the last
//! acknowledgement are not those that the far side has ([`Outgoing::sum`]). It does not detect one
//! in which one of these messages is missing.
//! No write of the original may be in progress any more when the copy begins to forward.
//!
//! # How it is built
//!
//! ```text
//!   Forwarder::run     waits, stops, reports               Destination   one far engine
//!        |                                                      ^
//!        v                                                      |
//!     driver    asks, sends, acknowledges, ends sessions -------+
//!        |
//!        v
//!     compare   what the far side holds -> where to continue (no state, no call)
//!     local     what the driver needs of a queue; over_queue: the real one
//! ```
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `forwarder` | `Forwarder`, `Stop` | runs and stops |
//! | `progress` | `ForwardWatch` and what it shows | reports |
//! | `rules`, `halt` | the user's options; why a session ends, a forwarder stops | |
//! | `destination` | the trait of a far engine and its types | |
//! | `far_address` | a far side's URL | shows it without secrets |
//! | `source` | a queue's identity at the far side | fills templates of names |
//! | `far_side` | a far side's answer, its positions | |
//! | `driver` | the counts and the trouble of a forwarder | asks, sends, acknowledges, ends sessions |
//! | `session` | what one session has sent | gathers messages into sends |
//! | `parcel` | the messages of one send | packs them |
//! | `pack`, `unpacked`, `compressed` | several messages in one | writes and reads them |
//! | `compare` | | decides where to continue |
//! | `local`, `over_queue` | the driver's view of a queue, and the real one | reads, stores both places |
//! | `keeping` | how much to keep | moves the kept place |
//! | `link_rate` | how much may be in flight | grows with a quick far side |
//! | `arrivals` | what a queue got from another queue's forwarder | stores each message once |
//! | `backoff` | the next pause | chooses the pause between sessions |
//!
//! The driver takes the time as an argument and never waits longer than its caller allows, so a
//! test runs it over a queue and a far side in memory, step by step (`src/forward/tests/`).

mod arrivals;
mod backoff;
mod compare;
#[cfg(feature = "zstd")]
mod compressed;
mod destination;
mod driver;
mod far_address;
mod far_side;
mod forwarder;
mod halt;
mod keeping;
mod link_rate;
pub(crate) mod local;
pub(crate) mod over_queue;
mod pack;
mod parcel;
mod progress;
mod rules;
mod session;
mod source;
mod unpacked;

#[cfg(test)]
mod tests;

pub use arrivals::Arrivals;
#[cfg(feature = "zstd")]
pub use compressed::decompress;
pub use destination::{
    Destination, FarError, Limits, MissingCause, MissingNumbers, Outgoing, OutgoingKind, Trouble,
};
pub use far_address::FarAddress;
pub use far_side::{Held, Mark, Position};
pub use forwarder::{ForwardEnd, Forwarder, Stop};
pub use halt::Halt;
pub use progress::{ForwardProgress, ForwardState, ForwardWatch};
pub use rules::{ForwardOptions, IfForgotten, OnRefused, TellGaps};
pub use source::{Source, SourceLane};
pub use unpacked::{PackError, Unpacked, unpack};
