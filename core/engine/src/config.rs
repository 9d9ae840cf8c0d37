//! The translator's configuration as plain data. The control crate reads the text and explains
//! errors to people. `Engine::new` refuses what the engine cannot run.

mod addresses;
pub(crate) mod policy;
pub(crate) mod realms;
mod statics;
mod timeouts;

pub(crate) use addresses::external_addresses;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
pub use policy::{Class, ClassLimits, PortTimeout, Thresholds, TimeoutSet, Totals};
pub use statics::{Affinity, Begun, Server, Service, StaticMapping};
pub use timeouts::Timeouts;

/// An IPv4 prefix. Prefixes are ordered by address, then by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: u32,
    len: u8,
}

impl Prefix {
    /// The prefix of `len` bits (at most 32) with `address`. Bits beyond the length are cleared.
    ///
    /// # Panics
    /// When `len` is over 32.
    pub const fn new(address: Ipv4Addr, len: u8) -> Self {
        assert!(len <= 32);
        let prefix = Self { address: u32::from_be_bytes(address.octets()), len };
        Self { address: prefix.address & prefix.mask(), len }
    }

    const fn mask(self) -> u32 {
        if self.len == 0 { 0 } else { u32::MAX << (32 - self.len) }
    }

    /// True if an address, host byte order, is in the prefix.
    pub const fn contains(self, address: u32) -> bool {
        address & self.mask() == self.address
    }

    /// The first address, host byte order.
    pub const fn first(self) -> u32 {
        self.address
    }

    /// The last address, host byte order.
    pub const fn last(self) -> u32 {
        self.address | !self.mask()
    }

    /// The number of bits.
    pub const fn len(self) -> u8 {
        self.len
    }

    /// True if the prefix has no bits and contains every address.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl From<Ipv4Addr> for Prefix {
    /// The prefix that contains this address alone.
    fn from(address: Ipv4Addr) -> Self {
        Self::new(address, 32)
    }
}

/// Addresses from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub first: Ipv4Addr,
    /// The last address, not below the first.
    pub last: Ipv4Addr,
}

impl AddressRange {
    /// Number of addresses in the range.
    pub const fn count(&self) -> usize {
        self.last.to_bits().saturating_sub(self.first.to_bits()) as usize + 1
    }

    /// Each address of the range, ascending.
    pub fn each(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (self.first.to_bits()..=self.last.to_bits()).map(Ipv4Addr::from_bits)
    }

    /// True if the range contains `address`.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// Configuration of one of the gateway's two sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideConfig {
    /// The gateway's own address on the side: it answers ping and is the source of ICMP errors.
    pub address: Option<Ipv4Addr>,
    /// The network that is directly connected to the side.
    pub network: Option<Prefix>,
    /// Largest IP packet that the side carries, bytes; `None`: 1500.
    pub mtu: Option<u16>,
    /// True if the gateway sends no ICMP errors of its own to the side (RFC 5508 REQ-9).
    pub silent: bool,
}

/// An internal network besides realm 0. Addresses of realms may overlap: a subscriber is a realm
/// and an address (RFC 2663 section 2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RealmConfig {
    /// The realm's name.
    pub name: String,
    /// The gateway's address and network in the realm.
    pub inside: SideConfig,
    /// Prefixes of the realm that are translated.
    pub subscribers: Vec<Prefix>,
    /// Index of the realm's pool without a rule.
    pub default_pool: usize,
    /// Numbers of the realms whose external endpoints hosts of this realm may reach.
    pub hairpin_to: Vec<u16>,
    /// Addresses behind routers of the realm, ascending, disjoint: packets there stay as they are.
    pub inside_routes: Vec<AddressRange>,
    /// Rules for packets from the realm and to the realm.
    pub rules: Vec<Rule>,
    /// True if the realm was removed and its number cannot be used yet (see
    /// [`Config::in_numbers_of`]).
    pub gone: bool,
    /// Place of the realm in the search for a realm whose rules let an inbound packet bypass
    /// translation. Lower values come first; of equal values, the lower number of the realm. Realm
    /// 0 is not part of this order.
    pub order: u16,
    /// `Some`: numbers stand for hosts; a subscriber's differ in so many lower bits, 31 at most.
    /// Such realms, at most [`Config::MOST_NUMBERED`], are behind all others.
    pub host_bits: Option<u8>,
}

