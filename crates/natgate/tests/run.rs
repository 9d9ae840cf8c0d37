//! `natgate run` as its user meets it: refusals, readiness, signals, files.
//!
//! Each test has a network namespace of its own, which goes with the process in it. Needs root,
//! iproute2 and util-linux, and fails without. What packets undergo is tested in `namespaces.rs`.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

const GOOD: &str = r#"
[inside]
device = "in0"
address = "10.0.0.1/8"
[outside]
device = "out0"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
"#;

/// A folder of a test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("natgate-run-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn config(&self, text: &str) -> PathBuf {
        let path = self.file("natgate.toml");
        fs::write(&path, text).expect("the file can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `natgate run` in a new namespace with two links, in0 and out0, after `setup` has been done.
fn command(setup: &str, config: &Path, arguments: &[&str]) -> Command {
    let script = format!(
        "set -e
        ip link add name in0 type veth peer name in1
        ip link add name out0 type veth peer name out1
        for device in in0 in1 out0 out1; do ip link set $device up; done
        for device in in0 out0; do
            until ip link show $device | grep -q 'state UP'; do sleep 0.01; done
        done
        {setup}
        exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_natgate"), "run", "-c"]);
    command.arg(config).args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What a run that must not come about says, and its exit code.
fn refusal(test: &str, setup: &str, text: &str) -> (i32, String) {
    let folder = Folder::new(test);
    let output: Output = command(setup, &folder.config(text), &[]).output().expect("unshare runs");
    let said = String::from_utf8(output.stderr).expect("messages are text");
    assert!(output.stdout.is_empty());
    (output.status.code().expect("an exit code"), said.trim_end().to_owned())
}

/// A running gateway.
struct Gateway {
    child: Child,
    said: Receiver<String>,
}

impl Gateway {
    fn start(setup: &str, config: &Path, arguments: &[&str]) -> Self {
        let gateway = Self::spawn(setup, config, arguments);
        assert_eq!(gateway.hears("running"), "natgate: running, inside in0, outside out0");
        gateway
    }

    fn spawn(setup: &str, config: &Path, arguments: &[&str]) -> Self {
        let mut child = command(setup, config, arguments).spawn().expect("unshare runs");
        let errors = child.stderr.take().expect("standard error is piped");
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, said }
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

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Does something in the gateway's namespace.
    fn does(&self, script: &str) {
        let id = self.child.id().to_string();
        let arguments = ["--net", "--target", &id, "sh", "-ec", script];
        let status = Command::new("nsenter").args(arguments).status().expect("nsenter runs");
        assert!(status.success(), "{script}");
    }

    /// Waits for its end; returns its exit code.
    fn ends(&mut self) -> i32 {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status.code().expect("an exit code");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it did not end");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status file once it is there.
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
    let said = refused("mtu", "device = \"out0\"", "device = \"out0\"\nmtu = 9000");
    assert!(said.contains("outside.mtu is 9000, but device \"out0\" carries 1500"), "{said}");
    let said = refused("address", "address = \"192.0.2.1/24\"", "");
    assert!(said.contains("outside.address is missing and device \"out0\" has none"), "{said}");
    let said = refused("twice", "\"out0\"", "\"in0\"");
    assert!(said.contains("outside.device"), "{said}");
    let limits = "[limits]\nmappings = 1073741824\nfragment_memory = \"1TiB\"\n[[pool]]";
    let said = refused("memory", "[[pool]]", limits);
    assert!(said.contains("natgate.toml: the configuration needs 1."), "{said}");
    assert!(said.contains(" TiB of memory and the machine has "), "{said}");
    assert!(said.ends_with("; lower limits.mappings or limits.extra_sessions"), "{said}");
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
fn both_ending_signals_end_it_with_code_0_and_the_counters() {
    for signal in ["TERM", "INT"] {
        let folder = Folder::new(signal);
        let mut gateway = Gateway::start("", &folder.config(GOOD), &[]);
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
    let gateway = Gateway::start("", &folder.config(GOOD), &["--status-file", argument]);
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
    let config = folder.config(&GOOD.replace("address = \"192.0.2.1/24\"", ""));
    let setup = "ip addr add 192.0.2.77/24 dev out0";
    let gateway = Gateway::spawn(setup, &config, &[]);
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
    let mut gateway = Gateway::start("", &folder.config(GOOD), &["--status-file", argument]);
    gateway.does("ip link set out0 down");
    gateway.hears("outside device out0 is down");
    gateway.does("ip link set out0 up");
    gateway.hears("outside device out0 is up");
    gateway.does("ip link delete out0");
    gateway.hears("outside device out0 is gone");
    gateway.does(
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
    let config = folder.config(GOOD);
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
    // A socket of its own: at the usual place another test's gateway may be.
    let socket = folder.file("control.sock").display().to_string();
    let with_state = |path: &Path| {
        let path = path.display().to_string();
        format!("{GOOD}[control]\nsocket = {socket:?}\n[state]\nfile = {path:?}\n")
    };
    let (code, said) = refusal("state-refused", "", &with_state(Path::new("/nonexistent/ports")));
    assert!(code == 1 && said.contains("/nonexistent/ports cannot be written"), "{said}");
    fs::write(&path, "a letter").expect("the file can be written");
    let (code, said) = refusal("state-refused", "", &with_state(&path));
    assert!(code == 1 && said.contains("was not written by natgate"), "{said}");

    let config = folder.config(&with_state(&path));
    for content in ["", "NATPORTS?"] {
        fs::write(&path, content).expect("the file can be written");
        let mut gateway = Gateway::spawn("", &config, &[]);
        assert!(gateway.hears("state.file").contains("is damaged (it ends too early)"));
        gateway.hears("running");
        gateway.signal("TERM");
        assert_eq!(gateway.ends(), 0);
    }
    // What the end has written is no damage: the next start has nothing to say of it.
    let gateway = Gateway::spawn("", &config, &[]);
    assert!(gateway.said.recv_timeout(PATIENCE).is_ok_and(|said| said.contains("running")));
}

#[test]
fn help_has_an_example() {
    let output = Command::new(env!("CARGO_BIN_EXE_natgate")).args(["run", "--help"]).output();
    let help = String::from_utf8(output.expect("it runs").stdout).expect("help is text");
    let example = |line: &str| line.trim_start().starts_with("natgate run -c");
    assert!(help.lines().any(example), "{help}");
}
