//! A stream with several readers, over a link that loses, repeats and reorders for each reader
//! alone. A reader has the mappings whose number is its own; the owner does not know the rule.
//!
//! After each step: a port that the owner and a reader have has the same mapping at both. At the
//! end, on a link that works, the readers have the owner's table together.

use natgate_pair::{Message, Present, Receiver, Sender, Stream, StreamId, Written, read};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const ID: StreamId =
    StreamId { slice: 3, worker: 1, reader: 0, stream: Stream { from: 7, to: 5, epoch: 2 } };

/// A mapping: its port, and a number of its own.
type Mapping = (u8, u64);

const PORTS: u8 = 6;

struct Reader {
    receiver: Receiver,
    copy: BTreeMap<u32, Mapping>,
    /// Messages on their way to it.
    queue: Vec<Vec<u8>>,
}

struct Node {
    sender: Sender,
    table: BTreeMap<u32, Mapping>,
    resting: BTreeSet<u8>,
    readers: Vec<Reader>,
    answers: Vec<Vec<u8>>,
    made: u64,
    now: u64,
}

fn bytes((port, number): Mapping) -> Vec<u8> {
    [&[port][..], &number.to_le_bytes()].concat()
}

fn mapping(record: &[u8]) -> Option<Mapping> {
    let (port, number) = record.split_first()?;
    Some((*port, u64::from_le_bytes(number.try_into().ok()?)))
}

impl Node {
    fn new(readers: usize) -> Self {
        let reader = |number| {
            let id = StreamId { reader: number as u8, ..ID };
            let receiver = Receiver::new(id, u32::MAX);
            Reader { receiver, copy: BTreeMap::new(), queue: Vec::new() }
        };
        let mut node = Self {
            sender: Sender::to_readers(ID, readers),
            table: BTreeMap::new(),
            resting: BTreeSet::new(),
            readers: (0..readers).map(reader).collect(),
            answers: Vec::new(),
            made: 0,
            now: 1_000,
        };
        for reader in 0..readers {
            assert!(!node.sender.is_swept(), "not before all have said so");
            let swept = node.readers[reader].receiver.swept();
            node.hear(&swept);
        }
        assert!(node.sender.is_swept());
        node
    }

    fn make(&mut self, key: u32, port: u8) {
        let is_used = self.table.values().any(|mapping| mapping.0 == port);
        if !self.table.contains_key(&key) && !is_used && !self.resting.contains(&port) {
            self.made += 1;
            self.table.insert(key, (port, self.made));
            self.sender.change(key, self.now);
        }
    }

    fn end(&mut self, key: u32) {
        if let Some((port, _)) = self.table.remove(&key)
            && self.sender.end(key, port.into(), self.now)
        {
            self.resting.insert(port);
        }
    }

    fn write(&mut self) -> bool {
        let table = &self.table;
        let written =
            self.sender.write(self.now, (90, 40), |(key, _), out| match table.get(&key) {
                None => Present::Absent,
                Some(mapping) => {
                    out.extend(bytes(*mapping));
                    Present::Record { fingerprint: mapping.1 }
                }
            });
        let Written::Packet(packet) = written else { return false };
        self.readers.iter_mut().for_each(|reader| reader.queue.push(packet.clone()));
        true
    }

    fn deliver(&mut self, reader: usize, message: &[u8]) {
        let count = self.readers.len() as u64;
        let Reader { receiver, copy, .. } = &mut self.readers[reader];
        let answer = receiver.receive(message, self.now, |key, record, _| {
            copy.remove(&key);
            let mapping = mapping(record)?;
            if mapping.1 % count == reader as u64 {
                copy.insert(key, mapping);
            }
            Some(mapping.1)
        });
        self.answers.extend(answer);
    }

    fn hear(&mut self, message: &[u8]) {
        let (id, message) = read(message).expect("an answer");
        assert_eq!(id.common(), ID);
        match message {
            Message::Confirmation(confirmation) => {
                self.sender.confirm(id.reader, &confirmation, self.now);
            }
            Message::Repair(buckets) => self.sender.repair(&buckets),
            other => panic!("{other:?}"),
        }
        for port in self.sender.released() {
            self.resting.remove(&(port as u8));
        }
    }

