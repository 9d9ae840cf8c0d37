//! Random packets of both families, right and broken.

use crate::rng::Rng;
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Offset of a transport checksum.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        1 | 58 => Some(2),
        6 => Some(16),
        17 | 33 | 136 => Some(6),
        _ => None,
    }
}

/// Fills in a transport checksum over a pseudo header with this sum.
fn seal(protocol: u8, pseudo: u32, payload: &mut [u8]) {
    let Some(at) = checksum_at(protocol).filter(|at| payload.len() >= at + 2) else { return };
    put(payload, at, 0);
    let value = match !fold(sum(payload, pseudo)) {
        0 if matches!(protocol, 17 | 136) => 0xffff,
        value => value,
    };
    put(payload, at, value);
}

fn seal4(protocol: u8, ends: (u32, u32), payload: &mut [u8]) {
    let pseudo = match protocol {
        1 => 0,
        _ => pseudo_header(ends.0, ends.1, protocol, payload.len() as u16),
    };
    seal(protocol, pseudo, payload);
}

fn seal6(protocol: u8, ends: (u128, u128), payload: &mut [u8]) {
    seal(protocol, pseudo_header_v6(ends.0, ends.1, protocol, payload.len() as u32), payload);
}

/// A transport header and its payload, without checksum.
fn payload(rng: &mut Rng, protocol: u8) -> Vec<u8> {
    let most = rng.one_of(&[20, 40, 40, 200, 1300, 1600, 4000]);
    let len = if rng.chance(3) { rng.below(most) } else { 28 + rng.below(most) };
    let mut bytes = rng.bytes(len);
    // Few ports, so that packets meet.
    if len >= 8 {
        put(&mut bytes, 0, rng.one_of(&[80, 500, 5000, 5001]));
        put(&mut bytes, 2, rng.one_of(&[80, 443, 500, 5000, 5001]));
    }
    match protocol {
        17 if len >= 8 && !rng.chance(8) => put(&mut bytes, 4, len as u16),
        6 if len >= 20 => {
            bytes[12] = if rng.chance(8) { bytes[12] } else { 0x50 };
            bytes[13] = rng.one_of(&[2, 2, 16, 18, 17, 4, 0x18]);
        }
        1 | 58 if len >= 8 => {
            let echo = if protocol == 1 { [8, 0] } else { [128, 129] };
            let any = rng.next() as u8;
            bytes[0] = if rng.chance(8) { any } else { rng.one_of(&echo) };
            bytes[1] = 0;
            put(&mut bytes, 4, rng.one_of(&[7, 500, 5000]));
        }
        _ => {}
    }
    bytes
}

fn protocol(rng: &mut Rng, icmp: u8) -> u8 {
    let any = rng.next() as u8;
    rng.one_of(&[
        6, 6, 6, 17, 17, 17, 17, icmp, icmp, icmp, 33, 136, 132, 47, 50, 51, 135, 139, any,
    ])
}

fn hops(rng: &mut Rng) -> u8 {
    rng.one_of(&[64, 64, 64, 64, 64, 64, 255, 2, 1, 0])
}

/// An IPv4 packet with a payload and a right header checksum.
fn wrap4(rng: &mut Rng, ends: (u32, u32), protocol: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let options: Vec<u8> = match rng.below(24) {
        0 => vec![131, 7, rng.one_of(&[4, 8]), 1, 2, 3, 4, 0],
        1 => vec![1, 1, 1, 0],
        2 => rng.bytes(8),
        _ => vec![],
    };
    let header_len = 20 + options.len();
    let mut bytes = vec![0; header_len];
    let mut header = Ipv4::init(&mut bytes[..], header_len);
    header.set_total_len((header_len + payload.len()) as u16);
    header.set_service(rng.next() as u8);
    header.set_identification(rng.next() as u16);
    header.set_fragment_field(field);
    header.set_ttl(hops(rng));
    header.set_protocol(protocol);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    bytes[20..].copy_from_slice(&options);
    Ipv4::new_header_checked(&mut bytes[..]).expect("a header").fill_checksum();
    bytes.extend(payload);
    bytes
}

