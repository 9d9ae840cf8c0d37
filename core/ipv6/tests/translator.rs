//! The translator packet by packet: regression tests.

mod common;
#[path = "common/explained.rs"]
mod explained;
#[path = "common/header6.rs"]
mod header6;
#[path = "translator/insiders.rs"]
mod insiders;
#[path = "common/prefixes.rs"]
mod prefixes;
#[path = "translator/security.rs"]
mod security;

use common::Ends;
use header6::with_header6 as six;
use natgate_engine::{
    AddressRange, Config, DropReason, Engine, Packet, PoolConfig, Prefix, RealmConfig, Side,
    StaticMapping, Timestamp,
};
use natgate_ipv6::convert::{HEADROOM, UdpChecksumZero};
use natgate_ipv6::{
    ClatSettings, EamEntry, Fate, Filter, Hairpin, HostKind, Nat64Settings, NonGlobal, Nptv6,
    Nptv6Settings, Pairs, Pref64, Settings, SiitSettings, StaticHost, Translator,
};
use natgate_wire::checksum::{fold, pseudo_header_v6, sum};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};
use prefixes::{address as ipv6, pref64, prefix};
use std::net::{Ipv4Addr, Ipv6Addr};

const START: Timestamp = Timestamp(1_000_000_000_000);
const SECOND: u64 = 1_000_000_000;
const ACK: u8 = 16;

fn embed(prefix: Pref64, ipv4: [u8; 4]) -> u128 {
    prefix.embed(ipv4.into()).to_bits()
}

/// Fate of a packet: it left, or it was dropped; and the errors about it.
type Result = (std::result::Result<Vec<u8>, DropReason>, Vec<Vec<u8>>);

struct World {
    settings: Settings,
    engine: Engine,
    translator: Translator,
    now: Timestamp,
}

impl World {
    fn new(settings: Settings) -> Self {
        Self::with_statics(settings, &[])
    }

    /// A world with static mappings of hosts of NAT64.
    fn with_statics(settings: Settings, statics: &[StaticMapping]) -> Self {
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config =
            Config { pools: vec![pool], statics: statics.to_vec(), ..Config::default() };
        config.outside.address = Some(Ipv4Addr::new(203, 0, 113, 254));
        let settings = Settings { configured: true, ..settings };
        let translator = Translator::new(&settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { settings, engine, translator, now: START }
    }

    fn take(&mut self, from: Side, bytes: &[u8]) -> Result {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let before = self.translator.counters();
        let Self { translator, engine, now, .. } = self;
        let fate = explained::take(translator, engine, (*now, from), &mut packet);
        let after = self.translator.counters();
        let counts =
            |reason: &DropReason| after.drops[*reason as usize] != before.drops[*reason as usize];
        let result = match fate {
            Fate::Send(_) => Ok(packet.bytes().to_vec()),
            Fate::HandOver(_) => unreachable!("the engine is alone"),
            Fate::Nothing | Fate::Local => {
                Err(DropReason::ALL.iter().copied().find(counts).expect("a reason"))
            }
        };
        let mut errors = Vec::new();
        let mut buffer = [0; 1500];
        while let Some((_, len)) = self.translator.poll_transmit(&mut buffer) {
            errors.push(buffer[..len].to_vec());
        }
        (result, errors)
    }

    /// True if the engine drops a packet from inside.
    fn engine_refuses(&mut self, bytes: &[u8]) -> bool {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM);
        let before = self.engine.counters().drops;
        let (engine, now) = (&mut self.engine, self.now);
        let fate = self.translator.take(engine, now, Side::Inside, &mut packet);
        !matches!(fate, Fate::Send(_)) && self.engine.counters().drops != before
    }

    fn later(&mut self, seconds: u64) {
        self.now.0 += seconds * SECOND;
    }
}

fn four(ends: Ends, protocol: u8, payload: &[u8]) -> Vec<u8> {
    common::four(0, ends, protocol, payload)
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    let [a, b] = source.to_be_bytes();
    let [c, d] = destination.to_be_bytes();
    vec![a, b, c, d, 0, 8, 0x12, 0x34]
}

fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..2].copy_from_slice(&source.to_be_bytes());
    bytes[2..4].copy_from_slice(&destination.to_be_bytes());
    (bytes[12], bytes[13]) = (0x50, flags);
    bytes
}

/// An ICMPv6 error about a packet, with more bytes behind it.
fn error6(ends: (u128, u128), head: [u8; 8], about: &[u8], behind: &[u8]) -> Vec<u8> {
    let mut message = [&head[..], about, behind].concat();
    let checksum = !fold(sum(&message, pseudo_header_v6(ends.0, ends.1, 58, message.len() as u32)));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    six(ends, 58, &message)
}

fn siit(prefixes: Vec<Pref64>, hairpin: Hairpin) -> SiitSettings {
    let map = |last: u8| EamEntry {
        ipv6: prefix(&format!("2001:db8:e::{last:x}"), 128),
        ipv4: Prefix::new([192, 0, 2, last].into(), 32),
    };
    SiitSettings {
        prefixes,
        maps: vec![map(1), map(2)],
        icmp_source_ipv4: vec![Ipv4Addr::new(192, 0, 2, 200)],
        icmp_source_ipv6: vec![],
        hairpin,
        non_global: NonGlobal::Translate,
    }
}

#[test]
fn an_error_with_a_short_extension_turns_round_inside() {
    let net = pref64("2001:db8:64::", 96);
    let settings = siit(vec![net], Hairpin::Intrinsic);
    let mut world = World::new(Settings { siit: Some(settings), ..Settings::default() });
    // The second host answers a packet of the first one, whose quotation of 48 bytes is shorter
    // than RFC 4884 permits.
    let (first, second) = (ipv6("2001:db8:e::1"), ipv6("2001:db8:e::2"));
    let seen = embed(net, [192, 0, 2, 1]);
    let about = six((seen, second), 17, &udp(5000, 80));
    let extension = [&[0x20, 0, 0, 0][..], &[9; 20]].concat();
    let error = error6((second, seen), [1, 4, 0, 0, 6, 0, 0, 0], &about, &extension);
    let (left, _) = world.take(Side::Inside, &error);
    let left = left.expect("a packet that turns round");
    let header = Ipv6::new_checked(&left[..]).expect("an IPv6 packet");
    assert_eq!((header.source(), header.destination()), (embed(net, [192, 0, 2, 2]), first));
    assert_eq!(left.len(), 40 + 8 + 40 + 8, "the extension is gone");
}

#[test]
fn the_clat_takes_in_no_address_that_no_packet_may_have() {
    let clat = clat();
    let (outer, inner) = (clat.prefix, clat.source);
    let mut world = World::new(Settings { clat: Some(clat), ..Settings::default() });
    let mut take = |source, destination| {
        let ends = (embed(outer, source), embed(inner, destination));
        world.take(Side::Outside, &six(ends, 17, &udp(53, 5000))).0
    };
    let (host, remote) = ([192, 168, 0, 5], [8, 8, 8, 8]);
    // The well-known prefix stands for no private addresses.
    assert_eq!(take([10, 0, 0, 1], host), Err(DropReason::NotGlobal));
    for martian in [[127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255], [0, 0, 0, 0]] {
        assert_eq!(take(remote, martian), Err(DropReason::MartianDestination), "{martian:?}");
        assert_eq!(take(martian, host), Err(DropReason::MartianSource), "{martian:?}");
    }
    assert!(take(remote, host).is_ok());
    // An error from such a source comes from the gateway.
    let quoted = six((embed(inner, host), embed(outer, remote)), 17, &udp(5000, 53));
    let ends = (embed(outer, [127, 0, 0, 1]), embed(inner, host));
    let (left, _) =
        world.take(Side::Outside, &error6(ends, [3, 0, 0, 0, 0, 0, 0, 0], &quoted, &[]));
    let left = left.expect("an error that passes");
    assert_eq!(left[12..16], [192, 0, 0, 8]);
}

/// A CLAT for hosts of 192.168.0.0/16.
fn clat() -> ClatSettings {
    let (outer, inner) = (pref64("64:ff9b::", 96), pref64("2001:db8:c::", 96));
    let subscribers = vec![Prefix::new([192, 168, 0, 0].into(), 16)];
    ClatSettings { prefix: outer, source: inner, subscribers }
}

