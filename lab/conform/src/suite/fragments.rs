//! Fragments, packets that are too long, and identifications: RFC 4787 sections 10 and 11, RFC
//! 6864, RFC 1812 section 4.2.2.7.

use super::mapping::rival;
use super::{Kind, Trial, one, several};
use crate::flow::{DATA, Transport::Udp};
use crate::packet::{Packet, Received, transport_valid};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{self, Inside, Outside};
use natgate_wire::protocol::UDP;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc4787#REQ-14"], kind: Kind::Quick(one!(any_order)) },
    Trial { requirements: &["rfc4787#REQ-14a"], kind: Kind::Alone(one!(flood)) },
    Trial {
        requirements: &[
            "rfc4787#REQ-13",
            "rfc5508#section-7.1.1-honour",
            "rfc1812#section-5.2.7.1-mtu",
            "rfc6864#section-4.3-df",
        ],
        kind: Kind::Quick(one!(too_big)),
    },
    Trial {
        requirements: &[
            "rfc4787#REQ-13a",
            "rfc5508#section-7.1.1-fragment",
            "rfc1812#section-4.2.2.7",
            "rfc1812#section-4.2.2.7-few",
            "rfc1812#section-4.2.2.7-order",
            "rfc1812#section-5.2.5-fragments",
        ],
        kind: Kind::Quick(several!(cut)),
    },
    Trial {
        requirements: &["rfc1812#section-5.2.6-reassembly"],
        kind: Kind::Quick(one!(not_reassembled)),
    },
    Trial {
        requirements: &[
            "rfc6864#section-5.3.1",
            "rfc6864#section-4.3-unique",
            "rfc7857#section-10",
        ],
        kind: Kind::Quick(one!(identifications_unique)),
    },
    Trial {
        requirements: &["rfc6864#section-4.3-unfragmented", "rfc7857#section-10-whole"],
        kind: Kind::Quick(one!(unfragmented_unique)),
    },
    Trial { requirements: &["rfc6864#section-4.2"], kind: Kind::Quick(one!(copies)) },
    Trial {
        requirements: &[
            "rfc6864#section-4.3-clear",
            "rfc6864#section-4.1-ignore",
            "rfc6864#section-4.1-fragmentation-only",
        ],
        kind: Kind::Quick(one!(whole_datagrams)),
    },
];

/// Largest payload of each of a datagram's three fragments.
const PIECE: usize = 400;

fn datagram(from: SocketAddrV4, to: SocketAddrV4, identification: u16) -> Packet {
    let data: Vec<u8> = (0..1000u16).map(|n| (n * 7) as u8).collect();
    Packet::udp(from, to, &data).identification(identification)
}

/// A reassembled datagram.
struct Whole {
    /// Payload: UDP header and data.
    payload: Vec<u8>,
    /// Received fragments.
    pieces: Vec<Received>,
}

/// Waits until the fragments of a datagram at a host are complete.
async fn assembled(stage: &Stage, at: (Side, Ipv4Addr)) -> Option<Whole> {
    let mut pieces: Vec<Received> = Vec::new();
    while let Some(came) = stage.take(at, |came| came.ip().protocol() == UDP).await {
        pieces.push(came);
        let mut by_offset = BTreeMap::new();
        for piece in &pieces {
            by_offset.insert(piece.ip().fragment_offset(), piece);
        }
        let mut payload = Vec::new();
        for (offset, piece) in &by_offset {
            if *offset == payload.len() {
                payload.extend(piece.payload());
            }
        }
        let ends = by_offset.values().next_back().is_some_and(|last| {
            !last.ip().more_fragments()
                && last.ip().fragment_offset() + last.payload().len() == payload.len()
        });
        if ends {
            return Some(Whole { payload, pieces });
        }
    }
    None
}

