//! Two gateways of a pair with all their parts, in virtual time. Packets come to either node, and
//! the owner of their slice translates them as long as it is there.

mod controls;
mod families;
mod histories;

use crate::pptp::tcp;
use crate::world::*;
use natgate_engine::{
    AddressRange, Allocation, DeterministicConfig, DropReason, Match, PoolConfig, Prefix, Rule,
    RuleAction, Side, StaticMapping, Timestamp,
};
use natgate_gateway::fleet::{
    Fleet, FleetAnswer, FleetAsker, FleetRequest, FleetSettings, FleetStatus, LinkStatus,
    PartnerLink, PartnerSettings, SliceSettings, TunnelCounters,
};
use natgate_gateway::{Route, Settings, Worker, team};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::{ICMP, ICMPV6, UDP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Ipv4, arp, checksum};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const A: usize = 0;
const B: usize = 1;

/// Address of the slice of `a`, and of that of `b`.
const OF_A: Ipv4Addr = EXTERNAL;
const OF_B: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

/// Bytes that a message of the link may have.
const ROOM: usize = 1100;

/// Packets of the tunnel that wait in a direction, as in the link.
const WAITING: usize = 1024;

type End = (Ipv4Addr, u16);

/// The link between the nodes. What goes to a node waits here.
#[derive(Default)]
struct Cable {
    messages: [VecDeque<Vec<u8>>; 2],
    views: [Option<Vec<u8>>; 2],
    packets: [VecDeque<Vec<u8>>; 2],
    /// Last heartbeat of each node, and the end of the other one that a guardian has told it.
    beats: [u64; 2],
    ends: [Option<u64>; 2],
    is_cut: bool,
    /// True if packets of the tunnel stay on their way.
    is_slow: bool,
    /// True if the other node's version has no tunnel.
    is_old: bool,
}

struct LinkEnd(Arc<Mutex<Cable>>, usize);

impl LinkEnd {
    fn cable(&self) -> MutexGuard<'_, Cable> {
        self.0.lock().expect("no test has failed")
    }
}

impl PartnerLink for LinkEnd {
    fn send(&mut self, message: Vec<u8>) -> bool {
        let mut cable = self.cable();
        if !cable.is_cut {
            cable.messages[1 - self.1].push_back(message);
        }
        !cable.is_cut
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.cable().messages[self.1].pop_front()
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn tell(&mut self, view: Vec<u8>) {
        let mut cable = self.cable();
        if !cable.is_cut {
            cable.views[1 - self.1] = Some(view);
        }
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        self.cable().views[self.1].take()
    }

    fn pass(&mut self, datagram: &[u8]) -> bool {
        assert!(datagram.len() + 4 <= ROOM, "it fits");
        let mut cable = self.cable();
        let has_room = !cable.is_cut && cable.packets[1 - self.1].len() < WAITING;
        if has_room && !cable.is_old {
            cable.packets[1 - self.1].push_back(datagram.to_vec());
        }
        has_room
    }

    fn passed(&mut self) -> Option<Vec<u8>> {
        let mut cable = self.cable();
        if cable.is_slow { None } else { cable.packets[self.1].pop_front() }
    }

    fn status(&self) -> LinkStatus {
        let connected = (!self.cable().is_cut).then_some(Duration::ZERO);
        LinkStatus { connected, ..LinkStatus::default() }
    }

    fn ended(&mut self) -> Option<u64> {
        self.cable().ends[self.1].take()
    }

    fn beat(&mut self, boot: u64) {
        self.cable().beats[self.1] = boot;
    }
}

struct Node {
    workers: Vec<Worker>,
    wires: [Wire; 2],
    asker: FleetAsker,
    /// Ends of the streams that wake the workers.
    _wakes: Vec<UnixStream>,
}

/// Numbers of workers.
const COUNTS: [[usize; 2]; 4] = [[1, 1], [1, 2], [2, 1], [2, 2]];

struct Pair {
    nodes: [Option<Node>; 2],
    cable: Arc<Mutex<Cable>>,
    folder: tempfile::TempDir,
    counts: [usize; 2],
    settings: Settings,
    /// Owners of the two slices.
    owners: [&'static str; 2],
    now: Timestamp,
    observer: RecordingObserver,
    out: Out,
    /// An address that does not answer ARP.
    silent: Option<Ipv4Addr>,
}

/// Packets that came out of the nodes: node, true if inside, and the packet.
type Out = Vec<(usize, bool, Vec<u8>)>;

fn pair_settings() -> Settings {
    let mut settings = settings();
    settings.engine.pools[0].addresses = vec![AddressRange { first: OF_A, last: OF_B }];
    settings
}

impl Pair {
    fn new(counts: [usize; 2]) -> Self {
        Self::with(pair_settings(), counts, ["a", "b"])
    }

