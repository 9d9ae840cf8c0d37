//! One gateway, or two in a row, between virtual links in memory, in virtual time.
//!
//! Each gateway is a worker with its router, translators and engine. It has a processor of its own:
//! a turn begins when the processor is free and a frame has arrived, and lasts as long as its
//! processor time. A frame has arrived when its last bit has; it leaves at the end of its turn.
//! Each receive ring holds [`RING`] frames, and a frame that finds its ring full is lost. So links
//! neither delay frames nor lose them, and the tester takes no time.

use super::device::{Port, device};
use super::packet::Head;
use super::technology::{MTU, Technology, mac};
use super::tester::Tester;
use crate::clock;
use natgate_engine::{Side, Timestamp};
use natgate_gateway::Worker;
use natgate_io::{BATCH, Device};
use std::collections::VecDeque;

/// Frames of a receive ring.
pub(super) const RING: usize = 1024;
/// Pause between two trials, nanoseconds.
const REST: u64 = 10_000_000;
/// Virtual time at the start, nanoseconds.
const BEGIN: u64 = 1_000_000_000;
/// Nanoseconds between two frames that pass alone.
const ALONE: u64 = 10_000;

/// Frames of each side in a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Frames of each side.
    pub(super) count: u64,
    /// Picoseconds between two frames of a side; 0: the rings are always full.
    pub(super) gap: u64,
}

impl Stream {
    /// A stream with so many frames a second from each side, for so many seconds, at least `least`
    /// frames.
    pub(super) fn new(rate: f64, seconds: f64, least: u64) -> Self {
        Self { count: ((rate * seconds) as u64).max(least), gap: (1e12 / rate).max(1.0) as u64 }
    }
}

/// End of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The first loss, or the last frame.
    Loss,
    /// The last frame.
    End,
}

/// Result of a trial.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Frames of both sides.
    pub(super) sent: u64,
    /// Frames that left as they should.
    pub(super) received: u64,
    /// Frames that were lost on full rings.
    pub(super) overflows: u64,
    /// Frames with a wrong translation.
    pub(super) wrong: u64,
    /// Duration, virtual nanoseconds.
    pub(super) time: u64,
    /// Number and delay in nanoseconds of each frame, by the side that sent it, in the order of
    /// their departures.
    pub(super) delays: [Vec<(u64, u64)>; 2],
}

impl Outcome {
    /// Frames that did not leave as they should.
    pub(super) fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// Frames of one side that have not been taken.
#[derive(Clone, Debug, Default)]
struct Sender {
    stream: Option<Stream>,
    start: u64,
    /// Number of the next frame that arrives.
    next: u64,
    /// Numbers of the frames in the ring.
    waiting: VecDeque<u64>,
}

impl Sender {
    /// Time at which a frame arrives.
    fn arrival(&self, number: u64) -> u64 {
        let gap = self.stream.map_or(0, |stream| stream.gap);
        self.start + ((number + 1) * gap).div_ceil(1000)
    }

    /// Lets all frames arrive that do so until a time; returns the number of lost ones.
    fn advance(&mut self, now: u64) -> u64 {
        let Some(Stream { count, gap }) = self.stream else { return 0 };
        let room = (RING - self.waiting.len()) as u64;
        let elapsed = now.saturating_sub(self.start) * 1000;
        let arrived = elapsed.checked_div(gap).unwrap_or(self.next + room).min(count);
        let new = arrived.saturating_sub(self.next);
        self.waiting.extend(self.next..self.next + new.min(room));
        self.next += new;
        new.saturating_sub(room)
    }

    /// Arrival of the first frame that has not been taken.
    fn earliest(&self) -> Option<u64> {
        let count = self.stream.map_or(0, |stream| stream.count);
        let next = Some(self.next).filter(|next| *next < count);
        self.waiting.front().copied().or(next).map(|number| self.arrival(number))
    }
}

/// Source of the frames of a receive ring.
#[derive(Debug)]
enum Ring {
    Tester(Sender),
    /// Frames of the gateway beside, each with its arrival.
    Cable(VecDeque<(u64, Head)>),
}

struct Gateway {
    worker: Worker,
    ports: [Port; 2],
    rings: [Ring; 2],
    /// Time at which its processor is free.
    free: u64,
}

impl Gateway {
    /// Lets some seconds pass in which the gateway announces itself to its neighbours.
    fn settle(&mut self) {
        for _ in 0..1000 {
            self.free += 1000 * ALONE;
            self.worker.turn(Timestamp(self.free), &mut ());
        }
        self.ports.iter().for_each(|port| port.take(&mut Vec::new()));
    }

