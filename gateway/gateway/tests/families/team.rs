//! Several workers with both families: whichever worker a frame comes to, the result is that of a
//! single worker.

mod pairs;

use super::world::*;
use natgate_engine::{Direction, Outcome, Side, StaticMapping, Timestamp};
use natgate_gateway::ipv6::softwire::{
    Binding, BindingTable, DsliteSettings, Lw4o6Settings, PortSets, SoftwireSettings,
};
use natgate_gateway::ipv6::{Filter, Nptv6, Nptv6Settings, Share, StaticHost};
use natgate_gateway::{AlgKind, Commander, Route6, Settings, Worker, team, team_commands};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::arp::{self, Arp, Mac, Operation};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::nd::{Advertisement, Message};
use natgate_wire::{Ipv6, nd};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const WORKERS: usize = 3;
/// Hardware addresses of the gateway, and of the router at the other end of each cable.
const OWN: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
const FAR: [Mac; 2] = [Mac([2, 0, 0, 0, 1, 1]), Mac([2, 0, 0, 0, 1, 2])];
const INSIDE_ROUTER: &str = "2001:db8::2";
const OUTSIDE_ROUTER: &str = "2001:db8:ffff::2";
const EXTERNAL: &str = "203.0.113.1";
const REMOTE: &str = "198.51.100.7";
const SIDES: [Side; 2] = [Side::Inside, Side::Outside];

/// Routes to all hosts by the routers at the far ends of the cables.
fn routed(mut settings: Settings) -> Settings {
    settings.outside.address = Some((OWN_IPV4.parse().unwrap(), 24));
    settings.outside.gateway = Some("192.0.2.1".parse().unwrap());
    settings.inside.address = Some(("10.0.0.1".parse().unwrap(), 8));
    let route = |address, len, via: &str, side| {
        let via = via.parse().unwrap();
        Route6 { prefix: prefix6(address, len), via, side }
    };
    settings.router6.routes = vec![
        route("2001:db8::", 33, INSIDE_ROUTER, Side::Inside),
        route("fd00::", 8, INSIDE_ROUTER, Side::Inside),
        route("2000::", 3, OUTSIDE_ROUTER, Side::Outside),
    ];
    settings.workers.count = WORKERS;
    settings
}

/// Workers between two cables. Each frame comes to the worker after that of the frame before.
struct Team {
    workers: Vec<Worker>,
    wires: [Wire; 2],
    now: Timestamp,
    commander: Commander,
    _wakes: Vec<UnixStream>,
}

impl Team {
    fn new(settings: &Settings) -> Self {
        let (turn, count) = (Arc::new(AtomicUsize::new(0)), settings.workers.count);
        let group = |name, mac| {
            let turn = Arc::clone(&turn);
            let next = move |_: &[u8]| turn.fetch_add(1, Ordering::Relaxed) % count;
            memory::group(name, mac, count, next)
        };
        let (inside, inside_wire) = group("in", OWN[0]);
        let (outside, outside_wire) = group("out", OWN[1]);
        let pairs = || -> (Vec<UnixStream>, Vec<UnixStream>) {
            (0..count).map(|_| UnixStream::pair().expect("a pair of sockets")).unzip()
        };
        let ((mut wakes, wakers), (more, others)) = (pairs(), pairs());
        wakes.extend(more);
        let (commander, commands) = team_commands(others);
        let devices =
            inside.into_iter().zip(outside).map(|(inside, outside)| -> [Box<dyn Device>; 2] {
                [Box::new(inside), Box::new(outside)]
            });
        let now = Timestamp(1_000_000_000_000);
        let members = team(settings, wakers).into_iter().zip(devices).zip(commands);
        let workers = members.map(|((member, devices), commands)| {
            let seed = [member.number() as u8 + 1; 32];
            let worker = Worker::of_team(settings, seed, devices, member, now);
            let mut worker = worker.expect("the settings are right");
            worker.obey(commands);
            worker
        });
        let workers = workers.collect();
        let wires = [inside_wire, outside_wire];
        let mut team = Self { workers, wires, now, commander, _wakes: wakes };
        // The gateway's own addresses are tentative for a second.
        team.settle();
        team.pass(Duration::from_millis(1100));
        team
    }

    fn pass(&mut self, time: Duration) -> Vec<Sent> {
        self.now = self.now.plus(time);
        self.settle()
    }

