//! PPTP through the framework: Call IDs of the host inside become external ones. The cuts of
//! segments are the matter of `conversations.rs`.

mod common;

use common::pptp::*;
use common::{Link, Opening, client_inside, client_inside_v6, server_inside};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{CallStep, Kind, Reason, Uses, Wanted};

fn open(client: Side) -> Link {
    let endpoints = match client {
        Inside => client_inside(1723),
        Outside => server_inside(1723),
    };
    Link::open(Opening::new(Kind::Pptp, endpoints, client))
}

/// Has a side send bytes; returns what the other one receives.
fn says(link: &mut Link, from: Side, bytes: &[u8]) -> Vec<u8> {
    let heard = link.hosts[from.other() as usize].received.len();
    let start = link.write(from, bytes);
    link.send(from, start, start + bytes.len());
    link.repeat_until_acknowledged(from);
    link.hosts[from.other() as usize].received[heard..].to_vec()
}

fn refused(link: &Link, reason: Reason) -> u64 {
    link.payloads.counters(Kind::Pptp).refused[reason as usize]
}

#[test]
fn numbers_of_the_host_inside_become_external_in_all_messages() {
    const NEW: u16 = EXTERNAL_CALL;
    let mut link = open(Inside);
    let from_inside = [
        (outgoing_request(7), outgoing_request(NEW)),
        (incoming_request(7), incoming_request(NEW)),
        (outgoing_reply(7, 9, 1), outgoing_reply(NEW, 9, 1)),
        (incoming_reply(7, 9, 1), incoming_reply(NEW, 9, 1)),
        (connected(7), connected(7)),
        (wan_error(7), wan_error(7)),
        (link_info(7), link_info(7)),
        (clear(7), clear(NEW)),
        (outgoing_reply(7, 9, 4), outgoing_reply(NEW, 9, 4)),
        (disconnect(7), disconnect(NEW)),
        (outgoing_reply(8, 9, 4), outgoing_reply(8, 9, 4)),
        (clear(8), clear(8)),
        (message(5, 16, &[7, 7]), message(5, 16, &[7, 7])),
        (message(99, 16, &[7, 7]), message(99, 16, &[7, 7])),
    ];
    for (said, heard) in from_inside {
        assert_eq!(says(&mut link, Inside, &said), heard);
    }
    let from_outside = [
        (outgoing_request(NEW), outgoing_request(NEW)),
        (incoming_request(NEW), incoming_request(NEW)),
        (outgoing_reply(NEW, NEW, 1), outgoing_reply(NEW, 7, 1)),
        (incoming_reply(9, NEW, 1), incoming_reply(9, 7, 1)),
        (outgoing_reply(0, NEW, 3), outgoing_reply(0, 7, 3)),
        (connected(NEW), connected(7)),
        (wan_error(NEW), wan_error(7)),
        (link_info(NEW), link_info(7)),
        (clear(9), clear(9)),
        (disconnect(9), disconnect(9)),
        (link_info(50), link_info(50)),
        // Some concentrators name the number of the other end.
        (disconnect(NEW + 100), disconnect(NEW + 100)),
    ];
    for (said, heard) in from_outside {
        assert_eq!(says(&mut link, Outside, &said), heard);
    }
}

#[test]
fn a_disconnection_may_name_the_other_end() {
    let mut link = open(Inside);
    says(&mut link, Inside, &outgoing_request(7));
    says(&mut link, Outside, &outgoing_reply(9, EXTERNAL_CALL, 1));
    assert_eq!(says(&mut link, Outside, &disconnect(EXTERNAL_CALL)), disconnect(7));
    assert_eq!(link.book.steps.last(), Some(&CallStep::End(7)));
}

