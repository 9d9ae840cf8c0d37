//! Logs against other collectors: rsyslogd, tshark, nfcapd with nfdump; and TLS against a server of
//! rustls with certificates made here. Each uses a free port of the loopback.

mod common;
mod exchange;

use common::{
    SUBSCRIBERS, World, after, block, events, free_port, mapping, session, settings, wait_for,
};
use natgate_engine::Change;
use natgate_gateway::{
    Collector, IpfixSettings, LogSettings, LogTo, LogWhat, SyslogSettings, TlsSettings, Transport,
};
use natgate_logs::Record;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A child process that is killed when the test ends.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}; `make` installs it")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn syslog(collector: Collector) -> LogTo {
    LogTo::Syslog(SyslogSettings {
        collector,
        facility: 16,
        host_name: Some("gate".into()),
        app_name: "natgate".into(),
        enterprise: 32473,
    })
}

fn ipfix(port: u16, transport: Transport) -> LogTo {
    LogTo::Ipfix(IpfixSettings {
        collector: Collector { address: format!("127.0.0.1:{port}"), transport },
        domain: 42,
        template_interval: Duration::from_secs(60),
        template_messages: 1000,
    })
}

fn log(to: LogTo, what: LogWhat) -> LogSettings {
    settings(to, what, what == LogWhat::Sessions)
}

#[test]
fn rsyslogd_reads_our_messages_by_udp_and_tcp() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let folder = tempfile::tempdir().unwrap();
        let (port, path) = (free_port(), folder.path().join("got"));
        let (module, input) = match transport {
            Transport::Udp => ("imudp", "imudp"),
            _ => ("imtcp", "imtcp"),
        };
        let template = "%pri%|%timereported:::date-rfc3339%|%hostname%|%app-name%|%msgid%|\
                        %structured-data%|%msg%\\n";
        let configuration = format!(
            "module(load=\"{module}\")\n\
             template(name=\"t\" type=\"string\" string=\"{template}\")\n\
             ruleset(name=\"r\") {{ action(type=\"omfile\" file=\"{}\" template=\"t\") }}\n\
             input(type=\"{input}\" address=\"127.0.0.1\" port=\"{port}\" ruleset=\"r\")\n",
            path.display()
        );
        let file = folder.path().join("rsyslog.conf");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("rsyslogd");
        command.arg("-n").arg("-f").arg(&file).arg("-i").arg(folder.path().join("pid"));
        let _rsyslogd = Program::start(&mut command);
        let address = format!("127.0.0.1:{port}");
        match transport {
            Transport::Udp => wait_for("rsyslogd", || UdpSocket::bind(&address).is_err()),
            _ => wait_for("rsyslogd", || std::net::TcpStream::connect(&address).is_ok()),
        }
        let to = syslog(Collector { address, transport });
        let changes = (0..SUBSCRIBERS).map(|number| Change::MappingCreated(mapping(number)));
        assert!(after(&[log(to, LogWhat::Mappings)], &events(changes)).is_empty());
        let read = || fs::read_to_string(&path).unwrap_or_default();
        wait_for("messages", || read().lines().count() >= usize::from(SUBSCRIBERS));
        let got = read();
        let first = got.lines().next().unwrap();
        let begins = "134|2023-11-14T22:13:20.000000Z|gate|natgate|mapping_created|[natgate@32473 ";
        assert!(first.starts_with(begins), "{first}");
        for number in 0..SUBSCRIBERS {
            let id = mapping(number);
            let (internal, external) = (id.internal, id.external);
            for (name, end) in [("internal", internal), ("external", external)] {
                let field = format!(" {name}=\"{}:{}\"", end.address, end.port);
                assert_eq!(got.matches(&field).count(), 1, "{field} in {got}");
            }
        }
    }
}

/// Reads all bytes of one TCP connection to a listener.
fn swallow(listener: TcpListener) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("it can be read");
        got
    })
}

