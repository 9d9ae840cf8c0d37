//! Simple security for routed IPv6 packets (RFC 6092): what the inside has not asked for does not
//! come in.
//!
//! A record stands for an endpoint inside that has sent something: a protocol, an address and a
//! port. Everybody outside may then send to the endpoint (endpoint-independent filtering, the
//! default of RFC 6092 sections 3.2 and 3.3). IPsec, HIP, mobility headers and IKE pass without a
//! record. An ICMPv6 error passes if the packet that it quotes came from a recorded endpoint. A
//! further record of each host lets fragments without ports come in.
//!
//! Neither a sender of many ports nor forged addresses fill the table. In a full table a new record
//! takes the place of one whose time is over. If there is none, it takes the place of a record that
//! nobody outside has answered. If there is none, it takes the place of a record of the /64, and in
//! a /64 of the address, that has the most.

mod records;
mod refused;
mod step;

use alloc::vec::Vec;
use natgate_wire::ipv6::{Walk, next};
use natgate_wire::{Ipv6, icmpv6, protocol};
use records::{Key, Records, idle};
use refused::Requests;
use step::Step;

const ESP: u8 = 50;
const IKE: u16 = 500;

/// The recorded endpoints, and the hosts that have them.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    endpoints: Records,
    /// A record of each host, for fragments without ports.
    hosts: Records,
    /// Refused requests that will be answered.
    requests: Requests,
    /// True if refused requests are answered.
    answers: bool,
}

/// The answer to a packet from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    Refused,
    /// The packet may come in, and refreshes no record.
    Granted,
    /// The record of an endpoint, at a place, has its receiver.
    Endpoint(u32),
    /// The record of a host, at a place, has its receiver.
    Host(u32),
}

/// Source and destination port of a packet, as far as it has any.
fn ports(protocol: u8, transport: &[u8]) -> (u16, u16) {
    let port = |at: usize| match transport.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    };
    match protocol {
        protocol::TCP | protocol::UDP | protocol::DCCP | protocol::SCTP | protocol::UDP_LITE => {
            (port(0), port(2))
        }
        protocol::ICMPV6 => (port(4), port(4)),
        _ => (0, 0),
    }
}

impl Filter {
    /// Makes a filter with room for `most` endpoints, and as many hosts. With `answers` an error
    /// answers each request from outside that stays refused.
    pub(crate) fn new(most: usize, answers: bool, seed: [u8; 32]) -> Self {
        Self {
            endpoints: Records::new(most, seed),
            hosts: Records::new(most, seed),
            requests: Requests::default(),
            answers,
        }
    }

    /// Bytes of a filter with room for `most` endpoints.
    pub(crate) fn memory(most: usize) -> u64 {
        2 * Records::memory(most)
    }

    /// Says whether errors answer requests that are refused. Without answers those that wait are
    /// forgotten.
    pub(crate) fn set_answers(&mut self, answers: bool) {
        self.answers = answers;
        if !answers {
            self.requests = Requests::default();
        }
    }

