//! Calls of PPTP (RFC 2637): the Call IDs of hosts inside, and the external ones in their place.
//!
//! A packet of a call has the Call ID of its receiver alone. From outside this is the external one,
//! which finds the call like a port. From inside it is the remote host's, so the call is found by
//! both hosts and this number. No mapping of the engine is like that, so calls have a table of
//! their own. A call belongs to its control connection, and has its external address.
//!
//! Hosts behind several B4s may have one address. A call of a host with a number has the number in
//! place of the host's address.
//!
//! Workers that share an external address draw external Call IDs of different classes. So no worker
//! has to know the calls of others.

use super::gre::{Datagram, Tunnel};
use crate::limits::MOST_WORKERS;
use natgate_engine::{HashKey, Timestamp};
use natgate_payload::{CallStep, Endpoints};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddrV4;

/// Most calls of a worker.
pub(super) const MOST: usize = 8192;

/// Most calls of a subscriber.
pub(super) const MOST_OF_HOST: usize = 512;

/// Time that the first packet of a call may take, seconds.
pub(super) const OPENING: u32 = 300;

/// Time without packets from inside after which a call ends, seconds: that of TCP (RFC 5382).
pub(super) const IDLE: u32 = 7440;

/// Time of a call that one of its hosts wants to end, seconds.
pub(super) const CLOSING: u32 = 60;

/// Classes of external Call IDs: the number modulo this. A worker draws from the class of its own
/// number. The first worker also has the classes that are no worker's, whatever the number of
/// workers: workers that join must not draw what others have.
const CLASSES: u16 = 2 * MOST_WORKERS as u16;

/// The worker that draws an external Call ID.
pub(super) fn likely_worker(outer: u16) -> usize {
    let class = usize::from(outer % CLASSES);
    if class < MOST_WORKERS { class } else { 0 }
}

/// Fragmented datagrams that are remembered for a call.
const DATAGRAMS: usize = 8;

/// Random numbers that are tried before all numbers in order.
const DRAWS: usize = 64;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Time of the message that made it.
    pub(super) made: Timestamp,
    pub(super) realm: u16,
    /// Ends of the control connection. A host with a number has its number.
    pub(super) internal: SocketAddrV4,
    pub(super) external: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
    /// Call ID of the host inside, and the external one.
    pub(super) own: u16,
    pub(super) outer: u16,
    /// Call ID of the remote host, as soon as it is known.
    pub(super) peer: Option<u16>,
    /// Time of its end, seconds.
    pub(super) expires: u32,
    /// True after the first packet.
    pub(super) has_begun: bool,
    /// True if a host wants the call to end.
    pub(super) is_closing: bool,
    /// Fragmented datagrams, the oldest at `oldest`.
    datagrams: [Option<Fragmented>; DATAGRAMS],
    oldest: u8,
}

/// A fragmented datagram as it comes in: the realm that it comes from, `None`: the outside.
type Fragmented = (Option<u16>, Datagram);

/// The call of a fragmented datagram, the identification that it leaves with, and the time until
/// which later fragments may come, seconds.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    slot: u32,
    identification: Option<u16>,
    until: u32,
}

/// Key of a call by its host: realm, internal and remote address, own Call ID, and the ports of the
/// control connection.
type HostKey = (u16, u32, u32, u16, u16, u16);

impl Call {
    /// A call of a host in a realm, between the ends of its control connection: their internal,
    /// external and remote ends, and the host's own and the external Call ID.
    pub(super) fn new(
        (realm, internal, external, remote): (u16, SocketAddrV4, SocketAddrV4, SocketAddrV4),
        (own, outer): (u16, u16),
    ) -> Self {
        Self {
            made: Timestamp(0),
            realm,
            internal,
            external,
            remote,
            own,
            outer,
            peer: None,
            expires: 0,
            has_begun: false,
            is_closing: false,
            datagrams: [None; DATAGRAMS],
            oldest: 0,
        }
    }

    fn host_key(&self) -> HostKey {
        let Self { realm, internal, remote, own, .. } = self;
        let (host, far) = (internal.ip().to_bits(), remote.ip().to_bits());
        (*realm, host, far, *own, internal.port(), remote.port())
    }

