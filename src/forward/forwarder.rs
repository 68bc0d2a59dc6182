//! The user's handle of forwarding: what to forward, where to, until when.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::consumer::Consumer;
use crate::error::{Error, Result};
use crate::format::Origin;
use crate::forward::destination::Destination;
use crate::forward::driver::Driver;
use crate::forward::halt::Halt;
use crate::forward::local::{Forwarded, Local};
use crate::forward::over_queue::QueueLocal;
use crate::forward::progress::{ForwardWatch, Worked};
use crate::forward::rules::{
    ForwardOptions, IfForgotten, OnRefused, PutAway, TellGaps, WhenRefused,
};
use crate::forward::source::Source;
use crate::message::Message;
use crate::queue::Queue;
use crate::threads::{Condvar, Mutex, now};

/// The longest wait before the forwarder notices that it must stop.
const TICK: Duration = Duration::from_millis(50);

/// Sends the messages of a queue on to another engine, each exactly once: see the [module](super).
///
/// It does not keep its queue open: once that is closed, the forwarder ends. Producers and other
/// consumers work meanwhile.
///
/// ```
/// use mmq::forward::{Destination, Forwarder, Halt, IfForgotten, OnRefused, TellGaps};
///
/// fn forward(queue: &mmq::Queue, far: impl Destination) -> Result<(), Halt> {
///     let mut forwarder = Forwarder::new(queue, "forward", far)?
///         .name("agent-7")
///         .keep(100_000, 64 << 20)
///         .on_refused(OnRefused::Skip)
///         .if_forgotten(IfForgotten::Resend)
///         .gaps(TellGaps::Header);
///     let (stop, watch) = (forwarder.stop(), forwarder.watch());
///     std::thread::scope(|scope| {
///         let forwarding = scope.spawn(move || forwarder.run());
///         // (The program's own work: queue.enqueue(...)?)
///         println!("{}", watch.progress());
///         stop.stop();
///         forwarding.join().unwrap()
///     })?;
///     Ok(())
/// }
/// ```
pub struct Forwarder<D> {
    consumer: Box<dyn Forwarded>,
    path: PathBuf,
    destination: D,
    source: Source,
    options: ForwardOptions,
    stop: Stop,
    watch: ForwardWatch,
}

impl<D> fmt::Debug for Forwarder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("source", &self.source).finish_non_exhaustive()
    }
}

impl<D: Destination> Forwarder<D> {
    /// Forwards the messages of `queue` to `destination`, through the queue's consumer of that
    /// name. A new consumer starts at the oldest message; no other code may use it. It retains the
    /// [kept](Self::keep) messages as well; its figures count only those that wait.
    ///
    /// # Errors
    ///
    /// As [`Queue::consumer`].
    pub fn new(queue: &Queue, consumer: &str, destination: D) -> Result<Forwarder<D>> {
        let forwarded = Box::new(queue.consumer(consumer)?);
        Ok(Forwarder::of(forwarded, queue.path(), queue.id(), consumer, destination))
    }

    /// Forwards as the consumer of this name, of the queue in `path`.
    pub(crate) fn of(
        forwarded: Box<dyn Forwarded>,
        path: &Path,
        queue_id: [u8; 16],
        consumer: &str,
        destination: D,
    ) -> Forwarder<D> {
        // `.` and `..` have no name of their own.
        let whole = path.file_name().is_none().then(|| path.canonicalize().ok()).flatten();
        let name = whole.as_deref().unwrap_or(path).file_name();
        let name = name.map_or_else(|| consumer.into(), |name| name.to_string_lossy().into_owned());
        Forwarder {
            source: Source { consumer: consumer.into(), ..Source::new(queue_id, name) },
            consumer: forwarded,
            path: path.to_owned(),
            destination,
            options: ForwardOptions::default(),
            stop: Stop::default(),
            watch: ForwardWatch::default(),
        }
    }

    /// Forwards until it is [stopped](Self::stop), or the queue is closed.
    ///
    /// # Durability
    ///
    /// The forwarder stores its position with each acknowledgement of the far side, and flushes it
    /// each second and at the end. If a power cut moves the position back, the far side's answer
    /// corrects it.
    ///
    /// # Errors
    ///
    /// [`Halt`]: a person must decide something. What a later minute may mend is no error. After
    /// the first session this includes a login that the far side refuses and a stream that has
    /// gone. The forwarder and its destination stay: call this again once the cause is removed.
    pub fn run(&mut self) -> Result<ForwardEnd, Halt> {
        self.run_until(Until::Stopped)
    }

