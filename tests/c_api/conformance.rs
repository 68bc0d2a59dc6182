//! The answers of C and C++ to the calls of `tests/conformance.json`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::conformance_file;
use crate::library::library;
use crate::support::command;

/// A program that reads calls and prints answers, one a line, until its input ends.
struct Speaker(Child, BufReader<std::process::ChildStdout>);

impl Speaker {
    fn start(program: &Path, dir: &Path) -> Speaker {
        let mut command = command(program);
        command.arg(dir).env("LD_LIBRARY_PATH", &library().dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Speaker(child, answers)
    }

    fn answer(&mut self, call: &str) -> String {
        writeln!(self.0.stdin.as_mut().expect("a pipe"), "{call}").expect("it reads");
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line.trim_end_matches('\n').into()
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        // This closes its input first.
        let _ = self.0.wait();
    }
}

#[track_caller]
fn answers_as_the_file_says(compiler: &str, source: &str, standard: &str) {
    let program = library().compile(compiler, source, &[standard]);
    conformance_file::check(|dir| {
        let mut speaker = Speaker::start(&program, dir);
        move |call| speaker.answer(call)
    });
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn c_answers_as_the_conformance_file_says() {
    answers_as_the_file_says("cc", "tests/c/conformance.c", "-std=c11");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn cpp_answers_as_the_conformance_file_says() {
    answers_as_the_file_says("c++", "tests/c/conformance.cpp", "-std=c++17");
}
