//! What the holder counts, as those see it who read the index from outside.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use crate::consume::step::Read;
use crate::engine::reading;
use crate::engine::{Background, Engine};
use crate::error::Error;
use crate::format::{FIGURES_LEN, Figures, INDEX_NAME, index_at, live_at, padded};
use crate::options::{OnFull, Options};
use crate::storage::Stores;
use crate::tests::sim::{Call, SimStorage, meanwhile};

type Queue = Engine<SimStorage>;

fn options() -> Options {
    Options::new().arena_size(8192).max_bytes(1 << 20)
}

fn new() -> SimStorage {
    SimStorage::new(3).with_file_capacity(1 << 20)
}

fn open(storage: &SimStorage, options: &Options) -> Queue {
    Engine::open_with(storage.clone(), options, Background::Calls).unwrap()
}

/// What a program sees that reads the file now.
fn seen(storage: &SimStorage, queue: &Queue) -> Option<Figures> {
    Figures::decode(&storage.read_file(INDEX_NAME), &queue.core.index.queue_id)
}

/// Asserts that the figures in the index are those of `stats`. Returns them.
#[track_caller]
fn same(storage: &SimStorage, queue: &Queue) -> Figures {
    let (figures, stats) = (seen(storage, queue).unwrap(), queue.stats());
    let by_stats = Figures {
        enqueued: stats.enqueued,
        taken: stats.dequeued,
        flushes: stats.flushes,
        longest_flush: stats.longest_flush.as_nanos() as u64,
        lost: stats.lost_damaged + stats.lost_unflushed,
        dropped: stats.dropped + stats.expired,
        refused: stats.refused,
        ..figures
    };
    assert_eq!(figures, by_stats);
    figures
}

/// A process is killed: what it counted is there to be read, by nobody but who looks at the index.
#[test]
fn what_a_killed_holder_counted_can_be_read() {
    let storage = new();
    let queue = open(&storage, &options());
    let opened = seen(&storage, &queue).unwrap();
    let nothing_counted = Figures {
        nonce: opened.nonce,
        number: 1,
        stored_at: opened.stored_at,
        opened_at: opened.opened_at,
        library: padded(env!("CARGO_PKG_VERSION")),
        ..Figures::default()
    };
    assert_eq!(opened, nothing_counted);
    assert!(opened.nonce != 0 && opened.opened_at != 0);
    let consumer = queue.consumer("c").unwrap();
    for _ in 0..20 {
        queue.enqueue(&[1; 100]).unwrap();
    }
    reading::next(&queue, &consumer, Read::Take).unwrap().unwrap();
    storage.advance_clock(5000);
    queue.core.flush().unwrap();
    let flushed = same(&storage, &queue);
    assert_eq!((flushed.enqueued, flushed.taken), (20, 1));
    assert_eq!((flushed.flushes, flushed.error_at), (1, 0));
    assert_eq!(flushed.stored_at, opened.opened_at + 5000);
    // Nothing has changed: nothing is stored.
    queue.core.store_figures();
    assert_eq!(seen(&storage, &queue), Some(flushed));

    let killed = storage.process_kill();
    let queue = open(&killed, &options());
    let after = seen(&killed, &queue).unwrap();
    assert_ne!(after.nonce, flushed.nonce);
    assert_eq!((after.number, after.enqueued), (1, 0));
    queue.enqueue(b"the last one").unwrap();
    queue.close().unwrap();
    // The last holder's, also when it has closed the queue.
    assert_eq!(seen(&killed, &queue).unwrap().enqueued, 1);
}

#[test]
fn a_torn_copy_leaves_the_other_one_and_another_openings_copy_does_not_count() {
    let storage = new();
    let queue = open(&storage, &options());
    for _ in 0..6 {
        queue.enqueue(b"message").unwrap();
        queue.core.flush().unwrap();
    }
    let newest = same(&storage, &queue);
    let id = queue.core.index.queue_id;
    let good = storage.read_file(INDEX_NAME);
    let copy = |number: u64| index_at::FIGURES + (number % 2) as usize * FIGURES_LEN;
    for byte in 0..FIGURES_LEN {
        let mut torn = good.clone();
        torn[copy(newest.number) + byte] ^= 1;
        let other = Figures::decode(&torn, &id).unwrap();
        assert_eq!((other.number, other.flushes), (newest.number - 1, newest.flushes - 1));
        torn[copy(other.number) + byte] ^= 1;
        assert_eq!(Figures::decode(&torn, &id), None);
    }
    assert_eq!(Figures::decode(&good, b"0123456789abcdef"), None, "of another queue");
    for len in 0..index_at::END {
        assert!(len > index_at::ATTEMPTS || Figures::decode(&good[..len], &id).is_none());
    }
    // An earlier library opens the queue and stores no figures.
    let mut opened = good.clone();
    opened[index_at::LIVE + live_at::LIVE_NONCE] ^= 1;
    assert_eq!(Figures::decode(&opened, &id), None);

    drop(queue);
    let queue = open(&storage, &options());
    let own = seen(&storage, &queue).unwrap();
    assert!(own.number < newest.number && own.flushes == 0, "{own:?}");
    let mut mixed = storage.read_file(INDEX_NAME);
    let older = copy(own.number + 1);
    mixed[older..older + FIGURES_LEN].copy_from_slice(&good[older..older + FIGURES_LEN]);
    assert_eq!(Figures::decode(&mixed, &id), Some(own), "beside one with a higher number");
}

