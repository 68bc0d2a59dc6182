//! Parameters and result of a read: how it reads, from which lane, and its outcome.

use crate::commit::Core;
use crate::error::{Error, Result};
use crate::read::{Cursor, Record};
use crate::storage::Storage;

/// What a read does with the message it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// Delivers it without moving the cursor.
    Look,
    /// Delivers it and steps over it.
    Take,
    /// Like `Take`, for a batch that has messages already: stops in front of a gap as at the end of
    /// the queue. A later read reports the gap.
    TakeMore,
    /// Steps over it without reading its payload.
    Skip,
    /// Like `Skip`, for a batch that has messages already.
    SkipMore,
    /// Delivers it, to be acknowledged later.
    Receive,
    /// Like `Receive`, for a batch that has messages already.
    ReceiveMore,
}

impl Read {
    pub(crate) fn receives(self) -> bool {
        matches!(self, Read::Receive | Read::ReceiveMore)
    }

    /// Whether the batch has messages already: then a gap ends it, and a later read reports it.
    pub(crate) fn has_some(self) -> bool {
        matches!(self, Read::TakeMore | Read::SkipMore | Read::ReceiveMore)
    }
}

/// Which of a consumer's messages a read may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// All of them, the oldest one first.
    Oldest,
    Fresh,
    Backlog,
}

/// Whether a consumer has a place in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existence {
    /// The default consumer before its first read, and after its removal.
    NotYet,
    Exists,
    /// Removed for good: another consumer of the same name has another state.
    Removed,
}

/// What a delivery remembers of the read that made it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeliveryToken {
    /// How often its message was delivered.
    pub(crate) attempts: u32,
    /// The ledger's epoch: each seek begins a new one.
    pub(crate) epoch: u64,
    /// [`LEASED`](Self::LEASED) and [`BACKLOG`](Self::BACKLOG). (With a `bool` here, an optional
    /// delivery is moved in pieces that do not match how it was written: 10 ns for each move.)
    marks: u32,
}

impl DeliveryToken {
    /// The delivery has a lease.
    pub(crate) const LEASED: u32 = 1;
    /// The message was in the backlog.
    pub(crate) const BACKLOG: u32 = 2;

    pub(crate) fn new(attempts: u32, epoch: u64, marks: u32) -> DeliveryToken {
        DeliveryToken { attempts, epoch, marks }
    }

    pub(crate) fn is_leased(self) -> bool {
        self.marks & DeliveryToken::LEASED != 0
    }

    pub(crate) fn is_backlog(self) -> bool {
        self.marks & DeliveryToken::BACKLOG != 0
    }
}

/// The outcome of one search for a message.
pub(super) enum Offered<R> {
    Delivered(R),
    Nothing,
    /// The payload is damaged, or its checksum must be verified before the delivery.
    Unchecked,
}

/// Delivers a found message to the caller. (A trait, because a closure cannot be forced inline into
/// the fast path.)
pub(crate) trait Deliver<S: Storage> {
    type Delivered;

    /// Delivers the record at the cursor. `None` when its unverified payload turns out damaged, or
    /// must be verified first: the read then finds the record again and verifies it.
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<Self::Delivered>;

    /// Delivers up to `most` records at once, where they lie one behind the other in the view, and
    /// steps over them. Returns how many; 0 has the read deliver one.
    #[inline(always)]
    fn deliver_run(&mut self, _: &mut Cursor<S::File>, _: &Core<S>, _most: usize) -> usize {
        0
    }

    /// Whether the caller got the message. If not, the read does not step over it.
    #[inline(always)]
    fn took(_: &Self::Delivered) -> bool {
        true
    }
}

/// Creates the default consumer for a read that finds that it does not exist: none has read before,
/// or another thread removed it. The caller holds no lock.
pub(crate) trait BeginsDefault {
    fn begin_default(&self) -> Result<()>;
}

/// The outcome of a read, and what the engine must do next.
#[derive(Debug)]
pub(crate) struct Step<R> {
    pub(crate) outcome: Result<Option<R>, Box<Error>>,
    /// The cursor left a segment that may be reclaimed, or it needs a window or a descriptor, or
    /// dead letters wait to be moved.
    pub(crate) crossed: bool,
    /// The place moved over a message, or over those of a batch.
    pub(crate) moved: bool,
}

impl<R> Step<R> {
    /// A step that delivered nothing and has no follow-up.
    pub(crate) fn of(outcome: Result<Option<R>, Box<Error>>) -> Step<R> {
        Step { outcome, crossed: false, moved: false }
    }
}
