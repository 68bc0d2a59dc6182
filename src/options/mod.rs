//! What the caller chooses. Setters only store; [`Options::open`](crate::Options::open) validates
//! all values at once.

mod choices;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format;
pub use choices::{OnFull, Start};

/// The way a queue is opened: limits, durability, memory, files. Options may differ at every
/// opening; existing files keep their geometry.
///
/// | option | default | unit, bounds |
/// |---|---|---|
/// | [`flush_every_ops`](Self::flush_every_ops) | `None` | operations; at least 1 |
/// | [`flush_every`](Self::flush_every) | `None` | time; above zero |
/// | [`max_bytes`](Self::max_bytes) | `None` | bytes of disk, every file counted; at least 64 KiB |
/// | [`min_free_bytes`](Self::min_free_bytes) | 0 | bytes of the file system left free |
/// | [`on_full`](Self::on_full) | [`OnFull::Reject`] | |
/// | [`max_age`](Self::max_age) | `None` | time; at least 1 ms |
/// | [`arena_size`](Self::arena_size) | 128 MiB | bytes; a multiple of the OS page, 4 KiB to 1 GiB |
/// | [`max_mapped_arenas`](Self::max_mapped_arenas) | 3 | arenas; at least 3, `None` = no cap |
/// | [`create`](Self::create) | `true` | |
/// | [`mode`](Self::mode) | `None` | permission bits of files, as `0o640` |
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Options::new()
///     .arena_size(4 << 20)
///     .max_bytes(64 << 20)
///     .on_full(mmq::OnFull::DropOldest)
///     .open(dir.path().join("spool"))?;
/// # queue.close()
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "options do nothing until `open` is called"]
pub struct Options {
    pub(crate) arena_size: u64,
    pub(crate) max_mapped_arenas: Option<u32>,
    pub(crate) flush_every_ops: Option<u64>,
    pub(crate) flush_every: Option<Duration>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) min_free_bytes: u64,
    pub(crate) on_full: OnFull,
    pub(crate) max_age: Option<Duration>,
    pub(crate) mode: Option<u32>,
    pub(crate) create: bool,
    pub(crate) shared: bool,
    pub(crate) shared_mode: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the defaults of the table above.
    ///
    /// ```
    /// let options = mmq::Options::new(); // 128 MiB arenas, 3 of them mapped, no limit, no timer
    /// # options.open(tempfile::tempdir().unwrap().path())?.close()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub const fn new() -> Self {
        Options {
            arena_size: 128 << 20,
            max_mapped_arenas: Some(3),
            flush_every_ops: None,
            flush_every: None,
            max_bytes: None,
            min_free_bytes: 0,
            on_full: OnFull::Reject,
            max_age: None,
            mode: None,
            create: true,
            shared: false,
            shared_mode: 0o600,
        }
    }
}

/// # Durability
impl Options {
    /// Flushes after every so many operations (messages in, messages out). `None`, the default:
    /// never because of a count.
    ///
    /// The operation that completes the number returns once the flush is done, with the flush's
    /// error. (A read that took a message returns the message; the next call that writes answers
    /// [`Error::Poisoned`].) With 1, every enqueue is durable when it returns, and consumers see a
    /// message only once it is durable; threads that wait at the same time share one flush.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let queue = mmq::Options::new().flush_every_ops(1).open(dir.path())?;
    /// let seq = queue.enqueue("order 17")?;
    /// assert!(queue.durable_seq() > seq); // it survives a power cut already
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[doc(alias = "SetPeriodicFlushOps")]
    pub fn flush_every_ops(mut self, operations: impl Into<Option<u64>>) -> Self {
        self.flush_every_ops = operations.into();
        self
    }

