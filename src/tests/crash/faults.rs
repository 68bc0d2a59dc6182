//! Calls that fail: each kind, the first time, the second time, until a scripted history passes
//! without meeting the fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::io::Errno;

use super::examine::{Queue, check_accounts, consumer_of, next_of, prepare_ahead};
use super::model::{Check, content, ensure};
use crate::consume::step::{DeliveryToken, Read};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::Error;
use crate::options::Options;
use crate::storage::Stores;
use crate::tests::effort::{is_whole, sample};
use crate::tests::sim::{Call, SimStorage};

const CALLS: [Call; 13] = [
    Call::Create,
    Call::Open,
    Call::Rename,
    Call::Remove,
    Call::SyncDirectory,
    Call::SyncFile,
    Call::Allocate,
    Call::Map,
    Call::Read,
    Call::Write,
    Call::SetLen,
    Call::List,
    Call::Measure,
];

/// The consumer with deliveries.
const JOBS: &str = "jobs";

#[derive(Debug, Default)]
struct Seen {
    acknowledged: BTreeMap<u64, usize>,
    /// What an enqueue that failed in its flush may have left.
    doubtful: BTreeMap<u64, usize>,
    durable: u64,
    /// The next number of the default consumer.
    place: u64,
    failures: u64,
    sync_failed: bool,
    /// Closing failed to write what was in memory.
    unwritten: bool,
    /// What `JOBS` has acknowledged, or was reported missing.
    done: BTreeSet<u64>,
    /// What it has in flight.
    open: Vec<(u64, DeliveryToken)>,
    /// A seek or a removal failed half way: what it had acknowledged may come again.
    may_come_again: bool,
}

impl Seen {
    fn failed(&mut self, queue: &Queue, error: &Error) -> Check {
        self.failures += 1;
        let sync = matches!(error, Error::Io { op: "flush" | "sync", .. }) && !error.is_unwritten();
        ensure!(
            !sync || queue.core.is_poisoned() || queue.core.check_readable().is_err(),
            "a sync failed and nothing is refused: {error}"
        );
        self.sync_failed |= sync;
        ensure!(
            !matches!(error, Error::Poisoned { .. })
                || self.sync_failed
                || queue.core.is_poisoned(),
            "poisoned without cause: {error}"
        );
        Ok(())
    }

    fn enqueue(&mut self, queue: &Queue, len: usize) -> Check {
        let next = next_of(queue);
        match queue.enqueue(&content(next + 1, len)) {
            Ok(seq) => {
                self.acknowledged.insert(seq, len);
            }
            Err(error) => {
                if next_of(queue) > next {
                    self.doubtful.insert(next, len);
                }
                self.failed(queue, &error)?;
            }
        }
        self.durable = self.durable.max(super::examine::durable_of(queue));
        Ok(())
    }

    /// Takes one; false when there is none.
    fn take(&mut self, queue: &Queue) -> Check<bool> {
        let consumer = match queue.default_consumer().cloned() {
            Ok(consumer) => consumer,
            Err(error) => return self.failed(queue, &error).map(|()| false),
        };
        match reading::next(queue, &consumer, Read::Take) {
            Ok(Some(message)) => {
                let seq = message.seq();
                let len = self.acknowledged.get(&seq).or_else(|| self.doubtful.get(&seq));
                ensure!(seq == self.place, "got {seq}, and {} is next", self.place);
                ensure!(
                    len.is_some_and(|len| content(seq + 1, *len) == message[..]),
                    "message {seq} has other bytes"
                );
                self.place = seq + 1;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(Error::Gap(gap)) => {
                let lost = self.acknowledged.range(gap.first..=gap.last).next();
                ensure!(lost.is_none(), "{lost:?} was acknowledged and is in {gap:?}");
                ensure!(gap.first == self.place, "{gap:?}, and {} is next", self.place);
                self.place = gap.last + 1;
                Ok(true)
            }
            Err(error) => {
                self.failed(queue, &error)?;
                // The flush that belongs to a read comes after it.
                self.place = consumer.seq();
                Ok(false)
            }
        }
    }
}

impl Seen {
    /// Has messages handed out to the end, and acknowledges all but the first, the last one first.
    fn work(&mut self, queue: &Queue) -> Check {
        let consumer = match queue.consumer(JOBS) {
            Ok(consumer) => consumer,
            Err(error) => return self.failed(queue, &error),
        };
        loop {
            match queue.receive(&consumer, reading::AsMessage) {
                Ok(Some((message, handed))) => {
                    let seq = message.seq();
                    let len = self.acknowledged.get(&seq).or_else(|| self.doubtful.get(&seq));
                    ensure!(
                        len.is_some_and(|len| content(seq + 1, *len) == message[..]),
                        "message {seq} has other bytes"
                    );
                    let again = self.done.contains(&seq) && !self.may_come_again;
                    ensure!(!again, "message {seq} was acknowledged and comes again");
                    self.open.push((seq, handed));
                }
                Ok(None) => break,
                Err(Error::Gap(gap)) => {
                    let lost = self.acknowledged.range(gap.first..=gap.last).next();
                    ensure!(lost.is_none(), "{lost:?} was acknowledged and is in {gap:?}");
                    self.done.extend(gap.first..=gap.last.min(gap.first + 1000));
                }
                Err(error) => {
                    self.failed(queue, &error)?;
                    break;
                }
            }
        }
        while self.open.len() > 1
            && let Some((seq, handed)) = self.open.pop()
        {
            if let Err(error) = queue.ack(&consumer, seq, handed) {
                self.failed(queue, &error)?;
            }
            // What failed was a flush.
            self.done.insert(seq);
        }
        Ok(())
    }

