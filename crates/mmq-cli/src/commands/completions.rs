//! `completions`: what a shell completes of this tool's command line.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;

use super::Call;
use crate::arguments;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::output::Output;

const SHELLS: [(&str, Shell); 5] = [
    ("bash", Shell::Bash),
    ("elvish", Shell::Elvish),
    ("fish", Shell::Fish),
    ("powershell", Shell::PowerShell),
    ("zsh", Shell::Zsh),
];

pub(crate) fn command() -> Command {
    let names = PossibleValuesParser::new(SHELLS.map(|(name, _)| name));
    arguments::command(
        "completions",
        "Print a script that makes a shell complete the commands of this tool",
        "Examples:\n  source <(mmq completions bash)\n  mmq completions zsh > ~/.zfunc/_mmq",
    )
    .arg(Arg::new("shell").value_name("SHELL").value_parser(names).required(true).help("The shell"))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let asked = arguments::text_of(call.matches, "shell");
    let found = SHELLS.iter().find(|(name, _)| Some(*name) == asked);
    let (_, shell) = found.ok_or_else(|| Failure::usage("name a shell"))?;
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut super::description(), "mmq", &mut text);
    Output::print(call.signals, &text)?;
    Ok(ExitStatus::Done)
}
