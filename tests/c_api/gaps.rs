//! The examples in C and C++, and the programs of the README, the guide and `mmq.h`, on a queue of
//! 4,000 messages with six flipped bytes: each reports the six, reads all the others, and ends with
//! success.

use std::path::Path;
use std::process::Output;

use crate::flipped::{self, DAMAGED, MESSAGES, WHOLE};
use crate::library::{library, root};
use crate::programs;

fn job(number: u64) -> Vec<u8> {
    format!("job number {number:08} of many").into()
}

/// Builds the program and runs it in a directory where `queue` is damaged; the lines of its output
/// and how many gaps it reported.
#[track_caller]
fn run_on_damage(
    compiler: &str,
    source: &Path,
    standard: &str,
    queue: &str,
) -> (Vec<String>, usize) {
    let program = library().compile(compiler, source, &[standard, "-O1"]);
    let (mut command, dir) = library().command(&[], &program);
    let queue = dir.path().join(queue);
    flipped::make(&queue, job);
    let Output { status, stdout, stderr } =
        command.env("MMQ_EXAMPLE_DIR", &queue).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{}: {status}\n{stderr}", source.display());
    (
        stdout.lines().map(str::to_owned).collect(),
        stderr.lines().filter(|line| line.contains("will never come")).count(),
    )
}

/// The six are five gaps: two of them adjoin.
const GAPS: usize = DAMAGED.len() - 1;

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_programs_of_the_header_and_the_documents_read_on_behind_gaps() {
    let header = ("tests/c/header_example.c".into(), "cc", "-std=c99", "hello\n".to_owned());
    let mut sources = vec![header];
    for program in programs::all() {
        let source = program.write(&format!("{}_gaps", program.name));
        sources.push((source, program.compiler, program.standard, program.prints));
    }
    for (source, compiler, standard, prints) in sources {
        let (lines, gaps) = run_on_damage(compiler, &source, standard, "spool");
        let own = prints.lines().count() as u64;
        assert_eq!((lines.len() as u64, gaps), (WHOLE + own, GAPS), "{}", source.display());
        assert!(lines.last().is_some_and(|line| line.ends_with("hello")), "{}", source.display());
    }
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_examples_in_c_and_cpp_read_on_behind_gaps() {
    let example = |name: &str, compiler: &str, standard: &str| {
        run_on_damage(compiler, &root().join("examples").join(name), standard, "queue")
    };
    for (extension, compiler, standard) in [("c", "cc", "-std=c11"), ("cpp", "c++", "-std=c++17")] {
        let (lines, gaps) = example(&format!("hello.{extension}"), compiler, standard);
        assert_eq!((lines.len() as u64, gaps), (WHOLE + 2, GAPS));
        assert_eq!(lines.last(), Some(&format!("{}: world", MESSAGES + 1)));
        let (lines, gaps) = example(&format!("producer_consumer.{extension}"), compiler, standard);
        assert!(lines[0].starts_with(&format!("{} messages of ", WHOLE + 100_000)), "{lines:?}");
        assert_eq!(gaps, GAPS);
    }
    let (lines, gaps) = example("event_loop.c", "cc", "-std=c11");
    let seen = lines[0].split(' ').find_map(|word| word.parse::<u64>().ok());
    assert!(seen.is_some_and(|seen| seen >= WHOLE) && gaps == GAPS, "{lines:?}");
    let (lines, gaps) = example("fresh_first.c", "cc", "-std=c11");
    let lost = lines.iter().find_map(|line| line.strip_suffix(" will never come"));
    assert!(gaps > 0 && lost.is_some(), "{lines:?}");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn recovery_in_c_and_cpp_reports_what_was_lost_and_fails() {
    let between =
        library().compile("cc", "tests/c/damage_between.c", &["-std=c11", "-shared", "-fPIC"]);
    for (extension, compiler, standard) in [("c", "cc", "-std=c11"), ("cpp", "c++", "-std=c++17")] {
        let source = root().join("examples").join(format!("recovery.{extension}"));
        let program = library().compile(compiler, &source, &[standard, "-O1"]);
        let (mut command, dir) = library().command(&[], &program);
        command.env("MMQ_EXAMPLE_DIR", dir.path().join("queue")).env("LD_PRELOAD", &between);
        let Output { status, stdout, stderr } = command.output().unwrap();
        let (stdout, said) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert_eq!((status.code(), &*stdout), (Some(1), ""), "{said}");
        assert_eq!(said.matches("message 12345 will never come: damaged\n").count(), 1, "{said}");
        let last = said.lines().last().unwrap_or_default();
        let numbers: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(last.ends_with(" are there, 1 are lost"), "{said}");
        // One more than acknowledged may have been there.
        assert!(numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1, "{said}");
    }
}
