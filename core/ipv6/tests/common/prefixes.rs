//! Addresses and prefixes of IPv6, from their texts.

use natgate_ipv6::{Pref64, Prefix6};
use std::net::Ipv6Addr;

pub(crate) fn address(text: &str) -> u128 {
    text.parse().map(Ipv6Addr::to_bits).expect("an address")
}

pub(crate) fn prefix(text: &str, len: u8) -> Prefix6 {
    Prefix6 { address: address(text).into(), len }
}

pub(crate) fn pref64(text: &str, len: u8) -> Pref64 {
    Pref64::new(prefix(text, len)).expect("a prefix of RFC 6052")
}
