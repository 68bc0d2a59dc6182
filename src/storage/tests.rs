//! The real directory, on filesystems of its own where it may mount them.

use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::fs::{FileType, Mode};

use super::file::write_zeros;
use super::overlay::Overlay;
use super::{FileStorage, PAGE, Storage, StorageFile, Stores, system};
use crate::tests::guard::{command, tempdir, unmount_at_end};
use crate::tests::skip;

fn storage() -> (tempfile::TempDir, FileStorage) {
    let directory = tempdir().expect("a temporary directory");
    let path = directory.path().join("deep/queue");
    let storage = FileStorage::create(&path, None).expect("creates missing parents");
    (directory, storage)
}

/// A small filesystem of its own, or `None` with the reason printed. `image` mebibytes: made with
/// mkfs and mounted through a loop device; otherwise `options` say all.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(kind: &str, options: &str, image: Option<u64>) -> Option<Mounted> {
        let run =
            |program: &str, arguments: &[&str]| match command(program).args(arguments).output() {
                Ok(output) if output.status.success() => Some(()),
                other => {
                    skip(format_args!("{program} {arguments:?}: {other:?}"));
                    None
                }
            };
        let directory = tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("mounted")).expect("a mount point");
        let source = directory.path().join("image");
        if let Some(image) = image {
            File::create(&source).and_then(|file| file.set_len(image << 20)).expect("an image");
            run(&format!("mkfs.{kind}"), &["-q", source.to_str()?])?;
        }
        let target = directory.path().join("mounted");
        unmount_at_end(&target, &source);
        run("mount", &["-t", kind, "-o", options, source.to_str()?, target.to_str()?])?;
        Some(Mounted(directory))
    }

    /// Makes the layers of an overlay here, and returns its options.
    fn layers(&self) -> String {
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| {
            let path = self.0.path().join("mounted").join(name);
            std::fs::create_dir(&path).unwrap();
            path.display().to_string()
        });
        format!("lowerdir={lower},upperdir={upper},workdir={work}")
    }

    fn open(&self) -> FileStorage {
        let path = self.0.path().join("mounted/queue");
        FileStorage::create(&path, None).expect("a queue's directory")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = command("umount").arg("-l").arg(self.0.path().join("mounted")).status();
    }
}

#[test]
fn a_second_descriptor_is_locked_out_until_the_first_unlocks() {
    let (root, first) = storage();
    let link = root.path().join("link");
    symlink(first.path(), &link).unwrap();
    assert!(first.try_lock().unwrap());
    assert!(first.try_lock().unwrap(), "the holder asks again");
    let second = FileStorage::open(&link).unwrap();
    assert!(!second.try_lock().unwrap());
    // Closing is not enough: a child that another thread forked meanwhile has the descriptor, too.
    first.unlock();
    assert!(second.try_lock().unwrap());
}

