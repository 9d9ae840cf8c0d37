//! The translation between the families (specification, section 19) and DS-Lite (20.20 to 20.25):
//! [`Families`] decides which table claims a packet. Its files: the headers of RFC 7915 (`headers`,
//! `transport`, `quotation`), the gateway's own errors (`errors`, `complaint`), SIIT (`siit`), the
//! CLAT (`clat`), prefixes of NPTv6 (`nptv6`), the filter (`filter`), NAT64 (`nat64`), tunnels
//! (`dslite`, `reassembly`), and the hosts of both in the translator of IPv4 (`hosts`, `realm`),
//! with their requests (`requests`). `words` has the arithmetic.
//!
//! The identifications of IPv4 packets that have none in IPv6 are left open: they are 0 here.

mod amended;
mod clat;
mod complaint;
mod dslite;
mod errors;
mod filter;
mod fragments;
mod headers;
mod hosts;
mod nat64;
mod nptv6;
mod quotation;
mod realm;
mod reassembly;
mod requests;
mod siit;
mod transport;
mod words;

pub use fragments::Limit;
pub use headers::{HEADROOM, Translated, to_ipv4, to_ipv6};
pub use hosts::Host;

use crate::errors::ErrorRates;
use crate::{Effects, Model, StillHeld, Transmit};
use filter::{Endpoints, Refused};
use headers::{Four, Six};
use natgate_engine::{Config, Counters, Direction, DropReason, Endpoint, Outcome, Side, Timestamp};
use natgate_ipv6::convert::{ConvertSettings, ErrorMessage, Hops, Refusal};
use natgate_ipv6::{Nptv6Settings, Settings};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The reference translator of both families.
#[derive(Clone, Debug)]
pub struct Families {
    settings: Settings,
    /// The configuration of the translator of IPv4.
    config: Config,
    /// The translator of IPv4 (2 to 18).
    pub ipv4: Model,
    /// Hosts of NAT64, and hosts behind tunnels.
    hosts: hosts::Hosts,
    tunneled: hosts::Hosts,
    /// Prefixes of NAT64 by which hosts reach remote addresses.
    prefixes: nat64::Prefixes,
    tunnels: dslite::Tunnels,
    /// Endpoints inside that have sent packets (19.24).
    endpoints: Endpoints,
    /// Hosts that have sent packets, and the end of the time without packets (19.24).
    senders: BTreeMap<u128, u64>,
    refused: Refused,
    /// Rates of own errors (19.9): of those that tell of narrow paths, and of all others.
    too_big: ErrorRates,
    errors: ErrorRates,
    /// Counts what the translator of IPv4 does not count.
    counters: Counters,
    /// Packets that the translator of IPv4 has counted and that were lost afterwards.
    taken_back: Counters,
    made: Vec<Transmit>,
}

/// A packet that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The side to send it by.
    pub side: Side,
    /// The realm to send it to, if it is IPv4 and leaves by the inside.
    pub realm: u16,
    /// True if the packet answers the one that came.
    pub answers: bool,
    /// The packet, or its fragments if it is too long (19.7).
    pub packets: Vec<Vec<u8>>,
}

/// Everything that follows from a packet.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The packet that leaves.
    pub departure: Option<Departure>,
    /// Packets of tunnels that waited, or that the gateway made from reports out of tunnels.
    pub released: Vec<Transmit>,
    /// Own errors by section 19.
    pub errors: Vec<Transmit>,
    /// Effects of the translator of IPv4.
    pub made: Effects,
}

/// The way of a packet through section 19.
pub(crate) struct Passed {
    direction: Direction,
    side: Side,
    answers: bool,
    bytes: Vec<u8>,
    /// The limit of its fragments if it is too long.
    limit: Option<Limit>,
}

impl Families {
    /// Makes an empty translator.
    pub fn new(settings: &Settings, config: &Config, now: Timestamp) -> Self {
        Self {
            settings: settings.clone(),
            config: config.clone(),
            ipv4: Model::new(config, now),
            hosts: settings.nat64.as_ref().map(nat64::first_hosts).unwrap_or_default(),
            // 20.21
            tunneled: settings.dslite.as_ref().map(dslite::first_hosts).unwrap_or_default(),
            prefixes: nat64::Prefixes::default(),
            tunnels: dslite::Tunnels::new(settings.dslite.as_ref()),
            endpoints: Endpoints::default(),
            senders: BTreeMap::new(),
            refused: Refused::default(),
            too_big: ErrorRates::default(),
            errors: ErrorRates::default(),
            counters: Counters::default(),
            taken_back: Counters::default(),
            made: Vec::new(),
        }
    }

