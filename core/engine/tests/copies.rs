//! Copies of mappings between engines that run: the partner of a pair has the mappings of the
//! owner, whatever the numbers of workers are.

mod common;

use common::*;
use natgate_engine::{
    Config, Copied, Copies, CopyEnds, DropReason, Engine, HostIdentity, HostNumbers, Match,
    NoNumber, NoNumbers, Packet, PoolConfig, Prefix, RealmConfig, RealmNumber, RestoreError, Rule,
    RuleAction, RuleSet, Side, SideConfig, StaticMapping, Verdict,
};
use natgate_wire::protocol;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// An engine that assigns ports of the first address, and may have copies of the others.
fn node(own: &str, others: &[&str]) -> Lab {
    let addresses = [own].iter().chain(others).map(|address| range(address)).collect();
    let draining = others.iter().map(|address| range(address)).collect();
    let pool = PoolConfig { addresses, draining, ..pool(own, own, (2000, 2999)) };
    Lab::new(&Config { pools: vec![pool], ..config() })
}

fn origin(lab: &Lab) -> Vec<u8> {
    let mut origin = Vec::new();
    lab.engine.copy_origin(&mut origin);
    origin
}

/// Present records of an engine by key.
fn records(lab: &Lab) -> BTreeMap<u32, (Vec<u8>, u64)> {
    let record = |key| {
        let mut record = Vec::new();
        let fingerprint = lab.engine.copy_record(key, &NoNumbers, &mut record)?;
        assert_eq!(Engine::copy_print(&record), Some(fingerprint), "as its reader finds it");
        Some((key, (record, fingerprint)))
    };
    (0..lab.engine.copy_extent()).filter_map(record).collect()
}

fn copy_all(from: &Lab, to: &mut Lab, copies: &mut Copies) -> usize {
    let all = records(from);
    for (key, (record, fingerprint)) in &all {
        assert_eq!(
            to.engine.copy(copies, &mut NoNumbers, (*key, record)),
            Ok(Copied::Made(*fingerprint))
        );
    }
    all.len()
}

const A: &str = "203.0.113.1";
const B: &str = "203.0.113.2";

#[test]
fn a_partner_continues_the_flows_of_an_owner_with_another_clock() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    b.wait_s(1_000.3);
    b.out(&udp("10.0.0.9:9", REMOTE));
    let outside = a.external_of(&udp("10.0.0.5:4000", REMOTE));
    a.out(&tcp("10.0.0.5:5000", REMOTE, "S", 100, 0));
    let syn = ends(&a.out(&tcp("10.0.0.6:5000", REMOTE, "S", 100, 0))).0;
    a.inward(&tcp(REMOTE, &syn, "SA", 500, 101));
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 101, 501));

    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    assert_eq!(copy_all(&a, &mut b, &mut copies), 3);
    assert_eq!(b.created().len(), 1, "copies are no events");
    assert_eq!(b.external_of(&udp("10.0.0.5:4000", REMOTE)), outside);
    assert_eq!(ends(&b.inward(&tcp(REMOTE, &syn, "A", 501, 101))).1, "10.0.0.6:5000");
    // New mappings come from the addresses of the partner itself.
    assert!(b.external_of(&udp("10.0.0.5:4001", REMOTE)).starts_with(B));

    // The same record again changes nothing; an end ends the copy and not the mapping of another.
    copy_all(&a, &mut b, &mut copies);
    assert_eq!(copies.count(), 3);
    let before = b.engine.mappings().count();
    let (&key, _) = records(&a).iter().next().expect("a mapping");
    b.engine.end_copy(&mut copies, key);
    b.engine.end_copy(&mut copies, key);
    b.engine.end_copy(&mut copies, 1 << 30);
    assert_eq!(b.engine.mappings().count(), before - 1);
    assert_eq!(copies.count(), 2);
}

#[test]
fn a_copy_obeys_the_rules_of_its_engine() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    let packet = udp("10.0.0.5:4000", REMOTE);
    a.out(&packet);
    let all = Match::Destination(Prefix::new([0, 0, 0, 0].into(), 0), 0);
    let rules = RuleSet::new(&[Rule::new(all, RuleAction::Drop)]).expect("a rule");
    b.engine.replace_rules(rules).expect("no check is under way");
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    copy_all(&a, &mut b, &mut copies);
    assert_eq!(b.refused(Side::Inside, &packet), DropReason::Rule);
}