#[test]
fn tshark_names_every_field_of_our_ipfix() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let got = swallow(listener);
    let changes = [
        Change::SessionCreated(session(1)),
        Change::BlockAssigned(block(2)),
        Change::BlockReleased(block(2)),
        Change::PoolExhausted { pool: 3, protocol: 6 },
        Change::QuotaReached { realm: 0, subscriber: mapping(4).internal.address, protocol: 17 },
    ];
    let sink = log(ipfix(port, Transport::Tcp), LogWhat::Sessions);
    assert!(after(&[sink], &events(changes.into_iter())).is_empty());
    let bytes = got.join().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("ipfix.pcap");
    common::write_capture(&capture, &bytes);
    let text = output(Command::new("tshark").arg("-r").arg(&capture).args([
        "-V",
        "-d",
        "udp.port==4739,cflow",
    ]));
    for field in [
        "Observation Domain Id: 42",
        "SrcAddr: 10.0.0.1",
        "SrcPort: 4001",
        "Post NAT Source IPv4 Address: 203.0.113.1",
        "Post NAPT Source Transport Port: 5001",
        "DstAddr: 192.0.2.1",
        "DstPort: 53",
        "Post NAT Destination IPv4 Address: 192.0.2.1",
        "Post NAPT Destination Transport Port: 53",
        "Protocol: UDP (17)",
        "Nat Event: NAT44 session create (4)",
        "Nat Event: Port block allocation (16)",
        "Nat Event: Port block de-allocation (17)",
        "Nat Event: Quota exceeded (13)",
        "Port Range Start: 2048",
        "Port Range End: 2559",
        "NAT Pool Id: 3",
    ] {
        assert!(text.to_lowercase().contains(&field.to_lowercase()), "{field} is not in\n{text}");
    }
    for doubt in ["Malformed", "[Expert Info", "Unknown Field Type", "No template found"] {
        assert!(!text.contains(doubt), "{doubt} in\n{text}");
    }
}

/// Output of nfdump, in a format, after nfcapd has received these changes.
fn nfdump(what: LogWhat, changes: impl Iterator<Item = Change>, format: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut command = Command::new("nfcapd");
    // The option for the folder has another name in later versions.
    let option = if nfdump_version() < [1, 7, 2] { "-l" } else { "-w" };
    command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", option]);
    let mut nfcapd = Program::start(command.arg(folder.path()));
    let address = format!("127.0.0.1:{port}");
    wait_for("nfcapd", || UdpSocket::bind(&address).is_err());
    let sink = log(ipfix(port, Transport::Udp), what);
    assert!(after(&[sink], &events(changes)).is_empty());
    std::thread::sleep(Duration::from_millis(500));
    // nfcapd writes its file when it is told to end.
    assert!(Command::new("kill").arg(nfcapd.0.id().to_string()).status().unwrap().success());
    nfcapd.0.wait().unwrap();
    output(Command::new("nfdump").arg("-R").arg(folder.path()).args(format))
}

