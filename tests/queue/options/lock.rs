//! Promise P7: one owner, by a lock that dies with its holder.

use super::*;

/// Before any queue was opened here.
static BEGAN: OnceLock<SystemTime> = OnceLock::new();

#[track_caller]
fn locked_by(path: &Path, holder: u32) {
    for options in [Options::new(), Options::new().create(false), Options::new().arena_size(4096)] {
        match options.open(path) {
            Err(error @ Error::Locked { pid, here, since, .. }) => {
                assert_eq!((pid, here), (holder, holder == std::process::id()));
                // As the test's own clock has it, give or take what the two readings are apart.
                let since = since.expect("the holder said since when");
                let began = *BEGAN.get_or_init(SystemTime::now) - Duration::from_secs(5);
                assert!(
                    since >= began && since <= SystemTime::now() + Duration::from_secs(5),
                    "{since:?}"
                );
                assert!(
                    error.to_string().contains(&format!(" is open already in process {holder}")),
                    "{error}"
                );
            }
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("a second opener was let in"),
        }
    }
}

#[test]
fn a_second_opener_is_refused_and_learns_the_holder() {
    BEGAN.get_or_init(SystemTime::now);
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("queue");
    let queue = Queue::open(&path).unwrap();
    queue.enqueue("a").unwrap();
    let own = std::process::id();
    locked_by(&path, own);
    symlink(&path, dir.path().join("link")).unwrap();
    locked_by(&dir.path().join("link"), own);
    locked_by(&path.join("../queue/."), own);
    std::thread::scope(|scope| scope.spawn(|| locked_by(&path, own)).join().unwrap());
    assert!(Queue::open(&path).unwrap_err().to_string().contains(&own.to_string()));
    // The refused ones did the holder no harm.
    queue.enqueue("b").unwrap();
    assert_eq!(queue.dequeue_batch(9).unwrap().len(), 2);
    queue.close().unwrap();
    drop(Queue::open(&path).unwrap());
    drop(Queue::open(dir.path().join("link")).unwrap());
}

/// Holds a queue until it is killed; nothing when the test is run by itself.
#[test]
fn the_child_that_holds_a_queue() {
    let Ok(dir) = std::env::var("MMQ_HOLD_DIR") else { return };
    let queue = Queue::open(dir).unwrap();
    queue.enqueue("from the child").unwrap();
    eprintln!("held");
    // Ends with the pipe at the latest, should the parent die first.
    let _ = std::io::stdin().read(&mut [0]);
    drop(queue);
}

fn holder(dir: &Path) -> Child {
    let mut command = itself("options::lock::the_child_that_holds_a_queue");
    let command = command
        .env("MMQ_HOLD_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child
}

#[test]
fn the_lock_of_another_process_holds_while_it_lives_and_is_free_after_sigkill() {
    BEGAN.get_or_init(SystemTime::now);
    let dir = crate::support::tempdir().unwrap();
    for round in 1..=5 {
        let mut child = holder(dir.path());
        locked_by(dir.path(), child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let queue = Queue::open(dir.path()).expect("free at once, with no manual step");
        assert_eq!(queue.len(), round);
    }
    let mut child = holder(dir.path());
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(Queue::open(dir.path()).unwrap().len(), 6);
}

#[test]
fn a_program_started_while_the_queue_is_open_inherits_neither_lock_nor_files() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
    queue.enqueue(vec![1; 100_000]).unwrap();
    let mut sleeper = crate::support::command("sleep").arg("60").spawn().unwrap();
    let own = dir.path().canonicalize().unwrap();
    // Where vfork returns at once, as under qemu, it has them until it is another program.
    crate::support::eventually("the program has nothing of the queue", || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", sleeper.id())).into_iter().flatten();
        let mut targets = descriptors.flatten().filter_map(|it| fs::read_link(it.path()).ok());
        !targets.any(|target| target.starts_with(&own))
    });
    queue.close().unwrap();
    let reopened = Queue::open(dir.path());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(reopened.unwrap().len(), 1);
}

#[test]
fn a_closed_queue_is_free_at_once_although_programs_are_being_started() {
    let dir = crate::support::tempdir().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    // Between its fork and its exec a program that is being started holds copies of all
    // descriptors, the lock's too. So closing must give the lock up, not only the end of the last
    // descriptor.
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                crate::support::command("true").status().unwrap();
            }
        });
        let refused = (0..500).find_map(|_| Queue::open(dir.path()).and_then(Queue::close).err());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        refused
    });
    assert!(refused.is_none(), "{refused:?}");
}

#[test]
fn two_queues_beside_each_other_have_nothing_to_do_with_each_other() {
    let dir = crate::support::tempdir().unwrap();
    let one = Queue::open(dir.path().join("one")).unwrap();
    let two = Queue::open(dir.path().join("two")).unwrap();
    let below = Queue::open(dir.path().join("one/below")).unwrap();
    for (queue, name) in [(&one, "one"), (&two, "two"), (&below, "below")] {
        queue.enqueue(name).unwrap();
    }
    for (queue, name) in [(&below, "below"), (&two, "two"), (&one, "one")] {
        assert_eq!(queue.dequeue().unwrap().unwrap().as_str().unwrap(), name);
        assert!(queue.is_empty());
    }
}

/// A callback of `copy_to` panics: the queue is closed then, and free although a handle lives.
#[test]
fn a_panic_while_a_queue_is_copied_leaves_it_free() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Queue::open(dir.path().join("jobs")).unwrap();
    queue.enqueue("kept").unwrap();
    let consumer = queue.consumer("a").unwrap();
    let copying = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queue.copy_to(dir.path().join("copy"), mmq::CopiedId::New, |_, _| panic!("planned"))
    }));
    assert!(copying.is_err());
    let again = Queue::open(dir.path().join("jobs")).unwrap();
    assert_eq!(&*again.dequeue().unwrap().unwrap(), b"kept");
    drop(consumer);
}
