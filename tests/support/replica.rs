//! A copy of a base queue that is damaged at one byte, judged, and made whole again, thousands of
//! times a minute.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::base::{Base, NOTHING, Verdict, damaged_index, damaged_segment};
use crate::support::{Random, names};

/// A byte of a file, by the file's number in [`Replica::files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) at: u64,
}

pub(crate) struct Replica<'b> {
    base: &'b Base,
    home: TempDir,
    files: Vec<(String, Vec<u8>)>,
    compared: Vec<u8>,
}

/// In memory where that is possible: each case is closed, and closing syncs.
fn scratch() -> TempDir {
    crate::support::guard::tempdir_in_memory().unwrap()
}

impl<'b> Replica<'b> {
    /// A copy; `at_home` it was opened and closed where it is, so that its index is true for that
    /// directory.
    pub(crate) fn new(base: &'b Base, at_home: bool) -> Replica<'b> {
        let home = scratch();
        let read = |name: String| (name.clone(), fs::read(base.files().join(name)).unwrap());
        let files = names(&base.files()).into_iter().map(read).collect();
        fs::create_dir(home.path().join("queue")).unwrap();
        let mut replica = Replica { base, home, files, compared: Vec::new() };
        replica.restore(None);
        if at_home {
            base.options.clone().open(replica.dir()).unwrap().close().unwrap();
            let dir = replica.dir();
            replica
                .files
                .iter_mut()
                .for_each(|(name, bytes)| *bytes = fs::read(dir.join(name)).unwrap());
            assert_eq!(
                names(&dir).len(),
                replica.files.len(),
                "opening and closing changes no name"
            );
        }
        replica
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.home.path().join("queue")
    }

    /// Makes every file again what it was, and takes away the others. After a flip outside of the
    /// index only the file it was in, the index and what is written to can have changed: the
    /// witness holds the rest.
    pub(crate) fn restore(&mut self, flipped: Option<Place>) {
        const PIECE: usize = 256 << 10;
        let dir = self.dir();
        for name in names(&dir) {
            if !self.files.iter().any(|(known, _)| *known == name) {
                fs::remove_file(dir.join(name)).unwrap();
            }
        }
        let tail = self.base.live.last().map(|segment| segment.name.as_str());
        for (number, (name, wanted)) in self.files.iter().enumerate() {
            if let Some(Place { file, .. }) = flipped
                && self.files[file].0 != "index"
                && self.base.live.iter().any(|segment| segment.name == *name)
                && file != number
                && tail != Some(name)
            {
                continue;
            }
            let path = dir.join(name);
            let file = fs::File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .unwrap();
            let len = file.metadata().unwrap().len();
            for (number, piece) in wanted.chunks(PIECE).enumerate() {
                let at = (number * PIECE) as u64;
                self.compared.resize(piece.len(), 0);
                let is_there = at + piece.len() as u64 <= len;
                if !is_there
                    || file.read_exact_at(&mut self.compared, at).is_err()
                    || self.compared != piece
                {
                    file.write_all_at(piece, at).unwrap();
                }
            }
            if len > wanted.len() as u64 {
                file.set_len(wanted.len() as u64).unwrap();
            }
        }
    }

    /// Flips bits of one byte, and says what that may cost.
    pub(crate) fn flip(&self, place: Place, bits: u8) -> (String, Verdict) {
        let (name, bytes) = &self.files[place.file];
        let file = fs::File::options().write(true).open(self.dir().join(name)).unwrap();
        file.write_all_at(&[bytes[place.at as usize] ^ bits], place.at).unwrap();
        let verdict = match self.base.live.iter().position(|segment| segment.name == *name) {
            Some(number) => damaged_segment(self.base.cost(number, place.at, place.at + 1)),
            None if name == "index" => damaged_index(),
            None => damaged_segment(NOTHING),
        };
        (format!("{name} at {} xor {bits:#x}", place.at), verdict)
    }

    /// Nothing was erased: what is not there under its name lies beside it as it was found.
    pub(crate) fn assert_kept(&self, place: Place, bits: u8) {
        let dir = self.dir();
        let now = names(&dir);
        // A flip in the index may have cost the witness its place, and then space is given back.
        let all_held = self.files[place.file].0 != "index";
        for (number, (name, bytes)) in self.files.iter().enumerate() {
            let is_held = *name == "index"
                || all_held && self.base.live.iter().any(|segment| segment.name == *name);
            let quarantined: Vec<_> = now
                .iter()
                .filter(|other| other.starts_with(name) && other.len() > name.len())
                .collect();
            assert!(quarantined.len() <= 1, "{quarantined:?}");
            assert!(!is_held || !quarantined.is_empty() || now.contains(name), "{name} is gone");
            for quarantined in quarantined {
                let mut found = fs::read(dir.join(quarantined)).unwrap();
                if number == place.file {
                    found[place.at as usize] ^= bits;
                }
                assert!(found == *bytes, "{quarantined} is not what was found");
            }
        }
    }

    /// Panics unless the files are what they are in the base.
    pub(crate) fn assert_restored(&self) {
        for (name, bytes) in &self.files {
            assert!(fs::read(self.dir().join(name)).unwrap() == *bytes, "{name} was changed");
        }
    }

    /// Every byte of every segment header, and of every part of the index.
    pub(crate) fn headers(&self, with_index: bool) -> Vec<Place> {
        // As `src/format/mod.rs` lists the parts; of the consumers' rows the ones in use and the
        // first free one.
        let parts = [0..64, 1024..1216, 2048..4288, 4608..8064, 8192..8704, 8704..12160];
        let rows = 12288..12288 + 384 * (self.base.readers.len() as u64 + 2);
        let index: Vec<u64> = parts.into_iter().chain([rows, 36864..40960]).flatten().collect();
        let mut places = Vec::new();
        for (file, (name, _)) in self.files.iter().enumerate() {
            let bytes = match (name.as_str(), with_index) {
                ("index", true) => index.clone(),
                ("index", false) => Vec::new(),
                _ => (0..128).collect(),
            };
            places.extend(bytes.into_iter().map(|at| Place { file, at }));
        }
        places
    }

    /// A byte of the header of any fragment; those of messages in several pieces get their share.
    pub(crate) fn fragment_header(&self, random: &mut Random) -> Place {
        let split = self.base.split();
        let (segment, fragment) = if !split.is_empty() && random.chance(16) {
            *random.pick(&split)
        } else {
            let segment = random.pick(&self.base.live);
            (segment, *random.pick(&segment.fragments))
        };
        let file = self.files.iter().position(|(name, _)| *name == segment.name).unwrap();
        Place { file, at: fragment.at + random.below(16) }
    }

    /// Any byte of any file.
    pub(crate) fn anywhere(&self, random: &mut Random) -> Place {
        let file = random.below(self.files.len() as u64) as usize;
        Place { file, at: random.below(self.files[file].1.len() as u64) }
    }
}
