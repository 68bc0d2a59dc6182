//! Attempts over deaths of the process, and dead letters over power cuts, against a model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::DeliveryToken;
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::{Error, Result};
use crate::format::Origin;
use crate::options::Options;
use crate::tests::sim::{Rng, SimStorage};

const MESSAGES: u64 = 40;
const ATTEMPTS: u32 = 3;
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

/// What the model knows.
#[derive(Default)]
struct Model {
    done: BTreeSet<u64>,
    rejected: BTreeSet<u64>,
    /// How often each message was handed out in vain.
    fails: BTreeMap<u64, u32>,
    out: BTreeMap<u64, DeliveryToken>,
}

impl Model {
    fn fail(&mut self, seq: u64) {
        let fails = self.fails.entry(seq).or_default();
        *fails += 1;
        if *fails >= ATTEMPTS {
            self.rejected.insert(seq);
        }
    }

    fn is_left(&self, seq: u64) -> bool {
        !self.done.contains(&seq) && !self.rejected.contains(&seq)
    }

    fn death(&mut self) {
        for seq in std::mem::take(&mut self.out).into_keys() {
            self.fail(seq);
        }
    }
}

struct Run {
    queue: Queue,
    workers: Arc<ConsumerState<SimStorage>>,
    dead_letters: Arc<DeadLetterQueue>,
    model: Model,
}

impl Run {
    fn begin(queue: Queue, dead_letters: &Arc<DeadLetterQueue>, model: Model) -> Run {
        let workers = queue.consumer("workers").unwrap();
        let dead_letters = Arc::clone(dead_letters);
        let other_queue: Arc<dyn DeadLetters> = Arc::clone(&dead_letters) as _;
        let rules = Rules {
            max_attempts: Some(ATTEMPTS),
            dead_letters: Some(other_queue),
            ..Rules::default()
        };
        queue.set_redelivery(&workers, rules).unwrap();
        Run { queue, workers, dead_letters, model }
    }

    fn receive(&mut self) {
        let model = &mut self.model;
        let received = self.queue.receive(&self.workers, reading::AsMessage).unwrap();
        let Some((message, handed)) = received else {
            let is_waiting = |seq: &u64| model.is_left(*seq) && !model.out.contains_key(seq);
            let next = (0..MESSAGES).find(is_waiting);
            assert!(next.is_none(), "{next:?} does not come");
            return;
        };
        let seq = message.seq();
        assert!(model.is_left(seq), "{seq} comes again");
        assert_eq!(handed.attempts, model.fails.get(&seq).copied().unwrap_or(0) + 1, "{seq}");
        assert!(model.out.insert(seq, handed).is_none());
    }

    fn act(&mut self, rng: &mut Rng) {
        let outs: Vec<_> = self.model.out.iter().map(|(seq, handed)| (*seq, *handed)).collect();
        let act = rng.below(10);
        if act < 5 || outs.is_empty() {
            return self.receive();
        }
        let (seq, handed) = outs[rng.below(outs.len() as u64) as usize];
        self.model.out.remove(&seq);
        match act {
            5..8 => {
                self.queue.ack(&self.workers, seq, handed).unwrap();
                self.model.done.insert(seq);
            }
            8 => {
                self.queue.nack(&self.workers, seq, handed, None);
                self.model.fail(seq);
            }
            _ => {
                self.queue.reject(&self.workers, seq, handed).unwrap();
                self.model.rejected.insert(seq);
            }
        }
    }

    /// Lets the rest be done, and holds what became of all against the model.
    fn end(mut self, seed: u64) {
        self.dead_letters.is_full.store(false, std::sync::atomic::Ordering::Relaxed);
        for seq in std::mem::take(&mut self.model.out) {
            self.queue.ack(&self.workers, seq.0, seq.1).unwrap();
            self.model.done.insert(seq.0);
        }
        for _ in 0..MESSAGES {
            self.receive();
            for (seq, handed) in std::mem::take(&mut self.model.out) {
                self.queue.ack(&self.workers, seq, handed).unwrap();
                self.model.done.insert(seq);
            }
        }
        // Dead letters that were refused are tried again at once after an opening.
        self.queue.close().unwrap();
        let storage = self.queue.core.storage.process_kill();
        let Run { dead_letters, model, .. } = self;
        self = Run::begin(open(storage), &dead_letters, model);
        self.receive();
        assert_eq!(self.workers.len(&self.queue.core), 0, "seed {seed}");
        let dead = self.dead_letters.queue.consumer("reader").unwrap();
        let mut came = BTreeSet::new();
        while let Some(dead_letter) = self.read(&dead) {
            came.insert(dead_letter);
        }
        assert_eq!(came, self.model.rejected, "seed {seed}");
        let all: BTreeSet<u64> = self.model.done.union(&came).copied().collect();
        assert_eq!(all, (0..MESSAGES).collect(), "seed {seed}");
    }

