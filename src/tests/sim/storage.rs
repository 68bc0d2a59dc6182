//! The simulated disk as the queue sees it.

use std::io;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::disk::{Nameless, State};
use super::faults::{Call, enter, enter_or_fail};
use super::inode::{Inode, PAGE};
use super::{SYNCS, SimStorage};
use crate::error::SyncFailed;
use crate::memory::Window;
use crate::storage::{CacheToken, FileStat, Listed, Storage, StorageFile, Stores};
use crate::tests::mutants::Mutant;
use crate::tests::schedule::{linger, note};

thread_local! {
    /// A file with more bytes than the first number says it takes as many more as the second one:
    /// blocks in which the file system finds its pieces.
    pub(crate) static BESIDE: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
}

#[derive(Debug)]
pub(crate) struct SimFile {
    pub(super) disk: Arc<Mutex<State>>,
    pub(super) inode: Arc<Inode>,
    pub(super) _open: Arc<()>,
    /// How many failures to write pages were reported to this descriptor, or came before it was
    /// opened.
    pub(super) reported: AtomicU64,
    pub(super) stores: Stores,
}

impl Storage for SimStorage {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<Listed>> {
        let state = enter_or_fail(&self.disk, Call::List)?;
        Ok(state.names.keys().map(|name| Listed { name: name.clone(), is_file: true }).collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        noting(
            || format!("create {name}"),
            || {
                let mut state = enter_or_fail(&self.disk, Call::Create)?;
                if state.names.contains_key(name) {
                    return Err(Errno::EXIST.into());
                }
                state.note_call(name);
                let capacity = state.file_capacity;
                let inode = state.new_inode(capacity);
                state.change(None, Some(name), inode.clone());
                Ok(self.file(inode, &state))
            },
        )
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        noting_failure(
            || format!("open {name}"),
            || {
                let mut state = enter_or_fail(&self.disk, Call::Open)?;
                state.note_call(name);
                Ok(self.file(state.find(name)?, &state))
            },
        )
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        noting(
            || format!("rename {from} to {to}"),
            || {
                let mut state = enter_or_fail(&self.disk, Call::Rename)?;
                state.note_call((from, to));
                let inode = state.find(from)?;
                state.change(Some(from), Some(to), inode);
                Ok(())
            },
        )
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        noting(
            || format!("remove {name}"),
            || {
                let mut state = enter_or_fail(&self.disk, Call::Remove)?;
                state.note_call(name);
                let inode = state.find(name)?;
                state.nameless.retain(Nameless::is_in_use);
                state.nameless.push(Nameless::new(&inode));
                state.change(Some(name), None, inode);
                Ok(())
            },
        )
    }

    fn sync_directory(&self) -> Result<(), SyncFailed> {
        noting(
            || "sync the directory".to_owned(),
            || {
                SYNCS.set(SYNCS.get() + 1);
                slowly(|| {
                    let mut state =
                        enter_or_fail(&self.disk, Call::SyncDirectory).map_err(SyncFailed)?;
                    if Mutant::DirectoryNotSynced.is_planted() {
                        return Ok(());
                    }
                    state.durable_names = state.names.clone();
                    state.pending.clear();
                    Ok(())
                })
            },
        )
    }

    fn is_removed(&self) -> bool {
        false
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(*self.disk.lock().holder.get_or_insert(self.id) == self.id)
    }

    fn unlock(&self) {
        let mut disk = self.disk.lock();
        if disk.holder == Some(self.id) {
            disk.holder = None;
        }
    }

    fn holder(&self) -> Option<u32> {
        self.disk.lock().holder.map(|_| std::process::id())
    }

    fn cache_token(&self, index: FileStat) -> CacheToken {
        CacheToken { file: index.identity.into(), ..self.disk.lock().life }
    }

    fn stat(&self, name: &str) -> io::Result<FileStat> {
        let state = self.disk.lock();
        Ok(stat(&*state.find(name)?, &state))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.lock().free())
    }

