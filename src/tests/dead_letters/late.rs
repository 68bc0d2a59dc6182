//! Dead letters that cannot be read for a while, and those that come back to a consumer that went
//! on.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::DeliveryToken;
use crate::engine::{Engine, reading};
use crate::error::{Error, Result};
use crate::format::Origin;
use crate::options::Options;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::schedule::threads::stop_clock;
use crate::tests::sim::{Call, SimStorage};

type Queue = Engine<SimStorage>;
type Answer = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Another queue. It notes the numbers of the dead letters, and flushes as the test has it.
struct Other(Mutex<Vec<u64>>, Answer);

impl DeadLetters for Other {
    fn put(&self, _: &[u8], origin: &Origin) -> Result<()> {
        self.0.lock().unwrap().push(origin.seq);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        (self.1)()
    }

    fn id(&self) -> usize {
        7
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        Vec::new()
    }
}

fn queue() -> (Arc<Queue>, Arc<ConsumerState<SimStorage>>) {
    let storage = SimStorage::new(1).with_file_capacity(256 << 10);
    let queue = Engine::open_without_workers(storage, &Options::new().arena_size(4096)).unwrap();
    let workers = queue.consumer("workers").unwrap();
    (0..40).for_each(|seq| assert_eq!(queue.enqueue(&[7; 1000]).unwrap(), seq));
    queue.core.flush().unwrap();
    (Arc::new(queue), workers)
}

/// Hands out the first message. Nobody has its segment open then.
fn receive(queue: &Queue, workers: &ConsumerState<SimStorage>) -> DeliveryToken {
    let (message, handed) = queue.receive(workers, reading::AsMessage).unwrap().unwrap();
    assert_eq!(message.seq(), 0);
    drop(message);
    workers.release();
    handed
}

/// The disk refuses to open the segment for a moment.
#[test]
fn a_letter_that_cannot_be_read_now_goes_later() {
    LENGTH_HERE.set(Some(16 << 10));
    let began = Instant::now();
    stop_clock(Some(began));
    let (queue, workers) = queue();
    let other = Arc::new(Other(Mutex::default(), Box::new(|| Ok(()))));
    let rules = Rules { dead_letters: Some(Arc::clone(&other) as _), ..Rules::default() };
    queue.set_redelivery(&workers, rules).unwrap();
    let handed = receive(&queue, &workers);
    queue.core.storage.fail_after(Call::Open, 1, Errno::IO, true);
    queue.reject(&workers, 0, handed).unwrap();
    assert_eq!(queue.core.storage.failed(Call::Open), 1);
    let gone = || other.0.lock().unwrap().clone();
    assert_eq!((gone(), workers.in_flight(&queue.core)), (vec![], 1));
    queue.core.storage.clear_faults();
    assert_eq!(workers.next_due(), Some(began + Duration::from_secs(1)));
    stop_clock(Some(began + Duration::from_millis(999)));
    queue.consumers.look_at_deliveries(&queue.core);
    assert_eq!(gone(), [] as [u64; 0]);
    stop_clock(Some(began + Duration::from_secs(1)));
    queue.consumers.look_at_deliveries(&queue.core);
    assert_eq!((gone(), workers.in_flight(&queue.core), workers.seq()), (vec![0], 0, 1));
    assert_eq!(queue.stats().gaps, 0);
    stop_clock(None);
    LENGTH_HERE.set(None);
}

/// While the dead letter is on its way the consumer goes back, and rejects the message once more:
/// the dead letter of then, which could not be made durable, says nothing of the one that goes now.
#[test]
fn a_letter_of_before_a_seek_is_not_that_of_the_message_rejected_again() {
    let began = Instant::now();
    stop_clock(Some(began));
    let (queue, workers) = queue();
    let (seeks, again) = (Arc::clone(&queue), Arc::clone(&workers));
    let is_first = Mutex::new(true);
    let other = Arc::new(Other(
        Mutex::default(),
        Box::new(move || {
            if !std::mem::take(&mut *is_first.lock().unwrap()) {
                return Ok(());
            }
            seeks.seek(&again, 0).unwrap();
            let handed = receive(&seeks, &again);
            assert!(again.reject(&seeks.core, 0, handed).unwrap());
            Err(Error::Closed)
        }),
    ));
    let rules = Rules { dead_letters: Some(Arc::clone(&other) as _), ..Rules::default() };
    queue.set_redelivery(&workers, rules).unwrap();
    let handed = receive(&queue, &workers);
    queue.reject(&workers, 0, handed).unwrap();
    assert_eq!((workers.next_due(), workers.in_flight(&queue.core)), (None, 1));
    queue.consumers.look_at_deliveries(&queue.core);
    assert_eq!(*other.0.lock().unwrap(), [0, 0]);
    assert_eq!((workers.in_flight(&queue.core), workers.seq()), (0, 1));
    stop_clock(None);
    queue.set_redelivery(&workers, Rules::default()).unwrap();
}
