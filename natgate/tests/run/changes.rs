//! Changes by commands, requests and signals. Each leaves a line in the log, with the requester,
//! the request, the configuration's difference, and the result. Also the files that admit other
//! machines, which a reload reads again.

use crate::gateway::{Folder, Gateway, PROGRAM, command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Address of the management interface for other machines, in the gateway's own namespace.
const LISTEN: &str = "127.0.0.1:9466";

/// Certificates of an authority, and its list of revoked ones.
struct Authority {
    folder: PathBuf,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    serials: Vec<(String, rcgen::SerialNumber)>,
}

impl Authority {
    fn new(folder: &Path) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no name");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages =
            vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("it is signed");
        fs::write(folder.join("ca.pem"), own.pem()).expect("it is written");
        let mut all = Self {
            folder: folder.to_owned(),
            issuer: rcgen::Issuer::new(params, key),
            serials: Vec::new(),
        };
        ["server", "alice", "bob"].into_iter().for_each(|name| all.write(name));
        all.revoke(&[]);
        all
    }

    fn write(&mut self, name: &str) {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let serial = rcgen::SerialNumber::from(self.serials.len() as u64 + 1);
        params.serial_number = Some(serial.clone());
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed");
        let file = |kind: &str| self.folder.join(format!("{name}.{kind}"));
        fs::write(file("pem"), certificate.pem()).expect("it is written");
        fs::write(file("key"), key.serialize_pem()).expect("it is written");
        self.serials.push((name.to_owned(), serial));
    }

    /// Writes the list of revoked certificates with these names.
    fn revoke(&self, names: &[&str]) {
        let revoked = self.serials.iter().filter(|(name, _)| names.contains(&name.as_str()));
        let revoked = revoked.map(|(_, serial)| rcgen::RevokedCertParams {
            serial_number: serial.clone(),
            revocation_time: rcgen::date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2099, 1, 1),
            crl_number: rcgen::SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let pem = list.signed_by(&self.issuer).expect("it is signed").pem().expect("it is PEM");
        fs::write(self.folder.join("crl.pem"), pem).expect("it is written");
    }
}

fn natgate(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--socket").arg(folder.socket());
    command.output().expect("natgate runs")
}

fn parts(line: &str, all: &[&str]) {
    for part in all {
        assert!(line.contains(part), "no {part:?} in {line:?}");
    }
}

#[test]
fn each_change_leaves_a_line_with_its_author() {
    let folder = Folder::new("changes");
    let gateway = Gateway::start(command("", &folder.config(""), &[]));
    // The user of the tests has created the folder.
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder.path()).expect("it is"));
    let by_socket = format!("natgate: change by uid {uid}, pid ");

    folder.config("[timeouts]\nudp = \"3m\"");
    assert!(natgate(&folder, &["reload", "--dry-run"]).status.success());
    assert!(natgate(&folder, &["reload"]).status.success());
    let line = gateway.hears("change by");
    assert!(line.starts_with(&by_socket), "{line}");
    let expected = ": POST /v1/reload: reloaded, with other timeouts; 0 mappings stay, 0 go; \
                    timeouts.udp: (none) -> \"3m\"";
    parts(&line, &[expected]);

    folder.config("[timeouts]\nudp = \"4m\"\n[limits]\nmappings = 1000\nsubscribers = 10");
    assert!(!natgate(&folder, &["reload"]).status.success());
    let line = gateway.hears("change by");
    assert!(line.starts_with(&by_socket), "{line}");
    parts(&line, &["/v1/reload: refused for 2 problems, the first: ", "only at a restart"]);
    parts(&line, &["timeouts.udp: \"3m\" -> \"4m\"", "limits.mappings: (none) -> 1000"]);

    gateway.signal("HUP");
    let line = gateway.hears("change by");
    assert!(line.starts_with("natgate: change by SIGHUP: reload: refused for 2"), "{line}");
    parts(&line, &["limits.mappings: (none) -> 1000"]);
    folder.config("[timeouts]\nudp = \"4m\"");
    gateway.signal("HUP");
    let line = gateway.hears("change by");
    parts(&line, &["by SIGHUP: reload: reloaded, with other timeouts;", "\"3m\" -> \"4m\""]);

    let cleared = natgate(&folder, &["clear", "mappings", "--subscriber", "10.0.0.9"]);
    assert!(cleared.status.success(), "{}", String::from_utf8_lossy(&cleared.stderr));
    let line = gateway.hears("change by");
    assert!(line.starts_with(&by_socket), "{line}");
    parts(&line, &["POST /v1/clear?subscriber=10.0.0.9&what=mappings: 0 mappings cleared"]);

    // An explanation of a packet changes nothing, and leaves no line.
    let traced = natgate(&folder, &["trace", "udp 10.0.0.5:4000 > 198.51.100.10:53"]);
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    assert!(natgate(&folder, &["clear", "mappings", "--subscriber", "10.0.0.8"]).status.success());
    parts(&gateway.hears("change by"), &["subscriber=10.0.0.8"]);

    // A refused request leaves a line; a reading request leaves none.
    let ask = |method: &str, path: &str| {
        gateway.asks(&format!(
            "curl -sS -o /dev/null -w '%{{http_code}}' -X {method} --unix-socket {} http://n{path}",
            folder.socket().display()
        ))
    };
    assert_eq!(ask("POST", "/v1/clear"), "400");
    parts(&gateway.hears("change by"), &["POST /v1/clear: refused: what is to be cleared?"]);
    assert_eq!(ask("GET", "/v1/status"), "200");
    assert_eq!(ask("DELETE", "/v1/status"), "405");
    parts(&gateway.hears("change by"), &["DELETE /v1/status: refused: "]);
}

