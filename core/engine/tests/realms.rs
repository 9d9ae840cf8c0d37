//! Realms: networks that use the same addresses. Only their numbers tell them apart.

mod common;

use common::{Lab, config, cut, ends, error, force, pool, set_ttl, tcp, udp, udp_with};
use natgate_engine::{
    Allocation, BlockConfig, Change, Class, ClassLimits, Config, DeterministicConfig, DropReason,
    Engine, Match, Packet, PoolConfig, Prefix, RealmConfig, Rule, RuleAction, RuleSet, Side,
    SideConfig, StaticMapping, Timestamp, Totals, Verdict,
};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::time::Duration;

const A: u16 = 0;
const B: u16 = 1;
const C: u16 = 2;
const SERVER: &str = "198.51.100.1:80";

fn prefix(text: &str, len: u8) -> Prefix {
    Prefix::new(text.parse().unwrap(), len)
}

fn realm(name: &str) -> RealmConfig {
    RealmConfig {
        name: name.into(),
        inside: SideConfig {
            address: Some(Ipv4Addr::new(10, 0, 0, 253)),
            network: Some(prefix("10.0.0.0", 24)),
            ..SideConfig::default()
        },
        subscribers: vec![prefix("10.0.0.0", 8)],
        ..RealmConfig::default()
    }
}

/// Three realms with the same addresses and one pool.
fn three() -> Config {
    Config { realms: vec![realm("b"), realm("c")], ..config() }
}

/// Passes one packet. Returns the verdict, the realm that it leaves to, and its bytes.
fn pass(lab: &mut Lab, from: Side, realm: u16, bytes: &[u8]) -> (Verdict, u16, Vec<u8>) {
    let mut buffer = bytes.to_vec();
    let mut packets = [Packet::new(&mut buffer, 0).in_realm(realm)];
    let mut verdicts = [Verdict::Held];
    lab.engine.process(lab.now, from, &mut packets, &mut verdicts);
    (verdicts[0], packets[0].realm(), packets[0].bytes().to_vec())
}

/// The external endpoint of a packet from a realm.
fn out(lab: &mut Lab, realm: u16, bytes: &[u8]) -> String {
    let (verdict, _, bytes) = pass(lab, Side::Inside, realm, bytes);
    assert_eq!(verdict, Verdict::Forward(Side::Outside));
    ends(&bytes).0
}

/// The realm and the endpoint that a packet from outside reaches.
fn inward(lab: &mut Lab, bytes: &[u8]) -> (u16, String) {
    let (verdict, realm, bytes) = pass(lab, Side::Outside, 0, bytes);
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    (realm, ends(&bytes).1)
}

/// The realm that a hairpinned packet goes to, and its endpoints.
fn hairpin(lab: &mut Lab, realm: u16, bytes: &[u8]) -> (u16, (String, String)) {
    let (verdict, realm, bytes) = pass(lab, Side::Inside, realm, bytes);
    assert_eq!(verdict, Verdict::Forward(Side::Inside));
    (realm, ends(&bytes))
}

fn refused(lab: &mut Lab, from: Side, realm: u16, bytes: &[u8]) -> DropReason {
    match pass(lab, from, realm, bytes).0 {
        Verdict::Drop(reason) => reason,
        other => panic!("{other:?} instead of a drop"),
    }
}

#[test]
fn the_same_endpoint_of_two_realms_is_two_subscribers() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    let externals = [A, B, C].map(|realm| out(&mut lab, realm, &packet));
    assert!(externals[0] != externals[1] && externals[1] != externals[2]);
    for (realm, external) in [A, B, C].into_iter().zip(&externals) {
        // The session's second packet goes the quick way.
        assert_eq!(&out(&mut lab, realm, &packet), external);
        let answer = udp(SERVER, external);
        assert_eq!(inward(&mut lab, &answer), (realm, "10.0.0.5:4000".into()));
    }
    lab.wait_s(0.0);
    let mut realms: Vec<u16> = lab.created().iter().map(|id| id.realm).collect();
    realms.sort_unstable();
    assert_eq!(realms, [A, B, C]);
}

