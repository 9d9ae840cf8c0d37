//! Exhaustion of shared resources: ports, mappings, sessions, the memory for refused SYNs, the rate
//! of ICMP errors. Each test states the attacker's gain and the remainder for others.

use crate::common::*;
use crate::world::*;
use natgate_engine::{
    Allocation, Behavior, BlockConfig, Change, Config, DropReason, Endpoint, Engine, MapRequest,
    MappingId, MappingInfo, Match, Packet, PoolConfig, Prefix, Rule, RuleAction, Side, Verdict,
    WantedEndpoint,
};
use natgate_wire::protocol;
use std::time::Duration;

/// Rates that are above the quotas.
fn hasty() -> Config {
    let mut config = config();
    config.limits.new_mappings_per_second = 1_000_000;
    config
}

/// The packet that begins a flow of a protocol.
fn begin(protocol: u8, source: &str, remote: &str) -> Vec<u8> {
    let (source_host, remote_host) =
        (source.split(':').next().unwrap(), remote.split(':').next().unwrap());
    match protocol {
        protocol::TCP => tcp(source, remote, "S", 1, 0),
        protocol::UDP => udp(source, remote),
        _ => ping(source_host, remote_host, endpoint(source).1),
    }
}

//= test rfc6888#REQ-4
#[test]
fn one_subscriber_gets_its_quota_and_no_more() {
    let mut lab = Lab::new(&hasty());
    for (protocol, quota) in [(protocol::TCP, 2000), (protocol::UDP, 2000), (protocol::ICMP, 200)] {
        let mut made = 0;
        for port in 1024..=65_535 {
            let packet = begin(protocol, &format!("10.0.0.66:{port}"), REMOTE);
            made += u32::from(passes(&mut lab, Side::Inside, &packet));
        }
        assert_eq!(made, quota, "of 64,512 flows");
        assert_eq!(lab.engine.pool_usage(0, protocol).used, u64::from(quota));
        assert!(passes(&mut lab, Side::Inside, &begin(protocol, VICTIM, REMOTE)));
    }
    let told = |change: Change| matches!(change, Change::QuotaReached { .. });
    assert_eq!(lab.events.iter().filter(|event| told(event.change)).count(), 1, "one a second");
}

/// A fast sender gets mappings at its rate: a second's worth at once and 500 a second. Other
/// subscribers have rates of their own.
#[test]
fn one_subscriber_makes_mappings_at_its_rate() {
    let mut config = config();
    config.limits.tcp_ports = 60_000;
    let mut lab = Lab::new(&config);
    let (mut made, mut others) = (0, 0);
    // Ten seconds at 6,000 flows a second.
    for n in 0..60_000_u32 {
        let packet = tcp(&format!("10.0.0.66:{}", 1024 + n), REMOTE, "S", 1, 0);
        made += u32::from(passes(&mut lab, Side::Inside, &packet));
        if n % 100 == 0 {
            let other = udp(&format!("10.0.{}.{}:4000", 1 + n / 20_000, n / 100 % 200), REMOTE);
            others += u32::from(passes(&mut lab, Side::Inside, &other));
        }
        lab.wait(Duration::from_nanos(166_667));
    }
    assert!((5490..=5510).contains(&made), "{made}");
    assert_eq!(others, 600);
}

/// Many subscribers fill the table. Subscribers with mappings continue, in and out, and their
/// timers run on. Subscribers without are refused with an answer, and find room when mappings go.
#[test]
fn a_full_table_leaves_alone_those_who_are_in_it() {
    const ROOM: u32 = 10_000;
    let mut config = hasty();
    config.limits.mappings = Some(ROOM);
    let mut lab = Lab::new(&config);
    let external = lab.external_of(&tcp(VICTIM, REMOTE, "S", 100, 0));
    lab.inward(&tcp(REMOTE, &external, "SA", 500, 101));
    let mut made = 0;
    for n in 0..50_000_u32 {
        let packet = udp(&format!("10.{}.{}.{}:4000", 1 + n / 65_536, n / 256, n % 256), REMOTE);
        made += u32::from(passes(&mut lab, Side::Inside, &packet));
        if n % 100 == 0 {
            lab.out(&tcp(VICTIM, REMOTE, "A", 101 + n, 501));
            lab.inward(&tcp(REMOTE, &external, "A", 501, 101 + n));
        }
    }
    assert_eq!(made, ROOM - 1);
    assert_eq!(lab.engine.mappings().count(), ROOM as usize);
    assert_eq!(dropped(&lab, DropReason::MappingTableFull), 50_000 - u64::from(made));
    // A later subscriber finds room as soon as the flood's mappings have timed out.
    lab.wait_s(301.0);
    assert_eq!(lab.engine.mappings().count(), 1);
    lab.out(&udp("10.99.0.1:4000", REMOTE));
}

