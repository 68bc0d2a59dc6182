//! What has come over a socket and was not handled yet.

use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, recv};

use super::frame::{HEADER_LEN, Header};
use super::patience::Patience;

/// Memory for what comes in; more only for a frame that is longer.
const USUAL: usize = 64 << 10;
/// How much memory a longer frame gets at a time: as much again as has come of it, at least.
const STEP: usize = 1 << 20;

/// Collects the bytes of frames, however they are cut when they arrive.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Where the bytes lie that came and were not handed out.
    filled: Range<usize>,
    patience: Patience,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { bytes: vec![0; USUAL], filled: 0..0, patience: Patience::default() }
    }

    /// Returns the next frame's header, if it has come.
    pub(super) fn header(&self) -> Option<Header> {
        Some(Header::decode(self.bytes[self.filled.clone()].first_chunk::<HEADER_LEN>()?))
    }

    /// Hands out the next frame, if all of it has come: its header, and where its
    /// [body](Self::body) lies until the next [`fill`](Self::fill).
    pub(super) fn next(&mut self) -> Option<(Header, Range<usize>)> {
        let header = self.header()?;
        let body = self.filled.start + HEADER_LEN;
        let end = usize::try_from(header.len).ok()?.checked_add(body)?;
        if end > self.filled.end {
            return None;
        }
        self.filled.start = end;
        Some((header, body..end))
    }

    pub(super) fn body(&self, at: Range<usize>) -> &[u8] {
        &self.bytes[at]
    }

    /// Reads what has come, and waits until something has. Returns how many bytes; 0 at the end.
    pub(super) fn fill(&mut self, mut from: impl Read) -> io::Result<usize> {
        self.make_room();
        loop {
            match from.read(&mut self.bytes[self.filled.end..]) {
                Ok(read) => {
                    self.filled.end += read;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The same of a socket whose other side may be about to send.
    pub(super) fn fill_soon(&mut self, from: &UnixStream) -> io::Result<usize> {
        let mut patience = std::mem::take(&mut self.patience);
        let filled = patience.wait(|time| match time {
            Some(_) => match self.fill(Looking(from)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                filled => filled.map(Some),
            },
            None => self.fill(from).map(Some),
        });
        self.patience = patience;
        Ok(filled?.unwrap_or(0))
    }

    /// Moves what is left to the front, and makes room for more: never more than what has come
    /// allows, whatever length a header states.
    fn make_room(&mut self) {
        let len = self.filled.len();
        if self.filled.start > 0 {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..len;
        }
        let stated = self.header().map_or(0, |header| header.len.saturating_add(HEADER_LEN as u64));
        let wanted = usize::try_from(stated).unwrap_or(usize::MAX).max(USUAL);
        let allowed = if len < USUAL { USUAL } else { len.saturating_add(len.max(STEP)) };
        let room = wanted.min(allowed);
        if self.bytes.len() != room {
            self.bytes.resize(room, 0);
            self.bytes.shrink_to_fit();
        }
    }
}

/// Reads what has come over a socket, and does not wait.
struct Looking<'a>(&'a UnixStream);

impl Read for Looking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (_, read) = recv(self.0, buffer, RecvFlags::DONTWAIT)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of this length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.0.len().min(self.1).min(buffer.len());
            let (now, later) = self.0.split_at(len);
            buffer[..len].copy_from_slice(now);
            self.0 = later;
            Ok(len)
        }
    }

    fn frame(number: u64, body: &[u8]) -> Vec<u8> {
        let header = Header { number, len: body.len() as u64, kind: 1, consumer: 0, more: 0 };
        [&header.encode()[..], body].concat()
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        for piece in [1, 7, 24, 4096, 1 << 20] {
            if piece == 1 && cfg!(miri) {
                continue;
            }
            // Far more than is usual, and not a million pieces.
            let long = if piece < 24 { 300_000 } else { 3 << 20 };
            let lens = [0, 1, 23, 70_000, 3, long, 0, 100];
            let bodies: Vec<Vec<u8>> = lens.iter().map(|len| vec![*len as u8; *len]).collect();
            let sent: Vec<u8> =
                bodies.iter().enumerate().flat_map(|(at, body)| frame(at as u64, body)).collect();
            let (mut input, mut from, mut came) = (Input::new(), Pieces(&sent, piece), 0);
            loop {
                while let Some((header, at)) = input.next() {
                    assert_eq!(header.number, came as u64);
                    assert_eq!(input.body(at), bodies[came]);
                    came += 1;
                }
                if input.fill(&mut from).unwrap() == 0 {
                    break;
                }
            }
            assert_eq!(came, bodies.len(), "in pieces of {piece}");
            assert_eq!(input.bytes.len(), USUAL);
        }
    }

    #[test]
    fn a_stated_length_alone_takes_no_memory() {
        let header = Header { number: 1, len: u64::MAX, kind: 2, consumer: 0, more: 0 };
        let sent = [&header.encode()[..], &[0; 100]].concat();
        let (mut input, mut from) = (Input::new(), Pieces(&sent, 50));
        while input.fill(&mut from).unwrap() > 0 {
            assert!(input.next().is_none());
            assert_eq!(input.bytes.len(), USUAL);
        }
    }
}
