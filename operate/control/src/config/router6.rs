//! Reads what the router for IPv6 needs: `[[route]]` and `[[neighbor]]` tables of IPv6, and
//! `[ipv6.advertise]`; and checks it.

use super::draft::{Draft, SideDraft};
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::values6;
use super::{neighbors, realms, values};
use natgate_engine::Side;
use natgate_gateway::{AdvertiseSettings, Route6, Settings6, StaticNeighbor6};
use natgate_ipv6::Prefix6;
use natgate_wire::arp::Mac;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bounds of the longest interval between advertisements (RFC 4861 section 6.2.1).
//= rfc4861#section-6.2.1-interval
const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(4)..=Duration::from_secs(1800);

/// Longest lifetime of a default router.
const LONGEST: Duration = Duration::from_secs(9000);

/// Intervals for which hosts use the gateway as a default router, unless the file has a lifetime.
const INTERVALS_OF_A_LIFETIME: u32 = 3;

/// Longest lifetime of a prefix, which stands for ever.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Most servers of names: an option has at most 255 units of eight bytes.
const MOST_SERVERS: usize = 127;

/// Tables of both families that are about IPv6.
#[derive(Default)]
pub(super) struct Router6Draft {
    pub(super) routes: Vec<Route6Draft>,
    pub(super) neighbors: Vec<Neighbor6Draft>,
}

/// A route of IPv6.
pub(super) struct Route6Draft {
    pub(super) prefix: Located<Prefix6>,
    pub(super) via: Located<Ipv6Addr>,
    pub(super) side: Side,
}

/// A static neighbor of IPv6.
pub(super) struct Neighbor6Draft {
    pub(super) address: Located<Ipv6Addr>,
    pub(super) mac: Mac,
    pub(super) side: Side,
}

/// `[ipv6.advertise]`.
pub(super) struct AdvertiseDraft {
    place: Place,
    settings: AdvertiseSettings,
    /// Place of the key `autonomous`, if the file has it.
    autonomous: Option<Place>,
    /// The prefix of NAT64 is to be advertised; the place if the file says so.
    pref64: Option<Option<Place>>,
}

/// True if a key has an address or prefix of IPv6.
pub(super) fn is_ipv6(section: &Section<'_>, key: &'static str) -> bool {
    section.get(key).is_some_and(|value| value.has_text(|text| text.contains(':')))
}

/// Reads a `[[route]]` table of IPv6.
pub(super) fn read_route(section: &Section<'_>) -> Option<Route6Draft> {
    let prefix = section
        .require("prefix", "\"2001:db8::/32\"")
        .and_then(|value| value.parsed("a prefix", values6::unicast_or_all));
    let via = section.require("via", "\"2001:db8::1\"").and_then(|value| read_address(&value));
    let side = read_side(section)?;
    Some(Route6Draft { prefix: prefix?, via: via?, side })
}

/// Reads a `[[neighbor]]` table of IPv6.
pub(super) fn read_neighbor(section: &Section<'_>) -> Option<Neighbor6Draft> {
    let address =
        section.require("address", "\"2001:db8::1\"").and_then(|value| read_address(&value));
    let mac = neighbors::read_mac(section);
    let side = read_side(section)?;
    Some(Neighbor6Draft { address: address?, mac: mac?, side })
}

fn read_address(value: &Value<'_>) -> Option<Located<Ipv6Addr>> {
    value.parsed("an IPv6 address", values6::address6)
}

/// Reads the side of a table; realms have no IPv6.
fn read_side(section: &Section<'_>) -> Option<Side> {
    let (side, realm) = realms::read_side(section)?;
    match realm {
        Some(realm) => {
            let message = "IPv6 of realms is not built in yet; take the key out";
            section.report.wrong(&realm.place, message);
            None
        }
        None => Some(side),
    }
}

