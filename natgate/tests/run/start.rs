//! `natgate run` from its start to its end: refusals, readiness, signals, files, and devices that
//! are removed and added.

use crate::gateway::{Folder, GOOD, Gateway, PATIENCE, PROGRAM, command, refusal};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Content of the status file as soon as it exists.
fn status(path: &Path) -> Value {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < PATIENCE, "no status was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = fs::read_to_string(path).expect("the file can be read");
    serde_json::from_str(&text).expect("the whole of it was there at once")
}

#[test]
fn wrong_configurations_are_refused_with_code_2() {
    let refused = |test, from: &str, to: &str| {
        let (code, said) = refusal(test, "", &GOOD.replace(from, to));
        assert_eq!((code, said.lines().count()), (2, 1), "{said}");
        said
    };
    let said = refused("address", "address = \"192.0.2.1/24\"", "");
    assert!(said.contains("outside.address is missing and device \"out0\" has none"), "{said}");
    let said = refused("twice", "\"out0\"", "\"in0\"");
    assert!(said.contains("outside.device"), "{said}");
}

#[test]
fn too_little_memory_is_told_with_code_1_for_there_may_be_more_later() {
    let limits = "[limits]\nmappings = 1073741824\nfragment_memory = \"1TiB\"\n[[pool]]";
    let (code, said) = refusal("memory", "", &GOOD.replace("[[pool]]", limits));
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(said.contains("natgate.toml: the configuration needs 1."), "{said}");
    assert!(said.contains(" TiB of memory and "), "{said}");
    assert!(
        said.ends_with("; lower limits.mappings, limits.extra_sessions or alg.flows"),
        "{said}"
    );
}

