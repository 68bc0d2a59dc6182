//! The queues in Rust for `benches/compare/faults.py`, which says what is read and written here.
//!
//! ```text
//! queues QUEUE put|take DIR FIRST END
//! ```

use std::error::Error;
use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, TableDefinition};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("queue");

/// As `message` in `faults.py`.
fn message(number: u64) -> Vec<u8> {
    let mut x = number;
    let mut bytes = number.to_le_bytes().to_vec();
    for _ in 0..56 + number * 7919 % 961 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.push((x >> 56) as u8);
    }
    bytes
}

fn say(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

fn wait() -> io::Result<()> {
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

/// Puts all messages. After an error it waits for a line, and tries the same message again.
fn put_all(first: u64, end: u64, mut put: impl FnMut(u64, &[u8]) -> Done) -> Done {
    for number in first..end {
        while let Err(error) = put(number, &message(number)) {
            say(format!("!{}", error.to_string().replace('\n', " ")))?;
            wait()?;
        }
        say("+")?;
    }
    say(".")?;
    Ok(wait()?)
}

fn came(bytes: &[u8]) -> io::Result<()> {
    io::stdout().write_all(&[&(bytes.len() as u32).to_le_bytes(), bytes].concat())
}

fn told(text: impl Display) -> io::Result<()> {
    io::stdout().write_all(&u32::MAX.to_le_bytes())?;
    came(text.to_string().as_bytes())
}

/// Takes until the queue is empty, or a hundred reads failed.
fn take_all(mut take: impl FnMut() -> Done<Option<Vec<u8>>>) -> Done {
    let mut failed = 0;
    while failed < 100 {
        match take() {
            Ok(Some(bytes)) => came(&bytes)?,
            Ok(None) => break,
            Err(error) => {
                told(error)?;
                failed += 1;
            }
        }
    }
    Ok(())
}

fn mmq(dir: &Path, put: Option<(u64, u64)>) -> Done {
    let queue = mmq::Queue::options().flush_every_ops(1).open(dir)?;
    match put {
        Some((first, end)) => put_all(first, end, |_, bytes| {
            queue.enqueue(bytes)?;
            Ok(())
        })?,
        None => take_all(|| Ok(queue.dequeue()?.map(|message| message.to_vec())))?,
    }
    Ok(queue.close()?)
}

/// yaque keeps a lock file after a kill. Its documentation has `recover` for this.
fn yaque_open<T>(dir: &Path, open: impl Fn(&Path) -> io::Result<T>) -> Done<T> {
    if let Ok(end) = open(dir) {
        return Ok(end);
    }
    yaque::recovery::recover(dir)?;
    Ok(open(dir)?)
}

fn yaque(dir: &Path, put: Option<(u64, u64)>) -> Done {
    if let Some((first, end)) = put {
        let mut sender = yaque_open(dir, |dir| yaque::Sender::open(dir))?;
        return put_all(first, end, |_, bytes| match sender.try_send(bytes) {
            Ok(()) => Ok(()),
            Err(yaque::TrySendError::Io(error)) => Err(error.into()),
            Err(yaque::TrySendError::QueueFull { .. }) => Err("full".into()),
        });
    }
    let mut receiver = yaque_open(dir, |dir| yaque::Receiver::open(dir))?;
    take_all(|| match receiver.try_recv() {
        Ok(message) => Ok(Some(message.try_into_inner()?)),
        Err(yaque::TryRecvError::QueueEmpty) => Ok(None),
        Err(yaque::TryRecvError::Io(error)) => Err(error.into()),
    })
}

fn redb(dir: &Path, put: Option<(u64, u64)>, numbers: (u64, u64)) -> Done {
    let database = Database::create(dir.join("queue.redb"))?;
    if let Some((first, end)) = put {
        return put_all(first, end, |number, bytes| {
            let transaction = database.begin_write()?;
            transaction.open_table(TABLE)?.insert(number, bytes)?;
            Ok(transaction.commit()?)
        });
    }
    let mut numbers = numbers.0..numbers.1;
    take_all(|| {
        for number in numbers.by_ref() {
            let table = database.begin_read()?.open_table(TABLE)?;
            if let Some(body) = table.get(number)? {
                return Ok(Some(body.value().to_vec()));
            }
        }
        Ok(None)
    })
}

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, queue, what, dir, first, end] = &arguments[..] else {
        return Err("queues QUEUE put|take DIR FIRST END".into());
    };
    let (dir, numbers) = (PathBuf::from(dir), (first.parse()?, end.parse()?));
    let put = (what == "put").then_some(numbers);
    match queue.as_str() {
        "mmq" => mmq(&dir, put),
        "yaque" => yaque(&dir, put),
        "redb" => redb(&dir, put, numbers),
        other => Err(format!("no queue {other}").into()),
    }
}
