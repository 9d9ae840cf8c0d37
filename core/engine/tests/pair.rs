//! An engine as one of a pair: duties of addresses, changes for the partner, ports that rest.

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Allocation, Behavior, BlockConfig, Change, Config, Copied, Copies, CopyChange,
    Cursor, DeterministicConfig, DropReason, Duty, Endpoint, Event, Explicit, ExplicitError,
    Filter, Limits, MapRequest, NoNumbers, Packet, PairPort, PeerRequest, PoolConfig, Pooling,
    Prefix, RealmConfig, RemoteFilter, Side, StaticMapping, Verdict, WantedEndpoint,
};
use natgate_wire::protocol::UDP;
use std::net::Ipv4Addr;
use std::time::Duration;

const A: &str = "203.0.113.1";
const B: &str = "203.0.113.2";

/// A node of a pair that owns some of the two addresses.
fn node(own: &[&str], ports: (u16, u16), hold_down: u64) -> Lab {
    let both = vec![range(A), range(B)];
    let pool = PoolConfig { addresses: both, ..pool(A, A, ports) };
    let mut config = Config { pools: vec![pool], ..config() };
    config.timeouts.hold_down = Duration::from_secs(hold_down);
    let mut lab = Lab::new(&config);
    lab.engine.join_pair();
    for address in [A, B] {
        let duty = if own.contains(&address) { OWNER } else { PARTNER };
        lab.engine.set_duty(range(address), duty);
    }
    lab
}

fn changes(lab: &mut Lab) -> Vec<CopyChange> {
    let mut changes = Vec::new();
    lab.engine.take_changes(&mut changes);
    changes
}

/// Copies the mapping of a key, if there is one.
fn copy_one(from: &Lab, to: &mut Lab, copies: &mut Copies, key: u32) -> Option<Copied> {
    let mut record = Vec::new();
    from.engine.copy_record(key, &NoNumbers, &mut record)?;
    let copied = to.engine.copy(copies, &mut NoNumbers, (key, &record));
    Some(copied.expect("a whole record"))
}

/// Copies all mappings. Returns what became of each.
fn copy_all(from: &Lab, to: &mut Lab, copies: &mut Copies) -> Vec<Copied> {
    let keys = 0..from.engine.copy_extent();
    keys.filter_map(|key| copy_one(from, to, copies, key)).collect()
}

/// Copies the changed mappings. Returns the number of records that found a place.
fn follow(from: &mut Lab, to: &mut Lab, copies: &mut Copies) -> usize {
    let mut placed = 0;
    for change in changes(from) {
        match change {
            CopyChange::Changed(key) => {
                let copied = copy_one(from, to, copies, key);
                placed += usize::from(matches!(copied, Some(Copied::Made(_))));
            }
            CopyChange::Ended(key, port) => {
                to.engine.end_copy(copies, key);
                from.engine.end_rest(port);
            }
            CopyChange::StaticEnded(key, _) => to.engine.end_copy(copies, key),
        }
    }
    placed
}

fn is_lost(lab: &mut Lab, packet: &[u8]) -> bool {
    lab.refused(Side::Inside, packet) == DropReason::PoolExhausted
}

fn endpoint(text: &str) -> Endpoint {
    let (address, port) = text.split_once(':').expect("an endpoint");
    Endpoint { address: address.parse().unwrap(), port: port.parse().unwrap() }
}

#[test]
fn changes_name_what_a_partner_must_hear_of() {
    let mut a = node(&[A], (2000, 2999), 120);
    a.out(&udp("10.0.0.5:4000", REMOTE));
    a.out(&udp("10.0.0.5:4000", "198.51.100.8:53"));
    let [CopyChange::Changed(key)] = changes(&mut a)[..] else { panic!("one mapping") };
    a.out(&udp("10.0.0.5:4000", REMOTE));
    assert_eq!(changes(&mut a), [], "a packet of a known session");
    let facts = a.engine.copy_facts(key).expect("a mapping");
    assert_eq!((facts.address, facts.is_tcp, facts.is_settled), (A.parse().unwrap(), false, false));

    let syn = ends(&a.out(&tcp("10.0.0.6:5000", REMOTE, "S", 100, 0))).0;
    let [CopyChange::Changed(tcp_key)] = changes(&mut a)[..] else { panic!("one mapping") };
    assert!(!a.engine.copy_facts(tcp_key).expect("a mapping").is_settled);
    a.inward(&tcp(REMOTE, &syn, "SA", 500, 101));
    assert_eq!(changes(&mut a), [CopyChange::Changed(tcp_key)]);
    assert!(a.engine.copy_facts(tcp_key).expect("a mapping").is_settled);
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 101, 501));
    a.inward(&tcp(REMOTE, &syn, "A", 501, 101));
    assert_eq!(changes(&mut a), [], "data changes no state");
    a.wait_s(400.0);
    let ended = changes(&mut a);
    let [CopyChange::Changed(changed), CopyChange::Ended(ended, PairPort { protocol: 17, .. })] =
        ended[..]
    else {
        panic!("{ended:?}: the first session ends before the mapping does")
    };
    assert_eq!([changed, ended], [key; 2]);
    assert!(a.engine.copy_facts(key).is_none());
}

