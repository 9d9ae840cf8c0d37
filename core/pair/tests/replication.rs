//! The two sides of a stream over a link that loses, repeats and reorders.
//!
//! The owner of the tests makes and ends mappings of a few ports, and never uses a port that rests.
//! After each step: a port that both sides have has the same mapping on both, and once a checkpoint
//! has arrived, the copy has no state of before. At the end, on a link that works, the copy is
//! complete and equal.

use natgate_pair::{
    Digests, Message, Present, ReceivedCounters, Receiver, Sender, Stream, StreamId, Translation,
    WINDOW, Written, read,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const ID: StreamId =
    StreamId { slice: 3, worker: 1, reader: 0, stream: Stream { from: 7, to: 5, epoch: 2 } };

/// A mapping: its port, and a number of its own.
type Mapping = (u64, u64);

const PORTS: u64 = 12;

/// Longer than any packet's time.
const LATER: u64 = 40_000_000_000;

const KEYS: u32 = 8;

fn fingerprint(record: &[u8]) -> u64 {
    record.iter().fold(1, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn bytes((port, number): Mapping) -> Vec<u8> {
    [port.to_le_bytes(), number.to_le_bytes()].concat()
}

fn mapping(record: &[u8]) -> Option<Mapping> {
    let (port, number) = record.split_at_checked(8)?;
    Some((u64::from_le_bytes(port.try_into().ok()?), u64::from_le_bytes(number.try_into().ok()?)))
}

/// Two nodes and the link between them.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    table: BTreeMap<u32, Mapping>,
    /// Keys of mappings that are too young to be sent.
    young: BTreeSet<u32>,
    copy: BTreeMap<u32, Mapping>,
    resting: BTreeSet<u64>,
    to_partner: Vec<Vec<u8>>,
    to_owner: Vec<Vec<u8>>,
    made: u64,
    now: u64,
    /// For each key the states since the checkpoint began that the partner may have.
    since: Option<BTreeMap<u32, BTreeSet<Option<Mapping>>>>,
    /// For each ticket its key, and the states since the ticket was given.
    waits: BTreeMap<u64, (u32, BTreeSet<Option<Mapping>>)>,
    tickets: u64,
}

/// The two ends of a stream to a partner that has just started.
fn ends() -> (Sender, Receiver) {
    let (mut sender, mut receiver) = (Sender::new(ID), Receiver::new(ID, u32::MAX));
    let swept = receiver.swept();
    let Some((ID, Message::Confirmation(confirmation))) = read(&swept) else { panic!("it is one") };
    sender.confirm(0, &confirmation, 0);
    (sender, receiver)
}

impl Pair {
    fn new() -> Self {
        let (sender, receiver) = ends();
        Self {
            sender,
            receiver,
            table: BTreeMap::new(),
            young: BTreeSet::new(),
            copy: BTreeMap::new(),
            resting: BTreeSet::new(),
            to_partner: Vec::new(),
            to_owner: Vec::new(),
            made: 0,
            now: 1_000,
            since: None,
            waits: BTreeMap::new(),
            tickets: 0,
        }
    }

    fn wait_for(&mut self, key: u32) {
        self.tickets += 1;
        self.waits.insert(self.tickets, (key, BTreeSet::new()));
        self.sender.wait_for(key, self.tickets, self.now);
        self.note_states();
    }

    fn begin_checkpoint(&mut self) {
        let keys = || (0..KEYS).map(|key| (key, BTreeSet::new())).collect();
        self.since = self.sender.begin_checkpoint().then(keys);
        self.note_states();
    }

    /// Notes what a packet would tell now.
    fn note_states(&mut self) {
        let Self { table, young, since, waits, .. } = self;
        let waits = waits.values_mut().map(|(key, states)| (&*key, states));
        for (key, states) in since.iter_mut().flatten().chain(waits) {
            let mapping = table.get(key).copied();
            states.insert(mapping);
            if young.contains(key) {
                states.insert(None);
            }
        }
    }

    fn make(&mut self, key: u32, port: u64, is_young: bool) {
        let is_used = self.table.values().any(|mapping| mapping.0 == port);
        if self.table.contains_key(&key) || is_used || self.resting.contains(&port) {
            return;
        }
        self.made += 1;
        self.table.insert(key, (port, self.made));
        if is_young {
            self.young.insert(key);
        }
        self.sender.change(key, self.now);
    }

    fn end(&mut self, key: u32) {
        self.young.remove(&key);
        if let Some((port, _)) = self.table.remove(&key)
            && self.sender.end(key, port.into(), self.now)
        {
            self.resting.insert(port);
        }
    }

    fn reopen(&mut self, key: u32) {
        if self.table.contains_key(&key) && self.young.insert(key) {
            self.sender.change(key, self.now);
        }
    }

    fn grow_up(&mut self) {
        for key in std::mem::take(&mut self.young) {
            self.sender.change(key, self.now);
        }
    }

    fn write(&mut self, room: usize) -> bool {
        let (table, young) = (&self.table, &self.young);
        let source = |(key, is_known): (u32, bool), out: &mut Vec<u8>| match table.get(&key) {
            None => Present::Absent,
            Some(_) if young.contains(&key) && !is_known => Present::NotYet,
            Some(mapping) => {
                out.extend(bytes(*mapping));
                Present::Record { fingerprint: fingerprint(&bytes(*mapping)) }
            }
        };
        let written = self.sender.write(self.now, (room, 40), source);
        match written {
            Written::Packet(packet) => self.to_partner.push(packet),
            Written::Nothing | Written::Full | Written::More => return false,
        }
        true
    }

    fn at_partner(&mut self, message: &[u8]) {
        let Self { copy, table, .. } = self;
        let answer = self.receiver.receive(message, self.now, |key, record, _: &Translation| {
            let before = copy.remove(&key);
            match mapping(record) {
                Some(mapping) => _ = copy.insert(key, mapping),
                None => assert!(
                    before.is_none() || before.as_ref() != table.get(&key),
                    "{key} has not ended"
                ),
            }
            Some(fingerprint(record))
        });
        self.to_owner.extend(answer);
    }

    fn at_owner(&mut self, message: &[u8]) {
        match read(message) {
            Some((ID, Message::Confirmation(confirmation))) => {
                self.sender.confirm(0, &confirmation, self.now);
            }
            Some((ID, Message::Repair(buckets))) => self.sender.repair(&buckets),
            other => panic!("{other:?}"),
        }
        for port in self.sender.released() {
            self.resting.remove(&(port as u64));
        }
        for ticket in self.sender.arrived() {
            let (key, states) = self.waits.remove(&ticket).expect("it waits");
            let at_partner = self.copy.get(&key).copied();
            assert!(states.contains(&at_partner), "{key}: {at_partner:?}, not {states:?}");
        }
    }

    /// A port that both sides have leads to the same mapping.
    fn check(&self) {
        for (port, number) in self.copy.values() {
            let same = self.table.values().find(|mapping| mapping.0 == *port);
            assert!(same.is_none_or(|mapping| mapping.1 == *number), "port {port}");
        }
        if self.sender.has_arrived() == Some(true) {
            for (key, states) in self.since.iter().flatten() {
                let at_partner = self.copy.get(key).copied();
                assert!(states.contains(&at_partner), "{key}: {at_partner:?}, not {states:?}");
            }
        }
    }

    /// Works without loss until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.now += LATER;
            self.sender.expire(self.now, self.now);
            while self.write(80) {}
            for message in std::mem::take(&mut self.to_partner) {
                self.at_partner(&message);
                self.check();
            }
            for message in std::mem::take(&mut self.to_owner) {
                self.at_owner(&message);
            }
            if self.sender.is_complete() {
                return;
            }
        }
        panic!("the copy does not become complete: {:?}", self.sender.counters());
    }

    fn counters(&self) -> ReceivedCounters {
        self.receiver.counters()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Make(u32, u64, bool),
    End(u32),
    GrowUp,
    /// A mapping becomes as a young one: its connection opens again.
    Reopen(u32),
    Write(usize),
    /// The link has no room for the packet that is written.
    WriteUnsent(usize),
    NewConnection,
    /// A message arrives, from a place in the queue; perhaps it stays there, to arrive again.
    Partner(usize, bool),
    Owner(usize, bool),
    Lose(usize),
    Expire(u64),
    Digests,
    Checkpoint,
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..KEYS, 0..PORTS, prop::bool::weighted(0.2))
            .prop_map(|(key, port, young)| Step::Make(key, port, young)),
        3 => (0..KEYS).prop_map(Step::End),
        1 => Just(Step::GrowUp),
        1 => (0..KEYS).prop_map(Step::Reopen),
        5 => (60_usize..160).prop_map(Step::Write),
        1 => (60_usize..160).prop_map(Step::WriteUnsent),
        1 => Just(Step::NewConnection),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Step::Partner(at, again)),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Step::Owner(at, again)),
        2 => any::<usize>().prop_map(Step::Lose),
        1 => (0_u64..500).prop_map(Step::Expire),
        1 => Just(Step::Digests),
        1 => Just(Step::Checkpoint),
        2 => (0..KEYS).prop_map(Step::Wait),
    ]
}

