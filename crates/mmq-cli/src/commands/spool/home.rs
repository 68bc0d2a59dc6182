//! Where the queue of a spool lies.

use std::fs;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::failure::Tried;

/// A directory that was named, or a temporary one, which goes when this is dropped.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    temporary: bool,
}

impl Home {
    pub(super) fn new(named: Option<&Path>) -> Tried<Home> {
        if let Some(path) = named {
            return Ok(Home { path: path.to_owned(), temporary: false });
        }
        let (parent, pid) = (std::env::temp_dir(), std::process::id());
        for number in 0_u64.. {
            let path = parent.join(format!("mmq-spool-{pid}-{number}"));
            // For nobody else to read.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Home { path, temporary: true }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(path.display(), &error)),
            }
        }
        Err(Failure::usage("name a directory"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.temporary {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