#[test]
fn hosts_of_other_realms_do_not_use_the_clat() {
    let world = World::new(Settings { clat: Some(clat()), ..Settings::default() });
    let packet = four(([192, 168, 0, 5], [198, 51, 100, 7]), 17, &udp(5000, 53));
    assert!(world.translator.claims(Side::Inside, 0, &packet));
    assert!(!world.translator.claims(Side::Inside, 1, &packet));
}

#[test]
fn addresses_of_a_new_configuration_are_the_engines() {
    let settings = siit(vec![pref64("2001:db8:64::", 96)], Hairpin::Off);
    let mut world = World::new(Settings { siit: Some(settings), ..Settings::default() });
    let added = Ipv4Addr::new(203, 0, 113, 77);
    let packet = four(([198, 51, 100, 7], added.octets()), 17, &udp(53, 5000));
    assert!(world.translator.claims(Side::Outside, 0, &packet));
    let mut config = world.engine.config().clone();
    config.pools[0].addresses.push(AddressRange { first: added, last: added });
    world.translator.renew(&config);
    assert!(!world.translator.claims(Side::Outside, 0, &packet));
}

#[test]
fn errors_of_routers_without_a_possible_address_come_from_icmp_source() {
    let net = pref64("2001:db8:64::", 96);
    let settings = siit(vec![net], Hairpin::Off);
    let mut world = World::new(Settings { siit: Some(settings), ..Settings::default() });
    let (host, remote) = (ipv6("2001:db8:e::1"), embed(net, [198, 51, 100, 7]));
    let quoted = six((remote, host), 17, &udp(5000, 53));
    for router in [[127, 0, 0, 1], [224, 0, 0, 1], [169, 254, 7, 7]] {
        let ends = (embed(net, router), remote);
        let error = error6(ends, [3, 0, 0, 0, 0, 0, 0, 0], &quoted, &[]);
        let left = world.take(Side::Inside, &error).0.expect("an error that passes");
        assert_eq!(left[12..16], [192, 0, 2, 200], "{router:?}");
    }
}

#[test]
fn checks_of_ipv6_have_an_order() {
    let mut settings = Settings::default();
    let own = ipv6("2001:db8:a::1");
    settings.inside.address = Some((own.into(), 64));
    let mut world = World::new(settings);
    let host = ipv6("2001:db8:f::1");
    let (link_local, multicast) = (ipv6("fe80::1"), ipv6("ff02::1"));
    let cases = [
        ((link_local, multicast), DropReason::MartianSource),
        ((multicast, multicast), DropReason::MartianSource),
        ((own, multicast), DropReason::MartianDestination),
        ((own, link_local), DropReason::MartianDestination),
        ((own, own), DropReason::SpoofedSource),
        ((host, host), DropReason::Land),
        ((link_local, own), DropReason::LocalUnsupported),
    ];
    for (ends, reason) in cases {
        let (result, _) = world.take(Side::Inside, &six(ends, 17, &udp(5000, 53)));
        assert_eq!(result, Err(reason), "{:?}", Ipv6Addr::from(ends.0));
    }
}

#[test]
fn own_errors_cannot_be_fragmented_and_keep_the_service() {
    let net = pref64("2001:db8:64::", 96);
    let mut settings =
        Settings { siit: Some(siit(vec![net], Hairpin::Off)), ..Settings::default() };
    settings.inside.address = Some((ipv6("2001:db8:a::1").into(), 64));
    settings.outside.mtu = 300;
    let mut world = World::new(settings);
    let mut bytes = vec![0; 20];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(280);
    header.set_service(0x2f);
    header.set_ttl(1);
    header.set_protocol(47);
    header.set_source(u32::from_be_bytes([198, 51, 100, 7]));
    header.set_destination(u32::from_be_bytes([192, 0, 2, 1]));
    header.fill_checksum();
    bytes.resize(280, 7);
    let (result, errors) = world.take(Side::Outside, &bytes);
    assert_eq!(result, Err(DropReason::TtlExceeded));
    let error = Ipv4::new_checked(&errors[0][..]).expect("an IPv4 packet");
    assert!(error.dont_fragment() && error.checksum_valid());
    // The MTU of the side limits the quotation.
    assert_eq!((error.service(), error.total_len()), (0x2c, 300));
    let mut bytes = six((ipv6("2001:db8:e::1"), embed(net, [8, 8, 8, 8])), 47, &[1; 9]);
    (bytes[0], bytes[1], bytes[7]) = (0x62, 0xf0, 1);
    let (result, errors) = world.take(Side::Inside, &bytes);
    assert_eq!(result, Err(DropReason::TtlExceeded));
    let error = Ipv6::new_checked(&errors[0][..]).expect("an IPv6 packet");
    assert_eq!(error.traffic_class(), 0x2c);
}