impl Whole {
    /// Returns true if only addresses and ports differ from the sent datagram, and its checksum is
    /// correct.
    fn carries(&self, sent: &Packet) -> bool {
        let Some(first) = self.pieces.iter().find(|it| it.ip().fragment_offset() == 0) else {
            return false;
        };
        let (source, destination) = (first.ip().source(), first.ip().destination());
        let whole = Packet::new(
            UDP,
            Ipv4Addr::from_bits(source),
            Ipv4Addr::from_bits(destination),
            self.payload.clone(),
        );
        transport_valid(&whole.bytes()) && self.payload.get(8..) == sent.payload.get(8..)
    }
}

const ORDERS: [([usize; 3], &str); 3] =
    [([0, 1, 2], "in order"), ([2, 1, 0], "in reverse"), ([1, 0, 2], "with the second first")];

/// Checks both directions and three orders.
async fn any_order(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(Udp, host, remote).await?;
    for (number, (order, name)) in ORDERS.iter().enumerate() {
        for (side, from, to, at) in [
            (Inside, host, remote, (Outside, *remote.ip())),
            (Outside, remote, external, (Inside, *host.ip())),
        ] {
            let sent = datagram(from, to, 0x3100 + number as u16);
            let pieces = sent.fragments(PIECE);
            stage.drain(at.0, at.1);
            order.iter().for_each(|index| stage.send(side, &pieces[*index]));
            match assembled(stage, at).await {
                Some(whole) if whole.carries(&sent) => {}
                Some(_) => {
                    return failed(format!("A datagram {name} from {from} came through damaged."));
                }
                None => {
                    return failed(format!(
                        "A datagram whose fragments came {name} from {from} did not come through."
                    ));
                }
            }
        }
    }
    Ok("Datagrams of three fragments passed in both directions, in order and in two other orders."
        .to_owned())
}

/// Sends many incomplete datagrams from either side, then complete ones.
async fn flood(stage: &Stage) -> Finding {
    const MANY: u16 = 3000;
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(Udp, host, remote).await?;
    let (bad, attacker) = (stage.near(1), stage.far(1));
    for identification in 0..MANY {
        for (side, from, to) in [(Inside, bad, attacker), (Outside, attacker, external)] {
            let pieces = datagram(from, to, identification).fragments(PIECE);
            stage.send(side, &pieces[usize::from(identification % 3)]);
        }
    }
    for (side, from, to, at) in [
        (Inside, host, remote, (Outside, *remote.ip())),
        (Outside, remote, external, (Inside, *host.ip())),
    ] {
        stage.drain(at.0, at.1);
        let whole = Packet::udp(from, to, DATA);
        if stage.crosses(side, &whole, at).await.is_none() {
            return failed(format!(
                "After a flood of fragments a whole datagram from {from} was lost."
            ));
        }
        let sent = datagram(from, to, 0x7001);
        sent.fragments(PIECE).iter().for_each(|piece| stage.send(side, piece));
        if !assembled(stage, at).await.is_some_and(|whole| whole.carries(&sent)) {
            return failed(format!(
                "After a flood of fragments a datagram in order from {from} was lost."
            ));
        }
    }
    Ok(format!(
        "While the fragments of {} datagrams that never became whole were there, whole datagrams \
         and fragments in order passed both ways.",
        u32::from(MANY) * 2
    ))
}

/// A packet as long as the inside permits.
fn longest(stage: &Stage, from: SocketAddrV4, to: SocketAddrV4) -> Packet {
    let room = stage.mtu(Inside).min(9000) - 28;
    Packet::udp(from, to, &vec![0x4c; room]).identification(0x6161)
}

/// Ends the test if the outside carries packets as long as the inside's.
async fn needs_smaller_outside(stage: &Stage) -> Result<(), Stop> {
    let packet = longest(stage, stage.near(2), stage.far(2)).whole();
    match stage.outward(&packet).await {
        Some(_) => not_applicable(
            "The outside carries what the inside does: nothing that is too long could be sent.",
        ),
        None => Ok(()),
    }
}

