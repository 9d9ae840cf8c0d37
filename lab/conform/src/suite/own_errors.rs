//! ICMP messages of the translator itself: RFC 1812 section 4.3, and the parts that RFC 5508
//! repeats.

use super::{Kind, Trial, one, several};
use crate::flow::{DATA, Transport::Udp};
use crate::packet::{MORE_FRAGMENTS, Packet, Received, describe, fill_header_checksum};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::arp::Mac;
use natgate_wire::icmp::kind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc5508#REQ-10a"], kind: Kind::Quick(one!(errors_and_echo)) },
    Trial {
        requirements: &[
            "rfc5508#section-7.2",
            "rfc1812#section-5.3.1-error",
            "rfc1812#section-5.2.7.3",
        ],
        kind: Kind::Quick(one!(time_exceeded_either_way)),
    },
    Trial {
        requirements: &["rfc1812#section-4.3.2.3", "rfc1812#section-4.3.2.3-identical"],
        kind: Kind::Quick(several!(quotation)),
    },
    Trial {
        requirements: &["rfc1812#section-4.3.2.4", "rfc1812#section-4.2.2.11-own-source"],
        kind: Kind::Quick(one!(source_address)),
    },
    Trial {
        requirements: &[
            "rfc1812#section-4.3.2.2",
            "rfc1812#section-4.2.2.3-own",
            "rfc4884#section-4-length",
        ],
        kind: Kind::Quick(several!(own_header)),
    },
    Trial {
        requirements: &[
            "rfc5508#REQ-10d",
            "rfc1812#section-4.3.2.5",
            "rfc1812#section-4.3.2.5-precedence",
        ],
        kind: Kind::Quick(several!(type_of_service)),
    },
    Trial {
        requirements: &[
            "rfc5508#REQ-10e",
            "rfc1812#section-4.3.2.7-error",
            "rfc1812#section-4.3.2.7-fragment",
            "rfc1812#section-4.3.2.7-broadcast",
            "rfc1812#section-4.3.2.7-link",
            "rfc1812#section-4.3.2.7-header",
        ],
        kind: Kind::Quick(several!(no_error_about)),
    },
    Trial {
        requirements: &["rfc5508#REQ-10f", "rfc1812#section-4.3.2.8"],
        kind: Kind::Alone(one!(rate_limited)),
    },
    Trial { requirements: &["rfc1812#section-4.3.3.1-network"], kind: Kind::Quick(one!(no_route)) },
    Trial {
        requirements: &[
            "rfc1812#section-4.3.3.1-host",
            "rfc1812#section-5.2.7.1",
            "rfc1812#section-5.2.7.1-host",
        ],
        kind: Kind::Quick(one!(no_neighbor)),
    },
    Trial {
        requirements: &[
            "rfc1812#section-4.3.3.6-echo",
            "rfc1812#section-4.3.3.6-source",
            "rfc1812#section-4.3.3.6-data",
            "rfc1812#section-4.3.2.5-reply",
            "rfc1812#section-4.2.2.9-local",
        ],
        kind: Kind::Quick(several!(echo_to_translator)),
    },
    Trial {
        requirements: &["rfc1812#section-4.3.3.6-reassemble", "rfc1812#section-4.2.2.8"],
        kind: Kind::Quick(one!(fragmented_echo_to_translator)),
    },
    Trial {
        requirements: &["rfc1812#section-4.3.3.6-options"],
        kind: Kind::Quick(one!(echo_with_option, &[7, 7, 4, 0, 0, 0, 0, 0], true)),
    },
    Trial {
        requirements: &["rfc1812#section-4.2.2.1-timestamp"],
        kind: Kind::Quick(one!(echo_with_option, &[68, 8, 5, 0, 0, 0, 0, 0], true)),
    },
    Trial {
        requirements: &["rfc1812#section-4.2.2.1-stream"],
        kind: Kind::Quick(one!(echo_with_option, &[136, 4, 0x56, 0x78], false)),
    },
    Trial { requirements: &["rfc1812#section-4.3.2.1"], kind: Kind::Quick(one!(unknown_type)) },
];

/// Sends a packet; returns the error that comes back to its inside host, if any.
async fn error_about(stage: &Stage, packet: &Packet) -> Option<Received> {
    stage.drain(Inside, packet.source);
    stage.send(Inside, packet);
    stage.take((Inside, packet.source), |came| came.error().is_some()).await
}

