//! A storage whose changes stay in memory: shows what an opening would do to a queue.
//!
//! It only opens and reads the files below. It keeps written bytes, new lengths, and created,
//! renamed and removed names in memory.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CacheToken, FileStat, Listed, Storage, StorageFile, Stores};
use crate::error::SyncFailed;
use crate::memory::Window;
use crate::threads::{AtomicU64, Mutex};

/// How many bytes it copies when one of them is changed.
const PAGE: u64 = 4096;

/// The files of `below`, with changes that are kept in memory.
#[derive(Debug)]
pub(crate) struct Overlay<S: Storage> {
    below: Arc<S>,
    /// Names that a caller opened or changed; `None` for a removed name.
    names: Mutex<BTreeMap<String, Option<OverlayFile<S::File>>>>,
    drawn: AtomicU64,
}

/// A file of an [`Overlay`]. Clones share their bytes.
#[derive(Debug)]
pub(crate) struct OverlayFile<F>(Arc<Layer<F>>);

impl<F> Clone for OverlayFile<F> {
    fn clone(&self) -> OverlayFile<F> {
        OverlayFile(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Layer<F> {
    /// Its name below; `None` for a file created in the overlay.
    name: Option<String>,
    /// `None` when it has no bytes below.
    below: Option<F>,
    changed: Mutex<Changed>,
}

#[derive(Debug, Default)]
struct Changed {
    len: u64,
    /// The overlay hides bytes of the file below from here on, because the file was truncated here
    /// once.
    below_until: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// How the names in an [`Overlay`] differ from those below.
#[derive(Debug, Default)]
pub(crate) struct NamesChanged {
    /// The name below, and the file's name in the overlay.
    pub(crate) renamed: Vec<(String, String)>,
    pub(crate) created: Vec<String>,
    pub(crate) removed: Vec<String>,
}

impl<S: Storage> Overlay<S> {
    pub(crate) fn over(below: Arc<S>) -> Overlay<S> {
        Overlay { below, names: Mutex::default(), drawn: AtomicU64::new(0) }
    }

    /// Returns which names were changed, in the order of the names.
    pub(crate) fn changes(&self) -> io::Result<NamesChanged> {
        let listed = self.below.list()?;
        let names = self.names.lock();
        let mut changed = NamesChanged::default();
        for (name, file) in &*names {
            match file.as_ref().map(|file| &file.0.name) {
                Some(None) => changed.created.push(name.clone()),
                Some(Some(below)) if below == name => {}
                Some(Some(below)) => changed.renamed.push((below.clone(), name.clone())),
                None if listed.iter().any(|listed| listed.name == *name) => {
                    changed.removed.push(name.clone());
                }
                None => {}
            }
        }
        changed.removed.retain(|gone| changed.renamed.iter().all(|(below, _)| below != gone));
        Ok(changed)
    }
}

impl<F: StorageFile> OverlayFile<F> {
    fn over(name: &str, below: F) -> io::Result<OverlayFile<F>> {
        let len = below.len()?;
        let changed = Mutex::new(Changed { len, below_until: len, pages: BTreeMap::new() });
        let name = Some(name.to_owned());
        Ok(OverlayFile(Arc::new(Layer { name, below: Some(below), changed })))
    }

    /// A file without bytes.
    fn empty(name: Option<&str>) -> OverlayFile<F> {
        let name = name.map(str::to_owned);
        OverlayFile(Arc::new(Layer { name, below: None, changed: Mutex::default() }))
    }

    /// Returns the present bytes of one page.
    fn page(&self, changed: &Changed, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(page) = changed.pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = vec![0; PAGE as usize].into_boxed_slice();
        let start = number * PAGE;
        let there = changed.below_until.saturating_sub(start).min(PAGE) as usize;
        if let Some(below) = self.0.below.as_ref().filter(|_| there > 0) {
            super::read_full(below, &mut page[..there], start)?;
        }
        Ok(page)
    }
}

impl<S: Storage> Storage for Overlay<S> {
    type File = OverlayFile<S::File>;

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = self.below.list()?;
        for (name, file) in &*self.names.lock() {
            listed.retain(|listed| listed.name != *name || file.is_some());
            if file.is_some() && listed.iter().all(|listed| listed.name != *name) {
                listed.push(Listed { name: name.clone(), is_file: true });
            }
        }
        Ok(listed)
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        let mut names = self.names.lock();
        match names.get(name) {
            Some(Some(_)) => return Err(ErrorKind::AlreadyExists.into()),
            None if self.below.list()?.iter().any(|listed| listed.name == name) => {
                return Err(ErrorKind::AlreadyExists.into());
            }
            _ => {}
        }
        let file = OverlayFile::empty(None);
        names.insert(name.to_owned(), Some(file.clone()));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        let mut names = self.names.lock();
        match names.get(name) {
            Some(Some(file)) => Ok(file.clone()),
            Some(None) => Err(ErrorKind::NotFound.into()),
            None => {
                let file = OverlayFile::over(name, self.below.open(name)?)?;
                names.insert(name.to_owned(), Some(file.clone()));
                Ok(file)
            }
        }
    }

    fn read_stored(&self, name: &str, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.below.read_stored(name, buf, offset)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = match self.open(from) {
            // A directory or a device: the caller may rename it, but not read it.
            Err(error) if error.kind() == ErrorKind::InvalidData => OverlayFile::empty(Some(from)),
            opened => opened?,
        };
        let mut names = self.names.lock();
        names.insert(from.to_owned(), None);
        names.insert(to.to_owned(), Some(file));
        Ok(())
    }

    /// The files below are as good: a look makes nothing durable.
    fn renew(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.open(name)?;
        self.names.lock().insert(name.to_owned(), None);
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), SyncFailed> {
        Ok(())
    }

    fn is_removed(&self) -> bool {
        self.below.is_removed()
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn unlock(&self) {}

    fn holder(&self) -> Option<u32> {
        self.below.holder()
    }

    fn cache_token(&self, index: FileStat) -> CacheToken {
        self.below.cache_token(index)
    }

    fn stat(&self, name: &str) -> io::Result<FileStat> {
        self.open(name)?.stat()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        // Nothing here takes space on the disk.
        Ok(u64::MAX >> 1)
    }

    fn random(&self) -> [u8; 16] {
        // None of these numbers reaches a disk, so they need not be random.
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        (u128::from(drawn) + 1).to_le_bytes()
    }

    fn now(&self) -> u64 {
        self.below.now()
    }

    fn path(&self) -> &Path {
        self.below.path()
    }
}

impl<F: StorageFile> StorageFile for OverlayFile<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.changed.lock().len)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.0.below.as_ref().map_or(Ok(FileStat::default()), StorageFile::stat)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).ok_or(ErrorKind::InvalidInput)?;
        let mut changed = self.0.changed.lock();
        changed.len = changed.len.max(end);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changed = self.0.changed.lock();
        changed.below_until = changed.below_until.min(len);
        changed.pages.split_off(&len.div_ceil(PAGE));
        if let Some(page) = changed.pages.get_mut(&(len / PAGE)) {
            page[(len % PAGE) as usize..].fill(0);
        }
        changed.len = len;
        Ok(())
    }

