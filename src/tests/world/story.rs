//! The story of a world, to be read by somebody who has not seen it: who does what at which step,
//! what the disk is asked, what comes of it, and how it ends.

use super::World;
use super::acts::{Act, Answer, NAMES, ids_of};
use super::known::Known;
use super::reported::Death;
use super::script::Script;
use super::shown::Next;
use crate::engine::Background;
use crate::options::Options;
use crate::storage::Stores;
use crate::tests::schedule::Line;

/// How what is asked of the disk begins.
const DISK: &str = "disk: ";

/// How much of everything there is.
pub(super) fn size(world: &World) -> String {
    let scripts = || world.lives.iter();
    let threads: usize = scripts().map(|script| script.casts.len()).sum();
    let casts = scripts().flat_map(|script| &script.casts);
    let acts: usize = casts.map(|cast| cast.acts.len()).sum();
    let faults: usize =
        scripts().map(|script| script.faults.len() + usize::from(script.capacity.is_some())).sum();
    let openings: usize = scripts().map(|script| script.openings.len()).sum();
    let deaths = scripts().filter(|script| script.dies_at.is_some()).count() + openings;
    format!(
        "lives: {}, threads: {threads}, acts: {acts}, faults: {faults}, deaths: {deaths} \
         ({openings} of them in openings)",
        world.lives.len()
    )
}

/// All lines, with a name for each message; of many calls that differ in numbers alone, the first
/// and the last one.
pub(super) fn reported(world: &World, lines: &[Line]) -> String {
    let mut text = String::from("  step  thread                what it does\n");
    let alike = |one: &Line, other: &Line| {
        let plain =
            |line: &Line| line.text.replace(|dead_letter: char| dead_letter.is_ascii_digit(), "");
        one.thread == other.thread && one.text.starts_with(DISK) && (plain(one) == plain(other))
    };
    for run in lines.chunk_by(alike) {
        let between = run.len().saturating_sub(2);
        let is_long = between > 1;
        let last = if is_long { &run[run.len() - 1..] } else { &run[1..] };
        put(&mut text, &run[0]);
        if is_long {
            text.push_str(&format!("{:30}{DISK}({between} more like these)\n", ""));
        }
        last.iter().for_each(|line| put(&mut text, line));
    }
    rename(world, &text)
}

fn put(text: &mut String, line: &Line) {
    let Line { step, thread, text: words } = line;
    text.push_str(&if thread.is_empty() {
        format!("\n{words}\n")
    } else {
        format!("{step:>6}  {thread:<20}  {words}\n")
    });
}

/// The options that are set.
fn set(options: &Options) -> String {
    let all = format!("{options:?}");
    let inner = all.trim_start_matches("Options { ").trim_end_matches(" }");
    let is_set = |option: &&str| {
        !option.ends_with(": None") && !["min_free_bytes: 0", "create: true"].contains(option)
    };
    inner.split(", ").filter(is_set).collect::<Vec<_>>().join(", ")
}

/// The text, in which messages have names in place of their identities.
pub(super) fn rename(world: &World, text: &str) -> String {
    let mut text = text.to_owned();
    let mut names = 0;
    for script in &world.lives {
        for (number, cast) in script.casts.iter().enumerate() {
            for (at, act) in cast.acts.iter().enumerate() {
                for id in ids_of(script.life(script.dies_at), number as u64, at as u64, *act) {
                    names += 1;
                    text = text.replace(&format!("{id:x}"), &format!("m{names}"));
                }
            }
        }
    }
    text
}

impl Script {
    /// The seed of the schedule of one run of the process.
    pub(super) fn life(&self, dies_at: Option<u64>) -> u64 {
        self.seed ^ dies_at.unwrap_or(0)
    }

    /// What the threads do not say of themselves.
    pub(super) fn in_words(&self, dies_at: Option<u64>, death: Death) -> String {
        let mut words = set(&self.options);
        words.push_str(match self.stores {
            Stores::ByMap => "; stores go through mappings",
            Stores::ByCall => "; stores are calls",
        });
        words.push_str(match self.background {
            Background::Workers => "; a keeper looks after it",
            Background::Calls => "; no keeper",
        });
        for (call, nth, errno, sticky) in &self.faults {
            let also = if *sticky { " and all later ones" } else { "" };
            words.push_str(&format!("; {call:?} number {nth}{also} fails with {errno:?}"));
        }
        if let Some(capacity) = self.capacity {
            words.push_str(&format!("; the disk has {capacity} bytes left"));
        }
        if self.unreadable.is_some() {
            words.push_str("; a sector of some segment cannot be read");
        }
        match dies_at {
            None => words.push_str("; it ends in order"),
            Some(step) => words.push_str(&format!("; at step {step} {}", death.what())),
        }
        words
    }
}

