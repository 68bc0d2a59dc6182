//! [`Salvage`]: the messages in segment files, wherever the files lie and whatever is left of the
//! queue around them.
//!
//! - `directory`: which files were asked for, and what the indexes beside them say.
//! - `find`: what each file is, and the seed of each segment's checksums.
//! - `reading`: from record to record in one file, around what does not validate.
//! - `merge`: all files at once, by sequence number; puts records of several pieces together.
//! - `patient`: reads around sectors that a disk cannot read.
//!
//! Nothing is believed that does not validate by itself. Every file is opened to be read, without
//! the queue's lock; one file's messages rise by number, so files are merged, and no table of
//! messages is needed. What lies where is no matter: pieces of one record are found by the chain of
//! their checksums.
//!
//! **What was never acknowledged.** An opening takes a record behind the tail if it is whole, and a
//! batch if all of it is there (`docs/recovery.md`, Walk). So does a salvage, where a valid index
//! says where the tail is: a batch behind it whose seal is missing, and behind which nothing shows
//! that it had one, is left out and reported. Otherwise nobody can tell a batch that was never
//! finished from one that is damaged; then the rest of it comes, because what is salvaged twice can
//! be taken out and what is left out cannot be put in. If it has no end,
//! [`SalvageReport::unfinished_from`] says so.

mod directories;
mod file_reading;
mod find_files;
mod findings;
mod merge;
mod missing;
mod patient;

use std::path::{Path, PathBuf};

use crate::error::Result;

use find_files::SalvageSet;
use findings::WhichSegments;
pub use findings::{SalvageReport, Salvaged, SalvagedFile};
use merge::Merge;

/// Reads messages from segment files, also without their queue: from a directory with or without
/// its index, from single files, from quarantined files.
///
/// Each message is checked by itself, put together from its pieces, and handed out once, in the
/// order of the numbers. A damaged message costs no other. Where a segment's header is lost, the
/// index's copy stands in, or what the messages themselves say.
///
/// A salvage takes no lock and writes nothing: a copy, a read-only mount and a queue that somebody
/// uses meanwhile will do. It keeps no table of messages in memory.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # queue.close()?;
/// # std::fs::remove_file(dir.join("index")).unwrap();
/// let mut salvaged = mmq::Salvage::of([dir]).messages()?;
/// for found in &mut salvaged {
///     if let mmq::Salvaged::Message { message, .. } = found {
///         println!("{}: {:?}", message.seq(), message.as_str());
///     }
/// }
/// let report = salvaged.into_report();
/// assert_eq!((report.messages, report.is_whole()), (1, true));
/// # Ok(())
/// # }
/// ```
///
/// Messages that consumers have taken come too, as long as their segment was not drained. A message
/// may come whose `enqueue` never returned: see [`SalvageReport::unfinished_from`].
#[derive(Debug, Clone)]
pub struct Salvage {
    paths: Vec<PathBuf>,
    which: WhichSegments,
}

impl Salvage {
    /// A salvage of all segment files in these directories, and of these files.
    pub fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Salvage {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        Salvage { paths, which: WhichSegments::Live }
    }

    /// Reads drained segments too: messages that all consumers have taken, that were given up, or
    /// that were refused, as long as nothing was written over them.
    #[must_use]
    pub fn with_spares(self) -> Salvage {
        Salvage { which: WhichSegments::All, ..self }
    }

    /// Looks at the headers of all files, and begins to read.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) when a path does not exist or no segment file is
    /// there, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when the files are of two
    /// queues, [`Error::UnsupportedFormat`](crate::Error::UnsupportedFormat), and
    /// [`Error::Io`](crate::Error::Io) for a directory that cannot be read. What goes wrong with a
    /// file is in the report.
    pub fn messages(&self) -> Result<SalvagedMessages> {
        let wreck = SalvageSet::find(&self.paths, self.which)?;
        Ok(SalvagedMessages { merge: Merge::new(wreck, self.which) })
    }
}

/// The messages of a salvage, in the order of their numbers: [`Salvage::messages`].
#[derive(Debug)]
pub struct SalvagedMessages {
    merge: Merge,
}

impl SalvagedMessages {
    /// What was found.
    #[must_use]
    pub fn into_report(self) -> SalvageReport {
        self.merge.into_report()
    }
}

impl Iterator for SalvagedMessages {
    type Item = Salvaged;

    fn next(&mut self) -> Option<Salvaged> {
        self.merge.next()
    }
}