    /// Lets all workers work until nothing is left to do, and returns the packets that left. The
    /// routers answer ARP and Neighbor Discovery.
    fn settle(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        for _ in 0..12 {
            for worker in &mut self.workers {
                worker.turn(self.now, &mut ());
            }
            for (side, wire) in SIDES.into_iter().zip(&self.wires) {
                while let Some(frame) = wire.take() {
                    match answer(&frame, FAR[side as usize]) {
                        Answer::Frame(reply) => assert!(wire.send(&reply)),
                        Answer::None => {}
                        Answer::Packet => sent.push((side, frame[ETHERNET_LEN..].to_vec())),
                    }
                }
            }
        }
        sent
    }

    fn send(&mut self, side: Side, packet: &[u8]) -> Vec<Sent> {
        let kind = if packet[0] >> 4 == 6 { ethertype::IPV6 } else { ethertype::IPV4 };
        let mut frame = [&[0; ETHERNET_LEN][..], packet].concat();
        let place = side as usize;
        let header = frame.first_chunk_mut().expect("a header");
        arp::write_ethernet(header, OWN[place], FAR[place], kind);
        self.wires[place].send(&frame);
        self.settle()
    }

    /// The only packet that leaves for a packet that comes in, and leaves by the side `to`.
    fn through(&mut self, from: Side, packet: &[u8], to: Side) -> Vec<u8> {
        let sent = self.send(from, packet);
        single(&sent, to).to_vec()
    }

    fn count(&mut self, direction: Direction, outcome: Outcome) -> u64 {
        let now = self.now;
        let of = |worker: &mut Worker| {
            worker.status(now).counters.packets[direction as usize][outcome as usize]
        };
        self.workers.iter_mut().map(of).sum()
    }

    fn handed_over(&self) -> u64 {
        self.workers.iter().map(|worker| worker.load().now().handed_over).sum()
    }

    /// Hosts with numbers of each worker: mappings' internal addresses in the engine.
    fn numbers(&mut self) -> Vec<BTreeSet<Ipv6Addr>> {
        let now = self.now;
        let of = |worker: &mut Worker| {
            let status = worker.status(now);
            let mut found = BTreeSet::new();
            for mapping in status.engine.mappings() {
                let id = mapping.id;
                let name = status.host(id.realm, id.internal.address);
                found.extend(name.and_then(|name| name.address));
            }
            found
        };
        self.workers.iter_mut().map(of).collect()
    }
}

/// What the router at the far end does with a frame.
enum Answer {
    Frame(Vec<u8>),
    None,
    Packet,
}

fn answer(frame: &[u8], mac: Mac) -> Answer {
    let (_, gateway, kind) = arp::read_ethernet(frame).expect("a frame");
    let packet = &frame[ETHERNET_LEN..];
    if kind == ethertype::ARP {
        let asked = Arp::new_checked(packet).expect("ARP").repr();
        if asked.operation != Operation::Request {
            return Answer::None;
        }
        let reply = arp::Repr {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: asked.target,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        return Answer::Frame(reply.frame(gateway).to_vec());
    }
    let Ok(header) = Ipv6::new_checked(packet) else { return Answer::Packet };
    let (source, destination) = (header.source(), header.destination());
    if let Ok(Message::NeighborSolicitation { target, .. }) = nd::read(packet) {
        let routers = [INSIDE_ROUTER, OUTSIDE_ROUTER].map(|text| Ipv6Addr::from_bits(v6(text)));
        if source == 0 || !routers.contains(&target) {
            return Answer::None;
        }
        let said =
            Advertisement { target, mac: Some(mac), router: true, solicited: true, replaces: true };
        let packet = said.packet(target, Ipv6Addr::from_bits(source));
        let mut reply = [&[0; ETHERNET_LEN][..], &packet].concat();
        let header = reply.first_chunk_mut().expect("a header");
        arp::write_ethernet(header, gateway, mac, ethertype::IPV6);
        return Answer::Frame(reply);
    }
    match Ipv6Addr::from_bits(destination).is_multicast() {
        true => Answer::None,
        false => Answer::Packet,
    }
}

fn host(number: usize) -> String {
    format!("2001:db8:{:x}::5", 0x100 + number)
}

fn nat64() -> Settings {
    routed(with_nat64(&["64:ff9b::/96"]))
}

fn mapped() -> String {
    embedded("64:ff9b::/96", REMOTE)
}

const HOSTS: usize = 40;

/// External port of each host's mapping of a port.
fn fill(team: &mut Team) -> Vec<u16> {
    (0..HOSTS)
        .map(|number| {
            let packet = ip6(&host(number), &mapped(), UDP, &udp(4000, 53, b"question"));
            let out = team.through(Side::Inside, &packet, Side::Outside);
            assert_eq!(ends4(&out), ends(EXTERNAL, REMOTE));
            port(&out, 0)
        })
        .collect()
}

#[test]
fn answers_find_their_hosts_whichever_worker_gets_them() {
    let mut team = Team::new(&nat64());
    let ports = fill(&mut team);
    for (number, external) in ports.iter().enumerate() {
        for _ in 0..WORKERS {
            let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, *external, b"answer"));
            let back = team.through(Side::Outside, &answer, Side::Inside);
            assert_eq!((ends6(&back), port(&back, 2)), (ends(&mapped(), &host(number)), 4000));
        }
    }
    let hosts = team.numbers();
    assert!(hosts.iter().all(|some| some.len() > HOSTS / WORKERS / 3), "{hosts:?}");
    assert_eq!(hosts.iter().map(BTreeSet::len).sum::<usize>(), HOSTS, "each has one worker");
    assert_eq!(team.count(Direction::Outbound, Outcome::Forwarded), HOSTS as u64);
    assert_eq!(team.count(Direction::Inbound, Outcome::Forwarded), (HOSTS * WORKERS) as u64);
    assert!(team.handed_over() > 0);
}

