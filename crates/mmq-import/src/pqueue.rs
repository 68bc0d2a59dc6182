//! pqueue: files of entries, each with a checksum. Integers are big-endian.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use byteorder::{BigEndian, ByteOrder};

use crate::count;
use crate::crc::Crc32;
use crate::detect::{Listing, SourceFile};
use crate::error::{ImportError, Result};
use crate::{
    Finding, ImportOptions, ImportRange, Order, Progress, Receive, Severity, SourceConsumer,
    Survey, room,
};

/// The formats of the segment and of its entries; and the length and the checksum of an entry.
const HEADER: u64 = 8;
/// The longest entry.
const LONGEST: u64 = 1 << 30;

/// Entries of one segment that are wanted.
#[derive(Debug)]
struct SegmentPart {
    path: PathBuf,
    from: u64,
    to: u64,
}

/// The messages of a pqueue that was checked.
#[derive(Debug)]
pub(crate) struct PqueueMessages {
    dir: PathBuf,
    parts: Vec<SegmentPart>,
    messages: u64,
    bytes: u64,
}

/// Checks every entry that waits.
pub(crate) fn survey<E: From<ImportError>>(
    listing: &Listing,
    options: ImportOptions,
    progress: &mut Progress<'_, E>,
) -> Result<(Survey, PqueueMessages), E> {
    let mut look = PqueueCheck {
        options,
        findings: Vec::new(),
        messages: 0,
        bytes: 0,
        read: 0,
        waiting_from: None,
    };
    let mut parts = Vec::new();
    for segment in in_order(listing, options.order, &mut look.findings) {
        let taken = look.taken(listing, &segment)?;
        parts.extend(look.segment(&segment, taken, progress)?);
    }
    let (messages, bytes) = (look.messages, look.bytes);
    let consumers = vec![SourceConsumer { name: None, seq: look.waiting_from.unwrap_or(messages) }];
    let findings = look.findings;
    let survey = Survey { arena_size: None, messages, bytes, consumers, findings };
    Ok((survey, PqueueMessages { dir: listing.dir.clone(), parts, messages, bytes }))
}

/// The segments, oldest first.
fn in_order(listing: &Listing, order: Order, findings: &mut Vec<Finding>) -> Vec<SourceFile> {
    let by_name: Vec<_> = listing.segments().into_values().collect();
    let mut by_time = by_name.clone();
    by_time.sort_by_key(|found| found.modified);
    if by_name.iter().zip(&by_time).all(|(one, other)| one.path == other.path) {
        return by_name;
    }
    let (used, other) = match order {
        Order::Name => ("their names", "--order mtime takes the other order"),
        Order::Modified => ("the times of their last writes", "--order name takes the other order"),
    };
    let text = format!(
        "the order of the segments by their names, and by the times of their last writes, is not the same: they are in the order of {used}; {other}"
    );
    findings.push(Finding::new(Severity::Warning, "order", text));
    if order == Order::Name { by_name } else { by_time }
}

struct PqueueCheck {
    options: ImportOptions,
    findings: Vec<Finding>,
    messages: u64,
    bytes: u64,
    read: u64,
    /// The number of the first message that was not taken.
    waiting_from: Option<u64>,
}

