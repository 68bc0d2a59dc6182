//! What is left of a failing world when everything is taken away that it does not need to fail.
//!
//! A smaller world runs differently, so each one is tried with the same seeds first, then with
//! others. It counts if it fails in the same way, which is judged by the words of the failure. All
//! of it follows from the seed, so it comes to the same end each time.

use super::acts::{Act, Cast};
use super::reported::Death;
use super::script::{Opening, Script};
use super::{Broken, World};
use crate::engine::Background;
use crate::options::OnFull;
use crate::storage::Stores;
use crate::tests::schedule::MOST_STEPS;
use crate::tests::sim::Rng;

/// A world that failed, and how.
pub(super) struct Failing {
    pub(super) world: World,
    pub(super) broken: Broken,
    pub(super) tries: u64,
    pub(super) steps: u64,
    /// Steps that all tries may take together.
    most: u64,
    rng: Rng,
    /// Nothing more is to be tried: a thread of a try goes on for ever.
    is_over: bool,
}

/// One thing to take away or to make simpler; by the number of the life.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// All lives before that one.
    Before(usize),
    Life(usize),
    Opening(usize, usize),
    Cast(usize, usize),
    /// Of that cast so many acts from that one on.
    Acts(usize, usize, usize, usize),
    Fault(usize, usize),
    Option(usize, usize),
    Act(usize, usize, usize),
}

const PASSES: [fn(&World) -> Vec<Cut>; 7] =
    [lives, openings, casts, halves, single_acts, faults_and_options, simpler_acts];

impl Failing {
    pub(super) fn new(world: World, broken: Broken, most: u64) -> Failing {
        let rng = Rng(world.disk);
        Failing { world, broken, tries: 0, steps: 0, most, rng, is_over: false }
    }

    pub(super) fn shrink(&mut self) {
        self.is_over = self.broken.never_ends();
        let last = self.broken.life;
        self.world.lives.truncate(last + 1);
        if kind(&self.broken.text).contains("schedule does not end") {
            let world = World { most_steps: MOST_STEPS / 20, ..self.world.clone() };
            self.fails(world);
        }
        loop {
            let tries = self.tries;
            let mut has_shrunk = false;
            for cuts in PASSES {
                let mut at = 0;
                while let Some(cut) = cuts(&self.world).get(at).copied() {
                    if self.is_over || self.steps >= self.most {
                        return;
                    }
                    match self.world.without(cut) {
                        Some(world) if self.fails_somehow(&world, cut) => has_shrunk = true,
                        _ => at += 1,
                    }
                }
            }
            if !has_shrunk || tries == self.tries {
                return;
            }
        }
    }

    /// Whether that world fails in the same way, with some seeds; then it is taken.
    fn fails_somehow(&mut self, world: &World, cut: Cut) -> bool {
        if self.fails(world.clone()) {
            return true;
        }
        let more = match cut {
            Cut::Before(_) | Cut::Life(_) | Cut::Opening(..) | Cut::Cast(..) => 24,
            Cut::Acts(.., count) if count > 1 => 16,
            Cut::Option(..) | Cut::Act(..) => 4,
            _ => 10,
        };
        (0..more).any(|nth| {
            let mut world = world.clone();
            let last = world.lives.len() - 1;
            for (life, script) in world.lives.iter_mut().enumerate() {
                if life == last || nth % 3 == 2 {
                    script.draw_again(&mut self.rng, self.broken.steps, nth % 2 == 1);
                }
            }
            self.fails(world)
        })
    }

    fn fails(&mut self, world: World) -> bool {
        if self.is_over || self.steps >= self.most {
            return false;
        }
        self.tries += 1;
        match world.play(None) {
            Ok(played) => self.steps += played.steps,
            Err(broken) => {
                self.steps += broken.all_steps;
                self.is_over = broken.never_ends();
                if !self.is_over && kind(&broken.text) == kind(&self.broken.text) {
                    self.world = world;
                    self.world.lives.truncate(broken.life + 1);
                    self.broken = broken;
                    return true;
                }
            }
        }
        false
    }
}

