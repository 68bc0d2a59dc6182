//! Running the tool.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The tool with these words.
pub(crate) fn mmq(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = crate::support::built(env!("CARGO_BIN_EXE_mmq"));
    // Where it makes a queue for itself.
    command.env("TMPDIR", crate::support::guard::root());
    command.env_remove("COLUMNS");
    command.args(words).stdin(Stdio::null());
    command
}

/// Its whole output, given this on standard input.
pub(crate) fn given(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // It may end before it has read all.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

/// Runs it, and wants this exit status.
#[track_caller]
pub(crate) fn ends(mut command: Command, status: i32) -> Output {
    let output = command.output().expect("the tool runs");
    check(output, status)
}

/// What it printed, when that is its exit status.
#[track_caller]
pub(crate) fn check(output: Output, status: i32) -> Output {
    assert_eq!(output.status.code(), Some(status), "{}", said(&output));
    output
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `mmq COMMAND DIR WORDS...`.
pub(crate) fn on(command: &str, dir: &Path, words: &[&str]) -> Command {
    let mut program = mmq([command]);
    program.arg(dir).args(words);
    program
}

/// A process that is killed when its test fails.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