fn pick(queue: &mut Vec<Vec<u8>>, at: usize, again: bool) -> Option<Vec<u8>> {
    let at = at % queue.len().max(1);
    if again { queue.get(at).cloned() } else { (!queue.is_empty()).then(|| queue.remove(at)) }
}

fn run(pair: &mut Pair, step: Step) {
    pair.now += 10;
    match step {
        Step::Make(key, port, is_young) => pair.make(key, port, is_young),
        Step::End(key) => pair.end(key),
        Step::GrowUp => pair.grow_up(),
        Step::Reopen(key) => pair.reopen(key),
        Step::Write(room) => _ = pair.write(room),
        Step::WriteUnsent(room) => {
            if pair.write(room) {
                pair.to_partner.pop();
                pair.sender.note_unsent(1, pair.now);
            }
        }
        Step::NewConnection => pair.sender.note_new_connection(),
        Step::Partner(at, again) => {
            if let Some(message) = pick(&mut pair.to_partner, at, again) {
                pair.at_partner(&message);
            }
        }
        Step::Owner(at, again) => {
            if let Some(message) = pick(&mut pair.to_owner, at, again) {
                pair.at_owner(&message);
            }
        }
        Step::Lose(at) => _ = pick(&mut pair.to_partner, at, false),
        Step::Expire(age) => pair.sender.expire(pair.now - age, pair.now),
        Step::Digests => pair.to_partner.push(pair.sender.digests()),
        Step::Checkpoint => pair.begin_checkpoint(),
        Step::Wait(key) => pair.wait_for(key),
    }
    pair.note_states();
}

