//! Messages of text with headers, and addresses in text: what SIP and RTSP have in common (RFC 822
//! style headers as in RFC 3261 section 7.3).
//!
//! A head is the start line and all headers with the empty line behind them.

use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// Position of the first byte with a value. Eight bytes are compared at a time: heads of messages
/// are long, and most of their bytes matter to nobody (`natgate bench instructions`, `sip`).
pub(crate) fn find(bytes: &[u8], value: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // A byte with the value becomes zero. The first zero is the lowest one whose borrow sets
        // the high bit.
        let word = u64::from_le_bytes(*word) ^ (ONES * u64::from(value));
        let zeros = word.wrapping_sub(ONES) & !word & HIGH;
        if zeros != 0 {
            return Some(at * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| *byte == value)?;
    Some(words.len() * 8 + at)
}

/// Position behind the first end of a line that is also the end of `mark`.
fn end_of<const LEN: usize>(bytes: &[u8], mark: [u8; LEN]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += find(&bytes[at..], b'\n')? + 1;
        if bytes[..at].last_chunk() == Some(&mark) {
            return Some(at);
        }
    }
}

/// Length of the head at the start of the bytes. `None`: it is not complete.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    end_of(bytes, *b"\r\n\r\n")
}

/// The start line, without its end. `None`: it is not complete.
pub(crate) fn start_line(bytes: &[u8]) -> Option<&[u8]> {
    end_of(bytes, *b"\r\n").map(|end| &bytes[..end - 2])
}

/// A header of a message: its name, and the place of its value in the message.
#[derive(Clone, Debug)]
pub(crate) struct Header<'h> {
    name: &'h [u8],
    pub(crate) value: Range<usize>,
}

impl<'h> Header<'h> {
    /// The name as the message has it.
    pub(crate) fn name(&self) -> &'h [u8] {
        self.name
    }

    /// True for a name, which may have letters of any case.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The headers of a head. A line that begins with a blank continues the header before it.
pub(crate) fn headers(head: &[u8]) -> impl Iterator<Item = Header<'_>> {
    let mut at = start_line(head).map_or(head.len(), |line| line.len() + 2);
    let mut last: Option<Header<'_>> = None;
    core::iter::from_fn(move || {
        while let Some(line) = start_line(&head[at..]).filter(|line| !line.is_empty()) {
            let (start, end) = (at, at + line.len());
            at = end + 2;
            if line[0] == b' ' || line[0] == b'\t' {
                if let Some(last) = &mut last {
                    last.value.end = end;
                }
            } else if let Some(colon) = find(line, b':') {
                let blanks = line[colon + 1..].iter().take_while(|byte| **byte == b' ').count();
                let value = start + colon + 1 + blanks..end;
                let whole = last.replace(Header { name: line[..colon].trim_ascii(), value });
                if whole.is_some() {
                    return whole;
                }
            }
        }
        last.take()
    })
}

/// Reads a number of at most `most` at the start of a text. A zero is a number of its own, so
/// `05` begins with 0. Returns the number, and the text behind it.
fn leading(text: &[u8], most: u32) -> Option<(u32, &[u8])> {
    if let Some(rest) = text.strip_prefix(b"0") {
        return Some((0, rest));
    }
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(count);
    let number = digits.iter().try_fold(0_u32, |number, digit| {
        let number = number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
        (number <= most).then_some(number)
    })?;
    (count > 0).then_some((number, rest))
}

/// A number that is the whole text, without zeros before it.
pub(crate) fn exact<N: TryFrom<u32>>(text: &[u8]) -> Option<N> {
    let (number, rest) = leading(text, u32::MAX)?;
    N::try_from(number).ok().filter(|_| rest.is_empty())
}

/// A number that is the whole text but blanks around it, and zeros before it.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    match &text[zeros..] {
        [] => (zeros > 0).then_some(0),
        digits => exact(digits),
    }
}

