//! Attacks on the tunnels of DS-Lite: forged ends, tunnels in tunnels, and fragments inside and
//! outside. docs/attacks.md has a line about each.

use super::*;

/// A far end of a tunnel by its number: most are no B4s.
fn anywhere(number: u32) -> String {
    let mixed = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
    Ipv6Addr::from_bits(0x2001_0db8_0000_0000 << 64 | mixed & (u128::MAX >> 32)).to_string()
}

/// A B4 that the prefixes permit, by its number.
fn permitted(number: u32) -> String {
    Ipv6Addr::from_bits(address("2001:db8:b5::") + u128::from(number)).to_string()
}

fn question(port: u16) -> Vec<u8> {
    udp((HOST, REMOTE), (port, 53), &[1])
}

/// A fragment of a packet in a tunnel.
fn outer_fragment(
    b4: &str,
    identification: u16,
    (from, more): (usize, bool),
    part: &[u8],
) -> Vec<u8> {
    let [high, low] = identification.to_be_bytes();
    let [a, b] = (from as u16 | u16::from(more)).to_be_bytes();
    six(b4, 44, &[&[IPV4, 0, a, b, 0, 0, high, low][..], part].concat())
}

#[test]
fn forged_ends_outside_the_prefixes_get_and_leave_nothing() {
    let mut world = World::new();
    let left = world.leave(B4, &question(5000));
    let inner = question(6000);
    let forged: Vec<String> = (0..100_000).map(anywhere).collect();
    for end in forged.iter().filter(|end| !end.starts_with("2001:db8:b4:")) {
        assert_eq!(world.take(Side::Inside, &tunneled(end, &inner)), Err(R::SoftwireSource));
        let fragment = outer_fragment(end, 9, (0, true), &inner[..24]);
        assert_eq!(world.take(Side::Inside, &fragment), Err(R::SoftwireSource));
        world.translator.sweep(&world.engine, world.now);
    }
    // No error answers a forged source, so nobody is a mirror.
    assert_eq!((world.queued(), world.made()), (None, None));
    assert_eq!(world.hosts(), (1, 1));
    assert_eq!(world.enter(&answer(&left, &[2])).0, B4);
}

#[test]
fn forged_ends_inside_the_prefixes_take_the_places_that_are_free() {
    let mut world = World::with(|config, _| config.limits.subscribers = Some(1000));
    let left = world.leave(B4, &question(5000));
    let mut refused = 0;
    for number in 0..10_000 {
        let taken = world.take(Side::Inside, &tunneled(&permitted(number), &question(5000)));
        refused += u32::from(taken.is_err());
        world.translator.sweep(&world.engine, world.now);
    }
    assert_eq!((refused, world.hosts()), (9001, (1000, 1000)));
    // A B4 that had a place keeps it, its mappings, and room for more.
    assert_eq!(world.enter(&answer(&left, &[2])).0, B4);
    for port in 5001..5100 {
        world.leave(B4, &question(port));
    }
    let newcomer = tunneled(OTHER_B4, &question(5000));
    assert_eq!(world.take(Side::Inside, &newcomer), Err(R::MappingTableFull));
    // The places are free again when the mappings have ended.
    world.wait(420);
    assert_eq!(world.hosts(), (0, 0));
    assert!(world.take(Side::Inside, &newcomer).is_ok());
}

/// A packet of one IP protocol in another one.
fn nested(protocol: u8, content: &[u8]) -> Vec<u8> {
    four((HOST, REMOTE), protocol, content)
}

