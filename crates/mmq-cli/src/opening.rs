//! Opening a queue to work on it, and its consumers.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use mmq::{Error, Handle, HandleConsumer, Inspector, Options, Queue};
use rustix::fs::Mode;
use rustix::process;

use crate::arguments;
use crate::console::Console;
use crate::ending::ExitStatus;
use crate::failure::{Failure, Tried, holds_remains};
use crate::place::Bounds;
use crate::signals::{For, Signals};

/// How long an opening waits for the process that has the queue. Commands that follow each other,
/// or look whether there is something to do, hold it for no longer.
const PATIENCE: Duration = Duration::from_millis(300);

/// How long an opening with `--wait-lock` lets the owner work before it tries again.
const EVERY: Duration = Duration::from_millis(20);

/// How a command opens queues that others may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener<'a> {
    pub(crate) signals: &'a Signals,
    patience: Patience,
    console: Console,
    /// `--mode`.
    mode: Option<u32>,
}

/// How long it waits for the process that has the queue.
#[derive(Debug, Clone, Copy)]
enum Patience {
    For(Duration),
    Forever,
}

impl<'a> Opener<'a> {
    /// As `--wait-lock` says.
    pub(crate) fn of(matches: &ArgMatches, signals: &'a Signals, console: Console) -> Opener<'a> {
        let id = arguments::WAIT_LOCK;
        let patience = match matches.try_contains_id(id) {
            Ok(true) => matches.get_one(id).copied().map_or(Patience::Forever, Patience::For),
            _ => Patience::For(PATIENCE),
        };
        let mode = matches.try_get_one("mode").ok().flatten().copied();
        Opener { signals, patience, console, mode }
    }

    /// Opens the queue and shares it, or uses it through a process that has it open and shares it.
    /// It must be there, unless the options may create it.
    pub(crate) fn open(self, dir: &Path, options: &Options) -> Tried<Handle> {
        let options = self.shared(dir, options);
        let open = || mmq::open_or_connect(dir, &options);
        self.opened(dir, open, |queue| queue.is_owner())
    }

    /// As [`open`](Self::open), a queue that is there.
    pub(crate) fn open_existing(self, dir: &Path) -> Tried<Handle> {
        self.open(dir, &Options::new().create(false))
    }

    /// Opens the queue, which no other process may have open, and shares it.
    pub(crate) fn serve(self, dir: &Path, options: &Options) -> Tried<Queue> {
        let options = self.shared(dir, options);
        self.opened(dir, || options.open(dir), |_| true)
    }

    /// As [`serve`](Self::serve); where no socket can be, without sharing it.
    pub(crate) fn own(self, dir: &Path, options: &Options) -> Tried<Queue> {
        let options = self.shared(dir, options);
        let open = || match options.open(dir) {
            Err(Error::Io { op: "share", .. }) => options.clone().shared(false).open(dir),
            opened => opened,
        };
        self.opened(dir, open, |_| true)
    }

    /// As [`own`](Self::own), a queue that is there.
    pub(crate) fn own_existing(self, dir: &Path) -> Tried<Queue> {
        self.own(dir, &Options::new().create(false))
    }

    /// The options of a queue that this process shares: with those who may open it as well.
    fn shared(self, dir: &Path, options: &Options) -> Options {
        let there = || dir.join("index").metadata().ok().map(|found| found.permissions().mode());
        let may_write = self.mode.or_else(there).unwrap_or_default() & 0o022;
        options.clone().shared(true).shared_mode(0o600 | may_write | may_write << 1)
    }

    /// Opens it as soon as its owner lets this process have it.
    fn opened<Q>(
        self,
        dir: &Path,
        open: impl Fn() -> mmq::Result<Q>,
        is_owner: impl Fn(&Q) -> bool,
    ) -> Tried<Q> {
        check(dir)?;
        let until = match self.patience {
            Patience::For(time) => Instant::now().checked_add(time),
            Patience::Forever => None,
        };
        loop {
            let before = Indexes::in_dir(dir);
            match open() {
                Err(error @ (Error::Locked { here: false, .. } | Error::NotShared { .. }))
                    if until.is_none_or(|until| Instant::now() < until) =>
                {
                    let next = Instant::now() + EVERY;
                    self.signals.wait(&[], For::Reading, Some(next))?;
                    if let Some(ending) = self.signals.stop() {
                        let message = format!("ended by a signal: {error}");
                        return Err(Failure::from(error).with_ending(ending).saying(message));
                    }
                }
                Err(error @ (Error::Locked { here: false, .. } | Error::NotShared { .. })) => {
                    let failure = Failure::from(error);
                    let text = format!("{}; --wait-lock waits for it", failure.text());
                    return Err(failure.saying(text));
                }
                opened => {
                    let queue = opened?;
                    let lost = before.lost(Indexes::in_dir(dir));
                    if let Some(lost) = lost.filter(|_| is_owner(&queue)) {
                        let dir = dir.display();
                        self.console.note(format!("the index of queue {dir} {lost}"));
                    }
                    return Ok(queue);
                }
            }
        }
    }
}

/// Which index files a directory has, before an opening and after it.
#[derive(Debug, Default)]
struct Indexes {
    /// The number of the file.
    index: Option<u64>,
    /// The same, of one that an opening left which died before it renamed it.
    new: Option<u64>,
    set_aside: usize,
    segments: usize,
}

impl Indexes {
    fn in_dir(dir: &Path) -> Indexes {
        let mut found = Indexes::default();
        for listed in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = listed.file_name();
            let name = name.to_string_lossy();
            match &*name {
                "index" => found.index = Some(listed.ino()),
                "index.new" => found.new = Some(listed.ino()),
                _ => {}
            }
            found.set_aside += usize::from(name.starts_with("index.damaged"));
            found.segments += usize::from(name.starts_with("segment-"));
        }
        found
    }

