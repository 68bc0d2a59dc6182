//! The transcripts of the README.

use std::fs;
use std::path::Path;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
const UNITS: [&str; 7] = ["ns", "us", "ms", "s", "KiB", "MiB", "GiB"];

/// The words of a line. What differs from run to run is left out: figures with a unit or a point,
/// the process, times and ids.
fn words(line: &str) -> Vec<&str> {
    let all: Vec<&str> = line.split_whitespace().collect();
    let is_unit = |at: usize| {
        all.get(at).is_some_and(|word| UNITS.contains(&word.trim_end_matches([',', ';'])))
    };
    let differs = |at: usize| {
        let word = all[at];
        let is_figure = word.starts_with(|first: char| first.is_ascii_digit());
        is_unit(at)
            || is_figure
                && (is_unit(at + 1) || word.contains(':') || at > 0 && all[at - 1] == "process")
            || word.trim_end_matches(',').len() == 32
    };
    (0..all.len()).filter(|at| !differs(*at)).map(|at| all[at]).collect()
}

/// The queue that the second transcript looks at.
fn in_use(dir: &Path) -> mmq::Queue {
    let queue = mmq::Queue::open(dir.join("jobs")).unwrap();
    let audit = queue.consumer("audit").unwrap();
    let put = |count| (0..count).for_each(|_| assert!(queue.enqueue([7; 15]).is_ok()));
    put(2);
    queue.flush().unwrap();
    put(76);
    assert!(audit.dequeue().unwrap().is_some());
    assert_eq!(queue.dequeue_batch(2).unwrap().len(), 2);
    queue
}

#[test]
fn the_transcripts_of_the_readme_show_what_the_commands_print() {
    let text = fs::read_to_string(README).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_mmq")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut commands = 0;
    for transcript in text.split("```console\n").skip(1) {
        let transcript = transcript.split("```").next().unwrap();
        let dir = crate::support::tempdir().unwrap();
        let _in_use = transcript.starts_with("$ mmq stat").then(|| in_use(dir.path()));
        for one in transcript.split("$ ").skip(1) {
            let (command, wanted) = one.split_once('\n').unwrap();
            let mut shell = crate::support::command("sh");
            shell.args(["-c", &format!("{{ {command}; }} 2>&1")]).current_dir(dir.path());
            let output = shell.env("PATH", &path).output().unwrap();
            let got = String::from_utf8(output.stdout).unwrap();
            let lines =
                |text: &str| text.lines().map(|line| words(line).join(" ")).collect::<Vec<_>>();
            assert_eq!(lines(&got), lines(wanted), "{command}\n{got}");
            commands += 1;
        }
    }
    assert!(commands >= 3, "{commands}");
}
