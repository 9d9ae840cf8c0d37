//! Application-level gateways for hosts of NAT64: the client inside has IPv6, its server IPv4.

use super::world::*;
use natgate_engine::{Behavior, Change, Side};
use natgate_gateway::{AlgKind, Settings};

const HOST: &str = "2001:db8:1::5";
const SERVER: &str = "198.51.100.7";
const SERVER6: &str = "64:ff9b::c633:6407";
const EXTERNAL: &str = "203.0.113.1";
const FTP: u16 = 21;
const SYN: u8 = 2;
const ACK: u8 = 16;

fn settings(kind: AlgKind) -> Settings {
    let mut settings = with_nat64(&["64:ff9b::/96"]);
    settings.engine.filtering = Behavior::AddressAndPortDependent;
    settings.alg.set(kind, natgate_gateway::AlgSettings::usual_ports(kind).to_vec());
    settings.alg.reserve(&mut settings.engine.limits);
    settings
}

/// The data of a segment.
pub(super) fn text(packet: &[u8]) -> String {
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let data = header + usize::from(packet[header + 12] >> 4) * 4;
    String::from_utf8_lossy(&packet[data..]).into_owned()
}

/// A connection to a server, and the packets on it.
pub(super) struct Connection {
    /// Ports: of the host, of the server, and the external one.
    pub(super) ports: (u16, u16, u16),
    /// Next numbers of the host and of the server, as each sends them.
    pub(super) numbers: (u32, u32),
    /// Bytes that the host's stream has more outside, and the server's inside.
    longer: (i32, i32),
    packets: Vec<Came>,
}

impl Connection {
    pub(super) fn open(settings: &Settings, port: u16) -> Self {
        let mut new = Self {
            ports: (4000, port, 0),
            numbers: (1000, 5000),
            longer: (0, 0),
            packets: Vec::new(),
        };
        let syn = segment((4000, port), (1000, 0), SYN, "");
        let syn = ip6(HOST, SERVER6, TCP, &syn);
        let external = one(settings, Side::Inside, &syn);
        new.ports.2 = port_of(single(&external, Side::Outside));
        new.packets.push((Side::Inside, 1.0, syn));
        let answer = segment((port, new.ports.2), (5000, 1001), SYN | ACK, "");
        new.packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &answer)));
        new.numbers = (1001, 5001);
        new.host("", 0);
        new
    }

    /// The host says something; outside it has `more` bytes.
    pub(super) fn host(&mut self, data: &str, more: i32) {
        let (own, other) = self.numbers;
        let numbers = (own, other.wrapping_add_signed(self.longer.1));
        let bytes = segment((self.ports.0, self.ports.1), numbers, ACK, data);
        self.packets.push((Side::Inside, 1.0, ip6(HOST, SERVER6, TCP, &bytes)));
        self.numbers.0 += data.len() as u32;
        self.longer.0 += more;
    }

    /// The server says something; inside it has `more` bytes.
    pub(super) fn server(&mut self, data: &str, more: i32) {
        let (other, own) = self.numbers;
        let numbers = (own, other.wrapping_add_signed(self.longer.0));
        let bytes = segment((self.ports.1, self.ports.2), numbers, ACK, data);
        self.packets.push((Side::Outside, 1.0, ip4(SERVER, EXTERNAL, TCP, &bytes)));
        self.numbers.1 += data.len() as u32;
        self.longer.1 += more;
    }
}

impl Connection {
    /// What leaves for the last packet.
    pub(super) fn last(&self, settings: &Settings) -> Vec<Sent> {
        last(settings, &self.packets)
    }
}

fn port_of(packet: &[u8]) -> u16 {
    port(packet, 0)
}

/// What leaves for the last packet.
fn last(settings: &Settings, packets: &[Came]) -> Vec<Sent> {
    run(settings, packets).sent.pop().unwrap()
}

