//! Finds the segment files, and their headers and checksum seeds, before any message is read.

use std::path::{Path, PathBuf};

use super::directories::{Directory, Expected, add, later, owed};
use super::findings::{SalvagedFile, WhichSegments};
use super::patient::Patient;
use crate::error::{Error, Result};
use crate::format::{
    self, FRAGMENT_HEADER_LEN, Invalid, Kind, MAX_SEGMENT_LEN, SEGMENT_HEADER_LEN, SEGMENT_PREFIX,
    SegmentHeader, SegmentState, Spot,
};
use crate::segment::header_in;
use crate::segment::scan::{Scan, is_blank};
use crate::segment::seed::Witnesses;
use crate::storage::{Storage, read_full};

/// A segment file with some valid content.
#[derive(Debug)]
pub(super) struct SegmentRemains {
    directory: usize,
    name: String,
    /// Its header; if that is damaged, the index's copy.
    pub(super) header: Option<SegmentHeader>,
    /// The file itself has that header.
    pub(super) bears_header: bool,
    /// The seed of its checksums; `None` if unknown. The seed of a segment that is the middle of a
    /// record follows from the fragment before.
    pub(super) seed: Option<u32>,
    /// Where the first record begins, or may begin.
    pub(super) first: Spot,
    /// The number of the record whose middle or end lies at the segment's beginning.
    pub(super) rest: Option<u64>,
    /// The header is lost, and bytes before the first record are damaged: nothing shows which
    /// numbers they had.
    pub(super) hides_first: bool,
    /// Records that begin here have lower numbers than this one, the first of the next segment.
    pub(super) below: u64,
    /// The first number that is missing before the next segment, or else its first number.
    pub(super) next_from: Option<u64>,
}

impl SegmentRemains {
    pub(super) fn life(&self) -> u64 {
        self.header.map_or(0, |header| header.life)
    }

    pub(super) fn base(&self) -> u64 {
        self.header.map_or(0, |header| header.base)
    }

    /// The position after its last byte.
    pub(super) fn end(&self) -> u64 {
        self.header.map_or(MAX_SEGMENT_LEN - SEGMENT_HEADER_LEN, |header| header.end())
    }

    pub(super) fn is_spare(&self) -> bool {
        self.header.is_some_and(|header| header.state == SegmentState::Spare)
    }

    /// A scan of its file. Without a known seed the scan can only find the seed.
    pub(super) fn scan<'a>(&self, file: &'a Patient) -> Scan<'a, Patient> {
        let limit = self.base() + file.len().saturating_sub(SEGMENT_HEADER_LEN);
        Scan::seeded(file, self.seed.unwrap_or(0), self.base()..self.end(), limit)
    }
}

/// All files of a salvage.
#[derive(Debug)]
pub(super) struct SalvageSet {
    directories: Vec<Directory>,
    pub(super) segments: Vec<SegmentRemains>,
    /// The report on each of the segments, followed by those on files without valid content.
    pub(super) files: Vec<SalvagedFile>,
    pub(super) queue_id: Option<[u8; 16]>,
    pub(super) owed: Expected,
    /// Every message below this number was reclaimed.
    pub(super) retained_from: u64,
    /// The headers did not change while they were read. Otherwise the queue's owner changed them
    /// too often.
    pub(super) is_settled: bool,
}

/// How often a salvage reads the headers of a queue in use until they stay the same.
const MOST_LOOKS: usize = 50;

