//! The version of a queue that holds dead letters: on the disk before the first one, whatever is
//! cut, killed or refused.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::io::Errno;

use super::{origin, payload, put, put_dead_letter, short};
use crate::consume::step::Read;
use crate::engine::{Engine, reading};
use crate::error::{Error, GapCause};
use crate::format::{
    INDEX_HEADER_LEN, INDEX_NAME, Kind, ORIGIN_LEN, SegmentHeader, Spot, Version,
    decode_index_header, fragment_len, index_version, segment_slot,
};
use crate::inspect::{Depth, VerifyStep, verify};
use crate::segment::scan::Scan;
use crate::storage::{Storage, Stores};
use crate::tests::effort::some_of;
use crate::tests::sim::{Call, SimStorage};

pub(super) type Queue = Engine<SimStorage>;

pub(super) fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(64 << 10)
}

pub(super) fn open(storage: SimStorage) -> Queue {
    Engine::open_without_workers(storage, &short()).unwrap()
}

/// Flushes messages, and nothing else.
pub(super) fn flush(queue: &Queue) {
    queue.core.flush_to(queue.core.committed_spot()).unwrap();
}

/// The version that the index says, if its header is valid; and those of the segments, each with
/// whether a dead letter lies in it.
fn versions(storage: &SimStorage) -> (Option<Version>, Vec<(Version, bool)>) {
    let names = storage.file_names();
    let index = names.iter().any(|name| name == INDEX_NAME).then(|| storage.read_file(INDEX_NAME));
    let header = index.and_then(|bytes| {
        let id = decode_index_header(&bytes).ok()?;
        Some(index_version(&bytes, &id))
    });
    let mut segments = Vec::new();
    for name in names.iter().filter(|name| segment_slot(name).is_some()) {
        let bytes = storage.read_file(name);
        let Some(Ok(header)) = bytes.first_chunk().map(SegmentHeader::decode) else { continue };
        let file = storage.open(name).unwrap();
        let mut scan = Scan::new(&file, &header, header.base + bytes.len() as u64);
        let (mut at, mut has_dead_letter) = (header.base, false);
        while let Ok(Some(seen)) = scan.fragment_at(at, 0) {
            has_dead_letter |= seen.fragment.has_origin && seen.fragment.kind != Kind::Padding;
            at = seen.end();
        }
        segments.push((header.version, has_dead_letter));
    }
    (header, segments)
}

/// What the files have to say to older code before it touches anything.
#[track_caller]
pub(super) fn is_reported(storage: &SimStorage, when: &str) {
    let (index, segments) = versions(storage);
    for (version, has_dead_letter) in &segments {
        assert!(!has_dead_letter || *version == Version::Origins, "{when}: {segments:?}");
    }
    let needed = segments.iter().map(|(version, _)| *version).max().unwrap_or_default();
    assert!(index.is_none_or(|index| index >= needed), "{when}: {index:?}, {segments:?}");
}

/// Takes all; each message is what was put in, and those below `durable` are there.
#[track_caller]
fn takes_all(queue: &Queue, dead_letters: impl Fn(u64) -> bool, durable: u64, when: &str) {
    let consumer = queue.consumer("all").unwrap();
    let mut next = 0;
    loop {
        match reading::next(queue, &consumer, Read::Take) {
            Ok(None) => break,
            Ok(Some(message)) => {
                assert_eq!(message.seq(), next, "{when}");
                assert!(*message == *payload(next, message.len()), "{when}: {next}");
                assert_eq!(message.origin(), dead_letters(next).then(|| origin(next)), "{when}");
                next += 1;
            }
            Err(Error::Gap(gap)) => {
                assert!(gap.first >= durable && gap.cause != GapCause::Damaged, "{when}: {gap}");
                next = gap.last + 1;
            }
            Err(error) => panic!("{when}: {error}"),
        }
    }
    assert!(next >= durable, "{when}: {next} of {durable}");
}

/// Messages, then dead letters, with flushes between. Returns how many messages a flush has
/// covered.
fn history(queue: &Queue) -> u64 {
    queue.consumer("all").unwrap();
    put(queue, 0, 100);
    flush(queue);
    put_dead_letter(queue, 1, 100);
    flush(queue);
    put_dead_letter(queue, 2, 9000);
    put(queue, 3, 10);
    flush(queue);
    put_dead_letter(queue, 4, 0);
    4
}

fn is_dead_letter(number: u64) -> bool {
    [1, 2, 4, 5].contains(&number)
}

