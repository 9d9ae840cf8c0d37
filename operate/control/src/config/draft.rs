//! The draft: a configuration after reading and before the checks that compare its parts. Every
//! value that [`super::checks`] may report still has its place.
//!
//! A value that could not be read has been reported, and is absent here or has its default. A draft
//! becomes [`Settings`] only if there is no problem.

use super::fleet::FleetDraft;
use super::ipv6::Ipv6Draft;
use super::kernel::{KernelDraft, Management};
use super::policy::{self, ClassDraft, TimeoutDraft};
use super::pools::LeftOut;
use super::problem::{Located, Place};
use super::realms::{RealmDraft, RealmName};
use super::router6::Router6Draft;
use super::sections::SegmentSize;
use super::shares::SharesDraft;
use super::softwires::Lw4o6Draft;
use super::values::{DnatTo, Span};
use natgate_engine::{
    AddressRange, Affinity, Allocation, Begun, Config, Match, PoolConfig, Prefix, Rule, RuleAction,
    Server, Service, Side, SideConfig, StaticMapping, TimeoutSet,
};
use natgate_gateway::{
    AlgKind, AlgSettings, Backend, ControlSettings, HealthSettings, InsideRoutes, LogSettings,
    LogWhat, MonitoringSettings, PageSettings, PcpSettings, ReceiveMode, Route, RuleAlgs, Settings,
    SideSettings, StateSettings, WorkerSettings,
};
use natgate_wire::arp::Mac;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv4 and a TCP header without options, bytes.
pub(super) const TCP_HEADERS: u16 = 40;

/// The whole file.
pub(super) struct Draft {
    pub(super) inside: SideDraft,
    pub(super) outside: SideDraft,
    pub(super) realms: Vec<RealmDraft>,
    /// Realms whose external endpoints the network of the inside may reach.
    pub(super) hairpin_to: Vec<Located<String>>,
    pub(super) routes: Vec<RouteDraft>,
    pub(super) inside_routes: InsideRoutes,
    pub(super) neighbors: Vec<NeighborDraft>,
    /// Most neighbors of a link.
    pub(super) neighbors_limit: Option<usize>,
    pub(super) pools: Vec<PoolDraft>,
    pub(super) subscribers: Vec<Located<Prefix>>,
    /// The place of the subscribers list if the list is empty.
    pub(super) no_subscribers: Option<Place>,
    /// Behavior, limits and timeouts. The other fields are filled in at the end.
    pub(super) config: Config,
    /// The allocation keys of `[nat]`.
    pub(super) shares: SharesDraft,
    /// The maximum segment size that SYNs may announce.
    pub(super) segment_size: SegmentSize,
    /// The number of external addresses to reserve room for.
    pub(super) room: Option<Located<u32>>,
    /// The place of the quota, or where it would be.
    pub(super) quota_place: Place,
    /// The place of the mapping table's size, or where it would be.
    pub(super) mappings_place: Place,
    pub(super) statics: Vec<StaticDraft>,
    pub(super) rules: Vec<RuleDraft>,
    pub(super) classes: Vec<ClassDraft>,
    /// Timeouts by remote port.
    pub(super) timeouts: Vec<TimeoutDraft>,
    pub(super) workers: WorkerSettings,
    /// Arguments of DPDK's environment.
    pub(super) dpdk: Option<Located<Vec<String>>>,
    pub(super) kernel: KernelDraft,
    pub(super) state: Option<StateSettings>,
    pub(super) control: ControlSettings,
    pub(super) logs: Vec<LogSettings>,
    pub(super) page: PageSettings,
    pub(super) monitoring: MonitoringSettings,
    pub(super) pcp: PcpSettings,
    /// Application-level gateways.
    pub(super) alg: AlgSettings,
    pub(super) ipv6: Ipv6Draft,
    pub(super) router6: Router6Draft,
    pub(super) fleet: Option<FleetDraft>,
}

