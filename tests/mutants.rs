//! Who catches each planted bug: `cargo test --test mutants -- --ignored --nocapture`.
//!
//! The bugs are in the table of `src/tests/mutants.rs`. Each is planted in the whole process of the
//! library's tests, which run in groups, the quick tests first, until a test fails, a process
//! dies, or a group takes five times as long as without the bug. All groups but `search` are what
//! the gate runs. A bug that no group catches is a hole in the tests, unless the table argues why
//! no test can see it. Both are failures here: a bug that nobody catches without an argument, and
//! one that is caught in spite of it. Holes that the table names as open are not drawn; they fail
//! like others when they run.
//!
//! `docs/planted.md` says of each bug who caught it, and that test runs first of all; with
//! `MMQ_BLESS=1` what another one caught is written there.
//!
//! Faults of the audits have a seed each in the table, of a test that draws schedules. Another test
//! sees that each seed still finds its fault, so no group runs for those. Any change of the queue
//! or of the worlds may move a seed; then another one is looked for among 24,000, and is printed.
//!
//! `MMQ_MUTANT` names the bugs, with commas between. Without it six times `MMQ_EFFORT` are drawn,
//! from `MMQ_SEED=N..` on, or all of them from an effort of 100 on.

mod support;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[path = "support/effort.rs"]
mod effort;

use effort::{effort, first};

/// The last one is the worlds once more, as many as a search draws and the gate does not.
const GROUPS: &[&str] = &["quick", "slow", "world", "search"];

/// What a quick test takes at most.
const QUICK: Duration = Duration::from_millis(200);

struct Group {
    name: &'static str,
    tests: Vec<String>,
    /// How long it may take with a bug.
    limit: Duration,
}

/// What ended a group.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed(String),
}

/// The library's test program, built as this command would build it.
fn program() -> String {
    let built = crate::support::command(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["test", "--lib", "--no-run"])
        .arg("--message-format=json")
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "the library's tests do not build");
    let text = String::from_utf8(built.stdout).expect("cargo writes UTF-8");
    let is_ours = |line: &&str| line.contains("\"name\":\"mmq\"");
    let built = text.lines().filter(is_ours);
    let last = built
        .filter_map(|line| line.split("\"executable\":\"").nth(1))
        .last()
        .and_then(|rest| rest.split('"').next());
    last.expect("cargo names the program").to_owned()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let ran =
        crate::support::command(program).args(arguments).output().expect("the test program runs");
    assert!(ran.status.success(), "{arguments:?} fails");
    String::from_utf8(ran.stdout).expect("test names are UTF-8")
}

/// The tests in their groups, by what each takes without a bug.
fn groups(program: &str) -> Vec<Group> {
    let mut command = crate::support::command(program);
    // The times are unstable, and so need this variable.
    command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    command.env("MMQ_EFFORT", "1").env_remove("MMQ_SEED").env_remove("MMQ_MUTANT");
    command.env_remove("MMQ_BLESS");
    let ran = command.stderr(Stdio::null()).output().expect("the test program runs");
    assert!(ran.status.success(), "the tests fail without a bug");
    let said = String::from_utf8(ran.stdout).expect("test names are UTF-8");
    let tests = said.lines().filter_map(|line| {
        let (test, took) = line.strip_prefix("test ")?.split_once(" ... ok <")?;
        let took = took.strip_suffix("s>")?.parse().expect("seconds");
        let group = match Duration::from_secs_f64(took) {
            _ if test.starts_with("tests::world::") => "world",
            took if took <= QUICK => "quick",
            _ => "slow",
        };
        Some((test, group))
    });
    // Those that plant bugs of their own to see them found cannot fail by another one.
    let tests: Vec<_> = tests.filter(|(test, _)| !test.contains("planted")).collect();
    let groups = GROUPS.iter().map(|&name| {
        let of = if name == "search" { "world" } else { name };
        let tests = tests.iter().filter(|(_, group)| *group == of);
        Group {
            name,
            tests: tests.map(|(test, _)| (*test).to_owned()).collect(),
            limit: Duration::MAX,
        }
    });
    groups.collect()
}

/// Runs a group with a bug, or without one, until its first test fails.
fn run(program: &str, group: &Group, mutant: Option<&str>) -> End {
    let mut command = crate::support::command(program);
    command.args(&group.tests).arg("--exact").env_remove("MMQ_SEED");
    // A test that writes a file by it would write what the bug makes of it.
    command.env_remove("MMQ_BLESS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let effort = match group.name {
        "world" => "4",
        "search" => "40",
        _ => "1",
    };
    command.env("MMQ_EFFORT", effort);
    match mutant {
        Some(name) => command.env("MMQ_MUTANT", name),
        None => command.env_remove("MMQ_MUTANT"),
    };
    let mut child = command.spawn().expect("the test program starts");
    let end = watch(&mut child, group.limit);
    // It may have ended by itself.
    let _ = child.kill();
    let status = child.wait().expect("a child of this process");
    match end {
        Some(End::Passed) if !status.success() => End::Failed(format!("process: {status}")),
        Some(end) => end,
        None => End::Failed("out of time".to_owned()),
    }
}

