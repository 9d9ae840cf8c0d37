//! SDP: the addresses and ports of media (RFC 8866, RFC 3605), as a body of SIP.
//!
//! A description from inside names the ports where the host waits for media. Each becomes a pair
//! of external ports, RTP and RTCP, if it is even. If there is no such pair, because the host has
//! used both ports before and they have other external ones, the description names the port of RTCP
//! (RFC 3605). Candidates of ICE stay as they are: ICE finds its own way through a translator
//! (RFC 8445), and an edit would break its checks.
//!
//! Address and port of a medium change together or not at all: the external address with an
//! internal port would be an endpoint of another subscriber. A medium without a port keeps its
//! text. If it shares the address of the session with media that have ports, then each of these
//! gets the external address in a line of its own.
//!
//! Between families, an address changes together with its type: `IP6` of the host inside, `IP4`
//! outside. So do addresses of remote hosts in both directions.

use crate::changes::Changes;
use crate::expectation::{Expectation, Uses, Wanted};
use crate::message::Context;
use crate::reason::Reason;
use crate::text::{self, Family};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::Range;
use natgate_wire::protocol::{TCP, UDP};

/// Lifetime of an expectation, seconds: a telephone may ring so long.
const LIFETIME: u16 = 180;

/// Most media of one description that are edited.
const MOST_MEDIA: usize = 8;

/// The connection data of a session or of a medium.
#[derive(Clone, Debug)]
enum Connection {
    /// Place of the type and the address, and the address.
    Address(Range<usize>, IpAddr),
    /// Another family than the sender's, a group, or several addresses.
    Other,
}

impl Connection {
    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(_, address) => Some(*address),
            Self::Other => None,
        }
    }
}

/// The port of RTCP, and its address if it has one.
#[derive(Clone, Debug)]
struct Rtcp {
    range: Range<usize>,
    port: u16,
    connection: Option<Connection>,
}

/// The port of a medium.
#[derive(Clone, Debug)]
enum Port {
    /// The medium is not used.
    Zero,
    One(Range<usize>, u16),
    /// Several ports, or no port.
    Other,
}

/// One medium: its own connection data if it has them, its port, and the port of RTCP.
#[derive(Clone, Debug)]
struct Medium {
    connection: Option<Connection>,
    port: Port,
    is_tcp: bool,
    /// True if a port of RTCP belongs to the medium: it is one of RTP, and does not say that both
    /// share a port (RFC 5761, RFC 8858).
    has_rtcp: bool,
    rtcp: Option<Rtcp>,
    /// True if lines contradict each other.
    is_odd: bool,
    /// The line behind which connection data belong (RFC 8866 section 5): its last byte, and the
    /// place of this byte and of the line's end.
    last: (u8, Range<usize>),
    /// The place of a further attribute. `None`: there is none.
    attribute: Option<Place>,
}

/// The place of a new line in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Before a line: its first byte.
    Before(Range<usize>),
    /// Behind the last line: its end.
    Behind(Range<usize>),
}

/// A description: the addresses in it, and its media.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    origin: Option<(Range<usize>, IpAddr)>,
    connection: Option<Connection>,
    media: Vec<Medium>,
}

/// Reads `IP4 10.0.0.5` or `IP6 2001:db8::5`, if the address is of the family. A TTL behind a slash
/// is one of multicast, which is not translated.
fn address(text: &[u8], family: Family) -> Option<IpAddr> {
    match family {
        Family::Ipv4 => text::ipv4(text.strip_prefix(b"IP4 ")?).map(IpAddr::V4),
        Family::Ipv6 => text::ipv6(text.strip_prefix(b"IP6 ")?).map(IpAddr::V6),
    }
}

/// Writes what [`address`] reads.
fn write_typed(to: &mut Vec<u8>, address: IpAddr) {
    to.extend_from_slice(if address.is_ipv4() { b"IP4 " } else { b"IP6 " });
    text::write_address(to, address);
}

fn change(range: &Range<usize>, address: IpAddr, changes: &mut Changes) {
    changes.add(range.clone(), |to| write_typed(to, address));
}

