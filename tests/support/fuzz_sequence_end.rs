//! How a sequence of operations ends.

use std::collections::BTreeSet;
use std::fs;

use mmq::{Error, Gap, Message, Options, Queue};

use super::{NAMES, Place, Sequence, put, scratch};

impl Sequence<'_> {
    /// The files are closed in order, copied while they are open, or damaged; then they are read
    /// to the end.
    pub(super) fn end(mut self) {
        match self.bytes.below(4) {
            0 => {
                for which in self.places.keys().copied().collect::<Vec<_>>() {
                    self.deliveries.clear();
                    let place = self.place(which);
                    place.given_back.extend(std::mem::take(&mut place.handed_out));
                    while self.place(which).fresh() < self.next()
                        || !self.place(which).given_back.is_empty()
                    {
                        self.take(which);
                    }
                }
                self.queue.take().expect("it is open").close().expect("closing");
            }
            1 => self.copy_away(),
            _ => self.damage(),
        }
    }

    /// Places may be those of the last flush there, messages are all there.
    fn copy_away(self) {
        let files = super::files(self.dir.path());
        let dir = scratch();
        put(dir.path(), &files);
        let queue = Options::new().open(dir.path()).expect("a copy opens");
        for (which, place) in &self.places {
            if *which > 0 && !queue.consumers().iter().any(|name| name == NAMES[*which]) {
                assert!(place.has_moved, "consumer {which} is gone");
                continue;
            }
            let came: BTreeSet<u64> = drain(&queue, *which, &self.sent, Some(place));
            if place.has_moved {
                continue;
            }
            let again = came.intersection(&place.durable).next();
            assert!(again.is_none(), "{again:?} comes again to {which}");
            let waits = |seq: &u64| !place.done.contains(seq) && !came.contains(seq);
            let lost = (place.seq..self.next()).find(waits);
            assert!(lost.is_none(), "{lost:?} is lost for {which}");
        }
        queue.close().expect("closing");
    }

    /// Whatever was changed in the files: nothing false comes, and it goes on.
    fn damage(mut self) {
        self.deliveries.clear();
        let is_open = self.bytes.below(2) == 0;
        let mut files = super::files(self.dir.path());
        drop(self.queue.take());
        if !is_open {
            files = super::files(self.dir.path());
        }
        for _ in 0..=self.bytes.below(3) {
            if files.is_empty() {
                break;
            }
            let at = self.bytes.below(files.len());
            let bytes = &mut files[at].1;
            // Most of what matters is at the beginning of a page, or among the messages.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let offset = match self.bytes.below(3) {
                0 => self.bytes.below(32) * 4096 + self.bytes.below(300),
                _ if used <= 4096 => self.bytes.below(4096),
                _ => 4096 + self.bytes.below(used - 4096),
            };
            let offset = offset % bytes.len().max(1);
            match self.bytes.below(8) {
                0 => drop(files.remove(at)),
                1 => bytes.truncate(offset),
                2 => {
                    let end = bytes.len().min(offset + 512);
                    bytes[offset.min(end)..end].fill(0);
                }
                _ => {
                    let change = self.bytes.byte().max(1);
                    bytes.get_mut(offset).into_iter().for_each(|byte| *byte ^= change);
                }
            }
        }
        for (name, _) in super::files(self.dir.path()) {
            fs::remove_file(self.dir.path().join(name)).expect("removing");
        }
        put(self.dir.path(), &files);
        let queue = match self.bytes.options().open(self.dir.path()) {
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
            drain(&queue, which, &self.sent, self.places.get(&which));
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
/// not acknowledged before.
fn drain(queue: &Queue, which: usize, sent: &[Vec<u8>], place: Option<&Place>) -> BTreeSet<u64> {
    let (mut expected, mut came) = (None, BTreeSet::new());
    while let Some(next) = read(queue, which) {
        let (first, last) = match &next {
            Came::Message(message) => (message.seq(), message.seq()),
            Came::Gap(gap) => (gap.first, gap.last),
        };
        // An older place may come back, and with it what was acknowledged behind it.
        let is_done = |seq| {
            place.is_some_and(|place| {
                place.has_moved || seq < place.seq || place.done.contains(&seq)
            })
        };
        let is_next = |seq| seq <= first && (seq..first).all(is_done);
        assert!(expected.is_none_or(is_next), "{expected:?} comes as {first}");
        if let Came::Message(message) = next {
            let put = sent.get(first as usize);
            assert!(put.is_some_and(|put| message[..] == put[..]), "nobody put in message {first}");
            came.insert(first);
        }
        expected = Some(last + 1);
    }
    came
}
