//! The unit under a real systemd.

use crate::gateway::{PATIENCE, PROGRAM};
use crate::machine::Machine;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");

/// The unit, its user's definition and the program, without the rest of the package.
const PREPARE: &str = "
    mkdir -p $root/etc/natgate $root/usr/lib/sysusers.d
    cp $packaging/systemd/natgate.service $root/lib/systemd/system/
    cp $packaging/systemd/natgate.sysusers $root/usr/lib/sysusers.d/natgate.conf
    touch $root/usr/bin/natgate
    mount --bind $program $root/usr/bin/natgate";

/// Devices and user of the unit.
const SETUP: &str = "
    for name in in out; do
        ip link add name ${name}0 type veth peer name ${name}1
        ip link set ${name}0 up; ip link set ${name}1 up
    done
    systemd-sysusers /usr/lib/sysusers.d/natgate.conf";

/// A machine with the unit, which is not started yet.
fn start() -> Machine {
    let places = [("packaging", Path::new(PACKAGING)), ("program", Path::new(PROGRAM))];
    let machine = Machine::start(PREPARE, &places);
    machine.asks(SETUP);
    machine
}

impl Machine {
    /// A property of the unit.
    fn property(&self, name: &str) -> String {
        self.asks(&format!("systemctl show natgate --value --property {name}"))
    }

    fn waits(&self, name: &str, value: &str) {
        let begin = Instant::now();
        while self.property(name) != value {
            assert!(
                begin.elapsed() < PATIENCE,
                "{name} does not become {value}: {}",
                self.journal()
            );
            sleep(Duration::from_millis(50));
        }
    }

    fn configure(&self, inside: &str, more: &str) {
        let text = format!(
            "[inside]\n{inside}\naddress = \"10.0.0.1/8\"\n\
             [outside]\ndevice = \"out0\"\naddress = \"192.0.2.1/24\"\n\
             [[pool]]\naddresses = [\"203.0.113.1\"]\n\
             [state]\nfile = \"/var/lib/natgate/ports\"\n\
             [[log]]\nkind = \"spool\"\nfolder = \"/var/lib/natgate/spool\"\n\
             [[log]]\nkind = \"file\"\npath = \"/var/log/natgate/events.jsonl\"\n{more}"
        );
        self.asks(&format!("cat >/etc/natgate/natgate.toml <<'END'\n{text}\nEND"));
    }

    /// Writes another drop-in.
    fn edit(&self, text: &str) {
        let folder = "/etc/systemd/system/natgate.service.d";
        self.asks(&format!(
            "mkdir -p {folder}; printf '[Service]\n{text}\n' >{folder}/test.conf; \
             systemctl daemon-reload"
        ));
    }
}

const USUAL: &str = "device = \"in0\"";

#[test]
fn systemd_starts_watches_reloads_and_stops_it() {
    let machine = start();
    // A missing configuration is no failure.
    machine.asks("systemctl start natgate");
    assert_eq!(
        (&machine.property("ActiveState")[..], &machine.property("ConditionResult")[..]),
        ("inactive", "no")
    );

    machine.configure(USUAL, "");
    machine.asks("systemctl start natgate");
    assert_eq!(machine.property("ActiveState"), "active");
    let owners = machine.asks("stat -c '%U %a' /run/natgate /var/lib/natgate /var/log/natgate");
    assert_eq!(owners, ["natgate 750"; 3].join("\n"));
    machine.asks("natgate show counters");
    let status = format!("/proc/{}/status", machine.property("MainPID"));
    let status = machine.asks(&format!("cat {status}"));
    let line =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    // NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON and BPF.
    assert_eq!((line("CapEff:"), line("CapBnd:")), ("000000c000007000", "000000c000007000"));
    assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1", "2"));

    // Members of the group have access; others get an error about it.
    let other = "setpriv --reuid=65534 --regid=65534";
    machine.asks(&format!("{other} --groups=$(id -g natgate) natgate show counters"));
    let refused = machine.does(&format!("{other} --clear-groups natgate show counters"));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("join the group, or use sudo"));

    // A reload succeeds or fails with its reason, with any name of the socket.
    machine.configure(USUAL, "[timeouts]\nudp = \"3m\"");
    machine.asks("systemctl reload natgate");
    assert!(machine.journal().contains("reloaded, with other timeouts"));
    machine.configure(USUAL, "[nat]\nmistake = 1");
    assert!(!machine.does("systemctl reload natgate").status.success());
    assert!(machine.journal().contains("nat.mistake: there is no such key"));
    assert_eq!(machine.property("ActiveState"), "active");
    machine.configure(USUAL, "[control]\nsocket = \"/run/natgate/other.sock\"");
    machine.asks("systemctl restart natgate; systemctl reload natgate");

    // Warnings have their priority, and no other line has it.
    machine.configure(USUAL, "[snmp]\nagentx = \"/nowhere/master\"\n[shutdown]\ndrain = \"2s\"");
    machine.asks("systemctl restart natgate");
    let warned = "journalctl --no-pager --output cat --unit natgate --priority warning";
    let begin = Instant::now();
    while !machine.asks(warned).contains("no SNMP agent") {
        assert!(begin.elapsed() < PATIENCE, "{}", machine.journal());
        sleep(Duration::from_millis(50));
    }
    assert!(!machine.asks(warned).contains("running, inside"));

    // The unit waits for a drain that is longer than its timeout.
    machine.edit("TimeoutStopSec=1s");
    machine.asks("systemctl stop natgate");
    assert_eq!(machine.property("Result"), "success", "{}", machine.journal());
    assert!(machine.journal().trim_end().contains("stopped; outbound"));
    machine.asks("test -s /var/lib/natgate/ports; test ! -e /run/natgate");
}

#[test]
fn systemd_starts_it_again_when_that_helps() {
    let machine = start();
    // The back ends work with the unit's permissions.
    for inside in ["device = \"in0\"\nbackend = \"af-xdp\"", "device = \"tun7\"\nbackend = \"tun\""]
    {
        machine.configure(inside, "");
        machine.asks("systemctl start natgate; systemctl stop natgate");
    }
    machine.configure(USUAL, "[workers]\ncount = 2");
    machine.edit("WatchdogSec=4s");
    machine.asks("systemctl start natgate");
    let kill =
        |signal: &str| machine.asks(&format!("kill -s {signal} {}", machine.property("MainPID")));
    kill("KILL");
    machine.waits("NRestarts", "1");
    machine.waits("ActiveState", "active");
    // The watchdog ends a process without progress.
    kill("STOP");
    machine.waits("NRestarts", "2");
    machine.waits("ActiveState", "active");

    // The unit waits for a late device without a limit.
    machine.edit("RestartSec=10ms");
    machine.configure("device = \"late0\"", "");
    assert!(!machine.does("systemctl restart natgate").status.success());
    let begin = Instant::now();
    while machine.journal().matches("there is no network device \"late0\"").count() < 12 {
        assert!(begin.elapsed() < PATIENCE, "it is given up: {}", machine.journal());
        sleep(Duration::from_millis(50));
    }
    machine.asks(
        "ip link add name late0 type veth peer name late1; ip link set late0 up; ip link set late1 \
         up",
    );
    machine.waits("ActiveState", "active");

    // A wrong configuration does not cause restarts.
    machine.configure(USUAL, "[nat]\nmistake = 1");
    assert!(!machine.does("systemctl restart natgate").status.success());
    machine.waits("ActiveState", "failed");
    assert_eq!(machine.property("ExecMainStatus"), "2");
}
