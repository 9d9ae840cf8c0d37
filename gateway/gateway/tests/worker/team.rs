//! Several workers that form one gateway: whichever worker a frame comes to, the result is that of
//! a single worker.

use crate::world::*;
use natgate_engine::{
    AddressRange, Allocation, BlockConfig, Direction, DropReason, Outcome, StaticMapping, Timestamp,
};
use natgate_gateway::{CommandError, Commander, Prepared, Settings, Worker, team, team_commands};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::arp;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::{GRE, ICMP, UDP};
use natgate_wire::{Ipv4, Udp, checksum};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Workers between two cables, and hosts that answer ARP on them.
pub(crate) struct Team {
    pub(crate) workers: Vec<Worker>,
    pub(crate) inside: Wire,
    outside: Wire,
    pub(crate) now: Timestamp,
    observer: RecordingObserver,
    pub(crate) commander: Commander,
    wakes: Vec<UnixStream>,
    /// Devices of workers that will join, alternately inside and outside.
    spare: Vec<Box<dyn Device>>,
}

/// Most workers of a team here.
const MOST: usize = 6;

/// Packets that came out since the last look.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) inside: Vec<Vec<u8>>,
    pub(crate) outside: Vec<Vec<u8>>,
}

/// Pool addresses from 203.0.113.1 on.
pub(crate) fn with_pool(addresses: u8, ports: (u16, u16)) -> Settings {
    let mut settings = settings();
    let last = Ipv4Addr::new(203, 0, 113, addresses);
    settings.engine.pools[0].addresses = vec![AddressRange { first: EXTERNAL, last }];
    settings.engine.pools[0].ports = ports;
    settings
}

impl Team {
    /// Creates a team; frames come to one worker after the other.
    pub(crate) fn new(settings: &Settings, count: usize) -> Self {
        let turn = Arc::new(AtomicUsize::new(0));
        Self::with(settings, count, move || turn.fetch_add(1, Ordering::Relaxed) % count)
    }

    /// Creates a team; frames come to the worker that `to` returns.
    pub(crate) fn with(
        settings: &Settings,
        count: usize,
        to: impl Fn() -> usize + Clone + Send + Sync + 'static,
    ) -> Self {
        let also_to = to.clone();
        let (inside_devices, inside) = memory::group("in", INSIDE, MOST, move |_| to());
        let (outside_devices, outside) = memory::group("out", OUTSIDE, MOST, move |_| also_to());
        let now = Timestamp(1_000_000_000_000);
        let pairs = || -> (Vec<UnixStream>, Vec<UnixStream>) {
            (0..count).map(|_| UnixStream::pair().expect("a pair of sockets")).unzip()
        };
        let (mut wakes, wakers) = pairs();
        let (more, others) = pairs();
        wakes.extend(more);
        let (commander, commands) = team_commands(others);
        let mut devices = inside_devices.into_iter().zip(outside_devices).map(
            |(inside, outside)| -> [Box<dyn Device>; 2] { [Box::new(inside), Box::new(outside)] },
        );
        let mut workers = Vec::new();
        if count == 1 {
            let devices = devices.next().expect("a worker's devices");
            let worker = Worker::new(settings, [1; 32], devices, now);
            workers.push(worker.expect("the settings are right"));
        } else {
            for (member, devices) in team(settings, wakers).into_iter().zip(devices.by_ref()) {
                let seed = [member.number() as u8 + 1; 32];
                let worker = Worker::of_team(settings, seed, devices, member, now);
                workers.push(worker.expect("the settings are right"));
            }
        }
        workers.iter_mut().zip(commands).for_each(|(worker, commands)| worker.obey(commands));
        let (observer, spare) = (RecordingObserver::default(), devices.flatten().collect());
        Self { workers, inside, outside, now, observer, commander, wakes, spare }
    }

    /// Adds a worker.
    pub(crate) fn grow(&mut self, settings: &Settings) {
        let pairs = [(); 3].map(|()| UnixStream::pair().expect("a pair of sockets"));
        let [(a, first), (b, waker), (c, wake)] = pairs;
        self.wakes.extend([a, b, c]);
        let devices: Vec<Box<dyn Device>> = self.spare.drain(..2).collect();
        let (commander, settings, now) = (self.commander.clone(), settings.clone(), self.now);
        let (sender, receiver) = std::sync::mpsc::channel();
        let joins = std::thread::spawn(move || {
            commander.join(&settings, [first, waker, wake], |member, commands| {
                let seed = [member.number() as u8 + 1; 32];
                let worker = Worker::of_team(&settings, seed, devices, member, now);
                let mut worker = worker.expect("the settings are right");
                worker.obey(commands);
                sender.send(worker).expect("somebody waits for it");
                Ok::<(), CommandError>(())
            })
        });
        while !joins.is_finished() {
            self.settle();
        }
        joins.join().expect("it ends").expect("it joins");
        self.workers.extend(receiver);
    }

