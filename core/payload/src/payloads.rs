//! All control flows: which packets belong to one, and what became of them.
//!
//! The caller gives every packet of a mapping with a control flow, as the packet is outside. Time
//! is in seconds of the caller's choosing. [`Payloads::new`] makes the tables.

mod copies;

use crate::Side;
use crate::expectation::{Endpoints, Ports};
use crate::flow::{Fate, Flow, LONGEST, Tools};
use crate::index::{Index, Key};
use crate::kind::Kind;
use crate::message::Opened;
use crate::outbox::{self, Outbox};
use crate::protocols::Alg;
use crate::reason::Reason;
use crate::room::Room;
use crate::stream::direction::Scratch;
use crate::stream::held::WINDOW;
use crate::stream::segment::{Segment, datagram_is_valid};
use crate::stream::work::Pool;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use copies::Tracking;
use core::net::SocketAddrV4;
use natgate_wire::tcp::flags::{ACK, SYN};
use natgate_wire::{Ipv4, Udp, protocol};

pub use copies::{CopiedHost, FlowKey};

/// Sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most control flows, at least 1 and below 2^31.
    pub flows: u32,
    /// Most directions of flows that hold bytes or have edits that are not acknowledged. Each has
    /// 12 KiB. The first 256 are made at the start.
    pub buffers: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 4096, buffers: 2048 }
    }
}

/// An expectation that was made, with its protocol and its control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The protocol.
    pub kind: Kind,
    /// The control flow.
    pub flow: Endpoints,
    /// The expectation.
    pub opened: Opened,
}

/// Counters, by protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Expectations that were made.
    pub expectations: u64,
    /// What was not done, `[Reason]`.
    pub refused: [u64; Reason::ALL.len()],
}

impl Counters {
    /// Adds the counters of another worker.
    pub fn add(&mut self, other: &Self) {
        self.expectations += other.expectations;
        for (sum, one) in self.refused.iter_mut().zip(other.refused) {
            *sum += one;
        }
    }
}

/// A packet of a control flow, as the caller's tables see it.
#[derive(Clone, Copy, Debug)]
pub struct ControlPacket {
    /// Protocol of the control flow.
    pub kind: Kind,
    /// The side that the packet comes from.
    pub from: Side,
    /// Endpoints of the flow.
    pub endpoints: Endpoints,
    /// What becomes of the flow if it is not known.
    pub new_flow: NewFlow,
}

/// What becomes of a flow that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFlow {
    /// Its first packet begins it.
    Read,
    /// The protocol is off for it: it passes unread.
    Off,
    /// A rule leaves the protocol out: it passes unread, and is counted.
    LeftOut,
}

/// Reason why a saved flow is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The bytes are not those of a flow in a realm that is there, or no buffer is free.
    Damaged,
    /// The protocol is off for the flow.
    Unwanted,
    /// There is a flow with these endpoints.
    Known,
    /// There is no room.
    Full,
}

const OWN_PACKETS: usize = 32;
const EVENTS: usize = 64;
const NOTES: usize = 64;

/// All control flows.
#[derive(Debug)]
pub struct Payloads {
    index: Index,
    pub(crate) flows: Vec<Option<Flow>>,
    /// The flows with records, for the partner of a pair.
    pub(crate) tracking: Option<Tracking>,
    free: Vec<u32>,
    /// Number of flows that began outside: at most half of all.
    from_outside: usize,
    pub(crate) pool: Pool,
    scratch: Scratch,
    out: Vec<u8>,
    outbox: Outbox,
    opened: Vec<Opened>,
    refused: Vec<Reason>,
    events: VecDeque<Event>,
    counters: [Counters; Kind::ALL.len()],
    swept: usize,
}

impl Payloads {
    /// Length that the buffer of [`Payloads::poll_transmit`] needs, bytes.
    pub const BUFFER: usize = outbox::BUFFER;

    /// Empty tables. The seed is a secret: remote hosts cannot fill one place of the index.
    pub fn new(limits: Limits, seed: [u8; 32]) -> Self {
        let flows = limits.flows.clamp(1, 1 << 30);
        Self {
            index: Index::new(flows, seed),
            flows: (0..flows).map(|_| None).collect(),
            tracking: None,
            free: (0..flows).rev().collect(),
            from_outside: 0,
            pool: Pool::new(limits.buffers.min(u16::MAX - 1)),
            scratch: Scratch::new(),
            out: Vec::with_capacity(4 * WINDOW),
            outbox: Outbox::new(OWN_PACKETS),
            opened: Vec::with_capacity(NOTES),
            refused: Vec::with_capacity(NOTES),
            events: VecDeque::with_capacity(EVENTS),
            counters: [Counters::default(); Kind::ALL.len()],
            swept: 0,
        }
    }

