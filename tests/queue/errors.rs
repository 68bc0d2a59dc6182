//! The exact texts of errors. Each one names the queue or the file, the limit and the option; none
//! says its cause twice.

use std::error::Error as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use mmq::{Error, Gap, GapCause, HeldBy, OnFull, Options, Queue};

#[test]
#[expect(clippy::too_many_lines, reason = "a table of all texts")]
fn every_text_has_this_form() {
    let path = || Path::new("/var/q").to_owned();
    let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
    let locked = |pid, here, since| Error::Locked { path: path(), pid, here, since };
    let table = [
        (
            Error::Io {
                op: "flush",
                path: path().join("index"),
                source: io::Error::from_raw_os_error(5),
            },
            "cannot flush /var/q/index: Input/output error (os error 5)",
        ),
        (
            Error::Gap(Gap { first: 3, last: 3, cause: GapCause::Damaged }),
            "message 3 will never come: damaged",
        ),
        (
            Error::Gap(Gap { first: 3, last: 7, cause: GapCause::Dropped }),
            "messages 3 to 7 will never come: dropped to make room",
        ),
        (
            Error::MessageTooLarge {
                path: path(),
                len: 1 << 33,
                max: u64::from(u32::MAX),
                max_bytes: None,
            },
            "queue /var/q: a message of 8589934592 bytes is too large: no queue takes more than 4294967295 bytes",
        ),
        (
            Error::MessageTooLarge {
                path: path(),
                len: 921_600,
                max: 785_472,
                max_bytes: Some(1 << 20),
            },
            "queue /var/q: a message of 921600 bytes is too large: with max_bytes 1048576 at most 785472 bytes fit",
        ),
        (
            Error::Full {
                path: path(),
                option: "max_bytes",
                used: 65_536,
                limit: 65_536,
                needed: 4096,
                free: None,
                held_by: None,
            },
            "queue /var/q is full: 4096 more bytes of disk would exceed max_bytes 65536 (the queue takes 65536)",
        ),
        (
            Error::Full {
                path: path(),
                option: "min_free_bytes",
                used: 40_960,
                limit: 1_048_576,
                needed: 8192,
                free: Some(1_050_000),
                held_by: Some(Box::new(HeldBy::new("mail", 42))),
            },
            "queue /var/q is full: 8192 more bytes of disk would leave less than min_free_bytes 1048576 free \
             (1050000 bytes are free, the queue takes 40960); consumer \"mail\" keeps the oldest segment: it is at message 42",
        ),
        (
            Error::InvalidOption { path: path(), name: "arena_size", reason: "odd".into() },
            "queue /var/q: option arena_size: odd",
        ),
        (
            Error::InvalidArgument {
                path: Some(path()),
                what: "consumer name",
                reason: "odd".into(),
            },
            "queue /var/q: consumer name: odd",
        ),
        (Error::InvalidArgument { path: None, what: "out", reason: "NULL".into() }, "out: NULL"),
        (locked(0, false, None), "queue /var/q is open already"),
        (locked(7, false, None), "queue /var/q is open already in process 7"),
        (
            Error::NotAQueue { path: path(), file: "page.html".into() },
            "/var/q is not a queue: it holds \"page.html\", which mmq did not make; nothing was changed",
        ),
        (
            Error::NotFound { path: path(), what: "queue", name: "/var/q".into(), held: None },
            "queue /var/q does not exist",
        ),
        (
            Error::NotFound { path: path(), what: "consumer", name: "mail".into(), held: None },
            "queue /var/q has no consumer \"mail\"",
        ),
        (
            Error::NotFound { path: path(), what: "message", name: "7".into(), held: Some(2..5) },
            "queue /var/q holds no message 7: it holds 2 to 4",
        ),
        (
            Error::NotFound { path: path(), what: "message", name: "7".into(), held: Some(5..5) },
            "queue /var/q holds no message 7: it is empty, and the next one will be 5",
        ),
        (
            Error::UnsupportedFormat { path: path().join("index"), found: 9, supported: 1 },
            "/var/q/index: format version 9 is not supported; the newest that this mmq reads is 1",
        ),
        (
            Error::Poisoned { reason: "cannot flush /var/q/index: Input/output error".into() },
            "the queue refuses writes because a flush failed (cannot flush /var/q/index: Input/output error); close the queue and open it again",
        ),
        (Error::Closed, "the queue is closed; open it again to continue"),
        (
            Error::Forked,
            "the queue was opened before a fork; a child process cannot use its parent's queue and has to open the queue itself",
        ),
        (
            Error::Internal { path: path(), what: "odd" },
            "queue /var/q: a bug in mmq: odd; please report this text",
        ),
    ];
    for (error, text) in table {
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none(), "{text}: its cause would be printed twice");
        let error = io::Error::from(error);
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none(), "{text}: its cause would be printed twice");
    }
    for (seconds, date) in [
        (0, "1970-01-01 00:00:00"),
        (951_782_400, "2000-02-29 00:00:00"),
        (4_102_444_800, "2100-01-01 00:00:00"),
        (4_107_542_399, "2100-02-28 23:59:59"),
        (4_107_542_400, "2100-03-01 00:00:00"),
        (13_574_563_200, "2400-02-29 00:00:00"),
        (253_402_300_799, "9999-12-31 23:59:59"),
    ] {
        let text = format!("queue /var/q is open already in process 7, this one, since {date} UTC");
        assert_eq!(locked(7, true, at(seconds)).to_string(), text);
    }
}

