//! Replacement of the configuration at run time (section 14 of the specification): the mappings
//! that stay and go, the time of their removal, refused configurations, and the length of calls.

mod common;

use common::*;
use natgate_engine::{
    AddressRange, Allocation, Change, Config, Cursor, Departure, DeterministicConfig, DropReason,
    Engine, Event, Filter, Limits, MappingKind, Match, Packet, PoolConfig, Prefix, Reconfiguration,
    ReconfigureError, Review, Rule, RuleAction, Side, StaticMapping, Timeouts, Verdict,
};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

fn prefix(text: &str, len: u8) -> Prefix {
    Prefix::new(text.parse().unwrap(), len)
}

impl Lab {
    /// Puts a configuration in force, before the check of the mappings.
    fn force(&mut self, config: &Config) {
        force(&mut self.engine, self.now, config).expect("it is not refused");
    }

    /// Puts a configuration in force and waits for the check of all mappings. Returns the number
    /// removed, by reason.
    fn reload(&mut self, config: &Config) -> Vec<(Departure, u64)> {
        reload(self, config);
        let (_, gone) = self.engine.departed();
        let gone = Departure::ALL.into_iter().zip(gone);
        gone.filter(|(_, count)| *count > 0).collect()
    }
}

fn guests(subscribers: &[(&str, u8)]) -> Config {
    let subscribers = subscribers.iter().map(|(text, len)| prefix(text, *len)).collect();
    Config { subscribers, ..config() }
}

#[test]
fn from_the_first_packet_on_nobody_uses_a_mapping_that_may_not_stay() {
    let both = guests(&[("10.0.0.0", 24), ("10.9.0.0", 24)]);
    let mut lab = Lab::new(&both);
    let (stays, goes) = (udp("10.0.0.5:4000", REMOTE), udp("10.9.0.5:4000", REMOTE));
    let (kept, lost) = (lab.external_of(&stays), lab.external_of(&goes));
    lab.created();
    lab.force(&guests(&[("10.0.0.0", 24)]));
    assert!(!lab.engine.is_settled());
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &lost)), DropReason::NoMapping);
    assert_eq!(lab.refused(Side::Inside, &goes), DropReason::NotSubscriber);
    assert_eq!(lab.external_of(&stays), kept);
    lab.inward(&udp(REMOTE, &kept));
    // The mapping's first packet removed it, and the sweep finds nothing left to do.
    assert_eq!(lab.removed().len(), 1);
    lab.wait_s(0.0);
    assert!(lab.engine.is_settled() && lab.removed().is_empty());
    assert_eq!(lab.engine.departed(), (1, [1, 0, 0, 0]));
}

#[test]
fn a_port_that_two_shared_serves_at_once_the_one_that_stays() {
    let one = PoolConfig { overloading: true, ..pool("203.0.113.1", "203.0.113.1", (5000, 5000)) };
    let both = guests(&[("10.0.0.0", 24), ("10.9.0.0", 24)]);
    let mut lab = Lab::new(&Config { pools: vec![one.clone()], ..both });
    let (remote, shared) = ("198.51.100.8:80", "203.0.113.1:5000");
    assert_eq!(lab.external_of(&udp("10.0.0.5:4000", REMOTE)), shared);
    assert_eq!(lab.external_of(&udp("10.9.0.5:4000", remote)), shared);
    lab.force(&Config { pools: vec![one], ..guests(&[("10.0.0.0", 24)]) });
    // The mapping with a session to this remote endpoint goes; the other admits everybody.
    assert_eq!(ends(&lab.inward(&udp(remote, shared))).1, "10.0.0.5:4000");
}

#[test]
fn what_nobody_asks_for_is_asked_by_the_sweep() {
    let mut lab = Lab::new(&guests(&[("10.0.0.0", 8)]));
    for host in 0..200 {
        lab.out(&udp(&format!("10.{host}.0.5:4000"), REMOTE));
    }
    assert_eq!(lab.created().len(), 200);
    let gone = lab.reload(&guests(&[("10.0.0.0", 9)]));
    assert_eq!(gone, [(Departure::NotSubscriber, 72)]);
    assert_eq!(lab.removed().len(), 72);
    assert_eq!(lab.engine.mappings().count(), 128);
}

