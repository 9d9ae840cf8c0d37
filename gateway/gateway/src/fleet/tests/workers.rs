//! Pairs whose nodes have several workers, perhaps of other numbers.
//!
//! A worker here is an engine with its part in the team and in the pair. Packets come to the worker
//! that the partition names. Workers trade ports, and now and then one of them lags behind, stands
//! still, or has a reload later than the others.

use super::histories::run_history;
use super::*;
use crate::Settings;
use crate::link::Link;
use crate::router::settings_of_tests;
use crate::team::{Member, Partition, team};
use natgate_engine::{HostIdentity, RecordHost, StaticMapping};
use natgate_ipv6::{Share, Translator};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;

/// Numbers of workers of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts(pub(super) usize, pub(super) usize);

impl Default for Counts {
    fn default() -> Self {
        Self(1, 1)
    }
}

impl Counts {
    pub(super) fn of(self, node: &str) -> usize {
        if node == "a" { self.0 } else { self.1 }
    }

    pub(super) fn are_one(self) -> bool {
        self == Self::default()
    }
}

/// A worker beside the first one.
pub(super) struct Worker {
    pub(super) engine: Engine,
    pub(super) fleet: Fleet,
    pub(super) member: Member,
    pub(super) algs: Option<Box<Algs>>,
    pub(super) translator: Option<Translator>,
}

/// A reload that reaches the workers one after the other.
pub(super) struct Reload {
    change: Reconfiguration,
    partition: Arc<Partition>,
    /// The next worker that it reaches.
    next: usize,
}

impl Allotment {
    /// Ports of each address that several workers share: whole words of 64.
    pub(super) fn wide_ports(self) -> (u16, u16) {
        match self {
            Self::Arithmetic | Self::Words | Self::Large | Self::Whole => self.ports(),
            Self::Many | Self::Nat64 | Self::Dslite | Self::Both => (2048, 6143),
            _ => (2048, 2239),
        }
    }
}

impl Process {
    /// Starts a node with several workers.
    pub(super) fn start_team(
        settings: FleetSettings,
        config: Config,
        allotment: Allotment,
        now: u64,
        end: impl Fn() -> Box<dyn PartnerLink>,
    ) -> Self {
        let count = settings.workers;
        let mut of_team = Settings { engine: config, ..settings_of_tests() };
        of_team.ipv6 = allotment.settings6().unwrap_or(of_team.ipv6);
        let wakers = (0..count).map(|_| {
            let (waker, sleeper) = UnixStream::pair().expect("a pair");
            waker.set_nonblocking(true).expect("it can");
            drop(sleeper);
            waker
        });
        let members = team(&of_team, wakers.collect());
        let share = of_team.engine.share(count as u32);
        let links = (0..count).map(|_| end()).collect();
        let (fleets, _) = Fleet::team(settings, links, 77).expect("a file");
        let worker = |(mut member, fleet): (Member, Fleet)| {
            let (mut own, mut ipv6) = (share.clone(), of_team.ipv6.clone());
            ipv6.share = Share { place: member.number() as u16, of: count as u16 };
            let translator = Translator::new(&ipv6, &mut own, [8; 32]).expect("good settings");
            let mut engine = Engine::new(&own, [7; 32], Timestamp(now)).expect("it is right");
            member.divide(&mut engine);
            engine.join_pair();
            Worker { engine, fleet, member, algs: None, translator }
        };
        let mut workers: Vec<Worker> = members.into_iter().zip(fleets).map(worker).collect();
        let Worker { engine, fleet, member, algs, translator } = workers.remove(0);
        Self {
            engine,
            fleet,
            member: Some(member),
            others: workers,
            still: Vec::new(),
            settings: Some(of_team),
            reload: None,
            algs,
            translator,
            now,
            allotment,
            lost: 0,
            block_log: Vec::new(),
        }
    }

