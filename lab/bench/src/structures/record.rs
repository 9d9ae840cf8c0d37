//! What a structure keeps for a session, in the paper's twenty bytes, and what it is found by.

/// The internal endpoint and the protocol: never zero, because no protocol is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(u64);

impl Key {
    /// No session's.
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

    /// The paper's hash: the low bits, which are the port and the end of the address.
    pub(super) fn modulo(self, mask: u64) -> usize {
        (self.0 & mask) as usize
    }

    /// A number below `bound` that depends on every bit, another one for another factor.
    pub(super) fn scaled(self, factor: u64, bound: usize) -> usize {
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(factor);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(factor);
        ((u128::from(mixed) * bound as u128) >> 64) as usize
    }
}

/// The external endpoint; its flags are there because the paper's record has them.
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
    /// The endpoint with this number.
    pub(super) fn at(number: u32) -> Self {
        let (address, port) = (number / PORTS, number % PORTS);
        Self { address: FIRST_ADDRESS + address, port: FIRST_PORT + port as u16, flags: 0 }
    }

    /// The number of an endpoint.
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
    /// When a packet was last sent, seconds.
    time: u32,
}

const _: () = assert!(size_of::<Record>() == 20);

impl Record {
    pub(super) fn new(key: Key, external: External, now: u32) -> Self {
        Self { key, external, time: now }
    }

    /// Whose it is; [`Key::NONE`]: nobody's.
    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        // Read and not borrowed: the record is packed.
        self.key
    }

    /// Whether it is this session's; if so, it has been used now.
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
