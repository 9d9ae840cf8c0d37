//! Sessions of hosts behind tunnels: equal inner addresses, quotas, sources that may not send.

use super::*;

//= test rfc6333#section-6.6-source
//= test rfc6333#section-6.6-reverse
//= test rfc6333#section-7.1-class
#[test]
fn subscribers_with_one_inner_address_do_not_meet() {
    let mut world = World::new();
    let left = [B4, OTHER_B4].map(|b4| {
        let inner = udp((HOST, REMOTE), (5000, 53), b4.as_bytes());
        let left = world.leave(b4, &inner);
        let expected = udp((EXTERNAL, REMOTE), (port_at(&left, 0), 53), b4.as_bytes());
        assert_eq!(left, after_hop(expected));
        left
    });
    assert_ne!(port_at(&left[0], 0), port_at(&left[1], 0));
    for (b4, left) in [B4, OTHER_B4].into_iter().zip(&left) {
        let expected = after_hop(udp((REMOTE, HOST), (53, 5000), b"pong"));
        assert_eq!(world.enter(&answer(left, b"pong")), (b4.to_owned(), expected));
    }
    assert_eq!(world.hosts(), (2, 2));
    let realm = world.realm();
    let numbers = world.translator.numbers(HostKind::Dslite, B4.parse().unwrap(), 128);
    let (found, numbers) = numbers.expect("a B4");
    assert_eq!(found, realm);
    let name = world.translator.host(realm, numbers.first().into()).expect("a name");
    let inner = name.address.and_then(|address| address.to_ipv4_mapped());
    assert_eq!((inner, name.prefix.to_string(), name.len), (Some(HOST.into()), B4.into(), 128));
    assert_eq!(world.packets(), 4);
    let counters = world.translator.domain_counters().last().expect("those of DS-Lite");
    assert_eq!((counters.outbound.0, counters.inbound.0, counters.spoofed), (2, 2, 0));
    assert!(counters.outbound.1 > 2 * 68 && counters.inbound.1 > 2 * 68);
}

/// More subscribers than one external address has ports, all with one inner endpoint.
#[test]
fn many_subscribers_with_one_inner_address_keep_their_own_sessions() {
    const SUBSCRIBERS: usize = 100_000;
    let mut world = World::with(|config, _| {
        config.pools[0].addresses[0].last = Ipv4Addr::new(203, 0, 113, 16);
        let limits = &mut config.limits;
        limits.mappings = Some(SUBSCRIBERS as u32);
        limits.subscribers = Some(SUBSCRIBERS as u32);
    });
    let b4 = |number: usize| Ipv6Addr::from_bits(address(B4) + number as u128).to_string();
    let left: Vec<Vec<u8>> = (0..SUBSCRIBERS)
        .map(|number| world.leave(&b4(number), &udp((HOST, REMOTE), (5000, 53), &[1])))
        .collect();
    let external = |left: &Vec<u8>| ([left[12], left[13], left[14], left[15]], port_at(left, 0));
    let all: std::collections::HashSet<_> = left.iter().map(external).collect();
    assert_eq!(all.len(), SUBSCRIBERS, "each subscriber has an external endpoint of its own");
    let expected = after_hop(udp((REMOTE, HOST), (53, 5000), &[2]));
    for (number, left) in left.iter().enumerate() {
        let (to, port) = external(left);
        let answer = udp((REMOTE, to), (53, port), &[2]);
        assert_eq!(world.enter(&answer), (b4(number), expected.clone()));
    }
    assert_eq!(world.hosts(), (SUBSCRIBERS, SUBSCRIBERS));
}

