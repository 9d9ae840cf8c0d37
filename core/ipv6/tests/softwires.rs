//! Softwires packet by packet: lw4o6 (RFC 7596), MAP-E (RFC 7597) and MAP-T (RFC 7599), with the
//! examples of the RFCs.

mod common;
#[path = "common/explained.rs"]
mod explained;

use common::Ends;
use natgate_engine::{
    AddressRange, Config, DropReason as R, Engine, Packet, PoolConfig, Prefix, Side, Timestamp,
};
use natgate_ipv6::convert::Cut;
use natgate_ipv6::softwire::{
    Binding, BindingTable, Lw4o6Settings, MapMode, MapParameters, MapRule, MapSettings, PortSets,
    SoftwireSettings,
};
use natgate_ipv6::{Fate, Pref64, Prefix6, Settings, Translator};
use natgate_wire::checksum::{checksum, fold, pseudo_header_v6, sum};
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6, icmpv6};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const START: Timestamp = Timestamp(1_000_000_000_000);
const SECOND: u64 = 1_000_000_000;
const ROOM: usize = 64;

/// Ends of the first example of RFC 7597.
const BR: &str = "2001:db8:ffff::1";
const CE: &str = "2001:db8:12:3400:0:c000:212:34";
const CUSTOMER: [u8; 4] = [192, 0, 2, 18];
const REMOTE: [u8; 4] = [1, 2, 3, 4];
/// The relay and two customers of lw4o6 that share an address.
const AFTR: &str = "2001:db8:ffff::2";
const B4: &str = "2001:db8:b4::1";
const OTHER_B4: &str = "2001:db8:b4::2";
const SHARED: [u8; 4] = [203, 0, 113, 7];

fn ipv6(text: &str) -> u128 {
    text.parse().map(Ipv6Addr::to_bits).expect("an address")
}

fn softwire() -> SoftwireSettings {
    SoftwireSettings { mtu: None, path_mtu: true }
}

fn rule(mode: MapMode) -> MapRule {
    MapRule::new(MapParameters {
        ipv6: Prefix6 { address: "2001:db8::".parse().expect("an address"), len: 40 },
        ipv4: Prefix::new([192, 0, 2, 0].into(), 24),
        ea_length: 16,
        psid_offset: 6,
        psid: None,
        mode,
    })
    .expect("the rule of RFC 7597")
}

fn dmr() -> Pref64 {
    let address = "2001:db8:ffff::".parse().expect("an address");
    Pref64::new(Prefix6 { address, len: 64 }).expect("a prefix of RFC 6052")
}

fn map(mode: MapMode) -> Settings {
    let map = vec![MapSettings { rule: rule(mode), softwire: softwire() }];
    Settings { map, ..Settings::default() }
}

fn map_e() -> Settings {
    map(MapMode::Encapsulation(BR.parse().expect("an address")))
}

fn binding(psid: u16, b4: &str, br: &str) -> Binding {
    let sets = PortSets::new(0, 6).expect("6 bits");
    let [b4, br] = [b4, br].map(|text| text.parse().expect("an address"));
    Binding { ipv4: SHARED.into(), sets, psid, b4, br }
}

/// Ports 1024 to 2047 are of the first customer, ports 2048 to 3071 of the second, and the third
/// has another relay.
fn lw4o6() -> Settings {
    let address = AFTR.parse().expect("an address");
    let bindings = [
        binding(1, B4, AFTR),
        binding(2, OTHER_B4, AFTR),
        binding(3, "2001:db8:b4::3", "2001:db8:ffff::9"),
    ];
    let bindings = BindingTable::new(&bindings, address, 1).expect("bindings that agree");
    let lw4o6 = Lw4o6Settings {
        address,
        bindings: Arc::new(bindings),
        hairpinning: true,
        icmp_errors: true,
        inbound_icmp: true,
        softwire: softwire(),
    };
    Settings { lw4o6: Some(lw4o6), ..Settings::default() }
}

fn change(settings: Settings, change: impl FnOnce(&mut Lw4o6Settings)) -> Settings {
    let mut settings = settings;
    change(settings.lw4o6.as_mut().expect("lw4o6"));
    settings
}

struct World {
    engine: Engine,
    translator: Translator,
    now: Timestamp,
}

/// A packet that left, or the reason why it did not.
#[derive(Debug, PartialEq)]
enum Went {
    To(Side, Vec<u8>, Option<Cut>),
    Dropped(R),
    Held,
}

