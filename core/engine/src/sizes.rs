//! Checks of a configuration, and the sizes of the tables that it needs.

use crate::ConfigError;
use crate::blocks::Blocking;
use crate::config::{
    AddressRange, Allocation, Begun, Behavior, BlockConfig, Config, PoolConfig, RealmConfig, Rule,
    RuleAction, Server, Service, StaticMapping, external_addresses,
};
use crate::deterministic::Plan;
use crate::statics::{count_statics, served};
use crate::subscriber::SubscriberRoom;
use crate::table::{Room, further_each};
use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// Most external addresses. An address's index and a port share 31 bits, and the value with all
/// bits set has another meaning.
pub(crate) const MAX_ADDRESSES: usize = (1 << 15) - 1;

/// Number of protocols that room is reserved for by default: TCP, UDP and ICMP. DCCP shares the
/// room.
const COMMON: usize = 3;

/// Most mappings by default.
const DEFAULT_MAPPINGS: usize = 1 << 20;

/// Room for new static mappings: this number, or the number at the start if that is larger.
const MORE_STATICS: usize = 8192;

/// Least room for subscribers by default, if there is room for as many mappings.
const LEAST_SUBSCRIBERS: usize = 1 << 16;

/// Least room for external addresses by default.
const LEAST_ADDRESSES: usize = 64;
/// Least room by default for sessions with a translated destination.
const LEAST_TWICE: usize = 1024;

/// Sizes of the tables.
pub(crate) struct Sizes {
    /// Number of external addresses at the start, and largest number.
    pub(crate) addresses: usize,
    pub(crate) address_room: usize,
    pub(crate) room: Room,
    pub(crate) subscribers: SubscriberRoom,
    /// Sessions of one subscriber beyond the first of each mapping.
    pub(crate) further_each: u32,
    /// Sessions whose remote endpoint has another name inside.
    pub(crate) twice: usize,
}

impl Sizes {
    pub(crate) fn new(config: &Config) -> Self {
        let endpoints =
            |pool: &PoolConfig| COMMON * pool.mappings_per_port() * usable_ports(config, pool);
        let all: usize = config.pools.iter().map(endpoints).sum();
        let limit = |limit: Option<u32>, default| limit.map_or(default, |limit| limit as usize);
        let dynamic = limit(config.limits.mappings, all.min(DEFAULT_MAPPINGS));
        let of_service = |service: &Service| served(service).count() * service.servers.len();
        let fixed =
            count_statics(&config.statics) + config.services.iter().map(of_service).sum::<usize>();
        let further = limit(config.limits.extra_sessions, dynamic + fixed);
        let one_way = config.statics.iter().any(|one| one.begun == Begun::Outside);
        let beside = if one_way || !config.services.is_empty() { fixed + further } else { 0 };
        let overloading = config.pools.iter().any(|pool| pool.overloading);
        // Each of these sessions is filed at both endpoints.
        let shared = 2 * (beside + if overloading { dynamic } else { 0 });
        // Every subscriber has a mapping.
        let subscribers =
            limit(config.limits.subscribers, (dynamic / 16).max(LEAST_SUBSCRIBERS)).min(dynamic);
        let addresses = config.count_addresses();
        let address_room = limit(
            config.limits.external_addresses,
            (2 * addresses).clamp(LEAST_ADDRESSES, MAX_ADDRESSES),
        );
        let room = Room { dynamic, fixed: fixed + fixed.max(MORE_STATICS), further, shared };
        Self {
            addresses,
            address_room,
            room,
            further_each: further_each(further, &config.limits),
            twice: limit(config.limits.twice_sessions, (dynamic / 4).max(LEAST_TWICE)),
            subscribers: SubscriberRoom {
                subscribers,
                records: subscribers * config.pools.len(),
                slots: room.dynamic + room.fixed,
                pools: config.pools.len(),
            },
        }
    }
}

/// Number of a pool's ports that mappings can have, over all addresses. In a deterministic pool,
/// some ports may belong to no subscriber.
fn usable_ports(config: &Config, pool: &PoolConfig) -> usize {
    let ports = usize::from(pool.ports.1.saturating_sub(pool.ports.0)) + 1;
    let plan = match config.allocation_of(pool) {
        Allocation::Deterministic(plan) => Plan::new(plan, pool).ok(),
        _ => None,
    };
    plan.map_or(ports * pool.count(), |plan| plan.ports_usable() as usize)
}

impl Config {
    /// Number of dynamic mappings that the table has room for: the configured number, or a default
    /// by the ports of the pools.
    pub fn mapping_room(&self) -> u64 {
        Sizes::new(self).room.dynamic as u64
    }

