//! ICMP messages that the translator originates, and messages that it drops.

use super::*;

/// The only ICMP error that was sent, and its side.
fn only_error(lab: &mut Lab) -> (Side, Vec<u8>) {
    assert_eq!(lab.sent.len(), 1);
    let (_, side, bytes) = lab.sent.pop().unwrap();
    ends(&bytes);
    (side, bytes)
}

/// A packet of a protocol with exactly `len` bytes, with this fragment field.
fn sized(protocol: u8, from: &str, to: &str, len: usize, field: u16) -> Vec<u8> {
    let port = |text: &str, default: &str| {
        if text.contains(':') { text.to_string() } else { format!("{text}:{default}") }
    };
    let mut bytes = match protocol {
        protocol::UDP => udp_with(&port(from, "4000"), &port(to, "80"), &vec![7; len - 28]),
        _ => {
            let (from, to) = (endpoint(from).0, endpoint(to).0);
            ip(protocol, from, to, &vec![7; len - 20])
        }
    };
    assert_eq!(bytes.len(), len);
    bytes = with_fragment_field(&bytes, 99, field);
    bytes
}

fn narrow(inside: u16, outside: u16) -> Config {
    let mut narrow = config();
    narrow.inside.mtu = Some(inside);
    narrow.outside.mtu = Some(outside);
    narrow
}

//= test rfc5508#REQ-10a
//= test rfc5508#section-7.1.1-honour
#[test]
fn req_10a_what_is_too_big_and_may_not_be_fragmented_is_told_the_mtu() {
    // The packets are outbound, inbound and hairpinned. The side of departure has the small MTU.
    let whole = 1300;
    for (mtu_in, mtu_out, from) in
        [(1500, 1300, Side::Inside), (1300, 1500, Side::Outside), (1300, 1400, Side::Inside)]
    {
        let mut lab = Lab::new(&narrow(mtu_in, mtu_out));
        let external = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
        let round = from == Side::Inside && mtu_in == 1300;
        let (source, destination) = match from {
            Side::Inside if round => ("10.0.0.5:4000", external.as_str()),
            Side::Inside => ("10.0.0.5:4000", REMOTE),
            Side::Outside => (REMOTE, external.as_str()),
        };
        let packet = |len, field| sized(protocol::UDP, source, destination, len, field);
        let to = if round { Side::Inside } else { from.other() };
        let (verdict, passed) = lab.pass(from, &packet(whole, DONT_FRAGMENT));
        assert_eq!((verdict, passed.len()), (Verdict::Forward(to), whole));
        let large = packet(whole + 1, DONT_FRAGMENT);
        assert_eq!(lab.refused(from, &large), DropReason::TooBig);
        let (side, told) = only_error(&mut lab);
        let own = if from == Side::Inside { INSIDE } else { OUTSIDE };
        assert_eq!(side, from);
        assert_eq!(ends(&told), (own.to_string(), endpoint_address(source)));
        assert_eq!((told[20], told[21]), (3, 4));
        assert_eq!(told[24..28], [0, 0, 5, 20], "1300 in the lower half of the second word");
        assert_eq!(told[28..], large[..told.len() - 28]);
        // Without the flag the packet passes whole: the next step fragments it.
        let (verdict, passed) = lab.pass(from, &packet(whole + 1, 0));
        assert_eq!((verdict, passed.len()), (Verdict::Forward(to), whole + 1));
        assert!(lab.sent.is_empty());
    }
}

fn endpoint_address(text: &str) -> String {
    text.split(':').next().unwrap().to_string()
}

//= test rfc5508#section-7.1.2
#[test]
fn section_7_1_2_packet_too_big_reaches_whom_it_is_for() {
    for protocol in PROTOCOLS {
        for place in Place::ALL {
            let mut exchange = Exchange::new(protocol);
            let about = exchange.about(place);
            let to = source(&about);
            let word = [0, 0, 5, 20];
            let error = error_with((place.address(), &to), (3, 4), word, &about);
            let told = exchange.forward(place, &error);
            ends(&told);
            assert_eq!(told[24..28], word, "{protocol} {place:?}");
            assert_eq!(ends(&told).1, source(&exchange.original(place)));
            assert_eq!(told[28..], exchange.original(place));
        }
    }
}

