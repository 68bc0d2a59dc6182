//! P10: no death, silence or bad byte of a client harms the owner or another client.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use mmq::{Client, Error, OnFull, Options};

use super::owner;
use crate::support::{Random, effort, eventually, seed, tempdir, within};

const SOON: Duration = Duration::from_secs(60);
const HELLO: u16 = 1;
const ENQUEUE: u16 = 2;
const DEQUEUE: u16 = 21;

/// A frame, put together by what docs/share.md says.
pub(super) fn frame(number: u64, call: u16, consumer: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(call.to_le_bytes());
    bytes.extend(consumer.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(body);
    bytes
}

fn connect(dir: &Path) -> UnixStream {
    UnixStream::connect(dir.join("socket")).unwrap()
}

fn greeting() -> Vec<u8> {
    frame(1, HELLO, 0, b"mmqshare\x01\0\0\0")
}

pub(super) fn greeted(dir: &Path) -> UnixStream {
    let mut stream = connect(dir);
    stream.write_all(&greeting()).unwrap();
    let mut answer = [0; 24 + 32];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[16..18], [0, 0], "the greeting was accepted");
    stream
}

/// Every call still works, for the owner and for another client.
fn goes_on(dir: &Path, queue: &mmq::Queue) {
    let client = Client::connect(dir).unwrap();
    let seq = client.enqueue("still there").unwrap();
    let reader = client.default_consumer();
    reader.seek(seq).unwrap();
    assert_eq!(reader.dequeue().unwrap().unwrap().seq(), seq);
    queue.enqueue("here too").unwrap();
    assert!(queue.dequeue().unwrap().is_some());
}

#[test]
fn no_bytes_of_a_client_harm() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let mut random = Random::new(seed("no_bytes_of_a_client_harm"));
    for _ in 0..60 * effort() {
        let mut bytes = if random.chance(4) { Vec::new() } else { greeting() };
        for number in 0..random.below(20) {
            let len = random.size(0..=60);
            let mut body: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            if random.chance(2) {
                body.iter_mut().for_each(|byte| *byte &= 3);
            }
            let call = random.below(40) as u16;
            bytes.extend(frame(number, call, random.below(3) as u16, &body));
        }
        for _ in 0..random.below(3) {
            if !bytes.is_empty() {
                let at = random.size(0..=bytes.len() - 1);
                bytes[at] ^= 1 << random.below(8);
            }
        }
        let cut = random.size(0..=bytes.len());
        let mut stream = connect(dir.path());
        stream.set_write_timeout(Some(SOON)).unwrap();
        // The owner may end the connection before it has read all.
        let _ = stream.write_all(&bytes[..if random.chance(3) { cut } else { bytes.len() }]);
        if random.chance(2) {
            stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            let _ = stream.read(&mut [0; 500]);
        }
    }
    goes_on(dir.path(), &queue);
    let client = Client::connect(dir.path()).unwrap();
    eventually("they have left", || client.connected().unwrap().len() == 1);
}

#[test]
fn a_frame_that_is_too_long_is_refused() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    for len in [(16 << 20) + (2 << 20), 1 << 40, u64::MAX] {
        let mut stream = greeted(dir.path());
        let mut header = frame(9, ENQUEUE, 0, &[]);
        header[8..16].copy_from_slice(&len.to_le_bytes());
        stream.write_all(&header).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!((answer[0], answer[16]), (9, 18), "MMQ_MESSAGE_TOO_LARGE, then the end");
    }
    assert!(queue.is_empty());
    goes_on(dir.path(), &queue);
}

#[test]
fn another_version_is_told_so() {
    let dir = tempdir().unwrap();
    let _queue = owner(dir.path());
    for greeting in [&b"mmqshare\x02\0\0\0"[..], b"mmqshare", b"GET / HTTP/1.1\r\n"] {
        let mut stream = connect(dir.path());
        stream.write_all(&frame(1, HELLO, 0, greeting)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[16], 32, "MMQ_NOT_SHARED");
    }
}

