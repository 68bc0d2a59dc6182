//! How a sequence of steps ends.

use std::collections::BTreeSet;

use mmq::{Error, Gap, GapCause, Message, Options, Queue};

use super::steps::{Bytes, Gone, NAMES, Step};
use super::{Sequence, Spec, put, scratch};

impl Sequence {
    /// The files are closed in order, copied while they are open, or damaged; then they are read
    /// to the end. The messages that were kept are compared when the queue is gone.
    pub(super) fn end(mut self, mut bytes: Bytes<'_>) {
        match bytes.below(4) {
            0 | 1 => self.read_to_the_end(),
            2 => self.copy_away(),
            _ => self.damage(bytes),
        }
        self.deliveries.clear();
        drop(self.queue.take());
        for message in &self.held {
            self.check(message);
        }
    }

    fn read_to_the_end(&mut self) {
        self.reopen(Gone::Closed, self.setting);
        self.check_figures();
        for who in self.spec.consumers.keys().copied().collect::<Vec<_>>() {
            self.step(Step::Drain(who));
            self.check_figures();
        }
        self.reopen(Gone::Dropped, self.setting);
        self.check_figures();
    }

    /// Consumers may be where the latest flush found them there, messages are all there.
    fn copy_away(&mut self) {
        let files = super::files(self.dir.path());
        let dir = scratch();
        put(dir.path(), &files);
        let queue = Options::new().open(dir.path()).expect("a copy opens");
        for (who, consumer) in &self.spec.consumers {
            if *who > 0 && !queue.consumers().iter().any(|name| name == NAMES[*who]) {
                assert!(consumer.has_moved, "consumer {who} is gone");
                continue;
            }
            let came = drain(&queue, *who, &self.spec, |gap| {
                let is_behind = gap.cause == GapCause::Reserved && gap.first >= self.spec.end();
                let is_dropped = gap.cause == GapCause::Dropped && gap.last < self.spec.oldest;
                assert!(is_behind || is_dropped, "{gap}");
            });
            if !consumer.has_moved {
                let again = came.intersection(&consumer.durable).next();
                assert!(again.is_none(), "{again:?} comes again to {who}");
                let lost = consumer.waiting(self.spec.held()).difference(&came).next().copied();
                assert!(lost.is_none(), "{lost:?} is lost for {who}");
            }
        }
        queue.close().expect("closing");
    }

    /// Whatever was changed in the files: nothing false comes, and it goes on.
    fn damage(&mut self, mut chosen: Bytes<'_>) {
        self.deliveries.clear();
        let is_open = chosen.below(2) == 0;
        let mut files = super::files(self.dir.path());
        drop(self.queue.take());
        if !is_open {
            files = super::files(self.dir.path());
        }
        for _ in 0..=chosen.below(3) {
            if files.is_empty() {
                break;
            }
            let at = chosen.below(files.len());
            let bytes = &mut files[at].1;
            // Most of what matters is at the beginning of a page, or among the messages.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let offset = match chosen.below(3) {
                0 => chosen.below(32) * 4096 + chosen.below(300),
                _ if used <= 4096 => chosen.below(4096),
                _ => 4096 + chosen.below(used - 4096),
            };
            let offset = offset % bytes.len().max(1);
            match chosen.below(8) {
                0 => drop(files.remove(at)),
                1 => bytes.truncate(offset),
                2 => {
                    let end = bytes.len().min(offset + 512);
                    bytes[offset.min(end)..end].fill(0);
                }
                _ => {
                    let change = chosen.byte().max(1);
                    bytes.get_mut(offset).into_iter().for_each(|byte| *byte ^= change);
                }
            }
        }
        put(self.dir.path(), &files);
        let queue = match chosen.setting().options().open(self.dir.path()) {
            Ok(queue) => queue,
            // Files that say they are of a later version are refused.
            Err(Error::UnsupportedFormat { .. }) => return,
            // Or nothing is left that says whose files they are: not one magic number's length.
            Err(Error::NotAQueue { .. }) if files.iter().all(|(_, bytes)| bytes.len() < 8) => {
                return;
            }
            Err(error) => panic!("a damaged queue opens: {error}"),
        };
        for which in 0..NAMES.len() {
            drain(&queue, which, &self.spec, |_| {});
        }
        let seq = match queue.enqueue("after") {
            Ok(seq) => seq,
            Err(error) => return assert!(error.is_full(), "{error}"),
        };
        while let Some(came) = read(&queue, 0) {
            if let Came::Message(message) = came {
                assert_eq!((message.seq(), &message[..]), (seq, &b"after"[..]));
                return queue.close().expect("closing");
            }
        }
        panic!("the new message does not come out");
    }
}

enum Came {
    Message(Message),
    Gap(Gap),
}

fn read(queue: &Queue, which: usize) -> Option<Came> {
    match ask!(queue, which, dequeue()) {
        Ok(message) => message.map(Came::Message),
        Err(Error::Gap(gap)) => Some(Came::Gap(gap)),
        Err(error) => panic!("{error}"),
    }
}

/// Reads to the end: what comes was put in under its number, and every number is reported that was
/// not done before.
fn drain(queue: &Queue, who: usize, spec: &Spec, gaps: impl Fn(Gap)) -> BTreeSet<u64> {
    let (mut expected, mut came) = (None, BTreeSet::new());
    // An older place may come back, and with it what was acknowledged behind it.
    let is_done = |seq| {
        let consumer = spec.consumers.get(&who);
        consumer.is_some_and(|consumer| consumer.has_moved || consumer.is_done(seq))
    };
    while let Some(next) = read(queue, who) {
        let (first, last) = match &next {
            Came::Message(message) => (message.seq(), message.seq()),
            Came::Gap(gap) => (gap.first, gap.last),
        };
        let is_next = |seq| seq <= first && (seq..first).all(is_done);
        assert!(expected.is_none_or(is_next), "{expected:?} comes as {first}");
        match next {
            Came::Message(message) => {
                super::check(spec, first, &message);
                came.insert(first);
            }
            Came::Gap(gap) => gaps(gap),
        }
        expected = Some(last + 1);
    }
    came
}
