//! Bytes as text, for messages that are no text.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD as PADDED};

/// Of letters without padding, however the bits are that no byte takes.
const LETTERS: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// Puts it behind the text.
pub(crate) fn encode(bytes: &[u8], text: &mut String) {
    PADDED.encode_string(bytes, text);
}

/// `None` for text that is no base64. Padding may be missing; blanks may not be there.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text);
    LETTERS.decode(letters).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(bytes: &[u8]) -> String {
        let mut text = String::new();
        super::encode(bytes, &mut text);
        text
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decode(text.trim_end_matches('=')).as_deref(), Some(bytes.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for text in ["A", "AAAAA", "A=AA", "Zm9 v", "ä"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
