//! `completions`: what a shell completes of this tool's command line.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};

use super::Call;
use crate::arguments;
use crate::ending::Ending;
use crate::failure::{Failure, Tried};

/// Made by clap_complete, checked in, and held by a test.
const SHELLS: [(&str, &str); 5] = [
    ("bash", include_str!("../../../../completions/mmq.bash")),
    ("elvish", include_str!("../../../../completions/mmq.elv")),
    ("fish", include_str!("../../../../completions/mmq.fish")),
    ("powershell", include_str!("../../../../completions/_mmq.ps1")),
    ("zsh", include_str!("../../../../completions/_mmq")),
];

pub(crate) fn command() -> Command {
    let names = PossibleValuesParser::new(SHELLS.map(|(name, _)| name));
    arguments::command(
        "completions",
        "Print what a shell needs to complete this tool's command line",
        "Examples:\n  source <(mmq completions bash)\n  mmq completions zsh > ~/.zfunc/_mmq",
    )
    .arg(Arg::new("shell").value_name("SHELL").value_parser(names).required(true).help("For which"))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<Ending> {
    let asked = arguments::text_of(call.matches, "shell");
    let found = SHELLS.iter().find(|(name, _)| Some(*name) == asked);
    let (_, text) = found.ok_or_else(|| Failure::usage("name a shell"))?;
    Ok(super::print(text))
}
