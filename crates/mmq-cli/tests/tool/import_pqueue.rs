//! `import` of pqueue, what the command refuses, and directories of the real programs.

use std::fs;
use std::path::Path;

use mmq::Queue;

use crate::import_bigqueue::{report, waiting};
use crate::import_writers::{Big, Release, be64, messages, segment};
use crate::run::{ends, on, said};
use crate::support::{Random, comes, sample, seed};

const FIRST: u64 = 1_700_000_000_000_000_000;

fn some(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let mut all = messages(random, count, 5000);
    all.retain(|message| !message.is_empty());
    all
}

fn findings(report: &serde_json::Value) -> [usize; 3] {
    ["torn", "lost", "warnings"].map(|what| report[what].as_array().unwrap().len())
}

#[test]
fn every_segment_comes_over_from_the_first_that_was_not_taken() {
    let mut random = Random::new(seed("import_pqueue"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for round in 0..12 {
        let _ = fs::remove_dir_all(&from);
        fs::create_dir_all(&from).unwrap();
        let (mut wanted, mut all) = (Vec::new(), Vec::new());
        for number in 0..random.size(1..=6) as u64 {
            let count = random.size(0..=40);
            let held = some(&mut random, count);
            let (mut bytes, places) = segment(&held);
            if random.chance(2) {
                bytes.extend([0; 8]);
            }
            // Later names sort before earlier ones as text.
            let name = format!("seg_{}", FIRST * [1, 10][usize::from(number > 2)] + number);
            fs::write(from.join(&name), bytes).unwrap();
            let taken = if number == 0 { random.size(0..=held.len()) } else { 0 };
            let row: Vec<u8> = places[1..=taken].iter().flat_map(|at| be64(*at as u64)).collect();
            if number == 0 {
                fs::write(from.join(format!("{name}.offset")), row).unwrap();
            }
            wanted.extend_from_slice(&held[taken..]);
            all.extend(held);
        }
        let reported = report(&from, &to, &[], 0);
        assert_eq!(
            (reported["kind"].as_str(), findings(&reported)[..2].to_vec()),
            (Some("pqueue"), vec![0, 0])
        );
        assert_eq!(reported["messages"], wanted.len());
        assert!(waiting(&to, "") == wanted, "round {round}");
        let reported = report(&from, &to, &["--all"], 0);
        assert_eq!(reported["consumers"][0]["seq"], all.len() - wanted.len());
        assert!(waiting(&to, "") == wanted, "round {round}");
        Queue::open(&to).unwrap().seek(0).unwrap();
        assert!(waiting(&to, "") == all, "round {round}");
    }
}

#[test]
fn what_is_torn_or_damaged_in_a_pqueue_is_decided_as_described() {
    let mut random = Random::new(seed("import_pqueue_torn"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(&from).unwrap();
    let (held, later) = (some(&mut random, 20), some(&mut random, 5));
    let (whole, places) = segment(&held);
    let file = from.join(format!("seg_{FIRST}"));
    fs::write(from.join(format!("seg_{}", FIRST + 9)), segment(&later).0).unwrap();
    let and_later = |kept: &[Vec<u8>]| [kept, &later].concat();
    // The last entry is cut at each of its bytes, up to its payload's middle.
    let last = places[places.len() - 2];
    for end in last + 1..last + 9 + held[held.len() - 1].len() / 2 {
        fs::write(&file, &whole[..end.min(whole.len() - 1)]).unwrap();
        let reported = report(&from, &to, &[], 1);
        assert_eq!(findings(&reported)[..2], [1, 0], "{reported}");
        assert!(waiting(&to, "") == and_later(&held[..held.len() - 1]), "{end}");
        if end > last + 20 {
            break;
        }
    }
    // The offset's file: cut, no boundary, behind the end.
    fs::write(&file, &whole).unwrap();
    let offset = from.join(format!("seg_{FIRST}.offset"));
    let row: Vec<u8> = places[1..=3].iter().flat_map(|at| be64(*at as u64)).collect();
    for (bytes, first, torn) in [
        (row[..23].to_vec(), 2, 1),
        (row[..7].to_vec(), 0, 1),
        (be64(places[3] as u64 + 1), 3, 1),
        (be64(3), 0, 0),
        (be64(u64::MAX), held.len(), 1),
        (row.clone(), 3, 0),
    ] {
        fs::write(&offset, &bytes).unwrap();
        let reported = report(&from, &to, &[], i32::from(torn > 0));
        assert_eq!(findings(&reported)[..2], [torn, 0], "{reported}");
        assert!(waiting(&to, "") == and_later(&held[first..]), "{bytes:?}");
    }
    fs::remove_file(&offset).unwrap();
    // A wrong checksum costs that entry.
    let comes = |at| at == 0 || at + 1 == held.len() || comes(at as u64 + 1, 4);
    for number in (0..held.len()).filter(|number| comes(*number)) {
        let mut bytes = whole.clone();
        bytes[places[number] + 8 + held[number].len() / 2] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let reported = report(&from, &to, &[], 1);
        assert_eq!(findings(&reported)[..2], [0, 1], "{reported}");
        let kept = [&held[..number], &held[number + 1..]].concat();
        assert!(waiting(&to, "") == and_later(&kept), "{number}");
    }
    // A segment of another format.
    fs::write(&file, [&[0, 0, 0, 1], &whole[4..]].concat()).unwrap();
    assert_eq!(findings(&report(&from, &to, &[], 1))[..2], [0, 1]);
    assert!(waiting(&to, "") == later);
    // Random bytes anywhere: it ends, and the source stays.
    for _ in 0..sample(60) {
        let mut bytes = whole.clone();
        for _ in 0..random.size(1..=6) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        fs::write(&file, &bytes).unwrap();
        let reported = report(&from, &to, &[], 1);
        let kept = waiting(&to, "");
        assert!(
            kept.ends_with(&later) && findings(&reported)[0] + findings(&reported)[1] > 0,
            "{reported}"
        );
    }
}

#[test]
fn the_order_of_times_can_be_had() {
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(&from).unwrap();
    for (number, ago) in [(1, 10), (2, 20)] {
        let path = from.join(format!("seg_{number}"));
        fs::write(&path, segment(&[vec![number; 3]]).0).unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(ago);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(findings(&report(&from, &to, &[], 0)), [0, 0, 1]);
    assert_eq!(waiting(&to, ""), [[1; 3], [2; 3]]);
    report(&from, &to, &["--order", "mtime"], 0);
    assert_eq!(waiting(&to, ""), [[2; 3], [1; 3]]);
}

#[test]
fn names_empty_runs_and_half_added_consumers() {
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let mut big = Big::new(4096);
    for message in [&b"a"[..], b"b"] {
        big.enqueue(message);
    }
    (0..100).for_each(|_| big.enqueue(b""));
    big.enqueue(b"c");
    for name in [&b"__default__"[..], b"", b"x\xff", &[b'n'; 300]] {
        big.head(name, 1);
    }
    big.write_to(&from, Release::Five);
    let reported = report(&from, &to, &[], 0);
    assert_eq!(findings(&reported), [0, 0, 4], "{reported}");
    let mut names = Queue::open(&to).unwrap().consumers();
    names.sort();
    assert_eq!((names[0].as_str(), names[2].as_str()), ("%", "x%FF"));
    ends(on("import", &from, &[to.to_str().unwrap(), "--dry-run", "--rename", "x%FE=x"]), 6);
    fs::remove_dir_all(&to).unwrap();
    ends(on("import", &from, &[to.to_str().unwrap(), "--rename", "x%FE=x"]), 5);
    assert!(!to.exists());
    report(&from, &to, &["--rename", "%=empty"], 0);
    assert!(Queue::open(&to).unwrap().consumers().contains(&"empty".to_owned()));
    let reported = report(&from, &to, &["--stop-at-empty-run", "64"], 1);
    assert_eq!((waiting(&to, ""), findings(&reported)[1]), (vec![b"b".to_vec()], 1));
    // Bytes behind the last counted row; a count without its row.
    let whole = fs::read(from.join("metadata.dat")).unwrap();
    fs::write(from.join("metadata.dat"), [&whole[..], b"12345"].concat()).unwrap();
    assert_eq!(findings(&report(&from, &to, &[], 1))[..2], [1, 0]);
    let mut more = whole.clone();
    more[48] += 1;
    fs::write(from.join("metadata.dat"), more).unwrap();
    assert_eq!(findings(&report(&from, &to, &[], 1))[..2], [1, 0]);
}

#[test]
fn what_cannot_be_imported_is_named() {
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let new = to.to_str().unwrap();
    ends(on("import", &from, &[new]), 5);
    fs::create_dir_all(&from).unwrap();
    for (name, wanted) in [
        ("letter", "no queue that mmq can import"),
        ("q.dque", "dque"),
        ("q.diskqueue.meta.dat", "go-diskqueue"),
        ("metainfo.json", "VictoriaMetrics"),
    ] {
        fs::write(from.join(name), "x").unwrap();
        let output = ends(on("import", &from, &[new]), 5);
        assert!(said(&output).contains(wanted), "{}", said(&output));
        fs::remove_file(from.join(name)).unwrap();
    }
    let mut big = Big::new(4096);
    big.enqueue(b"one");
    big.head(b"__default__", 0);
    big.write_to(&from, Release::Five);
    // A target that holds something, or lies within the source.
    fs::create_dir_all(&to).unwrap();
    fs::write(to.join("letter"), "x").unwrap();
    ends(on("import", &from, &[new]), 6);
    fs::remove_file(to.join("letter")).unwrap();
    ends(on("import", &from, &[from.join("q").to_str().unwrap()]), 2);
    // A process that has a file open.
    let held = fs::File::open(from.join("metadata.dat")).unwrap();
    if cfg!(target_os = "linux") {
        let output = ends(on("import", &from, &[new, "--json"]), 4);
        let pid = format!("\"pid\":{}", std::process::id());
        assert!(said(&output).contains(&pid), "{}", said(&output));
    }
    ends(on("import", &from, &[new, "--force", "--dry-run"]), 0);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    drop(held);
    // What a killed import left goes; what is somebody else's stays.
    let left = dir.path().join("to.importing");
    Queue::open(left.join(".mmq-unfinished")).unwrap().enqueue("half").unwrap();
    ends(on("import", &from, &[new]), 0);
    assert_eq!(waiting(&to, ""), [b"one"]);
    assert!(!left.exists());
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("letter"), "x").unwrap();
    fs::remove_dir_all(&to).unwrap();
    ends(on("import", &from, &[new]), 0);
    assert!(left.join("letter").exists());
    // Both kinds of arenas.
    fs::write(from.join("arena_0.dat"), [0; 4096]).unwrap();
    fs::remove_dir_all(&to).unwrap();
    ends(on("import", &from, &[new]), 6);
    ends(on("import", &from, &[new, "--as", "bigqueue-0.5"]), 0);
}

/// A message as the harness of the peers describes it.
fn fixture(number: u64, size: u64) -> Vec<u8> {
    let mut state = number;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..number * 7919 % (size + 1)).map(byte).collect()
}

#[test]
fn directories_of_the_real_programs_come_over() {
    let dir = crate::support::tempdir().unwrap();
    let Some(peers) = std::env::var_os("MMQ_PEERS") else {
        crate::support::skip("MMQ_PEERS names no sources of the peers' harness");
        return;
    };
    let peers = Path::new(&peers).join("go");
    let built = dir.path().join("peerbench-go");
    let made = crate::support::command("go")
        .args(["build", "-o"])
        .arg(&built)
        .arg(".")
        .current_dir(&peers)
        .output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    for (round, (arena, n, size)) in
        [(4096, 900, 700), (8192, 500, 30_000), (131_072, 2000, 3000), (1 << 20, 3, 100)]
            .into_iter()
            .enumerate()
    {
        for scenario in ["bq-write", "pq-write"] {
            let (from, to) = (dir.path().join(format!("{scenario}{round}")), dir.path().join("to"));
            let mut call = crate::support::command(&built);
            call.args(["--scenario", scenario, "--dir"]).arg(&from);
            let numbers = [arena, n, size, 100].map(|number| number.to_string());
            for (flag, number) in ["--arena", "--n", "--size", "--cap"].iter().zip(&numbers) {
                call.args([flag, number.as_str()]);
            }
            let output = call.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let reported = report(&from, &to, &[], 0);
            let held = waiting(&to, "");
            let all = (0..n as u64).map(|i| fixture(i, size as u64));
            let all: Vec<_> =
                all.filter(|message| !message.is_empty() || scenario == "bq-write").collect();
            assert!(held == all[all.len() / 2..], "{reported}");
            println!("{scenario} {arena}: {} messages", held.len());
        }
    }
}