    /// Forwards until the far side has acknowledged all messages of the queue, or it is stopped.
    ///
    /// ```
    /// use mmq::forward::{Destination, ForwardEnd, Forwarder, Halt};
    ///
    /// fn send_all(queue: &mmq::Queue, far: impl Destination) -> Result<bool, Halt> {
    ///     let end = Forwarder::new(queue, "forward", far)?.once()?;
    ///     Ok(end == ForwardEnd::Drained)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn once(&mut self) -> Result<ForwardEnd, Halt> {
        self.run_until(Until::Drained)
    }

    /// Returns the destination.
    ///
    /// ```
    /// # use mmq::forward::{Destination, Forwarder};
    /// fn close<D: Destination>(forwarder: Forwarder<D>) -> D {
    ///     forwarder.into_destination()
    /// }
    /// ```
    #[must_use]
    pub fn into_destination(self) -> D {
        self.destination
    }

    /// Returns the handle that stops it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Makes it run again after a stop: the handles of before stop it no more, and its progress is
    /// that of a run that begins.
    #[cfg(feature = "capi")]
    pub(crate) fn renew_stop(&mut self) -> Stop {
        // (The run itself reports an error.)
        if let Ok(local) = self.consumer.begin() {
            self.watch.note_begin(&*local);
        }
        self.stop = Stop::default();
        self.stop()
    }

    /// Returns the handle that reports its progress.
    #[must_use]
    pub fn watch(&self) -> ForwardWatch {
        self.watch.clone()
    }
}

/// # Options
impl<D: Destination> Forwarder<D> {
    /// Sets the queue's name at the far side: [`Source::name`]. By default, the last part of the
    /// directory's name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Forwarder<D> {
        self.source.name = name.into();
        self
    }

    /// Sets how many acknowledged messages the queue keeps, to send them again if the far side
    /// forgets them: so many messages, or so many bytes, whichever is less, and at most a quarter
    /// of [`max_bytes`](crate::Options::max_bytes). By default 10,000 messages or 64 MiB. 0
    /// messages or bytes: it keeps nothing.
    #[must_use]
    pub fn keep(mut self, messages: u64, bytes: u64) -> Forwarder<D> {
        (self.options.keep_messages, self.options.keep_bytes) = (messages, bytes);
        self
    }

    /// Sets what to do with messages that the far side rejects.
    #[must_use]
    pub fn on_refused(mut self, what: OnRefused) -> Forwarder<D> {
        self.options.on_refused = what;
        self
    }

    /// Sets what to do when the far side has forgotten the queue.
    #[must_use]
    pub fn if_forgotten(mut self, what: IfForgotten) -> Forwarder<D> {
        self.options.if_forgotten = Some(what);
        self
    }

    /// Lets this queue go on after another one, which was lost or which it is a copy of: the last
    /// message there may be of the queue with this id (its 32 hexadecimal digits, or the first
    /// eight or more), and the messages of this queue follow it. Nothing is compared with it. The
    /// other queue must not be forwarded any more. Once the far side has a message of this queue,
    /// the option has no effect.
    ///
    /// ```
    /// use mmq::forward::{Destination, Forwarder};
    ///
    /// fn of_a_device_set_up_anew<D: Destination>(
    ///     queue: &mmq::Queue,
    ///     far: D,
    /// ) -> mmq::Result<Forwarder<D>> {
    ///     Forwarder::new(queue, "forward", far)?.succeed("9f8e7d6c")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for what is no such id, and for the queue's own.
    pub fn succeed(mut self, id: &str) -> Result<Forwarder<D>> {
        let id = id.to_ascii_lowercase();
        let is_id = (8..=32).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_hexdigit());
        let why = if !is_id {
            "is no id of a queue: that has 32 hexadecimal digits, of which the first eight will do"
        } else if self.source.queue_hex().starts_with(&id) {
            "is the id of this queue"
        } else {
            self.source.succeeds = Some(id);
            return Ok(self);
        };
        let path = &self.path;
        Err(Error::invalid_argument(path, "queue to succeed", format!("{id:?} {why}")))
    }

    /// Sets how the forwarder reports missing messages to the far side.
    #[must_use]
    pub fn gaps(mut self, how: TellGaps) -> Forwarder<D> {
        self.options.gaps = how;
        self
    }

    /// Sets all options at once.
    ///
    /// ```
    /// use mmq::forward::{Destination, ForwardOptions, Forwarder};
    ///
    /// fn with_long_pauses<D: Destination>(forwarder: Forwarder<D>) -> Forwarder<D> {
    ///     let mut options = ForwardOptions::default();
    ///     options.longest_pause = std::time::Duration::from_secs(600);
    ///     forwarder.options(options)
    /// }
    /// ```
    #[must_use]
    pub fn options(mut self, options: ForwardOptions) -> Forwarder<D> {
        self.options = options;
        self
    }
}

