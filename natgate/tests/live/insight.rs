//! Information about packets of a running gateway. `natgate trace` agrees with the packet's later
//! fate, and `natgate capture` shows the packet before and after, as tshark reads it.

use super::PROGRAM;
use natgate_testnet::{
    Gateway, POOL, REFLECTOR_PORT, SERVER1, SUBSCRIBER1, TestNetwork, config, traffic, wait_for,
};
use serde_json::Value;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn start(network: &TestNetwork, more: &str) -> (Gateway, PathBuf) {
    let socket = network.file("control.sock");
    let more = format!("[control]\nsocket = \"{}\"\n{more}", socket.display());
    (network.start(PROGRAM, &config(&more)), socket)
}

fn natgate(socket: &Path, command: &str, arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    program.arg(command).args(arguments).arg("--socket").arg(socket).output().unwrap()
}

fn trace(socket: &Path, packet: &str) -> Value {
    let output = natgate(socket, "trace", &[packet, "--json"]);
    assert!(output.status.success(), "{packet}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn steps(object: &Value) -> Vec<&str> {
    object["steps"].as_array().unwrap().iter().filter_map(|step| step["step"].as_str()).collect()
}

fn port_of(socket: &std::net::UdpSocket) -> u16 {
    socket.local_addr().map(|address| address.port()).unwrap()
}

fn what_is_said_happens(more: &str, workers: u64) {
    let network = super::network();
    let (gateway, control) = start(&network, more);
    let socket = network.udp_socket("sub1");
    // The first packet binds the socket's port.
    traffic::ask_udp(&socket, SERVER1).unwrap();
    let port = port_of(&socket);
    let out = format!("udp {SUBSCRIBER1}:{port} > {SERVER1}:{REFLECTOR_PORT}");
    let known = trace(&control, &out);
    assert_eq!((&known["verdict"], &known["by"]), (&"forward".into(), &"outside".into()));
    assert!(steps(&known).contains(&"session"), "{known:#}");
    assert!(known["worker"].as_u64() < Some(workers), "{known:#}");
    let route = known["steps"].as_array().unwrap().last().unwrap();
    assert!(route["step"] == "route" && route["neighbor"].is_string(), "{route}");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    assert_eq!(known["becomes"]["source"], external.to_string());
    let back = trace(&control, &format!("udp {SERVER1}:{REFLECTOR_PORT} > {external}"));
    assert_eq!((&back["verdict"], &back["by"]), (&"forward".into(), &"inside".into()), "{back:#}");
    assert_eq!(back["becomes"]["destination"], format!("{SUBSCRIBER1}:{port}"));
    // A trace of a new flow does not create the flow.
    let mappings =
        |gateway: &Gateway| gateway.status().unwrap()["mappings"].as_array().map(Vec::len);
    let before = mappings(&gateway);
    let new = trace(&control, &format!("tcp {SUBSCRIBER1}:99 > {SERVER1}:{REFLECTOR_PORT} syn"));
    assert!(new["verdict"] == "forward" && steps(&new).contains(&"pool"), "{new:#}");
    let refused = trace(&control, &format!("udp {SERVER1}:{REFLECTOR_PORT} > {}:9", POOL[0]));
    assert_eq!((&refused["verdict"], &refused["reason"]), (&"drop".into(), &"no_mapping".into()));
    assert_eq!(mappings(&gateway), before);
    let text = natgate(&control, "trace", &[&out]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("it would be sent on by the outside"), "{text}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn what_is_said_of_a_packet_happens() {
    what_is_said_happens("", 1);
}

#[test]
fn with_several_workers_the_one_whose_packet_it_is_answers() {
    what_is_said_happens("[workers]\ncount = 2\n", 2);
}

#[test]
fn what_cannot_be_asked_is_an_error_with_a_remedy() {
    let nowhere = Path::new("/nonexistent/control.sock");
    let failed = |arguments: &[&str], command: &str| {
        let output = natgate(nowhere, command, arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = failed(&["udp 10.0.0.5:1 > 192.0.2.1:2"], "trace");
    assert!(code == Some(1) && said.contains("is `natgate run` running"), "{code:?} {said}");
    let (code, said) = failed(&["udp 10.0.0.5 > 192.0.2.1:2"], "trace");
    assert!(code == Some(2) && said.contains("lacks a port"), "{code:?} {said}");
    let (code, said) = failed(&["--remote", "x", "-w", "/dev/null"], "capture");
    assert!(code == Some(2) && said.contains("no IP address"), "{code:?} {said}");
    let (code, said) = failed(&["-w", "/dev/null"], "capture");
    assert!(code == Some(1) && said.contains("is `natgate run` running"), "{code:?} {said}");
}

/// Some fields of a capture's packets.
fn packets(network: &TestNetwork, file: &Path) -> Vec<Vec<String>> {
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "ip.src",
        "ip.dst",
        "frame.comment",
    ];
    let mut arguments = vec!["-n", "-r", file.to_str().unwrap(), "-T", "fields"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let said = network.run("nat", "tshark", &arguments);
    said.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn a_capture_shows_packets_before_and_after_and_why_some_go_no_further() {
    let network = super::network();
    let (gateway, control) = start(&network, "");
    let capture = |name: &str, filter: &[&str]| {
        let file = network.file(name);
        let mut program = Command::new(PROGRAM);
        let program = program.arg("capture").args(filter).arg("--socket").arg(&control);
        let child = program.arg("-w").arg(&file).spawn().unwrap();
        // The head is written as soon as packets are copied.
        let begun = wait_for("the capture", PATIENCE, || {
            Ok(std::fs::metadata(&file).is_ok_and(|file| file.len() > 0).then_some(()))
        });
        begun.unwrap();
        (child, file)
    };
    let subscriber = SUBSCRIBER1.to_string();
    let external = format!("{}:9", POOL[0]);
    let (mut flow, flow_file) =
        capture("flow.pcapng", &["--subscriber", &subscriber, "--count", "4"]);
    let (mut lost, lost_file) = capture("lost.pcapng", &["--external", &external, "--count", "1"]);
    let refused = network.udp_socket("router");
    refused.send_to(b"nobody", SocketAddr::V4(SocketAddrV4::new(POOL[0], 9))).unwrap();
    let own = traffic::ask_udp(&network.udp_socket("sub1"), SERVER1).unwrap();
    assert!(flow.wait().unwrap().success() && lost.wait().unwrap().success());
    let (server, own) = (SERVER1.to_string(), own.ip().to_string());
    let flow = packets(&network, &flow_file);
    let ends: Vec<[&str; 3]> =
        flow.iter().map(|packet| [&packet[0][..], &packet[2], &packet[3]]).collect();
    let expected = [
        ["inside", &subscriber, &server],
        ["outside", &own, &server],
        ["outside", &server, &own],
        ["inside", &server, &subscriber],
    ];
    assert_eq!(ends, expected, "{flow:?}");
    let comments: Vec<&str> = flow.iter().map(|packet| &packet[4][..]).collect();
    let after = "after translation";
    assert_eq!(comments, ["forward by the outside", after, "forward by the inside", after]);
    let lost = packets(&network, &lost_file);
    assert!(lost.len() == 1 && lost[0][4].starts_with("drop no_mapping: "), "{lost:?}");
    // The most simultaneous captures; one that ends frees a place.
    let mut many: Vec<_> =
        (0..4).map(|number| capture(&format!("{number}.pcapng"), &["--port", "1"]).0).collect();
    let file = network.file("more.pcapng");
    let more = || natgate(&control, "capture", &["--seconds", "1", "-w", file.to_str().unwrap()]);
    let refused = more();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && said.contains("4 captures are under way"),
        "{said}"
    );
    many.iter_mut().for_each(|child| child.kill().and_then(|()| child.wait()).map(drop).unwrap());
    wait_for("room", PATIENCE, || Ok(more().status.success().then_some(()))).unwrap();
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
