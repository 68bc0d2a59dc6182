//! What `cargo +nightly fuzz run frames` runs, and a test: whatever a client of a shared queue
//! sends behind its greeting, the owner goes on and keeps nothing from others.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mmq::Options;

use crate::guard::tempdir_in_memory;

/// A frame of number 1, call 1: the greeting, as docs/share.md has it.
const GREETING: &[u8] = b"\x01\0\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0mmqshare\x01\0\0\0";

pub(crate) fn frames(data: &[u8]) {
    let dir = tempdir_in_memory().unwrap();
    let queue = Options::new().shared(true).max_bytes(4 << 20).open(dir.path()).unwrap();
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    let mut stream = UnixStream::connect(dir.path().join("socket")).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The owner may end the connection before it has read all.
    let _ = stream.write_all(GREETING).and_then(|()| stream.write_all(data));
    let _ = stream.shutdown(Shutdown::Write);
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the owner hangs: {error}"),
    }
    queue.enqueue("goes on").unwrap();
    queue.close().unwrap();
}
