//! What `crates/mmq-forward-c` makes `mmq_forwarder_new` of.

pub use super::mmq_forward_options::{FarPlace, mmq_forward_options};
pub use super::mmq_forwarder::{FarSide, mmq_forwarder, new_forwarder};
pub use super::mmq_status::mmq_status;
pub use super::queue::mmq_queue;
