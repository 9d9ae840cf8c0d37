//! RFC 7915 and RFC 7757: addresses and headers of stateless translation.

use super::{Kind, Trial, one, several};
use crate::families::FamilyStage;
use crate::flow::{
    DATA,
    Transport::{self, Echo, Tcp, Udp},
};
use crate::packet::{Packet, Received, describe};
use crate::packet6::{Packet6, Received6, describe6, end6};
use crate::setup::Siit;
use crate::stage::{Finding, Stage, Stop, failed};
use natgate_engine::Side::Outside;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &[
            "rfc7915#section-6-6052",
            "rfc7915#section-6-7757",
            "rfc7915#section-4.6-translate",
            "rfc7915#section-5.6-translate",
            "rfc7757#section-3.2-each",
            "rfc7757#section-3.3.1",
            "rfc7757#section-3.3.2",
        ],
        kind: Kind::Quick(one!(addresses)),
    },
    Trial {
        requirements: &["rfc7915#section-4.1-next-header", "rfc7915#section-4-no-header"],
        kind: Kind::Quick(one!(headers_to_six)),
    },
    Trial {
        requirements: &["rfc7915#section-5-df-clear", "rfc7915#section-5-df-set"],
        kind: Kind::Quick(several!(headers_to_four)),
    },
    Trial {
        requirements: &[
            "rfc7915#section-4.5-update",
            "rfc7915#section-5.5-update",
            "rfc7915#section-5-checksum",
        ],
        kind: Kind::Quick(one!(checksums)),
    },
    Trial {
        requirements: &["rfc7915#section-4.5-forward", "rfc7915#section-5.5-forward"],
        kind: Kind::Quick(several!(every_protocol)),
    },
    Trial {
        requirements: &["rfc7915#section-4-order", "rfc7915#section-5-order"],
        kind: Kind::Quick(several!(in_order)),
    },
    Trial {
        requirements: &["rfc7915#section-4.1-hop-limit", "rfc7915#section-5.1-ttl"],
        kind: Kind::Quick(several!(last_hop)),
    },
    Trial {
        requirements: &["rfc7915#section-4.1-source", "rfc7915#section-5.1-source"],
        kind: Kind::Quick(several!(illegal_sources)),
    },
    Trial {
        requirements: &["rfc7757#section-4.2", "rfc7757#section-4.2-default"],
        kind: Kind::Quick(one!(hairpin)),
    },
    Trial { requirements: &["rfc7757#section-4.2.2-hop"], kind: Kind::Quick(one!(one_hop)) },
];

/// A flow of a stateless translator: an inside host with its IPv4 endpoint, and a remote endpoint.
pub(super) struct Ends<'s> {
    pub(super) hosts: FamilyStage<'s>,
    siit: Siit,
    pub(super) host: SocketAddrV6,
    pub(super) external: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}

impl<'s> Ends<'s> {
    pub(super) fn new(stage: &'s Stage) -> Result<Self, Stop> {
        let (hosts, siit) = FamilyStage::siit(stage)?;
        let host = hosts.near(0);
        let external = SocketAddrV4::new(siit.external(*host.ip()), host.port());
        Ok(Self { hosts, siit, host, external, remote: stage.far(0) })
    }

    /// Addresses of packets from outside: source and destination.
    pub(super) fn four(&self) -> (Ipv4Addr, Ipv4Addr) {
        (*self.remote.ip(), *self.external.ip())
    }

    /// Addresses of packets from inside: source and destination.
    pub(super) fn six(&self) -> (Ipv6Addr, Ipv6Addr) {
        (*self.host.ip(), self.hosts.embed(*self.remote.ip()))
    }

    /// A packet from inside.
    pub(super) fn out(&self, transport: Transport) -> Packet6 {
        self.hosts.opening(transport, self.host, self.remote)
    }

    /// A packet from outside.
    pub(super) fn back(&self, transport: Transport) -> Packet {
        transport.answer(self.remote, self.external)
    }

    /// Sends a packet from inside, which must come out.
    pub(super) async fn comes_out(&self, packet: &Packet6) -> Result<Received, Stop> {
        match self.hosts.outward(packet).await {
            Some(came) => Ok(came),
            None => failed(format!("{} did not come out.", describe6(&packet.bytes()))),
        }
    }

