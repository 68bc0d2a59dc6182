//! What each of the threads does.

use super::*;

/// Puts messages in by every way.
pub(super) fn produce(round: &Round, queue: &Queue, mut rng: Rng) {
    while !round.stopped() {
        let id = round.ids.fetch_add(16, Ordering::Relaxed);
        let len = rng.below(round.longest);
        let done = match rng.below(7) {
            0 => queue.enqueue_batch((0..rng.below(5)).map(|n| content(id + n, len / 4))).map(drop),
            1 | 2 => queue.enqueue_parts(&in_parts(&content(id, len))).map(drop),
            _ => queue.enqueue(content(id, len)).map(drop),
        };
        match done {
            Ok(()) => {}
            Err(error) if error.is_full() => std::thread::yield_now(),
            Err(Error::MessageTooLarge { .. }) => {}
            Err(error) => panic!("cannot enqueue: {error}"),
        }
        if rng.below(300) == 0 {
            std::thread::sleep(Duration::from_millis(rng.below(4)));
        }
    }
}

/// Messages are held for a while: their bytes stay.
pub(super) fn hold(held: &mut Vec<Message>, message: Message, rng: &mut Rng) {
    check_bytes(&message);
    held.push(message);
    if held.len() as u64 > rng.below(60) {
        held.drain(..).for_each(|message| check_bytes(&message));
    }
}

/// Reads by every way that takes messages or looks at them: of the queue itself, or of a consumer.
macro_rules! read {
    ($round:expr, $of:expr, $from:expr, $rng:expr) => {{
        let (mut last, mut held, mut buffer) = (None, Vec::new(), Vec::new());
        while !$round.stopped() {
            let wait = Duration::from_millis(2);
            match $rng.below(9) {
                0 => {
                    let got = $from.dequeue_into(&mut buffer);
                    if let Ok(Some(_)) = got {
                        check_bytes(&buffer);
                    }
                    $round.note($of, &mut last, got, |seq| *seq);
                }
                1 => {
                    $round.note($of, &mut last, $from.skip(), |seq| *seq);
                }
                2 => match $from.dequeue_batch(1 + $rng.below(20) as usize) {
                    Ok(messages) => {
                        for message in messages {
                            $round.note($of, &mut last, Ok(Some(message.seq())), |seq| *seq);
                            hold(&mut held, message, &mut $rng);
                        }
                    }
                    Err(error) => {
                        $round.note($of, &mut last, Err::<Option<u64>, _>(error), |seq| *seq);
                    }
                },
                3 => match $from.peek() {
                    Ok(message) => message.iter().for_each(|message| check_bytes(message)),
                    Err(error) => {
                        $round.note($of, &mut last, Err::<Option<u64>, _>(error), |seq| *seq);
                    }
                },
                4 => match $from.peek_into(&mut buffer) {
                    Ok(Some(_)) => check_bytes(&buffer),
                    Ok(None) => {}
                    Err(error) => {
                        $round.note($of, &mut last, Err::<Option<u64>, _>(error), |seq| *seq);
                    }
                },
                5 if $rng.below(4) == 0 => {
                    $from.iter().take(6).flatten().for_each(|message| check_bytes(&message))
                }
                way => {
                    let got = if way == 6 { $from.dequeue_timeout(wait) } else { $from.dequeue() };
                    if let Ok(Some(message)) = &got {
                        check_bytes(message);
                    }
                    if !$round.note(
                        $of,
                        &mut last,
                        got.as_ref().map(Option::as_ref).map_err(copy_of),
                        |m| m.seq(),
                    ) {
                        std::thread::yield_now();
                    }
                    if let Ok(Some(message)) = got {
                        hold(&mut held, message, &mut $rng);
                    }
                }
            }
        }
    }};
}

/// What `note` asks of an error.
pub(super) fn copy_of(error: &Error) -> Error {
    match error {
        Error::Gap(gap) => Error::Gap(*gap),
        Error::Closed => Error::Closed,
        error => panic!("cannot read: {error}"),
    }
}

