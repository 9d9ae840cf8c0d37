//! Lists of any length: one JSON object with a list and a flag for more entries, or one object per
//! line.
//!
//! The next part is requested from a worker when the client has taken the previous one.

use super::query::TableQuery;
use super::{Answer, Interface, Of, top, wants_lines};
use crate::config::show_prefix;
use crate::json::{self, Names};
use crate::socket::{ClientGroup, Response, blocking, pieces};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use natgate_engine::{
    AddressRange, BlockInfo, MappingInfo, Match, Prefix, Rule, RuleAction, SessionInfo, Side,
    SubscriberInfo, Timestamp,
};
use natgate_gateway::fleet::{FleetStatus, SliceStatus};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{List, Listed, Route, RuleAlgs, Settings};
use natgate_ipv6::Prefix6;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Default limit of a list.
const USUAL: u64 = 1000;

/// Entries per request to a worker.
pub(super) const PART: usize = 512;

/// Keys of a query for mappings and sessions.
const KEYS: [&str; 6] = ["subscriber", "realm", "external", "remote", "protocol", "limit"];

pub(super) async fn mappings(
    State(interface): Of,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let asked = TableQuery::parse(query.as_deref(), &KEYS)?;
    let copied = copied(&interface).await?;
    let host = |info: &MappingInfo| (info.id.realm, info.id.internal.address);
    let list = from_workers(&interface, &asked, host, move |info, host, now, names, into| {
        let is_in = |ranges: &Vec<AddressRange>| {
            ranges.iter().any(|range| range.contains(info.id.external.address))
        };
        let line = json::MappingLine::of_mapping(info, now, names).of_host(host);
        write(into, &line.in_pair(copied.as_ref().map(is_in)))
    })
    .await?;
    Ok(list.answer("mappings", asked.limit, &headers))
}

/// Addresses of the slices of a pair that the other node owns. `None`: there is no pair.
async fn copied(interface: &Arc<Interface>) -> Result<Option<Vec<AddressRange>>, Response> {
    let Some(state) = interface.pair.as_ref().map(|pair| Arc::clone(&pair.state)) else {
        return Ok(None);
    };
    let status = blocking(move || state()).await?;
    let others = |status: FleetStatus| -> Vec<AddressRange> {
        let is_other = |slice: &SliceStatus| matches!(slice.role, "partner" | "yielding");
        status.slices.into_iter().filter(is_other).flat_map(|slice| slice.addresses).collect()
    };
    Ok(status.map(others))
}

pub(super) async fn sessions(
    State(interface): Of,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let asked = TableQuery::parse(query.as_deref(), &KEYS)?;
    type Both = (SessionInfo, MappingInfo);
    let host = |(_, of): &Both| (of.id.realm, of.id.internal.address);
    let list = from_workers(&interface, &asked, host, |(info, of), host, now, names, into| {
        write(into, &json::MappingLine::of_session(info, of, now, names).of_host(host))
    })
    .await?;
    Ok(list.answer("sessions", asked.limit, &headers))
}

pub(super) async fn subscribers(
    State(interface): Of,
    Extension(group): Extension<ClientGroup>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let keys = ["subscriber", "realm", "external", "limit", "top"];
    let asked = TableQuery::parse(query.as_deref(), &keys)?;
    if asked.external_port.is_some() {
        let message = "external is an address here; GET /v1/who says who has a port";
        return Err(Response::failure(400, message));
    }
    if let Some(top) = asked.top {
        return top::subscribers(interface, group, asked, top)
            .await
            .map(IntoResponse::into_response);
    }
    let host = |info: &SubscriberInfo| (info.realm, info.address);
    let list = from_workers(&interface, &asked, host, |info, host, _, names, into| {
        write(into, &subscriber(info, host, names))
    })
    .await?;
    Ok(list.answer("subscribers", asked.limit, &headers))
}

pub(super) fn subscriber(info: &SubscriberInfo, host: Option<&HostName>, names: &Names) -> Value {
    let [tcp, udp, other] = info.mappings;
    let mut object = json!({
        "subscriber": info.address,
        "external": info.external,
        "answered": !info.is_unanswered,
        "mappings": { "tcp": tcp, "udp": udp, "other": other },
        "sessions": info.sessions,
    });
    if let Some(realm) = names.realm(info.realm) {
        object["realm"] = realm.into();
    }
    if let Some(host) = host {
        object["subscriber"] = json::prefix((host.prefix, host.len)).into();
    }
    object
}

