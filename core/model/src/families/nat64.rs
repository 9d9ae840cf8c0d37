//! NAT64 (specification, 19.11 to 19.17; RFC 6146): a packet of an inside host is translated to
//! IPv4 as a packet of a realm, in which an address stands for each host. A host that has once got
//! its address keeps it, but errors find it only while it counts (19.13). When a host without a
//! mapping ceases to count is left open. The limits of 19.13 are not modelled.

use super::headers::{Six, address, to_ipv4, to_ipv6};
use super::siit::{embed, extract, is_refused};
use super::{Departure, Families, Limit, fragments, message};
use crate::{Effects, Transmit};
use natgate_engine::{Counters, DropReason, Endpoint, Outcome, Side, Timestamp, Verdict};
use natgate_ipv6::Nat64Settings;
use natgate_ipv6::convert::{Addresses, ConvertSettings, ErrorMessage, Hops, Place, Refusal};
use natgate_wire::protocol::ICMP;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The first address that stands for a host.
const FIRST: u32 = 1 << 24;
/// Source of the translator's own errors to hosts (8.4).
const DUMMY: u32 = 0xc000_0008;

/// The hosts inside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Lower bits of an address that tell the hosts of a subscriber apart.
    host_bits: u8,
    /// The hosts of each subscriber, in the order of their first packets.
    subscribers: Vec<(u128, Vec<u128>)>,
    /// Hosts that do not count any more.
    gone: BTreeSet<u128>,
    /// The number of the prefix by which a host last reached a remote address (19.14).
    prefixes: BTreeMap<(u32, u32), usize>,
}

impl Hosts {
    pub(crate) fn new(settings: Option<&Nat64Settings>) -> Self {
        let host_bits = settings.map_or(0, |nat64| 128 - nat64.subscriber_length);
        let mut hosts = Self { host_bits: host_bits.min(8), ..Self::default() };
        // 19.13: hosts of static mappings count from the start.
        if let Some(nat64) = settings {
            for host in &nat64.static_hosts {
                hosts.place_or_new(host.address.to_bits(), nat64.subscriber_length);
            }
        }
        hosts
    }

    fn place(&self, host: u128) -> Option<u32> {
        let mut all = (0..).zip(&self.subscribers);
        all.find_map(|(number, (_, hosts))| {
            let within = hosts.iter().position(|one| *one == host)?;
            Some(FIRST + (number << self.host_bits) + within as u32)
        })
    }

    /// The address that stands for a host which counts.
    fn known(&self, host: u128) -> Option<u32> {
        self.place(host).filter(|_| !self.gone.contains(&host))
    }

    fn host(&self, place: u32) -> Option<u128> {
        let offset = place.checked_sub(FIRST)?;
        let (_, hosts) = self.subscribers.get((offset >> self.host_bits) as usize)?;
        hosts.get((offset & !(u32::MAX << self.host_bits)) as usize).copied()
    }

    /// The address that stands for a host; a new host gets one.
    fn place_or_new(&mut self, host: u128, length: u8) -> u32 {
        let prefix = host & !(u128::MAX.checked_shr(length.into()).unwrap_or(0));
        self.gone.remove(&host);
        if self.place(host).is_none() {
            match self.subscribers.iter_mut().find(|(own, _)| *own == prefix) {
                Some((_, hosts)) => hosts.push(host),
                None => self.subscribers.push((prefix, vec![host])),
            }
        }
        self.place(host).expect("just added")
    }
}

/// The addresses of a packet from a host.
struct Outward<'f> {
    settings: &'f Nat64Settings,
    hosts: &'f mut Hosts,
    /// The host whose packet an error is about (19.15).
    receiver: Option<u32>,
}

