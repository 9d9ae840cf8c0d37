//! Flows that another process has saved: held bytes with a hole before the next byte.

mod common;

use common::{
    Book, Host, Link, Opening, client_inside, client_inside_v6, mark, realm, server_inside,
};
use natgate_payload::Side::{self, Inside, Outside};
use natgate_payload::{
    ControlPacket, Endpoints, Kind, Limits, NewFlow, Payloads, RestoreError, Room,
};
use std::net::SocketAddrV4;

const COMMAND: &[u8] = b"PORT 10,0,0,5,200,13\r\n";

/// A connection on which the first bytes of a command are acknowledged to the client, and its rest
/// has left: the server acknowledges nothing.
fn unanswered(with_end: bool) -> Link {
    let mut link = Link::open(Opening::new(Kind::Ftp, client_inside(21), Inside));
    link.say(Outside, "220 ready\r\n");
    let start = link.write(Inside, COMMAND);
    link.send(Inside, start, start + 14);
    let packet = link.hosts[0].segment(start + 14, start + COMMAND.len(), with_end);
    link.pass(Inside, &packet);
    link
}

fn saved(link: &Link) -> Vec<u8> {
    link.payloads.save(mark).next().expect("a flow")
}

fn restored(flow: &[u8]) -> Result<(), RestoreError> {
    let mut heir = Payloads::new(Limits { flows: 8, buffers: 4 }, [9; 32]);
    heir.restore(flow, realm, |_, _, _| true)
}

/// The flow without the last `count` bytes of the command.
fn without(flow: &[u8], count: usize) -> Vec<u8> {
    let at = flow.windows(COMMAND.len()).position(|bytes| bytes == COMMAND).expect("held bytes");
    let (end, len) = (at + COMMAND.len(), (COMMAND.len() - count) as u16);
    [&flow[..at - 2], &len.to_le_bytes(), &flow[at..end - count], &flow[end..]].concat()
}

#[test]
fn held_bytes_reach_the_next_byte() {
    let flow = saved(&unanswered(false));
    assert_eq!(restored(&flow), Ok(()));
    for count in 1..9 {
        assert_eq!(restored(&without(&flow, count)), Err(RestoreError::Damaged), "{count}");
    }
}

/// A FIN has a number and no byte.
#[test]
fn the_end_of_a_stream_is_no_hole() {
    let flow = saved(&unanswered(true));
    assert_eq!(restored(&flow), Ok(()));
    assert_eq!(restored(&without(&flow, 1)), Err(RestoreError::Damaged));
}

/// Bytes that are not read any more leave before earlier ones.
#[test]
fn a_flow_that_is_not_read_may_have_holes() {
    let mut link = unanswered(false);
    link.say(Outside, "\u{16}\u{3}\u{1}\r\n");
    let late = link.write(Inside, b"abcdef");
    let packet = link.hosts[0].segment(late + 3, late + 6, false);
    link.pass(Inside, &packet);
    let flow = saved(&link);
    assert_eq!(restored(&flow), Ok(()));
    let [_, outside]: &[Host; 2] = &link.hosts;
    assert_eq!(outside.received.len(), 0, "the server has got nothing of {:?}", Side::Inside);
}

/// A flow keeps its host's address of either family, its number, and its realm under the number
/// that the realm has in the other process. Without the realm the flow is none.
#[test]
fn a_host_with_a_number_keeps_its_flow() {
    let tunneled = Endpoints { number: Some([1, 0, 0, 7].into()), ..client_inside(21) };
    for endpoints in [client_inside_v6(21), tunneled] {
        let endpoints = Endpoints { realm: 300, ..endpoints };
        let link = Link::open(Opening::new(Kind::Ftp, endpoints, Inside));
        let flows: Vec<_> = link.payloads.save(|realm| (realm == 300).then_some(9)).collect();
        let heir = || Payloads::new(Limits { flows: 8, buffers: 4 }, [9; 32]);
        let mut other = heir();
        let restored = other.restore(&flows[0], |mark| Some(mark + 1), |_, _, _| true);
        assert_eq!((restored, flows.len()), (Ok(()), 1));
        let known = Endpoints { realm: 10, ..endpoints };
        assert_eq!(other.find(6, known.external, known.remote), Some((Kind::Ftp, known)));
        assert_eq!(heir().restore(&flows[0], |_| None, |_, _, _| true), Err(RestoreError::Damaged));
    }
}

/// Anybody outside can begin flows that no host inside answers.
#[test]
fn forged_beginnings_do_not_take_the_place_of_a_flow_with_a_host() {
    let link = Link::open(Opening::new(Kind::Ftp, server_inside(21), Outside));
    let flow = saved(&link);
    let mut heir = Payloads::new(Limits { flows: 4, buffers: 4 }, [9; 32]);
    for port in 7000..7010 {
        let known = server_inside(21);
        let remote = SocketAddrV4::new(*known.remote.ip(), port);
        let endpoints = Endpoints { remote, remote_inside: remote.into(), ..known };
        let syn = Host::new(remote, known.external, 7).syn(2);
        let mut buffer = [0; 2048];
        buffer[..syn.len()].copy_from_slice(&syn);
        let mut room = Room::new(&mut buffer, syn.len());
        let (from, new_flow) = (Outside, NewFlow::Read);
        let packet = ControlPacket { kind: Kind::Ftp, from, endpoints, new_flow };
        heir.process(100, packet, &mut room, &mut Book::default());
    }
    assert_eq!(heir.flows(), 2, "half of the places");
    assert_eq!(heir.restore(&flow, realm, |_, _, _| true), Ok(()));
}
