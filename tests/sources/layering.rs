//! A folder imports only from folders that stand lower, and puts no methods on their types.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rows from the bottom up. Folders in one row do not import from each other, except in the
/// row of `queue`, which users see. The programs in `bin` see the library as its users do.
const ROWS: &[&[&str]] = &[
    &["error", "holds"],
    &["memory"],
    &["threads"],
    &["events", "message_batch", "stats"],
    &["format", "options"],
    &["message", "storage"],
    &["index"],
    &["segment"],
    &["state"],
    &["write"],
    &["commit"],
    &["read", "recovery"],
    &["consume", "inspect"],
    &["engine"],
    &[
        "queue",
        "consumer",
        "delivery",
        "forward",
        "iter",
        "futures",
        "inspector",
        "lanes",
        "redelivery",
        "salvage",
        "share",
    ],
    &["ffi"],
    &["bin"],
];
/// The files of `ffi`, from the bottom up. None imports from its own row.
const FFI_ROWS: &[&[&str]] = &[
    &["mmq_status"],
    &["guard"],
    &["c_handle", "pointers"],
    &[
        "errors",
        "mmq_forward_options",
        "mmq_gap",
        "inspect",
        "mmq_message",
        "mmq_options",
        "slices",
    ],
    &["mmq_delivery", "mmq_iter"],
    &["reads"],
    &["queue"],
    &["mmq_consumer"],
    &[
        "mmq_lanes",
        "mmq_origin",
        "receive",
        "batches",
        "mmq_redelivery",
        "mmq_stats",
        "mmq_forwarder",
    ],
    &["mmq_client", "forward_door"],
    &["mmq_client_consumer"],
];
const SEEN_BY_USERS: &str = "queue";

fn row(folder: &str) -> usize {
    let found = ROWS.iter().position(|row| row.contains(&folder));
    found.unwrap_or_else(|| {
        panic!("`{folder}` stands in no row: add it to tests/sources/layering.rs")
    })
}

/// Every product file under `src`, with the folder (or the file beside lib.rs) that it belongs to
/// and the text without its tests and comments.
pub(crate) fn product() -> Vec<(String, PathBuf, String)> {
    let found = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(found.len() > 50, "only {} files were found", found.len());
    found
}

/// The same of the packages in `crates`.
pub(crate) fn crates() -> Vec<(String, PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let listed = fs::read_dir(crates).unwrap();
    listed.flat_map(|listed| sources(listed.unwrap().path().join("src"))).collect()
}

fn sources(src: PathBuf) -> Vec<(String, PathBuf, String)> {
    let mut folders = vec![src.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for listed in fs::read_dir(&folder).unwrap() {
            let path = listed.unwrap().path();
            let inside = path.strip_prefix(&src).unwrap().to_owned();
            let first =
                inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if ["lib", "holds", "planted", "tests"].contains(&first.as_str()) || name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = source
                .lines()
                .map(|line| if line.trim_start().starts_with("//") { "" } else { line });
            found.push((first, path, lines.collect::<Vec<_>>().join("\n")));
        }
    }
    found
}

#[test]
fn within_the_c_door_there_is_no_circle() {
    let row = |file: &str| FFI_ROWS.iter().position(|row| row.contains(&file));
    for (folder, path, source) in product() {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if folder != "ffi" || file == "mod" {
            continue;
        }
        let from = row(&file).unwrap_or_else(|| {
            panic!("`{file}` stands in no row: add it to tests/sources/layering.rs")
        });
        for (at, _) in source.match_indices("super::") {
            let imported = word(&source[at + "super::".len()..]);
            let lower = row(imported).is_some_and(|to| to < from);
            assert!(
                lower,
                "{}: imports from `{imported}`, which does not stand lower",
                path.display()
            );
        }
    }
}

/// The test below reads a path from its beginning. So each path into another folder begins with
/// `crate::FOLDER::`: in no group, not by way of `super`, and not by a name that lib.rs exports.
#[test]
fn every_import_names_its_folder() {
    for (folder, path, source) in product() {
        let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
        let is_folder = path.file_stem().is_some_and(|name| name == "mod");
        let depth = inside.components().count() - if is_folder { 2 } else { 1 };
        let out = "super::".repeat(depth + 1);
        for (number, line) in source.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(!line.contains(&out), "{place}: `super` leads out of the folder");
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                assert!(!rest.starts_with(['{', '*']), "{place}: a group, which hides its folders");
                let is_exported = rest.starts_with(char::is_uppercase);
                let is_user = row(&folder) >= row(SEEN_BY_USERS);
                assert!(!is_exported || is_user, "{place}: a name that lib.rs exports");
            }
        }
    }
}