#[test]
fn a_client_with_ipv6_fetches_from_a_server_with_ipv4() {
    let settings = settings(AlgKind::Ftp);
    let mut ftp = Connection::open(&settings, FTP);
    ftp.server("220 ready\r\n", 0);
    ftp.host("EPSV\r\n", 0);
    let asked = last(&settings, &ftp.packets);
    assert_eq!(text(single(&asked, Side::Outside)), "PASV\r\n");
    assert_eq!(ends4(&asked[0].1), ends(EXTERNAL, SERVER));
    let passive = "227 Entering Passive Mode (192,0,2,31,237,19)\r\n";
    let extended = "229 Entering Extended Passive Mode (|||60691|)\r\n";
    ftp.server(passive, extended.len() as i32 - passive.len() as i32);
    let told = last(&settings, &ftp.packets);
    assert_eq!(text(single(&told, Side::Inside)), extended);
    assert_eq!(ends6(&told[0].1), ends(SERVER6, HOST));
    // Active: the server connects to the port that the gateway has made.
    let command = "EPRT |2|2001:db8:1::5|5282|\r\n";
    ftp.host(command, 0);
    let outcomes = run(&settings, &ftp.packets);
    let made = outcomes.events.iter().rev().find_map(|event| match event.change {
        Change::MappingCreated(id) if id.internal.port == 5282 => Some(id.external.port),
        _ => None,
    });
    let made = made.expect("a mapping");
    let [high, low] = made.to_be_bytes();
    let expected = format!("PORT 203,0,113,1,{high},{low}\r\n");
    let said = single(outcomes.sent.last().unwrap(), Side::Outside);
    assert_eq!(text(said), expected);
    // The numbers of what follows fit the changed lengths.
    ftp.longer.0 += expected.len() as i32 - command.len() as i32;
    ftp.server("200 ok\r\n", 0);
    let told = last(&settings, &ftp.packets);
    let told = single(&told, Side::Inside);
    assert_eq!(text(told), "200 ok\r\n");
    assert_eq!(told[40 + 8..40 + 12], ftp.numbers.0.to_be_bytes(), "the client's own number");
    let knock = |from: &str| {
        let syn = ip4(from, EXTERNAL, TCP, &tcp(20, made, SYN));
        [&ftp.packets[..], &[(Side::Outside, 1.0, syn)]].concat()
    };
    let came = last(&settings, &knock(SERVER));
    let came = single(&came, Side::Inside);
    assert_eq!((ends6(came), port(came, 2)), (ends(SERVER6, HOST), 5282));
    assert!(last(&settings, &knock("198.51.100.8")).is_empty(), "another host outside");
}

#[test]
fn a_command_in_two_parts_is_put_together() {
    let settings = settings(AlgKind::Ftp);
    let mut ftp = Connection::open(&settings, FTP);
    ftp.server("220 ready\r\n", 0);
    ftp.host("EP", 0);
    let first = last(&settings, &ftp.packets);
    // The framework acknowledges the held bytes to the host, by IPv6. Nothing goes on.
    let to_host: Vec<&Sent> = first.iter().filter(|(side, _)| *side == Side::Inside).collect();
    assert_eq!(to_host.len(), 1, "{first:02x?}");
    check(&to_host[0].1);
    assert_eq!(ends6(&to_host[0].1), ends(SERVER6, HOST));
    assert_eq!(to_host[0].1[40 + 8..40 + 12], ftp.numbers.0.to_be_bytes());
    assert!(first.iter().all(|(_, packet)| text(packet).is_empty()));
    ftp.host("SV\r\n", 0);
    assert_eq!(text(single(&last(&settings, &ftp.packets), Side::Outside)), "PASV\r\n");
}

#[test]
fn a_server_of_tftp_answers_from_a_new_port() {
    let settings = settings(AlgKind::Tftp);
    let request = ip6(HOST, SERVER6, UDP, &udp(4000, 69, b"\0\x01boot.img\0octet\0"));
    let external = port_of(single(&one(&settings, Side::Inside, &request), Side::Outside));
    let answer = |from: u16| {
        let answer = ip4(SERVER, EXTERNAL, UDP, &udp(from, external, b"\0\x03\0\x01data"));
        (Side::Outside, 2.0, answer)
    };
    let request = (Side::Inside, 1.0, request);
    let outcomes = run(&settings, &[request, answer(50_000), answer(50_001)]);
    let came = single(&outcomes.sent[1], Side::Inside);
    assert_eq!((ends6(came), port(came, 0), port(came, 2)), (ends(SERVER6, HOST), 50_000, 4000));
    assert!(outcomes.sent[2].is_empty(), "one answer for a request");
}

#[test]
fn other_flows_and_protocols_that_are_off_pass() {
    let settings = settings(AlgKind::Ftp);
    let mut other = Connection::open(&settings, 2121);
    other.server("220 ready\r\n", 0);
    other.host("EPSV\r\n", 0);
    assert_eq!(text(single(&last(&settings, &other.packets), Side::Outside)), "EPSV\r\n");
    let settings = with_nat64(&["64:ff9b::/96"]);
    let mut ftp = Connection::open(&settings, FTP);
    ftp.server("220 ready\r\n", 0);
    ftp.host("EPSV\r\n", 0);
    assert_eq!(text(single(&last(&settings, &ftp.packets), Side::Outside)), "EPSV\r\n");
}
