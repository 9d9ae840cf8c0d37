//! NAT64 (RFC 6146).

use super::world::*;
use natgate_engine::{Allocation, BlockConfig, Change, Direction, DropReason, Outcome, Side};
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6};

const HOST: &str = "2001:db8:1::5";
const REMOTE: &str = "198.51.100.7";
const MAPPED: &str = "64:ff9b::c633:6407";
const EXTERNAL: &str = "203.0.113.1";
const SYN: u8 = 2;

fn nat64() -> natgate_gateway::Settings {
    with_nat64(&["64:ff9b::/96"])
}

fn question() -> Vec<u8> {
    ip6(HOST, MAPPED, UDP, &udp(4000, 53, b"question"))
}

/// The external port of a packet that goes out first.
fn external_port(settings: &natgate_gateway::Settings, packet: &[u8]) -> u16 {
    port(single(&one(settings, Side::Inside, packet), Side::Outside), 0)
}

//= test rfc6146#section-3
//= test rfc6146#section-3.5.4-configured
#[test]
fn a_datagram_goes_out_and_its_answer_comes_back() {
    let external = external_port(&nat64(), &question());
    let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, b"answer"));
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, question()), (Side::Outside, 2.0, answer)]);
    let out = single(&outcomes.sent[0], Side::Outside);
    assert_eq!(ends4(out), ends(EXTERNAL, REMOTE));
    assert_eq!((out[8], port(out, 2), &out[28..]), (63, 53, &b"question"[..]));
    let back = single(&outcomes.sent[1], Side::Inside);
    assert_eq!(ends6(back), ends(MAPPED, HOST));
    assert_eq!(
        (back[7], port(back, 0), port(back, 2), &back[48..]),
        (63, 53, 4000, &b"answer"[..])
    );
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Forwarded), (1, 56));
    assert_eq!(outcomes.count(Direction::Inbound, Outcome::Forwarded), (1, 34));
    let created = outcomes.events.iter().filter(
        |event| matches!(event.change, Change::MappingCreated(id) if id.internal.port == 4000),
    );
    assert_eq!(created.count(), 1);
}

//= test rfc6146#section-3
#[test]
fn tcp_and_echo_pass_both_ways() {
    let syn = ip6(HOST, MAPPED, TCP, &tcp(4000, 80, SYN));
    let external = external_port(&nat64(), &syn);
    let answer = ip4(REMOTE, EXTERNAL, TCP, &tcp(80, external, SYN | 16));
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, syn), (Side::Outside, 2.0, answer)]);
    assert_eq!(ends4(single(&outcomes.sent[0], Side::Outside)), ends(EXTERNAL, REMOTE));
    assert_eq!(ends6(single(&outcomes.sent[1], Side::Inside)), ends(MAPPED, HOST));

    let ping = ip6(HOST, MAPPED, ICMPV6, &echo(128, 77, b"ping"));
    let sent = one(&nat64(), Side::Inside, &ping);
    let out = single(&sent, Side::Outside);
    assert_eq!((out[9], out[20]), (1, 8));
    let identifier = port(out, 4);
    let reply = ip4(REMOTE, EXTERNAL, ICMP, &echo(0, identifier, b"ping"));
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, ping), (Side::Outside, 2.0, reply)]);
    let back = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends6(back), back[40], port(back, 4)), (ends(MAPPED, HOST), 129, 77));
}

//= test rfc6146#section-3.5.4-configured
#[test]
fn every_prefix_gets_its_own_answers() {
    let prefixes = ["64:ff9b::/96", "2001:db8:64::/48", "2001:db8:100::/40", "2001:db8:65::/64"];
    let settings = with_nat64(&prefixes);
    for (number, prefix) in prefixes.iter().enumerate() {
        let remote = format!("198.51.100.{}", 10 + number);
        let mapped = embedded(prefix, &remote);
        let question = ip6(HOST, &mapped, UDP, &udp(4000, 53, b"question"));
        let external = external_port(&settings, &question);
        let answer = ip4(&remote, EXTERNAL, UDP, &udp(53, external, b"answer"));
        let refusal = ip4("192.0.2.77", EXTERNAL, ICMP, &{
            let out = one(&settings, Side::Inside, &question).remove(0).1;
            error(3, 1, 0, &out)
        });
        let outcomes = run(
            &settings,
            &[
                (Side::Inside, 1.0, question),
                (Side::Outside, 2.0, answer),
                (Side::Outside, 3.0, refusal),
            ],
        );
        assert_eq!(ends6(single(&outcomes.sent[1], Side::Inside)), ends(&mapped, HOST));
        let told = single(&outcomes.sent[2], Side::Inside);
        assert_eq!(ends6(told), ends(&embedded(prefix, "192.0.2.77"), HOST));
        assert_eq!(ends6(&told[48..]), ends(HOST, &mapped));
    }
}