/// A pool: external addresses and the ports used of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The pool's name, for rules.
    pub name: String,
    /// The pool's addresses in configured order. No two ranges, of any pools, overlap.
    pub addresses: Vec<AddressRange>,
    /// Addresses of the pool that get no new mappings.
    pub draining: Vec<AddressRange>,
    /// First and last port (and ICMP query identifier) to use.
    pub ports: (u16, u16),
    /// Ports within `ports`, first and last, that are not used.
    pub excluded_ports: Vec<(u16, u16)>,
    /// Port allocation of the pool; `None`: [`Config::allocation`].
    pub allocation: Option<Allocation>,
    /// True if several mappings may use one port towards different remote endpoints when no port is
    /// free (RFC 7857 section 3).
    pub overloading: bool,
    /// Thresholds for the pool's ports, or blocks: percentages, ascending; see [`Thresholds`].
    pub thresholds: Vec<u8>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            addresses: Vec::new(),
            draining: Vec::new(),
            ports: (1024, u16::MAX),
            excluded_ports: Vec::new(),
            allocation: None,
            overloading: false,
            thresholds: Vec::new(),
        }
    }
}

impl PoolConfig {
    /// Default number of mappings for each port that tables have room for: 1, or 8 if overloaded.
    pub const fn mappings_per_port(&self) -> usize {
        if self.overloading { 8 } else { 1 }
    }

    /// Number of the pool's addresses.
    pub fn count(&self) -> usize {
        self.addresses.iter().map(AddressRange::count).sum()
    }

    /// The pool's addresses, in configured order.
    pub fn each_address(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.addresses.iter().flat_map(AddressRange::each)
    }

    /// True if `address` is an address of the pool.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|range| range.contains(address))
    }

    /// True if `address` is an address of the pool that gets no new mappings.
    pub fn is_draining(&self, address: Ipv4Addr) -> bool {
        self.draining.iter().any(|range| range.contains(address))
    }

    /// True if the pool uses `port`.
    pub fn uses_port(&self, port: u16) -> bool {
        let is_in = |&(first, last): &(u16, u16)| (first..=last).contains(&port);
        is_in(&self.ports) && !self.excluded_ports.iter().any(is_in)
    }

    /// Number of ports of an address that the pool uses.
    pub fn ports_used(&self) -> u32 {
        (self.ports.0.max(1)..=self.ports.1).filter(|&port| self.uses_port(port)).count() as u32
    }
}

/// Dependence of a mapping, or of a filter, on the remote endpoint (RFC 4787 sections 4.1 and 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behavior {
    /// No dependence.
    #[default]
    EndpointIndependent,
    /// Dependence on the remote address.
    AddressDependent,
    /// Dependence on the remote address and port.
    AddressAndPortDependent,
}

/// Choice of external addresses for a subscriber's mappings (RFC 4787 REQ-2, RFC 7857 section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// All of a subscriber's mappings use one external address.
    #[default]
    Paired,
    /// One external address until its ports run out, then further addresses.
    SoftPaired,
    /// Any external address for each mapping.
    Arbitrary,
}

/// Choice of an external port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Unpredictably (RFC 6056).
    #[default]
    Random,
    /// The internal port where it is free, else unpredictably.
    Preserve,
    /// Unpredictably within blocks that a subscriber is assigned (RFC 6888 REQ-14).
    Block(BlockConfig),
    /// Unpredictably within ports that follow from the subscriber's address (RFC 7422).
    Deterministic(DeterministicConfig),
    /// The internal port, at an address of the host's own ([`Allocation::ALL_PORTS`]; RFC 2663).
    Address,
}

