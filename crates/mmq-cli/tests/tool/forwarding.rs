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
    for words in [
        &["redis://host", "--tls-first"][..],
        &["unix:///run/redis.sock", "--ttl", "1h"],
        &["nats://host", "--max-len", "1000"],
        &["exec:mmq accept q", "--pack", "32"],
        &["tls://host", "--sentinel", "primary"],
        &["ssh://host/q", "--succeed", "0a0b0c0d"],
    ] {
        let output = ends(mmq([&["forward", dir][..], words].concat()), 2);
        let shown = words[0].split(' ').next().unwrap();
        let refused = format!("{} does not apply to {shown}", words[1]);
        assert!(said(&output).contains(&refused), "{}", said(&output));
    }
    let output = ends(mmq(["forward", dir, "redis://host", "--pack", "0"]), 2);
    assert!(said(&output).contains("the least is 1"), "{}", said(&output));
    ends(mmq(["forward", dir]), 2);
}

#[test]
fn a_secret_is_never_said() {
    let dir = crate::support::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    for words in [
        &["kafka://edge:secret@host"][..],
        &["nats://edge:secret@host", "--key", "k"],
        &["redis://edge:secret@host", "--stream", "S"],
        &["nats://edge:secret@host"],
        &["redis://edge:secret@host"],
        &["nats://edge:secret@host:port", "--stream", "S"],
        &["redis://edge:secret@host:port", "--key", "k"],
        &["edge:secret@host", "--key", "k"],
    ] {
        for json in [&[][..], &["--json"]] {
            let output = ends(mmq([&["forward", dir][..], words, json].concat()), 2);
            let said = said(&output);
            assert!(said.contains("edge@host") || !said.contains("edge"), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}

#[test]
fn a_password_stands_in_one_place() {
    let dir = crate::support::tempdir().unwrap();
    let file = dir.path().join("password");
    let forward = |url: &str| {
        let dir = dir.path().to_str().unwrap();
        mmq(["forward", dir, url, "--password-file", file.to_str().unwrap()])
    };
    ends(forward("kafka://edge@host"), 7);
    std::fs::write(&file, "\n").unwrap();
    let output = ends(forward("kafka://edge@host"), 2);
    assert!(said(&output).contains("holds no password"), "{}", said(&output));
    std::fs::write(&file, "another secret\n").unwrap();
    let output = ends(forward("kafka://edge:secret@host"), 2);
    assert!(said(&output).contains("leave it out of the URL"), "{}", said(&output));
    let output = ends(forward("kafka://edge@host"), 2);
    assert!(said(&output).contains("kafka://edge@host is not a known"), "{}", said(&output));
    let mut of_environment = mmq(["forward", "d", "kafka://edge@host"]);
    let output = ends(
        {
            of_environment.env("MMQ_FORWARD_PASSWORD", "secret");
            of_environment
        },
        2,
    );
    assert!(said(&output).contains("kafka://edge@host is not a known"), "{}", said(&output));
}

#[test]
fn a_session_has_a_second_at_least() {
    for option in ["--patience", "--ttl"] {
        let output = ends(mmq(["forward", "d", "nats://host", option, "0.5s"]), 2);
        assert!(said(&output).contains("the least is 1s"), "{}", said(&output));
    }
}
