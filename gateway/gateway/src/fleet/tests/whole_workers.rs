//! Whole addresses in a pair whose nodes have several workers: an address goes to the worker of its
//! host, with all of its ports and with protocols without ports.

use super::histories::run_history;
use super::portless::PEERS;
use super::workers::Counts;
use super::*;
use natgate_engine::StaticMapping;
use std::collections::BTreeSet;

/// Numbers of workers of the nodes.
const COUNTS: [Counts; 5] = [Counts(1, 2), Counts(2, 1), Counts(2, 2), Counts(4, 1), Counts(1, 4)];

/// Ports from 1024 on of an address, which engines count.
const COUNTED: u32 = 65_535 - 1023;

impl Process {
    /// The hosts with mappings of each address, by realm and address.
    fn users_of_addresses(&mut self) -> BTreeMap<Ipv4Addr, BTreeSet<(u16, Ipv4Addr)>> {
        let mut users: BTreeMap<Ipv4Addr, BTreeSet<_>> = BTreeMap::new();
        for mapping in self.engines().flat_map(|engine| engine.mappings().collect::<Vec<_>>()) {
            let id = mapping.id;
            users.entry(id.external.address).or_default().insert((id.realm, id.internal.address));
        }
        users
    }

    /// The worker that gives out an address, if one gives out all of it.
    fn giver(&self, address: Ipv4Addr) -> Option<usize> {
        let Some(member) = &self.member else { return Some(0) };
        let givers: BTreeSet<Option<usize>> =
            (0..1024).map(|word| member.partition().giver_of(address, word * WORD)).collect();
        assert_eq!(givers.len(), 1, "{address} is of several workers: {givers:?}");
        *givers.first().expect("there is one")
    }

    /// The worker of a host.
    fn worker_of_host(&self, host: u8) -> usize {
        self.worker_of((0, Ipv4Addr::new(10, 0, 0, host)))
    }

    /// Reloads the configuration with a static mapping of a whole address if the number is even, or
    /// without it. Its host has no packets.
    pub(super) fn reload_statics(&mut self, number: u8) {
        let statics = if number.is_multiple_of(2) { vec![static_of(A1, 250)] } else { Vec::new() };
        let config = Config { statics, ..self.engine.config().clone() };
        self.reload_all(&config);
    }

    /// True if a worker has a static mapping of an address.
    pub(super) fn has_static(&self, address: Ipv4Addr) -> bool {
        let others = self.others.iter().map(|worker| &worker.engine);
        let mut engines = std::iter::once(&self.engine).chain(others);
        engines.any(|engine| {
            let mut statics = engine.config().statics.iter();
            statics.any(|one| one.external.0 == address)
        })
    }

    /// Number of addresses that workers can give to new hosts, or that are on their way.
    fn free_addresses(&mut self) -> u32 {
        let members = self.member.iter().chain(self.others.iter().map(|worker| &worker.member));
        let gifts: usize = members.map(|member| member.gifts().len()).sum();
        let free: u32 = self.engines().map(|engine| engine.free_ports(0, false) / COUNTED).sum();
        free + gifts as u32
    }
}

impl Pair {
    /// Each whole address has one host, at both nodes together.
    pub(super) fn check_addresses(&mut self) {
        if self.allotment != Allotment::Whole {
            return;
        }
        let mut users: BTreeMap<Ipv4Addr, BTreeSet<_>> = BTreeMap::new();
        for process in [&mut self.a, &mut self.b].into_iter().flatten() {
            for (address, hosts) in process.users_of_addresses() {
                users.entry(address).or_default().extend(hosts);
            }
        }
        let several = users.iter().find(|(_, hosts)| hosts.len() > 1);
        assert!(several.is_none(), "an address of several hosts: {several:?}");
    }

