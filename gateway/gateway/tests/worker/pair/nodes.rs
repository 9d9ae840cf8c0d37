//! The two nodes, the link between them, and the wires at their devices.

use super::{destination, one, question, source};
use crate::world::*;
use natgate_engine::{AddressRange, DropReason, Timestamp};
use natgate_gateway::fleet::{
    Fleet, FleetAnswer, FleetAsker, FleetRequest, FleetSettings, FleetStatus, LinkStatus,
    PartnerLink, PartnerSettings, SliceSettings, TunnelCounters,
};
use natgate_gateway::{Settings, Worker, team};
use natgate_io::Device;
use natgate_io::memory::{self, Wire};
use natgate_wire::arp;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::ICMPV6;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

/// Address of the slice of `a`, and of that of `b`.
pub(super) const OF_A: Ipv4Addr = EXTERNAL;
pub(super) const OF_B: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

/// Bytes that a message of the link may have.
pub(super) const ROOM: usize = 1100;

/// Packets of the tunnel that wait in a direction, as in the link.
pub(super) const WAITING: usize = 1024;

pub(super) type End = (Ipv4Addr, u16);

/// The link between the nodes. What goes to a node waits here.
#[derive(Default)]
pub(super) struct Cable {
    pub(super) messages: [VecDeque<Vec<u8>>; 2],
    pub(super) views: [Option<Vec<u8>>; 2],
    pub(super) packets: [VecDeque<Vec<u8>>; 2],
    /// Last heartbeat of each node, and the end of the other one that a guardian has told it.
    pub(super) beats: [u64; 2],
    pub(super) ends: [Option<u64>; 2],
    pub(super) is_cut: bool,
    /// True if packets of the tunnel stay on their way.
    pub(super) is_slow: bool,
    /// True if the other node's version has no tunnel.
    pub(super) is_old: bool,
}

/// The end of a node, and messages that wait for a flush.
struct LinkEnd(Arc<Mutex<Cable>>, usize, Vec<Vec<u8>>);

impl LinkEnd {
    fn cable(&self) -> MutexGuard<'_, Cable> {
        self.0.lock().expect("no test has failed")
    }
}

impl PartnerLink for LinkEnd {
    fn send(&mut self, message: Vec<u8>) -> bool {
        let is_cut = self.cable().is_cut;
        if !is_cut {
            self.2.push(message);
        }
        !is_cut
    }