#[test]
fn a_tunnel_in_a_tunnel_is_opened_once() {
    let mut world = World::new();
    let good = question(5000);
    let (ipv6_in_ipv6, in_options) = (41, [&[IPV4, 0, 1, 4, 0, 0, 0, 0][..], &good].concat());
    let cases = [
        // IPv6 in IPv6: the end of the tunnels has IPv4 alone.
        (six(B4, ipv6_in_ipv6, &tunneled(OTHER_B4, &good)), Err(R::LocalUnsupported)),
        // A packet of the gateway's own tunnels in a tunnel.
        (tunneled(B4, &tunneled(OTHER_B4, &good)), Err(R::NotIpv4)),
        // Options before the packet are skipped, as anywhere.
        (six(B4, 60, &in_options), Ok(17)),
        // IPv4 in IPv4 and IPv6 in IPv4 are protocols without ports: their content stays closed.
        (tunneled(B4, &nested(4, &good)), Ok(4)),
        (tunneled(B4, &nested(41, &tunneled(B4, &good))), Ok(41)),
        // The same to the gateway's address in the tunnel.
        (
            tunneled(B4, &four((HOST, [192, 0, 0, 1]), 41, &tunneled(B4, &good))),
            Err(R::LocalUnsupported),
        ),
    ];
    for (packet, expected) in cases {
        let taken = world.take(Side::Inside, &packet);
        let taken = taken.map(|(side, bytes, _)| {
            assert_eq!((side, &bytes[12..16]), (Side::Outside, &EXTERNAL[..]));
            bytes[9]
        });
        assert_eq!(taken, expected, "{packet:x?}");
    }
    assert_eq!(world.hosts().1, 1);
    // More headers than a packet has, one in the other.
    let deep = (0..12).fold((IPV4, good), |(next, content), _| {
        (60, [&[next, 0, 1, 4, 0, 0, 0, 0][..], &content].concat())
    });
    assert_eq!(world.take(Side::Inside, &six(B4, deep.0, &deep.1)), Err(R::ExtensionHeaders));
}

#[test]
fn a_packet_that_turns_round_in_its_tunnel_ends_with_its_hops() {
    let mut world = World::new();
    // The endpoint of a protocol without ports is the external address.
    let left = world.leave(B4, &nested(4, &[0; 20]));
    let mut packet = four((HOST, EXTERNAL), 4, &left[20..]);
    let mut rounds = 0;
    while let Ok((Side::Inside, bytes, _)) = world.take(Side::Inside, &tunneled(B4, &packet)) {
        let (b4, inner) = open(&bytes);
        assert_eq!(b4, B4);
        packet = with_field(inner, |header| {
            header.set_source(u32::from_be_bytes(HOST));
            header.set_destination(u32::from_be_bytes(EXTERNAL));
        });
        rounds += 1;
    }
    assert!(rounds < 64, "{rounds} rounds");
}

/// A datagram in two inner fragments, each in two outer ones, numbered.
fn mixed(b4: &str, first: u16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let whole = udp((HOST, REMOTE), (5000, 53), &[6; 1200]);
    let inner = [(0, 608), (608, 1208)].map(|(from, to)| {
        let bytes = [&whole[..20], &whole[20 + from..20 + to]].concat();
        with_field(bytes, |header| {
            header.set_total_len(20 + (to - from) as u16);
            header.set_identification(first);
            header.set_fragment_field((from as u16 / 8) | u16::from(to < 1208) << 13);
        })
    });
    let outer = (first..).zip(&inner).flat_map(|(identification, inner)| {
        let (head, tail) = inner.split_at(304);
        [
            outer_fragment(b4, identification, (0, true), head),
            outer_fragment(b4, identification, (304, false), tail),
        ]
    });
    (whole.clone(), outer.collect())
}

/// All orders of four things.
fn orders() -> Vec<[usize; 4]> {
    let all = 0..256_usize;
    let order = |number: usize| [0, 1, 2, 3].map(|at| number >> (2 * at) & 3);
    let is_order = |order: &[usize; 4]| (0..4).all(|one| order.contains(&one));
    all.map(order).filter(is_order).collect()
}

