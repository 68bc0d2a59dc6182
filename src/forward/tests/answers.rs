//! Far sides whose answers are unusual, and a real queue.

use std::sync::Arc;
use std::time::Duration;

use super::real::{far, forwarder};
use crate::forward::destination::MissingCause;
use crate::forward::{ForwardOptions, OnRefused};
use crate::queue::Queue;

#[test]
fn what_is_left_out_at_the_end_is_put_aside_once_and_passed() {
    for first in [&["\u{1}poison"][..], &["fine", "\u{1}poison"]] {
        let dir = crate::tests::guard::tempdir().unwrap();
        let queue = Queue::open(dir.path().join("queue")).unwrap();
        let letters = Arc::new(Queue::open(dir.path().join("letters")).unwrap());
        let mut far = far();
        let mut drain = || {
            let short = Duration::from_millis(1);
            let options = ForwardOptions { first_pause: short, ..Default::default() };
            let to = OnRefused::DeadLetters(Arc::clone(&letters));
            let mut forwarder = forwarder(&queue, &mut far).options(options).on_refused(to);
            let watch = forwarder.watch();
            forwarder.once().unwrap();
            assert_eq!((watch.progress().lag, letters.len()), (0, 1));
        };
        queue.enqueue_batch(first).unwrap();
        (0..3).for_each(|_| drain());
        queue.enqueue("fine, too").unwrap();
        drain();
        let (log, poison) = (&far.0.lock().log, first.len() as u64 - 1);
        let missing = log.last().unwrap().missing[0];
        assert_eq!((missing.first, missing.cause), (poison, MissingCause::Refused));
        assert_eq!(log.len(), first.len(), "each other message is there once");
    }
}
