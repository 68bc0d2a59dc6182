//! Runs one scenario with mmq and prints one line of JSON, as the harnesses of its peers do.
//! `benches/compare/run.py` runs them side by side; `benches/compare/harness.rs` has the arguments.
//!
//! Peers: `mmq` delivers into the caller's buffer; `mmq-message` lends in place (`dequeue`,
//! `peek`); `mmq-skip` steps over messages without delivering them (to compare with queues whose
//! dequeue does no more); `mmq-batch` enqueues and dequeues 32 at a time. Each checks every message
//! that it delivers. `fingerprint` is no queue: it prints the machine's fingerprint.

#[path = "../benches/support/fingerprint.rs"]
mod fingerprint;
#[path = "../benches/compare/harness.rs"]
mod harness;

use std::hint::black_box;
use std::path::Path;

use harness::{Done, Handle, Peer, Run};
use mmq::{MessageBatch, Queue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Into,
    Message,
    Skip,
    Batch,
}

const BATCH: usize = 32;

/// A queue and how it is used.
struct Mmq {
    queue: Queue,
    mode: Mode,
    size: usize,
}

/// A thread's way to the queue, with what messages are delivered into.
struct Thread<'a> {
    queue: &'a Queue,
    mode: Mode,
    size: usize,
    bytes: Vec<u8>,
    batch: MessageBatch,
}

fn mode(run: &Run) -> Mode {
    match run.peer.as_str() {
        "mmq-message" => Mode::Message,
        "mmq-skip" => Mode::Skip,
        "mmq-batch" => Mode::Batch,
        _ => Mode::Into,
    }
}

impl Peer for Mmq {
    fn open(run: &Run, dir: &Path) -> Done<Mmq> {
        let mut options = Queue::options();
        if run.arena > 0 {
            options = options.arena_size(run.arena);
            let arenas = u32::try_from(run.cap / run.arena).unwrap_or(u32::MAX).max(3);
            options = options.max_mapped_arenas((run.cap > 0).then_some(arenas));
        }
        if run.scenario == "durable" {
            options = options.flush_every_ops(1);
        }
        Ok(Mmq { queue: options.open(dir)?, mode: mode(run), size: run.size })
    }

    fn handle(&self) -> Done<impl Handle> {
        let Mmq { ref queue, mode, size } = *self;
        Ok(Thread { queue, mode, size, bytes: Vec::new(), batch: MessageBatch::default() })
    }

    fn close(self) -> Done {
        Ok(self.queue.close()?)
    }
}

impl Handle for Thread<'_> {
    fn enqueue(&mut self, message: &[u8], count: u64) -> Done {
        let queue = self.queue;
        if self.mode == Mode::Batch {
            let mut left = count as usize;
            while left > 0 {
                let now = left.min(BATCH);
                queue.enqueue_batch(std::iter::repeat_n(black_box(message), now))?;
                left -= now;
            }
            return Ok(());
        }
        for _ in 0..count {
            queue.enqueue(black_box(message))?;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, most: u64) -> Done<u64> {
        let queue = self.queue;
        Ok(match self.mode {
            Mode::Into => queue.dequeue_into(&mut self.bytes)?.map_or(0, |_| {
                assert_eq!(black_box(&self.bytes).len(), self.size);
                1
            }),
            Mode::Message => queue.dequeue()?.map_or(0, |message| {
                assert_eq!(black_box(&message).len(), self.size);
                1
            }),
            Mode::Skip => u64::from(black_box(queue.skip()?).is_some()),
            Mode::Batch => {
                let taken = queue.dequeue_batch_into(&mut self.batch, BATCH.min(most as usize))?;
                black_box(&self.batch);
                taken as u64
            }
        })
    }

    #[inline]
    fn peek(&mut self) -> Done<bool> {
        if self.mode == Mode::Message {
            return Ok(black_box(self.queue.peek()?).is_some());
        }
        let seen = self.queue.peek_into(&mut self.bytes)?.is_some();
        assert_eq!(black_box(&self.bytes).len(), self.size);
        Ok(seen)
    }

    fn delivered(&self) -> Option<&[u8]> {
        (self.mode == Mode::Into).then_some(&self.bytes)
    }
}

fn main() -> Done {
    let mut run = Run::from_arguments()?;
    let note = match run.peer.as_str() {
        "mmq" => "every message checked; payload copied to the caller's buffer",
        "mmq-message" => "every message checked; lent in place",
        "mmq-skip" => "stepped over, not delivered",
        "mmq-batch" => "every message checked; 32 at a time",
        "list" => {
            println!("mmq\nmmq-message\nmmq-skip\nmmq-batch\nfingerprint");
            return Ok(());
        }
        "fingerprint" => {
            println!("{}", fingerprint::fingerprint(&run.dir));
            return Ok(());
        }
        peer => return Err(format!("unknown peer {peer}; try --peer list").into()),
    };
    let mode = mode(&run);
    if mode == Mode::Batch {
        run.step = BATCH as u64;
    }
    let can_peek = matches!(mode, Mode::Into | Mode::Message);
    run.report(env!("CARGO_PKG_VERSION"), note, |run| match run.scenario.as_str() {
        "peek" if !can_peek => Ok(None),
        _ => run.figures::<Mmq>(),
    })
}
