//! Flows of further realms in another process, which numbers its realms in another way.

use super::*;
use natgate_engine::RealmConfig;
use natgate_ipv6::HostRealms;

/// An engine with realms, and a stage with FTP and PPTP.
fn world_of(realms: &[&str]) -> World {
    let mut settings = AlgSettings::default();
    for kind in [Kind::Ftp, Kind::Pptp] {
        settings.set(kind, AlgSettings::usual_ports(kind).to_vec());
    }
    let mut world = World::of(&settings, 21, "203.0.113.1:2121".parse().unwrap());
    let mut config = world.engine.config().clone();
    let realm = |name: &&str| RealmConfig {
        name: (*name).into(),
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8)],
        ..RealmConfig::default()
    };
    config.realms = realms.iter().map(realm).collect();
    world.engine = Engine::new(&config, [7; 32], world.now).expect("a valid configuration");
    world.stage.renew(&settings, &config);
    world
}

/// Realm and internal endpoint of each flow.
fn flows(stage: &Stage) -> Vec<(u16, SocketAddr)> {
    let mut flows: Vec<_> =
        stage.payloads.each().map(|(_, _, ends)| (ends.realm, ends.internal)).collect();
    flows.sort_unstable();
    flows
}

#[test]
fn flows_of_further_realms_go_over_by_the_names_of_their_realms() {
    let mut world = world_of(&["red", "blue", "green"]);
    let clients = [(0, "10.0.0.5:4000"), (1, "10.0.0.6:4000"), (3, "10.0.0.6:4000")];
    for (realm, client) in clients {
        let syn = Short { from: client, to: SERVER, numbers: (1, 0), flags: SYN, data: "" };
        let bytes = segment(syn);
        let mut buffer = vec![0; 2048];
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let mut room = Room::new(&mut buffer, bytes.len());
        let arrived = Arrived { now: world.now, from: Side::Inside, realm };
        let World { engine, stage, losses, .. } = &mut world;
        let taken = stage.take((engine, None), arrived, &mut room, losses);
        assert!(matches!(taken, Taken::Decided(Verdict::Forward(Side::Outside), _)), "{taken:?}");
    }
    let in_order = |numbers: [u16; 3]| {
        let all = numbers.into_iter().zip(clients).filter(|(number, _)| *number < 9);
        let mut all: Vec<_> =
            all.map(|(number, (_, client))| (number, SocketAddr::V4(end(client)))).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(flows(&world.stage), in_order([0, 1, 3]));
    let saved = world.stage.saved_flows(world.engine.config(), HostRealms::NONE);
    // 9: the realm is not there, and its flow is left out.
    for (realms, numbers) in [
        (vec!["red", "blue", "green"], [0, 1, 3]),
        (vec!["green", "other", "red"], [0, 3, 1]),
        (vec!["green"], [0, 9, 1]),
        (vec!["blue"], [0, 9, 9]),
        (vec![], [0, 9, 9]),
    ] {
        let mut heir = world_of(&realms);
        let now = heir.now;
        heir.stage.restore_flows((&mut heir.engine, now), &saved, HostRealms::NONE);
        assert_eq!(flows(&heir.stage), in_order(numbers), "{realms:?}");
    }
    // A realm that was removed, and whose number cannot be used yet, is none.
    let mut config = world.engine.config().clone();
    config.realms[0].gone = true;
    let without = world.stage.saved_flows(&config, HostRealms::NONE);
    assert_eq!(without.len(), saved.len() - 2, "neither its name nor its flow");
}

/// Bytes of any kind in place of a record are no realm, and nothing panics.
#[test]
fn a_record_of_a_realm_in_part_is_none() {
    let mut heir = world_of(&["red"]);
    let now = heir.now;
    let whole = [&[0x93, 17, 0], &b"red"[..]].concat();
    let records: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    heir.stage.restore_flows((&mut heir.engine, now), &records, HostRealms::NONE);
    assert!(flows(&heir.stage).is_empty());
}
