//! Gateways of one node of a pair (`docs/design/pair.md`): control flows go along in the records of
//! their mappings.
//!
//! One node alone reads a connection, the owner of its external address. It lets nothing out that
//! tells of a change before the partner has confirmed the change. So a partner that becomes the
//! owner knows every byte of difference, however the owner ended. What it cannot know it does not
//! let through.
//!
//! A packet that waits has a ticket. The fleet gets the keys whose records the ticket waits for,
//! and says when they have arrived. A packet that has waited too long is dropped: its sender
//! repeats it. If the partner confirms nothing for long, packets go without tickets, and the
//! owner's word to the partner says so before ([`Part::Alone`]).

mod doubts;
mod marks;
mod records;
mod tickets;

use super::tunneled::Host;
use super::{AlgSums, Arrived, Control, Kind, Stage, seconds};
use doubts::Severed;
use marks::Marks;
use natgate_engine::{AddressRange, CopyFacts, Endpoint, Engine, Side, Timestamp};
use natgate_payload::{Endpoints, Fate, FlowKey, NewFlow};
use natgate_wire::tcp::flags::SYN;
use natgate_wire::{Ipv4, Tcp, protocol};
pub(crate) use records::{divide, print_with};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Most tickets that wait. A packet that may get one more is dropped.
const MOST_TICKETS: usize = 4096;

/// Most of these of one host inside.
const MOST_OF_HOST: usize = 64;

/// Time without packets after which the framework forgets any flow.
const FORGOTTEN: Duration = Duration::from_secs(7_700);

/// Time without new flows at an external endpoint whose flows keep a slice from moving.
const LEFT_OUT: Duration = Duration::from_secs(60);

/// States of connections that are kept before those of ended ones are searched for.
const FEW: usize = 64;

/// This node's part in an external address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    /// No node tells the other of connections by the address: none is read.
    #[default]
    None,
    /// The other node decides, or nobody: it alone reads.
    Partner,
    /// This node reads, and waits for nobody.
    Alone,
    /// This node reads, and the partner has everything first.
    Owner,
}

/// Addresses of a slice.
#[derive(Debug, Default)]
struct Share {
    ranges: Vec<AddressRange>,
    part: Part,
    /// Time at which connections may have been on their way whose numbers only a former owner knew.
    doubted: Option<Timestamp>,
    /// The same, if this node took the slice then: flows that it knew are in doubt as well.
    taken: Option<Timestamp>,
    /// Time at which an endpoint with refused connections had no room in the list of those.
    overflowed: Option<Timestamp>,
}

impl Share {
    /// Time since which this node does not know all connections.
    fn doubted(&self) -> Option<Timestamp> {
        self.doubted.max(self.overflowed)
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }
}

/// A subscriber: its realm, and its address or first number. The hosts of a prefix of NAT64 are
/// one, and so are those behind one B4.
pub(super) type HostKey = (u16, IpAddr);

/// No subscriber.
pub(super) const NOBODY: HostKey = (0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// The subscriber of a flow. A host of IPv6 without a number counts for its network.
pub(super) fn subscriber(engine: &Engine, host: Host<'_>, ends: &Endpoints) -> HostKey {
    let number = host.in_engine(engine, ends.internal).map(|end| *end.ip()).or(ends.number);
    let address = match (number, ends.internal.ip()) {
        (Some(number), _) => engine.subscriber_of((ends.realm, number)).into(),
        (None, IpAddr::V4(address)) => address.into(),
        (None, IpAddr::V6(address)) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    };
    (ends.realm, address)
}

/// A packet that waits, translated: side and realm to send it to.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    host: HostKey,
    since: Timestamp,
    to: (Side, u16),
    packet: Vec<u8>,
}

/// A mapping: its protocol, and its external and internal endpoint. The servers of a service have
/// one external endpoint. `None`: there is one mapping with that.
pub(crate) type MappingEnds = (u8, Endpoint, Option<Endpoint>);

/// The internal endpoint of a mapping.
pub(crate) fn internal_of(facts: &CopyFacts) -> Option<Endpoint> {
    Some(Endpoint { address: facts.host.1, port: facts.port })
}

