//! The meaning of a configuration: mappings of its pools, subscribers that they can serve, memory.
//! `natgate check` prints it as text for people and as JSON for programs.
//!
//! The numbers are those of a gateway that runs alone with all ports free, less the ports of static
//! mappings. Hold-down, which blocks UDP and ICMP ports for a while, is not counted.

mod ipv6;
mod pair;
mod policy;
mod realms;
mod router6;
mod services;
mod shares;
mod softwires;
mod statics;
mod text;

use crate::config::{Configuration, Problem};
pub use ipv6::{
    ClatMeaning, Ipv6Meaning, MapMeaning, Nat64Meaning, Nptv6Meaning, PrefixMeaning, Sample,
    Side6Meaning, SiitMeaning,
};
use natgate_engine::{AddressRange, Config, Engine, PoolConfig, Pooling, Rule, RuleAction};
use natgate_gateway::Settings;
pub use pair::{PairMeaning, SliceMeaning};
pub use policy::ClassMeaning;
pub use realms::RealmMeaning;
pub use router6::{AdvertiseMeaning, Neighbor6Meaning, Route6Meaning, Router6Meaning};
use serde::Serialize;
pub use services::{AccessMeaning, AlgMeaning, LogMeaning, PcpMeaning};
pub use shares::Shares;
pub use softwires::{DomainMeaning, DsliteMeaning, Lw4o6Meaning, SampleCustomer};
use text::plural;

/// Default least size of the table of sessions with a translated destination.
const LEAST_TWICE: u64 = 1024;

/// One number for each protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PerProtocol {
    /// TCP.
    pub tcp: u64,
    /// UDP.
    pub udp: u64,
    /// ICMP queries.
    pub icmp: u64,
}

impl PerProtocol {
    fn new(number: impl Fn(u8) -> u64) -> Self {
        Self { tcp: number(6), udp: number(17), icmp: number(1) }
    }
}

/// The meaning of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// True for the pool of subscribers without a rule.
    pub default: bool,
    /// Number of addresses.
    pub addresses: u64,
    /// Number of draining addresses, which get no new mappings.
    pub draining: u64,
    /// First and last port.
    pub ports: (u16, u16),
    /// Excluded ranges, first and last port each.
    pub excluded_ports: Vec<(u16, u16)>,
    /// Most mappings of the pool.
    pub mappings: PerProtocol,
    /// Subscribers that can have their full quota, or all that the pool allows them, at the same
    /// time.
    pub subscribers_at_full_quota: u64,
    /// Allocation of the pool's ports.
    pub allocation: Shares,
}

/// The meaning of a configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Meaning {
    /// The pools, in the file's order.
    pub pools: Vec<Pool>,
    /// Size of the table of dynamic mappings.
    pub mappings: u64,
    /// Size of the session table.
    pub sessions: u64,
    /// Size of the table of sessions with a translated destination, if rules translate
    /// destinations.
    pub twice_sessions: u64,
    /// Memory of the translator and of control flows, bytes. It is allocated at the start, but that
    /// of control flows with the first protocol.
    pub memory_bytes: u64,
    /// Classes of subscribers, in the file's order.
    pub classes: Vec<ClassMeaning>,
    /// Realms besides the default one, in the file's order.
    pub realms: Vec<RealmMeaning>,
    /// Event logs, in the file's order.
    pub logs: Vec<LogMeaning>,
    /// Requests for mappings; `None`: not answered.
    pub pcp: Option<PcpMeaning>,
    /// Application-level gateways that are on.
    pub algs: Vec<AlgMeaning>,
    /// Sockets and listeners of the gateway.
    pub access: AccessMeaning,
    /// The pair; `None`: the gateway is none of a pair.
    pub pair: Option<PairMeaning>,
    /// IPv6; `None`: the configuration says nothing about it.
    pub ipv6: Option<Ipv6Meaning>,
    /// Legal but unwise values.
    pub warnings: Vec<Problem>,
    #[serde(skip)]
    settings: Settings,
}

