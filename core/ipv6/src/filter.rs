//! Simple security for routed IPv6 packets (RFC 6092): what the inside has not asked for does not
//! come in.
//!
//! A record stands for an endpoint inside that has sent something: a protocol, an address and a
//! port. Everybody outside may then send to the endpoint (endpoint-independent filtering, the
//! default of RFC 6092 sections 3.2 and 3.3). IPsec, HIP, mobility headers and IKE pass without a
//! record. An ICMPv6 error passes if the packet that it quotes came from a recorded endpoint.

use crate::keyed::Index;
use alloc::vec::Vec;
use natgate_engine::HashKey;
use natgate_wire::ipv6::{Walk, next};
use natgate_wire::{Ipv6, icmpv6, protocol, tcp};

const SECOND: u64 = 1_000_000_000;
/// Life of a record without packets, nanoseconds: in general (RFC 6092 REC-12, REC-14), of an
/// established TCP connection (REC-35), of another TCP connection.
const IDLE: u64 = 300 * SECOND;
const ESTABLISHED: u64 = 7440 * SECOND;
const TRANSITORY: u64 = 240 * SECOND;
/// Records that are looked at for an expired one when the table is full.
const LOOKED_AT: usize = 64;
const ESP: u8 = 50;
const IKE: u16 = 500;

/// An endpoint inside, of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    address: u128,
    port: u16,
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: Key,
    expires: u64,
    is_established: bool,
}

/// The recorded endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    key: HashKey,
    most: usize,
    records: Vec<Record>,
    index: Index,
    /// The record at which the search for an expired one goes on.
    next: usize,
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
    /// Makes a filter with room for `most` endpoints.
    pub(crate) fn new(most: usize, seed: [u8; 32]) -> Self {
        Self {
            key: HashKey::from_seed(seed, 0x6669_6c74),
            most,
            records: Vec::with_capacity(most),
            index: Index::new(most),
            next: 0,
        }
    }

    fn hash(&self, key: &Key) -> u64 {
        hash(self.key, key)
    }

    fn find(&self, key: &Key) -> Option<u32> {
        self.index.find(self.hash(key), |at| self.records[at as usize].key == *key)
    }

    /// Records the sender of a packet from inside. Returns `false` if there is no room.
    pub(crate) fn note(
        &mut self,
        packet: &Ipv6<&[u8]>,
        walk: &Walk,
        bytes: &[u8],
        now: u64,
    ) -> bool {
        if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
            return true;
        }
        let transport = &bytes[walk.transport..];
        if walk.protocol == protocol::ICMPV6
            && transport.first() != Some(&icmpv6::kind::ECHO_REQUEST)
        {
            return true;
        }
        let port = ports(walk.protocol, transport).0;
        let key = Key { address: packet.source(), port, protocol: walk.protocol };
        let flags = transport.get(13).copied().filter(|_| walk.protocol == protocol::TCP);
        let Some(at) = self.find(&key).or_else(|| self.add(key, now)) else { return false };
        let record = &mut self.records[at as usize];
        let begins = flags.is_some_and(|flags| flags & tcp::flags::SYN != 0);
        if begins || record.expires <= now {
            record.is_established = false;
        }
        record.expires = now + idle(record);
        true
    }

    fn add(&mut self, key: Key, now: u64) -> Option<u32> {
        let record = Record { key, expires: 0, is_established: false };
        let at = if self.records.len() < self.most {
            self.records.push(record);
            self.records.len() - 1
        } else {
            let count = self.records.len();
            let places = (0..LOOKED_AT.min(count)).map(|step| (self.next + step) % count);
            let at = places.into_iter().find(|at| self.records[*at].expires <= now);
            self.next = (self.next + LOOKED_AT) % count.max(1);
            let at = at?;
            let old = self.hash(&self.records[at].key);
            let (key, records) = (self.key, &self.records);
            self.index.remove(old, at as u32, |other| hash(key, &records[other as usize].key));
            self.records[at] = record;
            at
        };
        self.index.insert(self.hash(&key), at as u32);
        Some(at as u32)
    }

    /// Whether a packet from outside may come in.
    pub(crate) fn admits(
        &mut self,
        packet: &Ipv6<&[u8]>,
        walk: &Walk,
        bytes: &[u8],
        now: u64,
    ) -> bool {
        if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
            // A later fragment is of no use without the first, which has the ports.
            return true;
        }
        let transport = &bytes[walk.transport..];
        let port = ports(walk.protocol, transport).1;
        match walk.protocol {
            ESP | next::AUTHENTICATION | next::HOST_IDENTITY | next::MOBILITY => return true,
            protocol::UDP if port == IKE => return true,
            protocol::ICMPV6 if transport.first().is_some_and(|kind| icmpv6::is_error(*kind)) => {
                return self.admits_error(packet.destination(), transport, now);
            }
            protocol::ICMPV6 if transport.first() != Some(&icmpv6::kind::ECHO_REPLY) => {
                return false;
            }
            _ => {}
        }
        let key = Key { address: packet.destination(), port, protocol: walk.protocol };
        let Some(at) = self.find(&key) else { return false };
        let record = &mut self.records[at as usize];
        if record.expires <= now {
            return false;
        }
        if walk.protocol == protocol::TCP {
            let flags = transport.get(13).copied().unwrap_or_default();
            let ends = flags & (tcp::flags::FIN | tcp::flags::RST) != 0;
            record.is_established =
                !ends && (record.is_established || flags & tcp::flags::ACK != 0);
        }
        record.expires = now + idle(record);
        true
    }

    fn admits_error(&self, destination: u128, message: &[u8], now: u64) -> bool {
        let Some(quoted) = message.get(icmpv6::HEADER_LEN..) else { return false };
        let Ok(about) = Ipv6::new_header_checked(quoted) else { return false };
        let Ok(walk) = about.walk() else { return false };
        if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
            return false;
        }
        let port = ports(walk.protocol, &quoted[walk.transport..]).0;
        let key = Key { address: about.source(), port, protocol: walk.protocol };
        about.source() == destination
            && self.find(&key).is_some_and(|at| self.records[at as usize].expires > now)
    }
}

fn hash(secret: HashKey, key: &Key) -> u64 {
    let rest = u64::from(key.port) << 8 | u64::from(key.protocol);
    crate::keyed::hash(secret, key.address ^ u128::from(secret.hash(rest, 0)))
}

/// Life of a record without packets, nanoseconds.
fn idle(record: &Record) -> u64 {
    match (record.key.protocol, record.is_established) {
        (protocol::TCP, true) => ESTABLISHED,
        (protocol::TCP, false) => TRANSITORY,
        _ => IDLE,
    }
}