/// True if a flow with the external endpoint of a mapping is the mapping's. Hosts with numbers
/// share no endpoint.
fn is_of(ends: &Endpoints, internal: Option<Endpoint>) -> bool {
    match (ends.internal, internal) {
        (SocketAddr::V4(own), Some(internal)) if ends.number.is_none() => end(own) == internal,
        _ => true,
    }
}

/// What a ticket waits for.
pub(crate) type Awaited = (u64, Vec<MappingEnds>);

/// What the gateways of a node of a pair need besides their flows.
#[derive(Debug, Default)]
pub(super) struct Paired {
    shares: Vec<Share>,
    /// True if the partner's version of the link has no control flows in records.
    lacks_flows: bool,
    /// External endpoints whose connections are refused: of static mappings, or of any if segments
    /// begin mappings.
    severed: HashMap<SocketAddrV4, Severed>,
    /// Connections that this node has reset, because the partner's version of the link does not
    /// take them. Their segments are answered with resets, until the host inside begins or answers
    /// another one with the same endpoints, or the mapping ends.
    resets: BTreeSet<FlowKey>,
    /// Connections that pass unread from their SYN on.
    unread: Marks,
    /// The state of each connection at its last packet, and its last ticket.
    flows: HashMap<FlowKey, (u64, u64)>,
    tickets: u64,
    /// Tickets that wait, with the number of records that have not arrived; and the number of each
    /// host's tickets.
    waits: BTreeMap<u64, (usize, HostKey)>,
    of_hosts: HashMap<HostKey, usize>,
    /// Tickets that the fleet does not have yet, one after the other.
    new: Vec<Awaited>,
    /// Ticket of the packet in hand, and true if the packet begins a flow in place of an older one,
    /// which the partner may have.
    in_hand: Option<(u64, HostKey)>,
    replaces: bool,
    packets: VecDeque<Waiting>,
    bytes: usize,
}

impl Paired {
    fn share(&self, address: Ipv4Addr) -> Option<&Share> {
        self.shares.iter().find(|share| share.has(address))
    }

    /// True if the other node decides about an address, or nobody does.
    pub(super) fn is_of_partner(&self, address: Ipv4Addr) -> bool {
        self.part(address) == Part::Partner
    }

    /// True if this node reads connections by an address.
    fn is_own(&self, address: Ipv4Addr) -> bool {
        matches!(self.part(address), Part::Alone | Part::Owner)
    }

    /// True if the other node decides about the external endpoint of a connection, and this node
    /// has a copy of the mapping.
    pub(super) fn has_copy_of(&self, engine: &Engine, external: SocketAddrV4) -> bool {
        self.is_of_partner(*external.ip()) && engine.is_mapped(protocol::TCP, end(external))
    }

    fn part(&self, address: Ipv4Addr) -> Part {
        self.share(address).map_or(Part::None, |share| share.part)
    }

    /// True if a connection with an external endpoint was reset.
    fn has_reset(&self, protocol: u8, external: SocketAddrV4) -> bool {
        self.resets.range(keys_at(protocol, external)).next().is_some()
    }

    /// True if a packet of a host that may get a ticket has no room.
    fn is_full(&self, host: HostKey, external: Ipv4Addr) -> bool {
        let of_host = self.of_hosts.get(&host).copied().unwrap_or(0);
        let is_full = self.waits.len() >= MOST_TICKETS || of_host >= MOST_OF_HOST;
        is_full && self.part(external) == Part::Owner
    }

    /// A ticket of a host for records. It is the flow's `last` one if the fleet does not have that
    /// yet: the records are written later.
    fn ticket(&mut self, host: HostKey, last: Option<u64>, records: &[MappingEnds]) -> u64 {
        let first = self.new.first().map(|(ticket, _)| *ticket);
        let place = last.zip(first).and_then(|(last, first)| last.checked_sub(first));
        let place = place.map(|place| place as usize).filter(|place| *place < self.new.len());
        let place = place.unwrap_or_else(|| {
            self.tickets += 1;
            *self.of_hosts.entry(host).or_default() += 1;
            self.new.push((self.tickets, Vec::new()));
            self.new.len() - 1
        });
        let (ticket, awaited) = &mut self.new[place];
        for record in records {
            if !awaited.contains(record) {
                awaited.push(*record);
            }
        }
        self.waits.insert(*ticket, (awaited.len(), host));
        *ticket
    }
}

