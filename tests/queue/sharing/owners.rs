//! Where the socket lies, who may use it, and what happens at an owner's end.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::Duration;

use mmq::{Client, Error, Options, Queue, open_or_connect};

use super::hostile::frame;
use super::owner;
use crate::support::{itself, tempdir, within};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn who_has_nobody_to_ask_is_told_why() {
    let dir = tempdir().unwrap();
    let missing = Client::connect(dir.path().join("missing")).unwrap_err();
    assert!(matches!(missing, Error::NotFound { what: "queue", .. }), "{missing}");
    let files = dir.path().join("queue");
    Queue::open(&files).unwrap().close().unwrap();
    let closed = Client::connect(&files).unwrap_err();
    assert!(closed.to_string().contains("no process has it open"), "{closed}");
    let queue = Queue::open(&files).unwrap();
    let own = Client::connect(&files).unwrap_err();
    assert!(matches!(own, Error::Locked { pid, .. } if pid == std::process::id()), "{own}");
    let locked = open_or_connect(&files, &Options::new()).unwrap_err();
    assert!(matches!(locked, Error::Locked { .. }), "{locked}");
    queue.close().unwrap();
}

#[test]
fn the_socket_is_the_owners_and_goes_with_it() {
    let dir = tempdir().unwrap();
    for (options, mode) in [
        (Options::new().shared(true), 0o600),
        (Options::new().shared(true).shared_mode(0o660), 0o660),
    ] {
        let queue = options.open(dir.path()).unwrap();
        let socket = fs::symlink_metadata(dir.path().join("socket")).unwrap();
        assert_eq!(socket.permissions().mode() & 0o777, mode);
        assert_eq!(socket.uid(), rustix::process::geteuid().as_raw());
        queue.close().unwrap();
        assert!(!dir.path().join("socket").exists());
    }
    let options = Options::new().shared(true).shared_mode(0o700);
    let refused = options.open(dir.path()).unwrap_err();
    assert!(matches!(refused, Error::InvalidOption { name: "shared_mode", .. }), "{refused}");
}

#[test]
fn a_socket_that_a_crash_left_is_replaced() {
    let dir = tempdir().unwrap();
    drop(UnixListener::bind(dir.path().join("socket")).unwrap());
    let queue = owner(dir.path());
    Client::connect(dir.path()).unwrap().enqueue("a message").unwrap();
    assert_eq!(queue.len(), 1);
}

#[test]
fn the_socket_belongs_to_the_directorys_user() {
    let dir = tempdir().unwrap();
    if rustix::process::geteuid().as_raw() != 0 {
        return; // Only root has a directory of somebody else.
    }
    let (user, group) = (65534, 12345);
    std::os::unix::fs::chown(dir.path(), Some(user), Some(group)).unwrap();
    let _queue = owner(dir.path());
    let socket = fs::symlink_metadata(dir.path().join("socket")).unwrap();
    assert_eq!((socket.uid(), socket.gid()), (user, group));
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
}

#[test]
fn another_queue_in_the_place_of_the_old_one_is_refused() {
    let dir = tempdir().unwrap();
    let (path, moved) = (dir.path().join("queue"), dir.path().join("moved"));
    let old = owner(&path);
    let handle = open_or_connect(&path, &Options::new()).unwrap();
    let client = Client::connect(&path).unwrap();
    handle.enqueue("into the old one").unwrap();
    fs::rename(&path, &moved).unwrap();
    let refused = client.writer().unwrap_err();
    assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
    let new = owner(&path);
    new.enqueue("of the new one").unwrap();
    let is_told = |refused: Error| {
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
        assert!(refused.to_string().contains("another one stands there now"), "{refused}");
    };
    is_told(client.writer().unwrap_err());
    old.close().unwrap();
    is_told(handle.default_consumer().unwrap_err());
    is_told(handle.enqueue("lost").unwrap_err());
    new.close().unwrap();
    // Nor is it opened to find that out.
    let index = fs::read(path.join("index")).unwrap();
    is_told(handle.enqueue("lost").unwrap_err());
    assert!(fs::read(path.join("index")).unwrap() == index);
    fs::remove_dir_all(&path).unwrap();
    // And none is made there.
    assert!(handle.enqueue("lost").is_err() && !path.exists());
}

#[test]
fn a_relative_path_stays_the_same_when_the_process_goes_elsewhere() {
    let dir = tempdir().unwrap();
    let mut child = itself("sharing::owners::the_child_that_goes_elsewhere");
    child.current_dir(dir.path()).env("MMQ_RELATIVE", "1").stdout(Stdio::null());
    assert!(child.status().unwrap().success());
    assert_eq!(Queue::open(dir.path().join("queue")).unwrap().len(), 3);
}

