//! Tests of what a C program cannot show: the guard itself, and texts at their limits.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::rc::Rc;

use super::c_handle::{CHandle, Retired, body, free, give, take};
use super::errors::{mmq_last_error, mmq_status_message};
use super::guard::{guard, guard_or};
use super::mmq_status::{mmq_status, remember};
use super::queue::{mmq_close, mmq_enqueue_parts, mmq_queue};
use super::reads::ReaderBody;
use super::slices::mmq_slice;
use crate::error::{Error, Gap, GapCause};
#[cfg(feature = "forward")]
use crate::forward::{Destination, Held, Limits, Mark, Outgoing, Source, Trouble};

fn last_error() -> String {
    let mut text = [0x7f; 6000];
    // SAFETY: the buffer has that many bytes.
    let len = unsafe { mmq_last_error(text.as_mut_ptr(), text.len()) };
    // SAFETY: the text was ended by a zero byte.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned();
    assert_eq!(text.len(), len);
    text
}

#[test]
fn a_panic_becomes_a_status_and_a_text() {
    assert_eq!(guard(|| panic!("number {}", 7)), mmq_status::MMQ_PANIC);
    assert_eq!(last_error(), "a bug in mmq: number 7");
    assert_eq!(guard_or(5, || panic!("static text")), 5);
    assert_eq!(last_error(), "a bug in mmq: static text");
    assert_eq!(guard_or(5, || std::panic::panic_any(7u8)), 5);
    assert_eq!(last_error(), "a bug in mmq: no text");
}

#[test]
fn an_error_becomes_a_status_and_a_text_and_success_leaves_it() {
    let path = Path::new("/var/q");
    assert_eq!(guard(|| Err(Error::closed(path).into())), mmq_status::MMQ_CLOSED);
    assert_eq!(last_error(), "queue /var/q: the queue is closed; open it again to continue");
    assert_eq!(guard(|| Ok(mmq_status::MMQ_EMPTY)), mmq_status::MMQ_EMPTY);
    assert_eq!(last_error(), "queue /var/q: the queue is closed; open it again to continue");
    assert_eq!(guard(|| Err(Error::forked(path).into())), mmq_status::MMQ_FORKED);
    assert!(last_error().starts_with("queue /var/q: the queue was opened before a fork; "));
    // A path that was noted is never that of a later error.
    drop(Error::closed(path));
    assert_eq!(
        guard(|| Err(Error::Gap(Gap { first: 1, last: 1, cause: GapCause::Damaged }).into())),
        mmq_status::MMQ_GAP
    );
    assert_eq!(last_error(), "message 1 will never come: damaged");
}

/// The test runs itself again as a child process, whose standard error it can read.
#[test]
fn a_bug_that_is_no_panic_prints_its_line_as_a_panic_does() {
    const AGAIN: &str = "MMQ_TEST_INTERNAL";
    if std::env::var_os(AGAIN).is_some() {
        let bug = || Err(Error::internal(Path::new("/var/q"), "on purpose").into());
        assert_eq!(guard(bug), mmq_status::MMQ_PANIC);
        assert_eq!(last_error(), "queue /var/q: a bug in mmq: on purpose; please report this text");
        return;
    }
    let name = "ffi::tests::a_bug_that_is_no_panic_prints_its_line_as_a_panic_does";
    let mut again = crate::tests::guard::built(std::env::current_exe().unwrap());
    let output = again.args([name, "--exact", "--nocapture"]).env(AGAIN, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.matches("queue /var/q: a bug in mmq: on purpose; please report this text\n").count(),
        1,
        "{said}"
    );
}

#[test]
fn a_text_is_cut_between_characters_and_always_ended() {
    remember(&"aä".repeat(4000));
    let whole = last_error();
    assert!(whole.len() <= 5120 && whole.len() > 5110);
    for cap in 1..40 {
        let mut text: [c_char; 64] = [0x7f; 64];
        // SAFETY: the buffer has at least that many bytes.
        assert_eq!(unsafe { mmq_last_error(text.as_mut_ptr(), cap) }, whole.len());
        // SAFETY: the text was ended by a zero byte.
        let cut =
            unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().expect("cut between characters");
        assert!(whole.starts_with(cut) && cut.len() < cap && cut.len() + 2 >= cap);
        assert!(text[cap..].iter().all(|byte| *byte == 0x7f));
    }
}

