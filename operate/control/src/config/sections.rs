//! Reads the tables one by one: sides, routes, pools, behavior, limits, timeouts, state.
//!
//! Each value is checked by itself here. Defaults are those of `natgate_engine::Config`.
//! [`super::checks`] compares values with each other.

use super::admission;
use super::alg;
use super::control;
use super::devices;
use super::draft::{Draft, NeighborDraft, PoolDraft, RouteDraft, RuleDraft, SideDraft};
use super::fleet;
use super::ipv6;
use super::kernel;
use super::logs;
use super::monitoring;
use super::neighbors;
use super::page;
use super::pcp;
use super::policy;
use super::pools;
use super::problem::{Located, Place};
use super::reader::{Section, Value};
use super::realms;
use super::router6::{self, Router6Draft};
use super::rules;
use super::shares;
use super::statics;
use super::values::{self, show_duration};
use natgate_engine::{
    AddressRange, Behavior, Config, Limits, Pooling, Prefix, Refusal, Side, Timeouts,
};
use natgate_gateway::{
    Backend, InsideRoutes, MOST_WORKERS, ReceiveMode, StateSettings, WorkerSettings,
};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// Smallest and largest MTU: the packet that every link must carry (RFC 791), and the largest
/// packet.
const MTU_BOUNDS: (u64, u64) = (68, 65_535);
/// Size of a packet that every host must accept (RFC 791).
const MTU_WISE: u64 = 576;
const DEFAULT_MTU: u16 = 1500;
/// Bounds of the maximum segment size: the MTU bounds less 40 bytes of headers.
const MSS_BOUNDS: (u64, u64) = (28, 65_495);
const DEFAULT_PORTS: (u16, u16) = (1024, 65_535);
const DEFAULT_STATE_INTERVAL: Duration = Duration::from_secs(10);
/// A fragmented datagram of the largest size.
const LEAST_FRAGMENT_MEMORY: u64 = 64 << 10;
/// One per nanosecond.
const MOST_A_SECOND: u64 = 1_000_000_000;
/// The engine counts mappings, static ones included, in 31 bits.
const MOST_MAPPINGS: u64 = 1 << 30;

/// Bounds of a session's timeout.
pub(super) const IDLE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

/// Reads the whole file.
pub(super) fn read(root: &Section<'_>) -> Draft {
    let mut config = Config::default();
    let nat = root.section("nat", "nat");
    let limits = root.section("limits", "limits");
    let quota_place = read_limits(&limits, &mut config.limits);
    admission::read(&limits, &mut config.limits);
    let room = pools::read_room(&limits);
    config.limits.external_addresses = room.as_ref().map(|room| room.value);
    let neighbors_limit = neighbors::read_limit(&limits);
    let mappings_place =
        limits.get("mappings").map_or_else(|| limits.place.clone(), |value| value.place);
    read_timeouts(&root.section("timeouts", "timeouts"), &mut config.timeouts);
    let (subscribers, no_subscribers) = read_subscribers(&nat, &config.subscribers);
    read_nat(&nat, &mut config);
    let workers = read_workers(&root.section("workers", "workers"));
    let nat64 = root.get("nat64").map(|_| workers.count);
    let ipv6 = ipv6::read(root);
    let numbered = pcp::Numbered { nat64, dslite: ipv6.dslite.as_ref() };
    let pcp = pcp::read(&root.section("pcp", "pcp"), numbered, &mut config.limits);
    admission::warn(&limits, &config.limits);
    let alg = alg::read(&root.section("alg", "alg"), &mut config.limits);
    let mut router6 = Router6Draft::default();
    let routes = read_routes(root, &mut router6);
    let neighbors = read_neighbors(root, &mut router6);
    Draft {
        inside: read_side(root, Side::Inside),
        outside: read_side(root, Side::Outside),
        realms: realms::read_realms(root),
        hairpin_to: realms::read_hairpin_to(&nat),
        routes,
        inside_routes: read_inside_routes(&nat),
        neighbors,
        neighbors_limit,
        pools: read_pools(root),
        subscribers,
        no_subscribers,
        shares: shares::read_nat(&nat),
        segment_size: read_mss(&nat),
        room,
        quota_place,
        mappings_place,
        statics: root.sections("static").iter().filter_map(statics::read_static).collect(),
        rules: read_rules(root),
        classes: root.sections("class").iter().filter_map(policy::read_class).collect(),
        timeouts: root.sections("timeout").iter().filter_map(policy::read_timeout).collect(),
        workers,
        dpdk: devices::read_dpdk(&root.section("dpdk", "dpdk")),
        kernel: kernel::KernelDraft::read(root),
        state: read_state(&root.section("state", "state")),
        control: control::read(&root.section("control", "control")),
        logs: logs::read(root),
        page: page::read(root),
        monitoring: monitoring::read(root),
        pcp,
        alg,
        ipv6,
        fleet: fleet::read(root),
        router6,
        config,
    }
}

