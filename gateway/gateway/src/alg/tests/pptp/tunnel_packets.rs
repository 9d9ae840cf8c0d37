//! Further packets of a tunnel: errors about them, fragments, explanations, and packets that cannot
//! travel on.

use super::*;

#[test]
fn errors_about_packets_of_a_call_reach_their_host() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let out = world.send(Side::Inside, &gre("10.0.0.5", "198.51.100.2", 9000)).remove(0).1;
    let back = world.send(Side::Outside, &gre("198.51.100.2", POOL, outer)).remove(0).1;
    let check = |told: &[(Side, Vec<u8>)], ends: [&str; 2], quoted: [&str; 2], call: u16| {
        let [(_, bytes)] = told else { panic!("{} packets leave", told.len()) };
        let ip = Ipv4::new_checked(&bytes[..]).unwrap();
        assert!(ip.checksum_valid() && Icmp::new_checked(ip.payload()).unwrap().checksum_valid());
        assert_eq!([ip.source(), ip.destination()].map(Ipv4Addr::from), ends.map(address));
        let about = Ipv4::new_header_checked(&ip.payload()[8..]).unwrap();
        assert!(about.checksum_valid());
        assert_eq!([about.source(), about.destination()].map(Ipv4Addr::from), quoted.map(address));
        assert_eq!(ip.payload()[34..36], call.to_be_bytes());
    };
    let (router, host, pac) = ("192.0.2.1", "10.0.0.5", "198.51.100.2");
    let told = world.send(Side::Outside, &error(router, POOL, &out));
    check(&told, [router, host], [host, pac], 9000);
    let told = world.send(Side::Inside, &error("10.0.0.1", pac, &back));
    check(&told, [POOL, pac], [pac, POOL], outer);
    // Errors about other packets, and to others, are of no call.
    assert_eq!(world.send(Side::Outside, &error(router, "203.0.113.9", &out)), []);
    assert_eq!(world.send(Side::Outside, &error(router, POOL, &gre(POOL, pac, 1))), []);
    // If two hosts could have sent the packet, none is told.
    let mut other = Control::open(&mut world, "10.0.0.6:40000");
    other.call(&mut world, 7, 9000);
    assert_eq!(world.send(Side::Outside, &error(router, POOL, &out)), []);
}

#[test]
fn packets_of_a_call_are_explained() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let explain = |world: &World, from: Side, bytes: &[u8]| {
        let arrived = Arrived { now: world.now, from, realm: 0 };
        world.stage.explain_call(&world.engine, arrived, bytes)
    };
    let back = gre("198.51.100.2", POOL, outer);
    let (told, payload) = explain(&world, Side::Outside, &back).unwrap();
    assert_eq!(told.verdict, Verdict::Forward(Side::Inside));
    assert_eq!(told.becomes.unwrap().destination.address, Some(address("10.0.0.5")));
    let [edit] = &payload.edits[..] else { panic!("{payload:?}") };
    assert_eq!((&edit.old[..], &edit.new[..]), (&outer.to_be_bytes()[..], &[0, 7][..]));
    assert_eq!((payload.kind, payload.flow), (Kind::Pptp, FlowState::Call));
    let out = gre("10.0.0.5", "198.51.100.2", 9000);
    let (told, payload) = explain(&world, Side::Inside, &out).unwrap();
    assert_eq!(told.becomes.unwrap().source.address, Some(address(POOL)));
    assert_eq!(payload.edits, []);
    assert!(explain(&world, Side::Outside, &gre("198.51.100.2", POOL, outer ^ 1)).is_none());
    // Nothing has changed.
    assert_eq!(world.stage.open(&mut world.engine, None, world.now).len(), 1);
}

#[test]
fn fragments_follow_the_first_one() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    let outer = control.call(&mut world, 7, 9000);
    let (host, pac) = ("10.0.0.5", "198.51.100.2");
    let way = |world: &mut World, from: Side, sent: &[u8]| {
        let out = world.send(from, sent);
        let [(_, bytes)] = &out[..] else { return None };
        let ip = Ipv4::new_checked(&bytes[..]).unwrap();
        assert!(ip.checksum_valid() && ip.ttl() == 63);
        assert_eq!(bytes[28..], sent[28..]);
        Some(([ip.source(), ip.destination()].map(Ipv4Addr::from), ip.identification()))
    };
    let mut drawn = BTreeSet::new();
    for round in 0..20 {
        let sent = pieces(&gre(host, pac, 9000), 5);
        let left = sent.map(|sent| way(&mut world, Side::Inside, &sent).unwrap());
        assert!(left.iter().all(|one| *one == left[0] && one.0 == [POOL, pac].map(address)));
        assert!(drawn.insert(left[0].1), "an identification of its own");
        let [first, second, third] = pieces(&gre(pac, POOL, outer), 100 + round);
        for sent in [&first, &third, &second] {
            let came = way(&mut world, Side::Outside, sent);
            assert_eq!(came, Some(([pac, host].map(address), 100 + round)));
        }
    }
    // Fragments of other datagrams, of another host, and of too old ones have no call.
    let [_, second, _] = pieces(&gre(pac, POOL, outer), 99);
    assert_eq!(way(&mut world, Side::Outside, &second), None);
    let [_, second, _] = pieces(&gre("198.51.100.3", POOL, outer), 119);
    assert_eq!(way(&mut world, Side::Outside, &second), None);
    let [_, second, _] = pieces(&gre(pac, POOL, outer), 119);
    assert!(way(&mut world, Side::Outside, &second).is_some());
    // Each call remembers a few datagrams.
    assert_eq!(world.stage.calls.entries()[4], 8);
    world.pass_time(3);
    assert_eq!(way(&mut world, Side::Outside, &second), None);
    assert_eq!(world.stage.calls.entries()[4], 0);
}

#[test]
fn packets_that_cannot_travel_on_are_answered_by_the_engine() {
    let mut world = world();
    let mut control = Control::open(&mut world, "10.0.0.5:40000");
    control.call(&mut world, 7, 9000);
    let sent = gre("10.0.0.5", "198.51.100.2", 9000);
    let change = |at: usize, value: u8, len: usize| {
        let mut bytes = sent.clone();
        bytes.resize(len, 0);
        bytes[at] = value;
        let mut ip = Ipv4::new_checked(&mut bytes[..]).unwrap();
        ip.set_total_len(len as u16);
        ip.fill_checksum();
        bytes
    };
    for (at, value, len) in [(8, 1, 40), (6, 0x40, 1501)] {
        let taken = world.send(Side::Inside, &change(at, value, len));
        assert_eq!(taken, [], "byte {at}");
    }
    let drops = &world.engine.counters().drops;
    assert_eq!(drops[natgate_engine::DropReason::TtlExceeded as usize], 1);
    assert_eq!(drops[natgate_engine::DropReason::TooBig as usize], 1);
    // A wrong checksum of the header.
    let mut wrong = sent.clone();
    wrong[10] ^= 1;
    assert_eq!(world.send(Side::Inside, &wrong), []);
}
