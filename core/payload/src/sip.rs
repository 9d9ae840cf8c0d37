//! SIP over UDP and TCP (RFC 3261), with bodies of SDP.
//!
//! A host inside writes its own endpoint into Via, Contact, routes and addresses of users. The
//! framework writes the external endpoint instead, and puts the internal one back into what comes
//! from outside. A registration keeps the endpoint's mapping as long as the registration lasts. A
//! port of Contact or Via other than the flow's own gets an expectation of its own. `received` and
//! `rport` (RFC 3581) stay as they are: they say what the other side has seen.
//!
//! Between families, SIP is left alone.

use crate::Side;
use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::sdp::{Description, Edit};
use crate::text::{self, Header, Place};
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ops::Range;

/// Longest message, bytes: with one segment more, it fits into the window of held bytes.
const LONGEST: usize = 6144;

/// The port of a URI without one (RFC 3261 section 19.1.2).
const DEFAULT_PORT: u16 = 5060;

/// Lifetime of a registration that says none, seconds (RFC 3261 section 10.2), and of an endpoint
/// that is not registered: as long as a transaction of an invitation may last.
const REGISTRATION: u16 = 3600;
const TRANSACTION: u16 = 180;

/// Headers with endpoints of the hosts, and their compact forms (RFC 3261 section 7.3.3).
const HEADERS: [&str; 14] = [
    "via",
    "v",
    "contact",
    "m",
    "route",
    "record-route",
    "path",
    "from",
    "f",
    "to",
    "t",
    "refer-to",
    "r",
    "referred-by",
];

/// A port inside, and the external one that another flow's mapping has.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    internal: u16,
    external: u16,
}

/// A flow between a host inside and another host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sip {
    /// The last call with a description from outside, as a hash, and the address of its media.
    media: Option<(u32, Ipv4Addr)>,
    /// Ports of the host besides the flow's own.
    ports: [Port; 4],
    next_port: u8,
}

/// A whole message.
#[derive(Clone, Copy)]
struct Message<'m> {
    bytes: &'m [u8],
    head: usize,
    headers: &'m [Header],
}

impl Message<'_> {
    /// The only header with one of two names. `None`: there is none, or there are several.
    fn only(&self, long: &str, short: &str) -> Option<&Header> {
        let mut all = self.headers.iter().filter(|h| h.name == long || h.name == short);
        let first = all.next();
        if all.next().is_some() { None } else { first }
    }

    fn value(&self, header: &Header) -> &[u8] {
        &self.bytes[header.value.clone()]
    }
}

impl Protocol for Sip {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        if context.is_between_families() {
            return Step::Leave(Reason::Families);
        }
        // Empty lines, or a zero, keep a flow alive (RFC 5626 section 3.5.1).
        let blanks = bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        if blanks > 0 {
            return Step::Pass(blanks);
        }
        if bytes == [0] && context.is_datagram {
            return Step::Pass(1);
        }
        if !may_be_message(bytes) {
            return Step::Leave(Reason::NotProtocol);
        }
        let Some(head) = text::head_len(bytes) else {
            return if bytes.len() > LONGEST { Step::Leave(Reason::TooLong) } else { Step::More };
        };
        let headers = text::headers(&bytes[..head]);
        let message = Message { bytes, head, headers: &headers };
        let Some(body) = body_len(&message, context) else {
            return Step::Leave(Reason::NotProtocol);
        };
        let len = head.saturating_add(body);
        if len > LONGEST {
            return Step::Leave(Reason::TooLong);
        }
        if bytes.len() < len {
            return Step::More;
        }
        let message = Message { bytes: &bytes[..len], ..message };
        self.take(&message, context).map_or_else(|step| step, |()| Step::Pass(len))
    }
}

impl Sip {
    fn take(&mut self, message: &Message<'_>, context: &mut Context<'_>) -> Result<(), Step> {
        let mut edits: Vec<Edit> = Vec::new();
        let line = text::start_line(message.bytes).map_or(0, <[u8]>::len);
        if context.from() == Side::Inside {
            let lifetime = lifetime(message);
            self.edit_outbound(message, (None, 0..line), lifetime, context, &mut edits);
            for header in named(message) {
                let part = (Some(&header.name[..]), header.value.clone());
                self.edit_outbound(message, part, lifetime, context, &mut edits);
            }
        } else {
            self.edit_inbound(message, 0..line, context, &mut edits);
            for header in named(message) {
                self.edit_inbound(message, header.value.clone(), context, &mut edits);
            }
        }
        self.take_body(message, context, &mut edits);
        edits.sort_by_key(|(range, _)| range.start);
        edits.dedup_by_key(|(range, _)| range.start);
        let is_new = |(range, text): &&Edit| message.bytes[range.clone()] != text[..];
        edits
            .iter()
            .filter(is_new)
            .try_for_each(|(range, text)| context.replace(range.clone(), text))
    }

