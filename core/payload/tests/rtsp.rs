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

/// Transports of a client that pass as they are.
const REFUSED: [(&str, Reason); 7] = [
    ("RTP/AVP;unicast;destination=10.0.0.5;client_port=80-81", Reason::LowPort),
    ("RTP/AVP;unicast;client_port=80-81;destination=10.0.0.5", Reason::LowPort),
    ("RTP/AVP;unicast;destination=10.0.0.5;client_port=8000-9000", Reason::NoPort),
    ("RTP/AVP;unicast;destination=10.0.0.9;client_port=8050-8051", Reason::ForeignAddress),
    ("RTP/AVP;unicast;destination=a.example;client_port=8050-8051", Reason::ForeignAddress),
    ("RTP/AVP;dest_addr=\"10.0.0.5:8000\"/\"10.0.0.9:8001\"", Reason::ForeignAddress),
    ("RTP/AVP;dest_addr=\"10.0.0.5:8001\"/\"10.0.0.5:500\"", Reason::LowPort),
];

#[test]
fn address_and_ports_of_a_transport_change_together_or_not_at_all() {
    for (transport, reason) in REFUSED {
        let mut link = client();
        link.say(Inside, &setup(transport));
        assert_eq!(link.heard(Outside), setup(transport));
        assert_eq!(link.payloads.counters(Kind::Rtsp).refused[reason as usize], 1, "{transport}");
        // The next transport of the header is on its own.
        let all = format!("{transport},RTP/AVP;destination=10.0.0.5;client_port=8000-8001");
        link.say(Inside, &setup(&all));
        let heard = link.heard(Outside);
        let start = format!("{transport},RTP/AVP;destination=203.0.113.1;client_port=600");
        assert!(heard.contains(&start), "{heard}");
    }
    let mut link = client();
    link.book.is_empty = true;
    for text in [
        setup("RTP/AVP;destination=10.0.0.5;client_port=8000-8001"),
        setup("RTP/AVP;dest_addr=\"10.0.0.5:8000\"/\"10.0.0.5:8001\""),
    ] {
        link.say(Inside, &text);
        assert!(link.heard(Outside).ends_with(&text));
    }
    // Interleaved data need no port.
    link.say(Inside, &setup("RTP/AVP/TCP;destination=10.0.0.5;interleaved=0-1"));
    assert!(link.heard(Outside).contains("TCP;destination=203.0.113.1;interleaved=0-1"));
    let mut link = Link::open(Opening::new(Kind::Rtsp, server_inside(554), Outside));
    link.say(Outside, &setup("RTP/AVP;client_port=4588-4589"));
    for text in [
        reply("RTP/AVP;client_port=4588-4589;source=10.0.0.80;server_port=500-501"),
        reply("RTP/AVP;client_port=4588-4589;source=10.0.0.81;server_port=6256-6257"),
        reply("RTP/AVP;dest_addr=\":4588\";src_addr=\"10.0.0.80:6257\"/\"10.0.0.80:500\""),
    ] {
        link.say(Inside, &text);
        assert!(link.heard(Outside).ends_with(&text));
    }
}

#[test]
fn addresses_in_a_reply_come_back() {
    let mut link = client();
    let spec = |address: &str, first: u16| {
        let last = first + 1;
        format!("RTP/AVP;unicast;destination={address};client_port={first}-{last}")
    };
    link.say(Inside, &setup(&spec("10.0.0.5", 4588)));
    assert_eq!(link.heard(Outside), setup(&spec("203.0.113.1", 60002)));
    // Unknown ports stay, and ports of other addresses.
    let others = [spec("203.0.113.1", 60100), spec("192.0.2.1", 60002)];
    for other in &others {
        link.say(Outside, &reply(&format!("{other};source=203.0.113.1")));
    }
    link.say(Outside, &reply(&format!("{};server_port=1-2", spec("203.0.113.1", 60002))));
    let expected = [
        reply(&format!("{};source=203.0.113.1", others[0])),
        reply(&format!("{};source=203.0.113.1", others[1])),
        reply(&format!("{};server_port=1-2", spec("10.0.0.5", 4588))),
    ];
    assert_eq!(link.heard(Inside), expected.concat());
    let mut link = client();
    link.say(Inside, &setup("RTP/AVP;dest_addr=\"10.0.0.5:4588\"/\"10.0.0.5:4589\""));
    link.say(Inside, &setup("RTP/AVP;dest_addr=\":4601\"/\":4610\""));
    link.say(Outside, &reply("RTP/AVP;dest_addr=\"203.0.113.1:60002\"/\"203.0.113.1:60003\""));
    link.say(Outside, &reply("RTP/AVP;dest_addr=\"203.0.113.1:60004\"/\":60006\";a=b"));
    link.say(Outside, &reply("RTP/AVP;dest_addr=\"203.0.113.1:60002\"/\"203.0.113.1:60005\""));
    let expected = [
        reply("RTP/AVP;dest_addr=\"10.0.0.5:4588\"/\"10.0.0.5:4589\""),
        reply("RTP/AVP;dest_addr=\"10.0.0.5:4601\"/\":4610\";a=b"),
        reply("RTP/AVP;dest_addr=\"203.0.113.1:60002\"/\"203.0.113.1:60005\""),
    ];
    assert_eq!(link.heard(Inside), expected.concat());
}