    /// Calls off what is in flight, and goes back to the place.
    fn seek(&mut self, queue: &Queue) -> Check {
        let consumer = match queue.consumer(JOBS) {
            Ok(consumer) => consumer,
            Err(error) => return self.failed(queue, &error),
        };
        let place = consumer.seq();
        match queue.seek(&consumer, place) {
            Ok(()) => {
                self.open.clear();
                self.done.retain(|seq| *seq < place);
            }
            Err(error) => {
                self.failed(queue, &error)?;
                self.may_come_again = true;
            }
        }
        Ok(())
    }

    fn remove(&mut self, queue: &Queue) -> Check {
        match queue.remove_consumer(JOBS) {
            Ok(()) | Err(Error::NotFound { .. }) => (),
            Err(error) => self.failed(queue, &error)?,
        }
        self.open.clear();
        self.may_come_again = true;
        Ok(())
    }

    /// More consumers than the index begins with room for.
    fn grow_the_index(&mut self, queue: &Queue) -> Check {
        let names: Vec<_> = (0..66).map(|number| format!("consumer {number}")).collect();
        for name in &names {
            if let Err(error) = queue.consumer(name) {
                self.failed(queue, &error)?;
            }
        }
        for name in &names {
            match queue.remove_consumer(name) {
                Ok(()) | Err(Error::NotFound { .. }) => (),
                Err(error) => self.failed(queue, &error)?,
            }
        }
        Ok(())
    }