proptest! {
    #[test]
    fn no_port_has_two_mappings_and_the_copy_becomes_equal(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut pair = Pair::new();
        for step in steps {
            run(&mut pair, step);
            pair.check();
        }
        pair.grow_up();
        pair.note_states();
        pair.settle();
        prop_assert_eq!(&pair.copy, &pair.table);
        prop_assert!(pair.waits.is_empty(), "{:?} wait", pair.waits);
        prop_assert!(pair.sender.has_arrived() != Some(false));
        prop_assert!(pair.resting.is_empty() && pair.sender.resting() == 0);
        prop_assert_eq!(pair.sender.lag(pair.now), 0);
        // Digests never differ by loss or order alone.
        pair.to_partner.push(pair.sender.digests());
        pair.settle();
        prop_assert_eq!((pair.counters().divergent, pair.counters().damaged), (0, 0));
    }

    #[test]
    fn damaged_messages_change_nothing(
        at in any::<usize>(), byte in any::<u8>(), len in any::<usize>(), cut in any::<bool>(),
    ) {
        let mut pair = Pair::new();
        (0..5).for_each(|key| pair.make(key, u64::from(key), false));
        pair.write(1_200);
        let mut packet = pair.to_partner.pop().expect("a packet");
        if cut {
            packet.truncate(len % packet.len());
        } else {
            let at = at % packet.len();
            packet[at] = byte;
        }
        pair.at_partner(&packet);
        let counters = pair.counters();
        let refused = counters.damaged + counters.foreign + counters.packets;
        prop_assert_eq!(refused, 1);
    }
}

#[test]
fn records_of_another_epoch_or_start_are_refused_and_counted() {
    let mut pair = Pair::new();
    let Stream { from, to, epoch } = ID.stream;
    let others = [
        Stream { from: from - 1, to, epoch },
        Stream { from, to: to + 1, epoch },
        Stream { from, to, epoch: epoch - 1 },
    ];
    for stream in others {
        let mut old = Sender::new(StreamId { stream, ..ID });
        old.change(1, 0);
        let written = old.write(0, (1_200, 100_000), |_, out| {
            out.extend(bytes((1, 1)));
            Present::Record { fingerprint: 5 }
        });
        let Written::Packet(packet) = written else { panic!("{written:?}") };
        pair.at_partner(&packet);
    }
    assert_eq!(pair.counters(), ReceivedCounters { foreign: 3, ..Default::default() });
    assert!(pair.copy.is_empty() && pair.to_owner.is_empty());
}

#[test]
fn replayed_packets_change_nothing_and_are_counted() {
    let mut pair = Pair::new();
    pair.make(1, 4, false);
    pair.write(1_200);
    let old = pair.to_partner[0].clone();
    pair.settle();
    pair.end(1);
    pair.settle();
    pair.at_partner(&old);
    assert_eq!((pair.counters().repeated, pair.copy.len()), (1, 0));
}

