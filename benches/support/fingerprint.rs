//! The machine's fingerprint: one line that tells the figures of two machines apart, and those of
//! two days on a machine that others share. (The name of a virtual machine's processor says little
//! of the processor behind it.) Benchmarks and examples include this file.

use std::fs;
use std::hint::{black_box, spin_loop};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const ROUNDS: usize = 31;
const STEPS: u32 = 20_000;

/// Measures this machine, and the disk that holds the directory `dir`.
pub(crate) fn fingerprint(dir: &Path) -> String {
    let cycle = nanos(2 * STEPS, || black_box(1), alternate);
    let cycles = |ns: f64| format!("{:.1}", ns / cycle);
    let [alone, among_eight] = crc32().map_or(["-".into(), "-".into()], |ns| ns.map(cycles));
    let pause = nanos(1000, || (), |()| (0..1000).for_each(|_| spin_loop()));
    let line = round_trip().map_or("-".into(), |ns| format!("{ns:.0} ns"));
    format!(
        "{}: {:.2} GHz, crc32 {alone} cycles ({among_eight} among eight), spin_loop {pause:.0} ns, \
         page fault {:.0} ns, cache line there and back {line}, fdatasync of 4 KiB {:.0} us",
        processor(),
        1.0 / cycle,
        page_fault(),
        fdatasync(dir) / 1e3,
    )
}

/// Nanoseconds of one of the `count` steps of `work`: the first quartile of the rounds, because
/// other programs disturb some. What comes before `work`, and the drop of what it returns, are not
/// timed.
fn nanos<T, R>(count: u32, before: impl Fn() -> T, mut work: impl FnMut(T) -> R) -> f64 {
    let mut times: [f64; ROUNDS] = std::array::from_fn(|_| {
        let ready = before();
        let began = Instant::now();
        let returned = work(ready);
        let time = began.elapsed();
        drop(returned);
        time.as_nanos() as f64 / f64::from(count)
    });
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 4]
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or(std::env::consts::ARCH, |line| line.trim_matches(['\t', ' ', ':'])).to_owned()
}

/// An exclusive or and an addition by turns. Each waits for the one before it, for one cycle.
fn alternate(mut x: u64) -> u64 {
    let odd = black_box(0x9E37_79B9_7F4A_7C15);
    for step in 0..STEPS {
        x = (x ^ u64::from(step)).wrapping_add(odd);
    }
    black_box(x)
}

/// Nanoseconds of a `crc32` instruction that waits for the one before it, and of one of eight that
/// do not wait for each other.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "an instruction that some processors do not have")]
fn crc32() -> Option<[f64; 2]> {
    #[target_feature(enable = "sse4.2")]
    fn chains<const N: usize>(mut states: [u64; N]) {
        for step in 0..STEPS {
            for state in &mut states {
                *state = std::arch::x86_64::_mm_crc32_u64(*state, u64::from(step));
            }
        }
        black_box(states);
    }
    // SAFETY: called only where the processor has the instruction.
    let alone = || nanos(STEPS, || black_box([1; 1]), |states| unsafe { chains(states) });
    // SAFETY: as above.
    let eight = || nanos(8 * STEPS, || black_box([1; 8]), |states| unsafe { chains(states) });
    is_x86_feature_detected!("sse4.2").then(|| [alone(), eight()])
}

#[cfg(not(target_arch = "x86_64"))]
fn crc32() -> Option<[f64; 2]> {
    None
}

/// Nanoseconds of the first store to a page of memory that is mapped and not there yet.
fn page_fault() -> f64 {
    const PAGES: usize = 256;
    let page = rustix::param::page_size();
    let fresh = || {
        let map = memmap2::MmapMut::map_anon(PAGES * page).expect("memory");
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::NoHugePage);
        map
    };
    nanos(PAGES as u32, fresh, |mut map| {
        map.chunks_mut(page).for_each(|page| page[0] = 1);
        map
    })
}

/// Nanoseconds that a cache line takes from the first processor to the last one and back.
#[cfg(target_os = "linux")]
fn round_trip() -> Option<f64> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    const TRIPS: u64 = 200;
    #[repr(align(128))]
    struct Line(AtomicU64);
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at));
    let (first, last) = (processors.next()?, processors.next_back()?);
    let stay_on = |processor| {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).expect("a processor that this program may use");
    };
    let line = Line(AtomicU64::new(0));
    let wait_for = |value| {
        while line.0.load(Ordering::Acquire) != value {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(last);
            for trip in 0..ROUNDS as u64 * TRIPS {
                wait_for(2 * trip + 1);
                line.0.store(2 * trip + 2, Ordering::Release);
            }
        });
        let there_and_back = scope.spawn(|| {
            stay_on(first);
            let mut sent = 0;
            nanos(
                TRIPS as u32,
                || (),
                |()| {
                    for _ in 0..TRIPS {
                        line.0.store(sent + 1, Ordering::Release);
                        sent += 2;
                        wait_for(sent);
                    }
                },
            )
        });
        there_and_back.join().ok()
    })
}

#[cfg(not(target_os = "linux"))]
fn round_trip() -> Option<f64> {
    None
}

/// Nanoseconds until a page that is written again is on the disk.
fn fdatasync(dir: &Path) -> f64 {
    let file = tempfile::tempfile_in(dir).expect("a new file");
    let write = |byte| file.write_all_at(&[byte; 4096], 0).expect("room on the disk");
    write(1);
    file.sync_all().expect("a disk");
    nanos(1, || write(2), |()| file.sync_data().expect("a disk"))
}
