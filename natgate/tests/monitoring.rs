//! Monitoring of a gateway with the program itself and real traffic: Prometheus' page, an SNMP
//! agent, the export in YANG.
//!
//! The network is that of the demonstration (`natgate-testnet`). Needs root, curl, promtool,
//! yanglint, snmpd and snmpget, and fails without them. The tests of the crate `metrics` cover the
//! complete content.

use natgate_control::socket::ask;
use natgate_testnet::{
    Network, POOL, SERVER1, SERVER2, SUBSCRIBER1, SUBSCRIBER2, TestNetwork, config,
    config_with_pool, wait_for,
};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngwatch";
const PAGE: &str = "http://127.0.0.1:9464/metrics";
const LIMIT: Duration = Duration::from_secs(60);

/// natv2InstancePortMapEntries.
const MAPPINGS: &str = ".1.3.6.1.2.1.234.2.1.1.8.1";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is text")
}

/// Output of a program in the gateway's namespace.
fn said(network: &Network, program: &str, arguments: &[&str]) -> std::io::Result<String> {
    let output = network.node("nat").run(20, program, arguments)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Content of the page as soon as it has this line.
fn page_with(network: &Network, line: &str) -> String {
    let page = || said(network, "curl", &["-sS", "--max-time", "10", PAGE]);
    let found = wait_for(line, LIMIT, || {
        let page = page()?;
        Ok(page.lines().any(|one| one == line).then_some(page))
    });
    found.unwrap_or_else(|error| panic!("{error}; {:?}", page()))
}

#[test]
fn a_gateway_is_watched_by_prometheus_snmp_and_yang() {
    let network = TestNetwork::new(TAG);
    network.node("nat").ip_batch("link set lo up\n").expect("watchers come by the loopback");
    let (socket, master) = (network.file("control.sock"), network.file("agentx"));
    let snmpd = start_snmpd(&network, &master);
    let more = format!(
        "[control]\nsocket = \"{}\"\n[snmp]\nsubscribers = true\nagentx = \"{}\"\n",
        text(&socket),
        text(&master)
    );
    let gateway = network.start(PROGRAM, &config(&more));
    for (node, server) in [("sub1", SERVER1), ("sub1", SERVER2), ("sub2", SERVER1)] {
        let arguments = ["-c", "3", "-i", "0.2", "-w", "10", &server.to_string()];
        network.node(node).run(12, "ping", &arguments).expect("answers come through");
    }

    let page = page_with(&network, "natgate_mappings 3");
    for line in [
        r#"natgate_packets_total{direction="outbound",verdict="forwarded"} 9"#,
        r#"natgate_packets_total{direction="inbound",verdict="forwarded"} 9"#,
        "natgate_subscribers 2",
        r#"natgate_mappings_created_total{protocol="icmp"} 3"#,
        r#"natgate_pool_ports{pool="default",protocol="icmp",state="used"} 3"#,
        r#"natgate_pool_ports{pool="default",protocol="icmp",state="held"} 0"#,
        r#"natgate_pool_addresses{pool="default"} 4"#,
        r#"natgate_device_up{device="inside",side="inside"} 1"#,
        r#"natgate_device_up{device="outside",side="outside"} 1"#,
        r#"natgate_reloads_total{result="success"} 0"#,
    ] {
        assert!(page.lines().any(|one| one == line), "no {line} in\n{page}");
    }
    let count = |name: &str| -> f64 {
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{page}"))
    };
    let turns = count(r#"natgate_worker_turn_duration_seconds_count{worker="0"}"#);
    assert!(turns >= 3.0 && turns == count(r#"natgate_worker_bursts_total{worker="0"}"#));
    let made = count(r#"natgate_worker_mapping_duration_seconds_count{worker="0"}"#);
    assert!((1.0..=3.0).contains(&made), "{made} turns made 3 mappings");
    assert!(count("natgate_process_resident_memory_bytes") > 0.0);
    for subscriber in [SUBSCRIBER1, SUBSCRIBER2] {
        assert!(!page.contains(&subscriber.to_string()), "subscribers are not shown");
    }
    judge(&page);

    let shown = wait_for("natgate's tables", LIMIT, || {
        let arguments = ["-v2c", "-On", "-m", "", "-c", "public", "127.0.0.1:1161", MAPPINGS];
        let shown = said(&network, "snmpget", &arguments).unwrap_or_default();
        Ok(shown.contains("Gauge32").then_some(shown))
    });
    assert_eq!(shown.expect("it is shown").trim(), format!("{MAPPINGS} = Gauge32: 3"));
    rows_are_shown(&network);

    exports(&network, &socket);
    gateway.reload().expect("it reloads");
    page_with(&network, r#"natgate_reloads_total{result="success"} 1"#);
    assert!(gateway.stop().expect("it stops").success());
    drop(snmpd);
}

/// Rules for Prometheus that operators install.
const RULES: &str = include_str!("../../contrib/prometheus/natgate.rules.yml");

/// All sources count one state of a pool equally: the alert, the control socket, `show pools`, the
/// page's sources and `top`. A quarter of the pool's ports is reserved, and some are in hold-down.
#[test]
fn a_pools_use_is_counted_in_one_way_everywhere() {
    let network = TestNetwork::new("nguse");
    network.node("nat").ip_batch("link set lo up\n").expect("watchers come by the loopback");
    let socket = network.file("control.sock");
    let [reserved, .., last] = POOL;
    let pool = format!("addresses = [\"{reserved}-{last}\"]\nports = \"1024-1063\"\n");
    let more = format!(
        "[control]\nsocket = \"{}\"\n[[static]]\ninternal = \"10.0.0.200\"\n\
         external = \"{reserved}\"\n",
        text(&socket)
    );
    let config = config_with_pool(&pool, &more);
    let gateway = network.start(PROGRAM, &config);
    // Each datagram has a source port of its own: the system may choose one twice.
    let send = |ports: std::ops::RangeInclusive<u16>| {
        for port in ports {
            let script = format!(
                "use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) or die $!; \
                 bind(S, sockaddr_in({port}, INADDR_ANY)) or die $!; \
                 send(S, 'x', 0, sockaddr_in(53, inet_aton('{SERVER1}'))) or die $!;"
            );
            network.node("sub1").run(20, "perl", &["-e", &script]).expect("a datagram is sent");
        }
    };
    send(1001..=1010);
    page_with(&network, r#"natgate_pool_ports{pool="default",protocol="udp",state="used"} 10"#);
    let arguments = ["clear", "mappings", "--socket", text(&socket)];
    said(&network, PROGRAM, &arguments).expect("mappings are cleared");
    send(2001..=2030);
    let page =
        page_with(&network, r#"natgate_pool_ports{pool="default",protocol="udp",state="used"} 30"#);
    let ports = |state: &str| -> f64 {
        let name =
            format!(r#"natgate_pool_ports{{pool="default",protocol="udp",state="{state}"}}"#);
        let value = page.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{page}"))
    };
    let states = ["used", "held", "reserved", "free"].map(ports);
    assert_eq!(states, [30.0, 10.0, 40.0, 80.0]);
    // The alert divides the used ports by the used and free ones.
    for part in [r#"natgate_pool_ports{state="used"}"#, r#"natgate_pool_ports{state=~"used|free"}"#]
    {
        assert!(RULES.contains(part), "the rules have no {part}");
    }
    let [used, _, _, free] = states;
    let share = used / (used + free);

    let ask = |path: &str| ask(&socket, "GET", path, &Value::Null, LIMIT).expect("an answer").body;
    let pools = ask("/v1/pools");
    let pool = &pools["pools"][0];
    let told = pool["in_use"]["udp"].as_f64().expect("a share");
    assert!((told - share).abs() < 1e-12, "{pool}");
    // The page divides these two numbers, for a pool and for its addresses.
    let parts = |object: &Value| ["used", "free"].map(|key| object[key]["udp"].as_f64().unwrap());
    assert_eq!(parts(pool), [used, free], "{pool}");
    let addresses = ask("/v1/addresses");
    let addresses = addresses["addresses"].as_array().expect("addresses");
    let sum = addresses.iter().map(parts).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
    assert_eq!(sum, [used, free], "{addresses:?}");
    assert_eq!(addresses[0]["in_use"]["udp"], Value::Null, "all of it is reserved");

    let shown = said(&network, PROGRAM, &["show", "pools", "--socket", text(&socket)]).unwrap();
    let row = shown.lines().nth(1).expect("a pool").split_whitespace().collect::<Vec<_>>();
    assert!(row.windows(2).any(|pair| pair == ["30", "0"]), "{shown}");
    let top = said(&network, PROGRAM, &["top", "--once", "--socket", text(&socket)]).unwrap();
    let row = top.lines().find(|line| line.starts_with("default")).expect("a pool");
    assert!(row.contains(&format!(" {:.1} %", 100.0 * share)), "{share} is not in\n{top}");
    assert!(gateway.stop().expect("it stops").success());
}

/// SNMP managers see the subscribers with mappings, and their mappings.
fn rows_are_shown(network: &Network) {
    let walk = |table: &str| {
        let name = format!(".1.3.6.1.2.1.234.{table}");
        let arguments =
            ["-v2c", "-On", "-m", "", "-t", "20", "-c", "public", "127.0.0.1:1161", &name];
        let walked = said(network, "snmpbulkwalk", &arguments).expect("snmpbulkwalk runs");
        walked.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let hex = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        format!("Hex-STRING: {a:02X} {b:02X} {c:02X} {d:02X} ")
    };
    // natv2SubscriberInternalPrefix and natv2SubscriberPortMapEntries, by address.
    let expected = |column, value: [String; 2]| {
        let mut rows = [(SUBSCRIBER1, &value[0]), (SUBSCRIBER2, &value[1])];
        rows.sort();
        rows.map(|(subscriber, value)| {
            format!(".1.3.6.1.2.1.234.1.1.1.{column}.{} = {value}", subscriber.to_bits())
        })
    };
    assert_eq!(walk("1.1.1.4"), expected(4, [hex(SUBSCRIBER1), hex(SUBSCRIBER2)]));
    let counts = [2, 1].map(|count| format!("Gauge32: {count}"));
    assert_eq!(walk("1.1.1.7"), expected(7, counts));
    // natv2PortMapInternalAddress, by protocol (ICMP), external address and port.
    let rows = walk("2.6.1.9");
    let of = |subscriber| rows.iter().filter(|row| row.ends_with(&hex(subscriber))).count();
    assert_eq!((rows.len(), of(SUBSCRIBER1), of(SUBSCRIBER2)), (3, 2, 1), "{rows:?}");
    let begins = ".1.3.6.1.2.1.234.2.6.1.9.1.1.7.111.117.116.115.105.100.101.1.4.";
    assert!(rows.iter().all(|row| row.starts_with(begins)), "{rows:?}");
    // natv2AddressMapExternalAddress.
    assert_eq!(walk("2.5.1.10").len(), 2);
}

/// Starts an SNMP agent in the gateway's namespace, with the lines from docs/metrics.md.
fn start_snmpd(network: &Network, master: &Path) -> std::process::Child {
    let file = network.file("snmpd.conf");
    let document = include_str!("../../docs/metrics.md");
    let block = document.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = block.expect("docs/metrics.md has lines for snmpd");
    assert!(lines.contains("master agentx"), "{lines}");
    let text_of =
        format!("agentAddress udp:127.0.0.1:1161\nagentXSocket {}\n{lines}", text(master));
    fs::write(&file, text_of).expect("it can be written");
    let log = network.file("snmpd.log");
    let arguments = ["-f", "-C", "-Lo", "-c", text(&file)];
    let snmpd = network.node("nat").start(Path::new("snmpd"), &arguments, &log);
    snmpd.expect("snmpd is there (Debian package snmpd; make test installs it)")
}

/// Checks the page with promtool, which must find no problem.
fn judge(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there (Debian package prometheus; make test installs it)");
    let mut input = promtool.stdin.take().expect("it is piped");
    input.write_all(page.as_bytes()).expect("it is read");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
}

/// yanglint accepts the configuration of a file, and the configuration and state of the gateway.
fn exports(network: &Network, socket: &Path) {
    let file = network.file("natgate.toml");
    let configured = ["export", "yang", "-c", text(&file)];
    let running = ["export", "yang", "--socket", text(socket)];
    for (kind, arguments) in [("config", &configured), ("data", &running)] {
        let output = Command::new(PROGRAM).args(arguments).output().expect("natgate runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        let exported = network.file("export.json");
        fs::write(&exported, &output.stdout).expect("it can be written");
        let metrics = Path::new(env!("CARGO_MANIFEST_DIR")).join("../operate/metrics");
        let judged = Command::new("yanglint")
            .args(["-t", kind, "-p"])
            .arg(metrics.join("tests/yang"))
            .args(["-p", "/usr/share/yang/modules/libyang"])
            .args(["-p", text(&metrics.join("yang"))])
            .args(
                ["ietf-nat@2019-01-10", "ietf-dslite@2019-01-10"]
                    .map(|module| metrics.join("yang").join(format!("{module}.yang"))),
            )
            .arg(&exported)
            .output();
        let judged = judged
            .expect("yanglint is there (Debian package libyang2-tools; make test installs it)");
        let said = String::from_utf8_lossy(&[judged.stdout, judged.stderr].concat()).into_owned();
        assert!(judged.status.success() && said.is_empty(), "{said}");
        let exported = String::from_utf8_lossy(&output.stdout).into_owned();
        let made = exported.matches("dynamic-implicit").count();
        assert_eq!(made, if kind == "data" { 3 } else { 0 }, "{exported}");
    }
}

#[test]
fn who_exports_without_a_gateway_or_with_a_wrong_file_is_told() {
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(["export", "yang"]).args(arguments).output();
        let output = output.expect("natgate runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--socket", "/nowhere/control.sock"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is `natgate run` running"), "{said}");
    let (code, said) = run(&["-c", "/nowhere/natgate.toml"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("/nowhere/natgate.toml"), "{said}");
}