    /// A turn of all workers. Some lag behind if there are several.
    pub(super) fn turn_all(&mut self, now: u64, wire: &Arc<Mutex<Wire>>) {
        let lags = |wire: &Arc<Mutex<Wire>>| wire.lock().expect("no test has failed").below(4) == 0;
        if self.others.is_empty() || !lags(wire) && !self.still.contains(&0) {
            self.turn(now);
        }
        for (number, worker) in (1..).zip(&mut self.others) {
            let Worker { engine, fleet, member, algs, translator } = worker;
            if lags(wire) || self.still.contains(&number) {
                continue;
            }
            let at = Timestamp(now);
            fleet.wake(at, engine);
            while engine.advance(at) {
                take_events(engine, &mut self.block_log);
                while engine.poll_transmit(&mut [0; 1500]).is_some() {}
            }
            if let Some(translator) = translator {
                translator.sweep(engine, at);
            }
            member.trade(at, engine);
            let partition = Arc::clone(member.partition());
            let mut hosts = CopiedHosts::new(translator.as_mut(), at);
            fleet.turn(at, (&mut *engine, algs), &mut hosts, Some(&partition));
        }
        self.now = now;
    }

    pub(super) fn engines(&mut self) -> impl Iterator<Item = &mut Engine> {
        let others = self.others.iter_mut().map(|worker| &mut worker.engine);
        std::iter::once(&mut self.engine).chain(others)
    }

    pub(super) fn engine_at(&mut self, worker: usize) -> &mut Engine {
        self.engines().nth(worker).expect("there is such a worker")
    }

    /// The worker with the mappings of a host.
    pub(super) fn worker_of(&self, (realm, host): (u16, Ipv4Addr)) -> usize {
        let partition = self.member.as_ref().map(Member::partition);
        partition.map_or(0, |partition| partition.of_host(realm, host.to_bits()))
    }

    /// The worker with the hosts that have an identity, and its translator.
    pub(super) fn translator_of(&mut self, host: HostIdentity) -> (usize, Option<&mut Translator>) {
        let partition = self.member.as_ref().map(Member::partition);
        let host = RecordHost::Identity(host);
        let worker = partition.map_or(0, |partition| partition.of_record(host));
        (worker, self.parts_of(worker).1)
    }

    /// The engine of a worker, and its translator.
    pub(super) fn parts_of(&mut self, worker: usize) -> (&mut Engine, Option<&mut Translator>) {
        match self.others.get_mut(worker.wrapping_sub(1)) {
            Some(worker) => (&mut worker.engine, worker.translator.as_mut()),
            None => (&mut self.engine, self.translator.as_mut()),
        }
    }

    /// The engine with the mappings of a host.
    pub(super) fn engine_of(&mut self, host: (u16, Ipv4Addr)) -> &mut Engine {
        self.engine_at(self.worker_of(host))
    }

    /// The worker that gets a packet.
    pub(super) fn worker_of_packet(&self, (from, realm): (Side, u16), packet: &[u8]) -> usize {
        let Some(member) = &self.member else { return 0 };
        let workers = member.partition().candidates(Link::new(from, realm), packet);
        *workers.last().expect("a packet has a worker")
    }

    /// Reloads the configuration of the one worker, or of all.
    pub(super) fn reload_all(&mut self, config: &Config) {
        match self.others.is_empty() {
            true => self.reload_with(config),
            false => self.reload_team(config),
        }
    }

    /// Reloads the configuration of all workers.
    pub(super) fn reload_team(&mut self, config: &Config) {
        self.begin_reload(config);
        while self.reload_next() {}
    }

    /// Begins a reload, after the end of one that goes on.
    pub(super) fn begin_reload(&mut self, config: &Config) {
        while self.reload_next() {}
        // Numbers of realms are those of all workers.
        let numbered = self.engines().map(|engine| engine.config().clone());
        let numbered = numbered.reduce(Config::with_numbers_of).expect("there are workers");
        let change = Reconfiguration::new(&numbered, config).expect("it is right");
        let settings = self.settings.as_mut().expect("it is a team");
        // The limits in force are shares already.
        let limits = settings.engine.limits.clone();
        settings.engine = Config { limits, ..config.clone() };
        let count = self.others.len() + 1;
        let before = self.member.as_ref().map(|member| &**member.partition());
        let partition = Arc::new(Partition::of(settings, count, before));
        self.reload = Some(Reload { change, partition, next: 0 });
    }

