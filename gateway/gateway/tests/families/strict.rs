//! What a translator must not let pass, and errors that it must send.

use super::world::*;
use natgate_engine::{DropReason, Prefix, Side};
use natgate_gateway::Settings;
use natgate_gateway::ipv6::softwire::{
    Binding, BindingTable, DsliteSettings, Lw4o6Settings, MapMode, MapParameters, MapRule,
    MapSettings, PortSets, SoftwireSettings,
};
use natgate_gateway::ipv6::{ClatSettings, Filter, Nptv6, Nptv6Settings};
use natgate_wire::{Icmpv6, Ipv4, ipv4};
use std::net::Ipv6Addr;
use std::sync::Arc;

const REMOTE6: &str = "2600::7";
const HOST6: &str = "2001:db8::5";
const END: &str = "2001:db8:ffff:1::77";
const SHARED: &str = "203.0.113.9";

fn filtered() -> Settings {
    let mut settings = settings();
    settings.ipv6.filter = Filter::OutboundOnly;
    settings
}

/// What leaves for the last of some packets, and the reasons of all drops.
fn last(settings: &Settings, packets: &[(Side, Vec<u8>)]) -> (Vec<Sent>, Vec<DropReason>) {
    let came: Vec<Came> = packets.iter().map(|(side, bytes)| (*side, 1.0, bytes.clone())).collect();
    let mut outcomes = run(settings, &came);
    let dropped = outcomes.dropped();
    (outcomes.sent.pop().unwrap_or_default(), dropped)
}

#[test]
fn sources_of_the_other_side_do_not_pass_simple_security() {
    let out = ip6(HOST6, REMOTE6, UDP, &udp(1000, 2000, b"out"));
    // A packet from outside with a source of the inside network.
    let forged = ip6("2001:db8::66", HOST6, UDP, &udp(2000, 1000, b"forged"));
    let settings = filtered();
    let (sent, dropped) =
        last(&settings, &[(Side::Inside, out.clone()), (Side::Outside, forged.clone())]);
    assert_eq!((sent, dropped), (vec![], vec![DropReason::SpoofedSource]));
    // A packet from inside with a source of the outside network.
    let own = ip6("2001:db8:ffff::55", REMOTE6, UDP, &udp(1000, 2000, b"forged"));
    let (sent, dropped) = last(&settings, &[(Side::Inside, own)]);
    assert_eq!((sent, dropped), (vec![], vec![DropReason::SpoofedSource]));
    // A routing header of type 0 with a segment left.
    let routing = [&[17, 2, 0, 1, 0, 0, 0, 0][..], &[9; 16], &udp(1000, 2000, b"x")].concat();
    let routed = raw6(v6(HOST6), v6(REMOTE6), 43, &routing);
    let (sent, dropped) = last(&settings, &[(Side::Inside, routed)]);
    assert_eq!((sent, dropped), (vec![], vec![DropReason::SegmentsLeft]));
    // The router without the filter knows no such rule.
    assert_eq!(last(&super::world::settings(), &[(Side::Outside, forged)]).1, []);
    assert_eq!(last(&settings, &[(Side::Inside, out)]).1, []);
}

#[test]
fn packets_to_the_network_that_they_came_from_do_not_leave_by_the_other_side() {
    let mut settings = settings();
    let pair = Nptv6::new(prefix6("fd01:203:405::", 48), prefix6("2001:db8:8001::", 48)).unwrap();
    settings.ipv6.nptv6 = vec![Nptv6Settings { pair, icmp_errors: true }];
    let data = udp(1000, 2000, b"x");
    for (side, source, destination) in [
        (Side::Inside, HOST6, "2001:db8::77"),
        (Side::Outside, REMOTE6, "2001:db8:ffff::77"),
        (Side::Inside, "fd01:203:405:1::1", "fd01:203:405:2::1"),
    ] {
        let packet = ip6(source, destination, UDP, &data);
        let found = last(&settings, &[(side, packet)]);
        assert_eq!(found, (vec![], vec![DropReason::SameSide]), "{source} > {destination}");
    }
    let packet = ip6("fd01:203:405:1::1", REMOTE6, UDP, &data);
    single(&last(&settings, &[(Side::Inside, packet)]).0, Side::Outside);
}

