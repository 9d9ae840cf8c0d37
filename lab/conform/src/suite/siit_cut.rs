//! RFC 7915: fragments, lengths, IPv4 options and IPv6 extension headers of stateless translation.

use super::siit::{Ends, each};
use super::{Kind, Trial, one, several};
use crate::flow::{DATA, Transport::Udp};
use crate::packet::{MORE_FRAGMENTS, Packet};
use crate::packet6::{Packet6, Received6, describe6};
use crate::stage::{Finding, Stage, Stop, failed, not_applicable};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::ipv6::{Fragment, next};
use natgate_wire::protocol::{TCP, UDP};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        requirements: &["rfc7915#section-4-mtu", "rfc7915#section-4.1-cut"],
        kind: Kind::Quick(one!(cut_to_six)),
    },
    Trial { requirements: &["rfc7915#section-4.1-df"], kind: Kind::Quick(one!(too_long)) },
    Trial {
        requirements: &["rfc7915#section-4.1-fragment-next-header"],
        kind: Kind::Quick(one!(fragment_to_six)),
    },
    Trial {
        requirements: &["rfc7915#section-5.1.1-offset", "rfc7915#section-5.1.1-total-length"],
        kind: Kind::Quick(one!(fragment_to_four)),
    },
    Trial {
        requirements: &["rfc7915#section-5.1.1-extension"],
        kind: Kind::Quick(one!(extension_behind_fragment)),
    },
    Trial {
        requirements: &["rfc7915#section-4.5-zero-first"],
        kind: Kind::Quick(one!(first_without_checksum)),
    },
    Trial { requirements: &["rfc7915#section-4.1-options"], kind: Kind::Quick(one!(options)) },
    Trial {
        requirements: &[
            "rfc7915#section-4.1-source-route",
            "rfc7915#section-4.1-source-route-error",
        ],
        kind: Kind::Quick(several!(source_route)),
    },
    Trial { requirements: &["rfc7915#section-5.1-extension"], kind: Kind::Quick(one!(extensions)) },
    Trial {
        requirements: &["rfc7915#section-5.1-segments", "rfc7915#section-5.1-segments-error"],
        kind: Kind::Quick(several!(segments_left)),
    },
];

/// Lowest MTU of IPv6 (RFC 8200 section 5).
const LOWEST: usize = 1280;

/// Pads to a multiple of eight bytes, as options of IPv6.
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

/// Checks a datagram without DF that is longer than 1,280 bytes as IPv6.
async fn cut_to_six(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let longest = stage.mtu(Inside).min(stage.mtu(Outside));
    let data: Vec<u8> = (0..longest - 28).map(|at| at as u8).collect();
    if data.len() + 48 <= LOWEST {
        return not_applicable("The links carry no packet of more than 1,280 bytes.");
    }
    let packet = Packet::udp(ends.remote, ends.external, &data).identification(0x1234);
    ends.hosts.drain(*ends.host.ip());
    stage.send(Outside, &packet);
    stage.rest(stage.transit()).await;
    let came = ends.hosts.drain(*ends.host.ip());
    if let Some(long) = came.iter().find(|one| one.bytes.len() > LOWEST) {
        return failed(format!("{} is longer than 1,280 bytes.", describe6(&long.bytes)));
    }
    let (mut whole, mut is_whole) = (Vec::<u8>::new(), false);
    for piece in &came {
        let Some(fragment) = piece.fragment() else {
            return failed(format!("{} has no fragment header.", describe6(&piece.bytes)));
        };
        if fragment.identification != 0x1234 || fragment.offset != whole.len() {
            return failed(format!("{fragment:?} does not continue the datagram 0x1234."));
        }
        whole.extend(piece.transport());
        is_whole = !fragment.more;
    }
    let expected = Packet6::udp(ends.hosts.six(ends.remote), ends.host, &data).payload;
    match is_whole && whole == expected {
        true => Ok(format!(
            "A datagram of {longest} bytes came in as {} fragments of at most 1,280 bytes.",
            came.len()
        )),
        false => failed("The fragments do not make up the datagram."),
    }
}