    /// Reloads the configuration of the next worker. Returns false if a reload has reached all.
    pub(super) fn reload_next(&mut self) -> bool {
        let now = Timestamp(self.now);
        let count = self.others.len() + 1;
        let Some(Reload { change, partition, next }) = &mut self.reload else { return false };
        let (mut change, partition, number) = (change.clone(), Arc::clone(partition), *next);
        *next += 1;
        if *next == count {
            self.reload = None;
        }
        let (engine, fleet, member, translator) = match number.checked_sub(1) {
            None => {
                let member = self.member.as_mut().expect("it is a team");
                (&mut self.engine, &mut self.fleet, member, &mut self.translator)
            }
            Some(other) => {
                let Worker { engine, fleet, member, translator, .. } = &mut self.others[other];
                (engine, fleet, member, translator)
            }
        };
        prepare(engine, &mut change, now, &mut self.block_log);
        engine.reconfigure(change);
        member.set_partition(partition, engine);
        fleet.renew(engine, &CopiedHosts::new(translator.as_mut(), now));
        true
    }

    /// Each word of ports is in one engine, that of the worker that has it by the partition, or on
    /// its way to that worker. Another engine would give out the same ports, and without an engine
    /// a word would be nobody's.
    pub(super) fn check_words(&mut self) {
        let Some(member) = &self.member else { return };
        let partition = Arc::clone(member.partition());
        let board = Arc::clone(&self.fleet.board);
        let members = [member].into_iter().chain(self.others.iter().map(|worker| &worker.member));
        let gifts = members.map(Member::gifts);
        let blocks = |worker| board.waiting_blocks(worker).into_iter();
        let is_coming: Vec<Vec<(Ipv4Addr, std::ops::Range<usize>)>> = gifts
            .enumerate()
            .map(|(worker, mut gifts)| {
                gifts.extend(blocks(worker).map(|(address, words, _)| (address, words)));
                gifts
            })
            .collect();
        let (first, last) = self.allotment.wide_ports();
        let mut words: Vec<usize> = (usize::from(first / 64)..=usize::from(last / 64)).collect();
        if self.allotment == Allotment::Whole {
            // They change hands together.
            words = vec![0, 20, 1023];
        }
        let ranges = [1, 2].map(|last| self.allotment.addresses(last)).concat();
        for address in ranges.iter().flat_map(|range| range.each()) {
            for &word in &words {
                let is_its = |worker: &usize| {
                    let port = word as u16 * 64;
                    !partition.own_words(*worker, (address, port), word..word + 1).is_empty()
                };
                let giver = (0..is_coming.len()).find(is_its).expect("a word has a worker");
                let engines = self.engines().enumerate();
                let own = engines.filter(|(_, engine)| engine.owns(address, word));
                let own: Vec<usize> = own.map(|(worker, _)| worker).collect();
                let comes = |(of, words): &(Ipv4Addr, std::ops::Range<usize>)| {
                    *of == address && words.contains(&word)
                };
                let is_right = match own[..] {
                    [] => is_coming[giver].iter().any(comes),
                    [worker] => worker == giver,
                    _ => false,
                };
                assert!(is_right, "word {word} of {address} is worker {giver}'s, and has {own:?}");
            }
        }
    }

    /// Each block of whole words is one worker's: otherwise no worker gives it to a subscriber.
    pub(super) fn check_whole_blocks(&self) {
        let (Some(member), Some(size)) = (&self.member, self.allotment.block_size()) else {
            return;
        };
        let partition = member.partition();
        let (first, last) = self.allotment.wide_ports();
        let ranges = [1, 2].map(|last| self.allotment.addresses(last)).concat();
        for address in ranges.iter().flat_map(|range| range.each()) {
            for block in (first..=last).step_by(size.into()) {
                let ports = block..=block + (size - 1);
                let givers = ports.map(|port| partition.giver_of(address, port));
                let givers: BTreeSet<Option<usize>> = givers.collect();
                assert_eq!(givers.len(), 1, "the block of port {block} of {address}: {givers:?}");
            }
        }
    }

    /// Number of mappings of all workers.
    pub(super) fn count(&mut self) -> usize {
        self.engines().map(|engine| engine.mappings().count()).sum()
    }
}

