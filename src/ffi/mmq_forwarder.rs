//! Forwarding on a thread of the library.
//!
//! `mmq_forwarder_new` itself stands in `crates/mmq-forward-c`, which has the clients of the far
//! sides: they use this crate, so this crate cannot name them.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give};
use super::guard::{Answer, guard, invalid, told};
use super::mmq_forward_options::{
    FarPlace, ForwardMeant, mmq_forward_options, mmq_forward_until, raw_forward_until,
};
use super::mmq_status::{floor_char_boundary, mmq_status};
use super::pointers::{out, out_sized, out_text, text};
use super::queue::mmq_queue;
use super::reads::timeout;
use crate::engine::Engine;
use crate::error::{Error, InFull};
use crate::forward::{
    Destination, ForwardEnd, ForwardProgress, ForwardState, ForwardWatch, Forwarder, Halt, Stop,
};
use crate::storage::{FileStorage, Storage};
use crate::threads::{Condvar, JoinHandle, Mutex, now, spawn};

/// Sends the messages of a queue on to a stream of NATS JetStream or of Redis, in order, each once,
/// over any outage: see docs/forward.md.
#[derive(Debug)]
pub struct mmq_forwarder {
    _opaque: (),
}

/// Makes the client of a far side, or says why not.
pub type FarSide = fn(&FarPlace<'_>) -> Result<Box<dyn Destination>, String>;

type FarForwarder = Forwarder<Box<dyn Destination>>;

pub(super) struct ForwarderBody {
    engine: Arc<Engine<FileStorage>>,
    watch: ForwardWatch,
    pub(super) shared: Arc<ForwarderShared>,
}

/// What the calls share with the thread that forwards.
pub(super) struct ForwarderShared {
    pub(super) state: Mutex<ForwarderState>,
    ended: Condvar,
}

pub(super) struct ForwarderState {
    /// `None` while the thread has it.
    forwarder: Option<FarForwarder>,
    is_running: bool,
    stop: Stop,
    /// Status and text with which it last ended.
    outcome: (mmq_status, String),
    thread: Option<JoinHandle>,
}

impl CHandle for mmq_forwarder {
    type Body = ForwarderBody;
    const MAGIC: u64 = 0x6d6d_7120_666f_7277;
    const NAME: &'static str = "forwarder";

    fn retired<R>(with: impl FnOnce(&mut Retired<ForwarderBody>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<ForwarderBody> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

impl Drop for ForwarderBody {
    fn drop(&mut self) {
        if self.engine.core.forked() {
            // The thread lives in the parent alone. It may have held any lock at the fork, and so
            // may the client's own threads: nothing of theirs is touched.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        let mut state = self.shared.state.lock();
        state.stop.stop();
        let thread = state.thread.take();
        drop(state);
        thread.into_iter().for_each(JoinHandle::join);
    }
}

impl ForwarderBody {
    /// Every other call of a forked child is refused: the parent's thread may have held any lock.
    fn of_this_process(&self) -> Answer<&ForwarderShared> {
        self.engine.core.check_not_forked()?;
        Ok(&self.shared)
    }

    fn run(&self, until: mmq_forward_until) -> Answer {
        let mut state = self.of_this_process()?.state.lock();
        if state.is_running {
            return Err(invalid("forwarder", "it runs already"));
        }
        // It has nothing left to do.
        state.thread.take().into_iter().for_each(JoinHandle::join);
        let path = self.engine.core.storage.path();
        let Some(forwarder) = &mut state.forwarder else {
            return Err(Error::internal(path, "a forwarder has gone with its thread").into());
        };
        state.stop = forwarder.renew_stop();
        let shared = Arc::clone(&self.shared);
        let thread = spawn("mmq-forward", move || shared.forward(until));
        state.thread = Some(thread.map_err(|error| Error::io("start a thread for", path, error))?);
        state.is_running = true;
        state.outcome = (mmq_status::MMQ_OK, String::new());
        Ok(mmq_status::MMQ_OK)
    }

    fn wait(&self, timeout: Duration) -> Answer {
        let shared = self.of_this_process()?;
        let until = now().checked_add(timeout);
        let mut state = shared.state.lock();
        while state.is_running {
            match until {
                Some(until) if now() >= until => return Ok(mmq_status::MMQ_TIMED_OUT),
                Some(until) => drop(shared.ended.wait_until(&mut state, until)),
                None => shared.ended.wait(&mut state),
            }
        }
        match &state.outcome {
            (mmq_status::MMQ_OK, _) => Ok(mmq_status::MMQ_OK),
            (status, why) => Err(told(*status, why)),
        }
    }

    /// Its progress, and what there is to say of it.
    fn progress(&self, struct_size: usize) -> Answer<(mmq_forward_progress, String)> {
        let shared = self.of_this_process()?;
        let progress = self.watch.progress();
        let state = shared.state.lock();
        let activity = match (state.is_running, progress.state) {
            // From an earlier run.
            (true, ForwardState::Ended) => ForwardState::Beginning,
            (true, activity) => activity,
            (false, ForwardState::Beginning) => ForwardState::Beginning,
            (false, _) => ForwardState::Ended,
        };
        let (status, why) = state.outcome.clone();
        let said = if state.is_running { progress.trouble.clone() } else { Some(why) };
        let said = said.filter(|said| !said.is_empty()).or_else(|| progress.warning.clone());
        let said = said.unwrap_or_default();
        Ok((mmq_forward_progress::of(&progress, struct_size, activity, status, said.len()), said))
    }
}

impl ForwarderShared {
    /// The body of the thread.
    fn forward(&self, until: mmq_forward_until) {
        let Some(mut forwarder) = self.state.lock().forwarder.take() else { return };
        let ran = catch_unwind(AssertUnwindSafe(|| match until {
            mmq_forward_until::MMQ_UNTIL_STOPPED => forwarder.run(),
            mmq_forward_until::MMQ_UNTIL_EMPTY => forwarder.once(),
        }));
        let outcome = ran.map_or_else(
            |payload| {
                // Dropping a payload may panic.
                std::mem::forget(payload);
                let why = "a bug in mmq: forwarding panicked; standard error has the text";
                (mmq_status::MMQ_PANIC, why.to_owned())
            },
            outcome,
        );
        let mut state = self.state.lock();
        state.forwarder = Some(forwarder);
        state.outcome = outcome;
        state.is_running = false;
        self.ended.notify_all();
    }
}

fn outcome(ran: Result<ForwardEnd, Halt>) -> (mmq_status, String) {
    match ran {
        Ok(ForwardEnd::Closed) => {
            (mmq_status::MMQ_CLOSED, "the queue was closed while it was forwarded".to_owned())
        }
        Ok(ForwardEnd::Stopped | ForwardEnd::Drained) => (mmq_status::MMQ_OK, String::new()),
        Err(Halt::Queue(error)) => (mmq_status::of(&error), InFull::of(&error).to_string()),
        Err(halt) => (mmq_status::MMQ_FAR_SIDE, halt.to_string()),
    }
}

/// What a forwarder does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_forward_state {
    /// It does not run yet, or has not heard of the far side yet.
    MMQ_FORWARD_BEGINNING = 0,
    /// It sends messages, or waits for their acknowledgement.
    MMQ_FORWARD_SENDING = 1,
    /// The far side has all messages of the queue.
    MMQ_FORWARD_IDLE = 2,
    /// There is no session: it waits before it tries again.
    MMQ_FORWARD_PAUSING = 3,
    /// It has ended: status says how.
    MMQ_FORWARD_ENDED = 4,
}

/// How forwarding gets on. Counts are of the present run. Later versions append fields: set
/// struct_size to sizeof(mmq_forward_progress) before every call of mmq_forwarder_read_progress.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_forward_progress {
    /// In: the caller's sizeof(mmq_forward_progress). Out: how many bytes were filled; fields
    /// behind them are as they were.
    pub struct_size: usize,
    /// What it does now.
    pub state: mmq_forward_state,
    /// With MMQ_FORWARD_ENDED the status with which it ended (see mmq_forwarder_wait), else MMQ_OK.
    pub status: mmq_status,
    /// Messages sent; a message sent twice counts twice.
    pub sent: u64,
    /// Messages that the far side acknowledged.
    pub acknowledged: u64,
    /// Messages that the far side refuses for good, and that were left out.
    pub refused: u64,
    /// Sessions begun or tried.
    pub sessions: u64,
    /// Bytes of the messages sent.
    pub sent_bytes: u64,
    /// Bytes of the messages that the far side acknowledged.
    pub acknowledged_bytes: u64,
    /// Numbers that the far side had acknowledged and lost, and that the queue had not kept.
    pub lost_there: u64,
    /// When the far side last acknowledged a message, in earlier runs too, in milliseconds since
    /// 1970; 0 when it never did.
    pub acknowledged_at_ms: u64,
    /// The first sequence number that is not acknowledged.
    pub place: u64,
    /// How many numbers are still to be acknowledged.
    pub lag: u64,
    /// How many acknowledged numbers the queue keeps.
    pub kept: u64,
    /// The length of the whole text in bytes, without a zero byte.
    pub text_len: u64,
}

impl mmq_forward_progress {
    fn of(
        progress: &ForwardProgress,
        struct_size: usize,
        state: ForwardState,
        status: mmq_status,
        text_len: usize,
    ) -> mmq_forward_progress {
        let since_1970 = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = progress.acknowledged_at.map(since_1970).unwrap_or_default();
        mmq_forward_progress {
            struct_size,
            state: match state {
                ForwardState::Beginning => mmq_forward_state::MMQ_FORWARD_BEGINNING,
                ForwardState::Sending => mmq_forward_state::MMQ_FORWARD_SENDING,
                ForwardState::Idle => mmq_forward_state::MMQ_FORWARD_IDLE,
                ForwardState::Pausing => mmq_forward_state::MMQ_FORWARD_PAUSING,
                ForwardState::Ended => mmq_forward_state::MMQ_FORWARD_ENDED,
            },
            status,
            sent: progress.sent,
            acknowledged: progress.acknowledged,
            refused: progress.refused,
            sessions: progress.sessions,
            sent_bytes: progress.sent_bytes,
            acknowledged_bytes: progress.acknowledged_bytes,
            lost_there: progress.lost_there,
            acknowledged_at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            place: progress.place,
            lag: progress.lag,
            kept: progress.kept,
            text_len: text_len as u64,
        }
    }
}

/// All of `mmq_forwarder_new`, for the crate that has the clients of the far sides.
///
/// # Safety
///
/// The header's contract of `mmq_forwarder_new`.
#[must_use]
pub unsafe fn new_forwarder(
    queue: *mut mmq_queue,
    url: *const c_char,
    options: *const mmq_forward_options,
    forwarder: *mut *mut mmq_forwarder,
    far_side: FarSide,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, url, out) =
            unsafe { (body(queue)?, text(url, "url")?, out(forwarder, "out")?) };
        let url = url.to_str().map_err(|_| invalid("url", "not UTF-8"))?;
        // SAFETY: as above.
        let meant = unsafe { ForwardMeant::of(url, options) }?;
        let far = far_side(&meant.place);
        let far = far.map_err(|why| invalid("url", &meant.place.address.hide(&why)))?;
        let forwarder = Forwarder::new(&queue.reader, meant.consumer, far)?;
        let mut forwarder = forwarder.options(meant.options);
        if let Some(name) = meant.name {
            forwarder = forwarder.name(name);
        }
        let (stop, watch) = (forwarder.renew_stop(), forwarder.watch());
        let state = Mutex::new(ForwarderState {
            forwarder: Some(forwarder),
            is_running: false,
            stop,
            outcome: (mmq_status::MMQ_OK, String::new()),
            thread: None,
        });
        let shared = Arc::new(ForwarderShared { state, ended: Condvar::new() });
        let engine = Arc::clone(queue.reader.engine());
        out.write(give(ForwarderBody { engine, watch, shared }));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Begins to forward, on a thread of the library, and returns at once. What a later minute may mend
/// does not end it: a server that is away or full, and after the first session also one that
/// refuses the user, or a stream that has gone. It may run again once it has ended, for any reason.
///
/// @param forwarder Not NULL.
/// @param until MMQ_UNTIL_STOPPED or MMQ_UNTIL_EMPTY.
/// @return MMQ_OK, MMQ_IO when no thread could be started, MMQ_FORKED, MMQ_INVALID_ARGUMENT, also
///   for an unknown number and while it runs already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_forwarder_run(
    forwarder: *mut mmq_forwarder,
    until: raw_forward_until,
) -> mmq_status {
    guard(|| {
        let known = [mmq_forward_until::MMQ_UNTIL_STOPPED, mmq_forward_until::MMQ_UNTIL_EMPTY];
        let until = known.into_iter().find(|known| *known as c_int == until);
        let until = until
            .ok_or_else(|| invalid("until", "not one of MMQ_UNTIL_STOPPED, MMQ_UNTIL_EMPTY"))?;
        // SAFETY: the header's contract: NULL or a handle of this library.
        unsafe { body(forwarder) }?.run(until)
    })
}

/// Makes forwarding end within a second, and does not wait for it: mmq_forwarder_wait does.
/// Messages on their way may still arrive; the next run asks the far side which did. Does nothing
/// when it does not run.
///
/// @param forwarder Not NULL.
/// @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_forwarder_stop(forwarder: *mut mmq_forwarder) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle of this library.
        unsafe { body(forwarder) }?.of_this_process()?.state.lock().stop.stop();
        Ok(mmq_status::MMQ_OK)
    })
}

