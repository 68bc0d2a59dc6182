//! The client in docs/share.md, which speaks the protocol without this library, as it stands there.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use super::owner;
use crate::support::tempdir;

/// What the script does with its client.
const USES_IT: &str = r#"
client = Client(sys.argv[1])
assert client.enqueue(b"from the script") == 1
workers = client.consumer("workers")
for expected in (b"from the owner", b"from the script"):
    delivery, message = client.receive(workers, 60000)
    assert message == expected, message
    client.acknowledge(delivery)
assert client.receive(workers) is None
try:
    client.acknowledge(delivery)
    raise SystemExit("acknowledged twice")
except RuntimeError as error:
    assert "status 16" in str(error), error
client.enqueue(b"the last")
client.receive(workers, 60000)
"#;

#[test]
fn the_client_of_the_document_works_as_it_stands_there() {
    let document = include_str!("../../../docs/share.md");
    let (_, script) = document.split_once("```python\n").expect("a client in Python");
    let (script, _) = script.split_once("```").expect("its end");
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let workers = queue.consumer("workers").unwrap();
    queue.enqueue("from the owner").unwrap();
    let mut python = Command::new("python3");
    let ran = python.arg("-c").arg(format!("{script}{USES_IT}")).arg(dir.path()).output();
    let ran = match ran {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return crate::support::skip("python3 is not installed");
        }
        ran => ran.unwrap(),
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    // The script ended with one message in flight.
    let last = workers.receive_timeout(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!((last.as_str(), last.seq(), last.attempts()), (Ok("the last"), 2, 2));
    last.ack().unwrap();
    assert_eq!(workers.len(), 0);
}
