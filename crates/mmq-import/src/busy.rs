//! Who has the files of a directory open. None of the other queues has a lock.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The process that has one of these files open or mapped, and the file: a best effort. It sees
/// the processes of this machine that one may look into, on Linux.
pub fn users<'a>(files: impl Iterator<Item = &'a Path>) -> Option<(u32, PathBuf)> {
    let identity = |path: &Path| {
        let data = fs::metadata(path).ok()?;
        let path = fs::canonicalize(path).ok()?;
        Some(((data.dev(), data.ino()), path))
    };
    let files: Vec<_> = files.filter_map(identity).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|listed| listed.file_name().to_str()?.parse::<u32>().ok()).find_map(
        |pid| {
            if pid == std::process::id() {
                return None;
            }
            let process = PathBuf::from(format!("/proc/{pid}"));
            let used = open_by(&process, &files).or_else(|| mapped_by(&process, &files))?;
            Some((pid, used.to_owned()))
        },
    )
}

type KnownFile = ((u64, u64), PathBuf);

fn open_by<'a>(process: &Path, files: &'a [KnownFile]) -> Option<&'a Path> {
    fs::read_dir(process.join("fd")).ok()?.flatten().find_map(|listed| {
        let data = fs::metadata(listed.path()).ok()?;
        let identity = (data.dev(), data.ino());
        files.iter().find(|(known, _)| *known == identity).map(|(_, path)| path.as_path())
    })
}

/// By their paths: the numbers of devices in the table of mappings are others on some file systems.
fn mapped_by<'a>(process: &Path, files: &'a [KnownFile]) -> Option<&'a Path> {
    let maps = fs::read(process.join("maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().find_map(|line| {
        // range, rights, offset, device, inode; then blanks and the path.
        let path = line.find('/').and_then(|at| line.get(at..))?;
        files.iter().find(|(_, known)| known.to_str() == Some(path)).map(|(_, path)| path.as_path())
    })
}
