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

mod directory;
mod find;
mod merge;
mod patient;
mod reading;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Gap, Result};
use crate::message::Message;

use find::Wreck;
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

/// Which segments are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhichSegments {
    Live,
    /// Drained ones too.
    All,
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
        let wreck = Wreck::find(&self.paths, self.which)?;
        Ok(SalvagedMessages { merge: Merge::new(wreck, self.which) })
    }
}

/// What a salvage meets.
#[derive(Debug)]
#[non_exhaustive]
pub enum Salvaged {
    /// A message.
    Message {
        /// Its number and its bytes.
        message: Message,
        /// When its segment was begun: the message is no older. `None` where the segment's header
        /// is lost.
        segment_time: Option<SystemTime>,
    },
    /// Messages that are not there: for the cause that the files state, or else
    /// [`Damaged`](crate::GapCause::Damaged).
    Gap(Gap),
    /// Messages that the owner of the queue gave back before they could be read.
    Overtaken {
        /// The first number.
        first: u64,
        /// The last number.
        last: u64,
    },
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

/// What a salvage found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The queue's id, where any header still says it.
    pub queue_id: Option<[u8; 16]>,
    /// The files, in the order in which they were found.
    pub files: Vec<SalvagedFile>,
    /// Messages that were handed out.
    pub messages: u64,
    /// Payload bytes of those messages.
    pub bytes: u64,
    /// Numbers between those messages, or before the tail that the index names, that were not found
    /// although nobody gave them up: damaged, or taken by a power cut.
    pub lost: u64,
    /// More may be lost than [`lost`](Self::lost) counts: a file holds something damaged, and
    /// nothing says which numbers that was.
    pub uncounted: bool,
    /// Numbers that the files state as dropped, expired or only reserved.
    pub given_up: u64,
    /// Numbers that the owner of the queue gave back before they could be read.
    pub overtaken: u64,
    /// Messages that were left out because another file has another message of the same number:
    /// copies of the queue were used on their own. [`SalvagedFile::differing`] has the numbers. (Of
    /// drained segments none counts here: the number of a refused message is given again.)
    pub differing: u64,
    /// The messages from this number on are of a last batch whose end is not there. Its `enqueue`
    /// has probably not returned.
    pub unfinished_from: Option<u64>,
    /// The messages of that batch were left out: a valid index shows that it was never put in.
    pub unfinished_left_out: bool,
}

impl SalvageReport {
    /// Whether every message was there and came, and every file as it was written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let unfinished = self.unfinished_from.is_some() && !self.unfinished_left_out;
        let is_sound = |file: &SalvagedFile| file.damage.is_empty() && file.lost == 0;
        self.lost == 0 && self.differing == 0 && !unfinished && self.files.iter().all(is_sound)
    }
}

/// A file of a salvage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedFile {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// What it is, in words.
    pub what: String,
    /// What is wrong with it, in words.
    pub damage: Vec<String>,
    /// Messages that came from it.
    pub messages: u64,
    /// Messages in it that had come from another file already.
    pub duplicates: u64,
    /// The numbers of messages in it that were left out: from another file had come a message with
    /// the same number and other bytes. Of files of one life that is the first one that was given.
    pub differing: Vec<RangeInclusive<u64>>,
    /// Messages in it that were given back, and so left out.
    pub given_back: u64,
    /// Numbers that should be in it and are not, whether another file has them or not.
    pub lost: u64,
    /// More may be lost of it than [`lost`](Self::lost) counts: without its header nothing says
    /// which numbers it began with, or whether it held any.
    pub uncounted: bool,
}

impl SalvagedFile {
    fn new(path: PathBuf) -> SalvagedFile {
        SalvagedFile { path, ..SalvagedFile::default() }
    }

    /// Notes sectors that could not be read.
    fn note_unreadable(&mut self, file: &patient::Patient) {
        let sectors = file.take_unreadable();
        if sectors > 0 {
            self.damage.push(format!("the disk could not read {sectors} sectors of it"));
        }
    }
}

impl fmt::Display for SalvagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)?;
        let counts = [
            (self.messages, "messages"),
            (self.duplicates, "found elsewhere"),
            (self.given_back, "given back before"),
            (self.lost, "lost"),
        ];
        for (count, what) in counts {
            let of_it = if count == 1 && what == "messages" { "message" } else { what };
            if count > 0 || what == "messages" && !self.what.ends_with("not read") {
                write!(f, ", {count} {of_it}")?;
            }
        }
        for row in &self.differing {
            match (row.start(), row.end()) {
                (one, last) if one == last => {
                    write!(f, "; message {one} differs from that of another file")?;
                }
                (first, last) => {
                    write!(f, "; messages {first} to {last} differ from those of another file")?;
                }
            }
        }
        self.damage.iter().try_for_each(|damage| write!(f, "; {damage}"))
    }
}
