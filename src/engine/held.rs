//! Which queues this process has open.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// When the queues were opened that this process has open: the pid alone does not say that a holder is this process, for in
/// a container another one may have the same.
static HELD_HERE: Mutex<Vec<SystemTime>> = Mutex::new(Vec::new());

/// An entry in [`HELD_HERE`]: the milliseconds since 1970.
#[derive(Debug)]
pub(super) struct HeldHere(pub(super) u64);

impl HeldHere {
    pub(super) fn new(since: u64) -> HeldHere {
        HELD_HERE.lock().push(UNIX_EPOCH + Duration::from_millis(since));
        HeldHere(since)
    }
}

/// Whether this process opened a queue at that time and has it open.
pub(super) fn is_held_here(since: SystemTime) -> bool {
    HELD_HERE.lock().contains(&since)
}

impl Drop for HeldHere {
    fn drop(&mut self) {
        let since = UNIX_EPOCH + Duration::from_millis(self.0);
        let mut held = HELD_HERE.lock();
        if let Some(at) = held.iter().position(|held| *held == since) {
            held.swap_remove(at);
        }
    }
}
