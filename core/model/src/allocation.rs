//! Allocation (specification, section 5): makes a mapping and finds the external endpoints that are
//! open for it. The engine makes the choice among them.

use crate::bytes::ends;
use crate::chapters::MappingMarks;
use crate::points::DecisionPoints as _;
use crate::{Host, Key, Mapping, Model, Packet};
use natgate_engine::{
    Allocation, Change, DropReason, Endpoint, PoolConfig, Pooling, RuleAction, Side,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Number of addresses that are looked at for a mapping without a port (5.13).
const LOOKS: usize = 32;

/// A pool, and the address of it that a rule names, if any (5.8).
pub(crate) type Source = (usize, Option<Ipv4Addr>);

/// True if a protocol has ports, or identifiers that serve as ports.
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | ICMP | DCCP)
}

/// The addresses of a pool.
pub fn addresses(pool: &PoolConfig) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let ranges = pool.addresses.iter();
    ranges.flat_map(|range| range.first.to_bits()..=range.last.to_bits()).map(Ipv4Addr::from_bits)
}

impl Model {
    /// 3.24: makes the mapping of a packet, or refuses the packet with a reason.
    pub(crate) fn create(
        &mut self,
        packet: &Packet,
        key: Key,
        remote: Endpoint,
    ) -> Result<Key, DropReason> {
        let (pool, fixed) = match packet.rule {
            Some(RuleAction::Snat(pool)) => (pool, None),
            Some(RuleAction::SnatTo(pool, address)) => (pool, Some(address)),
            _ => (self.config.default_pool_of(key.realm), None),
        };
        let choices = self.permits(key, pool);
        let choices = choices.and_then(|()| self.choices(packet, key, (pool, fixed), remote));
        let (open, is_shared) = match choices {
            Ok(choices) => choices,
            Err(DropReason::Ambiguous) => return Err(DropReason::Ambiguous),
            Err(reason) => {
                self.note_refusal(key, pool, reason);
                self.refuse(packet);
                return Err(reason);
            }
        };
        let external = self.choose(packet.choice, &open);
        let key = match is_shared {
            true => Key { remote: Some(remote), beside: Some(external), ..key },
            false => key,
        };
        let (_, destination) = ends(&packet.received, Side::Inside);
        self.make(key, (pool, fixed), external, destination, MappingMarks::default());
        Ok(key)
    }

    /// The external endpoints that are open for the mapping of a packet, and true if the mapping
    /// shares its endpoint with others.
    fn choices(
        &self,
        packet: &Packet,
        key: Key,
        source: Source,
        remote: Endpoint,
    ) -> Result<(Vec<Endpoint>, bool), DropReason> {
        let open = self.open_choices(key, source).and_then(|open| {
            let is_missed = self.may_be_missed(packet, key, source, &open);
            if is_missed { Err(DropReason::Ambiguous) } else { Ok((open, false)) }
        });
        open.or_else(|reason| {
            let shared = self.overload(packet, key, source, remote); // 5.53
            if shared.is_empty() { Err(reason) } else { Ok((shared, true)) }
        })
    }

    /// 5.13: true if the engine chose none of the open endpoints and may have missed them, because
    /// it looks at some addresses of a large pool only.
    fn may_be_missed(
        &self,
        packet: &Packet,
        key: Key,
        (pool, fixed): Source,
        open: &[Endpoint],
    ) -> bool {
        let config = &self.config.pools[pool];
        let bound = fixed.or_else(|| self.pair_of(key.host(), pool));
        !has_ports(key.protocol)
            && packet.choice.is_none()
            && *self.config.allocation_of(config) != Allocation::Address
            && addresses(config).count() > LOOKS
            && open.iter().all(|end| Some(end.address) != bound)
    }

    /// Makes a mapping. `destination` is the destination of its first packet.
    pub(crate) fn make(
        &mut self,
        key: Key,
        (pool, fixed): Source,
        external: Endpoint,
        destination: Endpoint,
        mut marks: MappingMarks,
    ) {
        let pair = (key.host(), pool);
        if !self.has_any_of(key.host(), pool) {
            self.paired.remove(&pair);
        }
        if fixed.is_none() {
            let paired = *self.paired.entry(pair).or_insert(external.address); // 5.5, 5.8
            if !self.is_open(paired, pool) {
                self.paired.insert(pair, external.address); // 5.43
            }
        }
        self.before_mapping(key, pool, external, &mut marks);
        let mapping = Mapping {
            external,
            kind: self.kind_for(key, pool, external),
            created: self.now,
            timeouts: self.timeouts_for(key, destination),
            sessions: BTreeMap::new(),
            marks,
        };
        if self.has_events(key, &mapping) {
            self.raise(self.now, Change::MappingCreated(mapping.id(key)));
        }
        self.mappings.insert(key, mapping);
        self.after_mapping(key, pool);
    }