    /// Gives each worker one turn.
    pub(crate) fn turn(&mut self) {
        for worker in &mut self.workers {
            worker.turn(self.now, &mut self.observer);
        }
    }

    /// Lets all workers take turns until nothing is left to do. Hosts answer ARP.
    pub(crate) fn settle(&mut self) -> Out {
        let mut out = Out::default();
        for _ in 0..12 {
            for worker in &mut self.workers {
                worker.turn(self.now, &mut self.observer);
            }
            let sides =
                [(&self.inside, HOST, &mut out.inside), (&self.outside, SERVER, &mut out.outside)];
            for (wire, host, packets) in sides {
                while let Some(frame) = wire.take() {
                    let (_, _, kind) = arp::read_ethernet(&frame).expect("a frame");
                    if kind == ethertype::IPV4 {
                        packets.push(frame[ETHERNET_LEN..].to_vec());
                    } else if arp::Arp::new_checked(&frame[ETHERNET_LEN..])
                        .is_some_and(|message| message.repr().operation == arp::Operation::Request)
                    {
                        wire.send(&answer(&frame, host));
                    }
                }
            }
        }
        out
    }

    pub(crate) fn send_inside(&mut self, packet: &[u8]) -> Out {
        self.inside.send(&to_inside(packet));
        self.settle()
    }

    pub(crate) fn send_outside(&mut self, packet: &[u8]) -> Out {
        self.outside.send(&to_outside(packet));
        self.settle()
    }

    pub(crate) fn pass(&mut self, time: Duration) -> Out {
        self.now = self.now.plus(time);
        self.settle()
    }

    fn packets(&mut self, direction: Direction, outcome: Outcome) -> u64 {
        let now = self.now;
        let of = |worker: &mut Worker| {
            worker.status(now).counters.packets[direction as usize][outcome as usize]
        };
        self.workers.iter_mut().map(of).sum()
    }

    /// Checks that every packet that was handed over has been taken.
    pub(crate) fn nothing_is_under_way(&self) {
        let loads: Vec<_> = self.workers.iter().map(|worker| worker.load().now()).collect();
        let handed_over: u64 = loads.iter().map(|load| load.handed_over).sum();
        assert_eq!(handed_over, loads.iter().map(|load| load.taken_over).sum());
        assert!(handed_over > 0, "workers had something to do with each other");
    }

    fn drops(&mut self, reason: DropReason) -> u64 {
        let now = self.now;
        self.workers
            .iter_mut()
            .map(|worker| worker.status(now).counters.drops[reason as usize])
            .sum()
    }

    fn handed_over(&self) -> u64 {
        self.workers.iter().map(|worker| worker.load().now().handed_over).sum()
    }

    /// Mappings of each worker: internal to external endpoint.
    pub(crate) fn mappings(&mut self) -> Vec<HashMap<(Ipv4Addr, u16), (Ipv4Addr, u16)>> {
        let now = self.now;
        let of = |worker: &mut Worker| {
            let status = worker.status(now);
            let ends = status.engine.mappings().map(|info| {
                let (from, to) = (info.id.internal, info.id.external);
                ((from.address, from.port), (to.address, to.port))
            });
            ends.collect()
        };
        self.workers.iter_mut().map(of).collect()
    }
}

/// The `number`th subscriber.
pub(crate) fn subscriber(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 1, 0).to_bits() + number)
}

fn one(mut packets: Vec<Vec<u8>>) -> Vec<u8> {
    assert_eq!(packets.len(), 1, "{packets:?}");
    packets.remove(0)
}

fn source(packet: &[u8]) -> (Ipv4Addr, u16) {
    let view = view(packet);
    let port = Udp::new_checked(view.payload()).expect("UDP").source_port();
    (Ipv4Addr::from_bits(view.source()), port)
}

fn destination(packet: &[u8]) -> (Ipv4Addr, u16) {
    let view = view(packet);
    let port = Udp::new_checked(view.payload()).expect("UDP").destination_port();
    (Ipv4Addr::from_bits(view.destination()), port)
}

