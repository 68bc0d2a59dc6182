//! A module imports only from modules that stand lower.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// From the bottom up. Modules on one line import from each other.
const LAYERS: &[&[&str]] = &[
    &["error"],
    &["events"],
    &["poison"],
    &["checksum"],
    &["layout"],
    &["given_up"],
    &["run"],
    &["options"],
    &["arena"],
    &["storage"],
    &["sheet"],
    &["image"],
    &["index"],
    &["foreign"],
    &["scan"],
    &["pool"],
    &["segment"],
    &["ready"],
    &["waiting", "bell"],
    // The state of a queue and the way into it: the producers' lock holds the writer, and the writer publishes the tail.
    &["shared", "writer"],
    &["flush"],
    &["reader"],
    &["recovery"],
    &["ledger"],
    &["place", "deliveries"],
    &["keeper"],
    &["engine"],
    &["message", "stats"],
    &["snapshot"],
    &["delivery"],
    &["reading"],
    &["recv"],
    &["consumer"],
    &["queue"],
    &["ffi"],
];

fn layer(module: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&module));
    found.unwrap_or_else(|| panic!("`{module}` stands in no layer: add it to tests/layering.rs"))
}

/// Every `crate::module` in product code (the part before the tests), with where it stands.
fn imports(path: &Path) -> BTreeMap<String, usize> {
    let source = fs::read_to_string(path).unwrap();
    let mut found = BTreeMap::new();
    for (number, line) in source.lines().enumerate() {
        if line.starts_with("#[cfg(test)]")
            && source.lines().nth(number + 1).is_some_and(|next| next.starts_with("mod tests"))
        {
            break;
        }
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            let test_only = ["sim", "crash_tests"].contains(&name.as_str());
            if !name.is_empty() && !test_only && rest[name.len()..].starts_with("::") {
                found.entry(name).or_insert(number + 1);
            }
        }
    }
    found
}

fn check(module: &str, path: &Path) -> usize {
    let mut seen = 0;
    for (imported, line) in imports(path) {
        seen += 1;
        let fine = imported == module || layer(&imported) <= layer(module);
        assert!(fine, "{}:{line}: `{module}` imports from `{imported}`, which stands higher", path.display());
    }
    seen
}

#[test]
fn a_module_imports_only_from_what_stands_lower() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for listed in fs::read_dir(&src).unwrap() {
        let path = listed.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let test_only = module == "lib" || module == "sim" || module.ends_with("_tests");
        if path.is_dir() && !test_only {
            // A part of a module stands where the module does.
            for file in fs::read_dir(&path).unwrap() {
                seen += check(&module, &file.unwrap().path());
            }
            continue;
        }
        if path.extension().is_some_and(|extension| extension == "rs") && !test_only {
            seen += check(&module, &path);
        }
    }
    assert!(seen > 60, "only {seen} imports were found");
}

#[test]
fn unsafe_code_stands_only_where_it_may() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for listed in fs::read_dir(&folder).unwrap() {
            let path = listed.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if ["arena.rs", "arena", "checksum.rs", "ffi"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            seen += 1;
            let source = fs::read_to_string(&path).unwrap();
            assert!(!source.contains("unsafe {") && !source.contains("allow(unsafe_code"), "unsafe code in {name}");
        }
    }
    assert!(seen > 30, "only {seen} files were looked at");
}
