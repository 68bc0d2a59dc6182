//! [`Salvage`]: reads messages from segment files, wherever they are, with or without their queue.
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `directories` | `Directory`, `Expected`: what indexes state | lists the files to read |
//! | `find_files` | `SalvageSet`, `SegmentRemains` | finds the files and their checksum seeds |
//! | `file_reading` | `FileReading`: a position in one file | reads its records, passes damage |
//! | `merge` | `Merge`: all files by number | joins the pieces of records |
//! | `missing` | `Missing`: numbers stated as missing | |
//! | `findings` | `Salvaged`, `SalvageReport`, `SalvagedFile` | |
//! | `patient` | `Patient`: a file on a failing disk | reads around unreadable sectors |
//!
//! A salvage believes only what validates by itself. It opens every file for reading, without the
//! queue's lock. One file's messages rise by number, so a salvage merges files and needs no table
//! of messages. The position of a piece does not matter: the chain of checksums links the pieces of
//! one record.
//!
//! **Messages that were never acknowledged.** An opening takes a record after the tail if it is
//! whole, and a batch if all of it is there (`docs/recovery.md`, Walk). A salvage does the same
//! where a valid index has the tail: it leaves out and reports a batch after the tail whose seal is
//! missing, if no later record shows that it had one. Otherwise an unfinished batch looks like a
//! damaged one; the salvage then returns its messages, because a user can remove surplus messages,
//! but cannot add missing ones. If the batch has no end, [`SalvageReport::unfinished_from`] reports
//! it.

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
/// It checks each message by itself, joins its pieces, and returns it once, in the order of the
/// numbers. A damaged message costs no other. Where a segment's header is lost, it uses the index's
/// copy, or computes the checksum seed from the messages.
///
/// A salvage takes no lock and writes nothing: it can read a copy, a read-only mount and a queue
/// that another process is using. It keeps no table of messages in memory. Segment files may be
/// symbolic links.
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
/// It also returns messages that consumers have taken, as long as their segment was not drained. It
/// may return a message whose `enqueue` never returned: see [`SalvageReport::unfinished_from`].
#[derive(Debug, Clone)]
pub struct Salvage {
    paths: Vec<PathBuf>,
    which: WhichSegments,
}

impl Salvage {
    /// Makes a salvage of all segment files in these directories, and of the given files.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # queue.close()?;
    /// // What is left: a directory, and a file that was set aside elsewhere.
    /// let salvage = mmq::Salvage::of([dir.to_owned(), dir.join("segment-00000000")]);
    /// assert_eq!(salvage.messages()?.count(), 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Salvage {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        Salvage { paths, which: WhichSegments::Live }
    }

    /// Reads drained segments too: messages that all consumers have taken, that were evicted, or
    /// that were refused, as long as no later segment has overwritten them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # queue.close()?;
    /// // After a purge by mistake.
    /// let salvage = mmq::Salvage::of([dir]).with_spares();
    /// println!("{} messages", salvage.messages()?.count());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn with_spares(self) -> Salvage {
        Salvage { which: WhichSegments::All, ..self }
    }

    /// Reads the headers of all files, and returns an iterator over the messages.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # queue.close()?;
    /// for found in mmq::Salvage::of([dir]).messages()? {
    ///     println!("{found:?}");
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](crate::Error::NotFound) when a path does not exist or has no segment
    /// file, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when the files belong to two
    /// queues, [`Error::UnsupportedFormat`](crate::Error::UnsupportedFormat), and
    /// [`Error::Io`](crate::Error::Io) for an unreadable directory. The report has the errors of
    /// single files.
    pub fn messages(&self) -> Result<SalvagedMessages> {
        let wreck = SalvageSet::find(&self.paths, self.which)?;
        Ok(SalvagedMessages { merge: Merge::new(wreck, self.which) })
    }
}

/// The messages of a salvage, in the order of their numbers: [`Salvage::messages`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # queue.close()?;
/// let mut found: mmq::SalvagedMessages = mmq::Salvage::of([dir]).messages()?;
/// assert!(found.next().is_some());
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct SalvagedMessages {
    merge: Merge,
}

impl SalvagedMessages {
    /// Returns the report of this salvage.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # queue.close()?;
    /// let mut found = mmq::Salvage::of([dir]).messages()?;
    /// while found.next().is_some() {}
    /// assert_eq!(found.into_report().messages, 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
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
