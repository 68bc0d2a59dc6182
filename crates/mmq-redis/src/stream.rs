//! The destination.

use std::fmt;
use std::time::Duration;

use mmq::forward::{Destination, Halt, Held, Limits, Mark, Outgoing, Source, Trouble};

use crate::about::About;
use crate::address::{Address, Login};
use crate::script::{EntryId, Parcel};
use crate::session::Session;
use crate::trouble::{again, lost};

/// How long [`Destination::resume`] waits for the server. What takes longer goes on meanwhile.
const PROMPT: Duration = Duration::from_millis(400);
/// What a server takes in one argument, unless `proto-max-bulk-len` says otherwise.
const LONGEST: u64 = 512 << 20;
/// The bytes of a send. Several are under way at a time, so that a link is never idle between an
/// answer and the next send, and so that answers come often over a slow one.
const SEND_BYTES: u64 = 16 << 10;
/// The bytes of a pack: with its fields it fits one of the server's allocations of 16 KiB.
const PACK_BYTES: u64 = SEND_BYTES - 160;

/// A stream of Redis (6.2 or later) or Valkey.
///
/// An entry's id is `<number + 1>-0`, and its field `data` is the message; with a field `pack`
/// instead it is a [pack](Self::pack), and the number that of its last message. `missing` stands
/// only behind a gap: `7-9 damaged, 12-12 dropped`; an entry without either says only that. The
/// last entry of each send also has `queue` (the queue's id, 32 hexadecimal digits) and `sum`
/// (eight), by which the forwarder knows the stream again.
///
/// The stream belongs to one queue: what another client adds to it ends the forwarding. Trimming
/// and deleting entries is anybody's right, while removing the key makes the far side forget
/// ([`IfForgotten`](mmq::forward::IfForgotten)).
///
/// It counts no [positions](Destination::position), because the last id is one: it outlives
/// trimming, deletion and restarts, and it is the number of the last message. What a stored
/// position could tell beyond that, nothing here needs: a stream whose last id is lower was set
/// back, and one that has no id is new or forgotten.
///
/// The connection is on a thread of its own, and no call waits for the server longer than half a
/// second. A connection that takes longer goes on being made, and the forwarder asks again. An idle
/// session asks the server every ten seconds whether it is there.
///
/// # Durability
///
/// A message counts as acknowledged when the server has it. With `appendfsync everysec` a crash of
/// its machine takes back a second of them, without an append-only file everything since its last
/// snapshot: [keep](mmq::forward::Forwarder::keep) more than that.
///
/// ```no_run
/// use mmq::forward::Forwarder;
/// use mmq_redis::RedisStream;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = mmq::Queue::open("/var/spool/agent")?;
/// let far = RedisStream::new("redis://127.0.0.1/", "agent")?;
/// Forwarder::new(&queue, "forward", far)?.run()?;
/// # Ok(())
/// # }
/// ```
pub struct RedisStream {
    address: Address,
    /// With names in braces.
    key: String,
    max_len: Option<u64>,
    replicas: u32,
    /// How many messages of the queue go in one entry at the most.
    pack: u64,
    session: Option<Session>,
    /// The last id of the stream behind what was handed over.
    last: EntryId,
    /// The sum of the message with that id, where it is known.
    last_sum: Option<u32>,
}

impl fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStream").field("key", &self.key).finish_non_exhaustive()
    }
}

impl RedisStream {
    /// The stream `key` of the server at `url`: `redis://user:password@host:6379/0`, or
    /// `unix:///run/redis.sock`, or `rediss://host` with the feature `tls`. In the key `{dir}` is
    /// the queue's [name](Source::name), `{consumer}` the consumer's and `{host}` the machine's.
    /// Nothing is connected yet.
    ///
    /// ```
    /// use mmq_redis::RedisStream;
    ///
    /// let far = RedisStream::new("redis://127.0.0.1:6379/0", "{host}:{dir}")?;
    /// assert!(RedisStream::new("http://127.0.0.1", "mmq:agent").is_err());
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for a URL that the client cannot read, or a key that is empty or has other
    /// names in braces. No error has the URL in it.
    pub fn new(url: &str, key: &str) -> Result<RedisStream, Halt> {
        RedisStream::at(Address::server(url), key)
    }