/// Reads `IN IP4 10.0.0.5` that ends at `end`.
fn connection(value: &[u8], end: usize, family: Family) -> Connection {
    let text = value.strip_prefix(b"IN ");
    match text.and_then(|text| Some((text.len(), address(text, family)?))) {
        Some((len, address)) => Connection::Address(end - len..end, address),
        None => Connection::Other,
    }
}

/// Reads `audio 49170 RTP/AVP`, which begins at `at`: the port, and the protocol.
fn medium(value: &[u8], at: usize) -> (Port, &[u8]) {
    let mut words = value.split(|byte| *byte == b' ');
    let name = words.next().unwrap_or_default();
    let word = words.next().unwrap_or_default();
    let protocol = words.next().unwrap_or_default();
    let start = at + name.len() + 1;
    let port = match text::exact(word) {
        Some(0) => Port::Zero,
        Some(port) if !protocol.is_empty() => Port::One(start..start + word.len(), port),
        _ => Port::Other,
    };
    (port, protocol)
}

impl Description {
    /// Reads a description that is a part of a message of a sender with addresses of a family.
    pub(crate) fn read(message: &[u8], part: Range<usize>, family: Family) -> Self {
        let mut description = Self::default();
        let mut at = part.start;
        while at < part.end {
            let rest = &message[at..part.end];
            let len = text::find(rest, b'\n').map_or(rest.len(), |end| end + 1);
            let line = rest[..len].strip_suffix(b"\n").unwrap_or(rest);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            description.read_line(line, at..at + len, family);
            description.note_place(line, at..at + len);
            at += len;
        }
        if description.media.len() > 1 {
            // Behind such a line a medium may get connection data of its own.
            for medium in &mut description.media {
                let end = medium.last.1.end;
                medium.attribute.take_if(|at| matches!(at, Place::Behind(at) if at.end == end));
            }
        }
        description
    }

    /// Notes where a further attribute of the last medium belongs, from each of its lines.
    fn note_place(&mut self, line: &[u8], place: Range<usize>) {
        let Some(medium) = self.media.last_mut() else { return };
        if matches!(medium.attribute, Some(Place::Before(_))) {
            return;
        }
        let end = place.start + line.len()..place.end;
        medium.attribute = if line.starts_with(b"a=") {
            Some(Place::Before(place.start..place.start + 1))
        } else {
            (!end.is_empty()).then_some(Place::Behind(end))
        };
    }

    /// Reads a line at a place, which includes its end.
    fn read_line(&mut self, line: &[u8], place: Range<usize>, family: Family) {
        let Range { start: at, end: next } = place;
        let (Some(kind), Some(value)) = (line.get(..2), line.get(2..)) else { return };
        let end = at + line.len();
        match kind {
            b"c=" => {
                let medium = self.media.last_mut().map(|medium| &mut medium.connection);
                let place = medium.unwrap_or(&mut self.connection);
                let is_first = place.is_none();
                *place = Some(match is_first {
                    true => connection(value, end, family),
                    false => Connection::Other,
                });
            }
            b"o=" => {
                let mut words = value.rsplitn(3, |byte| *byte == b' ');
                let len = words.by_ref().take(2).map(<[u8]>::len).sum::<usize>() + 1;
                let Some(start) = value.len().checked_sub(len) else { return };
                if let Some(address) = address(&value[start..], family) {
                    self.origin = Some((end - len..end, address));
                }
            }
            b"m=" => {
                let (port, protocol) = medium(value, at + 2);
                let (is_odd, last) = (false, (line[line.len() - 1], end - 1..next));
                self.media.push(Medium {
                    connection: None,
                    port,
                    is_tcp: protocol.starts_with(b"TCP"),
                    has_rtcp: protocol.windows(4).any(|part| part == b"RTP/"),
                    rtcp: None,
                    is_odd,
                    last,
                    attribute: None,
                });
            }
            b"i=" => {
                if let Some(medium) = self.media.last_mut() {
                    medium.last = (line[line.len() - 1], end - 1..next);
                }
            }
            b"a=" => {
                let Some(medium) = self.media.last_mut() else { return };
                medium.has_rtcp &= !matches!(value, b"rtcp-mux" | b"rtcp-mux-only");
                if let Some(text) = value.strip_prefix(b"rtcp:") {
                    medium.read_rtcp(text, end, family);
                }
            }
            _ => {}
        }
    }

