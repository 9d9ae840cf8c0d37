//! Packets through pairs of prefixes, RFC 6296: several pairs, hairpinning, ICMPv6 errors.
//!
//! [`Pairs`] decides everything before it changes the first byte, so a refused packet is as it
//! came. Addresses keep their one's complement sum, so no checksum changes: neither that of the
//! packet, nor that of an ICMPv6 error over the packet that it quotes.

use crate::convert::{ErrorMessage, Refusal};
use crate::nptv6::QuickWay;
use crate::{Nptv6Settings, Prefix6, Unmapped};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::net::Ipv6Addr;
use natgate_engine::DropReason;
use natgate_wire::{Ipv6, icmpv6, protocol};

/// Offsets of the source and the destination in a header, bytes.
const SOURCE: u32 = 8;
const DESTINATION: u32 = 24;

/// Two prefixes of different pairs have addresses in common. Pairs are named by their places, which
/// count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The earlier pair and its prefix.
    pub earlier: (usize, Prefix6),
    /// The later pair and its prefix.
    pub later: (usize, Prefix6),
}

impl Display for Overlap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (earlier, later) = (self.earlier.1, self.later.1);
        let common = if earlier.len < later.len { later } else { earlier };
        write!(f, "{later} and {earlier} of an earlier pair have {common} in common")
    }
}

/// The side by which a translated packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the other side.
    Across,
    /// Back inside (RFC 6296 section 4.3).
    Back,
}

/// All pairs of prefixes. No two of them overlap.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    pairs: Box<[Nptv6Settings]>,
    internal: Order,
    external: Order,
    /// The two directions of each pair for ordinary addresses.
    quick: Box<[Option<[QuickWay; 2]>]>,
}

/// The prefixes of one side.
#[derive(Clone, Debug, Default)]
struct Order {
    /// First addresses of prefixes, sorted, each with the place of its pair.
    first: Box<[(u128, u32)]>,
    /// High halves of the lowest and of the highest address.
    reach: (u64, u64),
}

impl Order {
    fn new(pairs: &[Nptv6Settings], prefix: fn(&Nptv6Settings) -> Prefix6) -> Self {
        let prefixes = || pairs.iter().map(prefix);
        let mut first: Vec<(u128, u32)> =
            (0..).zip(prefixes()).map(|(n, prefix)| (prefix.first().to_bits(), n)).collect();
        first.sort_unstable();
        let high = |address: Ipv6Addr| (address.to_bits() >> 64) as u64;
        let lowest = prefixes().map(|prefix| high(prefix.first())).min();
        let highest = prefixes().map(|prefix| high(prefix.last())).max();
        // Without a prefix no address is within reach.
        let reach = (lowest.unwrap_or(u64::MAX), highest.unwrap_or(0));
        Self { first: first.into_boxed_slice(), reach }
    }

    /// The place of the only pair whose prefix may have an address: no prefix lies within another.
    #[inline]
    fn nearest(&self, address: u128) -> Option<usize> {
        let high = (address >> 64) as u64;
        if high < self.reach.0 || high > self.reach.1 {
            return None;
        }
        let after = self.first.partition_point(|(first, _)| *first <= address);
        Some(self.first[after.checked_sub(1)?].1 as usize)
    }
}

impl Pairs {
    /// The pairs in one table.
    ///
    /// # Errors
    /// [`Overlap`] if prefixes of two pairs have addresses in common.
    pub fn new(pairs: &[Nptv6Settings]) -> Result<Self, Overlap> {
        if let Some(overlap) = overlap(pairs) {
            return Err(overlap);
        }
        let internal = Order::new(pairs, |one| one.pair.internal());
        let external = Order::new(pairs, |one| one.pair.external());
        let quick = pairs.iter().map(|one| one.pair.quick()).collect();
        Ok(Self { pairs: pairs.into(), internal, external, quick })
    }

    /// True if there is no pair.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// True if an address has an internal prefix.
    pub fn is_internal(&self, address: Ipv6Addr) -> bool {
        self.of_internal(address).is_some()
    }

    /// True if an address has an external prefix.
    pub fn is_external(&self, address: Ipv6Addr) -> bool {
        self.of_external(address).is_some()
    }

    /// The internal address of an external one, if a pair has it.
    pub(crate) fn internal(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        self.of_external(address)?.pair.inbound(address)?.ok()
    }

