//! The rules of ownership in a model checker: every history within bounds, and variants without one
//! of the rules, which the checker must refute.

mod model;

use model::{ALWAYS, Fault, Pair};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
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

/// Visits different states, each once, deep histories first. The seed chooses the order. Memory
/// does not grow with the states that wait, as a state's successors are made one at a time.
///
/// Returns the number of different states and the depth, or a history that breaks a property.
fn explore(pair: Pair, most: usize, mut seed: u64) -> Result<(usize, usize), String> {
    let properties = pair.properties();
    let always = || properties.iter().filter(|property| ALWAYS.contains(&property.name));
    let (hasher, mut seen, mut depth) = (RandomState::new(), HashSet::new(), 0);
    let mut path = vec![(None, pair.init_states()[1].clone(), None)];
    while let Some((_, world, actions)) = path.last_mut() {
        let actions = actions.get_or_insert_with(|| {
            let mut actions = Vec::new();
            pair.actions(world, &mut actions);
            actions
        });
        if actions.is_empty() || seen.len() >= most {
            path.pop();
            continue;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let action = actions.swap_remove((seed >> 33) as usize % actions.len());
        let Some(next) = pair.next_state(world, action.clone()) else { continue };
        if !seen.insert(hasher.hash_one(&next)) {
            continue;
        }
        path.push((Some(action), next, None));
        depth = depth.max(path.len());
        let (_, world, _) = &path[path.len() - 1];
        if let Some(broken) = always().find(|property| !(property.condition)(&pair, world)) {
            let actions: Vec<_> = path.iter().filter_map(|(action, ..)| action.clone()).collect();
            return Err(format!("{}: {actions:?}", broken.name));
        }
    }
    Ok((seen.len(), depth))
}

fn explore_all(states: usize, seed: u64) {
    for pair in [Pair::new(2, 2, 1), Pair::new(2, 3, 2), Pair::new(3, 3, 2), Pair::new(3, 4, 3)] {
        let begun = Instant::now();
        let explored = explore(pair, states / 4, seed);
        let (visited, depth) = explored.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        println!("{pair:?}, seed {seed}: {visited} states, depth {depth}, {:?}", begun.elapsed());
    }
}

#[test]
fn histories_of_many_steps_are_safe_too() {
    (0..4).for_each(|seed| explore_all(100_000, seed));
}

/// The environment variable gives the number of states, such as 100000000.
#[test]
#[ignore = "runs for minutes to hours; `make soak` calls it"]
fn many_states() {
    let number = std::env::var("NATGATE_PAIR_STATES").expect("NATGATE_PAIR_STATES is a number");
    let number: usize = number.parse().expect("NATGATE_PAIR_STATES is a number");
    std::thread::scope(|scope| {
        for seed in 1..=2 {
            scope.spawn(move || explore_all(number / 2, seed));
        }
    });
}

/// A history that breaks a property: the shortest one, or any of a long one.
fn refutation(pair: Pair) -> Option<String> {
    let checker = pair.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.target_state_count(1_000_000).spawn_bfs().join();
    let found = ALWAYS.into_iter().find_map(|name| checker.discovery(name));
    let found = found.map(|path| format!("{:?}", path.into_actions()));
    found.or_else(|| (0..200).find_map(|seed| explore(pair, 40_000, seed).err()))
}

#[test]
fn variants_without_a_rule_are_refuted() {
    for fault in Fault::ALL {
        let begun = Instant::now();
        let found = refutation(Pair { fault, ..Pair::new(2, 2, 1) });
        let history = found.unwrap_or_else(|| panic!("{fault:?} is not refuted"));
        println!("{fault:?}, {:?}: {history}", begun.elapsed());
    }
}
