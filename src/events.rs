//! The events for `tracing` (feature `tracing`; target `mmq`). Without the feature every function
//! here is empty.
//!
//! A subscriber is foreign code and may call the very queue that reports to it. So the queue
//! reports nothing while it holds a lock: an event is noted first, and the same thread reports it
//! where its call holds no lock any more, at the latest when the call returns ([`at_end`]).
//!
//! Events of calls that a subscriber makes while it handles an event are not reported: a subscriber
//! that puts each event into a full queue, which is an event, would never come to an end.

use std::io;
use std::path::Path;

use crate::error::{Error, Gap};
use crate::threads::requests::Noted;

/// Reports the noted events when it is dropped. It is made before the call takes its first lock, so
/// it is dropped after the last lock is released.
#[must_use]
pub(crate) struct AtEnd(());

/// Called at the beginning of every public call in which events may occur.
#[inline(always)]
pub(crate) fn at_end() -> AtEnd {
    AtEnd(())
}

#[cfg(feature = "tracing")]
impl Drop for AtEnd {
    #[inline]
    fn drop(&mut self) {
        report();
    }
}

/// While this lives the calling thread reports nothing: a subscriber, which is foreign code, could
/// end it in the middle of what it does.
#[must_use]
pub(crate) struct Holding(());

pub(crate) fn hold() -> Holding {
    #[cfg(feature = "tracing")]
    noted::RETAINED_FROM.set(noted::RETAINED_FROM.get() + 1);
    Holding(())
}

#[cfg(feature = "tracing")]
impl Drop for Holding {
    fn drop(&mut self) {
        noted::RETAINED_FROM.set(noted::RETAINED_FROM.get() - 1);
    }
}

/// Whether the calling thread has noted events to report.
#[inline(always)]
pub(crate) fn are_noted() -> bool {
    #[cfg(feature = "tracing")]
    return noted::are_noted();
    #[cfg(not(feature = "tracing"))]
    false
}

/// Takes the events that the calling thread has noted, for another thread to report them.
pub(crate) fn take() -> Noted {
    #[cfg(feature = "tracing")]
    return noted::take();
    #[cfg(not(feature = "tracing"))]
    Noted::new()
}

/// Notes events that another thread has noted.
pub(crate) fn take_over(events: Noted) {
    #[cfg(feature = "tracing")]
    events.into_iter().for_each(noted::note_boxed);
    #[cfg(not(feature = "tracing"))]
    drop(events);
}

/// Reports the noted events. The calling thread holds no lock.
#[inline(always)]
pub(crate) fn report() {
    #[cfg(feature = "tracing")]
    noted::report();
}

#[cfg(feature = "tracing")]
mod noted {
    use std::cell::{Cell, RefCell};

    thread_local! {
        static NOTED: RefCell<crate::threads::requests::Noted> = const { RefCell::new(Vec::new()) };
        /// This thread is inside a subscriber.
        static REPORTING: Cell<bool> = const { Cell::new(false) };
        pub(super) static RETAINED_FROM: Cell<u32> = const { Cell::new(0) };
    }

    /// Whether this thread has a subscriber: it may be another's that asks for such events. (No
    /// subscriber is asked what it wants, for it may call the queue.)
    pub(super) fn has_subscriber() -> bool {
        tracing::dispatcher::get_default(|subscriber| {
            !subscriber.is::<tracing::subscriber::NoSubscriber>()
        })
    }

    pub(super) fn note(event: impl FnOnce() + Send + 'static) {
        note_boxed(Box::new(event));
    }

    pub(super) fn note_boxed(event: Box<dyn FnOnce() + Send>) {
        if !REPORTING.get() {
            // A thread whose locals are destroyed already reports nothing any more.
            let _ = NOTED.try_with(|noted| noted.borrow_mut().push(event));
        }
    }

    pub(super) fn take() -> crate::threads::requests::Noted {
        NOTED.try_with(std::cell::RefCell::take).unwrap_or_default()
    }

    pub(super) fn are_noted() -> bool {
        NOTED.try_with(|noted| !noted.borrow().is_empty()).unwrap_or(false)
    }

    #[inline]
    pub(super) fn report() {
        if are_noted() {
            report_all();
        }
    }

    #[cold]
    fn report_all() {
        /// Clears `REPORTING`, also when the subscriber panics.
        struct Reporting;
        impl Drop for Reporting {
            fn drop(&mut self) {
                REPORTING.set(false);
            }
        }
        // Events noted by a call that panics are reported by the thread's next call.
        if !REPORTING.get() && RETAINED_FROM.get() == 0 && !std::thread::panicking() {
            REPORTING.set(true);
            let _reporting = Reporting;
            crate::threads::ranks::check_foreign_code();
            NOTED.take().into_iter().for_each(|event| event());
        }
    }
}

/// Notes an event of the queue in the directory `path`, if somebody listens.
#[cfg(feature = "tracing")]
macro_rules! note {
    ($level:ident, $path:expr, $($fields:tt)*) => {
        if tracing::Level::$level <= tracing::level_filters::LevelFilter::current()
            && noted::has_subscriber()
        {
            let path = $path.display().to_string();
            noted::note(move || {
                tracing::event!(target: "mmq", tracing::Level::$level, path, $($fields)*);
            });
        }
    };
}

