//! Looking ahead of a consumer: reads messages and takes none.

use std::sync::Arc;

use crate::consume::standing::Standing;
use crate::engine::Engine;
use crate::engine::reading::message;
use crate::error::{Error, Gap, Result};
use crate::events;
use crate::message::Message;
use crate::read::Cursor;
use crate::storage::Storage;

/// A cursor that looks ahead of a consumer.
#[derive(Debug)]
pub(crate) struct Ahead<S: Storage> {
    engine: Arc<Engine<S>>,
    standing: Arc<Standing<S>>,
    cursor: Cursor<S::File>,
    /// A read failed with an error other than a gap: there is no next message.
    failed: bool,
    /// Pieces of a gap that the next calls tell, the last one first.
    pieces: Vec<Gap>,
}

impl<S: Storage> Ahead<S> {
    pub(crate) fn new(engine: &Arc<Engine<S>>, standing: &Arc<Standing<S>>) -> Result<Ahead<S>> {
        engine.core.check_readable()?;
        let spot = standing.with_progress(|progress| progress.cursor.spot());
        Ok(Ahead {
            engine: Arc::clone(engine),
            standing: Arc::clone(standing),
            cursor: Cursor::new(spot),
            failed: false,
            pieces: Vec::new(),
        })
    }

    pub(crate) fn next(&mut self) -> Option<Result<Message>> {
        let _told = events::at_end();
        if self.failed {
            return None;
        }
        let core = &*self.engine.core;
        let (cursor, pieces) = (&mut self.cursor, &mut self.pieces);
        // While the consumer's lock is held, no segment from its place on is given back.
        let found = core.check_readable().and_then(|()| {
            self.standing.with_progress(|progress| {
                progress.check(core, &self.standing)?;
                let place = progress.cursor.spot();
                if cursor.spot().position < place.position {
                    cursor.move_to(place);
                }
                loop {
                    if let Some(piece) = pieces.pop() {
                        return Err(Error::Gap(piece));
                    }
                    let found = cursor.find(core);
                    let found = match (found, &progress.ledger) {
                        (Err(Error::Gap(gap)), Some(ledger)) => {
                            // Numbers of the gap that were told before are not told again.
                            pieces.extend(ledger.untold_of(gap).into_iter().rev());
                            continue;
                        }
                        (found, _) => found?,
                    };
                    let Some(record) = found else {
                        // No segment stays open while the caller does something else.
                        cursor.let_go();
                        return Ok(None);
                    };
                    if progress.ledger.as_ref().is_some_and(|ledger| ledger.is_done(record.seq)) {
                        cursor.advance();
                        continue;
                    }
                    if let Some(message) = message(cursor, record) {
                        cursor.advance();
                        return Ok(Some(message));
                    }
                }
            })
        });
        match found {
            Ok(Some(message)) => Some(Ok(message)),
            Ok(None) => None,
            Err(Error::Gap(gap)) => Some(Err(Error::Gap(gap))),
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}
