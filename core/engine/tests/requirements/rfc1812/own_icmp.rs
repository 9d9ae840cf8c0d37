//! ICMP messages that the gateway originates: their form, cases without a message, their rate, and
//! answers to queries.

use super::*;

// ---- own ICMP: form ----

//= test rfc1812#section-4.3.2.2
#[test]
fn section_4_3_2_2_own_messages_have_a_ttl_of_their_own() {
    let of_error = |ttl| {
        let mut lab = Lab::new(&config());
        let large = udp_with("10.0.0.5:4000", REMOTE, &[0; 1600]);
        lab.refused(Side::Inside, &with_ttl(&with_fragment_field(&large, 7, DONT_FRAGMENT), ttl));
        view(&errors(&mut lab)[0]).ttl()
    };
    assert_eq!([1, 2, 128, 255].map(of_error), [64; 4]);
    let of_reply = |ttl| {
        let request = with_ttl(&ping(HOST, "10.0.0.1", 7), ttl);
        view(&Lab::new(&config()).pass(Side::Inside, &request).1).ttl()
    };
    assert_eq!([1, 2, 128, 255].map(of_reply), [64; 4]);
}

//= test rfc1812#section-4.3.2.3
//= test rfc1812#section-4.3.2.3-identical
#[test]
fn section_4_3_2_3_errors_quote_as_much_as_fits_and_as_it_came() {
    for len in [0, 1, 8, 519, 520, 521, 1400] {
        for options in [&[][..], &[1; 40]] {
            let payload = vec![0xa5; len];
            let packet = udp_with("10.0.0.5:4000", REMOTE, &payload);
            let cause = with_ttl(&with_options(&packet, options), 1);
            let told = expired(&cause);
            assert_eq!(told.len(), 576.min(28 + cause.len()));
            assert_eq!(told[28..], cause[..told.len() - 28]);
        }
    }
    // An error about a packet from outside also quotes the packet as its sender sent it.
    let mut exchange = Exchange::new(protocol::TCP);
    let came = with_ttl(&exchange.came, 1);
    exchange.lab.refused(Side::Outside, &came);
    assert_eq!(errors(&mut exchange.lab)[0][28..], came);
}

//= test rfc1812#section-4.3.2.4
//= test rfc1812#section-4.2.2.11-own-source
#[test]
fn section_4_3_2_4_own_errors_come_from_the_side_that_they_leave_by() {
    let mut exchange = Exchange::new(protocol::UDP);
    for (side, packet, own) in
        [(Side::Inside, &exchange.sent, INSIDE), (Side::Outside, &exchange.came, OUTSIDE)]
    {
        exchange.lab.refused(side, &with_ttl(packet, 1));
        let (_, by, told) = exchange.lab.sent.pop().unwrap();
        assert_eq!((by, ends(&told)), (side, (own.to_string(), source(packet))));
    }
    // A side without an address uses the dummy address (RFC 7600). Outside, the source is external.
    let nameless = SideConfig::default();
    let bare = Config { inside: nameless.clone(), outside: nameless, ..config() };
    let mut exchange = Exchange::shaped(&bare, protocol::UDP, <[u8]>::to_vec);
    for (side, packet, own) in
        [(Side::Inside, &exchange.sent, "192.0.0.8"), (Side::Outside, &exchange.came, EXTERNAL)]
    {
        exchange.lab.refused(side, &with_ttl(packet, 1));
        let (_, by, told) = exchange.lab.sent.pop().unwrap();
        assert_eq!((by, ends(&told)), (side, (own.to_string(), source(packet))));
    }
}

// ---- own ICMP: cases without a message ----

//= test rfc5508#REQ-10e
//= test rfc1812#section-4.3.2.7-error
#[test]
fn section_4_3_2_7_no_error_is_about_an_error() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            for error in ERRORS.into_iter().chain([(5, 0), (5, 1)]) {
                let error = exchange.error(place, error, &exchange.about(place));
                exchange.lab.pass(place.side(), &with_ttl(&error, 1));
                let mut large = error.clone();
                large.resize(1600, 0);
                large[2..4].copy_from_slice(&1600_u16.to_be_bytes());
                exchange.lab.pass(place.side(), &with_fragment_field(&large, 7, DONT_FRAGMENT));
                assert!(exchange.lab.sent.is_empty(), "{protocol} {place:?}");
            }
        }
    }
}

