//! Several translators that share the work, one for each worker. Each has the packets of some
//! inside addresses, by prefixes, and numbers of its own for its hosts.

use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{HostIdentity, Side};
use natgate_wire::{Ipv6, ipv6, protocol};

use crate::hosts::{place_of, prefix_of};
use crate::pairs::{Pairs, quote};
use crate::{HostKind, HostRealms, Settings};

/// The part that a translator has in the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Place of the translator among all, from 0.
    pub place: u16,
    /// Number of translators; not zero.
    pub of: u16,
}

impl Default for Share {
    /// The part of a translator alone: all.
    fn default() -> Self {
        Self { place: 0, of: 1 }
    }
}

impl Share {
    /// True if the translator has the hosts of a prefix, which is without its lower bits.
    pub(crate) fn has(self, prefix: u128) -> bool {
        owner(prefix, self.of) == self.place
    }
}

/// Place of the translator, out of `of`, that has the hosts of a prefix without its lower bits.
pub(crate) fn owner(prefix: u128, of: u16) -> u16 {
    (ipv6::bucket(prefix) % usize::from(of.max(1))) as u16
}

/// The division of IPv6 packets among workers: all packets of an inside prefix go to one. Packets
/// in tunnels of DS-Lite are divided by the prefixes that are its subscribers, all others by those
/// of NAT64.
#[derive(Clone, Debug)]
pub struct Division {
    /// Bits that count of an inside address, for packets of each kind of hosts.
    lengths: [u8; HostKind::ALL.len()],
    /// The gateway's end of the tunnels of DS-Lite.
    end: Option<u128>,
    /// Bits of a number that tell the hosts of a subscriber apart, for each kind of hosts.
    host_bits: [Option<u8>; HostKind::ALL.len()],
    pairs: Pairs,
}

impl Division {
    /// The division by some settings, which have passed the checks of the configuration.
    pub fn new(settings: &Settings) -> Self {
        let pairs = Pairs::new(&settings.nptv6).unwrap_or_default();
        let host_bits = HostKind::ALL.map(|kind| settings.host_bits(kind));
        let lengths = HostKind::ALL.map(|kind| settings.divided_length(kind));
        let end = settings.dslite.as_ref().map(|dslite| dslite.address.to_bits());
        Self { lengths, end, host_bits, pairs }
    }

    /// The realms of hosts with numbers, behind `others`: realms of the engine besides realm 0.
    pub fn realms(&self, others: usize) -> HostRealms {
        let [nat64, dslite] = self.host_bits.map(|bits| bits.is_some());
        HostRealms::behind(others, (nat64, dslite))
    }

    /// Worker, of `workers`, that has the host of a kind with a number.
    pub fn worker_of_number(&self, kind: HostKind, number: Ipv4Addr, workers: usize) -> usize {
        let host_bits = self.host_bits[kind as usize].unwrap_or_default();
        place_of(number.to_bits(), host_bits) as usize % workers.max(1)
    }

    /// Worker, of `workers`, that has a host. The host needs no number yet.
    pub fn worker_of_host(&self, host: HostIdentity, workers: usize) -> usize {
        let kind = if host.inner == 0 { HostKind::Nat64 } else { HostKind::Dslite };
        self.worker_of_address(kind, host.address, workers)
    }

    /// Worker, of `workers`, that has the hosts of a kind with an address inside; behind a tunnel,
    /// with the address of the tunnel's far end.
    fn worker_of_address(&self, kind: HostKind, address: u128, workers: usize) -> usize {
        let prefix = prefix_of(address, self.lengths[kind as usize]);
        usize::from(owner(prefix, workers as u16))
    }

    /// Worker, of `workers`, that takes an IPv6 packet which came in by a side. A packet that
    /// cannot be read belongs to worker 0, which drops it.
    pub fn worker(&self, from: Side, packet: &[u8], workers: usize) -> usize {
        let Ok(header) = Ipv6::new_header_checked(packet) else { return 0 };
        let (kind, inside) = match (from, quoted(packet)) {
            // An error, by any router, is about a packet to a host inside.
            (Side::Inside, Some(about)) => {
                let is_tunneled = self.end == Some(about.source());
                (kind_of(is_tunneled), about.destination())
            }
            (Side::Inside, None) => (kind_of(self.is_tunneled(&header)), header.source()),
            (Side::Outside, _) => {
                let destination = Ipv6Addr::from_bits(header.destination());
                let inside = self.pairs.internal(destination).unwrap_or(destination);
                (HostKind::Nat64, inside.to_bits())
            }
        };
        self.worker_of_address(kind, inside, workers)
    }

    /// True if a packet from inside is one in a tunnel of DS-Lite, or about one. The end of the
    /// tunnels may be an own address, at which hosts of NAT64 ask for mappings.
    fn is_tunneled(&self, header: &Ipv6<&[u8]>) -> bool {
        self.end == Some(header.destination())
            && header.walk().map_or(true, |walk| walk.protocol != protocol::UDP)
    }
}

fn kind_of(is_tunneled: bool) -> HostKind {
    if is_tunneled { HostKind::Dslite } else { HostKind::Nat64 }
}

