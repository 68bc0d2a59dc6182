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
//! As long as the far side keeps the last message of the queue and loses no more than the forwarder
//! keeps here: the far side has every stored message once, in order, and a report of each missing
//! number, with the cause. This holds whatever dies in between, and however often: this process,
//! the far side, both, or the power of either.
//!
//! The forwarder detects an older copy of the directory ([`Halt::OlderCopy`]) when the far side
//! holds numbers that this queue never assigned, or another message under a number that is in this
//! queue. No write of the original may be in progress any more when the copy begins to forward.
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
//! | `forwarder` | `Forwarder`, `Stop`, `ForwardWatch` | runs, stops and reports |
//! | `rules`, `halt` | the user's options; why a forwarder stops | |
//! | `destination` | the trait of a far engine and its types | |
//! | `driver` | the counts and the trouble of a forwarder | asks, sends, acknowledges, ends sessions |
//! | `session` | what one session has sent | gathers messages into sends |
//! | `compare` | | decides where to continue |
//! | `local`, `over_queue` | the driver's view of a queue, and the real one | reads, moves the two places |
//! | `keeping` | how much to keep | moves the kept place |
//! | `backoff` | the next pause | chooses the pause between sessions |
//!
//! The driver takes the time as an argument and never waits longer than its caller allows, so a
//! test runs it over a queue and a far side in memory, step by step (`src/forward/tests/`).

mod backoff;
mod compare;
mod destination;
mod driver;
mod forwarder;
mod halt;
mod keeping;
mod local;
mod over_queue;
mod rules;
mod session;

#[cfg(test)]
mod tests;

pub use destination::{
    Destination, FarError, Held, Limits, Mark, MissingCause, MissingNumbers, Outgoing,
    OutgoingKind, Position, Source, SourceLane, Trouble,
};
pub use forwarder::{ForwardEnd, ForwardProgress, ForwardState, ForwardWatch, Forwarder, Stop};
pub use halt::Halt;
pub use rules::{ForwardOptions, IfForgotten, OnRefused, TellGaps};
