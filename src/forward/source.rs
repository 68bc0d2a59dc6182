//! Where messages come from, and the names that follow from it at the far side.

/// The queue and lane that messages come from. Each source has its own chain of numbers at the far
/// side.
///
/// ```
/// use mmq::forward::{Source, SourceLane};
///
/// let mut source = Source::new([7; 16], "agent");
/// assert_eq!(source.key(), "agent");
/// assert_eq!(source.queue_hex(), "07070707070707070707070707070707");
/// source.lane = SourceLane::Backlog;
/// assert_eq!(source.key(), "agent.backfill");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// [`Queue::id`](crate::Queue::id).
    pub queue_id: [u8; 16],
    /// The name for it at the far side, as in a subject: by default the directory's name.
    pub name: String,
    /// The name of the consumer that the forwarder reads as.
    pub consumer: String,
    /// The first digits of the id of the queue that this one goes on after, eight or more, in lower
    /// case ([`Forwarder::succeed`](super::Forwarder::succeed)). A destination whose last message
    /// is of that queue answers [`Held::Nothing`](super::Held::Nothing), and stores the next one
    /// behind it.
    pub succeeds: Option<String>,
    /// Which messages of the queue.
    pub lane: SourceLane,
}

impl Source {
    /// All messages of the queue with that id, under this name, read by the consumer `forward`.
    #[must_use]
    pub fn new(queue_id: [u8; 16], name: impl Into<String>) -> Source {
        Source {
            queue_id,
            name: name.into(),
            consumer: "forward".into(),
            succeeds: None,
            lane: SourceLane::All,
        }
    }

    /// Returns a subject or a key by its template, with the lane's suffix behind it. `{dir}` in the
    /// template is the [name](Self::name), `{consumer}` the consumer's and `{host}` the machine's,
    /// each as `spell` writes it. `None`: the template has braces without one of these names.
    ///
    /// ```
    /// use mmq::forward::Source;
    ///
    /// let source = Source::new([7; 16], "edge 1");
    /// let subject = source.filled("plant.{dir}.{consumer}", |name| name.replace(' ', "_"));
    /// assert_eq!(subject.as_deref(), Some("plant.edge_1.forward"));
    /// assert_eq!(source.filled("{tag}", str::to_owned), None);
    /// ```
    #[must_use]
    pub fn filled(&self, template: &str, spell: impl Fn(&str) -> String) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), template);
        // (In one pass: what is filled in may have braces of its own.)
        while let Some((before, named)) = rest.split_once('{') {
            let (name, behind) = named.split_once('}')?;
            let name = match name {
                "dir" => spell(&self.name),
                "consumer" => spell(&self.consumer),
                "host" => spell(&rustix::system::uname().nodename().to_string_lossy()),
                _ => return None,
            };
            if before.contains('}') {
                return None;
            }
            filled = filled + before + &name;
            rest = behind;
        }
        (!rest.contains('}')).then(|| filled + rest + self.lane.suffix())
    }

    /// Returns the name with the lane behind it: a subject, a stream or a key for only this source.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}{}", self.name, self.lane.suffix())
    }

    /// Returns the queue's id in 32 hexadecimal digits.
    #[must_use]
    pub fn queue_hex(&self) -> String {
        self.queue_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Which messages of a queue belong to a source. Numbers rise within each lane, but not over both,
/// so each lane is a separate source.
///
/// ```
/// use mmq::forward::SourceLane;
///
/// assert_eq!(SourceLane::All.suffix(), "");
/// assert_eq!(SourceLane::Fresh.suffix(), ".live");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceLane {
    /// All of them, in order.
    All,
    /// The messages of the fresh lane.
    Fresh,
    /// The messages of the backlog, which waited during an outage.
    Backlog,
}

impl SourceLane {
    /// Returns the suffix that a destination appends to the name of its stream, so that each lane
    /// has its own.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            SourceLane::All => "",
            SourceLane::Fresh => ".live",
            SourceLane::Backlog => ".backfill",
        }
    }
}