    /// Flushes again and again, from a thread of the queue's own, whether or not there are
    /// operations: each time `period` after the last such flush ended. `None`, the default: no
    /// timer. A power cut takes at most what was put in since the latest timed flush that ended had
    /// begun. A failed flush is reported to the next call that writes. When the thread cannot be
    /// started, opening fails.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let options = mmq::Options::new().flush_every(Duration::from_secs(1));
    /// # options.open(tempfile::tempdir().unwrap().path())?.close()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[doc(alias = "SetPeriodicFlushDuration")]
    pub fn flush_every(mut self, period: impl Into<Option<Duration>>) -> Self {
        self.flush_every = period.into();
        self
    }
}

/// # Limits
impl Options {
    /// Sets the most bytes of disk that the queue may take, every file counted: index, messages,
    /// and space allocated ahead. `None`, the default: no limit. At least 64 KiB.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let queue = mmq::Options::new().max_bytes(1 << 20).open(dir.path())?;
    /// while queue.enqueue([0; 10_000]).is_ok() {}
    /// assert!(queue.stats().disk_bytes <= 1 << 20);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn max_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_bytes = bytes.into();
        self
    }

    /// Sets how many bytes of the file system the queue leaves free for others. Default 0. (btrfs
    /// reports allocated space up to half a minute late.)
    ///
    /// With [`OnFull::DropOldest`] the queue drops its oldest messages to give that space back when
    /// another program takes it. Once all of the queue would not be
    /// enough, it drops none, and refuses new ones.
    ///
    /// ```
    /// let options = mmq::Options::new().min_free_bytes(1 << 30); // others need a gigabyte
    /// # _ = options;
    /// ```
    pub const fn min_free_bytes(mut self, bytes: u64) -> Self {
        self.min_free_bytes = bytes;
        self
    }

    /// Sets what to do with a new message when there is no room for it. Default [`OnFull::Reject`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = mmq::Options::new().max_bytes(1 << 20).on_full(mmq::OnFull::DropOldest);
    /// let queue = options.open(dir.path())?;
    /// for _ in 0..1_000 {
    ///     queue.enqueue([0; 10_000])?; // never refused: the oldest messages go
    /// }
    /// assert!(queue.stats().dropped > 0);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub const fn on_full(mut self, policy: OnFull) -> Self {
        self.on_full = policy;
        self
    }

    /// Gives up messages older than `age`. Each consumer that had not read them gets a
    /// [`Gap`](crate::Gap) with [`GapCause::Expired`](crate::GapCause::Expired). `None`, the
    /// default: messages never expire. At least 1 ms.
    ///
    /// A message is held for `age` at least, and goes at the latest at the first look after an
    /// eighth more. A thread of the queue looks every eighth of the age (at least every 30 s, at
    /// most every 20 ms), whether or not there are operations; opening looks too. Messages go by
    /// whole segments: a segment takes messages for an eighth of the age, then the next message
    /// begins another segment, and the file of the one before is cut to what it holds at the next
    /// look ([`max_bytes`](Self::max_bytes) counts the rest until the flush behind that). When the
    /// disk has no room for another one, messages go on into the last segment, and all in it live
    /// longer.
    ///
    /// A message's age counts from when its call begins to write it. For a message that was written
    /// without this option it counts from when the next segment was begun, or else from the first
    /// opening with this option.
    ///
    /// A delivery in flight stays valid; when it is given back after its time, its message counts
    /// as missing and is reported as a gap. Each enqueue reads the clock, no read does. A new
    /// consumer begins at the oldest message still held; if it is the only consumer, its first read
    /// reports the messages that have expired since the opening.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let options = mmq::Options::new().max_age(Duration::from_secs(24 * 3600));
    /// # _ = options;
    /// ```
    ///
    /// # The clock
    ///
    /// Ages go by the time of day, because messages outlive the process. When the clock is set
    /// forward, messages may be given up earlier, by no more than the change. When it is set back,
    /// messages may stay longer, by no more than the change: while a message bears a time in the
    /// future, its age counts from when the next segment was begun, or else from when this run
    /// first looked at it.
    ///
    /// # Errors
    ///
    /// Opening fails with [`Error::Io`] when the thread cannot be started, and with
    /// [`Error::InvalidOption`] for an age below 1 ms.
    pub fn max_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.max_age = age.into();
        self
    }
}