#[test]
fn three_workers_are_copied_to_two() {
    let addresses = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
    let mut owners: Vec<Lab> = addresses.iter().map(|own| node(own, &[])).collect();
    let mut partners = [node("203.0.113.8", &addresses), node("203.0.113.9", &addresses)];
    let mut outside = BTreeMap::new();
    for host in 2..62_u32 {
        let inside = format!("10.0.0.{host}:700");
        let owner = &mut owners[host as usize % 3];
        outside.insert(inside.clone(), owner.external_of(&udp(&inside, REMOTE)));
    }
    for owner in &owners {
        let mut copies = Vec::new();
        for partner in &mut partners {
            copies.push(partner.engine.begin_copies(&origin(owner)).expect("begins"));
        }
        for (key, (record, fingerprint)) in records(owner) {
            let ends = CopyEnds::read(&record).expect("whole");
            let to = usize::from(ends.internal.0.octets()[3] % 2);
            let copied = partners[to].engine.copy(&mut copies[to], &mut NoNumbers, (key, &record));
            assert_eq!(copied, Ok(Copied::Made(fingerprint)));
        }
    }
    for (inside, external) in outside {
        let host: usize = inside.split(['.', ':']).nth(3).unwrap().parse().unwrap();
        assert_eq!(partners[host % 2].external_of(&udp(&inside, REMOTE)), external);
    }
}

#[test]
fn a_copy_never_displaces_a_mapping_of_the_engine_itself() {
    let few = |seed| {
        let pools = vec![pool(A, A, (2000, 2000))];
        Lab::seeded(&Config { pools, ..config() }, seed)
    };
    let (mut a, mut b) = (few(0), few(1));
    a.out(&udp("10.0.0.5:1", REMOTE));
    let own = b.external_of(&udp("10.0.0.6:1", REMOTE));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    for (key, (record, _)) in records(&a) {
        assert_eq!(b.engine.copy(&mut copies, &mut NoNumbers, (key, &record)), Ok(Copied::NoPlace));
        b.engine.end_copy(&mut copies, key);
    }
    assert_eq!(b.external_of(&udp("10.0.0.6:1", REMOTE)), own);
}

/// The partner has a part of the owner's room for sessions.
#[test]
fn sessions_of_a_copy_that_fit_stay() {
    let mut few = config();
    few.statics = vec![StaticMapping {
        external: (A.parse().unwrap(), Some(80)),
        internal: (Ipv4Addr::new(10, 0, 0, 80), Some(80)),
        protocol: Some(protocol::UDP),
        ..StaticMapping::default()
    }];
    let many = few.clone();
    // Half of it is for sessions that begin outside; each mapping has room for one besides.
    few.limits.extra_sessions = Some(8);
    let (mut a, mut b) = (Lab::new(&many), Lab::seeded(&few, 1));
    let server = format!("{A}:80");
    let remote = |number: u32| format!("198.51.100.{number}:5000");
    let inside = |lab: &mut Lab, number: u32| lab.inward(&udp(&remote(number), &server));
    for number in 1..=12 {
        inside(&mut a, number);
    }
    let count = |lab: &Lab| lab.engine.sessions().count();
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    let copy = |a: &Lab, b: &mut Lab, copies: &mut Copies| -> Vec<Copied> {
        let all = records(a).into_iter();
        let copy = |(key, (record, _)): (u32, (Vec<u8>, u64))| {
            b.engine.copy(copies, &mut NoNumbers, (key, &record)).expect("whole")
        };
        all.map(copy).collect()
    };
    assert_eq!(copy(&a, &mut b, &mut copies), [Copied::Part]);
    assert_eq!(count(&b), 5);
    // What is there stays, whatever comes again.
    inside(&mut a, 13);
    assert_eq!(copy(&a, &mut b, &mut copies), [Copied::Part]);
    assert_eq!(count(&b), 5);
    // A mapping of a host is a copy with the session that fits: here no mapping has a second one.
    let external = a.external_of(&udp("10.0.0.5:4000", &remote(1)));
    for number in 2..=9 {
        a.out(&udp("10.0.0.5:4000", &remote(number)));
    }
    assert_eq!(copy(&a, &mut b, &mut copies), [Copied::Part; 2]);
    assert_eq!((count(&b), b.external_of(&udp("10.0.0.5:4000", &remote(1)))), (5 + 5, external));
    // The server's sessions end, so there is room for all of them.
    a.wait_s(250.0);
    for number in 1..=9 {
        a.out(&udp("10.0.0.5:4000", &remote(number)));
    }
    a.wait_s(100.0);
    inside(&mut a, 1);
    let all = copy(&a, &mut b, &mut copies);
    assert!(matches!(all[..], [Copied::Made(_), Copied::Made(_)]), "{all:?}");
    assert_eq!(count(&b), 1 + 9);
    b.engine.end_copy(&mut copies, records(&a).into_keys().last().expect("a mapping"));
    assert_eq!(count(&b), 1);
}