/// The packet that an ICMPv6 error quotes.
fn quoted(packet: &[u8]) -> Option<Ipv6<&[u8]>> {
    let at = quote(&Ipv6::new_checked(packet).ok()?)?;
    Ipv6::new_header_checked(packet.get(at..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softwire::{DsliteSettings, SoftwireSettings};
    use crate::{Nat64Settings, NonGlobal, Pref64, Prefix6, StaticHost};
    use alloc::vec;
    use alloc::vec::Vec;

    const END: u128 = 0x2001_0db8_ffff << 80 | 1;
    const HOST: u128 = 0x2001_0db8_0001 << 80;
    const REMOTE: u128 = 0x0064_ff9b << 96 | 0xc633_6407;
    const ICMPV6: u8 = 58;
    const IPV4: u8 = 4;
    const WORKERS: usize = 7;

    fn settings(lengths: [Option<u8>; 2]) -> Settings {
        let [nat64, dslite] = lengths;
        let prefix = |bits, len| Prefix6 { address: Ipv6Addr::from_bits(bits), len };
        let nat64 = nat64.map(|subscriber_length| Nat64Settings {
            prefixes: vec![Pref64::new(prefix(0x0064_ff9b << 96, 96)).expect("it may embed")],
            subscribers: Vec::new(),
            subscriber_length,
            non_global: NonGlobal::Translate,
            static_hosts: Vec::new(),
        });
        let dslite = dslite.map(|subscriber_length| DsliteSettings {
            address: Ipv6Addr::from_bits(END),
            b4: vec![prefix(HOST, 48)],
            subscriber_length,
            b4_change_interval: core::time::Duration::ZERO,
            softwire: SoftwireSettings { mtu: None, path_mtu: true },
            static_hosts: Vec::new(),
        });
        Settings { configured: true, nat64, dslite, ..Settings::default() }
    }

    fn packet(next: u8, (source, destination): (u128, u128), payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        (packet[6], packet[7]) = (next, 64);
        packet[8..24].copy_from_slice(&source.to_be_bytes());
        packet[24..].copy_from_slice(&destination.to_be_bytes());
        packet.extend(payload);
        packet
    }

    /// An ICMPv6 error of a router about a packet.
    fn about(packet_: &[u8]) -> Vec<u8> {
        packet(ICMPV6, (HOST | 0xfe, END | 0xfe), &[&[3, 0, 0, 0, 0, 0, 0, 0], packet_].concat())
    }

    #[test]
    fn packets_in_tunnels_are_divided_as_their_hosts_and_others_as_those_of_nat64() {
        for lengths in [[64, 128], [128, 64], [56, 60], [128, 128]] {
            let division = Division::new(&settings(lengths.map(Some)));
            for number in 0..200_u128 {
                let host = HOST | number << 66 | (number % 3) << 60 | number;
                let [nat64, dslite] =
                    [0, 0x0a00_0001].map(|inner| HostIdentity { address: host, inner });
                let [nat64, dslite] =
                    [nat64, dslite].map(|host| division.worker_of_host(host, WORKERS));
                let of = |packet: &[u8]| division.worker(Side::Inside, packet, WORKERS);
                let udp = [0_u8; 8];
                assert_eq!(of(&packet(protocol::UDP, (host, REMOTE), &udp)), nat64);
                assert_eq!(of(&packet(IPV4, (host, REMOTE), &udp)), nat64, "another tunnel");
                assert_eq!(of(&packet(IPV4, (host, END), &udp)), dslite);
                let request = packet(protocol::UDP, (host, END), &udp);
                assert_eq!(of(&request), nat64, "a request of a host of NAT64");
                // A part of a packet in a tunnel, and an error of its far end.
                let part = [IPV4, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
                assert_eq!(of(&packet(44, (host, END), &part)), dslite);
                assert_eq!(of(&about(&packet(IPV4, (END, host), &udp))), dslite);
                assert_eq!(of(&about(&packet(protocol::UDP, (REMOTE, host), &udp))), nat64);
                let out = packet(protocol::UDP, (REMOTE, host), &udp);
                assert_eq!(division.worker(Side::Outside, &out, WORKERS), nat64, "no tunnel");
            }
        }
    }

    #[test]
    fn numbers_are_of_the_worker_that_has_the_packets() {
        let of_kind = [(HostKind::Nat64, 56, 0), (HostKind::Dslite, 128, 0x0a00_0001)];
        let division = Division::new(&settings([Some(56), Some(128)]));
        let addresses: Vec<u128> = (0..300).map(|n| HOST | n << 70 | n).collect();
        for (kind, length, inner) in of_kind {
            let hosts: Vec<Ipv6Addr> = addresses.iter().copied().map(Ipv6Addr::from_bits).collect();
            let behind: Vec<_> = hosts.iter().map(|b4| (*b4, Ipv4Addr::from_bits(inner))).collect();
            let numbers = match kind {
                HostKind::Nat64 => StaticHost::first(&hosts, length, WORKERS as u16),
                HostKind::Dslite => StaticHost::first_behind(&behind, length, WORKERS as u16),
            };
            for (host, address) in numbers.iter().zip(&addresses) {
                let identity = HostIdentity { address: *address, inner };
                let worker = division.worker_of_number(kind, host.number, WORKERS);
                assert_eq!(worker, division.worker_of_host(identity, WORKERS), "{host}");
            }
        }
    }

    /// With one kind of hosts all packets are divided as theirs.
    #[test]
    fn one_kind_alone_divides_all_packets() {
        for (lengths, length) in
            [([Some(56), None], 56), ([None, Some(60)], 60), ([None, None], 128)]
        {
            let settings = settings(lengths);
            assert_eq!(HostKind::ALL.map(|kind| settings.divided_length(kind)), [length; 2]);
        }
    }
}
