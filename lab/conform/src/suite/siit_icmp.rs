//! RFC 7915: ICMP messages of stateless translation.

use super::siit::{Ends, each};
use super::{Kind, Trial, one, several};
use crate::flow::Transport::{Echo, Tcp, Udp};
use crate::packet::{Packet, Received, describe, fill_header_checksum};
use crate::packet6::{Packet6, Received6, describe6};
use crate::stage::{Finding, Stage, Stop, failed};
use natgate_engine::Side::{Inside, Outside};
use natgate_wire::Ipv4;
use natgate_wire::ipv6::{Fragment, HEADER_LEN, next};
use std::net::Ipv6Addr;

pub(super) const TRIALS: &[Trial] = &[
    Trial { requirements: &["rfc7915#section-4.2-type"], kind: Kind::Quick(one!(types_to_six)) },
    Trial {
        requirements: &["rfc7915#section-5.2-type", "rfc7915#section-5.2-checksum"],
        kind: Kind::Quick(one!(types_to_four)),
    },
    Trial {
        requirements: &[
            "rfc7915#section-4.2-quoted",
            "rfc7915#section-4.3-inner",
            "rfc7915#section-4.3-length",
        ],
        kind: Kind::Quick(one!(quoted_to_six)),
    },
    Trial {
        requirements: &[
            "rfc7915#section-5.2-quoted",
            "rfc7915#section-5.3-inner",
            "rfc7915#section-5.3-length",
        ],
        kind: Kind::Quick(one!(quoted_to_four)),
    },
    Trial {
        requirements: &["rfc7915#section-4.2-igmp", "rfc7915#section-4.2-igmp-routing"],
        kind: Kind::Quick(one!(igmp)),
    },
    Trial {
        requirements: &[
            "rfc7915#section-4.2-mtu",
            "rfc7915#section-4.2-mtu-least",
            "rfc7915#section-4.2-plateau",
        ],
        kind: Kind::Quick(several!(mtu_to_six)),
    },
    Trial { requirements: &["rfc7915#section-5.2-mtu"], kind: Kind::Quick(one!(mtu_to_four)) },
    Trial {
        requirements: &["rfc7915#section-4.3-depth", "rfc7915#section-5.3-depth"],
        kind: Kind::Quick(several!(errors_about_errors)),
    },
    Trial {
        requirements: &["rfc7915#section-4.2-extension", "rfc7915#section-5.2-extension"],
        kind: Kind::Quick(several!(extensions)),
    },
    Trial { requirements: &["rfc7915#section-6-6791"], kind: Kind::Quick(one!(foreign_router)) },
];

/// Type and code of an error.
type Kinds = (u8, u8);

/// RFC 7915 section 4.2: errors of ICMP, and the errors of ICMPv6 that take their place.
const TO_SIX: [(Kinds, Option<Kinds>); 24] = [
    ((3, 0), Some((1, 0))),
    ((3, 1), Some((1, 0))),
    ((3, 2), Some((4, 1))),
    ((3, 3), Some((1, 4))),
    ((3, 5), Some((1, 0))),
    ((3, 6), Some((1, 0))),
    ((3, 7), Some((1, 0))),
    ((3, 8), Some((1, 0))),
    ((3, 9), Some((1, 1))),
    ((3, 10), Some((1, 1))),
    ((3, 11), Some((1, 0))),
    ((3, 12), Some((1, 0))),
    ((3, 13), Some((1, 1))),
    ((3, 14), None),
    ((3, 15), Some((1, 1))),
    ((3, 16), None),
    ((4, 0), None),
    ((5, 1), None),
    ((11, 0), Some((3, 0))),
    ((11, 1), Some((3, 1))),
    ((12, 0), Some((4, 0))),
    ((12, 1), None),
    ((12, 2), Some((4, 0))),
    ((12, 3), None),
];

/// Figure 3 of RFC 7915: pointers of ICMP, and those of ICMPv6.
const POINTERS_TO_SIX: [(u8, Option<u32>); 14] = [
    (0, Some(0)),
    (1, Some(1)),
    (2, Some(4)),
    (3, Some(4)),
    (4, None),
    (6, None),
    (7, None),
    (8, Some(7)),
    (9, Some(6)),
    (10, None),
    (12, Some(8)),
    (15, Some(8)),
    (16, Some(24)),
    (19, Some(24)),
];

