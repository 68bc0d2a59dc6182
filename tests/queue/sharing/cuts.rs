//! A connection that ends behind any byte, in either direction, or brings them one by one.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use mmq::{Client, Error, Queue};

use super::owner;
use crate::support::{eventually, tempdir};

/// Which bytes a proxy passes on before it ends the connection.
#[derive(Debug, Clone, Copy)]
enum Passes {
    OfQuestions(usize),
    OfAnswers(usize),
    /// All of them, one at a time.
    AllInPieces,
}

/// Passes bytes on, up to that many, and ends the connection behind them.
fn pass(mut from: UnixStream, mut to: UnixStream, most: usize, piece: usize) {
    let (mut passed, mut bytes) = (0, [0; 4096]);
    while passed < most {
        let room = piece.min(most - passed).min(bytes.len());
        match from.read(&mut bytes[..room]) {
            Ok(read @ 1..) if to.write_all(&bytes[..read]).is_ok() => passed += read,
            _ => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// What a client knows of what it did through the proxy.
#[derive(Debug, Default)]
struct Known {
    put: Vec<u64>,
    put_in_doubt: u64,
    acknowledged: Vec<u64>,
    acknowledged_in_doubt: Vec<u64>,
}

fn is_in_doubt(error: &Error) -> bool {
    match error {
        Error::Disconnected { in_doubt, .. } => *in_doubt,
        other => panic!("{other}"),
    }
}

/// Puts two messages in, and takes two.
fn work(dir: &Path, known: &mut Known) -> Result<(), Error> {
    let client = match Client::connect(dir) {
        // The greeting was cut.
        Err(Error::NotShared { .. }) => return Ok(()),
        client => client?,
    };
    for message in ["one", "two"] {
        let put = client.enqueue(message);
        known.put_in_doubt = put.as_ref().err().map_or(0, |error| u64::from(is_in_doubt(error)));
        known.put.push(put?);
    }
    let workers = client.consumer("workers")?;
    for _ in 0..2 {
        let job = workers.receive()?.expect("there is one");
        let seq = job.seq();
        match job.ack() {
            Ok(()) => known.acknowledged.push(seq),
            Err(error) => {
                known.acknowledged_in_doubt.extend(is_in_doubt(&error).then_some(seq));
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Does the work through a proxy, and holds what the client knows against the queue.
fn through(queue: &Queue, dir: &Path, proxied: &Path, passes: Passes) -> Known {
    let watching = Client::connect(dir).unwrap();
    let first = queue.stats().next_seq;
    let listener = UnixListener::bind(proxied.join("socket")).unwrap();
    let (questions, answers, piece) = match passes {
        Passes::OfQuestions(bytes) => (bytes, usize::MAX, 4096),
        Passes::OfAnswers(bytes) => (usize::MAX, bytes, 4096),
        Passes::AllInPieces => (usize::MAX, usize::MAX, 1),
    };
    let mut known = Known::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = listener.accept().unwrap().0;
            let owner = UnixStream::connect(dir.join("socket")).unwrap();
            let (from, to) = (client.try_clone().unwrap(), owner.try_clone().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(|| pass(from, to, questions, piece));
                pass(owner, client, answers, piece);
            });
        });
        match work(proxied, &mut known) {
            Ok(()) | Err(Error::Disconnected { .. }) => {}
            Err(error) => panic!("{passes:?}: {error}"),
        }
    });
    fs::remove_file(proxied.join("socket")).unwrap();
    eventually("the owner sees its end", || watching.connected().unwrap().len() == 1);
    let end = queue.stats().next_seq;
    let put = known.put.len() as u64;
    assert_eq!(known.put, (first..first + put).collect::<Vec<_>>(), "{passes:?}");
    assert!((put..=put + known.put_in_doubt).contains(&(end - first)), "{passes:?}: {known:?}");
    // What was not acknowledged comes again now.
    let workers = queue.consumer("workers").unwrap();
    let mut came = Vec::new();
    while let Some(job) = workers.receive().unwrap() {
        came.push(job.seq());
        job.ack().unwrap();
    }
    came.retain(|seq| !known.acknowledged_in_doubt.contains(seq));
    let settled =
        |seq: &u64| known.acknowledged.contains(seq) || known.acknowledged_in_doubt.contains(seq);
    let wanted: Vec<u64> = (first..end).filter(|seq| !settled(seq)).collect();
    assert_eq!(came, wanted, "{passes:?}: {known:?}");
    known
}

#[test]
fn whatever_byte_is_the_last_nothing_is_lost_and_nothing_comes_twice() {
    let dir = tempdir().unwrap();
    let (path, proxied) = (dir.path().join("queue"), dir.path().join("proxied"));
    fs::create_dir(&proxied).unwrap();
    let queue = owner(&path);
    queue.consumer("workers").unwrap();
    let all = through(&queue, &path, &proxied, Passes::AllInPieces);
    assert_eq!((all.put.len(), all.acknowledged.len()), (2, 2));
    for cut in [Passes::OfQuestions, Passes::OfAnswers] {
        // Until the work is done before the cut.
        let mut bytes = 0;
        while through(&queue, &path, &proxied, cut(bytes)).acknowledged.len() < 2 {
            bytes += 1;
        }
        assert!(bytes > 200, "{:?} is all of it", cut(bytes));
    }
    assert_eq!(queue.consumer("workers").unwrap().stats().messages, 0);
    // The owner is as well as before.
    let client = Client::connect(&path).unwrap();
    client.enqueue("at last").unwrap();
    let last = client.consumer("workers").unwrap().receive_timeout(Duration::from_secs(60));
    last.unwrap().expect("there is one").ack().unwrap();
}
