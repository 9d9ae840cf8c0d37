//! The realm of the translator of IPv4 in which addresses stand for hosts: those of NAT64, or those
//! behind the tunnels of DS-Lite. Packets that leave for the realm become packets for hosts.

use super::hosts::Host;
use super::{Departure, Families};
use crate::{Effects, Transmit};
use natgate_engine::{Counters, DropReason, Outcome, Side, Verdict};
use std::net::Ipv4Addr;

impl Families {
    /// The number of the realm.
    pub(crate) fn realm(&self) -> Option<u16> {
        let has_hosts = self.settings.nat64.is_some() || self.settings.dslite.is_some();
        has_hosts.then_some(self.config.realms.len() as u16)
    }

    /// Forgets the hosts that do not count any more, by the translator's choice. Returns a host
    /// that has a mapping and must not be forgotten.
    pub fn forget_hosts(&mut self, counts: impl Fn(Host) -> bool) -> Option<Host> {
        self.hosts.forget(counts);
        self.tunnels.forget(&self.hosts);
        let realm = self.realm()?;
        let mappings = self.ipv4.mappings();
        let places = mappings.iter().filter(|one| one.id.realm == realm);
        let mut places = places.map(|one| one.id.internal.address.to_bits());
        places.find(|place| self.hosts.is_gone(*place)).and_then(|place| self.hosts.host(place))
    }

    /// The address that stands for a host in the realm.
    pub fn place_of(&self, host: Host) -> Option<Ipv4Addr> {
        self.hosts.place(host).map(Ipv4Addr::from_bits)
    }

    /// Direction and outcome of the packet that the translator of IPv4 has just counted.
    pub(crate) fn counted_since(&self, before: &Counters) -> (usize, usize) {
        let after = &self.ipv4.counters().packets;
        let places = (0..after.len()).flat_map(|way| (0..3).map(move |outcome| (way, outcome)));
        let mut counted =
            places.filter(|&(way, outcome)| after[way][outcome] != before.packets[way][outcome]);
        counted.next().expect("each packet is counted once")
    }

    /// The way on of a packet that the translator of IPv4 has taken, and of the packets that it
    /// made. `received` is the packet that came, `before` were the counters then.
    pub(crate) fn depart(
        &mut self,
        received: &[u8],
        before: &Counters,
        result: crate::Expected,
    ) -> (Option<Departure>, Effects) {
        let crate::Expected { verdict, bytes, realm, mut made } = result;
        self.convert_made(received, &mut made);
        let (side, answers) = match verdict {
            Verdict::Forward(side) => (side, false),
            Verdict::Reply(side) => (side, true),
            _ => return (None, made),
        };
        if side == Side::Outside || self.realm() != Some(realm) {
            let realm = if side == Side::Inside { realm } else { 0 };
            return (Some(Departure { side, realm, answers, packets: vec![bytes] }), made);
        }
        match self.to_host((&bytes, false), received) {
            Ok(packets) => (Some(Departure { side, realm: 0, answers, packets }), made),
            Err(reason) => {
                self.recount(received.len(), before, reason);
                (None, made)
            }
        }
    }

    /// Counts a packet as dropped that was counted as forwarded or answered.
    fn recount(&mut self, len: usize, before: &Counters, reason: DropReason) {
        let (way, outcome) = self.counted_since(before);
        self.taken_back.packets[way][outcome] += 1;
        self.taken_back.bytes[way][outcome] += len as u64;
        let dropped = Outcome::Dropped as usize;
        self.counters.packets[way][dropped] += 1;
        self.counters.bytes[way][dropped] += len as u64;
        self.counters.drops[reason as usize] += 1;
    }

    /// The packets that the translator of IPv4 made for hosts become packets of IPv6.
    pub(crate) fn convert_made(&mut self, received: &[u8], made: &mut Effects) {
        let realm = self.realm();
        let convert = |mut one: Transmit| {
            if one.side == Side::Inside && Some(one.realm) == realm {
                one.bytes = self.to_host((&one.bytes, true), received).ok()?.remove(0);
                one.realm = 0;
            }
            Some(one)
        };
        made.transmits =
            std::mem::take(&mut made.transmits).into_iter().filter_map(convert).collect();
    }

    /// A packet to a host, or its fragments.
    fn to_host(
        &self,
        (bytes, is_made): (&[u8], bool),
        received: &[u8],
    ) -> Result<Vec<Vec<u8>>, DropReason> {
        match &self.settings.nat64 {
            Some(nat64) => self.to_nat64_host(nat64, (bytes, is_made), received),
            None => self.to_tunnel(bytes),
        }
    }
}
