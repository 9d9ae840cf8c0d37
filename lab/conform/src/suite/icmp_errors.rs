//! ICMP errors that pass the translator: RFC 5508, and requirements of RFC 4787, 5382 and 4884.

use super::mapping::Pair;
use super::{Kind, Trial, one, several};
use crate::flow::{Connection, DATA, Transport};
use crate::packet::{Packet, Received, describe, endpoints, fill_header_checksum};
use crate::stage::{Finding, Stage, Stop, failed};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::tcp::flags::ACK;
use natgate_wire::{Ipv4, checksum};
use std::net::{Ipv4Addr, SocketAddrV4};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &["rfc4787#REQ-12"],
        kind: Kind::Quick(one!(errors_end_nothing, Transport::Udp)),
    },
    Trial { requirements: &["rfc4787#REQ-12a"], kind: Kind::Quick(one!(from_any_router)) },
    Trial {
        requirements: &["rfc4787#REQ-12b"],
        kind: Kind::Quick(one!(unreachable, Transport::Udp)),
    },
    Trial {
        requirements: &["rfc5382#REQ-9"],
        kind: Kind::Quick(one!(unreachable, Transport::Tcp)),
    },
    Trial {
        requirements: &["rfc5382#REQ-10"],
        kind: Kind::Quick(one!(errors_end_connections_not)),
    },
    Trial {
        requirements: &["rfc5508#REQ-3"],
        kind: Kind::Quick(one!(wrong_checksum, Damage::Message)),
    },
    Trial {
        requirements: &["rfc5508#REQ-3a"],
        kind: Kind::Quick(one!(wrong_checksum, Damage::EmbeddedHeader)),
    },
    Trial { requirements: &["rfc5508#REQ-3b"], kind: Kind::Quick(one!(embedded_options)) },
    Trial {
        requirements: &["rfc5508#REQ-3c"],
        kind: Kind::Quick(one!(embedded_transport_checksum)),
    },
    Trial {
        requirements: &["rfc5508#REQ-3d", "rfc4884#section-6-length", "rfc4884#section-6-original"],
        kind: Kind::Quick(several!(extensions)),
    },
    Trial { requirements: &["rfc5508#REQ-4"], kind: Kind::Quick(one!(no_mapping_outside)) },
    Trial {
        requirements: &["rfc5508#REQ-4a", "rfc5508#REQ-4b", "rfc5508#REQ-4c"],
        kind: Kind::Quick(several!(from_outside)),
    },
    Trial { requirements: &["rfc5508#REQ-5"], kind: Kind::Quick(one!(no_mapping_inside)) },
    Trial {
        requirements: &["rfc5508#REQ-5a", "rfc5508#REQ-5b", "rfc5508#REQ-5c"],
        kind: Kind::Quick(several!(from_inside)),
    },
    Trial {
        requirements: &["rfc5508#REQ-7", "rfc5508#REQ-7a", "rfc7857#section-12-error"],
        kind: Kind::Quick(several!(hairpinned)),
    },
    Trial { requirements: &["rfc5508#section-7.1.2"], kind: Kind::Quick(one!(too_big_passes)) },
];

const UNREACHABLE: (u8, u8) = (3, 3);

/// A flow, and its first packet as seen outside.
struct Flow {
    internal: SocketAddrV4,
    remote: SocketAddrV4,
    seen: Received,
}

impl Flow {
    async fn open(stage: &Stage, transport: Transport) -> Result<Self, Stop> {
        let (internal, remote) = (stage.near(0), stage.far(0));
        let seen = stage.opened(transport, internal, remote).await?;
        Ok(Self { internal, remote, seen })
    }

    fn external(&self) -> SocketAddrV4 {
        self.seen.source()
    }

    /// An error about the first packet, from a router or from the remote host itself.
    fn error(&self, from: Ipv4Addr, what: (u8, u8)) -> Packet {
        Packet::error(from, *self.external().ip(), what, &self.seen.bytes)
    }

