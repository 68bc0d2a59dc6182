//! How a thread waits for the other side of a socket.

use std::io;
use std::time::Duration;

use crate::threads::{now, yield_now};

/// How long a thread looks before it sleeps. To wake it takes 30 us on a guest whose processor has
/// gone idle, ten times as long as the other side takes for its part.
const MOMENT: Duration = Duration::from_micros(50);
/// A wait up to this long was short: the other side was being woken, and then looks itself.
const SHORT: Duration = Duration::from_micros(150);

/// A yield that took longer than a moment shows that other work needs the processors. The first
/// number of waits then sleep at once; twice as many after the next such yield, up to the second.
const BUSY: (u32, u32) = (16, 1 << 12);

/// Looks for a moment before it sleeps, as long as waits are short: then the other side is at work.
#[derive(Debug, Default)]
pub(super) struct Patience {
    last_was_short: bool,
    /// How many of the next waits sleep at once, and how many did after the last long yield.
    sleep_at_once: u32,
    slept_at_once: u32,
}

impl Patience {
    /// Returns the first thing that `attempt` finds in the time that it gets: none, or as long as
    /// it takes.
    pub(super) fn wait<R>(
        &mut self,
        mut attempt: impl FnMut(Option<Duration>) -> io::Result<Option<R>>,
    ) -> io::Result<Option<R>> {
        let began = now();
        let may_look = self.last_was_short && self.sleep_at_once == 0;
        self.sleep_at_once = self.sleep_at_once.saturating_sub(1);
        let mut looked = began;
        while may_look && looked.duration_since(began) < MOMENT {
            if let Some(found) = attempt(Some(Duration::ZERO))? {
                self.slept_at_once = self.slept_at_once.saturating_sub(1);
                return Ok(Some(found));
            }
            // The other side may need this processor.
            yield_now();
            let before = std::mem::replace(&mut looked, now());
            if looked.duration_since(before) > MOMENT {
                self.slept_at_once = (self.slept_at_once * 2).clamp(BUSY.0, BUSY.1);
                self.sleep_at_once = self.slept_at_once;
                break;
            }
        }
        let found = attempt(None)?;
        self.last_was_short = now().duration_since(began) < SHORT;
        Ok(found)
    }
}
