//! Stores of the index that may not be late: the disk refuses them, and the caller does not
//! proceed.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::format::{INDEX_NAME, Place, Spot, Version};
use crate::index::Index;
use crate::index::image::{IndexImage, Live};
use crate::index::live::StoredOver;
use crate::index::run::Run;
use crate::storage::sheet::PAUSE_HERE;
use crate::storage::{CacheToken, Storage, Stores};
use crate::tests::crash::holds_but_for;
use crate::tests::sim::{Call, Mutant, SimStorage, forget_meanwhile, meanwhile};

const ID: [u8; 16] = *b"0123456789abcdef";
const TOKEN: CacheToken = CacheToken { boot: 3, file: 5, mount: 4 };

/// Bytes are stored by calls.
fn begun() -> (SimStorage, Index<SimStorage>) {
    let storage = SimStorage::new(3);
    storage.set_stores(Stores::ByCall);
    let index = Index::create(&storage, ID, 7).unwrap();
    storage.sync_directory().unwrap();
    let live = Live { token: TOKEN, run: Some(Run::default()), ..Live::default() };
    index.begin_run(&live, StoredOver::Doubted);
    (storage, index)
}

fn live(storage: &SimStorage) -> Live {
    IndexImage::read(&storage.read_file(INDEX_NAME), &ID).live
}

/// A writer may store the header of a new life only when the index file has that life.
#[test]
fn no_life_begins_that_the_index_does_not_know() {
    holds_but_for(Mutant::NextLifeLate, || {
        let (storage, index) = begun();
        index.begin_changing().unwrap();
        storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
        let begun = index.begin_life(5);
        assert_eq!(begun.is_ok(), live(&storage).run.unwrap().next_life >= 5);
        storage.clear_faults();
        index.begin_life(6).unwrap();
        assert_eq!(live(&storage).run.unwrap().next_life, 6);
    });
}

/// A place is late when the version must be synced, so the sync fails: no segment has the version
/// yet, and the next call tries again.
#[test]
fn a_version_counts_when_it_is_on_the_disk() {
    let (storage, index) = begun();
    let index = Arc::new(index);
    let (other, disk) = (Arc::clone(&index), storage.clone());
    meanwhile("before a version is synced", move || {
        disk.fail_after(Call::Write, 1, Errno::NOSPC, true);
        other.begin_reservation(5);
    });
    assert!(index.state_origins().is_err() && !forget_meanwhile());
    assert_eq!(index.version(), Version::Plain);
    storage.clear_faults();
    let synced = storage.call_count(Call::SyncFile);
    index.state_origins().unwrap();
    assert_eq!(index.version(), Version::Origins);
    assert!(storage.call_count(Call::SyncFile) > synced);
}

/// After a full disk refused a store, the index does not retry at each place: each attempt is slow.
/// A sync retries.
#[test]
fn a_disk_that_refused_a_place_is_left_alone_for_a_moment() {
    let (storage, index) = begun();
    let begin = Place { number: 0, position: 64, seq: 1 };
    let mut row = index.add_consumer(None, "a", begin, |take| take(0)).unwrap().1;
    PAUSE_HERE.set(Duration::from_secs(3600));
    storage.fail_after(Call::Write, 1, Errno::NOSPC, true);
    let writes = storage.call_count(Call::Write);
    (2..50).for_each(|seq| row.store(Spot { position: 64 * seq, seq }));
    let asked = storage.call_count(Call::Write) - writes;
    storage.clear_faults();
    index.sync().unwrap();
    PAUSE_HERE.set(Duration::ZERO);
    assert_eq!(asked, 1);
    let left = storage.power_cut_losing_all().read_file(INDEX_NAME);
    assert_eq!(IndexImage::read(&left, &ID).consumers[0].place.seq, 49);
}
