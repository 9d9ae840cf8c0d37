//! Stateless translation (RFC 7915, 7757, 6791).

use super::world::*;
use natgate_engine::{Direction, DropReason, Outcome, Side};
use natgate_gateway::Settings;
use natgate_gateway::ipv6::Hairpin;
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6};

const SERVER: &str = "2001:db8:1c0:2:21::";
const SERVER4: &str = "192.0.2.33";
const CLIENT: &str = "2001:db8:1c6:3364:7::";
const CLIENT4: &str = "198.51.100.7";

fn by_prefix() -> Settings {
    let mut settings = settings();
    settings.ipv6.siit = Some(siit(&["2001:db8:100::/40"], &[]));
    settings
}

/// The example of RFC 7757 section 4.1.
fn by_maps(hairpin: Hairpin) -> Settings {
    let mut settings = settings();
    let maps =
        [("2001:db8:aaaa::", 128, "192.0.2.1", 32), ("2001:db8:bbbb::b", 128, "192.0.2.2", 32)];
    let mut siit = siit(&["64:ff9b::/96"], &maps);
    siit.hairpin = hairpin;
    settings.ipv6.siit = Some(siit);
    settings
}

//= test rfc7915#section-4.6-translate
//= test rfc7915#section-5.6-translate
//= test rfc7915#section-6-6052
//= test rfc6052#section-3.3-prefix
//= test rfc6052#section-3.3-format
//= test rfc6052#section-3.3-selected
//= test rfc6052#section-3.3-same
#[test]
fn packets_pass_both_ways_by_a_prefix() {
    let outcomes = run(
        &by_prefix(),
        &[
            (Side::Inside, 1.0, ip6(SERVER, CLIENT, UDP, &udp(53, 4000, b"answer"))),
            (Side::Outside, 1.0, ip4(CLIENT4, SERVER4, UDP, &udp(4000, 53, b"question"))),
        ],
    );
    let out = single(&outcomes.sent[0], Side::Outside);
    assert_eq!((ends4(out), out[8]), (ends(SERVER4, CLIENT4), 63));
    let back = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends6(back), back[7]), (ends(CLIENT, SERVER), 63));
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Forwarded), (1, 54));
    assert_eq!(outcomes.count(Direction::Inbound, Outcome::Forwarded), (1, 36));
}

//= test rfc7915#section-6-7757
//= test rfc7757#section-3.2-each
//= test rfc7757#section-3.3.1
//= test rfc7757#section-3.3.2
#[test]
fn explicit_maps_go_before_prefixes() {
    let outcomes = run(
        &by_maps(Hairpin::Intrinsic),
        &[
            (
                Side::Inside,
                1.0,
                ip6("2001:db8:aaaa::", "64:ff9b::198.51.100.7", TCP, &tcp(4000, 80, 2)),
            ),
            (Side::Outside, 1.0, ip4(CLIENT4, "192.0.2.2", TCP, &tcp(80, 4000, 18))),
            (
                Side::Inside,
                1.0,
                ip6("2001:db8:cccc::", "64:ff9b::198.51.100.7", TCP, &tcp(1, 2, 2)),
            ),
        ],
    );
    assert_eq!(ends4(single(&outcomes.sent[0], Side::Outside)), ends("192.0.2.1", CLIENT4));
    let back = single(&outcomes.sent[1], Side::Inside);
    assert_eq!(ends6(back), ends("64:ff9b::c633:6407", "2001:db8:bbbb::b"));
    let told = single(&outcomes.sent[2], Side::Inside);
    assert_eq!((ends6(told), &told[40..42]), (ends(OWN_INSIDE, "2001:db8:cccc::"), &[1, 1][..]));
    assert_eq!(outcomes.dropped(), [DropReason::Untranslatable]);
}

