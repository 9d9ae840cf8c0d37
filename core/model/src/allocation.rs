//! Making a mapping: limits (specification, section 3.9) and the choice of its external endpoint
//! (section 5). The choice itself is the engine's; here is written which choices are open.

use crate::bytes::ends;
use crate::classes::LimitOwner;
use crate::{Effects, Host, Key, Mapping, Model, Packet, has_ports};
use natgate_engine::{
    Allocation, Change, Config, DropReason, Endpoint, MappingKind, PoolConfig, Pooling, RuleAction,
    Side, Timestamp,
};
use natgate_wire::protocol::{ICMP, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Most mappings at a time for the ports of one address that is mapped as a whole (3.9).
pub(crate) const MOST_OF_WHOLE: usize = 4096;

/// GCRA: whether one more is within the rate. `due` is when the next would come if they came
/// evenly.
pub(crate) fn conforms(due: u64, now: Timestamp, per_second: u32) -> bool {
    per_second > 0 && due <= now.0.saturating_add(SECOND - SECOND / u64::from(per_second))
}

/// GCRA: `due` after one more.
pub(crate) fn spend(due: u64, now: Timestamp, per_second: u32) -> u64 {
    due.max(now.0).saturating_add(SECOND / u64::from(per_second))
}

/// The addresses of a pool.
pub fn addresses(pool: &PoolConfig) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let ranges = pool.addresses.iter();
    ranges.flat_map(|range| range.first.to_bits()..=range.last.to_bits()).map(Ipv4Addr::from_bits)
}

/// How many dynamic mappings there may be: unless it is said, as many as ports.
pub(crate) fn most_mappings(config: &Config) -> usize {
    let ports = |pool: &PoolConfig| {
        // Room for all of TCP, UDP and ICMP, which DCCP shares.
        let each = usize::from(pool.ports.1 - pool.ports.0) + 1;
        3 * addresses(pool).count() * each * pool.mappings_per_port()
    };
    let all = config.pools.iter().map(ports).sum::<usize>().min(1 << 20);
    config.limits.mappings.map_or(all, |most| most as usize)
}

impl Model {
    /// 3.9: makes the mapping, or answers the packet and says why not.
    pub(crate) fn create(
        &mut self,
        packet: &Packet,
        key: Key,
        rule: Option<RuleAction>,
        remote: Endpoint,
    ) -> Result<Key, DropReason> {
        let (pool, fixed) = match rule {
            Some(RuleAction::Snat(pool)) => (pool, None),
            Some(RuleAction::SnatTo(pool, address)) => (pool, Some(address)),
            _ => (self.config.default_pool_of(key.realm), None),
        };
        let permitted = self.permits_mapping(key);
        let whose = permitted.err().map_or(LimitOwner::Subscriber(key.host()), |(of, _)| of);
        let room = permitted.map_err(|(_, reason)| reason);
        let room = room.and_then(|()| self.room_for_mapping(key));
        let external = room.and_then(|()| {
            let (open, overloads) = match self.open_choices(key, pool, fixed) {
                Ok(open) => (open, false),
                Err(reason) => match self.overloadable(packet, key, pool, fixed, remote) {
                    open if open.is_empty() => return Err(reason),
                    open => (open, true), // 5.21
                },
            };
            let chosen = self.choose(packet, &open);
            if fixed.is_none() {
                // 5.5, 5.5a
                let paired = *self.paired.entry((key.host(), pool)).or_insert(chosen.address);
                if !self.is_open(paired, pool) {
                    self.paired.insert((key.host(), pool), chosen.address); // 5.18
                }
            }
            Ok((chosen, overloads))
        });
        let (external, key) = match external {
            Ok((external, true)) => {
                let (remote, beside) = (Some(remote), Some(external));
                (external, Key { remote, beside, ..key })
            }
            Ok((external, false)) => (external, key),
            Err(DropReason::Ambiguous) => return Err(DropReason::Ambiguous),
            Err(reason) => {
                self.report(key, whose, pool, reason);
                self.refuse(packet);
                return Err(reason);
            }
        };
        self.take_tokens(key.host());
        if has_ports(key.protocol) && self.use_block(key.host(), external) {
            self.tell_block(pool);
        }
        let (_, remote) = ends(&packet.received, Side::Inside);
        self.note_newcomer(key);
        let mapping = Mapping {
            number: self.next_number(),
            external,
            kind: self.kind_of(key, pool, external),
            permanent: false,
            created: self.now,
            timeouts: self.timeouts_of_rule(key, remote).unwrap_or_default(),
            sessions: BTreeMap::new(),
            first: None,
            holds: Default::default(),
        };
        if self.is_told(key, &mapping) {
            self.raise(self.now, Change::MappingCreated(mapping.id(key)));
        }
        self.mappings.insert(key, mapping);
        self.tell_mapping(key, pool);
        Ok(key)
    }

