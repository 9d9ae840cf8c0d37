//! The translator's configuration as plain data. Reading it from text, and telling a person what is
//! wrong with it, is the control crate's work; `Engine::new` refuses what the engine could not run
//! with.

mod addresses;
pub(crate) mod policy;
pub(crate) mod realms;
mod statics;

pub(crate) use addresses::external_addresses;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;
pub use policy::{Class, ClassLimits, PortTimeout, Thresholds, TimeoutSet, Totals};
pub use statics::{Affinity, Begun, Server, Service, StaticMapping};

/// An IPv4 prefix. Prefixes are in the order of their addresses, then of their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: u32,
    len: u8,
}

impl Prefix {
    /// The prefix of `len` bits (at most 32) that `address` is in; bits beyond it are cleared.
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

    /// Whether an address, host byte order, is in the prefix.
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

    /// Whether the prefix has no bits and holds every address.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl From<Ipv4Addr> for Prefix {
    /// The prefix that has this address alone.
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
    /// How many addresses it has.
    pub const fn count(&self) -> usize {
        self.last.to_bits().saturating_sub(self.first.to_bits()) as usize + 1
    }

    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (self.first.to_bits()..=self.last.to_bits()).map(Ipv4Addr::from_bits)
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// One of the gateway's two sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideConfig {
    /// The gateway's own address on that side: it answers ping and is the source of ICMP errors.
    pub address: Option<Ipv4Addr>,
    /// The network that is directly connected there.
    pub network: Option<Prefix>,
    /// Largest IP packet that side carries, bytes; `None`: 1500.
    pub mtu: Option<u16>,
    /// Whether the gateway's own ICMP errors towards that side are left out (RFC 5508 REQ-9).
    pub silent: bool,
}

/// An internal network beside the one that the rest of the configuration is about. Networks may
/// overlap: a subscriber is a realm and an address (RFC 2663 section 2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RealmConfig {
    /// Its name.
    pub name: String,
    /// The gateway's place in it.
    pub inside: SideConfig,
    /// Prefixes in it that are translated.
    pub subscribers: Vec<Prefix>,
    /// Index of the pool that is used without a rule.
    pub default_pool: usize,
    /// Numbers of the realms whose external endpoints may be reached from it.
    pub hairpin_to: Vec<u16>,
    /// Addresses behind routers in it, in order and apart: packets from it go there untranslated.
    pub inside_routes: Vec<AddressRange>,
    /// Rules for packets from it and to it.
    pub rules: Vec<Rule>,
    /// Whether there is no such realm any more, and only its number is not to be had (see
    /// [`Config::in_numbers_of`]).
    pub gone: bool,
    /// When it is asked whether a packet from outside bypasses translation, among realms beside
    /// number 0; of those with the same, the one with the lowest number is first.
    pub order: u16,
}

/// A pool of external addresses and the ports used of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Its name, which rules refer to.
    pub name: String,
    /// Its addresses, in configured order; ranges do not overlap, in or across pools.
    pub addresses: Vec<AddressRange>,
    /// Those of them that get no new mappings.
    pub draining: Vec<AddressRange>,
    /// First and last port (and ICMP query identifier) to use.
    pub ports: (u16, u16),
    /// Those of them, first and last, that are not used.
    pub excluded_ports: Vec<(u16, u16)>,
    /// How its ports are chosen; `None`: as [`Config::allocation`] says.
    pub allocation: Option<Allocation>,
    /// Whether ports are used towards several remote endpoints by different mappings, when no free
    /// one is left (RFC 7857 section 3).
    pub overloading: bool,
    /// Percentages of its ports, or blocks, whose use is told of, ascending; see [`Thresholds`].
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
    /// Mappings that room is set aside for, unless the configuration says how much, for each of its
    /// ports: several, where ports are overloaded.
    pub const fn mappings_per_port(&self) -> usize {
        if self.overloading { 8 } else { 1 }
    }

    /// How many addresses it has.
    pub fn count(&self) -> usize {
        self.addresses.iter().map(AddressRange::count).sum()
    }

    /// Its addresses, in configured order.
    pub fn each_address(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.addresses.iter().flat_map(AddressRange::each)
    }

    /// Whether an address is one of its.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|range| range.contains(address))
    }

    /// Whether an address of it gets no new mappings.
    pub fn is_draining(&self, address: Ipv4Addr) -> bool {
        self.draining.iter().any(|range| range.contains(address))
    }

    /// Whether a port is one that it uses.
    pub fn uses_port(&self, port: u16) -> bool {
        let is_in = |&(first, last): &(u16, u16)| (first..=last).contains(&port);
        is_in(&self.ports) && !self.excluded_ports.iter().any(is_in)
    }

    /// How many ports of an address it uses.
    pub fn ports_used(&self) -> u32 {
        (self.ports.0.max(1)..=self.ports.1).filter(|&port| self.uses_port(port)).count() as u32
    }
}

