//! What openings do, image by image: to compare before and after a change of `recovery` that must
//! not change its behaviour.
//!
//! `MMQ_DIGESTS=FILE cargo test --release --lib what_openings_do -- --ignored` writes a line for
//! each of the first 600 (times `MMQ_EFFORT`) images of the histories from 0 (`MMQ_SEED=N..`: N)
//! on. Run it before and after the change, and compare the files. A line has one digest for each
//! state in which the image is opened: as it is, seen from another mount, copied, mounted again
//! after a failure, without its index, with damage, and with a refused call. A digest sums up
//! everything that `recover` returns, every call that it makes and where it writes, the files
//! afterwards in the cache and on the disk, and what each consumer gets then.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::EACH;
use super::examine::{consumer_of, names_of, next_of};
use super::history::{History, Work};
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::error::Error;
use crate::format::{INDEX_NAME, index_at, live_at};
use crate::options::Options;
use crate::recovery::recover;
use crate::tests::effort::{effort, first};
use crate::tests::sim::{Call, Rng, SimStorage};

#[test]
#[ignore = "compares two versions of `recovery`: see above"]
fn what_openings_do() {
    let Ok(path) = std::env::var("MMQ_DIGESTS") else {
        panic!("MMQ_DIGESTS names the file they are written to")
    };
    let images = 600 * effort();
    let first = first().unwrap_or(0);
    let next = AtomicU64::new(first);
    let last = first + images.div_ceil(EACH);
    let work = || {
        let mut lines = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return lines;
            }
            let mut history = History::new(seed, Work::Everything).unwrap();
            history.digests = Some(Vec::new());
            let broken = history.run(EACH).err().map(|broken| format!("broken: {broken}"));
            let digests = history.digests.take().unwrap_or_default().into_iter().chain(broken);
            lines.extend(
                digests.enumerate().map(|(image, digest)| format!("{seed:06} {image:03} {digest}")),
            );
        }
    };
    let mut lines: Vec<String> = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    lines.sort();
    println!("{} images of {} histories", lines.len(), last - first);
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}

/// The states of an image, each by its name.
fn states_of(image: &SimStorage, rng: &mut Rng) -> Vec<(&'static str, SimStorage)> {
    let mut states = vec![
        ("as it is", image.process_kill()),
        ("elsewhere", image.seen_elsewhere()),
        ("copied", image.copied()),
        ("mounted again", image.mounted_again(rng.next())),
    ];
    let names = image.file_names();
    let segments: Vec<&String> = names.iter().filter(|name| *name != INDEX_NAME).collect();
    let mut changed = |rng: &mut Rng, name, change: &mut dyn FnMut(&SimStorage, &mut Rng)| {
        let base = match rng.below(3) {
            0 => image.process_kill(),
            1 => image.copied(),
            _ => image.seen_elsewhere(),
        };
        change(&base, rng);
        states.push((name, base));
    };
    let damage = |storage: &SimStorage, rng: &mut Rng, name: &str, from: usize, to: usize| {
        let len = storage.read_file(name).len().min(to);
        if from < len {
            let at = from + rng.below((len - from) as u64) as usize;
            storage.corrupt(name, at, &[storage.read_file(name)[at] ^ (1 + rng.below(255) as u8)]);
        }
    };
    if names.iter().any(|name| name == INDEX_NAME) {
        changed(rng, "no index", &mut |storage, _| storage.remove_file(INDEX_NAME));
        changed(rng, "index header", &mut |storage, rng| damage(storage, rng, INDEX_NAME, 0, 32));
        changed(rng, "checkpoint", &mut |storage, rng| {
            damage(storage, rng, INDEX_NAME, index_at::CHECKPOINT_A, 4096)
        });
        changed(rng, "live part", &mut |storage, rng| {
            damage(storage, rng, INDEX_NAME, index_at::LIVE, index_at::LIVE + 512);
        });
        changed(rng, "rows", &mut |storage, rng| {
            damage(storage, rng, INDEX_NAME, index_at::SEGMENTS, index_at::END)
        });
        changed(rng, "sectors", &mut |storage, rng| {
            let len = storage.read_file(INDEX_NAME).len();
            for at in (512..len.saturating_sub(512)).step_by(512).filter(|_| rng.percent(10)) {
                storage.corrupt(INDEX_NAME, at, &[0; 512]);
            }
        });
    }
    if !segments.is_empty() {
        let any = |rng: &mut Rng| segments[rng.below(segments.len() as u64) as usize].as_str();
        changed(rng, "no segment", &mut |storage, rng| storage.remove_file(any(rng)));
        changed(rng, "blank segment", &mut |storage, rng| storage.write_file(any(rng), &[0; 8192]));
        changed(rng, "segment header", &mut |storage, rng| {
            let name = any(rng);
            damage(storage, rng, name, 0, 128);
        });
        changed(rng, "segment", &mut |storage, rng| {
            for _ in 0..3 {
                let name = any(rng);
                damage(storage, rng, name, 128, usize::MAX);
            }
        });
    }
    changed(rng, "refused", &mut |storage, rng| {
        let calls = [
            Call::Open,
            Call::Rename,
            Call::Remove,
            Call::SyncDirectory,
            Call::SyncFile,
            Call::Map,
            Call::Write,
        ];
        let call = calls[rng.below(calls.len() as u64) as usize];
        storage.fail_after(call, 1 + rng.below(8), Errno::NOSPC, rng.percent(50));
    });
    states
}