    /// 3.9: whether the tables have room.
    pub(crate) fn room_for_mapping(&self, key: Key) -> Result<(), DropReason> {
        let limits = &self.config.limits;
        let own = key.host();
        let others: BTreeSet<Host> =
            self.dynamic().map(|(other, _)| other.host()).filter(|of| *of != own).collect();
        let most = self.room;
        let subscribers = limits.subscribers.map_or((most / 16).max(1 << 16), |most| most as usize);
        if self.dynamic().count() >= most || others.len() >= subscribers {
            return Err(DropReason::MappingTableFull);
        }
        Ok(())
    }

    /// Whether a mapping is one that there is: of an address that is mapped as a whole only those
    /// ports that have sessions.
    pub(crate) fn is_listed(mapping: &Mapping) -> bool {
        mapping.permanent || !mapping.sessions.is_empty() || !mapping.holds.is_empty()
    }

    /// 3.9: whether one port more of an address that is mapped as a whole may have a mapping.
    pub(crate) fn room_for_whole(&self, key: Key) -> Result<(), DropReason> {
        let external = self.mappings[&key].external.address;
        let alike = |(other, mapping): &(&Key, &Mapping)| {
            mapping.kind == MappingKind::Static
                && !mapping.permanent
                && other.host() == key.host()
                && mapping.external.address == external
        };
        let there_are = self.mappings.iter().filter(alike).filter(|(_, one)| Self::is_listed(one));
        if there_are.count() < MOST_OF_WHOLE { Ok(()) } else { Err(DropReason::MappingTableFull) }
    }

    pub(crate) fn dynamic(&self) -> impl Iterator<Item = (&Key, &Mapping)> {
        self.mappings.iter().filter(|(_, mapping)| mapping.kind != MappingKind::Static)
    }

    /// Raises what 3.9 says about a refused mapping, at most once a second.
    pub(crate) fn report(&mut self, key: Key, whose: LimitOwner, pool: usize, reason: DropReason) {
        let ((realm, subscriber), protocol) = (key.host(), key.protocol);
        let (last, change) = match reason {
            DropReason::MappingRate | DropReason::PortQuota | DropReason::SessionLimit => {
                let change = match whose {
                    LimitOwner::Class(class) => Change::ClassQuotaReached { class, protocol },
                    _ => Change::QuotaReached { realm, subscriber, protocol },
                };
                let is_subscriber = matches!(whose, LimitOwner::Subscriber(_));
                if is_subscriber && self.sessions_of(whose) == 0 {
                    return; // What is remembered of a subscriber goes with its last mapping.
                }
                (self.quota_reported.entry(whose).or_default(), change)
            }
            DropReason::PoolExhausted => {
                let last = self.exhaustion_reported.entry(pool).or_default();
                (last, Change::PoolExhausted { pool, protocol })
            }
            _ => return,
        };
        if last.is_none_or(|last| self.now.since(last) >= Duration::from_secs(1)) {
            *last = Some(self.now);
            self.raise(self.now, change);
        }
    }

    /// The engine's choice if it was open, else the first that was.
    fn choose(&mut self, packet: &Packet, open: &[Endpoint]) -> Endpoint {
        match packet.choice {
            Some(choice) if open.contains(&choice) => return choice,
            Some(choice) => {
                let illegal = format!("{choice:?} was chosen, open were {open:?}");
                self.made = Effects { illegal: Some(illegal), ..std::mem::take(&mut self.made) };
            }
            None => {}
        }
        open[0]
    }

    /// Section 5: every external endpoint that the mapping may get; never empty.
    pub(crate) fn open_choices(
        &mut self,
        key: Key,
        pool: usize,
        fixed: Option<Ipv4Addr>,
    ) -> Result<Vec<Endpoint>, DropReason> {
        let subscriber = key.host();
        let (_, paired) = self.pair_of(key, pool);
        let own = |(other, mapping): (&Key, &Mapping)| {
            other.host() == key.host()
                && self.pool_of(mapping.external.address.to_bits()) == Some(pool)
        };
        if !self.dynamic().any(own) {
            self.paired.remove(&(subscriber, pool));
        }
        if has_ports(key.protocol) && self.is_shared_out(pool) {
            return self.open_shares(key, pool, paired);
        }
        let open_at = |wanted: &dyn Fn(Ipv4Addr) -> bool| -> Vec<Endpoint> {
            let all = self.open_addresses(pool).filter(|address| wanted(*address));
            all.flat_map(|address| self.open_ports(key, pool, address)).collect()
        };
        if fixed.is_some_and(|fixed| self.pool_of(fixed.to_bits()) != Some(pool)) {
            return Err(DropReason::PoolExhausted);
        }
        // 5.5a: a rule may have chosen.
        let chosen = fixed.or(paired);
        let mut open = open_at(&|address| chosen.is_none_or(|chosen| address == chosen));
        if open.is_empty() && self.config.pooling == Pooling::SoftPaired && fixed.is_none() {
            open = open_at(&|_| true);
        }
        match open.is_empty() {
            false => Ok(open),
            true if has_ports(key.protocol) => Err(DropReason::PoolExhausted),
            true => Err(DropReason::Ambiguous),
        }
    }

