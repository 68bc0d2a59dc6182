//! A sparse copy: a file with holes where the queue has zeros.

use super::*;

/// A copy left the zeros out, and then the disk filled up: opening says so. With space again
/// everything is there, and further messages end at the full disk, not in a dead process.
#[test]
fn a_sparse_copy_on_a_full_disk_is_an_error() {
    for kind in ["tmpfs", "ext4"] {
        let disk = match mount(kind, 8 * MIB) {
            Ok(disk) => disk,
            Err(reason) => return skip(kind, &reason),
        };
        let source = crate::support::tempdir().unwrap();
        let options = small_arenas();
        let queue = options.open(source.path()).unwrap();
        (0..3).for_each(|_| assert!(queue.enqueue(b"message").is_ok()));
        queue.close().unwrap();
        for sparse in ["segment-00000000", "index"] {
            let copy = disk.path.join(sparse);
            fs::create_dir(&copy).unwrap();
            for entry in fs::read_dir(source.path()).unwrap() {
                let entry = entry.unwrap();
                let with_holes = if entry.file_name() == sparse { "always" } else { "never" };
                let how = format!("--sparse={with_holes}");
                done(crate::support::command("cp").arg(how).arg(entry.path()).arg(&copy)).unwrap();
            }
            take_all_space(&disk.path);
            let error = options.open(&copy).map(drop).unwrap_err();
            assert!(error.is_full() && error.to_string().contains("holes"), "{kind}: {error}");
            give_space_back(&disk.path);
            let queue = options.open(&copy).unwrap();
            take_all_space(&disk.path);
            assert_eq!(queue.dequeue().unwrap().unwrap()[..], b"message"[..]);
            while queue.enqueue([1; 1000]).is_ok() {}
            assert_eq!(queue.dequeue().unwrap().unwrap()[..], b"message"[..]);
            queue.close().unwrap();
            give_space_back(&disk.path);
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}
