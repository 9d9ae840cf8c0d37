//! Application-level gateways around the engine: packets of control flows go through the payload
//! framework, outbound ones behind the engine and inbound ones before it.
//!
//! A control flow is told by its server's port. A client inside is known from its first packet, a
//! server inside from its static mapping. Expectations are mappings that the engine makes as if the
//! host had requested them, with a filter for the remote address. Hairpinned flows pass unread, but
//! for those of PPTP.
//!
//! The settings may change. A flow that has begun under former settings stays its protocol's.

mod aside;
mod calls;
mod carried;
mod dns;
mod expected;
mod explain;
mod further;
mod gre;
mod hairpin;
mod nat64;
mod paired;
mod ports;
mod settings;
mod tunneled;
mod tunnels;
mod watched;

use crate::counters::{Losses, Origin};
pub(crate) use aside::{Algs, Aside};
use calls::Calls;
use dns::Addresses;
use expected::OpenList;
pub use expected::{AlgExpectation, OpenExpectation};
use further::{FurtherFlows, Server};
use nat64::Ends6;
use natgate_engine::{
    AddressPort, Config, ControlPorts, Engine, Packet, Ruling, Side, Timestamp, Verdict,
};
use natgate_ipv6::Translator;
use natgate_payload::{ControlPacket, Endpoints, Fate, Limits, NewFlow, Payloads, Room};
pub use natgate_payload::{Counters as AlgCounters, Kind};
use natgate_wire::{Ipv4, protocol};
use paired::Paired;
pub(crate) use paired::{MappingEnds, Part, divide, internal_of, print_with};
use ports::EnginePorts;
pub(crate) use settings::AlgSums;
pub use settings::{AlgSettings, RuleAlgs};
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use tunneled::Host;
pub(crate) use tunneled::HostEnds;

/// Time and side of a packet's arrival, and its realm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) now: Timestamp,
    pub(crate) from: Side,
    pub(crate) realm: u16,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The engine's verdict, and the realm that a packet to the inside goes to.
    Decided(Verdict, u16),
    /// The packet is kept, or was of no use: nothing leaves.
    Kept,
}

/// Protocol and endpoints in a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends {
    protocol: u8,
    source: SocketAddrV4,
    destination: SocketAddrV4,
}

impl Ends {
    /// The ends of a whole packet, or of a first fragment, with ports.
    fn read(packet: &[u8]) -> Option<Self> {
        let ip = Ipv4::new_checked(packet).ok()?;
        let is_known = [protocol::TCP, protocol::UDP].contains(&ip.protocol());
        if !is_known || ip.fragment_offset() > 0 {
            return None;
        }
        let ports: [u8; 4] = ip.payload().get(..4)?.try_into().ok()?;
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let end = |address: u32, port| SocketAddrV4::new(Ipv4Addr::from_bits(address), port);
        Some(Self {
            protocol: ip.protocol(),
            source: end(ip.source(), port(0)),
            destination: end(ip.destination(), port(2)),
        })
    }
}

/// The control flow of a packet.
#[derive(Clone, Copy, Debug)]
struct Control {
    kind: Kind,
    endpoints: Endpoints,
    new_flow: NewFlow,
}

impl Control {
    /// The same, if the rules of the translator let the protocol take the flow of a host. A flow
    /// that is known stays its protocol's.
    fn under_rules(self, engine: &Engine, host: Host<'_>) -> Self {
        let Endpoints { internal, remote, remote_inside, .. } = self.endpoints;
        let remote = match remote_inside {
            SocketAddr::V4(remote) => remote,
            SocketAddr::V6(_) => remote,
        };
        // A flow of a host with a number is known before a packet from outside.
        if matches!(host, Host::OfFlow(..)) {
            return self;
        }
        match host.in_engine(engine, internal) {
            Some(internal) => self.under_rules_between(engine, internal, remote),
            None => self,
        }
    }

