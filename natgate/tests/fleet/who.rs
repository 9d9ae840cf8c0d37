//! `natgate who` at a node of a pair: it asks both nodes, for the present and for an earlier time,
//! before and after a kill.

use super::{
    PATIENCE, PROGRAM, TAG, build, datagrams, has_first_slice, is_of, is_whole, seen, serve,
    wait_until,
};
use natgate_testnet::{PairNetwork, PairNode, Turn, wait_for};
use serde_json::{Value, json};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Starts a node with a log on disk.
fn start(network: &PairNetwork, node: &str) -> PairNode {
    let spool = network.file(&format!("{node}.spool"));
    let more = format!("[[log]]\nkind = \"spool\"\nfolder = {spool:?}\n");
    let config = network.config(node, &more);
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

/// The present time, seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs_f64()
}

/// Runs a command at a node's control socket. Returns the exit code, the output and the errors.
fn run(network: &PairNetwork, node: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let socket = network.file(&format!("{node}.sock"));
    let output = Command::new(PROGRAM).args(words).arg("--socket").arg(socket).output();
    let output = output.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Asks a node for the subscriber of an endpoint of UDP at a time, in text.
fn who(network: &PairNetwork, node: &str, external: &str, at: f64) -> (Option<i32>, String) {
    let at = at.to_string();
    let words = ["who", external, "--protocol", "udp", "--at", &at];
    let (code, output, errors) = run(network, node, &words);
    (code, output + &errors)
}

/// As [`who`], the first object of JSON.
fn object(network: &PairNetwork, node: &str, external: &str, at: f64) -> Value {
    let at = at.to_string();
    let words = ["who", external, "--protocol", "udp", "--json", "--at", &at];
    let (_, output, errors) = run(network, node, &words);
    let first = output.lines().next().unwrap_or_default();
    serde_json::from_str(first).unwrap_or_else(|_| panic!("{output}{errors}"))
}

#[test]
fn who_asks_both_nodes_before_and_after_a_kill() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    let [a, b] = ["a", "b"].map(|node| start(&network, node));
    for node in [&a, &b] {
        wait_until(node, "the pair is whole", is_whole);
    }
    serve(&network);
    // One mapping goes on after the kill, the other ends before it.
    let (lasting, ended) = (datagrams(&network), datagrams(&network));
    let (long, short) = (seen(&lasting), seen(&ended));
    assert!(is_of(&long, "a") && is_of(&short, "a"), "{long} {short}");
    thread::sleep(Duration::from_millis(2500));
    wait_until(&a, "the copy is complete", is_whole);
    let before = now();
    let (code, ..) = run(&network, "a", &["clear", "mappings", "--external", &short]);
    assert_eq!(code, Some(0));
    wait_until(&a, "the copy is complete", is_whole);

    // A mapping of this moment has no copy yet: node a has it, and node b asks node a.
    let fresh = datagrams(&network);
    let new = seen(&fresh);
    let (code, output, errors) = run(&network, "b", &["who", &new, "--protocol", "udp"]);
    assert_eq!(code, Some(0), "{output}{errors}");
    assert!(is_of(&new, "a") && output.contains("10.0.0.11 has port"), "{output}{errors}");
    assert!(output.contains("(node a)") && errors.is_empty(), "{output}{errors}");
    let (code, output, errors) = run(&network, "b", &["who", "10.0.0.11", "--json"]);
    assert_eq!(code, Some(0), "{output}{errors}");
    let port = new.rsplit(':').next().expect("a port");
    let of_fresh = output.lines().filter(|line| line.contains(&format!("\"ports\":\"{port}\"")));
    assert_eq!(of_fresh.count(), 1, "both nodes name it once: {output}{errors}");

    // The log of node a has both mappings. Either node says so.
    for node in ["a", "b"] {
        for external in [&long, &short] {
            let answer = object(&network, node, external, before);
            assert_eq!(answer["subscriber"], "10.0.0.11", "{answer}");
            assert_eq!((&answer["node"], &answer["doubts"]), (&json!("a"), &Value::Null));
            assert_eq!(answer["not_asked"], Value::Null, "{answer}");
            assert_eq!(
                (&answer["slice"]["owner"], &answer["slice"]["epoch"]),
                (&json!("a"), &json!(1))
            );
            assert_eq!(answer["nodes"].as_array().map(Vec::len), Some(2), "{answer}");
        }
    }
    let (code, said) = who(&network, "b", &short, before);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("10.0.0.11 had udp port") && said.contains("(node a)"), "{said}");
    assert!(said.contains("node a owned slice 0 then, in epoch 1"), "{said}");
    assert!(said.contains("node b: the log covers"), "{said}");
    assert!(!said.contains("not searched"), "{said}");

    a.kill().expect("killed");
    network.prefer("b").expect("routes");
    wait_until(&b, "b takes the slice", has_first_slice);
    wait_until(&b, "the link is gone", |state| state["link"]["connected"] == false);
    assert_eq!(seen(&lasting), long);
    let after = now();
    let began = Instant::now();
    let (code, output, errors) = run(&network, "b", &["who", &long, "--protocol", "udp"]);
    assert_eq!(code, Some(0), "{output}{errors}");
    assert!(output.contains("10.0.0.11") && output.contains("(node b)"), "{output}{errors}");
    assert!(errors.contains("node a was not asked (it is not connected)"), "{output}{errors}");
    assert!(began.elapsed() < Duration::from_secs(5), "nothing waits for a node that is away");
    // The table of node b has the mapping that goes on; the other one is in the log of node a.
    for (at, owner) in [(before, "a"), (after, "b")] {
        let answer = object(&network, "b", &long, at);
        assert_eq!(answer["subscriber"], "10.0.0.11", "{answer}");
        assert_eq!((&answer["node"], &answer["by"]), (&json!("b"), &json!("mapping")));
        assert_eq!(answer["not_asked"], json!(["a"]), "{answer}");
        assert_eq!(answer["slice"]["owner"], owner, "{answer}");
    }
    let (code, said) = who(&network, "b", &short, before);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the log of node a was not searched (it is not connected)"), "{said}");
    assert!(said.contains("It names the subscriber if a had the endpoint's slice"), "{said}");

    // Now the log of node b has the end of the mapping that it continued.
    let (code, ..) = run(&network, "b", &["clear", "mappings", "--external", &long]);
    assert_eq!(code, Some(0));
    wait_for("the end in the log", PATIENCE, || {
        let answer = object(&network, "b", &long, after);
        Ok((answer["since"].is_null() && answer["until"].is_f64()).then_some(()))
    })
    .expect("the log names the subscriber");
    assert_eq!(object(&network, "b", &long, after)["subscriber"], "10.0.0.11");

    let restarted = now();
    let a = start(&network, "a");
    wait_until(&a, "a has the copy", is_whole);
    for external in [&long, &short] {
        let answer = object(&network, "b", external, before);
        assert_eq!((&answer["subscriber"], &answer["node"]), (&json!("10.0.0.11"), &json!("a")));
        assert!(answer["since"].as_f64().is_some_and(|since| since <= before), "{answer}");
    }
    // The start of node a did not end the mapping that node b continued: node b has the end.
    let answer = object(&network, "b", &long, before);
    let until = answer["until"].as_f64().unwrap_or_default();
    assert!(after < until && until < restarted, "{answer}");
    assert_eq!(answer["doubts"], Value::Null, "{answer}");
    // The log of node a lacks the time after the kill, and says so.
    let (code, said) = who(&network, "a", &long, after);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("(node b)"), "{said}");
    assert!(said.contains("the log of node a does not cover that time"), "{said}");
    drop(b);
}