/// Sends a datagram whose time to live ends; returns the translator's error.
async fn time_exceeded(stage: &Stage, packet: Packet) -> Result<Received, Stop> {
    let packet = packet.ttl(1);
    match error_about(stage, &packet).await {
        Some(came) if came.error() == Some((11, 0)) => Ok(came),
        Some(came) => failed(format!("It was answered by {}.", describe(&came.bytes))),
        None => failed("A datagram with TTL 1 was not answered."),
    }
}

/// Checks the errors and the echo that need no further conditions.
async fn errors_and_echo(stage: &Stage) -> Finding {
    time_exceeded(stage, Udp.opening(stage.near(0), stage.far(0))).await?;
    if echo(stage, 64, 0, DATA).await.is_none() {
        return failed("An echo request to the translator was not answered.");
    }
    Ok("Time exceeded was made, and an echo request to the translator answered.".to_owned())
}

/// Checks both directions. The packet itself must not be forwarded.
async fn time_exceeded_either_way(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    time_exceeded(stage, Udp.opening(host, remote)).await?;
    if !stage.drain(Outside, *remote.ip()).is_empty() {
        return failed("A datagram that came with TTL 1 was forwarded.");
    }
    let external = stage.map(Udp, host, remote).await?;
    let back = Packet::udp(remote, external, DATA).ttl(1);
    stage.drain(Inside, *host.ip());
    stage.send(Outside, &back);
    let error = stage.take((Outside, *remote.ip()), |came| came.error() == Some((11, 0))).await;
    if error.is_none() {
        return failed("A datagram from outside that came with TTL 1 was not answered.");
    }
    if !stage.drain(Inside, *host.ip()).is_empty() {
        return failed("A datagram from outside that came with TTL 1 was forwarded.");
    }
    Ok("Datagrams with TTL 1 were dropped and answered with ICMP 11/0, in both directions."
        .to_owned())
}

/// Checks the length of the quoted packet and its content.
async fn quotation(stage: &Stage) -> [Finding; 2] {
    let long = Packet::udp(stage.near(0), stage.far(0), &[0x5a; 900]).identification(0x1357).ttl(1);
    let sent = long.bytes();
    let came = match time_exceeded(stage, long).await {
        Ok(came) => came,
        Err(stop) => return [Err(stop.clone()), Err(stop)],
    };
    let len = came.bytes.len();
    let much = match len {
        576 => Ok("The error is 576 bytes long.".to_owned()),
        570..576 => Ok(format!("The error is {len} bytes long: whole words of 576 at most.")),
        577.. => failed(format!("The error is {len} bytes long, more than 576.")),
        _ => {
            failed(format!("The error about a packet of {} bytes is only {len} long.", sent.len()))
        }
    };
    let quoted = came.quoted();
    let mut expected = sent[..quoted.len().min(sent.len())].to_vec();
    // The time to live may have been decreased before the error was found.
    if quoted.get(8) == Some(&0) {
        expected[8] = 0;
        fill_header_checksum(&mut expected);
    }
    let same = match quoted == expected {
        true => Ok(format!("Its {} quoted bytes are those that were sent.", quoted.len())),
        false => failed(format!("It quotes {} instead of {}.", describe(quoted), describe(&sent))),
    };
    [much, same]
}

/// Checks that the source is an address of the outgoing side.
async fn source_address(stage: &Stage) -> Finding {
    let came = time_exceeded(stage, Udp.opening(stage.near(0), stage.far(0))).await?;
    let (source, gateway) = (*came.source().ip(), stage.setup().inside_gateway);
    match source == gateway {
        true => Ok(format!("An error that left by the inside came from {gateway}.")),
        false => {
            failed(format!("An error that left by the inside came from {source}, not {gateway}."))
        }
    }
}