    fn under_rules_between(
        self,
        engine: &Engine,
        internal: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Self {
        let end = |end: SocketAddrV4| AddressPort::new(end.ip().to_bits(), end.port());
        let rules = engine.rules(self.endpoints.realm);
        let algs = match rules.find(end(internal), end(remote)) {
            Some(Ruling::Snat(snat)) => RuleAlgs::of_mark(snat.mark),
            _ => None,
        };
        match algs {
            Some(algs) if self.new_flow == NewFlow::Read && !algs.has(self.kind) => {
                Self { new_flow: NewFlow::LeftOut, ..self }
            }
            _ => self,
        }
    }
}

/// Seconds of the framework's clock.
fn seconds(now: Timestamp) -> u32 {
    (now.0 / 1_000_000_000) as u32
}

/// The application-level gateways of one engine.
#[derive(Debug)]
pub(crate) struct Stage {
    payloads: Payloads,
    settings: AlgSettings,
    /// Ports of former settings, while a flow that began under them lasts.
    former: AlgSettings,
    /// Ports of packets that [`Stage::claims`] looks at.
    watched: ControlPorts,
    /// These ports without those that messages have named.
    doubted: ControlPorts,
    /// True if the engine knows these ports, and true if it has to know them.
    is_told: bool,
    stops: bool,
    /// Servers inside behind static mappings of a port: from protocol and external endpoint to the
    /// internal one.
    servers: HashMap<(u8, SocketAddrV4), (Kind, SocketAddrV4)>,
    /// Control flows that others have named.
    further: FurtherFlows,
    /// Addresses that DNS translates.
    addresses: Addresses,
    /// Expectations that were made and not reported.
    made: VecDeque<AlgExpectation>,
    open: OpenList,
    /// Calls of PPTP.
    calls: Calls,
    /// What a node of a pair needs.
    paired: Option<Paired>,
    /// Identification of the last datagram that an edit made too long.
    identification: u16,
}

impl Stage {
    /// The stage of an engine with this configuration. `None`: no gateway is on.
    pub(crate) fn new(settings: &AlgSettings, config: &Config, seed: [u8; 32]) -> Option<Self> {
        if settings.is_off() {
            return None;
        }
        let mut stage = Self::off(settings.flows(), seed);
        stage.renew(settings, config);
        Some(stage)
    }

    /// A stage with all gateways off, and with room for a number of flows.
    fn off(flows: u32, seed: [u8; 32]) -> Self {
        Self {
            payloads: Payloads::new(Limits { flows, ..Limits::default() }, seed),
            settings: AlgSettings::default(),
            former: AlgSettings::default(),
            watched: ControlPorts::none(),
            doubted: ControlPorts::none(),
            is_told: true,
            stops: false,
            servers: HashMap::new(),
            further: FurtherFlows::default(),
            addresses: Addresses::default(),
            made: VecDeque::new(),
            open: OpenList::default(),
            calls: Calls::new(seed),
            paired: None,
            identification: u16::from_le_bytes([seed[0], seed[1]]),
        }
    }

    /// Replaces the secret of a stage without flows.
    fn set_seed(&mut self, seed: [u8; 32]) {
        self.payloads.set_seed(seed);
        self.calls = Calls::new(seed);
    }

    /// Puts new settings in force, and learns the servers behind static mappings of the engine's
    /// configuration.
    pub(crate) fn renew(&mut self, settings: &AlgSettings, config: &Config) {
        if *settings != self.settings {
            self.former.add(&self.settings);
            self.settings = settings.clone();
        }
        self.further.keep(|kind| settings.has(kind));
        self.learn_servers(config);
        self.addresses = Addresses::of(config, &self.settings);
        self.end_former();
        self.watch();
    }

    fn learn_servers(&mut self, config: &Config) {
        let Self { settings, servers, .. } = self;
        servers.clear();
        for one in config.statics.iter().filter(|one| one.realm == 0) {
            let (Some(internal), Some(external)) = (one.internal.1, one.external.1) else {
                continue;
            };
            for number in [protocol::TCP, protocol::UDP] {
                let is_of = one.protocol.is_none_or(|only| only == number);
                if let Some(kind) = settings.kind(number, internal).filter(|_| is_of) {
                    let external = SocketAddrV4::new(one.external.0, external);
                    let internal = SocketAddrV4::new(one.internal.0, internal);
                    servers.insert((number, external), (kind, internal));
                }
            }
        }
    }

    /// Forgets former settings when no flow needs them.
    fn end_former(&mut self) {
        if self.former.is_off() {
            return;
        }
        let is_former = |(kind, protocol, ends): (Kind, u8, Endpoints)| {
            let server = self.servers.get(&(protocol, ends.external)).map(|(kind, _)| *kind);
            let named = server.or_else(|| self.settings.kind(protocol, ends.remote.port()));
            named.or_else(|| self.further.kind(protocol, &ends)) != Some(kind)
        };
        if !self.payloads.each().any(is_former) {
            self.former = AlgSettings::default();
            self.watch();
        }
    }

