//! Files that are removed, swapped, replaced, or in the company of others.

use super::*;
use crate::support::{comes, some_of};

/// The segments with their numbers, or a sample of them with the first and the last.
fn some_segments<T>(segments: &[T]) -> impl Iterator<Item = (usize, &T)> {
    let is_end = |number| number == 0 || number + 1 == segments.len();
    let all = segments.iter().enumerate();
    all.filter(move |(number, _)| is_end(*number) || comes(*number as u64 + 1, 4))
}

#[test]
fn a_removed_segment_costs_its_own_messages() {
    for base in bases() {
        for (number, segment) in some_segments(&base.live) {
            case(&base, &format!("{} removed", segment.name), |dir| {
                fs::remove_file(dir.join(&segment.name)).unwrap();
                damaged_segment(base.whole(number))
            });
        }
    }
}

#[test]
fn two_segments_that_changed_names_cost_nothing() {
    for base in bases() {
        for (number, other) in some_segments(&base.live[1..]) {
            let one = &base.live[number];
            case(&base, &format!("{} and {} swapped", one.name, other.name), |dir| {
                fs::rename(dir.join(&one.name), dir.join("between")).unwrap();
                fs::rename(dir.join(&other.name), dir.join(&one.name)).unwrap();
                fs::rename(dir.join("between"), dir.join(&other.name)).unwrap();
                damaged_segment(NOTHING)
            });
        }
    }
}

#[test]
fn a_segment_of_another_queue_costs_what_it_replaced_or_nothing_if_that_has_another_name() {
    let messages = Messages::new(8, &[0..=400, 0..=4000]);
    let aside = crate::support::tempdir().unwrap();
    let options = Options::new().arena_size(4096).max_bytes(4 << 20);
    // Made alike, so that their segments differ by the queue's id alone.
    let [dir, other] = ["queue", "other"].map(|name| aside.path().join(name));
    for dir in [&dir, &other] {
        let queue = options.clone().open(dir).unwrap();
        crate::support::fill_queue(&queue, &messages, 0, 1000);
        // Whoever never read begins with what is held.
        assert!(queue.peek().unwrap().is_some());
        queue.close().unwrap();
    }
    let live = crate::support::segments(&dir).len();
    assert!(live > 2, "{live} segments");
    for (number, elsewhere) in (0..live).flat_map(|number| [(number, false), (number, true)]) {
        let case = aside.path().join(format!("{number} {elsewhere}"));
        copy_directory(&dir, &case);
        let place = &crate::support::segments(&case)[number];
        if elsewhere {
            fs::rename(place, case.join("segment-00000070")).unwrap();
        }
        fs::copy(other.join(place.file_name().unwrap()), place).unwrap();
        let (options, messages) = (options.clone(), messages.clone());
        within(Duration::from_secs(60), move || {
            let queue = options.open(&case).unwrap();
            let drained = drain(&queue, 1010, |seq, bytes| messages.check(seq, bytes));
            assert_eq!(drained.span(), Some((0, 1000)), "each number is reported once");
            let gaps = drained.gaps();
            assert_eq!(gaps.len(), usize::from(!elsewhere), "{gaps:?}");
            assert!(
                gaps.iter().all(|gap| gap.cause == GapCause::Damaged && gap.count() < 500),
                "{gaps:?}"
            );
            assert_eq!(queue.enqueue("after").unwrap(), 1000);
            assert_eq!(next_message(&queue), Some((1000, b"after".to_vec())));
            queue.close().unwrap();
        });
    }
}

#[test]
fn an_old_copy_of_a_segment_put_back_costs_what_it_lacks_and_delivers_nothing_stale() {
    for base in bases() {
        for (number, segment) in some_segments(&base.live) {
            for old in ["before recycling", "half way"] {
                let copy = base.dir.path().join(old).join(&segment.name);
                if copy.exists() {
                    case(&base, &format!("{} from {old}", segment.name), |dir| {
                        fs::copy(&copy, dir.join(&segment.name)).unwrap();
                        damaged_segment(base.whole(number))
                    });
                }
            }
        }
    }
}

