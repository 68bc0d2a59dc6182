//! The manual and the completions, which the tool makes of its own command line.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::run::{ends, mmq};

/// All pages, as `mmq man DIR` writes them.
fn pages() -> BTreeMap<String, String> {
    let dir = crate::support::tempdir().unwrap();
    let made = dir.path().join("share/man1");
    ends(mmq([Path::new("man"), &made]), 0);
    let listed = fs::read_dir(made).unwrap().map(Result::unwrap);
    let page = |listed: fs::DirEntry| {
        let text = fs::read_to_string(listed.path()).unwrap();
        (listed.file_name().into_string().unwrap(), text)
    };
    listed.map(page).collect()
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = String::from_utf8(ends(mmq(["--help"]), 0).stdout).unwrap();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names: Vec<_> =
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 20, "{help}");
    names.into_iter().filter(|name| name != "help").collect()
}

#[test]
fn every_command_has_a_page_with_the_sections_that_a_reader_looks_for() {
    let pages = pages();
    for command in commands() {
        assert!(pages.contains_key(&format!("mmq-{command}.1")), "{command} has no page");
    }
    for (name, page) in &pages {
        for section in ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
            assert_eq!(page.matches(&format!("\n.SH {section}\n")).count(), 1, "{name}: {section}");
        }
        assert_eq!(page.contains("\n.SH EXAMPLES\n"), name != "mmq.1", "{name}");
        assert!(!page.contains("EXTRA"), "{name}");
        let title = format!(".TH {} 1 \"\" \"mmq ", name[..name.len() - 2].to_uppercase());
        assert!(page.contains(&title), "{name}");
    }
    let stat = &pages["mmq-stat.1"];
    assert!(stat.contains(r"[\fB\-\-max\-lag\fR \fIN\fR]"), "{stat}");
    assert!(stat.contains(r"[\fB\-\-watch\fR [\fISECONDS\fR]]"), "{stat}");
    assert!(stat.contains("\n.SH FILES\n"), "{stat}");
    assert!(pages["mmq-dump.1"].contains(r"mmq\-load(1)"));
    assert!(pages["mmq.1"].contains(r"mmq\-bench(1), mmq\-cat(1), "));
    let add = &pages["mmq-consumers-add.1"];
    assert!(add.contains(r"\fBmmq consumers\fR \fIDIR\fR \fBadd\fR ["), "{add}");
    let printed = ends(mmq(["man"]), 0).stdout;
    assert_eq!(String::from_utf8(printed).unwrap(), pages["mmq.1"]);
}

#[test]
fn the_help_has_the_exit_statuses_of_the_manual() {
    let help = String::from_utf8(ends(mmq(["help"]), 0).stdout).unwrap();
    let (_, statuses) = help.split_once("\nExit status:\n").unwrap();
    assert_eq!(statuses.lines().count(), 9, "{help}");
    let page = &pages()["mmq.1"];
    for line in statuses.lines() {
        let what = line.get(12..).unwrap().replace('-', r"\-");
        assert!(page.contains(&what), "{line}");
    }
}

#[test]
fn each_shell_completes_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = String::from_utf8(ends(mmq(["completions", shell]), 0).stdout).unwrap();
        for command in commands() {
            assert!(text.contains(&command), "{shell} does not complete {command}");
        }
    }
}
