//! Two files of one segment.

use super::{roomy, take};
use crate::options::Options;
use crate::tests::crash::directed::{disk, take_all};
use crate::tests::crash::examine::{Queue, open};
use crate::tests::crash::model::content;
use crate::tests::sim::SimStorage;

const LEN: usize = 700;

fn options() -> Options {
    roomy().max_bytes(512 << 10)
}

fn segments(storage: &SimStorage) -> Vec<String> {
    storage.file_names().into_iter().filter(|name| name.starts_with("segment-")).collect()
}

fn put(queue: &Queue, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert!(queue.enqueue(&content(number, LEN)).unwrap() >= number);
    }
    queue.core.flush().unwrap();
}

/// What a close, a kill, a power cut, another mount leaves.
fn image(queue: &Queue, how: usize) -> SimStorage {
    let storage = &queue.core.storage;
    match how {
        0 => {
            queue.close().unwrap();
            storage.process_kill()
        }
        1 => storage.process_kill(),
        2 => storage.power_cut_losing_all(),
        _ => storage.seen_elsewhere(),
    }
}

/// The contents of all messages that come.
fn contents(queue: &Queue) -> Vec<Vec<u8>> {
    take_all(queue).unwrap().into_iter().flatten().map(|(_, bytes)| bytes).collect()
}

#[test]
fn a_copy_of_any_segment_costs_nothing() {
    for (before, between) in (0..4).flat_map(|one| (0..4).map(move |two| (one, two))) {
        for which in 0..3 {
            let queue = open(disk(1), &options()).unwrap();
            queue.default_consumer().unwrap();
            put(&queue, 0..40);
            take(&queue, 2);
            let storage = image(&queue, before);
            let Some(name) = segments(&storage).get(which).cloned() else { continue };
            storage.write_file("segment-00000009", &storage.read_file(&name));
            let queue = open(storage, &options()).unwrap();
            put(&queue, 40..52);
            let queue = open(image(&queue, between), &options()).unwrap();
            let reported = contents(&queue);
            let wanted = (2..52).map(|number| content(number, LEN));
            let what = format!("{before}, {name}, {between}: {} come", reported.len());
            // (A power cut takes the place back.)
            let from = reported.len().saturating_sub(50);
            assert!(reported[from..].iter().cloned().eq(wanted), "{what}");
        }
    }
}

/// The last segment got another name, and an older copy of it stands under its own.
#[test]
fn an_older_copy_beside_its_segment_costs_nothing() {
    for (how, is_swapped) in (0..4).flat_map(|how| [(how, false), (how, true)]) {
        let queue = open(disk(1), &options()).unwrap();
        queue.default_consumer().unwrap();
        put(&queue, 0..34);
        let last = segments(&queue.core.storage).pop().unwrap();
        let older = queue.core.storage.read_file(&last);
        put(&queue, 34..38);
        let storage = image(&queue, how);
        if is_swapped {
            storage.write_file("segment-00000009", &storage.read_file(&last));
            storage.write_file(&last, &older);
        } else {
            storage.write_file("segment-00000009", &older);
        }
        let queue = open(storage, &options()).unwrap();
        let wanted = (0..38).map(|number| content(number, LEN));
        assert!(contents(&queue).into_iter().eq(wanted), "{how}, {is_swapped}");
        let quarantined = queue.core.storage.file_names();
        assert!(quarantined.iter().any(|name| name.ends_with(".damaged")), "{quarantined:?}");
    }
}