fn read_side(root: &Section<'_>, side: Side) -> SideDraft {
    let (name, device, address) = match side {
        Side::Inside => ("inside", "eth1", "\"10.0.0.1/8\""),
        Side::Outside => ("outside", "eth0", "\"192.0.2.1/24\""),
    };
    let section = root.section(name, name);
    let example = format!("\"{device}\"");
    let backend = section.get("backend").and_then(|value| value.word(&devices::BACKENDS));
    let backend = backend.unwrap_or_default();
    let device = if section.is_present() {
        devices::read_device(&section, backend, &example)
    } else {
        if root.get(name).is_none() {
            let message = format!("is missing; write [{name}] with device = {example}");
            root.report.missing(&section.place, message);
        }
        None
    };
    devices::requires_address(&section, backend, address);
    let management = kernel::read_management(&section);
    let mode = devices::read_mode(&section, backend);
    let ring = devices::read_ring(&section, backend);
    let (address6, gateway6) = (ipv6::read_address6(&section), ipv6::read_gateway6(&section));
    let link = read_link(&section, name);
    SideDraft { device, backend, mode, ring, management, address6, gateway6, ..link }
}

/// Reads the gateway's address and network of a side; `name` is the name of the table.
pub(super) fn read_link(section: &Section<'_>, name: &str) -> SideDraft {
    let address = section.get("address").and_then(|value| {
        let address = value.parsed("an address with its prefix length", values::interface_address);
        address.filter(|address| is_usable(&value, address.value.0))
    });
    SideDraft {
        name: name.to_owned(),
        device: None,
        backend: Backend::default(),
        mode: ReceiveMode::default(),
        ring: None,
        address,
        gateway: section.get("gateway").and_then(|value| read_address(&value)),
        address6: None,
        gateway6: None,
        management: None,
        icmp_errors: section.get("icmp_errors").and_then(|value| value.boolean()).unwrap_or(true),
        mtu: section.get("mtu").and_then(|value| read_mtu(section, &value)).unwrap_or(DEFAULT_MTU),
    }
}

fn read_mtu(section: &Section<'_>, value: &Value<'_>) -> Option<u16> {
    let mtu = value.integer(MTU_BOUNDS.0..=MTU_BOUNDS.1)?;
    if mtu < MTU_WISE {
        let message = format!("is below the {MTU_WISE} bytes that every host takes (RFC 791)");
        section.report.unwise(&value.place, message);
    }
    u16::try_from(mtu).ok()
}

/// Reads an address that a host can have.
pub(super) fn read_address(value: &Value<'_>) -> Option<Located<Ipv4Addr>> {
    let address = value.parsed("an IPv4 address", values::address)?;
    is_usable(value, address.value).then_some(address)
}

/// True if a host can have the address; otherwise the value is reported.
pub(super) fn is_usable(value: &Value<'_>, address: Ipv4Addr) -> bool {
    is_usable_range(value, AddressRange { first: address, last: address })
}

fn is_usable_range(value: &Value<'_>, range: AddressRange) -> bool {
    let class = values::unusable(range);
    if let Some(class) = class {
        let shown = values::show_range(range);
        let relation = if range.first == range.last { "is in" } else { "overlaps" };
        value.wrong(format!("{shown} {relation} {class}, which no host has; write unicast"));
    }
    class.is_none()
}

