//! SQLite and LMDB as queues: what people take when they take no queue. Runs one scenario and
//! prints one line of JSON; `../harness.rs` has the arguments.
//!
//! A message is a row, or a pair of a number and a body. Every message in and every message out is
//! a transaction of its own, as every call of mmq stands alone. A transaction waits for the disk
//! in the scenario `durable` only. Neither store checks what it reads.

#[path = "../harness.rs"]
mod harness;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use harness::{Done, Handle, Peer, Run};
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, byteorder::BigEndian};
use rusqlite::{Connection, OptionalExtension, Row};

fn copy(bytes: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.extend_from_slice(bytes);
    black_box(to);
}

/// One table in WAL mode. A thread has a connection of its own.
struct Sqlite {
    file: PathBuf,
    synchronous: &'static str,
    /// The connection that made the table, for the first thread.
    first: Mutex<Option<Connection>>,
}

struct Table {
    connection: Connection,
    bytes: Vec<u8>,
}

fn connect(file: &Path, synchronous: &str) -> Done<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    Ok(connection)
}

impl Peer for Sqlite {
    fn open(run: &Run, dir: &Path) -> Done<Sqlite> {
        std::fs::create_dir_all(dir)?;
        let synchronous = if run.scenario == "durable" { "FULL" } else { "NORMAL" };
        let file = dir.join("queue.db");
        let first = connect(&file, synchronous)?;
        first.execute_batch(
            "CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
        )?;
        Ok(Sqlite { file, synchronous, first: Mutex::new(Some(first)) })
    }

    fn handle(&self) -> Done<impl Handle> {
        let first = self.first.lock().expect("no panic").take();
        let connection = first.map_or_else(|| connect(&self.file, self.synchronous), Ok)?;
        Ok(Table { connection, bytes: Vec::new() })
    }

    fn close(self) -> Done {
        let first = self.first.into_inner().expect("no panic");
        first.map_or(Ok(()), |first| first.close().map_err(|(_, error)| error.into()))
    }
}

impl Table {
    /// Runs a statement that returns the body of a message; returns whether there was one.
    fn body(&mut self, statement: &str) -> Done<bool> {
        let bytes = &mut self.bytes;
        let deliver = |row: &Row<'_>| {
            copy(row.get_ref(0)?.as_blob()?, bytes);
            Ok(())
        };
        let mut statement = self.connection.prepare_cached(statement)?;
        Ok(statement.query_row((), deliver).optional()?.is_some())
    }
}

impl Handle for Table {
    fn enqueue(&mut self, message: &[u8], count: u64) -> Done {
        let mut insert = self.connection.prepare_cached("INSERT INTO queue (body) VALUES (?)")?;
        for _ in 0..count {
            insert.execute((black_box(message),))?;
        }
        Ok(())
    }

    fn take(&mut self, _: u64) -> Done<u64> {
        let first = "DELETE FROM queue WHERE id = (SELECT min(id) FROM queue) RETURNING body";
        Ok(self.body(first)?.into())
    }

    fn peek(&mut self) -> Done<bool> {
        self.body("SELECT body FROM queue ORDER BY id LIMIT 1")
    }

    fn delivered(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}

type Pairs = Database<U64<BigEndian>, Bytes>;

/// The unnamed database of an environment, by number.
struct Lmdb {
    environment: Env,
    pairs: Pairs,
}

struct Thread<'a> {
    lmdb: &'a Lmdb,
    bytes: Vec<u8>,
}

impl Peer for Lmdb {
    fn open(run: &Run, dir: &Path) -> Done<Lmdb> {
        std::fs::create_dir_all(dir)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(4 << 30);
        if run.scenario != "durable" {
            // SAFETY: after a power cut nobody reads these files.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: a directory of this process's own, opened once.
        let environment = unsafe { options.open(dir)? };
        let mut transaction = environment.write_txn()?;
        let pairs = environment.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { environment, pairs })
    }

    fn handle(&self) -> Done<impl Handle> {
        Ok(Thread { lmdb: self, bytes: Vec::new() })
    }

    fn close(self) -> Done {
        self.environment.prepare_for_closing().wait();
        Ok(())
    }
}

impl Handle for Thread<'_> {
    fn enqueue(&mut self, message: &[u8], count: u64) -> Done {
        let Lmdb { environment, pairs } = self.lmdb;
        for _ in 0..count {
            let mut transaction = environment.write_txn()?;
            let next = pairs.last(&transaction)?.map_or(0, |(number, _)| number + 1);
            pairs.put_with_flags(&mut transaction, PutFlags::APPEND, &next, black_box(message))?;
            transaction.commit()?;
        }
        Ok(())
    }

    fn take(&mut self, _: u64) -> Done<u64> {
        let Lmdb { environment, pairs } = self.lmdb;
        let mut transaction = environment.write_txn()?;
        let Some((number, body)) = pairs.first(&transaction)? else { return Ok(0) };
        copy(body, &mut self.bytes);
        pairs.delete(&mut transaction, &number)?;
        transaction.commit()?;
        Ok(1)
    }

    fn peek(&mut self) -> Done<bool> {
        let transaction = self.lmdb.environment.read_txn()?;
        let first = self.lmdb.pairs.first(&transaction)?;
        if let Some((_, body)) = first {
            copy(body, &mut self.bytes);
        }
        Ok(first.is_some())
    }

    fn delivered(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}

fn main() -> Done {
    let (run, lmdb) = (Run::from_arguments()?, heed::lmdb_version());
    match run.peer.as_str() {
        "SQLite" => run.report(
            rusqlite::version(),
            "a transaction per message; WAL, synchronous = NORMAL (FULL for durable)",
            Run::figures::<Sqlite>,
        ),
        "LMDB" => run.report(
            &format!("{}.{}.{}", lmdb.major, lmdb.minor, lmdb.patch),
            "a transaction per message; MDB_NOSYNC (not for durable)",
            Run::figures::<Lmdb>,
        ),
        peer => Err(format!("unknown peer {peer}: SQLite or LMDB").into()),
    }
}
