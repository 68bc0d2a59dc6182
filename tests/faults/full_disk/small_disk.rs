//! A small disk that is used at random by a queue and by somebody else.

use super::*;

/// One of many ways to use a queue on a small disk.
#[derive(Debug)]
struct Use {
    disk: usize,
    options: Options,
    messages: Messages,
    beside: bool,
    deliveries: bool,
    lends: bool,
}

impl Use {
    fn any(random: &mut Random) -> Use {
        let disk = random.size(2 * MIB..=6 * MIB) / 4096 * 4096;
        let arena = *random.pick(&[4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 128 << 20]);
        let options = Options::new()
            .arena_size(arena)
            .max_mapped_arenas(random.chance(2).then_some(3))
            .flush_every_ops(random.chance(4).then_some(1))
            .min_free_bytes(if random.chance(3) { 300 << 10 } else { 0 })
            .max_bytes(random.chance(3).then_some(disk as u64 * 9 / 10));
        let sizes = random.pick(&[0..=100, 3000..=3000, 0..=20_000, 40_000..=90_000]).clone();
        let messages = Messages::new(random.next(), &[sizes]);
        Use {
            disk,
            options,
            messages,
            beside: random.chance(2),
            deliveries: random.chance(3),
            lends: random.chance(3),
        }
    }

    /// Puts the message of that number in, or it and some that follow in a batch.
    fn put(&self, queue: &Queue, seq: u64, random: &mut Random) -> mmq::Result<u64> {
        let bytes = self.messages.bytes(seq);
        match random.below(4) {
            0 => queue
                .enqueue_batch((seq..seq + 3).map(|seq| self.messages.bytes(seq)))
                .map(|given| given.end),
            1 => queue.enqueue_parts(&in_parts(&bytes)).map(|given| given + 1),
            _ => queue.enqueue(&bytes).map(|given| given + 1),
        }
    }

    /// Up to the first refusal. The number behind the last one, and the bytes that they have.
    fn fill(&self, queue: &Queue, from: u64, random: &mut Random) -> (u64, u64) {
        let (mut seq, mut bytes) = (from, 0);
        loop {
            match self.put(queue, seq, random) {
                Ok(next) => {
                    bytes +=
                        (seq..next).map(|seq| self.messages.len_of(seq) as u64 + 16).sum::<u64>();
                    seq = next;
                }
                Err(error) => {
                    assert!(error.is_full(), "{error}");
                    return (seq, bytes);
                }
            }
        }
    }

    fn drain(&self, queue: &Queue, held: &mut Vec<mmq::Message>) {
        if self.deliveries {
            let mut deliveries = Vec::new();
            while let Some(delivery) = queue.receive().unwrap() {
                self.messages.check(delivery.seq(), &delivery);
                deliveries.push(delivery);
                if deliveries.len() == 20 {
                    deliveries.drain(..).rev().for_each(|delivery| delivery.ack().unwrap());
                }
            }
            deliveries.into_iter().rev().for_each(|delivery| delivery.ack().unwrap());
        }
        while let Some(message) = queue.dequeue().unwrap() {
            self.messages.check(message.seq(), &message);
            if self.lends && message.seq() % 50 == 7 {
                held.push(message);
            }
        }
        if self.beside {
            let beside = queue.consumer("beside").unwrap();
            while beside.skip().unwrap().is_some() {}
        }
    }

    fn what_was_read_makes_room(&self, path: &Path, random: &mut Random) {
        let queue = self.options.clone().open(path).unwrap();
        let mut held = Vec::new();
        self.drain(&queue, &mut held);
        let (mut tail, first) = self.fill(&queue, 0, random);
        for round in 0..4 {
            self.drain(&queue, &mut held);
            if self.lends {
                // What is lent may take all the space there is.
                self.fill(&queue, tail, random);
                self.drain(&queue, &mut held);
                held.iter().for_each(|message| self.messages.check(message.seq(), message));
                held.clear();
                tail = queue.stats().next_seq;
            }
            let (next, bytes) = self.fill(&queue, tail, random);
            // The rest of what was filled before lies before it in the last segment, which may take
            // half of the disk.
            assert!(5 * bytes >= 2 * first, "{bytes} of {first} bytes found room in round {round}");
            tail = next;
        }
    }

    fn the_oldest_are_dropped(&self, path: &Path, random: &mut Random) {
        let queue = self.options.clone().on_full(OnFull::DropOldest).open(path).unwrap();
        queue.dequeue().unwrap();
        if self.beside {
            queue.consumer("beside").unwrap();
        }
        let (mut seq, mut bytes) = (0, 0);
        while bytes < 4 * self.disk {
            let next = self.put(&queue, seq, random).unwrap();
            bytes += (seq..next).map(|seq| self.messages.len_of(seq) + 100).sum::<usize>();
            seq = next;
        }
        let drained =
            drain_by(|| queue.dequeue(), 2 * seq, |seq, bytes| self.messages.check(seq, bytes));
        assert_eq!(drained.span(), Some((0, seq)));
        assert!(
            drained.gaps().iter().all(|gap| gap.cause == GapCause::Dropped),
            "{:?}",
            drained.gaps()
        );
    }

    fn whoever_waits_goes_on(&self, path: &Path, random: &mut Random) {
        let limit = Duration::from_secs(60);
        let queue = self.options.clone().on_full(OnFull::Wait(Some(limit))).open(path).unwrap();
        assert!(queue.dequeue().unwrap().is_none());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut next = 0;
                while let Some(message) = queue.dequeue_timeout(limit).unwrap() {
                    assert_eq!(message.seq(), next);
                    next += 1;
                    if &*message == b"the end" {
                        break;
                    }
                    self.messages.check(message.seq(), &message);
                }
                next
            });
            let (mut seq, mut bytes) = (0, 0);
            while bytes < 4 * self.disk {
                let next = self.put(&queue, seq, random).unwrap();
                bytes += (seq..next).map(|seq| self.messages.len_of(seq) + 100).sum::<usize>();
                seq = next;
            }
            queue.enqueue("the end").unwrap();
            assert_eq!(reader.join().unwrap(), seq + 1);
        });
    }
}

#[test]
fn however_a_small_disk_is_used_what_was_read_or_may_be_dropped_makes_room() {
    let seed = crate::support::seed("however_a_small_disk_is_used");
    for case in 0..4 * crate::support::effort() {
        let mut random = Random::new(seed ^ case);
        let used = Use::any(&mut random);
        let mount = match mount("tmpfs", used.disk) {
            Ok(mount) => mount,
            Err(reason) => return skip("tmpfs", &reason),
        };
        println!("case {case}: {used:?}");
        let path = mount.path.join("queue");
        let _no_program_starts = no_program_starts();
        match case % 3 {
            0 => used.what_was_read_makes_room(&path, &mut random),
            1 => used.the_oldest_are_dropped(&path, &mut random),
            _ => used.whoever_waits_goes_on(&path, &mut random),
        }
    }
}