/// The words of a failure, without names and numbers.
fn kind(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split_once(" steps: ").map_or(line, |(_, rest)| rest);
    if line.starts_with("stuck") {
        return "stuck".to_owned();
    }
    let mut depth = 0;
    let mut is_quoted = false;
    let mut plain = String::new();
    for dead_letter in line.chars() {
        match dead_letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            '"' => is_quoted = !is_quoted,
            _ if depth == 0 && !is_quoted => plain.push(dead_letter),
            _ => {}
        }
    }
    let words = plain.split(|dead_letter: char| !dead_letter.is_alphanumeric());
    let is_word = |word: &&str| {
        !word.is_empty() && word.chars().all(|dead_letter| dead_letter.is_ascii_lowercase())
    };
    words.filter(is_word).collect::<Vec<_>>().join(" ")
}

impl Script {
    /// Other seeds for the schedule, and perhaps other moments of death, up to that step.
    fn draw_again(&mut self, rng: &mut Rng, steps: u64, has_other_policy: bool) {
        self.seed = rng.next();
        if has_other_policy {
            self.by_rank = rng.percent(50);
            self.switch_one_in = [2, 4, 16, 64][rng.below(4) as usize];
        }
        if let Some(dies_at) = &mut self.dies_at {
            *dies_at = 1 + rng.below(steps.max(2));
        }
        for Opening { dies_at, .. } in &mut self.openings {
            *dies_at = 1 + rng.below(steps.max(2));
        }
        for death in
            self.openings.iter_mut().map(|opening| &mut opening.death).chain([&mut self.death])
        {
            match death {
                Death::Cut(seed) | Death::Remount(seed) => *seed = rng.next(),
                Death::Kill | Death::KillElsewhere => {}
            }
        }
    }
}

fn lives(world: &World) -> Vec<Cut> {
    let last = world.lives.len() - 1;
    (0..last).rev().map(|life| Cut::Before(life + 1)).chain((0..last).map(Cut::Life)).collect()
}

fn openings(world: &World) -> Vec<Cut> {
    let lives = world.lives.iter().enumerate();
    lives
        .flat_map(|(life, script)| (0..script.openings.len()).map(move |at| Cut::Opening(life, at)))
        .collect()
}

fn casts(world: &World) -> Vec<Cut> {
    let lives = world.lives.iter().enumerate();
    lives
        .flat_map(|(life, script)| (0..script.casts.len()).map(move |at| Cut::Cast(life, at)))
        .collect()
}

/// Each cast with its numbers.
fn each_cast(world: &World) -> impl Iterator<Item = (usize, usize, &Cast)> {
    let lives = world.lives.iter().enumerate();
    lives.flat_map(|(life, script)| {
        script.casts.iter().enumerate().map(move |(number, cast)| (life, number, cast))
    })
}

fn halves(world: &World) -> Vec<Cut> {
    each_cast(world)
        .filter(|(.., cast)| cast.acts.len() > 2)
        .flat_map(|(life, number, cast)| {
            let half = cast.acts.len() / 2;
            [
                Cut::Acts(life, number, half, cast.acts.len() - half),
                Cut::Acts(life, number, 0, half),
            ]
        })
        .collect()
}

fn single_acts(world: &World) -> Vec<Cut> {
    each_cast(world)
        .flat_map(|(life, number, cast)| {
            (0..cast.acts.len()).rev().map(move |at| Cut::Acts(life, number, at, 1))
        })
        .collect()
}

fn faults_and_options(world: &World) -> Vec<Cut> {
    let lives = world.lives.iter().enumerate();
    lives
        .flat_map(|(life, script)| {
            let faults = (0..script.faults.len()).map(move |at| Cut::Fault(life, at));
            faults.chain((0..OPTIONS.len()).map(move |at| Cut::Option(life, at)))
        })
        .collect()
}

fn simpler_acts(world: &World) -> Vec<Cut> {
    each_cast(world)
        .flat_map(|(life, number, cast)| {
            (0..cast.acts.len()).map(move |at| Cut::Act(life, number, at))
        })
        .collect()
}

