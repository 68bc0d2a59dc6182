//! The README names tests and commands; they must be there.

use std::fs;
use std::path::Path;

#[test]
fn every_test_the_readme_points_to_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let mut seen = 0;
    for quoted in readme.split('`') {
        let Some((file, test)) = quoted.split_once(".rs::") else {
            continue;
        };
        let source =
            fs::read_to_string(root.join(format!("{file}.rs"))).unwrap_or_else(|_| panic!("{file}.rs is not there"));
        assert!(source.contains(&format!("fn {test}(")), "{file}.rs has no test {test}");
        seen += 1;
    }
    assert!(seen >= 30, "only {seen} tests are named");
}

#[test]
fn every_cell_of_the_guarantees_points_to_a_test_that_is_named() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, rest) = readme.split_once("| call | visible when |").expect("the table of guarantees");
    let (table, rest) = rest.split_once("The tests that show it: ").expect("the tests that show them");
    let (tests, _) = rest.split_once("\n\n").unwrap();
    let named = |number: usize| tests.contains(&format!("{number} `"));
    let last = (1..).take_while(|number| named(*number)).count();
    let mut cited = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| `") || line.starts_with("| any")) {
        for cell in row.split('|').skip(2).map(str::trim).filter(|cell| !cell.is_empty()) {
            let numbers = cell.split('[').skip(1).map(|rest| rest.split(']').next().unwrap().parse::<usize>().unwrap());
            let numbers: Vec<usize> = numbers.collect();
            let says_nothing = ["at once", "changes nothing"].contains(&cell);
            assert!(says_nothing || !numbers.is_empty(), "no test is given for: {cell}");
            cited.extend(numbers);
        }
    }
    assert!(last >= 15 && cited.iter().all(|number| (1..=last).contains(number)), "{last} tests, {cited:?}");
    assert!((1..=last).all(|number| cited.contains(&number)), "a test that nothing points to");
}