//= test rfc7757#section-4.2
//= test rfc7757#section-4.2-default
//= test rfc7757#section-4.2.1-source
//= test rfc7757#section-4.2.1-inner
//= test rfc7757#section-4.2.1-outer
//= test rfc7757#section-4.2.1-instead
//= test rfc7757#section-4.2.2
//= test rfc7757#section-4.2.2-rules
//= test rfc7757#section-4.2.2-hop
#[test]
fn mapped_hosts_reach_each_other() {
    let request = ip6("2001:db8:aaaa::", "64:ff9b::192.0.2.2", UDP, &udp(4000, 53, b"question"));
    let outcomes = run(&by_maps(Hairpin::Intrinsic), &[(Side::Inside, 1.0, request.clone())]);
    let got = single(&outcomes.sent[0], Side::Inside);
    assert_eq!(ends6(got), ends("64:ff9b::c000:201", "2001:db8:bbbb::b"));
    assert_eq!(got[7], 63, "one hop");
    assert_eq!(outcomes.count(Direction::Hairpin, Outcome::Forwarded), (1, 56));

    // The error about it turns round too (condition set B).
    let refusal = ip6("2001:db8:bbbb::b", "64:ff9b::192.0.2.1", ICMPV6, &error(1, 4, 0, got));
    let sent = one(&by_maps(Hairpin::Intrinsic), Side::Inside, &refusal);
    let told = single(&sent, Side::Inside);
    assert_eq!(ends6(told), ends("64:ff9b::c000:202", "2001:db8:aaaa::"));
    assert_eq!(ends6(&told[48..]), ends("2001:db8:aaaa::", "64:ff9b::c000:202"));

    for hairpin in [Hairpin::Simple, Hairpin::Off] {
        let out = one(&by_maps(hairpin), Side::Inside, &request);
        let out = single(&out, Side::Outside);
        assert_eq!(ends4(out), ends("192.0.2.1", "192.0.2.2"));
        let back = one(&by_maps(hairpin), Side::Outside, out);
        let source = match hairpin {
            Hairpin::Simple => "64:ff9b::c000:201",
            _ => "2001:db8:aaaa::",
        };
        assert_eq!(ends6(single(&back, Side::Inside)), ends(source, "2001:db8:bbbb::b"));
    }
}

//= test rfc7915#section-4.1-df
#[test]
fn mtus_are_told_both_ways() {
    let mut settings = by_prefix();
    set_outside_mtu(&mut settings, 1400);
    let big = ip6(SERVER, CLIENT, UDP, &udp(53, 4000, &[7; 1400]));
    let sent = one(&settings, Side::Inside, &big);
    let told = single(&sent, Side::Inside);
    let message = Icmpv6::new_checked(&told[40..]).unwrap();
    assert_eq!((message.kind(), message.word(), message.body()), (2, 1420, &big[..1232]));
    assert_eq!(ends6(told), ends(OWN_INSIDE, SERVER));

    let mut big = ip4(CLIENT4, SERVER4, UDP, &udp(4000, 53, &[7; 1460]));
    big[6] = 0x40;
    Ipv4::new_checked(&mut big[..]).unwrap().fill_checksum();
    let sent = one(&by_prefix(), Side::Outside, &big);
    let told = single(&sent, Side::Outside);
    let message = Icmp::new_checked(&told[20..]).unwrap();
    assert_eq!((message.kind(), message.code(), &told[26..28]), (3, 4, &[5, 200][..]));
    assert_eq!((ends4(told), message.body()), (ends(OWN_IPV4, CLIENT4), &big[..548]));
}

#[test]
fn long_packets_that_may_be_cut_are_cut() {
    let big = ip4(CLIENT4, SERVER4, UDP, &udp(4000, 53, &[7; 1460]));
    let sent = one(&by_prefix(), Side::Outside, &big);
    assert_eq!(sent.len(), 2);
    let mut joined = Vec::new();
    for (side, bytes) in &sent {
        assert_eq!(*side, Side::Inside);
        assert!(bytes.len() <= 1280);
        let walk = Ipv6::new_checked(&bytes[..]).unwrap().walk().unwrap();
        assert_eq!(walk.fragment.unwrap().1.offset, joined.len());
        joined.extend(&bytes[walk.transport..]);
    }
    assert_eq!(ip6(CLIENT, SERVER, UDP, &joined)[46..48], joined[6..8]);

    let whole = ip6(SERVER, CLIENT, UDP, &udp(53, 4000, &[7; 2000]));
    let came: Vec<Came> =
        fragments6(&whole, 9, 1232).into_iter().map(|part| (Side::Inside, 1.0, part)).collect();
    let outcomes = run(&by_prefix(), &came);
    let payload: Vec<u8> =
        outcomes.sent.iter().flatten().flat_map(|(_, bytes)| bytes[20..].to_vec()).collect();
    assert_eq!(ip4(SERVER4, CLIENT4, UDP, &payload)[26..28], payload[6..8]);
}

