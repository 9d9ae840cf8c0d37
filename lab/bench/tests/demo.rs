//! The demonstration from the user's view: with the program, and in an emulator with the image that
//! boots without an operating system. Needs root and the programs that `make test` installs, and
//! fails without them.

use natgate_testnet::{terminate, wait_for};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate-lab");

/// Only one demonstration runs at a time, because it measures time.
static TURN: Mutex<()> = Mutex::new(());

/// Runs the demonstration, and returns its output.
fn demonstrate(more: &[&str]) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(PROGRAM).arg("demo").args(more).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {wrong}{said}", output.status);
    said
}

/// Number behind `words` in the output.
fn number_behind(words: &str, said: &str) -> u64 {
    let (_, rest) = said.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {said}"));
    let digits = rest.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{words:?}: {said}"))
}

/// Steps of the demonstration with IPv4.
const IPV4_STEPS: [&str; 13] = [
    "ping-gateway",
    "ping",
    "http",
    "traceroute",
    "udp-mapping",
    "udp-filtering",
    "udp-fragments",
    "paired",
    "many",
    "hairpin-udp",
    "hairpin-tcp",
    "iperf3-up",
    "iperf3-down",
];

/// Steps of the subscriber with IPv6 alone.
const IPV6_STEPS: [&str; 6] =
    ["ipv6-advertised", "dns64", "nat64-http", "nat64-ping", "nat64-traceroute", "ipv6-routed"];

/// Steps of the homes behind tunnels.
const TUNNEL_STEPS: [&str; 4] = ["dslite-ping", "dslite-http", "dslite-traceroute", "dslite-homes"];

/// The last steps.
const END_STEPS: [&str; 2] = ["status", "stop"];

#[test]
fn all_steps_pass_and_the_counters_are_told() {
    let said = demonstrate(&[]);
    assert!(said.contains("\n25 passed, 0 failed") && !said.contains("FAIL"), "{said}");
    assert!(!said.contains(" skip "), "{said}");
    assert!(number_behind("  outbound  forwarded", &said) > 1000, "{said}");
}

#[test]
fn all_steps_pass_with_the_image_and_its_counters_are_told() {
    let image = Path::new(PROGRAM).with_file_name("natgate-bare");
    assert!(
        image.exists(),
        "{} is not there: `cargo build -p natgate-bare` builds it, as does `make test`",
        image.display()
    );
    let said = demonstrate(&["--image", image.to_str().expect("a readable path")]);
    assert!(said.contains("\n25 passed, 0 failed") && !said.contains("FAIL"), "{said}");
    assert!(!said.contains(" skip "), "{said}");
    let (_, counters) = said.split_once("Counted by the image").expect("it shows them");
    assert!(number_behind("  outbound  forwarded", counters) > 1000, "{said}");
    assert!(number_behind("  mappings ", counters) > 0, "{said}");
    assert!(number_behind("  inside    received", counters) > 1000, "{said}");
}

/// Starts a demonstration.
fn demo(arguments: &[&str]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.arg("demo").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Namespaces, files and processes in namespaces with this process number.
fn traces(number: u32) -> Vec<String> {
    let prefix = format!("ngdemo{number}-");
    let directories = ["/run/netns".into(), "/etc/netns".into(), std::env::temp_dir()];
    // The second directory is there only while a namespace has files in it.
    let entries = directories.iter().flat_map(|directory: &PathBuf| std::fs::read_dir(directory));
    let names = entries.flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut traces: Vec<_> = names.filter(|name| name.starts_with(&prefix)).collect();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let line = std::fs::read_to_string(entry.unwrap().path().join("cmdline"));
        traces.extend(line.ok().filter(|line| line.contains(&prefix)));
    }
    traces
}

#[test]
fn the_demonstration_passes_and_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let child = demo(&["--json"]);
    let number = child.id();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{wrong}{said}");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(told["passed"], true);
    assert_eq!(told["skipped"], serde_json::Value::Null);
    assert_eq!(told["skipped_tunnels"], serde_json::Value::Null);
    let steps = told["steps"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, [&IPV4_STEPS[..], &IPV6_STEPS, &TUNNEL_STEPS, &END_STEPS].concat());
    let detail = |name: &str| {
        let step = steps.iter().find(|step| step["name"] == name).unwrap();
        step["detail"].as_str().unwrap()
    };
    for name in ["dns64", "nat64-http", "nat64-traceroute"] {
        assert!(detail(name).contains("64:ff9b::c633:640a"), "{name}: {}", detail(name));
    }
    for b4 in ["2001:db8:b4:1::1", "2001:db8:b4:2::1"] {
        assert!(detail("dslite-homes").contains(b4), "{}", detail("dslite-homes"));
    }
    let address = detail("ipv6-advertised").split(',').next().unwrap();
    assert!(address.starts_with("2001:db8:1:"), "{address}");
    let mappings = told["status"]["mappings"].as_array().unwrap();
    let internal = |mapping: &serde_json::Value| mapping["internal"].as_str().unwrap().to_owned();
    let of_subscriber = mappings.iter().filter(|one| internal(one).contains(address));
    assert!(of_subscriber.count() >= 3, "{mappings:?}");
    assert_eq!(traces(number), [""; 0]);
}

#[test]
fn an_interrupted_demonstration_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for milliseconds in [50, 150, 1000, 3000, 9000] {
        let child = demo(&[]);
        let number = child.id();
        thread::sleep(Duration::from_millis(milliseconds));
        terminate(&child).unwrap();
        let output = child.wait_with_output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "after {milliseconds} ms: {wrong}");
        assert_eq!(traces(number), [""; 0], "after {milliseconds} ms");
    }
}

#[test]
fn what_a_killed_demonstration_left_goes_with_the_next() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut killed = demo(&[]);
    let network = format!("ngdemo{}-server2", killed.id());
    wait_for("the network", Duration::from_secs(10), || {
        Ok(Path::new("/run/netns").join(&network).exists().then_some(()))
    })
    .unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_ne!(traces(killed.id()), [""; 0], "there is something to remove");
    let next = demo(&[]);
    wait_for("the next's cleaning", Duration::from_secs(10), || {
        Ok(traces(killed.id()).is_empty().then_some(()))
    })
    .unwrap();
    terminate(&next).unwrap();
    next.wait_with_output().unwrap();
}

#[test]
fn a_pair_loses_a_gateway_and_gets_it_back() {
    let said = demonstrate(&["--pair"]);
    assert!(said.contains("\n15 passed, 0 failed") && !said.contains("FAIL"), "{said}");
}