    /// Time of the next turn, if a frame is there or will come.
    fn next(&self) -> Option<u64> {
        let earliest = |ring: &Ring| match ring {
            Ring::Tester(sender) => sender.earliest(),
            Ring::Cable(frames) => frames.front().map(|(arrival, _)| *arrival),
        };
        let first = self.rings.iter().filter_map(earliest).min()?;
        Some(first.max(self.free))
    }
}

/// The gateways.
pub(super) struct Chain {
    gateways: Vec<Gateway>,
    /// Cost of reading the clock, nanoseconds. It is no part of a turn.
    clock_cost: u64,
    sent: Vec<Head>,
}

const SIDES: [Side; 2] = [Side::Inside, Side::Outside];

impl Chain {
    /// Creates the gateways of a technology.
    ///
    /// # Panics
    /// If the settings contradict themselves.
    pub(super) fn new(technology: Technology) -> Self {
        let settings = technology.settings();
        let last = settings.len() - 1;
        let gateway = |(place, settings)| {
            let link = place as u8;
            let (inside, near) = device("inside", mac(link, 2), MTU);
            let (outside, far) = device("outside", mac(link + 1, 1), MTU);
            let devices: Vec<Box<dyn Device>> = vec![Box::new(inside), Box::new(outside)];
            let worker = Worker::new(settings, [1; 32], devices, Timestamp(BEGIN));
            let ring = |is_end| match is_end {
                true => Ring::Tester(Sender::default()),
                false => Ring::Cable(VecDeque::new()),
            };
            Gateway {
                worker: worker.unwrap_or_else(|error| panic!("the laboratory's settings: {error}")),
                ports: [near, far],
                rings: [ring(place == 0), ring(place == last)],
                free: BEGIN,
            }
        };
        let mut gateways: Vec<Gateway> = settings.iter().enumerate().map(gateway).collect();
        gateways.iter_mut().for_each(Gateway::settle);
        Self { gateways, clock_cost: clock_cost(), sent: Vec::new() }
    }

    /// Sends one frame through all gateways; returns the frame that leaves, if it is the only one.
    pub(super) fn pass(&mut self, from: Side, head: Head) -> Option<Head> {
        let mut place = if from == Side::Inside { 0 } else { self.gateways.len() - 1 };
        let mut head = head;
        loop {
            let gateway = &mut self.gateways[place];
            gateway.free += ALONE;
            gateway.ports[from as usize].put(head);
            gateway.worker.turn(Timestamp(gateway.free), &mut ());
            let left = gateway.ports.each_ref().map(|port| {
                let mut sent = Vec::new();
                port.take(&mut sent);
                sent
            });
            let [(1, Some(only)), (0, None)] = [from.other(), from]
                .map(|side| &left[side as usize])
                .map(|all| (all.len(), all.first()))
            else {
                return None;
            };
            head = *only;
            match self.beside(place, from.other()) {
                Some(next) => place = next,
                None => return Some(head),
            }
        }
    }

    /// The gateway on a side of another; `None`: the tester is there.
    fn beside(&self, place: usize, side: Side) -> Option<usize> {
        match side {
            Side::Inside => place.checked_sub(1),
            Side::Outside => Some(place + 1).filter(|next| *next < self.gateways.len()),
        }
    }

    /// Sends a stream from both sides at once.
    pub(super) fn trial(&mut self, tester: &Tester, stream: Stream, until: Until) -> Outcome {
        let start = REST + self.gateways.iter().map(|gateway| gateway.free).max().unwrap_or(BEGIN);
        for gateway in &mut self.gateways {
            for ring in &mut gateway.rings {
                match ring {
                    Ring::Cable(frames) => frames.clear(),
                    Ring::Tester(sender) => {
                        *sender = Sender { stream: Some(stream), start, ..Sender::default() };
                    }
                }
            }
        }
        let mut outcome = Outcome { sent: 2 * stream.count, ..Outcome::default() };
        while let Some((time, place)) = self.next() {
            self.turn(place, time, tester, &mut outcome);
            outcome.time = self.gateways[place].free - start;
            if until == Until::Loss && outcome.overflows + outcome.wrong > 0 {
                break;
            }
        }
        outcome
    }

    /// Time and gateway of the next turn.
    fn next(&self) -> Option<(u64, usize)> {
        let times = self.gateways.iter().enumerate();
        times.filter_map(|(place, gateway)| Some((gateway.next()?, place))).min()
    }

    /// Gives a gateway the frames that wait at a time, lets it have a turn, and takes what leaves.
    fn turn(&mut self, place: usize, now: u64, tester: &Tester, outcome: &mut Outcome) {
        let gateway = &mut self.gateways[place];
        for from in SIDES {
            let port = &gateway.ports[from as usize];
            match &mut gateway.rings[from as usize] {
                Ring::Tester(sender) => {
                    outcome.overflows += sender.advance(now);
                    let count = sender.waiting.len().min(BATCH);
                    for number in sender.waiting.drain(..count) {
                        port.put(tester.frame(from, number));
                    }
                }
                Ring::Cable(frames) => {
                    let there = frames.iter().take(BATCH).take_while(|(time, _)| *time <= now);
                    let count = there.count();
                    frames.drain(..count).for_each(|(_, head)| port.put(head));
                }
            }
        }
        let begun = clock::now();
        gateway.worker.turn(Timestamp(now), &mut ());
        let time = (clock::now() - begun).saturating_sub(self.clock_cost);
        gateway.free = now + time.max(1);
        for side in SIDES {
            self.deliver(place, side, tester, outcome);
        }
    }

