//! What packets of control flows wait for, and how long.

use super::*;
use crate::alg::Aside;

/// A datagram of the client to a port of the server.
fn datagram(port: u16, text: &[u8]) -> Vec<u8> {
    datagram_of((CLIENT, port), port, text)
}

/// A datagram of a host's port to a port of the server.
fn datagram_of((host, own): (u8, u16), port: u16, text: &[u8]) -> Vec<u8> {
    let client = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), own);
    host::datagram(client, SocketAddrV4::new(Ipv4Addr::from_bits(REMOTE), port), text)
}

impl Process {
    fn waits_since(&self) -> Option<Timestamp> {
        self.fleet.slices.iter().filter_map(|slice| slice.waits_since()).min()
    }

    /// Number of tickets that wait.
    fn tickets(&self) -> usize {
        self.algs.as_ref().map_or(0, |algs| algs.stage.tickets())
    }

    pub(super) fn sweep(&mut self) {
        let now = Timestamp(self.now);
        if let Some(algs) = &mut self.algs {
            algs.stage.sweep(&mut self.engine, now);
        }
    }
}

/// The expectation is the mapping of the flow itself.
#[test]
fn a_datagram_whose_answer_comes_to_its_own_port_waits_once() {
    let register = format!(
        "REGISTER sip:example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 10.0.0.{CLIENT}:5060;branch=z9hG4bK1\r\n\
         From: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>\r\nCall-ID: 1\r\n\
         CSeq: 1 REGISTER\r\nContact: <sip:a@10.0.0.{CLIENT}:5060>\r\nContent-Length: 0\r\n\r\n"
    );
    let requests = [(69, &b"\0\x01file\0octet\0"[..]), (5060, register.as_bytes())];
    for (port, text) in requests {
        let mut pair = pair();
        let out = pair.a().carry(Side::Inside, &datagram(port, text));
        assert!(out.is_empty(), "it waits");
        pair.run(0.5);
        assert_eq!(pair.a().kept().len(), 1, "port {port}");
        assert_eq!(pair.a().waits_since(), None);
    }
}

#[test]
fn a_segment_that_tells_one_expectation_twice_waits_once() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    let line = format!("PORT 10,0,0,{CLIENT},8,1\r\n");
    talk.say(&mut pair, Side::Inside, &line.repeat(2));
    talk.run(&mut pair, 1.0);
    assert!(talk.is_whole());
    assert_eq!((talk.check().len(), pair.a().waits_since()), (2, None));
}

/// A ticket without packets does not keep the node from being sure, once the partner answers again.
#[test]
fn the_ticket_of_a_packet_that_is_gone_ends() {
    let mut pair = pair();
    pair.wire().is_cut = true;
    for _ in 0..8 {
        pair.a().carry(Side::Inside, &datagram(69, b"\0\x01file\0octet\0"));
        pair.run(1.0);
        assert!(pair.a().kept().is_empty());
        pair.a().sweep();
    }
    assert_eq!(pair.a().tickets(), 8);
    let since = pair.a().waits_since().expect("the partner is silent");
    assert!(Timestamp(pair.now).since(since).as_secs() >= 7, "since the first packet");
    pair.wire().is_cut = false;
    pair.run(2.0);
    assert_eq!((pair.a().tickets(), pair.a().waits_since()), (0, None));
}

/// A subscriber or a host outside that sends while the partner is silent.
#[test]
fn a_flow_has_few_tickets() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    pair.wire().is_cut = true;
    for _ in 0..50 {
        talk.say(&mut pair, Side::Inside, "NOOP\r\n");
    }
    assert_eq!(pair.a().tickets(), 1, "a flow has one in each turn");
    for _ in 0..100 {
        pair.a().carry(Side::Inside, &datagram(69, b"\0\x01file\0octet\0"));
    }
    assert_eq!(pair.a().tickets(), 64, "one of datagrams has as many as a host may have");
    pair.run(1.0);
    pair.wire().is_cut = false;
    pair.run(2.0);
    assert_eq!((pair.a().tickets(), pair.a().waits_since()), (0, None));
}

/// The partner would take the bytes of the new connection as those of the old one.
#[test]
fn a_connection_in_place_of_a_closed_one_waits_for_the_partner() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    talk.name_port(&mut pair);
    talk.run(&mut pair, 0.5);
    assert!(talk.is_whole());
    for from in [Side::Inside, Side::Outside] {
        let host = &mut talk.hosts[from as usize];
        let len = host.written.len();
        let last = host.segment(len, len, true);
        talk.give(&mut pair, from, last);
        talk.run(&mut pair, 0.2);
    }
    let [client, server] = &talk.hosts;
    let mut client = host_of(client.own, client.other, 0x5000_0000);
    let external = server.other;
    let syn = client.syn(SYN);
    assert!(pair.a().carry(Side::Inside, &syn).is_empty(), "it waits");
    pair.run(0.2);
    let kept = pair.a().kept();
    let [(Side::Outside, packet)] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!(packet[20..22], external.port().to_be_bytes());
    let mut server = host_of(talk.hosts[1].own, external, 77);
    server.receive(packet);
    let answer = server.syn(SYN | ACK);
    assert_eq!(pair.a().carry(Side::Outside, &answer).len(), 1, "its answer does not");
}