impl PqueueCheck {
    /// Up to where the entries of that segment were taken.
    fn taken(&mut self, listing: &Listing, segment: &SourceFile) -> Result<u64> {
        let name = format!("{}.offset", name_of(&segment.path));
        let Some(found) = listing.file(&name) else { return Ok(HEADER) };
        let rest = found.len % 8;
        if rest > 0 {
            let text = format!(
                "the last number of {name} is cut off; the last whole one is used instead, so messages may come again"
            );
            self.findings.push(Finding::new(Severity::Torn, "offset", text).at(&name));
        }
        let Some(at) = (found.len - rest).checked_sub(8) else { return Ok(HEADER) };
        let mut bytes = [0; 8];
        let mut file = crate::open(&found.path)?;
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|error| failed(&found.path, &error))?;
        Ok(BigEndian::read_u64(&bytes))
    }

    /// Checks one segment whose entries before `taken` are done with.
    fn segment<E: From<ImportError>>(
        &mut self,
        found: &SourceFile,
        taken: u64,
        progress: &mut Progress<'_, E>,
    ) -> Result<Option<SegmentPart>, E> {
        let mut walk = EntryWalk::open(found)?;
        let name = name_of(&found.path);
        if !self.header(&mut walk, &name)? {
            return Ok(None);
        }
        let (mut first, mut before) = (None, Before::Sound);
        let end = loop {
            let at = walk.at;
            progress(self.read.saturating_add(at))?;
            let (len, sum) = match walk.next()? {
                Upcoming::Entry { len, sum } => (len, sum),
                end => break end,
            };
            let waits = at + HEADER + len > taken;
            if waits && at < taken {
                self.no_boundary(&name, taken, at);
            }
            if waits {
                self.waiting_from.get_or_insert(self.messages);
            } else if self.options.extent == ImportRange::Waiting {
                walk.skip(len)?;
                continue;
            }
            first.get_or_insert(at);
            if walk.sum(len)? == sum {
                (self.messages, self.bytes) = (self.messages + 1, self.bytes + len);
                before = Before::Sound;
                continue;
            }
            before = Before::Damaged;
            let text = format!(
                "the entry of {} at {at} of {name} is damaged: its checksum is wrong",
                count(len, "byte")
            );
            self.findings
                .push(Finding::new(Severity::Lost, "entry", text).at(place(&name, at)).of(len));
        };
        if taken > walk.at {
            self.no_boundary(&name, taken, walk.at);
        }
        self.report_end(&walk, &end, &name, before);
        self.read = self.read.saturating_add(found.len);
        Ok(first.map(|from| SegmentPart { path: found.path.clone(), from, to: walk.at }))
    }
}

impl PqueueCheck {
    /// Whether the segment has entries as this reads them.
    fn header(&mut self, walk: &mut EntryWalk, name: &str) -> Result<bool> {
        let mut bytes = [0; HEADER as usize];
        if walk.len < HEADER {
            if walk.len > 0 {
                let text = format!("{name} is cut off inside its header, and is empty");
                self.findings.push(Finding::new(Severity::Torn, "segment", text).at(name));
            }
            return Ok(false);
        }
        walk.bytes(&mut bytes)?;
        if bytes == [0; HEADER as usize] {
            return Ok(true);
        }
        let text = format!("{name} has an unknown format and cannot be read");
        let lost = Finding::new(Severity::Lost, "segment", text).at(name);
        self.findings.push(lost.of(walk.len - HEADER));
        Ok(false)
    }

    fn no_boundary(&mut self, name: &str, taken: u64, at: u64) {
        let text = format!(
            "{name} was taken up to {taken}, but no entry begins there; reading begins at the last entry before it, at {at}"
        );
        self.findings.push(Finding::new(Severity::Torn, "offset", text).at(place(name, at)));
    }

    fn report_end(&mut self, walk: &EntryWalk, end: &Upcoming, name: &str, before: Before) {
        let at = place(name, walk.at);
        let rest = walk.len - walk.at;
        let lost = |text: String| Finding::new(Severity::Lost, "segment", text).at(&at).of(rest);
        let finding = match end {
            // The library's own ending has 8 bytes.
            Upcoming::ExitStatus if before == Before::Damaged && rest > HEADER => {
                lost(format!("the rest of {name} after the damaged entry cannot be read"))
            }
            Upcoming::Cut if before == Before::Damaged => {
                lost(format!("the rest of {name} after the damaged entry cannot be read"))
            }
            Upcoming::TooLong(len) => lost(format!(
                "an entry of {name} says that it has {len} bytes, which is impossible; the rest of the segment cannot be read"
            )),
            Upcoming::Cut => {
                let text = format!(
                    "the last entry of {name}, at {}, is cut off: its enqueue never returned",
                    walk.at
                );
                Finding::new(Severity::Torn, "entry", text).at(&at).of(rest)
            }
            Upcoming::ExitStatus | Upcoming::Nothing | Upcoming::Entry { .. } => return,
        };
        self.findings.push(finding);
    }
}

/// The entry before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Sound,
    Damaged,
}

enum Upcoming {
    Entry {
        len: u64,
        sum: u32,
    },
    /// The segment was finished.
    ExitStatus,
    /// The file ends here.
    Nothing,
    /// The file ends within an entry.
    Cut,
    /// No entry is so long.
    TooLong(u64),
}

