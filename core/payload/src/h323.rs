//! H.323: call signalling (Q.931 and H.225.0) and H.245 over TCP, and RAS over UDP.
//!
//! A message over TCP is a packet of TPKT (RFC 1006 section 6). A connection whose first message is
//! one of Q.931 is one of call signalling; any other one is a connection of H.245. Endpoints are
//! binary, four octets and two: no edit changes a length.
//!
//! The host inside names endpoints where it waits for calls, for H.245 and for media. Each becomes
//! external, and the way in is expected. Of messages from outside, endpoints that are external ones
//! of the host become internal again. A message is edited only if all of it, but extensions and
//! messages without endpoints, is read to its exact end. Any other one passes as it is.
//!
//! The media of a host may come from anywhere until the other side names an endpoint of its own
//! media on the same connection. A message from outside can only limit an expectation.
//!
//! Between families, H.323 is left alone.

mod h225;
mod h245;
mod per;
mod types;

use crate::Side;
use crate::expectation::{Expectation, FurtherFlow, Uses, Wanted};
use crate::lifetime::{REGISTRATION, have_passed, seconds_left};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::saved::saved;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use h225::ras;
use natgate_wire::protocol::{TCP, UDP};
use per::{Fault, Found, Notes, Role, Value, walk, walk_each};

/// Length of the header of TPKT, bytes.
const HEADER: usize = 4;

/// Longest packet, bytes: with one segment more, it fits into the window of held bytes.
const LONGEST: usize = 6144;

/// Lifetime of an expectation, seconds: a telephone may ring so long.
const LIFETIME: u16 = 180;

/// Most connections of a flow that the other side names.
const MOST_FURTHER: u8 = 32;

/// An edit of a message: the place of an endpoint, and the new one.
type Edit = (usize, SocketAddrV4);

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Talk {
    /// No message has come.
    #[default]
    Unknown,
    /// Call signalling.
    Signalling,
    /// H.245.
    Control,
}

/// A port of the host, or a pair of ports: the first one inside, and outside. The time at which the
/// expectation ends has the low bits of seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    internal: u16,
    external: u16,
    until: u16,
    bits: u8,
}

impl Port {
    /// Two ports.
    const PAIR: u8 = 1;
    const TCP: u8 = 2;
    /// Media that may come from anywhere.
    const OPEN: u8 = 4;
    /// A registration keeps the port.
    const REGISTERED: u8 = 8;
    /// The port is the flow's own.
    const OWN: u8 = 16;

    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    /// Seconds until the expectation ends; 0 if it has ended.
    fn seconds_left(&self, now: u32) -> u16 {
        if self.internal == 0 { 0 } else { seconds_left(self.until, now) }
    }

    /// The expectation of the port.
    fn expectation(&self, own: SocketAddr, remote: Option<Ipv4Addr>, lifetime: u16) -> Expectation {
        Expectation {
            protocol: if self.has(Self::TCP) { TCP } else { UDP },
            remote,
            remote_port: 0,
            internal: SocketAddr::new(own.ip(), self.internal),
            wanted: match self.bits & (Self::PAIR | Self::OWN) {
                0 => Wanted::AddressOfFlow,
                Self::PAIR => Wanted::Pair,
                _ => Wanted::EndpointOfFlow,
            },
            lifetime,
            uses: Uses::Many,
        }
    }
}

/// A flow between a host inside and another host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct H323 {
    talk: Talk,
    /// Address of the media that the other side has named last.
    media: Option<Ipv4Addr>,
    /// The last ports of the host.
    ports: [Port; 13],
    next_port: u8,
    /// Number of the last request of a registration; 0: none.
    request: u16,
    /// Port of the last connection that the other side has named, and the number of such.
    further: (u16, u8),
    /// Time of the last message, seconds.
    seen: u32,
}

saved!(Talk[Unknown, Signalling, Control]);
saved!(Port { internal, external, until, bits });
saved!(H323 { talk, media, ports, next_port, request, further, seen });

impl H323 {
    /// True if the numbers are possible.
    pub(crate) fn is_sound(&self) -> bool {
        usize::from(self.next_port) < self.ports.len()
    }

    /// Keeps times that have passed in the past.
    fn renew_times(&mut self, now: u32) {
        let have_passed = have_passed(&mut self.seen, now);
        for port in &mut self.ports {
            let left = if have_passed { 0 } else { port.seconds_left(now) };
            port.until = (now as u16).wrapping_add(left);
        }
    }
}

