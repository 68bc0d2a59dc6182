//! The protocol, the same for all engines: ask, compare, send, acknowledge; any trouble ends the
//! session, and the next one asks again. The driver never sends a message twice within a session:
//! only the far side knows whether it stored the first one.

use std::time::Duration;

use crate::error::Error;
use crate::forward::backoff::Backoff;
use crate::forward::compare::{GoOn, Here, OTHERS_WROTE, compare, others_wrote};
use crate::forward::destination::{Destination, MissingNumbers, Trouble};
use crate::forward::far_side::Held;
use crate::forward::halt::{Halt, Over, again};
use crate::forward::keeping::Keeping;
use crate::forward::link_rate::LinkRate;
use crate::forward::local::{Acknowledged, Local, NextRead};
use crate::forward::parcel::Parcel;
use crate::forward::progress::{Counts, Worked};
use crate::forward::rules::{ForwardOptions, WhenRefused};
use crate::forward::session::Session;
use crate::forward::source::Source;
use crate::message::Message;

/// How often the driver tries a message that the far side rejects.
pub(super) const TRIES: u32 = 5;
/// The time between two flushes of the places.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The time between two moves of the kept place.
const TRIM_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Driver<'a, D> {
    pub(super) local: Box<dyn Local>,
    pub(super) destination: D,
    source: Source,
    options: ForwardOptions,
    keeping: Keeping,
    when_refused: WhenRefused<'a>,
    backoff: Backoff,
    link_rate: LinkRate,
    session: Option<Session>,
    /// Whether the far side has acknowledged something, or had nothing to acknowledge: then only a
    /// person's choice ends the forwarder.
    has_worked: bool,
    /// The driver begins no session before this moment.
    not_before: Duration,
    flushed: Duration,
    trimmed: Duration,
    /// The places at the last flush; `None` before this driver's first flush.
    flushed_place: Option<(Acknowledged, u64)>,
    /// A number that the far side rejects, how often it did, and why.
    refused: Option<(u64, u32, String)>,
    pub(super) counts: Counts,
    /// Why the last session ended, until the far side acknowledges something.
    pub(super) trouble: Option<String>,
    /// The first number that the sessions before this one handed to no far side.
    handed_before: u64,
    /// What a person should know of a far side to which somebody else wrote.
    pub(super) others_wrote: Option<&'static str>,
}

