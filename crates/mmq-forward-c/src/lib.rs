//! The C library of mmq with forwarding: every function of `mmq.h`, and those of `mmq_forward.h`.
//!
//! This crate has the clients of the far sides, and the one function that needs them. The others
//! stand in `src/ffi/mmq_forwarder.rs` of mmq. `mmq-install --forward` builds the libraries.

mod far_side;
mod new;
