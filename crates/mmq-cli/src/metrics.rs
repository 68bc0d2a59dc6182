//! Text for Prometheus.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::failure::{Failure, Tried};

/// The value of a label.
pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Puts the text in that file's place. Who reads the file sees all of the old or all of the new.
pub(crate) fn replace(file: &Path, text: &str) -> Tried<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".tmp.{}", std::process::id()));
    // What is left there, or put there by another user, is not written to.
    let _ = fs::remove_file(&beside);
    let made = fs::File::create_new(&beside).and_then(|mut made| made.write_all(text.as_bytes()));
    let written = made.and_then(|()| fs::rename(&beside, file));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        Failure::io(file.display(), &error)
    })
}