    fn random(&self) -> [u8; 16] {
        self.disk.lock().rng.bytes()
    }

    fn now(&self) -> u64 {
        self.disk.lock().now + crate::tests::schedule::elapsed_millis()
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }
}

/// An error, in a story.
trait Words {
    fn words(&self) -> String;
}

impl Words for io::Error {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for SyncFailed {
    fn words(&self) -> String {
        self.0.to_string()
    }
}

/// Does at some moment what takes its time.
fn slowly<T>(work: impl FnOnce() -> T) -> T {
    linger();
    let done = work();
    linger();
    done
}

/// Makes a call, and notes it with what came of it where somebody reads along.
fn noting<T, E: Words>(
    words: impl FnOnce() -> String,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let answer = call();
    note(|| match &answer {
        Ok(_) => format!("disk: {}", words()),
        Err(error) => format!("disk: {} FAILS: {}", words(), error.words()),
    });
    answer
}

/// The same for a call that changes nothing: it is noted if it fails.
fn noting_failure<T, E: Words>(
    words: impl FnOnce() -> String,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let answer = call();
    if let Err(error) = &answer {
        note(|| format!("disk: {} FAILS: {}", words(), error.words()));
    }
    answer
}

impl SimFile {
    /// For a story.
    fn name(&self) -> String {
        let state = self.disk.lock();
        let named = state.names.iter().find(|(_, inode)| inode.id == self.inode.id);
        named.map_or_else(|| "a file without a name".to_owned(), |(name, _)| name.clone())
    }

    /// Gives space to the pages of a range and extends the file over it, or changes nothing.
    fn extend(&self, state: &mut State, range: Range<usize>) -> io::Result<()> {
        let mut body = self.inode.body.lock();
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let wanted = body.pages[pages.clone()].iter().filter(|page| !page.allocated).count();
        if wanted == 0 {
            body.grow(&self.inode, range.end);
            return Ok(());
        }
        drop(body);
        if (wanted * PAGE) as u64 > state.free() {
            return Err(Errno::NOSPC.into());
        }
        let mut body = self.inode.body.lock();
        body.pages[pages].iter_mut().for_each(|page| page.allocated = true);
        body.grow(&self.inode, range.end);
        drop(body);
        let (taken, most) = (state.named_bytes(), state.most.unwrap_or(u64::MAX));
        assert!(taken <= most, "the files take {taken} of {most} bytes");
        state.most_taken = state.most_taken.max(taken);
        Ok(())
    }
}

/// A descriptor is closed.
impl Drop for SimFile {
    fn drop(&mut self) {
        crate::tests::schedule::step();
    }
}

/// Another disk, and a copy of this one, has other files under the same numbers.
fn stat(inode: &Inode, state: &State) -> FileStat {
    let numbers = state.seed << 32 | inode.id << 8 | state.copies;
    FileStat {
        identity: (numbers.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) as u32,
        changed: inode.changed.load(Ordering::Relaxed),
    }
}

impl StorageFile for SimFile {
    fn stat(&self) -> io::Result<FileStat> {
        Ok(stat(&self.inode, &self.disk.lock()))
    }

