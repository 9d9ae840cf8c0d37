//! How long a change waits for its copy on a link that loses packets, and what is repeated. Time is
//! virtual. A seed gives a history; a failure prints it.

use natgate_pair::{Message, Present, Receiver, Sender, Stream, StreamId, Written, read};
use std::collections::BTreeMap;

const ID: StreamId =
    StreamId { slice: 0, worker: 0, reader: 0, stream: Stream { from: 7, to: 5, epoch: 2 } };

const MILLISECOND: u64 = 1_000_000;

/// Time of a turn of either node.
const TURN: u64 = MILLISECOND;

/// Room of a packet: about eleven records.
const ROOM: usize = 1_200;

/// Bytes of a record: the number of its version, and others.
const RECORD: usize = 88;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// A link: the time of a packet from one node to the other, and what it loses and delays.
#[derive(Clone, Copy, Debug)]
struct Link {
    one_way: u64,
    /// A packet comes later by less than this time.
    jitter: u64,
    loss_percent: u64,
    /// Of so many packets of 100, the way is longer by this time.
    detour: (u64, u64),
}

impl Link {
    const fn of(one_way: u64) -> Self {
        Self { one_way, jitter: 0, loss_percent: 0, detour: (0, 0) }
    }
}

struct Pair {
    sender: Sender,
    receiver: Receiver,
    link: Link,
    random: Random,
    now: u64,
    /// True if the partner takes no messages.
    is_still: bool,
    /// Messages on their way by the time of their arrival.
    to_partner: BTreeMap<(u64, u64), Vec<u8>>,
    to_owner: BTreeMap<(u64, u64), Vec<u8>>,
    messages: u64,
    /// The version of each key, and the times of the versions that the partner does not have.
    versions: Vec<u64>,
    waiting: Vec<BTreeMap<u64, u64>>,
    changes: u64,
    /// For each change the time until the partner had it.
    waits: Vec<u64>,
}

impl Pair {
    fn new(link: Link, seed: u64) -> Self {
        let (mut sender, mut receiver) = (Sender::new(ID), Receiver::new(ID, u32::MAX));
        let swept = receiver.swept();
        let Some((_, Message::Confirmation(confirmation))) = read(&swept) else { panic!() };
        sender.confirm(0, &confirmation, 0);
        Self {
            sender,
            receiver,
            link,
            random: Random(seed),
            now: 1_000 * MILLISECOND,
            is_still: false,
            to_partner: BTreeMap::new(),
            to_owner: BTreeMap::new(),
            messages: 0,
            versions: Vec::new(),
            waiting: Vec::new(),
            changes: 0,
            waits: Vec::new(),
        }
    }

    /// A key changes.
    fn change(&mut self, key: u32) {
        let at = key as usize;
        if self.versions.len() <= at {
            self.versions.resize(at + 1, 0);
            self.waiting.resize(at + 1, BTreeMap::new());
        }
        self.changes += 1;
        self.versions[at] += 1;
        self.waiting[at].insert(self.versions[at], self.now);
        assert!(self.sender.change(key, self.now));
    }

    /// The time at which a message arrives; `None`: it is lost.
    fn arrival(&mut self) -> Option<(u64, u64)> {
        self.messages += 1;
        let is_lost = self.random.below(100) < self.link.loss_percent;
        let mut late = self.random.below(self.link.jitter.max(1));
        let (share, time) = self.link.detour;
        if share > 0 && self.random.below(100) < share {
            late += time;
        }
        (!is_lost).then_some((self.now + self.link.one_way + late, self.messages))
    }

