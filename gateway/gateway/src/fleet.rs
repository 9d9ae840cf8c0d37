//! One of two gateways that share external addresses (`docs/design/pair.md`).
//!
//! The worker's thread does everything but the transport: the ownership of slices, records of the
//! engine's mappings, copies of the partner's. [`PartnerLink`] carries the messages; it has a
//! thread of its own.

mod history;
mod inbound;
mod refusal;
mod settings;
mod slice;
mod starts;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod young;

pub use natgate_pair::{Node, ReceivedCounters, Sent};
pub use refusal::Refusal;
pub use settings::{FleetSettings, PartnerSettings, SliceSettings};
pub use status::{FleetStatus, LinkStatus, SliceChange, SliceOwner, SliceStatus};

use crate::pcp::CommonEpoch;
use history::History;
use natgate_engine::{CopyChange, Endpoint, Engine, PairPort, Timestamp};
use natgate_ipv6::CopiedHosts;
use natgate_pair::{Boot, Claim, Holding, Ownership, Role, View};
use slice::{LEAST_ROOM, Slice};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use young::Young;

/// Messages that are received, and packets of a slice that are sent, in one turn.
const RECEIVED_A_TURN: usize = 64;
const SENT_A_TURN: usize = 4;

/// Longest time without a turn while there is a partner.
const INTERVAL: Duration = Duration::from_millis(5);

/// Interval of views. The link sends the latest view again by itself.
const VIEWS: Duration = Duration::from_millis(200);

/// Interval of looks at the state of the link.
const LOOKS: Duration = Duration::from_millis(20);

/// Interval of heartbeats.
const BEATS: Duration = Duration::from_millis(100);

/// Shortest time after which an unconfirmed packet counts as lost.
const LOST: Duration = Duration::from_millis(100);

/// A turn that comes later than this after the one before: the process stood still.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// Ports whose rest ends in one turn.
const RESTS_A_TURN: usize = 1024;

/// Starts of this node that a partner may know of and this node may not.
const MOST_STARTS: u64 = 1 << 20;

/// Requests that may wait.
const MOST_WAITING: usize = 4;

/// Carries messages to and from the partner. No call waits.
pub trait PartnerLink: Send {
    /// Sends a message of replication, which may be lost. Returns `false` if there is no connection
    /// or no room.
    fn send(&mut self, message: Vec<u8>) -> bool;
    /// The next message of replication that has come.
    fn receive(&mut self) -> Option<Vec<u8>>;
    /// Bytes of a message that can be sent whole.
    fn room(&self) -> usize;
    /// Sets the view that the partner is told, again and again.
    fn tell(&mut self, view: Vec<u8>);
    /// The latest view of the partner that has come since the last call.
    fn heard(&mut self) -> Option<Vec<u8>>;
    /// State of the link.
    fn status(&self) -> LinkStatus;
    /// The partner's processes up to this boot number have ended, as its guardian has said since
    /// the last call.
    fn ended(&mut self) -> Option<Boot>;
    /// Tells this node's guardian that the worker makes progress, as the process with this boot
    /// number.
    fn beat(&mut self, boot: Boot);
}

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

type Asked = (FleetRequest, SyncSender<FleetAnswer>);

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

/// A node of a pair, in its worker.
pub struct Fleet {
    settings: FleetSettings,
    ownership: Ownership,
    link: Box<dyn PartnerLink>,
    slices: Vec<Slice>,
    young: Young,
    /// Ports whose rest has ended.
    ending: VecDeque<u128>,
    changes: Vec<CopyChange>,
    requests: Receiver<Asked>,
    /// Time of the next view for the link; 0: at once.
    next_view: Timestamp,
    next_beat: Timestamp,
    last_turn: Timestamp,
    /// State of the link at the last look.
    link_status: LinkStatus,
    next_look: Timestamp,
    random: u32,
    partner_boot: u64,
    refused_views: u64,
    /// The epoch of requested mappings, and the number of them that the engine has lost.
    epoch: CommonEpoch,
    lost: u64,
    /// Messages that are read before this time may have waited long, because the process stood
    /// still.
    late_until: Timestamp,
    owners: History,
}

