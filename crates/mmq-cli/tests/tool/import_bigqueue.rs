//! `import` of bigqueue: each release, each torn state.

use std::fs;
use std::path::Path;

use mmq::Queue;
use serde_json::Value;

use crate::import_writers::{Big, RELEASES, Release, messages, picture};
use crate::run::{ends, on, said};
use crate::support::{Random, comes, sample, seed};

pub(crate) fn report(dir: &Path, new: &Path, words: &[&str], status: i32) -> Value {
    let _ = fs::remove_dir_all(new);
    let before = picture(dir);
    let mut call = on("import", dir, &[new.to_str().unwrap(), "--json", "--force"]);
    let output = ends(
        {
            call.args(words);
            call
        },
        status,
    );
    assert!(picture(dir) == before, "the source is as it was");
    assert!(!new.with_extension("importing").exists());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

/// What waits for that consumer; the empty name is the queue's own.
pub(crate) fn waiting(new: &Path, name: &str) -> Vec<Vec<u8>> {
    let queue = Queue::open(new).unwrap();
    let all = |iter: mmq::Iter| iter.map(|message| message.unwrap().to_vec()).collect();
    match name {
        "" => all(queue.iter()),
        name => all(queue.consumer(name).unwrap().iter()),
    }
}

fn count(report: &Value, what: &str) -> usize {
    report[what].as_array().unwrap().len()
}

/// A queue with heads at those numbers; the first is the default one.
fn filled(random: &mut Random, size: u64, count: usize, longest: usize, heads: &[usize]) -> Big {
    let mut big = Big::new(size);
    for message in messages(random, count, longest) {
        big.enqueue(&message);
    }
    for (row, number) in heads.iter().enumerate() {
        let name = if row == 0 { b"__default__".to_vec() } else { vec![b'a' + row as u8; row * 7] };
        big.head(&name, *number);
    }
    big
}

fn names(big: &Big) -> Vec<String> {
    let name = |(name, _): &(Vec<u8>, _)| String::from_utf8(name.clone()).unwrap();
    big.heads.iter().map(name).map(|name| name.replace("__default__", "")).collect()
}

#[test]
fn each_release_comes_over_with_every_place() {
    let mut random = Random::new(seed("import_bigqueue"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for release in RELEASES {
        let sizes: &[u64] =
            if release == Release::One { &[128 << 20] } else { &[4096, 4100, 8192, 131_072] };
        for size in sizes {
            let heads: Vec<usize> = (0..3).map(|_| random.size(0..=600)).collect();
            let rows = if matches!(release, Release::One | Release::Two) { 1 } else { 3 };
            let longest = if *size > 1 << 20 { 700 } else { 30_000 };
            let big = filled(&mut random, *size, 600, longest, &heads[..rows]);
            big.write_to(&from, release);
            let reported = report(&from, &to, &[], 0);
            assert_eq!(reported["kind"], release.kind());
            assert_eq!(reported["arena_size"], *size);
            let lowest = *heads[..rows].iter().min().unwrap();
            assert_eq!(reported["messages"], 600 - lowest);
            for (name, head) in names(&big).iter().zip(&heads) {
                let rows = reported["consumers"].as_array().unwrap();
                let row = rows.iter().find(|row| row["name"] == name.as_str()).unwrap();
                assert_eq!(row["seq"], *head - lowest);
                assert!(waiting(&to, name) == big.messages[*head..], "{release:?} {size} {name}");
            }
            if release != Release::Two {
                let reported = report(&from, &to, &["--all"], 0);
                assert_eq!(reported["messages"], 600);
                let queue = Queue::open(&to).unwrap();
                queue.seek(0).unwrap();
                drop(queue);
                assert!(waiting(&to, "") == big.messages, "all of {release:?}");
            }
        }
    }
}

/// New arena, old offset, at every record that leads to another arena.
#[test]
fn a_torn_tail_is_mended() {
    let mut random = Random::new(seed("import_torn_tail"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let (mut torn, mut imported) = (0, 0);
    for release in [Release::Two, Release::Four, Release::Five] {
        for size in [4096, 4100, 8192] {
            let all = messages(&mut random, 250, 3 * size as usize);
            let (mut big, head) = (Big::new(size), random.size(0..=20));
            for (number, message) in all.iter().enumerate() {
                let before = big.tail;
                big.enqueue(message);
                let stored = (big.tail.0, before.1);
                if number < head || big.tail.0 == before.0 || stored == big.tail {
                    continue;
                }
                torn += 1;
                if !comes(torn, 4) {
                    continue;
                }
                imported += 1;
                let mut cut = big.clone();
                cut.head(b"__default__", head);
                cut.tail = stored;
                cut.write_to(&from, release);
                let reported = report(&from, &to, &[], 1);
                assert_eq!(
                    (count(&reported, "torn"), count(&reported, "lost")),
                    (1, 0),
                    "{reported}"
                );
                assert!(waiting(&to, "") == all[head..=number], "{release:?} {size} {number}");
            }
        }
    }
    assert!(torn > 200, "{torn}");
    println!("{torn} torn tails, of which {imported} were imported");
}

#[test]
fn a_torn_head_is_mended() {
    let mut random = Random::new(seed("import_torn_head"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let (mut torn, mut imported) = (0, 0);
    for release in [Release::Two, Release::Four, Release::Five] {
        for size in [4096, 4100] {
            let big = filled(&mut random, size, 200, 3 * size as usize, &[]);
            for number in 0..199 {
                let (before, behind) = (big.place(number), big.place(number + 1));
                let stored = (behind.0, before.1);
                // A boundary by chance is one: nothing tells it apart.
                if before.0 == behind.0 || big.places.contains(&stored) || stored == big.tail {
                    continue;
                }
                torn += 1;
                if !comes(torn, 4) {
                    continue;
                }
                imported += 1;
                let mut cut = big.clone();
                cut.heads.push((b"__default__".to_vec(), stored));
                if release != Release::Two {
                    cut.head(b"later", number + 1);
                }
                cut.write_to(&from, release);
                if release == Release::Two {
                    // The arena of the head itself is still there.
                    let arena = from.join(release.arena(before.0));
                    fs::write(arena, &big.arenas[&before.0]).unwrap();
                }
                for id in before.0..behind.0 {
                    fs::write(from.join(release.arena(id)), &big.arenas[&id]).unwrap();
                }
                let reported = report(&from, &to, &[], 1);
                assert_eq!(
                    (count(&reported, "torn"), count(&reported, "lost")),
                    (1, 0),
                    "{reported}"
                );
                assert!(waiting(&to, "") == big.messages[number..], "{release:?} {size} {number}");
                if release != Release::Two {
                    assert!(waiting(&to, "later") == big.messages[number + 1..]);
                }
            }
        }
    }
    assert!(torn > 100, "{torn}");
    println!("{torn} torn heads, of which {imported} were imported");
}

#[test]
fn what_is_missing_is_reported_and_all_before_it_comes() {
    let mut random = Random::new(seed("import_missing"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let big = filled(&mut random, 4096, 200, 5000, &[20, 30]);
    let (head, last) = (big.place(20).0, big.tail.0);
    for release in [Release::Two, Release::Four, Release::Five] {
        let comes = |id| id == head + 1 || id == last || comes(id - head, 4);
        for id in (head + 1..=last).filter(|id| comes(*id)) {
            for len in [None, Some(random.below(4096))] {
                big.write_to(&from, release);
                let path = from.join(release.arena(id));
                match len {
                    None => fs::remove_file(&path).unwrap(),
                    Some(len) => {
                        fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
                    }
                }
                let end = (id, len.unwrap_or(0));
                let kept = (0..200).take_while(|n| big.place(n + 1) <= end).count();
                let reported = report(&from, &to, &[], i32::from(kept < 200));
                assert_eq!(count(&reported, "lost"), usize::from(kept < 200), "{reported}");
                assert!(waiting(&to, "") == big.messages[20..kept], "{release:?} {id} {len:?}");
            }
        }
    }
    // A tail that lies behind all that was written, and one within a record.
    for tail in [(last + 3, 17), (last, big.tail.1.saturating_sub(1)), (u64::MAX, u64::MAX)] {
        let mut cut = big.clone();
        cut.tail = tail;
        cut.arenas.retain(|id, _| *id <= last);
        cut.write_to(&from, Release::Five);
        let _ = fs::remove_file(from.join(Release::Five.arena(tail.0))).map(|()| {
            let bytes = big.arenas.get(&tail.0);
            bytes.map(|bytes| fs::write(from.join(Release::Five.arena(tail.0)), bytes).unwrap())
        });
        let reported = report(&from, &to, &[], 1);
        let kept = waiting(&to, "");
        assert!(count(&reported, "lost") == 1, "{reported}");
        let empty = kept.iter().skip(180).all(Vec::is_empty);
        assert!(kept.len() >= 179 && empty && kept[..179] == big.messages[20..199], "{tail:?}");
    }
}

#[test]
fn an_import_that_makes_nothing_ends_with_another_status_than_one_that_has_left_something_out() {
    let mut random = Random::new(seed("import_status"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    filled(&mut random, 4096, 60, 500, &[0]).write_to(&from, Release::Five);
    let metadata = from.join("metadata.dat");
    let whole = fs::read(&metadata).unwrap();
    fs::write(&metadata, &whole[..5]).unwrap();
    let words = [to.to_str().unwrap(), "--force"];
    let reported = said(&ends(on("import", &from, &words), 6));
    assert!(reported.contains("metadata.dat is cut off") && !to.exists(), "{reported}");
    fs::write(&metadata, whole).unwrap();
    report(&from, &to, &[], 0);
}

#[test]
fn random_metadata_end_in_order_and_change_nothing() {
    let mut random = Random::new(seed("import_random"));
    let dir = crate::support::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let big = filled(&mut random, 4096, 60, 5000, &[5, 9, 7]);
    for round in 0..sample(120) as usize {
        let release = [Release::Two, Release::Four, Release::Five][round % 3];
        big.write_to(&from, release);
        let name = if release == Release::Two { "index.dat" } else { "metadata.dat" };
        let mut bytes = fs::read(from.join(name)).unwrap();
        for _ in 0..random.size(1..=4) {
            let at = random.below(bytes.len() as u64) as usize;
            let wild = [0, 1, 0x7f, 0xff, random.next() as u8];
            bytes[at] = *random.pick(&wild);
        }
        if random.chance(8) && release != Release::Two {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        fs::write(from.join(name), &bytes).unwrap();
        let _ = fs::remove_dir_all(&to);
        let before = picture(&from);
        let words = [to.to_str().unwrap(), "--json", "--force"];
        let output = on("import", &from, &words).output().unwrap();
        let status = output.status.code().unwrap();
        assert!([0, 1, 6].contains(&status), "{status}: {}", said(&output));
        // The status alone says whether there is a new queue.
        assert_eq!(to.exists(), status < 6, "{status}: {}", said(&output));
        assert!(picture(&from) == before && !dir.path().join("to.importing").exists());
        assert!(!said(&output).contains("panicked"), "{}", said(&output));
    }
}
