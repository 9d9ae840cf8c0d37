//! The unit under a real systemd: as process 1 of a namespace in which everything but the network and a
//! folder of the test's is this machine's, seen through a layer that takes what is written.
//!
//! Only journald, udev and natgate are started there. Needs systemd, iproute2, util-linux, a kernel with
//! overlay and cgroup2, and root.

use crate::scene::{Folder, PATIENCE, PROGRAM};
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

/// Where the test's own cgroup is mounted, to be entered and in the end removed.
const CGROUP: &str = "mount -t cgroup2 none $base/cgroup
    group=$base/cgroup/natgate-unit-$name";

/// What is done before systemd is process 1. Of the machine's own units none is there but those that
/// systemd brings.
const BOOT: &str = r#"
    mount -t tmpfs -o size=256m none $base/layer
    mkdir $base/layer/upper $base/layer/work
    mount -t overlay -o lowerdir=/,upperdir=$base/layer/upper,workdir=$base/layer/work none $root
    for place in run tmp dev; do mount -t tmpfs -o mode=755 none $root/$place; done
    for device in null zero full random urandom tty net/tun; do
        mkdir -p $(dirname $root/dev/$device)
        touch $root/dev/$device
        mount --bind /dev/$device $root/dev/$device
    done
    mkdir -p $root/dev/shm $root/dev/pts
    rm -rf $root/etc/systemd/system $root/etc/natgate
    mkdir -p $root/etc/systemd/system $root/etc/natgate $root/usr/lib/sysusers.d
    cp $packaging/systemd/natgate.service $root/lib/systemd/system/
    cp $packaging/systemd/natgate.sysusers $root/usr/lib/sysusers.d/natgate.conf
    touch $root/usr/bin/natgate
    mount --bind $program $root/usr/bin/natgate
    printf '[Unit]\nWants=systemd-journald.service\n' >$root/etc/systemd/system/only.target
    exec unshare --mount --pid --fork --kill-child --cgroup --net --uts --ipc sh -ec '
        mount -t proc none $root/proc
        mount -t sysfs none $root/sys
        mount -t cgroup2 none $root/sys/fs/cgroup
        for name in in out; do
            ip link add name ${name}0 type veth peer name ${name}1
            ip link set ${name}0 up; ip link set ${name}1 up
        done
        ip link set lo up
        mkdir -p $root/old
        cd $root
        pivot_root . old
        exec chroot . sh -ec "
            umount -l /old
            systemd-sysusers /usr/lib/sysusers.d/natgate.conf
            exec env -i container=test /lib/systemd/systemd --system --unit=only.target --log-target=null"
    '
"#;

/// A machine that systemd has started, without natgate at first.
struct Machine {
    child: Child,
    folder: Folder,
}

/// A script with the folder's places as variables.
fn shell(folder: &Folder, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script]);
    let name = folder.path().file_name().expect("it has a name");
    command.env("base", folder.path()).env("root", folder.file("root")).env("name", name);
    command.env("packaging", PACKAGING).env("program", PROGRAM);
    command
}

impl Machine {
    fn start() -> Self {
        let folder = Folder::new("unit");
        for name in ["root", "layer", "cgroup"] {
            fs::create_dir(folder.file(name)).expect("it is ours");
        }
        let enter = format!("{CGROUP}\nmkdir $group\necho $$ >$group/cgroup.procs\n{BOOT}");
        let mut command = shell(&folder, &enter);
        let log = fs::File::create(folder.file("boot.log")).expect("it is ours");
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        let mut machine = Self { child: child.expect("unshare runs"), folder };
        let begin = Instant::now();
        while !machine.does("systemctl is-active only.target").status.success() {
            let boot = fs::read_to_string(machine.folder.file("boot.log")).unwrap_or_default();
            let ended = machine.child.try_wait().expect("the child is ours");
            assert!(
                ended.is_none() && begin.elapsed() < PATIENCE,
                "systemd does not start: {boot}"
            );
            sleep(Duration::from_millis(50));
        }
        machine
    }

