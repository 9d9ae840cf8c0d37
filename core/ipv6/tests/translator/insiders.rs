//! Packets from outside to hosts of IPv4 inside: they belong to the engine, whatever SIIT has.

use super::*;
use natgate_engine::{Match, Rule, RuleAction};

/// IPv4 hosts inside are in the connected networks and behind the routers of all realms. A prefix
/// of SIIT leaves their packets to the engine, and so does lw4o6; an explicit map does not.
#[test]
fn packets_to_ipv4_hosts_inside_are_the_engines() {
    let siit = siit(vec![pref64("2001:db8:64::", 96)], Hairpin::Off);
    let mut world = World::new(Settings { siit: Some(siit), ..Settings::default() });
    let mut config = world.engine.config().clone();
    let net = |address: [u8; 4], len| Some(Prefix::new(address.into(), len));
    let behind = |first: [u8; 4], last: [u8; 4]| {
        vec![AddressRange { first: first.into(), last: last.into() }]
    };
    config.inside.network = net([192, 0, 2, 0], 28);
    config.inside_routes = behind([10, 1, 0, 0], [10, 1, 255, 255]);
    let mut realm = RealmConfig {
        inside_routes: behind([10, 9, 0, 7], [10, 9, 0, 7]),
        ..RealmConfig::default()
    };
    realm.inside.network = net([10, 8, 0, 0], 16);
    config.realms.push(realm);
    world.translator.renew(&config);
    for (destination, is_siits) in [
        ([192, 0, 2, 1], true),
        ([192, 0, 2, 3], false),
        ([192, 0, 2, 16], true),
        ([10, 1, 255, 255], false),
        ([10, 2, 0, 0], true),
        ([10, 8, 0, 0], false),
        ([10, 9, 0, 6], true),
        ([10, 9, 0, 7], false),
        ([10, 9, 0, 8], true),
    ] {
        let packet = four(([198, 51, 100, 7], destination), 17, &udp(53, 5000));
        let claims = world.translator.claims(Side::Outside, 0, &packet);
        assert_eq!(claims, is_siits, "{destination:?}");
        if is_siits {
            let (went, _) = world.take(Side::Outside, &packet);
            assert_eq!(went.expect("a packet that passes")[0] >> 4, 6, "{destination:?}");
        }
    }
}

/// The host of a bypass rule may be anywhere inside: behind the default gateway, or behind routes
/// that the translator does not know.
#[test]
fn packets_to_hosts_that_rules_bypass_are_the_engines() {
    const REMOTE: [u8; 4] = [198, 51, 100, 7];
    let net = |address: [u8; 4], len| Prefix::new(address.into(), len);
    let bypass = |matches| Rule::new(matches, RuleAction::Bypass);
    let drop = |matches| Rule::new(matches, RuleAction::Drop);
    let source = |address, len, port| Match::Source(net(address, len), port);
    let destination = |address, len| Match::Destination(net(address, len), 0);
    let host = [10, 77, 0, 5];
    for (rule, realm, to, bypasses) in [
        (bypass(source([10, 77, 0, 0], 16, 0)), 0, host, true),
        (bypass(source([10, 77, 0, 5], 32, 5000)), 0, host, true),
        (bypass(source([10, 77, 0, 5], 32, 0)), 0, [10, 77, 0, 6], false),
        (bypass(source([10, 77, 0, 0], 16, 0)), 1, host, true),
        (drop(source([10, 77, 0, 0], 16, 0)), 0, host, false),
        (bypass(destination(REMOTE, 24)), 0, host, true),
        (bypass(destination(REMOTE, 24)), 1, host, true),
        (bypass(destination(REMOTE, 24)), 1, [172, 30, 1, 5], true),
        (bypass(destination([198, 51, 101, 0], 24)), 0, host, false),
        (bypass(destination(REMOTE, 24)), 0, [192, 0, 2, 77], false),
        // A rule for all sources names subscribers.
        (bypass(source([0, 0, 0, 0], 0, 0)), 0, host, true),
        (bypass(source([0, 0, 0, 0], 0, 0)), 0, [192, 0, 2, 77], false),
    ] {
        let siit = siit(vec![pref64("2001:db8:64::", 96)], Hairpin::Off);
        let mut world = World::new(Settings { siit: Some(siit), ..Settings::default() });
        let mut config = world.engine.config().clone();
        config.subscribers = vec![net([10, 0, 0, 0], 8)];
        config.realms.push(RealmConfig {
            name: "a".into(),
            subscribers: vec![net([172, 30, 0, 0], 16)],
            ..RealmConfig::default()
        });
        match realm {
            0 => config.rules.push(rule.clone()),
            _ => config.realms[0].rules.push(rule.clone()),
        }
        world.engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        world.translator.renew(&config);
        let packet = four((REMOTE, to), 17, &udp(53, 5000));
        let what = format!("{rule:?} of realm {realm}, to {to:?}");
        assert_eq!(!world.translator.claims(Side::Outside, 0, &packet), bypasses, "{what}");
        // Alone, and in a batch, which tries the quick way first.
        let mut buffer = [&[0; HEADROOM], &packet[..]].concat();
        let mut packets = [Packet::new(&mut buffer, HEADROOM)];
        let mut fates = [Fate::Nothing];
        let World { translator, engine, now, .. } = &mut world;
        translator.take_some(engine, *now, Side::Outside, &mut packets, &mut fates);
        let is_four = packets[0].bytes()[0] >> 4 == 4;
        assert_eq!((matches!(fates[0], Fate::Send(_)), is_four), (true, bypasses), "{what}");
        let (went, _) = world.take(Side::Outside, &packet);
        assert_eq!(went.expect("a packet that passes")[0] >> 4 == 4, bypasses, "{what}");
    }
}