/// A queue was opened: what it holds, and, when it had not been closed, how many gaps recovery
/// found.
#[inline]
pub(crate) fn opened(
    path: &Path,
    next_seq: u64,
    oldest_seq: u64,
    segments: usize,
    gaps: Option<usize>,
) {
    #[cfg(feature = "tracing")]
    {
        note!(INFO, path, next_seq, oldest_seq, segments, "queue opened");
        if let Some(gaps) = gaps {
            note!(INFO, path, gaps, "recovered: it was not closed");
        }
    }
    let _ = (path, next_seq, oldest_seq, segments, gaps);
}

/// A damaged or foreign file was renamed.
#[inline]
pub(crate) fn quarantined(path: &Path, name: &str, aside: &str) {
    #[cfg(feature = "tracing")]
    {
        let (name, aside) = (name.to_owned(), aside.to_owned());
        note!(WARN, path, name, aside, "damaged or foreign file set aside");
    }
    let _ = (path, name, aside);
}

/// The disk cannot read a part of a file.
#[inline]
pub(crate) fn unreadable(path: &Path, name: &'static str) {
    #[cfg(feature = "tracing")]
    note!(WARN, path, name, "file cannot be read everywhere");
    let _ = (path, name);
}

/// The places of some consumers cannot be read. Nothing that is held is removed until they are
/// removed or have read it.
#[inline]
pub(crate) fn consumers_lost(path: &Path, consumers: usize) {
    #[cfg(feature = "tracing")]
    note!(WARN, path, consumers, "places of consumers are lost: they begin at the oldest message");
    let _ = (path, consumers);
}

/// Recovery has walked `bytes` behind the checkpoint so far.
#[inline]
pub(crate) fn recovering(path: &Path, bytes: u64) {
    #[cfg(feature = "tracing")]
    note!(INFO, path, bytes, "recovering");
    let _ = (path, bytes);
}

/// Where a segment that begins comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    New,
    Spare,
}

/// The tail went on to another segment.
#[inline]
pub(crate) fn segment_begun(path: &Path, slot: u32, first_seq: u64, file: SegmentFile) {
    let reused = file == SegmentFile::Spare;
    #[cfg(feature = "tracing")]
    note!(DEBUG, path, slot, first_seq, reused, "segment begun");
    let _ = (path, slot, first_seq, reused);
}

/// A read has reported a gap to a consumer.
#[inline]
pub(crate) fn gap(path: &Path, gap: &Gap) {
    #[cfg(feature = "tracing")]
    {
        let Gap { first, last, cause } = *gap;
        note!(WARN, path, first, last, %cause, "messages are missing");
    }
    let _ = (path, gap);
}

/// Messages that some consumer had yet to read were dropped to make room, or have expired.
#[inline]
pub(crate) fn evicted(path: &Path, gap: &Gap) {
    #[cfg(feature = "tracing")]
    {
        let Gap { first, last, cause } = *gap;
        note!(WARN, path, first, last, %cause, "messages were given up");
    }
    let _ = (path, gap);
}

/// The first consumer was made behind messages that no consumer had claimed.
#[inline]
pub(crate) fn unclaimed(path: &Path, consumer: &str, first: u64, last: u64) {
    #[cfg(feature = "tracing")]
    {
        let consumer = consumer.to_owned();
        note!(WARN, path, consumer, first, last, "unclaimed messages were given up");
    }
    let _ = (path, consumer, first, last);
}

/// The messages that the consumer is handed are not counted: other consumers have all rows of the
/// index for that.
#[inline]
pub(crate) fn not_counted(path: &Path, consumer: &str) {
    #[cfg(feature = "tracing")]
    {
        let consumer = consumer.to_owned();
        note!(WARN, path, consumer, "attempts are not stored: no row is free in the index");
    }
    let _ = (path, consumer);
}

/// The consumer has more messages with failed attempts than its row in the index has room for. The
/// counts of the highest numbers are not stored.
#[inline]
pub(crate) fn counts_do_not_fit(path: &Path, consumer: &str) {
    #[cfg(feature = "tracing")]
    {
        let consumer = consumer.to_owned();
        note!(WARN, path, consumer, "attempts are not stored: the row in the index is full");
    }
    let _ = (path, consumer);
}

/// Rejected messages could not go to the queue for dead letters. So many `letters` stay, and are
/// tried again; those that are too large for that queue come as gaps.
#[inline]
pub(crate) fn dead_letters_stay(path: &Path, consumer: &str, letters: usize, error: &Error) {
    #[cfg(feature = "tracing")]
    {
        let (consumer, error) = (consumer.to_owned(), error.to_string());
        note!(WARN, path, consumer, letters, error, "dead letters could not be put in");
    }
    let _ = (path, consumer, letters, error);
}

/// A flush failed; writing is refused from now on.
#[inline]
pub(crate) fn flush_failed(path: &Path, error: &Error) {
    #[cfg(feature = "tracing")]
    {
        let error = error.to_string();
        note!(ERROR, path, error, "flush failed; writing is refused");
    }
    let _ = (path, error);
}

/// There was no room for a message.
#[inline]
pub(crate) fn full(path: &Path, error: &Error) {
    #[cfg(feature = "tracing")]
    {
        let error = error.to_string();
        note!(DEBUG, path, error, "queue is full");
    }
    let _ = (path, error);
}

/// A part of the index, such as a consumer's place, could not be written; it waits in memory.
#[inline]
pub(crate) fn index_late(path: &Path, error: &io::Error) {
    #[cfg(feature = "tracing")]
    {
        let error = error.to_string();
        note!(WARN, path, error, "places are kept in memory: the index file cannot be written");
    }
    let _ = (path, error);
}