/// A fault of an audit, and who finds it.
struct Audited {
    mutant: String,
    fault: String,
    test: String,
    seed: String,
}

impl Audited {
    /// `Name: A1, B2; test seed`.
    fn parse(line: &str) -> Option<Audited> {
        let (mutant, rest) = line.strip_prefix("audit ")?.split_once(": ")?;
        let (fault, rest) = rest.split_once("; ")?;
        let (test, seed) = rest.split_once(' ')?;
        let [mutant, fault, test, seed] = [mutant, fault, test, seed].map(str::to_owned);
        Some(Audited { mutant, fault, test, seed })
    }

    /// Its test, with the bug or without.
    fn command(&self, program: &str) -> Command {
        let mut command = crate::support::command(program);
        command.args([&self.test, "--exact", "--nocapture"]);
        command.env_remove("MMQ_SEED").env_remove("MMQ_EFFORT").stderr(Stdio::null());
        command
    }

    fn is_found(&self, program: &str) -> bool {
        let run = |mutant: Option<&str>| {
            let mut command = self.command(program);
            command.env("MMQ_SEED", &self.seed).env_remove("MMQ_MUTANT").stdout(Stdio::null());
            command.envs(mutant.map(|mutant| ("MMQ_MUTANT", mutant)));
            command.status().expect("the test program runs").success()
        };
        run(None) && !run(Some(&self.mutant))
    }

    /// A seed that finds it among the first 24,000.
    fn look(&self, program: &str) -> Option<u64> {
        let mut command = self.command(program);
        command.env("MMQ_MUTANT", &self.mutant);
        command.env("MMQ_EFFORT", "80");
        let ran = command.stderr(Stdio::piped()).output().expect("the test program runs");
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let seeds = said.lines().filter_map(|line| line.split("MMQ_SEED=").nth(1));
        seeds.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).min()
    }
}

/// Sees that a seed finds each fault of the audit, and nothing without it: that of the table, or
/// another one.
fn check_seeds(program: &str, said: &str) {
    let audited: Vec<Audited> = said.lines().filter_map(Audited::parse).collect();
    assert!(!audited.is_empty(), "the table has no faults of the audit");
    let mut missed = Vec::new();
    for one in &audited {
        let (mutant, known) = (&one.mutant, &one.seed);
        if one.is_found(program) {
            println!("{mutant:<28} {:<8} by seed {known}", one.fault);
            continue;
        }
        match one.look(program) {
            Some(seed) => println!("{mutant:<28} {:<8} by seed {seed}, not {known}", one.fault),
            None => missed.push(mutant),
        }
    }
    println!("{} faults of the audit, {} without a seed", audited.len(), missed.len());
    assert!(missed.is_empty(), "no seed finds {missed:?}");
}

/// Reads what the tests say until the first one fails, all are done, or the time is over (`None`).
fn watch(child: &mut Child, limit: Duration) -> Option<End> {
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (say, heard) = mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let failed =
                line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"));
            if let Some(test) = failed {
                // Nobody listens any more once the time is over.
                let _ = say.send(End::Failed(test.to_owned()));
                return;
            }
        }
        let _ = say.send(End::Passed);
    });
    if limit == Duration::MAX { heard.recv().ok() } else { heard.recv_timeout(limit).ok() }
}

/// Who caught each bug: the group and the test, or how its process ended.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/planted.md");
const RECORD_HEAD: &str = "\
# Planted bugs

Who catches each bug of the table in `src/tests/mutants.rs`, as `tests/mutants.rs` found it: a test
of the gate, by whatever seeds it has, or a search alone. That test is tried first the next time.
`seed`: the test finds it by its seed in the table, with which the gate runs it (`.ci/run planted`).
`out of time`: the bug has threads wait for ever. `process`: it ends the process. A bug that changes
nothing that anybody can see has no row; the table there says so.

| bug | found by | test |
|---|---|---|
";

/// By bug: the group, and the test.
type Caught = BTreeMap<String, (String, String)>;

fn recorded() -> Caught {
    let text = fs::read_to_string(RECORD).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let (bug, by, test) = (cells.next()?, cells.next()?, cells.next()?);
        Some((bug.to_owned(), (by.to_owned(), test.to_owned())))
    });
    rows.filter(|(bug, _)| bug != "bug").collect()
}

fn record(caught: &Caught) {
    let rows = caught.iter().map(|(bug, (by, test))| format!("| {bug} | {by} | {test} |\n"));
    fs::write(RECORD, RECORD_HEAD.to_owned() + &rows.collect::<String>()).expect("a table");
}

