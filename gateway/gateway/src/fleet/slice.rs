//! A slice at one node: its addresses in the engine, and the stream of its records.

use super::inbound::Inbound;
use super::refusal::RefusedKey;
use super::state::{Answer, State};
use super::status::{SliceChange, SliceStatus};
use super::young::Young;
use crate::pcp::Told;
use natgate_engine::{AddressRange, Arithmetic, Duty, Engine, Timestamp};
use natgate_ipv6::CopiedHosts;
use natgate_pair::{
    Epoch, Message, Node, Ownership, PACKET_HEAD, Present, RECORD_HEAD, Receiver, Role, Sender,
    Stream, StreamId, Written, write_ask_refused, write_state,
};
use natgate_wire::protocol;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Age from which a mapping without a connection is copied.
pub(super) const YOUNG: Duration = Duration::from_secs(2);

/// Interval of the owner's state, and of digests.
const STATE: Duration = Duration::from_secs(1);
const DIGESTS: Duration = Duration::from_secs(30);

/// Interval of states while the partner has not heard of the last loss of requested mappings.
const SOON: Duration = Duration::from_millis(200);

/// Age of the owner's last word up to which a whole copy counts as present.
const PRESENT: Duration = Duration::from_secs(3);

/// Keys that a first copy, or a search for strangers, looks at in one turn.
const KEYS_A_TURN: u32 = 1024;

/// Keys beyond twice the mappings that this node has room for: records of held ports have such
/// keys.
const KEYS_OF_HELD: u32 = 1 << 20;

/// Addresses whose held ports are listed in one turn.
const ADDRESSES_A_TURN: usize = 8;

/// Protocols with ports.
pub(super) const PROTOCOLS: [u8; 4] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

/// Beginning of a record of held ports. A mapping's record begins with a smaller number.
pub(super) const HELD: [u8; 4] = [0xff; 4];

/// Ports in one record of held ports.
const HELD_PORTS: usize = 400;

/// A slice.
#[derive(Debug)]
pub(super) struct Slice {
    number: u16,
    ranges: Vec<AddressRange>,
    duty: Option<Duty>,
    pub(super) outbound: Option<Outbound>,
    pub(super) inbound: Option<Inbound>,
    /// End of the hold-down after a take-over.
    pub(super) rests_until: Option<Timestamp>,
    /// True after a planned move, until the partner has confirmed all mappings: none ends before.
    pub(super) is_moved: bool,
    /// True if the partner's last view says that it owns the slice, as this node does.
    pub(super) is_disputed: bool,
    /// Ports of copies that have ended by themselves. They rest until the partner has no mapping
    /// without a key, or has ended.
    orphans: BTreeSet<u128>,
    /// The latest owner that was reported, and the epoch.
    reported: Option<(Node, Epoch)>,
    /// Mappings that this node has ended, so that the slice could move.
    ended_to_move: u64,
}

/// The stream that this node sends.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) sender: Sender,
    /// The next key of the first copy; `None`: it is done.
    fill: Option<u32>,
    next_state: Timestamp,
    next_digests: Timestamp,
    /// Latest time at which the copy was complete.
    completed: Option<Timestamp>,
    /// Held ports, which a planned move takes along.
    held: Held,
    /// The partner's last answer to a state. Its loss is taken by the caller.
    pub(super) answer: Answer,
    /// Mark of the loss that the last state told.
    told: u64,
}

/// Records of held ports.
#[derive(Debug, Default)]
struct Held {
    /// True if the slice drains.
    is_wanted: bool,
    /// The next external address, by its place in the engine; `None`: all are listed.
    next: Option<usize>,
    /// Key of the first record. No mapping has it, because none begins while the slice drains.
    base: u32,
    records: Vec<Vec<u8>>,
}

impl Slice {
    pub(super) fn new(number: u16, ranges: Vec<AddressRange>) -> Self {
        Self {
            number,
            ranges,
            duty: None,
            outbound: None,
            inbound: None,
            rests_until: None,
            is_moved: false,
            is_disputed: false,
            orphans: BTreeSet::new(),
            reported: None,
            ended_to_move: 0,
        }
    }

