//! Control flows that messages of other control flows name: the connections of H.323, at any ports.
//!
//! A server is one of the two hosts of the flow that named it. An entry lasts for the time that the
//! protocol gave it, and as long as a flow that began within this time.
//!
//! Hosts behind several B4s may have one address. So a host with a number has its number here in
//! place of its address.
//!
//! In a pair of gateways an entry goes to the partner in the record of a mapping: that of the
//! external endpoint of a server inside; for a server outside that of the flow that named it, and
//! of each flow to it.

use super::paired::MappingEnds;
use super::{Ends, paired};
use natgate_payload::{Endpoints, FurtherFlow, Kind, Side};
use natgate_wire::protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Most entries of a worker.
const MOST: usize = 4096;

/// Most entries of an internal address, of each map.
const MOST_OF_HOST: usize = 64;

/// Longest time of an entry of another process, seconds: that of a registration.
const LONGEST: u32 = 3600;

/// Seconds between two searches for entries whose time has passed.
const PAUSE: u32 = 10;

/// A server inside.
#[derive(Clone, Copy, Debug)]
struct Inside {
    kind: Kind,
    /// The host's own address, and its number.
    host: (Ipv4Addr, Option<Ipv4Addr>),
    external: SocketAddrV4,
    remote: Ipv4Addr,
    until: u32,
}

/// Internal endpoint and realm of a server inside.
type InsideKey = (SocketAddrV4, u16);

/// Client, server and realm of an entry of a server outside.
type OutsideKey = (Ipv4Addr, SocketAddrV4, u16);

/// A server outside.
#[derive(Clone, Copy, Debug)]
struct Outside {
    kind: Kind,
    until: u32,
    /// The mapping of the flow that named it last, in a pair.
    named_by: Option<MappingEnds>,
}

/// The server inside of a packet from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) realm: u16,
    /// Its endpoint, and the number of its host.
    pub(super) internal: SocketAddrV4,
    pub(super) number: Option<Ipv4Addr>,
}

/// An entry, as it goes over to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) kind: Kind,
    pub(super) realm: u16,
    /// The host's own address, and its number.
    pub(super) host: Ipv4Addr,
    pub(super) number: Option<Ipv4Addr>,
    /// Port of a server inside.
    pub(super) port: u16,
    /// External endpoint of a server inside. `None`: the server is outside.
    pub(super) external: Option<SocketAddrV4>,
    /// The server outside; for one inside only the address counts.
    pub(super) remote: SocketAddrV4,
    /// End of the time, seconds.
    pub(super) until: u32,
}

impl Carried {
    /// A flow like that which named the entry, and the entry.
    fn parts(&self) -> (Endpoints, FurtherFlow) {
        let Self { realm, host, number, port, external, remote, .. } = *self;
        let internal = SocketAddrV4::new(host, port).into();
        let remote_inside = remote.into();
        let end = external.unwrap_or(remote);
        let flow = Endpoints { internal, external: end, remote, remote_inside, realm, number };
        let server = if external.is_some() { Side::Inside } else { Side::Outside };
        (flow, FurtherFlow { server, end, internal })
    }
}

/// The entries of a worker.
#[derive(Debug, Default)]
pub(super) struct FurtherFlows {
    /// Servers inside.
    inside: BTreeMap<InsideKey, Inside>,
    /// Their keys, by their external endpoints.
    external: BTreeMap<SocketAddrV4, InsideKey>,
    outside: BTreeMap<OutsideKey, Outside>,
    /// The same keys, by server, client and realm.
    servers: BTreeSet<(SocketAddrV4, Ipv4Addr, u16)>,
    next_search: u32,
    has_changed: bool,
    /// True if a message has named a server that was not known.
    has_named: bool,
    /// In a pair, the mappings whose records have other entries. `None`: the node is alone.
    changed: Option<BTreeSet<MappingEnds>>,
}