//= test rfc4443#section-2.2-a
#[test]
fn an_own_address_tells_what_it_does_not_understand() {
    let mut settings = Settings::default();
    settings.inside.address = Some((Ipv6Addr::from(ipv6("2001:db8:f::ff")), 64));
    settings.outside.address = Some((Ipv6Addr::from(ipv6("2001:db8:e::ff")), 64));
    let mut world = World::new(settings);
    // An echo request with a right checksum behind destination options.
    let ends = (ipv6(HOST), ipv6("2001:db8:e::ff"));
    let mut echo = [128, 0, 0, 0, 0, 5, 0, 1];
    let total = !fold(sum(&echo, pseudo_header_v6(ends.0, ends.1, 58, 8)));
    echo[2..4].copy_from_slice(&total.to_be_bytes());
    let mut take = |option: u8| {
        let options = [58, 0, option, 4, 0, 0, 0, 0];
        let packet = six(ends, 60, &[&options[..], &echo].concat());
        let (result, errors) = world.take(Side::Inside, &packet);
        (result.map(|reply| reply[48]), errors)
    };
    assert_eq!(take(1), (Ok(129), vec![]));
    assert_eq!(take(0x5e), (Err(DropReason::LocalUnsupported), vec![]));
    let (result, errors) = take(0x9e);
    assert_eq!((result, errors.len()), (Err(DropReason::LocalUnsupported), 1));
    let error = Ipv6::new_checked(&errors[0][..]).expect("an IPv6 packet");
    assert_eq!((error.source(), error.destination()), (ends.1, ends.0));
    assert_eq!(errors[0][40..42], [4, 2]);
    assert_eq!(errors[0][44..48], [0, 0, 0, 42]);
    let (result, errors) = world.take(Side::Inside, &six(ends, 47, &[0; 8]));
    assert_eq!(result, Err(DropReason::LocalUnsupported));
    assert_eq!((&errors[0][40..42], &errors[0][44..48]), (&[4, 1][..], &[0, 0, 0, 6][..]));
}

fn filtered() -> World {
    let mut settings = Settings { filter: Filter::OutboundOnly, ..Settings::default() };
    settings.outside.address = Some((Ipv6Addr::from(ipv6("2001:db8:e::ff")), 64));
    World::new(settings)
}

const HOST: &str = "2001:db8:f::1";
const REMOTE: &str = "2001:db8:9::1";

#[test]
fn later_fragments_pass_the_filter_to_hosts_that_have_sent_something() {
    let mut world = filtered();
    let later = |world: &mut World, host: &str| {
        let mut header = [0; 8];
        let fragment = Fragment { next_header: 17, offset: 8, more: false, identification: 7 };
        fragment.write(&mut header);
        let packet = six((ipv6(REMOTE), ipv6(host)), 44, &[&header[..], &[9; 16]].concat());
        world.take(Side::Outside, &packet).0
    };
    assert_eq!(later(&mut world, HOST), Err(DropReason::Filtered));
    let ends = (ipv6(HOST), ipv6(REMOTE));
    assert!(world.take(Side::Inside, &six(ends, 17, &udp(5000, 53))).0.is_ok());
    assert!(later(&mut world, HOST).is_ok());
    assert_eq!(later(&mut world, "2001:db8:f::2"), Err(DropReason::Filtered));
    world.later(299);
    assert!(later(&mut world, HOST).is_ok());
    world.later(301);
    assert_eq!(later(&mut world, HOST), Err(DropReason::Filtered));
}