impl World {
    fn new(settings: Settings) -> Self {
        let external = Ipv4Addr::new(198, 51, 100, 253);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config = Config { pools: vec![pool], ..Config::default() };
        config.outside.address = Some(Ipv4Addr::new(198, 51, 100, 254));
        let mut settings = Settings { configured: true, ..settings };
        settings.inside.address = Some(("2001:db8:1::1".parse().expect("an address"), 64));
        let translator = Translator::new(&settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { engine, translator, now: START }
    }

    fn take(&mut self, from: Side, bytes: &[u8]) -> Went {
        let mut buffer = vec![0; ROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, ROOM);
        let before = self.translator.counters();
        let Self { translator, engine, now, .. } = self;
        let fate = explained::take(translator, engine, (*now, from), &mut packet);
        let after = self.translator.counters();
        if let Fate::Send(departure) = fate {
            return Went::To(departure.side, packet.bytes().to_vec(), departure.cut);
        }
        let counts = |reason: &R| after.drops[*reason as usize] != before.drops[*reason as usize];
        R::ALL.iter().copied().find(counts).map_or(Went::Held, Went::Dropped)
    }

    /// Takes a packet that leaves whole; returns its bytes.
    fn pass(&mut self, from: Side, to: Side, bytes: &[u8]) -> Vec<u8> {
        match self.take(from, bytes) {
            Went::To(side, bytes, None) if side == to => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Takes a packet that is dropped, and the error about it.
    fn refuse(&mut self, from: Side, bytes: &[u8]) -> (R, Option<Vec<u8>>) {
        match self.take(from, bytes) {
            Went::Dropped(reason) => (reason, self.own()),
            other => panic!("{other:?}"),
        }
    }

    /// A packet that the translator sends on its own.
    fn own(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 1500];
        let (_, len) = self.translator.poll_transmit(&mut buffer)?;
        Some(buffer[..len].to_vec())
    }
}

fn four_of(ends: Ends, protocol: u8, payload: &[u8]) -> Vec<u8> {
    common::four(0xb8, ends, protocol, payload)
}

fn ports(source: u16, destination: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d]
}

fn udp(ends: Ends, source: u16, destination: u16, data: usize) -> Vec<u8> {
    let mut payload = ports(source, destination).to_vec();
    payload.extend((8 + data as u16).to_be_bytes());
    payload.extend([0x12, 0x34]);
    payload.resize(8 + data, 7);
    four_of(ends, 17, &payload)
}

fn with_fragment(mut bytes: Vec<u8>, offset: u16, more: bool, ttl: u8) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    header.set_fragment_field((offset / 8) | (u16::from(more) << 13));
    header.set_identification(99);
    header.set_ttl(ttl);
    header.fill_checksum();
    bytes
}

fn dont_fragment(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    header.set_fragment_field(0x4000);
    header.fill_checksum();
    bytes
}

fn echo(ends: Ends, kind: u8, identifier: u16) -> Vec<u8> {
    let [a, b] = identifier.to_be_bytes();
    let mut payload = vec![kind, 0, 0, 0, a, b, 0, 1, 9, 9];
    let sum = checksum(&payload);
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    four_of(ends, 1, &payload)
}

fn icmp_error(ends: Ends, quoted: &[u8]) -> Vec<u8> {
    let mut payload = vec![3, 3, 0, 0, 0, 0, 0, 0];
    payload.extend(&quoted[..28]);
    let sum = checksum(&payload);
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    four_of(ends, 1, &payload)
}

fn six(ends: (&str, &str), next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(payload.len() as u16);
    header.set_next_header(next);
    header.set_hop_limit(64);
    header.set_source(ipv6(ends.0));
    header.set_destination(ipv6(ends.1));
    bytes.extend(payload);
    bytes
}

fn tunneled(ends: (&str, &str), inner: &[u8]) -> Vec<u8> {
    six(ends, 4, inner)
}

/// Ends and contents of a packet in a tunnel.
fn open(bytes: &[u8]) -> (String, String, Vec<u8>) {
    let outer = Ipv6::new_checked(bytes).expect("a packet of IPv6");
    assert_eq!(outer.next_header(), 4);
    let address = |bits| Ipv6Addr::from_bits(bits).to_string();
    (address(outer.source()), address(outer.destination()), outer.payload().to_vec())
}

/// The packet after a hop.
fn hopped(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    let ttl = header.ttl() - 1;
    header.set_ttl(ttl);
    header.fill_checksum();
    bytes
}

/// Type, code and quotation of an ICMP error in a tunnel.
fn tunneled_error(bytes: Option<Vec<u8>>, ends: (&str, &str)) -> (u8, u8, u16, Vec<u8>) {
    let (from, to, inner) = open(&bytes.expect("an error"));
    assert_eq!((&*from, &*to), ends);
    four_error(Some(inner))
}

fn four_error(bytes: Option<Vec<u8>>) -> (u8, u8, u16, Vec<u8>) {
    let bytes = bytes.expect("an error");
    let header = Ipv4::new_checked(&bytes[..]).expect("a packet");
    assert_eq!(Ipv4Addr::from_bits(header.source()), Ipv4Addr::new(198, 51, 100, 254));
    let icmp = Icmp::new_checked(header.payload()).expect("a message");
    assert!(icmp.checksum_valid() && header.checksum_valid());
    let mtu = u16::from_be_bytes([header.payload()[6], header.payload()[7]]);
    (icmp.kind(), icmp.code(), mtu, icmp.body().to_vec())
}

fn six_error(bytes: Option<Vec<u8>>, source: &str) -> (u8, u8) {
    let bytes = bytes.expect("an error");
    let header = Ipv6::new_checked(&bytes[..]).expect("a packet");
    assert_eq!(header.source(), ipv6(source));
    let icmp = Icmpv6::new_checked(header.payload()).expect("a message");
    assert!(icmp.checksum_valid(header.source(), header.destination()));
    (icmp.kind(), icmp.code())
}

//= test rfc7596#section-6.2-verify
//= test rfc7596#section-6.2-encapsulate
#[test]
fn lw4o6_carries_both_directions() {
    let mut world = World::new(lw4o6());
    let question = udp((SHARED, REMOTE), 1024, 53, 20);
    let out = world.pass(Side::Inside, Side::Outside, &tunneled((B4, AFTR), &question));
    assert_eq!(out, hopped(question));
    let answer = udp((REMOTE, SHARED), 53, 2047, 20);
    let back = world.pass(Side::Outside, Side::Inside, &answer);
    assert_eq!(Ipv6::new_checked(&back[..]).expect("a packet").traffic_class(), 0xb8);
    assert_eq!(open(&back), (AFTR.into(), B4.into(), hopped(answer)));
    let to_third = world.pass(Side::Outside, Side::Inside, &udp((REMOTE, SHARED), 53, 3072, 20));
    assert_eq!(open(&to_third).0, "2001:db8:ffff::9");
    let counters = world.translator.domain_counters()[0];
    assert_eq!((counters.outbound, counters.inbound.0, counters.spoofed), ((1, 88), 2, 0));
}