    /// Sends an error from outside, which must come in.
    async fn told(&self, stage: &Stage, error: &Packet) -> Result<Received, Stop> {
        match stage.inward(error, *self.internal.ip()).await {
            Some(came) => Ok(came),
            None => failed(format!("{} did not come in.", describe(&error.bytes()))),
        }
    }
}

/// Checks the endpoints of an error's embedded packet, and its checksums.
fn embeds(
    came: &Received,
    from: SocketAddrV4,
    to: SocketAddrV4,
    transport: Transport,
) -> Result<(), Stop> {
    let quoted = came.quoted();
    let mut expected = (from, to);
    if transport == Transport::Echo {
        expected.1.set_port(from.port());
    }
    let found = endpoints(quoted);
    if found != expected {
        let line = describe(quoted);
        return failed(format!("The embedded packet is {line} instead of from {from} to {to}."));
    }
    if !came.valid() {
        return failed("The error's own checksum is wrong after translation.");
    }
    if !Ipv4::new_header_checked(quoted).is_ok_and(|ip| ip.checksum_valid()) {
        return failed("The embedded header's checksum is wrong after translation.");
    }
    Ok(())
}

const EVERY: [Transport; 3] = [Transport::Udp, Transport::Tcp, Transport::Echo];

/// Checks that errors of all kinds, from the remote host and from a router, leave the mapping
/// unchanged.
pub(super) async fn errors_end_nothing(stage: &Stage, transport: Transport) -> Finding {
    let flow = Flow::open(stage, transport).await?;
    let mut sent = 0;
    for from in [*flow.remote.ip(), stage.outside(1)] {
        for what in (0..16).map(|code| (3, code)).chain([(4, 0), (5, 1), (11, 0), (11, 1), (12, 0)])
        {
            stage.send(Outside, &flow.error(from, what));
            sent += 1;
        }
    }
    let again = stage.map(transport, flow.internal, flow.remote).await?;
    if again != flow.external() {
        return failed(format!(
            "After {sent} ICMP errors {} is {again}; it had been {}.",
            flow.internal,
            flow.external()
        ));
    }
    if !stage.answers(transport, flow.remote, flow.external(), flow.internal).await {
        return failed(format!("After {sent} ICMP errors answers do not come in any more."));
    }
    Ok(format!(
        "After {sent} ICMP errors of all kinds the mapping serves both directions as before."
    ))
}

/// Checks that a connection carries data after errors.
async fn errors_end_connections_not(stage: &Stage) -> Finding {
    let mut connection = Connection::open(stage, stage.near(0), stage.far(0)).await?;
    let packet = connection.segment(Inside, ACK, b"");
    let Some(seen) = stage.outward(&packet).await else {
        return failed("An acknowledgment did not come out.");
    };
    for from in [*connection.remote.ip(), stage.outside(1)] {
        for what in (0..16).map(|code| (3, code)).chain([(4, 0), (5, 1), (11, 0), (12, 0)]) {
            let error = Packet::error(from, *seen.source().ip(), what, &seen.bytes);
            stage.send(Outside, &error);
        }
    }
    connection.step(Inside, ACK, b"still here").await?;
    connection.step(Outside, ACK, b"and here").await?;
    Ok("After 40 ICMP errors of all kinds the connection carries data both ways.".to_owned())
}

/// Checks errors of a router that no host has sent to.
async fn from_any_router(stage: &Stage) -> Finding {
    for transport in EVERY {
        let flow = Flow::open(stage, transport).await?;
        let came = flow.told(stage, &flow.error(stage.outside(1), (11, 0))).await?;
        embeds(&came, flow.internal, flow.remote, transport)?;
    }
    Ok("Errors from a router that nobody had sent to came in, about UDP, TCP and ICMP queries."
        .to_owned())
}

/// Checks that every code of destination unreachable comes in, translated.
pub(super) async fn unreachable(stage: &Stage, transport: Transport) -> Finding {
    let flow = Flow::open(stage, transport).await?;
    for code in 0..16 {
        let came = flow.told(stage, &flow.error(*flow.remote.ip(), (3, code))).await?;
        if came.error() != Some((3, code)) {
            return failed(format!("ICMP 3/{code} came in as {:?}.", came.error()));
        }
        embeds(&came, flow.internal, flow.remote, transport)?;
    }
    Ok("ICMP 3/0 to 3/15 came in, translated.".to_owned())
}