/// Checks the headers of an error.
async fn own_header(stage: &Stage) -> [Finding; 3] {
    let came = match time_exceeded(stage, Udp.opening(stage.near(0), stage.far(0))).await {
        Ok(came) => came,
        Err(stop) => return [Err(stop.clone()), Err(stop.clone()), Err(stop)],
    };
    let (ttl, sent) = (came.ip().ttl(), Udp.opening(stage.near(0), stage.far(0)).bytes().len());
    let told = format!("An error about a packet with TTL 1 had TTL {ttl}.");
    let quoted = came.quoted().len();
    let length = came.payload().get(5).copied().unwrap_or(0);
    [
        if ttl >= 30 { Ok(told) } else { failed(told) },
        match came.bytes[6] & 0x80 {
            0 => Ok("The reserved flag of an own packet was clear.".to_owned()),
            _ => failed("The reserved flag of an own packet was set."),
        },
        match (quoted > sent, length) {
            (false, 0) => {
                Ok("An error without an extension had a length attribute of 0.".to_owned())
            }
            (true, 1..) => {
                Ok(format!("An error with an extension had a length attribute of {length}."))
            }
            _ => failed(format!(
                "An error that quotes {quoted} of {sent} bytes had a length attribute of {length}."
            )),
        },
    ]
}

/// Checks the DS field and, as RFC 1812 names the bits, type of service and precedence.
async fn type_of_service(stage: &Stage) -> [Finding; 3] {
    const CAUSE: u8 = 0x48;
    let packet = Udp.opening(stage.near(0), stage.far(0)).tos(CAUSE);
    let tos = match time_exceeded(stage, packet).await {
        Ok(came) => came.bytes[1],
        Err(stop) => return [Err(stop.clone()), Err(stop.clone()), Err(stop)],
    };
    let told = format!("The cause had {CAUSE:#04x} in its second byte, the error {tos:#04x}.");
    let met = |yes: bool| if yes { Ok(told.clone()) } else { failed(told.clone()) };
    let copied = tos & 0xfc == CAUSE & 0xfc;
    let precedence = match (tos >> 5 >= 6, copied) {
        (false, true) => not_applicable(format!("{told} RFC 5508 REQ-10d asks for that instead.")),
        (yes, _) => met(yes),
    };
    [met(copied), met(tos & 0x1e == CAUSE & 0x1e), precedence]
}

/// Checks packets about which no error may be sent.
async fn no_error_about(stage: &Stage) -> [Finding; 6] {
    let (host, remote) = (stage.near(0), stage.far(0));
    // This error shows that silence is meaningful.
    if let Err(stop) = time_exceeded(stage, Udp.opening(host, remote)).await {
        return std::array::from_fn(|_| Err(stop.clone()));
    }
    // An error that would pass with a sufficient time to live.
    let answer = match stage.map(Udp, host, remote).await {
        Ok(external) => stage.inward(&Packet::udp(remote, external, DATA), *host.ip()).await,
        Err(stop) => return std::array::from_fn(|_| Err(stop.clone())),
    };
    let quoted = answer.map(|came| came.bytes).unwrap_or_default();
    let expiring = |packet: Packet| packet.ttl(1);
    let error = Packet::error(*host.ip(), *remote.ip(), (3, 3), &quoted);
    let later = Packet { fragment: MORE_FRAGMENTS | 10, ..Udp.opening(host, remote) };
    let to = |address: Ipv4Addr| Udp.opening(host, SocketAddrV4::new(address, remote.port()));
    let everybody = [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 251)];
    let silent = [
        silence(stage, "an ICMP error", &[expiring(error).bytes()]).await,
        silence(stage, "a later fragment", &[expiring(later).bytes()]).await,
        silence(stage, "what is for everybody", &everybody.map(|it| expiring(to(it)).bytes()))
            .await,
        link_broadcast(stage, &expiring(to(*remote.ip()))).await,
        silence(stage, "broken headers", &broken(&expiring(to(*remote.ip())))).await,
    ];
    let all = silent.iter().find(|finding| finding.is_err()).cloned();
    let all = all.unwrap_or_else(|| Ok("No error came about any of five such things.".to_owned()));
    let [error, fragment, broadcast, link, header] = silent;
    [all, error, fragment, broadcast, link, header]
}

/// Sends packets from inside that must cause no answer.
async fn silence(stage: &Stage, what: &str, packets: &[Vec<u8>]) -> Finding {
    let host = stage.inside(0);
    stage.drain(Inside, host);
    packets.iter().for_each(|packet| stage.send_bytes(Inside, packet));
    match stage.take((Inside, host), |came| came.error().is_some()).await {
        None => Ok(format!("No error came about {what}.")),
        Some(came) => failed(format!("About {what} came {}.", describe(&came.bytes))),
    }
}