impl SalvageSet {
    /// Reads the headers of the files in the directories, and of the files, among `paths`.
    pub(super) fn find(paths: &[PathBuf], which: WhichSegments) -> Result<SalvageSet> {
        let mut directories = Vec::new();
        for path in paths {
            add(&mut directories, path)?;
        }
        let (mut found, mut looks) = (Finds::default(), 0);
        let is_settled = loop {
            for at in 0..directories.len() {
                found.look_through(&directories, at, which)?;
            }
            looks += 1;
            if !directories.iter().any(Directory::is_owned) {
                break true;
            }
            directories.iter_mut().for_each(Directory::read_again);
            if found.is_current(&directories)? || looks == MOST_LOOKS {
                break looks < MOST_LOOKS;
            }
            found = Finds::default();
        };
        let Finds { mut segments, mut files, nothing, queue, hint, .. } = found;
        if segments.is_empty() && nothing.is_empty() {
            let names = paths.iter().map(|path| path.display().to_string());
            let name = names.collect::<Vec<_>>().join(", ");
            let path = paths.first().cloned().unwrap_or_default();
            return Err(Error::NotFound { path, what: "segment file", name, held: None });
        }
        let queue_id = queue.map(|(id, _)| id);
        let owed = owed(&directories, queue_id);
        let near = hint.or(owed.tail.map(|tail| tail.seq)).unwrap_or(0);
        for (remains, file) in segments.iter_mut().zip(&mut files) {
            if remains.seed.is_some() {
                let opened = open(&directories, remains);
                begin(remains, near, opened.as_ref().ok());
            }
            file.what = what(remains);
            if remains.hides_first {
                let seq = remains.first.seq;
                file.damage.push(format!("it is not known what was in it before message {seq}"));
                file.uncounted = true;
            }
        }
        note_successors(&mut segments);
        files.extend(nothing);
        let by_headers =
            segments.iter().filter_map(|remains| remains.header.map(|header| header.retained_from));
        let retained_from = by_headers.fold(owed.retained_from, u64::max);
        Ok(SalvageSet { directories, segments, files, queue_id, owed, retained_from, is_settled })
    }

    /// Opens the file of these remains, if it still has the same header.
    pub(super) fn open(&self, at: usize) -> Result<Patient, Unopened> {
        let remains = &self.segments[at];
        let file = open(&self.directories, remains)?;
        if self.is_used_again(at, &file) { Err(Unopened::Used) } else { Ok(file) }
    }

    /// Whether the queue's owner has reused the file since the salvage read its header.
    pub(super) fn is_used_again(&self, at: usize, file: &Patient) -> bool {
        let remains = &self.segments[at];
        let is_same = |header: SegmentHeader| Some(header.seed()) == remains.seed;
        remains.bears_header && !header_of(file).is_ok_and(is_same)
    }

    /// Whether the spot lies after the tail in the index, and the segment is the last one. (If
    /// another segment followed, the index might be an old copy.)
    pub(super) fn is_behind_the_tail(&self, at: usize, spot: Spot) -> bool {
        let remains = &self.segments[at];
        let Some((tail, header)) = self.owed.tail.zip(remains.header) else { return false };
        (header.base..=header.end()).contains(&tail.position)
            && spot >= tail
            && spot.seq >= tail.seq
            && remains.next_from.is_none()
    }
}

/// Why a file can no longer be read.
#[derive(Debug)]
pub(super) enum Unopened {
    /// It is gone, or another segment uses it now.
    Used,
    Refused(std::io::Error),
}

