//! ICMP errors: the head and the quoted packet translated, the length of RFC 4884 adjusted, the
//! whole cut to the length of an error of the other family (RFC 7915 sections 4.2, 4.3, 5.2, 5.3).
//!
//! The new message is put together in memory of its own, because a quotation changes its length and
//! padding inside the packet. Only one quotation is translated: a quoted ICMP error is refused.

use super::headers::{Ipv4Header, Ipv6Header, Ipv6Headers, part_of};
use super::messages::{
    LengthField, Message, Quoted, length_field, length_field_v6, to_icmp, to_icmpv6,
};
use super::transport::{Sums, Towards, plan_quoted};
use super::{Addresses, ConvertSettings, Place, Refusal};
use natgate_engine::DropReason;
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6, icmp, ipv4, ipv6};

/// Longest ICMP error in IPv4, bytes (RFC 1812 section 4.3.2.3).
pub(super) const LONGEST_IPV4: usize = 576;
/// Longest ICMPv6 error, bytes (RFC 4443 section 2.4).
pub(super) const LONGEST_IPV6: usize = ipv6::MIN_MTU;
/// Shortest quotation before an extension structure, bytes (RFC 4884 section 3).
const SHORTEST_QUOTE: usize = 128;
const ROOM: usize = LONGEST_IPV6 - ipv6::HEADER_LEN;
const HEAD: usize = icmp::HEADER_LEN;

/// A translated ICMP message, without checksum.
#[derive(Debug)]
pub(super) struct Rebuilt {
    bytes: [u8; ROOM],
    len: usize,
}

impl Rebuilt {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Translates an ICMP error to ICMPv6, of `limit` bytes at most with the IPv6 header.
pub(super) fn to_ipv6(
    message: &[u8],
    limit: usize,
    settings: &ConvertSettings,
    addresses: &mut impl Addresses,
) -> Result<Rebuilt, Refusal> {
    let icmp = Icmp::new_checked(message).ok_or(DropReason::BadLength)?;
    if !icmp.checksum_valid() {
        return Err(DropReason::IcmpBadChecksum.into());
    }
    let bad = DropReason::IcmpBadEmbedded;
    let (quote, extension) = split(message, length_field(icmp.kind()));
    //= rfc6146#section-3.4-quoted
    let inner = Ipv4::new_header_checked(quote).map_err(|_| bad)?;
    let part = part_of(&inner);
    let transport = inner.payload();
    let change = plan_quoted(inner.protocol(), transport, part, Towards::Ipv6).ok_or(bad)?;
    let quoted = Quoted { total_len: inner.total_len().into(), fragment_header: 0 };
    let head = to_icmpv6(head_of(message), quoted, settings).ok_or(DropReason::IcmpUnsupported)?;
    let (source, destination) = (inner.source(), inner.destination());
    let new = addresses.to_ipv6(Place::Quoted, source, destination)?;
    //= rfc6146#section-3.6.1-error
    //= rfc7915#section-4.2-quoted
    //= rfc7915#section-4.3-inner
    let header = Ipv6Header::new(&inner, new, settings);
    let whole_len = usize::from(inner.total_len()) - inner.header_len();
    let sums = Sums::new((source, destination), new, whole_len);
    let room = limit.saturating_sub(ipv6::HEADER_LEN + HEAD);
    let mut frame = Frame::new(head, extension, length_field_v6(head.kind), room);
    let space = frame.quote(header.len() + transport.len());
    let (front, rest) = space.split_at_mut_checked(header.len()).ok_or(bad)?;
    header.write(front, whole_len);
    rest.copy_from_slice(&transport[..rest.len()]);
    // A cut quotation may have lost its checksum.
    change.within(rest.len()).apply(rest, Towards::Ipv6, sums);
    Ok(frame.finish())
}

/// Translates an ICMPv6 error to ICMP, of `limit` bytes at most with the IPv4 header. `ends` are
/// the addresses of the packet that carries the error.
pub(super) fn to_ipv4(
    message: &[u8],
    ends: (u128, u128),
    limit: usize,
    settings: &ConvertSettings,
    addresses: &mut impl Addresses,
) -> Result<Rebuilt, Refusal> {
    let icmp = Icmpv6::new_checked(message).ok_or(DropReason::BadLength)?;
    if !icmp.checksum_valid(ends.0, ends.1) {
        return Err(DropReason::IcmpBadChecksum.into());
    }
    let bad = DropReason::IcmpBadEmbedded;
    let (quote, extension) = split(message, length_field_v6(icmp.kind()));
    //= rfc6146#section-3.4-quoted
    let inner = Ipv6::new_header_checked(quote).map_err(|_| bad)?;
    let inner = Ipv6Headers::read(quote, inner).map_err(|_| bad)?;
    if inner.walk.extension_after_fragment() {
        return Err(bad.into());
    }
    let (protocol, part, transport) = (inner.walk.protocol, inner.part(), inner.transport);
    let change = plan_quoted(protocol, transport, part, Towards::Ipv4).ok_or(bad)?;
    let quoted = Quoted {
        total_len: inner.packet.total_len(),
        fragment_header: inner.fragment().map_or(0, |_| ipv6::FRAGMENT_LEN as u32),
    };
    let head = to_icmp(head_of(message), quoted, settings).ok_or(DropReason::IcmpUnsupported)?;
    let old = (inner.packet.source(), inner.packet.destination());
    let new = addresses.to_ipv4(Place::Quoted, old.0, old.1)?;
    //= rfc6146#section-3.6.1-error
    //= rfc7915#section-5.2-quoted
    //= rfc7915#section-5.3-inner
    let header = Ipv4Header::new(&inner, new, settings).ok_or(bad)?;
    let sums = Sums::new(new, old, inner.transport_len);
    let room = limit.saturating_sub(ipv4::HEADER_LEN + HEAD);
    let mut frame = Frame::new(head, extension, length_field(head.kind), room);
    let space = frame.quote(ipv4::HEADER_LEN + transport.len());
    let (front, rest) = space.split_at_mut_checked(ipv4::HEADER_LEN).ok_or(bad)?;
    header.write(front);
    rest.copy_from_slice(&transport[..rest.len()]);
    // A cut quotation may have lost its checksum.
    change.within(rest.len()).apply(rest, Towards::Ipv4, sums);
    Ok(frame.finish())
}

/// The head of a message of at least eight bytes.
fn head_of(message: &[u8]) -> Message {
    let [kind, code, _, _, a, b, c, d, ..] = *message else { unreachable!("a checked message") };
    Message { kind, code, word: [a, b, c, d] }
}

/// The quoted packet of an error with its padding, and the extension structure (RFC 4884). A length
/// beyond the message counts as none.
fn split(message: &[u8], field: Option<LengthField>) -> (&[u8], &[u8]) {
    let body = &message[HEAD..];
    let len = field.map_or(0, |(at, unit)| usize::from(message[4 + at]) * unit);
    match len {
        0 => (body, &[]),
        len => body.split_at_checked(len).unwrap_or((body, &[])),
    }
}

/// A message that is put together.
struct Frame<'e> {
    rebuilt: Rebuilt,
    head: Message,
    extension: &'e [u8],
    /// The length field, if the extension structure stays.
    field: Option<LengthField>,
    /// Length of everything after the head, bytes.
    room: usize,
    quote_len: usize,
}

