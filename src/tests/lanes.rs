//! Lanes against a model: what comes next, from which lane, over kills and dropped messages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{DeliveryToken, Lane, Read};
use crate::consume::two_lanes::{LaneRules, Within};
use crate::engine::{Engine, reading};
use crate::error::Error;
use crate::options::{OnFull, Options};
use crate::tests::effort::some_of;
use crate::tests::sim::{Rng, SimStorage};

type Queue = Arc<Engine<SimStorage>>;

fn disk(seed: u64) -> SimStorage {
    SimStorage::new(seed).with_file_capacity(256 << 10)
}

fn open(storage: SimStorage, options: &Options) -> Queue {
    Arc::new(Engine::open_without_workers(storage, options).unwrap())
}

fn rules(within: Within, share: (u32, u32)) -> LaneRules {
    LaneRules { within, share, rate: None, youngest_first: false }
}

/// What was left behind: the next number and the one behind the last.
type Left = Range<u64>;

struct Model {
    rules: LaneRules,
    /// The number behind the last message.
    end: u64,
    /// The fresh lane's next number.
    next: u64,
    fresh_from: u64,
    left: Vec<Left>,
    out: BTreeMap<u64, DeliveryToken>,
    back: BTreeSet<u64>,
    done: BTreeSet<u64>,
    turn: u32,
}

impl Model {
    fn new(rules: LaneRules) -> Model {
        Model {
            rules,
            end: 0,
            next: 0,
            fresh_from: 0,
            left: Vec::new(),
            out: BTreeMap::new(),
            back: BTreeSet::new(),
            done: BTreeSet::new(),
            turn: 0,
        }
    }

    fn jump(&mut self) -> Left {
        let left = self.next..self.end;
        if !left.is_empty() {
            match self.left.last_mut() {
                Some(last) if last.end == left.start => last.end = left.end,
                _ => self.left.push(left.clone()),
            }
            (self.next, self.fresh_from) = (self.end, self.end);
        }
        left
    }

