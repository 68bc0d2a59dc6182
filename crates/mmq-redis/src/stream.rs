//! The destination.

use std::fmt;
use std::time::Duration;

use mmq::forward::{Destination, Halt, Held, Limits, Mark, Outgoing, Source, Trouble};

use crate::address::Address;
use crate::script::{EntryId, Parcel};
use crate::session::{About, Session};
use crate::trouble::again;

/// How long [`Destination::resume`] waits for the server. What takes longer goes on meanwhile.
const PROMPT: Duration = Duration::from_millis(400);
/// What a server takes in one argument, unless `proto-max-bulk-len` says otherwise.
const LONGEST: u64 = 512 << 20;
/// The bytes of a send. Several are under way at a time, so that a link is never idle between an
/// answer and the next send, and so that answers come often over a slow one.
const SEND_BYTES: u64 = 16 << 10;

/// A stream of Redis (6.2 or later) or Valkey.
///
/// An entry's id is `<number + 1>-0`, and its field `data` is the message. `missing` stands only
/// behind a gap: `7-9 damaged, 12-12 dropped`; an entry without `data` says only that. The last
/// entry of each send also has `queue` (the queue's id, 32 hexadecimal digits) and `sum` (eight), by
/// which the forwarder knows the stream again.
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
    key: String,
    session: Option<Session>,
    /// The last id of the stream behind what was handed over.
    last: EntryId,
}

impl fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStream").field("key", &self.key).finish_non_exhaustive()
    }
}

impl RedisStream {
    /// The stream `key` of the server at `url`, as in `redis://user:password@host:6379/0`. Nothing
    /// is connected yet.
    ///
    /// ```
    /// let far = mmq_redis::RedisStream::new("redis://agent:secret@127.0.0.1:6379/0", "mmq:agent")?;
    /// assert!(mmq_redis::RedisStream::new("http://127.0.0.1", "mmq:agent").is_err());
    /// # drop(far);
    /// # Ok::<(), mmq::forward::Halt>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Halt::Lost`] for a URL that the client cannot read, or an empty key.
    pub fn new(url: &str, key: &str) -> Result<RedisStream, Halt> {
        let lost = |why: String| Halt::Lost(why.into());
        if key.is_empty() {
            return Err(lost("the key of the stream is empty: name one, as in mmq:orders".into()));
        }
        let address = Address::parse(url).map_err(|error| {
            lost(format!("not a URL of Redis ({error}): it looks like redis://host:6379/0"))
        })?;
        Ok(RedisStream { address, key: key.to_owned(), session: None, last: EntryId::ZERO })
    }

    /// The session that has begun, if there is one.
    fn live(&mut self) -> Result<&mut Session, Trouble> {
        self.session
            .as_mut()
            .filter(|session| session.begun.is_some())
            .ok_or_else(|| again(&self.key, "no session yet"))
    }
}

impl Destination for RedisStream {
    /// Asks the server. When it takes longer than half a second, the answer is a trouble, and the
    /// connection goes on being made: the next call has its outcome.
    fn resume(&mut self, source: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        let about = About::of(&self.key, source);
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
                let took = session.began.elapsed().as_secs_f64();
                let slow = again(&session.about.key, format!("no answer yet, after {took:.1} s"));
                self.session = Some(session);
                Err(earlier.unwrap_or(slow))
            }
        }
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let from = self.last;
        let session = self.live()?;
        let hash = session.begun.as_ref().map_or("", |begun| &begun.hash);
        let About { key, queue } = &session.about;
        let parcel = Parcel::new(hash, key, queue, from, messages);
        let to = parcel.to;
        session.send(parcel)?;
        self.last = to;
        Ok(())
    }

    fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        self.live()?.acknowledged(wait)
    }

    fn limits(&self) -> Limits {
        Limits { longest: LONGEST, send_bytes: SEND_BYTES, ..Limits::default() }
    }
}

impl RedisStream {
    fn begun(&mut self, session: Session, held: Held) -> Held {
        self.last = session.begun.as_ref().map_or(EntryId::ZERO, |begun| begun.last);
        self.session = Some(session);
        held
    }
}
