//! `man`: the pages of the manual.

use std::fs;

use clap::Command;

use super::Call;
use crate::arguments;
use crate::ending::Ending;
use crate::failure::{Failure, Tried};

macro_rules! page {
    ($name:literal) => {
        (concat!($name, ".1"), include_str!(concat!("../../../../man/", $name, ".1")))
    };
}

/// Every page: its file's name, and its text. Made by clap_mangen, checked in, and held by a test,
/// which names a page that is not here.
pub(crate) const PAGES: &[(&str, &str)] = &[
    page!("mmq"),
    page!("mmq-bench"),
    page!("mmq-cat"),
    page!("mmq-completions"),
    page!("mmq-consumers"),
    page!("mmq-consumers-add"),
    page!("mmq-consumers-fork"),
    page!("mmq-consumers-rm"),
    page!("mmq-consumers-seek"),
    page!("mmq-copy"),
    page!("mmq-dump"),
    page!("mmq-each"),
    page!("mmq-forward"),
    page!("mmq-gaps"),
    page!("mmq-import"),
    page!("mmq-load"),
    page!("mmq-man"),
    page!("mmq-purge"),
    page!("mmq-put"),
    page!("mmq-redrive"),
    page!("mmq-salvage"),
    page!("mmq-spool"),
    page!("mmq-stat"),
    page!("mmq-tail"),
    page!("mmq-take"),
    page!("mmq-verify"),
];

pub(crate) fn command() -> Command {
    arguments::command(
        "man",
        "Print this tool's page of the manual, or write those of all commands into a directory",
        "Examples:\n  mmq man | man -l -\n  mmq man /usr/local/share/man/man1",
    )
    .arg(arguments::path("dir", "DIR").help("A directory, to write all pages into"))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<Ending> {
    let Some(dir) = arguments::path_of(call.matches, "dir") else {
        let (_, text) = PAGES.first().ok_or_else(|| Failure::usage("there is no manual"))?;
        return Ok(super::print(text));
    };
    for (name, text) in PAGES {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| Failure::io(path.display(), &error))?;
    }
    Ok(Ending::Done)
}
