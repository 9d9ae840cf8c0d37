//! The tunnel between the nodes of a pair, as a worker sees it that passes packets on: which of its
//! packets are of slices whose owner is there ([`presence`]), and their datagrams ([`message`]).
//!
//! The owner's leading worker takes the packets ([`arrivals`]). A packet that has come by the
//! tunnel is not passed on again. See `docs/design/pair.md`.

mod arrivals;
pub(super) mod message;
mod presence;

pub(super) use arrivals::Arrivals;
pub(crate) use arrivals::PassedPacket;
pub(crate) use message::Arrival;
pub use presence::TunnelCounters;
pub(super) use presence::{Heard, Present, Shared};

use super::board::Order;
use super::outbound::LEAST_ROOM;
use super::{Fleet, PartnerLink, TUNNEL_HEAD};
use natgate_engine::{Config, Engine, Serving, Timestamp};
use natgate_pair::Epoch;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Datagrams of the tunnel that are read for one packet.
const DATAGRAMS_AT_ONCE: usize = 64;

/// Time for which the node takes no packets of the other one after it could not deliver one.
const BLOCKED: Duration = Duration::from_secs(5);

/// Time for which packets stay at this node after the link had no room for one.
const FULL: Duration = Duration::from_millis(20);

/// Packets that wait for the end of a worker's turn.
const MOST_WAITING: usize = 1024;

/// A slice that packets may be passed on of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    /// The epoch in which the other node owns it.
    epoch: Epoch,
    /// End of the time for which the owner counts as there.
    until: Timestamp,
    /// True if this node assigns ports of it.
    assigns: bool,
}

/// A packet for the other node, in pieces.
struct Leaving {
    pieces: Vec<Vec<u8>>,
    arrival: usize,
}

/// A worker's end of the tunnel.
pub(crate) struct Tunnel {
    worker: u8,
    shared: Arc<Shared>,
    /// Ranges of addresses and their slices, in order.
    ranges: Vec<(Ipv4Addr, Ipv4Addr, u16)>,
    ways: Vec<Way>,
    /// The slice that packets of new subscribers of a pool go to. `None`: they stay.
    pools: Vec<Option<u16>>,
    /// True if the pools are to be looked at again.
    is_other: bool,
    heard: Vec<Heard>,
    version: u64,
    /// Version of the orders that it knows.
    orders: u64,
    /// Bytes that fit a datagram.
    room: usize,
    waiting: Vec<Leaving>,
    /// Time until which packets stay here, because the link had no room for some.
    full_until: Timestamp,
    /// Number of the next packet.
    number: u32,
}

impl Tunnel {
    pub(super) fn new(
        worker: usize,
        shared: Arc<Shared>,
        ranges: impl Iterator<Item = (Ipv4Addr, Ipv4Addr, u16)>,
    ) -> Self {
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable();
        Self {
            worker: worker as u8,
            shared,
            ranges,
            ways: Vec::new(),
            pools: Vec::new(),
            is_other: true,
            heard: Vec::new(),
            version: 0,
            orders: 0,
            room: LEAST_ROOM - TUNNEL_HEAD,
            waiting: Vec::new(),
            full_until: Timestamp(0),
            number: 0,
        }
    }

    /// The configuration is another one.
    pub(crate) fn renew(&mut self) {
        self.is_other = true;
    }

    /// Learns who is there, and sends what waits.
    pub(super) fn attend(
        &mut self,
        now: Timestamp,
        (orders, version): (&[Order], u64),
        config: &Config,
        link: &mut dyn PartnerLink,
    ) {
        let is_heard = self.shared.heard(&mut self.version, &mut self.heard);
        if is_heard || version != self.orders {
            self.orders = version;
            self.look_at_slices(orders);
        }
        if std::mem::take(&mut self.is_other) {
            self.look_at_pools(config);
        }
        if !self.waiting.is_empty() {
            self.room = link.room().saturating_sub(TUNNEL_HEAD);
            self.send(now, link);
        }
    }

    /// Learns whose slices are there.
    fn look_at_slices(&mut self, orders: &[Order]) {
        if self.ways.len() != orders.len() {
            self.ways = vec![Way::default(); orders.len()];
        }
        let heard = self.heard.iter().copied().chain(std::iter::repeat(Heard::default()));
        for ((way, order), heard) in self.ways.iter_mut().zip(orders).zip(heard) {
            let is_there = !order.owns && heard.epoch == order.epoch && heard.until.0 > 0;
            let until = if is_there { heard.until } else { Timestamp(0) };
            let new = Way { epoch: order.epoch, until, assigns: order.assigns };
            // A later word about the same owner changes no pool.
            self.is_other |= new.assigns != way.assigns || (new.until.0 > 0) != (way.until.0 > 0);
            *way = new;
        }
    }

    fn send(&mut self, now: Timestamp, link: &mut dyn PartnerLink) {
        for Leaving { pieces, arrival } in self.waiting.drain(..) {
            let is_sent = pieces.iter().all(|piece| link.pass(piece));
            if !is_sent {
                self.full_until = now.plus(FULL);
            }
            self.shared.count(|counters| match is_sent {
                true => counters.passed[arrival] += 1,
                false => counters.full += 1,
            });
        }
    }

