//! Promises P3 and P4: whatever is done to the files, the queue opens, delivers nothing false,
//! loses the damaged messages alone, reports each of them once and in order, and goes on.
//!
//! `MMQ_EFFORT` scales how many bytes are flipped (from 230 on these include every
//! header byte) and how many of the other cases are sampled, up to 1,200. `MMQ_SEED` replays them.

mod files;
mod verdict;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::{Base, NOTHING, Reader, Verdict, WITNESS, bases, damaged_index, damaged_segment};
use crate::replica::{Place, Replica};
use crate::support::{
    Messages, Random, Reported, copy_directory, drain, drain_by, drain_exactly, drain_with, effort,
    names, rounds, seed, within,
};
use mmq::{Error, Gap, GapCause, Inspector, Options, Queue};
use verdict::{any_place, case, judge, next_message, overwrite, places, sampled};

#[test]
fn a_flipped_byte_anywhere_costs_at_most_its_message() {
    let seed = seed("flipped byte");
    let wanted = rounds(40, 100) as usize;
    let [small, large, _] = bases();
    // The index is the same in both.
    for (base, arenas, wanted, with_index) in
        [(small, "small", wanted / 4 * 3, true), (large, "large", wanted / 4, false)]
    {
        let places = Arc::new(places(
            &Replica::new(&base, false),
            &mut Random::new(seed),
            wanted,
            with_index,
        ));
        let (total, taken) = (places.len(), Arc::new(AtomicUsize::new(0)));
        let workers: Vec<_> = (0..2u64)
            .map(|worker| {
                let (base, places, taken) =
                    (Arc::clone(&base), Arc::clone(&places), Arc::clone(&taken));
                std::thread::spawn(move || {
                    let mut random = Random::new(seed ^ worker);
                    // One in a copy, one where the index is true for the directory.
                    let (mut replica, mut worst) = (Replica::new(&base, worker == 0), 0);
                    while let Some(place) = places.get(taken.fetch_add(1, Ordering::Relaxed)) {
                        let bits = if random.chance(3) { 0xff } else { 1 << random.below(8) };
                        let (what, verdict) = replica.flip(*place, bits);
                        let judged = catch_unwind(AssertUnwindSafe(|| {
                            let lost = judge(&base, &replica.dir(), &verdict, false);
                            replica.assert_kept(*place, bits);
                            lost
                        }));
                        let lost = judged.unwrap_or_else(|_| panic!("{what}: {verdict:?}"));
                        worst = worst.max(lost);
                        replica.restore(Some(*place));
                        if random.chance(50) {
                            replica.assert_restored();
                        }
                    }
                    worst
                })
            })
            .collect();
        let worst = workers.into_iter().map(|worker| worker.join().unwrap()).max();
        println!(
            "{total} flipped bytes with {arenas} arenas: at most {worst:?} messages lost by one"
        );
    }
    #[cfg(target_os = "linux")]
    {
        // Lengths and counts that are lies, up to 4 GiB, are among the flipped bytes. (Mapped files
        // count as well.)
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        println!("peak of memory: {peak} KiB");
        assert!(peak < 2 << 20, "{peak} KiB of memory were taken");
    }
}

#[test]
fn a_zeroed_page_anywhere_costs_the_messages_in_it() {
    let mut random = Random::new(seed("zeroed page"));
    let mut worst = 0;
    for base in sampled(2) {
        let (name, at, verdict) = any_place(&base, &mut random, 4096);
        let at = at / 4096 * 4096;
        let fill = *random.pick(&[0, 0, 0xff]);
        worst = worst.max(case(&base, &format!("{name}: page at {at}"), |dir| {
            overwrite(dir, &name, at, &[fill; 4096]);
            verdict
        }));
    }
    println!("one zeroed page: at most {worst} messages lost");
}

#[test]
fn a_file_cut_at_any_length_costs_what_was_cut_off() {
    let mut random = Random::new(seed("cut file"));
    for base in sampled(4) {
        let (name, at, _) = any_place(&base, &mut random, 1);
        let at = if random.chance(6) { 0 } else { at };
        let verdict = match base.live.iter().position(|segment| segment.name == name) {
            Some(number) => damaged_segment(base.cost(number, at, u64::MAX)),
            None if name == "index" => damaged_index(),
            None => damaged_segment(NOTHING),
        };
        case(&base, &format!("{name} cut at {at}"), |dir| {
            fs::File::options().write(true).open(dir.join(&name)).unwrap().set_len(at).unwrap();
            verdict
        });
    }
}

#[test]
fn many_damages_at_once_still_deliver_nothing_false() {
    let mut random = Random::new(seed("many damages"));
    for base in sampled(6) {
        let mut index_spared = true;
        let mut hits = Vec::new();
        for _ in 0..1 + random.below(30) {
            let (name, at, verdict) = any_place(&base, &mut random, 1);
            index_spared &= verdict.index_spared;
            hits.push((
                name,
                at,
                (0..random.below(9000)).map(|_| random.next() as u8).collect::<Vec<u8>>(),
            ));
        }
        case(&base, &format!("{} damages", hits.len()), |dir| {
            for (name, at, bytes) in &hits {
                overwrite(dir, name, *at, bytes);
            }
            Verdict { lost: base.first..=base.next, index_spared }
        });
    }
}

