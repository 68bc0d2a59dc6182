//! Two lanes over one consumer, as a program uses them.

mod outages;
mod standstill;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mmq::{Backlog, Consumer, Error, Fresh, LaneOptions, Lanes, Queue};

const LONG: Duration = Duration::from_secs(600);

/// Ends the process as a crash does: nothing is closed.
fn die() -> ! {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    unreachable!("the process was killed")
}

fn queue() -> (tempfile::TempDir, Queue) {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path().join("q")).unwrap();
    (dir, queue)
}

fn put(queue: &Queue, count: u64) {
    for _ in 0..count {
        queue.enqueue(queue.stats().next_seq.to_string()).unwrap();
    }
}

/// The next messages of both lanes, acknowledged; those of the backlog below zero.
fn next(lanes: &Lanes, count: usize) -> Vec<i64> {
    let mut came = Vec::new();
    while came.len() < count {
        let Some(message) = lanes.receive().unwrap() else { break };
        assert_eq!(message.as_str().unwrap(), message.seq().to_string());
        let seq = i64::try_from(message.seq()).unwrap();
        came.push(if message.is_backlog() { -seq } else { seq });
        message.ack().unwrap();
    }
    came
}

fn ranges(lanes: &Lanes) -> String {
    format!("{:?}", lanes.backlog())
}

#[test]
fn lanes_share_and_what_one_does_not_need_the_other_gets() {
    let (_dir, queue) = queue();
    let link = queue.consumer("link").unwrap();
    let lanes = link.lanes(LaneOptions::new().share(3, 2)).unwrap();
    put(&queue, 6);
    assert_eq!(lanes.jump().unwrap(), 0..6);
    assert_eq!(lanes.jump().unwrap(), 6..6, "nothing waits");
    put(&queue, 6);
    assert_eq!(next(&lanes, 12), [6, 7, 8, 0, -1, 9, 10, 11, -2, -3, -4, -5]);
    assert_eq!((next(&lanes, 1), ranges(&lanes)), (vec![], "[]".to_owned()));
    assert!(link.is_empty());
    // Nobody's turn was counted for what the backlog got beside the others.
    put(&queue, 1);
    assert_eq!(next(&lanes, 1), [12]);
}

#[test]
fn the_newest_stretch_comes_first_and_each_is_in_order() {
    let (_dir, queue) = queue();
    let link = queue.consumer("link").unwrap();
    let options = LaneOptions::new().share(1, 0).order(Backlog::NewestStretchFirst);
    let lanes = link.lanes(options.clone()).unwrap();
    for _ in 0..3 {
        put(&queue, 3);
        lanes.jump().unwrap();
        put(&queue, 1);
        assert!(next(&lanes, 1)[0] > 0);
    }
    assert_eq!(ranges(&lanes), "[0..3, 4..7, 8..11]");
    assert_eq!(next(&lanes, 4), [-8, -9, -10, -4]);
    assert_eq!(ranges(&lanes), "[0..3, 5..7]");
    // As a consumer without lanes has it: the oldest message first.
    assert_eq!(link.peek().unwrap().unwrap().seq(), 0);
    assert!(link.iter().map(|it| it.unwrap().seq()).eq([0, 1, 2, 5, 6]));
    assert_eq!(link.dequeue().unwrap().unwrap().seq(), 0);
    assert_eq!((link.skip().unwrap(), ranges(&lanes)), (Some(1), "[2..3, 5..7]".to_owned()));
    let batch = link.dequeue_batch(2).unwrap();
    assert!(batch.iter().map(|message| message.seq()).eq([2, 5]));
    // Options may change at any time.
    let lanes = link.lanes(options.order(Backlog::OldestFirst)).unwrap();
    assert_eq!(next(&lanes, 2), [-6]);
    assert_eq!(link.stats().next_seq, 12);
}

#[test]
fn a_seek_leaves_nothing_behind_and_a_removed_consumer_has_no_lanes() {
    let (_dir, queue) = queue();
    let link = queue.consumer("link").unwrap();
    let lanes = link.lanes(LaneOptions::new()).unwrap();
    put(&queue, 5);
    lanes.jump().unwrap();
    put(&queue, 2);
    let held = lanes.receive_backlog().unwrap().unwrap();
    link.seek(3).unwrap();
    held.ack().unwrap();
    assert_eq!((ranges(&lanes), next(&lanes, 9)), ("[]".to_owned(), vec![3, 4, 5, 6]));
    put(&queue, 1);
    lanes.jump().unwrap();
    let fork = link.fork("other").unwrap();
    assert_eq!(fork.dequeue().unwrap().unwrap().seq(), 7);
    queue.remove_consumer("link").unwrap();
    for outcome in [lanes.receive(), lanes.receive_fresh(), lanes.receive_backlog()] {
        assert!(matches!(outcome, Err(Error::NotFound { .. })));
    }
    assert!(matches!(lanes.jump(), Err(Error::NotFound { .. })));
    assert!(lanes.backlog().is_empty());
    let anew = queue.consumer("link").unwrap();
    let lanes = anew.lanes(LaneOptions::new()).unwrap();
    queue.close().unwrap();
    assert!(matches!(lanes.receive(), Err(Error::Closed)));
    assert!(matches!(lanes.receive_timeout(LONG), Err(Error::Closed)));
    assert!(matches!(lanes.jump(), Err(Error::Closed)) && lanes.backlog().is_empty());
    assert!(matches!(anew.lanes(LaneOptions::new()), Err(Error::Closed)));
}

