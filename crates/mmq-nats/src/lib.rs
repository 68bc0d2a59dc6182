//! NATS JetStream: a stream that takes each message once.
//!
//! ```text
//!   NatsStream   the forwarder's thread: what is sent, what was acknowledged
//!      |
//!     link       between the two threads
//!      |
//!   session      a thread of its own with the client: conditions, publishes, acknowledgements
//!      |   '-- ask    what the stream is and holds; which mode
//!      |        '-- standing   where it stands, compared with the last acknowledgement
//!     words      headers of a message, and what the server's errors mean
//! ```
//!
//! One connection is one session. The client would connect anew by itself and send again what it
//! has not written; it is kept from that: its first loss ends the session, and
//! [`resume`](Destination::resume) begins another one with another client.
//!
//! # Why nothing is doubled, missing or out of order
//!
//! A stream gives each message a *position*, which only rises. What an earlier session wrote may
//! arrive late, at any moment. Each message is conditional, so that it is stored right behind the
//! one that it was sent behind, or not at all:
//!
//! - **The first of a session** is conditional on the position that the answer to the question
//!   named. That position has the message that the answer named, for ever, so the condition
//!   names the message as well. When a late write got there first, the position is not the last any
//!   more: the message is refused, and the question is asked again.
//! - **`batch`**: the server stores a batch as a whole or not at all, and the next one is sent when
//!   the one before is acknowledged. Its condition is the last position of the stream if only this
//!   queue writes to it, else that of the last message of the subject; from the answer or from that
//!   acknowledgement: as for the first of a session.
//! - **`window`**: one message at a time; the same.
//! - **`chain`**: messages are sent without waiting, so a condition names a position that is not
//!   reached yet, and an earlier session may bring another message there: it sent 10, 11 and 12; 11
//!   is given up; this one sends 10 and 12. If the late 10 is stored, this session's 12 meets its
//!   position, and so does the late 12 behind it. Therefore a message is conditional on the id of
//!   the one before, too, which has the number in it: the late 12 wants 11 before it, finds 12, and
//!   is refused. (The server has the last id in memory, from the last message after a restart; the
//!   first of a session does without, as older servers forget it.)
//!
//! So each message that is stored has a higher number than the one before, and between the two are
//! only numbers that the sender knew to be missing. This holds while a condition that failed once
//! fails for ever. Two things can make one come true again, and then only for a write of an earlier
//! session that is still on its way:
//!
//! - The store is set back. A single server that dies takes the connections of earlier sessions
//!   with it; in a cluster, or when somebody restores a stream while its server runs, they may
//!   hang on.
//! - All messages of a subject that shares its stream are removed within the time that such a write
//!   is late: a subject without messages has the position 0 again.
//!
//! # What the stream removes by itself
//!
//! The position that was acknowledged last tells what was removed (by age, a limit, a purge) from
//! what was lost: positions stay when their messages go. `standing` has the rules.

mod ask;
mod link;
mod session;
mod standing;
mod words;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ServerAddr;

use link::{CameTo, Link};
use mmq::forward::{Destination, Halt, Held, Limits, Mark, Outgoing, Position, Source, Trouble};
use words::{HEADROOM, Letterhead};

/// What a server takes in one batch, unless `max_batch_size` says otherwise.
const BATCH: usize = 1_000;

/// A stream of NATS JetStream (server 2.10 or later; batches from 2.12 on).
///
/// The messages of a queue have a subject of their own: `mmq.` and the directory's name, unless
/// [`subject`](Self::subject) says otherwise. Each has the headers `Mmq-Queue` (32 hexadecimal
/// digits), `Mmq-Seq` (its number), `Mmq-Sum` (the lower half of its XXH3-64), and behind a gap
/// `Mmq-Missing` (`7-9 damaged, 12-12 dropped`). A message with `Mmq-Gap` instead says only what is
/// missing: it has no bytes, and number and checksum of the message before it.
///
/// The stream must exist, with the retention `limits`. What anybody else writes to the *subject*
/// ends the forwarding; other subjects of the stream are free in the mode
/// [`Batch`](NatsMode::Batch).
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

/// How messages are stored: exactly once in each mode.
///
/// ```
/// # use mmq_nats::NatsStream;
/// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.mode(mmq_nats::NatsMode::Chain);
/// # drop(far);
/// # Ok::<(), mmq::forward::Halt>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NatsMode {
    /// In atomic batches. Other subjects of the stream are free for others. It takes a server of
    /// 2.12 or later, and a stream that allows it (`nats stream edit S --allow-batch`).
    Batch,
    /// Each conditional on the last message of the whole stream, without waiting for
    /// acknowledgements. The stream takes no other subject.
    Chain,
    /// One at a time, each conditional on the last one of its subject, and with an id for the
    /// stream's window of duplicates. Slow, and never chosen by itself: for a stream with other
    /// writers that allows no batches.
    Window,
}