#[test]
fn quotas_are_each_realms_own() {
    let mut config = three();
    config.limits.udp_ports = 1;
    let mut lab = Lab::new(&config);
    for realm in [A, B] {
        out(&mut lab, realm, &udp("10.0.0.5:4000", SERVER));
        let more = udp("10.0.0.5:4001", SERVER);
        assert_eq!(refused(&mut lab, Side::Inside, realm, &more), DropReason::PortQuota);
    }
    let told: Vec<u16> = std::iter::from_fn(|| lab.engine.poll_event())
        .filter_map(|event| match event.change {
            Change::QuotaReached { realm, .. } => Some(realm),
            _ => None,
        })
        .collect();
    assert_eq!(told, [A, B]);
    let mut buffer = [0; 65_535];
    let realms: Vec<u16> = std::iter::from_fn(|| {
        lab.engine.poll_transmit(&mut buffer)?;
        Some(lab.engine.transmit_realm())
    })
    .collect();
    assert_eq!(realms, [A, B], "each is told in its own realm");
}

#[test]
fn subscribers_rules_and_pools_are_each_realms_own() {
    let mut config = three();
    config.pools.push(pool("203.0.113.9", "203.0.113.9", (1024, 65535)));
    config.realms[0].default_pool = 1;
    config.realms[0].subscribers = vec![prefix("10.0.0.0", 25)];
    let all = Match::Destination(prefix("198.51.100.0", 24), 0);
    config.realms[1].rules = vec![Rule::new(all, RuleAction::Drop)];
    let mut lab = Lab::new(&config);
    let (low, high) = (udp("10.0.0.5:4000", SERVER), udp("10.0.0.200:4000", SERVER));
    assert!(out(&mut lab, A, &low).starts_with("203.0.113.1:"));
    assert!(out(&mut lab, B, &low).starts_with("203.0.113.9:"));
    out(&mut lab, A, &high);
    assert_eq!(refused(&mut lab, Side::Inside, B, &high), DropReason::NotSubscriber);
    assert_eq!(refused(&mut lab, Side::Inside, C, &low), DropReason::Rule);
}

#[test]
fn a_class_of_a_realm_goes_before_one_of_all() {
    let class = |realm, limit| Class {
        name: format!("{realm:?}"),
        subscribers: vec![prefix("10.0.0.0", 24)],
        realm,
        limits: ClassLimits { udp_ports: Some(limit), ..ClassLimits::default() },
        total: Totals::default(),
    };
    let config = Config { classes: vec![class(Some(B), 1), class(None, 2)], ..three() };
    let mut lab = Lab::new(&config);
    for (realm, limit) in [(A, 2), (B, 1), (C, 2)] {
        let packet = |port: u16| udp(&format!("10.0.0.5:{}", 4000 + port), SERVER);
        for port in 0..limit {
            out(&mut lab, realm, &packet(port));
        }
        let more = packet(limit);
        assert_eq!(refused(&mut lab, Side::Inside, realm, &more), DropReason::PortQuota);
    }
}

#[test]
fn a_reconfiguration_is_about_the_realm_that_it_changes() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    let externals = [A, B, C].map(|realm| out(&mut lab, realm, &packet));
    let mut config = three();
    config.pools.push(pool("203.0.113.9", "203.0.113.9", (1024, 65535)));
    config.realms[0].subscribers = vec![prefix("10.9.0.0", 24)];
    config.realms[1].default_pool = 1;
    config.realms[1].rules =
        vec![Rule::new(Match::Destination(prefix("192.0.2.128", 25), 0), RuleAction::Drop)];
    force(&mut lab.engine, lab.now, &config).expect("it is not refused");
    assert_eq!(refused(&mut lab, Side::Inside, B, &packet), DropReason::NotSubscriber);
    let answer = udp(SERVER, &externals[1]);
    assert_eq!(refused(&mut lab, Side::Outside, 0, &answer), DropReason::NoMapping);
    for (realm, external) in [(A, &externals[0]), (C, &externals[2])] {
        assert_eq!(&out(&mut lab, realm, &packet), external);
    }
    lab.wait_s(0.0);
    assert!(lab.engine.is_settled());
    assert_eq!(lab.engine.departed(), (2, [1, 0, 0, 0]));
    let dropped = udp("10.0.0.6:4000", "192.0.2.200:80");
    assert_eq!(refused(&mut lab, Side::Inside, C, &dropped), DropReason::Rule);
    out(&mut lab, A, &dropped);
    assert!(out(&mut lab, C, &udp("10.0.0.7:4000", SERVER)).starts_with("203.0.113.9:"));
}