    fn with(settings: Settings, counts: [usize; 2], owners: [&'static str; 2]) -> Self {
        let mut pair = Self {
            nodes: [None, None],
            cable: Arc::default(),
            folder: tempfile::tempdir().expect("a folder"),
            counts,
            settings,
            owners,
            now: Timestamp(1_000_000_000_000),
            observer: RecordingObserver::default(),
            out: Out::new(),
            silent: None,
        };
        [A, B].into_iter().for_each(|node| pair.start(node));
        pair.run(3000);
        pair.out.clear();
        pair
    }

    fn start(&mut self, node: usize) {
        let count = self.counts[node];
        let turn = Arc::new(AtomicUsize::new(0));
        let also = Arc::clone(&turn);
        // Frames come to one worker after the other.
        let next = move |turn: &AtomicUsize| turn.fetch_add(1, Ordering::Relaxed) % count;
        let (inside, wire_in) = memory::group("in", INSIDE, count, move |_| next(&turn));
        let (outside, wire_out) = memory::group("out", OUTSIDE, count, move |_| next(&also));
        let devices =
            inside.into_iter().zip(outside).map(|(inside, outside)| -> [Box<dyn Device>; 2] {
                [Box::new(inside), Box::new(outside)]
            });
        let (wakes, wakers): (Vec<UnixStream>, Vec<UnixStream>) =
            (0..count).map(|_| UnixStream::pair().expect("a pair of sockets")).unzip();
        let (seed, now) = ([node as u8 + 1; 32], self.now);
        let mut workers: Vec<Worker> = if count == 1 {
            devices.map(|own| Worker::new(&self.settings, seed, own, now).expect("good")).collect()
        } else {
            let members = team(&self.settings, wakers).into_iter().zip(devices);
            let worker = |(member, own)| Worker::of_team(&self.settings, seed, own, member, now);
            members.map(|one| worker(one).expect("good")).collect()
        };
        self.cable().messages[node].clear();
        self.cable().packets[node].clear();
        let links = (0..count)
            .map(|_| -> Box<dyn PartnerLink> { Box::new(LinkEnd(Arc::clone(&self.cable), node)) });
        let fleet = self.fleet_settings(node);
        let (parts, asker) = Fleet::team(fleet, links.collect(), 7).expect("it begins");
        workers.iter_mut().zip(parts).for_each(|(worker, part)| worker.join_fleet(part, now));
        let wires = [wire_in, wire_out];
        self.nodes[node] = Some(Node { workers, wires, asker, _wakes: wakes });
    }

    fn fleet_settings(&self, node: usize) -> FleetSettings {
        let names = ["a", "b"];
        let slice = |address: Ipv4Addr, owner: &str| SliceSettings {
            addresses: vec![AddressRange { first: address, last: address }],
            owner: owner.into(),
        };
        let at = |name: &str| self.folder.path().join(name);
        let any = ([127, 0, 0, 1], 7600).into();
        FleetSettings {
            node: names[node].into(),
            workers: self.counts[node],
            listen: any,
            certificate: at("certificate"),
            key: at("key"),
            authorities: at("authorities"),
            partner: PartnerSettings { node: names[1 - node].into(), address: any },
            slices: vec![slice(OF_A, self.owners[0]), slice(OF_B, self.owners[1])],
            starts: at(names[node]),
            hang: Duration::from_secs(3),
        }
    }

    fn cable(&self) -> MutexGuard<'_, Cable> {
        self.cable.lock().expect("no test has failed")
    }

    /// One turn of all workers. Hosts answer ARP.
    fn turn(&mut self) {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let Some(node) = node else { continue };
            for worker in &mut node.workers {
                worker.turn(self.now, &mut self.observer);
            }
            for (side, (wire, host)) in node.wires.iter().zip([HOST, SERVER]).enumerate() {
                while let Some(frame) = wire.take() {
                    let (_, _, kind) = arp::read_ethernet(&frame).expect("a frame");
                    match kind {
                        ethertype::ARP => {
                            let asked = arp::Arp::new_checked(&frame[ETHERNET_LEN..]);
                            let is_request = asked.is_some_and(|message| {
                                let repr = message.repr();
                                repr.operation == arp::Operation::Request
                                    && Some(repr.target) != self.silent
                            });
                            if is_request {
                                wire.send(&answer(&frame, host));
                            }
                        }
                        // Neighbor Discovery is the gateway's own matter.
                        ethertype::IPV6 if frame[ETHERNET_LEN + 6] == ICMPV6 => {}
                        _ => self.out.push((number, side == 0, frame[ETHERNET_LEN..].to_vec())),
                    }
                }
            }
        }
    }