//= test rfc7596#section-6.2-verify
//= test rfc7596#section-6.2-policy
#[test]
fn a_source_of_another_customer_is_refused() {
    let mut world = World::new(lw4o6());
    let neighbours = tunneled((B4, AFTR), &udp((SHARED, REMOTE), 2048, 53, 20));
    let (reason, error) = world.refuse(Side::Inside, &neighbours);
    assert_eq!((reason, six_error(error, AFTR)), (R::SoftwireSource, (1, 5)));
    let nobodys = tunneled((B4, AFTR), &udp((SHARED, REMOTE), 9999, 53, 20));
    let (reason, error) = world.refuse(Side::Inside, &nobodys);
    assert_eq!((reason, six_error(error, AFTR)), (R::NoBinding, (1, 5)));
    let other_relay = tunneled((B4, "2001:db8:ffff::9"), &udp((SHARED, REMOTE), 1024, 53, 20));
    assert_eq!(world.refuse(Side::Inside, &other_relay).0, R::SoftwireSource);
    let foreign = tunneled((B4, AFTR), &udp(([10, 0, 0, 1], REMOTE), 1024, 53, 20));
    assert_eq!(world.refuse(Side::Inside, &foreign).0, R::NoBinding);
    assert_eq!(world.translator.domain_counters()[0].spoofed, 2);
    let quiet = change(lw4o6(), |lw4o6| lw4o6.icmp_errors = false);
    let mut world = World::new(quiet);
    assert_eq!(world.refuse(Side::Inside, &neighbours), (R::SoftwireSource, None));
    assert_eq!(world.refuse(Side::Inside, &nobodys), (R::NoBinding, None));
}

//= test rfc7596#section-6.2-no-match
//= test rfc7596#section-6.2-unreachable
#[test]
fn what_matches_no_binding_gets_host_unreachable() {
    let mut world = World::new(lw4o6());
    for (address, port) in [(SHARED, 1000), ([203, 0, 113, 8], 1024)] {
        let packet = udp((REMOTE, address), 53, port, 20);
        let (reason, error) = world.refuse(Side::Outside, &packet);
        let (kind, code, _, quoted) = four_error(error);
        assert_eq!((reason, kind, code, quoted), (R::NoBinding, 3, 1, packet));
    }
    let portless = four_of((REMOTE, SHARED), 47, &[0; 8]);
    assert_eq!(world.refuse(Side::Outside, &portless).0, R::NoBinding);
    let mut world = World::new(change(lw4o6(), |lw4o6| lw4o6.icmp_errors = false));
    let packet = udp((REMOTE, SHARED), 53, 1000, 20);
    assert_eq!(world.refuse(Side::Outside, &packet), (R::NoBinding, None));
}