/// Two subscribers of different workers, each with a mapping of port 4000: address and external
/// endpoint.
fn two_of_different_workers(team: &mut Team) -> [(Ipv4Addr, (Ipv4Addr, u16)); 2] {
    let mut found = Vec::new();
    for worker in 0..2 {
        for number in 0.. {
            let host = subscriber(number);
            let out = team.send_inside(&udp((host, 4000), (REMOTE, 53), b"hello"));
            assert_eq!(out.outside.len(), 1);
            if team.mappings()[worker].contains_key(&(host, 4000)) {
                found.push((host, source(&out.outside[0])));
                break;
            }
        }
    }
    found.try_into().expect("two of them")
}

#[test]
fn whichever_worker_a_frame_comes_to_flows_go_both_ways() {
    for (workers, addresses) in [(2, 2), (2, 1), (3, 1), (4, 9)] {
        let mut team = Team::new(&with_pool(addresses, (1024, 65535)), workers);
        let mut externals = HashSet::new();
        for number in 0..40 {
            let host = subscriber(number);
            let out = team.send_inside(&udp((host, 4000), (REMOTE, 53), b"hello"));
            let external = source(&one(out.outside));
            assert!(externals.insert(external), "{external:?} is two subscribers'");
            for port in [54, 55] {
                let out = team.send_inside(&udp((host, 4000), (REMOTE, port), b"hello"));
                assert_eq!(source(&one(out.outside)), external, "the mapping is there for all");
                let out = team.send_outside(&udp((REMOTE, port), external, b"answer"));
                let packet = one(out.inside);
                assert_eq!(destination(&packet), (host, 4000));
                assert!(udp_valid(&packet));
            }
        }
        let mappings = team.mappings();
        assert_eq!(mappings.iter().map(HashMap::len).sum::<usize>(), 40);
        assert!(mappings.iter().all(|of_one| !of_one.is_empty()), "all have something to do");
        assert_eq!(team.packets(Direction::Outbound, Outcome::Forwarded), 120);
        assert_eq!(team.packets(Direction::Inbound, Outcome::Forwarded), 80);
        assert!(team.handed_over() > 0);
    }
}

#[test]
fn subscribers_of_different_workers_reach_each_other() {
    let mut team = Team::new(&with_pool(2, (1024, 65535)), 2);
    let [(a, external_a), (b, external_b)] = two_of_different_workers(&mut team);
    let before = team.packets(Direction::Hairpin, Outcome::Forwarded);
    let packet = one(team.send_inside(&udp((a, 4000), external_b, b"to b")).inside);
    assert_eq!((source(&packet), destination(&packet)), (external_a, (b, 4000)));
    assert!(udp_valid(&packet));
    assert_eq!(view(&packet).ttl(), 63, "that is one hop");
    let packet = one(team.send_inside(&udp((b, 4000), external_a, b"to a")).inside);
    assert_eq!((source(&packet), destination(&packet)), (external_b, (a, 4000)));
    assert_eq!(team.packets(Direction::Hairpin, Outcome::Forwarded), before + 2);
    // A packet to a subscriber of the same worker; nothing leaves outside.
    let out = team.send_inside(&udp((a, 4000), external_a, b"to itself"));
    assert_eq!(destination(&one(out.inside)), (a, 4000));
    assert!(out.outside.is_empty());
    // An endpoint without a mapping.
    let nobody = (external_b.0, external_b.1 ^ 1);
    assert!(team.send_inside(&udp((a, 4000), nobody, b"?")).inside.is_empty());
    assert_eq!(team.drops(DropReason::NoMapping), 1);
}

#[test]
fn errors_about_packets_that_turned_round_come_back() {
    let mut team = Team::new(&with_pool(2, (1024, 65535)), 2);
    let [(a, external_a), (b, external_b)] = two_of_different_workers(&mut team);
    let received = one(team.send_inside(&udp((a, 4000), external_b, b"to b")).inside);
    // Subscriber b answers port unreachable.
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&received);
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = one(team.send_inside(&ip(ICMP, b, external_a.0, &message)).inside);
    let outer = view(&error);
    assert_eq!(outer.destination(), a.to_bits());
    assert_eq!(outer.source(), external_b.0.to_bits());
    assert_eq!(checksum::checksum(outer.payload()), 0);
    let quoted = Ipv4::new_header_checked(&outer.payload()[8..]).expect("a packet");
    assert_eq!(quoted.source(), a.to_bits());
    assert_eq!(quoted.destination(), external_b.0.to_bits());
    let ports = Udp::new_checked(quoted.payload()).expect("UDP");
    assert_eq!((ports.source_port(), ports.destination_port()), (4000, external_b.1));
}

