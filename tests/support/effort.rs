//! The two variables that say how much the random tests do: `MMQ_EFFORT` multiplies their counts,
//! `MMQ_SEED` says with which seeds.

#![allow(dead_code, reason = "every test program compiles this file and uses its own part of it")]

/// What `MMQ_EFFORT` says, 1 without it.
pub(crate) fn effort() -> u64 {
    match std::env::var("MMQ_EFFORT") {
        Ok(text) => text.trim().parse().expect("MMQ_EFFORT is a decimal number"),
        Err(_) => 1,
    }
}

/// How much of a sweep runs: a quarter of `all` with an effort of 1, all of it from 4 on, as the
/// gate has it.
pub(crate) fn sample(all: u64) -> u64 {
    all * effort().min(4) / 4
}

/// Those of a sweep's places that come: all with an effort of 4 and more, with less one in `few`,
/// and `shift` says which, so that sweeps within a sweep do not all take the same ones.
pub(crate) fn some_of(
    all: impl IntoIterator<Item = u64>,
    few: u64,
    shift: u64,
) -> impl Iterator<Item = u64> {
    let few = if effort() < 4 { few } else { 1 };
    all.into_iter().filter(move |place| (place + shift).is_multiple_of(few))
}

/// The one seed that `MMQ_SEED=17` asks for.
pub(crate) fn alone() -> Option<u64> {
    let text = std::env::var("MMQ_SEED").ok()?;
    let is_first = text.trim().ends_with("..");
    (!is_first).then(|| text.trim().parse().expect("MMQ_SEED is a number, or a number and `..`"))
}

/// The seed from which on `MMQ_SEED=17..` asks for others than the fixed ones.
pub(crate) fn first() -> Option<u64> {
    let text = std::env::var("MMQ_SEED").ok()?;
    let number = text.trim().strip_suffix("..")?;
    Some(number.parse().expect("MMQ_SEED is a number, or a number and `..`"))
}