/// Blocks of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// Ports in a block: a power of two, 16 to 32,768.
    pub size: u16,
    /// Blocks of the pool that a subscriber may have: 1 to [`BlockConfig::MOST`].
    pub max_per_subscriber: u16,
    /// Time that a block stays with its subscriber after its last port is free; at most an hour.
    pub release_after: Duration,
}

impl BlockConfig {
    /// Most blocks of one subscriber. The choice of a port looks at each block.
    pub const MOST: u16 = 128;
    /// Possible sizes of a block.
    pub const SIZES: core::ops::RangeInclusive<u16> = 16..=32_768;
    /// Longest time that an empty block may stay with its subscriber.
    pub const LONGEST: Duration = Duration::from_secs(3600);
}

impl Default for BlockConfig {
    fn default() -> Self {
        Self { size: 512, max_per_subscriber: 4, release_after: Duration::from_secs(60) }
    }
}

/// Ports that belong to subscribers by arithmetic (RFC 7422 section 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeterministicConfig {
    /// Number of the subscribers' realm.
    pub realm: u16,
    /// The subscribers, in the order of the arithmetic; prefixes do not overlap.
    pub subscribers: Vec<Prefix>,
    /// Ports of each subscriber; `None`: the largest number that all subscribers can have.
    pub ports_per_subscriber: Option<u16>,
    /// Ports of each external address for subscribers that have used up their own.
    pub dynamic_ports: u16,
}

/// Answer to a packet that finds no room: no port, quota or rate exceeded, table full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// ICMP 3/1, host unreachable (RFC 6888 REQ-11).
    #[default]
    HostUnreachable,
    /// ICMP 3/13, communication administratively prohibited (RFC 5508 REQ-8).
    Prohibited,
    /// No answer.
    Silent,
}

/// Limits of one subscriber and of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    //= rfc6888#REQ-4a
    /// TCP mappings a subscriber.
    pub tcp_ports: u32,
    /// UDP mappings a subscriber.
    pub udp_ports: u32,
    /// ICMP query mappings a subscriber; also bounds mappings of other protocols.
    pub icmp_ports: u32,
    //= rfc6888#REQ-5a
    /// Sessions a mapping.
    pub sessions_per_mapping: u16,
    /// Sessions a subscriber; `None`: the number that its mappings may have.
    pub sessions_per_subscriber: Option<u32>,
    /// New mappings a second and subscriber; one second's worth may come at once.
    pub new_mappings_per_second: u32,
    /// ICMP errors a second that the translator makes; one second's worth may come at once.
    pub icmp_errors_per_second: u32,
    /// Subscribers that have mappings at a time; `None`: a sixteenth of `mappings`, at least
    /// 65,536.
    pub subscribers: Option<u32>,
    /// Mappings in all; `None`: the number of ports of all pools, at most 2^20.
    pub mappings: Option<u32>,
    /// Sessions in all beyond one a mapping; `None`: the number of mappings.
    pub extra_sessions: Option<u32>,
    /// Sessions of one subscriber beyond one a mapping; `None`: a sixteenth of all, at least 64.
    pub extra_sessions_per_subscriber: Option<u32>,
    /// Sessions in all whose remote endpoint has another name inside; `None`: a quarter of
    /// `mappings`, at least 1,024.
    pub twice_sessions: Option<u32>,
    /// Bytes for fragments that wait for the first of their datagram.
    pub fragment_memory: usize,
    /// Fragments of one datagram: 1 to [`Limits::MOST_FRAGMENTS`].
    pub fragments_per_datagram: u8,
    /// External addresses in all; `None`: twice the number of configured addresses, at least 64.
    pub external_addresses: Option<u32>,
    /// Ports in hold-down at a time. Beyond the limit, the port that was held longest becomes free.
    /// `None`: no limit.
    pub held_ports: Option<u32>,
    /// Mappings that hosts request, and sessions that hosts request to be kept, in all. 0: hosts
    /// may request none.
    pub explicit_mappings: u32,
    /// Mappings and sessions that one subscriber requests.
    pub explicit_per_subscriber: u32,
    /// True if unanswered subscribers give way, the oldest first, when something is scarce.
    pub unanswered_give_way: bool,
    /// Records, mappings, ports or blocks that unanswered subscribers keep, however little is free.
    /// In a network that small, the subscribers' quotas are limit enough.
    pub unanswered_kept: u32,
    /// Percentage of `subscribers` that may be unanswered and request mappings: 1 to 100.
    pub asking_share: u8,
    /// Thresholds for quotas and sessions: percentages, ascending; see [`Thresholds`].
    pub thresholds: Vec<u8>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tcp_ports: 2000,
            udp_ports: 2000,
            icmp_ports: 200,
            sessions_per_mapping: 64,
            sessions_per_subscriber: None,
            new_mappings_per_second: 500,
            icmp_errors_per_second: 500,
            subscribers: None,
            mappings: None,
            extra_sessions: None,
            extra_sessions_per_subscriber: None,
            twice_sessions: None,
            fragment_memory: 16 << 20,
            fragments_per_datagram: 64,
            external_addresses: None,
            held_ports: None,
            explicit_mappings: 0,
            explicit_per_subscriber: 64,
            unanswered_give_way: true,
            unanswered_kept: 1024,
            asking_share: 25,
            thresholds: Vec::new(),
        }
    }
}

