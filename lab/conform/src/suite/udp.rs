//! RFC 4787: requirements on UDP without timers and fragments.

use super::mapping::{self, Behavior, contenders, remotes};
use super::{Kind, Trial, one, several};
use crate::flow::Transport::{self, Udp};
use crate::packet::Packet;
use crate::stage::{Finding, Stage, failed, not_applicable};
use natgate_wire::icmp::kind;
use std::net::SocketAddrV4;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &["rfc4787#REQ-1"],
        kind: Kind::Quick(one!(mapping::endpoint_independent, Udp)),
    },
    Trial { requirements: &["rfc4787#REQ-2"], kind: Kind::Quick(one!(paired, Udp)) },
    Trial {
        requirements: &["rfc4787#REQ-3"],
        kind: Kind::Quick(one!(mapping::not_overloaded, Udp)),
    },
    Trial { requirements: &["rfc4787#REQ-3a"], kind: Kind::Quick(one!(port_range)) },
    Trial { requirements: &["rfc4787#REQ-4"], kind: Kind::Quick(one!(port_parity)) },
    Trial {
        requirements: &["rfc4787#REQ-8"],
        kind: Kind::Quick(one!(mapping::filtering_recommended, Udp)),
    },
    Trial {
        requirements: &["rfc4787#REQ-9", "rfc4787#REQ-9a"],
        kind: Kind::Quick(several!(mapping::hairpin, Udp)),
    },
    Trial { requirements: &["rfc4787#REQ-10"], kind: Kind::Quick(one!(payload_unaltered)) },
    Trial { requirements: &["rfc4787#REQ-11"], kind: Kind::Quick(one!(deterministic)) },
];

/// Number of mappings in tests where chance could look like intent: 2^-20 is one in a million.
const MANY: usize = 20;

/// Checks that all mappings of a host have one external address, if there are several addresses.
pub(super) async fn paired(stage: &Stage, transport: Transport) -> Finding {
    let remotes = remotes(stage, transport);
    let first = *stage.map(transport, stage.near(0), remotes[0]).await?.ip();
    for number in 1..MANY {
        let host = stage.near(0);
        let external = stage.map(transport, host, remotes[number % remotes.len()]).await?;
        if *external.ip() != first {
            return failed(format!(
                "{host} is {external}, and an earlier mapping of it at {first}."
            ));
        }
    }
    // Other hosts show if there are several addresses.
    for _ in 0..MANY {
        for number in [1, 2] {
            stage.map(transport, stage.near(number), remotes[0]).await?;
        }
    }
    let seen = stage.externals().len();
    if seen < 2 {
        return not_applicable(format!("Only one external address was seen, {first}."));
    }
    Ok(format!("{MANY} mappings of one host all have {first}, of {seen} addresses seen."))
}

/// Checks that ports stay on their side of 1024.
async fn port_range(stage: &Stage) -> Finding {
    const PAIRS: u16 = 8;
    let remote = stage.far(0);
    let mut high = Vec::new();
    for number in 0..PAIRS {
        let [host, other] = contenders(stage).await?;
        stage.map(Udp, other, remote).await?;
        let external = stage.map(Udp, host, remote).await?;
        if external.port() < 1024 {
            return failed(format!("{host} has an external port below 1024, {external}."));
        }
        let low = SocketAddrV4::new(stage.inside(0), 700 + number);
        let external = stage.map(Udp, low, remote).await?;
        if external.port() >= 1024 {
            high.push((low, external));
        }
    }
    match high.first() {
        None => Ok(format!("{} internal ports on both sides of 1024 kept to theirs.", PAIRS * 2)),
        Some(_) if high.len() == usize::from(PAIRS) => {
            not_applicable("No external port below 1024 was seen: it seems to have none to give.")
        }
        Some((low, external)) => failed(format!(
            "{low} has an external port not below 1024, {external}, though there are such ports."
        )),
    }
}

/// Checks that ports keep their parity, even if they cannot be preserved.
async fn port_parity(stage: &Stage) -> Finding {
    let remote = stage.far(0);
    for _ in 0..MANY {
        let [host, other] = contenders(stage).await?;
        stage.map(Udp, other, remote).await?;
        let external = stage.map(Udp, host, remote).await?;
        if external.port() % 2 != host.port() % 2 {
            return failed(format!("{host} is {external}; {other} had the same port before."));
        }
    }
    Ok(format!("{MANY} mappings kept their parity, while other hosts had their ports."))
}

/// Checks that payload like SIP, TFTP and text with addresses passes unchanged.
async fn payload_unaltered(stage: &Stage) -> Finding {
    let host = stage.near(0);
    let (address, port) = (host.ip(), host.port());
    let remote = stage.outside(0);
    let sip = format!(
        "REGISTER sip:{remote} SIP/2.0\r\nVia: SIP/2.0/UDP {address}:{port};branch=z9hG4bK1\r\n\
         Contact: <sip:a@{address}:{port}>\r\nContent-Length: 0\r\n\r\n"
    );
    let plain = [&address.octets()[..], &port.to_be_bytes()].concat();
    let payloads: [(u16, &[u8]); 3] =
        [(5060, sip.as_bytes()), (69, b"\0\x01file\0octet\0"), (53, &plain)];
    for (port, payload) in payloads {
        let packet = Packet::udp(host, SocketAddrV4::new(remote, port), payload);
        let Some(came) = stage.outward(&packet).await else {
            return failed(format!("A datagram to port {port} did not come out."));
        };
        if came.data() != payload {
            return failed(format!("What a datagram to port {port} carried was altered."));
        }
    }
    Ok("Datagrams with the internal address in them passed unaltered to ports 5060, 69 and 53."
        .to_owned())
}

/// Checks that every mapping has the same behavior, with and without contention.
async fn deterministic(stage: &Stage) -> Finding {
    let mut seen: Option<(bool, Behavior, SocketAddrV4)> = None;
    for number in 0..8 {
        let [host, other] = contenders(stage).await?;
        let remotes = remotes(stage, Udp);
        let external = stage.map(Udp, host, remotes[0]).await?;
        if number % 2 == 1 {
            stage.map(Udp, other, remotes[2]).await?;
        }
        let same = stage.map(Udp, host, remotes[2]).await? == external;
        let filtering = mapping::filtering(stage, Udp).await?;
        let (first_same, first_filtering, first) = *seen.get_or_insert((same, filtering, host));
        if same != first_same {
            let [one, two] = if same { [host, first] } else { [first, host] };
            return failed(format!(
                "{one} has one external endpoint for two remote hosts, {two} has not."
            ));
        }
        if filtering != first_filtering {
            let (now, before) = (filtering.name(), first_filtering.name());
            return failed(format!("Filtering was {before} at first and is {now} now."));
        }
    }
    Ok("Eight mappings, every second one with its port taken by another host, behave alike."
        .to_owned())
}

/// Checks that an echo request gets out, and that its reply gets back.
pub(super) async fn pings(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    for query in [kind::ECHO_REQUEST] {
        let packet = Packet::query(query, *host.ip(), *remote.ip(), host.port(), b"ping");
        let Some(came) = stage.outward(&packet).await else {
            return failed("An echo request did not come out.");
        };
        if !stage.answers(Transport::Echo, remote, came.source(), host).await {
            return failed("The echo reply did not come back with the identifier of the request.");
        }
    }
    Ok("An echo request went out, and its reply came back.".to_owned())
}