    /// The stream `key` of the server that sentinels call `primary`. Each session begins with the
    /// question where that is, to one sentinel after another. User and password in these URLs are
    /// those of the sentinels; for the server there are [credentials](Self::credentials). A
    /// database in the first URL is that of the server.
    ///
    /// ```
    /// use mmq_redis::RedisStream;
    ///
    /// let sentinels = ["redis://s1:26379", "redis://s2:26379", "redis://s3:26379"];
    /// let far = RedisStream::sentinel(&sentinels, "mymaster", "mmq:agent")?.replicas(1);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`Halt::Lost`] without a sentinel or a name.
    pub fn sentinel(urls: &[&str], primary: &str, key: &str) -> Result<RedisStream, Halt> {
        RedisStream::at(Address::sentinels(urls, primary), key)
    }

    fn at(address: Result<Address, String>, key: &str) -> Result<RedisStream, Halt> {
        let lost = |why: String| Halt::Lost(why.into());
        // (Any source will do for a look at the names.)
        if key.is_empty() || Source::new([0; 16], "").filled(key, str::to_owned).is_none() {
            return Err(lost(wrong(key)));
        }
        Ok(RedisStream {
            address: address.map_err(lost)?,
            key: key.to_owned(),
            max_len: None,
            replicas: 0,
            pack: 1,
            session: None,
            last: EntryId::ZERO,
            last_sum: None,
        })
    }

    /// User and password at the server, instead of those in the URL. An empty user is the server's
    /// default one.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let file = tempfile::NamedTempFile::new()?;
    /// # let path = file.path();
    /// let password = std::fs::read_to_string(path)?; // "/etc/agent/redis-password"
    /// let far = mmq_redis::RedisStream::new("redis://broker", "mmq:agent")?
    ///     .credentials("agent", password.trim_end());
    /// # drop(far);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> RedisStream {
        self.address.login = Some(Login { user: user.into(), password: password.into() });
        self
    }

    /// Trims the stream with each send to its newest entries: about so many, and never fewer
    /// (`MAXLEN ~`). A reader that is further behind loses messages. 0 does not trim, as by
    /// default.
    ///
    /// ```
    /// let far = mmq_redis::RedisStream::new("redis://broker", "mmq:agent")?.max_len(1_000_000);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn max_len(mut self, entries: u64) -> RedisStream {
        self.max_len = (entries > 0).then_some(entries);
        self
    }

    /// Counts a message as acknowledged only when so many replicas have it too (`WAIT`). By
    /// default none must.
    ///
    /// # Durability
    ///
    /// A failover to one of these replicas loses none of the acknowledged messages. To another
    /// replica it may lose some: the forwarder sends them again as far as the queue
    /// [keeps](mmq::forward::Forwarder::keep) them.
    ///
    /// ```
    /// let far = mmq_redis::RedisStream::new("redis://broker", "mmq:agent")?.replicas(1);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn replicas(mut self, count: u32) -> RedisStream {
        self.replicas = count;
        self
    }

    /// Puts up to so many messages of the queue into one entry of the stream, which
    /// [`unpack`](mmq::forward::unpack) reads: it has the field `pack` instead of `data`, and the
    /// id of the last message. No message waits for others. A pack has up to 16,224 bytes. By
    /// default 1: none is packed. [`max_len`](Self::max_len) counts entries.
    ///
    /// ```
    /// let far = mmq_redis::RedisStream::new("redis://broker", "mmq:agent")?.pack(64);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn pack(mut self, messages: u64) -> RedisStream {
        self.pack = messages.max(1);
        self
    }

    /// A file of certificates (PEM) of those who may sign the server's. Without this the system's
    /// count. For `rediss://`.
    ///
    /// ```
    /// let far = mmq_redis::RedisStream::new("rediss://broker", "mmq:agent")?
    ///     .root_certificates("/etc/our-ca.pem");
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn root_certificates(mut self, path: impl Into<std::path::PathBuf>) -> RedisStream {
        self.address.files.roots = Some(path.into());
        self
    }

    /// Our own certificate and its key, two files (PEM). For `rediss://`.
    ///
    /// ```
    /// let far = mmq_redis::RedisStream::new("rediss://broker", "mmq:agent")?
    ///     .client_certificate("/etc/agent.pem", "/etc/agent.key");
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<std::path::PathBuf>,
        key: impl Into<std::path::PathBuf>,
    ) -> RedisStream {
        self.address.files.own = Some((certificate.into(), key.into()));
        self
    }

    /// The session that has begun, if there is one.
    fn live(&mut self) -> Result<&mut Session, Trouble> {
        self.session
            .as_mut()
            .filter(|session| session.begun.is_some())
            .ok_or_else(|| again("Redis", "no session yet"))
    }
}

