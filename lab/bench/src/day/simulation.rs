//! A day of one scheme. The population's sessions pass through an engine, second by second.

use super::Plan;
use super::population::{Opening, Population, Sort};
use super::scheme::{INSIDE, PORTS_OF_ADDRESS, Scheme};
use super::wheel::{Item, What, Wheel};
use crate::frame::{self, Frame};
use natgate_engine::{Change, Engine, Event, Packet, Side, Timestamp, Verdict};
use natgate_wire::protocol;
use natgate_wire::tcp::flags::{ACK, FIN, SYN};
use serde::Serialize;
use std::collections::BTreeMap;

/// Uncounted hours before the day. In them mappings with long timeouts accumulate.
pub(super) const HOURS_BEFORE: u32 = 3;
const BEFORE: u32 = HOURS_BEFORE * 3600;
/// Hour of the day at which the count begins: the quietest hour.
const MORNING: u32 = 5;
/// Seconds between two records of the ports.
const LOOK: u32 = 1800;
/// Begin of the uncounted part, on the first day of 2026. With this date log lines have a realistic
/// length.
const EPOCH: u64 = (1_767_225_600 + (MORNING * 3600 - BEFORE) as u64) * SECOND;
const SECOND: u64 = 1_000_000_000;
const BATCH: usize = 256;
/// Number of log lines for each measured line.
const MEASURED: u64 = 256;
/// Seconds between packets of a long session: barely often enough to keep its mapping.
const REFRESH_UDP: u32 = 240;
const REFRESH_TCP: u32 = 3600;
/// First remote address, and the number of remote endpoints.
const OUTSIDE: u32 = 0xc612_0001;
const REMOTES: u32 = 60_013;

/// One hour of the day.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Hour {
    /// Number of the hour, from the first day's midnight.
    pub(super) hour: u32,
    /// Sessions that subscribers opened.
    pub(super) sessions: u64,
    /// Refused sessions, by reason.
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Lines of the log that record the owner of a port.
    pub(super) log_lines: u64,
    /// Bytes of these lines, estimated from a sample.
    pub(super) log_bytes: u64,
    /// Lines of the log that report refusals.
    pub(super) alarm_lines: u64,
}

/// Ports at one time. Each port of an address counts twice, for TCP and for UDP.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Look {
    /// Hours since the first day's midnight.
    pub(super) hour: f64,
    /// Present subscribers.
    pub(super) present: u64,
    /// Share of TCP's and of UDP's ports in use or in hold-down.
    pub(super) tcp: f64,
    pub(super) udp: f64,
    /// Share of the ports in use or set aside for one subscriber.
    pub(super) bound: f64,
    /// Idle share of the ports that are set aside.
    pub(super) idle: f64,
    /// Assigned share of the blocks; 0 if there are none.
    pub(super) blocks: f64,
    /// Share of ports in use of the busiest address and protocol.
    pub(super) busiest_address: f64,
}

/// Results of a day.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Day {
    /// Number of different subscribers that were present, and of subscribers with a refused
    /// session.
    pub(super) subscribers_seen: u64,
    pub(super) subscribers_refused: u64,
    pub(super) hours: Vec<Hour>,
    pub(super) looks: Vec<Look>,
}

/// A packet in a batch, and the event that follows if the engine forwards it.
#[derive(Clone, Copy)]
struct Sent {
    who: u32,
    /// True if the packet is the first of its session.
    opens: bool,
    /// TCP flags of the answer; 0 if there is none.
    answer: u8,
    next: Option<Item>,
}

pub(super) struct Simulation<'s> {
    scheme: &'s Scheme,
    subscribers: u32,
    engine: Engine,
    population: Population,
    wheel: Wheel,
    /// Seconds since the begin of the uncounted part.
    now: u32,
    frames: Vec<Frame>,
    sent: Vec<Sent>,
    answers: Vec<Frame>,
    /// Buffer for packets of the engine's own.
    buffer: Vec<u8>,
    /// Returns the length of an event as a line of the log.
    line: &'s dyn Fn(&Event) -> usize,
    lines_to_measure: u64,
    line_bytes: u64,
    /// Number of assigned blocks.
    blocks: u64,
    /// The present hour, and the completed hours.
    hour: Hour,
    day: Day,
}

