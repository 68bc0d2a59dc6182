//! A disk without an inode left.

use super::{MIB, mount, skip};

/// A socket needs a name in the directory, and an inode.
#[test]
fn a_full_disk_has_no_room_for_a_socket_and_the_queue_opens() {
    let mount = match mount("tmpfs", 16 * MIB) {
        Ok(mount) => mount,
        Err(reason) => return skip("tmpfs", &reason),
    };
    let dir = mount.path.join("queue");
    let options = mmq::Options::new().shared(true);
    let queue = options.open(&dir).unwrap();
    queue.enqueue("a message").unwrap();
    queue.close().unwrap();
    let limit = |inodes: u64| {
        let limit = format!("remount,nr_inodes={inodes}");
        let done = crate::support::command("mount").args(["-o", &limit]).arg(&mount.path).status();
        assert!(done.unwrap().success());
    };
    let used = rustix::fs::statvfs(&mount.path).unwrap();
    limit(used.f_files - used.f_ffree);
    let queue = options.open(&dir).unwrap();
    assert!(!dir.join("socket").exists());
    assert_eq!(queue.peek().unwrap().unwrap().as_str(), Ok("a message"));
    queue.close().unwrap();
    let queue = options.open(&dir).unwrap();
    limit(0);
    let answers = || mmq::Client::connect(&dir).and_then(|client| client.enqueue("another"));
    crate::support::eventually("it listens once there is room", || answers().is_ok());
    assert_eq!(queue.len(), 2);
    queue.close().unwrap();
    drop(mount);
}
