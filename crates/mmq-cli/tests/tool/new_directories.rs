//! What cannot become a new queue's directory is refused before any work is done for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::each::jobs;
use crate::run::{check, given, on, said};
use crate::support::command;

/// `load` of a dump, and a copy, as NEW; with what comes before the name while they work.
fn makers(dir: &Path, new: &Path) -> [(&'static str, Command); 2] {
    let mut copy = on("copy", &dir.join("old"), &[]);
    copy.arg(new);
    [(".loading", on("load", new, &[])), (".copying", copy)]
}

fn filled(dir: &Path) -> Vec<u8> {
    jobs(&dir.join("old"), ["a message".to_owned()]);
    on("dump", &dir.join("old"), &[]).output().unwrap().stdout
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|listed| listed.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_name_without_room_for_the_suffix_and_a_link_to_nothing_are_refused() {
    let dir = crate::support::tempdir().unwrap();
    let dump = filled(dir.path());
    let link = dir.path().join("link");
    symlink("nowhere", &link).unwrap();
    let before = names(dir.path());
    for (suffix, load_or_copy) in makers(dir.path(), &dir.path().join("x".repeat(250))) {
        let refused = said(&check(given(load_or_copy, &dump), 6));
        let wanted =
            format!("has a name of 250 bytes; name it with at most {}", 255 - suffix.len());
        assert!(refused.contains(&wanted), "{refused}");
    }
    for (_, load_or_copy) in makers(dir.path(), &link) {
        let refused = said(&check(given(load_or_copy, &dump), 6));
        assert!(refused.contains("link is a link to nothing; name a directory"), "{refused}");
    }
    assert_eq!(names(dir.path()), before);
    // The longest name that there is room for.
    for (suffix, load_or_copy) in makers(dir.path(), &dir.path().join("x".repeat(247))) {
        check(given(load_or_copy, &dump), 0);
        let made = dir.path().join("x".repeat(247));
        assert!(fs::remove_dir_all(made).is_ok(), "{suffix}");
    }
}

#[test]
fn an_empty_mount_point_is_refused() {
    let mounted = |program: &Path| {
        let mut shell = command("unshare");
        let script = "mount -t tmpfs none mnt && exec \"$@\"";
        shell.args(["-rm", "sh", "-c", script, "sh"]).arg(program);
        shell
    };
    let dir = crate::support::tempdir().unwrap();
    let dump = filled(dir.path());
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let mut tried = mounted(Path::new("true"));
    if !tried.current_dir(dir.path()).output().is_ok_and(|tried| tried.status.success()) {
        crate::support::skip("nothing can be mounted");
        return;
    }
    for (_, load_or_copy) in makers(dir.path(), Path::new("mnt")) {
        let mut inside = mounted(Path::new(load_or_copy.get_program()));
        inside.args(load_or_copy.get_args()).current_dir(dir.path());
        let refused = said(&check(given(inside, &dump), 6));
        assert!(refused.contains("mnt is a mount point; name a directory in it"), "{refused}");
    }
    assert_eq!(names(dir.path()), ["mnt", "old"]);
}
