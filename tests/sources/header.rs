//! `include/mmq.h` is made from `src/ffi/` and checked in. This test makes it anew and compares;
//! `MMQ_BLESS=1 cargo test --test sources header` writes the new one.

use std::path::Path;

/// In the order of the header.
const SOURCES: [&str; 17] = [
    "mmq_status",
    "errors",
    "mmq_options",
    "slices",
    "queue",
    "mmq_message",
    "mmq_gap",
    "mmq_consumer",
    "receive",
    "batches",
    "mmq_iter",
    "mmq_delivery",
    "mmq_redelivery",
    "mmq_lanes",
    "mmq_origin",
    "mmq_stats",
    "inspect",
];

/// The file whose program stands in the header.
const EXAMPLE: &str = "tests/c/header_example.c";

fn version_macros() -> String {
    let macros = [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    let mut text = String::from(
        "/** The version this header belongs to. mmq_version tells the running library's. */\n",
    );
    for (name, number) in macros {
        text += &format!("#define MMQ_VERSION_{name} {number}\n");
    }
    text
}

/// The example, from behind its first comment, as lines of a comment.
fn example(root: &Path) -> String {
    let source = std::fs::read_to_string(root.join(EXAMPLE)).unwrap();
    let (_, program) = source.split_once("*/\n").expect("the example begins with a comment");
    let comment = |line: &str| format!(" *{}{line}\n", if line.is_empty() { "" } else { "     " });
    program.trim_start().lines().map(comment).collect()
}

fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("include/cbindgen.toml")).unwrap();
    let fill_in = |text: Option<String>, mark: &str, with: &str| {
        let text = text.unwrap_or_default();
        assert!(text.contains(mark), "{mark} is missing in include/cbindgen.toml");
        Some(text.replace(mark, with))
    };
    config.after_includes = fill_in(config.after_includes.take(), "@VERSION@", &version_macros());
    config.header = fill_in(config.header.take(), "@EXAMPLE@", &example(root));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join(format!("src/ffi/{source}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("src/ffi can be read").write(&mut header);
    in_one_line(&String::from_utf8(header).unwrap())
}

/// Comments of one line take one line, not three.
fn in_one_line(header: &str) -> String {
    let lines: Vec<&str> = header.lines().collect();
    let mut text = String::new();
    let mut at = 0;
    while at < lines.len() {
        let comment = match lines[at..] {
            [begin, middle, end, ..] if begin.trim() == "/**" && end.trim() == "*/" => {
                middle.trim().strip_prefix("* ")
            }
            _ => None,
        };
        if let Some(comment) = comment {
            let indent = lines[at].len() - lines[at].trim_start().len();
            text += &format!("{:indent$}/** {comment} */\n", "");
            at += 3;
        } else {
            text += lines[at];
            text.push('\n');
            at += 1;
        }
    }
    text
}

#[test]
fn the_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/mmq.h");
    let new = generated();
    if std::env::var_os("MMQ_BLESS").is_some() {
        std::fs::write(&path, &new).unwrap();
        return;
    }
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (old, new))) =
        old.lines().zip(new.lines()).enumerate().find(|(_, (old, new))| old != new)
    {
        panic!(
            "include/mmq.h is not current at line {}:\n  {old}\n  {new}\nrun MMQ_BLESS=1 cargo test --test sources header",
            line + 1
        );
    }
    assert_eq!(
        old.len(),
        new.len(),
        "include/mmq.h is not current; run MMQ_BLESS=1 cargo test --test sources header"
    );
}

#[test]
fn every_function_of_the_source_is_in_the_header_and_says_what_it_returns() {
    let header = generated();
    let mut functions = 0;
    for source in SOURCES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/ffi/{source}.rs"));
        let text = std::fs::read_to_string(path).unwrap();
        for (at, _) in text.match_indices("extern \"C\" fn ") {
            let (before, declaration) = text.split_at(at);
            let (name, rest) = declaration["extern \"C\" fn ".len()..].split_once('(').unwrap();
            functions += 1;
            assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
            let comment = before[before.rfind("\n\n").unwrap()..].replace("\n///", "");
            let signature = &rest[..rest.find('{').unwrap()];
            assert_eq!(
                signature.contains("->"),
                comment.contains("@return"),
                "{name}: what it returns"
            );
            let (arguments, _) = signature.split_once(')').unwrap();
            for argument in arguments.split(',').filter_map(|argument| argument.split_once(':')) {
                let argument = argument.0.trim();
                assert!(
                    comment.contains(&format!("@param {argument} ")),
                    "{name}: nothing is said of {argument}"
                );
            }
            assert!(text[at..].contains("guard"), "{name} has no guard");
        }
    }
    assert!(functions > 40, "{functions} functions");
}
