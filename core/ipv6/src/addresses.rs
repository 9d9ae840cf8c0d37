//! Kinds of addresses: global ones, and addresses that no packet may carry between networks.

use core::net::Ipv4Addr;

/// IPv4 networks: first address and prefix length of each.
type Networks = [(u32, u32)];

/// Networks whose addresses are not global, without [`EXAMPLES`]. From RFC 5735 section 3, with the
/// shared addresses of RFC 6598.
const NOT_GLOBAL: &Networks = &[
    (0x0000_0000, 8),
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0x7f00_0000, 8),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc0a8_0000, 16),
    (0xe000_0000, 4),
    (0xf000_0000, 4),
];

/// Networks for documentation and for benchmarks (RFC 5737, RFC 2544), which are not global either.
const EXAMPLES: &Networks =
    &[(0xc000_0200, 24), (0xc633_6400, 24), (0xcb00_7100, 24), (0xc612_0000, 15)];

fn is_in(networks: &Networks, address: Ipv4Addr) -> bool {
    networks.iter().any(|&(first, len)| (address.to_bits() ^ first) >> (32 - len) == 0)
}

/// A bit for each first octet of an address in a network of [`NOT_GLOBAL`] or [`EXAMPLES`].
const SPECIAL: [u64; 4] = special();

const fn special() -> [u64; 4] {
    let (mut octets, mut octet) = ([0; 4], 0);
    while octet < 256 {
        if has_octet(NOT_GLOBAL, octet) || has_octet(EXAMPLES, octet) {
            octets[octet as usize / 64] |= 1 << (octet % 64);
        }
        octet += 1;
    }
    octets
}

/// True if an address with this first octet is in one of the networks.
const fn has_octet(networks: &Networks, octet: u32) -> bool {
    let mut at = 0;
    while at < networks.len() {
        let (first, len) = networks[at];
        let bits = if len < 8 { len } else { 8 };
        if (octet ^ first >> 24) >> (8 - bits) == 0 {
            return true;
        }
        at += 1;
    }
    false
}

/// True if an IPv4 address is global. The well-known prefix may embed no other address (RFC 6052
/// section 3.1).
pub fn is_global(address: Ipv4Addr) -> bool {
    let octet = address.to_bits() >> 24;
    // Most addresses need no search.
    let is_special = SPECIAL[octet as usize / 64] >> (octet % 64) & 1 != 0;
    !is_special || !is_in(NOT_GLOBAL, address) && !is_example(address)
}

/// True if an IPv4 address stands for a global one in examples and laboratories.
pub(crate) fn is_example(address: Ipv4Addr) -> bool {
    is_in(EXAMPLES, address)
}

/// True if no packet comes from an IPv6 address, or goes there and is forwarded: the unspecified
/// address, loopback, multicast, IPv4-mapped addresses.
pub(crate) fn is_martian(address: u128) -> bool {
    address <= 1 || address >> 120 == 0xff || address >> 32 == 0xffff
}

/// True if simple security lets no packet with an IPv6 address pass: site-local addresses,
/// IPv4-compatible addresses, and the identifiers of RFC 4843.
pub(crate) fn is_deprecated(address: u128) -> bool {
    address >> 118 == 0xfec0 >> 6 || address >> 32 == 0 || address >> 100 == 0x200_1001
}

/// True if an IPv6 address is link-local.
pub(crate) fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    #[test]
    fn deprecated_addresses_are_told_apart() {
        let is_deprecated =
            |text: &str| super::is_deprecated(text.parse::<Ipv6Addr>().unwrap().to_bits());
        assert!(
            ["fec0::1", "feff::1", "::10.0.0.1", "2001:10::1", "2001:1f:ffff::"]
                .iter()
                .all(|text| is_deprecated(text))
        );
        assert!(
            !["fe80::1", "ff02::1", "::1:0:0:1", "2001:20::1", "2001:f::1", "fd00::1"]
                .iter()
                .any(|text| is_deprecated(text))
        );
    }

    #[test]
    fn addresses_that_are_not_global_are_told_apart() {
        let not_global = [
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.33",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
        ];
        let global = [
            "1.0.0.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.88.99.1",
            "192.167.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.101.0",
            "223.255.255.255",
        ];
        for address in not_global {
            assert!(!is_global(address.parse().expect("an address")), "{address}");
        }
        for address in global {
            assert!(is_global(address.parse().expect("an address")), "{address}");
        }
    }

    #[test]
    fn sources_that_stay_on_their_link_are_told_apart() {
        let stays = |text: &str| {
            let address = text.parse().map(Ipv6Addr::to_bits).expect("an address");
            is_martian(address) || is_link_local(address)
        };
        for address in ["::", "::1", "ff02::1", "fe80::1", "febf::1", "::ffff:192.0.2.1"] {
            assert!(stays(address), "{address}");
        }
        for address in ["2001:db8::1", "fd00::1", "64:ff9b::1", "fec0::1", "::2"] {
            assert!(!stays(address), "{address}");
        }
    }
}
