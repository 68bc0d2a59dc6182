//! How the server knows us, and we it.

use std::path::{Path, PathBuf};

use mmq::Queue;
use mmq::forward::{Destination, Forwarder, Trouble};
use mmq_nats::NatsStream;
use serde_json::json;

use super::server::{Server, Wire};
use super::{STREAM, SUBJECT, far, put};

const SEED: &str = "SUAPQDEECYLD5YTYWPGRHVZOTDOS3BLYCXW7D64GHDJGLY5PNZO3Y6BBBI";
const ITS_KEY: &str = "UALOWWT4BKUSPPZSSMQTDINTG53MV2FXCO23NOSA3STT7E64XFI64OBL";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nats/access").join(name)
}

fn make_stream(server: &Server, user: serde_json::Value) {
    let mut wire = Wire::new(server.port(), user);
    let config =
        json!({ "name": STREAM, "subjects": [SUBJECT, "mmq.test.*"], "allow_atomic": true });
    let answer = wire.request(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &config.to_string());
    assert!(answer["error"].is_null(), "{answer}");
}

fn forward(far: NatsStream) -> Result<(), String> {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    put(&queue, 50);
    let mut forwarder = Forwarder::new(&queue, "forward", far).unwrap();
    forwarder.once().map_err(|halt| halt.to_string())?;
    assert!(queue.consumer("forward").unwrap().is_empty());
    Ok(())
}

fn refused(far: NatsStream) {
    let reported = forward(far).unwrap_err();
    assert!(reported.contains("look at user and password in the URL"), "{reported}");
}

fn with(server: &Server, before: &str) -> NatsStream {
    let url = format!("nats://{before}@127.0.0.1:{}", server.port());
    NatsStream::new(&url, STREAM).unwrap().subject(SUBJECT).unwrap()
}

#[test]
fn user_and_password_token_and_nkey() {
    let server = Server::start("authorization: { user: agent, password: open }");
    make_stream(&server, json!({ "user": "agent", "pass": "open" }));
    refused(far(&server));
    refused(with(&server, "agent:wrong"));
    forward(with(&server, "agent:open")).unwrap();

    let server = Server::start("authorization: { token: open }");
    make_stream(&server, json!({ "auth_token": "open" }));
    refused(with(&server, "wrong"));
    forward(with(&server, "open")).unwrap();

    let users = format!(
        "authorization: {{ users: [ {{ nkey: {ITS_KEY} }}, {{ user: agent, password: open }} ] }}"
    );
    let server = Server::start(&users);
    make_stream(&server, json!({ "user": "agent", "pass": "open" }));
    refused(far(&server).nkey("SUAnothing"));
    forward(far(&server).nkey(SEED)).unwrap();
}

#[test]
fn a_file_of_credentials() {
    let accounts = std::fs::read_to_string(file("accounts.conf")).unwrap();
    let server = Server::start(&accounts);
    refused(far(&server));
    let reported = forward(far(&server).credentials_file("/nowhere/user.creds")).unwrap_err();
    assert!(reported.contains("credentials file /nowhere/user.creds: "), "{reported}");
    let reported = forward(far(&server).credentials_file(file("user.creds"))).unwrap_err();
    assert!(reported.contains("there is no such stream"), "{reported}");
}

/// One of several servers that refuses us ends nothing.
#[test]
fn one_server_that_refuses_is_passed_over() {
    let server = Server::start("");
    make_stream(&server, json!({}));
    let refusing = Server::start("authorization: { user: other, password: open }");
    for (round, user) in ["", "agent:secret@"].into_iter().cycle().take(12).enumerate() {
        let urls = format!(
            "nats://{user}127.0.0.1:{}, nats://127.0.0.1:{}",
            refusing.port(),
            server.port()
        );
        let far = NatsStream::new(&urls, STREAM).unwrap();
        forward(far.subject(&format!("{SUBJECT}.{round}")).unwrap()).unwrap();
    }
    let urls = format!("nats://agent:secret@127.0.0.1:{0}, nats://127.0.0.1:{0}", refusing.port());
    let reported = forward(NatsStream::new(&urls, STREAM).unwrap()).unwrap_err();
    assert!(reported.contains("look at user and password in the URL"), "{reported}");
    assert!(!reported.contains("secret"), "{reported}");
    // One that is away may take us later.
    let urls = format!("nats://127.0.0.1:{}, nats://127.0.0.1:1", refusing.port());
    let mut far = NatsStream::new(&urls, STREAM).unwrap();
    for _ in 0..8 {
        let trouble = far.resume(&super::late::source(), None).unwrap_err();
        assert!(matches!(trouble, Trouble::Again(..)), "{trouble:?}");
    }
}