    /// No address is lost: when all mappings have ended, and their hold-down is over, each address
    /// can be given to a host, by either node.
    pub(super) fn check_free_addresses(&mut self) {
        {
            let mut wire = self.wire();
            (wire.faults, wire.is_cut) = (0, false);
        }
        if self.a.is_none() {
            self.restart_a();
        }
        for process in [&mut self.a, &mut self.b].into_iter().flatten() {
            process.still.clear();
            while process.reload_next() {}
            process.reload_statics(1);
        }
        self.run(5.0);
        for _ in 0..2 {
            for host in 2..40 {
                self.a().clear(host);
                self.b().clear(host);
            }
            self.run(5.0);
        }
        self.run(260.0);
        self.check_free_addresses_of_owners();
        for (from, to) in [("b", "a"), ("a", "b")] {
            for slice in 0..2 {
                // A node that does not own the slice refuses: the slice is there already.
                drop(self.ask(from, FleetRequest::Move(slice, to.into())));
            }
            self.run(260.0);
            assert!(self.either(to == "a").status().slices.iter().all(|slice| slice.assigns));
            self.check_free_addresses_of_owners();
        }
    }

    /// The addresses of all slices that a node has are free there.
    fn check_free_addresses_of_owners(&mut self) {
        for process in [&mut self.a, &mut self.b].into_iter().flatten() {
            assert_eq!(process.count(), 0, "mappings are left");
            let status = process.status();
            let assigns = status.slices.iter().filter(|slice| slice.assigns).count() as u32;
            let free = process.free_addresses();
            assert_eq!(free, 3 * assigns, "free addresses, of {assigns} slices");
            process.allotment.all_addresses().iter().for_each(|address| {
                process.giver(*address);
            });
        }
        self.check_words();
    }
}

/// Flows of some hosts by node a, by host: all of its addresses have a host. A worker without an
/// address borrows one.
fn taken(pair: &mut Pair) -> BTreeMap<u8, External> {
    let mut flows = BTreeMap::new();
    for _ in 0..20 {
        for host in 5..13 {
            flows.extend(pair.a().send((host, 9)).map(|external| (host, external)));
        }
        pair.run(0.2);
    }
    let addresses: BTreeSet<Ipv4Addr> = flows.values().map(|(address, _)| *address).collect();
    assert_eq!((flows.len(), addresses.len()), (3, 3), "{:?}: {flows:?}", pair.workers);
    flows
}

#[test]
fn hosts_keep_their_addresses_after_a_crash_and_back() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Whole, workers);
        let flows = taken(&mut pair);
        let has_tunnel = |pair: &mut Pair, to_a: bool, (host, flow): (u8, External)| {
            let peer = PEERS[usize::from(host % 3)];
            assert_eq!(pair.either(to_a).tunnel(host, peer), Some(flow.0), "{workers:?}");
        };
        for (host, flow) in &flows {
            has_tunnel(&mut pair, true, (*host, *flow));
        }
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.b().status());
        pair.end_a_with_guardian();
        pair.run(1.0);
        for (host, flow) in &flows {
            let inside = Ipv4Addr::new(10, 0, 0, *host);
            let reached = pair.b().answer(*flow, None).map(|(_, to)| to);
            assert_eq!(reached, Some((inside, 9)), "{workers:?}: by the copy");
            let reached = pair.b().tunnel_back(flow.0, PEERS[usize::from(host % 3)]);
            assert_eq!(reached.map(|(_, to)| to), Some(inside), "{workers:?}: by the copy");
            assert_eq!(pair.b().send((*host, 9)), Some(*flow), "{workers:?}");
        }
        pair.run(130.0);
        assert!(pair.b().status().slices[0].assigns, "{workers:?}");
        for (host, flow) in &flows {
            let new = pair.b().send((*host, 10));
            assert_eq!(new, Some((flow.0, 10)), "{workers:?}: the address is the host's");
            assert_eq!(pair.b().giver(flow.0), Some(pair.b().worker_of_host(*host)));
            has_tunnel(&mut pair, false, (*host, *flow));
        }
        // Others get no address of these.
        for host in 20..30 {
            let new = pair.b().send((host, 9));
            assert!(new.is_none_or(|new| !flows.values().any(|flow| flow.0 == new.0)));
        }
        pair.check();
        pair.restart_a();
        pair.run(5.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(2.0);
        assert_eq!(pair.a().status().slices[0].role, "owner", "{workers:?}");
        for (host, flow) in &flows {
            let new = pair.a().send((*host, 11));
            assert_eq!(new, Some((flow.0, 11)), "{workers:?}: the address is the host's");
            has_tunnel(&mut pair, true, (*host, *flow));
        }
        pair.check();
        pair.check_free_addresses();
    }
}