/// The text of what a call answered, with the queue's path as `Q`.
#[track_caller]
fn text<T>(path: &Path, answer: mmq::Result<T>) -> String {
    let error = answer.err().expect("an error");
    error.to_string().replace(&path.display().to_string(), "Q")
}

#[test]
fn what_a_full_queue_says_names_the_option_and_its_value() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("small");
    let queue = Options::new().arena_size(65_536).max_bytes(1 << 20).open(&path).unwrap();
    let said = text(&path, queue.enqueue(vec![0; 921_600]));
    let (begins, ends) = said.split_once(" at most ").unwrap();
    assert_eq!(begins, "queue Q: a message of 921600 bytes is too large: with max_bytes 1048576");
    assert!(ends.ends_with(" bytes fit"), "{said}");
    let said = text(&path, (0..).try_for_each(|_| queue.enqueue([0; 4096]).map(|_| ())));
    assert!(
        said.starts_with("queue Q is full: ") && said.contains(" would exceed max_bytes 1048576 ("),
        "{said}"
    );

    let path = dir.path().join("modest");
    let options = Options::new()
        .min_free_bytes(u64::MAX)
        .on_full(OnFull::Wait(Some(Duration::from_millis(1))));
    let said = text(&path, options.open(&path).unwrap().enqueue("a"));
    assert!(
        said.contains(&format!(" would leave less than min_free_bytes {} free (", u64::MAX)),
        "{said}"
    );
}

#[test]
fn an_opening_that_is_refused_says_what_of_which_queue() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("queue");
    let page = rustix::param::page_size();
    assert_eq!(
        text(&path, Options::new().arena_size(5000).open(&path)),
        format!(
            "queue Q: option arena_size: 5000 bytes is not a multiple of the OS page ({page} bytes)"
        )
    );
    assert_eq!(text(&path, Options::new().create(false).open(&path)), "queue Q does not exist");
    fs::create_dir(&path).unwrap();
    assert_eq!(text(&path, Options::new().create(false).open(&path)), "queue Q does not exist");
    assert_eq!(Queue::open("").unwrap_err().to_string(), "dir: the path is empty");
    assert_eq!(
        Options::new().create(false).open("").unwrap_err().to_string(),
        "dir: the path is empty"
    );

    let queue = Queue::open(&path).unwrap();
    let pid = std::process::id();
    let said = text(&path, Queue::open(&path));
    let since =
        said.strip_prefix(&format!("queue Q is open already in process {pid}, this one, since 20"));
    assert!(since.is_some_and(|since| since.ends_with(" UTC")), "{said}");
    assert_eq!(text(&path, Queue::open(&path)), said, "one trouble has one text");
    queue.close().unwrap();

    // Where nothing can be made, making is what was tried.
    if rustix::process::geteuid().is_root() {
        if cfg!(target_os = "linux") {
            let path = Path::new("/proc/mmq-cannot-be-here");
            assert_eq!(
                text(path, Queue::open(path)),
                "cannot create Q: No such file or directory (os error 2)"
            );
        }
        return;
    }
    let parent = dir.path().join("parent");
    fs::create_dir(&parent).unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o555)).unwrap();
    let path = parent.join("queue");
    assert_eq!(text(&path, Queue::open(&path)), "cannot create Q: Permission denied (os error 13)");
}

#[test]
fn a_number_or_a_name_that_is_not_there_is_reported_with_what_is() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path();
    let queue = Queue::open(path).unwrap();
    let consumer = queue.consumer("mail").unwrap();
    assert_eq!(
        text(path, consumer.seek(7)),
        "queue Q holds no message 7: it is empty, and the next one will be 0"
    );
    queue.enqueue_batch(["a", "b", "c"]).unwrap();
    assert_eq!(text(path, consumer.seek(7)), "queue Q holds no message 7: it holds 0 to 2");
    assert_eq!(text(path, queue.wait_durable(3)), "queue Q holds no message 3: it holds 0 to 2");
    assert_eq!(text(path, queue.remove_consumer("nobody")), "queue Q has no consumer \"nobody\"");
    assert_eq!(
        text(path, queue.consumer("")),
        "queue Q: consumer name: 0 bytes long: 1 to 255 are allowed"
    );
    assert_eq!(
        text(path, consumer.fork("mail")),
        "queue Q: consumer name: \"mail\" exists already"
    );
    queue.remove_consumer("mail").unwrap();
    assert_eq!(text(path, consumer.dequeue()), "queue Q has no consumer \"mail\"");
}
