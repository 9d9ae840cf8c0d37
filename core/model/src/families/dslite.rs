//! DS-Lite (specification, 20.20 to 20.25; RFC 6333): a packet leaves its tunnel, an address that
//! stands for its host becomes its source, and the translator of IPv4 takes it as a packet of a
//! realm. A packet to a host gets the host's own address again, and an outer header.

use super::complaint::{Complaint, check_headers, unknown_protocol};
use super::errors::{error4, may_answer};
use super::headers::{Four, Six};
use super::hosts::{Host, Hosts};
use super::reassembly::{Lost, Waiting, Whole};
use super::words::{moved, pair6, put, total, total_icmpv6, word};
use super::{Departure, Families, Limit, fragments, local, message};
use crate::bytes::is_martian;
use crate::chapters::lower_mss;
use crate::{Effects, Transmit};
use natgate_engine::{
    Counters, Direction, DropReason, Endpoint, ExplicitError, Outcome, Prefix, Refusal, Side,
    Timestamp, Verdict,
};
use natgate_ipv6::convert::ErrorMessage;
use natgate_ipv6::softwire::DsliteSettings;
use natgate_ipv6::{Prefix6, requester_of};
use natgate_wire::protocol::{DCCP, ICMP, ICMPV6, TCP, UDP, UDP_LITE};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The next header of IPv4.
const IPV4: u8 = 4;
/// Time that the width of a path is remembered, nanoseconds.
const WIDTH_LIFE: u64 = 600_000_000_000;
/// Most hosts of a B4, and hosts that there is room for, for each B4.
const HOSTS: (usize, usize) = (256, 16);

/// What the gateway remembers of tunnels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunnels {
    waiting: Waiting,
    /// Widths of the paths to B4s, and the end of the time that they are remembered.
    widths: BTreeMap<u128, (u16, u64)>,
    /// The B4 of each subscriber, and the time of its last change, nanoseconds.
    ends: BTreeMap<u128, (u128, Option<u64>)>,
    /// Packets that leave without answering or following the one that came.
    pub(crate) released: Vec<Transmit>,
}

/// An IPv4 packet in its tunnel.
struct Arrived<'p> {
    b4: u128,
    class: u8,
    inner: &'p [u8],
}

impl Tunnels {
    /// The tunnels of hosts of static mappings, which have not sent (20.27).
    pub(crate) fn new(dslite: Option<&DsliteSettings>) -> Self {
        let mut ends = BTreeMap::new();
        if let Some(dslite) = dslite {
            for b4 in dslite.static_hosts.iter().map(|host| host.address.to_bits()) {
                ends.entry(subscriber(dslite, b4)).or_insert((b4, None));
            }
        }
        Self { ends, ..Self::default() }
    }

    /// Forgets the B4s of subscribers without hosts.
    pub(crate) fn forget(&mut self, hosts: &Hosts) {
        let count: BTreeSet<u128> = hosts.counting().map(|(subscriber, _)| subscriber).collect();
        self.ends.retain(|subscriber, _| count.contains(subscriber));
    }
}

/// 20.21: the subscriber of a B4.
fn subscriber(dslite: &DsliteSettings, b4: u128) -> u128 {
    Prefix6 { address: b4.into(), len: dslite.subscriber_length }.first().to_bits()
}

/// The hosts of static mappings, which count from the start (20.27).
pub(crate) fn first_hosts(dslite: &DsliteSettings) -> Hosts {
    let mut hosts = Hosts::new(8);
    for host in &dslite.static_hosts {
        let inner = host.inner.expect("the host has a tunnel").to_bits();
        hosts.place_or_new((subscriber(dslite, host.address.to_bits()), inner.into()));
    }
    hosts
}

/// False for a packet whose IPv4 packet is a fragment, or may be one: the model knows none.
pub(crate) fn is_modelled(bytes: &[u8]) -> bool {
    let Ok(six) = Six::read(bytes, false) else { return true };
    let inner = six.transport.bytes;
    if six.transport.protocol != IPV4 || six.transport.offset > 0 {
        return true;
    }
    let header_len = inner.first().map_or(20, |first| usize::from(first & 15) * 4).max(20);
    let is_complete = !six.is_fragment() || inner.len() >= header_len;
    is_complete && !Four::read(inner, true).is_ok_and(|four| four.is_fragment())
}

