//! Two translators between two ends, and the program at the ends.
//!
//! ```text
//!              +--- inside [natgate] outside ---+
//! [ends] in0 --+                                +-- out0 [ends]
//!        in1 --+---  inside [linux] outside  ---+-- out1
//! ```
//!
//! The ends have no addresses: this test answers ARP for every host, and sees every frame. After
//! the packets of a step the test pings the translator from both sides, three times in all. natgate
//! sends fragmented packets after unfragmented ones, and sends both before the packets of the next
//! round. So no packet can come after the last answer.

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use natgate_engine::Side;
use natgate_io::packet::{Config, PacketDevice};
use natgate_io::{Batch, Device, Frame, Lost, wait};
use natgate_testnet::{Gateway, Namespace, Network, Turn};
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Icmp, Ipv4, protocol};

use crate::observation::{Observation, PortHistory};
use crate::packets::{Body, Packet};
use crate::script::{self, Step};

const TAG: &str = "ngdiff";

/// Longest wait for an answer to a ping.
const PATIENCE: Duration = Duration::from_secs(5);

/// natgate's delay before its answer to an unexpected SYN, with a margin.
const LATE: Duration = Duration::from_millis(6500);

/// Identifier of this test's own pings.
const PING: u16 = 0xbbbb;

/// A subscriber that only pings.
const PINGER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 250);

/// MTU of both translators' outside.
pub(crate) const OUTSIDE_MTU: u32 = 1400;

/// A compared translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Translator {
    Natgate,
    Linux,
}

impl Translator {
    pub(crate) const ALL: [Self; 2] = [Self::Natgate, Self::Linux];

    fn node(self) -> &'static str {
        match self {
            Self::Natgate => "natgate",
            Self::Linux => "linux",
        }
    }
}

/// The whole laboratory. Its fields are dropped in their order.
pub(crate) struct Lab {
    _gateway: Gateway,
    network: Network,
    _turn: Turn,
}

impl Lab {
    pub(crate) fn build() -> Self {
        let turn = Turn::take(TAG);
        let mut network = Network::empty(&turn.name()).unwrap();
        network.add("ends").unwrap();
        for (number, translator) in Translator::ALL.iter().enumerate() {
            let node = translator.node();
            network.add(node).unwrap();
            for (side, mac, end) in [("inside", 1, "in"), ("outside", 2, "out")] {
                network.cable([node, side, "ends", &format!("{end}{number}")]).unwrap();
                let line = format!("link set {side} address 02:00:00:00:00:{mac:02x}\n");
                network.node(node).ip_batch(&line).unwrap();
            }
            let line = format!("link set outside mtu {OUTSIDE_MTU}\n");
            network.node(node).ip_batch(&line).unwrap();
        }
        masquerade(network.node("linux"), &network.file("nft"));
        let gateway = Gateway::start_in(
            &network,
            "natgate",
            Path::new(env!("CARGO_BIN_EXE_natgate")),
            CONFIG,
        );
        Self { _gateway: gateway.unwrap(), network, _turn: turn }
    }

