//! Translation of prefixes (RFC 6296).

use super::world::*;
use natgate_engine::{Direction, DropReason, Outcome, Side};
use natgate_gateway::Settings;
use natgate_gateway::ipv6::{Nptv6, Nptv6Settings};
use natgate_wire::Icmpv6;

/// The example of RFC 6296 section 3.4.
const HOST: &str = "fd01:203:405:1::1234";
const SEEN: &str = "2001:db8:1:d550::1234";
const REMOTE: &str = "2001:db8:9::9";

fn nptv6() -> Settings {
    let mut settings = settings();
    let pair = |internal: &str, external: &str| Nptv6Settings {
        pair: Nptv6::new(prefix6(internal, 48), prefix6(external, 48)).unwrap(),
        icmp_errors: true,
    };
    settings.ipv6.nptv6 =
        vec![pair("fd01:203:405::", "2001:db8:1::"), pair("fd01:203:406::", "2001:db8:2::")];
    settings
}

//= test rfc6296#section-6-ports
#[test]
fn packets_pass_both_ways_with_the_same_checksum() {
    let question = ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"));
    let answer = ip6(REMOTE, SEEN, UDP, &udp(53, 4000, b"answer"));
    let outcomes = run(
        &nptv6(),
        &[(Side::Inside, 1.0, question.clone()), (Side::Outside, 2.0, answer.clone())],
    );
    let out = single(&outcomes.sent[0], Side::Outside);
    assert_eq!((ends6(out), out[7]), (ends(SEEN, REMOTE), 63));
    assert_eq!(out[40..], question[40..]);
    let back = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends6(back), back[7]), (ends(REMOTE, HOST), 63));
    assert_eq!(back[40..], answer[40..]);
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Forwarded), (1, 56));
}

//= test rfc6296#section-4.3-hairpin
#[test]
fn a_host_reaches_another_by_its_external_address() {
    let other = "fd01:203:405:2::99";
    let from_other = ip6(other, REMOTE, UDP, &udp(1, 2, b""));
    let seen = ends6(&one(&nptv6(), Side::Inside, &from_other)[0].1).0;
    let request = ip6(HOST, &seen, UDP, &udp(4000, 53, b"question"));
    let outcomes = run(&nptv6(), &[(Side::Inside, 1.0, request)]);
    assert_eq!(ends6(single(&outcomes.sent[0], Side::Inside)), ends(SEEN, other));
    assert_eq!(outcomes.count(Direction::Hairpin, Outcome::Forwarded).0, 1);
}

#[test]
fn errors_quote_what_their_receiver_sent() {
    let question = ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"));
    let out = one(&nptv6(), Side::Inside, &question).remove(0).1;
    let refusal = ip6("2001:db8:7::1", SEEN, ICMPV6, &error(1, 0, 0, &out));
    let sent = one(&nptv6(), Side::Outside, &refusal);
    let told = single(&sent, Side::Inside);
    assert_eq!(ends6(told), ends("2001:db8:7::1", HOST));
    assert_eq!(ends6(&told[48..]), ends(HOST, REMOTE));
}

//= test rfc6296#section-3.2-unmapped
#[test]
fn errors_of_our_own_quote_the_packet_as_received() {
    let mut expired = ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"));
    expired[7] = 1;
    let sent = one(&nptv6(), Side::Inside, &expired);
    let told = single(&sent, Side::Inside);
    assert_eq!(ends6(told), ends(OWN_INSIDE, HOST));
    assert_eq!(told[48..], expired);

    // The subnet without a translation (RFC 6296 section 3.2).
    let unmapped = ip6("fd01:203:405:ffff::1", REMOTE, UDP, &udp(1, 2, b""));
    let outcomes = run(&nptv6(), &[(Side::Inside, 1.0, unmapped.clone())]);
    let told = single(&outcomes.sent[0], Side::Inside);
    let message = Icmpv6::new_checked(&told[40..]).unwrap();
    assert_eq!((message.kind(), message.code(), message.body()), (1, 1, &unmapped[..]));
    assert_eq!(outcomes.dropped(), [DropReason::Untranslatable]);
}

#[test]
fn addresses_of_no_pair_are_routed_if_forwarding_is_on() {
    let other = ip6("2001:db8:77::1", REMOTE, UDP, &udp(1, 2, b""));
    let sent = one(&nptv6(), Side::Inside, &other);
    assert_eq!(ends6(single(&sent, Side::Outside)), ends("2001:db8:77::1", REMOTE));
    let mut settings = nptv6();
    settings.ipv6.forwarding = false;
    assert_eq!(one(&settings, Side::Inside, &other), []);
    let question = ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"));
    assert_eq!(one(&settings, Side::Inside, &question).len(), 1);
}

//= test rfc6296#section-7-filter
#[test]
fn a_filter_stands_beside_the_translation() {
    let mut settings = nptv6();
    settings.ipv6.filter = natgate_gateway::ipv6::Filter::OutboundOnly;
    let question = ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"));
    let answer = ip6(REMOTE, SEEN, UDP, &udp(53, 4000, b"answer"));
    let outcomes = run(&settings, &[(Side::Outside, 1.0, answer.clone())]);
    assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![DropReason::Filtered]));
    let outcomes = run(&settings, &[(Side::Inside, 1.0, question), (Side::Outside, 2.0, answer)]);
    assert_eq!(ends6(single(&outcomes.sent[1], Side::Inside)), ends(REMOTE, HOST));
}

#[test]
fn the_answer_to_a_refused_request_quotes_the_packet_as_received() {
    let mut settings = nptv6();
    settings.ipv6.filter = natgate_gateway::ipv6::Filter::OutboundOnly;
    let request = ip6(REMOTE, SEEN, TCP, &tcp(80, 90, 2));
    let later = ip6(REMOTE, SEEN, UDP, &udp(53, 4000, b"late"));
    let outcomes =
        run(&settings, &[(Side::Outside, 1.0, request.clone()), (Side::Outside, 7.0, later)]);
    let answer = single(&outcomes.sent[1], Side::Outside);
    assert_eq!((answer[40], answer[41], &answer[48..]), (1, 1, &request[..]));
}
