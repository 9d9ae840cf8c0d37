//! Two nodes that run the code of this crate, with one external port, for a checker.
//!
//! The network keeps every message forever: each can arrive now, later, never, or again. So
//! partitions, links in one direction, loss and repetition are histories of this model, and a
//! process that stands still is one that takes no step. Processes crash and start at every point.
//! Evidence is true: a guardian or an operator speaks only about a process that has ended.
//!
//! There is no clock. After a mapping ends, remote hosts remember its port for some time, until a
//! step lets them forget. A hold-down at a node ends only after remote hosts have forgotten
//! everything that they remembered when it began.

use natgate_pair::{Boot, Epoch, Node, Ownership, Port, Record, Role, Stream, View};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// Names of the properties that hold in every state.
pub(crate) const ALWAYS: [&str; 2] = ["a port leads to one subscriber", "a slice has one owner"];

/// A subscriber: a bit.
pub(crate) type Subscriber = u8;

const SUBSCRIBERS: [Subscriber; 2] = [1, 2];

/// Most commands to forget.
const FORGOTTEN: u8 = 2;

/// Rules that a variant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The real rules.
    None,
    /// A slice that was taken after a crash does not rest.
    NoRest,
    /// An ended mapping's port is not held.
    NoHoldDown,
    /// A port is free although the partner may have a copy of its mapping.
    NoConfirmation,
    /// A partner assigns ports without having become the owner.
    AssignAtOnce,
    /// A node starts with the boot number that it had before.
    SameBoot,
    /// A node accepts views that answer an earlier start of it.
    AnyReceiver,
    /// Records of every stream are applied.
    AnyStream,
    /// Records are applied in the order of arrival.
    AnyOrder,
    /// A slice is given away before the copy is complete.
    IncompleteCopy,
    /// A node that starts takes its slices without asking.
    StartAlone,
    /// The silence of a node counts as its end.
    SilenceIsEnd,
    /// A node that was told to forget its partner believes views of before.
    AnyRound,
}

impl Fault {
    /// All variants.
    pub(crate) const ALL: [Self; 12] = [
        Self::NoRest,
        Self::NoHoldDown,
        Self::NoConfirmation,
        Self::AssignAtOnce,
        Self::SameBoot,
        Self::AnyReceiver,
        Self::AnyStream,
        Self::AnyOrder,
        Self::IncompleteCopy,
        Self::StartAlone,
        Self::SilenceIsEnd,
        Self::AnyRound,
    ];
}

/// Bounds of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// Starts of a node, the first included.
    pub(crate) starts: u64,
    /// Mappings that are made.
    pub(crate) mappings: u8,
    /// Planned moves.
    pub(crate) moves: u8,
    /// The rule that is left out.
    pub(crate) fault: Fault,
}

/// A message that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    View(Node, View),
    Record(Stream, u8, Record<Subscriber>),
    Confirmation(Stream, u8),
}

/// A node's process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) ownership: Ownership,
    pub(crate) port: Port<Subscriber>,
    /// Number of the port's present state in the stream that is sent, and the confirmed number.
    version: u8,
    confirmed: u8,
    /// Number of the state when the slice began to drain.
    drained: u8,
    sending: Option<Stream>,
    /// The stream that is received, and the greatest number applied.
    receiving: Option<(Stream, u8)>,
    /// Hold-downs that run: what remote hosts remembered at the beginning and still remember.
    rest: Option<(Epoch, u8)>,
    hold: Option<u8>,
}

/// State of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// `None`: the process has ended.
    pub(crate) nodes: [Option<Process>; 2],
    /// The last boot number of each node.
    boots: [Boot; 2],
    sent: BTreeSet<Message>,
    /// Subscribers that remote hosts remember as the port's.
    remembered: u8,
    mappings: u8,
    moves: u8,
    /// How often an operator has said `forget`.
    forgotten: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Start(Node),
    Crash(Node),
    Say(Node),
    Deliver(Message),
    Assign(Node, Subscriber),
    End(Node),
    Send(Node),
    RestOver(Node),
    HoldOver(Node),
    Drain(Node),
    Complete(Node),
    /// A guardian tells a node that the other node's process has ended.
    Guardian(Node),
    /// An operator tells a node to forget the other.
    Forget(Node),
    RemoteForgets(Subscriber),
}

