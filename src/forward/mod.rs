//! Messages go on to another engine, in order, each exactly once, over any outage.
//!
//! A [`Forwarder`] reads a queue through a consumer of its own and sends the messages to a
//! [`Destination`]: one engine's way to store them. The message's number is its identity there. The
//! forwarder asks the far side which number it holds last, compares, and goes on behind it; each
//! send is conditional on the one before. Any trouble ends the session, and the next one begins
//! with the question again.
//!
//! What a far side acknowledged is acknowledged here, and the queue gives the space back, but for
//! the [last ones](Forwarder::keep): they are sent again when the far side has lost them.
//!
//! # What it promises
//!
//! As long as the far side keeps the last message of the queue and loses no more than is kept here:
//! every stored message is there once, in order, and each number that is not there is reported
//! as missing, with the cause. Whatever dies in between, and however often: this process, the far
//! side, both, or the power of either.
//!
//! An older copy of the directory is found out ([`Halt::OlderCopy`]) when the far side holds
//! numbers that this queue never gave, or another message under a number that is held here. No
//! write of the original may be under way any more when the copy begins.
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
//!     compare   what the far side holds -> where to go on (no state, no call)
//!     local     what the driver needs of a queue; over_queue: the real one
//! ```
//!
//! The driver takes the time as an argument and never waits longer than it says, so a test runs
//! it over a queue and a far side in memory, step by step (`src/forward/tests/`).

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
    Destination, FarError, Held, Limits, MissingCause, MissingNumbers, Outgoing, OutgoingKind,
    Source, SourceLane, Trouble,
};
pub use forwarder::{ForwardEnd, ForwardProgress, ForwardState, ForwardWatch, Forwarder, Stop};
pub use halt::Halt;
pub use rules::{ForwardOptions, IfForgotten, OnRefused, TellGaps};
