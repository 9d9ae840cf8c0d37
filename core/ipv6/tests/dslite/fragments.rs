//! Fragments of packets in tunnels, and of the packets inside.

use super::*;

//= test rfc6333#section-6.3-fragment
//= test rfc6333#section-6.3-order
#[test]
fn outer_packets_are_cut_and_inner_ones_never() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    for (data, cut) in [(1432, None), (1433, Some(1500)), (4000, Some(1500))] {
        for flags in [0, 0x4000] {
            let answer = answer(&left, &vec![5; data]);
            let answer = with_field(answer, |header| header.set_fragment_field(flags));
            let (side, bytes, found) = world.take(Side::Outside, &answer).expect("a packet");
            assert_eq!((side, bytes.len(), found), (Side::Inside, 40 + 28 + data, cut));
            assert_eq!(open(&bytes).1[28..], vec![5; data]);
        }
    }
}

//= test rfc6333#section-6.3-reassemble
#[test]
fn fragments_of_tunnel_packets_are_put_together() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[6; 1460]);
    let fragments = [(0, 800, true), (800, inner.len(), false)].map(|(from, to, more)| {
        let field = (from as u16 | u16::from(more)).to_be_bytes();
        let header = [IPV4, 0, field[0], field[1], 0, 0, 0, 9];
        six(B4, 44, &[&header[..], &inner[from..to]].concat())
    });
    assert!(world.take(Side::Inside, &fragments[1]).is_err());
    assert_eq!(world.queued(), None);
    assert!(world.take(Side::Inside, &fragments[0]).is_err());
    let (side, left) = world.queued().expect("a packet");
    let expected = udp((EXTERNAL, REMOTE), (port_at(&left, 0), 53), &[6; 1460]);
    assert_eq!((side, left), (Side::Outside, after_hop(expected)));
    assert_eq!(world.packets(), 2);
}

#[test]
fn fragments_wait_for_their_time_and_are_ipv4_alone() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[6; 1460]);
    let fragment = |next: u8, from: usize, to: usize| {
        let field = (from as u16 | u16::from(to < inner.len())).to_be_bytes();
        let header = [next, 0, field[0], field[1], 0, 0, 0, 9];
        six(B4, 44, &[&header[..], &inner[from..to]].concat())
    };
    assert!(world.take(Side::Inside, &fragment(IPV4, 0, 800)).is_err());
    // The time is over, though nothing has looked at the clock since.
    world.now = Timestamp(world.now.0 + 2 * SECOND);
    let late = fragment(IPV4, 800, inner.len());
    assert_eq!(world.take(Side::Inside, &late), Err(R::FragmentUnmatched));
    assert_eq!(world.queued(), None);
    // Options between the fragment header and the IPv4 packet: more than IPv4 is in the tunnel.
    let options = [&[IPV4, 0, 1, 4, 0, 0, 0, 0][..], &inner[..64]].concat();
    let first = six(B4, 44, &[&[60, 0, 0, 1, 0, 0, 0, 9][..], &options].concat());
    assert_eq!(world.take(Side::Inside, &first), Err(R::LocalUnsupported));
}

#[test]
fn fragments_of_inner_packets_keep_their_cuts() {
    let mut world = World::new();
    let whole = udp((HOST, REMOTE), (5000, 53), &[6; 1000]);
    let cut = |whole: &[u8], from: usize, to: usize, more: bool| {
        let bytes = [&whole[..20], &whole[20 + from..20 + to]].concat();
        with_field(bytes, |header| {
            header.set_total_len(20 + (to - from) as u16);
            header.set_identification(77);
            header.set_fragment_field((from as u16 / 8) | u16::from(more) << 13);
        })
    };
    let first = world.leave(B4, &cut(&whole, 0, 600, true));
    let second = world.leave(B4, &cut(&whole, 600, 1008, false));
    let expected = udp((EXTERNAL, REMOTE), (port_at(&first, 0), 53), &[6; 1000]);
    let payload = [&first[20..], &second[20..]].concat();
    assert_eq!(payload, expected[20..]);
    // The second fragment of an answer comes first, and waits in the engine.
    let reply = answer(&first, &[8; 1000]);
    assert!(world.take(Side::Outside, &cut(&reply, 600, 1008, false)).is_err());
    let (_, start) = world.enter(&cut(&reply, 0, 600, true));
    let (side, later) = world.made().expect("the fragment");
    let (b4, later) = open(&later);
    assert_eq!((side, b4.as_str()), (Side::Inside, B4));
    let expected = udp((REMOTE, HOST), (53, 5000), &[8; 1000]);
    assert_eq!([&start[20..], &later[20..]].concat(), expected[20..]);
}
