//! `include/mmq.h` and `include/mmq_forward.h` are made from `src/ffi/` and checked in. This test
//! makes them anew and compares; `MMQ_BLESS=1 cargo test --test sources header` writes them.

use std::path::Path;

#[path = "../../build.rs"]
#[allow(dead_code, reason = "its other part is cargo's")]
mod build;

struct Header {
    name: &'static str,
    config: &'static str,
    /// In the order of the header.
    sources: &'static [&'static str],
    least_functions: usize,
}

const HEADERS: [Header; 2] = [
    Header {
        name: "include/mmq.h",
        config: "include/cbindgen.toml",
        sources: &[
            "src/ffi/mmq_status.rs",
            "src/ffi/errors.rs",
            "src/ffi/mmq_options.rs",
            "src/ffi/slices.rs",
            "src/ffi/queue.rs",
            "src/ffi/mmq_message.rs",
            "src/ffi/mmq_gap.rs",
            "src/ffi/mmq_consumer.rs",
            "src/ffi/receive.rs",
            "src/ffi/batches.rs",
            "src/ffi/mmq_iter.rs",
            "src/ffi/mmq_delivery.rs",
            "src/ffi/mmq_redelivery.rs",
            "src/ffi/mmq_lanes.rs",
            "src/ffi/mmq_origin.rs",
            "src/ffi/mmq_stats.rs",
            "src/ffi/mmq_client.rs",
            "src/ffi/mmq_client_consumer.rs",
            "src/ffi/inspect.rs",
        ],
        least_functions: 41,
    },
    Header {
        name: "include/mmq_forward.h",
        config: "include/cbindgen_forward.toml",
        sources: &[
            "src/ffi/mmq_forward_options.rs",
            "crates/mmq-forward-c/src/new.rs",
            "src/ffi/mmq_forwarder.rs",
        ],
        least_functions: 6,
    },
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

fn generated(header: &Header) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join(header.config)).unwrap();
    let fill_in = |text: Option<String>, mark: &str, with: &str| {
        let text = text.unwrap_or_default();
        assert!(text.contains(mark), "{mark} is missing in {}", header.config);
        Some(text.replace(mark, with))
    };
    if header.name == HEADERS[0].name {
        let after = config.after_includes.take();
        config.after_includes = fill_in(after, "@VERSION@", &version_macros());
        config.header = fill_in(config.header.take(), "@EXAMPLE@", &example(root));
    }
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in header.sources {
        builder = builder.with_src(root.join(source));
    }
    let mut text = Vec::new();
    builder.generate().expect("src/ffi can be read").write(&mut text);
    in_one_line(&String::from_utf8(text).unwrap())
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
fn the_headers_are_current() {
    HEADERS.iter().for_each(is_current);
}

fn is_current(header: &Header) {
    let (name, bless) = (header.name, "run MMQ_BLESS=1 cargo test --test sources header");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let new = generated(header);
    if std::env::var_os("MMQ_BLESS").is_some() {
        std::fs::write(&path, &new).unwrap();
        return;
    }
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (old, new))) =
        old.lines().zip(new.lines()).enumerate().find(|(_, (old, new))| old != new)
    {
        panic!("{name} is not current at line {}:\n  {old}\n  {new}\n{bless}", line + 1);
    }
    assert_eq!(old.len(), new.len(), "{name} is not current; {bless}");
}

/// Or every build would warn.
#[test]
fn a_build_finds_the_headers_current() {
    assert_eq!(build::missing_in_headers(), None);
}

#[test]
fn every_function_of_the_source_is_in_the_header_and_says_what_it_returns() {
    HEADERS.iter().for_each(has_every_function);
}

fn has_every_function(of: &Header) {
    let header = generated(of);
    let mut functions = 0;
    for source in of.sources {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
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
    assert!(functions >= of.least_functions, "{functions} functions in {}", of.name);
}