/// Checks a packet with DF that is longer than the inside's MTU as IPv6.
async fn too_long(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let inside = stage.mtu(Inside);
    let len = stage.mtu(Outside).min(inside + 20);
    if len + 20 <= inside {
        return not_applicable("The outside carries no packet that is too long for the inside.");
    }
    let packet = Packet::udp(ends.remote, ends.external, &vec![0x5a; len - 28]).whole();
    if ends.hosts.inward(&packet, *ends.host.ip()).await.is_some() {
        return failed(format!("A packet of {len} bytes with DF came in."));
    }
    let remote = (Outside, *ends.remote.ip());
    let told = stage.take(remote, |came| came.error() == Some((3, 4))).await;
    match told.and_then(|told| told.payload().get(6..8).map(|mtu| mtu.to_vec())) {
        None => failed("It was not answered with ICMP 3/4."),
        Some(mtu) if mtu == ((inside - 20) as u16).to_be_bytes() => {
            Ok(format!("It was answered with ICMP 3/4 and an MTU of {}.", inside - 20))
        }
        Some(mtu) => failed(format!("The MTU of ICMP 3/4 has the bytes {mtu:?}.")),
    }
}

/// Payload of a later fragment.
const PART: [u8; 32] = [0xc8; 32];

/// A fragment header that came, without the reserved bits.
fn shown(came: &Received6) -> Option<(u8, usize, bool, u32)> {
    came.fragment().map(|it| (it.next_header, it.offset, it.more, it.identification))
}

/// Checks the fragment header of fragments. Fragments of ICMP have no translation (RFC 7915 section
/// 1.2).
async fn fragment_to_six(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let (from, to) = ends.four();
    for protocol in [UDP, TCP] {
        let mut packet = Packet::new(protocol, from, to, PART.to_vec());
        // A later fragment, whose transport header is elsewhere, and more to follow.
        (packet.fragment, packet.identification) = (MORE_FRAGMENTS | 100, 0xbeef);
        let came = ends.hosts.inward(&packet, *ends.host.ip()).await;
        let Some(came) = came else { return failed("A later fragment did not come in.") };
        let wanted = Some((protocol, 800, true, 0xbeef));
        if shown(&came) != wanted || came.transport() != PART {
            return failed(format!(
                "The fragment header is {:?} instead of {wanted:?}.",
                shown(&came)
            ));
        }
    }
    Ok("Next header, offset, flag and identification of later fragments of UDP and TCP follow \
        from the IPv4 header."
        .to_owned())
}

/// Checks the header of a fragment behind other extension headers.
async fn fragment_to_four(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let (from, to) = ends.six();
    for protocol in [UDP, TCP] {
        let mut header = [0; 8];
        let identification = 0xabcd_1234;
        let fragment = Fragment { next_header: 0, offset: 800, more: true, identification };
        fragment.write(&mut header);
        let packet = Packet6::new(protocol, from, to, PART.to_vec())
            .extension(next::DESTINATION, &PADDING)
            .extension(next::FRAGMENT, &header);
        let came = ends.hosts.outward(&packet).await;
        let Some(came) = came else { return failed("A later fragment did not come out.") };
        let view = came.ip();
        let fields = (view.protocol(), view.fragment_offset(), view.more_fragments());
        let rest = (view.total_len(), view.identification(), view.dont_fragment());
        if fields != (protocol, 800, true) || rest != (52, 0x1234, false) {
            return failed(format!(
                "Protocol, offset and flag are {fields:?}; length, identification and DF {rest:?}."
            ));
        }
    }
    Ok("Offset, flag and the low half of the identification are copied; the length leaves the \
        extension headers out."
        .to_owned())
}

/// Checks a fragment whose payload begins with an extension header.
async fn extension_behind_fragment(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let mut header = [0; 8];
    Fragment { next_header: 0, offset: 0, more: true, identification: 7 }.write(&mut header);
    let packet = ends.out(Udp);
    let packet = packet.extension(next::FRAGMENT, &header).extension(next::DESTINATION, &PADDING);
    match ends.hosts.outward(&packet).await {
        Some(_) => failed("A fragment with an extension header in it came out."),
        None => Ok("A fragment with an extension header in it was dropped.".to_owned()),
    }
}

