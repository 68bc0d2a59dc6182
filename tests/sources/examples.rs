//! Whatever users see has an example: one of its own, or one beside it that uses it.

use std::fs;

use super::layering::{crates, product};

/// The name in a line that begins a public item. (The compiler warns of a `pub` that no user sees.)
fn name(line: &str) -> Option<&str> {
    let item = line.trim_start().strip_prefix("pub ")?.trim_start_matches("const ");
    let kinds = ["fn ", "struct ", "enum ", "trait ", "type "];
    let rest = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
    rest.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
}

#[test]
fn every_public_item_has_an_example() {
    // C functions, programs, and a library for one program.
    const APART: [&str; 4] = ["/src/ffi/", "/src/bin/", "/mmq-cli/", "/mmq-import/"];
    let (mut seen, mut bare) = (0, Vec::new());
    for (_, path, _) in product().into_iter().chain(crates()) {
        let shown = path.display().to_string();
        if APART.iter().any(|apart| shown.contains(apart)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let docs = |line: &&str| line.trim_start().starts_with("///");
        let examples: String = text.lines().filter(docs).collect();
        let mut has_own = false;
        for line in text.lines() {
            match name(line) {
                Some(name) => {
                    let called =
                        [".", "::"].iter().any(|by| examples.contains(&format!("{by}{name}(")));
                    if !has_own && !called {
                        bare.push(format!("{shown}: {name}"));
                    }
                    (seen, has_own) = (seen + 1, false);
                }
                // A blank line ends what stands above an item.
                None => has_own = !line.is_empty() && (has_own || line.contains("/// ```")),
            }
        }
    }
    assert!(bare.is_empty(), "these have no example: {bare:#?}");
    assert!(seen > 190, "only {seen} items were found");
}