//= test rfc1812#section-4.3.2.7-fragment
#[test]
fn section_4_3_2_7_of_fragments_only_the_first_is_answered() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    let external = ends(&exchange.left).0;
    let mut narrow = config();
    narrow.outside.mtu = Some(600);
    let long = |from: &str, to: &str| udp_with(from, to, &[0; 2000]);
    for (side, from, to) in [
        (Side::Inside, "10.0.0.5:4000", REMOTE),
        (Side::Outside, REMOTE, external.as_str()),
        (Side::Inside, "10.0.0.6:4000", external.as_str()),
    ] {
        let [first, last] = halves(&long(from, to), 0).map(|part| with_ttl(&part, 1));
        assert_eq!(silently(&mut lab, side, &last), DropReason::TtlExceeded);
        assert_eq!(lab.refused(side, &first), DropReason::TtlExceeded);
        assert_eq!(errors(&mut lab).len(), 1);
    }
    let mut lab = Lab::new(&narrow);
    let [first, last] = halves(&long("10.0.0.5:4000", REMOTE), DONT_FRAGMENT);
    assert_eq!(silently(&mut lab, Side::Inside, &last), DropReason::TooBig);
    assert_eq!(lab.refused(Side::Inside, &first), DropReason::TooBig);
    assert_eq!(errors(&mut lab).len(), 1);
}

//= test rfc1812#section-4.2.2.11-zero
//= test rfc1812#section-4.2.2.11-broadcast
//= test rfc1812#section-4.2.2.11-loopback
//= test rfc1812#section-4.3.2.7-source
//= test rfc1812#section-5.3.7-source
#[test]
fn section_5_3_7_who_has_no_address_sends_nothing() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    for (side, good) in [(Side::Inside, exchange.sent), (Side::Outside, exchange.came)] {
        for nobody in NOBODY {
            let packet = with_ends(&good, Some(nobody), None);
            for packet in [packet.clone(), with_ttl(&packet, 1)] {
                let reason = silently(&mut lab, side, &packet);
                assert_eq!(reason, DropReason::MartianSource, "{nobody}");
            }
            // No message for packets to the gateway itself either.
            let (_, _, own) = OWN[usize::from(side == Side::Outside)];
            let request = ping(nobody, own, 7);
            assert_eq!(silently(&mut lab, side, &request), DropReason::MartianSource, "{nobody}");
        }
    }
}

//= test rfc1812#section-4.2.3.1-zero
//= test rfc1812#section-4.3.2.7-broadcast
//= test rfc1812#section-5.3.5.1
//= test rfc1812#section-5.3.7-destination
#[test]
fn section_5_3_7_nothing_is_sent_to_nobody_or_to_everybody() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    for (side, good) in [(Side::Inside, exchange.sent), (Side::Outside, exchange.came)] {
        for nobody in NOBODY {
            let packet = with_ends(&good, None, Some(nobody));
            for packet in [packet.clone(), with_ttl(&packet, 1)] {
                let reason = silently(&mut lab, side, &packet);
                assert_eq!(reason, DropReason::MartianDestination, "{nobody}");
            }
        }
    }
}

/// Broadcast addresses of a connected network: all ones, and all zeros by the old convention.
const EVERYBODY: [(Side, &str); 4] = [
    (Side::Inside, "10.0.0.255"),
    (Side::Inside, "10.0.0.0"),
    (Side::Outside, "192.0.2.255"),
    (Side::Outside, "192.0.2.0"),
];

//= test rfc1812#section-4.2.2.11-directed
//= test rfc1812#section-4.3.2.7-source
#[test]
fn section_4_2_2_11_everybody_sends_nothing() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    for (side, good) in [(Side::Inside, exchange.sent), (Side::Outside, exchange.came)] {
        for (_, everybody) in EVERYBODY {
            let packet = with_ends(&good, Some(everybody), None);
            for packet in [packet.clone(), with_ttl(&packet, 1)] {
                let reason = silently(&mut lab, side, &packet);
                assert_eq!(reason, DropReason::MartianSource, "{everybody}");
            }
            let syn = with_ends(&tcp(REMOTE, "203.0.113.1:2000", "S", 1, 0), Some(everybody), None);
            assert_eq!(silently(&mut lab, side, &syn), DropReason::MartianSource, "{everybody}");
        }
    }
    // A network of two addresses has hosts only (RFC 3021).
    let mut pair = config();
    pair.inside.network = Some(Prefix::new(INSIDE, 31));
    Lab::new(&pair).out(&udp("10.0.0.0:4000", REMOTE));
}