impl Death {
    fn what(self) -> &'static str {
        match self {
            Death::Kill => "the process is killed",
            Death::KillElsewhere => "the process is killed; the next one sees another mount",
            Death::Cut(_) => "power is cut: what was not synced may be lost",
            Death::Remount(_) => {
                "the file system fails and is mounted anew: what was not synced may be lost"
            }
        }
    }

    pub(super) fn in_words(self) -> String {
        format!("- - - here {} - - -", self.what())
    }

    /// Where the process has ended before.
    pub(super) fn then_in_words(self) -> String {
        if self == Death::Kill { String::new() } else { format!("Then {}.", self.what()) }
    }
}

impl Act {
    /// As a call, with the messages that it enqueues or the number that it answers.
    pub(super) fn in_words(self, ids: &[u64], seq: Option<u64>) -> String {
        let ids: Vec<String> = ids.iter().map(|id| format!("{id:x}")).collect();
        let ids = ids.join(" ");
        let seq = seq.map_or_else(|| "nothing".to_owned(), |seq| seq.to_string());
        match self {
            Act::Enqueue(len) => format!("enqueue({ids}, of {len} bytes)"),
            Act::Parts(len) => format!("enqueue_parts({ids}, of {len} bytes)"),
            Act::Batch(_, len) => format!("enqueue_batch({ids}, of {len} bytes each)"),
            Act::Take(which) => format!("dequeue for {:?}", NAMES[which]),
            Act::TakeBatch(which, most) => {
                format!("dequeue_batch, at most {most}, for {:?}", NAMES[which])
            }
            Act::Skip(which) => format!("skip for {:?}", NAMES[which]),
            Act::Peek(which) => format!("peek for {:?}", NAMES[which]),
            Act::Wait(which, most) => {
                format!("dequeue for {:?}, waiting at most {most} ms", NAMES[which])
            }
            Act::WaitForever(which) => {
                format!("dequeue for {:?}, waiting for as long as it takes", NAMES[which])
            }
            Act::Task(which) => format!("dequeue for {:?}, waiting by a waker", NAMES[which]),
            Act::Receive(which) => format!("receive for {:?}", NAMES[which]),
            Act::ReceiveForever(which) => {
                format!("receive for {:?}, waiting for as long as it takes", NAMES[which])
            }
            Act::Limit(which, most) => {
                format!("set_max_in_flight({most:?}) for {:?}", NAMES[which])
            }
            Act::Ack => format!("acknowledge {seq}"),
            Act::Nack => format!("give back {seq}"),
            Act::Flush => "flush".to_owned(),
            Act::WaitDurable => "flush up to the newest message".to_owned(),
            Act::Look => "evict what is too old".to_owned(),
            Act::Guest(_) => "a guest comes, reads, seeks, is forked, goes".to_owned(),
            Act::Figures => "stats".to_owned(),
            Act::Sleep(millis) => format!("sleep for {millis} ms"),
            Act::Close => "close".to_owned(),
            Act::Interrupt => "interrupt".to_owned(),
            Act::Durably => "wait until the newest message is durable".to_owned(),
            Act::Remove => format!("remove_consumer({:?})", NAMES[0]),
            Act::WriteBack(_) => "write some file's pages back, which fails".to_owned(),
        }
    }
}

impl Answer {
    pub(super) fn in_words(&self) -> String {
        match self {
            Answer::Pending => "not ended".to_owned(),
            Answer::Numbers(range) if range.end == range.start + 1 => {
                format!("number {}", range.start)
            }
            Answer::Numbers(range) => format!("numbers {range:?}"),
            Answer::Messages(messages) => {
                let words = messages.iter().map(|(seq, id)| format!("number {seq}, {id:x}"));
                words.collect::<Vec<_>>().join("; ")
            }
            Answer::Skipped(seq) => format!("number {seq} is skipped"),
            Answer::Gap(gap) => format!("told that numbers are missing: {gap}"),
            Answer::Nothing => "nothing".to_owned(),
            Answer::Done => "done".to_owned(),
            Answer::Refused => "refused: there is no room".to_owned(),
            Answer::Interrupted => "interrupted".to_owned(),
            Answer::Gone => "the consumer was removed".to_owned(),
            Answer::Failed(text) => format!("error: {text}"),
        }
    }
}

/// What comes next for a consumer.
pub(super) fn in_words(upcoming: &[Next]) -> String {
    let words = upcoming.iter().map(|next| match next {
        Next::Message(seq, id) => format!("{seq} is {id:x}"),
        Next::Gap(gap) => format!("{gap}"),
    });
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "nothing".to_owned() } else { words }
}

impl Known {
    pub(super) fn in_words(&self) -> String {
        let (upcoming, next) = self.shown();
        let consumers =
            upcoming.iter().map(|(name, upcoming)| format!("to {name:?} {}", in_words(upcoming)));
        let consumers = consumers.collect::<Vec<_>>().join("; ");
        let consumers = if consumers.is_empty() { "no consumer".into() } else { consumers };
        format!("{consumers}; no number below {next} may be given out again")
    }
}
