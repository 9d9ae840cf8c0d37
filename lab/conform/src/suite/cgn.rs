//! RFC 6888: requirements on translators with many subscribers.

use super::mapping::{self, Behavior};
use super::{Kind, Trial, one, several};
use crate::flow::{
    DATA,
    Transport::{Tcp, Udp},
};
use crate::packet::{Packet, Received, describe};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{Inside, Outside};
use std::net::SocketAddrV4;
use std::time::Duration;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &[
            "rfc6888#REQ-4",
            "rfc6888#REQ-11a",
            "rfc6888#REQ-11b",
            "rfc6888#REQ-11d",
            "rfc5508#REQ-8",
        ],
        kind: Kind::Alone(several!(quota)),
    },
    Trial {
        requirements: &["rfc6888#REQ-4c", "rfc6888#REQ-5b"],
        kind: Kind::Alone(one!(creation_rate)),
    },
    Trial {
        requirements: &["rfc6888#REQ-5", "rfc5508#REQ-8-session"],
        kind: Kind::Alone(several!(sessions_limited)),
    },
    Trial { requirements: &["rfc6888#REQ-6"], kind: Kind::Quick(one!(untranslated)) },
    Trial { requirements: &["rfc6888#REQ-7"], kind: Kind::Quick(one!(independent_filtering)) },
    Trial { requirements: &["rfc6888#REQ-9"], kind: Kind::Quick(one!(port_control)) },
];

/// Number of tried mappings without a known quota: more than any subscriber's share of a carrier's
/// address.
const ENOUGH: u32 = 2500;

/// Pause between new mappings, so that rate limits have no effect.
const PACE: Duration = Duration::from_micros(2500);

/// Result of requests beyond the quota.
struct Refusal {
    /// Mappings made before.
    made: u32,
    /// Received ICMP error, if any.
    error: Option<Received>,
}

/// Makes mappings of one host until one is refused; `None` if none was refused.
async fn exhaust(
    stage: &Stage,
    most: u32,
    pace: Duration,
    ports: &mut dyn FnMut() -> (SocketAddrV4, SocketAddrV4),
) -> Option<Refusal> {
    for made in 0..most {
        let (from, to) = ports();
        stage.drain(Inside, *from.ip());
        if stage.outward(&Udp.opening(from, to)).await.is_none() {
            let error = stage.take((Inside, *from.ip()), |came| came.error().is_some()).await;
            return Some(Refusal { made, error });
        }
        if !pace.is_zero() {
            stage.rest(pace).await;
        }
    }
    None
}

/// Requests more mappings than a subscriber may have.
async fn quota(stage: &Stage) -> [Finding; 5] {
    match quota_met(stage).await {
        Ok(findings) => findings,
        Err(stop) => std::array::from_fn(|_| Err(stop.clone())),
    }
}

async fn quota_met(stage: &Stage) -> Result<[Finding; 5], Stop> {
    let (host, remote) = (stage.inside(0), stage.far(0));
    let told = stage.options().quota;
    let most = told.map_or(ENOUGH, |quota| quota + quota / 8 + 8);
    let first = SocketAddrV4::new(host, 1100);
    let external = stage.map(Udp, first, remote).await?;
    let mut next = 1100;
    let mut ports = || {
        next += 1;
        (SocketAddrV4::new(host, next), remote)
    };
    let Some(refusal) = exhaust(stage, most, PACE, &mut ports).await else {
        let why = format!("One host made {most} UDP mappings, and none was refused");
        return match told {
            Some(quota) => failed(format!("{why}; its quota was said to be {quota}.")),
            None => not_applicable(format!("{why}: no limit was met, and none was named.")),
        };
    };
    let made = refusal.made + 1;
    let limited = Ok(format!("One host made {made} UDP mappings; the next was refused."));
    let what = refusal.error.as_ref().map(|error| describe(&error.bytes));
    let code = refusal.error.as_ref().and_then(Received::error);
    let told = what.map_or("The sender was not told.".to_owned(), |what| {
        format!("The sender was told by {what}.")
    });
    let unreachable = if code == Some((3, 1)) { Ok(told.clone()) } else { failed(told.clone()) };
    // RFC 6888 REQ-11 requires code 1, and RFC 5508 required 13.
    let either = if matches!(code, Some((3, 1 | 13))) { Ok(told) } else { failed(told) };
    let kept = match stage.answers(Udp, remote, external, first).await {
        true => Ok("The first of its mappings served as before.".to_owned()),
        false => failed("The first of its mappings did not serve any more."),
    };
    let dropped = Ok("The packet that would have made one more did not come out.".to_owned());
    Ok([limited, dropped, unreachable, kept, either])
}