    /// A turn of both nodes. At most `most` packets go.
    fn turn(&mut self, most: usize) {
        while !self.is_still
            && let Some(entry) = self.to_partner.first_entry().filter(|e| e.key().0 <= self.now)
        {
            let message = entry.remove();
            let Self { receiver, waiting, waits, now, .. } = self;
            let answer = receiver.receive(&message, *now, |key, record, _| {
                let version = u64::from_le_bytes(*record.first_chunk().expect("a version"));
                let later = waiting[key as usize].split_off(&(version + 1));
                let had = std::mem::replace(&mut waiting[key as usize], later);
                waits.extend(had.values().map(|since| *now - since));
                Some(version)
            });
            if let Some((answer, at)) = answer.zip(self.arrival()) {
                self.to_owner.insert(at, answer);
            }
        }
        while let Some(entry) = self.to_owner.first_entry().filter(|e| e.key().0 <= self.now) {
            let message = entry.remove();
            let Some((_, Message::Confirmation(one))) = read(&message) else { panic!() };
            self.sender.confirm(0, &one, self.now);
        }
        self.sender.time_out(self.now, (2 * self.link.one_way, TURN));
        for _ in 0..most {
            let versions = &self.versions;
            let extent = versions.len() as u32;
            let written = self.sender.write(self.now, (ROOM, extent), |(key, _), out| {
                let version = versions[key as usize];
                out.extend(version.to_le_bytes());
                out.resize(RECORD, 0);
                Present::Record { fingerprint: version }
            });
            let Written::Packet(packet) = written else { break };
            if let Some(at) = self.arrival() {
                self.to_partner.insert(at, packet);
            }
        }
        self.now += TURN;
    }

    /// Takes turns until the partner has confirmed all.
    fn settle(&mut self) {
        let end = self.now + 60_000 * MILLISECOND;
        while !self.sender.is_complete() {
            assert!(self.now < end, "the copy does not become complete");
            self.turn(4);
        }
        assert!(self.waiting.iter().all(BTreeMap::is_empty));
    }

    /// The wait of 99 of 100 changes, at most.
    fn p99(&mut self) -> u64 {
        assert_eq!(self.waits.len() as u64, self.changes);
        self.waits.sort_unstable();
        self.waits[(self.waits.len() * 99).div_ceil(100) - 1]
    }
}