/// Puts another configuration in force and waits for the check of all mappings. Returns the
/// engine's configuration.
fn reload(lab: &mut Lab, config: &Config) -> Config {
    common::reload(lab, config);
    lab.engine.config().clone()
}

/// The names of realms from number 1 on in an engine's numbering; removed realms in brackets.
fn names(config: &Config) -> Vec<String> {
    let name = |realm: &RealmConfig| match realm.gone {
        true => format!("({})", realm.name),
        false => realm.name.clone(),
    };
    config.realms.iter().map(name).collect()
}

#[test]
fn a_realm_goes_with_its_mappings_and_nobody_elses() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    let externals = [A, B, C].map(|realm| out(&mut lab, realm, &packet));
    let only_c = Config { realms: vec![realm("c")], ..config() };
    let arranged = reload(&mut lab, &only_c);
    assert_eq!(names(&arranged), ["(b)", "c"]);
    assert_eq!(lab.engine.departed(), (2, [1, 0, 0, 0]));
    assert_eq!(lab.removed().iter().map(|id| id.realm).collect::<Vec<_>>(), [B]);
    assert_eq!(refused(&mut lab, Side::Inside, B, &packet), DropReason::UnknownRealm);
    let answer = udp(SERVER, &externals[1]);
    assert_eq!(refused(&mut lab, Side::Outside, 0, &answer), DropReason::NoMapping);
    for (realm, external) in [(A, &externals[0]), (C, &externals[2])] {
        assert_eq!(&out(&mut lab, realm, &packet), external);
        assert_eq!(inward(&mut lab, &udp(SERVER, external)).0, realm);
    }
    assert!(lab.engine.replace_rules_of(B, RuleSet::new(&[]).unwrap()).is_err());

    // With realm 0 alone again, the engine works as before.
    let arranged = reload(&mut lab, &config());
    assert_eq!(names(&arranged), ["(b)", "(c)"]);
    assert_eq!(&out(&mut lab, A, &packet), &externals[0]);
    let spoofed = udp("10.0.0.9:80", &externals[0]);
    let inside = Config {
        inside: SideConfig { network: Some(prefix("10.0.0.0", 24)), ..config().inside },
        ..config()
    };
    let mut plain = Lab::new(&inside);
    out(&mut plain, A, &packet);
    let before = refused(&mut plain, Side::Outside, 0, &spoofed);
    let mut lab = Lab::new(&Config { realms: vec![realm("b")], ..inside.clone() });
    reload(&mut lab, &inside);
    assert_eq!(refused(&mut lab, Side::Outside, 0, &spoofed), before);
}

#[test]
fn realms_keep_their_numbers_and_new_ones_get_those_that_nothing_is_left_of() {
    let with = |names: &[&str]| Config {
        realms: names.iter().map(|name| realm(name)).collect(),
        ..config()
    };
    let mut lab = Lab::new(&with(&["b", "c"]));
    let packet = udp("10.0.0.5:4000", SERVER);
    out(&mut lab, B, &packet);
    // The realms in another order, with a new one before them.
    assert_eq!(names(&reload(&mut lab, &with(&["d", "c", "b"]))), ["b", "c", "d"]);
    assert_eq!(names(&reload(&mut lab, &with(&["c", "e"]))), ["(b)", "c", "(d)", "e"]);
    // Datagrams of b may still be under way, so its number stays reserved for a while.
    assert_eq!(names(&reload(&mut lab, &with(&["f", "c"]))), ["(b)", "c", "(d)", "(e)", "f"]);
    let again = reload(&mut lab, &with(&["c", "b"]));
    assert_eq!(names(&again), ["b", "c", "(d)", "(e)", "(f)"]);
    reload(&mut lab, &with(&["c"]));
    lab.wait_s(60.0);
    assert_eq!(names(&reload(&mut lab, &with(&["g", "c"]))), ["g", "c"]);
    assert_eq!(out(&mut lab, B, &packet).split(':').next(), Some("203.0.113.1"));
}

#[test]
fn a_session_goes_by_its_realms_new_network() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    let external = out(&mut lab, B, &packet);
    let answer = udp(SERVER, &external);
    assert_eq!(inward(&mut lab, &answer).0, B);
    let network = Some(prefix("198.51.100.0", 24));
    let inside = SideConfig { network, ..realm("b").inside };
    let moved = RealmConfig { inside, ..realm("b") };
    reload(&mut lab, &Config { realms: vec![moved, realm("c")], ..config() });
    assert_eq!(refused(&mut lab, Side::Outside, 0, &answer), DropReason::SpoofedSource);
    reload(&mut lab, &three());
    assert_eq!(inward(&mut lab, &answer).0, B);
}