//= test rfc7596#section-8.1-identifier
//= test rfc7596#section-8.1-embedded
//= test rfc7596#section-8.1-policy
#[test]
fn icmp_goes_by_identifier_and_by_the_quoted_packet() {
    let mut world = World::new(lw4o6());
    let ping = echo((REMOTE, SHARED), 8, 2050);
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &ping)).1, OTHER_B4);
    let reply = echo((SHARED, REMOTE), 0, 2050);
    world.pass(Side::Inside, Side::Outside, &tunneled((OTHER_B4, AFTR), &reply));
    let forged = tunneled((B4, AFTR), &reply);
    assert_eq!(world.refuse(Side::Inside, &forged).0, R::SoftwireSource);
    let sent = udp((SHARED, [5, 6, 7, 8]), 1500, 53, 20);
    let error = icmp_error((REMOTE, SHARED), &sent);
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &error)).1, B4);
    let of_another = icmp_error((REMOTE, SHARED), &udp((REMOTE, SHARED), 1500, 53, 20));
    assert_eq!(world.refuse(Side::Outside, &of_another), (R::IcmpBadEmbedded, None));
    let received = udp((REMOTE, SHARED), 53, 1500, 20);
    let error = icmp_error((SHARED, REMOTE), &received);
    world.pass(Side::Inside, Side::Outside, &tunneled((B4, AFTR), &error));
    let forged = tunneled((OTHER_B4, AFTR), &error);
    assert_eq!(world.refuse(Side::Inside, &forged).0, R::SoftwireSource);
    let timestamp = four_of((REMOTE, SHARED), 1, &[13, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(world.refuse(Side::Outside, &timestamp).0, R::NoBinding);
    let mut world = World::new(change(lw4o6(), |lw4o6| lw4o6.inbound_icmp = false));
    assert_eq!(world.refuse(Side::Outside, &ping), (R::InboundIcmp, None));
    let udp = udp((REMOTE, SHARED), 53, 1500, 20);
    world.pass(Side::Outside, Side::Inside, &udp);
}

//= test rfc7596#section-6.2-hairpin
//= test rfc7596#section-6.2-hairpin-policy
#[test]
fn customers_reach_each_other_by_the_relay() {
    let mut world = World::new(lw4o6());
    let packet = udp((SHARED, SHARED), 1024, 2048, 20);
    let turned = world.pass(Side::Inside, Side::Inside, &tunneled((B4, AFTR), &packet));
    assert_eq!(open(&turned), (AFTR.into(), OTHER_B4.into(), hopped(packet)));
    let packet = udp((SHARED, SHARED), 1024, 1025, 20);
    assert_eq!(world.refuse(Side::Inside, &tunneled((B4, AFTR), &packet)).0, R::Land);
    let second = [203, 0, 113, 8];
    let settings = change(lw4o6(), |lw4o6| {
        let one = binding(1, B4, AFTR);
        let two = Binding { ipv4: second.into(), ..binding(2, OTHER_B4, AFTR) };
        let table = BindingTable::new(&[one, two], lw4o6.address, 1);
        lw4o6.bindings = Arc::new(table.expect("bindings that agree"));
    });
    let mut world = World::new(settings.clone());
    let packet = udp((SHARED, second), 1024, 2048, 20);
    let turned = world.pass(Side::Inside, Side::Inside, &tunneled((B4, AFTR), &packet));
    assert_eq!(open(&turned), (AFTR.into(), OTHER_B4.into(), hopped(packet)));
    assert_eq!(world.translator.counters().packets[2][0], 1);
    let nobody = udp((SHARED, second), 1024, 9, 20);
    let (reason, error) = world.refuse(Side::Inside, &tunneled((B4, AFTR), &nobody));
    let (kind, code, _, quoted) = tunneled_error(error, (AFTR, B4));
    assert_eq!((reason, kind, code, quoted), (R::NoBinding, 3, 1, nobody));
    let mut world = World::new(change(settings, |lw4o6| lw4o6.hairpinning = false));
    let packet = tunneled((B4, AFTR), &udp((SHARED, second), 1024, 2048, 20));
    assert_eq!(world.refuse(Side::Inside, &packet), (R::HairpinDisabled, None));
}

//= test rfc2473#section-7.2-discard
//= test rfc2473#section-7.2-fragment
#[test]
fn what_does_not_fit_is_cut_outside_or_answered() {
    let mut world = World::new(lw4o6());
    let fits = dont_fragment(udp((REMOTE, SHARED), 53, 1500, 1432));
    world.pass(Side::Outside, Side::Inside, &fits);
    let long = dont_fragment(udp((REMOTE, SHARED), 53, 1500, 1433));
    let (reason, error) = world.refuse(Side::Outside, &long);
    let (kind, code, mtu, _) = four_error(error);
    assert_eq!((reason, kind, code, mtu), (R::TooBig, 3, 4, 1460));
    let may_be_cut = udp((REMOTE, SHARED), 53, 1500, 1472);
    let Went::To(Side::Inside, bytes, Some(cut)) = world.take(Side::Outside, &may_be_cut) else {
        panic!("the packet is cut")
    };
    assert_eq!(cut.limit, 1500);
    assert_eq!(open(&bytes).2, hopped(may_be_cut));
    // From a tunnel, the outside link may be narrower than the packet.
    let long = udp((SHARED, REMOTE), 1500, 53, 1480);
    let Went::To(Side::Outside, _, Some(cut)) =
        world.take(Side::Inside, &tunneled((B4, AFTR), &long))
    else {
        panic!("the packet is cut")
    };
    assert_eq!(cut.limit, 1500);
    let long = dont_fragment(long);
    let (reason, error) = world.refuse(Side::Inside, &tunneled((B4, AFTR), &long));
    let (kind, code, mtu, _) = tunneled_error(error, (AFTR, B4));
    assert_eq!((reason, kind, code, mtu), (R::TooBig, 3, 4, 1500));
}

#[test]
fn a_hop_is_counted_and_its_end_is_told_into_the_tunnel() {
    let mut world = World::new(lw4o6());
    let last = with_fragment(udp((SHARED, REMOTE), 1500, 53, 20), 0, false, 1);
    let (reason, error) = world.refuse(Side::Inside, &tunneled((B4, AFTR), &last));
    let (kind, code, _, quoted) = tunneled_error(error, (AFTR, B4));
    assert_eq!((reason, kind, code, quoted), (R::TtlExceeded, 11, 0, last));
    let last = with_fragment(udp((REMOTE, SHARED), 53, 1500, 20), 0, false, 1);
    let (reason, error) = world.refuse(Side::Outside, &last);
    assert_eq!((reason, four_error(error).0), (R::TtlExceeded, 11));
}

//= test rfc7597#section-8.3.2-fragments
#[test]
fn fragments_follow_the_first_of_their_datagram() {
    let mut world = World::new(lw4o6());
    let first = with_fragment(udp((REMOTE, SHARED), 53, 1500, 24), 0, true, 64);
    let later = with_fragment(four_of((REMOTE, SHARED), 17, &[5; 16]), 32, false, 64);
    assert_eq!(world.take(Side::Outside, &later), Went::Held);
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &first)).1, B4);
    let released = world.own().expect("the fragment that waited");
    assert_eq!(open(&released), (AFTR.into(), B4.into(), hopped(later.clone())));
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &later)).1, B4);
    assert_eq!(world.translator.counters().packets[1][0], 3);
    // The other way, the source is checked.
    let first = with_fragment(udp((SHARED, REMOTE), 2048, 53, 24), 0, true, 64);
    let later = with_fragment(four_of((SHARED, REMOTE), 17, &[5; 16]), 32, false, 64);
    let forged = tunneled((B4, AFTR), &later);
    assert_eq!(world.take(Side::Inside, &forged), Went::Held);
    assert_eq!(world.refuse(Side::Inside, &tunneled((B4, AFTR), &first)).0, R::SoftwireSource);
    assert_eq!(world.translator.counters().drops[R::SoftwireSource as usize], 2);
    world.pass(Side::Inside, Side::Outside, &tunneled((OTHER_B4, AFTR), &first));
    world.pass(Side::Inside, Side::Outside, &tunneled((OTHER_B4, AFTR), &later));
    world.now.0 += 3 * SECOND;
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.take(Side::Inside, &tunneled((OTHER_B4, AFTR), &later)), Went::Held);
    world.translator.drop_held();
    assert_eq!(world.translator.counters().drops[R::FragmentUnmatched as usize], 1);
}