#[test]
fn a_port_rests_until_the_partner_has_forgotten_it() {
    for hold_down in [0, 120] {
        let mut a = node(&[A], (2000, 2000), hold_down);
        let external = a.external_of(&udp("10.0.0.5:4000", REMOTE));
        a.wait_s(301.0);
        assert_eq!(a.engine.mappings().count(), 0);
        a.wait_s(5_000.0);
        assert_eq!(a.engine.resting(), 1);
        assert!(is_lost(&mut a, &udp("10.0.0.6:4000", REMOTE)), "the port rests, however long");
        let remote = Ipv4Addr::UNSPECIFIED;
        let port = PairPort { protocol: 17, external: endpoint(&external), remote, number: 0 };
        a.engine.end_rest(port);
        assert_eq!(a.engine.resting(), 0);
        if hold_down > 0 {
            a.wait_s(118.0);
            assert!(
                is_lost(&mut a, &udp("10.0.0.6:4000", REMOTE)),
                "the hold-down begins with its end"
            );
        }
        a.wait_s(4.0);
        assert_eq!(a.external_of(&udp("10.0.0.6:4000", REMOTE)), external);
    }
}

/// Unanswered hosts have all ports, or all blocks, of a node. As many give way as without a
/// partner: what they had counts as free while it rests. When the partner has forgotten it, it is
/// free without a hold-down.
#[test]
fn unanswered_hosts_of_a_node_give_way_as_much_as_those_of_one_alone() {
    const PORTS: u16 = 960;
    let block = BlockConfig { size: 16, max_per_subscriber: 1, ..BlockConfig::default() };
    // With 15 times what becomes free, the others have no more than that.
    for (allocation, hosts, go) in
        [(None, PORTS, 60), (Some(Allocation::Block(block)), PORTS / 16, 4)]
    {
        let pool = PoolConfig { allocation, ..pool(A, A, (1024, 1024 + PORTS - 1)) };
        let mut config = Config { pools: vec![pool], ..config() };
        config.limits.unanswered_kept = 0;
        let mut a = Lab::new(&config);
        a.engine.join_pair();
        a.engine.set_duty(range(A), OWNER);
        for host in 0..hosts {
            a.out(&udp(&format!("10.1.{}.{}:4000", host / 256, host % 256), REMOTE));
        }
        let newcomer = udp("10.2.0.1:4000", REMOTE);
        assert!(is_lost(&mut a, &newcomer));
        a.wait_s(0.25);
        for _ in 0..3 {
            while a.engine.reclaim(a.now) {}
            assert!(is_lost(&mut a, &newcomer), "all ports rest");
            assert_eq!(a.engine.counters().mappings_reclaimed, go);
            a.wait_s(0.25);
        }
        let is_end = |change: &CopyChange| matches!(change, CopyChange::Ended(..));
        let ended: Vec<CopyChange> = changes(&mut a).into_iter().filter(is_end).collect();
        assert_eq!((ended.len() as u64, a.engine.resting() as u64), (go, go));
        for change in ended {
            if let CopyChange::Ended(_, port) = change {
                a.engine.end_rest(port);
            }
        }
        assert_eq!((a.engine.resting(), a.engine.pool_usage(0, UDP).held), (0, 0));
        a.out(&newcomer);
        let is_release = |event: &Event| matches!(event.change, Change::BlockReleased(_));
        let released = a.events.iter().filter(|event| is_release(event)).count() as u64;
        assert_eq!(released, if hosts == PORTS { 0 } else { go });
    }
}

/// A static mapping takes a port that rests. The hold-down after the rest goes on when the static
/// mapping has gone.
#[test]
fn a_static_mapping_at_a_port_that_rests_does_not_end_its_hold_down() {
    for (waits, is_held) in [(60.0, true), (121.0, false)] {
        let mut a = node(&[A], (2000, 2000), 120);
        let plain = a.engine.config().clone();
        a.out(&udp("10.0.0.5:4000", REMOTE));
        a.wait_s(301.0);
        let ended = changes(&mut a).into_iter().find_map(|change| match change {
            CopyChange::Ended(_, port) => Some(port),
            _ => None,
        });
        let statics = vec![StaticMapping {
            protocol: Some(UDP),
            internal: (Ipv4Addr::new(10, 0, 0, 9), Some(53)),
            external: (A.parse().unwrap(), Some(2000)),
            ..StaticMapping::default()
        }];
        reload(&mut a, &Config { statics, ..plain.clone() });
        a.engine.end_rest(ended.expect("the mapping has ended"));
        a.wait_s(waits);
        reload(&mut a, &plain);
        a.wait_s(0.2);
        assert_eq!(a.engine.pool_usage(0, UDP).held, u64::from(is_held));
        assert_eq!(a.passes(Side::Inside, &udp("10.0.0.6:4000", REMOTE)), !is_held);
    }
}

/// A packet of GRE between two hosts.
fn gre(source: &str, destination: &str) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
    ip(47, address(source), address(destination), b"tunnel")
}

