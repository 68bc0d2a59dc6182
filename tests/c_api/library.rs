//! The library and the programs that use it: built once, where cargo built these tests, and copied
//! into a directory of their own under `target/tmp`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::support::guard;

pub(crate) const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory under `target` that belongs to these tests.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-api").join(name);
    std::fs::create_dir_all(&dir).expect("make a directory under target/tmp");
    dir
}

/// Where cargo built these tests: it has built there most of what the library needs.
pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("cargo's directory")
}

/// One build of the library at a time: each puts its files where others have theirs.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn exists(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Those of the tools that are there; the others are named.
pub(crate) fn present<'a>(tools: &[&'a str]) -> Vec<&'a str> {
    let (present, missing): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| exists(tool));
    for tool in missing {
        crate::support::skip(format_args!("{tool} is not installed"));
    }
    assert!(!present.is_empty(), "none of {tools:?} is installed");
    present
}

/// Runs the command and gives its standard output; panics with everything it said unless it
/// succeeds.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    command.env(guard::RUN, guard::root());
    // Cargo's own, which names libraries of other builds, comes before a program's run path.
    if !command.get_envs().any(|(name, _)| name == "LD_LIBRARY_PATH") {
        command.env_remove("LD_LIBRARY_PATH");
    }
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// A build of the library that C programs are linked against.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) dir: PathBuf,
}

impl Library {
    /// Builds the shared library as docs/guide.md does without the installer; `more` goes to rustc,
    /// for this crate alone.
    pub(crate) fn build(name: &str, more: &[&str]) -> Library {
        let _turn = turn();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root()).args(["rustc", "--lib", "--features", "capi"]);
        cargo.args(["--crate-type", "cdylib", "--target-dir"]).arg(target());
        run(cargo.arg("--").args(more));
        // Every build goes into the same file, so each is copied before the next.
        let dir = scratch(name);
        // A program of another run that still uses it keeps the file it has.
        let fresh = dir.join(format!("libmmq.so.{}", std::process::id()));
        std::fs::copy(target().join("debug/libmmq.so"), &fresh).expect("the library was built");
        std::fs::rename(fresh, dir.join("libmmq.so")).expect("in place");
        Library { dir }
    }

    /// Compiles a program, of `tests/c/` for instance, and gives its path.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        source: impl AsRef<Path>,
        flags: &[&str],
    ) -> PathBuf {
        let source = root().join(source);
        let stem = source.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        let program =
            self.dir.join(format!("{stem}-{compiler}{}", flags.concat().replace(['/', '='], "_")));
        let mut command = Command::new(compiler);
        command
            .args(STRICT)
            .args(["-g", "-pthread"])
            .args(flags)
            .arg("-I")
            .arg(root().join("include"));
        run(command.arg(source).arg("-o").arg(&program).arg("-L").arg(&self.dir).arg("-lmmq"));
        program
    }

    /// A program with a directory of its own that is empty.
    pub(crate) fn command(&self, runner: &[&str], program: &Path) -> (Command, tempfile::TempDir) {
        let dir = crate::support::tempdir().expect("a temporary directory");
        // A hang is a failure, not a wait.
        let limit: &[&str] =
            if exists("timeout") { &["timeout", "--signal=ABRT", "900"] } else { &[] };
        let mut words = limit.iter().chain(runner).map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg(dir.path())
            .current_dir(dir.path())
            .env("LD_LIBRARY_PATH", &self.dir);
        (command, dir)
    }

    #[track_caller]
    pub(crate) fn run(&self, program: &Path) -> String {
        let (mut command, _dir) = self.command(&[], program);
        run(&mut command)
    }
}

/// The library as it is shipped, but for the optimiser.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::build("plain", &[]))
}

/// One that panics on demand.
pub(crate) fn panicking() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::build("panicking", &["--cfg", "mmq_test_panic"]))
}
