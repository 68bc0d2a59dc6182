//! The driver over a queue and a far side in memory. A seed chooses the events and their order; at
//! the end all failures stop, the driver sends the rest, and the test compares the far side with
//! the queue: no message twice or out of order, each missing message reported and really lost, and
//! an older copy of the queue stops.

mod answers;
mod end;
mod far;
mod near;
mod real;
mod settings;
mod stored;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::forward::destination::Limits;
use crate::forward::driver::Driver;
use crate::forward::far_side::Held;
use crate::forward::halt::Halt;
use crate::forward::local::Local;
use crate::forward::progress::{Counts, Worked};
use crate::forward::rules::{ForwardOptions, IfForgotten, TellGaps, WhenRefused};
use crate::forward::source::Source;
use crate::tests::effort::{alone, effort, first};
use crate::tests::sim::Rng;
use far::{Chain, Far, FarHandle, Link};
use near::{LONGEST, Near, NearHandle};
use settings::Plan;

/// Seeds of histories that once broke a promise.
const BROKE_ONCE: [u64; 9] = [
    28_419,
    42_212,
    252_139,
    386_914,
    870_814,
    1_034_487,
    1_105_033,
    795_566_302_149,
    795_566_358_903,
];

/// The numbers that were put aside, and how often since they might be again.
type DeadLetterNumbers = Arc<Mutex<BTreeMap<u64, u64>>>;

