//! Looking ahead of a consumer: reads messages and takes none.

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

/// A cursor that looks ahead of a consumer.
#[derive(Debug)]
pub(crate) struct Ahead<S: Storage> {
    engine: Arc<Engine<S>>,
    consumer: Arc<ConsumerState<S>>,
    cursor: Cursor<S::File>,
    /// A read failed with an error other than a gap: there is no next message.
    failed: bool,
    /// Pieces of a gap that the next calls report, the last one first.
    pieces: Vec<Gap>,
}

impl<S: Storage> Ahead<S> {
    pub(crate) fn new(
        engine: &Arc<Engine<S>>,
        consumer: &Arc<ConsumerState<S>>,
    ) -> Result<Ahead<S>> {
        engine.core.check_readable()?;
        let place = consumer.with_locked(|locked| locked.exists().then(|| locked.next_spot()));
        let spot = place.unwrap_or_else(|| engine.core.oldest(engine.core.visible.spot()));
        Ok(Ahead {
            engine: Arc::clone(engine),
            consumer: Arc::clone(consumer),
            cursor: Cursor::new(spot),
            failed: false,
            pieces: Vec::new(),
        })
    }

    /// A look at the message `seq`, which does not lie before the consumer's place.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when the queue does not hold it.
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

    /// The next message. While it looks, no segment from where it begins on is given back.
    fn look(&mut self) -> Result<Option<Message>> {
        let engine = Arc::clone(&self.engine);
        let consumer = Arc::clone(&self.consumer);
        let core = &*engine.core;
        core.check_readable()?;
        // The consumer's place keeps the segments while its lock is held.
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
        // There is no place: nothing is given back while this is held.
        let _one_at_a_time = engine.registry()?;
        if let Some(found) = of_place(self)? {
            return Ok(found);
        }
        let _nothing_goes = core.places.giving_back.write();
        self.look_from(core, core.oldest(core.visible.spot()), None)
    }

    /// The next message, if the consumer stands at `place` and has `ledger`.
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
                    // Numbers of the gap that were reported before are not reported again.
                    pieces.extend(ledger.unreported_of(gap).into_iter().rev());
                    continue;
                }
                (found, _) => found?,
            };
            let Some(record) = found else {
                // No segment stays open while the caller does something else.
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
