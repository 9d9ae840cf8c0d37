//! `natgate run` as a service: notifications to the service manager, lines in the journal, its end,
//! its capabilities, and its errors about missing files.
//!
//! A datagram socket of the test replaces the service manager.

use crate::gateway::{Folder, Gateway, PATIENCE, PROGRAM, command};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/systemd/natgate.service");

/// Replacement of the service manager.
struct Manager(UnixDatagram, PathBuf);

impl Manager {
    fn new(folder: &Folder) -> Self {
        let path = folder.file("notify");
        let socket = UnixDatagram::bind(&path).expect("the socket can be made");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
        Self(socket, path)
    }

    /// Next notification.
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let len = self.0.recv(&mut bytes).expect("something is told in time");
        String::from_utf8(bytes[..len].to_vec()).expect("text")
    }

    /// Next notification that has a line.
    fn hears(&self, line: &str) -> String {
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < PATIENCE, "{line:?} was never told");
            let told = self.next();
            if told.lines().any(|one| one == line || line.ends_with('=') && one.starts_with(line)) {
                return told;
            }
        }
    }
}

#[test]
fn the_service_manager_is_told_what_happens() {
    let folder = Folder::new("told");
    let manager = Manager::new(&folder);
    let config = folder.config("");
    let mut command = command("", &config, &[]);
    command.env("NOTIFY_SOCKET", &manager.1).env("WATCHDOG_USEC", "4000000");
    let mut gateway = Gateway::spawn(command);
    assert!(manager.hears("READY=1").contains("STATUS=translating\n"));
    let alive = manager.hears("WATCHDOG=1");
    assert!(alive.contains("STATUS=0 mappings\n"), "{alive}");
    for more in ["[nat]\ntcp_mss = 1400\n", "[nat]\nmistake = 1\n"] {
        folder.config(more);
        gateway.signal("HUP");
        let reloading = manager.hears("RELOADING=1");
        assert!(reloading.lines().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading}");
        manager.hears("READY=1");
    }
    manager.hears("WATCHDOG=1");
    gateway.signal("TERM");
    let stopping = manager.hears("STOPPING=1");
    assert!(stopping.contains("STATUS=stopping\n") && stopping.contains("EXTEND_TIMEOUT_USEC="));
    assert_eq!(gateway.ends(), 0);
}

/// Threads of a process with this name.
fn threads(process: u32, name: &str) -> Vec<i32> {
    let folder = fs::read_dir(format!("/proc/{process}/task")).expect("the process is there");
    let named = folder.filter_map(|entry| {
        let path = entry.ok()?.path();
        let own = fs::read_to_string(path.join("comm")).ok()?;
        (own.trim_end() == name).then(|| path.file_name()?.to_str()?.parse().ok())?
    });
    named.collect()
}

/// A thread that is stopped until this is dropped.
struct Hanging(i32);

impl Hanging {
    fn new(thread: i32) -> Self {
        // SAFETY: no memory is passed; the thread belongs to a process that the test has started.
        let attached = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) };
        assert_eq!(attached, 0, "a tracer needs root");
        // SAFETY: as above.
        let interrupted = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) };
        assert_eq!(interrupted, 0);
        // SAFETY: the call writes nothing without a pointer.
        let waited = unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
        assert_eq!(waited, thread);
        Self(thread)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // SAFETY: as at the attach. If the thread has ended, the call does nothing.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

#[test]
fn the_watchdog_is_not_told_of_progress_while_one_worker_hangs() {
    let folder = Folder::new("hangs");
    let manager = Manager::new(&folder);
    let config = folder.config("[workers]\ncount = 2\n");
    let mut command = command("", &config, &[]);
    command.env("NOTIFY_SOCKET", &manager.1).env("WATCHDOG_USEC", "4000000");
    let gateway = Gateway::spawn(command);
    manager.hears("READY=1");
    manager.hears("WATCHDOG=1");
    let workers = threads(gateway.id(), "worker");
    assert_eq!(workers.len(), 2);
    let hanging = Hanging::new(workers[1]);
    // One check may have seen the worker's last turn.
    while !manager.next().contains("no progress of worker") {}
    for _ in 0..3 {
        let told = manager.next();
        assert!(told.contains("no progress of worker") && !told.contains("WATCHDOG"), "{told}");
    }
    drop(hanging);
    manager.hears("WATCHDOG=1");
    assert!(gateway.hears("warning").contains("no progress of worker"));
}