impl Families {
    fn dslite(&self) -> &DsliteSettings {
        self.settings.dslite.as_ref().expect("DS-Lite claimed the packet")
    }

    pub(crate) fn is_aftr(&self, address: u128) -> bool {
        self.settings.dslite.as_ref().is_some_and(|own| own.address.to_bits() == address)
    }

    /// Forgets fragments and widths whose time is over.
    pub(crate) fn expire_tunnels(&mut self, now: Timestamp) {
        self.tunnels.widths.retain(|_, (_, until)| *until > now.0);
        for lost in self.tunnels.waiting.expire(now.0) {
            self.lose_fragments(lost);
        }
    }

    fn lose_fragments(&mut self, (packets, bytes, reason): Lost) {
        let (way, dropped) = (Direction::Outbound as usize, Outcome::Dropped as usize);
        self.counters.packets[way][dropped] += packets;
        self.counters.bytes[way][dropped] += bytes;
        self.counters.drops[reason as usize] += packets;
    }

    /// A packet from inside to the gateway's end of the tunnels (20.20).
    pub(crate) fn take_dslite(
        &mut self,
        now: Timestamp,
        received: &[u8],
        choice: Option<Endpoint>,
    ) -> (Option<Departure>, Effects) {
        let checked = check_headers(received);
        let refused = match Six::read(received, false) {
            Err(reason) => reason,
            Ok(six) if six.segments_left.is_some() => DropReason::SegmentsLeft,
            Ok(_) if checked.is_err() => DropReason::LocalUnsupported,
            Ok(six) => match (six.transport.protocol, six.fragment) {
                (IPV4, Some((_, next))) if six.is_fragment() => {
                    match (next, self.is_b4(six.source)) {
                        (IPV4, true) => return (None, self.take_fragment(now, &six, choice)),
                        (IPV4, false) => DropReason::SoftwireSource,
                        _ => DropReason::LocalUnsupported, // the packet has more than IPv4 in it
                    }
                }
                (IPV4, _) => {
                    let class = (word(received, 0) >> 4) as u8;
                    let arrived = Arrived { b4: six.source, class, inner: six.transport.bytes };
                    return self.take_inner(now, &arrived, received.len(), choice);
                }
                (ICMPV6, None) => return self.take_message(now, received, &six, choice),
                _ => DropReason::LocalUnsupported,
            },
        };
        let departure = self.settle(now, Side::Inside, received, Err(refused.into()));
        if refused != DropReason::SoftwireSource {
            let complaint = checked.err().unwrap_or_else(|| unknown_protocol(received));
            self.complain(now, Side::Inside, received, complaint);
        }
        (departure, Effects::default())
    }

    fn is_b4(&self, address: u128) -> bool {
        self.dslite().b4.iter().any(|prefix| prefix.contains(address.into()))
    }

    /// An IPv4 packet out of its tunnel, which is counted with `len` bytes.
    fn take_inner(
        &mut self,
        now: Timestamp,
        arrived: &Arrived<'_>,
        len: usize,
        choice: Option<Endpoint>,
    ) -> (Option<Departure>, Effects) {
        match self.leave_tunnel(now, arrived) {
            Ok(bytes) => self.take_in_realm(now, &bytes, len, choice),
            Err(reason) => {
                self.counters.count_drop(Direction::Outbound, reason, len);
                if matches!(reason, DropReason::PortQuota | DropReason::MappingTableFull) {
                    self.answer_refused_host(now, arrived);
                }
                (None, Effects::default())
            }
        }
    }

    /// 20.21: tells a host that it gets no number.
    fn answer_refused_host(&mut self, now: Timestamp, arrived: &Arrived<'_>) {
        let code = match self.config.refusal {
            Refusal::HostUnreachable => 1,
            Refusal::Prohibited => 13,
            Refusal::Silent => return,
        };
        if self.settings.inside.icmp_errors && !may_answer(arrived.inner) {
            return;
        }
        let aftr = Ipv4Addr::new(192, 0, 0, 1).to_bits();
        let error = error4(aftr, 576, arrived.inner, message(3, code));
        let mut bytes = vec![0x60 | error[1] >> 4, error[1] << 4, 0, 0, 0, 0, IPV4, 64];
        put(&mut bytes, 4, error.len() as u16);
        bytes.extend(pair6((self.dslite().address.to_bits(), arrived.b4)));
        bytes.extend(error);
        let requester = requester_of((arrived.b4 >> 64) as u64);
        self.send_own(now, Side::Inside, requester, Some(bytes));
    }

