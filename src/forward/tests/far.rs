//! A far side in memory: it dies and loses unsynced messages, lets writes of an earlier session
//! arrive late, rejects messages, answers late or not at all, removes messages by their age, by a
//! purge or a deletion, and is removed and made anew.

mod link;
mod removing;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::near::{LONGEST, POISON};
use super::stored::{Name, Stored};
use crate::forward::destination::{Destination, Limits, Outgoing, OutgoingKind, Trouble};
use crate::forward::driver::TRIES;
use crate::forward::far_side::{Held, Mark, Position};
use crate::forward::source::Source;
use crate::tests::sim::Rng;
pub(super) use link::Link;

/// How it makes each write conditional on the message before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    /// Each message separately, by the position, the number and the sum of the one before: many in
    /// flight.
    Each,
    /// A whole call or nothing, by the position: one in flight.
    Batch,
    /// A whole call or nothing, by the number and the sum of the one before: many in flight.
    Number,
}

#[derive(Debug)]
struct Write {
    messages: Vec<Stored>,
    behind: Name,
    at: u64,
    /// When it arrives.
    due: Duration,
}

/// One session's connection.
#[derive(Debug, Default)]
struct Pipe {
    writes: VecDeque<Write>,
    /// Until when they occupy the link.
    busy: Duration,
    /// The last message as the client knows it, and its position.
    last: Name,
    at: u64,
    stored: u64,
    /// The far side's store and its end when the session began.
    began: Position,
    reported: u64,
    refused: Option<Trouble>,
    /// The connection delivers nothing and reports no error.
    stuck: bool,
}

#[derive(Debug)]
pub(super) struct Far {
    pub(super) rng: Rng,
    /// Chooses how many messages each session packs into one, up to `most_packed`.
    packs: Rng,
    most_packed: u64,
    pub(super) chain: Chain,
    pub(super) link: Link,
    pub(super) limits: Limits,
    pub(super) log: Vec<Stored>,
    /// The messages that it stored and removed.
    pub(super) removed: Vec<Stored>,
    /// How often it was made anew.
    pub(super) store: u64,
    /// Whether a session began since it was made anew.
    is_known: bool,
    /// Whether the forwarder's row has to name a former store, because numbers are missing.
    pub(super) may_keep_store: bool,
    /// Numbers that it stored while the row named another store.
    pub(super) misnamed: Vec<u64>,
    /// The position of the last message that it stored.
    end: u64,
    /// The last position that a death keeps.
    synced: u64,
    /// Where the last acknowledged message lies.
    position: Option<Position>,
    pipe: Option<Pipe>,
    late: Vec<Pipe>,
    /// The far side acknowledged every number below, or answered that it holds it.
    pub(super) high: u64,
    /// Numbers that the far side acknowledged and then lost.
    pub(super) lost: Vec<Range<u64>>,
    /// How often it rejects a number before it accepts it.
    moods: BTreeMap<u64, u64>,
    /// Calls that fail from now on.
    pub(super) down: u64,
    /// Whether the far side causes no more failures.
    pub(super) well: bool,
    /// Its last answer, until the test takes it.
    pub(super) answered: Option<Held>,
}

impl Far {
    pub(super) fn new(seed: u64, chain: Chain, most_packed: u64) -> Far {
        let (mut rng, packs) = (Rng(seed), Rng(!seed));
        let limits = Limits {
            longest: LONGEST as u64,
            send_messages: 1 + rng.below(4) as usize,
            send_bytes: 30 + rng.below(60),
            in_flight_messages: 1 + rng.below(8) as usize,
            in_flight_bytes: 40 + rng.below(200),
            pack_messages: 1,
            pack_bytes: 60 + seed % 100,
        };
        Far {
            rng,
            packs,
            most_packed,
            chain,
            link: Link::default(),
            limits,
            log: Vec::new(),
            removed: Vec::new(),
            store: 0,
            is_known: true,
            may_keep_store: false,
            misnamed: Vec::new(),
            end: 0,
            synced: 0,
            position: None,
            pipe: None,
            late: Vec::new(),
            high: 0,
            lost: Vec::new(),
            moods: BTreeMap::new(),
            down: 0,
            well: false,
            answered: None,
        }
    }

    /// Every message that it stored and did not lose, in order.
    pub(super) fn all(&self) -> Vec<&Stored> {
        let mut all: Vec<&Stored> = self.removed.iter().chain(&self.log).collect();
        all.sort_by_key(|stored| stored.at);
        all
    }

