//! Batches and records that are cut short, refused, or half read.

use rustix::io::Errno;

use super::{PAGE, disk, fine, holds_but_for, is_of_a_cut, kept_but_for, options, take_all};
use crate::consume::step::Read;
use crate::engine::reading;
use crate::error::{Gap, GapCause};
use crate::format::{INDEX_NAME, SEGMENT_HEADER_LEN, segment_name};
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::storage::Stores;
use crate::tests::crash::examine::{Queue, consumer_of, next_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::sim::{Call, Mutant, SimStorage};

/// Three messages behind a short one. The second fills a page of its own, so that one try's may be
/// on the disk between the other's: where two share a sector, either tells that the other is not
/// its neighbour.
const BATCH: [usize; 3] = [PAGE - 152 - 16, PAGE - 16, 100];

fn batch_of(try_number: u64) -> Vec<Vec<u8>> {
    BATCH.iter().enumerate().map(|(at, len)| content(1000 * try_number + at as u64, *len)).collect()
}

/// A batch is whole or absent, and of one try.
fn check_batch(queue: &Queue, tries: &[u64]) -> Check {
    let reported = take_all(queue)?;
    let got: Vec<_> = reported
        .iter()
        .flatten()
        .filter(|(seq, _)| *seq > 0)
        .map(|(_, bytes)| bytes.clone())
        .collect();
    let whole = tries.iter().any(|number| got == batch_of(*number));
    ensure!(got.is_empty() || whole, "{} messages that are no batch that was tried", got.len());
    Ok(())
}

/// A batch is refused because a call fails, then tried again with the same lengths in the same
/// place; power is cut. Or the process dies in it, and power is cut after the second try.
#[test]
fn records_of_two_tries_at_a_batch_never_make_one() {
    kept_but_for(Mutant::SealNotChecked, |number, images| {
        let storage = disk(number);
        let options = options().arena_size(16 << 10).max_bytes(256 << 10);
        let mut queue = open(storage.clone(), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(b"before"))?;
        fine(queue.core.flush())?;
        let mut tried = vec![2];
        if number % 2 == 0 {
            storage.set_stores(Stores::ByCall);
            fine(queue.close())?;
            queue = open(storage.clone(), &options)?;
            // The reservation and a segment that is opened take none: two for the longer messages,
            // one and the seal for the last.
            storage.fail_after(Call::Write, 1 + number / 2 % 6, Errno::IO, false);
            let refused = queue.enqueue_batch(&batch_of(1));
            storage.clear_faults();
            if refused.is_ok() {
                return Ok(true);
            }
        } else {
            storage.freeze_at_store(1 + number / 2 % 40);
            fine(queue.enqueue_batch(&batch_of(1)))?;
            storage.disarm();
            let Some(dead) = storage.frozen() else {
                return Ok(true);
            };
            queue = open(dead, &options)?;
            // It may have been whole.
            tried.push(1);
        }
        if next_of(&queue) == 1 {
            fine(queue.enqueue_batch(&batch_of(2)))?;
        }
        for seed in 0..20 {
            *images += 1;
            let cut = queue.core.storage.power_cut(seed);
            check_batch(&open(cut, &options)?, &tried)?;
        }
        Ok(number < 100)
    });
}

/// Of a batch over three pages, never flushed, a power cut leaves all or nothing.
#[test]
fn a_torn_batch_is_absent() {
    kept_but_for(Mutant::TornBatchAccepted, |number, images| {
        let options = options().arena_size(16 << 10).max_bytes(256 << 10);
        let queue = open(disk(number), &options)?;
        fine(queue.default_consumer())?;
        fine(queue.enqueue(b"before"))?;
        fine(queue.enqueue_batch(&batch_of(1)))?;
        for seed in 0..10 {
            *images += 1;
            check_batch(&open(queue.core.storage.power_cut(seed), &options)?, &[1])?;
        }
        Ok(number < 20)
    });
}

/// A batch over two segments was flushed. Power is cut; its first message is taken and the segment
/// of it given back; power is cut again: the rest of the batch, still wanted, is there.
#[test]
fn the_rest_of_a_flushed_batch_outlives_two_power_cuts() {
    holds_but_for(Mutant::RecycledBeforePlacesAreSynced, || {
        for seed in 0..40 {
            let queue = begun_batch(seed);
            queue.core.flush().unwrap();
            let again = open(cut_behind(queue, seed), &options()).unwrap();
            // Otherwise reclaiming flushes what this opening found, and its places with it.
            again.core.flush().unwrap();
            the_rest_outlives(again, seed);
        }
    });
}

/// The same where the batch was confirmed by syncs of its segments alone, without a checkpoint.
#[test]
fn the_rest_of_a_confirmed_batch_outlives_two_power_cuts() {
    for seed in 0..40 {
        the_rest_outlives_another_power_cut(cut_behind(confirmed_batch(seed), seed), seed);
    }
}

/// The same where the opening behind the first power cut dies, at any of its stores, and power is
/// cut perhaps.
#[test]
fn the_rest_of_a_confirmed_batch_outlives_a_death_in_an_opening() {
    let mut deaths = 0;
    for seed in 1.. {
        let image = cut_behind(confirmed_batch(seed), seed);
        image.freeze_at_store(seed);
        drop(open(image.clone(), &options()).unwrap());
        image.disarm();
        let Some(dead) = image.frozen() else {
            break;
        };
        deaths += 1;
        let cuts = (0..6).map(|cut| dead.power_cut(seed << 8 | cut));
        for dead in cuts.chain([dead.process_kill()]) {
            the_rest_outlives_another_power_cut(dead, seed);
        }
    }
    assert!(deaths > 10, "{deaths}");
}

fn confirmed_batch(seed: u64) -> Queue {
    let queue = begun_batch(seed);
    queue.core.sync_directory().unwrap();
    queue.core.flush_to(queue.core.committed_spot()).unwrap();
    assert_eq!(queue.core.index.checkpoint().seq, 0, "no checkpoint");
    queue
}

fn begun_batch(seed: u64) -> Queue {
    let queue = open(disk(seed), &options()).unwrap();
    queue.default_consumer().unwrap();
    queue.enqueue_batch(&[content(1, 6000), content(2, 3000), content(3, 10)]).unwrap();
    queue
}

fn cut_behind(queue: Queue, seed: u64) -> SimStorage {
    queue.enqueue(&content(4, 3000)).unwrap();
    queue.core.storage.power_cut(seed)
}

fn the_rest_outlives_another_power_cut(image: SimStorage, seed: u64) {
    the_rest_outlives(open(image, &options()).unwrap(), seed);
}

fn the_rest_outlives(queue: Queue, seed: u64) {
    let consumer = consumer_of(&queue, "").unwrap();
    for seq in 0..2 {
        assert_eq!(reading::next(&queue, &consumer, Read::Take).unwrap().unwrap().seq(), seq);
    }
    let shown = || reading::next(&queue, &consumer, Read::Look);
    assert_eq!(shown().unwrap().unwrap().seq(), 2);
    let first_seq = queue.core.segments.list().live.front().unwrap().header.first_seq;
    assert_eq!(first_seq, 2, "the first was given back");
    let queue = open(queue.core.storage.power_cut(seed), &options()).unwrap();
    let reported = take_all(&queue).unwrap();
    assert!(
        matches!(reported.first(), Some(Ok((2, bytes))) if *bytes == content(3, 10)),
        "seed {seed}"
    );
}

/// A queue that was opened with a smaller limit evicts its one long segment, which everybody has
/// read, for a batch that is refused all the same: what comes after it is found.
#[test]
fn a_refused_batch_leaves_no_segment_before_the_tail() {
    let storage = disk(1);
    LENGTH_HERE.set(Some(64 << 10));
    let queue =
        open(storage.clone(), &options().arena_size(32 << 10).max_bytes(512 << 10)).unwrap();
    queue.default_consumer().unwrap();
    queue.enqueue(&content(1, 50_000)).unwrap();
    assert_eq!(take_all(&queue).unwrap().len(), 1);
    queue.close().unwrap();
    LENGTH_HERE.set(None);
    let queue = open(storage, &options()).unwrap();
    for kill in [false, true, false] {
        let next = next_of(&queue);
        let refused = queue.enqueue_batch(&[
            content(2, 7000),
            content(3, 7000),
            content(4, 7000),
            content(5, 7000),
        ]);
        assert!(refused.as_ref().is_err_and(|error| error.is_full()), "{refused:?}");
        let bases: Vec<_> =
            queue.core.segments.list().live.iter().map(|row| row.header.base).collect();
        assert!(
            bases.is_sorted()
                && bases.iter().all(|base| *base <= queue.core.committed_spot().position)
        );
        let dead = queue.core.storage.process_kill();
        if kill {
            let queue = open(dead, &options()).unwrap();
            assert_eq!(queue.enqueue(&content(5, 300)).unwrap(), next);
            assert_eq!(take_all(&queue).unwrap(), [Ok((next, content(5, 300)))]);
            continue;
        }
        assert_eq!(queue.enqueue(&content(5, 300)).unwrap(), next);
        assert_eq!(take_all(&queue).unwrap(), [Ok((next, content(5, 300)))]);
    }
}

/// A message that goes to the next segment is refused, and its padding stays behind the tail. A
/// batch is tried there, its second message begins the next segment, and the process dies; or
/// messages are put there, the third one in the next segment. Power is cut, and the padding is what
/// is left of them. What the next segment says of its first number is not believed.
#[test]
fn padding_of_a_refused_message_hides_no_gap() {
    let mut met = [0; 2];
    for (seed, whole) in (0..400).map(|number| (number / 2, number as usize % 2)) {
        let storage = disk(seed);
        // Without a reservation the same number comes next.
        let options = options().flush_every_ops((whole == 0).then_some(1));
        let queue = open(storage.clone(), &options).unwrap();
        queue.default_consumer().unwrap();
        queue.enqueue(&content(0, 7100)).unwrap();
        queue.core.flush().unwrap();
        storage.fail_after(Call::Create, 1, Errno::IO, false);
        queue.enqueue(&content(1, 3000)).unwrap_err();
        let dead = if whole == 0 {
            // Durable records go by write calls: the death comes at any of them.
            storage.freeze_at(1 + seed % 16);
            queue.enqueue_batch(&[content(2, 31), content(3, 3000), content(4, 7000)]).unwrap();
            let Some(dead) = storage.frozen() else { continue };
            dead
        } else {
            for len in [31, 60, 3000] {
                queue.enqueue(&content(2, len)).unwrap();
            }
            storage.process_kill()
        };
        let cut = dead.power_cut(seed);
        met[whole] += u32::from(cut.file_names().len() > 2);
        let queue = open(cut, &options.clone().max_bytes(256 << 10)).unwrap();
        let seq = queue.enqueue(b"behind").unwrap();
        let reported = take_all(&queue).unwrap();
        let behind =
            reported.iter().flatten().any(|(got, bytes)| *got == seq && bytes == b"behind");
        let gaps: Vec<_> = reported.iter().filter_map(|reported| reported.as_ref().err()).collect();
        assert!(
            behind && gaps.iter().all(|gap| is_of_a_cut(gap)),
            "seed {seed}, {whole}: {gaps:?}"
        );
    }
    assert!(met.iter().all(|met| *met > 20), "{met:?}");
}

/// A power cut took every message, and left the padding of a refused one in a segment behind the
/// tail. A place lies there, at what had come instead of the refused one: what comes next is not
/// behind it.
#[test]
fn padding_of_a_refused_message_behind_the_tail_hides_no_message() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    queue.default_consumer().unwrap();
    // It takes nothing, so no segment becomes a spare.
    queue.consumer("late").unwrap();
    for id in 0..2 {
        queue.enqueue(&content(id, 7100)).unwrap();
    }
    storage.fail_after(Call::Create, 1, Errno::IO, false);
    queue.enqueue(&content(2, 3000)).unwrap_err();
    let names = [0, 1].map(segment_name);
    let with_padding = names.each_ref().map(|name| storage.read_file(name));
    queue.enqueue(&content(3, 31)).unwrap();
    assert_eq!(take_all(&queue).unwrap().len(), 3);
    queue.core.flush_places().unwrap();
    let cut = storage.power_cut_losing_all();
    for (name, mut bytes) in names.iter().zip(with_padding) {
        bytes[1024..2048].fill(0);
        cut.write_file(name, &bytes);
    }
    let queue = open(cut, &options()).unwrap();
    let seq = queue.enqueue(b"behind").unwrap();
    let reported = take_all(&queue).unwrap();
    let (last, gaps) = reported.split_last().unwrap();
    assert_eq!(*last, Ok((seq, b"behind".to_vec())));
    assert!(gaps.iter().flat_map(|reported| reported.as_ref().err()).all(is_of_a_cut), "{gaps:?}");
}

