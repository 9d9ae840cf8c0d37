//! The stream of a slice's records that this worker sends: first copy, changes, held ports, states
//! and digests. All workers of the partner read it.

use super::INTERVAL;
use super::binding::Binding;
use super::shared_ports::SharedPorts;
use super::slice::{HELD, PROTOCOLS, YOUNG, arithmetic_of, fingerprint, is_in};
use super::state::{Answer, State};
use super::young::Young;
use crate::pcp::Told;
use natgate_engine::{AddressRange, CopyFacts, Engine, Timestamp};
use natgate_ipv6::CopiedHosts;
use natgate_pair::{
    PACKET_HEAD, Present, RECORD_HEAD, Sender, StreamId, Written, write_ask_refused, write_state,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Interval of the owner's state, and of digests.
const STATE: Duration = Duration::from_secs(1);
const DIGESTS: Duration = Duration::from_secs(30);

/// Interval of states while the partner has not heard of the last loss of requested mappings, and
/// until its workers take records.
const SOON: Duration = Duration::from_millis(200);
const FIRST: Duration = Duration::from_millis(20);

/// Least time between two checkpoints, unless the slice drains.
const CHECKPOINTS: Duration = Duration::from_millis(100);

/// Largest age of a copy that counts as complete although something is on its way.
const RECENT: Duration = Duration::from_secs(1);

/// Time beyond two round trips after which a confirmation is late: fewer packets are sent ahead.
const WAITED: Duration = Duration::from_millis(20);

/// Keys that a first copy looks at in one turn, and mappings that it reports; while as many keys
/// have changed, which are to be sent, it looks at few. So the lines of mappings are near when
/// their records are written.
const KEYS_A_TURN: u32 = 1024;
const REPORTS_A_TURN: usize = 256;
const KEYS_AT_LEAST: u32 = 16;

/// Time for which records are gathered after some have been sent, unless a packet waits for one.
const GATHERED: Duration = Duration::from_millis(2);

/// Addresses whose held ports are listed in one turn.
const ADDRESSES_A_TURN: usize = 8;

/// Ports in one record of held ports.
const HELD_PORTS: usize = 400;

/// The port, of DCCP, that is held for a whole address: while one is held, no other host gets the
/// address.
const FOR_THE_ADDRESS: u16 = 1;

/// Bytes of a datagram that the records of a stream can fill.
pub(super) const LEAST_ROOM: usize = PACKET_HEAD + RECORD_HEAD + 9 + 2 * HELD_PORTS;

/// The stream that this node sends.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) sender: Sender,
    /// The next key of the first copy; `None`: it is done.
    fill: Option<u32>,
    next_state: Timestamp,
    next_digests: Timestamp,
    /// The time up to which the partner has everything, as far as this node knows.
    pub(super) completed: Option<Timestamp>,
    /// Number of checkpoints that have begun, the time of the latest one, and the latest one that
    /// has arrived.
    begun: u64,
    began: Timestamp,
    arrived: u64,
    /// The latest checkpoint that has arrived but for mappings that have no place at the partner.
    reached: u64,
    /// Held ports, which a planned move takes along.
    held: Held,
    /// Time at which the stream began.
    since: Timestamp,
    /// The last answer of each worker of the partner to a state; `None`: there was none. The caller
    /// takes their losses.
    pub(super) answers: Vec<Option<Answer>>,
    /// Mark of the loss that the last state told.
    told: u64,
    /// True if the last state told that the copy was whole.
    told_whole: bool,
    young: Young,
    /// Packets of a turn, which go together.
    packets: Vec<Vec<u8>>,
    /// Time up to which records are gathered.
    next_packets: Timestamp,
    /// Packets of the next turn, at most: one if the link did not take all of the last turn.
    most: usize,
    /// True if young mappings are sent, too.
    takes_all: bool,
    /// True if the last call of [`Outbound::send`] ended before all was sent that may be sent now.
    pub(super) has_more: bool,
    /// How packets of control flows depend on the partner.
    pub(super) binding: Binding,
    /// Time since which tickets wait and the partner has confirmed nothing for them.
    silent: Option<Timestamp>,
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

impl Outbound {
    /// Begins a stream to a partner with this number of workers.
    pub(super) fn new(id: StreamId, readers: usize, engine: &Engine, now: Timestamp) -> Self {
        Self {
            sender: Sender::to_readers(id, readers),
            fill: (engine.copy_extent() > 0).then_some(0),
            next_state: now,
            next_digests: now.plus(DIGESTS),
            completed: None,
            begun: 0,
            began: now,
            arrived: 0,
            reached: 0,
            held: Held::default(),
            since: now,
            answers: vec![None; readers],
            told: 0,
            told_whole: false,
            young: Young::default(),
            packets: Vec::new(),
            next_packets: now,
            most: usize::MAX,
            takes_all: false,
            has_more: false,
            binding: Binding::new(now),
            silent: None,
        }
    }

    /// A mapping has changed. One that is too young for a record, and of which the partner knows
    /// nothing, waits for its age alone.
    pub(super) fn note_change(
        &mut self,
        (key, facts): (u32, &CopyFacts),
        now: Timestamp,
        ports: &SharedPorts,
    ) {
        let waits = is_too_young(facts, now) && !self.takes_all && !ports.may_have_flows(facts);
        if !waits || !self.sender.is_new(key) {
            self.sender.change(key, now.0);
        } else if !facts.is_tcp {
            self.young.add((facts.created, now), key);
        }
    }

    /// Mappings that were too young are so no more. [`Outbound::send`] asks for their facts, and
    /// their lines are on their way until then.
    pub(super) fn note_age(&mut self, engine: &Engine, now: Timestamp) {
        while let Some(key) = self.young.next(now) {
            engine.fetch_copy(key);
            self.sender.change(key, now.0);
        }
    }

    /// Looks for lost packets. A worker of the partner takes a turn within [`INTERVAL`].
    pub(super) fn time_out(&mut self, now: Timestamp, round_trip: Duration) {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        self.sender.set_late(nanoseconds(2 * round_trip + WAITED));
        self.sender.time_out(now.0, (nanoseconds(round_trip), nanoseconds(INTERVAL)));
    }

    /// A worker of the partner has lost packets: digests are sent again soon.
    pub(super) fn hasten_digests(&mut self, now: Timestamp) {
        self.next_digests = self.next_digests.min(now.plus(STATE));
    }

    /// True if each worker of the partner has answered a state, or has had the time for it: before
    /// it drops records.
    fn are_ready(&self, now: Timestamp) -> bool {
        self.answers.iter().all(Option::is_some) || now.since(self.since) >= STATE
    }

    /// Each worker of the partner has answered a state, and takes records.
    #[cfg(test)]
    pub(super) fn note_ready(&mut self) {
        self.answers.fill(Some(Answer::default()));
    }

    /// True if the slice drains.
    pub(super) fn drains(&self) -> bool {
        self.held.is_wanted
    }

    /// Lists held ports anew.
    pub(super) fn list_anew(&mut self) {
        self.held.next = Some(0);
        self.held.records.clear();
    }

    /// Begins or ends the list of held ports: the slice drains, or does not.
    pub(super) fn set_draining(&mut self, engine: &Engine, drains: bool) {
        if self.held.is_wanted == drains {
            return;
        }
        let base = engine.copy_extent();
        let next = drains.then_some(0);
        self.held = Held { is_wanted: drains, next, base, records: Vec::new() };
        // Mappings that were too young go along.
        self.fill = Some(0);
    }

    /// Mark of the loss of requested mappings that all workers of the partner have heard of; 0:
    /// none, or not all have heard of the same.
    pub(super) fn heard(&self) -> u64 {
        let heard = |answer: &Option<Answer>| answer.as_ref().map_or(0, |answer| answer.heard);
        let mut marks = self.answers.iter().map(heard);
        let first = marks.next().unwrap_or(0);
        if marks.all(|mark| mark == first) { first } else { 0 }
    }

    /// Gives the next messages of the stream to `send`, at most `most` packets. `room` is the room
    /// of a datagram. `epoch` is the last loss of requested mappings. `takes_all`: of young
    /// mappings too.
    pub(super) fn send(
        &mut self,
        (engine, hosts, ports): (&Engine, &CopiedHosts<'_>, &SharedPorts),
        (ranges, takes_all): (&[AddressRange], bool),
        (now, room, most): (Timestamp, usize, usize),
        epoch: Option<Told>,
        mut send: impl FnMut(&[u8]) -> bool,
    ) {
        self.takes_all = takes_all;
        let has = |address| is_in(ranges, address);
        // Each worker has all static mappings. The worker of the host has their sessions.
        let is_its = |facts: &CopyFacts| {
            has(facts.address) && (!facts.is_static || ports.has_host(facts.host))
        };
        self.fill_some(engine, has, now);
        self.list_held(engine, has, now);
        // What the partner refuses as a whole would be sent in vain, again and again.
        let accepts = |answer: &Answer| answer.refusal.differences.is_empty();
        let is_accepted = self.are_ready(now) && self.answers.iter().flatten().all(accepts);
        let is_due = self.is_due(now);
        let most = if is_accepted && is_due { most.min(self.most) } else { 0 };
        let mut has_more = most > 0;
        for _ in 0..most {
            let Self { sender, held, young, .. } = &mut *self;
            let source = |(key, is_known), out: &mut Vec<u8>| {
                let state = (engine, hosts, ports);
                held.present(state, &is_its, (key, now, takes_all || is_known), young, out)
            };
            match sender.write(now.0, (room, engine.copy_extent()), source) {
                Written::Packet(packet) => {
                    // The link may refuse a long one and take short ones: it is the last.
                    let is_long = packet.len() > room;
                    self.packets.push(packet);
                    if is_long {
                        break;
                    }
                }
                Written::More => {}
                Written::Nothing => {
                    has_more = !self.has_listed_all();
                    break;
                }
                Written::Full => {
                    has_more = false;
                    break;
                }
            }
        }
        self.has_more = has_more;
        self.send_packets(now, &mut send);
        self.check(now);
        self.tell_state((engine, hosts, ports), ranges, (now, epoch), &mut send);
        if now >= self.next_digests {
            self.next_digests = now.plus(DIGESTS);
            send(&self.sender.digests());
        }
    }

    /// True if records may go now. They are gathered for a moment: the packets are full then, and
    /// the link is woken less often.
    fn is_due(&self, now: Timestamp) -> bool {
        let has_more = self.has_more || !self.has_listed_all();
        has_more || self.sender.awaits() || self.held.is_wanted || now >= self.next_packets
    }

    /// Time up to which records are gathered, if there are some.
    pub(super) fn gathers_until(&self, now: Timestamp) -> Option<Timestamp> {
        (now < self.next_packets && self.sender.changed() > 0).then_some(self.next_packets)
    }

    /// Sends the packets of a turn. Those that the link does not take are lost.
    fn send_packets(&mut self, now: Timestamp, send: &mut impl FnMut(&[u8]) -> bool) {
        let sent = self.packets.iter().take_while(|packet| send(packet)).count();
        let unsent = self.packets.len() - sent;
        if sent > 0 {
            self.next_packets = now.plus(GATHERED);
        }
        self.packets.drain(..).for_each(|packet| self.sender.reuse(packet));
        self.sender.note_unsent(unsent, now.0);
        self.most = if unsent > 0 { 1 } else { usize::MAX };
        self.has_more &= unsent == 0;
    }

    /// Sends the owner's state if it is due. The partner hears at once that the copy is whole.
    fn tell_state(
        &mut self,
        (engine, hosts, ports): (&Engine, &CopiedHosts<'_>, &SharedPorts),
        ranges: &[AddressRange],
        (now, epoch): (Timestamp, Option<Told>),
        send: &mut impl FnMut(&[u8]) -> bool,
    ) {
        let mark = epoch.map_or(0, |(_, mark)| mark);
        self.binding.note_arrival(now, self.silent, self.reached);
        let is_due = now >= self.next_state || mark != self.told;
        if !is_due && (self.told_whole || !self.is_whole(now)) {
            return;
        }
        // A planned move waits until the partner has heard of the loss.
        let has_heard = self.heard() == mark && self.answers.iter().all(Option::is_some);
        let wait = if !self.are_ready(now) {
            FIRST
        } else if has_heard {
            STATE
        } else {
            SOON
        };
        self.next_state = now.plus(wait);
        (self.told, self.told_whole) = (mark, self.is_whole(now));
        let mut origin = Vec::new();
        engine.copy_origin(&mut origin);
        let arithmetic = arithmetic_of(engine, hosts, ranges);
        let is_sure = self.binding.word(now);
        let controls = ports.controls(now, self.sender.id().slice);
        let (origin, sent, is_complete) = (&origin[..], now.0, self.is_complete(now));
        let state = State { origin, arithmetic, epoch, sent, is_sure, controls };
        send(&write_state(self.sender.id(), is_complete, &state.write()));
        let is_incurable = |answer: &Answer| {
            answer.refusal.of_full_subscribers > 0 || answer.refusal.without_gateway > 0
        };
        if self.held.is_wanted && self.answers.iter().flatten().any(is_incurable) {
            send(&write_ask_refused(self.sender.id()));
        }
    }

    /// Notes the arrival of a checkpoint, and begins the next one.
    fn check(&mut self, now: Timestamp) {
        if !self.has_listed_all() {
            return;
        }
        self.note_arrival();
        let is_due = self.held.is_wanted || now.since(self.began) >= CHECKPOINTS;
        let is_next = match self.sender.has_arrived() {
            None => true,
            Some(_) => self.reached == self.begun && is_due,
        };
        if is_next && self.sender.begin_checkpoint() {
            (self.begun, self.began) = (self.begun + 1, now);
            self.note_arrival();
        }
    }

    fn note_arrival(&mut self) {
        if self.sender.has_arrived() == Some(true) {
            self.reached = self.begun;
            if self.sender.missing() == 0 {
                (self.arrived, self.completed) = (self.begun, Some(self.began));
            }
        }
    }

    /// True if every mapping has been reported to the sender, and the held ports if the slice
    /// drains.
    pub(super) fn has_listed_all(&self) -> bool {
        self.fill.is_none() && self.held.next.is_none()
    }

    /// A ticket waits for the record of a key.
    pub(super) fn wait_for(&mut self, key: u32, ticket: u64, now: Timestamp) {
        self.sender.wait_for(key, ticket, now.0);
        self.silent.get_or_insert(now);
    }

    /// Tickets of which a record has arrived.
    pub(super) fn arrived(&mut self, now: Timestamp) -> Vec<u64> {
        let arrived: Vec<u64> = self.sender.arrived().collect();
        if !arrived.is_empty() {
            self.silent = self.sender.awaits().then_some(now);
        }
        arrived
    }

    /// Time since which tickets wait and the partner has confirmed nothing for them. `None`: none
    /// has waited since the last one arrived.
    pub(super) fn waits_since(&self) -> Option<Timestamp> {
        self.silent
    }

    /// Lets packets of control flows wait for the partner, or not.
    pub(super) fn bind(&mut self, now: Timestamp) {
        self.binding.look(now, self.silent, (self.begun + 1, self.reached));
    }

    /// Number of the next checkpoint, which has everything that has changed until now.
    pub(super) fn next_checkpoint(&self) -> u64 {
        self.begun + 1
    }

    /// True if the partner has everything that had changed before a checkpoint.
    pub(super) fn has_arrived(&self, checkpoint: u64) -> bool {
        self.arrived >= checkpoint
    }

    /// True if the partner has everything that had changed before a checkpoint and that it has a
    /// place for.
    pub(super) fn has_reached(&self, checkpoint: u64) -> bool {
        self.reached >= checkpoint
    }

    /// True if the partner has a place for everything, and has everything of now or of a moment
    /// ago, held ports included if the slice drains.
    pub(super) fn is_complete(&self, now: Timestamp) -> bool {
        let has_place = self.sender.missing() == 0;
        self.has_listed_all() && has_place && (self.sender.is_complete() || self.is_recent(now))
    }

    /// True if the partner has everything of a moment ago.
    fn is_recent(&self, now: Timestamp) -> bool {
        self.completed.is_some_and(|at| now.since(at) < RECENT)
    }

    /// True if the copy is not complete, and no place is missing for it.
    pub(super) fn is_under_way(&self, now: Timestamp) -> bool {
        self.sender.missing() == 0 && !self.is_recent(now)
    }

    /// True if the copy is complete, and the partner has everything that this node has let out: if
    /// the node ends now, all connections of gateways go on.
    pub(super) fn is_whole(&self, now: Timestamp) -> bool {
        self.binding.is_sure() && self.is_complete(now)
    }

    /// Reports some of the present mappings to the sender, for a first copy.
    fn fill_some(&mut self, engine: &Engine, has: impl Fn(Ipv4Addr) -> bool, now: Timestamp) {
        let Some(from) = self.fill else { return };
        let has_many = self.sender.changed() >= REPORTS_A_TURN;
        let keys = if has_many { KEYS_AT_LEAST } else { KEYS_A_TURN };
        let end = engine.copy_extent();
        let mut left = REPORTS_A_TURN;
        let mut keys = from..end.min(from.saturating_add(keys));
        while left > 0
            && let Some(key) = keys.next()
        {
            if engine.copy_facts(key).is_some_and(|facts| has(facts.address)) {
                self.sender.change(key, now.0);
                left -= 1;
            }
        }
        self.fill = (keys.start < end).then_some(keys.start);
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
                if protocol == protocol::DCCP && engine.is_given_whole(place) {
                    taken[0] |= 1 << FOR_THE_ADDRESS;
                }
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

/// True if a mapping is not copied yet: TCP before it is established, others before an age. One
/// that began in this node's future is a copy, of a partner whose clock has gone on while this
/// node's stood still: it is old enough.
fn is_too_young(facts: &CopyFacts, now: Timestamp) -> bool {
    let age = now.0.checked_sub(facts.created.0).map(Duration::from_nanos);
    !facts.is_settled && (facts.is_tcp || age.is_some_and(|age| age < YOUNG))
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
        (engine, hosts, ports): (&Engine, &CopiedHosts<'_>, &SharedPorts),
        is_its: &impl Fn(&CopyFacts) -> bool,
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
        let Some(facts) = engine.copy_facts(key).filter(is_its) else {
            return Present::Absent;
        };
        // Without that word the partner would admit more than one session.
        if ports.lacks_flows() && engine.admits_once(key) {
            return Present::Absent;
        }
        let start = out.len();
        let is_young = !takes_all && is_too_young(&facts, now);
        // A mapping of a control flow goes at once.
        if is_young && (facts.is_tcp || !ports.may_have_flows(&facts)) {
            if !facts.is_tcp {
                young.add((facts.created, now), key);
            }
            return Present::NotYet;
        }
        let print = engine.copy_record(key, hosts, out);
        if is_young && !ports.has_flows(&facts, &out[start..]) {
            young.add((facts.created, now), key);
            return Present::NotYet;
        }
        let print = print.and_then(|print| ports.add_flows(now, &facts, (start, print), out));
        print.map_or(Present::Absent, |fingerprint| Present::Record { fingerprint })
    }
}