    /// A change if the owner was not reported. Call it before the streams change.
    pub(super) fn new_owner(
        &mut self,
        owner: Option<Node>,
        epoch: Epoch,
        this: Node,
    ) -> Option<SliceChange> {
        let owner = owner.filter(|owner| self.reported != Some((*owner, epoch)))?;
        self.reported = Some((owner, epoch));
        let copies = self.inbound.as_ref().and_then(|inbound| inbound.copies.as_ref());
        let continued = copies.filter(|_| owner == this).map(|copies| copies.count() as u32);
        Some(SliceChange { time: Timestamp(0), slice: self.number, epoch, owner, continued })
    }

    pub(super) fn has(&self, address: Ipv4Addr) -> bool {
        is_in(&self.ranges, address)
    }

    /// Makes the engine do its duty in the slice.
    pub(super) fn set_duty(&mut self, engine: &mut Engine, assigns: bool, owns: bool) {
        let duty = Duty { assigns, keeps: !owns || self.is_moved, owns };
        if self.duty != Some(duty) {
            self.ranges.iter().for_each(|range| engine.set_duty(*range, duty));
            self.duty = Some(duty);
        }
    }

    /// The engine has other settings: its new addresses need their duty. Returns a request for
    /// records that had no place before.
    pub(super) fn renew(&mut self, engine: &Engine, hosts: &CopiedHosts<'_>) -> Option<Vec<u8>> {
        self.duty = None;
        self.inbound.as_mut()?.renew((engine, hosts), &self.ranges)
    }

    /// Lets no session end before the next [`Slice::set_duty`], which starts all timers anew.
    pub(super) fn keep(&mut self, engine: &mut Engine) {
        if let Some(duty) = &mut self.duty {
            duty.keeps = true;
            self.ranges.iter().for_each(|range| engine.set_duty(*range, *duty));
        }
    }

    /// Begins and ends streams as the ownership says. Returns the ports whose rest ends with a
    /// stream.
    pub(super) fn set_streams(
        &mut self,
        engine: &Engine,
        [destination, source]: [Option<Stream>; 2],
        now: Timestamp,
    ) -> Vec<u128> {
        let id = |stream| StreamId { slice: self.number, worker: 0, stream };
        let mut ended = Vec::new();
        if self.outbound.as_ref().map(|outbound| outbound.sender.id()) != destination.map(id) {
            if let Some(outbound) = self.outbound.take() {
                ended = outbound.sender.abandon().collect();
                // The partner's process has ended; or this node has given the slice away, and
                // assigns no port.
                ended.extend(std::mem::take(&mut self.orphans));
            }
            self.outbound = destination.map(|stream| Outbound {
                sender: Sender::new(id(stream)),
                fill: (engine.copy_extent() > 0).then_some(0),
                next_state: now,
                next_digests: now.plus(DIGESTS),
                completed: None,
                held: Held::default(),
                answer: Answer::default(),
                told: 0,
            });
        }
        if self.inbound.as_ref().map(|inbound| inbound.receiver.id()) != source.map(id) {
            let receiver = |stream| Receiver::new(id(stream), most_keys(engine));
            self.inbound = source.map(|stream| Inbound::new(receiver(stream)));
        }
        ended
    }

