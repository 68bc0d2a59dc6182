//! Redis and Valkey: a stream that takes each message once.
//!
//! A message's id there is `<number + 1>-0`. One script stores a whole send: it compares the last
//! id of the stream with the one that the send follows, and only then adds. The server runs one
//! script at a time and logs it as one, so a send is there as a whole or not at all, and the last
//! id outlives XTRIM, XDEL and restarts.

mod about;
mod address;
mod script;
mod session;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod trouble;

/// The client that is used.
pub use redis;
pub use stream::RedisStream;
