//! `forward` without a server; with one: `tests/forward_redis/`.

use crate::run::{ends, mmq, said};

#[test]
fn an_address_that_nobody_can_take_is_refused() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let output = ends(mmq(["forward", dir, "kafka://host"]), 2);
    assert!(said(&output).contains("an address begins with nats://"), "{}", said(&output));
    let output = ends(mmq(["forward", dir, "redis://host", "--stream", "S"]), 2);
    assert!(said(&output).contains("--stream does not apply"), "{}", said(&output));
    ends(mmq(["forward", dir, "redis://host", "--cert", "client.pem"]), 2);
    ends(mmq(["forward", dir]), 2);
}