    /// Lets milliseconds pass, in turns of 2 ms, or of 20 ms if they are many.
    fn run(&mut self, milliseconds: u64) {
        let turn = if milliseconds > 1000 { 20 } else { 2 };
        for _ in 0..milliseconds.div_ceil(turn) {
            self.now = self.now.plus(Duration::from_millis(turn));
            self.turn();
        }
    }

    /// A packet comes to a node. Returns what comes out.
    fn send(&mut self, node: usize, from_inside: bool, packet: &[u8]) -> Out {
        let frame = if from_inside { to_inside(packet) } else { to_outside(packet) };
        self.send_frame(node, from_inside, &frame)
    }

    fn send_frame(&mut self, node: usize, from_inside: bool, frame: &[u8]) -> Out {
        let side = usize::from(!from_inside);
        // Errors about earlier packets may have come late.
        self.out.clear();
        self.nodes[node].as_ref().expect("it runs").wires[side].send(frame);
        self.run(30);
        std::mem::take(&mut self.out)
    }

    /// A packet from inside comes to a node. Returns the node that it leaves by, and its source
    /// then.
    fn outbound(&mut self, node: usize, packet: &[u8]) -> Option<(usize, End)> {
        let out = self.send(node, true, packet);
        let (by, is_inside, packet) = one(&out)?;
        assert!(!is_inside, "{packet:?} comes back");
        Some((*by, source(packet)))
    }

    /// A packet from outside comes to a node. Returns the node that it leaves by, and its
    /// destination then.
    fn inbound(&mut self, node: usize, packet: &[u8]) -> Option<(usize, End)> {
        let out = self.send(node, false, packet);
        let (by, is_inside, packet) = one(&out)?;
        assert!(is_inside, "{packet:?} goes back");
        Some((*by, destination(packet)))
    }

    /// A packet that begins a mapping comes to a node. A worker without ports borrows some first.
    fn begin(&mut self, node: usize, packet: &[u8]) -> (usize, End) {
        let begun = (0..4).find_map(|_| self.outbound(node, packet));
        begun.expect("it leaves")
    }

    /// A flow of a host whose first packet comes to a node.
    fn flow(&mut self, node: usize, host: End) -> End {
        let (by, external) = self.begin(node, &question(host));
        assert_eq!((by, external.0), (node, [OF_A, OF_B][node]));
        external
    }

    fn ask(&mut self, node: usize, request: FleetRequest) -> FleetAnswer {
        let asker = self.nodes[node].as_ref().expect("it runs").asker.clone();
        let asking = std::thread::spawn(move || asker.ask(request));
        while !asking.is_finished() {
            self.turn();
        }
        asking.join().expect("it ends")
    }

    fn status(&mut self, node: usize) -> FleetStatus {
        self.ask(node, FleetRequest::Status).expect("a state")
    }

    fn counters(&mut self, node: usize) -> TunnelCounters {
        self.status(node).tunnel
    }

    fn mappings(&mut self, node: usize) -> usize {
        let now = self.now;
        let workers = self.nodes[node].iter_mut().flat_map(|node| &mut node.workers);
        workers.map(|worker| worker.status(now).engine.mappings().count()).sum()
    }

    fn drops(&mut self, node: usize, reason: DropReason) -> u64 {
        let now = self.now;
        let workers = self.nodes[node].iter_mut().flat_map(|node| &mut node.workers);
        workers.map(|worker| worker.status(now).counters.drops[reason as usize]).sum()
    }

    /// The process of a node ends. Its guardian tells the other node so, if there is one.
    fn end(&mut self, node: usize, has_guardian: bool) {
        self.nodes[node] = None;
        let mut cable = self.cable();
        if has_guardian && !cable.is_cut {
            cable.ends[1 - node] = Some(cable.beats[node]);
        }
    }
}

fn one(out: &Out) -> Option<&(usize, bool, Vec<u8>)> {
    assert!(out.len() <= 1, "more than one packet: {out:?}");
    out.first()
}

fn ends(packet: &[u8], port: usize) -> u16 {
    let payload = view(packet).payload().get(port..port + 2).map(<[u8; 2]>::try_from);
    payload.and_then(Result::ok).map_or(0, u16::from_be_bytes)
}

fn source(packet: &[u8]) -> End {
    (Ipv4Addr::from_bits(view(packet).source()), ends(packet, 0))
}

fn destination(packet: &[u8]) -> End {
    (Ipv4Addr::from_bits(view(packet).destination()), ends(packet, 2))
}

/// The `number`th host.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, number)
}

fn question(from: End) -> Vec<u8> {
    udp(from, (REMOTE, 53), b"question")
}

fn reply(to: End) -> Vec<u8> {
    udp((REMOTE, 53), to, b"reply")
}

