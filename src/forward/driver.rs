//! The protocol, the same for all engines: ask, compare, send, acknowledge; any trouble ends the
//! session, and the next one asks again. No message is ever sent a second time within a session:
//! only the far side knows whether the first time counted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Error;
use crate::forward::backoff::Backoff;
use crate::forward::compare::{Here, Verdict, compare};
use crate::forward::destination::{
    Destination, FarError, Held, MissingCause, MissingNumbers, Outgoing, Source, Trouble,
};
use crate::forward::halt::Halt;
use crate::forward::keeping::Keeping;
use crate::forward::local::{Local, NextRead};
use crate::forward::rules::{ForwardOptions, TellGaps};
use crate::forward::session::{Parcel, Session};
use crate::message::Message;

/// How often a message is tried that the far side refuses.
pub(super) const TRIES: u32 = 5;
/// Between two flushes of the places.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Between two moves of the kept place.
const TRIM_EVERY: Duration = Duration::from_millis(100);

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Worked {
    /// Something was sent, or is in flight: go on.
    Busy,
    /// All that is here is at the far side.
    Idle,
    /// There is no session, and none is begun before this time has passed.
    Pause(Duration),
}

/// Puts a refused message away, for good, before it is left out.
pub(super) type PutAway<'a> = Box<dyn FnMut(&Message, &str) -> Result<(), Error> + Send + 'a>;

/// What becomes of a message that is refused for good.
pub(super) enum WhenRefused<'a> {
    Stop,
    Skip,
    PutAway(PutAway<'a>),
}

/// What ends a session.
enum Over {
    Trouble(Trouble),
    Halt(Halt),
}

impl From<Trouble> for Over {
    fn from(trouble: Trouble) -> Over {
        Over::Trouble(trouble)
    }
}

impl From<Error> for Over {
    fn from(error: Error) -> Over {
        Over::Halt(Halt::Queue(error))
    }
}

/// Counts of one driver.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pub(super) refused: u64,
    pub(super) sessions: u64,
    pub(super) troubles: u64,
}

pub(super) struct Driver<'a, L, D> {
    pub(super) local: L,
    pub(super) destination: D,
    source: Source,
    options: ForwardOptions,
    keeping: Keeping,
    when_refused: WhenRefused<'a>,
    backoff: Backoff,
    session: Option<Session>,
    /// No session is begun before this moment.
    not_before: Duration,
    flushed: Duration,
    trimmed: Duration,
    /// The place when it was last flushed; `None`: not by this driver.
    flushed_place: Option<(u64, u64)>,
    /// A number that the far side refuses, and how often it did.
    refused: Option<(u64, u32)>,
    /// Numbers that are refused for good and not yet passed: why, and whether they are put away.
    given_up: BTreeMap<u64, (String, Away)>,
    pub(super) counts: Counts,
    /// Why there is no session.
    pub(super) trouble: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    NotYet,
    Done,
}