/// An IPv4 packet that is no ICMP error.
pub(crate) fn four(rng: &mut Rng, ends: (u32, u32)) -> Vec<u8> {
    let protocol = protocol(rng, 1);
    let mut payload = payload(rng, protocol);
    seal4(protocol, ends, &mut payload);
    if protocol == 17 && payload.len() >= 8 && rng.chance(4) {
        put(&mut payload, 6, 0);
    }
    let any = rng.next() as u16 & 0x7fff;
    let field = rng.one_of(&[0, 0, 0, 0x4000, 0x4000, 0x4000, 0x2000, 0x2010, 0x0020, any]);
    wrap4(rng, ends, protocol, field, &payload)
}

/// An IPv6 packet with a payload.
pub(crate) fn wrap6(
    rng: &mut Rng,
    ends: (u128, u128),
    protocol: u8,
    fragment: Option<Fragment>,
    payload: &[u8],
) -> Vec<u8> {
    // Types of extension headers from the first to the last, and their bytes.
    let mut chain: Vec<(u8, Vec<u8>)> = Vec::new();
    let count = if rng.chance(6) { 1 + rng.below(2) } else { 0 };
    for _ in 0..count {
        let len = rng.below(2) * 8 + 8;
        let mut header = rng.bytes(len);
        let kind = rng.one_of(&[0, 60, 60, 43]);
        header[1] = (len / 8 - 1) as u8;
        header[3] = if kind == 43 { rng.one_of(&[0, 0, 1]) } else { header[3] };
        chain.push((kind, header));
    }
    if let Some(fragment) = fragment {
        let mut header = vec![0; 8];
        fragment.write(&mut header);
        chain.push((44, header));
    }
    if rng.chance(64) {
        chain.push((rng.one_of(&[60, 0, 43]), vec![0; 8]));
    }
    let mut next = protocol;
    for (kind, header) in chain.iter_mut().rev() {
        header[0] = next;
        next = *kind;
    }
    let rest: Vec<u8> = chain.into_iter().flat_map(|(_, header)| header).collect();
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_traffic_class(rng.next() as u8);
    header.set_flow_label(rng.next() as u32);
    header.set_payload_len((rest.len() + payload.len()) as u16);
    header.set_next_header(next);
    header.set_hop_limit(hops(rng));
    header.set_source(ends.0);
    header.set_destination(ends.1);
    bytes.extend(rest);
    bytes.extend(payload);
    bytes
}

/// A right IPv6 packet of UDP or an echo request, without extension headers.
pub(crate) fn plain6(rng: &mut Rng, ends: (u128, u128)) -> Vec<u8> {
    let protocol = rng.one_of(&[17, 58]);
    let len = 8 + rng.below(1000);
    let mut payload = rng.bytes(len);
    if protocol == 17 {
        put(&mut payload, 4, len as u16);
    } else {
        (payload[0], payload[1]) = (128, 0);
    }
    seal6(protocol, ends, &mut payload);
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(len as u16);
    header.set_next_header(protocol);
    header.set_hop_limit(64);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    bytes.extend(payload);
    bytes
}

/// A right IPv4 packet of UDP or an echo request, without options.
pub(crate) fn plain4(rng: &mut Rng, ends: (u32, u32)) -> Vec<u8> {
    let protocol = rng.one_of(&[17, 1]);
    let len = 8 + rng.below(1000);
    let mut payload = rng.bytes(len);
    if protocol == 17 {
        put(&mut payload, 4, len as u16);
    } else {
        (payload[0], payload[1]) = (8, 0);
    }
    seal4(protocol, ends, &mut payload);
    let mut bytes = vec![0; 20];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len((20 + len) as u16);
    header.set_ttl(64);
    header.set_protocol(protocol);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    header.fill_checksum();
    bytes.extend(payload);
    bytes
}