#[test]
fn options_that_hand_nothing_out_are_refused() {
    let (_dir, queue) = queue();
    let link = queue.consumer("link").unwrap();
    let refused = |options: LaneOptions, what: &str| {
        let error = link.lanes(options).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(LaneOptions::new().share(0, 0), "share");
    refused(LaneOptions::new().backlog_rate(0), "backlog_rate");
    refused(LaneOptions::new().fresh_within(Fresh::Messages(0)), "fresh_within");
    refused(
        LaneOptions::new().fresh_within(Fresh::Age(Duration::from_micros(999))),
        "fresh_within",
    );
    // Ages and times that overflow every clock are for ever.
    let longest = LaneOptions::new().fresh_within(Fresh::Age(Duration::MAX)).backlog_rate(u64::MAX);
    let lanes = link.lanes(longest).unwrap();
    put(&queue, 3);
    lanes.jump().unwrap();
    assert_eq!(next(&lanes, 9), [0, -1, -2]);
}

#[test]
fn who_waits_for_one_lane_is_not_woken_for_the_other() {
    let (_dir, queue) = queue();
    let link = queue.consumer("link").unwrap();
    let lanes = link.lanes(LaneOptions::new()).unwrap();
    let (fresh, late) = (AtomicU64::new(0), AtomicU64::new(0));
    const MESSAGES: u64 = 3000;
    let read = |lane: fn(&Lanes) -> mmq::Result<Option<mmq::Delivery>>, count: &AtomicU64| {
        loop {
            match lane(&lanes) {
                Ok(Some(message)) => {
                    message.ack().unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
                Ok(None) => panic!("ten minutes are not over"),
                Err(Error::Closed) => return,
                Err(error) => panic!("{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read(|lanes| lanes.receive_fresh_timeout(LONG), &fresh));
            scope.spawn(|| read(|lanes| lanes.receive_backlog_timeout(LONG), &late));
        }
        for round in 0..MESSAGES {
            put(&queue, 1);
            if round % 50 == 49 {
                lanes.jump().unwrap();
            }
        }
        crate::support::eventually("all are read", || link.is_empty());
        queue.close().unwrap();
    });
    assert_eq!(fresh.load(Ordering::SeqCst) + late.load(Ordering::SeqCst), MESSAGES);
}

#[test]
fn who_waits_for_the_backlog_learns_of_a_jump_that_another_thread_makes() {
    let (_dir, queue) = queue();
    let link = queue.consumer("link").unwrap();
    let lanes = link.lanes(LaneOptions::new().fresh_within(Fresh::Messages(5))).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            for seq in 0..6 {
                let message = lanes.receive_backlog_timeout(LONG).unwrap().unwrap();
                assert_eq!(message.seq(), seq);
                message.ack().unwrap();
            }
        });
        put(&queue, 6);
        // It was woken for these, and waits again by now or soon.
        std::thread::sleep(Duration::from_millis(50));
        assert!(lanes.receive_fresh().unwrap().is_none());
        crate::support::eventually("the backlog is read", || waits.is_finished());
    });
}

#[test]
fn a_rate_holds_the_backlog_back_and_a_waiting_reader_gets_it_in_time() {
    let (_dir, queue) = queue();
    let link: Consumer = queue.consumer("link").unwrap();
    let lanes = link.lanes(LaneOptions::new().backlog_rate(20)).unwrap();
    put(&queue, 6);
    lanes.jump().unwrap();
    let begun = Instant::now();
    let mut came = 0;
    while let Some(message) = lanes.receive_timeout(LONG).unwrap() {
        assert_eq!((message.seq(), message.is_backlog()), (came, true));
        message.ack().unwrap();
        came += 1;
        if came == 6 {
            break;
        }
    }
    // Each after the first comes a twentieth of a second after the one before, less what the time
    // that it is kept over allows.
    assert!(begun.elapsed() >= Duration::from_millis(4 * 50 - 100));
    put(&queue, 2);
    lanes.jump().unwrap();
    put(&queue, 1);
    while lanes.receive_backlog().unwrap().is_some_and(|message| message.ack().is_ok()) {}
    assert_eq!(lanes.receive_backlog().unwrap().map(|message| message.seq()), None);
    assert_eq!(next(&lanes, 1), [8], "what is fresh has no rate");
}

#[test]
fn an_interrupt_ends_a_wait_for_a_lane() {
    let (_dir, queue) = queue();
    let lanes = queue.consumer("link").unwrap().lanes(LaneOptions::new().backlog_rate(1)).unwrap();
    put(&queue, 3);
    lanes.jump().unwrap();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| {
            loop {
                match lanes.receive_timeout(LONG) {
                    Ok(Some(message)) => message.ack().unwrap(),
                    Ok(None) => panic!("ten minutes are not over"),
                    Err(error) => return error,
                }
            }
        });
        while !wait.is_finished() {
            queue.interrupt();
            std::thread::yield_now();
        }
        assert!(matches!(wait.join().unwrap(), Error::Interrupted));
    });
}
