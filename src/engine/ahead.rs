//! Reads messages ahead of a consumer without taking them.

use std::sync::Arc;

use crate::commit::Core;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::ledger::Ledger;
use crate::engine::Engine;
use crate::engine::reading::message;
use crate::error::{Error, Gap, Result};
use crate::events;
use crate::format::Spot;
use crate::message::Message;
use crate::read::Cursor;
use crate::storage::Storage;

/// A cursor that reads ahead of a consumer.
#[derive(Debug)]
pub(crate) struct Ahead<S: Storage> {
    engine: Arc<Engine<S>>,
    consumer: Arc<ConsumerState<S>>,
    cursor: Cursor<S::File>,
    /// Whether a read failed with an error other than a gap: then the iterator has ended.
    failed: bool,
    /// Ranges of a gap that the next calls report, the last one first.
    pieces: Vec<Gap>,
}

impl<S: Storage> Ahead<S> {
    pub(crate) fn new(
        engine: &Arc<Engine<S>>,
        consumer: &Arc<ConsumerState<S>>,
    ) -> Result<Ahead<S>> {
        engine.core.check_readable()?;
        let place = consumer.with_locked(|locked| locked.exists().then(|| locked.next_spot()));
        let spot = place.unwrap_or_else(|| engine.core.unclaimed(engine.core.visible.spot()));
        Ok(Ahead {
            engine: Arc::clone(engine),
            consumer: Arc::clone(consumer),
            cursor: Cursor::new(spot),
            failed: false,
            pieces: Vec::new(),
        })
    }

    /// Starts at the message `seq`, which does not lie before the consumer's position.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when it is not in the queue.
    #[cfg(feature = "forward")]
    pub(crate) fn at(
        engine: &Arc<Engine<S>>,
        consumer: &Arc<ConsumerState<S>>,
        seq: u64,
    ) -> Result<Ahead<S>> {
        let mut ahead = Ahead::new(engine, consumer)?;
        let end = engine.core.visible_end();
        let _nothing_goes = engine.core.places.giving_back.write();
        ahead.cursor.move_to(Cursor::spot_of(&engine.core, seq, end)?);
        Ok(ahead)
    }

    /// Where the next read begins, in bytes.
    #[cfg(feature = "forward")]
    pub(crate) fn position(&self) -> u64 {
        self.cursor.spot().position
    }

    pub(crate) fn next(&mut self) -> Option<Result<Message>> {
        let _events = events::at_end();
        if self.failed {
            return None;
        }
        match self.look() {
            Ok(Some(message)) => Some(Ok(message)),
            Ok(None) => None,
            Err(Error::Gap(gap)) => Some(Err(Error::Gap(gap))),
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }

    /// Returns the next message. Meanwhile no thread drains a segment from its starting point on.
    fn look(&mut self) -> Result<Option<Message>> {
        let engine = Arc::clone(&self.engine);
        let consumer = Arc::clone(&self.consumer);
        let core = &*engine.core;
        core.check_readable()?;
        // While this thread holds the consumer's lock, the consumer's position keeps the segments.
        let of_place = |ahead: &mut Ahead<S>| {
            consumer.with_locked(|locked| {
                locked.check_not_removed(core, &consumer)?;
                if !locked.exists() {
                    return Ok(None);
                }
                let ledger = locked.ledger.as_deref();
                ahead.look_from(core, locked.next_spot(), ledger).map(Some)
            })
        };
        if let Some(found) = of_place(self)? {
            return Ok(found);
        }
        // There is no position, so hold `giving_back`: then no thread drains segments.
        let _one_at_a_time = engine.registry()?;
        if let Some(found) = of_place(self)? {
            return Ok(found);
        }
        let _nothing_goes = core.places.giving_back.write();
        self.look_from(core, core.unclaimed(core.visible.spot()), None)
    }

    /// Returns the next message for a consumer at `place` with `ledger`.
    fn look_from(
        &mut self,
        core: &Core<S>,
        place: Spot,
        ledger: Option<&Ledger<S::File>>,
    ) -> Result<Option<Message>> {
        let (cursor, pieces) = (&mut self.cursor, &mut self.pieces);
        if cursor.spot().position < place.position {
            cursor.move_to(place);
        }
        loop {
            if let Some(piece) = pieces.pop() {
                return Err(Error::Gap(piece));
            }
            let found = match (cursor.find(core), ledger) {
                (Err(Error::Gap(gap)), Some(ledger)) => {
                    // Reads do not report numbers of the gap a second time.
                    pieces.extend(ledger.unreported_of(gap).into_iter().rev());
                    continue;
                }
                (found, _) => found?,
            };
            let Some(record) = found else {
                // Keep no segment open between calls.
                cursor.release();
                return Ok(None);
            };
            if ledger.is_some_and(|ledger| ledger.is_passed(record.seq)) {
                cursor.advance();
                continue;
            }
            if let Some(message) = message(cursor, record) {
                cursor.advance();
                return Ok(Some(message));
            }
        }
    }
}