/// Reads `[ipv6.advertise]`.
pub(super) fn read_advertise(section: &Section<'_>) -> Option<AdvertiseDraft> {
    //= rfc4861#section-6.2.1-default
    if !section.is_present() {
        return None;
    }
    let mut settings = AdvertiseSettings::default();
    let boolean = |key| section.get(key).and_then(|value| value.boolean());
    if let Some(interval) = read_duration(section, "interval", INTERVALS) {
        settings.interval = interval;
    }
    settings.lifetime = settings.interval * INTERVALS_OF_A_LIFETIME;
    if let Some(lifetime) = read_duration(section, "lifetime", Duration::ZERO..=LONGEST) {
        settings.lifetime = lifetime;
    }
    for (key, slot) in [
        ("preferred_lifetime", &mut settings.preferred_lifetime),
        ("valid_lifetime", &mut settings.valid_lifetime),
    ] {
        if let Some(lifetime) = read_duration(section, key, Duration::ZERO..=FOR_EVER) {
            *slot = lifetime;
        }
    }
    settings.autonomous = boolean("autonomous").unwrap_or(settings.autonomous);
    settings.managed = boolean("managed").unwrap_or(settings.managed);
    settings.other = boolean("other").unwrap_or(settings.other);
    settings.dns = read_servers(section);
    lifetimes_agree(section, &settings);
    let pref64 = section.get("pref64");
    let wanted = pref64.as_ref().and_then(|value| value.boolean()).unwrap_or(true);
    Some(AdvertiseDraft {
        place: section.place.clone(),
        settings,
        autonomous: section.get("autonomous").map(|value| value.place),
        pref64: wanted.then(|| pref64.map(|value| value.place)),
    })
}

/// Reads a duration of whole seconds within bounds.
fn read_duration(
    section: &Section<'_>,
    key: &'static str,
    bounds: RangeInclusive<Duration>,
) -> Option<Duration> {
    let value = section.get(key)?;
    let duration = value.parsed("a duration such as \"10m\"", values::duration)?.value;
    let (low, high) =
        (values::show_duration(*bounds.start()), values::show_duration(*bounds.end()));
    if !bounds.contains(&duration) {
        let shown = values::show_duration(duration);
        value.wrong(format!("{shown} is out of bounds; it must be from {low} to {high}"));
        return None;
    }
    if duration.subsec_nanos() != 0 {
        value.wrong("has a fraction of a second; write whole seconds");
        return None;
    }
    Some(duration)
}

fn read_servers(section: &Section<'_>) -> Vec<Ipv6Addr> {
    let Some(value) = section.get("dns") else { return Vec::new() };
    let Some(items) = value.items("an array of IPv6 addresses") else { return Vec::new() };
    if items.is_empty() {
        value.wrong("names no server; write addresses such as \"2001:db8::53\", or take it out");
    }
    if items.len() > MOST_SERVERS {
        value.wrong(format!("names {} servers; write at most {MOST_SERVERS}", items.len()));
    }
    items.iter().filter_map(read_address).map(|server| server.value).collect()
}

/// Reports lifetimes that contradict each other.
//= rfc4861#section-6.2.1-lifetime
//= rfc4861#section-6.2.1-preferred
fn lifetimes_agree(section: &Section<'_>, settings: &AdvertiseSettings) {
    let (interval, lifetime) = (settings.interval, settings.lifetime);
    let shown = values::show_duration;
    if let Some(value) = section.get("lifetime")
        && !lifetime.is_zero()
        && lifetime < interval
    {
        let message = format!("is shorter than interval ({})", shown(interval));
        value.wrong(format!("{message}; hosts would lose their router; write a longer one, or 0s"));
    }
    if settings.preferred_lifetime > settings.valid_lifetime
        && let Some(value) = section.get("preferred_lifetime").or(section.get("valid_lifetime"))
    {
        let (preferred, valid) = (settings.preferred_lifetime, settings.valid_lifetime);
        let (preferred, valid) = (shown(preferred), shown(valid));
        let message = format!("preferred_lifetime ({preferred}) exceeds valid_lifetime ({valid})");
        value.wrong(format!("{message} (RFC 4861 section 4.6.2); write a shorter one"));
    }
}

/// Reports routes, neighbors and advertisements that disagree with the sides.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    routes(draft, report);
    static_neighbors(draft, report);
    advertisements(draft, report);
}

fn side(draft: &Draft, side: Side) -> &SideDraft {
    match side {
        Side::Inside => &draft.inside,
        Side::Outside => &draft.outside,
    }
}