#[test]
fn packets_that_come_to_either_node_leave_by_the_owner() {
    for counts in COUNTS {
        let mut pair = Pair::new(counts);
        let mut flows = Vec::new();
        for number in 1..9 {
            let end = (host(number), 4000);
            let node = usize::from(number % 2);
            flows.push((node, end, pair.flow(node, end)));
        }
        pair.run(3000);
        for (owner, end, external) in flows {
            let other = 1 - owner;
            assert_eq!(pair.outbound(other, &question(end)), Some((owner, external)), "{counts:?}");
            assert_eq!(pair.inbound(other, &reply(external)), Some((owner, end)), "{counts:?}");
            // A session with another remote endpoint begins at the other node.
            let further = udp(end, (REMOTE, 54), b"x");
            assert_eq!(pair.outbound(other, &further), Some((owner, external)));
            let answer = udp((REMOTE, 54), external, b"x");
            assert_eq!(pair.inbound(owner, &answer), Some((owner, end)));
            // A further mapping of the subscriber has the same address.
            let new = pair.outbound(other, &question((end.0, 5000))).expect("it leaves");
            assert_eq!((new.0, new.1.0), (owner, external.0), "{counts:?}");
        }
        for node in [A, B] {
            let counters = pair.counters(node);
            assert_eq!(counters.passed, [12, 4, 0], "{counts:?}");
            assert_eq!((counters.taken, counters.foreign), ([12, 4, 0], 0), "{counts:?}");
            let status = pair.status(node);
            assert_eq!((status.slices[node].passes, status.slices[1 - node].passes), (false, true));
        }
    }
}

#[test]
fn a_flow_lives_whose_packets_from_inside_come_to_the_other_node_only() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    for _ in 0..20 {
        pair.run(100_000);
        assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
        assert_eq!(pair.inbound(B, &reply(external)), Some((A, end)));
    }
    assert_eq!((pair.mappings(A), pair.mappings(B)), (1, 1));
    pair.run(310_000);
    assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "the owner's timers end it");
}

/// Each packet of a connection comes to another node than the one before.
#[test]
fn the_owner_sees_a_connection_as_a_whole() {
    for (counts, begins) in [([1, 1], A), ([2, 2], A), ([1, 2], B)] {
        let mut pair = Pair::new(counts);
        let (end, server) = ((host(1), 4000), (REMOTE, 80));
        // The subscriber is known to be of `a`.
        pair.flow(A, (host(1), 3999));
        pair.run(3000);
        let (near, far) = (begins, 1 - begins);
        let segment = |numbers, flags| tcp(end, server, numbers, flags, b"");
        let syn = pair.begin(near, &segment([1, 0], SYN));
        assert_eq!((syn.0, syn.1.0), (A, OF_A), "a SYN makes its mapping at the owner");
        let back = |numbers, flags| tcp(server, syn.1, numbers, flags, b"");
        assert_eq!(pair.inbound(far, &back([9, 2], SYN | ACK)), Some((A, end)));
        assert_eq!(pair.outbound(near, &segment([2, 10], ACK)), Some(syn));
        pair.run(3000);
        assert_eq!(pair.outbound(far, &segment([2, 10], ACK | FIN)), Some(syn));
        assert_eq!(pair.inbound(near, &back([10, 3], ACK | FIN)), Some((A, end)));
        assert_eq!(pair.outbound(near, &segment([3, 11], ACK)), Some(syn));
        let both = (pair.mappings(A), pair.mappings(B));
        assert_eq!(both, (2, 2), "the connection, and the first flow");
        // A closed connection ends after minutes, one that lives after hours.
        pair.run(320_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "{counts:?}");
        // So does one that was reset at the other node.
        pair.flow(A, (host(2), 3999));
        pair.run(3000);
        let end = (host(2), 4000);
        let segment = |numbers, flags| tcp(end, server, numbers, flags, b"");
        let syn = pair.begin(A, &segment([1, 0], SYN));
        let back = |numbers, flags| tcp(server, syn.1, numbers, flags, b"");
        assert_eq!(pair.inbound(B, &back([9, 2], SYN | ACK)), Some((A, end)));
        assert_eq!(pair.outbound(A, &segment([2, 10], ACK)), Some(syn));
        assert_eq!(pair.inbound(B, &back([10, 2], RST | ACK)), Some((A, end)));
        pair.run(320_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "{counts:?}");
    }
}

#[test]
fn copies_translate_as_soon_as_the_owner_is_not_heard() {
    let mut pair = Pair::new([1, 2]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.end(A, false);
    pair.run(50);
    assert_eq!(pair.outbound(B, &question(end)), None, "it is lost with the owner");
    pair.run(100);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)), "the copy works");
    assert_eq!(pair.inbound(B, &reply(external)), Some((B, end)));
    let new = pair.outbound(B, &question((host(1), 4001))).expect("it leaves");
    assert_eq!((new.0, new.1.0), (B, OF_B), "in its own slice");
    // The node that comes back is not the owner any more.
    pair.start(A);
    pair.run(4000);
    assert_eq!(pair.outbound(A, &question(end)), Some((B, external)));
    assert_eq!(pair.inbound(A, &reply(external)), Some((B, end)));
}