    /// Bytes of memory that such tables take when all of them are used.
    pub fn memory(limits: Limits) -> u64 {
        let flows = limits.flows.clamp(1, 1 << 30);
        let flow = size_of::<Option<Flow>>() + size_of::<u32>();
        u64::from(flows) * flow as u64 + Index::memory(flows) + Pool::memory(limits.buffers)
    }

    /// Number of control flows.
    pub fn flows(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// Number of free buffers.
    pub fn free_buffers(&self) -> usize {
        self.pool.free()
    }

    /// Counters of a protocol.
    pub fn counters(&self, kind: Kind) -> &Counters {
        &self.counters[kind as usize]
    }

    /// The bytes of each flow, for another process with the same version of this crate. `mark`
    /// marks a realm whose hosts have the same addresses or numbers there. Flows of other realms
    /// are left out. A flow takes some hundred bytes, and up to 100 KiB while bytes wait. Calls of
    /// PPTP are the caller's.
    pub fn save(&self, mark: impl Fn(u16) -> Option<u16>) -> impl Iterator<Item = Vec<u8>> {
        self.flows.iter().flatten().filter_map(move |flow| flow.save(&self.pool, &mark))
    }

    /// Takes a flow that [`Payloads::save`] of another process has written, if its protocol is
    /// `wanted` for it. `realm`: the realm of a mark.
    ///
    /// # Errors
    /// [`RestoreError`]. Nothing has changed then.
    pub fn restore(
        &mut self,
        bytes: &[u8],
        realm: impl Fn(u16) -> Option<u16>,
        wanted: impl FnOnce(Kind, u8, &Endpoints) -> bool,
    ) -> Result<(), RestoreError> {
        let flow = Flow::restore(&mut self.pool, bytes, realm);
        self.admit(flow.ok_or(RestoreError::Damaged)?, wanted)
    }

    /// Takes a flow that another process has read.
    ///
    /// # Errors
    /// [`RestoreError`]. The flow is closed then.
    pub(crate) fn admit(
        &mut self,
        mut flow: Flow,
        wanted: impl FnOnce(Kind, u8, &Endpoints) -> bool,
    ) -> Result<(), RestoreError> {
        let Endpoints { external, remote, .. } = flow.endpoints();
        let (key, opener) = (Key::new(flow.protocol, external, remote), flow.opener());
        let refusal = if !wanted(flow.alg.kind(), flow.protocol, &flow.endpoints()) {
            Some(RestoreError::Unwanted)
        } else if self.index.get(key).is_some() {
            Some(RestoreError::Known)
        } else {
            // Nobody outside can forge what the host inside has answered.
            let has_room = match flow.has_host() {
                true => !self.free.is_empty(),
                false => !self.is_full_for(opener),
            };
            (!has_room).then_some(RestoreError::Full)
        };
        let free = if refusal.is_none() { self.free.pop() } else { None };
        let Some(at) = free else {
            flow.close(&mut self.pool);
            return Err(refusal.unwrap_or(RestoreError::Full));
        };
        self.from_outside += usize::from(opener == Side::Outside);
        self.place(key, flow, at);
        Ok(())
    }

    /// Replaces the secret of the index.
    ///
    /// # Panics
    /// If there are flows.
    pub fn set_seed(&mut self, seed: [u8; 32]) {
        assert_eq!(self.flows(), 0, "flows are filed by the former secret");
        self.index.set_seed(seed);
    }

    /// The protocol and the endpoints of a flow, from what is known of it outside.
    pub fn find(
        &self,
        number: u8,
        external: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Option<(Kind, Endpoints)> {
        let at = self.index.get(Key::new(number, external, remote))?;
        self.flows[at as usize].as_ref().map(|flow| (flow.alg.kind(), flow.endpoints()))
    }

    /// True if a flow is known and its connection has not ended.
    pub fn is_open(&self, number: u8, external: SocketAddrV4, remote: SocketAddrV4) -> bool {
        let at = self.index.get(Key::new(number, external, remote));
        let flow = at.and_then(|at| self.flows[at as usize].as_ref());
        flow.is_some_and(|flow| !flow.is_closed())
    }

    /// True if a flow is known, and the host inside has begun or answered it. Anybody outside can
    /// forge another beginning.
    pub fn has_host(&self, (number, external, remote): FlowKey) -> bool {
        let at = self.index.get(Key::new(number, external, remote));
        at.and_then(|at| self.flows[at as usize].as_ref()).is_some_and(Flow::has_host)
    }

    /// The flow of a packet, if it is known.
    pub(crate) fn known(&self, number: u8, packet: &ControlPacket) -> Option<&Flow> {
        let Endpoints { external, remote, .. } = packet.endpoints;
        let flow =
            self.flows[self.index.get(Key::new(number, external, remote))? as usize].as_ref()?;
        (flow.alg.kind() == packet.kind && flow.endpoints() == packet.endpoints).then_some(flow)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// True if there is no room for a further flow that begins on a side. Forged packets from
    /// outside fill at most half of the table.
    pub(crate) fn is_full_for(&self, opener: Side) -> bool {
        let is_much = self.from_outside >= self.flows.len().div_ceil(2);
        self.free.is_empty() || opener == Side::Outside && is_much
    }

    /// True if one more flow with an external endpoint has no place in its record for the partner.
    fn is_full_at(&self, (kind, number): (Kind, u8), external: SocketAddrV4) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.is_full(kind, number, external))
    }

    /// Each flow's protocol, IP protocol number and endpoints.
    pub fn each(&self) -> impl Iterator<Item = (Kind, u8, Endpoints)> {
        let flows = self.flows.iter().flatten();
        flows.map(|flow| (flow.alg.kind(), flow.protocol, flow.endpoints()))
    }

    /// Takes a packet of a control flow at a time in seconds. The packet may grow in its room, and
    /// is an IPv4 packet as it is outside.
    pub fn process(
        &mut self,
        now: u32,
        packet: ControlPacket,
        room: &mut Room<'_>,
        ports: &mut dyn Ports,
    ) -> Fate {
        let Ok(header) = Ipv4::new_checked(room.bytes()) else { return Fate::Pass };
        let (transport, number) = (header.header_len(), header.protocol());
        if header.is_fragment() {
            self.count(packet.kind, Reason::Fragment);
            return self.take_fragment(number, &packet.endpoints);
        }
        room.set_len(usize::from(header.total_len()));
        match number {
            protocol::TCP => self.process_segment(now, packet, room, ports),
            protocol::UDP => {
                self.process_datagram(now, packet, transport, room, ports);
                Fate::Pass
            }
            _ => Fate::Pass,
        }
    }

    /// A first fragment is not read. It does not pass if its bytes would come to another place of
    /// the stream than those of whole segments.
    fn take_fragment(&self, number: u8, Endpoints { external, remote, .. }: &Endpoints) -> Fate {
        let at = self.index.get(Key::new(number, *external, *remote));
        let flow = at.and_then(|at| self.flows[at as usize].as_ref());
        let goes_astray = flow.is_some_and(|flow| flow.needs_all_segments(&self.pool));
        if goes_astray { Fate::Held } else { Fate::Pass }
    }

    fn process_segment(
        &mut self,
        now: u32,
        packet: ControlPacket,
        room: &mut Room<'_>,
        ports: &mut dyn Ports,
    ) -> Fate {
        let Some(segment) = Segment::parse(room.bytes()) else {
            self.count(packet.kind, Reason::BadChecksum);
            return Fate::Pass;
        };
        let begins = segment.has(SYN) && !segment.has(ACK);
        let Some(at) = self.flow(now, packet, protocol::TCP, begins) else { return Fate::Pass };
        self.with(now, packet.kind, at, ports, |flow, tools| {
            flow.take_segment(packet.from, &segment, room, tools)
        })
        .unwrap_or(Fate::Pass)
    }

    fn process_datagram(
        &mut self,
        now: u32,
        packet: ControlPacket,
        transport: usize,
        room: &mut Room<'_>,
        ports: &mut dyn Ports,
    ) {
        let bytes = room.bytes();
        let Some(datagram) = Udp::new_checked(&bytes[transport..]) else { return };
        if usize::from(datagram.length()) != bytes.len() - transport {
            return;
        }
        if !datagram_is_valid(bytes, transport) {
            return self.count(packet.kind, Reason::BadChecksum);
        }
        let Some(at) = self.flow(now, packet, protocol::UDP, true) else { return };
        let places = (transport, transport + natgate_wire::udp::HEADER_LEN);
        self.with(now, packet.kind, at, ports, |flow, tools| {
            flow.take_datagram(packet.from, places, room, tools);
        });
        if self.flows[at as usize].as_ref().is_some_and(|flow| flow.alg.is_idle()) {
            self.remove(at);
        }
    }

    /// Lets a flow take a packet, and counts what came of it.
    fn with<R>(
        &mut self,
        now: u32,
        kind: Kind,
        at: u32,
        ports: &mut dyn Ports,
        take: impl FnOnce(&mut Flow, &mut Tools<'_>) -> R,
    ) -> Option<R> {
        let flow = self.flows[at as usize].as_mut()?;
        let mut tools = Tools {
            now: now.wrapping_add(flow.shift),
            pool: &mut self.pool,
            scratch: &mut self.scratch,
            out: &mut self.out,
            outbox: &mut self.outbox,
            ports,
            opened: &mut self.opened,
            refused: &mut self.refused,
        };
        let result = take(flow, &mut tools);
        let tracking = self.tracking.as_mut();
        let has_place = tracking.is_none_or(|tracking| tracking.note(flow, at, &self.pool));
        let counters = &mut self.counters[kind as usize];
        for reason in self.refused.drain(..) {
            counters.refused[reason as usize] += 1;
        }
        for opened in self.opened.drain(..) {
            counters.expectations += 1;
            if self.events.len() < EVENTS {
                self.events.push_back(Event { kind, flow: flow.endpoints(), opened });
            }
        }
        if !has_place {
            self.remove(at);
            self.count(kind, Reason::NoFlow);
        }
        Some(result)
    }

    /// The flow of a packet: the one that is there, or a new one if the packet begins a flow.
    fn flow(&mut self, now: u32, packet: ControlPacket, number: u8, begins: bool) -> Option<u32> {
        let ControlPacket { kind, from, endpoints, new_flow } = packet;
        let key = Key::new(number, endpoints.external, endpoints.remote);
        if let Some(at) = self.index.get(key) {
            let is_over = self.flows[at as usize].as_ref().is_none_or(|flow| {
                flow.alg.kind() != kind
                    || flow.endpoints() != endpoints
                    || (begins && flow.is_closed())
            });
            if !is_over {
                return Some(at);
            }
            self.remove(at);
        }
        let refusal = match new_flow {
            NewFlow::Off => return None,
            NewFlow::LeftOut if begins => Some(Reason::Rule),
            NewFlow::LeftOut => return None,
            NewFlow::Read if !begins => Some(Reason::NoStart),
            NewFlow::Read => {
                let is_full =
                    self.is_full_for(from) || self.is_full_at((kind, number), endpoints.external);
                is_full.then_some(Reason::NoFlow)
            }
        };
        if let Some(reason) = refusal {
            self.count(kind, reason);
            return None;
        }
        let at = self.free.pop()?;
        let flow = Flow::new(endpoints, number, from, Alg::new(kind), now);
        self.from_outside += usize::from(from == Side::Outside);
        self.place(key, flow, at);
        Some(at)
    }

    fn place(&mut self, key: Key, flow: Flow, at: u32) {
        if let Some(tracking) = &mut self.tracking {
            tracking.add(&flow, at, &self.pool);
        }
        self.flows[at as usize] = Some(flow);
        self.index.insert(key, at);
    }

    pub(crate) fn remove(&mut self, at: u32) {
        if let Some(mut flow) = self.flows[at as usize].take() {
            if let Some(tracking) = &mut self.tracking {
                tracking.remove(&flow);
            }
            let Endpoints { external, remote, .. } = flow.endpoints();
            self.index.remove(Key::new(flow.protocol, external, remote));
            flow.close(&mut self.pool);
            self.from_outside -= usize::from(flow.opener() == Side::Outside);
            self.free.push(at);
        }
    }

    /// Looks at the next flows, and forgets those without packets for too long. After 64 sweeps it
    /// has looked at each flow. Copies that are `kept` last on, and their time begins anew: the
    /// other node ends them.
    pub fn sweep(&mut self, now: u32, kept: impl Fn(&Endpoints) -> bool) {
        for _ in 0..self.flows.len().min(64).max(self.flows.len().div_ceil(64)) {
            self.swept = (self.swept + 1) % self.flows.len();
            let Some(flow) = self.flows[self.swept].as_mut() else { continue };
            let is_copy = self.tracking.as_ref().is_some_and(|tracking| tracking.is_copy(flow));
            let now = now.wrapping_add(flow.shift);
            // A time beyond that of any flow is none.
            let is_over = flow.expires <= now || flow.expires - now > LONGEST;
            if is_copy && kept(&flow.endpoints()) {
                flow.expires = now.saturating_add(LONGEST);
            } else if is_over {
                self.remove(self.swept as u32);
            }
        }
    }

    /// The next expectation that was made and not reported.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Copies the next packet of the framework's own to a buffer: the side to send it to, and its
    /// length. It is in the outside form: to the inside, the engine has to translate it.
    ///
    /// # Panics
    /// When the buffer is shorter than [`Payloads::BUFFER`].
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<(Side, usize)> {
        assert!(buffer.len() >= Self::BUFFER);
        self.outbox.pop(buffer)
    }

    pub(crate) fn count(&mut self, kind: Kind, reason: Reason) {
        self.counters[kind as usize].refused[reason as usize] += 1;
    }
}