    /// Most sessions that there may be at a time.
    pub fn session_room(&self) -> u64 {
        let Room { dynamic, fixed, further, .. } = Sizes::new(self).room;
        (dynamic + fixed + further) as u64
    }
}

/// Checks everything that the engine relies on. The control crate makes the same checks earlier and
/// names line and column.
pub(crate) fn validate(config: &Config) -> Result<(), ConfigError> {
    let fail = |message: String| Err(ConfigError { message });
    if config.pools.is_empty() || config.default_pool >= config.pools.len() {
        return fail("there is no pool: give at least one".into());
    }
    for pool in &config.pools {
        let backwards = pool.addresses.iter().any(|range| range.first > range.last);
        if backwards || pool.ports.1.max(1) < pool.ports.0.max(1) {
            return fail(format!(
                "pool {}: addresses and ports must be given from first to last",
                pool.name
            ));
        }
    }
    for pool in &config.pools {
        validate_exceptions(config, pool)?;
        validate_allocation(config, pool)?;
    }
    crate::config::realms::validate(config)?;
    let ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    if ranges.map(AddressRange::count).sum::<usize>() > MAX_ADDRESSES {
        return fail(format!("more than {MAX_ADDRESSES} external addresses are not possible"));
    }
    validate_statics(config)?;
    let addresses = config.count_addresses();
    if addresses > MAX_ADDRESSES {
        return fail(format!(
            "{addresses} external addresses: at most {MAX_ADDRESSES} are possible"
        ));
    }
    validate_room(config)?;
    validate_times_and_rates(config)?;
    crate::config::policy::validate(config)?;
    let mut addresses = external_addresses(config);
    addresses.sort_unstable();
    if let Some(twice) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        let address = core::net::Ipv4Addr::from_bits(twice[0]);
        return fail(format!("{address} is in two pools, or twice in one"));
    }
    Ok(())
}

/// Checks that the tables can be as large as the limits say.
fn validate_room(config: &Config) -> Result<(), ConfigError> {
    let fail = |message: String| Err(ConfigError { message });
    let sizes = Sizes::new(config);
    if !(sizes.addresses..=MAX_ADDRESSES).contains(&sizes.address_room) {
        let (room, named) = (sizes.address_room, sizes.addresses);
        return fail(format!(
            "limits.external_addresses is {room}: give {named}, which are named, to {MAX_ADDRESSES}"
        ));
    }
    let Room { dynamic, fixed, further, .. } = sizes.room;
    if dynamic + fixed >= 1 << 31 || further >= 1 << 31 {
        return fail("limits.mappings and limits.extra_sessions must be below 2^31".into());
    }
    if sizes.twice >= 1 << 31 {
        return fail("limits.twice_sessions must be below 2^31".into());
    }
    Ok(())
}

/// Checks timeouts, rates and shares.
fn validate_times_and_rates(config: &Config) -> Result<(), ConfigError> {
    let fail = |message: String| Err(ConfigError { message });
    let timeouts = &config.timeouts;
    let short = [
        timeouts.udp,
        timeouts.tcp_established,
        timeouts.tcp_opening,
        timeouts.tcp_closing,
        timeouts.icmp,
        timeouts.other,
    ];
    if short.iter().any(|&timeout| timeout < Duration::from_secs(1)) {
        return fail("a timeout is below one second".into());
    }
    if short.iter().any(|&timeout| timeout > Duration::from_secs(30 * 86_400)) {
        return fail("a timeout is over thirty days".into());
    }
    if timeouts.hold_down > Duration::from_secs(3600) {
        return fail("timeouts.hold_down is over one hour".into());
    }
    let limits = &config.limits;
    if limits.new_mappings_per_second == 0 || limits.icmp_errors_per_second == 0 {
        return fail("a rate of limits is 0: give at least 1 a second".into());
    }
    if !(1..=100).contains(&limits.asking_share) {
        return fail("limits.asking_share must be 1 to 100 percent".into());
    }
    if timeouts.fragment.is_zero() || timeouts.fragment > Duration::from_secs(3600) {
        return fail("timeouts.fragment must be above zero and at most one hour".into());
    }
    Ok(())
}

/// Checks that both endpoints of static mappings and services fit together.
fn validate_statics(config: &Config) -> Result<(), ConfigError> {
    let fail = |message: String| Err(ConfigError { message });
    let one_port = |one: &StaticMapping| one.internal.1.is_some() != one.external.1.is_some();
    if let Some(one) = config.statics.iter().find(|one| one_port(one)) {
        let address = one.external.0;
        return fail(format!("the static mapping of {address}: give both ends a port, or neither"));
    }
    for service in &config.services {
        let (address, port) = service.external;
        let count = service.servers.len();
        if count == 0 || count > Server::MOST {
            let most = Server::MOST;
            return fail(format!("{address}:{port} has {count} servers: give 1 to {most}"));
        }
    }
    Ok(())
}

