//! IPv6 packets to IPv4 (RFC 7915 section 5).

use super::error::{self, Rebuilt};
use super::headers::{Ipv4Header, Ipv6Headers, Part, expires};
use super::messages::DIFFERENCE;
use super::plain::Plain6;
use super::transport::{Change, Sums, Towards, plan};
use super::{Addresses, ConvertSettings, Converted, Converter, Cut, ErrorMessage, Place, Refusal};
use core::ops::Range;
use natgate_engine::{DropReason, Packet};
use natgate_wire::ipv6::Ipv6Error;
use natgate_wire::{Icmp, Ipv6, icmpv6, ipv4, ipv6, protocol};

/// The plan for a packet.
enum Plan {
    Rewrite {
        header: Ipv4Header,
        change: Change,
        sums: Sums,
        result: Converted,
    },
    /// The message of an ICMPv6 error is put together anew.
    Rebuild {
        header: Ipv4Header,
    },
}

impl Converter {
    /// Converts an IPv6 packet to IPv4, in place. Bytes behind the packet's payload length are cut
    /// off.
    ///
    /// # Errors
    /// The reason why the packet stays as it is, and the error for its sender.
    pub fn to_ipv4(
        &mut self,
        packet: &mut Packet<'_>,
        addresses: &mut impl Addresses,
    ) -> Result<Converted, Refusal> {
        if let Some(plain) = Plain6::read(packet.bytes()).filter(|it| it.passes(&self.settings)) {
            let new = addresses.to_ipv4(Place::Packet, plain.source, plain.destination)?;
            self.plain_to_ipv4(packet, &plain, new);
            return Ok(Converted::Whole);
        }
        self.any_to_ipv4(packet, addresses)
    }

    /// Converts any IPv6 packet to IPv4.
    pub(super) fn any_to_ipv4(
        &mut self,
        packet: &mut Packet<'_>,
        addresses: &mut impl Addresses,
    ) -> Result<Converted, Refusal> {
        let from = read(packet.bytes())?;
        let plan = decide(&from, &self.settings, addresses)
            .map_err(|refusal| answerable(&from, refusal))?;
        let (total_len, transport_at) = (from.packet.total_len(), from.walk.transport);
        let has_own = from.fragment().is_some();
        match plan {
            Plan::Rewrite { header, change, sums, result } => {
                packet.truncate(total_len);
                packet.set_start(packet.start() + transport_at - ipv4::HEADER_LEN);
                let (front, transport) = packet.bytes_mut().split_at_mut(ipv4::HEADER_LEN);
                self.identify(header, has_own).write(front);
                change.apply(transport, Towards::Ipv4, sums);
                Ok(result)
            }
            Plan::Rebuild { header } => {
                let ends = (from.packet.source(), from.packet.destination());
                let message = transport_at..total_len;
                let rebuilt = rebuild(packet, message, ends, &self.settings, addresses)
                    .map_err(Refusal::quiet)?;
                write_error(packet, self.identify(header, has_own), rebuilt.bytes());
                Ok(Converted::Whole)
            }
        }
    }

    /// Chooses the identification of a packet that has none of its own.
    fn identify(&mut self, mut header: Ipv4Header, has_own: bool) -> Ipv4Header {
        if !has_own {
            header.identification = self.identifications.next(header.source, header.destination);
        }
        header
    }
}

/// Translates the ICMPv6 error in the range `message` of a packet's bytes, and cuts the packet to
/// its length.
#[cold]
fn rebuild(
    packet: &mut Packet<'_>,
    message: Range<usize>,
    ends: (u128, u128),
    settings: &ConvertSettings,
    addresses: &mut impl Addresses,
) -> Result<Rebuilt, Refusal> {
    let total_len = message.end;
    // The padding of RFC 4884 must not take the bytes before the packet, which a later conversion
    // back to IPv6 needs.
    let limit = error::LONGEST_IPV4.min(settings.mtu_ipv4.into()).min(total_len);
    let message = &packet.bytes()[message];
    let rebuilt = error::to_ipv4(message, ends, limit, settings, addresses)?;
    packet.truncate(total_len);
    Ok(rebuilt)
}

