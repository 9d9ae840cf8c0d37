//! SIP over UDP and TCP (RFC 3261), with bodies of SDP.
//!
//! A host inside writes its own endpoint into Via, Contact, routes and addresses of users. The
//! framework writes the external endpoint instead, and puts the internal one back into what comes
//! from outside. A registration keeps the endpoint's mapping as long as the registration lasts, and
//! no longer than the registrar grants. A port of Contact or Via other than the flow's own gets an
//! expectation of its own. `received` and `rport` (RFC 3581) stay as they are: they say what the
//! other side has seen.
//!
//! The media of an offer may come from anywhere until the other side's description says from where.
//! A message from outside can only limit an expectation.
//!
//! Between families, the host inside has IPv6. Addresses of remote hosts change too then, in both
//! directions, and so do `received` and `rport`: the other side's address would mean nothing to a
//! host of the other family. The URI of credentials stays, because their hash covers it (RFC 3261
//! section 22.4).

mod body;
mod message;
mod registrations;

use crate::Side;
use crate::changes::Changes;
use crate::expectation::{Endpoints, Expectation, Uses, Wanted};
use crate::lifetime::{have_passed, seconds_left};
use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::saved::saved;
use crate::sdp::Description;
use crate::text::{self, Family, Place};
use alloc::vec::Vec;
use body::description;
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ops::Range;
use message::{
    Field, Message, asked, body_len, call, contacts, endpoints, ends_all, expires, expires_of_all,
    headers, maddr, may_be_message, named, record, request, seen, status,
};
use natgate_wire::protocol::{TCP, UDP};
use registrations::{Registration, Registrations};

/// Longest message, bytes: with one segment more, it fits into the window of held bytes.
const LONGEST: usize = 6144;

/// The port of a URI without one (RFC 3261 section 19.1.2).
const DEFAULT_PORT: u16 = 5060;

/// Between families a message has many edits, and the room for edits that the receiver has not
/// acknowledged is limited by number. So edits that are this near become one, bytes.
const NEAR: usize = 32;

/// Lifetime of an endpoint that is not registered, seconds: as long as a transaction of an
/// invitation may last.
const TRANSACTION: u16 = 180;

/// A port inside, and the external one that another flow's mapping has.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    internal: u16,
    external: u16,
}

/// A port of the host that a message registers, and for how many seconds; 0: no longer.
struct Wish {
    port: u16,
    seconds: u16,
}

/// What a message registers.
#[derive(Default)]
struct Wishes {
    ports: Vec<Wish>,
    /// Hashes of the address of record and of the request.
    of: (u16, u32),
}

/// A medium of the host that may come from anywhere: hash of its call and number of the medium, the
/// low bits of the time in seconds at which this ends, and the port. 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// Hash of the call without its low bits, three bits for the kind, three for the number.
    medium: u32,
    until: u16,
    port: u16,
}

impl Open {
    const NUMBER: u32 = 0x7;
    const PAIR: u32 = 0x8;
    const TCP: u32 = 0x10;
    /// The port above it is open, too, and is no pair with it outside.
    const ABOVE: u32 = 0x20;
    const CALL: u32 = !0x3f;

    fn new(call: u32, number: usize, of: &Expectation, now: u32) -> Self {
        let pair = if of.wanted == Wanted::Pair { Self::PAIR } else { 0 };
        let tcp = if of.protocol == TCP { Self::TCP } else { 0 };
        let medium = call & Self::CALL | pair | tcp | number as u32 & Self::NUMBER;
        let until = (now as u16).wrapping_add(of.lifetime);
        Self { medium, until, port: of.internal.port() }
    }

    /// The expectations, limited to an address, for the rest of their time.
    fn limited(
        &self,
        own: IpAddr,
        remote: Ipv4Addr,
        now: u32,
    ) -> impl Iterator<Item = Expectation> + use<> {
        let is_pair = self.medium & Self::PAIR != 0;
        let first = Expectation {
            protocol: if self.medium & Self::TCP == 0 { UDP } else { TCP },
            remote: Some(remote),
            remote_port: 0,
            internal: SocketAddr::new(own, self.port),
            wanted: if is_pair { Wanted::Pair } else { Wanted::AddressOfFlow },
            lifetime: seconds_left(self.until, now),
            uses: Uses::Many,
        };
        let above = self.port.checked_add(1).filter(|_| self.medium & Self::ABOVE != 0);
        let second =
            above.map(|port| Expectation { internal: SocketAddr::new(own, port), ..first });
        [Some(first), second].into_iter().flatten()
    }
}