/// Checks the first fragment of a datagram without a checksum.
async fn first_without_checksum(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let mut packet = Packet::udp(ends.remote, ends.external, &[7; 100]);
    packet.payload[6..8].fill(0);
    let first = packet.fragments(48).swap_remove(0);
    match ends.hosts.inward(&first, *ends.host.ip()).await {
        Some(_) => failed("It came in."),
        None => Ok("The first fragment of a datagram without a checksum was dropped.".to_owned()),
    }
}

/// Checks that options do not hinder a packet, and vanish.
async fn options(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    // No operation, then record route with room for one address, then an unknown option.
    let options = [1, 7, 7, 4, 0, 0, 0, 0, 0x9e, 4, 0, 0];
    let came = ends.comes_in(&ends.back(Udp).options(&options)).await?;
    let is_right = came.bytes.len() == 40 + came.transport().len() && came.data() == DATA;
    match is_right && came.valid() {
        true => Ok("A packet with options came in without them.".to_owned()),
        false => failed(format!("It came in as {}.", describe6(&came.bytes))),
    }
}

/// Checks a loose source route that is not used up.
async fn source_route(stage: &Stage) -> [Finding; 2] {
    each(source_route_ends(stage).await)
}

async fn source_route_ends(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let packet = ends.back(Udp).options(&[131, 7, 4, 192, 0, 2, 99, 0]);
    let is_in = ends.hosts.inward(&packet, *ends.host.ip()).await.is_some();
    let dropped = match is_in {
        true => failed("A packet with a source route came in."),
        false => Ok("A packet with a source route was dropped.".to_owned()),
    };
    let remote = (Outside, *ends.remote.ip());
    let told = match stage.take(remote, |came| came.error() == Some((3, 5))).await {
        Some(_) => Ok("Its sender got ICMP 3/5.".to_owned()),
        None => failed("Its sender got no ICMP 3/5."),
    };
    Ok([dropped, told])
}

/// Checks that extension headers are skipped.
async fn extensions(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    // A routing header of an experimental type without segments left.
    let routing = [0, 0, 253, 0, 0, 0, 0, 0];
    let packet = ends
        .out(Udp)
        .extension(next::HOP_BY_HOP, &PADDING)
        .extension(next::DESTINATION, &PADDING)
        .extension(next::ROUTING, &routing);
    let came = ends.comes_out(&packet).await?;
    let is_right = came.ip().header_len() == 20 && came.data() == DATA;
    match is_right && came.valid() {
        true => {
            Ok("Hop-by-hop and destination options and a used routing header were skipped."
                .to_owned())
        }
        false => failed("The packet came out damaged."),
    }
}

/// Checks a routing header with segments left.
async fn segments_left(stage: &Stage) -> [Finding; 2] {
    each(segments_left_are_told(stage).await)
}

async fn segments_left_are_told(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let routing = [0, 0, 253, 1, 0, 0, 0, 0];
    let packet =
        ends.out(Udp).extension(next::DESTINATION, &PADDING).extension(next::ROUTING, &routing);
    let dropped = match ends.hosts.outward(&packet).await {
        Some(_) => failed("It was translated."),
        None => Ok("A packet with a routing header that has segments left was dropped.".to_owned()),
    };
    // The header of IPv6, the destination options, and three bytes of the routing header.
    const PLACE: u32 = 40 + 8 + 3;
    let host = *ends.host.ip();
    let told = ends.hosts.take(host, |came| came.error() == Some((4, 0))).await;
    let told = match told.and_then(|told| Some(told.icmp()?.word())) {
        Some(PLACE) => Ok(format!("Its sender got ICMPv6 4/0 with the pointer {PLACE}.")),
        Some(pointer) => failed(format!("The pointer is {pointer} instead of {PLACE}.")),
        None => failed("Its sender got no ICMPv6 4/0."),
    };
    Ok([dropped, told])
}
