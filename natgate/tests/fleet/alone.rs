//! A process whose configuration has no pair any more, and the node of a pair that still runs.

use super::{PATIENCE, PROGRAM, TAG, build, start, wait_until};
use natgate_testnet::{Turn, wait_for};
use std::fs;

/// A configuration without the tables of the pair.
fn without_fleet(config: &str) -> String {
    let mut is_left_out = false;
    let mut lines = Vec::new();
    for line in config.lines() {
        if line.starts_with('[') {
            is_left_out = ["[fleet]", "[[slice]]"].contains(&line);
        }
        if !is_left_out {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[test]
fn a_process_that_stands_alone_does_not_take_over_from_a_node() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let node = start(&network, "a");
    let config = without_fleet(&network.config("a", ""));
    assert!(!config.contains("[fleet]") && !config.contains("[[slice]]"), "{config}");
    let (file, log) = (network.file("alone.toml"), network.file("alone.log"));
    fs::write(&file, config).expect("it is written");
    let words = ["run", "-c", file.to_str().expect("a path of text"), "--take-over"];
    let mut heir = network.node("a").start(PROGRAM.as_ref(), &words, &log).expect("it starts");
    let status = wait_for("the end", PATIENCE, || heir.try_wait()).expect("it ends");
    let said = fs::read_to_string(&log).expect("it has said why");
    assert!(!status.success() && said.contains("it is a node of a pair"), "{status}: {said}");
    wait_until(&node, "the node goes on", |_| true);
}