//= test rfc1812#section-4.2.3.1
//= test rfc1812#section-4.3.2.7-broadcast
#[test]
fn section_4_2_3_1_nothing_is_sent_to_everybody_on_a_connected_network() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    for (side, good) in [(Side::Inside, exchange.sent), (Side::Outside, exchange.came)] {
        for (_, everybody) in EVERYBODY {
            let packet = with_ends(&good, None, Some(everybody));
            for packet in [packet.clone(), with_ttl(&packet, 1)] {
                let before = lab.engine.mappings().count();
                // Dropped as a martian, or, on its own side, as a packet that does not change
                // sides.
                silently(&mut lab, side, &packet);
                assert_eq!(lab.engine.mappings().count(), before, "{everybody}");
            }
            silently(&mut lab, side, &ping("10.0.0.6", everybody, 7));
        }
    }
}

//= test rfc1812#section-4.3.2.7-silent
#[test]
fn section_4_3_2_7_what_is_dropped_silently_is_dropped_silently_whatever_else_is_wrong() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    let large = |packet: &[u8]| {
        let (from, to) = ends(packet);
        with_fragment_field(&udp_with(&from, &to, &[0; 1600]), 7, DONT_FRAGMENT)
    };
    let cases = [
        (Side::Inside, udp("9.9.9.9:1", REMOTE), DropReason::NotSubscriber),
        (Side::Inside, udp("10.0.0.5:1", "10.0.0.6:1"), DropReason::SameSide),
        (Side::Inside, udp("203.0.113.1:1", REMOTE), DropReason::SpoofedSource),
        (Side::Outside, udp("10.0.0.1:1", EXTERNAL_UDP), DropReason::SpoofedSource),
        (Side::Outside, udp(REMOTE, "10.0.0.5:4000"), DropReason::NotForUs),
        (Side::Outside, udp(REMOTE, EXTERNAL_UDP), DropReason::NoMapping),
        (Side::Inside, udp("10.0.0.5:1", "10.0.0.1:1"), DropReason::LocalUnsupported),
        (Side::Outside, udp("192.0.2.9:1", "192.0.2.254:1"), DropReason::LocalUnsupported),
    ];
    for (side, packet, reason) in cases {
        for packet in [packet.clone(), with_ttl(&packet, 1), large(&packet)] {
            assert_eq!(silently(&mut lab, side, &packet), reason);
        }
    }
}

// ---- own ICMP: rate ----

//= test rfc5508#REQ-10f
//= test rfc1812#section-4.3.2.8
//= test rfc1812#section-4.3.2.8-configurable
#[test]
fn section_4_3_2_8_errors_are_limited_to_a_rate_that_is_set() {
    for per_second in [10, 100] {
        let mut limited = config();
        limited.limits.icmp_errors_per_second = per_second;
        let mut lab = Lab::new(&limited);
        let cause = with_ttl(&udp("10.0.0.5:4000", REMOTE), 1);
        let storm = |lab: &mut Lab| {
            for _ in 0..1000 {
                lab.refused(Side::Inside, &cause);
            }
            errors(lab).len()
        };
        let most = per_second as usize;
        let sent = storm(&mut lab);
        assert!((1..=most).contains(&sent), "{sent} of {most}");
        lab.wait_s(1.0);
        let sent = storm(&mut lab);
        assert!((1..=most).contains(&sent), "{sent} of {most} in the next second");
        let counted = lab.engine.counters().errors_suppressed;
        assert!(counted >= 2000 - 2 * u64::from(per_second));
        // The limit applies to all causes and both sides.
        let mut exchange = Exchange::shaped(&limited, protocol::UDP, <[u8]>::to_vec);
        let cause = with_ttl(&exchange.came, 1);
        for _ in 0..1000 {
            exchange.lab.refused(Side::Outside, &cause);
        }
        assert!(errors(&mut exchange.lab).len() <= most);
    }
}

// ---- ICMP queries to the gateway ----

