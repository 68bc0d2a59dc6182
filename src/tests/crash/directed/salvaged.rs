//! What a salvage makes of the files that a death leaves.

use super::{disk, options};
use crate::salvage::{Salvage, Salvaged};
use crate::tests::crash::examine::open;
use crate::tests::crash::model::content;
use crate::tests::guard::tempdir;
use crate::tests::sim::{forget_meanwhile, meanwhile};

/// The process dies at each call and each store of a batch: of the batch all comes, or nothing.
#[test]
fn a_salvage_hands_out_no_part_of_a_batch_that_was_never_put_in() {
    let mut left_out = 0;
    for store in 1.. {
        let queue = open(disk(1), &options()).unwrap();
        (0..2).for_each(|number| assert_eq!(queue.enqueue(&content(number, 100)).unwrap(), number));
        queue.core.storage.freeze_at_store(store);
        queue.enqueue_batch(&[content(2, 100), content(3, 100), content(4, 100)]).unwrap();
        queue.core.storage.disarm();
        let Some(dead) = queue.core.storage.frozen() else { break };
        let directory = tempdir().unwrap();
        for (name, bytes) in dead.contents() {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        }
        let mut messages = Salvage::of([directory.path()]).messages().unwrap();
        let came = messages.by_ref().filter(|it| matches!(it, Salvaged::Message { .. }));
        let came = came.count();
        assert!(came == 2 || came == 5, "store {store}: {came} came");
        left_out += u32::from(messages.into_report().unfinished_left_out);
    }
    assert!(left_out > 1, "{left_out}");
}

/// The owner of the queue uses a file again right after it was searched: nothing in it is damaged.
#[test]
fn a_segment_that_is_used_again_behind_a_search_is_given_back_and_not_damaged() {
    let directory = tempdir().unwrap();
    let queue = crate::Queue::open(directory.path()).unwrap();
    (0..10).for_each(|number| assert_eq!(queue.enqueue(content(number, 100)).unwrap(), number));
    queue.close().unwrap();
    let file = directory.path().join("segment-00000000");
    // What the salvage meets at first is no record, as when the owner is about to write it.
    let mut bytes = std::fs::read(&file).unwrap();
    let at = 128 + 3 * (16 + 104);
    bytes[at..at + 16].fill(0);
    std::fs::write(&file, &bytes).unwrap();
    meanwhile("between a search in a file and another look", move || {
        bytes.fill(0);
        std::fs::write(&file, &bytes).unwrap();
    });
    let mut messages = Salvage::of([directory.path()]).messages().unwrap();
    let (mut came, mut overtaken) = (0, None);
    for salvaged in messages.by_ref() {
        match salvaged {
            Salvaged::Message { .. } => came += 1,
            Salvaged::Overtaken { first, last } => overtaken = Some((first, last)),
            Salvaged::Gap(gap) => panic!("{gap}"),
        }
    }
    assert!(!forget_meanwhile());
    assert_eq!((came, overtaken), (3, Some((3, 9))));
    assert!(messages.into_report().is_whole());
}

/// The place of the only consumer that has read nothing cannot be read. What is gone is a gap.
#[test]
fn what_a_consumer_without_a_place_has_not_read_is_owed() {
    let directory = tempdir().unwrap();
    let queue = options().open(directory.path()).unwrap();
    let name = "a name of more than thirty-five bytes";
    let consumer = queue.consumer(name).unwrap();
    (0..30).for_each(|number| assert_eq!(queue.enqueue(content(number, 700)).unwrap(), number));
    while queue.dequeue().unwrap().is_some() {}
    drop(consumer);
    queue.close().unwrap();
    let index = directory.path().join("index");
    let mut bytes = std::fs::read(&index).unwrap();
    let row = bytes.windows(name.len()).position(|found| found == name.as_bytes()).unwrap();
    bytes[row] ^= 0x80;
    std::fs::write(&index, &bytes).unwrap();
    std::fs::remove_file(directory.path().join("segment-00000000")).unwrap();
    let mut messages = Salvage::of([directory.path()]).messages().unwrap();
    let first = messages.next();
    assert!(matches!(&first, Some(Salvaged::Gap(gap)) if gap.first == 0), "{first:?}");
}
