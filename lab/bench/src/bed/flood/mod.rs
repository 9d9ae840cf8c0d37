//! A packet generator in the kernel.
//!
//! The kernel runs an XDP program over frames of its own (`BPF_PROG_RUN` with live frames). The
//! program turns each frame into a packet of a random flow, and sends it by a cable.
//!
//! The generator costs a fifth of sending by a socket. So one processor can send more packets than
//! any subject can process, and receive the results. The tester defines the packets. A packet that
//! a cable cannot take is lost, and is missing among the arrivals.
//!
//! The program itself keeps the rate: it runs over and over, and drops the frame unless a packet is
//! due. The calls have to be few, because the kernel makes a pool of pages for each call. The time
//! to end a pool grows with the number of other pools that are still to end.

mod program;
mod sink;

use super::bpf;
use natgate_io::bpf::{Map, Mode, Plain, run_live};
use natgate_tester::{Endpoint, Mix, Place, Tester, Way};
use program::{Program, Side};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// The loopback interface of every namespace. It carries no frames here.
const LOOPBACK: u32 = 1;
/// Frames of one call; they take a few milliseconds.
const CALL: u32 = 1 << 15;
/// Highest rate, packets a second.
const FASTEST: f64 = 1e8;
/// Pause of the generator if the kernel has no number for one more pool.
const PAUSE: Duration = Duration::from_millis(5);

/// Order to a program, and its progress. A map of one entry has it as its value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// Begin and end in the kernel's time, nanoseconds.
    begin: u64,
    end: u64,
    /// Packets in 2^[`RATE_BITS`] nanoseconds.
    rate: u64,
    sent: u64,
}

/// With this scale a minute at the highest rate fits into 64 bits.
const RATE_BITS: i32 = 27;

// SAFETY: numbers of one size.
unsafe impl Plain for Order {}

/// A generator that is ready to send.
pub(super) struct Flood {
    program: OwnedFd,
    order: Map<u32, Order>,
    /// A frame of the greatest length.
    frame: Vec<u8>,
    /// Keeps the program in use. Otherwise the kernel prepares the program again for each call,
    /// which takes a hundredth of a second.
    _in_use: OwnedFd,
    /// Programs that receive the packets from the subject.
    _sinks: Vec<OwnedFd>,
    /// External endpoints of the flows, for packets from outside.
    _endpoints: Option<Map<u32, u64>>,
}

impl Flood {
    /// Creates a generator of the tester's packets. `interfaces` are interfaces of this thread's
    /// namespace: `[inside, outside]`.
    ///
    /// # Errors
    /// The system's error if the kernel refuses the program.
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
        let side = |number: usize| Side {
            templates: lengths.iter().map(|&len| tester.template(len, number)).collect(),
            interface: interfaces[number],
        };
        let (place, flows) = (tester.place().clone(), tester.external().len() as u32);
        let sides = [side(0), side(1)];
        let order = array(1)?;
        let program = Program { place, flows, sides: &sides, way };
        let program = program.load(order.descriptor(), endpoints.as_ref())?;
        let frame = sides[0].templates.last().map(|longest| longest.bytes.clone());
        let mut sinks = Vec::new();
        for (end, comes) in [(0, way != Way::Up), (1, way != Way::Down)] {
            if comes {
                sinks.push(sink::attach(interfaces[end])?);
            }
        }
        Ok(Self {
            _sinks: sinks,
            _in_use: bpf::attach(&program, LOOPBACK, Mode::Generic)?,
            program,
            order,
            frame: frame.unwrap_or_default(),
            _endpoints: endpoints,
        })
    }

    /// Sends for a time, at a rate or as fast as possible. Calls `tell` every few milliseconds with
    /// the number of packets sent so far; returns the final number.
    ///
    /// # Errors
    /// The system's errors, and the errors of `tell`.
    pub(super) fn send(
        &self,
        rate: Option<f64>,
        time: Duration,
        mut tell: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<u64> {
        let rate = rate.map_or(FASTEST, |rate| rate.min(FASTEST));
        let begin = monotonic();
        let end = begin + time.as_nanos() as u64;
        let rate = (rate / 1e9 * f64::from(1 << RATE_BITS)).round() as u64;
        self.order.update(&0, &Order { begin, end, rate, sent: 0 })?;
        while monotonic() < end {
            match run_live(&self.program, &self.frame, CALL) {
                // The pause lowers the rate. The measurement counts the packets that were really
                // sent.
                Err(error) if error.kind() == ErrorKind::StorageFull => thread::sleep(PAUSE),
                done => done.map_err(bpf::refused(format!("{CALL} frames sent by a program")))?,
            }
            tell(self.order.look_up(&0)?.sent)?;
        }
        Ok(self.order.look_up(&0)?.sent)
    }
}