/// Parts of a message in which a host writes its endpoint in one manner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Contact, and the start line of requests to it.
    Contact = 1,
    Via = 2,
    Route = 4,
    User = 8,
}

impl Part {
    /// The part of a header; `None`: the start line.
    fn of(field: Option<Field>) -> Self {
        match field {
            None | Some(Field::Contact) => Self::Contact,
            Some(Field::Via) => Self::Via,
            Some(Field::Route) => Self::Route,
            Some(_) => Self::User,
        }
    }
}

/// A flow between a host inside and another host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sip {
    /// The last call with a description from outside, as a hash, and the address of its media.
    media: Option<(u32, Ipv4Addr)>,
    /// Ports of the host besides the flow's own.
    ports: [Port; 4],
    next_port: u8,
    /// The last media that may come from anywhere.
    open: [Open; 5],
    next_open: u8,
    /// Bits of [`Part`]: the host leaves the usual port out there.
    short: u8,
    registrations: Registrations,
    /// Time of the last message, seconds.
    seen: u32,
}

saved!(Port { internal, external });
saved!(Open { medium, until, port });
saved!(Registration { request, record, port, until, granted });
saved!(Registrations { all, beyond });
saved!(Sip { media, ports, next_port, open, next_open, short, registrations, seen });

impl Sip {
    /// True if the numbers are possible.
    pub(crate) fn is_sound(&self) -> bool {
        usize::from(self.next_port) < self.ports.len()
            && usize::from(self.next_open) < self.open.len()
    }
}