#[test]
fn an_index_removed_replaced_or_overwritten_costs_nothing() {
    let elsewhere = crate::support::tempdir().unwrap();
    let another = Options::new().arena_size(4096).open(elsewhere.path()).unwrap();
    another.enqueue_batch([[1; 100]; 50]).unwrap();
    another.dequeue().unwrap().unwrap();
    another.close().unwrap();
    let mut random = Random::new(seed("index"));
    for (turn, base) in bases().into_iter().enumerate() {
        let length = fs::metadata(base.files().join("index")).unwrap().len() as usize;
        let mut garbage = vec![0; length];
        garbage.fill_with(|| random.next() as u8);
        let replacements = [
            ("empty", Vec::new()),
            ("zeros", vec![0; length]),
            ("ones", vec![0xff; length]),
            ("garbage", garbage),
            ("of another queue", fs::read(elsewhere.path().join("index")).unwrap()),
            ("from half way", fs::read(base.dir.path().join("half way/index")).unwrap()),
            (
                "from before recycling",
                fs::read(base.dir.path().join("before recycling/index")).unwrap(),
            ),
        ];
        case(&base, "index removed", |dir| {
            fs::remove_file(dir.join("index")).unwrap();
            damaged_index()
        });
        // Each of them in the first queue; the others have one in four, and each its own.
        let has = |number: usize| turn == 0 || comes((number + 3 * turn) as u64, 4);
        for (_, (what, bytes)) in (0..).zip(replacements).filter(|(number, _)| has(*number)) {
            case(&base, &format!("index {what}"), |dir| {
                fs::write(dir.join("index"), &bytes).unwrap();
                damaged_index()
            });
        }
    }
}

#[test]
fn what_is_damaged_is_kept_under_another_name() {
    let [base, ..] = bases();
    let copy = crate::support::tempdir().unwrap();
    let dir = copy.path().join("queue");
    copy_directory(&base.files(), &dir);
    let segment = &base.live[1].name;
    fs::write(dir.join("index"), "not an index").unwrap();
    fs::write(dir.join(segment), "not a segment").unwrap();
    drain(&base.options.clone().open(&dir).unwrap(), 100_000, |seq, bytes| base.check(seq, bytes));
    let kept: Vec<Vec<u8>> = names(&dir)
        .iter()
        .filter(|name| name.contains(".damaged"))
        .map(|name| fs::read(dir.join(name)).unwrap())
        .collect();
    for wanted in ["not an index", "not a segment"] {
        assert!(kept.iter().any(|bytes| bytes == wanted.as_bytes()), "{wanted}: {:?}", names(&dir));
    }
}

/// Reading its zeros would take minutes.
#[test]
fn a_file_longer_than_a_segment_is_set_aside_unread() {
    let [base, ..] = bases();
    let copy = crate::support::tempdir().unwrap();
    let dir = copy.path().join("queue");
    copy_directory(&base.files(), &dir);
    fs::File::create(dir.join("segment-00000999")).unwrap().set_len(64 << 30).unwrap();
    drain(&base.options.clone().open(&dir).unwrap(), 100_000, |seq, bytes| base.check(seq, bytes));
    let aside = dir.join("segment-00000999.damaged");
    assert_eq!(fs::metadata(aside).unwrap().len(), 64 << 30, "{:?}", names(&dir));
}

#[test]
fn a_directory_in_place_of_a_segment_costs_that_segment() {
    for base in bases() {
        for (number, segment) in some_segments(&base.live) {
            case(&base, &format!("directory in place of {}", segment.name), |dir| {
                fs::remove_file(dir.join(&segment.name)).unwrap();
                fs::create_dir(dir.join(&segment.name)).unwrap();
                damaged_segment(base.whole(number))
            });
        }
    }
}

#[test]
fn a_directory_in_place_of_the_index_costs_nothing() {
    let [base, ..] = bases();
    case(&base, "directory in place of the index", |dir| {
        fs::remove_file(dir.join("index")).unwrap();
        fs::create_dir(dir.join("index")).unwrap();
        damaged_index()
    });
}

