//! The stream of a slice's records that a worker of the partner receives: which records belong to
//! its part of the copy, and what is refused.

use super::refusal::{self, Refusal, Refused, RefusedKey};
use super::shared_ports::SharedPorts;
use super::slice::{HELD, PROTOCOLS, arithmetic_of, fingerprint, is_in};
use super::state::{Answer, State};
use crate::alg::{MappingEnds, divide, internal_of, print_with};
use crate::pcp::Told;
use natgate_engine::{
    AddressRange, Arithmetic, Copied, Copies, CopyEnds, Endpoint, Engine, Timestamp,
};
use natgate_ipv6::CopiedHosts;
use natgate_pair::{Message, Packet, Receiver, StreamId, write_opinion, write_refused};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Age up to which the owner's word that it is sure counts. It waits longer before it lets anything
/// out without the partner.
pub(super) const SURE: Duration = Duration::from_secs(10);

/// The stream that this node receives.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) receiver: Receiver,
    /// `None` before the origin has come.
    pub(super) copies: Option<Copies>,
    /// The arithmetic of the owner, as it told last; and the keys in which this node has another.
    /// If there is one, no record belongs to the copy.
    arithmetic: Option<Arithmetic>,
    differences: Vec<&'static str>,
    refused: Refused,
    /// Time of the latest state, of the owner's scale. An earlier one says nothing.
    latest: u64,
    /// Latest time at which the owner said that the copy was complete; and whether its last word
    /// was so.
    pub(super) completed: Option<Timestamp>,
    pub(super) is_complete: bool,
    /// True if that word also said that the owner had let nothing out before this node had it.
    pub(super) is_whole: bool,
    /// Time of the latest state in which the owner said that it let nothing out before this node
    /// had it, of the owner's scale; 0: there was none.
    sure: u64,
    /// Time since which the owner has not known all control flows, by its latest state.
    pub(super) doubted: Option<Timestamp>,
    /// The gateways that are others at the owner, by its latest state.
    other_gateways: Vec<&'static str>,
    /// The last loss of requested mappings, as the owner has just told it; and the mark of the one
    /// that this node has taken note of.
    pub(super) epoch: Option<Told>,
    pub(super) heard: u64,
    /// True if a state waits for its answer.
    must_answer: bool,
}

/// The mapping of a record, with its internal endpoint at this node.
fn mapping_of(record: &[u8], internal: Option<Endpoint>) -> Option<MappingEnds> {
    let CopyEnds { protocol, external: (address, port), .. } = CopyEnds::read(record)?;
    Some((protocol, Endpoint { address, port }, internal))
}

impl Inbound {
    pub(super) fn new(receiver: Receiver) -> Self {
        Self {
            receiver,
            copies: None,
            arithmetic: None,
            differences: Vec::new(),
            refused: Refused::default(),
            latest: 0,
            completed: None,
            is_complete: false,
            is_whole: false,
            sure: 0,
            doubted: None,
            other_gateways: Vec::new(),
            epoch: None,
            heard: 0,
            must_answer: false,
        }
    }

