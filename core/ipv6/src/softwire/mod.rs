//! Softwires: IPv4 for customers whose network has IPv6 alone.
//!
//! DS-Lite has sessions, which are the engine's. Three mechanisms without sessions have one frame.
//! A table says which customer has an IPv4 address and a port, and which IPv6 address the customer
//! has: [`BindingTable`] for lw4o6 (RFC 7596), [`Domains`] with arithmetic for MAP-E (RFC 7597) and
//! MAP-T (RFC 7599). A packet from a customer must come from the very IPv6 address that its IPv4
//! source leads to. Then the packet is decapsulated, or translated by RFC 7915. A packet from
//! outside goes the other way.
//!
//! [`Softwires`] has the tables, and what must be remembered between packets: ports of fragmented
//! datagrams, fragments of tunnel packets, widths of paths. All of it is bounded.

mod ahead;
mod bindings;
mod domains;
mod dslite;
mod endpoint;
mod explain;
mod fragments;
mod from_tunnel;
mod halves;
mod icmp;
mod locate;
mod map_t;
mod paths;
mod plain;
mod ports;
pub(crate) mod quick;
mod readdress;
mod reassembly;
mod release;
mod report;
mod request;
mod rule;
mod service;
mod to_tunnel;
mod tunnel;

pub use bindings::{Binding, BindingTable, Conflict, MOST_BRS, Refused, Tunnel};
pub use domains::{Domains, RuleConflict};
pub use dslite::{DsliteSettings, may_be_behind};
pub use plain::PlainPacket;
pub use ports::{PortSets, PortSetsError};
pub use request::TunneledRequest;
pub(crate) use request::may_ask;
pub use rule::{Customer, MapMode, MapParameters, MapRule, RuleError};

pub(crate) use dslite::{REALM, realm_of};
pub(crate) use explain::Outer;

use crate::convert::{Converter, ErrorMessage, Hops, Refusal};
use crate::realms::{HostKind, HostRealms};
use crate::settings::Settings;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use dslite::Dslite;
use fragments::Fragments;
use natgate_engine::{Config, DropReason, HashKey, Outcome, Side};
use paths::Paths;
use reassembly::Reassembly;

/// Most packets that wait to be sent because they were held.
const MOST_RELEASED: usize = 256;

/// Settings of lw4o6, RFC 7596.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lw4o6Settings {
    /// The gateway's address of tunnels whose bindings have no other.
    pub address: Ipv6Addr,
    /// The bindings.
    pub bindings: Arc<BindingTable>,
    /// True if customers reach each other through the gateway.
    pub hairpinning: bool,
    /// True if packets that match no binding are answered by ICMP errors.
    pub icmp_errors: bool,
    /// True if ICMP from outside reaches customers.
    pub inbound_icmp: bool,
    /// Treatment of the tunnels.
    pub softwire: SoftwireSettings,
}

impl Lw4o6Settings {
    /// True if an address is the gateway's end of a tunnel.
    #[inline]
    fn has_br(&self, address: u128) -> bool {
        self.address.to_bits() == address || self.bindings.brs().contains(&address)
    }
}

/// Settings of a domain of MAP: one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSettings {
    /// The rule.
    pub rule: MapRule,
    /// Treatment of the tunnels, or of the translation.
    pub softwire: SoftwireSettings,
}

/// Treatment of the packets of softwires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftwireSettings {
    /// Largest IPv6 packet towards customers, bytes; `None`: that of the inside link.
    pub mtu: Option<u16>,
    /// True if the gateway believes reports about narrower paths.
    pub path_mtu: bool,
}

/// Packets of a domain, of lw4o6, or of DS-Lite. Each has a cache line of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct DomainCounters {
    /// Packets and bytes from customers.
    pub outbound: (u64, u64),
    /// Packets and bytes to customers.
    pub inbound: (u64, u64),
    /// Packets that were dropped because their source is not the customer's.
    pub spoofed: u64,
}

impl DomainCounters {
    /// Adds the counters of another translator that shares the work.
    pub fn add(&mut self, other: &Self) {
        let of = |sum: &mut (u64, u64), one: (u64, u64)| {
            sum.0 += one.0;
            sum.1 += one.1;
        };
        of(&mut self.outbound, other.outbound);
        of(&mut self.inbound, other.inbound);
        self.spoofed += other.spoofed;
    }
}