impl<'a, D: Destination> Driver<'a, D> {
    pub(super) fn new(
        local: Box<dyn Local>,
        destination: D,
        source: Source,
        options: ForwardOptions,
        when_refused: WhenRefused<'a>,
        seed: u64,
    ) -> Driver<'a, D> {
        Driver {
            keeping: Keeping { messages: options.keep_messages, bytes: options.keep_bytes },
            backoff: Backoff::new(options.first_pause, options.longest_pause, seed),
            local,
            destination,
            source,
            options,
            when_refused,
            link_rate: LinkRate::new(),
            session: None,
            has_worked: false,
            not_before: Duration::ZERO,
            flushed: Duration::ZERO,
            trimmed: Duration::ZERO,
            flushed_place: None,
            refused: None,
            counts: Counts::default(),
            trouble: None,
            handed_before: 0,
            others_wrote: None,
        }
    }

    /// Does the work that is possible at the moment `now`, which never decreases. Waits up to
    /// `wait` for an acknowledgement, when there is nothing to send.
    pub(super) fn step(&mut self, now: Duration, wait: Duration) -> Result<Worked, Halt> {
        self.local.look()?;
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

    /// Moves the kept place, and makes both places durable, each when it is due.
    fn maintain(&mut self, now: Duration) -> Result<(), Halt> {
        if now >= self.trimmed + TRIM_EVERY {
            self.trimmed = now;
            self.trim()?;
        }
        let place = Some((self.local.acknowledged(), self.local.kept()));
        if now >= self.flushed + FLUSH_EVERY && place != self.flushed_place {
            self.flushed = now;
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the work: keeps no more than is wanted, and makes both places durable.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.trim()?;
        self.flush()
    }

    /// Moves the kept place up. It stays below every place that a power cut may bring back.
    fn trim(&mut self) -> Result<(), Error> {
        let (Some(session), Some((flushed, _))) = (&self.session, &self.flushed_place) else {
            return Ok(());
        };
        self.keeping.trim(&mut *self.local, session.acknowledged.min(flushed.there))
    }

    /// Makes both places durable.
    fn flush(&mut self) -> Result<(), Error> {
        self.local.flush()?;
        self.flushed_place = Some((self.local.acknowledged(), self.local.kept()));
        Ok(())
    }

    fn go_on(&mut self, now: Duration, wait: Duration) -> Result<Worked, Over> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.begin(now)?,
        };
        let outcome = self.send_and_hear(&mut session, now, wait);
        if let Err(Over::Trouble(Trouble::NotStored { seq, .. })) = outcome {
            // (A report of a gap has the number of the message before it.)
            let handed = self.handed_before.max(seq).max(session.acknowledged);
            let before = self.local.acknowledged();
            self.local.set_acknowledged(Acknowledged { handed, ..before })?;
        }
        match &outcome {
            Ok(_) => self.session = Some(session),
            Err(Over::Trouble(Trouble::Again(_, pause))) if !pause.is_zero() => {
                self.link_rate.note_full();
            }
            Err(_) if session.in_flight() > 0 => self.link_rate.note_trouble(),
            Err(_) => {}
        }
        outcome
    }

    /// Asks the far side what it holds, and compares.
    fn begin(&mut self, now: Duration) -> Result<Session, Over> {
        self.counts.sessions += 1;
        let mut acknowledged = self.local.acknowledged();
        let held = self.destination.resume(&self.source, acknowledged.mark())?;
        let limits = self.destination.limits();
        let here = Here::of(&*self.local);
        let local = &mut *self.local;
        let chain_over = |from, sum, to| local.chain_over(from, sum, to);
        let GoOn { at, chain, lost } = compare(held, &here, self.options.if_forgotten, chain_over)?;
        if others_wrote(held, &acknowledged) {
            // A store that is set back has lost their messages, too.
            (acknowledged.counts_differ, self.others_wrote) = (true, Some(OTHERS_WROTE));
        }
        acknowledged.handed = acknowledged.handed.max(at);
        self.handed_before = acknowledged.handed;
        self.counts.lost_there += lost.map_or(0, |lost| lost.last - lost.first + 1);
        let left_out = acknowledged.there..acknowledged.until;
        let goes_back = at < left_out.start;
        let until = if goes_back { at } else { at.max(left_out.end) };
        let position = self.destination.position();
        let known = acknowledged.position.map(|position| position.store);
        let is_other_store = position.is_some_and(|position| known != Some(position.store));
        // The former position tells a later session what this store has lost (with packs it would
        // take what is sent again for it), the former place that numbers are missing. Until the far
        // side has acknowledged something, nobody knows which chain its messages are in.
        let counts = !acknowledged.counts_differ && (lost.is_some() || !is_other_store);
        acknowledged = match counts && (goes_back || lost.is_some()) {
            false => Acknowledged { until, there: at, position, chain, ..acknowledged },
            true => Acknowledged { until: until.max(left_out.start), chain: None, ..acknowledged },
        };
        if acknowledged != self.local.acknowledged() {
            // A power cut must not bring back a chain that ended, another store, or wrong counts.
            self.local.set_acknowledged(acknowledged)?;
            self.flush()?;
        }
        self.local.read_from(at)?;
        let last = match held {
            Held::Until { seq, sum: Some(sum) } => Some((seq, sum)),
            _ => None,
        };
        let mut session = Session::new(limits, at, chain.unwrap_or_default(), lost, last, now);
        session.left_out = left_out;
        Ok(session)
    }

    /// Sends the available messages that fit, then reads acknowledgements.
    fn send_and_hear(
        &mut self,
        session: &mut Session,
        now: Duration,
        wait: Duration,
    ) -> Result<Worked, Over> {
        let batch = self.gather(session)?;
        let sends = !batch.items.is_empty();
        if sends {
            let first = batch.first_seq().filter(|_| self.options.times);
            let time = first.map_or(Ok(None), |seq| self.local.segment_time(seq))?;
            self.note_handed(session, &batch)?;
            self.destination.send(&batch.outgoing(time))?;
            session.note_sent(&batch, now);
            self.counts.sent += batch.items.iter().map(|item| item.messages).sum::<u64>();
            self.counts.sent_bytes += batch.bytes;
            if planted!(ForwardPlaceAtSent) {
                let (there, before) = (session.unsent, self.local.acknowledged());
                self.local.set_acknowledged(Acknowledged { until: there, there, ..before })?;
            }
        }
        let is_idle = session.in_flight() == 0;
        let wait = if sends || is_idle { Duration::ZERO } else { wait };
        // An idle session asks as well: the far side may have gone.
        let until = self.destination.acknowledged(wait)?;
        if is_idle && !sends {
            (self.has_worked, self.trouble) = (true, None);
            self.pass_left_out(session)?;
            return Ok(Worked::Idle);
        }
        if until > session.unsent {
            return Err(again(format!(
                "the far side acknowledged the messages below {until}, but message {} was not sent yet",
                session.unsent
            )));
        }
        if until > session.acknowledged {
            self.acknowledge(session, until, now)?;
        } else if now
            >= session.heard + self.options.patience + self.link_rate.longest(session.sent_bytes)
        {
            self.link_rate.note_silence();
            let silence = now.saturating_sub(session.heard);
            return Err(again(format!("no answer for {} s", silence.as_secs())));
        }
        Ok(Worked::Busy)
    }

    /// Moves the place behind the numbers that are left out or missing, when nothing before them is
    /// under way. The message behind them reports them.
    fn pass_left_out(&mut self, session: &Session) -> Result<(), Error> {
        let mut known = self.local.acknowledged();
        if session.expected <= known.until {
            return Ok(());
        }
        (known.until, known.there) = (session.expected, session.acknowledged);
        if known.handed <= known.until {
            // It stored none of them.
            known.handed = known.there;
        }
        known.position = self.destination.position();
        self.local.set_acknowledged(known)
    }

    /// Stores what the next send hands to the far side: a later session compares with it what
    /// the far side says.
    fn note_handed(&mut self, session: &Session, batch: &Parcel) -> Result<(), Error> {
        let mut known = self.local.acknowledged();
        let last = batch.items.last().map_or(0, |item| item.seq + 1);
        // (Neither a pack nor a report of a gap is one message.)
        let differ = session.has_left_out && !planted!(ForwardLeftOutCounted)
            || batch.items.iter().any(|item| item.messages != 1);
        let begins = differ && !known.counts_differ;
        if last <= known.handed && !begins {
            return Ok(());
        }
        known.handed = known.handed.max(last);
        known.counts_differ |= differ;
        if begins && known.there > session.acknowledged {
            // The former position of a far side that lost something: see `begin`.
            let (there, position) = (session.acknowledged, self.destination.position());
            known = Acknowledged { until: there, there, position, chain: None, ..known };
        }
        self.local.set_acknowledged(known)?;
        // Once for a queue: a power cut must not bring back a row whose positions count.
        if begins { self.flush() } else { Ok(()) }
    }

    fn acknowledge(
        &mut self,
        session: &mut Session,
        until: u64,
        now: Duration,
    ) -> Result<(), Error> {
        let arrived = session.note_acknowledged(until, now);
        if arrived.messages == 0 {
            return Ok(());
        }
        let there = arrived.until;
        (self.has_worked, self.trouble) = (true, None);
        self.backoff.reset();
        let most = session.limits.in_flight_bytes;
        self.link_rate.note_acknowledged(arrived.bytes, arrived.under_way, arrived.after, most);
        self.counts.acknowledged += arrived.messages;
        self.counts.acknowledged_bytes += arrived.bytes;
        self.refused.take_if(|(seq, ..)| *seq < there);
        check!(let Counts { sent, acknowledged, .. } = self.counts);
        holds!(acknowledged <= sent, "of {sent} messages that were sent {acknowledged} arrived");
        let (position, chain) = (self.destination.position(), Some(arrived.chain));
        let before = self.local.acknowledged();
        let goes_back = there < before.there;
        let until = if goes_back { there } else { there.max(before.until) };
        self.local.set_acknowledged(Acknowledged { until, there, position, chain, ..before })
    }

    /// Reads messages to send, as many as fit.
    fn gather(&mut self, session: &mut Session) -> Result<Parcel, Over> {
        // After a rejection send messages one by one, so that it is clear which one the far side
        // rejects.
        let most = if self.refused.is_some() { 1 } else { usize::MAX };
        session.limit(self.link_rate.bytes(), most as u64);
        if !session.may_send() {
            return Ok(Parcel::default());
        }
        let mut batch = session.begin_batch();
        while session.has_room(&batch, most) || session.is_open(&batch) {
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
                        session.add_gap(&mut batch, self.options.gaps, most);
                        break;
                    }
                },
            };
            let (seq, len) = (message.seq(), message.len() as u64);
            if seq < session.expected {
                continue;
            }
            session.note_passed(seq);
            let is_away = session.left_out.contains(&seq);
            let why = self.why_refused(session, seq, len).filter(|_| !is_away);
            if is_away || why.is_some() {
                if session.in_flight() > 0 || !batch.items.is_empty() {
                    // The far side acknowledges the ones before it first: then the place passes it.
                    session.waiting = Some(message);
                    break;
                }
                why.map_or(Ok(()), |why| self.put_away(&message, why))?;
                session.leave_out(&message);
                self.pass_left_out(session)?;
                continue;
            }
            session.add_gap(&mut batch, self.options.gaps, most);
            let has_room = session.has_room(&batch, most) || session.joins(&batch, seq, len);
            if !has_room || !session.fits(&batch, len) {
                session.keep_waiting(&mut batch, message);
                break;
            }
            session.add(&mut batch, message, self.options.gaps);
        }
        batch.seal(self.options.zstd_level());
        Ok(batch)
    }

    /// Returns why the far side does not accept this message, if it is rejected for good.
    fn why_refused(&self, session: &Session, seq: u64, len: u64) -> Option<String> {
        let longest = session.limits.longest;
        match &self.refused {
            Some((refused, TRIES, why)) if *refused == seq => Some(why.clone()),
            _ if len <= longest => None,
            _ => Some(format!("{len} bytes are too many: it takes up to {longest}")),
        }
    }

    /// Handles a rejected message as the user chose.
    fn put_away(&mut self, message: &Message, why: String) -> Result<(), Over> {
        match &mut self.when_refused {
            WhenRefused::Stop => {
                return Err(Over::Halt(Halt::Refused { seq: message.seq(), why }));
            }
            WhenRefused::Skip => {}
            WhenRefused::PutAway(put_away) => put_away(message, &why).map_err(again)?,
        }
        self.refused = None;
        self.counts.refused += 1;
        Ok(())
    }

    /// Ends the session and returns how long to wait, or why another one cannot help.
    fn end_session(&mut self, trouble: Trouble, now: Duration) -> Result<Worked, Halt> {
        self.counts.troubles += 1;
        let (what, at_least) = match trouble {
            Trouble::Lost(error) if !self.has_worked => return Err(Halt::Lost(error)),
            Trouble::Lost(error) => (error.to_string(), Duration::ZERO),
            Trouble::Again(error, at_least) => (error.to_string(), at_least),
            Trouble::NotStored { why, .. } => (why.to_string(), Duration::ZERO),
            Trouble::Refused { seq, why } => {
                let tries = match self.refused {
                    Some((last, tries, _)) if last == seq => TRIES.min(tries + 1),
                    _ => 1,
                };
                self.refused = Some((seq, tries, why.clone()));
                (format!("message {seq} is refused: {why}"), Duration::ZERO)
            }
        };
        self.trouble = Some(what);
        let pause = self.backoff.pause(at_least);
        self.not_before = now + pause;
        Ok(Worked::Pause(pause))
    }
}
