//! The documents name tests, commands, functions, knobs and each other; all of it must be there.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const DOCUMENTS: [&str; 13] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/guide.md",
    "docs/guarantees.md",
    "docs/choosing.md",
    "docs/coming-from.md",
    "docs/format.md",
    "docs/figures.md",
    "docs/recovery.md",
    "docs/operating.md",
    "docs/platforms.md",
    "docs/sizing.md",
];

/// All files below a folder with one of these endings.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for listed in
        fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"))
    {
        let path = listed.unwrap().path();
        let inside = path.strip_prefix(root()).unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(inside.to_str().unwrap(), endings));
        } else if path
            .extension()
            .is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted))
        {
            found.push(inside);
        }
    }
    found
}

#[test]
fn every_test_the_documents_point_to_exists() {
    for (document, least) in [
        ("README.md", 0),
        ("docs/guide.md", 0),
        ("docs/guarantees.md", 40),
        ("ARCHITECTURE.md", 25),
        ("CONTRIBUTING.md", 2),
        ("docs/recovery.md", 15),
    ] {
        let mut seen = 0;
        for quoted in read(document).split('`') {
            let Some((file, test)) = quoted.split_once(".rs::") else {
                continue;
            };
            let source = read(format!("{file}.rs"));
            assert!(
                source.contains(&format!("fn {test}(")),
                "{document}: {file}.rs has no test {test}"
            );
            seen += 1;
        }
        assert!(seen >= least, "{document} names only {seen} tests");
    }
}

/// `folder::name` in ARCHITECTURE.md is a function, a type or a constant of that folder of `src`,
/// or of the file of that name.
#[test]
fn every_name_in_the_architecture_exists() {
    let mut seen = 0;
    for quoted in read("ARCHITECTURE.md").split('`').skip(1).step_by(2) {
        let Some((folder, name)) =
            quoted.split_once("::").filter(|(folder, _)| !folder.contains('.'))
        else {
            continue;
        };
        if (folder, name) == ("folder", "name") {
            continue;
        }
        let is_folder = root().join("src").join(folder).is_dir();
        let sources = if is_folder {
            files(&format!("src/{folder}"), &["rs"])
        } else {
            vec![format!("src/{folder}.rs").into()]
        };
        let there = ["fn ", "struct ", "enum ", "trait ", "const ", "type "].iter().any(|kind| {
            let head = format!("{kind}{name}");
            sources.iter().map(read).any(|source| {
                source.match_indices(&head).any(|(at, _)| {
                    let next = source[at + head.len()..].chars().next();
                    next.is_some_and(|next| !next.is_alphanumeric() && next != '_')
                })
            })
        });
        assert!(there, "src/{folder} has no `{name}`");
        seen += 1;
    }
    assert!(seen > 100, "only {seen} names were found");
}

/// What GitHub and rustdoc make of the headings of a document: `## In C++17` is `in-c17`.
fn anchors(document: &Path) -> BTreeSet<String> {
    let text: String = read(document).split("```").step_by(2).collect();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
            kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect()
        })
        .collect()
}

/// A link in a document leads to a file, and to a heading of it where it names one.
#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for document in DOCUMENTS {
        let folder = root().join(document).parent().unwrap().to_owned();
        // Without the programs in it.
        let text: String = read(document).split("```").step_by(2).collect();
        for (at, _) in text.match_indices("](") {
            let to = text[at + 2..].split(')').next().unwrap();
            if to.contains("::") || to.contains("://") {
                continue;
            }
            let (file, anchor) = to.split_once('#').unwrap_or((to, ""));
            let path = if file.is_empty() { root().join(document) } else { folder.join(file) };
            assert!(path.exists(), "{document} points to {to}, which is not there");
            let is_heading = anchor.is_empty() || anchors(&path).contains(anchor);
            assert!(is_heading, "{document} points to {to}, a heading that is not there");
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} links were found");
}