/// Part of a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The packet's source, seen from the inside: prefix and port (0: any).
    Source(Prefix, u16),
    /// The packet's destination, seen from the inside: prefix and port (0: any).
    Destination(Prefix, u16),
}

/// Action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Translate the source from the pool with this index.
    Snat(usize),
    /// Translate the source to this address, which the pool with this index has.
    SnatTo(usize, Ipv4Addr),
    /// Translate the destination of packets from inside to this address, and port if one is given.
    Dnat(Ipv4Addr, Option<u16>),
    /// Translate the destination of packets from inside by prefix: to the address at the same
    /// offset in this prefix. Both prefixes have one length. Packets from the new destination are
    /// translated back.
    DnatPrefix(Prefix),
    /// Forward untranslated, in both directions.
    Bypass,
    /// Drop, in both directions.
    Drop,
}

/// One rule. Rules that translate destinations, and all other rules, are two groups. In each group
/// the highest priority wins, then the longest prefix, then the exact port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Part of the packet that the rule matches.
    pub matches: Match,
    /// Priority, usually 0. There are at most
    /// [`RuleSet::MOST_PRIORITIES`](crate::RuleSet::MOST_PRIORITIES) different priorities.
    pub priority: i16,
    /// Action of the rule.
    pub action: RuleAction,
    /// Idle timeouts of mappings that the rule makes: the place in [`Config::timeout_sets`],
    /// counted from 1. 0: the rule has no timeouts of its own. Only a rule that translates the
    /// source has timeouts.
    pub timeouts: u8,
    /// A number of the caller's, which the engine does not read; 0: none. Only a rule that
    /// translates the source has a mark.
    pub mark: u16,
}

impl Rule {
    /// Makes a rule of priority 0.
    pub const fn new(matches: Match, action: RuleAction) -> Self {
        Self { matches, priority: 0, action, timeouts: 0, mark: 0 }
    }
}

