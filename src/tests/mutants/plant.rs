//! What the table of bugs becomes, and how one of them is planted.

use std::cell::Cell;
use std::sync::OnceLock;

use super::Mutant;

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

            /// Faults of the first audit, planted back: the test that draws, and a seed of it that
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