    /// What names a packet from outside.
    fn inbound_key(&self) -> Key {
        key(self.external, self.remote, self.outer)
    }

    /// What names a packet from inside, as it is inside.
    fn outbound_key(&self) -> Option<(u16, Key)> {
        Some((self.realm, key(self.internal, self.remote, self.peer?)))
    }

    /// What names a packet from inside, as it is outside.
    fn peer_key(&self) -> Option<Key> {
        Some(key(self.external, self.remote, self.peer?))
    }

    fn is_of(&self, flow: &Endpoints) -> bool {
        self.external == flow.external && self.remote == flow.remote
    }
}

/// Near address, remote address and Call ID.
type Key = (u32, u32, u16);

fn key(near: SocketAddrV4, remote: SocketAddrV4, call: u16) -> Key {
    (near.ip().to_bits(), remote.ip().to_bits(), call)
}

/// All calls of a worker.
#[derive(Debug)]
pub(super) struct Calls {
    slots: Vec<Option<Call>>,
    free: Vec<u32>,
    inbound: HashMap<Key, u32>,
    outbound: HashMap<(u16, Key), u32>,
    by_host: BTreeMap<HostKey, u32>,
    /// Calls by the packets of theirs that ICMP errors quote outside. Two calls of one external
    /// address may have the same.
    by_peer: BTreeSet<(Key, u32)>,
    /// Datagrams whose first fragment has passed.
    pieces: HashMap<Fragmented, Pieces>,
    /// Secret of the drawn numbers, and how many have been drawn.
    secret: HashKey,
    drawn: u64,
    swept: usize,
    /// Time of the last sweep, seconds.
    swept_at: u32,
}

impl Calls {
    /// No calls. The seed is a secret.
    pub(super) fn new(seed: [u8; 32]) -> Self {
        const PURPOSE: u64 = u64::from_le_bytes(*b"callpptp");
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            inbound: HashMap::new(),
            outbound: HashMap::new(),
            by_host: BTreeMap::new(),
            by_peer: BTreeSet::new(),
            pieces: HashMap::new(),
            secret: HashKey::from_seed(seed, PURPOSE),
            drawn: 0,
            swept: 0,
            swept_at: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inbound.is_empty()
    }

    /// Numbers of entries of the indexes.
    #[cfg(test)]
    pub(super) fn entries(&self) -> [usize; 5] {
        let Self { inbound, outbound, by_host, by_peer, pieces, .. } = self;
        [inbound.len(), outbound.len(), by_host.len(), by_peer.len(), pieces.len()]
    }

