//! Inspects a queue without opening it.

use std::ffi::{c_char, c_int};

use super::guard::guard;
use super::mmq_status::mmq_status;
use super::pointers::{directory, out_sized};
use crate::inspector::{Inspector, QueueState, Snapshot};

/// What mmq_inspect finds out about a queue. All figures except disk_bytes are of one moment. Later
/// versions append fields: set struct_size to sizeof(mmq_inspection) before every call of
/// mmq_inspect.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_inspection {
    /// In: the caller's sizeof(mmq_inspection). Out: how many bytes were filled; fields behind them
    /// are as they were.
    pub struct_size: usize,
    /// 0: a process has the queue open. 1: it was closed. 2: its process died; the figures are
    /// exact, and nothing was lost unless a flush had failed before. 3: the machine lost power, or
    /// the index is lost; the figures show what the next opening will find. 4: no message was ever
    /// enqueued.
    pub state: c_int,
    /// The process that has the queue open; 0 when no process has, or one that this process cannot
    /// see, as in another container.
    pub owner_pid: u32,
    /// The sequence number the next message will get.
    pub next_seq: u64,
    /// The first sequence number still in the queue.
    pub oldest_seq: u64,
    /// The first sequence number not yet known to be durable.
    pub durable_seq: u64,
    /// Messages that wait for the default consumer. Without a default consumer: messages that some
    /// consumer has not finished. Without any consumer: all messages in the queue.
    pub messages: u64,
    /// Bytes of the segments that those messages take, headers included.
    pub bytes: u64,
    /// Bytes of disk that all files in the directory take.
    pub disk_bytes: u64,
    /// Segments that hold messages.
    pub segments: u64,
    /// Drained segments kept for reuse.
    pub spare_segments: u64,
    /// Consumers that exist, the default one included once it has read.
    pub consumers: u64,
    /// 1 when a flush of the owning process has failed, so that the queue rejects writes; else 0.
    pub poisoned: u64,
    /// The queue's id: random bytes, chosen when the queue was created.
    pub queue_id: [u8; 16],
}

impl From<&Snapshot> for mmq_inspection {
    fn from(seen: &Snapshot) -> mmq_inspection {
        mmq_inspection {
            struct_size: size_of::<mmq_inspection>(),
            state: match seen.state {
                QueueState::Owned => 0,
                QueueState::Closed => 1,
                QueueState::Left => 2,
                QueueState::Cut => 3,
                QueueState::Empty => 4,
            },
            owner_pid: seen.owner_pid.unwrap_or(0),
            next_seq: seen.next_seq,
            oldest_seq: seen.oldest_seq,
            durable_seq: seen.durable_seq,
            messages: seen.messages,
            bytes: seen.bytes,
            disk_bytes: seen.disk_bytes,
            segments: seen.segments,
            spare_segments: seen.spare_segments,
            consumers: seen.consumers.len() as u64,
            poisoned: u64::from(seen.poisoned),
            queue_id: seen.queue_id,
        }
    }
}

/// Inspects the queue in a directory without opening it: takes no lock, maps nothing and writes
/// nothing. Another process may use the queue meanwhile, but need not. The owner is read from
/// /proc/locks; on other systems than Linux a queue in use looks like one whose process died.
///
/// @param dir The queue's directory: a path that ends with a zero byte. Not NULL.
/// @param out Receives the figures; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_NOT_FOUND when there is no queue; MMQ_NOT_A_QUEUE; MMQ_UNSUPPORTED_FORMAT;
///   MMQ_IO, also when another process changes the queue too quickly to read it;
///   MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_inspect(dir: *const c_char, out: *mut mmq_inspection) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a string that ends with a zero byte.
        let dir = unsafe { directory(dir) }?;
        let unset = "struct_size was not set to sizeof(mmq_inspection)";
        let figures = |struct_size| {
            let seen = Inspector::open(dir)?.snapshot()?;
            Ok(mmq_inspection { struct_size, ..mmq_inspection::from(&seen) })
        };
        // SAFETY: the header's contract: NULL, or the caller has set the first field. The struct
        // has no padding.
        unsafe { out_sized(out, unset, figures) }
    })
}