/// Gaps, refused calls and failed flushes are stored when they come.
#[test]
fn what_goes_wrong_is_there_at_once() {
    let storage = new();
    let small = options().max_bytes(128 << 10).on_full(OnFull::Reject);
    let queue = open(&storage, &small);
    let refused = (0..200).filter(|_| queue.enqueue(&[1; 2000]).is_err()).count() as u64;
    assert!(refused > 50);
    assert_eq!(same(&storage, &queue).refused, refused);
    assert_eq!(queue.stats().refused, refused);
    queue.close().unwrap();
    let segment = storage.file_names().into_iter().find(|name| name != INDEX_NAME).unwrap();
    let at = storage.read_file(&segment).windows(2000).position(|bytes| bytes == [1; 2000]);
    storage.corrupt(&segment, at.unwrap(), &[0; 8]);

    let queue = open(&storage, &small);
    let consumer = queue.consumer("").unwrap();
    let reported = reading::next(&queue, &consumer, Read::Take);
    assert!(matches!(reported, Err(Error::Gap(_))), "{reported:?}");
    assert_eq!(same(&storage, &queue).lost, 1);
    assert!(queue.enqueue(&[1; 8000]).unwrap_err().is_full());
    assert_eq!(same(&storage, &queue).refused, 1);

    while reading::next(&queue, &consumer, Read::Take).unwrap().is_some() {}
    queue.enqueue(b"to be flushed").unwrap();
    storage.advance_clock(77);
    storage.fail_after(Call::SyncFile, 1, Errno::IO, true);
    let error = queue.core.flush().unwrap_err().to_string();
    let figures = same(&storage, &queue);
    assert_eq!((figures.error_number, figures.error_at), (5, figures.opened_at + 77));
    assert_eq!(figures.error_text, padded(&error));
    assert!(error.len() > 64 || figures.error_text.ends_with(&[0]));
}

/// Without a flush, a new segment brings them up to date, and so does a close in which nothing is
/// left to flush.
#[test]
fn a_new_segment_and_a_close_bring_them_up_to_date() {
    let storage = new();
    let queue = open(&storage, &options());
    let mut stale = 0;
    // (Too few for a flush that nobody asked for.)
    for enqueued in 0..240 {
        let segments = queue.stats().segments;
        queue.enqueue(&[1; 1000]).unwrap();
        if queue.stats().segments > segments {
            // The segment is made before its first message is committed.
            assert_eq!(seen(&storage, &queue).unwrap().enqueued, enqueued);
            stale = enqueued;
        }
        assert_eq!(seen(&storage, &queue).unwrap().enqueued, stale, "no message stores them");
    }
    assert!(stale > 20, "{stale}");
    queue.core.flush().unwrap();
    let consumer = queue.consumer("").unwrap();
    reading::next(&queue, &consumer, Read::Take).unwrap().unwrap();
    queue.core.flush_places().unwrap();
    queue.close().unwrap();
    let closed = seen(&storage, &queue).unwrap();
    assert_eq!((closed.enqueued, closed.taken), (240, 1));
}

/// A disk that refuses a write of figures: they are left out until the next time.
#[test]
fn figures_that_cannot_be_written_change_nothing_else() {
    let storage = new();
    storage.set_stores(Stores::ByCall);
    let queue = open(&storage, &options());
    queue.enqueue(b"one").unwrap();
    queue.core.flush().unwrap();
    let before = same(&storage, &queue);
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    queue.core.count_refused();
    assert!(storage.failed(Call::Write) > 0);
    assert_eq!(seen(&storage, &queue), Some(before));
    // Nothing waits to be written before this sync.
    queue.core.index.sync().unwrap();
    assert!(!queue.core.is_poisoned());
    storage.clear_faults();
    queue.core.count_refused();
    let figures = same(&storage, &queue);
    assert_eq!((figures.refused, figures.number), (2, before.number + 1));
    // While other bytes wait, figures do not.
    queue.enqueue(b"two").unwrap();
    let consumer = queue.consumer("").unwrap();
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    reading::next(&queue, &consumer, Read::Take).unwrap().unwrap();
    let refused = storage.failed(Call::Write);
    queue.core.count_refused();
    assert_eq!(storage.failed(Call::Write), refused, "the disk is not asked");
    storage.clear_faults();
    queue.core.flush().unwrap();
    queue.core.count_refused();
    assert_eq!(same(&storage, &queue).refused, 4);
    queue.close().unwrap();
}

/// A call is refused while the queue is closed: once the files may be another owner's, it stores
/// nothing in them.
#[test]
fn figures_are_not_stored_once_the_run_has_ended() {
    let storage = new();
    let queue = Arc::new(open(&storage, &options().max_bytes(128 << 10)));
    while queue.enqueue(&[1; 5000]).is_ok() {}
    let closed = Rc::new(RefCell::new(None));
    let close = {
        let (queue, storage, closed) = (Arc::clone(&queue), storage.clone(), Rc::clone(&closed));
        move || {
            queue.close().unwrap();
            *closed.borrow_mut() = Some(storage.contents());
        }
    };
    meanwhile("before a refused call is counted", close);
    assert!(queue.enqueue(&[1; 5000]).unwrap_err().is_full());
    assert!(closed.take() == Some(storage.contents()), "stored after the close");
}