/// The table that has a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The bindings of lw4o6.
    Bindings,
    /// The rule at a place.
    Rule(usize),
}

/// A customer: its table, and the ends of its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Located {
    owner: Owner,
    tunnel: Tunnel,
}

/// The answer to "which customer has this address and port?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Customer(Located),
    /// The address is shared, and the packet is a fragment without a port.
    NeedsPort,
    /// The address is a softwire's, and no customer has the port.
    Unbound,
    /// The address is no softwire's.
    Elsewhere,
}

/// A packet that cannot go on, and the error about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stopped {
    reason: DropReason,
    answer: Answer,
}

/// The error about a packet that cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// About the packet in its tunnel, to the end of the tunnel.
    Outer(ErrorMessage),
    /// About the IPv4 packet, to its sender.
    Inner(ErrorMessage),
}

impl Stopped {
    const fn outer(reason: DropReason, message: ErrorMessage) -> Self {
        Self { reason, answer: Answer::Outer(message) }
    }
}

impl From<DropReason> for Stopped {
    fn from(reason: DropReason) -> Self {
        Self { reason, answer: Answer::Nothing }
    }
}

/// A refusal about an IPv4 packet.
impl From<Refusal> for Stopped {
    fn from(Refusal { reason, error }: Refusal) -> Self {
        Self { reason, answer: error.map_or(Answer::Nothing, Answer::Inner) }
    }
}

/// Treatment of the packets of rules of MAP that have equal settings.
#[derive(Clone, Debug)]
struct Group {
    softwire: SoftwireSettings,
    plain: Converter,
    /// The second half of a translation that turns round: the hop has been counted.
    turning: Converter,
}

/// A packet that was held and is ready to be sent.
#[derive(Clone, Debug)]
struct Released {
    side: Side,
    bytes: Vec<u8>,
}

/// The state of all softwires.
#[derive(Clone, Debug)]
pub(crate) struct Softwires {
    dslite: Option<Dslite>,
    lw4o6: Option<Lw4o6Settings>,
    domains: Domains,
    groups: Vec<Group>,
    /// MTU of the inside link, bytes.
    mtu: u16,
    /// Traffic class of outer headers; `None`: the type of service.
    traffic_class: Option<u8>,
    /// Largest segment size that a SYN may announce.
    mss: Option<u16>,
    fragments: Fragments,
    reassembly: Reassembly,
    paths: Paths,
    released: VecDeque<Released>,
    /// Hairpin packets that were held and go to another translator, with the realm of each.
    turned: VecDeque<(u16, Vec<u8>)>,
    /// Packets that the caller takes again, and true if it wants them.
    plain: VecDeque<PlainPacket>,
    gives_plain: bool,
    key: HashKey,
    next_identification: u32,
    /// Counters of lw4o6, then of each rule, then of DS-Lite.
    counters: Vec<DomainCounters>,
}

impl Softwires {
    /// True if there is lw4o6 or MAP.
    fn has_bindings(&self) -> bool {
        self.lw4o6.is_some() || !self.domains.is_empty()
    }

    /// The state for settings. `None`: they have no softwire. `realms` are those of hosts with
    /// numbers.
    ///
    /// # Errors
    /// A sentence about rules that contradict each other.
    pub(crate) fn new(
        settings: &Settings,
        realms: HostRealms,
        config: &Config,
        seed: [u8; 32],
    ) -> Result<Option<Self>, String> {
        if settings.lw4o6.is_none() && settings.map.is_empty() && settings.dslite.is_none() {
            return Ok(None);
        }
        let rules: Vec<MapRule> = settings.map.iter().map(|map| map.rule).collect();
        let mut domains = Domains::new(&rules, seed).map_err(|conflict| {
            alloc::format!("rules of MAP contradict each other: {conflict:?}")
        })?;
        let mtu = settings.inside.mtu.max(crate::translator::LEAST_MTU);
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of = Vec::new();
        for MapSettings { softwire, .. } in &settings.map {
            let mtu = softwire.mtu.unwrap_or(mtu).min(mtu);
            let softwire = SoftwireSettings { mtu: Some(mtu), ..*softwire };
            let known = groups.iter().position(|one| one.softwire == softwire);
            let place = known.unwrap_or(groups.len());
            if known.is_none() {
                let converter = |hops| {
                    Converter::new(
                        settings.conversion.between(mtu, settings.outside.mtu, hops),
                        seed,
                    )
                };
                let (plain, turning) = (converter(Hops::Decrement), converter(Hops::Keep));
                groups.push(Group { softwire, plain, turning });
            }
            let place = u16::try_from(place);
            group_of.push(place.map_err(|_| "MAP has more than 65,536 groups of settings")?);
        }
        domains.set_groups(group_of.into_iter());
        let dslite = settings.dslite.clone().zip(realms.of(HostKind::Dslite));
        let dslite = dslite
            .map(|(dslite, realm)| Dslite::new(dslite, (realm, settings.share), config, seed));
        let dslite = dslite.transpose()?;
        let timeout = config.timeouts.fragment.as_nanos() as u64;
        Ok(Some(Self {
            dslite,
            lw4o6: settings.lw4o6.clone(),
            domains,
            groups,
            mtu,
            traffic_class: settings.conversion.traffic_class,
            mss: config.tcp_mss,
            fragments: Fragments::new(config.limits.fragment_memory, timeout),
            reassembly: Reassembly::new(config.limits.fragment_memory, timeout),
            paths: Paths::default(),
            released: VecDeque::new(),
            turned: VecDeque::new(),
            plain: VecDeque::new(),
            gives_plain: false,
            key: HashKey::from_seed(seed, 0x736f_6674),
            next_identification: 0,
            counters: alloc::vec![DomainCounters::default(); 2 + rules.len()],
        }))
    }

