//! The quick way: plain packets that are routed or translated without state, with nothing to be
//! said against them.
//!
//! The quick way takes a packet only if it would pass the complete way unharmed, and makes the same
//! of it, only sooner. It decides before it changes the first byte. Whatever is odd goes the
//! complete way, which has the reasons and the errors.

use crate::convert::{Plain4, Plain6};
use crate::softwire::quick::Gateway;
use crate::translator::{Departure, Fate, Translator};
use natgate_engine::{Direction, Outcome, Packet, Side, prefetch};

/// Packets between the one that is taken and the one whose bytes are fetched.
const AHEAD: usize = 4;
/// Offset that lies in the middle of the headers of both families.
const MIDDLE: usize = 24;
/// Offset of the source in the IPv6 header, before the destination.
const SOURCE: usize = 8;

/// The way of a packet: its direction, the side that it leaves by, and its length as received.
pub(crate) type Passed = (Direction, Side, usize);

/// A bit for each first octet of IPv4 addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Octets([u64; 4]);

/// First octets of IPv4 addresses that may be martian.
const MARTIAN: Octets = martian();

const fn martian() -> Octets {
    let (mut octets, mut octet) = ([0; 4], 0_u32);
    while octet < 256 {
        let is_beside = octet << 24 | LINK_LOCAL_IPV4;
        if natgate_engine::is_martian(octet << 24) || natgate_engine::is_martian(is_beside) {
            octets[octet as usize / 64] |= 1 << (octet % 64);
        }
        octet += 1;
    }
    Octets(octets)
}

impl Octets {
    /// First octets of own addresses, and of ranges of others.
    pub(crate) fn of(own: [Option<u32>; 2], ranges: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut octets = Self::default();
        for (first, last) in ranges.chain(own.into_iter().flatten().map(|own| (own, own))) {
            for octet in first >> 24..=last >> 24 {
                octets.0[octet as usize / 64] |= 1 << (octet % 64);
            }
        }
        octets
    }

    /// True if the first octet of an address is one of them.
    #[inline(always)]
    pub(crate) fn has(&self, address: u32) -> bool {
        let octet = address >> 24;
        self.0[octet as usize / 64] >> (octet % 64) & 1 != 0
    }
}

/// The second octet of the link-local IPv4 addresses.
const LINK_LOCAL_IPV4: u32 = 254 << 16;

/// True if an IPv4 address is not martian, and no near address is: most are such.
#[inline(always)]
pub(crate) fn is_ordinary_ipv4(address: u32) -> bool {
    !MARTIAN.has(address)
}

/// True if an IPv6 address is neither martian nor link-local, and no near address is: most are
/// such.
#[inline(always)]
pub(crate) fn is_ordinary(address: u128) -> bool {
    const LINK_LOCAL: u64 = 0xfe80 << 48;
    // Zero wraps.
    ((address >> 64) as u64).wrapping_sub(1) < LINK_LOCAL - 1
}

/// A half of the bits of an address. Equal addresses have equal halves.
#[inline(always)]
const fn folded(address: u128) -> u64 {
    (address >> 64) as u64 ^ address as u64
}

/// What the quick way has to know of the gateway's own addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnFolded([u64; 2]);

impl OwnFolded {
    /// For the addresses inside and outside, as far as there are any.
    pub(crate) fn new(own: [Option<u128>; 2]) -> Self {
        let one = own[0].or(own[1]).unwrap_or(0);
        Self(own.map(|address| folded(address.unwrap_or(one))))
    }

    /// True if an address may be one of them.
    #[inline(always)]
    pub(crate) fn may_have(self, address: u128) -> bool {
        let folded = folded(address);
        folded == self.0[0] || folded == self.0[1]
    }

    /// True if [`Translator::check`] certainly has nothing against a packet.
    #[inline(always)]
    pub(crate) fn has_nothing_against(self, plain: &Plain6) -> bool {
        is_ordinary(plain.source)
            && is_ordinary(plain.destination)
            && plain.source != plain.destination
            && !self.may_have(plain.source)
            && !self.may_have(plain.destination)
    }
}

impl Translator {
    /// Takes the first packets of a batch that can go the quick way; returns how many. The fates of
    /// these are known, and no sweep or own packet is due. [`Translator::take_some`] begins so.
    #[inline]
    pub fn take_first_quick(
        &mut self,
        from: Side,
        packets: &mut [Packet<'_>],
        fates: &mut [Fate],
    ) -> usize {
        if !self.has_quick_way() {
            return 0;
        }
        for at in 0..packets.len() {
            if let Some(packet) = packets.get(at + AHEAD) {
                prefetch(packet.bytes(), MIDDLE);
            }
            if !self.take_quick(from, &mut packets[at], &mut fates[at]) {
                return at;
            }
        }
        packets.len()
    }

    /// False if tables concern all packets that the quick way does not ask.
    #[inline]
    pub(crate) fn has_quick_way(&self) -> bool {
        self.filter.is_none() && self.settings.clat.is_none()
    }

    /// Takes a packet that no table with state claims. `false`: the packet is unchanged, and has to
    /// go the complete way. Call it only if there is a quick way.
    #[inline(always)]
    pub(crate) fn take_quick(
        &mut self,
        from: Side,
        packet: &mut Packet<'_>,
        fate: &mut Fate,
    ) -> bool {
        let passed = match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => self.pass_ipv6(from, packet),
            _ => self.pass_ipv4(from, packet),
        };
        let Some((direction, side, len)) = passed else { return false };
        self.counters.count(direction, Outcome::Forwarded, len);
        let counted = (direction, Outcome::Forwarded, len);
        *fate = Fate::Send(Departure { side, realm: 0, answers: false, cut: None, counted });
        true
    }

