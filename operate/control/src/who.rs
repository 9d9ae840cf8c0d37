//! The owner of an external endpoint by the configuration alone, from deterministic pools (RFC
//! 7422) and static mappings. The gateway need not run, and no log is needed.
//!
//! If the configuration does not determine the owner, the answer names the reason and the log that
//! would.

use natgate_engine::Plan;
use natgate_ipv6::Prefix6;
use natgate_logs::{
    OwnersInForce, PoolInForce, ServiceInForce, StaticInForce, protocol as name_of,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr};

/// An owner and its share of an external address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The subscriber.
    pub subscriber: Holder,
    /// Address of the host, if the subscriber is a prefix or a B4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<IpAddr>,
    /// Realm of the subscriber; `None` if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Protocol of a static mapping; `None`: all protocols that no other answer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// External address.
    pub external: Ipv4Addr,
    /// Ports of the subscriber, such as "2048-2559"; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    /// Name of the pool; `None` for a static mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// `deterministic` or `static`.
    pub kind: &'static str,
}

/// The subscriber of an answer: a host, a prefix of hosts of NAT64, or a B4 of DS-Lite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Holder {
    /// A host.
    Host(Ipv4Addr),
    /// A prefix, such as "2001:db8:1::/64", or a B4, such as "2001:db8:b4::1".
    Prefix(String),
}

impl Display for Holder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(address) => write!(f, "{address}"),
            Self::Prefix(prefix) => f.write_str(prefix),
        }
    }
}

impl Answer {
    /// The answer as an object, with its source.
    pub fn object(&self) -> Value {
        let mut object = json!(self);
        object["by"] = self.kind.into();
        object
    }

    /// The answer in one clause.
    pub fn sentence(&self) -> String {
        let Self { subscriber, internal, realm, protocol, external, ports, pool, kind } = self;
        let host = internal.map(|host| format!(" (host {host})")).unwrap_or_default();
        let of = realm.as_ref().map(|realm| format!(" of realm {realm}")).unwrap_or_default();
        let protocol = protocol.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
        let ports = match ports {
            Some(ports) if ports.contains('-') => format!("ports {ports}"),
            Some(port) => format!("port {port}"),
            None => "all ports".to_owned(),
        };
        let pool = pool.as_ref().map(|pool| format!(", pool {pool}")).unwrap_or_default();
        format!("{subscriber}{host}{of} has {protocol}{ports} of {external} ({kind}{pool})")
    }
}

/// The reason why no owner is known; one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered(pub String);

/// Finds the subscribers of an external address and port: one for a protocol. Without a protocol,
/// also those of static mappings and services of one protocol.
///
/// # Errors
/// If the configuration does not determine the owner, with the reason.
pub fn reverse(
    owners: &OwnersInForce,
    external: Ipv4Addr,
    port: u16,
    protocol: Option<u8>,
) -> Result<Vec<Answer>, Unanswered> {
    let mut answers = fixed(owners, external, port, protocol);
    let is_whole = |answers: &[Answer]| {
        !answers.is_empty()
            && (protocol.is_some() || answers.iter().any(|answer| answer.protocol.is_none()))
    };
    if is_whole(&answers) {
        return Ok(answers);
    }
    let mut services: Vec<Answer> = Vec::new();
    for service in services_of(owners, external, port, protocol) {
        services.extend(servers(owners, service));
        if protocol.is_some() || service.protocol.is_none() {
            break;
        }
    }
    if answers.is_empty() && services.len() > 1 && is_whole(&services) {
        let names: Vec<String> =
            services.iter().map(|answer| answer.subscriber.to_string()).collect();
        return Err(Unanswered(format!(
            "{external}:{port}: is served by {}; only a session's remote endpoint tells which",
            names.join(", ")
        )));
    }
    answers.extend(services);
    if is_whole(&answers) {
        return Ok(answers);
    }
    match by_pool(owners, external, port) {
        Ok(answer) => answers.push(answer),
        Err(error) if answers.is_empty() => return Err(error),
        Err(_) => {}
    }
    Ok(answers)
}