#[test]
fn a_number_waits_for_blocks_and_datagrams_of_its_realm() {
    let blocks = |names: &[&str]| {
        let mut config =
            Config { realms: names.iter().map(|name| realm(name)).collect(), ..config() };
        config.allocation = Allocation::Block(BlockConfig {
            size: 64,
            release_after: Duration::from_secs(600),
            ..BlockConfig::default()
        });
        config
    };
    let mut lab = Lab::new(&blocks(&["b"]));
    let fragments = cut(&udp_with("10.0.0.5:4000", SERVER, &[7; 64]), 9, 40);
    let external = out(&mut lab, B, &udp("10.0.0.5:4000", SERVER));
    assert_eq!(pass(&mut lab, Side::Inside, B, &fragments[0]).0, Verdict::Forward(Side::Outside));
    let answer = cut(&udp_with(SERVER, &external, &[7; 64]), 9, 40);
    assert_eq!(pass(&mut lab, Side::Outside, 0, &answer[0]).1, B);
    reload(&mut lab, &blocks(&[]));
    // The rest of a datagram does not go to a realm that was removed.
    assert_eq!(refused(&mut lab, Side::Outside, 0, &answer[1]), DropReason::UnknownRealm);
    assert_eq!(refused(&mut lab, Side::Inside, B, &fragments[1]), DropReason::UnknownRealm);
    lab.wait_s(300.0);
    assert_eq!(names(&reload(&mut lab, &blocks(&["x"]))), ["(b)", "x"]);
    lab.wait_s(600.0);
    assert_eq!(names(&reload(&mut lab, &blocks(&["x", "y"]))), ["y", "x"]);
}

#[test]
fn what_names_realms_follows_them() {
    let mut both = three();
    let fixed = |realm: u16, port: u16| StaticMapping {
        realm,
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(80)),
        external: (Ipv4Addr::new(203, 0, 113, 1), Some(port)),
        protocol: Some(protocol::TCP),
        ..StaticMapping::default()
    };
    both.statics = vec![fixed(B, 8001), fixed(C, 8002)];
    both.hairpin_to = vec![C];
    let mut lab = Lab::new(&both);
    // The realms in the other order, without b.
    let mut next = Config { realms: vec![realm("d"), realm("c")], ..config() };
    next.statics = vec![fixed(1, 8003), fixed(2, 8002)];
    next.hairpin_to = vec![2];
    next.realms[0].rules =
        vec![Rule::new(Match::Source(prefix("10.0.0.6", 32), 0), RuleAction::Drop)];
    let arranged = reload(&mut lab, &next);
    assert_eq!(names(&arranged), ["(b)", "c", "d"]);
    assert_eq!(lab.engine.departed(), (1, [0, 0, 0, 1]), "of static mappings that of b goes");
    let to = |port: u16| tcp(SERVER, &format!("203.0.113.1:{port}"), "S", 1, 0);
    assert_eq!(refused(&mut lab, Side::Outside, 0, &to(8001)), DropReason::NoMapping);
    assert_eq!(inward(&mut lab, &to(8002)).0, C);
    assert_eq!(inward(&mut lab, &to(8003)).0, 3);
    let dropped = udp("10.0.0.6:4000", SERVER);
    assert_eq!(refused(&mut lab, Side::Inside, 3, &dropped), DropReason::Rule);
    out(&mut lab, C, &dropped);
    let across = tcp("10.0.0.5:4000", "203.0.113.1:8002", "S", 1, 0);
    assert_eq!(hairpin(&mut lab, A, &across).0, C);
    assert_eq!(refused(&mut lab, Side::Inside, 3, &across), DropReason::OtherRealm);
}

