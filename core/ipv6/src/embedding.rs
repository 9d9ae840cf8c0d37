//! IPv4 addresses in IPv6 addresses, RFC 6052: prefixes of six lengths, and the well-known prefix.

use crate::Prefix6;
use core::fmt::{self, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Lengths of prefixes, bits.
pub const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// Bits 64 to 71 of an address, which stay zero.
//= rfc6052#section-2.2-reserved
const RESERVED: u128 = 0xff << 56;

/// The well-known prefix.
const WELL_KNOWN: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Reason why a prefix cannot embed IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingError {
    /// The length is not one of [`LENGTHS`].
    Length(Prefix6),
    /// Bits 64 to 71 of the prefix are not zero.
    Reserved(Prefix6),
}

impl Display for EmbeddingError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(prefix) => write!(
                f,
                "{prefix} has {} bits; a prefix that embeds IPv4 addresses has 32, 40, 48, 56, 64 \
                 or 96 (RFC 6052 section 2.2)",
                prefix.len
            ),
            Self::Reserved(prefix) => write!(
                f,
                "bits 64 to 71 of {prefix} are {:#04x}; they must be zero (RFC 6052 section 2.2)",
                prefix.address.octets()[8]
            ),
        }
    }
}

/// A prefix whose addresses embed IPv4 addresses.
///
/// ```
/// use natgate_ipv6::{Pref64, Prefix6};
/// let prefix = Prefix6 { address: "2001:db8:100::".parse().unwrap(), len: 40 };
/// let prefix = Pref64::new(prefix).unwrap();
/// let address = prefix.embed("192.0.2.33".parse().unwrap());
/// assert_eq!(address.to_string(), "2001:db8:1c0:2:21::");
/// assert_eq!(prefix.extract(address), Some("192.0.2.33".parse().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pref64 {
    bits: u128,
    /// The bits of the prefix.
    mask: u128,
    len: u8,
}

impl Pref64 {
    /// The prefix for embedding.
    ///
    /// # Errors
    /// [`EmbeddingError`] for a prefix that RFC 6052 section 2.2 does not permit.
    pub fn new(prefix: Prefix6) -> Result<Self, EmbeddingError> {
        //= rfc6146#section-3.5.4-length
        if !LENGTHS.contains(&prefix.len) {
            return Err(EmbeddingError::Length(prefix));
        }
        let bits = prefix.first().to_bits();
        //= rfc6052#section-2.2-prefix
        if bits & RESERVED != 0 {
            return Err(EmbeddingError::Reserved(prefix));
        }
        Ok(Self { bits, mask: u128::MAX << (128 - u32::from(prefix.len)), len: prefix.len })
    }

    /// The prefix as address and length.
    pub const fn prefix(self) -> Prefix6 {
        Prefix6 { address: Ipv6Addr::from_bits(self.bits), len: self.len }
    }

    /// True for `64:ff9b::/96`.
    #[inline]
    pub const fn is_well_known(self) -> bool {
        self.len == 96 && self.bits == WELL_KNOWN.to_bits()
    }

    /// True if an address has this prefix.
    #[inline]
    pub const fn contains(self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.bits) & self.mask == 0
    }

    /// The IPv6 address for an IPv4 address.
    #[inline]
    pub const fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let address = address.to_bits() as u128;
        let embedded = match self.len {
            96 => address,
            // The reserved octet stands between the bits before 64 and the bits after 71.
            len => {
                let above = 96 - len as u32;
                let whole = address << above;
                let high = whole >> 64 << 64;
                //= rfc6052#section-2.2-octet
                //= rfc6052#section-2.2-suffix
                //= rfc6052#section-3.3-format
                //= rfc6146#section-3.5.4-input
                //= rfc6146#section-3.5.4-algorithm
                high | (whole & u64::MAX as u128) >> 8
            }
        };
        Ipv6Addr::from_bits(self.bits | embedded)
    }

    /// The IPv4 address in an address with this prefix. Bits after the embedded address, and the
    /// reserved octet, are ignored.
    #[inline]
    pub const fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.contains(address) {
            return None;
        }
        let bits = address.to_bits();
        let embedded = match self.len {
            96 => bits,
            len => {
                let above = 96 - len as u32;
                //= rfc6052#section-2.2-ignore
                //= rfc6146#section-3.5.4-reversible
                let low = (bits & u64::MAX as u128) << 8 & u64::MAX as u128;
                (bits >> 64 << 64 | low) >> above
            }
        };
        Some(Ipv4Addr::from_bits(embedded as u32))
    }
}