/// Parts of a list with commas between them, or of one value with semicolons between its parameters
/// (RFC 3261 section 7.3.1). Separators in quotes and in brackets do not count.
pub(crate) fn list(
    text: &[u8],
    part: Range<usize>,
    separator: u8,
) -> impl Iterator<Item = Range<usize>> {
    let mut next = Some(part.start);
    core::iter::from_fn(move || {
        let start = next.take()?;
        let (mut is_quoted, mut is_escaped, mut is_uri) = (false, false, false);
        // Without a separator, the rest is one part.
        let rest = find(&text[start..part.end], separator).map_or(0..0, |_| start..part.end);
        for at in rest {
            match text[at] {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_quoted => is_escaped = true,
                b'"' if !is_uri => is_quoted = !is_quoted,
                b'<' if !is_quoted => is_uri = true,
                b'>' if !is_quoted => is_uri = false,
                byte if byte == separator && !is_quoted && !is_uri => {
                    next = Some(at + 1);
                    return Some(start..at);
                }
                _ => {}
            }
        }
        Some(start..part.end)
    })
}

/// Reads a dotted IPv4 address at the start of a text. Returns it, and the text behind it.
fn leading_ipv4(text: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let (mut octets, mut rest) = ([0; 4], text);
    for (at, octet) in octets.iter_mut().enumerate() {
        let dot = usize::from(at > 0);
        let digits = rest.get(dot..).filter(|_| dot == 0 || rest.first() == Some(&b'.'))?;
        let (number, behind) = leading(digits, u8::MAX.into())?;
        (*octet, rest) = (number as u8, behind);
    }
    Some((octets.into(), rest))
}

/// A dotted IPv4 address that is the whole text.
pub(crate) fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let (address, rest) = leading_ipv4(text)?;
    rest.is_empty().then_some(address)
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
    if let Some(address) = ipv4(text) {
        return Some(address.into());
    }
    let bare = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    ipv6(bare).map(IpAddr::V6)
}

/// Digits of a number at the end of a buffer, and the place of the first one.
fn digits(number: u32) -> ([u8; 10], usize) {
    let (mut digits, mut at, mut rest) = ([0; 10], 10, number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return (digits, at);
        }
    }
}

/// Writes a number.
pub(crate) fn write_number(to: &mut Vec<u8>, number: u32) {
    let (digits, at) = digits(number);
    to.extend_from_slice(&digits[at..]);
}

/// Writes an address.
pub(crate) fn write_address(to: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            // Backwards, with a dot before each octet.
            let (mut text, mut at) = ([0; 16], 16);
            for octet in address.octets().into_iter().rev() {
                let mut rest = octet;
                loop {
                    at -= 1;
                    text[at] = b'0' + rest % 10;
                    rest /= 10;
                    if rest == 0 {
                        break;
                    }
                }
                at -= 1;
                text[at] = b'.';
            }
            to.extend_from_slice(&text[at + 1..]);
        }
        IpAddr::V6(address) => to.extend_from_slice(format!("{address}").as_bytes()),
    }
}

/// Writes an address as a host of a URI: IPv6 in brackets.
pub(crate) fn write_host(to: &mut Vec<u8>, address: IpAddr) {
    if address.is_ipv4() {
        return write_address(to, address);
    }
    to.push(b'[');
    write_address(to, address);
    to.push(b']');
}

/// Writes a host of a URI with its port.
pub(crate) fn write_end(to: &mut Vec<u8>, address: IpAddr, port: u16) {
    write_host(to, address);
    to.push(b':');
    write_number(to, port.into());
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
    let digits = rest.strip_prefix(b":");
    let port = digits.and_then(|digits| leading(digits, u16::MAX.into()));
    if let Some((_, behind)) = port {
        *rest = behind;
    }
    let is_cut = |from: usize| rest.get(from).is_some_and(u8::is_ascii_digit);
    let is_longer = is_cut(0) || rest.first() == Some(&b':') && is_cut(1);
    (!is_longer).then_some(port.map(|(port, _)| port as u16))
}

/// All addresses of a family in a part of a text, with their ports.
#[derive(Clone, Debug)]
pub(crate) struct Places<'t> {
    text: &'t [u8],
    at: usize,
    end: usize,
    family: Family,
}

/// All addresses of a family in a part of a text, with their ports.
pub(crate) fn places(text: &[u8], part: Range<usize>, family: Family) -> Places<'_> {
    Places { text, at: part.start, end: part.end, family }
}

impl Iterator for Places<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        match self.family {
            Family::Ipv4 => self.next_ipv4(),
            Family::Ipv6 => self.next_ipv6(),
        }
    }
}

