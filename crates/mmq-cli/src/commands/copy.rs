//! `copy`: a second queue with the same messages, numbers and places.

use std::io::ErrorKind;
use std::ops::ControlFlow;

use clap::Command;
use mmq::{CopiedId, Error, Inspector};

use super::Call;
use crate::arguments::{self, flag};
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried};
use crate::figures;
use crate::making::check_new;
use crate::progress::Bar;
use crate::units::{self, count};

const AFTER: &str = "\
Consumers have the same places in the copy, and the same messages acknowledged behind their places.
Damaged bytes are copied as they are. Spare segments (drained ones) are left out.

The id identifies the queue to programs that note its sequence numbers, such as `mmq forward`. With
--same-id two queues have one id, and from then on they give the same numbers to different messages:
use only one of the two. Never forward both to the same stream: the far side would take messages of
one queue for those of the other.

Until the copy is complete its directory is called NEW.copying. If the command is killed, remove
that directory. Status 0: the copy is durable, a power cut takes nothing of it.";

pub(crate) fn command() -> Command {
    let copy = arguments::command(
        "copy",
        "Make a second queue with the same messages, numbers and consumers",
        "Examples:\n  mmq copy q /mnt/other/q\n  mmq copy q backup --same-id",
    )
    .arg(arguments::dir())
    .arg(
        arguments::path("new", "NEW").help("The copy's directory: missing or empty").required(true),
    )
    .arg(
        flag("new-id", "Give the copy a new id: it is another queue [the default]")
            .conflicts_with("same-id"),
    )
    .arg(flag("same-id", "Keep the queue's id: the copy is a backup, to replace the queue"))
    .after_help(AFTER);
    arguments::locking(copy)
}

pub(crate) fn run(call: &Call<'_>) -> Tried<ExitStatus> {
    let Some(new) = arguments::path_of(call.matches, "new") else {
        return Err(Failure::usage("name the copy's directory"));
    };
    arguments::is_outside(new, arguments::dir_of(call.matches))?;
    check_new(new, ".copying", "not_empty")?;
    let id = if call.matches.get_flag("same-id") { CopiedId::Same } else { CopiedId::New };
    let queue = call.opener().own_existing(arguments::dir_of(call.matches))?;
    let mut bar = Bar::new(call.console, None);
    let copied = queue.copy_to(new, id, |done, total| {
        bar.of(done, total, String::new);
        match call.signals.stop() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    drop(bar);
    match (copied, call.signals.stop()) {
        (Ok(()), _) => {}
        (Err(Error::Io { op: "copy", source, .. }), Some(ending))
            if source.kind() == ErrorKind::Interrupted =>
        {
            call.console.note("ended by a signal; nothing of the copy is left");
            return Ok(ending);
        }
        (Err(error), _) => return Err(failed(error)),
    }
    let made = Inspector::open(new)?.snapshot()?;
    let messages = count(made.next_seq - made.oldest_seq, "message");
    let consumers = count(made.consumers.len() as u64, "consumer");
    let (size, id) = (units::size(made.disk_bytes), figures::id(&made.queue_id));
    call.console.note(format!("copied {messages}, {consumers} ({size}); the copy's id is {id}"));
    Ok(ExitStatus::Done)
}

fn failed(error: Error) -> Failure {
    match error {
        Error::InvalidArgument { what: "copy", reason, .. } => {
            Failure::new(ExitStatus::Refused, "not_empty", reason)
        }
        full if full.is_full() => {
            let message = format!("{full}; nothing of the copy is left");
            Failure::new(ExitStatus::Refused, "full", message)
        }
        other => other.into(),
    }
}