/// The static mappings and services of an endpoint that are of one protocol, but of none that is
/// already answered.
pub fn beside(
    owners: &OwnersInForce,
    (external, port): (Ipv4Addr, u16),
    answered: &[&str],
) -> Vec<Answer> {
    let services = services_of(owners, external, port, None);
    let services = services.flat_map(|service| servers(owners, service));
    let mut answers = fixed(owners, external, port, None);
    answers.extend(services);
    let is_other = |answer: &Answer| {
        answer.protocol.as_deref().is_some_and(|protocol| !answered.contains(&protocol))
    };
    answers.retain(is_other);
    answers
}

/// Finds the subscriber of a port in a deterministic pool.
fn by_pool(owners: &OwnersInForce, external: Ipv4Addr, port: u16) -> Result<Answer, Unanswered> {
    let end = format!("{external}:{port}");
    let nobody = |sentence: String| Err(Unanswered(format!("{end}: {sentence}")));
    let Some(pool) = owners.pools.iter().find(|pool| pool.has(external)) else {
        return nobody(format!(
            "is in no pool and no static mapping; ask who has that address, or for customers of \
             lw4o6 `natgate show bindings --external {external}`"
        ));
    };
    let name = &pool.name;
    let Some(plan) = pool.plan() else {
        return nobody(format!(
            "pool \"{name}\" is not deterministic; if a [[log]] is a spool, \
             `natgate who {end} --at TIME` searches it"
        ));
    };
    let plan = plan.map_err(|error| Unanswered(error.message))?;
    //= rfc7422#section-2-functions
    if let Some(subscriber) = plan.reverse(external, port) {
        return Ok(share(owners, pool, &plan, subscriber).expect("a subscriber that has a port"));
    }
    match plan.dynamic() {
        Some((first, last)) if (first..=last).contains(&port) => nobody(format!(
            "ports {first}-{last} are given out on demand; `natgate who {end} --at TIME` searches \
             the log"
        )),
        _ => nobody(format!("nobody has that port of pool \"{name}\"")),
    }
}

/// Finds the external ports of a subscriber: its share of each deterministic pool, and static
/// mappings.
///
/// # Errors
/// If the configuration gives the subscriber no external ports.
pub fn forward(owners: &OwnersInForce, subscriber: Ipv4Addr) -> Result<Vec<Answer>, Unanswered> {
    let own = owners.statics.iter();
    let own = own.filter(|fixed| fixed.host.is_none() && fixed.internal.0 == subscriber);
    let mut answers: Vec<Answer> = own.map(|fixed| fixed_answer(owners, fixed)).collect();
    let own = owners.services.iter().flat_map(|service| servers(owners, service));
    answers.extend(own.filter(|answer| answer.subscriber == Holder::Host(subscriber)));
    for pool in &owners.pools {
        if let Some(Ok(plan)) = pool.plan() {
            answers.extend(share(owners, pool, &plan, subscriber));
        }
    }
    match answers.is_empty() {
        false => Ok(answers),
        true => Err(Unanswered(format!(
            "{subscriber}: has no ports that the configuration tells; \
             `natgate who {subscriber}` without --config asks a running gateway"
        ))),
    }
}

/// Finds the static mappings of a host of NAT64, of the hosts behind a B4, or of all hosts in a
/// prefix, given as text.
///
/// # Errors
/// If the configuration gives them no external ports.
pub fn forward6(owners: &OwnersInForce, subscriber: &str) -> Result<Vec<Answer>, Unanswered> {
    let (address, len) = subscriber.split_once('/').unwrap_or((subscriber, "128"));
    let prefix = address.parse().ok().zip(len.parse().ok());
    let prefix = prefix.map(|(address, len)| Prefix6 { address, len });
    let is_in = |fixed: &&StaticInForce| {
        prefix.zip(fixed.host).is_some_and(|(prefix, (host, _))| prefix.contains(host))
    };
    let own = owners.statics.iter().filter(is_in);
    let answers: Vec<Answer> = own.map(|fixed| fixed_answer(owners, fixed)).collect();
    match answers.is_empty() {
        false => Ok(answers),
        true => Err(Unanswered(format!(
            "{subscriber}: has no static mapping, and a configuration alone gives no other ports \
             to hosts of IPv6 and behind B4s; `natgate who {subscriber}` without --config asks a \
             running gateway"
        ))),
    }
}