/// One history.
struct History {
    rng: Rng,
    plan: Plan,
    near: Rc<RefCell<Near>>,
    far: Arc<Mutex<Far>>,
    dead_letters: DeadLetterNumbers,
    driver: Option<Driver<'static, FarHandle>>,
    now: Duration,
    /// Troubles of the driver since the far side acknowledged something.
    troubles: u32,
    /// An earlier state of the queue, to restore.
    copy: Option<Near>,
    /// Whether each restored copy knew the sum of a chain.
    copy_knew: bool,
    /// The queue's life that enqueues the next message.
    life: u8,
    /// The states of the queue before it was set back to an older copy.
    formers: Vec<Near>,
    /// The far side need not have messages below this number: it held them once, or the place had
    /// passed them, and it was emptied.
    excused: u64,
    halt: Option<Halt>,
    /// How many messages a session packs into one at the most.
    most_packed: u64,
    /// Whether anything happened that makes positions count no messages, as far as the row tells.
    counts_may_differ: bool,
    /// These may be there twice: the far side had removed what was in flight, and its positions do
    /// not count messages.
    doubtful: Vec<RangeInclusive<u64>>,
    /// The events so far, printed when a seed fails.
    reported: Vec<String>,
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = Rng(seed);
        let plan = Plan::draw(&mut rng);
        let chain = [Chain::Each, Chain::Batch, Chain::Number][rng.below(3) as usize];
        let mut extra = Rng(!seed);
        let most_packed = [1, 2, 9][extra.below(3) as usize];
        let mut far = Far::new(rng.next(), chain, most_packed);
        let (mut lengths, mut began) = ((20, LONGEST + 1, LONGEST), 0);
        match extra.below(10) {
            0 => {
                far.link = Link::slow(&mut extra);
                far.limits = Limits { longest: 300_000, ..Limits::default() };
                lengths = (4000, [4000, 200_000][extra.below(2) as usize], 300_000);
            }
            1 => began = 1 + extra.below(20),
            _ => {}
        }
        History {
            plan,
            most_packed,
            counts_may_differ: most_packed > 1
                || plan.when_refused > 0
                || plan.gaps == TellGaps::Message,
            doubtful: Vec::new(),
            near: Rc::new(RefCell::new(Near::used(lengths, began, &mut extra))),
            far: Arc::new(Mutex::new(far)),
            dead_letters: DeadLetterNumbers::default(),
            driver: None,
            now: Duration::from_secs(1),
            troubles: 0,
            copy: None,
            copy_knew: true,
            life: 0,
            formers: Vec::new(),
            excused: began,
            halt: None,
            reported: Vec::new(),
            rng,
        }
    }

    fn report(&mut self, what: impl Into<String>) {
        self.reported.push(what.into());
    }

    /// Kills the process; the next step starts another one.
    fn kill(&mut self) {
        self.driver = None;
        if self.rng.percent(50) {
            self.far.lock().cut();
        }
    }

    fn start(&mut self) -> Driver<'static, FarHandle> {
        let dead_letters = Arc::clone(&self.dead_letters);
        let when_refused = match self.plan.when_refused {
            0 => WhenRefused::Stop,
            1 => WhenRefused::Skip,
            _ => WhenRefused::PutAway(Box::new(move |message, _| {
                *dead_letters.lock().entry(message.seq()).or_default() += 1;
                Ok(())
            })),
        };
        let options = ForwardOptions {
            keep_messages: self.plan.keep,
            keep_bytes: self.plan.keep_bytes,
            gaps: self.plan.gaps,
            if_forgotten: self.plan.if_forgotten,
            ..ForwardOptions::default()
        };
        let source = Source::new([7; 16], "near");
        let near = NearHandle(Rc::clone(&self.near));
        let far = FarHandle(Arc::clone(&self.far));
        Driver::new(Box::new(near), far, source, options, when_refused, self.rng.next())
    }

    /// Runs some steps of the driver.
    fn drive(&mut self, steps: u64) -> Worked {
        let mut stepped = Worked::Busy;
        for _ in 0..steps {
            if self.halt.is_some() {
                break;
            }
            let mut driver = match self.driver.take() {
                Some(driver) => driver,
                None => {
                    self.troubles = 0;
                    self.start()
                }
            };
            let slowness = if self.far.lock().link.is_slow() { 50 } else { 1 };
            self.now += Duration::from_millis(self.rng.below(60) * slowness);
            let near = NearHandle(Rc::clone(&self.near));
            let (before, oldest) = (driver.counts, near.oldest());
            // (Behind it the place may have passed what nobody sent.)
            let place = near.acknowledged().there;
            let mut far = self.far.lock();
            (far.link.now, far.may_keep_store) = (self.now, oldest.min(place) > near.began());
            drop(far);
            let outcome = driver.step(self.now, Duration::ZERO);
            let is_silent =
                driver.trouble.as_ref().is_some_and(|it| it.starts_with("no answer for"));
            if is_silent && driver.counts.troubles > before.troubles {
                assert!(self.far.lock().is_stuck(), "a slow link has no time");
            }
            let answered = self.far.lock().answered.take();
            self.check_put_aside(answered.is_some() && self.near.borrow().read_from < place);
            match answered {
                Some(Held::Nothing) if place > near.began() => {
                    self.check_forgotten(&outcome, place, oldest);
                }
                Some(Held::Removed { stored: Some(1..) }) => self.doubt(place),
                Some(Held::SetBack { .. }) => self.doubt(oldest.min(place)),
                _ => {}
            }
            match outcome {
                Ok(done) => stepped = done,
                Err(halt) => {
                    self.report(format!("halts: {halt}"));
                    self.halt = Some(halt);
                    break;
                }
            }
            if let Worked::Pause(left) = stepped {
                self.pause(&mut driver, &before, left);
            }
            if driver.counts.acknowledged > before.acknowledged {
                self.troubles = 0;
            }
            self.now = self.now.max(self.far.lock().link.now);
            self.driver = Some(driver);
        }
        stepped
    }

    /// Handles a pause that the driver wants.
    fn pause(&mut self, driver: &mut Driver<'static, FarHandle>, before: &Counts, left: Duration) {
        let options = ForwardOptions::default();
        if driver.counts.troubles > before.troubles {
            let doubled = options.first_pause.saturating_mul(1 << self.troubles.min(20));
            let whole = doubled.min(options.longest_pause);
            assert!(left >= whole / 2 && left <= whole, "a pause of {left:?}, not of {whole:?}");
            self.troubles += 1;
        }
        if self.rng.percent(30) {
            // Too early.
            let sessions = driver.counts.sessions;
            let waits = driver.step(self.now + left / 2, Duration::ZERO);
            assert!(matches!(waits, Ok(Worked::Pause(_))), "{waits:?} within a pause");
            assert_eq!(driver.counts.sessions, sessions, "a session begins within a pause");
        }
        self.now += left;
    }

    /// Checks the outcome when the far side acknowledged messages but holds none.
    fn check_forgotten(&mut self, outcome: &Result<Worked, Halt>, place: u64, oldest: u64) {
        let stops = matches!(outcome, Err(Halt::Forgotten { .. }));
        let at = self.near.borrow().read_from;
        match self.plan.if_forgotten.unwrap_or(IfForgotten::Stop) {
            IfForgotten::Stop => assert!(stops, "a far side that has forgotten is not reported"),
            IfForgotten::Continue => {
                assert!(!stops && at >= place, "it goes on at {at}");
                if !self.far.lock().misnamed.is_empty() {
                    self.excused = self.excused.max(place);
                }
                self.excuse_gap(place);
            }
            IfForgotten::Resend => {
                assert!(!stops && at == oldest.min(place), "sent again from {at}, not {oldest}");
            }
        }
    }

    /// After continuing at the place, the far side need not have messages below it. When a number
    /// that the far side held is missing here by now, its acknowledgement moves the place behind
    /// the whole gap, and may do so after the far side was emptied.
    fn excuse_gap(&mut self, place: u64) {
        let near = self.near.borrow();
        let Some(held) = self.excused.checked_sub(1) else {
            return;
        };
        if (held..place).all(|number| near.may_be_missing(number)) {
            self.excused = self.excused.max(place);
        }
    }

    /// Runs one random event.
    fn event(&mut self) {
        let what = self.rng.below(100);
        let few = 1 + self.rng.below(4);
        match what {
            0..20 => {
                let is_burst = few == 4 && self.far.lock().link.is_slow();
                for _ in 0..few * if is_burst { 10 } else { 1 } {
                    self.near.borrow_mut().enqueue(&mut self.rng, self.life);
                }
            }
            20..60 => drop(self.drive(few)),
            60..63 => {
                self.report("kill");
                self.kill();
            }
            // (A copy that loses the number that the far side holds last cannot be told from a
            // queue that lost it.)
            63..66 if self.formers.is_empty() => {
                self.report("power cut");
                self.kill();
                let keeps = self.plan.removes;
                self.counts_may_differ = true;
                self.near.borrow_mut().lose_power(&mut self.rng, keeps);
                self.check_put_aside(true);
            }
            66..70 => self.near.borrow_mut().flush_all(),
            70..73 if self.plan.gaps_here && self.formers.is_empty() => self.lose_here(),
            73..77 => self.die(),
            77..81 => self.far.lock().cut(),
            81..83 => {
                self.report("stuck");
                self.far.lock().get_stuck();
            }
            83..86 => self.far.lock().down = few,
            86..90 => self.far.lock().serve_late(),
            90..94 => self.far.lock().sync(),
            94..96 if self.plan.removes => {
                self.far.lock().remove();
                self.report(format!("removed, but {}", self.far.lock().log.len()));
            }
            96 if self.plan.may_recreate && self.rng.percent(30) => {
                let until = self.far.lock().recreate();
                self.excused = self.excused.max(until).max(self.near.borrow().place());
                self.report(format!("made anew below {until}"));
            }
            97 if self.plan.may_restore && self.copy.is_none() => {
                self.report("copy");
                self.kill();
                self.near.borrow_mut().flush_all();
                self.copy = Some(self.near.borrow().clone());
            }
            98..100 if self.plan.may_restore => self.restore(few),
            98..100 if self.plan.removes => self.let_others_write(few),
            _ => {}
        }
    }

    /// Drops messages, or damages one.
    fn lose_here(&mut self) {
        let mut near = self.near.borrow_mut();
        let from = near.place().saturating_sub(3);
        let number = from + self.rng.below(8);
        if self.rng.percent(50) {
            near.drop_up_to(number);
        } else if let Some(number) = near.numbers.get_mut(number as usize) {
            number.gone.get_or_insert(crate::error::GapCause::Damaged);
        }
    }

    fn die(&mut self) {
        let most = if self.plan.loses_little { self.plan.keep } else { u64::MAX };
        let mut far = self.far.lock();
        far.die(most);
        if far.all().is_empty() {
            self.excused = self.excused.max(far.high).max(self.near.borrow().place());
        }
        let what = format!("the far side dies, and holds {} of {}", far.log.len(), far.high);
        drop(far);
        self.report(what);
    }

    /// Sets the directory back to the copy. No write of the former process is pending.
    fn restore(&mut self, few: u64) {
        let Some(copy) = self.copy.take() else {
            return;
        };
        self.driver = None;
        self.far.lock().silence();
        self.life += 1;
        self.check_put_aside(true);
        self.copy_knew &= copy.acknowledged.chain.is_some();
        let former = self.near.replace(copy);
        self.formers.push(former);
        for _ in 0..few * 3 {
            self.near.borrow_mut().enqueue(&mut self.rng, self.life);
            self.repeat_a_text();
        }
        self.report(format!("restored, next {}", self.near.borrow().next()));
    }

    /// Some messages of the copy are those of the original, as with heartbeats.
    fn repeat_a_text(&mut self) {
        let mut near = self.near.borrow_mut();
        let Some(number) = near.next().checked_sub(1).filter(|number| number % 3 == 0) else {
            return;
        };
        let former = self.formers.last().and_then(|former| former.numbers.get(number as usize));
        if let Some(former) = former.filter(|former| former.gone.is_none()) {
            near.numbers[number as usize].bytes.clone_from(&former.bytes);
        }
    }

    /// Stops all failures and sends the rest. Asks the far side once more at the end.
    fn finish(&mut self) {
        self.report("all is well");
        self.far.lock().well = true;
        for round in 0..3 {
            let mut left = 2_000;
            while self.drive(1) != Worked::Idle && self.halt.is_none() {
                left -= 1;
                assert!(left > 0, "round {round}: what is here is not sent");
            }
            for _ in 0..3 {
                self.far.lock().serve_late();
            }
            self.kill();
        }
        // Time to flush the places, and to move the kept one.
        for _ in 0..3 {
            self.drive(20);
            self.now += Duration::from_secs(2);
        }
        self.drive(20);
    }
}

fn run(seed: u64) {
    let mut history = History::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..20 + history.rng.below(120) {
            history.event();
            if history.halt.is_some() {
                break;
            }
        }
        if history.halt.is_none() {
            history.finish();
        }
        history.check();
    }));
    if let Err(panic) = outcome {
        let chain = history.far.lock().chain;
        let most = history.most_packed;
        eprintln!("MMQ_SEED={seed} {chain:?}, {:?}, packs of {most}", history.plan);
        for line in &history.reported {
            eprintln!("  {line}");
        }
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn whatever_either_side_goes_through_each_message_is_there_once_in_order() {
    if let Some(seed) = alone() {
        return run(seed);
    }
    let first = first().unwrap_or(0);
    BROKE_ONCE.into_iter().chain(first..first + 2_000 * effort()).for_each(run);
}