#[test]
fn later_fragments_of_icmpv6_pass_the_filter_whatever_they_carry() {
    let mut world = filtered();
    let ends = (ipv6(HOST), ipv6(REMOTE));
    assert!(world.take(Side::Inside, &six(ends, 17, &udp(5000, 53))).0.is_ok());
    for first in [0, 1, 128, 129, 255] {
        let mut header = [0; 8];
        let fragment = Fragment { next_header: 58, offset: 8, more: false, identification: 7 };
        fragment.write(&mut header);
        let payload = [&header[..], &[first; 16]].concat();
        let packet = six((ipv6(REMOTE), ipv6(HOST)), 44, &payload);
        assert!(world.take(Side::Outside, &packet).0.is_ok(), "type {first}");
    }
}

#[test]
fn a_connection_whose_time_is_over_begins_again() {
    let mut world = filtered();
    let out = |flags| six((ipv6(HOST), ipv6(REMOTE)), 6, &tcp(5000, 80, flags));
    let back = six((ipv6(REMOTE), ipv6(HOST)), 6, &tcp(80, 5000, ACK));
    assert!(world.take(Side::Inside, &out(2)).0.is_ok());
    assert!(world.take(Side::Outside, &back).0.is_ok());
    world.later(7441);
    assert_eq!(world.take(Side::Outside, &back).0, Err(DropReason::Filtered));
    assert!(world.take(Side::Inside, &out(ACK)).0.is_ok());
    world.later(239);
    // The packet from outside is not sent: it would show that the connection is established.
    world.later(2);
    assert_eq!(world.take(Side::Outside, &back).0, Err(DropReason::Filtered));
}

#[test]
fn an_error_about_a_later_fragment_tells_no_port() {
    let mut world = filtered();
    let ends = (ipv6(HOST), ipv6(REMOTE));
    assert!(world.take(Side::Inside, &six(ends, 17, &udp(5000, 53))).0.is_ok());
    let quote = |offset| {
        let mut header = [0; 8];
        Fragment { next_header: 17, offset, more: true, identification: 7 }.write(&mut header);
        six(ends, 44, &[&header[..], &udp(5000, 53)].concat())
    };
    let back = (ends.1, ends.0);
    let mut take = |offset| {
        let error = error6(back, [2, 0, 0, 0, 0, 0, 5, 0], &quote(offset), &[]);
        world.take(Side::Outside, &error).0
    };
    assert!(take(0).is_ok());
    assert_eq!(take(8), Err(DropReason::Filtered));
}

#[test]
fn an_error_that_leaves_shows_no_internal_address_of_another_host() {
    let pair = Nptv6::new(prefix("fd01:203:405::", 48), prefix("2001:db8:1::", 48));
    let pair = Nptv6Settings { pair: pair.expect("a pair"), icmp_errors: true };
    let mut world = World::new(Settings { nptv6: vec![pair], ..Settings::default() });
    let (host, external) = (ipv6("fd01:203:405:1::1234"), ipv6("2001:db8:1:d550::1234"));
    let receiver = ipv6("fd01:203:405:2::9");
    // A quotation with an external source, in an error to the outside and in one that turns round.
    let about = six((external, receiver), 17, &udp(5000, 53));
    for (to, source) in [(ipv6(REMOTE), external), (external, host)] {
        let error = error6((receiver, to), [1, 4, 0, 0, 0, 0, 0, 0], &about, &[]);
        let left = world.take(Side::Inside, &error).0.expect("an error that passes");
        let quoted = Ipv6::new_checked(&left[48..]).expect("a quotation");
        assert_eq!(quoted.source(), source);
        assert_eq!(quoted.destination() >> 80, ipv6("2001:db8:1::") >> 80);
    }
}