#[test]
fn an_inside_that_changes_holds_for_the_next_packet() {
    let mut lab = Lab::new(&three());
    let moved = Ipv4Addr::new(10, 0, 0, 5);
    let packets = ["10.0.0.5:4000", "10.0.0.9:4000"].map(|source| udp(source, SERVER));
    for packet in &packets {
        out(&mut lab, B, packet);
        out(&mut lab, C, packet);
    }
    let mut config = three();
    config.realms[0].inside.address = Some(moved);
    config.realms[0].inside.network = Some(prefix("10.0.0.8", 31));
    config.realms[1].inside.network = Some(prefix("10.0.0.8", 30));
    reload(&mut lab, &config);
    // The host with the gateway's new address has lost its mapping.
    assert_eq!(lab.engine.departed(), (3, [1, 0, 0, 0]));
    let new = |source: &str| udp(source, "198.51.100.2:53");
    let refuses = |lab: &mut Lab, realm, source| refused(lab, Side::Inside, realm, &new(source));
    assert_eq!(refuses(&mut lab, B, "10.0.0.5:4001"), DropReason::SpoofedSource);
    out(&mut lab, B, &new("10.0.0.9:4001"));
    out(&mut lab, C, &new("10.0.0.9:4001"));
    // A host whose address is now a broadcast address has a mapping, and begins nothing new.
    out(&mut lab, C, &new("10.0.0.15:4000"));
    config.realms[1].inside.network = Some(prefix("10.0.0.0", 28));
    reload(&mut lab, &config);
    assert_eq!(lab.engine.departed(), (6, [0; 4]));
    assert_eq!(refuses(&mut lab, C, "10.0.0.15:4001"), DropReason::MartianSource);
    out(&mut lab, C, &new("10.0.0.14:4001"));
}

#[test]
fn a_realm_that_there_is_not() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    for realm in [3, Config::MOST_REALMS as u16 - 1] {
        assert_eq!(refused(&mut lab, Side::Inside, realm, &packet), DropReason::UnknownRealm);
    }
}

#[test]
fn hairpin_between_realms_is_refused_unless_it_is_permitted() {
    let mut config = three();
    config.realms[0].hairpin_to = vec![C];
    let mut lab = Lab::new(&config);
    let packet = udp("10.0.0.5:4000", SERVER);
    let externals = [A, B, C].map(|realm| out(&mut lab, realm, &packet));
    let from = |external: &str| udp("10.0.0.6:5000", external);
    // Within each realm all is permitted.
    for (realm, external) in [A, B, C].into_iter().zip(&externals) {
        assert_eq!(hairpin(&mut lab, realm, &from(external)).0, realm);
    }
    let other = DropReason::OtherRealm;
    for (realm, external) in [(A, B), (A, C), (B, A), (C, A), (C, B)] {
        let packet = from(&externals[usize::from(external)]);
        assert_eq!(refused(&mut lab, Side::Inside, realm, &packet), other, "{realm} {external}");
    }
    let packet = udp("10.0.0.5:4000", &externals[2]);
    let (to, (source, destination)) = hairpin(&mut lab, B, &packet);
    assert_eq!((to, &source, &destination[..]), (C, &externals[1], "10.0.0.5:4000"));
    // A reply may go back, although new sessions in that direction may not begin.
    let answer = udp("10.0.0.5:4000", &externals[1]);
    assert_eq!(hairpin(&mut lab, C, &answer), (B, (externals[2].clone(), "10.0.0.5:4000".into())));
    let stranger = udp("10.0.0.7:4000", &externals[1]);
    assert_eq!(refused(&mut lab, Side::Inside, C, &stranger), other);
}

#[test]
fn two_that_may_not_reach_each_other_do_not_by_sending_both() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    let [a, b] = [A, B].map(|realm| out(&mut lab, realm, &packet));
    for _ in 0..3 {
        for (realm, external) in [(A, &b), (B, &a)] {
            let packet = udp("10.0.0.5:4000", external);
            assert_eq!(refused(&mut lab, Side::Inside, realm, &packet), DropReason::OtherRealm);
        }
    }
}

#[test]
fn a_drop_rule_narrows_what_is_permitted() {
    let mut config = three();
    config.hairpin_to = vec![B];
    let matches = Match::Destination(prefix("203.0.113.1", 32), 9000);
    config.rules = vec![Rule::new(matches, RuleAction::Drop)];
    let server = |port: u16| StaticMapping {
        realm: B,
        protocol: Some(17),
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(port)),
        external: (Ipv4Addr::new(203, 0, 113, 1), Some(port)),
        ..StaticMapping::default()
    };
    config.statics = vec![server(9000), server(9001)];
    let mut lab = Lab::new(&config);
    let to = |port: u16| udp("10.0.0.5:4000", &format!("203.0.113.1:{port}"));
    assert_eq!(refused(&mut lab, Side::Inside, A, &to(9000)), DropReason::Rule);
    assert_eq!(hairpin(&mut lab, A, &to(9001)).0, B);
    assert_eq!(refused(&mut lab, Side::Inside, C, &to(9001)), DropReason::OtherRealm);
    // Packets from outside are not restricted.
    assert_eq!(inward(&mut lab, &udp(SERVER, "203.0.113.1:9000")).0, B);
}

