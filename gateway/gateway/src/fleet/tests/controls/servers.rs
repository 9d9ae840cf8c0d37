//! Connections of clients outside to a server inside, whose mapping stands at both nodes.

use super::*;
use natgate_engine::{Config, StaticMapping};
use natgate_wire::tcp::flags::RST;

/// The server's port.
const PORT: u16 = 21;

/// A pair with a server of FTP inside.
fn pair_with_server() -> Pair {
    let mut pair = Pair::of(Allotment::Many, Counts::default());
    let server = StaticMapping {
        external: (A1, Some(PORT)),
        internal: (Ipv4Addr::new(10, 0, 0, CLIENT), Some(PORT)),
        protocol: Some(protocol::TCP),
        ..StaticMapping::default()
    };
    for to_a in [true, false] {
        let process = pair.either(to_a);
        let config = Config { statics: vec![server], ..process.engine.config().clone() };
        process.reload_all(&config);
    }
    pair.run(1.0);
    pair.a().begin_gateway();
    pair.b().begin_gateway();
    pair.run(1.0);
    pair
}

impl Process {
    /// Has room for this number of control flows.
    pub(super) fn limit_flows(&mut self, flows: u32) {
        self.algs.as_mut().expect("a gateway").stage.limit_flows(flows);
    }
}

impl Talk {
    /// A client outside opens a connection from a port, by `a`.
    fn to_server(pair: &mut Pair, port: u16) -> Self {
        Self::to_server_at(pair, true, port)
    }

    fn to_server_at(pair: &mut Pair, at_a: bool, port: u16) -> Self {
        let server = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, CLIENT), PORT);
        let client = SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), port);
        let external = SocketAddrV4::new(A1, PORT);
        let hosts = [host_of(server, client, 1000), host_of(client, external, 0xffff_fff0)];
        let mut talk = Self { hosts, at_a, loss: 0, repeats: [0; 2], named: 0 };
        let syn = talk.hosts[1].syn(SYN);
        talk.give(pair, Side::Outside, syn);
        let answer = talk.hosts[0].syn(SYN | ACK);
        talk.give(pair, Side::Inside, answer);
        let last = talk.hosts[1].acknowledgment();
        talk.give(pair, Side::Outside, last);
        talk.say(pair, Side::Inside, "220 ready\r\n");
        talk.run(pair, 0.2);
        talk
    }

    /// The server names a port, and its stream gets another length.
    fn go_passive(&mut self, pair: &mut Pair) {
        self.say(pair, Side::Outside, "PASV\r\n");
        self.run(pair, 0.2);
        self.say(pair, Side::Inside, &format!("227 Passive (10,0,0,{CLIENT},8,1).\r\n"));
        self.run(pair, 0.5);
        let [server, client] = &self.hosts;
        assert!(client.received.ends_with(b").\r\n"), "it has come");
        assert_ne!(server.written.len(), client.received.len(), "the lengths differ");
    }

    /// What the server says does not reach the client.
    fn is_over(&mut self, pair: &mut Pair) {
        let before = self.hosts[1].received.len();
        self.say(pair, Side::Inside, "226 done\r\n");
        self.run(pair, 1.0);
        assert_eq!(self.hosts[1].received.len(), before);
    }
}

/// Two connections with the server, while the partner has room for one.
fn refused() -> (Pair, [Talk; 2]) {
    let mut pair = pair_with_server();
    pair.b().limit_flows(1);
    pair.run(0.1);
    let mut talks = [5000, 5001].map(|port| Talk::to_server(&mut pair, port));
    talks.iter_mut().for_each(|talk| talk.go_passive(&mut pair));
    pair.run(2.0);
    assert_eq!(pair.b().flows(), 0);
    (pair, talks)
}

#[test]
fn a_connection_without_a_place_at_the_partner_ends_with_the_owner() {
    let (mut pair, mut talks) = refused();
    assert!(pair.b().knows_all(), "all but what has no place");
    pair.end_a_with_guardian();
    pair.run(1.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    for talk in &mut talks {
        talk.at_a = false;
        talk.is_over(&mut pair);
    }
}

#[test]
fn a_connection_without_a_place_at_the_partner_does_not_keep_the_slice() {
    let (mut pair, mut talks) = refused();
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    for talk in &mut talks {
        talk.at_a = false;
        talk.is_over(&mut pair);
    }
}

/// A client that begins while the slice moves is read, before the move or after it.
#[test]
fn no_connection_hangs_that_begins_during_a_move() {
    let (mut pair, _) = refused();
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    let [mut waiting, mut begun] = [0; 2];
    let (server, external) = (Ipv4Addr::new(10, 0, 0, CLIENT), SocketAddrV4::new(A1, PORT));
    for port in 5002..6000 {
        if pair.b().status().slices[0].role == "owner" {
            break;
        }
        let client = SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), port);
        let mut client = host_of(client, external, 7);
        let syn = client.syn(SYN);
        if pair.a().carry(Side::Outside, &syn).is_empty() {
            waiting += 1;
        } else {
            begun += 1;
            let mut server = host_of(SocketAddrV4::new(server, PORT), client.own, 1000);
            let answer = pair.a().carry(Side::Inside, &server.syn(SYN | ACK));
            client.receive(&answer[0].1);
            let last = client.acknowledgment();
            assert_eq!(pair.a().carry(Side::Outside, &last).len(), 1, "after {waiting}");
        }
        pair.run(0.01);
    }
    assert!(waiting > 0 && begun > 0, "{waiting} of {begun}");
    assert_eq!(pair.b().status().slices[0].role, "owner");
    let mut talk = Talk::to_server_at(&mut pair, false, 6000);
    talk.go_passive(&mut pair);
}

/// The mapping stands at a node that would let segments pass with raw numbers.
#[test]
fn changed_connections_are_reset_before_a_move_to_an_old_partner() {
    let mut pair = pair_with_server();
    let mut talk = Talk::to_server(&mut pair, 5000);
    talk.go_passive(&mut pair);
    let mut other = Talk::to_server(&mut pair, 5001);
    pair.wire().is_old = true;
    pair.run(1.0);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    let mut resets = Vec::new();
    for _ in 0..500 {
        pair.run(0.01);
        for (to, packet) in pair.a().kept() {
            let host = &talk.hosts[to as usize];
            let next = host.other_start.wrapping_add(1 + host.received.len() as u32);
            assert!(talk.is_of_connection(to, &packet) && packet[33] & RST != 0);
            assert_eq!(packet[24..28], next.to_be_bytes());
            resets.push(to);
        }
    }
    assert_eq!(resets, [Side::Inside, Side::Outside]);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    other.at_a = false;
    other.say(&mut pair, Side::Inside, "226 done\r\n");
    other.run(&mut pair, 1.0);
    assert!(other.is_whole());
}
