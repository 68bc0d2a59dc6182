//! Messages on a terminal, which obeys control bytes.

/// As [`visible`], of a name or of what is said to people.
pub(crate) fn visible_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&visible(bytes)).into_owned()
}

/// The message with every control byte, and every byte that is no UTF-8, as `\x1b`. A tab stays.
pub(super) fn visible(message: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(message.len());
    for piece in message.utf8_chunks() {
        for c in piece.valid().chars() {
            if c.is_control() && c != '\t' {
                // Those beyond ASCII are two bytes.
                let mut bytes = [0; 4];
                escape(c.encode_utf8(&mut bytes).as_bytes(), &mut shown);
            } else {
                shown.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        escape(piece.invalid(), &mut shown);
    }
    shown
}

fn escape(bytes: &[u8], shown: &mut Vec<u8>) {
    for byte in bytes {
        shown.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_are_shown_and_not_obeyed() {
        let shown = visible(b"a\tb\x1b[2J\n\x7f\xff \xc2\x9b \xc3\xa9");
        assert_eq!(shown, b"a\tb\\x1b[2J\\x0a\\x7f\\xff \\xc2\\x9b \xc3\xa9");
    }
}