#[test]
fn the_child_that_goes_elsewhere() {
    if std::env::var_os("MMQ_RELATIVE").is_some() {
        let queue = owner("queue".as_ref());
        let handle = open_or_connect("queue", &Options::new()).unwrap();
        let client = Client::connect("queue").unwrap();
        std::env::set_current_dir("/").unwrap();
        let mut writer = client.writer().unwrap();
        writer.enqueue("of the client").unwrap();
        writer.wait().unwrap();
        handle.enqueue("of the handle").unwrap();
        queue.close().unwrap();
        handle.enqueue("of the next owner").unwrap();
        handle.close().unwrap();
    }
}

#[test]
fn what_may_have_been_done_is_in_doubt_also_without_another_owner() {
    let dir = tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::scope(|scope| {
        // It takes a message, and dies without an answer.
        scope.spawn(|| {
            let (mut client, _) = listener.accept().unwrap();
            client.read_exact(&mut [0; 24 + 12]).unwrap();
            let hello = [&[1, 0, 0, 0][..], &[0; 4], &(16u64 << 20).to_le_bytes(), &queue.id()];
            client.write_all(&frame(1, 0, 0, &hello.concat())).unwrap();
            client.read_exact(&mut [0; 24 + 9]).unwrap();
            fs::remove_file(&socket).unwrap();
        });
        let handle = open_or_connect(dir.path(), &Options::new()).unwrap();
        let error = handle.enqueue("a message").unwrap_err();
        assert!(matches!(error, Error::Disconnected { in_doubt: true, .. }), "{error}");
    });
}

/// A destructor waits for nobody, also while another thread sends; and the owner gets whole frames,
/// in order.
fn let_go_while_the_owner_reads_nothing(asks: bool) {
    const JOBS: u64 = 2_000;
    let (dir, body) = (tempdir().unwrap(), vec![7; 1 << 20]);
    let queue = Queue::open(dir.path()).unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let connecting = {
        let path = dir.path().to_owned();
        std::thread::spawn(move || {
            let client = Client::connect(path).unwrap();
            let jobs = client.default_consumer().receive_batch(JOBS as usize).unwrap();
            (client, jobs)
        })
    };
    let (mut owner, _) = listener.accept().unwrap();
    owner.read_exact(&mut [0; 24 + 12]).unwrap();
    let hello = [&[1, 0, 0, 0][..], &[0; 4], &(16u64 << 20).to_le_bytes(), &queue.id()];
    owner.write_all(&frame(1, 0, 0, &hello.concat())).unwrap();
    owner.read_exact(&mut [0; 24 + 12]).unwrap();
    for job in 0..JOBS {
        let mut bytes = frame(2, 0, 0, &[job.to_le_bytes(), job.to_le_bytes(), [0; 8]].concat());
        bytes[20] = u8::from(job + 1 < JOBS);
        owner.write_all(&bytes).unwrap();
    }
    let (client, mut jobs) = connecting.join().unwrap();
    let client = std::sync::Arc::new(client);
    let last = jobs.pop().unwrap();
    // More than the socket holds.
    within(SOON, move || drop(jobs));
    let putting = asks.then(|| {
        let (body, client) = (body.clone(), std::sync::Arc::clone(&client));
        std::thread::spawn(move || client.enqueue(body).unwrap())
    });
    std::thread::sleep(Duration::from_millis(20));
    within(SOON, move || drop(last));
    let (mut put, mut back) = (None, Vec::new());
    while asks && put.is_none() || (back.len() as u64) < JOBS {
        let mut header = [0; 24];
        owner.read_exact(&mut header).unwrap();
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let mut came = vec![0; word(8) as usize];
        owner.read_exact(&mut came).unwrap();
        if word(0) == 0 {
            back.push(u64::from_le_bytes(came[..8].try_into().unwrap()));
            continue;
        }
        assert!(came == body, "the message came whole");
        assert!(back.len() as u64 >= JOBS - 1, "what was let go before came before");
        put = Some(owner.write_all(&frame(word(0), 0, 0, &[0; 8])));
    }
    assert!(back.into_iter().eq(0..JOBS));
    putting.map_or(Ok(0), |putting| putting.join()).unwrap();
    drop(client);
}

#[test]
fn a_delivery_is_let_go_while_the_owner_reads_nothing() {
    // What the socket did not take goes out although the client asks nothing more.
    [true, false].into_iter().for_each(let_go_while_the_owner_reads_nothing);
}

#[test]
fn a_path_may_be_longer_than_a_sockets_address() {
    let dir = tempdir().unwrap();
    let long = (0..6).fold(dir.path().to_owned(), |path, _| path.join("x".repeat(50)));
    let queue = owner(&long);
    Client::connect(&long).unwrap().enqueue("a message").unwrap();
    assert_eq!(queue.len(), 1);
    // A directory that is renamed takes its socket along.
    let renamed = dir.path().join("renamed");
    fs::rename(&long, &renamed).unwrap();
    Client::connect(&renamed).unwrap().enqueue("a message").unwrap();
    assert_eq!(queue.len(), 2);
}