impl Protocol for Sip {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
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
        let headers = headers(&bytes[..head]);
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
        self.forget_passed(context.now);
        let mut changes = Changes::new();
        let line = text::start_line(message.bytes).map_or(0, <[u8]>::len);
        let headers = named(message).map(|header| (Some(header.field), header.value.clone()));
        let parts = core::iter::once((None, 0..line)).chain(headers);
        if context.from() == Side::Inside {
            let wishes = self.take_wishes(message, context);
            parts
                .for_each(|part| self.edit_outbound(message, part, &wishes, context, &mut changes));
        } else {
            self.take_answer(message, context);
            parts.for_each(|part| self.edit_inbound(message, part, context, &mut changes));
        }
        if context.is_between_families() {
            for header in message.all(Field::Via) {
                self.edit_seen(header.value.clone(), message, context, &mut changes);
            }
        }
        self.take_body(message, context, &mut changes);
        changes.put_in_order(message.bytes);
        if context.is_between_families() {
            changes.join(NEAR, message.bytes);
        }
        // Anybody outside may write a message with more edits than there is room for.
        if !context.has_room(changes.each().map(|(_, text)| text)) {
            context.refuse(Reason::NoBuffer);
            return Ok(());
        }
        changes.each().try_for_each(|(place, text)| context.replace(place, text))
    }

    /// Forgets what has passed. Of times only the low bits are kept, which mean another time after
    /// 65,536 seconds.
    fn forget_passed(&mut self, now: u32) {
        let is_long_ago = have_passed(&mut self.seen, now);
        let is_over = |open: &&mut Open| is_long_ago || seconds_left(open.until, now) == 0;
        self.open.iter_mut().filter(is_over).for_each(|open| *open = Open::default());
        self.registrations.forget_passed(is_long_ago, now);
    }

    /// The ports of the host that a message registers. Notes which registrations it asks to end.
    fn take_wishes(&mut self, message: &Message<'_>, context: &mut Context<'_>) -> Wishes {
        let contacts = asked(message);
        if contacts.is_empty() {
            return Wishes::default();
        }
        let mut wishes: Vec<Wish> = Vec::new();
        for (contact, seconds) in &contacts {
            for place in endpoints(message.bytes, contact.clone(), context.family()) {
                let port = place.port.unwrap_or(DEFAULT_PORT);
                if !context.is_own(place.address) {
                    continue;
                }
                // One contact of a port may take the place of another.
                match wishes.iter_mut().find(|wish| wish.port == port) {
                    Some(wish) => wish.seconds = wish.seconds.max(*seconds),
                    None => wishes.push(Wish { port, seconds: *seconds }),
                }
            }
        }
        let (record, request) = (record(message), request(message));
        let all = self.registrations.ports(record).filter(|_| ends_all(message, &contacts));
        let ended = wishes.iter().filter(|wish| wish.seconds == 0).map(|wish| wish.port);
        for port in all.chain(ended) {
            self.registrations.ask((record, port), request, 0, context.now);
        }
        Wishes { ports: wishes, of: (record, request) }
    }

    /// Writes external endpoints into a part of a message from inside.
    fn edit_outbound(
        &mut self,
        message: &Message<'_>,
        (field, part): (Option<Field>, Range<usize>),
        wishes: &Wishes,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let own_port = context.flow().internal.port();
        let is_contact = field == Some(Field::Contact);
        let written = Part::of(field);
        let is_reached = field.is_some() && matches!(written, Part::Contact | Part::Via);
        for place in endpoints(message.bytes, part.clone(), context.family()) {
            if !context.is_own(place.address) {
                across(place, context, changes);
                continue;
            }
            let port = place.port.unwrap_or(DEFAULT_PORT);
            let wish = wishes.ports.iter().find(|wish| is_contact && wish.port == port);
            let asked = wish.map(|wish| wish.seconds).filter(|seconds| *seconds > 0);
            let external = if port == own_port {
                if let Some(asked) = asked {
                    self.register(wishes.of, port, (asked, asked), context);
                }
                Some(context.flow().external)
            } else if let Some(asked) = asked {
                self.register(wishes.of, port, (asked, asked.max(TRANSACTION)), context)
            } else if is_reached {
                self.expect(port, TRANSACTION, context)
            } else {
                self.known(|known| known.internal == port)
                    .map(|known| SocketAddrV4::new(*context.flow().external.ip(), known.external))
            };
            if let Some(external) = external {
                let address = IpAddr::V4(*external.ip());
                if let Some(place) = maddr(message.bytes, &part, &place) {
                    changes.add(place, |to| text::write_address(to, address));
                }
                changes.add(place.range, |to| text::write_end(to, address, external.port()));
                if field.is_some() && port == DEFAULT_PORT {
                    let bit = if place.port.is_none() { written as u8 } else { 0 };
                    self.short = self.short & !(written as u8) | bit;
                }
            }
        }
    }

    /// Puts internal endpoints back into a part of a message from outside.
    fn edit_inbound(
        &self,
        message: &Message<'_>,
        (field, part): (Option<Field>, Range<usize>),
        context: &Context<'_>,
        changes: &mut Changes,
    ) {
        let flow = context.flow();
        // A URI with the usual port differs from one without (RFC 3261 section 19.1.4).
        let is_short = self.short & Part::of(field) as u8 != 0;
        for place in endpoints(message.bytes, part.clone(), context.family()) {
            let port = place.port.unwrap_or(DEFAULT_PORT);
            let is_external = place.address == IpAddr::V4(*flow.external.ip());
            match self.internal(port, flow).filter(|_| is_external) {
                Some(internal) => {
                    let own = flow.internal.ip();
                    if let Some(place) = maddr(message.bytes, &part, &place) {
                        changes.add(place, |to| text::write_host(to, own));
                    }
                    changes.add(place.range, |to| match internal {
                        DEFAULT_PORT if is_short => text::write_host(to, own),
                        _ => text::write_end(to, own, internal),
                    });
                }
                None => across(place, context, changes),
            }
        }
    }

    /// The internal port of an external one.
    fn internal(&self, port: u16, flow: &Endpoints) -> Option<u16> {
        if port == flow.external.port() {
            return Some(flow.internal.port());
        }
        self.known(|known| known.external == port).map(|known| known.internal)
    }

    /// Between families, writes what one side has seen of the other as the receiver knows it: the
    /// address in `received`, and with the host's own address the port in `rport` (RFC 3581).
    fn edit_seen(
        &self,
        part: Range<usize>,
        message: &Message<'_>,
        context: &Context<'_>,
        changes: &mut Changes,
    ) {
        let flow = context.flow();
        for seen in seen(message.bytes, part, context.family()) {
            let (range, address) = seen.address;
            let own = match context.from() {
                Side::Inside => context.is_own(address).then(|| (*flow.external.ip()).into()),
                Side::Outside => {
                    (address == IpAddr::V4(*flow.external.ip())).then(|| flow.internal.ip())
                }
            };
            if let Some(other) = context.across(address).filter(|_| own.is_none()) {
                changes.add(range, |to| text::write_address(to, other));
                continue;
            }
            let port = |port: u16| match context.from() {
                Side::Inside => (port == flow.internal.port()).then(|| flow.external.port()),
                Side::Outside => self.internal(port, flow),
            };
            let port = seen.port.map(|(range, own)| Some((range, port(own)?)));
            if let (Some(own), None | Some(Some(_))) = (own, &port) {
                changes.add(range, |to| text::write_address(to, own));
                if let Some((range, port)) = port.flatten() {
                    changes.add(range, |to| text::write_number(to, port.into()));
                }
            }
        }
    }

    fn known(&self, is_it: impl Fn(&Port) -> bool) -> Option<Port> {
        self.ports.iter().copied().find(|known| known.internal != 0 && is_it(known))
    }

    /// Keeps a port for a registration: the seconds that the host asks for, and those to expect.
    fn register(
        &mut self,
        (record, request): (u16, u32),
        port: u16,
        (asked, lifetime): (u16, u16),
        context: &mut Context<'_>,
    ) -> Option<SocketAddrV4> {
        let external = self.expect(port, lifetime, context)?;
        self.registrations.ask((record, port), request, asked, context.now);
        Some(external)
    }

    /// Expects messages of the flow's remote host at a port of the host.
    fn expect(
        &mut self,
        port: u16,
        lifetime: u16,
        context: &mut Context<'_>,
    ) -> Option<SocketAddrV4> {
        let external = context.expect_exactly(signaling(port, lifetime, context))?;
        if port != context.flow().internal.port() {
            let known = self.ports.iter().position(|known| known.internal == port);
            let at = known.unwrap_or(usize::from(self.next_port));
            self.ports[at] = Port { internal: port, external: external.port() };
            if known.is_none() {
                self.next_port = (self.next_port + 1) % self.ports.len() as u8;
            }
        }
        Some(external)
    }

    /// Reads the registrar's answer to the last request of a registration (RFC 3261 section 10.3).
    /// The registrar may grant less time than the host asked for, or nothing. More time is not
    /// granted here: a message from outside prolongs nothing.
    fn take_answer(&mut self, message: &Message<'_>, context: &mut Context<'_>) {
        let Some(status @ 200..) = status(message) else { return };
        let request = request(message);
        if request == 0 {
            return;
        }
        let of = (record(message), request);
        let (ports, flow) = (self.ports, *context.flow());
        let granted = |port| granted(message, port, &ports, &flow);
        let answered = self.registrations.answer(of, status >= 300, &granted, context.now);
        answered.for_each(|(port, is_ended)| self.shorten(port, is_ended, context));
    }

    /// Keeps a port no longer than its registrations need it, and a transaction may last. The
    /// flow's own port, which the session with the registrar keeps, is not kept when the last
    /// registration has ended.
    fn shorten(&self, port: u16, is_ended: bool, context: &mut Context<'_>) {
        let need = self.registrations.need(port, context.now);
        if need == 0 && is_ended && port == context.flow().internal.port() {
            return context.withdraw(&signaling(port, 0, context));
        }
        context.shorten(&signaling(port, need.max(TRANSACTION), context));
    }

    /// Notes media that may come from anywhere.
    fn note_open(&mut self, call: u32, made: &[(usize, Expectation)], now: u32) {
        let mut made = made.iter().peekable();
        while let Some((number, of)) = made.next() {
            let mut open = Open::new(call, *number, of, now);
            let is_above = |(other, next): &&(usize, Expectation)| {
                other == number && Some(next.internal.port()) == open.port.checked_add(1)
            };
            if made.next_if(is_above).is_some() {
                open.medium |= Open::ABOVE;
            }
            let is_same =
                |one: &Open| one.port == open.port && (one.medium ^ open.medium) & Open::TCP == 0;
            let known = self.open.iter().position(is_same);
            let place = &mut self.open[known.unwrap_or(usize::from(self.next_open))];
            if known.is_some() {
                // A port that was open stays so.
                open.medium |= place.medium & Open::ABOVE;
            }
            *place = open;
            if known.is_none() {
                self.next_open = (self.next_open + 1) % self.open.len() as u8;
            }
        }
    }

    /// Limits the media of a call to the addresses that the other side has named.
    fn limit(&self, call: u32, description: &Description, context: &mut Context<'_>) {
        let own = context.flow().internal.ip();
        for (number, address) in description.addresses().enumerate() {
            let medium = call & Open::CALL | number as u32;
            let is_of = |one: &&Open| one.medium & (Open::CALL | Open::NUMBER) == medium;
            let Some(address) = address else { continue };
            for open in self.open.iter().filter(is_of) {
                if open.port != 0 && seconds_left(open.until, context.now) > 0 {
                    open.limited(own, address, context.now).for_each(|one| context.limit(one));
                }
            }
        }
    }

    /// Reads a description, and edits one from inside with the length of the body.
    fn take_body(
        &mut self,
        message: &Message<'_>,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let Some(place) = description(message) else { return };
        let description = Description::read(message.bytes, place, context.family());
        let call = call(message);
        let before = changes.len();
        if context.from() == Side::Outside {
            self.media = description.address().map(|address| (call, address));
            self.limit(call, &description, context);
            description.translate(context, changes);
        } else {
            let known = self.media.filter(|(of, _)| *of == call).map(|(_, address)| address);
            let made = description.expect(known, context, changes);
            if known.is_none() {
                self.note_open(call, &made, context.now);
            }
        }
        if changes.len() == before && context.from() == Side::Outside {
            return;
        }
        let (added, removed) = changes.sums(before);
        if let Some(header) = message.only(Field::ContentLength) {
            let len = message.bytes.len() - message.head + added - removed;
            changes.add(header.value.clone(), |to| text::write_number(to, len as u32));
        }
    }
}

