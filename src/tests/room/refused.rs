//! What a refused record or batch leaves where readers look.

use rustix::io::Errno;

use super::{LEN, content, look, open, options, take_all};
use crate::consume::step::Read;
use crate::engine::ahead::Ahead;
use crate::error::{Error, Gap, GapCause};
use crate::format::Batch;
use crate::storage::Stores;
use crate::tests::schedule::ranks::other_queues;
use crate::tests::sim::{Call, SimStorage};

/// Of a batch that was refused all but the first record lie behind the tail, intact. Whoever stands
/// there when the segment is given back goes on behind it, and meets the next messages of the same
/// numbers.
#[test]
fn what_a_refused_batch_left_in_a_segment_that_is_given_back_is_neither_damage_nor_a_message() {
    for stores in [Stores::ByMap, Stores::ByCall] {
        let storage = SimStorage::new(1).with_file_capacity(4 << 20);
        storage.set_stores(stores);
        let queue = open(&storage, &options());
        for seq in 0..5 {
            queue.enqueue(&content(seq, LEN)).unwrap();
        }
        let consumer = queue.consumer("a").unwrap();
        let mut ahead = Ahead::new(&queue, &consumer).unwrap();
        assert_eq!((0..5).filter(|seq| ahead.next().unwrap().unwrap().seq() == *seq).count(), 5);
        take_all(&queue, "a");
        let refused = queue.write(3, &mut |writer, core| {
            for at in 0..3 {
                writer.push(core, &[at as u8; 100], Batch::of(at, 3))?;
            }
            Err::<(), _>(Error::Closed)
        });
        refused.unwrap_err();
        assert!(queue.core.drain_tail(&mut queue.core.writer.lock(), GapCause::Dropped, 0));
        for seq in 5..9 {
            assert_eq!(queue.enqueue(&content(seq, 100)).unwrap(), seq);
        }
        for seq in 5..9 {
            assert_eq!(ahead.next().unwrap().unwrap()[..], content(seq, 100), "{stores:?}");
        }
        assert_eq!(take_all(&queue, "a"), (vec![(5, 8)], vec![]));
    }
}

/// As above, where the first record could not be cleared either: then the segment stays until it
/// can be.
#[test]
fn a_segment_in_which_a_refused_record_could_not_be_cleared_is_not_given_back() {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    storage.set_stores(Stores::ByCall);
    let queue = open(&storage, &options());
    queue.enqueue(&content(0, LEN)).unwrap();
    take_all(&queue, "a");
    let refused = queue.write(1, &mut |writer, core| {
        writer.push(core, &[9; 100], Batch::default())?;
        storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
        Err::<(), _>(Error::Closed)
    });
    refused.unwrap_err();
    assert!(!queue.core.drain_tail(&mut queue.core.writer.lock(), GapCause::Dropped, 0));
    storage.clear_faults();
    assert!(queue.core.drain_tail(&mut queue.core.writer.lock(), GapCause::Dropped, 0));
    queue.enqueue(&content(1, 100)).unwrap();
    assert_eq!(take_all(&queue, "a"), (vec![(1, 1)], vec![]));
}

/// A segment is listed before its first record is committed, and is taken off again when that is
/// refused. Whoever looks for the first message that is left meanwhile does not stand in it: the
/// next one of that number lies elsewhere.
#[test]
fn nobody_reads_from_a_segment_of_which_nothing_is_committed() {
    let storage = SimStorage::new(1).with_file_capacity(4 << 20);
    // What is visible is asked of no lock that the writer holds.
    let queue = open(&storage, &options().flush_every_ops(1));
    let consumer = queue.consumer("a").unwrap();
    let mut ahead = Ahead::new(&queue, &consumer).unwrap();
    for seq in 0..5 {
        queue.enqueue(&content(seq, 100)).unwrap();
    }
    assert!(queue.core.drain_tail(&mut queue.core.writer.lock(), GapCause::Dropped, 5));
    let dropped = Gap { first: 0, last: 4, cause: GapCause::Dropped };
    let refused = queue.write(1, &mut |writer, core| {
        writer.push(core, b"refused", Batch::default())?;
        // As if by another thread.
        let _other = other_queues();
        assert!(matches!(ahead.next(), Some(Err(Error::Gap(gap))) if gap == dropped));
        assert!(matches!(look(&queue, "a", Read::Take), Err(Error::Gap(gap)) if gap == dropped));
        assert!(look(&queue, "a", Read::Take).unwrap().is_none() && ahead.next().is_none());
        Err::<(), _>(Error::Closed)
    });
    refused.unwrap_err();
    assert_eq!(queue.enqueue(b"kept").unwrap(), 5);
    assert_eq!(ahead.next().unwrap().unwrap()[..], *b"kept");
    assert_eq!(look(&queue, "a", Read::Take).unwrap().unwrap()[..], *b"kept");
}
