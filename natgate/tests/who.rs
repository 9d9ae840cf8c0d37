//! `natgate who` from the view of an abuse desk: answers from the configuration, exit codes, JSON.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

const CONFIG: &str = r#"[inside]
device = "no-such-device"
[outside]
device = "nor-this-one"
[[pool]]
addresses = ["203.0.113.1"]
[nat]
allocation = "deterministic"
subscribers = ["10.0.0.0/24"]
"#;

fn who(arguments: &[&str]) -> Output {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    let path = WRITTEN.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("who.toml");
        std::fs::write(&path, CONFIG).expect("the test may write its directory");
        path
    });
    Command::new(env!("CARGO_BIN_EXE_natgate"))
        .args(["who", "-c"])
        .arg(path)
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program writes UTF-8")
}

#[test]
fn a_subscriber_is_found_by_arithmetic_both_ways() {
    // 64,512 ports for 256 subscribers are 252 ports each: the sixth subscriber has 2284 to 2535.
    let share = json!({
        "subscriber": "10.0.0.5", "external": "203.0.113.1", "ports": "2284-2535",
        "pool": "default", "kind": "deterministic",
    });
    for whom in ["203.0.113.1:2284", "203.0.113.1:2535", "10.0.0.5"] {
        let output = who(&[whom, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!(answer, share);
    }
    let said = who(&["203.0.113.1:2300", "--protocol", "udp"]);
    let expected = "10.0.0.5 has ports 2284-2535 of 203.0.113.1 (deterministic, pool default)\n";
    assert_eq!(text(&said.stdout), expected);
}

#[test]
fn what_nobody_has_is_a_sentence_and_exit_code_1() {
    let output = who(&["203.0.113.1:80", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(answer["subscriber"], Value::Null);
    assert_eq!(who(&["203.0.113.1:80"]).stdout, b"");
    for wrong in ["203.0.113.1:65536", "203.0.113:80", "host:80", ""] {
        assert_eq!(who(&[wrong]).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_search_of_one_nodes_log_names_the_other_node() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("who-pair");
    std::fs::create_dir_all(folder.join("spool")).expect("the test may write its directory");
    let file = folder.join("pair.toml");
    let pair = include_str!("../../packaging/examples/pair-a.toml");
    let log = format!("[[log]]\nkind = \"spool\"\nfolder = {:?}\n", folder.join("spool"));
    std::fs::write(&file, format!("{pair}\n{log}")).expect("the test may write its directory");
    let ask = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_natgate"))
            .args(["who", "203.0.113.1:2300", "--at", "-10m", "-c"])
            .arg(&file)
            .args(more)
            .output()
            .expect("the program can be started")
    };
    let output = ask(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the log of node b was not searched"));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&answer["subscriber"], &answer["not_asked"]), (&Value::Null, &json!(["b"])));
    assert!(text(&ask(&[]).stderr).contains("the log of node b was not searched"));
}

#[test]
fn help_has_an_example() {
    let output = who(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).lines().any(|line| line.trim().starts_with("natgate who -c")));
}
