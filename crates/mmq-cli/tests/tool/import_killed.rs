//! `import`, killed at random moments.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::import_bigqueue::{report, waiting};
use crate::import_writers::{Big, Release, messages, picture};
use crate::run::{Running, ends, on, said};
use crate::support::{Random, rounds, seed};

/// Whatever moment SIGKILL comes at: the source is as it was, the new queue is not there or is
/// complete, and the same command again makes it.
#[test]
fn sigkill_of_import_leaves_the_source_and_the_next_one_does_it() {
    let mut random = Random::new(seed("import_killed"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let mut big = Big::new(131_072);
    for message in messages(&mut random, 20_000, 3000) {
        big.enqueue(&message);
    }
    big.head(b"__default__", 0);
    big.head(b"audit", 10_000);
    big.write_to(&from, Release::Five);
    let before = picture(&from);
    let begun = std::time::Instant::now();
    report(&from, &to, &[], 0);
    let whole = begun.elapsed();
    let (mut early, mut midway) = (0, 0);
    let rounds = rounds(3, 6);
    for round in 0..rounds {
        let _ = fs::remove_dir_all(&to);
        let mut import = on("import", &from, &[to.to_str().unwrap(), "--force"]);
        let mut child =
            Running(import.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // Nothing is waited for: any moment of the run is as good as another.
        std::thread::sleep(
            whole.mul_f64(random.below(1000) as f64 / 1000.0).min(Duration::from_secs(9)),
        );
        let has_ended = child.0.try_wait().unwrap().is_some();
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert!(picture(&from) == before, "round {round}: the source is as it was");
        let left = to.with_extension("importing").exists();
        assert!(!has_ended || !left, "round {round}");
        if to.exists() {
            assert!(waiting(&to, "") == big.messages, "round {round}: it is there, and complete");
            assert!(waiting(&to, "audit") == big.messages[10_000..], "round {round}");
            let again = ends(on("import", &from, &[to.to_str().unwrap(), "--force"]), 6);
            assert!(said(&again).contains("is not empty: it holds"));
        } else {
            early += u64::from(!left);
            midway += u64::from(left);
        }
        let reported = report(&from, &to, &[], 0);
        assert_eq!(reported["messages"], 20_000, "round {round}");
        assert!(waiting(&to, "") == big.messages, "round {round}");
    }
    println!("{rounds} kills: {early} before the new queue was begun, {midway} while it was made");
}