/// An IPv4 address in one of the prefixes, and the number of the prefix.
fn extracted(settings: &Nat64Settings, address: u128) -> Result<(usize, u32), Refusal> {
    let mut all = settings.prefixes.iter().enumerate();
    let found = all.find_map(|(number, prefix)| Some((number, extract(*prefix, address)?)));
    let (number, ipv4) = found.ok_or(DropReason::Untranslatable)?;
    match is_refused(settings.prefixes[number], ipv4, settings.non_global) {
        true => Err(DropReason::NotGlobal.into()), // 19.12
        false => Ok((number, ipv4)),
    }
}

impl Addresses for Outward<'_> {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        if place == Place::Packet {
            let (prefix, remote) = extracted(self.settings, destination)?;
            let host = self.hosts.place_or_new(source, self.settings.subscriber_length);
            self.hosts.prefixes.insert((host, remote), prefix);
            return Ok((host, remote));
        }
        let no_session = DropReason::IcmpNoSession;
        if place == Place::Error {
            let receiver = self.receiver.ok_or(no_session)?;
            return Ok((receiver, extracted(self.settings, destination)?.1));
        }
        let host = self.hosts.known(destination).ok_or(no_session)?;
        Ok((extracted(self.settings, source)?.1, host))
    }

    fn to_ipv6(&mut self, _: Place, _: u32, _: u32) -> Result<(u128, u128), Refusal> {
        unreachable!("the packet goes to IPv4")
    }
}

/// The addresses of a packet to a host.
struct Inward<'f> {
    settings: &'f Nat64Settings,
    hosts: &'f Hosts,
    own: u128,
    /// True if the packet is an error that the translator made.
    is_own: bool,
    /// The remote address that an error is about.
    about: u32,
}

impl Inward<'_> {
    fn host(&self, place: u32) -> Result<u128, Refusal> {
        Ok(self.hosts.host(place).ok_or(DropReason::NoMapping)?)
    }

    fn prefix(&self, host: u32, remote: u32) -> natgate_ipv6::Pref64 {
        let number = self.hosts.prefixes.get(&(host, remote)).copied();
        self.settings.prefixes[number.unwrap_or(0)]
    }
}

impl Addresses for Inward<'_> {
    fn to_ipv4(&mut self, _: Place, _: u128, _: u128) -> Result<(u32, u32), Refusal> {
        unreachable!("the packet goes to IPv6")
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        let far = |host, remote| embed(self.prefix(host, remote), remote);
        match place {
            Place::Packet => Ok((far(destination, source), self.host(destination)?)),
            Place::Quoted => Ok((self.host(source)?, far(source, destination))),
            Place::Error => {
                let prefix = self.prefix(destination, self.about);
                let is_refused = is_refused(prefix, source, self.settings.non_global);
                let is_own = self.is_own || is_refused;
                let source = if is_own { self.own } else { embed(prefix, source) };
                Ok((source, self.host(destination)?))
            }
        }
    }
}

impl Families {
    pub(crate) fn nat64_claims(&self, destination: u128) -> bool {
        let prefixes = self.settings.nat64.iter().flat_map(|nat64| &nat64.prefixes);
        prefixes.into_iter().any(|prefix| extract(*prefix, destination).is_some())
    }

    /// The number of NAT64's realm.
    pub(crate) fn realm(&self) -> Option<u16> {
        self.settings.nat64.as_ref().map(|_| self.config.realms.len() as u16)
    }

    /// Forgets the hosts of NAT64 that do not count any more, by the translator's choice. Returns a
    /// host that has a mapping and must not be forgotten.
    pub fn forget_hosts(&mut self, counts: impl Fn(u128) -> bool) -> Option<u128> {
        let all = self.hosts.subscribers.iter().flat_map(|(_, hosts)| hosts);
        self.hosts.gone = all.copied().filter(|host| !counts(*host)).collect();
        let realm = self.realm()?;
        let mappings = self.ipv4.mappings();
        let mut places = mappings.iter().filter(|one| one.id.realm == realm);
        let host_of = |place: Ipv4Addr| self.hosts.host(place.to_bits());
        places.find_map(|one| {
            host_of(one.id.internal.address).filter(|host| self.hosts.gone.contains(host))
        })
    }