#[test]
fn a_gateway_withdraws_its_routes_drains_and_ends() {
    let folder = Folder::new("drains");
    let config = folder.config("[announce]\n[shutdown]\ndrain = \"10m\"\n");
    let status = folder.file("status.json");
    let argument = status.to_str().expect("text");
    let mut gateway = Gateway::spawn(command("", &config, &["--status-file", argument]));
    gateway.hears("running");
    let routes = || gateway.asks("ip route show type blackhole");
    let begin = Instant::now();
    while !routes().contains("203.0.113.1") {
        assert!(begin.elapsed() < PATIENCE, "nothing was announced");
    }
    gateway.signal("TERM");
    gateway.hears("draining for 600s; another SIGTERM ends it at once");
    assert_eq!(routes(), "");
    // Later events bring no route back, and packets are still processed.
    gateway.asks("ip link set in1 down");
    gateway.hears("inside device in0 is down");
    gateway.asks("ip link set in1 up");
    gateway.hears("inside device in0 is up");
    gateway.signal("USR1");
    while !status.exists() {
        assert!(begin.elapsed() < PATIENCE, "no status was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(routes(), "");
    gateway.signal("TERM");
    gateway.hears("stopped");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn a_drain_ends_by_itself_and_a_reload_may_change_it() {
    let folder = Folder::new("reload");
    let config = folder.config("[shutdown]\ndrain = \"10m\"\n");
    let mut gateway = Gateway::spawn(command("", &config, &[]));
    gateway.hears("running");
    folder.config("[shutdown]\ndrain = \"20ms\"\n");
    gateway.signal("HUP");
    gateway.hears("shutdown");
    gateway.signal("TERM");
    gateway.hears("draining for 20ms");
    gateway.hears("stopped");
    assert_eq!(gateway.ends(), 0);
}

#[test]
fn a_drain_out_of_bounds_is_refused() {
    let folder = Folder::new("bounds");
    let config = folder.config("[shutdown]\ndrain = \"11m\"\n");
    let output = command("", &config, &[]).output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("shutdown.drain: 11m is out of bounds; it must be from 0s to 10m"),
        "{said}"
    );
}

#[test]
fn the_journal_gets_priorities() {
    let folder = Folder::new("journal");
    let config = folder.config("");
    let setup = "ip addr add 192.0.2.1/24 dev out0
        export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)";
    let gateway = Gateway::spawn(command(setup, &config, &[]));
    assert!(gateway.hears("warning").starts_with("<4>warning: the kernel has address 192.0.2.1"));
    assert_eq!(gateway.hears("running"), "<6>running, inside in0, outside out0");
    drop(gateway);
    let broken = folder.config("[nat]\nmistake = 1\n");
    let output = command(setup, &broken, &[]).output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("<3>") && said.contains("mistake"), "{said}");
    // An inherited variable that is no longer valid changes nothing.
    let inherited = "export JOURNAL_STREAM=1:1";
    let output = command(inherited, &broken, &[]).output().expect("unshare runs");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("natgate: "));
}

/// Values of a key in the unit.
fn of_unit(key: &str) -> Vec<String> {
    let unit = fs::read_to_string(UNIT).expect("the unit is there");
    let found = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
    found.unwrap_or_else(|| panic!("{key} is set")).split(' ').map(str::to_owned).collect()
}

#[test]
fn the_units_capabilities_do_without_root() {
    let names: Vec<String> = of_unit("AmbientCapabilities")
        .iter()
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let all = names.join(",");
    for backend in ["af-packet", "af-xdp", "tun"] {
        let folder = Folder::new(backend);
        // The socket of the test's configuration is in a folder of another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        let config = folder.config("");
        let device = if backend == "tun" { "tun7" } else { "in0" };
        let text = fs::read_to_string(&config).expect("it is there");
        let named = format!("device = \"{device}\"\nbackend = \"{backend}\"");
        fs::write(&config, text.replace("device = \"in0\"", &named)).expect("it is ours");
        let setup = format!(
            "exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \
             --bounding-set=-all,{all} --inh-caps=-all,{all} --ambient-caps=-all,{all} \"$@\""
        );
        let mut gateway = Gateway::spawn(command(&setup, &config, &[]));
        let running = gateway.hears("running");
        assert_eq!(running, format!("natgate: running, inside {device}, outside out0"));
        let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
        let user = status.lines().find(|line| line.starts_with("Uid:")).expect("a user");
        assert_eq!(user.split_whitespace().nth(1), Some("65534"), "{user}");
        gateway.signal("TERM");
        assert_eq!(gateway.ends(), 0);
    }
}