#[test]
fn who_does_not_read_its_answers_holds_up_nobody() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let message = vec![7; 60_000];
    for _ in 0..100 {
        queue.enqueue(&message).unwrap();
    }
    let mut stream = greeted(dir.path());
    stream.set_nonblocking(true).unwrap();
    // It asks for much more than a socket holds, until the owner reads no more of it.
    let peek = frame(2, 20, 0, &[]);
    while stream.write(&peek).is_ok_and(|written| written == peek.len()) {}
    let path = dir.path().to_owned();
    within(SOON, move || {
        goes_on(&path, &queue);
        queue.close().unwrap();
        // Its connection is ended, so that the close is too.
        drop(stream);
    });
}

#[test]
fn what_a_dead_client_had_comes_again_at_once() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    let workers = queue.consumer("workers").unwrap();
    let rules = mmq::Redelivery::new().lease(10 * SOON).backoff(10 * SOON, 10 * SOON);
    workers.set_redelivery(rules).unwrap();
    let mut client = greeted(dir.path());
    client.write_all(&frame(2, 16, 0, b"\0\0\0\0\0\0\0\0\0workers")).unwrap();
    client.write_all(&frame(3, 22, 1, b"\x03\0\0\0\0\0\0\0\0\0\0\0")).unwrap();
    eventually("it has all three", || workers.in_flight() == 3);
    // As at the end of its process: nothing is told.
    drop(client);
    let mut again: Vec<_> =
        (0..3).map(|_| workers.receive_timeout(SOON).unwrap().unwrap()).collect();
    again.sort_by_key(mmq::Delivery::seq);
    let seen: Vec<_> = again.iter().map(|job| (job.seq(), job.attempts())).collect();
    assert_eq!(seen, [(0, 2), (1, 2), (2, 2)]);
    mmq::Delivery::ack_batch(again).unwrap();
}

/// Asks, and returns status and body of the answer's first frame.
fn asked(stream: &mut UnixStream, call: u16, consumer: u16, body: &[u8]) -> (u8, Vec<u8>) {
    stream.write_all(&frame(9, call, consumer, body)).unwrap();
    let mut header = [0; 24];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; u64::from_le_bytes(*header[8..].first_chunk().unwrap()) as usize];
    stream.read_exact(&mut body).unwrap();
    (header[16], body)
}

/// Opens these consumers; their numbers are 1, 2 and so on.
fn opened(stream: &mut UnixStream, names: &[&str]) {
    for name in names {
        let body = [&[0; 9], name.as_bytes()].concat();
        assert_eq!(asked(stream, 16, 0, &body).0, 0);
    }
}

#[test]
fn what_a_dead_client_asked_holds_up_nothing_of_what_it_had() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    queue.enqueue("a").unwrap();
    let workers = queue.consumer("workers").unwrap();
    let mut forwards = greeted(dir.path());
    opened(&mut forwards, &["forward"]);
    assert_eq!(asked(&mut forwards, 32, 1, &[]).0, 0);
    let mut client = greeted(dir.path());
    opened(&mut client, &["forward", "workers"]);
    assert_eq!(asked(&mut client, 22, 2, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).0, 0);
    // Each waits for the forwarder before it: half an hour in all.
    let questions: Vec<u8> = (0..2500).flat_map(|_| frame(9, 32, 1, &[])).collect();
    client.write_all(&questions).unwrap();
    drop(client);
    assert!(workers.receive_timeout(SOON).unwrap().is_some());
}

#[test]
fn a_client_gets_no_more_memory_than_is_said() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let mut client = greeted(dir.path());
    let many = (1u32 << 16) + 1;
    let mut batch = many.to_le_bytes().to_vec();
    batch.resize(4 + 4 * many as usize, 0);
    let (status, said) = asked(&mut client, 3, 0, &batch);
    assert!(status == 16 && String::from_utf8_lossy(&said).contains("at most 65536"));
    for _ in 0..3 {
        queue.enqueue_batch(std::iter::repeat_n("", 30_000)).unwrap();
    }
    opened(&mut client, &["forward", "other"]);
    assert_eq!(asked(&mut client, 32, 1, &[]).0, 0);
    assert_eq!(asked(&mut client, 33, 1, &[0; 8]).0, 0);
    // Another consumer, and a question that nothing may answer.
    assert_eq!(asked(&mut client, 32, 2, &[]).0, 16);
    client.write_all(&frame(0, 34, 1, &[0; 8])).unwrap();
    // It acknowledges nothing.
    let mut read = 0;
    let said = loop {
        let (mut status, mut body) = asked(&mut client, 34, 1, &[0; 8]);
        while status == 0 && body.len() == 24 {
            read += 1;
            let mut header = [0; 24];
            client.read_exact(&mut header).unwrap();
            body = vec![0; header[8] as usize];
            client.read_exact(&mut body).unwrap();
            status = header[16];
        }
        if status != 0 {
            break String::from_utf8_lossy(&body).into_owned();
        }
    };
    assert!(said.contains("acknowledge some first"), "{said}");
    assert!((1 << 16..(1 << 16) + 64).contains(&read), "{read}");
    goes_on(dir.path(), &queue);
}

