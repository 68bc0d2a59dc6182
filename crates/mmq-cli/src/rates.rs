//! How quickly messages come and go, from two looks at a queue.

use mmq::{ConsumerSnapshot, Snapshot};

/// Messages a second. What an onlooker sees of both is exact at each moment.
#[derive(Debug)]
pub(crate) struct Rates {
    pub(crate) put: f64,
    taken: Vec<(String, f64)>,
}

impl Rates {
    /// `None` when they are looks at two queues, or at one moment.
    pub(crate) fn between(before: &Snapshot, now: &Snapshot) -> Option<Rates> {
        let time = now.taken_at.duration_since(before.taken_at).ok()?.as_secs_f64();
        if before.queue_id != now.queue_id || time <= 0.0 {
            return None;
        }
        let done = |of: &ConsumerSnapshot| of.next_seq + of.acknowledged_ahead;
        let taken = now.consumers.iter().filter_map(|one| {
            let earlier = before.consumers.iter().find(|earlier| earlier.name == one.name)?;
            // One that was moved back has taken nothing.
            let count = done(one).checked_sub(done(earlier))?;
            Some((one.name.clone(), count as f64 / time))
        });
        let put = now.next_seq.checked_sub(before.next_seq)? as f64 / time;
        Some(Rates { put, taken: taken.collect() })
    }

    /// What the consumer takes and skips, and what reads report to it as missing.
    pub(crate) fn taken(&self, name: &str) -> Option<f64> {
        self.taken.iter().find(|(known, _)| known == name).map(|(_, rate)| *rate)
    }
}
