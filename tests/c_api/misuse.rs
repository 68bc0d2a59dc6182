//! NULL, a handle of another kind and a handle that is gone, in every place of every function: the
//! table is made from the header, so that a new function cannot be left out.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::binary::declared;
use crate::library::{root, scratch};
use crate::passes;

/// A function as the header declares it.
struct Function {
    name: String,
    returns: String,
    parameters: Vec<Parameter>,
}

struct Parameter {
    /// As `const struct mmq_queue *`.
    kind: String,
    name: String,
    /// What the header says of it.
    said: String,
}

/// Every function of the header, with what is said of its parameters.
fn functions() -> Vec<Function> {
    let header = std::fs::read_to_string(root().join("include/mmq.h")).unwrap();
    let (_, declarations) = header.split_once("extern \"C\" {").expect("the functions");
    declarations.split("/**").skip(1).map(function).collect()
}

fn function(text: &str) -> Function {
    let (comment, rest) = text.split_once("*/").expect("a comment");
    let said: Vec<&str> =
        comment.lines().map(|line| line.trim().trim_start_matches("* ").trim()).collect();
    let said = said.join(" ");
    let (declaration, _) = rest.split_once(");").expect("a declaration");
    let (before, parameters) = declaration.split_once('(').expect("parameters");
    let (returns, name) = type_and_name(before);
    let parameter = |text: &str| {
        let (kind, name) = type_and_name(text);
        let said = said.split('@').find_map(|part| part.strip_prefix(&format!("param {name} ")));
        Parameter {
            said: said.unwrap_or_else(|| panic!("nothing is said of {name}")).to_owned(),
            kind,
            name,
        }
    };
    let parameters = parameters
        .split(',')
        .map(str::trim)
        .filter(|text| *text != "void")
        .map(parameter)
        .collect();
    Function { name, returns, parameters }
}

/// `const struct mmq_queue *queue` in its two parts.
fn type_and_name(declaration: &str) -> (String, String) {
    let words = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = words.rfind([' ', '*']).expect("a type and a name") + 1;
    let (kind, name) = (words[..at].trim(), &words[at..]);
    // C passes an array as a pointer.
    match name.split_once('[') {
        Some((name, _)) => (format!("{kind} *"), name.to_owned()),
        None => (kind.to_owned(), name.to_owned()),
    }
}

/// The kinds of handles, each with one that lives and one that is gone.
const HANDLES: [&str; 9] = [
    "options",
    "queue",
    "consumer",
    "message",
    "delivery",
    "iter",
    "lanes",
    "client",
    "client_consumer",
];

impl Parameter {
    fn handle(&self) -> Option<&'static str> {
        let kind = self.kind.strip_prefix("const ").unwrap_or(&self.kind);
        HANDLES.into_iter().find(|handle| kind == format!("struct mmq_{handle} *"))
    }

    fn is_pointer(&self) -> bool {
        self.kind.ends_with('*')
    }

    /// NULL is refused here, though perhaps not with every length.
    fn refuses_null(&self) -> bool {
        assert!(
            self.said.contains("NULL"),
            "{}: not said whether it may be NULL: {}",
            self.name,
            self.said
        );
        self.said.contains("Not NULL")
            || self.said.contains("not NULL")
            || self.said.contains("May be NULL when")
    }

    /// A value that is allowed.
    fn value(&self) -> String {
        // A queue is not its own queue for dead letters.
        if let Some(handle) = self.handle().filter(|_| self.name != "dead") {
            return handle.to_owned();
        }
        let value = match (self.kind.as_str(), self.name.as_str()) {
            ("const char *", "dir") => "path_of(\"another\")",
            ("const char *", "name") => "\"a name\"",
            ("const void *", "data") => "\"x\"",
            ("const struct mmq_slice *", _) => "&slice",
            ("void *" | "char *", "buf") => "buf",
            ("size_t", "cap") => "sizeof buf",
            ("struct mmq_queue *", "dead") => "dead",
            // What the rows after it are handed does not go back by itself, nor is it given up.
            ("int64_t", "lease_ms") | ("uint32_t", "max_attempts") => "0",
            ("size_t" | "uint64_t" | "int64_t" | "uint32_t", _) => "1",
            ("bool", _) => "true",
            ("mmq_status", _) => "MMQ_OK",
            ("mmq_on_full", _) => "MMQ_REJECT",
            ("mmq_start", _) => "MMQ_START_OLDEST",
            ("uint64_t *", _) => "&outs.number",
            ("size_t *", "count_out") => "&outs.count",
            ("size_t *", _) => "&outs.size",
            ("bool *", _) => "&outs.truth",
            ("int *", _) => "&outs.descriptor",
            ("struct mmq_gap *", _) => "&outs.gap",
            ("const struct mmq_lane_options *", _) => "&lane_options",
            ("struct mmq_stretch *", _) => "&outs.stretch",
            ("uint8_t *", _) => "outs.id",
            ("struct mmq_stats *", _) => "&outs.stats",
            ("struct mmq_consumer_stats *", _) => "&outs.consumer_stats",
            ("struct mmq_inspection *", _) => "&outs.inspection",
            ("struct mmq_origin *", _) => "&outs.origin",
            ("struct mmq_queue **", _) => "&outs.queue",
            ("struct mmq_consumer **", _) => "&outs.consumer",
            ("struct mmq_message **", _) => "&outs.message",
            ("struct mmq_copied_message *", _) => "&outs.copied",
            ("struct mmq_delivery **", _) => "&outs.delivery",
            ("struct mmq_iter **", _) => "&outs.iter",
            ("struct mmq_lanes **", _) => "&outs.lanes",
            ("struct mmq_client **", _) => "&outs.client",
            ("struct mmq_client_consumer **", _) => "&outs.client_consumer",
            other => panic!(
                "no value is known for {other:?}: add one, so that the new function is tried"
            ),
        };
        value.to_owned()
    }
}

