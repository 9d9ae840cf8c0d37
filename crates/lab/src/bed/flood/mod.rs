//! A generator in the kernel: an XDP program that the kernel runs over frames of its own and that
//! makes each a packet of a flow drawn at random, then sends it by a cable (`BPF_PROG_RUN` with live
//! frames).
//!
//! It costs a fifth of what sending by a socket does, so that one processor can send more than any
//! subject can take, and receive what comes of it. The packets are the tester's. Nothing is counted but calls: what a cable does not take is lost, and is missed
//! among what arrives.

mod program;
mod sink;

use super::bpf::sys::{self, Map, Mode};
use natgate_tester::{Endpoint, Mix, Place, Tester, Way};
use program::{Program, Side};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The interface that every namespace has, and that carries nothing here.
const LOOPBACK: u32 = 1;
/// Packets of a call at least, and at most.
const CALL: std::ops::RangeInclusive<u64> = 64..=4096;

/// Ready to send.
pub(super) struct Flood {
    program: OwnedFd,
    /// A frame of each length in turn.
    frames: Vec<Vec<u8>>,
    /// The program is in use as long as this is: what is not the kernel prepares anew for each call,
    /// which takes it a hundredth of a second.
    _in_use: OwnedFd,
    /// What takes in what comes of it.
    _sinks: Vec<OwnedFd>,
    /// Flows' external endpoints, for packets from outside.
    _endpoints: Option<Map<u32, u64>>,
}

impl Flood {
    /// For packets as the tester would send them, by interfaces of this thread's namespace:
    /// `[inside, outside]`.
    ///
    /// # Errors
    /// The system's, when the kernel takes no such program.
    pub(super) fn new(
        tester: &Tester<'_>,
        interfaces: [u32; 2],
        frames: &Mix,
        way: Way,
    ) -> io::Result<Self> {
        let endpoints = match way {
            Way::Up => None,
            Way::Down | Way::Both => Some(endpoints(tester.external())?),
        };
        let mut lengths: Vec<u16> = frames.lengths().collect();
        lengths.sort_unstable();
        lengths.dedup();
        let side = |number: usize| Side {
            templates: lengths.iter().map(|&len| tester.template(len, number)).collect(),
            interface: interfaces[number],
        };
        let (place, flows) = (tester.place().clone(), tester.external().len() as u32);
        let sides = [side(0), side(1)];
        let program = Program { place, flows, sides: &sides, way }.load(endpoints.as_ref())?;
        let mut sinks = Vec::new();
        for (end, comes) in [(0, way != Way::Up), (1, way != Way::Down)] {
            if comes {
                sinks.push(sink::attach(interfaces[end])?);
            }
        }
        Ok(Self {
            _sinks: sinks,
            _in_use: sys::attach(&program, LOOPBACK, Mode::Generic)?,
            program,
            frames: frames.lengths().map(|len| tester.template(len, 0).bytes).collect(),
            _endpoints: endpoints,
        })
    }

    /// Sends for so long, at a rate or as fast as it can; returns how many packets.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn send(&self, rate: Option<f64>, time: Duration) -> io::Result<u64> {
        let begin = Instant::now();
        let (mut sent, mut turn) = (0, 0);
        loop {
            let elapsed = begin.elapsed();
            if elapsed >= time {
                return Ok(sent);
            }
            let due = rate.map_or(u64::MAX, |rate| (elapsed.as_secs_f64() * rate) as u64);
            let count = due.saturating_sub(sent).min(*CALL.end());
            if count < *CALL.start() {
                std::hint::spin_loop();
                continue;
            }
            // A mix stays one however often the generator is called.
            let count = if self.frames.len() > 1 { *CALL.start() } else { count };
            let frame = &self.frames[turn % self.frames.len()];
            turn += 1;
            sys::run(&self.program, frame, count as u32)?;
            sent += count;
        }
    }
}

fn endpoints(known: &[Endpoint]) -> io::Result<Map<u32, u64>> {
    let map = Map::array(known.len() as u32)?;
    for (flow, endpoint) in (0..).zip(known) {
        map.update(&flow, &(u64::from(endpoint.address) | u64::from(endpoint.port) << 32))?;
    }
    Ok(map)
}

/// What a program needs of the place.
fn constants(place: &Place) -> [u32; 2] {
    [place.subscribers.to_bits(), place.remote.to_bits()]
}