/// Reads the routes of both families; returns those of IPv4.
fn read_routes(root: &Section<'_>, router6: &mut Router6Draft) -> Vec<RouteDraft> {
    let mut routes = Vec::new();
    for section in &root.sections("route") {
        match router6::is_ipv6(section, "prefix") {
            true => router6.routes.extend(router6::read_route(section)),
            false => routes.extend(read_route(section)),
        }
    }
    routes
}

/// Reads the static neighbors of both families; returns those of IPv4.
fn read_neighbors(root: &Section<'_>, router6: &mut Router6Draft) -> Vec<NeighborDraft> {
    let mut of_ipv4 = Vec::new();
    for section in &root.sections("neighbor") {
        match router6::is_ipv6(section, "address") {
            true => router6.neighbors.extend(router6::read_neighbor(section)),
            false => of_ipv4.extend(neighbors::read_neighbor(section)),
        }
    }
    of_ipv4
}

fn read_route(section: &Section<'_>) -> Option<RouteDraft> {
    let prefix = section
        .require("prefix", "\"198.51.100.0/24\"")
        .and_then(|value| value.parsed("a prefix", values::prefix));
    let via = section.require("via", "\"192.0.2.254\"").and_then(|value| read_address(&value));
    let (side, realm) = realms::read_side(section)?;
    Some(RouteDraft { prefix: prefix?, via: via?, side, realm })
}

fn read_pools(root: &Section<'_>) -> Vec<PoolDraft> {
    if root.get("pool").is_none() && !ipv6::needs_no_pool(root) {
        let place = Place { key: "pool".to_owned(), offset: 0 };
        let example = "[[pool]] with addresses = [\"203.0.113.1\"]";
        root.report.missing(&place, format!("is missing; write {example}"));
    }
    root.sections("pool").iter().enumerate().map(|(index, pool)| read_pool(index, pool)).collect()
}

/// Reads the rules of a file, or of a piece of one.
pub(super) fn read_rules(root: &Section<'_>) -> Vec<RuleDraft> {
    root.sections("rule").iter().filter_map(rules::read_rule).collect()
}

/// Reads a pool. A faulty pool stays in the list, so that rules which name it are not reported.
fn read_pool(index: usize, section: &Section<'_>) -> PoolDraft {
    let given = match section.get("name") {
        Some(value) => read_name(&value),
        None if index == 0 => {
            Some(Located { value: "default".to_owned(), place: section.place.clone() })
        }
        None => section.require("name", "\"second\"").and(None),
    };
    let nameless = || Located { value: section.place.key.clone(), place: section.place.clone() };
    let wanted = "an array of addresses";
    let entries = section
        .require("addresses", "[\"203.0.113.1\"]")
        .and_then(|value| {
            let items = value.items(wanted)?;
            if items.is_empty() {
                value.wrong("has no address; write one such as [\"203.0.113.1\"]");
            }
            Some(items)
        })
        .unwrap_or_default();
    let range = |value: &Value<'_>| {
        let range = value.parsed("an address, a prefix or a range", values::address_range)?;
        is_usable_range(value, range.value).then_some(range)
    };
    let ports = section.get("ports").and_then(|value| {
        value.parsed("a string such as \"1024-65535\" or \"5000\"", values::ports)
    });
    let all_ports = || Located { value: DEFAULT_PORTS, place: section.place.clone() };
    let mut ranges = entries.iter().filter_map(range).collect();
    let left_out = pools::read(section, &mut ranges);
    PoolDraft {
        name: given.unwrap_or_else(nameless),
        ranges,
        left_out,
        ports: ports.unwrap_or_else(all_ports),
        overloading: section.get("overloading").and_then(|value| value.boolean()).unwrap_or(false),
        shares: shares::read_pool(section),
        thresholds: policy::read_thresholds(section).map_or(Vec::new(), |percents| percents.value),
    }
}

