//! The core of the model, with or without chapters: translation, a TCP connection, an ICMP error
//! that the gateway makes, and time.

#[path = "../../compare/tests/common/mod.rs"]
mod common;

use common::{A, EXTERNAL, REMOTE, START, Spec, config};
use natgate_engine::{Config, DropReason, Limits, Side, Verdict};
use natgate_model::Model;
use natgate_wire::protocol::{TCP, UDP};
use natgate_wire::tcp::flags::{ACK, SYN};
use std::time::Duration;

const OUT: Verdict = Verdict::Forward(Side::Outside);
const IN: Verdict = Verdict::Forward(Side::Inside);

#[test]
fn a_datagram_goes_out_its_answer_comes_in_and_the_mapping_runs_out() {
    let mut model = Model::new(&config(), START);
    let sent = model.process(START, Side::Inside, &Spec::new(UDP, A, REMOTE).bytes(), None);
    assert_eq!((sent.verdict, sent.made.events.len()), (OUT, 1));
    let answer = Spec::answer(&sent.bytes);
    assert_eq!(answer.destination, EXTERNAL);
    let answered = model.process(START, Side::Outside, &answer.bytes(), None);
    assert_eq!(answered.verdict, IN);
    assert_eq!(Spec::like(&answered.bytes).destination, A);
    assert_eq!(model.sessions().len(), 1);
    let gone = model.advance(START.plus(Duration::from_secs(3600)), None);
    assert_eq!((gone.events.len(), model.mappings().len()), (1, 0));
}

#[test]
fn a_connection_opens_and_a_stranger_does_not_get_in() {
    let mut model = Model::new(&config(), START);
    let stranger = Spec { flags: SYN, ..Spec::new(TCP, REMOTE, EXTERNAL) };
    let refused = model.process(START, Side::Outside, &stranger.bytes(), None);
    assert_eq!(refused.verdict, Verdict::Drop(DropReason::NoMapping));
    let first = Spec { flags: SYN, ..Spec::new(TCP, A, REMOTE) };
    let sent = model.process(START, Side::Inside, &first.bytes(), None);
    assert_eq!((sent.verdict, model.sessions()[0].state), (OUT, "opening-out"));
    let answer = Spec { flags: SYN | ACK, ..Spec::answer(&sent.bytes) };
    assert_eq!(model.process(START, Side::Outside, &answer.bytes(), None).verdict, IN);
    assert_eq!(model.sessions()[0].state, "established");
}

#[test]
fn a_packet_at_its_last_hop_is_answered() {
    let limits = Limits { icmp_errors_per_second: 10, ..Limits::default() };
    let mut model = Model::new(&Config { limits, ..config() }, START);
    let last = Spec { ttl: 1, ..Spec::new(UDP, A, REMOTE) };
    let done = model.process(START, Side::Inside, &last.bytes(), None);
    assert_eq!(done.verdict, Verdict::Drop(DropReason::TtlExceeded));
    assert_eq!(done.made.transmits[0].bytes[20..22], [11, 0]);
}