/// Nobody has read yet, and the first segment is lost: what is missing is reported to a
/// consumer that comes, also after further openings.
#[test]
fn a_beginning_that_was_lost_before_anybody_read_is_reported_to_everybody() {
    for closed_between in [false, true] {
        let dir = crate::support::tempdir().unwrap();
        let options = Options::new().arena_size(4096).max_bytes(8 << 20);
        let messages = Messages::new(11, &[2000..=2000]);
        let queue = options.clone().open(dir.path()).unwrap();
        (0..1000).for_each(|seq| assert_eq!(queue.enqueue(messages.bytes(seq)).unwrap(), seq));
        queue.close().unwrap();
        std::fs::remove_file(dir.path().join("segment-00000000")).unwrap();
        if closed_between {
            options.clone().open(dir.path()).unwrap().close().unwrap();
        }
        let queue = options.clone().open(dir.path()).unwrap();
        let lost = 1000 - queue.len();
        assert!((200..400).contains(&lost), "{lost} messages were in it");
        let named = queue.consumer("named").unwrap();
        let check = |seq, bytes: &[u8]| messages.check(seq, bytes);
        for drained in [drain(&queue, 2000, check), drain_by(|| named.dequeue(), 2000, check)] {
            assert_eq!(
                drained.gaps(),
                [Gap { first: 0, last: lost - 1, cause: GapCause::Damaged }]
            );
            assert_eq!(drained.reported.len() as u64, 1 + 1000 - lost);
        }
        assert_eq!(queue.stats().lost_messages, 2 * lost);
        assert_eq!(queue.enqueue(messages.bytes(1000)).unwrap(), 1000);
        assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 1000);
    }
}

/// The last segment is lost after a close, and the limit evicts the one before: the next message
/// comes behind the lost ones, and is not taken for one of them.
#[test]
fn behind_a_lost_last_segment_messages_come_although_the_limit_evicts_the_one_before() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096);
    let messages = Messages::new(12, &[2000..=2000]);
    let queue = options.clone().max_bytes(8 << 20).open(dir.path()).unwrap();
    (0..500).for_each(|key| assert_eq!(queue.enqueue(messages.of_len(key, 2000)).unwrap(), key));
    queue.close().unwrap();
    let last = (0..).map(|slot| dir.path().join(format!("segment-{slot:08}")));
    std::fs::remove_file(last.take_while(|path| path.exists()).last().unwrap()).unwrap();
    let queue = options.max_bytes(65_536).open(dir.path()).unwrap();
    let named = queue.consumer("named").unwrap();
    let check = |key, bytes: &[u8]| messages.check_len(key, 2000, bytes);
    for drained in [drain(&queue, 1000, check), drain_by(|| named.dequeue(), 1000, check)] {
        assert!(matches!(drained.gaps()[..], [Gap { last: 499, cause: GapCause::Damaged, .. }]));
    }
    assert_eq!(queue.enqueue("after").unwrap(), 500);
    for came in [queue.dequeue(), named.dequeue()] {
        assert_eq!(came.unwrap().expect("the new message").as_str(), Ok("after"));
    }
}

#[test]
fn an_index_that_was_made_longer_takes_no_room() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(4 << 20);
    let queue = options.clone().open(dir.path()).unwrap();
    queue.enqueue("before").unwrap();
    queue.close().unwrap();
    let index = std::fs::File::options().write(true).open(dir.path().join("index")).unwrap();
    index.set_len(1 << 40).unwrap();
    drop(index);
    let queue = options.open(dir.path()).unwrap();
    assert_eq!(queue.enqueue("after").unwrap(), 1);
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("before"));
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("after"));
    assert!(queue.stats().disk_bytes < 4 << 20);
}

/// Threads that take batches of one consumer over many gaps: each number comes or is reported,
/// once.
#[test]
fn each_gap_is_reported_once_to_threads_that_take_batches() {
    let total = 4000u64;
    for _ in 0..4 * effort().min(20) {
        let dir = crate::support::tempdir().unwrap();
        let queue = Queue::open(dir.path()).unwrap();
        for number in 0..total {
            queue.enqueue(format!("message number {number:08}")).unwrap();
        }
        queue.close().unwrap();
        let tag = b"message number ";
        for path in crate::support::segments(dir.path()) {
            let mut bytes = fs::read(&path).unwrap();
            let places: Vec<usize> =
                (0..bytes.len() - 23).filter(|at| bytes[*at..].starts_with(tag)).collect();
            for at in places {
                if (bytes[at + 22] - b'0') % 4 == 3 {
                    bytes[at] ^= 1;
                }
            }
            fs::write(&path, bytes).unwrap();
        }
        let queue = Queue::open(dir.path()).unwrap();
        let reported = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while reported.lock().unwrap().len() < total as usize {
                        match queue.dequeue_batch(7) {
                            Ok(messages) => reported
                                .lock()
                                .unwrap()
                                .extend(messages.iter().map(mmq::Message::seq)),
                            Err(Error::Gap(gap)) => {
                                reported.lock().unwrap().extend(gap.first..=gap.last)
                            }
                            Err(error) => panic!("{error}"),
                        }
                        if queue.is_empty() {
                            break;
                        }
                    }
                });
            }
        });
        let mut reported = reported.into_inner().unwrap();
        reported.sort_unstable();
        assert_eq!(reported, (0..total).collect::<Vec<_>>());
    }
}
