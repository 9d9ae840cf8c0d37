//! The worker that owns a packet.

use super::strays::PROTOCOLS;
use super::{PacketOwner, Partition, Row};
use natgate_engine::Side;
use natgate_wire::icmp::{self, kind};
use natgate_wire::{Ipv4, protocol};

impl Partition {
    /// Finds the owner of an IP packet that came in by a side; from inside, `realm` counts. A
    /// packet that cannot be read belongs to any worker, which drops it.
    pub(in crate::team) fn owner_of_packet(
        &self,
        from: Side,
        realm: u16,
        bytes: &[u8],
    ) -> PacketOwner {
        self.owner_of_whole(from, realm, bytes)
            .map_or_else(|| self.owner_of_any(from, realm, bytes), PacketOwner::Of)
    }

    /// Finds the owner of a packet of the commonest kind, at the least cost: TCP or UDP in one
    /// piece without options, of a host or to an endpoint with one possible owner. Such a packet
    /// needs no guide, and its owner checks it for errors. `None` for all other packets.
    #[inline(always)]
    pub(in crate::team) fn owner_of_whole(
        &self,
        from: Side,
        realm: u16,
        bytes: &[u8],
    ) -> Option<usize> {
        let header = bytes.first_chunk::<24>()?;
        let own = header[9];
        let is_whole = header[6] & 0x3f == 0 && header[7] == 0;
        if header[0] != 0x45 || !is_whole || !matches!(own, protocol::TCP | protocol::UDP) {
            return None;
        }
        let address = |at| u32::from_be_bytes(std::array::from_fn(|byte| header[at + byte]));
        if from == Side::Inside {
            return self.only_owner_of_host((realm, address(12)));
        }
        let (address, port) = (address(16), u16::from_be_bytes([header[22], header[23]]));
        match self.row(address) {
            Some(row) => match self.of_external(row, own, port) {
                PacketOwner::Of(worker) => Some(worker),
                _ => None,
            },
            None => self.only_owner_of_host((0, address)),
        }
    }

    fn owner_of_any(&self, from: Side, realm: u16, bytes: &[u8]) -> PacketOwner {
        let Ok(packet) = Ipv4::new_checked(bytes) else { return PacketOwner::Of(0) };
        match from {
            Side::Inside => {
                // An ICMP error, by any sender, is about the session of the host that the quoted
                // packet went to.
                let about = about(&packet, bytes);
                let host = about.map_or_else(|| packet.source(), |(about, _)| about.destination());
                self.owner_of_host((realm, host))
            }
            Side::Outside => self.owner_of_outside(&packet, bytes),
        }
    }

    fn owner_of_outside(&self, packet: &Ipv4<&[u8]>, bytes: &[u8]) -> PacketOwner {
        let Some(row) = self.row(packet.destination()) else {
            // The packet bypasses the translator, or is for the gateway itself.
            return self.owner_of_host((0, packet.destination()));
        };
        let own = packet.protocol();
        if let Some((about, payload)) = about(packet, bytes) {
            let row = self.row(about.source()).unwrap_or(row);
            return match port_of(about.protocol(), payload, End::Source) {
                Some(port) => self.of_external(row, about.protocol(), port),
                None => self.portless(row, about.protocol()),
            };
        }
        if packet.fragment_offset() > 0 {
            let number = if PROTOCOLS.contains(&own) { own } else { 0 };
            let whole = row.has_fixed.then(|| self.whole.get(&(row.address, number))).flatten();
            let stray = row.owners.strays.of_address();
            return match whole.copied() {
                Some(worker) => PacketOwner::Of(worker),
                None if row.is_shared() => PacketOwner::Fragment(row.owners.of(0)),
                None => PacketOwner::Of(stray.unwrap_or_else(|| row.owners.of(0))),
            };
        }
        match port_of(own, &bytes[packet.header_len()..], End::Destination) {
            Some(port) => self.of_external(row, own, port),
            None => self.portless(row, own),
        }
    }

    /// Owner of a packet to an address of a protocol without ports, or cut off before its ports.
    fn portless(&self, row: &Row, own: u8) -> PacketOwner {
        let number = if matches!(own, protocol::TCP | protocol::UDP) { own } else { 0 };
        match self.whole.get(&(row.address, number)) {
            Some(&worker) => PacketOwner::Of(worker),
            None => match row.owners.strays.of_address() {
                Some(worker) => PacketOwner::Of(worker),
                None if row.is_shared() => PacketOwner::Portless,
                None => PacketOwner::Of(row.owners.of(0)),
            },
        }
    }

    /// Worker that finds the owner of fragments without ports, for the destination of `bytes`, the
    /// first fragment of a datagram. `None` if fragments to that destination need no guide.
    pub(in crate::team) fn guide_of(&self, bytes: &[u8]) -> Option<usize> {
        // Almost no packet is a fragment; this check is quick.
        bytes.get(6).filter(|&&flags| flags & 0x20 != 0)?;
        let packet = Ipv4::new_checked(bytes).ok()?;
        let row = self.row(packet.destination())?;
        row.is_shared().then(|| row.owners.of(0))
    }
}

/// The packet that an ICMP error quotes, and the quoted part of its payload.
fn about<'b>(packet: &Ipv4<&[u8]>, bytes: &'b [u8]) -> Option<(Ipv4<&'b [u8]>, &'b [u8])> {
    if packet.protocol() != protocol::ICMP || packet.fragment_offset() > 0 {
        return None;
    }
    let message = &bytes[packet.header_len()..];
    let is_error = matches!(
        *message.first()?,
        kind::UNREACHABLE
            | kind::SOURCE_QUENCH
            | kind::REDIRECT
            | kind::TIME_EXCEEDED
            | kind::PARAMETER_PROBLEM
    );
    let quoted = message.get(icmp::HEADER_LEN..).filter(|_| is_error)?;
    let about = Ipv4::new_header_checked(quoted).ok()?;
    let payload = &quoted[about.header_len()..];
    Some((about, payload))
}