    /// Finds the owners of the pools in which this node assigns no port.
    fn look_at_pools(&mut self, config: &Config) {
        let Self { ranges, ways, .. } = self;
        let slice_of = |pool: &natgate_engine::PoolConfig| {
            let is_of = |first: &Ipv4Addr, last: &Ipv4Addr| {
                pool.addresses.iter().any(|range| range.first <= *last && *first <= range.last)
            };
            let slices = || ranges.iter().filter(|(first, last, _)| is_of(first, last));
            let way = |slice: u16| ways.get(usize::from(slice));
            if slices().any(|(.., slice)| way(*slice).is_some_and(|way| way.assigns)) {
                return None;
            }
            let is_there = |slice: &u16| way(*slice).is_some_and(|way| way.until.0 > 0);
            slices().map(|(.., slice)| *slice).find(is_there)
        };
        self.pools = config.pools.iter().map(slice_of).collect();
    }

    /// True if packets of some slice go to the other node now.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        now >= self.full_until && self.ways.iter().any(|way| now < way.until)
    }

    /// The slice that an address is of, if its packets go to the other node now.
    pub(crate) fn slice_with(&self, address: Ipv4Addr, now: Timestamp) -> Option<u16> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= address);
        let (_, last, slice) = *self.ranges.get(after.checked_sub(1)?)?;
        (address <= last && self.is_there(slice, now)).then_some(slice)
    }

    /// The slice of a packet from inside that goes to the other node now.
    pub(crate) fn slice_of(&self, serving: Serving, now: Timestamp) -> Option<u16> {
        match serving {
            Serving::Address(address) => self.slice_with(address, now),
            Serving::Any(pool) => {
                let slice = self.pools.get(pool).copied().flatten()?;
                self.is_there(slice, now).then_some(slice)
            }
            Serving::Nothing => None,
        }
    }

    fn is_there(&self, slice: u16, now: Timestamp) -> bool {
        let is_there = |way: &Way| now < way.until && now >= self.full_until;
        self.ways.get(usize::from(slice)).is_some_and(is_there)
    }

    /// Passes a packet of a slice on at the end of the turn. Returns false if there is no room: the
    /// copies translate then.
    pub(crate) fn pass(&mut self, slice: u16, arrival: Arrival<'_>, packet: &[u8]) -> bool {
        let Some(way) = self.ways.get(usize::from(slice)) else { return false };
        if self.waiting.len() >= MOST_WAITING {
            self.shared.count(|counters| counters.full += 1);
            return false;
        }
        let id = message::Id { slice, epoch: way.epoch, worker: self.worker, number: self.number };
        self.number = self.number.wrapping_add(1);
        match message::write(id, arrival, packet, self.room) {
            Some(pieces) => {
                self.waiting.push(Leaving { pieces, arrival: arrival.place() });
                true
            }
            None => {
                self.shared.count(|counters| counters.long += 1);
                false
            }
        }
    }
}

impl Fleet {
    /// This worker's end of the tunnel.
    pub(crate) fn tunnel(&self) -> Tunnel {
        let slices = (0_u16..).zip(&self.slices);
        let ranges = slices.flat_map(|(number, slice)| {
            slice.ranges().iter().map(move |range| (range.first, range.last, number))
        });
        Tunnel::new(self.worker, Arc::clone(self.board.tunnel()), ranges)
    }

    /// Sends the packets of a turn that the tunnel has, and tells it who is there.
    pub(crate) fn attend_tunnel(&mut self, now: Timestamp, tunnel: &mut Tunnel, engine: &Engine) {
        tunnel.attend(now, (&self.orders, self.version), engine.config(), &mut *self.link);
    }

    /// The next packet that has come by the tunnel. `None`: there is none, or another worker leads.
    pub(crate) fn next_passed(&mut self, now: Timestamp) -> Option<PassedPacket> {
        let lead = self.lead.as_mut()?;
        for _ in 0..DATAGRAMS_AT_ONCE {
            let datagram = self.link.passed()?;
            if let Some(packet) = lead.take_passed(now, &datagram, &self.orders, &self.board) {
                return Some(packet);
            }
        }
        None
    }

    /// Tells whether this worker delivers packets: its devices are up, and `silent_routers`, the
    /// number of times that a router outside did not answer, has not grown. Otherwise the other
    /// node translates by its copies for a while.
    pub(crate) fn note_ways(&mut self, now: Timestamp, is_up: bool, silent_routers: u64) {
        let is_silent =
            std::mem::replace(&mut self.silent_routers, silent_routers) != silent_routers;
        if is_silent || !is_up {
            self.board.block(self.worker, now.plus(BLOCKED));
        }
    }

    /// Counts a packet of the tunnel that this node cannot take.
    pub(crate) fn refuse_passed(&self) {
        self.board.tunnel().refuse();
    }
}