/// How far a mapping, or a filter, depends on the remote endpoint (RFC 4787 sections 4.1 and 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behavior {
    /// Not at all.
    #[default]
    EndpointIndependent,
    /// On its address.
    AddressDependent,
    /// On its address and port.
    AddressAndPortDependent,
}

/// How a subscriber's mappings choose external addresses (RFC 4787 REQ-2, RFC 7857 section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// All of a subscriber's mappings use one external address.
    #[default]
    Paired,
    /// One external address until its ports run out, then others.
    SoftPaired,
    /// Any external address for each mapping.
    Arbitrary,
}

/// How an external port is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Unpredictably (RFC 6056).
    #[default]
    Random,
    /// The internal port where it is free, else unpredictably.
    Preserve,
    /// Unpredictably within blocks that a subscriber is assigned (RFC 6888 REQ-14).
    Block(BlockConfig),
    /// Unpredictably within ports that the subscriber's address tells (RFC 7422).
    Deterministic(DeterministicConfig),
}

/// Blocks of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// Ports in a block: a power of two, 16 to 32,768.
    pub size: u16,
    /// Blocks of the pool that a subscriber may have: 1 to [`BlockConfig::MOST`].
    pub max_per_subscriber: u16,
    /// How long a block stays with its subscriber after its last port is free; at most an hour.
    pub release_after: Duration,
}

impl BlockConfig {
    /// Most blocks that a subscriber may have: each is looked at when a port is chosen.
    pub const MOST: u16 = 128;
    /// The sizes that a block may have.
    pub const SIZES: core::ops::RangeInclusive<u16> = 16..=32_768;
    /// The longest that an empty block may stay with its subscriber.
    pub const LONGEST: Duration = Duration::from_secs(3600);
}

impl Default for BlockConfig {
    fn default() -> Self {
        Self { size: 512, max_per_subscriber: 4, release_after: Duration::from_secs(60) }
    }
}

/// Ports that are the subscribers' by arithmetic (RFC 7422 section 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeterministicConfig {
    /// Number of the realm that they are of.
    pub realm: u16,
    /// Whose they are, in this order; prefixes do not overlap.
    pub subscribers: Vec<Prefix>,
    /// Ports of each; `None`: as many as all can have.
    pub ports_per_subscriber: Option<u16>,
    /// Ports of each external address for those who have used up their own.
    pub dynamic_ports: u16,
}

/// What a subscriber is told whose packet finds no room: no port, quota or rate exceeded, table
/// full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// ICMP 3/1, host unreachable (RFC 6888 REQ-11).
    #[default]
    HostUnreachable,
    /// ICMP 3/13, communication administratively prohibited (RFC 5508 REQ-8).
    Prohibited,
    /// Nothing.
    Silent,
}