//= test rfc6146#section-3.6.1-error
#[test]
fn errors_from_both_sides_reach_the_sender() {
    let out = one(&nat64(), Side::Inside, &question()).remove(0).1;
    let external = port(&out, 0);
    let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, b"answer"));
    let from_outside = ip4("192.0.2.77", EXTERNAL, ICMP, &error(3, 4, 1400, &out));
    let came = ip6(MAPPED, HOST, UDP, &udp(53, 4000, b"answer"));
    // A router between gateway and host, which is no subscriber and never gets a number.
    let from_inside = ip6("2001:db8:77::1", MAPPED, ICMPV6, &error(1, 4, 0, &came));
    let stranger = ip6(MAPPED, "2001:db8:1::6", UDP, &udp(53, 4000, b"answer"));
    let about_none = ip6("2001:db8:77::1", MAPPED, ICMPV6, &error(1, 4, 0, &stranger));
    let outcomes = run(
        &nat64(),
        &[
            (Side::Inside, 1.0, question()),
            (Side::Outside, 2.0, answer),
            (Side::Outside, 3.0, from_outside),
            (Side::Inside, 4.0, from_inside),
            (Side::Inside, 5.0, about_none),
        ],
    );
    let told = single(&outcomes.sent[2], Side::Inside);
    assert_eq!(ends6(told), ends("64:ff9b::c000:24d", HOST));
    let message = Icmpv6::new_checked(&told[40..]).unwrap();
    assert_eq!((message.kind(), message.code(), message.word()), (2, 0, 1420));
    assert_eq!(ends6(&told[48..]), ends(HOST, MAPPED));
    assert_eq!(&told[88..92], &question()[40..44], "the quotation has the internal port");

    let told = single(&outcomes.sent[3], Side::Outside);
    assert_eq!(ends4(told), ends(EXTERNAL, REMOTE));
    let message = Icmp::new_checked(&told[20..]).unwrap();
    assert_eq!((message.kind(), message.code()), (3, 3));
    assert_eq!(ends4(message.body()), ends(REMOTE, EXTERNAL));
    assert_eq!(u16::from_be_bytes([message.body()[22], message.body()[23]]), external);

    assert_eq!(outcomes.sent[4], []);
    assert_eq!(outcomes.dropped(), [DropReason::IcmpNoSession]);
}

//= test rfc6146#section-3.8
#[test]
fn hosts_reach_each_other_by_external_endpoints() {
    let other = "2001:db8:2::6";
    let server = ip6(other, MAPPED, UDP, &udp(5000, 53, b"hello"));
    let external = external_port(&nat64(), &server);
    let mapped = "64:ff9b::cb00:7101";
    let request = ip6(HOST, mapped, UDP, &udp(4000, external, b"request"));
    let outcomes =
        run(&nat64(), &[(Side::Inside, 1.0, server.clone()), (Side::Inside, 2.0, request.clone())]);
    let got = single(&outcomes.sent[1], Side::Inside);
    assert_eq!(ends6(got), ends(mapped, other));
    assert_eq!((port(got, 2), &got[48..]), (5000, &b"request"[..]));
    let back = ip6(other, mapped, UDP, &udp(5000, port(got, 0), b"reply"));
    let outcomes = run(
        &nat64(),
        &[(Side::Inside, 1.0, server), (Side::Inside, 2.0, request), (Side::Inside, 3.0, back)],
    );
    let got = single(&outcomes.sent[2], Side::Inside);
    assert_eq!((ends6(got), port(got, 2)), (ends(mapped, HOST), 4000));
    assert_eq!(outcomes.count(Direction::Hairpin, Outcome::Forwarded).0, 2);
}

#[test]
fn an_ipv4_subscriber_and_a_host_reach_each_other() {
    let server = ip6(HOST, MAPPED, UDP, &udp(5000, 53, b"hello"));
    let external = external_port(&nat64(), &server);
    let request = ip4("10.0.0.9", EXTERNAL, UDP, &udp(4000, external, b"request"));
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, server), (Side::Inside, 2.0, request)]);
    let got = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends6(got), port(got, 2)), (ends("64:ff9b::cb00:7101", HOST), 5000));
}

