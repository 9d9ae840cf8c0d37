//! The translator of both families: decides which table claims a packet, and has it translated.
//!
//! The order of the questions is that of the specification's chapter on the families. NAT64 hands
//! packets to the engine, as do all IPv4 packets that no other table claims. The translator counts
//! what the engine does not see, so that the counters of both together count each packet once.

use crate::addresses::{is_link_local, is_martian};
use crate::batch::Run;
use crate::check::check_ipv4;
use crate::complaint::{check_headers, unknown_protocol};
use crate::convert::{Converted, Converter, Cut, Hops, Refusal};
use crate::errors::{Errors, Waiting};
use crate::filter::Filter;
use crate::forward::Network;
use crate::insiders::Insiders;
use crate::nat64::Nat64;
use crate::pairs::Pairs;
use crate::quick::{Octets, OwnFolded};
use crate::realms::{self, HostKind, HostRealms};
use crate::settings::{Filter as FilterKind, Settings};
use crate::siit::Siit;
use crate::softwire::Softwires;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use natgate_engine::{
    Config, Counters, Direction, DropReason, Engine, Outcome, Packet, Ranges, Side, Timestamp,
    Verdict,
};
use natgate_wire::{Ipv4, Ipv6};

/// Least MTU of IPv6, bytes.
pub(crate) const LEAST_MTU: u16 = natgate_wire::ipv6::MIN_MTU as u16;
/// Length of the longest ICMPv6 error, bytes.
pub const ERROR_ROOM: usize = natgate_wire::ipv6::MIN_MTU;
/// Endpoints that the filter of RFC 6092 has room for at least.
const FILTER_RECORDS: usize = 1 << 16;

/// Endpoints that the filter of RFC 6092 has room for.
pub(crate) fn filter_records(config: &Config) -> usize {
    FILTER_RECORDS.max(config.session_room() as usize)
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Side to send the packet by.
    pub side: Side,
    /// Realm to send the packet to, if it is IPv4 and leaves by the inside.
    pub realm: u16,
    /// True if the packet answers the one that came.
    pub answers: bool,
    /// The packet is too large: send these fragments instead.
    pub cut: Option<Cut>,
    /// Direction, outcome and length in bytes, as counted.
    pub counted: (Direction, Outcome, usize),
}

/// Result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet in the buffer leaves.
    Send(Departure),
    /// The translator of the receiver has to take the packet, which is IPv4 and comes from this
    /// realm. Its sender's endpoint is translated. Only engines that share the work say so.
    HandOver(u16),
    /// Nothing leaves now. The packet has been counted, or will be by the engine.
    Nothing,
    /// The packet is to an own address, and has been counted as dropped
    /// ([`DropReason::LocalUnsupported`]). The caller may take it nevertheless, and correct the
    /// counters ([`Translator::count_local`]).
    Local,
}

/// The fate of a packet that the engine does not see.
pub(crate) type Taken = Result<(Direction, Side, Option<Cut>), Refusal>;

/// The translator of both families.
#[derive(Clone, Debug)]
pub struct Translator {
    pub(crate) settings: Settings,
    /// Realms of hosts with numbers in the engine.
    pub(crate) realms: HostRealms,
    /// Own IPv4 addresses, inside and outside.
    pub(crate) own_ipv4: [Option<u32>; 2],
    pub(crate) own_folded: OwnFolded,
    pub(crate) mtus: [u16; 2],
    /// Networks that are connected, inside and outside.
    pub(crate) networks: [Network; 2],
    /// Addresses that the engine has for itself.
    externals: Ranges<u32>,
    insiders: Insiders,
    /// First octets of own addresses, of the engine's and of IPv4 hosts inside.
    octets: Octets,
    /// Answer to a host that gets no number.
    pub(crate) refusal: natgate_engine::Refusal,
    pub(crate) nat64: Option<Nat64>,
    pub(crate) siit: Option<Siit>,
    /// Pairs of prefixes of NPTv6.
    pub(crate) pairs: Pairs,
    pub(crate) clat: Converter,
    /// Hosts of IPv4 that the CLAT translates.
    pub(crate) clat_hosts: Ranges<u32>,
    pub(crate) filter: Option<Filter>,
    pub(crate) softwires: Option<Softwires>,
    pub(crate) errors: Errors,
    pub(crate) counters: Counters,
    /// Packets that the engine has counted and that were lost afterwards.
    taken_back: Counters,
    /// The run of packets that is being taken.
    pub(crate) run: Run,
}