    /// Process 1, as this machine numbers it.
    fn init(&self) -> Option<String> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Some(children.split_whitespace().next()?.to_owned())
    }

    /// What a script there comes to.
    fn does(&self, script: &str) -> Output {
        let init = self.init().unwrap_or_else(|| "none".to_owned());
        let mut command = Command::new("nsenter");
        command.args(["--target", &init, "--mount", "--pid", "--net", "--uts", "--ipc"]);
        command.args(["--cgroup", "--root", "--wd", "sh", "-ec", script]);
        command.env("LC_ALL", "C.UTF-8").output().expect("nsenter runs")
    }

    /// What a script that must succeed prints.
    fn asks(&self, script: &str) -> String {
        let output = self.does(script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {text}{errors}{}", self.journal());
        text.trim_end().to_owned()
    }

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

    fn journal(&self) -> String {
        let output = self.does("journalctl --no-pager --output cat --unit natgate");
        String::from_utf8_lossy(&output.stdout).into_owned()
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

    /// Another drop-in.
    fn edit(&self, text: &str) {
        let folder = "/etc/systemd/system/natgate.service.d";
        self.asks(&format!(
            "mkdir -p {folder}; printf '[Service]\n{text}\n' >{folder}/test.conf; systemctl daemon-reload"
        ));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Whoever has made process 1 takes it along.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let remove = format!(
            "{CGROUP}
            for _ in $(seq 100); do
                [ -d $group ] || break
                ! find $group -depth -type d -exec rmdir {{}} + 2>/dev/null || break
                sleep 0.05
            done"
        );
        let _ = shell(&self.folder, &remove).status();
    }
}

const USUAL: &str = "device = \"in0\"";

#[test]
fn systemd_starts_watches_reloads_and_stops_it() {
    let machine = Machine::start();
    // Nobody has written a configuration yet: that is no failure.
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

    // Who is in the group may ask, others are told so.
    let other = "setpriv --reuid=65534 --regid=65534";
    machine.asks(&format!("{other} --groups=$(id -g natgate) natgate show counters"));
    let refused = machine.does(&format!("{other} --clear-groups natgate show counters"));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("join the group, or use sudo"));

    // A reload is done, or refused with its reason, whatever the socket is called.
    machine.configure(USUAL, "[timeouts]\nudp = \"3m\"");
    machine.asks("systemctl reload natgate");
    assert!(machine.journal().contains("reloaded, with other timeouts"));
    machine.configure(USUAL, "[nat]\nmistake = 1");
    assert!(!machine.does("systemctl reload natgate").status.success());
    assert!(machine.journal().contains("nat.mistake: there is no such key"));
    assert_eq!(machine.property("ActiveState"), "active");
    machine.configure(USUAL, "[control]\nsocket = \"/run/natgate/other.sock\"");
    machine.asks("systemctl restart natgate; systemctl reload natgate");

    // Warnings are found by their priority, and what is none is not among them.
    machine.configure(USUAL, "[snmp]\nagentx = \"/nowhere/master\"\n[shutdown]\ndrain = \"2s\"");
    machine.asks("systemctl restart natgate");
    let warned = "journalctl --no-pager --output cat --unit natgate --priority warning";
    let begin = Instant::now();
    while !machine.asks(warned).contains("no SNMP agent") {
        assert!(begin.elapsed() < PATIENCE, "{}", machine.journal());
        sleep(Duration::from_millis(50));
    }
    assert!(!machine.asks(warned).contains("running, inside"));

    // A drain that is longer than the unit's patience is waited for.
    machine.edit("TimeoutStopSec=1s");
    machine.asks("systemctl stop natgate");
    assert_eq!(machine.property("Result"), "success", "{}", machine.journal());
    assert!(machine.journal().trim_end().contains("stopped; outbound"));
    machine.asks("test -s /var/lib/natgate/ports; test ! -e /run/natgate");
}

#[test]
fn systemd_starts_it_again_when_that_helps() {
    let machine = Machine::start();
    // The back ends work with what the unit allows.
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
    // What makes no progress is ended by the watchdog.
    kill("STOP");
    machine.waits("NRestarts", "2");
    machine.waits("ActiveState", "active");

    // A device that comes late is waited for, however long.
    machine.edit("RestartSec=10ms");
    machine.configure("device = \"late0\"", "");
    assert!(!machine.does("systemctl restart natgate").status.success());
    let begin = Instant::now();
    while machine.journal().matches("there is no network device \"late0\"").count() < 12 {
        assert!(begin.elapsed() < PATIENCE, "it is given up: {}", machine.journal());
        sleep(Duration::from_millis(50));
    }
    machine.asks(
        "ip link add name late0 type veth peer name late1; ip link set late0 up; ip link set late1 up",
    );
    machine.waits("ActiveState", "active");

    // What is wrong stays wrong.
    machine.configure(USUAL, "[nat]\nmistake = 1");
    assert!(!machine.does("systemctl restart natgate").status.success());
    machine.waits("ActiveState", "failed");
    assert_eq!(machine.property("ExecMainStatus"), "2");
}