/// Pairs change between two packets: other pairs go on, and the filter still knows the hosts.
#[test]
fn pairs_are_exchanged_between_packets() {
    let pair = |internal: &str, external: &str| {
        let pair = Nptv6::new(prefix(internal, 48), prefix(external, 48)).expect("a pair");
        Nptv6Settings { pair, icmp_errors: true }
    };
    let stays = pair("fd00:1::", "2001:db8:1::");
    let (before, after) = (pair("fd00:2::", "2001:db8:2::"), pair("fd00:2::", "2001:db8:22::"));
    let (gone, new) = (pair("fd00:3::", "2001:db8:3::"), pair("fd00:4::", "2001:db8:4::"));
    let mut world = World::new(Settings {
        nptv6: vec![stays, before, gone],
        filter: Filter::OutboundOnly,
        ..Settings::default()
    });
    let host = |pair: &Nptv6Settings| pair.pair.internal().first().to_bits() | 1 << 64 | 5;
    let out = |world: &mut World, pair: &Nptv6Settings| -> u128 {
        let question = six((host(pair), ipv6(REMOTE)), 17, &udp(5000, 53));
        let (left, _) = world.take(Side::Inside, &question);
        let left = left.expect("the packet leaves");
        Ipv6::new_checked(&left[..]).expect("a packet").source()
    };
    let back = |world: &mut World, external: u128| {
        let answer = six((ipv6(REMOTE), external), 17, &udp(53, 5000));
        let (left, _) = world.take(Side::Outside, &answer);
        left.map(|left| Ipv6::new_checked(&left[..]).expect("a packet").destination())
    };
    let external = |pair: &Nptv6Settings| {
        pair.pair.outbound(host(pair).into()).expect("its prefix").expect("a host").to_bits()
    };
    for one in [&stays, &before, &gone] {
        assert_eq!(out(&mut world, one), external(one));
        assert_eq!(back(&mut world, external(one)), Ok(host(one)));
    }
    let table = Pairs::new(&[new, after, stays]).expect("no overlap");
    let former = world.translator.exchange_pairs(table);
    assert!(former.is_external(external(&gone).into()));
    // Answers come in before the hosts send again: the filter records internal addresses.
    assert_eq!(back(&mut world, external(&stays)), Ok(host(&stays)));
    assert_eq!(back(&mut world, external(&after)), Ok(host(&before)));
    for one in [&before, &gone] {
        assert_eq!(back(&mut world, external(one)), Err(DropReason::Filtered));
    }
    for one in [&stays, &after, &new] {
        assert_eq!(out(&mut world, one), external(one));
        assert_eq!(back(&mut world, external(one)), Ok(host(one)));
    }
    assert_eq!(out(&mut world, &gone), host(&gone), "a host without a pair is routed");
}

fn nat64(non_global: NonGlobal) -> Settings {
    let prefixes = vec![pref64("64:ff9b::", 96)];
    let (subscribers, static_hosts) = (vec![], vec![]);
    let nat64 =
        Nat64Settings { prefixes, subscribers, subscriber_length: 64, non_global, static_hosts };
    Settings { nat64: Some(nat64), ..Settings::default() }
}

//= test rfc6146#section-3.5.1.1-refused
#[test]
fn a_host_that_gets_no_number_is_told() {
    let mut settings = nat64(NonGlobal::Refuse);
    settings.inside.address = Some((Ipv6Addr::from(ipv6("2001:db8:f::ff")), 64));
    let mut world = World::new(settings);
    let packet = |host: u128| {
        let ends = (ipv6(HOST) + host, embed(pref64("64:ff9b::", 96), [8, 8, 8, 8]));
        six(ends, 17, &udp(5000, 53))
    };
    for host in 0..256 {
        assert!(world.take(Side::Inside, &packet(host << 8)).0.is_ok());
    }
    let (result, errors) = world.take(Side::Inside, &packet(256 << 8));
    assert_eq!((result, errors.len()), (Err(DropReason::PortQuota), 1));
    assert_eq!((&errors[0][40..42], &errors[0][48..]), (&[1, 3][..], &packet(256 << 8)[..]));
}