//= test rfc2473#section-7.2-fragment
#[test]
fn packets_of_a_tunnel_are_put_together_before_it_ends() {
    let mut world = World::new(lw4o6());
    let inner = udp((SHARED, REMOTE), 1500, 53, 1450);
    let whole = tunneled((B4, AFTR), &inner);
    let mut fragments = Cut { limit: 1280, identification: 5 }.fragments(&whole);
    let mut pieces = Vec::new();
    let mut buffer = [0; 1280];
    while let Some(len) = fragments.write_next(&mut buffer) {
        pieces.push(buffer[..len].to_vec());
    }
    assert_eq!(pieces.len(), 2);
    assert_eq!(world.take(Side::Inside, &pieces[1]), Went::Held);
    assert_eq!(world.take(Side::Inside, &pieces[0]), Went::Held);
    assert_eq!(world.own(), Some(hopped(inner)));
    let counters = world.translator.counters();
    assert_eq!((counters.packets[0][0], counters.packets[0][2]), (2, 0));
    assert_eq!(counters.bytes[0][0] as usize, pieces[0].len() + pieces[1].len());
    assert_eq!(world.take(Side::Inside, &pieces[0]), Went::Held);
    world.now.0 += 3 * SECOND;
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.translator.counters().drops[R::FragmentUnmatched as usize], 1);
}

//= test rfc2473#section-8.3-too-big
//= test rfc2473#section-8.3-unreachable
#[test]
fn reports_from_the_path_reach_the_sender() {
    let mut world = World::new(lw4o6());
    let packet = dont_fragment(udp((REMOTE, SHARED), 53, 1500, 1400));
    let sent = world.pass(Side::Outside, Side::Inside, &packet);
    let report = |kind: u8, word: u32, quoted: &[u8]| report((kind, word), AFTR, &quoted[..200]);
    assert_eq!(world.take(Side::Inside, &report(2, 1400, &sent)), Went::Held);
    let (kind, code, mtu, quoted) = four_error(world.own());
    assert_eq!((kind, code, mtu, &quoted[..]), (3, 4, 1360, &hopped(packet.clone())[..160]));
    let (reason, error) = world.refuse(Side::Outside, &packet);
    assert_eq!((reason, four_error(error).2), (R::TooBig, 1360));
    let Went::To(_, _, Some(cut)) =
        world.take(Side::Outside, &udp((REMOTE, SHARED), 53, 1500, 1400))
    else {
        panic!("the packet is cut")
    };
    assert_eq!(cut.limit, 1400);
    assert_eq!(world.take(Side::Inside, &report(3, 0, &sent)), Went::Held);
    let (kind, code, ..) = four_error(world.own());
    assert_eq!((kind, code), (3, 1));
    // A report about a packet that no customer was sent changes nothing.
    let forged = tunneled((AFTR, OTHER_B4), &packet);
    assert_eq!(world.refuse(Side::Inside, &report(2, 1280, &forged)), (R::IcmpNoSession, None));
    let Went::To(_, reply, None) = world.take(Side::Inside, &ping6(B4, AFTR)) else {
        panic!("the relay answers")
    };
    assert_eq!(Ipv6::new_checked(&reply[..]).expect("a packet").source(), ipv6(AFTR));
}

/// A report of a router in a tunnel to the gateway's end.
fn report((kind, word): (u8, u32), end: &str, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(quoted);
    let router = "2001:db8:5::1";
    let sum = icmpv6::checksum(&message, ipv6(router), ipv6(end));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    six((router, end), 58, &message)
}

fn ping6(source: &str, destination: &str) -> Vec<u8> {
    let mut message = vec![128, 0, 0, 0, 0, 7, 0, 1];
    let sum = icmpv6::checksum(&message, ipv6(source), ipv6(destination));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    six((source, destination), 58, &message)
}

//= test rfc7597#section-8.1-validate
//= test rfc7597#section-8.1-discard
#[test]
fn map_e_has_the_examples_of_its_rfc() {
    let mut world = World::new(map_e());
    let packet = udp((REMOTE, CUSTOMER), 80, 1232, 20);
    let inbound = world.pass(Side::Outside, Side::Inside, &packet);
    assert_eq!(open(&inbound), (BR.into(), CE.into(), hopped(packet)));
    let answer = udp((CUSTOMER, REMOTE), 1232, 80, 20);
    let outbound = world.pass(Side::Inside, Side::Outside, &tunneled((CE, BR), &answer));
    assert_eq!(outbound, hopped(answer.clone()));
    // Address, port and prefix are checked.
    let forged = [
        tunneled((CE, BR), &udp(([192, 0, 2, 19], REMOTE), 1232, 80, 20)),
        tunneled((CE, BR), &udp((CUSTOMER, REMOTE), 1236, 80, 20)),
        tunneled((CE, BR), &udp((CUSTOMER, REMOTE), 208, 80, 20)),
        tunneled(("2001:db8:12:3500:0:c000:212:35", BR), &answer),
        tunneled(("2001:db8:12:3400::1", BR), &answer),
        tunneled((CE, BR), &udp(([10, 0, 0, 1], REMOTE), 1232, 80, 20)),
    ];
    for packet in forged {
        assert_eq!(world.refuse(Side::Inside, &packet), (R::SoftwireSource, None));
    }
    assert_eq!(world.translator.domain_counters()[1].spoofed, 4);
    let nobody = udp((REMOTE, CUSTOMER), 80, 1000, 20);
    assert_eq!(world.refuse(Side::Outside, &nobody).0, R::NoBinding);
}