    /// After a failed sync nothing more is promised, whoever asked for the sync.
    fn check_poisoned(&self, storage: &SimStorage, queue: &Queue) -> Check {
        let failed =
            [Call::SyncFile, Call::SyncDirectory].into_iter().any(|call| storage.failed(call) > 0);
        ensure!(
            !failed || queue.core.is_poisoned(),
            "a sync failed, and the queue goes on writing"
        );
        Ok(())
    }
}

/// Opens, fills, drains, flushes and closes; what fails is noted.
fn run(storage: &SimStorage, options: &Options, grows: bool, seen: &mut Seen) -> Check {
    let queue = match Engine::open_without_workers(storage.clone(), options) {
        Ok(queue) => Queue::new(queue),
        Err(_) => {
            seen.failures += 1;
            return Ok(());
        }
    };
    for round in 0..8 {
        for len in [0, 100, 5000, 9000, 20000] {
            seen.enqueue(&queue, len + round)?;
        }
        prepare_ahead(&queue);
        check_accounts(&queue)?;
        seen.work(&queue)?;
        for _ in 0..4 {
            seen.take(&queue)?;
        }
        match round {
            1 if grows => seen.grow_the_index(&queue)?,
            4 => seen.seek(&queue)?,
            6 => seen.remove(&queue)?,
            _ => {}
        }
        seen.check_poisoned(storage, &queue)?;
        if round % 3 == 2 {
            match queue.core.flush() {
                Ok(()) => seen.durable = seen.durable.max(next_of(&queue)),
                Err(error) => seen.failed(&queue, &error)?,
            }
        }
        while round == 5 && seen.take(&queue)? {}
        if let Some(age) = options.max_age {
            // Segments end early, and in the end nothing is too old yet.
            storage.advance_clock(age.as_millis() as u64 / 10);
            queue.expire();
        }
    }
    if let Err(error) = queue.close() {
        seen.failed(&queue, &error)?;
        seen.unwritten = error.is_unwritten();
    }
    Ok(())
}

fn round(
    call: Call,
    nth: u64,
    errno: Errno,
    sticky: bool,
    options: &Options,
    stores: Stores,
) -> Check<bool> {
    let storage = SimStorage::new(nth).with_file_capacity(128 << 10);
    storage.set_stores(stores);
    let mut seen = Seen::default();
    storage.fail_after(call, nth, errno, sticky);
    // Only the files of segments that end early are cut.
    let age = (call == Call::SetLen).then_some(Duration::from_secs(60));
    let options = &options.clone().max_age(age);
    // That takes time, and none of the other calls.
    let grows = !sticky && matches!(call, Call::Allocate | Call::Map | Call::Write);
    run(&storage, options, grows, &mut seen)?;
    let struck = seen.failures > 0 || storage.call_count(call) >= nth;
    storage.clear_faults();
    ensure!(
        !matches!(call, Call::SyncFile | Call::SyncDirectory) || seen.failures > 0 || !struck,
        "a failed sync was not reported"
    );
    // In the same world everything acknowledged is there, and a new opening works.
    let (cut, durable) = (storage.power_cut(nth), seen.durable);
    let queue = Queue::new(
        Engine::open_without_workers(storage.clone(), options)
            .map_err(|error| format!("does not reopen: {error}"))?,
    );
    ensure!(!queue.core.is_poisoned(), "still poisoned after opening again");
    let place = consumer_of(&queue, "")?.seq();
    if seen.unwritten && place < seen.place {
        // What was taken comes again.
        seen.place = place;
    }
    ensure!(place == seen.place, "stands at {place}, and was at {}", seen.place);
    seen.may_come_again |= seen.unwritten;
    seen.open.clear();
    seen.work(&queue)?;
    while seen.take(&queue)? {}
    let last = seen.acknowledged.keys().next_back().map_or(0, |seq| seq + 1);
    ensure!(seen.place >= last, "read up to {}, and {last} were acknowledged", seen.place);
    let failures = seen.failures;
    seen.enqueue(&queue, 10)?;
    ensure!(seen.failures == failures && seen.take(&queue)?, "no message goes through afterwards");
    queue.core.flush().map_err(|error| format!("does not flush afterwards: {error}"))?;
    let after = Engine::open_without_workers(queue.core.storage.power_cut(nth), options);
    let after = after.map_err(|error| format!("does not open after a power cut: {error}"))?;
    ensure!(
        after.core.visible_end().seq >= seen.place,
        "a message flushed after the failure is gone"
    );
    // What was said to be durable was so.
    let queue = Queue::new(
        Engine::open_without_workers(cut, options)
            .map_err(|error| format!("does not open: {error}"))?,
    );
    ensure!(next_of(&queue) >= durable, "durable below {durable}, next {}", next_of(&queue));
    Ok(struck)
}

#[test]
fn every_call_may_fail_and_nothing_acknowledged_is_lost() {
    all_rounds(&CALLS, Stores::ByMap);
}

#[test]
fn every_write_may_fail_where_stores_go_by_calls_and_nothing_acknowledged_is_lost() {
    all_rounds(&[Call::Write], Stores::ByCall);
}

fn all_rounds(calls: &[Call], stores: Stores) {
    let mut rounds = 0;
    // Most of them do the same as the one before.
    let many = super::asked_for_many();
    let failures = [(Errno::IO, false), (Errno::NOSPC, false), (Errno::NOSPC, true)];
    for (number, call) in calls.iter().copied().enumerate() {
        for (failure, (errno, sticky)) in failures.into_iter().enumerate() {
            for (which, every) in [None, Some(1), Some(7)].into_iter().enumerate() {
                let options =
                    Options::new().arena_size(16 << 10).max_bytes(256 << 10).flush_every_ops(every);
                // Where nothing can be written any more, a refused record may stay where it is: at
                // each moment another one. (The long run has them all.)
                let refused = stores == Stores::ByCall && sticky && every.is_none();
                // Any two of call, failure and flushes come together.
                let comes = (number + failure + which).is_multiple_of(3);
                if !comes && !refused && !is_whole() {
                    continue;
                }
                let one_of = match (refused, many) {
                    (true, true) => u64::MAX,
                    (true, false) | (false, true) => 20,
                    (false, false) => sample(4),
                };
                let mut nth = 1;
                loop {
                    rounds += 1;
                    match round(call, nth, errno, sticky, &options, stores) {
                        Ok(true) => nth += 1 + nth / one_of,
                        Ok(false) => break,
                        Err(broken) => {
                            panic!(
                                "{call:?} {nth} failing with {errno} (sticky {sticky}), {every:?}: {broken}"
                            )
                        }
                    }
                }
            }
        }
    }
    println!("{rounds} rounds");
}