    fn flush(&mut self) {
        let messages = std::mem::take(&mut self.2);
        self.cable().messages[1 - self.1].extend(messages);
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

pub(super) struct Node {
    pub(super) workers: Vec<Worker>,
    pub(super) wires: [Wire; 2],
    pub(super) asker: FleetAsker,
    /// Ends of the streams that wake the workers.
    _wakes: Vec<UnixStream>,
}

/// Numbers of workers.
pub(super) const COUNTS: [[usize; 2]; 4] = [[1, 1], [1, 2], [2, 1], [2, 2]];

pub(super) struct Pair {
    pub(super) nodes: [Option<Node>; 2],
    pub(super) cable: Arc<Mutex<Cable>>,
    pub(super) folder: tempfile::TempDir,
    pub(super) counts: [usize; 2],
    pub(super) settings: Settings,
    /// Owners of the two slices.
    pub(super) owners: [&'static str; 2],
    pub(super) now: Timestamp,
    pub(super) observer: RecordingObserver,
    pub(super) out: Out,
    /// An address that does not answer ARP.
    pub(super) silent: Option<Ipv4Addr>,
}

/// Packets that came out of the nodes: node, true if inside, and the packet.
pub(super) type Out = Vec<(usize, bool, Vec<u8>)>;

pub(super) fn pair_settings() -> Settings {
    let mut settings = settings();
    settings.engine.pools[0].addresses = vec![AddressRange { first: OF_A, last: OF_B }];
    settings
}

impl Pair {
    pub(super) fn new(counts: [usize; 2]) -> Self {
        Self::with(pair_settings(), counts, ["a", "b"])
    }

    pub(super) fn with(settings: Settings, counts: [usize; 2], owners: [&'static str; 2]) -> Self {
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

    pub(super) fn start(&mut self, node: usize) {
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
        let links = (0..count).map(|_| -> Box<dyn PartnerLink> {
            Box::new(LinkEnd(Arc::clone(&self.cable), node, vec![]))
        });
        let fleet = self.fleet_settings(node);
        let (parts, asker) = Fleet::team(fleet, links.collect(), 7).expect("it begins");
        workers.iter_mut().zip(parts).for_each(|(worker, part)| worker.join_fleet(part, now));
        let wires = [wire_in, wire_out];
        self.nodes[node] = Some(Node { workers, wires, asker, _wakes: wakes });
    }

    pub(super) fn fleet_settings(&self, node: usize) -> FleetSettings {
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

    pub(super) fn cable(&self) -> MutexGuard<'_, Cable> {
        self.cable.lock().expect("no test has failed")
    }

    /// One turn of all workers. Hosts answer ARP.
    pub(super) fn turn(&mut self) {
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
    pub(super) fn run(&mut self, milliseconds: u64) {
        let turn = if milliseconds > 1000 { 20 } else { 2 };
        for _ in 0..milliseconds.div_ceil(turn) {
            self.now = self.now.plus(Duration::from_millis(turn));
            self.turn();
        }
    }

    /// A packet comes to a node. Returns what comes out.
    pub(super) fn send(&mut self, node: usize, from_inside: bool, packet: &[u8]) -> Out {
        let frame = if from_inside { to_inside(packet) } else { to_outside(packet) };
        self.send_frame(node, from_inside, &frame)
    }

    pub(super) fn send_frame(&mut self, node: usize, from_inside: bool, frame: &[u8]) -> Out {
        let side = usize::from(!from_inside);
        // Errors about earlier packets may have come late.
        self.out.clear();
        self.nodes[node].as_ref().expect("it runs").wires[side].send(frame);
        self.run(30);
        std::mem::take(&mut self.out)
    }

    /// A packet from inside comes to a node. Returns the node that it leaves by, and its source
    /// then.
    pub(super) fn outbound(&mut self, node: usize, packet: &[u8]) -> Option<(usize, End)> {
        let out = self.send(node, true, packet);
        let (by, is_inside, packet) = one(&out)?;
        assert!(!is_inside, "{packet:?} comes back");
        Some((*by, source(packet)))
    }

    /// A packet from outside comes to a node. Returns the node that it leaves by, and its
    /// destination then.
    pub(super) fn inbound(&mut self, node: usize, packet: &[u8]) -> Option<(usize, End)> {
        let out = self.send(node, false, packet);
        let (by, is_inside, packet) = one(&out)?;
        assert!(is_inside, "{packet:?} goes back");
        Some((*by, destination(packet)))
    }

    /// A packet that begins a mapping comes to a node. A worker without ports borrows some first.
    pub(super) fn begin(&mut self, node: usize, packet: &[u8]) -> (usize, End) {
        let begun = (0..4).find_map(|_| self.outbound(node, packet));
        begun.expect("it leaves")
    }

    /// A flow of a host whose first packet comes to a node.
    pub(super) fn flow(&mut self, node: usize, host: End) -> End {
        let (by, external) = self.begin(node, &question(host));
        assert_eq!((by, external.0), (node, [OF_A, OF_B][node]));
        external
    }

    pub(super) fn ask(&mut self, node: usize, request: FleetRequest) -> FleetAnswer {
        let asker = self.nodes[node].as_ref().expect("it runs").asker.clone();
        let asking = std::thread::spawn(move || asker.ask(request));
        while !asking.is_finished() {
            self.turn();
        }
        asking.join().expect("it ends")
    }

    pub(super) fn status(&mut self, node: usize) -> FleetStatus {
        self.ask(node, FleetRequest::Status).expect("a state")
    }

    pub(super) fn counters(&mut self, node: usize) -> TunnelCounters {
        self.status(node).tunnel
    }

    pub(super) fn mappings(&mut self, node: usize) -> usize {
        let now = self.now;
        let workers = self.nodes[node].iter_mut().flat_map(|node| &mut node.workers);
        workers.map(|worker| worker.status(now).engine.mappings().count()).sum()
    }

    pub(super) fn drops(&mut self, node: usize, reason: DropReason) -> u64 {
        let now = self.now;
        let workers = self.nodes[node].iter_mut().flat_map(|node| &mut node.workers);
        workers.map(|worker| worker.status(now).counters.drops[reason as usize]).sum()
    }

    /// The process of a node ends. Its guardian tells the other node so, if there is one.
    pub(super) fn end(&mut self, node: usize, has_guardian: bool) {
        self.nodes[node] = None;
        let mut cable = self.cable();
        if has_guardian && !cable.is_cut {
            cable.ends[1 - node] = Some(cable.beats[node]);
        }
    }
}
