use super::*;
use crate::segment::pool::Granted;
use crate::segment::pool::User;
use crate::storage::StorageFile;
use crate::tests::sim::{Call, SimFile};

const WINDOW: u64 = 4096;

/// A pool of at most `most` windows, each of one page, and a file of eight pages.
fn pool(most: usize) -> (SimStorage, SimFile, Pool) {
    let storage = SimStorage::new(3);
    let file = storage.create("file").unwrap();
    file.allocate(0, 8 * WINDOW).unwrap();
    let geometry = Geometry {
        least_len: 8 * WINDOW,
        usual_len: 8 * WINDOW,
        most_len: 8 * WINDOW,
        drops_ahead: false,
        window_len: WINDOW,
        max_mapped: most as u64 * WINDOW,
    };
    (storage, file, Pool::new(geometry))
}

fn get(pool: &Pool, file: &SimFile, life: u64, number: u64, user: User) -> Option<Granted> {
    pool.get(file, life, number * WINDOW, 8 * WINDOW, || 8 * WINDOW, user)
}

#[test]
fn no_more_windows_are_mapped_than_the_cap_says_and_who_got_none_gets_the_next_that_is_released() {
    let (storage, file, pool) = pool(3);
    let mut held: Vec<_> =
        (0..3).map(|number| get(&pool, &file, 1, number, User::Copier).unwrap()).collect();
    assert!(get(&pool, &file, 1, 3, User::Copier).is_none(), "all are in use");
    assert!(get(&pool, &file, 1, 1, User::Copier).is_some(), "what is mapped is shared");
    assert_eq!((pool.mapped_bytes(), storage.call_count(Call::Map)), (3 * WINDOW, 3));
    held.pop();
    let granted = get(&pool, &file, 1, 3, User::Copier).unwrap();
    assert_eq!((pool.mapped_bytes(), granted.window.len()), (3 * WINDOW, WINDOW as usize));
    assert!(get(&pool, &file, 1, 2, User::Copier).is_none(), "its room was taken");
}

#[test]
fn the_window_that_was_not_used_for_the_longest_time_makes_room() {
    let (storage, file, pool) = pool(3);
    for number in [0, 1, 2, 0, 3] {
        drop(get(&pool, &file, 1, number, User::Copier));
    }
    let maps = storage.call_count(Call::Map);
    for number in [0, 2, 3] {
        drop(get(&pool, &file, 1, number, User::Copier));
    }
    assert_eq!(storage.call_count(Call::Map), maps, "1 made room");
    drop(get(&pool, &file, 1, 1, User::Copier));
    assert_eq!(storage.call_count(Call::Map), maps + 1);
}

#[test]
fn lent_windows_count_while_somebody_has_them_and_leave_room_for_the_tail_and_one_head() {
    let (_storage, file, pool) = pool(5);
    let lends = |number| get(&pool, &file, 1, number, User::Reader).unwrap();
    let mut lent: Vec<_> = (0..3).map(lends).collect();
    assert!(lent.iter().all(|granted| granted.lending));
    assert!(lends(0).lending, "it counts once");
    let other = lends(3);
    assert!(!other.lending, "two of five are for those who write and read on");
    assert!(get(&pool, &file, 1, 4, User::Copier).is_some());
    lent.pop();
    assert!(lends(3).lending);
    assert!(!get(&pool, &file, 1, 2, User::Reader).unwrap().lending);
}

#[test]
fn the_window_at_the_end_of_a_file_is_no_longer_than_the_file() {
    let (_storage, file, pool) = pool(3);
    let granted = pool.get(&file, 1, 2 * WINDOW, 2 * WINDOW + 512, || 0, User::Copier).unwrap();
    assert_eq!(granted.window.len(), 512);
}