#[test]
fn every_number_has_a_text() {
    let text = |status| {
        // SAFETY: static text, ended by a zero byte.
        unsafe { CStr::from_ptr(mmq_status_message(status)) }.to_str().unwrap()
    };
    assert_eq!(text(0), "success");
    assert_eq!(text(30), "forwarding has ended: a person must act");
    assert_eq!(text(31), "a bug in mmq");
    assert_eq!(text(33), "the connection to the queue's owner has ended");
    for unknown in [-1, 5, 15, 34, i32::MIN, i32::MAX] {
        assert_eq!(text(unknown), "unknown status");
    }
}

/// A kind of handle of the tests' own.
struct Probe {
    _opaque: (),
}

thread_local! {
    static PROBES: RefCell<Retired<Rc<u64>>> = const { RefCell::new(Retired::new()) };
}

impl CHandle for Probe {
    type Body = Rc<u64>;
    const MAGIC: u64 = 7;
    const NAME: &'static str = "probe";

    fn retired<R>(with: impl FnOnce(&mut Retired<Rc<u64>>) -> R) -> Option<R> {
        PROBES.try_with(|retired| with(&mut retired.borrow_mut())).ok()
    }
}

/// Another kind.
struct Other {
    _opaque: (),
}

impl CHandle for Other {
    type Body = Rc<u64>;
    const MAGIC: u64 = 8;
    const NAME: &'static str = "other";

    fn retired<R>(_: impl FnOnce(&mut Retired<Rc<u64>>) -> R) -> Option<R> {
        None
    }
}

#[test]
fn a_handle_that_is_gone_is_known_until_32_others_are() {
    let first: *mut Probe = give(Rc::new(1));
    // SAFETY: a handle that the library returned, as everywhere below.
    assert_eq!(unsafe { body(first) }.map(|number| **number), Ok(1));
    let other = first.cast::<Other>();
    // SAFETY: as above.
    assert!(unsafe { body(other) }.is_err() && unsafe { free(other) }.is_err());
    // SAFETY: as above.
    assert_eq!(unsafe { free(first) }, Ok(mmq_status::MMQ_OK));
    for number in 0..32 {
        // SAFETY: its shell is not used again before 32 others are retired.
        let (body, freed) = unsafe { (body(first).is_err(), free(first).is_err()) };
        // SAFETY: as above.
        let taken = unsafe { take(first) }.is_err();
        assert!(body && freed && taken);
        assert_eq!(
            last_error(),
            "probe: not a live handle (closed or freed already, or of another kind)"
        );
        let next: *mut Probe = give(Rc::new(number));
        assert_ne!(next, first);
        // SAFETY: as above.
        assert_eq!(unsafe { take(next) }.map(|body| *body), Ok(number));
    }
    assert_eq!(give::<Probe>(Rc::new(5)), first, "shells are used again");
    // SAFETY: as above.
    assert!(unsafe { free(first) }.is_ok());
}

#[test]
fn a_body_is_dropped_once_and_shells_are_not_kept_without_end() {
    let body = Rc::new(9);
    let handles: Vec<*mut Probe> = (0..200).map(|_| give(Rc::clone(&body))).collect();
    assert_eq!(Rc::strong_count(&body), 201);
    for (index, handle) in handles.into_iter().enumerate() {
        // SAFETY: a handle that the library returned.
        let gone =
            unsafe { if index % 2 == 0 { free(handle).is_ok() } else { take(handle).is_ok() } };
        assert!(gone && Rc::strong_count(&body) == 200 - index);
    }
    // SAFETY: NULL is fine.
    assert!(unsafe { free(std::ptr::null_mut::<Probe>()) }.is_ok());
}

