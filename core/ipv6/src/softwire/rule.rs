//! A mapping rule of MAP, RFC 7597 section 5: IPv4 addresses and port sets to IPv6 addresses, and
//! back.
//!
//! The embedded-address bits (EA bits) that follow the rule's IPv6 prefix hold the rest of the IPv4
//! address, and the port-set identifier behind it. Fewer bits than the rest of the address give the
//! customer an IPv4 prefix, as many a whole address, more a shared one. A rule whose EA bits hold
//! no identifier may give one itself; then it has one customer.

use super::ports::{PortSets, PortSetsError};
use crate::{Pref64, Prefix6};
use core::fmt::{self, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::Prefix;

/// Most EA bits: an IPv4 address and a port.
const MOST_EA: u8 = 48;

/// Treatment of packets between the customers of a rule and the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapMode {
    /// IPv4 in IPv6, RFC 7597. The address is that of the border relay.
    Encapsulation(Ipv6Addr),
    /// Translation, RFC 7599. The prefix is that of the default mapping rule.
    Translation(Pref64),
}

/// The parameters of a rule, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapParameters {
    /// The rule's IPv6 prefix.
    pub ipv6: Prefix6,
    /// The rule's IPv4 prefix.
    pub ipv4: Prefix,
    /// Number of EA bits.
    pub ea_length: u8,
    /// Bits of a port before the identifier.
    pub psid_offset: u8,
    /// Length and value of the identifier of the rule's only customer.
    pub psid: Option<(u8, u16)>,
    /// Treatment of packets.
    pub mode: MapMode,
}

/// Reason why parameters are no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// There are more EA bits than 48.
    Ea(u8),
    /// The IPv6 prefix and the EA bits do not fit into an address.
    Ipv6(Prefix6, u8),
    /// The identifier in the EA bits does not fit into a port.
    Psid {
        /// Length of the IPv4 prefix, bits.
        ipv4: u8,
        /// Number of EA bits.
        ea: u8,
        /// Offset and identifier together are too long.
        error: PortSetsError,
    },
    /// The identifier that the rule gives does not fit into a port.
    Sets(PortSetsError),
    /// The identifier that the rule gives is longer than its length.
    Beyond(u8, u16),
    /// The rule gives an identifier, and its customers have more than one address.
    Several {
        /// Length of the IPv4 prefix, bits.
        ipv4: u8,
        /// Number of EA bits.
        ea: u8,
    },
}

impl Display for RuleError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ea(ea) => write!(
                f,
                "{ea} EA bits are more than {MOST_EA}, an address of 32 bits and a port of 16"
            ),
            Self::Ipv6(prefix, ea) => {
                let sum = u16::from(prefix.len) + u16::from(ea);
                let len = prefix.len;
                write!(f, "the {len} bits of {prefix} and {ea} EA bits are {sum}, more than 128")
            }
            Self::Psid { ipv4, ea, error } => write!(
                f,
                "{ea} EA bits after the {ipv4} bits of the IPv4 prefix leave \
                 {ea} - (32 - {ipv4}) = {} for the PSID; {error}",
                u16::from(ipv4) + u16::from(ea) - 32
            ),
            Self::Sets(error) => error.fmt(f),
            Self::Beyond(len, psid) => {
                write!(f, "PSID {psid} is beyond {}, the largest of {len} bits", (1_u32 << len) - 1)
            }
            Self::Several { ipv4, ea } => write!(
                f,
                "a rule that gives a PSID has one address, and the {ipv4} bits of the IPv4 prefix \
                 and {ea} EA bits are {}, not 32",
                u16::from(ipv4) + u16::from(ea)
            ),
        }
    }
}

/// A rule, ready for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRule {
    parameters: MapParameters,
    arithmetic: Arithmetic,
}

/// A customer of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Customer {
    /// The customer's address, or the first one of its prefix.
    pub ipv4: Ipv4Addr,
    /// Length of the customer's prefix, bits.
    pub len: u8,
    /// Identifier of the customer's port set; 0 without sharing.
    pub psid: u16,
    /// The customer's IPv6 address of the tunnel or the translation.
    pub address: Ipv6Addr,
    /// The prefix of the customer: the rule's prefix with the EA bits.
    pub prefix: Prefix6,
}

