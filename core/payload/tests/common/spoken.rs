//! Conversations in text, and over DNS, whose messages change their lengths: endpoints of the hosts
//! stand in them.

use natgate_payload::Side::{self, Inside, Outside};

pub(crate) const FTP_CLIENT: &[(Side, &str)] = &[
    (Outside, "220-Welcome to\r\n 220 this\r\n220 server\r\n"),
    (Inside, "USER a\r\n"),
    (Outside, "331 Password\r\n"),
    (Inside, "PASS b\r\n"),
    (Outside, "230 in\r\n"),
    (Inside, "PORT 10,0,0,5,200,13\r\n"),
    (Outside, "200 PORT ok\r\n"),
    (Inside, "LIST\r\nEPRT |1|10.0.0.5|51214|\r\nRETR a\r\n"),
    (Outside, "150 Here\r\n226 Done\r\n200 ok\r\n"),
    (Inside, "PORT 10,0,0,5,4,0\r\nPASV\r\nPORT 10,0,0,5,255,255\r\n"),
    (Outside, "200 ok\r\n227 Entering Passive Mode (198,51,100,2,20,20)\r\n200 ok\r\n"),
    (Inside, "QUIT\r\n"),
    (Outside, "221 bye\r\n"),
];

pub(crate) const FTP_SERVER: &[(Side, &str)] = &[
    (Inside, "220 server\r\n"),
    (Outside, "USER a\r\nPASV\r\n"),
    (Inside, "230 in\r\n227 Entering Passive Mode (10,0,0,80,4,1).\r\n"),
    (Outside, "RETR a\r\nEPSV\r\n"),
    (Inside, "150 Here\r\n226 Done\r\n229 Entering Extended Passive Mode (|||1026|)\r\n"),
];

pub(crate) const FTP_FAMILIES: &[(Side, &str)] = &[
    (Outside, "220 server\r\n"),
    (Inside, "EPSV\r\n"),
    (Outside, "227 Entering Passive Mode (198,51,100,2,20,20)\r\n"),
    (Inside, "EPRT |2|2001:db8:2::31|5282|\r\nEPSV ALL\r\n"),
    (Outside, "200 ok\r\n200 ok\r\n"),
    (Inside, "ALGS DISABLE64\r\nEPSV\r\nALGS ENABLE64\r\nALGS\r\nEPSV 2\r\n"),
    (Outside, "200 ok\r\n229 go (|||99|)\r\n200-ok\r\n200 ok\r\n200 ok\r\n227 (1,2,3,4,5,6)\r\n"),
];

pub(crate) const RTSP_CLIENT: &[(Side, &str)] = &[
    (Inside, "OPTIONS rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\n\r\n"),
    (Outside, "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 9\r\n\r\nRTSP/1.0\n"),
    (
        Inside,
        "SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 2\r\n\
         Transport: RTP/AVP;unicast;destination=10.0.0.5;client_port=4588-4589\r\n\r\n",
    ),
    (
        Outside,
        "RTSP/1.0 200 OK\r\nCSeq: 2\r\n\
         Transport: RTP/AVP;destination=203.0.113.1;client_port=60002-60003;server_port=6256\r\n\
         \r\n",
    ),
    (
        Inside,
        "SETUP rtsp://a/c RTSP/2.0\r\nTransport: RTP/AVP;unicast;\r\n \
         dest_addr=\":4600\"/\":4601\", RTP/AVP;dest_addr=\"10.0.0.5:4602\"\r\n\r\n",
    ),
    (
        Outside,
        "$\u{1}\u{0}\u{5}SETUPRTSP/2.0 200 OK\r\n\
         Transport: RTP/AVP;dest_addr=\":60004\"/\"203.0.113.1:60005\"\r\n\r\n",
    ),
    (
        Inside,
        "\r\nPLAY rtsp://a/b RTSP/1.0\r\nContent-Length: 3\r\n\r\nabc\r\nPLAY a RTSP/1.0\r\n\r\n",
    ),
];

