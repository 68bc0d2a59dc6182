//! P10 and the calls of clients: other processes use a queue through its owner.

mod calls;
mod cuts;
mod forwarding;
mod hostile;
mod kills;
mod owners;
mod script;

use std::path::Path;

use mmq::{Options, Queue};

/// Opens the queue in `dir` and shares it.
fn owner(dir: &Path) -> Queue {
    Options::new().shared(true).open(dir).unwrap()
}
