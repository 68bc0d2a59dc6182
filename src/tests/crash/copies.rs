//! A copy of whatever queue a random history leaves shows what the queue shows, message by message.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::examine::{Queue, consumer_of, next_of, oldest_of, open};
use super::history::{History, Work};
use super::model::{Check, ensure};
use crate::engine::ahead::Ahead;
use crate::engine::copy_queue::CopiedId;
use crate::error::{Error, Gap};
use crate::format::{INDEX_NAME, SEGMENT_HEADER_LEN};
use crate::inspect::{Condition, Depth, Picture, VerifyStep, verify};
use crate::options::Options;
use crate::recovery::Ended;
use crate::storage::Storage;
use crate::tests::effort::{alone, effort, first};
use crate::tests::sim::{Call, Rng, SimStorage};

/// How the queue is opened that is copied: nothing is evicted.
fn options() -> Options {
    Options::new().arena_size(16 << 10).max_bytes(2 << 20)
}

fn copy(queue: &Queue, to: &SimStorage, id: CopiedId) -> crate::error::Result<()> {
    queue.copy_to(to, id, &mut |done, total| {
        assert!(done <= total);
        ControlFlow::Continue(())
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Message(u64, Vec<u8>),
    Gap(Gap),
    Failed(String),
}

/// A consumer's place, what it has done beyond, and what reads report to it.
type Stands = (u64, Vec<(u64, u64)>, Vec<Reported>);

/// What a queue shows to everybody.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    next: u64,
    oldest: u64,
    consumers: BTreeMap<String, Stands>,
}

fn show(queue: &Queue) -> Check<Shown> {
    let mut shown =
        Shown { next: next_of(queue), oldest: oldest_of(queue), consumers: BTreeMap::new() };
    let default = queue.existing_default().map(|_| String::new());
    let names: Vec<String> = default.into_iter().chain(queue.consumer_names()).collect();
    // A new one gets all that is held.
    for name in names.into_iter().chain(["a new one".to_owned()]) {
        let consumer = consumer_of(queue, &name)?;
        let done = consumer.with_locked(|locked| {
            let ranges = locked.ledger.iter().flat_map(|ledger| ledger.done());
            ranges.map(|range| (range.first, range.last)).collect()
        });
        let mut ahead = Ahead::new(queue, &consumer).map_err(|error| error.to_string())?;
        let mut reported = Vec::new();
        while let Some(found) = ahead.next() {
            reported.push(match found {
                Ok(message) => Reported::Message(message.seq(), message.to_vec()),
                Err(Error::Gap(gap)) => Reported::Gap(gap),
                Err(error) => Reported::Failed(error.to_string()),
            });
        }
        shown.consumers.insert(name, (consumer.seq(), done, reported));
    }
    Ok(shown)
}

/// What the files say without an opening.
fn seen(storage: &SimStorage) -> Check<(Picture, Vec<String>)> {
    let storage = Arc::new(storage.clone());
    let (picture, _) = Picture::take(&storage).map_err(|error| error.to_string())?;
    let mut findings = Vec::new();
    let verified = verify(&storage, Depth::Messages, &mut |step| {
        if let VerifyStep::Finding(finding) = step {
            findings.push(finding.to_string());
        }
        ControlFlow::Continue(())
    });
    verified.map_err(|error| error.to_string())?;
    Ok((picture, findings))
}

/// Flips bytes of segments.
fn damage(disk: &SimStorage, rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        let mut names = disk.file_names();
        names.retain(|name| name != INDEX_NAME && disk.read_file(name).len() > 1000);
        if names.is_empty() {
            return;
        }
        let name = &names[rng.below(names.len() as u64) as usize];
        let bytes = disk.read_file(name);
        let within = if rng.percent(20) { SEGMENT_HEADER_LEN as usize } else { bytes.len() };
        let at = rng.below(within as u64) as usize;
        disk.corrupt(name, at, &[bytes[at] ^ (1 << rng.below(8))]);
    }
}

fn same(left: &Shown, right: &Shown, what: &str) -> Check {
    ensure!(left.next == right.next, "{what}: next is {}, not {}", right.next, left.next);
    ensure!(left.oldest == right.oldest, "{what}: oldest {}, not {}", right.oldest, left.oldest);
    let names = |shown: &Shown| shown.consumers.keys().cloned().collect::<Vec<_>>();
    ensure!(names(left) == names(right), "{what}: {:?}, not {:?}", names(right), names(left));
    for (name, (place, done, reported)) in &left.consumers {
        let (at, has, hears) = &right.consumers[name];
        ensure!(place == at, "{what}: {name:?} stands at {at}, not {place}");
        ensure!(done == has, "{what}: {name:?} has done {has:?}, not {done:?}");
        let differs = reported.iter().zip(hears).find(|(left, right)| left != right);
        ensure!(
            reported.len() == hears.len() && differs.is_none(),
            "{what}: {name:?} gets {} reports, not {}: {differs:?}",
            hears.len(),
            reported.len()
        );
    }
    Ok(())
}