/// # Memory
impl Options {
    /// Sets the size of an arena in bytes, the unit of the memory cap, and the length of the
    /// longest segment file: a multiple of the OS page, 4 KiB to 1 GiB. Default 128 MiB. Arenas
    /// below 4 MiB are slices of shared segment files of up to 4 MiB.
    ///
    /// Segments follow the backlog, which is what consumers have still to read. They are short (2
    /// MiB, less where arenas are smaller) while there is little, and double as it grows. So a long
    /// backlog has few files. A nearly empty queue takes 1 MiB of disk when it is new (300 KiB with
    /// arenas of 256 KiB), and up to 14 MiB in use, because it keeps drained segments to use them
    /// again; [sizing](crate::guide::sizing) has disk and memory by the size of the arenas. A
    /// message that is longer than the segments are at present gets one in which it lies in one
    /// piece, up to the arena size. After a long backlog was read, what is left of it on the disk
    /// is given back after 0.4 s. (If the last segment is read slowly: after as long again as that
    /// took, but within a minute.)
    ///
    /// ```
    /// // For a small device: at most 3 arenas of 256 KiB are mapped.
    /// let options = mmq::Options::new().arena_size(256 << 10);
    /// # options.open(tempfile::tempdir().unwrap().path())?.close()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[doc(alias = "SetArenaSize")]
    pub const fn arena_size(mut self, bytes: u64) -> Self {
        self.arena_size = bytes;
        self
    }

    /// Sets how many arenas may be mapped at a time: at least 3, or `None` for no cap. Default 3.
    ///
    /// Mapped memory stays within `max_mapped_arenas * arena_size` (plus the index file, at most a
    /// few hundred KiB), whatever the backlog, the length of the messages, and the number of
    /// [`Message`](crate::Message)s held.
    ///
    /// ```
    /// let options = mmq::Options::new().arena_size(16 << 20).max_mapped_arenas(8);
    /// # options.open(tempfile::tempdir().unwrap().path())?.close()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[doc(alias = "SetMaxInMemArenas")]
    pub fn max_mapped_arenas(mut self, arenas: impl Into<Option<u32>>) -> Self {
        self.max_mapped_arenas = arenas.into();
        self
    }
}

/// # Files
impl Options {
    /// Sets whether a queue that does not exist is created, with its directory and the directories
    /// above it. Default `true`; with `false`, opening it gives [`Error::NotFound`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = mmq::Options::new().create(false);
    /// let opened = options.open(dir.path().join("missing"));
    /// assert!(matches!(opened, Err(mmq::Error::NotFound { what: "queue", .. })));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the permission bits of the queue's files: who else may look at it (read), or open it
    /// (write). The directory gets the same, and `x` for each that may read: 0750 for files of
    /// 0640.
    ///
    /// `None`, the default: a new queue has the bits that the umask leaves of 0666, its directory
    /// those that it leaves of 0777; a queue that is there goes on with those of its files. So the
    /// umask of the process that makes a queue is heeded, and later openings need not say anything,
    /// whatever their umask is: each file that they make, and each [copy](crate::Queue::copy_to),
    /// has the bits of the index.
    ///
    /// With a mode the umask does not matter, and a queue that is there gets the mode at the
    /// opening: each of its files, and the directory if it is the user's own. (Files that were set
    /// aside keep theirs, and so do the directories above.)
    ///
    /// ```
    /// // The group may look: `mmq stat`, an `Inspector`.
    /// let options = mmq::Options::new().mode(0o640);
    /// # _ = options;
    /// ```
    ///
    /// # Errors
    ///
    /// Opening fails with [`Error::InvalidOption`] for bits beyond 0666 and without the owner's
    /// 0600, and with [`Error::Io`] when a file is another user's and has other bits.
    pub fn mode(mut self, bits: impl Into<Option<u32>>) -> Self {
        self.mode = bits.into();
        self
    }
}

