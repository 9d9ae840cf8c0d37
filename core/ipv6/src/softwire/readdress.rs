//! Exchanges an address of an IPv4 packet, so that a host behind a tunnel of DS-Lite has its number
//! and a number its host. All checksums change by the difference, so a wrong one stays wrong.

use super::endpoint::End;
use natgate_wire::{Delta, Icmp, Ipv4, icmp, protocol};

/// Offsets of checksums that cover the addresses of the packet.
const TCP: usize = 16;
const UDP: usize = 6;
const DCCP: usize = 6;
/// Offsets of the ICMP header.
const ICMP_CHECKSUM: usize = 2;
const ICMP_BODY: usize = 8;

/// Gives an end of a packet another address. If the packet is an ICMP error, the other end of the
/// packet that it quotes gets the address too.
pub(crate) fn readdress(bytes: &mut [u8], end: End, address: u32) {
    let Some((old, header_len)) = replace_in_header(bytes, end, address) else { return };
    let Ok(header) = Ipv4::new_header_checked(&*bytes) else { return };
    let (protocol, is_later) = (header.protocol(), header.fragment_offset() != 0);
    if is_later {
        return;
    }
    let len = header.payload().len();
    let transport = &mut bytes[header_len..][..len];
    match protocol {
        protocol::ICMP => readdress_quote(transport, end.quoted(), address),
        _ => {
            replace_in_transport(transport, protocol, Delta::NONE.replace_u32(old, address));
        }
    }
}

/// Exchanges an address of a header. Returns the former one and the length of the header.
fn replace_in_header(bytes: &mut [u8], end: End, address: u32) -> Option<(u32, usize)> {
    let mut header = Ipv4::new_header_checked(bytes).ok()?;
    let old = match end {
        End::Source => {
            let old = header.source();
            header.set_source(address);
            old
        }
        End::Destination => {
            let old = header.destination();
            header.set_destination(address);
            old
        }
    };
    header.update_checksum(Delta::NONE.replace_u32(old, address));
    Some((old, header.header_len()))
}

/// Changes the checksum of a transport header, as far as it is there. Returns the former and the
/// new one.
fn replace_in_transport(transport: &mut [u8], protocol: u8, delta: Delta) -> Option<(u16, u16)> {
    let at = match protocol {
        protocol::TCP => TCP,
        protocol::UDP | protocol::UDP_LITE => UDP,
        protocol::DCCP => DCCP,
        _ => return None,
    };
    let field = transport.get_mut(at..at + 2)?;
    let old = u16::from_be_bytes([field[0], field[1]]);
    if protocol == protocol::UDP && old == 0 {
        return None;
    }
    let is_udp = matches!(protocol, protocol::UDP | protocol::UDP_LITE);
    let new = match delta.apply(old) {
        // UDP without checksum has zero.
        0 if is_udp => u16::MAX,
        new => new,
    };
    field.copy_from_slice(&new.to_be_bytes());
    Some((old, new))
}

