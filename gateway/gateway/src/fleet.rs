//! One of two gateways that share external addresses (`docs/design/pair.md`).
//!
//! The workers' threads do everything but the transport. The first worker leads: it decides about
//! the ownership of slices ([`lead`]), and tells all workers by a board ([`board`]). Each worker
//! sends records of its own engine's mappings, and has the copies of those whose hosts are its own.
//! The number of the partner's workers comes with the partner's views.
//! [`PartnerLink`] carries the messages; it has a thread of its own.

mod binding;
mod board;
mod controls;
mod history;
mod inbound;
mod lead;
mod outbound;
mod partner_link;
mod refusal;
mod shared_ports;
mod slice;
mod starts;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod tunnel;
mod young;

pub use crate::fleet_settings::{FleetSettings, PartnerSettings, SliceSettings};
pub use natgate_pair::{Node, ReceivedCounters, Sent};
pub use partner_link::{PartnerLink, TUNNEL_HEAD};
pub use refusal::Refusal;
pub use status::{FleetStatus, LinkStatus, SliceChange, SliceOwner, SliceStatus};
pub use tunnel::TunnelCounters;
pub(crate) use tunnel::{Arrival, PassedPacket, Tunnel};

use crate::alg::Algs;
use crate::pcp::CommonEpoch;
use crate::team::Partition;
use board::{AllFigures, Board, Order};
use inbound::Inbound;
use lead::{Asked, Lead};
use natgate_engine::{CopyChange, Endpoint, Engine, PairPort, Timestamp};
use natgate_ipv6::CopiedHosts;
use outbound::{LEAST_ROOM, Outbound};
use shared_ports::SharedPorts;
use slice::{Slice, Workers};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// Packets of a slice that are sent in one turn.
const SENT_A_TURN: usize = 8;

/// Messages that a worker takes in one turn.
const TAKEN_A_TURN: usize = 64;

/// Longest time without a turn while there is a partner.
const INTERVAL: Duration = Duration::from_millis(5);

/// Time without a turn while packets or confirmations of a copy that is not complete come: one node
/// waits for the other one's next message then.
const COPYING: Duration = Duration::from_micros(200);

/// Interval of looks at the state of the link.
const LOOKS: Duration = Duration::from_millis(20);

/// Interval of looks at the orders, unless something has happened.
const SETTLES: Duration = Duration::from_millis(1);

/// Interval of the figures that a worker tells the leading one.
const FIGURES: Duration = Duration::from_millis(100);

/// A turn that comes later than this after the one before: the process stood still.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// Ports whose rest ends in one turn.
const RESTS_A_TURN: usize = 1024;

/// Requests that may wait.
const MOST_WAITING: usize = 4;

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetRequest {
    /// The state.
    Status,
    /// The node gives its slices to the other.
    Drain(String),
    /// A slice, by its number from 0 on, goes to a node.
    Move(usize, String),
    /// The node has ended and does not run anywhere.
    Forget(String),
}

/// Answer to a request: the state after it, or the reason of a refusal.
pub type FleetAnswer = Result<FleetStatus, String>;

/// Sender of requests to the worker. Clones send to the same worker.
#[derive(Clone, Debug)]
pub struct FleetAsker(SyncSender<Asked>);

impl FleetAsker {
    /// Makes a request and waits for the answer.
    ///
    /// # Errors
    /// The reason of the refusal, one sentence.
    pub fn ask(&self, request: FleetRequest) -> FleetAnswer {
        let stopping = || "the gateway is stopping".to_owned();
        let (reply, answer) = sync_channel(1);
        self.0.send((request, reply)).map_err(|_| stopping())?;
        answer.recv().map_err(|_| stopping())?
    }
}

