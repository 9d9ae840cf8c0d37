//! The rules of ownership in a model checker: every history within bounds, and variants without one
//! of the rules, which the checker must refute.

mod model;

use model::{ALWAYS, Fault, Pair};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

fn report<M: Model>(what: &str, checker: &impl Checker<M>, begun: Instant) {
    println!(
        "{what}: {} states, {} of them different, depth {}, {:?}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        begun.elapsed()
    );
}

#[test]
fn a_port_leads_to_one_subscriber_whatever_fails() {
    let begun = Instant::now();
    let pair = Pair::new(2, 2, 1).checker().threads(2);
    let checker = pair.target_state_count(1_000_000).spawn_bfs().join();
    report("all short histories", &checker, begun);
    checker.assert_properties();
}

#[test]
fn histories_of_many_steps_are_safe_too() {
    let begun = Instant::now();
    let pair = Pair::new(3, 3, 2).checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = pair.target_state_count(1_000_000).spawn_dfs().join();
    report("long histories", &checker, begun);
    assert_eq!(
        ALWAYS.map(|name| checker.discovery(name).map(|path| path.into_actions())),
        [None, None]
    );
}

/// The environment variable gives the number of states, such as 100000000.
#[test]
#[ignore = "runs for minutes to hours; `make soak` calls it"]
fn many_states() {
    let number = std::env::var("NATGATE_PAIR_STATES").expect("NATGATE_PAIR_STATES is a number");
    let number: usize = number.parse().expect("NATGATE_PAIR_STATES is a number");
    let bounds = [Pair::new(2, 2, 1), Pair::new(2, 3, 2), Pair::new(3, 3, 2), Pair::new(3, 4, 3)];
    for pair in bounds {
        let begun = Instant::now();
        let checker = pair.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.target_state_count(number / bounds.len()).spawn_dfs().join();
        report(&format!("{pair:?}"), &checker, begun);
        for name in ALWAYS {
            let found = checker.discovery(name).map(|path| path.into_actions());
            assert_eq!(found, None, "{name}");
        }
    }
}

#[test]
fn variants_without_a_rule_are_refuted() {
    for fault in Fault::ALL {
        let begun = Instant::now();
        let pair = Pair { fault, ..Pair::new(2, 2, 1) }.checker().threads(2);
        let pair = pair.finish_when(HasDiscoveries::AnyFailures).target_state_count(20_000_000);
        let checker = pair.spawn_bfs().join();
        report(&format!("{fault:?}"), &checker, begun);
        let found = ALWAYS.into_iter().find_map(|name| checker.discovery(name));
        let found = found.unwrap_or_else(|| panic!("{fault:?} is not refuted"));
        println!("  {:?}", found.into_actions());
    }
}