    /// Exchanges the pairs of prefixes of NPTv6 (19.22).
    pub fn exchange_pairs(&mut self, pairs: Vec<Nptv6Settings>) {
        self.settings.nptv6 = pairs;
    }

    /// The counters since the start.
    pub fn counters(&self) -> Counters {
        let (mut sum, others) = (self.ipv4.counters().clone(), &self.counters);
        sum.add(others);
        let ways = sum.packets.iter_mut().chain(&mut sum.bytes).flatten();
        let back = self.taken_back.packets.iter().chain(&self.taken_back.bytes).flatten();
        ways.zip(back).for_each(|(count, back)| *count -= back);
        sum
    }

    /// Takes a packet of either family. `choice` is the external endpoint of the mapping that the
    /// engine made for the packet, if any.
    pub fn take(
        &mut self,
        now: Timestamp,
        from: Side,
        bytes: &[u8],
        choice: Option<Endpoint>,
    ) -> Taken {
        self.expire_tunnels(now);
        self.answer_refused(now);
        let (departure, made) = match bytes.first().map(|first| first >> 4) {
            Some(6) if self.is_for_dslite(from, bytes) => {
                let len = 40 + usize::from(words::word(bytes, 4));
                self.take_dslite(now, &bytes[..len], choice)
            }
            Some(6) if self.is_for_nat64(from, bytes) => {
                let len = 40 + usize::from(words::word(bytes, 4));
                self.take_nat64(now, &bytes[..len], choice)
            }
            Some(6) => (self.take_ipv6(now, from, bytes), Effects::default()),
            _ if self.is_ours(from, bytes) => {
                (self.take_ipv4(now, from, bytes), Effects::default())
            }
            _ => {
                let is_whole = Four::read(bytes, false).is_ok();
                let len = if is_whole { words::word(bytes, 2).into() } else { bytes.len() };
                let amended = self.amended(now, from, bytes, choice);
                match amended {
                    Some(Err(refusal)) => {
                        let refused = self.settle(now, from, &bytes[..len], Err(refusal));
                        (refused, Effects::default())
                    }
                    amended => {
                        let amended = amended.and_then(Result::ok);
                        let before = self.ipv4.counters().clone();
                        let taken = amended.as_deref().unwrap_or(bytes);
                        let result = self.ipv4.process(now, from, taken, choice);
                        self.depart(&bytes[..len], &before, result)
                    }
                }
            }
        };
        let (released, errors) =
            (std::mem::take(&mut self.tunnels.released), std::mem::take(&mut self.made));
        Taken { departure, released, errors, made }
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Timestamp, still_held: Option<StillHeld<'_>>) -> Effects {
        self.expire_tunnels(now);
        self.answer_refused(now);
        let mut made = self.ipv4.advance(now, still_held);
        self.convert_made(&[], &mut made);
        made.transmits.append(&mut self.made);
        made
    }

    /// True if a packet of IPv6 passes the checks and NAT64 claims it.
    fn is_for_nat64(&self, from: Side, bytes: &[u8]) -> bool {
        let Ok(whole) = self.check_ipv6(bytes) else { return false };
        let destination = headers::address(whole, 24);
        from == Side::Inside && !self.is_own_ipv6(destination) && self.nat64_claims(destination)
    }

    /// True if a packet of IPv6 passes the checks and is for the end of the tunnels.
    fn is_for_dslite(&self, from: Side, bytes: &[u8]) -> bool {
        let Ok(whole) = self.check_ipv6(bytes) else { return false };
        from == Side::Inside
            && self.is_aftr(headers::address(whole, 24))
            && !self.nat64_claims(headers::address(whole, 8)) // 19.12
    }

    /// False for a fragment that sections 2 to 18 would treat: the model knows none.
    pub fn is_modelled(&self, from: Side, bytes: &[u8]) -> bool {
        if self.is_for_dslite(from, bytes) {
            return dslite::is_modelled(bytes);
        }
        if self.is_for_nat64(from, bytes) {
            let six = Six::read(bytes, false);
            return six.map_or(true, |six| !six.is_fragment() && !quotes_padding(&six));
        }
        let is_fragment = Four::read(bytes, false).is_ok_and(|four| four.is_fragment());
        !is_fragment || self.is_ours(from, bytes)
    }

