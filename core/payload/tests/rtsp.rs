//! RTSP through the framework.

mod common;

use common::{Link, Opening, client_inside, client_inside_v6, server_inside};
use natgate_payload::Side::{Inside, Outside};
use natgate_payload::{Kind, Reason, Uses, Wanted};

fn client() -> Link {
    Link::open(Opening::new(Kind::Rtsp, client_inside(554), Inside))
}

fn setup(transport: &str) -> String {
    format!("SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 2\r\nTransport: {transport}\r\n\r\n")
}

fn reply(transport: &str) -> String {
    format!("RTSP/1.0 200 OK\r\nCSeq: 2\r\nTransport: {transport}\r\n\r\n")
}

#[test]
fn ports_of_a_client_become_external_and_come_back() {
    let mut link = client();
    link.say(Inside, &setup("RTP/AVP;unicast;client_port=4588-4589,RTP/AVP/TCP;interleaved=0-1"));
    let expected = setup("RTP/AVP;unicast;client_port=60002-60003,RTP/AVP/TCP;interleaved=0-1");
    assert_eq!(link.heard(Outside), expected);
    let made = link.book.made[0];
    assert_eq!((made.wanted, made.uses, made.internal.port()), (Wanted::Pair, Uses::Many, 4588));
    assert_eq!(made.remote, Some("198.51.100.2".parse().unwrap()));
    link.say(Outside, &reply("RTP/AVP;unicast;client_port=60002-60003;server_port=6256-6257"));
    let expected = reply("RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257");
    assert_eq!(link.heard(Inside), expected);
}

#[test]
fn ports_and_addresses_of_an_ipv6_client_become_external() {
    let mut link = Link::open(Opening::new(Kind::Rtsp, client_inside_v6(554), Inside));
    link.say(Inside, &setup("RTP/AVP;destination=2001:db8:2::31;client_port=4588-4589"));
    let expected = setup("RTP/AVP;destination=203.0.113.1;client_port=60002-60003");
    assert_eq!(link.heard(Outside), expected);
    link.say(Outside, &reply("RTP/AVP;client_port=60002-60003;server_port=6256-6257"));
    assert_eq!(link.heard(Inside), reply("RTP/AVP;client_port=4588-4589;server_port=6256-6257"));
    let own = "dest_addr=\"[2001:db8:2::31]:4601\"";
    link.say(Inside, &setup(own));
    assert!(link.heard(Outside).ends_with(&setup("dest_addr=\"203.0.113.1:60004\"")));
    link.say(Inside, &setup(&own.replace("31]", "32]")));
    assert!(link.heard(Outside).ends_with(&setup(&own.replace("31]", "32]"))));
}

#[test]
fn ports_of_a_server_become_external() {
    let mut link = Link::open(Opening::new(Kind::Rtsp, server_inside(554), Outside));
    link.say(Outside, &setup("RTP/AVP;client_port=4588-4589"));
    link.say(
        Inside,
        &reply("RTP/AVP;client_port=4588-4589;source=10.0.0.80;server_port=6256-6257"),
    );
    let expected = "RTP/AVP;client_port=4588-4589;source=203.0.113.9;server_port=60002-60003";
    assert_eq!(link.heard(Outside), reply(expected));
    assert_eq!(link.heard(Inside), setup("RTP/AVP;client_port=4588-4589"));
    assert_eq!(link.book.made.len(), 1);
}

#[test]
fn version_2_names_addresses() {
    let mut link = client();
    link.say(Inside, &setup("RTP/AVP;dest_addr=\":4588\"/\":4589\""));
    link.say(Inside, &setup("RTP/AVP;dest_addr=\"10.0.0.5:4588\"/\"10.0.0.5:4589\""));
    link.say(Inside, &setup("RTP/AVP;dest_addr=\"10.0.0.6:4588\""));
    let heard = link.heard(Outside);
    assert!(heard.contains("dest_addr=\":60002\"/\":60003\"\r\n"), "{heard}");
    assert!(heard.contains("dest_addr=\"203.0.113.1:60002\"/\"203.0.113.1:60003\"\r\n"), "{heard}");
    assert!(heard.contains("dest_addr=\"10.0.0.6:4588\"\r\n"), "{heard}");
    let counters = link.payloads.counters(Kind::Rtsp);
    assert_eq!(counters.refused[Reason::ForeignAddress as usize], 1);
}

#[test]
fn each_address_of_version_2_gets_a_port_that_was_asked_for() {
    let mut link = client();
    link.say(Inside, &setup("RTP/AVP;dest_addr=\":4589\"/\":4590\""));
    link.say(Inside, &setup("RTP/AVP;dest_addr=\":4600\"/\":4700\""));
    let heard = link.heard(Outside);
    assert!(heard.contains("dest_addr=\":60002\"/\":60004\"\r\n"), "{heard}");
    assert!(heard.contains("dest_addr=\":60006\"/\":60008\"\r\n"), "{heard}");
    let asked: Vec<_> =
        link.book.made.iter().map(|made| (made.internal.port(), made.wanted)).collect();
    let one = Wanted::AddressOfFlow;
    assert_eq!(asked, [(4589, one), (4590, one), (4600, Wanted::Pair), (4700, one)]);
}

#[test]
fn bodies_and_interleaved_data_are_no_messages() {
    let mut link = client();
    let hidden = setup("RTP/AVP;client_port=4588-4589");
    let body = format!("PLAY a RTSP/1.0\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
    link.say(Inside, &body);
    assert_eq!(link.heard(Outside), body);
    assert_eq!(link.book.made, []);
    // A length that no parser agrees about.
    link.say(Inside, "PLAY a RTSP/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
    link.say(Inside, &hidden);
    assert_eq!(link.book.made, []);
    let mut link = client();
    link.say(Inside, "POST / HTTP/1.1\r\n\r\n");
    link.say(Inside, &hidden);
    assert_eq!(link.book.made, []);
}
