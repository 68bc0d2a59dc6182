//! The examples on a queue of 4,000 messages with six flipped bytes: each reports the six damaged
//! messages and reads all others. (`tests/c_api/gaps.rs` has the examples in C and C++ and the
//! programs of the README and of `mmq.h`.)

// The examples themselves, whose `main` nobody calls here.
#[allow(dead_code)]
#[path = "../../examples/bounded_spool.rs"]
mod bounded_spool;
#[allow(dead_code)]
#[path = "../../examples/fan_out.rs"]
mod fan_out;
#[allow(dead_code)]
#[path = "../../examples/fresh_first.rs"]
mod fresh_first;
#[allow(dead_code)]
#[path = "../../examples/hello.rs"]
mod hello;
#[allow(dead_code)]
#[path = "../../examples/producer_consumer.rs"]
mod producer_consumer;
#[allow(dead_code)]
#[path = "../../examples/recovery.rs"]
mod recovery;
#[cfg(feature = "async")]
#[allow(dead_code)]
#[path = "../../examples/select.rs"]
mod select;
#[allow(dead_code)]
#[path = "../../examples/threads.rs"]
mod threads;
#[allow(dead_code)]
#[path = "../../examples/workers.rs"]
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::flipped::{DAMAGED, MESSAGES, WHOLE};
use mmq::{Delivery, Error, Gap, GapCause, Queue, past_gaps};

fn job(number: u64) -> Vec<u8> {
    format!("job number {number:08} of many").into()
}

/// A damaged queue in a directory of its own.
fn damaged(payload: impl Fn(u64) -> Vec<u8>) -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    crate::flipped::make(dir.path(), payload);
    let queue = Queue::open(dir.path()).unwrap();
    (dir, queue)
}

/// All that can come came, and all that cannot was reported.
#[track_caller]
fn read_to_the_end(queue: &Queue) {
    let stats = queue.stats();
    assert_eq!((stats.lost_messages, stats.gaps), (DAMAGED.len() as u64, DAMAGED.len() as u64 - 1));
}

#[test]
fn hello_reads_all_that_is_left() {
    let (_dir, queue) = damaged(job);
    assert_eq!(hello::read(&queue).unwrap(), WHOLE);
    read_to_the_end(&queue);
    assert!(queue.is_empty());
}

#[test]
fn producer_consumer_reads_all_that_is_left() {
    let (_dir, queue) = damaged(job);
    assert_eq!(
        producer_consumer::consume(&queue, MESSAGES).unwrap(),
        (WHOLE, WHOLE as usize * job(0).len())
    );
    read_to_the_end(&queue);
}

#[test]
fn threads_reads_all_that_is_left() {
    let payload = |number: u64| [(number % 4).to_le_bytes(), (number / 4).to_le_bytes()].concat();
    // What comes behind those sixteen bytes makes each message one of its kind.
    let unique = |number: u64| {
        [payload(number), (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().into()]
            .concat()
    };
    let (_dir, queue) = damaged(unique);
    let passed = AtomicU64::new(0);
    let received = std::thread::scope(|scope| {
        let consumers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| threads::consume(&queue, MESSAGES, &passed))).collect();
        consumers
            .into_iter()
            .flat_map(|consumer| consumer.join().unwrap().unwrap())
            .collect::<Vec<_>>()
    });
    let mut numbers: Vec<u64> =
        received.into_iter().map(|(producer, number)| 4 * number + producer).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq((0..MESSAGES).filter(|number| !DAMAGED.contains(number))));
    read_to_the_end(&queue);
}

#[test]
fn recovery_reads_all_that_is_left_and_says_what_was_lost() {
    let (_dir, queue) =
        damaged(|number| format!("round long enough to be found once, message {number}").into());
    // What is lost is no success, were there as many as were acknowledged or not.
    let error = recovery::examine(&queue, "long enough to be found once", WHOLE).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{WHOLE} messages were acknowledged, {WHOLE} are there, {} are lost",
            DAMAGED.len()
        )
    );
    read_to_the_end(&queue);
}

#[test]
fn fan_out_reads_all_that_is_left_for_each_consumer() {
    let (_dir, queue) = damaged(job);
    for name in ["one", "two"] {
        assert_eq!(fan_out::read_all(&queue.consumer(name).unwrap()).unwrap(), WHOLE);
    }
}

#[test]
fn bounded_spool_sends_all_that_is_left() {
    let (_dir, queue) = damaged(job);
    let uplink = queue.consumer("uplink").unwrap();
    assert_eq!(bounded_spool::send_all(&uplink).unwrap(), WHOLE);
    assert_eq!((uplink.len(), uplink.in_flight()), (0, 0));
    read_to_the_end(&queue);
}

#[test]
fn workers_do_all_that_is_left() {
    let (_dir, queue) = damaged(job);
    let workers = queue.consumer("workers").unwrap();
    let letters = crate::support::tempdir().unwrap();
    let dead = Arc::new(Queue::open(letters.path()).unwrap());
    let workers::Outcome { done, failed, lost } = workers::work(&workers, &dead).unwrap();
    // Every tenth fails once: of 3, 13, 23, ... all but the one that is damaged.
    let tenth =
        (0..MESSAGES).filter(|number| number % 10 == 3 && !DAMAGED.contains(number)).count() as u64;
    assert_eq!((done, failed, lost), (WHOLE, tenth, DAMAGED.len() as u64));
    assert_eq!((workers.len(), workers.in_flight(), dead.len()), (0, 0, 0));
    read_to_the_end(&queue);
}

