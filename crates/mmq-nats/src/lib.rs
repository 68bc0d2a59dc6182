//! NATS JetStream: a stream that takes each message once.
//!
//! ```text
//!   nats_stream   the forwarder's thread: what is sent, what was acknowledged
//!      |   '-- order      the user's options: servers, subject, access
//!     link       between the two threads
//!      |
//!   session      a thread of its own with the client: conditions, publishes, acknowledgements
//!      |   |-- login      a connection to one of the servers; alarm: what the client tells
//!      |   '-- ask        what the stream is and holds; which mode
//!      |        '-- standing   where it stands, compared with the last acknowledgement
//!     words      headers of a message, and what the server's errors mean
//! ```
//!
//! One connection is one session. The client would connect anew by itself and send again what it
//! has not written; it is kept from that: its first loss ends the session, and
//! [`resume`](mmq::forward::Destination::resume) begins another one with another client.
//!
//! # Why nothing is doubled, missing or out of order
//!
//! A stream gives each message a *position*, which only rises. What an earlier session wrote may
//! arrive late, at any moment. Each message is conditional, so that it is stored right behind the
//! one that it was sent behind, or not at all:
//!
//! - **The first of a session** is conditional on the position that the answer to the question
//!   named. That position has the message that the answer named, for ever, so the condition
//!   names the message as well. When a late write got there first, the position is not the last any
//!   more: the message is refused, and the question is asked again.
//! - **`batch`**: the server stores a batch as a whole or not at all, and the next one is sent when
//!   the one before is acknowledged. Its condition is the last position of the stream if only this
//!   queue writes to it, else that of the last message of the subject; from the answer or from that
//!   acknowledgement: as for the first of a session.
//! - **`window`**: one message at a time; the same.
//! - **`chain`**: messages are sent without waiting, so a condition names a position that is not
//!   reached yet, and an earlier session may bring another message there: it sent 10, 11 and 12; 11
//!   is given up; this one sends 10 and 12. If the late 10 is stored, this session's 12 meets its
//!   position, and so does the late 12 behind it. Therefore a message is conditional on the id of
//!   the one before, too, which has the number in it: the late 12 wants 11 before it, finds 12, and
//!   is refused. (The server has the last id in memory, from the last message after a restart; the
//!   first of a session does without, as older servers forget it.)
//!
//! So each message that is stored has a higher number than the one before, and between the two are
//! only numbers that the sender knew to be missing. This holds while a condition that failed once
//! fails for ever. Two things can make one come true again, and then only for a write of an earlier
//! session that is still on its way:
//!
//! - The store is set back. A single server that dies takes the connections of earlier sessions
//!   with it; in a cluster, or when somebody restores a stream while its server runs, they may
//!   hang on.
//! - All messages of a subject that shares its stream are removed within the time that such a write
//!   is late: a subject without messages has the position 0 again.
//!
//! # What the stream removes by itself
//!
//! The position that was acknowledged last tells what was removed (by age, a limit, a purge) from
//! what was lost: positions stay when their messages go. `standing` has the rules.

mod alarm;
mod ask;
mod link;
mod login;
mod mode;
mod nats_stream;
mod order;
mod session;
mod standing;
mod words;

use std::time::Duration;

use mmq::forward::Halt;
pub use mode::NatsMode;
pub use nats_stream::NatsStream;
use order::NatsOrder;

const ZERO: Duration = Duration::ZERO;

fn lost(why: String) -> Halt {
    Halt::Lost(why.into())
}