    fn read(&self, dead: &Arc<ConsumerState<SimStorage>>) -> Option<u64> {
        let dead_letter =
            reading::next(&self.dead_letters.queue, dead, crate::consume::step::Read::Take)
                .unwrap()?;
        let origin = dead_letter.origin().unwrap();
        assert_eq!(
            (origin.queue_id, dead_letter[0]),
            (self.queue.core.index.queue_id, origin.seq as u8)
        );
        Some(origin.seq)
    }
}

/// Whatever order of calls, deaths and ends of runs: each message is done or a dead letter, and
/// counts are those that a model has.
#[test]
fn counts_outlive_deaths_and_no_message_is_lost() {
    for seed in 0..600 {
        let mut rng = Rng(seed);
        let dead_letters = Arc::new(DeadLetterQueue {
            queue: open(disk(seed ^ 1)),
            is_full: crate::threads::AtomicBool::new(false),
        });
        let queue = open(disk(seed));
        for seq in 0..MESSAGES {
            queue.enqueue(&[seq as u8; 100]).unwrap();
        }
        let mut run = Run::begin(queue, &dead_letters, Model::default());
        for _ in 0..rng.below(150) {
            match rng.below(40) {
                0 => {
                    let storage = run.queue.core.storage.process_kill();
                    run.model.death();
                    let Run { model, .. } = run;
                    run = Run::begin(open(storage), &dead_letters, model);
                }
                1 => {
                    // The run ends in order: that is an attempt of no message.
                    run.queue.close().unwrap();
                    let storage = run.queue.core.storage.process_kill();
                    run.model.out.clear();
                    let Run { model, .. } = run;
                    run = Run::begin(open(storage), &dead_letters, model);
                }
                2 => {
                    let is_full = rng.percent(50);
                    run.dead_letters.is_full.store(is_full, std::sync::atomic::Ordering::Relaxed);
                }
                _ => run.act(&mut rng),
            }
        }
        run.end(seed);
    }
}

/// Power is cut right after the storage worker has looked: whatever is done here and was not
/// acknowledged is there.
#[test]
fn a_dead_letter_is_on_the_disk_before_its_message_is_done() {
    for seed in 0..50 {
        let dead_letters = Arc::new(DeadLetterQueue {
            queue: open(disk(seed ^ 1)),
            is_full: crate::threads::AtomicBool::new(false),
        });
        let queue = open(disk(seed));
        for seq in 0..4 {
            queue.enqueue(&[seq as u8; 100]).unwrap();
        }
        let mut run = Run::begin(queue, &dead_letters, Model::default());
        for seq in 0..4 {
            run.receive();
            let handed = run.model.out.remove(&seq).unwrap();
            run.queue.reject(&run.workers, seq, handed).unwrap();
            assert_eq!(run.workers.len(&run.queue.core), 3 - seq);
            let cut = Arc::new(DeadLetterQueue {
                queue: open(dead_letters.queue.core.storage.power_cut(seed ^ seq)),
                is_full: crate::threads::AtomicBool::new(false),
            });
            let dead = cut.queue.consumer("reader").unwrap();
            let other = Run {
                dead_letters: Arc::clone(&cut),
                queue: Arc::clone(&run.queue),
                workers: Arc::clone(&run.workers),
                model: Model::default(),
            };
            for dead_letter in 0..=seq {
                assert_eq!(other.read(&dead), Some(dead_letter), "seed {seed}");
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
    let dead_letters =
        Arc::new(DeadLetterQueue { queue: dead, is_full: crate::threads::AtomicBool::new(true) });
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
