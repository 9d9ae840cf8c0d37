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
mod tickets;

use super::{Control, Kind, Stage, seconds};
use doubts::Severed;
use natgate_engine::{AddressPort, AddressRange, Endpoint, Engine, Side, Timestamp};
use natgate_payload::{CopiedHost, Endpoints, Fate, FlowKey, NewFlow};
use natgate_wire::tcp::flags::SYN;
use natgate_wire::{Ipv4, Tcp, protocol};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::time::Duration;

/// Most tickets that wait. A packet that may get one more is dropped.
const MOST_TICKETS: usize = 4096;

/// Most of these of one host inside.
const MOST_OF_HOST: usize = 64;

/// Time without packets after which the framework forgets any flow.
const FORGOTTEN: Duration = Duration::from_secs(7_700);

/// Time without new flows at an external endpoint whose flows keep a slice from moving.
const LEFT_OUT: Duration = Duration::from_secs(60);

/// Beginning of a record with flows. A mapping's record begins with a smaller number.
const FLOWS: [u8; 4] = [0xfe, 0xff, 0xff, 0xff];

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
}

impl Share {
    fn has(&self, address: Ipv4Addr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }
}

/// A host inside: its realm, and its number or address. Hosts of IPv6 with one network are one.
type HostKey = (u16, IpAddr);

