//! The model by itself: the numbers in the specification. The model takes the first open choice, so
//! its external endpoints are known.

#![cfg(feature = "chapters")]

#[path = "../../compare/tests/common/mod.rs"]
mod common;

use common::{A, EXTERNAL, REMOTE, START, Spec, Sum, config, end, error_about};
use natgate_engine::{
    AddressRange, Behavior, Change, Config, DropReason, Endpoint, Limits, Prefix, Side, SideConfig,
    Timestamp, Verdict,
};
use natgate_model::{Expected, Model};
use natgate_wire::dccp::kind::{
    CLOSE, CLOSE_REQUEST, DATA, LISTEN, REQUEST, RESET, RESPONSE, SYNC,
};
use natgate_wire::ipv4::Ipv4;
use natgate_wire::protocol::{DCCP, GRE, ICMP, TCP, UDP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Icmp, checksum};
use std::time::Duration;

const B: Endpoint = end([10, 0, 0, 2], 5000);
const FORWARD_OUT: Verdict = Verdict::Forward(Side::Outside);
const FORWARD_IN: Verdict = Verdict::Forward(Side::Inside);

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

/// True if the checksum of a TCP, UDP or DCCP packet is right.
fn is_right(bytes: &[u8]) -> bool {
    let ip = Ipv4::new_checked(bytes).unwrap();
    let len = ip.payload().len() as u16;
    let pseudo = checksum::pseudo_header(ip.source(), ip.destination(), ip.protocol(), len);
    ip.checksum_valid() && checksum::fold(checksum::sum(ip.payload(), pseudo)) == 0xffff
}

