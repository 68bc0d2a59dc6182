//! When messages come again, and letters to another queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::consumers::Consumers;
use crate::commit::Core;
use crate::commit::keeper::call_out;
use crate::consume::deliveries::Letter;
use crate::consume::redelivery::{DeadLetters, Rules};
use crate::consume::standing::{Handed, Standing};
use crate::engine::reading::message;
use crate::error::{Error, Result};
use crate::events;
use crate::format::Origin;
use crate::memory::PerProcess;
use crate::storage::Storage;
use crate::threads::{Mutex, now};

/// Held while a consumer gets a queue for its dead letters: two threads could make a circle.
static CIRCLES: PerProcess<Mutex<()>> = PerProcess::new();

/// Whether the letters of `from` may come to the queue `id`, over any number of queues. (There is
/// no circle yet.)
fn leads_to(from: &dyn DeadLetters, id: usize) -> bool {
    from.id() == id || from.dead_letters().iter().any(|next| leads_to(&**next, id))
}

impl<S: Storage> Engine<S> {
    /// A number that names the open queue within the process.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(&*self.core).addr()
    }

    /// Where the rejected messages of the consumers go.
    pub(crate) fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        let standings = self.consumers.all();
        standings.iter().filter_map(|standing| standing.dead_letters()).collect()
    }

    /// Sets when the consumer's messages come again.
    pub(crate) fn set_redelivery(&self, standing: &Standing<S>, rules: Rules) -> Result<()> {
        let _told = events::at_end();
        self.core.check_may_wait()?;
        let one_at_a_time = rules.dead_letters.as_ref().map(|_| CIRCLES.get(Mutex::default).lock());
        if let Some(dead) = &rules.dead_letters
            && leads_to(&**dead, self.id())
            && !planted!(CircleNotSeen)
        {
            let reason = if dead.id() == self.id() {
                "a queue cannot be its own: rejected messages would come again"
            } else {
                "the dead letters of that queue come back to this one: a circle"
            };
            let path = self.core.storage.path();
            return Err(Error::invalid_argument(path, "queue for dead letters", reason));
        }
        let before = standing.set_redelivery(&self.core, rules);
        drop(one_at_a_time);
        self.arm(standing);
        self.core.wake_readers(u64::MAX);
        before.map(drop)
    }

    /// Has the keeper look at the consumer's deliveries when something will be due, if it does not
    /// know yet.
    #[inline]
    pub(crate) fn arm(&self, standing: &Standing<S>) {
        if let Some(due) = standing.time_to_tell()
            && !self.core.bell.ring(|wishes| wishes.look_at_deliveries(due))
            && due <= now()
        {
            self.consumers.look_at_deliveries(&self.core);
        }
    }

    /// A message is handed out no more.
    pub(crate) fn reject(&self, standing: &Standing<S>, seq: u64, handed: Handed) -> Result<()> {
        let _told = events::at_end();
        if standing.reject(&self.core, seq, handed)? {
            self.arm(standing);
            self.core.wake_reader(standing.row);
        }
        Ok(())
    }

    /// Has the lease of a delivery end `by` from now.
    pub(crate) fn extend(
        &self,
        standing: &Standing<S>,
        seq: u64,
        handed: Handed,
        by: Duration,
    ) -> Result<()> {
        standing.extend(&self.core, seq, handed, by)?;
        self.arm(standing);
        Ok(())
    }
}

impl<S: Storage> Consumers<S> {
    fn all(&self) -> Vec<Arc<Standing<S>>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// Ends leases and delays that are over, and has letters go. The keeper calls it.
    pub(crate) fn look_at_deliveries(&self, core: &Core<S>) {
        for standing in self.all() {
            standing.look_at_deliveries(core);
            self.post(core, &standing);
            if let Some(due) = standing.time_to_tell() {
                core.bell.ring(|wishes| wishes.look_at_deliveries(due));
            }
            if standing.with_progress(|progress| progress.has_waiting(core)) {
                // A future's waker may call the queue, and wait for the keeper.
                call_out(core, || core.wake_reader(standing.row));
            }
        }
    }

    /// Puts rejected messages into the queue for dead letters, flushes it, and only then makes them
    /// done. No lock of this queue is held meanwhile.
    fn post(&self, core: &Core<S>, standing: &Standing<S>) {
        let Some((dead, letters)) = standing.take_letters(core, message) else {
            return;
        };
        let (mut sent, mut refused) = (BTreeSet::new(), None);
        call_out(core, || {
            // If nobody else holds it any more, the other queue is closed here: away, and unlocked.
            let dead = dead;
            for Letter { seq, attempts, message, .. } in &letters {
                let origin =
                    Origin { queue_id: core.index.queue_id, seq: *seq, attempts: *attempts };
                match dead.put(message, &origin) {
                    Ok(()) => {
                        sent.insert(*seq);
                    }
                    Err(error) => {
                        // One that is too large must not keep those behind it from going.
                        let others_may_go = matches!(error, Error::MessageTooLarge { .. });
                        refused = Some(error);
                        if !others_may_go {
                            break;
                        }
                    }
                }
            }
            if !sent.is_empty()
                && !planted!(LettersNotFlushed)
                && let Err(error) = dead.flush()
            {
                // They are put in again: at least once.
                sent.clear();
                refused = Some(error);
            }
        });
        if let Some(error) = refused {
            let left = letters.len() - sent.len();
            events::letters_stay(core.storage.path(), standing.name(), left, &error);
        }
        let mut crossed = false;
        for letter in letters {
            // The message lets go of its segment, which may be given back then.
            let (seq, attempts, epoch) = letter.stub();
            if sent.contains(&seq) {
                crossed |= standing.finish_letter(core, seq, epoch);
            } else {
                standing.letter_failed(seq, attempts, epoch);
            }
        }
        if crossed && core.reclaim() {
            // A failed sync poisons the queue: the next call that writes returns the error.
            let _ = core.settle();
            core.wake_writers();
        }
    }
}