    /// True if no gateway is on, and nothing of former ones is left.
    fn is_over(&self) -> bool {
        let has_flows = self.payloads.flows() > 0;
        let has_open = !self.open.is_empty() || !self.calls.is_empty() || self.has_kept();
        self.settings.is_off() && !has_flows && !has_open && self.made.is_empty()
    }

    /// True if a packet may be of a control flow, and has to be taken by [`Stage::take`].
    #[inline(always)]
    pub(crate) fn claims(&self, from: Side, packet: &[u8]) -> bool {
        (self.watched.may_have(packet) || self.has_pieces()) && self.claims_any(from, packet)
    }

    #[cold]
    fn claims_any(&self, from: Side, packet: &[u8]) -> bool {
        self.watched.may_have(packet) && self.has_flow(from, packet) || self.may_follow(packet)
    }

    /// [`Stage::claims`] for a packet with a watched port.
    fn has_flow(&self, from: Side, packet: &[u8]) -> bool {
        let Some(ends) = Ends::read(packet) else { return self.may_have_call(packet) };
        match from {
            _ if self.is_message(from, ends) => true,
            Side::Inside => {
                let has = |settings: &AlgSettings, end: SocketAddrV4| {
                    settings.kind(ends.protocol, end.port()).is_some()
                };
                let is_of =
                    |settings| has(settings, ends.destination) || has(settings, ends.source);
                // A flow of former settings may have any ports.
                let is_former = !self.former.is_off();
                is_former || is_of(&self.settings) || self.further.may_have(ends)
            }
            Side::Outside => self.inbound(ends).is_some() || self.may_be_astray(ends).is_some(),
        }
    }

    /// The flow of an inbound packet.
    fn inbound(&self, ends: Ends) -> Option<Control> {
        let Ends { protocol, source, destination } = ends;
        let server = self.servers.get(&(protocol, destination));
        let server =
            server.map(|&(kind, internal)| Server { kind, realm: 0, internal, number: None });
        let named = match server {
            Some(Server { kind, .. }) => Some(kind),
            None => self.settings.kind(protocol, source.port()),
        };
        if named.is_none() && self.former.is_off() && self.further.is_empty() {
            return None;
        }
        let known = self.payloads.find(protocol, destination, source);
        // The external endpoint of a server that a message has named may be another host's by now.
        let further = || self.further.server(ends).filter(|_| known.is_none());
        let (named, server) = match server.is_none().then(further).flatten() {
            Some(further) => (Some(further.kind), Some(further)),
            None => (named, server),
        };
        let flow = match (server, known) {
            (Some(Server { realm, internal, number, .. }), _) => {
                Endpoints { number, ..endpoints(realm, internal, destination, source) }
            }
            (None, Some((_, flow))) => flow,
            (None, None) => return None,
        };
        let named = named.or_else(|| self.further.kind(protocol, &flow));
        self.control(named, known.map(|(kind, _)| kind), flow)
    }

    /// The flow of a packet that the engine has sent out.
    fn outbound(&self, realm: u16, before: Ends, after: Ends) -> Option<Control> {
        let Ends { protocol, source: external, destination: remote } = after;
        let server = self.servers.get(&(protocol, external));
        let named = match server.filter(|(_, internal)| *internal == before.source) {
            Some((kind, _)) => Some(*kind),
            None => self.settings.kind(protocol, before.destination.port()),
        };
        let flow = endpoints(realm, before.source, external, remote);
        let named = named.or_else(|| self.further.kind(protocol, &flow));
        // A destination that was translated too has two names; such flows pass unread.
        if before.destination != remote || named.is_none() && self.former.is_off() {
            return None;
        }
        // The tunnels of a host that keeps its address need nothing.
        if named == Some(Kind::Pptp) && before.source == external {
            return None;
        }
        let known = self.payloads.find(protocol, external, remote).map(|(kind, _)| kind);
        self.control(named, known, flow)
    }

    /// The flow of a packet: `named` by the settings, and `known` from its beginning. After a
    /// change of the settings a known flow stays its protocol's.
    fn control(
        &self,
        named: Option<Kind>,
        known: Option<Kind>,
        endpoints: Endpoints,
    ) -> Option<Control> {
        let known = known.filter(|_| !self.former.is_off());
        let kind = known.or(named)?;
        let new_flow = if named == Some(kind) { NewFlow::Read } else { NewFlow::Off };
        Some(Control { kind, endpoints, new_flow })
    }