impl Process {
    fn start(node: Node, boot: Boot) -> Self {
        Self {
            ownership: Ownership::start(node, boot, &[Node::A]),
            port: Port::Free,
            version: 0,
            confirmed: 0,
            drained: 0,
            sending: None,
            receiving: None,
            rest: None,
            hold: None,
        }
    }

    /// Follows a change of ownership: `before` is the node's knowledge before the change.
    fn follow(&mut self, before: &Ownership, remembered: u8) {
        let now = &self.ownership;
        if now.ended() > before.ended() && self.port.lose_copies() {
            self.hold = Some(remembered);
        }
        if now.destination(0) != self.sending {
            self.sending = now.destination(0);
            (self.version, self.confirmed) = (1, 0);
        }
        if !now.drains(0) {
            self.drained = 0;
        }
        let rests = matches!(now.role(0), Role::Owner { rests: true, .. });
        if rests && self.rest.is_none_or(|(epoch, _)| epoch != now.epoch(0)) {
            self.rest = Some((now.epoch(0), remembered));
        }
    }

    /// True if the partner has confirmed the present state of the port.
    fn is_complete(&self) -> bool {
        self.confirmed == self.version || self.port == Port::Free
    }

    /// True if the slice drains, and the partner has confirmed the state of the port at the
    /// beginning of the drain or a later one. The mapping may have ended since.
    fn has_arrived(&self) -> bool {
        self.ownership.drains(0) && self.confirmed >= self.drained
    }
}

impl World {
    fn process(&mut self, node: Node) -> &mut Process {
        self.nodes[node as usize].as_mut().expect("the node runs")
    }

    /// Remote hosts remember a subscriber from now on. Hold-downs that run do not wait for that.
    fn remember(&mut self, subscriber: Option<Subscriber>) {
        let subscriber = subscriber.unwrap_or_default();
        self.remembered |= subscriber;
        self.clear(subscriber);
    }

    /// Hold-downs that run wait no longer for remote hosts to forget a subscriber.
    fn clear(&mut self, subscriber: Subscriber) {
        for process in self.nodes.iter_mut().flatten() {
            if let Some((_, waits)) = &mut process.rest {
                *waits &= !subscriber;
            }
            if let Some(waits) = &mut process.hold {
                *waits &= !subscriber;
            }
        }
    }

    /// Changes a node's knowledge.
    fn change(&mut self, node: Node, change: impl FnOnce(&mut Ownership)) {
        let remembered = self.remembered;
        let process = self.process(node);
        let before = process.ownership.clone();
        change(&mut process.ownership);
        process.follow(&before, remembered);
    }

    /// Subscribers that packets to the port can reach, or that remote hosts take it for.
    pub(crate) fn visible(&self) -> u8 {
        let live = self.nodes.iter().flatten().filter_map(|process| process.port.subscriber());
        live.fold(self.remembered, |all, subscriber| all | subscriber)
    }

    /// The node that owns the slice, for properties.
    pub(crate) fn owners(&self) -> usize {
        self.nodes.iter().flatten().filter(|process| process.ownership.owns(0)).count()
    }

    /// True if a node may assign the port and the port is free.
    pub(crate) fn can_assign(&self, node: Node) -> bool {
        self.nodes[node as usize]
            .as_ref()
            .is_some_and(|process| process.ownership.may_assign(0) && process.port == Port::Free)
    }
}

