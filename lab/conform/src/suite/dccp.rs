//! RFC 5597: DCCP without its timers. The requirements do not apply to a translator that passes no
//! DCCP.

use super::{Kind, Trial, mapping, one, several, tcp};
use crate::flow::{DATA, Transport::Dccp};
use crate::packet::{Packet, Received, dccp, describe};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{self, Inside, Outside};
use std::net::SocketAddrV4;

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc5597#REQ-1"], kind: Kind::Quick(one!(independent_mapping)) },
    Trial { requirements: &["rfc5597#REQ-2"], kind: Kind::Quick(one!(valid_sequences)) },
    Trial { requirements: &["rfc5597#REQ-2-simultaneous"], kind: Kind::Quick(one!(listening)) },
    Trial { requirements: &["rfc5597#REQ-3"], kind: Kind::Quick(one!(filtering)) },
    Trial {
        requirements: &["rfc5597#REQ-4", "rfc5597#REQ-4-outbound", "rfc5597#REQ-4-answer"],
        kind: Kind::Quick(several!(uninvited)),
    },
    Trial {
        requirements: &["rfc5597#REQ-6", "rfc5597#REQ-11", "rfc5597#REQ-12", "rfc5597#REQ-13"],
        kind: Kind::Quick(several!(contents)),
    },
    Trial { requirements: &["rfc5597#REQ-7"], kind: Kind::Quick(one!(not_overloaded)) },
    Trial { requirements: &["rfc5597#REQ-8"], kind: Kind::Quick(one!(hairpin)) },
    Trial { requirements: &["rfc5597#REQ-9"], kind: Kind::Quick(one!(errors_pass)) },
    Trial { requirements: &["rfc5597#REQ-10"], kind: Kind::Quick(one!(errors_end_nothing)) },
];

/// Sends a DCCP request; returns its external endpoint if it passes.
pub(super) async fn translated(stage: &Stage) -> Result<SocketAddrV4, Stop> {
    match stage.outward(&Dccp.opening(stage.near(2), stage.far(2))).await {
        Some(came) => Ok(came.source()),
        None => not_applicable("No DCCP passes this translator."),
    }
}

async fn independent_mapping(stage: &Stage) -> Finding {
    translated(stage).await?;
    mapping::endpoint_independent(stage, Dccp).await
}

async fn not_overloaded(stage: &Stage) -> Finding {
    translated(stage).await?;
    mapping::not_overloaded(stage, Dccp).await
}

async fn filtering(stage: &Stage) -> Finding {
    translated(stage).await?;
    mapping::filtering_recommended(stage, Dccp).await
}

async fn hairpin(stage: &Stage) -> Finding {
    translated(stage).await?;
    let [works, source] = mapping::hairpin(stage, Dccp).await;
    Ok(format!("{} {}", works?, source?))
}

async fn uninvited(stage: &Stage) -> [Finding; 3] {
    match translated(stage).await {
        Ok(_) => tcp::uninvited(stage, Dccp).await,
        Err(stop) => [Err(stop.clone()), Err(stop.clone()), Err(stop)],
    }
}

/// Sends one packet of a connection, which must arrive.
async fn step(
    stage: &Stage,
    (from, kind): (Side, u8),
    [host, remote, external]: [SocketAddrV4; 3],
) -> Result<(), Stop> {
    let packet = match from {
        Inside => Packet::dccp(host, remote, kind, DATA),
        Outside => Packet::dccp(remote, external, kind, DATA),
    };
    let came = match from {
        Inside => stage.outward(&packet).await.filter(|came| came.source() == external),
        Outside => {
            stage.inward(&packet, *host.ip()).await.filter(|came| came.destination() == host)
        }
    };
    match came.is_some_and(|came| came.valid()) {
        true => Ok(()),
        false => failed(format!(
            "{} did not arrive, or not as the connection's.",
            describe(&packet.bytes())
        )),
    }
}

/// Checks handshake, data, and all ways to end a connection.
async fn valid_sequences(stage: &Stage) -> Finding {
    use dccp::{ACK, CLOSE, DATA_ACK, RESET, RESPONSE};
    translated(stage).await?;
    for closer in [Inside, Outside] {
        let (host, remote) = (stage.near(0), stage.far(0));
        let external = stage.map(Dccp, host, remote).await?;
        let steps = [
            (Outside, RESPONSE),
            (Inside, ACK),
            (Inside, DATA_ACK),
            (Outside, DATA_ACK),
            (closer, CLOSE),
            (closer.other(), RESET),
        ];
        for one in steps {
            step(stage, one, [host, remote, external]).await?;
        }
    }
    Ok("Connections that either side closed: every packet passed, translated.".to_owned())
}

/// The inside listens for one remote endpoint, which then sends a request (RFC 5596).
async fn listening(stage: &Stage) -> Finding {
    translated(stage).await?;
    let (host, remote) = (stage.near(0), stage.far(0));
    let listen = Packet::dccp(host, remote, dccp::LISTEN, b"");
    let Some(came) = stage.outward(&listen).await else {
        return failed("A DCCP-Listen from inside did not come out.");
    };
    let external = came.source();
    for one in [
        (Outside, dccp::REQUEST),
        (Inside, dccp::RESPONSE),
        (Outside, dccp::ACK),
        (Inside, dccp::DATA_ACK),
    ] {
        step(stage, one, [host, remote, external]).await?;
    }
    Ok("A DCCP-Listen from inside let the remote end open the connection.".to_owned())
}

/// Checks fields that must stay unchanged, and the checksum that must change.
async fn contents(stage: &Stage) -> [Finding; 4] {
    match request_seen(stage).await {
        Err(stop) => std::array::from_fn(|_| Err(stop.clone())),
        Ok((sent, came)) => {
            let same =
                |what: &str, range: std::ops::Range<usize>| match came.payload().get(range.clone())
                    == sent.payload.get(range)
                {
                    true => Ok(format!("{what} stayed as it was.")),
                    false => failed(format!("{what} was altered.")),
                };
            let header = usize::from(sent.payload[4]) * 4;
            let checksum = match came.valid() {
                true => {
                    Ok("The checksum, which covers the header only, was right after translation."
                        .to_owned())
                }
                false => failed(
                    "The checksum, which covers the header only, was wrong after translation.",
                ),
            };
            [
                same("What the packet carries", header..sent.payload.len()),
                checksum,
                same("The checksum coverage", 5..6),
                same("The service code", dccp::HEADER_LEN..dccp::HEADER_LEN + 4),
            ]
        }
    }
}

async fn request_seen(stage: &Stage) -> Result<(Packet, Received), Stop> {
    translated(stage).await?;
    let sent = Dccp.opening(stage.near(0), stage.far(0));
    match stage.outward(&sent).await {
        Some(came) => Ok((sent, came)),
        None => failed("A DCCP-Request did not come out."),
    }
}

async fn errors_pass(stage: &Stage) -> Finding {
    translated(stage).await?;
    super::icmp_errors::unreachable(stage, Dccp).await
}

async fn errors_end_nothing(stage: &Stage) -> Finding {
    translated(stage).await?;
    super::icmp_errors::errors_end_nothing(stage, Dccp).await
}