#[test]
fn fragments_in_fragments_pass_in_any_order() {
    let orders = orders();
    assert_eq!(orders.len(), 24);
    for order in orders {
        let mut world = World::new();
        let (whole, outer) = mixed(B4, 1);
        let mut payload = vec![0; 1208];
        for number in order {
            assert!(world.take(Side::Inside, &outer[number]).is_err(), "all leave by queues");
            while let Some((side, piece)) = world.queued().or_else(|| world.made()) {
                let header = Ipv4::new_checked(&piece[..]).expect("a packet");
                assert_eq!((side, header.source()), (Side::Outside, u32::from_be_bytes(EXTERNAL)));
                let at = header.fragment_offset();
                payload[at..at + header.payload().len()].copy_from_slice(header.payload());
            }
        }
        let port = u16::from_be_bytes([payload[0], payload[1]]);
        let expected = udp((EXTERNAL, REMOTE), (port, 53), &whole[28..]);
        assert_eq!(payload, expected[20..], "{order:?}");
    }
}

#[test]
fn a_flood_of_fragments_from_one_tunnel_stops_no_other() {
    let mut world = World::with(|config, _| config.limits.fragment_memory = 1 << 20);
    let mut waiting = 0;
    for number in 0..10_000 {
        let fragment = outer_fragment(B4, number, (0, true), &[0x45; 1024]);
        match world.take(Side::Inside, &fragment) {
            Err(R::FragmentLimit) => {}
            _ => waiting += 1,
        }
    }
    // An eighth of the memory; each packet costs 512 bytes more than its payload.
    assert_eq!(waiting, 85);
    let (_, outer) = mixed(OTHER_B4, 1);
    for fragment in &outer {
        assert!(world.take(Side::Inside, fragment).is_err());
    }
    assert!(world.queued().is_some() && world.queued().is_some());
    // Overlapping fragments end their packet, and those that wait end with their time.
    let overlapping = outer_fragment(OTHER_B4, 9, (0, true), &[0x45; 64]);
    assert!(world.take(Side::Inside, &overlapping).is_err());
    assert_eq!(world.take(Side::Inside, &overlapping), Err(R::FragmentOverlap));
    world.wait(3);
    assert_eq!(world.drops()[R::FragmentUnmatched as usize], 85);
    assert_eq!(world.drops()[R::FragmentOverlap as usize], 2);
}

#[test]
fn small_fragments_from_one_tunnel_stop_no_other() {
    stopped_alone(&mut World::new(), |_| B4.to_owned());
}

#[test]
fn small_fragments_from_many_tunnels_of_one_subscriber_stop_no_other() {
    let mut world = World::with(|_, dslite| dslite.subscriber_length = 112);
    stopped_alone(&mut world, |number| format!("2001:db8:b4::77:{:x}", number % 64));
}

/// A flood of fragments from tunnels that `source` names stops no other tunnel.
fn stopped_alone(world: &mut World, source: impl Fn(u16) -> String) {
    let mut waiting = 0;
    for number in 0..5000 {
        let fragment = outer_fragment(&source(number), number, (0, true), &[0x45; 8]);
        waiting += u32::from(world.take(Side::Inside, &fragment) != Err(R::FragmentLimit));
    }
    // An eighth of 4,096 packets.
    assert_eq!(waiting, 512);
    let (_, outer) = mixed(OTHER_B4, 1);
    for fragment in &outer {
        assert!(world.take(Side::Inside, fragment).is_err());
    }
    assert!(world.queued().is_some() && world.queued().is_some());
}

#[test]
fn overlapping_fragments_end_what_is_still_to_come() {
    let mut world = World::new();
    let inner = question(5000);
    let parts = [(0, true, &inner[..24]), (24, false, &inner[24..])];
    let piece =
        |(from, more, part): (usize, bool, &[u8])| outer_fragment(B4, 9, (from, more), part);
    assert!(world.take(Side::Inside, &piece(parts[0])).is_err());
    let overlapping = piece((8, true, &[0x45; 16]));
    assert_eq!(world.take(Side::Inside, &overlapping), Err(R::FragmentOverlap));
    for part in parts {
        assert_eq!(world.take(Side::Inside, &piece(part)), Err(R::FragmentOverlap));
    }
    // The name is free again when its time is over.
    world.wait(3);
    assert!(world.take(Side::Inside, &piece(parts[0])).is_err());
    assert!(world.take(Side::Inside, &piece(parts[1])).is_err() && world.queued().is_some());
}

