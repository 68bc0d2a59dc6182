//! mmq: an embedded, durable first-in first-out queue on memory-mapped files.
//!
//! A queue is a directory. A *message* is bytes; any number of threads put messages in at the
//! *tail* and take them out at the *head*. The queue may be far larger than memory, and what was
//! put in survives the process, and, once flushed, the machine. There is no server and no
//! background process.
//!
//! ```
//! # fn main() -> mmq::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let queue = mmq::Queue::open(dir.join("spool"))?;
//! let seq = queue.enqueue("a message")?;
//! assert_eq!(seq, 0);
//! while let Some(message) = mmq::past_gaps(|| queue.dequeue(), |gap| eprintln!("{gap}"))? {
//!     println!("{}: {:?}", message.seq(), message.as_str());
//! }
//! queue.close()
//! # }
//! ```
//!
//! # The model
//!
//! - Every message has a **sequence number**, from 0, never used twice. It is what `enqueue`
//!   returns, what a [`Gap`] speaks of, and what a receiver can remove duplicates by.
//! - A **consumer** is a place in the queue, with a name, that is remembered. The queue's own read
//!   methods are its *default consumer*. Consumers see every message, independently of each other;
//!   space is given back when the slowest has passed.
//! - Messages lie in **segments**, files of fixed length that are used again and again. What is
//!   mapped into memory at a time are **arenas**, at most [`Options::max_mapped_arenas`] of them.
//! - A **flush** makes durable what came before it. Without one the kernel writes when it likes.
//!
//! # What survives what
//!
//! | | death of the process | power cut |
//! |---|---|---|
//! | a message whose `enqueue` returned | survives | survives once a flush has passed it |
//! | a batch | whole or absent | whole or absent |
//! | a consumer's place | exactly where it was | a place it had, at or behind the last flushed one |
//! | order, content | kept, checked | kept, checked |
//!
//! What is damaged costs the damaged messages alone: a read that meets it returns [`Error::Gap`]
//! with the numbers that are missing and why, once, and the next read goes on behind them. So `?`
//! alone ends a loop there, with all the rest unread: read with [`past_gaps`],
//! [`Consumer::for_each`] or [`Iter::past_gaps`], or match on it. How each crash recovers is argued
//! in `docs/recovery.md`; every byte of the files is described in `docs/format.md`.
//!
//! # Working, waiting, limits
//!
//! To do work at least once, [`Consumer::receive`] a [`Delivery`] and acknowledge it when the work
//! is done; what is not acknowledged comes again. ([`Consumer::for_each`] does both.) Readers wait
//! without polling ([`Queue::dequeue_timeout`], [`Queue::ready_fd`], and with the feature `async`
//! futures and streams). [`Options::max_bytes`] bounds the disk, [`Options::max_age`] the messages'
//! age; what is given up for either is told to each consumer that missed it.
//!
//! # What mapping costs
//!
//! The files must not be truncated or overwritten by anybody else while the queue is open: the
//! kernel answers a read of a page that is gone with SIGBUS. Nor cloned while it is open, on xfs,
//! when the disk may run full (`cp` does it there): a store into a shared page then needs space.
//! btrfs and others that copy on write are written by calls instead of through the map, which costs
//! a system call or two a message. Network file systems do not keep their promises about locks and
//! mappings; use a local one.
//!
//! # Fork
//!
//! A queue belongs to the process that opened it. In a child made by `fork` every call on it is
//! refused with [`Error::Forked`] and changes nothing. Handles, deliveries and messages may be
//! dropped there (closing does nothing: the parent's queue stays open and locked), but the bytes of
//! a [`Message`] or a [`Delivery`] taken before the fork are not the child's to read: they may be
//! lent from space that the parent uses again while the child looks at them. What the child is to
//! read is copied before the fork ([`Message::into_vec`]). What has no error to return, like
//! [`Queue::len`] and [`Queue::stats`], is zero or empty. The child shares the parent's lock:
//! should the parent die, the queue stays [`Error::Locked`] until the child ends as well, or runs
//! another program. (Programs started by `std::process::Command` inherit nothing.)

#![cfg_attr(docsrs, feature(doc_cfg))]
// Whatever happens, product code neither panics nor prints. (Tests do; Cargo.toml has the other
// lints, and why not some.)
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::string_slice,
        clippy::exit,
        clippy::print_stdout,
        clippy::print_stderr
    )
)]

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!(
    "mmq needs a 64-bit Unix: it maps files larger than a 32-bit address space and locks directories"
);

// The folders in the order of a message's way. What a user sees comes last.

#[macro_use]
mod planted;

// The calls of a user, put together from the parts below.
mod engine;

// In: a record is written behind the tail, committed, and made durable.
mod write;

mod commit;

// What the parts of one open queue share.
mod state;

// The bytes, in memory and on disk.
mod format;

mod memory;

mod segment;

mod storage;

// What a queue knows of itself, and how it finds itself again after a crash.
mod index;

mod recovery;

// Out: the next record is found and verified, and a consumer's place moves behind it.
mod read;

mod consume;

// Where threads meet.
mod threads;

// The C door.
#[cfg(feature = "capi")]
mod ffi;

#[cfg(test)]
mod tests;

mod consumer;
mod delivery;
mod error;
mod events;
#[cfg(feature = "async")]
mod futures;
mod iter;
mod message;
mod options;
mod queue;
mod stats;

pub use consumer::Consumer;
pub use delivery::Delivery;
pub use error::{Error, Gap, GapCause, Result, past_gaps};
pub use format::{FORMAT_VERSION, MAX_MESSAGE_LEN};
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub use futures::{Messages, Recv, RecvDelivery};
pub use iter::Iter;
pub use message::Message;
pub use options::{OnFull, Options};
pub use queue::Queue;
pub use stats::Stats;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
