//! Connections of clients outside to a server inside, whose mapping stands at both nodes.

use super::super::services;
use super::*;
use natgate_engine::{Config, StaticMapping};
use natgate_wire::tcp::flags::RST;

/// The server's port.
const PORT: u16 = 21;

/// A pair with a server of FTP inside.
fn pair_with_server() -> Pair {
    pair_with(&[server(protocol::TCP, PORT)])
}

/// The mapping of a server of a port inside.
pub(super) fn server(number: u8, port: u16) -> StaticMapping {
    StaticMapping {
        external: (A1, Some(port)),
        internal: (Ipv4Addr::new(10, 0, 0, CLIENT), Some(port)),
        protocol: Some(number),
        ..StaticMapping::default()
    }
}

/// A pair with these static mappings.
pub(super) fn pair_with(statics: &[StaticMapping]) -> Pair {
    let mut pair = Pair::of(Allotment::Many, Counts::default());
    for to_a in [true, false] {
        let process = pair.either(to_a);
        let config = Config { statics: statics.to_vec(), ..process.engine.config().clone() };
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
        let mut talk = Self::connect_in(pair, at_a, client, (external, server));
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

/// Datagrams are faster than the stream that the record goes in.
#[test]
fn the_record_of_a_busy_server_arrives_although_others_overtake_it() {
    let mut pair = pair_with_server();
    let mut talks: Vec<Talk> = (5000..5010).map(|port| Talk::to_server(&mut pair, port)).collect();
    let (talk, mut quick) = (&mut talks[0], Talk::open(&mut pair));
    pair.wire().stream_time = SECOND / 5;
    let lost = |pair: &mut Pair| {
        let outbound = pair.a().fleet.slices[0].outbound.as_ref().expect("a stream");
        outbound.sender.counters().lost
    };
    let before = lost(&mut pair);
    for round in 0..8 {
        talk.say(&mut pair, Side::Inside, "200 fine\r\n");
        for _ in 0..25 {
            quick.say(&mut pair, Side::Inside, "NOOP\r\n");
            talk.run(&mut pair, 0.04);
        }
        assert_eq!(talk.hosts[1].received, talk.hosts[0].written, "in round {round}");
    }
    assert_eq!(lost(&mut pair), before, "nothing counts as lost");
    pair.end_a_with_guardian();
    talk.at_a = false;
    talk.run(&mut pair, 1.0);
    talk.say(&mut pair, Side::Inside, "226 done\r\n");
    talk.run(&mut pair, 1.0);
    assert!(talk.is_whole());
}

/// Anybody outside can send packets that nobody inside answers.
#[test]
fn flows_that_nobody_inside_has_answered_end_at_the_partner() {
    let mut pair = pair_with(&[server(protocol::TCP, PORT), server(protocol::UDP, 69)]);
    let client = |port: u16| SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), port);
    for port in 0..50 {
        let to = SocketAddrV4::new(A1, 69);
        let request = host::datagram(client(5000 + port), to, b"\0\x01file\0octet\0");
        pair.b().carry(Side::Outside, &request);
        let syn = host_of(client(6000 + port), SocketAddrV4::new(A1, PORT), 7).syn(SYN);
        pair.a().carry(Side::Outside, &syn);
    }
    assert_eq!((pair.a().flows(), pair.b().flows()), (50, 50));
    let mut talk = Talk::to_server(&mut pair, 5000);
    talk.go_passive(&mut pair);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.a().status().slices[0].role, "owner");
    pair.run(40.0);
    (0..64).for_each(|_| pair.b().sweep());
    assert_eq!(pair.b().flows(), 1, "the copy stays");
    pair.run(8000.0);
    (0..64).for_each(|_| pair.b().sweep());
    assert_eq!(pair.b().flows(), 1, "the owner ends it");
    (0..64).for_each(|_| pair.a().sweep());
    pair.run(1.0);
    assert_eq!((pair.a().flows(), pair.b().flows()), (0, 0));
}

/// The former owner has let out what `b` does not know. Returns the connection.
fn doubted_server() -> (Pair, Talk) {
    let mut pair = pair_with_server();
    let mut talk = Talk::to_server(&mut pair, 5000);
    talk.go_passive(&mut pair);
    pair.wire().is_cut = true;
    talk.say(&mut pair, Side::Outside, "PASV\r\n");
    talk.run(&mut pair, 30.0);
    talk.lose_owner(&mut pair);
    (pair, talk)
}

