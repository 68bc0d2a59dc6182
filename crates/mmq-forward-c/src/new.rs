//! The exported function.

#![expect(unsafe_code, reason = "the C boundary: what the header demands of C is passed on")]
#![expect(unreachable_pub, reason = "cbindgen and the linker look for `pub`")]

use std::ffi::c_char;

use mmq::forward_door::{mmq_forward_options, mmq_forwarder, mmq_queue, mmq_status, new_forwarder};

use crate::far_side::far_side;

/// Prepares to forward the messages of a queue. Connects to nothing yet: mmq_forwarder_run does.
/// The program goes on using the queue. Close it after the forwarder was freed; if the program
/// closes it before, forwarding ends with MMQ_CLOSED.
///
/// The queue frees the space of messages that the far side has acknowledged and all other consumers
/// have read, except for those it keeps (keep_messages).
///
/// @param queue Not NULL.
/// @param url Where to, UTF-8: nats://host:4222 or tls://host (several servers with commas
///   between), redis://host:6379/0, rediss://host, unix:///run/redis.sock. User and password may
///   stand in it (nats://user:password@host). Not NULL.
/// @param options How to forward; the far side's stream or key is needed. NULL for the defaults.
/// @param out Receives the handle; free it with mmq_forwarder_free. Not NULL.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also for a URL that this library has no client for, an
///   option that is missing or does not apply, and when struct_size was not set; MMQ_FULL or MMQ_IO
///   when there is no room for the consumer, MMQ_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_forwarder_new(
    queue: *mut mmq_queue,
    url: *const c_char,
    options: *const mmq_forward_options,
    out: *mut *mut mmq_forwarder,
) -> mmq_status {
    // SAFETY: the header's contract is that of this function; it has the guard.
    unsafe { new_forwarder(queue, url, options, out, far_side) }
}