    /// Hears a state of the owner. [`Inbound::answer`] is due afterwards.
    pub(super) fn hear(
        &mut self,
        (engine, hosts, ports): (&Engine, &CopiedHosts<'_>, &SharedPorts),
        ranges: &[AddressRange],
        (is_complete, bytes): (bool, &[u8]),
        now: Timestamp,
    ) {
        let Some(state) = State::read(bytes).filter(|state| state.sent > self.latest) else {
            return;
        };
        self.must_answer = true;
        self.latest = state.sent;
        self.sure = if state.is_sure { state.sent } else { self.sure };
        let doubt = state.controls.and_then(|controls| controls.doubt);
        self.doubted = doubt.map(|age| Timestamp(now.0.saturating_sub(age.as_nanos() as u64)));
        let gateways = state.controls.and_then(|controls| controls.gateways);
        self.other_gateways =
            gateways.map_or(Vec::new(), |its| refusal::other_gateways(its, ports.gateways()));
        self.epoch = state.epoch;
        self.receiver.observe(state.sent, now.0);
        self.arithmetic = Some(state.arithmetic);
        self.compare((engine, hosts), ranges);
        if self.copies.is_none() {
            self.copies = engine.begin_copies(state.origin).ok();
        }
        self.is_complete = is_complete && self.accepts() && self.receiver.has_all();
        // Versions of the link before 5 have no control flows.
        self.is_whole = self.is_complete && (state.is_sure || state.controls.is_none());
        if self.is_complete {
            self.completed = Some(now);
        }
    }

    /// True if the owner let nothing out that this node does not have, if its process has ended by
    /// now.
    pub(super) fn is_sure(&self, now: Timestamp) -> bool {
        let sure = self.receiver.translation().translate(self.sure).filter(|_| self.sure > 0);
        sure.is_some_and(|sure| now.since(Timestamp(sure)) < SURE)
    }

    /// The answer to the latest state, once. `epoch` is the last loss of requested mappings that
    /// this node knows.
    pub(super) fn answer(&mut self, epoch: Option<Told>) -> Option<Vec<u8>> {
        std::mem::take(&mut self.must_answer).then(|| {
            let answer = Answer { heard: self.heard, epoch, refusal: self.refusal() };
            write_opinion(self.receiver.id(), &answer.write())
        })
    }

    /// True if the copy is not complete, and no place or setting is missing for it.
    pub(super) fn is_under_way(&self) -> bool {
        !self.is_complete && self.accepts() && self.receiver.has_all()
    }

    fn accepts(&self) -> bool {
        self.copies.is_some() && self.differences.is_empty()
    }

    fn compare(&mut self, (engine, hosts): (&Engine, &CopiedHosts<'_>), ranges: &[AddressRange]) {
        let own = arithmetic_of(engine, hosts, ranges);
        self.differences = self.arithmetic.as_ref().map_or(Vec::new(), |its| own.differences(its));
    }

    /// This node has got other settings. Returns a request for what had no place before.
    pub(super) fn renew(
        &mut self,
        (engine, hosts): (&Engine, &CopiedHosts<'_>),
        ranges: &[AddressRange],
    ) -> Option<Vec<u8>> {
        self.compare((engine, hosts), ranges);
        self.refused.renew();
        engine.renew_copies(self.copies.as_mut()?);
        self.receiver.ask_again()
    }

    /// What this node refuses to copy.
    pub(super) fn refusal(&self) -> Refusal {
        let other_gateways = self.other_gateways.clone();
        Refusal { other_gateways, ..self.refused.refusal(self.differences.clone()) }
    }

    /// The keys that no place at this node helps: their subscribers have as many hosts as possible,
    /// or a gateway is missing.
    pub(super) fn refused_keys(&self) -> Vec<u8> {
        write_refused(self.receiver.id(), &RefusedKey::write(self.refused.incurable()))
    }

    /// Mappings of control flows that were refused, because a gateway is missing.
    pub(super) fn without_gateway(&self) -> impl Iterator<Item = MappingEnds> + '_ {
        self.refused.gatewayless().map(
            |CopyEnds { protocol, external: (address, port), .. }| {
                (*protocol, Endpoint { address: *address, port: *port }, None)
            },
        )
    }

    /// Records that were refused because of their realm.
    pub(super) fn refused_records(&self) -> u64 {
        self.refused.records()
    }

    /// Receives records or digests. Returns a request for repair. [`Inbound::confirm`] is due
    /// afterwards.
    pub(super) fn receive(
        &mut self,
        (engine, hosts, ports): (&mut Engine, &mut CopiedHosts<'_>, &mut SharedPorts),
        ranges: &[AddressRange],
        (id, message): (StreamId, Message<'_>),
        now: Timestamp,
    ) -> Option<Vec<u8>> {
        let accepts = self.accepts();
        let Self { copies, receiver, refused, .. } = self;
        let copies = copies.as_mut().filter(|_| accepts)?;
        if let Message::Packet(packet) = &message {
            fetch_for(engine, packet);
        }
        let has = |address| is_in(ranges, address);
        receiver.take((id, message), now.0, |key, record, translation| {
            if let Some(difference) = translation.difference() {
                engine.set_clock_difference(copies, difference);
            }
            refused.forget(key);
            let (record, flows) = divide(record)?;
            let before = copies.external(key);
            let has_gateways = flows.is_some() || ports.have_gateways();
            let former = before.filter(|_| has_gateways);
            let former = former.and_then(|_| engine.copied_facts(copies, key));
            let is_passed = is_others(engine, ports, record);
            let copied = match is_passed {
                true => pass_by(engine, copies, (key, record)),
                false => apply((engine, hosts, ports), copies, has, (key, record)),
            };
            let mut after = copies.external(key);
            before.into_iter().for_each(|port| ports.forget_copied_flows(port, former));
            let mut has_flows = flows.is_none() || is_passed;
            let facts = after.filter(|_| has_gateways);
            let facts = facts.and_then(|_| engine.copied_facts(copies, key));
            if let Some(port) = after.zip(facts) {
                has_flows |= ports.copy_flows((engine, now), port, flows);
            }
            if let Some(port) = after.filter(|_| !has_flows) {
                // Without its flows the mapping would lead connections astray.
                engine.end_copy(copies, key);
                if before != after {
                    ports.note_end(engine, port);
                }
                refused.without_gateway(key, CopyEnds::read(record)?);
                after = None;
            }
            if !has_flows {
                // A static mapping stands all the same.
                let internal = facts.as_ref().and_then(internal_of);
                ports.sever((engine, now), mapping_of(record, internal)?, false);
            }
            if let Some(port) = before.filter(|before| after != Some(*before)) {
                ports.note_end(engine, port);
            }
            if let Some(port) = after {
                let is_static = engine.is_static_copy(copies, key);
                ports.note_copy(port, is_static);
                if is_static {
                    // The copy may have been a dynamic one of the same port.
                    ports.note_static(engine, port);
                }
            }
            match copied? {
                Copied::Made(print) if after.is_some() || flows.is_none() || is_passed => {
                    Some(print_with(print, flows))
                }
                other => note_refusal(refused, ports, (key, record), other),
            }
        })
    }

    /// The confirmation of the packets that have come since the last one.
    pub(super) fn confirm(&mut self) -> Option<Vec<u8>> {
        self.receiver.confirm_taken()
    }

    /// The mapping in a slot has ended by itself. Returns a request for its record, if it was a
    /// copy.
    pub(super) fn lose(&mut self, slot: u32) -> Option<Vec<u8>> {
        let key = self.copies.as_ref().and_then(|copies| copies.key(slot))?;
        self.receiver.lose(key)
    }
}

/// Notes the realm or the host for which a record has no place. What fits stays, and the record
/// counts as missing.
fn note_refusal(
    refused: &mut Refused,
    ports: &SharedPorts,
    (key, record): (u32, &[u8]),
    copied: Copied,
) -> Option<u64> {
    match copied {
        Copied::NoRealm if ports.tells_of_realms() => {
            refused.without_realm(key, CopyEnds::realm(record).unwrap_or_default());
        }
        Copied::NoNumber(why) => refused.without_number(key, why, CopyEnds::read(record)?),
        Copied::Made(_) | Copied::Part | Copied::NoPlace | Copied::NoRealm => {}
    }
    None
}

/// Fetches the memory that the records of a packet will need.
fn fetch_for(engine: &Engine, packet: &Packet<'_>) {
    let mut memory = Vec::new();
    packet.records().for_each(|record| engine.fetch_for_copy(record.whole(&mut memory)));
}

/// True if the mapping of a record is another worker's matter. Ends and held ports are of all.
fn is_others(engine: &Engine, ports: &SharedPorts, record: &[u8]) -> bool {
    !record.is_empty() && !record.starts_with(&HELD) && !ports.has_record(engine, record)
}

/// The key has a mapping of another worker: here it has none.
fn pass_by(
    engine: &mut Engine,
    copies: &mut Copies,
    (key, record): (u32, &[u8]),
) -> Option<Copied> {
    engine.end_copy(copies, key);
    Engine::copy_print(record).map(Copied::Made)
}

/// Applies the record of a key to the copy. An address that is not of the slice is refused. Of held
/// ports the worker holds those that it gives out itself, unless another worker has their mapping.
fn apply(
    (engine, hosts, shared): (&mut Engine, &mut CopiedHosts<'_>, &SharedPorts),
    copies: &mut Copies,
    has: impl Fn(Ipv4Addr) -> bool,
    (key, record): (u32, &[u8]),
) -> Option<Copied> {
    if record.is_empty() {
        engine.end_copy(copies, key);
        return None;
    }
    let Some(held) = record.strip_prefix(&HELD) else {
        let is_its = CopyEnds::read(record).is_some_and(|ends| has(ends.external.0));
        return is_its.then(|| engine.copy(copies, hosts, (key, record)).ok()).flatten();
    };
    let ([protocol, a, b, c, d], ports) = held.split_first_chunk()?;
    let (ports, odd) = ports.as_chunks();
    if !PROTOCOLS.contains(protocol) || !odd.is_empty() {
        return None;
    }
    let address = Ipv4Addr::new(*a, *b, *c, *d);
    let mut bits = [0_u64; 1024];
    let ports = ports.iter().map(|port| u16::from_le_bytes(*port));
    for port in ports.filter(|port| shared.holds(*protocol, address, *port)) {
        bits[usize::from(port) / 64] |= 1 << (port % 64);
    }
    let are_held = has(address) && engine.hold_ports(address, *protocol, &bits);
    are_held.then(|| Copied::Made(fingerprint(record)))
}
