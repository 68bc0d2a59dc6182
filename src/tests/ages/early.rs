//! Segments that the clock closed early: their files take what they hold.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{AGE, Aged, SPAN, options};
use crate::VerifyStep;
use crate::engine::reading::{self, AsMessage};
use crate::inspect::{Depth, verify};
use crate::options::Options;
use crate::storage::{Storage, StorageFile};
use crate::tests::crash::holds_but_for;
use crate::tests::mutants::Mutant;
use crate::tests::sim::{Call, SimStorage, forget_meanwhile, meanwhile};

/// Segments of 128 KiB.
fn roomy() -> Options {
    options().arena_size(128 << 10).max_bytes(2 << 20)
}

impl Aged {
    /// Messages with a span between them, and a look behind each.
    fn put_slowly(&self, count: u64) {
        for _ in 0..count {
            self.put(1, 3000);
            self.pass(SPAN);
        }
    }

    /// The lengths of the files of the live segments.
    fn lengths(&self) -> Vec<u64> {
        let slots: Vec<_> = {
            let list = self.engine.core.segments.list();
            list.live.iter().map(|row| row.slot).collect()
        };
        let len_of = |slot| {
            let name = crate::format::segment_name(slot);
            self.storage.open(&name).unwrap().len().unwrap()
        };
        slots.into_iter().map(len_of).collect()
    }
}

fn aged() -> Aged {
    let aged = Aged::open(SimStorage::new(1).with_file_capacity(512 << 10), &roomy());
    aged.consumer("");
    aged
}

#[test]
fn messages_that_come_seldom_take_a_page_each() {
    let aged = aged();
    aged.put_slowly(6);
    let lengths = aged.lengths();
    assert_eq!((&lengths[..5], lengths.len()), (&[4096; 5][..], 6), "{lengths:?}");
    assert!(lengths[5] > 64 << 10, "the tail's has room: {lengths:?}");
    // What counts against the limits is what there is, once that cannot change any more.
    aged.engine.core.flush().unwrap();
    let list = aged.engine.core.segments.list();
    let counted: u64 = list.live.iter().map(|row| row.header.disk).sum();
    assert_eq!(counted, lengths.iter().sum::<u64>());
    let rows = list.live.iter().map(|row| row.header.allocated);
    assert!(rows.eq(lengths.iter().copied()));
    drop(list);
    assert_eq!(aged.rest_of(""), (0..6).map(Ok).collect::<Vec<_>>());
}

/// Who reads may look behind the end: the file stays until that one goes on.
#[test]
fn a_file_stays_as_long_as_somebody_reads_from_it() {
    holds_but_for(Mutant::CutUnderReaders, || {
        let aged = aged();
        // It keeps all of them, and has read nothing.
        aged.consumer("other");
        aged.put(2, 3000);
        let lent = {
            let consumer = aged.consumer("");
            let (message, handed) = aged.engine.receive(&consumer, AsMessage).unwrap().unwrap();
            aged.engine.ack(&consumer, message.seq(), handed).unwrap();
            message
        };
        aged.pass(SPAN);
        aged.put_slowly(2);
        assert!(aged.lengths()[0] > 64 << 10, "{:?}", aged.lengths());
        assert_eq!((aged.next(), aged.next()), (Ok(Some(1)), Ok(Some(2))));
        aged.engine.expire();
        // The message that was lent keeps its window, and stays what it is.
        assert_eq!(aged.lengths()[0], 8192);
        assert_eq!(lent[..], [7; 3000]);
        aged.engine.close().unwrap();
        assert_eq!(lent[..], [7; 3000]);
    });
}

/// A queue whose files were cut is closed in order, and then power is cut: the files take no more
/// than the next opening counts.
fn is_counted(seed: u64, before_the_close: impl Fn(&Aged)) {
    let aged = aged();
    for _ in 0..3 {
        aged.put(1, 3000);
        aged.storage.advance_clock(SPAN);
    }
    aged.engine.core.flush().unwrap();
    aged.engine.expire();
    assert_eq!(aged.lengths()[..2], [4096; 2]);
    before_the_close(&aged);
    aged.engine.close().unwrap();
    let aged = Aged::open(aged.storage.power_cut(seed), &roomy());
    let known = aged.engine.core.segments.list().limited_bytes() + aged.engine.core.index.len();
    let taken = aged.storage.named_bytes();
    assert!(known >= taken, "{known} are counted, and {taken} taken");
}

/// The queue was closed in order, and then power was cut: until a flush a file may be as long again
/// as it was.
#[test]
fn what_was_cut_counts_as_long_as_a_power_cut_may_bring_it_back() {
    holds_but_for(Mutant::CutCountsAtOnce, || (0..20).for_each(|seed| is_counted(seed, |_| {})));
}

/// So may a spare's.
#[test]
fn a_spare_that_was_cut_counts_as_long_as_a_power_cut_may_bring_it_back() {
    let drained = |aged: &Aged| {
        assert_eq!(aged.rest_of("").len(), 3);
        aged.engine.give_space_back();
        assert!(aged.engine.core.segments.list().spares() > 0);
    };
    (0..20).for_each(|seed| is_counted(seed, drained));
}

/// A record is refused behind the segment that was begun for it: the one before is the tail's again
/// and takes what comes.
/// A cut changes the file behind its last sync: that is no sign of a copy.
#[test]
fn what_was_cut_is_durable_after_a_close() {
    let aged = aged();
    for _ in 0..3 {
        aged.put(1, 3000);
        aged.storage.advance_clock(SPAN);
    }
    aged.engine.core.flush().unwrap();
    aged.engine.expire();
    assert_eq!(aged.lengths()[..2], [4096; 2]);
    aged.engine.close().unwrap();
    assert_eq!(Aged::open(aged.storage.clone(), &roomy()).engine.durable_seq(), 3);
}