impl<'s> Simulation<'s> {
    pub(super) fn new(plan: &Plan, scheme: &'s Scheme, line: &'s dyn Fn(&Event) -> usize) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&plan.seed.to_be_bytes());
        let engine = Engine::new(&scheme.config(), seed, Timestamp(EPOCH))
            .expect("the laboratory's configuration can be run");
        Self {
            scheme,
            subscribers: plan.subscribers,
            engine,
            population: Population::new(plan.subscribers, plan.sessions, plan.seed),
            wheel: Wheel::new(),
            now: 0,
            frames: Vec::with_capacity(BATCH),
            sent: Vec::with_capacity(BATCH),
            answers: Vec::with_capacity(BATCH),
            buffer: vec![0; 65_535],
            line,
            lines_to_measure: 0,
            line_bytes: 0,
            blocks: 0,
            hour: Hour::default(),
            day: Day::default(),
        }
    }

    /// Simulates `hours` counted hours; calls `each` after every hour.
    pub(super) fn run(mut self, hours: u32, mut each: impl FnMut()) -> Day {
        for who in 0..self.subscribers {
            self.begin(who);
        }
        let end = BEFORE + hours * 3600;
        while self.now < end {
            if self.now == BEFORE {
                self.begin_counting();
            }
            if self.now >= BEFORE && (self.now - BEFORE).is_multiple_of(LOOK) {
                self.look();
            }
            self.second();
            self.now += 1;
            if self.now.is_multiple_of(3600) {
                self.end_hour();
                each();
            }
        }
        let refused = self.population.subscribers.iter().filter(|one| one.refused).count();
        self.day.subscribers_refused += refused as u64;
        self.day
    }

    /// Seconds since the first day's midnight.
    fn time(&self) -> f64 {
        f64::from(self.now + MORNING * 3600 - BEFORE)
    }

    fn begin_counting(&mut self) {
        self.hour = Hour { hour: MORNING, ..Hour::default() };
        let subscribers = &mut self.population.subscribers;
        subscribers.iter_mut().for_each(|one| one.refused = false);
        let present = subscribers.iter().filter(|one| one.present).count() as u64;
        self.day = Day { subscribers_seen: present, ..Day::default() };
    }

    fn end_hour(&mut self) {
        let next = Hour { hour: self.hour.hour + 1, ..Hour::default() };
        self.day.hours.push(std::mem::replace(&mut self.hour, next));
    }

    /// Simulates one second: first the due work of the engine, then the subscribers.
    fn second(&mut self) {
        while self.engine.advance(self.timestamp()) {
            self.drain();
        }
        self.drain();
        for item in self.wheel.take(self.now) {
            self.happen(item);
        }
        self.flush();
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(EPOCH + u64::from(self.now) * SECOND)
    }

    // ---- subscribers ----

    fn begin(&mut self, who: u32) {
        let (present, changes) = self.population.begin(who, self.time());
        if present {
            self.day.subscribers_seen += 1;
            self.schedule(who, What::Leave, changes);
            self.next_burst(who);
        } else {
            self.schedule(who, What::Come, changes);
        }
    }

    fn schedule(&mut self, who: u32, what: What, seconds: u32) {
        let stay = self.population.subscribers[who as usize].stay;
        let due = self.now + seconds.max(1);
        self.wheel.add(Item { due, until: 0, who, port: 0, stay, what });
    }

    fn next_burst(&mut self, who: u32) {
        let pause = self.population.pause(who, self.time());
        self.schedule(who, What::Burst, pause as u32);
    }

    fn happen(&mut self, item: Item) {
        let Item { who, what, .. } = item;
        let subscriber = self.population.subscribers[who as usize];
        if subscriber.stay != item.stay {
            return;
        }
        match what {
            What::Come => {
                let lasts = self.population.arrive(who);
                self.day.subscribers_seen += 1;
                self.schedule(who, What::Leave, lasts);
                self.next_burst(who);
            }
            What::Leave => {
                self.day.subscribers_refused += u64::from(subscriber.refused);
                self.population.subscribers[who as usize].refused = false;
                let away = self.population.leave(who, self.time());
                self.schedule(who, What::Come, away);
            }
            What::Burst => self.bursts(who),
            What::RefreshUdp | What::RefreshTcp => {
                self.send(item, ACK, Sent { who, opens: false, answer: 0, next: follow(item) });
            }
            What::Close => {
                let sent = Sent { who, opens: false, answer: FIN | ACK, next: None };
                self.send(item, FIN | ACK, sent);
            }
        }
    }

    /// Runs a subscriber's bursts of this second. Then it draws the time of the next burst again,
    /// which is valid because the exponential distribution has no memory.
    fn bursts(&mut self, who: u32) {
        let mut passed = 0.0;
        loop {
            for _ in 0..self.population.burst() {
                let opening = self.population.open(who);
                self.open(who, opening);
            }
            let pause = self.population.pause(who, self.time());
            passed += pause;
            if passed >= 1.0 {
                return self.schedule(who, What::Burst, pause as u32);
            }
        }
    }

    fn open(&mut self, who: u32, opening: Opening) {
        self.hour.sessions += 1;
        let until = self.now + opening.seconds;
        let stay = self.population.subscribers[who as usize].stay;
        let item = |due, what| Item { due, until, who, port: opening.port, stay, what };
        let (flags, next) = match opening.sort {
            Sort::UdpShort => (0, None),
            Sort::UdpLong => (0, Some(item(self.now + REFRESH_UDP, What::RefreshUdp))),
            Sort::TcpShort => (SYN, Some(item(until, What::Close))),
            Sort::TcpLong => (SYN, follow(item(self.now, What::RefreshTcp))),
            Sort::TcpForgotten => (SYN, None),
        };
        let answer = if flags == SYN { SYN | ACK } else { 0 };
        let now = item(self.now, if flags == SYN { What::RefreshTcp } else { What::RefreshUdp });
        self.send(now, flags, Sent { who, opens: true, answer, next });
    }

    // ---- packets ----

    /// Writes a packet of the session of `item`. The packet leaves with its batch.
    fn send(&mut self, item: Item, flags: u8, sent: Sent) {
        let internal = (INSIDE + item.who, item.port);
        let remote = item.who.wrapping_mul(0x9e37_79b1) ^ u32::from(item.port);
        let remote = (OUTSIDE + remote % REMOTES, 443);
        let mut frame = Frame([0; 64]);
        match item.what {
            What::RefreshUdp => frame::udp(&mut frame, internal, remote),
            _ => frame::tcp(&mut frame, internal, remote, flags),
        }
        self.frames.push(frame);
        self.sent.push(sent);
        if self.sent.len() == BATCH {
            self.flush();
        }
    }

    /// Sends the waiting packets, then the answers.
    fn flush(&mut self) {
        let now = self.timestamp();
        let verdicts = process(&mut self.engine, now, Side::Inside, &mut self.frames);
        for ((sent, frame), verdict) in self.sent.iter().zip(&self.frames).zip(verdicts) {
            match verdict {
                Verdict::Forward(_) => {
                    if sent.answer != 0 {
                        let (from, to) = (frame::destination(frame), frame::source(frame));
                        let mut answer = Frame([0; 64]);
                        frame::tcp(&mut answer, from, to, sent.answer);
                        self.answers.push(answer);
                    }
                    sent.next.into_iter().for_each(|item| self.wheel.add(item));
                }
                Verdict::Drop(reason) if sent.opens => {
                    *self.hour.refused.entry(reason.name()).or_default() += 1;
                    self.population.subscribers[sent.who as usize].refused = true;
                }
                // A remaining packet of a session that has ended.
                _ => (),
            }
        }
        process(&mut self.engine, now, Side::Outside, &mut self.answers);
        self.frames.clear();
        self.sent.clear();
        self.answers.clear();
        self.drain();
    }

    /// Takes the events and the engine's own packets.
    fn drain(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event.change {
                Change::BlockAssigned(_) => self.blocks += 1,
                Change::BlockReleased(_) => self.blocks -= 1,
                Change::MappingCreated(_) | Change::MappingRemoved(_) => (),
                _ => {
                    self.hour.alarm_lines += 1;
                    continue;
                }
            }
            if self.lines_to_measure == 0 {
                self.lines_to_measure = MEASURED;
                self.line_bytes = (self.line)(&event) as u64;
            }
            self.lines_to_measure -= 1;
            self.hour.log_lines += 1;
            self.hour.log_bytes += self.line_bytes;
        }
        while self.engine.poll_transmit(&mut self.buffer).is_some() {}
    }

    // ---- ports ----

    /// Numbers of ports in use in this range of each address.
    fn taken(&self, protocol: u8, range: (u16, u16)) -> impl Iterator<Item = u64> + '_ {
        let mut words = vec![0; 1024];
        let addresses = self.scheme.addresses() as usize;
        (0..addresses).map(move |address| {
            self.engine.taken_ports(address, protocol, &mut words);
            count(&words, range)
        })
    }

    fn look(&mut self) {
        let addresses = self.scheme.addresses();
        let dynamic = self.scheme.dynamic();
        // For TCP and UDP: ports in use, dynamic ports among them, and the busiest address's ports.
        let (mut taken, mut of_dynamic, mut busiest) = ([0_u64; 2], 0, 0);
        for (at, protocol) in [protocol::TCP, protocol::UDP].into_iter().enumerate() {
            for ports in self.taken(protocol, (0, u16::MAX)) {
                taken[at] += ports;
                busiest = busiest.max(ports);
            }
            of_dynamic += dynamic.map_or(0, |range| self.taken(protocol, range).sum());
        }
        let all = u64::from(addresses) * u64::from(PORTS_OF_ADDRESS);
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        let in_use = taken[0] + taken[1];
        // The number counts both protocols, like all counts of ports.
        let aside = self.scheme.set_aside(self.blocks).map(|ports| 2 * ports);
        let (bound, idle) = match aside {
            Some(aside) => (aside + of_dynamic, aside.saturating_sub(in_use - of_dynamic)),
            None => (in_use, 0),
        };
        let present = self.population.subscribers.iter().filter(|one| one.present).count();
        self.day.looks.push(Look {
            hour: self.time() / 3600.0,
            present: present as u64,
            tcp: share(taken[0], all),
            udp: share(taken[1], all),
            bound: share(bound, 2 * all),
            idle: share(idle, aside.unwrap_or(0)),
            blocks: share(self.blocks, self.scheme.blocks()),
            busiest_address: share(busiest, PORTS_OF_ADDRESS.into()),
        });
    }
}

