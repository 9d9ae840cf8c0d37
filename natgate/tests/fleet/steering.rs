//! Programs that steer packets to the nodes, with the configurations of docs/pair.md, and machines
//! that stand still.

use natgate_testnet::PairNetwork;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command};

/// Programs; they end with the test.
pub(crate) struct Daemons(pub(crate) Vec<Child>);

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in &mut self.0 {
            // Both calls fail only if the daemon has already ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Text of a file in docs/pair.md: the block whose fence names the path.
pub(crate) fn written(path: &str) -> String {
    let document = include_str!("../../../docs/pair.md");
    let end = format!(" {path}");
    let mut lines = document.lines();
    let is_there = lines.any(|line| line.starts_with("```") && line.ends_with(&end));
    assert!(is_there, "no block for {path}");
    lines.take_while(|line| !line.starts_with("```")).map(|line| format!("{line}\n")).collect()
}

/// Sends a signal to each process of a node.
pub(crate) fn signal_all(network: &PairNetwork, node: &str, signal: Signal) {
    let name = network.node(node).name();
    let output = Command::new("ip").args(["netns", "pids", name]).output().expect("ip runs");
    let numbers = String::from_utf8_lossy(&output.stdout).into_owned();
    let processes = numbers.split_whitespace().filter_map(|one| Pid::from_raw(one.parse().ok()?));
    let all: Vec<Pid> = processes.collect();
    assert!(all.len() > 2, "a gateway, its guardian and a daemon: {all:?}");
    // A short program that keepalived runs may have ended meanwhile.
    for process in all {
        let _ = kill_process(process, signal);
    }
}
