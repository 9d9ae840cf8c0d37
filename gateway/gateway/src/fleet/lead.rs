//! The leading worker of a node: it knows who owns each slice, hears the partner's views and the
//! operator, and gives orders to all workers. It touches no engine.

use super::board::{Board, Figures, Order, Report};
use super::history::History;
use super::status::{FleetStatus, LinkStatus, SliceChange, SliceStatus};
use super::tunnel::{Arrivals, CLOSED, PassedPacket, Present, Shared};
use super::{FleetAnswer, FleetRequest, PartnerLink, starts};
use crate::fleet_settings::FleetSettings;
use natgate_engine::Timestamp;
use natgate_pair::{
    Boot, Claim, Epoch, Holding, Node, Ownership, Recipient, Role, Stream, View, recipient,
};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// Messages that are received in one turn.
const RECEIVED_A_TURN: usize = 64;

/// Interval of views. The link sends the latest view again by itself.
const VIEWS: Duration = Duration::from_millis(200);

/// Longest time for the end of a drain, in which workers change no requested mapping.
const ENDS: Duration = Duration::from_secs(1);

/// Time between two attempts, in which workers carry requests out.
const ATTEMPTS: Duration = Duration::from_secs(4);

/// Interval of heartbeats.
const BEATS: Duration = Duration::from_millis(100);

/// Longest time for which a copy may be incomplete because of a planned move.
const MOVE: Duration = Duration::from_secs(60);

/// Starts of this node that a partner may know of and this node may not.
const MOST_STARTS: u64 = 1 << 20;

pub(super) type Asked = (FleetRequest, SyncSender<FleetAnswer>);

/// What the streams and the duties of a slice follow from.
type Basis = (Option<Stream>, Option<Stream>, Option<Node>, Epoch);

/// The decisions about a slice.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    order: Order,
    basis: Basis,
    /// Number of drains that have begun, and of their ends.
    drains: u64,
    ends: u64,
    /// Time at which the end of a drain that goes on is given up, and the earliest time of the next
    /// attempt.
    ends_until: Timestamp,
    ends_from: Timestamp,
    /// The partner has given the slice, and no order has said so yet.
    is_given: bool,
    /// The epoch that began with the last planned move, and the start of the partner at that time.
    moved: Option<(Epoch, Boot)>,
    /// The start of the latest drain, or the time of the latest planned move.
    moves_from: Timestamp,
    /// A change of owner that is reported when all workers have its streams.
    change: Option<SliceChange>,
    /// The latest owner that was reported, and the epoch.
    reported: Option<(Node, Epoch)>,
    /// The epoch in which all workers have assigned ports.
    assigned: Epoch,
    /// End of the hold-down after a take-over.
    pub(super) rests_until: Option<Timestamp>,
    /// True if the partner's last view says that it owns the slice, as this node does.
    pub(super) is_disputed: bool,
}

/// The leading worker's knowledge.
pub(super) struct Lead {
    pub(super) settings: FleetSettings,
    pub(super) ownership: Ownership,
    pub(super) slices: Vec<Decisions>,
    pub(super) requests: Receiver<Asked>,
    pub(super) partner_boot: u64,
    pub(super) refused_views: u64,
    pub(super) owners: History,
    /// True if the link may have more messages than were received in this turn.
    pub(super) has_more: bool,
    /// Time of the next view for the link; 0: at once.
    next_view: Timestamp,
    next_beat: Timestamp,
    /// Turns of all workers at the last heartbeat.
    turns: Vec<u64>,
    /// The tunnel: what this node says, and what comes.
    present: Present,
    arrivals: Arrivals,
    random: u32,
}

impl Lead {
    pub(super) fn new(
        settings: FleetSettings,
        boot: Boot,
        requests: Receiver<Asked>,
        random: u32,
    ) -> Self {
        Self {
            ownership: settings.ownership(boot),
            slices: settings.slices.iter().map(|_| Decisions::default()).collect(),
            requests,
            partner_boot: 0,
            refused_views: 0,
            owners: History::default(),
            has_more: false,
            next_view: Timestamp(0),
            next_beat: Timestamp(0),
            turns: Vec::new(),
            present: Present::default(),
            arrivals: Arrivals::default(),
            random,
            settings,
        }
    }

