//! Colours for people: red is bad, yellow is in doubt, green is well. Programs get none.
//!
//! anstyle writes them. When there are any is said by hand: anstream also obeys CLICOLOR.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches};

/// `--color`, for the commands that have colours.
pub(crate) fn argument() -> Arg {
    Arg::new("color")
        .long("color")
        .value_name("WHEN")
        .value_parser(PossibleValuesParser::new(["auto", "always", "never"]))
        .help(
            "When to use colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]",
        )
}

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Coloured,
}

impl Paint {
    /// That of what is written to this stream.
    pub(crate) fn on(matches: &ArgMatches, stream: &impl IsTerminal) -> Paint {
        // Most commands have no such argument.
        let Ok(asked) = matches.try_get_one::<String>("color") else { return Paint::Plain };
        let is_coloured = match asked.map(String::as_str) {
            Some("always") => true,
            Some("never") => false,
            _ => {
                let set = |name| std::env::var_os(name).unwrap_or_default();
                stream.is_terminal() && set("NO_COLOR").is_empty() && set("TERM") != "dumb"
            }
        };
        if is_coloured { Paint::Coloured } else { Paint::Plain }
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red, text)
    }

    pub(crate) fn in_doubt(self, text: &str) -> String {
        self.with(AnsiColor::Yellow, text)
    }

    pub(crate) fn well(self, text: &str) -> String {
        self.with(AnsiColor::Green, text)
    }

    fn with(self, color: AnsiColor, text: &str) -> String {
        let style = match self {
            Paint::Plain => Style::new(),
            Paint::Coloured => Style::new().fg_color(Some(color.into())),
        };
        format!("{style}{text}{style:#}")
    }
}
