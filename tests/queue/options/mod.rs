//! What `open` accepts and refuses, and promise P7: one owner, by a lock that dies with its holder.
//!
//! `tests/c/fork.c` tests fork itself: every way to fork from Rust (`CommandExt::pre_exec`,
//! `rustix::runtime`) is an unsafe call, and unsafe code stands in few places of `src` alone. A
//! test below shows what a child started by `Command` inherits.

mod lock;
mod modes;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::support::{itself, names};
use mmq::{Error, Options, Queue};

fn refused_option(options: Options) -> &'static str {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("queue");
    match options.open(&path) {
        Err(Error::InvalidOption { name, reason, .. }) => {
            assert!(!reason.is_empty());
            assert!(!path.exists(), "a refused opening makes nothing");
            name
        }
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("accepted"),
    }
}

#[test]
fn every_value_that_cannot_be_is_refused_by_its_name() {
    let new = Options::new;
    for arena in [0, 1, 4095, 4097, 6000, (1 << 30) + 4096, 1 << 40, u64::MAX] {
        assert_eq!(refused_option(new().arena_size(arena)), "arena_size", "{arena}");
    }
    for arenas in [0, 1, 2] {
        assert_eq!(refused_option(new().max_mapped_arenas(arenas)), "max_mapped_arenas");
    }
    assert_eq!(refused_option(new().flush_every_ops(0)), "flush_every_ops");
    assert_eq!(refused_option(new().flush_every(Duration::ZERO)), "flush_every");
    for bytes in [0, 1, 65535] {
        assert_eq!(refused_option(new().max_bytes(bytes)), "max_bytes");
    }
    assert_eq!(refused_option(new().max_age(Duration::ZERO)), "max_age");
    for mode in [0, 0o200, 0o444, 0o755, 0o2640, 640, u32::MAX] {
        assert_eq!(refused_option(new().mode(mode)), "mode", "{mode:o}");
    }
}

#[test]
fn the_extremes_that_can_be_are_accepted() {
    let extremes = [
        Options::new().arena_size(4096).max_mapped_arenas(3).max_bytes(65536).flush_every_ops(1),
        Options::new()
            .arena_size(1 << 30)
            .max_mapped_arenas(u32::MAX)
            .max_bytes(u64::MAX)
            .flush_every_ops(u64::MAX),
        Options::new()
            .max_mapped_arenas(None)
            .flush_every(Duration::MAX)
            .flush_every_ops(None)
            .max_bytes(None),
    ];
    for options in extremes {
        let dir = crate::support::tempdir().unwrap();
        let queue = options.open(dir.path()).unwrap();
        queue.enqueue("a").unwrap();
        assert_eq!(&*queue.dequeue().unwrap().unwrap(), b"a");
        queue.close().unwrap();
    }
}

#[test]
fn free_space_that_no_disk_has_refuses_messages_and_not_the_opening() {
    let dir = crate::support::tempdir().unwrap();
    let queue = Options::new().min_free_bytes(u64::MAX).open(dir.path()).unwrap();
    assert!(queue.enqueue("a").unwrap_err().is_full());
    assert!(queue.dequeue().unwrap().is_none());
}

#[test]
fn the_directory_and_those_above_it_are_made() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("a/b/c");
    let queue = Queue::open(&path).unwrap();
    assert_eq!(queue.path().canonicalize().unwrap(), path.canonicalize().unwrap());
    queue.enqueue("a").unwrap();
    queue.close().unwrap();
    assert_eq!(Queue::open(&path).unwrap().len(), 1);
    // The same by name alone, without a directory before it.
    let mut child = itself("options::the_child_with_a_relative_path");
    let status =
        child.current_dir(&path).env("MMQ_RELATIVE", "1").stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    assert_eq!(Queue::open(path.join("relative")).unwrap().len(), 1);
}

#[test]
fn the_child_with_a_relative_path() {
    if std::env::var_os("MMQ_RELATIVE").is_some() {
        let queue = Queue::open("relative").unwrap();
        // The queue keeps its place when the process goes elsewhere.
        std::env::set_current_dir("/").unwrap();
        queue.enqueue("a").unwrap();
        queue.close().unwrap();
    }
}