/// Reads a name.
pub(super) fn read_name(value: &Value<'_>) -> Option<Located<String>> {
    value.parsed("a name", plain_name)
}

pub(super) fn plain_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 64;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(plain) {
        let rule = "letters, digits, \"-\", \"_\" or \".\"";
        return Err(format!("{} is no name; write 1 to {LONGEST} {rule}", values::quoted(text)));
    }
    Ok(text.to_owned())
}

/// Reads the subscribers, and the place of the list if it is empty.
fn read_subscribers(
    nat: &Section<'_>,
    default: &[Prefix],
) -> (Vec<Located<Prefix>>, Option<Place>) {
    let Some(value) = nat.get("subscribers") else {
        let place = Place { key: "nat.subscribers".to_owned(), offset: nat.place.offset };
        let located = |prefix: &Prefix| Located { value: *prefix, place: place.clone() };
        return (default.iter().map(located).collect(), None);
    };
    let Some(prefixes) = read_prefixes(&value) else { return (Vec::new(), None) };
    (prefixes.0, prefixes.1.then_some(value.place))
}

/// Reads an array of prefixes; true if the array is empty.
pub(super) fn read_prefixes(value: &Value<'_>) -> Option<(Vec<Located<Prefix>>, bool)> {
    let entries = value.items("an array of prefixes")?;
    let prefixes = entries.iter().filter_map(|entry| entry.parsed("a prefix", values::prefix));
    Some((prefixes.collect(), entries.is_empty()))
}

fn read_nat(nat: &Section<'_>, config: &mut Config) {
    let behaviors = [
        ("endpoint-independent", Ok(Behavior::EndpointIndependent)),
        ("address-dependent", Ok(Behavior::AddressDependent)),
        ("address-and-port-dependent", Ok(Behavior::AddressAndPortDependent)),
    ];
    let poolings = [
        ("paired", Ok(Pooling::Paired)),
        ("soft-paired", Ok(Pooling::SoftPaired)),
        ("arbitrary", Ok(Pooling::Arbitrary)),
    ];
    set(&mut config.mapping, nat.get("mapping").and_then(|value| value.word(&behaviors)));
    //= rfc4787#REQ-8a
    //= rfc5382#REQ-3a
    set(&mut config.filtering, nat.get("filtering").and_then(|value| value.word(&behaviors)));
    //= rfc5597#REQ-3-configurable
    config.filtering_tcp = nat.get("filtering_tcp").and_then(|value| value.word(&behaviors));
    read_answers(nat, config);
    set(&mut config.pooling, nat.get("pooling").and_then(|value| value.word(&poolings)));
    for (key, slot) in [
        ("port_parity", &mut config.port_parity),
        ("hairpinning", &mut config.hairpinning),
        ("inbound_refresh", &mut config.inbound_refresh),
        ("tcp_pickup", &mut config.tcp_pickup),
    ] {
        set(slot, nat.get(key).and_then(|value| value.boolean()));
    }
}

/// Reads the treatment of packets to destinations behind inside routers.
fn read_inside_routes(nat: &Section<'_>) -> InsideRoutes {
    let words = [InsideRoutes::Forward, InsideRoutes::Translate].map(|one| (one.name(), Ok(one)));
    nat.get("inside_routes").and_then(|value| value.word(&words)).unwrap_or_default()
}

/// Reads the answers to refused packets.
fn read_answers(nat: &Section<'_>, config: &mut Config) {
    let refusals = [
        ("host-unreachable", Ok(Refusal::HostUnreachable)),
        ("prohibited", Ok(Refusal::Prohibited)),
        ("silent", Ok(Refusal::Silent)),
    ];
    let answers = [("answer", Ok(true)), ("silent", Ok(false))];
    set(&mut config.refusal, nat.get("refusal").and_then(|value| value.word(&refusals)));
    let answer = nat.get("unsolicited_syn").and_then(|value| value.word(&answers));
    set(&mut config.answer_unsolicited_syn, answer);
}

/// The maximum segment size of `[nat]`.
pub(super) enum SegmentSize {
    Unchanged,
    Bytes(Located<u16>),
    /// Derived from the MTUs of both sides.
    ByMtu,
}