/// Has messages handed out, acknowledges most of them in any order, gives some back.
pub(super) fn work(round: &Round, workers: &Consumer, mut rng: Rng) {
    let mut held: Vec<Delivery> = Vec::new();
    loop {
        let stopped = round.stopped();
        let got = match rng.below(3) {
            0 => workers.receive_timeout(Duration::from_millis(2)),
            _ => workers.receive(),
        };
        match got {
            Ok(Some(delivery)) => {
                check_bytes(&delivery);
                held.push(delivery);
            }
            Ok(None) => std::thread::yield_now(),
            Err(Error::Gap(gap)) => {
                check_cause(gap.cause);
                round.reported[2].add(gap.first, gap.last);
            }
            Err(Error::Closed) => return,
            Err(error) => panic!("cannot receive: {error}"),
        }
        while !held.is_empty() && (stopped || held.len() as u64 > rng.below(12)) {
            let delivery = held.swap_remove(rng.below(held.len() as u64) as usize);
            check_bytes(&delivery);
            let seq = delivery.seq();
            if rng.below(5) == 0 {
                delivery.nack();
            } else {
                match delivery.ack() {
                    Ok(()) => round.reported[2].add(seq, seq),
                    Err(Error::Closed) => return,
                    Err(error) => panic!("cannot acknowledge {seq}: {error}"),
                }
            }
        }
        if rng.below(200) == 0 {
            match workers.set_max_in_flight(rng.one_of(&[None, Some(1), Some(5), Some(40)])) {
                Ok(()) | Err(Error::Closed) => {}
                Err(error) => panic!("cannot limit: {error}"),
            }
            assert!(workers.in_flight() < 1000);
        }
        if stopped {
            // Closed while it works, or not.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads when its descriptor says so.
pub(super) fn poll(round: &Round, polled: &Consumer) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut last = None;
    let Ok(ready) = polled.ready_fd() else { return };
    loop {
        round.stopped();
        let mut list = [PollFd::from_borrowed_fd(ready.as_fd(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        if poll(&mut list, Some(&timeout)).unwrap() == 0 {
            continue;
        }
        for _ in 0..50 {
            let got = polled.dequeue();
            if let Err(Error::Closed) = got {
                return;
            }
            if let Ok(Some(message)) = &got {
                check_bytes(message);
            }
            if !round.note(3, &mut last, got, Message::seq) {
                break;
            }
        }
    }
}

pub(super) mod tasks {
    use super::*;
    use futures_core::Stream;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Wake, Waker};

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Polls until it is ready, or for so long: then the future is dropped unready.
    fn within<T>(
        patience: Duration,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let began = Instant::now();
        loop {
            match poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return Some(value),
                Poll::Pending if began.elapsed() > patience => return None,
                Poll::Pending => std::thread::park_timeout(patience),
            }
        }
    }

    /// Awaits messages one by one and as a stream, often without patience.
    pub(crate) fn take(round: &Round, tasks: &Consumer, mut rng: Rng) {
        let mut last = None;
        loop {
            round.stopped();
            let patience = Duration::from_millis(rng.below(4));
            let got = if rng.below(2) == 0 {
                let mut future = pin!(tasks.recv());
                within(patience, |context| future.as_mut().poll(context))
            } else {
                let mut stream = tasks.messages();
                within(patience, |context| Pin::new(&mut stream).poll_next(context)).flatten()
            };
            match got {
                Some(Err(Error::Closed)) => return,
                Some(got) => {
                    if let Ok(message) = &got {
                        check_bytes(message);
                    }
                    round.note(4, &mut last, got.map(Some), Message::seq);
                }
                None if tasks.peek().is_err_and(|error| matches!(error, Error::Closed)) => return,
                None => {}
            }
        }
    }
}

/// Adds consumers, forks, seeks, reads and removes them, and looks at everything.
pub(super) fn roam(round: &Round, queue: &Queue, mut rng: Rng) {
    let rover = queue.consumer("rover").unwrap();
    let mut number = 0;
    let fine = |result: mmq::Result<()>| match result {
        Ok(()) | Err(Error::Gap(_) | Error::NotFound { .. }) => {}
        Err(error) => panic!("cannot roam: {error}"),
    };
    while !round.stopped() {
        match rng.below(8) {
            0 => {
                number += 1;
                let name = format!("fork {number}");
                let fork = rover.fork(&name).unwrap();
                for _ in 0..rng.below(30) {
                    fine(
                        fork.dequeue()
                            .map(|message| message.iter().for_each(|message| check_bytes(message))),
                    );
                }
                fine(queue.remove_consumer(&name));
                assert!(fork.dequeue().is_err(), "a removed consumer reads");
            }
            1 => {
                let temporary = queue.consumer("temporary").unwrap();
                fine(
                    temporary
                        .receive()
                        .map(|delivery| delivery.iter().for_each(|delivery| check_bytes(delivery))),
                );
                fine(queue.remove_consumer("temporary"));
            }
            2 => {
                let stats = queue.stats();
                let seq = stats.oldest_seq + rng.below(stats.next_seq - stats.oldest_seq + 1);
                fine(rover.seek(seq));
            }
            3 => {
                let stats = queue.stats();
                assert!(
                    stats.oldest_seq <= stats.next_seq && stats.durable_seq <= stats.next_seq,
                    "{stats:?}"
                );
                assert!(stats.last_flush_error.is_none(), "{stats:?}");
                assert!(queue.len() <= stats.next_seq + 1_000_000 && rover.len() < u64::MAX / 2);
                queue.consumers().iter().for_each(|name| assert!(!name.is_empty()));
            }
            4 => queue.flush().unwrap(),
            5 => {
                if let Some(last) = queue.stats().next_seq.checked_sub(1) {
                    queue.wait_durable(last).unwrap();
                    assert!(queue.durable_seq() > last);
                }
            }
            // Never far behind, or everything is held for it.
            _ => {
                for _ in 0..200 {
                    match rover.dequeue() {
                        Ok(Some(message)) => check_bytes(&message),
                        Ok(None) => break,
                        other => fine(other.map(drop)),
                    }
                }
            }
        }
    }
}