#[test]
fn an_address_rests_for_a_remote_host_after_a_mapping_without_a_port() {
    const PEER: &str = "198.51.100.7";
    let mut a = node(&[A], (2000, 2999), 120);
    a.out(&gre("10.0.0.5", PEER));
    a.wait_s(5_000.0);
    assert_eq!((a.engine.mappings().count(), a.engine.resting()), (0, 1));
    assert_eq!(a.refused(Side::Inside, &gre("10.0.0.6", PEER)), DropReason::Ambiguous);
    a.out(&gre("10.0.0.6", "198.51.100.8"));
    // The partner's copy leads to the same host.
    assert_eq!(ends(&a.out(&gre("10.0.0.5", PEER))).0, A);
    a.wait_s(5_000.0);
    let ports: Vec<PairPort> = changes(&mut a)
        .into_iter()
        .filter_map(|change| match change {
            CopyChange::Ended(_, port) if port.remote.to_string() == PEER => Some(port),
            _ => None,
        })
        .collect();
    let [first, second] = ports[..] else { panic!("{ports:?}") };
    a.engine.end_rest(second);
    assert_eq!(a.refused(Side::Inside, &gre("10.0.0.6", PEER)), DropReason::Ambiguous);
    a.engine.end_rest(first);
    assert_eq!(ends(&a.out(&gre("10.0.0.6", PEER))).0, A, "there is no hold-down");
    assert_eq!(a.engine.resting(), 1, "towards the other remote host");
}

#[test]
fn no_host_with_a_number_may_take_an_address_that_rests() {
    const PEER: &str = "198.51.100.7";
    let mut config = node(&[A], (2000, 2999), 120).engine.config().clone();
    config.realms = vec![RealmConfig {
        name: "nat64".into(),
        subscribers: vec![Prefix::new("10.0.0.0".parse().unwrap(), 8)],
        host_bits: Some(4),
        ..RealmConfig::default()
    }];
    let mut a = Lab::new(&config);
    a.engine.join_pair();
    a.engine.set_duty(range(A), OWNER);
    let send = |a: &mut Lab| {
        let mut buffer = gre("10.0.0.5", PEER);
        let mut packets = [Packet::new(&mut buffer, 0).in_realm(1)];
        let mut verdicts = [Verdict::Held];
        a.engine.process(a.now, Side::Inside, &mut packets, &mut verdicts);
        verdicts[0]
    };
    assert_eq!(send(&mut a), Verdict::Forward(Side::Outside));
    a.wait_s(5_000.0);
    assert_eq!((a.engine.mappings().count(), a.engine.resting()), (0, 1));
    // The number may be another host's now.
    assert_eq!(send(&mut a), Verdict::Drop(DropReason::Ambiguous));
}

#[test]
fn an_address_that_rests_after_two_hosts_is_of_neither() {
    const PEER: &str = "198.51.100.7";
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[], (2000, 2999), 120));
    a.out(&gre("10.0.0.5", PEER));
    a.wait_s(5_000.0);
    assert_eq!(a.engine.resting(), 1);
    let [.., CopyChange::Ended(_, first)] = changes(&mut a)[..] else { panic!("an end") };
    // The other engine is the owner for some time, and another host has the address.
    a.engine.set_duty(range(A), PARTNER);
    b.engine.set_duty(range(A), OWNER);
    b.out(&gre("10.0.0.6", PEER));
    let mut at_a = begin(&b, &mut a);
    assert_eq!(follow(&mut b, &mut a, &mut at_a), 1);
    b.engine.set_duty(range(A), PARTNER);
    a.engine.set_duty(range(A), OWNER);
    clear(&mut a, &of("10.0.0.6"));
    let [.., CopyChange::Ended(_, second)] = changes(&mut a)[..] else { panic!("an end") };
    a.engine.end_rest(first);
    assert_eq!(a.engine.resting(), 1);
    for host in ["10.0.0.5", "10.0.0.6"] {
        assert_eq!(a.refused(Side::Inside, &gre(host, PEER)), DropReason::Ambiguous);
    }
    a.engine.end_rest(second);
    assert_eq!(ends(&a.out(&gre("10.0.0.5", PEER))).0, A);
}

#[test]
fn mappings_without_ports_go_to_the_partner_and_come_back() {
    const PEERS: [&str; 2] = ["198.51.100.7", "198.51.100.8"];
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    PEERS.iter().for_each(|peer| _ = a.out(&gre("10.0.0.5", peer)));
    let mut at_b = begin(&a, &mut b);
    assert_eq!(follow(&mut a, &mut b, &mut at_b), 2);
    for peer in PEERS {
        assert_eq!(ends(&b.inward(&gre(peer, A))).1, "10.0.0.5");
        assert_eq!(ends(&b.out(&gre("10.0.0.5", peer))).0, A);
    }
    assert_eq!(ends(&b.out(&gre("10.0.0.6", PEERS[0]))).0, B, "its own address for its own");
    // The address moves, and the former owner has the mappings already.
    a.engine.set_duty(range(A), PARTNER);
    b.engine.set_duty(range(A), OWNER);
    let mut at_a = begin(&b, &mut a);
    let copied = copy_all(&b, &mut a, &mut at_a);
    assert!(copied.iter().all(|one| matches!(one, Copied::Made(_))), "adopted, or new");
    assert_eq!(a.engine.mappings().count(), 3);
    while a.engine.end_strangers(|slot| at_a.key(slot).is_some(), |_| true, 0, u32::MAX).is_some() {
    }
    assert_eq!(a.engine.mappings().count(), 3, "each has its key");
    b.wait_s(5_000.0);
    follow(&mut b, &mut a, &mut at_a);
    assert_eq!((a.engine.mappings().count(), b.engine.mappings().count()), (0, 0));
    assert_eq!((a.engine.resting(), b.engine.resting()), (0, 0));
}

