//! Who may look at a queue, and open it: the permission bits of its files.
//! (`crates/mmq-cli/tests/tool/modes.rs`
//! has the umask, which a process has but once, and other users.)

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mmq::{CopiedId, Options, Queue};

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// The modes of all files in a directory.
fn modes(dir: &Path) -> BTreeSet<u32> {
    fs::read_dir(dir).unwrap().map(|file| mode(&file.unwrap().path())).collect()
}

/// Puts in what takes several segments.
fn fill(queue: &Queue) {
    for _ in 0..5 {
        queue.enqueue(vec![7; 1 << 20]).unwrap();
    }
}

#[test]
fn every_file_has_the_mode_whenever_and_by_whom_it_is_made() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("queue");
    let queue = Options::new().mode(0o640).open(&path).unwrap();
    fill(&queue);
    queue.close().unwrap();
    assert_eq!((modes(&path), mode(&path)), (BTreeSet::from([0o640]), 0o750));
    // Nobody says it again: more segments, an index that is made anew, a copy.
    let before = crate::support::segments(&path).len();
    let queue = Queue::open(&path).unwrap();
    fill(&queue);
    queue.close().unwrap();
    assert!(crate::support::segments(&path).len() > before, "segments were to be made");
    fs::remove_file(path.join("index")).unwrap();
    drop(Queue::open(&path).unwrap());
    assert_eq!((modes(&path), mode(&path)), (BTreeSet::from([0o640]), 0o750));
    let copy = dir.path().join("copy");
    let queue = Queue::open(&path).unwrap();
    queue.copy_to(&copy, CopiedId::New, |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((modes(&copy), mode(&copy)), (BTreeSet::from([0o640]), 0o750));
}

#[test]
fn a_queue_that_is_there_gets_the_mode_that_is_asked_for_and_keeps_it() {
    let dir = crate::support::tempdir().unwrap();
    let path = dir.path().join("queue");
    for (asked, expected) in [(0o600, 0o700), (0o664, 0o775), (0o604, 0o705)] {
        let queue = Options::new().mode(asked).open(&path).unwrap();
        fill(&queue);
        queue.close().unwrap();
        assert_eq!((modes(&path), mode(&path)), (BTreeSet::from([asked]), expected));
        let queue = Queue::open(&path).unwrap();
        fill(&queue);
        queue.close().unwrap();
        assert_eq!((modes(&path), mode(&path)), (BTreeSet::from([asked]), expected));
    }
    // By hand: the index says it from then on.
    fs::read_dir(&path).unwrap().for_each(|file| set(&file.unwrap().path(), 0o644));
    let queue = Queue::open(&path).unwrap();
    fill(&queue);
    queue.close().unwrap();
    assert_eq!(modes(&path), BTreeSet::from([0o644]));
}

/// A directory that is shared by a group: what is made in it is the group's.
#[test]
fn other_bits_and_other_files_stay_as_they_are() {
    let dir = crate::support::tempdir().unwrap();
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    set(&shared, 0o2755);
    let below = shared.join("below");
    for path in [&shared, &below] {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join(".hidden"), "another's").unwrap();
        set(&path.join(".hidden"), 0o777);
        drop(Options::new().mode(0o660).open(path).unwrap());
        assert_eq!(mode(path), 0o2770, "{path:?}");
        assert_eq!(mode(&path.join("index")), 0o660, "{path:?}");
        assert_eq!(mode(&path.join(".hidden")), 0o777, "{path:?}");
    }
    // Those above a new one are as the umask says.
    let deep = dir.path().join("a/b");
    drop(Options::new().mode(0o606).open(&deep).unwrap());
    assert_eq!(mode(&deep), 0o707);
    assert_ne!(mode(deep.parent().unwrap()), 0o707);
}
