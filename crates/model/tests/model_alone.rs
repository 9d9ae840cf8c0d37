//! The model by itself, on what the specification says in numbers. It takes the first choice that
//! is open, so its external endpoints are known.

mod common;

use common::{Spec, Sum, end, error_about};
use natgate_engine::{
    AddressRange, Behavior, Change, Config, DropReason, Endpoint, PoolConfig, Side, Timestamp,
    Verdict,
};
use natgate_model::{Expected, Model};
use natgate_wire::ipv4::Ipv4;
use natgate_wire::protocol::{GRE, ICMP, TCP, UDP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Icmp, checksum};
use std::time::Duration;

const A: Endpoint = end([10, 0, 0, 1], 5000);
const B: Endpoint = end([10, 0, 0, 2], 5000);
const REMOTE: Endpoint = end([198, 51, 100, 1], 80);
const EXTERNAL: Endpoint = end([203, 0, 113, 1], 2000);
const START: Timestamp = Timestamp(1_000_000_000_000);
const FORWARD_OUT: Verdict = Verdict::Forward(Side::Outside);
const FORWARD_IN: Verdict = Verdict::Forward(Side::Inside);

fn config() -> Config {
    let addresses = vec![AddressRange { first: EXTERNAL.address, last: EXTERNAL.address }];
    Config {
        pools: vec![PoolConfig { name: "default".into(), addresses, ports: (2000, 2003) }],
        ..Config::default()
    }
}

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

fn tcp(source: Endpoint, destination: Endpoint, flags: u8) -> Spec {
    Spec { flags, ..Spec::new(TCP, source, destination) }
}

fn out(model: &mut Model, spec: &Spec) -> Expected {
    model.process(model.now(), Side::Inside, &spec.bytes(), None)
}

fn into(model: &mut Model, spec: &Spec) -> Expected {
    model.process(model.now(), Side::Outside, &spec.bytes(), None)
}

/// Whether the checksum of a TCP or UDP packet is right.
fn is_right(bytes: &[u8]) -> bool {
    let ip = Ipv4::new_checked(bytes).unwrap();
    let len = ip.payload().len() as u16;
    let pseudo = checksum::pseudo_header(ip.source(), ip.destination(), ip.protocol(), len);
    ip.checksum_valid() && checksum::fold(checksum::sum(ip.payload(), pseudo)) == 0xffff
}

#[test]
fn a_packet_goes_out_and_its_answer_comes_in() {
    for protocol in [TCP, UDP, ICMP, GRE] {
        let mut model = Model::new(&config(), START);
        let sent = out(&mut model, &Spec::new(protocol, A, REMOTE));
        assert_eq!(sent.verdict, FORWARD_OUT);
        let spec = Spec::like(&sent.bytes);
        assert_eq!(spec.source.address, EXTERNAL.address);
        if matches!(protocol, TCP | UDP) {
            assert_eq!(spec.source, Endpoint { port: 2000, ..EXTERNAL });
            assert!(is_right(&sent.bytes));
        }
        let answer = Spec { flags: SYN | ACK, ..Spec::answer(&sent.bytes) };
        let back = into(&mut model, &answer);
        assert_eq!(back.verdict, FORWARD_IN);
        assert_eq!(Spec::like(&back.bytes).destination.address, A.address);
        assert_eq!(model.sessions()[0].packets_in, 1);
    }
}

#[test]
fn wrong_checksums_stay_wrong_and_absent_ones_absent() {
    let mut model = Model::new(&config(), START);
    let udp = Spec::new(UDP, A, REMOTE);
    let none = out(&mut model, &Spec { sum: Sum::Is(0), ..udp.clone() });
    assert_eq!(none.bytes[26..28], [0, 0]);
    let right = u16::from_be_bytes([udp.bytes()[26], udp.bytes()[27]]);
    let wrong = out(&mut model, &Spec { sum: Sum::Is(right ^ 0x100), ..udp });
    assert!(!is_right(&wrong.bytes));
}

