//! Dead letters for another queue that is full, busy or slow, and those that are large or too late.

use super::*;

/// Another queue, which answers each dead letter as the test has it.
struct Other {
    /// What it answers to the dead letter of that number.
    answer: fn(&Taken, u64) -> Result<()>,
    taken: Mutex<Taken>,
}

/// What another queue was given.
#[derive(Default)]
struct Taken {
    /// It takes dead letters.
    is_open: bool,
    fails_to_flush: bool,
    numbers: Vec<u64>,
    /// Bytes since the last flush, and the most between two flushes.
    bytes: (usize, usize),
}

impl Other {
    fn answering(answer: fn(&Taken, u64) -> Result<()>) -> Arc<Other> {
        Arc::new(Other { answer, taken: Mutex::default() })
    }

    /// Takes dead letters of any number but 0.
    fn picky() -> Arc<Other> {
        Other::answering(|_, seq| match seq {
            0 => {
                Err(Error::MessageTooLarge { path: "dead".into(), len: 8, max: 7, max_bytes: None })
            }
            _ => Ok(()),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap()
    }
}

impl DeadLetters for Other {
    fn put(&self, payload: &[u8], origin: &Origin) -> Result<()> {
        let mut taken = self.taken();
        (self.answer)(&taken, origin.seq)?;
        taken.numbers.push(origin.seq);
        taken.bytes.0 += payload.len();
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut taken = self.taken();
        if taken.fails_to_flush {
            return Err(Error::Closed);
        }
        taken.bytes = (0, taken.bytes.1.max(taken.bytes.0));
        Ok(())
    }

    fn id(&self) -> usize {
        0
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        Vec::new()
    }
}

fn with_dead_letters(dead_letters: &Arc<Other>) -> Rules {
    Rules { dead_letters: Some(Arc::clone(dead_letters) as _), ..Rules::default() }
}

/// A dead letter that the other queue cannot take keeps no others from going.
#[test]
fn a_dead_letter_that_is_too_large_does_not_hold_up_those_behind_it() {
    let dead_letters = Other::picky();
    let queue = filled(3);
    let consumer = workers(&queue, Rules::default());
    for (seq, handed) in [(); 3].map(|()| receive(&queue, &consumer).unwrap()) {
        queue.reject(&consumer, seq, handed).unwrap();
    }
    queue.set_redelivery(&consumer, with_dead_letters(&dead_letters)).unwrap();
    assert_eq!(dead_letters.taken().numbers, [1, 2]);
    assert_eq!(consumer.in_flight(&queue.core), 1);
    // It can never go: it is reported, and keeps no place.
    let reported = reading::next(&queue, &consumer, Read::Take).unwrap_err();
    assert!(
        matches!(&reported, Error::Gap(gap) if (gap.first, gap.cause) == (0, GapCause::Rejected)),
        "{reported}"
    );
    assert_eq!((consumer.in_flight(&queue.core), consumer.len(&queue.core)), (0, 0));
}

/// The other queue took the dead letters and cannot flush them for a while: each goes in once.
#[test]
fn a_flush_that_fails_leaves_no_second_copy_of_a_dead_letter() {
    let dead_letters = Other::answering(|_, _| Ok(()));
    dead_letters.taken().fails_to_flush = true;
    let queue = filled(3);
    let consumer = workers(&queue, with_dead_letters(&dead_letters));
    let began = Instant::now();
    stop_clock(Some(began));
    for (seq, handed) in [(); 2].map(|()| receive(&queue, &consumer).unwrap()) {
        queue.reject(&consumer, seq, handed).unwrap();
    }
    for minutes in 1..5 {
        stop_clock(Some(began + Duration::from_secs(60 * minutes)));
        queue.consumers.look_at_deliveries(&queue.core);
    }
    assert_eq!(consumer.in_flight(&queue.core), 2);
    dead_letters.taken().fails_to_flush = false;
    stop_clock(Some(began + LONG));
    queue.consumers.look_at_deliveries(&queue.core);
    stop_clock(None);
    assert_eq!(dead_letters.taken().numbers, [0, 1]);
    assert_eq!(consumer.in_flight(&queue.core), 0);
    // Another queue has none of them yet.
    dead_letters.taken().fails_to_flush = true;
    let (seq, handed) = receive(&queue, &consumer).unwrap();
    queue.reject(&consumer, seq, handed).unwrap();
    let other = Other::answering(|_, _| Ok(()));
    queue.set_redelivery(&consumer, with_dead_letters(&other)).unwrap();
    queue.close().unwrap();
    assert_eq!(dead_letters.taken().numbers, [0, 1, 2]);
    assert_eq!(other.taken().numbers, [2]);
}

/// Dead letters under way are copies: they go in pieces.
#[test]
fn large_dead_letters_do_not_go_all_at_once() {
    let storage = SimStorage::new(1).with_file_capacity(1 << 20);
    let options = Options::new().arena_size(64 << 10);
    let queue = Engine::open_without_workers(storage, &options).unwrap();
    let dead_letters = Other::answering(|_, _| Ok(()));
    let consumer = workers(&queue, Rules::default());
    (0..30).for_each(|seq| assert_eq!(queue.enqueue(&[1; 8 << 10]).unwrap(), seq));
    let received: Vec<_> = (0..30).map(|_| receive(&queue, &consumer).unwrap()).collect();
    for (seq, handed) in received {
        queue.reject(&consumer, seq, handed).unwrap();
    }
    queue.set_redelivery(&consumer, with_dead_letters(&dead_letters)).unwrap();
    while consumer.in_flight(&queue.core) > 0 {
        queue.consumers.look_at_deliveries(&queue.core);
    }
    assert_eq!(dead_letters.taken().bytes.1, 64 << 10);
}

/// A rejected message is dropped before its dead letter goes: it is reported once, with its cause.
#[test]
fn a_dead_letter_whose_message_was_dropped_is_reported_as_a_gap() {
    let began = Instant::now();
    stop_clock(Some(began));
    let options = Options::new().arena_size(4096).max_bytes(96 << 10).on_full(OnFull::DropOldest);
    let storage = SimStorage::new(1).with_file_capacity(64 << 10);
    let queue = Engine::open_without_workers(storage, &options).unwrap();
    let dead_letters =
        Other::answering(|taken, _| if taken.is_open { Ok(()) } else { Err(Error::Closed) });
    let consumer = workers(&queue, with_dead_letters(&dead_letters));
    (0..2).for_each(|seq| assert_eq!(queue.enqueue(&[1; 3000]).unwrap(), seq));
    let (seq, handed) = receive(&queue, &consumer).unwrap();
    queue.reject(&consumer, seq, handed).unwrap();
    while queue.core.oldest_seq.load(Ordering::Acquire) == 0 {
        queue.enqueue(&[1; 3000]).unwrap();
    }
    dead_letters.taken().is_open = true;
    stop_clock(Some(began + LONG));
    queue.consumers.look_at_deliveries(&queue.core);
    let reported = queue.receive(&consumer, reading::AsMessage).map(drop).unwrap_err();
    stop_clock(None);
    assert!(
        matches!(&reported, Error::Gap(gap) if (gap.first, gap.cause) == (0, GapCause::Dropped)),
        "{reported}"
    );
    assert!(dead_letters.taken().numbers.is_empty());
    assert_eq!(consumer.in_flight(&queue.core), 0);
}

/// A read that takes, or looks, finds a message that an earlier run rejected: its dead letter goes.
#[test]
fn a_dead_letter_goes_whichever_read_finds_it() {
    for what in [Read::Take, Read::Look] {
        let dead_letters = Other::picky();
        let queue = filled(3);
        let consumer = workers(&queue, Rules::default());
        let first = receive(&queue, &consumer).unwrap();
        let (seq, handed) = receive(&queue, &consumer).unwrap();
        queue.reject(&consumer, seq, handed).unwrap();
        queue.ack(&consumer, first.0, first.1).unwrap();
        let queue = open(queue.core.storage.process_kill());
        let consumer = workers(&queue, with_dead_letters(&dead_letters));
        assert_eq!(reading::next(&queue, &consumer, what).unwrap().unwrap().seq(), 2);
        assert_eq!(dead_letters.taken().numbers, [1], "{what:?}");
    }
}

/// Another thread has the other queue's lock for writing: nobody waits for it twice in a row.
#[test]
fn a_busy_queue_for_dead_letters_is_asked_once_for_all_consumers() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    ASKED.store(0, Ordering::Relaxed);
    let dead_letters = Other::answering(|_, _| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Err(Error::io("lock for writing", "other", std::io::ErrorKind::WouldBlock.into()))
    });
    let queue = filled(3);
    for name in ["a", "b", "c"] {
        let consumer = queue.consumer(name).unwrap();
        queue.set_redelivery(&consumer, with_dead_letters(&dead_letters)).unwrap();
        let (seq, handed) = receive(&queue, &consumer).unwrap();
        consumer.reject(&queue.core, seq, handed).unwrap();
    }
    queue.consumers.look_at_deliveries(&queue.core);
    assert_eq!(ASKED.load(Ordering::Relaxed), 1);
}