    /// Has the translator of IPv4 take a packet of the realm.
    fn take_in_realm(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        len: usize,
        choice: Option<Endpoint>,
    ) -> (Option<Departure>, Effects) {
        let realm = self.dslite_realm().expect("there is DS-Lite");
        let before = self.ipv4.counters().clone();
        let result = self.ipv4.process_in(now, Side::Inside, realm, bytes, choice);
        let (way, outcome) = self.counted_since(&before);
        self.counters.bytes[way][outcome] += (len - bytes.len()) as u64;
        self.depart(&vec![0; len], &before, result)
    }

    /// The packet in the realm.
    fn leave_tunnel(
        &mut self,
        now: Timestamp,
        arrived: &Arrived<'_>,
    ) -> Result<Vec<u8>, DropReason> {
        let Arrived { b4, class, inner } = *arrived;
        if !self.is_b4(b4) {
            return Err(DropReason::SoftwireSource);
        }
        let four = Four::read(inner, false)?;
        let host = match four.quotes() {
            true => self.receiver(b4, &four)?,
            false => {
                self.check_source(&four)?;
                (self.subscriber(b4), four.source.into())
            }
        };
        let service = service_behind(inner[1], class)?;
        let place = match four.quotes() {
            true => self.tunneled.place_or_new(host),
            false => self.place_behind(now, b4, host)?,
        };
        let mut bytes = inner[..four.total_len].to_vec();
        bytes[1] = service;
        move_checksum(&mut bytes, 10, inner[1].into(), service.into());
        readdress(&mut bytes, Side::Inside, place);
        if let Some(mss) = self.config.tcp_mss {
            lower_mss(&mut bytes, mss.min(self.tunnel_width() - 80)); // 20.25
        }
        Ok(bytes)
    }

    fn subscriber(&self, b4: u128) -> u128 {
        subscriber(self.dslite(), b4)
    }

    /// 20.21: the address for a host that sends through a tunnel, to which its subscriber moves.
    pub(crate) fn place_behind(
        &mut self,
        now: Timestamp,
        b4: u128,
        host: Host,
    ) -> Result<u32, DropReason> {
        let known = self.tunnels.ends.get(&host.0).copied();
        let is_change = known.is_some_and(|(known, _)| known != b4);
        if !self.may_send_from(now, b4) {
            return Err(DropReason::SoftwireSource);
        }
        self.check_room(host)?;
        if is_change || known.is_none() {
            self.tunnels.ends.insert(host.0, (b4, known.map(|_| now.0)));
        }
        Ok(self.tunneled.place_or_new(host))
    }

    /// 20.21: false if the B4 of the subscriber is another one, and has changed too early.
    pub(crate) fn may_send_from(&self, now: Timestamp, b4: u128) -> bool {
        let Some((known, Some(changed))) = self.tunnels.ends.get(&self.subscriber(b4)) else {
            return true;
        };
        let dslite = self.dslite();
        u128::from(now.0 - changed) >= dslite.b4_change_interval.as_nanos()
            || *known == b4
            || dslite.static_hosts.iter().any(|host| host.address.to_bits() == b4)
    }

    /// 20.21: true for the B4 of a subscriber.
    fn is_end(&self, b4: u128) -> bool {
        self.tunnels.ends.get(&self.subscriber(b4)).is_some_and(|(known, _)| *known == b4)
    }

    /// 20.21: the host that an error is about.
    fn receiver(&self, b4: u128, four: &Four) -> Result<Host, DropReason> {
        let about = Four::read(&four.transport.bytes[8..], true)?;
        let host = (self.subscriber(b4), about.destination.into());
        let is_known = self.is_end(b4) && self.tunneled.known(host).is_some();
        is_known.then_some(host).ok_or(DropReason::IcmpNoSession)
    }

