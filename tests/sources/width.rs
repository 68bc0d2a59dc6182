//! A line of code or comment has at most 100 columns, except a line with a text in quotes and a row
//! of a table. (`rustfmt` does not wrap comments.)

use std::fs;
use std::path::{Path, PathBuf};

const WIDEST: usize = 100;

fn is_too_wide(line: &str) -> bool {
    let is_row = ["//! |", "/// |"].iter().any(|row| line.trim_start().starts_with(row));
    line.chars().count() > WIDEST && !is_row && !line.contains('"')
}

fn sources(folder: PathBuf, found: &mut Vec<PathBuf>) {
    for listed in fs::read_dir(folder).unwrap() {
        let path = listed.unwrap().path();
        if path.is_dir() {
            sources(path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_line_is_wider_than_100_columns() {
    let mut found = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz/fuzz_targets"] {
        sources(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert!(found.len() > 150, "only {} files were found", found.len());
    let mut wide: Vec<(usize, PathBuf)> = Vec::new();
    for path in found {
        let source = fs::read_to_string(&path).unwrap();
        let lines = source.lines().filter(|line| is_too_wide(line)).count();
        if lines > 0 {
            wide.push((lines, path));
        }
    }
    wide.sort();
    let all: usize = wide.iter().map(|(lines, _)| lines).sum();
    for (lines, path) in &wide {
        println!("{lines:5} {}", path.display());
    }
    assert!(wide.is_empty(), "{all} lines of {} files are wider", wide.len());
}
