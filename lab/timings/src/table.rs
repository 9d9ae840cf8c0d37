//! An engine with entries, and the three measured calls.

use crate::cycles;
use crate::frame::{self, End, Frame};
use natgate_engine::{
    AddressRange, Config, Cursor, Engine, Filter, Limits, MappingInfo, Packet, PoolConfig, Side,
    Timestamp, Verdict,
};
use natgate_wire::protocol;
use std::hint::black_box;
use std::net::Ipv4Addr;

/// Flows of one subscriber.
const FLOWS_EACH: u32 = 500;
const INSIDE: u32 = 0x0a00_0001;
const REMOTE: End = (0xc633_640a, 53);
/// First address of the pool, its ports, and the most ports of an address in use. The limit makes
/// the search for a free port short.
const FIRST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const PORTS: (u16, u16) = (1024, 65_535);
const IN_USE: u32 = 32_000;
/// Time between two packets, nanoseconds.
const SPACING: u64 = 10_000;
/// Longer than any lifetime of a mapping and any hold-down of a port, nanoseconds.
const LONG: u64 = 10_000 * 1_000_000_000;
/// Distance of consecutively measured flows: a prime, so that all flows have their turn, and none
/// is near the one before.
const STRIDE: usize = 48_271;

/// An engine with its flows.
pub(crate) struct Table {
    engine: Engine,
    now: u64,
    /// External endpoint of each flow.
    external: Vec<End>,
    entries: u32,
    found: Vec<MappingInfo>,
}

impl Table {
    /// Creates a table with room for `room` entries. It is empty; `entries` is the number of flows
    /// to come.
    pub(crate) fn new(room: u32, entries: u32) -> Self {
        let mut engine =
            Engine::new(&config(room), [1; 32], Timestamp(0)).expect("the configuration is good");
        engine.populate();
        let external = Vec::with_capacity(entries as usize);
        Self { engine, now: 1, external, entries, found: Vec::with_capacity(1) }
    }

    /// Sends the first packet of each flow; adds the cycles of each to `taken`.
    pub(crate) fn fill(&mut self, taken: &mut Vec<u64>) {
        self.external.clear();
        for flow in 0..self.entries {
            let (cycles, frame) = self.send(flow);
            taken.push(cycles);
            self.external.push(frame::source(&frame));
        }
    }

    /// Looks up the mapping of an external endpoint; returns the cycles.
    pub(crate) fn look_up(&mut self, call: usize) -> u64 {
        let flow = self.flow(call);
        let (address, port) = self.external[flow as usize];
        let filter = Filter {
            external: Some(Ipv4Addr::from_bits(address).into()),
            external_port: Some(port),
            protocol: Some(protocol::UDP),
            ..Filter::default()
        };
        self.found.clear();
        let begin = cycles();
        let mut cursor = Cursor::default();
        // The endpoint has one mapping, for which one slot is searched.
        self.engine.scan_mappings(&mut cursor, 1, black_box(&filter), &mut self.found);
        let taken = cycles() - begin;
        let internal = self.found.first().map(|mapping| mapping.id.internal);
        let found = internal.map(|end| (end.address.to_bits(), end.port));
        assert_eq!(found, Some(internal_end(flow)), "the mapping of flow {flow}");
        taken
    }

    /// Forwards a packet of a flow with an entry; returns the cycles.
    pub(crate) fn forward(&mut self, call: usize) -> u64 {
        let flow = self.flow(call);
        let (cycles, frame) = self.send(flow);
        assert_eq!(frame::source(&frame), self.external[flow as usize], "flow {flow}");
        cycles
    }

    /// Lets time pass until every mapping is removed and every port is free again.
    pub(crate) fn expire(&mut self) {
        self.now += LONG;
        while self.engine.advance(Timestamp(self.now)) {
            self.drain();
        }
        self.drain();
        assert_eq!(self.engine.totals().mappings, 0, "mappings have outlived their time");
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> u64 {
        self.engine.totals().mappings
    }

    fn flow(&self, call: usize) -> u32 {
        (call * STRIDE % self.entries as usize) as u32
    }

    /// Sends an outbound packet of a flow; returns its cycles, and the translated packet.
    fn send(&mut self, flow: u32) -> (u64, Frame) {
        let mut frame = Frame([0; 64]);
        frame::udp(&mut frame, internal_end(flow), REMOTE);
        self.now += SPACING;
        let now = Timestamp(self.now);
        while self.engine.advance(now) {
            self.drain();
        }
        let mut packets = [Packet::new(&mut frame.0[..frame::LEN], 0)];
        let mut verdicts = [Verdict::Held];
        let begin = cycles();
        self.engine.process(now, Side::Inside, &mut packets, &mut verdicts);
        let taken = cycles() - begin;
        assert_eq!(verdicts, [Verdict::Forward(Side::Outside)], "flow {flow}");
        self.drain();
        (taken, frame)
    }

    fn drain(&mut self) {
        while self.engine.poll_event().is_some() {}
    }
}

/// Bytes of a table with room for `room` entries.
pub(crate) fn memory(room: u32) -> u64 {
    Engine::memory(&config(room))
}

fn internal_end(flow: u32) -> End {
    (INSIDE + flow / FLOWS_EACH, 10_000 + (flow % FLOWS_EACH) as u16)
}

fn config(room: u32) -> Config {
    let addresses = room.div_ceil(IN_USE).max(4);
    let last = Ipv4Addr::from_bits(FIRST.to_bits() + addresses - 1);
    Config {
        pools: vec![PoolConfig {
            name: "default".into(),
            addresses: vec![AddressRange { first: FIRST, last }],
            ports: PORTS,
            ..PoolConfig::default()
        }],
        limits: Limits {
            new_mappings_per_second: 1_000_000_000,
            mappings: Some(room),
            // The remote hosts do not answer here, and the table must be able to fill.
            unanswered_give_way: false,
            // Room for further addresses takes memory on a machine without an operating system.
            external_addresses: Some(addresses),
            ..Limits::default()
        },
        ..Config::default()
    }
}