/// Everything that the engine is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The subscribers' side.
    pub inside: SideConfig,
    /// The Internet's side.
    pub outside: SideConfig,
    /// Realms from number 1. Other fields of the configuration are about realm 0.
    pub realms: Vec<RealmConfig>,
    /// Numbers of the realms whose external endpoints hosts of realm 0 may reach.
    pub hairpin_to: Vec<u16>,
    /// Addresses behind routers inside, ascending and disjoint. Packets from inside go there
    /// untranslated.
    pub inside_routes: Vec<AddressRange>,
    /// Inside prefixes that are translated.
    pub subscribers: Vec<Prefix>,
    /// The pools. New mappings use `default_pool` unless a rule names another pool.
    pub pools: Vec<PoolConfig>,
    /// Index of the pool without a rule.
    pub default_pool: usize,
    /// Mapping behavior.
    pub mapping: Behavior,
    /// Filtering behavior.
    pub filtering: Behavior,
    /// Filtering behavior for TCP and DCCP (RFC 5382 REQ-3b); `None`: `filtering`.
    pub filtering_tcp: Option<Behavior>,
    /// Pooling behavior.
    pub pooling: Pooling,
    /// Port allocation of pools that have none of their own.
    pub allocation: Allocation,
    /// True if UDP ports keep their parity (RFC 4787 REQ-4).
    pub port_parity: bool,
    /// True if subscribers reach each other through external endpoints (RFC 4787 REQ-9).
    pub hairpinning: bool,
    /// True if inbound packets restart idle timers (RFC 4787 REQ-6).
    pub inbound_refresh: bool,
    /// True if a TCP packet other than a SYN may make a mapping.
    pub tcp_pickup: bool,
    /// True if the begin and the end of each session raise events (RFC 6888 REQ-12: only on
    /// request).
    pub session_events: bool,
    /// Largest maximum segment size that a SYN may announce, bytes; `None`: the option is not
    /// changed.
    pub tcp_mss: Option<u16>,
    /// True if an unsolicited inbound SYN is answered after six seconds (RFC 5382 REQ-4).
    pub answer_unsolicited_syn: bool,
    /// Answer to a packet that finds no room.
    pub refusal: Refusal,
    /// Limits.
    pub limits: Limits,
    /// Classes of subscribers with limits of their own.
    pub classes: Vec<Class>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Idle timeouts by remote port.
    pub port_timeouts: Vec<PortTimeout>,
    /// Idle timeouts of rules. Rules name a set by its place.
    pub timeout_sets: Vec<TimeoutSet>,
    /// Static mappings.
    pub statics: Vec<StaticMapping>,
    /// Services of several servers.
    pub services: Vec<Service>,
    /// Rules.
    pub rules: Vec<Rule>,
}

impl Config {
    /// The port allocation of a pool.
    pub fn allocation_of<'c>(&'c self, pool: &'c PoolConfig) -> &'c Allocation {
        pool.allocation.as_ref().unwrap_or(&self.allocation)
    }
}

impl Default for Config {
    fn default() -> Self {
        let prefix = |a, b, c, d, len| Prefix::new(Ipv4Addr::new(a, b, c, d), len);
        Self {
            inside: SideConfig::default(),
            outside: SideConfig::default(),
            realms: Vec::new(),
            hairpin_to: Vec::new(),
            inside_routes: Vec::new(),
            subscribers: Vec::from([
                prefix(10, 0, 0, 0, 8),
                prefix(172, 16, 0, 0, 12),
                prefix(192, 168, 0, 0, 16),
                prefix(100, 64, 0, 0, 10),
            ]),
            pools: Vec::new(),
            default_pool: 0,
            mapping: Behavior::default(),
            //= rfc6888#REQ-7
            filtering: Behavior::default(),
            filtering_tcp: None,
            //= rfc6888#REQ-2
            pooling: Pooling::default(),
            allocation: Allocation::default(),
            port_parity: true,
            hairpinning: true,
            inbound_refresh: true,
            tcp_pickup: false,
            session_events: false,
            tcp_mss: None,
            answer_unsolicited_syn: true,
            refusal: Refusal::default(),
            limits: Limits::default(),
            classes: Vec::new(),
            timeouts: Timeouts::default(),
            port_timeouts: Vec::new(),
            timeout_sets: Vec::new(),
            statics: Vec::new(),
            services: Vec::new(),
            rules: Vec::new(),
        }
    }
}
