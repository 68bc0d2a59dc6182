//! Dead letters over power cuts, in circles, and of an earlier run. (`deliveries` compares attempts
//! over deaths with a model.)

use std::sync::Arc;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::Read;
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::{Error, Result};
use crate::format::Origin;
use crate::options::Options;
use crate::tests::sim::SimStorage;

type Queue = Arc<Engine<SimStorage>>;

/// A queue for dead letters. It may have no room.
struct DeadLetterQueue {
    queue: Queue,
    is_full: crate::threads::AtomicBool,
}

impl DeadLetters for DeadLetterQueue {
    fn put(&self, payload: &[u8], origin: &Origin) -> Result<()> {
        if self.is_full.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        self.queue.enqueue_dead_letter(payload, origin).map(drop)
    }

    fn flush(&self) -> Result<()> {
        self.queue.core.flush()
    }

    fn id(&self) -> usize {
        self.queue.id()
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        self.queue.dead_letters()
    }
}

fn open(storage: SimStorage) -> Queue {
    Arc::new(
        Engine::open_without_workers(storage, &Options::new().arena_size(4096).max_bytes(64 << 10))
            .unwrap(),
    )
}

fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(64 << 10)
}

fn dead_letters(queue: Queue) -> Arc<DeadLetterQueue> {
    Arc::new(DeadLetterQueue { queue, is_full: crate::threads::AtomicBool::new(false) })
}

/// The number of the next dead letter's message, of `queue`.
fn read(dead: &Queue, reader: &ConsumerState<SimStorage>, queue: &Queue) -> Option<u64> {
    let dead_letter = reading::next(dead, reader, Read::Take).unwrap()?;
    let origin = dead_letter.origin().unwrap();
    assert_eq!((origin.queue_id, dead_letter[0]), (queue.core.index.queue_id, origin.seq as u8));
    Some(origin.seq)
}

/// Power is cut right after the storage worker has looked: whatever is done here and was not
/// acknowledged is there.
#[test]
fn a_dead_letter_is_on_the_disk_before_its_message_is_done() {
    for seed in 0..50 {
        let other = dead_letters(open(disk(seed ^ 1)));
        let queue = open(disk(seed));
        for seq in 0..4 {
            queue.enqueue(&[seq as u8; 100]).unwrap();
        }
        let workers = queue.consumer("workers").unwrap();
        let to: Arc<dyn DeadLetters> = Arc::clone(&other) as _;
        let rules = Rules { dead_letters: Some(to), ..Rules::default() };
        queue.set_redelivery(&workers, rules).unwrap();
        for seq in 0..4 {
            let (message, handed) = queue.receive(&workers, reading::AsMessage).unwrap().unwrap();
            queue.reject(&workers, message.seq(), handed).unwrap();
            assert_eq!(workers.len(&queue.core), 3 - seq);
            let cut = open(other.queue.core.storage.power_cut(seed ^ seq));
            let reader = cut.consumer("reader").unwrap();
            for dead_letter in 0..=seq {
                assert_eq!(read(&cut, &reader, &queue), Some(dead_letter), "seed {seed}");
            }
        }
    }
}

#[test]
fn a_late_acknowledgement_says_so_and_dead_letters_do_not_go_round() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let [a, b] =
        ["a", "b"].map(|name| Arc::new(crate::Queue::open(dir.path().join(name)).unwrap()));
    let lease = std::time::Duration::from_millis(2);
    a.set_redelivery(crate::Redelivery::new().lease(lease).dead_letters(Arc::clone(&b))).unwrap();
    a.enqueue("a message").unwrap();
    let delivery = a.receive().unwrap().unwrap();
    std::thread::sleep(2 * lease);
    assert!(matches!(delivery.ack(), Err(Error::Expired)));
    let back = b.set_redelivery(crate::Redelivery::new().dead_letters(Arc::clone(&a)));
    assert!(matches!(back, Err(Error::InvalidArgument { .. })));
    let own = a.set_redelivery(crate::Redelivery::new().dead_letters(Arc::clone(&a)));
    assert!(matches!(own, Err(Error::InvalidArgument { .. })));
}

/// The dead letter goes when the reader comes to it.
#[test]
fn what_an_earlier_run_rejected_goes_to_its_dead_letters_and_is_not_read_again() {
    let dead = open(disk(12));
    let dead_letters = dead_letters(dead);
    dead_letters.is_full.store(true, std::sync::atomic::Ordering::Relaxed);
    let lanes =
        LaneRules { within: Within::Manual, share: (1, 1), rate: None, youngest_first: false };
    let begin = |queue: &Queue| {
        let link = queue.consumer("link").unwrap();
        let to: Arc<dyn DeadLetters> = Arc::clone(&dead_letters) as _;
        let rules = Rules { dead_letters: Some(to), ..Rules::default() };
        queue.set_redelivery(&link, rules).unwrap();
        queue.set_lanes(&link, lanes).unwrap();
        link
    };
    let queue = open(disk(11));
    let link = begin(&queue);
    queue.enqueue(b"to be rejected").unwrap();
    let received = queue.receive_in_lanes(&link, reading::AsMessage, None, &mut None).unwrap();
    let (message, handed) = received.unwrap();
    queue.reject(&link, message.seq(), handed).unwrap();
    assert_eq!((link.len(&queue.core), dead_letters.queue.len()), (1, 0));

    let queue = open(queue.core.storage.process_kill());
    dead_letters.is_full.store(false, std::sync::atomic::Ordering::Relaxed);
    let link = begin(&queue);
    let received = queue.receive_in_lanes(&link, reading::AsMessage, None, &mut None).unwrap();
    assert!(received.is_none());
    assert_eq!((link.len(&queue.core), dead_letters.queue.len()), (0, 1));
}