    /// 20.20: checks that a packet may have this inner source.
    fn check_source(&self, four: &Four) -> Result<(), DropReason> {
        let source = four.source;
        if is_martian(source) {
            return Err(DropReason::MartianSource);
        }
        if !self.may_send(source) {
            return Err(DropReason::NotSubscriber);
        }
        if source == four.destination { Err(DropReason::Land) } else { Ok(()) }
    }

    /// 20.26: the host behind a B4 that requests a mapping.
    pub(crate) fn requester_behind(
        &self,
        b4: u128,
        inner: Ipv4Addr,
    ) -> Result<Host, ExplicitError> {
        if self.settings.dslite.is_none() || !self.is_b4(b4) {
            return Err(ExplicitError::NotSubscriber);
        }
        if is_martian(inner.to_bits()) || !self.may_send(inner.to_bits()) {
            return Err(ExplicitError::NotSubscriber);
        }
        Ok((self.subscriber(b4), inner.to_bits().into()))
    }

    /// True if an inner address is one of those that may send.
    fn may_send(&self, inner: u32) -> bool {
        let well_known = Prefix::new(Ipv4Addr::new(192, 0, 0, 0), 29);
        let is_no_host = well_known.contains(inner) && matches!(inner & 7, 0 | 1 | 7);
        let mut all = self.config.subscribers.iter().chain([&well_known]);
        !is_no_host && all.any(|prefix| prefix.contains(inner))
    }

    /// 20.21 and 19.13: checks that there is room for a host.
    pub(crate) fn check_room(&self, host: Host) -> Result<(), DropReason> {
        if self.tunneled.known(host).is_some() {
            return Ok(());
        }
        let most = self.config.limits.subscribers.map_or(1 << 16, |most| most as usize).max(1);
        let all: Vec<Host> = self.tunneled.counting().collect();
        let mut b4s: Vec<u128> = all.iter().map(|(b4, _)| *b4).collect();
        b4s.dedup();
        let own = all.iter().filter(|(b4, _)| *b4 == host.0).count();
        if all.len() >= (most * HOSTS.1).max(HOSTS.0) || own == 0 && b4s.len() >= most {
            return Err(DropReason::MappingTableFull);
        }
        if own >= HOSTS.0 { Err(DropReason::PortQuota) } else { Ok(()) }
    }

