//! mmq: an embedded, durable first-in first-out queue on memory-mapped files.
//!
//! A queue is a directory. A *message* is bytes. Any number of threads put messages in at the
//! *tail* and take them out at the *head*. The queue may be far larger than memory. Its messages
//! survive the process and, once flushed, a power cut. There is no server and no background
//! process.
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
//! Begin with [`Queue`]. [`Consumer`] is for several readers, [`Delivery`] for work that may fail,
//! [`Options`] for limits and durability, [`Inspector`] for a look from outside.
//!
//! # The guide
//!
//! The [`guide`] teaches all of this with programs:
//! [producer and consumer](guide#producer-and-consumer) ·
//! [durability](guide#durability) ·
//! [at-least-once work](guide#at-least-once-work), also [with tokio](guide#with-tokio) ·
//! [several consumers](guide#several-consumers) ·
//! [limits](guide#limits) ·
//! [lanes](guide#lanes-fresh-messages-first) ·
//! [waiting](guide#waiting) ·
//! [threads, closing, forks](guide#threads-closing-forks) ·
//! [two programs, one queue](guide#two-programs-one-queue) ·
//! [options](guide#options) ·
//! [how it works](guide#how-it-works) ·
//! [traps](guide#traps) ·
//! [words](guide#words).
//!
//! The other documents stand below it: what is [guaranteed](guide::guarantees), with the tests that
//! show it; [sharing](guide::sharing) a queue between processes; [operating](guide::operating) it;
//! [sizing](guide::sizing) for small machines; [platforms](guide::platforms), tested or not;
//! [forwarding](guide::forwarding) to another engine; [coming from](guide::coming_from) another
//! queue; the [files](guide::format), and their [recovery](guide::recovery) after a crash.
//!
//! # Features of the crate
//!
//! None is on by default. These pages have the methods of a feature only when it is on:
//! `cargo doc --no-deps --features async,forward,tracing --open`.
//!
//! | feature | what it adds |
//! |---|---|
//! | `async` | futures and streams for any executor, such as [`Queue::recv`](struct.Queue.html#method.recv), [`Queue::enqueue_async`](struct.Queue.html#method.enqueue_async), [`Consumer::deliveries`](struct.Consumer.html#method.deliveries) |
//! | `forward` | the module [`forward`](forward/index.html), which sends messages on to another engine, each exactly once; the crates `mmq-nats` and `mmq-redis` send to NATS JetStream and to Redis |
//! | `zstd` | `forward`, whose packs of messages may be compressed; it needs a C compiler |
//! | `tracing` | events for `tracing`: openings, recovery, segments, gaps, failures |
//! | `capi` | the functions of `mmq.h`, for C and C++ |
//! | `install` | the program `mmq-install`, which builds and installs the library for C |
//!
//! # The model
//!
//! - Every message has a **sequence number**. Numbers count from 0 and are never used twice.
//!   `enqueue` returns the number, a [`Gap`] names the missing ones, and a receiver can use it to
//!   remove duplicates.
//! - A **consumer** is a named place in the queue that is stored on disk. The queue's own read
//!   methods use its *default consumer*, which has no name. Each consumer sees every message,
//!   independently of the others; the queue gives space back when the slowest consumer has passed
//!   it.
//! - Messages lie in **segments**: files that are used again and again. They have 2 MiB at first,
//!   and double in length as the backlog grows, up to [`Options::arena_size`]. The queue maps them
//!   into memory in **arenas**, at most [`Options::max_mapped_arenas`] at a time.
//! - A **flush** makes everything before it durable. Without a flush the kernel writes when it
//!   likes.
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
//! Damage costs the damaged messages alone. A read that comes to missing messages returns
//! [`Error::Gap`] once, with their numbers and the cause, and the next read goes on behind them. A
//! loop that ends with `?` at the first gap leaves all the rest unread: read with [`past_gaps`],
//! [`Consumer::for_each`] or [`Iter::past_gaps`], or match on the error.
//!
//! # Working, waiting, limits
//!
//! To do work at least once, [`Consumer::receive`] a [`Delivery`] and acknowledge it when the work
//! is done; a message that is not acknowledged comes again. ([`Consumer::for_each`] does both.)
//! Readers wait without polling: [`Queue::dequeue_timeout`], [`Queue::ready_fd`], and with the
//! feature `async` futures and streams. [`Options::max_bytes`] limits the disk space and
//! [`Options::max_age`] the age of messages. A read reports a message given up for either limit as
//! a gap to each consumer that has not read it.
//!
//! # What mapping costs
//!
//! Nobody else may truncate or overwrite the files while the queue is open: the kernel answers a
//! read of a page that is gone with SIGBUS. On xfs, where the disk may run full, nobody may clone
//! them meanwhile either (`cp` clones there): a store into a shared page then needs space. On btrfs
//! and other file systems that copy on write the queue writes by calls instead of through the map,
//! which costs a system call or two a message. Network file systems do not keep their promises
//! about locks and mappings; use a local one.
//!
//! # Fork
//!
//! A queue belongs to the process that opened it. In a child made by `fork`:
//!
//! - Every call on the queue is refused with [`Error::Forked`] and changes nothing. Calls that
//!   cannot return an error, like [`Queue::len`] and [`Queue::stats`], return zero or nothing.
//! - Handles, deliveries and messages may be dropped. Dropping the queue closes nothing: the
//!   parent's queue stays open and locked.
//! - The bytes of a [`Message`] or a [`Delivery`] taken before the fork must not be read: they may
//!   be lent from space that the parent uses again while the child looks at them. Copy what the
//!   child is to read before the fork ([`Message::into_vec`]).
//! - The child shares the parent's lock. If the parent dies, the queue stays [`Error::Locked`]
//!   until the child ends as well, or runs another program. (Programs started by
//!   `std::process::Command` inherit nothing.)
//! - A child may open queues of its own, whatever the parent's threads did at the fork (on other
//!   systems than Linux: if none of them waited in a call of this library).

