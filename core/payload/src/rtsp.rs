//! RTSP: the Transport header of version 1.0 (RFC 2326 section 12.39) and 2.0 (RFC 7826 section
//! 18.54).
//!
//! A client inside names its ports in SETUP, a server inside names its ports in the reply. Media
//! come by UDP from the control flow's remote address. The reply repeats the client's ports and
//! addresses, and the client compares them, so the framework puts the internal ones back. Bodies
//! and data that is interleaved with messages pass unread.
//!
//! Addresses and ports of one transport change together or not at all: the external address with
//! an internal port would be an endpoint of another subscriber.

use crate::Side;
use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::saved::saved;
use crate::text::{self, Family};
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
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

/// A port of the host inside, or a pair of ports: the first one inside, and outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stream {
    internal: u16,
    external: u16,
    is_pair: bool,
}

/// An edit of a message: the place, and the new text.
type Edit = (Range<usize>, Vec<u8>);

/// A control connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtsp {
    /// Bytes that pass unread, from inside and from outside.
    unread: [u32; 2],
    /// The last streams.
    streams: [Stream; 8],
    next_stream: u8,
}

saved!(Stream { internal, external, is_pair });
saved!(Rtsp { unread, streams, next_stream });

impl Rtsp {
    /// True if the numbers are possible.
    pub(crate) fn is_sound(&self) -> bool {
        usize::from(self.next_stream) < self.streams.len()
    }
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
        let mut lengths = text::headers(head).filter(|header| header.is("content-length"));
        let length = match (lengths.next(), lengths.next()) {
            (None, _) => Some(0),
            (Some(header), None) => text::number(&head[header.value]),
            _ => None,
        };
        // A body of unknown length would hide the next message, or look like one.
        let length = length.ok_or(Step::Leave(Reason::NotProtocol))?;
        let is_request = !head.starts_with(b"RTSP/");
        let is_of_setup = !is_request || head.starts_with(b"SETUP ");
        for header in text::headers(head).filter(|header| is_of_setup && header.is("transport")) {
            for part in parts(head, header.value.clone(), b',') {
                let transport = Transport::read(head, part);
                let edits = match (context.from(), is_request) {
                    (Side::Inside, true) => self.write_external(&transport, &OF_CLIENT, context),
                    (Side::Inside, false) => self.write_external(&transport, &OF_SERVER, context),
                    (Side::Outside, false) => self.write_internal(&transport, context),
                    (Side::Outside, true) => None,
                };
                let mut edits = edits.unwrap_or_default();
                edits.sort_by_key(|(range, _)| range.start);
                edits.iter().try_for_each(|(range, text)| context.replace(range.clone(), text))?;
            }
        }
        self.unread[context.from() as usize] = length;
        Ok(Step::Pass(head.len()))
    }

    /// Expects the media of a transport from inside. `None`: it stays as it is.
    fn write_external(
        &mut self,
        transport: &Transport<'_>,
        names: &Names,
        context: &mut Context<'_>,
    ) -> Option<Vec<Edit>> {
        let external = IpAddr::V4(*context.flow().external.ip());
        let mut edits = Vec::new();
        for value in transport.values(names.address) {
            let place = transport.address(value);
            let Some((range, _)) = place.filter(|(_, address)| context.is_own(*address)) else {
                context.refuse(Reason::ForeignAddress);
                return None;
            };
            edits.push((range, format!("{external}").into_bytes()));
        }
        for value in transport.values(names.ports) {
            let Some((first, is_pair)) = ports(&transport.head[value.clone()]) else {
                context.refuse(Reason::NoPort);
                return None;
            };
            let first = self.expect(first, is_pair, context)?;
            edits.push((value, write(first, is_pair)));
        }
        for value in transport.values(names.ends) {
            let ends = transport.ends(value)?;
            let is_foreign =
                |end: &End| end.address.is_some_and(|address| !context.is_own(address));
            if ends.iter().any(is_foreign) {
                context.refuse(Reason::ForeignAddress);
                return None;
            }
            let ports = self.expect_each(&ends, context)?;
            edits.extend(ends.iter().zip(ports).map(|(end, port)| end.edit(external, port)));
        }
        Some(edits)
    }

    /// Puts internal addresses and ports back into a transport of a reply from outside. `None`: it
    /// stays as it is.
    fn write_internal(
        &self,
        transport: &Transport<'_>,
        context: &Context<'_>,
    ) -> Option<Vec<Edit>> {
        let flow = context.flow();
        let (internal, external) = (flow.internal.ip(), IpAddr::V4(*flow.external.ip()));
        let mut edits = Vec::new();
        for value in transport.values(OF_CLIENT.address) {
            let place = transport.address(value);
            let (range, _) = place.filter(|(_, address)| *address == external)?;
            edits.push((range, format!("{internal}").into_bytes()));
        }
        for value in transport.values(OF_CLIENT.ports) {
            let (first, is_pair) = ports(&transport.head[value.clone()])?;
            edits.push((value, write(self.internal(first)?, is_pair)));
        }
        for value in transport.values(OF_CLIENT.ends) {
            for end in transport.ends(value)? {
                if end.address.is_some_and(|address| address != external) {
                    return None;
                }
                edits.push(end.edit(internal, self.internal(end.port)?));
            }
        }
        Some(edits)
    }

    /// The internal port of an external one.
    fn internal(&self, port: u16) -> Option<u16> {
        self.streams.iter().find_map(|stream| {
            let further = port.checked_sub(stream.external).filter(|_| stream.external != 0)?;
            (further <= u16::from(stream.is_pair)).then(|| stream.internal.checked_add(further))?
        })
    }

    /// Expects media at a port, or at a pair of ports. Returns the first external port.
    fn expect(&mut self, port: u16, is_pair: bool, context: &mut Context<'_>) -> Option<u16> {
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
        let stream = Stream { internal: port, external: external.port(), is_pair };
        let known = self.streams.iter().position(|known| known.external == stream.external);
        let at = known.unwrap_or(usize::from(self.next_stream));
        self.streams[at] = stream;
        if known.is_none() {
            self.next_stream = (self.next_stream + 1) % self.streams.len() as u8;
        }
        Some(external.port())
    }

    /// Expects media at each end of a list. Two ends at the start may be a pair of ports.
    fn expect_each(&mut self, ends: &[End], context: &mut Context<'_>) -> Option<Vec<u16>> {
        let mut all = Vec::new();
        // The second port of a pair that was asked for: internal and external.
        let mut second: Option<(u16, u16)> = None;
        for End { port, .. } in ends {
            let external = match second.take() {
                Some((internal, external)) if internal == *port => external,
                _ => {
                    let is_pair = all.is_empty() && port % 2 == 0;
                    let external = self.expect(*port, is_pair, context)?;
                    let next = port.checked_add(1).zip(external.checked_add(1));
                    second = next.filter(|_| is_pair);
                    external
                }
            };
            all.push(external);
        }
        Some(all)
    }
}

