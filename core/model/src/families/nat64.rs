//! NAT64 (specification, 19.11 to 19.17; RFC 6146): a packet of an inside host is translated to
//! IPv4 as a packet of a realm, in which an address stands for each host (`hosts`). Errors find a
//! host only while it counts (19.13). The limits of 19.13 are not modelled.

use super::headers::{Six, address, to_ipv4, to_ipv6};
use super::hosts::{Host, Hosts};
use super::siit::{embed, extract, is_refused};
use super::{Departure, Families, Limit, fragments, message};
use crate::Effects;
use natgate_engine::{DropReason, Endpoint, Side, Timestamp, Verdict};
use natgate_ipv6::Nat64Settings;
use natgate_ipv6::convert::{Addresses, ConvertSettings, ErrorMessage, Hops, Place, Refusal};
use natgate_wire::protocol::ICMP;
use std::collections::BTreeMap;

/// Source of the translator's own errors to hosts (8.4).
const DUMMY: u32 = 0xc000_0008;

/// The number of the prefix by which a host last reached a remote address (19.14).
pub(crate) type Prefixes = BTreeMap<(u32, u32), usize>;

/// The hosts of static mappings, which count from the start (19.13).
pub(crate) fn first_hosts(nat64: &Nat64Settings) -> Hosts {
    let mut hosts = Hosts::new((128 - nat64.subscriber_length).min(8));
    for host in &nat64.static_hosts {
        hosts.place_or_new(host_of(nat64, host.address.to_bits()));
    }
    hosts
}

/// The host that has an address.
pub(crate) fn host_of(nat64: &Nat64Settings, address: u128) -> Host {
    let length = u32::from(nat64.subscriber_length);
    (address & !u128::MAX.checked_shr(length).unwrap_or(0), address)
}

/// The place of a host and a remote address, and the number of the prefix between them.
type Reached = ((u32, u32), usize);

/// The addresses of a packet from a host.
struct Outward<'f> {
    settings: &'f Nat64Settings,
    hosts: &'f mut Hosts,
    /// The sender, a remote address, and the number of the prefix by which it reaches that.
    reached: Option<Reached>,
    /// The host whose packet an error is about (19.15).
    receiver: Option<u32>,
}

/// An IPv4 address in one of the prefixes, and the number of the prefix.
pub(crate) fn extracted(settings: &Nat64Settings, address: u128) -> Result<(usize, u32), Refusal> {
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
            let host = self.hosts.place_or_new(host_of(self.settings, source));
            self.reached = Some(((host, remote), prefix));
            return Ok((host, remote));
        }
        let no_session = DropReason::IcmpNoSession;
        if place == Place::Error {
            let receiver = self.receiver.ok_or(no_session)?;
            return Ok((receiver, extracted(self.settings, destination)?.1));
        }
        let host = self.hosts.known(host_of(self.settings, destination)).ok_or(no_session)?;
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
    prefixes: &'f Prefixes,
    own: u128,
    /// True if the packet is an error that the translator made.
    is_own: bool,
    /// The remote address that an error is about.
    about: u32,
}

impl Inward<'_> {
    fn host(&self, place: u32) -> Result<u128, Refusal> {
        let (_, address) = self.hosts.host(place).ok_or(DropReason::NoMapping)?;
        Ok(address)
    }

    fn prefix(&self, host: u32, remote: u32) -> natgate_ipv6::Pref64 {
        let number = self.prefixes.get(&(host, remote)).copied();
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
        let (bytes, reached) = match self.translate_from_host(received) {
            Ok(translated) => translated,
            Err(refusal) => {
                let none = self.settle(now, Side::Inside, received, Err(refusal));
                return (none, Effects::default());
            }
        };
        let realm = self.nat64_realm().expect("there is NAT64");
        let before = self.ipv4.counters().clone();
        let result = self.ipv4.process_in(now, Side::Inside, realm, &bytes, choice);
        if !matches!(result.verdict, Verdict::Drop(_) | Verdict::Held) {
            self.prefixes.extend(reached); // 19.14
        }
        // 19.10: the translator of IPv4 has counted a packet without these bytes.
        let (way, outcome) = self.counted_since(&before);
        self.counters.bytes[way][outcome] += (received.len() - bytes.len()) as u64;
        self.depart(received, &before, result)
    }

    /// The IPv4 packet in the realm.
    fn translate_from_host(
        &mut self,
        received: &[u8],
    ) -> Result<(Vec<u8>, Option<Reached>), Refusal> {
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
        let receiver = about.and_then(|(_, receiver)| self.hosts.known(host_of(nat64, receiver)));
        let hosts = &mut self.hosts;
        let mut addresses = Outward { settings: nat64, hosts, reached: None, receiver };
        let (bytes, _) = to_ipv4(received, &settings, &mut addresses)?;
        Ok((bytes, addresses.reached))
    }

    /// A packet to a host, or its fragments. `received` is the packet that came. `is_made`: the
    /// translator of IPv4 has made the packet.
    pub(crate) fn to_nat64_host(
        &self,
        nat64: &Nat64Settings,
        (bytes, is_made): (&[u8], bool),
        received: &[u8],
    ) -> Result<Vec<Vec<u8>>, DropReason> {
        let four = super::Four::read(bytes, false)?;
        let is_error = four.transport.protocol == ICMP && four.is_error();
        let is_own = is_made && four.source == DUMMY && is_error;
        let quote = four.transport.bytes.get(8..).unwrap_or_default();
        let about = super::Four::read(quote, true).ok().filter(|_| four.is_error());
        let own = self.error_source6(Side::Inside);
        let own = own.unwrap_or_else(|| embed(nat64.prefixes[0], DUMMY));
        let about = about.map_or(four.source, |about| about.destination);
        let (hosts, prefixes) = (&self.hosts, &self.prefixes);
        let mut addresses = Inward { settings: nat64, hosts, prefixes, own, is_own, about };
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