impl Fleet {
    /// Begins as a node that owns nothing, and counts a start in the file of the settings. `random`
    /// tells apart starts with the same number, after a disk was lost.
    ///
    /// # Errors
    /// The file of starts can be neither read nor replaced.
    pub fn new(
        settings: FleetSettings,
        link: Box<dyn PartnerLink>,
        random: u32,
    ) -> io::Result<(Self, FleetAsker)> {
        let boot = starts::count(&settings.starts, (0, random))?;
        let ownership = settings.ownership(boot);
        let slices = (0..).zip(&settings.slices);
        let slices = slices.map(|(number, slice)| Slice::new(number, slice.addresses.clone()));
        let (sender, requests) = sync_channel(MOST_WAITING);
        let fleet = Self {
            ownership,
            link,
            slices: slices.collect(),
            young: Young::default(),
            ending: VecDeque::new(),
            changes: Vec::new(),
            requests,
            next_view: Timestamp(0),
            next_beat: Timestamp(0),
            last_turn: Timestamp(0),
            link_status: LinkStatus::default(),
            next_look: Timestamp(0),
            random,
            partner_boot: 0,
            refused_views: 0,
            epoch: CommonEpoch::new(u8::from(settings.this() == Node::B)),
            lost: 0,
            late_until: Timestamp(0),
            owners: History::default(),
            settings,
        };
        Ok((fleet, FleetAsker(sender)))
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
    pub(crate) fn epoch_mut(&mut self) -> &mut CommonEpoch {
        &mut self.epoch
    }

    /// The engine has other settings.
    pub(crate) fn renew(&mut self, engine: &Engine, hosts: &CopiedHosts<'_>) {
        let requests = self.slices.iter_mut().filter_map(|slice| slice.renew(engine, hosts));
        requests.for_each(|request| _ = self.link.send(request));
    }

    /// Does one turn's work, between two batches of packets. `hosts` are those with numbers in the
    /// engine.
    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        engine: &mut Engine,
        hosts: &mut CopiedHosts<'_>,
    ) {
        self.last_turn = now;
        // A slice that is given away in this turn takes the loss along.
        let lost = engine.explicit_lost();
        if std::mem::replace(&mut self.lost, lost) != lost {
            self.epoch.begin(now);
        }
        // Before messages: they may give a slot to another copy.
        self.note_changes(now, engine);
        if now >= self.next_beat {
            self.next_beat = now.plus(BEATS);
            self.link.beat(self.ownership.boot());
        }
        let mut has_more = true;
        for _ in 0..RECEIVED_A_TURN {
            let Some(message) = self.link.receive() else {
                has_more = false;
                break;
            };
            self.receive(&message, now, (engine, hosts));
        }
        if let Some(view) = self.link.heard() {
            self.hear(&view);
        }
        // What the partner sent before its end counts.
        if !has_more && let Some(boot) = self.link.ended() {
            self.ownership.partner_ended(boot);
            self.partner_boot = self.partner_boot.max(boot);
            self.next_view = Timestamp(0);
        }
        while let Ok((request, reply)) = self.requests.try_recv() {
            let _ = reply.send(self.answer(request, now, engine));
        }
        self.settle(now, engine);
        self.send(now, engine, hosts);
        self.give_away(now, engine);
        self.tell(now);
    }