/// From one entry of a segment to the next.
#[derive(Debug)]
struct EntryWalk {
    path: PathBuf,
    reader: BufReader<File>,
    /// The boundary: the entry that comes next, or whose payload comes next.
    at: u64,
    len: u64,
}

impl EntryWalk {
    fn open(found: &SourceFile) -> Result<EntryWalk> {
        let reader = BufReader::with_capacity(64 << 10, crate::open(&found.path)?);
        Ok(EntryWalk { path: found.path.clone(), reader, at: 0, len: found.len })
    }

    fn bytes(&mut self, into: &mut [u8]) -> Result<()> {
        self.reader.read_exact(into).map_err(|error| failed(&self.path, &error))?;
        self.at += into.len() as u64;
        Ok(())
    }

    /// Reads what comes next. Behind an entry its payload is to be read or skipped.
    fn next(&mut self) -> Result<Upcoming> {
        let rest = self.len - self.at;
        let mut head = [0; HEADER as usize];
        let part = head.get_mut(..rest.min(HEADER) as usize).unwrap_or_default();
        self.reader.read_exact(part).map_err(|error| failed(&self.path, &error))?;
        let (len, sum) = (BigEndian::read_u32(&head), BigEndian::read_u32(&head[4..]));
        let len = u64::from(len);
        Ok(match rest {
            0 => Upcoming::Nothing,
            4.. if len == 0 => Upcoming::ExitStatus,
            _ if rest < HEADER => Upcoming::Cut,
            _ if len >= LONGEST => Upcoming::TooLong(len),
            _ if HEADER + len > rest => Upcoming::Cut,
            _ => Upcoming::Entry { len, sum },
        })
    }

    fn skip(&mut self, len: u64) -> Result<()> {
        let skipped = self.reader.seek_relative(len as i64);
        skipped.map_err(|error| failed(&self.path, &error))?;
        self.at += HEADER + len;
        Ok(())
    }

    /// The checksum of the payload, which is read.
    fn sum(&mut self, len: u64) -> Result<u32> {
        let (mut crc, mut left, mut part) = (Crc32::NEW, len, [0; 8192]);
        while left > 0 {
            let now = left.min(part.len() as u64) as usize;
            let part = part.get_mut(..now).unwrap_or_default();
            self.reader.read_exact(part).map_err(|error| failed(&self.path, &error))?;
            crc.update(part);
            left -= now as u64;
        }
        self.at += HEADER + len;
        Ok(crc.value())
    }

    /// The payload.
    fn payload(&mut self, len: u64, into: &mut Vec<u8>) -> Result<u32> {
        room(into, len)?;
        self.reader.read_exact(into).map_err(|error| failed(&self.path, &error))?;
        self.at += HEADER + len;
        let mut crc = Crc32::NEW;
        crc.update(into);
        Ok(crc.value())
    }
}

impl PqueueMessages {
    pub(crate) fn read<E: From<ImportError>>(
        &mut self,
        each: &mut Receive<'_, E>,
    ) -> Result<(), E> {
        let (mut messages, mut bytes, mut message) = (0, 0, Vec::new());
        for part in &self.parts {
            let found = SourceFile { path: part.path.clone(), len: part.to, modified: None };
            let mut walk = EntryWalk::open(&found)?;
            let sought = walk.reader.seek(SeekFrom::Start(part.from));
            sought.map_err(|error| failed(&part.path, &error))?;
            walk.at = part.from;
            while let Upcoming::Entry { len, sum } = walk.next()? {
                if walk.payload(len, &mut message)? == sum {
                    each(&message)?;
                    (messages, bytes) = (messages + 1, bytes + len);
                }
            }
        }
        let is_same = (messages, bytes) == (self.messages, self.bytes);
        if is_same { Ok(()) } else { Err(crate::changed(&self.dir).into()) }
    }
}

fn failed(path: &Path, error: &io::Error) -> ImportError {
    match error.kind() {
        ErrorKind::UnexpectedEof => crate::changed(path.parent().unwrap_or(path)),
        _ => ImportError::io(path.display(), error),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn place(name: &str, at: u64) -> String {
    format!("{name} offset {at}")
}
