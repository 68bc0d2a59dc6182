//! What the parts of a read hand to each other: how it reads, from which lane, and what came of it.

use crate::error::{Error, Result};
use crate::read::{Cursor, Record};
use crate::storage::Storage;

/// What a read does with the message it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// Delivers it; it stays.
    Look,
    /// Delivers it and steps over it.
    Take,
    /// As `Take`, for a batch that has messages already: stops in front of a gap as at the end of
    /// the queue. A later read reports the gap.
    TakeMore,
    /// Steps over it without reading its payload.
    Skip,
    /// Hands it out, to be acknowledged.
    Receive,
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
    /// The default consumer before its first read, and after it was removed.
    NotYet,
    Exists,
    /// For good: another consumer of the same name has another state.
    Removed,
}

/// What a delivery must remember of the read that handed it out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeliveryToken {
    /// How often its message was handed out.
    pub(crate) attempts: u32,
    /// The ledger's epoch: a seek begins another.
    pub(crate) epoch: u64,
    /// [`LEASED`](Self::LEASED) and [`BACKLOG`](Self::BACKLOG). (With a `bool` here, an optional
    /// delivery is moved in pieces that do not match how it was written: 10 ns for each move.)
    marks: u32,
}

impl DeliveryToken {
    /// It has a lease.
    pub(crate) const LEASED: u32 = 1;
    /// Its message had been left behind.
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

/// Hands the message that a read found to its caller. (A trait, for a closure cannot be forced
/// inline into the quick way.)
pub(crate) trait Deliver<S: Storage> {
    type Delivered;

    /// Delivers the record at the cursor. `None` when its unchecked payload turns out damaged, or
    /// must be checked first: the read looks for the record again, checked.
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<Self::Delivered>;

    /// Whether the caller got the message. If not, no read steps over it.
    #[inline(always)]
    fn took(_: &Self::Delivered) -> bool {
        true
    }
}

/// Has the default consumer begin, for a read that finds that another thread has removed it. The
/// caller holds no lock.
pub(crate) trait BeginsDefault {
    fn begin_default(&self) -> Result<()>;
}

/// The outcome of a read, and what the engine has to do next.
#[derive(Debug)]
pub(crate) struct Step<R> {
    pub(crate) outcome: Result<Option<R>, Box<Error>>,
    /// A segment was left behind and may be given back, or the cursor wants a window or a
    /// descriptor, or dead letters are to go.
    pub(crate) crossed: bool,
    /// The place moved over a message.
    pub(crate) moved: bool,
}

impl<R> Step<R> {
    /// Nothing was delivered, and nothing follows.
    pub(crate) fn of(outcome: Result<Option<R>, Box<Error>>) -> Step<R> {
        Step { outcome, crossed: false, moved: false }
    }
}
