//! Directories of other queues: which one it is, what it holds, and its messages in order.
//!
//! Nothing here writes. A file is opened for reading, and a length in it is believed only when the
//! bytes that it speaks of are there.

mod arenas;
mod bigqueue;
mod busy;
mod crc;
mod detect;
mod metadata;
mod names;
mod pqueue;
mod walk;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::ending::Ending;
use crate::failure::{Failure, Tried};

pub(crate) use busy::users;
pub(crate) use detect::{Listing, SourceKind};
pub(crate) use names::Renamed;

/// What of the source is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// What some consumer still waits for.
    Waiting,
    /// What every consumer has taken as well, as far as it is there.
    All,
}

/// What the order of pqueue's segments goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Name,
    Modified,
}

/// How a source is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) extent: Reach,
    pub(crate) order: Order,
    /// So many messages of no bytes one after the other are none: there the queue ends.
    pub(crate) empty_run: Option<u64>,
}

/// How much something that was found matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Worth knowing; nothing is missing.
    Warning,
    /// A number was half written, and was put right.
    Torn,
    /// Messages are missing.
    Lost,
}

/// Something that was found while the source was checked.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub(crate) weight: Weight,
    /// What it is about, for programs: `tail`, `head`, `record`, `segment`, `metadata`, ...
    pub(crate) what: &'static str,
    /// Where: a place of the source.
    pub(crate) place: Option<String>,
    /// How many bytes are lost, where that is known.
    pub(crate) bytes: Option<u64>,
    /// One sentence: what was found and how it was decided.
    pub(crate) text: String,
}

impl Notice {
    pub(crate) fn new(weight: Weight, what: &'static str, text: impl Into<String>) -> Notice {
        Notice { weight, what, place: None, bytes: None, text: text.into() }
    }

    pub(crate) fn at(self, place: impl ToString) -> Notice {
        Notice { place: Some(place.to_string()), ..self }
    }

    pub(crate) fn of(self, bytes: u64) -> Notice {
        Notice { bytes: Some(bytes), ..self }
    }
}

/// A consumer of the source.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    /// As the source has it. `None`: the source has one place, and no names.
    pub(crate) name: Option<Vec<u8>>,
    /// The number that its next message will have.
    pub(crate) seq: u64,
}

/// What a source holds.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) arena_size: Option<u64>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) consumers: Vec<Placed>,
    pub(crate) findings: Vec<Notice>,
}

/// Receives each message. The buffer may be taken.
pub(crate) type Each<'a> = dyn FnMut(&[u8]) -> Tried<()> + 'a;

/// A source that was checked, and can be read.
#[derive(Debug)]
pub(crate) enum OldQueue {
    Bigqueue(bigqueue::BigqueueMessages),
    Pqueue(pqueue::PqueueMessages),
}

impl OldQueue {
    /// Checks every record that would be imported.
    pub(crate) fn survey(
        listing: &Listing,
        kind: SourceKind,
        manner: Manner,
        heed: &mut Heed<'_>,
    ) -> Tried<(Survey, OldQueue)> {
        match kind {
            SourceKind::Pqueue => {
                let (survey, messages) = pqueue::survey(listing, manner, heed)?;
                Ok((survey, OldQueue::Pqueue(messages)))
            }
            kind => {
                let (survey, messages) = bigqueue::survey(listing, kind, manner, heed)?;
                Ok((survey, OldQueue::Bigqueue(messages)))
            }
        }
    }

    /// Hands over each message, in order.
    pub(crate) fn read(&mut self, each: &mut Each<'_>) -> Tried<()> {
        match self {
            OldQueue::Bigqueue(messages) => messages.read(each),
            OldQueue::Pqueue(messages) => messages.read(each),
        }
    }
}

/// Called now and then with the number of bytes of the source that were looked over. It ends the
/// work by an error.
pub(crate) type Heed<'a> = dyn FnMut(u64) -> Tried<()> + 'a;

/// Opens a file of the source, for reading. It is not followed when it is a link.
fn open(path: &Path) -> Tried<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path);
    file.map_err(|error| Failure::io(path.display(), &error))
}

/// The source is not what it was when it was checked.
fn changed(dir: &Path) -> Failure {
    let message = format!(
        "{} changed while it was read: end the program that uses it and import again",
        dir.display()
    );
    Failure::new(Ending::Failed, "changed", message)
}

/// What the source says of itself is so wrong that nothing of it can be found.
fn damaged(message: String) -> Failure {
    Failure::new(Ending::Refused, "damaged", message)
}

/// A buffer of that length.
fn room(buffer: &mut Vec<u8>, len: u64) -> Tried<()> {
    buffer.clear();
    let wanted = usize::try_from(len).ok().filter(|len| buffer.try_reserve_exact(*len).is_ok());
    let Some(wanted) = wanted else {
        let message = format!("there is no memory for a message of {len} bytes");
        return Err(Failure::new(Ending::Failed, "memory", message));
    };
    buffer.resize(wanted, 0);
    Ok(())
}