#[test]
fn damage_is_reported_before_more_room_is_asked_for_it() {
    use super::queue::{mmq_close, mmq_dequeue_into, mmq_open, mmq_queue};
    use std::os::unix::fs::FileExt;

    let dir = crate::tests::guard::tempdir().unwrap();
    let path = dir.path().join("queue");
    let queue = crate::Queue::open(&path).unwrap();
    for byte in 0..3 {
        queue.enqueue([byte; 5000]).unwrap();
    }
    queue.close().unwrap();
    let name = crate::format::segment_name(0);
    let file = std::fs::File::options().read(true).write(true).open(path.join(name)).unwrap();
    let mut bytes = vec![0; 64 << 10];
    let len = file.read_at(&mut bytes, 0).unwrap();
    let at = bytes[..len].windows(8).position(|eight| eight == [1; 8]).unwrap();
    file.write_at(&[7], at as u64 + 3000).unwrap();

    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let mut queue: *mut mmq_queue = std::ptr::null_mut();
    // SAFETY: valid pointers, and a handle that is freed last.
    unsafe {
        assert_eq!(mmq_open(path.as_ptr(), std::ptr::null(), &raw mut queue), mmq_status::MMQ_OK);
        let take = |room: usize| {
            let (mut buffer, mut len, mut seq) = (vec![9_u8; room], 0, 0);
            let status = mmq_dequeue_into(
                queue,
                buffer.as_mut_ptr().cast(),
                room,
                &raw mut len,
                &raw mut seq,
            );
            (status, len, seq, buffer)
        };
        let small = take(10);
        assert_eq!(small, (mmq_status::MMQ_BUFFER_TOO_SMALL, 5000, 0, vec![9; 10]));
        assert!(take(5000) == (mmq_status::MMQ_OK, 5000, 0, vec![0; 5000]));
        assert_eq!(take(10).0, mmq_status::MMQ_GAP);
        let small = take(10);
        assert_eq!(small, (mmq_status::MMQ_BUFFER_TOO_SMALL, 5000, 0, vec![9; 10]));
        assert_eq!(take(6000).2, 2);
        assert_eq!(mmq_close(queue), mmq_status::MMQ_OK);
    }
}

#[test]
fn a_message_gathered_from_parts_finds_room_for_all_of_it_where_the_oldest_are_dropped() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let options = crate::Options::new()
        .arena_size(4096)
        .max_bytes(1 << 20)
        .on_full(crate::OnFull::DropOldest);
    let queue =
        give::<mmq_queue>(ReaderBody::new(options.open(dir.path()).unwrap(), c"test".to_owned()));
    for round in 0..100u64 {
        let (one, two) = (vec![round as u8; 200 << 10], vec![!round as u8; 150 << 10]);
        let parts =
            [&one, &two].map(|part| mmq_slice { data: part.as_ptr().cast(), len: part.len() });
        let mut seq = u64::MAX;
        // SAFETY: a live handle, and as many parts as are said, of the lengths that are said.
        let answer = unsafe { mmq_enqueue_parts(queue, parts.as_ptr(), parts.len(), &raw mut seq) };
        assert_eq!((answer, seq), (mmq_status::MMQ_OK, round));
    }
    // SAFETY: a live handle that no other thread uses.
    assert_eq!(unsafe { mmq_close(queue) }, mmq_status::MMQ_OK);
}

/// Returns whether a forked child found it so. A child that hangs ends after ten seconds.
fn in_a_forked_child(mut is_so: impl FnMut() -> bool + Send + Sync + 'static) -> bool {
    use std::os::unix::process::CommandExt;
    let in_child = move || {
        // Unless this closure fails, `spawn` reports that the command has begun.
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(10));
            std::process::exit(1);
        });
        Err(std::io::Error::from_raw_os_error(if is_so() { 77 } else { 78 }))
    };
    let mut command = std::process::Command::new("/nonexistent");
    // SAFETY: the closure allocates and starts a thread, which glibc allows in a forked child.
    unsafe { command.pre_exec(in_child) };
    command.spawn().is_err_and(|error| error.raw_os_error() == Some(77))
}