//= test rfc7599#section-8.3-select
//= test rfc7599#section-8.3-validate
//= test rfc7599#section-8.3-error
//= test rfc7599#section-8.3-derive
//= test rfc7599#section-8.4-apply
#[test]
fn map_t_has_the_examples_of_its_rfc() {
    let mut world = World::new(map(MapMode::Translation(dmr())));
    let remote = [10, 2, 3, 4];
    let embedded = "2001:db8:ffff:0:a:203:400:0";
    let packet = udp((remote, CUSTOMER), 80, 1232, 20);
    let inbound = world.pass(Side::Outside, Side::Inside, &packet);
    let header = Ipv6::new_checked(&inbound[..]).expect("a packet of IPv6");
    assert_eq!((header.source(), header.destination()), (ipv6(embedded), ipv6(CE)));
    assert_eq!(
        (header.hop_limit(), header.payload()[..4].to_vec()),
        (63, ports(80, 1232).to_vec())
    );
    let datagram = |source: &str, port: u16| {
        let mut datagram = ports(port, 80).to_vec();
        datagram.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        let (from, to) = (ipv6(source), ipv6(embedded));
        let sum = !fold(sum(&datagram, pseudo_header_v6(from, to, 17, 12)));
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        six((source, embedded), 17, &datagram)
    };
    let outbound = world.pass(Side::Inside, Side::Outside, &datagram(CE, 1232));
    let header = Ipv4::new_checked(&outbound[..]).expect("a packet of IPv4");
    assert_eq!(header.source(), u32::from_be_bytes(CUSTOMER));
    assert_eq!(header.destination(), u32::from_be_bytes(remote));
    for forged in
        [datagram(CE, 1236), datagram("2001:db8:12:3400::1", 1232), datagram("2001:db9::1", 1232)]
    {
        let (reason, error) = world.refuse(Side::Inside, &forged);
        assert_eq!((reason, six_error(error, "2001:db8:1::1")), (R::SoftwireSource, (1, 5)));
    }
    assert_eq!(world.translator.domain_counters()[1].spoofed, 2);
    // The address is another customer's, by a rule with a longer prefix.
    let whole = MapRule::new(MapParameters {
        ipv6: Prefix6 { address: "2001:db8:8000::".parse().expect("an address"), len: 56 },
        ipv4: Prefix::new(CUSTOMER.into(), 32),
        ea_length: 0,
        psid_offset: 6,
        psid: None,
        mode: MapMode::Translation(dmr()),
    });
    let mut settings = map(MapMode::Translation(dmr()));
    settings.map.push(MapSettings { rule: whole.expect("a rule"), softwire: softwire() });
    let mut world = World::new(settings);
    assert_eq!(world.refuse(Side::Inside, &datagram(CE, 1232)).0, R::SoftwireSource);
}

#[test]
fn map_t_translates_echoes_and_errors_by_the_customers_port() {
    let mut world = World::new(map(MapMode::Translation(dmr())));
    let ping = echo((REMOTE, CUSTOMER), 8, 1232);
    let inbound = world.pass(Side::Outside, Side::Inside, &ping);
    let header = Ipv6::new_checked(&inbound[..]).expect("a packet of IPv6");
    assert_eq!((header.destination(), header.payload()[0]), (ipv6(CE), 128));
    let sent = udp((CUSTOMER, REMOTE), 1232, 53, 20);
    let inbound =
        world.pass(Side::Outside, Side::Inside, &icmp_error(([5, 5, 5, 5], CUSTOMER), &sent));
    let header = Ipv6::new_checked(&inbound[..]).expect("a packet of IPv6");
    assert_eq!(header.destination(), ipv6(CE));
    let quoted = Ipv6::new_header_checked(&header.payload()[8..]).expect("a quotation");
    assert_eq!(quoted.source(), ipv6(CE));
    // A router on the way has no IPv4 address: the gateway's stands for it.
    let packet = world.pass(Side::Outside, Side::Inside, &udp((REMOTE, CUSTOMER), 80, 1232, 20));
    let source = Ipv6::new_checked(&packet[..]).map(|header| header.source()).expect("a packet");
    let source = Ipv6Addr::from_bits(source).to_string();
    let mut message = vec![1, 0, 0, 0, 0, 0, 0, 0];
    message.extend(&packet);
    let router = "2001:db8:5::1";
    let sum = icmpv6::checksum(&message, ipv6(router), ipv6(&source));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let outbound = world.pass(Side::Inside, Side::Outside, &six((router, &source), 58, &message));
    let (kind, code, _, quoted) = four_error(Some(outbound));
    assert_eq!((kind, code), (3, 1));
    let quoted = Ipv4::new_header_checked(&quoted[..]).expect("a quotation");
    assert_eq!(quoted.destination(), u32::from_be_bytes(CUSTOMER));
}

