//! Former errors. Each case says what a packet, or a configuration, could cause.

mod common;

use common::*;
use natgate_engine::{
    Behavior, Config, DropReason, Match, Prefix, Rule, RuleAction, Side, StaticMapping, Verdict,
};
use natgate_wire::{Ipv4, protocol};
use std::net::Ipv4Addr;

fn whole(protocol: Option<u8>, internal: &str, external: &str) -> StaticMapping {
    let address = |text: &str| Ipv4Addr::from_bits(endpoint(text).0);
    StaticMapping {
        protocol,
        internal: (address(internal), None),
        external: (address(external), None),
        ..StaticMapping::default()
    }
}

fn by_source(prefix: &str, len: u8, port: u16, action: RuleAction) -> Rule {
    let prefix = Prefix::new(Ipv4Addr::from_bits(endpoint(prefix).0), len);
    Rule::new(Match::Source(prefix, port), action)
}

/// The two fragments of a datagram.
fn halves(datagram: &[u8]) -> [Vec<u8>; 2] {
    let middle = 20 + (datagram.len() - 20) / 2 / 8 * 8;
    let part = |bytes: &[u8], field: u16| {
        let mut part = [&datagram[..20], bytes].concat();
        let total_len = part.len() as u16;
        let mut packet = Ipv4::new_header_checked(&mut part[..]).unwrap();
        packet.set_total_len(total_len);
        packet.set_fragment_field(field);
        packet.fill_checksum();
        part
    };
    [part(&datagram[20..middle], 0x2000), part(&datagram[middle..], (middle as u16 - 20) / 8)]
}

/// A stranger that the filter admitted took the place of a mapping's own remote endpoint, and the
/// index no longer found the mapping.
#[test]
fn a_stranger_does_not_take_the_place_of_the_mappings_remote() {
    for filtering in [Behavior::EndpointIndependent, Behavior::AddressDependent] {
        let mapping = Behavior::AddressAndPortDependent;
        let mut lab = Lab::new(&Config { mapping, filtering, ..config() });
        let external = lab.external_of(&udp("10.0.0.5:1000", "198.51.100.7:80"));
        lab.wait_s(200.0);
        lab.inward(&udp("198.51.100.7:5", &external));
        lab.wait_s(150.0);
        lab.inward(&udp("198.51.100.7:81", &external));
        lab.wait_s(1000.0);
        assert_eq!(lab.engine.mappings().count(), 0);
    }
}

/// Sessions of one mapping with one remote address had one hash. The cost of their search grew with
/// their number, and a search could run for ever.
#[test]
fn many_sessions_with_one_address_stay_cheap_to_tell_apart() {
    let mut limited = Config { filtering: Behavior::AddressDependent, ..config() };
    limited.limits.extra_sessions = Some(60);
    let mut lab = Lab::new(&limited);
    for round in 1..50 {
        for port in 1..60 {
            lab.out(&udp("10.0.0.5:1000", &format!("198.51.100.{round}:{port}")));
        }
        let last = udp("10.0.0.5:1000", &format!("198.51.100.{round}:59"));
        for _ in 0..2 {
            lab.wait_s(175.0);
            lab.out(&last);
        }
        let external = ends(&lab.out(&last)).0;
        lab.inward(&udp(&format!("198.51.100.{round}:999"), &external));
        let stranger = udp("198.51.100.250:1", &external);
        assert_eq!(lab.refused(Side::Outside, &stranger), DropReason::Filtered);
        lab.wait_s(301.0);
    }
    assert_eq!(lab.engine.sessions().count(), 0);
}