/// Place of a wrong checksum.
#[derive(Clone, Copy)]
enum Damage {
    Message,
    EmbeddedHeader,
}

async fn wrong_checksum(stage: &Stage, damage: Damage) -> Finding {
    let flow = Flow::open(stage, Transport::Udp).await?;
    flow.told(stage, &flow.error(*flow.remote.ip(), UNREACHABLE)).await?;
    let error = match damage {
        Damage::Message => {
            let mut error = flow.error(*flow.remote.ip(), UNREACHABLE);
            error.payload[2] ^= 0x40;
            error
        }
        Damage::EmbeddedHeader => {
            let mut quoted = flow.seen.bytes.clone();
            quoted[10] ^= 0x40;
            Packet::error(*flow.remote.ip(), *flow.external().ip(), UNREACHABLE, &quoted)
        }
    };
    match stage.inward(&error, *flow.internal.ip()).await {
        None => Ok("It was dropped, while the same with the right checksum came in.".to_owned()),
        Some(_) => failed("It came in in spite of its wrong checksum."),
    }
}

/// Checks a flow whose quoted packets have a record route option.
async fn embedded_options(stage: &Stage) -> Finding {
    const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 0];
    for transport in EVERY {
        let flow = Flow::open(stage, transport).await?;
        // The packet as seen outside if the sender had added the option.
        let header = &flow.seen.bytes[..20];
        let mut quoted = [header, &RECORD_ROUTE, flow.seen.payload()].concat();
        quoted[0] = 0x47;
        let len = quoted.len() as u16;
        quoted[2..4].copy_from_slice(&len.to_be_bytes());
        fill_header_checksum(&mut quoted);
        let error = Packet::error(*flow.remote.ip(), *flow.external().ip(), UNREACHABLE, &quoted);
        let came = flow.told(stage, &error).await?;
        embeds(&came, flow.internal, flow.remote, transport)?;
        if came.quoted().get(20..28) != Some(&RECORD_ROUTE[..]) {
            return failed("The embedded packet's options were altered.");
        }
    }
    Ok("Errors about packets with options came in, the ports behind the options translated."
        .to_owned())
}

/// Checks an error with a wrong embedded transport checksum, which is legitimate.
async fn embedded_transport_checksum(stage: &Stage) -> Finding {
    let flow = Flow::open(stage, Transport::Udp).await?;
    let mut quoted = flow.seen.bytes.clone();
    quoted[26] ^= 0x55;
    let error = Packet::error(*flow.remote.ip(), *flow.external().ip(), UNREACHABLE, &quoted);
    let came = flow.told(stage, &error).await?;
    embeds(&came, flow.internal, flow.remote, Transport::Udp)?;
    Ok("An error with a wrong checksum in the embedded UDP header came in all the same.".to_owned())
}

/// Checks an error with an extension (RFC 4884) behind the padded original datagram.
async fn extensions(stage: &Stage) -> [Finding; 3] {
    match extended(stage).await {
        Err(stop) => [Err(stop.clone()), Err(stop.clone()), Err(stop)],
        Ok((came, extension)) => {
            let length = came.payload().get(5).copied();
            let rest = came.payload().get(8 + 128..).unwrap_or_default();
            let first = "An error with padding and an extension came in, its embedded packet \
                translated and its checksum right.";
            let second = match length {
                Some(32) => Ok("The length attribute is 32 words as before.".to_owned()),
                _ => failed(format!("The length attribute is {length:?} instead of 32 words.")),
            };
            let third = match rest == extension {
                true => Ok("Padding and extension came in as they were, byte for byte.".to_owned()),
                false => failed("The extension behind the original datagram was altered."),
            };
            [Ok(first.to_owned()), second, third]
        }
    }
}