/// RFC 7915 section 5.2: errors of ICMPv6, and the errors of ICMP that take their place.
const TO_FOUR: [(Kinds, Option<Kinds>); 12] = [
    ((1, 0), Some((3, 1))),
    ((1, 1), Some((3, 10))),
    ((1, 2), Some((3, 1))),
    ((1, 3), Some((3, 1))),
    ((1, 4), Some((3, 3))),
    ((1, 5), None),
    ((3, 0), Some((11, 0))),
    ((3, 1), Some((11, 1))),
    ((4, 0), Some((12, 0))),
    ((4, 1), Some((3, 2))),
    ((4, 2), None),
    ((100, 0), None),
];

/// Figure 6 of RFC 7915: pointers of ICMPv6, and those of ICMP.
const POINTERS_TO_FOUR: [(u32, Option<u8>); 12] = [
    (0, Some(0)),
    (1, Some(1)),
    (2, None),
    (3, None),
    (4, Some(2)),
    (5, Some(2)),
    (6, Some(9)),
    (7, Some(8)),
    (8, Some(12)),
    (23, Some(12)),
    (24, Some(16)),
    (40, None),
];

/// Messages of ICMP between neighbors, without a counterpart, or of unknown types.
const DROPPED: [u8; 9] = [9, 10, 13, 14, 15, 16, 17, 18, 42];

/// The same for ICMPv6.
const DROPPED6: [u8; 7] = [130, 131, 132, 133, 135, 143, 200];

impl Ends<'_> {
    /// An error from the remote host about a packet of the inside host.
    fn error(&self, (kind, code): Kinds, word: [u8; 4], quoted: &[u8]) -> Packet {
        let (from, to) = self.four();
        Packet::icmp(from, to, kind, code, word, quoted)
    }

    /// An error from the inside host about a packet of the remote host.
    fn error6(&self, kinds: Kinds, word: [u8; 4], quoted: &[u8]) -> Packet6 {
        let (from, to) = self.six();
        Packet6::icmp(from, to, kinds, word, quoted)
    }

    async fn told(&self, error: &Packet) -> Option<Received6> {
        self.hosts.inward(error, *self.host.ip()).await
    }
}

/// Checks types, codes and pointers towards IPv6.
async fn types_to_six(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let (from, to) = ends.four();
    for (kind, expected) in [(8, 128), (0, 129)] {
        let came = ends.comes_in(&Packet::query(kind, from, to, 7, b"ping")).await?;
        let message = (came.icmp().map(|it| (it.kind(), it.identifier())), came.valid());
        if message != (Some((expected, 7)), true) {
            return failed(format!("Type {kind} came in as {}.", describe6(&came.bytes)));
        }
    }
    for kind in DROPPED {
        let packet = Packet::query(kind, from, to, 7, &[0; 12]);
        ends.hosts.drain(*ends.host.ip());
        stage.send(Outside, &packet);
        if let Some(came) = ends.hosts.take(*ends.host.ip(), |_| true).await {
            return failed(format!("Type {kind} came in as {}.", describe6(&came.bytes)));
        }
    }
    let seen = ends.comes_out(&ends.out(Udp)).await?;
    for (kinds, expected) in TO_SIX {
        let told = ends.told(&ends.error(kinds, [0; 4], &seen.bytes)).await;
        if told.as_ref().is_some_and(|told| !told.valid()) {
            return failed(format!("The checksum of {kinds:?} is wrong as ICMPv6."));
        }
        let told = told.and_then(|told| told.error());
        if told != expected {
            return failed(format!("{kinds:?} came in as {told:?} instead of {expected:?}."));
        }
    }
    for (pointer, expected) in POINTERS_TO_SIX {
        let told = ends.told(&ends.error((12, 0), [pointer, 0, 0, 0], &seen.bytes)).await;
        let told = told.and_then(|told| Some(told.icmp()?.word()));
        if told != expected {
            return failed(format!(
                "The pointer {pointer} came in as {told:?} instead of {expected:?}."
            ));
        }
    }
    let told = ends.told(&ends.error((3, 2), [0; 4], &seen.bytes)).await;
    match told.and_then(|told| Some(told.icmp()?.word())) {
        Some(6) => Ok(format!(
            "Echo messages, {} kinds of errors and {} pointers have the types, codes and values \
             of section 4.2, and {} other types were dropped.",
            TO_SIX.len(),
            POINTERS_TO_SIX.len(),
            DROPPED.len()
        )),
        pointer => failed(format!("ICMP 3/2 came in with the pointer {pointer:?} instead of 6.")),
    }
}

