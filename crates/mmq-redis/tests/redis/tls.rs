//! `rediss://`, with certificates of the test's own.

use std::path::{Path, PathBuf};

use mmq::Queue;
use mmq::forward::{ForwardState, Forwarder};
use mmq_redis::RedisStream;

use super::KEY;
use super::server::{Server, check, free_port};

/// An authority, and a certificate of it for 127.0.0.1: `ca.pem`, `own.pem`, `own.key`.
fn certificates(dir: &Path) -> bool {
    let openssl = |words: &str| {
        let mut command = crate::support::command("openssl");
        let made = command.args(words.split(' ')).current_dir(dir).output();
        made.is_ok_and(|output| output.status.success())
    };
    std::fs::write(dir.join("ext"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca")
        && openssl("req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=own")
        && openssl(
            "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out own.pem -days 2 \
             -extfile ext",
        )
}

#[test]
fn a_connection_with_tls_needs_the_authority_and_shows_its_own_certificate() {
    let (dir, other) = (crate::support::tempdir().unwrap(), crate::support::tempdir().unwrap());
    if !certificates(dir.path()) || !certificates(other.path()) {
        crate::support::skip("no openssl, so no connection with TLS was tried");
        return;
    }
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let name = |name: &str| path(name).to_str().unwrap().to_owned();
    let port = free_port();
    let (ca, own, key) = (name("ca.pem"), name("own.pem"), name("own.key"));
    let server = Server::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &own,
        "--tls-key-file",
        &key,
    ]);
    let queue = Queue::open(dir.path().join("queue")).unwrap();
    for number in 0..5 {
        queue.enqueue(format!("message {number}")).unwrap();
    }
    let far = || RedisStream::new(&format!("rediss://127.0.0.1:{port}/"), KEY).unwrap();
    let tells = |far: RedisStream, what: &str| {
        let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap();
        let (stop, watch) = (forwarder.stop(), forwarder.watch());
        std::thread::scope(|scope| {
            let running = scope.spawn(|| forwarder.run());
            loop {
                let progress = watch.progress();
                assert_ne!(progress.state, ForwardState::Ended, "without {what:?}");
                if progress.trouble.is_some_and(|trouble| trouble.contains(what)) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            stop.stop();
            running.join().unwrap().unwrap();
        });
    };
    tells(far(), "UnknownIssuer");
    tells(far().root_certificates(other.path().join("ca.pem")), "certificate");
    tells(far().root_certificates(path("ca.pem")), "ertificate");
    tells(far().root_certificates(path("none.pem")), "none.pem");
    assert!(RedisStream::new("rediss://127.0.0.1/#insecure", KEY).is_err());
    let far = far().root_certificates(path("ca.pem"));
    let far = far.client_certificate(path("own.pem"), path("own.key"));
    Forwarder::new(&queue, "forward", far).unwrap().once().unwrap();
    check(&server.entries(KEY), 5);
}