/// Copies the queue on the disk, and compares.
fn check(disk: &SimStorage, rng: &mut Rng) -> Check {
    let id = if rng.percent(50) { CopiedId::New } else { CopiedId::Same };
    let to = SimStorage::new(rng.next()).with_file_capacity(1 << 20);
    to.advance_clock(disk.now().saturating_sub(to.now()));
    let queue = open(disk.process_kill(), &options())?;
    let from = queue.core.storage.clone();
    let queue_id = queue.core.index.queue_id;
    if rng.percent(30) {
        // Calls on the copy's disk fail: the queue is as it was.
        let calls = [Call::Create, Call::Write, Call::Allocate, Call::SyncFile];
        let call = calls[rng.below(4) as usize];
        let full = SimStorage::new(1).with_file_capacity(1 << 20);
        full.fail_after(call, rng.below(3), rustix::io::Errno::NOSPC, true);
        let result = copy(&open(disk.process_kill(), &options())?, &full, id);
        ensure!(full.failed(call) == 0 || result.is_err(), "a failed {call:?} is not reported");
    }
    copy(&queue, &to, id).map_err(|error| format!("does not copy: {error}"))?;
    drop(queue);
    let (before, wrong) = seen(&from.copied())?;
    let (after, found) = seen(&to.process_kill())?;
    ensure!(
        matches!(after.condition, Condition::Left(Ended::InOrder)),
        "left as {:?}",
        after.condition
    );
    ensure!(
        (after.queue_id == queue_id) == (id == CopiedId::Same),
        "{id:?}, and the ids are {:?} and {queue_id:?}",
        after.queue_id
    );
    ensure!(before.created == after.created || id == CopiedId::New, "created at another time");
    ensure!(
        before.tail.seq == after.tail.seq && after.durable == after.tail,
        "from outside the tail is {:?}, not {:?}",
        after.tail,
        before.tail
    );
    ensure!(wrong.len() >= found.len(), "the copy is damaged: {found:?}, not only {wrong:?}");
    // Of the queue what any opening finds that cannot trust the page cache; of the copy what the
    // disk holds, whether or not anything else reached it.
    let shown = show(&open(from.copied(), &options())?)?;
    for (copied, what) in [
        (to.process_kill(), "the copy"),
        (to.power_cut_losing_all(), "the copy after a power cut"),
        (to.copied(), "the copy elsewhere"),
    ] {
        let queue = open(copied, &options())?;
        same(&shown, &show(&queue)?, what)?;
        // It goes on.
        let put = queue.enqueue(&vec![7; rng.below(9000) as usize]);
        ensure!(put.as_ref().is_ok_and(|seq| *seq == shown.next), "{what}: put in {put:?}");
        queue.close().map_err(|error| format!("{what} does not close: {error}"))?;
        let queue = open(queue.core.storage.process_kill(), &options())?;
        let mut later = show(&queue)?;
        for (_, _, reported) in later.consumers.values_mut() {
            ensure!(
                matches!(reported.pop(), Some(Reported::Message(seq, _)) if seq == shown.next),
                "{what}: the new message does not come last"
            );
        }
        later.next -= 1;
        same(&shown, &later, what)?;
    }
    Ok(())
}

fn run(seed: u64) -> Check {
    let mut rng = Rng(seed ^ 0xC0B1E5);
    let mut history = History::new(seed, Work::Everything)?;
    for _ in 0..2 {
        history.run(history.images + 1 + rng.below(6))?;
        let disk = history.disk()?;
        let disk = match rng.below(4) {
            0 => disk,
            1 => disk.power_cut(rng.next()),
            2 => disk.copied(),
            _ => {
                let queue = open(disk, &options())?;
                queue.close().map_err(|error| error.to_string())?;
                queue.core.storage.process_kill()
            }
        };
        if rng.percent(50) {
            damage(&disk, &mut rng);
        }
        check(&disk, &mut rng).map_err(|broken| format!("history {seed}: {broken}"))?;
    }
    Ok(())
}

#[test]
fn a_copy_shows_what_the_queue_shows() {
    let first = first().unwrap_or(0);
    for seed in alone().map_or(first..first + 6 * effort(), |seed| seed..seed + 1) {
        if let Err(broken) = run(seed) {
            panic!("{broken}");
        }
    }
}
