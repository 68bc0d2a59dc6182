//! The forwarder's side of a stream: its options, what is sent, what was acknowledged.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::link::Link;
use super::order::{is_subject, is_template, is_word};
use super::words::{HEADERS, LEAST, Letterhead, QUEUE_DIGITS};
use crate::{NatsMode, NatsOrder, ZERO, lost};
use mmq::forward::{Destination, Halt, Held, Limits, Mark, Outgoing, Position, Source, Trouble};

/// What a server takes in one batch, unless `max_batch_size` says otherwise.
pub(super) const BATCH: usize = 1_000;
/// The longest wait for the answer that a session begins with. When that takes longer, a later call
/// has it.
const BEGINNING: Duration = Duration::from_millis(400);

/// A stream of NATS JetStream (server 2.10 or later; batches from 2.12 on).
///
/// The messages of a queue have a subject of their own: `mmq.` and the directory's name, unless
/// [`subject`](Self::subject) says otherwise. Each has the header `Mmq`, which begins with its
/// number; on the last message of a batch, and on each that is in none, the sum
/// ([`Outgoing::sum`]) and the first eight digits of the queue's id follow: `1207 0a1b2c3d
/// 9f8e7d6c`. Behind a gap it has `Mmq-Missing` (`7-9 damaged, 12-12 dropped`). A message with
/// `Mmq-Gap` instead says only what is missing: it has no bytes, and `Mmq` of the message before
/// it. One with `Mmq-Pack` is a [pack](Self::pack).
///
/// The stream must exist, with the retention `limits`. What anybody else writes to the *subject*
/// ends the forwarding; other subjects of the stream are free in the mode
/// [`Batch`](NatsMode::Batch). Removing messages (by their age, by limits, by a purge) is free too:
/// the stream's positions tell it from a loss. Only in a stream with other subjects a removed last
/// message hides what was on its way when a link broke; [`warning`](Destination::warning) says so.
///
/// # Durability
///
/// A message counts as acknowledged when the stream has it. With a single replica and without
/// `sync_interval: always` a power cut of the server takes back up to two minutes of them:
/// [keep](mmq::forward::Forwarder::keep) more than that.
///
/// ```no_run
/// use mmq::forward::Forwarder;
/// use mmq_nats::NatsStream;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = mmq::Queue::open("/var/spool/agent")?;
/// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.subject("events.agent")?;
/// Forwarder::new(&queue, "forward", far)?.run()?;
/// # Ok(())
/// # }
/// ```
pub struct NatsStream {
    order: NatsOrder,
    /// How many messages a batch may have, as far as is known.
    most: usize,
    limits: Limits,
    /// Which stream it is, and where it ended behind what was acknowledged last.
    store: u64,
    position: Option<Position>,
    warning: Option<String>,
    link: Option<Link>,
}

impl fmt::Debug for NatsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsStream").field("stream", &self.order.stream).finish_non_exhaustive()
    }
}

impl NatsStream {
    /// The stream of that name on the server at `url`, as in `nats://host:4222`, `tls://host`, or
    /// `nats://user:password@host`. Several servers of a cluster stand with commas between. Nothing
    /// is connected yet.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://n1.example:4222,nats://n2.example:4222", "EVENTS")?;
    /// assert!(NatsStream::new("http://n1.example", "EVENTS").is_err());
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for what is no URL, or no name of a stream.
    pub fn new(url: &str, stream: &str) -> Result<NatsStream, Halt> {
        let order = NatsOrder::new(url, stream)?;
        Ok(NatsStream {
            order,
            most: BATCH,
            limits: Limits::default(),
            store: 0,
            position: None,
            warning: None,
            link: None,
        })
    }

    /// The subject of the queue's messages. `{dir}` in it stands for the queue's
    /// [name](Source::name), `{consumer}` for the consumer's, `{host}` for the machine's; a
    /// character that a subject may not have becomes `_`. (A lane has `.live` or `.backfill` behind
    /// it.)
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.subject("events.{dir}")?;
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for what is no subject, or one with wildcards or other names in braces.
    pub fn subject(mut self, subject: &str) -> Result<NatsStream, Halt> {
        if !is_template(subject) {
            return Err(lost(format!(
                "not a subject: {subject:?}; it looks like mmq.orders, and may have {{dir}}, \
                 {{consumer}} and {{host}} in it"
            )));
        }
        self.order.subject = Some(subject.to_owned());
        Ok(self)
    }

