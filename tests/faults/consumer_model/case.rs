//! A queue and its model, step by step.

use super::*;

/// A consumer as it must be.
#[derive(Debug, Clone, Default)]
pub(super) struct Stand {
    /// Numbers from it on were not handed out yet.
    pub(super) next: u64,
    /// In flight or given back, with how often they were handed out.
    pub(super) open: BTreeMap<u64, u32>,
    pub(super) returned: BTreeSet<u64>,
    /// Beyond the next one, and done before the last opening.
    pub(super) done: BTreeSet<u64>,
    pub(super) limit: Option<u32>,
}

impl Stand {
    pub(super) fn at(seq: u64) -> Stand {
        Stand { next: seq, ..Stand::default() }
    }

    /// The numbers that wait, in flight included.
    pub(super) fn waiting(&self, oldest: u64, end: u64) -> BTreeSet<u64> {
        let open = self.open.keys().copied();
        open.chain((self.next..end).filter(|seq| !self.done.contains(seq)))
            .filter(|seq| *seq >= oldest)
            .collect()
    }

    pub(super) fn may_receive(&self) -> bool {
        self.limit.is_none_or(|limit| self.open.len() - self.returned.len() < limit as usize)
    }
}

pub(super) struct Case<'a> {
    pub(super) dir: &'a Path,
    pub(super) setting: Setting,
    pub(super) queue: Option<Queue>,
    pub(super) lens: Vec<usize>,
    pub(super) made: Messages,
    pub(super) stands: [Option<Stand>; CONSUMERS],
    pub(super) deliveries: [BTreeMap<u64, Delivery>; CONSUMERS],
}

pub(super) fn name(who: usize) -> String {
    format!("consumer {who}")
}

pub(super) enum Reader<'a> {
    Queue(&'a Queue),
    Named(Consumer),
}

macro_rules! call {
    ($reader:expr, $method:ident $(, $argument:expr)*) => {
        match &$reader {
            Reader::Queue(queue) => queue.$method($($argument),*),
            Reader::Named(consumer) => consumer.$method($($argument),*),
        }
    };
}

