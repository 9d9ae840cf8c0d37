//! ICMP errors from tunnels and into them, and the gateway's own.

use super::*;

/// The address of RFC 6333 may be one that several gateways share. A report comes to any of them,
/// so none may change what a gateway sends; the sender outside still learns of a tunnel's end.
#[test]
fn without_path_mtu_a_report_makes_no_path_narrow() {
    let mut world = World::with(|_, dslite| dslite.softwire.path_mtu = false);
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    let too_big = report(icmpv6::kind::PACKET_TOO_BIG, 0, 1300, &quoted[..100]);
    let taken = world.take(Side::Inside, &too_big);
    assert!(taken.is_err(), "{taken:?}");
    assert_eq!(world.queued(), None);
    let (_, bytes, cut) = world.take(Side::Outside, &large).expect("a packet");
    assert_eq!((bytes, cut), (quoted.clone(), None));
    let unreachable = report(icmpv6::kind::UNREACHABLE, 3, 0, &quoted[..200]);
    assert!(world.take(Side::Inside, &unreachable).is_err());
    let (side, error) = world.queued().expect("an error");
    assert_eq!((side, &error[16..20], error[20]), (Side::Outside, &REMOTE[..], 3));
}

//= test rfc2473#section-8.3-unreachable
#[test]
fn reports_of_routers_in_tunnels_are_believed_if_they_quote_a_hosts_packet() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    let mut forged = quoted.clone();
    forged[39] ^= 1;
    let too_big = |quoted: &[u8]| report(icmpv6::kind::PACKET_TOO_BIG, 0, 1300, &quoted[..100]);
    assert_eq!(world.take(Side::Inside, &too_big(&forged)), Err(R::IcmpNoSession));
    let mut wrong = too_big(&quoted);
    wrong[43] ^= 1;
    assert_eq!(world.take(Side::Inside, &wrong), Err(R::IcmpBadChecksum));
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, None);
    assert!(world.take(Side::Inside, &too_big(&quoted)).is_err());
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, Some(1300));
    // The tunnel's end is out of reach: the sender outside learns it.
    let unreachable = report(icmpv6::kind::UNREACHABLE, 3, 0, &quoted[..200]);
    let counted = world.packets();
    assert!(world.take(Side::Inside, &unreachable).is_err());
    assert_eq!(world.packets(), counted + 1);
    let (side, error) = world.queued().expect("an error");
    let header = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!((side, header.destination()), (Side::Outside, u32::from_be_bytes(REMOTE)));
    let message = Icmp::new_checked(header.payload()).expect("a message");
    assert!(message.checksum_valid());
    assert_eq!((message.kind(), message.code()), (3, 1));
    let about = Ipv4::new_header_checked(message.body()).expect("a packet");
    assert_eq!(about.destination(), u32::from_be_bytes(EXTERNAL));
    assert_eq!(about.payload()[2..4], left[20..22]);
}

#[test]
fn a_report_about_a_packet_of_no_session_makes_no_path_narrow() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let too_big = |ends: Ends, ports: (u16, u16)| {
        let packet = to_tunnel(B4, &udp(ends, ports, &[5; 100]));
        report(icmpv6::kind::PACKET_TOO_BIG, 0, 1280, &packet)
    };
    let guesses = [
        too_big((REMOTE, HOST), (53, 5001)),
        too_big((REMOTE, HOST), (54, 5000)),
        too_big(([198, 51, 100, 8], HOST), (53, 5000)),
    ];
    for guess in guesses {
        assert_eq!(world.take(Side::Inside, &guess), Err(R::IcmpNoSession));
    }
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, None);
    assert!(world.take(Side::Inside, &too_big((REMOTE, HOST), (53, 5000))).is_err());
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, Some(1280));
}

#[test]
fn a_report_of_less_than_ipv6_permits_is_discarded() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    for width in [0, 68, 1279] {
        let report = report(icmpv6::kind::PACKET_TOO_BIG, 0, width, &quoted[..100]);
        assert_eq!(world.take(Side::Inside, &report), Err(R::LocalUnsupported));
    }
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, None);
}