    /// The address that stands for a host in the realm.
    pub fn place_of(&self, host: u128) -> Option<Ipv4Addr> {
        self.hosts.place(host).map(Ipv4Addr::from_bits)
    }

    fn nat64_conversion(&self) -> ConvertSettings {
        ConvertSettings { mtu_ipv4: u16::MAX, ..self.conversion(Side::Inside, Hops::Keep) }
    }

    /// A packet from inside to one of the prefixes.
    pub(crate) fn take_nat64(
        &mut self,
        now: Timestamp,
        received: &[u8],
        choice: Option<Endpoint>,
    ) -> (Option<Departure>, Effects) {
        let bytes = match self.translate_from_host(received) {
            Ok(bytes) => bytes,
            Err(refusal) => {
                let none = self.settle(now, Side::Inside, received, Err(refusal));
                return (none, Effects::default());
            }
        };
        let realm = self.realm().expect("there is NAT64");
        let before = self.ipv4.counters().clone();
        let result = self.ipv4.process_in(now, Side::Inside, realm, &bytes, choice);
        // 19.10: the translator of IPv4 has counted a packet without these bytes.
        let (way, outcome) = self.counted_since(&before);
        self.counters.bytes[way][outcome] += (received.len() - bytes.len()) as u64;
        self.depart(received, &before, result)
    }

    /// Direction and outcome of the packet that the translator of IPv4 has just counted.
    fn counted_since(&self, before: &Counters) -> (usize, usize) {
        let after = &self.ipv4.counters().packets;
        let places = (0..after.len()).flat_map(|way| (0..3).map(move |outcome| (way, outcome)));
        let mut counted =
            places.filter(|&(way, outcome)| after[way][outcome] != before.packets[way][outcome]);
        counted.next().expect("each packet is counted once")
    }

    /// The IPv4 packet in the realm.
    fn translate_from_host(&mut self, received: &[u8]) -> Result<Vec<u8>, Refusal> {
        let source = address(received, 8);
        if self.nat64_claims(source) {
            return Err(DropReason::SpoofedSource.into());
        }
        let settings = self.nat64_conversion();
        let nat64 = self.settings.nat64.as_ref().expect("NAT64 claimed the packet");
        let about = quoted_ends(received);
        let is_of = |prefix: &natgate_ipv6::Prefix6| prefix.contains(source.into());
        let is_subscriber = nat64.subscribers.is_empty() || nat64.subscribers.iter().any(is_of);
        if about.is_none() && !is_subscriber {
            return Err(DropReason::NotSubscriber.into());
        }
        if received[7] <= 1 {
            return Err(Refusal::with(DropReason::TtlExceeded, message(3, 0)));
        }
        let receiver = about.and_then(|(_, receiver)| self.hosts.known(receiver));
        let mut addresses = Outward { settings: nat64, hosts: &mut self.hosts, receiver };
        let (bytes, _) = to_ipv4(received, &settings, &mut addresses)?;
        Ok(bytes)
    }

    /// The way on of a packet that the translator of IPv4 has taken, and of the packets that it
    /// made. `received` is the packet that came, `before` were the counters then.
    pub(crate) fn depart(
        &mut self,
        received: &[u8],
        before: &Counters,
        result: crate::Expected,
    ) -> (Option<Departure>, Effects) {
        let crate::Expected { verdict, bytes, realm, mut made } = result;
        self.convert_made(received, &mut made);
        let (side, answers) = match verdict {
            Verdict::Forward(side) => (side, false),
            Verdict::Reply(side) => (side, true),
            _ => return (None, made),
        };
        if side == Side::Outside || self.realm() != Some(realm) {
            let realm = if side == Side::Inside { realm } else { 0 };
            return (Some(Departure { side, realm, answers, packets: vec![bytes] }), made);
        }
        match self.to_host(&bytes, received) {
            Ok(packets) => (Some(Departure { side, realm: 0, answers, packets }), made),
            Err(reason) => {
                self.recount(received.len(), before, reason);
                (None, made)
            }
        }
    }