#[test]
fn a_copy_without_a_port_gives_way_to_the_record_of_another_host() {
    const PEER: &str = "198.51.100.7";
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    a.out(&gre("10.0.0.5", PEER));
    let mut at_b = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut at_b);
    a.wait_s(5_000.0);
    let [.., CopyChange::Ended(_, port)] = changes(&mut a)[..] else { panic!("an end") };
    a.engine.end_rest(port);
    a.out(&udp("10.0.0.9:1", REMOTE));
    a.out(&gre("10.0.0.6", PEER));
    // The end of the first was lost; its slot has another mapping now.
    follow(&mut a, &mut b, &mut at_b);
    assert_eq!(ends(&b.inward(&gre(PEER, A))).1, "10.0.0.6");
    assert_eq!(b.engine.mappings().count(), 2);
}

#[test]
fn a_limit_of_held_ports_does_not_end_a_rest() {
    let both = vec![range(A)];
    let pool = PoolConfig { addresses: both, ..pool(A, A, (2000, 2009)) };
    let mut config = Config { pools: vec![pool], ..config() };
    config.limits.held_ports = Some(2);
    let mut a = Lab::new(&config);
    a.engine.join_pair();
    a.engine.set_duty(range(A), OWNER);
    for host in 2..8 {
        a.out(&udp(&format!("10.0.0.{host}:1"), REMOTE));
    }
    a.wait_s(500.0);
    assert_eq!((a.engine.mappings().count(), a.engine.resting()), (0, 6));
    for host in 2..6 {
        a.out(&udp(&format!("10.0.0.{host}:1"), REMOTE));
    }
    assert!(is_lost(&mut a, &udp("10.0.0.9:1", REMOTE)), "six of ten ports rest");
}

#[test]
fn copies_do_not_end_and_have_their_full_time_after_a_take_over() {
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    let external = a.external_of(&udp("10.0.0.5:4000", REMOTE));
    let mut copies = begin(&a, &mut b);
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    b.wait_s(5_000.0);
    assert_eq!(b.engine.mappings().count(), 1, "the owner ends it, nobody else");
    assert!(b.external_of(&udp("10.0.0.5:4001", REMOTE)).starts_with(B));
    assert!(b.engine.assigns(B.parse().unwrap()) && !b.engine.assigns(A.parse().unwrap()));

    b.engine.set_duty(range(A), OWNER);
    b.wait_s(295.0);
    assert_eq!(ends(&b.inward(&udp(REMOTE, &external))).1, "10.0.0.5:4000");
    assert_eq!(b.external_of(&udp("10.0.0.5:4000", REMOTE)), external);
    b.wait_s(302.0);
    assert_eq!(b.engine.mappings().count(), 0, "timers run");
}

#[test]
fn a_mapping_goes_to_the_partner_and_comes_back() {
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    b.wait_s(77.3);
    let external = a.external_of(&udp("10.0.0.5:4000", REMOTE));
    let mut at_b = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut at_b);
    // A gives its address away. Nothing ends at A, and B may assign.
    a.engine.set_duty(range(A), PARTNER);
    b.engine.set_duty(range(A), OWNER);
    let later = b.external_of(&udp("10.0.0.9:1", REMOTE));
    for _ in 0..3 {
        let mut at_a = begin(&b, &mut a);
        changes(&mut b);
        let copied = copy_all(&b, &mut a, &mut at_a);
        assert!(copied.iter().all(|one| matches!(one, Copied::Made(_))), "adopted, or new");
        assert_eq!(a.engine.mappings().count(), 2);
        a.wait_s(1_000.0);
        b.wait_s(1.0);
    }
    assert_eq!(a.external_of(&udp("10.0.0.5:4000", REMOTE)), external);
    assert_eq!(ends(&a.inward(&udp(REMOTE, &later))).1, "10.0.0.9:1");
    // B ends the mapping that A had made: A forgets it, and holds its port.
    let mut at_a = begin(&b, &mut a);
    copy_all(&b, &mut a, &mut at_a);
    b.wait_s(400.0);
    follow(&mut b, &mut a, &mut at_a);
    assert_eq!((a.engine.mappings().count(), b.engine.mappings().count()), (0, 0));
    assert_eq!(b.engine.resting(), 0);
}

#[test]
fn a_duty_changes_which_address_new_mappings_have() {
    let mut a = node(&[A], (2000, 2999), 120);
    assert!(a.external_of(&udp("10.0.0.5:1", REMOTE)).starts_with(A));
    a.engine.set_duty(range(A), Duty { assigns: false, keeps: false, owns: true });
    assert!(is_lost(&mut a, &udp("10.0.0.6:1", REMOTE)), "no address assigns");
    assert!(a.external_of(&udp("10.0.0.5:1", REMOTE)).starts_with(A), "a mapping stays");
    let all = AddressRange { first: A.parse().unwrap(), last: B.parse().unwrap() };
    a.engine.set_duty(all, OWNER);
    a.engine.set_duty(range(A), PARTNER);
    assert!(a.external_of(&udp("10.0.0.6:1", REMOTE)).starts_with(B));
    a.engine.set_duty(range(A), OWNER);
    a.engine.set_duty(range(B), PARTNER);
    assert!(a.external_of(&udp("10.0.0.7:1", REMOTE)).starts_with(A));
}