    /// The pair of prefixes whose internal, or external, prefix has an address.
    pub(crate) fn pair_of(&self, address: Ipv6Addr) -> Option<&Nptv6Settings> {
        self.of_internal(address).or_else(|| self.of_external(address))
    }

    /// Translates a packet from inside that is to leave, or to reach an external address. `None`:
    /// no pair concerns the packet. Bytes that are no IPv6 packet concern none.
    ///
    /// # Errors
    /// The inner result is the refusal of an address without a translation.
    pub fn from_inside(&self, bytes: &mut [u8]) -> Option<Result<Way, Refusal>> {
        let packet = Ipv6::new_checked(&*bytes).ok()?;
        let (source, destination) = (packet.source().into(), packet.destination().into());
        let quote = quote(&packet);
        //= rfc6296#section-4.3-hairpin
        let way = if self.is_external(destination) { Way::Back } else { Way::Across };
        let new_source = self.outward(source, SOURCE);
        let new_destination = self.inward(destination, DESTINATION);
        // The quoted packet went the other way: its destination is the host inside.
        let quoted = quote.map(|at| Quoted::read(bytes, at));
        let outer = quoted.and_then(|one| self.outward(one.destination, DESTINATION)?.ok());
        let inner = quoted.and_then(|one| self.inward(one.source, SOURCE)?.ok());
        let inner = inner.filter(|_| way == Way::Back);
        if new_source.is_none() && new_destination.is_none() && outer.is_none() {
            return None;
        }
        let (new_source, new_destination) =
            match (new_source.transpose(), new_destination.transpose()) {
                (Err(refusal), _) | (_, Err(refusal)) => return Some(Err(refusal)),
                (Ok(source), Ok(destination)) => (source, destination),
            };
        write(bytes, 0, new_source, new_destination);
        if let Some(at) = quote {
            write(bytes, at, inner, outer);
        }
        Some(Ok(way))
    }

    /// Translates a packet from outside. `None`: the destination has no external prefix.
    ///
    /// # Errors
    /// The inner result is the refusal of an address without a translation.
    pub fn from_outside(&self, bytes: &mut [u8]) -> Option<Result<Way, Refusal>> {
        let packet = Ipv6::new_checked(&*bytes).ok()?;
        let quote = quote(&packet);
        let destination = match self.inward(packet.destination().into(), DESTINATION)? {
            Ok(destination) => destination,
            Err(refusal) => return Some(Err(refusal)),
        };
        write(bytes, 0, None, Some(destination));
        if let Some(at) = quote {
            let source = Quoted::read(bytes, at).source;
            let source = self.inward(source, SOURCE).and_then(Result::ok);
            write(bytes, at, source, None);
        }
        Some(Ok(Way::Across))
    }

    /// The external address of an internal one.
    fn outward(&self, address: Ipv6Addr, field: u32) -> Option<Result<Ipv6Addr, Refusal>> {
        let one = self.of_internal(address)?;
        Some(one.pair.outbound(address)?.map_err(|why| refusal(why, field, one)))
    }

    /// The internal address of an external one.
    fn inward(&self, address: Ipv6Addr, field: u32) -> Option<Result<Ipv6Addr, Refusal>> {
        let one = self.of_external(address)?;
        Some(one.pair.inbound(address)?.map_err(|why| refusal(why, field, one)))
    }

    /// The external source of a packet from inside with ordinary addresses; the inner `None`: no
    /// pair concerns the packet. `None`: [`Pairs::from_inside`] has to decide.
    #[inline(always)]
    pub(crate) fn source_outside(&self, source: u128, destination: u128) -> Option<Option<u128>> {
        let (source, destination) = (source.into(), destination.into());
        // A packet to one of the prefixes turns round, or goes astray.
        if self.place_external(destination).is_some() || self.place_internal(destination).is_some()
        {
            return None;
        }
        let Some(place) = self.place_internal(source) else { return Some(None) };
        let [outbound, _] = self.quick[place].as_ref()?;
        Some(Some(outbound.translate(source.to_bits())?))
    }

    /// The internal destination of a packet from outside, like [`Pairs::source_outside`].
    #[inline(always)]
    pub(crate) fn destination_inside(&self, destination: u128) -> Option<Option<u128>> {
        let Some(place) = self.place_external(destination.into()) else { return Some(None) };
        let [_, inbound] = self.quick[place].as_ref()?;
        Some(Some(inbound.translate(destination)?))
    }

