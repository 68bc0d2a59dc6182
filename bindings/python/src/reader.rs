//! All calls that read: the base of `Queue` and `Consumer`.

use std::sync::Arc;
use std::time::Duration;

use mmq::Error;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{Number, Rules, detached, optional};
use crate::consumer::Consumer;
use crate::delivery::Delivery;
use crate::errors::{gap, raise, refuse};
use crate::iterators::{Deliveries, LookAhead, Messages};
use crate::queue::Queue;
use crate::source::{Held, Source, Taken};
use crate::waiting::Deadline;

/// What reads a queue: a `Queue`, through its consumer without a name, and a `Consumer`.
///
/// A call that returns one message raises `Empty` when there is none. `timeout` is in seconds:
/// `None` waits for ever, 0 does not wait.
#[pyclass(module = "mmq", frozen, subclass)]
pub(crate) struct Reader {
    pub(crate) source: Held<Source>,
    pub(crate) on_gap: Option<Py<PyAny>>,
}

/// How long a call waits for a message; `None`: not at all.
#[derive(Clone, Copy)]
pub(crate) struct Patience(Option<Deadline>);

impl Patience {
    pub(crate) const NONE: Patience = Patience(None);

    pub(crate) fn new(py: Python<'_>, timeout: Option<f64>) -> PyResult<Patience> {
        let timeout = optional(py, "timeout", timeout)?;
        Ok(Patience((timeout != Some(Duration::ZERO)).then(|| Deadline::after(timeout))))
    }
}

impl Reader {
    /// Reads past gaps if somebody wants to be told of them; else raises them.
    fn past_gaps<T>(
        &self,
        py: Python<'_>,
        mut read: impl FnMut() -> mmq::Result<T>,
    ) -> PyResult<T> {
        loop {
            match (read(), &self.on_gap) {
                (Err(Error::Gap(missing)), Some(on_gap)) => {
                    on_gap.call1(py, (gap(py, missing),))?;
                }
                (answer, _) => return answer.map_err(|error| raise(py, &error)),
            }
        }
    }

    /// Reads at once, or waits as long as `patience` has it, in slices: the queue ends one that is
    /// interrupted, and the count tells of an interrupt between two.
    fn next<T: Send>(
        &self,
        py: Python<'_>,
        patience: Patience,
        now: impl Fn(&Source) -> mmq::Result<Option<T>> + Sync,
        wait: impl Fn(&Source, Duration) -> mmq::Result<Option<T>> + Sync,
    ) -> PyResult<Option<T>> {
        let began = self.source.interrupts();
        let found = self.past_gaps(py, || py.detach(|| now(&self.source)))?;
        let (None, Some(deadline)) = (&found, patience.0) else { return Ok(found) };
        while let Some(slice) = deadline.slice() {
            let found = self.past_gaps(py, || py.detach(|| wait(&self.source, slice)))?;
            if found.is_some() {
                return Ok(found);
            }
            py.check_signals()?;
            if self.source.interrupts() != began {
                return Err(raise(py, &Error::Interrupted));
            }
        }
        Ok(None)
    }

    /// Takes the next message.
    pub(crate) fn take<'py>(
        &self,
        py: Python<'py>,
        patience: Patience,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let taken = self.next(py, patience, Source::dequeue, Source::dequeue_timeout)?;
        Ok(taken.map(|taken: Taken| PyBytes::new(py, &taken)))
    }

    /// Hands out the next message.
    pub(crate) fn hand_out(
        &self,
        py: Python<'_>,
        patience: Patience,
    ) -> PyResult<Option<mmq::Delivery>> {
        self.next(py, patience, Source::receive, Source::receive_timeout)
    }
}

fn found<T>(py: Python<'_>, found: Option<T>) -> PyResult<T> {
    found.ok_or_else(|| refuse(py, "Empty", "there is no message"))
}