#[test]
fn certificates_operators_and_revocations_are_read_anew() {
    let folder = Folder::new("remote");
    let authority = Authority::new(folder.path());
    let remote = |operators: &str| {
        let file = |name: &str| folder.file(name).display().to_string();
        folder.config(&format!(
            "listen = \"{LISTEN}\"\noperators = [{operators}]\n[control.tls]\n\
             certificate = {:?}\nkey = {:?}\nclients = {:?}\nrevoked = {:?}\n",
            file("server.pem"),
            file("server.key"),
            file("ca.pem"),
            file("crl.pem")
        ))
    };
    let gateway = Gateway::start(command("ip link set lo up", &remote("\"alice\""), &[]));
    let ask = |name: &str, request: &str| {
        let file = |name: &str| folder.file(name).display().to_string();
        gateway.asks(&format!(
            "curl -sS -o /dev/null -w '%{{http_code}}' --cacert {} --cert {} --key {} {request} \
             --resolve localhost:9466:127.0.0.1 2>/dev/null || true",
            file("ca.pem"),
            file(&format!("{name}.pem")),
            file(&format!("{name}.key"))
        ))
    };
    let status = format!("https://localhost{}/v1/status", &LISTEN[9..]);
    let reload = format!("-X POST https://localhost{}/v1/reload", &LISTEN[9..]);
    assert_eq!(ask("bob", &status), "200");
    assert_eq!(ask("bob", &reload), "403");
    assert_eq!(ask("alice", &reload), "200");
    let line = gateway.hears("change by");
    parts(&line, &["change by certificate \"alice\" from 127.0.0.1:", "POST /v1/reload: reloaded"]);

    // A changed file is read again without a reload.
    authority.revoke(&["bob"]);
    gateway.hears("crl.pem was read anew");
    assert_eq!((ask("bob", &status), ask("alice", &status)), ("000".into(), "200".into()));

    // A reload changes operators and certificates.
    authority.revoke(&[]);
    remote("\"bob\"");
    assert!(natgate(&folder, &["reload"]).status.success());
    parts(&gateway.hears("change by uid"), &["with other control", "[\"alice\"] -> [\"bob\"]"]);
    assert_eq!((ask("alice", &reload), ask("bob", &reload)), ("403".into(), "200".into()));

    // A bad file fails the reload, and a dry run as well; the earlier content stays in force.
    fs::write(folder.file("ca.pem.bad"), "nothing").expect("it is written");
    let good = fs::read_to_string(folder.file("ca.pem")).expect("it is there");
    let text = fs::read_to_string(folder.file("natgate.toml")).expect("it is there");
    folder.write(&text.replace("/ca.pem", "/ca.pem.bad"));
    for arguments in [&["reload"][..], &["reload", "--dry-run"]] {
        let refused = natgate(&folder, arguments);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{errors}");
        parts(&errors, &["control.tls: ", "ca.pem.bad has no certificate in PEM form"]);
    }
    assert_eq!(ask("bob", &status), "200");

    // Another authority replaces the former one.
    folder.write(&text);
    let other = Folder::new("other-authority");
    Authority::new(other.path());
    for name in ["ca.pem", "server.pem", "server.key", "crl.pem"] {
        fs::copy(other.file(name), folder.file(name)).expect("it is copied");
    }
    assert!(natgate(&folder, &["reload"]).status.success());
    assert_eq!(ask("bob", &status), "000");
    for name in ["bob.pem", "bob.key"] {
        fs::copy(other.file(name), folder.file(name)).expect("it is copied");
    }
    assert_eq!(ask("bob", &status), "200", "{good}");
}

#[test]
fn metrics_are_told_under_an_address_or_a_listed_name() {
    let folder = Folder::new("metrics-names");
    let config = folder.config("[metrics]\nnames = [\"nat1.example.net\"]");
    let gateway = Gateway::start(command("ip link set lo up", &config, &[]));
    for (host, status) in [
        ("127.0.0.1:9464", "200"),
        ("192.0.2.7", "200"),
        ("[::1]:9464", "200"),
        ("localhost:9464", "200"),
        ("NAT1.example.net:9464", "200"),
        ("evil.example", "421"),
        ("evil.example:9464", "421"),
        ("127.0.0.1.evil.example", "421"),
    ] {
        let got = gateway.asks(&format!(
            "curl -sS -o /dev/null -w '%{{http_code}}' -H 'Host: {host}' \
             http://127.0.0.1:9464/metrics"
        ));
        assert_eq!(got, status, "{host}");
    }
    let said = gateway.asks("curl -sS -H 'Host: evil.example' http://127.0.0.1:9464/metrics");
    parts(&said, &["evil.example", "metrics.names"]);
    let page = gateway.asks("curl -sS http://127.0.0.1:9464/metrics");
    parts(&page, &["\nnatgate_control_panics_total 0\n"]);
}