#[test]
fn tcp_and_echo_pass_both_ways() {
    let mut world = World::with(|config, _| config.tcp_mss = Some(1452));
    let left = world.leave(B4, &tcp_syn((HOST, REMOTE), (5000, 80)));
    // The tunnel's headers are taken off the announced size.
    assert_eq!(left[40..44], [2, 4, 0x05, 0x8c]);
    let mut expected = tcp_syn((EXTERNAL, REMOTE), (port_at(&left, 0), 80))[20..].to_vec();
    expected[20..24].copy_from_slice(&[2, 4, 0x05, 0x8c]);
    expected[16..18].fill(0);
    let expected = transport((EXTERNAL, REMOTE), 6, 16, expected);
    assert_eq!(left, after_hop(expected));
    let echo = icmp((HOST, REMOTE), &[8, 0, 0, 0, 0, 5, 0, 1, 9]);
    let left = world.leave(OTHER_B4, &echo);
    let identifier = port_at(&left, 4).to_be_bytes();
    let reply = [0, 0, 0, 0, identifier[0], identifier[1], 0, 1, 9];
    let expected = after_hop(icmp((REMOTE, HOST), &[0, 0, 0, 0, 0, 5, 0, 1, 9]));
    let entered = world.enter(&icmp((REMOTE, EXTERNAL), &reply));
    assert_eq!(entered, (OTHER_B4.to_owned(), expected));
}

#[test]
fn subscribers_reach_each_other_by_external_endpoints() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let external = port_at(&left, 0);
    let turned = udp((HOST, EXTERNAL), (6000, external), &[7; 9]);
    match world.take(Side::Inside, &tunneled(OTHER_B4, &turned)) {
        Ok((Side::Inside, bytes, None)) => {
            let (b4, inner) = open(&bytes);
            let expected = udp((EXTERNAL, HOST), (port_at(&inner, 0), 5000), &[7; 9]);
            assert_eq!((b4.as_str(), inner), (B4, after_hop(expected)));
        }
        other => panic!("{other:?}"),
    }
}

//= test rfc6333#section-11-sources
//= test rfc6333#section-11-registered
#[test]
fn forged_sources_are_dropped_and_leave_nothing() {
    let mut world = World::new();
    let good = udp((HOST, REMOTE), (5000, 53), &[1]);
    let from = |ends| udp(ends, (5000, 53), &[1]);
    let broken = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        ("2001:db8:b6::1", good.clone(), R::SoftwireSource),
        (B4, from(([127, 0, 0, 1], REMOTE)), R::MartianSource),
        (B4, from(([0, 0, 0, 0], REMOTE)), R::MartianSource),
        (B4, from(([8, 8, 8, 8], REMOTE)), R::NotSubscriber),
        (B4, from(([192, 0, 0, 0], REMOTE)), R::NotSubscriber),
        (B4, from(([192, 0, 0, 1], REMOTE)), R::NotSubscriber),
        (B4, from(([192, 0, 0, 1], [192, 0, 0, 1])), R::NotSubscriber),
        (B4, from(([192, 0, 0, 7], REMOTE)), R::NotSubscriber),
        (B4, from((HOST, [224, 0, 0, 1])), R::MartianDestination),
        (B4, from((HOST, HOST)), R::Land),
        (B4, broken(10), R::BadHeaderChecksum),
        (B4, good[..19].to_vec(), R::BadLength),
        (B4, tunneled(OTHER_B4, &good), R::NotIpv4),
    ];
    for (b4, inner, reason) in cases {
        let taken = world.take(Side::Inside, &tunneled(b4, &inner));
        assert_eq!(taken, Err(reason), "{b4} {inner:x?}");
    }
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.hosts(), (0, 0));
    // Fragments of a source that is no B4 do not wait.
    let fragment = [&[IPV4, 0, 0, 1, 0, 0, 0, 9][..], &good[..24]].concat();
    let taken = world.take(Side::Inside, &six("2001:db8:b6::1", 44, &fragment));
    assert_eq!(taken, Err(R::SoftwireSource));
    assert_eq!(world.translator.domain_counters().last().map(|one| one.spoofed), Some(2));
    // Tunnels end inside alone.
    let taken = world.take(Side::Outside, &tunneled(B4, &good));
    assert!(taken.is_err(), "{taken:?}");
}

