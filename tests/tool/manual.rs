//! `completions/` and `man/` are made from the tool's command line and checked in. This test makes
//! them anew and compares; `MMQ_BLESS=1 cargo test --features cli --test tool` writes the new ones.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::commands::{description, man};
use crate::run::{ends, mmq};

const SHELLS: [(Shell, &str, &str); 5] = [
    (Shell::Bash, "bash", "mmq.bash"),
    (Shell::Elvish, "elvish", "mmq.elv"),
    (Shell::Fish, "fish", "mmq.fish"),
    (Shell::PowerShell, "powershell", "_mmq.ps1"),
    (Shell::Zsh, "zsh", "_mmq"),
];

/// What every page says of the exit status; what a command adds stands in its own text.
const STATUS: [(&str, &str); 9] = [
    ("0", "Done; also when the reader of standard output wanted no more."),
    ("1", "Done, and the answer is bad: damage, a gap, a limit passed, messages given up."),
    ("2", "The command line is wrong."),
    ("3", "Nothing was there."),
    ("4", "Another process has the queue."),
    ("5", "There is no such queue, consumer or message."),
    ("6", "Refused: full, too large, damaged, a later format, framing."),
    ("7", "The system or the far side failed."),
    ("130, 143", "Ended in order after SIGINT or SIGTERM."),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The tool has these files inside, so it is built anew after they were written.
fn is_blessing() -> bool {
    std::env::var_os("MMQ_BLESS").is_some()
}

/// That file has this content, or gets it.
fn hold(path: &Path, new: &[u8]) {
    if is_blessing() {
        fs::write(path, new).unwrap();
        return;
    }
    let advice = "is not current; run MMQ_BLESS=1 cargo test --features cli --test tool";
    assert!(fs::read(path).unwrap_or_default() == new, "{} {advice}", path.display());
}

#[test]
fn the_completions_are_current() {
    for (shell, name, file) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut description(), "mmq", &mut text);
        hold(&root().join("completions").join(file), &text);
        let printed = || ends(mmq(["completions", name]), 0).stdout;
        assert!(is_blessing() || printed() == text, "{name}");
    }
}

/// A page for the command and for each below it.
fn pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut text = Vec::new();
    let page = Man::new(command.clone()).source("mmq").manual("mmq");
    page.render_title(&mut text).unwrap();
    page.render_name_section(&mut text).unwrap();
    page.render_synopsis_section(&mut text).unwrap();
    if let Some(examples) = command.get_before_help().map(ToString::to_string)
        && !examples.is_empty()
    {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().skip(1) {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(&mut text).unwrap();
    }
    page.render_options_section(&mut text).unwrap();
    if command.get_subcommands().next().is_some() {
        page.render_subcommands_section(&mut text).unwrap();
    }
    if command.get_after_help().is_some() {
        page.render_extra_section(&mut text).unwrap();
    }
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, what) in STATUS {
        roff.control("TP", ["8"]).text([roman(status)]).text([roman(what)]);
    }
    roff.to_writer(&mut text).unwrap();
    pages.push((format!("{name}.1"), text));
    for below in command.get_subcommands() {
        self::pages(below, pages);
    }
}

#[test]
fn every_page_has_the_exit_statuses() {
    for (name, page) in man::PAGES {
        assert!(page.contains("\n.SH \"EXIT STATUS\"\n"), "{name}");
    }
}

#[test]
fn the_manual_is_current() {
    let mut command = description().disable_help_subcommand(true);
    command.build();
    let mut made = Vec::new();
    pages(&command, &mut made);
    for (name, text) in &made {
        hold(&root().join("man").join(name), text);
    }
    let mut wanted: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    wanted.sort_unstable_by_key(|name| name.trim_end_matches(".1"));
    let listed: Vec<&str> = man::PAGES.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, wanted, "PAGES in src/bin/mmq/commands/man.rs");
    if is_blessing() {
        return;
    }
    let dir = crate::support::tempdir().unwrap();
    ends(mmq([Path::new("man"), dir.path()]), 0);
    for (name, text) in &made {
        assert!(fs::read(dir.path().join(name)).unwrap() == *text, "{name}");
    }
    let files = fs::read_dir(root().join("man")).unwrap().count();
    assert_eq!(files, made.len(), "a page of a command that is no more");
}
