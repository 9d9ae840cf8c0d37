//! Bits of packets: the first is the highest of the first byte.

/// Position up to which a packet has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Offset, bits.
    pub(crate) at: usize,
}

impl Cursor {
    /// True if `bits` bits are left.
    pub(crate) fn has(self, packet: &[u8], bits: usize) -> bool {
        self.at.checked_add(bits).is_some_and(|end| end <= packet.len() * 8)
    }

    /// Takes the next bits, at most 128; they must be there.
    pub(crate) fn take(&mut self, packet: &[u8], bits: u32) -> u128 {
        let mut value = 0;
        for _ in 0..bits {
            let byte = packet[self.at / 8];
            value = value << 1 | u128::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        value
    }
}

/// A writer of consecutive bits.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    bits: usize,
}

impl Writer {
    pub(crate) fn put(&mut self, value: u128, bits: u32) {
        for place in (0..bits).rev() {
            if self.bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let bit = (value >> place & 1) as u8;
            let last = self.bytes.last_mut().expect("a byte was pushed");
            *last |= bit << (7 - self.bits % 8);
            self.bits += 1;
        }
    }

    /// The bytes; the last one is padded with zeros.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_again() {
        let mut writer = Writer::default();
        for (value, bits) in [(0b101, 3), (0, 1), (0xabc, 12), (u128::MAX, 128)] {
            writer.put(value, bits);
        }
        let bytes = writer.finish();
        assert_eq!(bytes[..2], [0b1010_1010, 0b1011_1100]);
        let mut cursor = Cursor::default();
        assert_eq!(cursor.take(&bytes, 3), 0b101);
        assert_eq!(cursor.take(&bytes, 13), 0xabc);
        assert_eq!(cursor.take(&bytes, 128), u128::MAX);
        assert!(cursor.has(&bytes, 0) && !cursor.has(&bytes, 1));
        assert!(!Cursor { at: 8 }.has(&bytes, usize::MAX));
    }
}