#[test]
fn a_dry_run_changes_nothing_and_comes_true() {
    let mut lab = Lab::new(&guests(&[("10.0.0.0", 8)]));
    for host in 0..200 {
        lab.out(&udp(&format!("10.{host}.0.5:4000"), REMOTE));
    }
    let config = guests(&[("10.0.0.0", 9)]);
    let new = Reconfiguration::new(lab.engine.config(), &config).unwrap();
    let mut review = Review::new(5);
    while lab.engine.review(&new, &mut review) {}
    assert_eq!((review.stay, review.go, review.named.len()), (128, [72, 0, 0, 0], 5));
    assert!(review.named.iter().all(|one| one.why == Departure::NotSubscriber));
    assert_eq!(lab.engine.mappings().count(), 200);
    lab.out(&udp("10.199.0.5:4000", REMOTE));
    lab.reload(&config);
    assert_eq!(lab.engine.departed(), (review.stay, review.go));
}

#[test]
fn who_is_no_subscriber_stays_while_a_rule_translates_a_session() {
    let rule = |to: &str| {
        let matches = Match::Destination(prefix(to, 32), 0);
        Rule::new(matches, RuleAction::Snat(0))
    };
    let with = |rules: Vec<Rule>| Config { rules, ..guests(&[("10.0.0.0", 24)]) };
    let mut lab = Lab::new(&with(vec![rule("198.51.100.7")]));
    let stranger = udp("11.0.0.5:4000", REMOTE);
    let external = lab.external_of(&stranger);
    assert_eq!(lab.reload(&with(vec![rule("198.51.100.7"), rule("198.51.100.8")])), []);
    assert_eq!(lab.external_of(&stranger), external);
    let gone = lab.reload(&with(vec![rule("198.51.100.8")]));
    assert_eq!(gone, [(Departure::NotSubscriber, 1)]);
}

#[test]
fn an_address_takes_its_mappings_with_it_when_it_leaves_its_pool() {
    let with = |addresses: &[&str]| {
        let range = |text: &&str| AddressRange {
            first: text.parse().unwrap(),
            last: text.parse().unwrap(),
        };
        let addresses = addresses.iter().map(range).collect();
        let pools = vec![PoolConfig { addresses, ..config().pools[0].clone() }];
        Config { pools, ..config() }
    };
    let both = with(&["203.0.113.1", "203.0.113.9"]);
    let mut lab = Lab::new(&both);
    let packet = |host: u8| udp(&format!("10.0.0.{host}:4000"), REMOTE);
    let externals: Vec<String> = (2..42).map(|host| lab.external_of(&packet(host))).collect();
    let leaving = externals.iter().filter(|one| address_of(one) == "203.0.113.9").count();
    assert!((1..40).contains(&leaving));
    let gone = lab.reload(&with(&["203.0.113.1"]));
    assert_eq!(gone, [(Departure::Pool, leaving as u64)]);
    for (host, before) in (2..42).zip(&externals) {
        let now = lab.external_of(&packet(host));
        assert_eq!(address_of(&now), "203.0.113.1");
        assert!(now == *before || address_of(before) == "203.0.113.9");
    }
    let gone = udp(REMOTE, externals.iter().find(|one| address_of(one) == "203.0.113.9").unwrap());
    assert_eq!(lab.refused(Side::Outside, &gone), DropReason::NotForUs);
    assert_eq!(lab.reload(&both), []);
}

#[test]
fn a_deterministic_pool_that_is_gone_has_no_ranges_without_use() {
    let subscribers = vec![prefix("10.7.0.0", 28)];
    let shares = DeterministicConfig { subscribers, ..DeterministicConfig::default() };
    let range = AddressRange {
        first: "203.0.113.9".parse().unwrap(),
        last: "203.0.113.9".parse().unwrap(),
    };
    let pool = PoolConfig {
        name: "arithmetic".into(),
        addresses: vec![range],
        allocation: Some(Allocation::Deterministic(shares)),
        ..config().pools[0].clone()
    };
    let members = Match::Source(prefix("10.7.0.0", 28), 0);
    let rules = vec![Rule::new(members, RuleAction::Snat(1))];
    let both = Config { pools: vec![config().pools[0].clone(), pool], rules, ..config() };
    let mut lab = Lab::new(&both);
    lab.out(&udp("10.7.0.2:4000", REMOTE));
    let ranges = |lab: &Lab| {
        let mut found = Vec::with_capacity(100);
        let all = Filter::default();
        assert!(lab.engine.scan_blocks(&mut Cursor::default(), 100_000, &all, &mut found));
        found
    };
    assert_eq!(ranges(&lab).len(), 16);
    lab.reload(&config());
    let left = ranges(&lab);
    assert!(left.len() <= 1, "{left:?}");
    assert!(left.iter().all(|info| info.used[1] + info.held[1] > 0), "{left:?}");
}