#[test]
fn the_close_of_a_queue_ends_its_clients_calls() {
    let dir = tempdir().unwrap();
    let queue = owner(dir.path());
    let client = Client::connect(dir.path()).unwrap();
    let workers = client.consumer("workers").unwrap();
    let waiting = std::thread::spawn(move || workers.receive_timeout(SOON).unwrap_err());
    std::thread::sleep(Duration::from_millis(20));
    within(SOON, move || {
        queue.close().unwrap();
        let ended = waiting.join().unwrap();
        assert!(matches!(ended, Error::Closed | Error::Disconnected { .. }), "{ended}");
        let gone = client.enqueue("too late").unwrap_err();
        assert!(matches!(gone, Error::Disconnected { .. }), "{gone}");
    });
    assert_eq!(Queue::open(dir.path()).unwrap().len(), 0);
}

#[test]
fn a_handle_takes_over_when_the_owner_closes() {
    let dir = tempdir().unwrap();
    let first = open_or_connect(dir.path(), &Options::new()).unwrap();
    let second = open_or_connect(dir.path(), &Options::new()).unwrap();
    let third = open_or_connect(dir.path(), &Options::new()).unwrap();
    let workers = third.consumer("workers").unwrap();
    first.enqueue("0").unwrap();
    let job = workers.receive().unwrap().unwrap();
    let waiting = {
        let waits = second.consumer("other").unwrap();
        waits.dequeue().unwrap().unwrap();
        std::thread::spawn(move || waits.receive_timeout(SOON).unwrap().unwrap().seq())
    };
    assert!(first.is_owner() && !second.is_owner() && !third.is_owner());
    first.close().unwrap();
    // The delivery was the old owner's: its message comes again.
    let ended = job.ack().unwrap_err();
    assert!(matches!(ended, Error::Disconnected { .. } | Error::Closed), "{ended}");
    assert_eq!(third.enqueue("1").unwrap(), 1);
    assert_eq!(waiting.join().unwrap(), 1);
    assert!(second.is_owner() != third.is_owner());
    let again = workers.receive().unwrap().unwrap();
    assert_eq!(again.seq(), 0);
    again.ack().unwrap();
    second.flush().unwrap();
    let rest = workers.receive_batch(10).unwrap();
    assert_eq!(rest.iter().map(mmq::Delivery::seq).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_opening_minds_no_socket_that_a_crash_left() {
    let dir = tempdir().unwrap();
    let files = dir.path().join("queue");
    let queue = owner(&files);
    queue.enqueue("a message").unwrap();
    queue.close().unwrap();
    drop(UnixListener::bind(files.join("socket")).unwrap());
    fs::remove_file(files.join("index")).unwrap();
    let queue = Queue::open(&files).unwrap();
    assert_eq!(queue.dequeue().unwrap().unwrap().as_str(), Ok("a message"));
    queue.close().unwrap();
    let inspector = mmq::Inspector::open(&files).unwrap();
    inspector.verify(|finding| panic!("{finding:?}")).unwrap();
}

#[test]
fn the_rules_of_a_handle_hold_with_each_owner() {
    let dir = tempdir().unwrap();
    let first = open_or_connect(dir.path(), &Options::new()).unwrap();
    let second = open_or_connect(dir.path(), &Options::new()).unwrap();
    let own = second.default_consumer().unwrap();
    own.set_redelivery(None, None, 2).unwrap();
    let fork = own.fork("fork").unwrap();
    first.close().unwrap();
    second.enqueue("a message").unwrap();
    assert!(second.is_owner());
    for attempt in 1..=2 {
        let delivery = own.receive().unwrap().unwrap();
        assert_eq!(delivery.attempts(), attempt);
        delivery.nack();
    }
    assert!(matches!(own.receive(), Err(Error::Gap(_))), "it was tried as often as it may be");
    // The other one has rules of its own: none.
    for _ in 0..4 {
        fork.receive().unwrap().unwrap().nack();
    }
}

#[test]
fn a_file_that_is_no_socket_stays_and_a_handle_opens_beside_it() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("socket");
    Queue::open(dir.path()).unwrap().close().unwrap();
    fs::write(&file, "the user's own").unwrap();
    Queue::open(dir.path()).unwrap().close().unwrap();
    let refused = Options::new().shared(true).open(dir.path()).unwrap_err();
    assert!(matches!(refused, Error::Io { op: "share", .. }), "{refused}");
    let handle = open_or_connect(dir.path(), &Options::new()).unwrap();
    handle.enqueue("a message").unwrap();
    handle.close().unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), "the user's own");
}