#[test]
fn who_calls_a_subscriber_that_cannot_be_reached_learns_it() {
    for addresses in [1, 2] {
        let mut team = Team::new(&with_pool(addresses, (1024, 65535)), 2);
        let callers = two_of_different_workers(&mut team);
        let mut taken: u64 = [Direction::Outbound, Direction::Hairpin]
            .map(|way| team.packets(way, Outcome::Forwarded))
            .iter()
            .sum();
        for number in 0..4 {
            // No route leads to that network.
            let far = Ipv4Addr::new(172, 16, 0, number);
            let asked = one(team.send_inside(&udp((far, 4000), (REMOTE, 53), b"hello")).outside);
            taken += 1;
            for (caller, _) in callers {
                let call = udp((caller, 4000), source(&asked), b"anybody");
                let error = one(team.send_inside(&call).inside);
                assert_eq!(view(&error).source(), OWN_INSIDE.to_bits());
                assert_eq!(view(&error).destination(), caller.to_bits());
                assert_eq!(checksum::checksum(view(&error).payload()), 0);
            }
        }
        // The errors are the gateway's own: each input packet is counted once, and nothing else.
        let mut all =
            |outcome| -> u64 { Direction::ALL.map(|way| team.packets(way, outcome)).iter().sum() };
        assert_eq!((all(Outcome::Forwarded), all(Outcome::Dropped)), (taken, 8));
        assert_eq!(team.drops(DropReason::NoRoute), 8);
        team.nothing_is_under_way();
    }
}

#[test]
fn errors_from_outside_find_whom_they_are_about() {
    for addresses in [1, 2] {
        let mut team = Team::new(&with_pool(addresses, (1024, 65535)), 2);
        for (host, _) in two_of_different_workers(&mut team) {
            let sent = one(team.send_inside(&udp((host, 4000), (REMOTE, 53), b"x")).outside);
            let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
            message.extend(&sent);
            let sum = checksum::checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let to = Ipv4Addr::from_bits(view(&sent).source());
            for _ in 0..2 {
                let error = one(team.send_outside(&ip(ICMP, REMOTE, to, &message)).inside);
                assert_eq!(view(&error).destination(), host.to_bits());
            }
        }
    }
}

/// The two fragments of a datagram.
pub(crate) fn halves(packet: &[u8], identification: u16) -> [Vec<u8>; 2] {
    let whole = view(packet);
    let payload = whole.payload();
    let at = payload.len() / 16 * 8;
    [(0, &payload[..at], 0x2000), (at, &payload[at..], 0)].map(|(offset, payload, more)| {
        let [from, to] = [whole.source(), whole.destination()].map(Ipv4Addr::from_bits);
        let mut bytes = ip(whole.protocol(), from, to, payload);
        let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
        header.set_identification(identification);
        header.set_fragment_field(more | (offset / 8) as u16);
        header.fill_checksum();
        bytes
    })
}

#[test]
fn fragments_of_a_datagram_come_to_one_worker_in_any_order() {
    for addresses in [1, 2] {
        let mut team = Team::new(&with_pool(addresses, (1024, 65535)), 2);
        let ends = two_of_different_workers(&mut team);
        let mut id = 0;
        for (host, external) in ends {
            for order in [[0, 1], [1, 0]] {
                for _ in 0..3 {
                    id += 1;
                    let parts = halves(&udp((REMOTE, 53), external, &[7; 100]), id);
                    let mut packets = team.send_outside(&parts[order[0]]).inside;
                    packets.extend(team.send_outside(&parts[order[1]]).inside);
                    assert_eq!(packets.len(), 2, "addresses {addresses}, order {order:?}");
                    for packet in packets {
                        assert_eq!(view(&packet).destination(), host.to_bits());
                    }
                    let parts = halves(&udp((host, 4000), (REMOTE, 53), &[7; 100]), id);
                    let mut packets = team.send_inside(&parts[order[0]]).outside;
                    packets.extend(team.send_inside(&parts[order[1]]).outside);
                    assert_eq!(packets.len(), 2);
                    let from =
                        |packet: &Vec<u8>| (view(packet).source(), view(packet).identification());
                    assert_eq!(from(&packets[0]), from(&packets[1]));
                }
            }
        }
        team.nothing_is_under_way();
        // The subscribers send fragments to each other.
        let [(a, external_a), (b, external_b)] = ends;
        for order in [[0, 1], [1, 0]] {
            id += 1;
            let parts = halves(&udp((a, 4000), external_b, &[9; 100]), id);
            let mut packets = team.send_inside(&parts[order[0]]).inside;
            packets.extend(team.send_inside(&parts[order[1]]).inside);
            assert_eq!(packets.len(), 2, "addresses {addresses}, order {order:?}");
            for packet in packets {
                assert_eq!(view(&packet).source(), external_a.0.to_bits());
                assert_eq!(view(&packet).destination(), b.to_bits());
            }
        }
        team.nothing_is_under_way();
    }
}