#[test]
fn a_copy_that_ended_by_itself_leaves_its_slot_to_others() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    a.out(&udp("10.0.0.5:1", REMOTE));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    copy_all(&a, &mut b, &mut copies);
    let (key, (record, fingerprint)) = records(&a).pop_first().expect("a mapping");
    b.wait_s(302.0);
    assert_eq!(b.engine.mappings().count(), 0, "the copy has ended");
    let own = b.external_of(&udp("10.0.0.7:1", REMOTE));
    b.engine.end_copy(&mut copies, key);
    assert_eq!(b.external_of(&udp("10.0.0.7:1", REMOTE)), own, "same slot, another mapping");
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    assert_eq!(
        b.engine.copy(&mut copies, &mut NoNumbers, (key, &record)),
        Ok(Copied::Made(fingerprint))
    );
    assert_eq!(b.engine.mappings().count(), 2);
}

#[test]
fn fingerprints_cover_what_matters_alone() {
    let mut a = node(A, &[B]);
    let outside = a.external_of(&tcp("10.0.0.6:5000", REMOTE, "S", 100, 0));
    let print = |a: &Lab| records(a).values().map(|(_, print)| *print).collect::<Vec<_>>();
    let opening = print(&a);
    a.inward(&tcp(REMOTE, &outside, "SA", 500, 101));
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 101, 501));
    let established = print(&a);
    assert_ne!(opening, established);
    a.wait_s(5.0);
    a.out(&tcp("10.0.0.6:5000", REMOTE, "A", 201, 501));
    assert_eq!(print(&a), established, "numbers, counters, deadlines");
}

#[test]
fn damaged_records_change_nothing() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    a.out(&tcp("10.0.0.5:1", REMOTE, "S", 1, 0));
    let origin = origin(&a);
    for len in 0..origin.len() {
        assert!(b.engine.begin_copies(&origin[..len]).is_err());
    }
    let mut copies = b.engine.begin_copies(&origin).expect("begins");
    let (key, (record, _)) = records(&a).pop_first().expect("a mapping");
    for len in 0..record.len() {
        let copied = b.engine.copy(&mut copies, &mut NoNumbers, (key, &record[..len]));
        assert!(matches!(copied, Err(RestoreError::Damaged(_))), "{len}: {copied:?}");
    }
    let mut state = record.clone();
    // The state of the session, before the names of timeouts and realm.
    let at = state.len() - 9 - 3;
    state[at] = 99;
    assert!(b.engine.copy(&mut copies, &mut NoNumbers, (key, &state)).is_err());
    assert_eq!(b.engine.mappings().count(), 0);
    assert!(b.refused(Side::Outside, &udp(REMOTE, "203.0.113.1:2000")).name().len() > 1);
}

