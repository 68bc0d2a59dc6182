//! Bytes as text, for messages that are no text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Puts it behind the text.
pub(crate) fn encode(bytes: &[u8], text: &mut String) {
    text.reserve(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut word = 0;
        for at in 0..3 {
            word = word << 8 | u32::from(three.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let six = word >> (18 - 6 * at) & 63;
            text.push(if at <= three.len() { ALPHABET[six as usize] as char } else { '=' });
        }
    }
}

/// `None` for text that is no base64. Padding may be missing; blanks may not be there.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text).as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.chunks(4) {
        let mut word = 0_u32;
        for at in 0..4 {
            let six = match four.get(at) {
                None => 0,
                Some(letter) => ALPHABET.iter().position(|known| known == letter)? as u32,
            };
            word = word << 6 | six;
        }
        let count = four.len().checked_sub(1).filter(|count| *count > 0)?;
        bytes.extend([16, 8, 0].into_iter().take(count).map(|shift| (word >> shift) as u8));
    }
    Some(bytes)
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
