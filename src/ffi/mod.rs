//! The C API: every `mmq_*` function of `include/mmq.h`. They convert, guard and delegate, nothing
//! else.
//!
//! The rules of this folder:
//!
//! - Every exported function is written out in full, because cbindgen reads the source. Its whole
//!   body stands inside [`guard`](guard::guard): no panic crosses into C, and every error becomes a
//!   status and this thread's last error text.
//! - Arguments from C are checked on arrival: NULL, handles (by a magic word), lengths, enums.
//!   (Enums arrive as integers, with types named `raw_*` here; the header has the enum's name.)
//! - Outputs are written last, on success only.
//! - The documentation comments become the header's text: they speak to C programmers, in C's
//!   names.
//!
//! Pointers become references in `handle.rs` and `pointers.rs` alone. The other files call the
//! helpers there and say, at each call, what the header demands of the caller.
//!
//! One part of the Rust API is missing here. Futures need a Rust executor: `mmq_ready_fd` serves
//! event loops instead.

#![expect(unsafe_code, reason = "the C boundary: pointers from C become references here")]
#![expect(non_camel_case_types, reason = "the names of the header")]
#![expect(
    unreachable_pub,
    reason = "cbindgen and the linker look for `pub`; the module itself is private"
)]

mod errors;
mod guard;
mod handle;
mod inspect;
mod mmq_consumer;
mod mmq_delivery;
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