    /// Passes messages on to the workers, and hears views and the guardian.
    pub(super) fn hear(&mut self, now: Timestamp, link: &mut dyn PartnerLink, board: &Board) {
        self.beat(now, link, board);
        self.has_more = true;
        for _ in 0..RECEIVED_A_TURN {
            let Some(message) = link.receive() else {
                self.has_more = false;
                break;
            };
            let message: Arc<[u8]> = message.into();
            match recipient(&message) {
                None => {}
                Some(Recipient::Owner(worker)) => board.deliver(worker.into(), &message),
                Some(Recipient::Partner) => {
                    (0..board.workers()).for_each(|worker| board.deliver(worker, &message));
                }
            }
        }
        if let Some(view) = link.heard() {
            self.hear_view(now, &view);
        }
        // What the partner sent before its end counts.
        if !self.has_more
            && let Some(boot) = link.ended()
        {
            self.ownership.partner_ended(boot);
            self.partner_boot = self.partner_boot.max(boot);
            self.next_view = Timestamp(0);
        }
    }

    /// Tells the guardian that all workers make progress.
    fn beat(&mut self, now: Timestamp, link: &mut dyn PartnerLink, board: &Board) {
        if now < self.next_beat {
            return;
        }
        self.next_beat = now.plus(BEATS);
        let turns: Vec<u64> = board.turns().collect();
        let progress = self.turns.iter().zip(&turns).all(|(before, now)| before != now);
        if progress {
            link.beat(self.ownership.boot());
            self.turns = turns;
        }
    }

