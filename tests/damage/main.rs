//! Promises P3 and P4: whatever is done to the files, the queue opens, delivers nothing false,
//! loses the damaged messages alone, tells each of them once and in order, and goes on.
//!
//! `MMQ_DAMAGE_CASES` sets how many bytes are flipped (from about 23,000 on these include every
//! header byte) and how many of the other cases are sampled, up to 1,000. `MMQ_SEED` replays them.

#![cfg(unix)]

#[path = "../support/base.rs"]
mod base;
mod files;
#[path = "../support/replica.rs"]
mod replica;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::{Base, NOTHING, Reader, Verdict, WITNESS, bases, damaged_index, damaged_segment};
use mmq::{Error, Gap, GapCause, Options, Queue};
use replica::{Place, Replica};
use support::{
    Messages, Random, Told, copy_directory, count, drain, drain_by, drain_exactly, drain_with,
    names, seed, within,
};

/// What a reader takes out until nothing is left. Panics unless it is told of each number once and
/// in order, but for those it acknowledged before.
fn told_to(
    queue: &Queue,
    reader: &Reader,
    limit: u64,
    check: impl FnMut(u64, &[u8]),
) -> (Option<(u64, u64)>, Vec<Gap>) {
    let drained = match reader.name {
        None => drain(queue, limit, check),
        Some(name) => {
            let consumer = queue.consumer(name).expect("a consumer");
            let take = || {
                let mut bytes = Vec::new();
                Ok(consumer.dequeue_into(&mut bytes)?.map(|seq| (seq, bytes)))
            };
            drain_with(take, limit, check)
        }
    };
    let mut span: Option<(u64, u64)> = None;
    for told in &drained.told {
        let (begin, end) = match told {
            Told::Message(seq) => (*seq, seq + 1),
            Told::Gap(gap) => (gap.first, gap.last + 1),
        };
        assert!(end > begin, "{told:?} covers nothing");
        let first = match span {
            None => begin,
            Some((first, mut expected)) => {
                while expected < begin && reader.done.contains(&expected) {
                    expected += 1;
                }
                assert_eq!(
                    begin, expected,
                    "{reader:?}: {told:?} does not follow what was told before it"
                );
                first
            }
        };
        span = Some((first, end));
    }
    if let Some((_, end)) = &mut span {
        while reader.done.contains(end) {
            *end += 1;
        }
    }
    (span, drained.gaps())
}