    /// Takes a packet through the engine and the framework. The translator has the hosts with
    /// numbers. `losses` counts an input packet that the engine does not see.
    pub(crate) fn take(
        &mut self,
        (engine, translator): (&mut Engine, Option<&Translator>),
        arrived: Arrived,
        room: &mut Room<'_>,
        losses: &mut Losses,
    ) -> Taken {
        match (arrived.from, Ends::read(room.bytes())) {
            (_, Some(before)) if self.is_message(arrived.from, before) => {
                self.take_message((engine, translator), arrived, before, room)
            }
            (Side::Outside, Some(ends)) => {
                let len = room.bytes().len();
                if let Some(kind) = self.astray((engine, arrived.now), ends, room.bytes()) {
                    self.drop_paired(kind);
                    losses.keep(Origin::forwarded(Side::Outside, Side::Inside, len));
                    return Taken::Kept;
                }
                if let Some(control) = self.inbound(ends)
                    && self.edit((engine, translator), arrived, control, room) == Fate::Held
                {
                    losses.keep(Origin::forwarded(Side::Outside, Side::Inside, len));
                    return Taken::Kept;
                }
                translate(engine, arrived, room)
            }
            (Side::Inside, Some(before)) => {
                let taken = translate(engine, arrived, room);
                let fate = match taken {
                    Taken::Decided(Verdict::Forward(Side::Outside), _) => {
                        let after = Ends::read(room.bytes());
                        let control =
                            after.and_then(|after| self.outbound(arrived.realm, before, after));
                        control.map(|control| self.edit((engine, None), arrived, control, room))
                    }
                    Taken::Decided(Verdict::Forward(Side::Inside), realm) => {
                        Some(self.edit_hairpinned(engine, (arrived, realm), before, room))
                    }
                    _ => None,
                };
                if fate == Some(Fate::Held) { Taken::Kept } else { taken }
            }
            (_, None) => match self.take_call(engine, arrived, room, losses) {
                Some(taken) => taken,
                None => translate(engine, arrived, room),
            },
        }
    }

    /// Gives a packet to the framework.
    fn edit(
        &mut self,
        (engine, translator): (&mut Engine, Option<&Translator>),
        arrived: Arrived,
        control: Control,
        room: &mut Room<'_>,
    ) -> Fate {
        let Arrived { now, from, .. } = arrived;
        let host = Host::of((&*engine, translator), from, &control, room.bytes());
        let control = control.under_rules(engine, host);
        let wanted = control;
        let subscriber = match &self.paired {
            Some(_) => paired::subscriber(engine, host, &control.endpoints),
            None => paired::NOBODY,
        };
        let Some(control) = self.admit_paired(arrived, (control, subscriber), room.bytes()) else {
            return self.drop_paired(control.kind);
        };
        let Control { kind, endpoints, new_flow, .. } = control;
        let number = Ipv4::new_checked(room.bytes()).map_or(0, |ip| ip.protocol());
        let Self { addresses, calls, further, .. } = self;
        let kind_of = (kind, number);
        let mut ports = EnginePorts { engine, host, now, kind: kind_of, addresses, calls, further };
        let packet = ControlPacket { kind, from, endpoints, new_flow };
        let before = room.bytes().len();
        let fate = self.payloads.process(seconds(now), packet, room, &mut ports);
        let names = self.further.take_named();
        if self.further.take_change() {
            self.watch();
            self.tell_ports(engine);
        }
        let mtu = usize::from(tunnels::mtu_beyond(engine, from, endpoints.realm));
        if before <= mtu && room.bytes().len() > mtu {
            self.identification = self.identification.wrapping_add(1);
            permit_cut(room.bytes_mut(), self.identification);
        }
        let mut expected = Vec::new();
        while let Some(event) = self.payloads.poll_event() {
            let internal = host.in_engine(engine, event.opened.expectation.internal);
            let arrived = Arrived { realm: endpoints.realm, ..arrived };
            for made in AlgExpectation::of(arrived, &event, internal) {
                if made.kind != Kind::Pptp {
                    self.open.add(made, &event);
                    expected.push((made.protocol, made.external));
                }
                self.made.push_back(made);
            }
        }
        if kind == Kind::Pptp
            && !self.payloads.is_open(protocol::TCP, endpoints.external, endpoints.remote)
        {
            self.calls.end_flow(&endpoints);
        }
        self.await_partner((room.bytes(), &endpoints, subscriber), (&expected, names));
        self.note_unread(arrived, (&wanted, subscriber), room.bytes());
        fate
    }