    /// Writes external endpoints into a part of a message from inside.
    fn edit_outbound(
        &mut self,
        message: &Message<'_>,
        (name, part): (Option<&str>, Range<usize>),
        lifetime: Option<u16>,
        context: &mut Context<'_>,
        edits: &mut Vec<Edit>,
    ) {
        let own_port = context.flow().internal.port();
        let is_contact = matches!(name, Some("contact" | "m"));
        let is_reached = is_contact || matches!(name, Some("via" | "v"));
        for place in endpoints(message.bytes, part) {
            if !context.is_own(place.address.into()) {
                continue;
            }
            let port = place.port.unwrap_or(DEFAULT_PORT);
            let external = if port == own_port {
                if let (true, Some(lifetime @ 1..)) = (is_contact, lifetime) {
                    let _ = self.expect(port, Wanted::EndpointOfFlow, lifetime, context);
                }
                Some(context.flow().external)
            } else if is_reached {
                let lifetime = lifetime.unwrap_or(0).max(TRANSACTION);
                self.expect(port, Wanted::AddressOfFlow, lifetime, context)
            } else {
                self.known(|known| known.internal == port)
                    .map(|known| SocketAddrV4::new(*context.flow().external.ip(), known.external))
            };
            if let Some(external) = external {
                edits.push((place.range, format!("{external}").into_bytes()));
            }
        }
    }

    /// Puts internal endpoints back into a part of a message from outside.
    fn edit_inbound(
        &self,
        message: &Message<'_>,
        part: Range<usize>,
        context: &Context<'_>,
        edits: &mut Vec<Edit>,
    ) {
        let flow = context.flow();
        for place in endpoints(message.bytes, part) {
            if place.address != *flow.external.ip() {
                continue;
            }
            let port = place.port.unwrap_or(DEFAULT_PORT);
            let internal = if port == flow.external.port() {
                Some(flow.internal.port())
            } else {
                self.known(|known| known.external == port).map(|known| known.internal)
            };
            if let Some(internal) = internal {
                let text = format!("{}", SocketAddr::new(flow.internal.ip(), internal));
                edits.push((place.range, text.into_bytes()));
            }
        }
    }

    fn known(&self, is_it: impl Fn(&Port) -> bool) -> Option<Port> {
        self.ports.iter().copied().find(|known| known.internal != 0 && is_it(known))
    }

    /// Expects messages of the flow's remote host at a port of the host.
    fn expect(
        &mut self,
        port: u16,
        wanted: Wanted,
        lifetime: u16,
        context: &mut Context<'_>,
    ) -> Option<SocketAddrV4> {
        let flow = *context.flow();
        let external = context.expect_exactly(Expectation {
            protocol: context.transport(),
            remote: Some(*flow.remote.ip()),
            remote_port: 0,
            internal: SocketAddr::new(flow.internal.ip(), port),
            wanted,
            lifetime,
            uses: Uses::Many,
        })?;
        if wanted == Wanted::AddressOfFlow && self.known(|known| known.internal == port).is_none() {
            let at = usize::from(self.next_port);
            self.ports[at] = Port { internal: port, external: external.port() };
            self.next_port = (self.next_port + 1) % self.ports.len() as u8;
        }
        Some(external)
    }

    /// Reads a description, and edits one from inside with the length of the body.
    fn take_body(
        &mut self,
        message: &Message<'_>,
        context: &mut Context<'_>,
        edits: &mut Vec<Edit>,
    ) {
        let kind = message.only("content-type", "c").map(|header| message.value(header));
        let is_description = kind.is_some_and(|kind| {
            const SDP: &[u8] = b"application/sdp";
            let is_alone = kind.get(SDP.len()).is_none_or(|byte| b"; ".contains(byte));
            is_alone && kind.get(..SDP.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(SDP))
        });
        if !is_description {
            return;
        }
        let description = Description::read(message.bytes, message.head..message.bytes.len());
        if context.from() == Side::Outside {
            self.media = description.address().map(|address| (call(message), address));
            return;
        }
        // An answer follows the offer of its call. The media of an offer may come from anywhere.
        let is_answer = message.bytes.starts_with(b"SIP/");
        let offer = self.media.filter(|(of, _)| is_answer && *of == call(message));
        let before = edits.len();
        description.expect(offer.map(|(_, address)| address), context, edits);
        let (mut added, mut removed) = (0, 0);
        for (range, text) in &edits[before..] {
            (added, removed) = (added + text.len(), removed + range.len());
        }
        if let Some(header) = message.only("content-length", "l") {
            let len = message.bytes.len() - message.head + added - removed;
            edits.push((header.value.clone(), format!("{len}").into_bytes()));
        }
    }
}