impl Protocol for H323 {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        if context.is_between_families() {
            return Step::Leave(Reason::Families);
        }
        self.renew_times(context.now);
        if context.is_datagram {
            let notes = walk(bytes, (0, bytes.len()), &h225::RAS_MESSAGE);
            let taken = self.take(notes, context);
            return taken.map_or_else(|step| step, |()| Step::Pass(bytes.len()));
        }
        let Some(len) = packet_len(bytes) else { return Step::Leave(Reason::NotProtocol) };
        if len > LONGEST {
            return Step::Leave(Reason::TooLong);
        }
        match bytes.get(..len) {
            Some(packet) if len >= HEADER => {
                self.take_packet(packet, context).map_or_else(|step| step, |()| Step::Pass(len))
            }
            _ => Step::More,
        }
    }
}

/// Length of the packet of TPKT that begins here; 0: not known yet. `None`: it is none.
fn packet_len(bytes: &[u8]) -> Option<usize> {
    const VERSION: u8 = 3;
    const RESERVED: u8 = 0;
    let known = &bytes[..bytes.len().min(2)];
    if known.iter().zip([VERSION, RESERVED]).any(|(one, other)| *one != other) {
        return None;
    }
    match *bytes {
        [_, _, high, low, ..] => {
            let len = usize::from(u16::from_be_bytes([high, low]));
            (len >= HEADER).then_some(len)
        }
        _ => Some(0),
    }
}

/// The content of the User-user element of a message of Q.931 (ITU-T Q.931 clause 4, H.225.0
/// clause 7.2.2.31). `None`: the message has none.
fn user_information(packet: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    const USER_USER: u8 = 0x7e;
    /// Content by ASN.1.
    const BY_ASN1: u8 = 5;
    /// An element of one octet.
    const SINGLE: u8 = 0x80;
    let octet = |at: usize| packet.get(at).copied().ok_or(Fault::Malformed);
    // Behind the discriminator: length of the call reference, the reference, and the type.
    let mut at = HEADER + 2 + usize::from(octet(HEADER + 1)? & 0x0f) + 1;
    octet(at - 1)?;
    while at < packet.len() {
        let element = octet(at)?;
        if element & SINGLE != 0 {
            at += 1;
            continue;
        }
        let (start, len) = if element == USER_USER {
            (at + 3, usize::from(u16::from_be_bytes([octet(at + 1)?, octet(at + 2)?])))
        } else {
            (at + 2, usize::from(octet(at + 1)?))
        };
        let end = start + len;
        if end > packet.len() {
            return Err(Fault::Malformed);
        }
        if element == USER_USER {
            let is_read = len > 1 && octet(start)? == BY_ASN1;
            return Ok(is_read.then_some((start + 1, end)));
        }
        at = end;
    }
    Ok(None)
}

impl H323 {
    /// Takes a whole packet of TPKT.
    fn take_packet(&mut self, packet: &[u8], context: &mut Context<'_>) -> Result<(), Step> {
        const Q931: u8 = 8;
        // An empty packet keeps a connection alive.
        let Some(first) = packet.get(HEADER) else { return Ok(()) };
        if self.talk == Talk::Unknown {
            self.talk = if *first == Q931 { Talk::Signalling } else { Talk::Control };
        }
        let notes = if self.talk == Talk::Control {
            walk_each(packet, (HEADER, packet.len()), &h245::MESSAGE)
        } else if *first == Q931 {
            user_information(packet).and_then(|element| match element {
                Some(element) => walk(packet, element, &h225::USER_INFORMATION),
                None => Ok(Notes::default()),
            })
        } else {
            Err(Fault::Malformed)
        };
        self.take(notes, context)
    }

    /// Takes what a message says. A message that is not read passes as it is.
    fn take(&mut self, notes: Result<Notes, Fault>, context: &mut Context<'_>) -> Result<(), Step> {
        let Ok(notes) = notes else {
            context.refuse(Reason::Unread);
            return Ok(());
        };
        let mut edits = match context.from() {
            Side::Inside => self.edit_outbound(&notes, context),
            Side::Outside => self.edit_inbound(&notes, context),
        };
        edits.sort_by_key(|(at, _)| *at);
        edits.iter().try_for_each(|(at, endpoint)| {
            let [a, b, c, d] = endpoint.ip().octets();
            let [high, low] = endpoint.port().to_be_bytes();
            context.replace(*at..*at + 6, &[a, b, c, d, high, low])
        })
    }

