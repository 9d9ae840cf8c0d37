//! The model by itself: ICMP errors that the gateway makes (specification, section 8), their
//! contents and number.

#![cfg(feature = "chapters")]

#[path = "../../compare/tests/common/mod.rs"]
mod common;

use common::{A, REMOTE, START, Spec, config};
use natgate_engine::{Config, DropReason, Endpoint, Limits, Refusal, Side, SideConfig, Verdict};
use natgate_model::{Expected, Model};
use natgate_wire::protocol::{ICMP, UDP};
use std::time::Duration;

fn out(model: &mut Model, spec: &Spec) -> Expected {
    model.process(model.now(), Side::Inside, &spec.bytes(), None)
}

/// A datagram with its last hop here, from the nth address after A's.
fn last(n: u32) -> Spec {
    let source = Endpoint::new(A.address.to_bits() + n, A.port);
    Spec { ttl: 1, ..Spec::new(UDP, source, REMOTE) }
}

/// Number of these datagrams that are answered.
fn answered(model: &mut Model, sources: impl IntoIterator<Item = u32>) -> usize {
    sources.into_iter().map(|n| out(model, &last(n)).made.transmits.len()).sum()
}

#[test]
fn an_error_keeps_the_class_of_service_and_fits_the_side() {
    for (mtu, longest) in [(None, 576), (Some(9000), 576), (Some(100), 100)] {
        let inside = SideConfig { mtu, ..SideConfig::default() };
        let mut model = Model::new(&Config { inside, ..config() }, START);
        let about = Spec { service: 0b1011_1011, payload: vec![7; 1000], ..last(0) };
        let error = &out(&mut model, &about).made.transmits[0];
        assert_eq!((error.bytes.len(), error.bytes[1]), (longest, 0b1011_1000));
        assert_eq!(error.bytes[6..8], [0x40, 0]);
        assert_eq!(error.bytes[28..], about.bytes()[..longest - 28]);
    }
}

#[test]
fn no_error_is_made_about_icmp_that_is_no_query() {
    for (kind, answers) in [(8, 1), (13, 1), (0, 1), (14, 1), (3, 0), (5, 0), (15, 0), (42, 0)] {
        let mut model = Model::new(&config(), START);
        let about = Spec { icmp: (kind, 0), ttl: 1, ..Spec::new(ICMP, A, REMOTE) };
        let done = out(&mut model, &about);
        assert_eq!(done.verdict, Verdict::Drop(DropReason::TtlExceeded));
        assert_eq!(done.made.transmits.len(), answers, "type {kind}");
        assert_eq!(model.counters().errors_suppressed, 0);
    }
}

#[test]
fn a_silent_side_is_told_nothing() {
    let inside = SideConfig { silent: true, ..SideConfig::default() };
    let mut model = Model::new(&Config { inside, ..config() }, START);
    assert_eq!(answered(&mut model, [0]), 0);
    assert_eq!(model.counters().errors_suppressed, 1);
}

#[test]
fn one_requester_gets_a_quarter_and_leaves_the_rest_to_others() {
    let limits = Limits { icmp_errors_per_second: 8, ..Limits::default() };
    let mut model = Model::new(&Config { limits, ..config() }, START);
    assert_eq!(answered(&mut model, [0; 10]), 2);
    // An address 4,096 further is the same requester.
    assert_eq!(answered(&mut model, [4096]), 0);
    assert_eq!(answered(&mut model, 1..4), 3);
    assert_eq!(answered(&mut model, 1..4), 3);
    // The common limit is used up. The reserve is for requesters without recent errors.
    assert_eq!(answered(&mut model, [1, 2, 3]), 0);
    assert_eq!(answered(&mut model, 4..20), 8);
    assert_eq!(answered(&mut model, [4, 20]), 0);
    model.advance(START.plus(Duration::from_millis(125)), None);
    // One more error from the common limit, and one from the reserve.
    assert_eq!(answered(&mut model, [30; 3]), 1);
    assert_eq!(answered(&mut model, [31, 32]), 1);
    assert_eq!(model.counters().generated, 18);
}

#[test]
fn a_refusal_says_what_is_configured() {
    for (refusal, code) in [
        (Refusal::HostUnreachable, Some(1)),
        (Refusal::Prohibited, Some(13)),
        (Refusal::Silent, None),
    ] {
        let limits = Limits { udp_ports: 0, ..Limits::default() };
        let mut model = Model::new(&Config { refusal, limits, ..config() }, START);
        let refused = out(&mut model, &Spec::new(UDP, A, REMOTE));
        assert_eq!(refused.verdict, Verdict::Drop(DropReason::PortQuota));
        let errors = refused.made.transmits.iter();
        let said: Vec<(u8, u8)> = errors.map(|one| (one.bytes[20], one.bytes[21])).collect();
        assert_eq!(said, code.map(|code| (3, code)).into_iter().collect::<Vec<_>>());
    }
}