#[test]
fn customers_of_all_kinds_reach_each_other() {
    let second = MapRule::new(MapParameters {
        ipv6: Prefix6 { address: "2001:db9::".parse().expect("an address"), len: 40 },
        ipv4: Prefix::new([198, 51, 0, 0].into(), 16),
        ea_length: 16,
        psid_offset: 0,
        psid: None,
        mode: MapMode::Translation(dmr()),
    });
    let second = second.expect("whole addresses");
    let mut settings = lw4o6();
    settings.map = map_e().map;
    settings.map.push(MapSettings { rule: second, softwire: softwire() });
    let mut world = World::new(settings);
    let translated = [198, 51, 7, 7];
    let address = Ipv6Addr::from_bits(second.address_of(u32::from_be_bytes(translated), 0));
    // From a tunnel of MAP-E to one of lw4o6, and to a translated customer.
    let packet = udp((CUSTOMER, SHARED), 1232, 1024, 20);
    let turned = world.pass(Side::Inside, Side::Inside, &tunneled((CE, BR), &packet));
    assert_eq!(open(&turned), (AFTR.into(), B4.into(), hopped(packet)));
    let packet = udp((CUSTOMER, translated), 1232, 7, 20);
    let turned = world.pass(Side::Inside, Side::Inside, &tunneled((CE, BR), &packet));
    let header = Ipv6::new_checked(&turned[..]).expect("a packet of IPv6");
    assert_eq!((header.destination(), header.hop_limit()), (address.to_bits(), 63));
    // Back, with one hop counted.
    let (from, to) = (header.destination(), header.source());
    let mut datagram = ports(7, 1232).to_vec();
    datagram.extend([0, 8, 0, 0]);
    let sum = !fold(sum(&datagram, pseudo_header_v6(from, to, 17, 8)));
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    let [from, to] = [from, to].map(|bits| Ipv6Addr::from_bits(bits).to_string());
    let back = world.pass(Side::Inside, Side::Inside, &six((&from, &to), 17, &datagram));
    let (_, customer, inner) = open(&back);
    assert_eq!(customer, CE);
    assert_eq!(Ipv4::new_checked(&inner[..]).expect("a packet of IPv4").ttl(), 63);
    assert_eq!(world.translator.counters().packets[2][0], 3);
}

#[test]
fn broken_packets_are_dropped_and_counted() {
    let mut world = World::new(lw4o6());
    let inner = udp((SHARED, REMOTE), 1024, 53, 20);
    let mut wrong_sum = inner.clone();
    wrong_sum[10] ^= 1;
    let mut marked = tunneled((B4, AFTR), &{
        let mut inner = inner.clone();
        inner[1] = 0;
        let mut header = Ipv4::new_checked(&mut inner[..]).expect("a packet");
        header.fill_checksum();
        inner
    });
    marked[1] |= 0x30;
    let cases = [
        (tunneled((B4, AFTR), &inner[..19]), R::BadLength),
        (tunneled((B4, AFTR), &inner[..30]), R::BadLength),
        (tunneled((B4, AFTR), &wrong_sum), R::BadHeaderChecksum),
        (tunneled((B4, AFTR), &[0x60; 40]), R::NotIpv4),
        (tunneled((B4, AFTR), &four_of((SHARED, REMOTE), 17, &[4])), R::BadLength),
        (six((B4, AFTR), 17, &[0; 20]), R::LocalUnsupported),
        (tunneled((B4, AFTR), &udp((SHARED, [127, 0, 0, 1]), 1024, 53, 9)), R::MartianDestination),
        (
            tunneled((B4, AFTR), &udp((SHARED, [198, 51, 100, 254]), 1024, 53, 9)),
            R::LocalUnsupported,
        ),
        (marked, R::EcnCongestion),
    ];
    for (number, (packet, reason)) in cases.into_iter().enumerate() {
        assert_eq!(world.refuse(Side::Inside, &packet).0, reason, "case {number}");
    }
}

#[test]
fn bindings_are_exchanged_as_a_unit() {
    let mut world = World::new(lw4o6());
    let packet = udp((REMOTE, SHARED), 53, 1500, 20);
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &packet)).1, B4);
    let address = AFTR.parse().expect("an address");
    let table = BindingTable::new(&[binding(1, OTHER_B4, AFTR)], address, 1);
    let former = world.translator.exchange_bindings(Arc::new(table.expect("a binding")));
    assert_eq!(former.expect("the former ones").len(), 3);
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &packet)).1, OTHER_B4);
    let bindings = world.translator.bindings().expect("lw4o6");
    assert_eq!(bindings.set(binding(1, B4, AFTR)), Ok(false));
    assert_eq!(open(&world.pass(Side::Outside, Side::Inside, &packet)).1, B4);
}

#[test]
fn addresses_between_those_of_bindings_are_outside() {
    let address = AFTR.parse().expect("an address");
    for sets in [PortSets::new(0, 6).expect("6 bits"), PortSets::WHOLE] {
        // The remote host's address is 1.2.3.4.
        let below = Binding { ipv4: [1, 1, 1, 1].into(), sets, psid: 0, ..binding(0, B4, AFTR) };
        let bindings = [Binding { sets, psid: 0, ..binding(0, OTHER_B4, AFTR) }, below];
        let table = Arc::new(BindingTable::new(&bindings, address, 1).expect("bindings"));
        let mut world = World::new(change(lw4o6(), |lw4o6| lw4o6.bindings = table.clone()));
        let to_remote = udp((SHARED, REMOTE), 5, 53, 20);
        let packet = tunneled((OTHER_B4, AFTR), &to_remote);
        assert_eq!(world.pass(Side::Inside, Side::Outside, &packet), hopped(to_remote));
        // A protocol without ports, where a whole address permits it.
        if sets.is_whole() {
            let portless = four_of((SHARED, REMOTE), 47, &[0; 8]);
            world.pass(Side::Inside, Side::Outside, &tunneled((OTHER_B4, AFTR), &portless));
        }
        // An address whose last binding has gone is outside, too.
        let to_gone = tunneled((OTHER_B4, AFTR), &udp((SHARED, [1, 1, 1, 1]), 5, 6, 20));
        assert_eq!(open(&world.pass(Side::Inside, Side::Inside, &to_gone)).1, B4);
        assert!(table.remove([1, 1, 1, 1].into(), 0));
        world.pass(Side::Inside, Side::Outside, &to_gone);
        assert_eq!(table.set(below), Ok(true));
        world.pass(Side::Inside, Side::Inside, &to_gone);
    }
}