#[test]
fn windows_of_a_segment_that_is_gone_stay_while_somebody_has_them_and_go_after_that() {
    let (_storage, file, pool) = pool(3);
    let lent = get(&pool, &file, 1, 0, User::Reader).unwrap();
    drop(get(&pool, &file, 1, 1, User::Copier));
    drop(get(&pool, &file, 2, 0, User::Copier));
    assert!(!pool.is_idle(1) && pool.is_idle(2));
    pool.unmap_segment(1);
    assert_eq!(pool.mapped_bytes(), 2 * WINDOW, "the lent one counts");
    assert!(!pool.unmap_unwanted());
    drop(lent);
    assert!(pool.is_idle(1) && pool.unmap_unwanted());
    assert_eq!(pool.mapped_bytes(), WINDOW);
}

#[test]
fn a_segment_that_is_used_again_goes_on_with_its_windows() {
    let (storage, file, pool) = pool(3);
    drop(get(&pool, &file, 1, 0, User::Reader));
    pool.renew(1, 7);
    let maps = storage.call_count(Call::Map);
    let window = get(&pool, &file, 7, 0, User::Copier).unwrap();
    assert_eq!(storage.call_count(Call::Map), maps);
    drop(get(&pool, &file, 1, 0, User::Copier));
    assert_eq!(storage.call_count(Call::Map), maps + 1, "the life before has none");
    assert!(!pool.is_idle(7) && !window.lending);
}

/// The cap is one of bytes: short segments have more windows.
#[test]
fn short_windows_leave_room_for_more_of_them() {
    let (storage, file, pool) = pool(3);
    let half = |life| pool.get(&file, life, 0, WINDOW / 2, || WINDOW / 2, User::Copier);
    let held: Vec<_> = (0..6).map(|life| half(life).unwrap()).collect();
    assert_eq!((pool.mapped_bytes(), storage.call_count(Call::Map)), (3 * WINDOW, 6));
    assert!(half(6).is_none());
    drop(held);
    assert!(get(&pool, &file, 7, 0, User::Copier).is_some(), "two of them make room");
    assert_eq!(pool.mapped_bytes(), 3 * WINDOW);
}

#[test]
fn the_writer_maps_several_arenas_where_there_is_room_and_readers_share_them() {
    for most in [3, 4] {
        let (storage, file, pool) = pool(most);
        let writer = |number| get(&pool, &file, 1, number, User::Writer);
        let reader = |number| get(&pool, &file, 1, number, User::Reader).unwrap();
        let long = writer(3).unwrap();
        assert_eq!((long.start, long.window.len() as u64), (2 * WINDOW, 2 * WINDOW));
        let shared = reader(2);
        assert_eq!((shared.start, storage.call_count(Call::Map)), (2 * WINDOW, 1));
        assert_eq!(shared.lending, most == 4, "room is left for the tail and a head");
        drop((long, shared));
        let held = [reader(0), reader(6)];
        let next = writer(5).unwrap();
        let arenas = most as u64 - 2;
        assert_eq!(
            (next.start, next.window.len() as u64),
            ((6 - arenas) * WINDOW, arenas * WINDOW)
        );
        assert!(writer(1).is_none());
        assert_eq!(pool.mapped_bytes(), most as u64 * WINDOW);
        drop(held);
    }
}

/// A long window may begin where a short one does. Both count.
#[test]
fn windows_that_overlap_count_both() {
    let (_storage, file, pool) = pool(4);
    let short = get(&pool, &file, 1, 2, User::Reader).unwrap();
    let long = get(&pool, &file, 1, 3, User::Writer).unwrap();
    assert_eq!((short.start, long.start), (2 * WINDOW, 2 * WINDOW));
    assert_eq!((pool.mapped_bytes(), long.window.len() as u64), (3 * WINDOW, 2 * WINDOW));
    drop(long);
    assert!(get(&pool, &file, 1, 2, User::Reader).unwrap().window.len() as u64 == WINDOW);
    assert!(!pool.is_idle(1));
    drop(short);
    pool.renew(1, 9);
    assert!(pool.is_idle(9) && pool.mapped_bytes() == 3 * WINDOW);
}