    /// Takes the frames that have left a gateway on a side to the next gateway or to the tester.
    fn deliver(&mut self, place: usize, side: Side, tester: &Tester, outcome: &mut Outcome) {
        let mut sent = std::mem::take(&mut self.sent);
        let gateway = &self.gateways[place];
        let now = gateway.free;
        gateway.ports[side as usize].take(&mut sent);
        if let Some(next) = self.beside(place, side) {
            if let Ring::Cable(frames) = &mut self.gateways[next].rings[side.other() as usize] {
                let room = RING - frames.len();
                frames.extend(sent.iter().take(room).map(|head| (now, *head)));
                outcome.overflows += sent.len().saturating_sub(room) as u64;
            }
        } else {
            for head in &sent {
                let Some(number) = tester.check(side, head) else {
                    outcome.wrong += 1;
                    continue;
                };
                outcome.received += 1;
                let delay = now - self.sender(side.other()).arrival(number);
                outcome.delays[side.other() as usize].push((number, delay));
            }
        }
        sent.clear();
        self.sent = sent;
    }

    /// The tester's sender on a side.
    fn sender(&self, side: Side) -> &Sender {
        let last = self.gateways.len() - 1;
        let place = if side == Side::Inside { 0 } else { last };
        match &self.gateways[place].rings[side as usize] {
            Ring::Tester(sender) => sender,
            Ring::Cable(_) => unreachable!("the tester is at both ends"),
        }
    }
}

/// Nanoseconds of two reads of the clock: the shortest of many tries.
fn clock_cost() -> u64 {
    let between = |_| {
        let start = clock::now();
        clock::now() - start
    };
    (0..1000).map(between).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_frames_find_the_ring_full() {
        let stream = Stream { count: 3000, gap: 500 };
        let mut sender = Sender { stream: Some(stream), start: 100, ..Sender::default() };
        assert_eq!(
            (sender.arrival(0), sender.arrival(1), sender.earliest()),
            (101, 101, Some(101))
        );
        assert_eq!((sender.advance(100), sender.advance(101), sender.waiting.len()), (0, 0, 2));
        assert_eq!(sender.advance(100 + 700), 1400 - RING as u64);
        assert_eq!(sender.waiting.back(), Some(&(RING as u64 - 1)));
        sender.waiting.clear();
        assert_eq!(sender.earliest(), Some(sender.arrival(1400)));
        assert_eq!(sender.advance(u64::MAX / 2000), 1600 - RING as u64);
        sender.waiting.clear();
        assert_eq!(sender.earliest(), None);
    }

    #[test]
    fn a_saturating_stream_loses_nothing() {
        let stream = Stream { count: 3000, gap: 0 };
        let mut sender = Sender { stream: Some(stream), start: 5, ..Sender::default() };
        let mut taken = 0;
        while sender.earliest().is_some() {
            assert_eq!(sender.advance(5), 0);
            taken += sender.waiting.drain(..).count();
        }
        assert_eq!(taken, 3000);
    }

    #[test]
    fn every_technology_translates_both_ways() {
        for technology in Technology::ALL {
            let mut chain = Chain::new(technology);
            let tester = Tester::new(technology, 600, |from, head| chain.pass(from, head));
            let mut tester = tester.unwrap_or_else(|error| panic!("{technology:?}: {error}"));
            for (payload, share) in [(18, 100), (1000, 50), (9100, 10)] {
                tester.prepare(payload, share);
                let stream = Stream { count: 1500, gap: 0 };
                let outcome = chain.trial(&tester, stream, Until::End);
                let Outcome { received, wrong, overflows, .. } = outcome;
                let overflows = if technology == Technology::Xlat464 { overflows } else { 0 };
                assert_eq!((received, wrong), (3000 - overflows, 0), "{technology:?} {payload}");
            }
            let slow = Stream { count: 500, gap: 100_000_000 };
            let outcome = chain.trial(&tester, slow, Until::Loss);
            assert_eq!(outcome.lost(), 0, "{technology:?}");
            assert!(outcome.delays.iter().all(|one| one.len() == 500));
            assert!(outcome.delays[0].is_sorted_by_key(|(number, _)| *number));
        }
    }

    #[test]
    fn a_stream_that_is_too_fast_loses_frames() {
        let technology = Technology::Siit;
        let mut chain = Chain::new(technology);
        let tester = Tester::new(technology, 10, |from, head| chain.pass(from, head)).unwrap();
        let fast = Stream { count: 100_000, gap: 100 };
        let outcome = chain.trial(&tester, fast, Until::End);
        assert_eq!(outcome.lost(), outcome.overflows);
        assert!(outcome.overflows > 100_000, "{}", outcome.overflows);
        let outcome = chain.trial(&tester, fast, Until::Loss);
        assert!(outcome.overflows > 0 && outcome.received < 100_000);
    }
}