/// Version of the installed nfdump.
fn nfdump_version() -> [u32; 3] {
    let text = output(Command::new("nfdump").arg("-V"));
    let rest = text.split("Version: ").nth(1).unwrap_or_else(|| panic!("{text}"));
    // The names of its libraries may come before the number.
    let rest = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let numbers: Vec<u32> = rest[..end].split('.').map(|one| one.parse().unwrap()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{text}"))
}

/// Values of a field in nfdump's raw format.
fn raw_values(shown: &str, field: &str) -> Vec<String> {
    let lines = shown.lines().filter_map(|line| line.trim().split_once(" = "));
    let own = lines.filter(|(name, _)| name.trim() == field);
    own.map(|(_, value)| value.trim().to_owned()).collect()
}

/// Checks the versions and events in docs/logs.md.
#[test]
fn nfdump_names_events_as_its_version_knows_them() {
    let changes = [
        Change::MappingCreated(mapping(1)),
        Change::BlockAssigned(block(2)),
        Change::BlockReleased(block(2)),
        Change::QuotaReached { realm: 0, subscriber: mapping(4).internal.address, protocol: 17 },
        Change::PoolExhausted { pool: 0, protocol: 6 },
        Change::MappingRemoved(mapping(1)),
    ];
    let shown = nfdump(LogWhat::Mappings, changes.into_iter(), &["-o", "raw"]);
    // Every version shows numbers, addresses and subscribers.
    let numbers = [8, 16, 17, 13, 3, 9];
    let events = raw_values(&shown, "nat event");
    let own: Vec<u32> =
        events.iter().filter_map(|event| event.split(':').next()?.parse().ok()).collect();
    assert_eq!(own, numbers, "{shown}");
    let subscribers = raw_values(&shown, "src addr");
    assert_eq!(subscribers, ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.4", "10.0.0.1"]);
    assert_eq!(raw_values(&shown, "src xlt ip"), ["203.0.113.1"; 4]);
    let names: Vec<&str> = events.iter().filter_map(|event| event.split(": ").nth(1)).collect();
    let starts = raw_values(&shown, "pblock start");
    if nfdump_version() < [1, 7, 5] {
        // Version 1.7.1, in Debian 12, keeps no ports of blocks.
        assert_eq!((names, starts.len()), (vec!["UNKNOW"; 6], 0), "{shown}");
        return;
    }
    let expected = [
        "NAT44 BIB create",
        "Port block allocation",
        "Port block de-allocation",
        "Quota Exceeded",
        "NAT Addresses exhausted",
        "NAT44 BIB delete",
    ];
    assert_eq!(names, expected, "{shown}");
    assert_eq!(starts, ["2048"; 2], "{shown}");
    assert_eq!(raw_values(&shown, "pblock end"), ["2559"; 2], "{shown}");
}

#[test]
fn nfdump_shows_what_nfcapd_has_got() {
    let changes = (0..SUBSCRIBERS).map(|number| Change::SessionCreated(session(number)));
    // The name of the event field differs between versions.
    let format = "fmt:%sa|%sp|%da|%dp|%pr|%nsa|%nsp|%pr";
    let shown = nfdump(LogWhat::Sessions, changes, &["-q", "-o", format]);
    let shown: String = shown.split(' ').collect();
    for number in 0..SUBSCRIBERS {
        let id = session(number);
        let (near, far, there) = (id.mapping.internal, id.mapping.external, id.remote);
        let line = format!(
            "{}|{}|{}|{}|UDP|{}|{}|",
            near.address, near.port, there.address, there.port, far.address, far.port
        );
        assert_eq!(shown.matches(&line).count(), 1, "{line} in\n{shown}");
    }
}

#[test]
fn messages_go_by_tls_only_to_who_has_the_right_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let mut authority = CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["logs.example.net".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &authority).unwrap();
    let authorities = write("ca.pem", &authority.pem());
    let server =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
    let server = Arc::new(server);
    for (name, right) in [("logs.example.net", true), ("other.example.net", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let config = Arc::clone(&server);
        let got = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(config).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut got = Vec::new();
            // A client ends the connection with or without a notice.
            let mut bytes = [0; 4096];
            while let Ok(count) = stream.read(&mut bytes) {
                if count == 0 {
                    break;
                }
                got.extend_from_slice(&bytes[..count]);
            }
            let _ = stream.flush();
            got
        });
        let tls =
            TlsSettings { authorities: authorities.clone(), name: Some(name.into()), own: None };
        let to = syslog(Collector { address, transport: Transport::Tls(tls) });
        let changes = (0..SUBSCRIBERS).map(|number| Change::MappingCreated(mapping(number)));
        let bad = after(&[log(to, LogWhat::Mappings)], &events(changes));
        let got = String::from_utf8(got.join().unwrap()).unwrap();
        if !right {
            assert_eq!((got.len(), bad.len()), (0, 1), "{bad:?}");
            continue;
        }
        assert!(bad.is_empty(), "{bad:?}");
        let mut rest = &got[..];
        for _ in 0..SUBSCRIBERS {
            // The length precedes each message (RFC 5425).
            let (len, text) = rest.split_once(' ').unwrap();
            let (message, others) = text.split_at(len.parse().unwrap());
            assert!(
                message.starts_with("<134>1 ") && message.contains("mapping_created"),
                "{message}"
            );
            rest = others;
        }
        assert_eq!(rest, "");
    }
}

