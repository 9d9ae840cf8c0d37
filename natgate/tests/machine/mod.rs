//! A machine with a real systemd. systemd is process 1 of a namespace. Everything in it except the
//! network and a folder of the test is the host's, seen through a layer that takes all writes.
//!
//! Only journald, udev and the services of a test run there. Everything is removed when a
//! [`Machine`] is dropped. Needs systemd, iproute2, util-linux, a kernel with overlay and cgroup2,
//! and root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for any event; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Mount of the test's own cgroup, which is entered and removed at the end.
const CGROUP: &str = "mount -t cgroup2 none $base/cgroup
    group=$base/cgroup/natgate-machine-$name";

/// Commands before systemd becomes process 1. Only units of packages exist. `$prepare` puts the
/// test's own files below `$root`.
const BOOT: &str = r#"
    mount -t tmpfs -o size=1g none $base/layer
    mkdir $base/layer/upper $base/layer/work
    mount -t overlay -o lowerdir=/,upperdir=$base/layer/upper,workdir=$base/layer/work none $root
    for place in run tmp dev; do mount -t tmpfs -o mode=755 none $root/$place; done
    chmod 1777 $root/tmp
    for device in null zero full random urandom tty net/tun; do
        mkdir -p $(dirname $root/dev/$device)
        touch $root/dev/$device
        mount --bind /dev/$device $root/dev/$device
    done
    mkdir -p $root/dev/shm $root/dev/pts
    rm -rf $root/etc/systemd/system $root/etc/natgate
    mkdir -p $root/etc/systemd/system
    eval "$prepare"
    printf '[Unit]\nWants=systemd-journald.service\n' >$root/etc/systemd/system/only.target
    exec unshare --mount --pid --fork --kill-child --cgroup --net --uts --ipc sh -ec '
        mount -t proc none $root/proc
        mount -t sysfs none $root/sys
        mount -t cgroup2 none $root/sys/fs/cgroup
        ip link set lo up
        mkdir -p $root/old
        cd $root
        pivot_root . old
        exec chroot . sh -ec "
            umount -l /old
            exec env -i container=test /lib/systemd/systemd --system --unit=only.target --log-target=null"
    '
"#;

/// A machine started by systemd.
pub(crate) struct Machine {
    child: Child,
    folder: PathBuf,
}

/// A script with the folder's paths as variables.
fn shell(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script]);
    let name = folder.file_name().expect("it has a name");
    command.env("base", folder).env("root", folder.join("root")).env("name", name);
    command
}

impl Machine {
    /// Starts a machine. `prepare` is a script that may change files below `$root`; `places` are
    /// its variables.
    pub(crate) fn start(prepare: &str, places: &[(&str, &Path)]) -> Self {
        let folder = folder();
        let enter = format!("{CGROUP}\nmkdir $group\necho $$ >$group/cgroup.procs\n{BOOT}");
        let mut command = shell(&folder, &enter);
        command.env("prepare", prepare).envs(places.iter().copied());
        let log = fs::File::create(folder.join("boot.log")).expect("it is ours");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        let child = command.spawn().expect("unshare runs");
        let mut machine = Self { child, folder };
        let begin = Instant::now();
        while !machine.does("systemctl is-active only.target").status.success() {
            let boot = fs::read_to_string(machine.folder.join("boot.log")).unwrap_or_default();
            let ended = machine.child.try_wait().expect("the child is ours");
            assert!(
                ended.is_none() && begin.elapsed() < PATIENCE,
                "systemd does not start: {boot}"
            );
            sleep(Duration::from_millis(50));
        }
        machine
    }

    /// Number of process 1 on the host.
    fn init(&self) -> Option<String> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Some(children.split_whitespace().next()?.to_owned())
    }

    /// Runs a script on the machine, to its end.
    pub(crate) fn does(&self, script: &str) -> Output {
        let init = self.init().unwrap_or_else(|| "none".to_owned());
        let mut command = Command::new("nsenter");
        command.args(["--target", &init, "--mount", "--pid", "--net", "--uts", "--ipc"]);
        command.args(["--cgroup", "--root", "--wd", "sh", "-ec", script]);
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("LC_ALL", "C.UTF-8").output().expect("nsenter runs")
    }

    /// Output of a script that must succeed.
    pub(crate) fn asks(&self, script: &str) -> String {
        let output = self.does(script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {text}{errors}{}", self.journal());
        text.trim_end().to_owned()
    }

    /// Output of the first successful run of a script, which is repeated until then.
    #[allow(dead_code, reason = "not every test that has a machine waits for one")]
    pub(crate) fn waits_for(&self, script: &str) -> String {
        let begin = Instant::now();
        loop {
            let output = self.does(script);
            let text = String::from_utf8_lossy(&output.stdout);
            if output.status.success() {
                return text.trim_end().to_owned();
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(begin.elapsed() < PATIENCE, "{script}: {text}{errors}{}", self.journal());
            sleep(Duration::from_millis(100));
        }
    }

    /// Journal of natgate's unit.
    pub(crate) fn journal(&self) -> String {
        let output = self.does("journalctl --no-pager --output cat --unit natgate");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A new folder with the paths that a machine needs.
fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("natgate-machine-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    for name in ["root", "layer", "cgroup"] {
        fs::create_dir_all(folder.join(name)).expect("the folder can be made");
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    folder
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Process 1 ends with the process that created it.
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
        let _ = fs::remove_dir_all(&self.folder);
    }
}