/// Checks that excluded ports leave a pool some ports, and that draining addresses belong to the
/// pool.
fn validate_exceptions(config: &Config, pool: &PoolConfig) -> Result<(), ConfigError> {
    let fail =
        |message: String| Err(ConfigError { message: format!("pool {}: {message}", pool.name) });
    let backwards = |&(first, last): &(u16, u16)| last < first;
    if pool.excluded_ports.iter().any(backwards) {
        return fail("excluded ports must be given from first to last".into());
    }
    if pool.ports_used() == 0 {
        return fail("all of its ports are excluded: leave one".into());
    }
    let mut draining = pool.draining.iter().flat_map(|range| range.each());
    if let Some(address) = draining.find(|&address| !pool.has(address)) {
        return fail(format!("{address} drains, but is not of the pool"));
    }
    let computed = matches!(config.allocation_of(pool), Allocation::Deterministic(_));
    if computed && !pool.draining.is_empty() {
        let message = "whose subscribers have no other ports: leave it out of the pool instead";
        return fail(format!("{} drains, {message}", pool.draining[0].first));
    }
    Ok(())
}

/// Checks that a pool's ports can be divided by its allocation.
fn validate_allocation(config: &Config, pool: &PoolConfig) -> Result<(), ConfigError> {
    let fail =
        |message: String| Err(ConfigError { message: format!("pool {}: {message}", pool.name) });
    match config.allocation_of(pool) {
        Allocation::Random | Allocation::Preserve => Ok(()),
        Allocation::Block(BlockConfig { size, max_per_subscriber, release_after }) => {
            if !size.is_power_of_two() || !BlockConfig::SIZES.contains(size) {
                return fail(format!(
                    "blocks of {size} ports: give a power of two from 16 to 32768"
                ));
            }
            if !(1..=BlockConfig::MOST).contains(max_per_subscriber) {
                let most = BlockConfig::MOST;
                return fail(format!("{max_per_subscriber} blocks a subscriber: give 1 to {most}"));
            }
            if *release_after > BlockConfig::LONGEST {
                return fail("empty blocks are released after an hour at the latest".into());
            }
            if Blocking::new(pool.ports, *size).count() == 0 {
                let (first, last) = pool.ports;
                return fail(format!("ports {first} to {last} hold no block of {size}"));
            }
            Ok(())
        }
        Allocation::Address => validate_whole(config, pool).or_else(fail),
        Allocation::Deterministic(deterministic) => Plan::new(deterministic, pool)
            .map(drop)
            .or_else(|error| fail(format!("{}: {}", error.key, error.message))),
    }
}

/// Checks that nothing else takes ports of a pool that gives out whole addresses.
fn validate_whole(config: &Config, pool: &PoolConfig) -> Result<(), String> {
    if pool.ports != Allocation::ALL_PORTS || !pool.excluded_ports.is_empty() {
        return Err("a host gets whole addresses: the pool has ports 1 to 65535".into());
    }
    if pool.overloading {
        return Err("a host gets whole addresses: no port is overloaded".into());
    }
    if config.mapping != Behavior::EndpointIndependent {
        return Err("ports stay, so mappings must be endpoint-independent".into());
    }
    let is_part = |one: &&StaticMapping| {
        pool.has(one.external.0) && (one.external.1.is_some() || one.protocol.is_some())
    };
    if let Some(one) = config.statics.iter().find(is_part) {
        let address = one.external.0;
        return Err(format!("a static mapping takes a part of {address}: map the whole address"));
    }
    if let Some(service) = config.services.iter().find(|one| pool.has(one.external.0)) {
        let (address, port) = service.external;
        return Err(format!("servers take port {port} of {address}: take them an address apart"));
    }
    let number = config.pools.iter().position(|one| core::ptr::eq(one, pool));
    let has_groups = |realm: &&RealmConfig| realm.host_bits.is_some_and(|bits| bits > 0);
    let named = |rule: &Rule| matches!(rule.action, RuleAction::Snat(pool) if Some(pool) == number);
    let uses =
        |realm: &&RealmConfig| Some(realm.default_pool) == number || realm.rules.iter().any(named);
    if config.realms.iter().filter(has_groups).any(|realm| uses(&realm)) {
        return Err("a subscriber of several hosts cannot have one address".into());
    }
    Ok(())
}
