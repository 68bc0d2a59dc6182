//! Batches beside other readers.

use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn a_batch_ends_after_64_messages_when_another_thread_waits() {
    static ENDED_EARLY: AtomicBool = AtomicBool::new(false);
    under(30, || {
        let queue = open(&small(4), Background::Calls);
        for _ in 0..300 {
            queue.enqueue(b"a message").unwrap();
        }
        let batches = Arc::new(Mutex::new(Vec::new()));
        let takers = ["a", "b"].map(|name| {
            let (queue, consumer) = (Arc::clone(&queue), queue.consumer("both").unwrap());
            let batches = Arc::clone(&batches);
            go(name, move || {
                let taken = reading::batch(&queue, &consumer, 300).unwrap();
                batches.lock().unwrap().push(taken);
            })
        });
        takers.into_iter().for_each(JoinHandle::join);
        let batches = batches.lock().unwrap();
        let mut all: Vec<u64> = batches.iter().flatten().map(crate::Message::seq).collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..all.len() as u64), "each message comes once");
        for batch in &*batches {
            assert!(batch.len() % 64 == 0 || batch.last().is_some_and(|last| last.seq() == 299));
            ENDED_EARLY.fetch_or(batch.len() % 300 != 0, Ordering::Relaxed);
        }
    });
    assert!(ENDED_EARLY.load(Ordering::Relaxed), "no thread waited in any schedule");
}
