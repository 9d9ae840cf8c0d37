//! RFC 5382, and RFC 7857 on TCP: connections without their timers.

use super::mapping::{self, Behavior};
use super::{Kind, Trial, one, several, udp};
use crate::flow::{Connection, Transport, Transport::Tcp};
use crate::packet::{Packet, Received, Segment, describe};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::protocol::TCP;
use natgate_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use std::net::SocketAddrV4;
use std::time::Duration;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &["rfc5382#REQ-1"],
        kind: Kind::Quick(one!(mapping::endpoint_independent, Tcp)),
    },
    Trial { requirements: &["rfc5382#REQ-2"], kind: Kind::Quick(one!(valid_sequences)) },
    Trial { requirements: &["rfc5382#REQ-2a"], kind: Kind::Quick(one!(simultaneous_open)) },
    Trial {
        requirements: &["rfc5382#REQ-3"],
        kind: Kind::Quick(one!(mapping::filtering_recommended, Tcp)),
    },
    Trial {
        requirements: &["rfc5382#REQ-4", "rfc5382#REQ-4-outbound", "rfc5382#REQ-4-answer"],
        kind: Kind::Quick(several!(uninvited, Tcp)),
    },
    Trial { requirements: &["rfc5382#REQ-6"], kind: Kind::Quick(one!(payload_unaltered)) },
    Trial {
        requirements: &["rfc5382#REQ-7"],
        kind: Kind::Quick(one!(mapping::not_overloaded, Tcp)),
    },
    Trial {
        requirements: &["rfc5382#REQ-8", "rfc5382#REQ-8a"],
        kind: Kind::Quick(several!(mapping::hairpin, Tcp)),
    },
    Trial { requirements: &["rfc7857#section-2.2"], kind: Kind::Quick(one!(resets_pass)) },
    Trial { requirements: &["rfc7857#section-4-tcp"], kind: Kind::Quick(one!(udp::paired, Tcp)) },
    Trial {
        requirements: &[
            "rfc7857#section-5",
            "rfc7857#section-5-default",
            "rfc7857#section-6",
            "rfc7857#section-6-default",
        ],
        kind: Kind::Quick(several!(protocols_apart)),
    },
];

/// Checks handshakes, data, and every way to end a connection, from either side.
async fn valid_sequences(stage: &Stage) -> Finding {
    let sides = [Inside, Outside];
    for opener in sides {
        for closer in sides {
            let mut connection = begun_by(stage, opener).await?;
            let Some(connection) = &mut connection else {
                continue;
            };
            connection.step(Inside, ACK | PSH, b"question").await?;
            connection.step(Outside, ACK | PSH, b"answer").await?;
            // Half closed: the other side may still send.
            connection.step(closer, FIN | ACK, b"").await?;
            connection.step(closer.other(), ACK, b"").await?;
            connection.step(closer.other(), ACK | PSH, b"still something to say").await?;
            connection.step(closer, ACK, b"").await?;
            connection.step(closer.other(), FIN | ACK, b"").await?;
            connection.step(closer, ACK, b"").await?;
        }
    }
    // Both sides close at the same time.
    let mut connection = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    for flags in [FIN | ACK, ACK] {
        connection.step(Inside, flags, b"").await?;
        connection.step(Outside, flags, b"").await?;
    }
    // A SYN is sent again, and so is its answer.
    let mut connection = Connection::new(stage, stage.near(0), stage.far(0), None);
    connection.step(Inside, SYN, b"").await?;
    connection.next[0] -= 1;
    connection.step(Inside, SYN, b"").await?;
    connection.step(Outside, SYN | ACK, b"").await?;
    connection.next[1] -= 1;
    connection.step(Outside, SYN | ACK, b"").await?;
    connection.step(Inside, ACK, b"").await?;
    // The endpoints open a new connection after the end.
    connection.close().await?;
    connection.next = [200_000_000, 300_000_000];
    connection.step(Inside, SYN, b"").await?;
    connection.step(Outside, SYN | ACK, b"").await?;
    connection.step(Inside, ACK, b"").await?;
    Ok("Connections opened by either side as permitted, half closed, closed by either and by both \
        at once, with segments sent again and endpoints used again: every segment passed."
        .to_owned())
}