/// A kill or a power cut at every call and every store of the first dead letters; then an opening,
/// more dead letters, and another power cut.
fn cut_everywhere() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        for at_calls in [true, false] {
            for moment in some_of(1.., 2, at_calls.into()) {
                let storage = disk(moment);
                storage.set_stores(stores);
                let queue = open(storage.clone());
                if at_calls {
                    storage.freeze_at(moment);
                } else {
                    storage.freeze_at_store(moment);
                }
                history(&queue);
                storage.disarm();
                let Some(dead) = storage.frozen() else { break };
                let images = some_of(0..4, 4, moment / 2).map(|seed| dead.power_cut(seed));
                let images = images.chain([dead.power_cut_losing_all(), dead.process_kill()]);
                for (image, left) in images.enumerate() {
                    let when = format!("{stores:?}, at calls: {at_calls}, {moment}, image {image}");
                    is_reported(&left, &when);
                    let queue = open(left.clone());
                    let next = queue.core.committed_spot().seq;
                    takes_all(&queue, is_dead_letter, 0, &when);
                    let dead_letter = payload(next, 300);
                    assert_eq!(
                        queue.enqueue_dead_letter(&dead_letter, &origin(next)).unwrap(),
                        next
                    );
                    flush(&queue);
                    let cut = left.power_cut_losing_all();
                    is_reported(&cut, &when);
                    let queue = open(cut.process_kill());
                    let consumer = queue.consumer("all").unwrap();
                    let last = std::iter::from_fn(|| {
                        loop {
                            match reading::next(&queue, &consumer, Read::Take) {
                                Err(Error::Gap(_)) => {}
                                reported => return reported.unwrap(),
                            }
                        }
                    });
                    let last = last.last().expect("the flushed letter");
                    assert_eq!((last.seq(), last.origin()), (next, Some(origin(next))), "{when}");
                }
            }
        }
    }
}

#[test]
fn the_version_is_on_the_disk_before_the_first_dead_letter() {
    cut_everywhere();
}

#[test]
fn a_dead_letter_begins_a_segment_where_the_tails_is_older() {
    let storage = disk(1);
    let queue = open(storage.clone());
    let durable = history(&queue);
    queue.core.flush().unwrap();
    let (index, segments) = versions(&storage);
    assert_eq!(index, Some(Version::Origins));
    assert_eq!(segments.iter().filter(|(version, _)| *version == Version::Plain).count(), 1);
    is_reported(&storage, "in a run");
    drop(queue);
    let queue = open(storage.power_cut_losing_all());
    takes_all(&queue, is_dead_letter, durable, "after a power cut");
}

/// What never held a dead letter says version 3 everywhere, whatever was done to it.
#[test]
fn a_queue_without_dead_letters_keeps_version_3() {
    let storage = disk(2);
    let queue = open(storage.clone());
    for number in 0..40 {
        put(&queue, number, 3000);
    }
    takes_all(&queue, |_| false, 40, "in a run");
    queue.core.flush().unwrap();
    for left in [storage.process_kill(), storage.power_cut(3), storage.copied()] {
        drop(open(left.clone()));
        let (index, segments) = versions(&left);
        assert_eq!(index, Some(Version::Plain));
        assert!(segments.iter().all(|(version, _)| *version == Version::Plain));
    }
}

/// A segment that is used again, and one made ahead, bear the version of the day.
#[test]
fn every_segment_begun_after_the_first_dead_letter_bears_its_version() {
    let storage = disk(3);
    let queue = open(storage.clone());
    queue.consumer("all").unwrap();
    for number in 0..40 {
        put(&queue, number, 3000);
    }
    takes_all(&queue, |_| false, 40, "messages");
    queue.core.flush().unwrap();
    put_dead_letter(&queue, 40, 10);
    for number in 41..80 {
        put(&queue, number, 3000);
    }
    let live: Vec<_> = queue.core.segments.list().live.iter().map(|row| row.header).collect();
    let behind: Vec<_> = live.iter().filter(|header| header.first_seq >= 40).collect();
    assert!(behind.len() > 10);
    assert!(behind.iter().all(|header| header.version == Version::Origins), "{behind:?}");
}