    /// Time of the next turn that is due.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        self.last_turn.plus(INTERVAL)
    }

    /// Owners that slices have got since the last call.
    pub(crate) fn new_owners(&mut self) -> std::vec::Drain<'_, SliceChange> {
        self.owners.take_new()
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
        state: (&mut Engine, &mut CopiedHosts<'_>),
    ) {
        let Some((id, message)) = natgate_pair::read(bytes) else { return };
        let Some(slice) = self.slices.get_mut(usize::from(id.slice)) else { return };
        if let Some(answer) = slice.receive(state, (id, message), bytes, now) {
            self.link.send(answer);
        }
        if let Some(outbound) = &mut slice.outbound {
            self.ending.extend(outbound.sender.released());
        }
        let is_late = now < self.late_until;
        let told = slice.outbound.as_mut().and_then(|outbound| outbound.answer.epoch.take());
        if let Some(told) = told.filter(|_| !is_late) {
            self.epoch.hear(told, now);
        }
        let Some(inbound) = &mut slice.inbound else { return };
        if let Some(told) = inbound.epoch.take().filter(|_| !is_late) {
            self.epoch.hear(told, now);
            inbound.heard = told.1;
        }
        if let Some(answer) = inbound.answer(self.epoch.told(now)) {
            self.link.send(answer);
        }
    }

    /// Hears a view of the partner. If it changes this node's view, the partner is told at once.
    fn hear(&mut self, bytes: &[u8]) {
        let Some(view) = View::read(bytes) else {
            self.refused_views += 1;
            return;
        };
        let former = self.ownership.view();
        // The partner knows a later start of this node: the counter on disk was lost.
        let is_older = view.to > self.ownership.boot();
        let owns_nothing = self.roles().all(|role| role == Role::Unknown);
        let is_near = starts::starts(view.to)
            .checked_sub(starts::starts(self.ownership.boot()))
            .is_some_and(|more| more <= MOST_STARTS);
        if is_older && is_near && owns_nothing {
            let least = starts::starts(view.to);
            if let Ok(boot) = starts::count(&self.settings.starts, (least, self.random)) {
                self.ownership = self.settings.ownership(boot);
            }
        }
        for (number, (slice, claim)) in self.slices.iter_mut().zip(&view.claims).enumerate() {
            let Claim { holding, .. } = claim;
            slice.is_disputed = *holding == Holding::Mine && self.ownership.owns(number);
        }
        let before: Vec<Role> = self.roles().collect();
        match self.ownership.receive(&view) {
            Ok(()) => self.partner_boot = self.partner_boot.max(view.from),
            Err(_) => self.refused_views += 1,
        }
        for (number, before) in before.into_iter().enumerate() {
            let is_given = matches!(before, Role::Partner { .. })
                && self.ownership.role(number) == Role::Owner { rests: false, drains: false };
            self.slices[number].is_moved |= is_given;
        }
        if self.ownership.view() != former {
            self.next_view = Timestamp(0);
        }
    }

    fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        (0..self.slices.len()).map(|number| self.ownership.role(number))
    }

    /// Makes engine and streams agree with the ownership.
    fn settle(&mut self, now: Timestamp, engine: &mut Engine) {
        let hold_down = engine.config().timeouts.hold_down;
        for (number, slice) in self.slices.iter_mut().enumerate() {
            let this = self.settings.this();
            let owner = owner(this, self.ownership.role(number));
            let change = slice.new_owner(owner, self.ownership.epoch(number), this);
            self.owners.note(change.map(|change| SliceChange { time: now, ..change }));
            let streams = [self.ownership.destination(number), self.ownership.source(number)];
            self.ending.extend(slice.set_streams(engine, streams, now));
            self.ending.extend(slice.settled_orphans(self.ownership.owns(number)));
            slice.is_moved &= streams[0].is_some() && !slice.is_copied();
            if let Role::Owner { rests: true, .. } = self.ownership.role(number) {
                // Nobody has assigned a port before the first start of both.
                let is_first = [self.ownership.boot(), self.partner_boot]
                    .iter()
                    .all(|boot| starts::starts(*boot) == 1)
                    && self.ownership.epoch(number) == 1;
                let rest = if is_first { Duration::ZERO } else { hold_down };
                if slice.rests_until.is_none() {
                    // Mappings that were requested last may be lost.
                    self.epoch.begin(now);
                }
                let until = *slice.rests_until.get_or_insert(now.plus(rest));
                if now >= until {
                    self.ownership.end_rest(number, self.ownership.epoch(number));
                    slice.rests_until = None;
                }
            } else {
                slice.rests_until = None;
                if self.ownership.owns(number) && self.epoch.began().is_none() {
                    // The former owner has told no epoch, or told it too late.
                    self.epoch.begin(now);
                }
            }
            slice.set_duty(engine, self.ownership.may_assign(number), self.ownership.owns(number));
            slice.set_draining(engine, self.ownership.drains(number));
            slice.sweep(engine, |message| _ = self.link.send(message));
        }
        let has_all = |(number, slice): (usize, &Slice)| {
            self.ownership.owns(number) || slice.has_present_copy(now)
        };
        engine.set_has_all(self.slices.iter().enumerate().all(has_all));
        for _ in 0..RESTS_A_TURN {
            let Some(port) = self.ending.pop_front() else { break };
            end_rest(engine, port);
        }
    }

    /// Takes the engine's changes to the streams of their slices.
    fn note_changes(&mut self, now: Timestamp, engine: &mut Engine) {
        if engine.has_changes() {
            engine.take_changes(&mut self.changes);
        }
        while let Some(key) = self.young.next(now) {
            self.changes.push(CopyChange::Changed(key));
        }
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            match change {
                CopyChange::Changed(key) => {
                    let Some(facts) = engine.copy_facts(key) else { continue };
                    if let Some(outbound) = outbound_of(&mut self.slices, facts.address) {
                        outbound.sender.change(key, now.0);
                    }
                }
                CopyChange::Ended(key, port) => {
                    let address = port.external.address;
                    let slice = self.slices.iter_mut().find(|slice| slice.has(address));
                    let send = |message| _ = self.link.send(message);
                    if !slice.is_some_and(|slice| slice.note_end(key, written(port), now, send)) {
                        engine.end_rest(port);
                    }
                }
            }
        }
        self.changes = changes;
    }

    fn send(&mut self, now: Timestamp, engine: &Engine, hosts: &CopiedHosts<'_>) {
        if now >= self.next_look {
            self.next_look = now.plus(LOOKS);
            self.link_status = self.link.status();
        }
        if self.link_status.connected.is_none() {
            return;
        }
        let late = self.link_status.round_trip.map_or(LOST, |time| (4 * time).max(LOST));
        let before = now.0.saturating_sub(late.as_nanos() as u64);
        let epoch = self.epoch.told(now);
        let Self { link, slices, young, .. } = self;
        let room = link.room().max(LEAST_ROOM);
        for slice in slices {
            if let Some(outbound) = &mut slice.outbound {
                outbound.sender.expire(before, now.0);
            }
            let send = |message| link.send(message);
            slice.send((engine, hosts), (now, room, SENT_A_TURN), (young, epoch), send);
        }
    }

    /// Gives slices away that drain and that the partner has whole. The partner also knows the last
    /// loss of requested mappings: as the owner it answers their hosts.
    fn give_away(&mut self, now: Timestamp, engine: &mut Engine) {
        let loss = self.epoch.told(now).map_or(0, |(_, mark)| mark);
        for number in 0..self.slices.len() {
            if self.ownership.drains(number)
                && self.slices[number].is_copied()
                && self.slices[number].knows_loss(loss)
                && let Some(stream) = self.ownership.destination(number)
            {
                self.ownership.copy_complete(number, stream);
                self.next_view = Timestamp(0);
                self.settle(now, engine);
            }
        }
    }

    fn tell(&mut self, now: Timestamp) {
        if now >= self.next_view {
            self.next_view = now.plus(VIEWS);
            self.link.tell(self.ownership.view().write());
        }
    }

    fn answer(
        &mut self,
        request: FleetRequest,
        now: Timestamp,
        engine: &mut Engine,
    ) -> FleetAnswer {
        self.carry_out(request)?;
        self.settle(now, engine);
        Ok(self.status(now, engine))
    }

    fn carry_out(&mut self, request: FleetRequest) -> Result<(), String> {
        match request {
            FleetRequest::Status => Ok(()),
            FleetRequest::Drain(node) => {
                if self.known(&node)? != self.settings.this() {
                    return Err(format!("this is node {}; ask node {node}", self.settings.node));
                }
                let own: Vec<usize> =
                    (0..self.slices.len()).filter(|slice| self.ownership.owns(*slice)).collect();
                own.into_iter().try_for_each(|slice| self.drain(slice))
            }
            FleetRequest::Move(slice, node) => {
                if slice >= self.slices.len() {
                    let last = self.slices.len() - 1;
                    return Err(format!("there is no slice {slice}; the last is {last}"));
                }
                let to = self.known(&node)?;
                match (self.ownership.owns(slice), to == self.settings.this()) {
                    (true, true) => {
                        self.ownership.keep(slice);
                        Ok(())
                    }
                    (true, false) => self.drain(slice),
                    (false, _) => Err(format!(
                        "node {} is not the owner of slice {slice}; ask the owner",
                        self.settings.node
                    )),
                }
            }
            FleetRequest::Forget(node) => {
                if self.known(&node)? == self.settings.this() {
                    return Err(format!("this is node {node}; a node cannot forget itself"));
                }
                if self.link.status().connected.is_some() {
                    return Err(format!("node {node} is connected, so it has not ended"));
                }
                self.ownership.forget_partner();
                self.next_view = Timestamp(0);
                Ok(())
            }
        }
    }

    fn known(&self, node: &str) -> Result<Node, String> {
        let this = self.settings.this();
        match node {
            node if node == self.settings.node => Ok(this),
            node if node == self.settings.partner.node => Ok(this.other()),
            _ => Err(format!(
                "there is no node {node}; the nodes are {} and {}",
                self.settings.node, self.settings.partner.node
            )),
        }
    }

    fn drain(&mut self, slice: usize) -> Result<(), String> {
        if self.ownership.destination(slice).is_none() {
            return Err(format!(
                "node {} is not there to take slice {slice}",
                self.settings.partner.node
            ));
        }
        if !self.ownership.drain(slice) {
            return Err(format!(
                "slice {slice} rests after a take-over; it can move when the hold-down is over"
            ));
        }
        Ok(())
    }

    fn status(&self, now: Timestamp, engine: &Engine) -> FleetStatus {
        let homes = self.settings.homes();
        let status = |(number, slice): (usize, &Slice)| {
            let owner = owner(self.settings.this(), self.ownership.role(number));
            let name = |node| self.settings.name(node).to_owned();
            slice.status(now, &self.ownership, name(homes[number]), owner.map(name))
        };
        FleetStatus {
            node: self.settings.node.clone(),
            partner: self.settings.partner.node.clone(),
            boot: self.ownership.boot(),
            partner_boot: self.partner_boot,
            has_partner_ended: self.partner_boot > 0 && self.ownership.ended() >= self.partner_boot,
            link: self.link.status(),
            resting: engine.resting() as u64,
            refused_views: self.refused_views,
            slices: self.slices.iter().enumerate().map(status).collect(),
            owners: self.owners.list(|node| self.settings.name(node).to_owned()),
        }
    }
}