    /// Checks that the indexes name the calls that are there, and each of them.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let calls = || self.slots.iter().flatten();
        let [inbound, outbound, by_host, by_peer, _] = self.entries();
        assert_eq!((inbound, by_host), (calls().count(), calls().count()));
        assert_eq!(by_peer, calls().filter(|call| call.peer.is_some()).count());
        assert!(outbound <= by_peer && calls().count() + self.free.len() == self.slots.len());
        for (slot, call) in (0..).zip(&self.slots) {
            let Some(call) = call else { continue };
            assert_eq!(self.inbound.get(&call.inbound_key()), Some(&slot));
            assert_eq!(self.by_host.get(&call.host_key()), Some(&slot));
            assert!(call.peer_key().is_none_or(|key| self.by_peer.contains(&(key, slot))));
        }
        for (key, slot) in &self.outbound {
            assert_eq!(self.at(*slot).and_then(Call::outbound_key).as_ref(), Some(key));
        }
        for (key, pieces) in &self.pieces {
            assert!(self.at(pieces.slot).is_some_and(|call| call.datagrams.contains(&Some(*key))));
        }
    }

    fn at(&self, slot: u32) -> Option<&Call> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The slot of a control flow's call.
    fn slot_of(&self, flow: &Endpoints, own: u16) -> Option<u32> {
        let internal = flow.numbered()?;
        let (host, far) = (internal.ip().to_bits(), flow.remote.ip().to_bits());
        let key = (flow.realm, host, far, own, internal.port(), flow.remote.port());
        let slot = *self.by_host.get(&key)?;
        self.at(slot)?.is_of(flow).then_some(slot)
    }

    /// The external Call ID of a call that is there.
    pub(super) fn external(&self, flow: &Endpoints, own: u16) -> Option<u16> {
        self.at(self.slot_of(flow, own)?).map(|call| call.outer)
    }

    /// Makes a call, or begins the one that is there anew; returns its external Call ID. `worker`:
    /// the number of the worker. `host_bits`: the lower bits in which the hosts of one subscriber
    /// differ. `None`: there is no room.
    pub(super) fn open(
        &mut self,
        now: Timestamp,
        (worker, host_bits): (u16, u8),
        flow: &Endpoints,
        own: u16,
    ) -> Option<u16> {
        let expires = super::seconds(now) + OPENING;
        if let Some(slot) = self.slot_of(flow, own) {
            // The host uses the number anew: the remote host's may be another one now.
            self.set_peer(slot, None);
            let call = self.slots[slot as usize].as_mut()?;
            (call.expires, call.has_begun, call.is_closing) = (expires, false, false);
            return Some(call.outer);
        }
        let internal = flow.numbered()?;
        let Endpoints { external, remote, realm, .. } = *flow;
        let others = u32::MAX.checked_shr(32_u32.saturating_sub(host_bits.into())).unwrap_or(0);
        let (first, last) = (internal.ip().to_bits() & !others, internal.ip().to_bits() | others);
        let of_host =
            (realm, first, 0, 0, 0, 0)..=(realm, last, u32::MAX, u16::MAX, u16::MAX, u16::MAX);
        if self.inbound.len() >= MOST || self.by_host.range(of_host).count() >= MOST_OF_HOST {
            return None;
        }
        let outer = self.draw(worker, (external.ip().to_bits(), remote.ip().to_bits()))?;
        let call = Call {
            made: now,
            expires,
            ..Call::new((realm, internal, external, remote), (own, outer))
        };
        self.insert(call);
        Some(outer)
    }

    /// All calls, for another process.
    pub(super) fn carried(&self) -> impl Iterator<Item = Call> + '_ {
        self.slots.iter().flatten().copied()
    }

    /// Takes a call of another process, unless a call has its numbers, or there is no room.
    pub(super) fn adopt(&mut self, call: Call) {
        let is_known = self.inbound.contains_key(&call.inbound_key());
        if is_known || self.inbound.len() >= MOST || self.by_host.contains_key(&call.host_key()) {
            return;
        }
        let slot = self.insert(Call { peer: None, ..call });
        self.set_peer(slot, call.peer);
    }

    /// Adds a call whose external number is free.
    fn insert(&mut self, call: Call) -> u32 {
        // A call of the same host and ports, of a control flow with another external endpoint.
        if let Some(slot) = self.by_host.get(&call.host_key()) {
            self.remove(*slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(call);
        self.inbound.insert(call.inbound_key(), slot);
        self.by_host.insert(call.host_key(), slot);
        slot
    }

    /// Draws a Call ID that no call between two addresses has.
    fn draw(&mut self, number: u16, (near, far): (u32, u32)) -> Option<u16> {
        let spare = if number == 0 { MOST_WORKERS as u16..CLASSES } else { 0..0 };
        let classes: Vec<u16> = std::iter::once(number).chain(spare).collect();
        let size = u16::MAX / CLASSES + 1;
        let count = u64::from(size) * classes.len() as u64;
        let id = |place: u64| {
            let class = classes[(place / u64::from(size)) as usize];
            class + CLASSES * (place % u64::from(size)) as u16
        };
        let mut first = 0;
        for _ in 0..DRAWS {
            self.drawn += 1;
            first = self.secret.hash(self.drawn, u64::from(near) << 32 | u64::from(far)) % count;
            if self.is_free(near, far, id(first)) {
                return Some(id(first));
            }
        }
        let mut all = (first..count).chain(0..first).map(id);
        all.find(|outer| self.is_free(near, far, *outer))
    }

    /// Zero stays unused: some hosts take it for none.
    fn is_free(&self, near: u32, far: u32, outer: u16) -> bool {
        outer != 0 && !self.inbound.contains_key(&(near, far, outer))
    }

    /// [`natgate_payload::Ports::call`] for a table that does not change.
    pub(super) fn answer(&self, flow: &Endpoints, step: CallStep) -> Option<u16> {
        match step {
            CallStep::Internal(outer) => {
                let key = key(flow.external, flow.remote, outer);
                let call = self.at(*self.inbound.get(&key)?)?;
                call.is_of(flow).then_some(call.own)
            }
            CallStep::OfPeer(peer) => {
                let key = key(flow.external, flow.remote, peer);
                let calls = self.by_peer.range((key, 0)..=(key, u32::MAX));
                let mut calls = calls.filter_map(|(_, slot)| self.at(*slot));
                calls.find(|call| call.is_of(flow)).map(|call| call.own)
            }
            CallStep::Peer { internal, .. } => self.external(flow, internal),
            CallStep::Clear(own) | CallStep::End(own) => self.external(flow, own),
            CallStep::Restart => None,
        }
    }

    /// [`natgate_payload::Ports::call`].
    pub(super) fn step(&mut self, now: u32, flow: &Endpoints, step: CallStep) -> Option<u16> {
        let answer = self.answer(flow, step);
        let of = |own: u16| self.slot_of(flow, own);
        match step {
            CallStep::Internal(_) | CallStep::OfPeer(_) => {}
            CallStep::Peer { internal, peer } => {
                if let Some(slot) = of(internal) {
                    self.set_peer(slot, Some(peer));
                }
            }
            CallStep::Clear(own) => {
                if let Some(call) = of(own).and_then(|slot| self.slots[slot as usize].as_mut()) {
                    call.is_closing = true;
                    call.expires = call.expires.min(now + CLOSING);
                }
            }
            CallStep::End(own) => {
                if let Some(slot) = of(own) {
                    self.remove(slot);
                }
            }
            CallStep::Restart => self.end_flow(flow),
        }
        answer
    }

    /// Ends all calls of a control flow.
    pub(super) fn end_flow(&mut self, flow: &Endpoints) {
        let Some(internal) = flow.numbered() else { return };
        let (host, far) = (internal.ip().to_bits(), flow.remote.ip().to_bits());
        let first = (flow.realm, host, far, 0, 0, 0);
        let last = (flow.realm, host, far, u16::MAX, u16::MAX, u16::MAX);
        let slots: Vec<u32> = self.by_host.range(first..=last).map(|(_, slot)| *slot).collect();
        for slot in slots {
            if self.at(slot).is_some_and(|call| call.is_of(flow)) {
                self.remove(slot);
            }
        }
    }

    /// Notes the Call ID of the remote host. A newer call with the same one wins.
    fn set_peer(&mut self, slot: u32, peer: Option<u16>) {
        self.forget_peer(slot);
        let Some(call) = self.slots[slot as usize].as_mut() else { return };
        call.peer = peer;
        if let (Some(outbound), Some(quoted)) = (call.outbound_key(), call.peer_key()) {
            self.outbound.insert(outbound, slot);
            self.by_peer.insert((quoted, slot));
        }
    }

    fn forget_peer(&mut self, slot: u32) {
        let Some(call) = self.at(slot).copied() else { return };
        if let (Some(outbound), Some(quoted)) = (call.outbound_key(), call.peer_key()) {
            if self.outbound.get(&outbound) == Some(&slot) {
                self.outbound.remove(&outbound);
            }
            self.by_peer.remove(&(quoted, slot));
        }
    }

    fn remove(&mut self, slot: u32) {
        self.forget_peer(slot);
        let Some(call) = self.slots[slot as usize].take() else { return };
        for datagram in call.datagrams.iter().flatten() {
            self.forget_pieces(slot, datagram);
        }
        self.inbound.remove(&call.inbound_key());
        self.by_host.remove(&call.host_key());
        self.free.push(slot);
    }

    /// The call of a packet from outside.
    pub(super) fn of_inbound(&self, now: u32, packet: Tunnel) -> Option<Call> {
        let key = (packet.destination, packet.source, packet.call);
        self.live(now, *self.inbound.get(&key)?)
    }

    /// The call of a packet from inside.
    pub(super) fn of_outbound(&self, now: u32, realm: u16, packet: Tunnel) -> Option<Call> {
        let key = (packet.source, packet.destination, packet.call);
        self.live(now, *self.outbound.get(&(realm, key))?)
    }

    /// The call of a packet that an ICMP error from outside quotes. `None`: there is none, or more
    /// than one.
    pub(super) fn of_quoted_outside(&self, now: u32, quoted: Tunnel) -> Option<Call> {
        let key = (quoted.source, quoted.destination, quoted.call);
        let mut calls = self.by_peer.range((key, 0)..=(key, u32::MAX));
        match (calls.next(), calls.next()) {
            (Some((_, slot)), None) => self.live(now, *slot),
            _ => None,
        }
    }

    /// The call of a packet that an ICMP error from inside quotes.
    pub(super) fn of_quoted_inside(&self, now: u32, realm: u16, quoted: Tunnel) -> Option<Call> {
        let key = |port| (realm, quoted.destination, quoted.source, quoted.call, port, port);
        let mut calls = self.by_host.range(key(0)..=key(u16::MAX));
        match (calls.next(), calls.next()) {
            (Some((_, slot)), None) => self.live(now, *slot),
            _ => None,
        }
    }

    /// Notes that the first fragment of a datagram of a call has passed. Each call has a few
    /// places, of which the oldest goes.
    pub(super) fn note_first(
        &mut self,
        until: u32,
        call: &Call,
        datagram: Fragmented,
        identification: Option<u16>,
    ) {
        let Some(slot) = self.inbound.get(&call.inbound_key()).copied() else { return };
        let Some(call) = self.slots[slot as usize].as_mut() else { return };
        if !call.datagrams.contains(&Some(datagram)) {
            let place = usize::from(call.oldest);
            let before = call.datagrams[place].replace(datagram);
            call.oldest = ((place + 1) % DATAGRAMS) as u8;
            if let Some(before) = before {
                self.forget_pieces(slot, &before);
            }
        }
        self.pieces.insert(datagram, Pieces { slot, identification, until });
    }

    /// Forgets a datagram, unless it is another call's now.
    fn forget_pieces(&mut self, slot: u32, datagram: &Fragmented) {
        if self.pieces.get(datagram).is_some_and(|pieces| pieces.slot == slot) {
            self.pieces.remove(datagram);
        }
    }

    /// The call of a later fragment, and the identification that it leaves with.
    pub(super) fn of_later(&self, now: u32, datagram: Fragmented) -> Option<(Call, Option<u16>)> {
        let pieces = self.pieces.get(&datagram).filter(|pieces| pieces.until >= now)?;
        Some((self.live(now, pieces.slot)?, pieces.identification))
    }

    /// True if later fragments may come.
    pub(super) fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn live(&self, now: u32, slot: u32) -> Option<Call> {
        self.at(slot).filter(|call| call.expires > now).copied()
    }

    /// Notes that a packet of a call has passed. Only the host inside keeps its call alive.
    pub(super) fn note(&mut self, now: u32, call: &Call, is_from_inside: bool) {
        let slot = self.inbound.get(&call.inbound_key());
        let Some(call) = slot.and_then(|slot| self.slots[*slot as usize].as_mut()) else { return };
        let is_first = !call.has_begun;
        call.has_begun = true;
        if !call.is_closing && (is_first || is_from_inside) {
            call.expires = now + IDLE;
        }
    }

    /// Calls without a packet so far.
    pub(super) fn waiting(&self, now: u32) -> impl Iterator<Item = &Call> {
        self.slots.iter().flatten().filter(move |call| !call.has_begun && call.expires > now)
    }

    /// Looks at the next calls, and ends those whose time has passed or whose control connection is
    /// none any more. Does nothing if it has done so in this second.
    pub(super) fn sweep(&mut self, now: u32, mut has_connection: impl FnMut(&Call) -> bool) {
        const MOST_AT_ONCE: usize = 1024;
        if self.swept_at == now {
            return;
        }
        self.swept_at = now;
        self.pieces.retain(|_, pieces| pieces.until >= now);
        for _ in 0..self.slots.len().min(MOST_AT_ONCE) {
            self.swept = (self.swept + 1) % self.slots.len();
            let call = self.slots[self.swept].as_ref();
            if call.is_some_and(|call| call.expires <= now || !has_connection(call)) {
                self.remove(self.swept as u32);
            }
        }
    }
}