fn routes(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<(Ipv6Addr, u8), usize> = HashMap::new();
    for route in &draft.router6.routes {
        let side = side(draft, route.side);
        is_neighbor(&route.via, side, report);
        let (prefix, place) = (route.prefix.value, &route.prefix.place);
        if let Some(line) = seen.insert((prefix.first(), prefix.len), report.line(place.offset)) {
            let message = format!("{prefix} has a route in line {line} already; keep one");
            report.wrong(place, message);
        }
        let is_network = |side: &&SideDraft| {
            let network = side.network6();
            network.is_some_and(|one| (one.first(), one.len) == (prefix.first(), prefix.len))
        };
        if let Some(connected) = [&draft.inside, &draft.outside].into_iter().find(is_network) {
            let name = connected.name();
            let message = format!("{prefix} is the network of {name}.address6, which goes first");
            report.wrong(place, format!("{message}; remove the route"));
        }
        if prefix.len == 0 && side.gateway6.is_some() {
            let message = format!("stands beside {}.gateway6, which means the same", side.name());
            report.wrong(place, format!("{message}; keep one of the two"));
        }
    }
}

fn static_neighbors(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<(bool, Ipv6Addr), usize> = HashMap::new();
    for neighbor in &draft.router6.neighbors {
        is_neighbor(&neighbor.address, side(draft, neighbor.side), report);
        let (address, place) = (neighbor.address.value, &neighbor.address.place);
        let key = (neighbor.side == Side::Inside, address);
        if let Some(line) = seen.insert(key, report.line(place.offset)) {
            let message = format!("{address} is a neighbor in line {line} already; keep one");
            report.wrong(place, message);
        }
    }
}

/// A next hop or neighbor is on the link of a side, and is not the gateway itself.
pub(super) fn is_neighbor(hop: &Located<Ipv6Addr>, side: &SideDraft, report: &Report<'_>) {
    let (address, name) = (hop.value, side.name());
    if side.address6.as_ref().is_some_and(|own| own.value.0 == address) {
        report.wrong(&hop.place, format!("is {name}.address6 itself; write a neighbor's address"));
        return;
    }
    if address.is_unicast_link_local() || side.network6().is_some_and(|one| one.contains(address)) {
        return;
    }
    let message = match side.network6() {
        Some(network) => format!("{address} is not in {network}, the network of {name}.address6"),
        None => format!("{address} is not link-local, and {name}.address6 is missing"),
    };
    report.wrong(&hop.place, format!("{message}; write a neighbor's address"));
}

fn advertisements(draft: &Draft, report: &Report<'_>) {
    let Some(advertise) = &draft.ipv6.advertise else { return };
    let Some(network) = draft.inside.network6() else {
        let message = "needs inside.address6, whose prefix hosts get; write it";
        return report.wrong(&advertise.place, message);
    };
    if advertise.settings.autonomous && network.len != 64 {
        let place = advertise.autonomous.as_ref().unwrap_or(&advertise.place);
        let message = format!("hosts form addresses from prefixes of 64 bits only, not {network}");
        report.unwise(place, format!("{message}; write autonomous = false, or another prefix"));
    }
    if let Some(Some(place)) = &advertise.pref64
        && draft.ipv6.nat64.is_none()
    {
        report.wrong(place, "has no effect, because there is no [nat64]; take it out");
    }
}

impl Router6Draft {
    /// True if a route or a neighbor of IPv6 is on a side.
    pub(super) fn is_on(&self, side: Side) -> bool {
        self.routes.iter().any(|route| route.side == side)
            || self.neighbors.iter().any(|neighbor| neighbor.side == side)
    }

    /// The places of all tables.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let routes = self.routes.iter().map(|route| route.prefix.place.clone());
        let neighbors = self.neighbors.iter().map(|neighbor| neighbor.address.place.clone());
        routes.chain(neighbors)
    }
}

impl Draft {
    /// Converts the tables to settings.
    pub(super) fn to_router6(&self) -> Settings6 {
        let Router6Draft { routes, neighbors } = &self.router6;
        let route = |route: &Route6Draft| Route6 {
            prefix: route.prefix.value,
            via: route.via.value,
            side: route.side,
        };
        let neighbor = |one: &Neighbor6Draft| StaticNeighbor6 {
            side: one.side,
            address: one.address.value,
            mac: one.mac,
        };
        let prefixes = self.ipv6.nat64.iter().flat_map(|nat64| &nat64.prefixes);
        let first = prefixes.map(|prefix| prefix.value).next();
        let advertise = self.ipv6.advertise.as_ref().map(|one| AdvertiseSettings {
            pref64: first.filter(|_| one.pref64.is_some()),
            ..one.settings.clone()
        });
        Settings6 {
            routes: routes.iter().map(route).collect(),
            neighbors: neighbors.iter().map(neighbor).collect(),
            advertise,
        }
    }
}
