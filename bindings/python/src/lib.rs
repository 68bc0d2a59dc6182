//! The queue `mmq` for Python: what Python calls, over the crate's own calls. No queue logic.
//!
//! | file | what it does |
//! |---|---|
//! | `errors` | makes the exceptions of `mmq/_errors.py` |
//! | `arguments` | times, options, messages from Python |
//! | `waiting` | waits without the interpreter's lock, until a signal |
//! | `source` | a consumer, in this process or another one |
//! | `reader` | all calls that read; base of `Queue` and `Consumer` |
//! | `queue`, `consumer`, `handle` | the classes |
//! | `delivery`, `iterators`, `figures` | what reads return |
//!
//! A call releases the interpreter's lock around every call of the crate that may take a lock of
//! the queue for long, or touch a file. It never takes that lock within one.

mod arguments;
mod consumer;
mod delivery;
mod errors;
mod figures;
mod handle;
mod iterators;
mod queue;
mod reader;
mod source;
mod waiting;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::consumer::Consumer;
    #[pymodule_export]
    use super::delivery::{Delivery, ack_many};
    #[pymodule_export]
    use super::handle::{Handle, connect, open_or_connect};
    #[pymodule_export]
    use super::iterators::{Deliveries, LookAhead, Message, Messages};
    #[pymodule_export]
    use super::queue::Queue;
    #[pymodule_export]
    use super::reader::Reader;
}