/// The only mapping of an address has no port.
#[test]
fn an_address_of_a_tunnel_alone_goes_to_the_worker_of_its_host() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Whole, workers);
        let mut hosts = BTreeMap::new();
        for _ in 0..20 {
            for host in 5..13 {
                hosts.extend(pair.a().tunnel(host, PEERS[0]).map(|address| (host, address)));
            }
            pair.run(0.2);
        }
        assert_eq!(hosts.len(), 3, "{workers:?}: {hosts:?}");
        pair.run(3.0);
        pair.end_a_with_guardian();
        pair.run(130.0);
        for host in 20..30 {
            let new = pair.b().tunnel(host, PEERS[0]);
            assert!(new.is_none_or(|new| !hosts.values().any(|of| *of == new)), "{workers:?}");
        }
        for (host, address) in &hosts {
            assert_eq!(pair.b().tunnel(*host, PEERS[1]), Some(*address), "{workers:?}");
            assert_eq!(pair.b().send((*host, 9)), Some((*address, 9)), "{workers:?}");
            assert_eq!(pair.b().giver(*address), Some(pair.b().worker_of_host(*host)));
        }
        pair.check();
    }
}

/// The partner has never seen the mappings: they were TCP connections that nobody answered.
#[test]
fn an_address_in_its_hold_down_moves() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Whole, workers);
        let mut addresses = BTreeSet::new();
        for _ in 0..20 {
            let sent = (5..13).filter_map(|host| pair.a().send_segment((host, 9), SYN));
            addresses.extend(sent.map(|(address, _)| address).collect::<Vec<_>>());
            pair.run(0.2);
        }
        assert_eq!(addresses.len(), 3);
        pair.run(256.0);
        assert_eq!(pair.a().count(), 0);
        pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
        pair.run(2.0);
        assert!(pair.b().status().slices[0].assigns, "{workers:?}");
        let sent = |pair: &mut Pair| -> BTreeSet<Ipv4Addr> {
            let mut sent = BTreeSet::new();
            for _ in 0..20 {
                for host in 20..40 {
                    sent.extend(pair.b().send((host, 9)).map(|(address, _)| address));
                }
                pair.run(0.2);
            }
            sent
        };
        let new = sent(&mut pair);
        assert!(new.is_disjoint(&addresses), "{workers:?}: {new:?}");
        assert_eq!(new.len(), 3, "{workers:?}: the addresses of b");
        pair.run(130.0);
        assert_eq!(sent(&mut pair).len(), 6, "{workers:?}: the hold-down is over");
        pair.check();
    }
}

#[test]
fn an_address_is_nobody_elses_while_the_partner_has_a_copy() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Whole, workers);
        let flows = taken(&mut pair);
        pair.run(3.0);
        pair.wire().is_cut = true;
        pair.run(1_000.0);
        let others = |pair: &mut Pair| (20..40).any(|host| pair.a().send((host, 9)).is_some());
        assert_eq!(pair.a().count(), 0);
        assert!(!others(&mut pair), "{workers:?}: b forwards the former hosts' packets");
        for (host, flow) in &flows {
            assert_eq!(pair.b().send((*host, 9)), Some(*flow), "{workers:?}");
        }
        pair.wire().is_cut = false;
        pair.run(5.0);
        assert!(!others(&mut pair), "{workers:?}: the hold-down begins");
        pair.run(125.0);
        pair.check_free_addresses();
    }
}

/// A partner with several workers releases an address with its last copy, and the log of each node
/// names one host of an address at a time. Operators remove copies, workers stand still, lag and
/// reload. A static mapping of an address comes and goes, at one node after the other. At the end
/// all addresses can be given to hosts.
#[test]
fn no_address_is_two_hosts_in_any_history() {
    let number = std::env::var("NATGATE_FLEET_HISTORIES").ok();
    let number: u64 = number.map_or(60, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let workers = COUNTS[seed as usize % COUNTS.len()];
        let history = || {
            run_history(Pair::of(Allotment::Whole, workers), (seed, seed / 5 % 4));
        };
        assert!(std::panic::catch_unwind(history).is_ok(), "seed {seed}");
    }
}

