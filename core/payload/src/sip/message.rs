//! A whole message of SIP, and what its headers say (RFC 3261 section 20).

use crate::lifetime::REGISTRATION;
use crate::message::Context;
use crate::text::{self, Family, Place};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Range;

/// A field of a header that the gateway reads (RFC 3261 section 20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Via,
    Contact,
    /// Route, and other lists of proxies.
    Route,
    To,
    /// From, and other users.
    User,
    CallId,
    CSeq,
    Expires,
    ContentLength,
    ContentType,
}

impl Field {
    /// The field with a name, or with a compact form of it (RFC 3261 section 7.3.3).
    fn of(name: &[u8]) -> Option<Self> {
        let mut text = [0; 16];
        text.get_mut(..name.len())?.copy_from_slice(name);
        text.make_ascii_lowercase();
        Some(match &text[..name.len()] {
            b"via" | b"v" => Self::Via,
            b"contact" | b"m" => Self::Contact,
            b"route" | b"record-route" | b"path" | b"service-route" => Self::Route,
            b"to" | b"t" => Self::To,
            b"from" | b"f" | b"refer-to" | b"r" | b"referred-by" => Self::User,
            b"call-id" | b"i" => Self::CallId,
            b"cseq" => Self::CSeq,
            b"expires" => Self::Expires,
            b"content-length" | b"l" => Self::ContentLength,
            b"content-type" | b"c" => Self::ContentType,
            _ => return None,
        })
    }

    /// True if the field has endpoints of the hosts.
    fn has_endpoints(self) -> bool {
        matches!(self, Self::Via | Self::Contact | Self::Route | Self::To | Self::User)
    }
}

/// A header that the gateway reads: its field, and the place of its value in the message.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) field: Field,
    pub(super) value: Range<usize>,
}

/// The headers of a head that the gateway reads.
pub(super) fn headers(head: &[u8]) -> Vec<Header> {
    const USUAL: usize = 16;
    let mut headers = Vec::with_capacity(USUAL);
    headers.extend(text::headers(head).filter_map(|header| {
        let field = Field::of(header.name())?;
        Some(Header { field, value: header.value })
    }));
    headers
}

/// A whole message.
#[derive(Clone, Copy)]
pub(super) struct Message<'m> {
    pub(super) bytes: &'m [u8],
    pub(super) head: usize,
    pub(super) headers: &'m [Header],
}

impl Message<'_> {
    /// The headers of a field.
    pub(super) fn all(&self, field: Field) -> impl Iterator<Item = &Header> {
        self.headers.iter().filter(move |header| header.field == field)
    }

    /// The only header of a field. `None`: there is none, or there are several.
    pub(super) fn only(&self, field: Field) -> Option<&Header> {
        let mut all = self.all(field);
        let first = all.next();
        if all.next().is_some() { None } else { first }
    }

    pub(super) fn value(&self, header: &Header) -> &[u8] {
        &self.bytes[header.value.clone()]
    }
}

/// Headers of a message with endpoints of the hosts.
pub(super) fn named<'m>(message: &'m Message<'_>) -> impl Iterator<Item = &'m Header> {
    message.headers.iter().filter(|header| header.field.has_endpoints())
}

/// The contacts of a message, one by one.
pub(super) fn contacts(message: &Message<'_>) -> impl Iterator<Item = Range<usize>> {
    let headers = message.all(Field::Contact);
    headers.flat_map(|header| text::list(message.bytes, header.value.clone(), b','))
}

/// Endpoints of a family in a part of a message, without values of parameters such as `received`,
/// without users before the host of a URI, and without names in quotes.
pub(super) fn endpoints(
    bytes: &[u8],
    part: Range<usize>,
    family: Family,
) -> impl Iterator<Item = Place> {
    let (mut at, mut is_quoted, mut is_escaped) = (part.start, false, false);
    let is_endpoint = move |place: &Place| {
        let between = &bytes[at..place.range.start];
        if is_quoted || text::find(between, b'"').is_some() {
            for byte in between {
                is_quoted ^= *byte == b'"' && !is_escaped;
                is_escaped = is_quoted && *byte == b'\\' && !is_escaped;
            }
        }
        at = place.range.start;
        let before = bytes[..at].trim_ascii_end().last();
        let is_user = bytes.get(place.range.end) == Some(&b'@');
        !is_quoted && !is_user && before != Some(&b'=')
    };
    text::places(bytes, part, family).filter(is_endpoint)
}

/// What the receiver of a request has seen of its sender: place and value of the address, and of
/// the port.
pub(super) struct Seen {
    pub(super) address: (Range<usize>, IpAddr),
    pub(super) port: Option<(Range<usize>, u16)>,
}