/// The clock of a slice whose partner confirms nothing is its own.
#[test]
fn confirmations_of_one_slice_are_none_of_another() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    assert_eq!(talk.external().0, A1);
    pair.ask("b", FleetRequest::Move(1, "a".into())).expect("it drains");
    pair.run(5.0);
    assert_eq!(pair.a().status().slices[1].role, "owner");
    pair.wire().deaf = Some(0);
    talk.name_port(&mut pair);
    for _ in 0..40 {
        for host in 6..14 {
            pair.a().carry(Side::Inside, &datagram_of((host, 69), 69, b"\0\x01file\0octet\0"));
        }
        talk.run(&mut pair, 1.0);
    }
    assert_eq!(talk.check().len(), 1, "it does not wait for ever");
}

/// The fleet has tickets of a gateway that is off.
#[test]
fn a_gateway_that_is_off_stays_while_tickets_wait() {
    let mut pair = pair();
    pair.wire().is_cut = true;
    pair.a().carry(Side::Inside, &datagram(69, b"\0\x01file\0octet\0"));
    pair.run(0.1);
    let mut aside = Aside::new([0; 32]);
    let config = pair.a().engine.config().clone();
    let off = pair.a().algs.as_mut().expect("a gateway");
    off.stage.renew(&AlgSettings::default(), &config);
    for _ in 0..30 {
        pair.run(20.0);
        assert!(pair.a().kept().is_empty());
        (0..64).for_each(|_| pair.a().sweep());
    }
    assert_eq!(pair.a().flows(), 0);
    aside.put(&mut pair.a().algs);
    assert!(pair.a().algs.is_some(), "its ticket waits");
    pair.wire().is_cut = false;
    pair.run(2.0);
    pair.a().sweep();
    aside.put(&mut pair.a().algs);
    assert!(pair.a().algs.is_none());
}

#[test]
fn a_host_does_not_take_the_places_of_others() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    pair.wire().is_cut = true;
    for _ in 0..300 {
        talk.say(&mut pair, Side::Inside, "NOOP\r\n");
        let request = datagram(69, b"\0\x01file\0octet\0");
        assert!(pair.a().carry(Side::Inside, &request).is_empty());
    }
    assert!(pair.a().tickets() <= 64, "{}", pair.a().tickets());
    let text = b"\0\x01other\0octet\0";
    assert!(pair.a().carry(Side::Inside, &datagram_of((7, 69), 69, text)).is_empty());
    pair.run(0.5);
    pair.wire().is_cut = false;
    pair.run(1.0);
    let kept = pair.a().kept();
    assert!(kept.len() <= 33, "{}", kept.len());
    assert!(kept.iter().any(|(_, packet)| packet.ends_with(text)));
    assert_eq!((pair.a().tickets(), pair.a().waits_since()), (0, None));
}

/// The node that has taken the slice does not know what the packet tells of.
#[test]
fn a_packet_that_waits_does_not_go_when_the_slice_is_lost() {
    let mut pair = pair();
    let mut talk = Talk::open(&mut pair);
    pair.wire().is_cut = true;
    pair.run(0.5);
    talk.name_port(&mut pair);
    pair.ask("b", FleetRequest::Forget("a".into())).expect("it is silent");
    pair.run(0.1);
    pair.wire().is_cut = false;
    pair.run(0.5);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    assert_ne!(pair.a().status().slices[0].role, "owner");
    assert!(pair.a().kept().is_empty());
}

/// A mapping of datagrams is young, and goes along at once if it has a control flow.
#[test]
fn a_first_message_waits_for_the_mapping_of_its_flow() {
    let mut pair = pair();
    let body = format!(
        "v=0\r\no=- 1 1 IN IP4 10.0.0.{CLIENT}\r\ns=-\r\nc=IN IP4 10.0.0.{CLIENT}\r\nt=0 0\r\n\
         m=audio 4000 RTP/AVP 0\r\n"
    );
    let invite = format!(
        "INVITE sip:b@example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 10.0.0.{CLIENT}:5060;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
         From: <sip:a@example.com>;tag=1\r\nTo: <sip:b@example.com>\r\nCall-ID: 2\r\n\
         CSeq: 1 INVITE\r\nContact: <sip:a@10.0.0.{CLIENT}:5060>\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(pair.a().carry(Side::Inside, &datagram(5060, invite.as_bytes())).is_empty());
    pair.run(0.3);
    let kept = pair.a().kept();
    let [(Side::Outside, packet)] = &kept[..] else { panic!("{kept:?}") };
    let header = Ipv4::new_checked(&packet[..]).expect("a packet");
    let port = u16::from_be_bytes([packet[20], packet[21]]);
    let external = (Ipv4Addr::from_bits(header.source()), port);
    assert!(pair.b().hosts().contains_key(&(protocol::UDP, external)));
}