    /// The server handles one write of a connection, even if the client has left.
    fn serve(&mut self, pipe: &mut Pipe) -> bool {
        let Some(write) = pipe.writes.pop_front_if(|write| write.due <= self.link.now) else {
            return false;
        };
        let last = self.all().last().and_then(|last| last.name());
        let by_position = write.at == self.end;
        let by_name = write.behind == last;
        let fits = match self.chain {
            Chain::Each => by_position && by_name,
            Chain::Batch => by_position,
            Chain::Number => write.behind == last,
        };
        if !fits {
            let why = "not behind the one it was sent behind".into();
            let seq = write.messages.first().map_or(0, |message| message.seq);
            pipe.refused.get_or_insert(Trouble::NotStored { seq, why });
            return true;
        }
        if let Some(seq) = write.messages.iter().find_map(|message| self.refuses(message)) {
            let why = "it does not please".to_owned();
            pipe.refused.get_or_insert(Trouble::Refused { seq, why });
            return true;
        }
        if pipe.refused.is_none() {
            let last = write.messages.iter().rfind(|it| it.kind != OutgoingKind::Gap);
            pipe.stored = last.map_or(pipe.stored, |message| message.seq + 1);
        }
        for mut message in write.messages {
            self.end += 1;
            message.at = self.end;
            self.log.push(message);
        }
        true
    }

    fn refuses(&mut self, message: &Stored) -> Option<u64> {
        if message.kind == OutgoingKind::Gap {
            return None;
        }
        if message.unpacked().iter().any(|it| it.bytes.first() == Some(&POISON)) {
            return Some(message.seq);
        }
        let is_new = !self.moods.contains_key(&message.seq);
        let first = if is_new && !self.well && self.rng.percent(3) { self.rng.below(5) } else { 0 };
        // (To refuse a pack once, for a message before its last one, counts for that one.)
        let most = if self.most_packed > 1 { TRIES - 2 } else { TRIES - 1 };
        let mood = self.moods.entry(message.seq).or_insert(first.min(most.into()));
        *mood = if self.well { 0 } else { *mood };
        let refuses = *mood > 0;
        *mood = mood.saturating_sub(1);
        refuses.then_some(message.seq)
    }

