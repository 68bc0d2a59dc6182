//! CRC-32 as in zlib: the polynomial of IEEE 802.3, reflected.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// A checksum that grows.
#[derive(Debug)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) const NEW: Crc32 = Crc32(u32::MAX);

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |value, byte| TABLE[usize::from(value as u8 ^ byte)] ^ value >> 8);
    }

    pub(crate) fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        let mut crc = Crc32::NEW;
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), 0xcbf4_3926);
    }
}