    fn map(&self, _: u64, _: usize) -> io::Result<Window> {
        // Callers map a file whose bytes change by calls only to read messages, and callers of an
        // overlay read messages by calls, too.
        Err(ErrorKind::Unsupported.into())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let changed = self.0.changed.lock();
        let room = changed.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..room];
        let pages = offset / PAGE..(offset + room as u64).div_ceil(PAGE);
        let is_below = changed.pages.range(pages).next().is_none()
            && offset + room as u64 <= changed.below_until;
        match &self.0.below {
            Some(below) if is_below => return super::read_full(below, buf, offset),
            _ => {}
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let piece = (PAGE as usize - within).min(buf.len() - done);
            let page = self.page(&changed, at / PAGE)?;
            buf[done..done + piece].copy_from_slice(&page[within..within + piece]);
            done += piece;
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut changed = self.0.changed.lock();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let piece = (PAGE as usize - within).min(buf.len() - done);
            let mut page = self.page(&changed, at / PAGE)?;
            page[within..within + piece].copy_from_slice(&buf[done..done + piece]);
            changed.pages.insert(at / PAGE, page);
            done += piece;
        }
        changed.len = changed.len.max(offset + buf.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<(), SyncFailed> {
        Ok(())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        match &self.0.below {
            Some(below) => below.disk_bytes(),
            None => Ok(self.0.changed.lock().len),
        }
    }

    fn stores(&self) -> Stores {
        Stores::ByCall
    }

    fn find_stores(&self, _: u64) -> Stores {
        Stores::ByCall
    }

    fn unshare(&self, _: u64) {}
}