    /// Hears a view of the partner. If it changes this node's view, the partner is told at once.
    fn hear_view(&mut self, now: Timestamp, bytes: &[u8]) {
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
            self.slices[number].is_given |= is_given;
            if is_given {
                self.slices[number].moved = Some((self.ownership.epoch(number), view.from));
                self.slices[number].moves_from = now;
            }
        }
        if self.ownership.view() != former {
            self.next_view = Timestamp(0);
        }
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        (0..self.slices.len()).map(|number| self.ownership.role(number))
    }

    /// Decides what the workers do from now on, and orders it. Returns true if the orders are
    /// other ones than before.
    pub(super) fn decide(&mut self, now: Timestamp, hold_down: Duration, board: &Board) -> bool {
        let mut is_new = false;
        for number in 0..self.slices.len() {
            self.rest(number, now, hold_down, board);
            let before = self.slices[number].order;
            self.decide_slice(number, now, board);
            is_new |= self.slices[number].order != before;
        }
        if is_new {
            let orders: Vec<Order> = self.slices.iter().map(|slice| slice.order).collect();
            board.order(&orders);
        }
        is_new
    }

    /// Begins and ends the hold-down after a take-over.
    fn rest(&mut self, number: usize, now: Timestamp, hold_down: Duration, board: &Board) {
        let slice = &mut self.slices[number];
        if let Role::Owner { rests: true, .. } = self.ownership.role(number) {
            // Nobody has assigned a port before the first start of both.
            let is_first = [self.ownership.boot(), self.partner_boot]
                .iter()
                .all(|boot| starts::starts(*boot) == 1)
                && self.ownership.epoch(number) == 1;
            let rest = if is_first { Duration::ZERO } else { hold_down };
            if slice.rests_until.is_none() {
                // Mappings that were requested last may be lost.
                board.epoch().begin(now);
            }
            let until = *slice.rests_until.get_or_insert(now.plus(rest));
            if now >= until {
                self.ownership.end_rest(number, self.ownership.epoch(number));
                slice.rests_until = None;
            }
        } else {
            slice.rests_until = None;
            let mut epoch = board.epoch();
            if self.ownership.owns(number) && epoch.began().is_none() {
                // The former owner has told no epoch, or told it too late.
                epoch.begin(now);
            }
        }
    }

    fn decide_slice(&mut self, number: usize, now: Timestamp, board: &Board) {
        let Self { ownership, settings, owners, slices, .. } = self;
        let slice = &mut slices[number];
        let this = settings.this();
        let owner = owner(this, ownership.role(number));
        let epoch = ownership.epoch(number);
        let basis = (ownership.destination(number), ownership.source(number), owner, epoch);
        let order = &mut slice.order;
        if basis != slice.basis || order.turn == 0 {
            // A worker may miss the order that says so first.
            let is_known = order.is_given && order.epoch == epoch;
            slice.basis = basis;
            order.turn += 1;
            (order.destination, order.source, ..) = basis;
            (order.epoch, order.of_partner) = (epoch, ownership.partner_workers());
            order.is_given = std::mem::take(&mut slice.is_given) || is_known;
        }
        let reports = board.reports(number).unwrap_or_default();
        let have_streams =
            !reports.is_empty() && reports.iter().all(|report: &Report| report.turn == order.turn);
        order.owns = ownership.owns(number);
        // Before all workers have the streams of the owner's epoch, one may still make a copy whose
        // port another one gives out.
        order.assigns = ownership.may_assign(number) && (have_streams || slice.assigned == epoch);
        if order.assigns {
            slice.assigned = epoch;
        }
        match (ownership.drains(number), order.drain) {
            (true, 0) => {
                slice.drains += 1;
                slice.moves_from = now;
                slice.ends_from = now;
                order.drain = slice.drains;
            }
            (true, _) => {}
            (false, _) => order.drain = 0,
        }
        let is_copied = |report: &Report| {
            let loss = board.epoch().told(now).map_or(0, |(_, mark)| mark);
            report.turn == order.turn && report.drained == order.drain && report.heard == loss
        };
        let is_due = order.ends == 0 && now >= slice.ends_from;
        if order.drain == 0 || order.ends > 0 && now >= slice.ends_until {
            order.ends = 0;
        } else if is_due && !reports.is_empty() && reports.iter().all(is_copied) {
            slice.ends += 1;
            slice.ends_until = now.plus(ENDS);
            slice.ends_from = slice.ends_until.plus(ATTEMPTS);
            order.ends = slice.ends;
        }
        if let Some(owner) = owner.filter(|owner| slice.reported != Some((*owner, epoch))) {
            slice.reported = Some((owner, epoch));
            let (number, continued) = (number as u16, None);
            slice.change = Some(SliceChange { time: now, slice: number, epoch, owner, continued });
        }
        if have_streams && let Some(change) = slice.change.take() {
            let copies = reports.iter().filter_map(|report| report.copies);
            let continued = copies.filter(|_| change.owner == this).reduce(|sum, one| sum + one);
            owners.note(Some(SliceChange { continued, ..change }));
        }
    }

    /// Gives slices away that drain and that the partner has whole, when no worker changes a
    /// requested mapping any more. The partner also knows the last loss of requested mappings: as
    /// the owner it answers their hosts. Returns true if a slice was given.
    pub(super) fn give_away(&mut self, now: Timestamp, board: &Board) -> bool {
        let mut is_given = false;
        for number in 0..self.slices.len() {
            let order = self.slices[number].order;
            if order.ends == 0 || !self.ownership.drains(number) {
                continue;
            }
            let loss = board.epoch().told(now).map_or(0, |(_, mark)| mark);
            let is_done = |report: &Report| {
                report.turn == order.turn && report.ended == order.ends && report.heard == loss
            };
            if board.reports(number).is_some_and(|reports| reports.iter().all(is_done))
                && let Some(stream) = self.ownership.destination(number)
            {
                self.ownership.copy_complete(number, stream);
                let epoch = self.ownership.epoch(number);
                self.slices[number].order.gave = Some((epoch, now));
                self.slices[number].moved = Some((epoch, stream.to));
                self.slices[number].moves_from = now;
                self.next_view = Timestamp(0);
                is_given = true;
            }
        }
        is_given
    }

    pub(super) fn tell(&mut self, now: Timestamp, link: &mut dyn PartnerLink) {
        if now >= self.next_view {
            self.next_view = now.plus(VIEWS);
            link.tell(self.ownership.view().write());
        }
    }

    /// Says in which slices this node is there to take packets of the other node: those whose
    /// orders all workers carry out, as far as no end of a drain has begun, while packets can be
    /// delivered. In a drain it says that it assigns no port, as soon as the other node has all
    /// that there was before.
    pub(super) fn be_present(&mut self, now: Timestamp, link: &mut dyn PartnerLink, board: &Board) {
        if !self.present.is_due(now) {
            return;
        }
        let delivers = board.ways().deliver(now);
        let epoch = |number: usize| {
            let order = &self.slices[number].order;
            let obeys = |report: &Report| report.turn == order.turn;
            let reports = board.reports(number).unwrap_or_default();
            let is_obeyed = !reports.is_empty() && reports.iter().all(obeys);
            let owns = self.ownership.owns(number) && order.owns && order.ends == 0;
            let is_told = |report: &Report| report.told == order.drain;
            let is_closed = order.drain > 0 && reports.iter().all(is_told);
            match owns && is_obeyed && delivers {
                true => self.ownership.epoch(number) | if is_closed { CLOSED } else { 0 },
                false => 0,
            }
        };
        let epochs: Vec<Epoch> = (0..self.slices.len()).map(epoch).collect();
        let boots = (self.ownership.boot(), self.partner_boot);
        self.present.say(now, boots, &epochs, link);
    }

    /// Takes a datagram of the tunnel. Returns a packet for this node.
    pub(super) fn take_passed(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        orders: &[Order],
        board: &Board,
    ) -> Option<PassedPacket> {
        let boots = (self.partner_boot, self.ownership.boot());
        self.arrivals.read(now, datagram, (orders, boots), board.tunnel())
    }

    /// State of the pair, from the figures of all workers about each slice.
    pub(super) fn status(
        &self,
        now: Timestamp,
        link: LinkStatus,
        (figures, resting): (&[Figures], u64),
        tunnel: &Shared,
    ) -> FleetStatus {
        let slices = (0..self.slices.len()).zip(figures);
        let is_connected = link.connected.is_some();
        let slice = |(number, figures)| {
            let slice = self.slice(number, figures, now);
            let passes = !self.ownership.owns(number) && tunnel.is_there(number, slice.epoch, now);
            let moves_to = slice.moves_to.filter(|_| is_connected);
            SliceStatus { passes, moves_to, ..slice }
        };
        let mut counters = tunnel.counters();
        counters.full += link.tunnel_lost;
        FleetStatus {
            node: self.settings.node.clone(),
            partner: self.settings.partner.node.clone(),
            boot: self.ownership.boot(),
            partner_boot: self.partner_boot,
            has_partner_ended: self.partner_boot > 0 && self.ownership.ended() >= self.partner_boot,
            link,
            resting,
            refused_views: self.refused_views,
            tunnel: counters,
            slices: slices.map(slice).collect(),
            owners: self.owners.list(|node| self.settings.name(node).to_owned()),
        }
    }

    fn slice(&self, number: usize, figures: &Figures, now: Timestamp) -> SliceStatus {
        let Self { ownership, settings, .. } = self;
        let decisions = &self.slices[number];
        let role = ownership.role(number);
        let name = |node| settings.name(node).to_owned();
        let owner = owner(settings.this(), role);
        let other = match role {
            Role::Unknown => None,
            Role::Owner { .. } => ownership.destination(number).map(|stream| stream.to),
            Role::Yielding { to: boot } | Role::Partner { of: boot } => Some(boot),
        };
        let with = other.map(|boot| (ownership.epoch(number), boot));
        let has_moved = with.is_some() && decisions.moved == with && figures.completed.is_none();
        let moves_to = match ownership.drains(number) {
            true => Some(settings.this().other()),
            false => owner.filter(|_| has_moved),
        };
        // A drain that was just requested has not begun.
        let is_begun = decisions.order.drain > 0 || !ownership.drains(number);
        let is_old = is_begun && now.since(decisions.moves_from) > MOVE;
        SliceStatus {
            addresses: settings.slices[number].addresses.clone(),
            home: settings.slices[number].owner.clone(),
            owner: owner.map(name),
            role: match role {
                Role::Unknown => "unknown",
                Role::Owner { .. } => "owner",
                Role::Yielding { .. } => "yielding",
                Role::Partner { .. } => "partner",
            },
            epoch: ownership.epoch(number),
            assigns: decisions.order.assigns && ownership.may_assign(number),
            rests: decisions.rests_until.map(|until| until.since(now)),
            drains: ownership.drains(number),
            moves_to: moves_to.map(name),
            is_move_overdue: moves_to.is_some() && is_old,
            passes: false,
            is_complete: figures.is_complete,
            age: figures.completed.map(|at| now.since(at)),
            lag: Duration::from_nanos(figures.lag),
            is_disputed: decisions.is_disputed,
            sent: figures.sent,
            received: figures.received,
            refusal: figures.refusal.clone(),
            records_without_realm: figures.records_without_realm,
            ended_to_move: figures.ended_to_move,
        }
    }

    pub(super) fn carry_out(
        &mut self,
        request: FleetRequest,
        link: &LinkStatus,
    ) -> Result<(), String> {
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
                if link.connected.is_some() {
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
}

/// The owner of a slice in which a node has this part.
pub(super) fn owner(this: Node, role: Role) -> Option<Node> {
    match role {
        Role::Unknown => None,
        Role::Owner { .. } => Some(this),
        Role::Yielding { .. } | Role::Partner { .. } => Some(this.other()),
    }
}