/// The gateway's own IPv4 addresses, inside and outside.
fn own_ipv4(config: &Config) -> [Option<u32>; 2] {
    [config.inside.address, config.outside.address].map(|own| own.map(Ipv4Addr::to_bits))
}

impl Translator {
    /// Makes a translator, and adds the realms of NAT64 and DS-Lite to the engine's configuration.
    /// `None`: the settings have nothing about IPv6, and packets of IPv6 are foreign.
    ///
    /// # Errors
    /// A sentence about tables that contradict themselves.
    pub fn new(
        settings: &Settings,
        config: &mut Config,
        seed: [u8; 32],
    ) -> Result<Option<Self>, String> {
        if !settings.configured {
            return Ok(None);
        }
        let mtus = [settings.inside.mtu, settings.outside.mtu];
        let mtu_ipv6 = mtus.map(|mtu| mtu.max(LEAST_MTU));
        let conversion = settings.conversion;
        let converter = |mtu_ipv6, mtu_ipv4, hops| {
            Converter::new(conversion.between(mtu_ipv6, mtu_ipv4, hops), seed)
        };
        let siit = settings.siit.clone().map(|siit| {
            let converter = |hops| converter(mtu_ipv6[0], mtus[1], hops);
            Siit::new(siit, converter(Hops::Decrement), converter(Hops::Keep))
        });
        let realms = realms::add(settings, config);
        let nat64 = settings.nat64.clone().zip(realms.of(HostKind::Nat64));
        let nat64 = nat64.map(|(nat64, realm)| {
            // The engine checks the MTU of the IPv4 side.
            let converter = converter(mtu_ipv6[0], u16::MAX, Hops::Keep);
            Nat64::new(nat64, (realm, settings.share), converter, config, seed)
        });
        let softwires = Softwires::new(settings, realms, config, seed)?;
        let filter = (settings.filter == FilterKind::OutboundOnly)
            .then(|| Filter::new(filter_records(config), config.answer_unsolicited_syn, seed));
        let externals = Ranges::of_ranges(&config.external_ranges());
        let insiders = Insiders::of(config);
        Ok(Some(Self {
            realms,
            octets: insiders.octets(own_ipv4(config), &externals),
            own_ipv4: own_ipv4(config),
            own_folded: OwnFolded::new(settings.own_addresses()),
            mtus,
            networks: [&settings.inside, &settings.outside].map(Network::of),
            externals,
            insiders,
            refusal: config.refusal,
            nat64: nat64.transpose()?,
            siit: siit.transpose()?,
            pairs: Pairs::new(&settings.nptv6).map_err(|overlap| overlap.to_string())?,
            clat_hosts: Ranges::of_ipv4(settings.clat.iter().flat_map(|clat| &clat.subscribers)),
            clat: converter(mtu_ipv6[1], mtus[0], Hops::Decrement),
            filter,
            softwires,
            errors: Errors::new(config.limits.icmp_errors_per_second),
            counters: Counters::default(),
            taken_back: Counters::default(),
            run: Run::default(),
            // A reload exchanges the pairs.
            settings: Settings { nptv6: Vec::new(), ..settings.clone() },
        }))
    }

    /// Takes the addresses and the rate of errors of the engine's new configuration.
    pub fn renew(&mut self, config: &Config) {
        self.own_ipv4 = own_ipv4(config);
        self.externals = Ranges::of_ranges(&config.external_ranges());
        self.insiders = Insiders::of(config);
        self.octets = self.insiders.octets(self.own_ipv4, &self.externals);
        self.refusal = config.refusal;
        self.errors.set_rate(config.limits.icmp_errors_per_second);
        if let Some(softwires) = &mut self.softwires {
            softwires.renew(config);
        }
        if let Some(filter) = &mut self.filter {
            filter.set_answers(config.answer_unsolicited_syn);
        }
    }

    /// Exchanges the pairs of prefixes of NPTv6 as a unit; returns the former ones. Records of the
    /// filter have internal addresses, and stay.
    pub fn exchange_pairs(&mut self, pairs: Pairs) -> Pairs {
        core::mem::replace(&mut self.pairs, pairs)
    }

