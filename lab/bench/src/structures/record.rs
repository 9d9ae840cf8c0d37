//! Record of a session, in the paper's twenty bytes, and its key.

/// Internal endpoint and protocol; never zero, because no protocol is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(u64);

impl Key {
    /// Key of no session.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(protocol: u8, address: u32, port: u16) -> Self {
        Self(u64::from(protocol) << 48 | u64::from(address) << 16 | u64::from(port))
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn endpoint(self) -> (u32, u16) {
        ((self.0 >> 16) as u32, self.0 as u16)
    }

    /// Hash of the paper: the low bits, which are the port and the end of the address.
    pub(super) fn modulo(self, mask: u64) -> usize {
        (self.0 & mask) as usize
    }

    /// A number below `bound` that depends on every bit of the key and on `factor`.
    pub(super) fn scaled(self, factor: u64, bound: usize) -> usize {
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(factor);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(factor);
        ((u128::from(mixed) * bound as u128) >> 64) as usize
    }
}

/// External endpoint. The flags are a part of the paper's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct External {
    pub(super) address: u32,
    pub(super) port: u16,
    pub(super) flags: u16,
}

/// The first external address, 100.64.0.0.
const FIRST_ADDRESS: u32 = 0x6440_0000;
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = 65_536 - FIRST_PORT as u32;

impl External {
    /// Endpoint with this number.
    pub(super) fn at(number: u32) -> Self {
        let (address, port) = (number / PORTS, number % PORTS);
        Self { address: FIRST_ADDRESS + address, port: FIRST_PORT + port as u16, flags: 0 }
    }

    /// Number of an endpoint.
    pub(super) fn number(address: u32, port: u16) -> u32 {
        let port = u32::from(port.wrapping_sub(FIRST_PORT));
        address.wrapping_sub(FIRST_ADDRESS).wrapping_mul(PORTS).wrapping_add(port)
    }
}

/// A session's record.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(4))]
pub(super) struct Record {
    key: Key,
    external: External,
    /// Time of the latest packet, seconds.
    time: u32,
}

const _: () = assert!(size_of::<Record>() == 20);

impl Record {
    pub(super) fn new(key: Key, external: External, now: u32) -> Self {
        Self { key, external, time: now }
    }

    /// Key of the record's session; [`Key::NONE`] if the record is free.
    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        // The record is packed, so the key is copied and not borrowed.
        self.key
    }

    /// If the record belongs to this session, sets its time and returns its external endpoint.
    #[inline(always)]
    pub(super) fn refresh(&mut self, key: Key, now: u32) -> Option<External> {
        if self.key() == key {
            self.time = now;
            return Some(self.external);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_numbers() {
        for number in [0, 1, PORTS - 1, PORTS, 65_535_999] {
            let external = External::at(number);
            assert!(external.port >= FIRST_PORT);
            assert_eq!(External::number(external.address, external.port), number);
        }
    }

    #[test]
    fn keys_give_their_endpoint_back() {
        let key = Key::new(17, 0xc0a8_fffe, 65_535);
        assert_eq!(key.endpoint(), (0xc0a8_fffe, 65_535));
        assert_ne!(key, Key::new(6, 0xc0a8_fffe, 65_535));
        assert!(key.scaled(0x9e37_79b9_7f4a_7c15, 1000) < 1000);
    }
}