#[test]
fn a_reload_opens_no_address_of_the_other_engine() {
    let both = vec![range(A), range(B)];
    let mut a = node(&[A], (2000, 2009), 0);
    let mut config = a.engine.config().clone();
    let third = "203.0.113.3";
    let mut addresses = both.clone();
    addresses.push(range(third));
    // The operator drains one address, and another is new.
    config.pools[0].addresses = addresses;
    config.pools[0].draining = vec![range(A)];
    reload(&mut a, &config);
    a.wait_s(2.0);
    assert!(is_lost(&mut a, &udp("10.0.0.5:1", REMOTE)), "one drains, the others are foreign");
    config.pools[0].draining = vec![];
    reload(&mut a, &config);
    a.wait_s(2.0);
    for host in 2..12 {
        assert!(a.external_of(&udp(&format!("10.0.0.{host}:1"), REMOTE)).starts_with(A));
    }
    assert!(is_lost(&mut a, &udp("10.0.0.99:1", REMOTE)), "all ports of its own are in use");
    a.engine.set_duty(range(third), OWNER);
    assert!(a.external_of(&udp("10.0.0.99:1", REMOTE)).starts_with(third));
}

#[test]
fn mappings_that_the_owner_does_not_have_end() {
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    let external = a.external_of(&udp("10.0.0.5:4000", REMOTE));
    let mut at_b = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut at_b);
    // A gives its address away. B does not have a mapping that A still has.
    a.out(&udp("10.0.0.6:1", REMOTE));
    a.engine.set_duty(range(A), PARTNER);
    b.engine.set_duty(range(A), OWNER);
    let mut at_a = begin(&b, &mut a);
    copy_all(&b, &mut a, &mut at_a);
    assert_eq!(a.engine.mappings().count(), 2);
    let mut from = Some(0);
    while let Some(at) = from {
        from = a.engine.end_strangers(
            |slot| at_a.key(slot).is_some(),
            |address| address.to_string() == A,
            at,
            1,
        );
    }
    assert_eq!(a.engine.mappings().count(), 1);
    assert_eq!(ends(&a.inward(&udp(REMOTE, &external))).1, "10.0.0.5:4000");
}

#[test]
fn other_settings_of_either_engine_leave_the_copies() {
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    a.out(&udp("10.0.0.5:4000", REMOTE));
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    let mut config = a.engine.config().clone();
    config.timeouts.udp = Duration::from_secs(400);
    reload(&mut a, &config);
    reload(&mut b, &config);
    b.engine.renew_copies(&mut copies);
    a.out(&udp("10.0.0.5:4001", REMOTE));
    follow(&mut a, &mut b, &mut copies);
    assert_eq!(b.engine.mappings().count(), 2);
    let key = (0..2).find_map(|slot| copies.key(slot)).expect("a copy");
    let mut record = Vec::new();
    a.engine.copy_record(key, &NoNumbers, &mut record).expect("it is there");
    assert!(
        b.engine.copy(&mut copies, &mut NoNumbers, (key + 1000, &record)).is_err(),
        "the record of another key"
    );
}

const HOUR: Duration = Duration::from_secs(3600);
const HOST: &str = "10.0.0.5:8080";

/// A node whose hosts may request mappings.
fn asked(own: &[&str]) -> Lab {
    let mut lab = node(own, (2000, 2999), 120);
    let mut config = lab.engine.config().clone();
    config.limits =
        Limits { explicit_mappings: 64, explicit_per_subscriber: 8, ..config.limits.clone() };
    config.filtering = Behavior::AddressAndPortDependent;
    lab = Lab::new(&config);
    lab.engine.join_pair();
    for address in [A, B] {
        let duty = if own.contains(&address) { OWNER } else { PARTNER };
        lab.engine.set_duty(range(address), duty);
    }
    lab
}

fn request(lifetime: Duration) -> MapRequest<'static> {
    MapRequest {
        protocol: 17,
        realm: 0,
        internal: endpoint(HOST),
        wanted: WantedEndpoint::default(),
        lifetime,
        nonce: [7; 12],
        replaces_filters: false,
        filters: &[],
    }
}

fn map(lab: &mut Lab, request: &MapRequest<'_>) -> Result<(String, Duration), ExplicitError> {
    let Explicit { external, lifetime } = lab.engine.map(lab.now, request)?;
    let Endpoint { address, port } = external;
    Ok((format!("{address}:{port}"), lifetime.expect("an end")))
}

fn give_up(lab: &mut Lab) -> Result<Duration, ExplicitError> {
    lab.engine.unmap(lab.now, 17, 0, endpoint(HOST), [7; 12])
}

#[test]
fn a_requested_mapping_goes_on_at_the_partner() {
    let (mut a, mut b) = (asked(&[A]), asked(&[B]));
    b.wait_s(1_000.3);
    let (external, lifetime) = map(&mut a, &request(HOUR)).expect("granted");
    assert_eq!(lifetime, HOUR);
    let mut copies = begin(&a, &mut b);
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    assert_eq!(ends(&b.inward(&udp(REMOTE, &external))).1, HOST, "anybody gets in");
    for lab in [&mut a, &mut b] {
        lab.wait_s(1_800.0);
    }
    b.engine.set_duty(range(A), OWNER);
    let other = MapRequest { nonce: [8; 12], ..request(HOUR) };
    let Err(ExplicitError::Nonce(left)) = map(&mut b, &other) else { panic!("another nonce") };
    assert!(left.abs_diff(HOUR / 2) < Duration::from_secs(1), "{left:?}");
    b.wait_s(1_799.0);
    assert_eq!(b.engine.mappings().count(), 1);
    b.wait_s(2.0);
    assert_eq!(b.engine.mappings().count(), 0, "it ends when it was to end");
}