/// What is wrong with a key that is empty or has other names in braces.
fn wrong(key: &str) -> String {
    if key.is_empty() {
        return "the key of the stream is empty: name one, as in mmq:orders".to_owned();
    }
    format!(
        "the key {key} has braces without a name that this knows: {{dir}} is the queue's name, \
         {{consumer}} the consumer's, {{host}} the machine's"
    )
}

impl Destination for RedisStream {
    /// Asks the server. When it takes longer than half a second, the answer is a trouble, and the
    /// connection goes on being made: the next call has its outcome.
    fn resume(&mut self, source: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        let about = About {
            key: source.filled(&self.key, str::to_owned).unwrap_or_default(),
            queue: source.queue_hex(),
            succeeds: source.succeeds.clone(),
            max_len: self.max_len,
            replicas: self.replicas,
        };
        let pending = self.session.take();
        let pending = pending.filter(|it| it.begun.is_none() && it.about == about);
        let mut earlier = None;
        let mut session = match pending {
            None => Session::begin(&self.address, about)?,
            Some(mut pending) => match pending.wait(Duration::ZERO) {
                // It failed meanwhile.
                Some(Err(trouble @ Trouble::Again(..))) => {
                    earlier = Some(trouble);
                    Session::begin(&self.address, about)?
                }
                Some(Err(trouble)) => return Err(trouble),
                Some(Ok(held)) => return Ok(self.begun(pending, held)),
                None => pending,
            },
        };
        match session.wait(PROMPT) {
            Some(held) => Ok(self.begun(session, held?)),
            None => {
                let slow = again(&session.about.place(), "it has not answered yet");
                self.session = Some(session);
                Err(earlier.unwrap_or(slow))
            }
        }
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let from = (self.last, self.last_sum);
        let session = self.live()?;
        if let Some(first) = messages.first().filter(|first| !from.0.is_before(first)) {
            let why = format!(
                "ends in {}, and this queue goes on with number {}: numbers only rise in a stream, \
                 so name another key",
                from.0, first.seq
            );
            return Err(lost(&session.about.place(), why));
        }
        let hash = session.begun.as_ref().map_or("", |begun| &begun.hash);
        let parcel = Parcel::new(&session.about, hash, from, messages);
        let to = parcel.to;
        session.send(parcel)?;
        self.last = to;
        self.last_sum = messages.last().map(|last| last.sum);
        Ok(())
    }

    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        self.live()?.acknowledged(wait)
    }

    fn limits(&self) -> Limits {
        Limits {
            longest: LONGEST,
            send_bytes: SEND_BYTES,
            pack_messages: self.pack,
            pack_bytes: PACK_BYTES,
            ..Limits::default()
        }
    }
}

impl RedisStream {
    fn begun(&mut self, session: Session, held: Held) -> Held {
        self.last = session.begun.as_ref().map_or(EntryId::ZERO, |begun| begun.last);
        self.last_sum = match held {
            Held::Until { sum, .. } => sum,
            _ => None,
        };
        self.session = Some(session);
        held
    }
}
