//! The tool `mmq`, by its real binary. Its files are mounted here once more, so that their own
//! tests run, and so that its command line is at hand.

#![cfg(unix)]
#![allow(dead_code, reason = "what only the binary uses")]

#[path = "../../src/bin/mmq/arguments.rs"]
mod arguments;
#[path = "../../src/bin/mmq/commands/mod.rs"]
mod commands;
#[path = "../../src/bin/mmq/console.rs"]
mod console;
#[path = "../../src/bin/mmq/dead_letter.rs"]
mod dead_letter;
#[path = "../../src/bin/mmq/ending.rs"]
mod ending;
#[path = "../../src/bin/mmq/failure.rs"]
mod failure;
#[path = "../../src/bin/mmq/feed.rs"]
mod feed;
#[path = "../../src/bin/mmq/figures.rs"]
mod figures;
#[path = "../../src/bin/mmq/framing/mod.rs"]
mod framing;
#[path = "../../src/bin/mmq/human.rs"]
mod human;
#[path = "../../src/bin/mmq/import/mod.rs"]
mod import;
#[path = "../../src/bin/mmq/input.rs"]
mod input;
#[path = "../../src/bin/mmq/json.rs"]
mod json;
#[path = "../../src/bin/mmq/look.rs"]
mod look;
#[path = "../../src/bin/mmq/making.rs"]
mod making;
#[path = "../../src/bin/mmq/metrics.rs"]
mod metrics;
#[path = "../../src/bin/mmq/opening.rs"]
mod opening;
#[path = "../../src/bin/mmq/output.rs"]
mod output;
#[path = "../../src/bin/mmq/paint.rs"]
mod paint;
#[path = "../../src/bin/mmq/place.rs"]
mod place;
#[path = "../../src/bin/mmq/progress.rs"]
mod progress;
#[path = "../../src/bin/mmq/rates.rs"]
mod rates;
#[path = "../../src/bin/mmq/show.rs"]
mod show;
#[path = "../../src/bin/mmq/signals.rs"]
mod signals;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../src/bin/mmq/times.rs"]
mod times;
#[path = "../../src/bin/mmq/turns.rs"]
mod turns;
#[path = "../../src/bin/mmq/units.rs"]
mod units;
#[path = "../../src/bin/mmq/width.rs"]
mod width;

#[path = "../support/flipped.rs"]
mod flipped;

mod claiming;
mod copying;
mod dead_letters;
mod dumping;
mod each;
mod each_dead;
mod forwarding;
mod framings;
mod import_bigqueue;
mod import_killed;
mod import_pqueue;
mod import_writers;
mod load_killed;
mod looking;
mod manual;
mod modes;
mod owning;
mod releasing;
mod reviewed;
mod run;
mod salvaging;
mod salvaging_batches;
mod salvaging_damage;
mod salvaging_given_back;
mod spooling;
mod statistics;
mod stopping;
mod terminal;
mod trouble;
mod verifying;
mod widths;