#[test]
fn errors_go_to_the_realm_of_the_session() {
    let mut config = three();
    config.realms[0].hairpin_to = vec![C];
    let mut lab = Lab::new(&config);
    let packet = udp("10.0.0.5:4000", SERVER);
    let [_, b, c] = [A, B, C].map(|realm| out(&mut lab, realm, &packet));
    // An error from outside.
    let about = error("198.51.100.9", "203.0.113.1", 3, 1, &udp(&c, SERVER));
    assert_eq!(inward(&mut lab, &about), (C, "10.0.0.5".into()));
    // An error from the receiver of a hairpinned packet.
    hairpin(&mut lab, B, &udp("10.0.0.5:4000", &c));
    let about = error("10.0.0.5", "203.0.113.1", 3, 3, &udp(&b, "10.0.0.5:4000"));
    assert_eq!(hairpin(&mut lab, C, &about).0, B);
    assert_eq!(refused(&mut lab, Side::Inside, A, &about), DropReason::IcmpNoSession);
}

#[test]
fn own_errors_come_from_the_realms_own_address_and_go_back_to_it() {
    let mut lab = Lab::new(&three());
    let mut packet = udp("10.0.0.5:4000", SERVER);
    set_ttl(&mut packet, 1);
    let mut buffer = [0; 2048];
    for (realm, own) in [(A, "10.0.0.1"), (B, "10.0.0.253"), (C, "10.0.0.253")] {
        assert_eq!(refused(&mut lab, Side::Inside, realm, &packet), DropReason::TtlExceeded);
        let (_, side, len) = lab.engine.poll_transmit(&mut buffer).expect("an error");
        assert_eq!((side, lab.engine.transmit_realm()), (Side::Inside, realm));
        assert_eq!(ends(&buffer[..len]), (own.into(), "10.0.0.5".into()));
    }
    let ping = common::ping("10.0.0.5", "10.0.0.253", 7);
    let (verdict, realm, _) = pass(&mut lab, Side::Inside, B, &ping);
    assert_eq!((verdict, realm), (Verdict::Reply(Side::Inside), B));
    assert_eq!(refused(&mut lab, Side::Inside, A, &ping), DropReason::SameSide);
}

#[test]
fn a_syn_between_realms_is_not_answered_late_and_one_within_is() {
    let mut lab = Lab::new(&three());
    let external = out(&mut lab, A, &tcp("10.0.0.5:4000", SERVER, "S", 1, 0));
    let syn = tcp("10.0.0.6:4000", &external, "S", 1, 0);
    assert_eq!(refused(&mut lab, Side::Inside, B, &syn), DropReason::OtherRealm);
    let nobody = tcp("10.0.0.6:4001", "203.0.113.1:1024", "S", 1, 0);
    assert_eq!(refused(&mut lab, Side::Inside, B, &nobody), DropReason::NoMapping);
    lab.wait_s(7.0);
    assert_eq!(lab.sent.len(), 1);
    assert_eq!(lab.engine.transmit_realm(), B);
}

#[test]
fn fragments_of_two_realms_are_apart() {
    let mut lab = Lab::new(&three());
    let datagram = common::udp_with("10.0.0.5:4000", SERVER, &[7; 64]);
    let parts = cut(&datagram, 5, 40);
    for realm in [A, B] {
        // The second fragment comes first and waits.
        assert_eq!(pass(&mut lab, Side::Inside, realm, &parts[1]).0, Verdict::Held);
    }
    let external = out_of_fragment(&mut lab, B, &parts[0]);
    let mut buffer = [0; 2048];
    assert!(lab.engine.poll_transmit(&mut buffer).is_some());
    assert!(lab.engine.poll_transmit(&mut buffer).is_none(), "that of realm 0 still waits");
    // The other way, to the realm of the mapping, with early and late fragments.
    let parts = cut(&common::udp_with(SERVER, &external, &[7; 100]), 6, 40);
    assert_eq!(pass(&mut lab, Side::Outside, 0, &parts[1]).0, Verdict::Held);
    assert_eq!(pass(&mut lab, Side::Outside, 0, &parts[0]).1, B);
    assert!(lab.engine.poll_transmit(&mut buffer).is_some());
    assert_eq!(lab.engine.transmit_realm(), B);
    assert_eq!(pass(&mut lab, Side::Outside, 0, &parts[2]).1, B);
}

