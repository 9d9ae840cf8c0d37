//! Cutting packets that are too long for the next link into fragments (RFC 791 section 3.2).

use natgate_wire::Ipv4;
use natgate_wire::ipv4::HEADER_LEN;

/// Option kinds with this bit are repeated in every fragment.
const COPIED: u8 = 0x80;

//= rfc4787#REQ-13a
//= rfc1812#section-4.2.2.7
//= rfc1812#section-4.2.2.7-few
//= rfc1812#section-4.2.2.7-order
//= rfc5508#section-7.1.1-fragment
/// Cuts a packet into fragments of at most `mtu` bytes. Returns `None` if the packet may not be
/// fragmented, is no IPv4 packet, or ends beyond the longest datagram, or if `mtu` leaves no room
/// for eight bytes of payload.
pub(crate) fn fragment(packet: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let whole = Ipv4::new_checked(packet).ok().filter(|whole| !whole.dont_fragment())?;
    let payload = whole.payload();
    if whole.fragment_offset() + payload.len() > usize::from(u16::MAX) {
        return None;
    }
    let later_header = later_header(packet, &whole);
    let mut fragments = Vec::new();
    let mut offset = 0;
    while offset < payload.len() {
        let header = if offset == 0 { &packet[..whole.header_len()] } else { &later_header };
        // All fragments but the last carry a multiple of eight bytes.
        let room = mtu.checked_sub(header.len()).map(|room| room & !7).filter(|room| *room > 0)?;
        let rest = payload.len() - offset;
        let last = header.len() + rest <= mtu;
        let len = if last { rest } else { room };
        let more = !last || whole.more_fragments();
        fragments.push(one(
            header,
            &payload[offset..offset + len],
            FragmentField { offset: whole.fragment_offset() + offset, more },
        ));
        offset += len;
    }
    Some(fragments)
}

struct FragmentField {
    offset: usize,
    more: bool,
}

fn one(header: &[u8], payload: &[u8], field: FragmentField) -> Vec<u8> {
    const MORE_FRAGMENTS: u16 = 0x2000;
    let mut bytes = [header, payload].concat();
    let total_len = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
    if let Ok(mut fragment) = Ipv4::new_checked(&mut bytes[..]) {
        let more = if field.more { MORE_FRAGMENTS } else { 0 };
        //= rfc1812#section-5.2.5-fragments
        let reserved = u16::from(header[6] & 0x80) << 8;
        fragment.set_fragment_field(reserved | more | (field.offset / 8) as u16);
        fragment.fill_checksum();
    }
    bytes
}

/// Header of all fragments but the first: only options that are repeated.
fn later_header(packet: &[u8], whole: &Ipv4<&[u8]>) -> Vec<u8> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    let mut options = whole.options();
    let mut kept = Vec::new();
    while let Some(&kind) = options.first().filter(|kind| **kind != END) {
        let len = match (kind, options.get(1)) {
            (NO_OPERATION, _) => 1,
            (_, Some(&len)) if len >= 2 && usize::from(len) <= options.len() => usize::from(len),
            _ => break,
        };
        if kind & COPIED != 0 {
            kept.extend(&options[..len]);
        }
        options = &options[len..];
    }
    kept.resize(kept.len().next_multiple_of(4), END);
    let mut header = packet[..HEADER_LEN].to_vec();
    header[0] = 0x40 | ((HEADER_LEN + kept.len()) / 4) as u8;
    header.extend(kept);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with `options`, a recognisable payload and this flags-and-offset field.
    fn packet(options: &[u8], payload: usize, field: u16) -> Vec<u8> {
        let header_len = HEADER_LEN + options.len();
        let mut bytes = vec![0; header_len];
        Ipv4::init(&mut bytes[..], header_len);
        bytes[HEADER_LEN..].copy_from_slice(options);
        bytes[2..4].copy_from_slice(&((header_len + payload) as u16).to_be_bytes());
        bytes[4..6].copy_from_slice(&[0xab, 0xcd]);
        bytes[6..8].copy_from_slice(&field.to_be_bytes());
        (bytes[8], bytes[9]) = (63, 17);
        bytes.extend((0..payload).map(|n| (n / 8) as u8));
        bytes
    }

    /// Joins the payloads of fragments by their offsets.
    fn reassembled(fragments: &[Vec<u8>], first: usize) -> Vec<u8> {
        let mut payload = Vec::new();
        for fragment in fragments {
            let view = Ipv4::new_checked(&fragment[..]).expect("a fragment is a packet");
            assert!(view.checksum_valid());
            assert_eq!(usize::from(view.total_len()), fragment.len());
            assert_eq!((view.identification(), view.ttl(), view.protocol()), (0xabcd, 63, 17));
            assert_eq!(view.fragment_offset(), first + payload.len());
            payload.extend(view.payload());
        }
        payload
    }

    //= test rfc4787#REQ-13a
    #[test]
    fn fragments_fit_and_make_up_the_packet_again() {
        for (payload, mtu) in [(1480, 1400), (1480, 68), (65_515, 1500), (1400, 1419), (9, 28)] {
            let whole = packet(&[], payload, 0);
            let fragments = fragment(&whole, mtu).expect("may be fragmented");
            assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
            let more = |f: &Vec<u8>| Ipv4::new_checked(&f[..]).is_ok_and(|f| f.more_fragments());
            let (last, others) = fragments.split_last().expect("some");
            assert!(!more(last) && others.iter().all(more));
            assert_eq!(reassembled(&fragments, 0), whole[HEADER_LEN..]);
        }
    }

    #[test]
    fn fragments_of_fragments_keep_their_place() {
        let middle = packet(&[], 1000, 0x2000 | 100);
        let fragments = fragment(&middle, 500).expect("may be fragmented");
        assert_eq!(reassembled(&fragments, 800), middle[HEADER_LEN..]);
        let last = fragments.last().expect("some");
        assert!(Ipv4::new_checked(&last[..]).is_ok_and(|last| last.more_fragments()));
    }

    #[test]
    fn only_options_meant_for_it_are_repeated() {
        // No operation, a copied option of three bytes, a record route of three, end.
        let options = [1, 0x94, 3, 9, 7, 3, 4, 0];
        let fragments = fragment(&packet(&options, 100, 0), 68).expect("may be fragmented");
        let options_of = |fragment: &Vec<u8>| {
            Ipv4::new_checked(&fragment[..]).map(|f| f.options().to_vec()).expect("a packet")
        };
        assert_eq!(options_of(&fragments[0]), options);
        assert_eq!(options_of(&fragments[1]), [0x94, 3, 9, 0]);
        assert_eq!(reassembled(&fragments, 0).len(), 100);
    }

    #[test]
    fn what_may_not_be_fragmented_is_not() {
        assert!(fragment(&packet(&[], 1480, 0x4000), 1400).is_none());
        assert!(fragment(&packet(&[], 1480, 0), 27).is_none());
        assert!(fragment(&packet(&[], 1000, 8191), 500).is_none());
        assert!(fragment(b"not a packet", 5).is_none());
    }

    //= test rfc1812#section-5.2.5-fragments
    #[test]
    fn fragments_keep_reserved_bits() {
        for reserved in [0, 0x8000] {
            let mut whole = packet(&[], 1000, reserved);
            whole[1] = 1;
            for fragment in fragment(&whole, 500).expect("may be fragmented") {
                assert_eq!((fragment[1], fragment[6] & 0x80), (1, (reserved >> 8) as u8));
            }
        }
    }
}
