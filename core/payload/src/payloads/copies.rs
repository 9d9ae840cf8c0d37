//! Flows that the partner of a pair of gateways copies while this process runs
//! (`docs/design/pair.md`): which have changed, their records, and copies of the partner's flows.
//!
//! A record is a saved flow behind the present time of its flow. A fingerprint tells two records
//! apart. It covers what the next bytes need, and leaves out deadlines, windows, timestamps and
//! acknowledgments: a copy that lacks these goes on as well. Datagrams of DNS have no records, and
//! neither has a flow that began outside before the host inside has answered: it may be forged.

use super::{Payloads, RestoreError};
use crate::Side;
use crate::expectation::Endpoints;
use crate::flow::{Fate, Flow};
use crate::index::Key;
use crate::kind::Kind;
use crate::reason::Reason;
use crate::saved::Saved;
use crate::stream::segment::{self, Segment};
use crate::stream::work::Pool;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use natgate_wire::tcp::flags::{ACK, RST};
use natgate_wire::{Ipv4, protocol};

/// A flow as it is known outside: IP protocol number, external endpoint, remote endpoint.
pub type FlowKey = (u8, SocketAddrV4, SocketAddrV4);

/// The internal host of a copied flow, as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedHost {
    /// Number of its realm.
    pub realm: u16,
    /// Its address; of a host with a number, the number.
    pub address: Ipv4Addr,
    /// True if the hosts of the realm have numbers.
    pub has_number: bool,
}

/// Most connections with one external endpoint. Their records go over as one, and each may have 100
/// KiB.
const MOST_CONNECTIONS: usize = 128;

/// Most flows of datagrams with one external endpoint. A record of one has some hundred bytes.
const MOST_OF_DATAGRAMS: usize = 1024;

/// A flow that has changed, with the internal endpoint by which the tables of the translator know
/// its host. `None`: the host has an IPv6 address.
type ChangedFlow = (FlowKey, Option<SocketAddrV4>);

/// Number of flows of each internal port, or [`MANY`]: of a port that has had so many at a time.
#[derive(Debug, Default)]
struct PortCounts(Vec<u8>);

const MANY: u8 = u8::MAX;

impl PortCounts {
    fn add(&mut self, port: u16) {
        if self.0.is_empty() {
            self.0.resize(1 << 16, 0);
        }
        let count = &mut self.0[usize::from(port)];
        *count = count.saturating_add(1);
    }

    fn remove(&mut self, port: u16) {
        if let Some(count) = self.0.get_mut(usize::from(port)).filter(|count| **count < MANY) {
            *count = count.saturating_sub(1);
        }
    }

    fn may_have(&self, port: u16) -> bool {
        self.0.get(usize::from(port)).is_some_and(|count| *count > 0)
    }
}

/// Flows with records: the place of each, and its fingerprint; those that have changed, and those
/// that are copies of the other node's.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    flows: BTreeMap<FlowKey, (u32, u64)>,
    ports: PortCounts,
    changed: BTreeSet<ChangedFlow>,
    copies: BTreeSet<FlowKey>,
}

impl Tracking {
    /// A flow has come to a place.
    pub(crate) fn add(&mut self, flow: &Flow, at: u32, pool: &Pool) {
        if has_record(flow.alg.kind(), flow.protocol) && flow.has_host() {
            let before = self.flows.insert(key_of(flow), (at, flow.print(pool)));
            if before.is_none() {
                self.ports.add(flow.endpoints().internal.port());
            }
            self.changed.insert(changed(flow));
        }
    }

    /// The flow at a place has taken a packet. Most packets change nothing that a record has.
    /// Returns false if the host inside has answered, and the record has no place for the flow.
    pub(crate) fn note(&mut self, flow: &Flow, at: u32, pool: &Pool) -> bool {
        let Some((_, known)) = self.flows.get_mut(&key_of(flow)) else {
            let external = flow.endpoints().external;
            let is_full = flow.has_host() && self.is_full(flow.alg.kind(), flow.protocol, external);
            if !is_full {
                self.add(flow, at, pool);
            }
            return !is_full;
        };
        let print = flow.print(pool);
        if core::mem::replace(known, print) != print {
            self.changed.insert(changed(flow));
        }
        true
    }

    /// A flow is no more.
    pub(crate) fn remove(&mut self, flow: &Flow) {
        self.copies.remove(&key_of(flow));
        if self.flows.remove(&key_of(flow)).is_some() {
            self.ports.remove(flow.endpoints().internal.port());
            self.changed.insert(changed(flow));
        }
    }

    /// True if a flow is a copy of the other node's.
    pub(crate) fn is_copy(&self, flow: &Flow) -> bool {
        self.copies.contains(&key_of(flow))
    }

