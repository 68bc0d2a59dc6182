//! A forwarder that is a client, or whatever it can be.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use mmq::forward::{
    Destination, ForwardEnd, ForwardOptions, Halt, Held, Limits, Mark, Outgoing, Source, Trouble,
};
use mmq::{Client, Error, Options, Queue, open_or_connect};

use super::hostile::frame;
use super::owner;
use crate::support::{eventually, tempdir, within};

const SOON: Duration = Duration::from_secs(60);

/// What a far side has stored: number, sum, how many ranges are missing before it, its time.
type Stored = Arc<Mutex<Vec<(u64, u32, usize, Option<SystemTime>)>>>;

#[derive(Clone, Default)]
struct Far(Stored);

impl Far {
    fn numbers(&self) -> Vec<u64> {
        self.0.lock().unwrap().iter().map(|(seq, ..)| *seq).collect()
    }

    fn forget_behind(&self, seq: u64) {
        self.0.lock().unwrap().retain(|stored| stored.0 < seq);
    }
}

impl Destination for Far {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        Ok(match self.0.lock().unwrap().last() {
            Some((seq, sum, ..)) => Held::Until { seq: *seq, sum: Some(*sum) },
            None => Held::Nothing,
        })
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let stored = |it: &Outgoing<'_>| (it.seq, it.sum, it.missing_before.len(), it.segment_time);
        self.0.lock().unwrap().extend(messages.iter().map(stored));
        Ok(())
    }

    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        Ok(self.0.lock().unwrap().last().map_or(0, |(seq, ..)| seq + 1))
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

fn enqueue(queue: &Queue, messages: u64) {
    for _ in 0..messages {
        queue.enqueue([7; 100]).unwrap();
    }
}

#[test]
fn a_client_forwards_what_the_owner_puts_in() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let (client, far) = (Client::connect(dir.path()).unwrap(), Far::default());
    let forward = || client.forwarder("forward", far.clone()).keep(50, 1 << 20).once().unwrap();
    enqueue(&queue, 1000);
    assert_eq!(forward(), ForwardEnd::Drained);
    assert_eq!(far.numbers(), (0..1000).collect::<Vec<_>>());
    let stats = queue.consumer("forward").unwrap().stats();
    assert_eq!((stats.messages, stats.next_seq, stats.kept), (0, 1000, 50));
    assert!(stats.acknowledged_at.is_some());
    // What is kept is sent again; what is not is reported as missing.
    far.forget_behind(960);
    forward();
    assert_eq!(far.numbers(), (0..1000).collect::<Vec<_>>());
    far.forget_behind(900);
    enqueue(&queue, 1);
    forward();
    assert_eq!(far.numbers(), (0..900).chain(950..1001).collect::<Vec<_>>());
    assert_eq!(far.0.lock().unwrap()[900].2, 1);
}

#[test]
fn a_clients_forwarder_sends_the_time_of_a_segment_if_it_is_wanted() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Client::connect(dir.path()).unwrap();
    let mut options = ForwardOptions::default();
    let far = Far::default();
    for wanted in [false, true] {
        options.times = wanted;
        let seq = queue.enqueue("a message").unwrap();
        client.forwarder("forward", far.clone()).options(options.clone()).once().unwrap();
        let time = queue.segment_time(seq).filter(|_| wanted);
        assert_eq!(far.0.lock().unwrap().last().unwrap().3, time);
    }
}

#[test]
fn a_clients_forwarder_tells_of_gaps_and_of_an_older_copy() {
    let dir = tempdir().unwrap();
    let (path, copy) = (dir.path().join("queue"), dir.path().join("copy"));
    let options = Options::new().shared(true).max_bytes(1 << 20).arena_size(64 << 10);
    let options = options.on_full(mmq::OnFull::DropOldest);
    let queue = options.open(&path).unwrap();
    queue.consumer("forward").unwrap();
    enqueue(&queue, 20_000);
    let far = Far::default();
    let client = Client::connect(&path).unwrap();
    client.forwarder("forward", far.clone()).once().unwrap();
    let numbers = far.numbers();
    assert!(numbers.len() > 1000 && numbers[0] > 1000, "{numbers:?}");
    assert_eq!(numbers, (numbers[0]..20_000).collect::<Vec<_>>());
    assert_eq!(far.0.lock().unwrap()[0].2, 1);
    queue.copy_to(&copy, mmq::CopiedId::Same, |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    let queue = options.open(&path).unwrap();
    enqueue(&queue, 10);
    let client = Client::connect(&path).unwrap();
    client.forwarder("forward", far.clone()).once().unwrap();
    let _copy = options.open(&copy).unwrap();
    let client = Client::connect(&copy).unwrap();
    let halt = client.forwarder("forward", far).once().unwrap_err();
    assert!(matches!(halt, Halt::OlderCopy { .. }), "{halt}");
}

#[test]
fn one_forwarder_at_a_time_reads_as_a_consumer_and_its_death_lets_the_next_one_in() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Client::connect(dir.path()).unwrap();
    let mut first = client.forwarder("forward", Far::default());
    let (stop, watch) = (first.stop(), first.watch());
    let first = std::thread::spawn(move || first.run());
    eventually("it runs", || watch.progress().sessions == 1);
    let halt = client.forwarder("forward", Far::default()).once().unwrap_err();
    assert!(halt.to_string().contains("belongs to another forwarder"), "{halt}");
    stop.stop();
    assert_eq!(first.join().unwrap().unwrap(), ForwardEnd::Stopped);
    client.forwarder("forward", Far::default()).once().unwrap();
    drop(queue);
}

