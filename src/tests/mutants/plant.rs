//! What the table of bugs becomes, and how one of them is planted.

use std::cell::Cell;
use std::sync::OnceLock;

use super::Mutant;

// Tests that draw schedules, and find faults of the audits by a seed.
pub(super) const WORLD: &str = "tests::world::whatever_threads_disk_and_death_do_the_promises_hold";
pub(super) const JOBS: &str = "tests::world::whatever_becomes_of_jobs_the_promises_hold";
pub(super) const CRASH: &str = "tests::crash::whatever_a_crash_leaves_keeps_the_promises";
pub(super) const LENT: &str =
    "tests::together::places::what_is_lent_stays_as_it_is_while_segments_are_used_again";
pub(super) const NEWS_PASSED_ON: &str =
    "tests::together::who_leaves_the_line_wakes_the_next_for_what_is_left";
pub(super) const REPORTED_DURABLE: &str =
    "tests::together::cuts::what_was_reported_durable_to_any_thread_is_there_after_a_power_cut";

pub(super) const CLOSED_MEANWHILE: &str =
    "tests::together::places::a_close_waits_for_who_makes_a_consumer";

pub(super) const FORWARD: &str =
    "forward::tests::whatever_either_side_goes_through_each_message_is_there_once_in_order";

macro_rules! mutants {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident => $rule:literal
        $(; equivalent: $why:literal)?
        $(; open: $hole:literal)?
        $(; audit: $fault:literal, $test:expr, $seed:literal)?,
    )+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// Each with the rule or the promise that it breaks.
            pub(crate) const ALL: &[(Mutant, &str)] = &[$((Mutant::$name, $rule),)+];

            /// Those that no test can see, with the argument why.
            const EQUIVALENT: &[(Mutant, &str)] = &[$($((Mutant::$name, $why),)?)+];

            /// Holes in the tests: nobody catches these yet.
            const OPEN: &[(Mutant, &str)] = &[$($((Mutant::$name, $hole),)?)+];

            /// Faults of the audits, planted back: the test that draws, and a seed of it that
            /// finds the fault.
            const AUDIT: &[(Mutant, &str, &str, u64)] =
                &[$($((Mutant::$name, $fault, $test, $seed),)?)+];
        }
    };
}

thread_local! {
    static HERE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

impl Mutant {
    /// The bug that is planted in what the calling thread does.
    pub(crate) fn planted() -> Option<Mutant> {
        static EVERYWHERE: OnceLock<Option<Mutant>> = OnceLock::new();
        HERE.get().or(*EVERYWHERE.get_or_init(|| {
            let name = std::env::var("MMQ_MUTANT").ok()?;
            let found = Mutant::ALL.iter().find(|(mutant, _)| format!("{mutant:?}") == name);
            Some(found.unwrap_or_else(|| panic!("MMQ_MUTANT: there is no {name}")).0)
        }))
    }

    /// Whether this bug is planted in what the calling thread does.
    #[inline]
    pub(crate) fn is_planted(self) -> bool {
        Mutant::planted() == Some(self)
    }

    /// Whether a test has planted a bug in the calling thread, to see itself find it.
    pub(crate) fn is_planted_here() -> bool {
        HERE.get().is_some()
    }

    /// Plants a bug, or pulls it out again.
    pub(crate) fn plant(mutant: Option<Mutant>) {
        HERE.set(mutant);
    }
}

/// What `tests/mutants.rs` asks for: the names of all, with their rules, and why some are not
/// caught.
#[test]
fn all_that_can_be_planted() {
    for (mutant, rule) in Mutant::ALL {
        println!("mutant {mutant:?}: {rule}");
    }
    for (mutant, why) in Mutant::EQUIVALENT {
        println!("equivalent {mutant:?}: {why}");
    }
    for (mutant, hole) in Mutant::OPEN {
        println!("open {mutant:?}: {hole}");
    }
    for (mutant, fault, test, seed) in Mutant::AUDIT {
        println!("audit {mutant:?}: {fault}; {test} {seed}");
    }
}