/// What one subscriber, and the whole table, may take.
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
    /// Sessions a subscriber; `None`: as many as its mappings may have.
    pub sessions_per_subscriber: Option<u32>,
    /// New mappings a second and subscriber; one second's worth may come at once.
    pub new_mappings_per_second: u32,
    /// ICMP errors a second that the translator makes; one second's worth may come at once.
    pub icmp_errors_per_second: u32,
    /// Subscribers that have mappings at a time; `None`: a sixteenth of `mappings`, at least
    /// 65,536.
    pub subscribers: Option<u32>,
    /// Mappings in all; `None`: as many as the pools have ports, at most 2^20.
    pub mappings: Option<u32>,
    /// Sessions in all beyond one a mapping; `None`: as many as mappings.
    pub extra_sessions: Option<u32>,
    /// Sessions of one subscriber beyond one a mapping; `None`: a sixteenth of all, at least 64.
    pub extra_sessions_per_subscriber: Option<u32>,
    /// Sessions whose remote endpoint is another as seen from inside, in all; `None`: a quarter of
    /// `mappings`, at least 1,024.
    pub twice_sessions: Option<u32>,
    /// Bytes for fragments that wait for their first.
    pub fragment_memory: usize,
    /// External addresses in all; `None`: twice as many as are named, at least 64.
    pub external_addresses: Option<u32>,
    /// Ports in hold-down at a time; beyond, the one that has been for longest is free. `None`:
    /// all.
    pub held_ports: Option<u32>,
    /// Mappings that hosts ask for, and sessions that they ask to be kept, in all; 0: nobody may
    /// ask.
    pub explicit_mappings: u32,
    /// The same of one subscriber.
    pub explicit_per_subscriber: u32,
    /// True if unanswered subscribers give way, the oldest first, when something gets scarce.
    pub unanswered_give_way: bool,
    /// Records, mappings, ports or blocks that unanswered subscribers keep however little is free:
    /// a network that small is its own quota.
    pub unanswered_kept: u32,
    /// Percentage of `subscribers` that may be unanswered ones that ask for mappings: 1 to 100.
    pub asking_share: u8,
    /// Percentages of a subscriber's quotas and sessions that are told of, ascending; see
    /// [`Thresholds`].
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

/// Idle timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP (RFC 4787 REQ-5).
    pub udp: Duration,
    /// TCP, connection established (RFC 5382 REQ-5).
    pub tcp_established: Duration,
    /// TCP, connection half open (RFC 7857 section 2.1).
    pub tcp_opening: Duration,
    /// TCP, connection closed or reset (RFC 7857 section 2.1).
    pub tcp_closing: Duration,
    /// ICMP queries (RFC 5508 REQ-2).
    pub icmp: Duration,
    /// Protocols that are translated by address alone.
    pub other: Duration,
    /// How long a freed UDP port or ICMP query identifier stays unused (RFC 6888 REQ-8).
    pub hold_down: Duration,
    /// How long fragments wait for the rest of their datagram.
    pub fragment: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        Self {
            //= rfc4787#REQ-5
            //= rfc4787#REQ-5c
            udp: minutes(5),
            //= rfc5382#REQ-5
            //= rfc5597#REQ-5
            tcp_established: minutes(124),
            //= rfc5382#REQ-5-transitory
            //= rfc7857#section-2.1-default
            tcp_opening: minutes(4),
            //= rfc5597#REQ-5-transitory
            tcp_closing: minutes(4),
            //= rfc5508#REQ-2a
            icmp: minutes(1),
            other: minutes(5),
            hold_down: minutes(2),
            fragment: Duration::from_secs(2),
        }
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The packet's source, seen from the inside: prefix and port (0: any).
    Source(Prefix, u16),
    /// The packet's destination, seen from the inside: prefix and port (0: any).
    Destination(Prefix, u16),
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Translate the source from the pool with this index.
    Snat(usize),
    /// Translate the source to this address, which the pool with this index has.
    SnatTo(usize, Ipv4Addr),
    /// Translate the destination of packets from inside to this address, and port if one is given.
    Dnat(Ipv4Addr, Option<u16>),
    /// Translate the destination of packets from inside to the address that stands at the same
    /// place in this prefix, which is as long as the one that the rule looks at; and back what
    /// comes from there.
    DnatPrefix(Prefix),
    /// Forward untranslated, in both directions.
    Bypass,
    /// Drop, in both directions.
    Drop,
}

