//! Messages of SIP (RFC 3261): requests of hosts, and their answers.

use std::fmt::Write;

/// The port of SIP.
pub(crate) const PORT: u16 = 5060;

/// The last byte of the first host's address.
const FIRST: u32 = 16;

/// A registration (RFC 3261, section 10).
pub(crate) fn register(host: u32, number: u32) -> Vec<u8> {
    request("REGISTER", host, number, "Expires: 300\r\n", "")
}

/// A call, with an offer of audio (RFC 3264).
pub(crate) fn invite(host: u32, number: u32) -> Vec<u8> {
    let address = FIRST + host;
    let body = format!(
        "v=0\r\no=u 1 1 IN IP4 10.0.0.{address}\r\ns=-\r\nc=IN IP4 10.0.0.{address}\r\nt=0 0\r\n\
         m=audio 40000 RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\n"
    );
    request("INVITE", host, number, "Content-Type: application/sdp\r\n", &body)
}

fn request(method: &str, host: u32, number: u32, more: &str, body: &str) -> Vec<u8> {
    let address = FIRST + host;
    let length = body.len();
    format!(
        "{method} sip:example.net SIP/2.0\r\n\
         Via: SIP/2.0/UDP 10.0.0.{address}:{PORT};branch=z9hG4bK{number:08x};rport\r\n\
         Max-Forwards: 70\r\n\
         From: <sip:user{host}@example.net>;tag={number:08x}\r\n\
         To: <sip:user{host}@example.net>\r\n\
         Call-ID: {number:08x}@10.0.0.{address}\r\n\
         CSeq: {number} {method}\r\n\
         Contact: <sip:user{host}@10.0.0.{address}:{PORT}>\r\n\
         {more}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The answer 200 to a request.
pub(crate) fn ok(request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let (head, _) = text.split_once("\r\n\r\n").expect("the head of a message ends");
    let copied = ["Via:", "From:", "To:", "Call-ID:", "CSeq:", "Contact:", "Expires:"];
    let mut answer = String::from("SIP/2.0 200 OK\r\n");
    for line in head.lines().filter(|line| copied.iter().any(|name| line.starts_with(name))) {
        write!(answer, "{line}\r\n").expect("a string can grow");
    }
    answer.push_str("Content-Length: 0\r\n\r\n");
    answer.into_bytes()
}