//= test rfc7915#section-6-6791
//= test rfc6791#section-3.1-dropped
//= test rfc6791#section-3.1-private
//= test rfc7757#section-3.2-each
#[test]
fn errors_are_translated_whatever_router_sends_them() {
    let mut settings = by_maps(Hairpin::Intrinsic);
    let siit = settings.ipv6.siit.as_mut().unwrap();
    siit.icmp_source_ipv4 = vec!["203.0.113.8".parse().unwrap()];
    let about = ip6("64:ff9b::198.51.100.7", "2001:db8:aaaa::", UDP, &udp(80, 4000, b"x"));
    let from_router =
        ip6("2001:db8:77::1", "64:ff9b::198.51.100.7", ICMPV6, &error(3, 0, 0, &about));
    let sent = one(&settings, Side::Inside, &from_router);
    let told = single(&sent, Side::Outside);
    assert_eq!(ends4(told), ends("203.0.113.8", CLIENT4));
    assert_eq!((told[20], told[21]), (11, 0));
    assert_eq!(ends4(&told[28..]), ends(CLIENT4, "192.0.2.1"));

    let about = ip4("192.0.2.1", CLIENT4, UDP, &udp(4000, 80, b"x"));
    let from_router = ip4("10.9.9.9", "192.0.2.1", ICMP, &error(11, 0, 0, &about));
    let sent = one(&settings, Side::Outside, &from_router);
    let told = single(&sent, Side::Inside);
    assert_eq!(ends6(told), ends(OWN_INSIDE, "2001:db8:aaaa::"));
    assert_eq!(ends6(&told[48..]), ends("2001:db8:aaaa::", "64:ff9b::c633:6407"));
}

#[test]
fn echo_passes_and_the_own_address_answers() {
    let sent = one(&by_prefix(), Side::Outside, &ip4(CLIENT4, SERVER4, ICMP, &echo(8, 7, b"ping")));
    let got = single(&sent, Side::Inside);
    assert_eq!((ends6(got), got[40], port(got, 4)), (ends(CLIENT, SERVER), 128, 7));
    let sent =
        one(&by_prefix(), Side::Outside, &ip4(CLIENT4, OWN_IPV4, ICMP, &echo(8, 7, b"ping")));
    assert_eq!(ends4(single(&sent, Side::Outside)), ends(OWN_IPV4, CLIENT4));
}

#[test]
fn the_pool_stays_with_the_stateful_translator() {
    let mut settings = by_prefix();
    settings.engine.subscribers = vec![natgate_engine::Prefix::new([10, 0, 0, 0].into(), 8)];
    let question = ip4("10.0.0.5", CLIENT4, UDP, &udp(4000, 53, b"question"));
    let external = port(single(&one(&settings, Side::Inside, &question), Side::Outside), 0);
    let answer = ip4(CLIENT4, "203.0.113.1", UDP, &udp(53, external, b"answer"));
    let outcomes = run(&settings, &[(Side::Inside, 1.0, question), (Side::Outside, 2.0, answer)]);
    assert_eq!(ends4(single(&outcomes.sent[1], Side::Inside)), ends(CLIENT4, "10.0.0.5"));
}

//= test rfc7915#section-4.1-hop-limit
//= test rfc7915#section-4.1-source
#[test]
fn expired_and_martian_packets() {
    let mut expired = ip4(CLIENT4, SERVER4, UDP, &udp(1, 2, b""));
    expired[8] = 1;
    Ipv4::new_checked(&mut expired[..]).unwrap().fill_checksum();
    let sent = one(&by_prefix(), Side::Outside, &expired);
    let told = single(&sent, Side::Outside);
    assert_eq!((ends4(told), told[20], &told[28..]), (ends(OWN_IPV4, CLIENT4), 11, &expired[..]));
    for (source, destination, reason) in [
        ("127.0.0.1", SERVER4, DropReason::MartianSource),
        ("224.0.0.1", SERVER4, DropReason::MartianSource),
        (CLIENT4, "255.255.255.255", DropReason::MartianDestination),
        (SERVER4, SERVER4, DropReason::Land),
    ] {
        let packet = ip4(source, destination, UDP, &udp(1, 2, b""));
        let outcomes = run(&by_prefix(), &[(Side::Outside, 1.0, packet)]);
        assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![reason]));
    }
}

/// An error that a packet of the server's provoked.
fn refusal(from: &str) -> Vec<u8> {
    let about = ip4(SERVER4, CLIENT4, UDP, &udp(53, 4000, b"answer"));
    ip4(from, SERVER4, ICMP, &error(11, 0, 0, &about))
}

