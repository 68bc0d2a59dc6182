//! One session: a connection on a thread of its own, so that no call of the destination waits for
//! the socket.
//!
//! A session that is dropped leaves its thread alone. That ends by itself: at once when it has
//! nothing to do, else with the answer or the time-out that it waits for. It writes nothing more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use mmq::forward::{Held, Trouble};
use redis::{Connection, FromRedisValue, RedisError, Value};

use crate::about::About;
use crate::address::Address;
use crate::script::{ADD, ASK, EntryId, Parcel, held_by, wait_for};
use crate::trouble::{again, later, lost, trouble};

/// The longest wait for a connection, and for each answer to a question.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a session may be idle before the thread looks whether the server is still there.
const IDLE: Duration = Duration::from_secs(10);

/// A write that takes longer had to wait for room in the socket.
const FULL: Duration = Duration::from_millis(20);

/// What the thread reports.
enum News {
    /// The session has begun.
    Begun(Begun),
    /// The server has stored everything up to this id.
    Stored(EntryId),
}

/// What the server said at the beginning.
pub(crate) struct Begun {
    /// The hash of the script [`ADD`].
    pub(crate) hash: String,
    pub(crate) last: EntryId,
    pub(crate) held: Held,
}

/// The destination's end of a session.
pub(crate) struct Session {
    pub(crate) about: About,
    /// What the thread sends next.
    parcels: Sender<Parcel>,
    news: Receiver<Result<News, Trouble>>,
    is_dropped: Arc<AtomicBool>,
    /// `None` until the server has answered.
    pub(crate) begun: Option<Begun>,
    /// The number behind the last one that is stored.
    until: u64,
    /// A trouble that came right behind an acknowledgement.
    trouble: Option<Trouble>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}

impl Session {
    /// Begins to connect.
    pub(crate) fn begin(address: &Address, about: About) -> Result<Session, Trouble> {
        let (parcels, to_send) = channel();
        let (report, news) = channel();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let thread = Thread {
            about: about.clone(),
            to_send,
            report,
            is_dropped: Arc::clone(&is_dropped),
            hash: String::new(),
            last: EntryId::ZERO,
            under_way: VecDeque::new(),
            is_full: false,
        };
        let address = address.clone();
        thread::Builder::new()
            .name("mmq-redis".to_owned())
            .spawn(move || thread.run(&address))
            .map_err(|error| {
                again(&about.place(), format!("no thread for the connection: {error}"))
            })?;
        let (begun, until, trouble) = (None, 0, None);
        Ok(Session { about, parcels, news, is_dropped, begun, until, trouble })
    }

    /// Waits up to `wait` for the beginning. `None`: the server has not answered yet.
    pub(crate) fn wait(&mut self, wait: Duration) -> Option<Result<Held, Trouble>> {
        let news = match self.news.recv_timeout(wait) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        };
        Some(news.map(|news| {
            self.note(news);
            self.begun.as_ref().map_or(Held::Nothing, |begun| begun.held)
        }))
    }

    /// Hands over what to send.
    pub(crate) fn send(&mut self, parcel: Parcel) -> Result<(), Trouble> {
        if self.parcels.send(parcel).is_ok() {
            return Ok(());
        }
        while let Ok(news) = self.news.try_recv() {
            news.map(|news| self.note(news))?;
        }
        Err(self.ended())
    }

    /// Waits up to `wait` for something to be stored, and returns the number behind the last one.
    pub(crate) fn acknowledged(&mut self, wait: Duration) -> Result<u64, Trouble> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        match self.news.recv_timeout(wait) {
            Ok(news) => self.note(news?),
            Err(RecvTimeoutError::Timeout) => return Ok(self.until),
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
        }
        while let Ok(news) = self.news.try_recv() {
            match news {
                Ok(news) => self.note(news),
                Err(trouble) => self.trouble = Some(trouble),
            }
        }
        Ok(self.until)
    }

    fn note(&mut self, news: News) {
        match news {
            News::Begun(begun) => {
                self.until = begun.last.until();
                self.begun = Some(begun);
            }
            News::Stored(id) => self.until = id.until(),
        }
    }

    /// The thread reports why it ends; so this is for the second call behind that.
    fn ended(&mut self) -> Trouble {
        let ended = || again(&self.about.place(), "the session has ended");
        self.trouble.take().unwrap_or_else(ended)
    }
}

/// The connection's end of a session.
struct Thread {
    about: About,
    to_send: Receiver<Parcel>,
    report: Sender<Result<News, Trouble>>,
    is_dropped: Arc<AtomicBool>,
    /// The hash of the script [`ADD`].
    hash: String,
    /// The last id behind what is answered.
    last: EntryId,
    /// What is written and not answered yet: length, last id before it, last id after it.
    under_way: VecDeque<(u64, EntryId, EntryId)>,
    /// The socket took the last write only after a while: read an answer before the next one, or
    /// the forwarder would hear nothing until a slow link has taken all that there is.
    is_full: bool,
}

impl Thread {
    fn run(mut self, address: &Address) {
        let outcome = self.begin(address).and_then(|mut connection| self.work(&mut connection));
        if let Err(trouble) = outcome {
            // (Nobody listens any more: the session was dropped.)
            let _ = self.report.send(Err(trouble));
        }
    }