/// One of the two sides.
pub(super) struct SideDraft {
    /// The name of the side's table: `inside`, `outside`, or a realm's.
    pub(super) name: String,
    pub(super) device: Option<Located<String>>,
    pub(super) backend: Backend,
    pub(super) address: Option<Located<(Ipv4Addr, u8)>>,
    pub(super) gateway: Option<Located<Ipv4Addr>>,
    pub(super) address6: Option<Located<(Ipv6Addr, u8)>>,
    pub(super) gateway6: Option<Located<Ipv6Addr>>,
    pub(super) mtu: u16,
    pub(super) icmp_errors: bool,
    pub(super) management: Management,
    pub(super) mode: ReceiveMode,
    pub(super) ring: Option<u32>,
}

impl SideDraft {
    /// The connected network, if the file gives it.
    pub(super) fn network(&self) -> Option<Prefix> {
        self.address.as_ref().map(|address| Prefix::new(address.value.0, address.value.1))
    }

    /// The gateway's own address.
    pub(super) fn own(&self) -> Option<Ipv4Addr> {
        self.address.as_ref().map(|address| address.value.0)
    }

    /// The name of the side's table.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn engine(&self) -> SideConfig {
        SideConfig {
            address: self.own(),
            network: self.network(),
            mtu: Some(self.mtu),
            silent: !self.icmp_errors,
        }
    }

    pub(super) fn settings(&self) -> SideSettings {
        SideSettings {
            device: self.device.as_ref().map(|device| device.value.clone()).unwrap_or_default(),
            backend: self.backend,
            address: self.address.as_ref().map(|address| address.value),
            gateway: self.gateway.as_ref().map(|gateway| gateway.value),
            mtu: self.mtu,
            mode: self.mode,
            ring: self.ring,
        }
    }
}

/// A route.
pub(super) struct RouteDraft {
    pub(super) prefix: Located<Prefix>,
    pub(super) via: Located<Ipv4Addr>,
    pub(super) side: Side,
    pub(super) realm: RealmName,
}

impl RouteDraft {
    pub(super) fn to_settings(&self) -> Route {
        Route { prefix: self.prefix.value, via: self.via.value, side: self.side }
    }
}

/// A static neighbor.
pub(super) struct NeighborDraft {
    pub(super) address: Located<Ipv4Addr>,
    pub(super) mac: Mac,
    pub(super) side: Side,
    pub(super) realm: RealmName,
}

/// A pool.
pub(super) struct PoolDraft {
    pub(super) name: Located<String>,
    pub(super) ranges: Vec<Located<AddressRange>>,
    pub(super) ports: Located<(u16, u16)>,
    /// Excluded ports and draining addresses.
    pub(super) left_out: LeftOut,
    /// True if ports are overloaded when none is free.
    pub(super) overloading: bool,
    /// Allocation of ports.
    pub(super) shares: SharesDraft,
    /// Percentages of use that cause an event.
    pub(super) thresholds: Vec<u8>,
}

/// A static mapping, or a service.
pub(super) struct StaticDraft {
    pub(super) place: Place,
    pub(super) realm: RealmName,
    pub(super) target: Targeted,
    /// External endpoint, with as many ports as the internal end has, or none.
    pub(super) external: Located<(Ipv4Addr, Option<Span>)>,
    pub(super) protocol: Option<u8>,
    pub(super) begun: Begun,
}

/// The hosts behind a static mapping.
pub(super) enum Targeted {
    Host(Located<(Ipv4Addr, Option<Span>)>),
    /// A host of NAT64.
    Host6(Located<(Ipv6Addr, Option<Span>)>),
    /// A host behind a B4 of DS-Lite.
    Tunneled {
        b4: Located<Ipv6Addr>,
        internal: Located<(Ipv4Addr, Option<Span>)>,
    },
    Servers {
        place: Place,
        members: Vec<ServerDraft>,
        affinity: Affinity,
        health: Option<Located<HealthSettings>>,
    },
}

/// A server of a service.
pub(super) struct ServerDraft {
    pub(super) internal: Located<(Ipv4Addr, u16)>,
    pub(super) weight: u16,
    pub(super) draining: bool,
    pub(super) backup: bool,
}

/// The application-level gateways that a rule names.
pub(super) type NamedAlgs = Box<Located<Vec<Located<AlgKind>>>>;

/// A rule.
pub(super) struct RuleDraft {
    pub(super) realm: RealmName,
    pub(super) matches: Located<Match>,
    pub(super) priority: Located<i16>,
    pub(super) action: ActionDraft,
    /// Timeouts of a rule that translates sources.
    pub(super) timeouts: Option<Box<Located<TimeoutSet>>>,
    /// Application-level gateways of such a rule, if it names them.
    pub(super) alg: Option<NamedAlgs>,
}

