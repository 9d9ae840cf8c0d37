//! NAT64 with several prefixes: an answer comes from the prefix by which its receiver reached the
//! sender, however many hosts and remote addresses there are.

mod common;
#[path = "common/header6.rs"]
mod header6;
#[path = "common/prefixes.rs"]
mod prefixes;
#[path = "common/rng.rs"]
mod rng;

use header6::with_header6 as six;
use natgate_engine::{
    AddressRange, Config, DropReason, Engine, Packet, PoolConfig, Side, Timestamp,
};
use natgate_ipv6::convert::HEADROOM;
use natgate_ipv6::{Fate, Nat64Settings, NonGlobal, Pref64, Settings, Translator};
use natgate_wire::{Ipv4, Ipv6};
use prefixes::pref64;
use rng::Rng;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

const START: Timestamp = Timestamp(1_000_000_000_000);
const SECOND: u64 = 1_000_000_000;
const UDP: u8 = 17;
/// Life of a session without packets from inside, seconds.
const LIFE: u64 = 20;

struct World {
    engine: Engine,
    translator: Translator,
    prefixes: Vec<Pref64>,
    now: Timestamp,
    /// External endpoints of hosts.
    external: BTreeMap<u16, (u32, u16)>,
}

fn host(number: u16) -> u128 {
    (0x2001_0db8_000f << 80) | u128::from(number) << 64 | 5
}

fn remote(number: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xc633_0000 | u32::from(number))
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    [source, destination, 8, 0x1234].map(u16::to_be_bytes).concat()
}