#[test]
fn the_word_of_a_guardian_ends_the_tunnel_at_once() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.end(A, true);
    pair.run(4);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
}

#[test]
fn a_broken_link_and_an_older_partner_leave_the_copies_at_work() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.cable().is_cut = true;
    pair.run(200);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
    pair.cable().is_cut = false;
    pair.run(200);
    assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
    pair.cable().is_old = true;
    pair.run(200);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
}

/// A node that cannot deliver packets takes none of the other one.
#[test]
fn a_failed_device_or_router_of_the_owner_leaves_the_copies_at_work() {
    /// The router outside, and an address behind it.
    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
    const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    let mut settings = pair_settings();
    settings.outside.gateway = Some(ROUTER);
    let mut pair = Pair::with(settings, [2, 1], ["a", "b"]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    for side in [0, 1] {
        pair.nodes[A].as_ref().expect("it runs").wires[side].set_up(false);
        pair.run(1500);
        assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
        assert_eq!(pair.inbound(B, &reply(external)), Some((B, end)));
        pair.nodes[A].as_ref().expect("it runs").wires[side].set_up(true);
        pair.run(7000);
        pair.out.clear();
        assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
    }
    // A host outside that does not answer is no fault of the node, and a router is.
    for (silent, to, by) in [(Ipv4Addr::new(192, 0, 2, 99), None, A), (ROUTER, Some(FAR), B)] {
        pair.silent = Some(silent);
        assert_eq!(pair.outbound(A, &udp(end, (to.unwrap_or(silent), 53), b"lost")), None);
        pair.run(4000);
        // The host has been told.
        pair.out.clear();
        assert_eq!(pair.outbound(B, &question(end)), Some((by, external)), "{silent}");
    }
    pair.run(7000);
    pair.out.clear();
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)), "it is silent yet");
    pair.silent = None;
    pair.run(7000);
    pair.out.clear();
    assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
}

/// A host inside sends packets by a route whose router has gone.
#[test]
fn one_silent_router_of_several_does_not_end_the_tunnel() {
    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
    const GONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 253);
    for (counts, is_used) in [([1, 1], true), ([2, 1], true), ([1, 1], false)] {
        let mut settings = pair_settings();
        settings.outside.gateway = Some(ROUTER);
        let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
        settings.routes.push(Route { prefix, via: GONE, side: Side::Outside });
        let mut pair = Pair::with(settings, counts, ["a", "b"]);
        let flows: Vec<(End, End)> =
            (1..5).map(|number| (host(number), 4000)).map(|end| (end, pair.flow(A, end))).collect();
        // One worker knows the router that answers, or asks for it when it finds the other silent.
        let (end, external) = flows[0];
        let far = udp(end, (Ipv4Addr::new(198, 18, 0, 1), 53), b"far");
        if is_used {
            assert_eq!(pair.outbound(A, &far), Some((A, external)));
        }
        pair.run(3000);
        pair.silent = Some(GONE);
        for (end, _) in &flows {
            let lost = udp(*end, (Ipv4Addr::new(198, 51, 100, 1), 53), b"lost");
            assert_eq!(pair.outbound(A, &lost), None);
        }
        for _ in 0..40 {
            pair.run(100);
            let passes = pair.status(B).slices[0].passes;
            assert!(passes || !is_used, "{counts:?}: A is there");
        }
        for (end, external) in flows {
            assert_eq!(pair.outbound(B, &question(end)), Some((A, external)), "{counts:?}");
        }
    }
}

#[test]
fn packets_of_an_earlier_epoch_are_refused_and_counted() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.cable().is_slow = true;
    assert_eq!(pair.outbound(B, &question(end)), None);
    let late: Vec<_> = pair.cable().packets[A].drain(..).collect();
    pair.cable().is_slow = false;
    pair.ask(A, FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(2000);
    assert_eq!(pair.status(B).slices[0].role, "owner");
    pair.out.clear();
    pair.cable().packets[A].extend(late.iter().cloned());
    pair.run(30);
    let out = std::mem::take(&mut pair.out);
    let (by, _, packet) =
        one(&out).expect("it was on its way in the move: the copies translate it");
    assert_eq!((*by, source(packet), pair.counters(A).foreign), (A, external, 0));
    // The former owner passes on to the new one. The epoch of its packets is the new one.
    assert_eq!(pair.outbound(A, &question(end)), Some((B, external)));
    pair.cable().packets[B].extend(late.iter().cloned());
    pair.run(30);
    assert_eq!(pair.counters(B).foreign, 1, "the slice is its own, in another epoch");
    pair.ask(B, FleetRequest::Drain("b".into())).expect("it drains");
    pair.run(2000);
    assert_eq!(pair.status(A).slices[0].role, "owner");
    pair.cable().packets[A].extend(late);
    pair.run(30);
    assert_eq!(pair.counters(A).foreign, 1);
    assert!(pair.out.is_empty(), "{:?}", pair.out);
}