/// Whoever moves files to another disk and leaves links loses nothing: an error names the first one
/// that is met, and a salvage reads them all.
#[test]
fn symbolic_links_of_the_files_are_an_error_that_says_so_and_cost_nothing() {
    let messages = Messages::new(9, &[0..=400, 0..=4000]);
    let aside = crate::support::tempdir().unwrap();
    let (dir, moved) = (aside.path().join("queue"), aside.path().join("moved"));
    let options = Options::new().arena_size(4096).max_bytes(4 << 20);
    let queue = options.clone().open(&dir).unwrap();
    crate::support::fill_queue(&queue, &messages, 0, 1000);
    queue.close().unwrap();
    fs::create_dir(&moved).unwrap();
    let before = names(&dir);
    let tell = |name: &String, error: Error| {
        let error = error.to_string();
        assert!(error.contains(name) && error.contains("is a symbolic link"), "{error}");
        assert_eq!(names(&dir), before, "nothing is set aside");
    };
    let links = |names: &[&String]| {
        for name in names {
            fs::rename(dir.join(name), moved.join(name)).unwrap();
            symlink(moved.join(name), dir.join(name)).unwrap();
        }
        let salvaged: Vec<_> = mmq::Salvage::of([&dir]).messages().unwrap().collect();
        for (seq, salvaged) in (0..).zip(&salvaged) {
            let mmq::Salvaged::Message { message, .. } = salvaged else { panic!("{salvaged:?}") };
            messages.check(seq, message);
        }
        assert_eq!(salvaged.len(), 1000);
    };
    let put_back = |names: &[&String]| {
        for name in names {
            fs::rename(moved.join(name), dir.join(name)).unwrap();
        }
    };
    // The index, a segment in the middle, that of the tail, all of them: refused, also by whoever
    // only looks.
    let all: Vec<_> = before.iter().collect();
    let last = all.len() - 1;
    for (linked, named) in
        [(&all[..1], all[0]), (&all[2..3], all[2]), (&all[last..], all[last]), (&all[..], all[0])]
    {
        links(linked);
        tell(named, options.clone().open(&dir).map(drop).unwrap_err());
        if linked.contains(&all[0]) {
            tell(named, mmq::Inspector::open(&dir).and_then(|it| it.snapshot()).unwrap_err());
        }
        put_back(linked);
    }
    links(&all[2..3]);
    // With nothing at its other end a salvage names it.
    fs::rename(&moved, aside.path().join("elsewhere")).unwrap();
    let mut salvaged = mmq::Salvage::of([&dir]).messages().unwrap();
    salvaged.by_ref().for_each(drop);
    let report = salvaged.into_report();
    let told = report.files.iter().find(|file| file.path.ends_with(all[2])).unwrap();
    assert!(told.damage[0].contains("is a symbolic link"), "{told:?}");
    fs::rename(aside.path().join("elsewhere"), &moved).unwrap();
    put_back(&all[2..3]);
    drain_exactly(&options.open(&dir).unwrap(), &messages, 0, 1000);
}

#[test]
fn hard_links_of_the_files_are_an_error_that_says_so_and_cost_nothing() {
    let messages = Messages::new(9, &[0..=400, 0..=4000]);
    let aside = crate::support::tempdir().unwrap();
    let (dir, backup) = (aside.path().join("queue"), aside.path().join("backup"));
    let options = Options::new().arena_size(4096).max_bytes(4 << 20);
    let queue = options.clone().open(&dir).unwrap();
    crate::support::fill_queue(&queue, &messages, 0, 1000);
    queue.close().unwrap();
    let before = names(&dir);
    let link = |name: &String| fs::hard_link(dir.join(name), backup.join(name)).unwrap();
    // All of them, as `cp -al` makes a backup; then one segment alone.
    fs::create_dir(&backup).unwrap();
    before.iter().for_each(link);
    let error =
        options.clone().open(&dir).expect_err("what a store reaches is not known").to_string();
    assert!(error.contains("index") && error.contains("hard link"), "{error}");
    assert_eq!(names(&dir), before, "nothing is set aside");
    fs::remove_dir_all(&backup).unwrap();
    fs::create_dir(&backup).unwrap();
    link(&before[2]);
    let queue = options.open(&dir).unwrap();
    let mut read = 0;
    let error = loop {
        match queue.dequeue() {
            Ok(message) => assert_eq!(message.map(|message| message.seq()), Some(read)),
            Err(error) => break error.to_string(),
        }
        read += 1;
    };
    assert!(error.contains(&before[2]) && error.contains("hard link"), "{error}");
    fs::remove_dir_all(&backup).unwrap();
    drain_exactly(&queue, &messages, read, 1000);
}

#[test]
fn foreign_files_beside_the_segments_cost_nothing() {
    for base in bases() {
        let stranger = "a file of somebody else ".repeat(5000);
        let foreign = [
            "notes.txt",
            "segment-99999999",
            "segment-00000000.tmp",
            "segment-99999999999999999999",
            "index2",
        ];
        case(&base, "foreign files", |dir| {
            for name in foreign {
                fs::write(dir.join(name), &stranger).unwrap();
            }
            // A true copy of a segment under a name of its own.
            fs::copy(dir.join(&base.live[0].name), dir.join("segment-88888888")).unwrap();
            fs::create_dir(dir.join("segment-77777777")).unwrap();
            damaged_segment(NOTHING)
        });
    }
}