fn open(directories: &[Directory], remains: &SegmentRemains) -> Result<Patient, Unopened> {
    match directories[remains.directory].storage.open(&remains.name) {
        Ok(file) => Ok(Patient::new(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Unopened::Used),
        Err(error) => Err(Unopened::Refused(error)),
    }
}

fn header_of(file: &Patient) -> Result<SegmentHeader, Invalid> {
    header_in(file).unwrap_or(Err(Invalid::Damaged))
}

/// The result of one pass over the files.
#[derive(Debug, Default)]
struct Finds {
    segments: Vec<SegmentRemains>,
    files: Vec<SalvagedFile>,
    /// Files without valid content.
    nothing: Vec<SalvagedFile>,
    /// Those of them without a header, which the owner may just have begun.
    headless: Vec<SegmentRemains>,
    /// The queue's id, and the first file that has it.
    queue: Option<([u8; 16], PathBuf)>,
    /// Some number of a header.
    hint: Option<u64>,
}

impl Finds {
    fn look_through(
        &mut self,
        directories: &[Directory],
        at: usize,
        which: WhichSegments,
    ) -> Result<()> {
        let directory = &directories[at];
        for name in directory.names()? {
            let path = directory.storage.path().join(&name);
            let mut file = SalvagedFile::new(path.clone());
            let opened = match directory.storage.open(&name) {
                Ok(opened) => Patient::new(opened),
                // The queue's owner has removed it meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    "cannot be opened".clone_into(&mut file.what);
                    file.damage.push(error.to_string());
                    file.uncounted = true;
                    self.nothing.push(file);
                    continue;
                }
            };
            file.len = opened.len();
            let mut remains = match header_of(&opened) {
                Err(Invalid::Version(found)) => return Err(later(path, found)),
                Ok(header) => {
                    let remains = SegmentRemains::new(at, name, Some(header));
                    SegmentRemains { bears_header: true, ..remains }
                }
                Err(Invalid::Damaged) => match without_header(directory, &name, &opened) {
                    Some((remains, damage)) => {
                        file.damage.push(damage);
                        SegmentRemains { directory: at, ..remains }
                    }
                    None => {
                        self.add_nothing(file, &name, &opened, directory);
                        self.headless.push(SegmentRemains::new(at, name, None));
                        continue;
                    }
                },
            };
            if let Some(header) = &mut remains.header {
                self.note_queue(header, &path)?;
                let rows = directory.rows(&remains.name);
                if let Some(row) = rows.iter().find(|row| row.life == header.life) {
                    *header = header.with_more_missing(row).in_file();
                }
                let top = header.first_seq.max(header.retained_from);
                self.hint = self.hint.max(Some(top));
            }
            if remains.is_spare() && which == WhichSegments::Live {
                remains.seed = None;
            }
            file.note_unreadable(&opened);
            self.segments.push(remains);
            self.files.push(file);
        }
        Ok(())
    }

    /// Whether the files still have the same headers.
    fn is_current(&self, directories: &[Directory]) -> Result<bool> {
        let mut names = self.segments.len() + self.nothing.len();
        for directory in directories {
            names = names.wrapping_sub(directory.names()?.len());
        }
        let is_same = |remains: &SegmentRemains| {
            let now = open(directories, remains).ok().and_then(|file| header_of(&file).ok());
            let was = remains.header.filter(|_| remains.bears_header);
            let which = |header: SegmentHeader| (header.life, header.state);
            now.map(which) == was.map(which)
        };
        Ok(names == 0 && self.segments.iter().chain(&self.headless).all(is_same))
    }

    /// Adds a file without valid content.
    fn add_nothing(
        &mut self,
        mut file: SalvagedFile,
        name: &str,
        opened: &Patient,
        directory: &Directory,
    ) {
        let damage = match is_blank(opened, file.len).unwrap_or(false) {
            // The file was never a segment.
            false if !name.starts_with(SEGMENT_PREFIX) => return,
            false => Some(
                "its header is lost, and no message in it can be checked: it is not known what was in it",
            ),
            // The index then states which numbers the queue gave out.
            true if directory.has_index() => None,
            true => Some("it is all zeros: it was being made, or it is not known what was in it"),
        };
        file.damage.extend(damage.map(str::to_owned));
        file.uncounted = damage.is_some();
        "no segment".clone_into(&mut file.what);
        self.nothing.push(file);
    }

    fn note_queue(&mut self, header: &SegmentHeader, path: &Path) -> Result<()> {
        let (id, first) = self.queue.get_or_insert_with(|| (header.queue_id, path.to_owned()));
        if *id == header.queue_id {
            return Ok(());
        }
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let reason = format!(
            "these are segment files of two queues: {} is of {}, {} of {}; give the files of one queue",
            first.display(),
            hex(&*id),
            path.display(),
            hex(&header.queue_id)
        );
        Err(Error::InvalidArgument { path: None, what: "paths", reason })
    }
}

impl SegmentRemains {
    fn new(directory: usize, name: String, header: Option<SegmentHeader>) -> SegmentRemains {
        SegmentRemains {
            directory,
            name,
            header,
            bears_header: false,
            seed: header.map(|header| header.seed()),
            first: Spot::default(),
            rest: None,
            hides_first: false,
            below: u64::MAX,
            next_from: None,
        }
    }
}

