//! Requirements of RFC 1812 on forwarding: headers, time to live, addresses, options.

use super::own_errors::broken;
use super::{Kind, Trial, one, several};
use crate::flow::{
    DATA,
    Transport::{self, Udp},
};
use crate::packet::{Packet, describe, fill_header_checksum};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::arp::Mac;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &[
            "rfc1812#section-5.2.2",
            "rfc1812#section-4.2.2.5-verify",
            "rfc1812#section-5.2.2-truncated",
        ],
        kind: Kind::Quick(several!(header_validation)),
    },
    Trial {
        requirements: &[
            "rfc1812#section-5.3.1-decrement",
            "rfc1812#section-5.3.1-predict",
            "rfc1812#section-4.2.2.9-zero",
        ],
        kind: Kind::Quick(several!(time_to_live)),
    },
    Trial {
        requirements: &["rfc1812#section-4.2.2.3-received", "rfc1812#section-5.2.5"],
        kind: Kind::Quick(one!(reserved_bits)),
    },
    Trial {
        requirements: &["rfc1812#section-5.3.3.3-accept", "rfc1812#section-5.3.3.3-unchanged"],
        kind: Kind::Quick(one!(precedence)),
    },
    Trial {
        requirements: &["rfc1812#section-4.2.2.6", "rfc1812#section-5.3.13.1"],
        kind: Kind::Quick(one!(options_pass, &UNKNOWN_OPTION)),
    },
    Trial {
        requirements: &["rfc1812#section-5.3.13.3"],
        kind: Kind::Quick(one!(options_pass, &STREAM_IDENTIFIER)),
    },
    Trial {
        requirements: &["rfc1812#section-5.3.13.5"],
        kind: Kind::Quick(one!(options_written, &RECORD_ROUTE)),
    },
    Trial {
        requirements: &["rfc1812#section-5.3.13.6"],
        kind: Kind::Quick(one!(options_written, &TIMESTAMP)),
    },
    Trial { requirements: &["rfc5508#section-7.3"], kind: Kind::Quick(one!(source_routes)) },
    Trial {
        requirements: &["rfc1812#section-5.3.4-forward", "rfc1812#section-5.3.4-discard"],
        kind: Kind::Quick(one!(link_broadcasts)),
    },
    Trial {
        requirements: &["rfc1812#section-5.3.5.1"],
        kind: Kind::Quick(one!(limited_broadcast)),
    },
    Trial {
        requirements: &[
            "rfc1812#section-5.3.7-source",
            "rfc1812#section-4.2.2.11-zero",
            "rfc1812#section-4.2.2.11-broadcast",
            "rfc1812#section-4.2.2.11-loopback",
        ],
        kind: Kind::Quick(one!(martian_sources)),
    },
    Trial {
        requirements: &["rfc1812#section-5.3.7-destination"],
        kind: Kind::Quick(one!(martian_destinations)),
    },
];

/// Option for experiments (RFC 4727), not copied into fragments.
const UNKNOWN_OPTION: [u8; 4] = [94, 4, 0x12, 0x34];
const STREAM_IDENTIFIER: [u8; 4] = [136, 4, 0x56, 0x78];
const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 0];
const TIMESTAMP: [u8; 8] = [68, 8, 5, 0, 0, 0, 0, 0];

/// Returns true if bytes sent from inside cause a packet to an outside host.
async fn leaves(stage: &Stage, bytes: &[u8], remote: Ipv4Addr) -> bool {
    stage.drain(Outside, remote);
    stage.send_bytes(Inside, bytes);
    stage.take((Outside, remote), |_| true).await.is_some()
}

/// Checks that packets with damaged headers are neither forwarded nor reported.
async fn header_validation(stage: &Stage) -> [Finding; 3] {
    let (host, remote) = (stage.near(0), stage.far(0));
    let packet = Udp.opening(host, remote);
    if let Err(stop) = stage.map(Udp, host, remote).await {
        return [Err(stop.clone()), Err(stop.clone()), Err(stop)];
    }
    let names = ["a wrong checksum", "version 6", "a header of 16 bytes", "a total length of 19"];
    let mut findings = Vec::new();
    for (name, bytes) in names.iter().zip(broken(&packet)) {
        findings.push(match leaves(stage, &bytes, *remote.ip()).await {
            true => failed(format!("A packet with {name} was forwarded.")),
            false => Ok(format!("A packet with {name} was dropped.")),
        });
    }
    let mut cut = packet.bytes();
    cut.truncate(30);
    let truncated = match leaves(stage, &cut, *remote.ip()).await {
        true => failed("A packet with fewer bytes than its total length was forwarded."),
        false => Ok("A packet with fewer bytes than its total length was dropped.".to_owned()),
    };
    let checksum = findings[0].clone();
    let spoken_of = stage.drain(Inside, *host.ip()).iter().any(|came| came.error().is_some());
    let first = findings.into_iter().find(Result::is_err);
    let all = match (first, spoken_of) {
        (Some(failure), _) => failure,
        (None, true) => failed("Broken headers were dropped, but not silently."),
        (None, false) => Ok(format!("Packets with {} were dropped silently.", names.join(", "))),
    };
    [all, checksum, truncated]
}

