//! Slices whose mappings change all the time: between any packet of replication and its
//! confirmation, something has changed again.

use super::workers::{Counts, flows};
use super::*;
use std::ops::Range;

/// Lets time pass while flows of a node begin sessions with further remote hosts, one in each turn.
fn run_busily(pair: &mut Pair, to_a: bool, flows: &[((u8, u16), External)], turns: Range<u32>) {
    for turn in turns {
        let ((host, port), external) = flows[turn as usize % flows.len()];
        let source = (Ipv4Addr::new(10, 0, 0, host).to_bits(), port);
        let bytes = packet(None, source, (REMOTE + 1 + turn, 80));
        let passed = pair.either(to_a).pass((Side::Inside, 0), bytes);
        assert_eq!(passed.map(|(source, ..)| source), Some(external), "turn {turn}");
        pair.run(0.01);
    }
}

#[test]
fn a_busy_slice_moves_and_leaves_nothing_of_the_move_behind() {
    for workers in [Counts(1, 2), Counts(2, 2), Counts(3, 1)] {
        let mut pair = Pair::of(Allotment::Many, workers);
        let flows = flows(&mut pair, 2..60);
        pair.run(3.0);
        run_busily(&mut pair, true, &flows, 0..100);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.a().status());
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        for turn in 100..250 {
            let to_a = pair.b().status().slices[0].role != "owner";
            run_busily(&mut pair, to_a, &flows, turn..turn + 1);
        }
        let slice = &pair.b().status().slices[0];
        assert_eq!((slice.role, slice.assigns), ("owner", true), "{workers:?}");
        run_busily(&mut pair, false, &flows, 250..450);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.b().status());
        // The partner has no mapping of its own any more.
        let (busy, ended) = flows.split_at(20);
        ended.iter().for_each(|((host, _), _)| pair.b().clear(*host));
        run_busily(&mut pair, false, busy, 450..550);
        assert_eq!(pair.b().status().resting, 0, "{workers:?}");
        // Neither are young mappings copied, as after a move.
        let copies = pair.a().count();
        (100..=250).find_map(|host| pair.b().send((host, 1))).expect("sent");
        run_busily(&mut pair, false, busy, 550..570);
        assert_eq!(pair.a().count(), copies, "{workers:?}");
        run_busily(&mut pair, false, busy, 570..830);
        assert_eq!(pair.a().count(), copies + 1, "{workers:?}");
        pair.check();
    }
}