impl Pair {
    pub(crate) fn new(starts: u64, mappings: u8, moves: u8) -> Self {
        Self { starts, mappings, moves, fault: Fault::None }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn may_assign(&self, process: &Process) -> bool {
        let assigns_copies = self.is(Fault::AssignAtOnce)
            && matches!(process.ownership.role(0), Role::Partner { .. });
        process.ownership.may_assign(0) || assigns_copies
    }

    fn actions_of(&self, world: &World, node: Node, actions: &mut Vec<Action>) {
        let partner_ended = world.nodes[node.other() as usize].is_none();
        let Some(process) = &world.nodes[node as usize] else {
            if world.boots[node as usize] < self.starts {
                actions.push(Action::Start(node));
            }
            return;
        };
        actions.extend([Action::Say(node), Action::Crash(node), Action::End(node)]);
        actions.push(Action::Send(node));
        if world.mappings < self.mappings && self.may_assign(process) {
            actions.extend(SUBSCRIBERS.map(|subscriber| Action::Assign(node, subscriber)));
        }
        if process.rest.is_some_and(|(_, waits)| waits == 0 || self.is(Fault::NoRest)) {
            actions.push(Action::RestOver(node));
        }
        if process.hold.is_some_and(|waits| waits == 0 || self.is(Fault::NoHoldDown)) {
            actions.push(Action::HoldOver(node));
        }
        if world.moves < self.moves {
            actions.push(Action::Drain(node));
        }
        // Variants have the stricter rule: fewer histories are searched.
        let has_arrived = self.is(Fault::None) && process.has_arrived();
        if process.is_complete() || has_arrived || self.is(Fault::IncompleteCopy) {
            actions.push(Action::Complete(node));
        }
        if partner_ended || self.is(Fault::SilenceIsEnd) {
            actions.push(Action::Guardian(node));
        }
        if partner_ended && world.forgotten < FORGOTTEN {
            actions.push(Action::Forget(node));
        }
    }

    fn deliver(&self, world: &mut World, message: Message) {
        match message {
            Message::View(from, mut view) => {
                let to = from.other();
                if world.nodes[to as usize].is_none() {
                    return;
                }
                if self.is(Fault::AnyReceiver) {
                    view.to = world.boots[to as usize];
                }
                if self.is(Fault::AnyRound)
                    && let Some(process) = &world.nodes[to as usize]
                {
                    view.answers = process.ownership.view().round;
                }
                world.change(to, |ownership| _ = ownership.receive(&view));
            }
            Message::Record(stream, version, record) => {
                for node in [Node::A, Node::B] {
                    self.deliver_record(world, node, stream, version, record);
                }
            }
            Message::Confirmation(stream, version) => {
                let remembered = world.remembered;
                for process in world.nodes.iter_mut().flatten() {
                    if process.sending == Some(stream) && process.version == version {
                        process.confirmed = version;
                        if process.port.confirm() {
                            process.hold = Some(remembered);
                        }
                    }
                }
            }
        }
    }

    fn deliver_record(
        &self,
        world: &mut World,
        node: Node,
        stream: Stream,
        version: u8,
        record: Record<Subscriber>,
    ) {
        let Some(process) = &mut world.nodes[node as usize] else { return };
        let source = process.ownership.source(0);
        let fits = source == Some(stream) || source.is_some() && self.is(Fault::AnyStream);
        if !fits || stream.to != process.ownership.boot() && !self.is(Fault::AnyStream) {
            return;
        }
        let applied = process.receiving.filter(|(of, _)| *of == stream).map_or(0, |(_, last)| last);
        if version > applied || self.is(Fault::AnyOrder) {
            process.receiving = Some((stream, version));
            let before = process.port.subscriber();
            let is_held = process.port.copy(record);
            let gone = before.filter(|_| process.port.subscriber() != before);
            world.remember(gone);
            if is_held {
                let remembered = world.remembered;
                world.process(node).hold = Some(remembered);
            }
        }
        world.sent.insert(Message::Confirmation(stream, version));
    }

    fn step(&self, world: &mut World, action: Action) {
        match action {
            Action::Start(node) => self.start(world, node),
            Action::Crash(node) => {
                let process = world.nodes[node as usize].take();
                world.remember(process.and_then(|process| process.port.subscriber()));
            }
            Action::Say(node) => {
                let view = world.process(node).ownership.view();
                world.sent.insert(Message::View(node, view));
            }
            Action::Deliver(message) => self.deliver(world, message),
            Action::Assign(node, subscriber) => {
                let process = world.process(node);
                if process.port.assign(subscriber) {
                    process.version += 1;
                    world.mappings += 1;
                }
            }
            Action::End(node) => self.end(world, node),
            Action::Send(node) => {
                let process = world.process(node);
                let (stream, version) = (process.sending, process.version);
                let record = stream.zip(process.port.send());
                let message =
                    record.map(|(stream, record)| Message::Record(stream, version, record));
                world.sent.extend(message);
            }
            Action::RestOver(node) => {
                let process = world.process(node);
                if let Some((epoch, _)) = process.rest.take() {
                    process.ownership.end_rest(0, epoch);
                }
            }
            Action::HoldOver(node) => {
                let process = world.process(node);
                process.hold = None;
                process.port.release();
            }
            Action::Drain(node) => {
                let process = world.process(node);
                if process.ownership.drain(0) {
                    process.drained = if self.is(Fault::None) { process.version } else { 0 };
                    world.moves += 1;
                }
            }
            Action::Complete(node) => {
                if let Some(stream) = world.process(node).sending {
                    world.change(node, |ownership| ownership.copy_complete(0, stream));
                }
            }
            Action::Guardian(node) => {
                let boot = world.boots[node.other() as usize];
                world.change(node, |ownership| ownership.partner_ended(boot));
            }
            Action::Forget(node) => {
                world.forgotten += 1;
                world.change(node, Ownership::forget_partner);
            }
            Action::RemoteForgets(subscriber) => {
                world.remembered &= !subscriber;
                world.clear(subscriber);
            }
        }
    }

    /// The world after a usual start: A is the owner, B knows it. Messages are sent once.
    fn connected(&self, mut world: World) -> World {
        let start = [Action::Start(Node::A), Action::Start(Node::B)];
        let talk = [Node::A, Node::B, Node::A, Node::B, Node::A].map(Action::Say);
        for action in start.into_iter().chain(talk).chain([Action::RestOver(Node::A)]) {
            self.step(&mut world, action);
            for message in std::mem::take(&mut world.sent) {
                self.deliver(&mut world, message);
            }
        }
        world
    }

    fn start(&self, world: &mut World, node: Node) {
        let boot = &mut world.boots[node as usize];
        *boot += 1;
        let number = if self.is(Fault::SameBoot) { 1 } else { *boot };
        world.nodes[node as usize] = Some(Process::start(node, number));
        if self.is(Fault::StartAlone) && node == Node::A {
            world.change(node, Ownership::forget_partner);
        }
    }

    /// The owner ends its mapping.
    fn end(&self, world: &mut World, node: Node) {
        let process = world.process(node);
        let before = process.port.subscriber();
        if !process.ownership.owns(0) || before.is_none() {
            return;
        }
        process.version += 1;
        let is_held =
            process.port.end() || self.is(Fault::NoConfirmation) && process.port.confirm();
        world.remember(before);
        let remembered = world.remembered;
        if is_held {
            world.process(node).hold = Some(remembered);
        }
    }
}

impl Model for Pair {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let fresh = World {
            nodes: [None, None],
            boots: [0, 0],
            sent: BTreeSet::new(),
            remembered: 0,
            mappings: 0,
            moves: 0,
            forgotten: 0,
        };
        vec![fresh.clone(), self.connected(fresh)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for node in [Node::A, Node::B] {
            self.actions_of(world, node, actions);
        }
        actions.extend(world.sent.iter().cloned().map(Action::Deliver));
        let remembered = SUBSCRIBERS.into_iter().filter(|bit| world.remembered & bit != 0);
        actions.extend(remembered.map(Action::RemoteForgets));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.step(&mut next, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALWAYS[0], |_, world: &World| world.visible().count_ones() <= 1),
            Property::always(ALWAYS[1], |_, world: &World| world.owners() <= 1),
            Property::sometimes("the partner assigns after evidence", |_, world: &World| {
                world.can_assign(Node::B) && world.nodes[0].is_none() && world.forgotten == 0
            }),
            Property::sometimes("the partner assigns after a planned move", |_, world: &World| {
                world.can_assign(Node::B) && world.boots == [1, 1] && world.nodes[0].is_some()
            }),
            Property::sometimes("a node assigns alone after forget", |_, world: &World| {
                world.can_assign(Node::B) && world.boots[0] == 0
            }),
            Property::sometimes("an ended mapping's port is assigned again", |_, world: &World| {
                world.mappings >= 2 && world.boots == [1, 1] && world.nodes[1].is_some()
            }),
        ]
    }
}
