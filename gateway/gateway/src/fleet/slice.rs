//! A slice at one worker of a node: its addresses in the engine, the stream of the worker's
//! records, and the streams of the partner's workers.

mod figures;
mod leaving;

use super::board::{Order, Report};
use super::inbound::{Inbound, SURE};
use super::outbound::Outbound;
use super::refusal::RefusedKey;
use super::shared_ports::{SearchPlace, SharedPorts};
use super::state::Answer;
use crate::alg::{Part, internal_of};
use crate::pcp::Told;
use natgate_engine::{AddressRange, Arithmetic, Duty, Endpoint, Engine, Timestamp};
use natgate_ipv6::CopiedHosts;
use natgate_pair::{Message, Receiver, StreamId};
use natgate_wire::protocol;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Age from which a mapping without a connection is copied.
pub(super) const YOUNG: Duration = Duration::from_secs(2);

/// Age of the owner's last word up to which a whole copy counts as present.
const PRESENT: Duration = Duration::from_secs(3);

/// Keys that a search for strangers looks at in one turn.
const KEYS_A_TURN: u32 = 1024;

/// Keys beyond twice the mappings that this node has room for: records of held ports have such
/// keys.
const KEYS_OF_HELD: u32 = 1 << 20;

/// Protocols with ports.
pub(super) const PROTOCOLS: [u8; 4] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

/// Beginning of a record of held ports. A mapping's record begins with a smaller number.
pub(super) const HELD: [u8; 4] = [0xff; 4];

/// Number of this worker, and of all workers of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workers {
    pub(super) this: u8,
    pub(super) count: usize,
}

/// A slice.
#[derive(Debug)]
pub(super) struct Slice {
    number: u16,
    workers: Workers,
    ranges: Vec<AddressRange>,
    duty: Option<Duty>,
    /// True if the engine has got other settings since: its new addresses need their duty.
    is_renewed: bool,
    /// The orders that are in force, and the mappings whose copies this worker had when their turn
    /// began.
    order: Order,
    copies: Option<u32>,
    pub(super) outbound: Option<Outbound>,
    /// The streams of the partner's workers, in their order; none if this node is the owner.
    pub(super) inbound: Vec<Inbound>,
    /// True after a planned move, until the partner has confirmed all mappings: none ends before.
    is_moved: bool,
    /// The next place in the search for other workers' mappings whose ports are to be guarded,
    /// before this worker assigns ports; `None`: all are guarded in this epoch.
    unguarded: Option<SearchPlace>,
    /// Number of the next address whose blocks this worker leaves, one of several, because it has
    /// ceased to assign ports; `None`: none is left.
    leaving: Option<usize>,
    /// The next slot in the search for mappings without a key; `None`: none goes on.
    sweep: Option<u32>,
    /// Time at which this node became the owner although the former one may have let changes of
    /// control flows out that this node does not know.
    doubted: Option<Timestamp>,
    /// Time since which the former owner did not know all of them, by its word.
    told: Option<Timestamp>,
    /// Tickets of packets that wait for a partner that there is no more.
    given_up: Vec<u64>,
    /// Tickets of packets that are dropped, because the slice is another node's.
    lost: Vec<u64>,
    /// Ports of copies that have ended by themselves. They rest until the partner has no mapping
    /// without a key, or has ended.
    orphans: BTreeSet<u128>,
    /// Mappings that this node has ended, so that the slice could move.
    ended_to_move: u64,
    /// The drain that goes on and its end, and the checkpoint that has to arrive before they are
    /// done.
    awaited: (u64, u64),
    checkpoint: u64,
    /// The drain and the end of a drain that are done; 0: none.
    drained: u64,
    ended: u64,
    /// The first checkpoint after the drain that goes on began here, or its stream; and the drain,
    /// once the partner has all of before that it has a place for.
    drain_begun: u64,
    drain_told: u64,
}