#[test]
fn a_mapping_goes_at_the_first_tick_after_its_time_and_its_port_is_held() {
    let mut model = Model::new(&config(), START);
    model.process(Timestamp(START.0 + 1), Side::Inside, &Spec::new(UDP, A, REMOTE).bytes(), None);
    let tick = Timestamp(after(300).0 + 125_000_000);
    assert!(model.advance(Timestamp(tick.0 - 1)).events.is_empty());
    let gone = model.advance(tick).events;
    assert!(
        matches!(gone[..], [e] if e.time == tick && matches!(e.change, Change::MappingRemoved(_)))
    );
    assert_eq!(model.pool_usage(0, UDP).held, 1);
    model.advance(Timestamp(tick.0 + 119_999_999_999));
    assert_eq!(model.pool_usage(0, UDP).held, 1);
    model.advance(Timestamp(tick.0 + 120_000_000_000));
    assert_eq!(model.pool_usage(0, UDP).free, 4);
}

#[test]
fn ports_keep_their_parity_until_none_is_left() {
    let mut model = Model::new(&config(), START);
    let ports: Vec<u16> = [1u16, 3, 5]
        .iter()
        .map(|port| {
            let sent = out(&mut model, &Spec::new(UDP, Endpoint { port: *port, ..A }, REMOTE));
            Spec::like(&sent.bytes).source.port
        })
        .collect();
    assert_eq!(ports, [2001, 2003, 2000]);
}

#[test]
fn an_exhausted_pool_is_answered_and_reported() {
    let mut model = Model::new(&config(), START);
    for port in 1..=4 {
        assert_eq!(out(&mut model, &tcp(Endpoint { port, ..A }, REMOTE, SYN)).verdict, FORWARD_OUT);
    }
    let refused = out(&mut model, &tcp(B, REMOTE, SYN));
    assert_eq!(refused.verdict, Verdict::Drop(DropReason::PoolExhausted));
    let exhausted = Change::PoolExhausted { pool: 0, protocol: TCP };
    assert_eq!(refused.made.events.iter().map(|e| e.change).collect::<Vec<_>>(), [exhausted]);
    let error = &refused.made.transmits[0];
    assert_eq!((error.bytes[20], error.bytes[21]), (3, 1));
    assert_eq!(error.bytes[28..], tcp(B, REMOTE, SYN).bytes());
}

#[test]
fn filtering_decides_who_may_answer() {
    let other_port = Endpoint { port: 81, ..REMOTE };
    let stranger = end([198, 51, 100, 2], 80);
    for (filtering, admitted) in [
        (Behavior::EndpointIndependent, [true, true]),
        (Behavior::AddressDependent, [true, false]),
        (Behavior::AddressAndPortDependent, [false, false]),
    ] {
        for (remote, admitted) in [other_port, stranger].into_iter().zip(admitted) {
            let mut model = Model::new(&Config { filtering, ..config() }, START);
            out(&mut model, &Spec::new(UDP, A, REMOTE));
            let verdict = into(&mut model, &Spec::new(UDP, remote, EXTERNAL)).verdict;
            let wanted = if admitted { FORWARD_IN } else { Verdict::Drop(DropReason::Filtered) };
            assert_eq!(verdict, wanted, "{filtering:?} {remote:?}");
        }
    }
}

#[test]
fn an_unsolicited_syn_is_answered_after_six_seconds_unless_explained() {
    let config = Config { filtering: Behavior::AddressAndPortDependent, ..config() };
    let mut model = Model::new(&config, START);
    let syn = tcp(REMOTE, EXTERNAL, SYN);
    assert_eq!(into(&mut model, &syn).verdict, Verdict::Drop(DropReason::NoMapping));
    let made = model.advance(after(6)).transmits;
    assert_eq!((made.len(), made[0].time, made[0].side), (1, after(6), Side::Outside));
    assert_eq!((made[0].bytes[20], made[0].bytes[21]), (3, 3));
    into(&mut model, &syn);
    out(&mut model, &tcp(A, REMOTE, SYN));
    assert!(model.advance(after(13)).transmits.is_empty());
}

/// State and time left of the only session.
fn state(model: &Model) -> (&'static str, u64) {
    let session = model.sessions()[0];
    (session.state, session.expires.since(model.now()).as_secs())
}

