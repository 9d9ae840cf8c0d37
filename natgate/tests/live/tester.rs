//! A sender at full speed and a receiver that counts: packet sockets on the far ends of the
//! gateway's two cables. The kernel's counters show its losses between the ends of a cable.

use natgate_io::packet::{Config, PacketDevice};
use natgate_io::{BATCH, Batch, Device, Frame, HEADROOM};
use natgate_testnet::{Gateway, Network, Turn, config_with_pool};
use natgate_wire::arp::{Arp, Mac, Operation, Repr, read_ethernet, write_ethernet};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::udp::Udp;
use natgate_wire::{Ipv4, checksum};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

/// First address of the remote hosts.
const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);

/// Creates the gateway's machine and a tester, with a cable on each side.
pub(super) fn network(turn: &Turn) -> Network {
    let mut network = Network::empty(&turn.name()).unwrap();
    network.add("nat").unwrap();
    network.add("tester").unwrap();
    cables(&network, &["inside", "outside"]);
    network
}

/// Creates cables between devices of equal names.
pub(super) fn cables(network: &Network, devices: &[&str]) {
    for device in devices {
        network.cable(["nat", device, "tester", device]).unwrap();
    }
}

/// Starts a gateway with this back end and with a control socket of its own.
pub(super) fn start(network: &Network, backend: &str) -> Gateway {
    let socket = network.file("control.sock");
    let more = format!(
        "[control]\nsocket = {socket:?}\n[limits]\nmappings = 65536\nextra_sessions = 4096\n"
    );
    let text = config_with_pool("addresses = [\"203.0.113.0/28\"]", &more);
    let text = text.replace("af-packet", backend);
    Gateway::start_in(network, "nat", Path::new(super::PROGRAM), &text).unwrap()
}

/// One end of a cable.
pub(super) struct End {
    device: PacketDevice,
    /// Received packets without ARP.
    pub(super) packets: u64,
    /// Received ARP frames.
    pub(super) asked: u64,
    /// Sent ARP frames.
    pub(super) answered: u64,
}

impl End {
    /// Opens the end with this name. Call it, like all functions here, in the tester's namespace.
    pub(super) fn open(name: &str) -> Self {
        let config = Config { slots: 65_536, send_buffer: 16 << 20, ..Config::default() };
        let mut device = PacketDevice::open(name, config).unwrap();
        let begin = Instant::now();
        while !device.link().up {
            assert!(begin.elapsed() < Duration::from_secs(5), "{name} does not come up");
            device.maintain();
        }
        Self { device, packets: 0, asked: 0, answered: 0 }
    }

    pub(super) fn mac(&self) -> Mac {
        self.device.link().mac
    }

    /// Sent frames, and received frames including those that were lost for lack of room.
    pub(super) fn counts(&mut self) -> (u64, u64) {
        let counts = self.device.statistics();
        (counts.transmitted, counts.received + counts.receive_overrun)
    }

    /// Sends frames; returns the number of accepted ones.
    pub(super) fn send(&mut self, frames: &mut [Vec<u8>]) -> u64 {
        let mut batch: Batch<'_> = frames
            .iter_mut()
            .take(BATCH)
            .map(|frame| {
                let end = frame.len();
                Frame::of(frame, HEADROOM, end)
            })
            .collect();
        let lost = self.device.split().1.transmit(&mut batch);
        batch.len() as u64 - u64::from(lost.count())
    }

    /// Takes received packets, and answers ARP for all addresses.
    pub(super) fn serve(&mut self) -> Vec<Vec<u8>> {
        let (mac, mut replies, mut packets) = (self.mac(), Vec::new(), Vec::new());
        let mut batch = Batch::new();
        self.device.split().0.receive(&mut batch);
        for frame in &batch {
            match read_ethernet(frame.bytes()) {
                Some((_, _, ethertype::ARP)) => {
                    self.asked += 1;
                    replies.extend(reply(frame.bytes(), mac));
                }
                _ => packets.push(frame.bytes().to_vec()),
            }
        }
        drop(batch);
        self.packets += packets.len() as u64;
        if !replies.is_empty() {
            self.answered += self.send(&mut replies);
        }
        packets
    }