    /// The address of the first medium of a description from outside.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        let address = match self.media.first() {
            Some(medium) => self.address_of(medium),
            None => self.connection.as_ref().and_then(Connection::address),
        };
        address.and_then(of_host_outside)
    }

    /// The connection address of a medium.
    fn address_of(&self, medium: &Medium) -> Option<IpAddr> {
        medium.connection.as_ref().or(self.connection.as_ref()).and_then(Connection::address)
    }

    /// The addresses of the media of a description from outside, in their order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Option<Ipv4Addr>> {
        let is_used = |medium: &&Medium| !matches!(medium.port, Port::Zero);
        self.media.iter().map(move |medium| {
            let used = Some(medium).filter(is_used)?;
            self.address_of(used).and_then(of_host_outside)
        })
    }

    /// Between families, writes the addresses of remote hosts as the receiver knows them, and
    /// collects the changes.
    pub(crate) fn translate(&self, context: &Context<'_>, changes: &mut Changes) {
        if !context.is_between_families() {
            return;
        }
        let connections = self.media.iter().flat_map(Medium::connections);
        let connections = self.connection.iter().chain(connections).filter_map(|one| match one {
            Connection::Address(range, address) => Some((range, *address)),
            Connection::Other => None,
        });
        let origin = self.origin.iter().map(|(range, address)| (range, *address));
        for (range, address) in origin.chain(connections) {
            if let Some(address) = context.across(address) {
                change(range, address, changes);
            }
        }
    }

    /// Expects the media of a host inside, from the address of the other side if it is known, and
    /// collects the changes. Returns the expectations, with the numbers of their media.
    pub(crate) fn expect(
        &self,
        remote: Option<Ipv4Addr>,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) -> Vec<(usize, Expectation)> {
        let external = IpAddr::V4(*context.flow().external.ip());
        if let Some((range, address)) = &self.origin
            && context.is_own(*address)
        {
            change(range, external, changes);
        }
        self.translate(context, changes);
        let mut all = Vec::new();
        // Media with the address of the session: those that get a port, and true if one does not.
        let (mut served, mut is_refused) = (Vec::new(), false);
        for (number, medium) in self.media.iter().enumerate() {
            let Some(address) = self.address_of(medium).filter(is_of_host) else { continue };
            // A remote host receives the medium.
            if matches!(medium.port, Port::Zero) || context.across(address).is_some() {
                continue;
            }
            let made = if number < MOST_MEDIA {
                medium.expect((address, remote), context, changes)
            } else {
                context.refuse(Reason::Flood);
                None
            };
            let is_served = made.is_some();
            all.extend(made.into_iter().flatten().flatten().map(|made| (number, made)));
            match &medium.connection {
                Some(Connection::Address(range, _)) if is_served => {
                    change(range, external, changes)
                }
                None if is_served => served.push(medium),
                None => is_refused = true,
                Some(_) => {}
            }
        }
        match &self.connection {
            Some(Connection::Address(range, address)) if context.is_own(*address) => {
                if is_refused {
                    served.iter().for_each(|medium| medium.add_own_line(external, changes));
                } else {
                    change(range, external, changes);
                }
            }
            _ => {}
        }
        all
    }
}

impl Medium {
    /// Connection data of the medium, and of its RTCP.
    fn connections(&self) -> impl Iterator<Item = &Connection> {
        let rtcp = self.rtcp.as_ref().and_then(|rtcp| rtcp.connection.as_ref());
        self.connection.iter().chain(rtcp)
    }

    /// Reads `53020` or `53020 IN IP4 10.0.0.5` that ends at `end` (RFC 3605 section 2.1).
    fn read_rtcp(&mut self, text: &[u8], end: usize, family: Family) {
        let blank = text.iter().position(|byte| *byte == b' ');
        let digits = &text[..blank.unwrap_or(text.len())];
        let port = text::exact(digits);
        self.is_odd |= port.is_none() || self.rtcp.is_some();
        let start = end - text.len();
        let range = start..start + digits.len();
        let rest = &text[digits.len()..].trim_ascii_start();
        let connection = (!rest.is_empty()).then(|| connection(rest, end, family));
        self.rtcp = port.map(|port| Rtcp { range, port, connection });
    }