#[test]
fn a_divergence_is_noticed_and_repaired() {
    let mut pair = Pair::new();
    (0..8).for_each(|key| pair.make(key, u64::from(key), false));
    pair.settle();
    pair.to_partner.push(pair.sender.digests());
    pair.settle();
    assert_eq!((pair.counters().compared, pair.counters().divergent), (1024, 0));

    // A record that finds no room is one kind of divergence.
    pair.make(20, 11, false);
    assert!(pair.write(1_200));
    for message in std::mem::take(&mut pair.to_partner) {
        let answer = pair.receiver.receive(&message, 0, |_, _, _| None);
        pair.to_owner.extend(answer);
    }
    for message in std::mem::take(&mut pair.to_owner) {
        pair.at_owner(&message);
    }
    assert!(!pair.sender.is_complete() && pair.sender.missing() == 1);
    assert_eq!(pair.copy.len() + 1, pair.table.len());
    pair.to_partner.push(pair.sender.digests());
    pair.settle();
    pair.settle();
    assert_eq!(pair.copy, pair.table);
    assert_eq!((pair.counters().without_room, pair.counters().divergent), (1, 1));
}

#[test]
fn a_copy_that_has_ended_by_itself_is_missed_and_comes_again() {
    let mut pair = Pair::new();
    (0..8).for_each(|key| pair.make(key, u64::from(key), false));
    pair.settle();
    assert!(pair.sender.is_complete());
    pair.copy.remove(&3);
    let request = pair.receiver.lose(3).expect("the key was there");
    assert!(!pair.receiver.has_all() && pair.receiver.lose(3).is_none());
    pair.at_owner(&request);
    assert!(!pair.sender.is_complete());
    pair.settle();
    assert_eq!(pair.copy, pair.table);
    assert!(pair.sender.is_complete() && pair.receiver.has_all());
}

/// Something changes between any packet and its confirmation, and some packets are lost.
#[test]
fn checkpoints_arrive_although_the_copy_is_never_complete() {
    let mut pair = Pair::new();
    (0..KEYS).for_each(|key| pair.make(key, u64::from(key), false));
    let mut arrived = 0;
    for turn in 0..400 {
        pair.now += 10;
        let key = turn % KEYS;
        pair.end(key);
        pair.make(key, PORTS + u64::from(turn), false);
        pair.note_states();
        for answer in std::mem::take(&mut pair.to_owner) {
            pair.at_owner(&answer);
        }
        while pair.write(1_200) {}
        for message in std::mem::take(&mut pair.to_partner) {
            if turn % 7 != 3 {
                pair.at_partner(&message);
            }
        }
        pair.sender.expire(pair.now - 40, pair.now);
        pair.check();
        assert!(!pair.sender.is_complete());
        if pair.sender.has_arrived() != Some(false) {
            arrived += 1;
            pair.begin_checkpoint();
        }
    }
    assert!((100..=250).contains(&arrived), "{arrived}");
    // If the copy differs, what has arrived is unknown.
    pair.sender.repair(&[5]);
    assert!(pair.sender.has_arrived().is_none() && !pair.sender.begin_checkpoint());
    pair.settle();
    assert!(pair.sender.begin_checkpoint());
    assert_eq!(pair.sender.has_arrived(), Some(true), "nothing is owed");
}

#[test]
fn an_awaited_record_is_sent_first_and_again_after_a_loss() {
    let mut pair = Pair::new();
    (0..KEYS).for_each(|key| pair.make(key, u64::from(key), false));
    pair.wait_for(KEYS - 1);
    assert!(pair.write(80), "one record has room");
    pair.to_partner.clear();
    pair.sender.expire(pair.now + 1, pair.now);
    assert!(pair.sender.arrived().next().is_none());
    assert!(pair.write(80));
    let packet = pair.to_partner.pop().expect("a packet");
    pair.at_partner(&packet);
    assert_eq!(pair.copy.keys().copied().collect::<Vec<_>>(), [KEYS - 1]);
    let answer = pair.to_owner.pop().expect("a confirmation");
    pair.at_owner(&answer);
    assert!(pair.waits.is_empty());
    pair.wait_for(2);
    pair.sender.wait_for(u32::MAX, 9, 0);
    assert_eq!(pair.sender.arrived().collect::<Vec<_>>(), [9], "there is no such key");
    assert_eq!(pair.sender.give_up(), [2]);
}