/// A customer that owns a prefix quotes packets to as many ends as it likes.
#[test]
fn errors_about_other_ends_of_a_prefix_are_about_nothing() {
    let mut world = of_prefixes();
    let left = world.leave(MOVING[0], &question(5000));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    let (_, inner) = open(&quoted);
    let nothing = Err(R::IcmpNoSession);
    for number in 0..5000 {
        let end = Ipv6Addr::from_bits(address(MOVING[0]) + 1 + number).to_string();
        let quoted = &to_tunnel(&end, &inner)[..100];
        for (kind, word) in [(icmpv6::kind::PACKET_TOO_BIG, 1280), (icmpv6::kind::UNREACHABLE, 0)] {
            assert_eq!(world.take(Side::Inside, &report(kind, 0, word, quoted)), nothing, "{end}");
        }
        let about = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &inner[..64]].concat();
        let error = icmp((HOST, REMOTE), &about);
        assert_eq!(world.take(Side::Inside, &tunneled(&end, &error)), nothing, "{end}");
    }
    assert_eq!((world.queued(), world.made()), (None, None));
    // The subscriber's own tunnel may still become narrower.
    let report = report(icmpv6::kind::PACKET_TOO_BIG, 0, 1280, &quoted[..100]);
    assert!(world.take(Side::Inside, &report).is_err());
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, Some(1280));
    // After a change the former tunnel is another one, too.
    world.leave(MOVING[1], &question(5000));
    assert_eq!(world.take(Side::Inside, &report), nothing);
}

/// Takes packets from inside in runs; returns the number of packets in each.
fn runs(world: &mut World, batch: &[Vec<u8>]) -> Vec<usize> {
    let mut buffers: Vec<Vec<u8>> =
        batch.iter().map(|one| [&[0; ROOM], &one[..]].concat()).collect();
    let mut packets: Vec<Packet<'_>> =
        buffers.iter_mut().map(|buffer| Packet::new(buffer, ROOM)).collect();
    let mut fates = vec![Fate::Nothing; batch.len()];
    let (mut counts, mut taken) = (Vec::new(), 0);
    while taken < batch.len() {
        let World { engine, translator, now } = &mut *world;
        let rest = &mut packets[taken..];
        let count = translator.take_some(engine, *now, Side::Inside, rest, &mut fates);
        while engine.poll_event().is_some() {}
        translator.sweep(engine, *now);
        counts.push(count);
        taken += count;
    }
    counts
}

/// Packets of others in the prefix of a subscriber do not make all packets slow.
#[test]
fn only_a_packet_that_moves_a_tunnel_begins_a_run() {
    let mut world = of_prefixes();
    let from = |b4: &str| tunneled(b4, &question(5000));
    let batch = |b4s: &[&str]| -> Vec<Vec<u8>> { b4s.iter().map(|b4| from(b4)).collect() };
    let [first, second, other] = MOVING;
    // The subscribers are new. One moves, which is free, and may not move back.
    let moves = batch(&[first, first, other, second, first, second, other]);
    assert_eq!(runs(&mut world, &moves), [3, 4]);
    let refused = batch(&[first, second, "2001:db8:b6::1", first, other, first].repeat(10));
    let before = world.drops()[R::SoftwireSource as usize];
    assert_eq!(runs(&mut world, &refused), [60]);
    assert_eq!(world.drops()[R::SoftwireSource as usize], before + 40);
    // What may move a tunnel, but is refused or an error, does not.
    world.now = Timestamp(world.now.0 + 1_800_000_000_000);
    let martian = tunneled(first, &udp(([127, 0, 0, 1], REMOTE), (5000, 53), &[1]));
    let quoted = udp((REMOTE, HOST), (53, 5000), &[1]);
    let error = icmp((HOST, REMOTE), &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat());
    let unmoved = [from(second), martian, tunneled(first, &error), from(second)];
    assert_eq!(runs(&mut world, &unmoved), [4]);
    assert_eq!(runs(&mut world, &batch(&[second, other, first, second])), [2, 2]);
}