impl Pair {
    /// Disturbs the workers of a node: one stands still, all go on, or a reload reaches the workers
    /// one after the other.
    pub(super) fn disturb(&mut self, choice: u64, to_a: bool, host: u8) {
        let process = self.either(to_a);
        let count = process.others.len() + 1;
        match choice {
            44 if count > 1 => process.still = vec![usize::from(host) % count],
            45 if count > 1 => {
                let mut config = process.engine.config().clone();
                config.timeouts.udp = Duration::from_secs(250 + u64::from(host));
                if process.allotment == Allotment::Realms {
                    config.realms = realms::set(usize::from(host));
                }
                process.begin_reload(&config);
                process.reload_next();
                self.run(0.3);
                // No packet comes meanwhile.
                while self.either(to_a).reload_next() {}
            }
            _ => process.still.clear(),
        }
        self.run(0.05);
    }
}

pub(super) const COUNTS: [Counts; 5] =
    [Counts(2, 2), Counts(2, 3), Counts(3, 2), Counts(1, 2), Counts(3, 1)];

/// Flows with their endpoints.
pub(super) type Flows = Vec<((u8, u16), External)>;

/// Flows of some hosts by node a, with their endpoints. A worker without ports borrows some.
pub(super) fn flows(pair: &mut Pair, hosts: std::ops::Range<u8>) -> Flows {
    let mut flows = BTreeMap::new();
    for _ in 0..3 {
        for flow in hosts.clone().map(|host| (host, 9)) {
            if let Some(external) = pair.a().send(flow) {
                flows.insert(flow, external);
            }
        }
        pair.run(1.0);
    }
    assert!(flows.len() > 30, "{:?}: {} flows", pair.workers, flows.len());
    flows.into_iter().collect()
}

/// New flows of many hosts by node b. An odd port gets an odd external one while there are some.
pub(super) fn new_flows(pair: &mut Pair, port: u16) -> BTreeSet<External> {
    let mut new = BTreeSet::new();
    for _ in 0..4 {
        new.extend((100..=250).filter_map(|host| pair.b().send((host, port))));
        pair.run(0.2);
    }
    new
}

#[test]
fn flows_of_all_workers_go_on_after_a_crash_and_come_back() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Many, workers);
        let flows = flows(&mut pair, 2..40);
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.b().status());
        assert_eq!(pair.a().count(), pair.b().count());
        pair.end_a_with_guardian();
        pair.run(1.0);
        for (flow, external) in &flows {
            assert_eq!(pair.b().send(*flow), Some(*external), "{workers:?}");
            let reached = pair.b().answer(*external, None).expect("the flow is there").1;
            assert_eq!(reached, (Ipv4Addr::new(10, 0, 0, flow.0), flow.1), "{workers:?}");
        }
        let status = pair.b().status();
        assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", false));
        pair.run(122.0);
        assert!(pair.b().status().slices[0].assigns, "{workers:?}");
        let mut externals: Vec<External> = flows.iter().map(|(_, external)| *external).collect();
        externals.sort_unstable();
        externals.dedup();
        for host in 60..160 {
            let new = pair.b().send((host, 1));
            assert!(new.is_none_or(|new| externals.binary_search(&new).is_err()), "{workers:?}");
        }
        pair.check();
        pair.restart_a();
        pair.run(5.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(2.0);
        let status = pair.a().status();
        assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", true));
        for (flow, external) in &flows {
            assert_eq!(pair.a().send(*flow), Some(*external), "{workers:?}");
        }
        pair.check();
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}");
    }
}

#[test]
fn a_move_of_all_workers_loses_no_flow_and_takes_held_ports_along() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Many, workers);
        let flows = flows(&mut pair, 2..40);
        pair.run(295.0);
        let (held, alive): (Vec<_>, Vec<_>) = flows.iter().partition(|(flow, _)| flow.0 < 20);
        for (flow, external) in &alive {
            assert_eq!(pair.a().send(*flow), Some(*external));
        }
        pair.run(10.0);
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        pair.run(1.0);
        let status = pair.b().status();
        assert!(status.slices.iter().all(|slice| slice.assigns), "{workers:?}: {status:?}");
        for host in 60..200 {
            let Some(new) = pair.b().send((host, 1)) else { continue };
            assert!(held.iter().all(|(_, one)| *one != new), "{workers:?}: {new:?} is held");
            assert!(alive.iter().all(|(_, one)| *one != new), "{workers:?}: {new:?} is in use");
        }
        for (flow, external) in &alive {
            assert_eq!(pair.b().send(*flow), Some(*external), "{workers:?}");
            assert_eq!(pair.a().send(*flow), Some(*external), "either node may serve");
        }
        pair.check();
    }
}