/// The table of knobs names each variable that anything reads, and none besides. Those by which a
/// test tells its own child what to do are nobody's to set; the C names begin alike.
#[test]
fn every_knob_is_in_the_table() {
    let guide = read("CONTRIBUTING.md");
    let (_, table) = guide.split_once("| variable |").expect("the table of knobs");
    let (table, _) = table.split_once("\n\n").expect("its end");
    let cells =
        table.lines().skip(2).map(|row| row.split('`').nth(1).expect("a variable in each row"));
    let reported: BTreeSet<&str> = cells.collect();
    let mut found = BTreeSet::new();
    for folder in ["src", "crates", "tests", "benches", "examples"] {
        for file in files(folder, &["rs", "py"]) {
            let source = read(&file);
            for (at, _) in source.match_indices("\"MMQ_") {
                let name = source[at + 1..].split('"').next().unwrap();
                let before = &source[..at];
                let reads = ["var(", "var_os(", "count(", "number(", "number_from("];
                if reads.iter().any(|call| before.ends_with(call)) {
                    found.insert(name.to_owned());
                }
            }
        }
    }
    let own = |name: &str| {
        [
            "_CHILD",
            "_CHILD_",
            "_DIR",
            "_VARIANT",
            "_NEXT",
            "_PLACE",
            "_WORK_",
            "_RELATIVE",
            "MMQ_KILL_SEED",
        ]
        .iter()
        .any(|part| name.contains(part))
    };
    let wanted: BTreeSet<&str> = found
        .iter()
        .map(String::as_str)
        .filter(|name| !own(name) || *name == "MMQ_BENCH_DIR")
        .collect();
    assert_eq!(reported, wanted, "CONTRIBUTING.md and what is read");
}

#[test]
fn every_cell_of_the_guarantees_points_to_a_test_that_is_named() {
    let guarantees = read("docs/guarantees.md");
    let (_, rest) =
        guarantees.split_once("| call | visible when |").expect("the table of guarantees");
    let (table, rest) =
        rest.split_once("The tests that show it: ").expect("the tests that show them");
    let (tests, _) = rest.split_once("\n\n").unwrap();
    let named = |number: usize| tests.contains(&format!("{number} `"));
    let last = (1..).take_while(|number| named(*number)).count();
    let mut cited = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| `") || line.starts_with("| any")) {
        for cell in row.split('|').skip(2).map(str::trim).filter(|cell| !cell.is_empty()) {
            let numbers = cell
                .split('[')
                .skip(1)
                .map(|rest| rest.split(']').next().unwrap().parse::<usize>().unwrap());
            let numbers: Vec<usize> = numbers.collect();
            let says_nothing = ["at once", "changes nothing"].contains(&cell);
            assert!(says_nothing || !numbers.is_empty(), "no test is given for: {cell}");
            cited.extend(numbers);
        }
    }
    assert!(
        last >= 15 && cited.iter().all(|number| (1..=last).contains(number)),
        "{last} tests, {cited:?}"
    );
    assert!((1..=last).all(|number| cited.contains(&number)), "a test that nothing points to");
}

/// The tables and pictures of the documents are those that docs/figures.json makes.
#[test]
fn the_figures_of_the_documents_are_those_of_the_json() {
    let script = root().join("benches/compare/figures.py");
    let mut python = Command::new("python3");
    let done = match python.arg(script).arg("--check").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return crate::skip::skip("python3 is not installed");
        }
        done => done.unwrap(),
    };
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success(), "{}", said.concat());
    // So that an empty page would not be equal, too.
    let is_row = |line: &&str| line.contains(", 128 bytes |") || line.contains(", 16 KB |");
    let figures = read("README.md").lines().filter(is_row).count();
    assert!(figures >= 6, "the README has {figures} rows of figures");
}

/// `benches/compare/faults.py` makes both tables from docs/faults.json.
#[test]
fn the_tables_of_faults_are_those_of_the_results() {
    let [readme, page] = ["README.md", "docs/choosing.md"].map(|document| {
        let text = read(document);
        let table = text.split("<!-- faults -->\n").nth(1).expect("a table of faults");
        table.split("<!-- end -->").next().unwrap().to_owned()
    });
    assert_eq!(readme, page);
    let results = read("docs/faults.json");
    let (mut rest, mut seen) = (&results[..], 0);
    let cells = page.lines().skip(2).flat_map(|row| row.trim_matches('|').split('|'));
    for cell in cells.map(str::trim).filter(|cell| *cell != "-") {
        let at = rest.find(&format!("\"{cell}\"")).unwrap_or_else(|| panic!("{cell} is no result"));
        rest = &rest[at + 1..];
        seen += 1;
    }
    assert!(seen >= 9 * 6, "the table has {seen} cells");
}