/// Opens a connection; fails if outside hosts may not open one.
async fn begun_by<'s>(
    stage: &'s Stage,
    opener: natgate_engine::Side,
) -> Result<Option<Connection<'s>>, Stop> {
    let (host, remote) = (stage.near(0), stage.far(0));
    if opener == Inside {
        return Ok(Some(Connection::open(stage, host, remote).await?));
    }
    // A mapping towards another host, whose external endpoint is then called.
    let external = stage.map(Tcp, host, stage.far(1)).await?;
    let mut connection = Connection::new(stage, host, remote, Some(external));
    if !connection.tries(Outside, SYN, b"").await {
        return Ok(None);
    }
    connection.step(Inside, SYN | ACK, b"").await?;
    connection.step(Outside, ACK, b"").await?;
    Ok(Some(connection))
}

/// Checks SYNs that cross.
async fn simultaneous_open(stage: &Stage) -> Finding {
    let mut connection = Connection::new(stage, stage.near(0), stage.far(0), None);
    connection.step(Inside, SYN, b"").await?;
    connection.step(Outside, SYN, b"").await?;
    // Both ends answer with the sequence numbers of their SYNs.
    connection.next = connection.next.map(|next| next - 1);
    let acknowledge = |connection: &mut Connection<'_>, from: natgate_engine::Side| {
        connection.next[from.other() as usize] += 1;
        let segment = connection.segment(from, SYN | ACK, b"");
        connection.next[from.other() as usize] -= 1;
        segment
    };
    let out = acknowledge(&mut connection, Inside);
    let back = acknowledge(&mut connection, Outside);
    if stage.outward(&out).await.is_none() {
        return failed(format!("{} did not come out.", describe(&out.bytes())));
    }
    if stage.inward(&back, *connection.internal.ip()).await.is_none() {
        return failed(format!("{} did not come in.", describe(&back.bytes())));
    }
    connection.next = connection.next.map(|next| next + 1);
    connection.step(Inside, ACK | PSH, b"question").await?;
    connection.step(Outside, ACK | PSH, b"answer").await?;
    Ok("Two SYNs that crossed made a connection that carried data both ways.".to_owned())
}

/// Time in which no answer to an uninvited first packet may come; an answer right at its end may.
const SIX_SECONDS: Duration = Duration::from_millis(5999);

/// Checks silence for six seconds; no error if the inside connects meanwhile; then ICMP 3/3.
pub(super) async fn uninvited(stage: &Stage, transport: Transport) -> [Finding; 3] {
    match uninvited_packets(stage, transport).await {
        Ok(findings) => findings,
        Err(stop) => [Err(stop.clone()), Err(stop.clone()), Err(stop)],
    }
}

/// Returns true if a packet refuses a connection.
fn refuses(came: &Received) -> bool {
    let flags = came.payload().get(13).copied().unwrap_or(0);
    came.error().is_some() || came.ip().protocol() == TCP && flags & RST != 0
}

async fn uninvited_packets(stage: &Stage, transport: Transport) -> Result<[Finding; 3], Stop> {
    let (host, stranger, friend) = (stage.near(0), stage.far(1), stage.far(2));
    let external = stage.map(transport, host, stage.far(0)).await?;
    // To three ports without mappings. All three being in use would be very unlikely.
    let begin = stage.now();
    for beside in [0x2aaa, 0x1555, 0x3999] {
        let unused = SocketAddrV4::new(*external.ip(), external.port() ^ beside | 0x4000);
        stage.send(Outside, &transport.calling(stranger, unused));
    }
    // To the host's own port, where the packet is filtered or admitted. Then the host connects to
    // the same remote endpoint.
    stage.send(Outside, &transport.calling(friend, external));
    let at_friend = (Outside, *friend.ip());
    let at_once = stage.take(at_friend, refuses).await;
    stage.map(transport, host, friend).await?;

    let at = (Outside, *stranger.ip());
    let early = stage.take_until(begin + SIX_SECONDS, at, |_| true).await;
    let after = (stage.now() - begin).as_secs_f64();
    let late = stage.take_until(begin + SIX_SECONDS + stage.transit() * 4, at, |_| true).await;
    stage.drain(at.0, at.1);
    let silent = match &early {
        None => Ok("Nothing came for six seconds.".to_owned()),
        Some(came) => {
            failed(format!("It was answered after {after:.3} s by {}.", describe(&came.bytes)))
        }
    };
    let told = match (early.and(Some(())), late.as_ref().map(|late| late.error())) {
        (None, Some(Some((3, 3)))) => Ok("ICMP 3/3 came after six seconds.".to_owned()),
        (None, None) => failed("It was never answered."),
        (None, Some(_)) => failed("After six seconds came an answer that is not ICMP 3/3."),
        (Some(()), _) => failed("It was answered too early."),
    };
    let called_back = match at_once.or(stage.take(at_friend, refuses).await) {
        None => Ok("The inside called back in time, and nothing was said.".to_owned()),
        Some(came) => failed(format!(
            "Though the inside called back in time, the caller was sent {}.",
            describe(&came.bytes)
        )),
    };
    Ok([silent, called_back, told])
}

