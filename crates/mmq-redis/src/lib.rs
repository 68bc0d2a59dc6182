//! Redis and Valkey: a stream that takes each message once.
//!
//! A message's id there is `<number + 1>-0`. One script stores a whole send: it compares the last
//! id of the stream with the one that the send follows, and only then adds. The server runs one
//! script at a time and logs it as one, so a send is there as a whole or not at all, and the last
//! id outlives XTRIM, XDEL and restarts.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use mmq::forward::{
    Destination, Halt, Held, Limits, Mark, Outgoing, OutgoingKind, Source, Trouble,
};
/// The client that is used.
pub use redis;
use redis::{Client, Connection, ErrorKind, RedisError, Script};

/// The longest wait for a connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause when the server is full, or must not write now.
const FULL: Duration = Duration::from_secs(5);
/// What a server takes in one argument, unless `proto-max-bulk-len` says otherwise.
const LONGEST: u64 = 512 << 20;

/// KEYS: the stream. Answers its last id, and of the newest entry, if that still is the last, the
/// queue and the checksum (empty where it has none).
const ASK: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 then return {'0-0'} end
local info, last = redis.call('XINFO', 'STREAM', KEYS[1])
for at = 1, #info, 2 do if info[at] == 'last-generated-id' then last = info[at + 1] end end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest or newest[1] ~= last then return {last} end
local queue, sum = '', ''
for at = 1, #newest[2], 2 do
  if newest[2][at] == 'queue' then queue = newest[2][at + 1] end
  if newest[2][at] == 'sum' then sum = newest[2][at + 1] end
end
return {last, queue, sum}";

/// KEYS: the stream. ARGV: the id that must be the last, the queue's id, then for each message its
/// id, checksum, missing numbers, `data` or `gap`, and bytes. Answers the last id there was.
const ADD: &str = "
local last = '0-0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for at = 1, #info, 2 do if info[at] == 'last-generated-id' then last = info[at + 1] end end
end
if last ~= ARGV[1] then return last end
for at = 3, #ARGV, 5 do
  local entry = {'queue', ARGV[2], 'sum', ARGV[at + 1]}
  if ARGV[at + 2] ~= '' then entry[5], entry[6] = 'missing', ARGV[at + 2] end
  if ARGV[at + 3] == 'data' then entry[#entry + 1], entry[#entry + 2] = 'data', ARGV[at + 4] end
  redis.call('XADD', KEYS[1], ARGV[at], unpack(entry))
end
return last";

/// A stream of Redis (6.2 or later) or Valkey.
///
/// Each entry has the fields `queue` (32 hexadecimal digits), `sum` (half of its XXH3-64, in
/// eight), `missing` (only behind a gap: `7-9 damaged, 12-12 dropped`) and `data` (the message). An
/// entry without `data` says only what is missing. The id is `<number + 1>-0`.
///
/// The stream belongs to one queue: what another client adds to it ends the forwarding. Trimming
/// and deleting entries is anybody's right, while removing the key makes the far side forget
/// ([`IfForgotten`](mmq::forward::IfForgotten)).
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
    client: Client,
    key: String,
    ask: Script,
    add: Script,
    session: Option<RedisSession>,
}

struct RedisSession {
    connection: Connection,
    key: String,
    queue: String,
    last: EntryId,
}

impl fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStream").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Where an entry stands: `(number + 1, 0)`, and above 0 for what only reports missing numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryId(u64, u64);

impl EntryId {
    fn parse(text: &str) -> Option<EntryId> {
        let (first, second) = text.split_once('-')?;
        Some(EntryId(first.parse().ok()?, second.parse().ok()?))
    }