#[test]
fn no_packet_overtakes_fragments_of_its_flow() {
    let to = Arc::new(AtomicUsize::new(0));
    let also_to = Arc::clone(&to);
    let settings = with_pool(1, (1024, 65535));
    let mut team = Team::with(&settings, 2, move || also_to.load(Ordering::Relaxed));
    let [_, (host, external)] = two_of_different_workers(&mut team);
    let mut sent = Vec::from(halves(&udp((REMOTE, 53), external, &[7; 100]), 1));
    sent.push(udp((REMOTE, 53), external, b"whole"));
    sent.iter().for_each(|packet| _ = team.outside.send(&to_outside(packet)));
    let lengths = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).collect::<Vec<_>>();
    let out = team.settle().inside;
    assert_eq!(lengths(&out), lengths(&sent));
    assert!(out.iter().all(|packet| view(packet).destination() == host.to_bits()));
    team.nothing_is_under_way();
}

#[test]
fn fragments_whose_first_never_comes_are_counted() {
    let mut team = Team::new(&with_pool(1, (1024, 65535)), 2);
    let [(_, external), _] = two_of_different_workers(&mut team);
    for id in 0..50 {
        let [_, later] = halves(&udp((REMOTE, 53), external, &[7; 100]), id);
        assert!(team.send_outside(&later).inside.is_empty());
    }
    team.pass(Duration::from_secs(10));
    assert_eq!(team.drops(DropReason::FragmentUnmatched), 50);
    team.nothing_is_under_way();
}

#[test]
fn protocols_without_ports_find_their_subscriber() {
    for addresses in [1, 2] {
        let mut team = Team::new(&with_pool(addresses, (1024, 65535)), 2);
        for (number, (host, _)) in two_of_different_workers(&mut team).into_iter().enumerate() {
            let remote = Ipv4Addr::new(192, 0, 2, 100 + number as u8);
            let packet = one(team.send_inside(&ip(GRE, host, remote, &[0; 20])).outside);
            let external = Ipv4Addr::from_bits(view(&packet).source());
            for _ in 0..2 {
                let packet = one(team.send_outside(&ip(GRE, remote, external, &[0; 20])).inside);
                assert_eq!(view(&packet).destination(), host.to_bits());
            }
        }
        let stranger = ip(GRE, Ipv4Addr::new(192, 0, 2, 99), EXTERNAL, &[0; 20]);
        assert!(team.send_outside(&stranger).inside.is_empty());
        assert_eq!(team.drops(DropReason::NoMapping), 1, "it is counted once");
    }
}

#[test]
fn who_begins_with_a_protocol_without_ports_gets_answers() {
    for addresses in 1..=4 {
        let mut team = Team::new(&with_pool(addresses, (1024, 65535)), 2);
        for number in 0..16 {
            let (host, remote) = (subscriber(number), Ipv4Addr::new(192, 0, 2, 100 + number as u8));
            for _ in 0..2 {
                let packet = one(team.send_inside(&ip(GRE, host, remote, &[0; 20])).outside);
                let external = Ipv4Addr::from_bits(view(&packet).source());
                let packet = one(team.send_outside(&ip(GRE, remote, external, &[0; 20])).inside);
                assert_eq!(view(&packet).destination(), host.to_bits(), "addresses {addresses}");
            }
        }
    }
}

#[test]
fn the_gateway_answers_pings_and_everybody_learns_from_arp() {
    let mut team = Team::new(&with_pool(2, (1024, 65535)), 2);
    for _ in 0..4 {
        let reply = one(team.send_inside(&echo_request(SUBSCRIBER, OWN_INSIDE)).inside);
        assert_eq!(view(&reply).source(), OWN_INSIDE.to_bits());
        let reply = one(team.send_outside(&echo_request(REMOTE, OWN_OUTSIDE)).outside);
        assert_eq!(view(&reply).source(), OWN_OUTSIDE.to_bits());
    }
    let now = team.now;
    for worker in &mut team.workers {
        worker.status(now);
    }
    assert_eq!(team.packets(Direction::Local, Outcome::Replied), 8);
}