//= test rfc5508#REQ-10a
//= test rfc5508#section-7.2
#[test]
fn req_10a_who_sends_too_few_hops_is_told() {
    for protocol in PROTOCOLS {
        for ttl in [0, 1] {
            let mut exchange = Exchange::new(protocol);
            for (side, packet, own) in
                [(Side::Inside, &exchange.sent, INSIDE), (Side::Outside, &exchange.came, OUTSIDE)]
            {
                let last = with_ttl(packet, ttl);
                assert_eq!(exchange.lab.refused(side, &last), DropReason::TtlExceeded);
                let (by, told) = only_error(&mut exchange.lab);
                assert_eq!((by, told[20], told[21]), (side, 11, 0));
                assert_eq!(ends(&told), (own.to_string(), source(packet)));
                assert_eq!(told[28..], last);
            }
        }
    }
}

//= test rfc5508#REQ-10a
#[test]
fn req_10a_echo_requests_to_the_gateway_are_answered() {
    let mut lab = Lab::new(&config());
    for (side, from, to) in
        [(Side::Inside, HOST, "10.0.0.1"), (Side::Outside, "192.0.2.9", "192.0.2.254")]
    {
        let request = icmp(from, to, 8, 0, &[0x12, 0x34, 0, 9, 1, 2, 3, 4, 5]);
        let (verdict, reply) = lab.pass(side, &request);
        assert_eq!(verdict, Verdict::Reply(side));
        assert_eq!(ends(&reply), (to.into(), from.into()));
        assert_eq!((reply[20], reply[21], &reply[24..]), (0, 0, &request[24..]));
    }
}

//= test rfc5508#REQ-10c
#[test]
fn req_10c_nobody_is_quenched_and_no_information_given() {
    let mut tight = config();
    tight.limits.udp_ports = 3;
    tight.limits.new_mappings_per_second = 40;
    tight.limits.mappings = Some(30);
    let mut lab = Lab::new(&tight);
    let kinds = |lab: &mut Lab| -> Vec<u8> { lab.sent.drain(..).map(|sent| sent.2[20]).collect() };
    // More than the gateway can take, for each of its reasons.
    for n in 0..400 {
        let host = format!("10.0.0.{}:{}", 5 + n % 20, 1000 + n);
        lab.pass(Side::Inside, &udp(&host, REMOTE));
        lab.pass(Side::Inside, &with_ttl(&udp(&host, REMOTE), 1));
    }
    let sent = kinds(&mut lab);
    assert!(sent.len() > 300 && sent.iter().all(|kind| [3, 11].contains(kind)), "{sent:?}");
    for (side, from, to) in
        [(Side::Inside, HOST, "10.0.0.1"), (Side::Outside, "192.0.2.9", "192.0.2.254")]
    {
        let request = icmp(from, to, 15, 0, &[0x12, 0x34, 0, 9]);
        assert_eq!(silently(&mut lab, side, &request), DropReason::LocalUnsupported);
    }
}

//= test rfc5508#REQ-10d
#[test]
fn req_10d_an_error_has_the_service_class_of_its_cause() {
    let mut lab = Lab::new(&config());
    for class in 0..64_u8 {
        // The lower two bits are congestion marks, not part of the class.
        let cause = with_ttl(&with_service(&request(protocol::UDP), class << 2 | 3), 1);
        lab.refused(Side::Inside, &cause);
        let (_, told) = only_error(&mut lab);
        assert_eq!(told[1], class << 2);
    }
}

//= test rfc5508#section-7.3
#[test]
fn section_7_3_errors_that_embed_a_source_route_do_not_leave() {
    for kind in [131, 137] {
        for protocol in PROTOCOLS {
            let mut exchange = Exchange::new(protocol);
            let route = [kind, 7, 8, 10, 0, 0, 9, 0];
            let about = with_options(&exchange.about(Place::Host), &route);
            let error = exchange.error(Place::Host, (3, 3), &about);
            let reason = silently(&mut exchange.lab, Side::Inside, &error);
            assert_eq!(reason, DropReason::SourceRoute);
            let error = exchange.error(Place::Host, (3, 3), &exchange.about(Place::Host));
            let routed = with_options(&error, &route);
            assert_eq!(silently(&mut exchange.lab, Side::Inside, &routed), DropReason::SourceRoute);
        }
    }
}

//= test rfc5508#REQ-11
#[test]
fn req_11_messages_that_are_neither_query_nor_error_are_dropped_silently() {
    let exchange = Exchange::new(protocol::UDP);
    let mut lab = exchange.lab;
    // Router advertisement and solicitation, mobile node messages, and unassigned types.
    for kind in [9, 10, 41, 77, 255] {
        for (side, from, to) in
            [(Side::Inside, HOST, REMOTE_HOST), (Side::Outside, REMOTE_HOST, EXTERNAL)]
        {
            let message = icmp(from, to, kind, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
            assert!(Icmp::new_checked(&message[20..]).unwrap().checksum_valid());
            assert_eq!(silently(&mut lab, side, &message), DropReason::IcmpUnsupported);
        }
    }
}