/// Names of the parameters with a host's ports, its address, and both.
struct Names {
    ports: &'static [u8],
    address: &'static [u8],
    ends: &'static [u8],
}

const OF_CLIENT: Names =
    Names { ports: b"client_port", address: b"destination", ends: b"dest_addr" };
const OF_SERVER: Names = Names { ports: b"server_port", address: b"source", ends: b"src_addr" };

/// One transport of a Transport header.
struct Transport<'h> {
    head: &'h [u8],
    /// Parameters with a value: name in lower case, and place of the value.
    parameters: Vec<(Vec<u8>, Range<usize>)>,
}

/// An endpoint in a list: the place of its text between quotes.
#[derive(Clone, Debug)]
struct End {
    range: Range<usize>,
    address: Option<IpAddr>,
    port: u16,
}

impl End {
    /// The edit to a port of an address, which is written if the end has one.
    fn edit(&self, address: IpAddr, port: u16) -> Edit {
        let text = match self.address {
            Some(_) => format!("{}", SocketAddr::new(address, port)),
            None => format!(":{port}"),
        };
        (self.range.clone(), text.into_bytes())
    }
}

impl<'h> Transport<'h> {
    fn read(head: &'h [u8], part: Range<usize>) -> Self {
        let parameter = |part: Range<usize>| {
            let text = &head[part.clone()];
            let sign = text.iter().position(|byte| *byte == b'=')?;
            let start = part.start + sign + 1;
            let value = text[sign + 1..].trim_ascii_end();
            Some((text[..sign].trim_ascii().to_ascii_lowercase(), start..start + value.len()))
        };
        Self { head, parameters: parts(head, part, b';').filter_map(parameter).collect() }
    }

    /// Values of all parameters with a name.
    fn values(&self, name: &'static [u8]) -> impl Iterator<Item = Range<usize>> {
        let named = self.parameters.iter().filter(move |(of, _)| of == name);
        named.map(|(_, value)| value.clone())
    }

    /// The address that is the whole value but quotes.
    fn address(&self, value: Range<usize>) -> Option<(Range<usize>, IpAddr)> {
        let text = &self.head[value.clone()];
        if let Some(address) = text::address(text).filter(IpAddr::is_ipv6) {
            return Some((value, address));
        }
        let place = text::places(self.head, value, Family::Ipv4).next()?;
        let quotes = text.iter().filter(|byte| **byte == b'"').count();
        let is_whole = place.port.is_none() && place.range.len() + quotes == text.len();
        is_whole.then_some((place.range, place.address))
    }

    /// Reads `"10.0.0.5:4588"/"10.0.0.5:4589"` or `":4588"/":4589"` (RFC 7826 section 18.54).
    fn ends(&self, value: Range<usize>) -> Option<Vec<End>> {
        parts(self.head, value, b'/')
            .map(|part| {
                let quoted = self.head[part.clone()].strip_prefix(b"\"")?.strip_suffix(b"\"")?;
                let colon = quoted.iter().rposition(|byte| *byte == b':')?;
                let (port, is_pair) = ports(&quoted[colon + 1..])?;
                let named = &quoted[..colon];
                let address = text::address(named);
                let is_readable = named.is_empty() || address.is_some();
                let range = part.start + 1..part.end - 1;
                (is_readable && !is_pair).then_some(End { range, address, port })
            })
            .collect()
    }
}

/// Parts of a text between separators.
fn parts(text: &[u8], part: Range<usize>, separator: u8) -> impl Iterator<Item = Range<usize>> {
    let mut at = part.start;
    text[part].split(move |byte| *byte == separator).map(move |one| {
        let start = at;
        at += one.len() + 1;
        start..start + one.len()
    })
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