#[test]
fn timeouts_hold_from_the_next_packet_on() {
    let with = |udp| Config {
        timeouts: Timeouts { udp: Duration::from_secs(udp), ..Timeouts::default() },
        ..config()
    };
    let mut lab = Lab::new(&with(300));
    let (silent, busy) = (udp("10.0.0.5:4000", REMOTE), udp("10.0.0.6:4000", REMOTE));
    lab.out(&silent);
    lab.out(&busy);
    lab.reload(&with(20));
    lab.out(&busy);
    lab.wait_s(21.0);
    let left: Vec<_> = lab.engine.mappings().map(|one| one.id.internal.address).collect();
    assert_eq!(left, [Ipv4Addr::new(10, 0, 0, 5)]);
    lab.reload(&with(600));
    lab.out(&silent);
    lab.wait_s(590.0);
    assert_eq!(lab.engine.mappings().count(), 1);
}

#[test]
fn limits_that_are_lower_take_nothing_away() {
    let with = |udp_ports| Config { limits: Limits { udp_ports, ..Limits::default() }, ..config() };
    let mut lab = Lab::new(&with(10));
    let packet = |port: u16| udp(&format!("10.0.0.5:{port}"), REMOTE);
    (1..=10).for_each(|port| drop(lab.out(&packet(port))));
    assert_eq!(lab.reload(&with(3)), []);
    (1..=10).for_each(|port| drop(lab.out(&packet(port))));
    assert_eq!(lab.refused(Side::Inside, &packet(11)), DropReason::PortQuota);
    lab.reload(&with(11));
    lab.out(&packet(11));
}

#[test]
fn what_only_a_restart_changes_is_named_and_all_stays() {
    let mut lab = Lab::new(&config());
    let mapping = natgate_engine::Behavior::AddressDependent;
    let other = Config {
        mapping,
        subscribers: vec![],
        limits: Limits { mappings: Some(7), ..Limits::default() },
        ..config()
    };
    let mut new = Reconfiguration::new(lab.engine.config(), &other).unwrap();
    let refused = lab.engine.prepare_configuration(&mut new);
    assert_eq!(refused, Err(ReconfigureError::Restart(vec!["nat.mapping", "limits.mappings"])));
    lab.out(&udp("10.0.0.5:4000", REMOTE));
    // Making the configuration finds a rule that names something that does not exist.
    let rules = vec![Rule::new(Match::Source(prefix("10.0.0.0", 8), 0), RuleAction::Snat(7))];
    let wrong = Reconfiguration::new(lab.engine.config(), &Config { rules, ..config() });
    assert!(wrong.is_err());
}

#[test]
fn the_next_waits_until_all_have_been_asked() {
    let mut lab = Lab::new(&config());
    lab.out(&udp("10.0.0.5:4000", REMOTE));
    lab.force(&config());
    let mut new = Reconfiguration::new(lab.engine.config(), &config()).unwrap();
    let refused = lab.engine.prepare_configuration(&mut new);
    assert_eq!(refused, Err(ReconfigureError::Unsettled));
    assert_eq!(lab.engine.next_deadline(), Some(lab.now));
    lab.wait_s(0.0);
    assert_eq!(lab.engine.prepare_configuration(&mut new), Ok(()));
}

fn static_tcp(internal: &str, external: &str) -> StaticMapping {
    let end = |text: &str| {
        let (address, port) = endpoint(text);
        (Ipv4Addr::from_bits(address), Some(port))
    };
    let (internal, external) = (end(internal), end(external));
    StaticMapping { internal, external, ..StaticMapping::default() }
}