impl Meaning {
    /// Derives the meaning of `configuration`.
    pub fn of(configuration: Configuration) -> Self {
        let Configuration { settings, warnings, .. } = configuration;
        let config = &settings.engine;
        // Without [[pool]] the translator has a pool without addresses.
        let has_addresses = |index: &usize| !config.pools[*index].addresses.is_empty();
        let pools = (0..config.pools.len()).filter(has_addresses);
        let pools: Vec<Pool> = pools.map(|index| pool(config, index)).collect();
        let limits = &config.limits;
        let mappings = config.mapping_room();
        // The engine reserves four mappings for each static one, which may have four protocols.
        let servers: usize = config.services.iter().map(|service| service.servers.len()).sum();
        let all = mappings + 4 * (config.statics.len() + servers) as u64;
        let sessions = all + limits.extra_sessions.map_or(all, u64::from);
        let of_realms = config.realms.iter().flat_map(|realm| &realm.rules);
        let mut rules = config.rules.iter().chain(of_realms);
        let twice_sessions = match rules.any(translates_destinations) {
            true => limits.twice_sessions.map_or((mappings / 4).max(LEAST_TWICE), u64::from),
            false => 0,
        };
        let of_flows = settings.alg.memory(settings.workers.count);
        let memory_bytes = Engine::memory(config) + settings.ipv6.memory(config) + of_flows;
        let classes = config.classes.iter().map(|class| ClassMeaning::new(config, class));
        let (classes, realms) = (classes.collect(), realms::meanings(&settings));
        let (logs, pcp) = (services::logs(&settings), services::pcp(&settings));
        let (algs, access) = (services::algs(&settings), services::access(&settings));
        let (pair, ipv6) = (PairMeaning::of(&settings), Ipv6Meaning::of(&settings));
        Self {
            pools,
            mappings,
            sessions,
            twice_sessions,
            memory_bytes,
            classes,
            realms,
            logs,
            pcp,
            algs,
            access,
            pair,
            ipv6,
            warnings,
            settings,
        }
    }
}

fn translates_destinations(rule: &Rule) -> bool {
    matches!(rule.action, RuleAction::Dnat(..) | RuleAction::DnatPrefix(_))
}

/// Ports of the pools that mappings can have, over all protocols.
fn ports(pools: &[Pool]) -> u64 {
    let ports = |pool: &Pool| {
        let each = u64::from(pool.ports.1 - pool.ports.0) + 1;
        let of_nobody = match pool.allocation {
            Shares::Deterministic { .. } => pool.allocation.ports_unused(),
            _ => 0,
        };
        (pool.addresses * each - of_nobody) * 3
    };
    pools.iter().map(ports).sum()
}

fn pool(config: &Config, index: usize) -> Pool {
    let pool = &config.pools[index];
    // A draining address gets no new mappings.
    let serving = serving(pool);
    let (all_addresses, pool) = (pool.count() as u64, &serving);
    let addresses = pool.count() as u64;
    let each = ports_of_an_address(pool);
    let allocation = Shares::new(config, pool);
    let excluded = each - u64::from(pool.ports_used());
    let all = (addresses * each - allocation.ports_unused()).saturating_sub(addresses * excluded);
    let each = each - excluded;
    let mappings =
        PerProtocol::new(|protocol| all.saturating_sub(reserved(config, pool, protocol)));
    let limits = &config.limits;
    let served = [
        (limits.tcp_ports, mappings.tcp),
        (limits.udp_ports, mappings.udp),
        (limits.icmp_ports, mappings.icmp),
    ]
    .map(|(quota, free)| {
        let quota = u64::from(quota.max(1));
        match config.pooling {
            // A paired subscriber's mappings share one address.
            Pooling::Paired => (addresses * (each / quota)).min(free / quota),
            Pooling::SoftPaired | Pooling::Arbitrary => free / quota,
        }
    });
    Pool {
        name: pool.name.clone(),
        default: index == config.default_pool,
        addresses: all_addresses,
        draining: all_addresses - addresses,
        ports: pool.ports,
        excluded_ports: pool.excluded_ports.clone(),
        mappings,
        subscribers_at_full_quota: allocation
            .served(limits, config.pooling, addresses)
            .unwrap_or_else(|| served.into_iter().min().unwrap_or(0)),
        allocation,
    }
}

/// The pool without its draining addresses.
fn serving(pool: &PoolConfig) -> PoolConfig {
    if pool.draining.is_empty() {
        return pool.clone();
    }
    let left = pool.each_address().filter(|address| !pool.is_draining(*address));
    let one = |address| AddressRange { first: address, last: address };
    PoolConfig { addresses: left.map(one).collect(), draining: Vec::new(), ..pool.clone() }
}

/// Ports of a pool that static mappings reserve for a protocol.
fn reserved(config: &Config, pool: &PoolConfig, protocol: u8) -> u64 {
    let in_pool =
        |address| pool.addresses.iter().any(|range| (range.first..=range.last).contains(&address));
    let of_protocol = config
        .statics
        .iter()
        .filter(|mapping| mapping.protocol.is_none_or(|its| its == protocol))
        .filter(|mapping| in_pool(mapping.external.0));
    let services = config.services.iter().filter(|service| {
        let (address, port) = service.external;
        service.protocol.is_none_or(|its| its == protocol)
            && in_pool(address)
            && pool.uses_port(port)
            && shares::can_be_given(config, pool, address, port)
    });
    let of_services = services.count() as u64;
    of_services
        + of_protocol
            .map(|mapping| match mapping.external.1 {
                Some(port) => u64::from(
                    pool.uses_port(port)
                        && shares::can_be_given(config, pool, mapping.external.0, port),
                ),
                None => shares::ports_given(config, pool, mapping.external.0),
            })
            .sum::<u64>()
}

fn ports_of_an_address(pool: &PoolConfig) -> u64 {
    u64::from(pool.ports.1 - pool.ports.0) + 1
}