/// The group with that test alone, if it was the one that caught the bug.
fn known(groups: &[Group], caught: &Caught, mutant: &str) -> Option<Group> {
    let (by, test) = caught.get(mutant)?;
    let of =
        |group: &&Group| (group.name == "search") == (by == "search") && group.tests.contains(test);
    let group = groups.iter().find(of)?;
    Some(Group { tests: vec![test.clone()], ..*group })
}

/// The bugs that are asked for. Those that are `open` are not drawn: it is known that nobody
/// catches them.
fn chosen(all: Vec<String>, open: &[String]) -> Vec<String> {
    if let Ok(asked) = env::var("MMQ_MUTANT") {
        let names: Vec<String> = asked.split(',').map(str::to_owned).collect();
        let unknown: Vec<_> = names.iter().filter(|name| !all.contains(name)).collect();
        assert!(unknown.is_empty(), "there is no {unknown:?}");
        return names;
    }
    if effort() >= 100 {
        return all;
    }
    let (count, mut state) = (6 * effort() as usize, first().unwrap_or(0));
    println!("{count} of {} bugs, drawn with MMQ_SEED={state}..", all.len());
    let mut drawn: Vec<(u64, String)> =
        all.into_iter().map(|name| (next(&mut state), name)).collect();
    drawn.retain(|(_, name)| !open.contains(name));
    drawn.sort();
    drawn.into_iter().take(count).map(|(_, name)| name).collect()
}

/// The next random number (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Every bug that can be planted, as the library's tests list them.
fn listed(program: &str) -> String {
    let test = "tests::mutants::plant::all_that_can_be_planted";
    output(program, &[test, "--exact", "--nocapture"])
}

#[test]
fn a_seed_finds_each_fault_of_the_audit() {
    let program = program();
    check_seeds(&program, &listed(&program));
}

#[test]
#[ignore = "a minute for six bugs, hours for all"]
fn each_planted_bug_is_caught_or_argued() {
    let program = program();
    let said = listed(&program);
    let audited = said.lines().filter_map(Audited::parse);
    let with_seed: BTreeMap<String, String> =
        audited.map(|audited| (audited.mutant, audited.test)).collect();
    let names = |word: &str| -> Vec<String> {
        let lines = said.lines().filter_map(|line| line.strip_prefix(word)?.split_once(": "));
        lines.map(|(name, _)| name.to_owned()).collect()
    };
    let (argued, open) = (names("equivalent "), names("open "));
    let mutants = chosen(names("mutant "), &open);
    assert!(!mutants.is_empty(), "there are no bugs to plant");
    let mut groups = groups(&program);
    for group in &mut groups {
        let began = Instant::now();
        assert_eq!(run(&program, group, None), End::Passed, "{} without a bug", group.name);
        let took = began.elapsed();
        println!(
            "{}: {} tests, {:.1} s without a bug",
            group.name,
            group.tests.len(),
            took.as_secs_f64()
        );
        group.limit = 5 * took + Duration::from_secs(20);
    }
    let (mut missed, mut refuted, mut record_of) = (Vec::new(), Vec::new(), recorded());
    let began = Instant::now();
    for mutant in &mutants {
        let began = Instant::now();
        let by_seed = with_seed.get(mutant).map(|test| ("seed", test.clone()));
        let by_group = |group: &Group| match run(&program, group, Some(mutant)) {
            End::Passed => None,
            End::Failed(how) => Some((group.name, how)),
        };
        let known = known(&groups, &record_of, mutant);
        let caught = known.iter().find_map(by_group).or(by_seed);
        let caught = caught.or_else(|| groups.iter().find_map(by_group));
        let took = began.elapsed().as_secs_f64();
        let is_argued = argued.contains(mutant);
        match caught {
            Some((group, how)) => {
                println!("{mutant:<28} {took:>6.1} s  {group:<5} {how}");
                let by = if ["search", "seed"].contains(&group) { group } else { "gate" };
                record_of.insert(mutant.clone(), (by.to_owned(), how));
                if env::var_os("MMQ_BLESS").is_some() {
                    record(&record_of);
                }
                if is_argued || open.contains(mutant) {
                    refuted.push(mutant);
                }
            }
            None if is_argued => println!("{mutant:<28} {took:>6.1} s  nobody, as argued"),
            None => {
                println!("{mutant:<28} {took:>6.1} s  NOBODY");
                missed.push(mutant);
            }
        }
    }
    let argued = mutants.iter().filter(|name| argued.contains(name)).count();
    let caught = mutants.len() - missed.len() - argued;
    println!("{} bugs, {caught} caught, {:.0} s", mutants.len(), began.elapsed().as_secs_f64());
    assert!(missed.is_empty(), "nobody catches {missed:?}: close the hole, or argue in the table");
    assert!(refuted.is_empty(), "the table says that nobody catches {refuted:?}");
}
