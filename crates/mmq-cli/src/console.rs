//! What the tool says on standard error.

use std::io::{self, IsTerminal, Write};

use clap::ArgMatches;

use crate::ending::ExitStatus;
use crate::failure::Failure;
use crate::framing::visible_text;
use crate::paint::Paint;
use crate::signals;
use crate::width::Width;

/// Where a line goes on that is too wide.
const INDENT: usize = 5;

/// Who reads the errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Person,
    /// `--json`: a failure is one line of JSON, the last one.
    Program,
}

/// Standard error. When it is closed nobody reads it any more, so its own errors do not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Console {
    pub(crate) form: Form,
    quiet: bool,
    progress: bool,
    paint: Paint,
}

impl Console {
    pub(crate) fn new(matches: &ArgMatches) -> Console {
        let form = if matches.get_flag("json") { Form::Program } else { Form::Person };
        let quiet = matches.get_flag("quiet");
        let progress = !quiet && !matches.get_flag("no-progress");
        Console { form, quiet, progress, paint: Paint::on(matches, &io::stderr()) }
    }

    /// For a failure before there are arguments.
    pub(crate) fn plain(form: Form) -> Console {
        Console { form, quiet: false, progress: false, paint: Paint::Plain }
    }

    /// Whether a line that moves may be drawn.
    pub(crate) fn draws(self) -> bool {
        self.progress && io::stderr().is_terminal()
    }

    /// Says something beside the work, in one line; not with `--quiet`.
    pub(crate) fn note(self, text: impl AsRef<str>) {
        if !self.quiet {
            self.line(&format!("mmq: {}", text.as_ref()));
        }
    }

    /// Says why the command ends. Returns its exit status.
    pub(crate) fn fail(self, failure: &Failure) -> ExitStatus {
        if !failure.is_silent() {
            match self.form {
                Form::Person if failure.ending == ExitStatus::Bad => {
                    let text = visible_text(failure.text().as_bytes());
                    self.raw(&self.paint.bad(&format!("mmq: {text}")));
                }
                Form::Person => self.line(&format!("mmq: {}", failure.text())),
                Form::Program => self.line(&failure.json()),
            }
        }
        failure.ending
    }

    /// A whole line. Names in it may hold control bytes, which a terminal would obey.
    pub(crate) fn line(self, text: &str) {
        self.raw(&visible_text(text.as_bytes()));
    }

    fn raw(self, line: &str) {
        let line = match self.form {
            Form::Person => Width::of(&io::stderr()).fold(line, INDENT),
            Form::Program => line.to_owned(),
        };
        signals::say(format!("{line}\n").as_bytes());
    }

    /// Asks a question that `y` answers with yes. `None` when there is no terminal to ask on.
    pub(crate) fn asks(self, question: &str) -> Option<Consent> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        let question = format!("mmq: {} [y/N] ", visible_text(question.as_bytes()));
        let question = Width::of(&io::stderr()).fold(&question, INDENT);
        let _ = io::stderr().write_all(question.as_bytes());
        let mut answer = String::new();
        let _ = io::stdin().read_line(&mut answer);
        let yes = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
        Some(if yes { Consent::Yes } else { Consent::No })
    }
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    Yes,
    No,
}