async fn link_broadcast(stage: &Stage, packet: &Packet) -> Finding {
    let host = stage.inside(0);
    stage.drain(Inside, host);
    stage.send_frame(Inside, Mac::BROADCAST, &packet.bytes());
    match stage.take((Inside, host), |came| came.error().is_some()).await {
        None => Ok("No error came about a link-layer broadcast.".to_owned()),
        Some(came) => {
            failed(format!("About a link-layer broadcast came {}.", describe(&came.bytes)))
        }
    }
}

/// The packet with each part of its header damaged that RFC 1812 section 5.2.2 checks.
pub(super) fn broken(packet: &Packet) -> [Vec<u8>; 4] {
    let with = |change: &dyn Fn(&mut Vec<u8>), fill: bool| {
        let mut bytes = packet.bytes();
        change(&mut bytes);
        if fill {
            fill_header_checksum(&mut bytes);
        }
        bytes
    };
    [
        with(&|bytes| bytes[10] ^= 0x10, false),
        with(&|bytes| bytes[0] = 0x65, true),
        with(&|bytes| bytes[0] = 0x44, true),
        with(&|bytes| bytes[2..4].copy_from_slice(&[0, 19]), true),
    ]
}

/// Checks that a burst causes fewer errors than packets.
async fn rate_limited(stage: &Stage) -> Finding {
    const CAUSES: usize = 2000;
    let (host, remote) = (stage.near(0), stage.far(0));
    for _ in 0..CAUSES {
        stage.send(Inside, &Udp.opening(host, remote).ttl(1));
    }
    stage.rest(stage.transit() * 2).await;
    let errors =
        stage.drain(Inside, *host.ip()).iter().filter(|came| came.error().is_some()).count();
    match errors {
        0 => failed(format!("{CAUSES} datagrams with TTL 1 at once were not answered at all.")),
        _ if errors * 10 < CAUSES * 9 => {
            Ok(format!("{CAUSES} datagrams with TTL 1 at once were answered by {errors} errors."))
        }
        _ => failed(format!(
            "{CAUSES} datagrams with TTL 1 at once were answered by {errors} errors."
        )),
    }
}

async fn no_route(stage: &Stage) -> Finding {
    if stage.setup().outside_gateway.is_some() {
        return not_applicable("The translator has a router for all destinations.");
    }
    let nowhere = SocketAddrV4::new(Ipv4Addr::new(192, 88, 99, 77), stage.port());
    match error_about(stage, &Udp.opening(stage.near(0), nowhere)).await.map(|came| came.error()) {
        Some(Some((3, 0 | 6))) => {
            Ok(format!("A datagram to {nowhere} was answered with network unreachable."))
        }
        Some(Some((3, code))) => failed(format!("It was answered with ICMP 3/{code}.")),
        _ => failed(format!(
            "A datagram to {nowhere}, where there is no route to, was not answered."
        )),
    }
}

async fn no_neighbor(stage: &Stage) -> Finding {
    const PATIENCE: Duration = Duration::from_secs(6);
    let Some(nobody) = stage.setup().nobody else {
        return not_applicable("All outside destinations are behind a router.");
    };
    let host = stage.near(0);
    stage.send(Inside, &Udp.opening(host, SocketAddrV4::new(nobody, stage.port())));
    let end = stage.now() + PATIENCE;
    let at = (Inside, *host.ip());
    match stage.take_until(end, at, |came| came.error().is_some()).await {
        Some(came) if came.error() == Some((3, 1)) => {
            let embedded = describe(came.quoted());
            match came.quoted().get(12..16) == Some(&host.ip().octets()) {
                true => Ok(format!(
                    "A datagram to {nobody}, who is not there, was answered with host unreachable."
                )),
                false => failed(format!("Host unreachable came, but about {embedded}.")),
            }
        }
        Some(came) => failed(format!("It was answered by {}.", describe(&came.bytes))),
        None => {
            failed(format!("A datagram to {nobody}, who is not there, was not answered for 6 s."))
        }
    }
}