#[test]
fn a_device_that_carries_less_than_configured_is_told_and_the_gateway_runs() {
    let folder = Folder::new("narrow");
    let config = folder.write(&GOOD.replace("device = \"out0\"", "device = \"out0\"\nmtu = 9000"));
    let mut gateway = Gateway::spawn(command("", &config, &[]));
    gateway.hears("running");
    let warning = gateway.hears("warning: outside.mtu");
    let expected = "outside.mtu is 9000, but device \"out0\" carries 1500 bytes; set";
    assert!(warning.contains(expected), "{warning}");
    assert!(warning.ends_with("; natgate goes by what the device carries"), "{warning}");
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn what_the_system_does_not_let_us_is_refused_with_code_1() {
    let (code, said) = refusal("device", "", &GOOD.replace("out0", "nosuch0"));
    let expected =
        "natgate: there is no network device \"nosuch0\"; `ip link` lists those that exist";
    assert_eq!((code, said.as_str()), (1, expected));

    let (code, said) = refusal("loopback", "", &GOOD.replace("out0", "lo"));
    assert!(code == 1 && said.contains("\"lo\" is not Ethernet"), "{said}");

    let powerless = "exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let (code, said) = refusal("permission", powerless, GOOD);
    assert!(code == 1 && said.contains("is not permitted; run as root"), "{said}");
}

#[test]
fn back_ends_that_cannot_be_used_are_refused_with_the_remedy() {
    let powerless = "exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let long = "ip link set dev in0 mtu 9000";
    for (backend, device, setup, expected) in [
        ("af-xdp", "nosuch0", "", "no network device \"nosuch0\"; `ip link` lists"),
        ("af-xdp", "lo", "", "\"lo\" is not Ethernet"),
        ("af-xdp", "in0", powerless, "AF_XDP on device \"in0\" is not permitted; run as root or"),
        ("af-xdp", "in0", long, "lower it with `ip link set dev in0 mtu 3822`, or use backend"),
        ("tun", "in0", "", "device \"in0\" exists and is no TUN device"),
        (
            "tun",
            "new0",
            powerless,
            "attaching to TUN device \"new0\" is not permitted; run as root",
        ),
    ] {
        let named = format!("device = \"{device}\"\nbackend = \"{backend}\"");
        let text = GOOD.replace("device = \"in0\"", &named);
        let (code, said) = refusal("backend", setup, &text);
        assert!(code == 1 && said.lines().count() == 1 && said.contains(expected), "{said}");
    }
}

#[test]
fn both_ending_signals_end_it_with_code_0_and_the_counters() {
    for signal in ["TERM", "INT"] {
        let folder = Folder::new(signal);
        let mut gateway = Gateway::start(command("", &folder.config(""), &[]));
        gateway.signal(signal);
        assert!(gateway.hears("stopped").contains("outbound 0 packets (0 bytes)"));
        assert_eq!(gateway.ends(), 0);
    }
}

#[test]
fn the_state_is_written_on_demand() {
    let folder = Folder::new("status");
    let file = folder.file("status.json");
    let argument = file.to_str().expect("a path of text");
    let gateway = Gateway::start(command("", &folder.config(""), &["--status-file", argument]));
    for _ in 0..2 {
        gateway.signal("USR1");
        let status = status(&file);
        assert_eq!(status["devices"]["outside"]["name"], "out0");
        assert_eq!(status["devices"]["inside"]["mtu"], 1500);
        for list in ["mappings", "sessions"] {
            assert_eq!(status[list].as_array().map(Vec::len), Some(0), "{list}");
        }
        assert_eq!(status["counters"]["packets"]["outbound"]["forwarded"], 0);
        assert!(status["neighbors"]["inside"].is_array());
        assert!(status["time"].as_f64().is_some_and(|time| time > 1.5e9));
        fs::remove_file(&file).expect("the file is there");
    }
}

#[test]
fn addresses_missing_in_the_configuration_come_from_the_kernel() {
    let folder = Folder::new("kernel");
    let config = folder.write(&GOOD.replace("address = \"192.0.2.1/24\"", ""));
    let setup = "ip addr add 192.0.2.77/24 dev out0";
    let gateway = Gateway::spawn(command(setup, &config, &[]));
    let warning = gateway.hears("warning");
    assert!(warning.contains("the kernel has address 192.0.2.77 on out0"), "{warning}");
    assert!(warning.ends_with("write outside.address = \"192.0.2.77/24\""), "{warning}");
    gateway.hears("running");
}

#[test]
fn a_device_that_goes_and_comes_back_is_used_again() {
    let folder = Folder::new("back");
    let file = folder.file("status.json");
    let argument = file.to_str().expect("a path of text");
    let mut gateway = Gateway::start(command("", &folder.config(""), &["--status-file", argument]));
    gateway.asks("ip link set out0 down");
    gateway.hears("outside device out0 is down");
    gateway.asks("ip link set out0 up");
    gateway.hears("outside device out0 is up");
    gateway.asks("ip link delete out0");
    gateway.hears("outside device out0 is gone");
    gateway.asks(
        "ip link add name out0 type veth peer name out1
        ip link set out0 up
        ip link set out1 up",
    );
    gateway.hears("outside device out0 is back");
    gateway.signal("USR1");
    assert_eq!(status(&file)["devices"]["outside"]["link_losses"], 2);
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn events_that_cannot_be_opened_are_said_so() {
    let folder = Folder::new("events");
    let config = folder.config("");
    let output = command("", &config, &["--events", "/nonexistent/events.jsonl"]).output();
    let output = output.expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("/nonexistent/events.jsonl cannot be opened"), "{said}");
}

#[test]
fn state_files_are_written_and_those_that_cannot_be_used_refused() {
    let folder = Folder::new("state");
    let path = folder.file("ports");
    // A socket of its own, because another test's gateway may use the default one. No warnings are
    // expected.
    let socket = folder.file("control.sock").display().to_string();
    let with_state = |path: &Path| {
        let path = path.display().to_string();
        let quiet = "[page]\nlisten = \"off\"\n[metrics]\nlisten = \"off\"\n";
        format!("{GOOD}[control]\nsocket = {socket:?}\n{quiet}[state]\nfile = {path:?}\n")
    };
    let (code, said) = refusal("state-refused", "", &with_state(Path::new("/nonexistent/ports")));
    assert!(code == 1 && said.contains("/nonexistent/ports cannot be written"), "{said}");
    fs::write(&path, "a letter").expect("the file can be written");
    let (code, said) = refusal("state-refused", "", &with_state(&path));
    assert!(code == 1 && said.contains("was not written by natgate"), "{said}");

    let config = folder.write(&with_state(&path));
    for content in ["", "NATPORTS?"] {
        fs::write(&path, content).expect("the file can be written");
        let mut gateway = Gateway::spawn(command("", &config, &[]));
        assert!(gateway.hears("state.file").contains("is damaged (it ends too early)"));
        gateway.hears("running");
        gateway.signal("TERM");
        assert_eq!(gateway.ends(), 0);
    }
    // The file from the last end is valid, so the next start reports nothing about it.
    let gateway = Gateway::spawn(command("", &config, &[]));
    assert!(gateway.said.recv_timeout(PATIENCE).is_ok_and(|said| said.contains("running")));
}

#[test]
fn help_has_an_example() {
    let output = Command::new(PROGRAM).args(["run", "--help"]).output();
    let help = String::from_utf8(output.expect("it runs").stdout).expect("help is text");
    let example = |line: &str| line.trim_start().starts_with("natgate run -c");
    assert!(help.lines().any(example), "{help}");
}

#[test]
fn the_page_is_served_to_those_who_ask_by_its_address() {
    let folder = Folder::new("page");
    let mut gateway = Gateway::spawn(command("ip link set lo up", &folder.config(""), &[]));
    assert_eq!(gateway.hears("the page"), "natgate: the page is at http://127.0.0.1:9465/");
    gateway.hears("running");
    gateway.asks("curl -sf http://127.0.0.1:9465/ | grep -q '<title>natgate</title>'");
    gateway.asks("curl -sf http://127.0.0.1:9465/v1/status | grep -q running_s");
    gateway.asks("curl -sf 'http://127.0.0.1:9465/v1/subscribers?top=3' | grep -q subscribers");
    gateway.asks("curl -sf http://127.0.0.1:9465/v1/addresses | grep -q 203.0.113.1");
    let status = "curl -s -o /dev/null -w '%{http_code}'";
    let url = "http://127.0.0.1:9465/v1/clear?what=mappings";
    gateway.asks(&format!("[ $({status} -X POST '{url}') = 403 ]"));
    gateway.asks(&format!("[ $({status} -H 'Host: evil.example' '{url}') = 421 ]"));
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn a_page_whose_port_is_taken() {
    let folder = Folder::new("page-taken");
    let setup = "ip link set lo up
        ip link add in2 type veth peer name in3
        ip link add out2 type veth peer name out3
        for device in in2 in3 out2 out3; do ip link set $device up; done";
    let mut gateway = Gateway::spawn(command(setup, &folder.config(""), &[]));
    gateway.hears("running");
    let program = PROGRAM;
    let second = |more: &str| {
        // The first gateway has locked the devices and external addresses.
        let text = GOOD.replace("in0", "in2").replace("out0", "out2").replace("113.1", "113.2");
        let path = folder.file("second.toml");
        fs::write(&path, text + more).expect("the file can be written");
        path.display().to_string()
    };
    // A configured place must be available.
    let named = second("[page]\nlisten = \"127.0.0.1:9465\"\n");
    let told = folder.file("told").display().to_string();
    gateway.asks(&format!(
        "code=0; timeout 20 {program} run -c {named} 2>{told} || code=$?; [ $code = 1 ]"
    ));
    let said = fs::read_to_string(&told).expect("it was told");
    let reason = "127.0.0.1:9465 is in use by another program; choose another port, or stop who \
                  listens there";
    assert!(said.contains(&format!("page.listen cannot be used: {reason}")), "{said}");
    // The default place need not be available.
    let usual = second("");
    gateway.asks(&format!(
        "timeout 20 {program} run -c {usual} 2>{told} & \
         until grep -q running, {told}; do kill -0 $!; sleep 0.05; done; kill $!; wait $!"
    ));
    let said = fs::read_to_string(&told).expect("it was told");
    let warning = format!("warning: there is no page: {reason} (page.listen; it may be \"off\")");
    assert!(said.contains(&warning), "{said}");
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn an_snmp_agent_that_is_not_there_is_waited_for() {
    let folder = Folder::new("snmp");
    let config = folder.config("[snmp]\nagentx = \"/nowhere/master\"\n");
    let mut gateway = Gateway::spawn(command("", &config, &[]));
    let said = gateway.hears("no SNMP agent at /nowhere/master");
    assert!(said.contains("snmp.agentx names another place"), "{said}");
    gateway.signal("TERM");
    gateway.hears("stopped");
    assert_eq!(gateway.ends(), 0);
    assert!(gateway.said.iter().all(|line| !line.contains("SNMP")), "it is told once");
}