#[test]
fn static_mappings_come_and_go_and_take_what_is_theirs() {
    let with = |statics| Config { statics, ..config() };
    let mut lab = Lab::new(&with(vec![]));
    let (one, other) = (udp("10.0.0.5:4000", REMOTE), udp("10.0.0.6:4000", REMOTE));
    let (first, second) = (lab.external_of(&one), lab.external_of(&other));
    // The static mappings take the external endpoint of one mapping, and the internal endpoint of
    // another.
    let forwarded = with(vec![
        static_tcp("10.0.0.80:8080", &first),
        static_tcp("10.0.0.6:4000", "203.0.113.1:1025"),
    ]);
    assert_eq!(lab.reload(&forwarded), [(Departure::Displaced, 2)]);
    assert_eq!(ends(&lab.inward(&udp("192.0.2.77:9", &first))).1, "10.0.0.80:8080");
    assert_eq!(lab.external_of(&other), "203.0.113.1:1025");
    assert_ne!(lab.external_of(&one), first);
    assert_eq!(lab.refused(Side::Outside, &udp(REMOTE, &second)), DropReason::NoMapping);
    // An unchanged static mapping stays with its sessions, the other goes with them.
    let half = with(vec![static_tcp("10.0.0.6:4000", "203.0.113.1:1025")]);
    assert_eq!(lab.reload(&half), [(Departure::Static, 4)]);
    assert_eq!(lab.refused(Side::Outside, &udp("192.0.2.77:9", &first)), DropReason::NoMapping);
    assert_eq!(lab.external_of(&other), "203.0.113.1:1025");
    lab.reload(&with(vec![]));
    // The port that was held before the static mapping stays held until its time, then it is free.
    lab.wait_s(1000.0);
    let usage = lab.engine.pool_usage(0, natgate_wire::protocol::UDP);
    assert_eq!((usage.free, usage.held, usage.reserved), (64_512, 0, 0));
}

#[test]
fn a_whole_address_is_mapped_and_given_back() {
    let whole = |address: &str| StaticMapping {
        internal: (Ipv4Addr::new(10, 0, 0, 80), None),
        external: (address.parse().unwrap(), None),
        ..StaticMapping::default()
    };
    let with = |statics| {
        let pools = vec![pool("203.0.113.1", "203.0.113.2", (1024, 2047))];
        Config { statics, pools, ..config() }
    };
    let mut lab = Lab::new(&with(vec![]));
    let packets: Vec<_> =
        (20..60).map(|host| udp(&format!("10.0.0.{host}:5000"), REMOTE)).collect();
    let externals: Vec<String> = packets.iter().map(|packet| lab.external_of(packet)).collect();
    let on_second = externals.iter().filter(|one| address_of(one) == "203.0.113.2").count() as u64;
    assert!(on_second > 0);
    let gone = lab.reload(&with(vec![whole("203.0.113.2")]));
    assert_eq!(gone, [(Departure::Displaced, on_second)]);
    let taken = externals.iter().find(|one| address_of(one) == "203.0.113.2").unwrap();
    let got = lab.inward(&udp("192.0.2.77:9", taken));
    assert_eq!(ends(&got).1, format!("10.0.0.80:{}", port_of(taken)));
    for packet in &packets {
        assert_eq!(address_of(&lab.external_of(packet)), "203.0.113.1");
    }
    assert_eq!(lab.reload(&with(vec![whole("198.51.100.9")])), [(Departure::Static, 1)]);
    lab.inward(&udp("192.0.2.77:9", "198.51.100.9:7"));
    lab.reload(&with(vec![]));
    let gone = lab.refused(Side::Outside, &udp("192.0.2.77:9", "198.51.100.9:7"));
    assert_eq!(gone, DropReason::NotForUs);
    lab.wait_s(1000.0);
    let usage = lab.engine.pool_usage(0, natgate_wire::protocol::UDP);
    assert_eq!((usage.free, usage.used, usage.held, usage.reserved), (2048, 0, 0, 0));
}

/// Number of mappings in the largest table; NATGATE_MAPPINGS sets it.
fn many() -> u32 {
    let mappings = std::env::var("NATGATE_MAPPINGS").ok();
    mappings.and_then(|mappings| mappings.parse().ok()).unwrap_or(1_000_000)
}

