//! The fields of a body: numbers in little-endian order, texts behind their lengths.

use std::time::Duration;

use byteorder::{ByteOrder, LittleEndian};

use super::frame::NONE;

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooShort;

/// What is left to read of a body. Its bytes come from another process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], TooShort> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(TooShort)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, TooShort> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, TooShort> {
        Ok(LittleEndian::read_u16(self.bytes(2)?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, TooShort> {
        Ok(LittleEndian::read_u32(self.bytes(4)?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, TooShort> {
        Ok(LittleEndian::read_u64(self.bytes(8)?))
    }

    /// A number that may be missing.
    pub(super) fn optional(&mut self) -> Result<Option<u64>, TooShort> {
        Ok(Some(self.u64()?).filter(|number| *number != NONE))
    }

    /// A time in milliseconds that may be missing.
    pub(super) fn milliseconds(&mut self) -> Result<Option<Duration>, TooShort> {
        Ok(self.optional()?.map(Duration::from_millis))
    }

    /// A time in nanoseconds that may be missing.
    pub(super) fn nanoseconds(&mut self) -> Result<Option<Duration>, TooShort> {
        Ok(self.optional()?.map(Duration::from_nanos))
    }

    /// A text behind its length; what is not UTF-8 in it is replaced.
    pub(super) fn text(&mut self) -> Result<String, TooShort> {
        let len = self.u16()?;
        Ok(String::from_utf8_lossy(self.bytes(len.into())?).into_owned())
    }

    /// All that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}

pub(super) fn put_u16(body: &mut Vec<u8>, number: u16) {
    body.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_u32(body: &mut Vec<u8>, number: u32) {
    body.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_u64(body: &mut Vec<u8>, number: u64) {
    body.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_optional(body: &mut Vec<u8>, number: Option<u64>) {
    put_u64(body, number.unwrap_or(NONE));
}

/// A time in milliseconds, rounded up: a wait of less than one would not wait.
pub(super) fn put_milliseconds(body: &mut Vec<u8>, time: Option<Duration>) {
    let whole = |time: Duration| time.as_nanos().div_ceil(1_000_000);
    put_optional(body, time.map(|time| whole(time).min(u128::from(NONE) - 1) as u64));
}

pub(super) fn put_nanoseconds(body: &mut Vec<u8>, time: Option<Duration>) {
    put_optional(body, time.map(|time| time.as_nanos().min(u128::from(NONE) - 1) as u64));
}

/// A text behind its length, cut at 65,535 bytes.
pub(super) fn put_text(body: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    put_u16(body, bytes.len() as u16);
    body.extend_from_slice(bytes);
}