    /// External endpoints for those that the host names.
    fn edit_outbound(&mut self, notes: &Notes, context: &mut Context<'_>) -> Vec<Edit> {
        let message = if context.is_datagram { notes.value(Value::Message) } else { None };
        let sequence = sequence(notes);
        let lifetime = match message {
            Some(ras::REGISTRATION_REQUEST) => {
                self.request = sequence;
                Some(time_to_live(notes))
            }
            Some(ras::UNREGISTRATION_REQUEST) => Some(0),
            _ => None,
        };
        // Messages of other protocols may look like datagrams of RAS. These two name the protocol.
        let may_expect = match message {
            Some(ras::GATEKEEPER_REQUEST | ras::REGISTRATION_REQUEST) => true,
            _ => !context.is_datagram,
        };
        let (mut edits, mut group) = (Vec::new(), 0);
        for found in &notes.found {
            if !context.is_own((*found.endpoint.ip()).into()) {
                self.refuse_foreign(found, context);
                continue;
            }
            match found.role {
                Role::Media | Role::MediaControl if found.group != group => {
                    group = found.group;
                    edits.extend(self.expect_media(notes, group, context).unwrap_or_default());
                }
                Role::Media | Role::MediaControl => {}
                Role::Control => edits.extend(self.expect_control(found, context)),
                Role::Signalling | Role::Ras if !may_expect => {
                    edits.extend(self.known_end(found, context));
                }
                Role::Signalling | Role::Ras => {
                    edits.extend(self.expect_calls(found, lifetime, context));
                }
            }
        }
        if lifetime == Some(0) {
            self.unregister(context);
        }
        edits
    }

    /// Counts an endpoint that is neither the host's nor one of the other side.
    fn refuse_foreign(&self, found: &Found, context: &mut Context<'_>) {
        let address = *found.endpoint.ip();
        let is_other = address == *context.flow().remote.ip() || Some(address) == self.media;
        if found.role != Role::Signalling && !is_other {
            context.refuse(Reason::ForeignAddress);
        }
    }

    /// Expects the media of one channel: RTP at an even port, and RTCP at the odd port above it.
    /// Both endpoints change, or none.
    fn expect_media(
        &mut self,
        notes: &Notes,
        group: u16,
        context: &mut Context<'_>,
    ) -> Option<Vec<Edit>> {
        let of = |role: Role| {
            let is_it = |one: &&Found| (one.group, one.role) == (group, role);
            let own = notes.found.iter().filter(is_it);
            own.copied().find(|one| context.is_own((*one.endpoint.ip()).into()))
        };
        let (media, control) = (of(Role::Media), of(Role::MediaControl));
        let first = match (media, control) {
            (Some(media), None) => Some(media.endpoint.port()),
            (None, Some(control)) => control.endpoint.port().checked_sub(1),
            (Some(media), Some(control)) => {
                let first = media.endpoint.port();
                (first.checked_add(1) == Some(control.endpoint.port())).then_some(first)
            }
            (None, None) => return None,
        };
        let both = [media, control];
        let found = both.iter().flatten();
        if let Some(first) = first.filter(|first| first % 2 == 0) {
            match self.expect_udp(first, Port::PAIR, context) {
                Ok(external) => {
                    return found
                        .map(|one| {
                            let port = external.port().checked_add(one.endpoint.port() - first)?;
                            Some((one.at, SocketAddrV4::new(*external.ip(), port)))
                        })
                        .collect();
                }
                // The message names each port.
                Err(Reason::NoPort) => {}
                Err(reason) => {
                    context.refuse(reason);
                    return None;
                }
            }
        }
        found
            .map(|one| {
                let external = self.expect_udp(one.endpoint.port(), 0, context);
                let external = external.map_err(|reason| context.refuse(reason)).ok()?;
                Some((one.at, external))
            })
            .collect()
    }

    /// Expects media at a port, or at a pair of ports. A refusal is not counted yet.
    fn expect_udp(
        &mut self,
        internal: u16,
        bits: u8,
        context: &mut Context<'_>,
    ) -> Result<SocketAddrV4, Reason> {
        let bits = if self.media.is_none() { bits | Port::OPEN } else { bits };
        let until = (context.now as u16).wrapping_add(LIFETIME);
        let port = Port { internal, external: 0, until, bits };
        let wanted = port.expectation(context.flow().internal, self.media, LIFETIME);
        let external = context.try_to_expect(wanted)?;
        self.note(Port { external: external.port(), ..port });
        Ok(external)
    }

