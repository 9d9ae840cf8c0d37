//! NAT64 beside DS-Lite: each kind of hosts has a table and a realm of numbers, and hosts of both
//! reach each other.

mod common;
#[path = "common/explained.rs"]
mod explained;
#[path = "common/header6.rs"]
mod header6;
#[path = "common/prefixes.rs"]
mod prefixes;

use common::Ends;
use header6::with_header6;
use natgate_engine::{
    AddressRange, Config, DropReason as R, Engine, Packet, PoolConfig, Side, StaticMapping,
    Timestamp,
};
use natgate_ipv6::convert::HEADROOM;
use natgate_ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_ipv6::{
    Fate, HostKind, Nat64Settings, NonGlobal, Requester, Settings, StaticHost, Translator,
};
use natgate_wire::checksum::{checksum, fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::{Ipv4, Ipv6};
use prefixes::{address, pref64, prefix};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const START: Timestamp = Timestamp(1_000_000_000_000);
const SECOND: u64 = 1_000_000_000;
const AFTR: &str = "2001:db8:ffff::1";
const OWN: &str = "2001:db8:ffff::2";
const B4: &str = "2001:db8:b4::1";
const HOST: &str = "2001:db8:f::5";
const INNER: [u8; 4] = [192, 168, 1, 2];
const REMOTE: [u8; 4] = [198, 51, 100, 7];
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV4: u8 = 4;

struct World {
    engine: Engine,
    translator: Translator,
    now: Timestamp,
}

fn settings() -> Settings {
    let nat64 = Nat64Settings {
        prefixes: vec![pref64("64:ff9b::", 96)],
        subscribers: Vec::new(),
        subscriber_length: 64,
        non_global: NonGlobal::Refuse,
        static_hosts: Vec::new(),
    };
    let dslite = DsliteSettings {
        address: address(AFTR).into(),
        b4: vec![prefix("2001:db8:b4::", 48)],
        subscriber_length: 128,
        b4_change_interval: Duration::ZERO,
        softwire: SoftwireSettings { mtu: None, path_mtu: true },
        static_hosts: Vec::new(),
    };
    let mut settings = Settings {
        configured: true,
        nat64: Some(nat64),
        dslite: Some(dslite),
        ..Settings::default()
    };
    settings.inside.address = Some((address(OWN).into(), 64));
    settings
}

fn config() -> Config {
    let external = Ipv4Addr::from(EXTERNAL);
    let addresses = vec![AddressRange { first: external, last: external }];
    let pool = PoolConfig { addresses, ..PoolConfig::default() };
    let mut config = Config { pools: vec![pool], ..Config::default() };
    config.outside.address = Some(Ipv4Addr::new(203, 0, 113, 254));
    config
}

impl World {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        change(&mut config);
        Self::of(&settings(), config)
    }

    fn of(settings: &Settings, mut config: Config) -> Self {
        let translator = Translator::new(settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { engine, translator, now: START }
    }

    /// The fate of a packet: its side and its bytes, or the reason of its end.
    fn take(&mut self, from: Side, bytes: &[u8]) -> Result<(Side, Vec<u8>), R> {
        let mut buffer = [&[0; HEADROOM], bytes].concat();
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let before = self.drops();
        let Self { translator, engine, now } = self;
        match explained::take(translator, engine, (*now, from), &mut packet) {
            Fate::Send(departure) => Ok((departure.side, packet.bytes().to_vec())),
            Fate::HandOver(_) => unreachable!("the engine is alone"),
            Fate::Nothing | Fate::Local => {
                let after = self.drops();
                let counts = |reason: &R| after[*reason as usize] != before[*reason as usize];
                Err(R::ALL.iter().copied().find(counts).expect("a reason"))
            }
        }
    }

    fn drops(&self) -> Vec<u64> {
        let both = [self.engine.counters().drops, self.translator.counters().drops];
        both[0].iter().zip(&both[1]).map(|(one, other)| one + other).collect()
    }

    /// Takes a packet from inside that leaves outside.
    fn out(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.take(Side::Inside, bytes) {
            Ok((Side::Outside, bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Takes a packet that goes to a host inside.
    fn inward(&mut self, from: Side, bytes: &[u8]) -> Vec<u8> {
        match self.take(from, bytes) {
            Ok((Side::Inside, bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// A packet that the translator sends by its queue.
    fn queued(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 66_000];
        let (_, len) = self.translator.poll_transmit(&mut buffer)?;
        Some(buffer[..len].to_vec())
    }

    /// A packet of the engine's own to a host inside, as it leaves.
    fn made(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; HEADROOM + 1500];
        let (_, _, len) = self.engine.poll_transmit(&mut buffer[HEADROOM..])?;
        let realm = self.engine.transmit_realm();
        let mut packet = Packet::new(&mut buffer[..HEADROOM + len], HEADROOM);
        self.translator.convert_own_to_host(realm, &mut packet).expect("a host");
        Some(packet.bytes().to_vec())
    }

    /// Hosts and subscribers of NAT64, and of DS-Lite.
    fn counts(&self) -> [(usize, usize); 2] {
        HostKind::ALL.map(|kind| self.translator.hosts(kind).expect("a table").counts())
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.0 += SECOND;
            self.engine.advance(self.now);
            while self.engine.poll_event().is_some() {}
            self.translator.sweep(&self.engine, self.now);
        }
    }
}

fn with_ports((source, destination): (u16, u16)) -> Vec<u8> {
    let mut payload = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    payload.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    payload
}

fn four(ends: Ends, protocol: u8, mut payload: Vec<u8>) -> Vec<u8> {
    let [source, destination] = [ends.0, ends.1].map(u32::from_be_bytes);
    let (at, total) = match protocol {
        UDP => (6, !fold(sum(&payload, pseudo_header(source, destination, UDP, 12)))),
        _ => (2, checksum(&payload)),
    };
    payload[at..at + 2].copy_from_slice(&total.to_be_bytes());
    common::four(0, ends, protocol, &payload)
}

fn udp4(ends: Ends, ports: (u16, u16)) -> Vec<u8> {
    four(ends, UDP, with_ports(ports))
}

fn six(ends: (u128, u128), protocol: u8, mut payload: Vec<u8>) -> Vec<u8> {
    let at = match protocol {
        UDP => Some(6),
        ICMPV6 => Some(2),
        _ => None,
    };
    if let Some(at) = at {
        let start = pseudo_header_v6(ends.0, ends.1, protocol, payload.len() as u32);
        let total = !fold(sum(&payload, start));
        payload[at..at + 2].copy_from_slice(&total.to_be_bytes());
    }
    with_header6(ends, protocol, &payload)
}

fn remote6(remote: [u8; 4]) -> u128 {
    pref64("64:ff9b::", 96).embed(remote.into()).to_bits()
}

/// A packet of a host of NAT64.
fn of_nat64(host: &str, remote: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    six((address(host), remote6(remote)), UDP, with_ports(ports))
}

/// A packet of a host behind a tunnel.
fn of_dslite(b4: &str, remote: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    tunneled(b4, udp4((INNER, remote), ports))
}

fn tunneled(b4: &str, inner: Vec<u8>) -> Vec<u8> {
    six((address(b4), address(AFTR)), IPV4, inner)
}

/// The inner packet of one that enters a tunnel.
fn entered(b4: &str, bytes: &[u8]) -> Vec<u8> {
    let outer = Ipv6::new_checked(bytes).expect("a packet of IPv6");
    assert_eq!((outer.source(), outer.destination()), (address(AFTR), address(b4)));
    assert_eq!(outer.next_header(), IPV4);
    outer.payload().to_vec()
}

/// The source port of a packet of IPv4.
fn port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[20], bytes[21]])
}

fn ends4(bytes: &[u8]) -> (u32, u32, u16, u16) {
    let header = Ipv4::new_checked(bytes).expect("a packet of IPv4");
    let payload = header.payload();
    let at = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    (header.source(), header.destination(), at(0), at(2))
}

fn ends6(bytes: &[u8]) -> (u128, u128, u16, u16) {
    let header = Ipv6::new_checked(bytes).expect("a packet of IPv6");
    let payload = header.payload();
    let at = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    (header.source(), header.destination(), at(0), at(2))
}

#[test]
fn hosts_of_both_kinds_have_one_number_and_do_not_meet() {
    let mut world = World::new(|_| ());
    let of_six = port(&world.out(&of_nat64(HOST, REMOTE, (5000, 53))));
    let of_four = port(&world.out(&of_dslite(B4, REMOTE, (5000, 53))));
    let realms = world.translator.realms();
    let both = [
        Requester::Ipv6(address(HOST).into()),
        Requester::Tunneled { b4: address(B4).into(), inner: INNER.into() },
    ];
    let [six, behind] = both.map(|host| world.translator.number_of(host).expect("a number"));
    assert_eq!(six.1, behind.1, "the first number of each realm");
    assert_eq!((realms.kind(six.0), realms.kind(behind.0)), {
        (Some(HostKind::Nat64), Some(HostKind::Dslite))
    });
    let name = |(realm, number)| world.translator.host(realm, number).expect("a name");
    assert_eq!(name(six).address, Some(address(HOST).into()));
    assert_eq!(name(behind).inner(), Some(INNER.into()));
    assert_ne!(of_six, of_four);
    let answer = world.inward(Side::Outside, &udp4((REMOTE, EXTERNAL), (53, of_six)));
    assert_eq!(ends6(&answer), (remote6(REMOTE), address(HOST), 53, 5000));
    let answer = world.inward(Side::Outside, &udp4((REMOTE, EXTERNAL), (53, of_four)));
    let inner = [REMOTE, INNER].map(u32::from_be_bytes);
    assert_eq!(ends4(&entered(B4, &answer)), (inner[0], inner[1], 53, 5000));
}

#[test]
fn hosts_of_both_kinds_reach_each_other_and_get_each_others_errors() {
    let mut world = World::new(|_| ());
    let of_six = port(&world.out(&of_nat64(HOST, REMOTE, (5000, 53))));
    let of_four = port(&world.out(&of_dslite(B4, REMOTE, (6000, 53))));
    let external = u32::from_be_bytes(EXTERNAL);
    let inner = u32::from_be_bytes(INNER);
    // From a host of NAT64 into a tunnel, and an error back.
    let sent = of_nat64(HOST, EXTERNAL, (5000, of_four));
    let came = entered(B4, &world.inward(Side::Inside, &sent));
    assert_eq!(ends4(&came), (external, inner, of_six, 6000));
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&came);
    let error = tunneled(B4, four((INNER, EXTERNAL), ICMP, message));
    let error = world.inward(Side::Inside, &error);
    let header = Ipv6::new_checked(&error[..]).expect("an error");
    assert_eq!((header.source(), header.destination()), (remote6(EXTERNAL), address(HOST)));
    assert_eq!(error[40..42], [1, 4]);
    let quoted = Ipv6::new_header_checked(&error[48..]).expect("a quotation");
    assert_eq!((quoted.source(), quoted.destination()), (address(HOST), remote6(EXTERNAL)));
    // From a tunnel to a host of NAT64, and an error back.
    let sent = of_dslite(B4, EXTERNAL, (6000, of_six));
    let came = world.inward(Side::Inside, &sent);
    assert_eq!(ends6(&came), (remote6(EXTERNAL), address(HOST), of_four, 5000));
    let mut message = vec![1, 4, 0, 0, 0, 0, 0, 0];
    message.extend(&came);
    let error = six((address(HOST), remote6(EXTERNAL)), ICMPV6, message);
    let error = entered(B4, &world.inward(Side::Inside, &error));
    let header = Ipv4::new_checked(&error[..]).expect("an error");
    assert_eq!((header.source(), header.destination()), (external, inner));
    assert_eq!(error[20..22], [3, 3]);
    assert_eq!(ends4(&error[28..]), (inner, external, 6000, of_six));
}

impl World {
    /// Takes a batch from inside in runs. Returns their number; all packets leave.
    fn runs(&mut self, batch: &[&[u8]]) -> usize {
        let mut buffers: Vec<Vec<u8>> =
            batch.iter().map(|bytes| [&[0; HEADROOM], *bytes].concat()).collect();
        let mut packets: Vec<Packet<'_>> =
            buffers.iter_mut().map(|buffer| Packet::new(buffer, HEADROOM)).collect();
        let mut fates = vec![Fate::Nothing; batch.len()];
        let Self { translator, engine, now } = self;
        let (mut taken, mut runs) = (0, 0);
        while taken < packets.len() {
            let rest = &mut packets[taken..];
            let count = translator.take_some(engine, *now, Side::Inside, rest, &mut fates);
            assert!(fates[..count].iter().all(|fate| matches!(fate, Fate::Send(_))));
            (taken, runs) = (taken + count, runs + 1);
        }
        runs
    }
}

/// A batch of both kinds of hosts, packet by packet, is divided before the translator takes it.
#[test]
fn each_kind_of_a_batch_goes_to_the_engine_together() {
    let mut world = World::new(|_| ());
    let hosts = |number: u16| {
        let (six, behind) = ((5000 + number, 53), (6000 + number, 53));
        [of_nat64(HOST, REMOTE, six), of_dslite(B4, REMOTE, behind)]
    };
    let batch: Vec<Vec<u8>> = (0..32).flat_map(hosts).collect();
    let all: Vec<&[u8]> = batch.iter().map(|bytes| &bytes[..]).collect();
    assert_eq!(world.runs(&all), 64, "kinds alternate");
    assert!(world.translator.has_two_kinds());
    let (behind, others): (Vec<&[u8]>, Vec<&[u8]>) =
        all.into_iter().partition(|bytes| world.translator.is_tunneled(bytes));
    assert_eq!((behind.len(), others.len()), (32, 32));
    assert_eq!((world.runs(&others), world.runs(&behind)), (1, 1));
}

#[test]
fn own_errors_have_the_form_of_the_realm() {
    let mut world = World::new(|_| ());
    let mut expiring = of_nat64(HOST, EXTERNAL, (5000, 9));
    expiring[7] = 1;
    assert_eq!(world.take(Side::Inside, &expiring), Err(R::TtlExceeded));
    let error = world.queued().or_else(|| world.made()).expect("an error");
    assert_eq!((error[0] >> 4, &error[40..42], &error[48..]), (6, &[3, 0][..], &expiring[..]));
    let mut inner = udp4((INNER, REMOTE), (5000, 9));
    inner[8] = 1;
    Ipv4::new_header_checked(&mut inner[..]).expect("a header").fill_checksum();
    assert_eq!(world.take(Side::Inside, &tunneled(B4, inner)), Err(R::TtlExceeded));
    let error = entered(B4, &world.made().expect("an error"));
    assert_eq!((&error[12..16], &error[20..22]), (&[192, 0, 0, 1][..], &[11, 0][..]));
}

#[test]
fn hosts_of_each_kind_age_by_their_own_mappings() {
    let mut world = World::new(|_| ());
    world.out(&of_nat64(HOST, REMOTE, (5000, 53)));
    world.out(&of_dslite(B4, REMOTE, (5000, 53)));
    for _ in 0..10 {
        world.wait(120);
        world.out(&of_dslite(B4, REMOTE, (5000, 53)));
    }
    assert_eq!(world.counts(), [(0, 0), (1, 1)]);
    world.wait(1200);
    assert_eq!(world.counts(), [(0, 0), (0, 0)]);
}

#[test]
fn each_table_of_hosts_has_its_limit_and_its_answer() {
    let mut world = World::new(|config| config.limits.subscribers = Some(2));
    let host = |number: u8| format!("2001:db8:f:{number}::5");
    let b4 = |number: u8| format!("2001:db8:b4::{number}");
    world.out(&of_nat64(&host(1), REMOTE, (5000, 53)));
    world.out(&of_dslite(&b4(1), REMOTE, (5000, 53)));
    // The engine's records are common. A host that it refuses keeps no number.
    let refused = [of_nat64(&host(2), REMOTE, (5000, 53)), of_dslite(&b4(2), REMOTE, (5000, 53))];
    for packet in &refused {
        let full = world.take(Side::Inside, packet);
        assert_eq!(full, Err(R::MappingTableFull));
    }
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.counts(), [(1, 1), (1, 1)]);
    // A full table of one kind leaves the other its room.
    let mut world = World::new(|config| config.limits.subscribers = Some(2));
    world.out(&of_nat64(&host(1), REMOTE, (5000, 53)));
    world.out(&of_nat64(&host(2), REMOTE, (5000, 53)));
    let full = of_nat64(&host(3), REMOTE, (5000, 53));
    assert_eq!(world.take(Side::Inside, &full), Err(R::MappingTableFull));
    let error = world.queued().expect("an answer");
    assert_eq!((&error[40..42], &error[48..]), (&[1, 3][..], &full[..]));
    let behind = Requester::Tunneled { b4: address(&b4(1)).into(), inner: INNER.into() };
    assert!(world.translator.number_requester(behind, world.now).is_ok());
}

#[test]
fn a_b4_fills_its_own_subscriber_alone() {
    let mut world = World::new(|_| ());
    let from = |inner: u32| {
        let inner = (0x0a00_0100 + inner).to_be_bytes();
        tunneled(B4, udp4((inner, REMOTE), (5000, 53)))
    };
    (0..256).for_each(|inner| _ = world.out(&from(inner)));
    assert_eq!(world.take(Side::Inside, &from(256)), Err(R::PortQuota));
    let error = entered(B4, &world.queued().expect("an answer"));
    assert_eq!((error[9], &error[20..22]), (ICMP, &[3, 1][..]));
    world.out(&of_nat64(HOST, REMOTE, (5000, 53)));
    assert_eq!(world.counts(), [(1, 1), (256, 1)]);
}

#[test]
fn quotas_count_in_each_realm() {
    let mut world = World::new(|config| config.limits.udp_ports = 1);
    world.out(&of_nat64(HOST, REMOTE, (5000, 53)));
    world.out(&of_dslite(B4, REMOTE, (5000, 53)));
    for packet in [of_nat64(HOST, REMOTE, (5001, 53)), of_dslite(B4, REMOTE, (5001, 53))] {
        assert_eq!(world.take(Side::Inside, &packet), Err(R::PortQuota));
    }
}

#[test]
fn a_tunnel_does_not_begin_in_a_prefix_of_nat64() {
    let mut settings = settings();
    if let Some(dslite) = &mut settings.dslite {
        dslite.b4.push(prefix("64:ff9b::", 96));
    }
    let mut world = World::of(&settings, config());
    let packet = of_dslite("64:ff9b::808:808", REMOTE, (5000, 53));
    assert_eq!(world.take(Side::Inside, &packet), Err(R::SpoofedSource));
    // In a run of packets, too.
    let mut buffers = [of_dslite(B4, REMOTE, (5000, 53)), packet].map(|bytes| {
        let buffer: Vec<u8> = [&[0; HEADROOM], &bytes[..]].concat();
        buffer
    });
    let mut packets: Vec<Packet<'_>> =
        buffers.iter_mut().map(|buffer| Packet::new(buffer, HEADROOM)).collect();
    let mut fates = [Fate::Local; 2];
    let World { engine, translator, now } = &mut world;
    let mut taken = 0;
    while taken < packets.len() {
        let rest = (&mut packets[taken..], &mut fates[taken..]);
        taken += translator.take_some(engine, *now, Side::Inside, rest.0, rest.1);
    }
    assert!(matches!(fates, [Fate::Send(_), Fate::Nothing]), "{fates:?}");
}

#[test]
fn another_process_takes_over_hosts_of_both_kinds() {
    let mut world = World::new(|_| ());
    for number in 1..4 {
        world.out(&of_nat64(&format!("2001:db8:f:{number}::5"), REMOTE, (5000, 53)));
        world.out(&of_dslite(&format!("2001:db8:b4::{number}"), REMOTE, (5000, 53)));
    }
    let carried: Vec<_> = world.translator.carried_hosts().collect();
    let mut heir = World::new(|_| ());
    heir.translator.adopt_hosts(carried.iter().copied(), heir.now).expect("they fit");
    assert_eq!(heir.counts(), world.counts());
    let mut again: Vec<_> = heir.translator.carried_hosts().collect();
    let mut first = carried;
    for hosts in [&mut first, &mut again] {
        hosts.sort_unstable_by_key(|host| (host.inner, host.address));
    }
    assert_eq!(first, again);
    // A process without DS-Lite has no place for its hosts.
    let alone = Settings { dslite: None, ..settings() };
    let mut heir = World::of(&alone, config());
    heir.translator.adopt_hosts(first, heir.now).expect("they fit");
    assert_eq!(heir.translator.hosts(HostKind::Nat64).expect("hosts").counts(), (3, 3));
}

/// Settings with a static mapping of one host of each kind.
fn with_servers() -> (Settings, Config) {
    let (mut settings, mut config) = (settings(), config());
    let host: Ipv6Addr = address(HOST).into();
    let behind = (Ipv6Addr::from_bits(address(B4)), Ipv4Addr::from(INNER));
    let hosts = [StaticHost::first(&[host], 64, 1), StaticHost::first_behind(&[behind], 128, 1)];
    assert_eq!(hosts[0][0].number, hosts[1][0].number);
    let mapping = |(realm, hosts): (u16, &Vec<StaticHost>)| StaticMapping {
        realm,
        protocol: Some(UDP),
        internal: (hosts[0].number, Some(80)),
        external: (EXTERNAL.into(), Some(79 + realm)),
        ..StaticMapping::default()
    };
    config.statics = (1..).zip(&hosts).map(mapping).collect();
    let [of_nat64, of_dslite] = hosts;
    if let (Some(nat64), Some(dslite)) = (&mut settings.nat64, &mut settings.dslite) {
        (nat64.static_hosts, dslite.static_hosts) = (of_nat64, of_dslite);
    }
    (settings, config)
}

#[test]
fn static_mappings_lead_to_the_host_of_their_realm() {
    let (settings, config) = with_servers();
    let mut world = World::of(&settings, config);
    world.wait(300);
    let came = world.inward(Side::Outside, &udp4((REMOTE, EXTERNAL), (53, 80)));
    assert_eq!(ends6(&came), (remote6(REMOTE), address(HOST), 53, 80));
    let came = world.inward(Side::Outside, &udp4((REMOTE, EXTERNAL), (53, 81)));
    assert_eq!(ends4(&entered(B4, &came)).1, u32::from_be_bytes(INNER));
    assert_eq!(world.counts(), [(1, 1), (1, 1)]);
    // A new configuration has the numbers that the hosts have at work.
    let hosts: Vec<StaticHost> = settings.static_hosts().copied().collect();
    let numbers = world.translator.reserve(&hosts, world.now, world.now).expect("there is room");
    assert_eq!(numbers, hosts.iter().map(|host| Some(host.number)).collect::<Vec<_>>());
    let (mut settings, mut config) = with_servers();
    let others = [[1, 9, 0, 0], [1, 9, 0, 0]].map(Ipv4Addr::from);
    settings.add_realms(&mut config, &others).expect("as many numbers as hosts");
    let internals = config.statics.iter().map(|one| (one.realm, one.internal.0));
    assert_eq!(internals.collect::<Vec<_>>(), [(1, others[0]), (2, others[1])]);
    assert_eq!(config.realms.iter().map(|realm| &realm.name[..]).collect::<Vec<_>>(), {
        ["nat64", "dslite"]
    });
    assert!(with_servers().0.add_realms(&mut with_servers().1, &others[..1]).is_err());
}