/// Opens the damaged queue and holds it to the promises, for every consumer. Returns how many
/// messages were lost.
fn judge(base: &Base, dir: &Path, verdict: &Verdict, give_back: bool) -> u64 {
    let Base { next, .. } = *base;
    let queue = base.options.clone().open(dir).expect("a damaged queue opens");
    assert!(queue.len() <= next + (1 << 24), "len {} of {next}", queue.len());
    if give_back && queue.consumers().iter().any(|name| name == WITNESS) {
        queue.remove_consumer(WITNESS).unwrap();
    }
    // Those whose rows are lost come into being again before anything is given back; the default
    // one is the first to read.
    let _consumers: Vec<_> = base
        .readers
        .iter()
        .filter_map(|reader| reader.name)
        .map(|name| queue.consumer(name).unwrap())
        .collect();
    // With the index and the segments damaged both, nobody may know any more where the queue began
    // and ended.
    let ends_known = verdict.index_spared || verdict.lost.is_empty();
    let (mut worst, mut gaps_told, mut lost_told, mut reserved_told) = (0, 0, 0, 0);
    for reader in &base.readers {
        let (span, gaps) =
            told_to(&queue, reader, 4 * next + 100, |seq, bytes| base.check(seq, bytes));
        assert!(span.is_some() || !ends_known, "{reader:?} is told of nothing");
        let (first, end) = span.unwrap_or((next, next));
        if verdict.index_spared {
            assert_eq!(
                (first, end),
                (reader.place, next),
                "{reader:?} is told of every number, once"
            );
            assert!(gaps.iter().all(|gap| gap.cause == GapCause::Damaged), "{gaps:?}");
        }
        assert!(
            !ends_known || first <= reader.place && end >= next,
            "{reader:?} was told of numbers {first} to {end}, of {next}"
        );
        let mut lost = 0;
        for gap in &gaps {
            for seq in gap.first.max(reader.place)..=gap.last.min(next - 1) {
                lost += 1;
                assert!(
                    verdict.lost.contains(&seq),
                    "{gaps:?}: message {seq} is lost, {:?} may be",
                    verdict.lost
                );
            }
        }
        worst = worst.max(lost);
        gaps_told += gaps.len() as u64;
        let (reserved, lost): (Vec<Gap>, Vec<Gap>) =
            gaps.iter().partition(|gap| gap.cause == GapCause::Reserved);
        lost_told += lost.iter().map(Gap::count).sum::<u64>();
        reserved_told += reserved.iter().map(Gap::count).sum::<u64>();
    }
    let stats = queue.stats();
    let figures = (stats.gaps, stats.lost_messages, stats.reserved_numbers);
    assert_eq!(figures, (gaps_told, lost_told, reserved_told), "the figures agree");
    // It goes on: the same queue, and again after it was opened once more.
    let after: Vec<u64> =
        (0..3).map(|key| queue.enqueue(base.messages.of_len(key, 40)).unwrap()).collect();
    assert!(
        after.iter().all(|seq| !ends_known || *seq >= next),
        "a number of {after:?} was used before"
    );
    assert_eq!(
        next_message(&queue),
        Some((after[0], base.messages.of_len(0, 40))),
        "the first new one"
    );
    queue.close().unwrap();
    let queue = base.options.clone().open(dir).unwrap();
    for reader in &base.readers {
        let mut wanted = after.iter().zip(0..).skip(usize::from(reader.name.is_none()));
        // Numbers never given (an index that had to be guessed) may be told of before a new
        // message, nothing else.
        told_to(&queue, reader, 10, |seq, bytes| {
            let (expected, key) = wanted.next().expect("no more than the new ones");
            assert_eq!(seq, *expected);
            base.messages.check_len(key, 40, bytes);
        });
        assert!(wanted.next().is_none(), "{reader:?} lacks a new message");
    }
    assert_eq!(queue.len(), 0);
    queue.close().unwrap();
    worst
}