    /// Expects the connection of H.245.
    fn expect_control(&mut self, found: &Found, context: &mut Context<'_>) -> Option<Edit> {
        let flow = *context.flow();
        let internal = SocketAddr::new(flow.internal.ip(), found.endpoint.port());
        let external = context.expect(TCP, internal, Uses::Once, LIFETIME)?;
        let further = FurtherFlow { server: Side::Inside, end: external, internal };
        context.follow(&further, LIFETIME);
        let until = (context.now as u16).wrapping_add(LIFETIME);
        let (internal, external_port) = (internal.port(), external.port());
        self.note(Port { internal, external: external_port, until, bits: Port::TCP });
        Some((found.at, external))
    }

    /// The external endpoint of the host's calls, or of its registration. A registration of a
    /// lifetime keeps it; without one it lasts as long as a telephone rings. With a lifetime of 0,
    /// nothing is expected.
    fn expect_calls(
        &mut self,
        found: &Found,
        lifetime: Option<u16>,
        context: &mut Context<'_>,
    ) -> Option<Edit> {
        let flow = *context.flow();
        let is_own = Self::is_own_end(found, context);
        if is_own && lifetime.is_none_or(|lifetime| lifetime == 0) {
            return Some((found.at, flow.external));
        }
        let known = self.known(found);
        if lifetime == Some(0) {
            let end = SocketAddrV4::new(*flow.external.ip(), known?.external);
            return Some((found.at, end));
        }
        // Other messages do not shorten a registration.
        let left = known.map_or(0, |known| known.seconds_left(context.now));
        let registered = if lifetime.is_some() { Port::REGISTERED } else { 0 };
        let kept = known.map_or(0, |known| known.bits & Port::REGISTERED);
        let own = if is_own { Port::OWN } else { 0 };
        let lifetime = lifetime.unwrap_or(left).max(LIFETIME);
        let until = (context.now as u16).wrapping_add(lifetime);
        let internal = found.endpoint.port();
        let bits = Self::tcp(found) | registered | kept | own;
        let port = Port { internal, external: 0, until, bits };
        let wanted = port.expectation(flow.internal, Some(*flow.remote.ip()), lifetime);
        let external = context.expect_exactly(wanted)?;
        self.note(Port { external: external.port(), ..port });
        if found.role == Role::Signalling {
            let internal = wanted.internal;
            let further = FurtherFlow { server: Side::Inside, end: external, internal };
            context.follow(&further, lifetime);
        }
        Some((found.at, external))
    }

    /// The external endpoint of one of the host's that is the flow's own, or expected already.
    fn known_end(&self, found: &Found, context: &Context<'_>) -> Option<Edit> {
        let external = context.flow().external;
        if Self::is_own_end(found, context) {
            return Some((found.at, external));
        }
        let known = self.known(found).filter(|known| known.seconds_left(context.now) > 0)?;
        Some((found.at, SocketAddrV4::new(*external.ip(), known.external)))
    }

    /// The bit of a port where the host waits for calls, or for datagrams of RAS.
    fn tcp(found: &Found) -> u8 {
        if found.role == Role::Signalling { Port::TCP } else { 0 }
    }

    /// True if an endpoint of the host is that of the flow.
    fn is_own_end(found: &Found, context: &Context<'_>) -> bool {
        let is_datagram = Self::tcp(found) == 0;
        found.endpoint.port() == context.flow().internal.port()
            && is_datagram == context.is_datagram
    }

    /// The remembered port of an endpoint of the host.
    fn known(&self, found: &Found) -> Option<&Port> {
        let (internal, tcp) = (found.endpoint.port(), Self::tcp(found));
        self.ports
            .iter()
            .find(|one| one.internal == internal && one.bits & (Port::TCP | Port::PAIR) == tcp)
    }

    /// Ends what the registration has kept.
    fn unregister(&mut self, context: &mut Context<'_>) {
        let flow = *context.flow();
        for port in self.ports.iter_mut().filter(|port| port.has(Port::REGISTERED)) {
            context.withdraw(&port.expectation(flow.internal, Some(*flow.remote.ip()), 0));
            *port = Port::default();
        }
    }

    /// Remembers a port.
    fn note(&mut self, port: Port) {
        let is_same = |known: &Port| {
            known.internal == port.internal && (known.bits ^ port.bits) & Port::TCP == 0
        };
        let known = self.ports.iter().position(is_same);
        self.ports[known.unwrap_or(usize::from(self.next_port))] = port;
        if known.is_none() {
            self.next_port = (self.next_port + 1) % self.ports.len() as u8;
        }
    }