/// The next event of a long session: another packet, or its end.
fn follow(item: Item) -> Option<Item> {
    let Item { due, until, what, .. } = item;
    let (wait, end) = match what {
        What::RefreshUdp => (REFRESH_UDP, None),
        _ => (REFRESH_TCP, Some(Item { due: until.max(due + 1), what: What::Close, ..item })),
    };
    if due + wait < until { Some(Item { due: due + wait, ..item }) } else { end }
}

/// Gives packets to the engine, which writes a verdict for each.
fn process(
    engine: &mut Engine,
    now: Timestamp,
    from: Side,
    frames: &mut [Frame],
) -> [Verdict; BATCH] {
    let mut verdicts = [Verdict::Held; BATCH];
    let mut packets: Vec<Packet<'_>> =
        frames.iter_mut().map(|frame| Packet::new(&mut frame.0[..frame::LEN], 0)).collect();
    let count = packets.len();
    engine.process(now, from, &mut packets, &mut verdicts[..count]);
    verdicts
}

/// Number of set bits from the first port to the last, 64 ports a word.
fn count(words: &[u64], (first, last): (u16, u16)) -> u64 {
    let mut sum = 0;
    for (at, word) in words.iter().enumerate() {
        let from = usize::from(first).saturating_sub(at * 64).min(64);
        let to = (usize::from(last) + 1).saturating_sub(at * 64).min(64);
        let below = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        sum += u64::from((word & below(to) & !below(from)).count_ones());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_counted_within_their_range() {
        let words = vec![u64::MAX; 1024];
        for range in [(0, u16::MAX), (1, 1), (63, 64), (1024, 33_279), (65_535, 65_535)] {
            assert_eq!(count(&words, range), u64::from(range.1 - range.0) + 1, "{range:?}");
        }
        assert_eq!(count(&[1 << 5, 1], (5, 64)), 2);
    }

    #[test]
    fn a_session_that_goes_on_is_refreshed_until_its_end() {
        let item = |what, until| Item { due: 100, until, who: 0, port: 1, stay: 0, what };
        let next = |what, until| follow(item(what, until)).map(|item| (item.due, item.what));
        assert_eq!(next(What::RefreshUdp, 1000), Some((340, What::RefreshUdp)));
        assert_eq!(next(What::RefreshUdp, 340), None);
        assert_eq!(next(What::RefreshTcp, 9000), Some((3700, What::RefreshTcp)));
        assert_eq!(next(What::RefreshTcp, 3000), Some((3000, What::Close)));
        assert_eq!(next(What::RefreshTcp, 100), Some((101, What::Close)));
    }
}
