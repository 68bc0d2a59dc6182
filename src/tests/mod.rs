//! Tests that need what the crate does not publish: the simulated disk, crash images, hooks between
//! two steps.

mod ages;
mod consumer_state;
mod consumers;
pub(crate) mod crash;
mod dead_letters;
mod deliveries;
#[path = "../../tests/support/effort.rs"]
pub(crate) mod effort;
mod engine;
#[cfg(feature = "tracing")]
mod events;
mod figures;
mod flush;
mod forked;
#[path = "../../tests/support/guard.rs"]
pub(crate) mod guard;
mod lanes;
mod lanes_limits;
mod lanes_storm;
mod lanes_unusual;
mod late;
mod lengths;
pub(crate) mod mutants;
mod published;
mod redelivery;
mod redelivery_limits;
mod reserved;
mod room;
pub(crate) mod schedule;
mod seeks;
pub(crate) mod sim;
#[path = "../../tests/support/skip.rs"]
mod skip;
mod together;
mod world;

pub(crate) use skip::skip;

/// The bytes in three parts, as a gathering call takes them.
pub(crate) fn in_parts(bytes: &[u8]) -> [std::io::IoSlice<'_>; 3] {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    [first, second, third].map(std::io::IoSlice::new)
}