    /// Connects, and asks in one go what the stream holds.
    fn begin(&mut self, address: &Address) -> Result<Connection, Trouble> {
        let About { key, replicas, .. } = &self.about;
        let trouble = |error| self.trouble(&error, PATIENCE);
        let (mut connection, mut calls) = address.connect(PATIENCE)?;
        let greetings = calls.len();
        calls.cmd("SCRIPT").arg("LOAD").arg(ADD);
        calls.cmd("EVAL").arg(ASK).arg(1).arg(key).arg(replicas);
        let mut packed = calls.get_packed_pipeline();
        if *replicas > 0 {
            packed.extend_from_slice(&wait_for(*replicas));
        }
        connection.send_packed_command(&packed).map_err(trouble)?;
        for _ in 0..greetings {
            let _: Value = read(&mut connection).map_err(trouble)?;
        }
        let hash: String = read(&mut connection).map_err(trouble)?;
        let answer: Vec<Vec<u8>> = read(&mut connection).map_err(trouble)?;
        let answer: Vec<_> =
            answer.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect();
        let (last, held) =
            held_by(&self.about, &answer).map_err(|why| lost(&self.about.place(), why))?;
        self.hear_replicas(&mut connection)?;
        (self.hash, self.last) = (hash.clone(), last);
        // (When nobody listens, the thread finds out before its first write.)
        let _ = self.report.send(Ok(News::Begun(Begun { hash, last, held })));
        Ok(connection)
    }

    /// Reads how many replicas have what was written, if that matters.
    fn hear_replicas(&self, connection: &mut Connection) -> Result<(), Trouble> {
        let needed = self.about.replicas;
        if needed == 0 {
            return Ok(());
        }
        let there: u32 = read(connection).map_err(|error| self.trouble(&error, self.patience()))?;
        if there >= needed {
            return Ok(());
        }
        let why = format!("{there} replicas have the last messages, and {needed} are to have them");
        Err(later(&self.about.place(), why))
    }

    fn trouble(&self, error: &RedisError, waited: Duration) -> Trouble {
        trouble(&self.about.place(), error, waited)
    }

    /// Writes what there is to send, and else reads the next answer, until the session is dropped.
    fn work(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        loop {
            let wait = if self.under_way.is_empty() { IDLE } else { Duration::ZERO };
            let next = match self.is_full {
                true => Err(RecvTimeoutError::Timeout),
                false => self.to_send.recv_timeout(wait),
            };
            if self.is_dropped.load(Ordering::Relaxed) {
                return Ok(());
            }
            match next {
                Ok(parcel) => self.write(connection, &parcel)?,
                // A send of nothing finds out whether an idle connection still has a server behind
                // it, and that the stream.
                Err(RecvTimeoutError::Timeout) if self.under_way.is_empty() => {
                    let nothing = Parcel::new(&self.about, &self.hash, (self.last, None), &[]);
                    self.write(connection, &nothing)?;
                }
                Err(RecvTimeoutError::Timeout) => self.hear(connection)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// How long the server may take for what is under way: longer than the forwarder waits, so
    /// that the link's pace decides and not this.
    fn patience(&self) -> Duration {
        if self.under_way.iter().all(|(_, from, to)| from == to) {
            return PATIENCE;
        }
        let bytes: u64 = self.under_way.iter().map(|(len, ..)| len).sum();
        Duration::from_secs(60 + bytes / 2048)
    }

    fn write(&mut self, connection: &mut Connection, parcel: &Parcel) -> Result<(), Trouble> {
        self.under_way.push_back((parcel.bytes.len() as u64, parcel.from, parcel.to));
        let (patience, began) = (self.patience(), Instant::now());
        connection
            .set_write_timeout(Some(patience))
            .and_then(|()| connection.set_read_timeout(Some(patience)))
            .and_then(|()| connection.send_packed_command(&parcel.bytes))
            .map_err(|error| self.trouble(&error, patience))?;
        self.is_full = began.elapsed() > FULL;
        Ok(())
    }

    /// Reads the answer to what was written first.
    fn hear(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        let Some((_, from, to)) = self.under_way.front().copied() else {
            return Err(again(&self.about.place(), "it answered what nobody asked"));
        };
        let found: String = read(connection).map_err(|error| match error.detail() {
            // (A message that may be so long goes alone.)
            Some(detail) if detail.contains("invalid bulk length") => Trouble::Refused {
                seq: to.until().saturating_sub(1),
                why: "it is longer than the server's proto-max-bulk-len".to_owned(),
            },
            _ => self.trouble(&error, self.patience()),
        })?;
        self.is_full = false;
        if found != from.to_string() {
            // A write of an earlier session arrived late, or the stream has another writer.
            let why = format!("{}: it ends in {found}, not in {from}", self.about.place());
            return Err(Trouble::NotStored { seq: from.until(), why: why.into() });
        }
        self.hear_replicas(connection)?;
        self.under_way.pop_front();
        self.last = to;
        let _ = self.report.send(Ok(News::Stored(to)));
        Ok(())
    }
}

/// Reads one answer.
fn read<T: FromRedisValue>(connection: &mut Connection) -> Result<T, RedisError> {
    let value = connection.recv_response()?.extract_error()?;
    Ok(redis::from_redis_value(value)?)
}
