//! The table in `src/threads/mod.rs` has a row for every atomic, and none for one that is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TYPES: [&str; 5] = ["AtomicBool", "AtomicU32", "AtomicU64", "AtomicUsize", "AtomicPtr"];

/// The name that a line declares an atomic under: a field, a static, a function that returns one,
/// or a type around one.
fn declared(line: &str) -> Option<String> {
    let code = line.trim().split("//").next()?;
    let at = TYPES.iter().filter_map(|kind| code.find(kind)).min()?;
    let (before, rest) = code.split_at(at);
    let is_call = rest.trim_start_matches(char::is_alphanumeric).starts_with("::");
    if is_call || ["use ", "= ", "{", "."].iter().any(|it| before.contains(it)) {
        return None;
    }
    if let Some((_, name)) = before.split_once("struct ") {
        return name.split('(').next().map(str::to_owned);
    }
    let before = match before.split_once("fn ") {
        // Not what is passed to it.
        Some((_, name)) if name.contains("->") => name.split(['(', '<']).next()?,
        Some(_) => return None,
        None => before.split_once(':')?.0,
    };
    let mut name = before.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let name = name.rfind(|word| !word.is_empty() && !word.starts_with("'"))?;
    Some(name.to_owned())
}

fn files(folder: &Path, inside: &str, found: &mut BTreeSet<(String, String)>) {
    for listed in fs::read_dir(folder).unwrap() {
        let path = listed.unwrap().path();
        let name = format!("{inside}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() && !name.ends_with("tests") {
            files(&path, &format!("{name}/"), found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let names = product.lines().filter_map(declared);
            found.extend(names.map(|atomic| (name.clone(), atomic)));
        }
    }
}

#[test]
fn the_table_of_orderings_has_every_atomic() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    files(&sources, "", &mut found);
    assert!(found.len() > 50, "only {} atomics were found", found.len());
    let table = fs::read_to_string(sources.join("threads/mod.rs")).unwrap();
    let mut rows = BTreeSet::new();
    for line in table.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let cells: Vec<_> = line.split(" | ").collect();
        let [files, atomics, _, _, _] = cells[..] else { continue };
        for file in files.split(", ").filter(|file| file.ends_with(".rs")) {
            rows.extend(
                atomics.split(", ").map(|it| (file.to_owned(), it.trim_matches('`').to_owned())),
            );
        }
    }
    let missing: Vec<_> = found.difference(&rows).collect();
    assert!(missing.is_empty(), "src/threads/mod.rs says no ordering of {missing:?}");
    let gone: Vec<_> = rows.difference(&found).collect();
    assert!(gone.is_empty(), "src/threads/mod.rs has rows of {gone:?}, which are not there");
}