    /// True if an IPv6 address is the gateway's end of a tunnel.
    #[inline]
    pub(crate) fn is_tunnel_end(&self, address: u128) -> bool {
        self.lw4o6.as_ref().is_some_and(|lw4o6| lw4o6.has_br(address))
            || !self.domains.is_empty() && self.domains.is_br(address)
    }

    /// True if NAT64 has packets to an address in its prefixes: no softwire comes first.
    #[inline]
    pub(crate) fn leaves_to_nat64(&self, destination: u128) -> bool {
        let is_end = |dslite: &Dslite| dslite.address().to_bits() == destination;
        !self.is_tunnel_end(destination) && !self.dslite.as_ref().is_some_and(is_end)
    }

    /// True if an address is in the default mapping rule's prefix of a domain.
    pub(crate) fn has_dmr(&self, address: u128) -> bool {
        !self.domains.is_empty() && self.domains.dmr(address).is_some()
    }

    /// True if an IPv4 address is a customer's.
    #[inline]
    pub(crate) fn has_address(&self, ipv4: u32) -> bool {
        self.lw4o6.as_ref().is_some_and(|lw4o6| lw4o6.bindings.has_address(ipv4))
            || !self.domains.is_empty() && self.domains.find(ipv4).is_some()
    }

    /// True if lw4o6 answers for IPv4 addresses that nothing else claims.
    pub(crate) fn takes_all(&self) -> bool {
        self.lw4o6.is_some()
    }

    /// Treatment of the packets of a rule.
    #[inline]
    fn group(&self, place: usize) -> &Group {
        &self.groups[usize::from(self.domains.line(place).group)]
    }

    /// Treatment of a customer's packets.
    #[inline]
    fn softwire(&self, owner: Owner) -> SoftwireSettings {
        match owner {
            Owner::Rule(place) => self.group(place).softwire,
            Owner::Bindings => {
                let none = SoftwireSettings { mtu: None, path_mtu: false };
                self.lw4o6.as_ref().map_or(none, |lw4o6| lw4o6.softwire)
            }
        }
    }

    /// Largest IPv6 packet to a customer, bytes.
    #[inline]
    fn mtu_to(&self, located: Located) -> u16 {
        let softwire = self.softwire(located.owner);
        let mtu = softwire.mtu.map_or(self.mtu, |mtu| mtu.min(self.mtu));
        self.paths.mtu(located.tunnel.customer, mtu)
    }

    /// True if errors answer what no customer may send or receive.
    fn answers(&self, owner: Owner) -> bool {
        owner != Owner::Bindings || self.lw4o6.as_ref().is_some_and(|lw4o6| lw4o6.icmp_errors)
    }

    fn counter(&mut self, owner: Owner) -> &mut DomainCounters {
        let place = match owner {
            Owner::Bindings => 0,
            Owner::Rule(place) => place + 1,
        };
        &mut self.counters[place]
    }

    /// Counts a packet from a customer.
    #[inline]
    fn count_from(&mut self, owner: Owner, len: usize) {
        let (packets, bytes) = &mut self.counter(owner).outbound;
        (*packets, *bytes) = (*packets + 1, *bytes + len as u64);
    }