    /// A port that the owner and a reader have leads to the same mapping.
    fn check(&self) {
        for (port, number) in self.readers.iter().flat_map(|reader| reader.copy.values()) {
            let same = self.table.values().find(|mapping| mapping.0 == *port);
            assert!(same.is_none_or(|mapping| mapping.1 == *number), "port {port}");
        }
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            self.now += 1_000;
            self.sender.expire(self.now, self.now);
            while self.write() {}
            for reader in 0..self.readers.len() {
                for message in std::mem::take(&mut self.readers[reader].queue) {
                    self.deliver(reader, &message);
                    self.check();
                }
            }
            for message in std::mem::take(&mut self.answers) {
                self.hear(&message);
            }
            if self.sender.is_complete() {
                return;
            }
        }
        panic!("the copy does not become complete: {:?}", self.sender.counters());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Make(u32, u8),
    End(u32),
    Write,
    /// A message arrives at a reader; perhaps it stays on its way, to arrive again.
    Deliver(usize, usize, bool),
    Lose(usize, usize),
    Hear(usize, bool),
    Expire(u64),
    Digests,
}

fn step() -> impl Strategy<Value = Step> {
    let place = any::<usize>;
    prop_oneof![
        4 => (0_u32..6, 0..PORTS).prop_map(|(key, port)| Step::Make(key, port)),
        3 => (0_u32..6).prop_map(Step::End),
        5 => Just(Step::Write),
        8 => (place(), place(), any::<bool>())
            .prop_map(|(reader, at, again)| Step::Deliver(reader, at, again)),
        2 => (place(), place()).prop_map(|(reader, at)| Step::Lose(reader, at)),
        8 => (place(), any::<bool>()).prop_map(|(at, again)| Step::Hear(at, again)),
        1 => (0_u64..500).prop_map(Step::Expire),
        1 => Just(Step::Digests),
    ]
}

fn pick(queue: &mut Vec<Vec<u8>>, at: usize, again: bool) -> Option<Vec<u8>> {
    let at = at % queue.len().max(1);
    if again { queue.get(at).cloned() } else { (!queue.is_empty()).then(|| queue.remove(at)) }
}

fn run(node: &mut Node, step: Step) {
    node.now += 10;
    let count = node.readers.len();
    match step {
        Step::Make(key, port) => node.make(key, port),
        Step::End(key) => node.end(key),
        Step::Write => _ = node.write(),
        Step::Deliver(reader, at, again) => {
            if let Some(message) = pick(&mut node.readers[reader % count].queue, at, again) {
                node.deliver(reader % count, &message);
            }
        }
        Step::Lose(reader, at) => _ = pick(&mut node.readers[reader % count].queue, at, false),
        Step::Hear(at, again) => {
            if let Some(message) = pick(&mut node.answers, at, again) {
                node.hear(&message);
            }
        }
        Step::Expire(age) => node.sender.expire(node.now - age, node.now),
        Step::Digests => {
            let digests = node.sender.digests();
            node.readers.iter_mut().for_each(|reader| reader.queue.push(digests.clone()));
        }
    }
}

proptest! {
    #[test]
    fn a_port_rests_until_every_reader_has_forgotten_it(
        readers in 1_usize..4,
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut node = Node::new(readers);
        for step in steps {
            run(&mut node, step);
            node.check();
        }
        node.settle();
        let mut all = BTreeMap::new();
        for reader in &node.readers {
            for (key, mapping) in &reader.copy {
                prop_assert!(all.insert(*key, *mapping).is_none(), "key {} is at two", key);
            }
        }
        prop_assert_eq!(&all, &node.table);
        prop_assert!(node.resting.is_empty() && node.sender.resting() == 0);
        let digests = node.sender.digests();
        node.readers.iter_mut().for_each(|reader| reader.queue.push(digests.clone()));
        node.settle();
        for reader in &node.readers {
            let counters = reader.receiver.counters();
            prop_assert_eq!((counters.divergent, counters.damaged), (0, 0));
        }
    }
}

#[test]
fn what_one_reader_has_no_place_for_is_missing() {
    let mut node = Node::new(2);
    node.make(1, 4);
    assert!(node.write());
    for reader in 0..2 {
        let message = node.readers[reader].queue.pop().expect("a packet");
        let receiver = &mut node.readers[reader].receiver;
        let answer = receiver.receive(&message, 0, |_, _, _| (reader == 0).then_some(1));
        node.hear(&answer.expect("a confirmation"));
    }
    assert_eq!((node.sender.missing(), node.sender.is_complete()), (1, false));
    // A reader that there is not says nothing.
    let id = StreamId { reader: 2, ..ID };
    let mut other = Receiver::new(id, u32::MAX);
    let confirmation = other.swept();
    node.hear(&confirmation);
    assert_eq!(node.sender.missing(), 1);
}