    /// The endpoint that a packet from inside makes a record of; `None`: the packet needs none.
    fn sender(source: u128, walk: &Walk, bytes: &[u8]) -> Option<Key> {
        if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
            return None;
        }
        let transport = &bytes[walk.transport..];
        if walk.protocol == protocol::ICMPV6
            && transport.first() != Some(&icmpv6::kind::ECHO_REQUEST)
        {
            return None;
        }
        let port = ports(walk.protocol, transport).0;
        Some(Key { address: source, port, protocol: walk.protocol })
    }

    /// True if there is room to record the sender of a packet from inside; changes nothing.
    pub(crate) fn has_room(&self, source: u128, walk: &Walk, bytes: &[u8], now: u64) -> bool {
        let Some(key) = Self::sender(source, walk, bytes) else { return true };
        self.endpoints.has_room(&key, now)
    }

    /// Records the sender of a packet from inside. Returns `false` if there is no room.
    pub(crate) fn note(&mut self, source: u128, walk: &Walk, bytes: &[u8], now: u64) -> bool {
        let Some(key) = Self::sender(source, walk, bytes) else { return true };
        let transport = &bytes[walk.transport..];
        let step = Step::of(walk.protocol, transport);
        let Some(record) = self.endpoints.make(key, now) else { return false };
        // One endpoint of SCTP has many associations.
        let begins = step == Some(Step::Request) && walk.protocol != protocol::SCTP;
        if begins || record.expires <= now {
            record.is_established = false;
        }
        record.is_answered &= record.expires > now;
        //= rfc6092#REC-16
        record.expires = now + idle(record);
        // If there is no room, fragments to the host do not come in.
        if let Some(host) = self.hosts.make(Key::of_host(source), now) {
            host.is_answered &= host.expires > now;
            host.expires = now + idle(host);
        }
        true
    }

    /// True if a packet from outside may come in; the record of its receiver is refreshed.
    pub(crate) fn admits(
        &mut self,
        packet: &Ipv6<&[u8]>,
        walk: &Walk,
        bytes: &[u8],
        now: u64,
    ) -> bool {
        // An ICMPv6 error changes no record.
        //= rfc6092#REC-19
        //= rfc6092#REC-37
        //= rfc6092#REC-42
        //= rfc6092#REC-46
        let mut step = None;
        let record = match self.permission(packet, walk, bytes, now) {
            Permission::Endpoint(at) => {
                step = Step::of(walk.protocol, &bytes[walk.transport..]);
                self.endpoints.get_mut(at)
            }
            Permission::Host(at) => self.hosts.get_mut(at),
            permission => return permission == Permission::Granted,
        };
        match step {
            Some(Step::Progress) => record.is_established = true,
            Some(Step::End) => record.is_established = false,
            Some(Step::Request) | None => {}
        }
        record.is_answered = true;
        record.expires = now + idle(record);
        true
    }

    /// True if a packet from outside may come in; changes nothing.
    pub(crate) fn would_admit(
        &self,
        packet: &Ipv6<&[u8]>,
        walk: &Walk,
        bytes: &[u8],
        now: u64,
    ) -> bool {
        self.permission(packet, walk, bytes, now) != Permission::Refused
    }

    /// Remembers a packet that [`Filter::admits`] has refused, if it asks for a connection.
    /// `received` is its destination as it came. Returns `false` if there is no room.
    pub(crate) fn remember(
        &mut self,
        packet: &Ipv6<&[u8]>,
        walk: &Walk,
        bytes: &[u8],
        (received, now): (u128, u64),
    ) -> bool {
        let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
        let transport = &bytes[walk.transport..];
        let is_request = !is_later && Step::of(walk.protocol, transport) == Some(Step::Request);
        if !self.answers || !is_request {
            return true;
        }
        let port = ports(walk.protocol, transport).1;
        let receiver = Key { address: packet.destination(), port, protocol: walk.protocol };
        self.requests.add(now, receiver, bytes, received)
    }

    /// The start of the oldest refused request whose answer is due, as received. The endpoint that
    /// it asked for has sent nothing until the answer was due.
    pub(crate) fn pop_unanswered(&mut self, now: u64) -> Option<Vec<u8>> {
        while let Some(request) = self.requests.pop(now) {
            //= rfc6092#REC-34
            //= rfc6092#REC-39
            if self.endpoints.find_valid(&request.receiver, request.due).is_none() {
                return Some(request.quoted);
            }
        }
        None
    }

    /// The reason why a packet from outside may come in.
    fn permission(&self, packet: &Ipv6<&[u8]>, walk: &Walk, bytes: &[u8], now: u64) -> Permission {
        let granted = |is| if is { Permission::Granted } else { Permission::Refused };
        if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
            // A later fragment has no ports, and is of no use without the first.
            let host = self.hosts.find_valid(&Key::of_host(packet.destination()), now);
            return host.map_or(Permission::Refused, Permission::Host);
        }
        let transport = &bytes[walk.transport..];
        let port = ports(walk.protocol, transport).1;
        match walk.protocol {
            //= rfc6092#REC-21
            //= rfc6092#REC-22
            //= rfc6092#REC-26
            //= rfc6092#REC-28
            ESP | next::AUTHENTICATION | next::HOST_IDENTITY | next::MOBILITY => {
                return Permission::Granted;
            }
            //= rfc6092#REC-24
            protocol::UDP if port == IKE => return Permission::Granted,
            //= rfc6092#REC-10
            protocol::ICMPV6 if transport.first().is_some_and(|kind| icmpv6::is_error(*kind)) => {
                return granted(self.admits_error(packet.destination(), transport, now));
            }
            protocol::ICMPV6 if transport.first() != Some(&icmpv6::kind::ECHO_REPLY) => {
                return Permission::Refused;
            }
            _ => {}
        }
        //= rfc6092#REC-11
        //= rfc6092#REC-17
        //= rfc6092#REC-20
        //= rfc6092#REC-27
        //= rfc6092#REC-29
        //= rfc6092#REC-31
        //= rfc6092#REC-33
        //= rfc6092#REC-38
        //= rfc6092#REC-43
        //= rfc6092#REC-47
        let key = Key { address: packet.destination(), port, protocol: walk.protocol };
        self.endpoints.find_valid(&key, now).map_or(Permission::Refused, Permission::Endpoint)
    }

    fn admits_error(&self, destination: u128, message: &[u8], now: u64) -> bool {
        let Some(quoted) = message.get(icmpv6::HEADER_LEN..) else { return false };
        let Ok(about) = Ipv6::new_header_checked(quoted) else { return false };
        let Ok(walk) = about.walk() else { return false };
        if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
            return false;
        }
        // Bytes behind the packet are none of it.
        let quoted = &quoted[..about.total_len().min(quoted.len())];
        //= rfc6092#REC-18
        //= rfc6092#REC-23
        //= rfc6092#REC-30
        //= rfc6092#REC-36
        //= rfc6092#REC-41
        //= rfc6092#REC-45
        let port = ports(walk.protocol, &quoted[walk.transport..]).0;
        let key = Key { address: about.source(), port, protocol: walk.protocol };
        about.source() == destination && self.endpoints.find_valid(&key, now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::records::{IDLE, SECOND};
    use super::*;
    use alloc::{vec, vec::Vec};
    use natgate_wire::ipv6::HEADER_LEN;

    const SERVER: u128 = 0x2001_0db8_00ff << 80 | 1;

    /// The address of a host in a /64.
    fn host(network: u128, host: u128) -> u128 {
        (0x2001_0db8 << 96) | network << 64 | host
    }

    fn udp(source: u128, destination: u128, ports: [u16; 2]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + 8];
        bytes[0] = 0x60;
        bytes[5] = 8;
        bytes[6] = protocol::UDP;
        bytes[7] = 64;
        bytes[8..24].copy_from_slice(&source.to_be_bytes());
        bytes[24..40].copy_from_slice(&destination.to_be_bytes());
        bytes[40..42].copy_from_slice(&ports[0].to_be_bytes());
        bytes[42..44].copy_from_slice(&ports[1].to_be_bytes());
        bytes
    }

    struct Table {
        filter: Filter,
        now: u64,
    }

    impl Table {
        fn new(most: usize) -> Self {
            Self { filter: Filter::new(most, true, [7; 32]), now: 0 }
        }

        /// A packet of a host to the server, one millisecond after the packet before.
        fn sends(&mut self, source: u128, port: u16) -> bool {
            self.now += SECOND / 1000;
            let bytes = udp(source, SERVER, [port, 53]);
            let walk = Ipv6::new_checked(&bytes[..]).unwrap().walk().unwrap();
            self.filter.note(source, &walk, &bytes, self.now)
        }

        /// A packet of the server to a host.
        fn receives(&mut self, destination: u128, port: u16) -> bool {
            self.now += SECOND / 1000;
            let bytes = udp(SERVER, destination, [53, port]);
            let header = Ipv6::new_checked(&bytes[..]).unwrap();
            let walk = header.walk().unwrap();
            self.filter.admits(&header, &walk, &bytes, self.now)
        }

        fn exchanges(&mut self, host: u128, port: u16) -> bool {
            self.sends(host, port) && self.receives(host, port)
        }
    }

    #[test]
    fn unanswered_records_make_room_and_the_oldest_first() {
        let mut table = Table::new(64);
        assert!(table.exchanges(host(1, 1), 1000));
        for forged in 0..10_000 {
            assert!(table.sends(host(2 + forged, 1), 1000), "forged address {forged}");
        }
        assert!(table.receives(host(1, 1), 1000), "an answered record stays");
        assert!(table.sends(host(1, 2), 1000));
        for forged in 0..62 {
            assert!(table.sends(host(20_000 + forged, 1), 1000));
        }
        assert!(table.receives(host(1, 2), 1000), "62 newer records take no place of an older one");
    }

    #[test]
    fn the_network_with_the_most_records_makes_room() {
        let mut table = Table::new(64);
        for port in 0..64 {
            assert!(table.exchanges(host(1, port.into()), port));
        }
        for port in 0..31 {
            assert!(table.exchanges(host(2, 1), port), "port {port}");
        }
        let kept = (0..31).filter(|port| table.receives(host(2, 1), *port)).count();
        assert_eq!(kept, 31);
        let refused = (100..200).filter(|port| !table.exchanges(host(1, 1), *port)).count();
        assert_eq!(refused, 100, "nobody has more than the network, and no address two");
    }

    #[test]
    fn the_address_with_the_most_records_makes_room_in_its_network() {
        let mut table = Table::new(64);
        for port in 0..64 {
            assert!(table.exchanges(host(1, 1), port));
        }
        for port in 0..31 {
            assert!(table.exchanges(host(1, 2), port), "port {port}");
        }
        assert!((0..31).all(|port| table.receives(host(1, 2), port)));
        assert!(!table.sends(host(1, 1), 100), "the address has the most itself");
    }

    #[test]
    fn a_record_whose_time_is_over_goes_before_one_that_is_in_use() {
        let mut table = Table::new(64);
        assert!(table.exchanges(host(1, 1), 1));
        table.now += IDLE;
        for port in 0..63 {
            assert!(table.sends(host(2, 1), port));
        }
        assert!(table.sends(host(3, 1), 1));
        assert!((0..63).all(|port| table.receives(host(2, 1), port)));
        assert!(!table.receives(host(1, 1), 1));
    }
}
