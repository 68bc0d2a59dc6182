//! Places that are chosen, moved and forked while segments are given back; and what goes on at the
//! end of a run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::{Queue, go, open, small, take_next, under};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::error::{Error, GapCause};
use crate::format::{FRAGMENT_HEADER_LEN, SEGMENT_HEADER_LEN, segment_name};
use crate::message::Message;
use crate::options::OnFull;
use crate::storage::{Storage, Stores};
use crate::tests::schedule;
use crate::tests::sim::{Call, SimStorage, meanwhile};
use crate::threads;

/// By the schedule's clock: all others go on until they wait.
const PAUSE: Duration = Duration::from_millis(10);

/// Four segments with a message each, and two consumers at the first one.
fn with_messages() -> Queue {
    let queue = open(&small(6), Background::Calls);
    for name in ["a", "b"] {
        queue.consumer(name).unwrap();
    }
    for _ in 0..4 {
        queue.enqueue(&[1; 6000]).unwrap();
    }
    queue
}

fn take_all(queue: &Queue, name: &str) {
    let consumer = queue.consumer(name).unwrap();
    while reading::next(queue, &consumer, Read::Take).unwrap().is_some() {}
}

/// The segment that a seek has chosen may be the next one that all consumers have passed.
#[test]
fn where_a_seek_arrives_the_messages_are() {
    under(300, || {
        let queue = with_messages();
        take_all(&queue, "a");
        let other = {
            let queue = Arc::clone(&queue);
            go("b", move || take_all(&queue, "b"))
        };
        let consumer = queue.consumer("a").unwrap();
        match queue.seek(&consumer, 1) {
            Ok(()) => assert_eq!(take_next(&queue, &consumer), 1),
            Err(Error::NotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        other.join();
    });
}

/// The place that a fork has read may be passed before the new consumer stands there.
#[test]
fn a_fork_is_given_what_was_there() {
    under(300, || {
        let queue = with_messages();
        queue.remove_consumer("b").unwrap();
        let other = {
            let queue = Arc::clone(&queue);
            go("a", move || take_all(&queue, "a"))
        };
        let fork = queue.fork(&queue.consumer("a").unwrap(), "fork").unwrap();
        let mut came = Vec::new();
        while let Some(message) = reading::next(&queue, &fork, Read::Take).unwrap() {
            came.push(message.seq());
        }
        assert!(came.windows(2).all(|pair| pair[1] == pair[0] + 1), "{came:?}");
        assert!(came.last().is_none_or(|last| *last == 3), "{came:?}");
        other.join();
    });
}

/// A sync of one thread has failed, and another one is about to store pages of a segment again.
#[test]
fn nobody_leads_a_flush_after_a_close() {
    under(50, || {
        let queue = with_messages();
        let leads = Arc::new(AtomicBool::new(false));
        let flusher = {
            let (queue, leads) = (Arc::clone(&queue), Arc::clone(&leads));
            go("flusher", move || {
                meanwhile("while a thread leads a flush", move || {
                    leads.store(true, Ordering::Relaxed);
                    threads::park_timeout(PAUSE);
                });
                drop(queue.core.flush());
            })
        };
        while !leads.load(Ordering::Relaxed) {
            threads::park_timeout(PAUSE / 10);
        }
        queue.core.index.set_poisoned(&Error::Closed);
        assert!(queue.close().is_err());
        assert!(!queue.core.durable.lock().has_leader);
        flusher.join();
    });
}

/// A thread that puts in messages, each of which is full of its number.
fn numbered(queue: &Queue, numbers: Range<u8>, len: usize) -> threads::JoinHandle {
    let queue = Arc::clone(queue);
    go("producer", move || {
        for number in numbers {
            queue.enqueue(&vec![number; len]).unwrap();
        }
    })
}

fn check_numbered(message: &Message) {
    let number = message.seq() as u8;
    assert!(message.iter().all(|byte| *byte == number), "{number} changed");
}

/// Takes messages until the last of `count` came or was dropped; the newest stay lent.
fn take_numbered(queue: &Queue, count: u8) {
    let consumer = queue.consumer("c").unwrap();
    let mut held: VecDeque<Message> = VecDeque::new();
    let mut next = 0;
    while next < u64::from(count) {
        match queue.wait(&consumer, None, || reading::next(queue, &consumer, Read::Take)) {
            Ok(message) => {
                held.extend(message);
                next = held.back().map_or(0, Message::seq) + 1;
            }
            Err(Error::Gap(gap)) => {
                assert_eq!(gap.cause, GapCause::Dropped);
                next = gap.last + 1;
            }
            Err(error) => panic!("{error}"),
        }
        held.iter().for_each(check_numbered);
        held.drain(..held.len().saturating_sub(3));
    }
    // What may change does so now.
    threads::park_timeout(PAUSE);
    held.iter().for_each(check_numbered);
}

/// Producers evict the oldest segment while a reader has it open and is about to map it.
#[test]
fn what_is_lent_stays_as_it_is_while_segments_are_used_again() {
    under(600, || {
        let queue = open(&small(4).on_full(OnFull::DropOldest), Background::Calls);
        queue.consumer("c").unwrap();
        let len = [2600, 6000][(schedule::seed() % 2) as usize];
        let producer = numbered(&queue, 0..24, len);
        take_numbered(&queue, 24);
        producer.join();
    });
}

/// The first flush of a run stores again what the opening found: in segments that are given back,
/// and used again, meanwhile.
#[test]
fn a_flush_that_stores_pages_again_changes_no_message() {
    under(600, || {
        let storage = SimStorage::new(7).with_file_capacity(128 << 10);
        let options = small(5).on_full(OnFull::DropOldest);
        let (len, found) = [(2600, 9), (6000, 3)][(schedule::seed() % 2) as usize];
        let killed = {
            let queue = Engine::open_without_workers(storage.clone(), &options).unwrap();
            queue.consumer("c").unwrap();
            for number in 0..found {
                queue.enqueue(&vec![number; len]).unwrap();
            }
            storage.process_kill()
        };
        let queue = Arc::new(Engine::open_with(killed, &options, Background::Workers).unwrap());
        let producer = numbered(&queue, found..24, len);
        let flusher = {
            let queue = Arc::clone(&queue);
            go("flusher", move || {
                threads::park_timeout(Duration::from_micros(schedule::seed() % 37 * 40));
                queue.core.flush().unwrap();
            })
        };
        take_numbered(&queue, 24);
        producer.join();
        flusher.join();
    });
}

/// Other threads may give back what lies before a place as soon as they see it. (Not drawn: the
/// other thread comes right before the store.)
#[test]
fn a_place_is_stored_before_other_threads_see_it() {
    let storage = SimStorage::new(7).with_file_capacity(128 << 10);
    let queue = Arc::new(Engine::open_without_workers(storage.clone(), &small(6)).unwrap());
    let consumer = queue.consumer("a").unwrap();
    queue.consumer("b").unwrap();
    // Two segments and a piece.
    queue.enqueue(&[1; 18_000]).unwrap();
    let (other, killed) = (Arc::clone(&queue), Rc::new(RefCell::new(None)));
    let into = Rc::clone(&killed);
    meanwhile("before a place is stored", move || {
        take_all(&other, "b");
        *into.borrow_mut() = Some(storage.process_kill());
    });
    assert!(reading::next(&queue, &consumer, Read::Take).unwrap().is_some());
    let killed = killed.take().expect("a place was stored");
    let queue = Engine::open_without_workers(killed, &small(6)).unwrap();
    let consumer = queue.consumer("a").unwrap();
    let next = reading::next(&queue, &consumer, Read::Take).unwrap();
    assert_eq!(next.map(|message| message.seq()), Some(0));
}

/// While a consumer is made, another one goes on, and gives back what it has read: but not what the
/// new one has to read.
#[test]
fn what_a_consumer_that_is_being_made_has_to_read_stays() {
    let storage = SimStorage::new(7).with_file_capacity(128 << 10);
    let queue = Arc::new(Engine::open_without_workers(storage, &small(6)).unwrap());
    queue.consumer("b").unwrap();
    // Two segments and a piece.
    queue.enqueue(&[1; 18_000]).unwrap();
    queue.enqueue(&[1; 100]).unwrap();
    let other = Arc::clone(&queue);
    meanwhile("before a consumer has its place", move || {
        take_all(&other, "b");
        other.core.drain_passed();
    });
    let consumer = queue.consumer("a").unwrap();
    let next = reading::next(&queue, &consumer, Read::Take).unwrap();
    assert_eq!(next.map(|message| message.seq()), Some(0));
}

/// A consumer that reads no more keeps no dropped segment's space on the disk.
#[test]
fn who_stands_in_a_segment_that_is_dropped_releases_it() {
    let queue = open(&small(6).on_full(OnFull::DropOldest), Background::Calls);
    let consumer = queue.consumer("a").unwrap();
    queue.enqueue(&[1; 6000]).unwrap();
    assert!(reading::next(&queue, &consumer, Read::Look).unwrap().is_some());
    while queue.core.oldest_seq.load(Ordering::Relaxed) == 0 {
        queue.enqueue(&[1; 6000]).unwrap();
    }
    assert!(!queue.core.segments.has_removed_open());
}

/// A seek to a number that was lost looks at the end, for which it takes the producers' lock. It
/// keeps segments from being given back meanwhile.
#[test]
fn a_seek_and_a_producer_without_room_do_not_wait_for_each_other() {
    under(200, || {
        let storage = SimStorage::new(7).with_file_capacity(128 << 10);
        let queue = Engine::open_without_workers(storage.clone(), &small(4)).unwrap();
        queue.consumer("c").unwrap();
        for _ in 0..3 {
            queue.enqueue(&[1; 6000]).unwrap();
        }
        queue.core.flush().unwrap();
        let lost = queue.enqueue(&[1; 600]).unwrap();
        let cut = storage.power_cut_losing_all();
        drop(queue);
        let queue = Arc::new(Engine::open_without_workers(cut, &small(4)).unwrap());
        let producer = {
            let queue = Arc::clone(&queue);
            go("producer", move || {
                for _ in 0..3 {
                    let _ = queue.enqueue(&[1; 20_000]);
                }
            })
        };
        let consumer = queue.consumer("c").unwrap();
        for _ in 0..3 {
            let _ = queue.seek(&consumer, lost + 1);
        }
        producer.join();
    });
}

/// A segment that was full, and synced as such, is the tail's again when the one behind it is taken
/// back.
#[test]
fn what_is_stored_to_a_tail_that_was_opened_again_is_synced() {
    let storage = SimStorage::new(7).with_file_capacity(128 << 10);
    let queue = open_on(&storage);
    queue.consumer("c").unwrap();
    queue.enqueue(b"one").unwrap();
    queue.core.flush().unwrap();
    {
        let mut list = queue.core.segments.list();
        let row = list.next_unsynced(&storage, 0, u64::MAX).expect("it was stored to").row;
        list.note_synced(&row);
    }
    queue.core.writer.lock().note_refused();
    queue.enqueue(b"two").unwrap();
    queue.core.flush().unwrap();
    let cut = open_on(&storage.power_cut_losing_all());
    let consumer = cut.consumer("c").unwrap();
    assert_eq!([0, 1].map(|_| take_next(&cut, &consumer)), [0, 1]);
}

/// Where stores are calls, any of them may be refused. A message whose tail the index does not have
/// would count as lost behind it in another mount namespace. Reserved numbers are skipped
/// there, and nothing else.
#[test]
fn the_index_has_the_tail_of_each_message_whichever_writes_were_refused() {
    for (nth, later) in (1..5).flat_map(|nth| (1..8).map(move |later| (nth, later))) {
        let storage = by_call();
        let queue = open_on(&storage);
        queue.consumer("c").unwrap();
        queue.enqueue(b"one").unwrap();
        storage.fail_after(Call::Write, nth, Errno::NOSPC, false);
        storage.fail_after(Call::Write, nth + later, Errno::NOSPC, false);
        let there = 1 + (0..3).filter(|_| queue.enqueue(b"more").is_ok()).count() as u64;
        storage.clear_faults();
        let queue = open_on(&storage.seen_elsewhere());
        let consumer = queue.consumer("c").unwrap();
        for seq in 0..there {
            assert_eq!(take_next(&queue, &consumer), seq, "writes {nth} and {later} behind it");
        }
        match reading::next(&queue, &consumer, Read::Take) {
            Err(Error::Gap(gap)) => {
                let reported = (gap.first, gap.cause);
                assert_eq!(reported, (there, GapCause::Reserved), "writes {nth} and {later}");
            }
            other => panic!("writes {nth} and {later}: {other:?}"),
        }
    }
}

/// Where stores are calls, the header of a long record is the last of them (R0).
#[test]
fn a_header_is_there_when_all_of_its_payload_is() {
    let mut seen = [false; 2];
    for nth in 1.. {
        let storage = by_call();
        let queue = open_on(&storage);
        queue.enqueue(b"one").unwrap();
        let at = SEGMENT_HEADER_LEN as usize + queue.core.committed_spot().position as usize;
        storage.freeze_at(nth);
        queue.enqueue(&[0xA1; 5000]).unwrap();
        let Some(killed) = storage.frozen() else { break };
        let bytes = killed.read_file(&segment_name(0));
        let (header, payload) = bytes[at..].split_at(FRAGMENT_HEADER_LEN as usize);
        let has_header = header.iter().any(|byte| *byte != 0);
        assert!(!has_header || payload[..5000].iter().all(|byte| *byte == 0xA1), "call {nth}");
        seen[usize::from(has_header)] = true;
    }
    assert_eq!(seen, [true; 2]);
}

fn by_call() -> SimStorage {
    let storage = SimStorage::new(7).with_file_capacity(128 << 10);
    storage.set_stores(Stores::ByCall);
    storage
}

fn open_on(storage: &SimStorage) -> Queue {
    Arc::new(Engine::open_without_workers(storage.clone(), &small(6)).unwrap())
}

/// Who makes a consumer has done so before the close goes on, or is refused.
#[test]
fn a_close_waits_for_who_makes_a_consumer() {
    // It has yet to lock the registry when it has found the queue open twice, and holds it when it
    // has done so for the third time.
    for pauses_at in [2, 3] {
        under(40, move || {
            let queue = with_messages();
            let is_closed = Arc::new(AtomicBool::new(false));
            let maker = {
                let (queue, is_closed) = (Arc::clone(&queue), Arc::clone(&is_closed));
                go("maker", move || {
                    let too_late = Arc::new(AtomicBool::new(false));
                    let noted = Arc::clone(&too_late);
                    pause_when_found_open(pauses_at, move || {
                        noted.store(is_closed.load(Ordering::SeqCst), Ordering::SeqCst);
                    });
                    let made = queue.consumer("c");
                    let may_be = !too_late.load(Ordering::SeqCst);
                    assert!(may_be && made.is_ok() || matches!(made, Err(Error::Closed)));
                })
            };
            // The maker goes first, in some schedules as far as to its pause.
            threads::park_timeout(PAUSE / 2);
            queue.close().unwrap();
            is_closed.store(true, Ordering::SeqCst);
            let contents = queue.core.storage.contents();
            maker.join();
            assert!(queue.core.storage.contents() == contents, "the files changed after the close");
        });
    }
}

/// This thread is to pause when it has found the queue open so many times, and then to do `behind`.
fn pause_when_found_open(times: u32, behind: impl FnOnce() + Send + 'static) {
    meanwhile("found open", move || {
        if times > 1 {
            return pause_when_found_open(times - 1, behind);
        }
        threads::park_timeout(PAUSE);
        behind();
    });
}

/// Messages that come while a reader finds no segment at all are no part of the damage.
#[test]
fn what_comes_while_no_segment_is_found_is_not_reported_missing() {
    let queue = open(&small(6), Background::Calls);
    let consumer = queue.consumer("c").unwrap();
    queue.enqueue(b"lost").unwrap();
    // Somebody removes the only segment, which nobody has open.
    queue.core.writer.lock().note_refused();
    queue.core.segments.close_files();
    let names = queue.core.storage.file_names();
    let name = names.iter().find(|name| name.starts_with("segment")).expect("a segment");
    queue.core.storage.remove(name).unwrap();
    let producer = Arc::clone(&queue);
    meanwhile("where no segment is", move || {
        producer.enqueue(b"new").unwrap();
    });
    let gap = reading::next(&queue, &consumer, Read::Take);
    assert!(matches!(gap, Err(Error::Gap(gap)) if (gap.first, gap.last) == (0, 0)), "{gap:?}");
    assert_eq!(take_next(&queue, &consumer), 1);
}
