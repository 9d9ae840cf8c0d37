//! Mappings of the configuration: static mappings, one way or both, and services of several
//! servers (specification, 3.23, 4.12, 4.18).

use crate::chapters::MappingMarks;
use crate::points::DecisionPoints as _;
use crate::tcp::{Segment, State};
use crate::{Key, Mapping, Model, Packet, has_ports};
use natgate_engine::{
    Affinity, Begun, Config, DropReason, Endpoint, MappingKind, Service, SessionInfo, Side,
    TimeoutSet, Verdict,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// A static mapping, or one server of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StaticEntry {
    pub(crate) realm: u16,
    protocol: Option<u8>,
    pub(crate) internal: (Ipv4Addr, Option<u16>),
    pub(crate) external: (Ipv4Addr, Option<u16>),
    begun: Begun,
    /// For a server: true if it gets new sessions, and the affinity of remote addresses.
    server: Option<(bool, Affinity)>,
}

impl StaticEntry {
    pub(crate) fn is_for(&self, protocol: u8) -> bool {
        self.protocol.is_none_or(|only| only == protocol)
    }
}

/// Choices of the engine that the specification leaves to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hint {
    /// The engine's server for a session, by protocol, external and remote endpoint.
    servers: BTreeMap<(u8, Endpoint, Endpoint), Endpoint>,
    /// The engine's reason to drop the packet, if it did.
    drop: Option<DropReason>,
}

/// Servers that are down: places of the service and the server in the configuration.
pub(crate) type Down = BTreeSet<(usize, usize)>;

/// All static mappings and servers.
pub(crate) fn fixed(config: &Config, down: &Down) -> Vec<StaticEntry> {
    let statics = config.statics.iter().map(|one| StaticEntry {
        realm: one.realm,
        protocol: one.protocol,
        internal: one.internal,
        external: one.external,
        begun: one.begun,
        server: None,
    });
    let services = config.services.iter().enumerate().flat_map(|(place, service)| {
        let open = open_servers(service, |server| down.contains(&(place, server)));
        service.servers.iter().zip(open).map(move |(server, is_open)| StaticEntry {
            realm: service.realm,
            protocol: service.protocol,
            internal: (server.internal.0, Some(server.internal.1)),
            external: (service.external.0, Some(service.external.1)),
            begun: Begun::Outside,
            server: Some((is_open, service.affinity)),
        })
    });
    statics.chain(services).collect()
}

/// 4.12, 4.26: for each server of a service, true if it gets new sessions.
fn open_servers(service: &Service, is_down: impl Fn(usize) -> bool) -> Vec<bool> {
    let servers = service.servers.iter().enumerate();
    let willing = servers.map(|(number, server)| {
        (server.weight > 0 && !server.draining && !is_down(number), server.backup)
    });
    let willing: Vec<(bool, bool)> = willing.collect();
    let has_usual = willing.iter().any(|&(is_willing, is_backup)| is_willing && !is_backup);
    let open = willing.iter().map(|&(is_willing, is_backup)| is_willing && is_backup != has_usual);
    open.collect()
}

impl Model {
    /// 4.26: marks a server of a service as up or down, by their places in the configuration.
    pub fn mark_server(&mut self, service: usize, server: usize, is_up: bool) {
        match is_up {
            true => self.chapters.down.remove(&(service, server)),
            false => self.chapters.down.insert((service, server)),
        };
        self.chapters.fixed = fixed(&self.config, &self.chapters.down);
        let Some(service) = self.config.services.get(service) else { return };
        let (address, port) = service.external;
        let external = Endpoint { address, port };
        self.chapters.bound.retain(|(_, other, _), _| *other != external);
    }

    /// Makes static mappings with ports that do not exist yet.
    pub(crate) fn make_statics(&mut self) {
        for fixed in self.chapters.fixed.clone() {
            let (Some(inside), Some(outside)) = (fixed.internal.1, fixed.external.1) else {
                continue;
            };
            let internal = Endpoint { address: fixed.internal.0, port: inside };
            let external = Endpoint { address: fixed.external.0, port: outside };
            for protocol in [TCP, UDP, ICMP, DCCP] {
                if fixed.is_for(protocol) {
                    let key = self.fixed(&fixed, protocol, internal, external, None);
                    self.mappings.get_mut(&key).expect("just made").marks.permanent = true;
                }
            }
        }
    }

