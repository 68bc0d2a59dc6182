//! `man`: the pages of the manual.

use std::fs;

use clap::Command;

use super::Call;
use crate::arguments;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::manual::pages;
use crate::output::Output;

pub(crate) fn command() -> Command {
    arguments::command(
        "man",
        "Print the manual page of this tool, or write the pages of all commands into a directory",
        "Examples:\n  mmq man | man -l -\n  mmq man /usr/local/share/man/man1",
    )
    .arg(arguments::path("dir", "DIR").help("The directory for all pages"))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let pages = pages(super::description());
    let pages = pages.map_err(|error| Failure::io("the manual", &error))?;
    let Some(dir) = arguments::path_of(call.matches, "dir") else {
        let (_, text) = pages.first().ok_or_else(|| Failure::usage("there is no manual"))?;
        Output::print(call.signals, text)?;
        return Ok(ExitStatus::Done);
    };
    fs::create_dir_all(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    for (name, text) in pages {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| Failure::io(path.display(), &error))?;
    }
    Ok(ExitStatus::Done)
}