/// Checks types, codes and pointers towards IPv4.
async fn types_to_four(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let (from, to) = ends.six();
    for (kind, expected) in [(128, 8), (129, 0)] {
        let came = ends.comes_out(&Packet6::query(kind, from, to, 7, b"ping")).await?;
        let message = (came.icmp().map(|it| (it.kind(), it.identifier())), came.valid());
        if message != (Some((expected, 7)), true) {
            return failed(format!("Type {kind} came out as {}.", describe(&came.bytes)));
        }
    }
    for kind in DROPPED6 {
        let packet = Packet6::query(kind, from, to, 7, &[0; 16]);
        stage.drain(Outside, *ends.remote.ip());
        ends.hosts.send(&packet);
        if let Some(came) = stage.take((Outside, *ends.remote.ip()), |_| true).await {
            return failed(format!("Type {kind} came out as {}.", describe(&came.bytes)));
        }
    }
    let seen = ends.comes_in(&ends.back(Udp)).await?;
    for (kinds, expected) in TO_FOUR {
        let told = ends.hosts.outward(&ends.error6(kinds, [0; 4], &seen.bytes)).await;
        if told.as_ref().is_some_and(|told| !told.valid()) {
            return failed(format!("The checksum of {kinds:?} is wrong as ICMP."));
        }
        let told = told.and_then(|told| told.error());
        if told != expected {
            return failed(format!("{kinds:?} came out as {told:?} instead of {expected:?}."));
        }
    }
    for (pointer, expected) in POINTERS_TO_FOUR {
        let error = ends.error6((4, 0), pointer.to_be_bytes(), &seen.bytes);
        let told = ends.hosts.outward(&error).await;
        let told = told.and_then(|told| told.payload().get(4).copied());
        if told != expected {
            return failed(format!(
                "The pointer {pointer} came out as {told:?} instead of {expected:?}."
            ));
        }
    }
    Ok(format!(
        "Echo messages, {} kinds of errors and {} pointers have the types, codes and values of \
         section 5.2, and {} other types were dropped.",
        TO_FOUR.len(),
        POINTERS_TO_FOUR.len(),
        DROPPED6.len()
    ))
}

/// Checks that an error quotes the packet as the inside host sent it, but for the hops.
async fn quoted_to_six(stage: &Stage) -> Finding {
    for transport in [Udp, Tcp, Echo] {
        let ends = Ends::new(stage)?;
        let sent = ends.out(transport).class(0x2e);
        let seen = ends.comes_out(&sent).await?;
        let Some(told) = ends.told(&ends.error((3, 3), [0; 4], &seen.bytes)).await else {
            return failed("An error about a packet did not come in.");
        };
        let expected = sent.hop_limit(seen.ip().ttl()).bytes();
        let len = usize::from(told.ip().payload_len());
        if told.quoted() != expected || !told.valid() || len != 8 + expected.len() {
            return failed(format!("The error came in as {}.", describe6(&told.bytes)));
        }
    }
    Ok("Errors about packets of UDP, TCP and ICMP quote the packets byte by byte as the host sent \
        them, with the hop limit that the error had."
        .to_owned())
}

/// The same towards IPv4. The identification is free.
async fn quoted_to_four(stage: &Stage) -> Finding {
    for transport in [Udp, Tcp, Echo] {
        let ends = Ends::new(stage)?;
        let sent = ends.back(transport).tos(0x2e);
        let seen = ends.comes_in(&sent).await?;
        let told = ends.hosts.outward(&ends.error6((1, 4), [0; 4], &seen.bytes)).await;
        let Some(told) = told else { return failed("An error about a packet did not come out.") };
        if !is_quoted(&told, &sent, seen.ip().hop_limit()) {
            return failed(format!("The error came out as {}.", describe(&told.bytes)));
        }
    }
    Ok("Errors about packets of UDP, TCP and ICMP quote the packets as the remote host sent them, \
        with the TTL that the error had."
        .to_owned())
}

