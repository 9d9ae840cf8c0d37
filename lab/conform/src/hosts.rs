//! The hosts on both sides. They answer ARP, find the translator by ARP, and keep received packets.
//!
//! A host is only an address; all hosts of a side share one hardware address. Each host has a queue
//! of packets until its test takes them. Packets to other addresses are dropped, and frames to
//! other stations are ignored.

use crate::bench::Bench;
use crate::hosts6::Hosts6;
use crate::packet::Received;
use natgate_engine::Side;
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::Ipv4Addr;

/// Most waiting packets of one host; later ones are lost.
const MOST_WAITING: usize = 8192;

/// All hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// Addresses with ARP answers, `[inside, outside]`.
    present: [HashSet<Ipv4Addr>; 2],
    boxes: HashMap<(Side, Ipv4Addr), VecDeque<Received>>,
    /// Hardware addresses from ARP replies.
    found: HashMap<(Side, Ipv4Addr), Mac>,
    /// Source hardware address of the latest packet, `[inside, outside]`.
    translator: [Option<Mac>; 2],
    /// IPv6 addresses of the inside.
    pub(crate) six: Hosts6,
}

impl Hosts {
    /// Makes a host present from now on.
    pub(crate) fn appear(&mut self, side: Side, address: Ipv4Addr) {
        self.present[side as usize].insert(address);
    }

    /// Empties a host's queue.
    pub(crate) fn clear(&mut self, side: Side, address: Ipv4Addr) {
        self.boxes.remove(&(side, address));
    }

    /// Sends an ARP request for an address.
    pub(crate) fn ask(bench: &mut dyn Bench, side: Side, sender: Ipv4Addr, target: Ipv4Addr) {
        let request = Repr {
            operation: Operation::Request,
            sender_mac: bench.mac(side),
            sender,
            target_mac: Mac::default(),
            target,
        };
        bench.send(side, &request.frame(Mac::BROADCAST));
    }

    /// Hardware address of a host, if an answer has come.
    pub(crate) fn found(&self, side: Side, address: Ipv4Addr) -> Option<Mac> {
        self.found.get(&(side, address)).copied()
    }

    /// Hardware address of the translator on a side: the source of the latest packet.
    pub(crate) fn translator(&self, side: Side) -> Option<Mac> {
        self.translator[side as usize]
    }

    /// Sets the hardware address for packets to the translator.
    pub(crate) fn set_translator(&mut self, side: Side, mac: Mac) {
        self.translator[side as usize] = Some(mac);
    }

    /// Processes a received frame.
    pub(crate) fn take_in(&mut self, bench: &mut dyn Bench, side: Side, frame: &[u8]) {
        let Some((destination, source, kind)) = arp::read_ethernet(frame) else { return };
        let own = bench.mac(side);
        if source == own || (destination != own && destination.is_station()) {
            return;
        }
        match kind {
            ethertype::ARP => self.take_in_arp(bench, side, frame),
            ethertype::IPV4 => {
                if let Some(packet) = Received::new(bench.now(), &frame[ETHERNET_LEN..]) {
                    self.translator[side as usize] = Some(source);
                    let to = Ipv4Addr::from_bits(packet.ip().destination());
                    self.keep(side, to, packet);
                }
            }
            ethertype::IPV6 if side == Side::Inside => {
                self.six.take_in(bench, source, &frame[ETHERNET_LEN..]);
            }
            _ => {}
        }
    }

    fn keep(&mut self, side: Side, to: Ipv4Addr, packet: Received) {
        if self.present[side as usize].contains(&to) {
            let waiting = self.boxes.entry((side, to)).or_default();
            if waiting.len() < MOST_WAITING {
                waiting.push_back(packet);
            }
        }
    }

    fn take_in_arp(&mut self, bench: &mut dyn Bench, side: Side, frame: &[u8]) {
        let Some(message) = Arp::new_checked(&frame[ETHERNET_LEN..]) else { return };
        let message = message.repr();
        match message.operation {
            Operation::Reply => {
                self.found.insert((side, message.sender), message.sender_mac);
            }
            Operation::Request if self.present[side as usize].contains(&message.target) => {
                let reply = Repr {
                    operation: Operation::Reply,
                    sender_mac: bench.mac(side),
                    sender: message.target,
                    target_mac: message.sender_mac,
                    target: message.sender,
                };
                bench.send(side, &reply.frame(message.sender_mac));
            }
            Operation::Request => {}
        }
    }

    /// Takes the oldest packet to a host that satisfies a condition.
    pub(crate) fn take(
        &mut self,
        side: Side,
        address: Ipv4Addr,
        wanted: &dyn Fn(&Received) -> bool,
    ) -> Option<Received> {
        let waiting = self.boxes.get_mut(&(side, address))?;
        let at = waiting.iter().position(wanted)?;
        waiting.remove(at)
    }
}