/// The partner keeps a mapping that becomes too young for a first record. Another one of the same
/// key waits for its age.
#[test]
fn a_mapping_that_was_sent_does_not_end_because_it_is_young() {
    let mut pair = Pair::new();
    pair.make(1, 4, false);
    pair.settle();
    pair.reopen(1);
    pair.sender.repair(&[1]);
    pair.settle();
    assert_eq!((pair.copy.len(), pair.copy == pair.table), (1, true));
    pair.end(1);
    pair.make(1, 5, true);
    pair.settle();
    assert_eq!(pair.copy.len(), 0);
    pair.grow_up();
    pair.settle();
    assert_eq!((pair.copy.len(), pair.copy == pair.table), (1, true));
}

/// A pair with a port that rests: the partner may have its mapping of its own time as the owner.
fn with_resting_port() -> Pair {
    let mut pair = Pair::new();
    (pair.sender, pair.receiver) = (Sender::new(ID), Receiver::new(ID, u32::MAX));
    pair.make(1, 4, true);
    pair.end(1);
    pair.settle();
    assert_eq!((pair.resting.len(), pair.sender.resting()), (1, 1));
    pair
}

#[test]
fn every_port_rests_until_the_partner_has_no_mapping_without_a_key() {
    let mut pair = with_resting_port();
    let swept = pair.receiver.swept();
    pair.at_owner(&swept);
    assert_eq!((pair.resting.len(), pair.sender.resting()), (0, 0));
}

/// The confirmation that says so is lost, and no packet brings another one.
#[test]
fn the_partner_says_again_that_it_has_no_mapping_without_a_key() {
    let mut pair = with_resting_port();
    drop(pair.receiver.swept());
    pair.settle();
    assert_eq!(pair.resting.len(), 1, "the owner has not heard it");
    let digests = pair.sender.digests();
    pair.at_partner(&digests);
    pair.settle();
    assert_eq!((pair.resting.len(), pair.sender.resting()), (0, 0));
}

#[test]
fn a_key_from_the_bound_on_is_refused() {
    let (mut sender, _) = ends();
    let mut receiver = Receiver::new(ID, 1000);
    sender.change(1000, 0);
    let written = sender.write(0, (1_200, 2000), |_, _| Present::Record { fingerprint: 1 });
    let Written::Packet(packet) = written else { panic!("{written:?}") };
    assert!(receiver.receive(&packet, 0, |_, _, _| panic!("it is not applied")).is_none());
    assert_eq!(receiver.counters().damaged, 1);
}

#[test]
fn the_memory_for_a_dead_link_is_bounded() {
    let mut pair = Pair::new();
    // The partner is quick: the whole window is allowed.
    for turn in 0..WINDOW {
        pair.make(0, turn % PORTS, false);
        pair.settle();
        pair.end(0);
        pair.settle();
    }
    let (mut packets, before) = (0, pair.counters().gaps);
    for turn in 0..2 * WINDOW {
        let port = turn % PORTS;
        pair.make((turn % 8) as u32, port, false);
        packets += u64::from(pair.write(1_200));
        pair.end((turn % 8) as u32);
        pair.resting.clear();
    }
    assert_eq!(packets, WINDOW);
    assert!(matches!(
        pair.sender.write(0, (1_200, 100_000), |_, _| Present::Absent),
        Written::Full
    ));
    pair.to_partner.clear();
    // After a long break the numbers go on far beyond the receiver's window.
    pair.settle();
    assert_eq!(pair.copy, pair.table);
    assert!(pair.counters().gaps - before >= WINDOW);
}

/// The floor waits for a lost packet that may be late only. No packet tells its end.
#[test]
fn digests_of_a_quiet_stream_are_compared_after_a_loss() {
    const MILLISECOND: u64 = 1_000_000;
    let (mut sender, mut receiver) = ends();
    let mut send = |sender: &mut Sender, key, now: u64, is_lost: bool| {
        assert!(sender.change(key, now));
        let written = sender.write(now, (1_200, 100), |_, out| {
            out.extend([1; 8]);
            Present::Record { fingerprint: now.max(1) }
        });
        let Written::Packet(packet) = written else { panic!("{written:?}") };
        if !is_lost {
            let answer = receiver.receive(&packet, now, |_, _, _| Some(now.max(1)));
            let answer = answer.as_ref().and_then(|bytes| read(bytes));
            let Some((_, Message::Confirmation(one))) = answer else { panic!("{answer:?}") };
            sender.confirm(0, &one, now + MILLISECOND);
        }
    };
    send(&mut sender, 1, 0, true);
    (2..6).for_each(|key| send(&mut sender, key, u64::from(key) * MILLISECOND, false));
    assert_eq!(sender.counters().lost, 1);
    // This packet has key 1 as well.
    send(&mut sender, 6, 7 * MILLISECOND, false);
    assert!(sender.is_complete(), "whether the floor waits or not");
    sender.time_out(5_000 * MILLISECOND, (MILLISECOND, MILLISECOND));
    let digests = sender.digests();
    receiver.receive(&digests, 5_000 * MILLISECOND, |_, _, _| None);
    assert!(receiver.counters().compared > 0);
}