#[test]
fn a_collector_that_is_restarted_gets_the_rest_and_others_feel_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let to = syslog(Collector { address: address.to_string(), transport: Transport::Tcp });
    let logs = [log(to, LogWhat::Mappings), log(LogTo::File(path.clone()), LogWhat::Mappings)];
    let world = World::start(&logs);
    let mut feed = world.logs.joining().feed();
    tell(&mut feed, 1);
    let (mut first, _) = listener.accept().unwrap();
    drop(listener);
    let mut bytes = [0; 64];
    assert!(first.read(&mut bytes).unwrap() > 0);
    drop(first);
    let metrics = world.logs.metrics();
    wait_for("the loss", || metrics().iter().any(|one| !one.connected));
    tell(&mut feed, 9);
    let listener = TcpListener::bind(address).unwrap();
    let got = swallow(listener);
    wait_for("the connection", || metrics().iter().all(|one| one.connected));
    drop(feed);
    assert!(world.finish().is_empty());
    let got = String::from_utf8(got.join().unwrap()).unwrap();
    assert!(got.contains("10.0.0.9:4009"), "{got}");
    let lines = fs::read_to_string(&path).unwrap();
    assert!(lines.contains("10.0.0.1:4001") && lines.contains("10.0.0.9:4009"), "{lines}");
    let metrics = metrics();
    assert_eq!(metrics.iter().map(|one| one.failures).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(metrics.iter().map(|one| one.written).collect::<Vec<_>>(), [2, 2]);
}

/// A host at its quota for half an hour: the log has few lines and a summary, and listeners without
/// damping get every event.
#[test]
fn a_log_has_few_lines_of_a_host_at_its_quota() {
    const SECONDS: u64 = 1800;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let world = World::start(&[log(LogTo::File(path.clone()), LogWhat::Mappings)]);
    let all = world.logs.subscribers().listen_undamped(10_000, LogWhat::Blocks);
    let damped = world.logs.subscribers().listen(10_000, LogWhat::Blocks);
    let subscriber = mapping(4).internal.address;
    let change = Change::QuotaReached { realm: 0, subscriber, protocol: 17 };
    let mut feed = world.logs.joining().feed();
    let one = events([change].into_iter())[0];
    for second in 0..SECONDS {
        let time = one.time.plus(Duration::from_secs(second));
        feed.event(&natgate_engine::Event { time, ..one });
    }
    drop(feed);
    assert!(world.finish().is_empty());
    let take = |from: &natgate_logs::Subscription| {
        let mut records = Vec::new();
        from.take(10_000, Duration::ZERO, &mut records);
        records
    };
    let is_event = |record: &&Record| matches!(record, Record::Event(_));
    assert_eq!(take(&all).iter().filter(is_event).count() as u64, SECONDS);
    assert_eq!(take(&damped).len(), 6);
    let lines = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert!(lines.iter().all(|line| line["event"] == "quota_reached"), "{lines:#?}");
    let (last, others) = lines.split_last().unwrap();
    assert!(others.iter().all(|line| line["count"].is_null()), "{lines:#?}");
    assert_eq!((&last["count"], &last["from"]), (&SECONDS.into(), &others[0]["time"]));
    assert_eq!(last["subscriber"], subscriber.to_string());
}

/// Adds the event of one mapping.
fn tell(feed: &mut natgate_logs::Feed, number: u8) {
    let one = [Change::MappingCreated(mapping(number))].into_iter();
    events(one).iter().for_each(|event| feed.event(event));
}