pub(super) async fn blocks(
    State(interface): Of,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let asked = TableQuery::parse(query.as_deref(), &["subscriber", "realm", "external", "limit"])?;
    let settings = interface.settings();
    let host = |info: &BlockInfo| (info.realm, info.subscriber);
    let list = from_workers(&interface, &asked, host, move |info, host, now, names, into| {
        write(into, &block(info, host, now, names, &settings))
    })
    .await?;
    Ok(list.answer("blocks", asked.limit, &headers))
}

/// A block of ports: place, owner, number of ports in use.
pub(super) fn block(
    info: &BlockInfo,
    host: Option<&HostName>,
    now: Timestamp,
    names: &Names,
    settings: &Settings,
) -> Value {
    let by_protocol = |[tcp, udp, icmp, dccp]: [u32; 4]| {
        json!({
            "tcp": tcp,
            "udp": udp,
            "icmp": icmp,
            "dccp": dccp,
        })
    };
    let mut object = json!({
        "pool": settings.engine.pools.get(info.pool).map(|pool| &pool.name[..]),
        "external": info.external,
        "ports": format!("{}-{}", info.ports.0, info.ports.1),
        "subscriber": info.subscriber,
        "kind": info.kind.name(),
        "used": by_protocol(info.used),
        "held": by_protocol(info.held),
        "age_s": info.since.map(|since| now.since(since).as_secs_f64()),
        "released_in_s": info.expires.map(|expires| expires.since(now).as_secs_f64()),
    });
    if let Some(realm) = names.realm(info.realm) {
        object["realm"] = realm.into();
    }
    if let Some(host) = host {
        object["subscriber"] = json::prefix((host.prefix, host.len)).into();
    }
    object
}

pub(super) async fn rules(
    State(interface): Of,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let asked = TableQuery::parse(query.as_deref(), &["limit"])?;
    let settings = interface.settings();
    let names = Names::of_settings(&settings);
    let (mut realm, mut at) = (0, 0);
    let next = move |into: &mut Entries| {
        while into.count < PART {
            let rules = match usize::from(realm).checked_sub(1) {
                None => &settings.engine.rules,
                Some(further) => match settings.engine.realms.get(further) {
                    Some(realm) => &realm.rules,
                    None => return Ok(false),
                },
            };
            match rules.get(at) {
                Some(one) => {
                    write(into, &rule(one, realm, &settings, &names))?;
                    at += 1;
                }
                None => (realm, at) = (realm + 1, 0),
            }
        }
        Ok(true)
    };
    Ok(Entries::new(next).answer("rules", asked.limit, &headers))
}

fn rule(rule: &Rule, realm: u16, settings: &Settings, names: &Names) -> Value {
    let (end, prefix, port) = match rule.matches {
        Match::Source(prefix, port) => ("source", prefix, port),
        Match::Destination(prefix, port) => ("destination", prefix, port),
    };
    let pool = |number: usize| settings.engine.pools.get(number).map(|pool| &pool.name[..]);
    let mut object = json!({ "match": { end: show_prefix(prefix), "port": port } });
    object["priority"] = rule.priority.into();
    if let Some(realm) = names.realm(realm) {
        object["realm"] = realm.into();
    }
    let (kind, keys) = match rule.action {
        RuleAction::Snat(number) => ("snat", json!({ "pool": pool(number) })),
        RuleAction::SnatTo(number, address) => {
            ("snat", json!({ "pool": pool(number), "to": address }))
        }
        RuleAction::Dnat(address, None) => ("dnat", json!({ "to": address })),
        RuleAction::Dnat(address, Some(port)) => {
            ("dnat", json!({ "to": format!("{address}:{port}") }))
        }
        RuleAction::DnatPrefix(to) => ("dnat", json!({ "to": show_prefix(to) })),
        RuleAction::Bypass => ("bypass", json!({})),
        RuleAction::Drop => ("drop", json!({})),
    };
    object["kind"] = kind.into();
    for (key, value) in keys.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    if let Some(algs) = RuleAlgs::of_mark(rule.mark) {
        object["alg"] = algs.names().collect();
    }
    object
}

pub(super) async fn routes(
    State(interface): Of,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let asked = TableQuery::parse(query.as_deref(), &["limit"])?;
    let of = Arc::clone(&interface);
    let learnt = blocking(move || of.commander().learnt()).await?;
    let learnt = learnt.map_err(super::stopping)?;
    let settings = interface.settings();
    let own = configured(&settings);
    let mut at = 0;
    let next = move |into: &mut Entries| {
        // Learnt routes may be many: skip those of the earlier parts.
        while let Some(one) = own.get(at).filter(|_| into.count < PART) {
            write(into, one)?;
            at += 1;
        }
        for route in learnt.iter().skip(at - own.len().min(at)).take(PART - into.count.min(PART)) {
            write(into, &object(&route, "learnt", None))?;
            at += 1;
        }
        Ok(into.count >= PART)
    };
    Ok(Entries::new(next).answer("routes", asked.limit, &headers))
}