/// A user may hear answers only at subjects of its own.
#[test]
fn answers_come_where_the_user_may_hear_them() {
    let server = Server::start(
        "authorization: { users: [ { user: agent, password: open, permissions: { publish: \">\", \
         subscribe: \"_INBOX_agent.>\" } }, { user: root, password: root } ] }",
    );
    make_stream(&server, json!({ "user": "root", "pass": "root" }));
    let reported = forward(with(&server, "agent:open")).unwrap_err();
    assert!(reported.contains("and to subscribe to _INBOX.>"), "{reported}");
    forward(with(&server, "agent:open").inbox_prefix("_INBOX_agent").unwrap()).unwrap();
    let reported = far(&server).inbox_prefix("a.>").unwrap_err().to_string();
    assert!(reported.contains("not a subject"), "{reported}");
}

#[test]
fn each_message_lives_as_long_as_was_ordered() {
    let server = Server::start("");
    make_stream(&server, json!({}));
    let minute = std::time::Duration::from_secs(60);
    let reported = forward(far(&server).message_ttl(minute)).unwrap_err();
    assert!(reported.contains("`nats stream edit EVENTS --allow-msg-ttl`"), "{reported}");
    let mut info = server.api(&format!("STREAM.INFO.{STREAM}"), json!({}));
    info["config"]["allow_msg_ttl"] = json!(true);
    server.api(&format!("STREAM.UPDATE.{STREAM}"), info["config"].take());
    forward(far(&server).message_ttl(minute)).unwrap();
    let entries = server.entries(STREAM, SUBJECT);
    assert_eq!(entries.len(), 50);
    assert!(entries.iter().all(|it| it.text("Nats-TTL") == "60"), "{entries:?}");
}

/// The sentence names what the user may not do.
#[test]
fn permissions_that_are_missing_are_named() {
    let users = |publish: &str| {
        format!(
            "authorization: {{ users: [ {{ user: agent, password: open, permissions: {{ publish: \
             [{publish}], subscribe: \"_INBOX.>\" }} }}, {{ user: root, password: root }} ] }}"
        )
    };
    let server = Server::start(&users("\"$JS.API.>\""));
    make_stream(&server, json!({ "user": "root", "pass": "root" }));
    let reported = forward(with(&server, "agent:open")).unwrap_err();
    assert!(reported.contains("Permissions Violation for Publish to \"mmq.test\""), "{reported}");
    let server = Server::start(&users("\"mmq.>\""));
    let reported = forward(with(&server, "agent:open")).unwrap_err();
    assert!(reported.contains("$JS.API.STREAM.INFO.EVENTS"), "{reported}");
}

#[test]
fn both_sides_show_certificates() {
    let path = |name: &str| format!("{:?}", file(name));
    let tls = format!(
        "cert_file: {}, key_file: {}, ca_file: {}, verify: true",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let server = Server::start(&format!("tls: {{ {tls} }}\nallow_non_tls: true"));
    make_stream(&server, json!({}));
    let url = format!("tls://localhost:{}", server.port());
    let far = || NatsStream::new(&url, STREAM).unwrap().subject(SUBJECT).unwrap();
    let ours = || far().client_certificate(file("client.pem"), file("client.key"));
    forward(ours().root_certificates(file("ca.pem"))).unwrap();
    let reported = forward(far().root_certificates("/nowhere/ca.pem")).unwrap_err();
    assert!(reported.contains("look at the files of certificates and keys"), "{reported}");
    let first = Server::start(&format!("tls: {{ {tls}, handshake_first: true }}"));
    let url = format!("tls://localhost:{}", first.port());
    let access = |far: NatsStream| {
        let far = far.client_certificate(file("client.pem"), file("client.key"));
        far.root_certificates(file("ca.pem")).tls_first()
    };
    let reported = forward(access(NatsStream::new(&url, STREAM).unwrap())).unwrap_err();
    assert!(reported.contains("there is no such stream"), "{reported}");
    // A server that nobody vouches for, and one that wants to see a certificate of ours.
    for far in [ours(), far().root_certificates(file("ca.pem"))] {
        let reported = forward(far).unwrap_err();
        assert!(reported.contains("look at the files of certificates and keys"), "{reported}");
    }
}