/// Each confirmation is a datagram of its own.
#[test]
fn packets_that_come_together_have_one_confirmation() {
    let (mut sender, mut receiver) = ends();
    (1..=3).for_each(|key| assert!(sender.change(key, 0)));
    while let Written::Packet(packet) = sender.write(0, (1_200, 100_000), |_, out| {
        out.resize(1_000, 0);
        Present::Record { fingerprint: 1 }
    }) {
        let message = read(&packet).expect("a packet");
        assert_eq!(receiver.take(message, 0, |_, _, _| Some(1)), None);
    }
    assert!(!sender.is_complete());
    let bytes = receiver.confirm_taken().expect("packets have come");
    assert_eq!(receiver.confirm_taken(), None, "and no others");
    let Some((_, Message::Confirmation(confirmation))) = read(&bytes) else { panic!("{bytes:?}") };
    assert_eq!((receiver.counters().packets, confirmation.below), (3, 4));
    sender.confirm(0, &confirmation, 0);
    assert!(sender.is_complete());
}

#[test]
fn a_long_record_is_a_packet_by_itself() {
    let (mut sender, mut receiver) = ends();
    (1..=3).for_each(|key| assert!(sender.change(key, 0)));
    let mut packets = Vec::new();
    while let Written::Packet(packet) = sender.write(0, (1_200, 100_000), |(key, _), out| {
        out.resize(if key == 2 { 300_000 } else { 40 }, key as u8);
        Present::Record { fingerprint: 1 }
    }) {
        packets.push(packet);
    }
    let mut lengths = BTreeMap::new();
    for packet in &packets {
        receiver.receive(packet, 0, |key, record, _| {
            lengths.insert(key, record.len());
            Some(1)
        });
    }
    assert_eq!((packets.len(), lengths), (3, BTreeMap::from([(1, 40), (2, 300_000), (3, 40)])));
}

/// A subscriber may change such a record with each of its packets.
#[test]
fn a_long_record_is_written_once_in_a_round_trip() {
    let (mut sender, mut receiver) = ends();
    let mut packets = Vec::new();
    for ticket in 1..=10 {
        sender.wait_for(7, ticket, 0);
        let written = sender.write(0, (1_200, 100_000), |_, out| {
            out.resize(5_000, ticket as u8);
            Present::Record { fingerprint: ticket }
        });
        if let Written::Packet(packet) = written {
            packets.push(packet);
        }
    }
    assert_eq!(packets.len(), 1);
    let answer = receiver.receive(&packets[0], 0, |_, _, _| Some(1));
    let bytes = answer.expect("a confirmation");
    let Some((_, Message::Confirmation(confirmation))) = read(&bytes) else { panic!("{bytes:?}") };
    sender.confirm(0, &confirmation, 0);
    assert_eq!(sender.arrived().collect::<Vec<_>>(), [1]);
    // The others wait for the next record, which is lost once.
    for turn in 0..2 {
        let mut count = 0;
        while let Written::Packet(packet) = sender.write(5, (1_200, 100_000), |_, out| {
            out.resize(5_000, 10);
            Present::Record { fingerprint: 10 }
        }) {
            packets.push(packet);
            count += 1;
        }
        assert_eq!(count, 1);
        sender.expire(if turn == 0 { 6 } else { 0 }, LATER);
    }
    let answer = receiver.receive(&packets[2], 0, |_, _, _| Some(1));
    let bytes = answer.expect("a confirmation");
    let Some((_, Message::Confirmation(confirmation))) = read(&bytes) else { panic!("{bytes:?}") };
    sender.confirm(0, &confirmation, 0);
    assert_eq!(sender.arrived().collect::<Vec<_>>(), (2..=10).collect::<Vec<_>>());
}