    /// 20.22: a packet to a host, in its tunnel.
    pub(crate) fn to_tunnel(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
        let four = Four::read(bytes, false)?;
        let (subscriber, inner) =
            self.tunneled.host(four.destination).ok_or(DropReason::NoMapping)?;
        let (b4, _) = self.tunnels.ends[&subscriber];
        let mtu = self.width(b4);
        let mut bytes = bytes.to_vec();
        readdress(&mut bytes, Side::Outside, inner as u32);
        if let Some(mss) = self.config.tcp_mss {
            lower_mss(&mut bytes, mss.min(mtu - 80)); // 20.25
        }
        let service = bytes[1];
        let class = self.settings.conversion.traffic_class;
        let class = class.map_or(service, |class| class & !0b11 | service & 0b11); // 20.14
        let mut out = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 0, IPV4, 64];
        put(&mut out, 4, bytes.len() as u16);
        out.extend(pair6((self.dslite().address.to_bits(), b4)));
        out.extend(bytes);
        Ok(match out.len() > mtu.into() {
            true => fragments::cut(&out, Limit { len: mtu.into(), identification: 0 }),
            false => vec![out],
        })
    }

    /// The longest packet to a B4.
    fn width(&self, b4: u128) -> u16 {
        let tunnel = self.tunnel_width();
        self.tunnels.widths.get(&b4).map_or(tunnel, |(width, _)| tunnel.min(*width))
    }

    /// The largest packet of any tunnel.
    fn tunnel_width(&self) -> u16 {
        let link = self.mtu(Side::Inside).max(1280);
        self.dslite().softwire.mtu.map_or(link, |own| own.min(link))
    }

    /// 20.19: a fragment of a packet in a tunnel. All fragments are counted as the packet is.
    fn take_fragment(&mut self, now: Timestamp, six: &Six, choice: Option<Endpoint>) -> Effects {
        let dslite = self.settings.dslite.as_ref();
        let payer = |b4| dslite.map_or(b4, |dslite| subscriber(dslite, b4));
        let whole = match self.tunnels.waiting.take(&self.config, now.0, six, payer) {
            Ok(None) => return Effects::default(),
            Ok(Some(whole)) => whole,
            Err((reason, lost)) => {
                lost.into_iter().for_each(|lost| self.lose_fragments(lost));
                self.counters.count_drop(Direction::Outbound, reason, six.bytes.len());
                let complaint = Self::about_fragment(six, reason);
                self.complain(now, Side::Inside, six.bytes, complaint);
                return Effects::default();
            }
        };
        let Whole { bytes, fragments, received } = whole;
        let class = (word(&bytes, 0) >> 4) as u8;
        let arrived = Arrived { b4: six.source, class, inner: &bytes[40..] };
        let before = self.counters();
        let (departure, made) = self.take_inner(now, &arrived, received, choice);
        self.count_like(&before, fragments - 1);
        self.release(now, departure);
        made
    }

    /// 20.19: the error about a fragment that is part of no packet.
    fn about_fragment(six: &Six, reason: DropReason) -> Complaint {
        let pointer = match reason {
            DropReason::FragmentTiny if !six.transport.bytes.len().is_multiple_of(8) => 4,
            DropReason::FragmentTooLong => six.at as u32 - 8 + 2,
            _ => return None,
        };
        Some(ErrorMessage { word: pointer, ..message(4, 0) })
    }

    /// Counts `more` packets like the one that has been counted since `before`.
    fn count_like(&mut self, before: &Counters, more: u64) {
        let after = self.counters();
        let counted = after.packets.iter().flatten().zip(before.packets.iter().flatten());
        for (count, (after, before)) in self.counters.packets.iter_mut().flatten().zip(counted) {
            *count += if after > before { more } else { 0 };
        }
        let counted = after.drops.iter().zip(&before.drops);
        for (count, (after, before)) in self.counters.drops.iter_mut().zip(counted) {
            *count += if after > before { more } else { 0 };
        }
    }

    fn release(&mut self, now: Timestamp, departure: Option<Departure>) {
        let Some(Departure { side, packets, .. }) = departure else { return };
        let packets = packets.into_iter();
        let packets = packets.map(|bytes| Transmit { time: now, side, realm: 0, bytes });
        self.tunnels.released.extend(packets);
    }

    /// 20.24: an ICMPv6 message to the gateway's end of the tunnels.
    fn take_message(
        &mut self,
        now: Timestamp,
        received: &[u8],
        six: &Six,
        choice: Option<Endpoint>,
    ) -> (Option<Departure>, Effects) {
        if let Ok(passed) = local(Side::Inside, received) {
            return (self.settle(now, Side::Inside, received, Ok(passed)), Effects::default());
        }
        let (b4, mut inner) = match self.report(six) {
            Ok(report) => report,
            Err(reason) => {
                self.counters.count_drop(Direction::Local, reason, received.len());
                return (None, Effects::default());
            }
        };
        let report = six.transport.bytes;
        let subscriber = self.subscriber(b4);
        let host = Four::read(&inner, true).map(|four| (subscriber, four.destination.into()));
        let place =
            host.ok().and_then(|host| self.tunneled.known(host)).expect("a report about it");
        readdress(&mut inner, Side::Outside, place);
        let error = error4(place, 576, &inner, message(3, 1));
        if let Some(width) = width(report) {
            let (mut trial, realm) =
                (self.ipv4.clone(), self.dslite_realm().expect("there is DS-Lite"));
            let tried = trial.process_in(now, Side::Inside, realm, &error, choice);
            if let Verdict::Drop(_) = tried.verdict {
                let unknown = DropReason::IcmpNoSession;
                self.counters.count_drop(Direction::Local, unknown, received.len());
                return (None, Effects::default());
            }
            if self.dslite().softwire.path_mtu {
                let known = self.tunnels.widths.get(&b4).map_or(u16::MAX, |(width, _)| *width);
                let width = known.min(width.min(65_535) as u16);
                self.tunnels.widths.insert(b4, (width, now.0 + WIDTH_LIFE));
            }
            self.counters.count(Direction::Local, Outcome::Replied, received.len());
            return (None, Effects::default());
        }
        let (departure, made) = self.take_in_realm(now, &error, received.len(), choice);
        self.release(now, departure);
        (None, made)
    }

    /// The B4 and the IPv4 packet that an ICMPv6 error quotes: a packet to a host.
    fn report(&self, six: &Six) -> Result<(u128, Vec<u8>), DropReason> {
        let report = six.transport.bytes;
        if report.len() < 8 {
            return Err(DropReason::BadLength);
        }
        if report[0] >= 128 {
            return Err(DropReason::LocalUnsupported);
        }
        if !total_icmpv6(six.ends(), report).is_multiple_of(0xffff) {
            return Err(DropReason::IcmpBadChecksum);
        }
        if width(report).is_some_and(|width| width < 1280) {
            return Err(DropReason::LocalUnsupported); // RFC 8201 section 4
        }
        let unknown = DropReason::IcmpNoSession;
        let quoted = Six::read(&report[8..], true).map_err(|_| unknown)?;
        let is_ours = self.is_aftr(quoted.source)
            && quoted.transport.protocol == IPV4
            && quoted.transport.offset == 0;
        let inner = Some(quoted.transport.bytes).filter(|_| is_ours).ok_or(unknown)?;
        let four = Four::read(inner, true).map_err(|_| unknown)?;
        let host = (self.subscriber(quoted.destination), four.destination.into());
        let is_known = self.is_end(quoted.destination) && self.tunneled.known(host).is_some();
        is_known.then(|| (quoted.destination, inner.to_vec())).ok_or(unknown)
    }
}

