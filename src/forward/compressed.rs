//! Packs that zstd has made shorter.

use std::borrow::Cow;

use crate::forward::pack::Pack;
use crate::forward::unpacked::{COMPRESSED, HEAD, PackError, body};

/// The most bytes that one has before the compression: no stream takes longer messages.
const MOST: u64 = 64 << 20;

/// Returns the pack that [`unpack`](super::unpack) reads, of one that a forwarder may have
/// compressed with [`zstd`](super::ForwardOptions::zstd). A pack that is not compressed comes back
/// as it is.
///
/// A compressed pack is byte 2, then the lower half of the XXH3-64 of all bytes behind these five
/// (four bytes, the lowest first), then one frame of zstd that states its content's length, of at
/// most 64 MiB. The content is what a pack has behind its own five bytes.
///
/// ```
/// use mmq::forward::{PackError, decompress, unpack};
///
/// fn print(stored: &[u8]) -> Result<(), PackError> {
///     for (seq, message) in unpack(&decompress(stored)?)? {
///         println!("{seq}: {}", message.escape_ascii());
///     }
///     Ok(())
/// }
/// # assert!(print(b"\x01\xb8\x35\xcd\xdf\x07\x05seven\x00\x04nine").is_ok());
/// # assert!(print(b"\x02\xb8\x35\xcd\xdf\x07\x05seven\x00\x04nine").is_err());
/// ```
///
/// # Errors
///
/// [`PackError`] for damaged bytes, and for what is longer than 64 MiB.
pub fn decompress(pack: &[u8]) -> Result<Cow<'_, [u8]>, PackError> {
    if pack.first() != Some(&COMPRESSED) {
        return Ok(Cow::Borrowed(pack));
    }
    let frame = body(pack, COMPRESSED)?;
    let wrong = |reason| PackError { at: HEAD, len: pack.len(), reason };
    let len = zstd::zstd_safe::get_frame_content_size(frame).ok().flatten();
    let len = len.ok_or_else(|| wrong("no frame of zstd that states its content's length"))?;
    let len = usize::try_from(len).ok().filter(|len| *len as u64 <= MOST);
    let len = len.ok_or_else(|| wrong("its content is longer than 64 MiB"))?;
    match zstd::bulk::decompress(frame, len) {
        Ok(content) if content.len() == len => Ok(Cow::Owned(Pack::of_body(&content))),
        _ => Err(wrong("zstd cannot decompress it")),
    }
}