    /// The engine's choice if it was open, otherwise the first open endpoint.
    pub(crate) fn choose(&mut self, choice: Option<Endpoint>, open: &[Endpoint]) -> Endpoint {
        match choice {
            Some(choice) if open.contains(&choice) => choice,
            Some(choice) => {
                self.made.illegal = Some(format!("{choice:?} was chosen, open were {open:?}"));
                open[0]
            }
            None => open[0],
        }
    }

    /// Every external endpoint that is open for a mapping; never empty.
    pub(crate) fn open_choices(
        &self,
        key: Key,
        (pool, fixed): Source,
    ) -> Result<Vec<Endpoint>, DropReason> {
        let paired = self.pair_of(key.host(), pool);
        if let Some(open) = self.open_shares(key, pool, paired) {
            return open;
        }
        if fixed.is_some_and(|fixed| self.pool_with(fixed.to_bits()) != Some(pool)) {
            return Err(DropReason::PoolExhausted);
        }
        let open_at = |wanted: Option<Ipv4Addr>| -> Vec<Endpoint> {
            let all = self.open_addresses(pool);
            let all = all.filter(|address| wanted.is_none_or(|wanted| *address == wanted));
            all.flat_map(|address| self.open_ports(key, pool, address)).collect()
        };
        let mut open = open_at(fixed.or(paired)); // 5.5, 5.8
        if open.is_empty() && self.config.pooling == Pooling::SoftPaired && fixed.is_none() {
            open = open_at(None);
        }
        match open.is_empty() {
            false => Ok(open),
            true if has_ports(key.protocol) => Err(DropReason::PoolExhausted),
            true => Err(DropReason::Ambiguous),
        }
    }

    /// The addresses of a pool that give out ports.
    pub(crate) fn open_addresses(&self, pool: usize) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let all = addresses(&self.config.pools[pool]);
        all.filter(move |address| self.is_open(*address, pool))
    }

    pub(crate) fn has_any_of(&self, host: Host, pool: usize) -> bool {
        self.dynamic().any(|(key, mapping)| {
            key.host() == host && self.pool_with(mapping.external.address.to_bits()) == Some(pool)
        })
    }

    /// 5.5: the address that a subscriber's next mapping of a pool must have.
    pub(crate) fn pair_of(&self, host: Host, pool: usize) -> Option<Ipv4Addr> {
        if self.config.pooling == Pooling::Arbitrary {
            return None;
        }
        let paired = self.paired.get(&(host, pool)).copied();
        let paired = paired.filter(|address| {
            self.has_any_of(host, pool) && self.is_open(*address, pool) // 5.43
        });
        self.pair_with_shares(host, pool, paired)
    }

    /// 5.1 to 5.4 and 5.13: the endpoints of one external address that are open for the mapping.
    fn open_ports(&self, key: Key, pool: usize, address: Ipv4Addr) -> Vec<Endpoint> {
        if !has_ports(key.protocol) {
            let ambiguous = self.dynamic().any(|(other, mapping)| {
                (other.protocol, other.remote) == (key.protocol, key.remote)
                    && mapping.external.address == address
            });
            let open = !ambiguous && !self.is_reserved(key.protocol, Endpoint { address, port: 0 });
            return Vec::from_iter(open.then_some(Endpoint { address, port: 0 }));
        }
        let free = self.free_ports(key, pool, address);
        let wanted = Endpoint { address, port: key.internal.port };
        let preserve = *self.config.allocation_of(&self.config.pools[pool]) == Allocation::Preserve;
        if preserve && free.contains(&wanted) {
            return vec![wanted]; // 5.4
        }
        self.keep_parity(key, free)
    }

    /// 5.3: the free endpoints with the internal port's parity, if there are any; otherwise all.
    pub(crate) fn keep_parity(&self, key: Key, free: Vec<Endpoint>) -> Vec<Endpoint> {
        let same_parity = |end: &Endpoint| end.port % 2 == key.internal.port % 2;
        if self.config.port_parity && key.protocol == UDP && free.iter().any(same_parity) {
            return free.into_iter().filter(same_parity).collect();
        }
        free
    }

    /// 5.1 and 5.2: the free ports of an address, without regard to the subscriber.
    pub(crate) fn free_ports(&self, key: Key, pool: usize, address: Ipv4Addr) -> Vec<Endpoint> {
        let (first, last) = self.config.pools[pool].ports;
        let of_protocol = self.mappings.iter().filter(|(other, _)| other.protocol == key.protocol);
        let used: BTreeSet<Endpoint> = of_protocol.map(|(_, mapping)| mapping.external).collect();
        let is_split = first < 1024 && last >= 1024 && self.splits_ports(pool); // 5.58
        let split = is_split && key.protocol != ICMP; // 5.2
        (first..=last)
            .filter(|&port| self.config.pools[pool].uses_port(port)) // 5.40
            .filter(|&port| !split || (port < 1024) == (key.internal.port < 1024))
            .map(|port| Endpoint { address, port })
            .filter(|end| !used.contains(end) && !self.held.contains_key(&(key.protocol, *end)))
            .filter(|end| !self.is_reserved(key.protocol, *end))
            .collect()
    }
}
