//! All files of a queue, taken away and put back.

use std::fs;
use std::path::Path;

/// The files at one moment: read until nobody has changed any between two readings.
pub(super) fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut before = None;
    loop {
        let now = try_files(dir);
        if now.is_some() && now == before {
            return now.unwrap_or_default();
        }
        before = now;
    }
}

/// Nothing if one goes meanwhile.
fn try_files(dir: &Path) -> Option<Vec<(String, Vec<u8>)>> {
    let names = fs::read_dir(dir).expect("the files").map(|file| file.expect("a file").file_name());
    let files = names.map(|name| {
        let bytes = fs::read(dir.join(&name)).ok()?;
        Some((name.into_string().expect("a name"), bytes))
    });
    let mut files = files.collect::<Option<Vec<_>>>()?;
    files.sort();
    Some(files)
}

/// These files, and no others.
pub(super) fn put(dir: &Path, files: &[(String, Vec<u8>)]) {
    for file in fs::read_dir(dir).expect("the files") {
        fs::remove_file(file.expect("a file").path()).expect("removing");
    }
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("a file");
    }
}

/// Ends the queue as the death of its process does: each file has its bytes again, and is the same
/// file. (A copy would be believed less.)
pub(super) fn die(dir: &Path, end: impl FnOnce()) {
    let kept = dir.with_extension("kept");
    let files = loop {
        let files = files(dir);
        fs::create_dir(&kept).expect("a directory");
        let link = |(name, _): &(String, Vec<u8>)| fs::hard_link(dir.join(name), kept.join(name));
        if files.iter().try_for_each(link).is_ok() {
            break files;
        }
        // The queue's worker has removed one since.
        fs::remove_dir_all(&kept).expect("removing");
    };
    end();
    put(dir, &[]);
    for (name, bytes) in &files {
        fs::rename(kept.join(name), dir.join(name)).expect("its name");
        fs::write(dir.join(name), bytes).expect("its bytes");
    }
    fs::remove_dir(&kept).expect("removing");
}
