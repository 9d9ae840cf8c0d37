//! Ports whose mapping is at another worker than the one that gives out the port.
//!
//! Only a gateway of a pair has such ports: the partner has other workers, or its workers have
//! other ports. A copied mapping is at the worker of its host. The list has an entry for each port
//! of an address that has had such a mapping, so an inbound packet finds its worker in one step.

use super::{Partition, WORDS};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Protocols with ports, in the order of the list.
const PROTOCOLS: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

const PORTS: usize = 64 * WORDS;

/// Strays of an address: for each protocol and port the number of the worker plus one, or 0.
#[derive(Default)]
pub(super) struct Strays(OnceLock<Box<[AtomicU8]>>);

impl Strays {
    fn place(own: u8, port: u16) -> Option<usize> {
        let protocol = PROTOCOLS.iter().position(|protocol| *protocol == own)?;
        Some(protocol * PORTS + usize::from(port))
    }

    /// Worker of a port's mapping, if it is not the one that gives out the port.
    #[inline]
    pub(super) fn worker(&self, own: u8, port: u16) -> Option<usize> {
        let list = self.0.get()?;
        let worker = list[Self::place(own, port)?].load(Ordering::Acquire);
        usize::from(worker).checked_sub(1)
    }

    fn set(&self, own: u8, port: u16, worker: usize) {
        let Some(place) = Self::place(own, port) else { return };
        let none = || (0..PROTOCOLS.len() * PORTS).map(|_| AtomicU8::new(0)).collect();
        self.0.get_or_init(none)[place].store(worker as u8 + 1, Ordering::Release);
    }

    fn clear(&self, own: u8, port: u16) {
        if let Some((list, place)) = self.0.get().zip(Self::place(own, port)) {
            list[place].store(0, Ordering::Release);
        }
    }

    fn clear_of(&self, own: u8, port: u16, worker: usize) -> bool {
        let Some((list, place)) = self.0.get().zip(Self::place(own, port)) else { return false };
        let is_its = worker as u8 + 1;
        list[place].compare_exchange(is_its, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Partition {
    /// A worker has a copied mapping now. If packets to its port would find another worker, they
    /// find this one from now on.
    pub(crate) fn note_copy(&self, worker: usize, own: u8, address: Ipv4Addr, port: u16) {
        let Some(row) = self.row(address.to_bits()) else { return };
        if !PROTOCOLS.contains(&own) {
            // All workers are asked for a packet without ports.
            let is_only = row.owners.of(0) == worker;
            row.owners.split.fetch_or(!is_only, Ordering::Relaxed);
            return;
        }
        if self.gives_out(row, own, port) == Some(worker) {
            row.owners.strays.clear(own, port);
        } else {
            row.owners.split.store(true, Ordering::Relaxed);
            row.owners.strays.set(own, port, worker);
        }
    }

    /// The mapping of a port has ended at a worker. Returns the worker that gives out the port, if
    /// it is another one that may guard the port.
    pub(crate) fn note_end(
        &self,
        worker: usize,
        own: u8,
        address: Ipv4Addr,
        port: u16,
    ) -> Option<usize> {
        let row = self.row(address.to_bits())?;
        let is_stray = row.owners.strays.clear_of(own, port, worker);
        is_stray.then(|| row.owners.of(usize::from(port) / 64)).filter(|other| *other != worker)
    }

    /// Worker of a port's mapping, if it is a stray.
    pub(crate) fn stray(&self, own: u8, address: Ipv4Addr, port: u16) -> Option<usize> {
        self.row(address.to_bits())?.owners.strays.worker(own, port)
    }

    /// Ports that a worker gives out of an address and whose mappings other workers have: protocol
    /// and port.
    pub(crate) fn strays_in_part(&self, worker: usize, address: Ipv4Addr) -> Vec<(u8, u16)> {
        let Some(row) = self.row(address.to_bits()) else { return Vec::new() };
        let Some(list) = row.owners.strays.0.get() else { return Vec::new() };
        let words = row.owners.stretches(worker);
        let ports = || words.iter().flat_map(|words| words.start * 64..words.end * 64);
        let all = PROTOCOLS.iter().enumerate().flat_map(|(at, own)| {
            ports().map(move |port| (at * PORTS + port, (*own, port as u16)))
        });
        let is_others = |place: usize| {
            let of = list[place].load(Ordering::Acquire);
            of != 0 && usize::from(of) != worker + 1
        };
        all.filter(|(place, _)| is_others(*place)).map(|(_, port)| port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::PacketOwner;
    use super::*;
    use natgate_engine::{AddressRange, Config, PoolConfig};

    #[test]
    fn a_stray_leads_to_its_worker_until_its_mapping_has_ended() {
        const UDP: u8 = protocol::UDP;
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let partition = Partition::new(&Config { pools, ..Config::default() }, None, 3, None);
        let row = partition.row(address.to_bits()).expect("it is external");
        let leads_to = |port| partition.of_external(row, UDP, port);
        let port = row.owners.stretches(0)[0].end as u16 * 64 - 1;
        partition.note_copy(0, UDP, address, port);
        assert_eq!(partition.stray(UDP, address, port), None, "it is at home");
        partition.note_copy(2, UDP, address, port);
        assert_eq!(leads_to(port), PacketOwner::Of(2));
        assert_eq!(partition.of_external(row, protocol::TCP, port), PacketOwner::Of(0));
        assert_eq!(leads_to(port - 1), PacketOwner::Of(0));
        assert_eq!(partition.strays_in_part(0, address), [(UDP, port)]);
        assert!(partition.strays_in_part(2, address).is_empty());
        assert_eq!(partition.note_end(1, UDP, address, port), None, "another's mapping");
        assert_eq!(partition.note_end(2, UDP, address, port), Some(0));
        assert_eq!(
            (leads_to(port), partition.stray(UDP, address, port)),
            (PacketOwner::Of(0), None)
        );
        assert_eq!(partition.note_end(2, UDP, address, port), None, "it has ended");
    }
}
