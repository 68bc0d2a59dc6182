//! Directories of other queues: which one it is, what it holds, and its messages in order.
//!
//! Nothing here writes. A file is opened for reading, and a length in it is believed only when the
//! bytes that it speaks of are there.

mod arenas;
mod bigqueue;
mod busy;
mod crc;
mod detect;
mod error;
mod metadata;
mod names;
mod pqueue;
mod walk;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

pub use busy::users;
pub use detect::{Listing, SourceKind};
use error::Result;
pub use error::{ImportError, ImportErrorKind};
pub use names::{LONGEST, encoded};

/// What of the source is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportRange {
    /// What some consumer still waits for.
    Waiting,
    /// What every consumer has taken as well, as far as it is there.
    All,
}

/// What the order of pqueue's segments goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Their names.
    Name,
    /// When they were changed last.
    Modified,
}

/// How a source is read.
#[derive(Debug, Clone, Copy)]
pub struct ImportOptions {
    /// Which messages.
    pub extent: ImportRange,
    /// In which order, for pqueue.
    pub order: Order,
    /// So many messages of no bytes one after the other are none: there the queue ends.
    pub empty_run: Option<u64>,
}

/// How much something that was found matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing; nothing is missing.
    Warning,
    /// A number was half written, and was put right.
    Torn,
    /// Messages are missing.
    Lost,
}

/// Something that was found while the source was checked.
#[derive(Debug, Clone)]
pub struct Finding {
    /// How much it matters.
    pub weight: Severity,
    /// What it is about, for programs: `tail`, `head`, `record`, `segment`, `metadata`, ...
    pub what: &'static str,
    /// Where: a place of the source.
    pub place: Option<String>,
    /// How many bytes are lost, where that is known.
    pub bytes: Option<u64>,
    /// One sentence: what was found and how it was decided.
    pub text: String,
}

impl Finding {
    /// A finding of that severity.
    pub fn new(weight: Severity, what: &'static str, text: impl Into<String>) -> Finding {
        Finding { weight, what, place: None, bytes: None, text: text.into() }
    }

    /// The same, at that place of the source.
    #[must_use]
    pub fn at(self, place: impl ToString) -> Finding {
        Finding { place: Some(place.to_string()), ..self }
    }

    /// The same, of so many bytes.
    #[must_use]
    pub fn of(self, bytes: u64) -> Finding {
        Finding { bytes: Some(bytes), ..self }
    }
}

/// A consumer of the source.
#[derive(Debug, Clone)]
pub struct SourceConsumer {
    /// As the source has it. `None`: the source has one place, and no names.
    pub name: Option<Vec<u8>>,
    /// The number that its next message will have.
    pub seq: u64,
}

/// What a source holds.
#[derive(Debug)]
pub struct Survey {
    /// The length of its arenas.
    pub arena_size: Option<u64>,
    /// How many messages an import gets.
    pub messages: u64,
    /// How many bytes these have together.
    pub bytes: u64,
    /// Its consumers, in the order in which they stand in it.
    pub consumers: Vec<SourceConsumer>,
    /// What was found wrong or doubtful.
    pub findings: Vec<Finding>,
}

/// Receives each message. The buffer may be taken.
pub type Receive<'a, E> = dyn FnMut(&[u8]) -> Result<(), E> + 'a;

/// A source that was checked, and can be read.
#[derive(Debug)]
pub struct OldQueue(Messages);

#[derive(Debug)]
enum Messages {
    Bigqueue(bigqueue::BigqueueMessages),
    Pqueue(pqueue::PqueueMessages),
}

impl OldQueue {
    /// Checks every record that would be imported.
    ///
    /// # Errors
    ///
    /// An [`ImportError`] where nothing can be imported, and any error of `progress`.
    pub fn survey<E: From<ImportError>>(
        listing: &Listing,
        kind: SourceKind,
        options: ImportOptions,
        progress: &mut Progress<'_, E>,
    ) -> Result<(Survey, OldQueue), E> {
        match kind {
            SourceKind::Pqueue => {
                let (survey, messages) = pqueue::survey(listing, options, progress)?;
                Ok((survey, OldQueue(Messages::Pqueue(messages))))
            }
            kind => {
                let (survey, messages) = bigqueue::survey(listing, kind, options, progress)?;
                Ok((survey, OldQueue(Messages::Bigqueue(messages))))
            }
        }
    }

    /// Hands over each message, in order.
    ///
    /// # Errors
    ///
    /// An [`ImportError`] where the source changed meanwhile, and any error of `each`.
    pub fn read<E: From<ImportError>>(&mut self, each: &mut Receive<'_, E>) -> Result<(), E> {
        match &mut self.0 {
            Messages::Bigqueue(messages) => messages.read(each),
            Messages::Pqueue(messages) => messages.read(each),
        }
    }
}

/// Called now and then with the number of bytes of the source that were looked over. It ends the
/// work by an error.
pub type Progress<'a, E> = dyn FnMut(u64) -> Result<(), E> + 'a;

/// Opens a file of the source, for reading. It is not followed when it is a link.
fn open(path: &Path) -> Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path);
    file.map_err(|error| ImportError::io(path.display(), &error))
}

/// The source is not what it was when it was checked.
fn changed(dir: &Path) -> ImportError {
    let message = format!(
        "{} changed while it was read: end the program that uses it and import again",
        dir.display()
    );
    ImportError::new(ImportErrorKind::Changed, message)
}

/// What the source says of itself is so wrong that nothing of it can be found.
fn damaged(message: String) -> ImportError {
    ImportError::new(ImportErrorKind::Damaged, message)
}

/// A buffer of that length.
fn room(buffer: &mut Vec<u8>, len: u64) -> Result<()> {
    buffer.clear();
    let wanted = usize::try_from(len).ok().filter(|len| buffer.try_reserve_exact(*len).is_ok());
    let Some(wanted) = wanted else {
        let message = format!("there is no memory for a message of {len} bytes");
        return Err(ImportError::new(ImportErrorKind::Memory, message));
    };
    buffer.resize(wanted, 0);
    Ok(())
}

/// `1 message`, `2 messages`.
fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