fn read_mss(nat: &Section<'_>) -> SegmentSize {
    let Some(value) = nat.get("tcp_mss") else { return SegmentSize::Unchanged };
    if value.is_integer() {
        let size = value.integer(MSS_BOUNDS.0..=MSS_BOUNDS.1);
        let size = size.and_then(|size| u16::try_from(size).ok());
        let place = value.place;
        return size
            .map_or(SegmentSize::Unchanged, |value| SegmentSize::Bytes(Located { value, place }));
    }
    match value.word(&[("mtu", Ok(()))]) {
        Some(()) => SegmentSize::ByMtu,
        None => SegmentSize::Unchanged,
    }
}

/// Reads `[limits]` and returns the place of the quota.
fn read_limits(section: &Section<'_>, limits: &mut Limits) -> Place {
    let quota = section.section("ports_per_subscriber", "limits.ports_per_subscriber");
    let all = u64::from(u32::MAX);
    for (section, key, least, most, slot) in [
        (&quota, "tcp", 1, all, &mut limits.tcp_ports),
        (&quota, "udp", 1, all, &mut limits.udp_ports),
        (&quota, "icmp", 1, all, &mut limits.icmp_ports),
        (section, "new_mappings_per_second", 1, MOST_A_SECOND, &mut limits.new_mappings_per_second),
        (section, "icmp_errors_per_second", 1, MOST_A_SECOND, &mut limits.icmp_errors_per_second),
    ] {
        set(slot, bounded(section, key, least, most));
    }
    let sessions = bounded(section, "sessions_per_mapping", 1, u64::from(u16::MAX));
    set(&mut limits.sessions_per_mapping, sessions.and_then(|value| u16::try_from(value).ok()));
    limits.sessions_per_subscriber = bounded(section, "sessions_per_subscriber", 1, all);
    set(&mut limits.thresholds, policy::read_thresholds(section).map(|percents| percents.value));
    limits.subscribers = bounded(section, "subscribers", 1, MOST_MAPPINGS);
    limits.mappings = bounded(section, "mappings", 1, MOST_MAPPINGS);
    limits.extra_sessions = bounded(section, "extra_sessions", 0, MOST_MAPPINGS);
    limits.extra_sessions_per_subscriber =
        bounded(section, "extra_sessions_per_subscriber", 0, all);
    limits.twice_sessions = bounded(section, "twice_sessions", 0, MOST_MAPPINGS);
    limits.held_ports = bounded(section, "held_ports", 0, all);
    let fragments = bounded(section, "fragments_per_datagram", 1, Limits::MOST_FRAGMENTS.into());
    set(&mut limits.fragments_per_datagram, fragments.and_then(|value| u8::try_from(value).ok()));
    set(&mut limits.fragment_memory, section.get("fragment_memory").and_then(|v| read_memory(&v)));
    quota.place
}

pub(super) fn bounded(
    section: &Section<'_>,
    key: &'static str,
    least: u64,
    most: u64,
) -> Option<u32> {
    let value = section.get(key)?.integer(least..=most)?;
    u32::try_from(value).ok()
}

/// Reads a number of bytes: an integer, or a string with a unit.
fn read_memory(value: &Value<'_>) -> Option<usize> {
    const MOST: u64 = 1 << 40;
    if value.is_integer() {
        return value.integer(LEAST_FRAGMENT_MEMORY..=MOST).map(|bytes| bytes as usize);
    }
    let size = value.parsed("a size such as \"16MiB\" or a number of bytes", values::size)?.value;
    if !(LEAST_FRAGMENT_MEMORY..=MOST).contains(&size) {
        value.wrong("is out of bounds; it must be from \"64KiB\" (one datagram) to \"1TiB\"");
        return None;
    }
    Some(size as usize)
}

