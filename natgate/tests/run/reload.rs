//! `natgate reload`, SIGHUP and the control socket, from the user's view. The tests of engine and
//! gateway cover the fate of mappings.

use crate::gateway::{Folder, Gateway, PROGRAM};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

/// A gateway with a third link, more0, and the folder of its configuration.
struct ConfiguredGateway {
    folder: Folder,
    process: Gateway,
}

impl ConfiguredGateway {
    fn start(test: &str, more: &str) -> Self {
        let (folder, process) = Gateway::start_with_third_link(Folder::new(test), more);
        Self { folder, process }
    }

    fn configure(&self, more: &str) {
        self.folder.config(more);
    }

    fn reload(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM)
            .args(["reload", "--socket"])
            .arg(self.folder.socket())
            .args(arguments)
            .output()
            .expect("natgate runs")
    }

    /// Checks that a dry run and a reload refuse a configuration in the same words.
    fn refuses_alike(&self, more: &str, why: &str) {
        self.configure(more);
        let [tried, done] = [&["--dry-run"][..], &[]].map(|arguments| {
            let output = self.reload(arguments);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {more} {errors}");
            errors
        });
        assert_eq!(tried, done, "{more}");
        assert!(done.contains(why), "{done}");
    }

    /// JSON of a successful reload.
    fn reloaded(&self, arguments: &[&str]) -> Value {
        let output = self.reload(&[&["--json"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Ends the gateway and its socket.
    fn ends(mut self) {
        self.process.signal("TERM");
        assert_eq!(self.process.ends(), 0);
        assert!(!self.folder.socket().exists());
    }
}

#[test]
fn a_new_configuration_comes_into_force_and_a_wrong_one_does_not() {
    let gateway = ConfiguredGateway::start("force", "");
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
    let checked = Command::new(PROGRAM)
        .arg("check")
        .arg(gateway.folder.file("natgate.toml"))
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
fn event_logs_come_and_go_and_a_bad_one_refuses_the_whole() {
    let gateway = ConfiguredGateway::start("logs", "");
    let file = |name: &str| gateway.folder.file(name);
    let log =
        |name: &str| format!("[[log]]\nkind = \"file\"\npath = \"{}\"\n", file(name).display());
    gateway.configure(&(log("one.jsonl") + "[timeouts]\nudp = \"3m\"\n"));
    let tried = gateway.reloaded(&["--dry-run"]);
    assert_eq!(tried["changed"], json!(["timeouts", "log"]));
    assert!(!file("one.jsonl").exists(), "a trial leaves nothing");
    assert_eq!(gateway.reloaded(&[])["changed"], json!(["timeouts", "log"]));
    assert!(file("one.jsonl").exists());
    gateway.configure(&(log("two.jsonl") + &log("no/such/folder/three.jsonl")));
    let refused = gateway.reload(&[]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    assert!(errors.contains("three.jsonl cannot be opened: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    fs::create_dir(file("folder")).expect("a folder");
    gateway.refuses_alike(&log("no/such/folder/three.jsonl"), "mkdir -p");
    gateway.refuses_alike(&log("one.jsonl/three.jsonl"), "is no directory");
    gateway.refuses_alike(&log("folder"), "name a file in it");
    let spool = |name: &str| log(name).replace("\"file\"", "\"spool\"").replace("path", "folder");
    gateway.refuses_alike(&spool("one.jsonl"), "is no directory");
    gateway.refuses_alike(&spool("one.jsonl/spool"), "is no directory");
    // The former timeout and log stay in force.
    gateway.configure(&(log("one.jsonl") + "[timeouts]\nudp = \"3m\"\n"));
    assert_eq!(gateway.reloaded(&[])["changed"], json!([]));
    // Sessions are logged as soon as a log requests them.
    gateway.configure(&(log("two.jsonl") + "what = \"sessions\"\n[timeouts]\nudp = \"3m\"\n"));
    assert_eq!(gateway.reloaded(&[])["changed"], json!(["nat", "log"]));
    gateway.configure("[timeouts]\nudp = \"3m\"\n");
    assert_eq!(gateway.reloaded(&[])["changed"], json!(["nat", "log"]));
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
    let gateway = ConfiguredGateway::start("realms", &(realms("vlan = 200\n") + fixed));
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
    // A dry run reports the effects of removing a realm, by the realm's name.
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
    // Another realm may have the removed realm's name and VLAN.
    let green = blue.replace("blue", "green").replace("200", "100");
    assert_eq!(changed(&(blue.to_owned() + &green)), (json!(["realm"]), json!(0)));
    gateway.refuses_alike(&blue.replace("vlan = 200", "device = \"nowhere0\""), "nowhere0");
    assert_eq!(changed(""), (json!(["realm"]), json!(0)));
}

#[test]
fn sighup_reloads_and_says_so() {
    let gateway = ConfiguredGateway::start("hup", "");
    gateway.configure("[[rule]]\nkind = \"drop\"\nmatch = { source = \"10.9.0.0/16\" }");
    gateway.process.signal("HUP");
    let said = gateway.process.hears("reloaded");
    let result =
        "natgate: change by SIGHUP: reload: reloaded, with other rule; 0 mappings stay, 0 go; ";
    assert!(said.starts_with(result), "{said}");
    assert!(
        said.ends_with("rule: (none) -> { kind = \"drop\", match = { source = \"10.9.0.0/16\" } }"),
        "{said}"
    );
    gateway.configure("[nat]\nmapping = \"address-dependent\"");
    gateway.process.signal("HUP");
    assert!(gateway.process.hears("nat.mapping").contains("changes only at a restart"));
    gateway.process.hears("the one in force stays");
    gateway.ends();
}

#[test]
fn scripts_may_speak_to_the_socket() {
    let gateway = ConfiguredGateway::start("scripts", "");
    let ask = |request: &str| {
        let path = gateway.folder.socket();
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
    let output = Command::new(PROGRAM)
        .args(["reload", "--socket", "/nonexistent/control.sock"])
        .output()
        .expect("natgate runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("/nonexistent/control.sock cannot be reached"), "{errors}");
}