/// Pings the translator itself.
async fn echo(stage: &Stage, ttl: u8, tos: u8, data: &[u8]) -> Option<Received> {
    let (host, gateway) = (stage.near(0), stage.setup().inside_gateway);
    let request = Packet::query(kind::ECHO_REQUEST, *host.ip(), gateway, host.port(), data);
    stage.send(Inside, &request.ttl(ttl).tos(tos));
    let is_reply = |came: &Received| {
        came.icmp()
            .is_some_and(|icmp| icmp.kind() == kind::ECHO_REPLY && icmp.identifier() == host.port())
    };
    stage.take((Inside, *host.ip()), is_reply).await
}

async fn echo_to_translator(stage: &Stage) -> [Finding; 5] {
    const DATA_LEN: usize = 500;
    const TOS: u8 = 0xa8;
    let data: Vec<u8> = (0..DATA_LEN).map(|n| n as u8).collect();
    let Some(came) = echo(stage, 64, TOS, &data).await else {
        let why = "An echo request to the translator's inside address was not answered.";
        return std::array::from_fn(|_| failed(why));
    };
    let source = *came.source().ip();
    let met = |yes: bool, good: String, bad: String| if yes { Ok(good) } else { failed(bad) };
    let tos = came.bytes[1];
    let expiring = echo(stage, 1, 0, &data).await.is_some();
    [
        Ok("An echo request to the translator's inside address was answered.".to_owned()),
        met(
            source == stage.setup().inside_gateway,
            format!("The reply came from {source}, which was asked."),
            format!("The reply came from {source}, which was not asked."),
        ),
        met(
            came.data() == data && came.valid(),
            format!("The reply has the request's {DATA_LEN} bytes."),
            "The reply has not the request's data, or a wrong checksum.".to_owned(),
        ),
        met(
            tos == TOS,
            format!("Request and reply both have type of service {tos:#04x}."),
            format!("The request has type of service {TOS:#04x}, the reply {tos:#04x}."),
        ),
        met(
            expiring,
            "An echo request with TTL 1 was answered.".to_owned(),
            "An echo request with TTL 1 to the translator itself was not answered.".to_owned(),
        ),
    ]
}

async fn fragmented_echo_to_translator(stage: &Stage) -> Finding {
    let (host, gateway) = (stage.near(0), stage.setup().inside_gateway);
    let request = Packet::query(kind::ECHO_REQUEST, *host.ip(), gateway, host.port(), &[0x3c; 600]);
    for fragment in request.identification(0x2468).fragments(400) {
        stage.send(Inside, &fragment);
    }
    match stage.take((Inside, *host.ip()), |came| came.error().is_none()).await {
        Some(_) => {
            Ok("An echo request in two fragments to the translator was answered.".to_owned())
        }
        None => failed("An echo request in two fragments to the translator was not answered."),
    }
}

/// Checks that the reply continues an option of the request, where it must.
async fn echo_with_option(stage: &Stage, option: &[u8], written: bool) -> Finding {
    let (host, gateway) = (stage.near(0), stage.setup().inside_gateway);
    let request = Packet::query(kind::ECHO_REQUEST, *host.ip(), gateway, host.port(), DATA);
    stage.send(Inside, &request.options(option));
    let is_reply =
        |came: &Received| came.icmp().is_some_and(|icmp| icmp.kind() == kind::ECHO_REPLY);
    let Some(came) = stage.take((Inside, *host.ip()), is_reply).await else {
        return failed(format!("An echo request with option {} was not answered.", option[0]));
    };
    let came = came.ip().options().to_vec();
    let continued = came.first() == Some(&option[0]) && came.get(2) > Some(&option[2]);
    match (written, continued) {
        (false, _) => Ok(format!("An echo request with option {} was answered.", option[0])),
        (true, true) => Ok(format!("The reply continues option {} of the request.", option[0])),
        (true, false) => {
            failed(format!("The reply does not continue option {} of the request.", option[0]))
        }
    }
}

async fn unknown_type(stage: &Stage) -> Finding {
    let (host, gateway) = (stage.near(0), stage.setup().inside_gateway);
    stage.send(Inside, &Packet::icmp(*host.ip(), gateway, 99, 0, [0; 4], DATA));
    match stage.take((Inside, *host.ip()), |_| true).await {
        None => Ok("An ICMP message of type 99 to the translator was dropped silently.".to_owned()),
        Some(came) => failed(format!("It was answered by {}.", describe(&came.bytes))),
    }
}