/// A worker's part in a node of a pair.
pub struct Fleet {
    worker: usize,
    board: Arc<Board>,
    /// The leading worker's decisions.
    lead: Option<Lead>,
    link: Box<dyn PartnerLink>,
    slices: Vec<Slice>,
    ports: SharedPorts,
    /// The orders that are in force.
    orders: Vec<Order>,
    version: u64,
    /// Messages that came before these orders and are not taken yet.
    before_orders: usize,
    /// True if more messages wait than the last turn took.
    is_behind: bool,
    /// Time of the last turn that took a message of a copy that is not complete.
    copied: Timestamp,
    /// True if the partner could take more records than the last turn sent.
    has_more: bool,
    /// Ports whose rest has ended.
    ending: VecDeque<u128>,
    changes: Vec<CopyChange>,
    last_turn: Timestamp,
    next_settle: Timestamp,
    next_figures: Timestamp,
    /// State of the link at the last look.
    link_status: LinkStatus,
    next_look: Timestamp,
    /// True if packets of control flows wait for the partner, and true if the node has gateways.
    has_waiting: bool,
    /// Time up to which records are gathered, if there are some.
    gathered: Option<Timestamp>,
    has_algs: bool,
    /// True if the partner's version of the link had no control flows at the last connection.
    lacks_flows: bool,
    /// True if that version had no sums over the settings of gateways in states.
    lacks_sums: bool,
    /// Number of requested mappings that the engine has lost.
    lost: u64,
    /// Time of the next look at the routers outside.
    next_routers: Timestamp,
    /// Messages that are read before this time may have waited long, because the process stood
    /// still.
    late_until: Timestamp,
}

impl Fleet {
    /// Begins as a node with one worker, as [`Fleet::team`].
    ///
    /// # Errors
    /// As [`Fleet::team`].
    pub fn new(
        settings: FleetSettings,
        link: Box<dyn PartnerLink>,
        random: u32,
    ) -> io::Result<(Self, FleetAsker)> {
        let (fleets, asker) = Self::team(settings, vec![link], random)?;
        fleets.into_iter().next().map(|fleet| (fleet, asker)).ok_or_else(no_worker)
    }

    /// Begins as a node that owns nothing, and counts a start in the file of the settings. Each
    /// worker has a handle of the link to the partner; the first worker leads, and only its handle
    /// receives. `random` tells apart starts with the same number, after a disk was lost.
    ///
    /// # Errors
    /// The file of starts can be neither read nor replaced, or there is no worker.
    pub fn team(
        settings: FleetSettings,
        links: Vec<Box<dyn PartnerLink>>,
        random: u32,
    ) -> io::Result<(Vec<Self>, FleetAsker)> {
        let boot = starts::count(&settings.starts, (0, random))?;
        let (sender, requests) = sync_channel(MOST_WAITING);
        let epoch = CommonEpoch::new(u8::from(settings.this() == Node::B));
        let count = links.len();
        let board = Arc::new(Board::new(count, epoch));
        let fleet = |(worker, link): (usize, Box<dyn PartnerLink>)| {
            let workers = Workers { this: worker as u8, count };
            let slices = (0..).zip(&settings.slices);
            let slice = |(number, slice): (u16, &SliceSettings)| {
                Slice::new(number, workers, slice.addresses.clone())
            };
            Self {
                worker,
                board: Arc::clone(&board),
                lead: None,
                link,
                slices: slices.map(slice).collect(),
                ports: SharedPorts::new(worker, Arc::clone(&board)),
                orders: Vec::new(),
                version: 0,
                before_orders: 0,
                is_behind: false,
                copied: Timestamp(0),
                has_more: false,
                ending: VecDeque::new(),
                changes: Vec::new(),
                last_turn: Timestamp(0),
                next_settle: Timestamp(0),
                next_figures: Timestamp(0),
                link_status: LinkStatus::default(),
                next_look: Timestamp(0),
                has_waiting: false,
                gathered: None,
                has_algs: false,
                lacks_flows: false,
                lacks_sums: false,
                lost: 0,
                next_routers: Timestamp(0),
                late_until: Timestamp(0),
            }
        };
        let mut fleets: Vec<Self> = links.into_iter().enumerate().map(fleet).collect();
        let lead = fleets.first_mut().ok_or_else(no_worker)?;
        lead.lead = Some(Lead::new(settings, boot, requests, random));
        Ok((fleets, FleetAsker(sender)))
    }

    /// Begins a turn, before the engine's time passes. If the process stood still, the partner has
    /// carried packets of mappings that are due here: their timers start anew.
    pub(crate) fn wake(&mut self, now: Timestamp, engine: &mut Engine) {
        if self.last_turn.0 > 0 && now.since(self.last_turn) > STOOD_STILL {
            self.slices.iter_mut().for_each(|slice| slice.keep(engine));
            self.late_until = now.plus(STOOD_STILL);
        }
    }

