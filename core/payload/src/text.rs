//! Messages of text with headers, and addresses in text: what SIP and RTSP have in common (RFC 822
//! style headers as in RFC 3261 section 7.3).
//!
//! A head is the start line and all headers with the empty line behind them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use winnow::ascii::dec_uint;
use winnow::combinator::{opt, preceded};
use winnow::{ModalResult, Parser};

/// Length of the head at the start of the bytes. `None`: it is not complete.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// The start line, without its end. `None`: it is not complete.
pub(crate) fn start_line(bytes: &[u8]) -> Option<&[u8]> {
    bytes.windows(2).position(|two| two == b"\r\n").map(|end| &bytes[..end])
}

/// A header of a message: its name in lower case, and the place of its value in the message.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: Range<usize>,
}

/// The headers of a head. A line that begins with a blank continues the line before it.
pub(crate) fn headers(head: &[u8]) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    let mut at = start_line(head).map_or(head.len(), |line| line.len() + 2);
    while let Some(line) = start_line(&head[at..]).filter(|line| !line.is_empty()) {
        let end = at + line.len();
        if line[0] == b' ' || line[0] == b'\t' {
            if let Some(last) = headers.last_mut() {
                last.value.end = end;
            }
        } else if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let name = String::from_utf8_lossy(line[..colon].trim_ascii()).to_ascii_lowercase();
            let blanks = line[colon + 1..].iter().take_while(|byte| **byte == b' ').count();
            headers.push(Header { name, value: at + colon + 1 + blanks..end });
        }
        at = end + 2;
    }
    headers
}

/// A number that is the whole text but blanks around it, and zeros before it.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    match &text[zeros..] {
        [] => (zeros > 0).then_some(0),
        digits => dec_uint::<_, u32, winnow::error::ContextError>.parse(digits).ok(),
    }
}

/// Parts of a list with commas between them, or of one value with semicolons between its parameters
/// (RFC 3261 section 7.3.1). Separators in quotes and in brackets do not count.
pub(crate) fn list(text: &[u8], part: Range<usize>, separator: u8) -> Vec<Range<usize>> {
    let (mut parts, mut start) = (Vec::new(), part.start);
    let (mut is_quoted, mut is_escaped, mut is_uri) = (false, false, false);
    for at in part.clone() {
        match text[at] {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' if !is_uri => is_quoted = !is_quoted,
            b'<' if !is_quoted => is_uri = true,
            b'>' if !is_quoted => is_uri = false,
            byte if byte == separator && !is_quoted && !is_uri => {
                parts.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(start..part.end);
    parts
}

/// Reads a dotted IPv4 address.
pub(crate) fn ipv4(input: &mut &[u8]) -> ModalResult<Ipv4Addr> {
    let next = || preceded('.', dec_uint::<_, u8, _>);
    let (a, b, c, d) = (dec_uint::<_, u8, _>, next(), next(), next()).parse_next(input)?;
    Ok(Ipv4Addr::new(a, b, c, d))
}

/// The family of the addresses that a host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// Longest text of an IPv6 address, bytes.
const LONGEST_IPV6: usize = 45;

/// An IPv6 address that is the whole text.
pub(crate) fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// An address that is the whole text; an IPv6 one may stand in brackets.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    if let Ok(address) = ipv4.parse(text) {
        return Some(address.into());
    }
    let bare = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    ipv6(bare).map(IpAddr::V6)
}

/// An address as a host of a URI: IPv6 in brackets.
pub(crate) fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}"),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// An address in a text, with the port behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Place of the address and the port.
    pub(crate) range: Range<usize>,
    pub(crate) address: IpAddr,
    pub(crate) port: Option<u16>,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_".contains(&byte)
}

/// Reads the port behind an address, if there is one. `None`: the number is no port.
fn port(rest: &mut &[u8]) -> Option<Option<u16>> {
    let port = opt(preceded(':', dec_uint::<_, u16, winnow::error::ContextError>));
    let port = { port }.parse_next(rest).ok().flatten();
    let is_cut = |from: usize| rest.get(from).is_some_and(u8::is_ascii_digit);
    let is_longer = is_cut(0) || rest.first() == Some(&b':') && is_cut(1);
    (!is_longer).then_some(port)
}

/// All addresses of a family in a part of a text, with their ports.
pub(crate) fn places(text: &[u8], part: Range<usize>, family: Family) -> Vec<Place> {
    match family {
        Family::Ipv4 => addresses(text, part),
        Family::Ipv6 => references(text, part),
    }
}