#[test]
fn a_planned_move_loses_no_packet() {
    for node in [A, B] {
        let mut pair = Pair::new([1, 1]);
        let end = (host(1), 4000);
        let external = pair.flow(A, end);
        pair.run(3000);
        pair.ask(A, FleetRequest::Drain("a".into())).expect("it drains");
        for turn in 0..400 {
            pair.nodes[node].as_ref().expect("it runs").wires[0].send(&to_inside(&question(end)));
            pair.run(4);
            if turn == 200 {
                assert_eq!(pair.status(B).slices[0].role, "owner");
            }
        }
        pair.run(100);
        let out = std::mem::take(&mut pair.out);
        assert!(out.iter().all(|(_, _, packet)| source(packet) == external));
        assert_eq!(out.len(), 400, "{:?}", pair.counters(A));
        assert_eq!(pair.counters(A).foreign, 0);
        let last = out.last().expect("there are some");
        assert_eq!(last.0, B);
    }
}

#[test]
fn hosts_of_both_nodes_reach_each_other() {
    for counts in COUNTS {
        let mut pair = Pair::new(counts);
        let (one, two) = ((host(1), 4000), (host(2), 4000));
        let (external_one, external_two) = (pair.flow(A, one), pair.flow(B, two));
        pair.run(3000);
        for node in [A, B] {
            let ways = [
                (one, external_two, external_one, two, B),
                (two, external_one, external_two, one, A),
            ];
            for (from, to, seen, receiver, by) in ways {
                let out = pair.send(node, true, &udp(from, to, b"hairpin"));
                let (came_by, is_inside, packet) = super::pair::one(&out).expect("it comes");
                assert_eq!((*came_by, *is_inside), (by, true), "{counts:?}");
                assert_eq!((source(packet), destination(packet)), (seen, receiver));
                assert!(udp_valid(packet));
                assert_eq!(view(packet).ttl(), 63, "that is one hop");
            }
        }
        // Hosts of one node.
        let three = (host(3), 4000);
        let external_three = pair.flow(A, three);
        pair.run(3000);
        for node in [A, B] {
            let out = pair.send(node, true, &udp(three, external_one, b"hairpin"));
            let (by, _, packet) = super::pair::one(&out).expect("it comes");
            assert_eq!((*by, source(packet), destination(packet)), (A, external_three, one));
        }
    }
}

fn fragment(packet: &[u8], from: usize, to: usize) -> Vec<u8> {
    let header = view(packet);
    let payload = header.payload();
    let part = &payload[from..to.min(payload.len())];
    let (near, far) = (Ipv4Addr::from_bits(header.source()), header.destination());
    let mut bytes = ip(header.protocol(), near, Ipv4Addr::from_bits(far), part);
    let mut piece = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    piece.set_identification(77);
    let more = if to < payload.len() { 0x2000 } else { 0 };
    piece.set_fragment_field(more | (from / 8) as u16);
    piece.fill_checksum();
    bytes
}

#[test]
fn fragments_of_a_datagram_go_the_same_way() {
    for counts in [[1, 1], [2, 2]] {
        let mut pair = Pair::new(counts);
        let end = (host(1), 4000);
        let external = pair.flow(A, end);
        pair.run(3000);
        let outbound = udp(end, (REMOTE, 53), &[5; 1400]);
        let inbound = udp((REMOTE, 53), external, &[6; 1400]);
        for (is_inside, whole) in [(true, outbound), (false, inbound)] {
            for order in [[0, 1], [1, 0]] {
                let mut out = Out::new();
                for place in order {
                    let piece = fragment(&whole, 800 * place, 800 * (place + 1));
                    out.extend(pair.send(B, is_inside, &piece));
                }
                assert_eq!(out.len(), 2, "{counts:?}: {out:?}");
                assert!(out.iter().all(|(by, ..)| *by == A));
                let ports = out.iter().filter(|(.., packet)| {
                    source(packet) == external || destination(packet) == end
                });
                assert_eq!(ports.count(), 1, "the first one has the ports");
                // Otherwise the same identification would be of one datagram.
                pair.run(70_000);
                assert_eq!(pair.outbound(A, &question(end)), Some((A, external)));
            }
        }
    }
}

