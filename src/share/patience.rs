//! How a thread waits for the other side of a socket.

use std::io;
use std::time::Duration;

use crate::threads::{now, yield_now};

/// How long a thread looks before it sleeps. To wake it takes 30 us on a guest whose processor has
/// gone idle, ten times as long as the other side takes for its part.
const MOMENT: Duration = Duration::from_micros(50);
/// A wait up to this long was short: the other side was being woken, and then looks itself.
const SHORT: Duration = Duration::from_micros(150);

/// Looks for a moment before it sleeps, as long as waits are short: then the other side is at work.
#[derive(Debug, Default)]
pub(super) struct Patience {
    last_was_short: bool,
}

impl Patience {
    /// Returns the first thing that `attempt` finds in the time that it gets: none, or as long as
    /// it takes.
    pub(super) fn wait<R>(
        &mut self,
        mut attempt: impl FnMut(Option<Duration>) -> io::Result<Option<R>>,
    ) -> io::Result<Option<R>> {
        let began = now();
        while self.last_was_short && now().duration_since(began) < MOMENT {
            if let Some(found) = attempt(Some(Duration::ZERO))? {
                return Ok(Some(found));
            }
            // The other side may need this processor.
            yield_now();
        }
        let found = attempt(None)?;
        self.last_was_short = now().duration_since(began) < SHORT;
        Ok(found)
    }
}
