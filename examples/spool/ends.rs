//! The two ends of the run: where the lines come from, where they go, and what passed each.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{FIRST_LINES, Failure, Half, LONGEST_MESSAGE};

/// Where the lines come from: a file, or a stream of unknown length.
pub(crate) struct Source {
    name: String,
    reader: BufReader<File>,
    /// Length in bytes; `None` for a stream.
    pub(crate) size: Option<u64>,
    /// Device and inode of a file.
    identity: Option<(u64, u64)>,
    pub(crate) passed: Tally,
}

impl Source {
    pub(crate) fn open(path: &OsStr) -> Result<Self, Failure> {
        let (name, file) = if path == "-" {
            ("standard input".into(), File::from(io::stdin().as_fd().try_clone_to_owned()?))
        } else {
            let name = Path::new(path).display().to_string();
            let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
            (name, file)
        };
        let metadata = file.metadata().map_err(|error| format!("{name}: {error}"))?;
        if metadata.is_dir() {
            return Err(format!("{name}: is a directory").into());
        }
        // No size for standard input, which may be a file that was read in part, and for files in
        // /proc, which say that they are empty.
        let size =
            (path != "-" && metadata.is_file() && metadata.len() > 0).then_some(metadata.len());
        let identity = metadata.is_file().then_some((metadata.dev(), metadata.ino()));
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Source { name, reader, size, identity, passed: Tally::default() })
    }

    /// Replaces `line` by the next one, its newline included; empty at the end of the input.
    pub(crate) fn next_line(&mut self, line: &mut Vec<u8>) -> Result<(), Failure> {
        line.clear();
        let mut piece = (&mut self.reader).take(LONGEST_MESSAGE);
        piece.read_until(b'\n', line).map_err(|error| format!("{}: {error}", self.name))?;
        Ok(())
    }

    /// Whether all lines of this half have been put in.
    pub(crate) fn is_over(&self, half: Half) -> bool {
        match (half, self.size) {
            (Half::First, Some(size)) => self.passed.bytes >= size.div_ceil(2),
            (Half::First, None) => self.passed.messages >= FIRST_LINES,
            (Half::Second, _) => false,
        }
    }
}

/// Where the messages go. Its calls return false when the reader of a pipe has closed it.
pub(crate) struct Sink {
    name: String,
    writer: BufWriter<File>,
    pub(crate) passed: Tally,
}

impl Sink {
    pub(crate) fn open(path: Option<&Path>, source: &Source) -> Result<Self, Failure> {
        let (name, file) = match path {
            None => {
                ("standard output".into(), File::from(io::stdout().as_fd().try_clone_to_owned()?))
            }
            Some(path) => {
                let name = path.display().to_string();
                let identity =
                    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
                if identity.is_some() && identity == source.identity {
                    return Err(format!("{name}: is the input").into());
                }
                let file = File::create(path).map_err(|error| format!("{name}: {error}"))?;
                (name, file)
            }
        };
        Ok(Sink { name, writer: BufWriter::with_capacity(1 << 16, file), passed: Tally::default() })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let result = self.writer.write_all(bytes);
        self.settle(result)
    }

    pub(crate) fn flush(&mut self) -> Result<bool, Failure> {
        let result = self.writer.flush();
        self.settle(result)
    }

    fn settle(&self, result: io::Result<()>) -> Result<bool, Failure> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(format!("{}: {error}", self.name).into()),
        }
    }
}

/// The messages that passed one end of the queue. The two ends agree when the same messages passed
/// both in the same order.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Sequence number of the last message.
    last: Option<u64>,
    /// A sequence number did not follow the one before it.
    out_of_order: bool,
    /// Messages that will never come.
    pub(crate) missing: u64,
    checksum: DefaultHasher,
}

impl Tally {
    pub(crate) fn add(&mut self, seq: u64, message: &[u8]) {
        self.messages += 1;
        self.bytes += message.len() as u64;
        self.out_of_order |= self.last.is_some_and(|last| seq != last + 1);
        self.last = Some(seq);
        self.checksum.write_u64(message.len() as u64);
        self.checksum.write(message);
    }

    /// Reports a gap and counts its messages. Later messages still come.
    pub(crate) fn miss(&mut self, gap: mmq::Gap) {
        // When standard error is closed there is nobody to report to.
        let _ = writeln!(io::stderr(), "spool: {gap}");
        self.missing += gap.count();
    }

    pub(crate) fn agrees_with(&self, other: &Tally) -> bool {
        (self.messages, self.bytes, self.last) == (other.messages, other.bytes, other.last)
            && !self.out_of_order
            && !other.out_of_order
            && self.checksum.finish() == other.checksum.finish()
    }
}
