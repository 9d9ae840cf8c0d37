//! Conversations of each protocol over TCP.

use super::h323::{self, bytes, with};
use super::spoken::*;
use super::telephone::between_families;
use super::{Link, Opening, client_inside, client_inside_v6, pptp, server_inside};
use natgate_payload::Kind;
use natgate_payload::Side::{self, Inside, Outside};

/// A recorded conversation.
pub(crate) struct Conversation {
    pub(crate) name: &'static str,
    pub(crate) opening: Opening,
    pub(crate) messages: Vec<(Side, Vec<u8>)>,
}

/// A host inside, and its address outside, for DNS.
const HOST: [[u8; 4]; 2] = [[10, 0, 0, 80], [203, 0, 113, 80]];

impl Conversation {
    /// The connection, on which nothing has been said.
    pub(crate) fn open(&self) -> Link {
        self.open_as(self.opening)
    }

    pub(crate) fn open_as(&self, opening: Opening) -> Link {
        let mut link = Link::open(opening);
        link.book.addresses = vec![(HOST[0].into(), HOST[1].into(), true)];
        link
    }
}

/// A conversation in lines of text.
fn text(name: &'static str, opening: Opening, texts: &[(Side, &str)]) -> Conversation {
    let messages = texts.iter().map(|(from, text)| (*from, text.as_bytes().to_vec()));
    Conversation { name, opening, messages: messages.collect() }
}

pub(crate) fn conversations() -> Vec<Conversation> {
    // A host behind a tunnel has a number.
    let mut tunneled = client_inside(5060);
    (tunneled.realm, tunneled.number) = (2, Some([1, 0, 0, 3].into()));
    let mut all = vec![
        text("client", Opening::new(Kind::Ftp, client_inside(21), Inside), FTP_CLIENT),
        text("server", Opening::new(Kind::Ftp, server_inside(21), Outside), FTP_SERVER),
        text("families", Opening::new(Kind::Ftp, client_inside_v6(21), Inside), FTP_FAMILIES),
        text("rtsp", Opening::new(Kind::Rtsp, client_inside(554), Inside), RTSP_CLIENT),
        text("rtsp server", Opening::new(Kind::Rtsp, server_inside(554), Outside), RTSP_SERVER),
        text(
            "rtsp families",
            Opening::new(Kind::Rtsp, client_inside_v6(554), Inside),
            RTSP_FAMILIES,
        ),
        text("sip", Opening::new(Kind::Sip, client_inside(5060), Inside), SIP),
        text("sip call", Opening::new(Kind::Sip, tunneled, Inside), SIP_CALL),
        text("sip called", Opening::new(Kind::Sip, server_inside(5060), Outside), SIP_CALLED),
        Conversation {
            name: "sip families",
            opening: Opening::new(Kind::Sip, client_inside_v6(5060), Inside),
            messages: between_families(),
        },
        text("irc", Opening::new(Kind::Irc, client_inside(6667), Inside), IRC),
        text("irc families", Opening::new(Kind::Irc, client_inside_v6(6667), Inside), IRC_FAMILIES),
    ];
    all.extend(binary_conversations());
    all
}

fn binary_conversations() -> Vec<Conversation> {
    let pptp = |name, endpoints, opener, messages| Conversation {
        name,
        opening: Opening::new(Kind::Pptp, endpoints, opener),
        messages,
    };
    let [inside, outside] = HOST;
    vec![
        Conversation {
            name: "dns client",
            opening: Opening::new(Kind::Dns, client_inside(53), Inside),
            messages: questions(Inside, (inside, outside)),
        },
        Conversation {
            name: "dns server",
            opening: Opening::new(Kind::Dns, server_inside(53), Outside),
            messages: questions(Outside, (outside, inside)),
        },
        pptp("pptp client", client_inside(1723), Inside, pptp::outgoing(Inside)),
        pptp("pptp server", server_inside(1723), Outside, pptp::outgoing(Outside)),
        pptp("pptp incoming", client_inside(1723), Inside, pptp::incoming(Inside)),
        pptp("pptp concentrator", server_inside(1723), Outside, pptp::incoming(Outside)),
        Conversation {
            name: "h323 signalling",
            opening: Opening::new(Kind::H323, client_inside(1720), Inside),
            messages: signalling(),
        },
        Conversation {
            name: "h323 control",
            opening: Opening::new(Kind::H323, client_inside(30_000), Inside),
            messages: control(),
        },
    ]
}

/// Call signalling of H.323 with fast connect, a tunnel, and an empty packet.
fn signalling() -> Vec<(Side, Vec<u8>)> {
    let answer = with(h323::CONNECT_FAST, &[("10.0.0.5:5000", "203.0.113.1:60004")]);
    vec![
        (Inside, bytes(h323::SETUP_FAST)),
        (Outside, [&[3, 0, 0, 4][..], &bytes(h323::ALERTING)].concat()),
        (Outside, answer),
        (Inside, [bytes(h323::FACILITY), bytes(h323::EMPTY_TUNNEL)].concat()),
        (Inside, bytes(h323::RELEASE)),
    ]
}

/// H.245: channels of both hosts.
fn control() -> Vec<(Side, Vec<u8>)> {
    let ends = [("10.0.0.5:5000", "198.51.100.2:6000"), ("10.0.0.5:5001", "198.51.100.2:6001")];
    vec![
        (Outside, bytes(h323::DETERMINATION)),
        (Inside, [bytes(h323::DETERMINATION), bytes(h323::OPEN)].concat()),
        (Outside, with(h323::OPEN_ACK, &ends)),
        (Inside, [bytes(h323::OPEN_ACK), bytes(h323::OPEN_VIDEO)].concat()),
    ]
}
