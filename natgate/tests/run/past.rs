//! The log on disk, read while the gateway runs: the owner of a static port in a pool of blocks,
//! with realms, and the effect of a restart and of a changed clock on the answer.

use crate::gateway::{Folder, Gateway, PATIENCE, PROGRAM, command};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// Configuration in addition to the smallest one.
const MORE: &str = r#"[nat]
allocation = "block"
[[realm]]
name = "homes"
vlan = 20
address = "10.0.0.1/8"
[[static]]
internal = "10.0.0.80:80"
external = "203.0.113.1:8080"
protocol = "tcp"
"#;

/// A folder with a configuration that has a spool and a control socket in the folder.
fn folder() -> (Folder, std::path::PathBuf) {
    let folder = Folder::new("past");
    let spool = folder.file("spool");
    let config = folder.config(&format!("{MORE}[[log]]\nkind = \"spool\"\nfolder = {spool:?}"));
    (folder, config)
}

/// Output of `natgate who`, and true if it names a subscriber.
fn who(arguments: &[&str], protocol: &str, at: &str) -> (bool, Value, String) {
    let output = Command::new(PROGRAM)
        .args(["who", "203.0.113.1:8080", "--json", "--protocol", protocol, "--at", at])
        .args(arguments)
        .output()
        .expect("natgate runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = text.lines().next().map(serde_json::from_str).transpose().expect("JSON");
    let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code() == Some(0), value.unwrap_or_default(), said)
}

/// A time one hour later, seconds since 1970.
fn later() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    (now.expect("it is after 1970").as_secs() + 3600).to_string()
}