/// The width of the path that an ICMPv6 error reports.
fn width(report: &[u8]) -> Option<u32> {
    let halves = [4, 6].map(|at| u32::from(word(report, at)));
    (report[0] == 2).then_some(halves[0] << 16 | halves[1])
}

/// 20.9: the type of service of a packet that leaves a tunnel.
fn service_behind(inner: u8, outer: u8) -> Result<u8, DropReason> {
    let mark = match (inner & 0b11, outer & 0b11) {
        (0, 3) => return Err(DropReason::EcnCongestion),
        (0, _) => 0,
        (_, 3) | (3, _) => 3,
        (2, 1) => 1,
        (own, _) => own,
    };
    Ok(inner & !0b11 | mark)
}

fn move_checksum(bytes: &mut [u8], at: usize, old: u64, new: u64) {
    let value = moved(word(bytes, at), old, new);
    put(bytes, at, value);
}

/// Gives the near end of a packet from a side another address, and the same end of a packet that an
/// ICMP error quotes, which went the other way. Right checksums stay right, and wrong ones wrong.
fn readdress(bytes: &mut [u8], from: Side, address: u32) {
    let at = if from == Side::Inside { 12 } else { 16 };
    let four = Four::read(bytes, true).expect("a header");
    let (protocol, is_later, is_error) =
        (four.transport.protocol, four.transport.offset > 0, four.is_error());
    let begin = 20 + four.options.len();
    let end = begin + four.transport.bytes.len();
    let old = total(&bytes[at..at + 4]);
    put(bytes, at, (address >> 16) as u16);
    put(bytes, at + 2, address as u16);
    let new = total(&bytes[at..at + 4]);
    move_checksum(bytes, 10, old, new);
    let transport = &mut bytes[begin..end];
    let field = match protocol {
        TCP => 16,
        UDP | UDP_LITE | DCCP => 6,
        ICMP if is_error && transport.len() >= 28 => {
            readdress_quote(transport, from, address);
            return;
        }
        _ => return,
    };
    let is_absent = |field: &[u8]| protocol == UDP && field == [0, 0];
    if is_later || transport.len() < field + 2 || is_absent(&transport[field..field + 2]) {
        return;
    }
    move_checksum(transport, field, old, new);
    if matches!(protocol, UDP | UDP_LITE) && word(transport, field) == 0 {
        put(transport, field, 0xffff);
    }
}

fn readdress_quote(message: &mut [u8], from: Side, address: u32) {
    if Four::read(&message[8..], true).is_err() {
        return;
    }
    let old = total(&message[8..]);
    readdress(&mut message[8..], from.other(), address);
    let new = total(&message[8..]);
    move_checksum(message, 2, old, new);
}