/// A rule looks at ports, which not all fragments have: its pool may be of the other node or not.
#[test]
fn fragments_stay_if_a_rule_by_port_may_choose_a_pool_of_this_node() {
    for (owners, owner) in [(["a", "b"], B), (["a", "a"], A)] {
        let mut settings = pair_settings();
        let pool = |address| {
            let addresses = vec![AddressRange { first: address, last: address }];
            PoolConfig { addresses, ..settings.engine.pools[0].clone() }
        };
        let web = PoolConfig { name: "web".into(), ..pool(OF_B) };
        settings.engine.pools = vec![pool(OF_A), web];
        let all = Prefix::new(Ipv4Addr::UNSPECIFIED, 0);
        settings.engine.rules = vec![Rule::new(Match::Destination(all, 80), RuleAction::Snat(1))];
        let mut pair = Pair::with(settings, [1, 1], owners);
        let end = (host(1), 4000);
        pair.flow(A, end);
        pair.run(3000);
        // Another endpoint than that of the flow, which has its mapping.
        let whole = udp((end.0, 5000), (REMOTE, 80), &[5; 1400]);
        let mut out = Out::new();
        for place in [0, 1] {
            out.extend(pair.send(B, true, &fragment(&whole, 800 * place, 800 * (place + 1))));
        }
        assert_eq!(out.len(), 2, "{owners:?}: {out:?}");
        assert!(out.iter().all(|(by, _, packet)| (*by, source(packet).0) == (owner, OF_B)));
    }
}

#[test]
fn the_end_of_a_mapping_of_a_static_address_is_told_to_the_partner() {
    let mut settings = pair_settings();
    settings.engine.statics = vec![StaticMapping {
        external: (OF_A, None),
        internal: (host(1), None),
        protocol: None,
        ..StaticMapping::default()
    }];
    for counts in [[1, 1], [2, 2]] {
        let mut pair = Pair::with(settings.clone(), counts, ["a", "b"]);
        let end = (host(1), 4000);
        assert_eq!(pair.begin(A, &question(end)), (A, (OF_A, 4000)));
        pair.run(3000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (1, 1), "{counts:?}");
        pair.run(310_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "{counts:?}");
    }
}

fn unreachable_port(from: Ipv4Addr, to: Ipv4Addr, about: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&about[..28]);
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(ICMP, from, to, &message)
}

#[test]
fn errors_reach_the_hosts_of_the_owner() {
    for counts in [[1, 1], [2, 2]] {
        let mut pair = Pair::new(counts);
        let end = (host(1), 4000);
        let external = pair.flow(A, end);
        pair.run(3000);
        let sent = udp(external, (REMOTE, 53), b"question");
        let out = pair.send(B, false, &unreachable_port(REMOTE, OF_A, &sent));
        let (by, is_inside, packet) = one(&out).expect("it comes");
        assert_eq!((*by, *is_inside, view(packet).destination()), (A, true, end.0.to_bits()));
        let got = udp((REMOTE, 53), end, b"reply");
        let out = pair.send(B, true, &unreachable_port(end.0, REMOTE, &got));
        let (by, is_inside, packet) = one(&out).expect("it comes");
        assert_eq!((*by, *is_inside, view(packet).source()), (A, false, OF_A.to_bits()));
        // The owner tells that the time of a packet has passed.
        let mut dying = question(end);
        let mut header = Ipv4::new_checked(&mut dying[..]).expect("a packet");
        header.set_ttl(1);
        header.fill_checksum();
        let out = pair.send(B, true, &dying);
        let (by, is_inside, packet) = one(&out).expect("it comes");
        assert_eq!((*by, *is_inside, view(packet).protocol()), (A, true, ICMP));
        // An echo, which has an identifier in place of ports.
        let ping = echo_request(end.0, REMOTE);
        let out = pair.send(B, true, &ping);
        let (by, _, packet) = one(&out).expect("it leaves");
        assert_eq!((*by, view(packet).source()), (A, OF_A.to_bits()));
    }
}

#[test]
fn a_node_without_ports_of_its_own_passes_new_subscribers_on() {
    for counts in COUNTS {
        let mut pair = Pair::with(pair_settings(), counts, ["a", "a"]);
        for number in 1..6 {
            let end = (host(number), 4000);
            let (by, external) = pair.begin(B, &question(end));
            assert_eq!(by, A, "{counts:?}");
            assert_eq!(pair.inbound(B, &reply(external)), Some((A, end)));
        }
        assert_eq!(pair.mappings(A), 5);
    }
}

#[test]
fn packets_that_are_longer_than_a_datagram_go_in_pieces() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    for len in [1000, 1050, 1100, 1472] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let out = pair.send(B, true, &udp(end, (REMOTE, 53), &payload));
        let (by, _, packet) = one(&out).expect("it leaves");
        assert_eq!((*by, source(packet), packet.len()), (A, external, len + 28));
        assert!(udp_valid(packet) && packet.ends_with(&payload));
    }
    assert_eq!(pair.counters(B).passed, [4, 0, 0]);
}

