//! The figures that a queue shows, held to the specification.

use mmq::ConsumerStats;

use super::spec::Consumer;
use super::steps::NAMES;
use super::{Sequence, ask_named};

impl Sequence {
    pub(super) fn check_figures(&mut self) {
        let queue = self.queue.as_ref().expect("it is open");
        // The flusher's thread may raise the durable number at any moment.
        let durable = queue.durable_seq();
        let stats = queue.stats();
        assert!((durable..=queue.durable_seq()).contains(&stats.durable_seq), "{stats:?}");
        assert_eq!(stats.next_seq, self.spec.end(), "the next number");
        self.spec.sees_oldest(stats.oldest_seq);
        self.spec.sees_durable(stats.durable_seq);
        let waiting = self.spec.len(0);
        assert_eq!(queue.len(), waiting, "{:?}", self.spec.consumers);
        assert_eq!(queue.is_empty(), waiting == 0);
        let all: Vec<_> = queue.consumer_stats().into_iter().map(ageless).collect();
        let named: Vec<_> = self.spec.consumers.keys().map(|who| NAMES[*who]).collect();
        assert!(named.iter().eq(all.iter().map(|figures| &figures.name)), "{named:?}, not {all:?}");
        assert!(named.into_iter().filter(|name| !name.is_empty()).eq(queue.consumers()));
        let someone = self.spec.consumers.keys().any(|who| self.spec.len(*who) > 0);
        let holds = all.iter().any(|figures| figures.holds_oldest);
        assert!(holds || !someone, "nobody holds the oldest of {all:?}");
        // Where a message lost its beginning, numbers do not tell who is behind; nor do they say on
        // which side of a segment's end somebody stands.
        let place = |figures: &ConsumerStats| figures.next_seq.max(stats.oldest_seq);
        let lowest = all.iter().map(place).min();
        let is_right = |it: &ConsumerStats| !it.holds_oldest || Some(place(it)) == lowest;
        assert!(stats.oldest_seq > 0 || all.iter().all(is_right), "{all:?}");
        for ((who, consumer), figures) in self.spec.consumers.iter().zip(&all) {
            self.check_consumer(consumer, figures);
            let alone = match who {
                0 => {
                    let of_both = (stats.messages, stats.bytes);
                    assert_eq!(of_both, (figures.messages, figures.bytes));
                    continue;
                }
                who => ask_named(queue, *who),
            };
            assert_eq!(&ageless(alone.stats()), figures);
            assert_eq!((alone.len(), alone.in_flight()), (figures.messages, figures.in_flight));
        }
    }

    fn check_consumer(&self, consumer: &Consumer, figures: &ConsumerStats) {
        let (held, place) = (self.spec.held(), consumer.place());
        let waiting = consumer.waiting(held.clone());
        assert_eq!(figures.messages, waiting.len() as u64, "{figures:?} {consumer:?}");
        assert_eq!(figures.in_flight, consumer.in_flight() as u64, "{figures:?} {consumer:?}");
        // A read passes done numbers by, some at once. It may report a gap in pieces.
        let undone = (place..).find(|seq| !consumer.is_done(*seq)).unwrap_or(place);
        let least = if held.start == 0 { place } else { 0 };
        assert!((least..=undone).contains(&figures.next_seq), "{figures:?} {consumer:?}");
        let Some(first) = waiting.first() else { return };
        // A header, and the bytes to a multiple of 8.
        let lens = &self.spec.lens[*first as usize..];
        let taken: usize = lens.iter().map(|len| 16 + len.next_multiple_of(8)).sum();
        assert!(figures.bytes >= taken as u64, "{figures:?} for {taken} bytes");
    }
}

/// The age follows the clock. It is there when a message waits.
fn ageless(mut figures: ConsumerStats) -> ConsumerStats {
    assert_eq!(figures.oldest_age.is_some(), figures.messages > 0, "{figures:?}");
    assert!(figures.messages > 0 || figures.bytes == 0, "{figures:?}");
    figures.oldest_age = None;
    figures
}