/// Writes a remote host's endpoint between families.
fn across(place: Place, context: &Context<'_>, changes: &mut Changes) {
    let Some(address) = context.across(place.address) else { return };
    changes.add(place.range, |to| match place.port {
        Some(port) => text::write_end(to, address, port),
        None => text::write_host(to, address),
    });
}

/// The expectation of messages of a flow's remote host at a port of the host.
fn signaling(port: u16, lifetime: u16, context: &Context<'_>) -> Expectation {
    let Endpoints { internal, remote, .. } = *context.flow();
    let is_own = port == internal.port();
    Expectation {
        protocol: context.transport(),
        remote: Some(*remote.ip()),
        remote_port: 0,
        internal: SocketAddr::new(internal.ip(), port),
        wanted: if is_own { Wanted::EndpointOfFlow } else { Wanted::AddressOfFlow },
        lifetime,
        uses: Uses::Many,
    }
}

/// The time that an answer grants to the contact with an internal port, seconds. `None`: the answer
/// does not say.
fn granted(message: &Message<'_>, port: u16, ports: &[Port], flow: &Endpoints) -> Option<u16> {
    let external = match port == flow.internal.port() {
        true => flow.external.port(),
        false => ports.iter().find(|known| known.internal == port)?.external,
    };
    let is_it = |place: Place| {
        let port = place.port.unwrap_or(DEFAULT_PORT);
        (place.address, port) == (IpAddr::V4(*flow.external.ip()), external)
    };
    let own = contacts(message)
        .filter(|contact| endpoints(message.bytes, contact.clone(), Family::Ipv4).any(is_it));
    let of_all = expires_of_all(message);
    own.filter_map(|contact| expires(&message.bytes[contact], of_all)).max()
}
