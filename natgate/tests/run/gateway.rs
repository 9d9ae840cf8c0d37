//! Common parts of these tests: a folder with a configuration, two links in a namespace of their
//! own, and the gateway between them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");

/// Longest wait for any event; a busy machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The smallest configuration that fits the links.
pub(crate) const GOOD: &str = r#"[inside]
device = "in0"
address = "10.0.0.1/8"
[outside]
device = "out0"
address = "192.0.2.1/24"
[[pool]]
addresses = ["203.0.113.1"]
"#;

/// A folder of one test, which is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("natgate-run-{test}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the folder can be made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<std::ffi::OsString> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("readable").file_name()).collect();
        names.sort();
        names
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.file("control.sock")
    }

    /// Writes the smallest configuration with a control socket in the folder, and `more`.
    pub(crate) fn config(&self, more: &str) -> PathBuf {
        self.write(&format!("{GOOD}[control]\nsocket = {:?}\n{more}\n", self.socket()))
    }

    /// Writes a configuration unchanged.
    pub(crate) fn write(&self, text: &str) -> PathBuf {
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

/// `natgate run` in a new namespace with two links, in0 and out0, after `setup`. The end of `setup`
/// may be a prefix of the command. Mounts end with the namespace.
pub(crate) fn command(setup: &str, config: &Path, arguments: &[&str]) -> Command {
    let script = format!(
        "set -e
        for name in in out; do
            ip link add name ${{name}}0 type veth peer name ${{name}}1
            ip link set ${{name}}0 up; ip link set ${{name}}1 up
        done
        for device in in0 out0; do
            until ip link show $device | grep -q 'state UP'; do sleep 0.01; done
        done
        {setup}
        exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script, "sh", PROGRAM, "run", "-c"]);
    command.arg(config).args(arguments).stderr(Stdio::piped()).stdout(Stdio::piped());
    without_manager(&mut command);
    command
}

/// Removes a service manager's variables from the environment of a program.
fn without_manager(command: &mut Command) {
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM"] {
        command.env_remove(name);
    }
}

/// Exit code and output of a run that must fail.
pub(crate) fn refused(mut command: Command) -> (i32, String) {
    let output = command.output().expect("unshare runs");
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).expect("messages are text");
    (output.status.code().expect("an exit code"), said.trim_end().to_owned())
}

/// Exit code and output of a run with a configuration that must fail.
pub(crate) fn refusal(test: &str, setup: &str, text: &str) -> (i32, String) {
    refused(command(setup, &Folder::new(test).write(text), &[]))
}

/// Another subcommand: its exit code, output and errors.
pub(crate) fn natgate(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM).args(arguments).output().expect("natgate runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

/// A running gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) said: Receiver<String>,
}

impl Gateway {
    /// Starts a gateway and waits until it runs.
    pub(crate) fn start(command: Command) -> Self {
        let gateway = Self::spawn(command);
        assert_eq!(gateway.hears("running"), "natgate: running, inside in0, outside out0");
        gateway
    }

    /// Starts a gateway in a namespace with a third link, more0 and more1. The configuration is the
    /// smallest one and more. The folder has to outlive the gateway.
    pub(crate) fn start_with_third_link(folder: Folder, more: &str) -> (Folder, Self) {
        let third = "ip link add name more0 type veth peer name more1
            ip link set more0 up; ip link set more1 up";
        let gateway = Self::start(command(third, &folder.config(more), &[]));
        (folder, gateway)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("unshare runs");
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

    /// `natgate run` with this configuration in the gateway's namespaces.
    pub(crate) fn beside(&self, config: &Path) -> Command {
        let mut command = self.enter(PROGRAM);
        command.args(["run", "-c"]).arg(config);
        command
    }

    /// A program in the same namespaces.
    pub(crate) fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--mount", "--target", &self.id().to_string(), program]);
        command.stderr(Stdio::piped()).stdout(Stdio::piped());
        without_manager(&mut command);
        command
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line that contains `what`.
    pub(crate) fn hears(&self, what: &str) -> String {
        let begin = Instant::now();
        let mut all = Vec::new();
        loop {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            match self.said.recv_timeout(left) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => all.push(line),
                Err(_) => panic!("{what:?} was never said, but {all:#?}"),
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Output of a command in the gateway's namespaces; it must succeed.
    pub(crate) fn asks(&self, script: &str) -> String {
        let output = Command::new("nsenter")
            .args(["--net", "--mount", "--target", &self.id().to_string(), "sh", "-ec", script])
            .output()
            .expect("nsenter runs");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn ends(&mut self) -> i32 {
        self.ends_somehow().expect("an exit code")
    }

    /// Waits for the end; returns the exit code, or `None` if a signal ended the gateway.
    pub(crate) fn ends_somehow(&mut self) -> Option<i32> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status.code();
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