/// An engine with realms of these names, in this order. All have the same subscribers.
fn with_realms(own: &str, other: &str, names: &[&str]) -> Lab {
    let realm = |name: &&str| RealmConfig {
        name: (*name).into(),
        inside: SideConfig {
            address: Some("10.0.0.253".parse().unwrap()),
            network: Some(Prefix::new("10.0.0.0".parse().unwrap(), 24)),
            ..SideConfig::default()
        },
        subscribers: vec![Prefix::new("10.0.0.0".parse().unwrap(), 8)],
        ..RealmConfig::default()
    };
    let pool = PoolConfig {
        addresses: vec![range(own), range(other)],
        draining: vec![range(other)],
        ..pool(own, own, (2000, 2999))
    };
    Lab::new(&Config { pools: vec![pool], realms: names.iter().map(realm).collect(), ..config() })
}

/// Sends a packet of a realm. Returns its external endpoint.
fn out_of(lab: &mut Lab, realm: u16, bytes: &[u8]) -> String {
    let mut buffer = bytes.to_vec();
    let mut packets = [Packet::new(&mut buffer, 0).in_realm(realm)];
    let mut verdicts = [Verdict::Held];
    lab.engine.process(lab.now, Side::Inside, &mut packets, &mut verdicts);
    assert_eq!(verdicts[0], Verdict::Forward(Side::Outside));
    ends(packets[0].bytes()).0
}

/// The number of the realm that a packet from outside reaches.
fn realm_of(lab: &mut Lab, to: &str) -> u16 {
    let mut buffer = udp(REMOTE, to).to_vec();
    let mut packets = [Packet::new(&mut buffer, 0)];
    let mut verdicts = [Verdict::Held];
    lab.engine.process(lab.now, Side::Outside, &mut packets, &mut verdicts);
    assert_eq!(verdicts[0], Verdict::Forward(Side::Inside));
    packets[0].realm()
}

/// Removes or adds realms, by their names.
fn reload_realms(lab: &mut Lab, names: &[&str]) {
    let config = with_realms(A, B, names).engine.config().clone();
    let config = Config { pools: lab.engine.config().pools.clone(), ..config };
    reload(lab, &config);
}

const FLOW: &str = "10.0.0.5:4000";

#[test]
fn a_copy_is_of_the_realm_with_its_name() {
    let mut a = with_realms(A, B, &["red", "blue", "green"]);
    let mut b = with_realms(B, A, &["blue", "green", "red"]);
    let external: Vec<String> =
        (0..4).map(|realm| out_of(&mut a, realm, &udp(FLOW, REMOTE))).collect();
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    assert_eq!(copy_all(&a, &mut b, &mut copies), 4);
    for (of_a, of_b) in [(0, 0), (1, 3), (2, 1), (3, 2)] {
        assert_eq!(realm_of(&mut b, &external[of_a]), of_b);
        assert_eq!(out_of(&mut b, of_b, &udp(FLOW, REMOTE)), external[of_a]);
    }
    // The same in the other direction: the former owner takes its own mappings for copies.
    let mut back = a.engine.begin_copies(&origin(&b)).expect("begins");
    assert_eq!(copy_all(&b, &mut a, &mut back), 4);
    assert_eq!(a.engine.mappings().count(), 4);
}

#[test]
fn a_record_of_a_realm_that_there_is_not_is_refused() {
    let mut a = with_realms(A, B, &["red", "blue"]);
    let mut b = with_realms(B, A, &["blue"]);
    let [red, blue] = [1, 2].map(|realm| out_of(&mut a, realm, &udp(FLOW, REMOTE)));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    let copied = |b: &mut Lab, copies: &mut Copies| -> Vec<Copied> {
        let all = records(&a);
        let all = all
            .iter()
            .map(|(key, (record, _))| b.engine.copy(copies, &mut NoNumbers, (*key, record)));
        all.map(|copied| copied.expect("whole")).collect()
    };
    let first = copied(&mut b, &mut copies);
    assert!(matches!(first[..], [Copied::NoRealm, Copied::Made(_)]), "{first:?}");
    assert_eq!((realm_of(&mut b, &blue), b.engine.mappings().count()), (1, 1));
    // A reload of the partner adds the realm.
    reload_realms(&mut b, &["red", "blue"]);
    b.engine.renew_copies(&mut copies);
    let all = copied(&mut b, &mut copies);
    assert!(matches!(all[..], [Copied::Made(_), Copied::Made(_)]), "{all:?}");
    assert_eq!((realm_of(&mut b, &blue), realm_of(&mut b, &red)), (1, 2));
    // Another one takes the number of a removed realm. Even without a word about it, no record
    // of the removed realm belongs to it.
    reload_realms(&mut b, &["red"]);
    assert_eq!(b.engine.mappings().count(), 1);
    for _ in 0..20 {
        b.wait_s(1.0);
    }
    reload_realms(&mut b, &["red", "green"]);
    let number = b.engine.config().realms.iter().position(|realm| realm.name == "green");
    assert_eq!(number, Some(0), "the number that blue had");
    let last = copied(&mut b, &mut copies);
    assert!(matches!(last[..], [Copied::Made(_), Copied::NoRealm]), "{last:?}");
    assert_eq!((realm_of(&mut b, &red), b.engine.mappings().count()), (2, 1));
}

