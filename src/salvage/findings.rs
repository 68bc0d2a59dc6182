//! What a salvage meets, and what it found.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::SystemTime;

use super::patient::Patient;
use crate::error::Gap;
use crate::message::Message;

/// Which segments are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhichSegments {
    Live,
    /// Drained ones too.
    All,
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
    pub(super) fn new(path: PathBuf) -> SalvagedFile {
        SalvagedFile { path, ..SalvagedFile::default() }
    }

    /// Notes sectors that could not be read.
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