#[test]
fn tcp_states_and_times() {
    let mut model = Model::new(&config(), START);
    out(&mut model, &tcp(A, REMOTE, SYN));
    assert_eq!(state(&model), ("opening-out", 240));
    into(&mut model, &tcp(REMOTE, EXTERNAL, SYN | ACK));
    assert_eq!(state(&model), ("established", 7440));
    out(&mut model, &tcp(A, REMOTE, FIN | ACK));
    assert_eq!(state(&model), ("fin-out", 7440));
    into(&mut model, &tcp(REMOTE, EXTERNAL, FIN | ACK));
    assert_eq!(state(&model), ("closed", 240));
    out(&mut model, &tcp(A, REMOTE, SYN));
    assert_eq!(state(&model), ("opening-out", 240));
    into(&mut model, &tcp(REMOTE, EXTERNAL, SYN | ACK));
    model.advance(after(7440));
    assert_eq!(state(&model), ("transitory", 240));
    out(&mut model, &tcp(A, REMOTE, ACK));
    assert_eq!(state(&model), ("established", 7440));
}

#[test]
fn a_rst_counts_in_the_window_only() {
    // The internal end expects 501 and announces 10, scaled by 2: 501 to 540 count.
    for (sequence, valid) in [(500, false), (501, true), (540, true), (541, false)] {
        let mut model = Model::new(&config(), START);
        let scale = Some(2);
        out(&mut model, &Spec { scale, ..tcp(A, REMOTE, SYN) });
        into(&mut model, &Spec { scale, sequence: 500, ..tcp(REMOTE, EXTERNAL, SYN | ACK) });
        out(&mut model, &Spec { window: 10, acknowledgment: 501, ..tcp(A, REMOTE, ACK) });
        into(&mut model, &Spec { sequence, ..tcp(REMOTE, EXTERNAL, RST) });
        assert_eq!(state(&model).0 == "transitory", valid, "{sequence}");
    }
}

#[test]
fn subscribers_reach_each_other() {
    let mut model = Model::new(&config(), START);
    out(&mut model, &Spec::new(UDP, B, REMOTE));
    let to_b = Spec::new(UDP, A, EXTERNAL);
    let passed = out(&mut model, &to_b);
    assert_eq!(passed.verdict, FORWARD_IN);
    let spec = Spec::like(&passed.bytes);
    assert_eq!((spec.source.address, spec.destination), (EXTERNAL.address, B));
    assert_eq!(passed.bytes[8], 63);
    assert!(is_right(&passed.bytes));
    let mut off = Model::new(&Config { hairpinning: false, ..config() }, START);
    assert_eq!(out(&mut off, &to_b).verdict, Verdict::Drop(DropReason::HairpinDisabled));
}

#[test]
fn icmp_errors_are_translated_inside_and_out() {
    let mut model = Model::new(&config(), START);
    let sent = Spec::new(UDP, A, REMOTE);
    let seen = out(&mut model, &sent).bytes;
    let router = end([192, 0, 2, 77], 0);
    let error = error_about(&seen, router, (11, 0), 28);
    let passed = model.process(START, Side::Outside, &error, None);
    assert_eq!(passed.verdict, FORWARD_IN);
    let ip = Ipv4::new_checked(&passed.bytes[..]).unwrap();
    assert_eq!((ip.source(), ip.destination()), (router.address.to_bits(), A.address.to_bits()));
    assert!(Icmp::new_checked(ip.payload()).unwrap().checksum_valid());
    let mut quoted = sent.bytes()[..28].to_vec();
    (quoted[8], quoted[10], quoted[11]) = (63, passed.bytes[38], passed.bytes[39]);
    assert_eq!(passed.bytes[28..], quoted);
    let stranger = error_about(&Spec::new(UDP, EXTERNAL, router).bytes(), router, (11, 0), 28);
    let refused = model.process(START, Side::Outside, &stranger, None);
    assert_eq!(refused.verdict, Verdict::Drop(DropReason::IcmpNoSession));
}
