//! Whole programs at full size, a soak and figures: all of it by hand, in a release build.

#![cfg(unix)]

mod figures;
mod scenarios;
#[cfg(feature = "async")]
mod soak;

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/watch.rs"]
mod watch;
