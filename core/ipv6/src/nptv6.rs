//! Network prefix translation, RFC 6296: one prefix takes the place of another, and a word of the
//! address makes up for the difference in the checksum.
//!
//! The words of an address keep their one's complement sum, so checksums of TCP, UDP and ICMPv6
//! stay right without a change. No state is needed.

use crate::Prefix6;
use core::fmt::{self, Display, Formatter};
use core::net::Ipv6Addr;

/// Longest prefix, bits: a whole word of the address must follow it.
const LONGEST: u8 = 112;

/// The first word of an interface identifier.
const FIRST_WORD: usize = 4;

/// Reason why two prefixes cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nptv6Error {
    /// No whole word of the address follows the prefix.
    Long(Prefix6),
    /// The two prefixes have addresses in common.
    Overlap(Prefix6, Prefix6),
}

impl Display for Nptv6Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(prefix) => write!(
                f,
                "{prefix} leaves {} bits, and the checksum needs a word of 16 bits behind the \
                 prefix: {LONGEST} bits at most (RFC 6296 section 3.5)",
                128 - prefix.len
            ),
            Self::Overlap(internal, external) => {
                let longer = if internal.len < external.len { external } else { internal };
                write!(f, "internal {internal} and external {external} have {longer} in common")
            }
        }
    }
}

/// Reason why an address of a prefix has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// The subnet has no counterpart (RFC 6296 section 3.2).
    Subnet,
    /// The interface identifier is zero (RFC 6296 section 3.7).
    ZeroIdentifier,
    /// All words of the interface identifier are 0xFFFF.
    NoWord,
}

/// A pair of prefixes that are translated into each other.
///
/// ```
/// use natgate_ipv6::{Nptv6, Prefix6};
/// let prefix = |text: &str| Prefix6 { address: text.parse().unwrap(), len: 48 };
/// let pair = Nptv6::new(prefix("fd01:203:405::"), prefix("2001:db8:1::")).unwrap();
/// let outside = pair.outbound("fd01:203:405:1::1234".parse().unwrap()).unwrap().unwrap();
/// assert_eq!(outside.to_string(), "2001:db8:1:d550::1234");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nptv6 {
    /// The prefixes as they were given: packets with other addresses are not translated.
    internal: Prefix6,
    external: Prefix6,
    /// Length of both in translation, bits.
    len: u8,
    /// One's complement sum of the internal prefix less that of the external one.
    adjustment: u16,
}

impl Nptv6 {
    /// A pair of prefixes. The shorter is extended with zeros (RFC 6296 section 3.1).
    ///
    /// # Errors
    /// [`Nptv6Error`] if a prefix is too long, or the two overlap.
    pub fn new(internal: Prefix6, external: Prefix6) -> Result<Self, Nptv6Error> {
        if let Some(long) = [internal, external].into_iter().find(|prefix| prefix.len > LONGEST) {
            return Err(Nptv6Error::Long(long));
        }
        if internal.overlaps(external) {
            return Err(Nptv6Error::Overlap(internal, external));
        }
        let sum = |prefix: Prefix6| prefix.first().segments().into_iter().fold(0, add);
        let adjustment = add(sum(internal), !sum(external));
        Ok(Self { internal, external, len: internal.len.max(external.len), adjustment })
    }

    /// The internal prefix.
    pub const fn internal(&self) -> Prefix6 {
        self.internal
    }

    /// The external prefix.
    pub const fn external(&self) -> Prefix6 {
        self.external
    }

    /// The external address of an internal one; `None` if it has not the internal prefix.
    ///
    /// # Errors
    /// The inner result is [`Unmapped`] if the address has no translation.
    pub fn outbound(&self, address: Ipv6Addr) -> Option<Result<Ipv6Addr, Unmapped>> {
        if !self.internal.contains(address) {
            return None;
        }
        // RFC 6296 section 3.2: a subnet 0xFFFF has no mapping.
        let is_unmapped = self.len <= 48 && address.segments()[3] == 0xffff;
        let translated = self.translated(address, self.internal, self.external, self.adjustment);
        Some(if is_unmapped { Err(Unmapped::Subnet) } else { translated })
    }

    /// The internal address of an external one; `None` if it has not the external prefix.
    ///
    /// # Errors
    /// The inner result is [`Unmapped`] if the address has no translation.
    pub fn inbound(&self, address: Ipv6Addr) -> Option<Result<Ipv6Addr, Unmapped>> {
        let has = self.external.contains(address);
        has.then(|| self.translated(address, self.external, self.internal, !self.adjustment))
    }