/// The name of a realm, if there are several.
fn realm(owners: &OwnersInForce, realm: u16) -> Option<String> {
    owners.realm(realm).map(str::to_owned)
}

fn share(
    owners: &OwnersInForce,
    pool: &PoolInForce,
    plan: &Plan,
    subscriber: Ipv4Addr,
) -> Option<Answer> {
    let (external, (first, last)) = plan.forward(subscriber)?;
    Some(Answer {
        subscriber: Holder::Host(subscriber),
        internal: None,
        realm: realm(owners, plan.realm()),
        protocol: None,
        external,
        ports: Some(if first == last { first.to_string() } else { format!("{first}-{last}") }),
        pool: Some(pool.name.clone()),
        kind: "deterministic",
    })
}

fn fixed_answer(owners: &OwnersInForce, fixed: &StaticInForce) -> Answer {
    let (external, port) = fixed.external;
    let (subscriber, realm) = match fixed.host {
        Some((b4, _)) if fixed.inner.is_some() => (Holder::Prefix(b4.to_string()), None),
        Some((address, len)) => (Holder::Prefix(Prefix6 { address, len }.to_string()), None),
        None => (Holder::Host(fixed.internal.0), realm(owners, fixed.realm)),
    };
    Answer {
        subscriber,
        internal: fixed.inner.map(IpAddr::from).or(fixed.host.map(|(address, _)| address.into())),
        realm,
        protocol: fixed.protocol.map(name_of),
        external,
        ports: port.map(|port| port.to_string()),
        pool: None,
        kind: "static",
    }
}

/// The services of an endpoint, for a protocol or for all.
fn services_of(
    owners: &OwnersInForce,
    external: Ipv4Addr,
    port: u16,
    protocol: Option<u8>,
) -> impl Iterator<Item = &ServiceInForce> {
    owners.services.iter().filter(move |service| {
        service.external == (external, port)
            && (protocol.is_none() || service.protocol.is_none() || service.protocol == protocol)
    })
}

/// An answer for each host that serves a service.
fn servers(owners: &OwnersInForce, service: &ServiceInForce) -> Vec<Answer> {
    let (external, port) = service.external;
    let hosts: BTreeSet<Ipv4Addr> = service.servers.iter().copied().collect();
    let answer = |subscriber| Answer {
        subscriber: Holder::Host(subscriber),
        internal: None,
        realm: realm(owners, service.realm),
        protocol: service.protocol.map(name_of),
        external,
        ports: Some(port.to_string()),
        pool: None,
        kind: "static",
    };
    hosts.into_iter().map(answer).collect()
}

