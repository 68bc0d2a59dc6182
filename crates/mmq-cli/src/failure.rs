//! What went wrong: one sentence, a word for programs, and the exit status.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use mmq::Error;
use mmq_import::{ImportError, ImportErrorKind};

use crate::ending::ExitStatus;
use crate::json_object;
use crate::times;

/// The result of everything that can fail.
pub(crate) type Tried<T> = Result<T, Failure>;

const DECODER: &str = "decoder";
const IN_DOUBT: &str = "in_doubt";

/// Why a command ended before it had done its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) ending: ExitStatus,
    /// The word for programs, which never changes.
    code: &'static str,
    /// One sentence: what, where, and what to do.
    message: String,
    /// Who holds the queue, and since when.
    holder: Option<(u32, Option<SystemTime>)>,
}

impl Failure {
    pub(crate) fn new(
        ending: ExitStatus,
        code: &'static str,
        message: impl Into<String>,
    ) -> Failure {
        Failure { ending, code, message: message.into(), holder: None }
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(ExitStatus::Usage, "usage", message)
    }

    /// Another process has what is wanted.
    pub(crate) fn held(pid: u32, message: impl Into<String>) -> Failure {
        let failure = Failure::new(ExitStatus::Locked, "locked", message);
        Failure { holder: Some((pid, None)), ..failure }
    }

    /// A call of the system that failed on a file.
    pub(crate) fn io(what: impl Display, error: &io::Error) -> Failure {
        Failure::new(ExitStatus::Failed, "io", format!("{what}: {error}"))
    }

    /// The reader of standard output has closed it: the command ends, and nothing is said.
    pub(crate) fn closed_output() -> Failure {
        Failure::new(ExitStatus::Done, "closed", "")
    }

    /// The command of `--decode` failed.
    pub(crate) fn decoder(message: impl Into<String>) -> Failure {
        Failure::new(ExitStatus::Failed, DECODER, message)
    }

    /// Whether it is the command of `--decode` that failed: a signal to this program ends it too.
    pub(crate) fn is_of_decoder(&self) -> bool {
        self.code == DECODER
    }

    /// Whether the owner of the queue may have done what it was asked last.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.code == IN_DOUBT
    }

    pub(crate) fn no_consumer(dir: &Path, name: &str) -> Failure {
        let message = format!(
            "queue {} has no consumer {name:?}; `mmq consumers` lists those it has, and `mmq consumers DIR add NAME` makes one",
            dir.display()
        );
        Failure::new(ExitStatus::Missing, "no_consumer", message)
    }

    /// The directory has files of a queue, and no queue is found in them.
    pub(crate) fn remains(ending: ExitStatus, dir: &Path) -> Failure {
        let dir = dir.display();
        let message = format!(
            "{dir} is a damaged queue: neither its index nor the header of a segment can be read; `mmq salvage {dir} --to NEW` reads the intact messages out, and changes nothing in {dir}"
        );
        Failure::new(ending, "damaged", message)
    }

    /// The same, with another exit status.
    pub(crate) fn with_ending(self, ending: ExitStatus) -> Failure {
        Failure { ending, ..self }
    }

    /// The same, in other words.
    pub(crate) fn saying(self, message: impl Into<String>) -> Failure {
        Failure { message: message.into(), ..self }
    }

    /// Whether there is anything to say.
    pub(crate) fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    pub(crate) fn text(&self) -> &str {
        &self.message
    }

    /// The line for programs.
    pub(crate) fn json(&self) -> String {
        let mut error = serde_json::Map::new();
        error.insert("code".into(), self.code.into());
        error.insert("message".into(), self.message.as_str().into());
        if let Some((pid, since)) = self.holder {
            error.insert("pid".into(), pid.into());
            if let Some(since) = since {
                error.insert("since".into(), times::rfc3339(since).into());
            }
        }
        json_object::text(&serde_json::json!({ "error": error }))
    }
}

/// Whether files of a queue are in the directory: segments, or what was quarantined as damaged.
pub(crate) fn holds_remains(dir: &Path) -> bool {
    let names = dir.read_dir().into_iter().flatten().flatten().map(|listed| listed.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).any(|name| {
        let is_segment = name.strip_prefix("segment-").is_some_and(|rest| !rest.is_empty());
        is_segment || name.ends_with(".damaged")
    })
}