/// The pool's last port is given out. No subscriber loses its port.
#[test]
fn an_empty_pool_leaves_alone_those_who_have_ports() {
    let mut config = hasty();
    config.pools = vec![pool("203.0.113.1", "203.0.113.1", (1024, 5023))];
    let (mut lab, external) = established(&config);
    let mut made = 0;
    for n in 0..20_000_u32 {
        let packet = tcp(&format!("10.1.{}.{}:4000", n / 256, n % 256), REMOTE, "S", 1, 0);
        made += u32::from(passes(&mut lab, Side::Inside, &packet));
    }
    assert_eq!(made, 3999, "all ports but the victim's");
    assert_eq!(dropped(&lab, DropReason::PoolExhausted), 20_000 - 3999);
    lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
    lab.inward(&tcp(REMOTE, &external, "A", 501, 101));
    // The exhausted ports are of TCP. UDP and ICMP have their own.
    lab.out(&udp(VICTIM, REMOTE));
    lab.out(&ping("10.0.0.5", "198.51.100.7", 7));
}

/// Results for real subscribers under a flood of forged sources.
struct Flood {
    /// Number of real subscribers that began a flow, and number whose reply came in.
    began: u32,
    served: u32,
}

/// Two seconds of 100,000 packets a second from as many forged sources, in batches of a worker's
/// size, while a real subscriber begins every 5 ms. Each real packet is answered after 30 ms.
fn flood_with_newcomers(lab: &mut Lab) -> Flood {
    const STEPS: u32 = 400;
    const FORGED_A_STEP: u32 = 500;
    const ANSWER_STEPS: usize = 6;
    let mut flood = Flood { began: 0, served: 0 };
    let mut forged = 0_u32;
    let mut waiting: std::collections::VecDeque<Option<String>> = Default::default();
    // Steps of 5 ms.
    for step in 0..STEPS + ANSWER_STEPS as u32 {
        if step < STEPS {
            let mut batch: Vec<Vec<u8>> =
                (forged..forged + FORGED_A_STEP).map(forged_packet).collect();
            forged += FORGED_A_STEP;
            for some in batch.chunks_mut(Engine::MAX_BATCH) {
                pass_together(lab, some);
                lab.wait(Duration::ZERO);
                lab.events.clear();
            }
            let real = format!("10.0.{}.{}:4000", 1 + step / 200, 1 + step % 200);
            flood.began += 1;
            let (verdict, bytes) = lab.pass(Side::Inside, &udp(&real, REMOTE));
            let went = matches!(verdict, Verdict::Forward(_));
            waiting.push_back(went.then(|| ends(&bytes).0));
        } else {
            waiting.push_back(None);
        }
        lab.wait(Duration::from_millis(5));
        if waiting.len() > ANSWER_STEPS
            && let Some(Some(external)) = waiting.pop_front()
        {
            flood.served += u32::from(passes(lab, Side::Outside, &udp(REMOTE, &external)));
        }
    }
    flood
}

/// Packets from inside in one batch.
fn pass_together(lab: &mut Lab, batch: &mut [Vec<u8>]) {
    let mut packets: Vec<Packet<'_>> =
        batch.iter_mut().map(|bytes| Packet::new(bytes, 0)).collect();
    let mut verdicts = vec![Verdict::Held; packets.len()];
    lab.engine.process(lab.now, Side::Inside, &mut packets, &mut verdicts);
}

/// A packet of a forged source, one of many all over 10.128.0.0/9.
fn forged_packet(number: u32) -> Vec<u8> {
    let source = number.wrapping_mul(0x9e37_79b1) >> 9;
    let [_, b, c, d] = source.to_be_bytes();
    udp(&format!("10.{}.{c}.{d}:4000", 128 + b), REMOTE)
}

/// Forged sources use something up, and the oldest of them give way. At least 99 of 100 real
/// subscribers are served at the first try, and an answered connection continues.
#[track_caller]
fn newcomers_are_served_under_a_flood(config: &Config) {
    let (mut lab, external) = established(config);
    let flood = flood_with_newcomers(&mut lab);
    println!("{} of {} newcomers served under forged sources", flood.served, flood.began);
    assert!(flood.served * 100 >= flood.began * 99, "{} of {}", flood.served, flood.began);
    assert!(lab.engine.counters().subscribers_reclaimed > 0, "nothing was used up");
    assert_eq!(lab.engine.counters().events_lost, 0);
    lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
    lab.inward(&tcp(REMOTE, &external, "A", 501, 101));
}

/// The default room for subscribers, and ports for all of them.
#[test]
fn forged_sources_leave_newcomers_room() {
    let mut config = hasty();
    config.pools = vec![pool("203.0.113.1", "203.0.113.4", (1024, 65_535))];
    newcomers_are_served_under_a_flood(&config);
}

/// A single address. The forged sources take every port that they can.
#[test]
fn forged_sources_leave_newcomers_ports() {
    let mut config = hasty();
    config.limits.subscribers = Some(200_000);
    config.limits.mappings = Some(200_000);
    newcomers_are_served_under_a_flood(&config);
}

/// A table of mappings that is smaller than everything else.
#[test]
fn forged_sources_leave_newcomers_mappings() {
    let mut config = hasty();
    config.limits.mappings = Some(40_000);
    newcomers_are_served_under_a_flood(&config);
}

