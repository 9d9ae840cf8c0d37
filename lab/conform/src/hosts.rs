//! The hosts on both sides: they answer ARP, find the translator by ARP, and keep what comes.
//!
//! A host is an address, nothing more; all of a side share one hardware address. Each has a box in
//! which packets to it gather until its test takes them. What goes to addresses that nobody leads
//! is dropped. Frames to other stations are not looked at.

use crate::bench::Bench;
use crate::packet::Received;
use natgate_engine::Side;
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::Ipv4Addr;

/// Most packets that wait for one host's test; later ones are lost.
const MOST_WAITING: usize = 8192;

/// All hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// Addresses that are answered for, `[inside, outside]`.
    present: [HashSet<Ipv4Addr>; 2],
    boxes: HashMap<(Side, Ipv4Addr), VecDeque<Received>>,
    /// Who has which address, as ARP replies said.
    found: HashMap<(Side, Ipv4Addr), Mac>,
    /// The hardware address that packets came from last, `[inside, outside]`.
    translator: [Option<Mac>; 2],
}

impl Hosts {
    /// Lets a host be there from now on.
    pub(crate) fn appear(&mut self, side: Side, address: Ipv4Addr) {
        self.present[side as usize].insert(address);
    }

    /// Empties a host's box.
    pub(crate) fn clear(&mut self, side: Side, address: Ipv4Addr) {
        self.boxes.remove(&(side, address));
    }

    /// Asks by ARP who has an address.
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

    /// Who has an address, if an answer has come.
    pub(crate) fn found(&self, side: Side, address: Ipv4Addr) -> Option<Mac> {
        self.found.get(&(side, address)).copied()
    }

    /// The translator's hardware address on a side: the one that packets came from last.
    pub(crate) fn translator(&self, side: Side) -> Option<Mac> {
        self.translator[side as usize]
    }

    /// Says which hardware address packets to the translator go to.
    pub(crate) fn set_translator(&mut self, side: Side, mac: Mac) {
        self.translator[side as usize] = Some(mac);
    }

    /// Takes in a frame.
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

    /// Takes the oldest packet to a host that is wanted.
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
