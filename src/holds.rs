//! Invariants that run: what must hold where data is changed is asked there, so that a bug shows
//! at its cause. In unit tests, under a fuzzer and with `RUSTFLAGS=--cfg mmq_holds`. No other build
//! has any: a look at values that threads change must not end a user's program.
//!
//! A type with several invariants has them all in one method `check`, beside its fields, that each
//! method calls at its end that changes the type. Such a method stands under the same `cfg` as the
//! macros. No check takes a lock or calls the storage: it would change what is tested.

/// Panics with a plain sentence when the condition does not hold.
#[cfg(test)]
macro_rules! holds {
    ($condition:expr, $($sentence:tt)+) => {
        // The first panic says the cause, and a test that plants a bug sees to find it itself. What
        // a check loads is no step of a schedule.
        if !std::thread::panicking()
            && !crate::tests::sim::Mutant::is_planted_here()
            && !crate::tests::schedule::aside(|| $condition)
        {
            crate::tests::schedule::ranks::refuse(&format!(
                "it does not hold that {}",
                format_args!($($sentence)+)
            ));
        }
    };
}

#[cfg(all(not(test), any(fuzzing, mmq_holds)))]
macro_rules! holds {
    ($condition:expr, $($sentence:tt)+) => {
        assert!(
            std::thread::panicking() || $condition,
            "it does not hold that {}",
            format_args!($($sentence)+)
        )
    };
}

#[cfg(not(any(test, fuzzing, mmq_holds)))]
macro_rules! holds {
    ($condition:expr, $($sentence:tt)+) => {};
}

/// Does something for checks alone: calls a method that checks a whole value, or names what the
/// next `holds!` looks at.
#[cfg(any(test, fuzzing, mmq_holds))]
macro_rules! check {
    ($($call:tt)+) => {
        $($call)+;
    };
}

#[cfg(not(any(test, fuzzing, mmq_holds)))]
macro_rules! check {
    ($($call:tt)+) => {};
}

/// Whether a check that looks at `count` things is to be made now: always where they are few, else
/// now and then.
#[cfg(any(test, fuzzing, mmq_holds))]
pub(crate) fn are_looked_at(count: usize) -> bool {
    use std::cell::Cell;
    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }
    let looks = LOOKS.try_with(|looks| looks.replace(looks.get().wrapping_add(1)));
    count <= 16 || looks.unwrap_or(0).is_multiple_of(64)
}