/// A thread of the parent process may hold any lock at the fork.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_close_in_a_forked_child_takes_no_lock() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = crate::Options::new().open(dir.path()).unwrap();
    let held = queue.engine().closing.lock();
    let engine = std::sync::Arc::clone(queue.engine());
    let is_closed = in_a_forked_child(move || engine.close().is_ok());
    drop(held);
    assert!(is_closed);
    queue.close().unwrap();
}

/// Where a thread of the parent's was a child has nothing, or a thread of its own.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_forked_child_that_lets_go_of_a_shared_queue_keeps_its_own_threads() {
    use std::sync::{Arc, Barrier};
    const THREADS: usize = 40;
    let stand = |at: &Arc<Barrier>| {
        let at = Arc::clone(at);
        std::thread::spawn(move || {
            at.wait();
        })
    };
    let dir = crate::tests::guard::tempdir().unwrap();
    let mut queue = Some(crate::Options::new().shared(true).open(dir.path()).unwrap());
    let at = Arc::new(Barrier::new(THREADS + 1));
    let parents: Vec<_> = (0..THREADS).map(|_| stand(&at)).collect();
    assert!(in_a_forked_child(move || {
        let at = Arc::new(Barrier::new(THREADS + 1));
        let own: Vec<_> = (0..THREADS).map(|_| stand(&at)).collect();
        queue.take();
        at.wait();
        own.into_iter().all(|thread| thread.join().is_ok())
    }));
    at.wait();
    parents.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The connection is its parent's.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_handle_that_a_forked_child_closes_stays_connected_in_its_parent() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let owner = crate::Options::new().shared(true).open(dir.path()).unwrap();
    owner.enqueue("a job").unwrap();
    let handle = crate::open_or_connect(dir.path(), &crate::Options::new()).unwrap();
    let job = handle.default_consumer().unwrap().receive().unwrap().unwrap();
    let inherited = handle.clone();
    assert!(in_a_forked_child(move || {
        let _ = inherited.clone().close();
        true
    }));
    job.ack().unwrap();
    assert!(owner.is_empty());
    handle.close().unwrap();
    owner.close().unwrap();
}

/// The same of a forwarder, whose thread holds its lock.
#[cfg(feature = "forward")]
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_forwarder_is_freed_in_a_forked_child_without_a_lock() {
    use super::mmq_forwarder::{mmq_forwarder, mmq_forwarder_free, new_forwarder};
    let dir = crate::tests::guard::tempdir().unwrap();
    let queue = crate::Options::new().open(dir.path()).unwrap();
    let queue = give::<mmq_queue>(ReaderBody::new(queue, c"test".to_owned()));
    let mut forwarder: *mut mmq_forwarder = std::ptr::null_mut();
    let (url, out) = (c"nowhere://".as_ptr(), &raw mut forwarder);
    // SAFETY: a live handle, a text, no options, and a place for the handle.
    let made =
        unsafe { new_forwarder(queue, url, std::ptr::null(), out, |_| Ok(Box::new(Nowhere))) };
    assert_eq!(made, mmq_status::MMQ_OK);
    // SAFETY: a live handle.
    let held = unsafe { body(forwarder) }.map(|body| body.shared.state.lock()).ok();
    let address = forwarder.expose_provenance();
    let is_freed = in_a_forked_child(move || {
        // SAFETY: the child's copy of the handle, which no other thread of the child uses.
        unsafe { mmq_forwarder_free(std::ptr::with_exposed_provenance_mut(address)) };
        true
    });
    drop(held);
    assert!(is_freed);
    // SAFETY: live handles that no other thread uses.
    unsafe { mmq_forwarder_free(forwarder) };
    // SAFETY: as above.
    assert_eq!(unsafe { mmq_close(queue) }, mmq_status::MMQ_OK);
}

/// A far side that is never there.
#[cfg(feature = "forward")]
struct Nowhere;

#[cfg(feature = "forward")]
impl Destination for Nowhere {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        Ok(Held::Nothing)
    }

    fn send(&mut self, _: &[Outgoing<'_>]) -> Result<(), Trouble> {
        Ok(())
    }

    fn acknowledged(&mut self, _: std::time::Duration) -> Result<u64, Trouble> {
        Ok(0)
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}