impl Display for Pref64 {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.prefix().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn prefix(text: &str, len: u8) -> Prefix6 {
        Prefix6 { address: text.parse().expect("an address"), len }
    }

    fn pref64(text: &str, len: u8) -> Pref64 {
        Pref64::new(prefix(text, len)).expect("a permitted prefix")
    }

    //= test rfc6052#section-2.2-reserved
    //= test rfc6052#section-2.2-octet
    //= test rfc6052#section-2.2-suffix
    //= test rfc6052#section-3.3-format
    //= test rfc6146#section-3.5.4-reversible
    //= test rfc6146#section-3.5.4-input
    //= test rfc6146#section-3.5.4-algorithm
    #[test]
    fn the_examples_of_rfc_6052_come_out() {
        let examples = [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::", 96, "2001:db8:122:344::c000:221"),
            ("64:ff9b::", 96, "64:ff9b::c000:221"),
        ];
        let address = Ipv4Addr::new(192, 0, 2, 33);
        for (text, len, expected) in examples {
            let prefix = pref64(text, len);
            let expected: Ipv6Addr = expected.parse().expect("an address");
            assert_eq!(prefix.embed(address), expected, "{prefix}");
            assert_eq!(prefix.extract(expected), Some(address), "{prefix}");
        }
    }

    //= test rfc6052#section-2.2-prefix
    //= test rfc6146#section-3.5.4-length
    #[test]
    fn other_lengths_and_reserved_bits_are_refused() {
        for len in (0..=128).filter(|len| !LENGTHS.contains(len)) {
            let refused = prefix("2001:db8::", len);
            assert_eq!(Pref64::new(refused), Err(EmbeddingError::Length(refused)));
        }
        let refused = prefix("2001:db8:0:0:ab00::", 96);
        let error = Pref64::new(refused).expect_err("reserved bits");
        assert_eq!(error, EmbeddingError::Reserved(refused));
        assert!(error.to_string().starts_with("bits 64 to 71 of 2001:db8:0:0:ab00::/96 are 0xab"));
        assert!(pref64("64:ff9b::", 96).is_well_known());
        assert!(!pref64("64:ff9b:1::", 96).is_well_known());
        assert!(!pref64("64:ff9b::", 64).is_well_known());
    }

    proptest! {
        //= test rfc6052#section-2.2-ignore
        //= test rfc6052#section-2.2-reserved
        //= test rfc6146#section-3.5.4-reversible
        #[test]
        fn what_is_embedded_is_extracted(
            bits in any::<u128>(), len in prop::sample::select(&LENGTHS[..]), v4 in any::<u32>(),
            noise in any::<u128>(),
        ) {
            let network = Prefix6 { address: Ipv6Addr::from_bits(bits & !RESERVED), len };
            let prefix = Pref64::new(network).expect("a permitted prefix");
            let address = prefix.embed(Ipv4Addr::from_bits(v4));
            prop_assert_eq!(prefix.extract(address), Some(Ipv4Addr::from_bits(v4)));
            prop_assert_eq!(address.octets()[8] == 0 || len == 96, true);
            // Bits of the suffix and the reserved octet are ignored.
            let end = if len == 96 { 128 } else { u32::from(len) + 32 + 8 };
            let suffix = u128::MAX.checked_shr(end.max(72)).unwrap_or(0);
            let ignored = if len == 96 { 0 } else { noise & (suffix | RESERVED) };
            let noisy = Ipv6Addr::from_bits(address.to_bits() | ignored);
            prop_assert_eq!(prefix.extract(noisy), Some(Ipv4Addr::from_bits(v4)));
            // Without the prefix there is no embedded address.
            let other = Ipv6Addr::from_bits(address.to_bits() ^ 1 << 127);
            prop_assert_eq!(prefix.extract(other), None);
        }
    }
}
