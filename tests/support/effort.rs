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

/// Whether each sweep runs whole: with an effort of 4 and more, as the search has it. With less a
/// sample of it runs.
pub(crate) fn is_whole() -> bool {
    effort() >= 4
}

/// Whether a place of a sweep comes: each if the sweep runs whole, else one in `few`.
pub(crate) fn comes(place: u64, few: u64) -> bool {
    is_whole() || place.is_multiple_of(few)
}

/// Those of a sweep's places that come. `shift` says which of each `few`, so that sweeps within a
/// sweep do not all take the same ones.
pub(crate) fn some_of(
    all: impl IntoIterator<Item = u64>,
    few: u64,
    shift: u64,
) -> impl Iterator<Item = u64> {
    all.into_iter().filter(move |place| comes(place + shift, few))
}

/// How many of `all` turns run that do the same: a quarter for each unit of effort, up to all.
pub(crate) fn sample(all: u64) -> u64 {
    all * effort().min(4) / 4
}

/// How many rounds of something random: `few` for each unit of effort, `many` for each from an
/// effort of 4 on.
pub(crate) fn rounds(few: u64, many: u64) -> u64 {
    effort() * if is_whole() { many } else { few }
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