/// The external endpoint of a first fragment. Its checksum covers the whole datagram.
fn out_of_fragment(lab: &mut Lab, realm: u16, bytes: &[u8]) -> String {
    let (verdict, _, bytes) = pass(lab, Side::Inside, realm, bytes);
    assert_eq!(verdict, Verdict::Forward(Side::Outside));
    let address: [u8; 4] = bytes[12..16].try_into().unwrap();
    format!("{}:{}", Ipv4Addr::from(address), u16::from_be_bytes([bytes[20], bytes[21]]))
}

#[test]
fn what_bypasses_goes_to_the_first_realm_whose_rules_say_so() {
    let mut config = three();
    let server = |len| Match::Source(prefix("192.0.2.192", len), 0);
    config.realms[0].rules = vec![
        Rule::new(server(28), RuleAction::Bypass),
        Rule::new(Match::Source(prefix("192.0.2.196", 32), 0), RuleAction::Drop),
    ];
    config.realms[1].rules = vec![Rule::new(server(26), RuleAction::Bypass)];
    let mut lab = Lab::new(&config);
    let to = |host: u8| udp("198.51.100.1:80", &format!("192.0.2.{host}:4000"));
    for (host, realm) in [(193, B), (210, C)] {
        let endpoint = format!("192.0.2.{host}:4000");
        assert_eq!(inward(&mut lab, &to(host)), (realm, endpoint.clone()));
        assert_eq!(out(&mut lab, realm, &udp(&endpoint, "198.51.100.1:80")), endpoint);
    }
    assert_eq!(refused(&mut lab, Side::Outside, 0, &to(196)), DropReason::Rule);
    assert_eq!(refused(&mut lab, Side::Outside, 0, &to(9)), DropReason::NotForUs);
    lab.engine.replace_rules_of(C, bypass_all()).unwrap();
    let own = DropReason::SpoofedSource;
    let from_own = udp("10.0.0.253:80", "192.0.2.9:4000");
    assert_eq!(refused(&mut lab, Side::Outside, 0, &from_own), own);
    let to_all = udp("198.51.100.1:80", "10.0.0.255:4000");
    assert_eq!(refused(&mut lab, Side::Outside, 0, &to_all), DropReason::MartianDestination);
    let from_a = udp("192.0.2.193:4000", SERVER);
    assert_eq!(refused(&mut lab, Side::Inside, A, &from_a), DropReason::NotSubscriber);
}

fn bypass_all() -> RuleSet {
    let all = Match::Destination(prefix("0.0.0.0", 0), 0);
    RuleSet::new(&[Rule::new(all, RuleAction::Bypass)]).unwrap()
}

#[test]
fn rules_of_one_realm_are_replaced_alone() {
    let mut lab = Lab::new(&three());
    let packet = udp("10.0.0.5:4000", SERVER);
    for realm in [A, B] {
        out(&mut lab, realm, &packet);
    }
    let all = Match::Source(prefix("10.0.0.0", 8), 0);
    let rules = || RuleSet::new(&[Rule::new(all, RuleAction::Drop)]).unwrap();
    lab.engine.replace_rules_of(B, rules()).unwrap();
    out(&mut lab, A, &packet);
    assert_eq!(refused(&mut lab, Side::Inside, B, &packet), DropReason::Rule);
    assert!(lab.engine.replace_rules_of(3, rules()).is_err());
}

#[test]
fn sizes_are_each_realms_own() {
    let mut config = three();
    config.realms[0].inside.mtu = Some(600);
    let mut lab = Lab::new(&config);
    let packet = udp("10.0.0.5:4000", SERVER);
    let externals = [A, B].map(|realm| out(&mut lab, realm, &packet));
    let long = |external: &str| {
        let bytes = common::udp_with(SERVER, external, &[0; 700]);
        common::with_fragment_field(&bytes, 1, common::DONT_FRAGMENT)
    };
    assert_eq!(inward(&mut lab, &long(&externals[0])).0, A);
    assert_eq!(refused(&mut lab, Side::Outside, 0, &long(&externals[1])), DropReason::TooBig);
}