impl RuleDraft {
    /// The matched end of a packet (true: the source), its prefix and port.
    pub(super) fn looks_at(&self) -> (bool, Prefix, u16) {
        match self.matches.value {
            Match::Source(prefix, port) => (true, prefix, port),
            Match::Destination(prefix, port) => (false, prefix, port),
        }
    }

    fn to_config(&self, targets: &Targets<'_>, sets: &[TimeoutSet]) -> Rule {
        let pool = || targets.of(&self.action).expect("a rule without its pool is a problem");
        let action = match &self.action {
            ActionDraft::Snat(_) => RuleAction::Snat(pool()),
            ActionDraft::SnatTo(address, _) => RuleAction::SnatTo(pool(), address.value),
            ActionDraft::Dnat(to) => match to.value {
                DnatTo::Endpoint(address, port) => RuleAction::Dnat(address, port),
                DnatTo::Prefix(prefix) => RuleAction::DnatPrefix(prefix),
            },
            ActionDraft::Bypass => RuleAction::Bypass,
            ActionDraft::Drop => RuleAction::Drop,
        };
        let algs = |alg: &NamedAlgs| RuleAlgs::of(alg.value.iter().map(|kind| kind.value)).mark();
        Rule {
            matches: self.matches.value,
            priority: self.priority.value,
            action,
            timeouts: policy::set_of(self, sets),
            mark: self.alg.as_ref().map_or(0, algs),
        }
    }
}

/// The action of a rule.
pub(super) enum ActionDraft {
    Snat(Located<String>),
    /// A single address, and its pool if the rule names the pool.
    SnatTo(Located<Ipv4Addr>, Option<Located<String>>),
    Dnat(Located<DnatTo>),
    Bypass,
    Drop,
}

impl ActionDraft {
    /// True if the rule translates sources.
    pub(super) fn is_snat(&self) -> bool {
        matches!(self, Self::Snat(_) | Self::SnatTo(..))
    }

    pub(super) fn is_bypass(&self) -> bool {
        matches!(self, Self::Bypass)
    }
}