#[test]
fn errors_from_both_sides_find_the_session() {
    let mut team = Team::new(&nat64());
    let ports = fill(&mut team);
    for (number, external) in ports.iter().enumerate() {
        let host = host(number);
        let question = ip4(EXTERNAL, REMOTE, UDP, &udp(*external, 53, b"question"));
        let told = ip4("192.0.2.77", EXTERNAL, ICMP, &error(3, 4, 1400, &question));
        let back = team.through(Side::Outside, &told, Side::Inside);
        assert_eq!(ends6(&back), ends("64:ff9b::c000:24d", &host));
        // A router inside reports about an answer.
        let came = ip6(&mapped(), &host, UDP, &udp(53, 4000, b"answer"));
        let told = ip6("2001:db8:77::1", &mapped(), ICMPV6, &error(1, 4, 0, &came));
        let out = team.through(Side::Inside, &told, Side::Outside);
        assert_eq!(ends4(&out), ends(EXTERNAL, REMOTE));
    }
}

#[test]
fn hosts_of_both_families_reach_each_other() {
    let mut team = Team::new(&nat64());
    let ports = fill(&mut team);
    let external = embedded("64:ff9b::/96", EXTERNAL);
    for (number, own) in ports.iter().enumerate() {
        let to = (number * 7 + 3) % HOSTS;
        let request = ip6(&host(number), &external, UDP, &udp(4000, ports[to], b"request"));
        let got = team.through(Side::Inside, &request, Side::Inside);
        assert_eq!(ends6(&got), ends(&external, &host(to)));
        assert_eq!((port(&got, 0), port(&got, 2)), (*own, 4000));
        let subscriber = format!("10.0.0.{}", 50 + number);
        let request = ip4(&subscriber, EXTERNAL, UDP, &udp(4000, ports[to], b"request"));
        let got = team.through(Side::Inside, &request, Side::Inside);
        assert_eq!(ends6(&got), ends(&external, &host(to)));
        // And back.
        let reply = ip6(&host(to), &external, UDP, &udp(4000, port(&got, 0), b"reply"));
        let got = team.through(Side::Inside, &reply, Side::Inside);
        assert_eq!((ends4(&got), port(&got, 2)), (ends(EXTERNAL, &subscriber), 4000));
    }
    assert_eq!(team.count(Direction::Hairpin, Outcome::Forwarded), 3 * HOSTS as u64);
}

