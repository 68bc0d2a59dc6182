//! Whatever a killed test process has made is gone with it: `support/guard.rs`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{self, guard};
use rustix::process::{Pid, Signal, kill_process_group};

/// Set for the process that is to be killed.
const VICTIM: &str = "MMQ_GUARD_VICTIM";

/// Runs in the process that is killed. It has a directory, a child in a process group of its own,
/// and for root a mounted tmpfs and a loop device; and it hangs.
#[test]
fn what_is_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let dir = support::tempdir().unwrap();
    let in_memory = guard::tempdir_in_memory().unwrap();
    let mut sleeping = guard::command("sleep");
    let mut sleeping = sleeping.arg("1000").process_group(0).spawn().unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let _ = guard::command("mkfs.ext4").arg("-q").arg(&image).status();
    let mounts = [("tmpfs", "size=1m"), ("ext4", "loop")];
    for (kind, options) in mounts {
        let target = dir.path().join(kind);
        fs::create_dir(&target).unwrap();
        guard::unmount_at_end(&target, &image);
        let mut mount = guard::command("mount");
        mount.args(["-t", kind, "-o", options]).arg(&image).arg(&target);
        println!("mounted {:?}", mount.status().is_ok_and(|status| status.success()));
    }
    println!("memory {}", in_memory.path().display());
    println!("ready {}", guard::root().display());
    sleeping.wait().unwrap();
}

/// Mounts, loop devices and processes that have this path.
fn found(root: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut found: Vec<_> =
        mounts.lines().filter(|line| line.contains(root)).map(ToString::to_string).collect();
    let mut read = |folder: &str, file: &str| {
        for one in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = one.path().join(file);
            let text = fs::read(&path).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains(root) {
                found.push(path.display().to_string());
            }
        }
    };
    read("/sys/block", "loop/backing_file");
    read("/proc", "environ");
    found
}

#[test]
fn nothing_is_left_of_a_test_process_that_is_killed_with_its_group() {
    let mut victim = support::itself("leftovers::what_is_killed");
    victim.env(VICTIM, "").process_group(0).stdout(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut reported = Vec::new();
    let mut after = |word: &str| {
        let path = lines.by_ref().inspect(|line| reported.push(line.clone()));
        path.filter_map(|line| line.strip_prefix(word).map(ToString::to_string)).next().unwrap()
    };
    let (in_memory, root) = (after("memory "), after("ready "));
    let before = found(&root);
    assert!(before.iter().any(|path| path.ends_with("environ")));
    let mounts = reported.iter().filter(|line| *line == "mounted true").count();
    // A mount, and a mount through a loop device.
    assert!(before.len() > [0, 1, 3][mounts], "{before:#?}");
    let lock = File::open(&root).unwrap();
    assert!(lock.try_lock().is_err(), "its guard holds it");

    kill_process_group(Pid::from_child(&victim), Signal::KILL).unwrap();
    victim.wait().unwrap();
    support::within(Duration::from_secs(60), move || lock.lock().unwrap());
    assert_eq!(found(&root), [""; 0]);
    assert!(!Path::new(&root).exists() && !Path::new(&in_memory).exists());
}