    /// The epoch of the pair's requested mappings.
    pub(crate) fn epoch(&self) -> MutexGuard<'_, CommonEpoch> {
        self.board.epoch()
    }

    /// The engine has other settings, and gives out the words of ports that it has by the
    /// partition.
    pub(crate) fn renew(&mut self, engine: &mut Engine, hosts: &CopiedHosts<'_>) {
        // Words of a block may be among them. The block's held ports come before a packet.
        self.ports.take_blocks(engine);
        let requests = self.slices.iter_mut().flat_map(|slice| slice.renew(engine, hosts));
        requests.for_each(|request| _ = self.link.send(request));
        self.link.flush();
        self.next_settle = Timestamp(0);
    }

    /// Does one turn's work, between two batches of packets. `hosts` are those with numbers in the
    /// engine. `algs` are the worker's gateways, and `partition` is that of several workers.
    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        (engine, algs): (&mut Engine, &mut Option<Box<Algs>>),
        hosts: &mut CopiedHosts<'_>,
        partition: Option<&Arc<Partition>>,
    ) {
        self.last_turn = now;
        self.take_algs(algs);
        self.board.count_turn(self.worker);
        self.ports.set_partition(partition);
        // A slice that is given away in this turn takes the loss along.
        let lost = engine.explicit_lost();
        if std::mem::replace(&mut self.lost, lost) != lost {
            self.board.epoch().begin(now);
        }
        // Before messages: they may give a slot to another copy.
        self.note_changes(now, engine);
        self.note_flows(now, engine);
        if let Some(lead) = &mut self.lead {
            lead.hear(now, &mut *self.link, &self.board);
        }
        self.fetch_orders();
        self.take_messages(now, engine, hosts);
        while let Some((request, reply)) = self.next_request() {
            let _ = reply.send(self.answer(request, now, engine));
        }
        if now >= self.next_settle {
            self.next_settle = now.plus(SETTLES);
            self.settle(now, engine);
        }
        self.send(now, engine, hosts);
        if self.orders.iter().any(|order| order.drain > 0) {
            self.report();
        }
        self.tell_figures(now, engine);
        let lead = self.lead.as_mut();
        if lead.is_some_and(|lead| lead.give_away(now, &self.board)) {
            self.settle(now, engine);
        }
        if let Some(lead) = &mut self.lead {
            lead.tell(now, &mut *self.link);
            lead.be_present(now, &mut *self.link, &self.board);
        }
        self.release_flows(now);
        self.link.flush();
        *algs = self.ports.algs.take();
    }

    /// Time of the next turn that is due: at once if messages or records wait, for each turn takes
    /// some; at the next look at the orders if one of its works is not done.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        if self.is_behind || self.has_more || self.lead.as_ref().is_some_and(|lead| lead.has_more) {
            return self.last_turn;
        }
        let is_guarding = self.slices.iter().any(Slice::is_guarding);
        let is_done = self.ending.is_empty() && !self.ports.has_more() && !is_guarding;
        let interval = match () {
            () if self.last_turn.since(self.copied) < INTERVAL => COPYING,
            () if self.has_waiting => SETTLES,
            () => INTERVAL,
        };
        let next = self.last_turn.plus(interval);
        let next = self.gathered.map_or(next, |gathered| gathered.min(next));
        if is_done { next } else { self.next_settle.max(self.last_turn).min(next) }
    }

    /// Owners that slices have got since the last call.
    pub(crate) fn new_owners(&mut self) -> impl Iterator<Item = SliceChange> + '_ {
        self.lead.iter_mut().flat_map(|lead| lead.owners.take_new())
    }

    fn next_request(&self) -> Option<Asked> {
        self.lead.as_ref().and_then(|lead| lead.requests.try_recv().ok())
    }

    /// Looks at the orders. Messages that came before an order are taken before it is carried out.
    fn fetch_orders(&mut self) {
        if self.board.orders(&mut self.version, &mut self.orders) {
            self.before_orders = self.board.waiting(self.worker);
        }
    }

    fn take_messages(&mut self, now: Timestamp, engine: &mut Engine, hosts: &mut CopiedHosts<'_>) {
        self.is_behind = false;
        for _ in 0..TAKEN_A_TURN {
            let Some(message) = self.board.message(self.worker) else { break };
            self.before_orders = self.before_orders.saturating_sub(1);
            self.receive(&message, now, (engine, hosts));
        }
        self.is_behind = self.board.waiting(self.worker) > 0;
        // One confirmation for all packets of the turn: each is a datagram of its own.
        let inbound = self.slices.iter_mut().flat_map(|slice| &mut slice.inbound);
        for confirmation in inbound.filter_map(Inbound::confirm) {
            self.link.send(confirmation);
        }
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
        (engine, hosts): (&mut Engine, &mut CopiedHosts<'_>),
    ) {
        let Some((id, message)) = natgate_pair::read(bytes) else { return };
        let Some(slice) = self.slices.get_mut(usize::from(id.slice)) else { return };
        if slice.is_copying(&message, now) {
            self.copied = now;
        }
        let state = (engine, hosts, &mut self.ports);
        if let Some(answer) = slice.receive(state, (id, message), now) {
            self.link.send(answer);
        }
        if let Some(outbound) = &mut slice.outbound {
            self.ending.extend(outbound.sender.released());
        }
        let is_late = now < self.late_until;
        let mut epoch = self.board.epoch();
        for told in slice.told().filter(|_| !is_late) {
            epoch.hear(told, now);
        }
        for inbound in &mut slice.inbound {
            if let Some(told) = inbound.epoch.take().filter(|_| !is_late) {
                epoch.hear(told, now);
                inbound.heard = told.1;
            }
            if let Some(answer) = inbound.answer(epoch.told(now)) {
                self.link.send(answer);
            }
        }
    }

    /// Decides, and makes engine and streams agree with the orders.
    fn settle(&mut self, now: Timestamp, engine: &mut Engine) {
        let hold_down = engine.config().timeouts.hold_down;
        self.ports.begin_turn();
        // With one worker, what an order waits for is done at once.
        for _ in 0..4 {
            let is_new = self.lead.as_mut().map(|lead| lead.decide(now, hold_down, &self.board));
            self.fetch_orders();
            if self.before_orders > 0 {
                break;
            }
            self.obey(now, engine);
            self.report();
            if is_new != Some(true) {
                break;
            }
        }
        let has_all = self.slices.iter().all(|slice| slice.has_all(now));
        engine.set_has_all(has_all);
        for _ in 0..RESTS_A_TURN {
            let Some(port) = self.ending.pop_front() else { break };
            self.ports.end_rest(engine, port);
        }
    }

    fn obey(&mut self, now: Timestamp, engine: &mut Engine) {
        self.ports.take_back(engine);
        self.ports.take_blocks(engine);
        for (slice, order) in self.slices.iter_mut().zip(&self.orders) {
            self.ending.extend(slice.obey((engine, &mut self.ports), order, now));
            slice.sweep(engine, |message| _ = self.link.send(message));
        }
        self.tell_parts(now);
    }

    fn report(&mut self) {
        self.board.report(self.worker, self.slices.iter_mut().map(Slice::report));
    }

    fn tell_figures(&mut self, now: Timestamp, engine: &Engine) {
        if self.lead.is_none() && now >= self.next_figures {
            self.next_figures = now.plus(FIGURES);
            self.board.tell_figures(self.worker, self.figures(now, engine));
        }
    }

    fn figures(&self, now: Timestamp, engine: &Engine) -> AllFigures {
        let slices = self.slices.iter().map(|slice| slice.figures(now)).collect();
        (slices, engine.resting().saturating_sub(self.ports.guards()) as u64)
    }

    /// Takes the engine's changes to the streams of their slices.
    fn note_changes(&mut self, now: Timestamp, engine: &mut Engine) {
        if engine.has_changes() {
            engine.take_changes(&mut self.changes);
        }
        for outbound in self.slices.iter_mut().filter_map(|slice| slice.outbound.as_mut()) {
            outbound.note_age(engine, now);
        }
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            match change {
                CopyChange::Changed(key) => {
                    let Some(facts) = engine.copy_facts(key) else { continue };
                    if let Some(outbound) = outbound_of(&mut self.slices, facts.address) {
                        outbound.note_change((key, &facts), now, &self.ports);
                    }
                }
                CopyChange::Ended(key, port) | CopyChange::StaticEnded(key, port) => {
                    let is_static = matches!(change, CopyChange::StaticEnded(..));
                    // Another host may get the port. One of a static mapping is its host's, and may
                    // have a mapping again.
                    if !is_static || engine.copy_key(port.protocol, port.external).is_none() {
                        self.ports.forget_flows(port);
                    }
                    let address = port.external.address;
                    let slice = self.slices.iter_mut().find(|slice| slice.has(address));
                    let send = |message| _ = self.link.send(message);
                    let end = (written(port), is_static);
                    if is_static {
                        // There is no rest, whose end would tell.
                        self.ports.note_static(engine, port);
                    }
                    if !slice.is_some_and(|slice| slice.note_end(key, end, now, send)) {
                        self.ports.end_rest(engine, written(port));
                    }
                }
            }
        }
        self.changes = changes;
    }

    fn send(&mut self, now: Timestamp, engine: &Engine, hosts: &CopiedHosts<'_>) {
        if now >= self.next_look {
            self.next_look = now.plus(LOOKS);
            let status = self.link.status();
            if status.connections != self.link_status.connections {
                let outbound = self.slices.iter_mut().filter_map(|slice| slice.outbound.as_mut());
                outbound.for_each(|outbound| outbound.sender.note_new_connection());
            }
            self.link_status = status;
        }
        (self.has_more, self.gathered) = (false, None);
        if self.link_status.connected.is_none() {
            return;
        }
        self.lacks_flows = self.link_status.lacks_flows;
        self.lacks_sums = self.link_status.lacks_sums;
        self.tell_version();
        let round_trip = self.link_status.round_trip.unwrap_or_default();
        let epoch = self.board.epoch().told(now);
        let Self { link, link_status, slices, ports, has_more, gathered, .. } = self;
        let room = link.room().max(LEAST_ROOM);
        for slice in slices {
            if let Some(outbound) = &mut slice.outbound {
                outbound.sender.leave_keys(link_status.leaves_keys);
                outbound.time_out(now, round_trip);
            }
            let send = |message: &[u8]| link.send_copy(message);
            slice.send((engine, hosts, ports), (now, room, SENT_A_TURN), epoch, send);
            if let Some(outbound) = &slice.outbound {
                *has_more |= outbound.has_more;
                let until = outbound.gathers_until(now);
                *gathered = gathered.iter().copied().chain(until).min();
            }
        }
    }

    fn answer(
        &mut self,
        request: FleetRequest,
        now: Timestamp,
        engine: &mut Engine,
    ) -> FleetAnswer {
        let link = self.link.status();
        let lead = self.lead.as_mut().ok_or("another worker leads")?;
        lead.carry_out(request, &link)?;
        self.settle(now, engine);
        self.status(now, engine).ok_or_else(|| "another worker leads".to_owned())
    }

    /// State of the pair. `None`: another worker leads.
    fn status(&self, now: Timestamp, engine: &Engine) -> Option<FleetStatus> {
        let lead = self.lead.as_ref()?;
        let (mut slices, mut resting) = self.figures(now, engine);
        for worker in 1..self.board.workers() {
            let (others, rest) = self.board.figures(worker);
            resting += rest;
            for (figures, other) in slices.iter_mut().zip(&others) {
                *figures = std::mem::take(figures).plus(other);
            }
            // A worker that has told nothing yet has no copy.
            let silent = slices.iter_mut().skip(others.len());
            silent.for_each(|figures| figures.is_complete = false);
        }
        let mut link = self.link.status();
        link.lacks_flows &= self.has_algs;
        Some(lead.status(now, link, (&slices, resting), self.board.tunnel()))
    }
}

fn no_worker() -> io::Error {
    io::Error::other("a node has a worker")
}

/// The stream that this worker sends of the slice with an address.
fn outbound_of(slices: &mut [Slice], address: Ipv4Addr) -> Option<&mut Outbound> {
    slices.iter_mut().find(|slice| slice.has(address))?.outbound.as_mut()
}

/// A port as a number.
fn written(PairPort { protocol, external, remote, number }: PairPort) -> u128 {
    let Endpoint { address, port } = external;
    let remote = u128::from(number) << 96 | u128::from(remote.to_bits()) << 64;
    let address = u128::from(address.to_bits()) << 16;
    remote | u128::from(protocol) << 48 | address | u128::from(port)
}

/// The port of a number.
fn read_port(port: u128) -> PairPort {
    let address = Ipv4Addr::from_bits((port >> 16) as u32);
    let external = Endpoint { address, port: port as u16 };
    let remote = Ipv4Addr::from_bits((port >> 64) as u32);
    let (protocol, number) = ((port >> 48) as u8, (port >> 96) as u32);
    PairPort { protocol, external, remote, number }
}