impl World {
    fn new(mappings: u32, sessions: u32) -> Self {
        let prefixes = vec![
            pref64("2001:db8:64::", 96),
            pref64("2001:db8:65::", 96),
            pref64("2001:db8:66::", 96),
        ];
        let nat64 = Nat64Settings {
            prefixes: prefixes.clone(),
            subscribers: Vec::new(),
            subscriber_length: 64,
            non_global: NonGlobal::Translate,
            static_hosts: Vec::new(),
        };
        let settings = Settings { configured: true, nat64: Some(nat64), ..Settings::default() };
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config = Config { pools: vec![pool], ..Config::default() };
        config.limits.mappings = Some(mappings);
        config.limits.extra_sessions = Some(sessions);
        config.limits.extra_sessions_per_subscriber = Some(sessions);
        config.limits.sessions_per_mapping = u16::MAX;
        config.timeouts.udp = Duration::from_secs(LIFE);
        config.inbound_refresh = false;
        let translator = Translator::new(&settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { engine, translator, prefixes, now: START, external: BTreeMap::new() }
    }

    fn take(&mut self, from: Side, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = [&[0; HEADROOM], bytes].concat();
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let Self { translator, engine, now, .. } = self;
        let fate = translator.take(engine, *now, from, &mut packet);
        while engine.poll_event().is_some() {}
        translator.sweep(engine, *now);
        matches!(fate, Fate::Send(_)).then(|| packet.bytes().to_vec())
    }

    /// A host sends to a remote host by a prefix. True if the packet leaves.
    fn send(&mut self, from: u16, to: u16, prefix: usize) -> bool {
        let ends = (host(from), self.prefixes[prefix].embed(remote(to)).to_bits());
        let Some(left) = self.take(Side::Inside, &six(ends, UDP, &udp(4000, 53))) else {
            return false;
        };
        let header = Ipv4::new_checked(&left[..]).expect("a packet");
        let port = u16::from_be_bytes([left[20], left[21]]);
        self.external.insert(from, (header.source(), port));
        true
    }

    /// The place of the prefix of the answer that a host gets from a remote host.
    fn answer(&mut self, to: u16, from: u16) -> Option<usize> {
        let (address, port) = *self.external.get(&to)?;
        let ends = (remote(from).octets(), address.to_be_bytes());
        let entered = self.take(Side::Outside, &common::four(0, ends, UDP, &udp(53, port)))?;
        let header = Ipv6::new_checked(&entered[..]).expect("a packet");
        if header.destination() != host(to) {
            // The mapping is another host's by now.
            return None;
        }
        let source = header.source();
        let is_source = |prefix: &Pref64| prefix.embed(remote(from)).to_bits() == source;
        Some(self.prefixes.iter().position(is_source).expect("a known prefix"))
    }

    fn refused(&self) -> u64 {
        self.translator.counters().drops[DropReason::SessionTableFull as usize]
    }
}

#[test]
fn no_session_displaces_the_prefix_of_another() {
    let mut world = World::new(1000, 40_000);
    let pairs = || (0..200).flat_map(|from| (0..150).map(move |to| (from, to)));
    let prefix = |(from, to): (u16, u16)| 1 + usize::from(from ^ to) % 2;
    for (from, to) in pairs() {
        assert!(world.send(from, to, prefix((from, to))), "{from} to {to}");
    }
    for (from, to) in pairs() {
        assert_eq!(world.answer(from, to), Some(prefix((from, to))), "{from} from {to}");
    }
}

/// Many more pairs of hosts and remote addresses than sessions are possible, one after another.
#[test]
fn prefixes_are_known_as_long_as_sessions() {
    let seed = std::env::var("NATGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("a time after 1970").as_nanos() as u64
    });
    println!("seed {seed}: NATGATE_SEED={seed} repeats the test");
    let mut rng = Rng(seed);
    let mut world = World::new(300, 2000);
    // The prefix of the last packet that left, and its time.
    let mut reached: BTreeMap<(u16, u16), (usize, u64)> = BTreeMap::new();
    let (mut checked, mut forgotten) = (0, 0);
    for step in 0..60_000_u32 {
        world.now.0 += rng.next() % (SECOND / 50);
        while world.engine.advance(world.now) {}
        let (from, to) = (rng.below(100) as u16, rng.below(200) as u16);
        let prefix = rng.one_of(&[0, 1, 2]);
        if world.send(from, to, prefix) {
            reached.insert((from, to), (prefix, world.now.0));
        }
        if rng.chance(8) {
            continue;
        }
        // A pair of any time.
        let any = (rng.below(100) as u16, rng.below(200) as u16);
        let Some((&pair, &(prefix, last))) = reached.range(any..).next() else {
            continue;
        };
        let Some(found) = world.answer(pair.0, pair.1) else { continue };
        if world.now.0 - last < LIFE * SECOND {
            checked += u32::from(prefix > 0);
            assert_eq!(found, prefix, "step {step}: {pair:?}");
        } else {
            forgotten += u32::from(found != prefix);
            assert!(found == prefix || found == 0, "step {step}: {pair:?}");
        }
    }
    assert_eq!(world.refused(), 0, "records of sessions that ended give room");
    assert!(reached.len() > 15_000 && checked > 1000 && forgotten > 100, "{checked} {forgotten}");
}

#[test]
fn another_process_takes_the_prefixes_over() {
    let mut world = World::new(1000, 1000);
    for to in 0..30 {
        assert!(world.send(1, to, usize::from(to) % 3));
    }
    let paths = |world: &World| {
        let mut all: Vec<_> = world.translator.carried_paths().collect();
        all.sort_by_key(|path| path.remote);
        all
    };
    assert_eq!(paths(&world).len(), 20, "the first prefix needs no record");
    let mut heir = World::new(1000, 1000);
    let hosts: Vec<_> = world.translator.carried_hosts().collect();
    heir.translator.adopt_hosts(hosts, START).expect("they fit");
    heir.translator.adopt_paths(paths(&world));
    assert_eq!(paths(&heir), paths(&world));
    // A prefix that the configuration does not have any more is left out.
    let mut gone = paths(&world);
    gone.iter_mut().for_each(|path| path.prefix.len = 64);
    let mut other = World::new(1000, 1000);
    other.translator.adopt_paths(gone);
    assert_eq!(paths(&other), []);
}
