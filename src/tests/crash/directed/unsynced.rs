//! What comes while the index is synced rests on nothing that the sync made durable.

use std::sync::Arc;

use super::{disk, holds_but_for, options};
use crate::consume::step::Read;
use crate::engine::reading::AsMessage;
use crate::format::{INDEX_NAME, SegmentHeader, segment_slot};
use crate::index::image::IndexImage;
use crate::read::Check;
use crate::segment::geometry::LENGTH_HERE;
use crate::tests::crash::examine::{Queue, consumer_of, open};
use crate::tests::crash::model::content;
use crate::tests::sim::{Mutant, meanwhile};

/// While the places are synced that let a segment go, a reader leaves the next one, too: the header
/// of the first says no more than the places on the disk.
#[test]
fn a_header_says_of_what_was_given_back_no_more_than_the_disk() {
    holds_but_for(Mutant::HeldTakenAfterTheSync, || {
        LENGTH_HERE.set(Some(16 << 10));
        let queue = open(disk(1), &options().max_bytes(256 << 10)).unwrap();
        queue.default_consumer().unwrap();
        (0..100)
            .for_each(|number| assert_eq!(queue.enqueue(&content(number, 700)).unwrap(), number));
        queue.core.flush().unwrap();
        let leave_one = |queue: &Queue| {
            let base = |queue: &Queue| queue.core.segments.list().live.front().unwrap().header.base;
            let first = base(queue);
            let consumer = consumer_of(queue, "").unwrap();
            while base(queue) == first {
                let step = consumer.step(
                    consumer.locked.lock(),
                    &queue.core,
                    Read::Take,
                    Check::Now,
                    AsMessage,
                    None,
                );
                assert!(step.outcome.unwrap().is_some());
                queue.core.drain_passed();
            }
        };
        leave_one(&queue);
        let reader = Arc::clone(&queue);
        meanwhile("behind the sync of what goes", move || leave_one(&reader));
        queue.core.reclaim().unwrap();
        let storage = &queue.core.storage;
        let bytes = storage.power_cut_losing_all().read_file(INDEX_NAME);
        let places = IndexImage::read(&bytes, &queue.core.index.queue_id).consumers;
        let place = places.iter().map(|consumer| consumer.place.seq).min().unwrap();
        let names = storage.file_names().into_iter().filter(|name| segment_slot(name).is_some());
        let headers = names
            .map(|name| SegmentHeader::decode(storage.read_file(&name).first_chunk().unwrap()));
        let held = headers.filter_map(Result::ok).map(|header| header.retained_from).max().unwrap();
        assert!(0 < held && held <= place, "{held} is held, {place} is on the disk");
    });
}
