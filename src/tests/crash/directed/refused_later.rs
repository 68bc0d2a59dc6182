//! Stores to the index that the disk refuses, and takes later.

use std::sync::Arc;

use rustix::io::Errno;

use super::{disk, fine, kept, options, take_all};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::storage::Stores;
use crate::tests::crash::examine::{Queue, consumer_of, next_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::sim::{Call, SimStorage};

/// Power was cut, with messages that were not flushed.
fn cut(number: u64) -> Check<SimStorage> {
    let storage = disk(number);
    storage.set_stores(Stores::ByCall);
    let queue = open(storage, &options())?;
    fine(queue.default_consumer())?;
    fine(queue.enqueue(&content(0, 300)))?;
    fine(queue.core.flush())?;
    for seq in 1..6 {
        fine(queue.enqueue(&content(seq, 900)))?;
    }
    let cut = queue.core.storage.power_cut(number);
    cut.set_stores(Stores::ByCall);
    Ok(cut)
}

/// From the store `nth` on the disk refuses what the opening behind the power cut stores. Later it
/// takes what is late, and the process dies at the call `at`. False when there is no such call.
fn dies_within(number: u64, nth: u64, at: u64) -> Check<bool> {
    let cut = cut(number)?;
    cut.fail_after(Call::Write, nth, Errno::NOSPC, true);
    let Ok(queue) = Engine::open_with(cut.clone(), &options(), Background::Calls) else {
        return Ok(false);
    };
    let queue: Queue = Arc::new(queue);
    let before = next_of(&queue);
    cut.clear_faults();
    cut.freeze_at(at);
    // The first store writes what is late.
    let consumer = consumer_of(&queue, "")?;
    let _ = reading::next(&queue, &consumer, Read::Take);
    let _ = queue.enqueue(b"behind");
    cut.disarm();
    let Some(dead) = cut.frozen() else { return Ok(false) };
    let again = open(dead, &options())?;
    let next = next_of(&again);
    ensure!(next >= before, "{nth}, {at}: {next} is next, and {before} was");
    let put = fine(again.enqueue(b"after it"))?;
    let reported = take_all(&again)?;
    let comes = reported.iter().flatten().any(|(seq, bytes)| *seq == put && bytes == b"after it");
    ensure!(comes, "{nth}, {at}: {put} does not come, but {reported:?}");
    Ok(true)
}

#[test]
fn a_live_part_that_is_late_is_not_believed_in_part() {
    kept(|number, images| {
        for nth in 1..30 {
            for at in 1..24 {
                if !dies_within(number, nth, at)? {
                    break;
                }
                *images += 1;
            }
        }
        Ok(number < 7)
    });
}
