//! The owner of an external endpoint by the configuration alone, from deterministic pools (RFC
//! 7422) and static mappings. The gateway need not run, and no log is needed.
//!
//! If the configuration does not determine the owner, the answer names the reason and the log that
//! would.

use natgate_engine::{Allocation, Plan, PoolConfig, StaticMapping};
use natgate_gateway::Settings;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// An owner and its share of an external address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The subscriber.
    pub subscriber: Ipv4Addr,
    /// Realm of the subscriber; `None` if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
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

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The question needs a protocol; one sentence.
    Ambiguous(String),
    /// No owner is known; one sentence.
    Nobody(String),
}

/// Finds the subscriber of an external address and port. Static mappings may depend on the
/// protocol.
///
/// # Errors
/// If the configuration does not determine the owner, with the reason.
pub fn reverse(
    settings: &Settings,
    external: Ipv4Addr,
    port: u16,
    protocol: Option<u8>,
) -> Result<Answer, Unanswered> {
    let config = &settings.engine;
    let end = format!("{external}:{port}");
    if let Some(answer) = static_of(settings, external, port, protocol)? {
        return Ok(answer);
    }
    if let Some(answer) = service_of(settings, external, port, protocol)? {
        return Ok(answer);
    }
    let nobody = |sentence: String| Err(Unanswered::Nobody(format!("{end}: {sentence}")));
    let in_pool = |pool: &&PoolConfig| {
        pool.addresses.iter().any(|range| (range.first..=range.last).contains(&external))
    };
    let Some(pool) = config.pools.iter().find(in_pool) else {
        return nobody("is in no pool and no static mapping; ask who has that address".into());
    };
    let name = &pool.name;
    let Allocation::Deterministic(shares) = config.allocation_of(pool) else {
        return nobody(format!(
            "pool \"{name}\" is not deterministic; `natgate who {end} --at TIME` searches the log"
        ));
    };
    let plan = Plan::new(shares, pool).map_err(|error| Unanswered::Nobody(error.message))?;
    //= rfc7422#section-2-functions
    if let Some(subscriber) = plan.reverse(external, port) {
        return Ok(share(settings, pool, &plan, subscriber).expect("a subscriber that has a port"));
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
/// mappings of whole addresses.
///
/// # Errors
/// If the configuration gives the subscriber no external ports.
/// When it has nothing that the configuration tells.
pub fn forward(settings: &Settings, subscriber: Ipv4Addr) -> Result<Vec<Answer>, Unanswered> {
    let config = &settings.engine;
    let whole = config.statics.iter().filter(|fixed| fixed.internal == (subscriber, None));
    let mut answers: Vec<Answer> = whole.map(|fixed| fixed_answer(settings, fixed)).collect();
    for pool in &config.pools {
        if let Allocation::Deterministic(shares) = config.allocation_of(pool)
            && let Ok(plan) = Plan::new(shares, pool)
        {
            answers.extend(share(settings, pool, &plan, subscriber));
        }
    }
    match answers.is_empty() {
        false => Ok(answers),
        true => Err(Unanswered::Nobody(format!(
            "{subscriber}: has no ports that the configuration tells; \
             `natgate show blocks --subscriber {subscriber}` asks a running gateway"
        ))),
    }
}

/// The name of a realm, if there are several.
fn realm(settings: &Settings, realm: u16) -> Option<String> {
    (!settings.realms.is_empty()).then(|| settings.realm_name(realm).to_owned())
}

fn share(
    settings: &Settings,
    pool: &PoolConfig,
    plan: &Plan,
    subscriber: Ipv4Addr,
) -> Option<Answer> {
    let (external, (first, last)) = plan.forward(subscriber)?;
    Some(Answer {
        subscriber,
        realm: realm(settings, plan.realm()),
        external,
        ports: Some(format!("{first}-{last}")),
        pool: Some(pool.name.clone()),
        kind: "deterministic",
    })
}

fn fixed_answer(settings: &Settings, fixed: &StaticMapping) -> Answer {
    let (external, port) = fixed.external;
    let ports = port.map(|port| port.to_string());
    let (subscriber, realm) = (fixed.internal.0, realm(settings, fixed.realm));
    Answer { subscriber, realm, external, ports, pool: None, kind: "static" }
}

/// The reason why a service's endpoint has no single owner, or its only server.
fn service_of(
    settings: &Settings,
    external: Ipv4Addr,
    port: u16,
    protocol: Option<u8>,
) -> Result<Option<Answer>, Unanswered> {
    let mut services = settings.engine.services.iter().filter(|service| {
        service.external == (external, port)
            && (protocol.is_none() || service.protocol.is_none() || service.protocol == protocol)
    });
    let Some(service) = services.next() else { return Ok(None) };
    if protocol.is_none() && service.protocol.is_some() {
        let message = "has a service of one protocol only; say which by --protocol";
        return Err(Unanswered::Ambiguous(format!("{external}:{port}: {message}")));
    }
    let hosts: BTreeSet<Ipv4Addr> =
        service.servers.iter().map(|server| server.internal.0).collect();
    match hosts.first() {
        Some(&subscriber) if hosts.len() == 1 => Ok(Some(Answer {
            subscriber,
            realm: realm(settings, service.realm),
            external,
            ports: Some(port.to_string()),
            pool: None,
            kind: "static",
        })),
        _ => {
            let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let message = format!("is served by {}", names.join(", "));
            Err(Unanswered::Nobody(format!(
                "{external}:{port}: {message}; only a session's remote endpoint tells which"
            )))
        }
    }
}

/// Finds the static mapping of an endpoint for a protocol, or for all protocols.
fn static_of(
    settings: &Settings,
    external: Ipv4Addr,
    port: u16,
    protocol: Option<u8>,
) -> Result<Option<Answer>, Unanswered> {
    let mut fixed = settings.engine.statics.iter().filter(|fixed| {
        fixed.external.0 == external
            && fixed.external.1.is_none_or(|own| own == port)
            && (protocol.is_none() || fixed.protocol.is_none() || fixed.protocol == protocol)
    });
    let Some(first) = fixed.next() else { return Ok(None) };
    if protocol.is_none() && first.protocol.is_some() {
        let message = "has a static mapping of one protocol only; say which by --protocol";
        return Err(Unanswered::Ambiguous(format!("{external}:{port}: {message}")));
    }
    Ok(Some(fixed_answer(settings, first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn settings() -> Settings {
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
        parse(text, "t").unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    //= test rfc7422#section-2-functions
    #[test]
    fn both_ways() {
        // 64,512 - 1,024 = 63,488 ports for 256 subscribers: 248 each.
        let answer = reverse(&settings(), ip("203.0.113.1"), 1024 + 5 * 248 + 247, None).unwrap();
        assert_eq!(answer.subscriber, ip("10.0.0.5"));
        assert_eq!(answer.ports.as_deref(), Some("2264-2511"));
        assert_eq!(answer.kind, "deterministic");
        assert_eq!(forward(&settings(), ip("10.0.0.5")), Ok(vec![answer]));
        let fixed = forward(&settings(), ip("10.9.0.2")).unwrap();
        assert_eq!((fixed[0].external, fixed[0].kind), (ip("198.51.100.1"), "static"));
        assert!(forward(&settings(), ip("10.9.0.9")).is_err());
    }

    #[test]
    fn static_mappings_go_before() {
        let who = |protocol| reverse(&settings(), ip("203.0.113.1"), 8080, protocol);
        let fixed = who(Some(6)).unwrap();
        assert_eq!((fixed.subscriber, fixed.kind), (ip("10.0.0.28"), "static"));
        let computed = who(Some(17)).unwrap();
        assert_eq!((computed.subscriber, computed.kind), (ip("10.0.0.28"), "deterministic"));
        assert!(matches!(who(None), Err(Unanswered::Ambiguous(_))));
        let whole = reverse(&settings(), ip("198.51.100.1"), 5, None).unwrap();
        assert_eq!((whole.subscriber, whole.ports), (ip("10.9.0.2"), None));
    }

    #[test]
    fn what_the_configuration_does_not_tell() {
        for (external, port, why) in [
            ("203.0.113.1", 64_512, "are given out on demand"),
            ("203.0.113.1", 1023, "nobody has that port"),
            ("203.0.113.2", 5000, "pool \"rest\" is not deterministic"),
            ("203.0.113.3", 5000, "is in no pool"),
            ("198.51.100.2", 80, "is served by 10.9.0.3, 10.9.0.4"),
        ] {
            match reverse(&settings(), ip(external), port, None) {
                Err(Unanswered::Nobody(sentence)) => assert!(sentence.contains(why), "{sentence}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
