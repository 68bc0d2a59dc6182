//! The C API: every `mmq_*` function of `include/mmq.h`. Each one only converts its arguments,
//! guards against panics, and calls the Rust API.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `queue`, `mmq_options` | `mmq_queue`, `mmq_options` | opens and closes a queue, enqueues, takes messages |
//! | `mmq_consumer` | `mmq_consumer` | makes, moves and removes named consumers, reads through them |
//! | `receive`, `mmq_delivery` | `mmq_delivery` | receives and acknowledges messages; event loops; interrupts |
//! | `batches` | `mmq_copied_message` | takes and receives many messages at once |
//! | `mmq_redelivery` | | sets leases, delays, attempts and the dead-letter queue; rejects |
//! | `mmq_lanes` | `mmq_lanes` | reads fresh messages and the backlog of one consumer |
//! | `mmq_message`, `mmq_iter` | `mmq_message`, `mmq_iter` | lends a message's bytes; looks ahead |
//! | `mmq_gap`, `mmq_origin`, `mmq_stats` | structs for the caller | reports gaps, dead letters' origins, figures |
//! | `mmq_forwarder`, `mmq_forward_options` | `mmq_forwarder` | forwards on a thread (feature `forward`; header `mmq_forward.h`) |
//! | `forward_door` | | what `crates/mmq-forward-c` takes from here |
//! | `mmq_client`, `mmq_client_consumer` | `mmq_client`, `mmq_client_consumer` | use a queue that another process has open |
//! | `inspect` | `mmq_inspection` | inspects a queue without opening it |
//! | `mmq_status`, `errors` | status codes, the last error of each thread | turns errors into statuses and text |
//! | `reads` | | the reads that queue and consumer share |
//! | `guard` | | turns panics and errors into statuses |
//! | `c_handle` | memory of live and closed handles | detects handles that are closed or of another kind |
//! | `pointers`, `slices` | | turns the caller's pointers into references |
//!
//! The rules of this folder:
//!
//! - Every exported function is written out in full, because cbindgen reads the source. Its whole
//!   body runs inside [`guard`](guard::guard): no panic crosses into C, and every error becomes a
//!   status and this thread's last error text.
//! - Every function first checks its arguments: NULL, handles (by a magic word), lengths, enums.
//!   (Enums arrive as integers, with types named `raw_*` here; the header has the enum's name.)
//! - A function writes its outputs last, on success only.
//! - The documentation comments become the header's text: they address C programmers and use C's
//!   names.
//!
//! Only `handle.rs` and `pointers.rs` turn pointers into references. The other files call these
//! helpers and state, at each call, what the header demands of the caller.
//!
//! The C API has no futures, which need a Rust executor: `mmq_ready_fd` serves event loops instead.

#![expect(unsafe_code, reason = "the C boundary: pointers from C become references here")]
#![expect(non_camel_case_types, reason = "the names of the header")]
#![expect(
    unreachable_pub,
    reason = "cbindgen and the linker look for `pub`; the module itself is private"
)]

mod batches;
mod c_handle;
mod errors;
#[cfg(feature = "forward")]
pub mod forward_door;
mod guard;
mod inspect;
mod mmq_client;
mod mmq_client_consumer;
mod mmq_consumer;
mod mmq_delivery;
#[cfg(feature = "forward")]
mod mmq_forward_options;
#[cfg(feature = "forward")]
mod mmq_forwarder;
mod mmq_gap;
mod mmq_iter;
mod mmq_lanes;
mod mmq_message;
mod mmq_options;
mod mmq_origin;
mod mmq_redelivery;
mod mmq_stats;
mod mmq_status;
mod pointers;
mod queue;
mod reads;
mod receive;
mod slices;

#[cfg(test)]
mod tests;
