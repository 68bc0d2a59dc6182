//! The two scripts that the server runs, and what they take and answer.

use std::fmt;
use std::time::UNIX_EPOCH;

use mmq::forward::{Held, Outgoing, OutgoingKind};

use crate::about::About;

/// KEYS: the stream. ARGV: how many replicas count. Answers its last id, the newest entry's id, and
/// of that the queue and the sum; empty is what there is not. (WAIT is about what its own
/// connection wrote: so where replicas count the script writes what is there already.)
pub(crate) const ASK: &str = "
local info, last = redis.pcall('XINFO', 'STREAM', KEYS[1]), '0-0'
if info.err then
  if string.find(info.err, 'no such key') then return {last, '', '', ''} end
  return info
end
for at = 1, #info, 2 do if info[at] == 'last-generated-id' then last = info[at + 1] end end
if ARGV[1] ~= '0' then redis.call('XSETID', KEYS[1], last) end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest then return {last, '', '', ''} end
local queue, sum = '', ''
for at = 1, #newest[2], 2 do
  if newest[2][at] == 'queue' then queue = newest[2][at + 1] end
  if newest[2][at] == 'sum' then sum = newest[2][at + 1] end
end
return {last, newest[1], queue, sum}";

/// KEYS: the stream. ARGV: the id that must be the last, the queue's id, the last message's sum,
/// what is uncommon, how long the stream may get, the sum that the entry of that id must have if it
/// is there, the time of their segment, then the messages. Most have the next number, are no pack,
/// and have nothing missing before; uncommon is `INDEX FIELD ID MISSING;` for each other one.
/// Answers the last id there was.
pub(crate) const ADD: &str = "
local key, last = KEYS[1], '0-0'
local info = redis.pcall('XINFO', 'STREAM', key)
if info.err and not string.find(info.err, 'no such key') then return info end
for at = 1, #info, 2 do if info[at] == 'last-generated-id' then last = info[at + 1] end end
if last ~= ARGV[1] then return last end
local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
if ARGV[6] ~= '' and newest and newest[1] == last then
  for at = 1, #newest[2], 2 do
    if newest[2][at] == 'sum' and newest[2][at + 1] ~= ARGV[6] then return last .. '-other' end
  end
end
local odd = {}
for at, field, id, missing in string.gmatch(ARGV[4], '(%d+) (%S+) (%S+) ([^;]*);') do
  odd[tonumber(at)] = {field, id, missing}