impl<'e> Frame<'e> {
    fn new(head: Message, extension: &'e [u8], field: Option<LengthField>, room: usize) -> Self {
        let field = field.filter(|_| !extension.is_empty() && room > SHORTEST_QUOTE);
        let rebuilt = Rebuilt { bytes: [0; ROOM], len: 0 };
        Self { rebuilt, head, extension, field, room, quote_len: 0 }
    }

    /// The bytes for a quotation of `len` bytes, or for as much as there is room for. The extension
    /// structure has precedence before all but the first 128 bytes.
    fn quote(&mut self, len: usize) -> &mut [u8] {
        let room = match self.field {
            None => self.room,
            Some((_, unit)) => {
                let beside = self.room.saturating_sub(self.extension.len()).max(SHORTEST_QUOTE);
                beside.min(usize::from(u8::MAX) * unit) / unit * unit
            }
        };
        self.quote_len = len.min(room);
        &mut self.rebuilt.bytes[HEAD..HEAD + self.quote_len]
    }

    /// The message with its head, padding and extension structure.
    fn finish(mut self) -> Rebuilt {
        let Message { kind, code, mut word } = self.head;
        let bytes = &mut self.rebuilt.bytes;
        self.rebuilt.len = HEAD + self.quote_len;
        if let Some((at, unit)) = self.field {
            let padded = self.quote_len.max(SHORTEST_QUOTE).next_multiple_of(unit);
            //= rfc7915#section-4.2-extension-cut
            let extension = &self.extension[..self.extension.len().min(self.room - padded)];
            let start = HEAD + padded;
            bytes[start..start + extension.len()].copy_from_slice(extension);
            //= rfc7915#section-4.2-extension
            //= rfc7915#section-5.2-extension
            word[at] = (padded / unit) as u8;
            self.rebuilt.len = start + extension.len();
        }
        bytes[..2].copy_from_slice(&[kind, code]);
        bytes[4..HEAD].copy_from_slice(&word);
        self.rebuilt
    }
}
