//! `natgate reload`, SIGHUP and the control socket, as their users meet them.
//!
//! The gateway has a network namespace of its own, which goes with the process in it. Needs root,
//! iproute2 and util-linux, and fails without. What becomes of mappings is tested in the engine and
//! the gateway.

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway with a folder of its own, both of which go with it.
struct Gateway {
    folder: PathBuf,
    child: Child,
    said: Receiver<String>,
}

impl Gateway {
    fn start(test: &str) -> Self {
        Self::start_with(test, "")
    }

    fn start_with(test: &str, more: &str) -> Self {
        let name = format!("natgate-reload-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("the folder can be made");
        let script = "set -e
            ip link add name in0 type veth peer name in1
            ip link add name out0 type veth peer name out1
            ip link add name more0 type veth peer name more1
            for device in in0 in1 out0 out1 more0 more1; do ip link set $device up; done
            exec \"$@\"";
        let config = folder.join("natgate.toml");
        fs::write(&config, text(&folder, more)).expect("the file can be written");
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_natgate"), "run", "-c"])
            .arg(&config)
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let errors = child.stderr.take().expect("standard error is piped");
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let gateway = Self { folder, child, said };
        gateway.hears("running");
        gateway
    }

    /// The next line that contains `what`.
    fn hears(&self, what: &str) -> String {
        let begin = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            let line = self.said.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("{what:?} was never said"));
            if line.contains(what) {
                return line;
            }
        }
    }

    fn configure(&self, more: &str) {
        let text = text(&self.folder, more);
        fs::write(self.folder.join("natgate.toml"), text).expect("the file can be written");
    }

    fn reload(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_natgate"))
            .args(["reload", "--socket"])
            .arg(self.folder.join("control.sock"))
            .args(arguments)
            .output()
            .expect("natgate runs")
    }

    /// What a reload that is done says with --json.
    fn reloaded(&self, arguments: &[&str]) -> Value {
        let output = self.reload(&[&["--json"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill runs");
        assert!(status.success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.signal("TERM");
        let _ = self.child.wait();
        let left = self.folder.join("control.sock").exists();
        let _ = fs::remove_dir_all(&self.folder);
        assert!(std::thread::panicking() || !left, "the socket goes with the gateway");
    }
}

fn text(folder: &std::path::Path, more: &str) -> String {
    let socket = folder.join("control.sock");
    format!(
        "[inside]\ndevice = \"in0\"\naddress = \"10.0.0.1/8\"\n\
         [outside]\ndevice = \"out0\"\naddress = \"192.0.2.1/24\"\n\
         [control]\nsocket = \"{}\"\n\
         [[pool]]\naddresses = [\"203.0.113.1\"]\n{more}\n",
        socket.display()
    )
}

#[test]
fn a_new_configuration_comes_into_force_and_a_wrong_one_does_not() {
    let gateway = Gateway::start("force");
    assert_eq!(gateway.reloaded(&[])["changed"], json!([]));

    gateway.configure("[timeouts]\nudp = \"3m\"");
    let tried = gateway.reloaded(&["--dry-run"]);
    assert_eq!((&tried["dry_run"], &tried["changed"]), (&json!(true), &json!(["timeouts"])));
    let done = gateway.reloaded(&[]);
    assert_eq!((&done["dry_run"], &done["changed"]), (&json!(false), &json!(["timeouts"])));
    assert_eq!(done["mappings"]["go"], 0);
    assert_eq!(gateway.reloaded(&[])["changed"], json!([]), "it is in force");

    gateway.configure("[timeouts]\nudp = \"3x\"\n[nat]\nfoo = 1");
    let refused = gateway.reload(&[]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    let checked = Command::new(env!("CARGO_BIN_EXE_natgate"))
        .arg("check")
        .arg(gateway.folder.join("natgate.toml"))
        .output()
        .expect("natgate runs");
    assert_eq!(errors, String::from_utf8_lossy(&checked.stderr), "as check prints them");
    assert_eq!(errors.lines().count(), 2);

    gateway.configure("[timeouts]\nudp = \"3m\"\n[limits]\nmappings = 1000");
    let refused = gateway.reload(&[]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    let place = ":14:12: limits.mappings: changes only at a restart";
    assert!(errors.contains(place), "{errors}");

    gateway.configure("[timeouts]\nudp = \"3m\"");
    assert_eq!(gateway.reloaded(&[])["changed"], json!([]), "the old one was in force throughout");
}

#[test]
fn realms_come_go_and_change() {
    let realms = |rest: &str| {
        let red = "[[realm]]\nname = \"red\"\nvlan = 100\naddress = \"10.0.0.1/8\"\n";
        let blue = format!("[[realm]]\nname = \"blue\"\naddress = \"10.0.0.2/8\"\n{rest}");
        format!("{red}{blue}")
    };
    let fixed = "[[static]]\nrealm = \"red\"\ninternal = \"10.0.0.80:80\"\n\
                 external = \"203.0.113.1:80\"\nprotocol = \"tcp\"\n";
    let gateway = Gateway::start_with("realms", &(realms("vlan = 200\n") + fixed));
    let changed = |text: &str| {
        gateway.configure(text);
        let mut reloaded = gateway.reloaded(&[]);
        let mut changed = reloaded["changed"].take();
        changed.as_array_mut().expect("a list").sort_by_key(|key| key.to_string());
        (changed, reloaded["mappings"]["go"].clone())
    };
    let more = "vlan = 200\nsubscribers = [\"10.1.0.0/16\"]\nhairpin_to = [\"red\"]\n\
         [[rule]]\nrealm = \"red\"\nkind = \"drop\"\nmatch.source = \"10.9.0.0/16\"\n";
    assert_eq!(changed(&(realms(more) + fixed)), (json!(["realm", "rule"]), json!(0)));
    for text in ["vlan = 201\n", "vlan = 201\nmtu = 1400\n", "device = \"more0\"\n"] {
        let (changed, gone) = changed(&(realms(text) + fixed));
        assert_eq!(changed[0], json!("realm"));
        assert_eq!(gone, json!(0));
    }
    let route = "[[route]]\nrealm = \"red\"\nprefix = \"172.16.0.0/24\"\nvia = \"10.0.0.9\"\n";
    let with_route = format!("{}{fixed}{route}", realms("vlan = 201\n"));
    assert_eq!(changed(&with_route), (json!(["realm", "route"]), json!(0)));
    // A dry run tells what goes with a realm, by the realm's name.
    let blue = "[[realm]]\nname = \"blue\"\naddress = \"10.0.0.2/8\"\nvlan = 200\n";
    gateway.configure(blue);
    let tried = gateway.reloaded(&["--dry-run"]);
    assert_eq!(
        tried["mappings"],
        json!({ "stay": 0, "go": 1, "by_reason":
        { "not_subscriber": 0, "pool": 0, "displaced": 0, "static": 1 } })
    );
    assert_eq!(tried["named"][0]["realm"], json!("red"));
    let (tables, gone) = changed(blue);
    assert_eq!((tables, gone), (json!(["realm", "route", "static"]), json!(1)));
    // Its name is another's to have, and its VLAN.
    let green = blue.replace("blue", "green").replace("200", "100");
    assert_eq!(changed(&(blue.to_owned() + &green)), (json!(["realm"]), json!(0)));
    gateway.configure(&blue.replace("vlan = 200", "device = \"nowhere0\""));
    let refused = gateway.reload(&[]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    assert!(errors.contains("nowhere0"), "{errors}");
    assert_eq!(changed(""), (json!(["realm"]), json!(0)));
}

#[test]
fn sighup_reloads_and_says_so() {
    let gateway = Gateway::start("hup");
    gateway.configure("[[rule]]\nkind = \"drop\"\nmatch = { source = \"10.9.0.0/16\" }");
    gateway.signal("HUP");
    let said = gateway.hears("reloaded");
    assert_eq!(said, "natgate: reloaded, with other rule; 0 mappings stay, 0 go");
    gateway.configure("[nat]\nmapping = \"address-dependent\"");
    gateway.signal("HUP");
    assert!(gateway.hears("nat.mapping").contains("changes only at a restart"));
    gateway.hears("the one in force stays");
}

#[test]
fn scripts_may_speak_to_the_socket() {
    let gateway = Gateway::start("scripts");
    let ask = |request: &str| {
        let path = gateway.folder.join("control.sock");
        let mut stream = UnixStream::connect(path).expect("the gateway listens");
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let answer = ask("POST /v1/reload HTTP/1.1\r\nHost: natgate\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"ok\":true"),
        "{answer}"
    );
    for (request, status) in [
        ("GET /v1/reload HTTP/1.1\r\n\r\n", 405),
        ("POST /v2/reload HTTP/1.1\r\n\r\n", 404),
        ("POST /v1/reload HTTP/1.1\r\nContent-Length: 7\r\n\r\n{\"a\":1}", 400),
    ] {
        let answer = ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("\"ok\":false"), "{answer}");
    }
}

#[test]
fn a_gateway_that_cannot_be_reached_is_no_fault_of_the_input() {
    let output = Command::new(env!("CARGO_BIN_EXE_natgate"))
        .args(["reload", "--socket", "/nonexistent/control.sock"])
        .output()
        .expect("natgate runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("/nonexistent/control.sock cannot be reached"), "{errors}");
}