/// The flags of a segment, or of its first fragment; 0 if it has none. `None`: it is no segment.
fn tcp_flags(packet: &[u8]) -> Option<u8> {
    let ip = Ipv4::new_checked(packet).ok()?;
    let is_tcp = ip.protocol() == protocol::TCP && ip.fragment_offset() == 0;
    is_tcp.then(|| Tcp::new_prefix_checked(ip.payload()).map_or(0, |header| header.flags()))
}

fn key_of(protocol: u8, ends: &Endpoints) -> FlowKey {
    (protocol, ends.external, ends.remote)
}

/// All flows with an external endpoint.
fn keys_at(protocol: u8, external: SocketAddrV4) -> RangeInclusive<FlowKey> {
    let end = |address, port| SocketAddrV4::new(Ipv4Addr::from_bits(address), port);
    (protocol, external, end(0, 0))..=(protocol, external, end(u32::MAX, u16::MAX))
}

pub(super) fn end(end: SocketAddrV4) -> Endpoint {
    Endpoint { address: *end.ip(), port: end.port() }
}

impl Stage {
    /// Becomes that of a node of a pair. No connection is read before [`Stage::set_part`].
    pub(crate) fn join_pair(&mut self) {
        self.payloads.track();
        self.further.track();
        self.paired.get_or_insert_default();
    }

    /// Reads no new flow while the partner's version of the link `lacks` flows in records.
    pub(crate) fn set_version(&mut self, lacks: bool) {
        if let Some(paired) = &mut self.paired {
            paired.lacks_flows = lacks;
        }
    }

    /// Sums over the settings of all gateways.
    pub(crate) fn sums(&self) -> AlgSums {
        self.settings.sums()
    }

    /// True if the partner's version of the link has no control flows in records.
    pub(crate) fn lacks_flows(&self) -> bool {
        self.paired.as_ref().is_some_and(|paired| paired.lacks_flows)
    }

    /// Sets this node's part in the addresses of a slice. `taken`: the time at which this node
    /// became the owner although the former one may have let changes out that this node does not
    /// know. These connections end: their segments are dropped. `told`: the time at which a former
    /// owner did so, which has told all that it knew, or at which the present owner did.
    pub(crate) fn set_part(
        &mut self,
        slice: usize,
        ranges: &[AddressRange],
        part: Part,
        [taken, told]: [Option<Timestamp>; 2],
    ) {
        let Self { paired: Some(paired), payloads, further, .. } = self else { return };
        if paired.shares.len() <= slice {
            paired.shares.resize_with(slice + 1, Share::default);
        }
        let share = &mut paired.shares[slice];
        share.part = part;
        if share.ranges != ranges {
            ranges.clone_into(&mut share.ranges);
        }
        share.doubted = taken.max(told);
        if std::mem::replace(&mut share.taken, taken) == taken {
            return;
        }
        let is_its = |(_, number, ends): &(_, u8, Endpoints)| {
            *number == protocol::TCP && share.has(*ends.external.ip())
        };
        let doubted: Vec<_> = payloads.each().filter(is_its).collect();
        for (_, number, ends) in &doubted {
            payloads.forget(key_of(*number, ends));
            // It is known as one of a gateway as long as its segments are dropped.
            if let Some(taken) = taken {
                further.prolong(*number, ends, seconds(taken.plus(FORGOTTEN)));
            }
        }
        // The former owner may have read a later connection with the same endpoints.
        paired.unread.retain(|(_, external, _), _| !share.has(*external.ip()));
    }

