//! A queue of many small messages with a few flipped bytes in its file: what user code meets as
//! gaps.

use std::fs;
use std::path::Path;

/// How many messages it has, and those whose bytes are damaged.
pub(crate) const MESSAGES: u64 = 4000;
pub(crate) const DAMAGED: [u64; 6] = [0, 7, 1303, 1304, 2999, 3999];
pub(crate) const WHOLE: u64 = MESSAGES - DAMAGED.len() as u64;

/// Makes it in `dir`. The first message's payload must not be all zeros: it is looked for in the
/// file.
pub(crate) fn make(dir: &Path, payload: impl Fn(u64) -> Vec<u8>) {
    let queue = mmq::Queue::open(dir).unwrap();
    for number in 0..MESSAGES {
        assert_eq!(queue.enqueue(payload(number)).unwrap(), number);
    }
    queue.close().unwrap();
    let file = dir.join("segment-00000000");
    let mut bytes = fs::read(&file).unwrap();
    let mut end = 0;
    for number in 0..MESSAGES {
        let payload = payload(number);
        let at = bytes[end..].windows(payload.len()).position(|window| window == payload);
        let at = end + at.expect("the messages lie one behind the other");
        end = at + payload.len();
        if DAMAGED.contains(&number) {
            bytes[at + payload.len() / 2] ^= 0x40;
        }
    }
    fs::write(&file, bytes).unwrap();
}