/// The protocol of a whole-address mapping was ignored.
#[test]
fn a_whole_address_is_mapped_for_its_protocol_only() {
    let port = |protocol, internal: &str, external: &str| {
        let part = |text: &str| (Ipv4Addr::from_bits(endpoint(text).0), Some(endpoint(text).1));
        StaticMapping {
            protocol,
            internal: part(internal),
            external: part(external),
            ..StaticMapping::default()
        }
    };
    let mut lab = Lab::new(&Config {
        statics: vec![
            whole(Some(protocol::TCP), "10.0.0.80", "203.0.113.9"),
            port(Some(protocol::UDP), "10.0.0.81:53", "203.0.113.9:53"),
        ],
        ..config()
    });
    assert!(lab.external_of(&udp("10.0.0.80:53", REMOTE)).starts_with("203.0.113.1:"));
    assert_eq!(lab.external_of(&tcp("10.0.0.80:53", REMOTE, "S", 1, 0)), "203.0.113.9:53");
    assert_eq!(ends(&lab.inward(&udp(REMOTE, "203.0.113.9:53"))).1, "10.0.0.81:53");
    let stray = udp(REMOTE, "203.0.113.9:54");
    assert_eq!(lab.refused(Side::Outside, &stray), DropReason::NoMapping);
    let gre = ip(47, endpoint("198.51.100.7").0, endpoint("203.0.113.9").0, b"tunnel");
    assert_eq!(lab.refused(Side::Outside, &gre), DropReason::NoMapping);
}

/// Strangers could fill the table of mappings through a whole mapped address.
#[test]
fn knocking_at_a_static_address_leaves_subscribers_their_room() {
    let mut limited = Config { statics: vec![whole(None, "10.0.0.80", "203.0.113.9")], ..config() };
    limited.limits.mappings = Some(100);
    let mut lab = Lab::new(&limited);
    let mut admitted = 0;
    for port in 1..6000 {
        let knock = udp("198.51.100.9:7", &format!("203.0.113.9:{port}"));
        let (verdict, _) = lab.pass(Side::Outside, &knock);
        admitted += u32::from(verdict == Verdict::Forward(Side::Inside));
    }
    assert_eq!(admitted, 4096);
    for port in 1..=100 {
        lab.out(&udp(&format!("10.0.0.5:{port}"), REMOTE));
    }
    assert_eq!(lab.refused(Side::Inside, &udp("10.0.0.6:1", REMOTE)), DropReason::MappingTableFull);
    lab.wait_s(400.0);
    assert_eq!(lab.engine.mappings().count(), 0);
    lab.inward(&udp("198.51.100.9:7", "203.0.113.9:5999"));
}

/// Rules that look at ports decided about later fragments, which have no ports, on their own. The
/// fragments left untranslated.
#[test]
fn the_first_fragment_speaks_for_its_datagram_before_the_rules() {
    let rules = [
        vec![
            by_source("10.0.0.0", 16, 0, RuleAction::Bypass),
            by_source("10.0.0.0", 16, 77, RuleAction::Snat(0)),
        ],
        vec![by_source("10.0.0.0", 16, 77, RuleAction::Bypass)],
        vec![by_source("77.0.0.0", 8, 77, RuleAction::Snat(0))],
    ];
    for (rules, inner, translated) in [
        (&rules[0], "10.0.0.5:77", true),
        (&rules[1], "10.0.0.5:77", false),
        (&rules[2], "77.0.0.5:77", true),
    ] {
        for order in [[0, 1], [1, 0]] {
            let mut lab = Lab::new(&Config { rules: rules.clone(), ..config() });
            let parts = halves(&udp_with(inner, REMOTE, &[1; 64]));
            let mut sources = Vec::new();
            for n in order {
                let (verdict, bytes) = lab.pass(Side::Inside, &parts[n]);
                if verdict == Verdict::Forward(Side::Outside) {
                    sources.push(bytes);
                }
                sources.extend(lab.sent.drain(..).map(|(_, _, bytes)| bytes));
            }
            assert_eq!(sources.len(), 2, "{order:?} {rules:?}");
            let outside = endpoint("203.0.113.1").0;
            for bytes in sources {
                let source = Ipv4::new_checked(&bytes[..]).unwrap().source();
                assert_eq!(source == outside, translated, "{order:?} {rules:?}");
            }
        }
    }
}

/// An ICMP error about a flow that a rule with a port does not translate was refused.
#[test]
fn errors_about_bypassed_flows_pass_too() {
    let rules = vec![by_source("10.0.0.0", 16, 4500, RuleAction::Bypass)];
    let mut lab = Lab::new(&Config { rules, ..config() });
    let out = lab.out(&udp("10.0.0.5:4500", REMOTE));
    let told = lab.inward(&error("192.0.2.9", "10.0.0.5", 3, 4, &out));
    assert_eq!(told[28..], out);
    let back = lab.inward(&udp(REMOTE, "10.0.0.5:4500"));
    let told = lab.out(&error("10.0.0.5", "198.51.100.7", 3, 3, &back));
    assert_eq!(ends(&told).0, "10.0.0.5");
    let other = error("192.0.2.9", "10.0.0.5", 3, 4, &udp("10.0.0.5:4501", REMOTE));
    assert_eq!(lab.refused(Side::Outside, &other), DropReason::NotForUs);
}