#[test]
fn there_is_room_for_64_clients_and_dead_ones_make_room() {
    let dir = tempdir().unwrap();
    let wait = OnFull::Wait(None);
    let queue =
        Options::new().shared(true).max_bytes(1 << 20).on_full(wait).open(dir.path()).unwrap();
    let mut clients = Vec::new();
    // Two of them wait for messages and for room when they die.
    let mut waits = greeted(dir.path());
    waits.write_all(&frame(2, DEQUEUE, 0, &u64::MAX.to_le_bytes())).unwrap();
    queue.consumer("keeps").unwrap();
    let mut fills = greeted(dir.path());
    let message = frame(3, ENQUEUE, 0, &[0; 60_000]);
    fills.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    while fills.write_all(&message).is_ok() {}
    clients.extend((0..62).map(|_| Client::connect(dir.path()).unwrap()));
    let refused = Client::connect(dir.path()).unwrap_err();
    assert!(matches!(&refused, Error::NotShared { .. }), "{refused}");
    assert!(refused.to_string().contains("64 clients"), "{refused}");
    drop((waits, fills));
    eventually("the dead ones have left", || clients[0].connected().unwrap().len() == 62);
    let late = Client::connect(dir.path()).unwrap();
    assert_eq!(late.connected().unwrap().len(), 63);
    assert!(late.connected().unwrap().iter().all(|client| client.pid == std::process::id()));
}

#[test]
fn clients_that_never_speak_take_no_place_for_long() {
    let dir = tempdir().unwrap();
    let _queue = owner(dir.path());
    let silent: Vec<_> = (0..64).map(|_| connect(dir.path())).collect();
    eventually("there is room again", || Client::connect(dir.path()).is_ok());
    drop(silent);
}

#[test]
fn a_wait_ends_when_the_client_says_so() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let mut stream = greeted(dir.path());
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&frame(7, DEQUEUE, 0, &u64::MAX.to_le_bytes())).unwrap();
    for (ends, answered) in [(7u64, &[7, 8][..]), (7, &[8])] {
        stream.write_all(&frame(8, 28, 0, &ends.to_le_bytes())).unwrap();
        for number in answered {
            let mut answer = [0; 24];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!((answer[0], answer[16]), (*number, if *number == 7 { 3 } else { 0 }));
        }
    }
    queue.enqueue("for nobody").unwrap();
    assert_eq!(queue.len(), 1);
}

#[test]
fn questions_are_answered_in_their_order_however_many_come_at_once() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    queue.consumer("keeps").unwrap();
    let mut stream = greeted(dir.path());
    stream.set_read_timeout(Some(SOON)).unwrap();
    // A read that finds nothing, and a message behind it, many times in one piece; and a read that
    // nobody would get the answer to.
    let mut asked = Vec::new();
    for number in 0..100u64 {
        asked.extend(frame(2 * number + 2, DEQUEUE, 0, &0u64.to_le_bytes()));
        asked.extend(frame(2 * number + 3, ENQUEUE, 0, b"m"));
        asked.extend(frame(0, DEQUEUE, 0, &0u64.to_le_bytes()));
    }
    stream.write_all(&asked).unwrap();
    for number in 0..200u64 {
        let mut header = [0; 24];
        stream.read_exact(&mut header).unwrap();
        assert_eq!(header[..8], (number + 2).to_le_bytes(), "answer {number}");
        let is_first = number == 0;
        assert_eq!(header[16], u8::from(is_first), "only the first read found nothing");
        stream.read_exact(&mut vec![0; header[8].into()]).unwrap();
    }
    assert_eq!(queue.len(), 1, "what the last enqueue put in");
}