async fn too_big(stage: &Stage) -> Finding {
    needs_smaller_outside(stage).await?;
    let (host, remote) = (stage.near(0), stage.far(0));
    let packet = longest(stage, host, remote).whole();
    stage.send(Inside, &packet);
    let Some(came) = stage.take((Inside, *host.ip()), |came| came.error().is_some()).await else {
        return failed(
            "A packet that is too long and must not be fragmented was dropped without a word.",
        );
    };
    let mtu = came.payload().get(6..8).map_or(0, |mtu| u16::from_be_bytes([mtu[0], mtu[1]]));
    if came.error() != Some((3, 4)) || mtu < 68 || usize::from(mtu) >= stage.mtu(Inside) {
        let (error, len) = (came.error(), packet.bytes().len());
        return failed(format!("{len} bytes were answered by ICMP {error:?} with MTU {mtu}."));
    }
    if !stage.drain(Outside, *remote.ip()).is_empty() {
        return failed("ICMP 3/4 came, but the packet was forwarded as well.");
    }
    // A packet of that MTU passes.
    let fits = Packet::udp(host, remote, &vec![0x4c; usize::from(mtu) - 28]).whole();
    match stage.outward(&fits).await {
        Some(_) => Ok(format!(
            "A packet too long was answered by ICMP 3/4 with MTU {mtu}; one of that length passed."
        )),
        None => {
            failed(format!("ICMP 3/4 said MTU {mtu}, but a packet of that length did not pass."))
        }
    }
}

async fn cut(stage: &Stage) -> [Finding; 6] {
    let all = |stop: Stop| std::array::from_fn(|_| Err(stop.clone()));
    if let Err(stop) = needs_smaller_outside(stage).await {
        return all(stop);
    }
    let (host, remote) = (stage.near(0), stage.far(0));
    let sent = longest(stage, host, remote);
    stage.send(Inside, &sent);
    let Some(whole) = assembled(stage, (Outside, *remote.ip())).await else {
        let why = "A packet that is too long and may be fragmented did not come out.";
        return all(Stop::Failed(why.to_owned()));
    };
    if !whole.carries(&sent) {
        return all(Stop::Failed("It came out in fragments that do not make it up.".to_owned()));
    }
    let offsets: Vec<_> = whole.pieces.iter().map(|it| it.ip().fragment_offset()).collect();
    let lens: Vec<_> = whole.pieces.iter().map(|it| it.bytes.len()).collect();
    let order = match offsets.is_sorted() {
        true => Ok("The fragments came in order.".to_owned()),
        false => failed(format!("The fragments came in the order of the offsets {offsets:?}.")),
    };
    let longest = lens.iter().max().copied().unwrap_or(0);
    let fewest = sent.payload.len().div_ceil((longest - 20) / 8 * 8);
    let few = match lens.len() == fewest {
        true => Ok(format!("There were {fewest} fragments, the fewest that fit {longest} bytes.")),
        false => failed(format!("There were {} fragments where {fewest} would do.", lens.len())),
    };
    let works =
        Ok(format!("{} bytes came out in fragments of {lens:?} bytes.", sent.bytes().len()));
    [works.clone(), works.clone(), works, few, order, reserved_copied(stage, sent).await]
}

/// Checks that each fragment has the reserved flag.
async fn reserved_copied(stage: &Stage, mut sent: Packet) -> Finding {
    const RESERVED: u16 = 0x8000;
    sent.fragment |= RESERVED;
    sent.identification = 0x6262;
    stage.drain(Outside, sent.destination);
    stage.send(Inside, &sent);
    let Some(whole) = assembled(stage, (Outside, sent.destination)).await else {
        return failed("A packet with the reserved flag set did not come out in fragments.");
    };
    match whole.pieces.iter().all(|piece| piece.bytes[6] & 0x80 != 0) {
        true => Ok("The reserved flag was copied into each fragment.".to_owned()),
        false => failed("The reserved flag was not copied into each fragment."),
    }
}

/// Checks that a first fragment passes before the rest is there.
async fn not_reassembled(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    stage.map(Udp, host, remote).await?;
    let pieces = datagram(host, remote, 0x4401).fragments(PIECE);
    match stage.outward(&pieces[0]).await {
        Some(_) => Ok("A first fragment passed before the others came.".to_owned()),
        None => failed("A first fragment was kept until the others came."),
    }
}

