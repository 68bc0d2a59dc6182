//! The unsafe core against plain oracles; run under Miri too.

pub(super) mod heap;
mod locks;
#[cfg(target_os = "linux")]
pub(crate) mod sandbox;

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::window::BULK;
use super::*;
use crate::memory::checksum;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

fn window(len: usize) -> Window {
    Window::heap(&HeapMemory::new(len), 0, len)
}

fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mix = |i| (i as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    (0..len).map(|i| mix(i) as u8).collect()
}

#[test]
fn every_length_at_every_distance_is_copied_whole_and_nothing_beside_it() {
    let lengths: Vec<usize> = if cfg!(miri) {
        vec![0, 3, 8, 15, 16, 31, 32, 64, 65, 2048, 2049, 5000]
    } else {
        let longer = [2047, 2048, 2049, 4095, 4096, 5000, 16_384, 16_385, 20_001, 65_537];
        (0..300).chain(longer).collect()
    };
    let distances: &[usize] =
        if cfg!(miri) { &[0, 17] } else { &[0, 1, 8, 16, 31, 32, 63, 64, 65, 4080] };
    // Fewer rounds under Miri, where a byte takes a microsecond.
    let starts: &[usize] = if cfg!(miri) { &[3] } else { &[0, 3, 24] };
    let room = lengths.iter().max().unwrap() + 8192;
    let (from, to) = (window(room), window(room));
    let source = pattern(room, 1);
    from.copy_in(0, &source);
    for len in lengths {
        for distance in distances {
            for &start in starts {
                let (at, end) = (start + distance, start + distance + len);
                to.with_mut(0, room, |bytes| {
                    bytes[at.saturating_sub(64)..at].fill(0xee);
                    bytes[at..end + 64].fill(0xee);
                });
                to.copy_in(at, from.bytes(start, len));
                assert_eq!(to.bytes(at, len), &source[start..start + len], "{len} {distance}");
                let sum = to.with_mut(at, len, |bytes| {
                    bytes.fill(0);
                    from.copy_out_summed(start, bytes)
                });
                assert_eq!(sum, checksum::sum(0, &source[start..start + len]), "{len} {distance}");
                assert_eq!(to.bytes(at, len), &source[start..start + len], "{len} {distance}");
                assert!(to.bytes(at.saturating_sub(64), at.min(64)).iter().all(|&b| b == 0xee));
                assert!(to.bytes(end, 64).iter().all(|&b| b == 0xee), "{len} {distance}");
            }
        }
    }
}

#[test]
fn what_was_written_is_read_by_every_way_of_reading() {
    let window = window(4096);
    let lengths =
        [0, 1, 7, 8, 15, 16, 31, 32, 64, 65, 127, 128, 129, 240, 241, 1000, 1023, 1024, 3071, 3073];
    for len in lengths.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
        let bytes = pattern(len, 7);
        window.copy_in(100, &bytes);
        let mut out = vec![0; len];
        window.copy_out(100, &mut out);
        let mut appended = vec![9, 9];
        window.append_to(100, len, &mut appended);
        assert_eq!((&out[..], &appended[2..]), (&bytes[..], &bytes[..]));
        let expected = checksum::sum(0, &bytes);
        out.fill(0);
        appended.truncate(2);
        assert_eq!(window.copy_out_summed(100, &mut out), expected);
        assert_eq!(window.append_summed(100, len, &mut appended), expected);
        assert_eq!((&out[..], &appended[2..], appended[1]), (&bytes[..], &bytes[..], 9));
        assert_eq!(window.bytes(100, len), bytes);
        assert_eq!(window.sum(100, len), checksum::sum(0, &bytes));
        window.zero(100, len);
        assert!(window.bytes(0, 4096).iter().all(|&byte| byte == 0));
    }
    assert_eq!(
        window.with_mut(8, 4, |bytes| {
            bytes.fill(3);
            bytes.len()
        }),
        4
    );
    assert_eq!(window.bytes(7, 6), [0, 3, 3, 3, 3, 0]);
}