impl Case<'_> {
    pub(super) fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("open between operations")
    }

    pub(super) fn end(&self) -> u64 {
        self.lens.len() as u64
    }

    /// Takes part from now on, if it did not.
    pub(super) fn reader(&mut self, who: usize) -> Reader<'_> {
        let oldest = self.queue().stats().oldest_seq;
        if who == 0 {
            if self.stands[0].is_none() {
                self.queue().peek().unwrap();
                self.stands[0] = Some(Stand::at(oldest));
            }
            return Reader::Queue(self.queue());
        }
        let consumer = self.queue().consumer(&name(who)).unwrap();
        self.stands[who].get_or_insert_with(|| Stand::at(oldest));
        Reader::Named(consumer)
    }

    /// What the next read must give: a number, nothing, or an error for a gap, which may be
    /// reported in pieces.
    pub(super) fn expect(&mut self, who: usize, receive: bool) -> Result<Option<u64>, (u64, u64)> {
        let (oldest, end) = (self.queue().stats().oldest_seq, self.end());
        let stand = self.stands[who].as_mut().expect("takes part");
        if receive && !stand.may_receive() {
            return Ok(None);
        }
        if let Some(first) = stand.returned.first().copied() {
            if first >= oldest {
                return Ok(Some(first));
            }
            let mut last = first;
            while last + 1 < oldest && stand.returned.contains(&(last + 1)) {
                last += 1;
            }
            return Err((first, last));
        }
        while stand.done.contains(&stand.next) {
            stand.next += 1;
        }
        if stand.next < oldest {
            let first = stand.next;
            let mut last = first;
            while last + 1 < oldest && !stand.done.contains(&(last + 1)) {
                last += 1;
            }
            return Err((first, last));
        }
        Ok((stand.next < end).then_some(stand.next))
    }

    pub(super) fn same(&self, seq: u64, bytes: &[u8]) -> Result<(), TestCaseError> {
        let len = self.lens[seq as usize];
        prop_assert_eq!(bytes.len(), len, "length of {}", seq);
        prop_assert!(bytes == &self.made.of_len(seq, len)[..], "bytes of {}", seq);
        Ok(())
    }

    /// One read, held to what it must give. False when nothing more comes.
    pub(super) fn read(
        &mut self,
        who: usize,
        receive: bool,
        read: impl FnOnce(&Reader<'_>) -> mmq::Result<Option<(u64, Option<Vec<u8>>)>>,
    ) -> Result<Option<u64>, TestCaseError> {
        self.reader(who);
        let wanted = self.expect(who, receive);
        let got = read(&self.reader(who));
        match (got, wanted) {
            (Ok(None), Ok(None)) => Ok(None),
            (Ok(Some((seq, bytes))), Ok(Some(wanted))) => {
                prop_assert_eq!(seq, wanted);
                if let Some(bytes) = bytes {
                    self.same(seq, &bytes)?;
                }
                Ok(Some(seq))
            }
            (Err(Error::Gap(gap)), Err((first, last))) => {
                prop_assert_eq!((gap.first, gap.cause), (first, GapCause::Dropped));
                prop_assert!(
                    gap.last >= first && gap.last <= last,
                    "{:?} ends at {} at most",
                    gap,
                    last
                );
                let stand = self.stands[who].as_mut().expect("takes part");
                if stand.returned.contains(&first) {
                    stand.returned.retain(|seq| *seq > gap.last);
                    stand.open.retain(|seq, _| !(first..=gap.last).contains(seq));
                } else {
                    stand.next = gap.last + 1;
                }
                Ok(None)
            }
            (got, wanted) => {
                Err(TestCaseError::fail(format!("consumer {who}: {got:?}, not {wanted:?}")))
            }
        }
    }

    pub(super) fn taken(&mut self, who: usize, seq: u64) {
        let stand = self.stands[who].as_mut().expect("takes part");
        if stand.returned.remove(&seq) {
            stand.open.remove(&seq);
        } else {
            stand.next = seq + 1;
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Enqueue(count, len) => {
                for _ in 0..count {
                    let seq = self.end();
                    let given = self.queue().enqueue(self.made.of_len(seq, len));
                    prop_assert_eq!(given.unwrap(), seq);
                    self.lens.push(len);
                }
            }
            Operation::Dequeue(who, count) => {
                for _ in 0..count {
                    let read = |reader: &Reader<'_>| {
                        Ok(call!(reader, dequeue)?
                            .map(|message| (message.seq(), Some(message.to_vec()))))
                    };
                    if let Some(seq) = self.read(who, false, read)? {
                        self.taken(who, seq);
                    }
                }
            }
            Operation::Peek(who) => {
                let mut buffer = Vec::new();
                self.read(who, false, |reader| {
                    Ok(call!(reader, peek_into, &mut buffer)?.map(|seq| (seq, Some(buffer))))
                })?;
            }
            Operation::Skip(who) => {
                if let Some(seq) =
                    self.read(who, false, |reader| Ok(call!(reader, skip)?.map(|seq| (seq, None))))?
                {
                    self.taken(who, seq);
                }
            }
            Operation::Receive(who, count) => {
                for _ in 0..count {
                    let mut delivery = None;
                    let read = |reader: &Reader<'_>| {
                        let came = call!(reader, receive)?;
                        let reported =
                            came.as_ref().map(|delivery| (delivery.seq(), Some(delivery.to_vec())));
                        delivery = came;
                        Ok(reported)
                    };
                    let seq = self.read(who, true, read)?;
                    if let (Some(seq), Some(delivery)) = (seq, delivery) {
                        let stand = self.stands[who].as_mut().expect("takes part");
                        if !stand.returned.remove(&seq) {
                            stand.next = seq + 1;
                        }
                        let attempts = stand.open.entry(seq).or_default();
                        *attempts += 1;
                        prop_assert_eq!(delivery.attempts(), *attempts);
                        self.deliveries[who].insert(seq, delivery);
                    }
                }
            }
            Operation::Ack(who, at) | Operation::Nack(who, at) => {
                let held: Vec<u64> = self.deliveries[who].keys().copied().collect();
                let Some(seq) = held.get(at * held.len() / 1000).copied() else { return Ok(()) };
                let delivery = self.deliveries[who].remove(&seq).expect("held");
                let stand = self.stands[who].as_mut().expect("takes part");
                if matches!(operation, Operation::Ack(..)) {
                    delivery.ack().unwrap();
                    stand.open.remove(&seq);
                } else {
                    delivery.nack();
                    stand.returned.insert(seq);
                }
            }
            Operation::Limit(who, limit) => {
                match self.reader(who) {
                    Reader::Queue(queue) => queue.set_max_in_flight(limit).unwrap(),
                    Reader::Named(consumer) => consumer.set_max_in_flight(limit).unwrap(),
                }
                self.stands[who].as_mut().expect("takes part").limit = limit;
            }
            Operation::Seek(who, at) => {
                let (oldest, end) = (self.queue().stats().oldest_seq, self.end());
                let seq = oldest + (end - oldest) * at as u64 / 999;
                if let Reader::Named(consumer) = self.reader(who) {
                    consumer.seek(seq).unwrap();
                    let limit = self.stands[who].as_ref().and_then(|stand| stand.limit);
                    self.stands[who] = Some(Stand { limit, ..Stand::at(seq) });
                    // To acknowledge what was called off is harmless.
                    for (_, delivery) in std::mem::take(&mut self.deliveries[who]) {
                        if delivery.seq() % 2 == 0 {
                            delivery.ack().unwrap()
                        } else {
                            delivery.nack()
                        }
                    }
                }
            }
            Operation::Fork(who, to) => {
                if let (Reader::Named(consumer), true) = (self.reader(who), who != to) {
                    let made = consumer.fork(&name(to));
                    prop_assert_eq!(made.is_ok(), self.stands[to].is_none());
                    if made.is_ok() {
                        self.stands[to] =
                            self.stands[who].as_ref().map(|stand| self.reopened(stand));
                    }
                }
            }
            Operation::Remove(who) => {
                let removed = self.queue().remove_consumer(&name(who));
                prop_assert_eq!(removed.is_ok(), self.stands[who].take().is_some());
                for (_, delivery) in std::mem::take(&mut self.deliveries[who]) {
                    let answer = delivery.ack();
                    assert!(matches!(answer, Err(Error::NotFound { .. })));
                }
            }
            Operation::Iterate(who) => {
                let looked: Vec<_> = {
                    let reader = self.reader(who);
                    call!(reader, iter)
                        .filter_map(Result::ok)
                        .map(|message| (message.seq(), message.to_vec()))
                        .collect()
                };
                let (oldest, end) = (self.queue().stats().oldest_seq, self.end());
                let stand = self.stands[who].as_ref().expect("takes part");
                let wanted: Vec<u64> =
                    (stand.next.max(oldest)..end).filter(|seq| !stand.done.contains(seq)).collect();
                prop_assert_eq!(looked.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), wanted);
                for (seq, bytes) in looked {
                    self.same(seq, &bytes)?;
                }
            }
            Operation::Drain(who) => {
                for _ in 0..3 * self.end() + 3 {
                    let read =
                        |reader: &Reader<'_>| Ok(call!(reader, skip)?.map(|seq| (seq, None)));
                    if let Some(seq) = self.read(who, false, read)? {
                        self.taken(who, seq);
                    }
                }
            }
            Operation::Reopen(close, setting) => self.reopen(close, setting),
        }
        self.compare_figures()
    }

    /// A consumer after a reopening: what was not acknowledged comes again, and only that, as far
    /// as the remembered ranges tell.
    pub(super) fn reopened(&self, stand: &Stand) -> Stand {
        let place = stand.open.first_key_value().map_or(stand.next, |(seq, _)| *seq);
        let is_done = |seq: &u64| {
            stand.done.contains(seq) || (*seq < stand.next && !stand.open.contains_key(seq))
        };
        let last = stand.done.last().map_or(stand.next, |last| stand.next.max(last + 1));
        Stand { next: place, done: (place..last).filter(is_done).collect(), ..Stand::default() }
    }

    pub(super) fn reopen(&mut self, close: bool, setting: Setting) {
        let queue = self.queue.take().expect("open between operations");
        for deliveries in &mut self.deliveries {
            if !close {
                // Some are given back before, some outlive the queue.
                deliveries.retain(|seq, _| seq % 2 == 0);
            }
        }
        if close {
            queue.close().unwrap();
        } else {
            drop(queue);
        }
        for deliveries in &mut self.deliveries {
            for (_, delivery) in std::mem::take(deliveries) {
                assert!(matches!(delivery.ack(), Err(Error::Closed)));
            }
        }
        for who in 0..CONSUMERS {
            self.stands[who] = self.stands[who].as_ref().map(|stand| self.reopened(stand));
        }
        self.setting =
            Setting { max_bytes: self.setting.max_bytes.and(setting.max_bytes), ..setting };
        self.queue = Some(self.setting.options().open(self.dir).unwrap());
    }

    pub(super) fn compare_figures(&mut self) -> Result<(), TestCaseError> {
        let (queue, end) = (self.queue(), self.end());
        let stats = queue.stats();
        prop_assert_eq!(stats.next_seq, end);
        let mut names = Vec::new();
        for who in 0..CONSUMERS {
            let Some(stand) = &self.stands[who] else { continue };
            let waiting = stand.waiting(stats.oldest_seq, end).len() as u64;
            let (len, in_flight) = if who == 0 {
                (queue.len(), None)
            } else {
                names.push(name(who));
                let consumer = queue.consumer(&name(who)).unwrap();
                (consumer.len(), Some(consumer.in_flight()))
            };
            prop_assert_eq!(len, waiting, "len of consumer {}", who);
            if let Some(in_flight) = in_flight {
                prop_assert_eq!(in_flight, (stand.open.len() - stand.returned.len()) as u64);
            }
        }
        prop_assert_eq!(queue.consumers(), names);
        self.compare_consumer_stats(stats.oldest_seq)
    }

    /// The figures of all consumers at once: those of each alone, and what the model says.
    fn compare_consumer_stats(&self, oldest: u64) -> Result<(), TestCaseError> {
        let (queue, end) = (self.queue(), self.end());
        let ageless = |stats: ConsumerStats| {
            assert_eq!(stats.oldest_age.is_some(), stats.messages > 0, "{stats:?}");
            assert!(stats.messages > 0 || stats.bytes == 0, "{stats:?}");
            // (The struct can grow, so it is not made anew here.)
            let mut stats = stats;
            stats.oldest_age = None;
            stats
        };
        let all: Vec<_> = queue.consumer_stats().into_iter().map(ageless).collect();
        let takes_part = || (0..CONSUMERS).filter(|who| self.stands[*who].is_some());
        prop_assert_eq!(all.len(), takes_part().count());
        let place = |stand: &Stand| stand.open.keys().next().copied().unwrap_or(stand.next);
        let lowest = self.stands.iter().flatten().map(|stand| place(stand).max(oldest)).min();
        for (who, figures) in takes_part().zip(&all) {
            let stand = self.stands[who].as_ref().expect("takes part");
            let waiting = stand.waiting(oldest, end);
            prop_assert_eq!(figures.messages, waiting.len() as u64);
            prop_assert_eq!(figures.in_flight, (stand.open.len() - stand.returned.len()) as u64);
            // Among what was dropped a gap may be reported in pieces, and done numbers are passed
            // over.
            let undone = (place(stand)..).find(|seq| !stand.done.contains(seq));
            prop_assert!(Some(figures.next_seq) <= undone, "{:?} {:?}", figures, stand);
            prop_assert!(figures.next_seq == place(stand) || oldest > 0, "{:?}", figures);
            if let Some(first) = waiting.first() {
                let taken =
                    (*first..end).map(|seq| 16 + self.lens[seq as usize].next_multiple_of(8));
                prop_assert!(figures.bytes >= taken.sum::<usize>() as u64, "{:?}", figures);
                let is_lowest = Some(place(stand).max(oldest)) == lowest;
                // Where a message lost its beginning, numbers do not tell who is behind; nor do
                // they say on which side of a segment's end somebody stands.
                prop_assert!(!figures.holds_oldest || is_lowest || oldest > 0, "{:?}", figures);
            }
            if who == 0 {
                let stats = queue.stats();
                prop_assert_eq!((stats.messages, stats.bytes), (figures.messages, figures.bytes));
                prop_assert_eq!(&figures.name, "");
            } else {
                let alone = queue.consumer(&name(who)).unwrap().stats();
                prop_assert_eq!(&ageless(alone), figures);
            }
        }
        let someone = takes_part()
            .any(|who| !self.stands[who].as_ref().unwrap().waiting(oldest, end).is_empty());
        prop_assert!(!someone || all.iter().any(|figures| figures.holds_oldest), "{:?}", all);
        Ok(())
    }
}