/// Gives an end of a quoted packet another address.
#[cold]
fn readdress_quote(message: &mut [u8], end: End, address: u32) {
    if Icmp::new_checked(&*message).is_none_or(|message| !icmp::is_error(message.kind())) {
        return;
    }
    let checksum = |bytes: &[u8]| Ipv4::new_header_checked(bytes).map(|one| one.header_checksum());
    let quote = &mut message[ICMP_BODY..];
    let Ok(before) = checksum(quote) else { return };
    let Some((old, header_len)) = replace_in_header(quote, end, address) else { return };
    let Ok(header) = Ipv4::new_header_checked(&*quote) else { return };
    let (protocol, is_later) = (header.protocol(), header.fragment_offset() != 0);
    let len = header.payload().len();
    let change = Delta::NONE.replace_u32(old, address);
    let mut delta = change.replace_u16(before, header.header_checksum());
    let transport = &mut quote[header_len..][..len];
    if !is_later && let Some((old, new)) = replace_in_transport(transport, protocol, change) {
        delta = delta.replace_u16(old, new);
    }
    let sum = u16::from_be_bytes([message[ICMP_CHECKSUM], message[ICMP_CHECKSUM + 1]]);
    message[ICMP_CHECKSUM..ICMP_BODY - 4].copy_from_slice(&delta.apply(sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use natgate_wire::checksum::{checksum, fold, pseudo_header, sum};

    const HOST: u32 = 0xc0a8_0102;
    const NUMBER: u32 = 0x0100_0001;
    const REMOTE: u32 = 0xc633_6407;

    fn packet(protocol: u8, ends: (u32, u32), payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        let mut header = Ipv4::init(&mut bytes[..], 20);
        header.set_total_len(20 + payload.len() as u16);
        header.set_ttl(64);
        header.set_protocol(protocol);
        header.set_source(ends.0);
        header.set_destination(ends.1);
        header.fill_checksum();
        bytes.extend(payload);
        bytes
    }

    fn with_checksum(protocol: u8, at: usize, ends: (u32, u32), mut payload: Vec<u8>) -> Vec<u8> {
        let start = match protocol {
            protocol::ICMP => 0,
            _ => pseudo_header(ends.0, ends.1, protocol, payload.len() as u16),
        };
        let total = !fold(sum(&payload, start));
        payload[at..at + 2].copy_from_slice(&total.to_be_bytes());
        packet(protocol, ends, &payload)
    }

    fn transport(state: &mut u32, len: usize) -> Vec<u8> {
        let mut next = || {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (*state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn packets_with_another_address_have_right_checksums_and_come_back() {
        let mut state = 5;
        for round in 0..2000 {
            let cases = [(protocol::TCP, 16), (protocol::UDP, 6), (protocol::DCCP, 6)];
            let (protocol, at) = cases[round % 3];
            let mut payload = transport(&mut state, 21 + round % 9);
            payload[at..at + 2].fill(0);
            let before = with_checksum(protocol, at, (HOST, REMOTE), payload.clone());
            let mut bytes = before.clone();
            readdress(&mut bytes, End::Source, NUMBER);
            let expected = with_checksum(protocol, at, (NUMBER, REMOTE), payload);
            assert_eq!(bytes, expected, "round {round}");
            readdress(&mut bytes, End::Source, HOST);
            assert_eq!(bytes, before, "round {round}");
        }
    }

    #[test]
    fn errors_and_the_packets_that_they_quote_change_together() {
        let mut state = 9;
        for round in 0..2000 {
            let quoted = transport(&mut state, 8 + round % 30);
            let quoted = packet(protocol::UDP, (REMOTE, HOST), &quoted);
            let mut payload = vec![3, 1, 0, 0, 0, 0, 0, 0];
            payload.extend(&quoted);
            let before = with_checksum(protocol::ICMP, 2, (HOST, REMOTE), payload);
            let mut bytes = before.clone();
            readdress(&mut bytes, End::Source, NUMBER);
            let header = Ipv4::new_checked(&bytes[..]).expect("a packet");
            assert_eq!((header.source(), header.destination()), (NUMBER, REMOTE));
            assert_eq!(checksum(header.payload()), 0, "round {round}");
            let quoted = Ipv4::new_header_checked(&header.payload()[8..]).expect("a packet");
            assert_eq!((quoted.source(), quoted.destination()), (REMOTE, NUMBER));
            assert!(quoted.checksum_valid());
            readdress(&mut bytes, End::Source, HOST);
            assert_eq!(bytes, before, "round {round}");
        }
    }

    #[test]
    fn what_has_no_checksum_stays_so() {
        let payload = [0, 1, 0, 2, 0, 9, 0, 0, 5];
        let mut bytes = packet(protocol::UDP, (HOST, REMOTE), &payload);
        readdress(&mut bytes, End::Source, NUMBER);
        assert_eq!(bytes[20..], payload);
        // A later fragment has no header of a transport.
        let mut later = packet(protocol::UDP, (HOST, REMOTE), &[7; 16]);
        let mut header = Ipv4::new_checked(&mut later[..]).expect("a packet");
        header.set_fragment_field(3);
        header.fill_checksum();
        readdress(&mut later, End::Destination, NUMBER);
        assert_eq!(later[20..], [7; 16]);
        for cut in 0..later.len() {
            readdress(&mut later[..cut].to_vec(), End::Source, 7);
        }
    }
}
