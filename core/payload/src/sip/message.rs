//! A whole message of SIP, and what its headers say (RFC 3261 section 20).

use crate::lifetime::REGISTRATION;
use crate::message::Context;
use crate::text::{self, Header, Place};
use alloc::vec::Vec;
use core::ops::Range;

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

/// A whole message.
#[derive(Clone, Copy)]
pub(super) struct Message<'m> {
    pub(super) bytes: &'m [u8],
    pub(super) head: usize,
    pub(super) headers: &'m [Header],
}

impl Message<'_> {
    /// The only header with one of two names. `None`: there is none, or there are several.
    pub(super) fn only(&self, long: &str, short: &str) -> Option<&Header> {
        let mut all = self.headers.iter().filter(|h| h.name == long || h.name == short);
        let first = all.next();
        if all.next().is_some() { None } else { first }
    }

    pub(super) fn value(&self, header: &Header) -> &[u8] {
        &self.bytes[header.value.clone()]
    }
}

/// Headers of a message with endpoints of the hosts.
pub(super) fn named<'m>(message: &'m Message<'_>) -> impl Iterator<Item = &'m Header> {
    message.headers.iter().filter(|header| HEADERS.contains(&&header.name[..]))
}

/// The contacts of a message, one by one.
pub(super) fn contacts(message: &Message<'_>) -> impl Iterator<Item = Range<usize>> {
    let is_contact = |header: &&Header| header.name == "contact" || header.name == "m";
    let headers = message.headers.iter().filter(is_contact);
    headers.flat_map(|header| text::list(message.bytes, header.value.clone(), b','))
}

/// Endpoints in a part of a message, without values of parameters such as `received`, and without
/// names in quotes.
pub(super) fn endpoints(bytes: &[u8], part: Range<usize>) -> impl Iterator<Item = Place> {
    let (mut at, mut is_quoted, mut is_escaped) = (part.start, false, false);
    let is_endpoint = move |place: &Place| {
        for byte in &bytes[at..place.range.start] {
            is_quoted ^= *byte == b'"' && !is_escaped;
            is_escaped = is_quoted && *byte == b'\\' && !is_escaped;
        }
        at = place.range.start;
        let before = at.checked_sub(1).map(|before| bytes[before]);
        !is_quoted && before != Some(b'=')
    };
    text::addresses(bytes, part).into_iter().filter(is_endpoint)
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
    hash(message.only("call-id", "i").map_or(&[][..], |header| message.value(header)))
}

/// A hash of the address of record that a message registers, which is not 0.
pub(super) fn record(message: &Message<'_>) -> u16 {
    let value = message.only("to", "t").map_or(&[][..], |header| message.value(header));
    let start = value.iter().position(|byte| *byte == b'<').map_or(0, |at| at + 1);
    let uri = value[start..].split(|byte| b">;".contains(byte)).next().unwrap_or_default();
    let hash = hash(uri);
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
    let value = |name| message.only(name, name).map(|header| message.value(header));
    let number = value("cseq").filter(|number| number.ends_with(b" REGISTER"));
    number.map_or(0, |number| (hash(number) ^ call(message).rotate_left(7)).max(1))
}

/// Length of a message's body (RFC 3261 section 18.3). `None`: it cannot be told.
pub(super) fn body_len(message: &Message<'_>, context: &Context<'_>) -> Option<usize> {
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

/// The contacts that a request to register names, and the lifetime of each that it asks for,
/// seconds. Other messages have none.
pub(super) fn asked(message: &Message<'_>) -> Vec<(Range<usize>, u16)> {
    if !message.bytes.starts_with(b"REGISTER ") {
        return Vec::new();
    }
    let with_time = |contact: Range<usize>| {
        let text = &message.bytes[contact.clone()];
        (contact, expires(message, text).unwrap_or(REGISTRATION))
    };
    contacts(message).map(with_time).collect()
}

/// True if a request to register ends all registrations of the address of record. Beside other
/// contacts, or without `Expires: 0`, the contact `*` is an error (RFC 3261 section 10.3).
pub(super) fn ends_all(message: &Message<'_>, asked: &[(Range<usize>, u16)]) -> bool {
    matches!(asked, [(contact, 0)] if message.bytes[contact.clone()].trim_ascii() == b"*")
}

/// Lifetime of one contact, seconds: by its parameter, else by the header Expires. `None`: neither
/// says it.
pub(super) fn expires(message: &Message<'_>, contact: &[u8]) -> Option<u16> {
    let parameters = text::list(contact, 0..contact.len(), b';').into_iter().skip(1);
    let mut values = parameters.filter_map(|parameter| {
        let mut halves = contact[parameter].splitn(2, |byte| *byte == b'=');
        let name = halves.next()?.trim_ascii();
        halves.next().filter(|_| name.eq_ignore_ascii_case(b"expires"))
    });
    let parameter = values.next().map(|value| {
        let digits = value.trim_ascii_start();
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Values without a meaning count as an hour (RFC 3261 section 10.2.1.1).
        text::number(&digits[..count]).unwrap_or(REGISTRATION.into())
    });
    let header = || {
        let header = message.only("expires", "expires")?;
        text::number(message.value(header))
    };
    let seconds = parameter.or_else(header)?;
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
            let headers = text::headers(text.as_bytes());
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
