//! Opening a queue to work on it, and its consumers.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mmq::{Consumer, Delivery, Error, Inspector, Iter, Options, Queue, Redelivery};

use crate::ending::Ending;
use crate::failure::{Failure, Tried, holds_remains};
use crate::place::Bounds;

/// How long an opening waits for the process that has the queue. Commands that follow each other,
/// or look whether there is something to do, hold it for no longer.
const PATIENCE: Duration = Duration::from_millis(300);

/// Opens the queue. It must be there, unless the options may create it.
pub(crate) fn open(dir: &Path, options: &Options) -> Tried<Queue> {
    check(dir)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match options.open(dir) {
            Err(Error::Locked { here: false, .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.map_err(Failure::from),
        }
    }
}

/// Refuses a directory with files of a queue that is found in none of them. An opening would rename
/// these files, and begin a new queue beside them or say that there is none.
fn check(dir: &Path) -> Tried<()> {
    if !holds_remains(dir) {
        return Ok(());
    }
    let looked = Inspector::open(dir).and_then(|inspector| inspector.snapshot());
    match looked {
        Err(Error::NotFound { what: "queue", .. }) => Err(Failure::remains(Ending::Refused, dir)),
        // The opening says what else is wrong.
        _ => Ok(()),
    }
}

/// Makes the queue's own consumer, at the oldest message, when the queue has no consumer: it keeps
/// what is put in for `take` and `each`, whatever other consumers come and go.
pub(crate) fn keep_for_own(queue: &Queue) -> Tried<()> {
    let stats = queue.stats();
    if stats.consumers == 0 {
        queue.seek(stats.oldest_seq)?;
    }
    Ok(())
}

/// Opens a queue that is there.
pub(crate) fn open_existing(dir: &Path) -> Tried<Queue> {
    open(dir, &Options::new().create(false))
}

/// A consumer: the queue's own, or one with a name.
#[derive(Debug)]
pub(crate) enum Reads<'a> {
    Own(&'a Queue),
    Named(Consumer),
}

impl<'a> Reads<'a> {
    /// The consumer of that name, which must exist. No name, and the empty one, are the queue's
    /// own consumer's.
    pub(crate) fn of(queue: &'a Queue, name: Option<&str>) -> Tried<Reads<'a>> {
        match name {
            None | Some("") => Ok(Reads::Own(queue)),
            Some(name) if queue.consumers().iter().any(|known| known == name) => {
                Ok(Reads::Named(queue.consumer(name)?))
            }
            Some(name) => Err(Failure::no_consumer(queue.path(), name)),
        }
    }

    pub(crate) fn receive(&self) -> mmq::Result<Option<Delivery>> {
        match self {
            Reads::Own(queue) => queue.receive(),
            Reads::Named(consumer) => consumer.receive(),
        }
    }

    /// Has it stored how often messages were handed out in vain.
    pub(crate) fn count_attempts(&self) -> mmq::Result<()> {
        match self {
            Reads::Own(queue) => queue.set_redelivery(Redelivery::new()),
            Reads::Named(consumer) => consumer.set_redelivery(Redelivery::new()),
        }
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Reads::Own(queue) => queue.len(),
            Reads::Named(consumer) => consumer.len(),
        }
    }

    /// Moves to the message `seq`.
    pub(crate) fn seek(&self, seq: u64) -> mmq::Result<()> {
        match self {
            Reads::Own(queue) => queue.seek(seq),
            Reads::Named(consumer) => consumer.seek(seq),
        }
    }

    /// Makes a consumer at this one's place.
    pub(crate) fn fork(&self, name: &str) -> mmq::Result<()> {
        match self {
            Reads::Own(queue) => queue.fork(name).map(drop),
            Reads::Named(consumer) => consumer.fork(name).map(drop),
        }
    }

    fn iter(&self) -> Iter {
        match self {
            Reads::Own(queue) => queue.iter(),
            Reads::Named(consumer) => consumer.iter(),
        }
    }

    /// What a place of this consumer is measured from.
    pub(crate) fn bounds<'q>(&self, queue: &'q Queue) -> Tried<Bounds<'q>> {
        let stats = queue.stats();
        let place = match self.iter().next() {
            None => stats.next_seq,
            Some(Ok(message)) => message.seq(),
            Some(Err(Error::Gap(gap))) => gap.first,
            Some(Err(error)) => return Err(error.into()),
        };
        Ok(Bounds { dir: queue.path(), oldest: stats.oldest_seq, next: stats.next_seq, place })
    }
}