    /// Sends a packet from outside, which must come in.
    pub(super) async fn comes_in(&self, packet: &Packet) -> Result<Received6, Stop> {
        match self.hosts.inward(packet, *self.host.ip()).await {
            Some(came) => Ok(came),
            None => failed(format!("{} did not come in.", describe(&packet.bytes()))),
        }
    }
}

/// Turns an early end of a test into the finding of each of its requirements.
pub(super) fn each<const N: usize>(result: Result<[Finding; N], Stop>) -> [Finding; N] {
    match result {
        Ok(findings) => findings,
        Err(stop) => std::array::from_fn(|_| Err(stop.clone())),
    }
}

/// Checks the endpoints of packets of every transport, both ways.
async fn addresses(stage: &Stage) -> Finding {
    for transport in [Udp, Tcp, Echo] {
        let ends = Ends::new(stage)?;
        let came = ends.comes_out(&ends.out(transport)).await?;
        if came.source() != ends.external || *came.destination().ip() != *ends.remote.ip() {
            return failed(format!("It came out as {}.", describe(&came.bytes)));
        }
        let back = ends.comes_in(&ends.back(transport)).await?;
        let source = ends.hosts.embed(*ends.remote.ip());
        if *back.source().ip() != source || back.destination() != ends.host {
            return failed(format!("It came in as {}.", describe6(&back.bytes)));
        }
    }
    Ok("An inside host has its mapped address outside, a remote host has its address in the \
        prefix inside, and ports stay."
        .to_owned())
}

/// Checks every field of the IPv6 header.
async fn headers_to_six(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    for transport in [Udp, Tcp, Echo] {
        for may_be_cut in [true, false] {
            let packet = ends.back(transport).tos(0xb9).ttl(33);
            let packet = if may_be_cut { packet } else { packet.whole() };
            let came = ends.comes_in(&packet).await?;
            let (header, len) = (came.ip(), packet.payload.len());
            let next = if transport == Echo { 58 } else { packet.protocol };
            let fields = (header.traffic_class(), header.flow_label(), header.hop_limit());
            if fields != (0xb9, 0, 32) {
                return failed(format!(
                    "Traffic class, flow label and hop limit are {fields:?} instead of (185, 0, \
                     32)."
                ));
            }
            if header.next_header() != next || usize::from(header.payload_len()) != len {
                return failed(format!(
                    "The next header is {} instead of {next}, the payload length {} instead of \
                     {len}.",
                    header.next_header(),
                    header.payload_len()
                ));
            }
        }
    }
    Ok("Traffic class, hop limit, next header and payload length follow from the IPv4 header; \
        packets with DF and without have no fragment header."
        .to_owned())
}

/// Checks every field of the IPv4 header, of a short and of a long packet.
async fn headers_to_four(stage: &Stage) -> [Finding; 2] {
    [header_to_four(stage, 1240, false).await, header_to_four(stage, 1241, true).await]
}

/// Checks a packet with this payload; the IPv4 header adds 20 bytes.
async fn header_to_four(stage: &Stage, payload: usize, has_df: bool) -> Finding {
    let ends = Ends::new(stage)?;
    let data = vec![0x5a; payload - 8];
    let remote = ends.hosts.six(ends.remote);
    let packet = Packet6::udp(ends.host, remote, &data).class(0x2e).hop_limit(33);
    let came = ends.comes_out(&packet).await?;
    let header = came.ip();
    let fields = (came.bytes[1], header.ttl(), usize::from(header.total_len()));
    let expected = (0x2e, 32, payload + 20);
    if fields != expected || header.header_len() != 20 || header.is_fragment() || !came.valid() {
        return failed(format!(
            "Type of service, TTL and length are {fields:?} instead of {expected:?}, or the packet \
             is a fragment or has options or a wrong checksum."
        ));
    }
    let name = if has_df { "set" } else { "clear" };
    match header.dont_fragment() == has_df {
        true => Ok(format!("DF is {name} in a packet of {} bytes.", payload + 20)),
        false => failed(format!("DF is not {name} in a packet of {} bytes.", payload + 20)),
    }
}

