//! A CLAT (RFC 6877): IPv4 inside, IPv6 outside.

use super::world::*;
use natgate_engine::{Direction, Outcome, Side};
use natgate_gateway::Settings;
use natgate_gateway::ipv6::ClatSettings;
use natgate_wire::{Icmp, Ipv4};

const HOST4: &str = "10.0.0.5";
const HOST: &str = "2001:db8:aaaa::a00:5";
const REMOTE4: &str = "198.51.100.7";
const REMOTE: &str = "64:ff9b::c633:6407";

fn clat() -> Settings {
    let mut settings = settings();
    settings.engine.inside.address = Some([10, 0, 0, 1].into());
    settings.ipv6.clat = Some(ClatSettings {
        prefix: pref64("64:ff9b::/96"),
        source: pref64("2001:db8:aaaa::/96"),
        subscribers: settings.engine.subscribers.clone(),
    });
    settings
}

//= test rfc6877#section-2-prefixes
#[test]
fn packets_pass_both_ways() {
    let outcomes = run(
        &clat(),
        &[
            (Side::Inside, 1.0, ip4(HOST4, REMOTE4, UDP, &udp(4000, 53, b"question"))),
            (Side::Outside, 1.0, ip6(REMOTE, HOST, UDP, &udp(53, 4000, b"answer"))),
            (Side::Inside, 1.0, ip4(HOST4, REMOTE4, ICMP, &echo(8, 7, b"ping"))),
        ],
    );
    let out = single(&outcomes.sent[0], Side::Outside);
    assert_eq!((ends6(out), out[7]), (ends(HOST, REMOTE), 63));
    let back = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends4(back), back[8]), (ends(REMOTE4, HOST4), 63));
    assert_eq!(single(&outcomes.sent[2], Side::Outside)[40], 128);
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Forwarded).0, 2);
    assert_eq!(outcomes.count(Direction::Inbound, Outcome::Forwarded), (1, 54));
}

#[test]
fn errors_from_routers_come_from_the_own_address_inside() {
    let about = ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"));
    let told = ip6("2001:db8:9::1", HOST, ICMPV6, &error(2, 0, 1300, &about));
    let sent = one(&clat(), Side::Outside, &told);
    let got = single(&sent, Side::Inside);
    assert_eq!(ends4(got), ends("10.0.0.1", HOST4));
    let message = Icmp::new_checked(&got[20..]).unwrap();
    assert_eq!((message.kind(), message.code(), &got[26..28]), (3, 4, &[5, 0][..]));
    assert_eq!(ends4(message.body()), ends(HOST4, REMOTE4));
}

#[test]
fn other_hosts_and_the_own_address_are_not_the_clats() {
    let sent = one(&clat(), Side::Inside, &ip4(HOST4, "10.0.0.1", ICMP, &echo(8, 7, b"ping")));
    assert_eq!(ends4(single(&sent, Side::Inside)), ends("10.0.0.1", HOST4));
    let sent = one(&clat(), Side::Inside, &ip4("172.16.0.1", REMOTE4, UDP, &udp(1, 2, b"")));
    assert_eq!(sent, []);
    // IPv6 beside it is routed.
    let routed = ip6("2001:db8:9::9", "2001:db8:1::1", UDP, &udp(1, 2, b""));
    assert_eq!(one(&clat(), Side::Outside, &routed).len(), 1);
}

#[test]
fn a_packet_that_is_too_big_learns_the_mtu() {
    let mut big = ip4(HOST4, REMOTE4, UDP, &udp(4000, 53, &[7; 1460]));
    big[6] = 0x40;
    Ipv4::new_checked(&mut big[..]).unwrap().fill_checksum();
    let sent = one(&clat(), Side::Inside, &big);
    let told = single(&sent, Side::Inside);
    assert_eq!((ends4(told), &told[20..22]), (ends("10.0.0.1", HOST4), &[3, 4][..]));
    assert_eq!(&told[26..28], [5, 200]);
}