#[test]
fn the_unit_is_sound_and_little_is_exposed() {
    let folder = Folder::new("unit");
    let unit = fs::read_to_string(UNIT).expect("the unit is there");
    let path = folder.file("natgate.service");
    // The path of the built program, which is not installed.
    fs::write(&path, unit.replace("/usr/bin/natgate", PROGRAM)).expect("it is ours");
    let analyze = |arguments: &[&str]| -> Output {
        let mut command = Command::new("systemd-analyze");
        command
            .args(arguments)
            .arg(&path)
            .output()
            .expect("systemd-analyze runs: apt-get install systemd")
    };
    let verified = analyze(&["verify", "--man=no"]);
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
    // In tenths; the back ends and the control socket need 2.6.
    let exposed = analyze(&["security", "--offline=true", "--threshold=27"]);
    let said = String::from_utf8_lossy(&exposed.stdout);
    assert!(exposed.status.success(), "{}", said.lines().last().unwrap_or_default());
}

#[test]
fn files_that_cannot_be_had_are_said_with_the_remedy() {
    let refusal = |test: &str, setup: &str, more: &str, arguments: &[&str]| {
        let folder = Folder::new(test);
        let config = folder.config(more);
        let output = command(setup, &config, arguments).output().expect("unshare runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        said
    };
    let said = refusal("absent", "", "", &["--events", "/nonexistent/events.jsonl"]);
    let expected = "natgate: --events: /nonexistent/events.jsonl cannot be opened: there is no \
                    directory /nonexistent; make it with `mkdir -p /nonexistent`\n";
    assert_eq!(said, expected);
    let said = refusal("tap", "", "", &["--tap", "/nonexistent/a.pcapng"]);
    assert!(said.contains("--tap: ") && said.contains("`mkdir -p /nonexistent`"), "{said}");
    let said = refusal("folder", "", "", &["--events", "/tmp"]);
    assert!(said.contains("it is a directory; name a file in it"), "{said}");
    let state = "[state]\nfile = \"/nonexistent/ports\"\n";
    let said = refusal("state", "", state, &[]);
    assert!(said.contains("name a file in a directory that exists and may be written"), "{said}");
    let mine = "exec setpriv --reuid=65534 --regid=65534 --clear-groups \
                --inh-caps=+net_admin,+net_raw --ambient-caps=+net_admin,+net_raw \"$@\"";
    let said = refusal("rights", mine, "", &["--events", "/root-only.jsonl"]);
    assert!(said.contains("this user may not; `ls -ld /` shows who may"), "{said}");
    let said = refusal("socket", mine, "", &[]);
    assert!(
        said.contains("control.socket") && said.contains("this user may not; `ls -ld"),
        "{said}"
    );
}

#[test]
fn a_second_gateway_at_one_socket_is_refused_and_the_first_goes_on() {
    let folder = Folder::new("twice");
    let config = folder.config("");
    let mut first = Gateway::spawn(command("", &config, &[]));
    first.hears("running");
    let output = command("", &config, &[]).output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("another natgate listens there; give each a socket of its own"),
        "{said}"
    );
    first.signal("TERM");
    assert_eq!(first.ends(), 0);
}

#[test]
fn a_full_disk_is_told_and_packets_go_on() {
    let folder = Folder::new("full");
    let config = folder.config("[[static]]\ninternal = \"10.0.0.9\"\nexternal = \"203.0.113.9\"\n");
    let mount = folder.file("small");
    fs::create_dir(&mount).expect("it is ours");
    // A file system of one page, which a file fills.
    let setup = format!(
        "mount -t tmpfs -o size=4k none {0}
        head -c 4096 /dev/zero >{0}/fill",
        mount.display()
    );
    let status = mount.join("status.json");
    let argument = status.to_str().expect("text");
    let command = command(&setup, &config, &["--status-file", argument]);
    let mut gateway = Gateway::spawn(command);
    gateway.hears("running");
    gateway.signal("USR1");
    let said = gateway.hears("warning");
    assert!(said.contains("status.json cannot be written: the disk is full; `df "), "{said}");
    gateway.signal("TERM");
    assert_eq!(gateway.ends(), 0);
}
