//! Whatever bytes a client sends, the owner answers or ends the connection, and keeps nothing.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use super::clients::Clients;
use super::frame::{Call, HEADER_LEN, Header, MAGIC, VERSION};
use super::input::Input;
use super::serving::Serving;
use super::shared_queue::Role;
use crate::options::Options;
use crate::queue::Queue;
use crate::tests::sim::meanwhile;

/// Serves these bytes, all that a client sends, and returns what it gets.
fn served(queue: &Queue, bytes: &[u8]) -> Vec<u8> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut to = &theirs;
            let _ = to.write_all(bytes);
            let _ = theirs.shutdown(Shutdown::Write);
        });
        let answers = scope.spawn(|| {
            let (mut from, mut answers) = (&theirs, Vec::new());
            let _ = from.read_to_end(&mut answers);
            answers
        });
        let clients = Clients::new(queue.engine(), 0o600);
        let _ = Serving::new(&clients, &ours).run();
        let _ = ours.shutdown(Shutdown::Both);
        answers.join().unwrap()
    })
}

fn frame(number: u64, call: u16, consumer: u16, body: &[u8]) -> Vec<u8> {
    let header = Header { number, len: body.len() as u64, kind: call, consumer, more: 0 };
    [&header.encode()[..], body].concat()
}

fn hello() -> Vec<u8> {
    frame(1, Call::Hello as u16, 0, &[&MAGIC[..], &VERSION.to_le_bytes()].concat())
}

/// The answers are whole frames, each to a question of `asked`.
fn check(answers: &[u8], asked: &[u64]) {
    let (mut input, mut from, mut len) = (Input::new(), answers, 0);
    while input.fill(&mut from).unwrap() > 0 {
        while let Some((header, at)) = input.next() {
            assert!(asked.contains(&header.number), "{header:?}");
            len += HEADER_LEN + at.len();
        }
    }
    assert_eq!(len, answers.len());
}

#[test]
fn whatever_a_client_sends_it_gets_frames_and_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let mut state = 0x6d6d_7100_u64;
    let mut random = |below: u64| {
        // Knuth's generator; its upper bits are the better ones.
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    for round in 0..300 {
        let mut bytes = hello();
        let mut asked = vec![1, 0];
        for number in 2..2 + random(12) {
            let calls = Call::ALL;
            let call = match random(12) {
                0 => random(40) as u16,
                _ => calls[random(calls.len() as u64) as usize] as u16,
            };
            let len = random(40);
            let mut body: Vec<u8> = (0..len).map(|_| (random(256) & random(256)) as u8).collect();
            if random(2) == 0 {
                body.fill(0);
            }
            // A wait for ever ends with the connection.
            bytes.extend(frame(number, call, random(2) as u16, &body));
            asked.push(number);
        }
        if round % 3 == 0 {
            let at = random(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random(8);
            served(&queue, &bytes);
        } else {
            check(&served(&queue, &bytes), &asked);
        }
        // Nothing that it had in flight is kept from others.
        for stats in queue.consumer_stats() {
            assert_eq!(stats.in_flight, 0, "round {round}");
        }
    }
    queue.enqueue("goes on").unwrap();
}

/// The directory's user may put a file there at any moment.
#[test]
fn what_is_put_in_the_sockets_place_keeps_its_mode_and_its_owner() {
    type Put = fn(&Path, &Path);
    let kinds: [(&str, Put); 4] = [
        ("a link", |file, to| symlink(file, to).unwrap()),
        ("another name", |file, to| fs::hard_link(file, to).unwrap()),
        ("a file", |file, to| fs::rename(file, to).unwrap()),
        ("a socket", |_, to| drop(UnixListener::bind(to).unwrap())),
    ];
    for (kind, put) in kinds {
        let dir = tempfile::tempdir().unwrap();
        let (file, queue) = (dir.path().join("file"), dir.path().join("queue"));
        fs::write(&file, "of this user").unwrap();
        fs::create_dir(&queue).unwrap();
        // As root in the directory of somebody else; anybody else owns both.
        let _ = chown(&queue, Some(65534), Some(12345));
        let socket = queue.join("socket");
        let (from, to) = (file.clone(), socket.clone());
        let bits = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.permissions().mode() & 0o777, found.uid(), found.gid())
        };
        let was = std::rc::Rc::new(std::cell::Cell::new(None));
        let keep = std::rc::Rc::clone(&was);
        meanwhile("a socket is bound", move || {
            fs::remove_file(&to).unwrap();
            put(&from, &to);
            // More bits than those of the queue's socket: it is another one.
            fs::set_permissions(&to, Permissions::from_mode(0o711)).unwrap();
            keep.set(Some(bits(&to)));
        });
        let opened = Options::new().shared(true).shared_mode(0o666).open(&queue).unwrap();
        assert_eq!(Some(bits(&socket)), was.get(), "{kind}");
        opened.close().unwrap();
    }
}