    /// Counters of the packets that the engine does not see, and of bytes that it does not count.
    /// The counters wrap if they take back more than they have counted, so that the sum with the
    /// engine's is right.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        let ways = counters.packets.iter_mut().chain(&mut counters.bytes).flatten();
        let back = self.taken_back.packets.iter().chain(&self.taken_back.bytes).flatten();
        ways.zip(back).for_each(|(count, back)| *count = count.wrapping_sub(*back));
        counters.errors_suppressed += self.errors.suppressed;
        counters
    }

    /// The oldest packet of the translator's own: its side and its bytes. It is an error, or a
    /// packet of a softwire that was held.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<(Side, usize)> {
        if let Some(softwires) = &mut self.softwires
            && let Some((side, bytes)) = softwires.pop_released()
        {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            return Some((side, bytes.len()));
        }
        let waiting: Waiting = self.errors.pop()?;
        let bytes = waiting.bytes();
        buffer[..bytes.len()].copy_from_slice(bytes);
        self.counters.generated += 1;
        Some((waiting.side, bytes.len()))
    }

    /// The oldest hairpin packet of a tunnel that was held: the realm that it comes from, and its
    /// bytes. [`Fate::HandOver`] says what to do with it.
    pub fn poll_turned(&mut self) -> Option<(u16, Vec<u8>)> {
        self.softwires.as_mut()?.pop_turned()
    }

    /// Does what is due: frees hosts with numbers that have no mappings any more, some in each
    /// call, and queues errors about packets that came a while ago. Call it after each packet, when
    /// the engine's events and packets have been polled.
    pub fn sweep(&mut self, engine: &Engine, now: Timestamp) {
        self.forget_last();
        self.sweep_hosts(engine, now);
        self.advance_softwires(now);
        self.answer_refused(now);
    }

    /// Takes a packet of either family that came in on a side, with
    /// [`HEADROOM`](crate::convert::HEADROOM) bytes before it. The engine takes it where it is
    /// translated by mappings. Poll both for events and packets afterwards.
    //= rfc7915#section-4-order
    //= rfc7915#section-5-order
    pub fn take(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Fate {
        self.forget_last();
        self.take_next(engine, now, from, packet)
    }

    /// Takes a packet of either family. Packets before it are remembered.
    pub(crate) fn take_next(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Fate {
        match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => self.take_ipv6(engine, now, from, packet),
            _ => self.take_ipv4(engine, now, from, packet),
        }
    }

    /// True if a packet of the translator's own waits to be polled.
    pub(crate) fn has_own(&self) -> bool {
        let has_released = |softwires: &Softwires| softwires.has_released();
        !self.errors.is_empty() || self.softwires.as_ref().is_some_and(has_released)
    }

    /// True if [`Translator::take`] has to see a packet that came in on a side, from a realm. Most
    /// other packets are the engine's, and the engine may take many of them at once: all of which
    /// [`Translator::may_change`] says no.
    pub fn claims(&self, from: Side, realm: u16, packet: &[u8]) -> bool {
        if packet.first().is_some_and(|first| first >> 4 == 6) {
            return true;
        }
        let Ok(header) = Ipv4::new_checked(packet) else { return false };
        self.claims_ipv4(from, realm, (header.source(), header.destination()))
    }

    /// True if [`Translator::take`] may have to change an IPv4 packet that no table claims before
    /// the engine takes it.
    pub fn may_change(&self, from: Side, packet: &[u8]) -> bool {
        Ipv4::new_checked(packet).is_ok_and(|header| self.may_amend(from, &header))
    }

    /// True if an IPv4 packet is for a softwire, SIIT or the CLAT. Realms of customers have none of
    /// these.
    pub(crate) fn claims_ipv4(&self, from: Side, realm: u16, ends: (u32, u32)) -> bool {
        let claims = match from {
            Side::Outside => self.claims_softwire_ipv4(ends) || self.claims_siit_ipv4(ends),
            Side::Inside => realm == 0 && self.claims_clat_ipv4(ends.0),
        };
        claims && !self.is_engines(ends.1)
    }

    fn take_ipv6(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Fate {
        let len = packet.len();
        let ends = match self.check(packet) {
            Ok(ends) => ends,
            Err(refusal) => return self.refuse(now, from, packet, len, refusal),
        };
        let len = packet.len();
        if self.loops(from, ends) {
            return self.refuse(now, from, packet, len, DropReason::SpoofedSource.into());
        }
        if from == Side::Inside && self.is_aftr(ends.1) {
            return self.take_dslite(engine, now, packet, ends);
        }
        if from == Side::Inside
            && let Some(fate) = self.take_softwire(now, packet, ends)
        {
            return fate;
        }
        if self.is_local(from, ends.1) {
            return self.take_local((now, from), packet, len);
        }
        //= rfc6146#section-3.5-ipv6
        if from == Side::Inside && self.nat64.as_ref().is_some_and(|nat64| nat64.claims(ends.1)) {
            return self.take_nat64(engine, now, ends.0, packet);
        }
        let taken = if self.claims_siit(from, ends.1) {
            self.siit_to_ipv4(packet)
        } else if from == Side::Outside && self.claims_clat(ends.1) {
            self.clat_to_ipv4(packet)
        } else {
            self.forward(now, from, packet)
        };
        self.settle(now, from, packet, len, taken)
    }

    fn take_ipv4(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Fate {
        let Ok(header) = Ipv4::new_checked(packet.bytes()) else {
            return self.by_engine(engine, now, from, packet);
        };
        let ends = (header.source(), header.destination());
        let len = usize::from(header.total_len());
        let is_odd = self.may_amend(from, &header);
        let is_softwires =
            from == Side::Outside && self.claims_softwire_ipv4(ends) && !self.is_engines(ends.1);
        if !is_softwires && !self.claims_ipv4(from, packet.realm(), ends) {
            let amended = if is_odd { self.amend(engine, now, packet) } else { Ok(()) };
            return match amended {
                Ok(()) => self.by_engine(engine, now, from, packet),
                Err(refusal) => self.refuse(now, from, packet, len, refusal),
            };
        }
        packet.truncate(len);
        let checked = check_ipv4(packet.bytes(), ends);
        if is_softwires {
            return self.take_softwire_ipv4(now, packet, checked);
        }
        let taken = match checked {
            Err(reason) => Err(reason.into()),
            Ok(()) if from == Side::Outside => self.siit_to_ipv6(packet),
            Ok(()) => self.clat_to_ipv6(packet),
        };
        self.settle(now, from, packet, len, taken)
    }

    /// True if the engine has an IPv4 address for itself: an own or an external one.
    pub(crate) fn is_engines(&self, address: u32) -> bool {
        self.own_ipv4.contains(&Some(address)) || self.externals.has(address)
    }

    /// True if an IPv4 address is neither the engine's nor a host's of IPv4 inside, and no near
    /// address is: most are such.
    #[inline(always)]
    pub(crate) fn is_elsewhere(&self, address: u32) -> bool {
        !self.octets.has(address)
    }

    /// True if a packet from outside, with these addresses, is for a host of IPv4 inside: only a
    /// table that names the destination may have the packet.
    #[inline]
    pub(crate) fn is_inside_ipv4(&self, (source, destination): (u32, u32)) -> bool {
        self.insiders.have(source, destination)
    }

    /// Checks an IPv6 packet as every packet is checked, and cuts off bytes after its end.
    #[inline]
    pub(crate) fn check(&self, packet: &mut Packet<'_>) -> Result<(u128, u128), Refusal> {
        let header = Ipv6::new_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        let (source, destination, len) =
            (header.source(), header.destination(), header.total_len());
        packet.truncate(len);
        let own = self.own_addresses();
        let is_own = |address| own.contains(&Some(address));
        // A link-local address may send to the gateway, and be an address of the gateway.
        //= rfc7915#section-5.1-source
        //= rfc6092#REC-1
        if is_martian(source) || is_link_local(source) && !is_own(destination) {
            return Err(DropReason::MartianSource.into());
        }
        //= rfc6092#REC-2
        if is_martian(destination) || is_link_local(destination) && !is_own(destination) {
            return Err(DropReason::MartianDestination.into());
        }
        if is_own(source) {
            return Err(DropReason::SpoofedSource.into());
        }
        if source == destination {
            return Err(DropReason::Land.into());
        }
        Ok((source, destination))
    }

    /// Counts what became of a packet of `len` bytes, and sends the error that it asks for.
    fn settle(
        &mut self,
        now: Timestamp,
        from: Side,
        packet: &Packet<'_>,
        len: usize,
        taken: Taken,
    ) -> Fate {
        match taken {
            Ok((direction, side, cut)) => {
                self.counters.count(direction, Outcome::Forwarded, len);
                let counted = (direction, Outcome::Forwarded, len);
                Fate::Send(Departure { side, realm: 0, answers: false, cut, counted })
            }
            Err(refusal) => self.refuse(now, from, packet, len, refusal),
        }
    }

    /// Has the engine translate an IPv4 packet.
    fn by_engine(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Fate {
        let verdict = process(engine, now, from, packet);
        self.departure(from, packet, verdict, packet.len())
    }

    /// Departure of a packet that the engine has counted with `len` bytes. A packet to a host with
    /// a number is converted.
    pub(crate) fn departure(
        &mut self,
        from: Side,
        packet: &mut Packet<'_>,
        verdict: Verdict,
        len: usize,
    ) -> Fate {
        let (side, counted) = match verdict {
            Verdict::Forward(to) => (to, (Direction::forwarded(from, to), Outcome::Forwarded, len)),
            Verdict::Reply(to) => (to, (Direction::Local, Outcome::Replied, len)),
            Verdict::HandOver => return Fate::HandOver(packet.realm()),
            Verdict::Drop(_) | Verdict::Held => return Fate::Nothing,
        };
        let mut realm = packet.realm();
        let answers = matches!(verdict, Verdict::Reply(_));
        let mut cut = None;
        //= rfc6146#section-3.5-ipv4
        if side == Side::Inside && self.realms.has(realm) {
            match self.convert_to_host(realm, packet) {
                // A packet of IPv6 goes to no realm.
                Ok(found) => (cut, realm) = (found, 0),
                Err(reason) => {
                    let (direction, outcome, len) = counted;
                    self.lose(direction, outcome, len, reason);
                    return Fate::Nothing;
                }
            }
        }
        Fate::Send(Departure { side, realm, answers, cut, counted })
    }

    /// Counts a packet as dropped that the engine has counted as forwarded or answered.
    pub(crate) fn lose(
        &mut self,
        direction: Direction,
        outcome: Outcome,
        len: usize,
        reason: DropReason,
    ) {
        self.taken_back.count(direction, outcome, len);
        self.counters.count_drop(direction, reason, len);
    }

    /// Converts a packet to a host with a number as [`Translator::convert_to_host`] does, and
    /// counts nothing.
    pub(crate) fn try_to_host(
        &mut self,
        realm: u16,
        packet: &mut Packet<'_>,
    ) -> Result<Option<Cut>, DropReason> {
        let kept = self.softwires.as_ref().map(Softwires::counts);
        let converted = self.convert_to_host(realm, packet);
        if let (Some(softwires), Some(kept)) = (&mut self.softwires, kept) {
            softwires.restore(kept);
        }
        converted
    }

    /// Adds bytes that the engine did not count, because it saw packets with smaller headers:
    /// `bytes` for each packet that it has counted since.
    pub(crate) fn add_bytes(&mut self, before: &[[u64; 3]; 4], engine: &Engine, bytes: usize) {
        for (way, counts) in engine.counters().packets.iter().enumerate() {
            for (outcome, count) in counts.iter().enumerate() {
                let more = (count - before[way][outcome]) * bytes as u64;
                self.counters.bytes[way][outcome] += more;
            }
        }
    }

    /// Corrects the counters for a packet of `len` bytes to an own address ([`Fate::Local`]): the
    /// caller has answered it (`None`), or dropped it for another reason.
    pub fn count_local(&mut self, other: Option<DropReason>, len: usize) {
        self.counters.recount_local(other, len);
    }

    /// Answers an echo request to one of the gateway's own addresses.
    fn take_local(
        &mut self,
        (now, from): (Timestamp, Side),
        packet: &mut Packet<'_>,
        len: usize,
    ) -> Fate {
        if let Err(refusal) = check_headers(packet.bytes()) {
            self.refuse_own((now, from, Direction::Local), packet.bytes(), refusal);
            return Fate::Nothing;
        }
        if !crate::forward::answer_echo(packet.bytes_mut()) {
            let refusal = unknown_protocol(packet.bytes());
            self.refuse_own((now, from, Direction::Local), packet.bytes(), refusal);
            return Fate::Local;
        }
        self.counters.count(Direction::Local, Outcome::Replied, len);
        let counted = (Direction::Local, Outcome::Replied, len);
        Fate::Send(Departure { side: from, realm: 0, answers: true, cut: None, counted })
    }
}

/// Has the engine take one packet.
pub(crate) fn process(
    engine: &mut Engine,
    now: Timestamp,
    from: Side,
    packet: &mut Packet<'_>,
) -> Verdict {
    let mut verdicts = [Verdict::Held];
    engine.process(now, from, core::slice::from_mut(packet), &mut verdicts);
    verdicts[0]
}

/// The cut of a conversion.
pub(crate) fn cut_of(converted: Converted) -> Option<Cut> {
    match converted {
        Converted::Whole => None,
        Converted::Cut(cut) => Some(cut),
    }
}
