//! RTSP: the Transport header of version 1.0 (RFC 2326 section 12.39) and 2.0 (RFC 7826 section
//! 18.54).
//!
//! A client inside names its ports in SETUP, a server inside names its ports in the reply. Media
//! come by UDP from the control flow's remote address. The reply repeats the client's ports, and
//! the client compares them, so the framework puts the internal ports back. Bodies and data that
//! is interleaved with messages pass unread.

use crate::Side;
use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::text::{self, Header};
use alloc::format;
use alloc::vec::Vec;
use core::net::{Ipv6Addr, SocketAddr};
use core::ops::Range;
use natgate_wire::protocol::UDP;
use winnow::Parser;
use winnow::ascii::dec_uint;
use winnow::combinator::{opt, preceded};
use winnow::error::ContextError;

/// Longest head, bytes.
const LONGEST_HEAD: usize = 4096;

/// Lifetime of an expectation, seconds: media begin behind PLAY.
const LIFETIME: u16 = 120;

/// Ports of one stream: as the client wrote them, and as the server knows them.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    internal: u16,
    external: u16,
}

/// A control connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtsp {
    /// Bytes that pass unread, from inside and from outside.
    unread: [u32; 2],
    /// The last streams.
    streams: [Stream; 4],
    next_stream: u8,
}

impl Protocol for Rtsp {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        let unread = &mut self.unread[context.from() as usize];
        if *unread > 0 {
            let count = bytes.len().min(*unread as usize);
            *unread -= count as u32;
            return Step::Pass(count);
        }
        if bytes[0] == b'$' {
            // RFC 2326 section 10.12: a channel, and the length of the data.
            let &[_, _, high, low, ..] = bytes else { return Step::More };
            *unread = u32::from(u16::from_be_bytes([high, low]));
            return Step::Pass(4);
        }
        if bytes.starts_with(b"\r\n") {
            return Step::Pass(2);
        }
        if bytes == b"\r" {
            return Step::More;
        }
        if !may_be_message(bytes) {
            return Step::Leave(Reason::NotProtocol);
        }
        match text::head_len(bytes) {
            Some(len) if len <= LONGEST_HEAD => {
                self.take_head(&bytes[..len], context).unwrap_or_else(|step| step)
            }
            None if bytes.len() <= LONGEST_HEAD => Step::More,
            _ => Step::Leave(Reason::TooLong),
        }
    }
}

impl Rtsp {
    fn take_head(&mut self, head: &[u8], context: &mut Context<'_>) -> Result<Step, Step> {
        let headers = text::headers(head);
        let lengths: Vec<&Header> =
            headers.iter().filter(|header| header.name == "content-length").collect();
        let length = match lengths[..] {
            [] => Some(0),
            [header] => text::number(&head[header.value.clone()]),
            _ => None,
        };
        // A body of unknown length would hide the next message, or look like one.
        let length = length.ok_or(Step::Leave(Reason::NotProtocol))?;
        let is_request = !head.starts_with(b"RTSP/");
        let is_of_setup = !is_request || head.starts_with(b"SETUP ");
        for header in headers.iter().filter(|header| is_of_setup && header.name == "transport") {
            for (name, value) in parameters(head, header.value.clone()) {
                self.edit(head, (&name, value), is_request, context)?;
            }
        }
        self.unread[context.from() as usize] = length;
        Ok(Step::Pass(head.len()))
    }

    /// Edits one parameter of a Transport header.
    fn edit(
        &mut self,
        head: &[u8],
        (name, value): (&[u8], Range<usize>),
        is_request: bool,
        context: &mut Context<'_>,
    ) -> Result<(), Step> {
        let is_from_inside = context.from() == Side::Inside;
        let text = &head[value.clone()];
        match name {
            b"client_port" if is_request && is_from_inside => {
                let Some((first, is_pair)) = ports(text) else { return Ok(()) };
                let Some(external) = expect(first, is_pair, context) else { return Ok(()) };
                self.streams[usize::from(self.next_stream)] = Stream { internal: first, external };
                self.next_stream = (self.next_stream + 1) % self.streams.len() as u8;
                context.replace(value, &write(external, is_pair))
            }
            b"client_port" if !is_request && !is_from_inside => {
                let Some((first, is_pair)) = ports(text) else { return Ok(()) };
                let stream = self.streams.iter().find(|stream| stream.external == first);
                stream.map_or(Ok(()), |stream| {
                    context.replace(value, &write(stream.internal, is_pair))
                })
            }
            b"server_port" if !is_request && is_from_inside => {
                let Some((first, is_pair)) = ports(text) else { return Ok(()) };
                let Some(external) = expect(first, is_pair, context) else { return Ok(()) };
                context.replace(value, &write(external, is_pair))
            }
            b"destination" | b"source" if is_from_inside && is_own_ipv6(text, context) => {
                let address = format!("{}", context.flow().external.ip());
                context.replace(value, address.as_bytes())
            }
            b"destination" | b"source" if is_from_inside => {
                let places = text::addresses(head, value);
                for place in places {
                    if context.is_own(place.address.into()) {
                        let address = format!("{}", context.flow().external.ip());
                        context.replace(place.range, address.as_bytes())?;
                    }
                }
                Ok(())
            }
            b"dest_addr" if is_request && is_from_inside => edit_addresses(head, value, context),
            b"src_addr" if !is_request && is_from_inside => edit_addresses(head, value, context),
            _ => Ok(()),
        }
    }
}