#[test]
fn a_worker_that_runs_short_of_ports_borrows_from_the_other() {
    for (addresses, ports) in [(1, (1024, 5119)), (2, (1024, 3071))] {
        let mut settings = with_pool(addresses, ports);
        settings.engine.limits.udp_ports = 4000;
        settings.engine.limits.new_mappings_per_second = 100_000;
        settings.engine.limits.unanswered_give_way = false;
        settings.engine.pooling = natgate_engine::Pooling::Arbitrary;
        settings.engine.port_parity = false;
        let mut team = Team::new(&settings, 2);
        two_of_different_workers(&mut team);
        // One subscriber makes more mappings than its worker has ports, 2048.
        let mut made = HashSet::new();
        for port in 0..3000 {
            let packet = udp((subscriber(3), 10_000 + port), (REMOTE, 53), b"x");
            team.inside.send(&to_inside(&packet));
            team.now = team.now.plus(Duration::from_millis(1));
            for _ in 0..3 {
                for worker in &mut team.workers {
                    worker.turn(team.now, &mut team.observer);
                }
            }
            if port % 100 == 99 {
                made.extend(team.settle().outside.iter().map(|packet| source(packet)));
            }
        }
        assert_eq!(made.len(), 3000, "each has a port of its own");
        assert_eq!(team.drops(DropReason::PoolExhausted), 0);
        let loads: Vec<_> = team.workers.iter().map(|worker| worker.load().now()).collect();
        let borrowed: u64 = loads.iter().map(|load| load.ports_borrowed).sum();
        assert!(borrowed >= 960, "{borrowed} ports were borrowed");
        assert_eq!(borrowed, loads.iter().map(|load| load.ports_lent).sum::<u64>());
        // Answers find their worker, although ports have changed owners since the start.
        for external in made.iter().take(300) {
            let out = team.send_outside(&udp((REMOTE, 53), *external, b"answer"));
            assert_eq!(view(&one(out.inside)).destination(), subscriber(3).to_bits());
        }
    }
}

#[test]
fn static_endpoints_are_of_their_hosts_worker() {
    let mut settings = with_pool(2, (1024, 65535));
    for number in 0..6 {
        settings.engine.statics.push(StaticMapping {
            protocol: Some(UDP),
            internal: (subscriber(number), Some(53)),
            external: (EXTERNAL, Some(5000 + number as u16)),
            ..StaticMapping::default()
        });
    }
    let mut team = Team::new(&settings, 2);
    let [(guest, from), _] = two_of_different_workers(&mut team);
    for number in 0..6 {
        let external = (EXTERNAL, 5000 + number as u16);
        let server = (subscriber(number), 53);
        let packet = one(team.send_outside(&udp((REMOTE, 9), external, b"query")).inside);
        assert_eq!(destination(&packet), server);
        let packet = one(team.send_inside(&udp(server, (REMOTE, 9), b"answer")).outside);
        assert_eq!(source(&packet), external);
        let packet = one(team.send_inside(&udp((guest, 4000), external, b"query")).inside);
        assert_eq!((source(&packet), destination(&packet)), (from, server));
        let packet = one(team.send_inside(&udp(server, from, b"answer")).inside);
        assert_eq!((source(&packet), destination(&packet)), (external, (guest, 4000)));
    }
}

/// Puts other settings in force while the workers go on.
fn reload(team: &mut Team, old: &Settings, new: Settings) -> natgate_gateway::Reconfigured {
    let (commander, old) = (team.commander.clone(), old.clone());
    let asked = std::thread::spawn(move || {
        let numbered = commander.numbered().expect("an answer");
        let prepared = Prepared::new(&old, numbered, new).expect("the settings are right");
        commander.reconfigure(prepared).expect("it is put in force")
    });
    while !asked.is_finished() {
        team.settle();
    }
    asked.join().expect("it ends")
}

#[test]
fn a_reload_is_everybodys() {
    let old = with_pool(2, (1024, 65535));
    let mut team = Team::new(&old, 2);
    let ends = two_of_different_workers(&mut team);
    let mut new = with_pool(4, (1024, 65535));
    new.engine.statics.push(StaticMapping {
        protocol: Some(UDP),
        internal: (subscriber(99), Some(53)),
        external: (Ipv4Addr::new(203, 0, 113, 4), Some(53)),
        ..StaticMapping::default()
    });
    let mappings: usize = team.mappings().iter().map(HashMap::len).sum();
    let done = reload(&mut team, &old, new.clone());
    assert_eq!(done.stayed, mappings as u64);
    for (host, external) in ends {
        let packet = one(team.send_inside(&udp((host, 4000), (REMOTE, 53), b"x")).outside);
        assert_eq!(source(&packet), external, "its mapping stays");
    }
    // The new addresses are divided, too, and the static mapping exists.
    let mut seen = HashSet::new();
    for number in 200..260 {
        let packet = udp((subscriber(number), 4000), (REMOTE, 53), b"x");
        seen.insert(source(&one(team.send_inside(&packet).outside)).0);
    }
    assert_eq!(seen.len(), 4);
    let external = (Ipv4Addr::new(203, 0, 113, 4), 53);
    let packet = one(team.send_outside(&udp((REMOTE, 9), external, b"query")).inside);
    assert_eq!(destination(&packet), (subscriber(99), 53));
    // The former settings again: addresses leave.
    let done = reload(&mut team, &new, old);
    assert!(done.went.iter().sum::<u64>() > 0);
    for (host, external) in ends {
        let packet = one(team.send_inside(&udp((host, 4000), (REMOTE, 53), b"x")).outside);
        assert_eq!(source(&packet), external);
    }
}