#[test]
fn of_all_ports_a_customer_sends_from_its_own_set() {
    let mut world = World::new(lw4o6());
    let passes = |port: &u16| {
        let packet = tunneled((B4, AFTR), &udp((SHARED, REMOTE), *port, 53, 1));
        let went = world.take(Side::Inside, &packet);
        while world.own().is_some() {}
        matches!(went, Went::To(Side::Outside, ..))
    };
    let passed: Vec<u16> = (0..=u16::MAX).filter(passes).collect();
    assert_eq!(passed, (1024..2048).collect::<Vec<u16>>());
    let drops = world.translator.counters().drops;
    assert_eq!(drops[R::SoftwireSource as usize], 2048, "the sets of the two others");
    assert_eq!(drops[R::NoBinding as usize], 65_536 - 3072);
}

#[test]
fn a_flood_from_unbound_sources_gets_a_second_of_errors_at_most() {
    let mut world = World::new(lw4o6());
    let limit = Config::default().limits.icmp_errors_per_second as usize;
    let mut answered = 0;
    for number in 0..50_000_u32 {
        let source = Ipv6Addr::from_bits(ipv6("2001:db8:b4:ffff::") + u128::from(number));
        let inner = udp((SHARED, REMOTE), number as u16, 53, 1);
        let packet = tunneled((&source.to_string(), AFTR), &inner);
        assert!(matches!(world.take(Side::Inside, &packet), Went::Dropped(_)));
        answered += usize::from(world.own().is_some());
    }
    assert!((1..=limit).contains(&answered), "{answered} of 50,000 with a limit of {limit}");
    let question = udp((SHARED, REMOTE), 1024, 53, 20);
    world.pass(Side::Inside, Side::Outside, &tunneled((B4, AFTR), &question));
}

/// The two fragments of a packet in a tunnel.
fn halves(ends: (&str, &str), identification: u16, inner: &[u8]) -> [Vec<u8>; 2] {
    let [high, low] = identification.to_be_bytes();
    [(0, 32, 1), (32, inner.len(), 0)].map(|(from, to, more)| {
        let header = [4, 0, 0, from as u8 | more, 0, 0, high, low];
        six(ends, 44, &[&header[..], &inner[from..to]].concat())
    })
}

#[test]
fn fragments_of_forged_sources_fill_one_share_together() {
    let mut world = World::new(lw4o6());
    let good = udp((SHARED, REMOTE), 1500, 53, 60);
    let forged =
        |number: u32| Ipv6Addr::from_bits(ipv6("2001:db8:b5::") + u128::from(number)).to_string();
    // Neither a first fragment with a customer's IPv4 source nor a later one tells a customer.
    let mut waiting = 0;
    for number in 0..20_000 {
        let half = &halves((&forged(number), AFTR), 7, &good)[number as usize % 2];
        match world.take(Side::Inside, half) {
            Went::Held => waiting += 1,
            other => assert_eq!(other, Went::Dropped(R::FragmentLimit)),
        }
    }
    assert_eq!(waiting, 512);
    let [first, last] = halves((B4, AFTR), 7, &good);
    assert_eq!(world.take(Side::Inside, &first), Went::Held);
    assert_eq!(world.take(Side::Inside, &last), Went::Held);
    assert_eq!(world.own(), Some(hopped(good)));
}

#[test]
fn fragments_to_a_relay_of_map_come_from_customers() {
    let mut world = World::new(map_e());
    let good = udp((CUSTOMER, REMOTE), 1232, 53, 60);
    for half in halves(("2001:db8:12:3400:0:c000:212:35", BR), 7, &good) {
        assert_eq!(world.refuse(Side::Inside, &half), (R::SoftwireSource, None));
    }
    let [first, last] = halves((CE, BR), 7, &good);
    assert_eq!(world.take(Side::Inside, &last), Went::Held);
    assert_eq!(world.take(Side::Inside, &first), Went::Held);
    assert_eq!(world.own(), Some(hopped(good)));
}

/// Sends a packet to a customer through a path of a width; a router there reports what does not
/// fit, and the sender believes the gateway's errors. Returns the number of packets that it takes.
fn tries(world: &mut World, width: usize, mut len: usize, may_cut: bool) -> usize {
    for number in 1..=3 {
        let packet = udp((REMOTE, CUSTOMER), 80, 1232, len - 28);
        let packet = if may_cut { packet } else { dont_fragment(packet) };
        match world.take(Side::Outside, &packet) {
            Went::To(Side::Inside, bytes, cut) => {
                let longest = cut.map_or(bytes.len(), |cut| cut.limit);
                if longest <= width {
                    return number;
                }
                let quoted = &bytes[..bytes.len().min(1232)];
                world.take(Side::Inside, &report((2, width as u32), BR, quoted));
            }
            Went::Dropped(R::TooBig) => {}
            other => panic!("{len} bytes into {width}: {other:?}"),
        }
        while let Some(error) = world.own() {
            let (kind, code, mtu, _) = four_error(Some(error));
            assert_eq!((kind, code), (3, 4));
            assert!(usize::from(mtu) < len, "{mtu} after {len}");
            len = mtu.into();
        }
    }
    panic!("{len} bytes never pass {width}");
}

#[test]
fn no_width_of_a_path_is_a_black_hole() {
    for width in 1280..=1540 {
        let mut settings = map_e();
        settings.inside.mtu = 1540;
        let mut world = World::new(settings);
        for len in (width - 60..=1500).step_by(7).chain([1500]) {
            for may_cut in [false, true] {
                let tries = tries(&mut world, width, len, may_cut);
                assert!(tries <= 3, "{tries} tries for {len} bytes in {width}");
            }
        }
    }
}