/// A type's name says one thing: no two folders have types of the same name.
#[test]
fn each_name_of_a_type_stands_in_one_folder() {
    let files = product();
    let mut twice = homes(&files);
    twice.retain(|_, folders| folders.iter().any(|folder| *folder != folders[0]));
    assert!(twice.is_empty(), "types of the same name: {twice:?}");
}

/// Two cases are two names of an enum, except in [`mmq::Options`].
#[test]
fn no_function_takes_a_bare_bool() {
    let (mut seen, mut bare) = (0, Vec::new());
    for (folder, path, source) in product().into_iter().chain(crates()) {
        for (at, _) in source.match_indices("fn ") {
            let head = &source[at..];
            let Some(open) = head.find('(').filter(|open| *open > "fn ".len()) else {
                continue;
            };
            let mut depth = 0;
            let close = head[open..].find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            let parameters = &head[open..open + close.expect("the parameters end")];
            seen += 1;
            let takes = parameters.contains(": bool");
            let name = word(&head["fn ".len()..]);
            let setters = ["mmq_options_set_create", "mmq_options_set_shared"];
            let may = folder == "options" || setters.contains(&name);
            if takes && !may {
                bare.push(format!("{}: `{name}`", path.display()));
            }
        }
    }
    assert!(bare.is_empty(), "these take a bare bool: {bare:#?}");
    assert!(seen > 500, "only {seen} functions were found");
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[test]
fn a_folder_imports_only_from_what_stands_lower() {
    let mut seen = 0;
    // A program is a crate of its own, and the compiler lets it see what users see.
    for (folder, path, source) in product().into_iter().filter(|(folder, ..)| folder != "bin") {
        for (number, line) in source.lines().enumerate() {
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                let imported = word(rest);
                let is_module = rest[imported.len()..].starts_with("::")
                    && imported.starts_with(char::is_lowercase);
                if !is_module || imported == folder || imported == "tests" {
                    continue;
                }
                seen += 1;
                let (from, to) = (row(&folder), row(imported));
                let beside = from == to && from == row(SEEN_BY_USERS);
                let place = format!("{}:{}", path.display(), number + 1);
                assert!(
                    to < from || beside,
                    "{place}: `{folder}` imports from `{imported}`, which does not stand lower"
                );
            }
        }
    }
    assert!(seen > 200, "only {seen} imports were found");
}

/// Tests schedule what the product takes from `crate::threads`, and see nothing of what it does
/// with other locks, atomics, threads and clocks.
#[test]
fn locks_atomics_threads_and_clocks_come_from_threads() {
    const NAMES: &[&str] = &["Atomic", "Barrier", "Condvar", "Lock", "Mutex", "OnceLock<"];
    const CALLS: &[&str] = &[
        "parking_lot::",
        "Instant::now(",
        "thread::current(",
        "thread::park",
        "thread::sleep(",
        "thread::spawn(",
        "thread::yield_now(",
        "thread::Builder",
    ];
    // Where threads of one open queue do not meet by them: the programs, the C door's handles,
    // words in mapped memory (each access is a step there), the real storage (the worlds have
    // another one), and a list of this process.
    const APART: &[&str] =
        &["bin/", "ffi/", "memory/", "storage/directory.rs", "storage/file.rs", "engine/held.rs"];
    let (src, mut seen) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), 0);
    for (_, path, source) in product() {
        let inside = path.strip_prefix(&src).unwrap().to_str().unwrap();
        if inside == "threads/real.rs" || APART.iter().any(|apart| inside.starts_with(apart)) {
            continue;
        }
        seen += 1;
        let imports = source.split(';').filter_map(|text| text.split_once("use std::"));
        for (_, import) in imports {
            let name = NAMES.iter().find(|name| import.contains(**name));
            assert!(name.is_none(), "{inside}: `use std::{import}` is no step of a schedule");
        }
        let call = CALLS.iter().find(|call| source.contains(**call));
        assert!(call.is_none(), "{inside}: {call:?} is no step of a schedule");
    }
    assert!(seen > 80, "only {seen} files were looked at");
}