impl Function {
    /// The call with that in the place `at`.
    fn call(&self, at: usize, value: &str) -> String {
        let value = |(index, parameter): (usize, &Parameter)| {
            if index == at { value.to_owned() } else { parameter.value() }
        };
        let values: Vec<String> = self.parameters.iter().enumerate().map(value).collect();
        format!("{}({})", self.name, values.join(", "))
    }

    /// A row of the table: the call is refused.
    fn refused(&self, at: usize, value: &str) -> String {
        let call = self.call(at, value);
        match self.returns.as_str() {
            "mmq_status" => format!("  REFUSED({call});\n"),
            "const char *" | "const uint8_t *" => format!("  REFUSES(NULL, {call});\n"),
            "size_t" | "uint32_t" => format!("  REFUSES(0, {call});\n"),
            "uint64_t" => format!("  REFUSES(UINT64_MAX, {call});\n"),
            "bool" => format!("  REFUSES(false, {call});\n"),
            "void" => format!("  REFUSES(0, ({call}, 0));\n"),
            other => panic!("{}: how does {other} refuse?", self.name),
        }
    }
}

/// The table as a program, written once.
pub(crate) fn table() -> PathBuf {
    static TABLE: OnceLock<PathBuf> = OnceLock::new();
    TABLE.get_or_init(write_table).clone()
}

fn write_table() -> PathBuf {
    let functions = functions();
    let mut names: Vec<_> = functions.iter().map(|function| function.name.clone()).collect();
    names.sort();
    assert_eq!(names, declared());

    let mut rows = Vec::new();
    for function in &functions {
        for (at, parameter) in
            function.parameters.iter().enumerate().filter(|(_, parameter)| parameter.is_pointer())
        {
            if parameter.refuses_null() {
                rows.push(function.refused(at, "NULL"));
            } else {
                rows.push(format!("  ALLOWED({});\n", function.call(at, "NULL")));
            }
            let Some(handle) = parameter.handle() else { continue };
            let others = HANDLES.into_iter().filter(|other| *other != handle);
            rows.extend(others.map(|other| function.refused(at, &format!("(void *){other}"))));
            rows.push(function.refused(at, &format!("gone_{handle}")));
        }
    }
    assert!(rows.len() > 300, "{} rows", rows.len());
    let header = root().join("tests/c/misuse_table.h");
    let program = format!(
        "#include \"{}\"\n\nint main(int argc, char **argv) {{\n  begin(argc, argv);\n{}  return end();\n}}\n",
        header.display(),
        rows.concat()
    );
    let source = scratch("misuse").join("misuse_table.c");
    std::fs::write(&source, program).unwrap();
    source
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn every_function_answers_null_and_handles_of_no_use_in_every_place() {
    passes(table());
}
