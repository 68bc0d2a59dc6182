//! No file imports from one that imports from it, over however many others.

use std::collections::{BTreeMap, BTreeSet};

use super::layering::product;

/// A file's module, as in `["segment", "row"]`.
type Module = Vec<String>;

/// Handles for users, which give each other out. (`Redelivery` keeps a `Queue`.)
const MAY: [&str; 3] = ["consumer", "queue", "redelivery"];

fn module_of(inside: &str) -> Module {
    let path = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

/// Each path that `use crate::...;` and `use super::...;` name, from the crate's root on, and
/// whether it is exported again.
fn imports(module: &Module, source: &str) -> Vec<(Module, bool)> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("use ") {
        let begin = source[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = source[begin..at].trim();
        let text = source[at + 4..].split(';').next().unwrap_or_default();
        if !before.is_empty() && !before.starts_with("pub") {
            continue;
        }
        for path in expand(text) {
            let up = path.iter().take_while(|word| *word == "super").count();
            let rest = || path.iter().skip(up.max(1)).cloned();
            let path: Module = match path[0].as_str() {
                "crate" => rest().collect(),
                "self" => module.iter().cloned().chain(rest()).collect(),
                "super" => module[..module.len() - up].iter().cloned().chain(rest()).collect(),
                _ => module.iter().chain(&path).cloned().collect(),
            };
            found.push((path, before.starts_with("pub")));
        }
    }
    found
}

/// `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(text: &str) -> Vec<Module> {
    let (head, tail) = text.split_once('{').unwrap_or((text, ""));
    let mut words: Module = head.split("::").map(|word| word.trim().to_owned()).collect();
    if tail.is_empty() {
        if let Some(last) = words.last_mut() {
            *last = last.split(" as ").last().unwrap_or_default().to_owned();
        }
        return vec![words];
    }
    words.retain(|word| !word.is_empty());
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in tail[..tail.rfind('}').unwrap_or(tail.len())].chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match items.last_mut() {
            Some(_) if c == ',' && depth == 0 => items.push(String::new()),
            Some(item) => item.push(c),
            None => {}
        }
    }
    let items = items.iter().filter(|item| !item.trim().is_empty());
    items.flat_map(|item| expand(item)).map(|item| [&words[..], &item[..]].concat()).collect()
}

#[test]
fn no_files_import_from_each_other() {
    let files: BTreeMap<Module, Vec<(Module, bool)>> = product()
        .into_iter()
        .map(|(_, path, source)| {
            let path = path.to_str().unwrap().to_owned();
            let module = module_of(path.split_once("/src/").unwrap().1);
            let imports = imports(&module, &source);
            (module, imports)
        })
        .collect();
    let exported: BTreeMap<Module, Module> = files
        .iter()
        .flat_map(|(module, imports)| imports.iter().map(move |import| (module, import)))
        .filter(|(_, (_, is_exported))| *is_exported)
        .filter_map(|(module, (path, _))| {
            let name = [&module[..], &path[path.len() - 1..]].concat();
            (name != *path).then(|| (name, path.clone()))
        })
        .collect();
    // The file that a path leads into.
    let home = |path: &Module| {
        let path = exported.get(path).unwrap_or(path);
        (1..=path.len()).rev().map(|len| path[..len].to_vec()).find(|at| files.contains_key(at))
    };
    let mut left: BTreeMap<&Module, BTreeSet<Module>> = files
        .iter()
        .map(|(module, imports)| {
            let used = imports.iter().filter(|(_, is_exported)| !is_exported);
            let homes = used.filter_map(|(path, _)| home(path)).filter(|other| other != module);
            (module, homes.collect())
        })
        .collect();
    assert!(left.values().map(BTreeSet::len).sum::<usize>() > 900, "imports are not seen");
    loop {
        let done: Vec<Module> = left
            .iter()
            .filter(|(_, imports)| imports.iter().all(|other| !left.contains_key(other)))
            .map(|(module, _)| (*module).clone())
            .collect();
        if done.is_empty() {
            break;
        }
        done.iter().for_each(|module| drop(left.remove(module)));
    }
    // What imports from a circle is left, too: only files that lead back to themselves are in one.
    let reaches = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(at) = next.pop() {
            for other in left.get(&at).into_iter().flatten() {
                if left.contains_key(other) && seen.insert(other.clone()) {
                    next.push(other.clone());
                }
            }
        }
        seen
    };
    let is_in_one = |module: &&&Module| reaches(module).contains(**module);
    let circles: Vec<String> = left.keys().filter(is_in_one).map(|at| at.join("/")).collect();
    let others: Vec<_> = circles
        .iter()
        .filter(|file| !MAY.contains(&file.split('/').next().unwrap_or_default()))
        .collect();
    assert!(others.is_empty(), "these import from each other: {others:#?}");
}

/// Whoever reads a name of a file knows which file it is.
#[test]
fn no_two_files_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (folder, path, _) in product() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name != "mod.rs" {
            places.entry(name.to_owned()).or_default().push(folder);
        }
    }
    places.retain(|_, folders| folders.len() > 1);
    assert!(places.is_empty(), "files of the same name: {places:?}");
}
