//! Nothing that a test makes outlives its process, however that ends. A shell, the guard, is
//! started with the first directory or child. It reads commands from a pipe of which the test
//! process alone has the other end. When the pipe closes, by an ordinary end or by SIGKILL, the
//! guard kills what the test process started, runs the commands, the last one first, and ends. It
//! has a session of its own, so what kills the tests does not take it.
//!
//! Everything lies below one directory, `mmq-test-PID-...` in the temporary directory, or below one
//! more in memory. The guard holds their locks as long as it runs: `.ci/leftovers` goes by that.

#![allow(dead_code, reason = "every test binary compiles this file and uses its own part of it")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::{Builder, TempDir};

/// In the environment of all that a test process starts: its directory.
pub(crate) const RUN: &str = "MMQ_TEST_RUN";

/// Its argument: the variable above with its value. Standard output is a directory that it holds
/// the lock of; `hold ` names one more. A command after `now ` runs at once, beside the others. A
/// process that hangs in the kernel cannot be killed, so nothing waits for one:
/// `timeout -s KILL` does not.
const SCRIPT: &str = r#"
run=$1 end=
# Kills each process whose environment has this text, and what it starts meanwhile.
kill_all() {
    for round in 1 2 3 4 5 6 7 8 9 10; do
        found=$(timeout -s KILL 20 grep -lsF --line-buffered -- "$1" /proc/[0-9]*/environ |
            tr -dc '0-9\n')
        [ "$found" ] || return 0
        kill -9 $found
        sleep 0.1
    done
}
while IFS= read -r line; do
    case $line in
    'now '*) (eval "${line#now }") </dev/null & ;;
    'hold '*) exec 8<"${line#hold }"; flock -n 8 ;;
    *) end="$line
$end" ;;
    esac
done
kill_all "$run"
printf %s "$end" | while IFS= read -r line; do
    timeout -s KILL 20 sh -c "$line" </dev/null >/dev/null
done
# What still waits beside it.
trap '' TERM
kill -s TERM 0
"#;

struct Guard {
    root: PathBuf,
    shell: Mutex<Child>,
}

impl Guard {
    fn start() -> Guard {
        let root = new_root(&std::env::temp_dir());
        let lock = File::open(&root).expect("the directory");
        lock.lock().expect("nobody else has the lock");
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", SCRIPT, "mmq-guard", &format!("{RUN}={}", root.display())]);
        // Where a test started this process, that test's guard must not kill this one.
        command.env_remove(RUN).current_dir("/");
        command.stdin(Stdio::piped()).stdout(lock).stderr(Stdio::null());
        let shell = command.spawn().expect("setsid (of util-linux) starts the guard");
        let guard = Guard { root, shell: Mutex::new(shell) };
        guard.send(&removal(&guard.root));
        guard
    }

    fn send(&self, line: &str) {
        assert!(!line.contains('\n'), "one line: {line:?}");
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = shell.stdin.as_mut().expect("a pipe");
        pipe.write_all(format!("{line}\n").as_bytes()).expect("the guard reads");
    }
}

fn guard() -> &'static Guard {
    static GUARD: OnceLock<Guard> = OnceLock::new();
    GUARD.get_or_init(Guard::start)
}

fn new_root(place: &Path) -> PathBuf {
    let prefix = format!("mmq-test-{}-", std::process::id());
    Builder::new().prefix(&prefix).tempdir_in(place).expect("a directory for the tests").keep()
}

fn removal(root: &Path) -> String {
    format!("rm -rf --one-file-system {}", quoted(root))
}

/// The path as a word of the shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_str().expect("UTF-8");
    assert!(!text.contains('\''), "{text}");
    format!("'{text}'")
}

/// The directory of this process in which each test has its own.
pub(crate) fn root() -> &'static Path {
    &guard().root
}

/// A directory for one test.
pub(crate) fn tempdir() -> io::Result<TempDir> {
    tempfile::tempdir_in(root())
}

/// In memory where that is possible.
pub(crate) fn tempdir_in_memory() -> io::Result<TempDir> {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return tempdir();
    }
    tempfile::tempdir_in(ROOT.get_or_init(|| {
        let root = new_root(memory);
        guard().send(&format!("hold {}", root.display()));
        at_end(&removal(&root));
        root
    }))
}

/// A program that the guard kills when this process has ended.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env(RUN, root());
    command
}

/// The words before a program that Cargo built: how it starts where this machine has another
/// processor. Cargo names the variable, and leaves it in the environment of the tests.
pub(crate) fn runner() -> Vec<String> {
    let processor = std::env::consts::ARCH.to_uppercase();
    let words = std::env::var(format!("CARGO_TARGET_{processor}_UNKNOWN_LINUX_GNU_RUNNER"));
    words.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// As [`command`], for a program that Cargo built.
pub(crate) fn built(program: impl AsRef<OsStr>) -> Command {
    let words = runner();
    let Some((runner, words)) = words.split_first() else { return command(program) };
    let mut command = command(runner);
    command.args(words).arg(program);
    command
}

/// The guard runs this line of shell when this process has ended, also when what it clears away is
/// gone already: then it must do no harm.
pub(crate) fn at_end(line: &str) {
    guard().send(line);
}

/// The guard's shell runs this line now, whatever this process comes to. `kill_all TEXT` there
/// kills each process whose environment has that text.
pub(crate) fn at_once(line: &str) {
    guard().send(&format!("now {line}"));
}

/// To be called before something is mounted there, from this image if it is a file.
pub(crate) fn unmount_at_end(target: &Path, image: &Path) {
    let (target, image) = (quoted(target), quoted(image));
    at_end(&format!("losetup -n -O NAME -j {image} | xargs -r -n 1 losetup -d"));
    at_end(&format!("umount -l {target}"));
}
