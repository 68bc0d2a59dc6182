//! Disk space as seen from outside, all the time while something runs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of disk or length, whichever is more, of all files in the directory. Looked at until two
/// pictures taken one after the other are the same: files come and go meanwhile.
pub(crate) fn taken(dir: &Path) -> u64 {
    let picture = || {
        let files = std::fs::read_dir(dir).ok()?.flatten().filter_map(|file| file.metadata().ok());
        let mut files: Vec<_> =
            files.map(|file| (file.ino(), file.len().max(file.blocks() * 512))).collect();
        files.sort_unstable();
        Some(files)
    };
    let mut last = picture();
    for _ in 0..1000 {
        let now = picture();
        if now == last {
            break;
        }
        last = now;
    }
    last.unwrap_or_default().iter().map(|(_, bytes)| bytes).sum()
}

/// Runs `work` while another thread looks at the directory all the time; the most it saw.
pub(crate) fn watched<R>(dir: &Path, work: impl FnOnce() -> R) -> (R, u64) {
    let (stop, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(taken(dir), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, most.load(Ordering::Relaxed).max(taken(dir)))
    })
}