#[test]
fn a_clat_sends_no_private_address_in_the_well_known_prefix() {
    let mut settings = settings();
    settings.ipv6.clat = Some(ClatSettings {
        prefix: pref64("64:ff9b::/96"),
        source: pref64("2001:db8:aaaa::/96"),
        subscribers: vec![Prefix::new([192, 168, 0, 0].into(), 16)],
    });
    let data = udp(1000, 2000, b"x");
    let private = ip4("192.168.1.5", "10.1.1.1", UDP, &data);
    let found = last(&settings, &[(Side::Inside, private)]);
    assert_eq!(found, (vec![], vec![DropReason::NotGlobal]));
    let back = ip6("64:ff9b::10.0.0.1", "2001:db8:aaaa::192.168.1.5", UDP, &data);
    let found = last(&settings, &[(Side::Outside, back)]);
    assert_eq!(found, (vec![], vec![DropReason::NotGlobal]));
    let public = ip4("192.168.1.5", "198.51.100.7", UDP, &data);
    single(&last(&settings, &[(Side::Inside, public)]).0, Side::Outside);
}

//= test rfc7915#section-4.1-df
#[test]
fn options_that_are_taken_out_do_not_count_for_the_length() {
    let mut settings = settings();
    settings.ipv6.siit = Some(siit(&["2001:db8:100::/40"], &[]));
    let with_options = |payload: usize| {
        let mut bytes = vec![0; 28 + payload];
        let total = bytes.len() as u16;
        let mut header = Ipv4::init(&mut bytes[..], 28);
        header.set_total_len(total);
        header.set_fragment_field(0x6000);
        header.set_ttl(64);
        header.set_protocol(UDP);
        header.set_source(v4("203.0.113.9"));
        header.set_destination(v4("192.0.2.33"));
        bytes[20..28].fill(1);
        let mut header = Ipv4::new_checked(&mut bytes[..]).unwrap();
        header.fill_checksum();
        bytes[28..36].copy_from_slice(&udp(1, 2, &vec![0; payload - 8])[..8]);
        bytes[34] = 1;
        bytes
    };
    let sent = last(&settings, &[(Side::Outside, with_options(1448))]).0;
    let [(Side::Inside, bytes)] = &sent[..] else { panic!("{sent:02x?}") };
    assert_eq!(bytes.len(), 40 + 8 + 1448);
    let sent = last(&settings, &[(Side::Outside, with_options(1456))]).0;
    let [(Side::Outside, bytes)] = &sent[..] else { panic!("{sent:02x?}") };
    assert_eq!(bytes[ipv4::HEADER_LEN..][..2], [3, 4]);
}

#[test]
fn one_network_gets_a_quarter_of_the_errors() {
    let mut settings = settings();
    settings.engine.limits.icmp_errors_per_second = 40;
    let expired = |host: &str| {
        let mut packet = ip6(host, REMOTE6, UDP, &udp(1000, 2000, b"x"));
        packet[7] = 1;
        (Side::Inside, 1.0, packet)
    };
    let mut came: Vec<Came> = (0..100).map(|_| expired("2001:db8:1:1::5")).collect();
    came.extend((0..100).map(|_| expired("2001:db8:1:2::5")));
    let outcomes = run(&settings, &came);
    let count = |sent: &[Vec<Sent>]| sent.iter().flatten().count();
    assert_eq!((count(&outcomes.sent[..100]), count(&outcomes.sent[100..])), (10, 10));
}

fn softwire() -> SoftwireSettings {
    SoftwireSettings { mtu: None, path_mtu: false }
}

fn lw4o6() -> Settings {
    let mut settings = settings();
    let address: Ipv6Addr = END.parse().unwrap();
    let binding = Binding {
        ipv4: SHARED.parse().unwrap(),
        sets: PortSets::new(0, 6).unwrap(),
        psid: 1,
        b4: HOST6.parse().unwrap(),
        br: address,
    };
    settings.ipv6.lw4o6 = Some(Lw4o6Settings {
        address,
        bindings: Arc::new(BindingTable::new(&[binding], address, 1).unwrap()),
        hairpinning: true,
        icmp_errors: true,
        inbound_icmp: true,
        softwire: softwire(),
    });
    settings
}