#[test]
fn a_host_with_a_mapping_keeps_its_number_if_its_hairpinned_packet_is_refused() {
    let mut world = World::new(nat64(NonGlobal::Refuse));
    let net = pref64("64:ff9b::", 96);
    // No host has this external endpoint. The mapping of the sender stays nevertheless.
    let ends = (ipv6(HOST), embed(net, [203, 0, 113, 1]));
    let syn = six(ends, 6, &tcp(5000, 80, 2));
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(&syn);
    let mut packet = Packet::new(&mut buffer, HEADROOM);
    let fate = world.translator.take(&mut world.engine, world.now, Side::Inside, &mut packet);
    assert_eq!(fate, Fate::Nothing);
    world.translator.sweep(&world.engine, world.now);
    let numbers: Vec<Ipv4Addr> =
        world.engine.mappings().map(|mapping| mapping.id.internal.address).collect();
    let hosts = world.translator.hosts(HostKind::Nat64).expect("there is NAT64");
    assert_eq!(numbers, [hosts.number(ipv6(HOST)).expect("a number")]);
}

#[test]
fn a_packet_lost_behind_the_engine_is_taken_back_from_the_counters() {
    let net = pref64("64:ff9b::", 96);
    let mut settings = nat64(NonGlobal::Refuse);
    settings.conversion.udp_checksum_zero = UdpChecksumZero::Drop;
    let mut world = World::new(settings);
    let packet = six((ipv6(HOST), embed(net, [8, 8, 8, 8])), 17, &udp(5000, 53));
    let left = world.take(Side::Inside, &packet).0.expect("a packet to IPv4");
    // The answer has no checksum, so the engine's packet does not become one of IPv6.
    let mut answer = left.clone();
    for at in 0..4 {
        answer.swap(12 + at, 16 + at);
    }
    answer.swap(20, 22);
    answer.swap(21, 23);
    answer[26..28].fill(0);
    Ipv4::new_checked(&mut answer[..]).expect("a packet").fill_checksum();
    assert_eq!(world.take(Side::Outside, &answer).0, Err(DropReason::UdpChecksumZero));
    // A packet of the same direction that the engine does not see.
    let routed = six((ipv6(REMOTE), ipv6(HOST)), 17, &udp(53, 5000));
    assert!(world.take(Side::Outside, &routed).0.is_ok());
    let (engine, translator) = (world.engine.counters(), world.translator.counters());
    let inbound = natgate_engine::Direction::Inbound as usize;
    let sum = |outcome: natgate_engine::Outcome| {
        let of = |counters: &natgate_engine::Counters| counters.packets[inbound][outcome as usize];
        of(engine).wrapping_add(of(&translator))
    };
    use natgate_engine::Outcome::{Dropped, Forwarded};
    assert_eq!((sum(Forwarded), sum(Dropped)), (1, 1));
}

/// The answer to a packet of UDP that left, without payload.
fn answered(left: &[u8]) -> Vec<u8> {
    let part = |at: usize| -> [u8; 4] { left[at..at + 4].try_into().expect("4 bytes") };
    let port = |at: usize| u16::from_be_bytes([left[at], left[at + 1]]);
    four((part(16), part(12)), 17, &udp(port(22), port(20)))
}

#[test]
fn a_refused_packet_does_not_change_the_prefix_of_answers() {
    let mut settings = nat64(NonGlobal::Refuse);
    let nets = [pref64("64:ff9b::", 96), pref64("2001:db8:64::", 96)];
    settings.nat64.as_mut().expect("NAT64").prefixes = nets.to_vec();
    let mut world = World::new(settings);
    let remote = [8, 8, 8, 8];
    let ends = nets.map(|net| (ipv6(HOST), embed(net, remote)));
    let left = world.take(Side::Inside, &six(ends[1], 17, &udp(5000, 53))).0.expect("it leaves");
    let refused = six(ends[0], 6, &tcp(5000, 80, ACK));
    assert!(world.engine_refuses(&refused));
    let answer = world.take(Side::Outside, &answered(&left)).0.expect("it enters");
    assert_eq!(answer[8..24], embed(nets[1], remote).to_be_bytes());
    // A packet that passes changes it.
    world.take(Side::Inside, &six(ends[0], 17, &udp(5000, 53))).0.expect("it leaves");
    let answer = world.take(Side::Outside, &answered(&left)).0.expect("it enters");
    assert_eq!(answer[8..24], embed(nets[0], remote).to_be_bytes());
}

