//! Measured subjects. Each has two devices of the same kind, and the same addresses, routes and
//! neighbors.

use super::memory::{FIRST_SUBSCRIBER, GATEWAYS, MACS, POOL, SUBSCRIBERS_EACH, addresses};
use super::stock::{Wire, stock};

use crate::io::feed::STATION;
use crate::program::{Links, TIMEOUT, With, add, machine};
use natgate_engine::{
    AddressRange, Config, Limits, Match, PoolConfig, Prefix, Rule, RuleAction, Side, SideConfig,
    Timeouts,
};
use natgate_gateway::{Clock, Route, Settings, SideSettings, Worker};
use natgate_io::{Batch, Device};
use natgate_p4::{Key, Machine, Program, Switch};
use std::net::Ipv4Addr;
use std::time::Instant;

/// Mappings of an external address that natgate allocates: few enough to find free ports fast.
const MAPPINGS_EACH: u32 = 40_000;

/// A forwarder, and the other ends of its devices: inside, outside.
pub(crate) struct Subject<'p> {
    pub(super) wires: [Wire; 2],
    work: Box<dyn FnMut() + 'p>,
}

impl<'p> Subject<'p> {
    fn new(make: impl FnOnce([Box<dyn Device>; 2]) -> Box<dyn FnMut() + 'p>) -> Self {
        let [(inside, near), (outside, far)] =
            [stock("inside", MACS[0]), stock("outside", MACS[1])];
        Self { wires: [near, far], work: make([Box::new(inside), Box::new(outside)]) }
    }

    /// Processes a batch from each side.
    pub(super) fn turn(&mut self) {
        (self.work)();
    }

    /// The devices alone: frames go unchanged from one to the other.
    pub(super) fn devices() -> Self {
        Self::new(|mut devices| {
            Box::new(move || {
                for from in [0, 1] {
                    let [first, second] = &mut devices;
                    let [(first_in, first_out), (second_in, second_out)] =
                        [first.split(), second.split()];
                    let (receiver, onward) =
                        if from == 0 { (first_in, second_out) } else { (second_in, first_out) };
                    let mut batch = Batch::new();
                    receiver.receive(&mut batch);
                    if !batch.is_empty() {
                        onward.transmit(&mut batch);
                    }
                }
            })
        })
    }

    /// natgate with all functions of a gateway.
    pub(crate) fn natgate(entries: u32) -> Self {
        Self::gateway(settings(entries))
    }

    /// natgate with a rule that bypasses all packets.
    pub(crate) fn bypass() -> Self {
        let mut settings = settings(1);
        let all = Match::Source(Prefix::new(Ipv4Addr::UNSPECIFIED, 0), 0);
        settings.engine.rules.push(Rule::new(all, RuleAction::Bypass));
        Self::gateway(settings)
    }

    fn gateway(settings: Settings) -> Self {
        Self::new(|devices| {
            let clock = Clock::new();
            let worker = Worker::new(&settings, [1; 32], Vec::from(devices), clock.now());
            let mut worker =
                worker.unwrap_or_else(|error| panic!("the laboratory's settings: {error}"));
            Box::new(move || {
                worker.turn(clock.now(), &mut ());
            })
        })
    }

    /// The program, run by the executor `with`.
    pub(super) fn program(program: &'p Program, with: With, entries: u32) -> Self {
        Self::new(|devices| {
            let mut machine = machine(program, with);
            fill(&mut machine, entries);
            let (mut switch, begun) = (Switch::new(machine, devices), Instant::now());
            Box::new(move || {
                switch.turn(begun.elapsed());
            })
        })
    }
}

/// Fills the tables like a controller. Packets make the mappings.
fn fill(machine: &mut Machine<'_>, entries: u32) {
    let next_hops = GATEWAYS.map(|address| (address, STATION));
    let links = Links { macs: MACS, next_hops, inside: (Ipv4Addr::new(10, 0, 0, 0), 8) };
    links.fill(machine);
    for index in 0..addresses(entries) {
        let subscribers = FIRST_SUBSCRIBER + index * SUBSCRIBERS_EACH;
        let keys = [Key::Prefix(subscribers.into(), 22)];
        add(machine, "subscribers", &keys, "subscriber", &[index.into(), index.into()]);
        let external = [(POOL.to_bits() + index).into(), 1024, 65_535];
        add(machine, "pool", &[Key::Exact(index.into())], "external_address", &external);
    }
}

/// Settings of natgate for `entries` mappings.
fn settings(entries: u32) -> Settings {
    let side = |address: Ipv4Addr| {
        let settings =
            SideSettings { address: Some((address, 24)), ..SideSettings::new(address.to_string()) };
        let network = Some(Prefix::new(address, 24));
        (settings, SideConfig { address: Some(address), network, ..SideConfig::default() })
    };
    let (inside, inside_engine) = side(Ipv4Addr::new(192, 168, 0, 1));
    let (mut outside, outside_engine) = side(Ipv4Addr::new(192, 0, 2, 1));
    outside.gateway = Some(GATEWAYS[1]);
    let last = POOL.to_bits() + entries.div_ceil(MAPPINGS_EACH);
    let engine = Config {
        inside: inside_engine,
        outside: outside_engine,
        pools: vec![PoolConfig {
            name: "default".into(),
            addresses: vec![AddressRange { first: POOL, last: Ipv4Addr::from_bits(last) }],
            ports: (1024, 65_535),
            ..PoolConfig::default()
        }],
        limits: Limits {
            mappings: Some(entries + entries / 4 + 1024),
            extra_sessions: Some(0),
            ..Limits::default()
        },
        timeouts: Timeouts { udp: TIMEOUT, ..Timeouts::default() },
        ..Config::default()
    };
    let prefix = Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8);
    let routes = vec![Route { prefix, via: GATEWAYS[0], side: Side::Inside }];
    Settings { routes, ..Settings::new(engine, inside, outside) }
}