//= test rfc6146#section-3.4-fragments
//= test rfc6146#section-3.4-order
#[test]
fn fragments_pass_in_any_order() {
    let whole = ip6(HOST, MAPPED, UDP, &udp(4000, 53, &[9; 3000]));
    let parts = fragments6(&whole, 0xabcd_1234, 1232);
    let external = external_port(&nat64(), &question());
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut came = vec![(Side::Inside, 1.0, question())];
        came.extend(order.map(|part: usize| (Side::Inside, 1.5, parts[part].clone())));
        let outcomes = run(&nat64(), &came);
        let mut got: Vec<Vec<u8>> = outcomes.sent[1..]
            .iter()
            .flatten()
            .map(|(side, bytes)| {
                assert_eq!(*side, Side::Outside);
                bytes.clone()
            })
            .collect();
        got.sort_by_key(|bytes| Ipv4::new_checked(&bytes[..]).unwrap().fragment_offset());
        assert_eq!(got.len(), 3, "{order:?}");
        let views: Vec<_> =
            got.iter().map(|bytes| Ipv4::new_checked(&bytes[..]).unwrap()).collect();
        assert!(views.iter().all(|view| view.identification() == views[0].identification()));
        assert!(views.iter().all(|view| !view.dont_fragment() && view.checksum_valid()));
        let payload = got.iter().flat_map(|bytes| &bytes[20..]).copied().collect::<Vec<u8>>();
        assert_eq!(u16::from_be_bytes([payload[0], payload[1]]), external);
        let joined = ip4(EXTERNAL, REMOTE, UDP, &payload);
        assert_eq!(&joined[26..28], &payload[6..8], "the checksum of the whole is right");
    }
}

//= test rfc6146#section-3.4-fragments
//= test rfc6146#section-3.4-order
#[test]
fn fragments_from_outside_become_fragments() {
    let external = external_port(&nat64(), &question());
    let whole = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, &[9; 3000]));
    let part = |from: usize, to: usize, more: bool| {
        let mut bytes = whole[..20].to_vec();
        bytes.extend(&whole[20 + from..20 + to]);
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        let mut view = Ipv4::new_checked(&mut bytes[..]).unwrap();
        view.set_identification(0x4321);
        view.set_fragment_field(if more { 0x2000 } else { 0 } | (from / 8) as u16);
        view.fill_checksum();
        bytes
    };
    let outcomes = run(
        &nat64(),
        &[
            (Side::Inside, 1.0, question()),
            (Side::Outside, 1.1, part(1200, 3008, false)),
            (Side::Outside, 1.2, part(0, 1200, true)),
        ],
    );
    assert_eq!(outcomes.sent[1], []);
    let mut joined = vec![0; 3008];
    for (side, bytes) in &outcomes.sent[2] {
        assert_eq!(*side, Side::Inside);
        assert!(bytes.len() <= 1280, "{} bytes", bytes.len());
        let view = Ipv6::new_checked(&bytes[..]).unwrap();
        assert_eq!(ends6(bytes), ends(MAPPED, HOST));
        let walk = view.walk().unwrap();
        let (_, fragment) = walk.fragment.unwrap();
        assert_eq!(fragment.identification, 0x4321);
        let payload = &bytes[walk.transport..];
        joined[fragment.offset..fragment.offset + payload.len()].copy_from_slice(payload);
    }
    assert_eq!(u16::from_be_bytes([joined[2], joined[3]]), 4000);
    let expected = ip6(MAPPED, HOST, UDP, &joined);
    assert_eq!(&expected[46..48], &joined[6..8], "the checksum of the whole is right");
}

//= test rfc6146#section-3.4-zero-compute
#[test]
fn udp_without_checksum_gets_one() {
    let external = external_port(&nat64(), &question());
    let mut answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, b"answer"));
    answer[26..28].fill(0);
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, question()), (Side::Outside, 2.0, answer)]);
    single(&outcomes.sent[1], Side::Inside);
}

