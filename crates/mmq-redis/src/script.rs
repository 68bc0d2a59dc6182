//! The two scripts that the server runs, and what they take and answer.

use std::fmt;

use mmq::forward::{Held, Outgoing, OutgoingKind};

/// KEYS: the stream. Answers its last id, and of the newest entry, if that still is the last, the
/// queue and the checksum (empty where it has none).
pub(crate) const ASK: &str = "
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
pub(crate) const ADD: &str = "
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

/// Where an entry stands: `(number + 1, 0)`, and above 0 for what only reports missing numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(u64, u64);

impl EntryId {
    pub(crate) const ZERO: EntryId = EntryId(0, 0);

    pub(crate) fn parse(text: &str) -> Option<EntryId> {
        let (first, second) = text.split_once('-')?;
        Some(EntryId(first.parse().ok()?, second.parse().ok()?))
    }

    /// The number behind that of the message.
    pub(crate) fn until(self) -> u64 {
        self.0
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

/// What the answer to [`ASK`] says: the last id, and what the stream holds of the queue.
pub(crate) fn held_by(answer: &[String], queue: &str) -> Result<(EntryId, Held), String> {
    let last = answer.first().map_or("", |last| &**last);
    let foreign =
        || format!("ends in {last}, which no queue wrote: give the queue a stream of its own");
    let id = EntryId::parse(last).ok_or_else(foreign)?;
    let Some(seq) = id.0.checked_sub(1) else {
        return if id == EntryId::ZERO { Ok((id, Held::Nothing)) } else { Err(foreign()) };
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

/// One call of [`ADD`].
#[derive(Debug)]
pub(crate) struct Parcel {
    /// The call as it goes over the wire.
    pub(crate) bytes: Vec<u8>,
    /// The last id of the stream before it, and after it.
    pub(crate) from: EntryId,
    pub(crate) to: EntryId,
}

impl Parcel {
    /// The call that stores these messages behind `from`; `hash` is the script's.
    pub(crate) fn new(
        hash: &str,
        key: &str,
        queue: &str,
        from: EntryId,
        messages: &[Outgoing<'_>],
    ) -> Parcel {
        let payload: usize = messages.iter().map(|message| message.bytes.len() + 100).sum();
        let mut call = Words::new(6 + messages.len() * 5, payload + 200);
        for word in ["EVALSHA", hash, "1", key, &from.to_string(), queue] {
            call.add(word.as_bytes());
        }
        let mut to = from;
        for message in messages {
            to = to.next(message);
            let missing: Vec<_> = message.missing_before.iter().map(ToString::to_string).collect();
            let kind = match message.kind {
                OutgoingKind::Message => "data",
                OutgoingKind::Gap => "gap",
            };
            call.add(to.to_string().as_bytes());
            call.add(format!("{:08x}", message.sum).as_bytes());
            call.add(missing.join(", ").as_bytes());
            call.add(kind.as_bytes());
            call.add(message.bytes);
        }
        Parcel { bytes: call.0, from, to }
    }
}

/// A command in the protocol of Redis. (The client's `Cmd` copies each argument twice.)
struct Words(Vec<u8>);

impl Words {
    fn new(count: usize, capacity: usize) -> Words {
        let mut words = Words(Vec::with_capacity(capacity));
        words.head(b'*', count);
        words
    }

    fn add(&mut self, word: &[u8]) {
        self.head(b'$', word.len());
        self.0.extend_from_slice(word);
        self.0.extend_from_slice(b"\r\n");
    }

    fn head(&mut self, kind: u8, number: usize) {
        self.0.push(kind);
        self.0.extend_from_slice(number.to_string().as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }
}