#[test]
fn a_node_learns_the_number_of_the_others_workers_and_a_start_may_change_it() {
    for (before, after) in [(1, 2), (2, 1), (2, 3), (3, 2)] {
        let mut pair = Pair::of(Allotment::Many, Counts(before, 2));
        let flows = flows(&mut pair, 2..40);
        pair.run(3.0);
        pair.end_a_with_guardian();
        pair.workers = Counts(after, 2);
        pair.restart_a();
        pair.run(5.0);
        assert!(pair.a().status().slices[0].is_complete, "{before}, {after}");
        assert_eq!((pair.a().others.len() + 1, pair.a().count()), (after, pair.b().count()));
        pair.run(122.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(2.0);
        assert!(pair.a().status().slices[0].assigns, "{before}, {after}");
        for (flow, external) in &flows {
            assert_eq!(pair.a().send(*flow), Some(*external), "{before}, {after}");
        }
        pair.check();
    }
}

/// Random histories, as with one worker.
#[test]
fn no_port_is_two_subscribers_in_any_history_of_several_workers() {
    let number = std::env::var("NATGATE_FLEET_HISTORIES").ok();
    let number: u64 = number.map_or(300, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let history = || {
            let all = [
                Allotment::Random,
                Allotment::Arithmetic,
                Allotment::Realms,
                Allotment::Nat64,
                Allotment::Dslite,
                Allotment::Both,
                Allotment::Services,
                Allotment::Blocks,
                Allotment::Words,
            ];
            let workers = COUNTS[seed as usize % COUNTS.len()];
            let allotment = all[seed as usize / COUNTS.len() % all.len()];
            run_history(Pair::of(allotment, workers), (seed, seed / 7 % 4));
        };
        assert!(std::panic::catch_unwind(history).is_ok(), "seed {seed}");
    }
}

/// A static mapping of the first address, of an internal port with the same number.
pub(super) fn static_mapping((host, port): (u8, u16)) -> StaticMapping {
    StaticMapping {
        external: (A1, Some(port)),
        internal: (Ipv4Addr::new(10, 0, 0, host), Some(port)),
        protocol: Some(protocol::UDP),
        ..StaticMapping::default()
    }
}

/// A reload takes static mappings away at both nodes, whose ports are given out by other workers
/// than those of their hosts.
#[test]
fn the_port_of_a_static_mapping_that_reloads_take_away_is_nobodys_at_the_partner() {
    for workers in [Counts(1, 2), Counts(2, 2), Counts(2, 3), Counts(3, 2)] {
        let mut pair = Pair::of(Allotment::Random, workers);
        pair.run(1.0);
        let of_host = |host: u8| (host, 2060 + u16::from(host) * 5);
        let statics: Vec<_> = (2..26).map(|host| static_mapping(of_host(host))).collect();
        for to_a in [true, false] {
            let process = pair.either(to_a);
            let config = Config { statics: statics.clone(), ..process.engine.config().clone() };
            process.reload_all(&config);
        }
        pair.run(1.0);
        for host in 2..26 {
            let flow = of_host(host);
            assert_eq!(pair.a().send(flow), Some((A1, flow.1)), "{workers:?}");
        }
        pair.run(3.0);
        for to_a in [false, true] {
            let process = pair.either(to_a);
            let without = Config { statics: Vec::new(), ..process.engine.config().clone() };
            process.reload_all(&without);
            pair.run(1.0);
            pair.wire().is_cut = true;
        }
        pair.run(300.0);
        let mut new = BTreeSet::new();
        for port in 1..3 {
            for _ in 0..4 {
                new.extend((100..=250).filter_map(|host| pair.a().send((host, port))));
                pair.run(0.2);
            }
        }
        let at_partner = pair.b().hosts();
        for external in new {
            let host = at_partner.get(&(protocol::UDP, external));
            assert!(host.is_none(), "{workers:?}: {external:?} is of {host:?} at the partner");
        }
        pair.check();
    }
}