/// What makes a life simpler.
const OPTIONS: [fn(&mut Script); 13] = [
    |script| script.capacity = None,
    |script| script.background = Background::Calls,
    |script| script.options.max_age = None,
    |script| script.options.flush_every = None,
    |script| script.options.flush_every_ops = None,
    |script| script.options.max_mapped_arenas = None,
    |script| script.options.on_full = OnFull::Reject,
    |script| script.stores = Stores::ByMap,
    |script| script.death = Death::Kill,
    |script| {
        if let Death::Remount(seed) = script.death {
            script.death = Death::Cut(seed);
        }
    },
    |script| script.dies_at = None,
    |script| script.switch_one_in = 256,
    |script| script.slow = 0,
];

impl World {
    /// Nothing where that makes no difference.
    fn without(&self, cut: Cut) -> Option<World> {
        let mut world = self.clone();
        match cut {
            Cut::Before(life) => drop(world.lives.drain(..life)),
            Cut::Life(life) => drop(world.lives.remove(life)),
            Cut::Opening(life, at) => drop(world.lives[life].openings.remove(at)),
            Cut::Cast(life, at) => drop(world.lives[life].casts.remove(at)),
            Cut::Acts(life, number, at, count) => {
                let casts = &mut world.lives[life].casts;
                casts[number].acts.drain(at..at + count);
                casts.retain(|cast| !cast.acts.is_empty());
            }
            Cut::Fault(life, at) => drop(world.lives[life].faults.remove(at)),
            Cut::Option(life, at) => {
                OPTIONS[at](&mut world.lives[life]);
                let before = format!("{:?}", self.lives[life]);
                return (before != format!("{:?}", world.lives[life])).then_some(world);
            }
            Cut::Act(life, number, at) => {
                let act = &mut world.lives[life].casts[number].acts[at];
                *act = act.simpler()?;
            }
        }
        Some(world)
    }
}

impl Act {
    /// A little simpler, if there is such an act.
    fn simpler(self) -> Option<Act> {
        Some(match self {
            Act::Enqueue(len) if len > 8 => Act::Enqueue(shorter(len)),
            Act::Parts(len) => Act::Enqueue(len),
            Act::Batch(_, len) => Act::Enqueue(len),
            Act::TakeBatch(which, _) => Act::Take(which),
            Act::Wait(which, most) if most > 1 => Act::Wait(which, 1),
            Act::Sleep(millis) if millis > 1 => Act::Sleep(1),
            _ => return None,
        })
    }
}

/// First as short as can be, and if that is too short, by less.
fn shorter(len: usize) -> usize {
    if len > 64 { 64 } else { 8 }
}

#[test]
fn a_planted_bug_is_shrunk_to_what_it_needs_and_reported() {
    use super::story;
    use crate::tests::schedule::Log;
    use crate::tests::sim::Mutant;

    // A waker is called while its thread has the flush lock.
    Mutant::plant(Some(Mutant::WokenUnderTheFlushLock));
    let failing = (0..300).find_map(|seed| {
        let world = World::draw(seed);
        world.play(None).err().map(|broken| Failing::new(world, broken, 3_000_000))
    });
    let mut failing = failing.expect("a world that fails");
    let threads = each_cast(&failing.world).count();
    failing.shrink();
    let acts: Vec<Act> =
        each_cast(&failing.world).flat_map(|(.., cast)| &cast.acts).copied().collect();
    let is_least = matches!(acts[..], [Act::Enqueue(8), Act::Task(_)]);
    assert!(is_least, "of {threads} threads {acts:?} are left");
    let log = Log::default();
    let broken = failing.world.play(Some(&log)).expect_err("the same again");
    Mutant::plant(None);
    assert_eq!(broken.text, failing.broken.text);
    let reported = story::reported(&failing.world, &log.take());
    for words in ["enqueue(m1, of 8 bytes)", "disk: create segment", "FAILS: code of the program's"]
    {
        assert!(reported.contains(words), "{words:?} is not told:\n{reported}");
    }
}