    /// The mode. Without this, [`Batch`](NatsMode::Batch) when the stream allows it, else
    /// [`Chain`](NatsMode::Chain) when its only subject is ours, else the forwarder stops and names
    /// the two remedies.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.mode(mmq_nats::NatsMode::Batch);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn mode(mut self, mode: NatsMode) -> NatsStream {
        self.order.mode = Some(mode);
        self
    }

    /// The domain of JetStream that the stream is in, as behind a leaf node.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.domain("hub")?;
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for what is no name of a domain.
    pub fn domain(mut self, domain: &str) -> Result<NatsStream, Halt> {
        if domain.is_empty() || domain.contains(|c: char| ".*>".contains(c) || !is_word(c)) {
            return Err(lost(format!("not a name of a domain: {domain:?}")));
        }
        self.order.domain = Some(domain.to_owned());
        Ok(self)
    }

    /// A file of credentials (`.creds`), read at the beginning of each session.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("tls://n1.example", "EVENTS")?.credentials_file("/etc/agent.creds");
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> NatsStream {
        self.order.access.credentials = Some(path.into());
        self
    }

    /// The seed of an nkey, as in `SUA...`.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let seed = std::env::var("AGENT_NKEY").unwrap_or_default();
    /// let far = NatsStream::new("tls://n1.example", "EVENTS")?.nkey(seed);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn nkey(mut self, seed: impl Into<String>) -> NatsStream {
        self.order.access.nkey = Some(seed.into());
        self
    }

    /// A file of certificates (PEM) of those who may sign the server's. Without this the system's
    /// count. With this the connection has TLS.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("tls://n1.example", "EVENTS")?.root_certificates("/etc/our-ca.pem");
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn root_certificates(mut self, path: impl Into<PathBuf>) -> NatsStream {
        self.order.access.roots.push(path.into());
        self
    }

    /// Our own certificate and its key, two files (PEM). With this the connection has TLS.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("tls://n1.example", "EVENTS")?
    ///     .client_certificate("/etc/agent.pem", "/etc/agent.key");
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> NatsStream {
        self.order.access.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// TLS from the first byte, as for a server with `handshake_first`.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("tls://n1.example", "EVENTS")?.tls_first();
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn tls_first(mut self) -> NatsStream {
        self.order.access.tls_first = true;
        self
    }

    /// How the subjects begin that answers are sent to: `_INBOX`, unless the user may subscribe
    /// only to others.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.inbox_prefix("_INBOX_agent")?;
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for what is no subject, or one with wildcards.
    pub fn inbox_prefix(mut self, prefix: &str) -> Result<NatsStream, Halt> {
        if !is_subject(prefix) {
            return Err(lost(format!("not a subject: {prefix:?}; it looks like _INBOX_agent")));
        }
        self.order.inbox = prefix.to_owned();
        Ok(self)
    }

    /// How long the stream keeps each message (`Nats-TTL`), in whole seconds, at least one. The
    /// stream must allow it (server 2.11 or later, `nats stream edit S --allow-msg-ttl`).
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let day = std::time::Duration::from_secs(24 * 3600);
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.message_ttl(day);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn message_ttl(mut self, ttl: Duration) -> NatsStream {
        self.order.ttl = Some(ttl);
        self
    }

    /// Puts up to so many messages of the queue into one message of the stream, which
    /// [`unpack`](mmq::forward::unpack) reads: its header `Mmq-Pack` says how many, `Mmq` has the
    /// number of the last one. No message waits for others. By default 1: none is packed.
    ///
    /// With packs the stream's positions count no messages: what was on its way when a link broke
    /// may be stored twice, if the stream has removed its last message (by its age, by a limit, by
    /// a purge) when the link is back.
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.pack(64);
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    #[must_use]
    pub fn pack(mut self, messages: u64) -> NatsStream {
        self.order.pack = messages.max(1);
        self
    }

    fn link(&mut self) -> Result<&mut Link, Trouble> {
        self.link.as_mut().ok_or_else(|| Trouble::Again("no session with NATS yet".into(), ZERO))
    }

    /// Ends the session.
    fn end(&mut self) {
        if let Some(most) = self.link.take().and_then(|link| link.most()) {
            self.most = most;
        }
    }

    /// The session that an earlier call has begun, or another one.
    fn beginning(&mut self, source: &Source, mark: Option<Mark>) -> Result<Link, Trouble> {
        let letterhead = Letterhead {
            queue: source.queue_hex().chars().take(QUEUE_DIGITS).collect(),
            succeeds: source.succeeds.as_ref().map(|id| id.chars().take(QUEUE_DIGITS).collect()),
            stream: self.order.stream.clone(),
            subject: self.order.subject_of(source),
            ttl: self.order.ttl,
        };
        match self.link.take() {
            Some(link) if link.begins(&letterhead, mark) => Ok(link),
            link => {
                self.link = link;
                self.end();
                Link::begin(self.order.clone(), letterhead, mark)
            }
        }
    }
}

impl Destination for NatsStream {
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble> {
        let mut link = self.beginning(source, mark)?;
        let Some(answer) = link.answer(BEGINNING)? else {
            let servers: Vec<_> = self
                .order
                .servers
                .iter()
                .map(|it| format!("{}:{}", it.host(), it.port()))
                .collect();
            self.link = Some(link);
            let reported = format!("NATS at {} has not answered yet", servers.join(", "));
            return Err(Trouble::Again(reported.into(), ZERO));
        };
        let (messages, sends) = match answer.mode {
            NatsMode::Batch => (self.most, 2),
            NatsMode::Chain => (500, 4),
            NatsMode::Window => (100, 1),
        };
        let bytes = 1 << 20;
        self.limits = Limits {
            longest: answer.longest.saturating_sub(LEAST),
            send_messages: messages,
            send_bytes: bytes,
            in_flight_messages: messages * sends,
            in_flight_bytes: bytes * sends as u64,
            pack_messages: self.order.pack,
            pack_bytes: answer.longest.saturating_sub(HEADERS),
        };
        (self.store, self.position) = (answer.store, answer.position);
        self.warning = answer.warning;
        self.link = Some(link);
        Ok(answer.held)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.link()?.send(messages).inspect_err(|_| self.end())
    }

    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        let acknowledged = self.link()?.acknowledged(wait).inspect_err(|_| self.end());
        let (until, at) = acknowledged?;
        if at > 0 {
            self.position = Some(Position { store: self.store, at });
        }
        Ok(until)
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn position(&self) -> Option<Position> {
        self.position
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}