/// Subscribers keep their blocks of an address while it is in no pool.
#[test]
fn no_block_has_two_subscribers_after_an_address_has_left_and_come_back() {
    const SIZE: u16 = 64;
    let with = |first, last| {
        let mut settings = with_pool(1, (2048, 3071));
        let release_after = Duration::from_secs(3600);
        let block = BlockConfig { size: SIZE, max_per_subscriber: 1, release_after };
        let pool = &mut settings.engine.pools[0];
        pool.allocation = Some(Allocation::Block(block));
        let [first, last] = [first, last].map(|last| Ipv4Addr::new(203, 0, 113, last));
        pool.addresses = vec![AddressRange { first, last }];
        settings.engine.limits.unanswered_give_way = false;
        settings
    };
    let mut team = Team::new(&with(1, 3), 2);
    // The third address is the first worker's, and then would be the second one's.
    let hosts = |team: &mut Team, numbers: std::ops::Range<u32>| {
        let mut blocks = HashMap::new();
        for host in numbers.map(subscriber) {
            let out = team.send_inside(&udp((host, 4000), (REMOTE, 53), b"x")).outside;
            team.now = team.now.plus(Duration::from_millis(20));
            for (address, port) in out.iter().map(|packet| source(packet)) {
                let before = blocks.insert((address, port / SIZE), host);
                assert_eq!(before, None, "{address} {port}");
            }
        }
        blocks
    };
    let third = Ipv4Addr::new(203, 0, 113, 3);
    let begun = hosts(&mut team, 0..24);
    assert!(begun.keys().any(|(address, _)| *address == third));
    reload(&mut team, &with(1, 3), with(1, 2));
    reload(&mut team, &with(1, 2), with(2, 3));
    let blocks = hosts(&mut team, 24..90);
    assert_eq!(blocks.len() + begun.keys().filter(|(one, _)| *one != EXTERNAL).count(), 32);
    for (place, host) in begun {
        assert!(!blocks.contains_key(&place), "{host} has it for an hour");
    }
}

#[test]
fn a_worker_that_is_too_slow_loses_packets_that_are_counted() {
    let mut team = Team::with(&with_pool(2, (1024, 65535)), 2, || 1);
    let [(host, _), _] = two_of_different_workers(&mut team);
    // All frames come to the other worker; the host's worker takes no turns.
    let mut sent = 0;
    for _ in 0..40 {
        for _ in 0..64 {
            team.inside.send(&to_inside(&udp((host, 4000), (REMOTE, 53), b"x")));
            sent += 1;
        }
        team.workers[1].turn(team.now, &mut team.observer);
    }
    let before = team.packets(Direction::Outbound, Outcome::Forwarded);
    for _ in 0..200 {
        team.settle();
    }
    let forwarded = team.packets(Direction::Outbound, Outcome::Forwarded) - before;
    let lost = team.drops(DropReason::HandOverFull);
    assert!(lost > 0);
    assert_eq!(forwarded + lost, sent);
}

/// Payload of a UDP datagram.
fn payload(packet: &[u8]) -> Vec<u8> {
    view(packet).payload()[8..].to_vec()
}

#[test]
fn many_packets_at_once_all_come_once_whichever_worker_they_come_to() {
    for workers in [2, 3] {
        let mut team = Team::new(&with_pool(3, (1024, 65535)), workers);
        for number in 0..40 {
            one(team.send_inside(&udp((subscriber(number), 4000), (REMOTE, 53), b"first")).outside);
        }
        for round in 0..3_u8 {
            let sent: Vec<Vec<u8>> = (0..240).map(|number| vec![round, number]).collect();
            for (number, content) in (0..).zip(&sent) {
                let host = subscriber(number % 40);
                team.inside.send(&to_inside(&udp((host, 4000), (REMOTE, 53), content)));
            }
            let mut out = team.settle().outside;
            out.sort_by_key(|packet| payload(packet));
            assert_eq!(out.iter().map(|packet| payload(packet)).collect::<Vec<_>>(), sent);
            for packet in &out {
                assert!(udp_valid(packet));
                let answer = udp((REMOTE, 53), source(packet), &payload(packet));
                team.outside.send(&to_outside(&answer));
            }
            let mut back = team.settle().inside;
            back.sort_by_key(|packet| payload(packet));
            assert_eq!(back.iter().map(|packet| payload(packet)).collect::<Vec<_>>(), sent);
            for (number, packet) in (0..).zip(&back) {
                assert_eq!(destination(packet), (subscriber(number % 40), 4000));
                assert!(udp_valid(packet));
            }
        }
        team.nothing_is_under_way();
    }
}

