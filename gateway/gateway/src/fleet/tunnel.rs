//! The tunnel between the nodes of a pair, as a worker sees it that passes packets on: which of its
//! packets are of slices whose owner is there ([`presence`]), and their datagrams ([`message`]).
//!
//! The owner's leading worker takes the packets ([`arrivals`]). A packet that has come by the
//! tunnel is not passed on again. See `docs/design/pair.md`.

mod arrivals;
pub(super) mod message;
mod presence;
mod ways;

pub(super) use arrivals::Arrivals;
pub(crate) use arrivals::PassedPacket;
pub(crate) use message::Arrival;
pub use presence::TunnelCounters;
pub(super) use presence::{CLOSED, Heard, Present, Shared};
pub(super) use ways::Ways;

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

/// Interval of looks at the routers outside.
const ROUTERS: Duration = Duration::from_millis(100);

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
    /// True if this node assigns ports of it, and if the owner does that counts as there.
    assigns: bool,
    gives: bool,
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
    /// The slices of each pool.
    slices_of: Vec<Vec<u16>>,
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
            slices_of: Vec::new(),
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
            let gives = is_there && !heard.is_closed;
            let new = Way { epoch: order.epoch, until, assigns: order.assigns, gives };
            // A later word about the same owner changes no pool.
            let facts = |way: &Way| (way.assigns, way.gives, way.until.0 > 0);
            self.is_other |= facts(&new) != facts(way);
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

    /// Finds the slices of the pools, and the owners of those in which this node assigns no port.
    fn look_at_pools(&mut self, config: &Config) {
        let Self { ranges, ways, .. } = self;
        let slices_of = |pool: &natgate_engine::PoolConfig| {
            let is_of = |first: &Ipv4Addr, last: &Ipv4Addr| {
                pool.addresses.iter().any(|range| range.first <= *last && *first <= range.last)
            };
            let slices = ranges.iter().filter(|(first, last, _)| is_of(first, last));
            slices.map(|(.., slice)| *slice).collect::<Vec<u16>>()
        };
        self.slices_of = config.pools.iter().map(slices_of).collect();
        let target = |slices: &Vec<u16>| {
            let find = |fits: &dyn Fn(&Way) -> bool| {
                let fits = |slice: &u16| ways.get(usize::from(*slice)).is_some_and(fits);
                slices.iter().copied().find(fits)
            };
            if find(&|way| way.assigns).is_some() {
                return None;
            }
            find(&|way| way.gives).or_else(|| find(&|way| way.until.0 > 0))
        };
        self.pools = self.slices_of.iter().map(target).collect();
    }

    /// True if packets of some slice go to the other node now.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        now >= self.full_until && self.ways.iter().any(|way| now < way.until)
    }

    /// The slice that an address is of, if its packets go to the other node now.
    pub(crate) fn slice_with(&self, address: Ipv4Addr, now: Timestamp) -> Option<u16> {
        self.slice(address).filter(|slice| self.is_there(*slice, now))
    }

    /// The slice that an address is of.
    fn slice(&self, address: Ipv4Addr) -> Option<u16> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= address);
        let (_, last, slice) = *self.ranges.get(after.checked_sub(1)?)?;
        (address <= last).then_some(slice)
    }

    /// True if the other node has all slices of some pools, and is there.
    pub(crate) fn has_other_all(&self, pools: &[usize], now: Timestamp) -> bool {
        let mut slices = pools.iter().filter_map(|pool| self.slices_of.get(*pool)).flatten();
        slices.all(|slice| self.is_there(*slice, now))
    }

    /// The slice of a packet from inside that goes to the other node now.
    pub(crate) fn slice_of(&self, serving: Serving, now: Timestamp) -> Option<u16> {
        match serving {
            Serving::Address(address) => self.slice_with(address, now),
            // Nobody assigns ports of a slice that drains: a port of another one is as good.
            Serving::New(address, pool) if !self.is_given_out(address) => {
                self.slice_for_new(pool, now)
            }
            Serving::New(address, _) => self.slice_with(address, now),
            Serving::Any(pool) => self.slice_for_new(pool, now),
            Serving::Nothing => None,
        }
    }

    /// True if a node assigns ports of an address, as far as this one knows.
    fn is_given_out(&self, address: Ipv4Addr) -> bool {
        let way = self.slice(address).and_then(|slice| self.ways.get(usize::from(slice)));
        way.is_some_and(|way| way.assigns || way.gives)
    }

    /// The slice that packets of new subscribers of a pool go to, if that is the other node's.
    fn slice_for_new(&self, pool: usize, now: Timestamp) -> Option<u16> {
        let slice = self.pools.get(pool).copied().flatten()?;
        self.is_there(slice, now).then_some(slice)
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

    /// Tells whether this worker delivers packets: whether its devices are up, which routers
    /// outside have not answered since the last call, and whether it finds a router besides those
    /// that are silent, or else asks for some. See [`Ways`].
    pub(crate) fn note_ways(
        &mut self,
        now: Timestamp,
        is_up: bool,
        silent: &[Ipv4Addr],
        finds_router: impl FnOnce(&[Ipv4Addr], bool) -> bool,
    ) {
        let ways = self.board.ways();
        if !is_up {
            ways.note_down(self.worker, now);
        }
        if !silent.is_empty() || now >= self.next_routers {
            self.next_routers = now.plus(ROUTERS);
            let (silent, asks) = ways.note_silent(self.worker, now, silent);
            ways.note_router(self.worker, finds_router(&silent, asks));
        }
    }

    /// Forgets silent routers outside that are no longer `hops`: the configuration has changed.
    pub(crate) fn keep_silent(&self, hops: impl Fn(Ipv4Addr) -> bool) {
        self.board.ways().keep_silent(hops);
    }

    /// Counts a packet of the tunnel that this node cannot take.
    pub(crate) fn refuse_passed(&self) {
        self.board.tunnel().refuse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{AddressRange, PoolConfig};

    /// Addresses of slices 0 and 1, and the time.
    const FIRST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    const SECOND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
    const NOW: Timestamp = Timestamp(1);

    fn own(assigns: bool) -> Order {
        Order { epoch: 1, owns: true, assigns, ..Order::default() }
    }

    fn others() -> Order {
        Order { epoch: 1, ..Order::default() }
    }

    /// The tunnel of a node that has these orders, and has heard these epochs. Both slices are in
    /// pool 0.
    fn tunnel(orders: [Order; 2], epochs: [Epoch; 2]) -> Tunnel {
        let shared = Arc::new(Shared::default());
        shared.hear(NOW, 0, &epochs, 2);
        let ranges = [(FIRST, FIRST, 0), (SECOND, SECOND, 1)].into_iter();
        let mut tunnel = Tunnel::new(0, shared, ranges);
        assert!(tunnel.shared.heard(&mut tunnel.version, &mut tunnel.heard));
        tunnel.look_at_slices(&orders);
        let addresses = vec![AddressRange { first: FIRST, last: SECOND }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        tunnel.look_at_pools(&Config { pools, ..Config::default() });
        tunnel
    }

    #[test]
    fn a_new_mapping_is_made_where_ports_are_assigned() {
        let of = |tunnel: &Tunnel, address| {
            let all = [Serving::Address(address), Serving::New(address, 0), Serving::Any(0)];
            all.map(|serving| tunnel.slice_of(serving, NOW))
        };
        let open = tunnel([others(), own(true)], [1, 0]);
        assert_eq!(of(&open, FIRST), [Some(0), Some(0), None]);
        assert_eq!(of(&open, SECOND), [None; 3]);
        // The slice drains: its flows go to the owner, and new ones do not.
        let closed = 1 | CLOSED;
        let draining = tunnel([others(), own(true)], [closed, 0]);
        assert_eq!(of(&draining, FIRST), [Some(0), None, None]);
        let both = tunnel([others(), others()], [closed, 1]);
        assert_eq!(of(&both, FIRST), [Some(0), Some(1), Some(1)]);
        assert_eq!(of(&both, SECOND), [Some(1); 3]);
        let alone = tunnel([others(), own(false)], [closed, 0]);
        assert_eq!(of(&alone, FIRST), [Some(0); 3], "nobody assigns ports");
        // This node's slice drains.
        let yields = tunnel([others(), own(false)], [1, 0]);
        assert_eq!(of(&yields, SECOND), [None, Some(0), Some(0)]);
        assert_eq!(of(&tunnel([others(), own(true)], [0, 0]), FIRST), [None; 3], "it is not there");
    }

    #[test]
    fn all_slices_of_a_pool_are_the_other_nodes_or_not() {
        let has_all = |orders, pools: &[usize]| tunnel(orders, [1, 1]).has_other_all(pools, NOW);
        assert!(has_all([others(), others()], &[0]));
        assert!(!has_all([others(), own(true)], &[0]));
        assert!(has_all([others(), own(true)], &[]), "no rule looks at ports");
    }
}