/// All IPv4 addresses in a part of a text. An address that is a part of a longer word does not
/// count.
pub(crate) fn addresses(text: &[u8], part: Range<usize>) -> Vec<Place> {
    let mut places = Vec::new();
    let mut at = part.start;
    while at < part.end {
        let is_start = text[at].is_ascii_digit() && (at == 0 || !is_word(text[at - 1]));
        let mut rest = &text[at..part.end];
        match ipv4(&mut rest) {
            Ok(address) if is_start && !rest.first().is_some_and(|byte| is_word(*byte)) => {
                let port = port(&mut rest);
                let range = at..part.end - rest.len();
                at = range.end;
                places.extend(port.map(|port| Place { range, address: address.into(), port }));
            }
            _ => at += 1,
        }
    }
    places
}

/// All IPv6 addresses in brackets in a part of a text (RFC 3261 section 25.1).
fn references(text: &[u8], part: Range<usize>) -> Vec<Place> {
    let mut places = Vec::new();
    let mut at = part.start;
    while let Some(before) = text[at..part.end].iter().position(|byte| *byte == b'[') {
        let start = at + before;
        at = start + 1;
        let inner = &text[at..part.end];
        let len = inner.iter().take(LONGEST_IPV6 + 1).position(|byte| *byte == b']');
        let address = len.and_then(|len| Some((len, ipv6(&inner[..len])?)));
        let Some((len, address)) = address else { continue };
        let mut rest = &inner[len + 1..];
        if rest.first().is_some_and(|byte| is_word(*byte)) {
            continue;
        }
        let port = port(&mut rest);
        let range = start..part.end - rest.len();
        at = range.end;
        places.extend(port.map(|port| Place { range, address: address.into(), port }));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_may_be_folded() {
        let head = b"A b\r\nOne: 1\r\nTwo :2;\r\n  3\r\nno header\r\n\r\nbody";
        assert_eq!(head_len(head), Some(head.len() - 4));
        let all = headers(&head[..head.len() - 4]);
        let text: Vec<_> = all.iter().map(|h| (&h.name[..], &head[h.value.clone()])).collect();
        assert_eq!(text, [("one", &b"1"[..]), ("two", b"2;\r\n  3")]);
        assert_eq!(head_len(b"A b\r\n\r"), None);
    }

    #[test]
    fn commas_in_quotes_and_in_brackets_divide_nothing() {
        let text = br#"x "a, \", b" <sip:a,b>;c=1,<sip:d>, e"#;
        let parts = list(text, 2..text.len(), b',');
        let parts: Vec<_> = parts.into_iter().map(|part| &text[part]).collect();
        assert_eq!(parts, [&br#""a, \", b" <sip:a,b>;c=1"#[..], b"<sip:d>", b" e"]);
    }

    #[test]
    fn addresses_are_whole_words() {
        let text =
            b"<sip:a@10.0.0.5:5060>;x=10.0.0.5, 110.0.0.5.6 a10.0.0.5 10.0.0.256 1.2.3.4:99999";
        let all = addresses(text, 0..text.len());
        let found: Vec<_> =
            all.iter().map(|place| (&text[place.range.clone()], place.port)).collect();
        assert_eq!(found, [(&b"10.0.0.5:5060"[..], Some(5060)), (b"10.0.0.5", None)]);
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        let text = b"<sip:a@[2001:DB8::1]:5060>;x=[2001:db8:0::1], [::1]x [::g] [[::2]:70000 [::3\
            [::ffff:10.0.0.5] [1:2:3:4:5:6:7:8]:1;[2001:db8::10:5070]";
        let all = places(text, 0..text.len(), Family::Ipv6);
        let found: Vec<_> =
            all.iter().map(|place| (&text[place.range.clone()], place.port)).collect();
        let expected = [
            (&b"[2001:DB8::1]:5060"[..], Some(5060)),
            (b"[2001:db8:0::1]", None),
            (b"[::ffff:10.0.0.5]", None),
            (b"[1:2:3:4:5:6:7:8]:1", Some(1)),
            (b"[2001:db8::10:5070]", None),
        ];
        assert_eq!(found, expected);
        assert_eq!(host(all[0].address), "[2001:db8::1]");
        assert_eq!((address(b"[::1]"), address(b"::1]")), (ipv6(b"::1").map(IpAddr::V6), None));
    }
}
