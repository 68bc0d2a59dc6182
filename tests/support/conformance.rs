//! `tests/conformance.json`: calls, and what every language answers to them. The first lines of the
//! file say what the words mean.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::tempdir;

/// Makes the calls of each scenario in an empty directory, and compares the answers. `begin`
/// returns what answers a line about the queue `queue` in that directory.
#[track_caller]
pub(crate) fn check<A: FnMut(&str) -> String>(begin: impl Fn(&Path) -> A) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance.json");
    let text = fs::read_to_string(path).expect(path);
    let file: Value = serde_json::from_str(&text).expect("JSON");
    for (name, steps) in file["scenarios"].as_object().expect("scenarios") {
        let dir = tempdir().expect("a temporary directory");
        let mut answer_to = begin(dir.path());
        for step in steps.as_array().expect("steps") {
            let [call, wanted] = [0, 1].map(|at| step[at].as_str().expect("a call, its answer"));
            let answer = match call.strip_prefix("damage ") {
                Some(message) => damage(&dir.path().join("queue"), message.as_bytes()),
                None => answer_to(call),
            };
            assert_eq!(answer, wanted, "{name}: {call}");
        }
    }
}

/// Flips a bit of a message of the closed queue.
fn damage(queue: &Path, message: &[u8]) -> String {
    let file = queue.join("segment-00000000");
    let mut bytes = fs::read(&file).expect("the first segment");
    let at = bytes.windows(message.len()).position(|window| window == message);
    bytes[at.expect("the message is in it")] ^= 1;
    fs::write(&file, bytes).expect("the segment is written");
    "ok".into()
}