    #[inline(always)]
    fn pass_ipv6(&mut self, from: Side, packet: &mut Packet<'_>) -> Option<Passed> {
        if self.softwires.is_some()
            && let Some(passed) = self.pass_softwire(from, packet)?
        {
            return Some(passed);
        }
        let plain = Plain6::read(packet.bytes())?;
        let (source, destination) = (plain.source, plain.destination);
        if !self.own_folded.has_nothing_against(&plain) || plain.hop_limit <= 1 {
            return None;
        }
        if let Some(nat64) = &self.nat64
            && (nat64.claims(source) || nat64.claims(destination))
        {
            return None;
        }
        if let Some(siit) = &mut self.siit {
            match from {
                Side::Inside => {
                    if let Some(found) = siit.ordinary_ipv4(destination) {
                        return siit.pass_ipv6(packet, &plain, found);
                    }
                    if siit.has_ipv4(destination) {
                        return None;
                    }
                }
                Side::Outside if siit.has_prefix_of(destination) => return None,
                Side::Outside => {}
            }
        }
        self.pass_routed(from, packet, &plain)
    }

    /// Takes a packet of IPv6 if softwires claim it. `None`: the complete way has to decide. Inner
    /// `None`: it is no softwire's.
    #[inline(always)]
    fn pass_softwire(&mut self, from: Side, packet: &mut Packet<'_>) -> Option<Option<Passed>> {
        let softwires = self.softwires.as_mut()?;
        let ends = packet.bytes().get(SOURCE..)?.first_chunk::<32>()?;
        let [source, destination] = [&ends[..16], &ends[16..]].map(|octets| {
            let mut address = [0; 16];
            address.copy_from_slice(octets);
            u128::from_be_bytes(address)
        });
        if !softwires.claims_ipv6(destination) {
            return Some(None);
        }
        // A packet from a prefix of NAT64 could turn round.
        if from == Side::Outside || self.nat64.as_ref().is_some_and(|nat64| nat64.claims(source)) {
            return None;
        }
        let (own, mtu) = (self.own_folded, self.mtus[Side::Outside as usize]);
        let gateway = Gateway { own, own_ipv4: self.own_ipv4, mtu };
        softwires.pass_from_inside(packet, gateway).map(Some)
    }

    /// Routes a plain packet to the other side, by another prefix if a pair of prefixes has its
    /// address.
    #[inline(always)]
    fn pass_routed(
        &mut self,
        from: Side,
        packet: &mut Packet<'_>,
        plain: &Plain6,
    ) -> Option<Passed> {
        let to = from.other();
        let is_beside = self.networks[from as usize].has(plain.destination);
        if is_beside || plain.len() > usize::from(self.mtus[to as usize]) {
            return None;
        }
        let change = match from {
            Side::Inside => self.pairs.source_outside(plain.source, plain.destination)?,
            Side::Outside => self.pairs.destination_inside(plain.destination)?,
        };
        if change.is_none() && !self.settings.forwarding {
            return None;
        }
        packet.truncate(plain.len());
        plain.route(packet.bytes_mut(), from, change);
        Some((Direction::forwarded(from, to), to, plain.len()))
    }

    #[inline(always)]
    fn pass_ipv4(&mut self, from: Side, packet: &mut Packet<'_>) -> Option<Passed> {
        if from == Side::Inside || self.siit.is_none() && self.softwires.is_none() {
            return None;
        }
        let plain = Plain4::read(packet.bytes())?;
        let (source, destination) = (plain.source, plain.destination);
        let is_fine =
            is_ordinary_ipv4(source) && is_ordinary_ipv4(destination) && source != destination;
        let ends = (source, destination);
        let is_near = || self.is_engines(destination) || self.is_inside_ipv4(ends);
        if !is_fine || !self.is_elsewhere(destination) && is_near() {
            return None;
        }
        if let Some(softwires) = &mut self.softwires {
            let passed = softwires.pass_from_outside(packet, &plain);
            if passed.is_some() || self.siit.is_none() || softwires.has_address(destination) {
                return passed;
            }
        }
        self.siit.as_ref()?.pass_ipv4(packet, &plain)
    }
}
