//! Two real engines, a stream between them over a link that loses, repeats and reorders, and the
//! crash of the owner at any point. A seed gives a history; a failure prints it.
//!
//! A judge outside notes who has each external endpoint. No endpoint is another subscriber's
//! before the hold-down ends. What the partner has copied keeps its endpoint.

use natgate_engine::{
    AddressRange, Config, Copied, Copies, Engine, NoNumbers, Packet, PoolConfig, Prefix, Side,
    SideConfig, Timestamp, Verdict,
};
use natgate_pair::{Message, Node, Ownership, Present, Receiver, Sender, StreamId, Written, read};
use natgate_wire::{Ipv4, protocol};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const A: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const B: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const REMOTE: u32 = 0xc633_6407;
const SECOND: u64 = 1_000_000_000;

/// A flow: host and port inside, and the external endpoint that it got.
type Flows = BTreeMap<(u32, u16), (u32, u16)>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// An engine whose own address is `own`; the other address is only for copies.
fn engine(own: Ipv4Addr, other: Ipv4Addr, now: u64, seed: u8) -> Engine {
    let range = |address| AddressRange { first: address, last: address };
    let side = |address| SideConfig {
        address: Some(address),
        network: Some(Prefix::new(address, 24)),
        ..SideConfig::default()
    };
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![range(own), range(other)],
        draining: vec![range(other)],
        ports: (2000, 2063),
        ..PoolConfig::default()
    };
    let config = Config {
        inside: side(Ipv4Addr::new(10, 0, 0, 1)),
        outside: side(Ipv4Addr::new(192, 0, 2, 1)),
        pools: vec![pool],
        ..Config::default()
    };
    Engine::new(&config, [seed; 32], Timestamp(now)).expect("a configuration")
}

/// Sends a datagram of a flow. Returns its external endpoint, or `None` if it is dropped.
fn send(engine: &mut Engine, now: u64, (host, port): (u32, u16)) -> Option<(u32, u16)> {
    let mut bytes = [0; 28];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(28);
    header.set_ttl(64);
    header.set_protocol(protocol::UDP);
    header.set_source(host);
    header.set_destination(REMOTE);
    header.fill_checksum();
    bytes[20..22].copy_from_slice(&port.to_be_bytes());
    bytes[22..24].copy_from_slice(&80_u16.to_be_bytes());
    bytes[25] = 8;
    let mut packets = [Packet::new(&mut bytes, 0)];
    let mut verdicts = [Verdict::Held];
    engine.process(Timestamp(now), Side::Inside, &mut packets, &mut verdicts);
    let packet = packets[0].bytes();
    let source = Ipv4::new_checked(packet).expect("a packet").source();
    let port = u16::from_be_bytes([packet[20], packet[21]]);
    (verdicts[0] == Verdict::Forward(Side::Outside)).then_some((source, port))
}

struct Pair {
    random: Random,
    now: u64,
    /// Difference between the clocks of the two machines.
    skew: u64,
    a: Engine,
    b: Engine,
    copies: Copies,
    sender: Sender,
    receiver: Receiver,
    link: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
    flows: Flows,
}

impl Pair {
    fn new(seed: u64) -> (Self, Ownership) {
        let mut random = Random(seed);
        let now = 1_700_000_000 * SECOND + random.below(SECOND);
        let skew = random.below(50_000) * SECOND + random.below(SECOND);
        let a = engine(A, B, now, seed as u8);
        let b = engine(B, A, now + skew, !seed as u8);
        let [mut of_a, mut of_b] = [(Node::A, 5), (Node::B, 9)]
            .map(|(node, boot)| Ownership::start(node, boot, &[Node::A]));
        while of_b.source(0).is_none() {
            let _ = of_b.receive(&of_a.view());
            let _ = of_a.receive(&of_b.view());
        }
        let stream = of_a.destination(0).expect("A is the owner and knows B");
        assert_eq!(of_b.source(0), Some(stream));
        let id = StreamId { slice: 0, worker: 0, reader: 0, stream };
        let mut origin = Vec::new();
        a.copy_origin(&mut origin);
        let copies = b.begin_copies(&origin).expect("an origin");
        let (sender, receiver) = (Sender::new(id), Receiver::new(id, u32::MAX));
        let (link, back, flows) = (Vec::new(), Vec::new(), Flows::new());
        (Self { random, now, skew, a, b, copies, sender, receiver, link, back, flows }, of_b)
    }