/// Checks that correct checksums stay correct, and wrong ones wrong.
async fn checksums(stage: &Stage) -> Finding {
    for transport in [Udp, Tcp, Echo] {
        let ends = Ends::new(stage)?;
        let at = match transport {
            Udp => 6,
            Tcp => 16,
            _ => 2,
        };
        for damage in [0, 0x55] {
            let mut packet = ends.out(transport);
            packet.payload[at] ^= damage;
            let came = ends.comes_out(&packet).await?;
            if came.valid() != (damage == 0) || !came.ip().checksum_valid() {
                return failed(format!("A checksum is not what it was: {}.", transport.name()));
            }
            let mut packet = ends.back(transport);
            packet.payload[at] ^= damage;
            let came = ends.comes_in(&packet).await?;
            if came.valid() != (damage == 0) {
                return failed(format!("A checksum is not what it was: {}.", transport.name()));
            }
        }
    }
    Ok("Correct checksums of UDP, TCP and ICMP stayed correct both ways, and wrong ones wrong."
        .to_owned())
}

/// Checks packets of protocols without ports.
async fn every_protocol(stage: &Stage) -> [Finding; 2] {
    each(every_protocol_passes(stage).await)
}

async fn every_protocol_passes(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let (mut lost_in, mut lost_out) = (Vec::new(), Vec::new());
    for protocol in [47, 50, 132, 253] {
        let (from, to) = ends.four();
        let packet = Packet::new(protocol, from, to, DATA.to_vec());
        let came = ends.hosts.inward(&packet, *ends.host.ip()).await;
        if came.is_none_or(|came| came.transport() != DATA) {
            lost_in.push(protocol);
        }
        let (from, to) = ends.six();
        let packet = Packet6::new(protocol, from, to, DATA.to_vec());
        let came = ends.hosts.outward(&packet).await;
        if came.is_none_or(|came| came.payload() != DATA) {
            lost_out.push(protocol);
        }
    }
    Ok([lost_in, lost_out].map(|lost| match lost.is_empty() {
        true => Ok("Packets of protocols 47, 50, 132 and 253 passed unaltered.".to_owned()),
        false => failed(format!("Packets of these protocols did not pass unaltered: {lost:?}.")),
    }))
}

/// Checks the order of a burst of datagrams.
async fn in_order(stage: &Stage) -> [Finding; 2] {
    each(burst(stage).await)
}

async fn burst(stage: &Stage) -> Result<[Finding; 2], Stop> {
    const COUNT: u8 = 16;
    let ends = Ends::new(stage)?;
    let in_order = |seen: Vec<u8>| match seen == (0..COUNT).collect::<Vec<_>>() {
        true => Ok(format!("{COUNT} datagrams arrived in the order in which they were sent.")),
        false => failed(format!("The datagrams arrived in this order: {seen:?}.")),
    };
    for number in 0..COUNT {
        stage.send(Outside, &Packet::udp(ends.remote, ends.external, &[number]));
    }
    stage.rest(stage.transit()).await;
    let came = ends.hosts.drain(*ends.host.ip());
    let inward = in_order(came.iter().flat_map(|one| one.data().to_vec()).collect());
    for number in 0..COUNT {
        ends.hosts.send(&Packet6::udp(ends.host, ends.hosts.six(ends.remote), &[number]));
    }
    stage.rest(stage.transit()).await;
    let came = stage.drain(Outside, *ends.remote.ip());
    let outward = in_order(came.iter().flat_map(|one| one.data().to_vec()).collect());
    Ok([inward, outward])
}

/// Checks packets whose last hop is the translator.
async fn last_hop(stage: &Stage) -> [Finding; 2] {
    each(last_hop_is_told(stage).await)
}