    /// Internal endpoints for external ones of the host, and what the other side says of itself.
    fn edit_inbound(&mut self, notes: &Notes, context: &mut Context<'_>) -> Vec<Edit> {
        let flow = *context.flow();
        let mut edits = Vec::new();
        for found in &notes.found {
            let (address, port) = (*found.endpoint.ip(), found.endpoint.port());
            if address == *flow.external.ip() {
                edits.extend(self.internal(found, context));
                continue;
            }
            match found.role {
                Role::Media | Role::MediaControl if !address.is_unspecified() => {
                    self.media = Some(address);
                    self.limit(address, context);
                }
                Role::Control if address == *flow.remote.ip() => self.follow_other(port, context),
                // A gatekeeper names where the host has to call.
                Role::Signalling if context.is_datagram && address == *flow.remote.ip() => {
                    self.follow_other(port, context);
                }
                _ => {}
            }
        }
        if context.is_datagram {
            self.take_answer(notes, context);
        }
        edits
    }

    /// The internal endpoint of an external one of the host.
    fn internal(&self, found: &Found, context: &Context<'_>) -> Option<Edit> {
        let (flow, port) = (context.flow(), found.endpoint.port());
        let SocketAddr::V4(own) = flow.internal else { return None };
        let is_tcp = matches!(found.role, Role::Signalling | Role::Control);
        if port == flow.external.port() && is_tcp != context.is_datagram {
            return Some((found.at, own));
        }
        let internal = self.ports.iter().find_map(|known| {
            let further = port.checked_sub(known.external).filter(|_| known.internal != 0)?;
            let is_it =
                further <= u16::from(known.has(Port::PAIR)) && known.has(Port::TCP) == is_tcp;
            is_it.then(|| known.internal.checked_add(further))?
        })?;
        Some((found.at, SocketAddrV4::new(*own.ip(), internal)))
    }

    /// Limits the media of the host to an address that the other side has named.
    fn limit(&self, address: Ipv4Addr, context: &mut Context<'_>) {
        let own = context.flow().internal;
        for port in self.ports.iter().filter(|port| port.has(Port::OPEN)) {
            let left = port.seconds_left(context.now);
            if left > 0 {
                context.limit(port.expectation(own, Some(address), left));
            }
        }
    }

    /// Has a connection to a port of the other side read.
    fn follow_other(&mut self, port: u16, context: &mut Context<'_>) {
        let (last, count) = self.further;
        let flow = *context.flow();
        if port != last && count >= MOST_FURTHER || port < 1024 {
            return;
        }
        self.further = (port, if port == last { count } else { count + 1 });
        let end = SocketAddrV4::new(*flow.remote.ip(), port);
        let further = FurtherFlow { server: Side::Outside, end, internal: flow.internal };
        context.follow(&further, LIFETIME);
    }

    /// Reads the gatekeeper's answer to the last request of a registration. It grants the time, or
    /// less. Nothing from outside prolongs an expectation.
    fn take_answer(&mut self, notes: &Notes, context: &mut Context<'_>) {
        let sequence = sequence(notes);
        if sequence == 0 || sequence != self.request {
            return;
        }
        let granted = match notes.value(Value::Message) {
            Some(ras::REGISTRATION_CONFIRM) if notes.value(Value::TimeToLive).is_some() => {
                time_to_live(notes)
            }
            Some(ras::REGISTRATION_REJECT) => LIFETIME,
            _ => return,
        };
        let flow = *context.flow();
        for port in self.ports.iter_mut().filter(|port| port.has(Port::REGISTERED)) {
            let left = port.seconds_left(context.now).min(granted.max(LIFETIME));
            port.until = (context.now as u16).wrapping_add(left);
            context.shorten(&port.expectation(flow.internal, Some(*flow.remote.ip()), left));
        }
    }
}

/// Number of a request of RAS, from 1 on; 0: none.
fn sequence(notes: &Notes) -> u16 {
    notes.value(Value::Sequence).map_or(0, |number| number as u16 + 1)
}

/// Lifetime that a message of a registration names, seconds.
fn time_to_live(notes: &Notes) -> u16 {
    let seconds = notes.value(Value::TimeToLive).map(|value| value.saturating_add(1));
    seconds.map_or(REGISTRATION, |seconds| seconds.min(REGISTRATION.into()) as u16)
}