    /// 5.5, 5.9, 5.12, 5.18: the address that a subscriber's mappings have had, and the one that
    /// its next is to have.
    pub(crate) fn pair_of(&self, key: Key, pool: usize) -> (Option<Ipv4Addr>, Option<Ipv4Addr>) {
        // 5.5: the address that the subscriber got first of this pool, while it has any of it.
        let subscriber = key.host();
        let has_any = self.dynamic().any(|(other, mapping)| {
            other.host() == subscriber
                && self.pool_of(mapping.external.address.to_bits()) == Some(pool)
        });
        let last = match (self.config.pooling, self.paired.get(&(subscriber, pool))) {
            (Pooling::Paired | Pooling::SoftPaired, Some(address)) if has_any => Some(*address),
            _ => None,
        };
        let paired = last.filter(|address| self.is_open(*address, pool)); // 5.18
        let paired = match self.config.allocation_of(&self.config.pools[pool]) {
            Allocation::Deterministic(_) => self.address_of_shares(subscriber, pool).or(paired),
            _ => paired.or(self.address_of_shares(subscriber, pool)),
        };
        (last, paired.filter(|_| self.config.pooling != Pooling::Arbitrary))
    }

    /// 5.1 to 5.4 and 5.7: the endpoints of one external address that the mapping may get.
    fn open_ports(&self, key: Key, pool: usize, address: Ipv4Addr) -> Vec<Endpoint> {
        let at = |port| Endpoint { address, port };
        if !has_ports(key.protocol) {
            let ambiguous = self.dynamic().any(|(other, mapping)| {
                (other.protocol, other.remote) == (key.protocol, key.remote)
                    && mapping.external.address == address
            });
            return if ambiguous || self.is_kept(key.protocol, address) {
                Vec::new()
            } else {
                vec![at(0)]
            };
        }
        let free = self.free_ports(key, pool, address);
        let wanted = at(key.internal.port);
        let preserve = *self.config.allocation_of(&self.config.pools[pool]) == Allocation::Preserve;
        if preserve && free.contains(&wanted) {
            return vec![wanted]; // 5.4
        }
        self.keep_parity(key, free)
    }

    /// 5.7: an address that a static mapping takes for one protocol without ports is kept from all
    /// such.
    pub(crate) fn is_kept(&self, protocol: u8, address: Ipv4Addr) -> bool {
        let mut statics = self.config.statics.iter();
        !has_ports(protocol)
            && statics.any(|fixed| {
                fixed.external == (address, None)
                    && fixed.protocol.is_none_or(|one| !has_ports(one))
            })
    }

    /// 5.3: those of the internal port's parity, if there are such.
    pub(crate) fn keep_parity(&self, key: Key, free: Vec<Endpoint>) -> Vec<Endpoint> {
        let same_parity = |end: &Endpoint| end.port % 2 == key.internal.port % 2;
        if self.config.port_parity && key.protocol == UDP && free.iter().any(same_parity) {
            return free.into_iter().filter(same_parity).collect();
        }
        free
    }

    /// 5.1 and 5.2: the ports of an address that are free, whoever may have them.
    pub(crate) fn free_ports(&self, key: Key, pool: usize, address: Ipv4Addr) -> Vec<Endpoint> {
        let at = |port| Endpoint { address, port };
        let (first, last) = self.config.pools[pool].ports;
        let used: BTreeSet<Endpoint> = self
            .mappings
            .iter()
            .filter(|(other, _)| other.protocol == key.protocol)
            .map(|(_, mapping)| mapping.external)
            .collect();
        let wanted = key.internal.port;
        let split = first < 1024 && last >= 1024 && key.protocol != ICMP; // 5.2
        (first..=last)
            .filter(|&port| self.config.pools[pool].uses_port(port)) // 5.16
            .filter(|&port| !split || (port < 1024) == (wanted < 1024))
            .filter(|&port| !used.contains(&at(port)))
            .filter(|&port| !self.held.contains_key(&(key.protocol, at(port))))
            .filter(|&port| self.static_internals(key.protocol, at(port)).is_empty())
            .map(at)
            .collect()
    }

    /// The pool that an external address is of, or was while it had mappings that there still are
    /// (5.19).
    pub(crate) fn pool_of(&self, address: u32) -> Option<usize> {
        let left = self.left.get(&Ipv4Addr::from_bits(address)).copied();
        left.or_else(|| self.config.pools.iter().position(|pool| pool.has(address.into())))
    }
}