impl Draft {
    /// Indexes the pools by name and by address.
    pub(super) fn targets(&self) -> Targets<'_> {
        let pools = || self.pools.iter().enumerate();
        // If two pools have one name, the first is used. The other one is reported.
        let names = pools().rev().map(|(index, pool)| (&pool.name.value[..], index)).collect();
        let ranges = |(index, pool)| {
            let pool: &PoolDraft = pool;
            pool.ranges.iter().map(move |range| (range.value.first, range.value.last, index))
        };
        let mut ranges: Vec<(Ipv4Addr, Ipv4Addr, usize)> = pools().flat_map(ranges).collect();
        ranges.sort_unstable();
        Targets { names, ranges }
    }

    /// The pool for subscribers without a rule: the one named `default`, else the first.
    pub(super) fn default_pool(&self) -> usize {
        self.targets().pool("default").unwrap_or(0)
    }

    /// Converts a draft without problems to settings.
    pub(super) fn into_settings(self) -> Settings {
        let (targets, timeout_sets) = (self.targets(), self.timeout_sets());
        let names = self.realm_names();
        let mut all_rules = vec![Vec::new(); self.realms.len() + 1];
        for rule in &self.rules {
            let realm = names.of(&rule.realm).expect("a rule of no realm is a problem");
            all_rules[usize::from(realm)].push(rule.to_config(&targets, &timeout_sets));
        }
        let further = all_rules.split_off(1);
        let rules = all_rules.pop().expect("the rules of realm 0");
        let mut routes = self.to_routes();
        let of_realms = routes.split_off(1);
        let mut neighbors = self.to_neighbors();
        let neighbors_of_realms = neighbors.split_off(1);
        let (realms, realm_settings) = self.to_realms(further, of_realms, neighbors_of_realms);
        let of = |fixed: &StaticDraft| {
            names.of(&fixed.realm).expect("a static mapping of no realm is a problem")
        };
        let statics_of = |fixed: &StaticDraft| fixed.statics(of(fixed));
        let service_of = |fixed: &StaticDraft| fixed.service(of(fixed));
        let (default_pool, allocation) = (self.default_pool(), self.common_allocation());
        let (ipv6, router6) = (self.to_ipv6(), self.to_router6());
        let engine = Config {
            inside: self.inside.engine(),
            outside: self.outside.engine(),
            realms,
            hairpin_to: self.to_numbers(&self.hairpin_to),
            subscribers: self.to_subscribers(),
            pools: self.to_pools(&allocation),
            allocation,
            default_pool,
            statics: self.statics.iter().flat_map(statics_of).chain(self.statics6()).collect(),
            services: self.statics.iter().filter_map(service_of).collect(),
            rules,
            classes: self.to_classes(),
            port_timeouts: self.to_port_timeouts(),
            timeout_sets,
            session_events: self.logs.iter().any(|log| log.what == LogWhat::Sessions),
            tcp_mss: self.tcp_mss(),
            ..self.config.clone()
        };
        let workers = self.workers.count;
        let mut settings = Settings {
            engine,
            inside: self.inside.settings(),
            outside: self.outside.settings(),
            realms: realm_settings,
            routes: routes.pop().unwrap_or_default(),
            inside_routes: self.inside_routes,
            neighbors: neighbors.pop().unwrap_or_default(),
            neighbors_limit: self.neighbors_limit,
            workers: self.workers,
            dpdk: self.dpdk.map(|dpdk| dpdk.value),
            kernel: self.kernel.settings([&self.inside, &self.outside]),
            fleet: self.fleet.map(|fleet| fleet.settings(workers, self.state.as_ref())),
            state: self.state,
            pcp: self.pcp,
            alg: self.alg,
            health: self.statics.iter().filter_map(StaticDraft::health).collect(),
            control: self.control,
            logs: self.logs,
            page: self.page,
            monitoring: self.monitoring,
            ipv6,
            bindings: self.ipv6.lw4o6.as_ref().map(Lw4o6Draft::bindings),
            router6,
        };
        settings.derive_inside_routes();
        settings
    }

    /// The largest maximum segment size that SYNs may announce.
    fn tcp_mss(&self) -> Option<u16> {
        match &self.segment_size {
            SegmentSize::Unchanged => None,
            SegmentSize::Bytes(size) => Some(size.value),
            SegmentSize::ByMtu => {
                let mtus = self.insides().map(|inside| inside.mtu);
                Some(mtus.fold(self.outside.mtu, u16::min).saturating_sub(TCP_HEADERS))
            }
        }
    }

    /// The largest MTU of all links.
    pub(super) fn largest_mtu(&self) -> u16 {
        self.insides().map(|inside| inside.mtu).fold(self.outside.mtu, u16::max)
    }

    /// The pools. Without one the translator has a pool without addresses.
    fn to_pools(&self, common: &Allocation) -> Vec<PoolConfig> {
        if self.pools.is_empty() {
            return vec![PoolConfig { name: "default".to_owned(), ..PoolConfig::default() }];
        }
        let own = |pool| Some(self.allocation(pool)).filter(|own| own != common);
        self.pools.iter().map(|pool| pool.to_engine(own(pool))).collect()
    }

    /// The subscribers of the pools. Without a pool there are none.
    fn to_subscribers(&self) -> Vec<Prefix> {
        match self.pools.is_empty() {
            true => Vec::new(),
            false => self.subscribers.iter().map(|prefix| prefix.value).collect(),
        }
    }
}

/// Index of the pools by name and by address, for rules.
pub(super) struct Targets<'a> {
    names: HashMap<&'a str, usize>,
    /// First address, last address and pool of each range, in order of address.
    ranges: Vec<(Ipv4Addr, Ipv4Addr, usize)>,
}