    /// Places and fingerprints of the flows with an external endpoint.
    fn places(&self, number: u8, external: SocketAddrV4) -> impl Iterator<Item = (u32, u64)> + '_ {
        let end = |address, port| SocketAddrV4::new(Ipv4Addr::from_bits(address), port);
        let range = (number, external, end(0, 0))..=(number, external, end(u32::MAX, u16::MAX));
        self.flows.range(range).map(|(_, place)| *place)
    }

    /// True if one more flow of a protocol would make the record of an external endpoint too long.
    pub(crate) fn is_full(&self, kind: Kind, number: u8, external: SocketAddrV4) -> bool {
        let most = if number == protocol::TCP { MOST_CONNECTIONS } else { MOST_OF_DATAGRAMS };
        has_record(kind, number) && self.places(number, external).nth(most - 1).is_some()
    }
}

fn key_of(flow: &Flow) -> FlowKey {
    let Endpoints { external, remote, .. } = flow.endpoints();
    (flow.protocol, external, remote)
}

fn changed(flow: &Flow) -> ChangedFlow {
    (key_of(flow), flow.endpoints().numbered())
}

fn has_record(kind: Kind, number: u8) -> bool {
    kind != Kind::Dns || number == protocol::TCP
}

impl Payloads {
    /// Notes from now on which flows change. All that are there count as changed.
    pub fn track(&mut self) {
        if self.tracking.is_some() {
            return;
        }
        let mut tracking = Tracking::default();
        for (at, flow) in (0..).zip(&self.flows) {
            flow.iter().for_each(|flow| tracking.add(flow, at, &self.pool));
        }
        self.tracking = Some(tracking);
    }

    /// The flows that may have changed, come or ended since the last call, each with the internal
    /// endpoint by which the tables of the translator know its host. `None`: the host has an IPv6
    /// address.
    pub fn take_changed(
        &mut self,
    ) -> impl Iterator<Item = (FlowKey, Option<SocketAddrV4>)> + use<> {
        let changed = self.tracking.as_mut().map(|tracking| core::mem::take(&mut tracking.changed));
        changed.into_iter().flatten()
    }

