//! `mmq forward` to a real Redis server:
//! `cargo test -p mmq-cli --features redis --test forward_redis`.

// The example itself, whose `main` nobody calls here.
#[allow(dead_code)]
#[path = "../../examples/edge.rs"]
mod edge;
mod ends;
#[allow(dead_code, reason = "the tests of mmq-redis use the rest")]
#[path = "../../../mmq-redis/tests/redis/server.rs"]
mod server;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod tool;
mod walks;

const KEY: &str = "mmq:test";