/// Blocks of ports. Each forged source takes one.
#[test]
fn forged_sources_leave_newcomers_blocks() {
    let mut config = hasty();
    config.pools = vec![pool("203.0.113.1", "203.0.113.10", (1024, 65_535))];
    config.limits.subscribers = Some(200_000);
    config.allocation = Allocation::Block(BlockConfig { size: 16, ..BlockConfig::default() });
    newcomers_are_served_under_a_flood(&config);
}

/// Answered subscribers have more mappings of one pool than another pool has ports or blocks.
/// Forged sources that take all of the other pool give way there all the same.
#[test]
fn forged_sources_give_way_in_a_pool_beside_a_pool_in_use() {
    const PORTS: u32 = 64;
    let block = BlockConfig { size: 16, max_per_subscriber: 1, ..BlockConfig::default() };
    for (allocation, takers) in [(None, PORTS), (Some(Allocation::Block(block)), PORTS / 16)] {
        let mut config = hasty();
        config.limits.unanswered_kept = 0;
        let small = pool("203.0.113.2", "203.0.113.2", (2048, 2048 + PORTS as u16 - 1));
        config.pools.push(PoolConfig { name: "small".into(), allocation, ..small });
        let of_small = Prefix::new("10.1.0.0".parse().unwrap(), 16);
        config.rules = vec![Rule::new(Match::Source(of_small, 0), RuleAction::Snat(1))];
        let mut lab = Lab::new(&config);
        for host in 1..=2 * PORTS {
            let external = lab.external_of(&udp(&format!("10.0.2.{host}:4000"), REMOTE));
            lab.inward(&udp(REMOTE, &external));
        }
        for host in 1..=takers {
            lab.out(&udp(&format!("10.1.0.{host}:4000"), REMOTE));
        }
        let newcomer = udp("10.1.1.1:4000", REMOTE);
        assert_eq!(lab.refused(Side::Inside, &newcomer), DropReason::PoolExhausted);
        lab.wait(Duration::from_millis(250));
        lab.out(&newcomer);
        assert!(lab.engine.counters().subscribers_reclaimed > 0);
        let of_first = |info: &MappingInfo| info.id.internal.address.octets()[1] == 0;
        let stay = lab.engine.mappings().filter(of_first).count();
        assert_eq!(stay, 2 * PORTS as usize, "answered subscribers of the other pool stay");
    }
}

/// A pool of 64 ports beside a large one, for packets to `SMALL` and from hosts of 10.1.0.0/16.
const SMALL: &str = "198.51.100.77:80";
const SMALL_PORTS: u32 = 64;

fn beside_a_small_pool(allocation: Option<Allocation>) -> Lab {
    let mut config = hasty();
    config.limits.unanswered_kept = 0;
    let small = pool("203.0.113.2", "203.0.113.2", (2048, 2048 + SMALL_PORTS as u16 - 1));
    config.pools.push(PoolConfig { name: "small".into(), allocation, ..small });
    let of_hosts = Match::Source(Prefix::new("10.1.0.0".parse().unwrap(), 16), 0);
    let to_remote = Match::Destination(Prefix::new("198.51.100.77".parse().unwrap(), 32), 0);
    let rule = |of| Rule::new(of, RuleAction::Snat(1));
    config.rules = vec![rule(of_hosts), rule(to_remote)];
    Lab::new(&config)
}

/// A scarce pool takes nothing from unanswered subscribers of another pool, however old they are:
/// their mappings are of no use to it.
#[test]
fn a_scarce_pool_leaves_the_mappings_of_another_pool() {
    const BYSTANDERS: u32 = 200;
    let block = BlockConfig { size: 16, max_per_subscriber: 1, ..BlockConfig::default() };
    let in_blocks = Some(Allocation::Block(block));
    for (allocation, takers) in [(None, SMALL_PORTS), (in_blocks, SMALL_PORTS / 16)] {
        let mut lab = beside_a_small_pool(allocation);
        for host in 1..=BYSTANDERS {
            lab.out(&udp(&format!("10.0.2.{host}:4000"), REMOTE));
        }
        lab.wait(Duration::from_secs(1));
        for host in 1..=takers {
            lab.out(&udp(&format!("10.1.0.{host}:4000"), REMOTE));
        }
        lab.wait(Duration::from_millis(250));
        lab.out(&udp("10.1.1.1:4000", REMOTE));
        assert!(lab.engine.counters().subscribers_reclaimed > 0);
        let is_bystander = |info: &MappingInfo| info.id.internal.address.octets()[1] == 0;
        assert_eq!(lab.engine.mappings().filter(is_bystander).count(), BYSTANDERS as usize);
    }
}