/// Checks that the time to live decreases by one in each direction.
async fn time_to_live(stage: &Stage) -> [Finding; 3] {
    match time_to_live_seen(stage).await {
        Err(stop) => [Err(stop.clone()), Err(stop.clone()), Err(stop)],
        Ok(seen) => {
            let down = seen.iter().all(|(sent, came)| sent > came);
            let list: Vec<_> =
                seen.iter().map(|(sent, came)| format!("{sent} became {came}")).collect();
            let list = list.join(", ");
            [
                if down { Ok(format!("TTL {list}.")) } else { failed(format!("TTL {list}.")) },
                Ok("Packets with TTL 2 were forwarded.".to_owned()),
                match seen.iter().any(|(_, came)| *came == 0) {
                    true => failed("A packet left with TTL 0."),
                    false => Ok("No packet left with TTL 0.".to_owned()),
                },
            ]
        }
    }
}

async fn time_to_live_seen(stage: &Stage) -> Result<Vec<(u8, u8)>, Stop> {
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(Udp, host, remote).await?;
    let mut seen = Vec::new();
    for ttl in [2, 64, 255] {
        let Some(out) = stage.outward(&Udp.opening(host, remote).ttl(ttl)).await else {
            return failed(format!("A packet with TTL {ttl} did not come out."));
        };
        let back = Packet::udp(remote, external, DATA).ttl(ttl);
        let Some(back) = stage.inward(&back, *host.ip()).await else {
            return failed(format!("A packet with TTL {ttl} did not come in."));
        };
        seen.extend([(ttl, out.ip().ttl()), (ttl, back.ip().ttl())]);
    }
    Ok(seen)
}

/// Checks the reserved flag.
async fn reserved_bits(stage: &Stage) -> Finding {
    const RESERVED: u16 = 0x8000;
    let mut packet = Udp.opening(stage.near(0), stage.far(0));
    packet.fragment = RESERVED;
    match stage.outward(&packet).await {
        None => failed("A packet with the reserved flag set was dropped."),
        Some(came) if came.bytes[6] & 0x80 == 0 => failed("The reserved flag was cleared."),
        Some(_) => Ok("A packet with the reserved flag set passed with it.".to_owned()),
    }
}

async fn precedence(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    for precedence in 0..8u8 {
        let tos = precedence << 5;
        match stage.outward(&Udp.opening(host, remote).tos(tos)).await {
            None => return failed(format!("A packet of precedence {precedence} was dropped.")),
            Some(came) if came.bytes[1] != tos => {
                return failed(format!("Precedence {precedence} became {:#04x}.", came.bytes[1]));
            }
            Some(_) => {}
        }
    }
    Ok("Packets of all eight precedences passed with them.".to_owned())
}

async fn options_pass(stage: &Stage, options: &[u8]) -> Finding {
    let packet = Udp.opening(stage.near(0), stage.far(0)).options(options);
    match stage.outward(&packet).await {
        None => failed(format!("A packet with option {} was dropped.", options[0])),
        Some(came) if came.ip().options() != options => {
            failed(format!("Option {} was altered or taken off.", options[0]))
        }
        Some(_) => Ok(format!("A packet with option {} passed with it.", options[0])),
    }
}

/// Checks that a router writes into an option.
async fn options_written(stage: &Stage, options: &[u8]) -> Finding {
    let packet = Udp.opening(stage.near(0), stage.far(0)).options(options);
    match stage.outward(&packet).await {
        None => failed(format!("A packet with option {} was dropped.", options[0])),
        Some(came) if came.ip().options().get(2) == Some(&options[2]) => {
            failed(format!("Nothing was written into option {}.", options[0]))
        }
        Some(_) => Ok(format!("Something was written into option {}.", options[0])),
    }
}

