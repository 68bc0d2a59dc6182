//! The price of the C boundary: the calls in `calls.c` (compiled as C++ too, with `mmq.hpp`) beside
//! the same calls in Rust, in turns within one run. Each figure is the least of its rounds, in
//! processor time of the calling thread. `cargo bench --features capi --bench c`
//!
//! The C programs use the shared library, as installed programs do. The Rust calls are compiled
//! into this program.

#[path = "../support/fingerprint.rs"]
mod fingerprint;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::time::{ClockId, clock_gettime};

const CALLS: usize = 100_000;
const ROUNDS: usize = 40;

type Figures = BTreeMap<String, f64>;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds the shared library, optimised as the installed one, and the C and C++ programs.
fn build(scratch: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args([
        "rustc",
        "--profile",
        "capi",
        "--lib",
        "--features",
        "capi",
        "--crate-type",
        "cdylib",
    ]);
    run(cargo.arg("--target-dir").arg(scratch));
    let lib = scratch.join("capi");
    let compile = |compiler: &str, language: &str, standard: &str| {
        let program = scratch.join(format!("calls-{language}"));
        let mut command = Command::new(compiler);
        command
            .args(["-O2", standard, "-x", language])
            .arg(root.join("benches/c/calls.c"))
            .args(["-x", "none", "-I"]);
        run(command
            .arg(root.join("include"))
            .arg("-L")
            .arg(&lib)
            .arg("-lmmq")
            .arg("-o")
            .arg(&program));
        program
    };
    let (c, cpp) = (compile("cc", "c", "-std=c11"), compile("c++", "c++", "-std=c++17"));
    (lib, c, cpp)
}

/// The processor time of this thread, in nanoseconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn rust(dir: &Path) -> Figures {
    let queue = mmq::Queue::open(dir).unwrap();
    // The compiler must not know the length, as it does not in C.
    let message = vec![7u8; std::hint::black_box(128)];
    let mut buffer = Vec::with_capacity(128);
    let mut figures = Figures::new();
    fn timed(figures: &mut Figures, name: &str, mut call: impl FnMut()) {
        let begin = now();
        for _ in 0..CALLS {
            call();
        }
        figures.insert(name.to_owned(), (now() - begin) / CALLS as f64);
    }
    let enqueue = || {
        queue.enqueue(std::hint::black_box(&message)).unwrap();
    };
    let mut dequeue_into = || {
        assert!(queue.dequeue_into(&mut buffer).unwrap().is_some() && buffer.len() == 128);
    };
    for _ in 0..CALLS {
        enqueue();
    }
    for _ in 0..CALLS {
        dequeue_into();
    }
    timed(&mut figures, "enqueue", enqueue);
    timed(&mut figures, "peek", || assert_eq!(queue.peek().unwrap().unwrap()[0], 7));
    let mut copy = Vec::with_capacity(128);
    timed(&mut figures, "peek_into", || {
        assert!(queue.peek_into(&mut copy).unwrap().is_some() && copy.len() == 128)
    });
    timed(&mut figures, "dequeue_into", &mut dequeue_into);
    for _ in 0..CALLS {
        enqueue();
    }
    timed(&mut figures, "dequeue", || assert_eq!(queue.dequeue().unwrap().unwrap()[0], 7));
    timed(&mut figures, "pair", || {
        enqueue();
        dequeue_into();
    });
    queue.close().unwrap();
    figures
}

fn program(lib: &Path, program: &Path, dir: &Path) -> Figures {
    let said =
        run(Command::new(program).arg(dir).arg(CALLS.to_string()).env("LD_LIBRARY_PATH", lib));
    let figure = |line: &str| {
        line.split_once(' ').and_then(|(name, ns)| Some((name.to_owned(), ns.parse().ok()?)))
    };
    said.lines().filter_map(figure).collect()
}

/// The least value: the time of a call that nothing disturbed.
fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn main() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-bench");
    std::fs::create_dir_all(&scratch).unwrap();
    let (lib, c, cpp) = build(&scratch);
    println!("{}\n", fingerprint::fingerprint(&scratch));
    let mut rounds: Vec<[Figures; 3]> = Vec::new();
    for _ in 0..ROUNDS {
        let dir = || tempfile::tempdir_in(&scratch).unwrap();
        rounds.push([
            rust(dir().path()),
            program(&lib, &c, dir().path()),
            program(&lib, &cpp, dir().path()),
        ]);
    }
    println!(
        "{:14}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "ns per call", "Rust", "C", "C++", "C/Rust", "C++/C"
    );
    for name in ["enqueue", "peek", "peek_into", "dequeue_into", "dequeue", "pair"] {
        let of = |which: usize| least(rounds.iter().map(|round| round[which][name]));
        let (rust, c, cpp) = (of(0), of(1), of(2));
        println!("{name:14}{rust:>10.1}{c:>10.1}{cpp:>10.1}{:>10.2}{:>10.2}", c / rust, cpp / c);
    }
}