/// Checks that payload like SIP and text with addresses passes unchanged.
async fn payload_unaltered(stage: &Stage) -> Finding {
    for port in [5060, 554, 1723] {
        let host = stage.near(0);
        let remote = SocketAddrV4::new(stage.outside(0), port);
        let mut connection = Connection::open(stage, host, remote).await?;
        let text = format!("SETUP {host}\r\nTransport: RTP/AVP;client_port=4588\r\n\r\n");
        connection.step(Inside, ACK | PSH, text.as_bytes()).await?;
        connection.step(Outside, ACK | PSH, text.as_bytes()).await?;
    }
    Ok("Text with the internal endpoint in it passed unaltered to ports 5060, 554 and 1723."
        .to_owned())
}

/// Checks that RSTs pass either way, inside the window or slightly outside.
async fn resets_pass(stage: &Stage) -> Finding {
    for from in [Inside, Outside] {
        let mut connection = Connection::open(stage, stage.near(0), stage.far(0)).await?;
        connection.step(from, ACK | PSH, b"data").await?;
        connection.step(from, RST, b"").await?;
    }
    Ok("RSTs passed in both directions, translated.".to_owned())
}

/// Checks that TCP and UDP with equal internal endpoints are independent.
async fn protocols_apart(stage: &Stage) -> [Finding; 4] {
    let (mappings, filters) = (mappings_apart(stage).await, filters_apart(stage).await);
    [mappings.clone(), mappings, filters.clone(), filters]
}

async fn mappings_apart(stage: &Stage) -> Finding {
    use crate::flow::Transport::Udp;
    let mut alike = 0;
    for _ in 0..4 {
        let [host, other] = mapping::contenders(stage).await?;
        let remote = stage.far(0);
        // With this mapping the port cannot simply be preserved.
        stage.map(Tcp, other, remote).await?;
        let tcp = stage.map(Tcp, host, remote).await?;
        let udp = stage.map(Udp, host, remote).await?;
        alike += usize::from(tcp == udp);
    }
    match alike {
        4 => failed(
            "Four internal endpoints each had one external endpoint for TCP and UDP together.",
        ),
        _ => Ok(format!(
            "Of four internal endpoints, {} had different external endpoints for TCP and UDP.",
            4 - alike
        )),
    }
}

async fn filters_apart(stage: &Stage) -> Finding {
    use crate::flow::Transport::Udp;
    if mapping::filtering(stage, Udp).await? == Behavior::AddressAndPortDependent {
        return not_applicable(
            "Filtering is address-and-port-dependent: nothing uninvited comes in.",
        );
    }
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(Udp, host, remote).await?;
    for from in [remote, stage.far(0), stage.far(1)] {
        let syn = Segment { flags: SYN, sequence: 1, ..Segment::default() };
        if stage.inward(&Packet::tcp(from, external, syn), *host.ip()).await.is_some() {
            return failed(format!("A SYN from {from} came in by {external}, which UDP had made."));
        }
    }
    Ok("SYNs did not come in by a mapping that UDP had made.".to_owned())
}