/// What went wrong within the library.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (ending, code, advice) = match &error {
            Error::Locked { .. } => (
                ExitStatus::Locked,
                "locked",
                "; to look at it, `mmq stat`, `cat` and `tail` need no lock",
            ),
            Error::NotShared { .. } => (ExitStatus::Locked, "not_shared", ""),
            Error::Disconnected { in_doubt: true, .. } => (ExitStatus::Failed, IN_DOUBT, ""),
            Error::Disconnected { .. } => (ExitStatus::Failed, "disconnected", ""),
            Error::NotFound { what: "consumer", .. } => (ExitStatus::Missing, "no_consumer", ""),
            Error::NotFound { what: "message", .. } => (ExitStatus::Missing, "no_message", ""),
            Error::NotFound { what: "path", .. } => (ExitStatus::Missing, "no_path", ""),
            Error::NotFound { what: "segment file", .. } => (ExitStatus::Missing, "no_segment", ""),
            Error::NotFound { path, .. } if holds_remains(path) => {
                return Failure::remains(ExitStatus::Bad, path);
            }
            Error::NotFound { path, .. } if path.is_dir() => {
                let message =
                    format!("{} holds no queue; `mmq put` makes one there", path.display());
                return Failure::new(ExitStatus::Missing, "no_queue", message);
            }
            Error::NotFound { .. } => (ExitStatus::Missing, "no_queue", "; `mmq put` makes one"),
            Error::NotAQueue { .. } => (ExitStatus::Missing, "not_a_queue", ""),
            Error::MessageTooLarge { .. } => (ExitStatus::Refused, "too_large", ""),
            Error::UnsupportedFormat { found, supported, .. } if found < supported => {
                let advice = "; `mmq dump` of the mmq that wrote it, and `mmq load` of this one";
                (ExitStatus::Refused, "older_format", advice)
            }
            Error::UnsupportedFormat { .. } => {
                (ExitStatus::Refused, "later_format", "; use the mmq that wrote it, or a later one")
            }
            Error::InvalidOption { .. } | Error::InvalidArgument { .. } => {
                (ExitStatus::Usage, "usage", "")
            }
            Error::Gap(_) => (ExitStatus::Bad, "gap", ""),
            Error::Poisoned { .. } => (ExitStatus::Failed, "poisoned", ""),
            other @ Error::Io { .. } if other.is_full() => (
                ExitStatus::Refused,
                "full",
                "; free space on that disk, or take messages out of a queue there",
            ),
            other if other.is_full() => (
                ExitStatus::Refused,
                "full",
                "; take messages out, raise the limit, or put with --on-full drop-oldest",
            ),
            Error::Io { op: "open", path, source }
                if source.kind() == io::ErrorKind::NotADirectory =>
            {
                let message = format!("{} is not a queue: it is not a directory", path.display());
                return Failure::new(ExitStatus::Missing, "not_a_queue", message);
            }
            Error::Io { op: "create", source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                (ExitStatus::Failed, "io", "; name a directory that you may write to")
            }
            Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => (
                ExitStatus::Failed,
                "io",
                "; run it as the owner of the queue's files; commands that only look need read permission alone",
            ),
            Error::Io { .. } => (ExitStatus::Failed, "io", ""),
            _ => (ExitStatus::Failed, "failed", ""),
        };
        let holder = match &error {
            Error::Locked { pid, since, .. } if *pid != 0 => Some((*pid, *since)),
            _ => None,
        };
        Failure { ending, code, message: format!("{error}{advice}"), holder }
    }
}

/// Why another queue's directory cannot be imported.
impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Failure {
        let (ending, code) = match error.kind() {
            ImportErrorKind::Ambiguous => (ExitStatus::Refused, "ambiguous"),
            ImportErrorKind::Changed => (ExitStatus::Failed, "changed"),
            ImportErrorKind::Damaged => (ExitStatus::Refused, "damaged"),
            ImportErrorKind::Io => (ExitStatus::Failed, "io"),
            ImportErrorKind::LaterFormat => (ExitStatus::Refused, "later_format"),
            ImportErrorKind::Memory => (ExitStatus::Failed, "memory"),
            ImportErrorKind::NoDirectory => (ExitStatus::Missing, "no_queue"),
            ImportErrorKind::NotAQueue => (ExitStatus::Missing, "not_a_queue"),
            ImportErrorKind::TooLarge => (ExitStatus::Refused, "too_large"),
            _ => (ExitStatus::Failed, "failed"),
        };
        Failure::new(ending, code, error.to_string())
    }
}