#[test]
fn a_host_renews_and_gives_up_its_mapping_after_a_take_over() {
    let (mut a, mut b) = (asked(&[A]), asked(&[B]));
    let (external, _) = map(&mut a, &request(HOUR)).expect("granted");
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    // The hold-down after a take-over: the node owns the address, and assigns nothing.
    b.engine.set_duty(range(A), Duty { assigns: false, keeps: false, owns: true });
    b.wait_s(3_000.0);
    assert_eq!(map(&mut b, &request(HOUR)), Ok((external, HOUR)));
    assert_eq!(give_up(&mut b), Ok(Duration::ZERO));
    assert_eq!((b.engine.mappings().count(), b.engine.resting()), (0, 1));
}

#[test]
fn a_partner_confirms_requests_and_carries_none_out() {
    let (mut a, mut b) = (asked(&[A]), asked(&[B]));
    let (external, _) = map(&mut a, &request(HOUR)).expect("granted");
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    let hold_down = Duration::from_secs(120);
    assert_eq!(map(&mut b, &request(HOUR)), Ok((external.clone(), hold_down)));
    let filters = [RemoteFilter { address: 1, prefix_len: 32, port: 0 }];
    let changed = MapRequest { filters: &filters, ..request(HOUR) };
    assert_eq!(map(&mut b, &changed), Err(ExplicitError::Others));
    let wanted = WantedEndpoint { address: None, port: 1, strict: true };
    let elsewhere = MapRequest { wanted, ..request(HOUR) };
    assert_eq!(map(&mut b, &elsewhere), Err(ExplicitError::External));
    let other = MapRequest { nonce: [8; 12], ..request(HOUR) };
    assert!(matches!(map(&mut b, &other), Err(ExplicitError::Nonce(_))));
    assert_eq!(give_up(&mut b), Err(ExplicitError::Others));
    let host = endpoint(HOST).address;
    let ended = b.engine.unmap_all(b.now, 17, 0, host, [7; 12]);
    assert_eq!(ended, Err(ExplicitError::Others), "one is left");
    assert_eq!(changes(&mut b), []);
    // Without a hold-down there is no time for which a partner could answer.
    let mut config = b.engine.config().clone();
    config.timeouts.hold_down = Duration::ZERO;
    reload(&mut b, &config);
    assert_eq!(map(&mut b, &request(HOUR)), Err(ExplicitError::Others));
    assert_eq!(ends(&b.inward(&udp(REMOTE, &external))).1, HOST);
}

/// An expectation of an application-level gateway is used up by one session at either node.
#[test]
fn a_copied_filter_for_one_session_admits_one_after_a_take_over() {
    let (mut a, mut b) = (asked(&[A]), asked(&[B]));
    let filter = |last| RemoteFilter {
        address: u32::from_be_bytes([198, 51, 100, last]),
        prefix_len: 32,
        port: 0,
    };
    let filters = [filter(1), filter(2)];
    let asked = MapRequest { filters: &filters, ..request(HOUR) };
    let (external, _) = map(&mut a, &asked).expect("granted");
    assert!(a.engine.admit_once(17, 0, endpoint(HOST), Some(filters[0])));
    let mut copies = begin(&a, &mut b);
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    b.engine.set_duty(range(A), OWNER);
    assert_eq!(ends(&b.inward(&udp("198.51.100.1:9", &external))).1, HOST);
    assert!(!b.passes(Side::Outside, &udp("198.51.100.1:10", &external)), "the first uses it up");
    for port in [9, 10] {
        assert!(b.passes(Side::Outside, &udp(&format!("198.51.100.2:{port}"), &external)));
    }
    // What the record tells of holds is whole, or the record means nothing.
    let mut record = Vec::new();
    a.engine.copy_record(0, &NoNumbers, &mut record).expect("a record");
    for record in [&record[..record.len() - 1], &[&record[..], &[0]].concat()] {
        assert!(b.engine.copy(&mut copies, &mut NoNumbers, (0, record)).is_err());
    }
}

#[test]
fn changes_of_a_request_are_changes_for_the_partner() {
    let (mut a, mut b) = (asked(&[A]), asked(&[B]));
    map(&mut a, &request(HOUR / 4)).expect("granted");
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    let fingerprint = |lab: &Lab| lab.engine.copy_record(0, &NoNumbers, &mut Vec::new());
    let before = fingerprint(&a);
    a.wait_s(100.0);
    map(&mut a, &request(HOUR)).expect("renewed");
    assert_ne!(fingerprint(&a), before, "the end is a part of what matters");
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    b.wait_s(100.0);
    let other = MapRequest { nonce: [8; 12], ..request(HOUR) };
    let Err(ExplicitError::Nonce(left)) = map(&mut b, &other) else { panic!("another nonce") };
    assert!(left > HOUR - Duration::from_secs(2), "{left:?}");
    // Traffic keeps the mapping after its host has given it up.
    a.out(&udp(HOST, REMOTE));
    follow(&mut a, &mut b, &mut copies);
    give_up(&mut a).expect("given up");
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    assert!(!b.passes(Side::Outside, &udp("198.51.100.99:9", &a.external_of(&udp(HOST, REMOTE)))));
    a.wait_s(400.0);
    follow(&mut a, &mut b, &mut copies);
    assert_eq!((a.engine.mappings().count(), b.engine.mappings().count()), (0, 0));
}

