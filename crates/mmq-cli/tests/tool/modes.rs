//! Who else may look at a queue that the tool makes, or open it: by the umask, by `--mode`, and as
//! another user. (`tests/queue/options/modes.rs` has what the library does.)

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::run::{check, ends, given, mmq, on, said};

/// A group, and a user of it, that nobody else is here.
const GROUP: u32 = 54_321;

/// `mmq WORDS...` by a shell with that umask.
fn under(umask: &str, words: &[&str]) -> Command {
    let mut shell = crate::support::command("sh");
    shell.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_mmq")]);
    shell.args(words);
    shell
}

/// Puts in what takes several segments.
fn put(umask: &str, dir: &Path, words: &[&str]) {
    let lines: String = (0..20_000).map(|number| format!("{number:0>300}\n")).collect();
    let put = under(umask, &[&["put", dir.to_str().unwrap()], words].concat());
    check(given(put, lines.as_bytes()), 0);
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// The mode that all files of a queue have, and the directory's.
fn modes(dir: &Path) -> (u32, u32) {
    let files = fs::read_dir(dir).unwrap().map(|file| mode(&file.unwrap().path()));
    let files: BTreeSet<u32> = files.collect();
    assert_eq!(files.len(), 1, "{files:?}");
    (files.into_iter().next().unwrap(), mode(dir))
}

#[test]
fn a_queue_is_as_open_as_the_umask_of_who_made_it() {
    let dir = crate::support::tempdir().unwrap();
    for (umask, expected) in [
        ("022", (0o644, 0o755)),
        ("027", (0o640, 0o750)),
        ("002", (0o664, 0o775)),
        ("077", (0o600, 0o700)),
    ] {
        let queue = dir.path().join(umask);
        put(umask, &queue, &[]);
        assert_eq!(modes(&queue), expected, "{umask}");
        let before = crate::support::segments(&queue).len();
        // Whatever the umask of those is who make more files.
        put("077", &queue, &[]);
        put("000", &queue, &[]);
        assert!(crate::support::segments(&queue).len() > before, "segments were to be made");
        assert_eq!(modes(&queue), expected, "{umask}");
    }
}

#[test]
fn a_umask_keeps_no_owner_out_of_a_new_queue() {
    let dir = crate::support::tempdir().unwrap();
    for umask in ["0177", "0277", "0777"] {
        let queue = dir.path().join(umask);
        let put = under(umask, &["put", queue.to_str().unwrap()]);
        check(given(put, b"a message\n"), 0);
        assert_eq!(modes(&queue), (0o600, 0o700), "{umask}");
    }
}

#[test]
fn a_queue_is_as_open_as_it_is_told_to_be() {
    let dir = crate::support::tempdir().unwrap();
    let queue = dir.path().join("q");
    put("077", &queue, &["--mode", "640"]);
    assert_eq!(modes(&queue), (0o640, 0o750));
    put("077", &queue, &["--mode", "0604"]);
    assert_eq!(modes(&queue), (0o604, 0o705));
    for (bad, words) in [
        ("755", "name the bits of files"),
        ("1640", "beyond 0666"),
        ("440", "lacks 0600"),
        ("rw", "write octal digits"),
    ] {
        let said = said(&ends(on("put", &queue, &["--mode", bad, "/dev/null"]), 2));
        assert!(said.contains("mode") && said.contains(words), "{bad}: {said}");
    }
    assert_eq!(modes(&queue), (0o604, 0o705));
    // What is made of one is no more open.
    let text = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (from, dump) = (text("small"), text("dump"));
    check(given(under("077", &["put", &from, "--mode", "604"]), b"message\n"), 0);
    let queues: [(&str, &[&str]); 5] = [
        ("copy", &["copy", &from, &text("copy")]),
        ("salvaged", &["salvage", &from, "--to", &text("salvaged")]),
        ("said", &["salvage", &from, "--to", &text("said"), "--mode", "660"]),
        ("dead", &["each", &from, "--retries", "1", "--dead", &text("dead"), "--", "false"]),
        ("loaded", &["load", &text("loaded"), &dump, "--mode", "644"]),
    ];
    fs::write(&dump, ends(on("dump", Path::new(&from), &[]), 0).stdout).unwrap();
    for (name, words) in queues {
        let output = under("022", words).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code < 2), "{name}: {}", said(&output));
        let expected = match name {
            "said" => (0o660, 0o770),
            "loaded" => (0o644, 0o755),
            _ => (0o604, 0o705),
        };
        assert_eq!(modes(&dir.path().join(name)), expected, "{name}");
    }
}

/// A queue in a directory of a group: its members look, and put in, and nobody else does.
#[test]
fn a_group_shares_a_queue() {
    if !rustix::process::geteuid().is_root() {
        crate::support::skip("only root is another user");
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, None, Some(GROUP)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2775)).unwrap();
    let (read, written) = (shared.join("read"), shared.join("written"));
    put("027", &read, &[]);
    put("002", &written, &[]);
    assert_eq!((modes(&read), modes(&written)), ((0o640, 0o2750), (0o664, 0o2775)));
    let by = |user: u32, group: u32, mut command: Command| {
        command.uid(user).gid(group).current_dir("/");
        command
    };
    if by(GROUP, GROUP, mmq(["--version"])).output().is_err() {
        crate::support::skip("nobody else can run the tool");
        return;
    }
    for command in ["stat", "cat", "verify"] {
        ends(by(GROUP, GROUP, on(command, &read, &[])), 0);
        let said = said(&ends(by(GROUP + 1, GROUP + 1, on(command, &read, &[])), 7));
        assert!(said.contains("ermission denied"), "{said}");
        ends(by(GROUP + 1, GROUP + 1, on(command, &written, &[])), 0);
    }
    let line = |dir| by(GROUP, GROUP, under("077", &["put", dir]));
    check(given(line(read.to_str().unwrap()), b"refused\n"), 7);
    let before = crate::support::segments(&written).len();
    for _ in 0..2 {
        let many: String = (0..20_000).map(|number| format!("{number:0>300}\n")).collect();
        check(given(line(written.to_str().unwrap()), many.as_bytes()), 0);
    }
    let segments = crate::support::segments(&written);
    assert!(segments.len() > before, "segments were to be made");
    let newest = segments.last().unwrap().metadata().unwrap();
    assert_eq!((newest.uid(), newest.gid()), (GROUP, GROUP));
    assert_eq!(modes(&written), (0o664, 0o2775));
    put("022", &written, &[]);
}

#[test]
fn root_is_warned_that_it_makes_files_in_the_queue_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        crate::support::skip("only root can give a queue to another user");
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    let put = || said(&check(given(on("put", dir.path(), &[]), b"x\n"), 0));
    assert_eq!(put(), "");
    chown(dir.path(), Some(GROUP), None).unwrap();
    let warning = put();
    let is_warned = warning.contains("belongs to user 54321") && warning.lines().count() == 1;
    assert!(is_warned, "{warning}");
    assert_eq!(said(&check(given(on("put", dir.path(), &["-q"]), b"x\n"), 0)), "");
}