/// The connected networks, the gateways of the sides, and the configured routes.
fn configured(settings: &Settings) -> Vec<Value> {
    let realm =
        |number: u16| (!settings.realms.is_empty()).then(|| settings.realm_name(number).to_owned());
    let mut routes = Vec::new();
    let further = (1..).zip(&settings.realms);
    let further = further.filter(|(number, _)| settings.engine.has_realm(*number));
    let links = [(Side::Inside, 0, &settings.inside), (Side::Outside, 0, &settings.outside)]
        .into_iter()
        .chain(further.clone().map(|(number, one)| (Side::Inside, number, &one.inside)));
    for (side, number, link) in links {
        let of = (side == Side::Inside).then(|| realm(number)).flatten();
        if let Some((address, len)) = link.address {
            let via = std::net::Ipv4Addr::UNSPECIFIED;
            let route = Route { prefix: Prefix::new(address, len), via, side };
            let mut connected = object(&route, "connected", of.as_deref());
            connected["via"] = Value::Null;
            routes.push(connected);
        }
        if let Some(via) = link.gateway {
            let prefix = Prefix::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
            routes.push(object(&Route { prefix, via, side }, "gateway", of.as_deref()));
        }
    }
    let own = settings.routes.iter().map(|route| (0, route));
    let theirs = further.flat_map(|(number, one)| one.routes.iter().map(move |r| (number, r)));
    for (number, route) in own.chain(theirs) {
        let of = (route.side == Side::Inside).then(|| realm(number)).flatten();
        routes.push(object(route, "configured", of.as_deref()));
    }
    routes.extend(configured6(settings, realm(0).as_deref()));
    routes
}

/// The configured routes of IPv6.
fn configured6(settings: &Settings, inside: Option<&str>) -> Vec<Value> {
    let object = |prefix: String, via: Option<Ipv6Addr>, side: Side, origin: &str| {
        let side_name = if side == Side::Inside { "inside" } else { "outside" };
        let mut object =
            json!({ "prefix": prefix, "via": via, "side": side_name, "origin": origin });
        if let Some(realm) = inside.filter(|_| side == Side::Inside) {
            object["realm"] = realm.into();
        }
        object
    };
    let mut routes = Vec::new();
    let ipv6 = &settings.ipv6;
    for (side, own) in [(Side::Inside, &ipv6.inside), (Side::Outside, &ipv6.outside)] {
        if let Some((address, len)) = own.address {
            let network = Prefix6 { address, len }.to_string();
            routes.push(object(network, None, side, "connected"));
        }
        if own.gateway.is_some() {
            routes.push(object("::/0".to_owned(), own.gateway, side, "gateway"));
        }
    }
    for route in &settings.router6.routes {
        let prefix = route.prefix.to_string();
        routes.push(object(prefix, Some(route.via), route.side, "configured"));
    }
    routes
}

fn object(route: &Route, origin: &str, realm: Option<&str>) -> Value {
    let side = match route.side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    };
    let mut object = json!({
        "prefix": show_prefix(route.prefix), "via": route.via, "side": side, "origin": origin,
    });
    if let Some(realm) = realm {
        object["realm"] = realm.into();
    }
    object
}

/// Answers with a list from the workers' tables.
async fn from_workers<T: Listed>(
    interface: &Arc<Interface>,
    asked: &TableQuery,
    host: impl Fn(&T) -> (u16, Ipv4Addr) + Send + 'static,
    one: impl Fn(&T, Option<&HostName>, Timestamp, &Names, &mut Entries) -> io::Result<()>
    + Send
    + 'static,
) -> Result<Entries, Response> {
    let room = asked.limit.map_or(PART, |limit| PART.min(usize::try_from(limit).unwrap_or(PART)));
    let names = interface.names();
    let filter = interface.filter_of_all(asked).await?;
    let interface = Arc::clone(interface);
    let mut list: Option<List<T>> = None;
    Ok(Entries::new(move |into| {
        let list = list.get_or_insert_with(|| interface.commander().list(filter, room));
        let Some((part, now)) = list.next_part().map_err(io::Error::other)? else {
            return Ok(false);
        };
        let hosts = interface.host_names(part.iter().map(&host)).map_err(io::Error::other)?;
        let mut entries = part.iter().map(|entry| {
            let (realm, number) = host(entry);
            (entry, hosts.of(realm, number))
        });
        entries.try_for_each(|(entry, host)| one(entry, host, now, &names, into)).map(|()| true)
    }))
}