/// Half of very many mappings go. Packets in between wait for a small part of them only. Times are
/// printed, because they depend on the machine.
#[test]
fn no_batch_waits_for_a_million_mappings() {
    let addresses = vec![AddressRange {
        first: Ipv4Addr::new(203, 0, 113, 0),
        last: Ipv4Addr::new(203, 0, 113, 31),
    }];
    let pools = vec![PoolConfig { addresses, ..config().pools[0].clone() }];
    let limits = Limits { mappings: Some(many()), subscribers: Some(many()), ..Limits::default() };
    let with = |subscribers| Config {
        subscribers,
        pools: pools.clone(),
        limits: limits.clone(),
        ..config()
    };
    let mut lab = Lab::new(&with(vec![prefix("10.0.0.0", 8)]));
    for number in 0..many() {
        let host = Ipv4Addr::from_bits(u32::from_be_bytes([10, 0, 0, 2]) + number * 8);
        let mut bytes = udp(&format!("{host}:4000"), REMOTE);
        let mut packets = [Packet::new(&mut bytes, 0)];
        let mut verdicts = [Verdict::Held];
        lab.engine.process(lab.now, Side::Inside, &mut packets, &mut verdicts);
        while lab.engine.poll_event().is_some() {}
    }
    assert_eq!(lab.engine.mappings().count() as u32, many());
    let middle = u32::from_be_bytes([10, 0, 0, 2]) + many() / 2 * 8;
    let gone = (0..many()).filter(|number| number / (many() / 2) > 0).count() as u32;
    let subscribers = below(middle);
    let now = lab.now;
    let begun = Instant::now();
    let mut new = Reconfiguration::new(lab.engine.config(), &with(subscribers)).unwrap();
    let made = begun.elapsed();
    lab.engine.prepare_configuration(&mut new).unwrap();
    let mut times = Vec::new();
    let mut superseded = None;
    let mut new = Some(new);
    let mut removed = 0;
    loop {
        let begun = Instant::now();
        if lab.engine.is_prepared()
            && let Some(new) = new.take()
        {
            superseded = Some(lab.engine.reconfigure(new));
        }
        lab.engine.advance(now);
        times.push(begun.elapsed());
        while lab.engine.poll_event().is_some() {
            removed += 1;
        }
        lab.out(&udp("10.0.0.2:4000", REMOTE));
        if superseded.is_some() && lab.engine.is_settled() {
            break;
        }
    }
    times.sort_unstable();
    let steps = times.len() as u32;
    let at = |part: f64| times[((steps - 1) as f64 * part) as usize];
    let (median, most, longest) = (at(0.5), at(0.999), at(1.0));
    println!(
        "made in {made:?}; asked in {steps} steps: half took {median:?}, 99.9 % {most:?} at most, \
         the longest {longest:?}"
    );
    assert_eq!(removed, gone);
    assert!(steps > many() / 1000, "{steps} steps");
    assert_eq!(lab.engine.mappings().count() as u32, many() - gone);
    let kinds = lab.engine.mappings().all(|one| one.id.kind == MappingKind::Dynamic);
    assert!(kinds);
}

// ---- the pace of the sweep ----

/// Number of mappings that one call checks.
fn checked_by_one_call(lab: &mut Lab) -> u64 {
    let (before, _) = lab.engine.departed();
    lab.engine.advance(lab.now);
    lab.engine.departed().0 - before
}

#[test]
fn the_sweep_does_little_while_packets_come_and_much_while_none_come() {
    const HOSTS: u32 = 40_000;
    const IN_BUSY_TIME: u64 = 32;
    const IN_IDLE_TIME: u64 = 512;
    let all = guests(&[("10.0.0.0", 8)]);
    let mut lab = Lab::new(&all);
    for number in 0..HOSTS {
        let host = Ipv4Addr::from_bits(u32::from_be_bytes([10, 1, 0, 0]) + number);
        lab.out(&udp(&format!("{host}:4000"), REMOTE));
    }
    lab.force(&all);
    let mut batch = vec![udp("192.0.2.1:4000", REMOTE); Engine::MAX_BATCH];
    for _ in 0..3 {
        let mut packets: Vec<Packet<'_>> =
            batch.iter_mut().map(|bytes| Packet::new(bytes, 0)).collect();
        let mut verdicts = [Verdict::Held; Engine::MAX_BATCH];
        lab.engine.process(lab.now, Side::Inside, &mut packets, &mut verdicts);
        assert_eq!(checked_by_one_call(&mut lab), IN_BUSY_TIME);
        // The call at the start of a turn follows the one after the last batch.
        assert!(checked_by_one_call(&mut lab) < IN_IDLE_TIME / 5);
    }
    let later: Vec<u64> = (0..40).map(|_| checked_by_one_call(&mut lab)).collect();
    assert!(later.is_sorted(), "{later:?}");
    assert_eq!(later.last(), Some(&IN_IDLE_TIME));
    while lab.engine.advance(lab.now) {}
    assert_eq!(lab.engine.departed(), (HOSTS.into(), [0; Departure::ALL.len()]));
}

// ---- mappings with many sessions ----

const SESSIONS: usize = 20_000;
/// Most sessions that one step removes.
const STEP: usize = 256;
const BUSY: &str = "10.9.0.5:4000";

