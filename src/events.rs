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

use crate::error::{Error, GapCause};
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

/// Makes a function for each event of the queue in the directory `path`: it notes the event, with a
/// copy of each field, if somebody listens.
macro_rules! events {
    ($(
        $(#[$about:meta])*
        $level:ident $name:ident($($field:ident: $kind:ty $(= $copy:expr)?),*) $text:literal
    )*) => {$(
        $(#[$about])*
        #[inline]
        pub(crate) fn $name(path: &Path, $($field: $kind),*) {
            #[cfg(feature = "tracing")]
            if tracing::Level::$level <= tracing::level_filters::LevelFilter::current()
                && noted::has_subscriber()
            {
                let path = path.display().to_string();
                $($(let $field = $copy;)?)*
                noted::note(move || {
                    tracing::event!(target: "mmq", tracing::Level::$level, path, $($field,)* $text);
                });
            }
            let _ = (path, $($field),*);
        }
    )*};
}

/// Where a segment that begins comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    New,
    Spare,
}

events! {
    /// A queue was opened.
    INFO opened(next_seq: u64, oldest_seq: u64, segments: usize)
        "queue opened"
    /// The queue had not been closed; recovery found so many gaps.
    INFO recovered(gaps: usize) "recovered: it was not closed"
    /// A damaged or foreign file was renamed.
    WARN quarantined(name: &str = name.to_owned(), aside: &str = aside.to_owned())
        "damaged or foreign file set aside"
    /// The disk cannot read a part of a file.
    WARN unreadable(name: &str = name.to_owned()) "file cannot be read everywhere"
    /// The places of some consumers cannot be read. Nothing that is held is removed until they are
    /// removed or have read it.
    WARN consumers_lost(consumers: usize)
        "places of consumers are lost: they begin at the oldest message"
    /// Recovery has walked `bytes` behind the checkpoint so far.
    INFO recovering(bytes: u64) "recovering"
    /// The tail went on to another segment.
    DEBUG segment_begun(slot: u32, first_seq: u64,
        reused: SegmentFile = reused == SegmentFile::Spare) "segment begun"
    /// A read has reported a gap to a consumer.
    WARN gap(first: u64, last: u64, cause: GapCause = tracing::field::display(cause))
        "messages are missing"
    /// Messages that some consumer had yet to read were dropped to make room, or have expired.
    WARN evicted(first: u64, last: u64,
        cause: GapCause = tracing::field::display(cause)) "messages were given up"
    /// The first consumer was made behind messages that no consumer had claimed.
    WARN unclaimed(consumer: &str = consumer.to_owned(), first: u64, last: u64)
        "unclaimed messages were given up"
    /// The messages that the consumer is handed are not counted: other consumers have all rows of
    /// the index for that.
    WARN not_counted(consumer: &str = consumer.to_owned())
        "attempts are not stored: no row is free in the index"
    /// The consumer has more messages with failed attempts than its row in the index has room for.
    /// The counts of the highest numbers are not stored.
    WARN counts_do_not_fit(consumer: &str = consumer.to_owned())
        "attempts are not stored: the row in the index is full"
    /// Rejected messages could not go to the queue for dead letters. So many `letters` stay, and
    /// are tried again; those that are too large for that queue come as gaps.
    WARN dead_letters_stay(consumer: &str = consumer.to_owned(), letters: usize,
        error: &Error = error.to_string()) "dead letters could not be put in"
    /// A flush failed; writing is refused from now on.
    ERROR flush_failed(error: &Error = error.to_string()) "flush failed; writing is refused"
    /// There was no room for a message.
    DEBUG full(error: &Error = error.to_string()) "queue is full"
    /// A part of the index, such as a consumer's place, could not be written; it waits in memory.
    WARN index_late(error: &io::Error = error.to_string())
        "places are kept in memory: the index file cannot be written"
}