#[test]
fn a_reload_of_the_owner_changes_no_record() {
    let mut a = with_realms(A, B, &["red", "blue"]);
    let mut b = with_realms(B, A, &["red", "blue", "green"]);
    let blue = out_of(&mut a, 2, &udp(FLOW, REMOTE));
    let before = records(&a);
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    reload_realms(&mut a, &["green", "blue"]);
    assert_eq!(records(&a), before);
    let green = out_of(&mut a, 3, &udp(FLOW, REMOTE));
    copy_all(&a, &mut b, &mut copies);
    assert_eq!((realm_of(&mut b, &blue), realm_of(&mut b, &green)), (2, 3));
}

/// A reload adds the static mapping while copies go on, at either engine first, and once more after
/// another one has removed it.
#[test]
fn a_static_mapping_that_a_reload_adds_gets_the_sessions_of_its_copy() {
    for (owner_first, removes) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
        a.out(&udp("10.0.0.9:9", REMOTE));
        let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
        copy_all(&a, &mut b, &mut copies);
        let statics = vec![StaticMapping {
            external: (A.parse().unwrap(), Some(2500)),
            internal: ("10.0.0.5".parse().unwrap(), Some(80)),
            protocol: Some(protocol::UDP),
            ..StaticMapping::default()
        }];
        let without = |lab: &Lab| lab.engine.config().clone();
        let with = |lab: &Lab| Config { statics: statics.clone(), ..without(lab) };
        let [of_a, of_b] = [&a, &b].map(with);
        if owner_first {
            reload(&mut a, &of_a);
            a.inward(&udp(REMOTE, "203.0.113.1:2500"));
            let mut refused = 0;
            for (key, (record, _)) in &records(&a) {
                let copied = b.engine.copy(&mut copies, &mut NoNumbers, (*key, record));
                refused += usize::from(copied == Ok(Copied::NoPlace));
            }
            assert_eq!(refused, 1, "there is no such static mapping");
        }
        reload(&mut b, &of_b);
        if removes {
            let before = Config { statics: Vec::new(), ..of_b.clone() };
            reload(&mut b, &before);
            reload(&mut b, &of_b);
        }
        b.engine.renew_copies(&mut copies);
        if !owner_first {
            reload(&mut a, &of_a);
            a.inward(&udp(REMOTE, "203.0.113.1:2500"));
        }
        assert_eq!(copy_all(&a, &mut b, &mut copies), 2, "{owner_first}");
        let sessions = |lab: &Lab| {
            let one = lab.engine.mappings().find(|one| one.id.external.port == 2500);
            one.expect("the static mapping").sessions
        };
        assert_eq!([sessions(&a), sessions(&b)], [1; 2], "{owner_first}");
    }
}

#[test]
fn ends_follow_the_clocks_and_the_identity_of_a_copy_does_not() {
    let (mut a, mut b) = (node(A, &[B]), node(B, &[A]));
    a.out(&udp("10.0.0.5:1", REMOTE));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    copy_all(&a, &mut b, &mut copies);
    let left = |b: &Lab| b.engine.mappings().next().expect("a copy").expires.expect("an end");
    let created = |b: &Lab| b.engine.mappings().next().expect("a copy").created;
    let (first, at) = (left(&b), created(&b));
    // The clock of B has got ahead of the other by 100 s.
    b.engine.set_clock_difference(&mut copies, 100_000_000_000);
    copy_all(&a, &mut b, &mut copies);
    let more = left(&b).since(first);
    assert!(more.abs_diff(std::time::Duration::from_secs(100)).as_secs() < 2, "{more:?}");
    assert_eq!(created(&b), at);
    b.engine.set_clock_difference(&mut copies, -100_000_000_000);
    copy_all(&a, &mut b, &mut copies);
    assert!(first > left(&b));
}