/// Only the host inside knows that a connection is new.
#[test]
fn a_forged_segment_lifts_no_doubt() {
    let (mut pair, mut talk) = doubted_server();
    let [server, client] = [talk.hosts[0].own, talk.hosts[1].own];
    for flags in [SYN, SYN | ACK] {
        let forged = host_of(client, talk.hosts[1].other, 99).syn(flags);
        pair.b().carry(Side::Outside, &forged);
        talk.is_over(&mut pair);
        let before = talk.hosts[0].received.len();
        talk.say(&mut pair, Side::Outside, "NOOP\r\n");
        talk.run(&mut pair, 1.0);
        assert_eq!(talk.hosts[0].received.len(), before, "{flags}");
    }
    // A new connection with the same endpoints goes on, whatever was forged before it.
    let mut new = Talk::to_server_at(&mut pair, false, client.port());
    assert_eq!((new.hosts[0].own, new.hosts[1].own), (server, client));
    new.say(&mut pair, Side::Outside, "NOOP\r\n");
    new.run(&mut pair, 1.0);
    assert!(new.is_whole());
}

/// The numbers of a connection that the partner has read are not those of the one before.
#[test]
fn the_copy_of_a_connection_ends_the_mark_of_one_that_passed_unread() {
    for has_place in [true, false] {
        let mut pair = pair_with_server();
        if !has_place {
            pair.b().limit_flows(1);
            Talk::to_server(&mut pair, 4999);
            pair.run(0.1);
        }
        let marks = |pair: &mut Pair| pair.b().algs.as_ref().map(|algs| algs.stage.marks());
        Talk::to_server_at(&mut pair, false, 5000);
        assert_eq!(marks(&mut pair), Some(1));
        Talk::to_server_at(&mut pair, true, 5000);
        pair.run(0.2);
        assert_eq!(marks(&mut pair), Some(0));
    }
}

/// The mapping stands at a node that would let segments pass with raw numbers.
#[test]
fn changed_connections_are_reset_before_a_move_to_an_old_partner() {
    for is_static in [true, false] {
        let mut pair = pair_with_server();
        let mut talk = Talk::open_changed(&mut pair, is_static);
        let mut other = Talk::to_server(&mut pair, 5001);
        pair.wire().is_old = true;
        pair.run(1.0);
        pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
        let mut resets = Vec::new();
        for turn in 0..500 {
            pair.run(0.01);
            let mut packets = pair.a().kept();
            // A host that has not got its reset goes on, and gets another one.
            if turn % 100 == 5 {
                for from in [Side::Inside, Side::Outside] {
                    let host = &mut talk.hosts[from as usize];
                    let len = host.written.len();
                    let segment = host.segment(len - 2, len, false);
                    packets.extend(pair.a().carry(from, &segment));
                }
            }
            for (to, packet) in packets {
                let host = &talk.hosts[to as usize];
                let next = host.other_start.wrapping_add(1 + host.received.len() as u32);
                assert!(talk.is_of_connection(to, &packet) && packet[33] & RST != 0);
                assert_eq!(packet[24..28], next.to_be_bytes());
                resets.push(to);
            }
        }
        let both = [Side::Inside, Side::Outside];
        assert_eq!(resets[..4], [both, both].concat(), "at once, and once more");
        assert!(!is_static || resets.len() >= 8, "{}", resets.len());
        assert_eq!(pair.b().status().slices[0].role, "owner");
        let has_copy = pair.b().hosts().contains_key(&(protocol::TCP, talk.external()));
        assert_eq!(has_copy, is_static, "it would let segments through");
        other.at_a = false;
        other.say(&mut pair, Side::Inside, "226 done\r\n");
        other.run(&mut pair, 1.0);
        assert!(other.is_whole());
    }
}

impl Talk {
    /// Opens a connection, of a server inside or of a client, that gets another length outside.
    fn open_changed(pair: &mut Pair, is_server: bool) -> Self {
        if is_server {
            let mut talk = Self::to_server(pair, 5000);
            talk.go_passive(pair);
            return talk;
        }
        let mut talk = Self::open(pair);
        talk.name_port(pair);
        talk.run(pair, 0.5);
        assert!(talk.is_whole());
        talk
    }
}

