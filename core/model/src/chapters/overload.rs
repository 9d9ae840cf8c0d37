//! Overloading of ports (specification, 5.53): the ports that a new mapping may share.

use crate::allocation::{Source, addresses};
use crate::{Key, Model, Packet};
use natgate_engine::Endpoint;
use natgate_wire::protocol::{TCP, UDP};

/// Number of ports that are looked at.
const LOOKS: usize = 32;

impl Model {
    /// The endpoints in use that a new mapping may share; none if it may share none. Also none if
    /// there are many ports and the engine found none, because the engine need not look at all.
    pub(crate) fn overloadable(
        &self,
        packet: &Packet,
        key: Key,
        (pool, fixed): Source,
        remote: Endpoint,
    ) -> Vec<Endpoint> {
        let config = &self.config.pools[pool];
        if !config.overloading || !matches!(key.protocol, TCP | UDP) {
            return Vec::new();
        }
        let (first, last) = config.ports;
        let (low, port) = (first < 1024 && last >= 1024, key.internal.port); // 5.2
        let mut all: Vec<Endpoint> = match self.own_ports(key.host(), pool) {
            Some(own) => own,
            None => {
                let only = fixed.or(self.pair_of(key.host(), pool));
                let wanted = addresses(config).filter(|one| only.is_none_or(|only| only == *one));
                let ports = |address| (first..=last).map(move |port| Endpoint { address, port });
                wanted.flat_map(ports).collect()
            }
        };
        all.retain(|end| !low || (end.port < 1024) == (port < 1024));
        if all.len() > LOOKS && packet.choice.is_none() {
            return Vec::new();
        }
        all.retain(|end| self.gives_out(pool, key.protocol, *end));
        all.retain(|end| {
            let mut there = self
                .mappings
                .iter()
                .filter(|(other, one)| other.protocol == key.protocol && one.external == *end);
            self.dynamic()
                .any(|(other, one)| other.protocol == key.protocol && one.external == *end)
                && there.all(|(_, one)| {
                    !one.sessions.contains_key(&remote) && one.marks.holds.is_empty()
                })
        });
        all
    }
}