/// A power cut took the short messages behind a flushed one, and left the padding under them and
/// the next segment. Numbers are missing between the two, but no byte: each opening reports them.
#[test]
fn numbers_that_no_byte_lies_between_are_reported_missing() {
    let storage = disk(1);
    let queue = open(storage.clone(), &options()).unwrap();
    queue.default_consumer().unwrap();
    queue.enqueue(&content(0, 7100)).unwrap();
    storage.fail_after(Call::Create, 1, Errno::IO, false);
    queue.enqueue(&content(1, 3000)).unwrap_err();
    let with_padding = storage.read_file(&segment_name(0));
    queue.core.flush().unwrap();
    for len in [31, 60, 3000] {
        queue.enqueue(&content(2, len)).unwrap();
    }
    let behind = storage.read_file(&segment_name(1));
    let cut = storage.power_cut_losing_all();
    cut.write_file(&segment_name(0), &with_padding);
    cut.write_file(&segment_name(1), &behind);
    let queue = open(cut, &options()).unwrap();
    let later = queue.core.storage.power_cut_losing_all();
    for queue in [queue, open(later, &options()).unwrap()] {
        let reported = take_all(&queue).unwrap();
        let gap = Gap { first: 1, last: 2, cause: GapCause::Unflushed };
        assert_eq!(reported[..3], [Ok((0, content(0, 7100))), Err(gap), Ok((3, content(2, 3000)))]);
    }
}