/// What a header Via says in `received` (RFC 3261 section 18.2.1) and `rport` (RFC 3581 section 4),
/// for each of its values with an address of the family. Some write brackets around the address.
pub(super) fn seen(bytes: &[u8], via: Range<usize>, family: Family) -> impl Iterator<Item = Seen> {
    text::list(bytes, via, b',').filter_map(move |value| {
        let (address, _) = parameter(bytes, value.clone(), b"received")?;
        let own = text::address(&bytes[address.clone()]).filter(|ip| Family::of(*ip) == family)?;
        let port = parameter(bytes, value, b"rport").and_then(|(port, text)| {
            let number = text::number(text).and_then(|number| u16::try_from(number).ok())?;
            Some((port, number))
        });
        Some(Seen { address: (address, own), port })
    })
}

/// Bytes behind an endpoint in which `maddr` is searched. Each endpoint of a message has such a
/// search, so a message of endpoints alone must not cost the square of its length.
const REACH: usize = 256;

/// The place of the parameter `maddr` behind an endpoint of a part, in the same URI or value of
/// Via, if it has the address of the endpoint. Messages go to this address, and to the endpoint's
/// port (RFC 3261 sections 18.2.2 and 19.1.1).
pub(super) fn maddr(bytes: &[u8], part: &Range<usize>, of: &Place) -> Option<Range<usize>> {
    let is_end = |byte: &u8| matches!(byte, b',' | b'>' | b'"' | b'?' | b' ' | b'\t' | b'\r');
    let behind = &bytes[of.range.end..part.end.min(of.range.end + REACH)];
    let len = behind.iter().position(is_end).unwrap_or(behind.len());
    let (place, value) = parameter(bytes, of.range.end..of.range.end + len, b"maddr")?;
    (text::address(value) == Some(of.address)).then_some(place)
}

/// False if a text certainly has no parameter with a name and a value.
fn may_have(mut text: &[u8], name: &[u8]) -> bool {
    while let Some(sign) = text::find(text, b'=') {
        let before = text[..sign].trim_ascii_end();
        let start = before.len().checked_sub(name.len());
        if start.is_some_and(|start| before[start..].eq_ignore_ascii_case(name)) {
            return true;
        }
        text = &text[sign + 1..];
    }
    false
}

/// Place and text of the value of a parameter.
pub(super) fn parameter<'b>(
    bytes: &'b [u8],
    of: Range<usize>,
    name: &[u8],
) -> Option<(Range<usize>, &'b [u8])> {
    if !may_have(&bytes[of.clone()], name) {
        return None;
    }
    let parameters = text::list(bytes, of, b';').skip(1);
    let mut values = parameters.filter_map(|parameter| {
        let text = &bytes[parameter.clone()];
        let sign = text::find(text, b'=')?;
        let value = &text[sign + 1..];
        let start = parameter.end - value.trim_ascii_start().len();
        let value = value.trim_ascii();
        let is_it = text[..sign].trim_ascii().eq_ignore_ascii_case(name);
        is_it.then_some((start..start + value.len(), value))
    });
    values.next()
}

/// True if bytes can be the start of a message (RFC 3261 section 7): a method or the version, and
/// no version of another protocol at the end of the line.
pub(super) fn may_be_message(bytes: &[u8]) -> bool {
    const VERSION: &[u8] = b"SIP/2.0 ";
    if bytes.iter().zip(VERSION).all(|(one, other)| one == other) {
        return true;
    }
    let count = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let is_method = (1..=20).contains(&count) && bytes.get(count).is_none_or(|b| *b == b' ');
    is_method && text::start_line(bytes).is_none_or(|line| line.ends_with(b" SIP/2.0"))
}