/// Asks until a subscriber is named; events come to the log within a second.
fn is_named(arguments: &[&str], protocol: &str, at: &str) -> Value {
    let began = Instant::now();
    loop {
        let (named, answer, said) = who(arguments, protocol, at);
        if named {
            assert_eq!(answer["subscriber"], "10.0.0.80", "{said}");
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{protocol}: nobody is named: {said}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_static_port_in_a_block_is_found_in_the_log_after_every_start() {
    let (folder, config) = folder();
    let (socket, config_path) = (folder.socket(), config.clone());
    let live = ["--socket", socket.to_str().expect("text")];
    let alone = ["--config", config_path.to_str().expect("text")];
    for _ in 0..2 {
        let mut gateway = Gateway::start(command("", &config, &[]));
        for protocol in ["icmp", "udp"] {
            for arguments in [&live, &alone] {
                let answer = is_named(arguments, protocol, "now");
                assert_eq!(answer["until"], Value::Null, "{answer}");
                let covered = answer["covered"].as_array().expect("the span is told");
                assert!(covered.iter().all(|span| span["from"].is_f64()), "{answer}");
                assert!(answer["gaps"].is_array(), "{answer}");
            }
        }
        is_named(&live, "tcp", "-0s");
        // Long before the begin of the log no subscriber is known, and the output says that the log
        // does not go back so far.
        let (named, answer, said) = who(&live, "icmp", "-10d");
        assert!(!named && answer["subscriber"].is_null(), "{said}");
        assert!(said.contains("the log covers"), "{said}");
        assert!(answer["covered"].is_array() && answer["gaps"].is_array(), "{said}");
        // A time in the future is an error and not an answer.
        for arguments in [&live, &alone] {
            let (named, answer, said) = who(arguments, "icmp", &later());
            assert!(!named && answer.is_null() && said.contains("still to come"), "{said}");
        }
        gateway.signal("TERM");
        assert_eq!(gateway.ends(), 0);
    }
    // The second start ended the block of the first, and a gap lies between them.
    let answer = is_named(&alone, "icmp", "now");
    assert_eq!(answer["gaps"][0]["reason"], "not_written", "{answer}");
}

#[test]
fn a_start_that_fails_ends_nothing() {
    let (folder, config) = folder();
    let socket = folder.socket();
    let live = ["--socket", socket.to_str().expect("text")];
    let gateway = Gateway::start(command("", &config, &[]));
    let since = is_named(&live, "icmp", "now")["since"].clone();
    // The control socket is in use, which the program notices after it has opened the logs.
    let output = command("", &config, &[]).output().expect("unshare runs");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(is_named(&live, "icmp", "now")["since"], since);
    drop(gateway);
}

/// Exit code, first object and all output of `natgate who --json` with these arguments.
fn ask(arguments: &str, of: &[&str]) -> (Option<i32>, Value, String) {
    let output = Command::new(PROGRAM)
        .args(["who", "--json"])
        .args(arguments.split(' '))
        .args(of)
        .output()
        .expect("natgate runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = text.lines().next().map(serde_json::from_str).transpose().expect("JSON");
    let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), value.unwrap_or_default(), said)
}

/// The present time, seconds since 1970.
fn now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("it is after 1970").as_secs_f64()
}

#[test]
fn a_past_time_is_answered_by_the_configuration_of_that_time() {
    let (folder, config) = folder();
    let socket = folder.socket();
    let live = ["--socket", socket.to_str().expect("text")];
    let mut gateway = Gateway::start(command("", &config, &[]));
    // The gateway writes what is queued, so the log covers the present time.
    let (code, answer, said) = ask("203.0.113.1:20000 --protocol udp --at now", &live);
    assert_eq!((code, &answer["subscriber"]), (Some(1), &Value::Null), "{said}");
    assert!(!said.contains("does not cover that time"), "{said}");
    let in_blocks = now();
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);

    // The next gateway has the same spool and a deterministic pool.
    let spool = folder.file("spool");
    let deterministic = "[nat]\nallocation = \"deterministic\"\nsubscribers = [\"10.0.0.0/24\"]\n\
        [[static]]\ninternal = \"10.0.0.5:80\"\nexternal = \"203.0.113.1:80\"\n\
        protocol = \"tcp\"\n";
    let log = format!("[[log]]\nkind = \"spool\"\nfolder = {spool:?}");
    let config = folder.config(&format!("{deterministic}{log}"));
    let mut gateway = Gateway::start(command("", &config, &[]));
    let alone = ["--config", config.to_str().expect("text")];
    for of in [&live, &alone] {
        let (code, answer, said) = ask(&format!("203.0.113.1:20000 --at {in_blocks}"), of);
        assert_eq!((code, &answer["subscriber"]), (Some(1), &Value::Null), "{said}");
        let early = "203.0.113.1:80 --protocol tcp --at 2020-01-01T00:00:00Z";
        let (code, answer, said) = ask(early, of);
        assert_eq!((code, &answer["subscriber"]), (Some(1), &Value::Null), "{said}");
        assert_eq!(answer["now"][0]["subscriber"], "10.0.0.5", "{said}");
        assert!(
            said.contains("it does not cover that time; by the configuration in force now"),
            "{said}"
        );
        assert!(answer["covered"].is_array() && answer["gaps"].is_array(), "{said}");
    }
    for (endpoint, kind) in [("203.0.113.1:20000", "deterministic"), ("203.0.113.1:80", "static")] {
        let (code, answer, said) = ask(&format!("{endpoint} --at now"), &live);
        assert_eq!((code, &answer["kind"]), (Some(0), &Value::from(kind)), "{said}");
        assert!(answer["covered"].is_array() && answer["gaps"].is_array(), "{said}");
    }
    let (code, answer, said) = ask("10.0.0.9", &live);
    assert_eq!((code, &answer["kind"]), (Some(0), &Value::from("deterministic")), "{said}");

    // A reload to other subscribers: an earlier time keeps its answer.
    let before = now();
    folder.config(&format!("{}{log}", deterministic.replace("10.0.0.0/24", "10.5.0.0/24")));
    let reloaded = Command::new(PROGRAM).arg("reload").args(live).output().expect("natgate runs");
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    for (time, network) in [(before, "10.0.0."), (now(), "10.5.0.")] {
        let (code, answer, said) = ask(&format!("203.0.113.1:20000 --at {time}"), &live);
        let subscriber = answer["subscriber"].as_str().unwrap_or_default();
        assert!(code == Some(0) && subscriber.starts_with(network), "{said}");
    }
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}