/// A waker holds the first close up. (A thread that closes calls wakers.)
#[cfg(feature = "async")]
#[test]
fn the_second_close_of_a_handle_waits_for_the_first() {
    use std::future::Future;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake, Waker};

    struct Stays(Sender<()>, Mutex<Receiver<()>>);
    impl Wake for Stays {
        fn wake(self: Arc<Self>) {
            self.0.send(()).unwrap();
            self.1.lock().unwrap().recv().unwrap();
        }
    }
    let dir = crate::tests::guard::tempdir().unwrap();
    let handle = crate::open_or_connect(dir.path(), &Options::new()).unwrap();
    let role = handle.queue.role().unwrap();
    let Role::Owner(queue) = &*role else { panic!("{role:?}") };
    let ((says, said), (goes_on, go_on)) = (channel(), channel());
    let waker = Waker::from(Arc::new(Stays(says, Mutex::new(go_on))));
    let mut waits = Box::pin(queue.recv());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let close = || {
        let handle = handle.clone();
        std::thread::spawn(move || handle.close())
    };
    let first = close();
    said.recv().unwrap();
    let second = close();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!second.is_finished());
    goes_on.send(()).unwrap();
    first.join().unwrap().unwrap();
    second.join().unwrap().unwrap();
}

/// What a waker does, once.
#[cfg(feature = "async")]
struct Does(std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>);

#[cfg(feature = "async")]
impl std::task::Wake for Does {
    fn wake(self: std::sync::Arc<Self>) {
        let work = self.0.lock().unwrap().take();
        work.into_iter().for_each(|work| work());
    }
}

/// Returns what `work` does on the thread that serves a client, in a waker that `wake` makes it
/// call.
#[cfg(feature = "async")]
fn done_on_a_clients_thread<R: Send + 'static>(
    consumer: crate::Consumer,
    work: impl FnOnce() -> R + Send + 'static,
    wake: impl FnOnce() + Send + 'static,
) -> R {
    use std::future::Future;
    let mut waits = Box::pin(async move { consumer.recv().await.map(drop) });
    let (says, said) = std::sync::mpsc::channel();
    let work = move || {
        assert_eq!(std::thread::current().name(), Some("mmq-client"));
        says.send(work()).unwrap();
    };
    let waker = std::sync::Arc::new(Does(std::sync::Mutex::new(Some(Box::new(work)))));
    let waker = std::task::Waker::from(waker);
    assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let waking = std::thread::spawn(wake);
    let done = said.recv_timeout(Duration::from_secs(60)).expect("it does not wait for itself");
    waking.join().unwrap();
    done
}

#[cfg(feature = "async")]
#[test]
fn a_waker_on_a_clients_thread_closes_the_queue() {
    let dir = crate::tests::guard::tempdir().unwrap();
    for (is_dropped, path) in [false, true].map(|is| (is, dir.path().join(is.to_string()))) {
        let queue = Options::new().shared(true).open(&path).unwrap();
        let client = crate::Client::connect(&path).unwrap();
        let consumer = queue.consumer("x").unwrap();
        let end = move || if is_dropped { drop(queue) } else { queue.close().unwrap() };
        done_on_a_clients_thread(consumer, end, move || {
            client.enqueue("a message").unwrap();
        });
        let again = Queue::open(&path).unwrap();
        assert_eq!(again.len(), 1);
        again.close().unwrap();
    }
}

/// The client's next call may be the one that makes room.
#[cfg(feature = "async")]
#[test]
fn a_waker_on_a_clients_thread_does_not_wait_for_room() {
    let dir = crate::tests::guard::tempdir().unwrap();
    let small = || Options::new().arena_size(4096).max_bytes(1 << 20);
    let queue = small().open(dir.path()).unwrap();
    let keeps = queue.consumer("keeps").unwrap();
    while queue.enqueue([0; 5000]).is_ok() {}
    while queue.enqueue([0; 50]).is_ok() {}
    let last = queue.stats().next_seq - 1;
    drop(keeps);
    queue.close().unwrap();
    let options = small().on_full(crate::OnFull::Wait(None)).shared(true);
    let queue = std::sync::Arc::new(options.open(dir.path()).unwrap());
    let consumer = queue.consumer("x").unwrap();
    consumer.seek(last).unwrap();
    let client = crate::Client::connect(dir.path()).unwrap();
    let theirs = client.consumer("x").unwrap();
    let job = theirs.receive().unwrap().unwrap();
    let from = std::sync::Arc::clone(&queue);
    let refused = done_on_a_clients_thread(
        consumer,
        move || from.enqueue([0; 5000]).unwrap_err(),
        move || job.nack(),
    );
    assert!(matches!(refused, crate::Error::Full { .. }), "{refused}");
    assert!(client.consumer("keeps").unwrap().dequeue().unwrap().is_some());
}
