//! Inspects a queue from outside: without its lock, without a mapping, without a write.
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `picture` | `Picture`: the state in the files at one moment | reads it, in use or not |
//! | `onlooker` | `Onlooker`: a position among the records | reads messages, reports gaps |
//! | `verify` | `Verified`, `VerifyStep` | checks every part of every file |
//! | `header_findings` | | checks the headers of segments |
//! | `parts` | | reports missing parts of the index |
//! | `batch` | `BatchRead`: a batch being read | checks its seal |
//! | `finding` | `Finding`: one damaged part | |
//!
//! The holder of a queue in use stores to the index while `picture` reads it. So `picture` reads it
//! twice; values that change seldom must be the same both times, and every part has a checksum of
//! its own. For a queue that no process uses, a recovery over an overlay shows what an opening
//! would find. The seeded checksums of records do the work of a sequence lock: bytes of another
//! life of a segment's slot never validate.

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
pub(crate) use verify::{Depth, OnStep, findings_alone, verify};
pub use verify::{Verified, VerifyStep};