fn read_timeouts(section: &Section<'_>, timeouts: &mut Timeouts) {
    // Key, destination, bounds, the shortest time that an RFC allows.
    let idle = IDLE;
    let tick = Duration::from_millis(1);
    let rfc = |minutes: u32, source: &'static str| Some((MINUTE * minutes, source));
    for (key, slot, bounds, least) in [
        //= rfc4787#REQ-5b
        ("udp", &mut timeouts.udp, &idle, rfc(2, "RFC 4787 REQ-5")),
        //= rfc5382#REQ-5a
        ("tcp_established", &mut timeouts.tcp_established, &idle, rfc(124, "RFC 5382 REQ-5")),
        //= rfc7857#section-2.1-shorter
        ("tcp_opening", &mut timeouts.tcp_opening, &idle, rfc(4, "RFC 7857 section 2.1")),
        ("tcp_closing", &mut timeouts.tcp_closing, &idle, rfc(4, "RFC 7857 section 2.1")),
        //= rfc6146#section-3.5.3-configurable
        //= rfc6146#section-3.5.3-inbound
        ("icmp", &mut timeouts.icmp, &idle, rfc(1, "RFC 5508 REQ-2")),
        ("other", &mut timeouts.other, &idle, None),
        ("hold_down", &mut timeouts.hold_down, &(tick..=MINUTE * 60), rfc(2, "RFC 6888 REQ-8")),
        //= rfc6146#section-3.4-interval-configurable
        ("fragment", &mut timeouts.fragment, &(tick..=MINUTE * 2), None),
    ] {
        let Some(value) = section.get(key) else { continue };
        let Some(duration) = read_duration(&value, bounds) else { continue };
        *slot = duration;
        if let Some((least, source)) = least.filter(|(least, _)| duration < *least) {
            let (shown, least) = (show_duration(duration), show_duration(least));
            let message = format!("{shown} is below the {least} that {source} asks for");
            section.report.unwise(&value.place, message);
        }
    }
}

pub(super) fn read_duration(
    value: &Value<'_>,
    bounds: &RangeInclusive<Duration>,
) -> Option<Duration> {
    let duration = value.parsed("a duration in quotes, such as \"2h4m\"", values::duration)?.value;
    if !bounds.contains(&duration) {
        let (least, most) = (show_duration(*bounds.start()), show_duration(*bounds.end()));
        let shown = show_duration(duration);
        value.wrong(format!("{shown} is out of bounds; it must be from {least} to {most}"));
        return None;
    }
    Some(duration)
}

/// Reads `[workers]`: number of threads and their cores.
fn read_workers(section: &Section<'_>) -> WorkerSettings {
    /// The kernel's limit of processors is not far above.
    const LAST_CORE: u64 = 4095;
    let count = section.get("count").and_then(|value| value.integer(1..=MOST_WORKERS as u64));
    let given = count.map(|count| count as usize);
    let cores = section.get("cores").and_then(|value| {
        let items = value.items("an array of processors such as [2, 3]")?;
        let read: Option<Vec<usize>> = items
            .iter()
            .map(|item| item.integer(0..=LAST_CORE).map(|core| core as usize))
            .collect();
        let cores = read?;
        let wanted = given.unwrap_or(cores.len());
        let twice = cores.iter().enumerate().find(|(place, core)| cores[..*place].contains(core));
        if let Some((_, core)) = twice {
            value.wrong(format!("names processor {core} twice; each worker has its own"));
        } else if cores.is_empty() || cores.len() > MOST_WORKERS || cores.len() != wanted {
            let named = cores.len();
            value.wrong(format!("names {named} processors for {wanted} workers; name one each"));
        } else {
            return Some(cores);
        }
        None
    });
    let cores = cores.unwrap_or_default();
    WorkerSettings { count: given.unwrap_or(cores.len().max(1)), cores }
}

/// Reads where ports in use are stored, if enabled.
fn read_state(section: &Section<'_>) -> Option<StateSettings> {
    const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
    let file = section.is_present().then(|| section.required_path("file")).flatten();
    let interval = section.get("interval").and_then(|value| read_duration(&value, &INTERVALS));
    Some(StateSettings { file: file?, interval: interval.unwrap_or(DEFAULT_STATE_INTERVAL) })
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}
