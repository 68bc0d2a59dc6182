//! A finding of `verify`.

use std::fmt;

use crate::error::Gap;

/// A damaged or inconsistent part of a queue's files:
/// [`Inspector::verify`](crate::Inspector::verify).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let queue = mmq::Queue::open(dir)?;
/// # queue.enqueue("a message")?;
/// # let inspector = mmq::Inspector::open(dir)?;
/// let mut damaged = Vec::new();
/// inspector.verify(|finding: mmq::Finding| damaged.push(finding.file))?;
/// assert!(damaged.is_empty());
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The file's name in the queue's directory.
    pub file: String,
    /// The place in the file, in bytes from its beginning, if it is a single one.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// The messages that are lost with it.
    pub lost: Option<Gap>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, ": {}", self.what)?;
        self.lost.map_or(Ok(()), |lost| write!(f, "; {lost}"))
    }
}