    /// What becomes of a packet of a control flow of a host in a pair. `None`: the packet is
    /// dropped, or answered with a reset.
    pub(super) fn admit_paired(
        &mut self,
        Arrived { now, from, .. }: Arrived,
        (control, host): (Control, HostKey),
        packet: &[u8],
    ) -> Option<Control> {
        let Some(paired) = &mut self.paired else { return Some(control) };
        let ends = control.endpoints;
        let number = Ipv4::new_checked(packet).map_or(0, |ip| ip.protocol());
        let is_known = self.payloads.find(number, ends.external, ends.remote).is_some();
        let unread = Control { new_flow: NewFlow::Off, ..control };
        // Datagrams of DNS have no records.
        let has_record = control.kind != Kind::Dns || number == protocol::TCP;
        let has_copy = is_known || !paired.lacks_flows || !has_record;
        let own = if has_copy { control } else { unread };
        paired.replaces = false;
        if paired.is_full(host, *ends.external.ip()) {
            return None;
        }
        let Some(flags) = tcp_flags(packet) else { return Some(own) };
        let is_open = self.payloads.is_open(protocol::TCP, ends.external, ends.remote);
        paired.replaces = is_known && !is_open && flags & SYN != 0;
        let share = paired.share(*ends.external.ip());
        let doubted = share.and_then(Share::doubted);
        let is_doubted = doubted.is_some_and(|since| now.since(since) < FORGOTTEN);
        let key = key_of(number, &ends);
        // Anybody outside can forge the beginning of a flow.
        let is_new = !self.payloads.has_host(key) && control.new_flow == NewFlow::Read;
        let severed = paired.severed.get(&ends.external).filter(|_| is_new);
        let severed = severed.filter(|severed| now.since(severed.since) < FORGOTTEN);
        let is_left_out = severed
            .is_some_and(|severed| severed.leaves_out && now.since(severed.since) < LEFT_OUT);
        let is_unread = paired.unread.has(&key);
        let is_strange = is_new && flags & SYN == 0 && !is_unread;
        let is_reset = is_strange && paired.resets.contains(&key);
        if is_reset {
            self.payloads.refuse(from, packet);
        }
        match share.map_or(Part::None, |share| share.part) {
            _ if is_reset || is_strange && severed.is_some() => None,
            Part::Partner if is_known => None,
            Part::None | Part::Partner if is_known => Some(control),
            Part::Partner if is_strange && is_doubted => None,
            Part::None | Part::Partner => Some(unread),
            Part::Alone | Part::Owner if is_strange && is_doubted => None,
            Part::Alone | Part::Owner if is_left_out && is_new && !is_unread => None,
            Part::Alone | Part::Owner => Some(own),
        }
    }

    /// Gives the packet in hand, of a flow of a host, a ticket, if it tells of something that the
    /// partner has to have before: a change of its connection, expectations with these external
    /// ports, or further flows that it `names`.
    pub(super) fn await_partner(
        &mut self,
        (packet, ends, host): (&[u8], &Endpoints, HostKey),
        (expectations, names): (&[(u8, Endpoint)], bool),
    ) {
        let Self { paired: Some(paired), payloads, .. } = self else { return };
        if paired.lacks_flows || paired.part(*ends.external.ip()) != Part::Owner {
            return;
        }
        let Ok(ip) = Ipv4::new_checked(packet) else { return };
        let key = key_of(ip.protocol(), ends);
        let print = payloads.print(key).filter(|_| key.0 == protocol::TCP);
        let before = paired.flows.get(&key).copied();
        let is_opening = tcp_flags(packet).is_some_and(|flags| flags & SYN != 0);
        let may_change = !is_opening || paired.replaces;
        let is_news = print.is_some() && before.map(|(print, _)| print) != print;
        let is_changed = is_news && may_change || key.0 == protocol::TCP && paired.replaces;
        let last = before.map(|(_, ticket)| ticket).filter(|last| paired.waits.contains_key(last));
        let mut ticket = last;
        if is_changed || names || !expectations.is_empty() {
            // An expectation may be the flow's own mapping, and a message may tell one twice.
            let own = (key.0, end(key.1));
            let others = expectations.iter().filter(|expected| **expected != own);
            let others = others.map(|(number, external)| (*number, *external, None));
            let own = (own.0, own.1, ends.numbered().map(end));
            let records: Vec<MappingEnds> = others.chain([own]).collect();
            ticket = Some(paired.ticket(host, last, &records));
        }
        // A flow without an answer has no record, and yet may wait for the end of the former one.
        let print = print.or(ticket.filter(|_| key.0 == protocol::TCP).map(|_| 0));
        match print {
            Some(print) => _ = paired.flows.insert(key, (print, ticket.unwrap_or_default())),
            None => _ = paired.flows.remove(&key),
        }
        paired.in_hand = ticket.map(|ticket| (ticket, host));
    }

