//! `mmq`, the operator's tool: a queue's messages from and to a shell. It sees the library as any
//! program does.
//!
//! A command is one file of `commands/`: its arguments, and what it does.

// The tool neither panics nor prints by itself, whatever happens; its tests may.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::string_slice,
        clippy::exit,
        clippy::print_stdout,
        clippy::print_stderr
    )
)]

mod arguments;
mod commands;
mod console;
mod dead_letter;
mod ending;
mod failure;
mod feed;
mod figures;
mod framing;
mod human;
mod input;
mod json_object;
mod look;
mod making;
mod manual;
mod metrics;
mod opening;
mod output;
mod paint;
mod place;
mod progress;
mod rates;
mod renamed;
mod show;
mod signals;
mod times;
mod units;
mod width;

/// The tool, called with the words of this process. Returns its exit status.
pub fn main() -> std::process::ExitCode {
    commands::main(std::env::args_os().collect()).into()
}