/// Identifications of datagrams outside.
async fn identifications(stage: &Stage, packets: &[Packet]) -> Result<Vec<u16>, Stop> {
    let mut found = Vec::new();
    for packet in packets {
        let at = (Outside, packet.destination);
        stage.drain(at.0, at.1);
        let pieces = match packet.payload.len() > PIECE {
            true => packet.fragments(PIECE),
            false => vec![packet.clone()],
        };
        pieces.iter().for_each(|piece| stage.send(Inside, piece));
        let Some(whole) = assembled(stage, at).await else {
            return failed(format!("A datagram from {} did not come out.", packet.source));
        };
        let mut of_it: Vec<u16> =
            whole.pieces.iter().map(|piece| piece.ip().identification()).collect();
        of_it.dedup();
        if of_it.len() != 1 {
            return failed(
                "The fragments of one datagram came out with different identifications.",
            );
        }
        found.push(of_it[0]);
    }
    Ok(found)
}

/// Checks that hosts with equal identifications have different ones outside.
async fn identifications_unique(stage: &Stage) -> Finding {
    let remote = stage.far(0);
    let of_host = |host| datagram(SocketAddrV4::new(host, stage.port()), remote, 0x5151);
    let packets = [stage.inside(0), rival(stage).await?, stage.inside(1)].map(of_host);
    unique(stage, &packets, "fragmented datagrams").await
}

async fn unfragmented_unique(stage: &Stage) -> Finding {
    let remote = stage.far(0);
    let of_host = |host| {
        Packet::udp(SocketAddrV4::new(host, stage.port()), remote, DATA).identification(0x5252)
    };
    let packets = [stage.inside(0), rival(stage).await?, stage.inside(1)].map(of_host);
    unique(stage, &packets, "datagrams that may still be fragmented").await
}

async fn unique(stage: &Stage, packets: &[Packet; 3], what: &str) -> Finding {
    let found = identifications(stage, packets).await?;
    if found[0] == found[1] || found[1] == found[2] || found[0] == found[2] {
        return failed(format!(
            "Three hosts' {what} with one identification came out with {found:04x?}: from one \
             external address, their fragments are mixed up."
        ));
    }
    Ok(format!("Three hosts' {what} with one identification came out with {found:04x?}."))
}

/// Sends one datagram twice.
async fn copies(stage: &Stage) -> Finding {
    let packet = datagram(stage.near(0), stage.far(0), 0x5353);
    let found = identifications(stage, &[packet.clone(), packet]).await?;
    match found[0] == found[1] {
        true => failed(format!(
            "A fragmented datagram and its copy both came out with {:04x}.",
            found[0]
        )),
        false => Ok(format!("A fragmented datagram and its copy came out with {found:04x?}.")),
    }
}

/// Sends datagrams that must not be fragmented, all with one identification.
async fn whole_datagrams(stage: &Stage) -> Finding {
    let (host, remote) = (stage.near(0), stage.far(0));
    let external = stage.map(Udp, host, remote).await?;
    for (side, from, to, at) in [
        (Inside, host, remote, (Outside, *remote.ip())),
        (Outside, remote, external, (Inside, *host.ip())),
    ] {
        for _ in 0..3 {
            let packet = Packet::udp(from, to, DATA).identification(0x5454).whole();
            match stage.crosses(side, &packet, at).await {
                None => return failed("Of datagrams with one identification, not all passed."),
                Some(came) if !came.ip().dont_fragment() => {
                    return failed("The flag that forbids fragmenting was cleared.");
                }
                Some(came) if came.bytes[6..8] != [0x40, 0] => {
                    return failed("A datagram that must not be fragmented was.");
                }
                Some(_) => {}
            }
        }
    }
    Ok("Datagrams that forbid fragmenting, all with one identification, passed with the flag set."
        .to_owned())
}