fn dslite() -> Settings {
    let mut settings = settings();
    settings.ipv6.dslite = Some(DsliteSettings {
        subscriber_length: 128,
        b4_change_interval: std::time::Duration::ZERO,
        address: END.parse().unwrap(),
        b4: vec![prefix6("2001:db8::", 32)],
        softwire: softwire(),
        static_hosts: Vec::new(),
    });
    settings
}

#[test]
fn nobody_outside_reaches_the_end_of_a_tunnel() {
    let inner = ip4(SHARED, "198.51.100.7", UDP, &udp(1100, 53, b"forged"));
    for settings in [lw4o6(), dslite()] {
        let forged = raw6(v6(HOST6), v6(END), 4, &inner);
        let (sent, dropped) = last(&settings, &[(Side::Outside, forged)]);
        assert_eq!((sent, dropped), (vec![], vec![DropReason::LocalUnsupported]));
        let ping = ip6(REMOTE6, END, ICMPV6, &echo(128, 7, b"ping"));
        let sent = last(&settings, &[(Side::Outside, ping)]).0;
        assert_eq!(ends6(single(&sent, Side::Outside)), ends(END, REMOTE6));
    }
}

/// A packet of IPv4 with a list of options, of four bytes at least, and a fragment field.
fn odd(source: &str, destination: &str, options: &[u8], field: u16, payload: &[u8]) -> Vec<u8> {
    let header_len = ipv4::HEADER_LEN + options.len();
    let mut bytes = vec![0; header_len + payload.len()];
    let total = bytes.len() as u16;
    let mut header = Ipv4::init(&mut bytes[..], header_len);
    header.set_total_len(total);
    header.set_fragment_field(field);
    header.set_ttl(64);
    header.set_protocol(TCP);
    header.set_source(v4(source));
    header.set_destination(v4(destination));
    bytes[ipv4::HEADER_LEN..header_len].copy_from_slice(options);
    bytes[header_len..].copy_from_slice(payload);
    Ipv4::new_checked(&mut bytes[..]).unwrap().fill_checksum();
    bytes
}

#[test]
fn packets_in_tunnels_obey_the_rules_of_all_packets() {
    let settings = lw4o6();
    let segment = tcp(1100, 80, 2);
    let cases: [(&[u8], u16, &[u8], DropReason); 5] = [
        (&[131, 7, 8, 1, 2, 3, 4, 0], 0, &segment, DropReason::SourceRoute),
        (&[137, 7, 4, 1, 2, 3, 4, 0], 0, &segment, DropReason::SourceRoute),
        (&[148, 1, 0, 0], 0, &segment, DropReason::BadOptions),
        (&[], 0x2000, &segment[..8], DropReason::FragmentTiny),
        (&[], 0x1fff, &[7; 64], DropReason::FragmentTooLong),
    ];
    for (options, field, payload, reason) in cases {
        let inner = odd(SHARED, "198.51.100.7", options, field, payload);
        let outer = raw6(v6(HOST6), v6(END), 4, &inner);
        let found = last(&settings, &[(Side::Inside, outer)]);
        assert_eq!(found, (vec![], vec![reason]), "from inside");
        if field != 0x1fff {
            let mut payload = payload.to_vec();
            payload[2..4].copy_from_slice(&1100_u16.to_be_bytes());
            let packet = odd("198.51.100.7", SHARED, options, field, &payload);
            let found = last(&settings, &[(Side::Outside, packet)]);
            assert_eq!(found, (vec![], vec![reason]), "from outside");
        }
    }
}