/// One file is left, cut where no file of mmq's ends, and its first sector is damaged: still a
/// queue's.
#[test]
fn what_is_left_of_one_file_is_still_a_queue() {
    let made = crate::support::tempdir().unwrap();
    Queue::open(made.path()).unwrap().enqueue("a message").unwrap();
    for name in ["index", "segment-00000000"] {
        let whole = fs::read(made.path().join(name)).unwrap();
        let cuts = [1, 2, 7, 8, 9, 47, 100, 511, 513, 700, 1025, 1100, 5000];
        for (turn, cut) in (0..).zip(cuts) {
            let opens = |what: &str, damage: &dyn Fn(&mut [u8])| {
                let dir = verdict::scratch();
                let mut bytes = whole[..cut].to_vec();
                damage(&mut bytes);
                fs::write(dir.path().join(name), &bytes).unwrap();
                let queue = Queue::open(dir.path())
                    .unwrap_or_else(|error| panic!("{name} cut at {cut}, {what}: {error}"));
                queue.enqueue("after").unwrap();
            };
            opens("undamaged", &|_| ());
            // Of fewer than eight bytes the magic number's own are needed.
            // (In a sample each cut has two places, and each place two cuts or more.)
            for at in some_of(0..8, 4, 3 * turn).filter(|_| cut >= 8).map(|at| at as usize) {
                opens("one byte", &|bytes| bytes[at] ^= 0x55);
                opens("two bytes", &|bytes| {
                    bytes[at] ^= 0x55;
                    bytes[(at + 3) % 8] ^= 0x55;
                });
                opens("a sector", &|bytes| bytes[at..cut.min(at + 512)].fill(0));
            }
        }
    }
}

/// A queue without the segment would assign its numbers again.
#[test]
fn an_index_and_a_segment_that_have_each_others_names_are_an_error_that_changes_nothing() {
    let dir = crate::support::tempdir().unwrap();
    let [index, segment, between] =
        ["index", "segment-00000000", "between"].map(|name| dir.path().join(name));
    Queue::open(dir.path()).unwrap().enqueue("kept").unwrap();
    fs::rename(&index, &between).unwrap();
    fs::rename(&segment, &index).unwrap();
    fs::rename(&between, &segment).unwrap();
    let before = (fs::read(&index).unwrap(), fs::read(&segment).unwrap());
    let error = Queue::open(dir.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains("index") && error.contains("it is a segment"), "{error}");
    let seen = Inspector::open(dir.path()).unwrap().snapshot().map(drop).unwrap_err();
    assert_eq!(seen.to_string(), error);
    assert_eq!((fs::read(&index).unwrap(), fs::read(&segment).unwrap()), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    // A copy of the segment costs the index alone.
    fs::copy(&index, dir.path().join("segment-00000001")).unwrap();
    assert_eq!(Queue::open(dir.path()).unwrap().len(), 1);
}

/// The index is one queue's and the only segment another one's: which of the two was put there by
/// mistake is for the user to say. Either file alone opens.
#[test]
fn an_index_and_a_segment_of_two_queues_are_an_error_that_changes_nothing() {
    let [one, other, mixed] = [(); 3].map(|()| crate::support::tempdir().unwrap());
    for (dir, message) in [(&one, "one"), (&other, "other")] {
        Queue::open(dir.path()).unwrap().enqueue(message).unwrap();
    }
    let (index, segment) = (mixed.path().join("index"), mixed.path().join("segment-00000000"));
    fs::copy(one.path().join("index"), &index).unwrap();
    fs::copy(other.path().join("segment-00000000"), &segment).unwrap();
    let before = (fs::read(&index).unwrap(), fs::read(&segment).unwrap());
    let error = Queue::open(mixed.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains("segment-00000000") && error.contains("another queue's"), "{error}");
    assert_eq!((fs::read(&index).unwrap(), fs::read(&segment).unwrap()), before);
    assert_eq!(fs::read_dir(mixed.path()).unwrap().count(), 2);
    fs::remove_file(&index).unwrap();
    let queue = Queue::open(mixed.path()).unwrap();
    assert_eq!(next_message(&queue), Some((0, b"other".to_vec())));
    queue.close().unwrap();
    fs::remove_file(&segment).unwrap();
    fs::copy(one.path().join("index"), &index).unwrap();
    assert_eq!(Queue::open(mixed.path()).unwrap().enqueue("after").unwrap(), 1);
}