/// One digest for each state of the image.
pub(super) fn digests_of(image: &SimStorage, options: &Options, number: u64) -> String {
    let mut rng = Rng(number ^ image.calls());
    let mut line = String::new();
    for (name, storage) in states_of(image, &mut rng) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let reported =
            if number.is_multiple_of(4) { storage.process_kill() } else { storage.clone() };
        match recover(
            &storage,
            &Options::new().create(number.is_multiple_of(8)).max_bytes(u64::MAX),
        ) {
            Ok(found) => {
                let crate::recovery::Recovered {
                    index,
                    found: segments,
                    opened: _,
                    tail,
                    next,
                    durable,
                    reservation,
                    consumers,
                    known_gaps,
                    evicted,
                    clean,
                    ended: _,
                    is_untouched: _,
                    places_cached,
                    files_unsynced,
                } = found;
                let words = format!(
                    "{segments:?} {tail:?} {next:?} {durable:?} {reservation} {consumers:?} {known_gaps:?} {evicted:?} \
                     {clean} {places_cached} {files_unsynced} {:?} {:?}",
                    index.checkpoint(),
                    index.queue_id,
                );
                words.hash(&mut hasher);
            }
            Err(error) => format!("{error:?}").hash(&mut hasher),
        }
        storage.calls().hash(&mut hasher);
        hash_files(&storage, &mut hasher);
        hash_files(&storage.power_cut_losing_all(), &mut hasher);
        if number.is_multiple_of(4) {
            reported_of(&reported, options).hash(&mut hasher);
        }
        write!(line, "{:016x} ", hasher.finish()).unwrap();
    }
    line
}

/// All files, but for who opened the queue when.
fn hash_files(storage: &SimStorage, hasher: &mut impl Hasher) {
    for name in storage.file_names() {
        let mut bytes = storage.read_file(&name);
        if name.starts_with(INDEX_NAME) {
            for (at, len) in [(live_at::LIVE_PID, 4), (live_at::LIVE_SINCE, 8)] {
                if let Some(bytes) = bytes.get_mut(index_at::LIVE + at..index_at::LIVE + at + len) {
                    bytes.fill(0);
                }
            }
            // They say how long flushes took.
            if let Some(bytes) = bytes.get_mut(index_at::FIGURES..index_at::ATTEMPTS) {
                bytes.fill(0);
            }
        }
        (name, bytes).hash(hasher);
    }
}

/// What reads report to every consumer after an opening.
fn reported_of(storage: &SimStorage, options: &Options) -> String {
    let queue = match Engine::open_without_workers(storage.clone(), options) {
        Ok(queue) => Arc::new(queue),
        Err(error) => return format!("{error:?}"),
    };
    let mut reported = format!("next {} ", next_of(&queue));
    for name in names_of(&queue) {
        let consumer = consumer_of(&queue, &name).unwrap();
        write!(reported, "{name} at {} ", consumer.seq()).unwrap();
        let Ok(mut ahead) = Ahead::new(&queue, &consumer) else { continue };
        while let Some(found) = ahead.next() {
            match found {
                Ok(message) => write!(reported, "{} {:?} ", message.seq(), &*message).unwrap(),
                Err(Error::Gap(gap)) => write!(reported, "{gap:?} ").unwrap(),
                Err(error) => write!(reported, "{error:?} ").unwrap(),
            }
        }
    }
    reported
}
