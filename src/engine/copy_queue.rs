//! Copies a queue: the same messages, sequence numbers and consumer positions.
//!
//! The copy gets the fragments byte for byte, without reading messages: a copied segment keeps the
//! seed of its original, even under another queue id ([`SegmentHeader::copied_to`]). So damaged
//! bytes stay damaged, and reads of the copy report each gap with its cause. The copy's last
//! segment ends at the tail: new records of the copy go to segments with new salts, so the two
//! queues never store different bytes under one seed.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use super::Engine;
use crate::error::{Error, Result};
use crate::format::{self, INDEX_NAME, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::index::IndexFile;
use crate::index::image::{IndexImage, Live};
use crate::segment::{Lost, Row, open_life};
use crate::storage::{Storage, StorageFile, read_full};

/// How many bytes one read and one write copy.
const PIECE: u64 = 1 << 20;

/// Which id a copy gets: [`Queue::copy_to`](crate::Queue::copy_to).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use std::ops::ControlFlow;
///
/// let queue = mmq::Queue::open(dir.path().join("jobs"))?;
/// let backup = dir.path().join("backup");
/// queue.copy_to(backup, mmq::CopiedId::Same, |_, _| ControlFlow::Continue(()))?;
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedId {
    /// A new id. Queue and copy are two queues, and programs may use both.
    New,
    /// The queue's own id: the copy is a backup that may replace the queue. Of two queues with one
    /// id, use only one: otherwise the same number would name two messages.
    Same,
}

/// Called with the number of bytes copied so far, and of all bytes to copy. `Break` ends the
/// copying.
pub(crate) type Watched<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

impl<S: Storage> Engine<S> {
    /// Closes the queue and copies it to the directory of `to`, which is empty. When this returns
    /// without an error, the copy is durable except for the name of its directory. The queue stays
    /// locked until this returns.
    pub(crate) fn copy_to(&self, to: &S, id: CopiedId, progress: Watched<'_>) -> Result<()> {
        self.find_files()?;
        let path = self.core.storage.path();
        let closed = self.close_then(|| {
            // A run without a message may not have written a clean end.
            self.core.write_clean_end(self.core.committed_spot())?;
            self.copy_files(to, id, progress)
        });
        closed.unwrap_or_else(|| Err(Error::closed(path)))
    }

    /// Finds the files of all segments, also under other names, as a reader does when it opens
    /// them.
    fn find_files(&self) -> Result<()> {
        let core = &*self.core;
        core.check_readable()?;
        let mut list = core.segments.list();
        let rows: Vec<Row> = list.live.iter().copied().collect();
        for row in &rows {
            if let Err(Lost::Io(error)) = list.open_anywhere(&core.storage, &core.index, row) {
                return Err(self.failed(row)("open", error));
            }
        }
        Ok(())
    }

    /// Returns a constructor of errors about a segment's file.
    fn failed(&self, row: &Row) -> impl Fn(&'static str, io::Error) -> Error {
        let path = self.core.storage.path().join(format::segment_name(row.slot));
        move |op, error| Error::io(op, path.clone(), error)
    }

    fn copy_files(&self, to: &S, id: CopiedId, progress: Watched<'_>) -> Result<()> {
        let core = &*self.core;
        let from = &core.storage;
        let old_id = core.index.queue_id;
        let failed = |op, error| Error::io(op, from.path().join(INDEX_NAME), error);
        let file = IndexFile::read(from).map_err(|error| failed("read", error))?;
        let file = file.ok_or_else(|| failed("open", ErrorKind::NotFound.into()))?;
        let mut image = IndexImage::read(&file.bytes, &old_id);
        image.live = Live::default();
        let (queue_id, created) = match id {
            CopiedId::New => {
                // The far side of a forwarder knows the original, and not the copy: that begins
                // where the original has come to.
                for row in image.forward_rows.iter_mut().flatten() {
                    (row.began, row.position, row.chain) = (row.until, None, None);
                    (row.there, row.handed, row.counts_differ) = (row.until, row.until, false);
                }
                (to.random(), to.now())
            }
            CopiedId::Same => (old_id, format::index_created(&file.bytes)),
        };
        let tail = core.committed_spot().position;
        let mut pieces = Vec::new();
        for row in &core.segments.list().live {
            // A segment whose file is missing stays in the index, so that reads of the copy report
            // its messages as lost.
            let mut header = row.header.copied_to(queue_id);
            if (header.base + 1..header.end()).contains(&tail) {
                header.length = SEGMENT_HEADER_LEN + (tail - header.base);
            } else if header.base >= tail {
                // The segment is empty, and both queues will store to it.
                let [first, second, third, fourth, ..] = to.random();
                header.salt = u32::from_le_bytes([first, second, third, fourth]);
            }
            header.allocated = header.allocated.min(header.length);
            pieces.push((*row, header));
        }
        let total = pieces.iter().map(|(_, header)| header.allocated).sum();
        let mut copying = Copying { to, done: 0, total, progress, buffer: Vec::new() };
        for (row, header) in &mut pieces {
            match open_life(from, row.slot, &row.header) {
                Ok(opened) => {
                    header.allocated = opened.allocated.min(header.length);
                    copying.segment(row.slot, header, &opened.file, self.failed(row))?;
                }
                Err(Lost::Gone) => {}
                Err(Lost::Io(error)) => return Err(self.failed(row)("open", error)),
            }
        }
        image.segments = pieces.into_iter().map(|(row, header)| (row.slot, header)).collect();
        write_new(to, INDEX_NAME, &image.encode(&queue_id, created))?;
        to.sync_directory().map_err(|failed| failed.heeded(to.path()))
    }
}

/// The progress of a copy.
struct Copying<'a, S> {
    to: &'a S,
    done: u64,
    total: u64,
    progress: Watched<'a>,
    buffer: Vec<u8>,
}