/// Headers of a message with endpoints of the hosts.
fn named<'m>(message: &'m Message<'_>) -> impl Iterator<Item = &'m Header> {
    message.headers.iter().filter(|header| HEADERS.contains(&&header.name[..]))
}

/// Endpoints in a part of a message, without values of parameters such as `received`.
fn endpoints(bytes: &[u8], part: Range<usize>) -> impl Iterator<Item = Place> {
    let places = text::addresses(bytes, part);
    places
        .into_iter()
        .filter(|place| place.range.start.checked_sub(1).is_none_or(|before| bytes[before] != b'='))
}

/// True if bytes can be the start of a message (RFC 3261 section 7): a method or the version, and
/// no version of another protocol at the end of the line.
fn may_be_message(bytes: &[u8]) -> bool {
    const VERSION: &[u8] = b"SIP/2.0 ";
    if bytes.iter().zip(VERSION).all(|(one, other)| one == other) {
        return true;
    }
    let count = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let is_method = (1..=20).contains(&count) && bytes.get(count).is_none_or(|b| *b == b' ');
    is_method && text::start_line(bytes).is_none_or(|line| line.ends_with(b" SIP/2.0"))
}

/// A hash of the call's name (FNV-1a). Equal hashes of two calls can only narrow an expectation.
fn call(message: &Message<'_>) -> u32 {
    let name = message.only("call-id", "i").map_or(&[][..], |header| message.value(header));
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Length of a message's body (RFC 3261 section 18.3). `None`: it cannot be told.
fn body_len(message: &Message<'_>, context: &Context<'_>) -> Option<usize> {
    let is_length = |header: &&Header| header.name == "content-length" || header.name == "l";
    let count = message.headers.iter().filter(is_length).count();
    match (count, context.is_datagram) {
        (0, true) => Some(message.bytes.len() - message.head),
        (1, _) => {
            let header = message.only("content-length", "l")?;
            text::number(message.value(header)).map(|length| length as usize)
        }
        _ => None,
    }
}

/// Lifetime of the registration that a message asks for, seconds. `None`: it asks for none.
fn lifetime(message: &Message<'_>) -> Option<u16> {
    if !message.bytes.starts_with(b"REGISTER ") {
        return None;
    }
    let parameter = message.only("contact", "m").and_then(|header| {
        const NAME: &[u8] = b"expires=";
        let value = message.value(header);
        let at = value.windows(NAME.len()).position(|part| part.eq_ignore_ascii_case(NAME))?;
        let digits = &value[at + NAME.len()..];
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        text::number(&digits[..count])
    });
    let header = || message.only("expires", "expires").and_then(|h| text::number(message.value(h)));
    let seconds = parameter.or_else(header).unwrap_or(u32::from(REGISTRATION));
    Some(seconds.min(u32::from(REGISTRATION)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_begins_with_a_method_or_the_version() {
        for right in [&b"I"[..], b"INVITE sip:a@b SIP/2.0\r\n", b"SIP/2.0 200 OK\r\n", b"SIP/"] {
            assert!(may_be_message(right), "{right:?}");
        }
        for bad in [&b"POST / HTTP/1.1\r\n"[..], b"\0\x01\0\x08", b"SIP/1.0 200 OK", b"invite "] {
            assert!(!may_be_message(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_registration_has_a_lifetime() {
        let read = |text: &str| {
            let headers = text::headers(text.as_bytes());
            lifetime(&Message { bytes: text.as_bytes(), head: text.len(), headers: &headers })
        };
        assert_eq!(
            read("REGISTER a SIP/2.0\r\nm: <sip:a>;expires=60\r\nExpires: 9\r\n\r\n"),
            Some(60)
        );
        assert_eq!(read("REGISTER a SIP/2.0\r\nContact: <sip:a>\r\nExpires: 9\r\n\r\n"), Some(9));
        assert_eq!(read("REGISTER a SIP/2.0\r\nExpires: 99999999999\r\n\r\n"), Some(3600));
        assert_eq!(read("INVITE a SIP/2.0\r\nExpires: 9\r\n\r\n"), None);
    }
}