/// New hosts that get addresses of node b, which has all slices.
fn new_addresses(pair: &mut Pair) -> BTreeSet<Ipv4Addr> {
    let mut addresses = BTreeSet::new();
    for _ in 0..20 {
        for host in 100..140 {
            addresses.extend(pair.b().send((host, 9)).map(|(address, _)| address));
        }
        pair.run(0.2);
    }
    addresses
}

/// A static mapping of a whole address to a host.
fn static_of(address: Ipv4Addr, host: u8) -> StaticMapping {
    StaticMapping {
        external: (address, None),
        internal: (Ipv4Addr::new(10, 0, 0, host), None),
        protocol: None,
        ..StaticMapping::default()
    }
}

#[test]
fn the_address_of_a_static_mapping_is_its_hosts_until_a_reload_takes_it_away() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Whole, workers);
        let statics = vec![static_of(A1, 9)];
        for to_a in [true, false] {
            let process = pair.either(to_a);
            let config = Config { statics: statics.clone(), ..process.engine.config().clone() };
            process.reload_all(&config);
        }
        pair.run(1.0);
        assert_eq!(pair.a().send((9, 7)), Some((A1, 7)), "{workers:?}");
        assert_eq!(pair.a().tunnel(9, PEERS[0]), Some(A1), "{workers:?}");
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}");
        pair.end_a_with_guardian();
        pair.run(130.0);
        assert_eq!(pair.b().send((9, 7)), Some((A1, 7)), "{workers:?}");
        assert_eq!(pair.b().tunnel(9, PEERS[0]), Some(A1), "{workers:?}");
        let new = new_addresses(&mut pair);
        assert!(new.len() == 5 && !new.contains(&A1), "{workers:?}: {new:?}");
        let without = Config { statics: Vec::new(), ..pair.b().engine.config().clone() };
        pair.b().reload_all(&without);
        pair.run(1.0);
        assert!(new_addresses(&mut pair).contains(&A1), "{workers:?}: it is free");
        pair.check_words();
    }
}

/// A reload takes a static mapping of a whole address away at one node after the other. In between
/// a host gets the address, and has a copy at the node that still has the static mapping.
#[test]
fn an_address_that_one_node_has_taken_from_a_static_mapping_is_its_hosts_at_both() {
    for workers in COUNTS.into_iter().filter(|workers| workers.1 > 1) {
        let mut pair = Pair::of(Allotment::Whole, workers);
        for to_a in [true, false] {
            pair.either(to_a).reload_statics(2);
        }
        pair.run(1.0);
        pair.a().reload_statics(1);
        pair.run(1.0);
        // The worker of the host at b does not give the address out.
        let giver = pair.b().giver(A1);
        let hosts: Vec<u8> =
            (100..140).filter(|host| Some(pair.b().worker_of_host(*host)) != giver).collect();
        let mut flows = BTreeMap::new();
        for _ in 0..20 {
            for host in &hosts {
                flows.extend(pair.a().send((*host, 9)).map(|external| (*host, external)));
            }
            pair.run(0.2);
        }
        let of_address =
            flows.iter().find(|(_, flow)| flow.0 == A1).map(|(host, flow)| (*host, *flow));
        let (host, flow) = of_address.expect("a host has the address");
        pair.run(3.0);
        pair.b().reload_statics(1);
        pair.run(3.0);
        pair.end_a_with_guardian();
        pair.run(1.0);
        let inside = Ipv4Addr::new(10, 0, 0, host);
        let reached = pair.b().answer(flow, None).map(|(_, to)| to);
        assert_eq!(reached, Some((inside, 9)), "{workers:?}: by the copy");
        pair.run(130.0);
        for host in 20..60 {
            let new = pair.b().send((host, 9));
            assert!(new.is_none_or(|new| new.0 != A1), "{workers:?}: it is another host's");
        }
        assert_eq!(pair.b().send((host, 10)), Some((A1, 10)), "{workers:?}");
        pair.check();
    }
}
