//! IPv4 packets to IPv6 (RFC 7915 section 4).

use super::error;
use super::headers::{Ipv6Header, Part, expires, part_of};
use super::messages::DIFFERENCE;
use super::plain::Plain4;
use super::transport::{Change, Sums, Towards, plan};
use super::{
    Addresses, ConvertSettings, Converted, Converter, Cut, ErrorMessage, HEADROOM, LEAST_HEADROOM,
    Place, Refusal,
};
use core::ops::Range;
use natgate_engine::{DropReason, Packet};
use natgate_wire::ipv4::{Ipv4Error, has_unexpired_source_route};
use natgate_wire::{Icmpv6, Ipv4, icmp, ipv6, protocol};

/// The plan for a packet.
enum Plan {
    Rewrite {
        header: Ipv6Header,
        change: Change,
        sums: Sums,
        result: Converted,
    },
    /// The message of an ICMP error is put together anew.
    Rebuild {
        header: Ipv6Header,
    },
}

impl Converter {
    /// Converts an IPv4 packet to IPv6, in place. Bytes behind the packet's total length are cut
    /// off.
    ///
    /// # Errors
    /// The reason why the packet stays as it is, and the error for its sender.
    ///
    /// # Panics
    /// When there are fewer than [`LEAST_HEADROOM`] bytes before the packet.
    pub fn to_ipv6(
        &self,
        packet: &mut Packet<'_>,
        addresses: &mut impl Addresses,
    ) -> Result<Converted, Refusal> {
        assert!(packet.start() >= LEAST_HEADROOM, "IPv6 headers need bytes before the packet");
        if let Some(plain) = Plain4::read(packet.bytes()).filter(|it| it.passes(&self.settings)) {
            let new = addresses.to_ipv6(Place::Packet, plain.source, plain.destination)?;
            self.plain_to_ipv6(packet, &plain, new);
            return Ok(Converted::Whole);
        }
        self.any_to_ipv6(packet, addresses)
    }

    /// Converts any IPv4 packet to IPv6.
    pub(super) fn any_to_ipv6(
        &self,
        packet: &mut Packet<'_>,
        addresses: &mut impl Addresses,
    ) -> Result<Converted, Refusal> {
        let from = read(packet.bytes())?;
        let is_error = is_error(&from);
        let plan = decide(&from, is_error, &self.settings, addresses).map_err(|refusal| {
            if may_answer(&from, is_error) { refusal } else { refusal.quiet() }
        })?;
        let (header_len, total_len) = (from.header_len(), usize::from(from.total_len()));
        match plan {
            Plan::Rewrite { header, change, sums, result } => {
                packet.truncate(total_len);
                //= rfc7915#section-4.1-options
                packet.set_start(packet.start() + header_len - header.len());
                let (front, transport) = packet.bytes_mut().split_at_mut(header.len());
                header.write(front, transport.len());
                change.apply(transport, Towards::Ipv6, sums);
                Ok(result)
            }
            Plan::Rebuild { header } => {
                let message = header_len..total_len;
                rebuild(packet, message, &header, &self.settings, addresses).map_err(Refusal::quiet)
            }
        }
    }
}

/// Translates a packet whose bytes in the range `message` are an ICMP error.
#[cold]
fn rebuild(
    packet: &mut Packet<'_>,
    message: Range<usize>,
    header: &Ipv6Header,
    settings: &ConvertSettings,
    addresses: &mut impl Addresses,
) -> Result<Converted, Refusal> {
    let total_len = message.end;
    let limit = error::LONGEST_IPV6.min(total_len + packet.start().min(HEADROOM));
    let rebuilt = error::to_ipv6(&packet.bytes()[message], limit, settings, addresses)?;
    let message = rebuilt.bytes();
    packet.truncate(total_len);
    packet.set_start(packet.end() - header.len() - message.len());
    let (front, payload) = packet.bytes_mut().split_at_mut(header.len());
    //= rfc7915#section-4.3-length
    header.write(front, message.len());
    payload.copy_from_slice(message);
    let mut message = Icmpv6::new_checked(payload).expect("a message has a head");
    message.fill_checksum(header.source, header.destination);
    Ok(Converted::Whole)
}

