//! The C and C++ interfaces: the programs in `tests/c/` are built with the system's compilers
//! against the real shared library, and run.
//!
//! Plain `cargo test` only checks that the headers compile. `cargo test --features capi` builds the
//! library once (in a directory of its own under `target/tmp`) and runs everything; the sanitizers,
//! which need a nightly compiler and minutes, run with `-- --include-ignored`. A tool that is
//! missing is named, and what needs it is skipped.

mod binary;
mod checkers;
mod conformance;
#[path = "../support/conformance.rs"]
mod conformance_file;
#[path = "../support/flipped.rs"]
mod flipped;
mod gaps;
mod installed;
mod library;
mod misuse;
mod programs;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use crate::library::{STRICT, library, panicking, present, root, run, scratch};

#[test]
fn the_headers_compile_alone_and_twice_without_a_warning() {
    let dir = scratch("headers");
    let check = |compiler: &str, language: &str, standard: &str, header: &str, more: &[&str]| {
        let extension = if language == "c" { "c" } else { "cpp" };
        let name = format!("{compiler}-{}-{header}.{extension}", standard.replace('+', "p"));
        let source = dir.join(name);
        let include = format!("#include <{header}>\n");
        std::fs::write(
            &source,
            format!(
                "{include}{include}int main({}) {{ return 0; }}\n",
                if language == "c" { "void" } else { "" }
            ),
        )
        .unwrap();
        let mut command = Command::new(compiler);
        command
            .args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"])
            .args(STRICT)
            .args(more);
        run(command.arg("-I").arg(root().join("include")).arg(source));
    };
    for compiler in present(&["gcc", "clang"]) {
        for standard in ["c99", "c11", "c17", "c2x"] {
            check(
                compiler,
                "c",
                standard,
                "mmq.h",
                &["-Wundef", "-Wstrict-prototypes", "-Wshadow"],
            );
            check(compiler, "c", standard, "mmq_forward.h", &["-Wundef", "-Wstrict-prototypes"]);
        }
    }
    for compiler in present(&["g++", "clang++"]) {
        for standard in ["c++11", "c++14", "c++17", "c++20"] {
            check(compiler, "c++", standard, "mmq.h", &[]);
        }
        let source = dir.join("old.cpp");
        std::fs::write(&source, "#include <mmq.hpp>\n").unwrap();
        let mut old = Command::new(compiler);
        let old = old
            .args(["-std=c++14", "-fsyntax-only", "-I"])
            .arg(root().join("include"))
            .arg(&source);
        let said = String::from_utf8_lossy(&old.output().unwrap().stderr).into_owned();
        assert_eq!(said.matches("error:").count(), 1, "{said}");
        assert!(said.contains("mmq.hpp needs C++17"), "{said}");
        for standard in ["c++17", "c++20"] {
            for header in ["mmq.hpp", "mmq_forward.hpp"] {
                check(compiler, "c++", standard, header, &["-Wshadow", "-Wconversion"]);
                check(compiler, "c++", standard, header, &["-fno-exceptions", "-fno-rtti"]);
            }
        }
    }
}