/// A hash of a text (FNV-1a).
pub(super) fn hash(text: &[u8]) -> u32 {
    text.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A hash of the call's name. Equal hashes of two calls can only narrow an expectation.
pub(super) fn call(message: &Message<'_>) -> u32 {
    hash(message.only(Field::CallId).map_or(&[][..], |header| message.value(header)))
}

/// A hash of the address of record that a message registers, which is not 0. An address of a host
/// in it, of either family, counts for nothing: both sides know the host by different ones.
pub(super) fn record(message: &Message<'_>) -> u16 {
    let header = message.only(Field::To);
    let place = header.map_or(0..0, |header| header.value.clone());
    let value = &message.bytes[place.clone()];
    let start = value.iter().position(|byte| *byte == b'<').map_or(0, |at| at + 1);
    let uri = value[start..].split(|byte| b">;".contains(byte)).next().unwrap_or_default();
    let part = place.start + start..place.start + start + uri.len();
    let host = |family| endpoints(message.bytes, part.clone(), family).next();
    let hosts = [Family::Ipv4, Family::Ipv6].into_iter().filter_map(host);
    let end = hosts.map(|host| host.range.start).min().unwrap_or(part.end);
    let hash = hash(&message.bytes[part.start..end]);
    ((hash >> 16 ^ hash) as u16).max(1)
}

/// The status of a response; `None`: the message is a request.
pub(super) fn status(message: &Message<'_>) -> Option<u16> {
    let digits = message.bytes.strip_prefix(b"SIP/2.0 ")?.get(..3)?;
    text::number(digits).map(|status| status as u16)
}

/// A hash of the number of a request to register and of its call, which both are in the answer
/// (RFC 3261 section 8.2.6.2). 0: the message is none, and no answer to one.
pub(super) fn request(message: &Message<'_>) -> u32 {
    let number = message.only(Field::CSeq).map(|header| message.value(header));
    let number = number.filter(|number| number.ends_with(b" REGISTER"));
    number.map_or(0, |number| (hash(number) ^ call(message).rotate_left(7)).max(1))
}

/// Length of a message's body (RFC 3261 section 18.3). `None`: it cannot be told.
pub(super) fn body_len(message: &Message<'_>, context: &Context<'_>) -> Option<usize> {
    match (message.all(Field::ContentLength).count(), context.is_datagram) {
        (0, true) => Some(message.bytes.len() - message.head),
        (1, _) => {
            let header = message.only(Field::ContentLength)?;
            text::number(message.value(header)).map(|length| length as usize)
        }
        _ => None,
    }
}

/// The contacts that a request to register names, and the lifetime of each that it asks for,
/// seconds. Other messages have none.
pub(super) fn asked(message: &Message<'_>) -> Vec<(Range<usize>, u16)> {
    if !message.bytes.starts_with(b"REGISTER ") {
        return Vec::new();
    }
    let of_all = expires_of_all(message);
    let with_time = |contact: Range<usize>| {
        let text = &message.bytes[contact.clone()];
        (contact, expires(text, of_all).unwrap_or(REGISTRATION))
    };
    contacts(message).map(with_time).collect()
}

/// True if a request to register ends all registrations of the address of record. Beside other
/// contacts, or without `Expires: 0`, the contact `*` is an error (RFC 3261 section 10.3).
pub(super) fn ends_all(message: &Message<'_>, asked: &[(Range<usize>, u16)]) -> bool {
    matches!(asked, [(contact, 0)] if message.bytes[contact.clone()].trim_ascii() == b"*")
}

/// The lifetime that the header Expires has for all contacts, seconds.
pub(super) fn expires_of_all(message: &Message<'_>) -> Option<u32> {
    message.only(Field::Expires).and_then(|header| text::number(message.value(header)))
}

/// Lifetime of one contact, seconds: by its parameter, else `of_all`, the header's. `None`: neither
/// says it.
pub(super) fn expires(contact: &[u8], of_all: Option<u32>) -> Option<u16> {
    let parameter = parameter(contact, 0..contact.len(), b"expires").map(|(_, digits)| {
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Values without a meaning count as an hour (RFC 3261 section 10.2.1.1).
        text::number(&digits[..count]).unwrap_or(REGISTRATION.into())
    });
    let seconds = parameter.or(of_all)?;
    Some(seconds.min(u32::from(REGISTRATION)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

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
    fn each_contact_of_a_registration_has_a_lifetime() {
        let read = |text: &str| -> Vec<u16> {
            let headers = headers(text.as_bytes());
            let message = Message { bytes: text.as_bytes(), head: text.len(), headers: &headers };
            asked(&message).into_iter().map(|(_, seconds)| seconds).collect()
        };
        let own = "REGISTER a SIP/2.0\r\nm: <sip:a>;expires=60\r\nExpires: 9\r\n\r\n";
        assert_eq!(read(own), [60]);
        assert_eq!(read("REGISTER a SIP/2.0\r\nContact: <sip:a>\r\nExpires: 9\r\n\r\n"), [9]);
        let many = "REGISTER a SIP/2.0\r\nm: <sip:a>;expires=0, <sip:b>;expires=5\r\n";
        let text = format!("{many}Contact: \"a, b\" <sip:c>;expires=6\r\n\r\n");
        assert_eq!(read(&text), [0, 5, 6]);
        // Parameters in any order, with brackets, commas and the name itself in quotes.
        for (parameters, wanted) in [
            (";expires=0;+sip.instance=\"<urn:uuid:1>\"", 0),
            (";+sip.instance=\"<urn:uuid:1>\";EXPIRES = 7", 7),
            (";methods=\"INVITE,ACK\";expires=8", 8),
            (";text=\"a;expires=1\"", 3600),
            (";x-expires=1", 3600),
            (";expires=99999999999", 3600),
            (";expires=soon", 3600),
        ] {
            let text = format!("REGISTER a SIP/2.0\r\nm: <sip:a;expires=5>{parameters}\r\n\r\n");
            assert_eq!(read(&text), [wanted], "{parameters}");
        }
        assert_eq!(read("REGISTER a SIP/2.0\r\nContact: *\r\nExpires: 0\r\n\r\n"), [0]);
        let long = "REGISTER a SIP/2.0\r\nm: <sip:a>\r\nExpires: 99999999999\r\n\r\n";
        assert_eq!(read(long), [3600]);
        // A question for the contacts that are registered.
        assert_eq!(read("REGISTER a SIP/2.0\r\nExpires: 9\r\n\r\n"), []);
        assert_eq!(read("INVITE a SIP/2.0\r\nm: <sip:a>\r\nExpires: 9\r\n\r\n"), []);
    }
}