#[test]
fn a_call_is_an_expectation_of_gre() {
    let mut link = open(Inside);
    says(&mut link, Inside, &[start(true), outgoing_request(7)].concat());
    let [made] = link.book.made[..] else { panic!("{:?}", link.book.made) };
    assert_eq!((made.protocol, made.wanted, made.uses), (47, Wanted::CallId, Uses::Once));
    assert_eq!(made.internal, "10.0.0.5:7".parse().unwrap());
    assert_eq!(made.remote, Some("198.51.100.2".parse().unwrap()));
    assert_eq!(link.book.steps, [CallStep::Restart]);
    says(&mut link, Outside, &outgoing_reply(9, EXTERNAL_CALL, 1));
    assert_eq!(link.book.steps[1], CallStep::Peer { internal: 7, peer: 9 });
    says(&mut link, Inside, &clear(7));
    says(&mut link, Outside, &disconnect(9));
    assert_eq!(link.book.steps[2..], [CallStep::Clear(7), CallStep::End(7)]);
    assert_eq!(link.payloads.counters(Kind::Pptp).expectations, 1);
}

#[test]
fn only_the_host_inside_makes_calls() {
    for client in [Inside, Outside] {
        let mut link = open(client);
        let all = [
            start(true),
            outgoing_request(7),
            incoming_request(7),
            outgoing_reply(7, 9, 1),
            incoming_reply(7, 9, 1),
            connected(7),
            clear(7),
        ];
        assert_eq!(says(&mut link, Outside, &all.concat()), all.concat());
        assert_eq!((link.book.made.len(), link.book.steps.len()), (0, 1));
    }
}

#[test]
fn other_protocols_are_left_at_their_first_bytes() {
    let whole = outgoing_request(7);
    let short = message(7, 11, &[]);
    let long = message(7, 1025, &[]);
    let cookie = [&whole[..6], &[0, 0], &whole[8..]].concat();
    let kind = [&whole[..3], &[3], &whole[4..]].concat();
    let page = b"POST / HTTP/1.1\r\nContent-Length: 168\r\n\r\n".to_vec();
    for first in [short, long, cookie, kind, page, vec![0x16, 3, 1, 2, 0]] {
        let mut link = open(Inside);
        let both = [first, whole.clone()].concat();
        assert_eq!(says(&mut link, Inside, &both), both);
        assert_eq!(says(&mut link, Inside, &whole), whole);
        assert_eq!((link.book.made.len(), refused(&link, Reason::NotProtocol)), (0, 1));
    }
}

#[test]
fn messages_without_room_for_their_numbers_pass() {
    let mut link = open(Inside);
    for kind in 0..20 {
        for len in 12..17 {
            let said = message(kind, len, &[]);
            let heard = says(&mut link, Inside, &said);
            assert_eq!(heard.len(), said.len());
            assert_eq!(says(&mut link, Outside, &said), said);
        }
    }
    let management = [&outgoing_request(9)[..3], &[2], &outgoing_request(9)[4..]].concat();
    assert_eq!(says(&mut link, Inside, &management), management);
}

#[test]
fn a_flood_of_calls_is_cut_off() {
    let mut link = open(Inside);
    for call in 1000..1200 {
        let said = outgoing_request(call);
        says(&mut link, Inside, &said);
    }
    assert_eq!((link.book.made.len(), refused(&link, Reason::Flood)), (64, 136));
    link.now += 1;
    for call in 2000..2100 {
        says(&mut link, Inside, &outgoing_request(call));
    }
    assert_eq!(link.book.made.len(), 80);
}

#[test]
fn without_room_a_message_passes_as_it_is() {
    let mut link = open(Inside);
    link.book.is_empty = true;
    assert_eq!(says(&mut link, Inside, &outgoing_request(7)), outgoing_request(7));
    assert_eq!(refused(&link, Reason::NoPort), 1);
    assert_eq!(says(&mut link, Outside, &outgoing_reply(9, 7, 1)), outgoing_reply(9, 7, 1));
}

#[test]
fn a_host_of_the_other_family_has_no_calls() {
    let mut link = Link::open(Opening::new(Kind::Pptp, client_inside_v6(1723), Inside));
    assert_eq!(says(&mut link, Inside, &outgoing_request(7)), outgoing_request(7));
    assert_eq!((link.book.made.len(), refused(&link, Reason::Families)), (0, 1));
}