impl MapRule {
    /// A rule.
    ///
    /// # Errors
    /// [`RuleError`] for parameters that do not fit together.
    pub fn new(parameters: MapParameters) -> Result<Self, RuleError> {
        let MapParameters { ipv6, ipv4, ea_length: ea, psid_offset: offset, psid, .. } = parameters;
        if ea > MOST_EA {
            return Err(RuleError::Ea(ea));
        }
        //= rfc7597#section-5.2-length
        let Some(rest) = 128_u8.checked_sub(ipv6.len).and_then(|rest| rest.checked_sub(ea)) else {
            return Err(RuleError::Ipv6(ipv6, ea));
        };
        let suffix = ea.min(32 - ipv4.len());
        let psid_bits = ea - suffix;
        let sets = PortSets::new(offset, psid_bits).map_err(|error| RuleError::Psid {
            ipv4: ipv4.len(),
            ea,
            error,
        })?;
        let sets = match psid {
            None => sets,
            Some(_) if ipv4.len() + ea != 32 => {
                return Err(RuleError::Several { ipv4: ipv4.len(), ea });
            }
            Some((len, psid)) => {
                let sets = PortSets::new(offset, len).map_err(RuleError::Sets)?;
                if u32::from(psid) >= sets.count() {
                    return Err(RuleError::Beyond(len, psid));
                }
                sets
            }
        };
        let translates = matches!(parameters.mode, MapMode::Translation(_));
        let arithmetic = Arithmetic {
            ipv6: ipv6.first().to_bits(),
            ipv4: ipv4.first(),
            ipv6_len: ipv6.len,
            ipv4_len: ipv4.len(),
            ea_length: ea,
            sets,
            own_psid: psid.map(|(_, psid)| psid),
            suffix,
            psid_bits,
            rest,
            translates,
        };
        Ok(Self { parameters, arithmetic })
    }

    /// The parameters.
    pub fn parameters(&self) -> &MapParameters {
        &self.parameters
    }

    /// The arithmetic of the rule.
    pub(crate) fn arithmetic(&self) -> &Arithmetic {
        &self.arithmetic
    }

    /// The division of the ports of the rule's addresses.
    pub fn sets(&self) -> PortSets {
        self.arithmetic.sets
    }

    /// The identifier that the rule gives to its only customer.
    pub fn own_psid(&self) -> Option<u16> {
        self.arithmetic.own_psid
    }

    /// Length of a customer's IPv4 prefix, bits.
    pub fn ipv4_len(&self) -> u8 {
        self.arithmetic.ipv4_len + self.arithmetic.suffix
    }

    /// True if packets are translated.
    pub fn translates(&self) -> bool {
        self.arithmetic.translates
    }

    /// The identifier of the port set that has a port; `None`: no customer has the port.
    pub fn psid_of(&self, port: u16) -> Option<u16> {
        self.arithmetic.psid_of(port)
    }

    /// The IPv6 address of the customer that has an address of the rule's prefix and a port set.
    pub fn address_of(&self, ipv4: u32, psid: u16) -> u128 {
        self.arithmetic.address_of(ipv4, psid)
    }

    /// The IPv4 address and the port set of an IPv6 address that has the rule's prefix. `None`: no
    /// customer has the address.
    pub fn customer_of(&self, address: u128) -> Option<(u32, u16)> {
        self.arithmetic.customer_of(address)
    }

    /// The customer that has an address of the rule's prefix and a port set.
    pub fn customer(&self, ipv4: Ipv4Addr, psid: u16) -> Customer {
        let len = self.ipv4_len();
        let first = Prefix::new(ipv4, len).first();
        let address = self.address_of(first, psid);
        let prefix =
            Prefix6 { address: Ipv6Addr::from_bits(address), len: 128 - self.arithmetic.rest };
        Customer {
            ipv4: Ipv4Addr::from_bits(first),
            len,
            psid,
            address: Ipv6Addr::from_bits(address),
            prefix,
        }
    }
}

/// What packets need of a rule. It fills less than a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arithmetic {
    /// First address of the IPv6 prefix, and of the IPv4 prefix; lengths of both, bits.
    pub(crate) ipv6: u128,
    pub(crate) ipv4: u32,
    pub(crate) ipv6_len: u8,
    pub(crate) ipv4_len: u8,
    ea_length: u8,
    /// The division of the ports of the rule's addresses.
    pub(crate) sets: PortSets,
    /// The identifier that the rule gives to its only customer.
    pub(crate) own_psid: Option<u16>,
    /// Bits of the IPv4 address in the EA bits.
    suffix: u8,
    /// Bits of the identifier in the EA bits.
    psid_bits: u8,
    /// Bits behind the EA bits.
    rest: u8,
    /// True if packets are translated.
    pub(crate) translates: bool,
}

impl Arithmetic {
    /// [`MapRule::psid_of`].
    #[inline]
    pub(crate) fn psid_of(&self, port: u16) -> Option<u16> {
        let psid = self.sets.set_of(port)?;
        match self.own_psid {
            Some(own) if own != psid => None,
            _ => Some(psid),
        }
    }