    fn translated(
        &self,
        address: Ipv6Addr,
        from: Prefix6,
        to: Prefix6,
        adjustment: u16,
    ) -> Result<Ipv6Addr, Unmapped> {
        let within = Prefix6 { address: from.first(), len: self.len };
        if !within.contains(address) {
            return Err(Unmapped::Subnet);
        }
        let host = address.to_bits() & Prefix6::host_bits(self.len);
        let bits = to.first().to_bits() | host;
        let shift = 112 - 16 * self.word(address)? as u32;
        let word = match add((bits >> shift) as u16, adjustment) {
            0xffff => 0,
            word => word,
        };
        Ok(Ipv6Addr::from_bits(bits & !(0xffff << shift) | u128::from(word) << shift))
    }

    /// The two directions for packets with ordinary addresses: outbound and inbound. `None`: the
    /// prefixes are too long for that.
    pub(crate) fn quick(&self) -> Option<[QuickWay; 2]> {
        if self.len > 64 {
            return None;
        }
        let high = |prefix: Prefix6| (prefix.first().to_bits() >> 64) as u64;
        let (internal, external) = (high(self.internal), high(self.external));
        let mask = u64::MAX.checked_shl(64 - u32::from(self.len)).unwrap_or(0);
        let is_short = self.len <= 48;
        let way = |from, to, adjustment, is_outbound| QuickWay {
            from,
            to,
            mask,
            adjustment,
            is_short,
            has_unmapped: is_outbound && is_short,
        };
        let (out, back) = (self.adjustment, !self.adjustment);
        Some([way(internal, external, out, true), way(external, internal, back, false)])
    }

    /// The place of the word that takes the adjustment (RFC 6296 sections 3.4 and 3.5).
    fn word(&self, address: Ipv6Addr) -> Result<usize, Unmapped> {
        //= rfc6296#section-3.4-word
        //= rfc6296#section-3.4-implement
        if self.len <= 48 {
            return Ok(3);
        }
        let words = address.segments();
        //= rfc6296#section-3.7-zero
        if words[FIRST_WORD..] == [0; 4] {
            return Err(Unmapped::ZeroIdentifier);
        }
        let first = FIRST_WORD.max(usize::from(self.len).div_ceil(16));
        //= rfc6296#section-3.5-word
        //= rfc6296#section-3.5-implement
        let place = (first..words.len()).find(|place| words[*place] != 0xffff);
        place.ok_or(Unmapped::NoWord)
    }
}

/// One direction of a pair of prefixes that have at most 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuickWay {
    /// The high halves of the first addresses.
    from: u64,
    to: u64,
    /// The bits of the prefixes.
    mask: u64,
    adjustment: u16,
    /// True if the subnet takes the adjustment, and not the interface identifier.
    is_short: bool,
    /// True if the subnet 0xFFFF has no mapping.
    has_unmapped: bool,
}

impl QuickWay {
    /// The translation of an address; `None`: [`Nptv6::outbound`] or [`Nptv6::inbound`] has to
    /// decide.
    #[inline]
    pub(crate) fn translate(&self, address: u128) -> Option<u128> {
        let (high, low) = ((address >> 64) as u64, address as u64);
        if high & self.mask != self.from {
            return None;
        }
        let to = self.to | high & !self.mask;
        let adjusted = |word: u16| match add(word, self.adjustment) {
            0xffff => 0,
            word => word,
        };
        let (high, low) = if self.is_short {
            let subnet = high as u16;
            if self.has_unmapped && subnet == 0xffff {
                return None;
            }
            (to & !0xffff | u64::from(adjusted(subnet)), low)
        } else {
            let first = (low >> 48) as u16;
            if low == 0 || first == 0xffff {
                return None;
            }
            (to, low & (u64::MAX >> 16) | u64::from(adjusted(first)) << 48)
        };
        Some(u128::from(high) << 64 | u128::from(low))
    }
}