/// What it takes to begin a session.
#[derive(Clone)]
struct NatsOrder {
    servers: Vec<ServerAddr>,
    stream: String,
    subject: Option<String>,
    mode: Option<NatsMode>,
    domain: Option<String>,
    access: Access,
}

/// How the servers know us, and we them.
#[derive(Clone, Default)]
struct Access {
    credentials: Option<PathBuf>,
    nkey: Option<String>,
    user: Option<(String, String)>,
    token: Option<String>,
    roots: Vec<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
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
        let mut servers = Vec::new();
        for url in url.split(',') {
            let server: ServerAddr = url.trim().parse().map_err(|error| {
                lost(format!("not a URL of NATS ({error}): it looks like nats://host:4222"))
            })?;
            if !matches!(server.scheme(), "nats" | "tls") {
                return Err(lost("not a URL of NATS: it looks like nats://host:4222".into()));
            }
            servers.push(server);
        }
        if stream.is_empty() || stream.contains(|c: char| ".*>/\\".contains(c) || !is_word(c)) {
            return Err(lost(format!("not a name of a stream: {stream:?}; it looks like EVENTS")));
        }
        let mut access = Access::default();
        if let Some(server) = servers.iter().find(|server| server.has_user_pass()) {
            let user = server.username().unwrap_or_default().to_owned();
            match server.password() {
                Some(password) => access.user = Some((user, password.to_owned())),
                None => access.token = Some(user),
            }
        }
        let stream = stream.to_owned();
        let order = NatsOrder { servers, stream, subject: None, mode: None, domain: None, access };
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

    /// The subject of the queue's messages. (A lane has `.live` or `.backfill` behind it.)
    ///
    /// ```
    /// # use mmq_nats::NatsStream;
    /// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.subject("events.agent-7")?;
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for what is no subject, or one with wildcards.
    pub fn subject(mut self, subject: &str) -> Result<NatsStream, Halt> {
        let is_token =
            |it: &str| !it.is_empty() && !it.contains(|c| "*>".contains(c) || !is_word(c));
        if !subject.split('.').all(is_token) {
            return Err(lost(format!("not a subject: {subject:?}; it looks like mmq.orders")));
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

    fn link(&mut self) -> Result<&mut Link, Trouble> {
        self.link.as_mut().ok_or_else(|| Trouble::Again("no session with NATS yet".into(), ZERO))
    }

    /// Ends the session. A batch that did not arrive as a whole may arrive in pieces.
    fn end(&mut self) {
        if let Some(link) = self.link.take() {
            match link.came_to() {
                CameTo::Acknowledgements => self.most = BATCH,
                CameTo::Nothing => self.most = self.most.div_ceil(2),
                CameTo::NothingSent => {}
            }
        }
    }
}

const ZERO: Duration = Duration::ZERO;

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !c.is_control()
}

fn lost(why: String) -> Halt {
    Halt::Lost(why.into())
}

/// The subject of a source, unless one is named.
fn subject_of(order: &NatsOrder, source: &Source) -> String {
    let subject = order.subject.clone().unwrap_or_else(|| {
        let word = |c: char| if is_word(c) && !".*>".contains(c) { c } else { '_' };
        format!("mmq.{}", source.name.chars().map(word).collect::<String>())
    });
    subject + source.lane.suffix()
}

impl Destination for NatsStream {
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble> {
        self.end();
        let letterhead = Letterhead {
            queue: source.queue_hex(),
            stream: self.order.stream.clone(),
            subject: subject_of(&self.order, source),
        };
        let (link, answer) = Link::begin(self.order.clone(), Arc::new(letterhead), mark)?;
        let longest = answer.longest.saturating_sub(HEADROOM + self.order.stream.len() as u64);
        let (messages, sends) = match answer.mode {
            NatsMode::Batch => (self.most, 2),
            NatsMode::Chain => (500, 4),
            NatsMode::Window => (100, 1),
        };
        let bytes = 1 << 20;
        self.limits = Limits {
            longest,
            send_messages: messages,
            send_bytes: bytes,
            in_flight_messages: messages * sends,
            in_flight_bytes: bytes * sends as u64,
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