    /// Counts a packet once (19.10) and makes the error about a dropped one (19.9). The packet is
    /// `received` bytes long.
    fn settle(
        &mut self,
        now: Timestamp,
        from: Side,
        received: &[u8],
        passed: Result<Passed, Refusal>,
    ) -> Option<Departure> {
        match passed {
            Ok(Passed { direction, side, answers, bytes, limit }) => {
                let outcome = if answers { Outcome::Replied } else { Outcome::Forwarded };
                self.counters.count(direction, outcome, received.len());
                let packets = match limit {
                    Some(limit) => fragments::cut(&bytes, limit),
                    None => vec![bytes],
                };
                Some(Departure { side, realm: 0, answers, packets })
            }
            Err(Refusal { reason, error }) => {
                let direction = match reason {
                    DropReason::LocalUnsupported => Direction::Local,
                    _ if from == Side::Inside => Direction::Outbound,
                    _ => Direction::Inbound,
                };
                self.counters.count_drop(direction, reason, received.len());
                if let Some(message) = error {
                    self.answer(now, from, received, message);
                }
                None
            }
        }
    }

    fn own_ipv6(&self, side: Side) -> Option<u128> {
        let link = match side {
            Side::Inside => self.settings.inside,
            Side::Outside => self.settings.outside,
        };
        link.address.map(|(address, _)| address.to_bits())
    }

    fn own_ipv4(&self, side: Side) -> Option<Ipv4Addr> {
        match side {
            Side::Inside => self.config.inside.address,
            Side::Outside => self.config.outside.address,
        }
    }

    fn is_own_ipv6(&self, address: u128) -> bool {
        [Side::Inside, Side::Outside].iter().any(|side| self.own_ipv6(*side) == Some(address))
    }

    fn mtu(&self, side: Side) -> u16 {
        match side {
            Side::Inside => self.settings.inside.mtu,
            Side::Outside => self.settings.outside.mtu,
        }
    }

    /// The settings of RFC 7915 between IPv6 on a side and IPv4 on the other.
    fn conversion(&self, ipv6: Side, hops: Hops) -> ConvertSettings {
        let mtu_ipv6 = self.mtu(ipv6).max(1280);
        self.settings.conversion.between(mtu_ipv6, self.mtu(ipv6.other()), hops)
    }

    /// 19.2, 19.3 and 19.4.
    fn take_ipv6(&mut self, now: Timestamp, from: Side, received: &[u8]) -> Option<Departure> {
        let whole = match self.check_ipv6(received) {
            Ok(whole) => whole,
            Err(reason) => return self.settle(now, from, received, Err(reason.into())),
        };
        let destination = headers::address(whole, 24);
        let is_inside = from == Side::Inside;
        let is_clats = !is_inside && self.clat_claims_ipv6(destination);
        if self.nat64_claims(headers::address(whole, 8)) && !is_clats {
            return self.settle(now, from, whole, Err(DropReason::SpoofedSource.into()));
        }
        let is_own = self.is_own_ipv6(destination);
        let is_end = !is_inside && self.is_aftr(destination); // 20.2
        let passed = if is_own || is_end {
            let passed = local(from, whole);
            if passed.is_err() && is_own {
                let complaint = complaint::check_headers(whole).err();
                let complaint = complaint.unwrap_or_else(|| complaint::unknown_protocol(whole));
                self.complain(now, from, whole, complaint);
            }
            passed
        } else if is_inside && self.siit_claims_ipv6(destination) {
            self.siit_to_ipv4(whole)
        } else if !is_inside && self.clat_claims_ipv6(destination) {
            self.clat_to_ipv4(whole)
        } else {
            self.route(now, from, whole)
        };
        self.settle(now, from, whole, passed)
    }

