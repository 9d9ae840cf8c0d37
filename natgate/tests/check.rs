//! `natgate check` from the user's view: exit codes, streams, text and JSON.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

const GOOD: &str = r#"[inside]
device = "no-such-device"
[outside]
device = "nor-this-one"
[[pool]]
addresses = ["203.0.113.1"]
[timeouts]
udp = "30s"
"#;

fn check(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_natgate"))
        .arg("check")
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the test may write its directory");
    path.display().to_string()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program writes UTF-8")
}

#[test]
fn a_good_file_is_explained_without_its_devices() {
    let output = check(&[&file("good.toml", GOOD)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty());
    let said = text(&output.stdout);
    assert!(said.contains("ports 1024-65535") && said.contains("64,512 TCP"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("warning: ")), "{said}");
}

#[test]
fn a_bad_file_is_told_everything_on_standard_error() {
    let path = file("bad.toml", &GOOD.replace("30s", "30").replace("203.0.113.1", "203.0.113"));
    let output = check(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains(&format!("{path}:6:14: pool[0].addresses[0]: ")), "{said}");
    assert!(said.contains(&format!("{path}:8:7: timeouts.udp: ")), "{said}");
}

#[test]
fn tables_of_ipv6_can_be_run() {
    let path = file("ipv6.toml", &format!("{GOOD}[nat64]\nprefixes = [\"64:ff9b::/96\"]\n"));
    let output = check(&[&path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with(&format!("{path}: can be run\n")), "{said}");
    assert!(said.contains("nat64: all hosts"), "{said}");
}

#[test]
fn json_of_a_good_file() {
    let output = check(&["--json", &file("good-json.toml", GOOD)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("standard output is JSON");
    assert_eq!(said["ok"], true);
    assert_eq!(said["pools"][0]["name"], "default");
    assert_eq!(said["pools"][0]["mappings"]["udp"], 64_512);
    assert!(said["memory_bytes"].is_u64());
    assert_eq!(said["warnings"][0]["key"], "timeouts.udp");
}

#[test]
fn json_of_classes_and_realms() {
    let text_of = format!(
        "{GOOD}\n[[realm]]\nname = \"homes\"\nvlan = 7\naddress = \"10.0.0.1/8\"\n\
         hairpin_to = [\"default\"]\n\
         [[class]]\nname = \"small\"\nrealm = \"homes\"\nsubscribers = [\"10.1.0.0/16\"]\n\
         limits = {{ ports_per_subscriber = {{ udp = 9 }} }}\ntotal = {{ sessions = 1000 }}\n"
    );
    let output = check(&["--json", &file("classes.toml", &text_of)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("standard output is JSON");
    let class = &said["classes"][0];
    assert_eq!((&class["name"], &class["realm"]), (&"small".into(), &"homes".into()));
    assert_eq!(
        (&class["addresses"], &class["each"]["mappings"]["udp"]),
        (&65_536.into(), &9.into())
    );
    assert_eq!(class["together"]["sessions"], 1000);
    let realm = &said["realms"][0];
    assert_eq!((&realm["vlan"], &realm["device"]), (&7.into(), &"no-such-device".into()));
    assert_eq!((&realm["pool"], &realm["hairpin_to"][0]), (&"default".into(), &"default".into()));
}

#[test]
fn json_of_a_bad_file() {
    let path = file("bad-json.toml", &GOOD.replace("30s", "30"));
    let output = check(&["--json", &path]);
    assert_eq!(output.status.code(), Some(2));
    let said: Value = serde_json::from_slice(&output.stdout).expect("standard output is JSON");
    assert_eq!(said["ok"], false);
    let error = &said["errors"][0];
    assert_eq!((&error["line"], &error["column"]), (&8.into(), &7.into()));
    assert_eq!((&error["file"], &error["key"]), (&path.as_str().into(), &"timeouts.udp".into()));
    assert!(error["message"].as_str().is_some_and(|message| message.contains("is no duration")));
    assert!(text(&output.stderr).contains(":8:7: "));
}

/// Node a of a pair, with its certificate, its key and the authorities.
fn pair([certificate, key, authorities]: [&str; 3]) -> String {
    include_str!("../../packaging/examples/pair-a.toml")
        .replace("/etc/natgate/a.pem", certificate)
        .replace("/etc/natgate/a.key", key)
        .replace("/etc/natgate/ca.pem", authorities)
}

/// A certificate in a file, and its key in another one.
fn certificate(file_name: &str, name: &str, last_year: i32) -> [String; 2] {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.not_after = date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    [
        file(&format!("{file_name}.pem"), &pem),
        file(&format!("{file_name}.key"), &key.serialize_pem()),
    ]
}

#[test]
fn a_pair_is_explained_with_the_ports_that_rest() {
    let [own, key] = certificate("own", "a", 2099);
    // The validity of authorities does not count.
    let [authorities, _] = certificate("authorities", "authority", 2020);
    let path = file("pair.toml", &pair([&own, &key, &authorities]));
    let output = check(&[&path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for line in [
        "  this is node a at 10.99.0.1:7600, the other one is b at 10.99.0.2:7600",
        "  slice 0 of node a: 203.0.113.0/29, 516,096 ports a protocol",
        "  slice 1 of node b: 203.0.113.8/29, 516,096 ports a protocol",
        "  after the end of node b its slices rest for 2m: 516,096 ports a protocol",
        "  new mappings get the 516,096 ports of node a meanwhile",
    ] {
        assert!(said.lines().any(|known| known == line), "no {line:?} in\n{said}");
    }
    assert!(!said.contains("warning: "), "{said}");
    let object: Value = serde_json::from_slice(&check(&["--json", &path]).stdout).expect("JSON");
    assert_eq!(object["pair"]["node"], "a");
    assert_eq!(object["pair"]["partner_ports"], 516_096);
    assert_eq!(object["pair"]["hold_down_ms"], 120_000);
}

#[test]
fn faulty_certificates_of_a_pair_are_warnings() {
    let [of_b, key] = certificate("of-b", "b", 2020);
    let absent = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("absent.pem");
    let absent = absent.display().to_string();
    let path = file("faulty-pair.toml", &pair([&of_b, &key, &absent]));
    let output = check(&[&path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for fault in [
        format!("{absent} cannot be read"),
        format!("the certificate in {of_b} does not name the node a"),
        format!("the certificate in {of_b} was valid until Jan  1 00:00:00 2020"),
    ] {
        let warning = format!("warning: {path}: fleet: {fault}");
        assert!(said.contains(&warning), "no {warning:?} in\n{said}");
    }
}

#[test]
fn a_file_that_is_not_there() {
    let output = check(&["/no/such/natgate.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("/no/such/natgate.toml: cannot be read: No such file"), "{said}");
    assert_eq!(check(&[]).status.code(), Some(2));
}

#[test]
fn help_has_an_example() {
    let output = check(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(said.lines().any(|line| line.starts_with("natgate check ")), "{said}");
    assert!(said.contains("--json"), "{said}");
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn a_back_end_that_was_not_built_in_is_refused_with_the_remedy() {
    let text = GOOD.replace(
        "\"no-such-device\"",
        "\"net_null0\"\nbackend = \"dpdk\"\naddress = \"10.0.0.1/8\"",
    );
    let path = file("dpdk.toml", &text);
    let output = check(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    let said = self::text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    let expected =
        "inside.backend is \"dpdk\", but this natgate was built without it; build it with";
    assert!(said.contains(&format!("{path}: {expected}")), "{said}");
}

#[cfg(feature = "dpdk")]
#[test]
fn ports_of_dpdk_are_explained() {
    let text = GOOD.replace(
        "\"no-such-device\"",
        "\"net_null0\"\nbackend = \"dpdk\"\naddress = \"10.0.0.1/8\"",
    ) + "[dpdk]\neal = [\"--in-memory\", \"-m\", \"512\"]\n";
    let output = check(&[&file("dpdk.toml", &text)]);
    assert_eq!(output.status.code(), Some(0), "{}", self::text(&output.stderr));
    let said = self::text(&output.stdout);
    assert!(said.contains("inside: net_null0 (dpdk), 10.0.0.1/8"), "{said}");
    assert!(said.contains("DPDK: --in-memory -m 512"), "{said}");
}

/// Names in quotes before colons, and names that stand alone in a list.
fn names(text: &str) -> std::collections::BTreeSet<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

#[test]
fn help_lists_the_keys_that_json_has() {
    let output = check(&["--help"]);
    let help = text(&output.stdout);
    let begin = help.find("{\"ok\": true").expect("an object of a good file");
    let middle = help.find("{\"ok\": false").expect("an object of a bad file");
    let end = middle + help[middle..].find("}]}").expect("its end");
    let keys = |arguments: &[&str]| -> Value {
        serde_json::from_slice(&check(arguments).stdout).expect("standard output is JSON")
    };
    let keys_of = |object: &Value| -> std::collections::BTreeSet<String> {
        object.as_object().expect("an object").keys().cloned().collect()
    };
    let good = keys(&["--json", &file("good-help.toml", GOOD)]);
    let listed = names(&help[begin..middle]);
    assert_eq!(keys_of(&good), listed.into_iter().map(str::to_owned).collect());
    let bad = keys(&["--json", &file("bad-help.toml", &GOOD.replace("30s", "30"))]);
    let mut expected = keys_of(&bad);
    expected.extend(keys_of(&bad["errors"][0]));
    let listed = names(&help[middle..end]);
    assert_eq!(expected, listed.into_iter().map(str::to_owned).collect());
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_output_without_an_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_natgate"))
        .args(["check", &file("closed.toml", GOOD)])
        .stdout(writer)
        .output()
        .expect("the program can be started");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}
