//! `completions/` and `man/` are made from the tool's command line and checked in. This test makes
//! them anew and compares; `MMQ_BLESS=1 cargo test --features cli --test tool` writes the new ones.

use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

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

/// The files of a queue.
const FILES: [(&str, &str); 3] = [
    ("DIR/index", "Who has the queue, where its consumers stand, and up to where it is durable."),
    ("DIR/segment-*", "The messages."),
    ("DIR/*.damaged", "What an opening has set aside; mmq-salvage(1) reads it."),
];

/// A page for the command and for each below it.
fn pages(command: &Command, above: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut text = Vec::new();
    let page = Man::new(command.clone()).source("mmq").manual("mmq");
    page.render_title(&mut text).unwrap();
    page.render_name_section(&mut text).unwrap();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text(synopsis(command));
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    roff.text([roman(about + ".")]);
    if let Some(after) = command.get_after_help().map(ToString::to_string) {
        roff.control("PP", []);
        for line in after.lines() {
            if line.is_empty() {
                roff.control("PP", []);
            } else {
                roff.text([roman(line)]);
            }
        }
    }
    if let Some(examples) = command.get_before_help().map(ToString::to_string)
        && !examples.is_empty()
    {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().skip(1) {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.to_writer(&mut text).unwrap();
    page.render_options_section(&mut text).unwrap();
    if command.get_subcommands().next().is_some() {
        page.render_subcommands_section(&mut text).unwrap();
    }
    let mut roff = Roff::new();
    let section = |roff: &mut Roff, title: &str, rows: &[(&str, &str)]| {
        roff.control("SH", [title]);
        for (name, what) in rows {
            roff.control("TP", ["8"]).text([bold(*name)]).text([roman(*what)]);
        }
    };
    section(&mut roff, "EXIT STATUS", &STATUS);
    let dir = command.get_positionals().find(|positional| positional.get_id() == "dir");
    if name == "mmq" || dir.is_some_and(Arg::is_required_set) {
        section(&mut roff, "FILES", &FILES);
    }
    roff.control("SH", ["SEE ALSO"]).text([roman(related(command, above).join(", "))]);
    roff.to_writer(&mut text).unwrap();
    pages.push((format!("{name}.1"), text));
    for below in command.get_subcommands() {
        self::pages(below, command, pages);
    }
}

/// The command line: what may be left out stands in brackets, and values have their names.
fn synopsis(command: &Command) -> Vec<Inline> {
    let mut line = vec![bold(command.get_bin_name().unwrap_or(command.get_name()))];
    let (positionals, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().partition(|arg| arg.is_positional());
    for option in options.into_iter().filter(|option| option.get_id() != "help") {
        line.push(roman(" ["));
        let short = option.get_short().map(|short| format!("-{short}"));
        let long = option.get_long().map(|long| format!("--{long}"));
        let names: Vec<String> = short.into_iter().chain(long).collect();
        line.push(bold(names.join("|")));
        if option.get_action().takes_values() {
            let can_miss = option.get_num_args().is_some_and(|range| range.min_values() == 0);
            line.push(roman(if can_miss { " [" } else { " " }));
            line.push(italic(value_name(option)));
            line.push(roman(if can_miss { "]" } else { "" }));
        }
        line.push(roman(if is_repeated(option) { "]..." } else { "]" }));
    }
    for positional in positionals {
        let is_required = positional.is_required_set();
        line.push(roman(if positional.is_last_set() { " -- " } else { " " }));
        line.push(roman(if is_required { "" } else { "[" }));
        line.push(italic(value_name(positional)));
        line.push(roman(if is_required { "" } else { "]" }));
        line.push(roman(if is_repeated(positional) { "..." } else { "" }));
    }
    if command.get_subcommands().next().is_some() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    line
}

fn value_name(arg: &Arg) -> String {
    arg.get_value_names().map_or_else(|| arg.get_id().to_string(), |names| names.join(" "))
}

fn is_repeated(arg: &Arg) -> bool {
    let has_many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    has_many || matches!(arg.get_action(), ArgAction::Append)
}

/// The pages above and below this one, and those of the commands that its text names.
fn related(command: &Command, above: &Command) -> Vec<String> {
    let text = command.clone().render_help().to_string();
    let name = |command: &Command| command.get_display_name().unwrap_or("mmq").to_owned();
    let named = above.get_subcommands().filter(|other| {
        let words = format!("mmq {}", other.get_name());
        text.match_indices(&words).any(|(at, _)| {
            let behind = text[at + words.len()..].chars().next();
            !behind.is_some_and(|c| c.is_alphanumeric() || c == '-')
        })
    });
    let all = [above].into_iter().chain(command.get_subcommands()).chain(named);
    let mut names: Vec<String> = all.map(name).filter(|other| *other != name(command)).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| format!("{name}(1)")).collect()
}

#[test]
fn every_page_has_the_sections_that_a_reader_looks_for() {
    for (name, page) in man::PAGES {
        for section in ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
            assert_eq!(page.matches(&format!("\n.SH {section}\n")).count(), 1, "{name}: {section}");
        }
        assert!(!page.contains("EXTRA"), "{name}");
    }
    let page = |name| man::PAGES.iter().find(|(page, _)| *page == name).unwrap().1;
    let stat = page("mmq-stat.1");
    assert!(stat.contains(r"[\fB\-\-max\-lag\fR \fIN\fR]"), "{stat}");
    assert!(stat.contains(r"[\fB\-\-watch\fR [\fISECONDS\fR]]"), "{stat}");
    assert!(stat.contains("\n.SH FILES\n"), "{stat}");
    assert!(page("mmq-dump.1").contains(r"mmq\-load(1)"));
    assert!(page("mmq.1").contains(r"mmq\-bench(1), mmq\-cat(1), "));
}

#[test]
fn the_manual_is_current() {
    let mut command = description().disable_help_subcommand(true);
    command.build();
    let mut made = Vec::new();
    pages(&command, &command, &mut made);
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