impl FurtherFlows {
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_empty()
    }

    /// The ports of the servers, inside and outside.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        let inside =
            self.inside.iter().flat_map(|((end, _), one)| [end.port(), one.external.port()]);
        inside.chain(self.outside.keys().map(|(_, end, _)| end.port()))
    }

    /// True if the ports have changed since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// True if a message has named a server that was not known, since the last call.
    pub(super) fn take_named(&mut self) -> bool {
        std::mem::take(&mut self.has_named)
    }

    /// Notes from now on which records change.
    pub(super) fn track(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Mappings whose records have other entries since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<MappingEnds> {
        self.changed.as_mut().map_or_else(BTreeSet::new, std::mem::take)
    }

    /// Adds a flow that a message of `flow` names, or renews it. `flow` is of a protocol. False:
    /// there is no room.
    pub(super) fn add(
        &mut self,
        (kind, protocol): (Kind, u8),
        flow: &Endpoints,
        further: &FurtherFlow,
        until: u32,
    ) -> bool {
        let SocketAddr::V4(end) = further.internal else { return false };
        let Some(internal) = of_host(flow, further.internal) else { return false };
        let (realm, host) = (flow.realm, *internal.ip());
        let at = |port| (SocketAddrV4::new(host, port), 0);
        let is_full = self.inside.len() + self.outside.len() >= MOST;
        match further.server {
            Side::Inside => {
                let key = (internal, realm);
                let old = self.inside.get(&key).copied();
                let of_host = self.inside.range(at(0)..=(at(u16::MAX).0, u16::MAX));
                if old.is_none() && (is_full || of_host.count() >= MOST_OF_HOST) {
                    return false;
                }
                let (external, remote) = (further.end, *flow.remote.ip());
                let is_new = old.is_none_or(|old| old.external != external);
                (self.has_changed, self.has_named) =
                    (self.has_changed | is_new, self.has_named | is_new);
                let mut until = until;
                if let Some(old) = old {
                    // A call to another host does not take the place of the registration.
                    if old.remote != remote && old.until > until {
                        return true;
                    }
                    until = until.max(old.until);
                    self.external.remove(&old.external);
                }
                if let Some(other) = self.external.insert(external, key) {
                    self.inside.remove(&other);
                }
                let host = (*end.ip(), flow.number);
                self.inside.insert(key, Inside { kind, host, external, remote, until });
                if let Some(changed) = &mut self.changed {
                    changed.insert(mapping(protocol::TCP, external, internal));
                }
            }
            Side::Outside => {
                let key = (host, further.end, realm);
                let (least, most) = ends();
                let of_host = self.outside.range((host, least, 0)..=(host, most, u16::MAX));
                let is_new = !self.outside.contains_key(&key);
                if is_new && (is_full || of_host.count() >= MOST_OF_HOST) {
                    return false;
                }
                let own = flow.numbered().filter(|_| self.changed.is_some());
                let named_by = own.map(|own| mapping(protocol, flow.external, own));
                self.outside.insert(key, Outside { kind, until, named_by });
                self.servers.insert((further.end, host, realm));
                (self.has_changed, self.has_named) =
                    (self.has_changed | is_new, self.has_named | is_new);
                if let Some(changed) = &mut self.changed {
                    changed.extend(named_by);
                }
            }
        }
        true
    }

    /// All entries, for another process. A client's own address is not known here: an entry of one
    /// with a number has none.
    pub(super) fn carried(&self) -> impl Iterator<Item = Carried> + '_ {
        let inside = self.inside.iter().map(|(key, one)| carried_inside(key, one));
        inside.chain(self.outside.iter().map(|(key, one)| carried_outside(key, one)))
    }

    /// The entries that go to the partner in the record of a mapping, which has these control
    /// flows.
    pub(super) fn of_mapping(
        &self,
        (number, external, internal): MappingEnds,
        flows: impl Iterator<Item = Endpoints>,
    ) -> impl Iterator<Item = Carried> + '_ {
        let inside = self.inside_of((number, external, internal));
        let inside = inside.and_then(|key| self.inside.get_key_value(&key));
        let inside = inside.map(|(key, one)| carried_inside(key, one));
        let key = |flow: Endpoints| Some((*flow.numbered()?.ip(), flow.remote, flow.realm));
        let of_flows = flows.filter(|_| number == protocol::TCP).filter_map(key);
        let mut keys: BTreeSet<OutsideKey> =
            of_flows.filter(|key| self.outside.contains_key(key)).collect();
        if let Some(internal) = internal {
            let (host, (least, most)) = (internal.address, ends());
            let of_host = self.outside.range((host, least, 0)..=(host, most, u16::MAX));
            let named =
                of_host.filter(|(_, one)| one.named_by == Some((number, external, Some(internal))));
            keys.extend(named.map(|(key, _)| *key));
        }
        let outside = keys.into_iter().filter_map(|key| self.outside.get_key_value(&key));
        inside.into_iter().chain(outside.map(|(key, one)| carried_outside(key, one)))
    }

    /// The server inside that a mapping leads to.
    fn inside_of(&self, (number, external, internal): MappingEnds) -> Option<InsideKey> {
        let external = SocketAddrV4::new(external.address, external.port);
        let key = self.external.get(&external).filter(|_| number == protocol::TCP);
        let is_its =
            |key: &InsideKey| internal.is_none_or(|internal| paired::end(key.0) == internal);
        key.copied().filter(is_its)
    }

    /// Takes an entry of another process.
    pub(super) fn adopt(&mut self, carried: &Carried, now: u32) {
        let (flow, further) = carried.parts();
        let until = carried.until.min(now.saturating_add(LONGEST));
        // Without room, the flow passes unread.
        self.add((carried.kind, protocol::TCP), &flow, &further, until);
    }

    /// Takes an entry from the record of a mapping of the partner. Returns false without room. That
    /// of a server inside has none if this node has the server at an address that `is_own`: it
    /// reads the server's connections now.
    pub(super) fn copy(
        &mut self,
        carried: &Carried,
        mapping: MappingEnds,
        now: u32,
        is_own: impl Fn(Ipv4Addr) -> bool,
    ) -> bool {
        let (flow, further) = carried.parts();
        let until = carried.until.min(now.saturating_add(LONGEST));
        let internal = of_host(&flow, further.internal);
        if let (Side::Inside, Some(internal)) = (further.server, internal) {
            let known = self.inside.get(&(internal, flow.realm)).map(|one| one.external);
            if known.is_some_and(|known| known != further.end && is_own(*known.ip())) {
                return false;
            }
            // The record is right, whatever else this node knows of the server.
            self.remove_inside((internal, flow.realm));
        }
        // The partner has it already.
        let (changed, has_named) = (self.changed.take(), self.has_named);
        let is_taken = self.add((carried.kind, mapping.0), &flow, &further, until);
        (self.changed, self.has_named) = (changed, has_named);
        let key = internal.map(|internal| (*internal.ip(), further.end, flow.realm));
        if let Some(one) = key.and_then(|key| self.outside.get_mut(&key)) {
            one.named_by = Some(mapping);
        }
        is_taken
    }

    /// Forgets the server inside that a mapping leads to.
    pub(super) fn forget_server(&mut self, mapping: MappingEnds) {
        if let Some(key) = self.inside_of(mapping) {
            self.remove_inside(key);
        }
    }

    /// Forgets the entries of a mapping whose record is not taken.
    pub(super) fn forget_those_of(&mut self, mapping: MappingEnds) {
        self.forget_server(mapping);
        let (.., internal) = mapping;
        let Some(host) = internal.map(|internal| internal.address) else { return };
        let (least, most) = ends();
        let of_host = self.outside.range((host, least, 0)..=(host, most, u16::MAX));
        let named = of_host.filter(|(_, one)| one.named_by == Some(mapping));
        let named: Vec<OutsideKey> = named.map(|(key, _)| *key).collect();
        for (client, server, realm) in named {
            self.outside.remove(&(client, server, realm));
            self.servers.remove(&(server, client, realm));
        }
    }

    fn remove_inside(&mut self, key: InsideKey) {
        if let Some(one) = self.inside.remove(&key) {
            self.external.remove(&one.external);
        }
    }

    /// Lets the entries of a flow last up to a time at least.
    pub(super) fn prolong(&mut self, protocol: u8, flow: &Endpoints, until: u32) {
        if self.kind(protocol, flow).is_none() {
            return;
        }
        let Some(internal) = flow.numbered() else { return };
        if let Some(one) = self.inside.get_mut(&(internal, flow.realm)) {
            one.until = one.until.max(until);
        }
        let client = (*internal.ip(), flow.remote, flow.realm);
        if let Some(one) = self.outside.get_mut(&client) {
            one.until = one.until.max(until);
        }
    }

    /// Lets the entry of a server inside, which `flow` has named, end with its flows.
    pub(super) fn end(&mut self, flow: &Endpoints, internal: SocketAddr, now: u32) {
        let Some(internal) = of_host(flow, internal) else { return };
        if let Some(one) = self.inside.get_mut(&(internal, flow.realm))
            && one.remote == *flow.remote.ip()
        {
            one.until = one.until.min(now);
            self.next_search = 0;
        }
    }

    /// True if a packet from inside, of whatever realm, may be of a flow. Its source has the
    /// number of its host, if the host has one.
    pub(super) fn may_have(&self, Ends { protocol, source, destination }: Ends) -> bool {
        let client = (*source.ip(), destination);
        let has_outside = || {
            let mut all =
                self.outside.range((client.0, client.1, 0)..=(client.0, client.1, u16::MAX));
            all.next().is_some()
        };
        let has_inside = || self.inside.range((source, 0)..=(source, u16::MAX)).next().is_some();
        protocol == protocol::TCP && (has_inside() || has_outside())
    }

    /// The server inside that a packet from outside goes to.
    pub(super) fn server(&self, ends: Ends) -> Option<Server> {
        if ends.protocol != protocol::TCP {
            return None;
        }
        let (internal, realm) = *self.external.get(&ends.destination)?;
        let one = self.inside.get(&(internal, realm))?;
        let (address, number) = one.host;
        let internal = SocketAddrV4::new(address, internal.port());
        let server = Server { kind: one.kind, realm, internal, number };
        (one.remote == *ends.source.ip()).then_some(server)
    }

    /// True if an external endpoint is one of a server inside.
    pub(super) fn has_server(&self, protocol: u8, external: SocketAddrV4) -> bool {
        protocol == protocol::TCP && self.external.contains_key(&external)
    }

    /// The kind of a flow.
    pub(super) fn kind(&self, protocol: u8, flow: &Endpoints) -> Option<Kind> {
        let internal = flow.numbered().filter(|_| protocol == protocol::TCP)?;
        let inside = self
            .inside
            .get(&(internal, flow.realm))
            .filter(|one| one.external == flow.external && one.remote == *flow.remote.ip());
        let outside = || self.outside.get(&(*internal.ip(), flow.remote, flow.realm));
        inside.map(|one| one.kind).or_else(|| outside().map(|one| one.kind))
    }

    /// True if a server outside is known for a host.
    pub(super) fn is_client(&self, host: Ipv4Addr, server: SocketAddrV4, realm: u16) -> bool {
        self.outside.contains_key(&(host, server, realm))
    }

    /// The kind of a server outside, whichever hosts are its clients.
    pub(super) fn kind_outside(&self, server: SocketAddrV4) -> Option<Kind> {
        let (least, most) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        let mut all = self.servers.range((server, least, 0)..=(server, most, u16::MAX));
        let (server, client, realm) = *all.next()?;
        self.outside.get(&(client, server, realm)).map(|one| one.kind)
    }

    /// Forgets the flows of protocols that are not `on`.
    pub(super) fn keep(&mut self, on: impl Fn(Kind) -> bool) {
        self.keep_inside(|one| on(one.kind));
        self.outside.retain(|_, one| on(one.kind));
        self.forget_gone();
    }

    /// Forgets entries whose time has passed and of which `flows` has none. Those of servers inside
    /// that `is_copied` last on for a time: the other node ends them.
    pub(super) fn expire<I: Iterator<Item = (Kind, u8, Endpoints)>>(
        &mut self,
        now: u32,
        flows: impl FnOnce() -> I,
        (is_copied, time): (impl Fn(SocketAddrV4) -> bool, u32),
    ) {
        if self.is_empty() || now < self.next_search {
            return;
        }
        self.next_search = now + PAUSE;
        for (_, number, flow) in flows() {
            self.prolong(number, &flow, now + 1);
        }
        for one in self.inside.values_mut().filter(|one| is_copied(one.external)) {
            one.until = one.until.max(now + PAUSE + time);
        }
        let before = self.inside.len() + self.outside.len();
        self.keep_inside(|one| one.until > now);
        self.outside.retain(|_, one| one.until > now);
        if self.inside.len() + self.outside.len() != before {
            self.forget_gone();
        }
    }

    /// Forgets servers inside that do not stay. Their mappings have other records without them.
    fn keep_inside(&mut self, stays: impl Fn(&Inside) -> bool) {
        let Self { inside, changed, .. } = self;
        for ((internal, _), one) in inside.extract_if(.., |_, one| !stays(one)) {
            if let Some(changed) = changed {
                changed.insert(mapping(protocol::TCP, one.external, internal));
            }
        }
    }

    /// Forgets keys of entries that are no more.
    fn forget_gone(&mut self) {
        let Self { inside, external, outside, servers, .. } = self;
        external.retain(|_, key| inside.contains_key(key));
        servers.retain(|(server, client, realm)| outside.contains_key(&(*client, *server, *realm)));
        self.has_changed = true;
    }
}