    /// Counts a packet as dropped that was counted as forwarded or answered.
    fn recount(&mut self, len: usize, before: &Counters, reason: DropReason) {
        let (way, outcome) = self.counted_since(before);
        self.taken_back.packets[way][outcome] += 1;
        self.taken_back.bytes[way][outcome] += len as u64;
        let dropped = Outcome::Dropped as usize;
        self.counters.packets[way][dropped] += 1;
        self.counters.bytes[way][dropped] += len as u64;
        self.counters.drops[reason as usize] += 1;
    }

    /// The packets that the translator of IPv4 made for hosts become packets of IPv6.
    pub(crate) fn convert_made(&mut self, received: &[u8], made: &mut Effects) {
        let realm = self.realm();
        let convert = |mut one: Transmit| {
            if one.side == Side::Inside && Some(one.realm) == realm {
                one.bytes = self.to_host(&one.bytes, received).ok()?.remove(0);
                one.realm = 0;
            }
            Some(one)
        };
        made.transmits =
            std::mem::take(&mut made.transmits).into_iter().filter_map(convert).collect();
    }

    /// A packet to a host, or its fragments.
    fn to_host(&self, bytes: &[u8], received: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
        let nat64 = self.settings.nat64.as_ref().expect("a packet to its realm");
        let four = super::Four::read(bytes, false)?;
        let is_own = four.source == DUMMY && four.transport.protocol == ICMP && four.is_error();
        let quote = four.transport.bytes.get(8..).unwrap_or_default();
        let about = super::Four::read(quote, true).ok().filter(|_| four.is_error());
        let own = self.error_source6(Side::Inside);
        let own = own.unwrap_or_else(|| embed(nat64.prefixes[0], DUMMY));
        let about = about.map_or(four.source, |about| about.destination);
        let mut addresses = Inward { settings: nat64, hosts: &self.hosts, own, is_own, about };
        let settings = self.nat64_conversion();
        let converted = to_ipv6(bytes, &settings, &mut addresses);
        let (mut bytes, limit): (Vec<u8>, Option<Limit>) = converted.map_err(|one| one.reason)?;
        if is_own && four.transport.bytes.starts_with(&[3, 1]) {
            tell_address_unreachable(&mut bytes);
        }
        // 19.17: the error quotes the packet as received, if it is about this packet.
        let is_six = received.first().is_some_and(|first| first >> 4 == 6);
        if is_own && is_six && received[8..24] == bytes[24..40] {
            let word = u32::from_be_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]);
            let message = ErrorMessage::new(bytes[40], bytes[41], word);
            return Ok(vec![self.error6(own, received, message)]);
        }
        Ok(match limit {
            Some(limit) => fragments::cut(&bytes, limit),
            None => vec![bytes],
        })
    }
}

/// Has an own error say that the address is unreachable (19.17).
fn tell_address_unreachable(bytes: &mut [u8]) {
    bytes[41] = 3;
    super::words::put(bytes, 42, 0);
    let ends = (address(bytes, 8), address(bytes, 24));
    let checksum = super::words::checksum_of(super::words::total_icmpv6(ends, &bytes[40..]));
    super::words::put(bytes, 42, checksum);
}

/// Source and destination of the packet that an ICMPv6 error quotes.
fn quoted_ends(bytes: &[u8]) -> Option<(u128, u128)> {
    let six = Six::read(bytes, false).ok().filter(Six::is_error)?;
    let quote = six.transport.bytes.get(8..)?;
    let is_six = quote.len() >= 40 && quote[0] >> 4 == 6;
    is_six.then(|| (address(quote, 8), address(quote, 24)))
}
