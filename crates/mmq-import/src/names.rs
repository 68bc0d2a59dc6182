//! Names of consumers, which may be any bytes.

/// The longest name that a consumer of mmq has.
pub const LONGEST: usize = 255;

/// A name as a report writes it: itself, or percent-encoded where it is none of mmq's. A single
/// `%` is the empty name.
pub fn encoded(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok("") => "%".to_owned(),
        Ok(text) if text.len() <= LONGEST => text.to_owned(),
        _ => {
            let byte = |byte: &u8| match byte {
                b'%' | 0..=b' ' | 0x7f.. => format!("%{byte:02X}"),
                byte => char::from(*byte).to_string(),
            };
            name.iter().map(byte).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_encoded() {
        for (name, wanted) in [
            (&b"audit"[..], "audit"),
            ("täglich 100%".as_bytes(), "täglich 100%"),
            (b"", "%"),
            (b"a\xff%b", "a%FF%25b"),
        ] {
            assert_eq!(encoded(name), wanted);
        }
    }
}