#[test]
fn fragments_of_one_datagram_meet() {
    let mut team = Team::new(&nat64());
    for number in 0..HOSTS {
        let whole = ip6(&host(number), &mapped(), UDP, &udp(4000, 53, &[9; 2000]));
        let parts = fragments6(&whole, 77, 1232);
        // The last fragment comes first.
        let sent = team.send(Side::Inside, &parts[1]);
        assert!(sent.is_empty(), "{sent:?}");
        let mut sent = team.send(Side::Inside, &parts[0]);
        assert_eq!(sent.len(), 2);
        let external = sent.iter().find(|(_, bytes)| bytes[7] == 0 && bytes[6] & 0x1f == 0);
        let external = port(&external.expect("a first fragment").1, 0);
        // Fragments back, the last one first.
        let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, &[7; 1600]));
        let mut halves = [answer[..1220].to_vec(), [&answer[..20], &answer[1220..]].concat()];
        for (place, half) in halves.iter_mut().enumerate() {
            let total = half.len() as u16;
            half[2..4].copy_from_slice(&total.to_be_bytes());
            half[4..6].copy_from_slice(&(number as u16).to_be_bytes());
            let field: u16 = if place == 0 { 0x2000 } else { 1200 / 8 };
            half[6..8].copy_from_slice(&field.to_be_bytes());
            half[10..12].fill(0);
            let sum = natgate_wire::checksum::checksum(&half[..20]);
            half[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        assert_eq!(team.send(Side::Outside, &halves[1]), []);
        sent = team.send(Side::Outside, &halves[0]);
        assert_eq!(sent.len(), 2, "host {number}");
        assert!(sent.iter().all(|(_, bytes)| ends6(bytes) == ends(&mapped(), &host(number))));
    }
}

/// Settings with a static mapping of a port of each of 12 hosts, from 8000 on; `own`: port inside.
fn with_statics(own: u16) -> Settings {
    let mut settings = nat64();
    let addresses: Vec<Ipv6Addr> =
        (0..12).map(|number| Ipv6Addr::from_bits(v6(&host(number)))).collect();
    let hosts = StaticHost::first(&addresses, 64, WORKERS as u16);
    let numbers: BTreeSet<_> = hosts.iter().map(|host| host.number).collect();
    assert_eq!(numbers.len(), hosts.len(), "no two hosts have one number");
    let mapping = |(place, host): (u16, &StaticHost)| StaticMapping {
        realm: 1,
        internal: (host.number, Some(own)),
        external: (EXTERNAL.parse().unwrap(), Some(8000 + place)),
        ..StaticMapping::default()
    };
    settings.engine.statics = (0..).zip(&hosts).map(mapping).collect();
    if let Some(nat64) = &mut settings.ipv6.nat64 {
        nat64.static_hosts = hosts;
    }
    settings
}

#[test]
fn static_mappings_lead_to_hosts_of_every_worker() {
    let settings = with_statics(80);
    let mut team = Team::new(&settings);
    let request =
        |number: usize| ip4(REMOTE, EXTERNAL, UDP, &udp(53, 8000 + number as u16, b"request"));
    for number in 0..12 {
        let got = team.through(Side::Outside, &request(number), Side::Inside);
        assert_eq!((ends6(&got), port(&got, 2)), (ends(&mapped(), &host(number)), 80));
    }
    // A replay has one translator, whatever the number of workers.
    let sent = one(&settings, Side::Outside, &request(7));
    assert_eq!(ends6(single(&sent, Side::Inside)), ends(&mapped(), &host(7)));
}

#[test]
fn connections_between_hosts_to_a_watched_port_pass_unread() {
    let mut settings = with_statics(21);
    settings.alg.set(AlgKind::Ftp, vec![8000, 8005]);
    settings.alg.reserve(&mut settings.engine.limits);
    let mut team = Team::new(&settings);
    let external = embedded("64:ff9b::/96", EXTERNAL);
    for number in 0..HOSTS {
        let syn = ip6(&host(100 + number), &external, TCP, &tcp(4000, 8005, 2));
        let got = team.through(Side::Inside, &syn, Side::Inside);
        assert_eq!((ends6(&got), port(&got, 2)), (ends(&external, &host(5)), 21));
    }
}

const AFTR: &str = "2001:db8:ffff::78";

fn dslite() -> Settings {
    let mut settings = routed(settings());
    settings.ipv6.dslite = Some(DsliteSettings {
        subscriber_length: 128,
        b4_change_interval: std::time::Duration::ZERO,
        address: AFTR.parse().unwrap(),
        b4: vec![prefix6("2001:db8::", 33)],
        softwire: SoftwireSettings { mtu: None, path_mtu: true },
        static_hosts: Vec::new(),
    });
    settings
}