    /// False if no flow with a record has an internal port.
    pub fn may_have(&self, port: u16) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.ports.may_have(port))
    }

    /// Places and fingerprints of the flows with an external endpoint.
    fn places(&self, number: u8, external: SocketAddrV4) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.tracking.iter().flat_map(move |all| all.places(number, external))
    }

    /// External endpoints of the connections with records, one after the other.
    pub fn connections(&self) -> impl Iterator<Item = SocketAddrV4> + '_ {
        let keys = self.tracking.iter().flat_map(|tracking| tracking.flows.keys());
        keys.filter(|(number, ..)| *number == protocol::TCP).map(|(_, external, _)| *external)
    }

    /// Endpoints of the flows with an external endpoint, in the order of remote endpoints.
    pub fn flows_at(
        &self,
        number: u8,
        external: SocketAddrV4,
    ) -> impl Iterator<Item = Endpoints> + '_ {
        let flows = self.places(number, external);
        flows.filter_map(|(at, _)| Some(self.flows[at as usize].as_ref()?.endpoints()))
    }

    /// Calls `each` with the record of each flow with an external endpoint that `is_its`, and its
    /// fingerprint, in the order of remote endpoints.
    pub fn records(
        &self,
        now: u32,
        (number, external): (u8, SocketAddrV4),
        is_its: impl Fn(&Endpoints) -> bool,
        mut each: impl FnMut(&[u8], u64),
    ) {
        for (at, print) in self.places(number, external) {
            let flow = self.flows[at as usize].as_ref();
            let Some(flow) = flow.filter(|flow| is_its(&flow.endpoints())) else { continue };
            let mut record = Vec::new();
            now.wrapping_add(flow.shift).save(&mut record);
            if let Some(saved) = flow.save(&self.pool, |_| Some(0)) {
                record.extend(saved);
                each(&record, print);
            }
        }
    }

    /// The fingerprint of a flow. `None`: it is not known, or has no record.
    pub fn print(&self, key: FlowKey) -> Option<u64> {
        self.tracking.as_ref()?.flows.get(&key).map(|(_, print)| *print)
    }

    /// Takes the record of a flow of the partner, which has the external endpoint `external` and
    /// the host `host` here, in place of a flow with its endpoints. Returns its fingerprint.
    ///
    /// # Errors
    /// [`RestoreError`]. Then there is no flow with these endpoints.
    pub fn take_copy(
        &mut self,
        now: u32,
        record: &[u8],
        (number, external, host): (u8, SocketAddrV4, CopiedHost),
        wanted: impl FnOnce(Kind, u8, &Endpoints) -> bool,
    ) -> Result<u64, RestoreError> {
        let mut from = record;
        let then = u32::restore(&mut from).ok_or(RestoreError::Damaged)?;
        let flow = Flow::restore(&mut self.pool, from, |_| Some(host.realm));
        let mut flow = flow.ok_or(RestoreError::Damaged)?;
        let ends = flow.endpoints();
        let own = match ends.internal.ip() {
            IpAddr::V4(_) if host.has_number => Some(Some(host.address)),
            IpAddr::V4(address) => (address == host.address).then_some(None),
            IpAddr::V6(_) => host.has_number.then_some(None),
        };
        let is_its = (flow.protocol, ends.external) == (number, external)
            && has_record(flow.alg.kind(), flow.protocol)
            && flow.has_host();
        let Some(own) = own.filter(|_| is_its) else {
            flow.close(&mut self.pool);
            return Err(RestoreError::Damaged);
        };
        flow.settle_in(Endpoints { number: own, ..ends }, then.wrapping_sub(now));
        self.forget((number, external, ends.remote));
        let print = flow.print(&self.pool);
        self.admit(flow, wanted)?;
        if let Some(tracking) = &mut self.tracking {
            tracking.copies.insert((number, external, ends.remote));
        }
        Ok(print)
    }

    /// Forgets a flow.
    pub fn forget(&mut self, (number, external, remote): FlowKey) {
        if let Some(at) = self.index.get(Key::new(number, external, remote)) {
            self.remove(at);
        }
    }

    /// Forgets the flows with an external endpoint that are `its`.
    pub fn forget_those(
        &mut self,
        number: u8,
        external: SocketAddrV4,
        is_its: impl Fn(&Endpoints) -> bool,
    ) {
        let is_its = |at: u32| {
            self.flows[at as usize].as_ref().is_some_and(|flow| is_its(&flow.endpoints()))
        };
        let places = self.places(number, external).map(|(at, _)| at);
        let its: Vec<u32> = places.filter(|at| is_its(*at)).collect();
        its.into_iter().for_each(|at| self.remove(at));
    }

    /// Ends a connection with an external endpoint that has another length outside than inside, or
    /// bytes that only the framework still has, and returns it. Its resets for both hosts are
    /// packets of the framework's own; without room they are not sent. `None`: there is no such
    /// connection.
    pub fn reset_changed(&mut self, external: SocketAddrV4) -> Option<FlowKey> {
        let Self { tracking, flows, pool, .. } = self;
        let resets = |(at, _): (u32, u64)| Some((at, flows[at as usize].as_ref()?.resets(pool)?));
        let mut places = tracking.iter().flat_map(|all| all.places(protocol::TCP, external));
        let found = places.find_map(resets);
        drop(places);
        let (at, resets) = found?;
        for (side, packet) in resets {
            self.outbox.push(side, &packet, |_| ());
        }
        let key = self.flows[at as usize].as_ref().map(key_of);
        self.remove(at);
        key
    }

    /// True if a connection with an external endpoint has another length outside than inside, or
    /// bytes that only the framework still has.
    pub fn has_changed(&self, external: SocketAddrV4) -> bool {
        let Self { tracking, flows, pool, .. } = self;
        let is_changed =
            |at: u32| flows[at as usize].as_ref().is_some_and(|flow| flow.is_changed(pool));
        let mut places = tracking.iter().flat_map(|all| all.places(protocol::TCP, external));
        places.any(|(at, _)| is_changed(at))
    }

    /// Answers a segment, as it is outside, with a reset for its sender (RFC 9293 section
    /// 3.10.7.1). The reset is a packet of the framework's own. A reset gets no answer, and neither
    /// does a segment that acknowledges nothing.
    pub fn refuse(&mut self, from: Side, packet: &[u8]) {
        let Ok(ip) = Ipv4::new_checked(packet) else { return };
        let segment = (ip.protocol() == protocol::TCP && !ip.is_fragment())
            .then(|| Segment::parse(packet))
            .flatten();
        let Some(segment) = segment.filter(|one| one.has(ACK) && !one.has(RST)) else { return };
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let end = |address, at| SocketAddrV4::new(Ipv4Addr::from_bits(address), port(at));
        let (source, destination) = (ip.source(), ip.destination());
        let (source, destination) = (end(source, segment.tcp), end(destination, segment.tcp + 2));
        let reset = segment::reset(destination, source, segment.acknowledgment);
        self.outbox.push(from, &reset, |_| ());
    }

    /// Counts a flow of the partner that is left out, because there is no place for what names it.
    pub fn count_left_out(&mut self, kind: Kind) {
        self.count(kind, Reason::NoFlow);
    }

    /// Counts a segment that was not let through. TCP sends it again.
    pub fn count_dropped(&mut self, kind: Kind) -> Fate {
        self.count(kind, Reason::Dropped);
        Fate::Held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_flows_until_the_last_one_has_gone() {
        let mut counts = PortCounts::default();
        counts.remove(5060);
        assert!(!counts.may_have(5060));
        (0..2).for_each(|_| counts.add(5060));
        assert!(counts.may_have(5060) && !counts.may_have(5061));
        counts.remove(5060);
        assert!(counts.may_have(5060));
        counts.remove(5060);
        assert!(!counts.may_have(5060));
        // Of very many, the number is not known.
        (0..300).for_each(|_| counts.add(u16::MAX));
        (0..300).for_each(|_| counts.remove(u16::MAX));
        assert!(counts.may_have(u16::MAX));
    }
}