/// Writes a packet in which keys up to `longs` have a long record.
fn write_long(sender: &mut Sender, now: u64, longs: u32) -> Option<Vec<u8>> {
    let written = sender.write(now, (1_200, 100_000), |(key, _), out| {
        out.resize(if key <= longs { 5_000 } else { 40 }, 0);
        Present::Record { fingerprint: now + 1 }
    });
    match written {
        Written::Packet(packet) => Some(packet),
        _ => None,
    }
}

/// Gives a packet to the partner, and its answer to the owner.
fn confirm((sender, receiver): &mut (Sender, Receiver), packet: &[u8], now: u64) {
    let answer = receiver.receive(packet, now, |_, _, _| Some(1)).expect("a confirmation");
    let Some((_, Message::Confirmation(confirmation))) = read(&answer) else { panic!() };
    sender.confirm(0, &confirmation, now);
}

/// It goes in a stream, and datagrams are faster.
#[test]
fn packets_that_overtake_a_long_record_do_not_make_it_lost() {
    let mut ends = ends();
    ends.0.wait_for(1, 7, 0);
    let long = write_long(&mut ends.0, 0, 1).expect("the long record");
    for now in 1..100 {
        ends.0.wait_for(1, 7 + now, now);
        ends.0.change(2, now);
        let packet = write_long(&mut ends.0, now, 1).expect("a short record");
        assert!(packet.len() < 1_200);
        ends.0.expire(now, 300_000_000);
        confirm(&mut ends, &packet, now);
    }
    assert_eq!((ends.0.counters().lost, ends.0.arrived().count()), (0, 0));
    confirm(&mut ends, &long, 100);
    assert_eq!(ends.0.arrived().collect::<Vec<_>>(), [7]);
    let next = write_long(&mut ends.0, 101, 1).expect("the next long record");
    confirm(&mut ends, &next, 102);
    assert_eq!((ends.0.counters().lost, ends.0.arrived().count()), (0, 99));
    assert!(ends.0.is_complete());
}

#[test]
fn a_long_record_has_a_time_that_grows_with_losses() {
    let mut ends = ends();
    ends.0.change(1, 0);
    let (mut now, mut times) = (0, Vec::new());
    for _ in 0..8 {
        write_long(&mut ends.0, now, 1).expect("it is written again");
        let (sent, lost) = (now, ends.0.counters().lost);
        while ends.0.counters().lost == lost {
            now += 10_000_000;
            ends.0.expire(now, now);
        }
        times.push((now - sent) / 1_000_000);
    }
    assert_eq!(times, [320, 630, 1250, 2490, 4970, 9930, 19_850, 32_000], "milliseconds");
    let packet = write_long(&mut ends.0, now, 1).expect("it is written again");
    confirm(&mut ends, &packet, now);
    ends.0.change(1, now);
    write_long(&mut ends.0, now + 1, 1).expect("the next one");
    ends.0.expire(now + 2, now + 3_000_000_000);
    assert_eq!(ends.0.counters().lost, 9, "one that has arrived ends the patience");
}

/// Without a place in the link, or with another connection, nobody waits for its time.
#[test]
fn a_long_record_that_was_not_sent_is_lost_at_once() {
    for is_refused in [true, false] {
        let mut ends = ends();
        ends.0.change(1, 0);
        write_long(&mut ends.0, 0, 1).expect("the long record");
        if is_refused {
            ends.0.note_unsent(1, 0);
        } else {
            ends.0.change(2, 0);
            write_long(&mut ends.0, 0, 1).expect("a short record");
            ends.0.note_new_connection();
        }
        ends.0.expire(1, 1);
        assert_eq!(ends.0.counters().lost, if is_refused { 1 } else { 2 });
        let packet = write_long(&mut ends.0, 2, 1).expect("it is written again");
        confirm(&mut ends, &packet, 3);
        if let Some(packet) = write_long(&mut ends.0, 4, 1) {
            confirm(&mut ends, &packet, 5);
        }
        assert!(ends.0.is_complete());
    }
}

#[test]
fn few_long_records_are_on_their_way_and_short_ones_pass_them() {
    let mut ends = ends();
    (1..=20).for_each(|key| ends.0.wait_for(key, key.into(), 0));
    ends.0.change(30, 0);
    let mut packets = Vec::new();
    while let Some(packet) = write_long(&mut ends.0, 0, 20) {
        packets.push(packet);
    }
    assert_eq!(packets.iter().filter(|packet| packet.len() > 1_200).count(), 8);
    assert_eq!(packets.len(), 9, "the short one has gone");
    for _ in 0..40 {
        for packet in std::mem::take(&mut packets) {
            confirm(&mut ends, &packet, 1);
            packets.extend(write_long(&mut ends.0, 1, 20));
        }
    }
    assert!(ends.0.is_complete());
    assert_eq!(ends.0.arrived().count(), 20);
}

