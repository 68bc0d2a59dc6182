//! The walks of `docs/forward.md`, line by line, on ports and in directories of their own.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::edge;

const MANUAL: &str = include_str!("../../../../docs/forward.md");
/// What the walks call, with a name of a feature in the middle.
const EDGE: [&str; 2] = ["cargo run --release -p mmq-cli --features ", " --example edge --"];
/// The words that the child of a walk gets, which is the example.
const WORDS: &str = "MMQ_EDGE_WORDS";

/// The first block of shell commands below that heading.
fn walk(heading: &str) -> &'static str {
    let below = MANUAL.split_once(&format!("\n## {heading}\n")).expect("the heading").1;
    let block = below.split_once("\n```sh\n").expect("a block").1;
    block.split_once("```\n").expect("its end").0
}

/// A place for a walk, with a free port and the example as a program.
struct Place {
    dir: tempfile::TempDir,
    port: u16,
}

impl Place {
    fn new() -> Place {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = crate::support::tempdir().unwrap();
        let this = std::env::current_exe().unwrap();
        let edge = format!(
            "#!/bin/sh\n{WORDS}=\"$*\" exec {this:?} --exact --ignored --nocapture \
             walks::the_edge_of_a_walk\n"
        );
        std::fs::write(dir.path().join("example"), edge).unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path().join("example"), all).unwrap();
        Place { dir, port }
    }

    /// Runs the walk with these replacements. Before its last line comes `look`, and whatever
    /// happens, `after`. Returns what it printed.
    fn go(&self, walk: &str, port: &str, feature: &str, look: &str, after: &str) -> String {
        let (edge, ours) = (EDGE.join(feature), self.port.to_string());
        assert!(walk.contains(&edge), "the walk calls the example");
        let walk = walk.replace(&edge, "./example").replace("/tmp", ".").replace(port, &ours);
        let (lines, last) = walk.trim_end().rsplit_once('\n').unwrap();
        let after = after.replace(port, &ours);
        let script = format!(
            "set -m\ntrap '{after}' EXIT\n{lines}\n{}\n{last}\n",
            look.replace(port, &ours)
        );
        let mut bash = crate::support::command("bash");
        bash.args(["-c", &script]).current_dir(self.dir.path()).stdin(Stdio::null());
        let output = bash.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{script}\n{printed}\n{said}");
        assert!(!said.contains("no such job"), "{said}");
        printed
    }
}

#[test]
#[ignore = "started by another test"]
fn the_edge_of_a_walk() {
    let words = std::env::var(WORDS).unwrap_or_default();
    let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
    edge::run(&words).unwrap();
}

/// The number behind that word, in the last line that has it.
fn number(printed: &str, word: &str) -> u64 {
    let line = printed.lines().rev().find(|line| line.contains(word));
    let line = line.unwrap_or_else(|| panic!("no {word} in: {printed}"));
    let behind = line.split_once(word).unwrap().1.replace(',', "");
    let digits = behind.trim_start().split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("no number: {line}"))
}

#[test]
fn the_walk_to_redis_ends_as_written() {
    let printed = Place::new().go(
        walk("A walk in ten lines, to Redis"),
        "7700",
        "redis",
        "echo \"in all $(redis-cli -p 7700 xlen edge)\"\n\
         echo \"rising $(redis-cli -p 7700 xrange edge - + | grep -cE '^[0-9]+-0$')\"\n\
         echo \"last $(redis-cli -p 7700 xrevrange edge + - count 1 | head -1)\"",
        "redis-cli -p 7700 shutdown nosave 2>/dev/null; kill $(jobs -p) 2>/dev/null",
    );
    assert!(printed.lines().any(|line| line == "100000"), "{printed}");
    // Ids rise within a stream: with as many entries as the last id says, each is there once.
    let count = number(&printed, "in all ");
    assert!((100_000..=200_000).contains(&count), "{count}");
    assert_eq!((number(&printed, "rising "), number(&printed, "last ")), (count, count));
}

/// That program, from the variable or the PATH.
#[cfg(feature = "nats")]
fn program(variable: &str, name: &str) -> Option<PathBuf> {
    let runs = |path: &Path| {
        let ran = Command::new(path).arg("--version").stdout(Stdio::null()).status();
        ran.is_ok_and(|ended| ended.success())
    };
    let path = std::env::var_os(variable).map_or_else(|| PathBuf::from(name), PathBuf::from);
    if runs(&path) {
        return Some(path);
    }
    crate::support::skip(format_args!("the walk to NATS: without {name} ({variable} names it)"));
    None
}

#[cfg(feature = "nats")]
#[test]
fn the_walk_to_nats_ends_as_written() {
    let Some(server) = program("MMQ_NATS_SERVER", "nats-server") else { return };
    let Some(client) = program("MMQ_NATS", "nats") else { return };
    let place = Place::new();
    for (name, path) in [("nats-server", server), ("nats", client)] {
        if path.components().count() > 1 {
            std::os::unix::fs::symlink(path, place.dir.path().join(name)).unwrap();
        }
    }
    // (The programs stand beside the example.)
    let walk = format!("PATH=$PWD:$PATH\n{}", walk("The same to NATS"));
    let look = "n stream info edge | grep Messages";
    let printed = place.go(&walk, "4300", "nats", look, "kill $(jobs -p) 2>/dev/null; wait");
    let count = number(&printed, "Messages: ");
    assert!((100_000..=200_000).contains(&count), "{count}");
    assert_eq!(number(&printed, "Mmq: ") + 1, count, "{printed}");
}