    /// Receives a message of the stream. Returns the answer.
    pub(super) fn receive(
        &mut self,
        (engine, hosts): (&mut Engine, &mut CopiedHosts<'_>),
        (id, message): (StreamId, Message<'_>),
        bytes: &[u8],
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        match message {
            Message::Confirmation(confirmation) => {
                let outbound = self.outbound.as_mut().filter(|one| one.sender.id() == id)?;
                outbound.sender.confirm(&confirmation, now.0);
                None
            }
            Message::Repair(buckets) => {
                let outbound = self.outbound.as_mut().filter(|one| one.sender.id() == id)?;
                if buckets.is_empty() {
                    outbound.next_digests = outbound.next_digests.min(now.plus(STATE));
                }
                outbound.sender.repair(&buckets);
                None
            }
            Message::Opinion(opinion) => {
                let outbound = self.outbound.as_mut().filter(|one| one.sender.id() == id)?;
                outbound.answer = Answer::read(opinion)?;
                None
            }
            Message::AskRefused => {
                let inbound = self.inbound.as_ref().filter(|one| one.receiver.id() == id)?;
                Some(inbound.refused_keys())
            }
            Message::Refused(keys) => {
                self.end_refused(engine, id, keys);
                None
            }
            Message::State { is_complete, origin } => {
                let inbound = self.inbound.as_mut().filter(|one| one.receiver.id() == id)?;
                inbound.hear((engine, hosts), &self.ranges, (is_complete, origin), now);
                None
            }
            Message::Packet(_) | Message::Digests { .. } => {
                self.inbound.as_mut()?.receive((engine, hosts), &self.ranges, bytes, now)
            }
        }
    }

    /// Ends mappings that the partner has no place for, if the slice drains: their subscribers have
    /// as many hosts as possible at the partner. Held ports are listed anew, so that the partner
    /// holds those of the mappings from now on.
    fn end_refused(&mut self, engine: &mut Engine, id: StreamId, keys: &[u8]) {
        let Some(outbound) = &mut self.outbound else { return };
        if outbound.sender.id() != id || !outbound.held.is_wanted {
            return;
        }
        let Some(keys) = RefusedKey::read(keys) else { return };
        let ends = |key: &RefusedKey| {
            let RefusedKey { key, protocol, external } = *key;
            is_in(&self.ranges, external.0) && engine.end_uncopied(key, protocol, external)
        };
        let ended = keys.filter(ends).count() as u64;
        if ended > 0 {
            self.ended_to_move += ended;
            outbound.held.next = Some(0);
            outbound.held.records.clear();
        }
    }

    /// A mapping has ended that had a slot and a port. Returns true if the port rests.
    pub(super) fn note_end(
        &mut self,
        slot: u32,
        port: u128,
        now: Timestamp,
        send: impl FnOnce(Vec<u8>),
    ) -> bool {
        if let Some(outbound) = &mut self.outbound {
            return outbound.sender.end(slot, port, now.0);
        }
        let Some(inbound) = &mut self.inbound else { return false };
        // The owner still has the mapping, perhaps.
        self.orphans.insert(port);
        if let Some(request) = inbound.lose(slot) {
            send(request);
        }
        true
    }

    /// Ends some mappings of the slice that the owner does not have, and tells the owner when none
    /// is left.
    pub(super) fn sweep(&mut self, engine: &mut Engine, send: impl FnOnce(Vec<u8>)) {
        let Self { inbound: Some(inbound), ranges, .. } = self else { return };
        let (Some(from), Some(copies)) = (inbound.sweep, &inbound.copies) else { return };
        let has = |address| is_in(ranges, address);
        inbound.sweep = engine.end_strangers(copies, has, from, KEYS_A_TURN);
        if inbound.sweep.is_none() {
            send(inbound.receiver.swept());
        }
    }

    /// Ports of orphans whose rest ends: the partner has no mapping without a key, or has ended.
    pub(super) fn settled_orphans(&mut self, owns: bool) -> BTreeSet<u128> {
        let is_settled = owns && self.outbound.as_ref().is_none_or(|out| out.sender.is_swept());
        if is_settled { std::mem::take(&mut self.orphans) } else { BTreeSet::new() }
    }

    /// Gives the next messages of the stream to `send`, at most `most` packets. `room` is the room
    /// of a datagram. `young` gets the keys of mappings that are too young, with the time at which
    /// they are due. `epoch` is the last loss of requested mappings.
    pub(super) fn send(
        &mut self,
        (engine, hosts): (&Engine, &CopiedHosts<'_>),
        (now, room, most): (Timestamp, usize, usize),
        (young, epoch): (&mut Young, Option<Told>),
        mut send: impl FnMut(Vec<u8>) -> bool,
    ) {
        let Self { outbound: Some(outbound), ranges, .. } = self else { return };
        // The partner may have mappings that it made as the owner. Each needs its key, however
        // young: the partner ends those without one.
        let takes_all = self.is_moved || outbound.held.is_wanted;
        let has = |address| is_in(ranges, address);
        outbound.fill_some(engine, has, now);
        outbound.list_held(engine, has, now);
        // What the partner refuses as a whole would be sent in vain, again and again.
        let most = if outbound.answer.refusal.differences.is_empty() { most } else { 0 };
        for _ in 0..most {
            let Outbound { sender, held, .. } = &mut *outbound;
            let source = |key, out: &mut Vec<u8>| {
                held.present((engine, hosts), &has, (key, now, takes_all), young, out)
            };
            match sender.write(now.0, (room, engine.copy_extent()), source) {
                Written::Packet(packet) => {
                    if !send(packet) {
                        // It counts as lost, and its keys are sent again.
                        break;
                    }
                }
                Written::More => {}
                Written::Nothing | Written::Full => break,
            }
        }
        let is_complete = outbound.is_complete();
        if is_complete {
            outbound.completed = Some(now);
        }
        let mark = epoch.map_or(0, |(_, mark)| mark);
        if now >= outbound.next_state || mark != outbound.told {
            // A planned move waits until the partner has heard of the loss.
            let has_heard = outbound.answer.heard == mark;
            outbound.next_state = now.plus(if has_heard { STATE } else { SOON });
            outbound.told = mark;
            let mut origin = Vec::new();
            engine.copy_origin(&mut origin);
            let arithmetic = arithmetic_of(engine, hosts, ranges);
            let state = State { origin: &origin, arithmetic, epoch, sent: now.0 };
            send(write_state(outbound.sender.id(), is_complete, &state.write()));
            if outbound.held.is_wanted && outbound.answer.refusal.of_full_subscribers > 0 {
                send(write_ask_refused(outbound.sender.id()));
            }
        }
        if now >= outbound.next_digests {
            outbound.next_digests = now.plus(DIGESTS);
            send(outbound.sender.digests());
        }
    }

    /// True if this node has the whole copy, as the owner has said lately.
    pub(super) fn has_present_copy(&self, now: Timestamp) -> bool {
        let completed = self.inbound.as_ref().filter(|inbound| inbound.is_complete);
        let completed = completed.and_then(|inbound| inbound.completed);
        completed.is_some_and(|at| now.since(at) < PRESENT)
    }

    /// True if the partner has taken note of a loss of requested mappings, by its mark.
    pub(super) fn knows_loss(&self, mark: u64) -> bool {
        self.outbound.as_ref().is_some_and(|outbound| outbound.answer.heard == mark)
    }

    /// True if the partner has everything, held ports included if the slice drains.
    pub(super) fn is_copied(&self) -> bool {
        self.outbound.as_ref().is_some_and(Outbound::is_complete)
    }

    /// Begins or ends the list of held ports: the slice drains, or does not.
    pub(super) fn set_draining(&mut self, engine: &Engine, drains: bool) {
        let Some(outbound) = &mut self.outbound else { return };
        if outbound.held.is_wanted == drains {
            return;
        }
        let base = engine.copy_extent();
        let next = drains.then_some(0);
        outbound.held = Held { is_wanted: drains, next, base, records: Vec::new() };
        // Mappings that were too young go along.
        outbound.fill = Some(0);
    }

    /// State of the slice for people, with the names of its home and its owner.
    pub(super) fn status(
        &self,
        now: Timestamp,
        ownership: &Ownership,
        home: String,
        owner: Option<String>,
    ) -> SliceStatus {
        let number = usize::from(self.number);
        let role = ownership.role(number);
        let (completed, is_complete) = match (&self.outbound, &self.inbound) {
            (Some(outbound), _) => (outbound.completed, outbound.is_complete()),
            (None, Some(inbound)) => (inbound.completed, inbound.is_complete),
            (None, None) => (None, false),
        };
        let lag = self.outbound.as_ref().map_or(0, |outbound| outbound.sender.lag(now.0));
        SliceStatus {
            addresses: self.ranges.clone(),
            home,
            owner,
            role: match role {
                Role::Unknown => "unknown",
                Role::Owner { .. } => "owner",
                Role::Yielding { .. } => "yielding",
                Role::Partner { .. } => "partner",
            },
            epoch: ownership.epoch(number),
            assigns: ownership.may_assign(number),
            rests: self.rests_until.map(|until| until.since(now)),
            drains: ownership.drains(number),
            is_complete,
            age: completed.map(|at| now.since(at)),
            lag: Duration::from_nanos(lag),
            is_disputed: self.is_disputed,
            sent: self.outbound.as_ref().map(|outbound| outbound.sender.counters()),
            received: self.inbound.as_ref().map(|inbound| inbound.receiver.counters()),
            refusal: match (&self.outbound, &self.inbound) {
                (Some(outbound), _) => outbound.answer.refusal.clone(),
                (None, inbound) => inbound.as_ref().map(Inbound::refusal).unwrap_or_default(),
            },
            records_without_realm: self.inbound.as_ref().map(Inbound::refused_records),
            ended_to_move: self.ended_to_move,
        }
    }
}

/// What gives ports of some ranges to subscribers, at this node.
pub(super) fn arithmetic_of(
    engine: &Engine,
    hosts: &CopiedHosts<'_>,
    ranges: &[AddressRange],
) -> Arithmetic {
    let mut arithmetic = Arithmetic::of(engine.config(), ranges);
    hosts.keys().iter().for_each(|(key, value)| arithmetic.set(key, value));
    arithmetic
}

/// True if one of the ranges has an address.
pub(super) fn is_in(ranges: &[AddressRange], address: Ipv4Addr) -> bool {
    ranges.iter().any(|range| range.contains(address))
}

/// Bound of the keys of a partner whose table has at most twice the room of this node's.
fn most_keys(engine: &Engine) -> u32 {
    engine.most_mappings().saturating_mul(2).saturating_add(KEYS_OF_HELD)
}

impl Outbound {
    fn is_complete(&self) -> bool {
        self.fill.is_none() && self.held.next.is_none() && self.sender.is_complete()
    }

    /// Reports some of the present mappings to the sender, for a first copy.
    fn fill_some(&mut self, engine: &Engine, has: impl Fn(Ipv4Addr) -> bool, now: Timestamp) {
        let Some(from) = self.fill else { return };
        let to = engine.copy_extent().min(from.saturating_add(KEYS_A_TURN));
        for key in from..to {
            if engine.copy_facts(key).is_some_and(|facts| has(facts.address)) {
                self.sender.change(key, now.0);
            }
        }
        self.fill = (to < engine.copy_extent()).then_some(to);
    }

    /// Lists the ports that are taken at some addresses. The partner holds those that no mapping
    /// has.
    fn list_held(&mut self, engine: &Engine, has: impl Fn(Ipv4Addr) -> bool, now: Timestamp) {
        let Some(first) = self.held.next else { return };
        for place in first..first + ADDRESSES_A_TURN {
            let mut address = None;
            for protocol in PROTOCOLS {
                let mut taken = [0; 1024];
                address = engine.taken_ports(place, protocol, &mut taken);
                let Some(address) = address.filter(|address| has(*address)) else { break };
                self.held.add(protocol, address, &taken);
            }
            self.held.next = address.map(|_| place + 1);
            if address.is_none() {
                self.change_held(now);
                return;
            }
        }
    }

    fn change_held(&mut self, now: Timestamp) {
        for number in 0..self.held.records.len() as u32 {
            self.sender.change(self.held.base + number, now.0);
        }
    }
}

impl Held {
    fn add(&mut self, protocol: u8, address: Ipv4Addr, taken: &[u64; 1024]) {
        let ports: Vec<u16> = (0..=u16::MAX)
            .filter(|port| taken[usize::from(*port) / 64] >> (port % 64) & 1 != 0)
            .collect();
        for ports in ports.chunks(HELD_PORTS) {
            let mut record = Vec::from(HELD);
            record.push(protocol);
            record.extend(address.octets());
            ports.iter().for_each(|port| record.extend(port.to_le_bytes()));
            self.records.push(record);
        }
    }

    /// Writes the present record of a key. `takes_all`: of young mappings too.
    fn present(
        &self,
        (engine, hosts): (&Engine, &CopiedHosts<'_>),
        has: &impl Fn(Ipv4Addr) -> bool,
        (key, now, takes_all): (u32, Timestamp, bool),
        young: &mut Young,
        out: &mut Vec<u8>,
    ) -> Present {
        if let Some(record) =
            key.checked_sub(self.base).and_then(|at| self.records.get(at as usize))
        {
            out.extend(record);
            return Present::Record { fingerprint: fingerprint(record) };
        }
        let Some(facts) = engine.copy_facts(key).filter(|facts| has(facts.address)) else {
            return Present::Absent;
        };
        let due = facts.created.plus(YOUNG);
        if !takes_all && !facts.is_settled && (facts.is_tcp || now < due) {
            if !facts.is_tcp {
                young.add(due, key);
            }
            return Present::NotYet;
        }
        engine
            .copy_record(key, hosts, out)
            .map_or(Present::Absent, |fingerprint| Present::Record { fingerprint })
    }
}

/// Bytes of a datagram that the records of a stream can fill.
pub(super) const LEAST_ROOM: usize = PACKET_HEAD + RECORD_HEAD + 9 + 2 * HELD_PORTS;

pub(super) fn fingerprint(record: &[u8]) -> u64 {
    u64::from(crc32fast::hash(record)) | 1 << 32
}
