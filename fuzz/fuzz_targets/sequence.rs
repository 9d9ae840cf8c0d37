//! Stories: a configuration, then packets, answers to what left, errors about it, and time.
//!
//! After each step everything that must hold is looked at; at the end everything must have expired.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use natgate_engine::{
    AddressRange, Allocation, Behavior, Config, Limits, Match, PoolConfig, Pooling, Prefix, Rule,
    RuleAction, Side, SideConfig, StaticMapping, Timeouts,
};
use natgate_fuzz::World;
use natgate_fuzz::packet::{self, Plan};
use std::net::Ipv4Addr;
use std::time::Duration;

/// More steps find nothing that fewer do not.
const STEPS: usize = 64;
/// Packets a batch: more than one stage of the engine's.
const BATCH: usize = 40;

#[derive(Arbitrary, Debug)]
struct Story {
    setting: Setting,
    steps: Vec<Step>,
}

/// A story made of whatever bytes there are: those that are missing count as zeros. The fuzzer
/// begins with one byte and would never get beyond it if short inputs were refused.
#[derive(Debug)]
struct Input(Story);

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Story::arbitrary(bytes).map(Self)
    }

    fn size_hint(_: usize) -> (usize, Option<usize>) {
        (0, None)
    }
}

#[derive(Arbitrary, Debug)]
struct Setting {
    mapping: u8,
    filtering: u8,
    pooling: u8,
    preserve: bool,
    parity: bool,
    hairpinning: bool,
    inbound_refresh: bool,
    tcp_pickup: bool,
    quota: u8,
    sessions: u8,
    rate: u8,
    table: Option<(u8, u8)>,
    addresses: bool,
    static_port: bool,
    static_address: bool,
    bypass: bool,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Batch {
        inside: bool,
        plans: Vec<Plan>,
    },
    /// The receiver of a packet that left answers it.
    Reply {
        which: u8,
        flags: u8,
    },
    /// A host reports an error about a packet that left.
    Error {
        which: u8,
        kind: u8,
        quoted: u8,
        midway: bool,
    },
    /// A packet that left comes in once more, by the other side.
    Again {
        which: u8,
    },
    Millis(u16),
    Seconds(u16),
}

fuzz_target!(|input: Input| {
    let Input(story) = input;
    let mut world = World::new(story.setting.config());
    for step in story.steps.iter().take(STEPS) {
        take(&mut world, step);
        world.check();
    }
    world.finish();
});

fn take(world: &mut World, step: &Step) {
    let sent = |which: u8| {
        (!world.sent.is_empty()).then(|| &world.sent[usize::from(which) % world.sent.len()])
    };
    let (side, bytes) = match *step {
        Step::Batch { inside, ref plans } => {
            let side = if inside { Side::Inside } else { Side::Outside };
            let batch: Vec<_> = plans.iter().take(BATCH).map(|plan| plan.bytes(inside)).collect();
            return world.feed(side, &batch);
        }
        Step::Millis(millis) => return world.wait(Duration::from_millis(millis.into())),
        Step::Seconds(seconds) => return world.wait(Duration::from_secs(seconds.into())),
        Step::Reply { which, flags } => {
            let Some(sent) = sent(which) else { return };
            (sent.side, packet::reply(&sent.bytes, flags))
        }
        Step::Error { which, kind, quoted, midway } => {
            let Some(sent) = sent(which) else { return };
            (sent.side, packet::error_about(&sent.bytes, kind, quoted, midway))
        }
        Step::Again { which } => {
            let Some(sent) = sent(which) else { return };
            (sent.side.other(), Some(sent.bytes.clone()))
        }
    };
    if let Some(bytes) = bytes {
        world.feed(side, &[bytes]);
    }
}

fn pool(last: u8) -> PoolConfig {
    let range = AddressRange {
        first: Ipv4Addr::new(203, 0, 113, 1),
        last: Ipv4Addr::new(203, 0, 113, last),
    };
    PoolConfig {
        name: "default".into(),
        addresses: vec![range],
        ports: (2000, 2007),
        ..PoolConfig::default()
    }
}

fn side(address: Ipv4Addr) -> SideConfig {
    SideConfig { address: Some(address), mtu: Some(1500), ..SideConfig::default() }
}

impl Setting {
    fn config(&self) -> Config {
        const BEHAVIORS: [Behavior; 3] = [
            Behavior::EndpointIndependent,
            Behavior::AddressDependent,
            Behavior::AddressAndPortDependent,
        ];
        const POOLINGS: [Pooling; 3] = [Pooling::Paired, Pooling::SoftPaired, Pooling::Arbitrary];
        let pick = |at: u8| usize::from(at % 3);
        Config {
            inside: side(Ipv4Addr::new(10, 0, 0, 1)),
            outside: side(Ipv4Addr::new(192, 0, 2, 254)),
            pools: vec![pool(if self.addresses { 2 } else { 1 })],
            mapping: BEHAVIORS[pick(self.mapping)],
            filtering: BEHAVIORS[pick(self.filtering)],
            pooling: POOLINGS[pick(self.pooling)],
            allocation: if self.preserve { Allocation::Preserve } else { Allocation::Random },
            port_parity: self.parity,
            hairpinning: self.hairpinning,
            inbound_refresh: self.inbound_refresh,
            tcp_pickup: self.tcp_pickup,
            limits: self.limits(),
            timeouts: Timeouts { fragment: Duration::from_secs(2), ..Timeouts::default() },
            statics: self.statics(),
            rules: self.rules(),
            ..Config::default()
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            tcp_ports: 1 + u32::from(self.quota & 7),
            udp_ports: 1 + u32::from(self.quota >> 3 & 7),
            icmp_ports: 1 + u32::from(self.quota >> 6),
            sessions_per_mapping: 1 + u16::from(self.sessions),
            new_mappings_per_second: 1 + u32::from(self.rate),
            mappings: self.table.map(|(mappings, _)| 1 + u32::from(mappings)),
            extra_sessions: self.table.map(|(_, extra)| u32::from(extra)),
            fragment_memory: 64 << 10,
            ..Limits::default()
        }
    }

    fn statics(&self) -> Vec<StaticMapping> {
        let port = StaticMapping {
            protocol: None,
            internal: (Ipv4Addr::new(10, 0, 0, 7), Some(8080)),
            external: (Ipv4Addr::new(203, 0, 113, 1), Some(2003)),
            ..StaticMapping::default()
        };
        let address = StaticMapping {
            protocol: None,
            internal: (Ipv4Addr::new(10, 0, 0, 80), None),
            external: (Ipv4Addr::new(203, 0, 113, 9), None),
            ..StaticMapping::default()
        };
        let chosen = [(self.static_port, port), (self.static_address, address)];
        chosen.into_iter().filter(|(chosen, _)| *chosen).map(|(_, mapping)| mapping).collect()
    }

    fn rules(&self) -> Vec<Rule> {
        let remote = Prefix::new(Ipv4Addr::new(198, 51, 100, 8), 32);
        let bypass = Rule::new(Match::Destination(remote, 80), RuleAction::Bypass);
        if self.bypass { vec![bypass] } else { Vec::new() }
    }
}
