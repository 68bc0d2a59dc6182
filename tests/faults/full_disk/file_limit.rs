//! A limit on the length of files (RLIMIT_FSIZE) below that of files that exist: the kernel ends a
//! process by a signal for any write call there.

use std::path::Path;

use super::{KIB, MIB, fill_queue};
use crate::support::{Messages, itself};
use mmq::{Error, Options, Queue};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Each is left by a kill; then a process has that limit, from its start or from the opening on.
#[test]
fn below_the_length_of_a_file_the_limit_is_an_error_and_no_signal() {
    let ways = [
        ("mapped", MIB, "flush: too large"),
        ("mapped, later", MIB, "flush: too large"),
        ("durable", 20 * KIB, "enqueue: too large"),
        ("durable at the opening", 20 * KIB, "opening: too large"),
    ];
    for (way, limit, told) in ways {
        let dir = crate::support::tempdir().unwrap();
        let run = |limit: usize| {
            let mut child = itself("full_disk::file_limit::the_child_with_a_limit");
            child.env("MMQ_TEST_DIR", dir.path()).env("MMQ_CHILD_WAY", way);
            child.env("MMQ_CHILD_LIMIT", limit.to_string()).output().unwrap()
        };
        let made = run(0);
        assert!(made.status.success(), "{made:?}");
        let limited = run(limit);
        let said = String::from_utf8_lossy(&limited.stdout);
        assert!(limited.status.success() && said.contains(told), "{way}: {limited:?}");
    }
}

fn open(dir: &Path, is_durable: bool) -> mmq::Result<Queue> {
    Options::new().arena_size(2 * MIB as u64).flush_every_ops(is_durable.then_some(1)).open(dir)
}

/// Not a test of its own. Puts messages in and dies, or has a limit and does what it can.
#[test]
fn the_child_with_a_limit() {
    let Some(dir) = std::env::var_os("MMQ_TEST_DIR") else { return };
    let way = std::env::var("MMQ_CHILD_WAY").unwrap();
    let limit = crate::support::count("MMQ_CHILD_LIMIT", 0);
    if limit == 0 {
        let queue = open(dir.as_ref(), way == "durable").unwrap();
        let count = if way == "durable" { 100 } else { 1500 };
        fill_queue(&queue, &Messages::new(1, &[1000..=1000]), 0, count);
        std::process::exit(0);
    }
    let open = || open(dir.as_ref(), way.starts_with("durable"));
    let later = way.ends_with("later").then(|| open().unwrap());
    let set = Rlimit { current: Some(limit), maximum: None };
    setrlimit(Resource::Fsize, Rlimit { ..set }).unwrap();
    let tell = |what: &str, result: mmq::Result<()>| match result {
        Ok(()) => println!("{what} works"),
        Err(Error::Io { source, .. })
            if source.raw_os_error() == Some(Errno::FBIG.raw_os_error()) =>
        {
            println!("{what}: too large");
        }
        Err(error) => println!("{what}: {error}"),
    };
    let queue = match later.map_or_else(open, Ok) {
        Ok(queue) => queue,
        Err(error) => return tell("opening", Err(error)),
    };
    assert_eq!(queue.dequeue().unwrap().unwrap().seq(), 0);
    tell("enqueue", queue.enqueue([1; 1000]).map(drop));
    tell("long", queue.enqueue(vec![1; 300 * KIB]).map(drop));
    tell("flush", queue.flush());
    tell("close", queue.close());
}