    /// [`MapRule::address_of`].
    //= rfc7597#section-5.2-address
    //= rfc7597#section-5.3-derive
    #[inline]
    pub(crate) fn address_of(&self, ipv4: u32, psid: u16) -> u128 {
        let spare = 32 - u32::from(self.ipv4_len) - u32::from(self.suffix);
        // A prefix of the customer's is padded with zeros. A translated packet has no other place
        // for the rest of the address.
        let shown = match self.translates {
            true => ipv4,
            false => (u64::from(ipv4) >> spare << spare) as u32,
        };
        let suffix = (u64::from(ipv4) & ((1 << (32 - self.ipv4_len)) - 1)) >> spare;
        let embedded = match self.psid_bits {
            0 => suffix,
            bits => suffix << bits | u64::from(psid),
        };
        //= rfc7597#section-6-padding
        //= rfc7597#section-6-overwritten
        let identifier = u128::from(shown) << 16 | u128::from(psid);
        let low = identifier & Prefix6::host_bits(128 - self.rest);
        let embedded = u128::from(embedded).checked_shl(self.rest.into()).unwrap_or(0);
        self.ipv6 | embedded | low
    }

    /// [`MapRule::customer_of`].
    #[inline]
    pub(crate) fn customer_of(&self, address: u128) -> Option<(u32, u16)> {
        if address & !Prefix6::host_bits(self.ipv6_len) != self.ipv6 {
            return None;
        }
        let embedded = address.checked_shr(self.rest.into()).unwrap_or(0);
        let embedded = (embedded as u64) & ((1 << self.ea_length) - 1);
        let spare = 32 - u32::from(self.ipv4_len) - u32::from(self.suffix);
        let suffix = (embedded >> self.psid_bits << spare) as u32;
        let psid = match self.own_psid {
            Some(psid) => psid,
            None => (embedded & ((1 << self.psid_bits) - 1)) as u16,
        };
        let mut own = self.ipv4 | suffix;
        if self.translates && spare > 0 {
            own |= (address >> 16) as u32 & ((1_u64 << spare) - 1) as u32;
        }
        (self.address_of(own, psid) == address).then_some((own, psid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn rule(ipv6: (&str, u8), ipv4: ([u8; 4], u8), ea: u8, psid: Option<(u8, u16)>) -> MapRule {
        MapRule::new(parameters(ipv6, ipv4, ea, psid)).expect("parameters that fit")
    }

    fn parameters(
        (ipv6, len6): (&str, u8),
        (ipv4, len4): ([u8; 4], u8),
        ea_length: u8,
        psid: Option<(u8, u16)>,
    ) -> MapParameters {
        MapParameters {
            ipv6: Prefix6 { address: ipv6.parse().expect("an address"), len: len6 },
            ipv4: Prefix::new(ipv4.into(), len4),
            ea_length,
            psid_offset: 6,
            psid,
            mode: MapMode::Encapsulation("2001:db8:ffff::1".parse().expect("an address")),
        }
    }

    fn address(rule: &MapRule, ipv4: [u8; 4], psid: u16) -> alloc::string::String {
        Ipv6Addr::from_bits(rule.address_of(u32::from_be_bytes(ipv4), psid)).to_string()
    }

    //= test rfc7597#section-5.2-address
    //= test rfc7597#section-5.3-derive
    //= test rfc7597#section-6-padding
    #[test]
    fn the_examples_of_rfc_7597_come_out() {
        let first = rule(("2001:db8::", 40), ([192, 0, 2, 0], 24), 16, None);
        assert_eq!((first.sets(), first.ipv4_len()), (PortSets::new(6, 8).expect("14 bits"), 32));
        assert_eq!(first.psid_of(1232), Some(0x34));
        let expected = "2001:db8:12:3400:0:c000:212:34";
        assert_eq!(address(&first, [192, 0, 2, 18], 0x34), expected);
        let bits = expected.parse().map(Ipv6Addr::to_bits).expect("an address");
        assert_eq!(first.customer_of(bits), Some((0xc000_0212, 0x34)));
        let customer = first.customer([192, 0, 2, 18].into(), 0x34);
        assert_eq!(customer.prefix.to_string(), "2001:db8:12:3400::/56");
        let fourth = rule(("2001:db8:12:3400::", 56), ([192, 0, 2, 18], 32), 0, None);
        assert_eq!(address(&fourth, [192, 0, 2, 18], 0), "2001:db8:12:3400:0:c000:212:0");
        let fifth = rule(("2001:db8:12:3400::", 56), ([192, 0, 2, 18], 32), 0, Some((8, 0x34)));
        assert_eq!(address(&fifth, [192, 0, 2, 18], 0x34), expected);
        assert_eq!((fifth.psid_of(1232), fifth.psid_of(1236)), (Some(0x34), None));
    }

    //= test rfc7597#section-6-overwritten
    #[test]
    fn prefixes_are_padded_and_long_prefixes_overwrite_the_identifier() {
        let prefix = rule(("2001:db8::", 40), ([198, 51, 0, 0], 16), 8, None);
        assert_eq!(address(&prefix, [198, 51, 100, 7], 0), "2001:db8:64::c633:6400:0");
        assert_eq!(prefix.customer([198, 51, 100, 7].into(), 0).len, 24);
        let long = rule(("2001:db8:1:2:abcd::", 80), ([192, 0, 2, 0], 24), 16, None);
        assert_eq!(address(&long, [192, 0, 2, 18], 0x34), "2001:db8:1:2:abcd:1234:212:34");
        let full = rule(("2001:db8::7", 128), ([192, 0, 2, 1], 32), 0, None);
        assert_eq!(address(&full, [192, 0, 2, 1], 0), "2001:db8::7");
    }

    //= test rfc7597#section-5.2-length
    #[test]
    fn parameters_that_do_not_fit_are_refused_with_the_arithmetic() {
        let refused = |ipv6, ipv4, ea, psid| {
            MapRule::new(parameters(ipv6, ipv4, ea, psid)).expect_err("refused").to_string()
        };
        let net = ("2001:db8::", 40);
        assert_eq!(
            refused(net, ([192, 0, 2, 0], 24), 20, None),
            "20 EA bits after the 24 bits of the IPv4 prefix leave 20 - (32 - 24) = 12 for the \
             PSID; offset 6 and PSID length 12 are 18 bits, and a port has 16"
        );
        assert!(refused(net, ([192, 0, 2, 0], 24), 49, None).starts_with("49 EA bits are more"));
        assert_eq!(
            refused(("2001:db8::", 120), ([192, 0, 2, 0], 24), 16, None),
            "the 120 bits of 2001:db8::/120 and 16 EA bits are 136, more than 128"
        );
        assert_eq!(
            refused(net, ([192, 0, 2, 1], 32), 0, Some((8, 256))),
            "PSID 256 is beyond 255, the largest of 8 bits"
        );
        assert!(refused(net, ([192, 0, 2, 0], 24), 0, Some((8, 1))).ends_with("are 24, not 32"));
        assert!(refused(net, ([192, 0, 2, 1], 32), 0, Some((11, 1))).contains("17 bits"));
    }

    proptest! {
        #[test]
        fn an_address_leads_back_to_its_customer(
            len6 in 0_u8..=128, len4 in 0_u8..=32, ea in 0_u8..=48, offset in 0_u8..=15,
            bits: u128, ipv4: u32, port: u16, translates: bool,
        ) {
            let mode = match translates {
                false => MapMode::Encapsulation(Ipv6Addr::LOCALHOST),
                true => MapMode::Translation(
                    Pref64::new(Prefix6 { address: Ipv6Addr::UNSPECIFIED, len: 64 }).expect("/64"),
                ),
            };
            let rule = MapRule::new(MapParameters {
                ipv6: Prefix6 { address: Ipv6Addr::from_bits(bits), len: len6 },
                ipv4: Prefix::new(Ipv4Addr::from_bits(ipv4), len4),
                ea_length: ea, psid_offset: offset, psid: None, mode,
            });
            let Ok(rule) = rule else { return Ok(()) };
            let Some(psid) = rule.psid_of(port) else { return Ok(()) };
            let address = rule.address_of(ipv4, psid);
            let spare = 32 - rule.ipv4_len();
            // The rest of an address in a prefix survives a translation, if no prefix is in its
            // place.
            if translates && u32::from(len6 + ea) <= 80 {
                prop_assert_eq!(rule.customer_of(address), Some((ipv4, psid)));
            } else if spare == 0 {
                prop_assert_eq!(rule.customer_of(address), Some((ipv4, psid)));
            } else if !translates {
                let first = (u64::from(ipv4) >> spare << spare) as u32;
                prop_assert_eq!(rule.customer_of(address), Some((first, psid)));
            }
            let other = address ^ 1 << 16;
            let back = rule.customer_of(other);
            prop_assert!(back.is_none_or(|(ipv4, psid)| rule.address_of(ipv4, psid) == other));
        }
    }
}