/// A UDP-Lite packet without a checksum got one, although a rule let it bypass translation.
#[test]
fn nothing_behind_the_header_of_a_bypassed_packet_changes() {
    let rules = vec![by_source("10.0.0.0", 16, 0, RuleAction::Bypass)];
    let mut lab = Lab::new(&Config { rules, ..config() });
    for protocol in 0..=255 {
        let (source, destination) = (endpoint("10.0.0.5:0").0, endpoint(REMOTE).0);
        let sent = ip(protocol, source, destination, &[0; 24]);
        let (verdict, bytes) = lab.pass(Side::Inside, &sent);
        let is_sound = verdict == Verdict::Forward(Side::Outside);
        assert!(!is_sound || bytes[20..] == sent[20..], "protocol {protocol}");
        assert!(is_sound || protocol != 136, "UDP-Lite passes: {verdict:?}");
    }
}

/// A rule by destination did not admit sources that are no subscribers.
#[test]
fn whom_a_rule_names_is_translated() {
    let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
    let rule = Rule::new(Match::Destination(prefix, 0), RuleAction::Snat(0));
    let mut lab = Lab::new(&Config { rules: vec![rule], ..config() });
    assert!(lab.external_of(&udp("13.1.1.1:5", REMOTE)).starts_with("203.0.113.1:"));
    assert_eq!(
        lab.refused(Side::Inside, &udp("13.1.1.1:5", "192.0.2.9:5")),
        DropReason::NotSubscriber
    );
}

/// Times near the end of time overflowed.
#[test]
fn the_end_of_time_is_not_the_end() {
    let mut lab = Lab::new(&config());
    lab.now = natgate_engine::Timestamp(u64::MAX - 5);
    lab.wait_s(0.0);
    lab.out(&udp("10.0.0.5:4000", REMOTE));
    lab.out(&udp("10.0.0.5:4001", REMOTE));
    assert!(lab.engine.next_deadline().is_some());
    assert_eq!(lab.engine.mappings().count(), 2);
}

/// A first fragment that ends within the TCP options is whole enough.
#[test]
fn a_first_fragment_may_end_within_the_options() {
    let mut lab = Lab::new(&config());
    let mut syn = tcp("10.0.0.5:4000", REMOTE, "S", 1, 0);
    syn.extend_from_slice(&[2, 4, 5, 0xb4, 1, 1, 1, 1, 1, 1, 1, 0]);
    syn[32] = 8 << 4;
    let total_len = syn.len() as u16;
    Ipv4::new_header_checked(&mut syn[..]).unwrap().set_total_len(total_len);
    let middle = 20 + 24;
    let mut first = syn[..middle].to_vec();
    let mut packet = Ipv4::new_header_checked(&mut first[..]).unwrap();
    packet.set_total_len(middle as u16);
    packet.set_fragment_field(0x2000);
    packet.fill_checksum();
    let (verdict, _) = lab.pass(Side::Inside, &first);
    assert_eq!(verdict, Verdict::Forward(Side::Outside));
}

/// Configurations that the engine cannot run are refused at the start.
#[test]
fn contradictions_are_refused_at_the_start() {
    let refused = |config: Config| {
        let start = natgate_engine::Timestamp(0);
        natgate_engine::Engine::new(&config, [0; 32], start).map(|_| ()).unwrap_err().message
    };
    let rules = vec![by_source("10.0.0.0", 8, 0, RuleAction::Snat(7))];
    assert!(refused(Config { rules, ..config() }).contains("pool"));
    let mut timeless = config();
    timeless.timeouts.fragment = std::time::Duration::ZERO;
    assert!(refused(timeless).contains("fragment"));
    let twice = vec![pool("203.0.113.1", "203.0.113.9", (1, 9)); 2];
    assert!(refused(Config { pools: twice, ..config() }).contains("203.0.113.1"));
    let one = StaticMapping {
        protocol: None,
        internal: (Ipv4Addr::new(10, 0, 0, 5), Some(1)),
        external: (Ipv4Addr::new(203, 0, 113, 1), Some(1)),
        ..StaticMapping::default()
    };
    assert!(refused(Config { statics: vec![one; 2], ..config() }).contains("203.0.113.1:1"));
}