    /// 5.17: true if no protocol without ports may use an address, because a static mapping takes
    /// it for one of them.
    pub(crate) fn is_kept(&self, protocol: u8, address: Ipv4Addr) -> bool {
        let mut statics = self.config.statics.iter();
        !has_ports(protocol)
            && statics.any(|fixed| {
                fixed.external == (address, None)
                    && fixed.protocol.is_none_or(|one| !has_ports(one))
            })
    }

    /// Tells the model the servers of the engine's present sessions.
    pub fn hint_servers(&mut self, sessions: impl Iterator<Item = SessionInfo>) {
        let served = self.chapters.fixed.iter().filter(|fixed| fixed.server.is_some());
        let served: BTreeSet<Endpoint> = served
            .filter_map(|fixed| {
                let (address, port) = fixed.external;
                Some(Endpoint { address, port: port? })
            })
            .collect();
        self.chapters.hint.servers.clear();
        let servers = sessions.filter(|one| served.contains(&one.mapping.external)).map(|one| {
            ((one.mapping.protocol, one.mapping.external, one.remote), one.mapping.internal)
        });
        self.chapters.hint.servers.extend(servers);
    }

    /// Tells the model the engine's verdict about the next packet.
    pub fn hint_verdict(&mut self, verdict: Verdict) {
        self.chapters.hint.drop = match verdict {
            Verdict::Drop(reason) => Some(reason),
            _ => None,
        };
    }

    /// The static mapping for sessions that an internal endpoint begins, and its external endpoint.
    pub(crate) fn static_external(
        &self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
    ) -> Option<(StaticEntry, Endpoint)> {
        let statics = self.chapters.fixed.iter().filter(|fixed| fixed.begun != Begun::Outside);
        let statics = statics.filter(|fixed| fixed.realm == realm);
        statics.filter(|fixed| fixed.is_for(protocol)).find_map(|fixed| {
            let (address, port) = fixed.internal;
            let meant = address == internal.address
                && port.is_none_or(|port| has_ports(protocol) && port == internal.port);
            let port = fixed.external.1.unwrap_or(internal.port);
            meant.then_some((*fixed, Endpoint { address: fixed.external.0, port }))
        })
    }

    /// The static mappings of an external endpoint, with their internal endpoints. Several are
    /// servers.
    pub(crate) fn static_internals(
        &self,
        protocol: u8,
        external: Endpoint,
    ) -> Vec<(StaticEntry, Endpoint)> {
        let statics = self.chapters.fixed.iter().filter(|fixed| fixed.is_for(protocol));
        let meant = statics.filter(|fixed| {
            let (address, port) = fixed.external;
            address == external.address
                && port.is_none_or(|port| has_ports(protocol) && port == external.port)
        });
        let internal = |fixed: &StaticEntry| {
            let port = fixed.internal.1.unwrap_or(external.port);
            (*fixed, Endpoint { address: fixed.internal.0, port })
        };
        meant.map(internal).collect()
    }

    /// The static mapping between two endpoints. A whole mapped address has as many as ports, and
    /// each is added when it is first looked up.
    pub(crate) fn fixed(
        &mut self,
        fixed: &StaticEntry,
        protocol: u8,
        internal: Endpoint,
        external: Endpoint,
        remote: Option<Endpoint>,
    ) -> Key {
        let beside = (fixed.begun == Begun::Outside).then_some(external); // 3.23
        let key = Key { protocol, realm: fixed.realm, internal, remote, beside, host_bits: 0 };
        self.mappings.entry(key).or_insert(Mapping {
            external,
            kind: MappingKind::Static,
            created: self.chapters.started,
            timeouts: TimeoutSet::default(),
            sessions: BTreeMap::new(),
            marks: MappingMarks::default(),
        });
        key
    }

    /// 4.18: true if only the inside begins sessions of a static mapping.
    pub(crate) fn is_outbound_only(&self, key: Key, external: Endpoint) -> bool {
        let fixed = self.static_internals(key.protocol, external);
        fixed.iter().any(|(fixed, _)| fixed.begun == Begun::Inside)
    }