fn host_of(ends: &Endpoints) -> HostKey {
    let address = match (ends.number, ends.internal.ip()) {
        (Some(number), _) => number.into(),
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

/// Flows in a record, with their fingerprint.
pub(crate) type Flows<'r> = (u64, &'r [u8]);

/// What a ticket waits for: protocols and external ports of mappings.
pub(crate) type Awaited = (u64, Vec<(u8, Endpoint)>);

/// What the gateways of a node of a pair need besides their flows.
#[derive(Debug, Default)]
pub(super) struct Paired {
    shares: Vec<Share>,
    /// True if the partner's version of the link has no control flows in records.
    lacks_flows: bool,
    /// External endpoints whose connections are refused: of static mappings, or of any if segments
    /// begin mappings.
    severed: HashMap<SocketAddrV4, Severed>,
    /// Connections that pass unread from their SYN on, and the time up to which they are remembered
    /// without a segment of their host. Their numbers are right, so they are in no doubt.
    unread: HashMap<FlowKey, Timestamp>,
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

    fn part(&self, address: Ipv4Addr) -> Part {
        self.share(address).map_or(Part::None, |share| share.part)
    }

    /// True if a packet that may get a ticket has no room.
    fn is_full(&self, ends: &Endpoints) -> bool {
        let of_host = self.of_hosts.get(&host_of(ends)).copied().unwrap_or(0);
        let is_full = self.waits.len() >= MOST_TICKETS || of_host >= MOST_OF_HOST;
        is_full && self.part(*ends.external.ip()) == Part::Owner
    }

    /// A ticket of a host for records. It is the flow's `last` one if the fleet does not have that
    /// yet: the records are written later.
    fn ticket(&mut self, host: HostKey, last: Option<u64>, records: &[(u8, Endpoint)]) -> u64 {
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

/// The flags of a whole segment. `None`: it is none.
fn tcp_flags(packet: &[u8]) -> Option<u8> {
    let ip = Ipv4::new_checked(packet).ok()?;
    let is_tcp = ip.protocol() == protocol::TCP && ip.fragment_offset() == 0;
    is_tcp.then(|| Tcp::new_checked(ip.payload()).map(|header| header.flags()))?
}

fn key_of(protocol: u8, ends: &Endpoints) -> FlowKey {
    (protocol, ends.external, ends.remote)
}

fn end(end: SocketAddrV4) -> Endpoint {
    Endpoint { address: *end.ip(), port: end.port() }
}

/// The fingerprint of a mapping's record with that of its flows.
fn joined(of_mapping: u64, of_flows: u64) -> u64 {
    (of_mapping ^ of_flows.rotate_left(32)).max(1)
}

/// The parts of a mapping's record: that of the mapping alone, and its flows with their
/// fingerprint. `None`: it is damaged.
pub(crate) fn divide(record: &[u8]) -> Option<(&[u8], Option<Flows<'_>>)> {
    let Some(rest) = record.strip_prefix(&FLOWS) else { return Some((record, None)) };
    let (print, rest) = rest.split_first_chunk()?;
    let (mapping, flows) = take_sized(rest)?;
    Some((mapping, Some((u64::from_le_bytes(*print), flows))))
}

/// The fingerprint of a whole record, by that of its mapping.
pub(crate) fn print_with(of_mapping: u64, flows: Option<Flows<'_>>) -> u64 {
    flows.map_or(of_mapping, |(of_flows, _)| joined(of_mapping, of_flows))
}

fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn take_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

impl Stage {
    /// Becomes that of a node of a pair. No connection is read before [`Stage::set_part`].
    pub(crate) fn join_pair(&mut self) {
        self.payloads.track();
        self.paired.get_or_insert_default();
    }

    /// Reads no new flow while the partner's version of the link `lacks` flows in records.
    pub(crate) fn set_version(&mut self, lacks: bool) {
        if let Some(paired) = &mut self.paired {
            paired.lacks_flows = lacks;
        }
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
        let Self { paired: Some(paired), payloads, .. } = self else { return };
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
        doubted.iter().for_each(|(_, number, ends)| payloads.forget(key_of(*number, ends)));
    }

    /// What becomes of a packet of a control flow in a pair. `None`: the packet is dropped.
    pub(super) fn admit_paired(
        &mut self,
        now: Timestamp,
        control: Control,
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
        if paired.is_full(&ends) {
            return None;
        }
        let Some(flags) = tcp_flags(packet) else { return Some(own) };
        let is_open = self.payloads.is_open(protocol::TCP, ends.external, ends.remote);
        paired.replaces = is_known && !is_open && flags & SYN != 0;
        let share = paired.share(*ends.external.ip());
        let doubted = share.and_then(|share| share.doubted);
        let is_doubted = doubted.is_some_and(|since| now.since(since) < FORGOTTEN);
        let severed = paired.severed.get(&ends.external).filter(|_| !is_known);
        let is_severed = severed.is_some_and(|severed| now.since(severed.since) < FORGOTTEN);
        let is_left_out = severed
            .is_some_and(|severed| severed.leaves_out && now.since(severed.since) < LEFT_OUT);
        let is_new = !is_known && control.new_flow == NewFlow::Read;
        let is_unread = paired.unread.contains_key(&key_of(number, &ends));
        let is_strange = is_new && flags & SYN == 0 && !is_unread;
        match share.map_or(Part::None, |share| share.part) {
            _ if is_strange && is_severed => None,
            Part::Partner if is_known => None,
            Part::None | Part::Partner if is_known => Some(control),
            Part::Partner if is_strange && is_doubted => None,
            Part::None | Part::Partner => Some(unread),
            Part::Alone | Part::Owner if is_strange && is_doubted => None,
            Part::Alone | Part::Owner if is_left_out && is_new && !is_unread => None,
            Part::Alone | Part::Owner => Some(own),
        }
    }

    /// Gives the packet in hand a ticket, if it tells of something that the partner has to have
    /// before: a change of its connection, or expectations with these external ports.
    pub(super) fn await_partner(
        &mut self,
        (packet, ends): (&[u8], &Endpoints),
        expectations: &[(u8, Endpoint)],
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
        if is_changed || !expectations.is_empty() {
            // An expectation may be the flow's own mapping, and a message may tell one twice.
            let own = (key.0, end(key.1));
            ticket = Some(paired.ticket(host_of(ends), last, &[expectations, &[own]].concat()));
        }
        // A flow without an answer has no record, and yet may wait for the end of the former one.
        let print = print.or(ticket.filter(|_| key.0 == protocol::TCP).map(|_| 0));
        match print {
            Some(print) => _ = paired.flows.insert(key, (print, ticket.unwrap_or_default())),
            None => _ = paired.flows.remove(&key),
        }
        paired.in_hand = ticket.map(|ticket| (ticket, host_of(ends)));
    }

    /// External ports of mappings whose flows may have changed since the last call. Forgets what is
    /// kept of flows that are no more.
    pub(crate) fn changed_flows(&mut self) -> impl Iterator<Item = (u8, Endpoint)> + use<> {
        let changed: Vec<FlowKey> = self.payloads.take_changed().collect();
        let Self { paired, payloads, .. } = self;
        if let Some(paired) = paired {
            let is_gone = |key: &&FlowKey| payloads.find(key.0, key.1, key.2).is_none();
            changed.iter().filter(is_gone).for_each(|key| _ = paired.flows.remove(key));
        }
        changed.into_iter().map(|(protocol, external, _)| (protocol, end(external)))
    }

    /// Adds the flows of a mapping to its record, which begins at `start` of `out`. Returns the
    /// fingerprint of the whole by that of the mapping. `None`: the mapping has flows, and the
    /// partner takes none.
    pub(crate) fn add_flows(
        &self,
        now: Timestamp,
        (protocol, external): (u8, (Ipv4Addr, u16)),
        (start, of_mapping): (usize, u64),
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let (mut flows, mut of_flows) = (Vec::new(), 0_u64);
        let external = SocketAddrV4::new(external.0, external.1);
        self.payloads.records(seconds(now), (protocol, external), |record, print| {
            put_sized(record, &mut flows);
            of_flows = fold(of_flows, print);
        });
        if flows.is_empty() {
            return Some(of_mapping);
        }
        self.paired.as_ref().filter(|paired| !paired.lacks_flows)?;
        let mapping = out.split_off(start);
        out.extend(FLOWS);
        out.extend(of_flows.to_le_bytes());
        put_sized(&mapping, out);
        out.extend(flows);
        Some(joined(of_mapping, of_flows))
    }

    /// True if a mapping has control flows.
    pub(crate) fn has_flows(&self, (protocol, external): (u8, (Ipv4Addr, u16))) -> bool {
        let external = SocketAddrV4::new(external.0, external.1);
        self.payloads.remotes(protocol, external).next().is_some()
    }

    /// Takes the flows of the record of a mapping that has been copied, in place of those that are
    /// there. Returns false if one cannot be taken: then the mapping has no flow here.
    pub(crate) fn copy_flows(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        (protocol, external): (u8, Endpoint),
        flows: Option<Flows<'_>>,
    ) -> bool {
        self.forget_flows(protocol, external);
        let Some((print, flows)) = flows else { return true };
        let is_taken = self.take_flows(engine, now, (protocol, external), (print, flows)).is_some();
        if !is_taken {
            self.forget_flows(protocol, external);
        }
        is_taken
    }

    fn take_flows(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        (number, external): (u8, Endpoint),
        (print, mut flows): (u64, &[u8]),
    ) -> Option<()> {
        let facts = engine.copy_facts(engine.copy_key(number, external)?)?;
        let (realm, address) = facts.host;
        let place = usize::from(realm).checked_sub(1);
        let config = place.and_then(|place| engine.config().realms.get(place));
        let has_number = config.is_some_and(|config| config.host_bits.is_some());
        let host = CopiedHost { realm, address, has_number };
        let external = SocketAddrV4::new(external.address, external.port);
        let mut sum = 0;
        while !flows.is_empty() {
            let (record, rest) = take_sized(flows)?;
            let Self { payloads, settings, servers, .. } = self;
            let is_wanted = |kind, protocol, ends: &Endpoints| {
                let server = servers.get(&(protocol, ends.external)).map(|(kind, _)| *kind);
                server.or_else(|| settings.kind(protocol, ends.remote.port())) == Some(kind)
            };
            let of = (number, external, host);
            sum = fold(sum, payloads.take_copy(seconds(now), record, of, is_wanted).ok()?);
            flows = rest;
        }
        (sum == print).then_some(())?;
        let port = |end: SocketAddrV4| AddressPort::new(end.ip().to_bits(), end.port());
        for remote in self.payloads.remotes(number, external) {
            engine.doubt_control(number, port(external), port(remote));
        }
        Some(())
    }

    /// Forgets the flows of a mapping.
    pub(crate) fn forget_flows(&mut self, protocol: u8, Endpoint { address, port }: Endpoint) {
        self.payloads.forget_all(protocol, SocketAddrV4::new(address, port));
    }

    /// Forgets what is kept of connections that are no more.
    pub(super) fn sweep_paired(&mut self, now: Timestamp) {
        let Some(paired) = &mut self.paired else { return };
        paired.unread.retain(|_, until| now < *until);
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

/// The fingerprint of flows with one more.
fn fold(sum: u64, print: u64) -> u64 {
    sum.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ print
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(address: Ipv4Addr, host: u32) -> Endpoints {
        let internal = SocketAddrV4::new(Ipv4Addr::from_bits(host), 1).into();
        let (external, remote) = (SocketAddrV4::new(address, 1), SocketAddrV4::new(address, 2));
        Endpoints {
            internal,
            external,
            remote,
            remote_inside: remote.into(),
            realm: 0,
            number: None,
        }
    }

    #[test]
    fn tickets_have_a_limit() {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let ranges = vec![AddressRange { first: address, last: address }];
        let share = Share { ranges, part: Part::Owner, ..Share::default() };
        let mut paired = Paired { shares: vec![share], ..Paired::default() };
        let [one, other] = [1, 2].map(|port| (protocol::TCP, Endpoint { address, port }));
        let host = |number| host_of(&ends(address, number));
        let first = paired.ticket(host(0), None, &[one, one]);
        let last = paired.ticket(host(0), Some(first), &[other, one]);
        assert_eq!(last, first, "in one turn");
        assert_eq!((paired.new.len(), &paired.new[0].1[..]), (1, &[one, other][..]));
        assert_eq!(paired.waits[&first], (2, host(0)));
        paired.new.clear();
        for number in 1..MOST_TICKETS as u32 {
            let of = number / MOST_OF_HOST as u32;
            assert!(!paired.is_full(&ends(address, of)));
            assert!(paired.ticket(host(of), Some(first), &[one]) > first);
            let is_last = number % MOST_OF_HOST as u32 == MOST_OF_HOST as u32 - 1;
            assert_eq!(paired.is_full(&ends(address, of)), is_last);
        }
        assert!(paired.is_full(&ends(address, 1000)), "of all hosts");
        assert!(!paired.is_full(&ends(Ipv4Addr::LOCALHOST, 1000)));
        paired.shares[0].part = Part::Alone;
        assert!(!paired.is_full(&ends(address, 0)));
    }

    #[test]
    fn a_record_is_divided_as_it_was_put_together_and_not_in_part() {
        assert_eq!(divide(b"mapping"), Some((&b"mapping"[..], None)));
        let mut record = FLOWS.to_vec();
        record.extend(7_u64.to_le_bytes());
        put_sized(b"mapping", &mut record);
        put_sized(b"flow", &mut record);
        let (mapping, flows) = divide(&record).expect("whole");
        let (print, flows) = flows.expect("flows");
        assert_eq!((mapping, print), (&b"mapping"[..], 7));
        assert_eq!(take_sized(flows), Some((&b"flow"[..], &b""[..])));
        for len in FLOWS.len()..record.len() - b"....flow".len() {
            assert_eq!(divide(&record[..len]), None, "{len}");
        }
        assert_eq!(print_with(5, None), 5);
        assert_ne!(print_with(5, Some((7, b""))), 5);
        assert_ne!(fold(fold(0, 1), 2), fold(fold(0, 2), 1));
    }
}