/// The owner of a slice in which a node has this part.
fn owner(this: Node, role: Role) -> Option<Node> {
    match role {
        Role::Unknown => None,
        Role::Owner { .. } => Some(this),
        Role::Yielding { .. } | Role::Partner { .. } => Some(this.other()),
    }
}

/// The stream that this node sends of the slice with an address.
fn outbound_of(slices: &mut [Slice], address: Ipv4Addr) -> Option<&mut slice::Outbound> {
    slices.iter_mut().find(|slice| slice.has(address))?.outbound.as_mut()
}

/// A port as a number.
fn written(PairPort { protocol, external, remote, number }: PairPort) -> u128 {
    let Endpoint { address, port } = external;
    let remote = u128::from(number) << 96 | u128::from(remote.to_bits()) << 64;
    let address = u128::from(address.to_bits()) << 16;
    remote | u128::from(protocol) << 48 | address | u128::from(port)
}

fn end_rest(engine: &mut Engine, port: u128) {
    let address = Ipv4Addr::from_bits((port >> 16) as u32);
    let external = Endpoint { address, port: port as u16 };
    let remote = Ipv4Addr::from_bits((port >> 64) as u32);
    let (protocol, number) = ((port >> 48) as u8, (port >> 96) as u32);
    engine.end_rest(PairPort { protocol, external, remote, number });
}