    /// Lets some writes of earlier sessions arrive.
    pub(super) fn serve_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let index = self.rng.below(self.late.len() as u64) as usize;
        let mut pipe = self.late.swap_remove(index);
        if self.chain == Chain::Batch && pipe.began.store != self.store {
            // A position alone cannot tell a store that was made anew: see `docs/forward.md`.
            return;
        }
        for _ in 0..=self.rng.below(3) {
            self.serve(&mut pipe);
        }
        if !pipe.writes.is_empty() {
            self.late.push(pipe);
        }
    }

    /// Ends the session; its pending writes arrive now, later or never.
    pub(super) fn cut(&mut self) {
        let Some(mut pipe) = self.pipe.take() else {
            return;
        };
        match self.rng.below(3) {
            0 => {}
            1 if !pipe.stuck => while self.serve(&mut pipe) {},
            _ => self.late.push(pipe),
        }
    }

    /// Discards all pending writes.
    pub(super) fn silence(&mut self) {
        (self.pipe, self.late) = (None, Vec::new());
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.end;
    }

    /// Returns whether a silence is due to more than the link.
    pub(super) fn is_stuck(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.stuck)
    }

    pub(super) fn get_stuck(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.stuck = true;
        }
    }

    fn is_down(&mut self) -> bool {
        let down = self.down > 0 && !self.well;
        self.down = self.down.saturating_sub(1);
        down
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let is_down = self.is_down();
        // The client does not know how far the server got before the trouble.
        let reached = match is_down {
            true if self.rng.percent(50) => 0,
            true => self.rng.below(messages.len() as u64 + 1) as usize,
            false => messages.len(),
        };
        let Some(mut pipe) = self.pipe.take() else {
            return Err(again("not connected"));
        };
        let at_once = if self.chain == Chain::Each { 1 } else { messages.len() };
        let reached = if at_once > 1 && reached < messages.len() { 0 } else { reached };
        let under_way = pipe.writes.iter().flat_map(|write| &write.messages);
        let in_flight = under_way.filter(|it| it.kind != OutgoingKind::Gap).count()
            + messages.iter().filter(|it| it.kind != OutgoingKind::Gap).count();
        assert!(messages.len() <= self.limits.send_messages, "too many messages at once");
        for message in messages {
            let (longest, packed) = match message.kind {
                OutgoingKind::Pack { messages } => (self.limits.pack_bytes, messages),
                _ => (self.limits.longest, 1),
            };
            assert!(message.bytes.len() as u64 <= longest, "a message that is too long");
            assert!(packed <= self.limits.pack_messages, "{packed} messages in a pack");
        }
        assert!(in_flight <= self.limits.in_flight_messages, "too many in flight");
        for messages in messages[..reached].chunks(at_once) {
            if self.chain == Chain::Batch {
                self.link.wait_for(pipe.busy, pipe.stuck);
                while !pipe.stuck && self.serve(&mut pipe) {}
                if !pipe.writes.is_empty() || pipe.refused.is_some() {
                    // One at a time: the client waits for the answer, and then stops waiting.
                    let trouble = pipe.refused.take();
                    self.pipe = Some(pipe);
                    return Err(trouble.unwrap_or_else(|| again("no answer")));
                }
            }
            let (behind, at) = (pipe.last, pipe.at);
            let mut stored = Vec::new();
            for message in messages {
                let message = Stored::of(message, pipe.last);
                pipe.last = message.name();
                // (The client learns the result of a whole call, since no other write comes
                // between.)
                pipe.at += 1;
                stored.push(message);
            }
            pipe.busy = self.link.busy_until(pipe.busy, &stored);
            let due = pipe.busy + self.link.lag;
            pipe.writes.push_back(Write { messages: stored, behind, at, due });
        }
        self.link.check(pipe.writes.iter().flat_map(|write| &write.messages));
        let refused = pipe.refused.take();
        self.pipe = Some(pipe);
        match refused {
            _ if is_down => Err(again("the connection broke")),
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    fn acknowledged(&mut self) -> Result<u64, Trouble> {
        if self.is_down() {
            return Err(again("the connection broke"));
        }
        let Some(mut pipe) = self.pipe.take() else {
            return Err(again("not connected"));
        };
        if !pipe.stuck {
            let most = if self.well { 8 } else { self.rng.below(4) };
            // (The link alone makes a slow one slow.)
            let most = if self.link.is_slow() { u64::MAX } else { most };
            for _ in 0..most {
                if !self.serve(&mut pipe) {
                    break;
                }
            }
        }
        let news = pipe.stored.saturating_sub(pipe.reported);
        let is_all = self.well || self.link.is_slow();
        pipe.reported += if is_all { news } else { self.rng.below(news + 1) };
        self.high = self.high.max(pipe.reported);
        let reported = pipe.reported;
        let last = self.all().into_iter().rfind(|stored| stored.seq < reported).map(|it| it.at);
        // (The client does not learn that the store was made anew.)
        let at = pipe.began.at.max(last.unwrap_or_default());
        self.position = Some(Position { at, ..pipe.began });
        let refused = pipe.refused.take();
        self.pipe = Some(pipe);
        refused.map_or(Ok(reported), Err)
    }

    fn resume(&mut self, mark: Option<Mark>) -> Result<Held, Trouble> {
        self.cut();
        if self.is_down() {
            return Err(again("no connection"));
        }
        let last = self.log.last();
        let until = last.map_or(0, |message| message.seq + 1);
        let until_held = last.map(|last| Held::Until { seq: last.seq, sum: Some(last.sum) });
        let held = match mark.filter(|mark| mark.position.store == self.store) {
            Some(mark) => {
                let (at, end) = (mark.position.at, self.end);
                match until_held {
                    Some(held) if last.is_some_and(|last| last.at == end) => held,
                    _ if end >= at => Held::Removed { stored: Some(end - at) },
                    _ => Held::SetBack { lost: Some(at - end) },
                }
            }
            None => until_held.unwrap_or(Held::Nothing),
        };
        self.answered = Some(held);
        let is_other = mark.is_some_and(|mark| mark.position.store != self.store);
        if is_other && (!self.is_known || self.may_keep_store) {
            self.misname_all();
        }
        self.is_known = true;
        self.limits.pack_messages = 1 + self.packs.below(self.most_packed);
        let (last, at) = (self.all().last().and_then(|last| last.name()), self.end);
        let stored = last.filter(|_| matches!(held, Held::Removed { .. }));
        self.high = self.high.max(until).max(stored.map_or(0, |(seq, ..)| seq + 1));
        let began = Position { store: self.store, at };
        self.position = Some(began);
        // What is sent again, because it may be missing, is acknowledged anew.
        let until = if matches!(held, Held::Until { .. }) { until } else { 0 };
        let pipe = Pipe { last, at, began, stored: until, reported: until, ..Pipe::default() };
        self.pipe = Some(pipe);
        if !self.well && self.rng.percent(30) {
            // After the answer.
            self.serve_late();
        }
        Ok(held)
    }
}

fn again(why: &str) -> Trouble {
    Trouble::Again(why.into(), Duration::ZERO)
}

#[derive(Debug, Clone)]
pub(super) struct FarHandle(pub(super) Arc<Mutex<Far>>);

impl Destination for FarHandle {
    fn resume(&mut self, source: &Source, mark: Option<Mark>) -> Result<Held, Trouble> {
        assert_eq!(source.key(), "near");
        self.0.lock().resume(mark)
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        self.0.lock().send(messages)
    }

    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        self.0.lock().acknowledged()
    }

    fn limits(&self) -> Limits {
        self.0.lock().limits
    }

    fn position(&self) -> Option<Position> {
        self.0.lock().position
    }
}