/// Finds the static mapping of an endpoint for a protocol, or those of all protocols.
fn fixed(
    owners: &OwnersInForce,
    external: Ipv4Addr,
    port: u16,
    protocol: Option<u8>,
) -> Vec<Answer> {
    let matching = owners.statics.iter().filter(|fixed| {
        fixed.external.0 == external
            && fixed.external.1.is_none_or(|own| own == port)
            && (protocol.is_none() || fixed.protocol.is_none() || fixed.protocol == protocol)
    });
    let most = if protocol.is_some() { 1 } else { usize::MAX };
    matching.take(most).map(|fixed| fixed_answer(owners, fixed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn owners() -> OwnersInForce {
        let text = "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n\
            [[pool]]\naddresses = [\"203.0.113.1\"]\nallocation = \"deterministic\"\n\
            subscribers = [\"10.0.0.0/24\"]\ndynamic_ports = 1024\n\
            [[pool]]\nname = \"rest\"\naddresses = [\"203.0.113.2\"]\n\
            [[static]]\ninternal = \"10.0.0.28:80\"\nexternal = \"203.0.113.1:8080\"\n\
            protocol = \"tcp\"\n\
            [[static]]\ninternal = \"10.9.0.2\"\nexternal = \"198.51.100.1\"\n\
            [[static]]\nservers = [{ internal = \"10.9.0.3:80\" }, \
            { internal = \"10.9.0.4:80\" }]\n\
            external = \"198.51.100.2:80\"\n";
        let settings = parse(text, "t").unwrap_or_else(|problems| panic!("{problems:?}"));
        OwnersInForce::of(&settings.engine)
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    //= test rfc7422#section-2-functions
    #[test]
    fn both_ways() {
        // 64,512 - 1,024 = 63,488 ports for 256 subscribers: 248 each.
        let found = reverse(&owners(), ip("203.0.113.1"), 1024 + 5 * 248 + 247, None).unwrap();
        let answer = &found[0];
        assert_eq!(answer.subscriber, Holder::Host(ip("10.0.0.5")));
        assert_eq!(answer.ports.as_deref(), Some("2264-2511"));
        assert_eq!(answer.kind, "deterministic");
        assert_eq!(forward(&owners(), ip("10.0.0.5")), Ok(found));
        let fixed = forward(&owners(), ip("10.9.0.2")).unwrap();
        assert_eq!((fixed[0].external, fixed[0].kind), (ip("198.51.100.1"), "static"));
        assert!(forward(&owners(), ip("10.9.0.9")).is_err());
    }

    #[test]
    fn static_mappings_go_before() {
        let who = |protocol| reverse(&owners(), ip("203.0.113.1"), 8080, protocol).unwrap();
        let kinds = |answers: &[Answer]| -> Vec<(Option<String>, &'static str)> {
            assert!(
                answers.iter().all(|answer| answer.subscriber == Holder::Host(ip("10.0.0.28")))
            );
            answers.iter().map(|answer| (answer.protocol.clone(), answer.kind)).collect()
        };
        let (fixed, computed) = ((Some("tcp".to_owned()), "static"), (None, "deterministic"));
        assert_eq!(kinds(&who(Some(6))), std::slice::from_ref(&fixed));
        assert_eq!(kinds(&who(Some(17))), std::slice::from_ref(&computed));
        // Without a protocol there is an answer for each.
        assert_eq!(kinds(&who(None)), [fixed, computed]);
        assert_eq!(
            who(Some(6))[0].sentence(),
            "10.0.0.28 has tcp port 8080 of 203.0.113.1 (static)"
        );
        let whole = &reverse(&owners(), ip("198.51.100.1"), 5, None).unwrap()[0];
        assert_eq!(
            (whole.subscriber.clone(), whole.ports.clone()),
            (Holder::Host(ip("10.9.0.2")), None)
        );
        let fixed = forward(&owners(), ip("10.0.0.28")).unwrap();
        assert_eq!(fixed[0].ports.as_deref(), Some("8080"), "{fixed:?}");
        let answered =
            |protocols: &[&str]| beside(&owners(), (ip("203.0.113.1"), 8080), protocols).len();
        assert_eq!((answered(&["udp"]), answered(&["udp", "tcp"])), (1, 0));
    }

    #[test]
    fn what_the_configuration_does_not_tell() {
        for (external, port, why) in [
            ("203.0.113.1", 64_512, "are given out on demand"),
            ("203.0.113.1", 1023, "nobody has that port"),
            ("203.0.113.2", 5000, "pool \"rest\" is not deterministic"),
            ("203.0.113.3", 5000, "is in no pool"),
            ("203.0.113.3", 5000, "`natgate show bindings --external 203.0.113.3`"),
            ("198.51.100.2", 80, "is served by 10.9.0.3, 10.9.0.4"),
        ] {
            match reverse(&owners(), ip(external), port, None) {
                Err(Unanswered(sentence)) => assert!(sentence.contains(why), "{sentence}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
