//! The items and the report of a salvage.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::SystemTime;

use super::patient::Patient;
use crate::error::Gap;
use crate::message::Message;

/// Which segments a salvage reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhichSegments {
    Live,
    /// Drained ones too.
    All,
}

/// An item of a salvage.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # queue.close()?;
/// for found in mmq::Salvage::of([dir]).messages()? {
///     match found {
///         mmq::Salvaged::Message { message, .. } => println!("{:?}", message.as_str()),
///         mmq::Salvaged::Gap(gap) => println!("{gap}"),
///         _ => {}
///     }
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Salvaged {
    /// A message.
    Message {
        /// Its number and its bytes.
        message: Message,
        /// When its segment was begun: the message is no older. `None` if the segment's header is
        /// lost.
        segment_time: Option<SystemTime>,
    },
    /// Missing messages, with the cause that the files state, or else
    /// [`Damaged`](crate::GapCause::Damaged).
    Gap(Gap),
    /// Messages that the queue's owner reclaimed before the salvage could read them.
    Overtaken {
        /// The first number.
        first: u64,
        /// The last number.
        last: u64,
    },
}

/// The report of a salvage.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # queue.close()?;
/// let mut found = mmq::Salvage::of([dir]).messages()?;
/// found.by_ref().for_each(drop);
/// let mmq::SalvageReport { messages, lost, .. } = found.into_report();
/// assert_eq!((messages, lost), (1, 0));
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The queue's id, if any header still has it.
    pub queue_id: Option<[u8; 16]>,
    /// The files, in the order in which the salvage found them.
    pub files: Vec<SalvagedFile>,
    /// Messages that the salvage returned.
    pub messages: u64,
    /// Payload bytes of those messages.
    pub bytes: u64,
    /// Numbers between those messages, or before the tail in the index, that the salvage did not
    /// find although they were not evicted: damaged, or lost in a power cut.
    pub lost: u64,
    /// More may be lost than [`lost`](Self::lost) counts: a file is damaged in a place whose
    /// numbers are unknown.
    pub uncounted: bool,
    /// Numbers that the files state as dropped, expired or only reserved.
    pub given_up: u64,
    /// Numbers that the queue's owner reclaimed before the salvage could read them.
    pub overtaken: u64,
    /// Messages that were left out because another file has a different message with the same
    /// number: copies of the queue were used separately. [`SalvagedFile::differing`] has the
    /// numbers. (Drained segments do not count here: the queue gives the number of a refused
    /// message again.)
    pub differing: u64,
    /// The messages from this number on belong to a last batch whose end is missing. Its `enqueue`
    /// has probably not returned.
    pub unfinished_from: Option<u64>,
    /// The messages of that batch were left out: a valid index shows that its `enqueue` never
    /// returned.
    pub unfinished_left_out: bool,
}

impl SalvageReport {
    /// Returns whether the salvage returned every message, and every file is undamaged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # let queue = mmq::Queue::open(dir)?;
    /// # queue.enqueue("a message")?;
    /// # queue.close()?;
    /// let mut found = mmq::Salvage::of([dir]).messages()?;
    /// found.by_ref().for_each(drop);
    /// assert!(found.into_report().is_whole());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let unfinished = self.unfinished_from.is_some() && !self.unfinished_left_out;
        let is_sound = |file: &SalvagedFile| file.damage.is_empty() && file.lost == 0;
        self.lost == 0 && self.differing == 0 && !unfinished && self.files.iter().all(is_sound)
    }
}

/// A file of a salvage.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # queue.close()?;
/// let found = mmq::Salvage::of([dir]).messages()?;
/// for file in found.into_report().files {
///     println!("{file}"); // its name, what it is, what was found in it, what is damaged
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedFile {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// A description of the file.
    pub what: String,
    /// Descriptions of its damage.
    pub damage: Vec<String>,
    /// Messages that the salvage returned from it.
    pub messages: u64,
    /// Messages in it that the salvage had already returned from another file.
    pub duplicates: u64,
    /// The numbers of messages in it that were left out, because another file had a different
    /// message with the same number. Of files of one life the first given one counts.
    pub differing: Vec<RangeInclusive<u64>>,
    /// Messages in it that were reclaimed, and so left out.
    pub given_back: u64,
    /// Numbers that should be in it and are not, whether another file has them or not.
    pub lost: u64,
    /// More may be lost from it than [`lost`](Self::lost) counts: without its header nothing shows
    /// with which number it began, or whether it held any message.
    pub uncounted: bool,
}

impl SalvagedFile {
    pub(super) fn new(path: PathBuf) -> SalvagedFile {
        SalvagedFile { path, ..SalvagedFile::default() }
    }

    /// Notes sectors that the disk could not read.
    pub(super) fn note_unreadable(&mut self, file: &Patient) {
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
            (self.given_back, "removed by the queue"),
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