#![cfg_attr(docsrs, feature(doc_cfg))]
// Product code neither panics nor prints, whatever happens; tests may. Cargo.toml has the other
// lints, and says why some are off.
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

// The folders, in the order in which a message passes through them. The public types come last.

#[macro_use]
mod holds;
#[macro_use]
mod planted;

// A user's calls, put together from the parts below.
mod engine;

// In: a record is written behind the tail, committed, and made durable.
mod commit;
mod write;

// What the parts of one open queue share.
mod state;

// The bytes, in memory and on disk.
mod format;
mod memory;
mod segment;
mod storage;

// What an open queue has stored of its state, and how an opening finds it again after a crash.
mod index;
mod recovery;

// Out: a cursor finds and checks the next record, and the consumer's place moves behind it.
mod consume;
mod read;

// A look from outside.
mod inspect;

// Where threads meet.
mod threads;
// For `bindings/python` alone.
#[doc(hidden)]
pub use threads::OwnMutex;

// The C door.
#[cfg(feature = "capi")]
mod ffi;
// For `crates/mmq-forward-c` alone.
#[cfg(all(feature = "capi", feature = "forward"))]
#[doc(hidden)]
pub use ffi::forward_door;

#[cfg(test)]
mod tests;

/// Runs a history that these bytes choose: for `fuzz/simulated/`, which is built with the tests.
#[cfg(all(test, fuzzing))]
#[doc(hidden)]
pub fn history(bytes: &[u8]) -> std::result::Result<(), String> {
    tests::crash::chosen::history(bytes)
}

// Before `options`: so `open` comes first on rustdoc's page of `Options`.
mod queue;

mod consumer;
mod delivery;
mod error;
mod events;
#[cfg(feature = "forward")]
#[cfg_attr(docsrs, doc(cfg(feature = "forward")))]
pub mod forward;
#[cfg(feature = "async")]
mod futures;
mod inspector;
mod iter;
mod lanes;
mod message;
mod message_batch;
mod options;
mod redelivery;
mod salvage;
mod share;
mod stats;

pub use consumer::Consumer;
pub use delivery::Delivery;
pub use engine::copy_queue::CopiedId;
pub use error::{Error, Gap, GapCause, HeldBy, Result, past_gaps};
pub use format::{FORMAT_VERSION, MAX_MESSAGE_LEN, Origin};
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub use futures::{Deliveries, Enqueue, Flush, Messages, Recv, RecvDelivery};
pub use inspect::{Finding, Verified, VerifyStep};
pub use inspector::{
    AsOpened, ConsumerSnapshot, HandedOut, InspectedMessages, Inspector, OwnerFigures, QueueState,
    Seen, Snapshot,
};
pub use iter::Iter;
pub use lanes::{Backlog, Fresh, LaneOptions, Lanes};
pub use message::Message;
pub use message_batch::MessageBatch;
pub use options::{OnFull, Options, Start};
pub use queue::Queue;
pub use redelivery::Redelivery;
pub use salvage::{Salvage, SalvageReport, Salvaged, SalvagedFile, SalvagedMessages};
pub use share::{
    Client, ClientConsumer, ClientWriter, ConnectedClient, Handle, HandleConsumer, open_or_connect,
};
pub use stats::{ConsumerStats, Stats};

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/guide.md")]
#[doc = include_str!("../docs/links.html")]
pub mod guide {
    #[cfg(not(doctest))]
    macro_rules! documents {
        ($($name:ident: $file:literal,)*) => {$(
            // The marks in `guarantees` look like links: [1].
            #[allow(rustdoc::broken_intra_doc_links)]
            #[doc = include_str!($file)]
            #[doc = include_str!("../docs/links.html")]
            pub mod $name {}
        )*};
    }

    #[cfg(not(doctest))]
    documents! {
        coming_from: "../docs/coming-from.md",
        format: "../docs/format.md",
        choosing: "../docs/choosing.md",
        figures: "../docs/figures.md",
        forwarding: "../docs/forward.md",
        guarantees: "../docs/guarantees.md",
        operating: "../docs/operating.md",
        platforms: "../docs/platforms.md",
        recovery: "../docs/recovery.md",
        sharing: "../docs/share.md",
        sizing: "../docs/sizing.md",
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