/// One of the parent's threads may hold it at a fork; in the child nobody releases it.
#[test]
fn no_lock_for_the_whole_process_is_held_across_a_fork() {
    // What a forked child makes anew.
    const ANEW: &[&str] = &["PerProcess<", "RetiredShared<"];
    const LOCKS: &[&str] = &["Mutex<", "RwLock<", "OnceLock<", "LazyLock<"];
    // In `storage/linux.rs`, a value that was read before is stored by one move.
    const APART: &[&str] = &["bin/", "storage/linux.rs"];
    let (src, mut seen) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), 0);
    for (_, path, source) in product() {
        let inside = path.strip_prefix(&src).unwrap().to_str().unwrap();
        if APART.iter().any(|apart| inside.starts_with(apart)) {
            continue;
        }
        for line in source.lines().filter(|line| line.contains("static ") && line.contains(": ")) {
            let is_anew = ANEW.iter().any(|anew| line.contains(anew));
            seen += usize::from(is_anew);
            let lock = LOCKS.iter().find(|lock| line.contains(**lock));
            assert!(
                lock.is_none() || is_anew,
                "{inside}: {line}\nput it into a `memory::PerProcess`, which a child makes anew"
            );
        }
    }
    assert!(seen >= 7, "only {seen} values for the whole process were looked at");
}

/// Each name of a type, with the folders that have one.
fn homes(files: &[(String, PathBuf, String)]) -> BTreeMap<&str, Vec<&str>> {
    let mut home: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (folder, _, source) in files {
        // An indented `type` belongs to a trait or an `impl`.
        for line in source.lines().filter(|line| !line.starts_with("    type ")) {
            let line = line.trim_start();
            let line = line
                .strip_prefix("pub(crate) ")
                .or(line.strip_prefix("pub(super) "))
                .unwrap_or(line);
            let line = line.strip_prefix("pub ").unwrap_or(line);
            for kind in ["struct ", "enum ", "trait ", "type "] {
                if let Some(rest) = line.strip_prefix(kind) {
                    home.entry(word(rest)).or_default().push(folder);
                }
            }
        }
    }
    home
}

/// A method of a type stands in the type's own folder, or in a row that users see. So the imports
/// show every call upwards.
#[test]
fn methods_stand_where_their_type_does() {
    let files = product();
    let home = homes(&files);
    let mut seen = 0;
    for (folder, path, source) in &files {
        for line in source.lines().filter(|line| line.starts_with("impl")) {
            let mut head = line.trim_start_matches("impl");
            if let Some(generics) = head.strip_prefix('<') {
                // The end of `<S: Storage<File = F>>`.
                let mut open = 1;
                let end = generics.find(|c| {
                    open += i32::from(c == '<') - i32::from(c == '>');
                    open == 0
                });
                head = &generics[end.expect("generics end on their line") + 1..];
            }
            let head = head.trim_start().trim_start_matches('!');
            let (first, second) = head
                .split_once(" for ")
                .map_or((head, None), |(first, second)| (first, Some(second)));
            let last = |text: &str| {
                let path = text.split(['<', ' ', '{']).next().unwrap_or("");
                path.trim_start_matches('&').rsplit("::").next().unwrap_or("").to_owned()
            };
            let is_here = |text: &str| {
                let name = last(text);
                home.get(name.as_str()).is_none_or(|homes| {
                    homes.contains(&folder.as_str())
                        || row(folder) == row(SEEN_BY_USERS)
                            && homes
                                .iter()
                                .any(|home| row(home) < row(folder) && *home == "options")
                })
            };
            seen += 1;
            let fine = match second {
                None => is_here(first) && home.contains_key(last(first).as_str()),
                // A trait of another folder for a type of this one, or a trait of this one.
                Some(second) => {
                    is_here(second) || is_here(first) && home.contains_key(last(first).as_str())
                }
            };
            assert!(fine, "{}: `{line}` is an `impl` of another folder's type", path.display());
        }
    }
    assert!(seen > 100, "only {seen} were found");
}

#[test]
fn planted_bugs_take_one_line() {
    for (_, path, source) in product() {
        assert!(
            !source.contains("Mutant::"),
            "{}: a bug is planted with `planted!`",
            path.display()
        );
    }
}

#[test]
fn unsafe_code_stands_only_where_it_may() {
    let mut seen = 0;
    for (folder, path, source) in product() {
        if ["memory", "ffi"].contains(&folder.as_str()) {
            continue;
        }
        seen += 1;
        let none = !source.contains("unsafe {") && !source.contains("allow(unsafe_code");
        assert!(none, "unsafe code in {}", path.display());
    }
    assert!(seen > 30, "only {seen} files were looked at");
}
