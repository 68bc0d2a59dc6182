//! A queue's directory: its files, and what the operating system says of them (mappings,
//! descriptors, disk).

#![allow(dead_code, reason = "every test program compiles this file and uses its own part of it")]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mappings of files in one directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

/// This process's mappings of files in `dir` (removed files too), the file called `index` left out.
///
/// The kernel hands `maps` over in pieces and not as one picture: with another thread that maps at
/// the same time, a mapping that moves can be seen twice. [`mapped_beside`] is for that case.
pub(crate) fn mapped(dir: &Path) -> Mapped {
    let dir = dir.canonicalize().expect("the directory exists");
    let mut mapped = Mapped::default();
    for line in fs::read_to_string("/proc/self/maps").expect("/proc/self/maps").lines() {
        let Some(path) = line.find('/').map(|at| Path::new(&line[at..])) else { continue };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !path.starts_with(&dir) || name == "index" || name == "index (deleted)" {
            continue;
        }
        let (from, to) = line
            .split_whitespace()
            .next()
            .and_then(|range| range.split_once('-'))
            .expect("a range");
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        mapped.count += 1;
        mapped.bytes += address(to) - address(from);
    }
    mapped
}

/// As [`mapped`] while other threads map and unmap: the least of three pictures taken one after
/// another.
pub(crate) fn mapped_beside(dir: &Path) -> Mapped {
    (0..3).map(|_| mapped(dir)).min_by_key(|mapped| mapped.bytes).unwrap_or_default()
}

/// This process's open descriptors of files in `dir`, the directory itself included.
pub(crate) fn open_files(dir: &Path) -> usize {
    let dir = dir.canonicalize().expect("the directory exists");
    let descriptors = fs::read_dir("/proc/self/fd").expect("/proc/self/fd");
    let targets =
        descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.filter(|target| target.starts_with(&dir)).count()
}

/// Bytes of disk that the files in `dir` take.
pub(crate) fn disk(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).expect("the directory exists").flatten();
    files
        .filter_map(|file| file.metadata().ok())
        .filter(|data| data.is_file())
        .map(|data| data.blocks() * 512)
        .sum()
}

/// Names in `dir`, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).expect("the directory exists").flatten();
    let mut names: Vec<String> =
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The segment files in `dir`, sorted by name: whatever is neither the index nor quarantined.
pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let is_segment = |name: &String| name != "index" && !name.contains(".damaged");
    names(dir)
        .into_iter()
        .filter(is_segment)
        .map(|name| dir.join(name))
        .filter(|path| path.is_file())
        .collect()
}

/// Copies the files of one directory into another, which is made new.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).expect("remove the old copy");
    }
    fs::create_dir(to).expect("make the copy's directory");
    for name in names(from) {
        match fs::copy(from.join(&name), to.join(&name)) {
            // The queue may be open, and give a segment back meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => _ = copied.expect("copy a file"),
        }
    }
}
