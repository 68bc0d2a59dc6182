//! Other processes use an open queue through its owner, over a socket in the queue's directory.
//!
//! The owner does for a client what its own threads do, through the same calls: one thread for each
//! client, without shared memory. docs/share.md has the protocol.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `frame` | the header of a frame, the calls | |
//! | `fields`, `refusal`, `figures_in_frames` | bodies: numbers and texts, errors, figures | |
//! | `input`, `output` | bytes that came, answers that go | puts frames together |
//! | `patience` | | waits for the other side |
//! | `socket` | | listens and connects in a directory |
//! | `answering` | what one client has of the queue | does what it asks |
//! | `serving` | one client | reads its questions, waits for messages |
//! | `server`, `clients` | the clients | accepts them, ends with the queue |
//! | `connection` | a client's connection | hands each thread its answer |
//! | `client`, `client_consumer`, `client_writer`, `remote_delivery` | [`Client`], [`ClientConsumer`], [`ClientWriter`] | ask the owner |
//! | `forwarding`, `remote_local` | a forwarder's places, in the owner and in a client | |
//! | `handle`, `handle_consumer`, `handle_forwarded`, `shared_queue` | [`Handle`], [`HandleConsumer`] | open a queue or connect to its owner |

mod answering;
mod client;
mod client_consumer;
mod client_writer;
mod clients;
mod connection;
mod fields;
mod figures_in_frames;
#[cfg(feature = "forward")]
mod forwarding;
mod frame;
mod handle;
mod handle_consumer;
#[cfg(feature = "forward")]
mod handle_forwarded;
mod input;
mod output;
mod patience;
mod refusal;
pub(crate) mod remote_delivery;
#[cfg(feature = "forward")]
mod remote_local;
pub(crate) mod server;
mod serving;
mod shared_queue;
pub(crate) mod socket;
#[cfg(test)]
mod tests;

pub use client::{Client, ConnectedClient};
pub use client_consumer::ClientConsumer;
pub use client_writer::ClientWriter;
pub use handle::{Handle, open_or_connect};
pub use handle_consumer::HandleConsumer;