/// Runs histories, and names the one that fails.
fn each_seed(history: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in 0..5 {
        let result = std::panic::catch_unwind(|| history(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

/// Changes come all the time, or with pauses: after a pause nothing follows a lost packet.
#[test]
fn a_lost_packet_delays_changes_by_a_round_trip_and_not_by_a_fixed_time() {
    for (round_trip, loss_percent) in
        [1, 10].into_iter().flat_map(|time| [0, 5, 20].map(|loss| (time, loss)))
    {
        let one_way = round_trip * MILLISECOND / 2;
        let link = Link { loss_percent, ..Link::of(one_way) };
        for (changes, pause) in [(50, 1), (3, 1), (30, 25), (1, 40)] {
            each_seed(|seed| {
                let mut pair = Pair::new(link, seed);
                for turn in 0..1_000 * pause {
                    if turn % pause == 0 {
                        (0..changes).for_each(|_| {
                            let key = pair.random.below(5_000) as u32;
                            pair.change(key);
                        });
                    }
                    pair.turn(8);
                }
                pair.settle();
                let (p99, sent) = (pair.p99(), pair.sender.counters());
                let name = format!("{link:?}, {changes} each {pause} ms: {sent:?}");
                println!("{p99} ns, {name}");
                assert!(p99 < 50 * MILLISECOND, "{p99} ns, seed {seed}, {name}");
                if loss_percent == 0 {
                    assert!(p99 <= one_way + 2 * TURN, "{p99} ns, {name}");
                    assert_eq!(sent.lost, 0, "{name}");
                }
            });
        }
    }
}

/// Packets that come out of order are not lost, however close to each other they are. Beyond the
/// bound of disorder some are repeated, and no more and more.
#[test]
fn a_link_that_reorders_does_not_make_the_stream_repeat_all() {
    for (jitter, percent) in [(1, 5), (5, 5), (20, 50)] {
        each_seed(|seed| {
            let jitter = jitter * MILLISECOND;
            let link = Link { jitter, ..Link::of(MILLISECOND) };
            let mut pair = Pair::new(link, seed);
            for turn in 0..2_000 {
                (0..88).for_each(|key| pair.change(turn * 88 + key));
                pair.turn(100);
            }
            pair.settle();
            let (sent, changes) = (pair.sender.counters(), pair.changes);
            println!("{changes} changes: {sent:?}, {link:?}, seed {seed}");
            let most = changes + changes * percent / 100;
            assert!(sent.records < most, "{changes}: {sent:?}, {link:?}");
        });
    }
}

/// Between the times of the two ways there is none, so the stream has to learn from packets that
/// count as lost. Packets that are really lost say nothing.
#[test]
fn a_link_of_two_ways_does_not_make_the_stream_repeat_all() {
    for (share, loss_percent) in [(30, 0), (5, 0), (70, 0), (30, 5)] {
        each_seed(|seed| {
            let detour = (share, 8 * MILLISECOND);
            let link = Link { detour, loss_percent, ..Link::of(MILLISECOND) };
            let mut pair = Pair::new(link, seed);
            for turn in 0..2_000 {
                (0..88).for_each(|key| pair.change(turn * 88 + key));
                pair.turn(100);
            }
            pair.settle();
            let (sent, changes) = (pair.sender.counters(), pair.changes);
            println!("{changes} changes: {sent:?}, {link:?}, seed {seed}");
            let most = changes + changes * (5 + 2 * loss_percent) / 100;
            assert!(sent.records < most, "{changes}: {sent:?}, {link:?}");
        });
    }
}

/// A loss says nothing of the partner's speed.
#[test]
fn a_lossy_link_carries_a_copy_of_many_mappings_in_few_round_trips_more() {
    let time = |loss_percent, seed| {
        let link = Link { loss_percent, ..Link::of(5 * MILLISECOND) };
        let mut pair = Pair::new(link, seed);
        pair.sender.set_late(40 * MILLISECOND);
        let began = pair.now;
        (0..50_000).for_each(|key| pair.change(key));
        while !pair.sender.is_complete() {
            pair.turn(100);
        }
        let sent = pair.sender.counters();
        println!("{loss_percent} %: {} ns, {sent:?}", pair.now - began);
        (pair.now - began, sent.records)
    };
    each_seed(|seed| {
        let (whole, _) = time(0, seed);
        let (lossy, records) = time(20, seed);
        assert!(lossy < 2 * whole + 200 * MILLISECOND, "{lossy} ns, without loss {whole} ns");
        assert!(records < 70_000, "{records} records of 50,000 mappings");
    });
}

/// A partner that stands still gets some packets again, and not all that wait for it.
#[test]
fn a_partner_that_stands_still_does_not_get_all_again() {
    let link = Link::of(MILLISECOND);
    let mut pair = Pair::new(link, 1);
    for turn in 0..100 {
        (0..50).for_each(|key| pair.change(turn * 50 + key));
        pair.turn(8);
    }
    pair.is_still = true;
    (0..60_000).for_each(|key| pair.change(10_000 + key));
    (0..2_000).for_each(|_| pair.turn(100));
    pair.is_still = false;
    pair.settle();
    let lost = pair.sender.counters().lost;
    assert!((1..=40).contains(&lost), "{lost} packets counted as lost");
}

/// Neither the time in which a change waits for its packet, nor a loss, makes it younger.
#[test]
fn the_lag_counts_from_the_change_to_its_confirmation() {
    let (mut sender, mut receiver) = (Sender::new(ID), Receiver::new(ID, u32::MAX));
    let write = |sender: &mut Sender, now| {
        let source = |_, out: &mut Vec<u8>| {
            out.extend([0; RECORD]);
            Present::Record { fingerprint: 1 }
        };
        match sender.write(now, (ROOM, 10), source) {
            Written::Packet(packet) => packet,
            other => panic!("{other:?}"),
        }
    };
    assert!(sender.change(1, 100));
    write(&mut sender, 150);
    assert_eq!(sender.lag(200), 100);
    assert!(sender.change(2, 210));
    sender.expire(160, 220);
    assert_eq!(sender.lag(230), 130);
    let packet = write(&mut sender, 240);
    assert_eq!(sender.lag(250), 150);
    let answer = receiver.receive(&packet, 260, |_, _, _| Some(1)).expect("a confirmation");
    let Some((_, Message::Confirmation(one))) = read(&answer) else { panic!() };
    sender.confirm(0, &one, 270);
    assert_eq!(sender.lag(280), 0);
}
