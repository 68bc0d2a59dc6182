//! Calls: counted, made to fail, and stopped until a test lets them through.

use std::io;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::disk::State;

/// The kinds of calls that are counted and can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Open,
    Rename,
    Remove,
    SyncDirectory,
    SyncFile,
    Allocate,
    SetLen,
    Map,
    Read,
    Write,
    List,
    /// Of a file's length, or of the disk that it takes.
    Measure,
}

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) call: Call,
    /// Calls until it strikes, that one included.
    pub(super) left: u64,
    pub(super) errno: i32,
    pub(super) sticky: bool,
}

/// A place where one call stops until it is let through.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Somebody stands there; it is open.
    pub(super) state: Mutex<(bool, bool)>,
    pub(super) changed: Condvar,
}

impl Gate {
    /// Waits until a call has come to it.
    pub(crate) fn wait_for_visitor(&self) {
        let mut state = self.state.lock();
        while !state.0 {
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn open(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }

    pub(super) fn pass(&self) {
        let mut state = self.state.lock();
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            self.changed.wait(&mut state);
        }
    }
}

/// Counts the call, and says whether it is to fail.
pub(super) fn enter(disk: &Mutex<State>, call: Call) -> (MutexGuard<'_, State>, io::Result<()>) {
    crate::tests::schedule::step();
    let gate = disk.lock().gate.take_if(|(gated, _)| *gated == call);
    if let Some((_, gate)) = gate {
        gate.pass();
    }
    let mut state = disk.lock();
    state.counts[call as usize] += 1;
    state.note_call(call as usize);
    if !matches!(call, Call::Open | Call::Map | Call::Read | Call::List) {
        state.snapshot();
    }
    state.freeze = match state.freeze {
        Some(1) => {
            state.frozen = Some(state.killed());
            None
        }
        left => left.map(|left| left - 1),
    };
    if state.each_frozen.is_some() {
        let killed = state.killed();
        if let Some(frozen) = &mut state.each_frozen {
            frozen.push(killed);
        }
    }
    let mut answer = Ok(());
    state.faults.retain_mut(|fault| {
        if fault.call != call || answer.is_err() {
            return true;
        }
        fault.left = fault.left.saturating_sub(1);
        if fault.left == 0 {
            answer = Err(io::Error::from_raw_os_error(fault.errno));
        }
        fault.left > 0 || fault.sticky
    });
    state.failed[call as usize] += u64::from(answer.is_err());
    (state, answer)
}

pub(super) fn enter_or_fail(disk: &Mutex<State>, call: Call) -> io::Result<MutexGuard<'_, State>> {
    let (state, answer) = enter(disk, call);
    answer.map(|()| state)
}