#[test]
fn without_create_a_queue_that_does_not_exist_is_not_found_and_nothing_is_made() {
    let dir = crate::support::tempdir().unwrap();
    let options = Options::new().create(false);
    let missing = dir.path().join("missing");
    let error = options.clone().open(&missing).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(!missing.exists());
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(options.clone().open(&empty), Err(Error::NotFound { .. })));
    assert_eq!(names(&empty), [""; 0]);
    drop(Queue::open(&missing).unwrap());
    options.open(&missing).unwrap().enqueue("a").unwrap();
}

#[track_caller]
fn refused_path(path: &Path, mentioned: &str) {
    for options in [Options::new(), Options::new().create(false)] {
        match options.open(path) {
            Ok(_) => panic!("{path:?} was opened"),
            Err(error) => {
                assert!(error.to_string().contains(mentioned), "{error} does not name {mentioned}")
            }
        }
    }
}

#[test]
fn a_path_that_cannot_be_is_refused_and_named() {
    let dir = crate::support::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    refused_path(&file, "file");
    refused_path(&file.join("below"), "file");
    refused_path(Path::new(""), "empty");
    refused_path(&dir.path().join("nul\0byte"), "nul");
    refused_path(&dir.path().join("x".repeat(300)), "xxx");
    symlink(dir.path().join("nowhere/at/all"), dir.path().join("dangling")).unwrap();
    refused_path(&dir.path().join("dangling"), "dangling");
    if cfg!(target_os = "linux") {
        refused_path(Path::new("/proc/mmq-cannot-be-here"), "mmq-cannot-be-here");
        refused_path(Path::new("/dev/null"), "null");
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_directory_without_permission_is_refused_and_named() {
    if rustix::process::geteuid().is_root() {
        crate::support::skip("root may write everywhere");
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("closed");
    fs::create_dir(&path).unwrap();
    for mode in [0o000, 0o555] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Queue::open(&path).unwrap_err();
        assert!(matches!(&error, Error::Io { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied));
        assert!(error.to_string().contains("closed"), "{error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn foreign_files_in_the_directory_are_left_alone() {
    let dir = crate::support::tempdir().unwrap();
    let foreign = [
        "notes.txt",
        ".hidden",
        "index.bak",
        "segment",
        "segment-",
        "segment-0000001x",
        "lock",
        "00000001",
    ];
    Queue::open(dir.path()).unwrap().close().unwrap();
    for name in foreign {
        fs::write(dir.path().join(name), name.repeat(1000)).unwrap();
    }
    fs::create_dir(dir.path().join("below")).unwrap();
    fs::write(dir.path().join("below/file"), "below").unwrap();
    symlink("notes.txt", dir.path().join("link")).unwrap();
    for round in 0..4 {
        let queue = Options::new().arena_size(4096).open(dir.path()).unwrap();
        assert_eq!(queue.len(), round);
        queue.enqueue(vec![0; 5 << 20]).unwrap();
        queue.enqueue("a").unwrap();
        queue.skip().unwrap();
        assert_eq!((queue.stats().gaps, queue.stats().lost_messages), (0, 0));
    }
    for name in foreign {
        assert_eq!(
            fs::read(dir.path().join(name)).unwrap(),
            name.repeat(1000).as_bytes(),
            "{name}"
        );
    }
    assert_eq!(fs::read(dir.path().join("below/file")).unwrap(), b"below");
    assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("notes.txt"));
}

/// Every path below the directory, what it holds, and when it was changed.
fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            found.extend(tree(&path));
        }
        found.push((path.clone(), fs::read(&path).unwrap_or_default(), about.modified().unwrap()));
    }
    found.sort();
    found
}

#[test]
fn a_directory_that_is_no_queue_is_refused_and_left_alone() {
    let text = |name: &str| (name.to_owned(), Some("a text of somebody's\n"));
    let folder = |name: &str| (name.to_owned(), None);
    // Each with the name that the error is to give.
    let directories = [
        (
            vec![
                folder("index"),
                text("index/page.html"),
                text("segment-00000000"),
                text("about.txt"),
            ],
            "index",
        ),
        (vec![text("segment-00000000"), text("about.txt")], "segment-00000000"),
        (vec![text("notes.txt"), text(".hidden")], "notes.txt"),
        (vec![text("index")], "index"),
        (vec![text("index.bak"), text("segment-1")], "index.bak"),
        (vec![folder("segment-00000007.damaged")], "segment-00000007.damaged"),
        (vec![folder("below")], "below"),
        (vec![text("index.x.damaged"), text("other.damaged")], "index.x.damaged"),
    ];
    for (made, named) in directories {
        let dir = crate::support::tempdir().unwrap();
        for (name, content) in &made {
            let path = dir.path().join(name);
            match content {
                Some(content) => fs::write(path, content).unwrap(),
                None => fs::create_dir(path).unwrap(),
            }
        }
        let before = tree(dir.path());
        for create in [true, false] {
            match Options::new().create(create).open(dir.path()) {
                Err(error @ Error::NotAQueue { .. }) => {
                    assert!(matches!(&error, Error::NotAQueue { path, file }
                            if path == dir.path() && file == named));
                    let text = error.to_string();
                    assert!(
                        text.contains(dir.path().to_str().unwrap()) && text.contains(named),
                        "{text}"
                    );
                }
                other => panic!("{made:?}: {other:?}"),
            }
            assert_eq!(tree(dir.path()), before, "{made:?}");
        }
    }
    // A name that is not text.
    let dir = crate::support::tempdir().unwrap();
    fs::write(dir.path().join(OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
    assert!(matches!(Queue::open(dir.path()), Err(Error::NotAQueue { .. })));
    // A link, whatever it leads to.
    for name in ["index", "segment-00000000"] {
        let dir = crate::support::tempdir().unwrap();
        symlink("/etc/hostname", dir.path().join(name)).unwrap();
        let error = Queue::open(dir.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("symbolic link"), "{error}");
        assert!(fs::symlink_metadata(dir.path().join(name)).unwrap().is_symlink());
    }
}

#[test]
fn a_directory_with_nothing_in_it_that_counts_is_taken() {
    let dir = crate::support::tempdir().unwrap();
    fs::write(dir.path().join(".hidden"), "x").unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    assert!(matches!(Options::new().create(false).open(dir.path()), Err(Error::NotFound { .. })));
    Queue::open(dir.path()).unwrap().enqueue("first").unwrap();
    assert_eq!(&Queue::open(dir.path()).unwrap().dequeue().unwrap().unwrap()[..], b"first");
}

#[test]
fn what_an_opening_may_have_left_is_taken_up() {
    let blank = vec![0; 12_345];
    // Quarantined by one that was killed before it made a new index; or being made.
    let left: [(&str, &[u8]); 8] = [
        ("index.damaged", b"anything"),
        ("segment-00000003.2.damaged", b"anything"),
        ("index", b""),
        ("index", &blank),
        ("index", &[0xa5; 40_960]),
        ("segment-00000000", b""),
        ("segment-00000000", &blank),
        ("segment-00000000", &[0xa5; 8192]),
    ];
    for (name, bytes) in left {
        let dir = crate::support::tempdir().unwrap();
        fs::write(dir.path().join(name), bytes).unwrap();
        fs::write(dir.path().join("notes.txt"), "notes").unwrap();
        let queue = Queue::open(dir.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(queue.enqueue("first").unwrap(), 0);
        assert_eq!(fs::read(dir.path().join("notes.txt")).unwrap(), b"notes");
    }
}

/// The rename at the end could not replace it, and the whole copy would be made for nothing.
#[test]
fn a_copy_to_a_link_to_nothing_is_refused_before_the_work() {
    let dir = crate::support::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("nowhere", &link).unwrap();
    let queue = Queue::open(dir.path().join("q")).unwrap();
    queue.enqueue("a").unwrap();
    let copied = queue.copy_to(&link, mmq::CopiedId::New, |_, _| panic!("it copies"));
    let refused = copied.unwrap_err().to_string();
    assert!(refused.contains("link is a link to nothing: name a directory"), "{refused}");
    assert!(link.is_symlink() && !dir.path().join("link.copying").exists());
}