    /// Copies the next packet of the framework's own to a buffer, translated: the side and realm to
    /// send it to, and its length. `losses` excludes it from the engine's counters of input.
    pub(crate) fn poll_transmit(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        buffer: &mut [u8],
        losses: &mut Losses,
    ) -> Option<(Side, u16, usize)> {
        loop {
            let (side, len) = self.payloads.poll_transmit(buffer)?;
            let mut room = Room::new(buffer, len);
            match self.turn_own(engine, (now, side), &mut room) {
                Some(Some(realm)) => return Some((Side::Inside, realm, room.bytes().len())),
                Some(None) => continue,
                None if side == Side::Outside => return Some((side, 0, len)),
                None => {}
            }
            let before = engine.counters().clone();
            let arrived = Arrived { now, from: Side::Outside, realm: 0 };
            let taken = translate(engine, arrived, &mut room);
            losses.exclude(&before, engine.counters());
            if let Taken::Decided(Verdict::Forward(Side::Inside), realm) = taken {
                return Some((side, realm, room.bytes().len()));
            }
        }
    }

    /// The next expectation that was made and not reported.
    pub(crate) fn poll_expectation(&mut self) -> Option<AlgExpectation> {
        self.made.pop_front()
    }

    /// Expectations whose flow may begin, in no order.
    pub(crate) fn open(
        &self,
        engine: &mut Engine,
        translator: Option<&Translator>,
        now: Timestamp,
    ) -> Vec<OpenExpectation> {
        let mut open = self.open.list(engine, translator, now);
        open.extend(self.waiting_calls(translator, now));
        open
    }

    /// Forgets old flows, expectations and calls.
    pub(crate) fn sweep(&mut self, engine: &mut Engine, now: Timestamp) {
        self.open.expire(now);
        let Self { payloads, paired, .. } = self;
        let is_of_partner = |ends: &Endpoints| {
            paired.as_ref().is_some_and(|paired| paired.is_of_partner(*ends.external.ip()))
        };
        payloads.sweep(seconds(now), is_of_partner);
        self.sweep_paired(now);
        self.sweep_calls(engine, now);
        let Self { payloads, paired, further, .. } = self;
        let is_copied =
            |external| paired.as_ref().is_some_and(|paired| paired.has_copy_of(engine, external));
        let time = engine.config().timeouts.hold_down.as_secs() as u32;
        further.expire(seconds(now), || payloads.each(), (is_copied, time));
        if self.further.take_change() {
            self.watch();
        }
        self.end_former();
        self.tell_ports(engine);
    }

    /// Counters of the protocols that are on, or have been.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (Kind, AlgCounters)> + '_ {
        let all = Kind::ALL.into_iter().map(|kind| (kind, *self.payloads.counters(kind)));
        all.filter(|(kind, of)| self.settings.has(*kind) || *of != AlgCounters::default())
    }
}

fn endpoints(
    realm: u16,
    internal: SocketAddrV4,
    external: SocketAddrV4,
    remote: SocketAddrV4,
) -> Endpoints {
    let (internal, remote_inside) = (internal.into(), remote.into());
    Endpoints { internal, external, remote, remote_inside, realm, number: None }
}

/// Lets a whole datagram that an edit has made longer than the MTU of its way be cut, whatever its
/// sender wants. The sender cannot do better: a report of the MTU would not say that the datagram
/// grew. Senders that forbid cuts need not tell their datagrams apart, so it gets an
/// identification.
#[cold]
fn permit_cut(packet: &mut [u8], identification: u16) {
    let Ok(mut ip) = Ipv4::new_checked(packet) else { return };
    if ip.dont_fragment() {
        ip.set_fragment_field(0);
        ip.set_identification(identification);
        ip.fill_checksum();
    }
}

/// Lets the engine take a packet of a control flow.
fn translate(engine: &mut Engine, arrived: Arrived, room: &mut Room<'_>) -> Taken {
    let Arrived { now, from, realm } = arrived;
    let mut packet = Packet::new(room.bytes_mut(), 0).in_realm(realm);
    let verdict = engine.process_control(now, from, &mut packet);
    let (realm, len) = (packet.realm(), packet.len());
    room.set_len(len);
    Taken::Decided(verdict, realm)
}

#[cfg(test)]
mod tests;
