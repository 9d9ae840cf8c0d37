//! Reports of the groups that the router listens to.

use super::*;

/// A report: link, source, kind of each record and its group.
type Report = (Link, Ipv6Addr, Vec<(u8, Ipv6Addr)>);

/// The reports among the output that waits.
fn reports(router: &mut Router6) -> Vec<Report> {
    let mut all = Vec::new();
    while let Some((link, frame, _)) = router.poll_transmit() {
        let packet = &frame[ETHERNET_LEN..];
        let header = Ipv6::new_checked(packet).expect("a packet");
        if header.destination() != ip("ff02::16").to_bits() {
            continue;
        }
        let group_mac = Mac([0x33, 0x33, 0, 0, 0, 0x16]);
        assert_eq!(arp::read_ethernet(&frame).map(|(to, ..)| to), Some(group_mac));
        assert_eq!((header.hop_limit(), header.next_header()), (1, 0));
        let walk = header.walk().expect("whole headers");
        // The router alert tells routers to look at the packet.
        assert_eq!(packet[42..46], [5, 2, 0, 0]);
        let message = Icmpv6::new_checked(&packet[walk.transport..]).expect("a message");
        assert!(message.checksum_valid(header.source(), header.destination()));
        assert_eq!((walk.protocol, message.kind()), (protocol::ICMPV6, 143));
        let records: Vec<_> = message.body().chunks(20).map(record).collect();
        assert_eq!(message.word() as usize, records.len());
        all.push((link, Ipv6Addr::from_bits(header.source()), records));
    }
    all
}

fn record(bytes: &[u8]) -> (u8, Ipv6Addr) {
    let octets: [u8; 16] = bytes[4..].try_into().expect("a whole record");
    (bytes[0], octets.into())
}

fn groups(kind: u8) -> Vec<(u8, Ipv6Addr)> {
    let own = ["2001:db8:1::1", "fe80::1"].map(|own| nd::solicited_node(ip(own)));
    // Both addresses of the inside end with the same 24 bits.
    assert_eq!(own[0], own[1]);
    vec![(kind, nd::ALL_ROUTERS), (kind, own[0])]
}

/// A query to all nodes.
fn query(source: &str, hop_limit: u8) -> Vec<u8> {
    let mut bytes = vec![0; 40 + 8 + 24];
    let (source, destination) = (ip(source).to_bits(), nd::ALL_NODES.to_bits());
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(32);
    header.set_hop_limit(hop_limit);
    header.set_source(source);
    header.set_destination(destination);
    bytes[40..48].copy_from_slice(&[protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    let mut message = Icmpv6::new_checked(&mut bytes[48..]).expect("room");
    message.set_kind(130);
    message.fill_checksum(source, destination);
    bytes
}

//= test rfc4862#section-5.4.2-join
//= test rfc4861#section-6.2.2-group
//= test rfc4861#section-7.2.1
#[test]
fn the_router_reports_its_groups_before_it_asks_and_when_it_has_an_address() {
    let mut router = new(&settings());
    router.advance(at(0));
    let (link, frame, _) = router.poll_transmit().expect("the first frame");
    let to = arp::read_ethernet(&frame).map(|(to, ..)| to);
    assert_eq!((link, to), (IN, Some(Mac([0x33, 0x33, 0, 0, 0, 0x16]))), "before the question");
    router.relink(IN, INSIDE);
    reports(&mut router);
    router.advance(at(1));
    let inside = |source, kind| (IN, source, groups(kind));
    let of_inside = |all: Vec<Report>| all.into_iter().filter(|(link, ..)| *link == IN);
    let begun: Vec<_> = of_inside(reports(&mut router)).collect();
    assert_eq!(begun, [inside(Ipv6Addr::UNSPECIFIED, 4)]);
    router.advance(at(1001));
    let begun: Vec<_> = of_inside(reports(&mut router)).collect();
    assert_eq!(begun, [inside(nd::link_local(INSIDE), 4)]);
}

#[test]
fn a_query_is_answered() {
    let mut router = router();
    assert_eq!(router.receive(at(0), IN, OTHER, &query("fe80::9", 1)), Received::Taken);
    assert_eq!(reports(&mut router), [(IN, nd::link_local(INSIDE), groups(2))]);
    for (source, hop_limit) in [("2001:db8:1::9", 1), ("fe80::9", 64)] {
        let query = query(source, hop_limit);
        assert_eq!(router.receive(at(0), IN, OTHER, &query), Received::Ignored, "{source}");
    }
    for _ in 0..100 {
        router.receive(at(1), IN, OTHER, &query("fe80::9", 1));
    }
    assert_eq!(reports(&mut router).len(), 9, "ten in a second");
}
