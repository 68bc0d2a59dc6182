//! Queues whose owner is in another namespace, as in a container.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use mmq::Queue;

use crate::run::{Running, check, ends, given, mmq, on, said};
use crate::support::{eventually, itself};

/// The command, by way of `unshare` with these arguments.
fn unshared(arguments: &[impl AsRef<OsStr>], command: &Command) -> Command {
    let mut other = Command::new("unshare");
    other.args(arguments).arg(command.get_program());
    other.args(command.get_args()).stdin(Stdio::null());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    other
}

/// The command in a namespace of processes of its own, which shows no process of this one.
fn apart(command: &Command) -> Command {
    unshared(&["--pid", "--fork", "--kill-child", "--mount-proc"], command)
}

/// The command in a namespace of mounts where the kernel seems to have booted another time.
fn in_another_boot(command: &Command, boot: &Path) -> Command {
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let before = ["--mount", "sh", "-c", script].map(OsStr::new);
    unshared(&[&before[..], &[boot.as_os_str()]].concat(), command)
}

#[test]
fn an_owner_in_another_namespace_is_no_dead_one_and_has_no_number_of_it() {
    if !apart(&mmq(["--version"])).output().is_ok_and(|it| it.status.success()) {
        crate::support::skip("only root has a namespace of processes");
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    let stated = |command: Command| String::from_utf8(ends(command, 0).stdout).unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    let queue = Queue::open(&here).unwrap();
    queue.enqueue_batch(["a", "b"]).unwrap();
    let seen = stated(apart(&on("stat", &here, &[])));
    assert!(seen.contains(": a process that this one cannot see has it since 20"), "{seen}");
    assert_eq!(stated(apart(&on("gaps", &here, &["--deep"]))), "");
    let output = check(given(apart(&on("put", &here, &[])), b"c"), 4);
    assert!(said(&output).contains("is open already since 20"), "{}", said(&output));
    queue.close().unwrap();

    let mut owner = itself("looking::the_child_that_holds_a_queue");
    owner.env("MMQ_TEST_DIR", &there);
    let mut owner = Running(apart(&owner).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(owner.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("holds it")));
    let seen = stated(on("stat", &there, &[]));
    let number = seen.split(": process ").nth(1).and_then(|seen| seen.split(' ').next()).unwrap();
    assert_ne!(number, "1", "{seen}");
    let output = check(given(on("put", &there, &[]), b"c"), 4);
    let part = format!("is open already in process {number} since 20");
    assert!(said(&output).contains(&part), "{}", said(&output));
    drop(owner);
    let died = || stated(apart(&on("stat", &there, &[]))).contains("its process died; nothing is");
    eventually("it has died", died);
}

#[test]
fn a_queue_in_use_is_looked_at_from_a_container_with_a_boot_id_of_its_own() {
    let dir = crate::support::tempdir().unwrap();
    let boot = dir.path().join("boot");
    std::fs::write(&boot, "11111111-2222-4333-8444-555555555555\n").unwrap();
    if !in_another_boot(&mmq(["--version"]), &boot).output().is_ok_and(|it| it.status.success()) {
        crate::support::skip("only root mounts over the boot id");
        return;
    }
    let used = dir.path().join("used");
    let seen = |does: &str| {
        let output = ends(in_another_boot(&on(does, &used, &[]), &boot), 0);
        String::from_utf8(output.stdout).unwrap()
    };
    let queue = Queue::open(&used).unwrap();
    for held in [0, 2, 4] {
        assert_eq!(seen("cat").lines().count(), held);
        let stated = seen("stat");
        let has_it = format!("process {} has it", std::process::id());
        assert!(stated.contains(&has_it), "{stated}");
        assert!(stated.contains(&format!("waiting    {held} message")), "{stated}");
        queue.enqueue_batch(["a", "b"]).unwrap();
    }
    assert!(seen("verify").starts_with("intact: "));
    queue.close().unwrap();
    // An owner that has the lock and not yet the index may be opening it after a power cut.
    let directory = std::fs::File::open(&used).unwrap();
    directory.lock().unwrap();
    let output = in_another_boot(&on("stat", &used, &[]), &boot).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("changed too quickly"), "{said}");
}