    /// Sends every step through both translators; returns the observations.
    pub(crate) fn run(&self, steps: &[Step]) -> Vec<[Vec<Observation>; 2]> {
        let ends = self.network.node("ends");
        let play = |number| ends.enter(|| Ends::open(number).play(steps)).unwrap();
        let [natgate, linux] = thread::scope(|scope| {
            [0, 1].map(|number| scope.spawn(move || play(number))).map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        natgate.into_iter().zip(linux).map(|(natgate, linux)| [natgate, linux]).collect()
    }
}

/// The configuration most similar to Linux: one address for the gateway and its subscribers,
/// preserved ports where possible, and answers only from endpoints that a packet was sent to.
const CONFIG: &str = "[inside]\n\
     device = \"inside\"\n\
     address = \"10.0.0.1/24\"\n\
     [outside]\n\
     device = \"outside\"\n\
     address = \"192.0.2.2/24\"\n\
     gateway = \"192.0.2.1\"\n\
     mtu = 1400\n\
     [[pool]]\n\
     addresses = [\"192.0.2.2\"]\n\
     ports = \"1-65535\"\n\
     [nat]\n\
     allocation = \"preserve\"\n\
     filtering = \"address-and-port-dependent\"\n\
     [[static]]\n\
     internal = \"10.0.0.11:8080\"\n\
     external = \"192.0.2.2:80\"\n\
     protocol = \"tcp\"\n\
     [[static]]\n\
     internal = \"10.0.0.12:853\"\n\
     external = \"192.0.2.2:53\"\n\
     protocol = \"udp\"\n\
     [limits]\n\
     new_mappings_per_second = 100000\n";

/// Configures the kernel of this namespace as a translator.
fn masquerade(node: &Namespace, file: &Path) {
    node.ip_batch(
        "link set lo up\n\
         address add 10.0.0.1/24 dev inside\n\
         address add 192.0.2.2/24 dev outside\n\
         route add default via 192.0.2.1\n",
    )
    .unwrap();
    // ICMP without a rate limit, and no redirects: they are not compared.
    for (key, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv4/icmp_ratelimit", "0"),
        ("ipv4/icmp_msgs_per_sec", "100000"),
        ("ipv4/icmp_msgs_burst", "100000"),
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/inside/send_redirects", "0"),
        ("ipv4/conf/outside/send_redirects", "0"),
    ] {
        node.set(key, value).unwrap();
    }
    let rules = "table ip nat {\n\
                   chain prerouting {\n\
                     type nat hook prerouting priority dstnat;\n\
                     iifname outside tcp dport 80 dnat to 10.0.0.11:8080\n\
                     iifname outside udp dport 53 dnat to 10.0.0.12:853\n\
                   }\n\
                   chain postrouting {\n\
                     type nat hook postrouting priority srcnat;\n\
                     oifname outside masquerade\n\
                   }\n\
                 }\n";
    std::fs::write(file, rules).unwrap();
    node.run(10, "nft", &["-f", file.to_str().unwrap()]).unwrap();
}

/// Both ends of one translator.
struct Ends {
    inside: End,
    outside: End,
    pings: u16,
}

impl Ends {
    fn open(number: usize) -> Self {
        Self {
            inside: End::open(&format!("in{number}"), 1),
            outside: End::open(&format!("out{number}"), 2),
            pings: 0,
        }
    }

    /// Plays all steps, one after the other. Then it adds late packets to their steps.
    fn play(mut self, steps: &[Step]) -> Vec<Vec<Observation>> {
        self.introduce();
        let mut known = PortHistory::default();
        let mut results: Vec<Vec<Observation>> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let sent = (step.packets)(&known);
            for packet in &sent {
                self.end(step.side).send(packet);
            }
            results.push(Vec::new());
            let came = self.settle(step.side);
            note(&steps[..=number], came, &mut results, &mut known);
        }
        thread::sleep(LATE);
        let came = self.settle(Side::Inside);
        note(steps, came, &mut results, &mut known);
        results
    }

    /// Makes the translator ask for the hardware address of every host, so that later no packet
    /// waits for an answer.
    fn introduce(&mut self) {
        self.settle(Side::Inside);
        for host in script::HOSTS {
            let ping = echo((host, PING), (Ipv4Addr::new(10, 0, 0, 1), 0), 0);
            self.inside.send(&ping);
            self.settle(Side::Inside);
        }
        let outward = echo((PINGER, 1), (Ipv4Addr::new(198, 51, 100, 99), 0), 0);
        for _ in 0..2 {
            self.inside.send(&outward);
            self.settle(Side::Inside);
        }
    }

    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Inside => &mut self.inside,
            Side::Outside => &mut self.outside,
        }
    }

    /// Waits until the translator has processed all packets sent on that side. Returns the packets
    /// that came out, those of the inside first.
    fn settle(&mut self, side: Side) -> Vec<(Side, Vec<u8>)> {
        for side in [side, side.other(), side] {
            self.pings = self.pings.wrapping_add(1);
            self.ping(side);
        }
        let mut came = Vec::new();
        for side in [Side::Inside, Side::Outside] {
            self.inside.receive();
            self.outside.receive();
            let waiting = std::mem::take(&mut self.end(side).waiting);
            came.extend(waiting.into_iter().map(|bytes| (side, bytes)));
        }
        came.retain(|(_, bytes)| own_ping(bytes).is_none());
        came
    }

    /// Pings the translator from one side, and waits for the answer.
    fn ping(&mut self, side: Side) {
        let sequence = self.pings;
        let (from, to) = match side {
            Side::Inside => (PINGER, Ipv4Addr::new(10, 0, 0, 1)),
            Side::Outside => (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)),
        };
        self.end(side).send(&echo((from, PING), (to, 0), sequence));
        let end = Instant::now() + PATIENCE;
        loop {
            self.inside.receive();
            self.outside.receive();
            let mut waiting = self.end(side).waiting.iter();
            if waiting.any(|bytes| own_ping(bytes) == Some(sequence)) {
                return;
            }
            assert!(Instant::now() < end, "no answer to a ping on the {side:?}");
            let [inside, outside] = [&self.inside, &self.outside]
                .map(|end| end.device.readiness().expect("the device is there"));
            wait(&[inside, outside], Duration::from_millis(10)).unwrap();
        }
    }
}

