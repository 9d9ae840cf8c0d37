//! Subscribers that are prefixes, and move from one tunnel to another (RFC 7785).

use super::*;

//= test rfc7785#section-4-contexts
#[test]
fn a_quota_counts_a_prefix_if_the_subscriber_is_one() {
    let mut world = of_prefixes();
    let send = |world: &mut World, b4: &str, host: u8, port| {
        let ends = ([192, 168, 1, host], REMOTE);
        world.take(Side::Inside, &tunneled(b4, &udp(ends, (port, 53), b"x")))
    };
    for (b4, host) in [(MOVING[0], 1), (MOVING[0], 2), (MOVING[1], 3), (MOVING[1], 4)] {
        assert!(send(&mut world, b4, host, 4000).is_ok(), "{b4} {host}");
    }
    assert_eq!(send(&mut world, MOVING[1], 5, 4000), Err(R::PortQuota));
    assert!(send(&mut world, MOVING[2], 5, 4000).is_ok());
    let [first, other] = [MOVING[1], MOVING[2]].map(|b4| b4.parse().expect("an address"));
    let inner = Ipv4Addr::new(192, 168, 1, 1);
    let number = world.translator.number_behind(first, inner).expect("a host");
    let name = world.translator.host(world.realm(), number);
    let name = name.expect("a name");
    assert_eq!((name.prefix.to_string(), name.len), ("2001:db8:b4:100::".to_owned(), 56));
    // Each address of the prefix names the subscriber.
    let numbers = |prefix, len| world.translator.numbers(HostKind::Dslite, prefix, len);
    assert_eq!(numbers(first, 128), numbers(name.prefix, 56));
    assert_ne!(numbers(other, 128), numbers(first, 128));
}

//= test rfc7785#section-4-migrate
//= test rfc7785#section-4-softwires
//= test rfc7785#section-4-rate
#[test]
fn hosts_move_to_the_tunnel_of_the_last_packet_and_not_too_often() {
    let mut world = of_prefixes();
    let packet = |port| udp((HOST, REMOTE), (port, 53), b"x");
    let left = world.leave(MOVING[0], &packet(4000));
    assert_eq!(world.enter(&answer(&left, b"y")).0, MOVING[0]);
    // The first change is free; the mapping moves too.
    world.leave(MOVING[1], &packet(4001));
    assert_eq!(world.enter(&answer(&left, b"y")).0, MOVING[1]);
    assert_eq!(world.leave(MOVING[1], &packet(4000)), left);
    // The next change has to wait, and changes nothing.
    let early = world.take(Side::Inside, &tunneled(MOVING[0], &packet(4000)));
    assert_eq!(early, Err(R::SoftwireSource));
    assert_eq!(world.enter(&answer(&left, b"y")).0, MOVING[1]);
    world.now = Timestamp(world.now.0 + 1_800_000_000_000);
    let later = world.leave(MOVING[0], &packet(4002));
    assert_eq!(world.enter(&answer(&later, b"y")).0, MOVING[0]);
    // Hosts that another process takes over keep the tunnel.
    let carried: Vec<_> = world.translator.carried_hosts().collect();
    assert!(carried.iter().all(|host| host.address == address(MOVING[0])), "{carried:?}");
    // Another subscriber is another one.
    world.leave(MOVING[2], &packet(4000));
    assert_eq!(world.enter(&answer(&later, b"y")).0, MOVING[0]);
}

/// A world with a static mapping of a host behind the first B4 of a prefix, and a packet to it.
fn with_server_of_prefix(interval: u64) -> (World, Vec<u8>) {
    let hosts = [(address(MOVING[0]).into(), HOST.into())];
    let hosts = StaticHost::first_behind(&hosts, 56, 1);
    let number = hosts[0].number;
    let external = (Ipv4Addr::from(EXTERNAL), Some(80));
    let world = World::with(|config, dslite| {
        dslite.subscriber_length = 56;
        dslite.b4_change_interval = Duration::from_secs(interval);
        dslite.static_hosts.clone_from(&hosts);
        config.statics = vec![StaticMapping {
            realm: 1,
            protocol: Some(17),
            internal: (number, Some(80)),
            external,
            ..StaticMapping::default()
        }];
    });
    (world, udp((REMOTE, EXTERNAL), (53, 80), b"y"))
}

/// A host of a static mapping is reached before it has sent anything, and moves like any other.
#[test]
fn hosts_of_static_mappings_move_too() {
    let (mut world, inward) = with_server_of_prefix(0);
    assert_eq!(world.enter(&inward).0, MOVING[0]);
    world.leave(MOVING[1], &udp((HOST, REMOTE), (4000, 53), b"x"));
    assert_eq!(world.enter(&inward).0, MOVING[1]);
    world.wait(600);
    assert_eq!((world.enter(&inward).0.as_str(), world.hosts()), (MOVING[1], (1, 1)));
}

/// The B4 that a static mapping names gets its tunnel back with its next packet.
#[test]
fn a_b4_of_a_static_mapping_returns_without_waiting() {
    let (mut world, inward) = with_server_of_prefix(1800);
    let packet = udp((HOST, REMOTE), (4000, 53), b"x");
    let early = Err(R::SoftwireSource);
    for _ in 0..2 {
        world.leave(MOVING[1], &packet);
        assert_eq!(world.enter(&inward).0, MOVING[1]);
        world.leave(MOVING[0], &packet);
        assert_eq!(world.enter(&inward).0, MOVING[0]);
        // Others have to wait from then on.
        world.now = Timestamp(world.now.0 + 1799 * SECOND);
        assert_eq!(world.take(Side::Inside, &tunneled(MOVING[1], &packet)), early);
        world.now = Timestamp(world.now.0 + SECOND);
    }
    // Without the mapping it is a B4 like any other.
    world.translator.keep(&[]);
    world.leave(MOVING[1], &packet);
    assert_eq!(world.take(Side::Inside, &tunneled(MOVING[0], &packet)), early);
}
