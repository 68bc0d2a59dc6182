//! Promise P4, by every way of reading: a reader that mixes them gets the same messages and gaps as
//! one that takes message after message, and never a byte of a damaged message.
//!
//! `MMQ_EFFORT` multiplies the number of damaged queues, `MMQ_SEED` replays them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{KIB, Messages, Random, copy_directory, drain, effort, seed};
use mmq::{Consumer, Error, Options, Queue};

/// Turns a few bits of the segments around.
fn damage(random: &mut Random, dir: &Path) {
    for listed in fs::read_dir(dir).unwrap() {
        let path = listed.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("segment-") {
            continue;
        }
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        for _ in 0..random.below(4) {
            let (at, mut byte) = (random.below(len), [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << random.below(8)], at).unwrap();
        }
    }
}

/// Arenas and caps of all kinds: records in one window, in several pieces, read ahead; and now and
/// then an age.
fn options(random: &mut Random) -> Options {
    let options = Queue::options()
        .arena_size(*random.pick(&[4096, 16_384, 65_536]))
        .max_mapped_arenas(*random.pick(&[Some(3), Some(4), None, None]));
    if random.chance(5) { options.max_age(Some(Duration::from_secs(100_000))) } else { options }
}

/// What came, by any way of reading, and whether it was taken.
fn read(
    consumer: &Consumer,
    random: &mut Random,
    buffer: &mut Vec<u8>,
    check: impl Fn(u64, &[u8]),
) -> mmq::Result<Option<(u64, bool)>> {
    let into = |seq: Option<u64>, buffer: &[u8], taken| {
        seq.map(|seq| {
            check(seq, buffer);
            (seq, taken)
        })
    };
    let lent = |message: Option<mmq::Message>, taken| {
        message.map(|message| {
            check(message.seq(), &message);
            (message.seq(), taken)
        })
    };
    Ok(match random.below(9) {
        0 => lent(consumer.peek()?, false),
        1 | 2 => into(consumer.peek_into(buffer)?, buffer, false),
        3 => lent(consumer.dequeue()?, true),
        4 | 5 => into(consumer.dequeue_into(buffer)?, buffer, true),
        6 => consumer.skip()?.map(|seq| (seq, true)),
        what => match consumer.receive()? {
            None => None,
            Some(delivery) => {
                check(delivery.seq(), &delivery);
                let seq = delivery.seq();
                if what == 7 {
                    delivery.ack()?;
                }
                Some((seq, what == 7))
            }
        },
    })
}

#[test]
fn any_mixture_of_reads_reports_what_reading_one_by_one_reports() {
    let mut random = Random::new(seed("readings"));
    let (mut damaged, mut intact) = (0, 0);
    for case in 0..30 * effort() {
        let messages = Messages::new(
            case,
            &[0..=200, 0..=200, 0..=200, 1000..=2200, 1000..=2200, 0..=20 * KIB],
        );
        let base = crate::support::tempdir().unwrap();
        let (plain, mixed) = (base.path().join("plain"), base.path().join("mixed"));
        let queue = options(&mut random).open(&plain).unwrap();
        drop(queue.consumer("mixed").unwrap());
        let written = 50 + random.below(200);
        crate::support::fill_queue(&queue, &messages, 0, written);
        queue.close().unwrap();
        damage(&mut random, &plain);
        copy_directory(&plain, &mixed);

        let queue = Queue::open(&plain).unwrap();
        let drained = drain(&queue, 4 * written, |seq, bytes| messages.check(seq, bytes));
        assert_eq!(drained.span(), Some((0, written)));
        let lost: BTreeSet<u64> =
            drained.gaps().iter().flat_map(|gap| gap.first..=gap.last).collect();
        damaged += lost.len();
        intact += drained.messages().len();
        drop(queue);

        let queue = options(&mut random).open(&mixed).unwrap();
        let consumer = queue.consumer("mixed").unwrap();
        let (mut done, mut buffer, mut empty) = (BTreeSet::new(), b"before".to_vec(), 0);
        // What was handed out and dropped comes again.
        while empty < 20 {
            let check = |seq: u64, bytes: &[u8]| {
                assert!(!lost.contains(&seq), "case {case}: damaged message {seq} was delivered");
                messages.check(seq, bytes);
            };
            match read(&consumer, &mut random, &mut buffer, check) {
                Ok(Some((seq, taken))) => {
                    assert!(!done.contains(&seq), "case {case}: {seq} came again");
                    if taken {
                        done.insert(seq);
                    }
                }
                Ok(None) => empty += 1,
                Err(Error::Gap(gap)) => {
                    for seq in gap.first..=gap.last {
                        assert!(
                            lost.contains(&seq),
                            "case {case}: intact message {seq} is reported missing: {gap:?}"
                        );
                        assert!(done.insert(seq), "case {case}: {seq} was reported twice: {gap:?}");
                    }
                }
                Err(error) => panic!("case {case}: {error}"),
            }
        }
        assert_eq!(done.len() as u64, written, "case {case}: everything was reported");
    }
    println!("{intact} messages, {damaged} damaged");
    assert!(damaged > 0 && intact > damaged, "{intact} messages, {damaged} damaged");
}
