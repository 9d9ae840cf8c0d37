//! `natgate show` and `natgate who` with a running gateway: blocks with their owners, ports without
//! a mapping, filters by prefix, in the first realm and in another.

use crate::gateway::{Folder, Gateway, PROGRAM, command};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Static ports in a pool of blocks: each creates a block of its subscriber, in two realms.
const MORE: &str = r#"[nat]
allocation = "block"
[nat.block]
size = 512
[[realm]]
name = "homes"
vlan = 20
address = "10.0.0.1/8"
[[static]]
internal = "10.0.0.80:80"
external = "203.0.113.1:8080"
protocol = "tcp"
[[static]]
internal = "10.0.0.80:80"
external = "203.0.113.1:20000"
protocol = "tcp"
realm = "homes"
"#;

/// Exit code and JSON of a command.
fn ask(socket: &Path, arguments: &str) -> (Option<i32>, Value) {
    let output = Command::new(PROGRAM)
        .args(arguments.split(' '))
        .args(["--json", "--socket"])
        .arg(socket)
        .output()
        .expect("natgate runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = text.lines().next().map(serde_json::from_str).transpose();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code(),
        value.unwrap_or_else(|error| panic!("{error}: {text}")).unwrap_or(json!(said)),
    )
}

/// Owners in a list of blocks: realm, subscriber and ports.
fn owners(list: &Value) -> Vec<(String, String, String)> {
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let blocks = list["blocks"].as_array().unwrap_or_else(|| panic!("{list}"));
    let of = |one| (text(one, "realm"), text(one, "subscriber"), text(one, "ports"));
    let mut all: Vec<_> = blocks.iter().map(of).collect();
    all.sort();
    all
}

#[test]
fn blocks_and_ports_without_a_mapping_have_owners_in_every_realm() {
    let folder = Folder::new("owners");
    let config = folder.config(MORE);
    let socket = folder.socket();
    let _gateway = Gateway::start(command("", &config, &[]));
    let (code, all) = ask(&socket, "show blocks");
    assert_eq!(code, Some(0), "{all}");
    let all = owners(&all);
    assert_eq!(all.len(), 2, "{all:?}");
    let holds = |ports: &str, port: u16| {
        let (first, last) = ports.split_once('-').expect("first and last port");
        let bound = |text: &str| text.parse::<u16>().expect("a port");
        (bound(first)..=bound(last)).contains(&port)
    };
    for (realm, port) in [("default", 8080), ("homes", 20_000)] {
        let own = all.iter().find(|(name, ..)| name == realm).unwrap_or_else(|| panic!("{all:?}"));
        assert!(own.1 == "10.0.0.80" && holds(&own.2, port), "{own:?}");
        // An unused port of the block: the answer is the block's owner.
        let first: u16 = own.2.split('-').next().expect("a port").parse().expect("a port");
        let unused = if first == port { first + 1 } else { first };
        for port in [port, unused] {
            let (code, answer) = ask(&socket, &format!("who 203.0.113.1:{port} --protocol udp"));
            assert_eq!(code, Some(0), "{answer}");
            assert_eq!(answer["subscriber"], "10.0.0.80", "{answer}");
            assert_eq!(answer["realm"], realm, "{answer}");
        }
        let filters = [
            format!("--realm {realm}"),
            format!("--realm {realm} --subscriber 10.0.0.80"),
            format!("--realm {realm} --subscriber 10.0.0.0/24"),
            format!("--external 203.0.113.1:{unused}"),
        ];
        for filter in filters {
            let (code, found) = ask(&socket, &format!("show blocks {filter}"));
            assert_eq!((code, owners(&found)), (Some(0), vec![own.clone()]), "{filter}");
        }
    }
    // Both realms have the address. A prefix without the address has no subscriber, and a port in
    // no block has no owner.
    let (_, both) = ask(&socket, "show blocks --subscriber 10.0.0.0/8");
    assert_eq!(owners(&both).len(), 2, "{both}");
    let (_, none) = ask(&socket, "show blocks --subscriber 10.1.0.0/16");
    assert_eq!(owners(&none), []);
    let (code, answer) = ask(&socket, "who 203.0.113.1:40000 --protocol udp");
    assert_eq!(code, Some(1), "{answer}");
    // Lists without entries are empty, and an invalid prefix is refused.
    for list in ["mappings", "sessions"] {
        let (code, found) = ask(&socket, &format!("show {list} --remote 198.51.100.0/24"));
        assert_eq!((code, &found[list]), (Some(0), &json!([])), "{found}");
    }
    let output = Command::new(PROGRAM)
        .args(["show", "sessions", "--remote", "198.51.100.0/33", "--socket"])
        .arg(&socket)
        .output()
        .expect("natgate runs");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