    /// What an opening lost that found these.
    fn lost(&self, after: Indexes) -> Option<&'static str> {
        if after.set_aside > self.set_aside {
            return Some(
                "was damaged: consumers and their places may be lost, and messages may come again",
            );
        }
        let is_kept = self.index.is_some() || self.new.is_some() && self.new == after.index;
        (!is_kept && self.segments > 0).then_some(
            "was missing: consumers and their places are lost, and every message that it still holds comes again",
        )
    }
}

/// Opens a queue that this command makes for itself, or has to itself.
pub(crate) fn open(dir: &Path, options: &Options) -> Tried<Queue> {
    check(dir)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match options.open(dir) {
            Err(Error::Locked { here: false, .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.map_err(Failure::from),
        }
    }
}

/// How the queue `new` is made for messages out of files: open to nobody for whom one of the files
/// is not. (Directories stand for the files in them.) A queue that is there keeps its mode.
pub(crate) fn as_open_as(sources: &[impl AsRef<Path>], new: &Path) -> Options {
    let files = sources.iter().flat_map(|source| {
        let source = source.as_ref();
        let below = fs::read_dir(source).map(|listed| listed.flatten().map(|it| it.path()));
        below.map_or_else(|_| vec![source.to_owned()], Iterator::collect)
    });
    let modes = files.filter_map(|file| file.metadata().ok().filter(fs::Metadata::is_file));
    let common = modes.map(|found| found.permissions().mode() & 0o666).reduce(|all, it| all & it);
    let is_new = fs::read_dir(new).map_or(true, |mut listed| listed.next().is_none());
    Options::new().mode(common.filter(|_| is_new).map(|mode| mode | 0o600))
}

/// Refuses a directory with files of a queue that is found in none of them. An opening would rename
/// these files, and begin a new queue beside them or say that there is none.
fn check(dir: &Path) -> Tried<()> {
    if !dir.exists() {
        // A umask may take bits of the owner, who could not enter a directory that is made then.
        let umask = process::umask(Mode::RWXG | Mode::RWXO);
        process::umask(umask - Mode::RWXU);
    }
    if !holds_remains(dir) {
        return Ok(());
    }
    let looked = Inspector::open(dir).and_then(|inspector| inspector.snapshot());
    match looked {
        Err(Error::NotFound { what: "queue", .. }) => {
            Err(Failure::remains(ExitStatus::Refused, dir))
        }
        // The opening says what else is wrong.
        _ => Ok(()),
    }
}

/// Makes the queue's own consumer, at the oldest message, when the queue has no consumer: it keeps
/// what is put in for `take` and `each`, whatever other consumers come and go.
pub(crate) fn keep_for_own(queue: &Handle) -> Tried<()> {
    if queue.stats()?.consumers == 0 {
        queue.default_consumer()?;
    }
    Ok(())
}

/// Warns root that what it puts into another user's queue makes files which that user cannot open.
pub(crate) fn warn_of_owner(console: Console, dir: &Path) {
    let owner = dir.metadata().map_or(0, |found| found.uid());
    if owner != 0 && rustix::process::geteuid().is_root() {
        let dir = dir.display();
        console.note(format!(
            "queue {dir} belongs to user {owner}, and root puts messages in: that user may be unable to open files that root makes; run mmq as that user, or `chown -R {owner} {dir}` afterwards"
        ));
    }
}

/// The consumer of that name, which must exist. No name, and the empty one, are the queue's own
/// consumer's: it is made if it is missing.
pub(crate) fn consumer(queue: &Handle, name: &str) -> Tried<HandleConsumer> {
    if name.is_empty() || queue.consumer_stats()?.iter().any(|known| known.name == name) {
        return Ok(queue.consumer(name)?);
    }
    Err(Failure::no_consumer(queue.path(), name))
}

/// Where a consumer stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    pub(crate) bounds: Bounds<'a>,
    /// How many messages wait for it.
    pub(crate) waiting: u64,
}

/// Where the consumer of that name stands, which must exist. The queue's own has everything before
/// it until it reads for the first time.
pub(crate) fn standing<'a>(queue: &'a Handle, name: &str) -> Tried<Standing<'a>> {
    let consumers = queue.consumer_stats()?;
    let stats = queue.stats()?;
    let (dir, oldest, next) = (queue.path(), stats.oldest_seq, stats.next_seq);
    let (place, waiting) = match consumers.iter().find(|known| known.name == name) {
        Some(consumer) => (consumer.next_seq, consumer.messages),
        None if name.is_empty() => (oldest, stats.messages),
        None => return Err(Failure::no_consumer(dir, name)),
    };
    Ok(Standing { bounds: Bounds { dir, oldest, next, place }, waiting })
}