//= test rfc1812#section-4.3.3.6-echo
//= test rfc1812#section-4.3.3.6-source
//= test rfc1812#section-4.3.3.6-data
//= test rfc1812#section-5.2.3
#[test]
fn section_4_3_3_6_the_gateway_returns_an_echo_with_all_of_its_data() {
    let mut lab = Lab::new(&config());
    for (side, from, to) in OWN {
        for len in [0, 1, 56, 1472] {
            let data: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let request = icmp(from, to, 8, 0, &[&[0x12, 0x34, 0, 9][..], &data].concat());
            let (verdict, reply) = lab.pass(side, &request);
            assert_eq!(verdict, Verdict::Reply(side));
            assert_eq!(ends(&reply), (to.into(), from.into()));
            assert_eq!((reply[20], reply[21], &reply[24..]), (0, 0, &request[24..]));
        }
    }
    let both = lab.engine.counters().packets[Direction::Local as usize][Outcome::Replied as usize];
    assert_eq!(both, 8);
}

//= test rfc1812#section-4.3.3.6-everybody
#[test]
fn section_4_3_3_6_an_echo_request_to_everybody_is_not_answered() {
    let mut lab = Lab::new(&config());
    for (side, from, _) in OWN {
        for to in ["255.255.255.255", "224.0.0.1"] {
            let reason = silently(&mut lab, side, &ping(from, to, 7));
            assert_eq!(reason, DropReason::MartianDestination);
        }
    }
}

//= test rfc1812#section-4.3.2.1
//= test rfc1812#section-4.3.3.2-ignore
//= test rfc1812#section-4.3.3.3-ignore
//= test rfc1812#section-4.3.3.7
#[test]
fn section_4_3_2_1_other_messages_to_the_gateway_are_dropped_silently() {
    let mut lab = Lab::new(&config());
    for (side, from, to) in OWN {
        for kind in (0..=255).filter(|kind| *kind != 8) {
            let message = icmp(from, to, kind, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(silently(&mut lab, side, &message), DropReason::LocalUnsupported, "{kind}");
        }
        let about = udp("10.0.0.5:4000", REMOTE);
        let redirect = error(from, to, 5, 1, &about);
        assert_eq!(silently(&mut lab, side, &redirect), DropReason::LocalUnsupported);
    }
}

//= test rfc1812#section-4.3.3.3
#[test]
fn section_4_3_3_3_nobody_is_quenched() {
    let mut tight = config();
    tight.limits.udp_ports = 3;
    tight.limits.new_mappings_per_second = 40;
    tight.limits.mappings = Some(30);
    let mut lab = Lab::new(&tight);
    // More than the gateway can take, for each of its reasons.
    for n in 0..400 {
        let host = format!("10.0.0.{}:{}", 5 + n % 20, 1000 + n);
        lab.pass(Side::Inside, &udp(&host, REMOTE));
        lab.pass(Side::Inside, &with_ttl(&udp(&host, REMOTE), 1));
    }
    let told = errors(&mut lab);
    assert!(told.len() > 100 && told.iter().all(|error| [3, 11].contains(&error[20])));
}

// ---- destination unreachable ----

//= test rfc1812#section-5.2.7.1
//= test rfc1812#section-5.2.7.1-host
//= test rfc1812#section-5.2.7.1-mtu
//= test rfc1812#section-5.2.7.1-unknown
#[test]
fn section_5_2_7_1_what_cannot_be_forwarded_is_reported_by_the_code_that_fits() {
    // Too big for the next link: code 4 with the MTU, as in RFC 1191.
    let mut narrow = config();
    narrow.outside.mtu = Some(1280);
    narrow.limits.udp_ports = 1;
    let mut lab = Lab::new(&narrow);
    let large = udp_with("10.0.0.5:4000", REMOTE, &[0; 1400]);
    lab.refused(Side::Inside, &with_fragment_field(&large, 7, DONT_FRAGMENT));
    let told = &errors(&mut lab)[0];
    assert_eq!((&told[20..22], &told[24..28]), (&[3, 4][..], &[0, 0, 5, 0][..]));
    // No mapping is available: the error says that this host is unreachable, not its network.
    lab.out(&udp("10.0.0.5:4000", REMOTE));
    lab.refused(Side::Inside, &udp("10.0.0.5:4001", REMOTE));
    let told = &errors(&mut lab)[0];
    assert_eq!((&told[20..22], &told[24..28]), (&[3, 1][..], &[0; 4][..]));
    // No service listens on the port: the port is unreachable.
    lab.refused(Side::Outside, &tcp(REMOTE, "203.0.113.1:2000", "S", 1, 0));
    lab.wait_s(7.0);
    let told = &errors(&mut lab)[0];
    assert_eq!((&told[20..22], &told[24..28]), (&[3, 3][..], &[0; 4][..]));
}