/// A forged packet of the link, or one of a node that does not agree, goes no further.
#[test]
fn what_came_by_the_tunnel_is_not_passed_on_again() {
    let mut pair = Pair::new([1, 1]);
    let (one, two) = ((host(1), 4000), (host(2), 4000));
    let (external_one, _) = (pair.flow(A, one), pair.flow(B, two));
    pair.run(3000);
    pair.cable().is_slow = true;
    assert_eq!(pair.outbound(B, &question(one)), None);
    // The packet in the datagram becomes one of a host of `b`, with the slice of `a`.
    let is_packet = |datagram: &Vec<u8>| datagram.first() == Some(&1);
    let mut forged = pair.cable().packets[A].iter().find(|one| is_packet(one)).cloned().unwrap();
    let at = forged.len() - question(one).len();
    forged[at..].copy_from_slice(&question(two));
    let mut reply = forged[..at].to_vec();
    reply[at - 2] = 1;
    reply.extend(self::reply((OF_B, 2000)));
    pair.cable().packets[A].retain(|datagram| !is_packet(datagram));
    pair.cable().is_slow = false;
    let before = pair.counters(A);
    pair.cable().packets[A].extend([forged, reply]);
    pair.run(30);
    let after = pair.counters(A);
    assert_eq!((before.passed, before.foreign), (after.passed, after.foreign));
    assert_eq!(after.taken, [before.taken[0] + 1, before.taken[1] + 1, 0]);
    // The copy translates the one, and there is no mapping for the other.
    let out = std::mem::take(&mut pair.out);
    let (by, _, packet) = super::pair::one(&out).expect("one leaves");
    assert_eq!((*by, source(packet).0), (A, OF_B));
    assert_eq!(pair.outbound(B, &question(one)), Some((A, external_one)));
}

#[test]
fn a_full_tunnel_leaves_packets_to_the_copies() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.cable().is_slow = true;
    for _ in 0..WAITING / 32 + 4 {
        for _ in 0..32 {
            let frame = to_inside(&question(end));
            pair.nodes[B].as_ref().expect("it runs").wires[0].send(&frame);
        }
        pair.turn();
    }
    pair.cable().is_slow = false;
    pair.run(200);
    let out = std::mem::take(&mut pair.out);
    assert!(out.iter().all(|(.., packet)| source(packet) == external));
    let of = |node| out.iter().filter(|(by, ..)| *by == node).count() as u64;
    let counters = pair.counters(B);
    assert!(counters.full > 0 && of(B) > 0, "{counters:?}");
    assert_eq!(counters.passed[0], of(A));
    // Packets of the turn in which the link has no room are lost, and some that wait for the
    // hardware address of B's router.
    assert!(of(A) + of(B) + counters.full <= (WAITING + 4 * 32) as u64);
    assert_eq!(pair.drops(B, DropReason::NoMapping), 0);
}

#[test]
fn packets_for_a_gateway_itself_are_not_passed_on() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    pair.flow(A, end);
    pair.run(3000);
    for (is_inside, packet) in
        [(true, echo_request(end.0, OWN_INSIDE)), (false, echo_request(REMOTE, OWN_OUTSIDE))]
    {
        let out = pair.send(B, is_inside, &packet);
        let (by, came_inside, _) = one(&out).expect("the gateway answers");
        assert_eq!((*by, *came_inside), (B, is_inside));
    }
    assert_eq!(pair.counters(B).passed, [0; 3]);
    assert_eq!(view(&question(end)).protocol(), UDP);
}

/// A subscriber's address tells its ports, so no node has to know the subscriber.
#[test]
fn computed_ports_are_found_by_either_node() {
    let mut settings = pair_settings();
    settings.engine.pools[0].allocation = Some(Allocation::Deterministic(DeterministicConfig {
        realm: 0,
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 1, 0), 24)],
        ports_per_subscriber: Some(400),
        dynamic_ports: 0,
    }));
    let mut pair = Pair::with(settings, [1, 1], ["a", "b"]);
    let mut owners = [0; 2];
    for number in (1..250).step_by(20) {
        let end = (host(number), 4000);
        for node in [A, B] {
            let (by, external) = pair.outbound(node, &question(end)).expect("it leaves");
            assert_eq!(external.0, [OF_A, OF_B][by], "{end:?}");
            owners[by] += 1;
        }
    }
    assert!(owners.iter().all(|count| *count > 0), "{owners:?}");
    assert_eq!(pair.mappings(A) + pair.mappings(B), 13, "one for each, and no copies yet");
}