/// Compiles the program with every C compiler there is and runs it.
#[track_caller]
fn passes(source: impl AsRef<Path>) {
    for compiler in present(&["gcc", "clang"]) {
        let program = library().compile(compiler, source.as_ref(), &["-std=c11"]);
        for line in library().run(&program).lines() {
            match line.strip_prefix("SKIPPED ") {
                Some(what) => crate::support::skip(what),
                None => println!("{line}"),
            }
        }
    }
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn messages_of_every_size_come_back_through_arenas_of_every_size() {
    passes("tests/c/round_trip.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_look_from_outside_sees_who_has_the_queue() {
    passes("tests/c/inspect.c");
}

/// As the programs of C do that are given a directory with the queue `letters`.
#[track_caller]
fn passes_with_dead_letters(compilers: &[&str], source: &str, flags: &[&str]) {
    for compiler in present(compilers) {
        let program = library().compile(compiler, source, flags);
        let (mut command, dir) = library().command(&[], &program);
        let queue = dir.path().join("letters");
        std::fs::create_dir(&queue).unwrap();
        for file in std::fs::read_dir(root().join("tests/fixtures/letters")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), queue.join(file.file_name())).unwrap();
        }
        print!("{}", run(&mut command));
    }
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_dead_letter_says_where_it_comes_from() {
    passes_with_dead_letters(&["gcc", "clang"], "tests/c/dead_letters.c", &["-std=c11"]);
    passes_with_dead_letters(&["g++", "clang++"], "tests/c/dead_letters.cpp", &["-std=c++17"]);
}

/// What only the library with forwarding answers.
const FORWARD: &str = "crates/mmq-forward-c/tests/c/forward.c";

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn every_status_is_reached_and_says_what_happened() {
    passes("tests/c/statuses.c");
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let header = read("include/mmq.h");
    let (_, values) = header.split_once("enum mmq_status").expect("the statuses");
    let (values, _) = values.split_once("};").expect("their end");
    let names = values.lines().filter_map(|line| Some(line.trim().split_once(" = ")?.0));
    let reached =
        ["tests/c/statuses.c", "tests/c/panic.c", "tests/c/sharing.c", FORWARD].map(read).concat();
    let missing: Vec<_> = names
        .filter(|name| *name != "MMQ_OK" && !reached.contains(&format!("ANSWERS({name}, ")))
        .collect();
    assert!(missing.is_empty(), "no program reaches {missing:?}");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_message_outlives_later_reads_and_the_queue() {
    passes("tests/c/lifetime.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_a_program_without_standard_streams_prints_goes_into_no_file() {
    passes("tests/c/standard_closed.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn eight_threads_share_a_queue() {
    passes("tests/c/threads.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn impossible_lengths_and_numbers_are_answers_and_never_a_crash() {
    passes("tests/c/misuse.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_is_not_acknowledged_comes_again() {
    passes("tests/c/deliveries.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_was_handed_out_in_vain_comes_later_or_goes_to_another_queue() {
    passes("tests/c/redelivery.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn what_is_fresh_comes_first_and_what_was_left_behind_beside_it() {
    passes("tests/c/lanes.c");
    passes("tests/c/lanes_refused.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn batches_come_whole_iterators_consume_nothing_and_consumers_are_listed() {
    passes("tests/c/ahead.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_forked_child_is_refused_and_harms_nothing() {
    passes("tests/c/fork.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_forked_child_opens_a_queue_of_its_own_while_the_parents_threads_wait() {
    passes("tests/c/fork_own.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn clients_use_a_queue_through_its_owner_and_the_end_of_either_is_no_signal() {
    passes("tests/c/sharing.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_million_calls_leave_no_memory_behind() {
    passes("tests/c/million.c");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn a_panic_is_an_answer() {
    library();
    let program = panicking().compile("cc", "tests/c/panic.c", &["-std=c11"]);
    panicking().run(&program);
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_program_in_the_header_runs() {
    let program = library().compile("cc", "tests/c/header_example.c", &["-std=c99"]);
    assert_eq!(library().run(&program), "hello\n");
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_wrapper_for_cpp_works_with_and_without_exceptions() {
    for compiler in present(&["g++", "clang++"]) {
        for flags in [
            ["-std=c++17", "-fexceptions"],
            ["-std=c++20", "-O2"],
            ["-std=c++17", "-fno-exceptions"],
        ] {
            for name in ["wrapper", "redelivery", "lanes", "sharing"] {
                let source = format!("tests/c/{name}.cpp");
                let program = library().compile(compiler, source, &flags);
                library().run(&program);
            }
        }
    }
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_programs_in_the_documents_run() {
    for program in programs::all() {
        let source = program.write(&program.name);
        let built = library().compile(program.compiler, &source, &[program.standard]);
        assert_eq!(library().run(&built), program.prints, "{}", program.name);
    }
}