/// Returns the remains of a segment whose header is damaged, and in words how they were found.
fn without_header(
    directory: &Directory,
    name: &str,
    file: &Patient,
) -> Option<(SegmentRemains, String)> {
    let rows = directory.rows(name);
    let in_index = |header: &SegmentHeader| {
        let remains = SegmentRemains::new(0, name.to_owned(), Some(*header));
        (remains, "its header is damaged; the index has a copy".to_owned())
    };
    let seen = |header: &&SegmentHeader| {
        let remains = SegmentRemains::new(0, String::new(), Some(**header));
        remains.scan(file).header_at(header.base).is_ok_and(|seen| seen.is_some())
    };
    if let Some(header) = rows.iter().find(seen) {
        return Some(in_index(header));
    }
    let mut remains = SegmentRemains::new(0, name.to_owned(), None);
    let mut scan = remains.scan(file);
    let Some(found) = scan.find_seed().ok()? else {
        // It may be the middle of a record: only the fragment before it proves that.
        let mut head = [0; FRAGMENT_HEADER_LEN as usize];
        read_full(file, &mut head, SEGMENT_HEADER_LEN).ok()?;
        let words = crate::segment::scan::words(&head)?;
        let fragment = format::Fragment::unchecked(words)?;
        let is_rest = matches!(fragment.kind, Kind::Middle | Kind::Last);
        let how = "its header is lost, and it begins in the middle of a message: it can be read only together with the segment before";
        return is_rest.then(|| (remains, how.to_owned()));
    };
    if let Some(header) = rows.iter().find(|header| header.seed() == found.seed) {
        return Some(in_index(header));
    }
    remains.seed = Some(found.seed);
    remains.first = Spot { position: found.position, seq: found.fragment.seq };
    let how = match found.witnesses {
        Witnesses::Two => "its header is lost; its messages show how to check them",
        Witnesses::One => {
            "its header is lost; only one message shows how to check it, and 16 bits confirm that"
        }
    };
    Some((remains, how.to_owned()))
}

/// Finds where the first record begins. `near` is a number of the same queue.
fn begin(remains: &mut SegmentRemains, near: u64, file: Option<&Patient>) {
    let Some(file) = file else { return };
    let mut scan = remains.scan(file);
    match remains.header {
        Some(header) => remains.first = Spot { position: header.base, seq: header.first_seq },
        None => {
            let known = remains.first;
            let fragment = scan.header_at(known.position).ok().flatten();
            let seq = fragment.map_or(known.seq, |seen| seen.fragment.seq_near(near));
            let known = Spot { seq, ..known };
            remains.first = scan.first_beginning(known).unwrap_or(known);
        }
    }
    let seen = scan.header_at(remains.base()).ok().flatten();
    let rest = seen.filter(|seen| matches!(seen.fragment.kind, Kind::Middle | Kind::Last));
    remains.rest = rest.map(|seen| seen.fragment.seq_near(remains.first.seq.saturating_sub(1)));
    let behind_rest = rest.map_or(remains.base(), |seen| seen.end());
    remains.hides_first = remains.header.is_none() && remains.first.position > behind_rest;
}

/// Notes for each segment the first numbers of the next one.
fn note_successors(segments: &mut [SegmentRemains]) {
    let live = segments.iter().filter(|remains| !remains.is_spare());
    let mut live: Vec<SegmentHeader> = live.filter_map(|remains| remains.header).collect();
    live.sort_by_key(|header| (header.base, header.first_seq));
    for remains in segments {
        let Some(header) = remains.header else { continue };
        let behind = live.partition_point(|other| other.base <= header.base);
        let next = live.get(behind);
        remains.below = next.map_or(u64::MAX, |next| next.first_seq);
        // The segments after a drained one may have been reused.
        let next_from = next.map(SegmentHeader::missing_from);
        remains.next_from = next_from.filter(|_| !remains.is_spare());
    }
}

fn what(remains: &SegmentRemains) -> String {
    match remains.header {
        Some(header) => {
            let state = if remains.is_spare() { "drained segment" } else { "segment" };
            let read = if remains.is_spare() && remains.seed.is_none() { ", not read" } else { "" };
            format!("{state} with the numbers from {} on{read}", header.first_seq)
        }
        None if remains.seed.is_some() => {
            format!("segment with the numbers from {} on", remains.first.seq)
        }
        None => "piece of a message".to_owned(),
    }
}