/// Writes an entry.
pub(super) fn write(into: &mut Entries, entry: &impl Serialize) -> io::Result<()> {
    if into.left == 0 {
        into.more = true;
        return Ok(());
    }
    if !into.lines && into.any {
        into.text.push(b',');
    }
    serde_json::to_writer(&mut into.text, entry)?;
    if into.lines {
        into.text.push(b'\n');
    }
    (into.any, into.left, into.count) = (true, into.left - 1, into.count + 1);
    Ok(())
}

type Next = Box<dyn FnMut(&mut Entries) -> io::Result<bool> + Send>;

/// A list that a client is reading.
pub(super) struct Entries {
    /// Writes the next part; returns false at the end.
    next: Option<Next>,
    text: Vec<u8>,
    /// Entries in `text`.
    count: usize,
    /// Entries that may follow.
    left: u64,
    /// True after the first entry; true if the limit left entries out.
    any: bool,
    more: bool,
    /// True for one object per line.
    lines: bool,
}

impl Entries {
    pub(super) fn new(next: impl FnMut(&mut Self) -> io::Result<bool> + Send + 'static) -> Self {
        let text = Vec::new();
        let (any, more, lines) = (false, false, false);
        Self { next: Some(Box::new(next)), text, count: 0, left: 0, any, more, lines }
    }

    /// The response: an object with the list under `name`, or lines.
    pub(super) fn answer(
        mut self,
        name: &'static str,
        limit: Option<u64>,
        headers: &HeaderMap,
    ) -> HttpResponse {
        self.lines = wants_lines(headers);
        self.left = limit.unwrap_or(if self.lines { u64::MAX } else { USUAL });
        if !self.lines {
            self.text.extend_from_slice(format!("{{\"{name}\":[").as_bytes());
        }
        let kind = if self.lines { "application/x-ndjson" } else { "application/json" };
        let body = pieces(Some(self), |entries| entries.map_or(Ok(None), Self::piece));
        ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
    }

    /// Returns the next piece of the body, and the rest of the list.
    fn piece(mut self) -> io::Result<Option<(Bytes, Option<Self>)>> {
        let Some(mut next) = self.next.take() else { return Ok(None) };
        let goes_on = next(&mut self)? && !self.more;
        if goes_on {
            self.next = Some(next);
        } else if !self.lines {
            self.text.extend_from_slice(format!("],\"more\":{}}}\n", self.more).as_bytes());
        }
        self.count = 0;
        let piece = Bytes::from(std::mem::take(&mut self.text));
        Ok(Some((piece, goes_on.then_some(self))))
    }
}

/// Answers with a short list as one object.
pub(super) fn whole(name: &str, entries: Vec<Value>, more: bool) -> Answer {
    Ok(Response::done(json!({ name: entries, "more": more })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::Config;
    use natgate_gateway::{Route6, SideSettings};

    #[test]
    fn routes_of_ipv6_are_listed_after_those_of_ipv4() {
        let sides = [SideSettings::new("in"), SideSettings::new("out")];
        let [inside, outside] = sides;
        let mut settings = Settings::new(Config::default(), inside, outside);
        let ip = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        settings.inside.address = Some((std::net::Ipv4Addr::new(10, 0, 0, 1), 8));
        settings.ipv6.inside.address = Some((ip("2001:db8:1::1"), 64));
        settings.ipv6.outside.gateway = Some(ip("fe80::1"));
        let prefix = Prefix6 { address: ip("2001:db8:2::"), len: 48 };
        let route = Route6 { prefix, via: ip("2001:db8:1::2"), side: Side::Inside };
        settings.router6.routes.push(route);
        let route = |prefix: &str, via: Option<&str>, side: &str, origin: &str| {
            let (to, from) = (prefix, origin);
            json!({ "prefix": to, "via": via, "side": side, "origin": from })
        };
        let expected = [
            route("10.0.0.0/8", None, "inside", "connected"),
            route("2001:db8:1::/64", None, "inside", "connected"),
            route("::/0", Some("fe80::1"), "outside", "gateway"),
            route("2001:db8:2::/48", Some("2001:db8:1::2"), "inside", "configured"),
        ];
        assert_eq!(configured(&settings), expected);
    }
}
