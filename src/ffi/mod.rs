//! The C door: every `mmq_*` function of `include/mmq.h`. Convert, guard, delegate; nothing else
//! happens here.
//!
//! The rules of this folder:
//!
//! - Every exported function is written out in full, for cbindgen reads the source, and its whole
//!   body stands inside [`guard`](guard::guard): no panic crosses, every error becomes a status and
//!   this thread's last error text.
//! - What comes from C is checked when it arrives: NULL, handles (by a magic word), lengths, enums
//!   (which arrive as integers and are named `raw_*` here; the header calls them by the enum's
//!   name).
//! - Outputs are written at the very end, on success only.
//! - The documentation comments are the header's text: they speak to C programmers, in C's names.
//!
//! Pointers become references in `handle.rs` and `pointers.rs` and nowhere else; the other files
//! call their helpers and say, at each call, what the header demands of the caller.
//!
//! Not here, and why: `enqueue_with` would have to hold the producers' lock between two calls of C,
//! or call back into the program, which may throw or jump; `mmq_enqueue_parts` gathers in place
//! instead. Futures need a Rust executor; `mmq_ready_fd` is for event loops.

#![expect(unsafe_code, reason = "the C boundary: pointers from C become references here")]
#![expect(non_camel_case_types, reason = "the names of the header")]
#![expect(
    unreachable_pub,
    reason = "cbindgen and the linker look for `pub`; the module itself is private"
)]

mod consumer;
mod delivery;
mod errors;
mod gap;
mod guard;
mod handle;
mod iter;
mod message;
mod options;
mod pointers;
mod queue;
mod reads;
mod receive;
mod stats;
mod status;

#[cfg(test)]
mod tests;