fn echo(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), sequence: u16) -> Vec<u8> {
    let rest = [from.1.to_be_bytes(), sequence.to_be_bytes()].concat();
    Packet::new(from.0, to.0, Body::Icmp { kind: 8, code: 0, rest }).bytes()
}

/// Sequence number of an answer to one of this test's own pings.
fn own_ping(bytes: &[u8]) -> Option<u16> {
    let packet = Ipv4::new_checked(bytes).ok()?;
    let icmp = Icmp::new_checked(packet.payload())?;
    let own = packet.protocol() == protocol::ICMP && icmp.kind() == 0 && icmp.identifier() == PING;
    own.then(|| u16::from_be_bytes([packet.payload()[6], packet.payload()[7]]))
}

/// Adds a packet to the results of its step: the last step, unless the packet is the late answer to
/// an earlier one.
fn note(
    steps: &[Step],
    came: Vec<(Side, Vec<u8>)>,
    results: &mut [Vec<Observation>],
    known: &mut PortHistory,
) {
    for (side, bytes) in came {
        let late = steps.iter().position(|step| step.is_answered_late_by(side, &bytes));
        let index = late.unwrap_or(steps.len() - 1);
        let sent = (steps[index].packets)(known);
        results[index].push(Observation::new(&steps[index], &sent, side, &bytes, known));
    }
}

/// One end of a cable, with all hosts behind it.
struct End {
    device: PacketDevice,
    translator: Mac,
    waiting: Vec<Vec<u8>>,
}

impl End {
    fn open(name: &str, mac: u8) -> Self {
        let device = PacketDevice::open(name, Config::default()).unwrap();
        Self { device, translator: Mac([2, 0, 0, 0, 0, mac]), waiting: Vec::new() }
    }

    /// Sends an IP packet to the translator.
    fn send(&mut self, packet: &[u8]) {
        let mut frame = [&self.translator.0[..], &self.device.link().mac.0].concat();
        frame.extend(ethertype::IPV4.to_be_bytes());
        frame.extend(packet);
        self.transmit(frame);
    }

    fn transmit(&mut self, mut frame: Vec<u8>) {
        let end = frame.len();
        let lost = self.device.split().1.transmit(&mut [Frame::of(&mut frame, 0, end)]);
        assert_eq!(lost, Lost::NONE, "{frame:02x?}");
    }

    /// Takes received IP packets, and answers ARP.
    fn receive(&mut self) {
        loop {
            let mut batch = Batch::new();
            self.device.split().0.receive(&mut batch);
            let frames: Vec<_> = batch.iter().map(|frame| frame.bytes().to_vec()).collect();
            drop(batch);
            if frames.is_empty() {
                return;
            }
            for frame in frames {
                match arp::read_ethernet(&frame) {
                    Some((_, _, ethertype::IPV4)) => {
                        self.waiting.push(frame[ETHERNET_LEN..].into())
                    }
                    Some((_, _, ethertype::ARP)) => self.answer(&frame[ETHERNET_LEN..]),
                    _ => panic!("a frame that nobody expects: {frame:02x?}"),
                }
            }
        }
    }

    /// Answers ARP for all hosts with one hardware address.
    fn answer(&mut self, request: &[u8]) {
        let Some(request) = Arp::new_checked(request).map(|message| message.repr()) else { return };
        let own = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 2)];
        if request.operation != Operation::Request || own.contains(&request.target) {
            return;
        }
        let reply = Repr {
            operation: Operation::Reply,
            sender_mac: self.device.link().mac,
            sender: request.target,
            target_mac: request.sender_mac,
            target: request.sender,
        };
        self.transmit(reply.frame(request.sender_mac).to_vec());
    }
}