fn write_error(packet: &mut Packet<'_>, header: Ipv4Header, message: &[u8]) {
    packet.set_start(packet.end() - ipv4::HEADER_LEN - message.len());
    let (front, payload) = packet.bytes_mut().split_at_mut(ipv4::HEADER_LEN);
    //= rfc7915#section-5.3-length
    //= rfc7915#section-5.2-checksum
    header.with_payload(message.len()).write(front);
    payload.copy_from_slice(message);
    Icmp::new_checked(payload).expect("a message has a head").fill_checksum();
}

fn read(bytes: &[u8]) -> Result<Ipv6Headers<'_>, DropReason> {
    let packet = Ipv6::new_checked(bytes).map_err(|error| match error {
        Ipv6Error::Version => DropReason::NotIpv4,
        Ipv6Error::Length => DropReason::BadLength,
    })?;
    Ipv6Headers::read(bytes, packet)
}

fn is_error(from: &Ipv6Headers) -> bool {
    let kind = from.transport.first().copied();
    from.walk.protocol == protocol::ICMPV6
        && from.part() != Part::Later
        && kind.is_some_and(icmpv6::is_error)
}

/// No error answers an ICMPv6 error. The prohibition that answers what nothing more precise answers
/// answers no ICMPv6 message at all (RFC 7915 section 5.4).
fn answerable(from: &Ipv6Headers, refusal: Refusal) -> Refusal {
    let prohibited = refusal.error == Some(ErrorMessage::PROHIBITED_IPV6);
    if is_error(from) || prohibited && from.walk.protocol == protocol::ICMPV6 {
        return refusal.quiet();
    }
    refusal
}

fn decide(
    from: &Ipv6Headers,
    settings: &ConvertSettings,
    addresses: &mut impl Addresses,
) -> Result<Plan, Refusal> {
    //= rfc7915#section-5.1.1-extension
    if from.walk.extension_after_fragment() {
        return Err(DropReason::ExtensionHeaders.into());
    }
    let (part, protocol, is_error) = (from.part(), from.walk.protocol, is_error(from));
    let rebuilds = is_error && part == Part::Whole;
    let change = if rebuilds {
        Change::Nothing
    } else {
        let zero = settings.udp_checksum_zero;
        plan(protocol, from.transport, part, Towards::Ipv4, zero)?
    };
    let old = (from.packet.source(), from.packet.destination());
    let place = if is_error { Place::Error } else { Place::Packet };
    let new = addresses.to_ipv4(place, old.0, old.1)?;
    //= rfc7915#section-5.1-segments
    //= rfc7915#section-5.1-segments-error
    if let Some(pointer) = from.walk.segments_left {
        let error = ErrorMessage::erroneous_field(pointer as u32);
        return Err(Refusal::with(DropReason::SegmentsLeft, error));
    }
    //= rfc7915#section-5.1-ttl
    if expires(from.packet.hop_limit(), settings) {
        return Err(Refusal::with(DropReason::TtlExceeded, ErrorMessage::HOP_LIMIT_EXCEEDED));
    }
    let Some(header) = Ipv4Header::new(from, new, settings) else {
        return Err(too_long(from, settings));
    };
    let header = header.hop(settings);
    if rebuilds {
        return Ok(Plan::Rebuild { header });
    }
    let result = fit(&header, settings)?;
    let sums = Sums::new(new, old, from.transport_len);
    Ok(Plan::Rewrite { header, change, sums, result })
}

/// Compares the length of the result with the MTU.
fn fit(header: &Ipv4Header, settings: &ConvertSettings) -> Result<Converted, Refusal> {
    let limit = usize::from(settings.mtu_ipv4);
    if header.total_len() <= limit {
        return Ok(Converted::Whole);
    }
    if header.dont_fragment() {
        return Err(Refusal::with(DropReason::TooBig, too_big(settings)));
    }
    //= rfc7915#section-5.1.1-cut
    Ok(Converted::Cut(Cut { limit, identification: header.identification.into() }))
}

/// The refusal of a packet that is longer than an IPv4 packet can be.
fn too_long(from: &Ipv6Headers, settings: &ConvertSettings) -> Refusal {
    match from.fragment() {
        Some(_) => DropReason::FragmentTooLong.into(),
        None => Refusal::with(DropReason::TooBig, too_big(settings)),
    }
}

/// A packet of the smallest MTU of IPv6 always passes: its IPv4 form may be fragmented.
fn too_big(settings: &ConvertSettings) -> ErrorMessage {
    let mtu = u32::from(settings.mtu_ipv4) + DIFFERENCE;
    ErrorMessage::packet_too_big(mtu.max(ipv6::MIN_MTU as u32))
}