async fn extended(stage: &Stage) -> Result<(Received, Vec<u8>), Stop> {
    let flow = Flow::open(stage, Transport::Udp).await?;
    let mut quoted = flow.seen.bytes.clone();
    quoted.resize(128, 0);
    // Version 2, and one MPLS label stack object (RFC 4950).
    let mut extension = vec![0x20, 0, 0, 0, 0, 8, 1, 1, 0x12, 0x34, 0x51, 0x40];
    let sum = checksum::checksum(&extension);
    extension[2..4].copy_from_slice(&sum.to_be_bytes());
    let body = [&quoted[..], &extension].concat();
    let words = [0, 32, 0, 0];
    let error = Packet::icmp(*flow.remote.ip(), *flow.external().ip(), 11, 0, words, &body);
    let came = flow.told(stage, &error).await?;
    embeds(&came, flow.internal, flow.remote, Transport::Udp)?;
    Ok((came, extension))
}

async fn no_mapping_outside(stage: &Stage) -> Finding {
    let flow = Flow::open(stage, Transport::Udp).await?;
    let mut other = flow.external();
    other.set_port(other.port() ^ 0x1555);
    let quoted = Packet::udp(other, flow.remote, DATA).bytes();
    let error = Packet::error(*flow.remote.ip(), *other.ip(), UNREACHABLE, &quoted);
    match stage.inward(&error, *flow.internal.ip()).await {
        Some(_) => failed("An error about a packet that nobody had sent came in."),
        None => Ok("An error about a packet that nobody had sent went nowhere.".to_owned()),
    }
}

async fn no_mapping_inside(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    let quoted = Packet::udp(remote, host, DATA).bytes();
    let error = Packet::error(*host.ip(), *remote.ip(), UNREACHABLE, &quoted);
    match stage.outward(&error).await {
        Some(came) => failed(format!("It left as {}.", describe(&came.bytes))),
        None => Ok("An error about a packet that nobody had sent went nowhere.".to_owned()),
    }
}

/// Checks errors from the remote host and from a router, about every transport.
async fn from_outside(stage: &Stage) -> [Finding; 3] {
    let mut findings: [Finding; 3] = [
        Ok("Embedded addresses, ports and checksums were those that the host had sent.".to_owned()),
        Ok("Types and codes stayed.".to_owned()),
        Ok("Each error went to the host that had sent the packet.".to_owned()),
    ];
    for transport in EVERY {
        for what in [(3, 1), (3, 3), (11, 0), (12, 0)] {
            for router in [0, 1] {
                let told = told_from_outside(stage, transport, what, stage.outside(router)).await;
                worse(&mut findings, told);
            }
        }
    }
    findings
}

async fn told_from_outside(
    stage: &Stage,
    transport: Transport,
    what: (u8, u8),
    router: Ipv4Addr,
) -> Result<[Result<(), Stop>; 3], Stop> {
    let flow = Flow::open(stage, transport).await?;
    let came = flow.told(stage, &flow.error(router, what)).await?;
    let kept = match came.error() {
        Some(found) if found == what => Ok(()),
        found => failed(format!("ICMP {what:?} came in as {found:?}.")),
    };
    let target =
        match (came.destination().ip() == flow.internal.ip(), *came.source().ip() == router) {
            (true, true) => Ok(()),
            (true, false) => {
                failed(format!("The error's own source was changed to {}.", came.source().ip()))
            }
            (false, _) => failed(format!("The error went to {}.", came.destination().ip())),
        };
    Ok([embeds(&came, flow.internal, flow.remote, transport), kept, target])
}

/// Checks errors from an inside host and from another one, which plays a router.
async fn from_inside(stage: &Stage) -> [Finding; 3] {
    let mut findings: [Finding; 3] = [
        Ok("Embedded addresses, ports and checksums were those that the remote host had sent."
            .to_owned()),
        Ok("Types and codes stayed.".to_owned()),
        Ok("The errors left with an external address, those of a router inside, too.".to_owned()),
    ];
    for transport in EVERY {
        for (what, router) in [((3, 3), 0), ((3, 1), 1), ((11, 0), 1)] {
            let told = told_from_inside(stage, transport, what, stage.inside(router)).await;
            worse(&mut findings, told);
        }
    }
    findings
}

