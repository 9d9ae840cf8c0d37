//! Idle timeouts of sessions. The timeout of the rule that made the mapping comes first, then the
//! timeout of the remote port, then the timeout of the protocol. Ports matter for TCP only in the
//! established state.
//!
//! A rule's timeouts are a set with a number of four bits, which the mapping stores. Set 0 has the
//! timeouts without a rule. If ports matter, a table has a byte for each port of a protocol.

use crate::config::{Config, PortTimeout, TimeoutSet, Timeouts};
use crate::session::Idle;
use crate::time::{TICK, nanos};
use alloc::vec;
use alloc::vec::Vec;
use natgate_wire::protocol;

/// Largest number of sets of timeouts, set 0 included.
pub(crate) const SETS: usize = TimeoutSet::MOST + 1;

/// A set of timeouts, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Set {
    udp: u64,
    established: u64,
    opening: u64,
    closing: u64,
    icmp: u64,
    other: u64,
    /// True if the set's timeouts of UDP, and of established connections, hold for every port.
    any_port: [bool; 2],
}

impl Set {
    fn new(common: &Timeouts, own: &TimeoutSet) -> Self {
        let time = |own: Option<_>, common| nanos(own.unwrap_or(common));
        Self {
            udp: time(own.udp, common.udp),
            established: time(own.tcp_established, common.tcp_established),
            opening: time(own.tcp_opening, common.tcp_opening),
            closing: time(own.tcp_closing, common.tcp_closing),
            icmp: time(own.icmp, common.icmp),
            other: time(own.other, common.other),
            any_port: [own.udp.is_some(), own.tcp_established.is_some()],
        }
    }
}

/// The timeouts of remote ports.
#[derive(Clone, Debug, Default)]
struct Ports {
    /// For TCP, UDP and DCCP, by port, the place of its timeout, counted from 1; 0: none. Empty: no
    /// port of the protocol has a timeout.
    places: [Vec<u8>; 3],
    times: Vec<u64>,
}

impl Ports {
    fn new(timeouts: &[PortTimeout]) -> Self {
        let mut ports = Self::default();
        for PortTimeout { protocol, ports: (first, last), idle } in timeouts {
            ports.times.push(nanos(*idle));
            let Some(place) = Self::protocol(*protocol) else { continue };
            let places = &mut ports.places[place];
            places.resize(1 << 16, 0);
            places[usize::from(*first)..=usize::from(*last)].fill(ports.times.len() as u8);
        }
        ports
    }

    fn protocol(number: u8) -> Option<usize> {
        match number {
            protocol::TCP => Some(0),
            protocol::UDP => Some(1),
            protocol::DCCP => Some(2),
            _ => None,
        }
    }

    fn get(&self, protocol: u8, port: u16) -> Option<u64> {
        let place = *self.places[Self::protocol(protocol)?].get(usize::from(port))?;
        self.times.get(usize::from(place.checked_sub(1)?)).copied()
    }
}

/// All idle timeouts, and the hold-down.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    /// Set 0, and the sets of rules.
    sets: Vec<Set>,
    ports: Ports,
    pub(crate) hold_down: u64,
    /// Duration of the hold-down, ticks.
    pub(crate) hold_ticks: u32,
}

impl Timers {
    pub(crate) fn new(config: &Config) -> Self {
        let common = &config.timeouts;
        let mut sets = vec![Set::new(common, &TimeoutSet::default())];
        sets.extend(config.timeout_sets.iter().map(|own| Set::new(common, own)));
        let ports = Ports::new(&config.port_timeouts);
        let hold_down = nanos(common.hold_down);
        Self { sets, ports, hold_down, hold_ticks: deadline(0, hold_down) }
    }

    /// Bytes that the timers take.
    pub(crate) fn memory(config: &Config) -> u64 {
        let with_port = |protocol: &u8| {
            config.port_timeouts.iter().any(|timeout| timeout.protocol == *protocol)
        };
        let protocols = [protocol::TCP, protocol::UDP, protocol::DCCP];
        (protocols.iter().filter(|protocol| with_port(protocol)).count() as u64) << 16
    }

    /// Number of sets, set 0 included.
    pub(crate) fn sets(&self) -> usize {
        self.sets.len()
    }

    /// True if some port has a timeout of its own.
    pub(crate) fn by_port(&self) -> bool {
        !self.ports.times.is_empty()
    }

    /// A set's timeouts for UDP, and for established connections, of ports without a timeout of
    /// their own. Nanoseconds.
    pub(crate) fn usual(&self, set: usize) -> (u64, u64) {
        (self.sets[set].udp, self.sets[set].established)
    }

    /// The timeout of a session in a state.
    pub(crate) fn of(&self, set: u8, idle: Idle, protocol: u8, remote_port: u16) -> u64 {
        let of_set = &self.sets[usize::from(set)];
        match (protocol, idle) {
            //= rfc7857#section-2.1
            (protocol::TCP | protocol::DCCP, Idle::Opening) => of_set.opening,
            (protocol::TCP | protocol::DCCP, Idle::Closing) => of_set.closing,
            (protocol::TCP | protocol::DCCP | protocol::UDP, _) => {
                self.of_open(set, protocol, remote_port)
            }
            //= rfc5508#REQ-2
            (protocol::ICMP, _) => of_set.icmp,
            _ => of_set.other,
        }
    }

    /// The timeout of a session of UDP, or of an established one of TCP or DCCP.
    #[inline]
    pub(crate) fn of_open(&self, set: u8, protocol: u8, remote_port: u16) -> u64 {
        let of_set = &self.sets[usize::from(set)];
        let (usual, any_port) = match protocol {
            //= rfc6146#section-3.5.1-default
            //= rfc6146#section-3.5.1-least
            protocol::UDP => (of_set.udp, of_set.any_port[0]),
            //= rfc6146#section-3.5.2-least
            //= rfc6146#section-3.5.2-default
            _ => (of_set.established, of_set.any_port[1]),
        };
        //= rfc4787#REQ-5a
        let of_port = || self.ports.get(protocol, remote_port);
        if any_port { usual } else { of_port().unwrap_or(usual) }
    }
}

/// The first tick that is not before `since + duration`, both in nanoseconds from the time of tick
/// 0.
#[inline(always)]
pub(crate) fn deadline(since: u64, duration: u64) -> u32 {
    (since + duration).div_ceil(nanos(TICK)) as u32
}