    /// The lane's next message. It is taken.
    fn take(&mut self, lane: Lane) -> Option<u64> {
        let from = self.fresh_from;
        let back = match lane {
            Lane::Oldest => self.back.first(),
            Lane::Fresh => self.back.range(from..).next(),
            Lane::Backlog => self.back.range(..from).next(),
        };
        if let Some(seq) = back.copied() {
            self.back.remove(&seq);
            return Some(seq);
        }
        if lane != Lane::Fresh && !self.left.is_empty() {
            let is_last = lane == Lane::Backlog && self.rules.youngest_first;
            let at = if is_last { self.left.len() - 1 } else { 0 };
            let seq = self.left[at].start;
            self.left[at].start += 1;
            self.left.retain(|left| !left.is_empty());
            return Some(seq);
        }
        (lane != Lane::Backlog && self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn receive(&mut self, only: Option<Lane>) -> Option<u64> {
        let fresh_first = self.turn < self.rules.share.0;
        let order =
            if fresh_first { [Lane::Fresh, Lane::Backlog] } else { [Lane::Backlog, Lane::Fresh] };
        if only != Some(Lane::Backlog)
            && let Within::Last(most) = self.rules.within
        {
            while let Some(seq) = self.back.range(self.fresh_from..).next().copied()
                && self.end - seq > most
            {
                self.fresh_from = seq + 1;
            }
            if self.end - self.next > most {
                self.jump();
            }
        }
        for lane in only.map_or(order.to_vec(), |only| vec![only]) {
            if let Some(seq) = self.take(lane) {
                if lane == order[0] {
                    self.turn = (self.turn + 1) % (self.rules.share.0 + self.rules.share.1);
                }
                return Some(seq);
            }
        }
        None
    }

    /// All is found again by what is done.
    fn reopen(&mut self) {
        let place = (0..self.end).find(|seq| !self.done.contains(seq)).unwrap_or(self.end);
        let highest = self.done.last().copied().filter(|last| *last >= place);
        self.next = highest.map_or(place, |last| last + 1);
        self.fresh_from = self.next;
        self.out.clear();
        self.back.clear();
        self.turn = 0;
        self.left.clear();
        for seq in (place..self.next).filter(|seq| !self.done.contains(seq)) {
            match self.left.last_mut() {
                Some(last) if last.end == seq => last.end += 1,
                _ => self.left.push(seq..seq + 1),
            }
        }
    }

    fn place(&self) -> u64 {
        (0..self.end).find(|seq| !self.done.contains(seq)).unwrap_or(self.end)
    }
}

struct Run {
    queue: Queue,
    consumer: Arc<ConsumerState<SimStorage>>,
    model: Model,
}

impl Run {
    fn begin(queue: Queue, model: Model) -> Run {
        let consumer = queue.consumer("link").unwrap();
        queue.set_lanes(&consumer, model.rules).unwrap();
        Run { queue, consumer, model }
    }

    fn receive(&mut self, only: Option<Lane>) {
        let received =
            self.queue.receive_in_lanes(&self.consumer, reading::AsMessage, only, &mut None);
        let received = received.unwrap();
        let expected = self.model.receive(only);
        assert_eq!(received.as_ref().map(|(message, _)| message.seq()), expected, "{only:?}");
        if let Some((message, handed)) = received {
            assert_eq!(message[..], message.seq().to_le_bytes().repeat(20), "{}", message.seq());
            assert_eq!(handed.is_backlog(), message.seq() < self.model.fresh_from);
            self.model.out.insert(message.seq(), handed);
        }
    }

    fn act(&mut self, rng: &mut Rng) {
        let outs: Vec<_> = self.model.out.iter().map(|(seq, handed)| (*seq, *handed)).collect();
        match rng.below(20) {
            0..4 => {
                for _ in 0..=rng.below(5) {
                    let payload = self.model.end.to_le_bytes().repeat(20);
                    self.queue.enqueue(&payload).unwrap();
                    self.model.end += 1;
                }
            }
            4..8 => self.receive(None),
            8 => self.receive(Some(Lane::Fresh)),
            9 => self.receive(Some(Lane::Backlog)),
            10 => {
                // The consumer's own reads take the oldest message.
                let taken = reading::next(&self.queue, &self.consumer, Read::Take).unwrap();
                let expected = self.model.take(Lane::Oldest);
                assert_eq!(taken.map(|message| message.seq()), expected);
                self.model.done.extend(expected);
            }
            11 => assert_eq!(self.queue.jump(&self.consumer).unwrap(), self.model.jump()),
            12 if !outs.is_empty() => {
                let (seq, handed) = outs[rng.below(outs.len() as u64) as usize];
                self.queue.nack(&self.consumer, seq, handed, None);
                self.model.out.remove(&seq);
                self.model.back.insert(seq);
            }
            13 if rng.percent(20) => {
                let to = rng.below(self.model.end + 1);
                self.queue.seek(&self.consumer, to.max(self.model.place())).unwrap();
                let to = to.max(self.model.place());
                self.model.done = (0..to).collect();
                (self.model.next, self.model.fresh_from) = (to, to);
                self.model.left.clear();
                self.model.out.clear();
                self.model.back.clear();
            }
            _ if !outs.is_empty() => {
                let (seq, handed) = outs[rng.below(outs.len() as u64) as usize];
                self.queue.ack(&self.consumer, seq, handed).unwrap();
                self.model.out.remove(&seq);
                self.model.done.insert(seq);
            }
            _ => {}
        }
        assert_eq!(self.consumer.backlog(&self.queue.core), self.model.left);
        assert_eq!(self.consumer.seq(), self.model.place(), "the place");
        let open = self.model.end - self.model.done.len() as u64;
        assert_eq!(self.consumer.len(&self.queue.core), open);
    }
}

/// Whatever order of calls, kills and ends of runs: the lanes hand out what the model says, and no
/// message comes again that was acknowledged.
#[test]
fn lanes_hand_out_what_a_model_says_and_nothing_comes_twice_or_never() {
    let options = Options::new().arena_size(4096);
    for seed in some_of(0..400, 4, 0) {
        let mut rng = Rng(seed);
        let shares = [(4, 1), (1, 1), (1, 0), (0, 1), (2, 3)];
        let within = [Within::Manual, Within::Last(1), Within::Last(4), Within::Last(9)];
        let rules = LaneRules {
            within: within[rng.below(4) as usize],
            share: shares[rng.below(5) as usize],
            rate: None,
            youngest_first: rng.percent(40),
        };
        let mut run = Run::begin(open(disk(seed), &options), Model::new(rules));
        for _ in 0..rng.below(200) {
            if rng.below(40) == 0 {
                if rng.percent(50) {
                    run.queue.close().unwrap();
                }
                let storage = run.queue.core.storage.process_kill();
                let Run { mut model, .. } = run;
                model.reopen();
                run = Run::begin(open(storage, &options), model);
            } else {
                run.act(&mut rng);
            }
        }
        // What is left comes once.
        for (seq, handed) in std::mem::take(&mut run.model.out) {
            run.queue.ack(&run.consumer, seq, handed).unwrap();
            run.model.done.insert(seq);
        }
        for _ in 0..run.model.end - run.model.done.len() as u64 {
            run.receive(None);
            let (seq, handed) = run.model.out.pop_first().unwrap();
            run.queue.ack(&run.consumer, seq, handed).unwrap();
            run.model.done.insert(seq);
        }
        assert_eq!(run.model.done, (0..run.model.end).collect(), "seed {seed}");
        run.receive(None);
        assert_eq!(run.consumer.seq(), run.model.end);
    }
}

/// Where messages are dropped for new ones, the lanes report which: each message is handed out or
/// reported as missing, once, and each lane's numbers rise.
#[test]
fn what_is_dropped_is_reported_once_in_the_lane_that_has_it() {
    let options = Options::new().arena_size(4096).max_bytes(64 << 10).on_full(OnFull::DropOldest);
    for seed in some_of(0..100, 4, 0) {
        let mut rng = Rng(seed);
        let most = 3 + rng.below(40);
        let within = if rng.percent(30) { Within::Manual } else { Within::Last(most) };
        let rules = rules(within, (2, 1));
        let mut queue = open(disk(seed), &options);
        let mut consumer = queue.consumer("link").unwrap();
        queue.set_lanes(&consumer, rules).unwrap();
        let (mut end, mut came) = (0u64, BTreeSet::new());
        let mut last = [None, None];
        for _ in 0..rng.below(300) {
            match rng.below(20) {
                0..3 => {
                    for _ in 0..rng.below(60) {
                        queue.enqueue(&end.to_le_bytes().repeat(60)).unwrap();
                        end += 1;
                    }
                }
                3 if rng.percent(20) => {
                    let storage = queue.core.storage.process_kill();
                    queue = open(storage, &options);
                    consumer = queue.consumer("link").unwrap();
                    queue.set_lanes(&consumer, rules).unwrap();
                    last = [None, None];
                }
                4 => {
                    queue.jump(&consumer).unwrap();
                }
                _ => receive(&queue, &consumer, &mut came, &mut last),
            }
        }
        while consumer.len(&queue.core) > 0 {
            receive(&queue, &consumer, &mut came, &mut last);
        }
        assert_eq!(came, (0..end).collect(), "seed {seed}");
    }
}

fn receive(
    queue: &Queue,
    consumer: &Arc<ConsumerState<SimStorage>>,
    came: &mut BTreeSet<u64>,
    last: &mut [Option<u64>; 2],
) {
    match queue.receive_in_lanes(consumer, reading::AsMessage, None, &mut None) {
        Ok(Some((message, handed))) => {
            let seq = message.seq();
            assert_eq!(message[..], seq.to_le_bytes().repeat(60));
            assert!(came.insert(seq), "{seq} comes again");
            let last = &mut last[usize::from(handed.is_backlog())];
            assert!(last.replace(seq).is_none_or(|last| last < seq), "{seq} is out of order");
            drop(message);
            queue.ack(consumer, seq, handed).unwrap();
        }
        Ok(None) => {}
        Err(Error::Gap(gap)) => {
            for seq in gap.first..=gap.last {
                assert!(came.insert(seq), "{seq} was handed out, and reported in {gap}");
            }
        }
        Err(error) => panic!("{error}"),
    }
}

/// Segments tell how old their messages are, over reopenings too: what is older goes behind.
#[test]
fn what_is_too_old_is_left_behind() {
    let options = Options::new().arena_size(64 << 10);
    let rules = rules(Within::Millis(8000), (1, 0));
    let mut queue = open(disk(7), &options);
    // Written before anybody asked for ages.
    for seq in 0..3u64 {
        queue.enqueue(&seq.to_le_bytes().repeat(20)).unwrap();
    }
    let mut consumer = queue.consumer("link").unwrap();
    queue.set_lanes(&consumer, rules).unwrap();
    let next = |queue: &Queue, consumer: &Arc<ConsumerState<SimStorage>>| {
        let received =
            queue.receive_in_lanes(consumer, reading::AsMessage, None, &mut None).unwrap();
        received.map(|(message, handed)| {
            let seq = message.seq();
            drop(message);
            queue.ack(consumer, seq, handed).unwrap();
            (seq, handed.is_backlog())
        })
    };
    assert_eq!(next(&queue, &consumer), Some((0, false)), "young enough");
    for seq in 3..9u64 {
        queue.core.storage.advance_clock(1500);
        queue.enqueue(&seq.to_le_bytes().repeat(20)).unwrap();
    }
    // 9 s later 1 is too old, and so is all before the end of the first second.
    assert_eq!(next(&queue, &consumer), Some((1, true)));
    assert_eq!(format!("{:?}", consumer.backlog(&queue.core)), "[2..9]");
    queue.enqueue(&9u64.to_le_bytes().repeat(20)).unwrap();
    assert_eq!(next(&queue, &consumer), Some((9, false)));

    let storage = queue.core.storage.process_kill();
    queue = open(storage, &options);
    queue.core.storage.advance_clock(4000);
    queue.enqueue(&10u64.to_le_bytes().repeat(20)).unwrap();
    consumer = queue.consumer("link").unwrap();
    queue.set_lanes(&consumer, rules).unwrap();
    assert_eq!(format!("{:?}", consumer.backlog(&queue.core)), "[2..9]");
    queue.core.storage.advance_clock(4000);
    assert_eq!(next(&queue, &consumer), Some((10, false)), "written 4 s ago");
    queue.enqueue(&11u64.to_le_bytes().repeat(20)).unwrap();
    queue.core.storage.advance_clock(10_000);
    assert_eq!(next(&queue, &consumer), Some((2, true)));
    assert_eq!(consumer.backlog(&queue.core), [3..9, 11..12]);
}