impl Targets<'_> {
    /// Finds a pool by its name.
    pub(super) fn pool(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Finds the pool of an address.
    pub(super) fn pool_of(&self, address: Ipv4Addr) -> Option<usize> {
        let after = self.ranges.partition_point(|(first, _, _)| *first <= address);
        let (_, last, pool) = *self.ranges.get(after.checked_sub(1)?)?;
        (address <= last).then_some(pool)
    }

    /// Finds a pool that shares addresses with a prefix, and the shared addresses.
    pub(super) fn overlapping(&self, prefix: Prefix) -> Option<(AddressRange, usize)> {
        // Ranges do not overlap here: an overlap has been reported.
        let after = self.ranges.partition_point(|(first, _, _)| u32::from(*first) <= prefix.last());
        let (first, last, pool) = *self.ranges.get(after.checked_sub(1)?)?;
        (u32::from(last) >= prefix.first()).then_some((AddressRange { first, last }, pool))
    }

    /// Finds the pool of a rule's action.
    pub(super) fn of(&self, action: &ActionDraft) -> Option<usize> {
        match action {
            ActionDraft::Snat(pool) => self.pool(&pool.value),
            ActionDraft::SnatTo(address, _) => self.pool_of(address.value),
            _ => None,
        }
    }
}

impl PoolDraft {
    /// Converts the pool to the engine's configuration.
    pub(super) fn to_engine(&self, allocation: Option<Allocation>) -> PoolConfig {
        PoolConfig {
            name: self.name.value.clone(),
            addresses: self.ranges.iter().map(|range| range.value).collect(),
            draining: self.left_out.draining.iter().map(|range| range.value).collect(),
            ports: self.ports.value,
            excluded_ports: self.left_out.ports.iter().map(|ports| ports.value).collect(),
            allocation,
            overloading: self.overloading,
            thresholds: self.thresholds.clone(),
        }
    }
}

impl StaticDraft {
    /// The internal ends of IPv4: place, address and ports of each.
    pub(super) fn internals(&self) -> Vec<(&Place, Ipv4Addr, Option<Span>)> {
        match &self.target {
            Targeted::Host(internal) => {
                vec![(&internal.place, internal.value.0, internal.value.1)]
            }
            Targeted::Host6(_) | Targeted::Tunneled { .. } => Vec::new(),
            Targeted::Servers { members, .. } => {
                let end = |member: &'_ ServerDraft| {
                    let port = member.internal.value.1;
                    (member.internal.value.0, Some(Span { first: port, last: port }))
                };
                let each = members.iter().map(|member| {
                    let (address, ports) = end(member);
                    (&member.internal.place, address, ports)
                });
                each.collect()
            }
        }
    }

    /// The number of static mappings in the engine's configuration.
    pub(super) fn count(&self) -> u32 {
        self.external.value.1.map_or(1, Span::count)
    }

    /// Makes one static mapping per port.
    fn statics(&self, realm: u16) -> Vec<StaticMapping> {
        let Targeted::Host(internal) = &self.target else { return Vec::new() };
        self.each(realm, internal.value)
    }

    /// Makes one static mapping per port of an internal end.
    pub(super) fn each(&self, realm: u16, inside: (Ipv4Addr, Option<Span>)) -> Vec<StaticMapping> {
        let Self { protocol, begun, external, .. } = self;
        let outside = external.value;
        let mapping = |ports: Option<(u16, u16)>| StaticMapping {
            realm,
            protocol: *protocol,
            internal: (inside.0, ports.map(|ports| ports.0)),
            external: (outside.0, ports.map(|ports| ports.1)),
            begun: *begun,
        };
        match (inside.1, outside.1) {
            (Some(inner), Some(outer)) => {
                let ports = inner.ports().zip(outer.ports());
                ports.map(|ports| mapping(Some(ports))).collect()
            }
            _ => vec![mapping(None)],
        }
    }

    /// For servers: their health checks, if there are any.
    fn health(&self) -> Option<Option<HealthSettings>> {
        let Targeted::Servers { health, .. } = &self.target else { return None };
        Some(health.as_ref().map(|health| health.value.clone()))
    }

    fn service(&self, realm: u16) -> Option<Service> {
        let Targeted::Servers { members, affinity, .. } = &self.target else { return None };
        let (address, ports) = self.external.value;
        let server = |member: &ServerDraft| Server {
            internal: member.internal.value,
            weight: member.weight,
            draining: member.draining,
            backup: member.backup,
        };
        Some(Service {
            realm,
            protocol: self.protocol,
            external: (address, ports?.first),
            servers: members.iter().map(server).collect(),
            affinity: *affinity,
        })
    }
}
