//! What a damaged queue must do, and where the damage is done.

use super::*;
use crate::support::{is_whole, rounds};

/// What a reader takes out until nothing is left. Panics unless each number is reported once and
/// in order, but for those it acknowledged before.
pub(crate) fn reported_to(
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
    for reported in &drained.reported {
        let (begin, end) = match reported {
            Reported::Message(seq) => (*seq, seq + 1),
            Reported::Gap(gap) => (gap.first, gap.last + 1),
        };
        assert!(end > begin, "{reported:?} covers nothing");
        let first = match span {
            None => begin,
            Some((first, mut expected)) => {
                while expected < begin && reader.done.contains(&expected) {
                    expected += 1;
                }
                assert_eq!(
                    begin, expected,
                    "{reader:?}: {reported:?} does not follow what was reported before it"
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

/// The messages that a look from outside names as damaged.
fn named_from_outside(dir: &Path) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    let mut findings = 0;
    let inspector = Inspector::open(dir).unwrap();
    let verified = inspector.verify(|finding| {
        findings += 1;
        named.extend(finding.lost.into_iter().flat_map(|gap| gap.first..=gap.last));
    });
    assert_eq!(verified.expect("a damaged queue is looked at").findings, findings);
    named
}

/// Reads report the damage that was seen from outside, and no other, to a reader who begins at
/// `first`.
fn check_named(reader: &Reader, first: u64, gaps: &[Gap], named: &BTreeSet<u64>) {
    let damaged = gaps.iter().filter(|gap| gap.cause == GapCause::Damaged);
    let reported: BTreeSet<u64> = damaged.flat_map(|gap| gap.first..=gap.last).collect();
    let seen: BTreeSet<u64> = named.range(first..).copied().collect();
    let unreported: Vec<_> =
        seen.difference(&reported).filter(|seq| !reader.done.contains(seq)).collect();
    let unseen: Vec<_> = reported.difference(&seen).collect();
    assert!(
        unreported.is_empty() && unseen.is_empty(),
        "{unreported:?} was not reported to {reader:?}, and from outside {unseen:?} was not seen"
    );
}

/// Opens the damaged queue and holds it to the promises, for every consumer. Returns how many
/// messages were lost.
pub(crate) fn judge(base: &Base, dir: &Path, verdict: &Verdict, give_back: bool) -> u64 {
    let Base { next, .. } = *base;
    static CASE: AtomicUsize = AtomicUsize::new(0);
    // (A look at all messages takes as long as the rest.)
    let look = CASE.fetch_add(1, Ordering::Relaxed).is_multiple_of(4);
    let named = look.then(|| named_from_outside(dir));
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
    let (mut worst, mut gaps_reported, mut lost_reported, mut reserved_reported) = (0, 0, 0, 0);
    for reader in &base.readers {
        let (span, gaps) =
            reported_to(&queue, reader, 4 * next + 100, |seq, bytes| base.check(seq, bytes));
        assert!(span.is_some() || !ends_known, "nothing is reported to {reader:?}");
        let (first, end) = span.unwrap_or((next, next));
        if verdict.index_spared {
            assert_eq!(
                (first, end),
                (reader.place, next),
                "every number is reported to {reader:?}, once"
            );
            assert!(gaps.iter().all(|gap| gap.cause == GapCause::Damaged), "{gaps:?}");
        }
        assert!(
            !ends_known || first <= reader.place && end >= next,
            "numbers {first} to {end} of {next} were reported to {reader:?}"
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
        if let Some(named) = &named {
            check_named(reader, first, &gaps, named);
        }
        worst = worst.max(lost);
        gaps_reported += gaps.len() as u64;
        let (reserved, lost): (Vec<Gap>, Vec<Gap>) =
            gaps.iter().partition(|gap| gap.cause == GapCause::Reserved);
        lost_reported += lost.iter().map(Gap::count).sum::<u64>();
        reserved_reported += reserved.iter().map(Gap::count).sum::<u64>();
    }
    let stats = queue.stats();
    let figures = (stats.gaps, stats.lost_messages, stats.reserved_numbers);
    assert_eq!(figures, (gaps_reported, lost_reported, reserved_reported), "the figures agree");
    goes_on(base, dir, queue, ends_known);
    worst
}

/// It goes on: the same queue, and again after it was opened once more.
fn goes_on(base: &Base, dir: &Path, queue: Queue, ends_known: bool) {
    let Base { next, .. } = *base;
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
        // Numbers never given (an index that had to be guessed) may be reported before a new
        // message, nothing else.
        reported_to(&queue, reader, 10, |seq, bytes| {
            let (expected, key) = wanted.next().expect("no more than the new ones");
            assert_eq!(seq, *expected);
            base.messages.check_len(key, 40, bytes);
        });
        assert!(wanted.next().is_none(), "{reader:?} lacks a new message");
    }
    assert_eq!(queue.len(), 0);
    queue.close().unwrap();
}

pub(crate) fn next_message(queue: &Queue) -> Option<(u64, Vec<u8>)> {
    for _ in 0..3 {
        match queue.dequeue() {
            Ok(message) => return message.map(|message| (message.seq(), message.into_vec())),
            Err(Error::Gap(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("gap after gap")
}

/// Where a copy is damaged: in memory where that is possible, since each case is closed, and
/// closing syncs; on the disk with an effort of 4.
pub(crate) fn scratch() -> tempfile::TempDir {
    let made = match is_whole() {
        false => crate::support::guard::tempdir_in_memory(),
        true => crate::support::tempdir(),
    };
    made.unwrap()
}

/// Copies a base, damages the copy and judges it, all within a time limit: as a copy, or, every
/// other time, where the queue was opened and closed before, so that its index is true for that
/// directory. Returns how many messages were lost.
pub(crate) fn case(base: &Arc<Base>, what: &str, damage: impl FnOnce(&Path) -> Verdict) -> u64 {
    let at_home = what.bytes().map(u64::from).sum::<u64>() % 2 == 0;
    let copy = scratch();
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
pub(crate) fn any_place(base: &Base, random: &mut Random, len: u64) -> (String, u64, Verdict) {
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

pub(crate) fn overwrite(dir: &Path, name: &str, at: u64, bytes: &[u8]) {
    let file = fs::File::options().read(true).write(true).open(dir.join(name)).unwrap();
    let room = file.metadata().unwrap().len().saturating_sub(at);
    file.write_all_at(&bytes[..bytes.len().min(room as usize)], at).unwrap();
}

pub(crate) fn sampled(share: u64) -> impl Iterator<Item = Arc<Base>> {
    let [small, large, long] = bases();
    // Cases of the long messages take the most time and find the least.
    let turn = [Arc::clone(&small), Arc::clone(&large), small, large, long];
    // Each copies the whole queue.
    (0..(rounds(40, 100).min(1200) / share).max(5))
        .map(move |n| Arc::clone(&turn[n as usize % turn.len()]))
}

/// The bytes to be flipped in one base: as many as asked for, and every header byte among them if
/// they are enough.
pub(crate) fn places(
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
