//! The shared library as a file: what it exports, what it is called, what compiled programs rely
//! on.

use std::process::Command;

use crate::library::{exists, library, root, run};

/// Names of the functions in the header.
pub(crate) fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(root().join("include/mmq.h")).unwrap();
    let is_declaration =
        |line: &&str| !line.starts_with([' ', '#', '/', '}']) && line.contains('(');
    let name = |line: &str| {
        let before = line.split('(').next().unwrap_or_default();
        before.rsplit([' ', '*']).next().unwrap_or_default().to_owned()
    };
    let mut names: Vec<_> = header.lines().filter(is_declaration).map(name).collect();
    names.sort();
    names
}

#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_exported_symbols_are_the_headers_functions_and_no_others() {
    if !exists("nm") || !exists("readelf") {
        crate::support::skip("nm or readelf is not installed");
        return;
    }
    let file = library().dir.join("libmmq.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&file));
    let mut exported: Vec<_> =
        symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared());
    let dynamic = run(Command::new("readelf").args(["-d", "-W"]).arg(&file));
    // Its threads may outlive the call that unloads it.
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

/// What a compiled program relies on does not change unseen: symbols, sizes, offsets, numbers.
#[cfg_attr(not(feature = "capi"), ignore = "needs --features capi")]
#[test]
fn the_binary_interface_is_as_recorded() {
    let program = library().compile("cc", "tests/c/abi.c", &["-std=c11"]);
    let functions: String = declared().iter().map(|name| format!("function {name}\n")).collect();
    let now = functions + &library().run(&program);
    let record = root().join("tests/c/abi.txt");
    if std::env::var_os("MMQ_BLESS").is_some() {
        std::fs::write(&record, now).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(record).unwrap_or_default();
    let gone: Vec<_> =
        recorded.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
    let new: Vec<_> =
        now.lines().filter(|line| !recorded.lines().any(|other| other == *line)).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "gone: {gone:#?}\nnew: {new:#?}\nMMQ_BLESS=1 records the new state"
    );
}