/// The last port of the last address looked like the end of the list of held ports.
#[test]
fn the_last_port_of_the_largest_pool_is_released() {
    let mut large =
        Config { pools: vec![pool("16.0.0.0", "16.0.127.254", (65535, 65535))], ..config() };
    large.limits.mappings = Some(1000);
    large.port_parity = false;
    large.statics = vec![];
    let mut lab = Lab::new(&large);
    for n in 0..500 {
        lab.out(&udp(&format!("10.0.{}.{}:5", n / 200, 10 + n % 200), REMOTE));
    }
    lab.wait_s(500.0);
    let usage = lab.engine.pool_usage(0, protocol::UDP);
    assert_eq!((usage.free, usage.held, usage.used), (32767, 0, 0));
    large.pools[0].addresses[0].last = "16.0.127.255".parse().unwrap();
    assert!(natgate_engine::Engine::new(&large, [0; 32], natgate_engine::Timestamp(0)).is_err());
}

/// Any remote host could send a SYN on a present connection, and then a matching RST: the SYN told
/// the translator the sequence number that the inside expected.
//= test rfc7857#section-2.2
#[test]
fn a_forged_syn_does_not_make_a_forged_rst_valid() {
    let established = |lab: &mut Lab| {
        let at = lab.external_of(&tcp("10.0.0.5:4000", REMOTE, "S", 1000, 0));
        lab.inward(&tcp(REMOTE, &at, "SA", 5000, 1001));
        lab.out(&tcp("10.0.0.5:4000", REMOTE, "A", 1001, 5001));
        at
    };
    for forged in [5001, 5001_u32.wrapping_add(1 << 20), 5001 + (1 << 30), 0x9000_0000] {
        let mut lab = Lab::new(&config());
        let at = established(&mut lab);
        lab.inward(&tcp(REMOTE, &at, "S", forged.wrapping_sub(1), 0));
        lab.inward(&tcp(REMOTE, &at, "SA", forged.wrapping_sub(1), 1001));
        lab.inward(&tcp(REMOTE, &at, "R", forged, 0));
        let states: Vec<_> = lab.engine.sessions().map(|session| session.state).collect();
        assert_eq!(states, [if forged == 5001 { "transitory" } else { "established" }]);
    }
}

const INTERNAL: &str = "10.0.0.5:4000";

fn established() -> (Lab, String) {
    let mut lab = Lab::new(&config());
    let at = lab.external_of(&tcp(INTERNAL, REMOTE, "S", 100, 0));
    lab.inward(&tcp(REMOTE, &at, "SA", 500, 101));
    lab.out(&tcp(INTERNAL, REMOTE, "A", 101, 501));
    (lab, at)
}

/// A forged SYN after a RST put a live connection into an opening state, in which its traffic no
/// longer refreshed it.
#[test]
fn a_forged_syn_after_a_reset_does_not_end_a_connection_that_goes_on() {
    let (mut lab, at) = established();
    lab.inward(&tcp(REMOTE, &at, "R", 501, 0));
    lab.inward(&tcp(REMOTE, &at, "S", 12_345, 0));
    for second in 0..60 {
        lab.wait_s(10.0);
        lab.out(&tcp(INTERNAL, REMOTE, "A", 101 + second, 501));
        lab.inward(&tcp(REMOTE, &at, "A", 501, 101 + second));
    }
}