    /// Asks for the gateway's hardware address on behalf of `asker`.
    pub(super) fn find(&mut self, gateway: Ipv4Addr, asker: Ipv4Addr) -> Mac {
        let question = Repr {
            operation: Operation::Request,
            sender_mac: self.mac(),
            sender: asker,
            target_mac: Mac::default(),
            target: gateway,
        };
        let begin = Instant::now();
        loop {
            self.answered += self.send(&mut [with_headroom(&question.frame(Mac::BROADCAST))]);
            for _ in 0..1000 {
                let mut batch = Batch::new();
                self.device.split().0.receive(&mut batch);
                if let Some(frame) = batch.first() {
                    self.asked += batch.len() as u64;
                    let message = Arp::new_checked(&frame.bytes()[ETHERNET_LEN..]).unwrap().repr();
                    assert_eq!((message.operation, message.sender), (Operation::Reply, gateway));
                    return message.sender_mac;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            assert!(begin.elapsed() < Duration::from_secs(5), "nobody is {gateway}");
        }
    }
}

/// Answer to an ARP request; `None` for an announcement.
fn reply(frame: &[u8], mac: Mac) -> Option<Vec<u8>> {
    let message = Arp::new_checked(&frame[ETHERNET_LEN..])?.repr();
    let asks = message.operation == Operation::Request && message.sender != message.target;
    let reply = Repr {
        operation: Operation::Reply,
        sender_mac: mac,
        sender: message.target,
        target_mac: message.sender_mac,
        target: message.sender,
    };
    asks.then(|| with_headroom(&reply.frame(message.sender_mac)))
}

fn with_headroom(frame: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM], frame].concat()
}

/// Flaw of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Nothing,
    /// Time to live of 1: the packet may pass no further router.
    Ttl,
    /// A wrong header checksum.
    Checksum,
    /// A source that is no subscriber.
    Stranger,
    /// Another hardware address than the gateway's.
    Elsewhere,
    /// A frame without IPv4.
    Foreign,
}

/// A frame of 64 bytes from a subscriber to a remote host, behind headroom.
pub(super) fn outbound(number: u32, [from, gateway]: [Mac; 2], flaw: Flaw) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_LEN + 50];
    let (header, packet) = frame.split_at_mut(ETHERNET_LEN);
    let to = if flaw == Flaw::Elsewhere { Mac([2, 0, 0, 0, 0, 0x77]) } else { gateway };
    let kind = if flaw == Flaw::Foreign { 0x86dd } else { ethertype::IPV4 };
    write_ethernet(header.try_into().unwrap(), to, from, kind);
    let stranger = Ipv4Addr::new(11, 0, 0, 1).to_bits();
    let subscriber = Ipv4Addr::new(10, 0, 0, 0).to_bits() + 2 + number % 250;
    let source = if flaw == Flaw::Stranger { stranger } else { subscriber };
    let destination = REMOTE.to_bits() + 1 + number % 200;
    let (source_port, len) = (1024 + (number / 250 % 60_000) as u16, packet.len() as u16);
    let mut view = Ipv4::init(&mut *packet, 20);
    view.set_total_len(len);
    view.set_ttl(if flaw == Flaw::Ttl { 1 } else { 64 });
    view.set_protocol(17);
    view.set_source(source);
    view.set_destination(destination);
    view.fill_checksum();
    let mut datagram = Udp::new_checked(view.payload_mut()).unwrap();
    datagram.set_source_port(source_port);
    datagram.set_destination_port(4000);
    datagram.set_length(len - 20);
    let pseudo = checksum::pseudo_header(source, destination, 17, len - 20);
    let sum = !checksum::fold(checksum::sum(&packet[20..], pseudo));
    Udp::new_checked(&mut packet[20..]).unwrap().set_checksum(sum);
    if flaw == Flaw::Checksum {
        packet[10] ^= 0x55;
    }
    with_headroom(&frame)
}

/// Counter of a device in the namespace of the thread.
pub(super) fn counter(device: &str, name: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:")));
    let fields: Vec<u64> =
        line.unwrap().split_whitespace().map(|field| field.parse().unwrap()).collect();
    // Receive: bytes, packets, errors, drops, and four more. Then the eight counters of transmit.
    fields[match name {
        "rx_packets" => 1,
        "rx_dropped" => 3,
        "tx_packets" => 9,
        "tx_dropped" => 11,
        _ => panic!("{name}"),
    }]
}

/// Counters of the kernel at both ends of a cable: `[tester, nat]`.
pub(super) fn counters(network: &Network, device: &str, name: &str) -> [u64; 2] {
    ["tester", "nat"].map(|node| network.node(node).enter(|| counter(device, name)).unwrap())
}