/// Only the last mapping of a subscriber frees its record. So scarce records take all mappings of
/// the oldest subscriber, of whatever pool, and nothing from others.
#[test]
fn scarce_records_take_a_whole_subscriber_before_the_next() {
    const RECORDS: u32 = 16;
    let mut config = beside_a_small_pool(None).engine.config().clone();
    config.limits.subscribers = Some(RECORDS);
    let mut lab = Lab::new(&config);
    for (remote, port) in [(REMOTE, 4000), (SMALL, 5000)] {
        for host in 1..RECORDS {
            lab.out(&udp(&format!("10.0.2.{host}:{port}"), remote));
        }
        lab.wait(Duration::from_secs(1));
    }
    lab.out(&udp(&format!("10.0.2.{RECORDS}:4000"), REMOTE));
    lab.out(&udp("10.0.3.1:4000", REMOTE));
    let internal = |id: &MappingId| (id.internal.address.to_bits(), id.internal.port);
    let removed: Vec<(u32, u16)> = lab.removed().iter().map(internal).collect();
    assert_eq!(removed, ["10.0.2.1:5000", "10.0.2.1:4000"].map(endpoint));
    assert_eq!(lab.engine.counters().subscribers_reclaimed, 1);
}

/// A subscriber with mappings of several pools loses those of the scarce pool only, and is still
/// unanswered. Once it is answered, it keeps all.
#[test]
fn a_subscriber_of_several_pools_gives_way_in_the_scarce_one() {
    let mut lab = beside_a_small_pool(None);
    let of = |host: u32, port| format!("10.0.2.{host}:{port}");
    for host in [1, 2] {
        lab.out(&udp(&of(host, 4000), REMOTE));
        for port in 5000..5008 {
            lab.out(&udp(&of(host, port), SMALL));
        }
    }
    let external = lab.external_of(&udp(&of(2, 4001), REMOTE));
    lab.inward(&udp(REMOTE, &external));
    for host in 1..=SMALL_PORTS - 16 {
        lab.out(&udp(&format!("10.1.0.{host}:4000"), REMOTE));
    }
    lab.wait(Duration::from_millis(250));
    lab.out(&udp("10.1.1.1:4000", REMOTE));
    let removed = lab.removed();
    let ports: Vec<u16> = removed.iter().map(|id| id.internal.port).collect();
    assert_eq!(ports[0], 5007, "the latest mapping of the oldest first: {removed:?}");
    let first = removed.iter().filter(|id| id.internal.address.octets() == [10, 0, 2, 1]);
    assert_eq!(first.count(), removed.len(), "{removed:?}");
    assert!(!ports.contains(&4000));
    assert_eq!(lab.engine.counters().subscribers_reclaimed, 0);
    let unanswered = lab.engine.totals().unanswered;
    assert_eq!(unanswered, u64::from(SMALL_PORTS - 16) + 2);
}

/// An engine whose pool has this number of blocks of 16 ports, four a subscriber at most.
fn blocks_of_16(unanswered_kept: u32, blocks: u16) -> Lab {
    let mut config = hasty();
    config.limits.unanswered_kept = unanswered_kept;
    let block = BlockConfig { size: 16, max_per_subscriber: 4, ..BlockConfig::default() };
    config.allocation = Allocation::Block(block);
    config.pools = vec![pool("203.0.113.1", "203.0.113.1", (1024, 1024 + blocks * 16 - 1))];
    Lab::new(&config)
}