impl Slice {
    pub(super) fn new(number: u16, workers: Workers, ranges: Vec<AddressRange>) -> Self {
        Self {
            number,
            workers,
            ranges,
            duty: None,
            is_renewed: false,
            order: Order::default(),
            copies: None,
            outbound: None,
            inbound: Vec::new(),
            is_moved: false,
            unguarded: Some(SearchPlace::default()),
            leaving: None,
            sweep: None,
            doubted: None,
            told: None,
            given_up: Vec::new(),
            lost: Vec::new(),
            orphans: BTreeSet::new(),
            ended_to_move: 0,
            awaited: (0, 0),
            checkpoint: 0,
            drained: 0,
            ended: 0,
            drain_begun: 0,
            drain_told: 0,
        }
    }

    pub(super) fn ranges(&self) -> &[AddressRange] {
        &self.ranges
    }

    pub(super) fn has(&self, address: Ipv4Addr) -> bool {
        is_in(&self.ranges, address)
    }

    /// Carries out an order. Returns the ports whose rest ends with a stream.
    pub(super) fn obey(
        &mut self,
        (engine, ports): (&mut Engine, &mut SharedPorts),
        order: &Order,
        now: Timestamp,
    ) -> BTreeSet<u128> {
        let mut ended = BTreeSet::new();
        if self.order.turn != order.turn {
            self.begin_turn(engine, order, now, &mut ended);
        }
        let is_other_drain = (self.order.turn, self.order.drain) != (order.turn, order.drain);
        self.order = *order;
        if order.owns && self.outbound.as_ref().is_none_or(|outbound| outbound.sender.is_swept()) {
            ended.append(&mut self.orphans);
        }
        self.is_moved &= self.outbound.as_ref().is_some_and(|outbound| !outbound.has_arrived(1));
        if order.assigns
            && let Some(from) = self.unguarded
        {
            self.unguarded = ports.guard_some(engine, &self.ranges, from);
        }
        let assigns = order.assigns && self.unguarded.is_none();
        self.set_duty(engine, assigns, order);
        self.leave_some(engine);
        if let Some(outbound) = &mut self.outbound {
            outbound.set_draining(engine, order.drain > 0);
        }
        if is_other_drain {
            // It begins when every mapping has been reported.
            let next = self.outbound.as_ref().map_or(0, Outbound::next_checkpoint);
            (self.drain_begun, self.drain_told) = (next, 0);
        }
        if let Some(stage) = ports.stage().filter(|_| order.drain > 0) {
            stage.end_changed(engine, now, self.number.into());
        }
        ended
    }

    /// True if all workers of the owner have said lately that this node has everything that they
    /// have let out.
    fn has_sure_owner(&self, now: Timestamp) -> bool {
        !self.inbound.is_empty() && self.inbound.iter().all(|inbound| inbound.is_sure(now))
    }

    /// True if another node owns the slice, and this node does not know what that has let out.
    pub(super) fn is_unsure(&self, now: Timestamp) -> bool {
        !self.order.owns && !self.has_sure_owner(now)
    }

    /// This node's part in control flows of the slice, and the times since which it does not know
    /// all of them, and since which the owner does not, or the former one. The partner has the
    /// mappings of connections that the owner does not know. Nor does it know what an owner does
    /// that it does not hear. If the other node's version of the link `lacks_flows`, it has no
    /// connection that is changed, and says nothing of them.
    pub(super) fn part(
        &mut self,
        now: Timestamp,
        lacks_flows: bool,
    ) -> (&[AddressRange], Part, [Option<Timestamp>; 2]) {
        let part = match &mut self.outbound {
            _ if !self.order.owns || self.order.ends > 0 => Part::Partner,
            None => Part::Alone,
            Some(outbound) => {
                outbound.bind(now);
                if outbound.binding.binds() { Part::Owner } else { Part::Alone }
            }
        };
        let of_owner = self.inbound.iter().filter_map(|inbound| inbound.doubted).max();
        let is_unsure = !lacks_flows && self.is_unsure(now);
        let told = self.told.max(of_owner).max(is_unsure.then_some(now));
        (&self.ranges, part, [self.doubted, told])
    }

    /// Ends connections of static mappings whose records came while this node had no gateways.
    pub(super) fn sever_refused(
        &self,
        (engine, now): (&Engine, Timestamp),
        ports: &mut SharedPorts,
    ) {
        for mapping in self.inbound.iter().flat_map(Inbound::without_gateway) {
            ports.sever((engine, now), mapping, false);
        }
    }