    /// Mappings whose flows may have changed since the last call. Forgets what is kept of flows
    /// that are no more.
    pub(crate) fn changed_flows(&mut self) -> impl Iterator<Item = MappingEnds> + use<> {
        let changed: Vec<_> = self.payloads.take_changed().collect();
        let Self { paired, payloads, .. } = self;
        if let Some(paired) = paired {
            let keys = changed.iter().map(|(key, _)| key);
            let gone = keys.filter(|key| payloads.find(key.0, key.1, key.2).is_none());
            gone.for_each(|key| _ = paired.flows.remove(key));
        }
        let named = self.further.take_changed();
        let ends = |((protocol, external, _), internal): (FlowKey, Option<SocketAddrV4>)| {
            (protocol, end(external), internal.map(end))
        };
        changed.into_iter().map(ends).chain(named)
    }

    /// Forgets which connections with an external endpoint pass unread: some are the partner's, and
    /// have no copy.
    pub(crate) fn forget_marks(&mut self, protocol: u8, Endpoint { address, port }: Endpoint) {
        if let Some(paired) = &mut self.paired {
            paired.unread.remove_all(protocol, SocketAddrV4::new(address, port));
        }
    }

    /// Forgets the flows of a mapping.
    pub(crate) fn forget_flows(&mut self, (protocol, external, internal): MappingEnds) {
        let external = SocketAddrV4::new(external.address, external.port);
        self.payloads.forget_those(protocol, external, |ends| is_of(ends, internal));
    }

    /// Forgets everything about a mapping that has ended: another host may get its endpoint.
    pub(crate) fn forget_mapping(&mut self, protocol: u8, external: Endpoint) {
        self.forget_flows((protocol, external, None));
        self.forget_server((protocol, external, None));
        let Some(paired) = &mut self.paired else { return };
        let external = SocketAddrV4::new(external.address, external.port);
        paired.unread.remove_all(protocol, external);
        let gone = paired.resets.extract_if(keys_at(protocol, external), |_| true);
        gone.for_each(drop);
    }

    /// Forgets the server inside that a message has named and that a mapping leads to.
    pub(crate) fn forget_server(&mut self, mapping: MappingEnds) {
        self.further.forget_server(mapping);
    }

    /// Forgets what is kept of connections without flows: from now on the gateways do not see which
    /// mappings end.
    pub(super) fn forget_connections(&mut self) {
        if let Some(paired) = &mut self.paired {
            paired.resets.clear();
            paired.unread.retain(|_, _| false);
        }
    }

    /// Forgets what is kept of connections that are no more.
    pub(super) fn sweep_paired(&mut self, now: Timestamp) {
        let Self { paired: Some(paired), payloads, .. } = self else { return };
        if paired.flows.len() > 2 * payloads.flows() + FEW {
            let is_known = |key: &FlowKey| payloads.find(key.0, key.1, key.2).is_some();
            paired.flows.retain(|key, _| is_known(key));
        }
        paired.unread.retain(|_, until| now < until);
        paired.severed.retain(|_, severed| now.since(severed.since) < FORGOTTEN);
    }

    /// Drops a segment of a connection that this node may not read.
    pub(super) fn drop_paired(&mut self, kind: Kind) -> Fate {
        self.payloads.count_dropped(kind)
    }

    /// Has room for this number of flows, and none yet.
    #[cfg(test)]
    pub(crate) fn limit_flows(&mut self, flows: u32) {
        let limits = natgate_payload::Limits { flows, ..Default::default() };
        self.payloads = natgate_payload::Payloads::new(limits, [1; 32]);
    }

    /// Number of control flows.
    #[cfg(test)]
    pub(crate) fn flows(&self) -> usize {
        self.payloads.flows()
    }

    /// Number of connections that are known to pass unread.
    #[cfg(test)]
    pub(crate) fn marks(&self) -> usize {
        self.paired.as_ref().map_or(0, |paired| paired.unread.len())
    }