impl<D: Destination> Forwarder<D> {
    fn run_until(&mut self, until: Until) -> Result<ForwardEnd, Halt> {
        let (stop, watch) = (self.stop.clone(), self.watch.clone());
        let outcome = loop {
            match self.forward(until) {
                Err(Halt::Queue(error)) if self.consumer.begins_again(&error) => {}
                Err(Halt::Queue(Error::Closed)) => break Ok(ForwardEnd::Closed),
                outcome => break outcome,
            }
        };
        watch.note_end();
        stop.0.1.notify_all();
        outcome
    }

    fn forward(&mut self, until: Until) -> Result<ForwardEnd, Halt> {
        let local = self.consumer.begin()?;
        // The far side may take long to answer.
        self.watch.note_begin(&*local);
        let mut options = self.options.clone();
        if let Some(max) = local.max_bytes() {
            options.keep_bytes = options.keep_bytes.min(max / 4);
        }
        let when_refused = match std::mem::take(&mut options.on_refused) {
            OnRefused::Stop => WhenRefused::Stop,
            OnRefused::Skip => WhenRefused::Skip,
            OnRefused::DeadLetters(to) => {
                WhenRefused::PutAway(dead_letters(to, self.source.queue_id))
            }
        };
        let seed = u128::from_le_bytes(self.source.queue_id) as u64;
        let (destination, source) = (&mut self.destination, self.source.clone());
        let mut driver = Driver::new(local, destination, source, options, when_refused, seed);
        let began = now();
        loop {
            if self.stop.is_stopped() {
                driver.finish()?;
                return Ok(ForwardEnd::Stopped);
            }
            let stepped = driver.step(now().saturating_duration_since(began), TICK);
            if let Err(Halt::Forgotten { .. }) = stepped {
                self.watch.note_warning(driver.destination.warning());
            }
            let stepped = stepped?;
            let trouble = driver.trouble.as_deref();
            let others = driver.others_wrote.map(str::to_owned);
            let warning = || others.or_else(|| driver.destination.warning());
            self.watch.note(&*driver.local, &driver.counts, trouble, warning, &stepped);
            match stepped {
                Worked::Busy => {}
                Worked::Idle if until == Until::Drained => {
                    driver.finish()?;
                    return Ok(ForwardEnd::Drained);
                }
                Worked::Idle => driver.local.wait(TICK)?,
                Worked::Pause(left) => self.stop.wait(left.min(TICK)),
            }
        }
    }
}

impl Forwarded for Consumer {
    fn begin(&self) -> Result<Box<dyn Local>> {
        let (engine, consumer) = self.parts();
        Ok(Box::new(QueueLocal::new(engine, consumer)?))
    }

    fn begins_again(&self, _: &Error) -> bool {
        false
    }
}

/// Returns a function that enqueues rejected messages in another queue, and flushes that.
fn dead_letters(to: Arc<Queue>, queue_id: [u8; 16]) -> PutAway<'static> {
    Box::new(move |message: &Message, _: &str| {
        let origin =
            Origin { queue_id, seq: message.seq(), attempts: super::driver::TRIES, sum: 0 };
        to.engine().enqueue_dead_letter(message, &origin)?;
        to.flush()
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Stopped,
    Drained,
}

/// How a forwarder ended without an error.
///
/// ```
/// use mmq::forward::{Destination, ForwardEnd, Forwarder, Halt};
///
/// fn run<D: Destination>(mut forwarder: Forwarder<D>) -> Result<(), Halt> {
///     match forwarder.run()? {
///         ForwardEnd::Stopped => println!("stopped as told"),
///         end => println!("ended: {end:?}"),
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardEnd {
    /// It was [stopped](Stop::stop).
    Stopped,
    /// The far side has acknowledged all messages of the queue: [`Forwarder::once`].
    Drained,
    /// Its queue was closed.
    Closed,
}

/// Stops a forwarder: [`Forwarder::stop`].
///
/// ```
/// use mmq::forward::{Destination, Forwarder};
///
/// fn stop_at_enter<D: Destination>(forwarder: &Forwarder<D>) {
///     let stop = forwarder.stop();
///     std::thread::spawn(move || {
///         let _ = std::io::stdin().read_line(&mut String::new());
///         stop.stop();
///     });
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Makes the forwarder end within a moment, without an error. It does not wait for messages in
    /// flight: the next forwarder asks the far side whether they arrived. A later run of this one
    /// ends at once.
    pub fn stop(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    fn is_stopped(&self) -> bool {
        *self.0.0.lock()
    }

    fn wait(&self, wait: Duration) {
        let mut stopped = self.0.0.lock();
        if !*stopped {
            self.0.1.wait_until(&mut stopped, now() + wait);
        }
    }
}
