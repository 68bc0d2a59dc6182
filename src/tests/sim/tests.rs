//! The simulated disk itself: what it keeps, loses and refuses.

use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;

use rustix::io::Errno;

use super::SimStorage;
use super::faults::Call;
use super::inode::{PAGE, SECTOR};
use super::storage::SimFile;
use crate::memory::Window;
use crate::storage::{CacheToken, Storage, StorageFile};

/// A file `a` of two pages, durable with its name and full of ones; then stored full of twos
/// through a mapping.
fn dirty() -> (SimStorage, SimFile, Window) {
    let storage = SimStorage::new(7);
    let file = storage.create("a").unwrap();
    let window = file.map(0, 4 * PAGE).unwrap();
    file.allocate(0, 2 * PAGE as u64).unwrap();
    window.copy_in(0, &[1; 2 * PAGE]);
    file.sync().unwrap();
    storage.sync_directory().unwrap();
    window.copy_in(0, &[2; 2 * PAGE]);
    (storage, file, window)
}

fn cuts(storage: &SimStorage) -> impl Iterator<Item = SimStorage> {
    (0..200).map(|seed| storage.power_cut(seed))
}

fn token(storage: &SimStorage) -> CacheToken {
    storage.cache_token(storage.stat("a").unwrap())
}

#[test]
fn unsynced_pages_may_be_lost_kept_or_torn_at_512_and_synced_ones_never() {
    let (storage, file, window) = dirty();
    let (mut lost, mut kept, mut torn, mut middle) = (0, 0, 0, 0);
    storage.snapshot();
    window.copy_in(PAGE, &[3; PAGE]);
    for (seed, cut) in cuts(&storage).enumerate() {
        let content = cut.read_file("a");
        assert_eq!(
            content,
            storage.power_cut(seed as u64).read_file("a"),
            "the same seed, the same disk"
        );
        assert!(content.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        assert!(!content[..PAGE].contains(&3) && !content.contains(&0));
        lost += u32::from(content == [1; 2 * PAGE]);
        kept += u32::from(content == storage.read_file("a"));
        torn += u32::from(content[..PAGE].contains(&1) && content[..PAGE].contains(&2));
        middle += u32::from(content[PAGE..] == [2; PAGE]);
        assert_ne!(token(&cut), token(&storage));
    }
    assert!(lost > 20 && kept > 20 && torn > 20 && middle > 5, "{lost} {kept} {torn} {middle}");
    file.sync().unwrap();
    assert!(cuts(&storage).all(|cut| cut.read_file("a") == storage.read_file("a")));
}

#[test]
fn a_kill_keeps_everything_and_a_power_cut_after_it_still_loses() {
    let (storage, _file, _window) = dirty();
    storage.create("b").unwrap();
    assert!(storage.try_lock().unwrap() && !storage.clone().try_lock().unwrap());
    let killed = storage.process_kill();
    assert!(killed.try_lock().unwrap());
    assert_eq!((token(&killed), killed.file_names()), (token(&storage), storage.file_names()));
    assert_eq!(killed.read_file("a"), [2; 2 * PAGE]);
    assert!(cuts(&killed).any(|cut| cut.read_file("a") == [1; 2 * PAGE]));
    assert!(cuts(&killed).any(|cut| cut.file_names() == ["a"]));
    killed.open("a").unwrap().sync().unwrap();
    assert!(cuts(&killed).all(|cut| cut.read_file("a") == [2; 2 * PAGE]));
    assert!(
        cuts(&storage).any(|cut| cut.read_file("a") == [1; 2 * PAGE]),
        "the killed one is another world"
    );
    let second = storage.clone();
    drop(storage);
    assert!(second.try_lock().unwrap());
}

#[test]
fn unsynced_creations_renames_and_removals_are_lost_in_any_combination() {
    let storage = SimStorage::new(1);
    for name in ["a", "b", "c"] {
        storage.write_file(name, name.as_bytes());
    }
    storage.create("d").unwrap();
    storage.rename("a", "b").unwrap();
    storage.remove("c").unwrap();
    let contents = |storage: &SimStorage| {
        storage
            .file_names()
            .iter()
            .map(|name| (name.clone(), storage.read_file(name)))
            .collect::<Vec<_>>()
    };
    let mut seen: Vec<_> = cuts(&storage).map(|cut| contents(&cut)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 8);
    assert!(
        seen.iter().all(|files| files.iter().any(|(name, bytes)| name == "b" && !bytes.is_empty()))
    );
    assert!(seen.iter().all(|files| files.iter().any(|(_, bytes)| bytes == b"a")));
    storage.sync_directory().unwrap();
    assert!(cuts(&storage).all(|cut| contents(&cut) == contents(&storage)));
}

#[test]
fn a_failed_sync_marks_pages_clean_that_are_not_durable_until_they_are_written_again() {
    let (storage, file, window) = dirty();
    storage.fail_after(Call::SyncFile, 1, Errno::IO, false);
    assert_eq!(file.sync().unwrap_err().0.raw_os_error(), Some(Errno::IO.raw_os_error()));
    file.sync().unwrap();
    assert_eq!(storage.read_file("a"), [2; 2 * PAGE]);
    assert!(cuts(&storage).any(|cut| cut.read_file("a") == [1; 2 * PAGE]));
    // The same bytes once more, through the mapping: into the first page alone.
    window.store_u64(PAGE - 8, 0x0202_0202_0202_0202);
    file.sync().unwrap();
    assert!(cuts(&storage).all(|cut| cut.read_file("a")[..PAGE] == [2; PAGE]));
    assert!(cuts(&storage).any(|cut| cut.read_file("a")[PAGE..] == [1; PAGE]));
    file.write_at(&[2; 2 * PAGE], 0).unwrap();
    file.sync().unwrap();
    assert!(cuts(&storage).all(|cut| cut.read_file("a") == [2; 2 * PAGE]));
}

#[test]
fn sizes_are_old_or_new_and_cut_bytes_do_not_come_back() {
    let (storage, file, window) = dirty();
    file.set_len(100).unwrap();
    let lens = |len| cuts(&storage).filter(|cut| cut.read_file("a").len() == len).count();
    assert!(lens(100) > 20 && lens(2 * PAGE) > 20 && lens(100) + lens(2 * PAGE) == 200);
    file.sync().unwrap();
    file.allocate(0, 3 * PAGE as u64).unwrap();
    assert!(cuts(&storage).all(|cut| cut.read_file("a")[100..].iter().all(|byte| *byte == 0)));
    window.copy_in(3 * PAGE, b"too early");
    let stored = std::panic::catch_unwind(AssertUnwindSafe(|| file.allocate(0, 4 * PAGE as u64)));
    assert!(stored.is_err(), "a store behind the end is caught");
}

#[test]
fn calls_fail_as_ordered_and_a_full_disk_is_full() {
    let (storage, file, lease) = dirty();
    storage.fail_after(Call::Create, 2, Errno::NOSPC, true);
    storage.fail_after(Call::Write, 1, Errno::IO, false);
    storage.create("b").unwrap();
    for _ in 0..2 {
        assert_eq!(storage.create("c").unwrap_err().kind(), ErrorKind::StorageFull);
    }
    storage.clear_faults();
    storage.set_capacity(Some(3 * PAGE as u64));
    assert_eq!((storage.free_bytes().unwrap(), storage.call_count(Call::Create)), (PAGE as u64, 4));
    assert_eq!(file.allocate(0, 4 * PAGE as u64).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 2 * PAGE as u64);
    file.allocate(0, 3 * PAGE as u64).unwrap();
    assert_eq!(
        storage.open("b").unwrap().write_at(b"x", 0).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    storage.remove("a").unwrap();
    drop(file);
    assert_eq!(storage.free_bytes().unwrap(), 0, "it is mapped");
    drop(lease);
    storage.open("b").unwrap().write_at(b"x", 0).unwrap();
}

#[test]
fn a_frozen_moment_is_before_the_call_and_damage_is_everywhere() {
    let (storage, file, _window) = dirty();
    storage.freeze_at(2);
    storage.rename("a", "b").unwrap();
    assert!(storage.frozen().is_none());
    storage.sync_directory().unwrap();
    let frozen = storage.frozen().unwrap();
    assert!(cuts(&frozen).any(|cut| cut.file_names() == ["a"]));
    storage.corrupt("b", PAGE - 1, &[9; 2]);
    assert!(cuts(&storage).all(|cut| cut.read_file("b")[PAGE - 1..=PAGE] == [9; 2]));
    let mut buf = [0; 8];
    assert_eq!(file.read_at(&mut buf, 2 * PAGE as u64 - 3).unwrap(), 3);
    storage.remove_file("b");
    assert!(cuts(&storage).all(|cut| cut.file_names().is_empty()));
}