    /// Tickets of packets that wait no more.
    pub(super) fn arrived(&mut self, now: Timestamp) -> impl Iterator<Item = u64> + '_ {
        let outbound = self.outbound.iter_mut();
        let arrived = outbound.flat_map(move |outbound| outbound.arrived(now));
        self.given_up.drain(..).chain(arrived)
    }

    /// Tickets of packets that are dropped, because the slice is another node's. They come again as
    /// [`Slice::arrived`].
    pub(super) fn lost(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.lost.drain(..)
    }

    /// Time since which packets of control flows wait for the partner.
    pub(super) fn waits_since(&self) -> Option<Timestamp> {
        self.outbound.as_ref()?.waits_since()
    }

    /// Begins and ends streams.
    fn begin_turn(
        &mut self,
        engine: &Engine,
        order: &Order,
        now: Timestamp,
        ended: &mut BTreeSet<u128>,
    ) {
        self.forget_reports();
        // Strays come with the copies of an earlier epoch. This worker may have missed its orders.
        if self.order.epoch != order.epoch {
            self.is_moved |= order.is_given;
            self.unguarded = Some(SearchPlace::default());
            let knows_all = self.has_sure_owner(now) || has_just_given(order, now);
            let is_doubted = order.owns && !order.is_given && !knows_all;
            self.doubted = is_doubted.then_some(now).or(self.doubted);
            let told = self.inbound.iter().filter_map(|inbound| inbound.doubted).max();
            self.told = told.filter(|_| order.owns).max(self.told);
        }
        let copies = self.inbound.iter().filter_map(|inbound| inbound.copies.as_ref());
        let count = copies.map(|copies| copies.count() as u32).reduce(|sum, one| sum + one);
        self.copies = count;
        let (this, of_partner) = (self.workers.this, order.of_partner);
        let id = |stream| StreamId { slice: self.number, worker: this, reader: 0, stream };
        if self.outbound.as_ref().map(|one| one.sender.id()) != order.destination.map(id) {
            if let Some(mut outbound) = self.outbound.take() {
                let tickets = outbound.sender.give_up();
                self.lost.extend(tickets.iter().filter(|_| !order.owns));
                self.given_up.extend(tickets);
                ended.extend(outbound.sender.abandon());
                // The partner's process has ended; or this node has given the slice away, and
                // assigns no port.
                ended.append(&mut self.orphans);
            }
            let readers = usize::from(of_partner);
            self.outbound =
                order.destination.map(|stream| Outbound::new(id(stream), readers, engine, now));
        }
        let id = |worker, stream| StreamId { slice: self.number, worker, reader: this, stream };
        let first = self.inbound.first().map(|inbound| inbound.receiver.id());
        if first != order.source.map(|stream| id(0, stream)) {
            let most = most_keys(engine, self.workers.count);
            let inbound = |worker, stream| Inbound::new(Receiver::new(id(worker, stream), most));
            let streams = order.source.into_iter();
            let all = streams.flat_map(|stream| (0..of_partner).map(move |k| (k, stream)));
            self.inbound = all.map(|(worker, stream)| inbound(worker, stream)).collect();
            self.sweep = None;
        }
    }

    /// The engine has other settings: its new addresses need their duty. Returns requests for
    /// records that had no place before.
    pub(super) fn renew(&mut self, engine: &Engine, hosts: &CopiedHosts<'_>) -> Vec<Vec<u8>> {
        self.is_renewed = true;
        let Self { inbound, ranges, .. } = self;
        inbound.iter_mut().filter_map(|one| one.renew((engine, hosts), ranges)).collect()
    }

    /// Lets no session end before the next [`Slice::obey`], which starts all timers anew.
    pub(super) fn keep(&mut self, engine: &mut Engine) {
        if let Some(duty) = &mut self.duty {
            duty.keeps = true;
            self.ranges.iter().for_each(|range| engine.set_duty(*range, *duty));
        }
    }

    /// True if a message brings a copy of the slice forward that is not complete, here or at the
    /// partner. A copy that lacks a place or a setting waits for that, not for messages.
    pub(super) fn is_copying(&self, message: &Message<'_>, now: Timestamp) -> bool {
        match message {
            Message::Packet(_) => self.inbound.iter().any(Inbound::is_under_way),
            Message::Confirmation(_) => {
                self.outbound.as_ref().is_some_and(|outbound| outbound.is_under_way(now))
            }
            _ => false,
        }
    }

    /// Receives a message of a stream. Returns the answer.
    pub(super) fn receive(
        &mut self,
        (engine, hosts, ports): (&mut Engine, &mut CopiedHosts<'_>, &mut SharedPorts),
        (id, message): (StreamId, Message<'_>),
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        if matches!(message, Message::Packet(_)) && self.leaving.is_some() {
            // A copy may be of the next subscriber of a block that this worker has not left.
            return None;
        }
        let reader = usize::from(id.reader);
        match message {
            Message::Confirmation(_)
            | Message::Repair(_)
            | Message::Opinion(_)
            | Message::Refused(_) => {
                let outbound = self.outbound.as_mut();
                let outbound = outbound.filter(|one| one.sender.id() == id.common())?;
                match message {
                    Message::Confirmation(confirmation) => {
                        outbound.sender.confirm(id.reader, &confirmation, now.0);
                    }
                    Message::Repair(buckets) => {
                        outbound.sender.repair(&buckets);
                        match buckets.is_empty() {
                            true => outbound.hasten_digests(now),
                            false => self.forget_reports(),
                        }
                    }
                    Message::Opinion(opinion) => {
                        *outbound.answers.get_mut(reader)? = Some(Answer::read(opinion)?);
                    }
                    Message::Refused(keys) => self.end_refused((engine, ports), keys, now),
                    _ => {}
                }
                None
            }
            _ => {
                let Self { inbound, ranges, workers, .. } = self;
                let inbound = inbound.get_mut(usize::from(id.worker))?;
                let own = StreamId { reader: workers.this, ..id };
                match message {
                    Message::AskRefused if inbound.receiver.id() == own => {
                        Some(inbound.refused_keys())
                    }
                    Message::State { is_complete, origin } if inbound.receiver.id() == own => {
                        let state = (&*engine, &*hosts, &*ports);
                        inbound.hear(state, ranges, (is_complete, origin), now);
                        None
                    }
                    Message::Packet(_) | Message::Digests { .. } => {
                        inbound.receive((engine, hosts, ports), ranges, (id, message), now)
                    }
                    _ => None,
                }
            }
        }
    }

    /// Losses of requested mappings that the partner has told in answers to states.
    pub(super) fn told(&mut self) -> impl Iterator<Item = Told> + '_ {
        let answers = self.outbound.iter_mut().flat_map(|outbound| &mut outbound.answers);
        answers.flatten().filter_map(|answer| answer.epoch.take())
    }

    /// Ends mappings that the partner has no place for, if the slice drains, and flows of static
    /// ones. Held ports are listed anew, so that the partner holds those of the mappings from now
    /// on.
    fn end_refused(
        &mut self,
        (engine, ports): (&mut Engine, &mut SharedPorts),
        keys: &[u8],
        now: Timestamp,
    ) {
        let Some(outbound) = self.outbound.as_mut().filter(|outbound| outbound.drains()) else {
            return;
        };
        let Some(keys) = RefusedKey::read(keys) else { return };
        let ends = |key: &RefusedKey| {
            let RefusedKey { key, protocol, external } = *key;
            let internal = engine.copy_facts(key).as_ref().and_then(internal_of);
            let (address, port) = external;
            let mapping = (protocol, Endpoint { address, port }, internal);
            is_in(&self.ranges, address)
                && (engine.end_uncopied(key, protocol, external)
                    || ports.sever((engine, now), mapping, true))
        };
        let ended = keys.filter(ends).count() as u64;
        if ended > 0 {
            self.ended_to_move += ended;
            outbound.list_anew();
            self.forget_reports();
        }
    }

    /// A mapping has ended that had a slot and a port. Returns true if the port rests, or if the
    /// mapping was static: then there is no rest to be ended.
    pub(super) fn note_end(
        &mut self,
        slot: u32,
        (port, is_static): (u128, bool),
        now: Timestamp,
        send: impl FnMut(Vec<u8>),
    ) -> bool {
        if is_static {
            match &mut self.outbound {
                Some(outbound) => _ = outbound.sender.change(slot, now.0),
                None => {
                    self.inbound.iter_mut().filter_map(|inbound| inbound.lose(slot)).for_each(send);
                }
            }
            return true;
        }
        if let Some(outbound) = &mut self.outbound {
            // A copy of the port has come again, and its end is not the end of the earlier one.
            self.orphans.remove(&port);
            return outbound.sender.end(slot, port, now.0);
        }
        if self.inbound.is_empty() {
            return false;
        }
        // The owner still has the mapping, perhaps.
        self.orphans.insert(port);
        self.inbound.iter_mut().filter_map(|inbound| inbound.lose(slot)).for_each(send);
        true
    }

    /// Ends some mappings of the slice that no worker of the owner has, and tells the owner when
    /// none is left. The search begins when the copies of all its workers are complete.
    pub(super) fn sweep(&mut self, engine: &mut Engine, send: impl FnMut(Vec<u8>)) {
        let Self { inbound, ranges, sweep, .. } = self;
        let is_whole = inbound.iter().all(|one| one.is_complete && one.copies.is_some());
        let is_wanted = inbound.iter().any(|one| !one.receiver.is_swept());
        let Some(from) = sweep.or((is_whole && is_wanted).then_some(0)) else { return };
        let is_copy = |slot| {
            let key = |one: &Inbound| one.copies.as_ref().and_then(|copies| copies.key(slot));
            inbound.iter().any(|one| key(one).is_some())
        };
        let has = |address| is_in(ranges, address);
        *sweep = engine.end_strangers(is_copy, has, from, KEYS_A_TURN);
        if sweep.is_none() {
            inbound.iter_mut().map(|one| one.receiver.swept()).for_each(send);
        }
    }

    /// Sends what is due of the stream of this worker.
    pub(super) fn send(
        &mut self,
        (engine, hosts, ports): (&Engine, &CopiedHosts<'_>, &SharedPorts),
        (now, room, most): (Timestamp, usize, usize),
        epoch: Option<Told>,
        send: impl FnMut(&[u8]) -> bool,
    ) {
        let Self { outbound: Some(outbound), ranges, is_moved, order, .. } = self else { return };
        // The partner may have mappings that it made as the owner. Each needs its key, however
        // young: the partner ends those without one.
        let takes_all = *is_moved || outbound.drains();
        outbound.send((engine, hosts, ports), (ranges, takes_all), (now, room, most), epoch, send);
        if outbound.drains() && outbound.has_reached(self.drain_begun) {
            self.drain_told = order.drain;
        }
    }

    /// True if this worker has its whole part of the copy, as all workers of the owner have said
    /// lately.
    fn has_present_copy(&self, now: Timestamp) -> bool {
        let is_present = |inbound: &Inbound| {
            let completed = inbound.completed.filter(|_| inbound.is_complete);
            completed.is_some_and(|at| now.since(at) < PRESENT)
        };
        !self.inbound.is_empty() && self.inbound.iter().all(is_present)
    }

    /// True if this worker knows every mapping of its hosts in the slice.
    pub(super) fn has_all(&self, now: Timestamp) -> bool {
        self.order.owns || self.has_present_copy(now)
    }

    /// True if this worker guards strays, and assigns no port before it is done, or leaves blocks.
    pub(super) fn is_guarding(&self) -> bool {
        self.order.assigns && self.unguarded.is_some() || self.leaving.is_some()
    }

    /// What the reports say has to arrive anew.
    fn forget_reports(&mut self) {
        self.awaited = (0, 0);
        (self.drained, self.ended) = (0, 0);
    }

    /// What this worker has done. A drain, and its end, are done when everything has arrived that
    /// had changed before the order was carried out. Later changes do not count: on a busy slice
    /// something is always on its way.
    pub(super) fn report(&mut self) -> Report {
        if self.outbound.as_ref().is_none_or(|outbound| outbound.sender.missing() > 0) {
            self.forget_reports();
        } else if let Some(outbound) = self.outbound.as_ref().filter(|outbound| outbound.drains()) {
            // After the report no request changes a mapping: its record would perhaps not arrive.
            let is_partner = !self.is_renewed && self.duty.is_some_and(|duty| !duty.owns);
            let ends = if is_partner { self.order.ends } else { 0 };
            let awaited = (self.order.drain, ends);
            if self.awaited != awaited {
                (self.awaited, self.checkpoint) = (awaited, outbound.next_checkpoint());
            }
            if outbound.has_arrived(self.checkpoint) {
                self.drained = self.order.drain;
                self.ended = if ends > 0 { ends } else { self.ended };
            }
        }
        Report {
            turn: self.order.turn,
            copies: self.copies,
            drained: self.drained,
            ended: self.ended,
            heard: self.outbound.as_ref().map_or(0, Outbound::heard),
            told: self.drain_told,
        }
    }
}

/// True if this node takes a slice again that it gave a moment ago. The next owner waits longer
/// before it lets anything out without this node.
fn has_just_given(order: &Order, now: Timestamp) -> bool {
    let gave = order.gave.filter(|(epoch, _)| epoch.saturating_add(1) == order.epoch);
    gave.is_some_and(|(_, at)| now.since(at) < SURE)
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

/// Bound of the keys of a partner whose table has at most twice the room of this node's, which
/// has this number of workers.
fn most_keys(engine: &Engine, workers: usize) -> u32 {
    let most = engine.most_mappings().saturating_mul(workers as u32);
    most.saturating_mul(2).saturating_add(KEYS_OF_HELD)
}

pub(super) fn fingerprint(record: &[u8]) -> u64 {
    u64::from(crc32fast::hash(record)) | 1 << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::state::State;
    use natgate_engine::{Config, PoolConfig};
    use natgate_pair::{Confirmation, Sender, Stream};

    fn engine() -> Engine {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let config = Config { pools, ..Config::default() };
        let mut engine = Engine::new(&config, [7; 32], Timestamp(0)).expect("it is right");
        engine.join_pair();
        engine
    }

    fn stream() -> StreamId {
        let stream = Stream { epoch: 1, from: 1, to: 1 };
        StreamId { slice: 0, worker: 0, reader: 0, stream }
    }

    /// A slice without addresses, of the one worker of a node.
    fn slice() -> Slice {
        Slice::new(0, Workers { this: 0, count: 1 }, Vec::new())
    }

    /// A stream to one worker of a partner, which takes records.
    fn outbound(engine: &Engine) -> Outbound {
        let mut outbound = Outbound::new(stream(), 1, engine, Timestamp(0));
        outbound.note_ready();
        outbound
    }

    fn sender(slice: &mut Slice) -> &mut Sender {
        &mut slice.outbound.as_mut().expect("there is one").sender
    }

    fn confirmation(number: u64, missing: u32) -> Confirmation {
        Confirmation { number, missing, is_swept: true, below: 1, bits: Vec::new() }
    }

    #[test]
    fn the_port_of_a_copy_that_came_again_rests_until_its_second_end_is_confirmed() {
        let (mut engine, mut ports, mut slice) = (engine(), SharedPorts::default(), slice());
        let now = Timestamp(0);
        slice.inbound = vec![Inbound::new(Receiver::new(stream(), 100))];
        for (slot, port) in [(1, 7), (2, 8)] {
            assert!(slice.note_end(slot, (port, false), now, |_| ()), "it rests");
        }
        // The copy of one port comes again, this node gets the slice, and the mapping ends.
        slice.inbound.clear();
        slice.outbound = Some(outbound(&engine));
        assert!(
            slice.note_end(3, (7, false), now, |_| ()),
            "the partner has not confirmed the end"
        );
        sender(&mut slice).confirm(0, &confirmation(1, 0), 0);
        assert!(sender(&mut slice).is_swept());
        let order = Order { owns: true, ..Order::default() };
        let ended = slice.obey((&mut engine, &mut ports), &order, now);
        assert_eq!(ended.into_iter().collect::<Vec<_>>(), [8]);
    }

    /// The partner has not confirmed what changed before the drain: a packet of it went after its
    /// beginning, or was lost after that.
    #[test]
    fn a_drain_is_told_when_what_there_was_before_has_arrived() {
        for is_lost in [false, true] {
            let (mut engine, mut ports, mut slice) = (engine(), SharedPorts::default(), slice());
            slice.outbound = Some(outbound(&engine));
            let mut order = Order { owns: true, ..Order::default() };
            let mut turn = |slice: &mut Slice, order: &Order, now, most| {
                let now = Timestamp(now);
                slice.obey((&mut engine, &mut ports), order, now);
                let hosts = CopiedHosts::new(None, now);
                let state = (&engine, &hosts, &ports);
                slice.send(state, (now, 1100, most), None, |_| true);
                slice.report().told
            };
            assert!(sender(&mut slice).end(3, 7, 10), "it rests");
            turn(&mut slice, &order, 10, if is_lost { 4 } else { 0 });
            order.drain = 5;
            assert_eq!(turn(&mut slice, &order, 15, 0), 0);
            if is_lost {
                sender(&mut slice).expire(11, 20);
            }
            assert_eq!(turn(&mut slice, &order, 20, 4), 0);
            assert_eq!(turn(&mut slice, &order, 30, 4), 0, "it is on its way");
            let number = 1 + u64::from(is_lost);
            let below = number + 1;
            let arrived = Confirmation { below, ..confirmation(number, 9) };
            sender(&mut slice).confirm(0, &arrived, 40);
            assert_eq!(turn(&mut slice, &order, 40, 4), 5, "but for what has no place");
        }
    }

    #[test]
    fn records_are_gathered_unless_a_packet_waits_for_one() {
        let (engine, ports, mut slice) = (engine(), SharedPorts::default(), slice());
        slice.outbound = Some(outbound(&engine));
        // Number of packets with records in the turn of a millisecond.
        let sent = |slice: &mut Slice, milliseconds| {
            let now = Timestamp(0).plus(Duration::from_millis(milliseconds));
            let (hosts, mut packets) = (CopiedHosts::new(None, now), 0);
            slice.send((&engine, &hosts, &ports), (now, 1100, 4), None, |bytes| {
                let read = natgate_pair::read(bytes);
                packets += usize::from(matches!(read, Some((_, Message::Packet(_)))));
                true
            });
            packets
        };
        assert_eq!(sent(&mut slice, 9), 0);
        let change = |slice: &mut Slice, key| assert!(sender(slice).end(key, 7, 0), "it rests");
        change(&mut slice, 3);
        assert_eq!(sent(&mut slice, 10), 1, "nothing was sent a moment ago");
        change(&mut slice, 4);
        change(&mut slice, 5);
        assert_eq!([11, 12].map(|now| sent(&mut slice, now)), [0, 1]);
        let outbound = slice.outbound.as_mut().expect("there is one");
        outbound.wait_for(6, 1, Timestamp(0));
        assert_eq!(sent(&mut slice, 13), 1, "a ticket waits");
    }

    /// A worker that has not begun its part of the copy drops records.
    #[test]
    fn a_partner_gets_records_as_soon_as_it_has_answered_a_state() {
        let (engine, ports, mut slice) = (engine(), SharedPorts::default(), slice());
        slice.outbound = Some(Outbound::new(stream(), 1, &engine, Timestamp(0)));
        assert!(sender(&mut slice).end(3, 7, 0), "it rests");
        // The numbers of states and of packets.
        let sent = |slice: &mut Slice, milliseconds| {
            let now = Timestamp(0).plus(Duration::from_millis(milliseconds));
            let (hosts, mut all) = (CopiedHosts::new(None, now), (0, 0));
            slice.send((&engine, &hosts, &ports), (now, 1100, 4), None, |bytes| {
                match natgate_pair::read(bytes) {
                    Some((_, Message::State { .. })) => all.0 += 1,
                    Some((_, Message::Packet(_))) => all.1 += 1,
                    _ => {}
                }
                true
            });
            all
        };
        assert_eq!(
            [0, 5, 20, 40].map(|now| sent(&mut slice, now)),
            [(1, 0), (0, 0), (1, 0), (1, 0)]
        );
        let outbound = slice.outbound.as_mut().expect("there is one");
        outbound.answers[0] = Some(Answer::default());
        assert_eq!([45, 60, 80].map(|now| sent(&mut slice, now)), [(0, 1), (1, 0), (0, 0)]);
    }

    /// Something may be on its way when the stream begins.
    #[test]
    fn a_state_that_says_complete_says_sure_at_once() {
        for is_empty in [true, false] {
            let (mut engine, mut ports, mut slice) = (engine(), SharedPorts::default(), slice());
            slice.outbound = Some(outbound(&engine));
            let order = Order { owns: true, ..Order::default() };
            let mut receiver = Receiver::new(stream(), 100);
            assert!(is_empty || sender(&mut slice).end(3, 7, 0), "it rests");
            let mut whole = Vec::new();
            for turn in 0..300 {
                let now = Timestamp(turn * 10_000_000);
                slice.obey((&mut engine, &mut ports), &order, now);
                slice.part(now, false);
                let (hosts, mut sent) = (CopiedHosts::new(None, now), Vec::new());
                let state = (&engine, &hosts, &ports);
                slice.send(state, (now, 1100, 4), None, |message| {
                    sent.push(message.to_vec());
                    true
                });
                for message in sent {
                    let (_, read) = natgate_pair::read(&message).expect("a message");
                    if let Message::State { is_complete, origin } = read {
                        let State { is_sure, .. } = State::read(origin).expect("a state");
                        assert_eq!(is_complete, is_sure, "turn {turn}");
                        whole.extend(is_complete.then_some(turn));
                    }
                    let answer = receiver.receive(&message, now.0, |_, _, _| Some(1));
                    let answer = answer.as_ref().and_then(|bytes| natgate_pair::read(bytes));
                    if let Some((_, Message::Confirmation(one))) = answer {
                        sender(&mut slice).confirm(0, &one, now.0);
                    }
                }
            }
            let first = u64::from(!is_empty);
            assert_eq!(whole, [first, first + 100, first + 200]);
        }
    }

    /// Packets change mappings all the time.
    #[test]
    fn a_report_of_a_drain_outlasts_later_changes() {
        let (mut engine, mut ports, mut slice) = (engine(), SharedPorts::default(), slice());
        let now = Timestamp(0);
        slice.outbound = Some(outbound(&engine));
        let mut order = Order { owns: true, drain: 5, ..Order::default() };
        let mut turn = |slice: &mut Slice, order: &Order| {
            slice.obey((&mut engine, &mut ports), order, now);
            let early = slice.report();
            let hosts = CopiedHosts::new(None, now);
            let state = (&engine, &hosts, &ports);
            slice.send(state, (now, 1100, 4), None, |_| true);
            let late = slice.report();
            [early, late].map(|report| (report.drained, report.ended))
        };
        let change = |slice: &mut Slice| assert!(sender(slice).change(3, 0));
        let lacks = |slice: &mut Slice, number, missing| {
            sender(slice).confirm(0, &confirmation(number, missing), 0);
        };
        assert_eq!(turn(&mut slice, &order), [(0, 0), (5, 0)], "when all has arrived");
        change(&mut slice);
        order.ends = 9;
        assert_eq!(turn(&mut slice, &order), [(5, 0), (5, 9)], "and again after the order");
        change(&mut slice);
        assert_eq!(slice.report().ended, 9);
        order.ends = 0;
        turn(&mut slice, &order);
        change(&mut slice);
        order.ends = 10;
        assert_eq!(turn(&mut slice, &order)[0].1, 9, "of the former order only");
        assert_eq!(slice.report().ended, 10);
        lacks(&mut slice, 1, 1);
        assert_eq!((slice.report().drained, slice.report().ended), (0, 0), "a copy is missing");
        lacks(&mut slice, 2, 0);
        assert_eq!(turn(&mut slice, &order), [(0, 0), (5, 10)], "all has arrived again");
        order.turn += 1;
        assert_eq!(turn(&mut slice, &order)[1], (0, 0), "the stream has ended");
    }
}
