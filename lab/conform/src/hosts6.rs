//! The inside hosts' IPv6 addresses. They answer neighbor solicitations, find the translator by
//! one, and keep received packets.
//!
//! As for IPv4, a host is only an address, and all hosts share one hardware address. Packets to
//! other addresses are dropped.

use crate::bench::Bench;
use crate::packet6::Received6;
use natgate_engine::Side;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::nd::{self, Advertisement, Message, Solicitation, group_mac, solicited_node};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::Ipv6Addr;

/// Most waiting packets of one host; later ones are lost.
const MOST_WAITING: usize = 8192;

/// All hosts of the inside.
#[derive(Debug, Default)]
pub(crate) struct Hosts6 {
    /// Addresses with answers to solicitations.
    present: HashSet<Ipv6Addr>,
    boxes: HashMap<Ipv6Addr, VecDeque<Received6>>,
    /// Hardware addresses from advertisements.
    found: HashMap<Ipv6Addr, Mac>,
}

impl Hosts6 {
    /// Makes a host present from now on.
    pub(crate) fn appear(&mut self, address: Ipv6Addr) {
        self.present.insert(address);
    }

    /// Empties a host's queue.
    pub(crate) fn clear(&mut self, address: Ipv6Addr) {
        self.boxes.remove(&address);
    }

    /// Sends a neighbor solicitation for an address.
    pub(crate) fn ask(bench: &mut dyn Bench, sender: Ipv6Addr, target: Ipv6Addr) {
        let group = solicited_node(target);
        let solicitation = Solicitation { target, mac: bench.mac(Side::Inside) };
        send(bench, group_mac(group), solicitation.packet(Some(sender), group).bytes());
    }

    /// Hardware address of a host, if an advertisement has come.
    pub(crate) fn found(&self, address: Ipv6Addr) -> Option<Mac> {
        self.found.get(&address).copied()
    }

    /// Processes a received packet from a station.
    pub(crate) fn take_in(&mut self, bench: &mut dyn Bench, station: Mac, packet: &[u8]) {
        let Some(received) = Received6::new(bench.now(), packet) else { return };
        match nd::read(&received.bytes) {
            Ok(Message::NeighborSolicitation { target, .. }) if self.present.contains(&target) => {
                let advertisement = Advertisement {
                    target,
                    mac: Some(bench.mac(Side::Inside)),
                    router: false,
                    solicited: true,
                    replaces: true,
                };
                send(bench, station, &advertisement.packet(target, *received.source().ip()));
            }
            Ok(Message::NeighborAdvertisement(said)) => {
                self.found.insert(said.target, said.mac.unwrap_or(station));
            }
            Ok(_) => {}
            Err(_) => self.keep(received),
        }
    }

    fn keep(&mut self, packet: Received6) {
        let to = *packet.destination().ip();
        if self.present.contains(&to) {
            let waiting = self.boxes.entry(to).or_default();
            if waiting.len() < MOST_WAITING {
                waiting.push_back(packet);
            }
        }
    }

    /// Takes the oldest packet to a host that satisfies a condition.
    pub(crate) fn take(
        &mut self,
        address: Ipv6Addr,
        wanted: &dyn Fn(&Received6) -> bool,
    ) -> Option<Received6> {
        let waiting = self.boxes.get_mut(&address)?;
        let at = waiting.iter().position(wanted)?;
        waiting.remove(at)
    }
}

/// Sends a packet of IPv6 to a station on the inside.
pub(crate) fn send(bench: &mut dyn Bench, to: Mac, packet: &[u8]) {
    let mut frame = vec![0; ETHERNET_LEN];
    if let Some(header) = frame.first_chunk_mut() {
        arp::write_ethernet(header, to, bench.mac(Side::Inside), ethertype::IPV6);
    }
    frame.extend(packet);
    bench.send(Side::Inside, &frame);
}