/// Has the network take a hop of an IPv4 packet.
pub(crate) fn take_hop(bytes: &mut [u8]) {
    bytes[8] -= 1;
    Ipv4::new_checked(bytes).expect("a packet").fill_checksum();
}

fn fragment(rng: &mut Rng, next_header: u8) -> Option<Fragment> {
    let any = rng.next() as usize % 8192 * 8;
    let offset = rng.one_of(&[0, 0, 8, 64, any]);
    let (more, identification) = (rng.chance(2), rng.next() as u32);
    let fragment = Fragment { next_header, offset, more, identification };
    rng.chance(5).then_some(fragment)
}

/// An IPv6 packet that is no ICMPv6 error.
pub(crate) fn six(rng: &mut Rng, ends: (u128, u128)) -> Vec<u8> {
    let protocol = protocol(rng, 58);
    let mut payload = payload(rng, protocol);
    seal6(protocol, ends, &mut payload);
    if protocol == 17 && payload.len() >= 8 && rng.chance(8) {
        put(&mut payload, 6, 0);
    }
    let fragment = fragment(rng, protocol);
    wrap6(rng, ends, protocol, fragment, &payload)
}

/// A message about a packet, with the extensions of RFC 4884 now and then.
fn about(rng: &mut Rng, kind: u8, code: u8, quoted: &[u8], (at, unit): (usize, usize)) -> Vec<u8> {
    let any = rng.next() as u32;
    let word = rng.one_of(&[0, 0, 576, 1280, 1300, 1480, 1500, 9000, 6 << 24, 24, 8, any]);
    let len = match rng.below(3) {
        0 => rng.below(quoted.len() + 1),
        _ => quoted.len().min(rng.one_of(&[28, 48, 128, 548, 1232])),
    };
    let mut message = [&[kind, code, 0, 0][..], &u32::to_be_bytes(word), &quoted[..len]].concat();
    if rng.chance(6) {
        let padded = len.max(128).next_multiple_of(unit);
        message.resize(8 + padded, 0);
        message[at] = (padded / unit) as u8;
        let len = rng.one_of(&[4, 12, 20, 300]);
        message.extend(rng.bytes(len));
    }
    message
}

/// An ICMP error about a packet.
pub(crate) fn error4(rng: &mut Rng, ends: (u32, u32), quoted: &[u8]) -> Vec<u8> {
    let (kind, code) =
        rng.one_of(&[(3, 1), (3, 2), (3, 3), (3, 4), (3, 13), (11, 0), (12, 0), (4, 0)]);
    let mut message = about(rng, kind, code, quoted, (5, 4));
    if !rng.chance(16) {
        seal4(1, ends, &mut message);
    }
    let field = rng.one_of(&[0, 0, 0x4000, 0x4000, 0x4000, 0x2000]);
    wrap4(rng, ends, 1, field, &message)
}

/// An ICMPv6 error about a packet.
pub(crate) fn error6(rng: &mut Rng, ends: (u128, u128), quoted: &[u8]) -> Vec<u8> {
    let (kind, code) =
        rng.one_of(&[(1, 0), (1, 1), (1, 4), (2, 0), (2, 0), (3, 0), (4, 0), (4, 1), (137, 0)]);
    let mut message = about(rng, kind, code, quoted, (4, 8));
    if !rng.chance(16) {
        seal6(58, ends, &mut message);
    }
    let fragment = fragment(rng, 58).filter(|_| rng.chance(2));
    wrap6(rng, ends, 58, fragment, &message)
}

/// A packet of IPv6 with the transport header and the payload of a packet of IPv4: TCP or UDP.
pub(crate) fn in_six(rng: &mut Rng, ends: (u128, u128), four: &[u8]) -> Option<Vec<u8>> {
    let header = Ipv4::new_checked(four).ok().filter(|header| !header.is_fragment())?;
    let protocol = Some(header.protocol()).filter(|protocol| matches!(protocol, 6 | 17))?;
    let mut payload = header.payload().to_vec();
    seal6(protocol, ends, &mut payload);
    Some(wrap6(rng, ends, protocol, None, &payload))
}