#[test]
fn a_copied_request_whose_time_has_passed_waits_for_its_host_after_a_take_over() {
    for renews in [false, true] {
        let (mut a, mut b) = (asked(&[A]), asked(&[B]));
        let (external, _) = map(&mut a, &request(HOUR)).expect("granted");
        let mut copies = begin(&a, &mut b);
        follow(&mut a, &mut b, &mut copies);
        b.wait_s(5_000.0);
        assert_eq!(b.engine.mappings().count(), 1, "the owner ends it, nobody else");
        assert_eq!(map(&mut b, &request(HOUR)), Err(ExplicitError::Others), "no time is left");
        b.engine.set_duty(range(A), OWNER);
        b.wait_s(118.0);
        if renews {
            assert_eq!(map(&mut b, &request(HOUR)), Ok((external, HOUR)));
        }
        b.wait_s(4.0);
        assert_eq!(b.engine.mappings().count(), usize::from(renews));
    }
}

#[test]
fn a_session_that_a_host_keeps_is_kept_at_the_partner() {
    let (mut a, mut b) = (asked(&[A]), asked(&[B]));
    let peer = |lifetime| PeerRequest {
        protocol: 17,
        realm: 0,
        internal: endpoint(HOST),
        remote: endpoint(REMOTE),
        wanted: WantedEndpoint::default(),
        lifetime,
        nonce: [7; 12],
    };
    let Explicit { external, .. } = a.engine.peer(a.now, &peer(HOUR)).expect("granted");
    let mut copies = begin(&a, &mut b);
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    let confirmed = b.engine.peer(b.now, &peer(HOUR)).expect("confirmed");
    assert_eq!((confirmed.external, confirmed.lifetime), (external, Some(HOUR / 30)));
    assert_eq!(b.engine.peer(b.now, &peer(Duration::ZERO)), Err(ExplicitError::Others));
    let another = PeerRequest { remote: endpoint("198.51.100.8:53"), ..peer(HOUR) };
    assert_eq!(b.engine.peer(b.now, &another), Err(ExplicitError::Others));
    b.engine.set_duty(range(A), OWNER);
    b.wait_s(3_000.0);
    assert_eq!(b.engine.mappings().count(), 1, "longer than an idle session");
    let renewed = b.engine.peer(b.now, &peer(HOUR)).expect("renewed");
    assert_eq!((renewed.external, renewed.lifetime), (external, Some(HOUR)));
    assert!(b.engine.peer(b.now, &peer(Duration::ZERO)).is_ok(), "given up");
    b.wait_s(4_000.0);
    assert_eq!(b.engine.mappings().count(), 0);
}

#[test]
fn a_copy_in_the_slot_of_one_that_was_removed_stays_a_copy() {
    let (mut a, mut b) = (node(&[A], (2000, 2999), 120), node(&[B], (2000, 2999), 120));
    a.out(&udp("10.0.0.5:1", REMOTE));
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    // An operator removes the copy at B, and the next one gets its slot.
    clear(&mut b, &Filter::default());
    changes(&mut b);
    let external = a.external_of(&udp("10.0.0.6:1", REMOTE));
    follow(&mut a, &mut b, &mut copies);
    let key = copies.key(0).expect("the slot has the copy");
    // The first mapping ends at A. The second one goes on, and changes.
    clear(&mut a, &of("10.0.0.5"));
    follow(&mut a, &mut b, &mut copies);
    assert_eq!(copies.key(0), Some(key));
    a.out(&udp("10.0.0.6:1", "198.51.100.8:53"));
    assert_eq!(follow(&mut a, &mut b, &mut copies), 1);
    assert_eq!(b.external_of(&udp("10.0.0.6:1", REMOTE)), external);
    assert_eq!(b.engine.mappings().count(), 1);
}

/// Removes mappings, few enough for one call.
fn clear(lab: &mut Lab, filter: &Filter) {
    assert!(lab.engine.clear_mappings(&mut Cursor::default(), 1_000, filter).1);
}

/// All mappings of a host.
fn of(host: &str) -> Filter {
    Filter { subscriber: Some(Prefix::new(host.parse().unwrap(), 32)), ..Filter::default() }
}

/// A node with 16 subscribers that have 4 ports each, and 8 ports of each address for all.
fn arithmetic(own: &[&str], dynamic_ports: u16) -> Lab {
    let deterministic = DeterministicConfig {
        realm: 0,
        subscribers: vec![Prefix::new("10.0.0.0".parse().unwrap(), 28)],
        ports_per_subscriber: Some(4),
        dynamic_ports,
    };
    let pool = PoolConfig {
        addresses: vec![range(A), range(B)],
        allocation: Some(Allocation::Deterministic(deterministic)),
        ..pool(A, A, (2000, 2031 + dynamic_ports))
    };
    let mut lab = Lab::new(&Config { pools: vec![pool], pooling: Pooling::SoftPaired, ..config() });
    lab.engine.join_pair();
    for address in [A, B] {
        let duty = if own.contains(&address) { OWNER } else { PARTNER };
        lab.engine.set_duty(range(address), duty);
    }
    lab
}

/// True if an endpoint is one of the four ports of a host.
fn is_own(external: &str, host: u16) -> bool {
    let first = 2000 + host % 8 * 4;
    let own = if host < 8 { A } else { B };
    address_of(external) == own && (first..first + 4).contains(&port_of(external))
}