/// Reads on: the numbers taken, and those reported.
type Reads<'a> = dyn FnMut(&mut Vec<u64>) -> mmq::Result<Option<Vec<u64>>> + 'a;

/// The numbers of a gap.
fn numbers(gap: Gap) -> std::ops::RangeInclusive<u64> {
    assert_eq!(gap.cause, GapCause::Damaged);
    gap.first..=gap.last
}

#[test]
fn every_way_to_read_goes_on_behind_gaps_and_reports_each_number_once() {
    let (_dir, queue) = damaged(job);
    let consumer = |name: &str| queue.consumer(name).unwrap();
    let wanted: Vec<u64> = (0..MESSAGES).filter(|number| !DAMAGED.contains(number)).collect();
    let check = |read: &mut Reads| {
        let (mut taken, mut reported) = (Vec::new(), Vec::new());
        while let Some(seqs) = read(&mut reported).unwrap() {
            taken.extend(seqs);
        }
        assert!(
            taken == wanted && reported == DAMAGED,
            "{} taken, reported {reported:?}",
            taken.len()
        );
    };

    let (one, two, three, four) = (consumer("1"), consumer("2"), consumer("3"), consumer("4"));
    check(&mut |reported| {
        Ok(past_gaps(|| one.dequeue(), |gap| reported.extend(numbers(gap)))?.map(|m| vec![m.seq()]))
    });
    let mut buffer = Vec::new();
    check(&mut |reported| {
        Ok(past_gaps(|| two.dequeue_into(&mut buffer), |gap| reported.extend(numbers(gap)))?
            .map(|seq| vec![seq]))
    });
    check(&mut |reported| {
        let batch = past_gaps(|| three.dequeue_batch(50), |gap| reported.extend(numbers(gap)))?;
        Ok((!batch.is_empty()).then(|| batch.iter().map(|message| message.seq()).collect()))
    });
    check(&mut |reported| {
        let Some(delivery) = past_gaps(|| four.receive(), |gap| reported.extend(numbers(gap)))?
        else {
            return Ok(None);
        };
        let seq = delivery.seq();
        delivery.ack().map(|()| Some(vec![seq]))
    });

    let (mut taken, mut reported) = (Vec::new(), Vec::new());
    for message in queue.iter().past_gaps(|gap| reported.extend(numbers(gap))) {
        taken.push(message.unwrap().seq());
    }
    assert!(taken == wanted && reported == DAMAGED);

    let (mut taken, mut reported) = (Vec::new(), Vec::new());
    let work = |job: &Delivery| {
        taken.push(job.seq());
        Ok::<_, Error>(())
    };
    queue.for_each(work, |gap| reported.extend(numbers(gap))).unwrap();
    assert!(taken == wanted && reported == DAMAGED);
}

#[test]
fn fresh_first_sends_all_that_is_left_in_both_lanes() {
    let (_dir, queue) = damaged(job);
    let link = queue.consumer("link").unwrap();
    let lanes = link.lanes(mmq::LaneOptions::new()).unwrap();
    let mut sent = fresh_first::Sent::default();
    fresh_first::send(&lanes, 1000, &mut sent).unwrap();
    lanes.jump().unwrap();
    fresh_first::send(&lanes, MESSAGES, &mut sent).unwrap();
    assert_eq!((sent.fresh, sent.fresh + sent.late), (1000, WHOLE));
    assert_eq!(sent.lost, DAMAGED.len() as u64);
}

#[cfg(feature = "async")]
#[test]
fn select_sends_all_that_is_left() {
    let (_dir, queue) = damaged(job);
    let link = queue.consumer("link").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let sent = runtime.block_on(async {
        let (all_in, stop) = tokio::sync::oneshot::channel();
        all_in.send(()).unwrap();
        select::send(&link, stop).await.unwrap()
    });
    assert_eq!((sent.readings, sent.lost), (WHOLE, DAMAGED.len() as u64));
}

#[test]
fn work_that_fails_stops_returns_its_error_and_comes_again() {
    let (_dir, queue) = damaged(job);
    let workers = queue.consumer("workers").unwrap();
    let mut done = 0;
    let until = |end: u64, done: &mut u64| {
        workers.for_each(
            |job| {
                if job.seq() == end && job.attempts() == 1 {
                    return Err(std::io::Error::other("on purpose"));
                }
                *done += 1;
                Ok(())
            },
            |_| {},
        )
    };
    assert_eq!(until(100, &mut done).unwrap_err().to_string(), "on purpose");
    assert_eq!((done, workers.in_flight()), (98, 0));
    assert_eq!(workers.peek().unwrap().unwrap().seq(), 100, "what failed is the next one");
    // A panic gives it back as well.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let work = |_: &Delivery| -> mmq::Result<()> { panic!("on purpose") };
        workers.for_each(work, |_| {})
    }));
    assert!(panicked.is_err() && workers.in_flight() == 0);
    until(100, &mut done).unwrap();
    assert_eq!((done, workers.len()), (WHOLE, 0));
    // An error of the queue's own comes as one of the caller's kind.
    queue.close().unwrap();
    let closed = workers.for_each(|_| Ok::<_, std::io::Error>(()), |_| {}).unwrap_err();
    assert_eq!(closed.kind(), std::io::ErrorKind::BrokenPipe);
}