/// Hosts of an engine by number, in the order in which they came.
#[derive(Default)]
struct Numbers {
    first: u8,
    most: usize,
    hosts: Vec<HostIdentity>,
    is_new: bool,
    paths: BTreeMap<(Ipv4Addr, Ipv4Addr), u8>,
}

impl Numbers {
    fn new(first: u8, most: usize) -> Self {
        Self { first, most, ..Self::default() }
    }

    fn at(&self, place: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self.first, place as u8 + 2)
    }
}

impl HostNumbers for Numbers {
    fn identity(&self, (_, number): RealmNumber) -> Option<HostIdentity> {
        let place = (0..self.hosts.len()).find(|place| self.at(*place) == number)?;
        Some(self.hosts[place])
    }

    fn number(&mut self, _: u16, host: HostIdentity) -> Result<Ipv4Addr, NoNumber> {
        self.is_new = false;
        if let Some(place) = self.hosts.iter().position(|known| *known == host) {
            return Ok(self.at(place));
        }
        if self.hosts.len() == self.most {
            return Err(NoNumber::Full);
        }
        self.hosts.push(host);
        self.is_new = true;
        Ok(self.at(self.hosts.len() - 1))
    }

    fn take_back(&mut self, (_, number): RealmNumber) {
        if self.is_new && self.at(self.hosts.len() - 1) == number {
            self.hosts.pop();
        }
    }

    fn path(&self, (_, number): RealmNumber, remote: Ipv4Addr) -> Option<u8> {
        Some(self.paths.get(&(number, remote)).copied().unwrap_or(0))
    }

    fn note_path(&mut self, (_, number): RealmNumber, remote: Ipv4Addr, path: u8) {
        self.paths.insert((number, remote), path);
    }
}

/// A node whose second realm has numbers of hosts.
fn with_numbers(own: &str, other: &str) -> Lab {
    let mut config = with_realms(own, other, &["red", "nat64"]).engine.config().clone();
    config.realms[1].host_bits = Some(4);
    Lab::new(&config)
}

fn of_host(number: Ipv4Addr) -> String {
    format!("{number}:4000")
}

#[test]
fn a_copy_is_of_the_host_with_its_identity() {
    let (mut a, mut b) = (with_numbers(A, B), with_numbers(B, A));
    let (mut at_a, mut at_b) = (Numbers::new(1, 9), Numbers::new(7, 2));
    let hosts = [1_u128, 2, 3].map(|address| HostIdentity { address, inner: 9 });
    // The partner knows the second host already, by another number.
    let own = at_b.number(2, hosts[1]).expect("room");
    let [first, second, third] = hosts.map(|host| at_a.number(2, host).expect("room"));
    at_a.paths.insert((second, "198.51.100.7".parse().unwrap()), 3);
    let external = [first, second].map(|of| out_of(&mut a, 2, &udp(&of_host(of), REMOTE)));
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    let copy = |a: &Lab, b: &mut Lab, copies: &mut Copies, at: [&mut Numbers; 2]| {
        let mut results = Vec::new();
        for key in 0..a.engine.copy_extent() {
            let mut record = Vec::new();
            let Some(print) = a.engine.copy_record(key, at[0], &mut record) else { continue };
            assert_eq!(Engine::copy_print(&record), Some(print), "as its reader finds it");
            let copied = b.engine.copy(copies, at[1], (key, &record)).expect("whole");
            results.push((copied, copied == Copied::Made(print)));
        }
        results
    };
    let results = copy(&a, &mut b, &mut copies, [&mut at_a, &mut at_b]);
    assert!(results.iter().all(|(_, is_made)| *is_made), "{results:?}");
    let number = at_b.number(2, hosts[0]).expect("known");
    assert_eq!(ends(&b.inward(&udp(REMOTE, &external[0]))).1, of_host(number));
    assert_eq!(ends(&b.inward(&udp(REMOTE, &external[1]))).1, of_host(own));
    assert_eq!(out_of(&mut b, 2, &udp(&of_host(own), REMOTE)), external[1]);
    assert_eq!(at_b.path((2, own), "198.51.100.7".parse().unwrap()), Some(3));
    // The other direction: fingerprints are of identities, and the former owner adopts.
    let mut back = a.engine.begin_copies(&origin(&b)).expect("begins");
    let results = copy(&b, &mut a, &mut back, [&mut at_b, &mut at_a]);
    assert!(results.len() == 2 && results.iter().all(|(_, made)| *made), "{results:?}");
    assert_eq!(a.engine.mappings().count(), 2);
    // There is no number for a third host.
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    out_of(&mut a, 2, &udp(&of_host(third), REMOTE));
    let results = copy(&a, &mut b, &mut copies, [&mut at_a, &mut at_b]);
    let no_number =
        results.iter().filter(|(copied, _)| *copied == Copied::NoNumber(NoNumber::Full)).count();
    assert_eq!((no_number, b.engine.mappings().count()), (1, 2), "{results:?}");
}