end
local number = tonumber(string.match(last, '^%d+'))
local count, words = #ARGV - 7
local function add(...) for _, word in ipairs({...}) do words[#words + 1] = word end end
for at = 1, count do
  number, words = number + 1, {}
  local field, id, missing = 'data', string.format('%.0f-0', number), ''
  if odd[at] then
    field, id, missing = unpack(odd[at])
    number = tonumber(string.match(id, '^%d+'))
  end
  if at == count and ARGV[5] ~= '' then add('MAXLEN', '~', ARGV[5]) end
  add(id)
  if missing ~= '' then add('missing', missing) end
  if string.sub(id, -2) == '-0' then add(field, ARGV[at + 7]) end
  if ARGV[7] ~= '' then add('time', ARGV[7]) end
  if at == count then add('queue', ARGV[2], 'sum', ARGV[3]) end
  redis.call('XADD', key, unpack(words))
end
return last";

/// From here on the script cannot count: its numbers are floating-point.
const EXACT: u64 = 1 << 53;

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

    /// Whether that message may follow this one.
    pub(crate) fn is_before(self, message: &Outgoing<'_>) -> bool {
        message.kind == OutgoingKind::Gap || message.seq >= self.0
    }

    /// The id of a message that follows this one.
    fn next(self, message: &Outgoing<'_>) -> EntryId {
        match message.kind {
            OutgoingKind::Gap => EntryId(self.0, self.1 + 1),
            _ => EntryId(message.seq + 1, 0),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// From here on an id looks like one that the server made from its clock: milliseconds since 1970,
/// the year 2001.
const CLOCK: u64 = 1_000_000_000_000;

/// What the answer to [`ASK`] says: the last id, and what the stream holds of the queue.
pub(crate) fn held_by(about: &About, answer: &[String]) -> Result<(EntryId, Held), String> {
    let About { key, queue, succeeds, .. } = about;
    let [last, newest, there, sum] = answer else {
        return Err(format!("answered {answer:?}, which this cannot read"));
    };
    let foreign = || {
        format!(
            "ends in {last}, which no queue wrote: give the queue a stream of its own; or remove \
             what was added (XDEL) and set the last id back to that of the newest message (XSETID)"
        )
    };
    let id = EntryId::parse(last).ok_or_else(foreign)?;
    if id == EntryId::ZERO {
        return Ok((id, Held::Nothing));
    }
    let seq = id.0.checked_sub(1).ok_or_else(foreign)?;
    if newest != last {
        // The newest entry was deleted. Its id remains.
        return if id.0 < CLOCK {
            Ok((id, Held::Until { seq, sum: None }))
        } else {
            let back = if newest.is_empty() { "NUMBER-0" } else { newest };
            Err(format!(
                "has the last id {last}, which the server made from its clock for an entry that \
                 is deleted: set it back to that of the newest message, XSETID {key} {back}"
            ))
        };
    }
    match u32::from_str_radix(sum, 16) {
        Ok(sum) if *there == *queue => Ok((id, Held::Until { seq, sum: Some(sum) })),
        _ if succeeds.as_ref().is_some_and(|id| there.starts_with(id)) => Ok((id, Held::Nothing)),
        _ if there.len() == queue.len() && there != queue => Err(format!(
            "holds the messages of queue {there}, but this queue is {queue}: if this queue goes on \
             after that one, say so with `--succeed {there}`; else name another key"
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
    /// The call that stores these messages behind the entry `from`, which has the sum `before`;
    /// `hash` is the script's.
    pub(crate) fn new(
        about: &About,
        hash: &str,
        (from, before): (EntryId, Option<u32>),
        messages: &[Outgoing<'_>],
    ) -> Parcel {
        let (mut to, mut uncommon) = (from, String::new());
        for (at, message) in messages.iter().enumerate() {
            let id = to.next(message);
            let field = match message.kind {
                OutgoingKind::Pack { .. } => "pack",
                _ => "data",
            };
            let is_next = id == EntryId(to.0 + 1, 0) && id.0 < EXACT && field == "data";
            if !is_next || !message.missing_before.is_empty() {
                let missing: Vec<_> =
                    message.missing_before.iter().map(ToString::to_string).collect();
                uncommon += &format!("{} {field} {id} {};", at + 1, missing.join(", "));
            }
            to = id;
        }
        let sum = messages.last().map_or(0, |message| message.sum);
        let payload: usize = messages.iter().map(|message| message.bytes.len() + 16).sum();
        let mut call = Words::new(11 + messages.len(), payload + uncommon.len() + 320);
        let (from_id, sum) = (from.to_string(), format!("{sum:08x}"));
        let before = before.map(|sum| format!("{sum:08x}")).unwrap_or_default();
        let max_len = about.max_len.map(|len| len.to_string()).unwrap_or_default();
        let time = messages.first().and_then(|message| message.segment_time);
        let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let time = time.map(|since| since.as_millis().to_string()).unwrap_or_default();
        let About { key, queue, .. } = about;
        let script = ["EVALSHA", hash, "1", key];
        let words = [&from_id, queue.as_str(), &sum, &uncommon, &max_len, &before, &time];
        for word in script.into_iter().chain(words) {
            call.add(word.as_bytes());
        }
        for message in messages {
            call.add(message.bytes);
        }
        if about.replicas > 0 {
            call.0.extend_from_slice(&wait_for(about.replicas));
        }
        Parcel { bytes: call.0, from, to }
    }
}

/// The call that waits until so many replicas have what this connection wrote, for a while.
pub(crate) fn wait_for(replicas: u32) -> Vec<u8> {
    let mut call = Words::new(3, 64);
    for word in ["WAIT", &replicas.to_string(), "8000"] {
        call.add(word.as_bytes());
    }
    call.0
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
