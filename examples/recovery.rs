//! Nothing acknowledged is lost when the process dies: the program starts itself as a child that
//! puts messages in as fast as it can, kills it with SIGKILL in the middle, opens the queue the
//! child left, and looks at what is there.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const ROUNDS: u64 = 5;
const ACKNOWLEDGED_BEFORE_THE_KILL: u64 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [] => parent(),
        [role, dir, round] if role == "child" => child(Path::new(dir), &round.to_string_lossy()),
        _ => Err("usage: recovery".into()),
    }
}

fn text(round: &str, number: u64) -> String {
    format!("round {round}, message {number}")
}

/// Puts messages in until it is killed. A number is written to standard output only after its
/// `enqueue` returned: that is the acknowledgement.
fn child(dir: &Path, round: &str) -> Result<(), Box<dyn Error>> {
    let queue = mmq::Queue::open(dir)?;
    let mut acknowledgements = io::stdout().lock();
    for number in 0.. {
        queue.enqueue(text(round, number))?;
        writeln!(acknowledgements, "{number}")?;
    }
    Ok(())
}

fn parent() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    for round in 0..ROUNDS {
        let round = round.to_string();
        let acknowledged = run_and_kill_a_child(dir.path(), &round)?;

        // The lock died with its holder: nothing has to be cleaned up before opening.
        let queue = mmq::Queue::open(dir.path())?;
        let found = examine(&queue, &round, acknowledged)?;
        queue.close()?;
        println!(
            "round {round}: killed after {acknowledged} acknowledged messages; {found} are there, in order"
        );
    }
    println!("nothing acknowledged was lost");
    Ok(())
}

/// Checks that all acknowledged messages are there; returns how many were found.
pub(crate) fn examine(
    queue: &mmq::Queue,
    round: &str,
    acknowledged: u64,
) -> Result<u64, Box<dyn Error>> {
    let (found, lost) = read(queue, round)?;
    // One more may be there: the child was killed after it put it in and before it could say so.
    if lost > 0 || found < acknowledged || found > acknowledged + 1 {
        return Err(format!(
            "{acknowledged} messages were acknowledged, {found} are there, {lost} are lost"
        )
        .into());
    }
    Ok(found)
}

/// Takes all messages out and checks each. Returns how many were found, and how many are missing.
fn read(queue: &mmq::Queue, round: &str) -> Result<(u64, u64), Box<dyn Error>> {
    let (mut found, mut lost) = (0, 0);
    let tell = |gap: mmq::Gap, lost: &mut u64| {
        eprintln!("{gap}");
        *lost += gap.count();
    };
    while let Some(message) = mmq::past_gaps(|| queue.dequeue(), |gap| tell(gap, &mut lost))? {
        let wanted = text(round, found + lost);
        if message.as_str()? != wanted {
            return Err(format!("expected {wanted:?}, found {message:?}").into());
        }
        found += 1;
    }
    Ok((found, lost))
}

/// Returns how many messages the child acknowledged before it died.
fn run_and_kill_a_child(dir: &Path, round: &str) -> Result<u64, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(dir)
        .arg(round)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut acknowledgements =
        BufReader::new(child.stdout.take().ok_or("the child has no standard output")?);
    let mut acknowledged = 0;
    let mut line = String::new();
    // The pipe keeps what the child wrote before it died, so this reads up to its end.
    while acknowledgements.read_line(&mut line)? > 0 && line.ends_with('\n') {
        acknowledged = line.trim_end().parse::<u64>()? + 1;
        if acknowledged == ACKNOWLEDGED_BEFORE_THE_KILL {
            child.kill()?; // SIGKILL: no handler, no destructor, no flush
        }
        line.clear();
    }
    child.wait()?;
    if acknowledged < ACKNOWLEDGED_BEFORE_THE_KILL {
        return Err("the child died by itself".into());
    }
    Ok(acknowledged)
}