#[test]
fn ports_follow_from_the_address_at_both_nodes() {
    let (mut a, mut b) = (arithmetic(&[A], 0), arithmetic(&[B], 0));
    let flow = a.external_of(&udp("10.0.0.5:4000", REMOTE));
    assert!(is_own(&flow, 5), "{flow}");
    assert!(is_own(&b.external_of(&udp("10.0.0.12:4000", REMOTE)), 12));
    assert!(is_lost(&mut a, &udp("10.0.0.12:4000", REMOTE)), "the ports are the other node's");
    assert!(is_lost(&mut b, &udp("10.0.0.6:4000", REMOTE)));
    let mut copies = begin(&a, &mut b);
    follow(&mut a, &mut b, &mut copies);
    assert_eq!(b.external_of(&udp("10.0.0.5:4000", REMOTE)), flow);
    // Duties come and go in any order, and reloads: the arithmetic stays.
    b.engine.set_duty(range(B), PARTNER);
    b.engine.set_duty(range(A), OWNER);
    b.engine.set_duty(range(B), OWNER);
    let mut config = b.engine.config().clone();
    config.timeouts.udp = Duration::from_secs(400);
    reload(&mut b, &config);
    for port in 1..4 {
        let external = b.external_of(&udp(&format!("10.0.0.5:{port}"), REMOTE));
        assert!(is_own(&external, 5) && external != flow, "{external}");
    }
    let full = b.refused(Side::Inside, &udp("10.0.0.5:9", REMOTE));
    assert_eq!(full, DropReason::PortQuota);
    assert!(is_own(&b.external_of(&udp("10.0.0.13:1", REMOTE)), 13));
}

#[test]
fn further_ports_of_a_subscriber_are_copied_as_they_are() {
    let (mut a, mut b) = (arithmetic(&[A], 8), arithmetic(&[B], 8));
    let mut flows = Vec::new();
    for port in 1..7 {
        let host = format!("10.0.0.5:{port}");
        flows.push((a.external_of(&udp(&host, REMOTE)), host));
    }
    assert_eq!(flows.iter().filter(|(external, _)| is_own(external, 5)).count(), 4);
    assert!(flows.iter().all(|(external, _)| address_of(external) == A));
    let mut copies = begin(&a, &mut b);
    assert_eq!(follow(&mut a, &mut b, &mut copies), 6);
    // Ports for all are of the node's own addresses, whose subscriber ever it is.
    let elsewhere = b.external_of(&udp("10.0.0.5:100", REMOTE));
    assert!(elsewhere.starts_with(B) && port_of(&elsewhere) >= 2032, "{elsewhere}");
    b.engine.set_duty(range(A), OWNER);
    for (external, host) in &flows {
        assert_eq!(b.external_of(&udp(host, REMOTE)), *external);
    }
    for host in [2, 3, 6, 7] {
        for port in 1..6 {
            let external = b.external_of(&udp(&format!("10.0.0.{host}:{port}"), REMOTE));
            assert!(flows.iter().all(|(other, _)| *other != external), "{external}");
        }
    }
}

/// A host asks for its external address, and then for a mapping: both are of the node that it asks.
#[test]
fn the_external_address_of_a_host_is_one_that_the_node_gives_out() {
    let host = Ipv4Addr::new(10, 0, 0, 5);
    let mut a = node(&[A], (2000, 2100), 0);
    a.out(&udp("10.0.0.5:4000", REMOTE));
    for (own, told) in [(&[B][..], B), (&[] as &[&str], A)] {
        let mut b = node(own, (2000, 2100), 0);
        let mut copies = begin(&a, &mut b);
        assert!(matches!(copy_all(&a, &mut b, &mut copies)[..], [Copied::Made(_)]));
        let told = Some(told.parse().expect("an address"));
        assert_eq!(b.engine.external_address(0, host), told, "{own:?}");
        if own == [B] {
            assert!(b.external_of(&udp("10.0.0.5:4001", REMOTE)).starts_with(B));
            assert_eq!(b.engine.external_address(0, host), told);
        }
    }
}

/// The owner still has a static mapping that a reload has taken from the partner.
#[test]
fn a_record_of_a_static_mapping_that_a_reload_has_removed_finds_no_place() {
    let (mut a, mut b) = (node(&[A], (2000, 2100), 0), node(&[B], (2000, 2100), 0));
    let plain = a.engine.config().clone();
    let statics = vec![StaticMapping {
        protocol: Some(UDP),
        internal: (Ipv4Addr::new(10, 0, 0, 9), Some(53)),
        external: (A.parse().unwrap(), Some(2000)),
        ..StaticMapping::default()
    }];
    let with = Config { statics, ..plain.clone() };
    [&mut a, &mut b].into_iter().for_each(|lab| reload(lab, &with));
    a.out(&udp("10.0.0.9:53", REMOTE));
    let mut copies = begin(&a, &mut b);
    assert!(matches!(copy_all(&a, &mut b, &mut copies)[..], [Copied::Made(_)]));
    reload(&mut b, &plain);
    assert_eq!(b.engine.mappings().count(), 0);
    assert!(matches!(copy_all(&a, &mut b, &mut copies)[..], [Copied::NoPlace]));
    assert_eq!(b.engine.mappings().count(), 0);
}
