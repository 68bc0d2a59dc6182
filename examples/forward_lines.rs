//! Forwards a queue to a file of JSON lines: a destination of one's own takes this much.
//!
//! `cargo run --features forward --example forward_lines`. Kill it at any moment and start it
//! again: each message is in the file once, in order.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use mmq::Queue;
use mmq::forward::{Destination, Forwarder, Held, Limits, Mark, Outgoing, Source, Trouble};

/// Appends a line for each message: `{"seq":7,"sum":1234,"missing":"5-6 dropped","text":"..."}`.
struct Lines {
    file: File,
    sent: u64,
}

impl Lines {
    fn open(path: &Path) -> io::Result<Lines> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        Ok(Lines { file, sent: 0 })
    }

    /// The last whole line's number and checksum. A line that was cut off by a crash goes.
    fn last(&mut self) -> io::Result<Held> {
        // (A longer file would be read from its end.)
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.file.set_len(whole as u64)?;
        let Some(line) = text[..whole].lines().next_back() else {
            return Ok(Held::Nothing);
        };
        let number = |name: &str| {
            let rest = line.split_once(&format!("\"{name}\":"))?.1;
            rest.split(',').next()?.parse().ok()
        };
        let seq: u64 = number("seq").ok_or(io::ErrorKind::InvalidData)?;
        let sum = number("sum").and_then(|sum| u32::try_from(sum).ok());
        self.sent = seq + 1;
        Ok(Held::Until { seq, sum })
    }
}

/// A disk that is full now may have room in a while.
fn again(error: io::Error) -> Trouble {
    Trouble::Again(error.into(), Duration::from_secs(1))
}

impl Destination for Lines {
    fn resume(&mut self, _: &Source, _: Option<Mark>) -> Result<Held, Trouble> {
        self.last().map_err(again)
    }

    // Nobody else writes to the file, and a write that fails ends the session: so each line stands
    // behind the one before.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let mut lines = String::new();
        for message in messages {
            let missing: Vec<_> = message.missing_before.iter().map(ToString::to_string).collect();
            let text = String::from_utf8_lossy(message.bytes);
            let text: String = text.chars().map(escaped).collect();
            let (seq, sum, missing) = (message.seq, message.sum, missing.join(", "));
            lines += &format!(
                "{{\"seq\":{seq},\"sum\":{sum},\"missing\":\"{missing}\",\"text\":\"{text}\"}}\n"
            );
            self.sent = seq + 1;
        }
        self.file.write_all(lines.as_bytes()).map_err(again)
    }

    fn acknowledged(&mut self, _: Duration) -> Result<u64, Trouble> {
        self.file.sync_data().map_err(again)?;
        Ok(self.sent)
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

fn escaped(letter: char) -> String {
    match letter {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        control if control < ' ' => format!("\\u{:04x}", u32::from(control)),
        letter => letter.to_string(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join("mmq-forward-lines");
    let queue = Queue::open(dir.join("queue"))?;
    for number in 0..1000 {
        queue.enqueue(format!("event {number}"))?;
    }
    let path = dir.join("events.jsonl");
    let mut forwarder = Forwarder::new(&queue, "forward", Lines::open(&path)?)?;
    let watch = forwarder.watch();
    forwarder.once()?;
    println!("{}; see {}", watch.progress(), path.display());
    queue.close()?;
    Ok(())
}