    /// Gives the medium connection data of its own.
    fn add_own_line(&self, address: IpAddr, changes: &mut Changes) {
        let (last, place) = &self.last;
        let (before, behind): (&[u8], &[u8]) = match place.len() {
            1 => (b"\r\n", b""),
            2 => (b"\n", b"\n"),
            _ => (b"\r\n", b"\r\n"),
        };
        changes.add(place.clone(), |to| {
            to.push(*last);
            to.extend_from_slice(before);
            to.extend_from_slice(b"c=IN ");
            write_typed(to, address);
            to.extend_from_slice(behind);
        });
    }

    /// Gives the medium the port of RTCP.
    fn add_rtcp_line(&self, port: u16, changes: &mut Changes) {
        let end: &[u8] = if self.last.1.len() == 2 { b"\n" } else { b"\r\n" };
        let write = |to: &mut Vec<u8>| {
            to.extend_from_slice(b"a=rtcp:");
            text::write_number(to, port.into());
            to.extend_from_slice(end);
        };
        match &self.attribute {
            Some(Place::Before(place)) => changes.add(place.clone(), |to| {
                write(to);
                to.push(b'a');
            }),
            Some(Place::Behind(place)) => changes.add(place.clone(), |to| {
                to.extend_from_slice(end);
                write(to);
            }),
            None => {}
        }
    }

    /// Expects the medium, and collects the changes of its ports. `None`: it stays as it is.
    fn expect(
        &self,
        (address, remote): (IpAddr, Option<Ipv4Addr>),
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) -> Option<[Option<Expectation>; 2]> {
        if !context.is_own(address) {
            context.refuse(Reason::ForeignAddress);
            return None;
        }
        let (Port::One(range, port), false) = (&self.port, self.is_odd) else {
            context.refuse(Reason::NoPort);
            return None;
        };
        let single = |port: u16| Expectation {
            protocol: if self.is_tcp { TCP } else { UDP },
            remote,
            remote_port: 0,
            internal: SocketAddr::new(address, port),
            wanted: Wanted::AddressOfFlow,
            lifetime: LIFETIME,
            uses: Uses::Many,
        };
        let (first, external) = self.expect_first(single(*port), context)?;
        changes.add(range.clone(), |to| text::write_number(to, external.into()));
        let is_pair = first.wanted == Wanted::Pair;
        let mut expect = |port: u16| {
            let made = single(port);
            context.expect_exactly(made).map(|external| (made, external.port()))
        };
        let Some(rtcp) = &self.rtcp else {
            // A port that no line tells to the other side stays closed.
            let is_told = self.may_be_pair(*port) && self.has_rtcp && self.attribute.is_some();
            let second = (is_told && !is_pair).then(|| expect(*port + 1)).flatten();
            if let Some((_, external)) = second {
                self.add_rtcp_line(external, changes);
            }
            return Some([Some(first), second.map(|(made, _)| made)]);
        };
        if rtcp.connection.as_ref().is_some_and(|own| own.address() != Some(address)) {
            return Some([Some(first), None]);
        }
        let mut second = None;
        let external = if is_pair && port.checked_add(1) == Some(rtcp.port) {
            external.checked_add(1)
        } else if rtcp.port == *port {
            Some(external)
        } else {
            second = expect(rtcp.port);
            second.map(|(_, external)| external)
        };
        rtcp.change(external, (address, (*context.flow().external.ip()).into()), changes);
        Some([Some(first), second.map(|(made, _)| made)])
    }

    /// True if RTCP has the port above this one.
    fn may_be_pair(&self, port: u16) -> bool {
        port.is_multiple_of(2) && !self.is_tcp
    }