//= test rfc6052#section-3.1-represent
//= test rfc6052#section-3.1-translate
//= test rfc6052#section-3.1-drop
//= test rfc6052#section-3.4-internet
//= test rfc6052#section-3.4-specific
#[test]
fn addresses_that_must_not_be_translated_are_refused() {
    for (destination, reason) in [
        ("64:ff9b::10.0.0.1", DropReason::NotGlobal),
        ("64:ff9b::192.168.1.1", DropReason::NotGlobal),
        ("64:ff9b::127.0.0.1", DropReason::NotGlobal),
    ] {
        let packet = ip6(HOST, destination, UDP, &udp(1, 2, b""));
        let outcomes = run(&nat64(), &[(Side::Inside, 1.0, packet)]);
        assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![reason]));
        assert!(outcomes.events.is_empty());
    }
    let looping = ip6("64:ff9b::198.51.100.9", MAPPED, UDP, &udp(1, 2, b""));
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, looping)]);
    assert_eq!(outcomes.dropped(), [DropReason::SpoofedSource]);
    let from_outside = ip6("2001:db8:9::9", MAPPED, UDP, &udp(1, 2, b""));
    let outcomes = run(&nat64(), &[(Side::Outside, 1.0, from_outside)]);
    assert_eq!(outcomes.dropped(), [DropReason::NotForUs]);

    let mut settings = nat64();
    let subscribers = vec![prefix6("2001:db8:2::", 48)];
    settings.ipv6.nat64.as_mut().unwrap().subscribers = subscribers;
    let outcomes = run(&settings, &[(Side::Inside, 1.0, question())]);
    assert_eq!(outcomes.dropped(), [DropReason::NotSubscriber]);
    let settings = with_nat64(&["2001:db8:64::/96"]);
    let private = ip6(HOST, "2001:db8:64::10.0.0.1", UDP, &udp(1, 2, b""));
    assert_eq!(one(&settings, Side::Inside, &private).len(), 1, "another prefix may have it");
}

//= test rfc6146#section-3.5.1.1-refused
#[test]
fn a_subscriber_is_a_prefix_with_one_quota() {
    let mut settings = nat64();
    settings.engine.limits.udp_ports = 3;
    let from = |host: &str| (Side::Inside, 1.0, ip6(host, MAPPED, UDP, &udp(4000, 53, b"")));
    let outcomes = run(
        &settings,
        &[
            from("2001:db8:1::1"),
            from("2001:db8:1::2"),
            from("2001:db8:1::3"),
            from("2001:db8:1::4"),
            from("2001:db8:1:1::4"),
        ],
    );
    let left: Vec<Side> = outcomes.sent.iter().flatten().map(|(side, _)| *side).collect();
    use Side::{Inside, Outside};
    assert_eq!(left, [Outside, Outside, Outside, Inside, Outside]);
    let told = single(&outcomes.sent[3], Side::Inside);
    assert_eq!(ends6(told), ends(OWN_INSIDE, "2001:db8:1::4"));
    // RFC 6146 section 3.5.1.1: address unreachable.
    assert_eq!(told[40..42], [1, 3]);
    assert_eq!(told[48..], ip6("2001:db8:1::4", MAPPED, UDP, &udp(4000, 53, b"")));
    let quota =
        |event: &&natgate_engine::Event| matches!(event.change, Change::QuotaReached { .. });
    assert_eq!(outcomes.events.iter().filter(quota).count(), 1);

    settings.engine.limits.udp_ports = 100;
    settings.engine.allocation = Allocation::Block(BlockConfig {
        size: 16,
        max_per_subscriber: 1,
        ..BlockConfig::default()
    });
    let came: Vec<Came> = (0..20).map(|host| from(&format!("2001:db8:1::{host:x}1"))).collect();
    let outcomes = run(&settings, &came);
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Forwarded).0, 16);
    let blocks =
        outcomes.events.iter().filter(|event| matches!(event.change, Change::BlockAssigned(_)));
    assert_eq!(blocks.count(), 1);
}