/// A batch is refused, and its second record stays behind the padding that closes the segment. The
/// padding is damaged: the record is not found in the place of the next segment's first one.
#[test]
fn a_refused_record_behind_damaged_padding_is_not_delivered() {
    let storage = disk(3);
    let options = options().arena_size(16 << 10).max_bytes(256 << 10);
    let queue = open(storage.clone(), &options).unwrap();
    let capacity = (queue.core.pool.geometry().least_len - SEGMENT_HEADER_LEN) as usize;
    let first = content(0, capacity - capacity / 8 + 100);
    assert_eq!(queue.enqueue(&first).unwrap(), 0);
    let tail = queue.core.committed_spot().position;
    storage.fail_after(Call::Create, 1, Errno::NOSPC, true);
    let refused = [content(1, 100), content(2, 100), content(3, capacity / 2)];
    assert!(queue.enqueue_batch(&refused).unwrap_err().is_full());
    storage.clear_faults();
    let (short, long) = (content(4, 8), content(5, capacity / 2));
    assert_eq!((queue.enqueue(&short).unwrap(), queue.enqueue(&long).unwrap()), (1, 2));
    let padding = SEGMENT_HEADER_LEN + tail + 24;
    storage.corrupt("segment-00000000", padding as usize, &[0xff; 16]);
    assert_eq!(take_all(&queue).unwrap(), [Ok((0, first)), Ok((1, short)), Ok((2, long))]);
}