/// # Other processes
impl Options {
    /// Sets whether other processes may use the queue while this one has it open: by
    /// [`Client::connect`](crate::Client::connect), [`open_or_connect`](crate::open_or_connect), or
    /// the commands of `mmq`. Default `false`.
    ///
    /// The opening makes a socket in the queue's directory and starts a thread that listens there.
    /// Each client that connects, up to 64, costs another thread and about 200 KiB; no client costs
    /// the owner's own calls anything. See [`guide::sharing`](crate::guide::sharing).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let owner = mmq::Options::new().shared(true).open(dir)?;
    /// let other = mmq::Client::connect(dir)?; // in another process, as a rule
    /// other.enqueue("a message")?;
    /// assert_eq!(owner.dequeue()?.unwrap().as_str(), Ok("a message"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Opening fails with [`Error::Io`] where the file system knows no sockets.
    pub const fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets the permission bits of the socket of a [shared](Self::shared) queue. Default 0600: only
    /// processes of the same user, and of root, may use the queue. With 0660 the group may, with
    /// 0666 everybody may who may go through the directory.
    ///
    /// ```
    /// let options = mmq::Options::new().shared(true).shared_mode(0o660);
    /// # _ = options;
    /// ```
    ///
    /// # Errors
    ///
    /// Opening fails with [`Error::InvalidOption`] for bits beyond 0666 and without the owner's
    /// 0600.
    pub const fn shared_mode(mut self, bits: u32) -> Self {
        self.shared_mode = bits;
        self
    }
}

impl Options {
    /// Checks every value, for the queue in `dir`. Nothing else does.
    pub(crate) fn validate(&self, dir: &Path) -> Result<()> {
        let page = crate::memory::page_size();
        let invalid =
            |name, reason: String| Err(Error::InvalidOption { path: dir.to_owned(), name, reason });
        if !(format::MIN_ARENA..=format::MAX_ARENA).contains(&self.arena_size) {
            return invalid(
                "arena_size",
                format!(
                    "{} bytes is outside {} to {} bytes",
                    self.arena_size,
                    format::MIN_ARENA,
                    format::MAX_ARENA
                ),
            );
        }
        if !self.arena_size.is_multiple_of(page) {
            return invalid(
                "arena_size",
                format!(
                    "{} bytes is not a multiple of the OS page ({page} bytes)",
                    self.arena_size
                ),
            );
        }
        if let Some(arenas) = self.max_mapped_arenas
            && arenas < 3
        {
            return invalid(
                "max_mapped_arenas",
                format!("{arenas} is too few: at least 3 (head, tail, one more)"),
            );
        }
        if self.flush_every_ops == Some(0) {
            return invalid(
                "flush_every_ops",
                "0 operations: use None for no flush by count".into(),
            );
        }
        if self.flush_every == Some(Duration::ZERO) {
            return invalid("flush_every", "zero time: use None for no timer".into());
        }
        if let Some(bytes) = self.max_bytes
            && bytes < format::MIN_MAX_BYTES
        {
            return invalid(
                "max_bytes",
                format!("{bytes} bytes is below {}", format::MIN_MAX_BYTES),
            );
        }
        if let Some(age) = self.max_age
            && age < Duration::from_millis(1)
        {
            return invalid("max_age", "below one millisecond".into());
        }
        let modes = self.mode.map(|mode| ("mode", mode));
        for (name, mode) in modes.into_iter().chain([("shared_mode", self.shared_mode)]) {
            if mode & !0o666 != 0 || mode & 0o600 != 0o600 {
                return invalid(name, format!("0{mode:o} {}", wrong_with(mode)));
            }
        }
        Ok(())
    }
}

/// What is wrong with these permission bits.
fn wrong_with(mode: u32) -> &'static str {
    match mode {
        0o1000.. => "has bits beyond 0666: write it in octal, as 0o640 (in C 0640)",
        _ if mode & 0o600 != 0o600 => "lacks 0600: the owner reads and writes the files",
        _ => "has x: name the bits of files; the directory gets x where files have r",
    }
}