async fn told_from_inside(
    stage: &Stage,
    transport: Transport,
    what: (u8, u8),
    router: Ipv4Addr,
) -> Result<[Result<(), Stop>; 3], Stop> {
    let flow = Flow::open(stage, transport).await?;
    let answer = transport.answer(flow.remote, flow.external());
    let Some(arrived) = stage.inward(&answer, *flow.internal.ip()).await else {
        return failed(format!("{} did not come in.", describe(&answer.bytes())));
    };
    let error = Packet::error(router, *flow.remote.ip(), what, &arrived.bytes);
    let Some(came) = stage.outward(&error).await else {
        return failed(format!("{} did not come out.", describe(&error.bytes())));
    };
    let kept = match came.error() {
        Some(found) if found == what => Ok(()),
        found => failed(format!("ICMP {what:?} came out as {found:?}.")),
    };
    let source = *came.source().ip();
    let target = match stage.externals().contains(&source) {
        true => Ok(()),
        false => failed(format!("The error left with {source} as its source.")),
    };
    let external = match transport {
        Transport::Echo => SocketAddrV4::new(*flow.external().ip(), flow.external().port()),
        _ => flow.external(),
    };
    let mut remote = flow.remote;
    if transport == Transport::Echo {
        remote.set_port(external.port());
    }
    Ok([embeds(&came, remote, external, transport), kept, target])
}

/// Keeps the first failure of each requirement.
fn worse(findings: &mut [Finding; 3], told: Result<[Result<(), Stop>; 3], Stop>) {
    let results = match told {
        Ok(results) => results,
        Err(stop) => [Err(stop.clone()), Err(stop.clone()), Err(stop)],
    };
    for (finding, result) in findings.iter_mut().zip(results) {
        if let (true, Err(stop)) = (finding.is_ok(), result) {
            *finding = Err(stop);
        }
    }
}

/// Checks an error from one inside host to another, through external endpoints.
async fn hairpinned(stage: &Stage) -> [Finding; 3] {
    match hairpinned_error(stage).await {
        Err(stop) => [Err(stop.clone()), Err(stop.clone()), Err(stop)],
        Ok(()) => [
            Ok("An error about a hairpinned datagram reached its sender.".to_owned()),
            Ok("It went to the sender's address, and embeds the datagram as sent.".to_owned()),
            Ok("An error about a hairpinned datagram reached its sender.".to_owned()),
        ],
    }
}

async fn hairpinned_error(stage: &Stage) -> Result<(), Stop> {
    let pair = Pair::open(stage, Transport::Udp).await?;
    let Ok(arrived) = pair.call(stage, Transport::Udp).await else {
        return failed("Nothing is hairpinned that an error could be about.");
    };
    let (caller, callee) = (pair.caller, pair.callee);
    let error = Packet::error(*callee.ip(), *arrived.source().ip(), UNREACHABLE, &arrived.bytes);
    let Some(came) = stage.crosses(Inside, &error, (Inside, *caller.ip())).await else {
        return failed(format!("{} did not arrive at {caller}.", describe(&error.bytes())));
    };
    if came.source().ip() == callee.ip() {
        return failed(format!("It arrived from the internal address {}.", callee.ip()));
    }
    embeds(&came, caller, pair.callee_external, Transport::Udp)
}

/// Checks that a packet-too-big message keeps its MTU.
async fn too_big_passes(stage: &Stage) -> Finding {
    const MTU: u16 = 1280;
    for transport in EVERY {
        let flow = Flow::open(stage, transport).await?;
        let [high, low] = MTU.to_be_bytes();
        let word = [0, 0, high, low];
        let router = stage.outside(1);
        let error = Packet::icmp(router, *flow.external().ip(), 3, 4, word, &flow.seen.bytes);
        let came = flow.told(stage, &error).await?;
        embeds(&came, flow.internal, flow.remote, transport)?;
        if came.payload().get(4..8) != Some(&word[..]) {
            return failed("The MTU in the message was altered.");
        }
    }
    Ok(format!("ICMP 3/4 with MTU {MTU} came in, translated, about UDP, TCP and ICMP queries."))
}