pub(crate) const SIP: &[(Side, &str)] = &[
    (
        Inside,
        "\r\nREGISTER sip:a.example SIP/2.0\r\n\
         Via: SIP/2.0/TCP 10.0.0.5:40000;branch=z9hG4bK1;rport\r\n\
         To: <sip:u@a.example>\r\nCall-ID: 1\r\nCSeq: 1 REGISTER\r\n\
         m: <sip:u@10.0.0.5:40000;transport=tcp>;expires=600\r\nl: 0\r\n\r\n",
    ),
    (
        Outside,
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/TCP 203.0.113.1:50000;branch=z9hG4bK1\r\n\
         To: <sip:u@a.example>;tag=1\r\nCall-ID: 1\r\nCSeq: 1 REGISTER\r\nExpires: 300\r\n\
         Contact:\r\n <sip:u@203.0.113.1:50000;transport=tcp>\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        Outside,
        "INVITE sip:u@203.0.113.1:50000 SIP/2.0\r\ni: 1\r\nc: application/sdp\r\nl: 55\r\n\r\n\
         v=0\r\nc=IN IP4 198.51.100.9\r\nm=audio 5000 RTP/AVP 0\r\nx=0\r\n",
    ),
    (
        Inside,
        "SIP/2.0 200 OK\r\ni: 1\r\nContent-Type: application/sdp\r\nContent-Length: 54\r\n\
         Contact: <sip:u@10.0.0.5>\r\n\r\n\
         v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\na=1234\r\n\
         BYE sip:a SIP/2.0\r\nContent-Length: 1\r\n\r\nx",
    ),
    (Outside, "\r\n\r\n"),
    (
        Inside,
        "INVITE sip:a SIP/2.0\r\ni: 2\r\nContent-Type: application/sdp\r\nl: 87\r\n\r\n\
         v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4002 RTP/AVP 0\r\n\
         m=x 500 RTP/AVP 0\r\nm=y 4004 RTP/AVP 0\r\n",
    ),
];

/// A call of SIP: early media, a reliable response, an update, a hold, and messages together.
pub(crate) const SIP_CALL: &[(Side, &str)] = &[
    (
        Inside,
        "INVITE sip:b@c SIP/2.0\r\nv: SIP/2.0/TCP 10.0.0.5:40000;branch=z9hG4bK1\r\n\
         m: <sip:u@10.0.0.5:5070>\r\ni: 1\r\nc: application/sdp\r\nl: 98\r\n\r\n\
         v=0\r\no=- 1 1 IN IP4 10.0.0.5\r\nc=IN IP4 10.0.0.5\r\nm=audio 4000 RTP/AVP 0\r\n\
         m=video 4002 RTP/AVP 31\r\n",
    ),
    (
        Outside,
        "SIP/2.0 100 Trying\r\nl: 0\r\n\r\nSIP/2.0 183 Progress\r\ni: 1\r\n\
         v: SIP/2.0/TCP 203.0.113.1:50000;branch=z9hG4bK1\r\nc: application/sdp\r\nl: 50\r\n\r\n\
         v=0\r\nc=IN IP4 198.51.100.9\r\nm=audio 5000 RTP/AVP 0",
    ),
    (
        Inside,
        "PRACK sip:b@c SIP/2.0\r\ni: 1\r\nl: 0\r\n\r\n\r\n\r\n\
         UPDATE sip:b@c SIP/2.0\r\ni: 1\r\nContent-Length: 00058\r\nContent-Type: application/sdp\
         \r\n\r\nv=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 4010 RTP/AVP 0\r\na=inactive",
    ),
    (
        Outside,
        "UPDATE sip:u@203.0.113.1:60002 SIP/2.0\r\ni: 1\r\nl: 0\r\n\r\n\
         INVITE sip:u@203.0.113.1:50000 SIP/2.0\r\nl: 0\r\n\r\n",
    ),
    (Inside, "BYE sip:b@c SIP/2.0\r\nm: <sip:u@10.0.0.5:5070>\r\nl: 0\r\n\r\n"),
];

pub(crate) const IRC: &[(Side, &str)] = &[
    (Inside, "CAP LS 302\r\nNICK a\r\nUSER a 0 * :a\r\n"),
    (Outside, ":server CAP * LS :a\r\n:server 001 a :Welcome\r\nPING :1\r\n"),
    (Inside, "PONG :1\r\nPRIVMSG b :\u{1}DCC SEND \"a b\" 167772165 5000 1024\u{1}\r\n"),
    (Outside, ":b PRIVMSG a :hello\r\n"),
    (Inside, "@x=y PRIVMSG b :\u{1}DCC CHAT chat 167772165 5001\u{1}\r\nQUIT\r\n"),
];