#[test]
fn an_error_from_outside_with_the_source_of_own_errors_is_the_routers() {
    let mut settings = nat64(NonGlobal::Translate);
    let net = pref64("2001:db8:64::", 96);
    settings.nat64.as_mut().expect("NAT64").prefixes = vec![net];
    let mut world = World::new(settings);
    let packet = six((ipv6(HOST), embed(net, [8, 8, 8, 8])), 17, &udp(5000, 53));
    let left = world.take(Side::Inside, &packet).0.expect("it leaves");
    let mut message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &left].concat();
    let checksum = !fold(sum(&message, 0));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let external = left[12..16].try_into().expect("an address");
    let error = four(([192, 0, 0, 8], external), 1, &message);
    let entered = world.take(Side::Outside, &error).0.expect("it enters");
    assert_eq!(entered[8..24], embed(net, [192, 0, 0, 8]).to_be_bytes());
    assert_eq!(entered[40..42], [1, 0]);
}

/// NAT64 with static mappings: a web server's port 80, and all of another host.
fn with_servers() -> World {
    let mut settings = nat64(NonGlobal::Refuse);
    let nat64 = settings.nat64.as_mut().expect("there is NAT64");
    let hosts = [SERVER, "2001:db8:5::1", "2001:db8:1::6"].map(|host| ipv6(host).into());
    nat64.static_hosts = StaticHost::first(&hosts, nat64.subscriber_length, 1);
    let hosts = nat64.static_hosts.clone();
    let web = StaticMapping {
        realm: 1,
        protocol: Some(6),
        internal: (hosts[0].number, Some(8080)),
        external: ([203, 0, 113, 1].into(), Some(80)),
        ..StaticMapping::default()
    };
    let whole = StaticMapping {
        realm: 1,
        internal: (hosts[1].number, None),
        external: ([203, 0, 113, 9].into(), None),
        ..StaticMapping::default()
    };
    World::with_statics(settings, &[web, whole])
}

const SERVER: &str = "2001:db8:1::5";

#[test]
fn first_numbers_are_those_that_hosts_of_static_mappings_get() {
    let world = with_servers();
    let hosts = world.translator.hosts(HostKind::Nat64).expect("there is NAT64");
    for host in world.settings.static_hosts() {
        assert_eq!(hosts.number(host.address.to_bits()), Some(host.number));
        assert_eq!(world.settings.static_host(HostKind::Nat64, host.number), Some(host));
    }
    assert_eq!(hosts.counts(), (3, 2));
}

//= test rfc6146#section-3.1-manual
//= test rfc6146#section-3.1-manual-kept
#[test]
fn remote_hosts_reach_static_mappings_before_their_hosts_have_sent_anything() {
    let mut world = with_servers();
    let net = pref64("64:ff9b::", 96);
    let remote = [198, 51, 100, 7];
    world.later(7200);
    for _ in 0..1000 {
        world.translator.sweep(&world.engine, world.now);
    }
    let syn = four((remote, [203, 0, 113, 1]), 6, &tcp(5000, 80, 2));
    let came = world.take(Side::Outside, &syn).0.expect("a packet for the server");
    let header = Ipv6::new_checked(&came[..]).expect("an IPv6 packet");
    assert_eq!((header.source(), header.destination()), (embed(net, remote), ipv6(SERVER)));
    assert_eq!(came[40..44], [0x13, 0x88, 0x1f, 0x90]);
    let answer = six((ipv6(SERVER), embed(net, remote)), 6, &tcp(8080, 5000, 18));
    let left = world.take(Side::Inside, &answer).0.expect("the answer");
    assert_eq!((&left[12..16], &left[20..22]), (&[203, 0, 113, 1][..], &[0, 80][..]));
    // All protocols of the other host go by its own address.
    let host = ipv6("2001:db8:5::1");
    for (protocol, payload) in [(6, tcp(4000, 443, 2)), (17, udp(4000, 53)), (47, vec![0; 8])] {
        let packet = six((host, embed(net, remote)), protocol, &payload);
        let left = world.take(Side::Inside, &packet).0.expect("a packet to IPv4");
        assert_eq!(left[12..16], [203, 0, 113, 9], "protocol {protocol}");
    }
}