/// Waits until forwarding has ended, and says how. Answers at once when it does not run.
///
/// @param forwarder Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @return MMQ_OK when it was stopped, has forwarded all (MMQ_UNTIL_EMPTY), or never ran;
///   MMQ_TIMED_OUT while it runs; MMQ_FAR_SIDE when a person must act: mmq_last_error says why, as
///   for a refused login or a missing stream before the first session, a message that the far side
///   refuses, a stream that was made anew, a directory that is an older copy of the queue;
///   MMQ_CLOSED when the queue was closed, or another status with which the queue failed;
///   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_forwarder_wait(
    forwarder: *mut mmq_forwarder,
    timeout_ms: i64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { body(forwarder) }?.wait(timeout(timeout_ms)))
}

/// Reads how forwarding gets on, with a text for a person: why there is no session now, why it
/// ended, or else what to know of the far side's settings. The text is empty when there is nothing
/// to say. It has no password in it.
///
/// @param forwarder Not NULL.
/// @param out Receives the figures; set out->struct_size before. Not NULL.
/// @param buf Receives the text, truncated to fit, and always ended by a zero byte. NULL for none.
/// @param cap Size of buf in bytes.
/// @return MMQ_OK; MMQ_FORKED; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_forwarder_read_progress(
    forwarder: *const mmq_forwarder,
    out: *mut mmq_forward_progress,
    buf: *mut c_char,
    cap: usize,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle of this library.
        let forwarder = unsafe { body(forwarder) }?;
        let unset = "struct_size was not set to sizeof(mmq_forward_progress)";
        let mut said = String::new();
        let figures = |struct_size| {
            let (progress, text) = forwarder.progress(struct_size)?;
            said = text;
            Ok(progress)
        };
        // SAFETY: the header's contract: NULL, or the caller has set the first field. There is no
        // padding: the fields take eight bytes, and two of them four.
        let answer = unsafe { out_sized(out, unset, figures) }?;
        let fits = floor_char_boundary(&said, cap.saturating_sub(1));
        // SAFETY: the header's contract: `buf` is NULL or has `cap` writable bytes.
        unsafe { out_text(buf, cap, said.get(..fits).unwrap_or_default().as_bytes()) };
        Ok(answer)
    })
}

/// Stops forwarding, waits until it has ended (within about a second), and frees the handle. The
/// queue stays open, and may be closed before. In a forked child it only frees the handle: the
/// parent goes on forwarding.
///
/// @param forwarder From mmq_forwarder_new, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_forwarder_free(forwarder: *mut mmq_forwarder) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(forwarder) });
}