#[pymethods]
impl Reader {
    /// An `on_gap` may lead back to what holds the queue.
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.on_gap)
    }

    /// Takes the next message, and returns its bytes: `queue.Queue.get`.
    ///
    /// Once it has returned, the message does not come again after the death of the process. Work
    /// that must not be lost wants `receive`.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put(b"a message")
    /// 0
    /// >>> q.get(timeout=1.5)
    /// b'a message'
    /// >>> q.get(block=False)
    /// Traceback (most recent call last):
    /// ...
    /// mmq.Empty: there is no message
    #[pyo3(signature = (block=true, timeout=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = PyAnyMethods::is_truthy)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let patience = if block { Patience::new(py, timeout)? } else { Patience::NONE };
        found(py, self.take(py, patience)?)
    }

    /// Takes the next message if there is one: `queue.Queue.get_nowait`.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put(b"a message")
    /// 0
    /// >>> q.get_nowait()
    /// b'a message'
    fn get_nowait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        found(py, self.take(py, Patience::NONE)?)
    }

    /// Takes up to `max` messages, without waiting for any: quicker than one by one.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b", b"c"])
    /// range(0, 3)
    /// >>> q.get_many(2)
    /// [b'a', b'b']
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        max: Number<usize>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let taken = self.past_gaps(py, || py.detach(|| self.source.dequeue_batch(max.0)))?;
        Ok(taken.iter().map(|message| PyBytes::new(py, message)).collect())
    }

    /// Returns the bytes of the next message, which stays.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put(b"a message")
    /// 0
    /// >>> q.peek(), len(q)
    /// (b'a message', 1)
    fn peek<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let next = found(py, self.past_gaps(py, || py.detach(|| self.source.peek()))?)?;
        Ok(PyBytes::new(py, &next))
    }

    /// Passes over the next message, and returns its number.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"unwanted", b"wanted"])
    /// range(0, 2)
    /// >>> q.skip(), q.get()
    /// (0, b'wanted')
    fn skip(&self, py: Python<'_>) -> PyResult<u64> {
        found(py, self.past_gaps(py, || py.detach(|| self.source.skip()))?)
    }

    /// Hands out the next message as a `Delivery`, which comes again unless it is acknowledged.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put(b"resize picture 7")
    /// 0
    /// >>> with q.receive() as job: # acknowledges at its end; an exception gives it back
    /// ...     print(job.data)
    /// b'resize picture 7'
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Delivery> {
        let handed = found(py, self.hand_out(py, Patience::new(py, timeout)?)?)?;
        Ok(Delivery::new(py, handed, None))
    }

    /// Hands out up to `max` messages, without waiting for any. `mmq.ack_many` acknowledges them.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b", b"c"])
    /// range(0, 3)
    /// >>> jobs = q.receive_many(100)
    /// >>> mmq.ack_many(jobs), len(q)
    /// (None, 0)
    fn receive_many(&self, py: Python<'_>, max: Number<usize>) -> PyResult<Vec<Delivery>> {
        let handed = self.past_gaps(py, || py.detach(|| self.source.receive_batch(max.0)))?;
        Ok(handed.into_iter().map(|handed| Delivery::new(py, handed, None)).collect())
    }

    /// Returns an iterator that takes messages, for `for` and `async for`. It ends when none comes
    /// within `timeout`, and when the queue is closed.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b"])
    /// range(0, 2)
    /// >>> list(q.messages(timeout=0))
    /// [b'a', b'b']
    #[pyo3(signature = (timeout=None))]
    fn messages(slf: Bound<'_, Self>, py: Python<'_>, timeout: Option<f64>) -> PyResult<Messages> {
        Messages::new(py, slf.unbind(), timeout)
    }

    /// Returns an iterator that hands out messages, for `for` and `async for`. It ends when none
    /// comes within `timeout`, and when the queue is closed.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b"])
    /// range(0, 2)
    /// >>> for job in q.deliveries(timeout=0):
    /// ...     with job:
    /// ...         print(job.seq, job.data)
    /// 0 b'a'
    /// 1 b'b'
    #[pyo3(signature = (timeout=None))]
    fn deliveries(
        slf: Bound<'_, Self>,
        py: Python<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Deliveries> {
        Deliveries::new(py, slf.unbind(), timeout)
    }

    /// Returns an iterator over the messages from the next one on, which takes none.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b"])
    /// range(0, 2)
    /// >>> [(message.seq, message.data) for message in q.look_ahead()], len(q)
    /// ([(0, b'a'), (1, b'b')], 2)
    fn look_ahead(&self, py: Python<'_>) -> PyResult<LookAhead> {
        let ahead = detached(py, || self.source.look_ahead())?;
        Ok(LookAhead::new(ahead, self.on_gap.as_ref().map(|on_gap| on_gap.clone_ref(py))))
    }

    /// Sets when messages come again that were handed out and not acknowledged.
    ///
    /// `lease`: seconds after which a delivery goes back by itself. `backoff`: seconds before it
    /// comes again after the first attempt, and at most; each further delay is twice as long.
    /// `max_attempts`: then it is rejected. `dead_letters`: the `Queue` to which rejected messages
    /// go: it takes them, and stays locked, until this queue is closed, even if it is closed before.
    /// What is left out is off.
    ///
    /// >>> q, failed = mmq.Queue(path), mmq.Queue(path + "-failed")
    /// >>> q.set_redelivery(lease=60, backoff=(0, 600), max_attempts=1, dead_letters=failed)
    /// >>> q.put(b"no job")
    /// 0
    /// >>> q.receive().nack()
    /// >>> letter = failed.receive(timeout=60)
    /// >>> letter.data, letter.origin.seq, letter.origin.attempts
    /// (b'no job', 0, 1)
    #[pyo3(signature = (*, lease=None, backoff=None, max_attempts=None, dead_letters=None))]
    fn set_redelivery(
        &self,
        py: Python<'_>,
        lease: Option<f64>,
        backoff: Option<(f64, f64)>,
        max_attempts: Option<Number<u32>>,
        dead_letters: Option<&Bound<'_, Queue>>,
    ) -> PyResult<()> {
        let rules = Rules::new(py, lease, backoff, max_attempts.map(|most| most.0))?;
        let letters = |queue: &Bound<'_, Queue>| queue.get().ask(py, |it| Ok(Arc::clone(&it.0)));
        let letters = dead_letters.map(letters).transpose()?;
        detached(py, move || self.source.set_redelivery(rules, letters.as_ref()))
    }

    /// Sets how many messages may be in flight at a time; `None`: any number.
    #[pyo3(signature = (messages))]
    fn set_max_in_flight(&self, py: Python<'_>, messages: Option<Number<u32>>) -> PyResult<()> {
        detached(py, || self.source.set_max_in_flight(messages.map(|most| most.0)))
    }

    /// How many messages are in flight: handed out, neither acknowledged nor given back.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.source.in_flight())
    }

    /// Moves to the message number `seq`, back or forward.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b", b"c"])
    /// range(0, 3)
    /// >>> q.get_many(3)
    /// [b'a', b'b', b'c']
    /// >>> q.seek(1)
    /// >>> q.get()
    /// b'b'
    fn seek(&self, py: Python<'_>, seq: Number<u64>) -> PyResult<()> {
        detached(py, || self.source.seek(seq.0))
    }

    /// Makes a new consumer at this one's place.
    ///
    /// >>> q = mmq.Queue(path)
    /// >>> q.put_many([b"a", b"b"])
    /// range(0, 2)
    /// >>> q.get()
    /// b'a'
    /// >>> q.fork("trial").get(), len(q)
    /// (b'b', 1)
    #[pyo3(signature = (name, *, on_gap=None))]
    fn fork<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        on_gap: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, Consumer>> {
        let source = detached(py, || self.source.fork(name))?;
        Consumer::new(py, name, source, on_gap)
    }

    /// Returns a descriptor that is readable while a message or a gap waits, and once the queue is
    /// closed: for `select`, `selectors`, event loops. Do not read from it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        detached(py, || self.source.ready_fd())
    }

    /// Takes the next message in a task: `await q.get_async()`. A task that is cancelled, or that
    /// `asyncio.timeout` ends, has taken none.
    fn get_async<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let take = slf.getattr("get_nowait")?;
        py.import("mmq._tasks")?.getattr("read")?.call1((slf, take))
    }

    /// Hands out the next message in a task: `with await consumer.receive_async() as job:`.
    fn receive_async<'py>(slf: Bound<'py, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let receive = slf.getattr("_receive_nowait")?;
        py.import("mmq._tasks")?.getattr("read")?.call1((slf, receive))
    }

    fn _receive_nowait(&self, py: Python<'_>) -> PyResult<Delivery> {
        self.receive(py, Some(0.0))
    }

    /// How many messages wait, those in flight included.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(detached(py, || self.source.len())?).unwrap_or(usize::MAX))
    }
}
