//! The programs under valgrind and the sanitizers.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::library::{exists, library, root, run, scratch};
use crate::misuse::table;

const VALGRIND: [&str; 5] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
];

/// Runs those programs under valgrind; nothing where it is not installed.
#[track_caller]
fn under_valgrind(sources: &[PathBuf]) {
    if !exists("valgrind") {
        crate::support::skip("valgrind is not installed");
        return;
    }
    for source in sources {
        let (compiler, standard) = language(source);
        let program = library().compile(compiler, source, &[standard]);
        let (mut command, _dir) = library().command(&VALGRIND, &program);
        run(&mut command);
    }
}

fn sources(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| root().join("tests/c").join(name)).collect()
}

/// The compiler for a program, and the standard it is held to.
fn language(source: &Path) -> (&'static str, &'static str) {
    if source.extension().is_some_and(|extension| extension == "cpp") {
        ("c++", "-std=c++17")
    } else {
        ("cc", "-std=c11")
    }
}

// Forks and seccomp are not valgrind's business: `statuses.c` is for the sanitizers.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn valgrind_finds_nothing() {
    under_valgrind(&sources(&["header_example.c", "lifetime.c", "deliveries.c", "wrapper.cpp"]));
}

#[ignore = "takes minutes"]
#[test]
fn valgrind_finds_nothing_in_the_other_programs() {
    let mut sources = sources(&[
        "misuse.c",
        "redelivery.c",
        "lanes.c",
        "lanes_refused.c",
        "ahead.c",
        "redelivery.cpp",
        "lanes.cpp",
        "sharing.cpp",
        "round_trip.c",
        "threads.c",
    ]);
    sources.push(table());
    under_valgrind(&sources);
}

/// A static library whose Rust code is watched by that sanitizer, and the flags to link it.
fn sanitized(sanitizer: &str, more: &[&str]) -> Option<PathBuf> {
    let nightly = Command::new("cargo").args(["+nightly", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        crate::support::skip("no nightly compiler");
        return None;
    }
    let target = scratch(sanitizer);
    let host = run(Command::new("rustc").arg("-vV"));
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("rustc says its host")
        .to_owned();
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root()).arg("+nightly").args([
        "rustc",
        "--lib",
        "--features",
        "capi",
        "--crate-type",
        "staticlib",
    ]);
    cargo.args(["--target", &host]).args(more).arg("--target-dir").arg(&target);
    cargo
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    run(&mut cargo);
    Some(target.join(host).join("debug"))
}

/// The programs that the sanitizers watch.
fn watched() -> Vec<PathBuf> {
    let mut sources = sources(&[
        "round_trip.c",
        "statuses.c",
        "lifetime.c",
        "threads.c",
        "misuse.c",
        "deliveries.c",
        "redelivery.c",
        "lanes.c",
        "lanes_refused.c",
        "ahead.c",
        "inspect.c",
        "sharing.c",
        "header_example.c",
        "wrapper.cpp",
        "redelivery.cpp",
        "lanes.cpp",
        "sharing.cpp",
    ]);
    sources.push(table());
    sources
}

#[ignore = "builds the library anew with a nightly compiler"]
#[test]
fn address_and_undefined_behaviour_sanitizers_find_nothing() {
    let Some(dir) = sanitized("address", &[]) else { return };
    for source in watched() {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let program = dir.join(format!("{name}-address"));
        let (compiler, standard) = language(&source);
        let mut compile = Command::new(compiler);
        compile.args([
            standard,
            "-g",
            "-pthread",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-I",
        ]);
        compile.arg(root().join("include")).arg(&source).arg(dir.join("libmmq.a"));
        run(compile.args(["-lm", "-ldl", "-o"]).arg(&program));
        let work = crate::support::tempdir().unwrap();
        run(Command::new(&program).arg(work.path()).current_dir(work.path()));
        println!("{name}: nothing found");
    }
}

#[ignore = "builds the library and the standard library anew with a nightly compiler"]
#[test]
fn the_thread_sanitizer_finds_nothing() {
    let Some(dir) = sanitized("thread", &["-Zbuild-std"]) else { return };
    let sysroot = run(Command::new("rustc")
        .args(["+nightly", "--print", "sysroot"])
        .env_remove("RUSTUP_TOOLCHAIN"));
    let Some(runtime) = find(Path::new(sysroot.trim()), "librustc-nightly_rt.tsan.a") else {
        crate::support::skip("the nightly compiler has no thread sanitizer");
        return;
    };
    if !exists("clang") {
        crate::support::skip("clang is not installed");
        return;
    }
    // It knows nothing of forks and seccomp: without `statuses.c`.
    for source in watched().into_iter().filter(|source| !source.ends_with("statuses.c")) {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let object = dir.join(format!("{name}.o"));
        let (compiler, standard) = language(&source);
        let compiler = if compiler == "c++" { "clang++" } else { "clang" };
        let mut compile = Command::new(compiler);
        compile.args([standard, "-g", "-fsanitize=thread", "-c", "-I"]).arg(root().join("include"));
        run(compile.arg(&source).arg("-o").arg(&object));
        let program = dir.join(format!("{name}-thread"));
        let mut link = Command::new(compiler);
        link.arg(&object).arg(dir.join("libmmq.a")).arg("-Wl,--whole-archive").arg(&runtime);
        link.args([
            "-Wl,--no-whole-archive",
            "-rdynamic",
            "-pthread",
            "-lm",
            "-ldl",
            "-lrt",
            "-lstdc++",
            "-lgcc_s",
            "-o",
        ]);
        run(link.arg(&program));
        let work = crate::support::tempdir().unwrap();
        run(Command::new(&program)
            .arg(work.path())
            .env("TSAN_OPTIONS", "halt_on_error=1 exitcode=66"));
        println!("{name}: nothing found");
    }
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(dir).ok()?.flatten().find_map(|file| {
        let path = file.path();
        if path.is_dir() && !path.is_symlink() {
            find(&path, name)
        } else {
            (file.file_name() == name).then_some(path)
        }
    })
}