/// Checks that no ICMP message reveals internal addresses by a source route, in its own header or
/// in the embedded one.
async fn source_routes(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    let [a, b, c, d] = host.ip().octets();
    let route = [131, 7, 8, a, b, c, d, 0];
    let outer = Transport::Echo.opening(host, remote).options(&route);
    let came = stage.outward(&outer).await;
    if came.is_some_and(|came| came.ip().options().starts_with(&route[..7])) {
        return failed("An echo request left with a source route that names its sender.");
    }
    let external = stage.map(Udp, host, remote).await?;
    let Some(arrived) = stage.inward(&Packet::udp(remote, external, DATA), *host.ip()).await else {
        return failed("An answer did not come in.");
    };
    let mut quoted = [&arrived.bytes[..20], &route, arrived.payload()].concat();
    quoted[0] = 0x47;
    let len = quoted.len() as u16;
    quoted[2..4].copy_from_slice(&len.to_be_bytes());
    fill_header_checksum(&mut quoted);
    let error = Packet::error(*host.ip(), *remote.ip(), (3, 3), &quoted);
    match stage.outward(&error).await {
        Some(came) if came.quoted().get(20..27) == Some(&route[..7]) => {
            failed("An ICMP error left with a source route in its embedded packet.")
        }
        _ => Ok("Neither an echo request with a source route nor an error that embeds one left \
             with it."
            .to_owned()),
    }
}

async fn link_broadcasts(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    stage.map(Udp, host, remote).await?;
    let multicast = Mac([1, 0, 0x5e, 0, 0, 0x63]);
    for to in [Mac::BROADCAST, multicast] {
        stage.drain(Outside, *remote.ip());
        stage.send_frame(Inside, to, &Udp.opening(host, remote).bytes());
        if stage.take((Outside, *remote.ip()), |_| true).await.is_some() {
            return failed(format!("A packet that came in a frame to {to} was forwarded."));
        }
    }
    match stage.drain(Inside, *host.ip()).iter().find(|came| came.error().is_some()) {
        Some(came) => failed(format!("It was answered by {}.", describe(&came.bytes))),
        None => Ok("Packets in frames to everybody and to many were dropped silently.".to_owned()),
    }
}

/// Visible only where packets to the broadcast address would come out.
async fn limited_broadcast(stage: &Stage) -> Finding {
    let (host, port) = (stage.near(0), stage.port());
    stage.watch_everybody();
    let packet = Udp.opening(host, SocketAddrV4::new(Ipv4Addr::BROADCAST, port));
    stage.drain(Outside, Ipv4Addr::BROADCAST);
    stage.send(Inside, &packet);
    match stage.take((Outside, Ipv4Addr::BROADCAST), |came| came.destination().port() == port).await
    {
        Some(_) => failed("A packet to 255.255.255.255 was forwarded."),
        None => Ok("A packet to 255.255.255.255 did not come out.".to_owned()),
    }
}

async fn martian_sources(stage: &Stage) -> Finding {
    let remote = stage.far(0);
    stage.map(Udp, stage.near(0), remote).await?;
    let sources: [[u8; 4]; 7] = [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [127, 9, 9, 9],
        [224, 0, 0, 5],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
    ];
    for source in sources.map(Ipv4Addr::from) {
        let packet = Udp.opening(SocketAddrV4::new(source, stage.port()), remote);
        if leaves(stage, &packet.bytes(), *remote.ip()).await {
            return failed(format!("A packet from {source} was forwarded."));
        }
    }
    Ok("Packets from network 0, loopback, multicast, class E and broadcast addresses were dropped."
        .to_owned())
}

/// Checks invalid destinations for which the suite's outside would receive packets.
async fn martian_destinations(stage: &Stage) -> Finding {
    if stage.setup().outside_gateway.is_none() {
        return not_applicable(
            "Without a router outside, nothing would be sent to such addresses anyway.",
        );
    }
    let host = stage.near(0);
    stage.watch_everybody();
    for to in [[0, 1, 2, 3], [127, 9, 9, 9], [224, 0, 0, 5], [240, 0, 0, 1]].map(Ipv4Addr::from) {
        let packet = Udp.opening(host, SocketAddrV4::new(to, stage.port()));
        stage.drain(Outside, to);
        stage.send(Inside, &packet);
        if stage.take((Outside, to), |_| true).await.is_some() {
            return failed(format!("A packet to {to} was forwarded."));
        }
    }
    Ok("Packets to network 0, loopback, multicast and class E addresses were dropped.".to_owned())
}