    /// Knows as many servers of H.323 as possible with which a host may have connections.
    #[cfg(test)]
    pub(crate) fn fill_servers(&mut self, host: Ipv4Addr) {
        let end = SocketAddrV4::new(host, 1720);
        let ends = super::endpoints(0, end, end, end);
        for number in 1..=100 {
            let end = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 200), number);
            let internal = SocketAddrV4::new(host, number).into();
            for server in [Side::Inside, Side::Outside] {
                let further = natgate_payload::FurtherFlow { server, end, internal };
                self.further.add((Kind::H323, protocol::TCP), &ends, &further, 3600);
            }
        }
        self.further.take_change();
    }

    /// True if a server inside is known by an external endpoint.
    #[cfg(test)]
    pub(crate) fn knows_server(&self, external: SocketAddrV4) -> bool {
        self.further.has_server(protocol::TCP, external)
    }

    /// Number of tickets that wait.
    #[cfg(test)]
    pub(crate) fn tickets(&self) -> usize {
        self.paired.as_ref().map_or(0, |paired| paired.waits.len())
    }

    /// True if packets wait, or the fleet has tickets.
    pub(super) fn has_kept(&self) -> bool {
        let paired = self.paired.as_ref();
        paired.is_some_and(|paired| !paired.packets.is_empty() || !paired.waits.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{Config, PoolConfig, Prefix, RealmConfig};

    #[test]
    fn tickets_have_a_limit() {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let ranges = vec![AddressRange { first: address, last: address }];
        let share = Share { ranges, part: Part::Owner, ..Share::default() };
        let mut paired = Paired { shares: vec![share], ..Paired::default() };
        let [one, other] = [1, 2].map(|port| (protocol::TCP, Endpoint { address, port }, None));
        let host = |number: u32| (0, Ipv4Addr::from_bits(number).into());
        let first = paired.ticket(host(0), None, &[one, one]);
        let last = paired.ticket(host(0), Some(first), &[other, one]);
        assert_eq!(last, first, "in one turn");
        assert_eq!((paired.new.len(), &paired.new[0].1[..]), (1, &[one, other][..]));
        assert_eq!(paired.waits[&first], (2, host(0)));
        paired.new.clear();
        for number in 1..MOST_TICKETS as u32 {
            let of = number / MOST_OF_HOST as u32;
            assert!(!paired.is_full(host(of), address));
            assert!(paired.ticket(host(of), Some(first), &[one]) > first);
            let is_last = number % MOST_OF_HOST as u32 == MOST_OF_HOST as u32 - 1;
            assert_eq!(paired.is_full(host(of), address), is_last);
        }
        assert!(paired.is_full(host(1000), address), "of all hosts");
        assert!(!paired.is_full(host(1000), Ipv4Addr::LOCALHOST));
        paired.shares[0].part = Part::Alone;
        assert!(!paired.is_full(host(0), address));
    }

    /// A subscriber has one limit, however many addresses its prefix has.
    #[test]
    fn hosts_of_one_subscriber_count_together() {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let subscribers = vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 0)];
        let realm = RealmConfig { host_bits: Some(8), subscribers, ..RealmConfig::default() };
        let config = Config { pools, realms: vec![realm], ..Config::default() };
        let engine = Engine::new(&config, [7; 32], Timestamp(0)).expect("it is right");
        let of = |internal: SocketAddr, realm, number| {
            let external = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
            let (remote, remote_inside) = (external, external.into());
            let ends = Endpoints { internal, external, remote, remote_inside, realm, number };
            subscriber(&engine, Host::without(&engine, realm), &ends)
        };
        let [one, same, other] = ["10.0.0.1:7", "10.0.0.2:7", "10.0.1.1:7"]
            .map(|end| end.parse::<SocketAddrV4>().expect("an endpoint"));
        assert_ne!(of(one.into(), 0, None), of(same.into(), 0, None), "hosts with addresses");
        let behind = |end: SocketAddrV4| of(one.into(), 1, Some(*end.ip()));
        assert_eq!(behind(one), behind(same), "hosts behind one B4");
        assert_ne!(behind(one), behind(other));
        let ipv6 = |end: &str| of(end.parse().expect("an endpoint"), 1, None);
        assert_eq!(ipv6("[2001:db8::1]:7"), ipv6("[2001:db8::2]:8"));
        assert_ne!(ipv6("[2001:db8::1]:7"), ipv6("[2001:db8:0:1::1]:7"));
    }
}