fn read(bytes: &[u8]) -> Result<Ipv4<&[u8]>, DropReason> {
    let from = Ipv4::new_checked(bytes).map_err(|error| match error {
        Ipv4Error::Version => DropReason::NotIpv4,
        Ipv4Error::Length => DropReason::BadLength,
    })?;
    if !from.checksum_valid() {
        return Err(DropReason::BadHeaderChecksum);
    }
    Ok(from)
}

fn is_error(from: &Ipv4<&[u8]>) -> bool {
    let kind = from.payload().first().copied();
    from.protocol() == protocol::ICMP
        && part_of(from) != Part::Later
        && kind.is_some_and(icmp::is_error)
}

/// No error answers an ICMP error, or a fragment other than the first (RFC 1812 section 4.3.2.7).
fn may_answer(from: &Ipv4<&[u8]>, is_error: bool) -> bool {
    !is_error && part_of(from) != Part::Later
}

fn decide(
    from: &Ipv4<&[u8]>,
    is_error: bool,
    settings: &ConvertSettings,
    addresses: &mut impl Addresses,
) -> Result<Plan, Refusal> {
    let (part, transport) = (part_of(from), from.payload());
    let rebuilds = is_error && part == Part::Whole;
    let change = if rebuilds {
        Change::Nothing
    } else {
        let zero = settings.udp_checksum_zero;
        plan(from.protocol(), transport, part, Towards::Ipv6, zero)?
    };
    let old = (from.source(), from.destination());
    let place = if is_error { Place::Error } else { Place::Packet };
    let new = addresses.to_ipv6(place, old.0, old.1)?;
    //= rfc7915#section-4.1-source-route
    //= rfc7915#section-4.1-source-route-error
    if has_unexpired_source_route(from.options()) {
        let error = ErrorMessage::SOURCE_ROUTE_FAILED;
        return Err(Refusal::with(DropReason::SourceRoute, error));
    }
    //= rfc7915#section-4.1-hop-limit
    if expires(from.ttl(), settings) {
        return Err(Refusal::with(DropReason::TtlExceeded, ErrorMessage::TTL_EXCEEDED));
    }
    let header = Ipv6Header::new(from, new, settings).hop(settings);
    if rebuilds {
        return Ok(Plan::Rebuild { header });
    }
    let result = fit(from, &header, settings)?;
    let sums = Sums::new(old, new, transport.len());
    Ok(Plan::Rewrite { header, change, sums, result })
}

/// Compares the length of the result with the MTUs.
fn fit(
    from: &Ipv4<&[u8]>,
    header: &Ipv6Header,
    settings: &ConvertSettings,
) -> Result<Converted, Refusal> {
    let mtu = settings.mtu_ipv6;
    if from.dont_fragment() {
        let fragment_header = (header.len() - ipv6::HEADER_LEN) as u16;
        let growth = DIFFERENCE as u16 + fragment_header;
        //= rfc7915#section-4.1-df
        // Options do not count: the result has none.
        if header.len() + from.payload().len() > usize::from(mtu) {
            let error = ErrorMessage::fragmentation_needed(mtu - growth);
            return Err(Refusal::with(DropReason::TooBig, error));
        }
        return Ok(Converted::Whole);
    }
    //= rfc7915#section-4-mtu
    //= rfc7915#section-4.1-cut
    let limit = usize::from(settings.lowest_mtu.min(mtu));
    if header.len() + from.payload().len() <= limit {
        return Ok(Converted::Whole);
    }
    Ok(Converted::Cut(Cut { limit, identification: from.identification().into() }))
}