    /// 4.27: ends the closed session of a server that takes no new sessions, if the packet opens a
    /// connection in its place.
    pub(crate) fn end_closed(
        &mut self,
        packet: &Packet,
        external: Endpoint,
        remote: Endpoint,
    ) -> bool {
        let protocol = packet.protocol();
        let servers = self.static_internals(protocol, external);
        let closed = servers.iter().filter(|(fixed, _)| fixed.server.is_some_and(|one| !one.0));
        let closed: Vec<Endpoint> = closed.map(|(_, internal)| *internal).collect();
        let opens = Segment::of(&packet.bytes).is_some_and(Segment::syn);
        let Some(key) = self.by_external(protocol, external, remote).filter(|_| opens) else {
            return false;
        };
        let mapping = self.mappings.get_mut(&key).expect("looked up");
        let is_over = mapping
            .sessions
            .get(&remote)
            .is_some_and(|session| session.connection.state == Some(State::Closed));
        let is_closed = mapping.kind == MappingKind::Static && closed.contains(&key.internal);
        if is_over && is_closed {
            let id = mapping.id(key);
            let ended = mapping.sessions.remove(&remote).expect("it is over").id(id, remote);
            self.raise_ended(vec![ended], self.now);
            self.replace_firsts(); // 3.35
        }
        is_over && is_closed
    }

    /// 4.12: the mapping for a new session from outside. `key` is the mapping of the endpoint.
    pub(crate) fn server_for(
        &mut self,
        key: Key,
        external: Endpoint,
        (remote, seen): (Endpoint, Endpoint),
    ) -> Option<Key> {
        let servers = self.static_internals(key.protocol, external);
        let Some((_, affinity)) = servers.first().and_then(|(fixed, _)| fixed.server) else {
            return Some(key);
        };
        let service = (key.protocol, external, remote.address);
        let bound =
            self.chapters.bound.get(&service).filter(|_| affinity == Affinity::Address).copied();
        let mut open: Vec<Endpoint> = servers
            .iter()
            .filter(|(fixed, _)| fixed.server.is_some_and(|(open, _)| open))
            .map(|(_, internal)| *internal)
            .filter(|internal| bound.is_none_or(|bound| bound == *internal))
            .collect();
        if open.is_empty() {
            return None;
        }
        let key_of = |internal| Key { internal, ..key };
        let told = self.chapters.hint.servers.get(&(key.protocol, external, remote)).copied();
        // If the engine refused the packet, it chose a server that refuses for that reason: a later
        // packet may have got another server.
        let (mut refuser, mut willing) = (None, None);
        let drop = self.chapters.hint.drop;
        for internal in open.iter().filter(|_| drop.is_some()) {
            let key = key_of(*internal);
            let dropped = self.drops_session(key, seen).then_some(DropReason::Rule);
            let unseen = self.check_seen(key, remote, seen).err();
            let room = || self.room_for_session(key, remote, Side::Outside).err();
            let refused = dropped.or(unseen);
            // Or the engine's reason has nothing to do with the server, and this server would not
            // refuse the packet.
            willing = willing.or((refused.is_none() && told.is_none()).then_some(*internal));
            if refused.or_else(room) == drop {
                refuser = Some(*internal);
                break;
            }
        }
        let refuser = refuser.or(willing);
        if let Some(chosen) = refuser.or(told) {
            if !open.contains(&chosen) {
                let illegal = format!("{chosen:?} got a session, open were {open:?}");
                self.made.illegal = Some(illegal);
            }
            open = vec![chosen];
        }
        let chosen = open[0];
        if told.is_some() && refuser.is_none() {
            self.chapters.bound.insert(service, chosen);
        }
        Some(key_of(chosen))
    }

    /// 3.36: true if another mapping has a session with the remote endpoint at one of the
    /// endpoints, so that replies would be ambiguous.
    pub(crate) fn is_ambiguous(&self, key: Key, remote: Endpoint) -> bool {
        let external = self.mappings.get(&key).map(|mapping| mapping.external);
        self.mappings.iter().any(|(other, mapping)| {
            *other != key
                && other.protocol == key.protocol
                && mapping.sessions.contains_key(&remote)
                && ((other.beside.is_some() || key.beside.is_some())
                    && (other.realm, other.internal) == (key.realm, key.internal)
                    || has_ports(key.protocol) && Some(mapping.external) == external)
        })
    }
}
