//! Programs in C and C++ that forward to real servers:
//! `cargo test -p mmq-forward-c --test forward_c`. What is not installed is named and skipped.

#[allow(dead_code, reason = "the tests of mmq-nats use the rest")]
#[path = "../../../mmq-nats/tests/nats/server.rs"]
mod nats;
#[allow(dead_code, reason = "the tests of mmq-redis use the rest")]
#[path = "../../../mmq-redis/tests/redis/server.rs"]
mod redis;
#[path = "../../../../tests/support/mod.rs"]
mod support;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::json;

use crate::support::guard;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn root() -> &'static Path {
    here().ancestors().nth(2).unwrap()
}

#[track_caller]
fn output(command: &mut Command) -> Output {
    // Cargo's own, which names libraries of other builds, comes before a program's run path.
    command.env(guard::RUN, guard::root()).env_remove("LD_LIBRARY_PATH");
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = output(command);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{said}", output.status);
    printed
}

fn runs(program: &Path) -> bool {
    let mut command = Command::new(program);
    let ran = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ran.is_ok_and(|ended| ended.success())
}

/// The directory of the shared library, which cargo has built with these tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let built = std::env::current_exe().unwrap().with_file_name("libmmq_forward_c.so");
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forward-c");
        std::fs::create_dir_all(&dir).unwrap();
        // A program of another run that still uses it keeps the file it has.
        let fresh = dir.join(format!("libmmq.so.{}", std::process::id()));
        std::fs::copy(built, &fresh).unwrap();
        std::fs::rename(fresh, dir.join("libmmq.so")).unwrap();
        dir
    })
}

/// Compiles the program against it, and returns its path.
fn compiled(compiler: &str, flag: &str, source: &Path) -> PathBuf {
    let name = source.strip_prefix(root()).unwrap().to_string_lossy().replace('/', "-");
    let program = library().join(format!("{name}-{compiler}{flag}"));
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-pthread", flag]);
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("tests/c"));
    command.arg(source).arg("-o").arg(&program).arg("-L").arg(library()).arg("-lmmq");
    run(command.arg(format!("-Wl,-rpath,{}", library().display())));
    program
}

/// The programs, compiled once; that in C++ with and without exceptions.
fn programs() -> &'static [PathBuf; 3] {
    static PROGRAMS: OnceLock<[PathBuf; 3]> = OnceLock::new();
    let programs = [
        ("cc", "-std=c11", "tests/c/forward.c"),
        ("c++", "-std=c++17", "tests/c/forward.cpp"),
        ("c++", "-fno-exceptions", "tests/c/forward.cpp"),
    ];
    let compile = |(compiler, flag, source)| compiled(compiler, flag, &here().join(source));
    PROGRAMS.get_or_init(|| programs.map(compile))
}

/// Runs the program with a queue of its own.
fn forward(program: &Path, engine: &str, url: &str) {
    let dir = support::tempdir().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("timeout");
    command.args(["--signal=ABRT", "300"]).arg(program).arg(dir.path()).arg(engine).arg(url);
    let scheme = url.split_once("://").unwrap().0;
    print!("{}", run(command.arg(format!("{scheme}://127.0.0.1:{nobody}"))));
}

fn has_redis() -> bool {
    let has = runs(Path::new(&redis::program()));
    if !has {
        crate::support::skip("redis-server is not installed");
    }
    has
}

#[test]
fn a_thousand_messages_reach_redis_once() {
    if !has_redis() {
        return;
    }
    for program in programs() {
        let server = redis::Server::start(&[]);
        forward(program, "redis", &server.url());
        redis::check(&server.entries("mmq:test"), 1000);
    }
}

#[test]
fn a_thousand_messages_reach_nats_once() {
    if !runs(&nats::program()) {
        crate::support::skip("nats-server is not installed (MMQ_NATS_SERVER names it)");
        return;
    }
    for program in programs() {
        let server = nats::Server::start("");
        let config = json!({ "name": "EVENTS", "subjects": ["mmq.test"], "allow_atomic": true });
        server.make_stream(config);
        forward(program, "nats", &server.url());
        let entries = server.entries("EVENTS", "mmq.test");
        let numbers: Vec<_> = entries.iter().map(nats::Entry::seq).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        for entry in entries {
            assert_eq!(entry.data, format!("message {}", entry.seq()).into_bytes());
            assert_eq!(entry.text("Mmq-Missing"), "");
        }
    }
}

#[test]
fn the_example_forwards_what_it_puts_in() {
    if !has_redis() {
        return;
    }
    let program = compiled("cc", "-std=c11", &root().join("examples/forward/forward.c"));
    let server = redis::Server::start(&["--requirepass", "secret"]);
    let dir = support::tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg(dir.path().join("queue")).args([&*server.url(), "edge", "1000"]);
    let refused = output(command.env("PASSWORD", "wrong"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("WRONGPASS") && !said.contains("wrong"), "{said}");
    let said = run(command.env("PASSWORD", "secret"));
    assert!(said.ends_with(" 0 to go. \n"), "{said}");
}

/// The names of the functions in that header.
fn declared(header: &str) -> Vec<String> {
    let header = std::fs::read_to_string(root().join("include").join(header)).unwrap();
    let is_declaration =
        |line: &&str| !line.starts_with([' ', '#', '/', '}']) && line.contains('(');
    let name = |line: &str| {
        let before = line.split('(').next().unwrap_or_default();
        before.rsplit([' ', '*']).next().unwrap_or_default().to_owned()
    };
    header.lines().filter(is_declaration).map(name).collect()
}

#[test]
fn the_library_exports_the_functions_of_both_headers_and_no_others() {
    let mut nm = Command::new("nm");
    let symbols = run(nm.args(["-D", "--defined-only"]).arg(library().join("libmmq.so")));
    let mut exported: Vec<_> =
        symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    exported.sort_unstable();
    let mut named = [declared("mmq.h"), declared("mmq_forward.h")].concat();
    named.sort();
    assert_eq!(exported, named);
    let dynamic = run(Command::new("readelf").args(["-d", "-W"]).arg(library().join("libmmq.so")));
    // Its threads may outlive the call that unloads it.
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    let of_forwarding = ["new", "run", "stop", "wait", "read_progress", "free"];
    for name in of_forwarding.map(|name| format!("mmq_forwarder_{name}")) {
        assert!(named.contains(&name), "{name}");
    }
}