#[test]
fn a_segment_that_goes_on_is_not_cut() {
    let aged = aged();
    aged.put(1, 3000);
    aged.storage.advance_clock(SPAN);
    let refused = aged.engine.write(1, &mut |writer, core| {
        writer.push(core, &[7; 3000], crate::format::Batch::default())?;
        aged.engine.expire();
        Err::<(), _>(crate::error::Error::Closed)
    });
    assert!(refused.is_err());
    assert_eq!(aged.live(), 1);
    aged.storage.set_back_clock(SPAN);
    aged.put(3, 3000);
    aged.engine.expire();
    aged.pass(SPAN);
    aged.put_slowly(1);
    assert_eq!(aged.rest_of(""), (0..5).map(Ok).collect::<Vec<_>>());
}

/// Wherever the process or the power dies while files are cut, or afterwards, everything that was
/// flushed comes, and what is put in then.
#[test]
fn a_death_while_files_are_cut_costs_nothing() {
    let mut cuts = 0;
    for (in_store, flushed) in [(false, true), (true, true), (false, false), (true, false)] {
        for nth in 1.. {
            let aged = aged();
            aged.put(3, 3000);
            aged.storage.advance_clock(SPAN);
            aged.put(1, 3000);
            aged.storage.advance_clock(SPAN);
            aged.put(1, 3000);
            if flushed {
                aged.engine.core.flush().unwrap();
            }
            if in_store {
                aged.storage.freeze_at_store(nth);
            } else {
                aged.storage.freeze_at(nth);
            }
            aged.engine.expire();
            assert_eq!(aged.lengths()[..2], [12288, 4096]);
            aged.put(1, 3000);
            aged.engine.core.flush().unwrap();
            let Some(dead) = aged.storage.frozen() else { break };
            cuts += 1;
            let cuts = [dead.power_cut(nth), dead.power_cut_losing_all()];
            let cuts = cuts.into_iter().filter(|_| flushed);
            for dead in cuts.chain([dead.process_kill()]) {
                let aged = Aged::open(dead, &roomy());
                let oldest = aged.engine.core.oldest_seq.load(Ordering::Relaxed);
                assert_eq!(oldest, 0, "moment {nth}, {in_store}, {flushed}");
                let reported = aged.rest_of("");
                let came: Vec<_> = (0..5).map(Ok).collect();
                assert!(
                    reported.starts_with(&came),
                    "moment {nth}, {in_store}, {flushed}: {reported:?}"
                );
                aged.put_slowly(2);
                assert_eq!(aged.rest_of("").len(), 2, "moment {nth}, {in_store}, {flushed}");
            }
        }
    }
    assert!(cuts > 12, "{cuts}");
}

/// Somebody looks who has read the index, and not the files yet.
#[test]
fn who_looks_from_outside_while_a_file_is_cut_finds_nothing_wrong() {
    let aged = aged();
    aged.put(1, 3000);
    aged.storage.advance_clock(SPAN);
    aged.put(1, 3000);
    let storage = Arc::new(aged.storage.clone());
    let (engine, before) = (Arc::new(aged.engine), aged.storage.named_bytes());
    let owner = Arc::clone(&engine);
    meanwhile("behind a picture", move || owner.expire());
    let found = found_by_verify(&storage);
    assert!(!forget_meanwhile() && aged.storage.named_bytes() < before, "nothing was cut");
    assert_eq!(found, (Vec::new(), 2));
    // It tells of a file that was cut by somebody else.
    let name = crate::format::segment_name(0);
    storage.open(&name).unwrap().set_len(2048).unwrap();
    let (found, _) = found_by_verify(&storage);
    assert!(
        found.iter().any(|what| what.contains("it has 2048 bytes, but should have 4096")),
        "{found:?}"
    );
}

/// What is wrong with the files, and how many messages are in them.
fn found_by_verify(storage: &Arc<SimStorage>) -> (Vec<String>, u64) {
    let mut found = Vec::new();
    let verified = verify(storage, Depth::Messages, &mut |step| {
        found.extend(match step {
            VerifyStep::Finding(finding) => Some(finding.what.clone()),
            VerifyStep::Read { .. } => None,
        });
        ControlFlow::Continue(())
    });
    (found, verified.unwrap().messages)
}

/// A copy and a second run read files that were cut as any others, and cut them no more.
#[test]
fn what_was_cut_is_opened_again() {
    let mut aged = aged();
    aged.put_slowly(3);
    for _ in 0..2 {
        aged = aged.reopen(&roomy());
        aged.pass(1);
        assert_eq!(aged.lengths()[..2], [4096; 2]);
    }
    aged.put_slowly(1);
    assert_eq!(aged.live(), 4);
    let consumer = aged.consumer("");
    for seq in 0..4 {
        let read = reading::next(&aged.engine, &consumer, crate::consume::step::Read::Take);
        assert_eq!(read.unwrap().unwrap().seq(), seq);
    }
    aged.pass(AGE + SPAN);
    assert_eq!(aged.live(), 0);
}

/// A cut fails, and the file system does not say any more what the file takes: it counts as before.
#[test]
fn what_could_not_be_cut_counts_also_when_nobody_can_measure_it() {
    let aged = aged();
    aged.put(1, 3000);
    aged.storage.advance_clock(SPAN);
    aged.put(1, 3000);
    aged.storage.fail_after(Call::SetLen, 1, Errno::IO, true);
    aged.engine.expire();
    aged.storage.fail_after(Call::Measure, 1, Errno::IO, true);
    aged.engine.core.flush().unwrap();
    let list = aged.engine.core.segments.list();
    assert!(list.limited_bytes() + aged.engine.core.index.len() >= aged.storage.named_bytes());
}