#[test]
fn a_packet_goes_out_and_its_answer_comes_in() {
    for protocol in [TCP, UDP, ICMP, DCCP, GRE] {
        let mut model = Model::new(&config(), START);
        let sent = out(&mut model, &Spec::new(protocol, A, REMOTE));
        assert_eq!(sent.verdict, FORWARD_OUT);
        let spec = Spec::like(&sent.bytes);
        assert_eq!(spec.source.address, EXTERNAL.address);
        if matches!(protocol, TCP | UDP | DCCP) {
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
fn the_ends_of_a_connected_network_are_nobody() {
    let network = |len| Some(Prefix::new(A.address, len));
    for (len, refused) in [(16, true), (30, true), (31, false)] {
        let inside = SideConfig { network: network(len), ..SideConfig::default() };
        let mut model = Model::new(&Config { inside, ..config() }, START);
        let prefix = network(len).expect("just made");
        for address in [prefix.first(), prefix.last()] {
            let nobody = Endpoint::new(address, 5000);
            let from = out(&mut model, &Spec::new(UDP, nobody, REMOTE)).verdict;
            let to =
                model.process(START, Side::Outside, &Spec::new(UDP, REMOTE, nobody).bytes(), None);
            let martian = |reason, verdict| (verdict == Verdict::Drop(reason)) == refused;
            assert!(martian(DropReason::MartianSource, from), "{len} {nobody:?} {from:?}");
            assert!(martian(DropReason::MartianDestination, to.verdict), "{len} {nobody:?}");
        }
    }
    let outside =
        SideConfig { network: Some(Prefix::new(EXTERNAL.address, 30)), ..SideConfig::default() };
    let last = AddressRange { first: EXTERNAL.address, last: end([203, 0, 113, 3], 0).address };
    let mut config = Config { outside, ..config() };
    let to_last = Spec::new(UDP, REMOTE, end([203, 0, 113, 3], 2000)).bytes();
    for reason in [DropReason::MartianDestination, DropReason::NoMapping] {
        let mut model = Model::new(&config, START);
        let done = model.process(START, Side::Outside, &to_last, None);
        assert_eq!(done.verdict, Verdict::Drop(reason));
        config.pools[0].addresses = vec![last];
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
    assert!(model.advance(Timestamp(tick.0 - 1), None).events.is_empty());
    let gone = model.advance(tick, None).events;
    assert!(
        matches!(gone[..], [e] if e.time == tick && matches!(e.change, Change::MappingRemoved(_)))
    );
    assert_eq!(model.pool_usage(0, UDP).held, 1);
    model.advance(Timestamp(tick.0 + 119_999_999_999), None);
    assert_eq!(model.pool_usage(0, UDP).held, 1);
    model.advance(Timestamp(tick.0 + 120_000_000_000), None);
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
    let made = model.advance(after(6), None).transmits;
    assert_eq!((made.len(), made[0].time, made[0].side), (1, after(6), Side::Outside));
    assert_eq!((made[0].bytes[20], made[0].bytes[21]), (3, 3));
    into(&mut model, &syn);
    out(&mut model, &tcp(A, REMOTE, SYN));
    assert!(model.advance(after(13), None).transmits.is_empty());
}

/// State and remaining time of the only session.
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
    model.advance(after(7440), None);
    assert_eq!(state(&model), ("transitory", 240));
    out(&mut model, &tcp(A, REMOTE, ACK));
    assert_eq!(state(&model), ("established", 7440));
}

#[test]
fn a_rst_counts_in_the_window_only() {
    // The internal end expects 501 and announces 10, scaled by 2: 501 to 540 are valid.
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
fn a_syn_out_of_nowhere_teaches_nothing() {
    for flags in [SYN, SYN | ACK, SYN | FIN | ACK] {
        let mut model = Model::new(&config(), START);
        out(&mut model, &tcp(A, REMOTE, SYN));
        into(&mut model, &Spec { sequence: 500, ..tcp(REMOTE, EXTERNAL, SYN | ACK) });
        let forged = Spec { sequence: 90_000, ..tcp(REMOTE, EXTERNAL, flags) };
        assert_eq!(into(&mut model, &forged).verdict, FORWARD_IN);
        into(&mut model, &Spec { sequence: 90_001, ..tcp(REMOTE, EXTERNAL, RST) });
        assert_ne!(state(&model).0, "transitory", "{flags:#x}");
        into(&mut model, &Spec { sequence: 501, ..tcp(REMOTE, EXTERNAL, RST) });
        assert_eq!(state(&model).0, "transitory", "{flags:#x}");
    }
}

#[test]
fn a_fin_counts_near_what_is_expected_only() {
    // The internal end expects 501. Its largest window is 65,535, scaled by 2, or by the largest
    // shift if the shift is not known.
    for (scale, window) in [(Some(2), 0xffff << 2), (None, 0xffff << 14)] {
        for (off, counts) in [(-window - 1, false), (-window, true), (window, false)] {
            let mut model = Model::new(&config(), START);
            out(&mut model, &Spec { scale, ..tcp(A, REMOTE, SYN) });
            into(&mut model, &Spec { scale, sequence: 500, ..tcp(REMOTE, EXTERNAL, SYN | ACK) });
            let ack = Spec { acknowledgment: 501, ..tcp(A, REMOTE, ACK) };
            out(&mut model, &ack);
            let sequence = 501u32.wrapping_add_signed(off);
            let fin = Spec { sequence, ..tcp(REMOTE, EXTERNAL, FIN) };
            assert_eq!(into(&mut model, &fin).verdict, FORWARD_IN);
            assert_eq!(state(&model).0 == "fin-in", counts, "{scale:?} {off}");
            out(&mut model, &Spec { flags: FIN | ACK, sequence: 1001, ..ack });
            assert_eq!(state(&model).0 == "closed", counts, "{scale:?} {off}");
        }
    }
}

#[test]
fn a_syn_in_transitory_waits_for_more_and_teaches_nothing() {
    for forged in [0, 5000, 0x9000_0000] {
        let mut model = Model::new(&config(), START);
        out(&mut model, &tcp(A, REMOTE, SYN));
        into(&mut model, &Spec { sequence: 500, ..tcp(REMOTE, EXTERNAL, SYN | ACK) });
        into(&mut model, &Spec { sequence: 501, ..tcp(REMOTE, EXTERNAL, RST) });
        model.advance(after(100), None);
        into(&mut model, &Spec { sequence: forged, ..tcp(REMOTE, EXTERNAL, SYN) });
        assert_eq!(state(&model), ("transitory", 240));
        out(&mut model, &Spec { acknowledgment: 501, ..tcp(A, REMOTE, ACK) });
        assert_eq!(state(&model), ("established", 7440));
        into(&mut model, &Spec { sequence: forged + 1, ..tcp(REMOTE, EXTERNAL, RST) });
        assert_eq!(state(&model).0, "established");
        into(&mut model, &Spec { sequence: 501, ..tcp(REMOTE, EXTERNAL, RST) });
        assert_eq!(state(&model).0, "transitory");
    }
}

#[test]
fn strangers_do_not_keep_a_mapping_that_only_the_inside_refreshes() {
    for (inbound_refresh, kept) in [(false, 0), (true, 1)] {
        let mut model = Model::new(&Config { inbound_refresh, ..config() }, START);
        out(&mut model, &Spec::new(UDP, A, REMOTE));
        model.advance(after(100), None);
        out(&mut model, &Spec::new(UDP, A, Endpoint { port: 81, ..REMOTE }));
        let external = model.mappings()[0].id.external;
        for (at, port) in [(200, 1), (390, 2)] {
            model.advance(after(at), None);
            let stranger = end([198, 51, 100, 66], port);
            assert_eq!(into(&mut model, &Spec::new(UDP, stranger, external)).verdict, FORWARD_IN);
        }
        model.advance(after(400), None);
        assert_eq!(model.mappings().len(), kept, "{inbound_refresh}");
    }
}

#[test]
fn who_belongs_inside_or_to_one_link_does_not_come_from_outside() {
    let inside = SideConfig { network: Some(Prefix::new(A.address, 24)), ..SideConfig::default() };
    let mut model = Model::new(&Config { inside, ..config() }, START);
    out(&mut model, &Spec::new(UDP, A, REMOTE));
    let external = model.mappings()[0].id.external;
    for (address, reason) in
        [([10, 0, 0, 7], DropReason::SpoofedSource), ([169, 254, 0, 7], DropReason::MartianSource)]
    {
        let verdict = into(&mut model, &Spec::new(UDP, end(address, 80), external)).verdict;
        assert_eq!(verdict, Verdict::Drop(reason));
    }
    assert_eq!(into(&mut model, &Spec::new(UDP, REMOTE, external)).verdict, FORWARD_IN);
    let link = end([169, 254, 169, 254], 80);
    let verdict = out(&mut model, &Spec::new(UDP, A, link)).verdict;
    assert_eq!(verdict, Verdict::Drop(DropReason::MartianDestination));
}

#[test]
fn dccp_goes_by_the_same_table() {
    let mut model = Model::new(&config(), START);
    let dccp = |kind| Spec { dccp: (kind, true), ..Spec::new(DCCP, A, REMOTE) };
    let answer = |kind| Spec { dccp: (kind, true), ..Spec::new(DCCP, REMOTE, EXTERNAL) };
    assert_eq!(out(&mut model, &dccp(DATA)).verdict, Verdict::Drop(DropReason::TcpNotSyn));
    for open in [REQUEST, LISTEN] {
        let sent = out(&mut model, &dccp(open));
        assert_eq!(Spec::like(&sent.bytes).source, EXTERNAL);
        assert!(is_right(&sent.bytes));
        assert_eq!(state(&model), ("opening-out", 240));
    }
    into(&mut model, &answer(RESPONSE));
    assert_eq!(state(&model), ("established", 7440));
    for end in [CLOSE_REQUEST, CLOSE, RESET] {
        into(&mut model, &answer(end));
        assert_eq!(state(&model), ("transitory", 240));
        out(&mut model, &dccp(SYNC));
        assert_eq!(state(&model), ("established", 7440));
    }
    model.advance(after(7440 + 240), None);
    let usage = model.pool_usage(0, DCCP);
    assert_eq!((usage.used, usage.held, model.counters().portless), (0, 1, 0));
}

#[test]
fn an_unsolicited_dccp_request_is_answered_like_a_syn() {
    for (kind, answers) in [(REQUEST, 1), (LISTEN, 1), (RESPONSE, 0), (RESET, 0), (DATA, 0)] {
        for answer_unsolicited_syn in [true, false] {
            let mut model = Model::new(&Config { answer_unsolicited_syn, ..config() }, START);
            into(&mut model, &Spec { dccp: (kind, true), ..Spec::new(DCCP, REMOTE, EXTERNAL) });
            let made = model.advance(after(6), None).transmits.len();
            assert_eq!(made, if answer_unsolicited_syn { answers } else { 0 }, "{kind}");
        }
    }
}

#[test]
fn a_syn_announces_no_larger_segment_than_is_configured() {
    let mss = |bytes: &[u8]| Spec::like(bytes).mss.expect("announced").0;
    for before in 0..4 {
        let mut model = Model::new(&Config { tcp_mss: Some(1220), ..config() }, START);
        let syn = Spec { mss: Some((1460, before)), ..tcp(A, REMOTE, SYN) };
        let sent = out(&mut model, &syn);
        assert_eq!((mss(&sent.bytes), is_right(&sent.bytes)), (1220, true));
        let small = Spec { mss: Some((1000, before)), ..tcp(REMOTE, EXTERNAL, SYN | ACK) };
        assert_eq!(mss(&into(&mut model, &small).bytes), 1000);
        let ack = Spec { flags: ACK, ..syn };
        assert_eq!(mss(&out(&mut model, &ack).bytes), 1460);
        let none = tcp(A, REMOTE, SYN);
        assert_eq!(out(&mut model, &none).bytes.len(), none.bytes().len());
    }
}

#[test]
fn no_more_ports_are_held_than_may_be_and_all_of_them_after_a_restart() {
    let udp = |port| Spec::new(UDP, Endpoint { port, ..A }, REMOTE);
    let limits = Limits { held_ports: Some(2), ..Limits::default() };
    let mut model = Model::new(&Config { limits, ..config() }, START);
    for (seconds, port) in [(0, 1), (1, 2), (1, 3)] {
        model.advance(after(seconds), None);
        out(&mut model, &udp(port));
    }
    assert_eq!(model.clone().restarted(None).pool_usage(0, UDP).held, 2);
    model.advance(after(301), None);
    let usage = model.pool_usage(0, UDP);
    assert_eq!((usage.held, usage.free), (2, 2));
    let mut model = Model::new(&config(), START);
    out(&mut model, &tcp(A, REMOTE, SYN));
    out(&mut model, &Spec::new(GRE, A, REMOTE));
    let mut after_restart = model.restarted(None);
    assert_eq!(after_restart.pool_usage(0, TCP).held, 1);
    assert!(after_restart.mappings().is_empty());
    after_restart.advance(after(120), None);
    assert_eq!(after_restart.pool_usage(0, TCP).free, 4);
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
fn tcp_and_dccp_may_have_a_filter_of_their_own() {
    let filtering_tcp = Some(Behavior::AddressAndPortDependent);
    let stranger = end([198, 51, 100, 2], 80);
    for (protocol, wanted) in [
        (TCP, Verdict::Drop(DropReason::Filtered)),
        (DCCP, Verdict::Drop(DropReason::Filtered)),
        (UDP, FORWARD_IN),
    ] {
        let mut model = Model::new(&Config { filtering_tcp, ..config() }, START);
        out(&mut model, &Spec::new(protocol, A, REMOTE));
        assert_eq!(into(&mut model, &Spec::new(protocol, stranger, EXTERNAL)).verdict, wanted);
    }
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

#[test]
fn a_router_inside_that_is_no_subscriber_may_report_errors() {
    let mut model = Model::new(&config(), START);
    let seen = out(&mut model, &Spec::new(UDP, A, REMOTE)).bytes;
    let back = into(&mut model, &Spec::answer(&seen)).bytes;
    let router = end([11, 0, 0, 1], 5000);
    let told = model.process(START, Side::Inside, &error_about(&back, router, (11, 0), 28), None);
    assert_eq!(told.verdict, FORWARD_OUT);
    assert_eq!(Spec::like(&told.bytes).source.address, EXTERNAL.address);
    let other = Spec::new(UDP, REMOTE, B).bytes();
    let other = model.process(START, Side::Inside, &error_about(&other, router, (11, 0), 28), None);
    assert_eq!(other.verdict, Verdict::Drop(DropReason::IcmpNoSession));
    let refused = out(&mut model, &Spec::new(UDP, router, REMOTE)).verdict;
    assert_eq!(refused, Verdict::Drop(DropReason::NotSubscriber));
}
