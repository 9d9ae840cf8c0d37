//! Tunnels of every width from 1,280 to 1,540 bytes: packets of all lengths pass both ways, whether
//! they may be cut or not. A router in the tunnel reports what does not fit, and drops it.

use super::*;
use natgate_ipv6::convert::Cut;
use natgate_wire::ipv6::Fragment;

/// The widths of tunnels.
const WIDTHS: std::ops::RangeInclusive<usize> = 1280..=1540;

fn world() -> World {
    World::wide(1540)
}

/// The packets that leave for a packet.
fn pieces(limit: Option<usize>, bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some(limit) = limit else { return vec![bytes.to_vec()] };
    let mut fragments = Cut { limit, identification: 7 }.fragments(bytes);
    let mut buffer = vec![0; limit];
    let next = || fragments.write_next(&mut buffer).map(|len| buffer[..len].to_vec());
    std::iter::from_fn(next).collect()
}

/// The IPv4 packet in a packet, or in all of its fragments.
fn join(pieces: &[Vec<u8>]) -> Vec<u8> {
    let content = |piece: &Vec<u8>| match piece[6] {
        IPV4 => piece[40..].to_vec(),
        _ => {
            assert_eq!(Fragment::read(&piece[40..]).expect("a header").next_header, IPV4);
            piece[48..].to_vec()
        }
    };
    pieces.iter().flat_map(content).collect()
}

/// Sends a packet to a host through a tunnel of a width; returns what arrives there.
fn carry(world: &mut World, width: usize, bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, outer, cut) = world.take(Side::Outside, bytes).expect("it goes to the tunnel");
    let pieces = pieces(cut, &outer);
    if let Some(wide) = pieces.iter().find(|piece| piece.len() > width) {
        let quoted = &wide[..wide.len().min(1232)];
        let report = report(icmpv6::kind::PACKET_TOO_BIG, 0, width as u32, quoted);
        assert_eq!(world.take(Side::Inside, &report), Err(R::FragmentUnmatched), "it is taken");
        return None;
    }
    Some(join(&pieces))
}

#[test]
fn nothing_is_lost_on_the_way_to_a_host_but_for_one_report() {
    for width in WIDTHS {
        let mut world = world();
        let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
        let mut reports = 0;
        for data in (width - 80..=1500 - 28).step_by(3).chain([1472, 100, 3000]) {
            let sent = answer(&left, &vec![data as u8; data]);
            let may_not = data % 2 == 0;
            let sent = with_field(sent, |header| {
                header.set_fragment_field(if may_not { 0x4000 } else { 0 });
            });
            let mut arrived = carry(&mut world, width, &sent);
            if arrived.is_none() {
                reports += 1;
                arrived = carry(&mut world, width, &sent);
            }
            let arrived = arrived.unwrap_or_else(|| panic!("{width} loses {data} bytes for ever"));
            assert_eq!(arrived[16..20], HOST);
            assert_eq!(arrived[28..], sent[28..], "{data} bytes through {width}");
        }
        assert!(reports <= 1, "{reports} reports about {width}");
    }
}

#[test]
fn what_a_customer_cuts_for_its_tunnel_leaves_whole() {
    let mut world = world();
    for width in WIDTHS {
        for data in [width - 77, width - 69, width - 68, width - 67, 1472] {
            let inner = udp((HOST, REMOTE), (5000, 53), &vec![width as u8; data]);
            let outer = tunneled(B4, &inner);
            let limit = (outer.len() > width).then_some(width);
            let mut left = None;
            for piece in pieces(limit, &outer) {
                assert!(piece.len() <= width);
                left = world.take(Side::Inside, &piece).ok().map(|(_, bytes, _)| bytes);
            }
            let left = left.or_else(|| world.queued().map(|(_, bytes)| bytes));
            let left = left.unwrap_or_else(|| panic!("{data} bytes in {width}"));
            assert_eq!(left[28..], inner[28..], "{data} bytes in {width}");
        }
    }
}
