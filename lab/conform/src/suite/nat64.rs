//! RFC 6146: stateful translation between the families.

use super::{Kind, Trial, one, several};
use crate::families::FamilyStage;
use crate::flow::Transport::{self, Echo, Tcp, Udp};
use crate::packet::{Packet, describe, endpoints};
use crate::packet6::{Packet6, describe6, end6, endpoints6};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::Outside;
use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &[
            "rfc6146#section-3",
            "rfc6146#section-3.5.4-reversible",
            "rfc6146#section-3.5.4-input",
            "rfc6146#section-3.5.4-algorithm",
            "rfc6146#section-3.5.4-configured",
        ],
        kind: Kind::Quick(one!(both_ways)),
    },
    Trial {
        requirements: &["rfc6146#section-5.2-mapping"],
        kind: Kind::Quick(one!(endpoint_independent)),
    },
    Trial { requirements: &["rfc6146#section-3.5.1-filtering"], kind: Kind::Quick(one!(filter)) },
    Trial { requirements: &["rfc6146#section-3.8"], kind: Kind::Quick(one!(hairpin)) },
    Trial {
        requirements: &["rfc6146#section-3.6.1-error"],
        kind: Kind::Quick(one!(errors_both_ways)),
    },
    Trial { requirements: &["rfc6146#section-3.4-quoted"], kind: Kind::Quick(one!(cut, Udp)) },
    Trial {
        requirements: &["rfc6146#section-3.4-quoted-query"],
        kind: Kind::Quick(one!(cut, Echo)),
    },
    Trial {
        requirements: &["rfc6146#section-3.4-other-ipv6", "rfc6146#section-3.4-other-ipv6-error"],
        kind: Kind::Quick(several!(other_from_inside)),
    },
    Trial {
        requirements: &["rfc6146#section-3.4-other-ipv4", "rfc6146#section-3.4-other-ipv4-error"],
        kind: Kind::Quick(several!(other_from_outside)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5-loop", "rfc6146#section-5.4-loop"],
        kind: Kind::Quick(one!(no_loop)),
    },
    Trial { requirements: &["rfc6146#section-3.5-ipv6"], kind: Kind::Quick(one!(other_prefix)) },
    Trial {
        requirements: &["rfc6146#section-3.5-ipv4", "rfc6146#section-3.5.1-unknown"],
        kind: Kind::Quick(several!(unmapped)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.1.1-address", "rfc6146#section-3.5.2.3-address"],
        kind: Kind::Quick(one!(paired)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.1.1-well-known", "rfc6146#section-3.5.1.1-high"],
        kind: Kind::Quick(several!(port_range, Udp)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.2.3-well-known", "rfc6146#section-3.5.2.3-high"],
        kind: Kind::Quick(several!(port_range, Tcp)),
    },
    Trial { requirements: &["rfc6146#section-3.5.1.1-parity"], kind: Kind::Quick(one!(parity)) },
    Trial {
        requirements: &["rfc6146#section-3.5.1.1-unique"],
        kind: Kind::Quick(one!(unique, Udp)),
    },
    Trial {
        requirements: &["rfc6146#section-3.5.2.3-unique"],
        kind: Kind::Quick(one!(unique, Tcp)),
    },
];

const UNREACHABLE: (u8, u8) = (3, 1);

/// Number of mappings in tests where chance could look like intent.
const MANY: usize = 20;

/// A protocol for experiments (RFC 3692), and the next one.
const EXPERIMENT: u8 = 253;
const ANOTHER: u8 = 254;

/// Checks the fields of packets of every transport and of their answers.
async fn both_ways(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    for transport in [Udp, Tcp, Echo] {
        let (host, remote) = (hosts.near(0), stage.far(0));
        let packet = hosts.opening(transport, host, remote).class(0xb8);
        let Some(came) = hosts.outward(&packet).await else {
            return failed(format!("{} did not come out.", describe6(&packet.bytes())));
        };
        let header = came.ip();
        let fields = [("TTL", header.ttl(), 63), ("type of service", came.bytes[1], 0xb8)];
        same_fields(&fields, "the packet that came out")?;
        if !came.valid() || transport != Echo && came.destination() != remote {
            return failed(format!("It came out damaged: {}.", describe(&came.bytes)));
        }
        if came.payload().len() != packet.payload.len() {
            return failed("The length of what a packet carries changed on the way out.");
        }
        let answer = transport.answer(remote, came.source()).tos(0x48);
        let Some(back) = hosts.inward(&answer, *host.ip()).await else {
            return failed(format!("The answer, {}, did not come in.", describe(&answer.bytes())));
        };
        let header = back.ip();
        let (hops, class) = (header.hop_limit(), header.traffic_class());
        same_fields(&[("hop limit", hops, 63), ("traffic class", class, 0x48)], "the answer")?;
        if header.flow_label() != 0 || back.fragment().is_some() {
            return failed("The answer has a flow label or a fragment header.");
        }
        let source = *back.source().ip();
        if !back.valid() || back.destination() != host || source != hosts.embed(*remote.ip()) {
            return failed(format!("The answer came in as {}.", describe6(&back.bytes)));
        }
    }
    Ok("UDP, TCP and echo packets passed both ways; addresses, ports, hop limit, traffic class, \
        length and checksums are those of RFC 6052 and RFC 7915."
        .to_owned())
}

/// Compares header fields: name, value and expected value.
fn same_fields(fields: &[(&str, u8, u8)], what: &str) -> Result<(), Stop> {
    match fields.iter().find(|(_, value, expected)| value != expected) {
        Some((name, value, expected)) => {
            failed(format!("The {name} of {what} is {value}, not {expected}."))
        }
        None => Ok(()),
    }
}

/// Checks that an endpoint has one external endpoint, while other hosts use its port.
async fn endpoint_independent(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    for transport in [Udp, Tcp, Echo] {
        let host = hosts.near(0);
        let others = [1, 2].map(|number| end6(hosts.inside(number), host.port()));
        let mut first = None;
        for number in 0..3 {
            let remote = stage.far(number);
            for other in others {
                hosts.map(transport, other, remote).await?;
            }
            let external = hosts.map(transport, host, remote).await?;
            let first = *first.get_or_insert(external);
            if external != first {
                let name = transport.name();
                return failed(format!(
                    "By {name}, {host} is {first}, and {external} towards {remote}."
                ));
            }
        }
    }
    Ok("An endpoint of UDP, of TCP and an ICMP query identifier are one external endpoint towards \
        three remote hosts, while other hosts have the same ports."
        .to_owned())
}

/// Checks that filtering is not address-and-port-dependent.
async fn filter(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let (host, remote) = (hosts.near(0), stage.far(0));
    let external = hosts.map(Udp, host, remote).await?;
    if !hosts.answers(Udp, remote, external, host).await {
        return failed(format!("Not even the answer from {remote} came in to {host}."));
    }
    let stranger = hosts.enters(Udp, stage.far(1), external, *host.ip()).await;
    let other_port = hosts.enters(Udp, stage.far(0), external, *host.ip()).await;
    match (stranger, other_port) {
        (true, true) => Ok("Filtering is endpoint-independent.".to_owned()),
        (false, true) => Ok("Filtering is address-dependent.".to_owned()),
        _ => failed("A datagram from another port of a remote host was kept out."),
    }
}

/// Checks that two hosts reach each other by their external endpoints.
async fn hairpin(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    for transport in [Udp, Tcp] {
        let (caller, callee, remote) = (hosts.near(0), hosts.near(1), stage.far(0));
        let caller_external = hosts.map(transport, caller, remote).await?;
        let callee_external = hosts.map(transport, callee, remote).await?;
        let packet = hosts.opening(transport, caller, callee_external);
        let mut came = hosts.turned(&packet, *callee.ip()).await;
        if came.is_none() {
            // The filter may want a packet of the callee first.
            hosts.send(&hosts.opening(transport, callee, caller_external));
            came = hosts.turned(&packet, *callee.ip()).await;
        }
        let Some(came) = came else {
            return failed(format!("{} did not arrive at {callee}.", describe6(&packet.bytes())));
        };
        let expected = (hosts.six(caller_external), callee);
        if (came.source(), came.destination()) != expected || !came.valid() {
            return failed(format!("It arrived as {}.", describe6(&came.bytes)));
        }
        let answer = hosts.answer(transport, callee, caller_external);
        let Some(back) = hosts.turned(&answer, *caller.ip()).await else {
            return failed("The answer did not turn back.");
        };
        if (back.source(), back.destination()) != (hosts.six(callee_external), caller) {
            return failed(format!("The answer arrived as {}.", describe6(&back.bytes)));
        }
    }
    Ok("A datagram and a SYN to another host's external endpoint arrived from the sender's \
        external endpoint, and so did the answers."
        .to_owned())
}

/// Checks ICMP errors about packets of a session, from either side.
async fn errors_both_ways(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    for transport in [Udp, Tcp, Echo] {
        let (host, remote) = (hosts.near(0), stage.far(0));
        let seen = hosts.opened(transport, host, remote).await?;
        let router = stage.outside(1);
        let error = Packet::error(router, *seen.source().ip(), UNREACHABLE, &seen.bytes);
        let Some(told) = hosts.inward(&error, *host.ip()).await else {
            return failed(format!("{} did not come in.", describe(&error.bytes())));
        };
        let quoted = endpoints6(told.quoted());
        let expected = hosts.opening(transport, host, remote).bytes();
        if !told.valid() || *told.source().ip() != hosts.embed(router) {
            return failed(format!("The error came in as {}.", describe6(&told.bytes)));
        }
        if told.error() != Some((1, 0)) || quoted != endpoints6(&expected) {
            return failed(format!("The error came in as {}.", describe6(&told.bytes)));
        }
        let answer = transport.answer(remote, seen.source());
        let Some(came) = hosts.inward(&answer, *host.ip()).await else {
            return failed("An answer did not come in.");
        };
        let (from, to) = (*host.ip(), *came.source().ip());
        let error = Packet6::icmp(from, to, (1, 4), [0; 4], &came.bytes);
        let Some(told) = hosts.outward(&error).await else {
            return failed(format!("{} did not come out.", describe6(&error.bytes())));
        };
        let is_right = told.error() == Some((3, 3)) && told.valid();
        if !is_right || endpoints(told.quoted()) != endpoints(&answer.bytes()) {
            return failed(format!("The error came out as {}.", describe(&told.bytes)));
        }
    }
    Ok("Errors about packets of UDP, TCP and ICMP queries reached the sender, each with the packet \
        as the sender had sent it."
        .to_owned())
}

/// Checks that an error without the ports or the identifier of its packet is dropped.
async fn cut(stage: &Stage, transport: Transport) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let (host, remote) = (hosts.near(0), stage.far(0));
    let seen = hosts.opened(transport, host, remote).await?;
    let shown = if transport == Echo { 24 } else { 22 };
    let error = |len: usize| {
        Packet::error(*remote.ip(), *seen.source().ip(), UNREACHABLE, &seen.bytes[..len])
    };
    if let Some(came) = hosts.inward(&error(shown), *host.ip()).await {
        return failed(format!("It came in as {}.", describe6(&came.bytes)));
    }
    match hosts.inward(&error(28), *host.ip()).await {
        Some(_) => Ok("An error with too few bytes of its packet was dropped, and one with eight \
                       bytes more than the header came in."
            .to_owned()),
        None => failed("An error with eight bytes more than the header did not come in."),
    }
}

async fn other_from_inside(stage: &Stage) -> [Finding; 2] {
    let hosts = match FamilyStage::nat64(stage) {
        Ok(hosts) => hosts,
        Err(stop) => return [Err(stop.clone()), Err(stop)],
    };
    let (host, remote) = (hosts.inside(0), stage.outside(0));
    let packet = Packet6::new(EXPERIMENT, host, hosts.embed(remote), vec![7; 40]);
    let dropped = match hosts.outward(&packet).await {
        Some(_) => failed(format!("A packet of protocol {EXPERIMENT} was translated.")),
        None => Ok(format!("A packet of protocol {EXPERIMENT} was dropped.")),
    };
    let told = match hosts.take(host, |came| came.error() == Some((1, 4))).await {
        Some(_) => Ok("Its sender got ICMPv6 1/4.".to_owned()),
        None => failed("Its sender got no ICMPv6 1/4."),
    };
    [dropped, told]
}

async fn other_from_outside(stage: &Stage) -> [Finding; 2] {
    let mapped = match Mapped::open(stage).await {
        Ok(mapped) => mapped,
        Err(stop) => return [Err(stop.clone()), Err(stop)],
    };
    let Mapped { hosts, host, external, remote } = mapped;
    let remote = *remote.ip();
    let packet = Packet::new(ANOTHER, remote, *external.ip(), vec![7; 40]);
    let dropped = match hosts.inward(&packet, *host.ip()).await {
        Some(_) => failed(format!("A packet of protocol {ANOTHER} was translated.")),
        None => Ok(format!("A packet of protocol {ANOTHER} was dropped.")),
    };
    let told = match stage.take((Outside, remote), |came| came.error() == Some((3, 2))).await {
        Some(_) => Ok("Its sender got ICMP 3/2.".to_owned()),
        None => failed("Its sender got no ICMP 3/2."),
    };
    [dropped, told]
}

/// A mapping of UDP with one session.
pub(super) struct Mapped<'s> {
    pub(super) hosts: FamilyStage<'s>,
    pub(super) host: SocketAddrV6,
    pub(super) external: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}

impl<'s> Mapped<'s> {
    pub(super) async fn open(stage: &'s Stage) -> Result<Self, Stop> {
        let hosts = FamilyStage::nat64(stage)?;
        let (host, remote) = (hosts.near(0), stage.far(0));
        let external = hosts.map(Udp, host, remote).await?;
        Ok(Self { hosts, host, external, remote })
    }
}

/// Checks that a packet from an address in the translator's prefix does not come out.
async fn no_loop(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let (from, to) = (stage.far(1), stage.far(0));
    let packet = Packet6::udp(hosts.six(from), hosts.six(to), b"loop");
    if hosts.outward(&packet).await.is_some() {
        return failed("It was translated.");
    }
    match stage.drain(Outside, *from.ip()).is_empty() {
        true => Ok("A packet from an address in the prefix was dropped in silence.".to_owned()),
        false => failed("A packet about it came out."),
    }
}

/// Checks that a packet to an address outside of the prefix does not come out as IPv4.
async fn other_prefix(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let (host, remote) = (hosts.near(0), stage.far(0));
    for bit in [32, 33, 64, 95, 127] {
        let other = Ipv6Addr::from_bits(hosts.embed(*remote.ip()).to_bits() ^ 1 << bit);
        let packet = Packet6::udp(host, end6(other, remote.port()), b"elsewhere");
        if hosts.outward(&packet).await.is_some() {
            return failed(format!("A datagram to {other} came out at {}.", remote.ip()));
        }
    }
    Ok("Datagrams to five addresses outside of the prefix did not come out as IPv4.".to_owned())
}

/// Checks that packets to other addresses and to unmapped ports do not come in.
async fn unmapped(stage: &Stage) -> [Finding; 2] {
    let mapped = match Mapped::open(stage).await {
        Ok(mapped) => mapped,
        Err(stop) => return [Err(stop.clone()), Err(stop)],
    };
    let Mapped { hosts, host, external, remote } = mapped;
    let elsewhere = SocketAddrV4::new(stage.outside(2), external.port());
    let no_pool = match hosts.enters(Udp, remote, elsewhere, *host.ip()).await {
        true => failed(format!("A datagram to {elsewhere} came in.")),
        false => Ok(format!("A datagram to {elsewhere}, no external address, did not come in.")),
    };
    let port = external.port().wrapping_add(2).max(1);
    let free = SocketAddrV4::new(*external.ip(), port);
    let no_mapping = match hosts.enters(Udp, remote, free, *host.ip()).await {
        true => failed(format!("A datagram to {free}, which is not the host's, came in.")),
        false => Ok(format!("A datagram to {free}, which is not the host's, did not come in.")),
    };
    [no_pool, no_mapping]
}

/// Checks that all mappings of a host have one external address, if there are several addresses.
async fn paired(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let mut seen = Vec::new();
    for host in [0, 1, 2] {
        let mut first = None;
        for transport in [Udp, Tcp, Echo].into_iter().cycle().take(MANY) {
            let external = hosts.map(transport, hosts.near(host), stage.far(0)).await?;
            seen.push(*external.ip());
            if *first.get_or_insert(*external.ip()) != *external.ip() {
                let host = hosts.inside(host);
                return failed(format!("Mappings of {host} have several external addresses."));
            }
        }
    }
    let all = stage.externals();
    match seen.iter().any(|one| *one != seen[0]) || all.len() > 1 {
        true => Ok(format!("{MANY} mappings of each of three hosts have one external address.")),
        false => not_applicable(format!("Only one external address was seen, {}.", seen[0])),
    }
}

/// Checks that ports stay on their side of 1024.
async fn port_range(stage: &Stage, transport: Transport) -> [Finding; 2] {
    match ports_on_both_sides(stage, transport).await {
        Ok(findings) => findings,
        Err(stop) => [Err(stop.clone()), Err(stop)],
    }
}

async fn ports_on_both_sides(stage: &Stage, transport: Transport) -> Result<[Finding; 2], Stop> {
    const PORTS: u16 = 8;
    let hosts = FamilyStage::nat64(stage)?;
    let remote = stage.far(0);
    let (mut high, mut low) = (0, 0);
    for number in 0..PORTS {
        let well_known = end6(hosts.inside(0), 700 + number);
        high += u16::from(hosts.map(transport, well_known, remote).await?.port() >= 1024);
        low += u16::from(hosts.map(transport, hosts.near(0), remote).await?.port() < 1024);
    }
    let well_known = match high {
        0 => Ok(format!("{PORTS} ports below 1024 got external ports below 1024.")),
        PORTS => not_applicable("No external port below 1024 was seen."),
        _ => failed(format!("{high} of {PORTS} ports below 1024 got others, though some did not.")),
    };
    let others = match low {
        0 => Ok(format!("{PORTS} ports of 1024 or above got such external ports.")),
        _ => failed(format!("{low} of {PORTS} ports above 1024 got external ports below it.")),
    };
    Ok([well_known, others])
}

/// Checks that ports keep their parity, even if they cannot be preserved.
async fn parity(stage: &Stage) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let remote = stage.far(0);
    for _ in 0..MANY {
        let host = hosts.near(0);
        hosts.map(Udp, end6(hosts.inside(1), host.port()), remote).await?;
        let external = hosts.map(Udp, host, remote).await?;
        if external.port() % 2 != host.port() % 2 {
            return failed(format!("{host} is {external}."));
        }
    }
    Ok(format!("{MANY} mappings kept their parity, while another host had their ports."))
}

/// Checks that hosts with equal ports have different external endpoints, and their own answers.
async fn unique(stage: &Stage, transport: Transport) -> Finding {
    let hosts = FamilyStage::nat64(stage)?;
    let (port, remote) = (stage.port(), stage.far(0));
    let ends = [0, 1, 2].map(|number| end6(hosts.inside(number), port));
    let mut externals = Vec::new();
    for end in ends {
        let external = hosts.map(transport, end, remote).await?;
        if externals.contains(&external) {
            return failed(format!("Two hosts with port {port} are {external}."));
        }
        externals.push(external);
    }
    for (end, external) in ends.into_iter().zip(externals) {
        if !hosts.answers(transport, remote, external, end).await {
            return failed(format!("The answer to {external} did not come back to {end}."));
        }
    }
    Ok(format!("Three hosts with port {port} have three endpoints, and each its answer."))
}
