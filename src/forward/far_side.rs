//! What a far side says of what it holds, and what the forwarder remembers of it.

/// What the far side holds of a source.
///
/// ```
/// use mmq::forward::Held;
///
/// /// What a table of the far side holds, by its last row.
/// fn held(last: Option<(u64, u32)>) -> Held {
///     last.map_or(Held::Nothing, |(seq, sum)| Held::Until { seq, sum: Some(sum) })
/// }
/// # held(None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// No message of this queue, and no trace of earlier ones.
    Nothing,
    /// The messages up to this one.
    Until {
        /// The last one's number.
        seq: u64,
        /// Its sum ([`Outgoing::sum`](super::Outgoing::sum)); `None` where the number alone
        /// outlives the message.
        sum: Option<u32>,
    },
    /// The far side has stored all messages below the [mark](Mark) and lost none of them, but no
    /// longer has the last one: it was removed, by its age, a limit, a purge or a reader.
    Removed {
        /// How many messages it has stored behind the mark, a pack counted as one; `None` when it
        /// cannot tell.
        stored: Option<u64>,
    },
    /// The far side no longer has the last message that it stored, and its store was set back to
    /// before the [mark](Mark).
    SetBack {
        /// How many messages before the mark it has lost, a pack counted as one; `None` when it
        /// cannot tell.
        lost: Option<u64>,
    },
}

/// Where the store of a far side ends.
///
/// ```
/// use mmq::forward::Position;
///
/// /// The position of a table's last row; a table that was made anew counts from 1 again.
/// fn position(table_created: u64, last_row: u64) -> Position {
///     Position { store: table_created, at: last_row }
/// }
/// # position(1, 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Position {
    /// Which store: another value when somebody has removed and recreated it.
    pub store: u64,
    /// The position in it. A later message has a higher one, also after others were removed.
    pub at: u64,
}

/// A position of the far side and the message that belongs behind it: what the forwarder remembers
/// of earlier sessions.
///
/// ```
/// use mmq::forward::{Held, Mark};
///
/// /// What a far side holds whose messages are all gone, and which stands at position `end`.
/// fn held(mark: Mark, end: u64) -> Held {
///     match end.checked_sub(mark.position.at) {
///         Some(stored) => Held::Removed { stored: Some(stored) },
///         None => Held::SetBack { lost: Some(mark.position.at - end) },
///     }
/// }
/// # let position = mmq::forward::Position::default();
/// # held(Mark { until: 7, position }, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The far side has acknowledged every message below this number.
    pub until: u64,
    /// Where it ended right before the message of that number.
    pub position: Position,
}