/// One's complement sum of two words.
const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn prefix(text: &str, len: u8) -> Prefix6 {
        Prefix6 { address: text.parse().expect("an address"), len }
    }

    fn pair(internal: (&str, u8), external: (&str, u8)) -> Nptv6 {
        Nptv6::new(prefix(internal.0, internal.1), prefix(external.0, external.1)).expect("a pair")
    }

    fn address(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    //= test rfc6296#section-3.4-word
    //= test rfc6296#section-3.4-implement
    #[test]
    fn the_example_of_rfc_6296_comes_out() {
        let pair = pair(("fd01:203:405::", 48), ("2001:db8:1::", 48));
        let (inside, outside) = (address("fd01:203:405:1::1234"), address("2001:db8:1:d550::1234"));
        assert_eq!(pair.outbound(inside), Some(Ok(outside)));
        assert_eq!(pair.inbound(outside), Some(Ok(inside)));
        assert_eq!((pair.outbound(outside), pair.inbound(inside)), (None, None));
        let unmapped = address("fd01:203:405:ffff::1");
        assert_eq!(pair.outbound(unmapped), Some(Err(Unmapped::Subnet)));
    }

    //= test rfc6296#section-3.5-word
    //= test rfc6296#section-3.5-implement
    #[test]
    fn longer_prefixes_adjust_the_interface_identifier() {
        let pair = pair(("fd01:203:405::", 56), ("2001:db8:1:200::", 56));
        let outside = pair.outbound(address("fd01:203:405:7::1")).expect("ours").expect("mapped");
        assert_eq!(outside.segments()[..4], [0x2001, 0xdb8, 1, 0x207]);
        assert_eq!(outside.segments()[5..], [0, 0, 1]);
        assert_eq!(pair.inbound(outside), Some(Ok(address("fd01:203:405:7::1"))));
        // The first word that is not 0xFFFF takes the adjustment.
        let inside = address("fd01:203:405:7:ffff:ffff:5:1");
        let outside = pair.outbound(inside).expect("ours").expect("mapped");
        assert_eq!(outside.segments()[4..6], [0xffff, 0xffff]);
        assert_eq!((outside.segments()[6] != 5, outside.segments()[7]), (true, 1));
        let zero = pair.outbound(address("fd01:203:405:7::"));
        assert_eq!(zero, Some(Err(Unmapped::ZeroIdentifier)));
        let full = pair.outbound(address("fd01:203:405:7:ffff:ffff:ffff:ffff"));
        assert_eq!(full, Some(Err(Unmapped::NoWord)));
    }

    #[test]
    fn the_shorter_prefix_is_extended_with_zeros() {
        let pair = pair(("fd01:203:405::", 48), ("2001:db8:1:200::", 56));
        let outside = pair.outbound(address("fd01:203:405:7::1")).expect("ours").expect("mapped");
        assert_eq!(outside.segments()[3], 0x207);
        assert_eq!(pair.inbound(outside), Some(Ok(address("fd01:203:405:7::1"))));
        let beyond = pair.outbound(address("fd01:203:405:107::1"));
        assert_eq!(beyond, Some(Err(Unmapped::Subnet)));
    }

    #[test]
    fn prefixes_that_cannot_be_translated_are_refused_with_the_arithmetic() {
        let refused = |a: (&str, u8), b: (&str, u8)| {
            Nptv6::new(prefix(a.0, a.1), prefix(b.0, b.1)).expect_err("refused").to_string()
        };
        assert_eq!(
            refused(("fd00::", 48), ("2001:db8::", 113)),
            "2001:db8::/113 leaves 15 bits, and the checksum needs a word of 16 bits behind the \
             prefix: 112 bits at most (RFC 6296 section 3.5)"
        );
        assert_eq!(
            refused(("2001:db8::", 32), ("2001:db8:1::", 48)),
            "internal 2001:db8::/32 and external 2001:db8:1::/48 have 2001:db8:1::/48 in common"
        );
    }

    proptest! {
        #[test]
        fn translation_keeps_the_checksum_and_can_be_undone(
            internal in any::<u128>(), external in any::<u128>(), host in any::<u128>(),
            len in 1_u8..=LONGEST, len_other in 1_u8..=LONGEST, full in any::<u8>(),
        ) {
            let internal = Prefix6 { address: Ipv6Addr::from_bits(internal), len };
            let external = Prefix6 { address: Ipv6Addr::from_bits(external), len: len_other };
            let Ok(pair) = Nptv6::new(internal, external) else { return Ok(()) };
            // Some words are 0xFFFF or 0.
            let is_full = |place: u32| u128::from(full >> place & 1);
            let word = |place: u32, mask: u128| (is_full(place) * mask) << (16 * place);
            let host = (0..8).fold(host, |host, place| host | word(place, 0xffff));
            let host = host & Prefix6::host_bits(len.max(len_other));
            let inside = Ipv6Addr::from_bits(internal.first().to_bits() | host);
            let Some(Ok(outside)) = pair.outbound(inside) else {
                prop_assert!(internal.contains(inside));
                return Ok(());
            };
            prop_assert!(external.contains(outside));
            // 0xFFFF and 0 are both zero in one's complement.
            let sum = |address: Ipv6Addr| match address.segments().into_iter().fold(0, add) {
                0xffff => 0,
                sum => sum,
            };
            prop_assert_eq!(sum(inside), sum(outside));
            match pair.inbound(outside).expect("it has the external prefix") {
                Ok(back) => prop_assert_eq!(back, inside),
                // The adjustment made the identifier zero.
                Err(why) => prop_assert_eq!(why, Unmapped::ZeroIdentifier),
            }
        }
    }
}