#[test]
fn hop_limit_and_mtu_are_told_with_the_packet_as_it_came() {
    let mut expired = question();
    expired[7] = 1;
    let sent = one(&nat64(), Side::Inside, &expired);
    let told = single(&sent, Side::Inside);
    assert_eq!((ends6(told), &told[40..42]), (ends(OWN_INSIDE, HOST), &[3, 0][..]));
    assert_eq!(told[48..], expired);

    let mut settings = nat64();
    set_outside_mtu(&mut settings, 1400);
    let mut big = ip6(HOST, MAPPED, UDP, &udp(4000, 53, &[7; 1400]));
    // A flow label, which no translation of the error back could restore.
    big[3] = 0x77;
    let sent = one(&settings, Side::Inside, &big);
    let told = single(&sent, Side::Inside);
    let message = Icmpv6::new_checked(&told[40..]).unwrap();
    assert_eq!((message.kind(), message.word()), (2, 1420));
    assert_eq!(message.body(), &big[..1232]);

    let external = external_port(&nat64(), &question());
    let mut answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, &[7; 1460]));
    answer[6] = 0x40;
    Ipv4::new_checked(&mut answer[..]).unwrap().fill_checksum();
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, question()), (Side::Outside, 2.0, answer)]);
    let told = single(&outcomes.sent[1], Side::Outside);
    assert_eq!(ends4(told), ends(OWN_IPV4, REMOTE));
    assert_eq!((&told[20..22], &told[26..28]), (&[3, 4][..], &1480_u16.to_be_bytes()[..]));
}

#[test]
fn random_packets_do_no_harm() {
    let seed = 0x2545_f491_u32;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let mut settings = with_nat64(&["64:ff9b::/96", "2001:db8:64::/64"]);
    let maps = [("2001:db8:3::", 120, "192.0.2.0", 24)];
    settings.ipv6.siit = Some(siit(&["2001:db8:100::/40"], &maps));
    let out = one(&settings, Side::Inside, &question()).remove(0).1;
    let bases = [
        question(),
        ip6(HOST, MAPPED, TCP, &tcp(4000, 80, SYN)),
        ip6(HOST, MAPPED, ICMPV6, &error(1, 4, 0, &ip6(MAPPED, HOST, UDP, &udp(1, 2, b"")))),
        fragments6(&question(), 7, 8).remove(0),
        ip6("2001:db8:3::1", "2001:db8:1c0:2:21::", UDP, &udp(1, 2, b"x")),
        ip4(REMOTE, EXTERNAL, ICMP, &error(3, 4, 0, &out)),
        ip4(REMOTE, "192.0.2.1", UDP, &udp(1, 2, b"x")),
        ip4(REMOTE, EXTERNAL, UDP, &udp(53, port(&out, 0), b"x")),
    ];
    let mut came = vec![(Side::Inside, 1.0, question())];
    for number in 0..4000 {
        let mut bytes = bases[next() as usize % bases.len()].clone();
        for _ in 0..next() % 4 {
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
        }
        if next() % 4 == 0 {
            bytes.truncate(next() as usize % (bytes.len() + 1));
        }
        if let Ok(mut view) = Ipv4::new_header_checked(&mut bytes[..]) {
            view.fill_checksum();
        }
        let side = if next() % 2 == 0 { Side::Inside } else { Side::Outside };
        came.push((side, 2.0 + f64::from(number) / 100.0, bytes));
    }
    let outcomes = run(&settings, &came);
    let counted: u64 = outcomes.counters.packets.iter().flatten().sum();
    assert_eq!(counted, came.len() as u64, "every packet is counted once");
    for (_, bytes) in outcomes.sent.iter().flatten() {
        match bytes[0] >> 4 {
            4 => assert!(Ipv4::new_checked(&bytes[..]).unwrap().checksum_valid()),
            _ => assert_eq!(Ipv6::new_checked(&bytes[..]).unwrap().total_len(), bytes.len()),
        }
    }
}

//= test rfc6146#section-3.5.2.3-refused
#[test]
fn a_segment_that_finds_no_port_is_answered_with_address_unreachable() {
    let mut settings = nat64();
    settings.engine.limits.tcp_ports = 1;
    let syn = |port: u16| (Side::Inside, 1.0, ip6(HOST, MAPPED, TCP, &tcp(port, 80, SYN)));
    let outcomes = run(&settings, &[syn(4000), syn(4001)]);
    let told = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends6(told), &told[40..42]), (ends(OWN_INSIDE, HOST), &[1, 3][..]));
    assert_eq!(told[48..], syn(4001).2);
    // Errors of routers outside keep the meaning that RFC 7915 section 4.2 gives them.
    let out = single(&outcomes.sent[0], Side::Outside).to_vec();
    let refusal = ip4("192.0.2.77", EXTERNAL, ICMP, &error(3, 1, 0, &out));
    let outcomes = run(&settings, &[syn(4000), (Side::Outside, 2.0, refusal)]);
    assert_eq!(single(&outcomes.sent[1], Side::Inside)[40..42], [1, 0]);
}