/// True if bytes can be the start of a message: a method or a version, and no version of another
/// protocol at the end of the line.
fn may_be_message(bytes: &[u8]) -> bool {
    const VERSION: &[u8] = b"RTSP/";
    if bytes.iter().zip(VERSION).all(|(one, other)| one == other) {
        return true;
    }
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_');
    let count = method.count();
    let is_method = (1..=20).contains(&count) && bytes.get(count).is_none_or(|b| *b == b' ');
    is_method
        && text::start_line(bytes)
            .is_none_or(|line| line.ends_with(b" RTSP/1.0") || line.ends_with(b" RTSP/2.0"))
}

/// Parameters with a value of a Transport header: name in lower case, and place of the value.
fn parameters(head: &[u8], value: Range<usize>) -> Vec<(Vec<u8>, Range<usize>)> {
    let mut at = value.start;
    let mut all = Vec::new();
    for part in head[value].split(|byte| b";,".contains(byte)) {
        if let Some(sign) = part.iter().position(|byte| *byte == b'=') {
            let name = part[..sign].trim_ascii().to_ascii_lowercase();
            let text = part[sign + 1..].trim_ascii_end();
            all.push((name, at + sign + 1..at + sign + 1 + text.len()));
        }
        at += part.len() + 1;
    }
    all
}

/// Reads `4588-4589` or `4588`: the first port, and true if there are two.
fn ports(text: &[u8]) -> Option<(u16, bool)> {
    let last = opt(preceded('-', dec_uint::<_, u16, ContextError>));
    let (first, last) = (dec_uint::<_, u16, ContextError>, last).parse(text).ok()?;
    let is_right = last.is_none_or(|last| first.checked_add(1) == Some(last));
    is_right.then_some((first, last.is_some()))
}

fn write(first: u16, is_pair: bool) -> Vec<u8> {
    match is_pair {
        true => format!("{first}-{}", first.saturating_add(1)).into_bytes(),
        false => format!("{first}").into_bytes(),
    }
}

/// Expects media at a port, or at a pair of ports.
fn expect(port: u16, is_pair: bool, context: &mut Context<'_>) -> Option<u16> {
    let flow = *context.flow();
    let external = context.expect_exactly(Expectation {
        protocol: UDP,
        remote: Some(*flow.remote.ip()),
        remote_port: 0,
        internal: SocketAddr::new(flow.internal.ip(), port),
        wanted: if is_pair { Wanted::Pair } else { Wanted::AddressOfFlow },
        lifetime: LIFETIME,
        uses: Uses::Many,
    })?;
    Some(external.port())
}

/// True if a text is the internal host's IPv6 address, with or without brackets.
fn is_own_ipv6(text: &[u8], context: &Context<'_>) -> bool {
    let bare = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    let parsed = core::str::from_utf8(bare).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
    parsed.is_some_and(|address| context.is_own(address.into()))
}

/// Edits `"10.0.0.5:4588"/"10.0.0.5:4589"` or `":4588"/":4589"` (RFC 7826 section 18.54).
fn edit_addresses(head: &[u8], value: Range<usize>, context: &mut Context<'_>) -> Result<(), Step> {
    let value_start = value.start;
    let mut at = value_start;
    // The second port of a pair that was asked for: internal and external.
    let mut second: Option<(u16, u16)> = None;
    for part in head[value].split(|byte| *byte == b'/') {
        let quoted = part.strip_prefix(b"\"").and_then(|part| part.strip_suffix(b"\""));
        let Some(colon) = quoted.and_then(|text| text.iter().rposition(|byte| *byte == b':'))
        else {
            return Ok(());
        };
        let text = quoted.unwrap_or_default();
        let Some((port, false)) = ports(&text[colon + 1..]) else { return Ok(()) };
        let host = &text[..colon];
        let address = text::ipv4.parse(host).ok();
        let is_own = address.is_some_and(|address| context.is_own(address.into()))
            || is_own_ipv6(host, context);
        if !host.is_empty() && !is_own {
            context.refuse(Reason::ForeignAddress);
            return Ok(());
        }
        let external = match second.take() {
            Some((internal, external)) if internal == port => external,
            _ => {
                let is_pair = at == value_start && port % 2 == 0;
                let Some(external) = expect(port, is_pair, context) else { return Ok(()) };
                let next = port.checked_add(1).zip(external.checked_add(1));
                second = next.filter(|_| is_pair);
                external
            }
        };
        let host = if host.is_empty() { None } else { Some(context.flow().external.ip()) };
        let new = host.map_or_else(|| format!(":{external}"), |host| format!("{host}:{external}"));
        context.replace(at + 1..at + 1 + text.len(), new.as_bytes())?;
        at += part.len() + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_two_that_follow() {
        assert_eq!(ports(b"4588-4589"), Some((4588, true)));
        assert_eq!(ports(b"4588"), Some((4588, false)));
        for bad in [&b"4588-4590"[..], b"65535-65536", b"4588-", b"99999", b"4588-4589x"] {
            assert_eq!(ports(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_message_begins_with_a_method_or_a_version() {
        for right in
            [&b"S"[..], b"SETUP rtsp://a RTSP/1.0\r\n", b"RTSP/2.0 200 OK\r\n", b"GET_PARAMETER "]
        {
            assert!(may_be_message(right), "{right:?}");
        }
        for bad in [&b"POST / HTTP/1.1\r\n"[..], b"\x16\x03", b"220 ready", b"SETUP\r\n"] {
            assert!(!may_be_message(bad), "{bad:?}");
        }
    }
}