/// A report about a packet that is too big for its path.
pub(crate) fn too_big(rng: &mut Rng, ends: (u128, u128), quoted: &[u8]) -> Vec<u8> {
    let width: u32 = rng.one_of(&[1279, 1280, 1300, 1400, 1500]);
    let quoted = &quoted[..quoted.len().min(1232)];
    let mut message = [&[2, 0, 0, 0][..], &width.to_be_bytes(), quoted].concat();
    seal6(58, ends, &mut message);
    wrap6(rng, ends, 58, None, &message)
}

/// The answer to a packet: its ends exchanged, its hop limit fresh.
pub(crate) fn answer(rng: &mut Rng, packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let is_six = bytes[0] >> 4 == 6;
    let (first, len) = if is_six { (8, 16) } else { (12, 4) };
    for at in first..first + len {
        bytes.swap(at, at + len);
    }
    bytes[if is_six { 7 } else { 8 }] = 64;
    let (protocol, at, is_whole) = if is_six {
        let walk = Ipv6::new_checked(packet).expect("a packet that left").walk();
        let Ok(walk) = walk else { return bytes };
        (walk.protocol, walk.transport, walk.fragment.is_none())
    } else {
        let mut header = Ipv4::new_checked(&mut bytes[..]).expect("a packet that left");
        header.fill_checksum();
        let is_whole = header.fragment_offset() == 0 && !header.more_fragments();
        (header.protocol(), header.header_len(), is_whole)
    };
    let transport = &mut bytes[at..];
    if !is_whole || transport.len() < 8 {
        return bytes;
    }
    match (protocol, transport[0]) {
        (6 | 17 | 33 | 136 | 132, _) => {
            let (source, destination) =
                ([transport[0], transport[1]], [transport[2], transport[3]]);
            transport[..2].copy_from_slice(&destination);
            transport[2..4].copy_from_slice(&source);
            if protocol == 6 && transport.len() > 13 {
                transport[13] = rng.one_of(&[18, 16, 17, 4]);
            }
        }
        (1, 8) => transport[0] = 0,
        (58, 128) => transport[0] = 129,
        _ => {}
    }
    seal_again(&mut bytes, protocol, at);
    bytes
}

fn seal_again(bytes: &mut [u8], protocol: u8, at: usize) {
    let (head, transport) = bytes.split_at_mut(at);
    if head[0] >> 4 == 6 {
        let header = Ipv6::new_header_checked(&*head).expect("a header");
        seal6(protocol, (header.source(), header.destination()), transport);
    } else {
        let header = Ipv4::new_header_checked(&*head).expect("a header");
        seal4(protocol, (header.source(), header.destination()), transport);
    }
}

/// Gives an IPv4 packet another source.
pub(crate) fn replace_source(bytes: &mut [u8], source: [u8; 4]) {
    bytes[12..16].copy_from_slice(&source);
    let mut header = Ipv4::new_checked(&mut *bytes).expect("a packet");
    header.fill_checksum();
    let (protocol, at) = (header.protocol(), header.header_len());
    seal_again(bytes, protocol, at);
}

/// Breaks a packet now and then: a byte changes, or the end is missing, or bytes follow.
pub(crate) fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.below(40) {
        0 => {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        1 => bytes.truncate(rng.below(bytes.len()) + 1),
        2 => {
            let len = 1 + rng.below(20);
            bytes.extend(rng.bytes(len));
        }
        _ => {}
    }
    let is_broken = rng.chance(2);
    if let Ok(mut header) = Ipv4::new_header_checked(&mut bytes[..])
        && !is_broken
    {
        header.fill_checksum();
    }
}