/// Returns true if a correct error quotes a packet with this TTL.
fn is_quoted(told: &Received, sent: &Packet, ttl: u8) -> bool {
    let quoted = told.quoted();
    let Ok(view) = Ipv4::new_checked(quoted) else { return false };
    let ends = (view.source(), view.destination());
    told.valid()
        && view.checksum_valid()
        && ends == (sent.source.to_bits(), sent.destination.to_bits())
        && (view.protocol(), view.ttl(), quoted[1]) == (sent.protocol, ttl, sent.tos)
        && view.payload() == sent.payload
        && quoted.len() == 20 + sent.payload.len()
}

/// Checks messages of IGMP between neighbors and between routers.
async fn igmp(stage: &Stage) -> Finding {
    const IGMP: u8 = 2;
    let ends = Ends::new(stage)?;
    let (from, to) = ends.four();
    for kind in [0x11, 0x12, 0x16, 0x17, 0x13, 0x14] {
        let mut message = vec![kind, 0, 0, 0, 224, 1, 2, 3];
        let sum = natgate_wire::checksum::checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let packet = Packet::new(IGMP, from, to, message);
        if ends.hosts.inward(&packet, *ends.host.ip()).await.is_some() {
            return failed(format!("A message of IGMP of type {kind:#x} came in."));
        }
    }
    Ok("Messages of IGMP of six types were dropped.".to_owned())
}

/// Checks the MTU of a packet too big message.
async fn mtu_to_six(stage: &Stage) -> [Finding; 3] {
    each(mtus_to_six(stage).await)
}

async fn mtus_to_six(stage: &Stage) -> Result<[Finding; 3], Stop> {
    let ends = Ends::new(stage)?;
    let links = stage.mtu(Inside).min(stage.mtu(Outside) + 20) as u32;
    let mut quoted = ends.comes_out(&ends.out(Udp)).await?.bytes;
    // A quotation shows how long the packet was.
    quoted[2..4].copy_from_slice(&1500_u16.to_be_bytes());
    fill_header_checksum(&mut quoted);
    let mut findings = Vec::new();
    // An MTU of zero stands for 1492, the plateau of RFC 1191 below 1500, or for 20 bytes more.
    for (mtu, lowest, highest) in [(1300, 1320, 1320), (600, 1280, 1280), (0_u16, 1492, 1512)] {
        let [high, low] = mtu.to_be_bytes();
        let told = ends.told(&ends.error((3, 4), [0, 0, high, low], &quoted)).await;
        let range = links.min(lowest)..=links.min(highest);
        findings.push(match told.and_then(|told| Some((told.error()?, told.icmp()?.word()))) {
            Some(((2, 0), told)) if range.contains(&told) => {
                Ok(format!("An MTU of {mtu} came in as {told}."))
            }
            told => failed(format!("An MTU of {mtu} came in as {told:?} instead of {range:?}.")),
        });
    }
    Ok([findings.remove(0), findings.remove(0), findings.remove(0)])
}

/// Checks the MTU of ICMP 3/4, with and without a fragment header in the quoted packet.
async fn mtu_to_four(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let links = stage.mtu(Outside).min(stage.mtu(Inside) - 20) as u16;
    let whole = Packet6::udp(ends.hosts.six(ends.remote), ends.host, &[7; 64]);
    let mut header = [0; 8];
    Fragment { next_header: 0, offset: 0, more: true, identification: 7 }.write(&mut header);
    let part = whole.clone().extension(next::FRAGMENT, &header);
    for (quoted, less) in [(whole, 20), (part, 28)] {
        let error = ends.error6((2, 0), 1350_u32.to_be_bytes(), &quoted.bytes());
        let told = ends.hosts.outward(&error).await;
        let word = told.as_ref().and_then(|told| told.payload().get(6..8));
        let mtu = word.map(|word| u16::from_be_bytes([word[0], word[1]]));
        let expected = links.min(1350 - less);
        if told.as_ref().and_then(Received::error) != Some((3, 4)) || mtu != Some(expected) {
            return failed(format!(
                "An MTU of 1350 came out as {mtu:?} instead of {expected} about {}.",
                describe6(&quoted.bytes())
            ));
        }
    }
    Ok("An MTU of 1350 came out 20 less, and 28 less about a packet with a fragment header."
        .to_owned())
}

/// Checks errors about errors.
async fn errors_about_errors(stage: &Stage) -> [Finding; 2] {
    each(errors_about_errors_are_dropped(stage).await)
}

