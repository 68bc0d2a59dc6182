//! `serve`: holds a queue open for other processes.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};

use super::{Call, put};
use crate::arguments;
use crate::console::Form;
use crate::ending::ExitStatus;
use crate::failure::Tried;
use crate::json_object::Object;
use crate::output::Output;
use crate::signals::For;

const AFTER: &str = "\
Every command that uses a queue shares it with others while it has it open. This one does only that,
until SIGINT or SIGTERM: so no other command has to open the queue first, and the options given here
apply to all of them. Then it makes everything durable and closes the queue; commands that are using
the queue go on, and one of them opens it.

It prints one line when others can use the queue. At most 64 processes can at a time: those of the
same user, and with --mode 660 those of the group that may write the queue's files.";

pub(crate) fn command() -> Command {
    let serve = arguments::command(
        "serve",
        "Hold a queue open, and share it with other processes",
        "Examples:\n  mmq serve q\n  mmq serve q --max-bytes 1GiB --on-full drop-oldest --mode 660",
    );
    let on_full = PossibleValuesParser::new(["reject", "drop-oldest"]);
    let serve = serve
        .arg(arguments::dir().help("The queue's directory; it is made if it is missing"))
        .arg(Arg::new("on-full").long("on-full").value_name("POLICY").value_parser(on_full).help(
            "What to do when there is no room: refuse the message, or drop the oldest messages [default: reject]",
        ));
    arguments::locking(put::owning(serve).after_help(AFTER))
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let dir = arguments::dir_of(call.matches);
    let queue = call.opener().serve(dir, &put::options(call.matches))?;
    let result = serve(call);
    queue.close()?;
    result
}

fn serve(call: &Call<'_>) -> Tried<ExitStatus> {
    let dir = arguments::dir_of(call.matches).to_string_lossy();
    let line = match call.console.form {
        Form::Program => Object::new().with("serves", dir).with("pid", std::process::id()).text(),
        Form::Person => format!("queue {dir} is shared by process {}", std::process::id()),
    };
    Output::print(call.signals, format!("{line}\n").as_bytes())?;
    call.signals.wait(&[], For::Reading, None)?;
    Ok(call.signals.stop().unwrap_or(ExitStatus::Done))
}