/// A forged FIN counted as the other half of a close, and a long download after a short upload
/// ended.
#[test]
fn a_forged_fin_does_not_end_a_half_closed_connection() {
    for forged in [501 + 0x10_0000, 501_u32.wrapping_sub(0x10_0000), 0x5555_5555, 0xaaaa_aaaa] {
        let mut lab = Lab::new(&config());
        // Both have a scale of 4: a window of at most a mebibyte.
        let scaled = |from: &str, to: &str| syn_with(from, to, &[3, 3, 4, 0]);
        let at = lab.external_of(&scaled(INTERNAL, REMOTE));
        let mut answer = scaled(REMOTE, &at);
        answer[33] = 0x12;
        answer[28..32].copy_from_slice(&2_u32.to_be_bytes());
        answer[24..28].copy_from_slice(&500_u32.to_be_bytes());
        lab.pass(Side::Outside, &answer);
        lab.out(&tcp(INTERNAL, REMOTE, "A", 2, 501));
        lab.inward(&tcp(REMOTE, &at, "F", forged, 0));
        lab.out(&tcp(INTERNAL, REMOTE, "FA", 2, 501));
        for n in 0..60 {
            lab.wait_s(10.0);
            lab.inward(&tcp(REMOTE, &at, "A", 501 + n, 3));
            lab.out(&tcp(INTERNAL, REMOTE, "A", 3, 502 + n));
        }
        lab.inward(&tcp(REMOTE, &at, "FA", 561, 3));
        lab.wait_s(241.0);
        assert_eq!(lab.engine.mappings().count(), 0);
    }
}

/// Strangers, each packet from another port, filled the table of further sessions, and no
/// subscriber could reach a second remote endpoint.
#[test]
fn strangers_leave_subscribers_half_of_the_sessions() {
    let mut limited = config();
    limited.limits.extra_sessions = Some(1000);
    limited.limits.extra_sessions_per_subscriber = Some(1000);
    let mut lab = Lab::new(&limited);
    let ends: Vec<String> = (1000..1020)
        .map(|port| lab.external_of(&udp(&format!("10.0.0.6:{port}"), REMOTE)))
        .collect();
    let admitted = ends
        .iter()
        .flat_map(|end| (1..64).map(move |port| udp(&format!("198.51.100.66:{port}"), end)))
        .filter(|packet| matches!(lab.pass(Side::Outside, packet).0, Verdict::Forward(_)))
        .count();
    assert_eq!(admitted, 500);
    lab.out(&udp("10.0.0.5:1000", "198.51.100.1:53"));
    for host in 2..=64 {
        lab.out(&udp("10.0.0.5:1000", &format!("198.51.100.{host}:53")));
    }
    assert_eq!(
        lab.refused(Side::Outside, &udp("198.51.100.67:1", &ends[19])),
        DropReason::SessionTableFull
    );
    lab.wait_s(301.0);
    assert_eq!(lab.engine.sessions().count(), 0);
    let end = lab.external_of(&udp("10.0.0.6:1000", REMOTE));
    lab.inward(&udp("198.51.100.67:1", &end));
}

/// One subscriber within its quotas of mappings could take all further sessions.
#[test]
fn a_subscriber_gets_a_share_of_the_sessions() {
    let mut limited = config();
    limited.limits.extra_sessions_per_subscriber = Some(100);
    let mut lab = Lab::new(&limited);
    let mut made = 0;
    for port in 1000..1010 {
        for remote in 1..=21 {
            let packet = udp(&format!("10.0.0.5:{port}"), &format!("198.51.100.{remote}:53"));
            match lab.pass(Side::Inside, &packet).0 {
                Verdict::Drop(reason) => assert_eq!(reason, DropReason::SessionLimit),
                _ => made += 1,
            }
        }
    }
    assert_eq!(made, 10 + 100);
    lab.out(&udp("10.0.0.6:1000", "198.51.100.1:53"));
    lab.out(&udp("10.0.0.6:1000", "198.51.100.2:53"));
    lab.wait_s(301.0);
    for remote in 1..=60 {
        lab.out(&udp("10.0.0.5:1000", &format!("198.51.100.{remote}:53")));
    }
}

/// A server behind a static mapping could have only as many clients as a subscriber's socket.
#[test]
fn a_static_server_has_as_many_clients_as_come() {
    let endpoint = |text: &str, port| (text.parse().unwrap(), Some(port));
    let web = StaticMapping {
        protocol: Some(protocol::TCP),
        internal: endpoint("10.0.0.80", 80),
        external: endpoint("203.0.113.1", 80),
        ..StaticMapping::default()
    };
    let mut lab = Lab::new(&Config { statics: vec![web], ..config() });
    for client in 0..1000 {
        lab.inward(&tcp(&format!("198.51.100.7:{}", 1024 + client), "203.0.113.1:80", "S", 1, 0));
    }
}