async fn errors_about_errors_are_dropped(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let (remote, external) = ends.four();
    let seen = ends.comes_out(&ends.out(Udp)).await?;
    // The inside host is said to have sent an error about a datagram of the remote host.
    let inner = Packet::icmp(external, remote, 3, 3, [0; 4], &ends.back(Udp).bytes()).bytes();
    let came = ends.told(&ends.error((3, 3), [0; 4], &inner)).await;
    let to_six = match came {
        Some(_) => failed("An error about an error came in."),
        None => Ok("An error about an error was dropped.".to_owned()),
    };
    let (host, remote) = ends.six();
    let inner = Packet6::icmp(remote, host, (1, 4), [0; 4], &ends.out(Udp).bytes()).bytes();
    let came = ends.hosts.outward(&ends.error6((1, 4), [0; 4], &inner)).await;
    let to_four = match came {
        Some(_) => failed("An error about an error came out."),
        None => Ok("An error about an error was dropped.".to_owned()),
    };
    // Errors about the datagrams themselves pass.
    match ends.told(&ends.error((3, 3), [0; 4], &seen.bytes)).await {
        Some(_) => Ok([to_six, to_four]),
        None => failed("An error about a datagram did not come in."),
    }
}

/// An extension structure of RFC 4884 with one object.
const EXTENSION: [u8; 12] = [0x20, 0, 0xe4, 0xef, 0, 8, 0xf7, 1, 1, 2, 3, 4];

/// Quoted bytes before an extension.
const QUOTED: usize = 128;

/// Checks extensions and their place, which the length attribute tells.
async fn extensions(stage: &Stage) -> [Finding; 2] {
    each(extensions_move(stage).await)
}

async fn extensions_move(stage: &Stage) -> Result<[Finding; 2], Stop> {
    let ends = Ends::new(stage)?;
    let out = Packet6::udp(ends.host, ends.hosts.six(ends.remote), &[7; 200]);
    let seen = ends.comes_out(&out).await?;
    let body = [&seen.bytes[..QUOTED], &EXTENSION].concat();
    let told = ends.told(&ends.error((11, 0), [0, (QUOTED / 4) as u8, 0, 0], &body)).await;
    let to_six = match told {
        None => failed("An error with an extension did not come in."),
        Some(told) => {
            let len = usize::from(told.transport()[4]) * 8;
            let quoted = told.quoted();
            let is_right = quoted.get(len..) == Some(&EXTENSION[..]) && len >= QUOTED + 20;
            let is_shown = quoted.get(HEADER_LEN..QUOTED + 20) == Some(&out.payload[..108]);
            moved(is_right && is_shown && told.valid(), len)
        }
    };
    let back = Packet::udp(ends.remote, ends.external, &[7; 200]);
    let seen = ends.comes_in(&back).await?;
    let body = [&seen.bytes[..QUOTED], &EXTENSION].concat();
    let error = ends.error6((3, 0), [(QUOTED / 8) as u8, 0, 0, 0], &body);
    let to_four = match ends.hosts.outward(&error).await {
        None => failed("An error with an extension did not come out."),
        Some(told) => {
            let len = usize::from(told.payload()[5]) * 4;
            let quoted = told.quoted();
            // RFC 4884 section 4.6: 128 bytes at least before an extension of ICMP.
            let is_right = quoted.get(len..) == Some(&EXTENSION[..]) && len >= QUOTED;
            let is_shown = quoted.get(20..QUOTED - 20) == Some(&back.payload[..88]);
            moved(is_right && is_shown && told.valid(), len)
        }
    };
    Ok([to_six, to_four])
}

fn moved(is_right: bool, len: usize) -> Finding {
    match is_right {
        true => Ok(format!("The extension is behind {len} bytes, as the length attribute says.")),
        false => failed(format!("The length attribute says {len} bytes, or the bytes are wrong.")),
    }
}

/// Checks an error from a router inside, whose address has no translation.
async fn foreign_router(stage: &Stage) -> Finding {
    let ends = Ends::new(stage)?;
    let seen = ends.comes_in(&ends.back(Udp)).await?;
    let router = Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, 1);
    let (_, remote) = ends.six();
    let error = Packet6::icmp(router, remote, (3, 0), [0; 4], &seen.bytes);
    match ends.hosts.outward(&error).await {
        Some(told) if told.error() == Some((11, 0)) && told.valid() => Ok(format!(
            "An error from an address without translation came out from {}.",
            told.source().ip()
        )),
        Some(told) => failed(format!("It came out as {}.", describe(&told.bytes))),
        None => failed("An error from an address without translation did not come out."),
    }
}