/// The first message of a batch ends where its file does, and the second has no room in that
/// segment: it is closed there, without padding, and the batch goes on in the next one.
#[test]
fn a_batch_goes_on_behind_a_segment_that_was_closed_where_its_file_ends() {
    let options = Options::new().arena_size(64 << 10);
    let storage = SimStorage::new(7).with_file_capacity(8 << 20);
    let queue = open(storage.clone(), &options).unwrap();
    queue.default_consumer().unwrap();
    let batch = [content(0, 262_000), content(1, 3 << 20)];
    queue.enqueue_batch(&batch).unwrap();
    let first = queue.core.segments.list().live.iter().next().unwrap().header;
    assert!(first.end() > first.base + first.allocated, "{first:?}");
    queue.core.flush_to(queue.core.committed_spot()).unwrap();
    let kept = |left: SimStorage| {
        let reported = take_all(&open(left, &options).unwrap()).unwrap();
        // A gap of reserved numbers may follow.
        let first: Vec<_> =
            reported.iter().take(2).map(|reported| reported.as_ref().ok()).collect();
        let batch: Vec<_> = (0..).zip(batch.clone()).collect();
        assert!(first == batch.iter().map(Some).collect::<Vec<_>>(), "{} reported", reported.len());
    };
    kept(storage.process_kill());
    kept(storage.seen_elsewhere());
    kept(storage.copied());
    (0..4).for_each(|seed| kept(storage.power_cut(seed)));
    queue.close().unwrap();
    let without = queue.core.storage.process_kill();
    without.remove_file(INDEX_NAME);
    kept(without);
}