    /// The counters of DS-Lite.
    #[inline]
    fn counter_of_dslite(&mut self) -> &mut DomainCounters {
        let last = self.counters.len() - 1;
        &mut self.counters[last]
    }

    /// Counts a packet to a customer.
    #[inline]
    fn count_to(&mut self, owner: Owner, len: usize) {
        let (packets, bytes) = &mut self.counter(owner).inbound;
        (*packets, *bytes) = (*packets + 1, *bytes + len as u64);
    }

    /// Counters of lw4o6, then of each rule in its order, then of DS-Lite.
    pub(crate) fn domain_counters(&self) -> &[DomainCounters] {
        &self.counters
    }

    /// Exchanges the bindings of lw4o6; returns the former ones. `None`: there is no lw4o6.
    pub(crate) fn exchange(&mut self, bindings: Arc<BindingTable>) -> Option<Arc<BindingTable>> {
        let lw4o6 = self.lw4o6.as_mut()?;
        Some(core::mem::replace(&mut lw4o6.bindings, bindings))
    }

    /// The table of bindings in force.
    pub(crate) fn bindings(&self) -> Option<&Arc<BindingTable>> {
        self.lw4o6.as_ref().map(|lw4o6| &lw4o6.bindings)
    }

    /// The rules of MAP.
    pub(crate) fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Takes the largest segment size from the engine's new configuration.
    pub(crate) fn renew(&mut self, config: &Config) {
        self.mss = config.tcp_mss;
        if let Some(dslite) = &mut self.dslite {
            dslite.renew(config);
        }
    }

    /// True if a packet that was held is ready to be sent.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty() || !self.turned.is_empty()
    }

    /// The oldest packet that was held and is ready to be sent.
    pub(crate) fn pop_released(&mut self) -> Option<(Side, Vec<u8>)> {
        self.released.pop_front().map(|released| (released.side, released.bytes))
    }

    /// The oldest hairpin packet that was held.
    pub(crate) fn pop_turned(&mut self) -> Option<(u16, Vec<u8>)> {
        self.turned.pop_front()
    }

    /// Queues a hairpin packet; drops it if too many wait.
    fn push_turned(&mut self, realm: u16, bytes: &[u8]) {
        if self.turned.len() < MOST_RELEASED {
            self.turned.push_back((realm, bytes.to_vec()));
        }
    }

    fn push_released(&mut self, side: Side, bytes: Vec<u8>) -> Result<(), DropReason> {
        if self.released.len() >= MOST_RELEASED {
            return Err(DropReason::FragmentLimit);
        }
        self.released.push_back(Released { side, bytes });
        Ok(())
    }

    /// An identification for the fragments of a tunnel packet (RFC 8200 section 4.5).
    fn identification(&mut self, customer: u128) -> u32 {
        self.next_identification = self.next_identification.wrapping_add(1);
        let start = crate::keyed::hash(self.key, customer) as u32;
        start.wrapping_add(self.next_identification)
    }

    /// What packets have counted.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            counters: self.counters.clone(),
            next_identification: self.next_identification,
            groups: self.groups.clone(),
        }
    }

    /// Takes back what packets have counted since.
    pub(crate) fn restore(&mut self, counts: Counts) {
        let Counts { counters, next_identification, groups } = counts;
        (self.counters, self.groups) = (counters, groups);
        self.next_identification = next_identification;
    }

    /// True if no time has to be kept.
    #[inline]
    fn is_idle(&self) -> bool {
        self.fragments.is_empty() && self.reassembly.is_empty() && self.paths.len() == 0
    }
}

/// What packets count: counters and identifications.
pub(crate) struct Counts {
    counters: Vec<DomainCounters>,
    next_identification: u32,
    groups: Vec<Group>,
}

/// Counts of a dropped group of packets.
struct Loss {
    side: Side,
    reason: DropReason,
    packets: u64,
    bytes: u64,
}

impl Loss {
    /// Adds the loss to counters.
    fn count(&self, counters: &mut natgate_engine::Counters) {
        let direction = natgate_engine::Direction::forwarded(self.side, self.side.other()) as usize;
        counters.packets[direction][Outcome::Dropped as usize] += self.packets;
        counters.bytes[direction][Outcome::Dropped as usize] += self.bytes;
        counters.drops[self.reason as usize] += self.packets;
    }
}
