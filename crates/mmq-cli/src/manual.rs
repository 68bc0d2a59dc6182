//! The manual, made from the command line: a page for the tool, and one for each command.

use std::io::{self, Write};

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::ending::STATUSES;

/// The name of a page's file, and its text.
pub(crate) type Page = (String, Vec<u8>);

/// All pages, the tool's first.
pub(crate) fn pages(mut tool: Command) -> io::Result<Vec<Page>> {
    tool = tool.disable_help_subcommand(true);
    tool.build();
    let mut pages = Vec::new();
    add_pages(&tool, &tool, &mut pages)?;
    Ok(pages)
}

/// The files of a queue.
const FILES: [(&str, &str); 4] = [
    ("DIR", "The queue. The process that has it open holds a lock (flock) on this directory."),
    ("DIR/index", "The place of each consumer, and how far messages are durable."),
    (
        "DIR/segment-*",
        "The messages. A segment whose messages all consumers have taken is used again, or removed.",
    ),
    (
        "DIR/*.damaged",
        "Files that mmq renamed because they were damaged. mmq-salvage(1) reads them.",
    ),
];

/// A page for the command and for each below it.
fn add_pages(command: &Command, above: &Command, pages: &mut Vec<Page>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut text = Vec::new();
    let page = Man::new(command.clone());
    // By hand: clap_mangen writes an empty date as no argument, and the next ones take its place.
    let version = env!("CARGO_PKG_VERSION");
    writeln!(text, ".TH {} 1 \"\" \"mmq {version}\" \"mmq manual\"", name.to_uppercase())?;
    page.render_name_section(&mut text)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text(synopsis(command, above));
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
    roff.to_writer(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().next().is_some() {
        page.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    let section = |roff: &mut Roff, title: &str, rows: &[(&str, &str)]| {
        roff.control("SH", [title]);
        for (name, what) in rows {
            roff.control("TP", ["8"]).text([bold(*name)]).text([roman(*what)]);
        }
    };
    section(&mut roff, "EXIT STATUS", &STATUSES);
    let dir = command.get_positionals().find(|positional| positional.get_id() == "dir");
    if name == "mmq" || dir.is_some_and(Arg::is_required_set) {
        section(&mut roff, "FILES", &FILES);
    }
    let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().skip(1) {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["SEE ALSO"]).text([roman(related(command, above).join(", "))]);
    roff.to_writer(&mut text)?;
    pages.push((format!("{name}.1"), text));
    command.get_subcommands().try_for_each(|below| add_pages(below, command, pages))
}

/// The command line: what may be left out stands in brackets, and values have their names.
fn synopsis(command: &Command, above: &Command) -> Vec<Inline> {
    let name = |command: &Command| command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let mut line = vec![bold(name(command))];
    if above.get_positionals().next().is_some() {
        // What the command above takes stands before the name of this one.
        line = vec![bold(name(above))];
        for positional in above.get_positionals() {
            line.extend([roman(" "), italic(value_name(positional))]);
        }
        line.extend([roman(" "), bold(command.get_name())]);
    }
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
        text.split(&words).skip(1).any(|behind| {
            let next = behind.chars().next();
            !next.is_some_and(|next| next.is_alphanumeric() || next == '-')
        })
    });
    let all = [above].into_iter().chain(command.get_subcommands()).chain(named);
    let mut names: Vec<String> = all.map(name).filter(|other| *other != name(command)).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| format!("{name}(1)")).collect()
}
