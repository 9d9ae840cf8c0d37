//! Messages of DNS in datagrams, and the addresses that DNS translates.
//!
//! A resolver sends each question from a new port. So datagrams of DNS are read without a flow, and
//! behind the engine in both directions: only there the host and the realm of an inbound packet are
//! known. DNS over TCP is read like every other protocol.
//!
//! Hosts behind several B4s may have one address. The configuration has their numbers, and a flow
//! concerns the hosts behind the B4 of its own host alone.
//!
//! The addresses are those of static mappings, and of rules that translate prefixes of
//! destinations. Both sides may know a host by one address each: then names of inverse questions
//! are translated too.

use super::{AlgSettings, Arrived, Control, Ends, Host, Kind, Stage, Taken, endpoints, translate};
use natgate_engine::{AddressPort, Config, Engine, Match, RuleAction, Side, Verdict};
use natgate_ipv6::Translator;
use natgate_payload::{Counterpart, Endpoints, NewFlow, Room};
use natgate_wire::protocol;
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// External addresses of a host with static mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum External {
    /// Its whole address is mapped to this one.
    Whole(Ipv4Addr),
    /// Ports are mapped to ports of this address only.
    Ports(Ipv4Addr),
    /// Ports are mapped to ports of several addresses.
    Several,
}

/// Addresses of static mappings and services.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// By realm and internal address. A host with a number has its number.
    external: HashMap<(u16, Ipv4Addr), External>,
    /// Realm and internal address of whole external addresses.
    internal: HashMap<Ipv4Addr, (u16, Ipv4Addr)>,
    /// Ports of servers outside to which rules send questions.
    ports: BTreeSet<u16>,
}

impl Addresses {
    /// The addresses of a configuration; none if DNS is off.
    pub(super) fn of(config: &Config, settings: &AlgSettings) -> Self {
        let mut all = Self::default();
        if !settings.has(Kind::Dns) {
            return all;
        }
        let is_asked = |port| settings.kind(protocol::UDP, port) == Some(Kind::Dns);
        let rules = config.realms.iter().flat_map(|realm| &realm.rules).chain(&config.rules);
        all.ports.extend(rules.filter_map(|rule| match (&rule.matches, &rule.action) {
            (Match::Destination(_, port), RuleAction::Dnat(_, to)) if is_asked(*port) => *to,
            _ => None,
        }));
        for one in &config.statics {
            let (host, external) = ((one.realm, one.internal.0), one.external.0);
            match one.external.1 {
                Some(_) => all.add_ports(host, external),
                None => {
                    all.external.insert(host, External::Whole(external));
                    all.internal.insert(external, host);
                }
            }
        }
        for service in &config.services {
            for server in &service.servers {
                all.add_ports((service.realm, server.internal.0), service.external.0);
            }
        }
        all
    }

    /// Ports of servers outside to which rules send questions.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.ports.iter().copied()
    }

    fn add_ports(&mut self, host: (u16, Ipv4Addr), external: Ipv4Addr) {
        let known = self.external.entry(host).or_insert(External::Ports(external));
        if matches!(*known, External::Ports(other) if other != external) {
            *known = External::Several;
        }
    }

    /// [`natgate_payload::Ports::counterpart`].
    pub(super) fn counterpart(
        &self,
        (engine, host): (&Engine, Host<'_>),
        flow: &Endpoints,
        from: Side,
        address: Ipv4Addr,
    ) -> Option<Counterpart> {
        let one_to_one = |address| Some(Counterpart { address, is_one_to_one: true });
        let SocketAddr::V4(_) = flow.internal else { return None };
        let external = |own| self.external.get(&(flow.realm, own));
        match from {
            Side::Inside => match host.known_beside(flow, address).and_then(external) {
                Some(External::Whole(external)) => one_to_one(*external),
                Some(External::Ports(external)) => {
                    Some(Counterpart { address: *external, is_one_to_one: false })
                }
                Some(External::Several) => None,
                None => one_to_one(outside(engine, flow.realm, address)?),
            },
            Side::Outside => match self.internal.get(&address) {
                Some((realm, known)) if *realm == flow.realm => {
                    one_to_one(host.address_beside(flow, *known)?)
                }
                Some(_) => None,
                None => one_to_one(inside(engine, flow.realm, address)?),
            },
        }
    }
}