    /// 19.2. Returns the packet without bytes behind it.
    fn check_ipv6<'p>(&self, bytes: &'p [u8]) -> Result<&'p [u8], DropReason> {
        let len = match bytes.len() {
            0..40 => return Err(DropReason::BadLength),
            _ => 40 + usize::from(words::word(bytes, 4)),
        };
        let whole = bytes.get(..len).ok_or(DropReason::BadLength)?;
        let (source, destination) = (headers::address(whole, 8), headers::address(whole, 24));
        let is_local = self.is_own_ipv6(destination);
        if is_martian(source) || is_link_local(source) && !is_local {
            return Err(DropReason::MartianSource);
        }
        if is_martian(destination) || is_link_local(destination) && !is_local {
            return Err(DropReason::MartianDestination);
        }
        if self.is_own_ipv6(source) {
            return Err(DropReason::SpoofedSource);
        }
        if source == destination { Err(DropReason::Land) } else { Ok(whole) }
    }

    /// 19.5: true if a packet of IPv4 does not belong to sections 2 to 18.
    fn is_ours(&self, from: Side, bytes: &[u8]) -> bool {
        let is_readable = match Four::read(bytes, false) {
            Err(DropReason::BadHeaderChecksum) | Ok(_) => true,
            Err(_) => false,
        };
        if !is_readable {
            return false;
        }
        let (source, destination) = addresses(bytes);
        let is_own = |side| self.own_ipv4(side) == Some(destination);
        let in_range =
            |range: natgate_engine::AddressRange| (range.first..=range.last).contains(&destination);
        let is_external = self.config.external_ranges().into_iter().any(in_range);
        if is_own(Side::Inside) || is_own(Side::Outside) || is_external {
            return false;
        }
        match from {
            Side::Outside => self.siit_claims_ipv4((source, destination)),
            Side::Inside => self.clat_claims_ipv4(source),
        }
    }

    fn take_ipv4(&mut self, now: Timestamp, from: Side, received: &[u8]) -> Option<Departure> {
        let whole = &received[..usize::from(words::word(received, 2))];
        let passed = match check_ipv4(whole) {
            Err(reason) => Err(reason.into()),
            Ok(()) if from == Side::Outside => self.siit_to_ipv6(whole),
            Ok(()) => self.clat_to_ipv6(whole),
        };
        self.settle(now, from, whole, passed)
    }
}

/// True if an ICMPv6 error quotes a TCP header that ends before its checksum, and has extensions
/// behind it. The zeros that RFC 4884 puts in between are translated as if they were the checksum,
/// which then depends on the address that stands for the host.
fn quotes_padding(six: &Six) -> bool {
    let Some([_, _, _, _, words, _, _, _, body @ ..]) = six.transport.bytes.get(..) else {
        return false;
    };
    let quoted = body.get(..usize::from(*words) * 8).unwrap_or_default();
    let quoted = Six::read(quoted, true).map(|quoted| quoted.transport);
    let is_cut = |quoted: transport::Transport| quoted.protocol == 6 && quoted.bytes.len() < 18;
    six.is_error() && *words > 0 && quoted.is_ok_and(is_cut)
}

fn addresses(bytes: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
    let at = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    (at(12), at(16))
}

/// 2.4, 2.6 and 2.7.
fn check_ipv4(bytes: &[u8]) -> Result<(), DropReason> {
    let four = Four::read(bytes, false)?;
    let (source, destination) = (four.source, four.destination);
    // 19.5: an ICMP error may have any source.
    if crate::bytes::is_martian(source) && !four.quotes() {
        return Err(DropReason::MartianSource);
    }
    if crate::bytes::is_martian(destination) {
        return Err(DropReason::MartianDestination);
    }
    if source == destination { Err(DropReason::Land) } else { Ok(()) }
}

/// 19.3: the answer to an echo request.
fn local(from: Side, bytes: &[u8]) -> Result<Passed, Refusal> {
    let unsupported = Refusal::silent(DropReason::LocalUnsupported);
    let six = Six::read(bytes, false).map_err(|_| unsupported)?;
    let message = six.transport.bytes;
    let is_request = six.transport.protocol == 58
        && message.len() >= 8
        && message[0] == 128
        && six.fragment.is_none()
        && six.segments_left.is_none()
        && words::total_icmpv6(six.ends(), message).is_multiple_of(0xffff);
    if !is_request || complaint::check_headers(bytes).is_err() {
        return Err(unsupported);
    }
    let mut reply = bytes.to_vec();
    reply[7] = 64;
    reply[8..40].copy_from_slice(&words::pair6((six.destination, six.source)));
    reply[six.at] = 129;
    words::put(&mut reply, six.at + 2, 0);
    let checksum = words::checksum_of(words::total_icmpv6(six.ends(), &reply[six.at..]));
    words::put(&mut reply, six.at + 2, checksum);
    let direction = Direction::Local;
    Ok(Passed { direction, side: from, answers: true, bytes: reply, limit: None })
}

/// 19.2: the unspecified address, loopback, multicast, addresses mapped from IPv4.
fn is_martian(address: u128) -> bool {
    address <= 1 || address >> 120 == 0xff || address >> 32 == 0xffff
}

fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// A message that says nothing but its type and code.
fn message(kind: u8, code: u8) -> ErrorMessage {
    ErrorMessage::new(kind, code, 0)
}