    fn step(&mut self) {
        match self.random.below(8) {
            0..=2 => {
                let host = 0x0a00_0010 + self.random.below(6) as u32;
                let flow = (host, 4000 + self.random.below(8) as u16);
                if let Some(external) = send(&mut self.a, self.now, flow) {
                    let before = *self.flows.entry(flow).or_insert(external);
                    assert_eq!(before, external, "a living flow keeps its endpoint");
                }
            }
            3 => self.write(),
            4 | 5 => {
                if !self.link.is_empty() {
                    let at = self.random.below(self.link.len() as u64) as usize;
                    let message = match self.random.below(3) {
                        0 => self.link[at].clone(),
                        _ => self.link.remove(at),
                    };
                    if self.random.below(4) > 0 {
                        self.at_partner(&message);
                    }
                }
            }
            6 => self.at_owner(),
            _ => {
                self.now += self.random.below(3) * SECOND;
                while self.a.advance(Timestamp(self.now)) {}
                while self.b.advance(Timestamp(self.now + self.skew)) {}
                self.sender.expire(self.now.saturating_sub(SECOND), self.now);
            }
        }
    }

    fn write(&mut self) {
        for key in 0..self.a.copy_extent() {
            self.sender.change(key, self.now);
        }
        let a = &self.a;
        let written = self.sender.write(self.now, (300, a.copy_extent()), |(key, _), out| {
            let print = a.copy_record(key, &NoNumbers, out);
            print.map_or(Present::Absent, |fingerprint| Present::Record { fingerprint })
        });
        if let Written::Packet(packet) = written {
            self.link.push(packet);
        }
    }

    fn at_partner(&mut self, message: &[u8]) {
        let (b, copies) = (&mut self.b, &mut self.copies);
        let answer = self.receiver.receive(message, self.now + self.skew, |key, record, _| {
            if record.is_empty() {
                b.end_copy(copies, key);
                return None;
            }
            match b
                .copy(copies, &mut NoNumbers, (key, record))
                .expect("a record that an engine has written")
            {
                Copied::Made(fingerprint) => Some(fingerprint),
                Copied::Part | Copied::NoPlace | Copied::NoRealm | Copied::NoNumber(_) => None,
            }
        });
        self.back.extend(answer);
    }

    fn at_owner(&mut self) {
        for message in std::mem::take(&mut self.back) {
            let (_, message) = read(&message).expect("an answer");
            if let Message::Confirmation(confirmation) = message
                && self.random.below(4) > 0
            {
                self.sender.confirm(0, &confirmation, self.now);
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.sender.expire(u64::MAX, self.now);
            self.write();
            for message in std::mem::take(&mut self.link) {
                self.at_partner(&message);
            }
            self.at_owner();
            if self.sender.is_complete() {
                return;
            }
        }
        panic!("the copy does not become complete");
    }
}

/// Runs a history until the owner crashes. Returns the number of flows, and how many of them
/// continue.
fn history(seed: u64) -> (usize, usize) {
    let (mut pair, mut of_b) = Pair::new(seed);
    let steps = pair.random.below(120);
    (0..steps).for_each(|_| pair.step());
    let is_complete = pair.random.below(3) == 0;
    if is_complete {
        pair.settle();
    }
    assert!(!of_b.may_assign(0));
    of_b.partner_ended(5);
    assert!(of_b.owns(0) && !of_b.may_assign(0), "the slice rests");
    let mut owners: BTreeMap<_, _> = pair.flows.iter().map(|(flow, end)| (*end, *flow)).collect();
    let mut continued = 0;
    for (flow, external) in pair.flows.clone() {
        let Some(now) = send(&mut pair.b, pair.now + pair.skew, flow) else { continue };
        let is_own = now.0 == B.to_bits();
        assert!(now == external || is_own && !is_complete, "{flow:?}: {external:?}, then {now:?}");
        continued += usize::from(now == external);
        let owner = *owners.entry(now).or_insert(flow);
        assert_eq!(owner, flow, "{now:?} leads to two subscribers");
    }
    let counters = pair.receiver.counters();
    assert_eq!((counters.damaged, counters.without_room), (0, 0));
    (pair.flows.len(), continued)
}

#[test]
fn a_partner_continues_what_it_has_copied_after_any_history() {
    let number = std::env::var("NATGATE_PAIR_HISTORIES").ok();
    let number: u64 = number.map_or(1_000, |number| number.parse().expect("a number"));
    let (mut flows, mut continued) = (0, 0);
    for seed in 0..number {
        let result = std::panic::catch_unwind(|| history(seed));
        let (all, kept) = result.unwrap_or_else(|_| panic!("seed {seed}"));
        (flows, continued) = (flows + all, continued + kept);
    }
    println!("{number} histories: {continued} of {flows} flows keep their endpoint");
    assert!(continued > flows / 2);
}