impl<'a, L: Local, D: Destination> Driver<'a, L, D> {
    pub(super) fn new(
        local: L,
        destination: D,
        source: Source,
        options: ForwardOptions,
        when_refused: WhenRefused<'a>,
        seed: u64,
    ) -> Driver<'a, L, D> {
        Driver {
            keeping: Keeping { messages: options.keep_messages, bytes: options.keep_bytes },
            backoff: Backoff::new(options.first_pause, options.longest_pause, seed),
            local,
            destination,
            source,
            options,
            when_refused,
            session: None,
            not_before: Duration::ZERO,
            flushed: Duration::ZERO,
            trimmed: Duration::ZERO,
            flushed_place: None,
            refused: None,
            given_up: BTreeMap::new(),
            counts: Counts::default(),
            trouble: None,
        }
    }

    /// Does what can be done at the moment `now`, which never goes back. Waits up to `wait` for an
    /// acknowledgement, when there is nothing to send.
    pub(super) fn step(&mut self, now: Duration, wait: Duration) -> Result<Worked, Halt> {
        self.maintain(now)?;
        if let Some(left) = self.not_before.checked_sub(now).filter(|left| !left.is_zero()) {
            return Ok(Worked::Pause(left));
        }
        match self.go_on(now, wait) {
            Ok(stepped) => Ok(stepped),
            Err(Over::Halt(halt)) => Err(halt),
            Err(Over::Trouble(trouble)) => self.end_session(trouble, now),
        }
    }

    /// Moves the kept place, and makes both places durable, each when it is time.
    fn maintain(&mut self, now: Duration) -> Result<(), Halt> {
        if let Some(session) = &self.session
            && now >= self.trimmed + TRIM_EVERY
        {
            self.trimmed = now;
            self.keeping.trim(&mut self.local, session.acknowledged)?;
        }
        let place = Some((self.local.place(), self.local.kept()));
        if now >= self.flushed + FLUSH_EVERY && place != self.flushed_place {
            self.flushed = now;
            self.flush()?;
        }
        Ok(())
    }

    /// Makes both places durable.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.local.flush()?;
        self.flushed_place = Some((self.local.place(), self.local.kept()));
        Ok(())
    }

    fn go_on(&mut self, now: Duration, wait: Duration) -> Result<Worked, Over> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.begin(now)?,
        };
        let outcome = self.send_and_hear(&mut session, now, wait);
        if outcome.is_ok() {
            self.session = Some(session);
        }
        outcome
    }

    /// Asks the far side what it holds, and compares.
    fn begin(&mut self, now: Duration) -> Result<Session, Over> {
        self.counts.sessions += 1;
        let held = self.destination.resume(&self.source)?;
        let (sum, last) = match held {
            Held::Until { seq, sum } => (self.local.sum(seq)?, sum.map(|sum| (seq, sum))),
            Held::Nothing | Held::Forgotten => (None, None),
        };
        let here = Here {
            place: self.local.place(),
            next: self.local.next_number(),
            began: self.local.began(),
            oldest: self.local.oldest(),
            sum,
        };
        let (at, lost) = match compare(held, &here, self.options.if_forgotten) {
            Verdict::GoOn { at, lost } => (at, lost),
            Verdict::OlderCopy { seq, next } => {
                return Err(Over::Halt(Halt::OlderCopy { seq, next }));
            }
            Verdict::Forgotten => return Err(Over::Halt(Halt::Forgotten { place: here.place })),
        };
        if at < here.place {
            match self.local.move_back(at) {
                // The queue has dropped it this very moment.
                Err(error @ Error::NotFound { .. }) => return Err(again(error)),
                moved => moved?,
            }
        } else {
            self.local.move_place(at)?;
        }
        self.local.read_from_place(at)?;
        self.trouble = None;
        Ok(Session::new(self.destination.limits(), at, lost, last, now))
    }

    /// Sends what there is and fits, then looks what was acknowledged.
    fn send_and_hear(
        &mut self,
        session: &mut Session,
        now: Duration,
        wait: Duration,
    ) -> Result<Worked, Over> {
        let batch = self.gather(session)?;
        let sends = !batch.items.is_empty();
        if sends {
            let outgoing: Vec<Outgoing<'_>> =
                batch.items.iter().map(|item| item.outgoing()).collect();
            self.destination.send(&outgoing)?;
            session.note_sent(&batch, now);
            self.counts.sent += batch.items.len() as u64;
            if planted!(ForwardPlaceAtSent) {
                self.local.move_place(session.unsent)?;
            }
        }
        if session.in_flight() == 0 {
            return Ok(if sends { Worked::Busy } else { Worked::Idle });
        }
        let wait = if sends { Duration::ZERO } else { wait };
        let until = self.destination.acknowledged(wait)?;
        if until > session.unsent {
            return Err(again(format!(
                "the far side acknowledged what is below {until}, and {} was not sent yet",
                session.unsent
            )));
        }
        if until > session.acknowledged {
            self.acknowledge(session, until, now)?;
        } else if now >= session.heard + self.options.patience {
            return Err(again(format!("no answer for {:?}", self.options.patience)));
        }
        Ok(Worked::Busy)
    }

    fn acknowledge(
        &mut self,
        session: &mut Session,
        until: u64,
        now: Duration,
    ) -> Result<(), Error> {
        let count = session.note_acknowledged(until, now);
        if count > 0 {
            self.backoff.reset();
        }
        self.counts.acknowledged += count;
        self.refused = self.refused.filter(|(seq, _)| *seq >= until);
        self.given_up = self.given_up.split_off(&until);
        self.local.move_place(until)
    }

    /// Reads messages to send, as many as fit.
    fn gather(&mut self, session: &mut Session) -> Result<Parcel, Over> {
        let mut batch = Parcel::default();
        // After a refusal messages go one by one, so that it is clear which one is meant.
        let most = if self.refused.is_some() { 1 } else { usize::MAX };
        while session.has_room(&batch, most) {
            let message = match session.waiting.take() {
                Some(message) => message,
                None => match self.local.read()? {
                    NextRead::Message(message) => message,
                    NextRead::Gap(gap) => {
                        session.note_passed(gap.first);
                        session.note_missing(MissingNumbers::of(gap));
                        continue;
                    }
                    NextRead::Nothing => {
                        if self.options.gaps == TellGaps::Message {
                            session.add_gap(&mut batch);
                        }
                        break;
                    }
                },
            };
            let (seq, len) = (message.seq(), message.len() as u64);
            if seq < session.expected {
                continue;
            }
            session.note_passed(seq);
            if let Some(why) = self.why_refused(session, seq, len) {
                let is_stop = matches!(self.when_refused, WhenRefused::Stop);
                if is_stop && (session.in_flight() > 0 || !batch.items.is_empty()) {
                    // The ones before it first.
                    session.waiting = Some(message);
                    break;
                }
                self.put_away(&message, why)?;
                let cause = MissingCause::Refused;
                session.note_missing(MissingNumbers { first: seq, last: seq, cause });
                session.expected = seq + 1;
                continue;
            }
            if self.options.gaps == TellGaps::Message {
                session.add_gap(&mut batch);
            }
            if !session.has_room(&batch, most) || !session.fits(&batch, len) {
                session.waiting = Some(message);
                break;
            }
            session.add(&mut batch, message, self.options.gaps);
        }
        Ok(batch)
    }

    /// Why the far side does not take this message, if it is refused for good.
    fn why_refused(&self, session: &Session, seq: u64, len: u64) -> Option<String> {
        if let Some((why, _)) = self.given_up.get(&seq) {
            return Some(why.clone());
        }
        let longest = session.limits.longest;
        (len > longest).then(|| format!("{len} bytes are too many: it takes up to {longest}"))
    }

    /// Does with a message what is to be done with refused ones.
    fn put_away(&mut self, message: &Message, why: String) -> Result<(), Over> {
        let seq = message.seq();
        let (_, away) = self.given_up.entry(seq).or_insert((why.clone(), Away::NotYet));
        if *away == Away::Done {
            return Ok(());
        }
        match &mut self.when_refused {
            WhenRefused::Stop => return Err(Over::Halt(Halt::Refused { seq, why })),
            WhenRefused::Skip => {}
            WhenRefused::PutAway(put_away) => put_away(message, &why).map_err(again)?,
        }
        *away = Away::Done;
        self.counts.refused += 1;
        Ok(())
    }

    /// Ends the session and says how long to wait, or why there is no sense in another one.
    fn end_session(&mut self, trouble: Trouble, now: Duration) -> Result<Worked, Halt> {
        self.counts.troubles += 1;
        let (what, at_least) = match trouble {
            Trouble::Lost(error) => return Err(Halt::Lost(error)),
            Trouble::Again(error, at_least) => (error.to_string(), at_least),
            Trouble::Refused { seq, why } => {
                let tries = match self.refused {
                    Some((last, tries)) if last == seq => tries + 1,
                    _ => 1,
                };
                let for_good = tries >= TRIES;
                if for_good {
                    self.refused = None;
                    self.given_up.insert(seq, (why.clone(), Away::NotYet));
                } else {
                    self.refused = Some((seq, tries));
                }
                (format!("message {seq} is refused: {why}"), Duration::ZERO)
            }
        };
        self.trouble = Some(what);
        let pause = self.backoff.pause(at_least);
        self.not_before = now + pause;
        Ok(Worked::Pause(pause))
    }
}

/// A trouble that ends the session, and after which it is asked again.
fn again(why: impl Into<FarError>) -> Over {
    Over::Trouble(Trouble::Again(why.into(), Duration::ZERO))
}