/// Few forged sources take all blocks of a pool: what they keep is counted in blocks.
#[test]
fn few_unanswered_subscribers_do_not_keep_all_blocks() {
    let mut lab = blocks_of_16(8, 16);
    for (host, port) in (1..=4).flat_map(|host| (1..=49).map(move |port| (host, port))) {
        lab.out(&udp(&format!("10.1.0.{host}:{port}"), REMOTE));
    }
    let newcomer = udp("10.1.1.1:4000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &newcomer), DropReason::PoolExhausted);
    lab.wait(Duration::from_millis(250));
    lab.out(&newcomer);
    // The fourth block of the oldest has one mapping.
    assert_eq!(lab.engine.counters().mappings_reclaimed, 1);
}

/// Many unanswered subscribers without a port have no block, so a pool with free blocks takes
/// nothing from them, nor from the few that have blocks.
#[test]
fn blocks_are_not_scarce_because_of_mappings_without_ports() {
    let mut lab = blocks_of_16(0, 64);
    for host in 1..=58 {
        let external = lab.external_of(&udp(&format!("10.0.2.{host}:4000"), REMOTE));
        lab.inward(&udp(REMOTE, &external));
    }
    for host in 1..=40_u32 {
        let [inside, outside] = ["10.1.0.0", "198.51.100.0"].map(|base| endpoint(base).0 + host);
        lab.out(&ip(47, inside, outside, &[0; 8]));
    }
    (1..=49).for_each(|port| _ = lab.out(&udp(&format!("10.1.1.1:{port}"), REMOTE)));
    lab.wait(Duration::from_millis(250));
    lab.out(&udp("10.1.1.2:4000", REMOTE));
    assert_eq!(lab.engine.counters().mappings_reclaimed, 0);
}

/// Scarce ports of a protocol take nothing of another one, however old it is.
#[test]
fn scarce_ports_leave_the_mappings_of_other_protocols() {
    const PORTS: u32 = 64;
    let mut config = hasty();
    config.limits.unanswered_kept = 0;
    config.pools = vec![pool("203.0.113.1", "203.0.113.1", (2048, 2048 + PORTS as u16 - 1))];
    let mut lab = Lab::new(&config);
    lab.out(&tcp("10.0.0.2:4000", REMOTE, "S", 1, 0));
    lab.out(&udp("10.0.0.3:4000", REMOTE));
    lab.out(&tcp("10.0.0.3:4000", REMOTE, "S", 1, 0));
    for host in 2..=PORTS {
        lab.out(&udp(&format!("10.1.0.{host}:4000"), REMOTE));
    }
    lab.wait(Duration::from_millis(250));
    lab.out(&udp("10.1.1.1:4000", REMOTE));
    let removed = lab.removed();
    assert_eq!(removed.len(), PORTS as usize / 16);
    assert!(removed.iter().all(|id| id.protocol == protocol::UDP), "{removed:?}");
    assert_eq!(removed[0].internal.address.octets(), [10, 0, 0, 3]);
    assert_eq!(lab.engine.counters().subscribers_reclaimed, 3);
}

/// A pool whose addresses all drain has no free port, and nobody can get one.
#[test]
fn nobody_gives_way_in_a_pool_that_drains() {
    let mut config = hasty();
    config.limits.unanswered_kept = 0;
    let mut lab = Lab::new(&config);
    for host in 1..=100 {
        lab.out(&udp(&format!("10.1.0.{host}:4000"), REMOTE));
    }
    config.pools[0].draining = config.pools[0].addresses.clone();
    reload(&mut lab, &config);
    lab.wait(Duration::from_secs(1));
    assert_eq!(lab.refused(Side::Inside, &udp("10.1.1.1:4000", REMOTE)), DropReason::PoolExhausted);
    lab.wait(Duration::from_secs(1));
    assert!(!lab.engine.reclaim(lab.now));
    assert_eq!(lab.engine.counters().mappings_reclaimed, 0);
}

/// A reload adds a pool, and the number of records stays. Forged sources that use both pools take
/// all of them with half of the subscribers that there may be.
#[test]
fn records_of_a_further_pool_give_way_as_well() {
    const SUBSCRIBERS: u32 = 64;
    let mut config = hasty();
    config.limits.unanswered_kept = 0;
    config.limits.subscribers = Some(SUBSCRIBERS);
    let mut lab = Lab::new(&config);
    let more = beside_a_small_pool(None);
    config.pools = more.engine.config().pools.clone();
    let to_remote = Match::Destination(Prefix::new("198.51.100.77".parse().unwrap(), 32), 0);
    config.rules = vec![Rule::new(to_remote, RuleAction::Snat(1))];
    reload(&mut lab, &config);
    for host in 1..=SUBSCRIBERS / 2 {
        lab.out(&udp(&format!("10.1.0.{host}:4000"), REMOTE));
        assert_eq!(lab.engine.is_crowded(), host > SUBSCRIBERS / 4, "{host}");
        lab.out(&udp(&format!("10.1.0.{host}:5000"), SMALL));
    }
    let newcomer = udp("10.1.1.1:4000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &newcomer), DropReason::MappingTableFull);
    lab.wait(Duration::from_millis(250));
    lab.out(&newcomer);
    assert!(lab.engine.counters().mappings_reclaimed > 0);
}

/// If unanswered subscribers do not give way, as RFC 6888 has it, the first ones keep everything
/// until their time is over. An answered subscriber keeps everything in both cases.
//= test rfc6888#REQ-11d
#[test]
fn forged_sources_keep_what_they_have_where_nobody_gives_way() {
    let mut config = hasty();
    config.limits.subscribers = Some(1000);
    config.limits.unanswered_give_way = false;
    let (mut lab, external) = established(&config);
    let flood = flood_with_newcomers(&mut lab);
    assert!(flood.served <= 1, "{} of {}", flood.served, flood.began);
    let counters = lab.engine.counters();
    assert_eq!((counters.subscribers_reclaimed, counters.mappings_reclaimed), (0, 0));
    lab.inward(&tcp(REMOTE, &external, "A", 501, 101));
}

/// A mapping has many sessions, because the limit was raised. The sessions go in bounded steps, and
/// no event is lost.
#[test]
fn a_mapping_with_many_sessions_gives_way_in_steps() {
    const SESSIONS: u64 = 20_000;
    const MOST: u64 = 256;
    let mut config = hasty();
    config.limits.subscribers = Some(2);
    config.limits.unanswered_kept = 0;
    config.limits.sessions_per_mapping = SESSIONS as u16;
    config.limits.sessions_per_subscriber = Some(SESSIONS as u32);
    config.limits.extra_sessions = Some(16 * SESSIONS as u32);
    config.session_events = true;
    let mut lab = Lab::new(&config);
    for n in 0..SESSIONS {
        let remote = format!("198.51.{}.{}:80", n / 200, 1 + n % 200);
        lab.out(&udp("10.0.0.2:4000", &remote));
    }
    lab.out(&udp("10.0.0.3:4000", REMOTE));
    lab.wait(Duration::from_millis(250));
    let (mut calls, mut ended) = (0, 0);
    loop {
        let before = lab.engine.sessions().count() as u64;
        let more = lab.engine.reclaim(lab.now);
        let gone = before - lab.engine.sessions().count() as u64;
        assert!(gone <= MOST, "{gone} sessions in one step");
        (calls, ended) = (calls + 1, ended + gone);
        lab.wait(Duration::ZERO);
        if !more {
            break;
        }
    }
    assert_eq!((ended, calls), (SESSIONS, SESSIONS.div_ceil(MOST)));
    assert_eq!(lab.engine.counters().mappings_reclaimed, 1);
    assert_eq!(lab.engine.counters().events_lost, 0);
}

/// The oldest goes first, not before 250 ms, and its resources are free at once. An answered
/// subscriber stays, however old it is.
#[test]
fn the_oldest_unanswered_subscriber_gives_way_first() {
    let mut config = hasty();
    config.limits.subscribers = Some(3);
    config.limits.unanswered_kept = 0;
    let mut lab = Lab::new(&config);
    let answered = lab.external_of(&udp("10.0.0.9:4000", REMOTE));
    lab.inward(&udp(REMOTE, &answered));
    let [old, young] = ["10.0.0.2:4000", "10.0.0.3:4000"].map(|host| {
        lab.wait(Duration::from_millis(100));
        lab.external_of(&udp(host, REMOTE))
    });
    lab.wait(Duration::from_millis(149));
    let newcomer = udp("10.0.0.4:4000", REMOTE);
    assert_eq!(lab.refused(Side::Inside, &newcomer), DropReason::MappingTableFull);
    // The oldest is 250 ms old, the other one is not.
    lab.wait(Duration::from_millis(1));
    lab.out(&newcomer);
    assert!(!passes(&mut lab, Side::Outside, &udp(REMOTE, &old)));
    let removed =
        lab.removed().iter().map(|id| id.internal.address.to_string()).collect::<Vec<_>>();
    assert_eq!(removed, ["10.0.0.2"]);
    lab.inward(&udp(REMOTE, &young));
    lab.inward(&udp(REMOTE, &answered));
}

/// Requests a mapping for a day. Returns true if the host got one.
fn ask(lab: &mut Lab, protocol: u8, internal: Endpoint) -> bool {
    let request = MapRequest {
        protocol,
        realm: 0,
        internal,
        wanted: WantedEndpoint::default(),
        lifetime: Duration::from_secs(86_400),
        nonce: [1; 12],
        replaces_filters: false,
        filters: &[],
    };
    let now = lab.now;
    lab.engine.map(now, &request).is_ok()
}

/// Requests of forged hosts, 960 a second for 75 seconds.
fn flood_of_requests(lab: &mut Lab) {
    let mut host = 0;
    for _ in 0..750 {
        for _ in 0..96 {
            ask(lab, protocol::UDP, Endpoint::new(0x0a80_0000 + host * 7, 4000));
            host += 1;
        }
        lab.wait(Duration::from_millis(100));
    }
}

/// A server with a requested mapping keeps it under forged requests once it has accepted a
/// connection that a remote host acknowledged. A server whose connections only half open loses it.
#[test]
fn a_server_that_accepts_connections_keeps_the_mapping_that_it_asked_for() {
    for accepts in [true, false] {
        let mut config = hasty();
        config.limits.explicit_mappings = 10_000;
        config.limits.subscribers = Some(1000);
        config.limits.unanswered_kept = 100;
        let mut lab = Lab::new(&config);
        let server = Endpoint::new(0x0a00_0109, 80);
        assert!(ask(&mut lab, protocol::TCP, server));
        let external = lab.engine.mappings().next().expect("it was made").id.external;
        let (inner, outer) = ("10.0.1.9:80", format!("{}:{}", external.address, external.port));
        lab.pass(Side::Outside, &tcp(REMOTE, &outer, "S", 1, 0));
        if accepts {
            lab.pass(Side::Inside, &tcp(inner, REMOTE, "SA", 1, 2));
            lab.pass(Side::Outside, &tcp(REMOTE, &outer, "A", 2, 2));
        }
        flood_of_requests(&mut lab);
        let is_there = lab.engine.mappings().any(|info| info.id.internal == server);
        assert_eq!(is_there, accepts);
    }
}

/// Requests for mappings from forged hosts, with the longest lifetimes, stop at their share and are
/// the first to go. Newcomers that send packets and newcomers that send requests are served.
#[test]
fn forged_requests_for_mappings_leave_newcomers_room() {
    let mut config = hasty();
    config.limits.explicit_mappings = 10_000;
    config.limits.subscribers = Some(1000);
    config.limits.unanswered_kept = 100;
    let mut lab = Lab::new(&config);
    let ask =
        |lab: &mut Lab, host: u32| ask(lab, protocol::UDP, Endpoint::new(0x0a80_0000 + host, 4000));
    flood_of_requests(&mut lab);
    // A quarter, plus the requests of the last 250 ms.
    let asking = lab.engine.mappings().count();
    assert!(asking <= 250 + 4 * 96, "{asking} of 1000 subscribers are forged ones that asked");
    for n in 1..=5 {
        lab.out(&udp(&format!("10.0.1.{n}:4000"), REMOTE));
        assert!(ask(&mut lab, 0x7f_0000 + n));
        lab.wait_s(0.3);
    }
}

/// Scanners outside open sessions with a subscriber's endpoint up to the mapping's limit. Present
/// sessions continue, and other mappings, of the same subscriber too, are not affected. A filter
/// stops the scan.
#[test]
fn scanners_use_up_one_mappings_sessions_at_most() {
    for (filtering, expected) in [
        (Behavior::EndpointIndependent, 63),
        (Behavior::AddressDependent, 0),
        (Behavior::AddressAndPortDependent, 0),
    ] {
        let mut lab = Lab::new(&Config { filtering, ..config() });
        let external = lab.external_of(&udp(VICTIM, REMOTE));
        lab.external_of(&udp("10.0.0.5:4001", REMOTE));
        let mut admitted = 0;
        for n in 0..10_000_u32 {
            let source = format!("100.70.{}.{}:{}", n / 256, n % 256, 1024 + n);
            admitted += u32::from(passes(&mut lab, Side::Outside, &udp(&source, &external)));
        }
        assert!(admitted <= expected, "{filtering:?}: {admitted} of 10,000");
        assert_eq!(admitted > 0, expected > 0);
        assert_eq!(lab.engine.sessions().count(), 2 + admitted as usize);
        lab.out(&udp(VICTIM, REMOTE));
        lab.inward(&udp(REMOTE, &external));
        lab.out(&udp("10.0.0.5:4001", "192.0.2.9:53"));
        lab.out(&udp("10.0.0.6:4000", "192.0.2.9:53"));
    }
}

/// Strangers that know the endpoints of many mappings fill their half of the table of further
/// sessions, and keep it full. A subscriber's second and third remote endpoints still find room.
#[test]
fn scanners_use_up_half_of_the_sessions_at_most() {
    let mut config = hasty();
    config.limits.extra_sessions = Some(20_000);
    let mut lab = Lab::new(&config);
    let mut external = Vec::new();
    for host in 1..=100 {
        for port in 4000..4010 {
            external.push(lab.external_of(&udp(&format!("10.0.1.{host}:{port}"), REMOTE)));
        }
    }
    let mut admitted = 0;
    for to in &external {
        for port in 1024..1064 {
            let packet = udp(&format!("198.51.100.66:{port}"), to);
            admitted += u32::from(passes(&mut lab, Side::Outside, &packet));
        }
    }
    assert_eq!(admitted, 10_000, "of 40,000");
    for port in 4000..4010 {
        for remote in 1..=60 {
            lab.out(&udp(&format!("10.0.0.5:{port}"), &format!("192.0.2.{remote}:53")));
        }
    }
}

/// A subscriber that uses as many remote endpoints as it can, within its quotas of mappings, gets a
/// sixteenth of the further sessions.
//= test rfc6888#REQ-5
#[test]
fn one_subscriber_uses_up_a_sixteenth_of_the_sessions() {
    let mut config = hasty();
    config.limits.extra_sessions = Some(160_000);
    let mut lab = Lab::new(&config);
    let mut made = 0;
    for port in 1024..3024 {
        for remote in 1..=64 {
            let packet = udp(&format!("10.0.0.66:{port}"), &format!("192.0.2.{remote}:53"));
            made += u32::from(passes(&mut lab, Side::Inside, &packet));
        }
    }
    assert_eq!(made, 2000 + 10_000, "of 128,000: one for each mapping, and its share");
    lab.out(&udp(VICTIM, REMOTE));
    lab.out(&udp(VICTIM, "192.0.2.9:53"));
}

/// A scanner that tries every port of the address finds the mappings that the filter admits it to.
/// Ports without mappings give no reply.
#[test]
fn a_scan_of_all_ports_makes_no_mapping_and_no_noise() {
    let mut lab = Lab::new(&config());
    lab.external_of(&udp(VICTIM, REMOTE));
    lab.events.clear();
    let probe = udp(ATTACKER, "203.0.113.1:1");
    let admitted = (0..=u16::MAX)
        .filter(|&port| passes(&mut lab, Side::Outside, &with_ports(&probe, 6666, port)))
        .count();
    assert_eq!(admitted, 1);
    assert_eq!(lab.engine.mappings().count(), 1);
    lab.wait_s(7.0);
    assert!(lab.sent.is_empty() && lab.events.is_empty());
}

/// A flood of SYNs from outside: 1,024 of them are remembered for an answer, the others are not.
/// Connections, in and out, are made as without the flood.
#[test]
fn a_flood_of_syns_from_outside_is_nobodys_business() {
    let mut lab = Lab::new(&config());
    let (mut in_time, mut answered) = (0, 0);
    for n in 0..100_000_u32 {
        let source = format!("100.{}.{}.{}:6666", 70 + (n >> 16), n >> 8 & 0xff, n & 0xff);
        let to = format!("203.0.113.1:{}", 1 + n % 1000);
        let verdict = lab.pass(Side::Outside, &tcp(&source, &to, "S", n, 0)).0;
        assert_eq!(verdict, Verdict::Drop(DropReason::NoMapping));
        if n % 1000 == 0 {
            // Other hosts connect, both ways.
            let inner = format!("10.0.1.{}:4000", n / 1000);
            let outer = lab.external_of(&tcp(&inner, REMOTE, "S", 1, 0));
            let back = lab.inward(&tcp(REMOTE, &outer, "SA", 1, 2));
            assert_eq!(ends(&back).1, inner);
            let visitor = lab.inward(&tcp("192.0.2.9:80", &outer, "S", 1, 0));
            assert_eq!(ends(&visitor).1, inner);
            in_time += 1;
        }
        lab.wait(Duration::from_micros(100));
        answered += lab.sent.drain(..).len();
    }
    lab.wait_s(7.0);
    answered += lab.sent.len();
    assert_eq!(in_time, 100);
    // Ten seconds: SYNs are remembered at the start, and again when these have been answered.
    assert!((1..=3 * 1024).contains(&answered), "{answered}");
    assert_eq!(lab.engine.mappings().count(), 100);
}

/// A flood of SYNs from inside makes mappings that never open. They are within the quota, and go
/// after `tcp_opening`.
#[test]
fn a_flood_of_syns_from_inside_is_within_the_quota_and_goes() {
    let mut lab = Lab::new(&hasty());
    for port in 1024..=65_535 {
        lab.pass(Side::Inside, &tcp(&format!("10.0.0.66:{port}"), REMOTE, "S", 1, 0));
    }
    assert_eq!(lab.engine.mappings().count(), 2000);
    lab.wait_s(241.0);
    assert_eq!(lab.engine.mappings().count(), 0);
    assert_eq!(lab.engine.pool_usage(0, protocol::TCP).free, 64_512);
}

/// Inbound packets keep a mapping alive as RFC 4787 REQ-6a allows: one packet from its remote
/// endpoint in five minutes is enough. With `inbound_refresh` off they do not.
#[test]
fn who_sends_from_outside_keeps_a_mapping_only_if_inbound_packets_refresh() {
    for inbound_refresh in [true, false] {
        let mut lab = Lab::new(&Config { inbound_refresh, ..config() });
        let external = lab.external_of(&udp(VICTIM, REMOTE));
        for _ in 0..12 {
            lab.wait_s(290.0);
            lab.pass(Side::Outside, &udp(REMOTE, &external));
        }
        assert_eq!(lab.engine.mappings().count(), usize::from(inbound_refresh));
    }
}

/// A remote host that uses another port each time, for a new session, does not keep the mapping
/// either: without refresh from outside, its session ends with the mapping's own.
#[test]
fn who_comes_from_ever_new_ports_keeps_no_mapping_without_refresh() {
    let mut lab = Lab::new(&Config { inbound_refresh: false, ..config() });
    let external = lab.external_of(&udp(VICTIM, REMOTE));
    let mut admitted = 0;
    for n in 0..600 {
        lab.wait_s(1.0);
        let from = format!("198.51.100.66:{}", 1024 + n);
        admitted += u32::from(passes(&mut lab, Side::Outside, &udp(&from, &external)));
    }
    assert!(admitted > 0);
    assert_eq!(lab.engine.mappings().count(), 0, "five minutes after its own last packet");
}

/// Refused packets refresh nothing, whatever the setting (RFC 7857 section 7).
#[test]
fn who_is_refused_keeps_no_mapping() {
    let mut lab = Lab::new(&Config { filtering: Behavior::AddressDependent, ..config() });
    let external = lab.external_of(&udp(VICTIM, REMOTE));
    for _ in 0..299 {
        lab.wait_s(1.0);
        assert!(!passes(&mut lab, Side::Outside, &udp(ATTACKER, &external)));
    }
    lab.wait_s(1.2);
    assert_eq!(lab.engine.mappings().count(), 0);
}

/// A protocol without ports can be blocked for others on the same external address: the first
/// subscriber that uses it towards a remote host has it alone. Another remote host, protocol or
/// external address is free.
#[test]
fn a_protocol_without_ports_belongs_to_the_first_who_uses_it_towards_a_remote() {
    let mut lab = Lab::new(&config());
    let packet = |protocol, source: &str, remote: &str| {
        ip(protocol, endpoint(source).0, endpoint(remote).0, &[1, 2, 3, 4, 5, 6, 7, 8])
    };
    lab.out(&packet(50, "10.0.0.66", "198.51.100.7"));
    let refused = lab.refused(Side::Inside, &packet(50, "10.0.0.5", "198.51.100.7"));
    assert_eq!(refused, DropReason::Ambiguous);
    lab.out(&packet(50, "10.0.0.5", "198.51.100.8"));
    lab.out(&packet(47, "10.0.0.5", "198.51.100.7"));
    // One subscriber may take as many as the quota of ICMP.
    let mut taken = 1;
    for n in 0..1000_u32 {
        let remote = format!("198.18.{}.{}", n / 250, n % 250);
        taken += u32::from(passes(&mut lab, Side::Inside, &packet(50, "10.0.0.66", &remote)));
    }
    assert_eq!(taken, 200);
}
