//! What a session is about.

/// A stream, the queue that it is of, and what the user wants of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) key: String,
    /// The queue's id.
    pub(crate) queue: String,
    /// The first digits of the queue before it, whose last message it may follow.
    pub(crate) succeeds: Option<String>,
    /// The stream is trimmed to about so many entries.
    pub(crate) max_len: Option<u64>,
    /// How many replicas must have what counts as acknowledged.
    pub(crate) replicas: u32,
}

impl About {
    pub(crate) fn place(&self) -> String {
        format!("stream {} of Redis", self.key)
    }
}
