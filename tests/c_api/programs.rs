//! The programs in C and C++ of the README and the guide, as they stand there.

use std::path::PathBuf;

use crate::library::{library, root};

/// A block of a document that is a whole program.
#[derive(Debug)]
pub(crate) struct Program {
    /// A file's name without its ending: the document, and which block of it this is.
    pub(crate) name: String,
    extension: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) standard: &'static str,
    source: String,
    /// The block of text behind "It prints:". The programs without one print "hello", those in C++
    /// with its number.
    pub(crate) prints: String,
}

impl Program {
    /// Puts it into a file of that name, for the compiler.
    pub(crate) fn write(&self, name: &str) -> PathBuf {
        let path = library().dir.join(format!("{name}.{}", self.extension));
        std::fs::write(&path, &self.source).unwrap();
        path
    }
}

/// The blocks of a document in this language, each with the text behind it up to the next block,
/// and that block.
fn blocks(document: &str, language: &str) -> Vec<(String, String)> {
    let (opening, text) = (format!("```{language}\n"), document);
    text.split(&opening)
        .skip(1)
        .map(|rest| {
            let (source, behind) = rest.split_once("```").expect("the end of a block");
            let said = behind.trim_start().strip_prefix("It prints:\n\n```text\n");
            let prints = said.map_or("", |said| said.split("```").next().unwrap_or_default());
            (source.to_owned(), prints.to_owned())
        })
        .collect()
}

/// All of them; at least one of each language in each document.
pub(crate) fn all() -> Vec<Program> {
    let mut found = Vec::new();
    for document in ["README.md", "docs/guide.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        let stem = document.trim_end_matches(".md").replace('/', "_").to_lowercase();
        for (extension, compiler, standard, says) in
            [("c", "cc", "-std=c99", "hello\n"), ("cpp", "c++", "-std=c++17", "0: hello\n")]
        {
            let before = found.len();
            for (number, (source, prints)) in blocks(&text, extension).into_iter().enumerate() {
                let prints = if prints.is_empty() { says.to_owned() } else { prints };
                let name = format!("{stem}_{number}");
                found.push(Program { name, extension, compiler, standard, source, prints });
            }
            assert!(found.len() > before, "{document} has no program in {extension}");
        }
    }
    found
}