/// A mapping with very many sessions, and a configuration in which its host is no subscriber.
fn with_many_sessions() -> (Lab, Config) {
    let mut config = guests(&[("10.0.0.0", 24), ("10.9.0.0", 24)]);
    config.limits.sessions_per_mapping = SESSIONS as u16;
    config.limits.sessions_per_subscriber = Some(SESSIONS as u32);
    config.limits.extra_sessions = Some(16 * SESSIONS as u32);
    config.session_events = true;
    let mut lab = Lab::new(&config);
    for number in 0..SESSIONS {
        lab.out(&udp(BUSY, &format!("198.51.{}.{}:80", number / 200, 1 + number % 200)));
    }
    lab.events.clear();
    config.subscribers = vec![prefix("10.0.0.0", 24)];
    (lab, config)
}

impl Lab {
    /// Takes the events of a step. Returns the number of sessions that have ended.
    fn count_ended(&mut self) -> usize {
        while let Some(event) = self.engine.poll_event() {
            self.events.push(event);
        }
        let is_end = |event: &&Event| matches!(event.change, Change::SessionRemoved(_));
        self.events.iter().filter(is_end).count()
    }

    /// True if each session's end has been told, and then that of the mapping.
    #[track_caller]
    fn assert_all_is_told(&mut self) {
        assert_eq!((self.count_ended(), self.engine.counters().events_lost), (SESSIONS, 0));
        let ends = |event: &Event| matches!(event.change, Change::MappingRemoved(_));
        assert_eq!(self.events.iter().position(ends), Some(SESSIONS));
    }
}

#[test]
fn a_mapping_with_many_sessions_ends_in_steps() {
    let (mut lab, after) = with_many_sessions();
    lab.force(&after);
    let mut ended = 0;
    while lab.engine.advance(lab.now) {
        let now = lab.count_ended();
        assert!(now - ended <= STEP, "{} sessions in one step", now - ended);
        ended = now;
    }
    assert_eq!(lab.engine.sessions().count(), 0);
    assert_eq!(lab.engine.departed().1, [1, 0, 0, 0]);
    lab.assert_all_is_told();
}

/// Each packet for the mapping removes some sessions and is dropped.
#[test]
fn packets_of_a_mapping_with_many_sessions_end_it_in_steps() {
    let (mut lab, after) = with_many_sessions();
    lab.force(&after);
    let mapping = lab.engine.mappings().next().expect("it is there").id;
    let external = format!("{}:{}", mapping.external.address, mapping.external.port);
    for step in 1..=SESSIONS.div_ceil(STEP) {
        let packet = udp("198.51.0.1:80", &external);
        assert_eq!(lab.refused(Side::Outside, &packet), DropReason::NoMapping);
        assert_eq!(lab.count_ended(), SESSIONS.min(step * STEP));
    }
    assert_eq!(lab.engine.mappings().count(), 0);
    lab.assert_all_is_told();
    lab.wait_s(0.0);
    assert!(lab.engine.is_settled());
}

#[test]
fn a_static_mapping_takes_the_place_of_one_with_many_sessions_at_once() {
    let (mut lab, mut after) = with_many_sessions();
    let mut forwarded = static_tcp(BUSY, "203.0.113.1:1025");
    forwarded.protocol = Some(natgate_wire::protocol::UDP);
    after.statics = vec![forwarded];
    lab.force(&after);
    lab.assert_all_is_told();
    assert_eq!(lab.external_of(&udp(BUSY, REMOTE)), "203.0.113.1:1025");
}

#[test]
fn a_mapping_with_many_sessions_is_cleared_in_steps() {
    let (mut lab, _) = with_many_sessions();
    let (mut cursor, mut ended, mut cleared) = (Cursor::default(), 0, 0);
    loop {
        let (count, is_done) = lab.engine.clear_mappings(&mut cursor, STEP, &Filter::default());
        let now = lab.count_ended();
        assert!(now - ended <= STEP, "{} sessions in one step", now - ended);
        (ended, cleared) = (now, cleared + count);
        if is_done {
            break;
        }
    }
    assert_eq!(cleared, 1);
    lab.assert_all_is_told();
}

/// Prefixes that cover all addresses from 10.0.0.0 up to an end.
fn below(end: u32) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    let mut at = u32::from_be_bytes([10, 0, 0, 0]);
    while at < end {
        let size = (at.trailing_zeros()).min((end - at).ilog2());
        prefixes.push(Prefix::new(Ipv4Addr::from_bits(at), (32 - size) as u8));
        at += 1 << size;
    }
    prefixes
}