#[test]
fn nobody_outside_speaks_for_the_network_of_the_realm_that_he_sends_to() {
    let mut config = three();
    config.realms[1].inside.network = Some(prefix("172.16.0.0", 24));
    config.realms[1].inside.address = Some(Ipv4Addr::new(172, 16, 0, 1));
    let mut lab = Lab::new(&config);
    let packet = udp("10.0.0.5:4000", SERVER);
    let [a, _, c] = [A, B, C].map(|realm| out(&mut lab, realm, &packet));
    let spoofed = DropReason::SpoofedSource;
    for (source, external, realm) in [
        ("10.0.0.9:80", &a, &c),
        ("10.0.0.255:80", &a, &c),
        ("172.16.0.9:80", &c, &a),
        ("172.16.0.1:80", &c, &a),
    ] {
        assert_eq!(
            refused(&mut lab, Side::Outside, 0, &udp(source, external)),
            spoofed,
            "{source}"
        );
        let about =
            error(source.split_once(':').unwrap().0, "203.0.113.1", 3, 1, &udp(external, SERVER));
        assert_eq!(refused(&mut lab, Side::Outside, 0, &about), spoofed, "{source}");
        // In another realm's network the source is a remote host.
        inward(&mut lab, &udp(source, realm));
    }
    // Inside, a network belongs to its own realm only.
    out(&mut lab, A, &udp("10.0.0.5:4000", "172.16.0.255:80"));
    let home = udp("10.0.0.5:4000", "172.16.0.9:80");
    assert_eq!(refused(&mut lab, Side::Inside, C, &home), DropReason::SameSide);
    out(&mut lab, A, &home);
}

#[test]
fn a_plan_is_for_subscribers_of_its_realm() {
    let mut config = three();
    let plan = DeterministicConfig {
        realm: B,
        subscribers: vec![prefix("10.0.0.0", 24)],
        dynamic_ports: 1000,
        ..DeterministicConfig::default()
    };
    let allocation = Some(Allocation::Deterministic(plan));
    config.pools = vec![PoolConfig { allocation, ..config.pools[0].clone() }];
    let mut lab = Lab::new(&config);
    let port =
        |lab: &mut Lab, realm| common::port_of(&out(lab, realm, &udp("10.0.0.5:4000", SERVER)));
    // 63,512 ports for 256 subscribers: 248 each.
    assert!((1024 + 5 * 248..1024 + 6 * 248).contains(&port(&mut lab, B)));
    assert!(port(&mut lab, A) >= 1024 + 256 * 248);
}

#[test]
fn whole_addresses_are_of_one_realm() {
    let mut config = three();
    config.statics = vec![StaticMapping {
        realm: C,
        internal: (Ipv4Addr::new(10, 0, 0, 80), None),
        external: (Ipv4Addr::new(203, 0, 113, 80), None),
        ..StaticMapping::default()
    }];
    let mut lab = Lab::new(&config);
    assert_eq!(out(&mut lab, C, &udp("10.0.0.80:53", SERVER)), "203.0.113.80:53");
    assert!(out(&mut lab, B, &udp("10.0.0.80:53", SERVER)).starts_with("203.0.113.1:"));
    let inbound = inward(&mut lab, &udp(SERVER, "203.0.113.80:99"));
    assert_eq!(inbound, (C, "10.0.0.80:99".into()));
}

#[test]
fn what_contradicts_itself_is_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = three();
        change(&mut config);
        Engine::new(&config, [0; 32], Timestamp(0)).expect_err("a contradiction").message
    };
    assert!(refused(|config| config.realms[1].default_pool = 1).contains("realm c"));
    assert!(refused(|config| config.hairpin_to = vec![3]).contains("realm 3"));
    assert!(refused(|config| config.realms[0].hairpin_to = vec![9]).contains("realm 9"));
    let many = refused(|config| config.realms = vec![realm("x"); Config::MOST_REALMS]);
    assert!(many.contains("at most 4096"), "{many}");
    let rules = refused(|config| {
        let all = Match::Source(Prefix::new(Ipv4Addr::UNSPECIFIED, 0), 0);
        config.realms[1].rules = vec![Rule::new(all, RuleAction::Snat(7))];
    });
    assert!(rules.contains("a pool that does not exist"), "{rules}");
}