#[test]
fn packets_from_others_pass_although_a_worker_has_full_batches_of_its_own() {
    let to = Arc::new(AtomicUsize::new(0));
    let also_to = Arc::clone(&to);
    let mut team =
        Team::with(&with_pool(2, (1024, 65535)), 2, move || also_to.load(Ordering::Relaxed));
    let [_, (host, _)] = two_of_different_workers(&mut team);
    let forwarded = team.packets(Direction::Outbound, Outcome::Forwarded);
    // More packets than that find no room at the cable.
    for turn in 1..=7 {
        for worker in [0, 1] {
            to.store(worker, Ordering::Relaxed);
            for _ in 0..64 {
                team.inside.send(&to_inside(&udp((host, 4000), (REMOTE, 53), b"x")));
            }
        }
        team.turn();
        let now = team.packets(Direction::Outbound, Outcome::Forwarded) - forwarded;
        assert_eq!(now, 128 * turn, "turn {turn}");
    }
    team.nothing_is_under_way();
}

#[test]
fn a_worker_that_joins_takes_subscribers_and_nobody_loses_a_mapping() {
    for count in [1, 2] {
        let mut settings = with_pool(2, (1024, 65535));
        settings.engine.statics.push(StaticMapping {
            protocol: Some(UDP),
            internal: (subscriber(500), Some(53)),
            external: (EXTERNAL, Some(5000)),
            ..StaticMapping::default()
        });
        let mut team = Team::new(&settings, count);
        let mut known = HashMap::new();
        for number in 0..40 {
            let host = subscriber(number);
            let out = team.send_inside(&udp((host, 4000), (REMOTE, 53), b"hello"));
            known.insert(host, source(&one(out.outside)));
        }
        for joined in 1..=2 {
            team.grow(&settings);
            assert_eq!(team.workers.len(), count + joined);
            for (&host, &external) in &known {
                let out = team.send_inside(&udp((host, 4000), (REMOTE, 54), b"again"));
                assert_eq!(source(&one(out.outside)), external, "its mapping is used on");
                let out = team.send_outside(&udp((REMOTE, 54), external, b"answer"));
                assert_eq!(destination(&one(out.inside)), (host, 4000));
            }
            // New subscribers may belong to the newcomer, which has borrowed ports.
            team.pass(Duration::from_millis(50));
            for number in 0..40 {
                let host = subscriber(100 * joined as u32 + number);
                let out = team.send_inside(&udp((host, 4000), (REMOTE, 53), b"hello"));
                let external = source(&one(out.outside));
                assert!(!known.values().any(|other| *other == external));
                let out = team.send_outside(&udp((REMOTE, 53), external, b"answer"));
                assert_eq!(destination(&one(out.inside)), (host, 4000));
                known.insert(host, external);
            }
            assert!(!team.mappings().last().expect("a worker").is_empty(), "it has subscribers");
        }
        // Subscribers with mappings reach each other.
        let ends: Vec<_> = known.iter().map(|(host, external)| (*host, *external)).collect();
        for pair in ends.windows(2) {
            let [(a, from), (b, to)] = [pair[0], pair[1]];
            let packet = one(team.send_inside(&udp((a, 4000), to, b"hello")).inside);
            assert_eq!((source(&packet), destination(&packet)), (from, (b, 4000)));
        }
        let packet = udp((REMOTE, 9), (EXTERNAL, 5000), b"query");
        let packet = one(team.send_outside(&packet).inside);
        assert_eq!(destination(&packet), (subscriber(500), 53));
        // When all mappings have gone, no former owner is asked any more.
        for _ in 0..4 {
            team.pass(Duration::from_secs(200));
        }
        let before = team.handed_over();
        for number in 0..40 {
            let packet = udp((subscriber(number), 4001), (REMOTE, 53), b"hello");
            assert_eq!(team.send_inside(&packet).outside.len(), 1);
        }
        assert!(team.handed_over() - before <= 40, "each goes straight to its worker");
    }
}