fn carried_inside((internal, realm): &InsideKey, one: &Inside) -> Carried {
    Carried {
        kind: one.kind,
        realm: *realm,
        host: one.host.0,
        number: one.host.1,
        port: internal.port(),
        external: Some(one.external),
        remote: SocketAddrV4::new(one.remote, 0),
        until: one.until,
    }
}

fn carried_outside((host, remote, realm): &OutsideKey, one: &Outside) -> Carried {
    Carried {
        kind: one.kind,
        realm: *realm,
        host: *host,
        number: None,
        port: 0,
        external: None,
        remote: *remote,
        until: one.until,
    }
}

/// The mapping of an external endpoint, and of an internal one as the engine knows it.
fn mapping(protocol: u8, external: SocketAddrV4, internal: SocketAddrV4) -> MappingEnds {
    (protocol, paired::end(external), Some(paired::end(internal)))
}

/// An internal endpoint of a flow's host as the engine knows it.
fn of_host(flow: &Endpoints, internal: SocketAddr) -> Option<SocketAddrV4> {
    Endpoints { internal, ..*flow }.numbered()
}

/// The least endpoint, and the greatest.
fn ends() -> (SocketAddrV4, SocketAddrV4) {
    let end = |address, port| SocketAddrV4::new(address, port);
    (end(Ipv4Addr::UNSPECIFIED, 0), end(Ipv4Addr::BROADCAST, u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> SocketAddrV4 {
        text.parse().unwrap()
    }

    /// A flow of call signalling.
    fn flow() -> Endpoints {
        let (internal, remote) = (end("10.0.0.5:40000"), end("198.51.100.2:1720"));
        let (external, remote_inside) = (end("203.0.113.1:50000"), remote.into());
        let (internal, number) = (internal.into(), None);
        Endpoints { internal, external, remote, remote_inside, realm: 3, number }
    }

    fn inside(port: u16) -> FurtherFlow {
        let internal = SocketAddr::new(flow().internal.ip(), port);
        FurtherFlow { server: Side::Inside, end: end(&format!("203.0.113.1:{port}")), internal }
    }

    fn outside(port: u16) -> FurtherFlow {
        let end = end(&format!("198.51.100.2:{port}"));
        FurtherFlow { server: Side::Outside, end, internal: flow().internal }
    }

    /// No entry is a copy.
    fn alone() -> (fn(SocketAddrV4) -> bool, u32) {
        (|_| false, 0)
    }

    fn tcp(source: &str, destination: &str) -> Ends {
        Ends { protocol: protocol::TCP, source: end(source), destination: end(destination) }
    }

    #[test]
    fn a_flow_is_one_between_the_two_hosts() {
        let mut all = FurtherFlows::default();
        assert!(
            all.add((Kind::H323, protocol::TCP), &flow(), &inside(41_000), 10) && all.take_change()
        );
        assert!(all.add((Kind::H323, protocol::TCP), &flow(), &outside(30_000), 10));
        let server = all.server(tcp("198.51.100.2:999", "203.0.113.1:41000"));
        let (internal, number) = (end("10.0.0.5:41000"), None);
        assert_eq!(server, Some(Server { kind: Kind::H323, realm: 3, internal, number }));
        assert_eq!(all.server(tcp("198.51.100.3:999", "203.0.113.1:41000")), None);
        assert!(all.may_have(tcp("10.0.0.5:41000", "198.51.100.2:999")));
        assert!(all.may_have(tcp("10.0.0.5:5", "198.51.100.2:30000")));
        assert!(!all.may_have(tcp("10.0.0.6:5", "198.51.100.2:30000")));
        assert!(!all.may_have(tcp("10.0.0.5:5", "198.51.100.2:30001")));
        let mut other = flow();
        other.remote.set_port(30_000);
        assert_eq!(all.kind(protocol::TCP, &other), Some(Kind::H323));
        assert_eq!(all.kind(protocol::UDP, &other), None);
        other.realm = 0;
        assert_eq!(all.kind(protocol::TCP, &other), None);
    }

    #[test]
    fn an_entry_lasts_for_its_time_and_for_its_flow() {
        let mut all = FurtherFlows::default();
        all.add((Kind::H323, protocol::TCP), &flow(), &inside(41_000), 20);
        all.add((Kind::H323, protocol::TCP), &flow(), &outside(30_000), 20);
        let mut began = flow();
        began.remote.set_port(30_000);
        all.expire(19, std::iter::empty, alone());
        assert_eq!(all.ports().count(), 3);
        all.expire(40, || [(Kind::H323, protocol::TCP, began)].into_iter(), alone());
        assert_eq!(all.ports().collect::<Vec<_>>(), [30_000]);
        assert!(!all.has_server(protocol::TCP, end("203.0.113.1:41000")));
        all.expire(60, std::iter::empty, alone());
        assert!(all.is_empty() && all.take_change());
        all.add((Kind::H323, protocol::TCP), &flow(), &inside(41_000), 99);
        all.keep(|_| false);
        assert!(all.is_empty() && all.external.is_empty());
    }

    #[test]
    fn an_entry_that_ends_lasts_for_its_flow() {
        let mut all = FurtherFlows::default();
        all.add((Kind::H323, protocol::TCP), &flow(), &inside(41_000), 99);
        let end_it = |all: &mut FurtherFlows, remote: &str| {
            let named = Endpoints { remote: end(remote), ..flow() };
            all.end(&named, inside(41_000).internal, 10);
            let mut call = flow();
            (call.internal, call.external) = (inside(41_000).internal, end("203.0.113.1:41000"));
            all.expire(11, || [(Kind::H323, protocol::TCP, call)].into_iter(), alone());
            all.has_server(protocol::TCP, end("203.0.113.1:41000"))
        };
        assert!(end_it(&mut all, "198.51.100.9:1719"), "another gatekeeper");
        assert!(end_it(&mut all, "198.51.100.2:1719"), "a call lasts");
        all.expire(30, std::iter::empty, alone());
        assert!(all.is_empty());
    }

    /// Hosts behind several B4s have one address and one port.
    #[test]
    fn hosts_with_numbers_are_told_apart_by_them() {
        let mut all = FurtherFlows::default();
        let of = |number: u8, external: &str| {
            let number = Some(Ipv4Addr::new(1, 0, 0, number));
            Endpoints { number, external: end(external), ..flow() }
        };
        let (one, other) = (of(1, "203.0.113.1:50000"), of(2, "203.0.113.1:50001"));
        let at = |end: SocketAddrV4| FurtherFlow { end, ..inside(41_000) };
        let ends = [end("203.0.113.1:41000"), end("203.0.113.1:41001")];
        assert!(all.add((Kind::H323, protocol::TCP), &one, &at(ends[0]), 10));
        assert!(all.add((Kind::H323, protocol::TCP), &other, &at(ends[1]), 10));
        assert!(all.add((Kind::H323, protocol::TCP), &one, &outside(30_000), 10));
        for (flow, external) in [(one, ends[0]), (other, ends[1])] {
            let server = all.server(tcp("198.51.100.2:9", &external.to_string())).unwrap();
            assert_eq!((server.internal, server.number), (end("10.0.0.5:41000"), flow.number));
            let called = Endpoints { internal: inside(41_000).internal, external, ..flow };
            assert_eq!(all.kind(protocol::TCP, &called), Some(Kind::H323));
            let crossed = Endpoints { number: None, ..called };
            assert_eq!(all.kind(protocol::TCP, &crossed), None);
            let calling = Endpoints { remote: end("198.51.100.2:30000"), ..flow };
            assert_eq!(all.kind(protocol::TCP, &calling).is_some(), flow == one);
        }
        assert!(all.may_have(tcp("1.0.0.1:5", "198.51.100.2:30000")));
        assert!(!all.may_have(tcp("1.0.0.2:5", "198.51.100.2:30000")));
        assert!(!all.may_have(tcp("10.0.0.5:5", "198.51.100.2:30000")));
        all.end(&one, inside(41_000).internal, 1);
        all.expire(5, std::iter::empty, alone());
        let has = |external| all.has_server(protocol::TCP, external);
        assert_eq!(ends.map(has), [false, true]);
    }

    #[test]
    fn entries_go_over() {
        let mut all = FurtherFlows::default();
        let one = Endpoints { number: Some(Ipv4Addr::new(1, 0, 0, 1)), ..flow() };
        let other = Endpoints { internal: "10.0.0.6:4000".parse().unwrap(), ..flow() };
        for (flow, port) in [(one, 41_000), (other, 41_001)] {
            let internal = SocketAddr::new(flow.internal.ip(), port);
            assert!(all.add(
                (Kind::H323, protocol::TCP),
                &flow,
                &FurtherFlow { internal, ..inside(port) },
                50
            ));
            assert!(all.add((Kind::H323, protocol::TCP), &flow, &outside(port), 60));
        }
        let mut heir = FurtherFlows::default();
        all.carried().for_each(|one| heir.adopt(&one, 0));
        assert_eq!(heir.carried().collect::<Vec<_>>(), all.carried().collect::<Vec<_>>());
        let end = tcp("198.51.100.2:9", "203.0.113.1:41000");
        assert_eq!((heir.server(end), heir.server(end).is_some()), (all.server(end), true));
        assert!(heir.may_have(tcp("1.0.0.1:5", "198.51.100.2:41000")));
        assert!(heir.take_change());
    }

    #[test]
    fn a_host_has_few_entries() {
        let mut all = FurtherFlows::default();
        let added = |all: &mut FurtherFlows, further: fn(u16) -> FurtherFlow| {
            (1..200)
                .filter(|port| all.add((Kind::H323, protocol::TCP), &flow(), &further(*port), 9))
                .count()
        };
        assert_eq!(added(&mut all, inside), 64);
        assert_eq!(added(&mut all, outside), 64);
        // The same ones again.
        assert_eq!(added(&mut all, inside), 64);
    }

    /// The entries of a record.
    fn of(all: &FurtherFlows, mapping: MappingEnds, flows: &[Endpoints]) -> Vec<Carried> {
        all.of_mapping(mapping, flows.iter().copied()).collect()
    }

    #[test]
    fn the_record_of_a_mapping_has_its_entries() {
        let (mut owner, mut partner) = (FurtherFlows::default(), FurtherFlows::default());
        owner.track();
        let own = flow();
        let known = |flow: &Endpoints| flow.numbered().expect("a host of IPv4");
        let named_by = mapping(protocol::UDP, own.external, known(&own));
        assert!(owner.add((Kind::H323, protocol::UDP), &own, &inside(41_000), 50));
        assert!(owner.add((Kind::H323, protocol::UDP), &own, &outside(30_000), 60));
        let waits = mapping(protocol::TCP, end("203.0.113.1:41000"), end("10.0.0.5:41000"));
        assert_eq!(owner.take_changed(), BTreeSet::from([named_by, waits]));
        assert!(owner.take_changed().is_empty());
        let other = mapping(protocol::TCP, own.external, known(&own));
        let to_server = Endpoints { remote: end("198.51.100.2:30000"), ..own };
        for (mapping, flows, count) in [
            (waits, &[][..], 1),
            ((protocol::UDP, waits.1, waits.2), &[], 0),
            ((protocol::TCP, waits.1, other.2), &[], 0),
            (named_by, &[], 1),
            (other, &[own], 0),
            (other, &[to_server], 1),
        ] {
            assert_eq!(of(&owner, mapping, flows).len(), count, "{mapping:?}");
        }
        let records = [(waits, of(&owner, waits, &[])), (named_by, of(&owner, named_by, &[]))];
        for (mapping, entries) in &records {
            for entry in entries {
                assert!((0..2).all(|_| partner.copy(entry, *mapping, 0, |_| false)));
            }
            assert_eq!(of(&partner, *mapping, &[]), *entries);
        }
        let sorted = |all: &FurtherFlows| all.carried().collect::<Vec<_>>();
        assert_eq!(sorted(&partner), sorted(&owner));
        assert_eq!(partner.kind_outside(to_server.remote), Some(Kind::H323));
        assert_eq!(partner.kind_outside(own.remote), None);
        // Only a server inside lasts on at the partner, as long as its mapping does.
        let is_copied = |external| external == end("203.0.113.1:41000");
        partner.expire(1000, std::iter::empty, (is_copied, 120));
        assert_eq!(sorted(&partner)[0].until, 1000 + PAUSE + 120);
        assert_eq!((partner.kind_outside(to_server.remote), sorted(&partner).len()), (None, 1));
        // The server of another mapping of a service stays.
        partner.forget_server((waits.0, waits.1, named_by.2));
        assert_eq!(sorted(&partner).len(), 1);
        partner.forget_server(waits);
        assert!(partner.is_empty() && partner.external.is_empty());
        // Its time passes at the owner, and the record of its mapping is another one.
        owner.expire(50, std::iter::empty, alone());
        assert_eq!(
            (owner.take_changed(), of(&owner, waits, &[])),
            (BTreeSet::from([waits]), vec![])
        );
    }

    /// The owner knows which server has an endpoint now. This node reads the connections of its own
    /// slices.
    #[test]
    fn a_copied_entry_takes_the_place_of_another_one_that_is_not_this_nodes_own() {
        let mut all = FurtherFlows::default();
        assert!(all.add((Kind::H323, protocol::TCP), &flow(), &inside(41_000), 90));
        let mut other = FurtherFlows::default();
        let flow = Endpoints { remote: end("198.51.100.9:1720"), ..flow() };
        let further = FurtherFlow { end: end("203.0.113.1:50005"), ..inside(41_000) };
        assert!(other.add((Kind::H323, protocol::TCP), &flow, &further, 20));
        let entry = other.carried().next().expect("an entry");
        let mapping = mapping(protocol::TCP, further.end, end("10.0.0.5:41000"));
        let before: Vec<_> = all.carried().collect();
        assert!(!all.copy(&entry, mapping, 0, |address| address == *flow.external.ip()));
        assert_eq!(all.carried().collect::<Vec<_>>(), before);
        assert!(all.copy(&entry, mapping, 0, |_| false));
        assert_eq!(all.carried().collect::<Vec<_>>(), [entry]);
        assert!(!all.has_server(protocol::TCP, end("203.0.113.1:41000")));
    }
}