impl<S: Storage> Copying<'_, S> {
    /// Copies the bytes of `from` that the copy's `header` calls allocated, and sets the copy's
    /// disk usage in `header`. `unread` builds the error of a failed read of `from`.
    fn segment(
        &mut self,
        slot: u32,
        header: &mut SegmentHeader,
        from: &S::File,
        unread: impl Fn(&'static str, io::Error) -> Error,
    ) -> Result<()> {
        let name = format::segment_name(slot);
        let path = self.to.path().join(&name);
        let unwritten = |op| {
            let path = &path;
            move |error| Error::io(op, path, error)
        };
        let file = self.to.create(&name).map_err(unwritten("create"))?;
        file.allocate(0, header.allocated).map_err(unwritten("allocate"))?;
        self.buffer.resize(PIECE as usize, 0);
        let mut at = 0;
        while at < header.allocated {
            let piece = &mut self.buffer[..PIECE.min(header.allocated - at) as usize];
            let read = read_full(from, piece, at).map_err(|error| unread("read", error))?;
            file.write_at(&piece[..read], at).map_err(unwritten("write"))?;
            at += piece.len() as u64;
            self.done += piece.len() as u64;
            if (self.progress)(self.done, self.total).is_break() {
                return Err(Error::io("copy", self.to.path(), ErrorKind::Interrupted.into()));
            }
        }
        file.write_at(&header.in_file().encode(), 0).map_err(unwritten("write"))?;
        file.sync().map_err(|failed| failed.heeded(&path))?;
        header.disk = file.disk_bytes().map_err(unwritten("measure"))?.max(header.allocated);
        Ok(())
    }
}

/// Writes and syncs a new file, but not the directory with its name.
fn write_new<S: Storage>(to: &S, name: &str, bytes: &[u8]) -> Result<()> {
    let path = to.path().join(name);
    let failed = |op| {
        let path = &path;
        move |error| Error::io(op, path, error)
    };
    let file = to.create(name).map_err(failed("create"))?;
    file.allocate(0, bytes.len() as u64).map_err(failed("allocate"))?;
    file.write_at(bytes, 0).map_err(failed("write"))?;
    file.sync().map_err(|failed| failed.heeded(&path))
}