    /// Expects the first port of the medium, in a pair if there is one. Returns its external port.
    fn expect_first(
        &self,
        single: Expectation,
        context: &mut Context<'_>,
    ) -> Option<(Expectation, u16)> {
        if self.may_be_pair(single.internal.port()) {
            let pair = Expectation { wanted: Wanted::Pair, ..single };
            match context.try_to_expect(pair) {
                Ok(external) => return Some((pair, external.port())),
                Err(Reason::NoPort) => {}
                Err(reason) => {
                    context.refuse(reason);
                    return None;
                }
            }
        }
        Some((single, context.expect_exactly(single)?.port()))
    }
}

impl Rtcp {
    /// Collects the changes of the port and its address. Without an external port both stay, and
    /// the address is written, because the medium's becomes another.
    fn change(&self, port: Option<u16>, (own, external): (IpAddr, IpAddr), changes: &mut Changes) {
        if port.is_none() && self.connection.is_some() {
            return;
        }
        changes.add(self.range.clone(), |to| {
            text::write_number(to, port.unwrap_or(self.port).into());
            if port.is_none() {
                to.extend_from_slice(b" IN ");
                write_typed(to, own);
            }
        });
        if let (Some(_), Some(Connection::Address(range, _))) = (port, &self.connection) {
            change(range, external, changes);
        }
    }
}

/// True if an address is one that media can go to.
fn is_of_host(address: &IpAddr) -> bool {
    !address.is_unspecified()
}

/// The address of a remote host in a description from outside, which has IPv4.
fn of_host_outside(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) if !address.is_unspecified() => Some(address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_description_is_read_as_the_rfc_writes_it() {
        let text = b"v=0\r\no=a 1 1 IN IP4 10.0.0.5\r\nc=IN IP4 10.0.0.5\r\nt=0 0\r\n\
            m=audio 49170 RTP/AVP 0\r\na=rtcp:53020 IN IP4 10.0.0.5\r\n\
            m=video 0 RTP/AVP 31\r\nc=IN IP4 0.0.0.0\r\nm=x 5000/2 RTP/AVP 1\r\n";
        let description = Description::read(text, 0..text.len(), Family::Ipv4);
        let own = IpAddr::from([10, 0, 0, 5]);
        assert_eq!(description.address().map(IpAddr::V4), Some(own));
        assert_eq!(description.media.len(), 3);
        let (origin, address) = description.origin.clone().expect("an origin");
        assert_eq!((&text[origin], address), (&b"IP4 10.0.0.5"[..], own));
        let places = |of: &Option<Connection>| match of {
            Some(Connection::Address(range, address)) => Some((&text[range.clone()], *address)),
            _ => None,
        };
        assert_eq!(places(&description.connection), Some((&b"IP4 10.0.0.5"[..], own)));
        let audio = &description.media[0];
        assert!(matches!(&audio.port, Port::One(range, 49170) if text[range.clone()] == *b"49170"));
        let rtcp = audio.rtcp.as_ref().expect("a port");
        assert_eq!((&text[rtcp.range.clone()], rtcp.port), (&b"53020"[..], 53020));
        assert_eq!(places(&rtcp.connection), Some((&b"IP4 10.0.0.5"[..], own)));
        let video = &description.media[1];
        assert!(matches!(video.port, Port::Zero));
        let nowhere = (&b"IP4 0.0.0.0"[..], IpAddr::from([0; 4]));
        assert_eq!(places(&video.connection), Some(nowhere));
        assert!(matches!(description.media[2].port, Port::Other));
    }

    #[test]
    fn what_contradicts_itself_is_odd() {
        let read = |text: &str| {
            let text = format!("m=audio 4000 RTP/AVP 0\r\n{text}");
            Description::read(text.as_bytes(), 0..text.len(), Family::Ipv4).media[0].clone()
        };
        assert!(!read("a=rtcp:5000 \r\n").is_odd);
        for odd in ["a=rtcp:1\r\na=rtcp:2\r\n", "a=rtcp:x\r\n", "a=rtcp:05000\r\n"] {
            assert!(read(odd).is_odd, "{odd}");
        }
        for other in ["c=IN IP6 ::1\n", "c=IN IP4 1.2.3.4/127\n", "c=IN IP4 1.2.3.4\nc=x\n"] {
            assert!(matches!(read(other).connection, Some(Connection::Other)), "{other}");
        }
    }
}