#[test]
fn tunnel_packets_in_parts_turn_round_to_other_workers() {
    let mut team = Team::new(&dslite());
    let out = |number: usize, to: &str, port: u16, size: usize| {
        let inner = ip4("10.0.0.9", to, UDP, &udp(4000, port, &vec![7; size]));
        raw6(v6(&host(number)), v6(AFTR), 4, &inner)
    };
    let external: Vec<u16> = (0..HOSTS)
        .map(|n| port(&team.through(Side::Inside, &out(n, REMOTE, 53, 8), Side::Outside), 0))
        .collect();
    for number in 0..HOSTS {
        let to = (number * 7 + 3) % HOSTS;
        let whole = out(number, EXTERNAL, external[to], 1300);
        let mut sent = Vec::new();
        for part in fragments6(&whole, number as u32, 1000) {
            sent.extend(team.send(Side::Inside, &part));
        }
        let [(Side::Inside, got)] = &sent[..] else { panic!("{} packets", sent.len()) };
        assert_eq!(ends6(got), ends(AFTR, &host(to)));
        assert_eq!(ends4(&got[40..]), ends(EXTERNAL, "10.0.0.9"));
    }
}

/// A subscriber that is a prefix has one worker, so its hosts and its tunnel are in one place.
#[test]
fn a_b4_moves_in_its_prefix_whichever_worker_has_it() {
    let mut settings = dslite();
    settings.ipv6.dslite.as_mut().unwrap().subscriber_length = 56;
    let mut team = Team::new(&settings);
    let packet = ip4("10.0.0.9", REMOTE, UDP, &udp(4000, 53, b"question"));
    for number in 1..=HOSTS {
        let [first, other] = [("00", 1), ("ff", 2)]
            .map(|(site, last)| format!("2001:db8:0:{number:x}{site}::{last}"));
        let external = [&first, &other].map(|b4| {
            let packet = raw6(v6(b4), v6(AFTR), 4, &packet);
            port(&team.through(Side::Inside, &packet, Side::Outside), 0)
        });
        assert_eq!(external[0], external[1], "{first} and {other} are one subscriber");
        let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external[0], b"answer"));
        let back = team.through(Side::Outside, &answer, Side::Inside);
        assert_eq!(ends6(&back), ends(AFTR, &other));
    }
}

#[test]
fn shares_give_no_number_twice() {
    let mut seen = BTreeMap::new();
    for place in 0..3 {
        let share = Share { place, of: 3 };
        let mut hosts = natgate_gateway::ipv6::Hosts::new(56, 500, share, [place as u8; 32]);
        for number in 0..500_u128 {
            let address = 0x2001_0db8_u128 << 96 | number << 60;
            if let Ok(number) = hosts.intern(address, 0) {
                let before = seen.insert(number, (place, address));
                assert_eq!(before, None, "{number}");
                assert_eq!(hosts.address(number), Some(address));
                assert_eq!(hosts.subscriber(number).map(|of| of.1), Some(56));
            }
        }
    }
    for (number, (place, _)) in &seen {
        let other = Share { place: (place + 1) % 3, of: 3 };
        let hosts = natgate_gateway::ipv6::Hosts::new(56, 500, other, [1; 32]);
        assert_eq!(hosts.subscriber(*number), None);
    }
}

#[test]
fn the_filter_knows_what_any_worker_has_sent() {
    let mut settings = routed(settings());
    settings.ipv6.filter = Filter::OutboundOnly;
    let pair = Nptv6::new(prefix6("fd00:1::", 48), prefix6("2001:db8:8001::", 48)).unwrap();
    settings.ipv6.nptv6 = vec![Nptv6Settings { pair, icmp_errors: true }];
    let mut team = Team::new(&settings);
    let remote = "2600::7";
    for number in 0..HOSTS {
        let inside = format!("fd00:1:0:{:x}::5", number + 1);
        let question = ip6(&inside, remote, UDP, &udp(4000, 53, b"question"));
        let out = team.through(Side::Inside, &question, Side::Outside);
        let (external, _) = ends6(&out);
        let answer = ip6(remote, &external, UDP, &udp(53, 4000, b"answer"));
        let back = team.through(Side::Outside, &answer, Side::Inside);
        assert_eq!(ends6(&back), ends(remote, &inside));
        let stranger = ip6(remote, &external, UDP, &udp(53, 4001, b"unasked"));
        assert_eq!(team.send(Side::Outside, &stranger), []);
    }
}

