//! Port sets of shared IPv4 addresses, RFC 7597 section 5.1.
//!
//! The ports of an address are divided into sets of equal size. A port has three fields: the offset
//! bits choose a range, the next bits are the port-set identifier (PSID), the rest counts within
//! the range. With offset bits, the range 0 belongs to nobody, so that nobody gets the system
//! ports.

use core::fmt::{self, Display, Formatter};

/// Bits of a port.
const PORT_BITS: u8 = 16;

/// The fields of a port do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSetsError {
    offset: u8,
    len: u8,
}

impl Display for PortSetsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (offset, len) = (u16::from(self.offset), u16::from(self.len));
        let sum = offset + len;
        write!(f, "offset {offset} and PSID length {len} are {sum} bits, and a port has 16")
    }
}

/// The division of the ports of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortSets {
    offset: u8,
    len: u8,
}

impl PortSets {
    /// An address that is not shared: one set with all ports.
    pub const WHOLE: Self = Self { offset: 0, len: 0 };

    /// A division with `offset` bits before the identifier and `len` bits of identifier.
    ///
    /// # Errors
    /// [`PortSetsError`] if the two have more than 16 bits.
    pub const fn new(offset: u8, len: u8) -> Result<Self, PortSetsError> {
        if offset > PORT_BITS || len > PORT_BITS || offset + len > PORT_BITS {
            return Err(PortSetsError { offset, len });
        }
        Ok(Self { offset, len })
    }

    /// Bits before the identifier.
    pub const fn offset(self) -> u8 {
        self.offset
    }

    /// Bits of the identifier; 0: the address is not shared.
    pub const fn bits(self) -> u8 {
        self.len
    }

    /// True if the address is not shared.
    pub const fn is_whole(self) -> bool {
        self.len == 0
    }

    /// Number of sets.
    pub const fn count(self) -> u32 {
        1 << self.len
    }

    /// The identifier of the set that has a port; `None`: no set has the port.
    //= rfc7597#section-5.1-psid
    #[inline]
    pub const fn set_of(self, port: u16) -> Option<u16> {
        if self.is_whole() {
            return Some(0);
        }
        let port = port as u32;
        //= rfc7597#section-5.1-offset
        if self.offset > 0 && port >> (PORT_BITS - self.offset) == 0 {
            return None;
        }
        let within = PORT_BITS - self.offset - self.len;
        Some((port >> within & (self.count() - 1)) as u16)
    }

    /// First and last port of each range of a set, ascending.
    pub fn ranges(self, psid: u16) -> impl Iterator<Item = (u16, u16)> {
        let within = u32::from(PORT_BITS - self.offset - self.len);
        let first = if self.offset > 0 && !self.is_whole() { 1 } else { 0 };
        let blocks = if self.is_whole() { 1 } else { 1_u32 << self.offset };
        let size = if self.is_whole() { 1 << PORT_BITS } else { 1_u32 << within };
        (first..blocks).map(move |block| {
            let start = (block << (u32::from(self.len) + within)) | u32::from(psid) << within;
            (start as u16, (start + size - 1) as u16)
        })
    }

    /// Number of ports of each set.
    pub fn ports(self) -> u32 {
        self.ranges(0).map(|(first, last)| u32::from(last - first) + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    //= test rfc7597#section-5.1-psid
    //= test rfc7597#section-5.1-offset
    #[test]
    fn the_examples_of_rfc_7597_come_out() {
        let sets = PortSets::new(6, 8).expect("14 bits");
        let ranges: Vec<_> = sets.ranges(0x34).collect();
        assert_eq!(ranges.len(), 63);
        assert_eq!(ranges[..2], [(1232, 1235), (2256, 2259)]);
        assert_eq!(ranges[61..], [(63_696, 63_699), (64_720, 64_723)]);
        assert_eq!((sets.set_of(1232), sets.set_of(1236)), (Some(0x34), Some(0x35)));
        assert_eq!((sets.set_of(1023), sets.ports()), (None, 252));
        let ranges: Vec<_> = sets.ranges(0).collect();
        assert_eq!((ranges[0], ranges[62]), ((1024, 1027), (64_512, 64_515)));
        let one = PortSets::new(0, 6).expect("6 bits");
        assert_eq!(one.ranges(0).collect::<Vec<_>>(), [(0, 1023)]);
        assert_eq!(one.set_of(0), Some(0));
    }

    #[test]
    fn an_address_that_is_not_shared_has_all_ports() {
        for offset in [0, 6, 16] {
            let sets = PortSets::new(offset, 0).expect("no identifier");
            assert_eq!(sets.ranges(0).collect::<Vec<_>>(), [(0, 65_535)]);
            assert_eq!((sets.set_of(0), sets.ports()), (Some(0), 65_536));
        }
        let error = PortSets::new(6, 11).expect_err("17 bits");
        assert_eq!(
            alloc::string::ToString::to_string(&error),
            "offset 6 and PSID length 11 are 17 bits, and a port has 16"
        );
        assert!(PortSets::new(200, 200).is_err());
    }

    proptest! {
        #[test]
        fn each_port_is_in_the_ranges_of_its_set_alone(
            (offset, len) in (0_u8..=16).prop_flat_map(|offset| (Just(offset), 0..=16 - offset)),
            port: u16,
            other: u16,
        ) {
            let sets = PortSets::new(offset, len).expect("at most 16 bits");
            let has = |psid: u16| sets.ranges(psid).any(|(a, b)| (a..=b).contains(&port));
            let other = (u32::from(other) % sets.count()) as u16;
            match sets.set_of(port) {
                Some(psid) => prop_assert!(has(psid) && (other == psid || !has(other))),
                None => prop_assert!(!has(other)),
            }
        }
    }
}