#[test]
fn the_end_of_the_tunnels_answers_an_echo_request() {
    let mut world = World::new();
    let mut request = vec![128, 0, 0, 0, 0, 1, 0, 2];
    let start = pseudo_header_v6(address(B4), address(AFTR), 58, 8);
    let total = !fold(sum(&request, start));
    request[2..4].copy_from_slice(&total.to_be_bytes());
    let (side, bytes, _) = world.take(Side::Inside, &six(B4, 58, &request)).expect("a reply");
    let header = Ipv6::new_checked(&bytes[..]).expect("a packet");
    assert_eq!((side, header.destination()), (Side::Inside, address(B4)));
    let message = Icmpv6::new_checked(header.payload()).expect("a message");
    assert!(message.kind() == 129 && message.checksum_valid(header.source(), address(B4)));
}

#[test]
fn icmp_errors_pass_both_ways() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[1, 2, 3]);
    let left = world.leave(B4, &inner);
    // From outside, about a packet that left.
    let router = [198, 51, 100, 1];
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &left].concat();
    let (b4, error) = world.enter(&icmp((router, EXTERNAL), &message));
    let header = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!((b4.as_str(), checksum(header.payload())), (B4, 0));
    assert_eq!(error[12..20], [198, 51, 100, 1, 192, 168, 1, 2]);
    assert_eq!(error[28..], after_hop(inner)[..]);
    // From a router behind the B4, about an answer. The router needs no number.
    let (_, arrived) = world.enter(&answer(&left, &[9; 40]));
    let message = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &arrived].concat();
    let error = world.leave(B4, &icmp(([192, 168, 1, 1], REMOTE), &message));
    let header = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!((header.source(), checksum(header.payload())), (u32::from_be_bytes(EXTERNAL), 0));
    assert_eq!(error[28..], after_hop(answer(&left, &[9; 40]))[..]);
    assert_eq!(world.hosts(), (1, 1));
    // The same error from another B4 is about nothing.
    let message = icmp((HOST, REMOTE), &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &arrived].concat());
    let taken = world.take(Side::Inside, &tunneled(OTHER_B4, &message));
    assert_eq!(taken, Err(R::IcmpNoSession));
}

#[test]
fn errors_of_the_gateways_own_go_into_the_tunnel() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[1, 2, 3]);
    let inner = with_field(inner, |header| header.set_ttl(1));
    assert_eq!(world.take(Side::Inside, &tunneled(B4, &inner)), Err(R::TtlExceeded));
    let (side, bytes) = world.made().expect("an error");
    let (b4, error) = open(&bytes);
    assert_eq!((side, b4.as_str()), (Side::Inside, B4));
    assert_eq!(error[12..20], [192, 0, 0, 1, 192, 168, 1, 2]);
    assert_eq!((error[20], error[21], checksum(&error[20..])), (11, 0, 0));
    assert_eq!(error[28..], inner[..]);
}

#[test]
fn a_host_without_a_number_is_answered_as_a_host_without_a_port_is() {
    use natgate_engine::Refusal;
    for (refusal, code) in [(Refusal::Prohibited, Some(13)), (Refusal::Silent, None)] {
        let mut world = World::with(|config, _| {
            config.refusal = refusal;
            config.limits.subscribers = Some(1);
        });
        let packet = udp((HOST, REMOTE), (5000, 53), &[1]);
        world.leave(B4, &packet);
        let taken = world.take(Side::Inside, &tunneled(OTHER_B4, &packet));
        assert_eq!(taken, Err(R::MappingTableFull));
        match code {
            Some(code) => assert_eq!(world.refusal(OTHER_B4), (code, HOST, packet)),
            None => assert_eq!(world.queued(), None),
        }
    }
}

#[test]
fn a_tunnel_that_provokes_errors_leaves_others_theirs() {
    let mut world = World::with(|config, _| config.limits.subscribers = Some(1));
    let packet = udp((HOST, REMOTE), (5000, 53), &[1]);
    world.leave("2001:db8:b4:99::1", &packet);
    // Customers may differ in any bits of their networks.
    let mut answers = |b4: &str| {
        (0..1000)
            .filter(|_| {
                let taken = world.take(Side::Inside, &tunneled(b4, &packet));
                taken == Err(R::MappingTableFull) && world.queued().is_some()
            })
            .count()
    };
    let first = answers("2001:db8:b4:1::1");
    assert!((1..1000).contains(&first));
    for other in ["2001:db8:b4:1001::1", "2001:db8:b4:2::1"] {
        assert_eq!(answers(other), first, "{other}");
    }
}