#[test]
fn a_host_whose_mapping_has_no_place_keeps_no_number() {
    let (mut a, mut b) = (with_numbers(A, B), with_numbers(B, A));
    let (mut at_a, mut at_b) = (Numbers::new(1, 9), Numbers::new(7, 2));
    let [first, second] = [1, 2].map(|address| HostIdentity { address, inner: 9 });
    let external = out_of(&mut a, 2, &udp(&of_host(at_a.number(2, first).expect("room")), REMOTE));
    // The other node knows nothing of the address.
    let mut config = b.engine.config().clone();
    config.pools[0].addresses.retain(|range| !external.starts_with(&range.first.to_string()));
    config.pools[0].draining.clear();
    b = Lab::new(&config);
    let mut copies = b.engine.begin_copies(&origin(&a)).expect("begins");
    let mut record = Vec::new();
    a.engine.copy_record(0, &at_a, &mut record).expect("a record");
    assert_eq!(b.engine.copy(&mut copies, &mut at_b, (0, &record)), Ok(Copied::NoPlace));
    assert_eq!(at_b.hosts, [], "the number is free");
    // A host that had its number before keeps it.
    at_b.number(2, first).expect("room");
    at_b.number(2, second).expect("room");
    assert_eq!(b.engine.copy(&mut copies, &mut at_b, (0, &record)), Ok(Copied::NoPlace));
    assert_eq!(at_b.hosts, [first, second]);
}

#[test]
fn a_host_with_an_identity_is_of_no_realm_without_numbers() {
    let (mut a, mut b) = (with_numbers(A, B), with_realms(B, A, &["red", "nat64"]));
    let mut numbers = Numbers::new(1, 9);
    let host = numbers.number(2, HostIdentity { address: 1, inner: 0 }).expect("room");
    out_of(&mut a, 2, &udp(&of_host(host), REMOTE));
    out_of(&mut b, 2, &udp(&of_host(host), REMOTE));
    for (from, to) in [(&mut a, &mut b)] {
        let mut record = Vec::new();
        from.engine.copy_record(0, &numbers, &mut record).expect("a record");
        let mut copies = to.engine.begin_copies(&origin(from)).expect("begins");
        let copied = to.engine.copy(&mut copies, &mut numbers, (0, &record));
        assert_eq!(copied, Ok(Copied::NoRealm));
        for len in 0..record.len() {
            assert!(to.engine.copy(&mut copies, &mut numbers, (0, &record[..len])).is_err());
        }
        let mut record = Vec::new();
        to.engine.copy_record(0, &NoNumbers, &mut record).expect("a record");
        let mut copies = from.engine.begin_copies(&origin(to)).expect("begins");
        let copied = from.engine.copy(&mut copies, &mut numbers, (0, &record));
        assert_eq!(copied, Ok(Copied::NoRealm));
    }
}