/// The flow of a host behind a tunnel, which the engine knows by its number, with both.
fn with_number(translator: Option<&Translator>, flow: Endpoints) -> Endpoints {
    let SocketAddr::V4(known) = flow.internal else { return flow };
    let name = translator.and_then(|translator| translator.host(flow.realm, *known.ip()));
    match name.and_then(|name| name.inner()) {
        Some(inner) => {
            let internal = SocketAddrV4::new(inner, known.port()).into();
            Endpoints { internal, number: Some(*known.ip()), ..flow }
        }
        None => flow,
    }
}

/// The outside address of a host that the inside knows by another one.
fn outside(engine: &Engine, realm: u16, seen: Ipv4Addr) -> Option<Ipv4Addr> {
    let end = AddressPort::new(seen.to_bits(), 0);
    let rules = engine.rules(realm);
    let real = rules.destination(end, false).filter(|real| *real != end)?;
    (rules.source(real) == Some(end)).then(|| real.address.into())
}

/// The address by which the inside knows an outside host.
fn inside(engine: &Engine, realm: u16, real: Ipv4Addr) -> Option<Ipv4Addr> {
    let end = AddressPort::new(real.to_bits(), 0);
    let rules = engine.rules(realm);
    let seen = rules.source(end).filter(|seen| *seen != end)?;
    (rules.destination(seen, false) == Some(end)).then(|| seen.address.into())
}

impl Stage {
    /// True if a packet may be a message of DNS in a datagram.
    pub(super) fn is_message(&self, from: Side, ends: Ends) -> bool {
        let Ends { protocol, source, destination } = ends;
        let is_of = |end: SocketAddrV4| {
            let server = self.servers.get(&(protocol, end)).map(|(kind, _)| *kind);
            server.or_else(|| self.settings.kind(protocol, end.port())) == Some(Kind::Dns)
        };
        let is_answer = from == Side::Outside && self.addresses.ports.contains(&source.port());
        protocol == protocol::UDP && (is_of(source) || is_of(destination) || is_answer)
    }

    /// Takes a datagram through the engine, and then through the framework.
    pub(super) fn take_message(
        &mut self,
        (engine, translator): (&mut Engine, Option<&Translator>),
        arrived: Arrived,
        before: Ends,
        room: &mut Room<'_>,
    ) -> Taken {
        let taken = translate(engine, arrived, room);
        if let Taken::Decided(Verdict::Forward(to), realm) = taken
            && to != arrived.from
            && let Some(after) = Ends::read(room.bytes())
            && let Some(control) = self.message(arrived, (before, after), realm)
        {
            let endpoints = with_number(translator, control.endpoints);
            let control = Control { endpoints, ..control };
            // A datagram always passes.
            let _ = self.edit((engine, translator), arrived, control, room);
        }
        taken
    }

    /// The flow of a datagram with these ends before and behind the engine, and the realm that it
    /// goes to if it goes inside. `None`: the datagram is not translated.
    pub(super) fn message(
        &self,
        arrived: Arrived,
        (before, after): (Ends, Ends),
        realm: u16,
    ) -> Option<Control> {
        let Ends { source, destination, .. } = before;
        let (ends, seen) = match arrived.from {
            Side::Inside => {
                (endpoints(arrived.realm, source, after.source, after.destination), destination)
            }
            Side::Outside => {
                (endpoints(realm, after.destination, destination, source), after.source)
            }
        };
        let endpoints = Endpoints { remote_inside: seen.into(), ..ends };
        let new_flow = NewFlow::Read;
        (before != after).then_some(Control { kind: Kind::Dns, endpoints, new_flow })
    }
}