#[test]
fn every_worker_hears_of_a_narrow_path() {
    let mut settings = routed(settings());
    let address: Ipv6Addr = "2001:db8:ffff::77".parse().unwrap();
    let sets = PortSets::new(0, 6).unwrap();
    let bindings: Vec<Binding> = (1..40)
        .map(|psid| Binding {
            ipv4: "203.0.113.9".parse().unwrap(),
            sets,
            psid,
            b4: Ipv6Addr::from_bits(v6(&host(psid.into()))),
            br: address,
        })
        .collect();
    settings.ipv6.lw4o6 = Some(Lw4o6Settings {
        address,
        bindings: Arc::new(BindingTable::new(&bindings, address, 1).unwrap()),
        hairpinning: true,
        icmp_errors: true,
        inbound_icmp: true,
        softwire: SoftwireSettings { mtu: None, path_mtu: true },
    });
    let mut team = Team::new(&settings);
    let inward = |psid: u16, size: usize| {
        ip4(REMOTE, "203.0.113.9", UDP, &udp(53, psid * 1024 + 7, &vec![1; size]))
    };
    for psid in 1..40 {
        let b4 = host(psid.into());
        let big = team.through(Side::Outside, &inward(psid, 1380), Side::Inside);
        assert_eq!(ends6(&big), (address.to_string(), b4.clone()));
        let report = error(2, 0, 1300, &big[..1200]);
        let report = ip6("2001:db8:77::1", &address.to_string(), ICMPV6, &report);
        assert_eq!(team.send(Side::Inside, &report), []);
        for _ in 0..WORKERS {
            let cut = team.send(Side::Outside, &inward(psid, 1380));
            assert_eq!(cut.len(), 2, "each worker cuts packets to {b4}");
        }
    }
}

#[test]
fn tunnels_of_ds_lite_are_divided() {
    let mut team = Team::new(&dslite());
    for number in 0..HOSTS {
        // All hosts have one inner address.
        let inner = ip4("10.0.0.9", REMOTE, UDP, &udp(4000, 53, b"question"));
        let outer = raw6(v6(&host(number)), v6(AFTR), 4, &inner);
        let out = team.through(Side::Inside, &outer, Side::Outside);
        let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, port(&out, 0), b"answer"));
        let sent = team.send(Side::Outside, &answer);
        let [(Side::Inside, back)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(ends6(back), ends(AFTR, &host(number)));
        assert_eq!(ends4(&back[40..]), ends(REMOTE, "10.0.0.9"));
    }
}

#[test]
fn one_worker_speaks_and_all_listen() {
    let mut team = Team::new(&nat64());
    // The first packet of each worker finds its neighbour known: one of them has asked.
    fill(&mut team);
    let now = team.now;
    let counters: Vec<_> = team
        .workers
        .iter_mut()
        .map(|worker| worker.status(now).ipv6.expect("IPv6").router)
        .collect();
    let answered: u64 = counters.iter().map(|one| one.solicitations_answered).sum();
    assert_eq!(answered, 0);
    // A host asks for the gateway: one answer, and all learn the host.
    let own = Ipv6Addr::from_bits(v6(OWN_INSIDE));
    let asker: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let question = nd::Solicitation { target: own, mac: FAR[0] };
    let question = question.packet(Some(asker), nd::solicited_node(own));
    let sent = team.send_to(Side::Inside, nd::group_mac(nd::solicited_node(own)), question.bytes());
    assert_eq!(sent.len(), 1, "one worker answers");
    assert_eq!(ends6(&sent[0].1), ends(OWN_INSIDE, "2001:db8::9"));
    for worker in &mut team.workers {
        let status = worker.status(now);
        let neighbors = &status.ipv6.expect("IPv6").sides[0].neighbors;
        assert!(neighbors.iter().any(|known| known.address == asker), "all have learnt");
    }
    // A message that is not valid counts once.
    let mut damaged = question.bytes().to_vec();
    damaged[7] = 64;
    team.send_to(Side::Inside, nd::group_mac(nd::solicited_node(own)), &damaged);
    let count = |worker: &mut Worker| worker.status(now).ipv6.unwrap().router.discovery_invalid;
    assert_eq!(team.workers.iter_mut().map(count).sum::<u64>(), 1);
}

impl Team {
    /// As [`Team::send`], to a hardware address.
    fn send_to(&mut self, side: Side, to: Mac, packet: &[u8]) -> Vec<Sent> {
        let mut frame = [&[0; ETHERNET_LEN][..], packet].concat();
        let header = frame.first_chunk_mut().expect("a header");
        arp::write_ethernet(header, to, FAR[side as usize], ethertype::IPV6);
        self.wires[side as usize].send(&frame);
        self.settle()
    }
}