/// Servers of a service have one external endpoint, and each has its own record.
#[test]
fn each_server_of_a_service_has_its_own_flows() {
    let mut pair = Pair::of(Allotment::Services, Counts::default());
    for to_a in [true, false] {
        pair.either(to_a).begin_gateway_of(&[(Kind::Sip, services::PORT)]);
    }
    pair.run(1.0);
    let options = |host: u8, remote: u32| {
        let text = format!(
            "OPTIONS sip:b@example.com SIP/2.0\r\n\
             Via: SIP/2.0/UDP 10.0.0.{host};branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
             From: <sip:a@example.com>;tag=1\r\nTo: <sip:b@example.com>\r\n\
             Call-ID: {remote}\r\n\
             CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        let own = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), services::PORT);
        let remote = SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE + remote), services::PORT);
        host::datagram(own, remote, text.as_bytes())
    };
    // A client asks the service, and its server answers. One server has no client.
    let (external, mut of) = (services::service(), [0; 256]);
    let ask = |pair: &mut Pair, remote: u32, of: &mut [usize; 256]| {
        let client = SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE + remote), services::PORT);
        let request = host::datagram(client, SocketAddrV4::new(external.0, external.1), b"a");
        let out = pair.a().carry(Side::Outside, &request);
        let [(Side::Inside, packet)] = &out[..] else { panic!("{out:?}") };
        let host = packet[19];
        if host != services::SERVERS[2] {
            pair.a().carry(Side::Inside, &options(host, remote));
            of[usize::from(host)] += 1;
        }
    };
    (1..20).for_each(|remote| ask(&mut pair, remote, &mut of));
    let flows: usize = of.iter().sum();
    assert!(services::SERVERS[..2].iter().all(|server| of[usize::from(*server)] > 0), "{of:?}");
    assert_eq!(pair.a().flows(), flows);
    pair.run(1.0);
    assert_eq!(pair.b().flows(), flows);
    assert!(pair.status_is_whole(), "{:?}", pair.a().status().slices[0].fault());
    // More of one server change nothing about the others.
    (20..30).for_each(|remote| ask(&mut pair, remote, &mut of));
    pair.run(35.0);
    assert_eq!(pair.b().flows(), of.iter().sum::<usize>());
    assert_eq!(pair.a().status().slices[0].fault(), None);
}

/// A node that has started hears nobody, and has the static mapping.
#[test]
fn a_node_that_does_not_hear_the_owner_passes_no_segment_that_it_does_not_know() {
    let mut pair = pair_with_server();
    let mut talk = Talk::to_server(&mut pair, 5000);
    talk.go_passive(&mut pair);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    let config = pair.a().engine.config().clone();
    pair.wire().is_cut = true;
    pair.restart_a();
    pair.a().reload_all(&config);
    pair.a().begin_gateway();
    pair.run(2.0);
    talk.at_a = true;
    talk.stands_still(&mut pair);
    Talk::to_server_at(&mut pair, true, 5001).goes_on(&mut pair);
    pair.wire().is_cut = false;
    pair.run(3.0);
    assert_eq!(pair.a().flows(), 1);
    talk.stands_still(&mut pair);
    talk.at_a = false;
    talk.goes_on(&mut pair);
    // The link breaks. After a while b may have gone on without a.
    pair.wire().is_cut = true;
    pair.run(12.0);
    let mut talk = Talk::to_server_at(&mut pair, false, 5002);
    talk.at_a = true;
    talk.stands_still(&mut pair);
}

/// The partner has no gateway until a reload brings one.
#[test]
fn a_gateway_drops_segments_of_connections_that_it_has_missed() {
    let mut pair = pair_with_server();
    pair.b().algs = None;
    pair.run(0.1);
    let mut talk = Talk::to_server(&mut pair, 5000);
    talk.go_passive(&mut pair);
    pair.run(1.0);
    pair.b().begin_gateway();
    let Process { fleet, engine, algs, now, .. } = pair.b();
    fleet.renew_algs(Timestamp(*now), (&*engine, algs));
    for from in [Side::Inside, Side::Outside] {
        let host = &mut talk.hosts[from as usize];
        let len = host.written.len();
        let segment = host.segment(len - 2, len, false);
        assert!(pair.b().carry(from, &segment).is_empty(), "{from:?}");
    }
    Talk::to_server_at(&mut pair, false, 5001).goes_on(&mut pair);
}

/// Their sender does not repeat them.
#[test]
fn a_connection_with_held_bytes_is_reset_before_a_move_to_an_old_partner() {
    let mut pair = pair_with_server();
    let mut talk = Talk::to_server(&mut pair, 5000);
    talk.say(&mut pair, Side::Outside, "PAS");
    talk.run(&mut pair, 0.5);
    assert_eq!((talk.hosts[0].received.len(), talk.hosts[1].acknowledged), (0, 3), "they are held");
    pair.wire().is_old = true;
    pair.run(1.0);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    let mut resets = Vec::new();
    for _ in 0..500 {
        pair.run(0.01);
        let kept = pair.a().kept().into_iter().filter(|(_, packet)| packet[33] & RST != 0);
        resets.extend(kept.map(|(to, _)| to));
    }
    assert_eq!(resets, [Side::Inside, Side::Outside]);
    assert_eq!(pair.b().status().slices[0].role, "owner");
}