#[test]
fn only_regular_files_with_one_name_are_opened() {
    let (root, storage) = storage();
    let path = |name: &str| storage.path().join(name);
    std::fs::write(root.path().join("outside"), "x").unwrap();
    symlink(root.path().join("outside"), path("symlink")).unwrap();
    std::fs::create_dir(path("directory")).unwrap();
    rustix::fs::mknodat(&storage.directory, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    std::fs::write(path("first"), "x").unwrap();
    std::fs::hard_link(path("first"), path("second")).unwrap();
    for name in ["directory", "fifo", "socket"] {
        assert_eq!(storage.open(name).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
    }
    for name in ["first", "second", "symlink"] {
        assert_eq!(storage.open(name).unwrap_err().kind(), ErrorKind::Unsupported, "{name}");
    }
    assert_eq!(storage.open("missing").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(storage.create("symlink").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(FileStorage::open(&path("first")).unwrap_err().kind(), ErrorKind::NotADirectory);
    let mut listed = storage.list().unwrap();
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    let listed: Vec<_> =
        listed.iter().map(|listed| (listed.name.as_str(), listed.is_file)).collect();
    let expected = [
        ("directory", false),
        ("fifo", false),
        ("first", true),
        ("second", true),
        ("socket", false),
    ];
    assert_eq!(listed, [&expected[..], &[("symlink", false)]].concat());
}

#[test]
fn files_are_made_renamed_and_removed() {
    let (_root, storage) = storage();
    storage.create("a").unwrap().write_at(b"bytes", 3).unwrap();
    storage.rename("a", "b").unwrap();
    storage.sync_directory().unwrap();
    let mut buf = [1; 9];
    assert_eq!(storage.open("b").unwrap().read_at(&mut buf, 0).unwrap(), 8);
    assert_eq!(&buf, b"\0\0\0bytes\x01");
    storage.remove("b").unwrap();
    assert!(storage.list().unwrap().is_empty());
    assert!(FileStorage::open(&storage.path().join("missing")).is_err());
}

/// A file that any process creates later gets the mode of the existing ones: of the index, or of a
/// segment when the index is lost.
#[test]
fn new_files_get_the_mode_of_those_that_are_there() {
    let (_root, storage) = storage();
    let path = |name: &str| storage.path().join(name);
    let mode = |name: &str| path(name).metadata().unwrap().permissions().mode() & 0o777;
    let again = || FileStorage::open(storage.path()).unwrap();
    std::fs::write(path("notes"), "another's").unwrap();
    std::fs::set_permissions(path("notes"), Permissions::from_mode(0o777)).unwrap();
    again().with_mode(Some(0o604)).create("segment-00000000").unwrap();
    again().create("segment-00000001").unwrap();
    assert_eq!((mode("segment-00000000"), mode("segment-00000001")), (0o604, 0o604));
    // What the owner cannot do he can with the next one.
    std::fs::set_permissions(path("segment-00000000"), Permissions::from_mode(0o444)).unwrap();
    std::fs::remove_file(path("segment-00000001")).unwrap();
    again().create("index").unwrap();
    assert_eq!(mode("index"), 0o644);
    std::fs::set_permissions(path("index"), Permissions::from_mode(0o666)).unwrap();
    let storage = again();
    storage.create("segment-00000001").unwrap();
    assert_eq!(mode("segment-00000001"), 0o666);
}

/// Another user who may write to a directory puts a link to one of this user's there.
#[test]
fn no_other_directory_or_file_gets_the_mode_of_a_queue() {
    let (root, _) = storage();
    let path = |name: &str| root.path().join(name);
    let mode = |name: &str| path(name).metadata().unwrap().permissions().mode() & 0o777;
    std::fs::create_dir(path("own")).unwrap();
    std::fs::write(path("file"), "x").unwrap();
    for name in ["own", "file"] {
        std::fs::set_permissions(path(name), Permissions::from_mode(0o700)).unwrap();
    }
    let (own, new, aside) = (path("own"), path("new"), path("aside"));
    crate::tests::sim::meanwhile("a directory is made", move || {
        std::fs::rename(&new, aside).unwrap();
        symlink(own, new).unwrap();
    });
    assert!(FileStorage::create(&root.path().join("new/"), Some(0o666)).is_err());
    assert_eq!(mode("own"), 0o700);
    let made = FileStorage::create(&path("made"), Some(0o666)).unwrap();
    made.create("segment-00000000").unwrap();
    std::fs::hard_link(path("file"), path("made").join("segment-00000001")).unwrap();
    made.with_mode(Some(0o644)).change_modes().unwrap();
    assert_eq!((mode("file"), mode("made/segment-00000000")), (0o700, 0o644));
}

/// So does a process in whose namespace the holder is not.
#[test]
#[cfg(target_os = "linux")]
fn the_lock_shows_also_where_the_kernels_list_hides_its_holder() {
    let (root, first) = storage();
    let second = FileStorage::open_to_look(first.path()).unwrap();
    let is_seen = || crate::memory::is_marked(second.directory());
    assert!(!is_seen());
    assert!(first.try_lock().unwrap());
    assert!(is_seen() && is_seen());
    // Whoever asks has nothing that keeps the next opener away.
    first.unlock();
    assert!(!is_seen());
    assert!(FileStorage::open(first.path()).unwrap().try_lock().unwrap());
    assert!(!is_seen());
    drop(root);
}

#[test]
fn allocating_extends_and_never_shortens_and_what_was_mapped_before_can_be_stored_to() {
    let (_root, storage) = storage();
    let file = storage.create("a").unwrap();
    let window = file.map(0, 1 << 20).unwrap();
    file.allocate(0, 64 << 10).unwrap();
    assert_eq!((file.len().unwrap(), file.disk_bytes().unwrap() >= 64 << 10), (64 << 10, true));
    window.copy_in((64 << 10) - 5, b"store");
    file.allocate(0, 4096).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 64 << 10);
    let mut buf = [0; 5];
    assert_eq!(file.read_at(&mut buf, (64 << 10) - 5).unwrap(), 5);
    assert_eq!(&buf, b"store");
    write_zeros(&file.file, file.len().unwrap(), 100_000).unwrap();
    assert_eq!(
        (file.len().unwrap(), file.read_at(&mut buf, (64 << 10) - 5).unwrap()),
        (100_000, 5)
    );
    assert_eq!(&buf, b"store");
    assert_eq!(file.allocate(u64::MAX, 2).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_refused_allocation_leaves_the_old_length_and_its_space() {
    for (kind, options, image) in [("tmpfs", "size=4M", None), ("ext4", "loop", Some(32))] {
        let Some(mounted) = Mounted::new(kind, options, image) else {
            continue;
        };
        let storage = mounted.open();
        let file = storage.create("a").unwrap();
        file.allocate(0, 1 << 20).unwrap();
        let free = storage.free_bytes().unwrap();
        for _ in 0..3 {
            assert_eq!(
                file.allocate(1 << 20, 1 << 30).unwrap_err().kind(),
                ErrorKind::StorageFull,
                "{kind}"
            );
            assert_eq!(file.len().unwrap(), 1 << 20, "{kind}");
            // ext4 may keep a block of its extent tree.
            assert!(file.disk_bytes().unwrap() <= (1 << 20) + 4096, "{kind}");
        }
        assert!(storage.free_bytes().unwrap() + (64 << 10) >= free, "{kind}");
        assert_eq!(file.stores(), Stores::ByMap, "{kind}");
        file.allocate(1 << 20, 1 << 20).unwrap();
    }
}

/// The block of the tree of its extents makes up for the hole in the file's disk bytes.
#[test]
fn a_hole_is_filled_where_the_disk_bytes_do_not_show_it() {
    const TAKEN: u64 = 64 * PAGE;
    let Some(mounted) = Mounted::new("ext4", "loop", Some(8)) else { return };
    let storage = mounted.open();
    let file = storage.create("index").unwrap();
    file.allocate(0, TAKEN).unwrap();
    (0..64).step_by(2).for_each(|page| file.write_at(&[1], page * PAGE).unwrap());
    file.sync().unwrap();
    let len = file.disk_bytes().unwrap();
    assert!(len > TAKEN);
    file.set_len(len).unwrap();
    let file = storage.open("index").unwrap();
    for _ in 0..2 {
        storage.fill_holes(&file).unwrap();
        assert_eq!(file.disk_bytes().unwrap(), len + (len - TAKEN));
    }
}

#[test]
fn on_btrfs_bytes_are_changed_by_calls_and_where_they_lie() {
    let Some(mounted) = Mounted::new("btrfs", "loop", Some(128)) else {
        return;
    };
    let storage = mounted.open();
    let file = storage.create("a").unwrap();
    assert!(system::ioctl_getflags(&file.file).unwrap().contains(system::IFlags::NOCOW));
    assert_eq!(
        (file.stores(), storage.open("a").unwrap().find_stores(0)),
        (Stores::ByCall, Stores::ByCall)
    );
}

#[test]
fn on_xfs_a_file_that_shares_its_extents_is_changed_by_calls_until_it_has_its_own() {
    let Some(mounted) = Mounted::new("xfs", "loop", Some(320)) else {
        return;
    };
    let storage = mounted.open();
    let file = storage.create("a").unwrap();
    assert_eq!(file.stores(), Stores::ByMap);
    file.allocate(0, 1 << 20).unwrap();
    for at in 0..128 {
        // In more pieces than are told of at a time.
        file.write_at(&[1; 4096], at * 8192).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(file.find_stores(0), Stores::ByMap);
    let path = |name: &str| storage.path().join(name);
    assert!(
        command("cp")
            .arg("--reflink=always")
            .args([path("a"), path("b")])
            .status()
            .unwrap()
            .success()
    );
    let opened = storage.open("a").unwrap();
    assert_eq!((opened.stores(), opened.find_stores(0)), (Stores::ByCall, Stores::ByCall));
    opened.unshare(1 << 19);
    assert_eq!(
        (opened.find_stores(0), opened.find_stores(1 << 19)),
        (Stores::ByCall, Stores::ByCall)
    );
    opened.unshare(1 << 20);
    assert_eq!((opened.find_stores(0), file.find_stores(0)), (Stores::ByMap, Stores::ByMap));
}

#[test]
fn an_overlay_is_judged_by_what_lies_below_it() {
    for (kind, image, stores) in [("ext4", 32, Stores::ByMap), ("btrfs", 128, Stores::ByCall)] {
        let Some(below) = Mounted::new(kind, "loop", Some(image)) else {
            continue;
        };
        let options = below.layers();
        std::fs::write(below.0.path().join("mounted/lower/old"), "x").unwrap();
        let Some(mounted) = Mounted::new("overlay", &options, None) else {
            continue;
        };
        let storage = FileStorage::open(&mounted.0.path().join("mounted")).unwrap();
        assert_eq!(storage.create("new").unwrap().stores(), stores, "{kind}");
        assert_eq!(storage.open("old").unwrap().find_stores(0), stores, "{kind}");
    }
}

#[test]
fn life_is_the_same_for_the_same_directory_and_mount() {
    let (_root, storage) = storage();
    let again = FileStorage::create(storage.path(), None).unwrap();
    let token = |storage: &FileStorage, name| storage.cache_token(storage.stat(name).unwrap());
    let index = storage.create("index").unwrap();
    assert_eq!(storage.stat("index").unwrap(), index.stat().unwrap());
    assert_eq!(storage.cache_token(index.stat().unwrap()), token(&again, "index"));
    // A file put back from a copy may get the same inode.
    storage.remove("index").unwrap();
    drop(index);
    storage.create("index").unwrap();
    let (before, back) = (
        again.cache_token(again.create("other").unwrap().stat().unwrap()),
        token(&storage, "index"),
    );
    assert!(back.boot == before.boot && back.file != before.file);
    assert_ne!(storage.random(), storage.random());
    assert!(storage.now() > 1_700_000_000_000 && storage.free_bytes().unwrap() > 0);
}

/// The container's own layer is mounted again at each start, under another number.
#[test]
fn a_boot_is_the_same_whatever_number_the_device_of_an_overlay_gets() {
    let Some(below) = Mounted::new("ext4", "loop", Some(32)) else { return };
    let options = below.layers();
    let boot = || {
        let mounted = Mounted::new("overlay", &options, None)?;
        let storage = mounted.open();
        let index = storage.open("index").or_else(|_| storage.create("index")).unwrap();
        Some(storage.cache_token(index.stat().unwrap()).boot)
    };
    let before = boot();
    let _has_its_number = Mounted::new("tmpfs", "size=1M", None);
    assert_eq!(boot(), before);
}

#[test]
fn a_file_that_is_renewed_is_another_file_with_the_same_bytes_and_rights() {
    let (_directory, storage) = storage();
    for len in [0, 700, 4096, 3 << 20] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let name = format!("file-{len}");
        storage.create(&name).unwrap().write_at(&bytes, 0).unwrap();
        let path = storage.path().join(&name);
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let before = storage.stat(&name).unwrap();
        storage.renew(&name).unwrap();
        assert_ne!(storage.stat(&name).unwrap().identity, before.identity);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(storage.list().unwrap().len(), 1);
        storage.remove(&name).unwrap();
    }
}

/// A file renamed in an overlay has only its new name.
#[test]
fn a_file_that_an_overlay_renamed_has_one_name() {
    let (_directory, storage) = storage();
    storage.create("old").unwrap().write_at(b"bytes", 0).unwrap();
    let overlay = Overlay::over(std::sync::Arc::new(storage));
    overlay.rename("old", "new").unwrap();
    let names: Vec<_> = overlay.list().unwrap().into_iter().map(|listed| listed.name).collect();
    assert!(names.iter().any(|name| name == "new"), "{names:?}");
    assert!(names.iter().all(|name| name != "old"), "{names:?}");
    assert_eq!(overlay.open("old").unwrap_err().kind(), ErrorKind::NotFound);
    let changed = overlay.changes().unwrap();
    assert_eq!(changed.renamed, [("old".to_owned(), "new".to_owned())]);
}

/// The standard library's own randomness panics there.
#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(miri, ignore)]
fn a_queue_opens_where_the_system_refuses_random_bytes() {
    let directory = crate::tests::guard::tempdir().unwrap();
    let open = || crate::Queue::open(directory.path()).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // getrandom; EINVAL, as on a kernel without the flags that it is called with.
            crate::memory::tests::sandbox::refuse((318, 278), 22);
            let queue = open();
            queue.enqueue("a").unwrap();
            let copy = directory.path().join("copy");
            let id = queue.id();
            queue.copy_to(&copy, crate::CopiedId::New, |_, _| ControlFlow::Continue(())).unwrap();
            assert_ne!(crate::Queue::open(copy).unwrap().id(), id);
            std::fs::remove_file(directory.path().join("index")).unwrap();
            assert_eq!(open().len(), 1);
        });
    });
}