impl Places<'_> {
    /// The next IPv4 address. An address that is a part of a longer word does not count, so up to
    /// three digits at the start of a word stand before its first dot.
    fn next_ipv4(&mut self) -> Option<Place> {
        loop {
            let text = &self.text[..self.end];
            let dot = self.at + find(&text[self.at..], b'.')?;
            let is_digit = |byte: &&u8| byte.is_ascii_digit();
            let digits = text[self.at..dot].iter().rev().take(4).take_while(is_digit).count();
            let start = dot - digits;
            self.at = dot + 1;
            let is_cut = start.checked_sub(1).is_some_and(|before| is_word(text[before]));
            if !(1..=3).contains(&digits) || is_cut {
                continue;
            }
            let Some((address, mut rest)) = leading_ipv4(&text[start..]) else { continue };
            if rest.first().is_some_and(|byte| is_word(*byte)) {
                continue;
            }
            let port = port(&mut rest);
            self.at = self.end - rest.len();
            if let Some(port) = port {
                return Some(Place { range: start..self.at, address: address.into(), port });
            }
        }
    }

    /// The next IPv6 address in brackets (RFC 3261 section 25.1).
    fn next_ipv6(&mut self) -> Option<Place> {
        loop {
            let text = &self.text[..self.end];
            let start = self.at + find(&text[self.at..], b'[')?;
            self.at = start + 1;
            let inner = &text[self.at..];
            let len = find(&inner[..inner.len().min(LONGEST_IPV6 + 1)], b']');
            let address = len.and_then(|len| Some((len, ipv6(&inner[..len])?)));
            let Some((len, address)) = address else { continue };
            let mut rest = &inner[len + 1..];
            if rest.first().is_some_and(|byte| is_word(*byte)) {
                continue;
            }
            let port = port(&mut rest);
            self.at = self.end - rest.len();
            if let Some(port) = port {
                return Some(Place { range: start..self.at, address: address.into(), port });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_may_be_folded() {
        let head = b"A b\r\nOne: 1\r\nTwo :2;\r\n  3\r\nno header\r\n\r\nbody";
        assert_eq!(head_len(head), Some(head.len() - 4));
        let all = headers(&head[..head.len() - 4]);
        let text: Vec<_> = all.map(|h| (h.name(), &head[h.value.clone()])).collect();
        assert_eq!(text, [(&b"One"[..], &b"1"[..]), (b"Two", b"2;\r\n  3")]);
        assert!(headers(head).next().is_some_and(|header| header.is("oNE") && !header.is("on")));
        assert_eq!(head_len(b"A b\r\n\r"), None);
    }

    #[test]
    fn commas_in_quotes_and_in_brackets_divide_nothing() {
        let text = br#"x "a, \", b" <sip:a,b>;c=1,<sip:d>, e"#;
        let parts = list(text, 2..text.len(), b',');
        let parts: Vec<_> = parts.map(|part| &text[part]).collect();
        assert_eq!(parts, [&br#""a, \", b" <sip:a,b>;c=1"#[..], b"<sip:d>", b" e"]);
    }

    #[test]
    fn addresses_are_whole_words() {
        let text =
            b"<sip:a@10.0.0.5:5060>;x=10.0.0.5, 110.0.0.5.6 a10.0.0.5 10.0.0.256 1.2.3.4:99999";
        let all = places(text, 0..text.len(), Family::Ipv4);
        let found: Vec<_> = all.map(|place| (&text[place.range.clone()], place.port)).collect();
        assert_eq!(found, [(&b"10.0.0.5:5060"[..], Some(5060)), (b"10.0.0.5", None)]);
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        let text = b"<sip:a@[2001:DB8::1]:5060>;x=[2001:db8:0::1], [::1]x [::g] [[::2]:70000 [::3\
            [::ffff:10.0.0.5] [1:2:3:4:5:6:7:8]:1;[2001:db8::10:5070]";
        let all = places(text, 0..text.len(), Family::Ipv6);
        let found: Vec<_> = all.map(|place| (&text[place.range.clone()], place.port)).collect();
        let expected = [
            (&b"[2001:DB8::1]:5060"[..], Some(5060)),
            (b"[2001:db8:0::1]", None),
            (b"[::ffff:10.0.0.5]", None),
            (b"[1:2:3:4:5:6:7:8]:1", Some(1)),
            (b"[2001:db8::10:5070]", None),
        ];
        assert_eq!(found, expected);
        let mut written = Vec::new();
        ["2001:DB8::1", "10.0.0.5"]
            .map(|one| address(one.as_bytes()))
            .into_iter()
            .flatten()
            .for_each(|one| write_end(&mut written, one, 5060));
        assert_eq!(written, b"[2001:db8::1]:506010.0.0.5:5060");
        assert_eq!((address(b"[::1]"), address(b"::1]")), (ipv6(b"::1").map(IpAddr::V6), None));
    }

    /// The IPv4 addresses that are whole words, found word by word.
    fn words_with_addresses(text: &[u8], part: Range<usize>) -> Vec<(usize, IpAddr, Option<u16>)> {
        let digits =
            |at: usize| text[at..part.end].iter().take_while(|b| b.is_ascii_digit()).count();
        let (mut found, mut at) = (Vec::new(), part.start);
        while at < part.end {
            let len = text[at..part.end].iter().take_while(|byte| is_word(**byte)).count();
            let (start, end) = (at, at + len);
            at = end + 1;
            let is_cut = start > 0 && is_word(text[start - 1]);
            let word = core::str::from_utf8(&text[start..end]).unwrap_or_default();
            let Some(address) = word.parse().ok().filter(|_| !is_cut) else { continue };
            let is_port = |at: usize| text[..part.end].get(at) == Some(&b':') && digits(at + 1) > 0;
            if !is_port(end) {
                found.push((start, IpAddr::V4(address), None));
                continue;
            }
            at = end + 1 + digits(end + 1);
            let port = &text[end + 1..at];
            let number = core::str::from_utf8(port).ok().and_then(|text| text.parse::<u16>().ok());
            let is_plain = port == b"0" || port[0] != b'0';
            if let (Some(port), true, false) = (number, is_plain, is_port(at)) {
                found.push((start, IpAddr::V4(address), Some(port)));
            }
        }
        found
    }

    /// Texts of pieces that matter to the searches.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let pieces: [&[u8]; 20] = [
            b"\r\n",
            b"\r\n\r\n",
            b"\r",
            b"\n",
            b" ",
            b":",
            b":5060",
            b":0",
            b".",
            b"10.0.0.5",
            b"1.2",
            b"192.0.2.10",
            b"256.",
            b"0",
            b"a",
            b"=",
            b"\xff",
            b"\"",
            b"Via: SIP/2.0/UDP x",
            b"\x0b\x8d",
        ];
        let piece = proptest::sample::select(pieces.to_vec());
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn quick_searches_find_what_plain_ones_find(text in texts(), cut in 0_usize..99) {
            let first = |mark: &[u8]| text.windows(mark.len()).position(|part| part == mark);
            for value in [b'\n', b'.', b'"', b'\xff', b'\x0b', b'\x0c'] {
                prop_assert_eq!(find(&text, value), first(&[value]));
            }
            prop_assert_eq!(head_len(&text), first(b"\r\n\r\n").map(|at| at + 4));
            prop_assert_eq!(start_line(&text).map(<[u8]>::len), first(b"\r\n"));
            let part = cut.min(text.len())..text.len();
            let found = places(&text, part.clone(), Family::Ipv4);
            let found: Vec<_> =
                found.map(|one| (one.range.start, one.address, one.port)).collect();
            prop_assert_eq!(found, words_with_addresses(&text, part));
        }

        #[test]
        fn written_addresses_are_those_of_the_library(bits: u32, high: u64, port: u16) {
            let six = Ipv6Addr::from(u128::from(high) << 64 | u128::from(bits));
            for address in [IpAddr::from(Ipv4Addr::from(bits)), six.into()] {
                let (mut end, mut bare) = (Vec::new(), Vec::new());
                write_end(&mut end, address, port);
                write_address(&mut bare, address);
                let socket = core::net::SocketAddr::new(address, port);
                prop_assert_eq!(end, format!("{socket}").into_bytes());
                prop_assert_eq!(super::address(&bare), Some(address));
            }
        }
    }
}