#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

/// Port, or query identifier, of one end of a packet. `None` if the protocol has none, or the
/// packet is cut off.
fn port_of(own: u8, payload: &[u8], end: End) -> Option<u16> {
    let at = match (own, end) {
        (protocol::TCP | protocol::UDP | protocol::DCCP, End::Source) => 0,
        (protocol::TCP | protocol::UDP | protocol::DCCP, End::Destination) => 2,
        (protocol::ICMP, _) => 4,
        _ => return None,
    };
    Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{AddressRange, Config, PoolConfig, StaticMapping};
    use std::net::Ipv4Addr;

    fn packet(own: u8, source: Ipv4Addr, destination: Ipv4Addr, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, own, 0, 0];
        packet.extend(source.octets().into_iter().chain(destination.octets()));
        packet.extend(ports.into_iter().flat_map(u16::to_be_bytes));
        packet.resize(28, 0);
        packet
    }

    #[test]
    fn the_short_way_says_what_the_long_one_does() {
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let partition = Partition::new(&Config { pools, ..Config::default() }, None, 3, None);
        let remote = Ipv4Addr::new(198, 51, 100, 7);
        for number in 0..1000 {
            let host = Ipv4Addr::from_bits(0x6440_0000 + number * 77);
            let ports = [443, (number * 65) as u16];
            for own in [protocol::TCP, protocol::UDP] {
                let inside = packet(own, host, remote, ports);
                let outside = packet(own, remote, external, ports);
                let past = packet(own, remote, host, ports);
                for (side, packet) in
                    [(Side::Inside, inside), (Side::Outside, outside), (Side::Outside, past)]
                {
                    let short = partition.owner_of_whole(side, 0, &packet).map(PacketOwner::Of);
                    assert_eq!(short, Some(partition.owner_of_any(side, 0, &packet)), "{packet:?}");
                }
            }
        }
    }

    #[test]
    fn an_address_is_found_in_and_between_runs() {
        let address = |last: u8| Ipv4Addr::new(203, 0, 113, last);
        let runs = [(20, 22), (4, 4), (9, 12)];
        let addresses =
            runs.map(|(first, last)| AddressRange { first: address(first), last: address(last) });
        let pools = vec![PoolConfig { addresses: addresses.to_vec(), ..PoolConfig::default() }];
        let partition = Partition::new(&Config { pools, ..Config::default() }, None, 3, None);
        for last in 0..=255 {
            let is_external = runs.iter().any(|(first, end)| (*first..=*end).contains(&last));
            let wanted = is_external.then_some(address(last).to_bits());
            let found = partition.row(address(last).to_bits()).map(|row| row.address);
            assert_eq!(found, wanted, "{last}");
        }
    }

    /// A worker joins; hosts of static mappings stay with theirs, and others for a while.
    #[test]
    fn the_short_way_leaves_hosts_with_special_owners_to_the_long_one() {
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let remote = Ipv4Addr::new(198, 51, 100, 7);
        let host = |number: u16| Ipv4Addr::from_bits(0x6440_0000 + u32::from(number) * 77);
        let one = |number: u16| StaticMapping {
            external: (external, Some(2000 + number)),
            internal: (host(number), Some(80)),
            protocol: Some(protocol::UDP),
            ..StaticMapping::default()
        };
        let addresses = vec![AddressRange { first: external, last: external }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let config = Config { pools, statics: (0..40).map(one).collect(), ..Config::default() };
        let before = Partition::new(&config, None, 2, None);
        let partition = Partition::new(&config, None, 3, Some(&before));
        for has_begun in [false, true] {
            if has_begun {
                partition.welcome();
            }
            let mut short = 0;
            for number in 0..1000 {
                let inside = packet(protocol::UDP, host(number), remote, [443, 53]);
                let outside = packet(protocol::UDP, remote, external, [53, number * 65]);
                let fixed = packet(protocol::UDP, remote, external, [53, 2000 + number % 40]);
                for (side, packet) in
                    [(Side::Inside, inside), (Side::Outside, outside), (Side::Outside, fixed)]
                {
                    let owner = partition.owner_of_whole(side, 0, &packet).map(PacketOwner::Of);
                    let wanted = partition.owner_of_any(side, 0, &packet);
                    assert!(owner.is_none_or(|owner| owner == wanted), "{packet:?}");
                    short += usize::from(owner.is_some());
                }
            }
            assert!((2000..3000).contains(&short), "{short}, has begun: {has_begun}");
        }
    }

    #[test]
    fn what_is_not_in_one_piece_takes_the_long_way() {
        let partition = Partition::new(&Config::default(), None, 2, None);
        let host = Ipv4Addr::new(100, 64, 0, 1);
        let whole = packet(protocol::UDP, host, host, [1, 2]);
        let short = |packet: &[u8]| partition.owner_of_whole(Side::Outside, 0, packet);
        assert!(short(&whole).is_some());
        assert_eq!(short(&whole[..23]), None);
        for (at, value) in [(0, 0x46), (6, 0x20), (6, 1), (7, 1), (9, protocol::ICMP)] {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(short(&other), None, "byte {at}");
        }
    }
}