/// Without refresh from outside, strangers nevertheless kept a mapping: each new session had a time
/// of its own (RFC 4787 section 12).
//= test rfc4787#REQ-6a
#[test]
fn without_inbound_refresh_strangers_do_not_keep_a_mapping() {
    let mut lab = Lab::new(&Config { inbound_refresh: false, ..config() });
    let at = lab.external_of(&udp(INTERNAL, REMOTE));
    for port in 1000..1024 {
        lab.wait_s(290.0);
        lab.pass(Side::Outside, &udp(&format!("198.51.100.66:{port}"), &at));
    }
    assert_eq!(lab.engine.mappings().count(), 0);
}

/// A packet from outside with a source of the inside network is forged.
#[test]
fn sources_of_the_inside_network_do_not_come_from_outside() {
    let mut lab = Lab::new(&config());
    let at = lab.external_of(&udp(INTERNAL, REMOTE));
    assert_eq!(lab.refused(Side::Outside, &udp("10.0.0.6:53", &at)), DropReason::SpoofedSource);
}

#[test]
fn link_local_addresses_are_not_forwarded() {
    let mut lab = Lab::new(&config());
    let metadata = udp(INTERNAL, "169.254.169.254:80");
    assert_eq!(lab.refused(Side::Inside, &metadata), DropReason::MartianDestination);
    let from = udp("169.254.1.1:80", "203.0.113.1:4000");
    assert_eq!(lab.refused(Side::Outside, &from), DropReason::MartianSource);
}

/// A SYN in `transitory`, forged or not, resets the known sequence numbers and teaches none.
/// Before, it made the forger's RST valid and the genuine RST invalid.
#[test]
fn a_forged_syn_in_transitory_teaches_nothing() {
    let state = |lab: &Lab| lab.engine.sessions().next().map(|session| session.state);
    for forged in [0_u32, 0x4000_0000, 0x5555_5555, 0x9000_0000] {
        let (mut lab, at) = established();
        lab.inward(&tcp(REMOTE, &at, "R", 501, 0));
        lab.inward(&tcp(REMOTE, &at, "S", forged, 0));
        lab.out(&tcp(INTERNAL, REMOTE, "A", 101, 501));
        lab.inward(&tcp(REMOTE, &at, "A", 501, 101));
        lab.inward(&tcp(REMOTE, &at, "R", forged.wrapping_add(1), 0));
        assert_eq!(state(&lab), Some("established"), "the forger's, {forged:x}");
        lab.inward(&tcp(REMOTE, &at, "R", 501, 0));
        assert_eq!(state(&lab), Some("transitory"), "the genuine one, {forged:x}");
    }
}

/// Without refresh from outside, the remote nevertheless kept a connection's mapping: any of its
/// segments led back from `transitory` to `established`.
#[test]
fn without_inbound_refresh_the_remote_does_not_keep_a_connection() {
    let mut lab = Lab::new(&Config { inbound_refresh: false, ..config() });
    let at = lab.external_of(&tcp(INTERNAL, REMOTE, "S", 100, 0));
    lab.inward(&tcp(REMOTE, &at, "SA", 500, 101));
    lab.out(&tcp(INTERNAL, REMOTE, "A", 101, 501));
    for _ in 0..90 {
        lab.wait_s(100.0);
        lab.pass(Side::Outside, &tcp(REMOTE, &at, "A", 501, 101));
    }
    assert_eq!(lab.engine.mappings().count(), 0);
}

/// Strangers whose segments are picked up do not keep a mapping either.
#[test]
fn without_inbound_refresh_strangers_whom_pickup_admits_do_not_keep_a_mapping() {
    let mut lab = Lab::new(&Config { inbound_refresh: false, tcp_pickup: true, ..config() });
    let at = lab.external_of(&tcp(INTERNAL, REMOTE, "S", 100, 0));
    for port in 1000..1050 {
        lab.wait_s(100.0);
        lab.pass(Side::Outside, &tcp(&format!("198.51.100.66:{port}"), &at, "A", 501, 101));
    }
    assert_eq!(lab.engine.mappings().count(), 0);
}