/// Time as programs in the kernel read it, nanoseconds.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn array<V: Plain>(entries: u32) -> io::Result<Map<u32, V>> {
    Map::array(entries).map_err(bpf::refused(format!("a map of {entries} entries")))
}

fn endpoints(known: &[Endpoint]) -> io::Result<Map<u32, u64>> {
    let map = array(known.len() as u32)?;
    for (flow, endpoint) in (0..).zip(known) {
        map.update(&flow, &(u64::from(endpoint.address) | u64::from(endpoint.port) << 32))?;
    }
    Ok(map)
}

/// Addresses that a program has as constants.
fn constants(place: &Place) -> [u32; 2] {
    [place.subscribers.to_bits(), place.remote.to_bits()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_io::bpf::{Outcome, test_run};
    use natgate_tester::Template;
    use std::net::Ipv4Addr;

    const DROP: u32 = 1;
    const REDIRECT: u32 = 4;
    /// Ten seconds in nanoseconds. The machine has run for longer.
    const TEN: u64 = 10_000_000_000;

    fn place() -> Place {
        Place {
            gateway: [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1)],
            own: [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 2)],
            subscribers: Ipv4Addr::new(100, 64, 0, 0),
            remote: Ipv4Addr::new(198, 51, 100, 0),
            remotes: 16,
            flows: 640,
        }
    }

    /// A program for frames of these lengths by the loopback, with this order.
    fn program(lengths: &[usize], order: Order) -> (OwnedFd, Map<u32, Order>) {
        let map = Map::array(1).expect("it needs root");
        map.update(&0, &order).unwrap();
        let template = |&len: &usize| {
            let mut bytes = vec![0; len];
            bytes[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
            Template { bytes, header_sum: 0, payload_sum: 0 }
        };
        let side =
            || Side { templates: lengths.iter().map(template).collect(), interface: LOOPBACK };
        let sides = [side(), side()];
        let program = Program { place: place(), flows: 640, sides: &sides, way: Way::Up };
        (program.load(map.descriptor(), None).unwrap(), map)
    }

    #[test]
    fn as_many_go_as_are_due_and_none_after_the_end() {
        let now = monotonic();
        let hour = 3_600_000_000_000;
        // The lowest rate above zero: in ten seconds some packets are due.
        let rate = 1;
        let late = Order { begin: now - TEN, end: now + hour, rate: 0, sent: 0 };
        let goes = |program: &OwnedFd| {
            let outcomes = (0..200).map(|_| test_run(program, &[0; 60], 1).unwrap().answer);
            let (gone, rest): (Vec<u32>, Vec<u32>) =
                outcomes.partition(|&outcome| outcome == REDIRECT);
            assert!(rest.iter().all(|&outcome| outcome == DROP), "{rest:?}");
            gone.len() as u64
        };
        let (none, _) = program(&[60], late);
        assert_eq!(goes(&none), 0);
        let (some, order) = program(&[60], Order { rate, ..late });
        let due = (TEN * rate) >> RATE_BITS;
        assert_eq!((goes(&some), order.look_up(&0).unwrap().sent), (due, due));
        let (over, _) = program(&[60], Order { rate: 1 << RATE_BITS, end: now, ..late });
        assert_eq!(goes(&over), 0);
    }

    #[test]
    fn a_mix_has_each_length_as_often_as_it_is_named() {
        let now = monotonic();
        let order = Order { begin: 0, end: now + 3_600_000_000_000, rate: 1 << 20, sent: 0 };
        let (program, _) = program(&[60, 60, 60, 1514], order);
        let mut long = 0;
        for _ in 0..4000 {
            let Outcome { answer, frame, .. } = test_run(&program, &[0; 1514], 1).unwrap();
            assert_eq!(answer, REDIRECT);
            match u16::from_be_bytes([frame[16], frame[17]]) {
                46 => {}
                1500 => long += 1,
                other => panic!("a packet of {other} bytes"),
            }
        }
        // Ten standard deviations.
        assert!((730..1270).contains(&long), "{long}");
    }
}