/// A server of RTSP inside.
pub(crate) const RTSP_SERVER: &[(Side, &str)] = &[
    (
        Outside,
        "SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\n\
         Transport: RTP/AVP;unicast;client_port=4588-4589\r\n\r\n",
    ),
    (
        Inside,
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\nTransport: RTP/AVP;unicast;client_port=4588-4589;\
         source=10.0.0.80;server_port=6256-6257\r\n\r\n",
    ),
];

/// A client of RTSP with IPv6 and its server with IPv4.
pub(crate) const RTSP_FAMILIES: &[(Side, &str)] = &[
    (
        Inside,
        "SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 1\r\n\
         Transport: RTP/AVP;unicast;destination=2001:db8:2::31;client_port=4588-4589\r\n\r\n",
    ),
    (
        Outside,
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\
         Transport: RTP/AVP;unicast;destination=203.0.113.1;client_port=60002-60003\r\n\r\n",
    ),
];

/// A telephone inside behind a static mapping, which is called. Its answer has several parts.
pub(crate) const SIP_CALLED: &[(Side, &str)] = &[
    (
        Outside,
        "INVITE sip:u@203.0.113.9:5060 SIP/2.0\r\ni: 1\r\nc: application/sdp\r\nl: 50\r\n\r\n\
         v=0\r\nc=IN IP4 198.51.100.9\r\nm=audio 5000 RTP/AVP 0",
    ),
    (
        Inside,
        "SIP/2.0 200 OK\r\ni: 1\r\nm: <sip:u@10.0.0.80:5060;maddr=10.0.0.80>\r\n\
         c: multipart/mixed; boundary=b\r\nl: 92\r\n\r\n\
         --b\r\nContent-Type: application/sdp\r\n\r\n\
         v=0\r\nc=IN IP4 10.0.0.80\r\nm=audio 4000 RTP/AVP 0\r\n--b--",
    ),
    (Outside, "ACK sip:u@203.0.113.9:5060;maddr=203.0.113.9 SIP/2.0\r\ni: 1\r\nl: 0\r\n\r\n"),
];

/// A client of IRC with IPv6.
pub(crate) const IRC_FAMILIES: &[(Side, &str)] = &[
    (Inside, "NICK a\r\nUSER a 0 * :a\r\n"),
    (Outside, ":server 001 a :Welcome\r\n"),
    (Inside, "PRIVMSG b :\u{1}DCC SEND a 2001:db8:2::31 5000 1024\u{1}\r\nQUIT\r\n"),
];

/// Types of records of DNS.
const A: u16 = 1;
const PTR: u16 = 12;

/// A name of DNS, not compressed.
fn name(text: &str) -> Vec<u8> {
    let labels =
        text.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// A message of DNS in a stream (RFC 1035 section 4.2.2): a question, and the data of the answer.
fn dns(id: u16, (asked, of): (&str, u16), data: Option<&[u8]>) -> Vec<u8> {
    let (flags, count) = if data.is_some() { (0x8180, 1) } else { (0x100, 0) };
    let mut bytes = [id, flags, 1, count, 0, 0].map(u16::to_be_bytes).concat();
    bytes.extend(name(asked));
    bytes.extend([of, 1].map(u16::to_be_bytes).concat());
    if let Some(data) = data {
        // The owner is the name that is asked for.
        bytes.extend([0xc00c, of, 1, 0, 300, data.len() as u16].map(u16::to_be_bytes).concat());
        bytes.extend(data);
    }
    [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat()
}

/// A host asks for the address of another one, and for the name of an address, and gets answers. It
/// knows the address of `own`; others know it by `other`.
pub(crate) fn questions(asker: Side, (own, other): ([u8; 4], [u8; 4])) -> Vec<(Side, Vec<u8>)> {
    let inverse = |[a, b, c, d]: [u8; 4]| format!("{d}.{c}.{b}.{a}.in-addr.arpa");
    let (www, asked, answered) = ("www.example.net", inverse(own), inverse(other));
    vec![
        (asker, [dns(1, (www, A), None), dns(2, (&asked, PTR), None)].concat()),
        (
            asker.other(),
            [
                dns(2, (&answered, PTR), Some(&name("www.example.net"))),
                dns(1, (www, A), Some(&other)),
            ]
            .concat(),
        ),
    ]
}