#[test]
fn the_close_of_the_queue_ends_a_clients_forwarder() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Client::connect(dir.path()).unwrap();
    let mut forwarder = client.forwarder("forward", Far::default());
    let watch = forwarder.watch();
    let running = std::thread::spawn(move || forwarder.run());
    eventually("it runs", || watch.progress().sessions == 1);
    queue.close().unwrap();
    let ended = within(SOON, move || running.join().unwrap());
    let is_end =
        matches!(ended, Ok(ForwardEnd::Closed) | Err(Halt::Queue(Error::Disconnected { .. })));
    assert!(is_end, "{ended:?}");
}

/// An owner that ends in the middle of an answer has sent messages before.
#[test]
fn an_answer_that_ends_with_an_error_is_one() {
    let dir = tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let id = [7; 16];
    let answer = |stream: &mut UnixStream, status: u16, more: u8, body: &[u8]| {
        let mut header = [0; 24];
        stream.read_exact(&mut header).unwrap();
        let len = u64::from_le_bytes(*header[8..].first_chunk().unwrap());
        stream.read_exact(&mut vec![0; len as usize]).unwrap();
        let number = u64::from_le_bytes(*header.first_chunk().unwrap());
        let mut frame = frame(number, status, 0, body);
        frame[20] = more;
        stream.write_all(&frame).unwrap();
        number
    };
    let places = [0; 104];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let hello = [&[1, 0, 0, 0][..], &[0; 4], &(16u64 << 20).to_le_bytes(), &id].concat();
            let (mut client, _) = listener.accept().unwrap();
            answer(&mut client, 0, 0, &hello);
            let (mut forwarder, _) = listener.accept().unwrap();
            answer(&mut forwarder, 0, 0, &hello);
            answer(&mut forwarder, 0, 0, &[1, 0]); // the consumer
            // Begin, acknowledged, from there on; then a message, and the end.
            for _ in 0..3 {
                answer(&mut forwarder, 0, 0, &places);
            }
            let number = answer(&mut forwarder, 0, 1, &[0; 25]);
            let closed = [&[255; 32][..], &[0; 4]].concat();
            forwarder.write_all(&frame(number, 25, 0, &closed)).unwrap();
        });
        let client = Client::connect(dir.path()).unwrap();
        let ended = client.forwarder("forward", Far::default()).once();
        assert_eq!(ended.unwrap(), ForwardEnd::Closed);
    });
}

#[test]
fn a_handles_forwarder_goes_on_whoever_has_the_queue() {
    let dir = tempdir().unwrap();
    let far = Far::default();
    let mut queue = Some(owner(dir.path()));
    let handle = open_or_connect(dir.path(), &Options::new()).unwrap();
    assert!(!handle.is_owner());
    let mut forwarder = handle.forwarder("forward", far.clone()).unwrap();
    let stop = forwarder.stop();
    let running = std::thread::spawn(move || forwarder.run());
    let mut messages = 0;
    let all_are_there = |messages: u64| {
        eventually("all are there", || far.numbers().len() as u64 >= messages);
        assert_eq!(far.numbers(), (0..messages).collect::<Vec<_>>());
    };
    enqueue(queue.as_ref().unwrap(), 100);
    messages += 100;
    all_are_there(messages);
    queue.take().unwrap().close().unwrap();
    // Now the handle has it.
    for _ in 0..100 {
        handle.enqueue([7; 100]).unwrap();
    }
    messages += 100;
    all_are_there(messages);
    assert!(handle.is_owner());
    stop.stop();
    assert_eq!(running.join().unwrap().unwrap(), ForwardEnd::Stopped);
}