async fn last_hop_is_told(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let packet = ends.back(Udp).ttl(1);
    let is_in = ends.hosts.inward(&packet, *ends.host.ip()).await.is_some();
    let told = stage.take((Outside, *ends.remote.ip()), |came| came.error().is_some()).await;
    let to_six = match told.and_then(|told| told.error()) {
        _ if is_in => failed("A packet with a TTL of 1 came in."),
        Some((11, 0)) => Ok("A packet with a TTL of 1 was answered with ICMP 11/0.".to_owned()),
        told => failed(format!("A packet with a TTL of 1 was answered with {told:?}.")),
    };
    let is_out = ends.hosts.outward(&ends.out(Udp).hop_limit(1)).await.is_some();
    let told = ends.hosts.take(*ends.host.ip(), |came| came.error().is_some()).await;
    let to_four = match told.and_then(|told| told.error()) {
        _ if is_out => failed("A packet with a hop limit of 1 came out."),
        Some((3, 0)) => {
            Ok("A packet with a hop limit of 1 was answered with ICMPv6 3/0.".to_owned())
        }
        told => failed(format!("A packet with a hop limit of 1 was answered with {told:?}.")),
    };
    Ok([to_six, to_four])
}

/// Checks packets from addresses that no host has.
async fn illegal_sources(stage: &Stage) -> [Finding; 2] {
    each(illegal_sources_are_dropped(stage).await)
}

async fn illegal_sources_are_dropped(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let mut came_in = Vec::new();
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 5], [255; 4]] {
        let from = SocketAddrV4::new(source.into(), 4000);
        let packet = Packet::udp(from, ends.external, DATA);
        if ends.hosts.inward(&packet, *ends.host.ip()).await.is_some() {
            came_in.push(from);
        }
    }
    let mut came_out = Vec::new();
    for source in ["::", "::1", "ff02::5", "::ffff:192.0.2.9"] {
        let from = end6(source.parse().unwrap_or(Ipv6Addr::UNSPECIFIED), 4000);
        let packet = Packet6::udp(from, ends.hosts.six(ends.remote), DATA);
        if ends.hosts.outward(&packet).await.is_some() {
            came_out.push(from);
        }
    }
    Ok([
        match came_in.is_empty() {
            true => Ok("Packets from four illegal addresses were dropped.".to_owned()),
            false => failed(format!("Packets from {came_in:?} came in.")),
        },
        match came_out.is_empty() {
            true => Ok("Packets from four illegal addresses were dropped.".to_owned()),
            false => failed(format!("Packets from {came_out:?} came out.")),
        },
    ])
}

/// A datagram to another inside host by its IPv4 address, as it arrived.
async fn turned(stage: &Stage) -> Result<(Ends<'_>, Ipv6Addr, Received6), Stop> {
    let ends = Ends::new(stage)?;
    let callee = ends.hosts.near(1);
    let external = SocketAddrV4::new(ends.siit.external(*callee.ip()), callee.port());
    let packet = Packet6::udp(ends.host, ends.hosts.six(external), DATA).hop_limit(33);
    match ends.hosts.turned(&packet, *callee.ip()).await {
        Some(came) => Ok((ends, *callee.ip(), came)),
        None => failed(format!("{} did not arrive at {callee}.", describe6(&packet.bytes()))),
    }
}

/// Checks that a mapped host reaches another one by its IPv4 address, and gets the answer.
async fn hairpin(stage: &Stage) -> Finding {
    let (ends, callee, came) = turned(stage).await?;
    let source = ends.hosts.six(ends.external);
    if came.source() != source || *came.destination().ip() != callee || !came.valid() {
        return failed(format!("It arrived as {}.", describe6(&came.bytes)));
    }
    let answer = Packet6::udp(came.destination(), came.source(), DATA);
    match ends.hosts.turned(&answer, *ends.host.ip()).await {
        Some(back) if back.destination() == ends.host && back.valid() => Ok(format!(
            "A datagram to the IPv4 address of another inside host arrived from {source}, and its \
             answer came back."
        )),
        Some(back) => failed(format!("The answer arrived as {}.", describe6(&back.bytes))),
        None => failed("The answer did not turn back."),
    }
}

async fn one_hop(stage: &Stage) -> Finding {
    let (_, _, came) = turned(stage).await?;
    match came.ip().hop_limit() {
        32 => Ok("The hop limit went down by one on the way out and back.".to_owned()),
        hops => failed(format!("The hop limit went from 33 to {hops} on the way out and back.")),
    }
}