#[test]
fn what_a_tunnel_puts_together_is_cut_for_the_outside() {
    let settings = dslite();
    let inner = ip4("10.0.0.9", "198.51.100.7", UDP, &udp(1100, 53, &[7; 3000]));
    let outer = raw6(v6(HOST6), v6(END), 4, &inner);
    let parts = fragments6(&outer, 77, 1232);
    let came: Vec<_> = parts.into_iter().map(|part| (Side::Inside, part)).collect();
    let (sent, _) = last(&settings, &came);
    let lens: Vec<usize> = sent.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, [1500, 1500, 68]);
}

#[test]
fn customers_of_map_t_hear_that_the_way_to_each_other_is_narrow() {
    let mut settings = settings();
    let dmr = pref64("64:ff9b::/96");
    let rule = |ipv6: &str, ipv4: [u8; 4], mode| {
        MapRule::new(MapParameters {
            ipv6: prefix6(ipv6, 40),
            ipv4: Prefix::new(ipv4.into(), 24),
            ea_length: 8,
            psid_offset: 6,
            psid: None,
            mode,
        })
        .unwrap()
    };
    let translated = rule("2001:db8:1000::", [192, 0, 2, 0], MapMode::Translation(dmr));
    let tunneled =
        rule("2001:db8:2000::", [203, 0, 113, 0], MapMode::Encapsulation(END.parse().unwrap()));
    let narrow = SoftwireSettings { mtu: Some(1400), path_mtu: false };
    let map = |rule, softwire| MapSettings { rule, softwire };
    let customer =
        |rule: &MapRule, ipv4: [u8; 4]| rule.customer(ipv4.into(), 0).address.to_string();
    let from = customer(&translated, [192, 0, 2, 5]);
    let to = |ipv4: &str| embedded("64:ff9b::/96", ipv4);
    for (tables, destination, mtu) in [
        (vec![map(translated, softwire()), map(tunneled, softwire())], "203.0.113.6", 1480),
        (vec![map(translated, narrow)], "192.0.2.6", 1400),
    ] {
        settings.ipv6.map = tables;
        let big = ip6(&from, &to(destination), UDP, &udp(2000, 2000, &[7; 1442]));
        let sent = last(&settings, &[(Side::Inside, big.clone())]).0;
        let told = single(&sent, Side::Inside);
        let message = Icmpv6::new_checked(&told[40..]).unwrap();
        assert_eq!((message.kind(), message.word()), (2, mtu), "to {destination}");
        assert_eq!(message.body(), &big[..message.body().len()], "it quotes what came");
    }
}

/// External port of the mapping of port 4000 of a host of NAT64 to port 53.
fn mapped(settings: &Settings) -> (Vec<u8>, u16) {
    let to = embedded("64:ff9b::/96", "198.51.100.7");
    let question = ip6(HOST6, &to, UDP, &udp(4000, 53, b"question"));
    let sent = one(settings, Side::Inside, &question);
    let external = port(single(&sent, Side::Outside), 0);
    (question, external)
}

/// An IPv4 packet with a list of options before its payload.
fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let header = ipv4::HEADER_LEN + options.len();
    let mut bytes = [&packet[..ipv4::HEADER_LEN], options, &packet[ipv4::HEADER_LEN..]].concat();
    bytes[0] = 0x40 | (header / 4) as u8;
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    Ipv4::new_checked(&mut bytes[..]).unwrap().fill_checksum();
    bytes
}

#[test]
fn source_routes_to_hosts_of_nat64_go_by_the_rules_between_families() {
    let settings = with_nat64(&["64:ff9b::/96"]);
    let (question, external) = mapped(&settings);
    let answer = ip4("198.51.100.7", "203.0.113.1", UDP, &udp(53, external, b"answer"));
    let used_up = with_options(&answer, &[131, 7, 8, 1, 2, 3, 4, 0]);
    let came = [(Side::Inside, question.clone()), (Side::Outside, used_up)];
    let sent = last(&settings, &came).0;
    let whole =
        last(&settings, &[(Side::Inside, question.clone()), (Side::Outside, answer.clone())]);
    assert_eq!(sent, whole.0, "the options are gone");
    let unexpired = with_options(&answer, &[131, 7, 4, 1, 2, 3, 4, 0]);
    let (sent, dropped) = last(&settings, &[(Side::Inside, question), (Side::Outside, unexpired)]);
    let told = single(&sent, Side::Outside);
    assert_eq!((&told[20..22], dropped), (&[3, 5][..], vec![DropReason::SourceRoute]));
    // Nobody else gets a packet with a source route.
    let out = ip4("10.0.0.5", "198.51.100.7", UDP, &udp(4000, 53, b"question"));
    let external = port(single(&one(&settings, Side::Inside, &out), Side::Outside), 0);
    let answer = ip4("198.51.100.7", "203.0.113.1", UDP, &udp(53, external, b"answer"));
    let used_up = with_options(&answer, &[131, 7, 8, 1, 2, 3, 4, 0]);
    let found = last(&settings, &[(Side::Inside, out), (Side::Outside, used_up)]);
    assert_eq!(found, (vec![], vec![DropReason::SourceRoute]));
}