    /// The id of a message that follows this one.
    fn next(self, message: &Outgoing<'_>) -> EntryId {
        match message.kind {
            OutgoingKind::Message => EntryId(message.seq + 1, 0),
            OutgoingKind::Gap => EntryId(self.0, self.1 + 1),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
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
        let client = Client::open(url).map_err(|error| {
            lost(format!("not a URL of Redis ({error}): it looks like redis://host:6379/0"))
        })?;
        let (ask, add) = (Script::new(ASK), Script::new(ADD));
        Ok(RedisStream { client, key: key.to_owned(), ask, add, session: None })
    }

    fn begin(&self, source: &Source) -> Result<(RedisSession, Held), Trouble> {
        let key = format!("{}{}", self.key, source.lane.suffix());
        let trouble = |error| trouble(&key, error);
        let mut connection = self.client.get_connection_with_timeout(PATIENCE).map_err(trouble)?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(trouble)?;
        connection.set_write_timeout(Some(PATIENCE)).map_err(trouble)?;
        let answer: Vec<Vec<u8>> = self.ask.key(&key).invoke(&mut connection).map_err(trouble)?;
        let answer: Vec<_> = answer.iter().map(|it| String::from_utf8_lossy(it)).collect();
        let queue = source.queue_hex();
        let (last, held) = held_by(&answer, &queue)
            .map_err(|why| Trouble::Lost(format!("stream {key} of Redis {why}").into()))?;
        Ok((RedisSession { connection, key, queue, last }, held))
    }
}

/// What the answer to [`ASK`] says: the last id, and what the stream holds of the queue.
fn held_by(answer: &[Cow<'_, str>], queue: &str) -> Result<(EntryId, Held), String> {
    let last = answer.first().map_or("", |last| &**last);
    let foreign =
        || format!("ends in {last}, which no queue wrote: give the queue a stream of its own");
    let id = EntryId::parse(last).ok_or_else(foreign)?;
    let Some(seq) = id.0.checked_sub(1) else {
        return if id == EntryId(0, 0) { Ok((id, Held::Nothing)) } else { Err(foreign()) };
    };
    match answer[1..].iter().map(|it| &**it).collect::<Vec<_>>()[..] {
        // The newest entry was deleted. Its id remains.
        [] => Ok((id, Held::Until { seq, sum: None })),
        [there, sum] if there == queue => match u32::from_str_radix(sum, 16) {
            Ok(sum) => Ok((id, Held::Until { seq, sum: Some(sum) })),
            Err(_) => Err(foreign()),
        },
        [there, _] if there.len() == queue.len() => Err(format!(
            "holds the messages of queue {there}, but this queue is {queue}: name another"
        )),
        _ => Err(foreign()),
    }
}

impl Destination for RedisStream {
    fn resume(&mut self, source: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        self.session = None;
        let (session, held) = self.begin(source)?;
        self.session = Some(session);
        Ok(held)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let session = self.session.as_mut().ok_or_else(no_session)?;
        let mut call = self.add.key(&session.key);
        call.arg(session.last.to_string()).arg(&session.queue);
        let mut id = session.last;
        for message in messages {
            id = id.next(message);
            let missing: Vec<_> = message.missing_before.iter().map(ToString::to_string).collect();
            let kind = match message.kind {
                OutgoingKind::Message => "data",
                OutgoingKind::Gap => "gap",
            };
            call.arg(id.to_string())
                .arg(format!("{:08x}", message.sum))
                .arg(missing.join(", "))
                .arg(kind)
                .arg(message.bytes);
        }
        let found: String =
            call.invoke(&mut session.connection).map_err(|error| trouble(&session.key, error))?;
        if found != session.last.to_string() {
            // A write of an earlier session arrived late, or the stream has another writer.
            let why = format!(
                "stream {} of Redis ends in {found} and not in {}: asking again",
                session.key, session.last
            );
            return Err(Trouble::Again(why.into(), Duration::ZERO));
        }
        session.last = id;
        Ok(())
    }

    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        // (`send` waits for the answer.)
        self.session.as_ref().map(|session| session.last.0).ok_or_else(no_session)
    }

    fn limits(&self) -> Limits {
        Limits { longest: LONGEST, ..Limits::default() }
    }
}

fn no_session() -> Trouble {
    Trouble::Again("no session with Redis yet".into(), Duration::ZERO)
}

/// Whether the error may pass, and what to do about it.
fn trouble(key: &str, error: RedisError) -> Trouble {
    let is_refused =
        matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig);
    let (is_lost, advice) = match error.code().unwrap_or_default() {
        _ if is_refused => (true, "; look at user and password in the URL"),
        "NOAUTH" | "WRONGPASS" => (true, "; look at user and password in the URL"),
        "NOPERM" => {
            (true, "; the user needs EVALSHA, SCRIPT, EXISTS, XINFO, XREVRANGE and XADD on the key")
        }
        "WRONGTYPE" => (true, "; the key holds something else: name another one"),
        "OOM" => (false, "; the server is at its maxmemory: trim the stream or raise it"),
        "MISCONF" => (false, "; the server cannot save to its disk and refuses writes"),
        "READONLY" => (false, "; the server is a replica: name the primary"),
        _ => (false, ""),
    };
    let pause = match error.code() {
        Some("OOM" | "MISCONF" | "READONLY") => FULL,
        _ => Duration::ZERO,
    };
    let why = format!("stream {key} of Redis: {error}{advice}").into();
    if is_lost { Trouble::Lost(why) } else { Trouble::Again(why, pause) }
}