/// The index is lost, or its header, or an older copy of it is put back: the next one says 2, and
/// nothing else is lost.
#[test]
fn an_index_that_is_made_anew_has_the_version_of_the_segments() {
    type Damage = fn(&SimStorage, &[u8]);
    let damages: [(&str, Damage); 4] = [
        ("lost", |storage, _| storage.remove_file(INDEX_NAME)),
        ("header zeroed", |storage, _| {
            storage.corrupt(INDEX_NAME, 0, &[0; INDEX_HEADER_LEN]);
        }),
        ("version flipped", |storage, _| storage.corrupt(INDEX_NAME, 8, &[7])),
        ("older", |storage, older| storage.write_file(INDEX_NAME, older)),
    ];
    for (what, damage) in damages {
        let storage = disk(4);
        let queue = open(storage.clone());
        queue.consumer("all").unwrap();
        put(&queue, 0, 100);
        queue.core.flush().unwrap();
        let older = storage.read_file(INDEX_NAME);
        for number in [1, 2] {
            put_dead_letter(&queue, number, 100);
        }
        queue.close().unwrap();
        drop(queue);
        let left = storage.process_kill();
        damage(&left, &older);
        let mut findings = Vec::new();
        let mut each = |step| {
            findings.extend(match step {
                VerifyStep::Finding(finding) => Some((finding.file, finding.offset)),
                _ => None,
            });
            ControlFlow::Continue(())
        };
        let verified = verify(&Arc::new(left.clone()), Depth::Messages, &mut each).unwrap();
        let at = (what != "lost").then_some(0);
        assert_eq!(findings, [(INDEX_NAME.to_owned(), at)], "{what}");
        assert_eq!(verified.messages, 3, "{what}");
        let queue = open(left.clone());
        assert_eq!(versions(&left).0, Some(Version::Origins), "{what}");
        queue.core.flush().unwrap();
        is_reported(&left.power_cut_losing_all(), what);
        takes_all(&queue, is_dead_letter, 3, what);
        queue.close().unwrap();
    }
}

/// A write or a sync that fails on the way refuses the dead letter: it never comes, no segment
/// bears the version that could not be stated, and a later try succeeds unless the queue is
/// poisoned.
#[test]
fn a_dead_letter_that_is_refused_was_never_there() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        for call in [Call::Write, Call::SyncFile, Call::Allocate, Call::Create] {
            for nth in 1..5 {
                for sticky in [false, true] {
                    let storage = disk(nth);
                    storage.set_stores(stores);
                    let queue = open(storage.clone());
                    queue.consumer("all").unwrap();
                    put(&queue, 0, 100);
                    flush(&queue);
                    let errno = if call == Call::SyncFile { Errno::IO } else { Errno::NOSPC };
                    storage.fail_after(call, nth, errno, sticky);
                    let when = format!("{stores:?}, {call:?} {nth}, sticky: {sticky}");
                    let put = queue.enqueue_dead_letter(&payload(1, 100), &origin(1));
                    let killed = storage.process_kill();
                    is_reported(&killed, &when);
                    let there = u64::from(put.is_ok()) + 1;
                    let after = open(killed);
                    assert_eq!(after.core.committed_spot().seq, there, "{when}");
                    takes_all(&after, is_dead_letter, there, &when);
                    storage.clear_faults();
                    if queue.core.is_poisoned() {
                        assert!(call == Call::SyncFile && put.is_err(), "{when}: {put:?}");
                        let again = queue.enqueue_dead_letter(b"again", &origin(1));
                        assert!(matches!(again, Err(Error::Poisoned { .. })), "{when}");
                        continue;
                    }
                    for number in there..3 {
                        put_dead_letter(&queue, number, 50);
                    }
                    flush(&queue);
                    let cut = storage.power_cut_losing_all();
                    is_reported(&cut, &when);
                    takes_all(&open(cut), is_dead_letter, 3, &when);
                }
            }
        }
    }
}

/// Two threads put in the first dead letters, others messages meanwhile.
#[test]
fn threads_may_put_in_the_first_dead_letters_at_once() {
    let storage = SimStorage::new(9).with_file_capacity(256 << 10);
    let queue = Engine::open(storage.clone(), &short()).unwrap();
    queue.consumer("all").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let queue = &queue;
            scope.spawn(move || {
                for number in 0..50 {
                    let bytes = [thread, number];
                    if thread < 2 {
                        queue.enqueue_dead_letter(&bytes, &origin(number.into())).unwrap();
                    } else {
                        queue.enqueue(&bytes).unwrap();
                    }
                }
            });
        }
    });
    let consumer = queue.consumer("all").unwrap();
    let mut next = [0; 4];
    for _ in 0..200 {
        let message = reading::next(&queue, &consumer, Read::Take).unwrap().unwrap();
        let [thread, number] = *message.first_chunk().unwrap();
        assert_eq!(number, next[usize::from(thread)]);
        next[usize::from(thread)] += 1;
        assert_eq!(message.origin(), (thread < 2).then(|| origin(number.into())));
    }
    queue.close().unwrap();
    is_reported(&storage, "at the end");
}

/// The first run of a queue puts a dead letter in as its first message: no segment is left behind.
#[test]
fn a_queue_that_begins_with_a_dead_letter_has_one_segment() {
    let storage = disk(5);
    let queue = open(storage.clone());
    put_dead_letter(&queue, 0, 100);
    assert_eq!(versions(&storage), (Some(Version::Origins), vec![(Version::Origins, true)]));
    let position = fragment_len(100 + ORIGIN_LEN as u64);
    assert_eq!(queue.core.committed_spot(), Spot { position, seq: 1 });
}
