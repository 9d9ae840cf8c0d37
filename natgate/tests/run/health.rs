//! The health of a running gateway: it reports a log that cannot be written and a link that is
//! down.

use crate::gateway::{Folder, Gateway, PATIENCE, PROGRAM, command};
use std::process::Command;
use std::time::{Duration, Instant};

/// Output of `natgate show health` as soon as it contains `what`.
fn shown(folder: &Folder, what: &str) -> String {
    let began = Instant::now();
    loop {
        let mut command = Command::new(PROGRAM);
        command.args(["show", "health", "--socket"]).arg(folder.socket());
        let output = command.output().expect("natgate runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        if text.contains(what) {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "no {what:?} in\n{text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Exit code and output of `natgate status`.
fn status(folder: &Folder, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["status", "--socket"]).arg(folder.socket()).args(arguments);
    let output = command.output().expect("natgate runs");
    let code = output.status.code().expect("an exit code");
    (code, String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn a_link_that_is_down_at_the_start_is_told_at_once() {
    let folder = Folder::new("down");
    let down = "ip link set in1 down; until ip link show in0 | grep -q LOWERLAYERDOWN; do
        sleep 0.01; done";
    let gateway = Gateway::start(command(down, &folder.config(""), &[]));
    let said = gateway.hears("warning: inside device in0 is down; no packet passes it until");
    assert!(said.ends_with("`ip link set in0 up` switches it on"), "{said}");
    shown(&folder, "problem: link in0 (inside) is down\n");
    let (code, text) = status(&folder, &[]);
    assert!(code == 1 && text.contains("problem: link in0"), "{code} {text}");
    gateway.asks("ip link set in1 up");
    gateway.hears("inside device in0 is up");
    shown(&folder, ": well\n");
    let (code, text) = status(&folder, &[]);
    assert!(code == 0 && text.contains(": well\n") && text.contains(" 0 of "), "{code} {text}");
    let (code, text) = status(&folder, &["--json"]);
    let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &object["health"]["ok"]), (0, &true.into()), "{object}");
    assert_eq!(object["mappings"]["now"], 0, "{object}");
}

#[test]
fn health_tells_what_is_down_and_what_is_well_again() {
    let folder = Folder::new("health");
    // There is no host at the collector's address, and no route to it.
    let log =
        "[[log]]\nkind = \"syslog\"\ntransport = \"tcp\"\ncollector = \"198.51.100.9:6514\"\n";
    let gateway = Gateway::start(command("", &folder.config(log), &[]));
    let text = shown(&folder, "problem: log syslog");
    for line in [": not well\n", "cannot be written\n", "in0 inside", "alive, "] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    gateway.asks("ip link set in1 down");
    shown(&folder, "problem: link in0 (inside) is down\n");
    gateway.asks("ip link set in1 up");
    folder.config("");
    let mut command = Command::new(PROGRAM);
    command.args(["reload", "--socket"]).arg(folder.socket());
    assert!(command.status().expect("natgate runs").success());
    shown(&folder, ": well\n");
}