/// One rule. Over all rules that translate destinations, and over all others, the highest priority
/// wins, then the longest prefix, then the exact port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it looks at.
    pub matches: Match,
    /// Usually 0; at most [`RuleSet::MOST_PRIORITIES`](crate::RuleSet::MOST_PRIORITIES) different
    /// ones.
    pub priority: i16,
    /// What it does.
    pub action: RuleAction,
    /// Of a rule that translates the source: the place in [`Config::timeout_sets`], counted from 1,
    /// of what holds for mappings that it makes. 0: nothing of its own.
    pub timeouts: u8,
}

impl Rule {
    /// A rule of priority 0.
    pub const fn new(matches: Match, action: RuleAction) -> Self {
        Self { matches, priority: 0, action, timeouts: 0 }
    }
}

/// Everything that the engine is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The subscribers' side.
    pub inside: SideConfig,
    /// The Internet's side.
    pub outside: SideConfig,
    /// Realms 1 and up; what is not said here is about realm 0.
    pub realms: Vec<RealmConfig>,
    /// Numbers of the realms whose external endpoints may be reached from realm 0.
    pub hairpin_to: Vec<u16>,
    /// Addresses behind routers inside, in order and apart: packets from inside go there
    /// untranslated.
    pub inside_routes: Vec<AddressRange>,
    /// Inside prefixes that are translated.
    pub subscribers: Vec<Prefix>,
    /// The pools; new mappings come from `default_pool` unless a rule says otherwise.
    pub pools: Vec<PoolConfig>,
    /// Index of the pool that is used without a rule.
    pub default_pool: usize,
    /// Mapping behavior.
    pub mapping: Behavior,
    /// Filtering behavior.
    pub filtering: Behavior,
    /// Filtering behavior for TCP and DCCP (RFC 5382 REQ-3b); `None`: as for all.
    pub filtering_tcp: Option<Behavior>,
    /// Pooling behavior.
    pub pooling: Pooling,
    /// Port allocation of pools that have none of their own.
    pub allocation: Allocation,
    /// Whether UDP ports keep their parity (RFC 4787 REQ-4).
    pub port_parity: bool,
    /// Whether subscribers reach each other through external endpoints (RFC 4787 REQ-9).
    pub hairpinning: bool,
    /// Whether inbound packets restart idle timers (RFC 4787 REQ-6).
    pub inbound_refresh: bool,
    /// Whether a TCP packet other than a SYN may make a mapping.
    pub tcp_pickup: bool,
    /// Whether sessions that begin and end raise events (RFC 6888 REQ-12 has them only if asked
    /// for).
    pub session_events: bool,
    /// Most that a SYN may announce as its maximum segment size; `None`: it is left alone.
    pub tcp_mss: Option<u16>,
    /// Whether an unsolicited inbound SYN is answered after six seconds (RFC 5382 REQ-4).
    pub answer_unsolicited_syn: bool,
    /// What a subscriber is told whose packet finds no room.
    pub refusal: Refusal,
    /// Limits.
    pub limits: Limits,
    /// Classes of subscribers with limits of their own.
    pub classes: Vec<Class>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Timeouts of remote ports.
    pub port_timeouts: Vec<PortTimeout>,
    /// Timeouts of rules, which name them by their place.
    pub timeout_sets: Vec<TimeoutSet>,
    /// Static mappings.
    pub statics: Vec<StaticMapping>,
    /// Services of several servers.
    pub services: Vec<Service>,
    /// Rules.
    pub rules: Vec<Rule>,
}

impl Config {
    /// How ports of a pool are chosen.
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