//= test rfc7915#section-4.1-source
//= test rfc7915#section-4.1-source-error
#[test]
fn an_error_from_an_illegal_source_shows_where_it_came_from() {
    for source in ["0.0.0.0", "127.0.0.1", "240.0.0.9"] {
        let sent = one(&by_prefix(), Side::Outside, &refusal(source));
        let told = single(&sent, Side::Inside);
        assert_eq!(ends6(told), ends(&embedded("2001:db8:100::/40", source), SERVER));
        assert_eq!(ends6(&told[48..]), ends(SERVER, CLIENT));
        // Nothing else has such a source.
        let packet = ip4(source, SERVER4, ICMP, &echo(8, 7, b"ping"));
        let outcomes = run(&by_prefix(), &[(Side::Outside, 1.0, packet)]);
        assert_eq!(outcomes.sent[0], []);
        assert_eq!(outcomes.dropped(), [DropReason::MartianSource]);
    }
}

//= test rfc7915#section-5.1-source
#[test]
fn an_illegal_source_in_a_prefix_is_dropped_in_silence() {
    for source in ["0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255"] {
        let source = embedded("2001:db8:100::/40", source);
        let packet = ip6(&source, CLIENT, UDP, &udp(53, 4000, b"answer"));
        let outcomes = run(&by_prefix(), &[(Side::Inside, 1.0, packet)]);
        assert_eq!(outcomes.sent[0], [], "{source}");
        assert_eq!(outcomes.dropped(), [DropReason::MartianSource]);
    }
    let outcomes =
        run(&by_prefix(), &[(Side::Inside, 1.0, ip6("::1", CLIENT, UDP, &udp(53, 4000, b"")))]);
    assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![DropReason::MartianSource]));
}

//= test rfc7915#section-4.4-error
//= test rfc7915#section-4.4-configure
//= test rfc7915#section-5.4-error
//= test rfc7915#section-5.4-type
//= test rfc7915#section-5.4-configure
#[test]
fn a_sender_without_a_translation_is_told_unless_the_side_is_silent() {
    let mut settings = by_maps(Hairpin::Intrinsic);
    settings.ipv6.siit.as_mut().unwrap().prefixes.clear();
    let question = ip4(CLIENT4, "192.0.2.1", UDP, &udp(4000, 53, b"question"));
    let sent = one(&settings, Side::Outside, &question);
    let told = single(&sent, Side::Outside);
    assert_eq!((ends4(told), &told[20..22]), (ends(OWN_IPV4, CLIENT4), &[3, 13][..]));
    assert_eq!(told[28..], question);
    let about = ip4("192.0.2.1", CLIENT4, UDP, &udp(53, 4000, b"answer"));
    let refusal = ip4(CLIENT4, "192.0.2.1", ICMP, &error(3, 3, 0, &about));
    assert_eq!(one(&settings, Side::Outside, &refusal), [], "nothing answers an error");
    settings.ipv6.outside.icmp_errors = false;
    assert_eq!(one(&settings, Side::Outside, &question), []);

    let mut settings = by_maps(Hairpin::Intrinsic);
    let answer = ip6("2001:db8:cccc::", "64:ff9b::198.51.100.7", UDP, &udp(53, 4000, b"answer"));
    let sent = one(&settings, Side::Inside, &answer);
    assert_eq!(single(&sent, Side::Inside)[40..42], [1, 1]);
    let ping = ip6("2001:db8:cccc::", "64:ff9b::198.51.100.7", ICMPV6, &echo(128, 7, b"ping"));
    assert_eq!(one(&settings, Side::Inside, &ping), [], "the prohibition answers no ICMPv6");
    settings.ipv6.inside.icmp_errors = false;
    assert_eq!(one(&settings, Side::Inside, &answer), []);
}

//= test rfc7915#section-4-order
//= test rfc7915#section-5-order
#[test]
fn packets_of_a_flow_keep_their_order() {
    let sizes = [1, 1400, 20, 1300, 2, 900, 1401, 3];
    let mut came: Vec<Came> = Vec::new();
    for (number, size) in (0_u8..).zip(sizes) {
        let data = vec![number; size];
        came.push((Side::Inside, 1.0, ip6(SERVER, CLIENT, UDP, &udp(53, 4000, &data))));
        came.push((Side::Outside, 1.0, ip4(CLIENT4, SERVER4, UDP, &udp(4000, 53, &data))));
    }
    let outcomes = run(&by_prefix(), &came);
    for side in [Side::Inside, Side::Outside] {
        // The last byte of a packet, or of a fragment, is the number of its datagram.
        let left = outcomes.sent.iter().flatten().filter(|(to, _)| *to == side);
        let mut numbers: Vec<u8> = left.filter_map(|(_, bytes)| bytes.last().copied()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        numbers.dedup();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