    #[inline(always)]
    fn place_internal(&self, address: Ipv6Addr) -> Option<usize> {
        let place = self.internal.nearest(address.to_bits())?;
        self.pairs[place].pair.internal().contains(address).then_some(place)
    }

    #[inline(always)]
    fn place_external(&self, address: Ipv6Addr) -> Option<usize> {
        let place = self.external.nearest(address.to_bits())?;
        self.pairs[place].pair.external().contains(address).then_some(place)
    }

    fn of_internal(&self, address: Ipv6Addr) -> Option<&Nptv6Settings> {
        Some(&self.pairs[self.place_internal(address)?])
    }

    fn of_external(&self, address: Ipv6Addr) -> Option<&Nptv6Settings> {
        Some(&self.pairs[self.place_external(address)?])
    }
}

/// Finds prefixes of two pairs that have addresses in common.
pub fn overlap(pairs: &[Nptv6Settings]) -> Option<Overlap> {
    let both = |(place, one): (usize, &Nptv6Settings)| {
        [(place, one.pair.internal()), (place, one.pair.external())]
    };
    let mut prefixes: Vec<(usize, Prefix6)> = pairs.iter().enumerate().flat_map(both).collect();
    prefixes.sort_by_key(|(place, prefix)| (prefix.first(), prefix.len, *place));
    // A prefix that lies within another stands behind it, with only such prefixes between.
    let two = prefixes.windows(2).find(|two| two[0].1.overlaps(two[1].1))?;
    let (one, other) = (two[0], two[1]);
    let (earlier, later) = if one.0 < other.0 { (one, other) } else { (other, one) };
    Some(Overlap { earlier, later })
}

/// The refusal of a packet with an address that has no translation.
fn refusal(why: Unmapped, field: u32, one: &Nptv6Settings) -> Refusal {
    let error = match why {
        // RFC 6296 section 3.2.
        //= rfc6296#section-3.2-unmapped
        Unmapped::Subnet if field == SOURCE => ErrorMessage::PROHIBITED_IPV6,
        Unmapped::Subnet => ErrorMessage::new(icmpv6::kind::UNREACHABLE, 0, 0),
        // RFC 6296 section 3.7.
        //= rfc6296#section-3.7-error
        Unmapped::ZeroIdentifier | Unmapped::NoWord => ErrorMessage::erroneous_field(field),
    };
    match one.icmp_errors {
        true => Refusal::with(DropReason::Untranslatable, error),
        false => Refusal::silent(DropReason::Untranslatable),
    }
}

/// Addresses of a packet that an ICMPv6 error quotes.
#[derive(Clone, Copy)]
struct Quoted {
    source: Ipv6Addr,
    destination: Ipv6Addr,
}

impl Quoted {
    /// Reads the addresses of the quotation at an offset that [`quote`] returned.
    fn read(bytes: &[u8], at: usize) -> Self {
        let address = |field: u32| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[at + field as usize..][..16]);
            Ipv6Addr::from(octets)
        };
        Self { source: address(SOURCE), destination: address(DESTINATION) }
    }
}

/// The offset of the packet that an ICMPv6 error quotes, if its fixed header is there. A fragment
/// other than the first has no message.
pub(crate) fn quote(packet: &Ipv6<&[u8]>) -> Option<usize> {
    let walk = packet.walk().ok()?;
    let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
    if walk.protocol != protocol::ICMPV6 || is_later {
        return None;
    }
    let at = walk.transport + icmpv6::HEADER_LEN;
    let payload = packet.payload();
    let message = payload.get(walk.transport - natgate_wire::ipv6::HEADER_LEN..)?;
    let is_error = icmpv6::is_error(*message.first()?);
    let quoted = message.get(icmpv6::HEADER_LEN..).filter(|_| is_error)?;
    Ipv6::new_header_checked(quoted).ok().map(|_| at)
}

/// Writes the addresses of the header at an offset; `None`: the address stays.
//= rfc6296#section-6-ports
fn write(bytes: &mut [u8], at: usize, source: Option<Ipv6Addr>, destination: Option<Ipv6Addr>) {
    for (field, address) in [(SOURCE, source), (DESTINATION, destination)] {
        if let Some(address) = address {
            bytes[at + field as usize..][..16].copy_from_slice(&address.octets());
        }
    }
}

#[cfg(test)]
mod tests;
