//! Stores to the index that the disk refuses, and takes later.

use std::sync::Arc;

use rustix::io::Errno;

use super::{disk, fine, kept, options, take_all};
use crate::consume::step::Read;
use crate::engine::{Background, Engine, reading};
use crate::storage::Stores;
use crate::tests::crash::examine::{Queue, consumer_of, next_of, open};
use crate::tests::crash::model::{Check, content, ensure};
use crate::tests::effort::some_of;
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
/// takes what is late, and the process dies at some call. Returns how many deaths were looked at.
fn dies_within(cut: &SimStorage, number: u64, nth: u64) -> Check<u64> {
    let cut = cut.process_kill();
    cut.fail_after(Call::Write, nth, Errno::NOSPC, true);
    let Ok(queue) = Engine::open_with(cut.clone(), &options(), Background::Calls) else {
        return Ok(0);
    };
    let queue: Queue = Arc::new(queue);
    let before = next_of(&queue);
    cut.clear_faults();
    let mut taken = Ok(());
    let deaths = cut.freeze_at_each(|| {
        // The first store writes what is late.
        taken = consumer_of(&queue, "").map(|consumer| {
            let _ = reading::next(&queue, &consumer, Read::Take);
            let _ = queue.enqueue(b"behind");
        });
    });
    taken?;
    let mut looked_at = 0;
    for at in some_of(0..deaths.len().min(23) as u64, 4, number + nth) {
        looked_at += 1;
        let again = open(deaths[at as usize].clone(), &options())?;
        let next = next_of(&again);
        ensure!(next >= before, "{nth}, {at}: {next} is next, and {before} was");
        let put = fine(again.enqueue(b"after it"))?;
        let reported = take_all(&again)?;
        let comes =
            reported.iter().flatten().any(|(seq, bytes)| *seq == put && bytes == b"after it");
        ensure!(comes, "{nth}, {at}: {put} does not come, but {reported:?}");
    }
    Ok(looked_at)
}

#[test]
fn a_live_part_that_is_late_is_not_believed_in_part() {
    kept(|number, images| {
        let cut = cut(number)?;
        for nth in 1..30 {
            *images += dies_within(&cut, number, nth)?;
        }
        Ok(number < 7)
    });
}