//= test rfc6333#section-6.5-address
#[test]
fn addresses_of_section_5_7_are_usable() {
    let mut world = World::new();
    let b4_itself = [192, 0, 0, 2];
    let left = world.leave(B4, &udp((b4_itself, REMOTE), (123, 123), &[1]));
    assert_eq!(world.enter(&answer(&left, &[2])).1[16..20], b4_itself);
    let echo = icmp((b4_itself, [192, 0, 0, 1]), &[8, 0, 0, 0, 0, 5, 0, 1]);
    match world.take(Side::Inside, &tunneled(B4, &echo)) {
        Ok((Side::Inside, bytes, None)) => {
            let (b4, inner) = open(&bytes);
            let header = Ipv4::new_checked(&inner[..]).expect("a packet");
            assert_eq!((b4.as_str(), &inner[12..20]), (B4, &[192, 0, 0, 1, 192, 0, 0, 2][..]));
            assert_eq!((inner[20], checksum(header.payload())), (0, 0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_subscriber_has_256_hosts_and_hosts_without_mappings_lose_their_numbers() {
    let mut world = World::with(|config, _| config.limits.subscribers = Some(17));
    let inner = |host: u16, port| {
        let [high, low] = host.to_be_bytes();
        udp(([10, 0, high, low], REMOTE), (port, 53), &[1])
    };
    for host in 0..256 {
        world.leave(B4, &inner(host, 5000));
    }
    let taken = world.take(Side::Inside, &tunneled(B4, &inner(256, 5000)));
    assert_eq!(taken, Err(R::PortQuota));
    assert_eq!(world.refusal(B4), (1, [10, 0, 1, 0], inner(256, 5000)));
    for other in 0..16 {
        world.leave(&format!("2001:db8:b4:1::{other:x}"), &inner(256, 5000));
    }
    let third = tunneled("2001:db8:b4::3", &inner(0, 5000));
    assert_eq!(world.take(Side::Inside, &third), Err(R::MappingTableFull));
    assert_eq!(world.refusal("2001:db8:b4::3"), (1, [10, 0, 0, 0], inner(0, 5000)));
    assert_eq!(world.hosts(), (272, 17));
    // Hosts without mappings lose their numbers.
    world.wait(900);
    assert_eq!(world.hosts(), (0, 0));
    assert!(world.take(Side::Inside, &third).is_ok());
}

#[test]
fn a_quota_counts_all_hosts_of_a_subscriber() {
    let mut world = World::with(|config, _| config.limits.udp_ports = 3);
    let inner = |host: u8| udp(([10, 0, 0, host], REMOTE), (5000, 53), &[1]);
    for host in 1..=3 {
        world.leave(B4, &inner(host));
    }
    assert_eq!(world.take(Side::Inside, &tunneled(B4, &inner(4))), Err(R::PortQuota));
    world.leave(OTHER_B4, &inner(4));
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.hosts(), (4, 2));
}

#[test]
fn remote_hosts_reach_static_mappings_before_their_hosts_have_sent_anything() {
    let mut world = with_servers();
    world.wait(1000);
    assert_eq!(world.hosts(), (2, 2));
    for (b4, port) in [(B4, 80), (OTHER_B4, 81)] {
        let (to, inner) = world.enter(&udp((REMOTE, EXTERNAL), (5000, port), b"question"));
        assert_eq!((to.as_str(), &inner[16..20], &inner[22..24]), (b4, &HOST[..], &[31, 144][..]));
        let left = world.leave(b4, &udp((HOST, REMOTE), (8080, 5000), b"answer"));
        assert_eq!((&left[12..16], &left[20..22]), (&EXTERNAL[..], &port.to_be_bytes()[..]));
    }
    // Another host's packets from that port are its own.
    let other = [192, 168, 1, 3];
    let left = world.leave(B4, &udp((other, REMOTE), (8080, 5000), b"other"));
    assert_ne!(left[20..22], [0, 80]);
}