fn next_message(queue: &Queue) -> Option<(u64, Vec<u8>)> {
    for _ in 0..3 {
        match queue.dequeue() {
            Ok(message) => return message.map(|message| (message.seq(), message.into_vec())),
            Err(Error::Gap(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("gap after gap")
}

/// Copies a base, damages the copy and judges it, all within a time limit: as a copy, or, every
/// other time, where the queue was opened and closed before, so that its index is true for that
/// directory. Returns how many messages were lost.
fn case(base: &Arc<Base>, what: &str, damage: impl FnOnce(&Path) -> Verdict) -> u64 {
    let at_home = what.bytes().map(u64::from).sum::<u64>() % 2 == 0;
    let copy = tempfile::tempdir().unwrap();
    let dir = copy.path().join("queue");
    copy_directory(&base.files(), &dir);
    if at_home {
        base.options.clone().open(&dir).unwrap().close().unwrap();
    }
    let verdict = damage(&dir);
    println!("{what}, at home: {at_home}: {verdict:?}");
    let base = Arc::clone(base);
    within(Duration::from_secs(120), move || judge(&base, &dir, &verdict, true))
}

/// A place in any file, and what damage of `len` bytes there may cost.
fn any_place(base: &Base, random: &mut Random, len: u64) -> (String, u64, Verdict) {
    let index = fs::metadata(base.files().join("index")).unwrap().len();
    let files = base.live.len() as u64 + 2;
    match random.below(files) {
        0 => ("index".into(), random.below(index), damaged_index()),
        1 if !base.spare.is_empty() => {
            let spare = random.pick(&base.spare);
            (spare.name.clone(), random.below(spare.len), damaged_segment(NOTHING))
        }
        file => {
            let number = (file as usize).saturating_sub(2);
            let segment = &base.live[number];
            // The first bytes, where the header is, and the neighbourhood of records get their
            // share.
            let at = match random.below(4) {
                0 => random.below(192),
                1 => (random.pick(&segment.fragments).at + 24).saturating_sub(random.below(40)),
                _ => random.below(segment.fragments.last().unwrap().end + 100),
            };
            let at = if len > 1 { at / len * len } else { at };
            (segment.name.clone(), at, damaged_segment(base.cost(number, at, at + len)))
        }
    }
}

fn overwrite(dir: &Path, name: &str, at: u64, bytes: &[u8]) {
    let file = fs::File::options().read(true).write(true).open(dir.join(name)).unwrap();
    let room = file.metadata().unwrap().len().saturating_sub(at);
    file.write_all_at(&bytes[..bytes.len().min(room as usize)], at).unwrap();
}

fn sampled(share: u64) -> impl Iterator<Item = Arc<Base>> {
    let [small, large, long] = bases();
    // Cases of the long messages take the most time and find the least.
    let turn = [Arc::clone(&small), Arc::clone(&large), small, large, long];
    // Each copies the whole queue.
    (0..(count("MMQ_DAMAGE_CASES", 300).min(1000) / share).max(5))
        .map(move |n| Arc::clone(&turn[n as usize % turn.len()]))
}

/// The bytes to be flipped in one base: as many as asked for, and every header byte among them if
/// they are enough.
fn places(
    replica: &Replica<'_>,
    random: &mut Random,
    wanted: usize,
    with_index: bool,
) -> Vec<Place> {
    let mut places = replica.headers(with_index);
    let headers = places.len();
    println!("{headers} header bytes and {} others", wanted.saturating_sub(headers));
    while places.len() < wanted {
        let place = if random.chance(2) {
            replica.fragment_header(random)
        } else {
            replica.anywhere(random)
        };
        places.push(place);
    }
    if wanted < headers {
        // A sample of everything instead.
        (0..wanted / 2).for_each(|_| places.push(replica.fragment_header(random)));
        (0..wanted).for_each(|at| {
            let other = at + random.below((places.len() - at) as u64) as usize;
            places.swap(at, other);
        });
        places.truncate(wanted);
    }
    places
}

#[test]
fn a_flipped_byte_anywhere_costs_at_most_its_message() {
    let seed = seed("flipped byte");
    let wanted = count("MMQ_DAMAGE_CASES", 300) as usize;
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

/// Nobody has read yet, and the first segment is lost: a consumer that comes is told what is
/// missing, also after further openings.
#[test]
fn a_beginning_that_was_lost_before_anybody_read_is_told_to_everybody() {
    for closed_between in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().arena_size(4096).max_bytes(4 << 20);
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
            assert_eq!(drained.told.len() as u64, 1 + 1000 - lost);
        }
        assert_eq!(queue.stats().lost_messages, 2 * lost);
        assert_eq!(queue.enqueue(messages.bytes(1000)).unwrap(), 1000);
        assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 1000);
    }
}

#[test]
fn an_index_that_was_made_longer_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
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

/// Threads that take batches of one consumer over many gaps: each number comes or is told, once.
#[test]
fn threads_that_take_batches_are_told_each_gap_once() {
    let total = 4000u64;
    for _ in 0..support::count("MMQ_GAP_ROUNDS", 4) {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::open(dir.path()).unwrap();
        for number in 0..total {
            queue.enqueue(format!("message number {number:08}")).unwrap();
        }
        queue.close().unwrap();
        let tag = b"message number ";
        for path in support::segments(dir.path()) {
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
        let told = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while told.lock().unwrap().len() < total as usize {
                        match queue.dequeue_batch(7) {
                            Ok(messages) => {
                                told.lock().unwrap().extend(messages.iter().map(mmq::Message::seq))
                            }
                            Err(Error::Gap(gap)) => {
                                told.lock().unwrap().extend(gap.first..=gap.last)
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
        let mut told = told.into_inner().unwrap();
        told.sort_unstable();
        assert_eq!(told, (0..total).collect::<Vec<_>>());
    }
}
