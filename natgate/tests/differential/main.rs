//! Equal packets through natgate and through the Linux kernel's masquerading. docs/differential.md
//! must explain every difference.
//!
//! [`script`] makes the traffic from a seed: stories of a few packets, of every kind that a
//! translator meets, interleaved at random. [`lab`] sends them to both translators and collects the
//! packets that come out on either side. [`observation`] records these packets without the details
//! that may differ between any two translators, such as the number of a port. [`classes`] explains
//! differences. An unexplained difference fails the test, and so does a class that no longer
//! occurs.
//!
//! Needs root, iproute2, ethtool and nft. `DIFFERENTIAL_SEED=N` repeats a run, and
//! `DIFFERENTIAL_RUNS=N` runs that many seeds from there.

mod classes;
mod lab;
mod observation;
mod packets;
mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use classes::Class;
use lab::{Lab, Translator};
use observation::Observation;
use script::Step;

/// Seed of the first run, unless the environment has another.
const SEED: u64 = 1;

//= test rfc4787#REQ-11
//= test rfc5382#REQ-2
//= test rfc5382#REQ-2a
//= test rfc5382#REQ-4-answer
//= test rfc5508#REQ-3
//= test rfc5508#REQ-3a
//= test rfc5508#REQ-4
//= test rfc5508#REQ-5
#[test]
fn natgate_and_linux_differ_only_where_it_is_explained() {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let first = number("DIFFERENTIAL_SEED").unwrap_or(SEED);
    for seed in first..first + number("DIFFERENTIAL_RUNS").unwrap_or(1) {
        println!("seed {seed} (DIFFERENTIAL_SEED={seed} repeats this run)");
        compare(seed);
    }
}

#[test]
fn every_class_is_explained() {
    let page = include_str!("../../../docs/differential.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut explained: Vec<_> = rows.map(|(name, _)| name.to_owned()).collect();
    explained.sort_unstable();
    let mut classes: Vec<_> = Class::ALL.iter().map(|class| format!("{class:?}")).collect();
    classes.sort_unstable();
    assert_eq!(explained, classes, "docs/differential.md and the test differ");
}

/// One run.
fn compare(seed: u64) {
    let steps = script::write(seed);
    let lab = Lab::build();
    let results = lab.run(&steps);
    let mut counts: BTreeMap<Class, usize> = BTreeMap::new();
    let mut unexplained = String::new();
    let mut alike = 0;
    for (number, (step, [natgate, linux])) in steps.iter().zip(results).enumerate() {
        if natgate == linux {
            alike += 1;
            continue;
        }
        match classes::explain(step, natgate.clone(), linux.clone()) {
            Ok(classes) => {
                classes.into_iter().for_each(|class| *counts.entry(class).or_default() += 1)
            }
            Err(left) => tell(&mut unexplained, number, step, [&natgate, &linux], &left),
        }
    }
    println!("{} steps, {alike} alike on both sides", steps.len());
    for (class, count) in &counts {
        println!("{count:5} {class:?}");
    }
    assert!(unexplained.is_empty(), "seed {seed}: differences without explanation:\n{unexplained}");
    let missing: Vec<_> = Class::ALL.iter().filter(|class| !counts.contains_key(class)).collect();
    assert!(missing.is_empty(), "seed {seed}: these explanations were not needed: {missing:?}");
    assert!(alike * 2 > steps.len(), "seed {seed}: only {alike} of {} steps alike", steps.len());
}

/// Describes a difference for the developer.
fn tell(into: &mut String, number: usize, step: &Step, came: [&Vec<Observation>; 2], left: &str) {
    writeln!(into, "step {number}, {step:?}").unwrap();
    for (translator, came) in Translator::ALL.iter().zip(came) {
        writeln!(into, "  {translator:?}: {} packets", came.len()).unwrap();
        for seen in came {
            writeln!(into, "    {seen}").unwrap();
        }
    }
    writeln!(into, "  left: {left}").unwrap();
}