/// Keys that are awaited all the time keep neither other awaited ones nor the rest waiting.
#[test]
fn awaited_keys_take_turns_and_leave_room_for_others() {
    let mut sender = Sender::new(ID);
    let mut sent = Vec::new();
    sender.change(50, 0);
    for turn in 1..=8 {
        (1..=6).for_each(|key| sender.wait_for(key, turn * 10 + u64::from(key), 0));
        let mut first = None;
        let written = sender.write(0, (80, 100_000), |(key, _), out| {
            first.get_or_insert(key);
            out.resize(16, 0);
            Present::Record { fingerprint: turn }
        });
        assert!(matches!(written, Written::Packet(_)));
        sent.extend(first);
    }
    assert_eq!(sent, [1, 2, 3, 50, 4, 5, 6, 1]);
}

/// The room is that of a link whose path takes packets of 1,280 bytes.
#[test]
fn a_flow_costs_less_than_100_bytes() {
    let mut sender = Sender::new(ID);
    sender.leave_keys(true);
    (0..100_000).for_each(|key| assert!(sender.change(key, 0)));
    let mut bytes = 0;
    for _ in 0..100_000 {
        // A record of the hand-over with one session.
        let written = sender.write(0, (1_200, 100_000), |(key, _), out| {
            out.extend(key.to_le_bytes());
            out.extend([0; 88]);
            Present::Record { fingerprint: 1 }
        });
        match written {
            Written::Packet(packet) => bytes += packet.len(),
            _ => sender.expire(1, 0),
        }
        if sender.counters().records >= 100_000 {
            break;
        }
    }
    assert!(bytes <= 100 * 100_000, "{bytes}");
}

/// The record of a flow has 92 bytes, and its packet has room for thirteen at a usual link.
#[test]
fn a_record_that_leaves_out_its_key_is_whole_at_the_partner() {
    let lengths = [false, true].map(|leaves| {
        let (mut sender, mut receiver) = ends();
        sender.leave_keys(leaves);
        (0..2_600).for_each(|key| assert!(sender.change(key, 0)));
        // Each third record does not begin with its key, and one key ends.
        let record = |key: u32| {
            let first = if key.is_multiple_of(3) { u32::MAX } else { key };
            [&first.to_le_bytes()[..], &[7; 88]].concat()
        };
        let mut received = BTreeMap::new();
        loop {
            let written = sender.write(0, (1_400, 100_000), |(key, _), out| {
                out.extend(record(key));
                Present::Record { fingerprint: 1 }
            });
            let Written::Packet(packet) = written else { break };
            assert!(packet.len() <= 1_400);
            receiver.receive(&packet, 0, |key, record, _| {
                received.insert(key, record.to_vec());
                Some(1)
            });
        }
        assert_eq!(received.len(), 2_600);
        assert!(received.iter().all(|(key, bytes)| *bytes == record(*key)));
        assert_eq!(receiver.counters().damaged, 0);
        sender.end(1, 7, 1);
        let Written::Packet(packet) = sender.write(1, (1_400, 100_000), |_, _| Present::Absent)
        else {
            panic!("an end")
        };
        receiver.receive(&packet, 1, |key, record, _| {
            assert!(key == 1 && record.is_empty());
            None
        });
        sender.counters().bytes
    });
    assert!(lengths[1] < lengths[0] - 2_600 * 2, "{lengths:?}");
}

#[test]
fn digests_of_a_bucket_cover_its_keys() {
    assert_eq!(Digests::bucket(1024 + 5), Digests::bucket(5));
}

#[test]
fn a_ticket_that_waits_for_a_key_twice_arrives_twice() {
    let mut pair = Pair::new();
    pair.make(1, 4, false);
    pair.sender.wait_for(1, 7, pair.now);
    pair.sender.wait_for(1, 7, pair.now);
    assert!(pair.sender.arrived().count() < 2, "the record has not arrived");
    let mut told = 1;
    assert!(pair.write(1_200));
    for message in std::mem::take(&mut pair.to_partner) {
        pair.at_partner(&message);
    }
    for message in std::mem::take(&mut pair.to_owner) {
        let Some((ID, Message::Confirmation(confirmation))) = read(&message) else { panic!() };
        pair.sender.confirm(0, &confirmation, pair.now);
    }
    told += pair.sender.arrived().count();
    assert_eq!((told, pair.sender.give_up().len()), (2, 0));
}