#[test]
fn errors_from_any_source_reach_hosts_of_nat64() {
    let settings = with_nat64(&["64:ff9b::/96"]);
    let (question, _) = mapped(&settings);
    let out = one(&settings, Side::Inside, &question).remove(0).1;
    for source in ["127.0.0.1", "0.0.0.0", "240.0.0.1", "10.0.0.1"] {
        let told = ip4(source, "203.0.113.1", ICMP, &error(11, 0, 0, &out));
        let sent = last(&settings, &[(Side::Inside, question.clone()), (Side::Outside, told)]).0;
        let told = single(&sent, Side::Inside);
        assert_eq!(ends6(told), ends(OWN_INSIDE, HOST6), "from {source}");
        assert_eq!(told[40..42], [3, 0]);
    }
    // An error about nothing, and a packet that is no error.
    let mut other = out.clone();
    other[12..16].copy_from_slice(&[203, 0, 113, 2]);
    let about_none = ip4("127.0.0.1", "203.0.113.1", ICMP, &error(11, 0, 0, &other));
    let ping = ip4("127.0.0.1", "203.0.113.1", ICMP, &echo(8, 7, b"ping"));
    for packet in [about_none, ping] {
        let found = last(&settings, &[(Side::Inside, question.clone()), (Side::Outside, packet)]);
        assert_eq!(found, (vec![], vec![DropReason::MartianSource]));
    }
}

//= test rfc6146#section-3.4-zero-discard
#[test]
fn no_fragment_of_a_datagram_without_checksum_reaches_a_host() {
    let settings = with_nat64(&["64:ff9b::/96"]);
    let (question, external) = mapped(&settings);
    let mut whole = ip4("198.51.100.7", "203.0.113.1", UDP, &udp(53, external, &[7; 48]));
    let part = |whole: &[u8], from: usize, to: usize, identification: u16| {
        let mut bytes = [&whole[..20], &whole[20 + from..20 + to]].concat();
        let more = if to + 20 < whole.len() { 0x2000 } else { 0 };
        let field = more | (from / 8) as u16;
        let mut header = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
        header.set_total_len((20 + to - from) as u16);
        header.set_fragment_field(field);
        bytes[4..6].copy_from_slice(&identification.to_be_bytes());
        Ipv4::new_checked(&mut bytes[..]).unwrap().fill_checksum();
        (Side::Outside, bytes)
    };
    let parts =
        |whole: &[u8], id| [(0, 24), (24, 40), (40, 56)].map(|(a, b)| part(whole, a, b, id));
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        whole[26..28].fill(0);
        let of = |parts: &[(Side, Vec<u8>)]| {
            let mut came: Vec<Came> = vec![(Side::Inside, 1.0, question.clone())];
            came.extend(order.iter().map(|place: &usize| {
                let (side, bytes) = parts[*place].clone();
                (side, 1.5, bytes)
            }));
            run(&settings, &came).sent[1..].iter().flatten().count()
        };
        assert_eq!(of(&parts(&whole, 77)), 0, "without a checksum, {order:?}");
        let good = ip4("198.51.100.7", "203.0.113.1", UDP, &udp(53, external, &[7; 48]));
        assert_eq!(of(&parts(&good, 77)), 3, "with a checksum, {order:?}");
    }
}
