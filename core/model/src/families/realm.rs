//! The realms of the translator of IPv4 in which addresses stand for hosts: those of NAT64, and
//! those behind the tunnels of DS-Lite (specification, 19.13 and 20.21). They are behind all other
//! realms, in this order. Packets that leave for one of them become packets for hosts.

use super::hosts::{Host, Hosts};
use super::{Departure, Families};
use crate::{Effects, Transmit};
use natgate_engine::{Counters, DropReason, Outcome, Side, Verdict};
use std::net::Ipv4Addr;

impl Families {
    /// The number of the realm of NAT64.
    pub(crate) fn nat64_realm(&self) -> Option<u16> {
        let behind = u16::from(self.settings.dslite.is_some());
        self.settings.nat64.is_some().then(|| self.config.realms.len() as u16 - behind)
    }

    /// The number of the realm of DS-Lite.
    pub(crate) fn dslite_realm(&self) -> Option<u16> {
        self.settings.dslite.is_some().then_some(self.config.realms.len() as u16)
    }

    /// The hosts of a realm, if addresses stand for them there.
    fn hosts_of(&self, realm: u16) -> Option<&Hosts> {
        match Some(realm) {
            of if of == self.nat64_realm() => Some(&self.hosts),
            of if of == self.dslite_realm() => Some(&self.tunneled),
            _ => None,
        }
    }

    /// Forgets the hosts of each realm that do not count any more, by the translator's choice.
    /// Returns a host that has a mapping and must not be forgotten.
    pub fn forget_hosts(&mut self, counts: impl Fn(u16, Host) -> bool) -> Option<Host> {
        if let Some(realm) = self.nat64_realm() {
            self.hosts.forget(|host| counts(realm, host));
        }
        if let Some(realm) = self.dslite_realm() {
            self.tunneled.forget(|host| counts(realm, host));
        }
        self.tunnels.forget(&self.tunneled);
        self.ipv4.mappings().into_iter().find_map(|one| {
            let (hosts, place) = (self.hosts_of(one.id.realm)?, one.id.internal.address.to_bits());
            hosts.host(place).filter(|_| hosts.is_gone(place))
        })
    }

    /// The address that stands for a host in a realm.
    pub fn place_of(&self, realm: u16, host: Host) -> Option<Ipv4Addr> {
        self.hosts_of(realm)?.place(host).map(Ipv4Addr::from_bits)
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
        if side == Side::Outside || self.hosts_of(realm).is_none() {
            let realm = if side == Side::Inside { realm } else { 0 };
            return (Some(Departure { side, realm, answers, packets: vec![bytes] }), made);
        }
        match self.to_host(realm, (&bytes, false), received) {
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
        let convert = |mut one: Transmit| {
            if one.side == Side::Inside && self.hosts_of(one.realm).is_some() {
                one.bytes = self.to_host(one.realm, (&one.bytes, true), received).ok()?.remove(0);
                one.realm = 0;
            }
            Some(one)
        };
        made.transmits =
            std::mem::take(&mut made.transmits).into_iter().filter_map(convert).collect();
    }

    /// A packet to a host of a realm, or its fragments.
    fn to_host(
        &self,
        realm: u16,
        (bytes, is_made): (&[u8], bool),
        received: &[u8],
    ) -> Result<Vec<Vec<u8>>, DropReason> {
        match &self.settings.nat64 {
            Some(nat64) if self.nat64_realm() == Some(realm) => {
                self.to_nat64_host(nat64, (bytes, is_made), received)
            }
            _ => self.to_tunnel(bytes),
        }
    }
}
