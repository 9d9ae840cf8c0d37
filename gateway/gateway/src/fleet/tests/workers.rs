//! Pairs whose nodes have several workers, perhaps of other numbers.
//!
//! A worker here is an engine with its part in the team and in the pair. Packets come to the worker
//! that the partition names. Workers trade ports, and now and then one of them lags behind.

use super::*;
use crate::Settings;
use crate::link::Link;
use crate::router::settings_of_tests;
use crate::team::{Member, Partition, team};
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
    engine: Engine,
    fleet: Fleet,
    member: Member,
}

impl Allotment {
    /// Ports of each address that several workers share: whole words of 64.
    pub(super) fn wide_ports(self) -> (u16, u16) {
        match self {
            Self::Arithmetic => self.ports(),
            Self::Many => (2048, 6143),
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
        let of_team = Settings { engine: config, ..settings_of_tests() };
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
            let mut engine = Engine::new(&share, [7; 32], Timestamp(now)).expect("it is right");
            member.divide(&mut engine);
            engine.join_pair();
            Worker { engine, fleet, member }
        };
        let mut workers = members.into_iter().zip(fleets).map(worker);
        let Worker { engine, fleet, member } = workers.next().expect("there are several");
        let (member, others) = (Some(member), workers.collect());
        let (settings, translator) = (Some(of_team), None);
        Self { engine, fleet, member, others, settings, translator, now, allotment, lost: 0 }
    }

    /// A turn of all workers. Some lag behind if there are several.
    pub(super) fn turn_all(&mut self, now: u64, wire: &Arc<Mutex<Wire>>) {
        let lags = |wire: &Arc<Mutex<Wire>>| wire.lock().expect("no test has failed").below(4) == 0;
        if self.others.is_empty() || !lags(wire) {
            self.turn(now);
        }
        for Worker { engine, fleet, member } in &mut self.others {
            if lags(wire) {
                continue;
            }
            let at = Timestamp(now);
            fleet.wake(at, engine);
            while engine.advance(at) {
                while engine.poll_event().is_some() {}
                while engine.poll_transmit(&mut [0; 1500]).is_some() {}
            }
            member.trade(at, engine);
            let partition = Arc::clone(member.partition());
            fleet.turn(at, engine, &mut CopiedHosts::new(None, at), Some(&partition));
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

    /// The engine with the mappings of a host.
    pub(super) fn engine_of(&mut self, (realm, host): (u16, Ipv4Addr)) -> &mut Engine {
        let partition = self.member.as_ref().map(Member::partition);
        let worker = partition.map_or(0, |partition| partition.of_host(realm, host.to_bits()));
        self.engine_at(worker)
    }

    /// The worker that gets a packet.
    pub(super) fn worker_of_packet(&self, (from, realm): (Side, u16), packet: &[u8]) -> usize {
        let Some(member) = &self.member else { return 0 };
        let workers = member.partition().candidates(Link::new(from, realm), packet);
        *workers.last().expect("a packet has a worker")
    }

    /// Reloads the configuration of all workers.
    pub(super) fn reload_team(&mut self, config: &Config) {
        let settings = self.settings.as_mut().expect("it is a team");
        // The limits in force are shares already.
        let limits = settings.engine.limits.clone();
        settings.engine = Config { limits, ..config.clone() };
        let count = self.others.len() + 1;
        let member = self.member.as_mut().expect("it is a team");
        let partition = Partition::of(settings, count, Some(member.partition()));
        let partition = Arc::new(partition);
        let now = Timestamp(self.now);
        let first = (&mut self.engine, &mut self.fleet, member);
        let others = self.others.iter_mut();
        let others = others.map(|Worker { engine, fleet, member }| (engine, fleet, member));
        for (engine, fleet, member) in std::iter::once(first).chain(others) {
            let mut change = Reconfiguration::new(engine.config(), config).expect("it is right");
            // The last reload may not be done yet.
            let mut tries = 0;
            while engine.prepare_configuration(&mut change).is_err() {
                engine.advance(now);
                while engine.poll_event().is_some() {}
                tries += 1;
                assert!(tries < 100_000, "a reload ends");
            }
            while !engine.is_prepared() {
                engine.advance(now);
                while engine.poll_event().is_some() {}
            }
            engine.reconfigure(change);
            member.set_partition(Arc::clone(&partition), engine);
            fleet.renew(engine, &CopiedHosts::new(None, now));
        }
    }

    /// Number of mappings of all workers.
    fn count(&mut self) -> usize {
        self.engines().map(|engine| engine.mappings().count()).sum()
    }
}

const COUNTS: [Counts; 5] = [Counts(2, 2), Counts(2, 3), Counts(3, 2), Counts(1, 2), Counts(3, 1)];

/// Flows of some hosts by node a, with their endpoints. A worker without ports borrows some.
fn flows(pair: &mut Pair, hosts: std::ops::Range<u8>) -> Vec<((u8, u16), External)> {
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
fn nodes_that_count_workers_in_other_ways_share_nothing() {
    let mut pair = Pair::start();
    pair.b = None;
    pair.workers = Counts(1, 2);
    let settings = (pair.folder.path(), pair.allotment, pair.workers);
    pair.b = Some(Process::start("b", settings, &pair.wire, pair.now));
    pair.run(2.0);
    assert!(pair.a().status().refused_views > 0);
    assert!(pair.b().status().slices.iter().all(|slice| slice.owner.is_none()));
}

/// Random histories, as with one worker.
#[test]
fn no_port_is_two_subscribers_in_any_history_of_several_workers() {
    let number = std::env::var("NATGATE_FLEET_HISTORIES").ok();
    let number: u64 = number.map_or(60, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let history = || {
            let allotment = [Allotment::Random, Allotment::Arithmetic, Allotment::Realms];
            let workers = COUNTS[seed as usize % COUNTS.len()];
            let allotment = allotment[seed as usize / COUNTS.len() % allotment.len()];
            run_history(Pair::of(allotment, workers), (seed, seed / 15 % 4));
        };
        assert!(std::panic::catch_unwind(history).is_ok(), "seed {seed}");
    }
}