//= test rfc6146#section-3.5-loop
//= test rfc6146#section-5.4-loop
#[test]
fn a_source_in_a_prefix_goes_nowhere() {
    let source = "64:ff9b::198.51.100.9";
    for (side, destination) in [
        (Side::Inside, MAPPED),
        (Side::Inside, "2001:db8:9::9"),
        (Side::Outside, HOST),
        (Side::Inside, OWN_INSIDE),
    ] {
        let packet = ip6(source, destination, ICMPV6, &echo(128, 7, b"ping"));
        let outcomes = run(&nat64(), &[(side, 1.0, packet)]);
        assert_eq!(outcomes.sent[0], [], "to {destination}");
        assert_eq!(outcomes.dropped(), [DropReason::SpoofedSource], "to {destination}");
    }
}

//= test rfc6146#section-3.5-ipv6
//= test rfc6146#section-3.5-ipv4
//= test rfc6146#section-3.5.1-unknown
#[test]
fn only_addresses_of_prefixes_and_pools_are_translated() {
    let other = ip6(HOST, "2001:db8:9::9", UDP, &udp(4000, 53, b"question"));
    let outcomes = run(&nat64(), &[(Side::Inside, 1.0, other)]);
    assert_eq!(ends6(single(&outcomes.sent[0], Side::Outside)), ends(HOST, "2001:db8:9::9"));
    assert!(outcomes.events.is_empty());
    let external = external_port(&nat64(), &question());
    for (destination, passes) in [(EXTERNAL, true), ("203.0.113.2", false), (OWN_IPV4, false)] {
        let answer = ip4(REMOTE, destination, UDP, &udp(53, external, b"answer"));
        let came = [(Side::Inside, 1.0, question()), (Side::Outside, 2.0, answer)];
        assert_eq!(run(&nat64(), &came).sent[1].len(), usize::from(passes), "{destination}");
    }
    let stray = ip4(REMOTE, EXTERNAL, UDP, &udp(53, external, b"answer"));
    let outcomes = run(&nat64(), &[(Side::Outside, 1.0, stray)]);
    assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![DropReason::NoMapping]));
}

//= test rfc6146#section-3.4-quoted
//= test rfc6146#section-3.4-quoted-query
#[test]
fn errors_that_show_too_little_are_dropped_in_silence() {
    let ping = ip6(HOST, MAPPED, ICMPV6, &echo(128, 77, b"ping"));
    for (packet, shown) in [(question(), 3), (question(), 0), (ping.clone(), 5), (ping, 0)] {
        let out = one(&nat64(), Side::Inside, &packet).remove(0).1;
        let from_outside =
            |len: usize| ip4("192.0.2.77", EXTERNAL, ICMP, &error(3, 1, 0, &out[..20 + len]));
        let came = |refusal| [(Side::Inside, 1.0, packet.clone()), (Side::Outside, 2.0, refusal)];
        let outcomes = run(&nat64(), &came(from_outside(shown)));
        assert_eq!(outcomes.sent[1], [], "{shown} bytes");
        assert_eq!(run(&nat64(), &came(from_outside(8))).sent[1].len(), 1);
    }
    // From inside, about an answer.
    let out = one(&nat64(), Side::Inside, &question()).remove(0).1;
    let answer = ip4(REMOTE, EXTERNAL, UDP, &udp(53, port(&out, 0), b"answer"));
    let came = ip6(MAPPED, HOST, UDP, &udp(53, 4000, b"answer"));
    for (shown, passes) in [(0, 0), (3, 0), (8, 1)] {
        let refusal = ip6(HOST, MAPPED, ICMPV6, &error(1, 4, 0, &came[..40 + shown]));
        let outcomes = run(
            &nat64(),
            &[
                (Side::Inside, 1.0, question()),
                (Side::Outside, 2.0, answer.clone()),
                (Side::Inside, 3.0, refusal),
            ],
        );
        assert_eq!(outcomes.sent[2].len(), passes, "{shown} bytes");
    }
}

