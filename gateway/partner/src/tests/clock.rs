//! The comparison of both nodes' clocks.

use super::rig::{NOBODY, Rig, assert_views_arrive, until, wait_for_connection};
use crate::Link;
use crate::lead::ReadClock;
use crate::link::{Tuning, start_tuned};
use std::time::{Duration, SystemTime};

const FAST: Duration = Duration::from_secs(7);

/// Two links whose nodes have clocks.
fn pair(clocks: [Option<ReadClock>; 2]) -> (Rig, [Link; 2]) {
    let rig = Rig::new();
    let start = |node: &str, partner, address, clock| {
        rig.write(node, &rig.authority, 2099);
        let tuning = Tuning { clock, ..Tuning::default() };
        start_tuned(&rig.settings(node, partner, address), tuning).expect("a link")
    };
    let b = start("b", "a", NOBODY.parse().unwrap(), clocks[1]);
    let a = start("a", "b", b.local_address(), clocks[0]);
    wait_for_connection(&a);
    wait_for_connection(&b);
    (rig, [a, b])
}

#[test]
fn each_node_knows_the_lead_of_the_others_clock() {
    let (_rig, [a, b]) = pair([Some(SystemTime::now), Some(|| SystemTime::now() + FAST)]);
    for (link, expected) in [(&a, FAST.as_nanos() as i64), (&b, -(FAST.as_nanos() as i64))] {
        let lead = until("a comparison", || link.status().clock_lead);
        // Wrong by a quarter of a second at most, and never by one.
        assert!(lead.abs_diff(expected) < 1_000_000_000, "{lead} ns, not {expected} ns");
        assert_eq!((link.status().connections, link.status().malformed), (1, 0));
    }
    assert_views_arrive(&a, &b, b"as before");
}

#[test]
fn a_node_that_does_not_tell_its_time_is_no_fault() {
    let (_rig, [a, b]) = pair([Some(SystemTime::now), None]);
    b.answer_by(Box::new(|question, _| (question == b"?").then(|| b"!".to_vec())));
    // The link asks this question after its own.
    assert_eq!(a.ask(b"?".to_vec(), &|| true), Ok(b"!".to_vec()));
    assert_eq!((a.status().clock_lead, b.status().clock_lead), (None, None));
    assert_eq!((a.status().connections, b.status().malformed), (1, 0));
}
