//! Events of some subscribers, logs that get them, and helpers for tests of both.

use natgate_engine::{
    BlockId, Change, Endpoint, Event, MappingId, MappingKind, SessionId, Timestamp,
};
use natgate_gateway::{Clock, LogSettings, LogTo, LogWhat};
use natgate_logs::{Logs, Names, SinkMetrics};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of subscribers.
pub(crate) const SUBSCRIBERS: u8 = 20;

/// Time of the events: 2023-11-14 22:13:20 UTC.
const TIME: Timestamp = Timestamp(1_700_000_000_000_000_000);

pub(crate) fn mapping(number: u8) -> MappingId {
    let number = u16::from(number);
    MappingId {
        protocol: 17,
        realm: 0,
        internal: Endpoint::new(0x0a00_0000 + u32::from(number), 4000 + number),
        external: Endpoint::new(0xcb00_7101, 5000 + number),
        kind: MappingKind::Dynamic,
    }
}

pub(crate) fn session(number: u8) -> SessionId {
    let remote = Endpoint::new(0xc000_0200 + u32::from(number), 53);
    SessionId { mapping: mapping(number), remote, remote_inside: remote }
}

pub(crate) fn block(number: u8) -> BlockId {
    let external = Ipv4Addr::new(203, 0, 113, 1);
    let subscriber = mapping(number).internal.address;
    BlockId { realm: 0, subscriber, external, ports: (2048, 2559) }
}

pub(crate) fn events(changes: impl Iterator<Item = Change>) -> Vec<Event> {
    changes.map(|change| Event { time: TIME, change }).collect()
}

pub(crate) fn settings(to: LogTo, what: LogWhat, remotes: bool) -> LogSettings {
    LogSettings { what, remotes, queue: LogSettings::QUEUE, to }
}

/// A file of JSON lines.
pub(crate) fn log_file(path: &Path) -> LogSettings {
    LogSettings::file(path.to_owned())
}

/// Logs in operation.
pub(crate) struct World {
    pub(crate) logs: Logs,
}

impl World {
    pub(crate) fn start(settings: &[LogSettings]) -> Self {
        let tell = Arc::new(|sentence| eprintln!("{sentence}")) as _;
        let logs = Logs::open(settings, Names::default(), Clock::new(), false, &tell);
        Self { logs: logs.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Ends the logs; returns those that are not complete.
    pub(crate) fn finish(self) -> Vec<SinkMetrics> {
        self.logs.finish()
    }
}

/// Writes events to logs; returns those that are not complete.
pub(crate) fn after(settings: &[LogSettings], events: &[Event]) -> Vec<SinkMetrics> {
    let world = World::start(settings);
    let mut feed = world.logs.joining().feed();
    events.iter().for_each(|event| feed.event(event));
    drop(feed);
    world.finish()
}

/// A free port of the loopback.
pub(crate) fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there is one");
    socket.local_addr().expect("it has an address").port()
}

/// Waits until a condition holds; fails after a minute.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes IPFIX messages of a connection as datagrams of a capture.
pub(crate) fn write_capture(path: &Path, mut messages: &[u8]) {
    const RAW: u32 = 101;
    let mut capture = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, RAW] {
        capture.extend(word.to_le_bytes());
    }
    while !messages.is_empty() {
        let len = u16::from_be_bytes([messages[2], messages[3]]);
        let (message, rest) = messages.split_at(len.into());
        let total = 28 + len;
        for word in [0, 0, u32::from(total), u32::from(total)] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend([0x45, 0]);
        capture.extend(total.to_be_bytes());
        capture.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        for field in [4739, 4739, 8 + len, 0] {
            capture.extend(u16::to_be_bytes(field));
        }
        capture.extend(message);
        messages = rest;
    }
    std::fs::write(path, capture).expect("it can be written");
}