//= test rfc6146#section-3.5.2-v4-init
//= test rfc6146#section-3.5.2-v6-init
#[test]
fn segments_pass_while_a_connection_opens() {
    const ACK: u8 = 16;
    let syn = ip6(HOST, MAPPED, TCP, &tcp(4000, 80, SYN));
    let external = external_port(&nat64(), &syn);
    let from_host = |flags| (Side::Inside, 1.0, ip6(HOST, MAPPED, TCP, &tcp(4000, 80, flags)));
    let from = |remote: &str, flags| {
        (Side::Outside, 3.0, ip4(remote, EXTERNAL, TCP, &tcp(80, external, flags)))
    };
    let came = [
        from_host(SYN),
        // The remote host has not answered yet.
        from_host(ACK),
        from(REMOTE, ACK),
        // The host has not answered yet.
        from("198.51.100.9", SYN),
        from("198.51.100.9", ACK),
    ];
    let outcomes = run(&nat64(), &came);
    for (number, sent) in outcomes.sent.iter().enumerate() {
        assert_eq!(sent.len(), 1, "segment {number}: {:?}", outcomes.dropped());
        single(sent, came[number].0.other());
    }
}

//= test rfc6146#section-3.5.2-closed
#[test]
fn a_segment_without_a_session_passes_if_the_policy_says_so() {
    let mut settings = nat64();
    let syn = ip6(HOST, MAPPED, TCP, &tcp(4000, 80, SYN));
    let external = external_port(&settings, &syn);
    let segment = ip4("198.51.100.8", EXTERNAL, TCP, &tcp(80, external, 16));
    let came = [(Side::Inside, 1.0, syn), (Side::Outside, 2.0, segment)];
    assert_eq!(run(&settings, &came).dropped(), [DropReason::TcpNotSyn]);
    settings.engine.tcp_pickup = true;
    single(&run(&settings, &came).sent[1], Side::Inside);
}

//= test rfc6146#section-3.4-interval
//= test rfc6146#section-3.4-interval-configurable
//= test rfc6146#section-3.4-interval-default
#[test]
fn fragments_wait_for_the_first_one_for_two_seconds_or_what_is_set() {
    let parts = fragments6(&ip6(HOST, MAPPED, UDP, &udp(4000, 53, &[9; 2000])), 7, 1232);
    let passes = |settings: &natgate_gateway::Settings, after: f64| {
        let came = [
            (Side::Inside, 1.0, parts[1].clone()),
            (Side::Inside, 1.0 + after, parts[0].clone()),
            (Side::Inside, 30.0, question()),
        ];
        run(settings, &came).sent[1].len() == 2
    };
    assert!(passes(&nat64(), 0.0) && passes(&nat64(), 1.9) && !passes(&nat64(), 2.5));
    let mut settings = nat64();
    settings.engine.timeouts.fragment = std::time::Duration::from_secs(9);
    assert!(passes(&settings, 8.9) && !passes(&settings, 9.5));
}

//= test rfc6146#section-3.5.2.3-address
//= test rfc6146#section-3.5.2.3-well-known
//= test rfc6146#section-3.5.2.3-high
#[test]
fn a_host_has_one_address_in_all_protocols_and_tcp_ports_stay_on_their_side_of_1024() {
    let mut settings = nat64();
    settings.engine.pools[0].addresses[0].last = [203, 0, 113, 16].into();
    settings.engine.pools[0].ports = (1, 65_535);
    let mut came = Vec::new();
    for number in 0..8_u16 {
        let host = format!("2001:db8:{:x}::5", 16 + number);
        let mut send = |protocol, message: &[u8]| {
            came.push((Side::Inside, 1.0, ip6(&host, MAPPED, protocol, message)));
        };
        send(UDP, &udp(4000, 53, b""));
        send(TCP, &tcp(80 + number, 80, SYN));
        send(TCP, &tcp(4000 + number, 80, SYN));
        send(ICMPV6, &echo(128, 77, b"ping"));
    }
    let outcomes = run(&settings, &came);
    let mut used = std::collections::BTreeSet::new();
    for sent in outcomes.sent.chunks(4) {
        let out: Vec<&[u8]> = sent.iter().map(|sent| single(sent, Side::Outside)).collect();
        let addresses: Vec<String> = out.iter().map(|bytes| ends4(bytes).0).collect();
        assert!(addresses.iter().all(|one| *one == addresses[0]), "{addresses:?}");
        assert!(port(out[1], 0) < 1024 && port(out[2], 0) >= 1024);
        used.insert(addresses[0].clone());
    }
    assert!(used.len() > 1, "the pool is used: {used:?}");
}