/// Makes many new mappings at once.
async fn creation_rate(stage: &Stage) -> Finding {
    const BURST: u32 = 1200;
    let (host, remote) = (stage.inside(0), stage.far(0));
    let first = stage.map(Udp, SocketAddrV4::new(host, 5000), remote).await?;
    for port in 0..BURST as u16 {
        stage.send(Inside, &Udp.opening(SocketAddrV4::new(host, 5001 + port), remote));
    }
    stage.rest(stage.transit() * 2).await;
    let came = stage.drain(Outside, *remote.ip());
    let passed = came.iter().filter(|came| came.source().ip() == first.ip()).count();
    match passed as u32 {
        BURST.. => {
            not_applicable(format!("All of {BURST} mappings at once were made: no limit was met."))
        }
        _ => Ok(format!("Of {BURST} mappings at once, {passed} were made.")),
    }
}

/// Sends from one internal endpoint to more and more remote endpoints; also checks the error to the
/// host at the limit.
async fn sessions_limited(stage: &Stage) -> [Finding; 2] {
    const MOST: u32 = 1000;
    let (host, remote) = (stage.near(0), stage.outside(0));
    let mut next = 30_000;
    let mut ports = || {
        next += 1;
        (host, SocketAddrV4::new(remote, next))
    };
    let Some(refusal) = exhaust(stage, MOST, PACE, &mut ports).await else {
        let why = format!("One endpoint had {MOST} sessions: no limit was met.");
        return [not_applicable(&*why), not_applicable(&*why)];
    };
    let limited = format!("One endpoint had {} sessions; the next was refused.", refusal.made);
    let told = match refusal.error.as_ref().map(|error| (error.error(), describe(&error.bytes))) {
        Some((Some((3, 1 | 13)), what)) => Ok(format!("Its host was told by {what}.")),
        Some((_, what)) => failed(format!("Its host was told by {what}.")),
        None => failed("Its host was not told."),
    };
    [Ok(limited), told]
}

/// Checks a destination with a configured bypass.
async fn untranslated(stage: &Stage) -> Finding {
    let Some(address) = stage.setup().untranslated else {
        return not_applicable("No destination was named to which packets pass untranslated.");
    };
    let (host, remote) = (stage.near(0), SocketAddrV4::new(address, stage.port()));
    let Some(came) = stage.outward(&Udp.opening(host, remote)).await else {
        return failed(format!("A datagram to {remote} did not come out."));
    };
    if came.source() != host {
        return failed(format!("A datagram to {remote} came out from {}.", came.source()));
    }
    match stage.inward(&Packet::udp(remote, host, DATA), *host.ip()).await {
        Some(_) => Ok(format!("Datagrams to and from {remote} passed untranslated.")),
        None => failed(format!("The answer from {remote} to {host} did not come in.")),
    }
}

async fn independent_filtering(stage: &Stage) -> Finding {
    for transport in [Udp, Tcp] {
        let behavior = mapping::filtering(stage, transport).await?;
        if behavior != Behavior::EndpointIndependent {
            let (name, transport) = (behavior.name(), transport.name());
            return failed(format!("Filtering for {transport} is {name}."));
        }
    }
    Ok("Filtering is endpoint-independent for UDP and TCP.".to_owned())
}

/// Requests a mapping by PCP (RFC 6887), then by its predecessor.
async fn port_control(stage: &Stage) -> Finding {
    const PORT: u16 = 5351;
    let host = stage.near(0);
    let gateway = SocketAddrV4::new(stage.setup().inside_gateway, PORT);
    let mut map = vec![2, 1, 0, 0, 0, 0, 0, 120];
    map.extend(host.ip().to_ipv6_mapped().octets());
    map.extend(*b"natgate conf");
    map.extend([17, 0, 0, 0]);
    map.extend(host.port().to_be_bytes());
    map.extend([0; 2]);
    map.extend(std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
    for (name, request) in [("PCP", &map[..]), ("NAT-PMP", &[0, 0])] {
        stage.send(Inside, &Packet::udp(host, gateway, request));
        let is_answer = |came: &Received| came.source() == gateway;
        let Some(came) = stage.take((Inside, *host.ip()), is_answer).await else { continue };
        // Response bit, with the version of the request.
        if came.data().first() == request.first()
            && came.data().get(1).is_some_and(|it| it & 0x80 != 0)
        {
            return Ok(format!("The translator answered by {name}."));
        }
    }
    failed(format!("Nobody answered PCP or NAT-PMP at {gateway}."))
}