#[test]
fn words_are_little_endian_on_every_host() {
    let window = window(64);
    window.store_u64(8, 0x0807_0605_0403_0201);
    window.store_u32(16, 0x0c0b_0a09);
    window.store_row(24, [0x18], 0x19);
    assert_eq!(window.bytes(8, 12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(window.load_u64(8), 0x0807_0605_0403_0201);
    assert_eq!(window.load_u64_relaxed(16), 0x0c0b_0a09);
    assert_eq!((window.load_u64(24), window.load_u64(32)), (0x18, 0x19));
    window.put_fragment(32, &[5u8, 6, 7][..], |sum| {
        [1, u64::from(sum == checksum::sum(0, &[5, 6, 7])) + 1]
    });
    assert_eq!(window.load_pair(32), [1, 2]);
    assert_eq!((window.load_u64(32), window.load_u64(40), window.load_u64(48)), (1, 2, 0x07_0605));
}

#[test]
fn access_outside_of_the_window_or_misaligned_panics() {
    let memory = HeapMemory::new(128);
    let window = Window::heap(&memory, 0, 64);
    let end = usize::MAX;
    type Case<'a> = (&'a str, &'a dyn Fn(&Window));
    let cases: &[Case<'_>] = &[
        ("copy in", &|l| l.copy_in(60, &[0; 5])),
        ("copy in behind", &|l| l.copy_in(65, &[])),
        ("copy out", &|l| l.copy_out(1, &mut [0; 64])),
        ("append", &|l| l.append_to(64, 1, &mut Vec::new())),
        ("append summed", &|l| assert_eq!(l.append_summed(64, 1, &mut Vec::new()), 0)),
        ("copy out summed", &|l| assert_eq!(l.copy_out_summed(1, &mut [0; 64]), 0)),
        ("pair beyond", &|l| assert_eq!(l.load_pair(56), [0; 2])),
        ("pair misaligned", &|l| assert_eq!(l.load_pair(4), [0; 2])),
        ("row beyond", &|l| l.store_row(48, [1; 2], 1)),
        ("words beyond", &|l| l.store_words(56, [1; 2])),
        ("words misaligned", &|l| l.store_words(4, [1])),
        ("row misaligned", &|l| l.store_row(4, [1], 1)),
        ("append, sum wraps", &|l| l.append_to(end, 2, &mut Vec::new())),
        ("bytes, sum wraps", &|l| assert!(l.bytes(2, end).is_empty())),
        ("zero", &|l| l.zero(0, 65)),
        ("with_mut", &|l| l.with_mut(0, 65, |_| ())),
        ("sum", &|l| assert_eq!(l.sum(63, 2), 0)),
        ("load beyond", &|l| assert_eq!(l.load_u64(60), 0)),
        ("load misaligned", &|l| assert_eq!(l.load_u64(4), 0)),
        ("half misaligned", &|l| l.store_u32(2, 0)),
        ("store beyond", &|l| l.store_u32(64, 1)),
        ("fragment", &|l| l.put_fragment(40, &[0u8; 9][..], |_| [1, 1])),
        ("fragment misaligned", &|l| l.put_fragment::<[u8]>(4, &[], |_| [1, 1])),
        ("populate", &|l| assert!(l.populate_write(0, 65).is_ok())),
    ];
    for (name, access) in cases {
        let result = catch_unwind(AssertUnwindSafe(|| access(&window)));
        assert!(result.is_err(), "{name}");
    }
    let mut behind = [1; 64];
    assert_eq!(memory.read(64, &mut behind), 64);
    assert_eq!(behind, [0; 64], "nothing was written behind the window");
    window.copy_in(64, &[]);
    assert!(window.bytes(64, 0).is_empty());
}

#[test]
fn the_last_reference_unmaps_and_no_other() {
    let memory = HeapMemory::new(64);
    let mut first = Window::heap(&memory, 0, 64);
    assert_eq!((first.references(), first.weight()), (1, 1));
    let shared: Vec<Window> = (0..5).map(|_| first.share()).collect();
    assert_eq!(first.references(), 1 + BULK);
    assert_eq!(first.weight(), 1 + BULK - 5);
    let cloned = shared[0].clone_shared();
    assert_eq!(first.references() - first.weight(), 6);
    drop(shared);
    assert_eq!(first.references() - first.weight(), 1);
    drop(first);
    assert_eq!((cloned.references(), Arc::strong_count(&memory)), (1, 2));
    cloned.store_u64(0, 7);
    drop(cloned);
    assert_eq!(Arc::strong_count(&memory), 1);
    let mut seven = [0; 9];
    assert_eq!((memory.read(0, &mut seven), seven[0]), (9, 7));
}

#[test]
fn references_come_and_go_on_many_threads_and_what_was_written_through_one_is_seen_after_it() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let memory = HeapMemory::new(64);
    let mut window = Window::heap(&memory, 0, 64);
    thread::scope(|scope| {
        for slot in 0..4 {
            let mut own = if slot % 2 == 0 { window.share() } else { window.clone_shared() };
            scope.spawn(move || {
                for round in 1..=rounds {
                    let other = if round % 3 == 0 { own.clone_shared() } else { own.share() };
                    // Plain stores: only the count orders them before the owner's reads below.
                    other.copy_in(8 * slot, &(round as u64).to_le_bytes());
                    drop(std::mem::replace(&mut own, other));
                }
            });
        }
        // The threads are not joined: equal weights must be enough.
        while window.references() != window.weight() {
            thread::yield_now();
        }
        for slot in 0..4 {
            assert_eq!(window.bytes(8 * slot, 8), (rounds as u64).to_le_bytes());
        }
    });
    drop(window);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn whoever_sees_the_first_word_sees_the_whole_fragment() {
    for round in 1..if cfg!(miri) { 10 } else { 500 } {
        let mut window = window(256);
        let writer = window.share();
        thread::scope(|scope| {
            scope.spawn(move || {
                writer.put_fragment(16, &[round as u8; 100][..], |_| [round, !round])
            });
            while window.load_u64(16) != round {
                std::hint::spin_loop();
            }
            assert_eq!(window.load_u64_relaxed(24), !round);
            assert_eq!(window.bytes(32, 100), [round as u8; 100]);
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn a_mapped_file_shows_what_is_stored_and_is_unmapped_by_the_last_reference() {
    let directory = crate::tests::guard::tempdir().unwrap();
    let path = directory.path().join("window-test");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(3 * 65_536).unwrap();
    assert_eq!(Window::map_file(&file, 4, 8).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    // Beyond the end, and from within a page.
    let mut window = Window::map_file(&file, 65_536 + 8, 1 << 20).unwrap();
    window.populate_write(0, 65_536).unwrap();
    window.store_u64(0, 0x0102);
    window.copy_in(65_000, b"across pages");
    assert_eq!(window.load_u64(0), 0x0102);
    let on_disk = std::fs::read(&path).unwrap();
    assert_eq!(on_disk[65_536 + 8..][..3], [2, 1, 0]);
    assert_eq!(&on_disk[65_536 + 8 + 65_000..][..12], b"across pages");
    if cfg!(target_os = "linux") {
        assert!(window.populate_write(0, 1 << 20).is_err(), "told where a store would be SIGBUS");
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("window-test");
        let other = window.share();
        drop(window);
        assert!(mapped());
        drop(other);
        assert!(!mapped());
    }
}

#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "Miri does not know the call")]
#[test]
fn pages_mapped_anew_are_clean_and_keep_their_bytes() {
    let faults = || {
        let figures = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_name = figures.rsplit(')').next().unwrap();
        behind_name.split_whitespace().nth(7).unwrap().parse::<u64>().unwrap()
    };
    let (len, bytes) = (1 << 20, pattern(1 << 20, 5));
    let file = tempfile::tempfile().unwrap();
    file.set_len(len as u64).unwrap();
    let window = Window::map_file(&file, 0, len).unwrap();
    window.copy_in(0, &bytes);
    window.map_clean(0, len);
    let read = || (0..len).step_by(4096).fold(0, |sum, at| sum ^ window.load_u64(at));
    let first = read();
    window.map_clean(0, len);
    // (Code that runs for the first time faults too: the first count is for nothing.)
    let (_, before) = (faults(), faults());
    let again = read();
    let to_read = faults() - before;
    window.copy_in(0, &bytes);
    let to_store = faults() - before - to_read;
    assert_eq!((window.bytes(0, len), again), (&bytes[..], first));
    // Where the file system does not look at stores (tmpfs), none faults.
    let looks = rustix::fs::fstatfs(&file).unwrap().f_type != 0x0102_1994;
    assert!(
        to_read < 8 && (to_store > 8 || !looks),
        "{to_read} faults to read, {to_store} to store"
    );
    window.detach(len, &(Arc::new(()) as Arc<dyn Send + Sync>));
    window.map_clean(0, len);
    let private = Window::private(len).unwrap();
    private.copy_in(0, &bytes);
    private.map_clean(4096, 8192);
    assert!(window.bytes(0, len) == bytes && private.bytes(0, len) == bytes);
}