    fn len(&self) -> io::Result<u64> {
        drop(enter_or_fail(&self.disk, Call::Measure)?);
        Ok(self.inode.body.lock().len as u64)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        noting(
            || format!("allocate {len} bytes at {offset} in {}", self.name()),
            || {
                let mut state = enter_or_fail(&self.disk, Call::Allocate)?;
                let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
                self.inode.body.lock().check_capacity(end as usize);
                self.extend(&mut state, offset as usize..end as usize)
            },
        )
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        noting(
            || format!("set the length of {} to {len}", self.name()),
            || {
                enter_or_fail(&self.disk, Call::SetLen)?.note_change(&self.inode);
                let mut body = self.inode.body.lock();
                let (len, old_len) = (len as usize, body.len);
                if len >= old_len {
                    body.grow(&self.inode, len);
                    return Ok(());
                }
                self.inode.memory.write(len, &vec![0; old_len - len]);
                body.len = len;
                for number in len / PAGE..old_len.div_ceil(PAGE) {
                    let page = &mut body.pages[number];
                    page.early.push(self.inode.image(number));
                    page.dirty = true;
                    page.allocated &= number * PAGE < len;
                }
                Ok(())
            },
        )
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Window> {
        noting_failure(
            || format!("map {len} bytes at {offset} of {}", self.name()),
            || {
                let _state = enter_or_fail(&self.disk, Call::Map)?;
                self.inode.body.lock().check_capacity(offset as usize + len);
                let window = Window::heap(&self.inode.memory, offset as usize, len);
                Ok(if self.stores == Stores::ByMap { window } else { window.forbid_stores() })
            },
        )
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        noting_failure(
            || format!("read at {offset} of {}", self.name()),
            || {
                let state = enter_or_fail(&self.disk, Call::Read)?;
                let end = offset as usize + buf.len();
                let touched =
                    |range: &Range<usize>| range.start < end && (offset as usize) < range.end;
                if state.unreadable.iter().any(|(id, range)| *id == self.inode.id && touched(range))
                {
                    return Err(Errno::IO.into());
                }
                let left = (self.inode.body.lock().len as u64).saturating_sub(offset);
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
                if len > 0 {
                    self.inode.memory.read(offset as usize, &mut buf[..len]);
                }
                Ok(len)
            },
        )
    }

    /// A refused write has written its first half, in whole pages, as far as the file already
    /// reached there.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        // The standard library makes no call for nothing, so no file grows by it.
        if buf.is_empty() {
            return Ok(());
        }
        noting(
            || format!("write {} bytes at {offset} of {}", buf.len(), self.name()),
            || {
                let (mut state, mut answer) = enter(&self.disk, Call::Write);
                state.note_change(&self.inode);
                state.note_call((self.inode.id, offset, buf.len()));
                let mut range = offset as usize..offset as usize + buf.len();
                self.inode.body.lock().check_capacity(range.end);
                if answer.is_ok() {
                    answer = self.extend(&mut state, range.clone());
                }
                let mut body = self.inode.body.lock();
                if answer.is_err() {
                    let half = (range.start + buf.len() / 2).min(body.len);
                    range.end = (half / PAGE * PAGE).max(range.start);
                    let first_hole = |page: &usize| !body.pages[*page].allocated;
                    if let Some(hole) =
                        (range.start / PAGE..range.end.div_ceil(PAGE)).find(first_hole)
                    {
                        range.end = (hole * PAGE).max(range.start);
                    }
                }
                self.inode.memory.write(range.start, &buf[..range.len()]);
                for page in &mut body.pages[range.start / PAGE..range.end.div_ceil(PAGE)] {
                    page.dirty = true;
                }
                answer
            },
        )
    }

    fn sync(&self) -> Result<(), SyncFailed> {
        noting(
            || format!("sync {}", self.name()),
            || {
                SYNCS.set(SYNCS.get() + 1);
                slowly(|| {
                    let (mut state, answer) = enter(&self.disk, Call::SyncFile);
                    state.note_call(self.inode.id);
                    self.inode.sync(answer.is_ok());
                    let failures = self.inode.failures.load(Ordering::Relaxed);
                    if self.reported.swap(failures, Ordering::Relaxed) < failures {
                        return Err(SyncFailed(Errno::IO.into()));
                    }
                    answer.map_err(SyncFailed)
                })
            },
        )
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        drop(enter_or_fail(&self.disk, Call::Measure)?);
        let bytes = self.inode.allocated_bytes();
        let (above, beside) = BESIDE.get();
        Ok(bytes + if bytes > above { beside } else { 0 })
    }

    fn stores(&self) -> Stores {
        self.stores
    }

    fn find_stores(&self, _offset: u64) -> Stores {
        self.stores
    }

    fn unshare(&self, _len: u64) {}
}
