//! A look at a queue from outside: without its lock, without a mapping, without a write.
//!
//! - `picture`: what the files say at one moment. Reads the index while its holder stores to it; of
//!   a queue that nobody has, a recovery tells what an opening would find.
//! - `onlooker`: reads messages and reports gaps, as a consumer's reads would.
//! - `verify`: checks every part of every file; `parts` says which ones are missing, `headers`
//!   what is wrong with those of segments, `batch` with the seals of batches.
//!
//! The index of a queue in use is read twice. What changes seldom must be the same both times, and
//! every part has a checksum of its own. Records are checked by their seeded checksums, which do
//! the work of a sequence lock: bytes of another life of a segment's slot never validate.

mod batch;
mod finding;
mod header_findings;
mod onlooker;
mod parts;
mod picture;
mod verify;

pub use finding::Finding;
pub(crate) use onlooker::{Onlooker, Reported};
pub(crate) use picture::{Condition, Kept, Picture};
pub(crate) use verify::{Depth, verify};
pub use verify::{Verified, VerifyStep};
